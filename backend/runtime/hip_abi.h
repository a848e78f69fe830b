// HIP's C ABI, as much of it as strata-hip uses: declared here so that no ROCm header is needed to build.
// The plugin fills a hip_api table from a library at run time; the emulator defines the same functions.
// Values and layouts are those of HIP 6.2 to 7.1 (tests/emulator compares them with public headers).
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata {

using hipError_t = int;
using hipStream_t = struct ihipStream_t *;
using hipEvent_t = struct ihipEvent_t *;
using hipModule_t = struct ihipModule_t *;
using hipFunction_t = struct ihipModuleSymbol_t *;
using hipGraph_t = struct ihipGraph *;
using hipGraphExec_t = struct hipGraphExec *;
using hipGraphNode_t = struct hipGraphNode *;

enum hip_error : int {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorNotInitialized = 3,
    hipErrorDeinitialized = 4,
    hipErrorInvalidConfiguration = 9,
    hipErrorInvalidPitchValue = 12,
    hipErrorInvalidDevicePointer = 17,
    hipErrorInvalidMemcpyDirection = 21,
    hipErrorInvalidDeviceFunction = 98,
    hipErrorNoDevice = 100,
    hipErrorInvalidDevice = 101,
    hipErrorInvalidImage = 200,
    hipErrorInvalidContext = 201,
    hipErrorNoBinaryForGpu = 209,
    hipErrorFileNotFound = 301,
    hipErrorInvalidHandle = 400,
    hipErrorIllegalState = 401,
    hipErrorNotFound = 500,
    hipErrorNotReady = 600,
    hipErrorIllegalAddress = 700,
    hipErrorLaunchOutOfResources = 701,
    hipErrorLaunchTimeOut = 702,
    hipErrorPeerAccessNotEnabled = 705,
    hipErrorHostMemoryAlreadyRegistered = 712,
    hipErrorHostMemoryNotRegistered = 713,
    hipErrorLaunchFailure = 719,
    hipErrorCooperativeLaunchTooLarge = 720,
    hipErrorNotSupported = 801,
    hipErrorStreamCaptureUnsupported = 900,
    hipErrorStreamCaptureUnmatched = 903,
    hipErrorStreamCaptureIsolation = 905,
    hipErrorCapturedEvent = 907,
    hipErrorGraphExecUpdateFailure = 910,
    hipErrorUnknown = 999,
};

enum hip_memcpy_kind : int {
    hipMemcpyHostToHost = 0,
    hipMemcpyHostToDevice = 1,
    hipMemcpyDeviceToHost = 2,
    hipMemcpyDeviceToDevice = 3,
    hipMemcpyDefault = 4,
};

enum : unsigned {
    hipStreamNonBlocking = 1,
    hipEventDefault = 0,
    hipEventDisableTiming = 2,
    hipHostMallocDefault = 0,
    hipStreamCaptureModeRelaxed = 2,
};

// The `extra` array of hipModuleLaunchKernel.
inline void * const HIP_LAUNCH_PARAM_BUFFER_POINTER = reinterpret_cast<void *>(1);
inline void * const HIP_LAUNCH_PARAM_BUFFER_SIZE = reinterpret_cast<void *>(2);
inline void * const HIP_LAUNCH_PARAM_END = reinterpret_cast<void *>(3);

// hipDeviceProp_tR0600: 1472 bytes, of which the members used here have these offsets.
struct hipDeviceProp_tR0600 {
    char name[256];
    unsigned char other[1472 - 256];
};
constexpr std::size_t hip_prop_gcn_arch_name_offset = 1160;  // char[256]

}  // namespace strata

