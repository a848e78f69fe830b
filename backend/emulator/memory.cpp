// Allocation by mmap inside one reserved address range, and pictures of the result for kernels.
#include "memory.h"

#include "errors.h"
#include "instruments/host_sites.h"
#include "instruments/state.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

namespace strata::emulator {

namespace {

constexpr size_t page = 4096;
constexpr size_t huge_page = size_t{2} << 20;
constexpr size_t guard = size_t{64} << 10;  // between two allocations: a stray index meets no neighbour
constexpr size_t largest_arena = size_t{1} << 43;
constexpr size_t smallest_arena = size_t{1} << 33;
constexpr size_t watched_arena = size_t{1} << 40;  // with shadows: they are several times as large
constexpr size_t remembered_freed = 256;
// Only allocations from here on are worth a look at the system's free memory.
constexpr size_t worth_a_look = size_t{32} << 20;

size_t round_up(size_t value, size_t to) {
    return (value + to - 1) / to * to;
}

// A field of /proc/meminfo in bytes, 0 if it cannot be read.
size_t meminfo(const char * field) {
    std::ifstream file("/proc/meminfo");
    std::string name;
    size_t kilobytes = 0;
    while (file >> name >> kilobytes) {
        if (name == field) {
            return kilobytes * 1024;
        }
        file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return 0;
}

// The container's limit, or "no limit" as a huge number.
size_t cgroup_limit() {
    size_t limit = std::numeric_limits<size_t>::max();
    for (const char * path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        std::ifstream file(path);
        size_t value = 0;
        if (file >> value && value > 0) {
            limit = std::min(limit, value);
        }
    }
    return limit;
}

// The emulated device may have three quarters of what the machine or container has; the rest is the host program's.
size_t default_total() {
    const size_t ram = std::min(meminfo("MemTotal:"), cgroup_limit());
    return (ram != 0 ? ram : size_t{4} << 30) / 4 * 3;
}

const char * kind_name(memory_kind kind) {
    switch (kind) {
        case memory_kind::device: return "hipMalloc";
        case memory_kind::host: return "hipHostMalloc";
        case memory_kind::code_object: return "code object";
    }
    return "?";
}

std::string name_of(const allocation & a) {
    return format("allocation #%llu (%s, %llu bytes at 0x%llx)", static_cast<unsigned long long>(a.id), a.kind,
                  static_cast<unsigned long long>(a.end - a.begin), static_cast<unsigned long long>(a.begin));
}

const allocation * holding(const std::vector<allocation> & ranges, uint64_t address) {
    for (auto it = ranges.rbegin(); it != ranges.rend(); ++it) {
        if (it->begin <= address && address < it->end) {
            return &*it;
        }
    }
    return nullptr;
}

}  // namespace

size_t parse_size(const char * text) {
    char * end = nullptr;
    errno = 0;
    const unsigned long long number = std::strtoull(text, &end, 10);
    if (errno != 0 || end == text || *text == '-') {
        return 0;
    }
    unsigned shift = 0;
    switch (*end) {
        case 'k': case 'K': shift = 10; ++end; break;
        case 'm': case 'M': shift = 20; ++end; break;
        case 'g': case 'G': shift = 30; ++end; break;
        default: break;
    }
    if (*end != '\0' || number > (std::numeric_limits<size_t>::max() >> shift)) {
        return 0;
    }
    return static_cast<size_t>(number) << shift;
}

const allocation * allocation_map::find(uint64_t address, uint64_t size) const {
    auto it = std::upper_bound(ranges.begin(), ranges.end(), address,
                               [](uint64_t value, const allocation & a) { return value < a.begin; });
    if (it == ranges.begin()) {
        return nullptr;
    }
    --it;
    return address < it->end && size <= it->end - address ? &*it : nullptr;
}

const allocation * allocation_map::nearest(uint64_t address) const {
    const allocation * best = nullptr;
    uint64_t best_distance = std::numeric_limits<uint64_t>::max();
    for (const allocation & a : ranges) {
        const uint64_t distance = address < a.begin ? a.begin - address : address >= a.end ? address - a.end + 1 : 0;
        if (distance < best_distance) {
            best_distance = distance;
            best = &a;
        }
    }
    return best;
}

std::string allocation_map::describe(uint64_t address, uint64_t size) const {
    if (find(address, size) != nullptr) {
        const allocation * a = find(address, size);
        return std::string(a->writable ? "inside " : "inside the read-only ") + name_of(*a);
    }
    if (address < page) {
        return address == 0 ? "a null pointer" : format("%llu bytes from a null pointer", static_cast<unsigned long long>(address));
    }
    if (const allocation * a = find(address, 1)) {
        const uint64_t beyond = address + size - a->end;
        return format("%llu of its %llu bytes lie past the end of ", static_cast<unsigned long long>(beyond),
                      static_cast<unsigned long long>(size)) + name_of(*a);
    }
    if (const allocation * a = holding(freed, address)) {
        return "inside " + name_of(*a) + ", which was freed";
    }
    if (const allocation * a = nearest(address)) {
        const bool before = address < a->begin;
        const uint64_t distance = before ? a->begin - address : address - a->end;
        return format("%llu bytes %s ", static_cast<unsigned long long>(distance), before ? "before" : "past the end of") + name_of(*a);
    }
    return "no memory is allocated";
}

device_memory & device_memory::instance() {
    static device_memory & memory = *new device_memory;  // never destroyed: worker threads may outlive main()
    return memory;
}

device_memory::device_memory() {
    const bool shadowed = instruments().has(instrument_init | instrument_race);
    for (size_t size = shadowed ? watched_arena : largest_arena; size >= smallest_arena && arena_ == 0; size /= 2) {
        void * range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range != MAP_FAILED) {
            arena_ = round_up(reinterpret_cast<uint64_t>(range), huge_page);
            arena_end_ = reinterpret_cast<uint64_t>(range) + size;
            next_ = arena_;
        }
    }
    if (shadowed) shadow_reserve(arena_, arena_end_);
    if (const char * given = std::getenv("STRATA_EMULATOR_MEMORY")) {
        total_ = parse_size(given);
        total_is_given_ = total_ != 0;
        if (!total_is_given_) {
            std::fprintf(stderr, "strata-emulator: STRATA_EMULATOR_MEMORY=%s is not a size (as 4096, 512M, 2G) and is ignored\n", given);
        }
    }
    if (!total_is_given_) {
        total_ = default_total();
    }
}

// An address for `mapped` bytes: upwards from the last one, and from the start again when the range is used up. 0: no room.
uint64_t device_memory::place(size_t mapped, size_t alignment) const {
    if (arena_ == 0 || mapped > arena_end_ - arena_) {
        return 0;
    }
    const uint64_t here = round_up(next_ + guard, alignment);
    if (here + mapped + guard <= arena_end_) {
        const auto above = blocks_.lower_bound(here);
        const bool free_above = above == blocks_.end() || here + mapped + guard <= above->first;
        const bool free_below = above == blocks_.begin() ||
                                std::prev(above)->first + std::prev(above)->second.mapped + guard <= here;
        if (free_above && free_below) {
            return here;
        }
    }
    uint64_t candidate = round_up(arena_ + guard, alignment);
    for (const auto & [begin, what] : blocks_) {
        if (candidate + mapped + guard <= begin) {
            break;
        }
        candidate = round_up(begin + what.mapped + guard, alignment);
    }
    return candidate + mapped + guard <= arena_end_ ? candidate : 0;
}

void * device_memory::allocate(size_t size, memory_kind kind, std::string & why) {
    std::unique_lock guard_lock(lock_);
    const size_t available = kind == memory_kind::host ? std::numeric_limits<size_t>::max() / 2 : total_ - std::min(total_, used_);
    if (size > available || size > (size_t{1} << 46)) {
        why = format("%s of %zu bytes: %zu of the emulated device's %zu bytes are free (STRATA_EMULATOR_MEMORY sets its size)",
                     kind_name(kind), size, std::min(available, total_), total_);
        return nullptr;
    }
    // Without a size given by the user the device is part of the machine's RAM, and what others hold of it cannot be given.
    const bool bounded_by_machine = !total_is_given_ || kind == memory_kind::host;
    if (bounded_by_machine && size >= worth_a_look) {
        const size_t machine = meminfo("MemAvailable:");
        if (machine != 0 && size > machine) {
            why = format("%s of %zu bytes: this machine has %zu bytes of memory left", kind_name(kind), size, machine);
            return nullptr;
        }
    }
    block fresh;
    fresh.size = size;
    fresh.mapped = round_up(size, page);
    fresh.kind = kind;
    const uint64_t begin = place(fresh.mapped, fresh.mapped >= huge_page ? huge_page : page);
    if (begin == 0) {
        why = format("%s of %zu bytes: no address range is left", kind_name(kind), size);
        return nullptr;
    }
    void * pointer = reinterpret_cast<void *>(begin);
    if (mmap(pointer, fresh.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        const int reason = errno;
        mmap(pointer, fresh.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        why = format("%s of %zu bytes: the system gives no memory: %s", kind_name(kind), size, std::strerror(reason));
        return nullptr;
    }
    if (fresh.mapped >= huge_page) {
        madvise(pointer, fresh.mapped, MADV_HUGEPAGE);  // only speed
    }
    if (kind != memory_kind::host) {
        used_ += size;
    }
    if (kind != memory_kind::code_object) {
        fresh.visible = {{begin, begin + size, true, ++count_, kind_name(kind)}};
    }
    next_ = begin + fresh.mapped;
    const size_t mapped = fresh.mapped;
    blocks_.emplace(begin, std::move(fresh));
    snapshot_.reset();
    guard_lock.unlock();
    if (kind == memory_kind::device) {
        shadow_fresh(begin, size);
    }
    allocation_made(begin);
    std::memset(pointer, 0xff, mapped);  // a NaN in every float type, and an index out of every range
    return pointer;
}

bool device_memory::release(void * pointer, memory_kind kind, std::string & why) {
    std::lock_guard guard_lock(lock_);
    const uint64_t begin = reinterpret_cast<uint64_t>(pointer);
    const auto found = blocks_.find(begin);
    if (found == blocks_.end() || found->second.kind != kind) {
        const allocation_map now = [&] {
            allocation_map map;
            for (const auto & [_, what] : blocks_) {
                map.ranges.insert(map.ranges.end(), what.visible.begin(), what.visible.end());
            }
            map.freed = freed_;
            return map;
        }();
        why = format("%p was not allocated by %s: it is %s", pointer, kind_name(kind), now.describe(begin, 1).c_str());
        return false;
    }
    unmap(begin, found->second);
    blocks_.erase(found);
    return true;
}

void device_memory::unmap(uint64_t begin, const block & what) {
    shadow_gone(begin, what.mapped);
    allocation_freed(begin);
    mmap(reinterpret_cast<void *>(begin), what.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (what.kind != memory_kind::host) {
        used_ -= what.size;
    }
    for (const allocation & a : what.visible) {
        if (freed_.size() == remembered_freed) {
            freed_.erase(freed_.begin());
        }
        freed_.push_back(a);
    }
    snapshot_.reset();
}

bool device_memory::add_registered(void * pointer, size_t size, bool writable, std::string & why) {
    const uint64_t begin = reinterpret_cast<uint64_t>(pointer);
    std::lock_guard guard_lock(lock_);
    auto above = registered_.lower_bound(begin);
    const bool overlaps = (above != registered_.end() && above->first < begin + size) ||
                          (above != registered_.begin() && std::prev(above)->second.end > begin);
    if (overlaps || owns(begin, size)) {
        why = format("%zu bytes at %p overlap memory that is the device's already", size, pointer);
        return false;
    }
    registered_.emplace(begin, allocation{begin, begin + size, writable, ++count_, "hipHostRegister"});
    snapshot_.reset();
    return true;
}

bool device_memory::remove_registered(void * pointer, std::string & why) {
    std::lock_guard guard_lock(lock_);
    if (registered_.erase(reinterpret_cast<uint64_t>(pointer)) == 0) {
        why = format("%p was not registered", pointer);
        return false;
    }
    snapshot_.reset();
    return true;
}

void device_memory::publish(void * pointer, std::vector<allocation> segments) {
    std::lock_guard guard_lock(lock_);
    const auto found = blocks_.find(reinterpret_cast<uint64_t>(pointer));
    if (found == blocks_.end()) {
        return;
    }
    ++count_;
    for (allocation & a : segments) {
        a.id = count_;
    }
    found->second.visible = std::move(segments);
    snapshot_.reset();
}

std::shared_ptr<const allocation_map> device_memory::snapshot() {
    std::lock_guard guard_lock(lock_);
    if (!snapshot_) {
        auto map = std::make_shared<allocation_map>();
        for (const auto & [_, what] : blocks_) {
            map->ranges.insert(map->ranges.end(), what.visible.begin(), what.visible.end());
        }
        for (const auto & [_, what] : registered_) {
            map->ranges.push_back(what);
        }
        std::sort(map->ranges.begin(), map->ranges.end(), [](const allocation & a, const allocation & b) { return a.begin < b.begin; });
        map->freed = freed_;
        snapshot_ = std::move(map);
    }
    return snapshot_;
}

void device_memory::totals(size_t & free, size_t & total) {
    std::lock_guard guard_lock(lock_);
    total = total_;
    free = total_ - std::min(total_, used_);
    if (!total_is_given_) {
        const size_t machine = meminfo("MemAvailable:");
        if (machine != 0) {
            free = std::min(free, machine);
        }
    }
}

void device_memory::reset() {
    std::lock_guard guard_lock(lock_);
    for (const auto & [begin, what] : blocks_) {
        unmap(begin, what);
    }
    blocks_.clear();
    registered_.clear();
    snapshot_.reset();
}

}  // namespace strata::emulator
