// A device that is wrong: the emulator, but some launches never happen, or calls fail. It is linked against libstrata-emulator.so, which has what is not
// here.
//
// FAULT_KERNEL=name     launches of kernels whose names hold this are the ones that may be lost
// FAULT_WHEN=always     all of them are
//            sometimes  one in 40, not the same ones in another run
//            overlap    those that come while the launch before has not been waited for, as where a wait is missing
// FAULT_CALL=name       this one fails: hipStreamBeginCapture, hipStreamEndCapture, hipGraphInstantiate, hipGraphLaunch; or "capture":
//                       launches into a stream that is being captured
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void * marked[4096];
static int n_marked, running;
static unsigned state = 1;

static void * real(const char * name) {
    return dlsym(RTLD_NEXT, name);
}

static const int not_supported = 801;

static int fails(const char * call) {
    const char * faulty = getenv("FAULT_CALL");
    return faulty && strcmp(faulty, call) == 0;
}

int hipStreamBeginCapture(void * stream, int mode) {
    int (*begin)(void *, int) = real("hipStreamBeginCapture");
    return fails("hipStreamBeginCapture") ? not_supported : begin(stream, mode);
}

int hipStreamEndCapture(void * stream, void ** graph) {
    int (*end)(void *, void **) = real("hipStreamEndCapture");
    int code = end(stream, graph);
    if (fails("hipStreamEndCapture")) {
        *graph = NULL;
        return not_supported;
    }
    return code;
}

int hipGraphInstantiate(void ** exec, void * graph, void ** node, char * log, size_t size) {
    int (*instantiate)(void **, void *, void **, char *, size_t) = real("hipGraphInstantiate");
    return fails("hipGraphInstantiate") ? not_supported : instantiate(exec, graph, node, log, size);
}

int hipGraphLaunch(void * exec, void * stream) {
    int (*launch)(void *, void *) = real("hipGraphLaunch");
    return fails("hipGraphLaunch") ? not_supported : launch(exec, stream);
}

int hipModuleGetFunction(void ** function, void * module, const char * name) {
    int (*get)(void **, void *, const char *) = real("hipModuleGetFunction");
    int code = get(function, module, name);
    const char * faulty = getenv("FAULT_KERNEL");
    if (code == 0 && faulty && strstr(name, faulty) && n_marked < 4096) {
        marked[n_marked++] = *function;
    }
    return code;
}

static int is_lost(void * function) {
    const char * when = getenv("FAULT_WHEN") ? getenv("FAULT_WHEN") : "";
    int found = 0;
    for (int i = 0; i < n_marked; ++i) {
        found |= marked[i] == function;
    }
    pthread_mutex_lock(&mutex);
    int overlaps = running;
    running = 1;
    state = found ? state * 1103515245u + 12345u : state;
    unsigned drawn = state >> 16;
    pthread_mutex_unlock(&mutex);
    return found && (strcmp(when, "always") == 0 || (strcmp(when, "sometimes") == 0 && drawn % 40 == 0) ||
                     (strcmp(when, "overlap") == 0 && overlaps));
}

int hipModuleLaunchKernel(void * function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                          void * stream, void ** params, void ** extra) {
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        real("hipModuleLaunchKernel");
    int (*is_capturing)(void *, int *) = real("hipStreamIsCapturing");
    int capturing = 0;
    if (fails("capture") && is_capturing(stream, &capturing) == 0 && capturing) {
        return not_supported;
    }
    return is_lost(function) ? 0 : launch(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

int hipStreamSynchronize(void * stream) {
    int (*synchronize)(void *) = real("hipStreamSynchronize");
    int code = synchronize(stream);
    pthread_mutex_lock(&mutex);
    running = 0;
    pthread_mutex_unlock(&mutex);
    return code;
}
