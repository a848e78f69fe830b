// Newer than Debian's HIP. ggml names the type and, on this chip, never computes with it.
#pragma once

struct __hip_fp8_e4m3 {
    unsigned char __x;
};
