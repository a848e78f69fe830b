// From machine code to program: walks the code, splits encodings into operands, picks handlers.
#include "encoding.h"
#include "instruments/settings.h"
#include "program.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <sys/mman.h>

namespace strata::emulator {

namespace {

constexpr uint32_t constant_capacity = 16384;  // rows

/// Something about an instruction that this machine does not emulate; it faults when executed.
struct not_emulated {};

bool is_terminator(std::string_view m) {
    return m == "s_branch" || m == "s_setpc_b64" || m.starts_with("s_endpgm") || m == "s_code_end";
}
bool is_branch(std::string_view m) { return m == "s_branch" || m.starts_with("s_cbranch_") || m == "s_call_b64"; }
uint32_t branch_target(const raw_instruction & r) { return r.offset + 4 + uint32_t(int32_t(int16_t(r.words[0] & 0xffff)) * 4); }

uint64_t widened(type t, uint32_t literal) {
    switch (t) {
    case type::f64: return uint64_t(literal) << 32;
    case type::i64: return uint64_t(int64_t(int32_t(literal)));
    default: return literal;
    }
}
bool is_64(type t) { return t == type::b64 || t == type::f64 || t == type::i64; }
bool is_16(type t) { return t == type::b16 || t == type::f16 || t == type::bf16 || t == type::i16; }
bool takes_float_modifiers(type t) { return t == type::f32 || t == type::f64 || t == type::f16; }

/// The value of an inline constant as an operand of type t sees it.
uint64_t inline_constant(uint32_t code, type t) {
    if (code >= code_int_first && code <= code_int_last) {
        const int32_t value = code <= 192 ? int32_t(code) - 128 : 192 - int32_t(code);
        return is_64(t) ? uint64_t(int64_t(value)) : uint32_t(value);
    }
    switch (code) {
    case code_null: return 0;
    case code_shared_base: return is_64(t) ? uint64_t(lds_aperture) << 32 : lds_aperture;
    case code_shared_limit: return is_64(t) ? uint64_t(lds_aperture) << 32 | 0xffffffffu : lds_aperture;
    case code_private_base: return is_64(t) ? uint64_t(scratch_aperture) << 32 : scratch_aperture;
    case code_private_limit: return is_64(t) ? uint64_t(scratch_aperture) << 32 | 0xffffffffu : scratch_aperture;
    }
    if (code < code_float_first || code > code_float_last) throw not_emulated();
    static const uint32_t single[] = {0x3f000000, 0xbf000000, 0x3f800000, 0xbf800000, 0x40000000, 0xc0000000,
                                      0x40800000, 0xc0800000, 0x3e22f983};
    static const uint16_t half[] = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000, 0xc000, 0x4400, 0xc400, 0x3118};
    static const uint64_t twice[] = {0x3fe0000000000000, 0xbfe0000000000000, 0x3ff0000000000000, 0xbff0000000000000, 0x4000000000000000,
                                     0xc000000000000000, 0x4010000000000000, 0xc010000000000000, 0x3fc45f306dc9c882};
    const uint32_t n = code - code_float_first;
    if (is_64(t)) return twice[n];
    if (t == type::f16 || t == type::pf16) return half[n];
    if (t == type::bf16) return single[n] >> 16;
    return single[n];
}

}  // namespace

/// Turns raw instructions into insts of one program.
class builder {
public:
    explicit builder(program & p) : program_(p) {}

    const inst * chunk(uint32_t entry);

private:
    program & program_;
    raw_instruction raw_;
    uint64_t word_ = 0;         // the first 64 bits
    uint32_t literal_ = 0;
    uint32_t dpp_word_ = 0;
    bool is_dpp8_ = false, is_dpp16_ = false;
    encoding encoding_ = encoding::other;
    probe * probe_ = nullptr;   // of the instruction being built, where instruments are on

