// A kernel's decoded code. Code is found by following it from the entry; what is reached through s_setpc is decoded when
// it is first reached.
#pragma once

#include "disassembler.h"
#include "instruction.h"
#include "instruments/probe.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace strata::emulator {

/// One instruction before it becomes an inst.
struct raw_instruction {
    uint32_t offset = 0;  ///< from text_begin
    uint32_t size = 0;
    uint32_t words[6] = {};
    std::string_view mnemonic;  ///< empty: not an instruction
};

struct program {
    program(const kernel_image & kernel, const isa_build & isa);
    ~program();
    program(const program &) = delete;
    program & operator=(const program &) = delete;

    /// The instruction at a text offset, decoding what is not yet decoded. Thread-safe.
    const inst * at(uint32_t offset);
    std::string text(uint32_t offset) const;

    const isa_build & isa;
    uint64_t text_begin;
    uint32_t text_size;
    const inst * entry = nullptr;
    const uint8_t * constants_end;  ///< see wave::constants
    uint32_t vgprs = 0;             ///< highest VGPR used + 1
    const bool watched;             ///< instruments see every instruction

private:
    friend class builder;
    std::mutex lock_;
    std::unordered_map<uint32_t, const inst *> index_;
    std::deque<std::vector<inst>> chunks_;
    std::deque<dpp_control> dpp_;
    std::deque<probe> probes_;
    std::map<std::pair<uint64_t, bool>, int32_t> constant_rows_;  ///< by value and whether it takes two rows
    uint8_t * constants_ = nullptr;
    uint32_t constants_used_ = 0;
};

/// The operations of a build by mnemonic.
const operation * find_operation(const isa_build & isa, std::string_view mnemonic);
/// The operation that executes one half of a VOPD pair, and its mnemonic (v_dual_...); nullptr for an unused code.
const char * vopd_mnemonic(uint32_t code);

/// LLVM's disassembler is one for the process, with its lock.
struct shared_disassembler {
    std::mutex lock;
    disassembler decoder;
};
shared_disassembler & llvm_decoder();

}  // namespace strata::emulator
