// From an operation of the interpreter to what the instruments need. Mnemonics say what forms and types do not.
#include "probe.h"

#include <algorithm>
#include <unordered_map>

namespace strata::emulator {

const char * const work_names[work_count] = {"valu", "vopd", "dot", "trans", "wmma", "salu", "smem", "vmem", "lds", "branch", "wait",
                                             "other"};

namespace {

bool starts(std::string_view text, std::string_view with) { return text.starts_with(with); }
bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
bool takes_64(type t) { return t == type::b64 || t == type::f64 || t == type::i64; }

work_class work_of(const operation & op) {
    const std::string_view m = op.name;
    switch (op.how) {
    case form::branch: return work_class::branch;
    case form::smem: return work_class::smem;
    case form::ds: return work_class::lds;
    case form::flat: case form::buffer: return work_class::vmem;
    case form::nop: return starts(m, "s_wait") || m == "s_delay_alu" ? work_class::wait : work_class::other;
    case form::control: return work_class::other;
    case form::salu: case form::salu_compare: case form::salu_k: case form::salu_literal:
        return m == "s_setpc_b64" || m == "s_swappc_b64" ? work_class::branch : work_class::salu;
    default: break;
    }
    if (starts(m, "v_wmma")) return work_class::wmma;
    if (starts(m, "v_dot")) return work_class::dot;
    for (const char * t : {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"}) {
        if (starts(m, t)) return work_class::trans;
    }
    return work_class::valu;
}

/// Bytes that a type suffix (u8, b32, d16_hi_b16 ...) stands for; 0: none of them.
unsigned suffix_bytes(std::string_view m) {
    const std::string_view last = m.substr(m.rfind('_') + 1);
    static const std::unordered_map<std::string_view, unsigned> sizes = {
        {"u8", 1}, {"i8", 1}, {"b8", 1}, {"u16", 2}, {"i16", 2}, {"b16", 2}, {"b32", 4}, {"u32", 4}, {"i32", 4}, {"f32", 4}, {"f16", 4},
        {"bf16", 4}, {"b64", 8}, {"u64", 8}, {"i64", 8}, {"f64", 8}, {"b96", 12}, {"b128", 16}, {"b256", 32}, {"b512", 64}};
    const auto found = sizes.find(last);
    return found == sizes.end() ? 0 : found->second;
}

memory_use memory_of(const operation & op, const inst & i) {
    memory_use u;
    std::string_view m = op.name;
    switch (op.how) {
    case form::smem: u.where = starts(m, "s_buffer") ? segment::scalar_buffer : segment::scalar; break;
    case form::ds:
        if (contains(m, "permute") || contains(m, "swizzle")) return u;
        u.where = segment::lds;
        break;
    case form::flat:
        u.where = starts(m, "global") ? segment::global : starts(m, "flat") ? segment::flat : segment::scratch;
        break;
    case form::buffer: u.where = segment::buffer; break;
    default: return u;
    }
    const bool hi = contains(m, "_d16_hi"), d16 = contains(m, "d16");
    u.high = hi;
    if (u.where == segment::lds) {
        // ds_load_u8_d16_hi: the type stands before the rest.
        if (m.ends_with("_d16_hi")) m.remove_suffix(7);
        else if (m.ends_with("_d16")) m.remove_suffix(4);
    }
    u.bytes = uint8_t(suffix_bytes(m));
    u.addtid = contains(m, "addtid");
    if (contains(m, "_load")) {
        u.load = true;
        u.keeps_half = d16;
        u.sign = m.ends_with("_i8") || m.ends_with("_i16");
    } else if (contains(m, "_store") && !contains(m, "storexchg") && !contains(m, "cmpstore")) {
        u.store = true;
    } else {
        u.load = u.store = u.atomic = true;
        u.pairs = contains(m, "cmpswap") || contains(m, "cmpstore") || contains(m, "mskor") || contains(m, "wrap");
        u.returns = u.where == segment::lds ? contains(m, "_rtn_") : (i.aux & memory_return) != 0;
        if (contains(m, "append") || contains(m, "consume")) {
            u.append = u.returns = true;
            u.bytes = 4;
        }
    }
    if (contains(m, "2addr")) {
        u.addresses = 2;
        u.unit = uint16_t(u.bytes * (contains(m, "stride64") ? 64 : 1));
    }
    return u;
}

const std::unordered_map<std::string_view, flow> & flows() {
    static const std::unordered_map<std::string_view, flow> table = {
        {"v_mov_b32", flow::copy}, {"v_mov_b16", flow::copy}, {"v_cvt_u32_u16", flow::copy}, {"v_cvt_i32_i16", flow::sign_extend_16},
        {"v_not_b32", flow::copy}, {"v_not_b16", flow::copy}, {"v_xor_b32", flow::exclusive}, {"v_xnor_b32", flow::exclusive},
        {"v_xor3_b32", flow::exclusive}, {"v_and_b32", flow::conjunction}, {"v_or_b32", flow::disjunction}, {"v_and_or_b32", flow::and_or},
        {"v_or3_b32", flow::or3}, {"v_lshlrev_b32", flow::shift_left}, {"v_lshrrev_b32", flow::shift_right},
        {"v_ashrrev_i32", flow::shift_right_arithmetic}, {"v_lshl_or_b32", flow::shift_left_or}, {"v_lshl_add_u32", flow::shift_left_add},
        {"v_add_lshl_u32", flow::add_shift_left}, {"v_add_nc_u32", flow::add}, {"v_sub_nc_u32", flow::add}, {"v_subrev_nc_u32", flow::add},
        {"v_add_nc_i32", flow::add}, {"v_sub_nc_i32", flow::add}, {"v_add3_u32", flow::add}, {"v_mul_lo_u32", flow::add},
        {"v_mul_u32_u24", flow::low24}, {"v_mul_i32_i24", flow::low24}, {"v_mad_u32_u24", flow::low24}, {"v_mad_i32_i24", flow::low24},
        {"v_lshlrev_b64", flow::wide_shift}, {"v_lshrrev_b64", flow::wide_shift}, {"v_ashrrev_i64", flow::wide_shift},
        {"v_bfe_u32", flow::extract}, {"v_bfe_i32", flow::extract_signed}, {"v_bfi_b32", flow::insert}, {"v_alignbit_b32", flow::align_bit},
        {"v_alignbyte_b32", flow::align_byte}, {"v_perm_b32", flow::permute_bytes}, {"v_cvt_f32_ubyte0", flow::byte0},
        {"v_cvt_f32_ubyte1", flow::byte1}, {"v_cvt_f32_ubyte2", flow::byte2}, {"v_cvt_f32_ubyte3", flow::byte3},
        {"v_cndmask_b32", flow::choose}, {"v_cndmask_b16", flow::choose}, {"v_mbcnt_lo_u32_b32", flow::count_below},
        {"v_mbcnt_hi_u32_b32", flow::count_none}, {"v_pack_b32_f16", flow::pack}, {"v_fma_mix_f32", flow::mix},
        {"v_fma_mixlo_f16", flow::mix_low}, {"v_fma_mixhi_f16", flow::mix_high}, {"v_readfirstlane_b32", flow::read_first_lane},
        {"v_readlane_b32", flow::read_lane}, {"v_writelane_b32", flow::write_lane}, {"v_permlane16_b32", flow::permute_rows},
        {"v_permlanex16_b32", flow::permute_rows_across}, {"v_swap_b32", flow::swap}, {"v_swap_b16", flow::swap_halves},
        {"s_mov_b32", flow::scalar_copy}, {"s_mov_b64", flow::scalar_copy}, {"s_movk_i32", flow::scalar_constant},
        {"s_not_b32", flow::scalar_copy}, {"s_not_b64", flow::scalar_copy}, {"s_and_b32", flow::scalar_conjunction},
        {"s_and_b64", flow::scalar_conjunction}, {"s_nand_b32", flow::scalar_conjunction}, {"s_and_not1_b32", flow::scalar_conjunction_not},
        {"s_and_not1_b64", flow::scalar_conjunction_not}, {"s_or_b32", flow::scalar_disjunction}, {"s_or_b64", flow::scalar_disjunction},
        {"s_nor_b32", flow::scalar_disjunction}, {"s_xor_b32", flow::scalar_exclusive}, {"s_xor_b64", flow::scalar_exclusive},
        {"s_xnor_b32", flow::scalar_exclusive}, {"s_lshl_b32", flow::scalar_shift_left}, {"s_lshl_b64", flow::scalar_shift_left},
        {"s_lshr_b32", flow::scalar_shift_right}, {"s_lshr_b64", flow::scalar_shift_right},
        {"s_ashr_i32", flow::scalar_shift_right_arithmetic}, {"s_ashr_i64", flow::scalar_shift_right_arithmetic},
        {"s_add_u32", flow::scalar_add}, {"s_sub_u32", flow::scalar_add}, {"s_add_i32", flow::scalar_add}, {"s_sub_i32", flow::scalar_add},
        {"s_mul_i32", flow::scalar_add}, {"s_cselect_b32", flow::scalar_select}, {"s_cselect_b64", flow::scalar_select},
        {"s_and_saveexec_b32", flow::scalar_save_and}, {"s_pack_ll_b32_b16", flow::scalar_pack}, {"s_pack_lh_b32_b16", flow::scalar_pack},
        {"s_pack_hh_b32_b16", flow::scalar_pack}, {"s_pack_hl_b32_b16", flow::scalar_pack}, {"s_getpc_b64", flow::scalar_constant},
        {"s_getreg_b32", flow::scalar_constant}, {"s_sendmsg_rtn_b32", flow::scalar_constant},
        {"s_sendmsg_rtn_b64", flow::scalar_constant}, {"s_swappc_b64", flow::scalar_constant}, {"s_setpc_b64", flow::none},
        {"s_setreg_b32", flow::none}, {"s_setreg_imm32_b32", flow::none}, {"s_version", flow::none},
    };
    return table;
}

flow flow_of(const operation & op) {
    const std::string_view m = op.name;
    if (const auto found = flows().find(m); found != flows().end()) return found->second;
    switch (op.how) {
    case form::compare: case form::comparex: return flow::compare;
    case form::valu_vcc: return flow::carry;
    case form::valu: case form::valu_acc: case form::valu_fmaak: case form::valu_fmamk: case form::valu_mask: case form::lane_scalar:
        if (starts(m, "v_wmma")) return flow::matrix;
        if (contains(m, "movrel") || contains(m, "swaprel")) return flow::move_relative;
        if (starts(m, "v_pk_")) return flow::halves;
        if (starts(m, "v_cvt_pk_") && !contains(m, "_u8_")) return flow::pack_converted;
        return flow::any;
    case form::salu: case form::salu_k: case form::salu_literal: case form::salu_compare:
        if (contains(m, "saveexec") || contains(m, "wrexec")) return flow::scalar_save_any;
        return flow::scalar_any;
    default: return flow::none;
    }
}

/// wide_shift: 0 left, 1 right, 2 arithmetic. scalar_copy: 1 inverts. scalar_conjunction, scalar_disjunction: 1 does not invert. scalar_pack: 1, 2 take the upper half of the first,
/// second source. move_relative: 1 M0 has two indices, 2 the source moves, 4 the destination moves, 8 swaps. Branches: 1 by SCC, 2 by
/// VCC, 3 calls. Exchanges between lanes: 1 bpermute, 2 permute, 3 swizzle.
uint8_t variant_of(const operation & op, flow how) {
    const std::string_view m = op.name;
    switch (how) {
    case flow::wide_shift: return starts(m, "v_lshl") ? 0 : starts(m, "v_lshr") ? 1 : 2;
    case flow::scalar_copy: return starts(m, "s_not");
    case flow::scalar_conjunction: return starts(m, "s_and");
    case flow::scalar_disjunction: return starts(m, "s_or");
    case flow::scalar_pack: return uint8_t((m[7] == 'h' ? 1 : 0) | (m[8] == 'h' ? 2 : 0));
    case flow::move_relative:
        return uint8_t((contains(m, "_2_") || contains(m, "swaprel") ? 1 : 0) | (contains(m, "movreld_") ? 0 : 2) |
                       (contains(m, "movrels_") ? 0 : 4) | (contains(m, "swaprel") ? 8 : 0));
    default: break;
    }
    if (op.how == form::branch) return starts(m, "s_cbranch_scc") ? 1 : starts(m, "s_cbranch_vcc") ? 2 : m == "s_call_b64" ? 3 : 0;
    if (op.how == form::ds) return m == "ds_bpermute_b32" ? 1 : m == "ds_permute_b32" ? 2 : m == "ds_swizzle_b32" ? 3 : 0;
    return 0;
}

bool reads_condition(std::string_view m) {
    for (const char * name : {"s_cselect", "s_cmov", "s_addc_u32", "s_subb_u32", "s_cbranch_scc"}) {
        if (starts(m, name)) return true;
    }
    return false;
}

bool writes_condition(const operation & op) {
    const std::string_view m = op.name;
    if (op.how == form::salu_compare || starts(m, "s_cmpk") || starts(m, "s_addk")) return true;
    if (op.how != form::salu) return false;
    if (op.d == type::none) return false;
    for (const char * name : {"s_mov", "s_cmov", "s_brev", "s_ctz", "s_clz", "s_cls", "s_sext", "s_bitset", "s_bitreplicate", "s_mul",
                              "s_bfm", "s_cselect", "s_pack", "s_getpc", "s_swappc", "s_setpc", "s_sendmsg", "s_cvt", "s_ceil", "s_floor",
                              "s_trunc", "s_rndne", "s_fmac"}) {
        if (starts(m, name)) return false;
    }
    return !m.ends_with("_f32") && !m.ends_with("_f16");
}

/// How many registers the operands of a WMMA have.
unsigned matrix_rows(std::string_view m, int k) {
    if (k > 1) return 8;
    return m.ends_with("iu8") ? 4 : m.ends_with("iu4") ? 2 : 8;
}

class spans {
public:
    explicit spans(probe & p) : p_(p) {}
    void read(int first, unsigned count, bool vector) { push(p_.reads, p_.read_count, std::size(p_.reads), first, count, vector); }
    void write(int first, unsigned count, bool vector) { push(p_.writes, p_.write_count, std::size(p_.writes), first, count, vector); }
    void read_rows(int offset, unsigned count) { read(offset / row_bytes, count, true); }
    void write_rows(int offset, unsigned count) { write(offset / row_bytes, count, true); }

private:
    static void push(register_span * list, uint8_t & used, size_t room, int first, unsigned count, bool vector) {
        if (!vector && first > slot_exec) return;  // constants, NULL, SCC
        if (count == 0 || used == room) return;
        list[used++] = {int16_t(first), uint8_t(count), vector};
    }
    probe & p_;
};

void vector_spans(spans & s, const operation & op, const inst & i) {
    const std::string_view m = op.name;
    const bool matrix = starts(m, "v_wmma");
    const type types[3] = {op.a, op.b, op.c};
    for (int k = 0; k < 3; k++) {
        if (types[k] == type::none) continue;
        const unsigned rows = matrix ? matrix_rows(m, k) : takes_64(types[k]) ? 2 : 1;
        if (types[k] == type::mask) s.read(i.src[k], 1, false);
        else if (i.kind[k] == source_sgpr) s.read(i.src[k], takes_64(types[k]) ? 2 : 1, false);
        else if (i.kind[k] == source_dpp || i.src[k] >= 0) s.read_rows(i.src[k], rows);
    }
    switch (op.how) {
    case form::compare: case form::comparex: case form::lane_scalar: s.write(i.dst, 1, false); break;
    case form::valu_vcc: s.write(i.sdst, 1, false); [[fallthrough]];
    default: s.write_rows(i.dst, matrix ? 8 : takes_64(op.d) ? 2 : 1);
    }
    if (starts(m, "v_swap_")) {
        s.read_rows(i.dst, 1);
        s.write_rows(i.src[0], 1);
    }
}

void memory_spans(spans & s, const memory_use & u, const operation & op, const inst & i) {
    const unsigned dwords = (u.bytes + 3u) / 4;
    const unsigned data = dwords * (u.pairs ? 2 : 1);
    switch (op.how) {
    case form::smem:
        s.read(i.sdst, u.where == segment::scalar_buffer ? 4 : 2, false);
        s.read(i.src[0], 1, false);
        s.write(i.dst, dwords, false);
        break;
    case form::ds:
        if (u.where == segment::none) {  // permute, swizzle
            s.read_rows(i.src[0], 1);
            if (std::string_view(op.name) != "ds_swizzle_b32") s.read_rows(i.src[1], 1);
            s.write_rows(i.dst, 1);
            break;
        }
        if (u.append || u.addtid) s.read(slot_m0, 1, false);
        if (!u.append && !u.addtid) s.read_rows(i.src[0], 1);
        if (u.store && !u.append) {
            s.read_rows(i.src[1], dwords);
            if (u.addresses == 2 || u.pairs) s.read_rows(i.src[2], dwords);
        }
        if (u.atomic ? u.returns : u.load) s.write_rows(i.dst, dwords * u.addresses);
        break;
    case form::flat:
        if (i.aux & memory_saddr) s.read(i.sdst, u.where == segment::scratch ? 1 : 2, false);
        if (u.where == segment::scratch) {
            if (i.aux & memory_vaddr) s.read_rows(i.src[0], 1);
        } else if (!u.addtid) {
            s.read_rows(i.src[0], i.aux & memory_saddr ? 1 : 2);
        }
        if (u.store) s.read_rows(i.src[1], data);
        if (u.atomic ? u.returns : u.load) s.write_rows(i.dst, dwords);
        break;
    case form::buffer: {
        const bool index = i.aux & memory_idxen, offset = i.aux & memory_offen;
        if (index || offset) s.read_rows(i.src[0], index && offset ? 2 : 1);
        s.read(i.sdst, 4, false);
        s.read(i.src[2], 1, false);
        if (u.store) s.read_rows(i.src[1], data);
        if (u.atomic ? u.returns : u.load) s.write_rows(i.dst, dwords);
        break;
    }
    default: break;
    }
}

void scalar_spans(spans & s, const operation & op, const inst & i) {
    const type types[2] = {op.a, op.b};
    for (int k = 0; k < 2; k++) {
        if (types[k] != type::none) s.read(i.src[k], takes_64(types[k]) ? 2 : 1, false);
    }
    const std::string_view m = op.name;
    if (starts(m, "s_setreg")) {
        if (m == "s_setreg_b32") s.read(i.dst, 1, false);
        return;
    }
    const bool reads_destination = (op.how == form::salu_k && m != "s_movk_i32" && m != "s_getreg_b32" && m != "s_version") ||
                                   starts(m, "s_bitset") || starts(m, "s_fmac");
    if (reads_destination) s.read(i.dst, op.d == type::none ? 1 : takes_64(op.d) ? 2 : 1, false);
    if (op.d != type::none) s.write(i.dst, takes_64(op.d) ? 2 : 1, false);
}

void branch_spans(spans & s, const operation & op) {
    const std::string_view m = op.name;
    if (contains(m, "vccz") || contains(m, "vccnz")) s.read(slot_vcc, 1, false);
}

/// The counters that an s_waitcnt of any kind waits for.
void waits_of(probe & p, std::string_view m) {
    const int n = int(p.word & 0xffff);
    if (m == "s_waitcnt") {
        p.wait_lgkm = int16_t(n >> 4 & 0x3f);
        p.wait_vm = int16_t(n >> 10 & 0x3f);
    } else if (m == "s_waitcnt_vscnt") {
        p.wait_vs = int16_t(n & 0x3f);
    } else if (m == "s_waitcnt_vmcnt") {
        p.wait_vm = int16_t(n & 0x3f);
    } else if (m == "s_waitcnt_lgkmcnt") {
        p.wait_lgkm = int16_t(n & 0x3f);
    } else if (m == "s_wait_idle") {
        p.wait_vm = p.wait_lgkm = p.wait_vs = 0;
    }
}

}  // namespace

void probe::add(const operation & op, const inst & code, bool is_half_of_pair) {
    how = op.how;
    what = is_half_of_pair ? work_class::vopd : work_of(op);
    memory = memory_of(op, code);
    if (memory.where == segment::global || memory.where == segment::flat || memory.where == segment::buffer) {
        memory.coherent = memory.load && !memory.atomic && (word >> 14 & 1);
    }
    const std::string_view m = op.name;
    invalidates = m == "buffer_gl0_inv" ? cache_l0 : m == "buffer_gl1_inv" ? cache_l1 : m == "s_dcache_inv" ? cache_scalar : 0;
    if (m == "s_sleep") sleeps = uint16_t(word & 0x7f);
    reads_scc |= reads_condition(op.name);
    writes_scc |= writes_condition(op);
    is_barrier = m == "s_barrier";
    waits_of(*this, op.name);
    spans s(*this);
    switch (op.how) {
    case form::nop: case form::control: break;
    case form::branch: branch_spans(s, op); break;
    case form::smem: case form::ds: case form::flat: case form::buffer: memory_spans(s, memory, op, code); break;
    case form::salu: case form::salu_compare: case form::salu_k: case form::salu_literal: scalar_spans(s, op, code); break;
    default: vector_spans(s, op, code);
    }
    const flow followed = flow_of(op);
    part[parts++] = {&op, code, followed, variant_of(op, followed)};
}

}  // namespace strata::emulator