    std::map<uint32_t, raw_instruction> walk(uint32_t entry);
    void emit(const raw_instruction & raw, std::vector<inst> & out);
    inst hook(const raw_instruction & raw);
    inst build(const operation & op);
    void vopd(std::vector<inst> & out);
    void vector_operands(inst & i, const operation & op);
    void finish_vector(inst & i, const operation & op);
    void source(inst & i, int k, uint32_t code, type t);
    void scalar_source(inst & i, int k, uint32_t code, type t);
    void mask_source(inst & i, int k, uint32_t code);
    void dpp_source(inst & i);
    int32_t constant_row(uint64_t value, bool two_rows);
    int32_t vgpr(uint32_t n, uint32_t count = 1) {
        program_.vgprs = std::max(program_.vgprs, n + count);
        return int32_t(n * row_bytes);
    }
    static int destination(uint32_t code) { return code == code_null ? int(slot_trash) : int(code); }
    static int slot_source(uint32_t code) { return code == code_null ? int(slot_zero) : int(code); }
    void scalar_operands(inst & i, const operation & op);
    void memory_operands(inst & i, const operation & op);
};

int32_t builder::constant_row(uint64_t value, bool two_rows) {
    auto [found, inserted] = program_.constant_rows_.try_emplace({value, two_rows});
    if (inserted) {
        const uint32_t rows = two_rows ? 2 : 1;
        if (program_.constants_used_ + rows > constant_capacity) throw std::runtime_error("a program has too many constants to decode");
        program_.constants_used_ += rows;
        found->second = -int32_t(program_.constants_used_ * row_bytes);
        uint8_t * p = const_cast<uint8_t *>(program_.constants_end) + found->second;
        for (uint32_t r = 0; r < rows; r++) {
            const uint32_t part = uint32_t(value >> (32 * r));
            for (int lane = 0; lane < 32; lane++) std::memcpy(p + r * row_bytes + lane * 4, &part, 4);
        }
    }
    return found->second;
}

void builder::mask_source(inst & i, int k, uint32_t code) {
    if (code < 128) {
        i.src[k] = slot_source(code);
        i.imm = 0;
    } else {
        i.src[k] = slot_zero;
        i.imm = code == code_literal ? literal_ : inline_constant(code, type::b32);
    }
}

void builder::source(inst & i, int k, uint32_t code, type t) {
    if (t == type::none) return;
    if (t == type::mask) return mask_source(i, k, code);
    if (code >= code_vgpr) {
        uint32_t n = code - code_vgpr;
        const bool short_form = encoding_ == encoding::vop1 || encoding_ == encoding::vop2 || encoding_ == encoding::vopc;
        if (short_form && is_16(t) && n >= 128) {  // the upper half of v(n - 128)
            i.opsel |= uint8_t(1 << k);
            n -= 128;
        }
        i.kind[k] = source_row;
        i.src[k] = vgpr(n, is_64(t) ? 2 : 1);
        return;
    }
    if (code == code_dpp8 || code == code_dpp8_fi || code == code_dpp16) {
        if (k != 0 || is_64(t) || !(is_dpp8_ || is_dpp16_)) throw not_emulated();
        const uint32_t n = dpp_word_ & 0xff;
        if (is_16(t) && (encoding_ == encoding::vop1 || encoding_ == encoding::vop2 || encoding_ == encoding::vopc) && n >= 128) {
            i.opsel |= 1;
            i.src[0] = vgpr(n - 128);
        } else {
            i.src[0] = vgpr(n);
        }
        i.kind[0] = source_dpp;
        return;
    }
    if (code < 128 && code != code_null) {
        i.kind[k] = source_sgpr;
        i.src[k] = int32_t(code);
        return;
    }
    if (code == code_scc) {
        i.kind[k] = source_sgpr;
        i.src[k] = slot_scc;
        return;
    }
    type constant_type = t;
    if (t == type::mix) constant_type = (i.opsel_hi >> k & 1) ? type::f16 : type::f32;
    uint64_t value = code == code_literal ? widened(constant_type, literal_) : inline_constant(code, constant_type);
    i.kind[k] = source_row;
    i.src[k] = constant_row(value, is_64(t));
}

