// ELF64 for amdgpu. Nothing in the file is believed: every offset is checked before it is used.
#include "code_object.h"

#include "errors.h"
#include "instruments/settings.h"
#include "memory.h"
#include "metadata.h"

#include <llvm/BinaryFormat/ELF.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::emulator {

namespace {

using namespace llvm::ELF;

constexpr size_t largest_image = size_t{1} << 30;
constexpr size_t kernel_descriptor_size = 64;
constexpr uint32_t wanted_machine = EF_AMDGPU_MACH_AMDGCN_GFX1151;
constexpr uint16_t property_wave32 = 1u << 10;
constexpr uint16_t property_dynamic_stack = 1u << 11;

struct load_error {
    hip_error code;
    std::string message;
};

[[noreturn]] void bad(std::string message) {
    throw load_error{hipErrorInvalidImage, "bad code object: " + std::move(message)};
}

/// The image's bytes, of which any may be read only through here.
class image_bytes {
public:
    explicit image_bytes(std::vector<unsigned char> bytes) : bytes_(std::move(bytes)) {}

    const std::vector<unsigned char> & all() const { return bytes_; }
    bool has(uint64_t offset, uint64_t size) const { return offset <= bytes_.size() && size <= bytes_.size() - offset; }

    template <class T>
    T at(uint64_t offset, const char * what) const {
        if (!has(offset, sizeof(T))) {
            bad(format("%s lies beyond the end of the file (%zu bytes)", what, bytes_.size()));
        }
        T value;
        std::memcpy(&value, bytes_.data() + offset, sizeof(T));
        return value;
    }

    std::string_view range(uint64_t offset, uint64_t size, const char * what) const {
        if (!has(offset, size)) {
            bad(format("%s lies beyond the end of the file (%zu bytes)", what, bytes_.size()));
        }
        return {reinterpret_cast<const char *>(bytes_.data()) + offset, size};
    }

private:
    std::vector<unsigned char> bytes_;
};

// Copies memory that may not be there: the kernel reads it for us and stops at the first page that is missing.
std::vector<unsigned char> copy_readable(const void * from, size_t size) {
    const int file = memfd_create("strata-code-object", MFD_CLOEXEC);
    if (file < 0) {
        throw load_error{hipErrorUnknown, "memfd_create failed; it is needed to read a code object"};
    }
    size_t written = 0;
    while (written < size) {
        const ssize_t step = write(file, static_cast<const char *>(from) + written, size - written);
        if (step <= 0) {
            break;
        }
        written += static_cast<size_t>(step);
    }
    std::vector<unsigned char> result(written);
    size_t read_back = 0;
    while (read_back < written) {
        const ssize_t step = pread(file, result.data() + read_back, written - read_back, static_cast<off_t>(read_back));
        if (step <= 0) {
            break;
        }
        read_back += static_cast<size_t>(step);
    }
    ::close(file);
    result.resize(read_back);
    return result;
}

const char * machine_name(uint32_t flags) {
    switch (flags & EF_AMDGPU_MACH) {
        case EF_AMDGPU_MACH_AMDGCN_GFX900: return "gfx900";
        case EF_AMDGPU_MACH_AMDGCN_GFX906: return "gfx906";
        case EF_AMDGPU_MACH_AMDGCN_GFX908: return "gfx908";
        case EF_AMDGPU_MACH_AMDGCN_GFX90A: return "gfx90a";
        case EF_AMDGPU_MACH_AMDGCN_GFX942: return "gfx942";
        case EF_AMDGPU_MACH_AMDGCN_GFX1010: return "gfx1010";
        case EF_AMDGPU_MACH_AMDGCN_GFX1030: return "gfx1030";
        case EF_AMDGPU_MACH_AMDGCN_GFX1031: return "gfx1031";
        case EF_AMDGPU_MACH_AMDGCN_GFX1032: return "gfx1032";
        case EF_AMDGPU_MACH_AMDGCN_GFX1035: return "gfx1035";
        case EF_AMDGPU_MACH_AMDGCN_GFX1036: return "gfx1036";
        case EF_AMDGPU_MACH_AMDGCN_GFX1100: return "gfx1100";
        case EF_AMDGPU_MACH_AMDGCN_GFX1101: return "gfx1101";
        case EF_AMDGPU_MACH_AMDGCN_GFX1102: return "gfx1102";
        case EF_AMDGPU_MACH_AMDGCN_GFX1103: return "gfx1103";
        case EF_AMDGPU_MACH_AMDGCN_GFX1150: return "gfx1150";
        case EF_AMDGPU_MACH_AMDGCN_GFX1151: return "gfx1151";
        case EF_AMDGPU_MACH_AMDGCN_GFX1152: return "gfx1152";
        case EF_AMDGPU_MACH_AMDGCN_GFX1200: return "gfx1200";
        case EF_AMDGPU_MACH_AMDGCN_GFX1201: return "gfx1201";
        case EF_AMDGPU_MACH_AMDGCN_GFX11_GENERIC: return "gfx11-generic";
        default: return nullptr;
    }
}

const char * relocation_name(uint32_t type) {
    switch (type) {
        case R_AMDGPU_ABS32_LO: return "R_AMDGPU_ABS32_LO";
        case R_AMDGPU_ABS32_HI: return "R_AMDGPU_ABS32_HI";
        case R_AMDGPU_ABS64: return "R_AMDGPU_ABS64";
        case R_AMDGPU_REL32: return "R_AMDGPU_REL32";
        case R_AMDGPU_REL64: return "R_AMDGPU_REL64";
        case R_AMDGPU_ABS32: return "R_AMDGPU_ABS32";
        case R_AMDGPU_GOTPCREL: return "R_AMDGPU_GOTPCREL";
        case R_AMDGPU_RELATIVE64: return "R_AMDGPU_RELATIVE64";
        default: return "an unknown type";
    }
}

class loader {
public:
    explicit loader(image_bytes image) : image_(std::move(image)) {
        if (instruments().has(sanitizer_kinds)) kept_ = std::make_shared<const std::vector<unsigned char>>(image_.all());
    }

