// Process-wide counts of applied fusions, and the entry points of upstream's test-fusion.
#include "plan/fusion_stats.h"

#include <atomic>
#include <iterator>
#include <memory>

#include "ggml-backend.h"
#include "plan/fusion.h"
#include "plan/shared.h"

namespace strata {

namespace {

/// One entry a label: the patterns of the table, then what planners share.
struct fusion_counts {
    std::vector<const char *> labels;
    std::unique_ptr<std::atomic<uint64_t>[]> applied;   ///< since the library was loaded
    std::vector<uint64_t> at_reset;
    std::atomic<bool> enabled{true};

    fusion_counts() {
        for (const fusion_pattern * each : fusion_table()) {
            labels.push_back(each->name);
        }
        labels.insert(labels.end(), std::begin(shared_names), std::end(shared_names));
        applied = std::make_unique<std::atomic<uint64_t>[]>(labels.size());
        at_reset.resize(labels.size());
    }

    std::atomic<uint64_t> * find(std::string_view label) {
        for (std::size_t i = 0; i < labels.size(); ++i) {
            if (labels[i] == label) {
                return &applied[i];
            }
        }
        return nullptr;
    }
};

fusion_counts & counts() {
    static auto * all = new fusion_counts;
    return *all;
}

// The C functions that test-fusion looks up by name. Their handle is opaque to it.

void * get(ggml_backend_dev_t) { return &counts(); }

void stats_init(void *) {}

void stats_reset(void * handle) {
    auto & all = *static_cast<fusion_counts *>(handle);
    for (std::size_t i = 0; i < all.labels.size(); ++i) {
        all.at_reset[i] = all.applied[i].load(std::memory_order_relaxed);
    }
}

/// Copies up to `n` labels and counts since the last reset; returns how many there are.
int stats_get(void * handle, const char ** labels, uint64_t * values, int n) {
    auto & all = *static_cast<fusion_counts *>(handle);
    for (std::size_t i = 0; i < all.labels.size() && int(i) < n; ++i) {
        labels[i] = all.labels[i];
        values[i] = all.applied[i].load(std::memory_order_relaxed) - all.at_reset[i];
    }
    return int(all.labels.size());
}

void set_enabled(void * handle, bool on) { static_cast<fusion_counts *>(handle)->enabled.store(on, std::memory_order_relaxed); }

}  // namespace

bool fusions_enabled() { return counts().enabled.load(std::memory_order_relaxed); }

const std::vector<const char *> & fusion_labels() { return counts().labels; }

void count_fusion(const char * label, uint64_t times) {
    if (std::atomic<uint64_t> * applied = counts().find(label)) {
        applied->fetch_add(times, std::memory_order_relaxed);
    }
}

bool fusions_counted(std::string_view label, uint64_t * times) {
    const std::atomic<uint64_t> * applied = counts().find(label);
    if (applied != nullptr) {
        *times = applied->load(std::memory_order_relaxed);
    }
    return applied != nullptr;
}

void * fusion_proc_address(std::string_view name) {
    if (name == "ggml_backend_fusion_get") {
        return reinterpret_cast<void *>(get);
    }
    if (name == "ggml_backend_fusion_stats_init") {
        return reinterpret_cast<void *>(stats_init);
    }
    if (name == "ggml_backend_fusion_stats_reset") {
        return reinterpret_cast<void *>(stats_reset);
    }
    if (name == "ggml_backend_fusion_stats_get") {
        return reinterpret_cast<void *>(stats_get);
    }
    return name == "ggml_backend_fusion_set_enabled" ? reinterpret_cast<void *>(set_enabled) : nullptr;
}

}  // namespace strata
