// HIP's device calls. There is one device, number 0: a Strix Halo GPU with part of this machine's memory.
#include "api.h"
#include "machine.h"
#include "memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace strata {

using namespace emulator;

namespace {

constexpr machine_properties device;
constexpr int version = 70125424;  // HIP 7.1, whose headers the ABI was checked against
constexpr int max_threads_per_block = 1024;
// A workgroup processor: two compute units, which is what HIP counts on RDNA.
constexpr int multiprocessors = static_cast<int>(device.compute_units / 2);
constexpr int registers_per_multiprocessor = 4 * 1536 * 32;  // four SIMDs of 1536 vector registers of 32 lanes
constexpr int threads_per_multiprocessor = 4 * 16 * 32;      // and 16 waves each
// LPDDR5X-8000 on 256 bits; HIP's unit makes 2 * clock * width the bandwidth.
constexpr int memory_clock_khz = 4000000;
constexpr int memory_bus_bits = 256;
constexpr int l2_bytes = 2 << 20;
constexpr int major_version = 11, minor_version = 5;
constexpr int wall_clock_khz = 100000;
constexpr int max_grid_x = 2147483647, max_grid_yz = 65536;
constexpr const char * pci_bus_id = "0000:c5:00.0";
constexpr int pci_bus = 0xc5;

size_t total_memory() {
    size_t free = 0, total = 0;
    device_memory::instance().totals(free, total);
    return total;
}

hip_error check_device(int number) {
    return number == 0 ? hipSuccess : fail(hipErrorInvalidDevice, format("device %d: the emulator has one device, number 0", number));
}

// Writes a member of hipDeviceProp_tR0600 at its offset in HIP 6.0 to 7.1 (hip_runtime_api.h).
template <class T>
void set(hipDeviceProp_tR0600 & prop, size_t offset, T value) {
    std::memcpy(reinterpret_cast<unsigned char *>(&prop) + offset, &value, sizeof(value));
}

void fill(hipDeviceProp_tR0600 & prop) {
    std::memset(&prop, 0, sizeof(prop));
    std::snprintf(prop.name, sizeof(prop.name), "%s", device.name);
    std::memcpy(reinterpret_cast<char *>(&prop) + 256, "strata-emulator", 16);  // uuid
    set<size_t>(prop, 288, total_memory());                                     // totalGlobalMem
    set<size_t>(prop, 296, device.max_lds);                                     // sharedMemPerBlock
    set<int>(prop, 304, registers_per_multiprocessor);                          // regsPerBlock
    set<int>(prop, 308, static_cast<int>(device.wave_size));                    // warpSize
    set<size_t>(prop, 312, 2147483647);                                         // memPitch
    set<int>(prop, 320, max_threads_per_block);                                 // maxThreadsPerBlock
    set<int>(prop, 324, max_threads_per_block);                                 // maxThreadsDim
    set<int>(prop, 328, max_threads_per_block);
    set<int>(prop, 332, max_threads_per_block);
    set<int>(prop, 336, max_grid_x);  // maxGridSize
    set<int>(prop, 340, max_grid_yz);
    set<int>(prop, 344, max_grid_yz);
    set<int>(prop, 348, static_cast<int>(device.clock_khz));   // clockRate
    set<size_t>(prop, 352, 2147483647);                        // totalConstMem
    set<int>(prop, 360, major_version);                        // major
    set<int>(prop, 364, minor_version);                        // minor
    set<int>(prop, 388, multiprocessors);                      // multiProcessorCount
    set<int>(prop, 396, 1);                                    // integrated
    set<int>(prop, 400, 1);                                    // canMapHostMemory
    set<int>(prop, 576, 1);                                    // concurrentKernels
    set<int>(prop, 584, pci_bus);                              // pciBusID
    set<int>(prop, 604, 1);                                    // unifiedAddressing
    set<int>(prop, 608, memory_clock_khz);                     // memoryClockRate
    set<int>(prop, 612, memory_bus_bits);                      // memoryBusWidth
    set<int>(prop, 616, l2_bytes);                             // l2CacheSize
    set<int>(prop, 624, threads_per_multiprocessor);           // maxThreadsPerMultiProcessor
    set<size_t>(prop, 640, device.max_lds);                    // sharedMemPerMultiprocessor
    set<int>(prop, 648, registers_per_multiprocessor);         // regsPerMultiprocessor
    set<size_t>(prop, 696, device.max_lds);                    // sharedMemPerBlockOptin
    std::snprintf(reinterpret_cast<char *>(&prop) + hip_prop_gcn_arch_name_offset, 256, "%s", device.arch);
    set<size_t>(prop, 1416, device.max_lds);                   // maxSharedMemoryPerMultiProcessor
    set<int>(prop, 1424, wall_clock_khz);                      // clockInstructionRate
}

struct attribute {
    int number;  // hipDeviceAttribute_t of HIP 6.0 to 7.1
    int value;
};

constexpr attribute attributes[] = {
    {2, 0},                                              // AsyncEngineCount
    {3, 1},                                              // CanMapHostMemory
    {5, static_cast<int>(device.clock_khz)},             // ClockRate
    {8, 1},                                              // ConcurrentKernels
    {10, 0},                                             // CooperativeLaunch
    {16, 1},                                             // Integrated
    {19, l2_bytes},                                      // L2CacheSize
    {23, major_version},                                 // ComputeCapabilityMajor
    {24, 0},                                             // ManagedMemory
    {26, max_threads_per_block},                         // MaxBlockDimX
    {27, max_threads_per_block},                         // MaxBlockDimY
    {28, max_threads_per_block},                         // MaxBlockDimZ
    {29, max_grid_x},                                    // MaxGridDimX
    {30, max_grid_yz},                                   // MaxGridDimY
    {31, max_grid_yz},                                   // MaxGridDimZ
    {56, max_threads_per_block},                         // MaxThreadsPerBlock
    {57, threads_per_multiprocessor},                    // MaxThreadsPerMultiProcessor
    {59, memory_bus_bits},                               // MemoryBusWidth
    {60, memory_clock_khz},                              // MemoryClockRate
    {61, minor_version},                                 // ComputeCapabilityMinor
    {63, multiprocessors},                               // MultiprocessorCount
    {65, 0},                                             // PageableMemoryAccess
    {67, pci_bus},                                       // PciBusId
    {68, 0},                                             // PciDeviceId
    {69, 0},                                             // PciDomainID
    {71, registers_per_multiprocessor},                  // MaxRegistersPerBlock
    {72, registers_per_multiprocessor},                  // MaxRegistersPerMultiprocessor
    {74, static_cast<int>(device.max_lds)},              // MaxSharedMemoryPerBlock
    {75, static_cast<int>(device.max_lds)},              // SharedMemPerBlockOptin
    {76, static_cast<int>(device.max_lds)},              // SharedMemPerMultiprocessor
    {85, 1},                                             // UnifiedAddressing
    {87, static_cast<int>(device.wave_size)},            // WarpSize
    {88, 0},                                             // MemoryPoolsSupported
    {89, 0},                                             // VirtualMemoryManagementSupported
    {90, 0},                                             // HostRegisterSupported
    {10002, static_cast<int>(device.max_lds)},           // MaxSharedMemoryPerMultiprocessor
    {10015, static_cast<int>(device.compute_units)},     // PhysicalMultiProcessorCount
    {10017, wall_clock_khz},                             // WallClockRate
};

}  // namespace