    std::shared_ptr<loaded_module> load() {
        check_header();
        read_segments();
        read_dynamic();
        check_relocations();
        read_note();
        auto result = std::make_shared<loaded_module>();
        map_segments(*result);
        for (const kernel_metadata & k : metadata_.kernels) {
            loaded_kernel kernel = make_kernel(k);
            if (!result->kernels.emplace(k.name, std::move(kernel)).second) {
                bad("the kernel " + k.name + " is there twice");
            }
        }
        return result;
    }

private:
    void check_header() {
        header_ = image_.at<Elf64_Ehdr>(0, "the ELF header");
        if (header_.e_machine != EM_AMDGPU) {
            throw load_error{hipErrorNoBinaryForGpu, format("the code object is for ELF machine %u, not for amdgpu", header_.e_machine)};
        }
        const uint32_t mach = header_.e_flags & EF_AMDGPU_MACH;
        if (header_.e_ident[EI_OSABI] != ELFOSABI_AMDGPU_HSA) {
            bad(format("OS ABI %u instead of amdhsa", header_.e_ident[EI_OSABI]));
        }
        if (mach != wanted_machine) {
            const char * name = machine_name(header_.e_flags);
            const std::string found = name != nullptr ? name : format("an unknown GPU (EF_AMDGPU_MACH 0x%x)", mach);
            throw load_error{hipErrorNoBinaryForGpu, "the code object is for " + found + ", the emulated device is gfx1151"};
        }
        const unsigned version = header_.e_ident[EI_ABIVERSION];
        if (version != ELFABIVERSION_AMDGPU_HSA_V4 && version != ELFABIVERSION_AMDGPU_HSA_V5 && version != ELFABIVERSION_AMDGPU_HSA_V6) {
            bad(format("code object ABI version %u; versions 2, 3 and 4 (code object v4 to v6) are understood", version));
        }
        if (header_.e_type != ET_DYN) {
            bad(format("ELF type %u instead of a shared object: is it linked?", header_.e_type));
        }
        if (header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phnum == 0) {
            bad("it has no program headers");
        }
    }

    void read_segments() {
        for (unsigned i = 0; i < header_.e_phnum; ++i) {
            uint64_t offset = 0;
            if (__builtin_add_overflow(header_.e_phoff, uint64_t{i} * sizeof(Elf64_Phdr), &offset)) {
                bad("the program headers lie beyond the end of the file");
            }
            const auto segment = image_.at<Elf64_Phdr>(offset, "a program header");
            uint64_t end = 0;
            if (segment.p_type == PT_LOAD && segment.p_memsz != 0) {
                if (segment.p_filesz > segment.p_memsz || __builtin_add_overflow(segment.p_vaddr, segment.p_memsz, &end) ||
                    end > largest_image) {
                    bad("a segment has an impossible size");
                }
                image_.range(segment.p_offset, segment.p_filesz, "a segment");
                if (!loads_.empty() && segment.p_vaddr < loads_.back().p_vaddr + loads_.back().p_memsz) {
                    bad("its segments overlap");
                }
                loads_.push_back(segment);
            } else if (segment.p_type == PT_DYNAMIC) {
                dynamic_ = segment;
            } else if (segment.p_type == PT_NOTE) {
                notes_.push_back(segment);
            }
        }
        if (loads_.empty()) {
            bad("it has nothing to load");
        }
    }

