// Whether the ggml in this process is the one the plugin was compiled against.
#pragma once

namespace strata {

/// Throws a failure that names both versions, or the structure that differs.
void check_host_ggml();

}  // namespace strata
