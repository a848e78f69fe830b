// The decoded form of an instruction and the state of a wave: plain data that decoder, dispatcher and handlers share.
// No inline functions that the compiler could emit out of line: handlers are built once per host instruction set, and a
// shared copy would be compiled for the wrong one.
#pragma once

#include "machine.h"

#include <cstdint>

namespace strata::emulator {

struct wave;
struct inst;

/// Executes one instruction and goes on to the next (a tail call), or returns when the wave stops.
/// `count` is the number of wave instructions executed before this one.
using handler = void (*)(wave * w, const inst * i, uint64_t count);

constexpr int row_bytes = 128;  ///< a VGPR: 32 lanes of 4 bytes

/// Indices into wave::s. 0..105 are the SGPRs; the architecture's numbers are kept up to 127.
enum slot : int {
    slot_vcc = 106,
    slot_ttmp = 108,
    slot_m0 = 125,
    slot_exec = 126,
    slot_scc = 128,    ///< 0 or 1
    slot_zero = 130,   ///< two words that stay zero: constants and NULL as a source
    slot_trash = 132,  ///< 16 words: NULL as a destination
    slot_count = 152,
};

/// Where a VALU source comes from.
enum source_kind : uint8_t {
    source_row = 0,   ///< VGPR (offset >= 0, from wave::v) or constant row (offset < 0, from wave::constants)
    source_sgpr = 1,  ///< index into wave::s
    source_dpp = 2,   ///< wave::dpp_row, filled by the handler from the VGPR at this offset
};

/// A DPP control, decoded: for every lane the lane it reads.
struct dpp_control {
    alignas(64) uint32_t lane[32];
    uint32_t valid;       ///< lanes whose source lies inside the row
    uint32_t write;       ///< lanes that row_mask and bank_mask leave on
    bool bound_ctrl;      ///< invalid lanes read 0 (otherwise they are not written)
    bool fetch_inactive;  ///< lanes that EXEC switched off can be read
};

struct inst {
    handler fn = nullptr;
    int32_t src[3] = {};  ///< see source_kind; SALU: slots
    int32_t dst = 0;      ///< VGPR row offset in bytes, or a slot
    uint64_t imm = 0;     ///< literal, memory offset; SALU: XORed to source 0
    union {
        uint64_t imm1 = 0;  ///< SALU: XORed to source 1
        const inst * target;
        const dpp_control * dpp;
    };
    uint32_t pc = 0;      ///< byte offset from the program's text_begin
    int16_t sdst = 0;     ///< slot: carry-out, or the scalar address of a memory access
    uint8_t weight = 1;   ///< wave instructions that this entry stands for
    uint8_t kind[3] = {};
    uint8_t neg = 0, abs = 0;           ///< a bit per source; VOP3P: neg_lo, neg_hi
    uint8_t opsel = 0, opsel_hi = 0;    ///< bit 3 of opsel: destination half
    uint8_t clamp = 0, omod = 0;
    uint8_t aux = 0;      ///< memory: see memory_flag
    uint8_t size = 4;     ///< bytes of the encoding
};

enum memory_flag : uint8_t {
    memory_return = 1,   ///< atomics: the old value is wanted
    memory_saddr = 2,    ///< flat family: scalar base in sdst
    memory_vaddr = 4,    ///< scratch: vector offset present
    memory_idxen = 8,
    memory_offen = 16,
};

/// A range that was found in the allocation table, remembered per worker.
struct memory_range {
    uint64_t begin = 1, end = 0;
    bool writable = false;
};
constexpr int memory_range_count = 64;

enum class stop : uint8_t { running, end, barrier, yield, fault };

/// What a handler says about a fault; machine.cpp makes the message.
struct fault_note {
    enum class reason : uint8_t { none, memory, lds, scratch, unknown_instruction, unsupported, bad_pc, limit, misaligned };
    reason why = reason::none;
    int lane = 0;
    uint64_t address = 0;
    uint32_t size = 0;
    bool write = false;
    const char * text = nullptr;  ///< static text
};

struct program;
struct wave_state;

struct wave {
    alignas(64) uint32_t s[slot_count];
    alignas(64) uint32_t dpp_row[32];
    alignas(64) uint32_t swap_row[32];  ///< a VOPD half waits here for the other
    uint8_t * v = nullptr;              ///< VGPR rows
    const uint8_t * constants = nullptr;  ///< one past the last constant row
    uint32_t vgprs = 0;
    uint32_t lds_size = 0;
    uint8_t * lds = nullptr;
    uint8_t * scratch = nullptr;        ///< dword d of lane l at (d * 32 + l) * 4
    uint32_t scratch_size = 0;          ///< bytes a lane
    uint32_t mode = 0;
    const inst * pc = nullptr;          ///< where to go on, or the instruction at fault
    uint64_t count = 0;                 ///< instructions executed
    uint64_t slice_end = 0;             ///< a backward branch beyond this count returns with stop::yield
    stop state = stop::running;
    fault_note note;
    const allocation_map * memory = nullptr;
    memory_range * ranges = nullptr;    ///< memory_range_count entries
    memory_range extra[2];              ///< kernarg segment and dispatch packet: readable, not in the table
    program * code = nullptr;
    uint64_t text_begin = 0;
    uint32_t id[3] = {};                ///< workgroup
    uint32_t index = 0;                 ///< wave within the workgroup
    uint32_t lanes = 0;                 ///< EXEC at the start
    wave_state * watched = nullptr;     ///< what the instruments remember of it (instruments/state.h)
};

/// Aperture bases: the high word of a flat address that means LDS or scratch.
constexpr uint32_t lds_aperture = 0x01000000;
constexpr uint32_t scratch_aperture = 0x02000000;

/// The types of operands, as far as decoding needs them (how constants are made, how many registers are read).
enum class type : uint8_t { none, b32, f32, i32, b64, f64, i64, b16, f16, bf16, i16, p16, pf16, mask, mix };

/// How the decoder fills an inst for an operation.
enum class form : uint8_t {
    valu,        ///< d = f(a, b, c)
    valu_acc,    ///< d = f(a, b, d)
    valu_fmaak,  ///< d = f(a, b, literal)
    valu_fmamk,  ///< d = f(a, literal, b)
    valu_vcc,    ///< d, sdst = f(a, b, mask): VCC in VOP2, sdst/src2 in VOP3
    valu_mask,   ///< d = f(a, b, mask)
    compare,     ///< slot = f(a, b)
    comparex,    ///< EXEC = f(a, b)
    lane_scalar, ///< readlane, readfirstlane: slot = f(a, scalar)
    salu,
    salu_compare,
    salu_k,      ///< SOPK: d (also a source), simm16
    salu_literal,///< s_fmaak, s_fmamk
    branch, nop, control, smem, ds, flat, buffer,
};

/// One operation of the interpreter. `fast` may be null; it takes rows only and knows no modifiers.
struct operation {
    const char * name;
    form how;
    type d, a, b, c;
    handler fast, general;
    uint8_t flags;
};
enum operation_flag : uint8_t {
    op_int_clamp = 1,   ///< `general` honours clamp although the destination is an integer
    op_neg_is_sign = 2, ///< neg bits mean something else than negation (dot, WMMA)
    op_no_dpp = 4,
    op_rows_only = 8,   ///< sources must be VGPRs (WMMA)
    op_free_opsel = 32,     ///< op_sel bits mean something else than halves
    op_raw_registers = 16,  ///< the register number itself is wanted (movrel)
};

/// All operations, built for one host instruction set.
struct operation_table {
    const operation * entries;
    unsigned count;
};
struct isa_build {
    const char * name;
    const operation_table * const * tables;
    unsigned count;
    handler unknown;  ///< stops with fault_note::reason::unknown_instruction
    handler nop;
    handler save_swap_row;      ///< wave::swap_row = VGPR row dst, all lanes
    handler exchange_swap_row;  ///< swaps the two, all lanes
    handler hook;               ///< shows the next instruction to the instruments; imm: its probe
};

/// The build to use on this machine (STRATA_EMULATOR_ISA overrides). Throws std::runtime_error on an unusable override.
const isa_build & current_isa();

/// Whether [begin, begin + size) lies in one allocation (that may be written); remembers it in wave::ranges.
bool find_range(wave * w, const inst * i, uint64_t begin, uint64_t size, bool write);

/// Finds the instruction at an address of the text, decoding more if need be; nullptr if the address is not code.
const inst * resolve_pc(wave * w, uint64_t address);

}  // namespace strata::emulator
