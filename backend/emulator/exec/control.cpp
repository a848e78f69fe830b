// Branches, waits, messages, hardware registers and scalar loads.
#include "memory.h"
#include "scalar.h"
#include "tables.h"

namespace strata::emulator::STRATA_ISA {

static STRATA_HANDLER(s_nop) { STRATA_NEXT; }

/// Goes to i->target. A backward branch past the slice gives the other waves of the workgroup a turn.
static STRATA_INLINE bool slice_over(wave * w, const inst * i, uint64_t count) {
    if (__builtin_expect(count < w->slice_end || i->target > i, 1)) return false;
    w->pc = i->target;
    w->count = count;
    w->state = stop::yield;
    return true;
}
template <auto Taken> static STRATA_HANDLER(branch) {
    count += i->weight;
    if (Taken(w)) {
        const inst * to = i->target;
        if (slice_over(w, i, count)) return;
        [[clang::musttail]] return to->fn(w, to, count);
    }
    [[clang::musttail]] return i[1].fn(w, i + 1, count);
}
#define BRANCH(NAME, ...) {#NAME, form::branch, type::none, type::none, type::none, type::none, nullptr, \
    branch<[]([[maybe_unused]] const wave * w) __attribute__((always_inline)) -> bool { return __VA_ARGS__; }>, 0}

static STRATA_HANDLER(s_endpgm) {
    w->pc = i;
    w->count = count + i->weight;
    w->state = stop::end;
}
static STRATA_HANDLER(s_barrier) {
    w->pc = i + 1;
    w->count = count + i->weight;
    w->state = stop::barrier;
}
/// The barrier of a whole grid by the chip's global wave sync, as HIP's cooperative groups have it. A grid of one is all there can be:
/// kernels of ours that wait for each other (hipModuleLaunchCooperativeKernel) count in memory.
static STRATA_HANDLER(ds_gws_barrier) {
    uint16_t group[3];
    uint32_t grid[3];
    std::memcpy(group, reinterpret_cast<const void *>(w->extra[1].begin + 4), sizeof group);
    std::memcpy(grid, reinterpret_cast<const void *>(w->extra[1].begin + 12), sizeof grid);
    if (grid[0] != group[0] || grid[1] != group[1] || grid[2] != group[2]) {
        stop_with(w, i, count + i->weight, fault_note::reason::unsupported, "the kernel waits for all workgroups of the grid by global wave "
                  "sync, which is not emulated");
        return;
    }
    w->pc = i + 1;
    w->count = count + i->weight;
    w->state = stop::barrier;
}
static STRATA_HANDLER(s_sleep) {
    w->pc = i + 1;
    w->count = count + i->weight;
    w->state = stop::yield;
}
static STRATA_HANDLER(s_trap) { stop_with(w, i, count + i->weight, fault_note::reason::unsupported, "the kernel executed a trap"); }

static STRATA_INLINE uint64_t next_pc(const wave * w, const inst * i) { return w->text_begin + i->pc + i->size; }

static STRATA_HANDLER(s_getpc_b64) {
    write_slot(w, i->dst, next_pc(w, i));
    STRATA_NEXT;
}
template <bool link> static STRATA_HANDLER(set_pc) {
    const uint64_t address = read<uint64_t>(w, i, 0);
    if (link) write_slot(w, i->dst, next_pc(w, i));
    const inst * to = resolve_pc(w, address);
    count += i->weight;
    if (!to) {
        stop_memory(w, i, count, fault_note::reason::bad_pc, 0, address, 4, false);
        return;
    }
    if (__builtin_expect(count >= w->slice_end, 0)) {
        w->pc = to;
        w->count = count;
        w->state = stop::yield;
        return;
    }
    [[clang::musttail]] return to->fn(w, to, count);
}
static STRATA_HANDLER(s_call_b64) {
    write_slot(w, i->dst, next_pc(w, i));
    count += i->weight;
    const inst * to = i->target;
    if (slice_over(w, i, count)) return;
    [[clang::musttail]] return to->fn(w, to, count);
}

