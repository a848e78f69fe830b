"""docs/kernels.md has every kernel family, every fusion and every switch, and the guards that it names are where it says."""
import re

import pytest

from support.paths import ROOT

TEXT = (ROOT / "docs" / "kernels.md").read_text()
NAMES = set(re.findall(r"`([\w…]+)`", TEXT))
PLAN, OPS = ROOT / "backend" / "plan", ROOT / "backend" / "ops"


def families() -> list[str]:
    """Names of the files with kernels; those of a type of weights count as one."""
    stems = {path.stem for path in (ROOT / "ggml_hip_ext").rglob("*.hip")}
    types = {path.stem for path in (ROOT / "ggml_hip_ext" / "include" / "strata" / "quant").glob("*.h")}
    return sorted({re.sub(rf"^(mul_mat(?:_vec)?)_({'|'.join(types)})$", r"\1_TYPE", stem) for stem in stems})


def switches() -> list[str]:
    """Fusions, what planners share, and kernels that another can stand in for."""
    fusions = [name for path in PLAN.glob("fuse_*.cpp") for name in re.findall(r'(?:\.name = |product_pattern\()"(\w+)"', path.read_text())]
    shared = re.search(r"shared_names\[\] = \{([^}]*)\}", (PLAN / "shared.h").read_text())
    kernels = re.search(r"names = \{([^}]*)\}", (ROOT / "backend" / "switches.cpp").read_text())
    assert fusions and shared and kernels
    return sorted([*fusions, *re.findall(r'"(\w+)"', shared[1] + kernels[1])])


@pytest.mark.parametrize("name", families())
def test_kernels(name):
    assert any(known == name or known.startswith(name + "_") or known.endswith("_" + name) for known in NAMES)


@pytest.mark.parametrize("name", switches())
def test_switches(name):
    assert name in NAMES or any(known.startswith("…") and name.endswith(known[1:]) for known in NAMES)


@pytest.mark.parametrize("functions,file", re.findall(r"((?:`\w+`(?: and |, ))*`\w+`) in `([\w/]+\.cpp)`", TEXT))
def test_guards(functions, file):
    path = next(path for path in (ROOT / "backend" / file, OPS / file, PLAN / file) if path.exists())
    for name in re.findall(r"`(\w+)`", functions):
        assert re.search(rf"\b{name}\(", path.read_text())
