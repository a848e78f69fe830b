"""How many launches a token of a decode takes: of toys, and of four layers with the widths of Qwen3.6-35B-A3B."""
import dataclasses

import pytest

import real_shapes
import scoring
import toys
from scoring import DEVICE
from support.ggml import counter

MOST_A_LAYER = 12
LAUNCHES = {"qwen35": 37, "qwen35moe": 45, "35B-A3B": 45}   # of three linear layers, one with attention (its keys split), and the output


@pytest.mark.parametrize("name", list(LAUNCHES))
def test_decode(name, tmp_path):
    path = tmp_path / "model.gguf"
    if name in toys.SHAPES:
        shape = toys.SHAPES[name]
        toys.write(path, shape, "q4_K")
    else:  # a short vocabulary: its products are the same launch
        shape = dataclasses.replace(real_shapes.QWEN36_35B_A3B, n_vocab=toys.N_VOCAB)
        real_shapes.write_qwen(path, shape)
    model = scoring.Model(str(path), DEVICE)
    context = model.context(256, 512, True)
    try:
        context.decode([(1, 0, 0)])
        before = {name: counter(name) for name in ("launches", "copies")}
        context.decode([(2, 1, 0)])
        launches, copies = (counter(name) - value for name, value in before.items())
    finally:
        context.close()
        model.close()
    print(f"{name}: {launches} launches a token, {launches / shape.n_layer:.2f} a layer")
    assert copies == 0 and launches == LAUNCHES[name] and launches <= MOST_A_LAYER * shape.n_layer
