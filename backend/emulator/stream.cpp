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
    puts_off_ = watching_host();
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
    if (which->last) {
        want(which->last);
    }
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

std::vector<recorded_command> device_queues::finish(const recording_ptr & what) {
    std::lock_guard guard(lock_);
    for (const stream_ptr & s : streams_) {
        if (s->into == what) {
            s->into = nullptr;
        }
    }
    return std::move(what->nodes);
}

fence_ptr device_queues::submit(const stream_ptr & to, work run, std::vector<fence_ptr> after, footprint_ptr what) {
    auto done = std::make_shared<fence>();
    {
        std::lock_guard guard(lock_);
        if (stopping) {
            refuse_work();
        }
        if (to->into) {
            to->into->nodes.push_back({std::move(run), std::move(what)});
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
        done->number = ++count_;
        done->of = to;
        if (puts_off_) {
            // Nothing holds a copy to the host back, so it may come at once.
            const bool free = (!to->last || to->last->done) &&
                              std::all_of(after.begin(), after.end(), [](const fence_ptr & f) { return f->done; });
            if (what && what->may_come_early() && free) {
                to->wanted = done->number;
            }
            to->unobserved.emplace_back(done, after);
            host_queued(done->number, what);
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

// What has to run before `which` is done, is to run. Called with the lock held.
void device_queues::want(const fence_ptr & which) {
    const stream_ptr of = which->of.lock();
    if (!of || which->done || of->wanted >= which->number) {
        return;
    }
    of->wanted = which->number;
    for (const stream::command & c : of->commands) {
        if (c.done->number > which->number) {
            break;
        }
        for (const fence_ptr & f : c.after) {
            want(f);
        }
    }
    of->wake.notify_all();
}

// The program knows that `which` is done, and so all that came before it. Called with the lock held.
void device_queues::observe(const fence_ptr & which) {
    const stream_ptr of = puts_off_ ? which->of.lock() : nullptr;
    while (of && !of->unobserved.empty() && of->unobserved.front().first->number <= which->number) {
        const auto [done, after] = std::move(of->unobserved.front());
        of->unobserved.pop_front();
        host_observed(done->number);
        for (const fence_ptr & f : after) {
            observe(f);
        }
    }
}

void device_queues::worker(const stream_ptr & which) {
    host_exempt_thread();
    std::unique_lock guard(lock_);
    while (true) {
        which->wake.wait(guard, [&] {
            return stopping || which->closing ||
                   (!which->commands.empty() && (!puts_off_ || which->commands.front().done->number <= which->wanted));
        });
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
            host_running(next.done->number);
            try {
                result = next.run();
            } catch (const std::exception & e) {
                result = {hipErrorUnknown, std::string("the emulator failed: ") + e.what()};
            }
            host_ran(next.done->number);
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
    if (which->last) {
        observe(which->last);
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
    want(which);
    progress_.wait(guard, [&] { return stopping || which->done; });
    observe(which);
}

bool device_queues::is_done(const fence_ptr & which) {
    std::lock_guard guard(lock_);
    if (which->done) {
        observe(which);
    } else {
        want(which);
    }
    return which->done;
}

std::vector<fence_ptr> device_queues::pending(const stream_ptr & of) {
    std::lock_guard guard(lock_);
    std::vector<fence_ptr> result;
    for (const stream_ptr & s : streams_) {
        if ((s == of || (of == null_ && s->blocking)) && s->last) {
            if (s->last->done) {
                observe(s->last);
            } else {
                want(s->last);
                result.push_back(s->last);
            }
        }
    }
    return result;
}

void device_queues::wait_all() {
    std::vector<fence_ptr> all;
    {
        std::lock_guard guard(lock_);
        for (const stream_ptr & s : streams_) {
            if (s->last) {
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