// STRATA_HIP_FUNCTIONS(X): X(result, name, (parameters)) for every function that is needed.
#define STRATA_HIP_FUNCTIONS(X) \
    X(hipError_t, hipInit, (unsigned flags)) \
    X(hipError_t, hipDriverGetVersion, (int * version)) \
    X(hipError_t, hipRuntimeGetVersion, (int * version)) \
    X(hipError_t, hipGetDeviceCount, (int * count)) \
    X(hipError_t, hipSetDevice, (int device)) \
    X(hipError_t, hipGetDevice, (int * device)) \
    X(hipError_t, hipGetDevicePropertiesR0600, (hipDeviceProp_tR0600 * prop, int device)) \
    X(hipError_t, hipDeviceGetAttribute, (int * value, int attribute, int device)) \
    X(hipError_t, hipDeviceGetPCIBusId, (char * id, int length, int device)) \
    X(hipError_t, hipDeviceSynchronize, (void)) \
    X(hipError_t, hipMemGetInfo, (std::size_t * free, std::size_t * total)) \
    X(hipError_t, hipMalloc, (void ** pointer, std::size_t size)) \
    X(hipError_t, hipFree, (void * pointer)) \
    X(hipError_t, hipHostMalloc, (void ** pointer, std::size_t size, unsigned flags)) \
    X(hipError_t, hipHostFree, (void * pointer)) \
    X(hipError_t, hipMemcpy, (void * dst, const void * src, std::size_t size, int kind)) \
    X(hipError_t, hipMemcpyAsync, (void * dst, const void * src, std::size_t size, int kind, hipStream_t stream)) \
    X(hipError_t, hipMemcpy2DAsync, (void * dst, std::size_t dpitch, const void * src, std::size_t spitch, std::size_t width, std::size_t height, int kind, hipStream_t stream)) \
    X(hipError_t, hipMemset, (void * dst, int value, std::size_t size)) \
    X(hipError_t, hipMemsetAsync, (void * dst, int value, std::size_t size, hipStream_t stream)) \
    X(hipError_t, hipStreamCreateWithFlags, (hipStream_t * stream, unsigned flags)) \
    X(hipError_t, hipStreamDestroy, (hipStream_t stream)) \
    X(hipError_t, hipStreamSynchronize, (hipStream_t stream)) \
    X(hipError_t, hipStreamQuery, (hipStream_t stream)) \
    X(hipError_t, hipStreamWaitEvent, (hipStream_t stream, hipEvent_t event, unsigned flags)) \
    X(hipError_t, hipEventCreateWithFlags, (hipEvent_t * event, unsigned flags)) \
    X(hipError_t, hipEventDestroy, (hipEvent_t event)) \
    X(hipError_t, hipEventRecord, (hipEvent_t event, hipStream_t stream)) \
    X(hipError_t, hipEventSynchronize, (hipEvent_t event)) \
    X(hipError_t, hipEventQuery, (hipEvent_t event)) \
    X(hipError_t, hipEventElapsedTime, (float * ms, hipEvent_t start, hipEvent_t stop)) \
    X(hipError_t, hipModuleLoadData, (hipModule_t * module, const void * image)) \
    X(hipError_t, hipModuleUnload, (hipModule_t module)) \
    X(hipError_t, hipModuleGetFunction, (hipFunction_t * function, hipModule_t module, const char * name)) \
    X(hipError_t, hipModuleLaunchKernel, (hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, hipStream_t stream, void ** params, void ** extra)) \
    X(hipError_t, hipGetLastError, (void)) \
    X(const char *, hipGetErrorName, (hipError_t error)) \
    X(const char *, hipGetErrorString, (hipError_t error))

// STRATA_HIP_OPTIONAL_FUNCTIONS(X): the same for functions that are used where the library has them.
#define STRATA_HIP_OPTIONAL_FUNCTIONS(X) \
    X(hipError_t, hipStreamBeginCapture, (hipStream_t stream, int mode)) \
    X(hipError_t, hipStreamEndCapture, (hipStream_t stream, hipGraph_t * graph)) \
    X(hipError_t, hipGraphInstantiate, (hipGraphExec_t * exec, hipGraph_t graph, hipGraphNode_t * error_node, char * log, std::size_t log_size)) \
    X(hipError_t, hipGraphLaunch, (hipGraphExec_t exec, hipStream_t stream)) \
    X(hipError_t, hipGraphDestroy, (hipGraph_t graph)) \
    X(hipError_t, hipGraphExecDestroy, (hipGraphExec_t exec))

namespace strata {

// One pointer a function, named as the function without its prefix "hip"... kept whole so that a search finds it.
// Optional ones that the library does not have are null.
struct hip_api {
#define STRATA_X(result, name, parameters) result (*name) parameters = nullptr;
    STRATA_HIP_FUNCTIONS(STRATA_X)
    STRATA_HIP_OPTIONAL_FUNCTIONS(STRATA_X)
#undef STRATA_X
};

}  // namespace strata
