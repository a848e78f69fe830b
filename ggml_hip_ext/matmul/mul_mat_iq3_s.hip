// iq3_s weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/iq3_s.h"

STRATA_MUL_MAT_Q_KERNELS(iq3_s)
