// A device that is wrong: the emulator, but some launches never happen. It is linked against libstrata-emulator.so, which has what is not
// here.
//
// FAULT_KERNEL=name     launches of kernels whose names hold this are the ones that may be lost
// FAULT_WHEN=always     all of them are
//            sometimes  one in 40, not the same ones in another run
//            overlap    those that come while the launch before has not been waited for, as where a wait is missing
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

int hipModuleGetFunction(void ** function, void * module, const char * name) {
    int (*get)(void **, void *, const char *) = real("hipModuleGetFunction");
    int code = get(function, module, name);
    if (code == 0 && strstr(name, getenv("FAULT_KERNEL")) && n_marked < 4096) {
        marked[n_marked++] = *function;
    }
    return code;
}

static int is_lost(void * function) {
    const char * when = getenv("FAULT_WHEN");
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
