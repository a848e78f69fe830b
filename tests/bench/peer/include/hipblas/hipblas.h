// hipBLAS as of ROCm 7, which Debian 12 does not have: the ten functions that ggml calls and their types. Declarations only;
// who loads the backend provides them.
#pragma once
#include <hip/hip_runtime_api.h>
#include <hip/library_types.h>
#include <stdint.h>

enum hipblasStatus_t {
    HIPBLAS_STATUS_SUCCESS = 0,
    HIPBLAS_STATUS_NOT_INITIALIZED,
    HIPBLAS_STATUS_ALLOC_FAILED,
    HIPBLAS_STATUS_INVALID_VALUE,
    HIPBLAS_STATUS_MAPPING_ERROR,
    HIPBLAS_STATUS_EXECUTION_FAILED,
    HIPBLAS_STATUS_INTERNAL_ERROR,
    HIPBLAS_STATUS_NOT_SUPPORTED,
    HIPBLAS_STATUS_ARCH_MISMATCH,
};
enum hipblasOperation_t { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112 };
enum hipblasFillMode_t { HIPBLAS_FILL_MODE_UPPER = 121 };
enum hipblasDiagType_t { HIPBLAS_DIAG_NON_UNIT = 131 };
enum hipblasSideMode_t { HIPBLAS_SIDE_RIGHT = 142 };
enum hipblasGemmAlgo_t { HIPBLAS_GEMM_DEFAULT = 160 };
enum hipblasComputeType_t { HIPBLAS_COMPUTE_16F = 0, HIPBLAS_COMPUTE_32F = 2, HIPBLAS_COMPUTE_32F_FAST_16F = 4 };

#define HIPBLAS_R_16F HIP_R_16F
#define HIPBLAS_R_16B HIP_R_16BF
#define HIPBLAS_R_32F HIP_R_32F

typedef void * hipblasHandle_t;
typedef int64_t hipblasStride;

extern "C" {
hipblasStatus_t hipblasCreate(hipblasHandle_t * handle);
hipblasStatus_t hipblasDestroy(hipblasHandle_t handle);
hipblasStatus_t hipblasSetStream(hipblasHandle_t handle, hipStream_t stream);

hipblasStatus_t hipblasSgemm(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n, int k,
                             const float * alpha, const float * a, int lda, const float * b, int ldb, const float * beta,
                             float * c, int ldc);
hipblasStatus_t hipblasSgemmBatched(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n, int k,
                                    const float * alpha, const float * const a[], int lda, const float * const b[], int ldb,
                                    const float * beta, float * const c[], int ldc, int batch_count);
hipblasStatus_t hipblasSgemmStridedBatched(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n,
                                           int k, const float * alpha, const float * a, int lda, hipblasStride stride_a,
                                           const float * b, int ldb, hipblasStride stride_b, const float * beta, float * c,
                                           int ldc, hipblasStride stride_c, int batch_count);
hipblasStatus_t hipblasGemmEx(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n, int k,
                              const void * alpha, const void * a, hipDataType type_a, int lda, const void * b,
                              hipDataType type_b, int ldb, const void * beta, void * c, hipDataType type_c, int ldc,
                              hipblasComputeType_t compute_type, hipblasGemmAlgo_t algo);
hipblasStatus_t hipblasGemmBatchedEx(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n, int k,
                                     const void * alpha, const void * a[], hipDataType type_a, int lda, const void * b[],
                                     hipDataType type_b, int ldb, const void * beta, void * c[], hipDataType type_c, int ldc,
                                     int batch_count, hipblasComputeType_t compute_type, hipblasGemmAlgo_t algo);
hipblasStatus_t hipblasGemmStridedBatchedEx(hipblasHandle_t handle, hipblasOperation_t op_a, hipblasOperation_t op_b, int m, int n,
                                            int k, const void * alpha, const void * a, hipDataType type_a, int lda,
                                            hipblasStride stride_a, const void * b, hipDataType type_b, int ldb,
                                            hipblasStride stride_b, const void * beta, void * c, hipDataType type_c, int ldc,
                                            hipblasStride stride_c, int batch_count, hipblasComputeType_t compute_type,
                                            hipblasGemmAlgo_t algo);
hipblasStatus_t hipblasStrsmBatched(hipblasHandle_t handle, hipblasSideMode_t side, hipblasFillMode_t uplo, hipblasOperation_t op_a,
                                    hipblasDiagType_t diag, int m, int n, const float * alpha, const float * const a[], int lda,
                                    float * const b[], int ldb, int batch_count);
}
