"""Runs a model over a text and keeps what tests compare: the loss and the likeliest token at each position, and a digest of
the logits' bytes. Also a program, for runs that need their own environment:

    scoring.py MODEL DEVICE N_UBATCH FLASH_ATTN N_SEQ N_TOKENS    prints the scores of text.txt as JSON, last

With STRATA_TEST_LOG=1 in the environment llama.cpp's whole log goes to stderr.
"""
import ctypes
import dataclasses
import hashlib
import json
import os
import pathlib
import sys
import tempfile
from typing import List

import llama_cpp
import llama_cpp._logger
import numpy as np

from strata_hip import bench, llama, log, models

QUIET = os.environ.get("STRATA_TEST_LOG") != "1"
FOLDER = pathlib.Path(__file__).parent
PROSE = "text.txt"      # a story of this project's own
RHYMES = "rhymes.txt"   # two cumulative nursery rhymes: a model is sure of most of their tokens
MODELS = {"smollm2": models.smollm2, "gemma3": models.gemma3}


@dataclasses.dataclass
class Scores:
    """One list entry a position, the sequences one after the other."""
    loss: List[float]      # -ln p(next token)
    likeliest: List[int]   # the token with the greatest logit
    digest: str            # sha256 of all logits' bytes

    @property
    def perplexity(self) -> float:
        return float(np.exp(np.mean(self.loss)))

    def agreement(self, other: "Scores") -> float:
        """The share of positions where both have the same likeliest token."""
        return float(np.mean(np.array(self.likeliest) == np.array(other.likeliest)))


def in_full_precision(path: pathlib.Path, target: pathlib.Path) -> None:
    """Writes the model with the same weights as f32, so that no kernel rounds activations to 8 bits."""
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = 0  # LLAMA_FTYPE_ALL_F32
    parameters.allow_requantize = True
    parameters.nthread = bench.default_threads()
    with log.captured(quiet=QUIET) as messages:
        code = llama_cpp.llama_model_quantize(str(path).encode(), str(target).encode(), ctypes.byref(parameters))
        assert code == 0, messages.reason()


class Model:
    """A model, one of MODELS or a file, with contexts on demand, on "emulator"; on "cpu"; or "exact": on the CPU with the same
    weights as f32."""

    def __init__(self, name: str, device: str):
        self.device = device
        on_cpu = device in ("cpu", "exact")
        backend, runtime = ("cpu", None) if on_cpu else ("strata-hip", device)
        self.devices = llama.device_list(backend, runtime)
        parameters = llama_cpp.llama_model_default_params()
        parameters.devices = ctypes.cast(self.devices, ctypes.c_void_p)
        parameters.n_gpu_layers = 0 if on_cpu else 999
        with tempfile.TemporaryDirectory() as folder:
            path = given = MODELS[name]() if name in MODELS else pathlib.Path(name)
            if device == "exact":
                path = pathlib.Path(folder) / "f32.gguf"  # once mapped, the file may go
                in_full_precision(given, path)
            with log.captured(quiet=QUIET) as messages:
                self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
            assert self.model, messages.reason()
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def close(self) -> None:
        llama_cpp.llama_model_free(self.model)
        self.model = None

    def tokens(self, text: bytes) -> List[int]:
        buffer = (llama_cpp.llama_token * (len(text) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, text, len(text), buffer, len(buffer), True, False)
        assert count > 0
        return list(buffer[:count])

    def context(self, n_ctx: int, n_ubatch: int, flash_attn: bool, n_seq: int = 1, **more) -> "Context":
        return Context(self, n_ctx, n_ubatch, flash_attn, n_seq, **more)

    def score(self, n_ubatch: int, flash_attn: bool, n_seq: int, n_tokens: int, text: str = PROSE) -> Scores:
        """Scores the first `n_tokens` of a text, cut into `n_seq` sequences that are decoded side by side."""
        tokens = self.tokens((FOLDER / text).read_bytes())[:n_tokens]
        assert len(tokens) == n_tokens, "the text is too short"
        length = n_tokens // n_seq
        sequences = [tokens[i * length:(i + 1) * length] for i in range(n_seq)]
        context = self.context(length * n_seq, n_ubatch, flash_attn, n_seq)
        try:
            return context.score(sequences)
        finally:
            context.close()


class Context:
    """A llama.cpp context. `more` are other fields of llama_context_params; types by their names."""

    def __init__(self, model: Model, n_ctx: int, n_ubatch: int, flash_attn: bool, n_seq: int, **more):
        self.model = model
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = n_ctx
        parameters.n_batch = min(n_ctx, 512)
        parameters.n_ubatch = n_ubatch
        parameters.n_seq_max = n_seq
        parameters.n_threads = parameters.n_threads_batch = bench.default_threads()
        parameters.flash_attn_type = 1 if flash_attn else 0
        for name, value in more.items():
            setattr(parameters, name, bench.CACHE_TYPES[value] if name in ("type_k", "type_v") else value)
        with log.captured(quiet=QUIET) as messages:
            self.ctx = llama_cpp.llama_init_from_model(model.model, parameters)
        assert self.ctx, messages.reason()
        self.n_batch = parameters.n_batch
        self.batch = llama_cpp.llama_batch_init(self.n_batch, 0, 1)

    def close(self) -> None:
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.ctx)

    def decode(self, rows: List[tuple]) -> np.ndarray:
        """Decodes (token, position, sequence) rows and returns their logits, [rows, vocabulary] f32. Not a copy: valid
        until the next call."""
        self.batch.n_tokens = len(rows)
        for i, (token, position, sequence) in enumerate(rows):
            self.batch.token[i], self.batch.pos[i] = token, position
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
            self.batch.logits[i] = 1
        with log.captured(quiet=QUIET) as messages:
            code = llama_cpp.llama_decode(self.ctx, self.batch)
            assert code == 0, f"llama_decode returned {code}: {messages.reason()}"
        logits = llama_cpp.llama_get_logits(self.ctx)
        return np.ctypeslib.as_array(logits, (len(rows), self.model.n_vocab))

    def score(self, sequences: List[List[int]]) -> Scores:
        """Scores sequences of one length; each decode call takes as many positions of all as fit a batch."""
        length = len(sequences[0])
        step = self.n_batch // len(sequences)
        loss = np.zeros((len(sequences), length - 1))
        likeliest = np.zeros((len(sequences), length), dtype=int)
        digest = hashlib.sha256()
        for start in range(0, length, step):
            positions = range(start, min(start + step, length))
            rows = [(tokens[p], p, s) for s, tokens in enumerate(sequences) for p in positions]
            logits = self.decode(rows)
            assert np.isfinite(logits).all(), "a logit is not finite"
            digest.update(logits.tobytes())
            for (_, p, s), row in zip(rows, logits):
                likeliest[s, p] = row.argmax()
                if p + 1 < length:
                    top = row.max()
                    loss[s, p] = top + np.log(np.exp(row - top, dtype=np.float64).sum()) - row[sequences[s][p + 1]]
        return Scores(loss.ravel().tolist(), likeliest.ravel().tolist(), digest.hexdigest())


if __name__ == "__main__":
    name, device, *numbers = sys.argv[1:]
    llama_cpp._logger.set_verbose(not QUIET)
    n_ubatch, flash_attn, n_seq, n_tokens = map(int, numbers)
    scores = Model(name, device).score(n_ubatch, bool(flash_attn), n_seq, n_tokens)
    print(json.dumps(dataclasses.asdict(scores)))
