// What the instruments know of an instruction before it runs: made once when the kernel is decoded. Where instruments are on,
// the decoder puts a hook before every instruction; the hook finds its probe in inst::imm. Without them there is neither.
// No inline functions: see instruction.h.
#pragma once

#include "../instruction.h"

#include <cstdint>
#include <string_view>

namespace strata::emulator {

/// The classes of instructions that are counted apart.
enum class work_class : uint8_t { valu, vopd, dot, trans, wmma, salu, smem, vmem, lds, branch, wait, other };
constexpr unsigned work_count = 12;
extern const char * const work_names[work_count];

enum class segment : uint8_t { none, global, flat, scratch, buffer, lds, scalar, scalar_buffer };

/// How a memory instruction accesses memory.
struct memory_use {
    segment where = segment::none;
    bool load = false, store = false, atomic = false, returns = false;
    bool sign = false;        ///< narrow loads: sign-extended
    bool keeps_half = false;  ///< narrow loads (d16): the other half of the register stays
    bool high = false;        ///< narrow: the upper half of the register
    bool addtid = false, append = false;
    bool pairs = false;       ///< atomics with a second data operand (compare-and-swap)
    bool coherent = false;    ///< loads: past the L0 and L1 (GLC)
    uint8_t bytes = 0;        ///< of one lane at one address
    uint8_t addresses = 1;    ///< 2: the 2addr forms
    uint16_t unit = 0;        ///< what the offsets of the 2addr forms count
};

/// Caches that an instruction may empty.
enum cache_kind : uint8_t { cache_l0 = 1, cache_l1 = 2, cache_scalar = 4 };

/// Consecutive registers: VGPR rows, or slots of wave::s.
struct register_span {
    int16_t first = 0;
    uint8_t count = 0;
    bool vector = false;
};

/// How definedness goes from the sources of a vector operation to its result (instruments/init.cpp).
enum class flow : uint8_t {
    any,  ///< an undefined bit in a source lane makes the whole result lane undefined
    copy, exclusive, conjunction, disjunction, and_or, or3, shift_left, shift_right, shift_right_arithmetic, shift_left_or, shift_left_add,
    add, add_shift_left, low24, extract, extract_signed, insert, align_bit, align_byte, permute_bytes, byte0, byte1, byte2, byte3, choose,
    count_below, count_none, pack, pack_converted, halves, mix, mix_low, mix_high, sign_extend_16,
    compare, carry, wide_shift, matrix, read_first_lane, read_lane, write_lane, permute_rows, permute_rows_across, swap, swap_halves, move_relative,
    // Scalar.
    scalar_copy, scalar_conjunction, scalar_conjunction_not, scalar_disjunction, scalar_exclusive, scalar_shift_left, scalar_shift_right,
    scalar_shift_right_arithmetic, scalar_add, scalar_select, scalar_any, scalar_save_and, scalar_save_any, scalar_pack, scalar_constant,
    none,
};

/// One operation: an instruction has one, a VOPD pair two.
struct probe_part {
    const operation * op = nullptr;
    inst code;
    flow how = flow::none;
    uint8_t variant = 0;  ///< what tells apart the operations of one flow, see probe.cpp
};

struct probe {
    uint32_t pc = 0;          ///< as inst::pc
    uint32_t word = 0;        ///< the first of the encoding
    work_class what = work_class::other;
    form how = form::nop;
    uint8_t parts = 0;
    uint8_t read_count = 0, write_count = 0;
    bool reads_scc = false, writes_scc = false;
    bool is_barrier = false;
    uint8_t invalidates = 0;  ///< see cache_kind
    uint16_t sleeps = 0;      ///< s_sleep: in units of 64 cycles
    int16_t wait_vm = -1, wait_lgkm = -1, wait_vs = -1;  ///< s_waitcnt: outstanding at most; -1: no such wait
    memory_use memory;
    register_span reads[10], writes[4];
    probe_part part[2];

    /// Adds what an operation does, in the form in which the interpreter executes it.
    void add(const operation & op, const inst & code, bool is_half_of_pair);
};

}  // namespace strata::emulator
