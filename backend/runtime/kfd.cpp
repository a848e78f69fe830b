// Reads /dev/kfd and the driver's topology files.
#include "runtime/kfd.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/error.h"

namespace strata {

static std::string setting(const char * name, const char * otherwise) {
    const char * value = std::getenv(name);
    return value && *value ? value : otherwise;
}

std::string gfx_name(unsigned long target_version) {
    if (target_version == 0) {
        return "";
    }
    // decimal MMmmss; the name has the major version in decimal, minor and stepping as one hexadecimal digit each
    return format("gfx%lu%lx%lx", target_version / 10000, target_version / 100 % 100, target_version % 100);
}

kfd_report look_at_kfd() {
    kfd_report report;
    report.device = setting("STRATA_KFD_DEVICE", "/dev/kfd");
    report.present = access(report.device.c_str(), F_OK) == 0;
    report.accessible = access(report.device.c_str(), R_OK | W_OK) == 0;
    report.topology = setting("STRATA_KFD_ROOT", "/sys/class/kfd/kfd") + "/topology/nodes";

    std::error_code ignored;
    std::vector<std::filesystem::path> nodes;
    for (const auto & entry : std::filesystem::directory_iterator(report.topology, ignored)) {
        nodes.push_back(entry.path());
    }
    std::sort(nodes.begin(), nodes.end());
    for (const auto & node : nodes) {
        std::ifstream file(node / "properties");
        std::string key;
        std::string value;
        while (file >> key >> value) {
            if (key == "gfx_target_version") {
                const std::string arch = gfx_name(std::strtoul(value.c_str(), nullptr, 10));
                if (!arch.empty()) {
                    report.archs.push_back(arch);
                }
            }
        }
    }
    return report;
}

std::string describe(const kfd_report & report) {
    std::string text = report.device;
    if (!report.present) {
        text += " does not exist (no AMD GPU, or the amdgpu driver is not loaded)";
    } else if (!report.accessible) {
        text += " exists but this user may not open it (add the user to the groups render and video: "
                "usermod -aG render,video USER, then log in again)";
    } else {
        text += " is accessible";
    }
    text += "; GPUs listed in " + report.topology + ": ";
    if (report.archs.empty()) {
        return text + "none";
    }
    for (std::size_t i = 0; i < report.archs.size(); ++i) {
        text += (i ? ", " : "") + report.archs[i];
    }
    return text;
}

}  // namespace strata
