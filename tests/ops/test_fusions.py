"""Fusions against the same graph with a launch for each node: bit for bit, whatever the allocator does, and applied where they should be,
refused where they must be. What a fusion leaves out is NaN beforehand, so a reader of it would show."""
import numpy as np
import pytest

from support.fusions import MEMORY, compute, counted, fusions, names, switches
from support.ggml import PluginError, device, ffi, last_error, lib
from support.ops import QUANTIZED_TYPES, Graph, Quantized, new_rng, random_blocks

F32 = 4  # bytes
LENGTHS = [1, 7, 63, 65, 128, 1024, 1028, 2049]


def normal(*shape):
    return lambda rng: rng.standard_normal(shape, dtype=np.float32)


def quantized(kind, *shape):
    return lambda rng: Quantized(rng.standard_normal(shape), kind)


def blocks(kind, *shape):
    return lambda rng: random_blocks(rng, shape, kind)


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


def cases():
    """(name, graph, inputs, how often each fusion applies)"""
    for n in LENGTHS:
        row, rows = normal(n), normal(5, n)
        yield f"rms_norm_mul-{n}", norm_mul, [rows, row], {"rms_norm_mul": 1}
        yield f"rms_norm_mul_add-{n}", norm_mul_add, [rows, row, rows], {"rms_norm_mul_add": 1}
        yield f"add_rms_norm_mul-{n}", add_norm_mul, [rows, rows, row], {"add_rms_norm_mul": 1}
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
    zeros = lambda rng: np.zeros((3, 128), np.float32)
    yield "zeros", norm_mul_add, [zeros, normal(128), zeros], {"rms_norm_mul_add": 1}


CASES = {name: rest for name, *rest in cases()}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", list(CASES))
def test_bits(name, memory):
    build, makers, expected = CASES[name]
    rng = new_rng()
    inputs = [make(rng) for make in makers]
    wanted, applied = compute(build, inputs, fused=False)
    assert not applied
    got, applied = compute(build, inputs, memory)
    assert got == wanted
    if memory != "packed":  # where what the allocator did may forbid it
        assert applied == expected


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


REFUSALS = {
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
    assert got == wanted and not {name for name in applied if not name.startswith("shared_")}


@pytest.mark.parametrize("columns", [2, 9])
def test_glu_of_several_columns(columns):
    rng = new_rng()
    inputs = [Quantized(rng.standard_normal((40, 64)), "q8_0"), Quantized(rng.standard_normal((40, 64)), "q8_0"),
              rng.standard_normal((columns, 64), dtype=np.float32)]
    wanted, _ = compute(glu_of_products, inputs, fused=False)
    got, applied = compute(glu_of_products, inputs)
    assert got == wanted and applied == {"shared_q8_1": 1}


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
    return next(name for name, (_, _, expected) in CASES.items() if fusion in expected)


def test_every_fusion_has_a_case_and_a_switch():
    known = switches()
    for name in names():
        assert case_of(name) and name in known
    assert "fusion" in known


@pytest.mark.parametrize("all", [False, True])
def test_switched_off(monkeypatch, all):
    """STRATA_DISABLE with the name of one, or with `fusion` for all."""
    for fusion in names():
        build, makers, _ = CASES[case_of(fusion)]
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