// Hardware registers: only MODE (id 1) has state that matters; its rounding and denormal fields are fixed here.
static STRATA_INLINE bool set_mode(wave * w, uint32_t value) {
    w->mode = value;
    return (value & 0xff) == 0xf0;
}
template <bool literal> static STRATA_HANDLER(s_setreg) {
    const uint32_t code = uint32_t(i->imm1) & 0xffff;
    const uint32_t id = code & 63, offset = code >> 6 & 31, width = (code >> 11) + 1;
    const uint32_t value = literal ? uint32_t(i->imm) : w->s[i->dst];
    if (id == 1) {
        const uint32_t mask = (width >= 32 ? ~0u : (1u << width) - 1) << offset;
        if (!set_mode(w, (w->mode & ~mask) | ((value << offset) & mask))) {
            stop_with(w, i, count + i->weight, fault_note::reason::unsupported,
                      "the kernel changes the rounding or denormal mode; only round-to-nearest with denormals is emulated");
            return;
        }
    }
    STRATA_NEXT;
}
static STRATA_HANDLER(s_getreg_b32) {
    const uint32_t code = uint32_t(i->imm1) & 0xffff;
    const uint32_t id = code & 63, offset = code >> 6 & 31, width = (code >> 11) + 1;
    uint32_t value = 0;
    if (id == 1) value = w->mode;
    else if (id == 29) value = uint32_t(count);  // SHADER_CYCLES: instructions, so that runs repeat exactly
    w->s[i->dst] = value >> offset & (width >= 32 ? ~0u : (1u << width) - 1);
    STRATA_NEXT;
}
static STRATA_HANDLER(s_round_mode) {
    if (!set_mode(w, (w->mode & ~0xfu) | (uint32_t(i->imm1) & 0xf))) {
        stop_with(w, i, count + i->weight, fault_note::reason::unsupported, "only round-to-nearest is emulated");
        return;
    }
    STRATA_NEXT;
}
static STRATA_HANDLER(s_denorm_mode) {
    if (!set_mode(w, (w->mode & ~0xf0u) | (uint32_t(i->imm1) & 0xf) << 4)) {
        stop_with(w, i, count + i->weight, fault_note::reason::unsupported, "flushing denormals is not emulated");
        return;
    }
    STRATA_NEXT;
}
static STRATA_HANDLER(s_version) { STRATA_NEXT; }
/// Answers to messages: nothing that a compute kernel may depend on.
static STRATA_HANDLER(s_sendmsg_rtn_b32) {
    w->s[i->dst] = uint32_t(count);
    STRATA_NEXT;
}
static STRATA_HANDLER(s_sendmsg_rtn_b64) {
    write_slot(w, i->dst, count);
    STRATA_NEXT;
}

// Scalar loads: sdst = slot of the base, src[0] = slot of the scalar offset.
template <int dwords> static STRATA_HANDLER(s_load) {
    const uint64_t address = (read_slot<uint64_t>(w, i->sdst) + i->imm + w->s[i->src[0]]) & ~3ull;
    if (__builtin_expect(!covered(w, i, address, 4 * dwords, false), 0)) {
        stop_memory(w, i, count + i->weight, fault_note::reason::memory, 0, address, 4 * dwords, false);
        return;
    }
    std::memcpy(&w->s[i->dst], reinterpret_cast<const void *>(address), 4 * dwords);
    STRATA_NEXT;
}
template <int dwords> static STRATA_HANDLER(s_buffer_load) {
    const uint32_t * v = &w->s[i->sdst];
    const uint64_t base = v[0] | uint64_t(v[1] & 0xffff) << 32;
    const uint32_t stride = v[1] >> 16 & 0x3fff;
    const uint64_t limit = stride ? uint64_t(v[2]) * stride : v[2];
    const uint64_t offset = (i->imm + w->s[i->src[0]]) & ~3ull;
    uint32_t data[dwords];
    for (int d = 0; d < dwords; d++) {
        data[d] = 0;
        if (offset + 4 * d + 4 > limit) continue;
        const uint64_t address = (base + offset + 4 * d) & ~3ull;
        if (!covered(w, i, address, 4, false)) {
            stop_memory(w, i, count + i->weight, fault_note::reason::memory, 0, address, 4, false);
            return;
        }
        std::memcpy(&data[d], reinterpret_cast<const void *>(address), 4);
    }
    std::memcpy(&w->s[i->dst], data, sizeof data);
    STRATA_NEXT;
}

#define NOP(NAME) {#NAME, form::nop, type::none, type::none, type::none, type::none, nullptr, s_nop, 0}
#define CONTROL(NAME, FN) {#NAME, form::control, type::none, type::none, type::none, type::none, nullptr, FN, 0}
#define LOAD(NAME, FN) {#NAME, form::smem, type::none, type::none, type::none, type::none, nullptr, FN, 0}

