// Which ops have kernels: one entry an op, defined in the file of its family.
#include "ops/op.h"

namespace strata {

extern const op_entry mul_mat_op;                      // mul_mat.cpp
extern const op_entry mul_mat_id_op;                   // mul_mat_id.cpp
extern const op_entry add_id_op;                       // add_id.cpp
extern const op_entry argsort_op, top_k_op, argmax_op; // sort.cpp
extern const op_entry get_rows_op, set_rows_op;        // rows.cpp
extern const op_entry flash_attn_ext_op;               // attention.cpp
extern const op_entry lightning_indexer_op;            // lightning_indexer.cpp
extern const op_entry soft_max_op;                     // soft_max.cpp
extern const op_entry rms_norm_op, norm_op;            // norm.cpp
extern const op_entry l2_norm_op, group_norm_op;       // norm.cpp
extern const op_entry gated_delta_net_op;              // gated_delta_net.cpp
extern const op_entry ssm_conv_op;                     // ssm_conv.cpp
extern const op_entry ssm_scan_op;                     // ssm_scan.cpp
extern const op_entry rwkv_wkv6_op, rwkv_wkv7_op;      // linear_attention.cpp
extern const op_entry gated_linear_attn_op;            // linear_attention.cpp
extern const op_entry cumsum_op;                       // cumsum.cpp
extern const op_entry tri_op, diag_op, fill_op;        // band.cpp
extern const op_entry diag_mask_inf_op;                // band.cpp
extern const op_entry diag_mask_zero_op;               // band.cpp
extern const op_entry solve_tri_op;                    // solve_tri.cpp
extern const op_entry dsv4_hc_pre_op, dsv4_hc_post_op; // hyper_connection.cpp
extern const op_entry dsv4_hc_comb_op;                 // hyper_connection.cpp
extern const op_entry rope_op;                         // rope.cpp
extern const op_entry add_op, sub_op, mul_op, div_op;  // binary.cpp
extern const op_entry add1_op;                         // binary.cpp
extern const op_entry scale_op;                        // scale.cpp
extern const op_entry unary_op;                        // unary.cpp
extern const op_entry sqr_op, sqrt_op, sin_op;         // unary.cpp
extern const op_entry cos_op, log_op, clamp_op;        // unary.cpp
extern const op_entry leaky_relu_op;                   // unary.cpp
extern const op_entry glu_op;                          // glu.cpp
extern const op_entry cont_op, cpy_op, dup_op;         // copy.cpp
extern const op_entry concat_op, repeat_op;            // concat.cpp
extern const op_entry acc_op, set_op;                  // region.cpp
extern const op_entry sum_rows_op, mean_op, sum_op;    // sum.cpp
extern const op_entry count_equal_op;                  // sum.cpp
extern const op_entry pad_op, pad_reflect_1d_op;       // pad.cpp
extern const op_entry roll_op;                         // pad.cpp
extern const op_entry arange_op;                       // generate.cpp
extern const op_entry timestep_embedding_op;           // generate.cpp
extern const op_entry win_part_op, win_unpart_op;      // windows.cpp
extern const op_entry get_rel_pos_op, add_rel_pos_op;  // windows.cpp
extern const op_entry out_prod_op;                     // out_prod.cpp
extern const op_entry silu_back_op, rms_norm_back_op;  // backward.cpp
extern const op_entry soft_max_back_op;                // backward.cpp
extern const op_entry repeat_back_op;                  // backward.cpp
extern const op_entry get_rows_back_op;                // backward.cpp
extern const op_entry rope_back_op;                    // rope.cpp
extern const op_entry cross_entropy_loss_op;           // training.cpp
extern const op_entry cross_entropy_loss_back_op;      // training.cpp
extern const op_entry opt_step_adamw_op;               // training.cpp
extern const op_entry opt_step_sgd_op;                 // training.cpp
extern const op_entry im2col_op, im2col_3d_op;         // im2col.cpp
extern const op_entry col2im_1d_op;                    // im2col.cpp
extern const op_entry conv_2d_op, conv_3d_op;          // conv.cpp
extern const op_entry conv_2d_dw_op;                   // conv.cpp
extern const op_entry conv_transpose_1d_op;            // conv.cpp
extern const op_entry conv_transpose_2d_op;            // conv.cpp
extern const op_entry pool_1d_op, pool_2d_op;          // resample.cpp
extern const op_entry upscale_op;                      // resample.cpp

static const op_entry * const entries[] = {
    &mul_mat_id_op, &add_id_op, &argsort_op, &top_k_op, &argmax_op,
    &mul_mat_op, &get_rows_op, &set_rows_op, &flash_attn_ext_op, &soft_max_op, &rms_norm_op, &rope_op,
    &lightning_indexer_op,
    &add_op, &sub_op, &mul_op, &div_op, &scale_op, &unary_op, &glu_op, &cont_op, &cpy_op, &dup_op,
    &norm_op, &l2_norm_op, &group_norm_op, &gated_delta_net_op, &ssm_conv_op, &ssm_scan_op, &rwkv_wkv6_op, &rwkv_wkv7_op,
    &gated_linear_attn_op, &cumsum_op, &tri_op, &diag_op, &fill_op, &diag_mask_inf_op, &diag_mask_zero_op, &solve_tri_op,
    &dsv4_hc_pre_op, &dsv4_hc_post_op, &dsv4_hc_comb_op,
    &sqr_op, &sqrt_op, &sin_op, &cos_op, &log_op, &clamp_op,
    &add1_op, &leaky_relu_op, &concat_op, &repeat_op, &acc_op, &set_op, &sum_rows_op, &mean_op, &sum_op, &count_equal_op,
    &pad_op, &pad_reflect_1d_op, &roll_op, &arange_op, &timestep_embedding_op,
    &im2col_op, &im2col_3d_op, &col2im_1d_op, &conv_2d_op, &conv_3d_op, &conv_2d_dw_op, &conv_transpose_1d_op, &conv_transpose_2d_op,
    &pool_1d_op, &pool_2d_op, &upscale_op, &win_part_op, &win_unpart_op, &get_rel_pos_op, &add_rel_pos_op,
    &out_prod_op, &silu_back_op, &rms_norm_back_op, &soft_max_back_op, &repeat_back_op, &get_rows_back_op, &rope_back_op,
    &cross_entropy_loss_op, &cross_entropy_loss_back_op, &opt_step_adamw_op, &opt_step_sgd_op,
};

const op_entry * find_op(ggml_op op) {
    for (const op_entry * entry : entries) {
        if (entry->op == op) {
            return entry;
        }
    }
    return nullptr;
}

const char * op_refusal(const device_caps & caps, const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_NONE:
        case GGML_OP_VIEW:
        case GGML_OP_RESHAPE:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
            return nullptr;
        default:
            break;
    }
    const op_entry * entry = find_op(op->op);
    return entry ? entry->refusal(caps, op) : "no kernel for this op";
}

}  // namespace strata
