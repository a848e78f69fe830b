// bf16 weights times many columns of f32.
#include "mul_mat_16.h"

STRATA_MUL_MAT_16(bf16, f32, 16)
STRATA_MUL_MAT_16(bf16, f32, 64)
