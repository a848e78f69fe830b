// HIP's calls that the plugin does not use, but programs made by HIP's own compiler do: stock ggml-hip foremost. Declared here,
// beside runtime/hip_abi.h, with the signatures of HIP 7.1 and hipBLAS 3 (ROCm 7).
#pragma once

#include "runtime/hip_abi.h"

#include <cstdint>

namespace strata {

/// HIP's dim3: passed by value, so a type of the same size and class.
struct hip_dim3 {
    uint32_t x, y, z;
};

/// What a host object with embedded device code registers (__CudaFatBinaryWrapper of clang's CodeGen).
struct hip_fat_binary {
    uint32_t magic;  ///< hip_fat_magic
    uint32_t version;
    const void * bundle;
    void * unused;
};
constexpr uint32_t hip_fat_magic = 0x48495046;  // "HIPF"

enum : int {
    hipFuncAttributeMaxDynamicSharedMemorySize = 8,
    hipGraphExecUpdateSuccess = 0,
    hipGraphExecUpdateErrorTopologyChanged = 2,
};
enum : unsigned {
    hipHostRegisterReadOnly = 8,
};
// Stream handles with a meaning of their own.
inline const hipStream_t hipStreamLegacy = reinterpret_cast<hipStream_t>(1);
inline const hipStream_t hipStreamPerThread = reinterpret_cast<hipStream_t>(2);

using hip_host_function = void (*)(void * data);

using hipblasHandle_t = void *;
using hipblasStride = int64_t;

enum hipblasStatus_t : int {
    HIPBLAS_STATUS_SUCCESS = 0,
    HIPBLAS_STATUS_NOT_INITIALIZED = 1,
    HIPBLAS_STATUS_INVALID_VALUE = 3,
    HIPBLAS_STATUS_EXECUTION_FAILED = 5,
    HIPBLAS_STATUS_NOT_SUPPORTED = 7,
};
enum : int {
    HIPBLAS_OP_N = 111,
    HIPBLAS_OP_T = 112,
    HIPBLAS_OP_C = 113,
    HIPBLAS_FILL_MODE_UPPER = 121,
    HIPBLAS_FILL_MODE_LOWER = 122,
    HIPBLAS_DIAG_NON_UNIT = 131,
    HIPBLAS_DIAG_UNIT = 132,
    HIPBLAS_SIDE_LEFT = 141,
    HIPBLAS_SIDE_RIGHT = 142,
    HIPBLAS_COMPUTE_16F = 0,
    HIPBLAS_COMPUTE_32F = 2,
    HIPBLAS_COMPUTE_32F_FAST_16F = 4,
    HIP_R_32F = 0,
    HIP_R_16F = 2,
    HIP_R_16BF = 14,
};

}  // namespace strata

