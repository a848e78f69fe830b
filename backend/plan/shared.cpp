// Results shared between nodes.
#include "plan/shared.h"

#include <algorithm>
#include <cstring>

#include "ggml-impl.h"

namespace strata {

static constexpr std::size_t most_results = 16;

/// The same elements at the same addresses: a reshaped tensor is the same. What is made of it must not depend on where rows begin, or have
/// that among its parameters.
static bool same_elements(const ggml_tensor & a, const ggml_tensor & b) {
    if (a.data != b.data || a.type != b.type || ggml_nelements(&a) != ggml_nelements(&b)) {
        return false;
    }
    return (ggml_is_contiguous(&a) && ggml_is_contiguous(&b)) || ggml_are_same_layout(&a, &b);
}

void * shared_results::find(const char * name, const ggml_tensor * source, std::initializer_list<uint64_t> parameters) const {
    for (const entry & each : results) {
        if (std::strcmp(each.name, name) == 0 && same_elements(each.source, *source) &&
            std::equal(each.parameters.begin(), each.parameters.end(), parameters.begin(), parameters.end())) {
            return reinterpret_cast<void *>(each.begin);
        }
    }
    return nullptr;
}

std::size_t shared_results::end_of_space(const void * base, std::size_t size) const {
    const auto start = reinterpret_cast<uintptr_t>(base);
    uintptr_t at = start;
    for (bool moved = true; moved;) {
        moved = false;
        for (const entry & each : results) {
            if (at < each.end && each.begin < at + size) {
                at = each.end;
                moved = true;
            }
        }
    }
    return at - start + size;
}

void * shared_results::add(const char * name, const ggml_tensor * source, std::initializer_list<uint64_t> parameters, void * base,
                           std::size_t end, std::size_t size, bool fresh) {
    if (results.size() == most_results) {
        results.erase(results.begin());
    }
    const uintptr_t last = reinterpret_cast<uintptr_t>(base) + end;
    results.push_back({name, *source, parameters, last - size, last, fresh});
    return reinterpret_cast<void *>(last - size);
}

void shared_results::overwritten(const ggml_tensor * result) {
    const auto begin = reinterpret_cast<uintptr_t>(result->data);
    const uintptr_t end = begin + ggml_nbytes(result);
    std::erase_if(results, [&](const entry & each) {
        const auto from = reinterpret_cast<uintptr_t>(each.source.data);
        return !each.fresh && begin < from + ggml_nbytes(&each.source) && from < end;
    });
}

void shared_results::settle() {
    for (entry & each : results) {
        each.fresh = false;
    }
}

}  // namespace strata
