"""STRATA_DISABLE=wmma: everything that a card with matrix instructions gives to them, as a card without them computes it."""
from support.paths import ROOT
from support.process import run_python

PREFIX = f"import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'ops')!r})\n"


def run(code: str, disable: str) -> list[str]:
    return run_python(PREFIX + code, STRATA_DISABLE=disable).stdout.split()


def test_products():
    """More than eight columns go through the mat-vec in groups of eight: the bits of eight columns at a time."""
    run("""
import numpy as np
from support.ops import Quantized, nmse, run_op
rng = np.random.default_rng(11)
def product(w, x):
    return run_op(lambda g, a, b: g.mul_mat(a, b), w, x)
for type in ("q4_0", "q6_K", "f16", "bf16", "f32"):
    values = rng.standard_normal((70, 512)).astype(np.float32)
    w = values.astype(np.float16) if type == "f16" else values if type == "f32" else Quantized(values, type)
    for columns in (9, 16, 43):
        x = rng.standard_normal((columns, 512)).astype(np.float32)
        out = product(w, x)
        exact = x.astype(np.float64) @ (w.values if isinstance(w, Quantized) else w).astype(np.float64).T
        assert nmse(out, exact) < (1e-4 if type[0] == "q" else 1e-10), (type, columns)
        if type != "f32":
            assert np.array_equal(out, np.concatenate([product(w, x[i:i + 8]).reshape(-1, 70) for i in range(0, columns, 8)])), (type, columns)
# several matrices, of which two share weights; rows of columns that are not neighbours
for type in ("q8_0", "f16"):
    values = rng.standard_normal((3, 33, 256)).astype(np.float32)
    w = values.astype(np.float16) if type == "f16" else Quantized(values, type)
    x = rng.standard_normal((6, 19, 256)).astype(np.float32)
    out = product(w, x)
    weights = (w.values if isinstance(w, Quantized) else w).astype(np.float64)
    exact = np.stack([x[i].astype(np.float64) @ weights[i // 2].T for i in range(6)])
    assert nmse(out, exact) < 1e-4, type
""", "wmma")


def test_attention():
    """Prefill of all kinds by the kernel that needs no matrix instructions; the switches of the two others turn them off alone."""
    code = """
import numpy as np
import test_attention as t
rng = np.random.default_rng(5)
for case in (t.Case(64, 33, 70, gqa=3), t.Case(256, 20, 300, gqa=2, mask="window"), t.Case(128, 9, 600, gqa=4, mask="holes", softcap=20.0, sinks=True),
             t.Case(128, 5, 70, gqa=4, k_type="q8_0", v_type="q4_0"), t.Case(80, 1, 600, gqa=3, max_bias=8.0, mask="noise")):
    data = t.inputs(case, rng)
    out = t.attention(case, *data)
    t.assert_attention(out, case, *data)
    print(out.tobytes().hex())
"""
    tiles, without, off, any_only = (run(code, names) for names in ("", "wmma", "flash_attn_tile", "wmma,flash_attn_vector"))
    assert without == off
    assert all(a != b for a, b in zip(tiles[:4], without)) and tiles[4] == without[4]
    assert any_only[:4] == without[:4] and any_only[4] != without[4]
