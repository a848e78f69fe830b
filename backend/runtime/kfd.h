// What the kernel's GPU driver says, for messages: it can be asked without any ROCm library.
#pragma once

#include <string>
#include <vector>

namespace strata {

/// The AMD compute driver as seen from this process. STRATA_KFD_ROOT replaces /sys/class/kfd/kfd, STRATA_KFD_DEVICE
/// replaces /dev/kfd.
struct kfd_report {
    std::string device;              ///< path of the device file
    bool present = false;            ///< the device file exists
    bool accessible = false;         ///< this user may open it
    std::string topology;            ///< folder of the nodes
    std::vector<std::string> archs;  ///< gfx targets of the GPU nodes, e.g. "gfx1151"
};

kfd_report look_at_kfd();

/// "gfx1151" for gfx_target_version 110501; "" for 0 (a CPU node).
std::string gfx_name(unsigned long target_version);

/// One or two sentences on driver, permissions and archs, with what to do about it.
std::string describe(const kfd_report & report);

}  // namespace strata
