// What an op file offers (supports, plan) and what it may ask for (planner). One file per op family implements these and
// lists its entries in registry.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "ggml.h"

namespace strata {

struct dims {
    uint32_t x = 1, y = 1, z = 1;
};

/// What ops may know of the device.
struct device_caps {
    char arch[32] = "gfx1151";   ///< gfx target without feature suffix
    bool wmma = true;            ///< has RDNA3 WMMA instructions
    uint32_t wave_size = 32;
    uint32_t compute_units = 40;
    uint32_t max_lds = 65536;    ///< bytes a workgroup
};

/// Collects the launches of one graph. Launches run in order on one stream: each sees the writes of those before it.
class planner {
public:
    virtual ~planner() = default;

    virtual const device_caps & caps() const = 0;

    /// True if STRATA_DISABLE names this kernel or fusion.
    virtual bool disabled(const char * name) const = 0;

    /// Device memory of at least `size` bytes, 256-byte aligned, for intermediate results of the node being planned.
    /// Contents are undefined; the next node may get the same memory.
    virtual void * scratch(std::size_t size) = 0;

    /// Memory for what is made of `source` and `parameters` alone and nodes may share under a name (see plan/shared.h). If it has been made
    /// and still holds, the caller must not write to it, else it must fill all of it that will be read. `size` bytes, 256-byte aligned.
    /// What is made of this node's own result holds from then on.
    struct shared_memory {
        void * data;
        bool made;
    };
    enum class made_of { operand, result };
    virtual shared_memory shared(const char * name, const ggml_tensor * source, std::size_t size,
                                 std::initializer_list<uint64_t> parameters = {}, made_of what = made_of::operand) = 0;

    /// True if a later product with quantized weights reads `result`, so that it saves a launch to quantize it now. `name` is the switch.
    virtual bool quantizes_result(const char * name, const ggml_tensor * result) = 0;

    /// True if the `readers` products with quantized weights that are being planned are all that read `x`, and nothing has quantized it yet: they
    /// may do that themselves. False with fusions off.
    virtual bool quantized_here_alone(const ggml_tensor * x, int readers) const = 0;

    /// Adds a launch. `family` is the code object, `kernel` the symbol; names and `args` are copied. A grid with a zero is dropped.
    template <class Args>
    void launch(const char * family, const char * kernel, dims grid, dims block, const Args & args, uint32_t lds_bytes = 0) {
        static_assert(__is_trivially_copyable(Args));
        launch_raw(family, kernel, grid, block, &args, sizeof(Args), lds_bytes);
    }

    /// Adds a device-to-device copy of `size` bytes; the ranges must not overlap.
    virtual void copy(void * dst, const void * src, std::size_t size) = 0;

    /// Adds a fill of `size` bytes.
    virtual void fill(void * dst, int byte, std::size_t size) = 0;

protected:
    virtual void launch_raw(const char * family, const char * kernel, dims grid, dims block, const void * args, std::size_t size, uint32_t lds_bytes) = 0;
};

/// nullptr if the kernels compute `op` for exactly these types, shapes and strides, otherwise a short constant reason.
/// Tensors may have no data yet.
using refusal_fn = const char * (*)(const device_caps & caps, const ggml_tensor * op);

/// Adds the launches of `op`, which was accepted by the refusal function and has at least one element.
using plan_fn = void (*)(planner & plan, const ggml_tensor * op);

struct op_entry {
    ggml_op op;
    refusal_fn refusal;
    plan_fn plan;
};

/// The entry of an op, or nullptr if no kernel has it. (registry.cpp)
const op_entry * find_op(ggml_op op);

/// nullptr if supported, else the reason. Empty ops (NONE, VIEW, RESHAPE, PERMUTE, TRANSPOSE) are always supported.
const char * op_refusal(const device_caps & caps, const ggml_tensor * op);

}  // namespace strata
