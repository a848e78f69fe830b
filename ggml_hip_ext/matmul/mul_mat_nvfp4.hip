// nvfp4 weights times many columns.
#include "mul_mat_q.h"
#include "strata/quant/nvfp4.h"

STRATA_MUL_MAT_Q_KERNELS(nvfp4)
