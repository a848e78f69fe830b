// init: which bits of registers, LDS, scratch and device memory nothing has written, followed through every instruction bit by bit
// where that is cheap and lane by lane elsewhere. It is told when such a bit reaches a store to device memory, a branch (EXEC
// included) or an address; it then counts as defined, so that one fault is told once.
#include "hook.h"

#include "../exec/operands.h"
#include "../exec/scalar.h"
#include "../exec/shuffle.h"

namespace strata::emulator::STRATA_ISA {

static STRATA_INLINE bool some(u32v x) { return __builtin_reduce_or(x) != 0; }
/// All bits of the lanes that have one.
static STRATA_INLINE u32v whole(u32v x) { return as<u32v>(i32v(x != 0u)); }
/// All bits from the lowest one upwards: carries go that way.
static STRATA_INLINE u32v upwards(u32v x) { return x | (0u - x); }
static STRATA_INLINE uint64_t upwards1(uint64_t x) { return x | (0ull - x); }

/// a & b, a | b: a bit is defined where both are, or where a defined one decides.
static STRATA_INLINE u32v and_undefined(u32v va, u32v sa, u32v vb, u32v sb) { return (sa | va) & (sb | vb) & (sa | sb); }
static STRATA_INLINE u32v or_undefined(u32v va, u32v sa, u32v vb, u32v sb) { return (sa | ~va) & (sb | ~vb) & (sa | sb); }

static STRATA_INLINE int row_number(int32_t offset) { return offset / row_bytes; }

static STRATA_INLINE void put_undefined(wave_state & s, int32_t offset, u32v x, uint32_t lanes) {
    uint8_t * p = s.rows + offset;
    if (lanes != 0xffffffffu) x = select(mask_lanes(lanes), x, load_row(p));
    store_row(p, x);
    s.dirty[row_number(offset)] = some(x);
}
static STRATA_INLINE void put_undefined_half(wave_state & s, int32_t offset, u32v x, uint32_t lanes, bool high) {
    const u32v old = load_row(s.rows + offset);
    put_undefined(s, offset, high ? (old & 0xffffu) | (x << 16) : (old & 0xffff0000u) | (x & 0xffffu), lanes);
}

/// Where the undefined bits of an operation's first undefined source come from.
static STRATA_INLINE const origin & origin_of(const wave_state & s, const probe & p) {
    for (unsigned n = 0; n < p.read_count; n++) {
        const register_span & r = p.reads[n];
        for (int k = 0; k < r.count; k++) {
            if (r.vector ? s.dirty[r.first + k] != 0 : s.slots[r.first + k] != 0) {
                return r.vector ? s.row_origin[r.first + k] : s.slot_origin[r.first + k];
            }
        }
    }
    return p.reads_scc ? s.slot_origin[slot_scc] : s.slot_origin[slot_vcc];
}

static STRATA_INLINE bool all_defined(const wave_state & s, const probe & p) {
    for (unsigned n = 0; n < p.read_count; n++) {
        const register_span & r = p.reads[n];
        for (int k = 0; k < r.count; k++) {
            if (r.vector ? s.dirty[r.first + k] != 0 : s.slots[r.first + k] != 0) return false;
        }
    }
    return !p.reads_scc || s.slots[slot_scc] == 0;
}

/// Results that are defined. True if there was nothing to do.
static STRATA_INLINE void clear_rows(wave_state & s, int first, int count, uint32_t lanes) {
    for (int n = first; n < first + count; n++) {
        if (!s.dirty[n]) continue;
        put_undefined(s, n * row_bytes, splat(0), lanes);
    }
}

// Sources of a vector operation.

struct vector_sources {
    wave * w;
    wave_state & s;
    const inst & i;
    const operation & op;
    uint32_t lanes;    // that are written
    u32v dpp;          // undefined bits of the DPP source

    STRATA_INLINE u32v undefined(int k) const {
        if (i.kind[k] == source_dpp) return dpp;
        if (i.kind[k] == source_sgpr) return splat(s.slots[i.src[k]]);
        return i.src[k] >= 0 ? load_row(s.rows + i.src[k]) : splat(0);
    }
    STRATA_INLINE u32v value(int k) const { return fetch(w, &i, k); }
    static STRATA_INLINE bool is_half(type t) { return t == type::b16 || t == type::f16 || t == type::bf16 || t == type::i16; }
    static STRATA_INLINE bool is_double(type t) { return t == type::b64 || t == type::f64 || t == type::i64; }
    STRATA_INLINE type kind_of(int k) const { return k == 0 ? op.a : k == 1 ? op.b : op.c; }

    /// Both registers of a 64-bit source, or one.
    STRATA_INLINE u64v wide(int k) const {
        if (!is_double(kind_of(k))) return convert<u64v>(undefined(k));
        if (i.kind[k] == source_sgpr) return splat64(s.slots[i.src[k]] | uint64_t(s.slots[i.src[k] + 1]) << 32);
        return i.src[k] >= 0 ? join(load_row(s.rows + i.src[k]), load_row(s.rows + i.src[k] + row_bytes)) : splat64(0);
    }

