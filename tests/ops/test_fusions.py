"""Fusions against the same graph with a launch for each node: bit for bit, whatever the allocator does, and applied where they should be,
refused where they must be. What a fusion leaves out is NaN beforehand, so a reader of it would show."""
import numpy as np
import pytest

import test_fusions_qwen4exp as qwen4exp
from support.delta_net_layer import Layer, Net
from support.fusions import MEMORY, check_bits, compute, counted, fusions, made, names, normal, quantized, switches
from support.ggml import PluginError, counter, device, ffi, last_error, lib
from support.ops import QUANTIZED_TYPES, Graph, Quantized, new_rng, random_blocks

F32 = 4  # bytes
LENGTHS = [1, 7, 63, 65, 128, 1024, 1028, 2049]


def blocks(kind, *shape):
    return lambda rng: random_blocks(rng, shape, kind)


def numbers(high, count, dtype=np.int32, distinct=False):
    return lambda rng: (rng.permutation(high)[:count] if distinct else rng.integers(0, high, count)).astype(dtype)


def experts(number, tokens, used):
    """Which experts each token uses."""
    return lambda rng: np.stack([rng.permutation(number)[:used] for _ in range(tokens)]).astype(np.int32)


def output(tensor):
    lib.ggml_set_output(tensor)
    return tensor


# --- the chains that are fused ---------------------------------------------------------------------------------------------------------

def norm_mul(g, x, w):
    return g.mul(g.rms_norm(x, 1e-6), w),


def mul_norm(g, x, w):
    """The weight first."""
    return g.mul(w, g.rms_norm(x, 1e-6)),


def norm_mul_add(g, x, w, y):
    return g.add(g.mul(g.rms_norm(x, 1e-5), w), y),


def add_norm_mul(g, x, y, w):
    total = g.add(x, y)
    return g.mul(g.rms_norm(total, 1e-6), w), total


def add_norm_mul_alone(g, x, y, w):
    """Nobody else reads the sum."""
    return g.mul(g.rms_norm(g.add(x, y), 1e-6), w),


def norm_add_norm(g, x, w, y, v):
    total = g.add(g.mul(g.rms_norm(x, 1e-6), w), y)
    return g.mul(g.rms_norm(total, 1e-5), v), total


def gated_norm(g, x, w, z):
    return g.mul(g.mul(g.rms_norm(x, 1e-6), w), g.silu(z)),


def gated_norm_of_product(g, x, w, z, m):
    """As models have it: the product of the gate stands between the norm and what it is multiplied by."""
    normed = g.mul(g.rms_norm(x, 1e-6), w)
    return g.mul(normed, g.silu(g.reshape_4d(g.mul_mat(m, z), *x.ne))),


def norm_scale(g, x):
    return g.scale(g.rms_norm(x, 1e-6), 0.0883883),


def three_products(g, a, b, c, x):
    return g.mul_mat(a, x), g.mul_mat(b, x), g.mul_mat(c, g.reshape_3d(x, x.ne[0], 1, x.ne[1]))


def product_of_changed(g, a, x):
    """The second product reads other numbers at the same address."""
    first = g.mul_mat(a, x)
    return first, g.mul_mat(a, g.scale_inplace(x, 3.0))


def product_of_partly_changed(g, a, x):
    """Only the last row is written over in between."""
    first = g.mul_mat(a, x)
    changed = g.cpy(g.scale(g.view_1d(x, x.ne[0], 0), 3.0), g.view_1d(x, x.ne[0], x.nb[1] * (x.ne[1] - 1)))
    return first, changed, g.mul_mat(a, x)


def product_of_half(g, a, x):
    """Of some of the rows, and of all."""
    return g.mul_mat(a, g.view_2d(x, x.ne[0], 1, x.nb[1], 0)), g.mul_mat(a, x)


def glu_of_products(g, a, b, x, kind="swiglu"):
    return getattr(g, kind + "_split")(g.mul_mat(a, x), g.mul_mat(b, x)),


def glu_of_experts(g, a, b, x, ids):
    columns = g.reshape_3d(x, x.ne[0], 1, x.ne[1])
    return g.swiglu_split(g.mul_mat_id(a, columns, ids), g.mul_mat_id(b, columns, ids)),


def glu_of_slots(g, a, b, x, ids):
    """Each slot of a token has activations of its own."""
    return g.geglu_split(g.mul_mat_id(a, x, ids), g.mul_mat_id(b, x, ids)),


def glu_of_biased_experts(g, a, b, c, d, x, ids):
    columns = g.reshape_3d(x, x.ne[0], 1, x.ne[1])
    gate, up = g.mul_mat_id(a, columns, ids), g.mul_mat_id(b, columns, ids)
    return g.swiglu_oai(g.add_id(gate, c, ids), g.add_id(up, d, ids), 1.702, 7.0),


def products_of_experts(g, a, b, x, ids):
    columns = g.reshape_3d(x, x.ne[0], 1, x.ne[1])
    return g.mul_mat_id(a, columns, ids), g.mul_mat_id(b, columns, ids)


def router(g, logits, used, norm=True):
    probs = g.soft_max(logits)
    ids = g.argsort_top_k(probs, used)
    weights = g.get_rows(g.reshape_3d(probs, 1, logits.ne[0], logits.ne[1]), ids)
    if norm:
        weights = g.reshape_2d(weights, used, logits.ne[1])
        weights = g.div(weights, g.clamp(g.sum_rows(weights), 6.103515625e-5, float("inf")))
    return weights, g.cont(ids)


def router_of_chosen(g, logits, used):
    """The softmax is that of the chosen experts' logits."""
    ids = g.argsort_top_k(logits, used)
    weights = g.get_rows(g.reshape_3d(logits, 1, logits.ne[0], logits.ne[1]), ids)
    return g.soft_max(g.reshape_2d(weights, used, logits.ne[1])), g.cont(ids)


def expert_sum(g, x, w):
    y = g.mul(x, w)
    total = g.view_2d(y, y.ne[0], y.ne[2], y.nb[2], 0)
    for i in range(1, y.ne[1]):
        total = g.add(total, g.view_2d(y, y.ne[0], y.ne[2], y.nb[2], i * y.nb[1]))
    return total,


def shared_gate(g, gate, x, shared, routed):
    return g.add(routed, g.mul(shared, g.sigmoid(g.mul_mat(gate, x)))),


def shared_gate_add(g, gate, x, shared, routed, residual):
    return g.add(shared_gate(g, gate, x, shared, routed)[0], residual),


def delta_net_gates(g, alpha, beta, bias, factor, x, beta_first=False):
    heads, tokens = alpha.ne[1], x.ne[1]
    update = lambda: g.sigmoid(g.reshape_4d(g.mul_mat(beta, x), 1, heads, tokens, 1))
    first = update() if beta_first else None
    decay = g.mul(g.softplus(g.add(g.reshape_3d(g.mul_mat(alpha, x), heads, tokens, 1), bias)), factor)
    return (first, decay) if beta_first else (decay, update())


def rope(g, x, positions, factors=None, dims=None, mode=2, extension=0.0):
    dims = dims or x.ne[0]
    return g.rope_ext(x, positions, factors or ffi.NULL, dims, mode, 4096, 1e4, 1.0, extension, 1.0, 32.0, 1.0)


def norm_rope(g, x, w, positions, factors=None, **more):
    return rope(g, g.mul(g.rms_norm(x, 1e-6), w), positions, factors, **more),


def norm_rope_sections(g, x, w, positions, mode=40):
    """Positions of time, height and width: interleaved, or in sections."""
    return g.rope_multi(g.mul(g.rms_norm(x, 1e-6), w), positions, ffi.NULL, 64, [11, 11, 10, 0], mode, 4096, 1e7, 1.0, 0.0, 1.0, 32.0, 1.0),


def stored(g, x, index, cache):
    return g.set_rows(cache, g.view_2d(x, x.ne[0] * x.ne[1], x.ne[2], x.nb[2], 0), index)


def norm_rope_stored(g, x, w, positions, index, cache, **more):
    return stored(g, norm_rope(g, x, w, positions, **more)[0], index, cache),


