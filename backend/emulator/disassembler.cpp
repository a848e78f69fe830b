// LLVM's C++ MC API (LLVM 19). Mnemonics are asked once per opcode and remembered.
#include "disassembler.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunused-parameter"
#pragma clang diagnostic ignored "-Wdeprecated-declarations"
#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstPrinter.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/MCTargetOptions.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/raw_ostream.h>
#pragma clang diagnostic pop

extern "C" {
void LLVMInitializeAMDGPUTargetInfo();
void LLVMInitializeAMDGPUTargetMC();
void LLVMInitializeAMDGPUDisassembler();
}

namespace strata::emulator {

struct disassembler::state {
    llvm::MCTargetOptions options;
    std::unique_ptr<llvm::MCRegisterInfo> registers;
    std::unique_ptr<llvm::MCAsmInfo> assembler;
    std::unique_ptr<llvm::MCInstrInfo> instructions;
    std::unique_ptr<llvm::MCSubtargetInfo> subtarget;
    std::unique_ptr<llvm::MCContext> context;
    std::unique_ptr<llvm::MCDisassembler> decoder;
    std::unique_ptr<llvm::MCInstPrinter> printer;
    std::unordered_map<unsigned, std::string> names;
};

disassembler::disassembler() : state_(std::make_unique<state>()) {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUDisassembler();
    const llvm::Triple triple("amdgcn-amd-amdhsa");
    std::string error;
    const llvm::Target * target = llvm::TargetRegistry::lookupTarget(triple.str(), error);
    if (!target) throw std::runtime_error("the emulator's LLVM has no AMDGPU target: " + error);
    state & s = *state_;
    s.registers.reset(target->createMCRegInfo(triple.str()));
    s.assembler.reset(target->createMCAsmInfo(*s.registers, triple.str(), s.options));
    s.instructions.reset(target->createMCInstrInfo());
    s.subtarget.reset(target->createMCSubtargetInfo(triple.str(), "gfx1151", "+wavefrontsize32,-wavefrontsize64"));
    s.context = std::make_unique<llvm::MCContext>(triple, s.assembler.get(), s.registers.get(), s.subtarget.get());
    s.decoder.reset(target->createMCDisassembler(*s.subtarget, *s.context));
    s.printer.reset(target->createMCInstPrinter(triple, 0, *s.assembler, *s.instructions, *s.registers));
    if (!s.decoder || !s.printer) throw std::runtime_error("the emulator's LLVM cannot disassemble gfx1151");
}

disassembler::~disassembler() = default;

static std::string bare_mnemonic(std::string name) {
    name = name.substr(0, name.find_first_of(" \t"));
    for (const char * suffix : {"_dpp", "_e32", "_e64", "_dpp8"}) {
        const std::string_view s = suffix;
        if (name.size() > s.size() && name.compare(name.size() - s.size(), s.size(), s) == 0) {
            name.resize(name.size() - s.size());
        }
    }
    for (const char * suffix : {"_e64", "_e32"}) {
        const std::string_view s = suffix;
        if (name.size() > s.size() && name.compare(name.size() - s.size(), s.size(), s) == 0) name.resize(name.size() - s.size());
    }
    return name;
}

disassembler::result disassembler::decode(const uint8_t * bytes, uint64_t available) {
    llvm::MCInst instruction;
    uint64_t size = 0;
    const auto status = state_->decoder->getInstruction(instruction, size, {bytes, std::min<uint64_t>(available, 24)}, 0, llvm::nulls());
    if (status != llvm::MCDisassembler::Success) return {};
    auto [found, inserted] = state_->names.try_emplace(instruction.getOpcode());
    if (inserted) {
        const char * name = state_->printer->getMnemonic(&instruction).first;
        found->second = bare_mnemonic(name ? name : "");
    }
    return {uint32_t(size), found->second};
}

std::string disassembler::text(const uint8_t * bytes, uint64_t available) {
    llvm::MCInst instruction;
    uint64_t size = 0;
    const auto status = state_->decoder->getInstruction(instruction, size, {bytes, std::min<uint64_t>(available, 24)}, 0, llvm::nulls());
    std::string out;
    llvm::raw_string_ostream stream(out);
    if (status != llvm::MCDisassembler::Success) {
        stream << "bytes";
        for (uint64_t n = 0; n < std::min<uint64_t>(available, 8); n++) stream << llvm::format(" %02x", bytes[n]);
    } else {
        state_->printer->printInst(&instruction, 0, "", *state_->subtarget, stream);
    }
    stream.flush();
    std::replace(out.begin(), out.end(), '\t', ' ');
    const size_t first = out.find_first_not_of(' ');
    return first == std::string::npos ? out : out.substr(first);
}

}  // namespace strata::emulator
