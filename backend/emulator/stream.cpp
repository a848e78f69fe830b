// Worker threads, ordering between streams, and the device's sticky error.
#include "stream.h"

#include "machine.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

namespace strata::emulator {

std::atomic<bool> stopping{false};

namespace {

std::atomic<bool> started{false};
std::atomic<bool> forked{false};

// How long exit() waits for work in flight. The machine looks at `stopping` between workgroups, so this is for the worst case.
constexpr std::chrono::seconds exit_patience{10};

bool is_set(const char * variable) {
    const char * value = std::getenv(variable);
    return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

}  // namespace

device_queues & device_queues::instance() {
    static device_queues & queues = *new device_queues;
    return queues;
}

bool device_queues::usable() {
    return !forked.load(std::memory_order_relaxed);
}

device_queues::device_queues() {
    synchronous_ = is_set("STRATA_EMULATOR_SYNC") || is_set("HIP_LAUNCH_BLOCKING");
    started = true;
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    std::atexit(at_exit);
    null_ = std::make_shared<stream>();
    streams_.push_back(null_);
    start(null_);
}

// Work in flight must not run into the destruction of the process, and must not keep it alive either.
void device_queues::at_exit() {
    if (!usable()) {
        return;
    }
    device_queues & queues = instance();
    std::unique_lock guard(queues.lock_);
    stopping = true;
    const std::vector<stream_ptr> streams = queues.streams_;
    for (const stream_ptr & s : streams) {
        s->wake.notify_all();
    }
    queues.progress_.notify_all();
    queues.progress_.wait_for(guard, exit_patience, [&] { return queues.workers_ == 0; });
    for (const stream_ptr & s : streams) {
        if (s->last && !s->last->done) {
            queues.refuse_work();
        }
    }
}

// Called with the lock held, when the process is ending: what is in the queues, or comes now, will not be executed.
void device_queues::refuse_work() {
    if (sticky_.error == hipSuccess) {
        sticky_ = {hipErrorDeinitialized, "the process is ending and its last work was dropped"};
    }
}

void device_queues::start(const stream_ptr & which) {
    ++workers_;
    try {
        std::thread([this, which] { worker(which); }).detach();
    } catch (...) {
        --workers_;
        throw;
    }
}

stream_ptr device_queues::create(bool blocking) {
    auto fresh = std::make_shared<stream>();
    fresh->blocking = blocking;
    std::lock_guard guard(lock_);
    start(fresh);
    streams_.push_back(fresh);
    return fresh;
}

void device_queues::close(const stream_ptr & which) {
    std::lock_guard guard(lock_);
    which->closing = true;
    which->wake.notify_all();
}

bool device_queues::is_open(const stream_ptr & which) {
    std::lock_guard guard(lock_);
    return !which->closing;
}

recording_ptr device_queues::capturing(const stream_ptr & which) {
    std::lock_guard guard(lock_);
    return which->into;
}

void device_queues::capture(const stream_ptr & which, recording_ptr what) {
    std::lock_guard guard(lock_);
    which->into = std::move(what);
}

std::vector<work> device_queues::finish(const recording_ptr & what) {
    std::lock_guard guard(lock_);
    for (const stream_ptr & s : streams_) {
        if (s->into == what) {
            s->into = nullptr;
        }
    }
    return std::move(what->nodes);
}

fence_ptr device_queues::submit(const stream_ptr & to, work run, std::vector<fence_ptr> after) {
    auto done = std::make_shared<fence>();
    {
        std::lock_guard guard(lock_);
        if (stopping) {
            refuse_work();
        }
        if (to->into) {
            to->into->nodes.push_back(std::move(run));
            done->done = true;
            return done;
        }
        if (to == null_) {
            for (const stream_ptr & s : streams_) {
                if (s != null_ && s->blocking && s->last && !s->last->done) {
                    after.push_back(s->last);
                }
            }
        } else if (to->blocking && null_->last && !null_->last->done) {
            after.push_back(null_->last);
        }
        to->commands.push_back({std::move(run), std::move(after), done});
        to->last = done;
        to->wake.notify_all();
    }
    if (synchronous_) {
        wait(done);
    }
    return done;
}

void device_queues::worker(const stream_ptr & which) {
    std::unique_lock guard(lock_);
    while (true) {
        which->wake.wait(guard, [&] { return stopping || which->closing || !which->commands.empty(); });
        if (stopping || which->commands.empty()) {
            break;
        }
        stream::command next = std::move(which->commands.front());
        which->commands.pop_front();
        progress_.wait(guard, [&] {
            return stopping || std::all_of(next.after.begin(), next.after.end(), [](const fence_ptr & f) { return f->done; });
        });
        if (stopping) {
            break;
        }
        if (sticky_.error == hipSuccess) {
            guard.unlock();
            outcome result;
            try {
                result = next.run();
            } catch (const std::exception & e) {
                result = {hipErrorUnknown, std::string("the emulator failed: ") + e.what()};
            }
            next.run = nullptr;  // its captures go before the lock is taken
            guard.lock();
            if (result.error != hipSuccess) {
                poison(std::move(result));
            }
        }
        next.done->done = true;
        next.done->when = std::chrono::steady_clock::now();
        progress_.notify_all();
    }
    std::erase(streams_, which);
    --workers_;
    progress_.notify_all();
}

// Called with the lock held.
void device_queues::poison(outcome fault) {
    if (sticky_.error == hipSuccess) {
        sticky_ = std::move(fault);
        std::fprintf(stderr, "strata-emulator: %s\n", sticky_.message.c_str());
    }
}

void device_queues::wait(const fence_ptr & which) {
    std::unique_lock guard(lock_);
    progress_.wait(guard, [&] { return stopping || which->done; });
}

bool device_queues::is_done(const fence_ptr & which) {
    std::lock_guard guard(lock_);
    return which->done;
}

std::vector<fence_ptr> device_queues::pending(const stream_ptr & of) {
    std::lock_guard guard(lock_);
    std::vector<fence_ptr> result;
    for (const stream_ptr & s : streams_) {
        if ((s == of || (of == null_ && s->blocking)) && s->last && !s->last->done) {
            result.push_back(s->last);
        }
    }
    return result;
}

void device_queues::wait_all() {
    std::vector<fence_ptr> all;
    {
        std::lock_guard guard(lock_);
        for (const stream_ptr & s : streams_) {
            if (s->last && !s->last->done) {
                all.push_back(s->last);
            }
        }
    }
    for (const fence_ptr & f : all) {
        wait(f);
    }
}

hip_error device_queues::sticky_error() {
    std::lock_guard guard(lock_);
    return sticky_.error;
}

std::string device_queues::sticky_message() {
    std::lock_guard guard(lock_);
    return sticky_.message;
}

void device_queues::reset() {
    wait_all();
    std::lock_guard guard(lock_);
    for (const stream_ptr & s : streams_) {
        if (s != null_) {
            s->closing = true;
            s->wake.notify_all();
        }
    }
    sticky_ = {};
}

}  // namespace strata::emulator
