// q2_K weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/q2_K.h"

STRATA_MUL_MAT_Q_KERNELS(q2_K)
