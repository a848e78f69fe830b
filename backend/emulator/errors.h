// Errors of the emulator's HIP calls: a code, as HIP returns it, and a sentence, which HIP has no room for.
#pragma once

#include "runtime/hip_abi.h"

#include <string>

namespace strata::emulator {

/// Keeps `message` for this thread (strata_emulator_last_message) and returns `code`.
hip_error fail(hip_error code, std::string message);

/// The sentence of this thread's last failed call, "" if there was none.
const char * last_message();

/// This thread's last error, as hipGetLastError means it: set by failing calls only, cleared by taking it.
void set_last_error(hipError_t code);
hipError_t take_last_error();

const char * error_name(hipError_t code);
const char * error_text(hipError_t code);

/// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char * text, ...);

}  // namespace strata::emulator
