// q2_K weights times one to eight columns.
#include "mul_mat_vec_q.h"
#include "strata/quant/q2_K.h"

STRATA_MUL_MAT_VEC_Q_KERNELS(q2_K)
