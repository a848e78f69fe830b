// One list for products and row gathers.
#include "ops/quantized_types.h"

#include "strata/args/rows.h"
#include "strata/blocks.h"

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"

namespace strata {

#define SAME_SIZE(block) static_assert(sizeof(block) == sizeof(::block))
#define SAME_PLACE(block, member) static_assert(offsetof(block, member) == offsetof(::block, member))
SAME_SIZE(block_q1_0);
SAME_PLACE(block_q1_0, qs);
SAME_SIZE(block_q2_0);
SAME_PLACE(block_q2_0, qs);
SAME_SIZE(block_q2_K);
SAME_PLACE(block_q2_K, qs);
SAME_SIZE(block_q3_K);
SAME_PLACE(block_q3_K, qs);
SAME_PLACE(block_q3_K, scales);
SAME_PLACE(block_q3_K, d);
SAME_SIZE(block_tq1_0);
SAME_PLACE(block_tq1_0, qh);
SAME_PLACE(block_tq1_0, d);
SAME_SIZE(block_tq2_0);
SAME_PLACE(block_tq2_0, d);
SAME_SIZE(block_iq4_nl);
SAME_PLACE(block_iq4_nl, qs);
SAME_SIZE(block_iq4_xs);
SAME_PLACE(block_iq4_xs, scales_h);
SAME_PLACE(block_iq4_xs, scales_l);
SAME_PLACE(block_iq4_xs, qs);
SAME_SIZE(block_mxfp4);
SAME_PLACE(block_mxfp4, qs);
SAME_SIZE(block_nvfp4);
SAME_PLACE(block_nvfp4, qs);
SAME_SIZE(block_iq2_xxs);
SAME_PLACE(block_iq2_xxs, qs);
SAME_SIZE(block_iq2_xs);
SAME_PLACE(block_iq2_xs, scales);
SAME_SIZE(block_iq2_s);
SAME_PLACE(block_iq2_s, qh);
SAME_PLACE(block_iq2_s, scales);
SAME_SIZE(block_iq3_xxs);
SAME_PLACE(block_iq3_xxs, qs);
SAME_SIZE(block_iq3_s);
SAME_PLACE(block_iq3_s, qh);
SAME_PLACE(block_iq3_s, signs);
SAME_PLACE(block_iq3_s, scales);
SAME_SIZE(block_iq1_s);
SAME_PLACE(block_iq1_s, qs);
SAME_PLACE(block_iq1_s, qh);
SAME_SIZE(block_iq1_m);
SAME_PLACE(block_iq1_m, qh);
SAME_PLACE(block_iq1_m, scales);
#undef SAME_SIZE
#undef SAME_PLACE

const char * quantized_type_name(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0: return "q4_0";
        case GGML_TYPE_Q4_1: return "q4_1";
        case GGML_TYPE_Q5_0: return "q5_0";
        case GGML_TYPE_Q5_1: return "q5_1";
        case GGML_TYPE_Q8_0: return "q8_0";
        case GGML_TYPE_Q4_K: return "q4_K";
        case GGML_TYPE_Q5_K: return "q5_K";
        case GGML_TYPE_Q6_K: return "q6_K";
        case GGML_TYPE_Q1_0: return "q1_0";
        case GGML_TYPE_Q2_0: return "q2_0";
        case GGML_TYPE_Q2_K: return "q2_K";
        case GGML_TYPE_Q3_K: return "q3_K";
        case GGML_TYPE_IQ1_S: return "iq1_s";
        case GGML_TYPE_IQ1_M: return "iq1_m";
        case GGML_TYPE_IQ2_XXS: return "iq2_xxs";
        case GGML_TYPE_IQ2_XS: return "iq2_xs";
        case GGML_TYPE_IQ2_S: return "iq2_s";
        case GGML_TYPE_IQ3_XXS: return "iq3_xxs";
        case GGML_TYPE_IQ3_S: return "iq3_s";
        case GGML_TYPE_IQ4_NL: return "iq4_nl";
        case GGML_TYPE_IQ4_XS: return "iq4_xs";
        case GGML_TYPE_TQ1_0: return "tq1_0";
        case GGML_TYPE_TQ2_0: return "tq2_0";
        case GGML_TYPE_MXFP4: return "mxfp4";
        case GGML_TYPE_NVFP4: return "nvfp4";
        default: return nullptr;
    }
}

uint32_t lanes_of_quantizer(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0: return quantizer_lanes::q4_0;
        case GGML_TYPE_Q4_1: return quantizer_lanes::q4_1;
        case GGML_TYPE_Q5_0: return quantizer_lanes::q5_0;
        case GGML_TYPE_Q5_1: return quantizer_lanes::q5_1;
        case GGML_TYPE_Q8_0: return quantizer_lanes::q8_0;
        case GGML_TYPE_Q1_0: return quantizer_lanes::q1_0;
        case GGML_TYPE_Q2_0: return quantizer_lanes::q2_0;
        case GGML_TYPE_Q2_K: return quantizer_lanes::q2_K;
        case GGML_TYPE_Q3_K: return quantizer_lanes::q3_K;
        case GGML_TYPE_Q4_K: return quantizer_lanes::q4_K;
        case GGML_TYPE_Q5_K: return quantizer_lanes::q5_K;
        case GGML_TYPE_Q6_K: return quantizer_lanes::q6_K;
        case GGML_TYPE_TQ1_0: return quantizer_lanes::tq1_0;
        case GGML_TYPE_TQ2_0: return quantizer_lanes::tq2_0;
        case GGML_TYPE_IQ4_NL: return quantizer_lanes::iq4_nl;
        case GGML_TYPE_IQ4_XS: return quantizer_lanes::iq4_xs;
        case GGML_TYPE_MXFP4: return quantizer_lanes::mxfp4;
        case GGML_TYPE_NVFP4: return quantizer_lanes::nvfp4;
        default: return 0;
    }
}

}  // namespace strata
