// Memory that the host must not touch is made inaccessible: the pages of pinned memory, and of pageable memory those that lie wholly
// in the range. An access is caught by a signal handler, told with both call sites, and then let through. What a copy reads from the
// host is also compared with what it was when it was queued: that finds writes by system calls and at the edges of pages.
#include "host.h"

#include "../errors.h"
#include "report.h"
#include "settings.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <ucontext.h>

namespace strata::emulator {

bool footprint::may_come_early() const {
    bool writes = false;
    for (const range & r : ranges) {
        if (!r.host_visible) continue;
        if (r.how != use::writes) return false;
        writes = true;
    }
    return writes;
}

namespace {

constexpr uint64_t page = 4096;
constexpr size_t compared_at_most = size_t{64} << 20;

struct flight {
    footprint_ptr what;
    call_site site;
    bool running = false, ran = false;
    bool told = false;
    std::vector<std::vector<unsigned char>> before;  // by range; empty: not compared
    // A kernel has the address, and the host has read there: if the kernel changes it, that was a race.
    struct early_read {
        uint64_t address = 0;
        uint64_t value = 0;
        call_site site;
        std::string of;  // as in footprint::range
    };
    std::vector<early_read> reads;
    bool reads_allowed = false;  // since the host has read memory that a kernel may use
};

struct watch {
    std::recursive_mutex lock;  // comparing may touch closed pages
    std::map<uint64_t, flight> flights;
    struct sigaction previous_fault = {}, previous_trap = {};
    bool installed = false;
};
watch & the_watch() {
    static watch & w = *new watch;
    return w;
}

thread_local bool exempt = false;
thread_local uint64_t stepped_begin = 0, stepped_end = 0;  // pages that are open for one instruction

/// The pages that a range closes: whole ones, since others' data may share the first and the last. Pinned memory has its own pages.
void pages_of(const footprint::range & r, uint64_t & begin, uint64_t & end) {
    begin = (r.own_pages ? r.begin : r.begin + page - 1) / page * page;
    end = (r.own_pages ? r.end + page - 1 : r.end) / page * page;
}

int protection_of(const flight & f, const footprint::range & r) {
    if (!r.host_visible || f.running) return PROT_READ | PROT_WRITE;
    if (r.how == footprint::use::writes) return PROT_NONE;
    if (f.ran) return PROT_READ | PROT_WRITE;
    if (r.how == footprint::use::may_use) return f.reads_allowed ? PROT_READ : PROT_NONE;
    return PROT_READ;
}

/// Sets the protection of pages to what all flights together want. With the lock held.
void protect(watch & w, uint64_t begin, uint64_t end) {
    if (begin >= end) return;
    mprotect(reinterpret_cast<void *>(begin), end - begin, PROT_READ | PROT_WRITE);
    for (const int wanted : {PROT_READ, PROT_NONE}) {
        for (const auto & [id, f] : w.flights) {
            for (const footprint::range & r : f.what->ranges) {
                if (protection_of(f, r) != wanted) continue;
                uint64_t from, to;
                pages_of(r, from, to);
                from = std::max(from, begin);
                to = std::min(to, end);
                if (from < to) mprotect(reinterpret_cast<void *>(from), to - from, wanted);
            }
        }
    }
}

void protect(watch & w, const flight & f) {
    for (const footprint::range & r : f.what->ranges) {
        if (!r.host_visible) continue;
        uint64_t begin, end;
        pages_of(r, begin, end);
        protect(w, begin, end);
    }
}

/// `of` as in footprint::range.
void tell(const flight & f, const std::string & of, const std::string & what, const std::string & site) {
    const std::string work = f.what->what + (of.empty() ? "" : " (" + of + ")");
    report(instrument_host, describe_site(f.site) + what + site,
           what + "\n  accessed by " + site + "\n  the work: " + work + ", queued by " + describe_site(f.site));
}

const char * verb(const footprint::range & r) { return r.how == footprint::use::writes ? "writes" : r.how == footprint::use::reads ? "reads" : "uses"; }

/// The call site of an access that a signal has interrupted: the handler's own frames are left out.
call_site interrupted_site(const void * context) {
    call_site site = this_call_site();
    const auto at = static_cast<const ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP];
    void ** const end = site.frames + site.count;
    void ** const first = std::find(site.frames, end, reinterpret_cast<void *>(at));
    if (first != end) {
        std::move(first, end, site.frames);
        site.count = int(end - first);
    }
    return site;
}

/// The host has touched [address, ...) of a closed page. Returns whether it was one of ours.
bool touched(uint64_t address, bool write, void * context) {
    watch & w = the_watch();
    std::lock_guard hold(w.lock);
    const uint64_t here = address / page * page;
    bool ours = false, exact = false;
    for (auto & [id, f] : w.flights) {
        for (footprint::range & r : f.what->ranges) {
            uint64_t begin, end;
            pages_of(r, begin, end);
            if (!r.host_visible || here < begin || here >= end || protection_of(f, r) == (PROT_READ | PROT_WRITE)) continue;
            ours = true;
            if (exempt) continue;
            if (address < r.begin || address >= r.end) continue;
            if (r.how == footprint::use::may_use && !write) {
                // It may be that the kernel only reads it.
                mprotect(reinterpret_cast<void *>(here), page, PROT_READ | PROT_WRITE);
                flight::early_read read;
                read.address = address / 8 * 8;
                std::memcpy(&read.value, reinterpret_cast<const void *>(read.address), 8);
                read.site = interrupted_site(context);
                read.of = r.of;
                f.reads.push_back(read);
                f.reads_allowed = true;
                protect(w, begin, end);
                return true;
            }
            exact = true;
            if (f.told) continue;
            f.told = true;
            tell(f, r.of, std::string("the host ") + (write ? "writes" : "reads") + " memory that pending work " + verb(r) + ": " + hex(address),
                 describe_site(interrupted_site(context)));
        }
    }
    if (!ours) return false;
    mprotect(reinterpret_cast<void *>(here), page, PROT_READ | PROT_WRITE);
    if (!exact && !exempt) {
        // Another part of the page: open it for this one instruction.
        stepped_begin = here;
        stepped_end = here + page;
        static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] |= 0x100;
    }
    return true;
}