void builder::dpp_source(inst & i) {
    if (!is_dpp8_ && !is_dpp16_) return;
    dpp_control c{};
    c.valid = 0xffffffffu;
    c.write = 0xffffffffu;
    if (is_dpp8_) {
        for (uint32_t lane = 0; lane < 32; lane++) {
            const int at = int(8 + 3 * (lane & 7));
            c.lane[lane] = (lane & ~7u) | bits(dpp_word_, at + 2, at);
        }
        const uint32_t code = bits(word_, encoding_ == encoding::vop3 || encoding_ == encoding::vop3p ? 40 : 8,
                                   encoding_ == encoding::vop3 || encoding_ == encoding::vop3p ? 32 : 0);
        c.fetch_inactive = code == code_dpp8_fi;
        c.bound_ctrl = true;  // a lane that is off gives 0
    } else {
        const uint32_t control = bits(dpp_word_, 16, 8);
        c.fetch_inactive = dpp_word_ >> 18 & 1;
        c.bound_ctrl = dpp_word_ >> 19 & 1;
        const uint32_t bank_mask = bits(dpp_word_, 27, 24), row_mask = bits(dpp_word_, 31, 28);
        c.write = 0;
        c.valid = 0;
        for (uint32_t lane = 0; lane < 32; lane++) {
            if ((row_mask >> (lane / 16) & 1) && (bank_mask >> (lane / 4 % 4) & 1)) c.write |= 1u << lane;
            const int row = int(lane & ~15u), n = int(lane & 15);
            int from;
            bool valid = true;
            if (control <= 0xff) {
                from = int(lane & ~3u) + int(control >> (2 * (lane & 3)) & 3);
            } else if (control >= 0x101 && control <= 0x10f) {  // row_shl
                from = n + int(control & 15);
                valid = from < 16;
                from = row + (from & 15);
            } else if (control >= 0x111 && control <= 0x11f) {  // row_shr
                from = n - int(control & 15);
                valid = from >= 0;
                from = row + (from & 15);
            } else if (control >= 0x121 && control <= 0x12f) {  // row_ror
                from = row + ((n - int(control & 15)) & 15);
            } else if (control == 0x140) {  // row_mirror
                from = row + 15 - n;
            } else if (control == 0x141) {  // row_half_mirror
                from = row + (n & 8) + 7 - (n & 7);
            } else if (control >= 0x150 && control <= 0x15f) {  // row_share
                from = row + int(control & 15);
            } else if (control >= 0x160 && control <= 0x16f) {  // row_xmask
                from = row + (n ^ int(control & 15));
            } else {
                throw not_emulated();
            }
            c.lane[lane] = uint32_t(from);
            if (valid) c.valid |= 1u << lane;
        }
        // The DPP word carries the modifiers of the short encodings.
        if (encoding_ != encoding::vop3 && encoding_ != encoding::vop3p) {
            i.neg |= uint8_t((dpp_word_ >> 20 & 1) | (dpp_word_ >> 22 & 1) << 1);
            i.abs |= uint8_t((dpp_word_ >> 21 & 1) | (dpp_word_ >> 23 & 1) << 1);
        }
    }
    program_.dpp_.push_back(c);
    i.dpp = &program_.dpp_.back();
}

