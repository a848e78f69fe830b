// The language that kernels are written in: HIP C++ without HIP's headers. Only files in this folder use compiler
// builtins or inline assembly.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))

// A kernel with C linkage: STRATA_KERNEL(128) void name(args a) { ... } runs in workgroups of at most 128 work-items.
#define STRATA_KERNEL(threads) extern "C" __attribute__((global, visibility("protected"), amdgpu_flat_work_group_size(1, threads)))
// Device functions are inlined: the emulated and the real chip both do without calls.
#define STRATA_DEVICE static __attribute__((device, always_inline)) inline

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using size_t = unsigned long;
using half = _Float16;

namespace strata {

constexpr uint32_t wave_size = __AMDGCN_WAVEFRONT_SIZE__;   // 64 on GCN and CDNA

STRATA_DEVICE uint32_t thread_x() { return __builtin_amdgcn_workitem_id_x(); }
STRATA_DEVICE uint32_t thread_y() { return __builtin_amdgcn_workitem_id_y(); }
STRATA_DEVICE uint32_t thread_z() { return __builtin_amdgcn_workitem_id_z(); }
STRATA_DEVICE uint32_t block_x() { return __builtin_amdgcn_workgroup_id_x(); }
STRATA_DEVICE uint32_t block_y() { return __builtin_amdgcn_workgroup_id_y(); }
STRATA_DEVICE uint32_t block_z() { return __builtin_amdgcn_workgroup_id_z(); }

/// Lane within the wave.
STRATA_DEVICE uint32_t lane_id() {
    const uint32_t low = __builtin_amdgcn_mbcnt_lo(~0u, 0);
    return wave_size == 32 ? low : __builtin_amdgcn_mbcnt_hi(~0u, low);
}

/// The value of the first active lane, as a scalar. The argument must be the same in all lanes.
STRATA_DEVICE uint32_t uniform(uint32_t value) { return __builtin_amdgcn_readfirstlane(value); }

/// The lanes where the condition holds, a bit each; the same in all lanes.
#if __AMDGCN_WAVEFRONT_SIZE__ == 32
using lane_mask = uint32_t;
STRATA_DEVICE lane_mask lanes_where(bool condition) { return __builtin_amdgcn_ballot_w32(condition); }
#else
using lane_mask = uint64_t;
STRATA_DEVICE lane_mask lanes_where(bool condition) { return __builtin_amdgcn_ballot_w64(condition); }
#endif

/// True if the condition holds in any active lane; the same in all lanes.
STRATA_DEVICE bool any_lane(bool condition) { return lanes_where(condition) != 0; }

/// How many of `lanes` lie below this one.
STRATA_DEVICE uint32_t lanes_below(lane_mask lanes) {
    const uint32_t low = __builtin_amdgcn_mbcnt_lo(static_cast<uint32_t>(lanes), 0);
    return wave_size == 32 ? low : __builtin_amdgcn_mbcnt_hi(static_cast<uint32_t>(static_cast<uint64_t>(lanes) >> 32), low);
}

STRATA_DEVICE uint32_t count_lanes(lane_mask lanes) { return static_cast<uint32_t>(__builtin_popcountll(lanes)); }

/// Workgroup barrier: LDS writes before it are seen by all waves after it.
STRATA_DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/// Workgroup barrier for LDS alone: loads from global memory stay in flight across it, and global writes before it need not be
/// seen after it. (The compiler would wait for all memory before the builtin.)
STRATA_DEVICE void lds_barrier() { asm volatile("s_waitcnt lgkmcnt(0)\n\ts_barrier" ::: "memory"); }

STRATA_DEVICE uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/// The compiler moves no instruction across this point. Costs nothing when it runs; holds down the number of registers.
STRATA_DEVICE void keep_order() { __builtin_amdgcn_sched_barrier(0); }

/// The value, of which the compiler no longer knows that it is the same each time: what depends on it is computed where it is needed.
STRATA_DEVICE uint32_t recomputed(uint32_t value) {
    asm volatile("" : "+v"(value));
    return value;
}

template <class To, class From>
STRATA_DEVICE To bit_cast(From value) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, value);
}

}  // namespace strata
