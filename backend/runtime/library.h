// The library that answers HIP's calls: AMD's, or the emulator.
#pragma once

#include <string>

#include "runtime/hip_abi.h"

namespace strata {

/// A loaded HIP library. Never unloaded: its threads may outlive anything.
struct hip_library {
    hip_api api;
    bool emulated = false;
    std::string kind;             ///< "hip" or "emulator"
    std::string path;             ///< file that was loaded
    int driver_version = 0;       ///< as hipDriverGetVersion says
    int runtime_version = 0;      ///< major * 10^7 + minor * 10^5 + patch
    /// The emulator's sentence on the calling thread's last failed call; nullptr with a real GPU.
    const char * (*failure_message)() = nullptr;
};

/// Loads what STRATA_RUNTIME (auto, hip, emulator) asks for and initialises it; at least one device answers.
/// Throws a failure that says what was looked for and how to ask for the emulator.
hip_library load_hip_library();

/// " How to ask for the emulator", for messages.
extern const char * const emulator_hint;

}  // namespace strata
