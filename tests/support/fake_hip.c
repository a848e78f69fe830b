// A HIP library without a GPU, for tests of how the plugin finds, refuses and reports devices. Everything succeeds at once,
// kernels do nothing. Environment: FAKE_HIP_ARCHS=gfx1150,gfx1151 (one device each; empty: none),
// FAKE_HIP_VERSION (hipRuntimeGetVersion), FAKE_HIP_FAIL=name:error (that function returns the error).
// fake_hip_before_launch is called at the begin of a launch; fake_hip_running is the stream of a launch not waited for yet.
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int error_of(const char * function) {
    const char * fail = getenv("FAKE_HIP_FAIL");
    const size_t length = strlen(function);
    return fail && strncmp(fail, function, length) == 0 && fail[length] == ':' ? atoi(fail + length + 1) : 0;
}

// FAKE(name, (parameters), body): returns the error asked for, otherwise runs the body and succeeds.
#define FAKE(name, parameters, ...) \
    int name parameters { \
        const int error = error_of(#name); \
        if (error == 0) { __VA_ARGS__; } \
        return error; \
    }

void (*fake_hip_before_launch)(void) = NULL;
void * fake_hip_running = NULL;

static void launch(void * stream) {
    if (fake_hip_before_launch) {
        fake_hip_before_launch();
    }
    fake_hip_running = stream;
}

static int arch(int index, char * text, size_t size) {
    const char * list = getenv("FAKE_HIP_ARCHS");
    int count = 0;
    while (list && *list) {
        const size_t length = strcspn(list, ",");
        if (count++ == index && text) {
            snprintf(text, size, "%.*s:xnack-", (int) length, list);
        }
        list += length + (list[length] == ',');
    }
    return count;
}

static void rows(char * dst, size_t dpitch, const char * src, size_t spitch, size_t width, size_t height) {
    for (size_t i = 0; i < height; ++i) {
        memcpy(dst + i * dpitch, src + i * spitch, width);
    }
}

FAKE(hipInit, (unsigned flags), (void) flags)
FAKE(hipDriverGetVersion, (int * version), *version = 60400000)
FAKE(hipRuntimeGetVersion, (int * version), *version = getenv("FAKE_HIP_VERSION") ? atoi(getenv("FAKE_HIP_VERSION")) : 60400000)
FAKE(hipGetDeviceCount, (int * count), *count = arch(-1, NULL, 0))
FAKE(hipSetDevice, (int device), (void) device)
FAKE(hipGetDevice, (int * device), *device = 0)
FAKE(hipGetDevicePropertiesR0600, (char * prop, int device), strcpy(prop, "Fake Radeon"); arch(device, prop + 1160, 256))
FAKE(hipDeviceGetAttribute, (int * value, int attribute, int device), (void) device; *value = attribute == 10015 ? 40 : 20)
FAKE(hipDeviceGetPCIBusId, (char * id, int length, int device), snprintf(id, length, "0000:C%d:00.0", device))
FAKE(hipDeviceSynchronize, (void), )
FAKE(hipMemGetInfo, (size_t * free, size_t * total), *free = (size_t) 3 << 30; *total = (size_t) 4 << 30)
FAKE(hipMalloc, (void ** pointer, size_t size), *pointer = aligned_alloc(256, (size + 255) / 256 * 256))
FAKE(hipFree, (void * pointer), free(pointer))
FAKE(hipHostMalloc, (void ** pointer, size_t size, unsigned flags), (void) flags; *pointer = aligned_alloc(4096, (size + 4095) / 4096 * 4096))
FAKE(hipHostFree, (void * pointer), free(pointer))
FAKE(hipMemcpy, (void * dst, const void * src, size_t size, int kind), (void) kind; memmove(dst, src, size))
FAKE(hipMemcpyAsync, (void * dst, const void * src, size_t size, int kind, void * stream), (void) kind; (void) stream; memmove(dst, src, size))
FAKE(hipMemcpy2DAsync, (void * dst, size_t dpitch, const void * src, size_t spitch, size_t width, size_t height, int kind, void * stream),
    (void) kind; (void) stream; rows(dst, dpitch, src, spitch, width, height))
FAKE(hipMemset, (void * dst, int value, size_t size), memset(dst, value, size))
FAKE(hipMemsetAsync, (void * dst, int value, size_t size, void * stream), (void) stream; memset(dst, value, size))
FAKE(hipStreamCreateWithFlags, (void ** stream, unsigned flags), (void) flags; *stream = malloc(1))
FAKE(hipStreamDestroy, (void * stream), free(stream))
FAKE(hipStreamSynchronize, (void * stream), if (stream == fake_hip_running) fake_hip_running = NULL)
FAKE(hipStreamQuery, (void * stream), (void) stream)
FAKE(hipStreamWaitEvent, (void * stream, void * event, unsigned flags), (void) stream; (void) event; (void) flags)
FAKE(hipEventCreateWithFlags, (void ** event, unsigned flags), (void) flags; *event = malloc(1))
FAKE(hipEventDestroy, (void * event), free(event))
FAKE(hipEventRecord, (void * event, void * stream), (void) event; (void) stream)
FAKE(hipEventSynchronize, (void * event), (void) event)
FAKE(hipEventQuery, (void * event), (void) event)
FAKE(hipEventElapsedTime, (float * ms, void * start, void * stop), (void) start; (void) stop; *ms = 0)
FAKE(hipModuleLoadData, (void ** module, const void * image), (void) image; *module = malloc(1))
FAKE(hipModuleUnload, (void * module), free(module))
FAKE(hipModuleGetFunction, (void ** function, void * module, const char * name), (void) name; *function = module)
#ifndef FAKE_HIP_WITHOUT_LAUNCH
FAKE(hipModuleLaunchKernel, (void * function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
    void * stream, void ** params, void ** extra),
    (void) function; (void) gx; (void) gy; (void) gz; (void) bx; (void) by; (void) bz; (void) shared; (void) params; (void) extra; launch(stream))
#endif
FAKE(hipGetLastError, (void), )

const char * hipGetErrorName(int error) {
    switch (error) {
        case 0:   return "hipSuccess";
        case 2:   return "hipErrorOutOfMemory";
        case 700: return "hipErrorIllegalAddress";
        default:  return "hipErrorUnknown";
    }
}

const char * hipGetErrorString(int error) {
    return error == 2 ? "out of memory" : "something";
}
