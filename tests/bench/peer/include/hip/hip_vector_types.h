// int2, float4 and their like as plain structs, as HIP 7 has them. Debian's wrap the compiler's vectors, and a kernel then
// comes out with other instructions. The guard is that of Debian's header, which must not be read after this one.
#pragma once
#define HIP_INCLUDE_HIP_AMD_DETAIL_HIP_VECTOR_TYPES_H
#include <hip/amd_detail/host_defines.h>

// Names that Debian's other headers want from this one.
#define __HOST_DEVICE__ __host__ __device__
template <typename T, unsigned int n> struct HIP_vector_type;
template <typename T, unsigned int n> using HIP_vector_base = HIP_vector_type<T, n>;

#define PEER_VECTOR_STRUCT(n, alignment, ...)                            \
    template <typename T> struct alignment HIP_vector_type<T, n> {       \
        typedef T Native_vec_ __attribute__((ext_vector_type(n)));       \
        T __VA_ARGS__;                                                   \
    };
PEER_VECTOR_STRUCT(1, , x)
PEER_VECTOR_STRUCT(2, alignas(2 * sizeof(T)), x, y)
PEER_VECTOR_STRUCT(3, , x, y, z)
PEER_VECTOR_STRUCT(4, alignas(4 * sizeof(T)), x, y, z, w)
#undef PEER_VECTOR_STRUCT

#define PEER_VECTORS(T, name)                                                                       \
    using name##1 = HIP_vector_type<T, 1>;                                                          \
    using name##2 = HIP_vector_type<T, 2>;                                                          \
    using name##3 = HIP_vector_type<T, 3>;                                                          \
    using name##4 = HIP_vector_type<T, 4>;                                                          \
    static inline __host__ __device__ name##1 make_##name##1(T x) { return {x}; }                   \
    static inline __host__ __device__ name##2 make_##name##2(T x, T y) { return {x, y}; }           \
    static inline __host__ __device__ name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }   \
    static inline __host__ __device__ name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
PEER_VECTORS(char, char)
PEER_VECTORS(unsigned char, uchar)
PEER_VECTORS(short, short)
PEER_VECTORS(unsigned short, ushort)
PEER_VECTORS(int, int)
PEER_VECTORS(unsigned int, uint)
PEER_VECTORS(long, long)
PEER_VECTORS(unsigned long, ulong)
PEER_VECTORS(long long, longlong)
PEER_VECTORS(unsigned long long, ulonglong)
PEER_VECTORS(float, float)
PEER_VECTORS(double, double)
#undef PEER_VECTORS
