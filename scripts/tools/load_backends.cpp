// Linked into programs of llama.cpp that look for backends when an argument names a device: this build's RPC backend is a library of its
// own, so --rpc would be told that there is none, whatever follows it.
#include "ggml-backend.h"

namespace {

__attribute__((constructor)) void load() {
    ggml_backend_load_all();
}

}  // namespace