void builder::vector_operands(inst & i, const operation & op) {
    const uint64_t w = word_;
    type types[3] = {op.a, op.b, op.c};
    const auto short_destination = [&](uint32_t n) {
        if (is_16(op.d) && n >= 128) {
            i.opsel |= 8;
            n -= 128;
        }
        return vgpr(n, is_64(op.d) ? 2 : 1);
    };
    switch (encoding_) {
    case encoding::vop1:
        if (op.how == form::lane_scalar) i.dst = destination(bits(w, 24, 17));
        else i.dst = short_destination(bits(w, 24, 17));
        source(i, 0, bits(w, 8, 0), types[0]);
        break;
    case encoding::vop2:
        i.dst = short_destination(bits(w, 24, 17));
        source(i, 0, bits(w, 8, 0), types[0]);
        if (op.how == form::valu_fmamk) {
            source(i, 1, code_literal, types[1]);
            source(i, 2, code_vgpr + bits(w, 16, 9), types[2]);
        } else {
            source(i, 1, code_vgpr + bits(w, 16, 9), types[1]);
            if (op.how == form::valu_fmaak) source(i, 2, code_literal, types[2]);
        }
        if (op.how == form::valu_mask || op.how == form::valu_vcc) {
            if (types[2] == type::mask) mask_source(i, 2, slot_vcc);
            i.sdst = slot_vcc;
        }
        break;
    case encoding::vopc:
        i.dst = op.how == form::comparex ? int(slot_exec) : int(slot_vcc);
        source(i, 0, bits(w, 8, 0), types[0]);
        source(i, 1, code_vgpr + bits(w, 16, 9), types[1]);
        break;
    case encoding::vop3:
    case encoding::vop3p: {
        const uint32_t d = bits(w, 7, 0);
        i.neg = uint8_t(bits(w, 63, 61));
        i.clamp = uint8_t(bits(w, 15, 15));
        if (encoding_ == encoding::vop3p) {
            i.abs = uint8_t(bits(w, 10, 8));  // neg_hi
            i.opsel = uint8_t(bits(w, 13, 11));
            i.opsel_hi = uint8_t(bits(w, 60, 59) | bits(w, 14, 14) << 2);
        } else {
            i.omod = uint8_t(bits(w, 60, 59));
            if (op.how == form::valu_vcc) {
                i.sdst = int16_t(destination(bits(w, 14, 8)));
            } else {
                i.abs = uint8_t(bits(w, 10, 8));
                i.opsel = uint8_t(bits(w, 14, 11));
            }
        }
        switch (op.how) {
        case form::compare: i.dst = destination(d); break;
        case form::comparex: i.dst = slot_exec; break;
        case form::lane_scalar: i.dst = destination(d); break;
        default: i.dst = vgpr(d, is_64(op.d) ? 2 : 1);
        }
        source(i, 0, bits(w, 40, 32), types[0]);
        source(i, 1, bits(w, 49, 41), types[1]);
        if (op.how != form::valu_acc) source(i, 2, bits(w, 58, 50), types[2]);
        break;
    }
    default: throw not_emulated();
    }
    if (op.how == form::valu_acc) {
        i.kind[2] = source_row;
        i.src[2] = i.dst;
        if (i.opsel & 8) i.opsel |= 4;  // the accumulator is the same half as the destination
    }
    dpp_source(i);
    finish_vector(i, op);
}

/// Refuses modifiers that the operation does not know, and chooses the handler.
void builder::finish_vector(inst & i, const operation & op) {
    const type types[3] = {op.a, op.b, op.c};
    bool rows = op.fast != nullptr;
    for (int k = 0; k < 3; k++) {
        if (types[k] == type::none || types[k] == type::mask) continue;
        if (i.kind[k] != source_row) rows = false;
        const bool modified = (i.neg | i.abs) >> k & 1;
        if (modified && !takes_float_modifiers(types[k]) && !(op.flags & op_neg_is_sign)) throw not_emulated();
        if ((i.opsel >> k & 1) && encoding_ != encoding::vop3p && !is_16(types[k]) && !(op.flags & op_free_opsel)) throw not_emulated();
        if ((op.flags & op_rows_only) && i.kind[k] != source_row) throw not_emulated();
    }
    const bool float_result = takes_float_modifiers(op.d);
    if (i.clamp && !float_result && !(op.flags & op_int_clamp)) throw not_emulated();
    if (i.omod && !float_result) throw not_emulated();
    if (i.kind[0] == source_dpp && (op.flags & op_no_dpp)) throw not_emulated();
    const bool plain_neg = (i.neg == 0 && i.abs == 0) || (op.flags & op_neg_is_sign);
    const bool plain_opsel = encoding_ == encoding::vop3p || i.opsel == 0;
    i.fn = rows && plain_neg && plain_opsel && !i.clamp && !i.omod ? op.fast : op.general;
}

void builder::scalar_source(inst & i, int k, uint32_t code, type t) {
    uint64_t constant = 0;
    if (t == type::none) {
        i.src[k] = slot_zero;
    } else if (code < 128 && code != code_null) {
        i.src[k] = int32_t(code);
    } else if (code == code_scc) {
        i.src[k] = slot_scc;
    } else {
        i.src[k] = slot_zero;
        constant = code == code_literal ? widened(t, literal_) : inline_constant(code, t);
    }
    (k == 0 ? i.imm : i.imm1) = constant;
}

