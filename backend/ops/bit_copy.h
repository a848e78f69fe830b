// Copies of bits between tensors of one type, as loops over numbers of 8, 4, 2 or 1 bytes: see strata/args/pointwise.h.
#pragma once

#include <optional>

#include "ops/pointwise.h"

namespace strata {

struct bit_copy {
    pointwise_operand dst, src;  ///< in numbers of `dst.size` bytes
    pointwise_loops loops;
};

/// A tensor of any type as one of numbers of `unit` bytes, or nothing if its elements have another size and do not lie one after another.
std::optional<pointwise_operand> as_bits(const ggml_tensor * t, std::size_t unit);

/// The copy in the order of the elements, in the largest unit that fits; nothing if sizes or strides do not fit into each other.
std::optional<bit_copy> find_bit_copy(const ggml_tensor * dst, const ggml_tensor * src);

/// As find_bit_copy(), but the elements of src are repeated to the shape of dst.
std::optional<bit_copy> find_bit_repeat(const ggml_tensor * dst, const ggml_tensor * src);

/// nullptr if kernels can do the copy, else the reason.
const char * bit_copy_refusal(const std::optional<bit_copy> & copy);

/// Launches it.
void plan_bit_copy(planner & plan, const bit_copy & copy);

/// Launches two of the same unit at once. They must not read what the other one writes.
void plan_bit_copies(planner & plan, const bit_copy & first, const bit_copy & second);

}  // namespace strata
