// Source lines from the DWARF of a code object, read by LLVM.
#include "report.h"

#include "../machine.h"

#include <memory>
#include <map>
#include <mutex>

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunused-parameter"
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
#include <llvm/DebugInfo/DWARF/DWARFContext.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#pragma clang diagnostic pop

namespace strata::emulator {

namespace {

struct debug_information {
    std::shared_ptr<const std::vector<unsigned char>> bytes;
    std::unique_ptr<llvm::object::ObjectFile> file;
    std::unique_ptr<llvm::DWARFContext> lines;
};

}  // namespace

std::string source_line(const kernel_image & kernel, uint64_t address) {
    if (!kernel.elf) return "";
    static std::mutex & lock = *new std::mutex;
    static auto & known = *new std::map<const void *, debug_information>;
    std::lock_guard hold(lock);
    auto [found, fresh] = known.try_emplace(kernel.elf.get());
    debug_information & d = found->second;
    if (fresh) {
        d.bytes = kernel.elf;  // kept, so that the key stays its own
        const llvm::StringRef text(reinterpret_cast<const char *>(d.bytes->data()), d.bytes->size());
        auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(text, "code object"));
        if (file) {
            d.file = std::move(*file);
            d.lines = llvm::DWARFContext::create(*d.file);
        } else {
            llvm::consumeError(file.takeError());
        }
    }
    if (!d.lines) return "";
    llvm::object::SectionedAddress at;
    at.Address = address - kernel.load_base;
    const llvm::DILineInfo line = d.lines->getLineInfoForAddress(
        at, {llvm::DILineInfoSpecifier::FileLineInfoKind::RawValue, llvm::DILineInfoSpecifier::FunctionNameKind::None});
    if (line.Line == 0 || line.FileName == llvm::DILineInfo::BadString) return "";
    const std::string & name = line.FileName;
    return name.substr(name.rfind('/') + 1) + ":" + std::to_string(line.Line);
}

}  // namespace strata::emulator
