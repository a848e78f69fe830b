// iq1_m weights times one to eight columns.
#include "mul_mat_vec_q.h"
#include "strata/quant/iq1_m.h"

STRATA_MUL_MAT_VEC_Q_KERNELS(iq1_m)
