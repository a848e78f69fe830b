// mxfp4 weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/mxfp4.h"

STRATA_MUL_MAT_Q_KERNELS(mxfp4)
