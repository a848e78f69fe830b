// ARGSORT, TOP_K: rows of f32 of any length; equal numbers in the order of their columns. ARGMAX.
#include <algorithm>

#include "ops/op.h"
#include "strata/args/sort.h"

namespace strata {

namespace {

constexpr int64_t limit = int64_t(1) << 31;

const char * refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    if (src->type != GGML_TYPE_F32 || op->type != GGML_TYPE_I32) {
        return "not f32 to i32";
    }
    if (src->nb[0] != sizeof(float) || !ggml_is_contiguous(op)) {
        return "transposed rows, or a result that is not contiguous";
    }
    // A last run may be short, so keys can take up to twice their number of places.
    if (ggml_nelements(src) >= limit / 4 || src->ne[0] >= limit / 4) {
        return "2^29 elements or more";
    }
    return nullptr;
}

/// The first `keep` columns of each row in order.
void plan_sort(planner & plan, const ggml_tensor * op, bool descending) {
    const ggml_tensor * src = op->src[0];
    const uint32_t columns = uint32_t(src->ne[0]), rows = uint32_t(ggml_nrows(src)), keep = uint32_t(op->ne[0]);
    const uint32_t chunks = (columns + sort_chunk - 1) / sort_chunk;

    sort_chunks_args sort = {};
    sort.source = {src->data, {src->nb[1], src->nb[2], src->nb[3]}, make_divisor(uint32_t(src->ne[1])), make_divisor(uint32_t(src->ne[2])),
                   columns, descending};
    sort.keep = keep;
    sort.pieces = rows * chunks;
    sort.chunks = make_divisor(chunks);
    while (1u << sort.width_log2 < std::min(columns, sort_chunk)) {
        ++sort.width_log2;
    }
    const bool small = 1u << sort.width_log2 <= sort_small_chunk;
    sort.pieces_a_block = small ? sort_small_chunk >> sort.width_log2 : 1;

    // Keys lie in two pieces of memory by turns, each as large as the largest pass needs.
    uint64_t * keys[2] = {};
    if (chunks == 1) {
        sort.dst = static_cast<int32_t *>(op->data);
    } else {
        uint64_t most = 0;
        for (uint32_t run = sort_chunk, runs = chunks; runs > 1; run *= 2, runs = (runs + 1) / 2) {
            most = std::max(most, uint64_t(rows) * runs * std::min(keep, run));
        }
        keys[0] = static_cast<uint64_t *>(plan.scratch(2 * most * sizeof(uint64_t)));
        keys[1] = keys[0] + most;
        sort.keys = keys[0];
    }
    const uint32_t blocks = (sort.pieces + sort.pieces_a_block - 1) / sort.pieces_a_block;
    plan.launch("sort", small ? "sort_chunks_256" : "sort_chunks_2048", {blocks}, {sort_threads}, sort);

    for (uint32_t run = sort_chunk, runs = chunks; runs > 1; run *= 2, runs = (runs + 1) / 2) {
        merge_runs_args merge = {};
        merge.keys = keys[0];
        merge.merged = keys[1];
        merge.dst = runs == 2 ? static_cast<int32_t *>(op->data) : nullptr;
        merge.columns = columns;
        merge.run = run;
        const uint32_t kept = std::min(keep, run);
        merge.count = rows * runs * kept;
        merge.merged_kept = std::min(keep, 2 * run);
        merge.kept = make_divisor(kept);
        merge.runs = make_divisor(runs);
        merge.first_step = 1;
        while (merge.first_step * 2 <= kept) {
            merge.first_step *= 2;
        }
        plan.launch("sort", "merge_runs", {(merge.count + sort_threads - 1) / sort_threads}, {sort_threads}, merge);
        std::swap(keys[0], keys[1]);
    }
}

void plan_argsort(planner & plan, const ggml_tensor * op) { plan_sort(plan, op, op->op_params[0] == GGML_SORT_ORDER_DESC); }

void plan_top_k(planner & plan, const ggml_tensor * op) { plan_sort(plan, op, true); }

void plan_argmax(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    const argmax_args args = {src->data, static_cast<int32_t *>(op->data), src->nb[1], uint32_t(src->ne[0])};
    plan.launch("argmax", "argmax", {uint32_t(src->ne[1])}, {sort_threads}, args);
}

}  // namespace

extern const op_entry argsort_op, top_k_op, argmax_op;
const op_entry argsort_op = {GGML_OP_ARGSORT, refusal, plan_argsort};
const op_entry top_k_op = {GGML_OP_TOP_K, refusal, plan_top_k};
const op_entry argmax_op = {GGML_OP_ARGMAX, refusal, plan_argmax};

}  // namespace strata
