// The border between the HIP ABI side of the emulator (api, streams, memory, code objects) and the machine that executes
// instructions (decode, wave, workgroup). Device addresses are host addresses: an allocation of the emulator is memory of
// this process, but no access is made before the allocation table has been asked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace strata::emulator {

/// An address range that kernels may access. `id` counts allocations, for messages.
struct allocation {
    uint64_t begin = 0;
    uint64_t end = 0;      ///< one past the last byte the program asked for
    bool writable = true;  ///< code objects' read-only segments are not
    uint64_t id = 0;
    const char * kind = "hipMalloc";
};

/// An immutable, sorted picture of all live allocations. A launch takes one when it starts to run.
struct allocation_map {
    std::vector<allocation> ranges;  ///< sorted by begin, not overlapping
    std::vector<allocation> freed;   ///< some recently freed ranges, newest last; for messages

    /// The allocation that holds all of [address, address + size), or nullptr.
    const allocation * find(uint64_t address, uint64_t size) const;
    /// The allocation whose border is nearest to address, or nullptr if there is none.
    const allocation * nearest(uint64_t address) const;
    /// What an access to [address, address + size) meets, for fault messages: "4 bytes past the end of allocation #7
    /// (hipMalloc, 4096 bytes at 0x...)", "inside allocation #3 (...), which was freed", "a null pointer", ...
    std::string describe(uint64_t address, uint64_t size) const;
};

/// A kernel of a loaded code object, from its descriptor (64 bytes in .rodata) and its metadata note.
struct kernel_image {
    std::string name;
    uint64_t entry = 0;         ///< address of the first instruction, in loaded (allocated) memory
    uint64_t text_begin = 0;    ///< the executable segment that holds it
    uint64_t text_end = 0;
    uint32_t static_lds = 0;    ///< bytes
    uint32_t scratch = 0;       ///< private segment bytes a lane
    uint32_t kernarg_size = 0;
    uint32_t user_sgprs = 0;    ///< compute_pgm_rsrc2 USER_SGPR_COUNT
    uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
    uint16_t properties = 0;    ///< kernel_code_properties: which user SGPRs, wave32
    uint32_t vgprs = 0;         ///< from metadata (.vgpr_count), for reports
    uint32_t sgprs = 0;
    uint32_t vgpr_spills = 0, sgpr_spills = 0;
    uint32_t max_workgroup = 1024;

    /// One hidden argument that the runtime fills in: metadata .value_kind, .offset, .size.
    struct hidden_argument {
        std::string kind;
        uint32_t offset = 0;
        uint32_t size = 0;
    };
    std::vector<hidden_argument> hidden;

    /// An explicit argument's offset and size, for launches with a pointer array.
    struct argument {
        uint32_t offset = 0;
        uint32_t size = 0;
    };
    std::vector<argument> arguments;

    uint64_t load_base = 0;                                 ///< what was added to the addresses in the file
    std::shared_ptr<const std::vector<unsigned char>> elf;  ///< the code object, kept for the sanitizer's source lines

    std::shared_ptr<struct program> decoded;  ///< the machine's decoded form, made lazily by the machine
};

struct dim3 {
    uint32_t x = 1, y = 1, z = 1;
};

/// One launch, complete: the kernarg segment is filled, hidden arguments included.
struct dispatch {
    std::shared_ptr<kernel_image> kernel;
    dim3 grid;                       ///< workgroups
    dim3 block;                      ///< work-items a workgroup
    uint32_t dynamic_lds = 0;        ///< bytes added to static_lds
    std::vector<uint8_t> kernarg;    ///< kernarg_size bytes
    bool cooperative = false;        ///< its workgroups wait for each other
};

/// Why a launch stopped. `message` is complete and readable: kernel, instruction text, its offset in the kernel, lane,
/// address, workgroup, nearest allocation, as far as they apply.
struct fault {
    enum class kind { none, memory, unknown_instruction, bad_launch, hang } what = kind::none;
    std::string message;
    explicit operator bool() const { return what != kind::none; }
};

/// Totals since the process started; exact for finished launches.
struct counters {
    uint64_t launches = 0;
    uint64_t waves = 0;
    uint64_t instructions = 0;  ///< wave instructions executed
};

/// The device that this machine emulates.
struct machine_properties {
    const char * name = "AMD Radeon 8060S (emulated gfx1151)";
    const char * arch = "gfx1151";
    uint32_t compute_units = 40;
    uint32_t workgroup_processors = 20;
    uint32_t clock_khz = 2900000;
    uint32_t max_lds = 65536;
    uint32_t wave_size = 32;
};

/// Runs a dispatch to its end on all worker threads (STRATA_EMULATOR_THREADS, default: all cores) and returns the first
/// fault, or kind::none. Called by one stream at a time. Never crashes on a bad kernel. (machine.cpp)
fault run(const dispatch & launch, const allocation_map & memory);

/// Set when the process is about to exit: run() then returns at the next workgroup, leaving the rest undone. (stream.cpp)
extern std::atomic<bool> stopping;

/// Instruction text of every distinct mnemonic in the executable segment, for tests. (decode)
std::vector<std::string> mnemonics(const kernel_image & kernel);

counters totals();

}  // namespace strata::emulator