void builder::scalar_operands(inst & i, const operation & op) {
    const uint32_t w = uint32_t(word_);
    i.dst = slot_trash;
    switch (encoding_) {
    case encoding::sop1:
        if (op.d != type::none) i.dst = destination(bits(w, 22, 16));
        scalar_source(i, 0, bits(w, 7, 0), op.a);
        scalar_source(i, 1, code_null, type::none);
        break;
    case encoding::sop2:
        i.dst = destination(bits(w, 22, 16));
        scalar_source(i, 0, bits(w, 7, 0), op.a);
        scalar_source(i, 1, bits(w, 15, 8), op.b);
        if (op.how == form::salu_literal) i.src[2] = int32_t(literal_);
        break;
    case encoding::sopc:
        scalar_source(i, 0, bits(w, 7, 0), op.a);
        scalar_source(i, 1, bits(w, 15, 8), op.b);
        break;
    case encoding::sopk:
        i.dst = destination(bits(w, 22, 16));
        i.src[0] = slot_source(bits(w, 22, 16));
        i.src[1] = slot_zero;
        i.imm = raw_.size > 4 ? literal_ : 0;
        i.imm1 = uint64_t(int64_t(int16_t(w & 0xffff)));
        if (raw_.mnemonic == "s_setreg_imm32_b32") i.src[0] = slot_zero;
        break;
    case encoding::sopp:
        i.src[0] = i.src[1] = slot_zero;
        i.imm1 = w & 0xffff;
        break;
    default: throw not_emulated();
    }
    i.fn = op.general;
}

void builder::memory_operands(inst & i, const operation & op) {
    const uint64_t w = word_;
    i.fn = op.general;
    switch (encoding_) {
    case encoding::smem:
        i.sdst = int16_t(bits(w, 5, 0) * 2);
        i.dst = destination(bits(w, 12, 6));
        i.imm = uint64_t(int64_t(int32_t(bits(w, 52, 32) << 11) >> 11));
        i.src[0] = slot_source(bits(w, 63, 57));
        break;
    case encoding::ds:
        if (bits(w, 17, 17)) throw not_emulated();  // GDS
        i.imm = bits(w, 15, 0);
        i.src[0] = vgpr(bits(w, 39, 32));
        i.src[1] = vgpr(bits(w, 47, 40), 4);
        i.src[2] = vgpr(bits(w, 55, 48), 2);
        i.dst = vgpr(bits(w, 63, 56), 4);
        break;
    case encoding::flat: {
        const uint32_t segment = bits(w, 17, 16);
        const uint32_t saddr = bits(w, 54, 48);
        const uint32_t offset = bits(w, 12, 0);
        i.imm = segment == 0 ? offset & 0xfff : uint64_t(int64_t(int32_t(offset << 19) >> 19));
        i.src[0] = vgpr(bits(w, 39, 32), 2);
        i.src[1] = vgpr(bits(w, 47, 40), 4);
        i.dst = vgpr(bits(w, 63, 56), 4);
        if (bits(w, 14, 14)) i.aux |= memory_return;
        if (segment != 0 && saddr != code_null) {
            i.aux |= memory_saddr;
            i.sdst = int16_t(saddr);
        }
        if (segment == 1 && bits(w, 55, 55)) i.aux |= memory_vaddr;
        break;
    }
    case encoding::mubuf: {
        i.src[0] = vgpr(bits(w, 39, 32), 2);
        i.src[1] = i.dst = vgpr(bits(w, 47, 40), 4);
        i.sdst = int16_t(bits(w, 52, 48) * 4);
        i.imm = bits(w, 11, 0);
        if (bits(w, 14, 14)) i.aux |= memory_return;
        if (bits(w, 54, 54)) i.aux |= memory_offen;
        if (bits(w, 55, 55)) i.aux |= memory_idxen;
        if (bits(w, 53, 53)) throw not_emulated();  // tfe
        const uint32_t soffset = bits(w, 63, 56);
        if (soffset < 128) {
            i.src[2] = slot_source(soffset);
        } else {
            i.src[2] = slot_zero;
            i.imm |= uint64_t(uint32_t(inline_constant(soffset, type::b32))) << 32;
        }
        break;
    }
    default: throw not_emulated();
    }
}