void hand_on(const struct sigaction & previous, int signal, siginfo_t * info, void * context) {
    if (previous.sa_flags & SA_SIGINFO && previous.sa_sigaction) return previous.sa_sigaction(signal, info, context);
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN && previous.sa_handler) return previous.sa_handler(signal);
    ::signal(signal, SIG_DFL);  // the access is repeated, and ends the process as it would have
}

void on_fault(int signal, siginfo_t * info, void * context) {
    const bool write = static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_ERR] & 2;
    if (info->si_code == SEGV_ACCERR && touched(reinterpret_cast<uint64_t>(info->si_addr), write, context)) return;
    hand_on(the_watch().previous_fault, signal, info, context);
}

void on_trap(int signal, siginfo_t * info, void * context) {
    if (stepped_begin == stepped_end) return hand_on(the_watch().previous_trap, signal, info, context);
    static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] &= ~0x100ll;
    watch & w = the_watch();
    std::lock_guard hold(w.lock);
    protect(w, stepped_begin, stepped_end);
    stepped_begin = stepped_end = 0;
}

/// Buffers on the stack may be closed too: handlers run on a stack of their own.
void prepare_thread() {
    thread_local std::vector<char> stack;
    if (!stack.empty()) return;
    stack_t now{};
    if (sigaltstack(nullptr, &now) == 0 && !(now.ss_flags & SS_DISABLE) && now.ss_size >= (64u << 10)) {
        stack.resize(1);
        return;
    }
    stack.resize(256 << 10);
    stack_t own{};
    own.ss_sp = stack.data();
    own.ss_size = stack.size();
    sigaltstack(&own, nullptr);
}

