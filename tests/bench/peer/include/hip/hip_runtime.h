// The device side of HIP for ggml: Debian's 5.2 atomics and device functions, clang's mathematics, and here what differs in
// HIP 7 so far that the compiler would make other instructions of it: indices, shuffles, launch bounds.
#pragma once
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmath>
#include <cstdint>

#include <hip/hip_common.h>
#include <hip/amd_detail/amd_hip_common.h>
#include <hip/hip_version.h>
#include <hip/hip_vector_types.h>
#include <hip/hip_runtime_api.h>
#include <hip/library_types.h>

#define HIP_INCLUDE_HIP_AMD_DETAIL_WARP_FUNCTIONS_H  // not Debian's shuffles
#include <hip/amd_detail/amd_device_functions.h>
#include <hip/amd_detail/amd_hip_atomic.h>
#include <hip/amd_detail/hip_ldg.h>

#define __align__(n) __attribute__((aligned(n)))

// __launch_bounds__(work-items a group[, waves a SIMD])
#define PEER_BOUNDS_ITEMS(items) __attribute__((amdgpu_flat_work_group_size(1, items)))
#define PEER_BOUNDS_WAVES(items, waves) __attribute__((amdgpu_flat_work_group_size(1, items), amdgpu_waves_per_eu(waves)))
#define PEER_THIRD(first, second, third, ...) third
#define __launch_bounds__(...) PEER_THIRD(__VA_ARGS__, PEER_BOUNDS_WAVES, PEER_BOUNDS_ITEMS, )(__VA_ARGS__)

#ifdef __HIP__
// threadIdx, blockIdx, blockDim, gridDim: members of type unsigned int. In HIP 5.2 they are objects that turn into one, and
// `c ? i : blockIdx.x` with an int i then has another type.
extern "C" {
__device__ __attribute__((const)) size_t __ockl_get_local_id(unsigned int dimension);
__device__ __attribute__((const)) size_t __ockl_get_group_id(unsigned int dimension);
__device__ __attribute__((const)) size_t __ockl_get_local_size(unsigned int dimension);
__device__ __attribute__((const)) size_t __ockl_get_num_groups(unsigned int dimension);
}
#define PEER_INDEX(name, query)                                                                         \
    struct peer_##name {                                                                                \
        static __device__ __forceinline__ unsigned int get_x() { return query(0); }                     \
        static __device__ __forceinline__ unsigned int get_y() { return query(1); }                     \
        static __device__ __forceinline__ unsigned int get_z() { return query(2); }                     \
        __declspec(property(get = get_x)) unsigned int x;                                               \
        __declspec(property(get = get_y)) unsigned int y;                                               \
        __declspec(property(get = get_z)) unsigned int z;                                               \
    };                                                                                                  \
    static constexpr peer_##name name = {};
PEER_INDEX(threadIdx, __ockl_get_local_id)
PEER_INDEX(blockIdx, __ockl_get_group_id)
PEER_INDEX(blockDim, __ockl_get_local_size)
PEER_INDEX(gridDim, __ockl_get_num_groups)
#undef PEER_INDEX

static constexpr int warpSize = __AMDGCN_WAVEFRONT_SIZE;

// Shuffles of 32-bit values within segments of `width` lanes, a power of two. What would come from outside the segment is the
// lane's own value; __shfl wraps around instead. A lane may have no defined value to give.
#define PEER_ANY __attribute__((maybe_undef))

static __device__ __forceinline__ int peer_value_of(PEER_ANY int value, int lane) {
    return __builtin_amdgcn_ds_bpermute(4 * lane, value);
}
static __device__ __forceinline__ int __shfl(PEER_ANY int value, int lane, int width = warpSize) {
    const int start = __lane_id() & ~(width - 1);
    return peer_value_of(value, start + (lane & (width - 1)));
}
static __device__ __forceinline__ int __shfl_up(PEER_ANY int value, unsigned int delta, int width = warpSize) {
    const int lane = __lane_id();
    const int start = lane & ~(width - 1);
    const int source = lane - static_cast<int>(delta);
    return peer_value_of(value, source < start ? lane : source);
}
static __device__ __forceinline__ int __shfl_xor(PEER_ANY int value, int mask, int width = warpSize) {
    const int lane = __lane_id();
    const int stop = (lane + width) & ~(width - 1);
    const int source = lane ^ mask;
    return peer_value_of(value, source >= stop ? lane : source);
}

#define PEER_SHUFFLE(T, name, second)                                                                          \
    static __device__ __forceinline__ T name(PEER_ANY T value, second by, int width = warpSize) {              \
        return __builtin_bit_cast(T, name(__builtin_bit_cast(int, value), by, width));                         \
    }
#define PEER_SHUFFLES(T)                 \
    PEER_SHUFFLE(T, __shfl, int)         \
    PEER_SHUFFLE(T, __shfl_up, unsigned int) \
    PEER_SHUFFLE(T, __shfl_xor, int)
PEER_SHUFFLES(unsigned int)
PEER_SHUFFLES(float)
#endif
