"""Variables that change how AMD's runtime gives out memory change nothing here: no buffer is managed memory."""
import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest

import scoring
from scoring import DEVICE


@functools.cache
def digest(**environment: str) -> str:
    """Of the logits of 24 tokens, from a process of its own."""
    run = subprocess.run([sys.executable, pathlib.Path(scoring.__file__), "smollm2", DEVICE, "64", "1", "1", "24"],
                         env=dict(os.environ, **environment), capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])["digest"]


@pytest.mark.parametrize("name", ["GGML_CUDA_ENABLE_UNIFIED_MEMORY", "HSA_XNACK"])
def test_no_effect(name):
    assert digest(**{name: "1"}) == digest()
