#include "switches.h"

#include "plan/fusion_stats.h"
#include "runtime/error.h"
#include "runtime/settings.h"

namespace strata {

std::set<std::string> all_switches() {
    std::set<std::string> names = {"flash_attn_tile", "flash_attn_vector", "fusion", "graphs", "mul_mat_vec", "mul_mat_vec_quantize", "wmma"};
    for (const char * fusion : fusion_labels()) {
        names.insert(fusion);
    }
    return names;
}

void check_switches() {
    const std::set<std::string> known = all_switches();
    for (const std::string & name : settings::from_environment().disabled) {
        if (known.count(name) == 0) {
            std::string list;
            for (const std::string & each : known) {
                list += (list.empty() ? "" : ", ") + each;
            }
            throw failure("STRATA_DISABLE: nothing is called '" + name + "'; what can be turned off: " + list);
        }
    }
}

}  // namespace strata
