#include "ops/bit_copy.h"

#include "strata/args/copy_pair.h"

namespace strata {

namespace {

template <class Loops>
std::optional<bit_copy> find(const ggml_tensor * dst, const ggml_tensor * src, Loops make) {
    if (dst->type != src->type) {
        return std::nullopt;
    }
    for (std::size_t unit : {8, 4, 2, 1}) {
        const auto d = as_bits(dst, unit), s = as_bits(src, unit);
        if (d && s) {
            const pointwise_loops loops = make(*d, *s);
            if (!loops.empty()) {
                return bit_copy{*d, *s, loops};
            }
        }
    }
    return std::nullopt;
}

std::string kernel_name(const char * prefix, const bit_copy & copy) {
    return std::string(prefix) + std::to_string(8 * copy.dst.size);
}

}  // namespace

std::optional<pointwise_operand> as_bits(const ggml_tensor * t, std::size_t unit) {
    pointwise_operand o(t);
    const std::size_t block = ggml_type_size(t->type);
    if (block != unit) {
        if (block % unit || t->nb[0] != block) {
            return std::nullopt;
        }
        o.ne[0] = o.ne[0] / ggml_blck_size(t->type) * int64_t(block / unit);
        o.nb[0] = unit;
    } else if (ggml_blck_size(t->type) != 1) {
        o.ne[0] /= ggml_blck_size(t->type);
    }
    o.size = unit;
    return o;
}

std::optional<bit_copy> find_bit_copy(const ggml_tensor * dst, const ggml_tensor * src) {
    return find(dst, src, make_copy_loops);
}

std::optional<bit_copy> find_bit_repeat(const ggml_tensor * dst, const ggml_tensor * src) {
    // In one block of elements there may be several units, which repeat together.
    if (ggml_blck_size(dst->type) != 1) {
        return std::nullopt;
    }
    return find(dst, src, [dst](const pointwise_operand & d, const pointwise_operand & s) {
        return d.size == ggml_type_size(dst->type) ? make_loops(d, {s}) : pointwise_loops();
    });
}

const char * bit_copy_refusal(const std::optional<bit_copy> & copy) {
    return copy ? pointwise_refusal(copy->dst, copy->loops) : "sizes or strides that do not fit into each other";
}

void plan_bit_copy(planner & plan, const bit_copy & copy) {
    plan_pointwise(plan, "copy", kernel_name("copy_bits", copy), copy.dst, {copy.src}, copy.loops);
}

void plan_bit_copies(planner & plan, const bit_copy & first, const bit_copy & second) {
    const pointwise_launch a = make_pointwise(first.dst, {first.src}, first.loops), b = make_pointwise(second.dst, {second.src}, second.loops);
    copy_pair_args args = {{{a.args, a.rows}, {b.args, b.rows}}, a.blocks};
    plan.launch("copy", kernel_name("copy_pair_bits", first).c_str(), {a.blocks + b.blocks}, {pointwise_block}, args);
}

}  // namespace strata
