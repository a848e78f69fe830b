// tq1_0 weights times one to eight columns.
#include "mul_mat_vec_q.h"
#include "strata/quant/tq1_0.h"

STRATA_MUL_MAT_VEC_Q_KERNELS(tq1_0)
