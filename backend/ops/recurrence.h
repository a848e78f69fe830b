// What the recurrent layers have in common: see strata/args/recurrence.h.
#pragma once

#include <initializer_list>

#include "ops/op.h"
#include "strata/args/recurrence.h"

namespace strata {

/// nullptr if the kernels can run columns of `length` numbers, `longest` at most, in this many columns, heads and sequences.
const char * recurrence_refusal(int64_t length, int64_t longest, int64_t columns, int64_t heads, int64_t sequences);

/// nullptr if the numbers of a head lie one after another in f32 `t`, and its tokens (dimension `token_dimension`) not too far apart.
const char * recurrence_operand_refusal(const ggml_tensor * t, int token_dimension);

/// The kernel `name`_N of the smallest N of `lengths` (ascending) that takes columns of args.length.
void launch_recurrence(planner & plan, const char * family, const char * name, std::initializer_list<uint32_t> lengths,
                       const recurrence_args & args, int64_t heads, int64_t sequences, uint32_t lanes = 8);

}  // namespace strata
