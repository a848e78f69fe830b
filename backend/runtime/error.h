// Failures: an exception inside the plugin, a readable message and a ggml_status at its C boundary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include "ggml.h"

namespace strata {

/// What went wrong, complete and readable, and the status that ggml gets. Never crosses the C boundary.
class failure : public std::exception {
public:
    explicit failure(std::string message, ggml_status status = GGML_STATUS_FAILED) : text(std::move(message)), result(status) {}
    const char * what() const noexcept override { return text.c_str(); }
    ggml_status status() const noexcept { return result; }

private:
    std::string text;
    ggml_status result;
};

/// Logs an error through ggml, keeps it for last_error() and counts it. Never throws.
void report(const char * message) noexcept;

/// The newest message that this thread reported; of any thread if it reported none; "" if there was none. Valid until this thread
/// reports or asks again.
const char * last_error() noexcept;

/// How many messages this thread has reported. A device's failure is reported by the thread that launches or waits, so two users
/// of the backend on two threads can tell whose work failed.
uint64_t thread_errors() noexcept;

/// "1536 bytes", "12.0 KiB", "3.5 GiB".
std::string readable_size(std::size_t bytes);

/// printf into a string.
std::string format(const char * text, ...) __attribute__((format(printf, 1, 2)));

/// Runs `body` at the C boundary: a failure is reported and becomes its status.
template <class Body>
ggml_status guarded(Body && body) noexcept {
    try {
        body();
        return GGML_STATUS_SUCCESS;
    } catch (const failure & error) {
        report(error.what());
        return error.status();
    } catch (const std::exception & error) {
        report(error.what());
        return GGML_STATUS_FAILED;
    }
}

}  // namespace strata
