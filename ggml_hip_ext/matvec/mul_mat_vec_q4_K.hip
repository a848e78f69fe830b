// q4_K weights times one to eight columns.
#include "mul_mat_vec_q.h"
#include "strata/quant/q4_K.h"

STRATA_MUL_MAT_VEC_Q_KERNELS(q4_K)
