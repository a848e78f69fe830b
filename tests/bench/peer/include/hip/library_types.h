// hipDataType with bfloat16, which Debian's header does not know yet. Only the values that ggml gives to hipBLAS.
#pragma once

enum hipDataType { HIP_R_32F = 0, HIP_R_16F = 2, HIP_R_16BF = 14 };
