// The metadata note of a code object (msgpack): what the compiler says of its kernels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::emulator {

struct argument_metadata {
    std::string value_kind;  ///< "by_value", "global_buffer", "hidden_block_count_x", ...
    uint32_t offset = 0;
    uint32_t size = 0;
};

struct kernel_metadata {
    std::string name;
    std::string symbol;  ///< of the descriptor: NAME.kd
    uint32_t kernarg_size = 0;
    uint32_t wave_size = 0;
    uint32_t vgprs = 0, sgprs = 0, vgpr_spills = 0, sgpr_spills = 0;
    uint32_t max_workgroup = 1024;
    uint32_t required_workgroup[3] = {0, 0, 0};  ///< 0: none required
    std::vector<argument_metadata> arguments;
};

struct code_metadata {
    std::string target;  ///< "amdgcn-amd-amdhsa--gfx1151"
    std::vector<kernel_metadata> kernels;
};

/// Reads the note's contents. False with the reason in `why` if they are not such metadata; any bytes are accepted.
bool read_metadata(std::string_view note, code_metadata & result, std::string & why);

}  // namespace strata::emulator