    // File offset of `size` bytes at a virtual address.
    uint64_t file_offset(uint64_t address, uint64_t size, const char * what) const {
        for (const Elf64_Phdr & s : loads_) {
            if (address >= s.p_vaddr && address - s.p_vaddr <= s.p_filesz && size <= s.p_filesz - (address - s.p_vaddr)) {
                return s.p_offset + (address - s.p_vaddr);
            }
        }
        bad(format("%s (address 0x%llx) lies in no segment", what, static_cast<unsigned long long>(address)));
    }

    void read_dynamic() {
        if (dynamic_.p_type != PT_DYNAMIC) {
            bad("it has no dynamic section");
        }
        for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic_.p_filesz; at += sizeof(Elf64_Dyn)) {
            uint64_t offset = 0;
            if (__builtin_add_overflow(dynamic_.p_offset, at, &offset)) {
                bad("the dynamic section lies beyond the end of the file");
            }
            const auto entry = image_.at<Elf64_Dyn>(offset, "the dynamic section");
            const uint64_t value = entry.d_un.d_val;
            switch (entry.d_tag) {
                case DT_NULL: return;
                case DT_SYMTAB: symbols_ = value; break;
                case DT_STRTAB: strings_ = value; break;
                case DT_STRSZ: strings_size_ = value; break;
                case DT_HASH: hash_ = value; break;
                case DT_RELA: rela_ = value; break;
                case DT_RELASZ: rela_size_ = value; break;
                case DT_RELSZ: rel_size_ = value; break;
                case DT_PLTRELSZ: plt_size_ = value; break;
                default: break;
            }
        }
    }

    void check_relocations() const {
        if (rela_size_ >= sizeof(Elf64_Rela)) {
            const auto first = image_.at<Elf64_Rela>(file_offset(rela_, sizeof(Elf64_Rela), "a relocation"), "a relocation");
            throw load_error{hipErrorInvalidImage,
                             format("the code object has dynamic relocations (%llu bytes; the first is %s); the loader applies none",
                                    static_cast<unsigned long long>(rela_size_), relocation_name(static_cast<uint32_t>(first.r_info)))};
        }
        if (rel_size_ != 0 || plt_size_ != 0) {
            throw load_error{hipErrorInvalidImage, "the code object has REL or PLT relocations; the loader applies none"};
        }
    }

    void read_note() {
        for (const Elf64_Phdr & segment : notes_) {
            const std::string_view bytes = image_.range(segment.p_offset, segment.p_filesz, "a note");
            size_t at = 0;
            while (at + sizeof(Elf64_Nhdr) <= bytes.size()) {
                Elf64_Nhdr note;
                std::memcpy(&note, bytes.data() + at, sizeof(note));
                at += sizeof(note);
                const uint64_t name_size = (uint64_t{note.n_namesz} + 3) / 4 * 4;
                if (name_size > bytes.size() - at || note.n_descsz > bytes.size() - at - name_size) {
                    bad("a note is cut off");
                }
                const std::string_view name = bytes.substr(at, note.n_namesz != 0 ? note.n_namesz - 1 : 0);
                const std::string_view contents = bytes.substr(at + name_size, note.n_descsz);
                if (note.n_type == NT_AMDGPU_METADATA && name == "AMDGPU") {
                    std::string why;
                    if (!read_metadata(contents, metadata_, why)) {
                        bad(why);
                    }
                    return;
                }
                at += std::min<uint64_t>(name_size + (uint64_t{note.n_descsz} + 3) / 4 * 4, bytes.size() - at);
            }
        }
        bad("it has no metadata note");
    }

    void map_segments(loaded_module & into) {
        const Elf64_Phdr & last = loads_.back();
        std::string why;
        into.memory = device_memory::instance().allocate(last.p_vaddr + last.p_memsz, memory_kind::code_object, why);
        if (into.memory == nullptr) {
            throw load_error{hipErrorOutOfMemory, why};
        }
        base_ = reinterpret_cast<uint64_t>(into.memory);
        std::vector<allocation> segments;
        for (const Elf64_Phdr & s : loads_) {
            const std::string_view contents = image_.range(s.p_offset, s.p_filesz, "a segment");
            auto * target = static_cast<unsigned char *>(into.memory) + s.p_vaddr;
            std::memcpy(target, contents.data(), contents.size());
            std::memset(target + contents.size(), 0, s.p_memsz - contents.size());  // .bss
            const bool writable = (s.p_flags & PF_W) != 0;
            segments.push_back({base_ + s.p_vaddr, base_ + s.p_vaddr + s.p_memsz, writable, 0,
                                (s.p_flags & PF_X) != 0 ? "code" : writable ? "code object's data" : "code object's constants"});
        }
        device_memory::instance().publish(into.memory, std::move(segments));
    }

