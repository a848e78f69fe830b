// wait: a register is used before the s_waitcnt that covers the load which fills it. The emulator completes every load at once;
// on the chip the register would still hold its old value.
//
// Loads count in vmcnt (global, flat, buffer, scratch; they return in order) or in lgkmcnt (LDS in order among themselves, scalar
// loads in any order). s_waitcnt lgkmcnt(n) leaves at most n outstanding: an LDS access is complete if n or more LDS accesses were
// issued after it; a scalar load only if n is 0.
#include "report.h"
#include "state.h"

#include "../program.h"
#include "../workgroup.h"

#include <algorithm>

namespace strata::emulator {

namespace {

enum queue : uint8_t { queue_vm, queue_lds, queue_scalar };

bool is_pending(const wait_state & s, const pending & p) {
    if (p.number == 0) return false;
    switch (p.queue) {
    case queue_vm: return p.number > s.vm.done;
    case queue_lds: return p.number > s.lds.done;
    case queue_scalar: return p.number > s.scalar.done;
    default: return false;
    }
}

void complete(wait_queue & q, int left) {
    if (q.issued > uint32_t(left)) q.done = std::max(q.done, q.issued - uint32_t(left));
}

void complain(wave & w, const probe & p, const register_span & span, unsigned n, const pending & load, const char * what) {
    const std::string key = w.code ? std::to_string(reinterpret_cast<uintptr_t>(w.code)) + ":" + std::to_string(p.pc) : "";
    if (reported(instrument_wait, key)) return;
    const launch_context & context = context_of(*w.watched->thread->launch);
    const std::string name = (span.vector ? "v" : "s") + std::to_string(span.first + int(n));
    const char * counter = load.queue == queue_vm ? "vmcnt" : "lgkmcnt";
    const kernel_image & kernel = *context.launch.kernel;
    report(instrument_wait, key,
           name + " is " + what + " while a load into it is outstanding: no s_waitcnt " + counter + " covers it\n  used in " +
               describe_instruction(*w.code, kernel, p.pc) + describe_wave(w) + "\n  loaded by " +
               describe_instruction(*w.code, kernel, load.pc));
}

void check_span(wave & w, wait_state & s, const probe & p, const register_span & span, bool written, int own_queue) {
    pending * list = span.vector ? s.rows : s.slots;
    const unsigned room = span.vector ? watched_rows : unsigned(slot_count);
    for (unsigned n = 0; n < span.count && unsigned(span.first) + n < room; n++) {
        pending & load = list[unsigned(span.first) + n];
        if (!is_pending(s, load)) continue;
        // Loads of one queue return in order, so the later one wins as it should.
        if (written && load.queue == own_queue && own_queue != queue_scalar) continue;
        complain(w, p, span, n, load, written ? "overwritten" : "used");
        load.number = 0;  // once is enough
    }
}

}  // namespace

void check_wait(wave & w, const probe & p) {
    wait_state & s = w.watched->wait;
    if (p.wait_vm >= 0) complete(s.vm, p.wait_vm);
    if (p.wait_lgkm >= 0) {
        complete(s.lds, p.wait_lgkm);
        if (p.wait_lgkm == 0) complete(s.scalar, 0);
    }
    const memory_use & u = p.memory;
    int own = -1;
    switch (u.where) {
    case segment::global: case segment::scratch: case segment::buffer: case segment::flat:
        own = queue_vm;
        break;
    case segment::lds: own = queue_lds; break;
    case segment::scalar: case segment::scalar_buffer: own = queue_scalar; break;
    case segment::none:
        if (p.how == form::ds) own = queue_lds;  // permutes count too
        break;
    }
    const bool outstanding = s.vm.issued != s.vm.done || s.lds.issued != s.lds.done || s.scalar.issued != s.scalar.done;
    if (outstanding) {
        for (unsigned n = 0; n < p.read_count; n++) check_span(w, s, p, p.reads[n], false, own);
        for (unsigned n = 0; n < p.write_count; n++) check_span(w, s, p, p.writes[n], true, own);
        if (p.is_barrier && s.lds_stores > s.lds.done && w.watched->thread->waves > 1) {
            report_at(instrument_wait, w, p, "the wave reaches a barrier while its store to LDS is outstanding: no s_waitcnt lgkmcnt "
                      "covers it, so the other waves may read the old value", 0,
                      ("\n  stored by " + describe_instruction(*w.code, *context_of(*w.watched->thread->launch).launch.kernel,
                                                               s.lds_store_pc)).c_str());
        }
    }
    if (own < 0) return;
    const bool fills = p.write_count != 0;
    if (own == queue_vm && !fills) return;  // stores count in vscnt
    wait_queue & q = own == queue_vm ? s.vm : own == queue_lds ? s.lds : s.scalar;
    q.issued++;
    if (own == queue_lds && u.store) {
        s.lds_stores = q.issued;
        s.lds_store_pc = p.pc;
    }
    for (unsigned k = 0; k < p.write_count; k++) {
        const register_span & span = p.writes[k];
        pending * list = span.vector ? s.rows : s.slots;
        const unsigned room = span.vector ? watched_rows : unsigned(slot_count);
        for (unsigned n = 0; n < span.count && unsigned(span.first) + n < room; n++) {
            list[unsigned(span.first) + n] = {q.issued, p.pc, uint8_t(own)};
        }
    }
}

}  // namespace strata::emulator
