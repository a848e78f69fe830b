// q3_K weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/q3_K.h"

STRATA_MUL_MAT_Q_KERNELS(q3_K)