inst builder::build(const operation & op) {
    inst i;
    i.pc = raw_.offset;
    i.size = uint8_t(raw_.size);
    switch (op.how) {
    case form::salu: case form::salu_compare: case form::salu_k: case form::salu_literal: case form::control:
    case form::nop:
        if (encoding_ >= encoding::smem) {  // v_nop, buffer_gl0_inv and the like
            i.fn = op.general;
            break;
        }
        scalar_operands(i, op);
        if (op.flags & op_raw_registers) {
            const uint32_t code = bits(raw_.words[0], 7, 0);
            if (code < 128) i.src[0] = int32_t(code);
        }
        break;
    case form::branch:
        i.fn = op.general;
        if (encoding_ == encoding::sopk) i.dst = destination(bits(word_, 22, 16));
        break;
    case form::smem: case form::ds: case form::flat: case form::buffer: memory_operands(i, op); break;
    default: vector_operands(i, op);
    }
    return i;
}

const char * vopd_mnemonic(uint32_t code) {
    static const char * const names[] = {
        "v_dual_fmac_f32", "v_dual_fmaak_f32", "v_dual_fmamk_f32", "v_dual_mul_f32", "v_dual_add_f32", "v_dual_sub_f32",
        "v_dual_subrev_f32", "v_dual_mul_dx9_zero_f32", "v_dual_mov_b32", "v_dual_cndmask_b32", "v_dual_max_f32", "v_dual_min_f32",
        "v_dual_dot2acc_f32_f16",
        "v_dual_dot2acc_f32_bf16", nullptr, nullptr, "v_dual_add_nc_u32", "v_dual_lshlrev_b32", "v_dual_and_b32"};
    return code < std::size(names) ? names[code] : nullptr;
}

static std::string single_mnemonic(const char * dual) { return "v_" + std::string(dual).substr(7); }

/// Both halves read their sources before either writes. So the half whose destination the other does not read goes second;
/// if each reads what the other writes, the first result waits in wave::swap_row.
void builder::vopd(std::vector<inst> & out) {
    const uint64_t w = word_;
    const char * names[2] = {vopd_mnemonic(bits(w, 25, 22)), vopd_mnemonic(bits(w, 21, 17))};
    const uint32_t vdstx = bits(w, 63, 56);
    const uint32_t destinations[2] = {vdstx, bits(w, 55, 49) << 1 | (~vdstx & 1)};
    const uint32_t src0[2] = {bits(w, 8, 0), bits(w, 40, 32)};
    const uint32_t src1[2] = {bits(w, 16, 9), bits(w, 48, 41)};
    inst half[2];
    bool reads_other[2];
    for (int h = 0; h < 2; h++) {
        if (!names[h]) throw not_emulated();
        const operation * op = find_operation(program_.isa, single_mnemonic(names[h]));
        if (!op) throw not_emulated();
        inst & i = half[h];
        i.pc = raw_.offset;
        i.size = uint8_t(raw_.size);
        i.dst = vgpr(destinations[h]);
        source(i, 0, src0[h], op->a);
        if (op->how == form::valu_fmamk) {
            source(i, 1, code_literal, op->b);
            source(i, 2, code_vgpr + src1[h], op->c);
        } else {
            source(i, 1, code_vgpr + src1[h], op->b);
            if (op->how == form::valu_fmaak) source(i, 2, code_literal, op->c);
            if (op->how == form::valu_mask) mask_source(i, 2, slot_vcc);
            if (op->how == form::valu_acc) i.src[2] = i.dst;
        }
        finish_vector(i, *op);
        if (probe_) probe_->add(*op, i, true);
        const type types[3] = {op->a, op->b, op->c};
        reads_other[h] = false;
        for (int k = 0; k < 3; k++) {
            const bool is_row = types[k] != type::none && types[k] != type::mask && i.kind[k] == source_row;
            if (is_row && i.src[k] == vgpr(destinations[1 - h])) reads_other[h] = true;
        }
    }
    if (!reads_other[1]) {
        half[1].weight = 0;
        out.push_back(half[0]);
        out.push_back(half[1]);
    } else if (!reads_other[0]) {
        half[0].weight = 0;
        out.push_back(half[1]);
        out.push_back(half[0]);
    } else {
        inst save, restore;
        save.pc = restore.pc = raw_.offset;
        save.size = restore.size = half[0].size;
        save.weight = restore.weight = 0;
        save.fn = program_.isa.save_swap_row;
        restore.fn = program_.isa.exchange_swap_row;
        save.dst = restore.dst = half[0].dst;
        half[1].weight = 0;
        // X runs and its result is exchanged with the saved old value, Y runs on the old value, then X's result is put back.
        out.push_back(save);
        out.push_back(half[0]);
        out.push_back(restore);
        out.push_back(half[1]);
        out.push_back(restore);
    }
}

