// What MUL_MAT and MUL_MAT_ID share.
#pragma once

#include <string>
#include <vector>

#include "ops/op.h"
#include "strata/args/mul_mat.h"
#include "strata/args/mul_mat_group.h"
#include "strata/args/mul_mat_quantize.h"

namespace strata {

/// Columns of a MUL_MAT that go through the mat-vec.
constexpr int64_t max_mat_vec_columns = 8;

/// Name of a weight type in kernel names, or nullptr if there is no kernel.
const char * weight_name(ggml_type type);

/// nullptr if the operands' types and rows suit the product kernels.
const char * product_refusal(const ggml_tensor * op);

/// Tiles that hold `count` things.
uint32_t tiles(int64_t count, int64_t tile);

/// Rows that a wave of the quantized mat-vec takes. Several share the loads of the activations; they need enough rows to keep enough waves,
/// fewer where a row is a single step long, and few registers. The results are the same bits.
uint32_t mat_vec_rows(ggml_type weights, int64_t rows, int64_t columns, int64_t k);

/// Lanes a row of the mat-vec with f32, f16 or bf16 weights: a lane takes eight values at a time, so shorter rows share a wave.
uint32_t mat_vec_lanes(int64_t k);

/// A mat-vec with f32, f16 or bf16 weights.
struct float_mat_vec {
    std::string kernel;
    uint32_t rows;   ///< that a workgroup takes
};

/// The mat-vec of these types' names, as "bf16_f32", for a group of so many columns. The results are the same bits whatever `rows` is.
float_mat_vec find_float_mat_vec(const device_caps & caps, const std::string & types, int64_t rows, int64_t columns, int64_t k);

/// The experts of a MUL_MAT_ID node as kernels read them.
expert_choice choice_of_experts(const ggml_tensor * op);

/// The grid of a mat-vec with such experts, of so many workgroups for a pair's rows and so many layers: pairs, and what stands behind them. Says in
/// `experts` how it lies.
dims expert_grid(expert_choice & experts, const ggml_tensor * ids, uint32_t groups, uint32_t layers);

/// The columns of f32 activations [k, sources, tokens] of pairs.
pair_activations pair_activations_of(const ggml_tensor * x);

/// True if a MUL_MAT_ID node goes through the mat-vec, a pair of token and slot a grid layer, unless that is switched off.
bool expert_product_is_mat_vec(const device_caps & caps, const ggml_tensor * op);

/// Activations as bytes, the columns of all matrices one after the other.
struct quantized_activations {
    void * values;   ///< int8 [column][k]
    void * meta;     ///< q8_1_meta [column][k / 32]
};

/// Room for the same of `result` (f32, contiguous, rows of a multiple of 32), for a kernel that writes both.
quantized_activations room_for_quantized(planner & plan, const ggml_tensor * result);

/// Quantizes all columns of `x` (f32, k a multiple of 32), once for all nodes that read it. STRATA_DISABLE=shared_q8_1: for each.
quantized_activations plan_quantize(planner & plan, const ggml_tensor * x);

/// Whether products of f32 columns `x` (one matrix of at most max_mat_vec_columns) with `rows` rows of these weights in all are better off
/// quantizing x themselves than with a launch before them. `readers`: how many they are. STRATA_DISABLE=mul_mat_vec_quantize: never.
bool mat_vec_quantizes(const planner & plan, ggml_type weights, const ggml_tensor * x, int64_t rows, int readers);

/// The same for pairs of token and slot, each a column of `x` (f32 [k, sources, tokens]), `weights` elements of matrices for all of them; with
/// `glu` the gated unit of two matrices. Also for a gated unit of one column without experts, which is one pair.
bool pairs_quantize(const planner & plan, ggml_type type, const ggml_tensor * x, int64_t weights, int readers, bool glu);

/// Fills in members and end of the launch of these products, of which a workgroup takes so many rows.
void add_members(mul_mat_group_args & args, const std::vector<const ggml_tensor *> & products, uint32_t rows_a_block);

/// The launch of such products: up to most_in_group nodes, whose weights are one matrix each. The same bits as with plan_quantize.
void plan_quantizing_mat_vec(planner & plan, const ggml_tensor * x, const std::vector<const ggml_tensor *> & products);

}  // namespace strata
