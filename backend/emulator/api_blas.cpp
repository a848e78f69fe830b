// hipBLAS for guests: products of matrices on the CPU, as work of the stream like any kernel, so in order, captured by graphs,
// and with every operand checked against the allocation table. On hardware these are rocBLAS kernels, which are not ours to
// emulate: no instruction is counted for them. Sums are float32 in a fixed order, whatever the compute type; results are
// rounded once.
#include "api.h"
#include "instruments/state.h"
#include "memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace strata {

using namespace emulator;

#define STRATA_X(result, name, parameters) STRATA_EXPORT result name parameters;
STRATA_BLAS_FUNCTIONS(STRATA_X)
#undef STRATA_X
/// Products and solves that were given to hipBLAS since the process started.
STRATA_EXPORT uint64_t strata_emulator_blas_calls(void);

namespace {

std::atomic<uint64_t> calls{0};

struct blas_handle {
    std::mutex lock;
    hipStream_t stream = nullptr;
};

handle_table<hipblasHandle_t, blas_handle> & handles() {
    static auto & table = *new handle_table<hipblasHandle_t, blas_handle>(0x57);
    return table;
}

size_t size_of(int type) {
    return type == HIP_R_32F ? 4 : 2;
}

bool is_known(int type) {
    return type == HIP_R_32F || type == HIP_R_16F || type == HIP_R_16BF;
}

float load(const void * data, size_t index, int type) {
    if (type == HIP_R_32F) {
        return static_cast<const float *>(data)[index];
    }
    if (type == HIP_R_16F) {
        return static_cast<float>(static_cast<const _Float16 *>(data)[index]);
    }
    const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t *>(data)[index]) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

void store(void * data, size_t index, int type, float value) {
    if (type == HIP_R_32F) {
        static_cast<float *>(data)[index] = value;
    } else if (type == HIP_R_16F) {
        static_cast<_Float16 *>(data)[index] = static_cast<_Float16>(value);
    } else {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
        bits = is_nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
        static_cast<uint16_t *>(data)[index] = static_cast<uint16_t>(bits >> 16);
    }
}

/// A matrix in column-major order.
struct matrix {
    const void * data = nullptr;
    int type = HIP_R_32F;
    int64_t leading = 0;  ///< elements from a column to the next
};

/// One product of a call: C = alpha op(A) op(B) + beta C.
struct product {
    bool transposed_a = false, transposed_b = false;
    int64_t m = 0, n = 0, k = 0;
    float alpha = 0, beta = 0;
    matrix a, b, c;
};

/// An empty text, or why the device may not access `rows` by `columns` of the matrix.
std::string objection(const allocation_map & memory, const char * name, const matrix & x, int64_t rows, int64_t columns, bool written) {
    if (rows == 0 || columns == 0) {
        return {};
    }
    const uint64_t bytes = static_cast<uint64_t>((columns - 1) * x.leading + rows) * size_of(x.type);
    const uint64_t address = reinterpret_cast<uint64_t>(x.data);
    const allocation * held = memory.find(address, bytes);
    if (held != nullptr && (held->writable || !written)) {
        return {};
    }
    return format("hipBLAS: matrix %s, %llu bytes at 0x%llx: %s", name, static_cast<unsigned long long>(bytes),
                  static_cast<unsigned long long>(address), memory.describe(address, bytes).c_str());
}

/// op(X) with the k direction contiguous: `count` vectors of `k` floats, padded with zeros to whole blocks.
constexpr int64_t block = 16;
std::vector<float> pack(const matrix & x, bool k_contiguous, int64_t count, int64_t k) {
    const int64_t padded = (k + block - 1) / block * block;
    std::vector<float> result(static_cast<size_t>(count * padded));
    for (int64_t i = 0; i < count; ++i) {
        for (int64_t l = 0; l < k; ++l) {
            const int64_t index = k_contiguous ? i * x.leading + l : l * x.leading + i;
            result[static_cast<size_t>(i * padded + l)] = load(x.data, static_cast<size_t>(index), x.type);
        }
    }
    return result;
}

float dot(const float * a, const float * b, int64_t padded) {
    std::array<float, block> sums{};
    for (int64_t l = 0; l < padded; l += block) {
        for (size_t i = 0; i < block; ++i) {
            sums[i] += a[l + static_cast<int64_t>(i)] * b[l + static_cast<int64_t>(i)];
        }
    }
    for (size_t half = block / 2; half != 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) {
            sums[i] += sums[i + half];
        }
    }
    return sums[0];
}

