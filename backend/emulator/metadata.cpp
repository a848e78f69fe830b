// Metadata from msgpack: LLVM reads the tokens, bounds checked; the tree built from them is bounded in depth and size.
#include "metadata.h"

#include <llvm/BinaryFormat/MsgPackReader.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace strata::emulator {

namespace {

constexpr unsigned deepest = 12;
constexpr size_t most_nodes = 1u << 20;

struct node {
    std::optional<uint64_t> number;
    std::optional<std::string> text;
    std::vector<std::string> keys;  // of a map; those that are no text are empty
    std::vector<node> items;        // of an array or a map

    const node * field(std::string_view name) const {
        const auto found = std::find(keys.begin(), keys.end(), name);
        return found != keys.end() ? &items[static_cast<size_t>(found - keys.begin())] : nullptr;
    }

    uint32_t number_at(std::string_view name, uint32_t otherwise = 0) const {
        const node * found = field(name);
        if (found == nullptr || !found->number || *found->number > std::numeric_limits<uint32_t>::max()) {
            return otherwise;
        }
        return static_cast<uint32_t>(*found->number);
    }

    std::string text_at(std::string_view name) const {
        const node * found = field(name);
        return found != nullptr && found->text ? *found->text : std::string();
    }
};

class tree_reader {
public:
    explicit tree_reader(std::string_view bytes) : reader_(llvm::StringRef(bytes.data(), bytes.size())) {}

    bool read(node & into, unsigned depth = 0) {
        using llvm::msgpack::Type;
        if (depth > deepest || ++nodes_ > most_nodes) {
            return false;
        }
        llvm::msgpack::Object object;
        llvm::Expected<bool> more = reader_.read(object);
        if (!more) {
            llvm::consumeError(more.takeError());
            return false;
        }
        if (!*more) {
            return false;
        }
        switch (object.Kind) {
            case Type::UInt: into.number = object.UInt; return true;
            case Type::Int:
                if (object.Int >= 0) {
                    into.number = static_cast<uint64_t>(object.Int);
                }
                return true;
            case Type::Boolean: into.number = object.Bool ? 1 : 0; return true;
            case Type::String: into.text = object.Raw.str(); return true;
            case Type::Array:
                for (size_t i = 0, count = object.Length; i < count; ++i) {
                    if (!read(into.items.emplace_back(), depth + 1)) {
                        return false;
                    }
                }
                return true;
            case Type::Map:
                for (size_t i = 0, count = object.Length; i < count; ++i) {
                    node key;
                    if (!read(key, depth + 1) || !read(into.items.emplace_back(), depth + 1)) {
                        return false;
                    }
                    into.keys.push_back(std::move(key.text).value_or(std::string()));
                }
                return true;
            default: return true;
        }
    }

private:
    llvm::msgpack::Reader reader_;
    size_t nodes_ = 0;
};

// Names go into messages.
bool is_name(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

bool read_metadata(std::string_view note, code_metadata & result, std::string & why) {
    node root;
    if (!tree_reader(note).read(root)) {
        why = "its metadata note is not well-formed msgpack";
        return false;
    }
    const node * kernels = root.field("amdhsa.kernels");
    if (kernels == nullptr) {
        why = "its metadata note has no amdhsa.kernels";
        return false;
    }
    result.target = root.text_at("amdhsa.target");
    for (const node & k : kernels->items) {
        kernel_metadata & kernel = result.kernels.emplace_back();
        kernel.name = k.text_at(".name");
        kernel.symbol = k.text_at(".symbol");
        if (!is_name(kernel.name) || !is_name(kernel.symbol)) {
            why = "its metadata note has a kernel without a readable name or symbol";
            return false;
        }
        kernel.kernarg_size = k.number_at(".kernarg_segment_size");
        kernel.wave_size = k.number_at(".wavefront_size");
        kernel.vgprs = k.number_at(".vgpr_count");
        kernel.sgprs = k.number_at(".sgpr_count");
        kernel.vgpr_spills = k.number_at(".vgpr_spill_count");
        kernel.sgpr_spills = k.number_at(".sgpr_spill_count");
        kernel.max_workgroup = k.number_at(".max_flat_workgroup_size", kernel.max_workgroup);
        if (const node * required = k.field(".reqd_workgroup_size"); required != nullptr && required->items.size() == 3) {
            for (size_t i = 0; i < 3; ++i) {
                kernel.required_workgroup[i] = static_cast<uint32_t>(required->items[i].number.value_or(0));
            }
        }
        if (const node * arguments = k.field(".args")) {
            for (const node & a : arguments->items) {
                kernel.arguments.push_back({a.text_at(".value_kind"), a.number_at(".offset"), a.number_at(".size")});
            }
        }
    }
    return true;
}

}  // namespace strata::emulator
