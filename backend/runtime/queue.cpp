// Streams, and copies between host and device through pinned staging memory.
#include "runtime/queue.h"

#include <algorithm>
#include <cstring>

namespace strata {

static constexpr std::size_t slot_size = 1 << 20;
static constexpr std::size_t slot_count = 4;

queue::queue(gpu & owner) : device(owner) {
    device.activate();
    device.check(device.hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "hipStreamCreateWithFlags");
    try {
        device.check(device.hip.hipEventCreateWithFlags(&joined, hipEventDisableTiming), "hipEventCreateWithFlags");
    } catch (...) {
        device.hip.hipStreamDestroy(stream);
        throw;
    }
    device.add(this);
}

queue::~queue() {
    device.remove(this);
    device.hip.hipSetDevice(device.ordinal);
    device.hip.hipStreamSynchronize(stream);  // an error was or will be reported by whoever needed the results
    release_slots();
    device.hip.hipEventDestroy(joined);
    device.hip.hipStreamDestroy(stream);
}

void queue::release_slots() noexcept {
    for (slot & each : slots) {
        if (each.used != nullptr) {
            device.hip.hipEventDestroy(each.used);
        }
        if (each.memory != nullptr) {
            device.hip.hipHostFree(each.memory);
        }
    }
    slots.clear();
}

queue::slot & queue::next_slot() {
    if (slots.empty()) {
        slots.resize(slot_count);
        for (slot & each : slots) {
            device.check(device.hip.hipHostMalloc(&each.memory, slot_size, hipHostMallocDefault), "hipHostMalloc", slot_size, "staging");
            device.check(device.hip.hipEventCreateWithFlags(&each.used, hipEventDisableTiming), "hipEventCreateWithFlags");
        }
    }
    slot & chosen = slots[next];
    next = (next + 1) % slot_count;
    if (chosen.busy) {
        device.check(device.hip.hipEventSynchronize(chosen.used), "hipEventSynchronize", 0, "staging");
        chosen.busy = false;
    }
    return chosen;
}

static const char * direction(hip_memcpy_kind kind) {
    switch (kind) {
        case hipMemcpyHostToDevice: return "host to device";
        case hipMemcpyDeviceToHost: return "device to host";
        default:                    return "device to device";
    }
}

void queue::copy_rows(void * dst, std::size_t stride_dst, const void * src, std::size_t stride_src, std::size_t size, std::size_t rows,
        hip_memcpy_kind kind) {
    const bool flat = rows == 1 || (stride_dst == size && stride_src == size);
    const hipError_t error = flat ? device.hip.hipMemcpyAsync(dst, src, size * rows, kind, stream)
                                  : device.hip.hipMemcpy2DAsync(dst, stride_dst, src, stride_src, size, rows, kind, stream);
    submitted();
    device.check(error, flat ? "hipMemcpyAsync" : "hipMemcpy2DAsync", size * rows, direction(kind));
}

void queue::upload(void * dst, const void * src, std::size_t size) {
    auto * to = static_cast<char *>(dst);
    const auto * from = static_cast<const char *>(src);
    while (size > 0) {
        slot & piece = next_slot();
        const std::size_t bytes = std::min(size, slot_size);
        std::memcpy(piece.memory, from, bytes);
        copy_rows(to, bytes, piece.memory, bytes, bytes, 1, hipMemcpyHostToDevice);
        device.check(device.hip.hipEventRecord(piece.used, stream), "hipEventRecord");
        piece.busy = true;
        to += bytes;
        from += bytes;
        size -= bytes;
    }
}

void queue::upload_2d(void * dst, std::size_t stride_dst, const void * src, std::size_t stride_src, std::size_t size, std::size_t rows) {
    auto * to = static_cast<char *>(dst);
    const auto * from = static_cast<const char *>(src);
    if (size == 0) {
        return;
    }
    if (size > slot_size || stride_dst < size) {  // rows too long to pack, or overlapping ones, which have an order
        for (std::size_t row = 0; row < rows; ++row) {
            upload(to + row * stride_dst, from + row * stride_src, size);
        }
        return;
    }
    for (std::size_t row = 0; row < rows;) {
        slot & piece = next_slot();
        const std::size_t some = std::min(rows - row, slot_size / size);
        for (std::size_t i = 0; i < some; ++i) {
            std::memcpy(static_cast<char *>(piece.memory) + i * size, from + (row + i) * stride_src, size);
        }
        copy_rows(to + row * stride_dst, stride_dst, piece.memory, size, size, some, hipMemcpyHostToDevice);
        device.check(device.hip.hipEventRecord(piece.used, stream), "hipEventRecord");
        piece.busy = true;
        row += some;
    }
}

void queue::download(void * dst, const void * src, std::size_t size) {
    download_2d(dst, slot_size, src, slot_size, slot_size, size / slot_size);
    const std::size_t rest = size % slot_size;
    if (rest != 0) {
        const std::size_t done = size - rest;
        download_2d(static_cast<char *>(dst) + done, rest, static_cast<const char *>(src) + done, rest, rest, 1);
    }
}

void queue::download_2d(void * dst, std::size_t stride_dst, const void * src, std::size_t stride_src, std::size_t size, std::size_t rows) {
    auto * to = static_cast<char *>(dst);
    const auto * from = static_cast<const char *>(src);
    if (size == 0) {
        return;
    }
    if (size > slot_size || stride_src < size) {
        for (std::size_t row = 0; row < rows; ++row) {
            download(to + row * stride_dst, from + row * stride_src, size);
        }
        return;
    }
    struct piece {
        slot * memory;
        std::size_t row, rows;
    };
    const auto scatter = [&](const piece & ready) {
        device.check(device.hip.hipEventSynchronize(ready.memory->used), "hipEventSynchronize", size * ready.rows, "device to host");
        ready.memory->busy = false;
        for (std::size_t i = 0; i < ready.rows; ++i) {
            std::memcpy(to + (ready.row + i) * stride_dst, static_cast<const char *>(ready.memory->memory) + i * size, size);
        }
    };
    // one piece is copied out while the device fills the next
    piece before{nullptr, 0, 0};
    for (std::size_t row = 0; row < rows;) {
        const std::size_t some = std::min(rows - row, slot_size / size);
        slot & memory = next_slot();
        copy_rows(memory.memory, size, from + row * stride_src, stride_src, size, some, hipMemcpyDeviceToHost);
        device.check(device.hip.hipEventRecord(memory.used, stream), "hipEventRecord");
        memory.busy = true;
        if (before.memory != nullptr) {
            scatter(before);
        }
        before = {&memory, row, some};
        row += some;
    }
    if (before.memory != nullptr) {
        scatter(before);
    }
}

void queue::download_async(void * dst, const void * src, std::size_t size) {
    copy_rows(dst, size, src, size, size, 1, hipMemcpyDeviceToHost);
}

void queue::download_2d_async(void * dst, std::size_t stride_dst, const void * src, std::size_t stride_src, std::size_t size, std::size_t rows) {
    copy_rows(dst, stride_dst, src, stride_src, size, rows, hipMemcpyDeviceToHost);
}

void queue::copy(void * dst, const void * src, std::size_t size) {
    copy_rows(dst, size, src, size, size, 1, hipMemcpyDeviceToDevice);
}

void queue::fill(void * dst, int byte, std::size_t size) {
    const hipError_t error = device.hip.hipMemsetAsync(dst, byte, size, stream);
    submitted();
    device.check(error, "hipMemsetAsync", size);
}

void queue::wait_for(queue & other) {
    device.check(device.hip.hipEventRecord(other.joined, other.stream), "hipEventRecord");
    const hipError_t error = device.hip.hipStreamWaitEvent(stream, other.joined, 0);
    submitted();
    device.check(error, "hipStreamWaitEvent");
}

void queue::synchronize() {
    const uint64_t until = given.load(std::memory_order_acquire);
    const hipError_t error = device.hip.hipStreamSynchronize(stream);
    if (error != hipSuccess) {
        broken.store(true, std::memory_order_release);
        device.work_failed.store(true, std::memory_order_release);
        device.check(error, "hipStreamSynchronize");
    }
    uint64_t known = finished.load(std::memory_order_relaxed);
    while (known < until && !finished.compare_exchange_weak(known, until, std::memory_order_release)) {
    }
}

void queue::synchronize_if_busy() {
    // a broken queue has been reported; it must not keep others from their transfers
    if (!failed() && finished.load(std::memory_order_acquire) < given.load(std::memory_order_acquire)) {
        synchronize();
    }
}

}  // namespace strata
