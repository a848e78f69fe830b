// Tensors as fusions of rows see them.
#pragma once

#include <cstring>
#include <initializer_list>

#include "ggml.h"
#include "strata/args/norm_chain.h"

namespace strata {

/// f32 rows, contiguous each.
inline bool is_f32_rows(const ggml_tensor * t) { return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float); }

/// A single matrix of such rows.
inline bool f32_matrix(const ggml_tensor * t) { return is_f32_rows(t) && t->ne[2] == 1 && t->ne[3] == 1; }

/// Such rows, of this shape; dimensions that are not given are 1.
inline bool has_shape(const ggml_tensor * t, std::initializer_list<int64_t> shape) {
    if (!is_f32_rows(t)) {
        return false;
    }
    for (int i = 0; i < GGML_MAX_DIMS; ++i) {
        if (t->ne[i] != (std::size_t(i) < shape.size() ? shape.begin()[i] : 1)) {
            return false;
        }
    }
    return true;
}

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

/// A float among the parameters of a node, at a place counted in words.
inline float parameter(const ggml_tensor * node, int at) {
    float value;
    std::memcpy(&value, node->op_params + at, sizeof(value));
    return value;
}

/// Of an RMS_NORM node.
inline float eps_of(const ggml_tensor * norm) { return parameter(norm, 0); }

}  // namespace strata
