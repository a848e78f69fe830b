// Plans kernels that compute each element of the result from one element of each operand: see strata/args/pointwise.h.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "ops/op.h"
#include "strata/args/pointwise.h"

namespace strata {

/// A tensor as the pointwise kernels see it.
struct pointwise_operand {
    const void * data;
    int64_t ne[4];
    std::size_t nb[4];
    std::size_t size;  ///< bytes an element

    explicit pointwise_operand(const ggml_tensor * t) : data(t->data), size(ggml_type_size(t->type)) {
        for (int i = 0; i < 4; i++) {
            ne[i] = t->ne[i];
            nb[i] = t->nb[i];
        }
    }
};

/// A loop over all operands: trip count and the steps of dst, first and second operand in bytes.
struct pointwise_loop {
    int64_t size;
    std::size_t step[3];
};
using pointwise_loops = std::vector<pointwise_loop>;

/// The loops over dst, innermost (smallest step in dst) first, neighbours merged where all operands allow. The sizes of dst are multiples
/// of those of the operands, which are repeated.
pointwise_loops make_loops(const pointwise_operand & dst, const std::vector<pointwise_operand> & operands);

/// The loops of a copy between tensors of as many elements but possibly different sizes, in the order of the elements. Empty if the sizes
/// do not fit into each other.
pointwise_loops make_copy_loops(const pointwise_operand & dst, const pointwise_operand & src);

/// nullptr if the kernels can address these tensors (fewer than 2^31 elements in dst, strides below 4 GiB).
const char * pointwise_refusal(const pointwise_operand & dst, const pointwise_loops & loops);
const char * pointwise_refusal(const pointwise_operand & dst, const std::vector<pointwise_operand> & operands);

/// What a kernel needs: arguments, grid, and whether as a _rows or as a _flat kernel.
struct pointwise_launch {
    pointwise_args args;
    uint32_t blocks;
    bool rows;
};
pointwise_launch make_pointwise(const pointwise_operand & dst, const std::vector<pointwise_operand> & operands, const pointwise_loops & loops,
                                std::initializer_list<float> params = {});

/// Launches `kernel`_rows or `kernel`_flat of `family`. `operands` holds one or two tensors.
/// `params` holds up to four values for the function.
void plan_pointwise(planner & plan, const char * family, const std::string & kernel, const pointwise_operand & dst,
                    const std::vector<pointwise_operand> & operands, const pointwise_loops & loops,
                    std::initializer_list<float> params = {});
void plan_pointwise(planner & plan, const char * family, const std::string & kernel, const pointwise_operand & dst,
                    const std::vector<pointwise_operand> & operands, std::initializer_list<float> params = {});

/// A contiguous f32 tensor of the shape of `t`, without data: what an operand of another type is widened to.
ggml_tensor contiguous_f32(const ggml_tensor * t);

/// "f32", "f16" or "bf16", or nullptr for other types.
const char * float_type_name(ggml_type type);

}  // namespace strata
