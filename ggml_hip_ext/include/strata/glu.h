// Gated linear units: an activation of the first operand times the second.
#pragma once

#include "strata/args/glu.h"
#include "strata/math.h"

namespace strata {

/// `alpha` is for swiglu_oai, `limit` for that and swiglu_clamp.
template <glu_kind Kind>
STRATA_DEVICE float glu(float x, float gate, float alpha [[maybe_unused]], float limit [[maybe_unused]]) {
    if constexpr (Kind == glu_kind::reglu) {
        return x > 0.0f ? x * gate : 0.0f;
    } else if constexpr (Kind == glu_kind::geglu) {
        return gelu(x) * gate;
    } else if constexpr (Kind == glu_kind::swiglu) {
        return silu(x) * gate;
    } else if constexpr (Kind == glu_kind::geglu_erf) {
        return gelu_erf(x) * gate;
    } else if constexpr (Kind == glu_kind::geglu_quick) {
        return gelu_quick(x) * gate;
    } else {
        const float bounded = x > limit ? limit : x;
        const float bounded_gate = gate > limit ? limit : gate < -limit ? -limit : gate;
        return Kind == glu_kind::swiglu_oai ? bounded * sigmoid(alpha * bounded) * (bounded_gate + 1.0f) : silu(bounded) * bounded_gate;
    }
}

/// The same, of a kind known at run time only.
STRATA_DEVICE float glu(glu_kind kind, float x, float gate, float alpha, float limit) {
    switch (kind) {
        case glu_kind::reglu: return glu<glu_kind::reglu>(x, gate, alpha, limit);
        case glu_kind::geglu: return glu<glu_kind::geglu>(x, gate, alpha, limit);
        case glu_kind::swiglu: return glu<glu_kind::swiglu>(x, gate, alpha, limit);
        case glu_kind::geglu_erf: return glu<glu_kind::geglu_erf>(x, gate, alpha, limit);
        case glu_kind::geglu_quick: return glu<glu_kind::geglu_quick>(x, gate, alpha, limit);
        case glu_kind::swiglu_oai: return glu<glu_kind::swiglu_oai>(x, gate, alpha, limit);
        default: return glu<glu_kind::swiglu_clamp>(x, gate, alpha, limit);
    }
}

}  // namespace strata
