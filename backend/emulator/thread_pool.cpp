// The pool is made on first use, lives until the process ends, and is made anew in a forked child.
#include "thread_pool.h"

#include "instruments/host.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <unistd.h>

namespace strata::emulator {

namespace {

struct pool {
    std::mutex lock;
    std::condition_variable wake, done;
    const std::function<void(unsigned)> * work = nullptr;  // null: nothing to join
    unsigned generation = 0;
    unsigned places = 0;   // how many more threads may join
    unsigned next = 1;     // the next joiner's number
    unsigned running = 0;  // joiners at work
    pid_t process = getpid();

    explicit pool(unsigned threads) {
        for (unsigned n = 1; n < threads; n++) std::thread([this] { serve(); }).detach();
    }

    void serve() {
        host_exempt_thread();
        std::unique_lock hold(lock);
        unsigned seen = 0;
        for (;;) {
            wake.wait(hold, [&] { return work && places > 0 && generation != seen; });
            seen = generation;
            places--;
            running++;
            const unsigned number = next++;
            const auto * job = work;
            hold.unlock();
            (*job)(number);
            hold.lock();
            if (--running == 0) done.notify_all();
        }
    }
};

}  // namespace

unsigned worker_count() {
    static const unsigned count = [] {
        const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
        const char * given = std::getenv("STRATA_EMULATOR_THREADS");
        if (!given || !*given) return cores;
        char * end = nullptr;
        const long value = std::strtol(given, &end, 10);
        if (*end == 0 && value >= 1 && value <= 1024) return unsigned(value);
        std::fprintf(stderr, "strata-emulator: STRATA_EMULATOR_THREADS=%s is not a number from 1 to 1024 and is ignored\n", given);
        return cores;
    }();
    return count;
}

void run_on_workers(unsigned workers, const std::function<void(unsigned)> & work) {
    workers = std::min(workers, worker_count());
    if (workers <= 1) return work(0);
    static pool * current = nullptr;  // never destroyed: its threads may be asleep when the process exits
    if (!current || current->process != getpid()) current = new pool(worker_count());
    pool & p = *current;
    {
        std::lock_guard hold(p.lock);
        p.work = &work;
        p.places = workers - 1;
        p.next = 1;
        p.generation++;
    }
    if (workers > 2) p.wake.notify_all();
    else p.wake.notify_one();
    work(0);
    std::unique_lock hold(p.lock);
    p.work = nullptr;
    p.done.wait(hold, [&] { return p.running == 0; });
}

}  // namespace strata::emulator
