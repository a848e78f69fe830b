// iq2_s weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/iq2_s.h"

STRATA_MUL_MAT_Q_KERNELS(iq2_s)