/// What shows an instruction to the instruments before it runs.
inst builder::hook(const raw_instruction & raw) {
    probe_ = &program_.probes_.emplace_back();
    probe_->pc = raw.offset;
    probe_->word = raw.words[0];
    inst i;
    i.fn = program_.isa.hook;
    i.imm = reinterpret_cast<uint64_t>(probe_);
    i.pc = raw.offset;
    i.size = uint8_t(raw.size);
    i.weight = 0;
    return i;
}

void builder::emit(const raw_instruction & raw, std::vector<inst> & out) {
    raw_ = raw;
    word_ = raw.words[0] | uint64_t(raw.words[1]) << 32;
    encoding_ = encoding_of(raw.words[0]);
    const unsigned base = base_size(encoding_);
    literal_ = raw.size > base ? raw.words[base / 4] : 0;
    dpp_word_ = literal_;
    uint32_t first = 0;
    if (encoding_ == encoding::vop1 || encoding_ == encoding::vop2 || encoding_ == encoding::vopc) first = bits(word_, 8, 0);
    if (encoding_ == encoding::vop3 || encoding_ == encoding::vop3p) first = bits(word_, 40, 32);
    is_dpp8_ = first == code_dpp8 || first == code_dpp8_fi;
    is_dpp16_ = first == code_dpp16;
    try {
        if (raw.mnemonic.empty()) throw not_emulated();
        if (encoding_ == encoding::vopd) return vopd(out);
        const operation * op = find_operation(program_.isa, raw.mnemonic);
        if (!op) throw not_emulated();
        out.push_back(build(*op));
        if (probe_) probe_->add(*op, out.back(), false);
    } catch (const not_emulated &) {
        inst i;
        i.pc = raw.offset;
        i.size = uint8_t(raw.size);
        i.fn = program_.isa.unknown;
        out.push_back(i);
    }
}

std::map<uint32_t, raw_instruction> builder::walk(uint32_t entry) {
    std::map<uint32_t, raw_instruction> found;
    std::vector<uint32_t> todo = {entry};
    shared_disassembler & llvm = llvm_decoder();
    std::lock_guard hold(llvm.lock);
    const uint8_t * text = reinterpret_cast<const uint8_t *>(program_.text_begin);
    while (!todo.empty()) {
        uint32_t at = todo.back();
        todo.pop_back();
        while (at < program_.text_size && !found.contains(at)) {
            raw_instruction r;
            r.offset = at;
            const auto decoded = llvm.decoder.decode(text + at, program_.text_size - at);
            r.size = decoded.size ? decoded.size : 4;
            r.mnemonic = decoded.mnemonic;
            std::memcpy(r.words, text + at, std::min<uint64_t>({r.size, sizeof r.words, program_.text_size - at}));
            found.emplace(at, r);
            if (is_branch(r.mnemonic)) {
                const uint32_t target = branch_target(r);
                if (target < program_.text_size) todo.push_back(target);
            }
            if (r.mnemonic.empty() || is_terminator(r.mnemonic)) break;
            at += r.size;
        }
    }
    return found;
}

