"""Models on the device under test, scored over a text (strata_hip.scores). Also a program, for runs that need their own environment:

    scoring.py MODEL DEVICE N_UBATCH FLASH_ATTN N_SEQ N_TOKENS    prints the digest of the logits of PROSE as JSON, last

With STRATA_TEST_LOG=1 in the environment llama.cpp's whole log goes to stderr.
"""
import ctypes
import json
import os
import pathlib
import sys
import tempfile

import llama_cpp
import llama_cpp._logger
import numpy as np

from strata_hip import engine, llama, log, models, scores, verify
from strata_hip.llama_values import default_threads

# The device the models are tested on. "cpu" tries out the tests themselves.
DEVICE = os.environ.get("STRATA_TEST_DEVICE", "emulator")
QUIET = os.environ.get("STRATA_TEST_LOG") != "1"
FOLDER = pathlib.Path(__file__).parent
PROSE = verify.STORY    # a story of this project's own
RHYMES = "rhymes.txt"   # two cumulative nursery rhymes: a model is sure of most of their tokens
MODELS = {"smollm2": models.smollm2, "gemma3": models.gemma3}


def in_full_precision(path: pathlib.Path, target: pathlib.Path) -> None:
    """Writes the model with the same weights as f32, so that no kernel rounds activations to 8 bits."""
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = 0  # LLAMA_FTYPE_ALL_F32
    parameters.allow_requantize = True
    parameters.nthread = default_threads()
    with log.captured(quiet=QUIET) as messages:
        code = llama_cpp.llama_model_quantize(str(path).encode(), str(target).encode(), ctypes.byref(parameters))
        assert code == 0, messages.reason()


class Model(engine.Model):
    """A model, one of MODELS or a file, with contexts on demand, on "emulator"; on "cpu"; or "exact": on the CPU with the same
    weights as f32."""

    def __init__(self, name: str, device: str):
        self.device = device
        on_cpu = device in ("cpu", "exact")
        backend, runtime = ("cpu", None) if on_cpu else ("strata-hip", device)
        with tempfile.TemporaryDirectory() as folder:
            path = given = MODELS[name]() if name in MODELS else pathlib.Path(name)
            if device == "exact":
                path = pathlib.Path(folder) / "f32.gguf"  # once mapped, the file may go
                in_full_precision(given, path)
            super().__init__(str(path), llama.device_list(backend, runtime), 0 if on_cpu else -1)

    def context(self, n_ctx: int, n_ubatch: int, flash_attn: bool, n_seq: int = 1, **more) -> engine.Context:
        """A context; `more` are other fields of llama_context_params, types by their names."""
        return engine.Context(self, n_ctx=n_ctx, n_batch=min(n_ctx, 512), n_ubatch=n_ubatch, n_seq_max=n_seq,
                              flash_attn_type=int(flash_attn), **more)

    def score(self, n_ubatch: int, flash_attn: bool, n_seq: int, n_tokens: int, text: "str | pathlib.Path" = PROSE) -> scores.Scores:
        """Scores the first `n_tokens` of a text, cut into `n_seq` sequences that are decoded side by side."""
        tokens = self.tokens((FOLDER / text).read_bytes())[:n_tokens]
        assert len(tokens) == n_tokens, "the text is too short"
        sequences = scores.split(tokens, n_seq)
        context = self.context(len(sequences[0]) * n_seq, n_ubatch, flash_attn, n_seq)
        try:
            result = scores.score(context, sequences)[0]
            assert np.isfinite(result.loss).all(), "a logit is not finite"
            return result
        finally:
            context.close()


if __name__ == "__main__":
    name, device, *numbers = sys.argv[1:]
    llama_cpp._logger.set_verbose(not QUIET)
    n_ubatch, flash_attn, n_seq, n_tokens = map(int, numbers)
    print(json.dumps({"digest": Model(name, device).score(n_ubatch, bool(flash_attn), n_seq, n_tokens).digest}))
