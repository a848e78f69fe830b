// LLVM's AMDGPU disassembler: the authority on encodings, sizes and mnemonics.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace strata::emulator {

/// Names instructions of gfx1151, wave32. Not thread-safe; callers hold the decoder's lock.
class disassembler {
public:
    disassembler();  ///< throws std::runtime_error if libLLVM lacks the AMDGPU target
    ~disassembler();

    struct result {
        uint32_t size = 0;          ///< bytes; 0: not an instruction
        std::string_view mnemonic;  ///< without _e32, _e64, _dpp; lives as long as the disassembler
    };
    result decode(const uint8_t * bytes, uint64_t available);
    /// The instruction as assembly text, or its bytes if it is none.
    std::string text(const uint8_t * bytes, uint64_t available);

private:
    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace strata::emulator