static const operation entries[] = {
    BRANCH(s_branch, true),
    BRANCH(s_cbranch_scc0, w->s[slot_scc] == 0),
    BRANCH(s_cbranch_scc1, w->s[slot_scc] != 0),
    BRANCH(s_cbranch_vccz, w->s[slot_vcc] == 0),
    BRANCH(s_cbranch_vccnz, w->s[slot_vcc] != 0),
    BRANCH(s_cbranch_execz, w->s[slot_exec] == 0),
    BRANCH(s_cbranch_execnz, w->s[slot_exec] != 0),
    BRANCH(s_cbranch_cdbgsys, false),
    BRANCH(s_cbranch_cdbguser, false),
    BRANCH(s_cbranch_cdbgsys_or_user, false),
    BRANCH(s_cbranch_cdbgsys_and_user, false),
    {"s_call_b64", form::branch, type::b64, type::none, type::none, type::none, nullptr, s_call_b64, 0},

    CONTROL(s_endpgm, s_endpgm), CONTROL(s_endpgm_saved, s_endpgm), CONTROL(s_barrier, s_barrier),
    CONTROL(ds_gws_barrier, ds_gws_barrier), CONTROL(s_sleep, s_sleep),
    CONTROL(s_trap, s_trap), CONTROL(s_round_mode, s_round_mode), CONTROL(s_denorm_mode, s_denorm_mode),
    {"s_getpc_b64", form::salu, type::b64, type::none, type::none, type::none, nullptr, s_getpc_b64, 0},
    {"s_setpc_b64", form::salu, type::none, type::b64, type::none, type::none, nullptr, set_pc<false>, 0},
    {"s_swappc_b64", form::salu, type::b64, type::b64, type::none, type::none, nullptr, set_pc<true>, 0},
    {"s_setreg_b32", form::salu_k, type::b32, type::none, type::none, type::none, nullptr, s_setreg<false>, 0},
    {"s_setreg_imm32_b32", form::salu_k, type::none, type::none, type::none, type::none, nullptr, s_setreg<true>, 0},
    {"s_getreg_b32", form::salu_k, type::b32, type::none, type::none, type::none, nullptr, s_getreg_b32, 0},
    {"s_version", form::salu_k, type::none, type::none, type::none, type::none, nullptr, s_version, 0},
    {"s_sendmsg_rtn_b32", form::salu, type::b32, type::none, type::none, type::none, nullptr, s_sendmsg_rtn_b32, 0},
    {"s_sendmsg_rtn_b64", form::salu, type::b64, type::none, type::none, type::none, nullptr, s_sendmsg_rtn_b64, 0},

    NOP(s_nop), NOP(s_sethalt), NOP(s_setkill), NOP(s_set_inst_prefetch_distance), NOP(s_clause), NOP(s_delay_alu),
    NOP(s_waitcnt_depctr), NOP(s_waitcnt), NOP(s_wait_idle), NOP(s_wait_event), NOP(s_wakeup), NOP(s_setprio), NOP(s_sendmsg),
    NOP(s_incperflevel), NOP(s_decperflevel), NOP(s_ttracedata), NOP(s_ttracedata_imm), NOP(s_icache_inv),
    NOP(s_waitcnt_vscnt), NOP(s_waitcnt_vmcnt), NOP(s_waitcnt_expcnt), NOP(s_waitcnt_lgkmcnt),
    NOP(s_gl1_inv), NOP(s_dcache_inv), NOP(s_singleuse_vdst), NOP(buffer_gl0_inv), NOP(buffer_gl1_inv), NOP(v_nop), NOP(v_pipeflush),
    NOP(v_permlane64_b32),

    LOAD(s_load_b32, s_load<1>), LOAD(s_load_b64, s_load<2>), LOAD(s_load_b128, s_load<4>), LOAD(s_load_b256, s_load<8>),
    LOAD(s_load_b512, s_load<16>), LOAD(s_buffer_load_b32, s_buffer_load<1>), LOAD(s_buffer_load_b64, s_buffer_load<2>),
    LOAD(s_buffer_load_b128, s_buffer_load<4>), LOAD(s_buffer_load_b256, s_buffer_load<8>), LOAD(s_buffer_load_b512, s_buffer_load<16>),
};
STRATA_TABLE(control, entries)

}  // namespace strata::emulator::STRATA_ISA
