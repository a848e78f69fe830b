"""A toy model that reads and writes text, and a server of it."""
import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "models"))

import toys  # noqa: E402
from support.server import serving  # noqa: E402

SMALL = dict(n_vocab=400, n_embd=256, n_ff=256, n_head=1, k_heads=1, v_heads=2, n_expert=8, n_used=2)


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """toy(arch, kind): the path of a small toy model. As f32 its logits differ by less than 1e-4 however tokens are put into batches."""
    folder = tmp_path_factory.mktemp("toys")

    def get(arch: str = "qwen35", kind: str = "f32") -> pathlib.Path:
        path = folder / f"{arch}-{kind}.gguf"
        if not path.exists():
            toys.write(path, toys.Shape(arch=arch, **SMALL), kind, text=True)
        return path

    return get


@pytest.fixture(scope="session")
def slots_folder(tmp_path_factory):
    """Where the server saves its slots."""
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="session")
def server(toy, slots_folder, tmp_path_factory):
    """Four slots of 512 tokens each, and everything that is off by default."""
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(toy(), "-np", 4, "-c", 2048, "-a", "toy", "--metrics", "--slots", "--slot-save-path", slots_folder, log=log) as running:
        yield running
