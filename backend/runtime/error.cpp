// The newest error message, and small formatting helpers.
#include "runtime/error.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "ggml-impl.h"
#include "runtime/counters.h"

namespace strata {

static std::mutex newest_mutex;
static std::string & newest_error() {
    static std::string * message = new std::string;  // outlives every static destructor
    return *message;
}

void report(const char * message) noexcept {
    count(counter::errors);
    try {
        std::lock_guard lock(newest_mutex);
        newest_error() = message;
    } catch (...) {
    }
    GGML_LOG_ERROR("strata-hip: %s\n", message);
}

const char * last_error() noexcept {
    thread_local std::string mine;
    try {
        std::lock_guard lock(newest_mutex);
        mine = newest_error();
    } catch (...) {
        return "out of memory";
    }
    return mine.c_str();
}

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