    std::string_view symbol_name(const Elf64_Sym & symbol) const {
        if (symbol.st_name >= strings_size_) {
            bad("a symbol's name lies beyond the string table");
        }
        const uint64_t most = strings_size_ - symbol.st_name;
        const uint64_t offset = file_offset(strings_ + symbol.st_name, most, "the string table");
        const std::string_view rest = image_.range(offset, most, "the string table");
        return rest.substr(0, rest.find('\0'));
    }

    // The address (before loading) of the symbol called `name`.
    Elf64_Sym find_symbol(const std::string & name) const {
        if (symbols_ == 0 || strings_ == 0 || hash_ == 0 || strings_size_ > largest_image) {
            bad("its dynamic section names no symbol table");
        }
        // The second word of DT_HASH is the number of symbols.
        const auto count = image_.at<uint32_t>(file_offset(hash_, 8, "the hash table") + 4, "the hash table");
        for (uint32_t i = 1; i < count; ++i) {
            const uint64_t offset = file_offset(symbols_ + uint64_t{i} * sizeof(Elf64_Sym), sizeof(Elf64_Sym), "the symbol table");
            const auto symbol = image_.at<Elf64_Sym>(offset, "the symbol table");
            if (symbol_name(symbol) == name) {
                return symbol;
            }
        }
        bad("the symbol " + name + " is missing");
    }

    loaded_kernel make_kernel(const kernel_metadata & k) {
        const Elf64_Sym symbol = find_symbol(k.symbol);
        if (symbol.st_size != kernel_descriptor_size) {
            bad(format("the descriptor %s has %llu bytes instead of 64", k.symbol.c_str(),
                       static_cast<unsigned long long>(symbol.st_size)));
        }
        const uint64_t at = file_offset(symbol.st_value, kernel_descriptor_size, "a kernel descriptor");
        auto image = std::make_shared<kernel_image>();
        image->name = k.name;
        image->load_base = base_;
        image->elf = kept_;
        image->static_lds = image_.at<uint32_t>(at, "a kernel descriptor");
        image->scratch = image_.at<uint32_t>(at + 4, "a kernel descriptor");
        const auto described_kernarg = image_.at<uint32_t>(at + 8, "a kernel descriptor");
        const auto entry_offset = image_.at<uint64_t>(at + 16, "a kernel descriptor");
        image->rsrc3 = image_.at<uint32_t>(at + 44, "a kernel descriptor");
        image->rsrc1 = image_.at<uint32_t>(at + 48, "a kernel descriptor");
        image->rsrc2 = image_.at<uint32_t>(at + 52, "a kernel descriptor");
        image->properties = image_.at<uint16_t>(at + 56, "a kernel descriptor");
        const auto preload = image_.at<uint16_t>(at + 58, "a kernel descriptor");
        image->user_sgprs = image->rsrc2 >> 1 & 0x1f;
        if ((image->properties & property_wave32) == 0) {
            bad("the kernel " + k.name + " is compiled for wave64; the emulator runs wave32 (-mno-wavefrontsize64)");
        }
        if ((image->properties & property_dynamic_stack) != 0) {
            bad("the kernel " + k.name + " uses a dynamic stack, which the emulator does not provide");
        }
        if (preload != 0) {
            bad("the kernel " + k.name + " wants preloaded arguments, which gfx11 does not have");
        }
        if (described_kernarg != 0 && described_kernarg != k.kernarg_size) {
            bad(format("the kernel %s: its descriptor says %u bytes of arguments, its metadata %u", k.name.c_str(), described_kernarg,
                       k.kernarg_size));
        }
        if (k.kernarg_size > 65536) {
            bad(format("the kernel %s takes %u bytes of arguments", k.name.c_str(), k.kernarg_size));
        }
        const uint64_t entry = symbol.st_value + entry_offset;
        const auto text = std::find_if(loads_.begin(), loads_.end(), [&](const Elf64_Phdr & s) {
            return (s.p_flags & PF_X) != 0 && entry >= s.p_vaddr && entry < s.p_vaddr + s.p_filesz;
        });
        if (text == loads_.end() || entry % 4 != 0) {
            bad("the kernel " + k.name + " starts outside of the executable segment");
        }
        image->entry = base_ + entry;
        image->text_begin = base_ + text->p_vaddr;
        image->text_end = base_ + text->p_vaddr + text->p_filesz;
        image->kernarg_size = k.kernarg_size;
        image->vgprs = k.vgprs;
        image->sgprs = k.sgprs;
        image->vgpr_spills = k.vgpr_spills;
        image->sgpr_spills = k.sgpr_spills;
        image->max_workgroup = k.max_workgroup;
        for (const argument_metadata & a : k.arguments) {
            if (uint64_t{a.offset} + a.size > k.kernarg_size) {
                bad("the kernel " + k.name + " has an argument outside of its argument segment");
            }
            if (a.value_kind.rfind("hidden_", 0) == 0) {
                image->hidden.push_back({a.value_kind, a.offset, a.size});
            } else {
                image->arguments.push_back({a.offset, a.size});
            }
        }
        loaded_kernel result;
        result.image = std::move(image);
        std::copy(std::begin(k.required_workgroup), std::end(k.required_workgroup), result.required_workgroup);
        return result;
    }

