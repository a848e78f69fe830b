#include "ops/recurrence.h"

#include <string>

namespace strata {

const char * recurrence_refusal(int64_t length, int64_t longest, int64_t columns, int64_t heads, int64_t sequences) {
    if (length < 4 || length % 4 || length > longest) {
        return "state length not a multiple of 4, or too large";
    }
    if (columns >= int64_t(1) << 28 || heads > 65535 || sequences > 65535) {
        return "2^28 columns, 2^16 heads or 2^16 sequences, or more";
    }
    return nullptr;
}

const char * recurrence_operand_refusal(const ggml_tensor * t, int token_dimension) {
    if (t->type != GGML_TYPE_F32) {
        return "operand not f32";
    }
    if (t->nb[0] != sizeof(float) && t->ne[0] != 1) {
        return "rows not contiguous";
    }
    if (t->nb[token_dimension] >= std::size_t(1) << 27 || t->ne[token_dimension] >= int64_t(1) << 31) {
        return "tokens 2^27 bytes or more apart, or 2^31 or more of them";
    }
    return nullptr;
}

void launch_recurrence(planner & plan, const char * family, const char * name, std::initializer_list<uint32_t> lengths,
                       const recurrence_args & args, int64_t heads, int64_t sequences, uint32_t lanes) {
    const uint32_t block_columns = recurrence_block / lanes;
    const dims grid = {(args.columns + block_columns - 1) / block_columns, uint32_t(heads), uint32_t(sequences)};
    for (uint32_t longest : lengths) {
        if (args.length <= longest) {
            plan.launch(family, (std::string(name) + "_" + std::to_string(longest)).c_str(), grid, {recurrence_block}, args);
            return;
        }
    }
}

}  // namespace strata
