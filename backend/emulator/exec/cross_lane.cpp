// Operations that move values between lanes or by register index. All lanes are read before any is written.
#include "memory.h"
#include "shuffle.h"
#include "tables.h"

namespace strata::emulator::STRATA_ISA {

/// A scalar operand of a vector instruction: an SGPR or a constant row.
static STRATA_INLINE uint32_t scalar(const wave * w, const inst * i, int k) {
    if (i->kind[k] == source_sgpr) return w->s[i->src[k]];
    uint32_t x;
    std::memcpy(&x, row(w, i->src[k]), 4);
    return x;
}
static STRATA_INLINE uint32_t lane_value(const wave * w, const inst * i, int k, uint32_t lane) {
    if (i->kind[k] == source_sgpr) return w->s[i->src[k]];
    uint32_t x;
    std::memcpy(&x, row(w, i->src[k]) + lane * 4, 4);
    return x;
}

static STRATA_HANDLER(v_readfirstlane_b32) {
    const uint32_t exec = w->s[slot_exec];
    w->s[i->dst] = lane_value(w, i, 0, exec ? uint32_t(__builtin_ctz(exec)) : 0);
    STRATA_NEXT;
}
static STRATA_HANDLER(v_readlane_b32) {
    w->s[i->dst] = lane_value(w, i, 0, scalar(w, i, 1) & 31);
    STRATA_NEXT;
}
/// EXEC does not matter.
static STRATA_HANDLER(v_writelane_b32) {
    const uint32_t x = scalar(w, i, 0), lane = scalar(w, i, 1) & 31;
    std::memcpy(w->v + i->dst + lane * 4, &x, 4);
    STRATA_NEXT;
}

struct lane_values {
    alignas(64) uint32_t x[32];
    STRATA_INLINE u32v vector() const {
        u32v r;
        std::memcpy(&r, x, sizeof r);
        return r;
    }
    STRATA_INLINE void operator=(u32v v) { std::memcpy(x, &v, sizeof v); }
};

/// op_sel[0] = fetch inactive lanes, op_sel[1] = bound_ctrl: without both, lanes whose source is off keep their value.
template <bool across> static STRATA_HANDLER(permlane16) {
    const uint32_t exec = w->s[slot_exec];
    const uint64_t selectors = scalar(w, i, 1) | uint64_t(scalar(w, i, 2)) << 32;
    const u32v low = splat(uint32_t(selectors)), high = splat(uint32_t(selectors >> 32));
    const u32v half = select(i32v((lane_number & 8u) != 0u), high, low);
    const u32v index = ((lane_number & 16u) ^ (across ? 16u : 0u)) | ((half >> ((lane_number & 7u) << 2)) & 15u);
    u32v r = permute(fetch(w, i, 0), index);
    const uint32_t usable = lane_bits(i32v(((splat(exec) >> index) & 1u) != 0u));
    const bool fetch_inactive = i->opsel & 1, bound_ctrl = i->opsel & 2;
    uint32_t lanes = exec;
    if (!fetch_inactive && usable != 0xffffffffu) {
        r &= as<u32v>(mask_lanes(usable));
        if (!bound_ctrl) lanes &= usable;
    }
    put_row(w, i->dst, r, lanes);
    STRATA_NEXT;
}

static STRATA_HANDLER(ds_bpermute_b32) {
    const uint32_t exec = w->s[slot_exec];
    const u32v data = load_row(w->v + i->src[1]) & as<u32v>(mask_lanes(exec));  // lanes that are off give 0
    const u32v index = ((load_row(w->v + i->src[0]) + uint32_t(i->imm)) >> 2) & 31u;
    put_row(w, i->dst, permute(data, index), exec);
    STRATA_NEXT;
}
static STRATA_HANDLER(ds_permute_b32) {
    const uint32_t exec = w->s[slot_exec];
    lane_values data, index, result;
    data = load_row(w->v + i->src[1]);
    index = ((load_row(w->v + i->src[0]) + uint32_t(i->imm)) >> 2) & 31u;
    result = splat(0);
    for (int lane = 0; lane < 32; lane++) {
        if (exec >> lane & 1) result.x[index.x[lane]] = data.x[lane];
    }
    put_row(w, i->dst, result.vector(), exec);
    STRATA_NEXT;
}
static STRATA_HANDLER(ds_swizzle_b32) {
    const uint32_t exec = w->s[slot_exec];
    lane_values data, result;
    data = load_row(w->v + i->src[0]) & as<u32v>(mask_lanes(exec));
    for (uint32_t lane = 0; lane < 32; lane++) result.x[lane] = data.x[swizzled(uint32_t(i->imm), lane)];
    put_row(w, i->dst, result.vector(), exec);
    STRATA_NEXT;
}

/// Register indices through M0. An index outside the wave's registers stops it.
static STRATA_INLINE bool in_registers(wave * w, const inst * i, uint64_t count, int64_t offset) {
    if (offset >= 0 && offset < int64_t(256) * row_bytes) return true;
    stop_with(w, i, count + i->weight, fault_note::reason::unsupported, "M0 makes this an access outside the vector registers");
    return false;
}
template <bool source_moves, bool destination_moves, bool two, bool swap> static STRATA_HANDLER(movrel) {
    const uint32_t m0 = w->s[slot_m0];
    const int64_t by_source = int64_t(two ? m0 & 0x3ff : m0) * row_bytes;
    const int64_t by_destination = int64_t(two ? m0 >> 16 & 0x3ff : m0) * row_bytes;
    const int64_t to = i->dst + (destination_moves ? by_destination : 0);
    const uint32_t exec = w->s[slot_exec];
    if (!in_registers(w, i, count, to)) return;
    u32v x;
    if (source_moves) {
        const int64_t from = i->src[0] + by_source;
        if (!in_registers(w, i, count, from)) return;
        x = load_row(w->v + from);
        if (swap) put_row(w, int32_t(from), load_row(w->v + to), exec);
    } else {
        x = fetch(w, i, 0);
    }
    put_row(w, int32_t(to), x, exec);
    STRATA_NEXT;
}
static STRATA_HANDLER(v_swap_b32) {
    const uint32_t exec = w->s[slot_exec];
    const u32v a = load_row(w->v + i->dst), b = load_row(w->v + i->src[0]);
    put_row(w, i->dst, b, exec);
    put_row(w, i->src[0], a, exec);
    STRATA_NEXT;
}
static STRATA_HANDLER(v_swap_b16) {
    const uint32_t exec = w->s[slot_exec];
    const bool high_d = i->opsel & 8, high_s = i->opsel & 1;
    const u32v a = load_row(w->v + i->dst) >> (high_d ? 16 : 0), b = load_row(w->v + i->src[0]) >> (high_s ? 16 : 0);
    put_half(w, i->dst, b & 0xffffu, exec, high_d);
    put_half(w, i->src[0], a & 0xffffu, exec, high_s);
    STRATA_NEXT;
}

#define LANE(NAME, HOW, A, B, C, FN, FLAGS) {#NAME, HOW, type::b32, A, B, C, nullptr, FN, FLAGS}

static const operation entries[] = {
    LANE(v_readfirstlane_b32, form::lane_scalar, type::b32, type::none, type::none, v_readfirstlane_b32, op_no_dpp),
    LANE(v_readlane_b32, form::lane_scalar, type::b32, type::b32, type::none, v_readlane_b32, op_no_dpp),
    LANE(v_writelane_b32, form::valu, type::b32, type::b32, type::none, v_writelane_b32, op_no_dpp),
    LANE(v_permlane16_b32, form::valu, type::b32, type::b32, type::b32, permlane16<false>, op_no_dpp | op_free_opsel),
    LANE(v_permlanex16_b32, form::valu, type::b32, type::b32, type::b32, permlane16<true>, op_no_dpp | op_free_opsel),
    LANE(v_movrels_b32, form::valu, type::b32, type::none, type::none, (movrel<true, false, false, false>), op_no_dpp | op_rows_only),
    LANE(v_movreld_b32, form::valu, type::b32, type::none, type::none, (movrel<false, true, false, false>), op_no_dpp),
    LANE(v_movrelsd_b32, form::valu, type::b32, type::none, type::none, (movrel<true, true, false, false>), op_no_dpp | op_rows_only),
    LANE(v_movrelsd_2_b32, form::valu, type::b32, type::none, type::none, (movrel<true, true, true, false>), op_no_dpp | op_rows_only),
    LANE(v_swaprel_b32, form::valu, type::b32, type::none, type::none, (movrel<true, true, true, true>), op_no_dpp | op_rows_only),
    LANE(v_swap_b32, form::valu, type::b32, type::none, type::none, v_swap_b32, op_no_dpp | op_rows_only),
    {"v_swap_b16", form::valu, type::b16, type::b16, type::none, type::none, nullptr, v_swap_b16, op_no_dpp | op_rows_only},
    {"ds_bpermute_b32", form::ds, type::none, type::none, type::none, type::none, nullptr, ds_bpermute_b32, 0},
    {"ds_permute_b32", form::ds, type::none, type::none, type::none, type::none, nullptr, ds_permute_b32, 0},
    {"ds_swizzle_b32", form::ds, type::none, type::none, type::none, type::none, nullptr, ds_swizzle_b32, 0},
};
STRATA_TABLE(cross_lane, entries)

}  // namespace strata::emulator::STRATA_ISA
