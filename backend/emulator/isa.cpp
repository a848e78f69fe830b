// Which build of the handlers runs on this machine.
#include "instruction.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace strata::emulator {

namespace generic { extern const isa_build build; }
namespace avx2 { extern const isa_build build; }
namespace avx512 { extern const isa_build build; }

static bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }
static bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

static const isa_build & choose() {
    const char * given = std::getenv("STRATA_EMULATOR_ISA");
    const std::string name = given ? given : "";
    if (name.empty()) return has_avx512() ? avx512::build : has_avx2() ? avx2::build : generic::build;
    if (name == "generic") return generic::build;
    if (name == "avx2" && has_avx2()) return avx2::build;
    if (name == "avx512" && has_avx512()) return avx512::build;
    if (name == "avx2" || name == "avx512") throw std::runtime_error("STRATA_EMULATOR_ISA=" + name + ": this CPU does not have it");
    throw std::runtime_error("STRATA_EMULATOR_ISA=" + name + " is none of generic, avx2, avx512");
}

const isa_build & current_isa() {
    static const isa_build & chosen = choose();
    return chosen;
}

}  // namespace strata::emulator