void install(watch & w) {
    if (w.installed) return;
    w.installed = true;
    (void)this_call_site();  // loads what backtraces need before a handler wants it
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, &w.previous_fault);
    action.sa_sigaction = on_trap;
    sigaction(SIGTRAP, &action, &w.previous_trap);
}

}  // namespace

bool watching_host() {
    static const bool on = instruments().has(instrument_host);
    return on;
}

void host_exempt_thread() { exempt = true; }

void host_queued(uint64_t id, footprint_ptr what) {
    if (!watching_host() || !what || what->ranges.empty()) return;
    prepare_thread();
    flight f;
    f.what = std::move(what);
    f.site = this_call_site();
    for (const footprint::range & r : f.what->ranges) {
        std::vector<unsigned char> copy;
        if (r.host_visible && r.how == footprint::use::reads && r.end - r.begin <= compared_at_most) {
            const auto * from = reinterpret_cast<const unsigned char *>(r.begin);
            copy.assign(from, from + (r.end - r.begin));
        }
        f.before.push_back(std::move(copy));
    }
    watch & w = the_watch();
    std::lock_guard hold(w.lock);
    install(w);
    const auto [place, fresh] = w.flights.emplace(id, std::move(f));
    if (fresh) protect(w, place->second);
}

void host_running(uint64_t id) {
    if (!watching_host()) return;
    watch & w = the_watch();
    std::lock_guard hold(w.lock);
    const auto found = w.flights.find(id);
    if (found == w.flights.end()) return;
    flight & f = found->second;
    f.running = true;
    protect(w, f);
    for (size_t n = 0; n < f.before.size(); n++) {
        const footprint::range & r = f.what->ranges[n];
        const std::vector<unsigned char> & before = f.before[n];
        if (before.empty() || f.told || std::memcmp(before.data(), reinterpret_cast<const void *>(r.begin), before.size()) == 0) continue;
        size_t at = 0;
        while (before[at] == reinterpret_cast<const unsigned char *>(r.begin)[at]) at++;
        f.told = true;
        tell(f, r.of, "the host has written memory that pending work reads: " + hex(r.begin + at), "a place that was not seen (the bytes are "
             "not those that were there when the work was queued)");
    }
}

void host_ran(uint64_t id) {
    if (!watching_host()) return;
    watch & w = the_watch();
    std::lock_guard hold(w.lock);
    const auto found = w.flights.find(id);
    if (found == w.flights.end()) return;
    flight & f = found->second;
    for (const flight::early_read & read : f.reads) {
        uint64_t now;
        std::memcpy(&now, reinterpret_cast<const void *>(read.address), 8);
        if (now == read.value || f.told) continue;
        f.told = true;
        tell(f, read.of, "the host read memory before pending work wrote it: " + hex(read.address), describe_site(read.site));
    }
    f.reads.clear();
    // What a copy wrote stays closed until the program has waited; the rest is free again.
    f.before.clear();
    f.ran = true;
    f.running = false;
    protect(w, f);
}

void host_observed(uint64_t id) {
    if (!watching_host()) return;
    watch & w = the_watch();
    std::lock_guard hold(w.lock);
    const auto found = w.flights.find(id);
    if (found == w.flights.end()) return;
    const flight gone = std::move(found->second);
    w.flights.erase(found);
    for (const footprint::range & r : gone.what->ranges) {
        if (!r.host_visible) continue;
        uint64_t begin, end;
        pages_of(r, begin, end);
        protect(w, begin, end);
    }
}

void host_freed(const char * call, uint64_t begin, uint64_t end) {
    if (!watching_host()) return;
    watch & w = the_watch();
    std::lock_guard hold(w.lock);
    for (auto & [id, f] : w.flights) {
        for (const footprint::range & r : f.what->ranges) {
            if (r.begin >= end || begin >= r.end || f.told) continue;
            f.told = true;
            tell(f, r.of, std::string(call) + " of memory that pending work " + verb(r) + ": " + hex(begin) + ", " + std::to_string(end - begin) +
                        " bytes", describe_site(this_call_site()));
        }
    }
}

}  // namespace strata::emulator
