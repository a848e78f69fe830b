// CUMSUM: f32 rows of any length, contiguous each.
#include "ops/op.h"
#include "strata/args/cumsum.h"

namespace strata {

namespace {

uint32_t tiles_of(const ggml_tensor * op) { return uint32_t((op->ne[0] + cumsum_tile_row - 1) / cumsum_tile_row); }

const char * refusal(const device_caps & caps, const ggml_tensor * op) {
    if (caps.wave_size != 32) {
        return "wave size";
    }
    const ggml_tensor * src = op->src[0];
    if (op->type != GGML_TYPE_F32 || src->type != GGML_TYPE_F32) {
        return "operand or result not f32";
    }
    if (op->nb[0] != sizeof(float) || src->nb[0] != sizeof(float)) {
        return "rows not contiguous";
    }
    if (op->ne[0] >= int64_t(1) << 30 || ggml_nrows(op) * tiles_of(op) >= int64_t(1) << 24) {
        return "rows of 2^30 elements or 2^24 tiles of 4096 or more";
    }
    return nullptr;
}

void plan_cumsum(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    cumsum_args args = {};
    args.dst = op->data;
    args.src = src->data;
    for (int i = 0; i < 3; i++) {
        args.dst_stride[i] = op->nb[i + 1];
        args.src_stride[i] = src->nb[i + 1];
    }
    args.row = uint32_t(op->ne[0]);
    args.rows = uint32_t(ggml_nrows(op));
    args.ne1 = make_divisor(uint32_t(op->ne[1]));
    args.ne2 = make_divisor(uint32_t(op->ne[2]));
    const uint32_t tiles = tiles_of(op), blocks = args.rows * tiles;
    args.tiles = make_divisor(tiles);

    if (args.row <= cumsum_wave_row) {
        const uint32_t rows_a_block = cumsum_block / 32;
        plan.launch("cumsum", "cumsum_wave", {(args.rows + rows_a_block - 1) / rows_a_block}, {cumsum_block}, args);
        return;
    }
    if (tiles > 1) {
        cumsum_args totals = args;
        totals.dst = plan.scratch(blocks * sizeof(float));
        plan.launch("cumsum", "cumsum_totals", {blocks}, {cumsum_block}, totals);
        args.totals = static_cast<const float *>(totals.dst);
    }
    plan.launch("cumsum", "cumsum_tile", {blocks}, {cumsum_block}, args);
}

}  // namespace

extern const op_entry cumsum_op;
const op_entry cumsum_op = {GGML_OP_CUMSUM, refusal, plan_cumsum};

}  // namespace strata
