// iq2_xxs weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/iq2_xxs.h"

STRATA_MUL_MAT_Q_KERNELS(iq2_xxs)
