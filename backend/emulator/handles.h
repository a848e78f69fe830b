// Opaque handles: numbers, never reused, so that a stale or invented handle is recognised and never followed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace strata::emulator {

/// Handles of type H (a pointer type that is never dereferenced) for shared objects of type T. Thread-safe.
template <class H, class T>
class handle_table {
public:
    /// `tag` keeps the handles of different tables apart.
    explicit handle_table(uint64_t tag) : tag_(tag) {}

    H add(std::shared_ptr<T> object) {
        std::lock_guard guard(lock_);
        const uint64_t number = tag_ << 40 | ++count_ << 4;  // looks like an aligned pointer, is none
        const H handle = reinterpret_cast<H>(number);
        objects_.emplace(number, std::move(object));
        return handle;
    }

    /// nullptr if there is no such handle (any more).
    std::shared_ptr<T> find(H handle) {
        std::lock_guard guard(lock_);
        const auto found = objects_.find(reinterpret_cast<uint64_t>(handle));
        return found != objects_.end() ? found->second : nullptr;
    }

    std::shared_ptr<T> remove(H handle) {
        std::lock_guard guard(lock_);
        const auto found = objects_.find(reinterpret_cast<uint64_t>(handle));
        if (found == objects_.end()) {
            return nullptr;
        }
        std::shared_ptr<T> object = std::move(found->second);
        objects_.erase(found);
        return object;
    }

    void clear() {
        std::lock_guard guard(lock_);
        objects_.clear();
    }

private:
    std::mutex lock_;
    uint64_t tag_;
    uint64_t count_ = 0;
    std::unordered_map<uint64_t, std::shared_ptr<T>> objects_;
};

}  // namespace strata::emulator
