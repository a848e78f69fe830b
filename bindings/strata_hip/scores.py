"""A model over a text: losses, likeliest tokens, a digest of the logits' bytes, and how far two backends' distributions are apart."""
import dataclasses
import hashlib
from typing import Iterator, List, Optional, Sequence, Tuple

import numpy as np

from . import engine

BLOCK = 64  # rows whose probabilities are computed at a time: 64 MB for a vocabulary of 250,000


@dataclasses.dataclass(frozen=True)
class Scores:
    """One entry a position, the sequences one after the other."""
    loss: np.ndarray       # -ln p(next token) [nats], for all positions but each sequence's last
    likeliest: np.ndarray  # the token with the greatest logit
    digest: str            # sha256 of all logits' bytes

    @property
    def perplexity(self) -> float:
        """exp of the mean loss."""
        return float(np.exp(self.loss.mean()))

    def agreement(self, other: "Scores") -> float:
        """The share of positions where both have the same likeliest token."""
        return float(np.mean(self.likeliest == other.likeliest))


@dataclasses.dataclass(frozen=True)
class Divergence:
    """Kullback-Leibler divergences from a reference [nats], as llama-perplexity has them."""
    mean: float
    percentile_99: float
    largest: float

    @staticmethod
    def of(values: np.ndarray) -> "Divergence":
        """values: one a position. What rounding has made of a divergence of nothing may be below 0."""
        values = np.maximum(values, 0)
        return Divergence(float(values.mean()), float(np.percentile(values, 99)), float(values.max()))


def split(tokens: Sequence[int], n_seq: int) -> List[List[int]]:
    """`n_seq` sequences of one length, in order; what does not fill them is left out."""
    length = len(tokens) // n_seq
    return [list(tokens[i * length:(i + 1) * length]) for i in range(n_seq)]


def decode(context: engine.Context, sequences: Sequence[Sequence[int]], n_batch: int = 0) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
    """Decodes sequences of one length side by side, each call as many positions of all as fit `n_batch` tokens (0: the context's).
    Yields (indices [rows] of sequence * length + position, logits [rows, vocabulary] f32, valid until the next). Raises DeviceError."""
    length = len(sequences[0])
    step = max((n_batch or context.n_batch) // len(sequences), 1)
    for start in range(0, length, step):
        rows = [(s, p) for s in range(len(sequences)) for p in range(start, min(start + step, length))]
        yield np.array([s * length + p for s, p in rows]), context.decode([(sequences[s][p], p, s) for s, p in rows])


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """ln of the softmax of each row, f32; NaN for a row with a logit that is not finite."""
    with np.errstate(invalid="ignore"):
        shifted = logits - logits.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, dtype=np.float64, keepdims=True)).astype(np.float32)


def divergences(expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Kullback-Leibler divergence of each row of ln p from the expected one [nats]."""
    with np.errstate(invalid="ignore"):
        return (np.exp(expected) * (expected - got)).sum(axis=1, dtype=np.float64)


def score(context: engine.Context, sequences: Sequence[Sequence[int]], n_batch: int = 0, keep: Optional[np.ndarray] = None,
          reference: Optional[np.ndarray] = None) -> Tuple[Scores, Optional[np.ndarray]]:
    """Scores sequences of one length.

    keep: [positions, vocabulary] f32 or f16, filled with ln p. reference: such an array of another backend. Returns the scores
    and the divergence from the reference at each position (None without one). Raises DeviceError."""
    length, count = len(sequences[0]), len(sequences) * len(sequences[0])
    following = np.array([[*sequence[1:], -1] for sequence in sequences]).ravel()  # -1: there is none
    loss = np.zeros(count)
    likeliest = np.zeros(count, dtype=np.int64)
    divergence = np.zeros(count) if reference is not None else None
    digest = hashlib.sha256()
    for indices, logits in decode(context, sequences, n_batch):
        digest.update(logits.tobytes())
        likeliest[indices] = logits.argmax(axis=1)
        for at in range(0, len(indices), BLOCK):
            some = indices[at:at + BLOCK]
            ln_p = log_probabilities(logits[at:at + BLOCK])
            loss[some] = -ln_p[np.arange(len(some)), following[some]]
            if keep is not None:
                keep[some] = ln_p
            if reference is not None and divergence is not None:
                divergence[some] = divergences(reference[some].astype(np.float32), ln_p)
    return Scores(loss[following >= 0] if length > 1 else loss, likeliest, digest.hexdigest()), divergence


def greedy(context: engine.Context, prompt: Sequence[int], n: int, sequence: int = 0) -> Tuple[List[int], np.ndarray]:
    """Decodes a prompt and then `n` times the likeliest token. Returns those tokens, and the logits that chose them [n, vocabulary] f32."""
    chosen: List[int] = []
    logits: List[np.ndarray] = []
    batch = [(token, position, sequence) for position, token in enumerate(prompt)]
    for position in range(len(prompt), len(prompt) + n):
        last = context.decode(batch)[-1].copy()
        logits.append(last)
        chosen.append(int(last.argmax()))
        batch = [(chosen[-1], position, sequence)]
    return chosen, np.array(logits)
