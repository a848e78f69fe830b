// Reports of the sanitizer: to stderr, to the file that STRATA_SANITIZE_REPORTS names, and to strata_emulator_reports().
#pragma once

#include "probe.h"
#include "settings.h"

#include <cstdint>
#include <string>

namespace strata::emulator {

struct kernel_image;
struct program;

/// Makes a report, unless one with the same key was made: then that one is counted once more.
void report(instrument kind, const std::string & key, const std::string & text);

/// Whether a report with this key exists already (it is then counted): spares the making of its text.
bool reported(instrument kind, const std::string & key);

/// How many distinct reports there are, and all of them as text.
uint64_t report_count();
std::string all_reports();
void forget_reports();

/// "`global_load_b32 v1, v[2:3], off` at offset 0x40 of kernel k (k.hip:12)"
std::string describe_instruction(const program & code, const kernel_image & kernel, uint32_t pc);
/// ", workgroup (1, 0, 0), wave 2"
std::string describe_wave(const wave & w);
/// "lane 3", "lanes 0-7, 9"
std::string describe_lanes(uint32_t lanes);
std::string hex(uint64_t x);

/// "file.hip:12" of an address in a loaded code object, "" without debug information.
std::string source_line(const kernel_image & kernel, uint64_t address);

}  // namespace strata::emulator
