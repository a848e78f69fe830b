"""A delta net's layer as llama.cpp builds it (delta-net-base.cpp), from the states in the cache to the gated norm; and its delta net alone.

    layer = Layer(tokens=3, snapshots=2)
    results, applied = compute(layer.build, layer.inputs(rng))
"""
import dataclasses

import numpy as np

from .delta_net import make, reference
from .ggml import lib

F32 = 4  # bytes
TAPS = 4
KEPT = TAPS - 1
EPS = 1e-6


@dataclasses.dataclass(frozen=True)
class Layer:
    """Shapes, and where the states are. A cache has `cells` rows for each snapshot; those of the sequences begin at `first`."""
    size: int = 128
    heads: int = 4
    key_heads: int = 2
    tokens: int = 1
    sequences: int = 1
    snapshots: int = 1
    cells: int = 5
    first: int = 1
    rows: tuple = ()          # where each sequence's states are read; () for its own cell
    neighbours: bool = False  # neighbouring heads share a key (qwen3next), else every key_heads-th
    sigmoid: bool = False     # of the gate instead of SiLU, and inputs are copied on their way to the cache (qwen4exp)

    @property
    def channels(self) -> int:
        return self.size * (2 * self.key_heads + self.heads)

    @property
    def state(self) -> int:
        return self.size * self.size * self.heads

    @property
    def sources(self) -> np.ndarray:
        return np.array(self.rows or range(self.first, self.first + self.sequences), np.int32)

    def inputs(self, rng) -> list:
        """Caches of inputs and of states, rows, x, taps, decay, beta, norm's weight, gate: numbers as models have them."""
        _, _, v, decay, beta, _ = make(rng, self.size, self.heads, self.tokens, self.sequences)
        normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32)
        x = normal(self.sequences, self.tokens, self.channels)
        x[..., -self.size * self.heads:] = v.reshape(self.sequences, self.tokens, -1)
        cache_rows = self.snapshots * self.cells
        return [normal(cache_rows, KEPT * self.channels), normal(cache_rows, self.state), self.sources, x, normal(self.channels, TAPS),
                decay, beta, normal(self.size), normal(self.sequences, self.tokens, self.heads, self.size)]

    def build(self, g, inputs, states, rows, x, taps, decay, beta, weight, gate, change=None, between=None):
        """(the new rows of inputs, newest last, those of states, the result). change: functions that replace nodes by their name;
        between(g, states): a node that is computed after the inputs were gathered and before the states are."""
        change = change or {}
        named = lambda name, tensor: change.get(name, lambda g, tensor: tensor)(g, tensor)
        size, heads, tokens, sequences, channels = self.size, self.heads, self.tokens, self.sequences, self.channels

        old = named("inputs", g.get_rows(inputs, rows))
        concat = named("concat", g.concat(g.reshape_3d(old, KEPT, channels, sequences), g.transpose(x), 0))
        copies = []
        for t in range(1, self.snapshots + 1):
            begin = max(0, tokens - self.snapshots + t)
            row = (self.snapshots - t) * self.cells + self.first
            window = named("window", g.view_3d(concat, KEPT, channels, sequences, concat.nb[1], concat.nb[2], begin * F32))
            copies.append(g.cpy(named("copy", g.cont(window)) if self.sigmoid else window, g.view_2d(inputs, KEPT * channels, sequences, inputs.nb[1], row * inputs.nb[1])))
        copies += [between(g, states)] if between else []
        state = g.reshape_4d(named("states", g.get_rows(states, rows)), size, size, heads, sequences)
        mixed = named("activated", g.silu(named("conv", g.ssm_conv(concat, taps))))
        part = lambda n, first: g.view_4d(mixed, size, n, tokens, sequences, size * F32, channels * F32, channels * F32 * tokens,
                                          first * size * F32)

        def key(name, first):
            made = named(name, g.scale(g.rms_norm(part(self.key_heads, first), EPS / size), size ** -0.5))
            if not self.neighbours:
                return made
            made = g.reshape_4d(made, size, 1, self.key_heads, tokens * sequences)
            made = g.repeat_4d(made, size, heads // self.key_heads, self.key_heads, tokens * sequences)
            return g.reshape_4d(made, size, heads, tokens, sequences)

        q, k, v = key("q", 0), key("k", self.key_heads), named("v", part(heads, 2 * self.key_heads))
        delta = named("delta", g.gated_delta_net(q, k, v, decay, beta, state, self.snapshots))
        written, results = min(tokens, self.snapshots), size * heads * tokens * sequences * F32
        target = g.view_3d(states, self.state, sequences, written, states.nb[1], self.cells * states.nb[1], self.first * states.nb[1])
        kept = g.view_3d(delta, self.state, sequences, written, self.state * F32, self.state * sequences * F32, results)
        copies.append(g.cpy(kept, named("target", target)))
        out = g.view_4d(delta, size, heads, tokens, sequences, size * F32, size * heads * F32, size * heads * tokens * F32, 0)
        return (*copies, g.mul(named("normed", g.mul(g.rms_norm(out, EPS), weight)), (g.sigmoid if self.sigmoid else g.silu)(gate)))

    def expected(self, inputs, states, rows, x, taps, decay, beta, weight, gate):
        """The result and the new states (newest first) in float64."""
        inputs, states, x, taps, weight, gate = (t.astype(np.float64) for t in (inputs, states, x, taps, weight, gate))
        silu = lambda t: t / (1 + np.exp(-t))
        old = inputs[rows].reshape(self.sequences, self.channels, KEPT)
        window = np.concatenate([old, x.transpose(0, 2, 1)], axis=2)
        conv = silu(sum(window[:, :, k:k + self.tokens] * taps[:, k, None] for k in range(TAPS))).transpose(0, 2, 1)
        q, k, v = np.split(conv, [self.size * self.key_heads, 2 * self.size * self.key_heads], axis=2)
        heads_of = lambda t: t.reshape(self.sequences, self.tokens, -1, self.size)
        unit = lambda t: heads_of(t) / np.sqrt(np.sum(heads_of(t) ** 2, axis=-1, keepdims=True) + EPS)
        spread = lambda t: np.repeat(t, self.heads // self.key_heads, axis=2) if self.neighbours else t
        state = states[rows].reshape(self.sequences, self.heads, self.size, self.size)
        out, kept, _ = reference(spread(unit(q)), spread(unit(k)), heads_of(v), decay, beta, state, self.snapshots)
        normed = out / np.sqrt(np.mean(out ** 2, axis=-1, keepdims=True) + EPS) * weight
        return normed * (silu(gate) / gate if self.sigmoid else silu(gate)), kept


@dataclasses.dataclass(frozen=True)
class Net:
    """GATED_DELTA_NET between a cache of 4 rows a snapshot and itself; the new states go to rows from 1 on."""
    size: int = 64
    heads: int = 2
    tokens: int = 9
    sequences: int = 1
    snapshots: int = 1
    rows: tuple = (1,)
    kda: bool = False
    kept: int = 0   # snapshots that are copied; 0 for all

    def inputs(self, rng) -> list:
        q, k, v, gate, beta, _ = make(rng, self.size, self.heads, self.tokens, self.sequences, kda=self.kda)
        cache = rng.standard_normal((4 * self.snapshots, self.size * self.size * self.heads), dtype=np.float32)
        return [q, k, v, gate, beta, cache, np.array(self.rows, np.int32)]

    def build(self, g, q, k, v, gate, beta, cache, rows, more=None):
        """more(g, delta, cache, gathered): further outputs before the copy."""
        gathered = g.get_rows(cache, rows)
        state = g.reshape_4d(gathered, self.size, self.size, self.heads, self.sequences)
        delta = g.gated_delta_net(q, k, v, gate, beta, state, self.snapshots)
        length, written = self.size * self.size * self.heads, self.kept or min(self.tokens, self.snapshots)
        results = v.ne[0] * v.ne[1] * v.ne[2] * v.ne[3] * F32
        copy = g.cpy(g.view_3d(delta, length, self.sequences, written, length * F32, length * self.sequences * F32, results),
                     g.view_3d(cache, length, self.sequences, written, cache.nb[1], 4 * cache.nb[1], cache.nb[1]))
        out = g.view_4d(delta, *v.ne, self.size * F32, self.size * self.heads * F32, self.size * self.heads * self.tokens * F32, 0)
        return *(more(g, delta, cache, gathered) if more else ()), copy, g.sqr(out)


def as_output(g, tensor):
    lib.ggml_set_output(tensor)
    return tensor
