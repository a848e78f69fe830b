// Which fusions there are: those that take more nodes before those that are parts of them.
#include "plan/fusion.h"

namespace strata {

extern const fusion_pattern router_fusion;             // fuse_moe.cpp
extern const fusion_pattern expert_sum_fusion;         // fuse_moe.cpp
extern const fusion_pattern shared_gate_add_fusion;    // fuse_moe.cpp
extern const fusion_pattern shared_gate_fusion;        // fuse_moe.cpp
extern const fusion_pattern sum_gate_add_fusion;       // fuse_moe.cpp
extern const fusion_pattern sum_gate_fusion;           // fuse_moe.cpp
extern const fusion_pattern expert_output_fusion;      // fuse_moe.cpp
extern const fusion_pattern product_group_fusion;      // fuse_products.cpp
extern const fusion_pattern product_group_gates_fusion;       // fuse_products.cpp
extern const fusion_pattern delta_net_decode_fusion;   // fuse_delta_net_decode.cpp
extern const fusion_pattern delta_net_in_cache_fusion; // fuse_delta_net_cache.cpp
extern const fusion_pattern delta_net_copy_fusion;     // fuse_delta_net_cache.cpp
extern const fusion_pattern delta_net_gates_fusion;    // fuse_delta_net.cpp
extern const fusion_pattern rope_qkv_fusion;           // fuse_rope.cpp
extern const fusion_pattern norm_rope_cache_fusion;    // fuse_rope.cpp
extern const fusion_pattern norm_rope_fusion;          // fuse_rope.cpp
extern const fusion_pattern rope_cache_fusion;         // fuse_rope.cpp
extern const fusion_pattern norm_add_norm_fusion;      // fuse_norm.cpp
extern const fusion_pattern add_norm_fusion;           // fuse_norm.cpp
extern const fusion_pattern gated_norm_fusion;         // fuse_norm.cpp
extern const fusion_pattern norm_mul_add_fusion;       // fuse_norm.cpp
extern const fusion_pattern norm_mul_fusion;           // fuse_norm.cpp
extern const fusion_pattern norm_scale_fusion;         // fuse_norm.cpp
extern const fusion_pattern expert_bias_glu_fusion;    // fuse_glu.cpp
extern const fusion_pattern experts_and_shared_glu_fusion;    // fuse_glu.cpp
extern const fusion_pattern expert_glu_fusion;         // fuse_glu.cpp
extern const fusion_pattern product_glu_fusion;        // fuse_glu.cpp
extern const fusion_pattern norm_scale_pair_fusion;    // fuse_norm.cpp
extern const fusion_pattern conv_bias_silu_fusion;     // fuse_gate.cpp
extern const fusion_pattern conv_silu_fusion;          // fuse_gate.cpp
extern const fusion_pattern sigmoid_copy_mul_fusion;   // fuse_gate.cpp
extern const fusion_pattern sigmoid_mul_fusion;        // fuse_gate.cpp
extern const fusion_pattern softplus_mul_fusion;       // fuse_gate.cpp
extern const fusion_pattern silu_mul_fusion;           // fuse_gate.cpp
extern const fusion_pattern hyper_post_fusion;         // fuse_hyper.cpp
extern const fusion_pattern hyper_post_norm_fusion;    // fuse_hyper.cpp
extern const fusion_pattern slice_sum_fusion;          // fuse_sparse.cpp
extern const fusion_pattern block_mean_fusion;         // fuse_sparse.cpp
extern const fusion_pattern expand_fusion;             // fuse_sparse.cpp
extern const fusion_pattern chosen_mask_fusion;        // fuse_sparse.cpp
extern const fusion_pattern top_k_copy_fusion;         // fuse_sparse.cpp
extern const fusion_pattern scale_silu_fusion;         // fuse_sparse.cpp
extern const fusion_pattern sigmoid_norm_fusion;       // fuse_norm.cpp
extern const fusion_pattern per_layer_gate_fusion;     // fuse_per_layer.cpp
extern const fusion_pattern per_layer_conv_fusion;     // fuse_per_layer.cpp

const std::vector<const fusion_pattern *> & fusion_table() {
    static const std::vector<const fusion_pattern *> table = {
        &expert_output_fusion,
        &experts_and_shared_glu_fusion,
        &expert_bias_glu_fusion,
        &expert_glu_fusion,
        &product_glu_fusion,
        &router_fusion,
        &delta_net_decode_fusion,
        &delta_net_in_cache_fusion,
        &delta_net_copy_fusion,
        &product_group_gates_fusion,
        &delta_net_gates_fusion,
        &rope_qkv_fusion,
        &norm_rope_cache_fusion,
        &norm_rope_fusion,
        &rope_cache_fusion,
        &per_layer_gate_fusion,
        &per_layer_conv_fusion,
        &hyper_post_norm_fusion,
        &hyper_post_fusion,
        &norm_add_norm_fusion,
        &add_norm_fusion,
        &sum_gate_add_fusion,
        &sum_gate_fusion,
        &expert_sum_fusion,
        &shared_gate_add_fusion,
        &shared_gate_fusion,
        &gated_norm_fusion,
        &sigmoid_norm_fusion,
        &norm_mul_add_fusion,
        &norm_mul_fusion,
        &block_mean_fusion,
        &slice_sum_fusion,
        &expand_fusion,
        &chosen_mask_fusion,
        &top_k_copy_fusion,
        &norm_scale_pair_fusion,
        &norm_scale_fusion,
        &conv_bias_silu_fusion,
        &conv_silu_fusion,
        &sigmoid_copy_mul_fusion,
        &sigmoid_mul_fusion,
        &softplus_mul_fusion,
        &silu_mul_fusion,
        &scale_silu_fusion,
        &product_group_fusion,
    };
    return table;
}

}  // namespace strata