outcome multiply(const product & p) {
    const std::shared_ptr<const allocation_map> memory = device_memory::instance().snapshot();
    std::string why = p.alpha == 0 ? "" : objection(*memory, "A", p.a, p.transposed_a ? p.k : p.m, p.transposed_a ? p.m : p.k, false);
    if (why.empty() && p.alpha != 0) {
        why = objection(*memory, "B", p.b, p.transposed_b ? p.n : p.k, p.transposed_b ? p.k : p.n, false);
    }
    if (why.empty()) {
        why = objection(*memory, "C", p.c, p.m, p.n, true);
    }
    if (!why.empty()) {
        return {hipErrorIllegalAddress, why};
    }
    const int64_t k = p.alpha == 0 ? 0 : p.k;
    const int64_t padded = (k + block - 1) / block * block;
    const std::vector<float> a = pack(p.a, p.transposed_a, p.m, k), b = pack(p.b, !p.transposed_b, p.n, k);
    for (int64_t j = 0; j < p.n; ++j) {
        for (int64_t i = 0; i < p.m; ++i) {
            const auto at = static_cast<size_t>(j * p.c.leading + i);
            float value = p.alpha * dot(a.data() + i * padded, b.data() + j * padded, padded);
            if (p.beta != 0) {  // otherwise C is not read
                value += p.beta * load(p.c.data, at, p.c.type);
            }
            store(const_cast<void *>(p.c.data), at, p.c.type, value);
        }
        const void * column = static_cast<const char *>(p.c.data) + j * p.c.leading * static_cast<int64_t>(size_of(p.c.type));
        shadow_written(reinterpret_cast<uint64_t>(column), static_cast<uint64_t>(p.m) * size_of(p.c.type));
    }
    return {};
}

/// Puts work into the handle's stream.
hipblasStatus_t submit(hipblasHandle_t handle, work run) {
    const std::shared_ptr<blas_handle> found = handles().find(handle);
    if (!found) {
        return HIPBLAS_STATUS_NOT_INITIALIZED;
    }
    std::lock_guard guard(found->lock);
    const hipError_t e = device_call([&]() -> hip_error {
        const stream_ptr stream = find_stream(found->stream);
        if (!stream) {
            return hipErrorInvalidHandle;
        }
        device_queues::instance().submit(stream, std::move(run));
        ++calls;
        return hipSuccess;
    });
    return e == hipSuccess ? HIPBLAS_STATUS_SUCCESS : HIPBLAS_STATUS_EXECUTION_FAILED;
}

bool is_operation(int op) {
    return op == HIPBLAS_OP_N || op == HIPBLAS_OP_T || op == HIPBLAS_OP_C;
}

/// The part that all products share, checked; alpha and beta are read now, as in hipBLAS's host pointer mode.
hipblasStatus_t describe(int op_a, int op_b, int m, int n, int k, const void * alpha, const matrix & a, const matrix & b, const void * beta,
                         const matrix & c, int compute_type, product & result) {
    if (!is_operation(op_a) || !is_operation(op_b) || m < 0 || n < 0 || k < 0 || alpha == nullptr || beta == nullptr) {
        return HIPBLAS_STATUS_INVALID_VALUE;
    }
    const bool ta = op_a != HIPBLAS_OP_N, tb = op_b != HIPBLAS_OP_N;
    if (a.leading < std::max(1, ta ? k : m) || b.leading < std::max(1, tb ? n : k) || c.leading < std::max(1, m)) {
        return HIPBLAS_STATUS_INVALID_VALUE;
    }
    const bool half = compute_type == HIPBLAS_COMPUTE_16F;
    if (!is_known(a.type) || !is_known(b.type) || !is_known(c.type) ||
        (!half && compute_type != HIPBLAS_COMPUTE_32F && compute_type != HIPBLAS_COMPUTE_32F_FAST_16F)) {
        return HIPBLAS_STATUS_NOT_SUPPORTED;
    }
    const int scalar = half ? HIP_R_16F : HIP_R_32F;
    result = {ta, tb, m, n, k, load(alpha, 0, scalar), load(beta, 0, scalar), a, b, c};
    return HIPBLAS_STATUS_SUCCESS;
}

const void * moved(const void * data, int64_t elements, int type) {
    return static_cast<const char *>(data) + elements * static_cast<int64_t>(size_of(type));
}

hipblasStatus_t strided(hipblasHandle_t handle, const product & p, int64_t stride_a, int64_t stride_b, int64_t stride_c, int batch_count) {
    if (batch_count < 0) {
        return HIPBLAS_STATUS_INVALID_VALUE;
    }
    return submit(handle, [=]() -> outcome {
        product one = p;
        for (int n = 0; n < batch_count; ++n) {
            one.a.data = moved(p.a.data, n * stride_a, p.a.type);
            one.b.data = moved(p.b.data, n * stride_b, p.b.type);
            one.c.data = moved(p.c.data, n * stride_c, p.c.type);
            if (outcome result = multiply(one); result.error != hipSuccess) {
                return result;
            }
        }
        return {};
    });
}

