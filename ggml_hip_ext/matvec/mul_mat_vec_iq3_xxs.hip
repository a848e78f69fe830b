// iq3_xxs weights times one to eight columns.
#include "mul_mat_vec_q.h"
#include "strata/quant/iq3_xxs.h"

STRATA_MUL_MAT_VEC_Q_KERNELS(iq3_xxs)
