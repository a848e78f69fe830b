"""The upstream tests of Llama, tests/test_llama.py of llama-cpp-python's source distribution, as they stand: on our class and the emulator.

Where they ask a hub for a model they get a local one of the same kind: SmolLM2, or a toy with random weights. What they expect of one model
alone, Qwen3.5 0.8B, is exchanged for what stock llama_cpp gives with SmolLM2 on the CPU (EXCHANGED).
"""
import dataclasses
import linecache
import pathlib
import subprocess
import sys
import tarfile
import types
from unittest import mock

import llama_cpp
import pytest

import strata_hip
from strata_hip import models, plugin
from support.paths import ROOT, llama_cpp_source

import upstream_models

sys.path.insert(0, str(ROOT / "tests" / "models"))
import toys  # noqa: E402

SOURCE = "tests/test_llama.py"
EXCHANGED = {
    "[9419, 11, 1814, 0]": "[19556, 28, 905, 17]",                      # the tokens of "Hello, world!"
    '" jumps over the lazy dog."': '" is a classic example of a"',       # what follows "The quick brown fox" the second time
    "model.set_seed(1337)": "model.set_seed(4)",                        # two draws that differ
}
ON_THE_HOST = {"test_llama_cpp_version", "test_llama_cpp_tokenization", "test_all_of_upstreams_tests_are_here"}


def upstream() -> dict:
    """The globals of upstream's test file, in which llama_cpp.Llama is ours."""
    command = [sys.executable, str(ROOT / "scripts" / "fetch_sources.py"), "--sdist"]
    sdist = pathlib.Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    name = f"{sdist.name.removesuffix('.tar.gz')}/{SOURCE}"
    with tarfile.open(sdist) as archive:
        text = archive.extractfile(name).read().decode()
    for theirs, ours in EXCHANGED.items():
        assert theirs in text
        text = text.replace(theirs, ours)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)  # for tracebacks
    found: dict = {"__name__": __name__}
    # It imports both, uses nothing of the first, and of the second only what fetches models.
    absent = {"scipy": types.ModuleType("scipy"), "scipy.special": types.SimpleNamespace(log_softmax=None),
              "huggingface_hub": types.SimpleNamespace(hf_hub_download=None)}
    with mock.patch.dict(sys.modules, absent):
        exec(compile(text, name, "exec"), found)
    found["MODEL"] = str(llama_cpp_source() / "models" / pathlib.Path(found["MODEL"]).name)
    found["llama_cpp"] = types.SimpleNamespace(**{**vars(llama_cpp), "Llama": strata_hip.Llama})
    return found


UPSTREAM = upstream()
globals().update({name: test for name, test in UPSTREAM.items() if name.startswith("test_")})


@pytest.fixture(autouse=True)
def computed_on_the_device(request, monkeypatch):
    monkeypatch.setenv("STRATA_RUNTIME", "emulator")
    before = plugin.load().counter("launches")
    yield
    assert (plugin.load().counter("launches") > before) != (request.node.originalname in ON_THE_HOST)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """made(write): the path of the model that write(path) makes, once."""
    paths: dict = {}

    def get(write) -> str:
        if write not in paths:
            paths[write] = tmp_path_factory.mktemp("upstream") / "model.gguf"
            write(paths[write])
        return str(paths[write])

    return get


def hybrid(path: pathlib.Path) -> None:
    toys.write(path, dataclasses.replace(toys.SHAPES["qwen35"], n_vocab=400), "q8_0", text=True)


# Upstream's fixtures.

@pytest.fixture
def llama_cpp_model_path():
    return str(models.smollm2())


@pytest.fixture
def llama_cpp_transformer_model_path():
    return str(models.smollm2())


@pytest.fixture
def llama_cpp_embedding_model_path(made):
    return made(upstream_models.bert)


@pytest.fixture
def llama_cpp_recurrent_model_path(made):
    return made(upstream_models.mamba)


@pytest.fixture
def llama_cpp_hybrid_model_path(made):
    return made(hybrid)


def test_all_of_upstreams_tests_are_here():
    assert len([name for name in UPSTREAM if name.startswith("test_")]) == 12
