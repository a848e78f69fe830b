// Debian's HIP 5.2 calls, and what HIP 6 and 7 changed among those that ggml makes. All other names, signatures and values
// are the same in both.
#pragma once
#include_next <hip/hip_runtime_api.h>
#include <stddef.h>

// HIP 6 has another structure of device properties, and another symbol for it. Of its 1472 bytes the members that ggml reads.
struct hipDeviceProp_tR0600 {
    char name[256];
    char peer_gap_1[32];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    char peer_gap_2[48];
    int major;
    int minor;
    char peer_gap_3[20];
    int multiProcessorCount;
    int kernelExecTimeoutEnabled;
    int integrated;
    char peer_gap_4[760];
    char gcnArchName[256];
    char peer_gap_5[56];
};
#define PEER_AT(member, offset) static_assert(offsetof(hipDeviceProp_tR0600, member) == offset, "HIP 6 has " #member " elsewhere")
PEER_AT(totalGlobalMem, 288);
PEER_AT(sharedMemPerBlock, 296);
PEER_AT(warpSize, 308);
PEER_AT(major, 360);
PEER_AT(minor, 364);
PEER_AT(multiProcessorCount, 388);
PEER_AT(integrated, 396);
PEER_AT(gcnArchName, 1160);
static_assert(sizeof(hipDeviceProp_tR0600) == 1472, "HIP 6 has another size");
#undef PEER_AT

extern "C" hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 * prop, int device);
#define hipDeviceProp_t hipDeviceProp_tR0600
#define hipGetDeviceProperties hipGetDevicePropertiesR0600

// The flags may be left out.
static inline hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event) {
    return hipStreamWaitEvent(stream, event, 0);
}

#define hipHostRegisterReadOnly 0x08
