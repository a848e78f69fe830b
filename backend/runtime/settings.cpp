// STRATA_PRINT_PLAN, STRATA_SYNC, STRATA_DISABLE.
#include "runtime/settings.h"

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace strata {

static bool is_on(const char * name) {
    const char * value = std::getenv(name);
    return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

settings settings::from_environment() {
    settings result;
    result.print_plan = is_on("STRATA_PRINT_PLAN");
    result.synchronous = is_on("STRATA_SYNC");
    if (const char * names = std::getenv("STRATA_DISABLE")) {
        std::stringstream list(names);
        for (std::string name; std::getline(list, name, ',');) {
            if (!name.empty()) {
                result.disabled.insert(name);
            }
        }
    }
    return result;
}

}  // namespace strata
