// iq2_s weights times one to eight columns.
#include "mul_mat_vec_q.h"
#include "strata/quant/iq2_s.h"

STRATA_MUL_MAT_VEC_Q_KERNELS(iq2_s)
