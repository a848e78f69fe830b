"""Key/value caches of every type: the device does all of the work, and the logits are those of the CPU backend with the same cache."""
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from scoring import DEVICE

PROGRAM = """
import json, sys
import llama_cpp._logger
import numpy as np
import scoring
llama_cpp._logger.set_verbose(True)
device, pairs = sys.argv[1], json.loads(sys.argv[2])
model = scoring.Model("smollm2", device)
tokens = model.tokens((scoring.FOLDER / scoring.PROSE).read_bytes())[:28]
for k, v in pairs:
    context = model.context(64, 32, True, type_k=k, type_v=v)
    rows = [(token, p, 0) for p, token in enumerate(tokens)]
    logits = [context.decode(batch).copy() for batch in (rows[:24], *([row] for row in rows[24:]))]
    context.close()
    np.save(sys.argv[3] + f"/{k}-{v}.npy", np.concatenate(logits))
"""


def logits(folder, device: str, pairs) -> "tuple[dict, str]":
    """The logits of 24 tokens at once and 4 one by one, a (type of K, type of V) each, and the scheduler's log."""
    folder.mkdir()
    run = subprocess.run([sys.executable, "-c", PROGRAM, device, json.dumps(pairs), str(folder)], capture_output=True, text=True, timeout=900,
                         env=dict(os.environ, GGML_SCHED_DEBUG="1", STRATA_TEST_LOG="1",
                                  PYTHONPATH=os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])))
    assert run.returncode == 0, run.stderr[-3000:]
    return {pair: np.load(folder / f"{pair[0]}-{pair[1]}.npy").astype(np.float64) for pair in pairs}, run.stderr


def check(tmp_path, pairs):
    """The last bits of K and V decide on which side of a step a quantized value falls, so two right caches of a coarse type differ by as
    much as the type itself changes the logits: that is allowed, twice over, on top of what f16 caches differ by."""
    ours, log = logits(tmp_path / "device", DEVICE, pairs)
    cpu, _ = logits(tmp_path / "cpu", "cpu", [("f16", "f16"), *pairs])

    def nmse(a, b):
        return ((a - b) ** 2).sum() / (b ** 2).sum()

    for pair in pairs:
        error, of_type = nmse(ours[pair], cpu[pair]), nmse(cpu[pair], cpu["f16", "f16"])
        print(pair, f"NMSE {error:.2e}; the type's own on the CPU {of_type:.2e}")
        assert error < 2e-3 + 2 * of_type, pair
    splits = re.findall(r"## SPLIT #(\d+): (\S+) #", log)
    assert len(splits) >= 2 * len(pairs) and set(splits) == {("0", "CPU"), ("1", "STRATA0")}, set(splits)


@pytest.mark.timeout(900)
def test_cache_types(tmp_path):
    check(tmp_path, [("q8_0", "q8_0"), ("q4_0", "f16")])


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_all_cache_types(tmp_path):
    types = ("f32", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl")
    check(tmp_path, [(type, type) for type in types] + [("q8_0", "q4_0"), ("f16", "q5_1"), ("q5_0", "bf16"), ("iq4_nl", "f32")])