def rope_stored(g, x, positions, index, cache, **more):
    return stored(g, rope(g, x, positions, **more), index, cache),


def attention_inputs(g, q, q_weight, k, k_weight, v, positions, k_index, k_cache, v_index, v_cache, mode=2, read_early=None):
    """q and k are normed and turned, k and v go to their caches: in the order of a model's graph."""
    turned = norm_rope(g, q, q_weight, positions, dims=64, mode=mode)[0]
    early = [g.silu(turned)] if read_early else []
    return turned, *early, norm_rope_stored(g, k, k_weight, positions, k_index, k_cache, dims=64, mode=mode)[0], stored(g, v, v_index, v_cache)


def attention_of_sections(g, q, q_weight, k, k_weight, v, positions, k_index, k_cache, v_index, v_cache):
    """q lies in rows that hold gates too; positions of time, height and width."""
    view = g.view_3d(q, q.ne[0] // 2, q.ne[1], q.ne[2], q.nb[1], q.nb[2], 0)
    turned = norm_rope_sections(g, view, q_weight, positions)[0]
    return turned, stored(g, norm_rope_sections(g, k, k_weight, positions)[0], k_index, k_cache), stored(g, v, v_index, v_cache)


def attention_read_between(g, q, q_weight, k, k_weight, v, positions, k_index, k_cache, v_index, v_cache):
    """The keys are read before the values are stored."""
    turned = norm_rope(g, q, q_weight, positions, dims=64)[0]
    keys = norm_rope_stored(g, k, k_weight, positions, k_index, k_cache, dims=64)[0]
    return turned, g.cast(g.view_1d(keys, 4, 0), 0), stored(g, v, v_index, v_cache)


def rope_of_view(g, x, w, positions):
    """q lies in rows that hold gates too."""
    view = g.view_3d(x, x.ne[0] // 2, x.ne[1], x.ne[2], x.nb[1], x.nb[2], 0)
    return norm_rope(g, view, w, positions)


def norm_scale_pair(g, x):
    """q and k: views of the same rows."""
    size = x.ne[0] // 2
    q, k = (g.view_2d(x, size, x.ne[1], x.nb[1], i * size * F32) for i in range(2))
    return g.scale(g.rms_norm(q, 1e-6), 0.125), g.scale(g.rms_norm(k, 1e-6), 0.125)


def conv_silu(g, x, kernel):
    return g.silu(g.ssm_conv(x, kernel)),


def conv_bias_silu(g, x, kernel, bias):
    return g.silu(g.add(g.ssm_conv(x, kernel), bias)),


def sigmoid_gate(g, x, gate):
    return g.mul(x, g.sigmoid(gate)),


def softplus_gate(g, x, gate):
    return g.mul(g.softplus(gate), x),


def silu_gate(g, x, gate):
    return g.mul(x, g.silu(gate)),


def strided_gate(g, x, both):
    """Gates lie between the heads of q; the result has a row for all heads."""
    size, heads, tokens = both.ne[0] // 2, both.ne[1], both.ne[2]
    gate = g.cont_2d(g.view_3d(both, size, heads, tokens, both.nb[1], both.nb[2], size * F32), size * heads, tokens)
    return g.mul(g.reshape_2d(x, size * heads, tokens), g.sigmoid(gate)),


def gate_then_down(g, x, both, down):
    """The gated heads are read by a product with quantized weights."""
    y = strided_gate(g, x, both)[0]
    return g.mul_mat(down, y), g.silu(y)


def rows_of_product(g, x, index, a):
    """Gathered rows are read by a product with quantized weights."""
    y = g.get_rows(x, index)
    return g.mul_mat(a, y), g.silu(y)


def glu_then_down(g, a, b, down, x):
    """The gated unit is read by a product with quantized weights."""
    y = g.swiglu_split(g.mul_mat(a, x), g.mul_mat(b, x))
    return g.mul_mat(down, y), g.silu(y)


def experts_then_down(g, a, b, down, x, ids):
    columns = g.reshape_3d(x, x.ne[0], 1, x.ne[1])
    y = g.swiglu_split(g.mul_mat_id(a, columns, ids), g.mul_mat_id(b, columns, ids))
    return g.mul_mat_id(down, y, ids), g.silu(y)


def products_of_column(g, a, b, c, x):
    return g.mul_mat(a, x), g.mul_mat(b, x), g.mul_mat(c, x)


def products_read_between(g, a, b, c, x):
    """The first one's result is needed before the last one's is computed."""
    first = g.silu(g.mul_mat(a, x))
    return first, g.mul_mat(b, x), g.mul_mat(c, x)


def experts_and_shared(g, x, w, gate, y, shared):
    return g.add(expert_sum(g, x, w)[0], g.mul(shared, g.sigmoid(g.mul_mat(gate, y)))),


def experts_and_shared_add(g, x, w, gate, y, shared, residual):
    return g.add(experts_and_shared(g, x, w, gate, y, shared)[0], residual),


def expert_output(g, down, y, ids, w, gate, x, shared_down, z):
    """The last products of the experts, their sum, and the shared expert."""
    return experts_and_shared(g, g.mul_mat_id(down, y, ids), w, gate, x, g.mul_mat(shared_down, z))


def expert_outputs(g, *inputs):
    """With a residual, and what else reads the result."""
    y = expert_output(g, *inputs)[0]
    return g.add(y, g.silu(y)),


def glu_of_experts_and_shared(g, a, b, ids, c, d, x, shared_first=False):
    columns = g.reshape_3d(x, x.ne[0], 1, 1)
    chosen = lambda: g.swiglu_split(g.mul_mat_id(a, columns, ids), g.mul_mat_id(b, columns, ids))
    shared = lambda: g.swiglu_split(g.mul_mat(c, x), g.mul_mat(d, x))
    return (shared(), chosen()) if shared_first else (chosen(), shared())


def mixture_of_experts(g, a, b, down, ids, w, c, d, shared_down, gate, x):
    """All of it but the router, in the order of a model's graph."""
    columns = g.reshape_3d(x, x.ne[0], 1, 1)
    y = g.swiglu_split(g.mul_mat_id(a, columns, ids), g.mul_mat_id(b, columns, ids))
    routed = expert_sum(g, g.mul_mat_id(down, y, ids), w)[0]
    z = g.mul_mat(shared_down, g.swiglu_split(g.mul_mat(c, x), g.mul_mat(d, x)))
    return g.add(routed, g.mul(z, g.sigmoid(g.mul_mat(gate, x)))),


def products_and_gates(g, a, b, alpha, beta, bias, factor, x, order="pgp"):
    """What a linear layer projects; the order in which products and gates are wanted."""
    weights, results = [a, b], []
    for each in order:
        results += [g.mul_mat(weights.pop(0), x)] if each == "p" else delta_net_gates(g, alpha, beta, bias, factor, x)
    return results


def product_between_gates(g, a, b, alpha, beta, bias, factor, x):
    first, update = g.mul_mat(a, x), g.sigmoid(g.mul_mat(beta, x))
    second = g.mul_mat(b, x)
    return first, update, second, g.mul(g.softplus(g.add(g.mul_mat(alpha, x), bias)), factor)


def gates_read_before(g, a, b, alpha, beta, bias, factor, x):
    """One of the gates is needed before the last product."""
    first = g.mul_mat(a, x)
    decay, update = delta_net_gates(g, alpha, beta, bias, factor, x)
    return first, update, g.silu(decay), g.mul_mat(b, x)


def norm_of_products(g, x, w, a, b):
    """The norm's rows are read by products with quantized weights, and as they are."""
    n = g.mul(g.rms_norm(x, 1e-6), w)
    return g.mul_mat(a, n), g.mul_mat(b, g.reshape_2d(n, b.ne[0], x.ne[0] * x.ne[1] // b.ne[0])), g.silu(n)


def sum_norm_of_products(g, x, y, w, a, b):
    total = g.add(x, y)
    n = g.mul(g.rms_norm(total, 1e-6), w)
    return g.mul_mat(a, n), g.mul_mat(b, n), total


def twice_norm_of_products(g, x, w, y, v, a):
    total = g.add(g.mul(g.rms_norm(x, 1e-6), w), y)
    return g.mul_mat(a, g.mul(g.rms_norm(total, 1e-6), v)), total


def gated_norm_of_heads(g, x, w, z, a):
    """Heads are normed, and read as one row."""
    n = g.mul(g.mul(g.rms_norm(x, 1e-6), w), g.silu(z))
    return g.mul_mat(a, g.reshape_2d(n, x.ne[0] * x.ne[1], x.ne[2])),


def layers(g, x, w, v):
    """A row of residuals and norms, of which each result may take the memory of an operand."""
    for _ in range(3):
        total = g.add(x, g.silu(g.mul(g.rms_norm(x, 1e-6), w)))
        x = g.add(g.mul(g.rms_norm(g.tanh(total), 1e-6), v), total)
    return x,


def strided_rows(g, x, w):
    """Heads out of longer rows, as q lies in a product that holds gates too."""
    view = g.view_3d(x, x.ne[0] // 2, x.ne[1], x.ne[2], x.nb[1], x.nb[2], 0)
    return g.mul(g.rms_norm(view, 1e-6), w),


def expert_output_inputs(kind, rows, k, shared_k, number, used, length):
    return [blocks(kind, number, rows, k), normal(1, used, k), experts(number, 1, used), normal(1, used, 1), normal(1, length), normal(1, length),
            blocks(kind, rows, shared_k), normal(1, shared_k)]


def mixture_inputs(kind, down_kind, n, rows, shared_rows, used, number=4):
    """`n` numbers a token, `rows` and `shared_rows` of them between the products."""
    up, shared = blocks(kind, number, rows, n), blocks(kind, shared_rows, n)
    return [up, up, blocks(down_kind, number, n, rows), experts(number, 1, used), normal(1, used, 1), shared, shared,
            blocks(down_kind, n, shared_rows), normal(1, n), normal(1, n)]


def attention_numbers(heads, k_heads, n, v_length, tokens, gates=1, positions=1):
    """Inputs of attention_inputs: q, its weight, k, its weight, v, positions, where k goes, its cache, where v goes, its cache."""
    halves = lambda *shape: lambda rng: rng.standard_normal(shape).astype(np.float16)
    return [normal(tokens, heads, n * gates), normal(n), normal(tokens, k_heads, n), normal(n), normal(tokens, 1, v_length),
            numbers(4096, positions * tokens), numbers(2 * tokens, tokens, np.int64, distinct=True), halves(2 * tokens, k_heads * n),
            numbers(3 * tokens, tokens, np.int64, distinct=True), halves(3 * tokens, v_length)]


def cases():
    """(name, graph, inputs, how often each fusion applies)"""
    for n in LENGTHS:
        row, rows = normal(n), normal(5, n)
        yield f"rms_norm_mul-{n}", norm_mul, [rows, row], {"rms_norm_mul": 1}
        yield f"rms_norm_mul_add-{n}", norm_mul_add, [rows, row, rows], {"rms_norm_mul_add": 1}
        yield f"add_rms_norm_mul-{n}", add_norm_mul, [rows, rows, row], {"add_rms_norm_mul": 1}
        yield f"add_rms_norm_mul-alone-{n}", add_norm_mul_alone, [rows, rows, row], {"add_rms_norm_mul": 1}
        yield f"rms_norm_mul_add_rms_norm_mul-{n}", norm_add_norm, [rows, row, rows, row], {"rms_norm_mul_add_rms_norm_mul": 1}
        yield f"gated_rms_norm-{n}", gated_norm, [rows, row, rows], {"gated_rms_norm": 1}
        yield f"rms_norm_scale-{n}", norm_scale, [rows], {"rms_norm_scale": 1}
    yield "weight-first", mul_norm, [normal(1, 96), normal(1, 96)], {"rms_norm_mul": 1}
    yield "repeated-bias", norm_mul_add, [normal(2, 5, 96), normal(96), normal(1, 5, 96)], {"rms_norm_mul_add": 1}
    yield "weight-of-rows", norm_mul, [normal(3, 4, 128), normal(4, 128)], {"rms_norm_mul": 1}
    yield "three-dimensions", add_norm_mul, [normal(2, 3, 5, 65), normal(2, 3, 5, 65), normal(65)], {"add_rms_norm_mul": 1}
    yield "repeated-addend", add_norm_mul, [normal(3, 65), normal(65), normal(65)], {"add_rms_norm_mul": 1}
    yield "strided-rows", strided_rows, [normal(3, 2, 256), normal(128)], {"rms_norm_mul": 1}
    yield "product-between", gated_norm_of_product, [normal(2, 4, 64), normal(64), normal(2, 96), normal(256, 96)], {"gated_rms_norm": 1}
    yield "layers", layers, [normal(4, 192), normal(192), normal(192)], {
        "rms_norm_mul": 1, "rms_norm_mul_add": 1, "rms_norm_mul_add_rms_norm_mul": 2}
    for n in (1, 5, 40):
        yield (f"three-products-{n}", three_products, [quantized("q8_0", 16, 256), quantized("q4_K", 24, 256), quantized("q4_0", 8, 256), normal(n, 256)],
               {"shared_q8_1": 2})
    yield "product-of-changed", product_of_changed, [quantized("q8_0", 16, 256), normal(3, 256)], {}
    yield "product-of-partly-changed", product_of_partly_changed, [quantized("q8_0", 16, 256), normal(3, 256)], {}
    yield "product-of-half", product_of_half, [quantized("q8_0", 16, 256), normal(3, 256)], {}
    weights = [quantized("q4_K", 8, 24, 256), quantized("q8_0", 8, 16, 256)]
    yield "experts-2", products_of_experts, [*weights, normal(2, 256), experts(8, 2, 2)], {"shared_q8_1": 1}
    yield "experts-40", products_of_experts, [*weights, normal(40, 256), experts(8, 40, 2)], {"shared_q8_1": 1, "shared_routing": 1}
    yield "float-experts-40", products_of_experts, [normal(8, 24, 64), normal(8, 16, 64), normal(40, 64), experts(8, 40, 2)], {"shared_routing": 1}
    for i, kind in enumerate(QUANTIZED_TYPES):
        rows, k = [65, 7, 1, 63][i % 4], [512, 2048, 256][i % 3]
        yield (f"glu-{kind}", glu_of_products, [blocks(kind, rows, k), blocks(kind, rows, k), normal(k)], {"mul_mat_glu": 1})
        yield (f"glu-of-experts-{kind}", glu_of_experts, [blocks(kind, 6, rows, k), blocks(kind, 6, rows, k), normal(2, k), experts(6, 2, 3)],
               {"mul_mat_id_glu": 1})
        n = 2 + i % 7
        yield (f"glu-{kind}-{n}-columns", glu_of_products, [blocks(kind, rows, k), blocks(kind, rows, k), normal(n, k)], {"mul_mat_glu": 1})
    for n in range(2, 9):
        for kind in ("q8_0", "q6_K", "iq3_xxs"):
            yield (f"glu-of-{n}-columns-{kind}", glu_of_products, [blocks(kind, 34, 256), blocks(kind, 34, 256), normal(n, 256)], {"mul_mat_glu": 1})
    yield "glu-of-9-columns", glu_of_products, [quantized("q8_0", 34, 256), quantized("q8_0", 34, 256), normal(9, 256)], {"shared_q8_1": 1}
    for kind in ("reglu", "geglu", "geglu_erf", "geglu_quick"):
        yield (f"glu-{kind}", lambda g, a, b, x, kind=kind: glu_of_products(g, a, b, x, kind),
               [quantized("q8_0", 7, 64), quantized("q8_0", 7, 64), normal(64)], {"mul_mat_glu": 1})
    for m, k in ((2048, 1024), (4100, 256)):  # several rows a wave
        yield f"glu-{m}", glu_of_products, [quantized("q8_0", m, k), quantized("q8_0", m, k), normal(k)], {"mul_mat_glu": 1}
    for n in (1, 2, 3, 7, 8):
        for kind in ("q8_0", "q4_K", "iq2_s"):
            yield (f"glu-of-experts-{kind}-{n}", glu_of_experts, [blocks(kind, 16, 32, 256), blocks(kind, 16, 32, 256), normal(n, 256),
                                                                  experts(16, n, 1)], {"mul_mat_id_glu": 1})
    yield "glu-of-slots", glu_of_slots, [quantized("q8_0", 4, 33, 96), quantized("q8_0", 4, 33, 96), normal(3, 2, 96), experts(4, 3, 2)], {
        "mul_mat_id_glu": 1}
    yield "glu-of-biased", glu_of_biased_experts, [quantized("mxfp4", 4, 90, 2880), quantized("mxfp4", 4, 90, 2880), normal(4, 90), normal(4, 90),
                                                   normal(2, 2880), experts(4, 2, 2)], {"mul_mat_id_add_id_glu": 1}
    yield "one-row-experts", glu_of_experts, [quantized("q8_0", 4, 1, 256), quantized("q8_0", 4, 1, 256), normal(8, 256), experts(4, 8, 1)], {
        "mul_mat_id_glu": 1}
    for experts_, used, tokens in ((4, 1, 1), (7, 3, 2), (16, 4, 5), (128, 8, 1), (129, 8, 3), (256, 8, 7), (512, 10, 2), (1000, 32, 2), (1024, 9, 1)):
        logits = normal(tokens, experts_)
        yield f"router-{experts_}-{tokens}", lambda g, x, n=used: router(g, x, n), [logits], {"top_k_router": 1}
        yield f"router-sums-{experts_}-{tokens}", lambda g, x, n=used: router(g, x, n, norm=False), [logits], {"top_k_router": 1}
        yield f"router-of-chosen-{experts_}-{tokens}", lambda g, x, n=used: router_of_chosen(g, x, n), [logits], {"top_k_router": 1}
    ties = lambda rng: rng.integers(-2, 3, (5, 64)).astype(np.float32)
    yield "router-ties", lambda g, x: router(g, x, 8), [ties], {"top_k_router": 1}
    yield "router-ties-of-chosen", lambda g, x: router_of_chosen(g, x, 8), [ties], {"top_k_router": 1}
    yield "router-steep", lambda g, x: router(g, x, 8), [lambda rng: rng.standard_normal((3, 64), dtype=np.float32) * 200], {"top_k_router": 1}
    for n, used, tokens in ((1, 2, 1), (7, 8, 3), (64, 3, 2), (65, 8, 1), (2048, 8, 1), (1030, 4, 5), (2880, 15, 2)):
        yield f"expert-sum-{n}-{used}", expert_sum, [normal(tokens, used, n), normal(tokens, used, 1)], {"expert_sum": 1}
    for n, k, tokens in ((1, 257, 1), (63, 264, 2), (512, 512, 1), (2048, 2048, 1), (1028, 1000, 7), (8192, 300, 8)):
        rows = normal(tokens, n)
        yield f"shared-gate-{n}-{k}", shared_gate, [normal(1, k), normal(tokens, k), rows, rows], {"shared_expert_gate": 1}
        yield f"shared-gate-add-{n}-{k}", shared_gate_add, [normal(1, k), normal(tokens, k), rows, rows, rows], {"shared_expert_gate_add": 1}
    for heads, k, tokens in ((1, 260, 1), (7, 511, 3), (32, 2048, 1), (48, 2048, 8)):
        inputs = [normal(heads, k), normal(heads, k), normal(heads), normal(heads), normal(tokens, k)]
        yield f"gates-{heads}-{k}", delta_net_gates, inputs, {"delta_net_gates": 1}
        yield f"gates-beta-first-{heads}-{k}", lambda *x: delta_net_gates(*x, beta_first=True), inputs, {"delta_net_gates": 1}
    layer = Layer(size=64)   # more of them: test_fusions_delta_net.py
    for net, fusion in ((Net(), "get_rows_gated_delta_net_cpy"), (Net(sequences=2, rows=(1, 2)), "gated_delta_net_cpy")):
        yield fusion, net.build, [lambda rng, net=net, i=i: net.inputs(rng)[i] for i in range(7)], {fusion: 1}
    yield "delta-net-decode", layer.build, [lambda rng, i=i: layer.inputs(rng)[i] for i in range(9)], {"delta_net_decode": 1}
    for n, heads, dims, tokens in ((64, 1, 64, 1), (128, 9, 128, 3), (256, 16, 64, 1), (80, 5, 20, 7), (4, 3, 4, 2), (512, 2, 512, 2), (100, 8, 50, 1)):
        inputs = [normal(tokens, heads, n), normal(n), numbers(4096, tokens)]
        cache = [numbers(2 * tokens, tokens, np.int64, distinct=True), lambda rng, shape=(2 * tokens, heads * n): rng.standard_normal(shape).astype(np.float16)]
        for mode, name in ((0, "neighbours"), (2, "halves")):
            more = {"dims": dims, "mode": mode}
            yield (f"norm-rope-{n}-{heads}-{name}", lambda *a, more=more: norm_rope(*a, **more), inputs, {"rms_norm_mul_rope": 1})
            yield (f"norm-rope-stored-{n}-{heads}-{name}", lambda *a, more=more: norm_rope_stored(*a, **more), [*inputs, *cache],
                   {"rms_norm_mul_rope_set_rows": 1})
            yield (f"rope-stored-{n}-{heads}-{name}", lambda *a, more=more: rope_stored(*a, **more), [inputs[0], inputs[2], *cache],
                   {"rope_set_rows": 1})
    for mode in (8, 40):
        yield (f"norm-rope-sections-{mode}", lambda *a, mode=mode: norm_rope_sections(*a, mode=mode),
               [normal(3, 4, 256), normal(256), numbers(4096, 12)], {"rms_norm_mul_rope": 1})
    yield "norm-rope-factors", norm_rope, [normal(3, 4, 64), normal(64), numbers(4096, 3), lambda rng: rng.uniform(1, 8, 32).astype(np.float32)], {
        "rms_norm_mul_rope": 1}
    yield "norm-rope-yarn", lambda *a: norm_rope(*a, extension=1.0), [normal(3, 4, 64), normal(64), numbers(4096, 3)], {"rms_norm_mul_rope": 1}
    yield "norm-rope-batches", norm_rope, [normal(2, 3, 4, 64), normal(64), numbers(4096, 3)], {"rms_norm_mul_rope": 1}
    yield "norm-rope-weight-of-heads", norm_rope, [normal(3, 4, 64), normal(4, 64), numbers(4096, 3)], {"rms_norm_mul_rope": 1}
    for heads, k_heads, n, v_length, tokens in ((16, 2, 256, 512, 1), (3, 1, 64, 32, 2), (9, 9, 80, 1028, 3), (2, 1, 128, 2052, 8)):
        for mode, name in ((0, "neighbours"), (2, "halves")):
            yield (f"attention-inputs-{n}-{name}", lambda *a, mode=mode: attention_inputs(*a, mode=mode),
                   attention_numbers(heads, k_heads, n, v_length, tokens), {"rms_norm_mul_rope_set_rows_qkv": 1})
    yield "attention-of-sections", attention_of_sections, attention_numbers(4, 2, 128, 256, 3, gates=2, positions=4), {
        "rms_norm_mul_rope_set_rows_qkv": 1}
    yield ("attention-inputs-many", attention_inputs, attention_numbers(2, 1, 64, 64, 65), {"rms_norm_mul_rope": 1, "rms_norm_mul_rope_set_rows": 1})
    yield ("attention-read-early", lambda *a: attention_inputs(*a, read_early=True), attention_numbers(2, 1, 64, 64, 3),
           {"rms_norm_mul_rope_set_rows": 1, "rms_norm_mul_rope": 1})
    yield ("attention-read-between", attention_read_between, attention_numbers(2, 1, 64, 64, 3),
           {"rms_norm_mul_rope_set_rows": 1, "rms_norm_mul_rope": 1})
    yield ("attention-odd-values", attention_inputs, attention_numbers(2, 1, 64, 33, 3), {"rms_norm_mul_rope": 1, "rms_norm_mul_rope_set_rows": 1})
    yield "rope-of-view", rope_of_view, [normal(3, 2, 256), normal(128), numbers(4096, 3)], {"rms_norm_mul_rope": 1}
    yield "rope-stored-int-index", rope_stored, [normal(3, 2, 64), numbers(4096, 3), numbers(6, 3, distinct=True),
                                                 lambda rng: np.zeros((6, 128), np.float16)], {"rope_set_rows": 1}
    for n, k, used, tokens in ((1, 257, 2, 1), (63, 264, 3, 2), (2048, 512, 8, 1), (1030, 300, 4, 8)):
        rows = normal(tokens, n)
        inputs = [normal(tokens, used, n), normal(tokens, used, 1), normal(1, k), normal(tokens, k), rows]
        yield f"experts-and-shared-{n}", experts_and_shared, inputs, {"expert_sum_shared_gate": 1}
        yield f"experts-and-shared-add-{n}", experts_and_shared_add, [*inputs, rows], {"expert_sum_shared_gate_add": 1}
    for i, kind in enumerate(QUANTIZED_TYPES):
        rows, k = [65, 7, 1, 63][i % 4], [512, 2048, 256][i % 3]
        yield (f"products-of-column-{kind}", products_of_column, [blocks(kind, rows, k), blocks(kind, 5, k), blocks(kind, 130, k), normal(k)],
               {"mul_mat_group": 1})
        yield (f"products-of-long-columns-{kind}", products_of_column, [blocks(kind, 1000, 256), blocks(kind, 65, 256), blocks(kind, 4100, 256), normal(256)],
               {"mul_mat_group": 1})
    yield "products-of-two-types", products_of_column, [quantized("q8_0", 8, 64), quantized("q4_0", 8, 64), quantized("q8_0", 9, 64), normal(64)], {
        "mul_mat_group": 1, "shared_q8_1": 1}
    yield "products-read-between", products_read_between, [quantized("q8_0", 8, 64), quantized("q8_0", 5, 64), quantized("q8_0", 9, 64), normal(64)], {
        "mul_mat_group": 1, "shared_q8_1": 1}
    for i, kind in enumerate(QUANTIZED_TYPES):
        rows, k, used = [7, 5, 1, 13][i % 4], [512, 256][i % 2], [1, 2, 8][i % 3]
        yield (f"expert-output-{kind}", expert_output, expert_output_inputs(kind, rows, k, 768 - k, used + 1, max(used, 2), 264),
               {"expert_output": 1})
        yield (f"glu-of-experts-and-shared-{kind}", glu_of_experts_and_shared,
               [blocks(kind, 3, rows, k), blocks(kind, 3, rows, k), experts(3, 1, 2), blocks(kind, 2 * rows - 1, k), blocks(kind, 2 * rows - 1, k),
                normal(1, k)], {"mul_mat_id_glu_shared": 1})
        gates = [normal(3, 512), normal(3, 512), normal(3), normal(3), normal(1, 512)]
        yield (f"products-and-gates-{kind}", products_and_gates, [blocks(kind, rows, 512), blocks(kind, 5, 512), *gates], {
            "mul_mat_group_delta_net_gates": 1})
    yield "expert-output-most", expert_output, expert_output_inputs("q8_0", 6, 32, 64, 61, 30, 2049), {"expert_output": 1}
    yield "expert-output-one", expert_output, expert_output_inputs("q8_0", 5, 32, 96, 3, 2, 512), {"expert_output": 1}
    yield "expert-outputs", expert_outputs, expert_output_inputs("q8_0", 5, 32, 96, 3, 2, 512), {"expert_output": 1}
    yield ("glu-of-shared-first", lambda *a: glu_of_experts_and_shared(*a, shared_first=True),
           [blocks("q8_0", 6, 32, 64), blocks("q8_0", 6, 32, 64), experts(6, 1, 3), blocks("q8_0", 32, 64), blocks("q8_0", 32, 64), normal(1, 64)],
           {"mul_mat_id_glu": 1, "mul_mat_glu": 1, "shared_q8_1": 1})
    for name, kinds, rows, shared in (("short", ("q8_0", "q8_0"), 32, 96), ("long", ("q8_0", "q8_0"), 96, 32), ("two-types", ("q4_0", "q8_0"), 64, 64),
                                        ("blocks", ("q4_K", "q6_K"), 256, 256)):
        yield f"mixture-{name}", mixture_of_experts, mixture_inputs(*kinds, 512, rows, shared, 3), {
            "mul_mat_id_glu_shared": 1, "expert_output": 1, "glu_q8_1": 2, "shared_q8_1": 2}
    for heads, k, order in ((1, 512, "ppg"), (32, 2048, "gpp"), (7, 288, "pgp")):
        gates = [normal(heads, k), normal(heads, k), normal(heads), normal(heads), normal(1, k)]
        yield (f"products-and-gates-{order}", lambda *a, order=order: products_and_gates(*a, order=order),
               [quantized("q8_0", 70, k), quantized("q8_0", 9, k), *gates], {"mul_mat_group_delta_net_gates": 1})
    column = [quantized("q8_0", 70, 288), quantized("q8_0", 9, 288), normal(5, 288), normal(5, 288), normal(5), normal(5), normal(1, 288)]
    yield "product-between-gates", product_between_gates, column, {"mul_mat_group_delta_net_gates": 1}
    yield "products-of-many-rows-and-gates", products_and_gates, [quantized("q8_0", 4090, 288), *column[1:]], {"mul_mat_group_delta_net_gates": 1}
    yield "gates-read-before", gates_read_before, column, {"mul_mat_group": 1, "delta_net_gates": 1}
    for n, rows in ((2, 1), (14, 3), (130, 5), (256, 16), (2056, 2)):
        yield f"norm-scale-pair-{n}", norm_scale_pair, [normal(rows, n)], {"rms_norm_scale_pair": 1}
    for channels, tokens, taps in ((7, 1, 4), (65, 3, 4), (96, 20, 4), (33, 70, 3), (40, 9, 5)):
        inputs = [normal(2, channels, tokens + taps - 1), normal(channels, taps)]
        yield f"conv-silu-{channels}-{tokens}", conv_silu, inputs, {"ssm_conv_silu": 1}
        yield f"conv-bias-silu-{channels}-{tokens}", conv_bias_silu, [*inputs, normal(channels)], {"ssm_conv_add_silu": 1}
    for n in (1, 7, 63, 65, 512):
        yield f"sigmoid-gate-{n}", sigmoid_gate, [normal(3, n), normal(3, n)], {"sigmoid_mul": 1}
        yield f"softplus-gate-{n}", softplus_gate, [normal(3, n), normal(3, n)], {"softplus_mul": 1}
        yield f"silu-gate-{n}", silu_gate, [normal(3, n), normal(3, n)], {"silu_mul": 1}
        yield f"strided-gate-{n}", strided_gate, [normal(3, 2, n), normal(3, 2, 2 * n)], {"cont_sigmoid_mul": 1}
    for n, rows in ((32, 3), (96, 5), (1024, 1), (2048, 2), (1056, 9)):
        yield (f"norm-of-products-{n}", norm_of_products, [normal(rows, n), normal(n), quantized("q8_0", 8, n), quantized("q4_0", 8, 32)],
               {"rms_norm_mul": 1, "rms_norm_q8_1": 1, "shared_q8_1": 2})
        yield (f"sum-norm-of-products-{n}", sum_norm_of_products,
               [normal(rows, n), normal(rows, n), normal(n), quantized("q8_0", 8, n), quantized("q4_0", 8, n)],
               {"add_rms_norm_mul": 1, "rms_norm_q8_1": 1, "shared_q8_1": 2})
        yield (f"twice-norm-of-products-{n}", twice_norm_of_products,
               [normal(rows, n), normal(n), normal(rows, n), normal(n), quantized("q8_0", 8, n)],
               {"rms_norm_mul_add_rms_norm_mul": 1, "rms_norm_q8_1": 1, "shared_q8_1": 1})
    yield ("gated-norm-of-heads", gated_norm_of_heads, [normal(3, 4, 64), normal(64), normal(3, 4, 64), quantized("q8_0", 8, 256)],
           {"gated_rms_norm": 1, "rms_norm_q8_1": 1, "shared_q8_1": 1})
    for m, k, kind in ((32, 64, "q8_0"), (64, 512, "q4_K"), (96, 2048, "q6_K"), (2080, 256, "iq2_s")):
        yield (f"glu-then-down-{m}", glu_then_down, [blocks(kind, m, k), blocks(kind, m, k), quantized("q8_0", 7, m), normal(k)],
               {"mul_mat_glu": 1, "glu_q8_1": 1, "shared_q8_1": 1})
        yield (f"experts-then-down-{m}", experts_then_down, [blocks(kind, 8, m, k), blocks(kind, 8, m, k), quantized("q8_0", 8, 5, m), normal(3, k),
                                                             experts(8, 3, 2)], {"mul_mat_id_glu": 1, "glu_q8_1": 1, "shared_q8_1": 1})
    for size, heads, tokens in ((64, 2, 1), (256, 16, 1), (36, 8, 3), (1032, 4, 2)):
        yield (f"gate-then-down-{size}", gate_then_down,
               [normal(tokens, heads, size), normal(tokens, heads, 2 * size), quantized("q8_0", 5, size * heads)],
               {"cont_sigmoid_mul": 1, "gate_q8_1": 1, "shared_q8_1": 1})
    yield "gate-then-down-18", gate_then_down, [normal(3, 16, 18), normal(3, 16, 36), quantized("q8_0", 5, 288)], {"cont_sigmoid_mul": 1}
    for n, rows, used in ((32, 1, 1), (288, 1, 1), (2048, 5, 3), (512, 3, 9)):
        yield f"rows-of-product-{n}", rows_of_product, [normal(rows, n), numbers(rows, used), quantized("q8_0", 5, n)], {
            "get_rows_q8_1": 1, "shared_q8_1": 1}
    yield ("rows-of-product-batches", rows_of_product, [normal(2, 5, 96), lambda rng: rng.integers(0, 5, (2, 3)).astype(np.int32), quantized("q8_0", 5, 96)],
           {"get_rows_q8_1": 1, "shared_q8_1": 1})
    yield ("glu-of-zeros-then-down", glu_then_down, [quantized("q8_0", 32, 64), quantized("q8_0", 32, 64), quantized("q8_0", 7, 32),
                                                     lambda rng: np.zeros(64, np.float32)], {"mul_mat_glu": 1, "glu_q8_1": 1, "shared_q8_1": 1})
    for i, kind in enumerate(QUANTIZED_TYPES):
        yield (f"glu-then-down-{kind}", glu_then_down, [blocks(kind, 32 * (1 + i % 3), 256), blocks(kind, 32 * (1 + i % 3), 256),
                                                        quantized("q8_0", 3, 32 * (1 + i % 3)), normal(256)],
               {"mul_mat_glu": 1, "glu_q8_1": 1, "shared_q8_1": 1})
    zeros = lambda rng: np.zeros((3, 128), np.float32)
    yield "zeros-of-products", norm_of_products, [zeros, normal(128), quantized("q8_0", 8, 128), quantized("q4_0", 8, 128)], {
        "rms_norm_mul": 1, "rms_norm_q8_1": 1, "shared_q8_1": 2}
    yield "zeros", norm_mul_add, [zeros, normal(128), zeros], {"rms_norm_mul_add": 1}


CASES = {name: rest for name, *rest in cases()}
ALL = CASES | qwen4exp.CASES


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", list(CASES))
def test_bits(name, memory):
    build, makers, expected = CASES[name]
    check_bits(build, made(makers), expected, memory)


# --- graphs in which a fusion would go wrong -------------------------------------------------------------------------------------------

def read_twice(g, x, w):
    """The norm has a second reader."""
    n = g.rms_norm(x, 1e-6)
    return g.mul(n, w), g.silu(n)


def read_as_output(g, x, w):
    return g.mul(output(g.rms_norm(x, 1e-6)), w),


def read_through_view(g, x, w):
    n = g.rms_norm(x, 1e-6)
    return g.mul(n, w), g.silu(g.view_1d(n, 3, F32))


def squared(g, x):
    n = g.rms_norm(x, 1e-6)
    return g.mul(n, n),


def of_two_norms(g, x):
    """One of the norms is the other's weight: it is computed by itself."""
    return g.mul(g.rms_norm(x, 1e-6), g.rms_norm(x, 1e-6)),


def short_weight(g, x, w):
    """A weight that is repeated along the row."""
    return g.mul(g.rms_norm(x, 1e-6), w),


def larger_product(g, x, w):
    """The norm is repeated, not the weight."""
    return g.mul(w, g.rms_norm(x, 1e-6)),


def transposed_norm(g, x, w):
    return g.mul(g.rms_norm(g.transpose(x), 1e-6), w),


def half_weight(g, x, w):
    return g.mul(g.cast(g.rms_norm(x, 1e-6), 1), w),


def norm_in_place(g, x, w):
    """The norm is written over the rows, which are read again."""
    n = g.rms_norm_inplace(x, 1e-6)
    return g.mul(n, w), g.silu(g.view_2d(x, x.ne[0], x.ne[1], x.nb[1], 0))


def glu_of_one_product(g, a, x):
    y = g.mul_mat(a, x)
    return g.swiglu_split(y, y),


def glu_of_two_inputs(g, a, b, x, y):
    return g.swiglu_split(g.mul_mat(a, x), g.mul_mat(b, y)),


def glu_of_read_product(g, a, b, x):
    gate = g.mul_mat(a, x)
    return g.swiglu_split(gate, g.mul_mat(b, x)), g.silu(gate)


def glu_of_different_experts(g, a, b, x, ids, other):
    columns = g.reshape_3d(x, x.ne[0], 1, x.ne[1])
    return g.swiglu_split(g.mul_mat_id(a, columns, ids), g.mul_mat_id(b, columns, other)),


def router_with_other_reader(g, logits):
    """Somebody wants the probabilities too."""
    probs = g.soft_max(logits)
    ids = g.argsort_top_k(probs, 4)
    return g.get_rows(g.reshape_3d(probs, 1, logits.ne[0], logits.ne[1]), ids), g.silu(probs)


def router_read_before(g, logits):
    """The experts are asked for before their weights are there."""
    return router(g, logits, 4)[::-1]


def router_with_whole_order(g, logits):
    """The order of all experts is read, not only that of the best."""
    probs = g.soft_max(logits)
    order = g.argsort(probs, 1)
    ids = g.view_2d(order, 4, logits.ne[1], order.nb[1], 0)
    return g.get_rows(g.reshape_3d(probs, 1, logits.ne[0], logits.ne[1]), ids), g.cont(order)


def router_of_worst(g, logits):
    probs = g.soft_max(logits)
    order = g.argsort(probs, 0)
    return g.get_rows(g.reshape_3d(probs, 1, logits.ne[0], logits.ne[1]), g.view_2d(order, 4, logits.ne[1], order.nb[1], 0)),


def router_from_the_second(g, logits):
    probs = g.soft_max(logits)
    order = g.argsort(probs, 1)
    return g.get_rows(g.reshape_3d(probs, 1, logits.ne[0], logits.ne[1]), g.view_2d(order, 4, logits.ne[1], order.nb[1], F32)),


def router_of_other_values(g, logits, values):
    ids = g.argsort_top_k(g.soft_max(logits), 4)
    return g.get_rows(g.reshape_3d(values, 1, logits.ne[0], logits.ne[1]), ids),


def router_over_all_tokens(g, logits):
    """The weights' sum is that of all tokens."""
    probs = g.soft_max(logits)
    ids = g.argsort_top_k(probs, 4)
    weights = g.reshape_2d(g.get_rows(g.reshape_3d(probs, 1, logits.ne[0], logits.ne[1]), ids), 4 * logits.ne[1], 1)
    return g.div(weights, g.clamp(g.sum_rows(weights), 6.103515625e-5, float("inf"))), g.cont(ids)


def expert_sum_in_other_order(g, x, w):
    y = g.mul(x, w)
    views = [g.view_2d(y, y.ne[0], y.ne[2], y.nb[2], i * y.nb[1]) for i in range(y.ne[1])]
    return g.add(g.add(views[2], views[1]), views[0]),


def expert_sum_of_some(g, x, w):
    y = g.mul(x, w)
    return g.add(g.view_2d(y, y.ne[0], y.ne[2], y.nb[2], 0), g.view_2d(y, y.ne[0], y.ne[2], y.nb[2], y.nb[1])),


def expert_sum_read(g, x, w):
    """A partial sum has another reader."""
    y = g.mul(x, w)
    views = [g.view_2d(y, y.ne[0], y.ne[2], y.nb[2], i * y.nb[1]) for i in range(y.ne[1])]
    first = g.add(views[0], views[1])
    return g.add(first, views[2]), g.silu(first)


def two_inputs_of_gates(g, alpha, beta, bias, factor, x, y):
    return (g.mul(g.softplus(g.add(g.mul_mat(alpha, x), bias)), factor), g.sigmoid(g.mul_mat(beta, y)))


def expert_output_read(g, down, y, ids, w, gate, x, shared_down, z):
    """What the chosen experts gave is read elsewhere too."""
    routed = g.mul_mat_id(down, y, ids)
    return experts_and_shared(g, routed, w, gate, x, g.mul_mat(shared_down, z))[0], g.silu(routed)


def shared_output_read(g, down, y, ids, w, gate, x, shared_down, z):
    shared = output(g.mul_mat(shared_down, z))
    return experts_and_shared(g, g.mul_mat_id(down, y, ids), w, gate, x, shared)


def rope_read(g, x, positions, index, cache):
    """What goes to the cache is read elsewhere too."""
    turned = rope(g, x, positions)
    return stored(g, turned, index, cache), g.silu(turned)


def rope_stored_in_part(g, x, positions, index, cache):
    """Only the first head goes to the cache."""
    turned = rope(g, x, positions)
    return g.set_rows(cache, g.view_2d(turned, turned.ne[0], turned.ne[2], turned.nb[2], 0), index),


CACHE = [normal(3, 2, 64), numbers(4096, 3), numbers(6, 3, np.int64, distinct=True)]

def short_gate(g, x, gate):
    """One gate for a whole row."""
    return g.mul(x, g.sigmoid(gate)),


def read_gate(g, x, gate):
    s = g.sigmoid(gate)
    return g.mul(x, s), g.silu(s)


def norms_of_two_scales(g, x, y):
    return g.add(g.scale(g.rms_norm(x, 1e-6), 0.125), g.scale(g.rms_norm(y, 1e-5), 0.125)),


REFUSALS = {
    "gate-short": (short_gate, [normal(3, 64), normal(3, 1)]),
    "gate-read": (read_gate, [normal(3, 64), normal(3, 64)]),
    "gate-wide": (short_gate, [normal(3, 64), normal(1, 64)]),
    "rope-read": (rope_read, [*CACHE, lambda rng: np.zeros((6, 128), np.float16)]),
    "rope-in-part": (rope_stored_in_part, [*CACHE, lambda rng: np.zeros((6, 64), np.float16)]),
    "rope-float-cache": (rope_stored, [*CACHE, normal(6, 128)]),
    "rope-quantized-cache": (rope_stored, [*CACHE, quantized("q8_0", 6, 128)]),
    "rope-long": (lambda *a: rope_stored(*a, dims=64), [normal(3, 1, 1024), *CACHE[1:], lambda rng: np.zeros((6, 1024), np.float16)]),
    "rope-odd": (lambda *a: rope_stored(*a, dims=2), [normal(3, 2, 6), *CACHE[1:], lambda rng: np.zeros((6, 12), np.float16)]),
    "router-other-reader": (router_with_other_reader, [normal(3, 64)]),
    "router-read-before": (router_read_before, [normal(3, 64)]),
    "router-whole-order": (router_with_whole_order, [normal(3, 64)]),
    "router-worst": (router_of_worst, [normal(3, 64)]),
    "router-from-the-second": (router_from_the_second, [normal(3, 64)]),
    "router-other-values": (router_of_other_values, [normal(3, 64), normal(3, 64)]),
    "router-many-experts": (lambda g, x: router(g, x, 4), [normal(2, 1025)]),
    "router-many-used": (lambda g, x: router(g, x, 33), [normal(2, 64)]),
    "expert-sum-order": (expert_sum_in_other_order, [normal(2, 3, 64), normal(2, 3, 1)]),
    "expert-sum-some": (expert_sum_of_some, [normal(2, 3, 64), normal(2, 3, 1)]),
    "expert-sum-read": (expert_sum_read, [normal(2, 3, 64), normal(2, 3, 1)]),
    "expert-sum-rows": (expert_sum, [normal(2, 3, 64), normal(2, 3, 64)]),
    "shared-gate-short": (shared_gate, [normal(1, 256), normal(2, 256), normal(2, 64), normal(2, 64)]),
    "shared-gate-tokens": (shared_gate, [normal(1, 512), normal(9, 512), normal(9, 64), normal(9, 64)]),
    "shared-gate-one-routed": (shared_gate, [normal(1, 512), normal(1, 512), normal(1, 64), normal(3, 64)]),
    "gates-two-inputs": (two_inputs_of_gates, [normal(4, 512), normal(4, 512), normal(4), normal(4), normal(2, 512), normal(2, 512)]),
    "gates-tokens": (delta_net_gates, [normal(4, 512), normal(4, 512), normal(4), normal(4), normal(9, 512)]),
    "gates-heads": (two_inputs_of_gates, [normal(4, 512), normal(5, 512), normal(4), normal(4), normal(2, 512), normal(2, 512)]),
    "read-twice": (read_twice, [normal(3, 64), normal(64)]),
    "output": (read_as_output, [normal(3, 64), normal(64)]),
    "view-read": (read_through_view, [normal(3, 64), normal(64)]),
    "squared": (squared, [normal(3, 64)]),
    "short-weight": (short_weight, [normal(3, 64), normal(1)]),
    "larger-product": (larger_product, [normal(1, 64), normal(3, 64)]),
    "transposed": (transposed_norm, [normal(64, 3), normal(64)]),
    "glu-of-one-product": (glu_of_one_product, [quantized("q8_0", 8, 64), normal(64)]),
    "glu-of-two-inputs": (glu_of_two_inputs, [quantized("q8_0", 8, 64), quantized("q8_0", 8, 64), normal(64), normal(64)]),
    "glu-of-two-types": (glu_of_products, [quantized("q8_0", 8, 64), quantized("q4_0", 8, 64), normal(64)]),
    "glu-of-floats": (glu_of_products, [normal(8, 64), normal(8, 64), normal(64)]),
    "glu-of-read-product": (glu_of_read_product, [quantized("q8_0", 8, 64), quantized("q8_0", 8, 64), normal(64)]),
    "glu-of-different-experts": (glu_of_different_experts, [quantized("q8_0", 4, 8, 64), quantized("q8_0", 4, 8, 64), normal(2, 64),
                                                            experts(4, 2, 2), experts(4, 2, 2)]),
    "in-place": (norm_in_place, [normal(3, 64), normal(64)]),
}


@pytest.mark.parametrize("name", list(REFUSALS))
def test_refused(name):
    build, makers = REFUSALS[name]
    rng = new_rng()
    inputs = [make(rng) for make in makers]
    wanted, _ = compute(build, inputs, fused=False)
    got, applied = compute(build, inputs)
    assert got == wanted and not {name for name in applied if not name.startswith(("shared_", "mul_mat_group"))}


OUTPUT = expert_output_inputs("q8_0", 5, 32, 64, 3, 2, 512)
SMALLER = {
    "expert-output-read": (expert_output_read, OUTPUT),
    "shared-output-read": (shared_output_read, OUTPUT),
    "expert-output-types": (expert_output, [blocks("q4_0", 3, 5, 32), *OUTPUT[1:]]),
    "expert-output-tokens": (expert_output, [OUTPUT[0], normal(2, 2, 32), experts(3, 2, 2), normal(2, 2, 1), OUTPUT[4], normal(2, 512), OUTPUT[6],
                                             normal(2, 64)]),
    "expert-output-short-gate": (expert_output, [*OUTPUT[:4], normal(1, 256), normal(1, 256), *OUTPUT[6:]]),
    "expert-output-many": (expert_output, expert_output_inputs("q8_0", 2, 32, 32, 70, 31, 512)),
}


@pytest.mark.parametrize("name", list(SMALLER))
def test_experts_are_left_apart(name):
    build, makers = SMALLER[name]
    inputs = [make(new_rng()) for make in makers]
    wanted, _ = compute(build, inputs, fused=False)
    got, applied = compute(build, inputs)
    assert got == wanted and "expert_output" not in applied


def test_a_gate_for_each_column():
    """The product that makes the gate is left alone."""
    inputs = [make(new_rng()) for make in (normal(64, 512), normal(2, 512), normal(2, 64), normal(2, 64))]
    wanted, _ = compute(shared_gate, inputs, fused=False)
    got, applied = compute(shared_gate, inputs)
    assert got == wanted and applied == {"sigmoid_mul": 1}


def test_a_sum_over_all_tokens():
    """The router is fused up to the weights; their sum and quotients are not those of a token."""
    inputs = [normal(3, 64)(new_rng())]
    before = counter("launches")
    wanted, _ = compute(router_over_all_tokens, inputs, fused=False)
    apart = counter("launches") - before
    got, applied = compute(router_over_all_tokens, inputs)
    assert got == wanted and applied == {"top_k_router": 1} and counter("launches") - before - apart == 5


def test_norms_of_two_kinds_are_no_pair():
    inputs = [normal(3, 64)(new_rng()), normal(3, 64)(new_rng())]
    wanted, _ = compute(norms_of_two_scales, inputs, fused=False)
    got, applied = compute(norms_of_two_scales, inputs)
    assert got == wanted and applied == {"rms_norm_scale": 2}


# Launches of whole graphs: fusions that take less than they could would show.
LAUNCHES = {"rms_norm_mul_add_rms_norm_mul-65": 1, "gated_rms_norm-63": 1, "rms_norm_scale-7": 1, "norm-scale-pair-130": 1, "router-16-5": 2,
            "router-sums-16-5": 2, "router-of-chosen-16-5": 2, "expert-sum-65-8": 1, "shared-gate-add-63-264": 1, "gates-7-511": 1,
            "gates-beta-first-7-511": 1, "glu-q4_K": 1, "glu-of-experts-q8_0-8": 1, "glu-of-biased": 1, "three-products-5": 4,
            "experts-40": 4, "norm-rope-128-9-halves": 1, "norm-rope-stored-128-9-neighbours": 1, "rope-stored-128-9-halves": 1,
            "conv-bias-silu-65-3": 1, "strided-gate-65": 1, "sum-norm-of-products-96": 3, "gated-norm-of-heads": 2,
            "experts-and-shared-add-63": 1, "products-of-column-q8_0": 1, "products-read-between": 4, "glu-then-down-64": 3, "experts-then-down-96": 3}


@pytest.mark.parametrize("name", list(LAUNCHES))
def test_launches(name):
    build, makers, _ = CASES[name]
    inputs = [make(new_rng()) for make in makers]
    before = counter("launches")
    compute(build, inputs)
    assert counter("launches") - before == LAUNCHES[name]


@pytest.mark.parametrize("columns, expected", [(2, {"mul_mat_glu": 1}), (8, {"mul_mat_glu": 1}), (9, {"shared_q8_1": 1})])
def test_glu_of_several_columns(columns, expected):
    rng = new_rng()
    inputs = [Quantized(rng.standard_normal((40, 64)), "q8_0"), Quantized(rng.standard_normal((40, 64)), "q8_0"),
              rng.standard_normal((columns, 64), dtype=np.float32)]
    wanted, _ = compute(glu_of_products, inputs, fused=False)
    got, applied = compute(glu_of_products, inputs)
    assert got == wanted and applied == expected


@pytest.mark.parametrize("kind", QUANTIZED_TYPES)
def test_glu_of_what_others_read(kind):
    """Activations that another product reads too are quantized once, before the unit; else by its launch."""
    for build, x_at, makers in ((glu_of_products, 2, [blocks(kind, 65, 256), blocks(kind, 65, 256), normal(256)]),
                                (glu_then_down, 3, [blocks(kind, 64, 512), blocks(kind, 64, 512), quantized("q8_0", 7, 64), normal(512)]),
                                (experts_then_down, 3, [blocks(kind, 4, 32, 256), blocks(kind, 4, 32, 256), quantized("q8_0", 4, 5, 32), normal(3, 256),
                                                        experts(4, 3, 2)])):
        beside = lambda g, w, *inputs, build=build, x_at=x_at: (g.mul_mat(w, inputs[x_at]), *build(g, *inputs))
        inputs = [make(new_rng()) for make in (quantized("q8_0", 3, makers[x_at](new_rng()).shape[-1]), *makers)]
        wanted, _ = compute(beside, inputs, fused=False)
        got, applied = compute(beside, inputs)
        assert got == wanted and applied["mul_mat_glu"] + applied["mul_mat_id_glu"] == 1 and applied["shared_q8_1"] >= 1


def test_one_norm_is_the_others_weight():
    inputs = [normal(3, 130)(new_rng())]
    wanted, _ = compute(of_two_norms, inputs, fused=False)
    got, applied = compute(of_two_norms, inputs)
    assert got == wanted and applied == {"rms_norm_mul": 1}


# --- memory that the allocator gave twice ----------------------------------------------------------------------------------------------

def placed(rng, distance: int, fused: bool):
    """norm(x) * w with the result `distance` bytes behind x, in the same memory."""
    x, w = rng.standard_normal((4, 96), dtype=np.float32), rng.standard_normal(96, dtype=np.float32)
    with fusions(fused), Graph() as g:
        memory, weight = g.tensor([4 * 96 + 512]), g.input(w)
        source = g.view_2d(memory, 96, 4, 96 * F32, 0)
        norm = g.rms_norm(source, 1e-6)
        result = g.mul(norm, weight)
        graph = g.graph(result)
        g.allocate()
        result.data = ffi.cast("char *", memory.data) + distance
        lib.ggml_backend_tensor_set(source, ffi.cast("void *", x.ctypes.data), 0, x.nbytes)
        with counted() as applied:
            if lib.ggml_backend_graph_compute(g.backend, graph) != lib.GGML_STATUS_SUCCESS:
                raise PluginError(last_error())
        return g.raw(result).tobytes(), applied["rms_norm_mul"]


@pytest.mark.parametrize("distance", [0, 4, 96 * F32, 512])
def test_result_over_operand(distance):
    """Exactly in the operand's place it is fused, shifted against it not."""
    wanted, _ = placed(np.random.default_rng(3), distance, fused=False)
    got, applied = placed(np.random.default_rng(3), distance, fused=True)
    assert got == wanted and applied == (distance == 0)


# --- switches --------------------------------------------------------------------------------------------------------------------------

def case_of(fusion: str) -> str:
    return next(name for name, (_, _, expected) in ALL.items() if fusion in expected)


def test_every_fusion_has_a_case_and_a_switch():
    known = switches()
    for name in names():
        assert case_of(name) and name in known
    assert "fusion" in known


@pytest.mark.parametrize("all", [False, True])
def test_switched_off(monkeypatch, all):
    """STRATA_DISABLE with the name of one, or with `fusion` for all."""
    for fusion in names():
        build, makers, _ = ALL[case_of(fusion)]
        rng = np.random.default_rng(4)
        inputs = [make(rng) for make in makers]
        wanted, _ = compute(build, inputs, fused=False)
        monkeypatch.setenv("STRATA_DISABLE", "fusion" if all else fusion)
        backend = lib.ggml_backend_dev_init(device(), ffi.NULL)
        try:
            got, applied = compute(build, inputs, backend=backend)
        finally:
            lib.ggml_backend_free(backend)
        assert got == wanted and fusion not in applied and not (all and applied), fusion
