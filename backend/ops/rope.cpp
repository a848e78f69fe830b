// ROPE, and ROPE_BACK, which turns backwards: neighbouring channels (normal) or channels half a row apart (neox), one position a token or
// four (M-RoPE, interleaved, vision), frequency factors, YaRN, a window of rotated channels. f32, f16; contiguous rows; in place.
#include "ops/rope.h"

#include <algorithm>
#include <cmath>

namespace strata {

namespace {

// op_params of GGML_OP_ROPE.
struct rope_params {
    int32_t n_dims, mode, n_ctx_orig;
    float freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
    int32_t sections[4];
    int32_t n_offs;

    explicit rope_params(const ggml_tensor * op) {
        const int32_t * p = op->op_params;
        n_dims = p[1];
        mode = p[2];
        n_ctx_orig = p[4];
        std::memcpy(&freq_base, p + 5, sizeof(float));
        std::memcpy(&freq_scale, p + 6, sizeof(float));
        std::memcpy(&ext_factor, p + 7, sizeof(float));
        std::memcpy(&attn_factor, p + 8, sizeof(float));
        std::memcpy(&beta_fast, p + 9, sizeof(float));
        std::memcpy(&beta_slow, p + 10, sizeof(float));
        std::memcpy(sections, p + 11, sizeof(sections));
        n_offs = p[15];
    }
};

// The pair whose wave length fits n_rot times into the original context.
float correction_pair(const rope_params & p, float n_rot) {
    return float(p.n_dims) * std::log(float(p.n_ctx_orig) / (n_rot * 2 * float(M_PI))) / (2 * std::log(p.freq_base));
}

const char * refusal(const device_caps &, const ggml_tensor * op) {
    const rope_params p(op);
    const ggml_tensor * src = op->src[0];
    const ggml_tensor * positions = op->src[1];
    const ggml_tensor * factors = op->src[2];
    if ((op->type != GGML_TYPE_F32 && op->type != GGML_TYPE_F16) || src->type != op->type) {
        return "operand or result not f32 or f16, or of different types";
    }
    const std::size_t size = ggml_type_size(op->type);
    if (op->nb[0] != size || src->nb[0] != size) {
        return "rows not contiguous";
    }
    if (positions->type != GGML_TYPE_I32 || positions->nb[0] != sizeof(int32_t)) {
        return "positions not contiguous i32";
    }
    if (factors && (factors->type != GGML_TYPE_F32 || factors->nb[0] != sizeof(float))) {
        return "frequency factors not contiguous f32";
    }
    if (p.mode == GGML_ROPE_TYPE_VISION) {
        // Where a section is empty, the frequencies of the one after it do not restart in ggml.
        if (p.n_dims * 2 != op->ne[0] || p.n_offs != 0 || p.sections[0] <= 0 || p.sections[1] <= 0 ||
            (p.sections[2] == 0 && p.sections[3] > 0)) {
            return "vision positions with these sections or dimensions";
        }
    } else if (p.mode != GGML_ROPE_TYPE_NORMAL && p.mode != GGML_ROPE_TYPE_NEOX && p.mode != GGML_ROPE_TYPE_MROPE &&
               p.mode != GGML_ROPE_TYPE_IMROPE) {
        return "unknown mode";
    }
    if (p.mode & GGML_ROPE_TYPE_MROPE) {
        if (std::any_of(p.sections, p.sections + 4, [](int32_t s) { return s < 0 || s > 1 << 20; }) ||
            std::all_of(p.sections, p.sections + 4, [](int32_t s) { return s == 0; })) {
            return "invalid sections";
        }
    }
    // llama.cpp asks with no rotated channels at all before it places frequency factors: that is a copy.
    if (p.n_dims < 0 || p.n_dims % 2 || p.n_offs < 0 || p.n_offs % 2 || p.n_offs + p.n_dims > op->ne[0]) {
        return "rotated channels outside of the row, or an odd number of them";
    }
    if (op->ne[0] > 65536 || op->ne[1] > 32768 || op->ne[2] >= int64_t(1) << 24 || op->ne[3] > 65535) {
        return "rows, heads, tokens or batches beyond the kernel's grid";
    }
    return nullptr;
}

void plan_rope(planner & plan, const ggml_tensor * op) {
    rope_args args = make_rope_args(op);
    while ((1u << args.lane_shift) < args.pairs && (1u << args.lane_shift) < rope_block) {
        args.lane_shift++;
    }
    // With many tokens, one sine and cosine serve more heads.
    const uint32_t passes = op->ne[2] * op->ne[3] >= 128 ? 4 : 1;
    args.heads_a_block = std::min(args.heads, (rope_block >> args.lane_shift) * passes);
    const dims grid = {args.tokens, (args.heads + args.heads_a_block - 1) / args.heads_a_block, uint32_t(op->ne[3])};
    const bool neighbours = rotates_neighbours(op);
    const char * kernel = op->type == GGML_TYPE_F32 ? (neighbours ? "rope_neighbours_f32" : "rope_halves_f32")
                                                    : (neighbours ? "rope_neighbours_f16" : "rope_halves_f16");
    plan.launch("rope", kernel, grid, {rope_block}, args);
}

}  // namespace

bool rotates_neighbours(const ggml_tensor * op) { return rope_params(op).mode == GGML_ROPE_TYPE_NORMAL; }

rope_args make_rope_args(const ggml_tensor * op) {
    const rope_params p(op);
    const ggml_tensor * src = op->src[0];
    const bool neighbours = p.mode == GGML_ROPE_TYPE_NORMAL, vision = p.mode == GGML_ROPE_TYPE_VISION;

    rope_args args = {};
    args.dst = op->data;
    args.src = src->data;
    args.positions = static_cast<const int32_t *>(op->src[1]->data);
    args.factors = op->src[2] ? static_cast<const float *>(op->src[2]->data) : nullptr;
    bool in_place = op->data == src->data;
    for (int i = 0; i < 3; i++) {
        args.dst_stride[i] = op->nb[i + 1];
        args.src_stride[i] = src->nb[i + 1];
        in_place = in_place && op->nb[i + 1] == src->nb[i + 1];
    }
    args.heads = uint32_t(op->ne[1]);
    args.tokens = uint32_t(op->ne[2]);
    args.first = uint32_t(p.n_offs);
    args.pairs = uint32_t(vision ? p.n_dims : p.n_dims / 2);
    args.distance = neighbours ? 1 : args.pairs;
    args.rotated = 2 * args.pairs;
    const uint32_t rest = uint32_t(op->ne[0]) - args.rotated;
    if (rest > 0 && !in_place) {
        args.rest = make_divisor(rest);
    }

    switch (p.mode) {
        case GGML_ROPE_TYPE_MROPE: args.position_kind = rope_sections; break;
        case GGML_ROPE_TYPE_IMROPE: args.position_kind = rope_interleaved; break;
        case GGML_ROPE_TYPE_VISION: args.position_kind = rope_vision; break;
        default: args.position_kind = rope_single; break;
    }
    uint32_t section_sum = 0;
    for (int i = 0; i < 4; i++) {
        args.sections[i] = uint32_t(p.sections[i]);
        section_sum += args.sections[i];
    }
    args.section_sum = make_divisor(std::max(section_sum, 1u));

    const double exponent = -2.0 * std::log2(double(p.freq_base)) / p.n_dims;
    args.exponent_high = float(exponent);
    args.exponent_low = float(exponent - double(args.exponent_high));
    args.freq_scale = p.freq_scale;
    args.ext_factor = p.ext_factor;
    args.magnitude = p.attn_factor;
    if (p.ext_factor != 0.0f) {
        const float low = std::max(0.0f, std::floor(correction_pair(p, p.beta_fast)));
        const float high = std::min(float(p.n_dims - 1), std::ceil(correction_pair(p, p.beta_slow)));
        args.ramp_low = low;
        args.ramp_width = high - low;
        args.magnitude *= 1.0f + 0.1f * std::log(1.0f / p.freq_scale);
    }
    args.sine_magnitude = op->op == GGML_OP_ROPE_BACK ? -args.magnitude : args.magnitude;
    return args;
}

extern const op_entry rope_op, rope_back_op;
const op_entry rope_op = {GGML_OP_ROPE, refusal, plan_rope};
const op_entry rope_back_op = {GGML_OP_ROPE_BACK, refusal, plan_rope};

}  // namespace strata
