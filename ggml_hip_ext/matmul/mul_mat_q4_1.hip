// q4_1 weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/q4_1.h"

STRATA_MUL_MAT_Q_KERNELS(q4_1)
