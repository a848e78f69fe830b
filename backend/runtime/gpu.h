// A GPU that has code objects: its identity, its kernels, and the order of host transfers against running work.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ops/op.h"
#include "runtime/error.h"
#include "runtime/library.h"

namespace strata {

class queue;

/// hipDeviceAttributePhysicalMultiProcessorCount. The plain MultiprocessorCount is half of it on RDNA: it counts pairs.
constexpr int hip_attribute_compute_units = 10015;

/// A kernel of this device.
struct kernel_handle {
    hipFunction_t function;
    const char * name;  ///< "family/kernel", as long as the device lives
};

class gpu {
public:
    /// `index` numbers the device within the plugin (STRATA0 ...), `ordinal` within HIP. Throws a failure; a device whose
    /// arch has no code object is refused by name.
    gpu(const hip_library & library, int index, int ordinal);
    ~gpu();
    gpu(const gpu &) = delete;

    const hip_library & library;
    const hip_api & hip;
    const int ordinal;
    std::string name;         ///< "STRATA0"
    std::string description;  ///< as HIP names it
    std::string pci_id;       ///< "0000:c1:00.0", lower case; "" if unknown
    device_caps caps;

    /// Makes this the thread's device. Every entry of the plugin calls it first.
    void activate() const;

    /// Throws a failure that names the call, the size (if not 0), this device and a remedy, unless `error` is hipSuccess.
    void check(hipError_t error, const char * call, std::size_t size = 0, const char * what = "") const {
        if (error != hipSuccess) [[unlikely]] {
            fail(error, call, size, what);
        }
    }

    /// Free and total bytes now, as HIP reports them.
    void memory(std::size_t * free, std::size_t * total) const;

    /// The kernel of that name, its code object loaded at first use. Throws a failure naming family, kernel and arch.
    kernel_handle kernel(const char * family, const char * name);

    /// Runs `body(queue)` on the transfer stream: after everything that any queue of this device was given before, and
    /// complete on return. Host access to device memory thus never races a running graph.
    template <class Body>
    void transfer(Body && body) {
        std::lock_guard lock(transfer_mutex);
        wait_for_queues();
        body(transfer_queue());
        finish_transfer();
    }

    /// Waits for all work submitted to all queues of this device so far.
    void wait_for_queues();

    /// True once work has failed and that has been said: what fails after it, fails because of it.
    bool lost() const { return work_failed.load(std::memory_order_acquire); }

private:
    friend class queue;
    void add(queue * live);
    void remove(queue * dead);
    queue & transfer_queue();
    void finish_transfer();
    [[noreturn]] void fail(hipError_t error, const char * call, std::size_t size, const char * what) const;

    std::atomic<bool> work_failed{false};
    std::mutex kernel_mutex;
    std::unordered_map<std::string_view, hipModule_t> modules;
    std::unordered_map<std::string, hipFunction_t> kernels;  // "family/kernel"

    std::mutex transfer_mutex;
    std::mutex queues_mutex;
    std::set<queue *> queues;
    std::unique_ptr<queue> transfers;
};

/// Device memory, freed with its owner.
class device_memory {
public:
    /// Throws a failure with GGML_STATUS_ALLOC_FAILED.
    device_memory(gpu & device, std::size_t size, const char * what);
    ~device_memory();
    device_memory(const device_memory &) = delete;

    void * data() const { return address; }
    std::size_t size() const { return bytes; }

private:
    gpu & device;
    void * address = nullptr;
    std::size_t bytes;
};

}  // namespace strata