/// Whether an array of `count` pointers lies in the device's memory, where kernels may have written it; or why it does not.
std::string pointer_objection(const void * pointers, int count) {
    const std::shared_ptr<const allocation_map> memory = device_memory::instance().snapshot();
    return objection(*memory, "pointers", {pointers, HIP_R_32F, 0}, 2 * static_cast<int64_t>(count), 1, false);
}

hipblasStatus_t batched(hipblasHandle_t handle, const product & p, int batch_count) {
    if (batch_count < 0) {
        return HIPBLAS_STATUS_INVALID_VALUE;
    }
    return submit(handle, [=]() -> outcome {
        for (const void * pointers : {p.a.data, p.b.data, p.c.data}) {
            if (std::string why = pointer_objection(pointers, batch_count); !why.empty()) {
                return {hipErrorIllegalAddress, std::move(why)};
            }
        }
        product one = p;
        for (int n = 0; n < batch_count; ++n) {
            one.a.data = static_cast<const void * const *>(p.a.data)[n];
            one.b.data = static_cast<const void * const *>(p.b.data)[n];
            one.c.data = static_cast<const void * const *>(p.c.data)[n];
            if (outcome result = multiply(one); result.error != hipSuccess) {
                return result;
            }
        }
        return {};
    });
}

/// Solves op(A) X = alpha B (left) or X op(A) = alpha B (right) in B, for a triangular A of `order` rows; B is m by n.
struct triangular {
    bool left = false, upper = false, transposed = false, unit = false;
    int64_t m = 0, n = 0;
    float alpha = 0;
    matrix a, b;
};

outcome solve(const triangular & t) {
    const std::shared_ptr<const allocation_map> memory = device_memory::instance().snapshot();
    const int64_t order = t.left ? t.m : t.n, others = t.left ? t.n : t.m;
    std::string why = objection(*memory, "A", t.a, order, order, false);
    if (why.empty()) {
        why = objection(*memory, "B", t.b, t.m, t.n, true);
    }
    if (!why.empty()) {
        return {hipErrorIllegalAddress, why};
    }
    const auto * a = static_cast<const float *>(t.a.data);
    auto * b = static_cast<float *>(const_cast<void *>(t.b.data));
    // Both sides as M x = b for one vector after the other: M is op(A), or its transpose when X stands left of it.
    const bool by_rows = t.transposed == t.left;  // M[i][j] is A[j][i]
    const auto m_at = [&](int64_t i, int64_t j) { return by_rows ? a[i * t.a.leading + j] : a[j * t.a.leading + i]; };
    const bool m_is_upper = t.upper != by_rows;
    for (int64_t v = 0; v < others; ++v) {
        const auto x_at = [&](int64_t i) -> float & { return t.left ? b[v * t.b.leading + i] : b[i * t.b.leading + v]; };
        for (int64_t step = 0; step < order; ++step) {
            const int64_t i = m_is_upper ? order - 1 - step : step;
            float value = t.alpha * x_at(i);
            for (int64_t done = 0; done < step; ++done) {
                const int64_t j = m_is_upper ? order - 1 - done : done;
                value -= m_at(i, j) * x_at(j);
            }
            x_at(i) = t.unit ? value : value / m_at(i, i);
        }
    }
    return {};
}

}  // namespace

uint64_t strata_emulator_blas_calls() {
    return calls;
}

