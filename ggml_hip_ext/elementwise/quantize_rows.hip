// Rows of f32, f16 or bf16 scattered or copied in order into rows of a quantized type: kernels set_<type>_blocks.
#include "rows.h"
#include "strata/element.h"
#include "strata/quantize.h"

namespace strata {

/// Elements of a row from a block on. The type is the same for the whole launch.
struct row_source {
    const char * elements;
    rows_source type;

    __device__ __attribute__((always_inline)) bool is_f32() const { return type == rows_source::f32; }

    template <uint32_t Values>
    __device__ __attribute__((always_inline)) void read(uint32_t element, float (&values)[Values]) const {
        switch (type) {
            case rows_source::f32: return read_as<f32>(element, values);
            case rows_source::f16: return read_as<f16>(element, values);
            case rows_source::bf16: return read_as<bf16>(element, values);
        }
    }

    template <class T, uint32_t Values>
    __device__ __attribute__((always_inline)) void read_as(uint32_t element, float (&values)[Values]) const {
#pragma unroll
        for (uint32_t i = 0; i < Values; i += 4) {
            const auto four = load<four_t<T>>(elements, (element + i) * sizeof(typename T::storage));
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j) {
                values[i + j] = T::to_float(four[j]);
            }
        }
    }
};

template <class Quantizer>
STRATA_DEVICE void quantize_rows(const rows_args & a) {
    constexpr uint32_t elements = Quantizer::block::elements;
    const uint32_t index = block_x() * rows_block + thread_x(), block = index / Quantizer::lanes;
    if (block >= a.count) {
        return;
    }
    const uint32_t r = quotient(block, a.parts), b = remainder(block, r, a.parts);
    const row_pair at = find_rows<direction::scatter>(a, r);
    const uint32_t size = a.source == rows_source::f32 ? 4 : 2;
    const row_source source = {at.src + static_cast<uint64_t>(b) * (elements * size), a.source};
    Quantizer::quantize(source, at.dst + static_cast<uint64_t>(b) * sizeof(typename Quantizer::block), index % Quantizer::lanes);
}

}  // namespace strata

using namespace strata;

#define SET_QUANTIZED(type) \
    STRATA_KERNEL(rows_block) void set_##type##_blocks(rows_args a) { quantize_rows<quantizers::type>(a); }

SET_QUANTIZED(q4_0)
SET_QUANTIZED(q4_1)
SET_QUANTIZED(q5_0)
SET_QUANTIZED(q5_1)
SET_QUANTIZED(q8_0)
SET_QUANTIZED(q1_0)
SET_QUANTIZED(q2_0)
SET_QUANTIZED(q2_K)
SET_QUANTIZED(q3_K)
SET_QUANTIZED(q4_K)
SET_QUANTIZED(q5_K)
SET_QUANTIZED(q6_K)
SET_QUANTIZED(tq1_0)
SET_QUANTIZED(tq2_0)
SET_QUANTIZED(iq4_nl)
SET_QUANTIZED(iq4_xs)
SET_QUANTIZED(mxfp4)
SET_QUANTIZED(nvfp4)
