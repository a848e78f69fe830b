// Which mnemonics the code of a kernel or of an ELF file has, and which of them have a handler: for tests.
#include "encoding.h"
#include "machine.h"
#include "program.h"

#include <cstring>
#include <elf.h>
#include <set>

namespace strata::emulator {

/// The distinct mnemonics in a range of code, walked from its start to its end. VOPD pairs give both halves.
static std::set<std::string> mnemonics_of(const uint8_t * code, uint64_t size) {
    std::set<std::string> found;
    shared_disassembler & llvm = llvm_decoder();
    std::lock_guard hold(llvm.lock);
    for (uint64_t at = 0; at + 4 <= size;) {
        const auto decoded = llvm.decoder.decode(code + at, size - at);
        uint64_t word = 0;
        std::memcpy(&word, code + at, size - at < 8 ? 4 : 8);
        if (decoded.size == 0) {
            at += 4;  // padding
            continue;
        }
        if (encoding_of(uint32_t(word)) == encoding::vopd) {
            for (uint32_t half : {bits(word, 25, 22), bits(word, 21, 17)}) {
                if (const char * name = vopd_mnemonic(half)) found.insert(name);
            }
        } else {
            found.insert(std::string(decoded.mnemonic));
        }
        at += decoded.size;
    }
    return found;
}

std::vector<std::string> mnemonics(const kernel_image & kernel) {
    const auto found = mnemonics_of(reinterpret_cast<const uint8_t *>(kernel.text_begin), kernel.text_end - kernel.text_begin);
    return {found.begin(), found.end()};
}

static bool is_known(const std::string & mnemonic) {
    const std::string single = mnemonic.starts_with("v_dual_") ? "v_" + mnemonic.substr(7) : mnemonic;
    return mnemonic == "s_code_end" || find_operation(current_isa(), single) != nullptr;
}

}  // namespace strata::emulator

/// Writes "mnemonic<TAB>1" (has a handler) or "mnemonic<TAB>0" lines for the executable segments of a code object, as much
/// of them as fits with a terminating zero; returns the number of bytes needed without it, or -1 if `elf` is not a 64-bit ELF.
extern "C" __attribute__((visibility("default"))) int strata_emulator_mnemonics(const void * elf, size_t size, char * out,
                                                                                size_t capacity) {
    using namespace strata::emulator;
    const auto * bytes = static_cast<const uint8_t *>(elf);
    Elf64_Ehdr header;
    if (!elf || size < sizeof header) return -1;
    std::memcpy(&header, bytes, sizeof header);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return -1;
    std::set<std::string> found;
    for (unsigned n = 0; n < header.e_phnum; n++) {
        const uint64_t at = header.e_phoff + uint64_t(n) * sizeof(Elf64_Phdr);
        Elf64_Phdr segment;
        if (at > size || size - at < sizeof segment) return -1;
        std::memcpy(&segment, bytes + at, sizeof segment);
        if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
        if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) return -1;
        found.merge(mnemonics_of(bytes + segment.p_offset, segment.p_filesz));
    }
    std::string text;
    for (const std::string & m : found) text += m + (is_known(m) ? "\t1\n" : "\t0\n");
    if (capacity) {
        const size_t n = text.size() < capacity ? text.size() : capacity - 1;
        std::memcpy(out, text.data(), n);
        out[n] = 0;
    }
    return int(text.size());
}
