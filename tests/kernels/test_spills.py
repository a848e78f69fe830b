"""What the code-object metadata of every shipped kernel must say: nothing spilled, no scratch memory, LDS and registers within bounds."""
import re
import subprocess

import pytest

from support.compile import find_clang
from support.shipped import embedded_code_objects, shipped_kernels

# Kernels that may use scratch memory, each with its reason. There are none.
EXCEPTIONS: dict[str, str] = {}


@pytest.fixture(scope="session")
def kernels(tmp_path_factory) -> dict[str, dict[str, int]]:
    """Metadata of all kernels by name."""
    readelf = subprocess.run([find_clang(), "--print-prog-name=llvm-readelf"], capture_output=True, text=True, check=True).stdout.strip()
    folder = tmp_path_factory.mktemp("code_objects")
    found = {}
    for i, image in enumerate(embedded_code_objects()):
        path = folder / f"{i}.co"
        path.write_bytes(image)
        notes = subprocess.run([readelf, "--notes", str(path)], capture_output=True, text=True, check=True).stdout
        for entry in re.split(r"\n  - \.args:", notes)[1:]:
            name = re.search(r"\n    \.name:\s+(\S+)", entry).group(1)
            assert name not in found, f"two kernels are called {name}"
            found[name] = {key: int(value) for key, value in re.findall(r"\n    \.(\w+):\s+(\d+)", entry)}
    assert set(found) == set(shipped_kernels()) and len(found) > 100
    return found


def test_nothing_is_spilled(kernels):
    bad = {name: {key: k[key] for key in ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size")}
           for name, k in kernels.items()
           if name not in EXCEPTIONS and (k["vgpr_spill_count"] or k["sgpr_spill_count"] or k["private_segment_fixed_size"])}
    assert not bad


def test_exceptions_exist(kernels):
    assert set(EXCEPTIONS) <= set(kernels)


def test_wave32_and_limits(kernels):
    for name, k in kernels.items():
        assert k["wavefront_size"] == 32, name
        assert k["group_segment_fixed_size"] <= 65536, name
        assert k["vgpr_count"] <= 256, name
        assert k["max_flat_workgroup_size"] <= 1024, name
