// HIP's memory calls. Copies check the device's ranges against the allocation table before they are queued.
//
// How copies relate to the host:
//   * pageable source, hipMemcpyAsync: up to 4 MiB the source is read before the call returns, as HIP's staging does; more
//     than that is copied before the call returns.
//   * pinned source, or a destination in host memory: really asynchronous, so that a missing synchronization can show. HIP
//     promises no more for pinned memory, and for a pageable destination it only waits in practice.
//   * hipMemcpy and hipMemset return when all is done, except between device ranges: those HIP only queues.
#include "api.h"
#include "instruments/counts.h"
#include "instruments/host.h"
#include "instruments/state.h"
#include "memory.h"

#include <algorithm>
#include <cstring>

namespace strata {

using namespace emulator;

namespace {

constexpr size_t staged_at_most = size_t{4} << 20;

enum class place { pageable, pinned, device };

// `rows` rows of `width` bytes, `pitch` bytes apart.
struct extent {
    size_t width = 0, rows = 1;
};

struct side {
    uint64_t address = 0;
    size_t pitch = 0;
    place where = place::pageable;
};

struct copy {
    const char * call;
    side to, from;
    extent size;
};

bool span(const extent & size, size_t pitch, size_t & bytes) {
    size_t before_last = 0;
    return !__builtin_mul_overflow(size.rows - 1, pitch, &before_last) && !__builtin_add_overflow(before_last, size.width, &bytes);
}

// Finds out where a side lies. All of it must lie in one allocation, or none of it in the device's.
hip_error locate(const copy & c, side & s, bool written) {
    const char * name = written ? "destination" : "source";
    size_t bytes = 0;
    uint64_t end = 0;
    if (!span(c.size, s.pitch, bytes) || __builtin_add_overflow(s.address, bytes, &end)) {
        return fail(hipErrorInvalidValue, format("%s: the %s has an impossible size", c.call, name));
    }
    if (s.address == 0) {
        return fail(hipErrorInvalidValue, format("%s: the %s is a null pointer", c.call, name));
    }
    const auto map = device_memory::instance().snapshot();
    if (const allocation * a = map->find(s.address, bytes)) {
        if (written && !a->writable) {
            return fail(hipErrorInvalidValue, format("%s: the destination is %s", c.call, map->describe(s.address, bytes).c_str()));
        }
        s.where = std::strncmp(a->kind, "hipHost", 7) == 0 ? place::pinned : place::device;
        return hipSuccess;
    }
    if (device_memory::instance().owns(s.address, bytes)) {
        return fail(hipErrorInvalidValue, format("%s: the %s, %zu bytes at 0x%llx: %s", c.call, name, bytes,
                                                 static_cast<unsigned long long>(s.address), map->describe(s.address, bytes).c_str()));
    }
    s.where = place::pageable;
    return hipSuccess;
}

hip_error check_direction(const copy & c, int kind) {
    const bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
    const bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
    if (kind == hipMemcpyDefault) {
        return hipSuccess;
    }
    if (kind < hipMemcpyHostToHost || kind > hipMemcpyDefault) {
        return fail(hipErrorInvalidMemcpyDirection, format("%s: %d is no hipMemcpyKind", c.call, kind));
    }
    // Pinned memory is both the host's and the device's.
    const auto wrong = [&](const side & s, bool device) { return s.where != place::pinned && (s.where == place::device) != device; };
    if (wrong(c.from, from_device)) {
        return fail(hipErrorInvalidValue, format("%s: the source is %s memory, the direction says otherwise", c.call,
                                                 from_device ? "host" : "device"));
    }
    if (wrong(c.to, to_device)) {
        return fail(hipErrorInvalidValue, format("%s: the destination is %s memory, the direction says otherwise", c.call,
                                                 to_device ? "host" : "device"));
    }
    return hipSuccess;
}

// `followed`: whether the sanitizer takes along which bytes nothing has written. Not into host memory: the host writes that unseen, and it
// counts as written.
void copy_rows(uint64_t to, size_t to_pitch, const void * from, size_t from_pitch, const extent & size, bool followed) {
    auto * target = reinterpret_cast<unsigned char *>(to);
    const auto * source = static_cast<const unsigned char *>(from);
    if (to_pitch == size.width && from_pitch == size.width) {
        std::memmove(target, source, size.width * size.rows);
        if (followed) {
            shadow_copied(to, reinterpret_cast<uint64_t>(from), size.width * size.rows);
        }
        return;
    }
    for (size_t row = 0; row < size.rows; ++row) {
        std::memmove(target + row * to_pitch, source + row * from_pitch, size.width);
        if (followed) {
            shadow_copied(to + row * to_pitch, reinterpret_cast<uint64_t>(source + row * from_pitch), size.width);
        }
    }
}

// What a queued command does with memory, for the sanitizer. A host side that is read before the call returns is left out.
footprint_ptr footprint_of(const copy & c, bool host_sides) {
    if (!watching_host()) {
        return nullptr;
    }
    auto result = std::make_shared<footprint>();
    result->what = c.call;
    const auto add = [&](const side & s, footprint::use how) {
        size_t bytes = 0;
        const bool host = s.where != place::device;
        if (s.address != 0 && span(c.size, s.pitch, bytes) && (host_sides || !host)) {
            result->ranges.push_back({s.address, s.address + bytes, how, host, s.where == place::pinned});
        }
    };
    add(c.to, footprint::use::writes);
    add(c.from, footprint::use::reads);
    return result;
}

outcome run_copy(const copy & c) {
    copy_rows(c.to.address, c.to.pitch, reinterpret_cast<const void *>(c.from.address), c.from.pitch, c.size, c.to.where == place::device);
    return {};
}

fence_ptr submit_copy(const stream_ptr & stream, const copy & c, bool host_sides = true) {
    return device_queues::instance().submit(stream, [c] { return run_copy(c); }, {}, footprint_of(c, host_sides));
}

fence_ptr submit_staged(const stream_ptr & stream, const copy & c) {
    auto staged = std::make_shared<std::vector<unsigned char>>(c.size.width * c.size.rows);
    copy_rows(reinterpret_cast<uint64_t>(staged->data()), c.size.width, reinterpret_cast<const void *>(c.from.address), c.from.pitch,
              c.size, false);
    return device_queues::instance().submit(stream, [c, staged]() -> outcome {
        copy_rows(c.to.address, c.to.pitch, staged->data(), c.size.width, c.size, c.to.where == place::device);
        return {};
    }, {}, footprint_of(c, false));
}

hip_error start_copy(copy c, int kind, hipStream_t handle, bool waits) {
    const stream_ptr stream = find_stream(handle);
    if (!stream) {
        return hipErrorInvalidHandle;
    }
    if (c.size.width == 0 || c.size.rows == 0) {
        return hipSuccess;
    }
    if (const hip_error e = locate(c, c.to, true); e != hipSuccess) {
        return e;
    }
    if (const hip_error e = locate(c, c.from, false); e != hipSuccess) {
        return e;
    }
    if (const hip_error e = check_direction(c, kind); e != hipSuccess) {
        return e;
    }
    const bool to_host = c.to.where != place::device, from_host = c.from.where != place::device;
    const copy_direction direction = to_host ? (from_host ? copy_direction::host_to_host : copy_direction::device_to_host)
                                             : (from_host ? copy_direction::host_to_device : copy_direction::device_to_device);
    device_queues & queues = device_queues::instance();
    if (queues.capturing(stream)) {  // it reads its source, and is counted, whenever it runs
        queues.submit(stream, [c, direction]() -> outcome {
            count_copy(direction, c.size.width * c.size.rows);
            return run_copy(c);
        }, {}, footprint_of(c, true));
        return hipSuccess;
    }
    count_copy(direction, c.size.width * c.size.rows);
    if (waits) {
        const fence_ptr done = submit_copy(stream, c, false);
        if (c.to.where != place::device || c.from.where != place::device) {
            queues.wait(done);
            return device_state();
        }
        return hipSuccess;
    }
    if (c.from.where != place::pageable) {
        submit_copy(stream, c);
    } else if (c.size.width * c.size.rows <= staged_at_most) {
        submit_staged(stream, c);
    } else {
        queues.wait(submit_copy(stream, c, false));
        return device_state();
    }
    return hipSuccess;
}

copy plain_copy(const char * call, void * dst, const void * src, size_t size) {
    return {call, {reinterpret_cast<uint64_t>(dst), size}, {reinterpret_cast<uint64_t>(src), size}, {size, 1}};
}

hip_error start_memset(const char * call, void * dst, int value, size_t size, hipStream_t handle, bool waits) {
    const stream_ptr stream = find_stream(handle);
    if (!stream) {
        return hipErrorInvalidHandle;
    }
    if (size == 0) {
        return hipSuccess;
    }
    copy c = plain_copy(call, dst, nullptr, size);
    if (const hip_error e = locate(c, c.to, true); e != hipSuccess) {
        return e;
    }
    if (c.to.where == place::pageable) {
        return fail(hipErrorInvalidValue, format("%s: the destination %p is not the device's memory", call, dst));
    }
    const fence_ptr done = device_queues::instance().submit(stream, [dst, value, size]() -> outcome {
        std::memset(dst, value, size);
        shadow_written(reinterpret_cast<uint64_t>(dst), size);
        return {};
    }, {}, footprint_of(c, true));
    if (waits && c.to.where == place::pinned) {
        device_queues::instance().wait(done);
        return device_state();
    }
    return hipSuccess;
}

hip_error allocate(const char * call, void ** pointer, size_t size, memory_kind kind) {
    if (pointer == nullptr) {
        return fail(hipErrorInvalidValue, format("%s: a null pointer for the result", call));
    }
    *pointer = nullptr;
    if (size == 0) {
        return hipSuccess;
    }
    std::string why;
    *pointer = device_memory::instance().allocate(size, kind, why);
    return *pointer != nullptr ? hipSuccess : fail(hipErrorOutOfMemory, why);
}

// Waits for the device first, as HIP does: nothing in flight can lose its memory. Works on a poisoned device too, so that
// a program can clean up, but reports its state.
hip_error release(void * pointer, memory_kind kind) {
    if (pointer == nullptr) {
        return hipSuccess;
    }
    if (watching_host()) {
        const auto map = device_memory::instance().snapshot();
        if (const allocation * a = map->find(reinterpret_cast<uint64_t>(pointer), 1)) {
            host_freed(kind == memory_kind::device ? "hipFree" : "hipHostFree", a->begin, a->end);
        }
    }
    device_queues::instance().wait_all();
    std::string why;
    if (!device_memory::instance().release(pointer, kind, why)) {
        return fail(kind == memory_kind::device ? hipErrorInvalidDevicePointer : hipErrorInvalidValue, why);
    }
    return device_state();
}

}  // namespace

hipError_t hipMemGetInfo(size_t * free, size_t * total) {
    return device_call([&]() -> hip_error {
        if (free == nullptr || total == nullptr) {
            return fail(hipErrorInvalidValue, "hipMemGetInfo: a null pointer for a result");
        }
        device_memory::instance().totals(*free, *total);
        return hipSuccess;
    });
}

hipError_t hipMalloc(void ** pointer, size_t size) {
    return device_call([&] { return allocate("hipMalloc", pointer, size, memory_kind::device); });
}

hipError_t hipFree(void * pointer) {
    return call([&] { return release(pointer, memory_kind::device); });
}

hipError_t hipHostMalloc(void ** pointer, size_t size, unsigned) {
    return device_call([&] { return allocate("hipHostMalloc", pointer, size, memory_kind::host); });
}

hipError_t hipHostFree(void * pointer) {
    return call([&] { return release(pointer, memory_kind::host); });
}

hipError_t hipMemcpy(void * dst, const void * src, size_t size, int kind) {
    return device_call([&] { return start_copy(plain_copy("hipMemcpy", dst, src, size), kind, nullptr, true); });
}

hipError_t hipMemcpyAsync(void * dst, const void * src, size_t size, int kind, hipStream_t stream) {
    return device_call([&] { return start_copy(plain_copy("hipMemcpyAsync", dst, src, size), kind, stream, false); });
}

hipError_t hipMemcpy2DAsync(void * dst, size_t dpitch, const void * src, size_t spitch, size_t width, size_t height, int kind,
                            hipStream_t stream) {
    return device_call([&]() -> hip_error {
        if (width > dpitch || width > spitch) {
            return fail(hipErrorInvalidPitchValue,
                        format("hipMemcpy2DAsync: rows of %zu bytes do not fit the pitches %zu (destination) and %zu (source)", width,
                               dpitch, spitch));
        }
        return start_copy({"hipMemcpy2DAsync", {reinterpret_cast<uint64_t>(dst), dpitch}, {reinterpret_cast<uint64_t>(src), spitch},
                           {width, height}}, kind, stream, false);
    });
}

hipError_t hipMemcpyPeerAsync(void * dst, int to, const void * src, int from, size_t size, hipStream_t stream) {
    return device_call([&]() -> hip_error {
        if (to != 0 || from != 0) {
            return fail(hipErrorInvalidDevice, format("hipMemcpyPeerAsync: from device %d to device %d; there is device 0 only", from, to));
        }
        return start_copy(plain_copy("hipMemcpyPeerAsync", dst, src, size), hipMemcpyDeviceToDevice, stream, false);
    });
}

// The device's memory is this process's, so all of it is managed.
hipError_t hipMallocManaged(void ** pointer, size_t size, unsigned) {
    return device_call([&] {
        const hip_error e = allocate("hipMallocManaged", pointer, size, memory_kind::device);
        if (e == hipSuccess && size != 0) {
            shadow_written(reinterpret_cast<uint64_t>(*pointer), size);  // the host writes it unseen
        }
        return e;
    });
}

hipError_t hipMemAdvise(const void * pointer, size_t size, int, int) {
    return device_call([&]() -> hip_error {
        const auto map = device_memory::instance().snapshot();
        const uint64_t address = reinterpret_cast<uint64_t>(pointer);
        return map->find(address, size) != nullptr
                   ? hipSuccess
                   : fail(hipErrorInvalidValue, "hipMemAdvise: the range is " + map->describe(address, size));
    });
}

hipError_t hipHostGetDevicePointer(void ** device_pointer, void * host_pointer, unsigned) {
    return device_call([&]() -> hip_error {
        const auto map = device_memory::instance().snapshot();
        const uint64_t address = reinterpret_cast<uint64_t>(host_pointer);
        if (device_pointer == nullptr || map->find(address, 1) == nullptr) {
            return fail(hipErrorInvalidValue, "hipHostGetDevicePointer: a null pointer for the result, or " + map->describe(address, 1));
        }
        *device_pointer = host_pointer;
        return hipSuccess;
    });
}

hipError_t hipHostRegister(void * pointer, size_t size, unsigned flags) {
    return device_call([&]() -> hip_error {
        if (pointer == nullptr || size == 0) {
            return fail(hipErrorInvalidValue, format("hipHostRegister: %zu bytes at %p", size, pointer));
        }
        std::string why;
        const bool writable = (flags & hipHostRegisterReadOnly) == 0;
        return device_memory::instance().add_registered(pointer, size, writable, why)
                   ? hipSuccess
                   : fail(hipErrorHostMemoryAlreadyRegistered, "hipHostRegister: " + why);
    });
}

hipError_t hipHostUnregister(void * pointer) {
    return call([&]() -> hip_error {
        device_queues::instance().wait_all();
        std::string why;
        return device_memory::instance().remove_registered(pointer, why)
                   ? device_state()
                   : fail(hipErrorHostMemoryNotRegistered, "hipHostUnregister: " + why);
    });
}

hipError_t hipMemset(void * dst, int value, size_t size) {
    return device_call([&] { return start_memset("hipMemset", dst, value, size, nullptr, true); });
}

hipError_t hipMemsetAsync(void * dst, int value, size_t size, hipStream_t stream) {
    return device_call([&] { return start_memset("hipMemsetAsync", dst, value, size, stream, false); });
}

}  // namespace strata
