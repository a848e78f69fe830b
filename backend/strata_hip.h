// The plugin's own C functions, beside the two that ggml calls. Nothing here throws; strings are UTF-8.
#pragma once

#include <stdint.h>

struct ggml_tensor;

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_HIP_EXPORT __attribute__((visibility("default")))

/// "0.1.0".
STRATA_HIP_EXPORT const char * strata_hip_version(void);

/// The newest error message of the calling thread; of any thread if it has none; "" if there was none. Valid until the calling
/// thread's next call into ggml or the plugin.
STRATA_HIP_EXPORT const char * strata_hip_last_error(void);

/// How many errors the calling thread has met in the plugin. Whoever decodes on a thread of its own sees by it whether its own work
/// failed, whatever happens on other threads.
STRATA_HIP_EXPORT uint64_t strata_hip_thread_errors(void);

/// JSON: {"version", "ggml_version", "runtime": "hip"|"emulator", "library", "driver_version", "runtime_version",
/// "devices": [{"name", "description", "arch", "device_id", "compute_units", "memory_free", "memory_total"}],
/// "code_objects": [{"family", "target", "size", "hash"}], "switches": {name: on}}.
/// Starts the plugin if that has not happened; if it cannot start: {"version", "ggml_version", "error"}.
/// Valid until the calling thread's next call.
STRATA_HIP_EXPORT const char * strata_hip_device_json(void);

/// A counter since the library was loaded: graphs_planned, graphs_replayed, launches, copies, nodes, allocated_bytes,
/// errors, graphs_captured, graph_launches; and of each fusion, how often it was applied: "fusion." and its name. UINT64_MAX for an unknown name.
STRATA_HIP_EXPORT uint64_t strata_hip_counter(const char * name);

/// Why the first device does not compute `op`: NULL if it does, else a constant text.
STRATA_HIP_EXPORT const char * strata_hip_refusal(const struct ggml_tensor * op);

/// Columns J of the tiles that MUL_MAT_ID takes with weights of a ggml_type and so many rows (pairs of token and slot) an expert on average;
/// 0 for a type that has no tiles.
STRATA_HIP_EXPORT uint32_t strata_hip_tile_columns(int type, double rows_an_expert);

/// The same for MUL_MAT of one matrix with so many rows and columns on the first device, whether or not a mat-vec takes them; 0 before the plugin
/// has started.
STRATA_HIP_EXPORT uint32_t strata_hip_dense_tile_columns(int type, int64_t rows, int64_t columns);

/// Has MUL_MAT and MUL_MAT_ID take the tiles of so many columns with all types that have them, in graphs that are planned from now on;
/// 0: those of the table, as at the start. Returns 1, or 0 if no type has them. The results are the same bits; `strata-hip tune` compares times.
STRATA_HIP_EXPORT int strata_hip_force_tile_columns(uint32_t columns);

#ifdef __cplusplus
}
#endif
