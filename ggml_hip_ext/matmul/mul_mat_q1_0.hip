// q1_0 weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/q1_0.h"

STRATA_MUL_MAT_Q_KERNELS(q1_0)
