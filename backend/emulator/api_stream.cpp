// HIP's streams and events.
#include "api.h"

#include <chrono>

namespace strata {

using namespace emulator;

namespace {

std::shared_ptr<event> find_event(hipEvent_t handle) {
    std::shared_ptr<event> found = handle_tables::instance().events.find(handle);
    if (!found) {
        fail(hipErrorInvalidHandle, format("%p is no event, or one that was destroyed", static_cast<void *>(handle)));
    }
    return found;
}

fence_ptr recorded(event & e) {
    std::lock_guard guard(e.lock);
    return e.recorded;
}

recording_ptr captured(event & e) {
    std::lock_guard guard(e.lock);
    return e.captured;
}

/// hipSuccess, or the error of a call that waits for a stream which is capturing.
hip_error not_capturing(const char * call, const stream_ptr & which) {
    return !device_queues::instance().capturing(which)
               ? hipSuccess
               : fail(hipErrorStreamCaptureUnsupported, format("%s: the stream is capturing", call));
}

/// The same of an event that was recorded in such a stream.
hip_error not_captured(const char * call, event & e) {
    return !captured(e) ? hipSuccess : fail(hipErrorCapturedEvent, format("%s: the event belongs to a capture", call));
}

}  // namespace

hipError_t hipStreamCreateWithFlags(hipStream_t * stream, unsigned flags) {
    return device_call([&]() -> hip_error {
        if (stream == nullptr || (flags & ~hipStreamNonBlocking) != 0) {
            return fail(hipErrorInvalidValue,
                        format("hipStreamCreateWithFlags: flags 0x%x, result %p", flags, static_cast<void *>(stream)));
        }
        *stream = handle_tables::instance().streams.add(device_queues::instance().create((flags & hipStreamNonBlocking) == 0));
        return hipSuccess;
    });
}

hipError_t hipStreamDestroy(hipStream_t stream) {
    return call([&]() -> hip_error {
        const stream_ptr gone = handle_tables::instance().streams.remove(stream);
        if (!gone) {
            return fail(hipErrorInvalidHandle,
                        format("hipStreamDestroy: %p is no stream that the program created", static_cast<void *>(stream)));
        }
        device_queues::instance().close(gone);
        return device_state();
    });
}

hipError_t hipStreamSynchronize(hipStream_t stream) {
    return device_call([&]() -> hip_error {
        const stream_ptr which = find_stream(stream);
        if (!which) {
            return hipErrorInvalidHandle;
        }
        if (const hip_error e = not_capturing("hipStreamSynchronize", which); e != hipSuccess) {
            return e;
        }
        device_queues & queues = device_queues::instance();
        for (const fence_ptr & f : queues.pending(which)) {
            queues.wait(f);
        }
        return device_state();
    });
}

hipError_t hipStreamQuery(hipStream_t stream) {
    return device_call([&]() -> hip_error {
        const stream_ptr which = find_stream(stream);
        if (!which) {
            return hipErrorInvalidHandle;
        }
        if (const hip_error e = not_capturing("hipStreamQuery", which); e != hipSuccess) {
            return e;
        }
        return device_queues::instance().pending(which).empty() ? device_state() : fail(hipErrorNotReady, "the stream has work to do");
    });
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t handle, unsigned flags) {
    return device_call([&]() -> hip_error {
        const stream_ptr which = find_stream(stream);
        const std::shared_ptr<event> e = which ? find_event(handle) : nullptr;
        if (!e) {
            return hipErrorInvalidHandle;
        }
        if (flags != 0) {
            return fail(hipErrorInvalidValue, "hipStreamWaitEvent: the flags must be 0");
        }
        device_queues & queues = device_queues::instance();
        const recording_ptr of_event = captured(*e), of_stream = queues.capturing(which);
        if (of_event) {
            if (of_stream && of_stream != of_event) {
                return fail(hipErrorStreamCaptureIsolation, "hipStreamWaitEvent: the event belongs to another capture");
            }
            queues.capture(which, of_event);  // the stream joins; what is captured runs in the order of the calls
            return hipSuccess;
        }
        if (of_stream) {
            return fail(hipErrorStreamCaptureIsolation, "hipStreamWaitEvent: a capture cannot wait for an event outside of it");
        }
        if (fence_ptr f = recorded(*e)) {
            queues.submit(which, []() -> outcome { return {}; }, {std::move(f)});
        }
        return hipSuccess;
    });
}

hipError_t hipEventCreateWithFlags(hipEvent_t * handle, unsigned flags) {
    return device_call([&]() -> hip_error {
        if (handle == nullptr) {
            return fail(hipErrorInvalidValue, "hipEventCreateWithFlags: a null pointer for the result");
        }
        auto fresh = std::make_shared<event>();
        fresh->timed = (flags & hipEventDisableTiming) == 0;
        *handle = handle_tables::instance().events.add(std::move(fresh));
        return hipSuccess;
    });
}

hipError_t hipEventDestroy(hipEvent_t handle) {
    return call([&]() -> hip_error {
        if (!handle_tables::instance().events.remove(handle)) {
            return fail(hipErrorInvalidHandle,
                        format("hipEventDestroy: %p is no event, or one that was destroyed", static_cast<void *>(handle)));
        }
        return device_state();
    });
}

hipError_t hipEventRecord(hipEvent_t handle, hipStream_t stream) {
    return device_call([&]() -> hip_error {
        const stream_ptr which = find_stream(stream);
        const std::shared_ptr<event> e = which ? find_event(handle) : nullptr;
        if (!e) {
            return hipErrorInvalidHandle;
        }
        const recording_ptr into = device_queues::instance().capturing(which);
        std::lock_guard guard(e->lock);
        e->captured = into;
        e->recorded = into ? nullptr : device_queues::instance().submit(which, []() -> outcome { return {}; });
        return hipSuccess;
    });
}

hipError_t hipEventSynchronize(hipEvent_t handle) {
    return device_call([&]() -> hip_error {
        const std::shared_ptr<event> e = find_event(handle);
        if (!e) {
            return hipErrorInvalidHandle;
        }
        if (const hip_error error = not_captured("hipEventSynchronize", *e); error != hipSuccess) {
            return error;
        }
        if (const fence_ptr f = recorded(*e)) {
            device_queues::instance().wait(f);
        }
        return device_state();
    });
}

hipError_t hipEventQuery(hipEvent_t handle) {
    return device_call([&]() -> hip_error {
        const std::shared_ptr<event> e = find_event(handle);
        if (!e) {
            return hipErrorInvalidHandle;
        }
        if (const hip_error error = not_captured("hipEventQuery", *e); error != hipSuccess) {
            return error;
        }
        const fence_ptr f = recorded(*e);
        if (f && !device_queues::instance().is_done(f)) {
            return fail(hipErrorNotReady, "the event has not been reached");
        }
        return device_state();
    });
}

hipError_t hipEventElapsedTime(float * ms, hipEvent_t start, hipEvent_t stop) {
    return device_call([&]() -> hip_error {
        if (ms == nullptr) {
            return fail(hipErrorInvalidValue, "hipEventElapsedTime: a null pointer for the result");
        }
        const std::shared_ptr<event> first = find_event(start);
        const std::shared_ptr<event> second = first ? find_event(stop) : nullptr;
        if (!second) {
            return hipErrorInvalidHandle;
        }
        const fence_ptr from = recorded(*first), to = recorded(*second);
        if (!from || !to || !first->timed || !second->timed) {
            return fail(hipErrorInvalidHandle, "hipEventElapsedTime: an event was not recorded, or was created without timing");
        }
        device_queues & queues = device_queues::instance();
        if (!queues.is_done(from) || !queues.is_done(to)) {
            return fail(hipErrorNotReady, "hipEventElapsedTime: an event has not been reached");
        }
        *ms = std::chrono::duration<float, std::milli>(to->when - from->when).count();
        return hipSuccess;
    });
}

}  // namespace strata
