"""Fusions on numbers that are none, infinite, or tiny: the same bits as a launch for each node, but for those of NaN, whose sign is that of
whichever operand an instruction takes first."""
import numpy as np
import pytest
import test_fusions as chains

from support.fusions import compute
from support.ops import new_rng

NUMBERS = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-42, 1e-30, 3e38, -3e38], np.float32)
FUSIONS = sorted({fusion for *_, expected in chains.ALL.values() for fusion in expected})


def spoiled(rng, inputs, choice):
    """The inputs, some of whose floats are others."""
    made = [data.copy() if isinstance(data, np.ndarray) else data for data in inputs]
    for data in made:
        if isinstance(data, np.ndarray) and data.dtype == np.float32 and rng.random() < 0.7:
            flat = data.reshape(-1)
            some = rng.choice(flat.size, min(flat.size, 1 + flat.size // 100), replace=False)
            flat[some] = rng.choice(choice, some.size)
    return made


def same(a: bytes, b: bytes) -> bool:
    """Equal, or floats of one of the types of results that are so but for NaN."""
    def equal_as(type, bits):
        x, y = np.frombuffer(a, type), np.frombuffer(b, type)
        return np.all((x.view(bits) == y.view(bits)) | (np.isnan(x) & np.isnan(y)))
    return a == b or bool(equal_as(np.float32, np.uint32) or equal_as(np.float16, np.uint16))


@pytest.mark.parametrize("choice", [NUMBERS, NUMBERS[4:]], ids=["all", "finite"])
@pytest.mark.parametrize("fusion", FUSIONS)
def test_special_numbers(fusion, choice):
    rng = new_rng()
    build, makers, _ = chains.ALL[rng.choice([name for name, (*_, expected) in chains.ALL.items() if fusion in expected])]
    inputs = spoiled(rng, [make(rng) for make in makers], choice)
    wanted, _ = compute(build, inputs, fused=False)
    got, applied = compute(build, inputs)
    assert applied[fusion] and all(same(*pair) for pair in zip(got, wanted, strict=True))
