// iq4_nl weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/iq4_nl.h"

STRATA_MUL_MAT_Q_KERNELS(iq4_nl)