const inst * builder::chunk(uint32_t entry) {
    const auto found = walk(entry);
    std::set<uint32_t> targets = {entry};
    for (const auto & [offset, r] : found) {
        if (is_branch(r.mnemonic)) targets.insert(branch_target(r));
    }
    std::vector<inst> out;
    std::unordered_map<uint32_t, size_t> position;
    std::vector<std::pair<size_t, uint32_t>> jumps;  // inst, target offset
    unsigned skipped = 0;                            // nops whose count the next instruction takes over
    uint32_t expected = entry;
    const auto flush_nops = [&](uint32_t pc) {
        if (!skipped) return;
        inst i;
        i.fn = program_.isa.nop;
        i.pc = pc;
        i.weight = uint8_t(skipped);
        out.push_back(i);
        skipped = 0;
    };
    for (auto it = found.begin(); it != found.end(); ++it) {
        const raw_instruction & r = it->second;
        if (targets.contains(r.offset) || skipped >= 200) flush_nops(r.offset);
        position.emplace(r.offset, out.size());
        const operation * op = r.mnemonic.empty() ? nullptr : find_operation(program_.isa, r.mnemonic);
        if (op && op->how == form::nop && !program_.watched) {
            skipped++;
        } else {
            if (program_.watched) out.push_back(hook(r));
            const size_t first = out.size();
            emit(r, out);
            out[first].weight = uint8_t(out[first].weight + skipped);
            skipped = 0;
            if (is_branch(r.mnemonic)) jumps.emplace_back(first, branch_target(r));
        }
        expected = r.offset + r.size;
        const auto next = std::next(it);
        const bool ends = r.mnemonic.empty() || is_terminator(r.mnemonic);
        if (!ends && (next == found.end() || next->first != expected)) {
            // Overlapping code, or the end of the text: go on elsewhere.
            flush_nops(r.offset);
            inst i;
            i.pc = r.offset;
            i.weight = 0;
            if (found.contains(expected)) {
                i.fn = find_operation(program_.isa, "s_branch")->general;
                jumps.emplace_back(out.size(), expected);
            } else {
                i.fn = program_.isa.unknown;
            }
            out.push_back(i);
        }
    }
    inst last;  // never reached by valid code
    last.fn = program_.isa.unknown;
    last.pc = expected;
    out.push_back(last);
    program_.chunks_.push_back(std::move(out));
    std::vector<inst> & code = program_.chunks_.back();
    for (const auto & [at, target] : jumps) {
        const auto to = position.find(target);
        if (to == position.end()) code[at].fn = program_.isa.unknown;
        else code[at].target = &code[to->second];
    }
    for (const auto & [offset, index] : position) program_.index_.try_emplace(offset, &code[index]);
    return &code[position.at(entry)];
}

program::program(const kernel_image & kernel, const isa_build & build)
    : isa(build), text_begin(kernel.text_begin), text_size(uint32_t(kernel.text_end - kernel.text_begin)),
      watched(instruments().watches_instructions()) {
    const size_t size = size_t(constant_capacity) * row_bytes;
    void * p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::runtime_error("no memory for the decoded constants of a kernel");
    constants_ = static_cast<uint8_t *>(p);
    constants_end = constants_ + size;
    vgprs = ((kernel.rsrc1 & 63) + 1) * 8;
    entry = at(uint32_t(kernel.entry - kernel.text_begin));
}

program::~program() { munmap(constants_, size_t(constant_capacity) * row_bytes); }

const inst * program::at(uint32_t offset) {
    if (offset >= text_size || offset % 4 != 0) return nullptr;
    std::lock_guard hold(lock_);
    const auto found = index_.find(offset);
    if (found != index_.end()) return found->second;
    return builder(*this).chunk(offset);
}

std::string program::text(uint32_t offset) const {
    shared_disassembler & llvm = llvm_decoder();
    std::lock_guard hold(llvm.lock);
    if (offset >= text_size) return "(outside the code)";
    return llvm.decoder.text(reinterpret_cast<const uint8_t *>(text_begin) + offset, text_size - offset);
}

shared_disassembler & llvm_decoder() {
    static auto * decoder = new shared_disassembler;  // never destroyed: threads may fault while the process exits
    return *decoder;
}

const inst * resolve_pc(wave * w, uint64_t address) {
    if (address < w->text_begin || address >= w->text_begin + w->code->text_size) return nullptr;
    return w->code->at(uint32_t(address - w->text_begin));
}

const operation * find_operation(const isa_build & isa, std::string_view mnemonic) {
    static std::mutex lock;
    static std::map<const isa_build *, std::unordered_map<std::string_view, const operation *>> indices;
    std::lock_guard hold(lock);
    auto & index = indices[&isa];
    if (index.empty()) {
        for (unsigned t = 0; t < isa.count; t++) {
            for (unsigned n = 0; n < isa.tables[t]->count; n++) {
                const operation & op = isa.tables[t]->entries[n];
                if (!index.emplace(op.name, &op).second) throw std::logic_error(std::string("two operations named ") + op.name);
            }
        }
    }
    const auto found = index.find(mnemonic);
    return found == index.end() ? nullptr : found->second;
}

}  // namespace strata::emulator