    /// The bits that the operation looks at; of two registers, a bit of either.
    STRATA_INLINE u32v looked_at(int k) const {
        const type t = kind_of(k);
        if (t == type::none) return splat(0);
        if (t == type::mask) return as<u32v>(mask_lanes(s.slots[i.src[k]]));
        if (is_double(t)) {
            if (i.kind[k] == source_sgpr) return splat(s.slots[i.src[k]] | s.slots[i.src[k] + 1]);
            return i.src[k] >= 0 ? load_row(s.rows + i.src[k]) | load_row(s.rows + i.src[k] + row_bytes) : splat(0);
        }
        u32v x = undefined(k);
        if (is_half(t)) x = (i.opsel >> k & 1) ? x >> 16 : x & 0xffffu;
        if (i.abs >> k & 1 && t == type::f32) x &= 0x7fffffffu;
        return x;
    }
    STRATA_INLINE u32v any() const { return whole(looked_at(0) | looked_at(1) | looked_at(2)); }
};

static STRATA_INLINE u32v half_of(const vector_sources & x, int k, bool high) {
    const uint32_t bits = high ? x.i.opsel_hi : x.i.opsel;
    const u32v word = x.undefined(k);
    return (bits >> k & 1) ? word >> 16 : word & 0xffffu;
}
static STRATA_INLINE u32v mix_source_of(const vector_sources & x, int k) {
    const u32v word = x.undefined(k);
    if (!(x.i.opsel_hi >> k & 1)) return word;
    return (x.i.opsel >> k & 1) ? word >> 16 : word & 0xffffu;
}

static u32v permuted_bytes(const vector_sources & x) {
    const u64v data = join(x.undefined(1), x.undefined(0));
    const u32v selectors = x.value(2), unknown = x.undefined(2);
    u32v r = splat(0);
    for (int n = 0; n < 4; n++) {
        const u32v sel = (selectors >> (8 * n)) & 0xffu;
        u32v byte = convert<u32v>(data >> convert<u64v>((sel & 7u) << 3)) & 0xffu;
        const u32v sign = convert<u32v>(data >> convert<u64v>((((sel & 3u) << 1) + 1u) * 8u + 7u)) & 1u;
        byte = select(i32v(sel >= 8u), (0u - sign) & 0xffu, byte);
        byte = select(i32v(sel >= 12u), splat(0), byte);
        byte |= whole((unknown >> (8 * n)) & 0xffu) & 0xffu;
        r |= byte << (8 * n);
    }
    return r;
}

static STRATA_INLINE u32v result_of(flow how, const vector_sources & x) {
    const auto s = [&](int k) STRATA_LAMBDA { return x.undefined(k); };
    const auto v = [&](int k) STRATA_LAMBDA { return x.value(k); };
    const auto low5 = [&](int k) STRATA_LAMBDA { return whole(s(k) & 31u); };
    switch (how) {
    case flow::copy: return x.looked_at(0);
    case flow::sign_extend_16: return as<u32v>((as<i32v>(x.looked_at(0)) << 16) >> 16);
    case flow::exclusive: return x.looked_at(0) | x.looked_at(1) | x.looked_at(2);
    case flow::conjunction: return and_undefined(v(0), s(0), v(1), s(1));
    case flow::disjunction: return or_undefined(v(0), s(0), v(1), s(1));
    case flow::and_or: return or_undefined(v(0) & v(1), and_undefined(v(0), s(0), v(1), s(1)), v(2), s(2));
    case flow::or3: return or_undefined(v(0) | v(1), or_undefined(v(0), s(0), v(1), s(1)), v(2), s(2));
    case flow::shift_left: return (s(1) << (v(0) & 31u)) | low5(0);
    case flow::shift_right: return (s(1) >> (v(0) & 31u)) | low5(0);
    case flow::shift_right_arithmetic: return as<u32v>(as<i32v>(s(1)) >> as<i32v>(v(0) & 31u)) | low5(0);
    case flow::shift_left_or: {
        const u32v by = v(1) & 31u;
        return or_undefined(v(0) << by, (s(0) << by) | low5(1), v(2), s(2));
    }
    case flow::shift_left_add: return upwards((s(0) << (v(1) & 31u)) | s(2)) | low5(1);
    case flow::add: return upwards(x.looked_at(0) | x.looked_at(1) | x.looked_at(2));
    case flow::add_shift_left: return (upwards(s(0) | s(1)) << (v(2) & 31u)) | low5(2);
    case flow::low24: return upwards(((s(0) | s(1)) & 0xffffffu) | x.looked_at(2));
    case flow::extract: return ((s(0) >> (v(1) & 31u)) & ((splat(1) << (v(2) & 31u)) - 1u)) | low5(1) | low5(2);
    case flow::extract_signed: {
        const u32v width = v(2) & 31u;
        const u32v field = (s(0) >> (v(1) & 31u)) & ((splat(1) << width) - 1u);
        const u32v sign = (splat(1) << width) >> 1;
        return field | whole(field & sign) | low5(1) | low5(2);
    }
    case flow::carry: return upwards(x.looked_at(0) | x.looked_at(1) | x.looked_at(2));
    case flow::insert: return (v(0) & s(1)) | (~v(0) & s(2)) | (s(0) & ((v(1) ^ v(2)) | s(1) | s(2)));
    case flow::align_bit: return convert<u32v>(join(s(1), s(0)) >> convert<u64v>(v(2) & 31u)) | low5(2);
    case flow::align_byte: return convert<u32v>(join(s(1), s(0)) >> convert<u64v>((v(2) & 3u) << 3)) | whole(s(2) & 3u);
    case flow::permute_bytes: return permuted_bytes(x);
    case flow::byte0: return whole(s(0) & 0xffu);
    case flow::byte1: return whole(s(0) & 0xff00u);
    case flow::byte2: return whole(s(0) & 0xff0000u);
    case flow::byte3: return whole(s(0) & 0xff000000u);
    case flow::choose: {
        const uint32_t mask = x.w->s[x.i.src[2]] ^ uint32_t(x.i.imm);
        const u32v a = x.looked_at(0), b = x.looked_at(1);
        const u32v chosen = select(mask_lanes(mask), b, a);
        return chosen | (as<u32v>(mask_lanes(x.s.slots[x.i.src[2]])) & (a | b | (v(0) ^ v(1))));
    }
    case flow::count_below: return upwards(whole(s(0) & (lane_bit - 1u)) | s(1));
    case flow::count_none: return s(1);
    case flow::pack: return (x.looked_at(0) & 0xffffu) | (x.looked_at(1) << 16);
    case flow::pack_converted: return (whole(x.looked_at(0)) & 0xffffu) | (whole(x.looked_at(1)) << 16);
    case flow::halves: {
        u32v low = half_of(x, 0, false) | half_of(x, 1, false), high = half_of(x, 0, true) | half_of(x, 1, true);
        if (x.op.c != type::none) {
            if (x.op.how == form::valu_acc) {
                low |= s(2) & 0xffffu;
                high |= s(2) >> 16;
            } else {
                low |= half_of(x, 2, false);
                high |= half_of(x, 2, true);
            }
        }
        return (whole(low) & 0xffffu) | (whole(high) << 16);
    }
    case flow::mix: case flow::mix_low: case flow::mix_high:
        return whole(mix_source_of(x, 0) | mix_source_of(x, 1) | mix_source_of(x, 2));
    default: return x.any();
    }
}

/// A row of D depends on a row of A, a column on a column of B.
static void matrix_result(wave_state & s, const probe & p) {
    const inst & i = p.part[0].code;
    u32v rows = splat(0), columns = splat(0);
    const auto collect = [&](int k) STRATA_LAMBDA {
        u32v x = splat(0);
        if (i.src[k] >= 0) {
            for (int n = 0; n < p.reads[k].count; n++) x |= load_row(s.rows + i.src[k] + n * row_bytes);
        }
        return whole(x);
    };
    rows = collect(0);
    columns = collect(1);
    const uint32_t row_bits = lane_bits(as<i32v>(rows)) & 0xffffu;
    for (int n = 0; n < 8; n++) {
        const uint32_t low = row_bits >> (2 * n) & 1, high = row_bits >> (2 * n + 1) & 1;
        u32v x = columns | as<u32v>(mask_lanes((low ? 0xffffu : 0) | (high ? 0xffff0000u : 0)));
        if (i.src[2] >= 0) x |= whole(load_row(s.rows + i.src[2] + n * row_bytes));
        put_undefined(s, i.dst + n * row_bytes, x, 0xffffffffu);
    }
}

static STRATA_INLINE void set_slot(wave_state & s, int slot, uint32_t x, const origin & from) {
    s.slots[slot] = x;
    if (x) s.slot_origin[slot] = from;
}

/// EXEC has got undefined bits: lanes go on or not by chance.
static void execute_mask(wave * w, const probe & p, const origin & from) {
    wave_state & s = *w->watched;
    if (!s.slots[slot_exec]) return;
    report_undefined(*w, p, "decides which lanes go on", s.slots[slot_exec], from);
    s.slots[slot_exec] = 0;
}

static void cross_lane(wave * w, const probe & p, const probe_part & part, const origin & from) {
    wave_state & s = *w->watched;
    const inst & i = part.code;
    const uint32_t exec = w->s[slot_exec];
    const auto lane_of = [&](int k, uint32_t lane) STRATA_LAMBDA -> uint32_t {
        if (i.kind[k] == source_sgpr) return s.slots[i.src[k]];
        uint32_t x = 0;
        if (i.src[k] >= 0) std::memcpy(&x, s.rows + i.src[k] + lane * 4, 4);
        return x;
    };
    const auto scalar_value = [&](int k) STRATA_LAMBDA -> uint32_t {
        if (i.kind[k] == source_sgpr) return w->s[i.src[k]];
        uint32_t x;
        std::memcpy(&x, row(w, i.src[k]), 4);
        return x;
    };
    switch (part.how) {
    case flow::read_first_lane: set_slot(s, i.dst, lane_of(0, exec ? uint32_t(__builtin_ctz(exec)) : 0), from); break;
    case flow::read_lane: set_slot(s, i.dst, lane_of(1, 0) & 31 ? ~0u : lane_of(0, scalar_value(1) & 31), from); break;
    case flow::write_lane: {
        const uint32_t x = lane_of(0, 0);
        std::memcpy(s.rows + i.dst + (scalar_value(1) & 31) * 4, &x, 4);
        s.dirty[row_number(i.dst)] = some(load_row(s.rows + i.dst));
        break;
    }
    case flow::permute_rows: case flow::permute_rows_across: {
        const uint64_t selectors = scalar_value(1) | uint64_t(scalar_value(2)) << 32;
        const u32v half = select(i32v((lane_number & 8u) != 0u), splat(uint32_t(selectors >> 32)), splat(uint32_t(selectors)));
        const u32v index = ((lane_number & 16u) ^ (part.how == flow::permute_rows_across ? 16u : 0u)) |
                           ((half >> ((lane_number & 7u) << 2)) & 15u);
        u32v x = permute(i.src[0] >= 0 && i.kind[0] == source_row ? load_row(s.rows + i.src[0]) : splat(lane_of(0, 0)), index);
        const uint32_t usable = lane_bits(i32v(((splat(exec) >> index) & 1u) != 0u));
        uint32_t lanes = exec;
        if (!(i.opsel & 1)) {
            x &= as<u32v>(mask_lanes(usable));
            if (!(i.opsel & 2)) lanes &= usable;
        }
        put_undefined(s, i.dst, x, lanes);
        break;
    }
    case flow::swap: {
        const u32v a = load_row(s.rows + i.dst), b = load_row(s.rows + i.src[0]);
        put_undefined(s, i.dst, b, exec);
        put_undefined(s, i.src[0], a, exec);
        const origin other = s.row_origin[row_number(i.dst)];
        s.row_origin[row_number(i.dst)] = s.row_origin[row_number(i.src[0])];
        s.row_origin[row_number(i.src[0])] = other;
        return;
    }
    case flow::swap_halves: {
        const u32v a = load_row(s.rows + i.dst) >> (i.opsel & 8 ? 16 : 0), b = load_row(s.rows + i.src[0]) >> (i.opsel & 1 ? 16 : 0);
        put_undefined_half(s, i.dst, b & 0xffffu, exec, i.opsel & 8);
        put_undefined_half(s, i.src[0], a & 0xffffu, exec, i.opsel & 1);
        break;
    }
    case flow::move_relative: {
        if (s.slots[slot_m0]) {
            report_undefined(*w, p, "chooses a register", 0, s.slot_origin[slot_m0]);
            s.slots[slot_m0] = 0;
        }
        const uint32_t m0 = w->s[slot_m0];
        const bool two = part.variant & 1, source_moves = part.variant & 2, destination_moves = part.variant & 4;
        const int64_t from_row = i.src[0] + (source_moves ? int64_t(two ? m0 & 0x3ff : m0) * row_bytes : 0);
        const int64_t to = i.dst + (destination_moves ? int64_t(two ? m0 >> 16 & 0x3ff : m0) * row_bytes : 0);
        constexpr int64_t end = 256 * row_bytes;
        if (to < 0 || to >= end || (source_moves && (from_row < 0 || from_row >= end))) break;
        u32v x = splat(0);
        if (i.kind[0] == source_sgpr && !source_moves) x = splat(s.slots[i.src[0]]);
        else if (from_row >= 0) x = load_row(s.rows + from_row);
        const u32v old = load_row(s.rows + to);
        put_undefined(s, int32_t(to), x, exec);
        if (part.variant & 8) put_undefined(s, int32_t(from_row), old, exec);
        if (from_row >= 0 && i.kind[0] == source_row) s.row_origin[to / row_bytes] = s.row_origin[from_row / row_bytes];
        return;
    }
    default: break;
    }
    s.row_origin[row_number(i.dst) & 255] = from;
}

static STRATA_INLINE bool is_cross_lane(flow how) { return how >= flow::read_first_lane && how <= flow::move_relative; }

/// A result before it is written: a VOPD pair reads everything first.
struct vector_result {
    u32v low, high;  // high: of 64-bit results
    uint32_t lanes;
};

static STRATA_INLINE u64v wide_result(const probe_part & part, const vector_sources & x) {
    if (part.how == flow::carry) {
        const u64v all = x.wide(0) | x.wide(1) | x.wide(2);
        return all | (0ull - all);
    }
    const u64v by = convert<u64v>(x.value(0) & 63u), data = x.wide(1);
    const u64v unknown = as<u64v>(i64v(convert<u64v>(x.undefined(0) & 63u) != 0ull));
    if (part.variant == 0) return (data << by) | unknown;
    if (part.variant == 1) return (data >> by) | unknown;
    return as<u64v>(as<i64v>(data) >> as<i64v>(by)) | unknown;
}

static STRATA_INLINE vector_result compute(wave * w, const probe_part & part) {
    wave_state & s = *w->watched;
    const inst & i = part.code;
    vector_sources x{w, s, i, *part.op, w->s[slot_exec], splat(0)};
    if (i.kind[0] == source_dpp) {
        const dpp_control & c = *i.dpp;
        x.lanes &= apply_dpp(w, &i);
        const u32v index = load_row(c.lane);
        x.dpp = permute(load_row(s.rows + i.src[0]), index);
        uint32_t usable = c.valid;
        if (!c.fetch_inactive) usable &= lane_bits(i32v(((splat(w->s[slot_exec]) >> index) & 1u) != 0u));
        x.dpp &= as<u32v>(mask_lanes(usable));
    }
    if (vector_sources::is_double(part.op->d) && (part.how == flow::carry || part.how == flow::wide_shift)) {
        const u64v r = wide_result(part, x);
        return {low_half(r), high_half(r), x.lanes};
    }
    const u32v r = result_of(part.how, x);
    return {r, r, x.lanes};
}

static void write_result(wave * w, const probe & p, const probe_part & part, const vector_result & r, const origin & from) {
    wave_state & s = *w->watched;
    const inst & i = part.code;
    const operation & op = *part.op;
    if (part.how == flow::compare) {
        const uint32_t bits = lane_bits(i32v(r.low != 0u)) & r.lanes;
        set_slot(s, i.dst, bits, from);
        if (op.how == form::comparex) execute_mask(w, p, from);
        return;
    }
    if (part.how == flow::carry) {
        const uint32_t bits = lane_bits(i32v((r.low | r.high) != 0u)) & r.lanes;
        if (i.sdst < slot_scc) set_slot(s, i.sdst, bits, from);
    }
    if (vector_sources::is_double(op.d)) {
        put_undefined(s, i.dst, r.low, r.lanes);
        put_undefined(s, i.dst + row_bytes, r.high, r.lanes);
        s.row_origin[row_number(i.dst) + 1] = from;
    } else if (part.how == flow::mix_low || part.how == flow::mix_high) {
        put_undefined_half(s, i.dst, r.low & 0xffffu, r.lanes, part.how == flow::mix_high);
    } else if (vector_sources::is_half(op.d)) {
        put_undefined_half(s, i.dst, r.low & 0xffffu, r.lanes, i.opsel & 8);
    } else {
        put_undefined(s, i.dst, r.low, r.lanes);
    }
    s.row_origin[row_number(i.dst)] = from;
}

/// The result is defined where it is written.
static STRATA_INLINE void defined_result(wave * w, const probe & p) {
    wave_state & s = *w->watched;
    for (unsigned n = 0; n < p.write_count; n++) {
        const register_span & r = p.writes[n];
        if (!r.vector) {
            for (int k = 0; k < r.count; k++) s.slots[r.first + k] = 0;
            continue;
        }
        bool dirty = false;
        for (int k = 0; k < r.count; k++) dirty |= s.dirty[r.first + k] != 0;
        if (!dirty) continue;
        for (unsigned h = 0; h < p.parts; h++) {
            const inst & i = p.part[h].code;
            const operation & op = *p.part[h].op;
            if (row_number(i.dst) != r.first || op.how == form::compare || op.how == form::comparex || op.how == form::lane_scalar) continue;
            uint32_t lanes = w->s[slot_exec];
            if (p.what == work_class::wmma) lanes = ~0u;
            if (i.kind[0] == source_dpp) lanes &= apply_dpp(w, &i);
            const bool half = vector_sources::is_half(op.d) || p.part[h].how == flow::mix_low || p.part[h].how == flow::mix_high;
            if (half) put_undefined_half(s, i.dst, splat(0), lanes, p.part[h].how == flow::mix_high || (i.opsel & 8));
            else clear_rows(s, r.first, r.count, lanes);
        }
    }
    if (p.writes_scc) s.slots[slot_scc] = 0;
}

static void vector_instruction(wave * w, const probe & p) {
    wave_state & s = *w->watched;
    if (p.parts == 0) return;
    if (is_cross_lane(p.part[0].how)) {
        const origin from = origin_of(s, p);
        cross_lane(w, p, p.part[0], from);
        return;
    }
    if (all_defined(s, p)) return defined_result(w, p);
    const origin from = origin_of(s, p);
    if (p.what == work_class::wmma) {
        matrix_result(s, p);
        for (int n = 0; n < 8; n++) s.row_origin[row_number(p.part[0].code.dst) + n] = from;
        return;
    }
    vector_result results[2];
    for (unsigned h = 0; h < p.parts; h++) results[h] = compute(w, p.part[h]);
    for (unsigned h = 0; h < p.parts; h++) write_result(w, p, p.part[h], results[h], from);
}

// Scalar instructions.

struct scalar_pair {
    uint64_t value, undefined;
};
static STRATA_INLINE scalar_pair scalar_source(const wave * w, const wave_state & s, const inst & i, int k, type t) {
    const uint64_t constant = k == 0 ? i.imm : i.imm1;
    const int slot = i.src[k];
    if (t == type::none) return {constant, 0};
    if (vector_sources::is_double(t)) {
        const uint64_t v = read_slot<uint64_t>(w, slot) ^ constant;
        if (slot == slot_exec) return {v & 0xffffffffu, 0};
        return {v, s.slots[slot] | uint64_t(slot + 1 < slot_count ? s.slots[slot + 1] : 0) << 32};
    }
    return {uint32_t(w->s[slot] ^ uint32_t(constant)), s.slots[slot]};
}

static void scalar_instruction(wave * w, const probe & p) {
    wave_state & s = *w->watched;
    if (p.parts == 0) return;
    const probe_part & part = p.part[0];
    const inst & i = part.code;
    const operation & op = *part.op;
    if (part.how == flow::none) return;
    if (all_defined(s, p)) {
        for (unsigned n = 0; n < p.write_count; n++) {
            for (int k = 0; k < p.writes[n].count; k++) s.slots[p.writes[n].first + k] = 0;
        }
        if (p.writes_scc) s.slots[slot_scc] = 0;
        return;
    }
    const origin from = origin_of(s, p);
    const scalar_pair a = scalar_source(w, s, i, 0, op.a), b = scalar_source(w, s, i, 1, op.b);
    const bool wide = vector_sources::is_double(op.d);
    const uint64_t all = wide ? ~0ull : 0xffffffffull;
    const uint64_t shift_mask = wide ? 63 : 31;
    const bool shift_unknown = b.undefined & shift_mask;
    uint64_t r = 0, value = 0;  // undefined bits of the result, and its value where SCC needs it
    bool know_value = false;
    switch (part.how) {
    case flow::scalar_constant: break;
    case flow::scalar_copy:
        r = a.undefined;
        value = part.variant ? ~a.value : a.value;
        know_value = true;
        break;
    case flow::scalar_conjunction:
        r = (a.undefined | a.value) & (b.undefined | b.value) & (a.undefined | b.undefined);
        value = a.value & b.value;
        know_value = part.variant;
        break;
    case flow::scalar_conjunction_not:
        r = (a.undefined | a.value) & (b.undefined | ~b.value) & (a.undefined | b.undefined);
        value = a.value & ~b.value;
        know_value = true;
        break;
    case flow::scalar_disjunction:
        r = (a.undefined | ~a.value) & (b.undefined | ~b.value) & (a.undefined | b.undefined);
        value = a.value | b.value;
        know_value = part.variant;
        break;
    case flow::scalar_exclusive: r = a.undefined | b.undefined; value = a.value ^ b.value; know_value = true; break;
    case flow::scalar_shift_left: r = shift_unknown ? all : a.undefined << (b.value & shift_mask); break;
    case flow::scalar_shift_right: r = shift_unknown ? all : (a.undefined & all) >> (b.value & shift_mask); break;
    case flow::scalar_shift_right_arithmetic:
        if (shift_unknown) r = all;
        else if (wide) r = uint64_t(int64_t(a.undefined) >> (b.value & 63));
        else r = uint32_t(int32_t(uint32_t(a.undefined)) >> (b.value & 31));
        break;
    case flow::scalar_add: r = upwards1(a.undefined | b.undefined); break;
    case flow::scalar_select:
        r = s.slots[slot_scc] ? a.undefined | b.undefined | (a.value ^ b.value) : w->s[slot_scc] ? a.undefined : b.undefined;
        break;
    case flow::scalar_pack: {
        r = (part.variant & 1 ? a.undefined >> 16 & 0xffff : a.undefined & 0xffff) |
            (part.variant & 2 ? b.undefined & 0xffff0000 : b.undefined << 16 & 0xffff0000);
        break;
    }
    case flow::scalar_save_and: case flow::scalar_save_any: {
        const uint32_t exec = w->s[slot_exec];
        const uint32_t bits = part.how == flow::scalar_save_and ? uint32_t(a.undefined) & exec : uint32_t(a.undefined);
        s.slots[i.dst] = 0;
        s.slots[slot_scc] = 0;
        s.slots[slot_exec] = bits;
        execute_mask(w, p, from);
        return;
    }
    default: r = all;
    }
    r &= all;
    if (op.d != type::none && i.dst < slot_scc) {
        set_slot(s, i.dst, uint32_t(r), from);
        if (wide && i.dst != slot_exec) set_slot(s, i.dst + 1, uint32_t(r >> 32), from);
        if (i.dst == slot_exec) execute_mask(w, p, from);
    }
    if (p.writes_scc) {
        // SCC says whether the result is not 0: a defined 1 decides.
        const bool decided = op.d != type::none && know_value && (value & ~r & all) != 0;
        set_slot(s, slot_scc, r && !decided ? 1 : 0, from);
    }
}

static void branch_instruction(wave * w, const probe & p) {
    wave_state & s = *w->watched;
    if (p.parts == 0) return;
    const uint8_t variant = p.part[0].variant;
    if (variant == 1) {
        if (!s.slots[slot_scc]) return;
        report_undefined(*w, p, "decides a branch", 0, s.slot_origin[slot_scc]);
        s.slots[slot_scc] = 0;
    } else if (variant == 2) {
        const uint32_t unknown = s.slots[slot_vcc];
        if (!unknown || w->s[slot_vcc] & ~unknown) return;  // a defined 1 decides
        report_undefined(*w, p, "decides a branch", 0, s.slot_origin[slot_vcc]);
        s.slots[slot_vcc] = 0;
    } else if (variant == 3) {
        s.slots[p.part[0].code.dst] = s.slots[p.part[0].code.dst + 1] = 0;
    }
}

// Memory.

/// The shadow of one lane's bytes; null if there is none (constants, arguments: defined) or the access faults.
static STRATA_INLINE uint8_t * device_shadow_at(uint64_t address, uint32_t bytes) {
    const device_shadow & d = shadow_of_device;
    return address >= d.begin && address + bytes <= d.end ? d.undefined + (address - d.begin) : nullptr;
}

struct lane_shadow {
    uint8_t * plain = nullptr;  ///< consecutive bytes
    uint8_t * scratch = nullptr;
    uint32_t scratch_address = 0;
    origin::source from = origin::source::device;
};

static STRATA_INLINE lane_shadow shadow_of(wave * w, const memory_use & u, const memory_access & a, unsigned n, unsigned lane) {
    wave_state & s = *w->watched;
    const uint64_t address = a.at[n][lane];
    lane_shadow r;
    const uint32_t high = uint32_t(address >> 32), low = uint32_t(address);
    const bool in_lds = u.where == segment::lds || (u.where == segment::flat && high == lds_aperture);
    const bool in_scratch = u.where == segment::scratch || (u.where == segment::flat && high == scratch_aperture);
    if (in_lds) {
        r.from = origin::source::lds;
        if (low <= w->lds_size && a.bytes <= w->lds_size - low) r.plain = s.thread->lds_undefined + low;
    } else if (in_scratch) {
        r.from = origin::source::scratch;
        if (low <= w->scratch_size && a.bytes <= w->scratch_size - low) {
            r.scratch = s.scratch + lane * 4;
            r.scratch_address = low;
        }
    } else {
        r.plain = device_shadow_at(address, a.bytes);
    }
    return r;
}
static STRATA_INLINE uint8_t * scratch_byte(const lane_shadow & l, uint32_t n) {
    const uint32_t address = l.scratch_address + n;
    return l.scratch + uint64_t(address >> 2) * row_bytes + (address & 3);
}

static STRATA_INLINE bool is_clean(const uint8_t * p, uint64_t bytes) {
    uint64_t n = 0;
    u32v seen = splat(0);
    for (; n + sizeof(u32v) <= bytes; n += sizeof(u32v)) {
        u32v x;
        std::memcpy(&x, p + n, sizeof x);
        seen |= x;
    }
    uint64_t rest = 0;
    for (; n + 8 <= bytes; n += 8) {
        uint64_t x;
        std::memcpy(&x, p + n, 8);
        rest |= x;
    }
    for (; n < bytes; n++) rest |= p[n];
    return rest == 0 && !some(seen);
}

/// A load into registers: `first` is the first row.
static void load_undefined(wave * w, const probe & p, const memory_access & a, int first) {
    wave_state & s = *w->watched;
    const memory_use & u = p.memory;
    const unsigned dwords = (a.bytes + 3) / 4;
    constexpr uint64_t short_span = 16384;
    bool clean = false;
    const bool device = u.where == segment::global || u.where == segment::buffer || (u.where == segment::flat && (a.high >> 32) < lds_aperture);
    if (device && a.high - a.low <= short_span) {
        const uint8_t * shadow = device_shadow_at(a.low, uint32_t(a.high - a.low + a.bytes));
        clean = !shadow || is_clean(shadow, a.high - a.low + a.bytes);
    }
    if (clean && !u.keeps_half) {
        clear_rows(s, first, int(dwords * a.addresses), a.lanes);
        return;
    }
    origin from;
    bool found = false;
    uint32_t undefined[32][8];
    bool dirty = false;
    STRATA_EACH_LANE(lane, a.lanes) {
        for (unsigned n = 0; n < a.addresses; n++) {
            uint8_t raw[16] = {};
            const lane_shadow l = shadow_of(w, u, a, n, lane);
            if (l.plain) {
                std::memcpy(raw, l.plain, a.bytes);
            } else if (l.scratch) {
                for (uint32_t k = 0; k < a.bytes; k++) raw[k] = *scratch_byte(l, k);
            }
            uint32_t * to = undefined[lane] + n * dwords;
            std::memcpy(to, raw, 4 * dwords);
            if (a.bytes < 4) {
                if (u.sign) to[0] = a.bytes == 1 ? uint32_t(int8_t(to[0])) : uint32_t(int16_t(to[0]));
                if (u.keeps_half) {
                    uint32_t old;
                    std::memcpy(&old, s.rows + first * row_bytes + lane * 4, 4);
                    to[0] = u.high ? (old & 0xffffu) | to[0] << 16 : (old & 0xffff0000u) | (to[0] & 0xffffu);
                }
            }
            for (unsigned d = 0; d < dwords; d++) {
                if (!to[d]) continue;
                dirty = true;
                if (!found && (!u.keeps_half || raw[0] | raw[1])) {
                    found = true;
                    from = {l.from, p.pc + 1, l.from == origin::source::device ? a.at[n][lane] : uint32_t(a.at[n][lane])};
                }
            }
        }
    }
    const unsigned rows = dwords * a.addresses;
    if (!dirty) {
        clear_rows(s, first, int(rows), a.lanes);
        return;
    }
    for (unsigned d = 0; d < rows; d++) {
        u32v x = splat(0);
        STRATA_EACH_LANE(lane, a.lanes) x[lane] = undefined[lane][d];
        put_undefined(s, int32_t((first + int(d)) * row_bytes), x, a.lanes);
        if (found) s.row_origin[first + int(d)] = from;
    }
}

/// A store of registers: what is undefined is told if it goes to device memory, and goes on in LDS and scratch.
static void store_undefined(wave * w, const probe & p, const memory_access & a, unsigned n, int first) {
    wave_state & s = *w->watched;
    const memory_use & u = p.memory;
    const unsigned dwords = (a.bytes + 3) / 4;
    bool dirty = false;
    for (unsigned d = 0; d < dwords; d++) dirty |= s.dirty[first + int(d)] != 0;
    uint32_t bad = 0;
    int bad_row = first;
    STRATA_EACH_LANE(lane, a.lanes) {
        const lane_shadow l = shadow_of(w, u, a, n, lane);
        uint32_t words[4] = {};
        if (dirty) {
            for (unsigned d = 0; d < dwords; d++) std::memcpy(&words[d], s.rows + (first + int(d)) * row_bytes + lane * 4, 4);
            if (u.high && a.bytes < 4) words[0] >>= 16;
        }
        if (l.from == origin::source::device) {
            if (dirty) {
                const uint32_t mask = a.bytes == 1 ? 0xff : a.bytes == 2 ? 0xffff : 0xffffffffu;
                for (unsigned d = 0; d < dwords; d++) {
                    if (!(words[d] & mask)) continue;
                    if (!bad) bad_row = first + int(d);
                    bad |= 1u << lane;
                }
            }
            if (l.plain) std::memset(l.plain, 0, a.bytes);
        } else if (l.plain) {
            std::memcpy(l.plain, words, a.bytes);
        } else if (l.scratch) {
            const auto * bytes = reinterpret_cast<const uint8_t *>(words);
            for (uint32_t k = 0; k < a.bytes; k++) *scratch_byte(l, k) = bytes[k];
        }
    }
    if (bad) {
        report_undefined(*w, p, "is stored", bad, s.row_origin[bad_row]);
        for (unsigned d = 0; d < dwords; d++) put_undefined(s, int32_t((first + int(d)) * row_bytes), splat(0), bad);
    }
}

static void scalar_load(wave * w, const probe & p, const memory_access & a) {
    wave_state & s = *w->watched;
    const inst & i = p.part[0].code;
    uint32_t undefined[16] = {};
    const uint8_t * shadow = a.bytes ? device_shadow_at(a.at[0][0] & ~3ull, a.bytes) : nullptr;
    if (shadow) std::memcpy(undefined, shadow, a.bytes);
    const origin from = {origin::source::device, p.pc + 1, a.at[0][0]};
    for (unsigned d = 0; d < p.memory.bytes / 4u; d++) set_slot(s, i.dst + int(d), undefined[d], from);
}

/// The registers that an address is made of.
static void check_address(wave * w, const probe & p) {
    wave_state & s = *w->watched;
    const inst & i = p.part[0].code;
    const memory_use & u = p.memory;
    uint32_t bad = 0;
    const origin * from = nullptr;
    const auto row_part = [&](int offset, int count) STRATA_LAMBDA {
        for (int n = 0; n < count; n++) {
            const int number = row_number(offset) + n;
            if (!s.dirty[number]) continue;
            const uint32_t lanes = lane_bits(i32v(load_row(s.rows + number * row_bytes) != 0u)) & w->s[slot_exec];
            if (!lanes) continue;
            bad |= lanes;
            from = &s.row_origin[number];
            put_undefined(s, number * row_bytes, splat(0), lanes);
        }
    };
    const auto slot_part = [&](int slot, int count) STRATA_LAMBDA {
        for (int n = slot; n < slot + count; n++) {
            if (!s.slots[n]) continue;
            bad |= w->s[slot_exec] | 1;
            from = &s.slot_origin[n];
            s.slots[n] = 0;
        }
    };
    switch (u.where) {
    case segment::global: case segment::flat: case segment::scratch:
        if (i.aux & memory_saddr) slot_part(i.sdst, u.where == segment::scratch ? 1 : 2);
        if (u.where == segment::scratch ? (i.aux & memory_vaddr) != 0 : !u.addtid) {
            row_part(i.src[0], u.where == segment::scratch || i.aux & memory_saddr ? 1 : 2);
        }
        break;
    case segment::buffer: {
        const bool index = i.aux & memory_idxen, offset = i.aux & memory_offen;
        if (index || offset) row_part(i.src[0], index && offset ? 2 : 1);
        slot_part(i.sdst, 4);
        slot_part(i.src[2], 1);
        break;
    }
    case segment::lds:
        if (u.append || u.addtid) slot_part(slot_m0, 1);
        else row_part(i.src[0], 1);
        break;
    case segment::scalar: case segment::scalar_buffer:
        slot_part(i.sdst, u.where == segment::scalar ? 2 : 4);
        slot_part(i.src[0], 1);
        break;
    case segment::none: break;
    }
    if (bad) report_undefined(*w, p, "is part of an address", u.where == segment::scalar ? 0 : bad, *from);
}

static void memory_instruction(wave * w, const probe & p, const memory_access & a) {
    wave_state & s = *w->watched;
    const inst & i = p.part[0].code;
    const memory_use & u = p.memory;
    check_address(w, p);
    if (u.where == segment::scalar || u.where == segment::scalar_buffer) return scalar_load(w, p, a);
    if (a.lanes == 0) return;
    const int dst = row_number(i.dst);
    const unsigned dwords = (a.bytes + 3) / 4;
    if (u.atomic) {
        // The result of an atomic is as defined as memory and data together; device memory counts as defined from here on.
        if (!u.append) store_undefined(w, p, a, 0, row_number(i.src[1]));
        if (a.addresses == 2) store_undefined(w, p, a, 1, row_number(i.src[2]));
        if (u.returns) clear_rows(s, dst, int(dwords * a.addresses), a.lanes);
        return;
    }
    if (u.store) {
        store_undefined(w, p, a, 0, row_number(i.src[1]));
        if (a.addresses == 2) store_undefined(w, p, a, 1, row_number(i.src[2]));
        return;
    }
    load_undefined(w, p, a, dst);
}

/// ds_permute, ds_bpermute, ds_swizzle.
static void lane_exchange(wave * w, const probe & p) {
    wave_state & s = *w->watched;
    const inst & i = p.part[0].code;
    const uint32_t exec = w->s[slot_exec];
    if (all_defined(s, p)) return clear_rows(s, row_number(i.dst), 1, exec);
    const origin from = origin_of(s, p);
    const uint8_t variant = p.part[0].variant;
    u32v x;
    if (variant == 1) {
        const u32v index = ((load_row(w->v + i.src[0]) + uint32_t(i.imm)) >> 2) & 31u;
        x = permute(load_row(s.rows + i.src[1]) & as<u32v>(mask_lanes(exec)), index) | whole(load_row(s.rows + i.src[0]));
    } else if (variant == 2) {
        alignas(64) uint32_t to[32] = {}, data[32], index[32];
        std::memcpy(data, s.rows + i.src[1], sizeof data);
        std::memcpy(index, w->v + i.src[0], sizeof index);
        STRATA_EACH_LANE(lane, exec) to[((index[lane] + uint32_t(i.imm)) >> 2) & 31] = data[lane];
        x = load_row(to) | splat(some(load_row(s.rows + i.src[0]) & as<u32v>(mask_lanes(exec))) ? ~0u : 0u);
    } else {
        alignas(64) uint32_t index[32];
        for (uint32_t lane = 0; lane < 32; lane++) index[lane] = swizzled(uint32_t(i.imm), lane);
        x = permute(load_row(s.rows + i.src[0]) & as<u32v>(mask_lanes(exec)), load_row(index));
    }
    put_undefined(s, i.dst, x, exec);
    s.row_origin[row_number(i.dst)] = from;
}

void follow_definedness(wave * w, const probe & p, const memory_access & a) {
    switch (p.how) {
    case form::nop: case form::control: return;
    case form::branch: return branch_instruction(w, p);
    case form::salu: case form::salu_compare: case form::salu_k: case form::salu_literal: return scalar_instruction(w, p);
    case form::smem: case form::flat: case form::buffer: return memory_instruction(w, p, a);
    case form::ds:
        if (p.memory.where == segment::none) return lane_exchange(w, p);
        return memory_instruction(w, p, a);
    default: return vector_instruction(w, p);
    }
}

}  // namespace strata::emulator::STRATA_ISA
