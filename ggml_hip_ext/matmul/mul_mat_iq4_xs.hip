// iq4_xs weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/iq4_xs.h"

STRATA_MUL_MAT_Q_KERNELS(iq4_xs)
