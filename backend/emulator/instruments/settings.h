// Which instruments watch this process: STRATA_SANITIZE, STRATA_COUNT, STRATA_MODEL. Read once.
#pragma once

#include <cstdint>
#include <string>

namespace strata::emulator {

enum instrument : uint32_t {
    instrument_count = 1,
    instrument_memory = 2,
    instrument_init = 4,
    instrument_race = 8,
    instrument_wait = 16,
    instrument_host = 32,
    instrument_time = 128,  ///< with instrument_count: also the modelled time
    instrument_align = 64,  ///< not part of `all`: accesses that gfx1151 makes, but that are not aligned to their size
};
constexpr uint32_t sanitizer_kinds = instrument_memory | instrument_init | instrument_race | instrument_wait | instrument_host;
/// The instruments that look at single instructions.
constexpr uint32_t instruction_instruments = (sanitizer_kinds & ~uint32_t(instrument_host)) | instrument_count | instrument_align | instrument_time;

struct instrument_settings {
    uint32_t on = 0;
    std::string model;        ///< STRATA_MODEL
    std::string count_file;   ///< STRATA_COUNT
    std::string report_file;  ///< STRATA_SANITIZE_REPORTS: every report is appended to it too

    bool has(uint32_t which) const { return (on & which) != 0; }
    bool watches_instructions() const { return has(instruction_instruments); }
};

const instrument_settings & instruments();

}  // namespace strata::emulator
