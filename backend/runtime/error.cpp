// The newest error message of a thread and of all, and small formatting helpers.
#include "runtime/error.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "ggml-impl.h"
#include "runtime/counters.h"

namespace strata {

namespace {

std::mutex newest_mutex;

std::string & newest_error() {
    static std::string * message = new std::string;  // outlives every static destructor
    return *message;
}

struct thread_report {
    uint64_t errors = 0;
    std::string newest;
};

thread_report & mine() {
    thread_local thread_report report;
    return report;
}

}  // namespace

void report(const char * message) noexcept {
    count(counter::errors);
    ++mine().errors;
    try {
        mine().newest = message;
        std::lock_guard lock(newest_mutex);
        newest_error() = message;
    } catch (...) {
    }
    GGML_LOG_ERROR("strata-hip: %s\n", message);
}

const char * last_error() noexcept {
    thread_report & own = mine();
    if (own.errors != 0) {
        return own.newest.c_str();
    }
    try {
        std::lock_guard lock(newest_mutex);
        own.newest = newest_error();
    } catch (...) {
        return "out of memory";
    }
    return own.newest.c_str();
}

uint64_t thread_errors() noexcept { return mine().errors; }

std::string readable_size(std::size_t bytes) {
    const char * const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 4096) {
        return format("%zu bytes", bytes);
    }
    double value = static_cast<double>(bytes);
    int unit = -1;
    while (value >= 1024 && unit < 3) {
        value /= 1024;
        ++unit;
    }
    return format("%.1f %s", value, units[unit]);
}

std::string format(const char * text, ...) {
    va_list arguments;
    va_start(arguments, text);
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(nullptr, 0, text, arguments);
    va_end(arguments);
    std::string result(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
    vsnprintf(result.data(), result.size() + 1, text, again);
    va_end(again);
    return result;
}

}  // namespace strata