hipError_t hipInit(unsigned flags) {
    return call([&]() -> hip_error {
        return flags == 0 ? hipSuccess : fail(hipErrorInvalidValue, "hipInit: the flags must be 0");
    });
}

hipError_t hipDriverGetVersion(int * out) {
    return call([&]() -> hip_error {
        if (out == nullptr) {
            return fail(hipErrorInvalidValue, "hipDriverGetVersion: a null pointer for the result");
        }
        *out = version;
        return hipSuccess;
    });
}

hipError_t hipRuntimeGetVersion(int * out) {
    return hipDriverGetVersion(out);
}

hipError_t hipGetDeviceCount(int * count) {
    return call([&]() -> hip_error {
        if (count == nullptr) {
            return fail(hipErrorInvalidValue, "hipGetDeviceCount: a null pointer for the result");
        }
        *count = 1;
        return hipSuccess;
    });
}

hipError_t hipSetDevice(int number) {
    return call([&] { return check_device(number); });
}

hipError_t hipGetDevice(int * number) {
    return call([&]() -> hip_error {
        if (number == nullptr) {
            return fail(hipErrorInvalidValue, "hipGetDevice: a null pointer for the result");
        }
        *number = 0;
        return hipSuccess;
    });
}

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 * prop, int number) {
    return call([&]() -> hip_error {
        if (prop == nullptr) {
            return fail(hipErrorInvalidValue, "hipGetDeviceProperties: a null pointer for the result");
        }
        const hip_error e = check_device(number);
        if (e == hipSuccess) {
            fill(*prop);
        }
        return e;
    });
}

hipError_t hipDeviceGetAttribute(int * value, int number, int device_number) {
    return call([&]() -> hip_error {
        if (value == nullptr) {
            return fail(hipErrorInvalidValue, "hipDeviceGetAttribute: a null pointer for the result");
        }
        if (const hip_error e = check_device(device_number); e != hipSuccess) {
            return e;
        }
        const auto found = std::find_if(std::begin(attributes), std::end(attributes),
                                        [&](const attribute & a) { return a.number == number; });
        if (found == std::end(attributes)) {
            return fail(hipErrorInvalidValue, format("hipDeviceGetAttribute: the emulator does not know attribute %d", number));
        }
        *value = found->value;
        return hipSuccess;
    });
}

hipError_t hipDeviceGetPCIBusId(char * id, int length, int number) {
    return call([&]() -> hip_error {
        if (id == nullptr || length <= static_cast<int>(std::strlen(pci_bus_id))) {
            return fail(hipErrorInvalidValue, format("hipDeviceGetPCIBusId: a buffer of %d bytes is too small", length));
        }
        const hip_error e = check_device(number);
        if (e == hipSuccess) {
            std::memcpy(id, pci_bus_id, std::strlen(pci_bus_id) + 1);
        }
        return e;
    });
}

hipError_t hipDeviceSynchronize() {
    return device_call([&]() -> hip_error {
        device_queues::instance().wait_all();
        return device_state();
    });
}

hipError_t hipDeviceReset() {
    return call([&]() -> hip_error {
        device_queues::instance().reset();
        handle_tables & handles = handle_tables::instance();
        handles.functions.clear();
        handles.graph_execs.clear();
        handles.graphs.clear();
        unload_registered_code();
        handles.modules.clear();
        handles.events.clear();
        handles.streams.clear();
        device_memory::instance().reset();
        return hipSuccess;
    });
}

}  // namespace strata
