// f16 weights times many columns of f32 or f16.
#include "mul_mat_16.h"

STRATA_MUL_MAT_16(f16, f32, 16)
STRATA_MUL_MAT_16(f16, f32, 64)
STRATA_MUL_MAT_16(f16, f16, 16)
STRATA_MUL_MAT_16(f16, f16, 64)
