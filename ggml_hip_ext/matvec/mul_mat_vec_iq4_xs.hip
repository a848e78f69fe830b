// iq4_xs weights times one to eight columns.
#include "mul_mat_vec_q.h"
#include "strata/quant/iq4_xs.h"

STRATA_MUL_MAT_VEC_Q_KERNELS(iq4_xs)
