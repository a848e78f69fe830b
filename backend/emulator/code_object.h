// Loading of code objects: an ELF file for amdgpu becomes memory that kernels can run in, and a list of its kernels.
#pragma once

#include "machine.h"
#include "runtime/hip_abi.h"

#include <cstddef>
#include <map>
#include <memory>
#include <string>

namespace strata::emulator {

/// A kernel with what only the launch needs to know.
struct loaded_kernel {
    std::shared_ptr<kernel_image> image;
    uint32_t required_workgroup[3] = {0, 0, 0};  ///< 0: none required
};

/// A loaded code object. Its memory goes with it.
class loaded_module {
public:
    loaded_module() = default;
    loaded_module(const loaded_module &) = delete;
    loaded_module & operator=(const loaded_module &) = delete;
    ~loaded_module();

    std::map<std::string, loaded_kernel> kernels;
    void * memory = nullptr;  ///< from device_memory, or nullptr
};

/// Loads the code object at `image`. With `size` 0 its length is unknown, as for hipModuleLoadData: then the ELF header's word
/// is taken, and memory that is not there is met with an error. On failure: nullptr, the code in `error`, the message by fail().
std::shared_ptr<loaded_module> load_code_object(const void * image, size_t size, hip_error & error);

}  // namespace strata::emulator
