// q6_K weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/q6_K.h"

STRATA_MUL_MAT_Q_KERNELS(q6_K)
