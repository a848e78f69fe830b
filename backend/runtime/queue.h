// A HIP stream with pinned staging memory: all work of a backend instance, in order.
#pragma once

#include <atomic>
#include <vector>

#include "runtime/gpu.h"

namespace strata {

/// Everything given to a queue runs in the order given. One thread at a time may submit; any thread may synchronize.
class queue {
public:
    explicit queue(gpu & device);
    ~queue();
    queue(const queue &) = delete;

    gpu & device;
    hipStream_t stream = nullptr;

    /// Says that work was submitted through `stream`: transfers of other threads will wait for it. To be called after the
    /// submission, before its error is looked at: said before, another thread could wait in between, and nobody would again.
    void submitted() { given.fetch_add(1, std::memory_order_release); }

    /// Host to device. The source is copied to pinned memory before the call returns, so it may change at once, and no page
    /// of it is ever locked by the driver.
    void upload(void * dst, const void * src, std::size_t size);

    /// `rows` pieces of `size` bytes, `stride_dst` and `stride_src` bytes apart.
    void upload_2d(void * dst, std::size_t stride_dst, const void * src, std::size_t stride_src, std::size_t size, std::size_t rows);

    /// Device to host, complete on return.
    void download(void * dst, const void * src, std::size_t size);
    void download_2d(void * dst, std::size_t stride_dst, const void * src, std::size_t stride_src, std::size_t size, std::size_t rows);

    /// Device to host, complete after synchronize().
    void download_async(void * dst, const void * src, std::size_t size);
    void download_2d_async(void * dst, std::size_t stride_dst, const void * src, std::size_t stride_src, std::size_t size, std::size_t rows);

    void copy(void * dst, const void * src, std::size_t size);
    void fill(void * dst, int byte, std::size_t size);

    /// This queue's next work waits for all that `other` was given so far.
    void wait_for(queue & other);

    /// Waits for everything submitted. Throws a failure if any of it failed.
    void synchronize();
    void synchronize_if_busy();

    /// True once work of this queue has failed: its results are lost.
    bool failed() const { return broken.load(std::memory_order_acquire); }

private:
    struct slot {
        void * memory = nullptr;
        hipEvent_t used = nullptr;  ///< the last copy from or to this slot
        bool busy = false;
    };
    slot & next_slot();
    void copy_rows(void * dst, std::size_t stride_dst, const void * src, std::size_t stride_src, std::size_t size, std::size_t rows,
        hip_memcpy_kind kind);
    void release_slots() noexcept;

    std::atomic<uint64_t> given{0};
    std::atomic<uint64_t> finished{0};
    std::atomic<bool> broken{false};
    std::vector<slot> slots;
    std::size_t next = 0;
    hipEvent_t joined = nullptr;
};

}  // namespace strata
