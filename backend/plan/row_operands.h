// Tensors as the fused norms see them.
#pragma once

#include <cstring>

#include "ggml.h"
#include "strata/args/norm_chain.h"

namespace strata {

/// f32 rows, contiguous each.
inline bool is_f32_rows(const ggml_tensor * t) { return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float); }

/// A single matrix of such rows.
inline bool f32_matrix(const ggml_tensor * t) { return is_f32_rows(t) && t->ne[2] == 1 && t->ne[3] == 1; }

/// True if these are f32 rows that can be repeated to those of `like`.
inline bool repeats_to(const ggml_tensor * t, const ggml_tensor * like) {
    if (!is_f32_rows(t) || t->ne[0] != like->ne[0]) {
        return false;
    }
    for (int i = 1; i < GGML_MAX_DIMS; ++i) {
        if (t->ne[i] != like->ne[i] && t->ne[i] != 1) {
            return false;
        }
    }
    return true;
}

inline row_operand rows_of(const ggml_tensor * t) {
    row_operand rows = {t->data, {}};
    for (int i = 0; i < 3; ++i) {
        rows.stride[i] = t->ne[i + 1] == 1 ? 0 : t->nb[i + 1];
    }
    return rows;
}

/// Of an RMS_NORM node.
inline float eps_of(const ggml_tensor * norm) {
    float eps;
    std::memcpy(&eps, norm->op_params, sizeof(eps));
    return eps;
}

}  // namespace strata
