// Buffers. Device memory comes from hipMalloc; host access to it is ordered after all work the device was given before,
// and complete when the call returns.
#include "buffer.h"

#include <cctype>
#include <cstdlib>
#include <cstring>

#include "runtime/queue.h"

namespace strata {

namespace {

struct device_buffer {
    gpu & device;
    device_memory memory;
};

struct buffer_type_context {
    gpu & device;
    std::string name;
};

constexpr std::size_t tensor_alignment = 256;

device_buffer & of(ggml_backend_buffer_t buffer) {
    return *static_cast<device_buffer *>(buffer->context);
}

gpu & of(ggml_backend_buffer_type_t type) {
    return static_cast<buffer_type_context *>(type->context)->device;
}

char * at(const ggml_tensor * tensor, std::size_t offset) {
    return static_cast<char *>(tensor->data) + offset;
}

/// A transfer in a function that cannot return an error: reported, and visible as a false result.
template <class Body>
bool transferred(gpu & device, Body && body) {
    return guarded([&] {
        device.activate();
        device.transfer(body);
    }) == GGML_STATUS_SUCCESS;
}

void free_buffer(ggml_backend_buffer_t buffer) {
    delete &of(buffer);
}

void * get_base(ggml_backend_buffer_t buffer) {
    return of(buffer).memory.data();
}

ggml_status init_tensor(ggml_backend_buffer_t buffer, ggml_tensor * tensor) {
    return guarded([&] {
        const char * base = static_cast<const char *>(of(buffer).memory.data());
        const char * data = static_cast<const char *>(tensor->data);
        if (data < base || data + ggml_nbytes(tensor) > base + buffer->size) {
            throw failure(format("tensor %s (%s) lies outside its buffer of %s", tensor->name, readable_size(ggml_nbytes(tensor)).c_str(),
                readable_size(buffer->size).c_str()));
        }
    });
}

void memset_tensor(ggml_backend_buffer_t buffer, ggml_tensor * tensor, uint8_t value, std::size_t offset, std::size_t size) {
    transferred(of(buffer).device, [&](queue & work) { work.fill(at(tensor, offset), value, size); });
}

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor * tensor, const void * data, std::size_t offset, std::size_t size) {
    transferred(of(buffer).device, [&](queue & work) { work.upload(at(tensor, offset), data, size); });
}

void get_tensor(ggml_backend_buffer_t buffer, const ggml_tensor * tensor, void * data, std::size_t offset, std::size_t size) {
    if (!transferred(of(buffer).device, [&](queue & work) { work.download(data, at(tensor, offset), size); })) {
        std::memset(data, 0xff, size);  // not a number: a failed read must not look like a result
    }
}

void set_tensor_2d(ggml_backend_buffer_t buffer, ggml_tensor * tensor, const void * data, std::size_t offset, std::size_t size,
        std::size_t rows, std::size_t stride_tensor, std::size_t stride_data) {
    transferred(of(buffer).device, [&](queue & work) { work.upload_2d(at(tensor, offset), stride_tensor, data, stride_data, size, rows); });
}

void get_tensor_2d(ggml_backend_buffer_t buffer, const ggml_tensor * tensor, void * data, std::size_t offset, std::size_t size,
        std::size_t rows, std::size_t stride_tensor, std::size_t stride_data) {
    const bool done = transferred(of(buffer).device,
        [&](queue & work) { work.download_2d(data, stride_data, at(tensor, offset), stride_tensor, size, rows); });
    for (std::size_t row = 0; !done && row < rows; ++row) {
        std::memset(static_cast<char *>(data) + row * stride_data, 0xff, size);
    }
}

bool cpy_tensor(ggml_backend_buffer_t buffer, const ggml_tensor * src, ggml_tensor * dst) {
    gpu & device = of(buffer).device;
    const ggml_backend_buffer_t from = src->view_src ? src->view_src->buffer : src->buffer;
    if (from == nullptr || !is_buffer_of(device, from)) {
        return false;
    }
    return transferred(device, [&](queue & work) { work.copy(dst->data, src->data, ggml_nbytes(src)); });
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    transferred(of(buffer).device, [&](queue & work) { work.fill(of(buffer).memory.data(), value, buffer->size); });
}

const ggml_backend_buffer_i device_buffer_interface = {
    /* .free_buffer   = */ free_buffer,
    /* .get_base      = */ get_base,
    /* .init_tensor   = */ init_tensor,
    /* .memset_tensor = */ memset_tensor,
    /* .set_tensor    = */ set_tensor,
    /* .get_tensor    = */ get_tensor,
    /* .set_tensor_2d = */ set_tensor_2d,
    /* .get_tensor_2d = */ get_tensor_2d,
    /* .cpy_tensor    = */ cpy_tensor,
    /* .clear         = */ clear,
    /* .reset         = */ nullptr,  // tensors carry no state of ours
};

const char * get_name(ggml_backend_buffer_type_t type) {
    return static_cast<buffer_type_context *>(type->context)->name.c_str();
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, std::size_t size) {
    ggml_backend_buffer_t buffer = nullptr;
    guarded([&] {
        gpu & device = of(type);
        auto * mine = new device_buffer{device, {device, size, "buffer"}};
        buffer = ggml_backend_buffer_init(type, device_buffer_interface, mine, size);
    });
    return buffer;
}

std::size_t get_alignment(ggml_backend_buffer_type_t) {
    return tensor_alignment;
}

/// Large models are split into buffers of this size: a driver that has 110 GB free may not give 97 GB in one piece.
std::size_t get_max_size(ggml_backend_buffer_type_t) {
    const char * megabytes = std::getenv("STRATA_MAX_BUFFER_MB");
    if (megabytes && *megabytes) {
        char * end = nullptr;
        const unsigned long long value = std::strtoull(megabytes, &end, 10);
        if (std::isdigit(static_cast<unsigned char>(*megabytes)) && *end == '\0' && value > 0 && value < (1ull << 40)) {
            return static_cast<std::size_t>(value) << 20;
        }
        report(format("STRATA_MAX_BUFFER_MB=%s is not a number of MiB: 8192 is used", megabytes).c_str());
    }
    return std::size_t{8} << 30;
}

void free_host_buffer(ggml_backend_buffer_t buffer) {
    gpu & device = of(buffer->buft);
    guarded([&] {
        device.activate();
        device.wait_for_queues();  // an asynchronous read may still be writing into it
        device.check(device.hip.hipHostFree(buffer->context), "hipHostFree", buffer->size);
    });
}

ggml_backend_buffer_t alloc_host_buffer(ggml_backend_buffer_type_t type, std::size_t size) {
    ggml_backend_buffer_t buffer = nullptr;
    guarded([&] {
        gpu & device = of(type);
        device.activate();
        void * memory = nullptr;
        device.check(device.hip.hipHostMalloc(&memory, size, hipHostMallocDefault), "hipHostMalloc", size, "pinned host buffer");
        buffer = ggml_backend_cpu_buffer_from_ptr(memory, size);
        buffer->buft = type;
        buffer->iface.free_buffer = free_host_buffer;
    });
    return buffer;
}

std::size_t get_host_alignment(ggml_backend_buffer_type_t) {
    return ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type());
}

