// The names that STRATA_DISABLE takes.
#pragma once

#include <set>
#include <string>

namespace strata {

/// Kernels that others can stand in for, all fusions one by one, "fusion" for all of them, and "graphs" for HIP graphs.
std::set<std::string> all_switches();

/// Throws failure if STRATA_DISABLE has a name that is none of them: what is measured with a wrong name would be told as measured without
/// something.
void check_switches();

}  // namespace strata
