// init: what is said when an undefined value reaches a store, a branch or an address. How definedness spreads is in init.cpp.
#include "report.h"
#include "state.h"

#include "../program.h"
#include "../workgroup.h"

namespace strata::emulator {

void report_undefined(const wave & w, const probe & p, const char * where, uint32_t lanes, const origin & from) {
    const std::string key = std::to_string(reinterpret_cast<uintptr_t>(w.code)) + ":" + std::to_string(p.pc) + ":" + where;
    if (reported(instrument_init, key)) return;
    const launch_context & context = context_of(*w.watched->thread->launch);
    const kernel_image & kernel = *context.launch.kernel;
    std::string cause;
    switch (from.from) {
    case origin::source::vgpr: cause = "it comes from v" + std::to_string(from.address) + ", which nothing wrote"; break;
    case origin::source::sgpr: cause = "it comes from s" + std::to_string(from.address) + ", which nothing wrote"; break;
    case origin::source::condition: cause = "it comes from a comparison of undefined values"; break;
    case origin::source::lds: cause = "it comes from LDS address " + hex(from.address) + ", which nothing (defined) was written to"; break;
    case origin::source::scratch: cause = "it comes from scratch address " + hex(from.address) + ", which nothing was written to"; break;
    case origin::source::device:
        cause = "it comes from " + hex(from.address) + ", which nothing was written to: " + w.memory->describe(from.address, 1);
        break;
    }
    if (from.pc != 0) cause += "\n  read by " + describe_instruction(*w.code, kernel, from.pc - 1);
    report(instrument_init, key,
           std::string("an undefined value ") + where + (lanes ? ", " + describe_lanes(lanes) : "") + "\n  in " +
               describe_instruction(*w.code, kernel, p.pc) + describe_wave(w) + "\n  " + cause);
}

}  // namespace strata::emulator
