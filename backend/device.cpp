// Device properties, and what it can compute.
#include "device.h"

#include "stream.h"

namespace strata {

namespace {

device & of(ggml_backend_dev_t dev) {
    return *static_cast<device *>(dev->context);
}

const char * get_name(ggml_backend_dev_t dev) {
    return of(dev).target.name.c_str();
}

const char * get_description(ggml_backend_dev_t dev) {
    return of(dev).target.description.c_str();
}

void get_memory(ggml_backend_dev_t dev, std::size_t * free, std::size_t * total) {
    if (guarded([&] { of(dev).target.memory(free, total); }) != GGML_STATUS_SUCCESS) {
        *free = 0;
        *total = 0;
    }
}

/// An APU is called GPU, not IGPU: llama.cpp leaves integrated GPUs unused as soon as any other registry has a GPU.
enum ggml_backend_dev_type get_type(ggml_backend_dev_t) {
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

void get_props(ggml_backend_dev_t dev, ggml_backend_dev_props * props) {
    const gpu & target = of(dev).target;
    props->name = get_name(dev);
    props->description = get_description(dev);
    get_memory(dev, &props->memory_free, &props->memory_total);
    props->type = get_type(dev);
    props->device_id = target.pci_id.empty() ? nullptr : target.pci_id.c_str();
    props->caps = {
        /* .async                = */ true,
        /* .host_buffer          = */ true,
        /* .buffer_from_host_ptr = */ false,
        /* .events               = */ true,
        // Weights are copied to the device in any case. Read through pinned buffers, a file passes through memory once;
        // mapped, its pages would compete with the very same memory that an APU's weights are in.
        /* .mmap_support         = */ false,
    };
}

ggml_backend_t init_backend(ggml_backend_dev_t dev, const char *) {
    return make_backend(of(dev).target, dev);
}

ggml_backend_buffer_type_t get_buffer_type(ggml_backend_dev_t dev) {
    return &of(dev).types.device;
}

ggml_backend_buffer_type_t get_host_buffer_type(ggml_backend_dev_t dev) {
    return &of(dev).types.host;
}

bool supports_op(ggml_backend_dev_t dev, const ggml_tensor * op) {
    return op_refusal(of(dev).target.caps, op) == nullptr;
}

/// Own memory only: pinned host memory would let a running graph read what the CPU is writing.
bool supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type) {
    return is_type_of(of(dev).target, type);
}

ggml_backend_event_t event_new(ggml_backend_dev_t dev) {
    return make_event(of(dev).target, dev);
}

void event_free(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    free_event(of(dev).target, event);
}

void event_synchronize(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    synchronize_event(of(dev).target, event);
}

}  // namespace

device::device(const hip_library & library, int index, int ordinal, ggml_backend_reg_t registry)
    : target(library, index, ordinal),
      ggml{
          /* .iface = */ {
              /* .get_name             = */ get_name,
              /* .get_description      = */ get_description,
              /* .get_memory           = */ get_memory,
              /* .get_type             = */ get_type,
              /* .get_props            = */ get_props,
              /* .init_backend         = */ init_backend,
              /* .get_buffer_type      = */ get_buffer_type,
              /* .get_host_buffer_type = */ get_host_buffer_type,
              /* .buffer_from_host_ptr = */ nullptr,
              /* .supports_op          = */ supports_op,
              /* .supports_buft        = */ supports_buft,
              /* .offload_op           = */ nullptr,
              /* .event_new            = */ event_new,
              /* .event_free           = */ event_free,
              /* .event_synchronize    = */ event_synchronize,
          },
          /* .reg     = */ registry,
          /* .context = */ this,
      } {
    make_buffer_types(types, target, &ggml);
}

}  // namespace strata
