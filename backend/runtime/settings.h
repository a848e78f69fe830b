// Environment switches that are read when a backend instance is made.
#pragma once

#include <set>
#include <string>

namespace strata {

struct settings {
    bool print_plan = false;         ///< STRATA_PRINT_PLAN=1: every new plan is printed to stderr
    bool synchronous = false;        ///< STRATA_SYNC=1: wait after every launch
    std::set<std::string> disabled;  ///< STRATA_DISABLE=name,name: kernels and fusions not to use (switches.h)

    static settings from_environment();
};

}  // namespace strata
