// iq1_m weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/iq1_m.h"

STRATA_MUL_MAT_Q_KERNELS(iq1_m)
