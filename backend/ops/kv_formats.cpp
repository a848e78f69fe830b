// One list for all that read a key/value cache.
#include "ops/kv_formats.h"

#include <cstddef>

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"

namespace strata {

namespace {

constexpr uint32_t only_d = 0xffff, d_and_m = 0xffffffff;

template <class Block>
constexpr kv_format blocks(kv_kind kind, std::size_t high, uint32_t scale_mask, uint32_t bias) {
    return {kind, sizeof(Block), offsetof(Block, qs), uint32_t(high), scale_mask, (0x6400 + bias) * 0x10001};
}

}  // namespace

std::optional<kv_format> find_kv_format(ggml_type type) {
    switch (type) {
        case GGML_TYPE_F16: return kv_format{kv_kind::f16, 0, 0, 0, 0, 0};
        case GGML_TYPE_BF16: return kv_format{kv_kind::bf16, 0, 0, 0, 0, 0};
        case GGML_TYPE_F32: return kv_format{kv_kind::f32, 0, 0, 0, 0, 0};
        case GGML_TYPE_Q8_0: return q8_0_kv_format;
        case GGML_TYPE_Q4_0: return blocks<block_q4_0>(kv_kind::nibbles, 0, only_d, 8);
        case GGML_TYPE_Q4_1: return blocks<block_q4_1>(kv_kind::nibbles, 0, d_and_m, 0);
        case GGML_TYPE_Q5_0: return blocks<block_q5_0>(kv_kind::fives, offsetof(block_q5_0, qh), only_d, 16);
        case GGML_TYPE_Q5_1: return blocks<block_q5_1>(kv_kind::fives, offsetof(block_q5_1, qh), d_and_m, 0);
        case GGML_TYPE_IQ4_NL: return blocks<block_iq4_nl>(kv_kind::table, 0, only_d, 128);
        case GGML_TYPE_Q2_0: return blocks<block_q2_0>(kv_kind::pairs, 0, only_d, 1);
        case GGML_TYPE_Q1_0: return blocks<block_q1_0>(kv_kind::bits, 0, only_d, 1);
        default: return std::nullopt;
    }
}

}  // namespace strata
