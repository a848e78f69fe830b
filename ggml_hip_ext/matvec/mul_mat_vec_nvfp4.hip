// nvfp4 weights times one to eight columns.
#include "mul_mat_vec_q.h"
#include "strata/quant/nvfp4.h"

STRATA_MUL_MAT_VEC_Q_KERNELS(nvfp4)
