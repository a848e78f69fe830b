// ADD_ID: adds to each row of f32 the row of a table that an id names (biases of experts).
#include "ops/op.h"
#include "strata/args/add_id.h"

namespace strata {

static const char * refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * a = op->src[0];
    const ggml_tensor * b = op->src[1];
    const ggml_tensor * ids = op->src[2];
    if (op->type != GGML_TYPE_F32 || a->type != GGML_TYPE_F32 || b->type != GGML_TYPE_F32 || ids->type != GGML_TYPE_I32) {
        return "not f32 with i32 ids";
    }
    if (!ggml_is_contiguous(op) || a->nb[0] != sizeof(float) || b->nb[0] != sizeof(float)) {
        return "transposed rows, or a result that is not contiguous";
    }
    if (a->ne[3] != 1) {
        return "four dimensions";
    }
    if (ggml_nelements(op) >= int64_t(1) << 31) {
        return "2^31 elements or more";
    }
    return nullptr;
}

static void plan_add_id(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * a = op->src[0];
    const ggml_tensor * b = op->src[1];
    const ggml_tensor * ids = op->src[2];
    const uint32_t row_tiles = uint32_t((op->ne[0] + add_id_tile - 1) / add_id_tile), waves = uint32_t(ggml_nrows(op)) * row_tiles;
    const add_id_args args = {static_cast<float *>(op->data), a->data, b->data, ids->data, a->nb[1], a->nb[2], b->nb[1], ids->nb[0],
                              ids->nb[1], uint32_t(op->ne[0]), waves, make_divisor(row_tiles), make_divisor(uint32_t(op->ne[1]))};
    constexpr uint32_t waves_a_block = add_id_block / 32;
    plan.launch("add_id", "add_id", {(waves + waves_a_block - 1) / waves_a_block}, {add_id_block}, args);
}

extern const op_entry add_id_op;
const op_entry add_id_op = {GGML_OP_ADD_ID, refusal, plan_add_id};

}  // namespace strata
