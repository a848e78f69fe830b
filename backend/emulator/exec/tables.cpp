// All operations of this build.
#include "tables.h"

#include "memory.h"
#include "shuffle.h"

namespace strata::emulator::STRATA_ISA {

static STRATA_HANDLER(unknown) { stop_with(w, i, count, fault_note::reason::unknown_instruction); }
static STRATA_HANDLER(nop) { STRATA_NEXT; }
static STRATA_HANDLER(save_swap_row) {
    store_row(w->swap_row, load_row(w->v + i->dst));
    STRATA_NEXT;
}
static STRATA_HANDLER(exchange_swap_row) {
    const u32v saved = load_row(w->swap_row), current = load_row(w->v + i->dst);
    store_row(w->swap_row, current);
    store_row(w->v + i->dst, saved);
    STRATA_NEXT;
}

uint32_t apply_dpp(wave * w, const inst * i) {
    const dpp_control & c = *i->dpp;
    const u32v index = load_row(c.lane);
    u32v r = permute(load_row(w->v + i->src[0]), index);
    uint32_t usable = c.valid;
    const uint32_t exec = w->s[slot_exec];
    if (!c.fetch_inactive && exec != 0xffffffffu) {
        usable &= lane_bits(i32v(((splat(exec) >> index) & 1u) != 0u));
    }
    if (usable != 0xffffffffu) r &= as<u32v>(mask_lanes(usable));
    store_row(w->dpp_row, r);
    return c.bound_ctrl ? c.write : c.write & usable;
}

static const operation_table * const tables[] = {
    &table_valu_f32, &table_valu_int, &table_valu_16, &table_valu_64, &table_packed, &table_cross_lane, &table_wmma, &table_salu,
    &table_salu_float, &table_control, &table_global, &table_lds, &table_buffer,
};

const isa_build build = {STRATA_ISA_NAME, tables, sizeof tables / sizeof tables[0], unknown, nop, save_swap_row, exchange_swap_row,
                         instrument_hook};

}  // namespace strata::emulator::STRATA_ISA