    image_bytes image_;
    Elf64_Ehdr header_{};
    std::vector<Elf64_Phdr> loads_, notes_;
    Elf64_Phdr dynamic_{};
    uint64_t symbols_ = 0, strings_ = 0, strings_size_ = 0, hash_ = 0;
    uint64_t rela_ = 0, rela_size_ = 0, rel_size_ = 0, plt_size_ = 0;
    code_metadata metadata_;
    uint64_t base_ = 0;
    std::shared_ptr<const std::vector<unsigned char>> kept_;  // the file, where the sanitizer may want its source lines
};

// How many bytes an image of unknown length has: as far as its header and program headers say.
size_t stated_size(const void * image) {
    const std::vector<unsigned char> first = copy_readable(image, sizeof(Elf64_Ehdr));
    Elf64_Ehdr header;
    if (first.size() < sizeof(header)) {
        return first.size();
    }
    std::memcpy(&header, first.data(), sizeof(header));
    const uint64_t table = uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
    if (std::memcmp(header.e_ident, ElfMagic, 4) != 0 || header.e_phoff > largest_image) {
        return sizeof(header);
    }
    const uint64_t headers_end = header.e_phoff + table;
    const std::vector<unsigned char> bytes = copy_readable(image, headers_end);
    uint64_t end = std::max<uint64_t>(headers_end, sizeof(header));
    for (uint64_t at = header.e_phoff; at + sizeof(Elf64_Phdr) <= bytes.size(); at += sizeof(Elf64_Phdr)) {
        Elf64_Phdr segment;
        std::memcpy(&segment, bytes.data() + at, sizeof(segment));
        uint64_t segment_end = 0;
        if (__builtin_add_overflow(segment.p_offset, segment.p_filesz, &segment_end) || segment_end > largest_image) {
            continue;  // the loader will say so
        }
        end = std::max(end, segment_end);
    }
    return end;
}

void check_magic(std::string_view start) {
    constexpr std::string_view bundle = "__CLANG_OFFLOAD_BUNDLE__";
    if (start.substr(0, bundle.size()) == bundle || start.substr(0, 4) == "CCOB") {
        bad("it is a clang offload bundle; a bare code object is wanted (--no-gpu-bundle-output)");
    }
    if (start.substr(0, 4) != std::string_view(ElfMagic, 4)) {
        bad("it is no ELF file");
    }
    if (start.size() < sizeof(Elf64_Ehdr)) {
        bad(format("it ends after %zu bytes, within the ELF header", start.size()));
    }
    if (start[EI_CLASS] != ELFCLASS64 || start[EI_DATA] != ELFDATA2LSB) {
        bad("it is no 64-bit little-endian ELF file");
    }
}

}  // namespace

loaded_module::~loaded_module() {
    if (memory != nullptr) {
        std::string why;
        device_memory::instance().release(memory, memory_kind::code_object, why);
    }
}

std::shared_ptr<loaded_module> load_code_object(const void * image, size_t size, hip_error & error) {
    try {
        const size_t length = size != 0 ? size : stated_size(image);
        if (length > largest_image) {
            bad("it is larger than 1 GiB");
        }
        std::vector<unsigned char> bytes = copy_readable(image, length);
        if (bytes.empty()) {
            bad("its memory cannot be read");
        }
        check_magic({reinterpret_cast<const char *>(bytes.data()), std::min<size_t>(bytes.size(), sizeof(Elf64_Ehdr))});
        return loader(image_bytes(std::move(bytes))).load();
    } catch (const load_error & e) {
        error = fail(e.code, e.message);
        return nullptr;
    }
}

}  // namespace strata::emulator
