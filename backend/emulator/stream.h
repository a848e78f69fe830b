// Streams: queues of work, each executed in order by a thread of its own, asynchronously to the host as on hardware.
#pragma once

#include "instruments/host.h"
#include "runtime/hip_abi.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace strata::emulator {

/// Done once the command it belongs to, and so every command before that in its stream, has been executed (or dropped,
/// after a fault). Guarded by the queues' lock.
struct fence {
    bool done = false;
    std::chrono::steady_clock::time_point when;
    uint64_t number = 0;              ///< counts the commands of the process
    std::weak_ptr<struct stream> of;  ///< whose command it belongs to
};
using fence_ptr = std::shared_ptr<fence>;

/// What a command came to: hipSuccess, or a device fault and its message, which poison the device.
struct outcome {
    hip_error error = hipSuccess;
    std::string message;
};
using work = std::function<outcome()>;

struct stream;

/// A command that a graph will run, and which memory it uses.
struct recorded_command {
    work run;
    footprint_ptr what;
};

/// Commands that are captured instead of executed. Guarded by the queues' lock.
struct recording {
    std::vector<recorded_command> nodes;  ///< in the order of the calls
    const stream * origin = nullptr;
};
using recording_ptr = std::shared_ptr<recording>;

struct stream {
    struct command {
        work run;
        std::vector<fence_ptr> after;  ///< to be done before it starts
        fence_ptr done;
    };
    bool blocking = true;  ///< ordered with the null stream (created without hipStreamNonBlocking)
    bool closing = false;
    std::deque<command> commands;
    fence_ptr last;  ///< of the youngest command, nullptr if there was none
    uint64_t wanted = 0;  ///< commands up to this number are to run; matters where work is put off (the sanitizer's host kind)
    /// Where the program's knowledge is followed: what it does not know to be done, with what each command waited for.
    std::deque<std::pair<fence_ptr, std::vector<fence_ptr>>> unobserved;
    recording_ptr into;  ///< where its commands go while it is capturing
    std::condition_variable wake;
};
using stream_ptr = std::shared_ptr<stream>;

/// All streams of the device, and the device's sticky error. Thread-safe. Never destroyed; worker threads are detached.
class device_queues {
public:
    static device_queues & instance();
    /// False in a process forked after instance() was first called: its threads and locks are not usable there.
    static bool usable();

    stream_ptr create(bool blocking);
    /// No more commands; the worker ends after those that are there.
    void close(const stream_ptr & which);
    /// The stream that is addressed by a null handle. It waits for all blocking streams, and they for it.
    const stream_ptr & null_stream() const { return null_; }

    /// Whether close() or reset() has not ended it.
    bool is_open(const stream_ptr & which);

    /// What the stream is capturing into, nullptr if it is not.
    recording_ptr capturing(const stream_ptr & which);
    /// The stream's commands go into `what` from now on (nullptr: are executed again).
    void capture(const stream_ptr & which, recording_ptr what);
    /// Ends the capture in all its streams and returns what was captured.
    std::vector<recorded_command> finish(const recording_ptr & what);

    /// Appends a command, or records it if the stream is capturing (the fence is then a finished one). With
    /// STRATA_EMULATOR_SYNC=1 or HIP_LAUNCH_BLOCKING=1 it has been executed on return.
    /// `what` says which memory it uses; it matters to the sanitizer.
    fence_ptr submit(const stream_ptr & to, work run, std::vector<fence_ptr> after = {}, footprint_ptr what = nullptr);

    void wait(const fence_ptr & which);
    bool is_done(const fence_ptr & which);
    /// What synchronizing with a stream has to wait for; the null stream counts the blocking streams in.
    std::vector<fence_ptr> pending(const stream_ptr & of);
    void wait_all();

    /// hipSuccess, or what a fault has left behind until reset().
    hip_error sticky_error();
    std::string sticky_message();
    /// All work done, all streams closed (except the null stream), the sticky error forgotten.
    void reset();

private:
    device_queues();
    void start(const stream_ptr & which);
    void worker(const stream_ptr & which);
    void poison(outcome fault);
    void refuse_work();
    void want(const fence_ptr & which);
    void observe(const fence_ptr & which);
    static void at_exit();

    std::mutex lock_;
    std::condition_variable progress_;  // some fence is done, or a worker has ended
    std::vector<stream_ptr> streams_;   // open ones
    stream_ptr null_;
    unsigned workers_ = 0;
    bool synchronous_ = false;
    bool puts_off_ = false;  ///< commands run when somebody waits for them
    uint64_t count_ = 0;
    outcome sticky_;
};

}  // namespace strata::emulator
