// Threads that run workgroups. The caller works too, and never waits for a thread that has not begun.
#pragma once

#include <functional>

namespace strata::emulator {

/// Number of threads, the caller included: STRATA_EMULATOR_THREADS, or all cores.
unsigned worker_count();

/// Calls work(worker) at once in the caller (worker 0) and, as they wake, in up to workers - 1 pool threads (1, 2, ...).
/// Returns when all who began have returned; `work` must return soon once there is nothing left to do. One call at a time.
void run_on_workers(unsigned workers, const std::function<void(unsigned)> & work);

}  // namespace strata::emulator
