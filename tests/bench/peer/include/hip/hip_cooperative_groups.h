// Newer than Debian's HIP: the group of the whole grid, as far as ggml's soft-max asks for it.
#pragma once
#include <hip/hip_runtime.h>

#ifdef __HIP__
extern "C" __device__ void __ockl_grid_sync(void);

namespace cooperative_groups {

struct grid_group {
    unsigned int threads;
    __device__ void sync() const { __ockl_grid_sync(); }
};

static __device__ __forceinline__ grid_group this_grid() {
    return {gridDim.x * gridDim.y * gridDim.z * blockDim.x * blockDim.y * blockDim.z};
}

}  // namespace cooperative_groups
#endif
