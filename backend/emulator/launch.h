// From hipModuleLaunchKernel's parameters to a dispatch: limits, the argument segment, hidden arguments.
#pragma once

#include "code_object.h"
#include "machine.h"

namespace strata::emulator {

struct launch_request {
    dim3 grid;   ///< workgroups
    dim3 block;  ///< work-items a workgroup
    uint32_t dynamic_lds = 0;
    void ** params = nullptr;  ///< a pointer an argument, or
    void ** extra = nullptr;   ///< HIP_LAUNCH_PARAM_BUFFER_POINTER/SIZE
    bool cooperative = false;  ///< all workgroups at the same time, or not at all
};

/// Checks the request against the kernel and the device and fills the dispatch. On failure the message is set by fail().
hip_error prepare_launch(const loaded_kernel & kernel, const launch_request & request, dispatch & result);

}  // namespace strata::emulator
