"""The fused decode of a delta net's layer, and the delta net that reads and writes its states in the cache: bit for bit what a launch for
each node gives, the states in their places, refused where it must be."""
import dataclasses

import numpy as np
import pytest

from support.delta_net_layer import F32, Layer, Net, as_output
from support.fusions import MEMORY, check_bits, check_refused_over, compute, counted
from support.ggml import lib
from support.ops import Graph, new_rng, nmse

FUSED = {"delta_net_decode": 1}
LIMIT = 1e-11

LAYERS = {
    "one": Layer(),
    "35B-A3B": Layer(heads=32, key_heads=16, cells=2),
    "size-64": Layer(size=64, heads=6, key_heads=3),
    "one-head": Layer(size=64, heads=1, key_heads=1, cells=1, first=0),
    "as-many-keys": Layer(heads=2),
    "from-elsewhere": Layer(rows=(4,)),
    "neighbours": Layer(size=64, heads=6, key_heads=2, neighbours=True, tokens=2, sequences=2),
    "snapshots-of-one-token": Layer(snapshots=4),
    "from-a-snapshot": Layer(snapshots=3, rows=(2 * 5 + 1,)),
    "sequences": Layer(sequences=4),
    "sequences-from-elsewhere": Layer(sequences=2, rows=(0, 4)),
    "sequences-swapped": Layer(sequences=2, rows=(2, 1)),
    "sequences-shifted": Layer(size=64, sequences=4, rows=(4, 1, 2, 3)),
    "sequences-of-one": Layer(size=64, sequences=3, rows=(2, 2, 2)),
    "sequences-partly-elsewhere": Layer(size=64, sequences=3, rows=(1, 0, 2)),
    "sequences-from-snapshots": Layer(size=64, sequences=3, tokens=3, snapshots=3, rows=(5 + 1, 2, 2 * 5 + 3)),
    "sequences-from-others-snapshots": Layer(size=64, sequences=2, tokens=2, snapshots=2, rows=(5 + 2, 1)),
    "many-sequences": Layer(size=64, heads=1, key_heads=1, sequences=64, cells=66),
    **{f"verify-{tokens}-{snapshots}": Layer(size=64, tokens=tokens, snapshots=snapshots)
       for tokens in (2, 3, 5, 8) for snapshots in (1, 2, 4, 9)},
    "verify-sequences": Layer(tokens=4, sequences=3, snapshots=4),
    "sigmoid": Layer(sigmoid=True),
    "sigmoid-sequences": Layer(size=64, sigmoid=True, sequences=3, tokens=2, snapshots=3, rows=(2, 1, 4)),
    "sigmoid-verify": Layer(size=64, sigmoid=True, tokens=8, snapshots=9, heads=6, key_heads=3),
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", list(LAYERS))
def test_bits(name, memory):
    layer = LAYERS[name]
    check_bits(layer.build, layer.inputs(new_rng()), FUSED, memory)


@pytest.mark.parametrize("name", ["35B-A3B", "neighbours", "sequences-swapped", "verify-5-4", "verify-sequences", "sigmoid-sequences"])
def test_values(name):
    """Against float64: the result and each snapshot."""
    layer = LAYERS[name]
    inputs = layer.inputs(new_rng())
    with Graph() as g, counted() as applied:
        *_, states, out = g.run(*layer.build(g, *[g.input(data) for data in inputs]))
    assert applied == FUSED
    wanted, kept = layer.expected(*inputs)
    assert nmse(out.reshape(wanted.shape), wanted) < LIMIT
    for got, state in zip(states.reshape(-1, *kept[0].shape), kept, strict=True):
        assert nmse(got, state) < LIMIT


def test_first_token():
    """The state is set to zero between what was gathered first and where it is read."""
    layer = Layer(rows=(3,))
    zero = lambda g, states: g.scale_inplace(g.view_1d(states, layer.state, 3 * states.nb[1]), 0.0)
    build = lambda *tensors: layer.build(*tensors, between=zero)
    inputs = layer.inputs(new_rng())
    wanted, _ = compute(build, inputs, fused=False)
    got, applied = compute(build, inputs)
    assert got == wanted and applied == FUSED


@pytest.mark.full
def test_offsets_beyond_2_gib():
    """The rows of states that are read and written lie 2 GiB apart."""
    layer = Layer(size=64, heads=1, key_heads=1, cells=140_000, first=139_990, rows=(139_000,))
    small = dataclasses.replace(layer, cells=2, first=0, rows=(1,))
    inputs = small.inputs(new_rng())
    wanted, _ = compute(small.build, inputs, fused=False)
    with Graph() as g:
        caches = [g.tensor([data.shape[1], layer.cells]) for data in inputs[:2]]
        tensors = [g.input(data) for data in (inputs[0], inputs[1], layer.sources, *inputs[3:])]
        filled = [g.cpy(g.view_1d(data, cache.ne[0], data.nb[1]), g.view_1d(cache, cache.ne[0], layer.rows[0] * cache.nb[1]))
                  for data, cache in zip(tensors, caches)]
        outputs = layer.build(g, *caches, *tensors[2:])
        with counted() as applied:
            g.run(*filled, *outputs)
        assert [g.raw(tensor).tobytes() for tensor in outputs] == wanted and applied == FUSED


# --- graphs in which the fusion would go wrong -----------------------------------------------------------------------------------------

def changed(name, function, layer=Layer(size=64)):
    return layer, lambda *tensors: layer.build(*tensors, change={name: function})


def read_elsewhere(name, layer=Layer(size=64)):
    """A node has a second reader."""
    def build(g, *tensors):
        seen = []
        outputs = layer.build(g, *tensors, change={name: lambda g, tensor: seen.append(tensor) or tensor})
        return *outputs, g.sqr(seen[0])
    return layer, build


def one_key(layer=Layer(size=64)):
    """q is k."""
    def build(g, *tensors):
        keys = []
        return layer.build(g, *tensors, change={"q": lambda g, q: keys.append(q) or q, "k": lambda g, k: keys[0]})
    return layer, build


def other_heads(layer=Layer(size=64, sequences=2)):
    """The keys of both sequences, taken for those of heads that all sequences share."""
    def build(g, *tensors):
        shared = lambda g, key: g.reshape_4d(key, layer.size, layer.key_heads * layer.sequences, 1, 1)
        return layer.build(g, *tensors, change={"q": shared, "k": shared})
    return layer, build


def overwritten_states(layer=Layer(size=64)):
    """The row of states is written over after it was gathered, as with the cells of sequences that are not computed."""
    def build(g, inputs, states, *tensors):
        gathered = []
        change = {"states": lambda g, tensor: gathered.append(tensor) or tensor}
        *copies, kept, out = layer.build(g, inputs, states, *tensors, change=change)
        row = lambda n: g.view_1d(states, layer.state, n * states.nb[1])
        return *copies, gathered[0], g.cpy(row(layer.first + 1), row(layer.first)), kept, out
    return layer, build


def overwritten_inputs(layer=Layer(size=64)):
    """The row of inputs is written over after it was gathered."""
    def build(g, inputs, *tensors):
        row = g.view_1d(inputs, inputs.ne[0], layer.first * inputs.nb[1])
        return layer.build(g, inputs, *tensors, between=lambda g, states: g.scale_inplace(row, 3.0))
    return layer, build


def into_other_cache(layer=Layer(size=64)):
    """The new state goes elsewhere."""
    def build(g, *tensors):
        other = g.tensor([layer.state, layer.cells])
        return layer.build(g, *tensors, change={"target": lambda g, view: g.view_3d(other, layer.state, 1, 1, other.nb[1], other.nb[1], 0)})
    return layer, build


def as_it_is(layer):
    return layer, layer.build


WITHIN = ("inputs", "concat", "conv", "activated", "q", "k", "states", "delta", "normed")
REFUSALS = {
    "nine-tokens": as_it_is(Layer(size=64, tokens=9)),
    "many-sequences": as_it_is(Layer(size=64, heads=1, key_heads=1, sequences=65, cells=66)),
    "size-32": as_it_is(Layer(size=32)),
    **{f"{name}-is-output": changed(name, as_output) for name in WITHIN},
    **{f"{name}-read-elsewhere": read_elsewhere(name) for name in (*WITHIN, "v")},
    "one-key": one_key(),
    "other-heads": other_heads(),
    "values-in-other-place": changed("v", lambda g, v: g.cont(v)),
    "overwritten-inputs": overwritten_inputs(),
    "overwritten-states": overwritten_states(),
    "into-other-cache": into_other_cache(),
    **{f"sigmoid-{name}-is-output": changed(name, as_output, Layer(size=64, sigmoid=True)) for name in ("window", "copy", "normed")},
    **{f"sigmoid-{name}-read-elsewhere": read_elsewhere(name, Layer(size=64, sigmoid=True)) for name in ("window", "copy")},
}


@pytest.mark.parametrize("name", list(REFUSALS))
def test_refused(name):
    layer, build = REFUSALS[name]
    inputs = layer.inputs(new_rng())
    wanted, _ = compute(build, inputs, fused=False)
    got, applied = compute(build, inputs)
    assert got == wanted and "delta_net_decode" not in applied


def test_refused_with_a_decay_an_element():
    """KDA."""
    layer = Layer(size=64)
    inputs = layer.inputs(new_rng())
    inputs[5] = np.repeat(inputs[5], layer.size, axis=3)
    wanted, _ = compute(layer.build, inputs, fused=False)
    got, applied = compute(layer.build, inputs)
    assert got == wanted and "delta_net_decode" not in applied


@pytest.mark.parametrize("operand", [3, 5, 8])
def test_result_over_operand(operand):
    """The allocator gave the result the memory of x, of the decay or of the gate."""
    layer = Layer(size=64, heads=4, key_heads=2)
    check_refused_over(layer.build, layer.inputs(np.random.default_rng(3)), operand, "delta_net_decode")


# --- any number of tokens: the states' way from and to the cache -----------------------------------------------------------------------

IN_CACHE, COPY = "get_rows_gated_delta_net_cpy", "gated_delta_net_cpy"


NETS = {
    **{f"{tokens}-{snapshots}": Net(tokens=tokens, snapshots=snapshots) for tokens in (1, 2, 16, 17, 64) for snapshots in (1, 3)},
    "size-128": Net(size=128, heads=3, tokens=20),
    "size-32": Net(size=32, heads=1, tokens=1, rows=(3,)),
    "kda": Net(kda=True, tokens=18, snapshots=2, rows=(0,)),
    "from-a-snapshot": Net(snapshots=3, rows=(2 * 4 + 1,)),
    "from-below": Net(rows=(0,), tokens=33),
}
COPIED = {
    "sequences": Net(sequences=3, rows=(1, 2, 3)),
    "sequences-swapped": Net(sequences=2, rows=(2, 1), snapshots=2, kda=True),
    "size-20": Net(size=20, heads=3, tokens=5),
}


def plain_and_fused(build, inputs, memory="apart"):
    wanted, _ = compute(build, inputs, fused=False)
    got, applied = compute(build, inputs, memory)
    assert got == wanted
    return applied


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", [*NETS, *COPIED])
def test_states_in_cache(name, memory):
    net = NETS.get(name) or COPIED[name]
    applied = plain_and_fused(net.build, net.inputs(new_rng()), memory)
    assert applied == {IN_CACHE if name in NETS else COPY: 1} or memory == "packed"


@pytest.mark.parametrize("tokens", [9, 40])
def test_layer_of_a_prompt(tokens):
    layer = Layer(size=64, tokens=tokens, snapshots=3, rows=(4,))
    assert plain_and_fused(layer.build, layer.inputs(new_rng()))[IN_CACHE] == 1


OVERWRITTEN = {
    "state-overwritten": lambda g, delta, cache, gathered: (gathered, g.scale_inplace(g.view_1d(cache, cache.ne[0], cache.nb[1]), 2.0)),
    "gathered-read": lambda g, delta, cache, gathered: (g.sqr(gathered),),
    "gathered-is-output": lambda g, delta, cache, gathered: (as_output(g, gathered),),
}
READ = {
    "read-whole": lambda g, delta, cache, gathered: (g.sqr(delta),),
    "states-read": lambda g, delta, cache, gathered: (g.sqr(g.view_1d(delta, 8, lib.ggml_nbytes(delta) - 8 * F32)),),
    "end-of-result-read": lambda g, delta, cache, gathered: (g.sqr(g.view_1d(delta, 8, 64 * 2 * 9 * F32 - 4 * F32)),),
    "is-output": lambda g, delta, cache, gathered: (as_output(g, delta),),
}


@pytest.mark.parametrize("name", list(OVERWRITTEN))
def test_only_copy(name):
    net = Net()
    applied = plain_and_fused(lambda *tensors: net.build(*tensors, more=OVERWRITTEN[name]), net.inputs(new_rng()))
    assert applied == {COPY: 1}


@pytest.mark.parametrize("name", list(READ))
def test_states_seen_by_others(name):
    net = Net()
    assert not plain_and_fused(lambda *tensors: net.build(*tensors, more=READ[name]), net.inputs(new_rng()))


def test_some_snapshots_copied():
    net = Net(snapshots=3, kept=2)
    assert not plain_and_fused(net.build, net.inputs(new_rng()))