bool is_host(ggml_backend_buffer_type_t) {
    return true;
}

}  // namespace

void make_buffer_types(buffer_types & types, gpu & target, ggml_backend_dev_t owner) {
    // the contexts live as long as the process, like the device
    types.device = {
        /* .iface = */ {
            /* .get_name       = */ get_name,
            /* .alloc_buffer   = */ alloc_buffer,
            /* .get_alignment  = */ get_alignment,
            /* .get_max_size   = */ get_max_size,
            /* .get_alloc_size = */ nullptr,  // no padding: kernels stay within ggml_nbytes
            /* .is_host        = */ nullptr,
        },
        /* .device  = */ owner,
        /* .context = */ new buffer_type_context{target, target.name},
    };
    types.host = {
        /* .iface = */ {
            /* .get_name       = */ get_name,
            /* .alloc_buffer   = */ alloc_host_buffer,
            /* .get_alignment  = */ get_host_alignment,
            /* .get_max_size   = */ nullptr,
            /* .get_alloc_size = */ nullptr,
            /* .is_host        = */ is_host,
        },
        /* .device  = */ owner,
        /* .context = */ new buffer_type_context{target, target.name + "_Host"},
    };
}

bool is_type_of(const gpu & device, ggml_backend_buffer_type_t type) {
    return type->iface.alloc_buffer == alloc_buffer && &of(type) == &device;
}

bool is_buffer_of(const gpu & device, ggml_backend_buffer_t buffer) {
    return buffer->iface.get_base == get_base && &of(buffer).device == &device;
}

}  // namespace strata