hipblasStatus_t hipblasCreate(hipblasHandle_t * handle) {
    if (handle == nullptr) {
        return HIPBLAS_STATUS_INVALID_VALUE;
    }
    *handle = handles().add(std::make_shared<blas_handle>());
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasDestroy(hipblasHandle_t handle) {
    return handles().remove(handle) ? HIPBLAS_STATUS_SUCCESS : HIPBLAS_STATUS_NOT_INITIALIZED;
}

hipblasStatus_t hipblasSetStream(hipblasHandle_t handle, hipStream_t stream) {
    const std::shared_ptr<blas_handle> found = handles().find(handle);
    if (!found) {
        return HIPBLAS_STATUS_NOT_INITIALIZED;
    }
    std::lock_guard guard(found->lock);
    found->stream = stream;
    return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t hipblasGemmStridedBatchedEx(hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const void * alpha,
                                            const void * a, int type_a, int lda, hipblasStride stride_a, const void * b, int type_b,
                                            int ldb, hipblasStride stride_b, const void * beta, void * c, int type_c, int ldc,
                                            hipblasStride stride_c, int batch_count, int compute_type, int) {
    product p;
    const hipblasStatus_t status = describe(op_a, op_b, m, n, k, alpha, {a, type_a, lda}, {b, type_b, ldb}, beta, {c, type_c, ldc},
                                            compute_type, p);
    return status == HIPBLAS_STATUS_SUCCESS ? strided(handle, p, stride_a, stride_b, stride_c, batch_count) : status;
}

hipblasStatus_t hipblasGemmBatchedEx(hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const void * alpha, const void * a[],
                                     int type_a, int lda, const void * b[], int type_b, int ldb, const void * beta, void * c[], int type_c,
                                     int ldc, int batch_count, int compute_type, int) {
    product p;
    const hipblasStatus_t status = describe(op_a, op_b, m, n, k, alpha, {a, type_a, lda}, {b, type_b, ldb}, beta, {c, type_c, ldc},
                                            compute_type, p);
    return status == HIPBLAS_STATUS_SUCCESS ? batched(handle, p, batch_count) : status;
}

hipblasStatus_t hipblasGemmEx(hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const void * alpha, const void * a, int type_a,
                              int lda, const void * b, int type_b, int ldb, const void * beta, void * c, int type_c, int ldc,
                              int compute_type, int algo) {
    return hipblasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c, type_c, ldc, 0, 1,
                                       compute_type, algo);
}

hipblasStatus_t hipblasSgemm(hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const float * alpha, const float * a, int lda,
                             const float * b, int ldb, const float * beta, float * c, int ldc) {
    return hipblasSgemmStridedBatched(handle, op_a, op_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}

hipblasStatus_t hipblasSgemmStridedBatched(hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const float * alpha,
                                           const float * a, int lda, hipblasStride stride_a, const float * b, int ldb,
                                           hipblasStride stride_b, const float * beta, float * c, int ldc, hipblasStride stride_c,
                                           int batch_count) {
    return hipblasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, HIP_R_32F, lda, stride_a, b, HIP_R_32F, ldb, stride_b, beta, c,
                                       HIP_R_32F, ldc, stride_c, batch_count, HIPBLAS_COMPUTE_32F, 0);
}

hipblasStatus_t hipblasSgemmBatched(hipblasHandle_t handle, int op_a, int op_b, int m, int n, int k, const float * alpha,
                                    const float * const a[], int lda, const float * const b[], int ldb, const float * beta,
                                    float * const c[], int ldc, int batch_count) {
    product p;
    const hipblasStatus_t status = describe(op_a, op_b, m, n, k, alpha, {a, HIP_R_32F, lda}, {b, HIP_R_32F, ldb}, beta, {c, HIP_R_32F, ldc},
                                            HIPBLAS_COMPUTE_32F, p);
    return status == HIPBLAS_STATUS_SUCCESS ? batched(handle, p, batch_count) : status;
}

hipblasStatus_t hipblasStrsmBatched(hipblasHandle_t handle, int side, int uplo, int op_a, int diag, int m, int n, const float * alpha,
                                    const float * const a[], int lda, float * const b[], int ldb, int batch_count) {
    const bool left = side == HIPBLAS_SIDE_LEFT;
    if ((!left && side != HIPBLAS_SIDE_RIGHT) || (uplo != HIPBLAS_FILL_MODE_UPPER && uplo != HIPBLAS_FILL_MODE_LOWER) ||
        !is_operation(op_a) || (diag != HIPBLAS_DIAG_NON_UNIT && diag != HIPBLAS_DIAG_UNIT) || m < 0 || n < 0 || alpha == nullptr ||
        lda < std::max(1, left ? m : n) || ldb < std::max(1, m) || batch_count < 0) {
        return HIPBLAS_STATUS_INVALID_VALUE;
    }
    const triangular t = {left, uplo == HIPBLAS_FILL_MODE_UPPER, op_a != HIPBLAS_OP_N, diag == HIPBLAS_DIAG_UNIT, m, n, *alpha,
                          {nullptr, HIP_R_32F, lda}, {nullptr, HIP_R_32F, ldb}};
    return submit(handle, [=]() -> outcome {
        for (const void * pointers : {static_cast<const void *>(a), static_cast<const void *>(b)}) {
            if (std::string why = pointer_objection(pointers, batch_count); !why.empty()) {
                return {hipErrorIllegalAddress, std::move(why)};
            }
        }
        for (int i = 0; i < batch_count; ++i) {
            triangular one = t;
            one.a.data = a[i];
            one.b.data = b[i];
            if (outcome result = solve(one); result.error != hipSuccess) {
                return result;
            }
        }
        return {};
    });
}

}  // namespace strata
