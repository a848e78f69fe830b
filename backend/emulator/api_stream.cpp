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
        if (fence_ptr f = recorded(*e)) {
            device_queues::instance().submit(which, []() -> outcome { return {}; }, {std::move(f)});
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
        std::lock_guard guard(e->lock);
        e->recorded = device_queues::instance().submit(which, []() -> outcome { return {}; });
        return hipSuccess;
    });
}

hipError_t hipEventSynchronize(hipEvent_t handle) {
    return device_call([&]() -> hip_error {
        const std::shared_ptr<event> e = find_event(handle);
        if (!e) {
            return hipErrorInvalidHandle;
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
