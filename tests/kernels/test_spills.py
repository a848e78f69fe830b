"""What the code-object metadata of every shipped kernel must say: nothing spilled, no scratch memory, LDS and registers within bounds."""
import pytest

from strata_hip.code_object import KernelInfo, read_kernels
from support.shipped import embedded_code_objects, shipped_kernels

# Kernels that may use scratch memory, each with its reason. There are none.
EXCEPTIONS: dict[str, str] = {}


@pytest.fixture(scope="session")
def kernels() -> dict[str, KernelInfo]:
    """Metadata of all kernels by name."""
    found: dict[str, KernelInfo] = {}
    for image in embedded_code_objects():
        here = read_kernels(image)
        assert not found.keys() & here.keys(), f"two kernels are called {found.keys() & here.keys()}"
        found.update(here)
    assert set(found) == set(shipped_kernels()) and len(found) > 100
    return found


def test_nothing_is_spilled(kernels):
    bad = {name: (k.vgpr_spills, k.sgpr_spills, k.scratch) for name, k in kernels.items()
           if name not in EXCEPTIONS and (k.vgpr_spills or k.sgpr_spills or k.scratch)}
    assert not bad


def test_exceptions_exist(kernels):
    assert set(EXCEPTIONS) <= set(kernels)


def test_wave32_and_limits(kernels):
    for name, k in kernels.items():
        assert k.wave_size == 32 and k.lds <= 65536 and 0 < k.vgprs <= 256 and k.max_block <= 1024, name
