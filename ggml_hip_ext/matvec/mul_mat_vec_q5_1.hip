// q5_1 weights times one to eight columns.
#include "mul_mat_vec_q.h"
#include "strata/quant/q5_1.h"

STRATA_MUL_MAT_VEC_Q_KERNELS(q5_1)
