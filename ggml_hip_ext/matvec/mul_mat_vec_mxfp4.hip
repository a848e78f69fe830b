// mxfp4 weights times one to eight columns.
#include "mul_mat_vec_q.h"
#include "strata/quant/mxfp4.h"

STRATA_MUL_MAT_VEC_Q_KERNELS(mxfp4)
