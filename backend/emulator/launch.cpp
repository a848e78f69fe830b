// Launch limits, and the argument segment as the kernel expects it.
#include "launch.h"

#include "errors.h"
#include "instruments/counts.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

namespace strata::emulator {

namespace {

constexpr machine_properties device;
constexpr uint32_t largest_workgroup = 1024;

std::string show(const dim3 & d) {
    return format("(%u, %u, %u)", d.x, d.y, d.z);
}

hip_error check_sizes(const loaded_kernel & kernel, const launch_request & request) {
    const kernel_image & image = *kernel.image;
    const std::string what = "launch of " + image.name + ": ";
    const dim3 & grid = request.grid;
    const dim3 & block = request.block;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) {
        return fail(hipErrorInvalidConfiguration, what + "the grid " + show(grid) + " is empty");
    }
    if (block.x == 0 || block.y == 0 || block.z == 0) {
        return fail(hipErrorInvalidConfiguration, what + "the block " + show(block) + " is empty");
    }
    const uint64_t items = uint64_t{block.x} * block.y > largest_workgroup ? uint64_t{largest_workgroup} + 1
                                                                           : uint64_t{block.x} * block.y * block.z;
    if (items > largest_workgroup) {
        return fail(hipErrorInvalidConfiguration, what + "the block " + show(block) + " has more than 1024 work-items");
    }
    if (items > image.max_workgroup) {
        return fail(hipErrorInvalidConfiguration, what + "the block " + show(block) +
                        format(" has %u work-items, the kernel is compiled for at most %u", static_cast<unsigned>(items),
                               image.max_workgroup));
    }
    const uint32_t (&wanted)[3] = kernel.required_workgroup;
    if (wanted[0] != 0 && (block.x != wanted[0] || block.y != wanted[1] || block.z != wanted[2])) {
        return fail(hipErrorInvalidConfiguration, what + "the block is " + show(block) + ", the kernel is compiled for exactly " +
                        show({wanted[0], wanted[1], wanted[2]}));
    }
    constexpr uint64_t most = std::numeric_limits<uint32_t>::max();
    if (uint64_t{grid.x} * block.x > most || uint64_t{grid.y} * block.y > most || uint64_t{grid.z} * block.z > most) {
        return fail(hipErrorInvalidConfiguration, what + "the grid " + show(grid) + " times the block " + show(block) +
                        " has 2^32 or more work-items in a dimension");
    }
    if (uint64_t{image.static_lds} + request.dynamic_lds > device.max_lds) {
        return fail(hipErrorInvalidValue, what + format("%u bytes of static and %u bytes of dynamic LDS exceed the limit of %u",
                                                        image.static_lds, request.dynamic_lds, device.max_lds));
    }
    if (request.cooperative) {
        const occupancy each = occupancy_of(image, static_cast<uint32_t>(items), request.dynamic_lds);
        const uint64_t room = uint64_t{each.workgroups} * device.workgroup_processors;
        // No dimension is 0, so a product that is too large for 64 bits has a factor that is too large by itself.
        if (grid.x > room || grid.y > room || grid.z > room || uint64_t{grid.x} * grid.y * grid.z > room) {
            return fail(hipErrorCooperativeLaunchTooLarge, what + "the grid " + show(grid) +
                            format(" is cooperative, and the device holds %u workgroups of this kernel at a time (limited by %s)",
                                   static_cast<unsigned>(room), each.limit));
        }
    }
    return hipSuccess;
}

// Bytes up to the end of the last explicit argument.
uint32_t explicit_size(const kernel_image & image) {
    uint32_t end = 0;
    for (const kernel_image::argument & a : image.arguments) {
        end = std::max(end, a.offset + a.size);
    }
    return end;
}

hip_error take_buffer(const kernel_image & image, void ** extra, std::vector<uint8_t> & kernarg) {
    const std::string what = "launch of " + image.name + ": ";
    const void * buffer = nullptr;
    const size_t * size = nullptr;
    for (unsigned i = 0; extra[i] != HIP_LAUNCH_PARAM_END; i += 2) {
        if (i >= 4) {
            return fail(hipErrorInvalidValue, what + "the `extra` array has no HIP_LAUNCH_PARAM_END");
        }
        if (extra[i] == HIP_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[i + 1];
        } else if (extra[i] == HIP_LAUNCH_PARAM_BUFFER_SIZE) {
            size = static_cast<const size_t *>(extra[i + 1]);
        } else {
            return fail(hipErrorInvalidValue, what + format("the `extra` array has an unknown entry %p", extra[i]));
        }
    }
    if (size == nullptr || (buffer == nullptr && *size != 0)) {
        return fail(hipErrorInvalidValue, what + "the `extra` array gives no buffer or no size");
    }
    // A struct of arguments may end with padding, at most up to the largest alignment.
    const size_t wanted = explicit_size(image);
    if (*size < wanted || *size > (wanted + 15) / 16 * 16) {
        return fail(hipErrorInvalidValue, what + format("%zu bytes of arguments are given, the kernel takes %zu", *size, wanted));
    }
    if (wanted != 0) {
        std::memcpy(kernarg.data(), buffer, wanted);
    }
    return hipSuccess;
}

hip_error take_parameters(const kernel_image & image, void ** params, std::vector<uint8_t> & kernarg) {
    for (size_t i = 0; i < image.arguments.size(); ++i) {
        const kernel_image::argument & a = image.arguments[i];
        if (params == nullptr || params[i] == nullptr) {
            return fail(hipErrorInvalidValue, "launch of " + image.name + format(": argument %zu (%u bytes) is not given", i, a.size));
        }
        std::memcpy(kernarg.data() + a.offset, params[i], a.size);
    }
    return hipSuccess;
}

// The value of a hidden argument. What stands for services that the emulator does not offer (printf, host calls, a device
// heap, ...) is a null pointer, so that a kernel which uses it faults.
uint64_t hidden_value(const std::string & kind, const launch_request & request) {
    if (kind == "hidden_block_count_x") return request.grid.x;
    if (kind == "hidden_block_count_y") return request.grid.y;
    if (kind == "hidden_block_count_z") return request.grid.z;
    if (kind == "hidden_group_size_x") return request.block.x;
    if (kind == "hidden_group_size_y") return request.block.y;
    if (kind == "hidden_group_size_z") return request.block.z;
    if (kind == "hidden_grid_dims") return 3;  // what hipModuleLaunchKernel always says
    if (kind == "hidden_dynamic_lds_size") return request.dynamic_lds;
    return 0;  // remainders and global offsets are 0: the grid is given in whole workgroups
}

}  // namespace

hip_error prepare_launch(const loaded_kernel & kernel, const launch_request & request, dispatch & result) {
    if (const hip_error e = check_sizes(kernel, request); e != hipSuccess) {
        return e;
    }
    const kernel_image & image = *kernel.image;
    if (request.params != nullptr && request.extra != nullptr) {
        return fail(hipErrorInvalidValue, "launch of " + image.name + ": arguments are given twice, by `kernelParams` and by `extra`");
    }
    result.kernel = kernel.image;
    result.grid = request.grid;
    result.block = request.block;
    result.dynamic_lds = request.dynamic_lds;
    result.cooperative = request.cooperative;
    result.kernarg.assign(image.kernarg_size, 0);
    const hip_error e = request.extra != nullptr ? take_buffer(image, request.extra, result.kernarg)
                                                 : take_parameters(image, request.params, result.kernarg);
    if (e != hipSuccess) {
        return e;
    }
    for (const kernel_image::hidden_argument & h : image.hidden) {
        const uint64_t value = hidden_value(h.kind, request);
        std::memcpy(result.kernarg.data() + h.offset, &value, std::min<size_t>(h.size, sizeof(value)));
    }
    return hipSuccess;
}

}  // namespace strata::emulator