// STRATA_GUEST_FUNCTIONS(X): X(result, name, (parameters)), as STRATA_HIP_FUNCTIONS.
#define STRATA_GUEST_FUNCTIONS(X) \
    X(void **, __hipRegisterFatBinary, (const void * wrapper)) \
    X(void, __hipUnregisterFatBinary, (void ** handle)) \
    X(void, __hipRegisterFunction, (void ** handle, const void * host_function, char * device_function, const char * name, unsigned thread_limit, void * thread_index, void * block_index, void * block, void * grid, int * warp_size)) \
    X(hipError_t, __hipPushCallConfiguration, (hip_dim3 grid, hip_dim3 block, std::size_t shared_bytes, hipStream_t stream)) \
    X(hipError_t, __hipPopCallConfiguration, (hip_dim3 * grid, hip_dim3 * block, std::size_t * shared_bytes, hipStream_t * stream)) \
    X(hipError_t, hipLaunchKernel, (const void * function, hip_dim3 grid, hip_dim3 block, void ** params, std::size_t shared_bytes, hipStream_t stream)) \
    X(hipError_t, hipModuleLaunchCooperativeKernel, (hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, hipStream_t stream, void ** params)) \
    X(hipError_t, hipLaunchCooperativeKernel, (const void * function, hip_dim3 grid, hip_dim3 block, void ** params, unsigned shared_bytes, hipStream_t stream)) \
    X(hipError_t, hipLaunchHostFunc, (hipStream_t stream, hip_host_function function, void * data)) \
    X(hipError_t, hipFuncSetAttribute, (const void * function, int attribute, int value)) \
    X(hipError_t, hipOccupancyMaxActiveBlocksPerMultiprocessor, (int * blocks, const void * function, int block_size, std::size_t shared_bytes)) \
    X(hipError_t, hipDeviceCanAccessPeer, (int * can, int device, int peer)) \
    X(hipError_t, hipDeviceEnablePeerAccess, (int peer, unsigned flags)) \
    X(hipError_t, hipDeviceDisablePeerAccess, (int peer)) \
    X(hipError_t, hipMallocManaged, (void ** pointer, std::size_t size, unsigned flags)) \
    X(hipError_t, hipMemAdvise, (const void * pointer, std::size_t size, int advice, int device)) \
    X(hipError_t, hipMemcpyPeerAsync, (void * dst, int dst_device, const void * src, int src_device, std::size_t size, hipStream_t stream)) \
    X(hipError_t, hipHostGetDevicePointer, (void ** device_pointer, void * host_pointer, unsigned flags)) \
    X(hipError_t, hipHostRegister, (void * pointer, std::size_t size, unsigned flags)) \
    X(hipError_t, hipHostUnregister, (void * pointer)) \
    X(hipError_t, hipStreamIsCapturing, (hipStream_t stream, int * status)) \
    X(hipError_t, hipGraphExecUpdate, (hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t * error_node, int * result))

// STRATA_BLAS_FUNCTIONS(X): the same for hipBLAS.
#define STRATA_BLAS_FUNCTIONS(X) \
    X(hipblasStatus_t, hipblasCreate, (hipblasHandle_t * handle)) \
    X(hipblasStatus_t, hipblasDestroy, (hipblasHandle_t handle)) \
    X(hipblasStatus_t, hipblasSetStream, (hipblasHandle_t handle, hipStream_t stream)) \
    X(hipblasStatus_t, hipblasSgemm, (hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const float * alpha, const float * a, int lda, const float * b, int ldb, const float * beta, float * c, int ldc)) \
    X(hipblasStatus_t, hipblasSgemmBatched, (hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const float * alpha, const float * const a[], int lda, const float * const b[], int ldb, const float * beta, float * const c[], int ldc, int batch_count)) \
    X(hipblasStatus_t, hipblasSgemmStridedBatched, (hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const float * alpha, const float * a, int lda, hipblasStride stride_a, const float * b, int ldb, hipblasStride stride_b, const float * beta, float * c, int ldc, hipblasStride stride_c, int batch_count)) \
    X(hipblasStatus_t, hipblasGemmEx, (hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const void * alpha, const void * a, int type_a, int lda, const void * b, int type_b, int ldb, const void * beta, void * c, int type_c, int ldc, int compute_type, int algo)) \
    X(hipblasStatus_t, hipblasGemmBatchedEx, (hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const void * alpha, const void * a[], int type_a, int lda, const void * b[], int type_b, int ldb, const void * beta, void * c[], int type_c, int ldc, int batch_count, int compute_type, int algo)) \
    X(hipblasStatus_t, hipblasGemmStridedBatchedEx, (hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const void * alpha, const void * a, int type_a, int lda, hipblasStride stride_a, const void * b, int type_b, int ldb, hipblasStride stride_b, const void * beta, void * c, int type_c, int ldc, hipblasStride stride_c, int batch_count, int compute_type, int algo)) \
    X(hipblasStatus_t, hipblasStrsmBatched, (hipblasHandle_t handle, int side, int uplo, int op_a, int diag, int m, int n, const float * alpha, const float * const a[], int lda, float * const b[], int ldb, int batch_count))
