"""CROSS_ENTROPY_LOSS and its backward pass, OPT_STEP_ADAMW, OPT_STEP_SGD against float64."""
import numpy as np
import pytest

from support.ggml import lib
from support.ops import Graph, new_rng, refusal_of
from support.values import assert_close, run_twice

SHAPES = [(1,), (5, 31), (2, 3, 5, 64), (3, 5000)]


def rows(rng, shape):
    return 4 * rng.standard_normal(shape, dtype=np.float32), rng.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_loss(shape):
    logits, labels = rows(new_rng(), shape)
    out = run_twice(lambda g, a, b: g.cross_entropy_loss(a, b), logits, labels)
    count = logits.size // shape[-1]
    wanted = -(log_softmax(logits) * labels).sum() / count
    np.testing.assert_allclose(out, [wanted], rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_loss_backward(shape):
    logits, labels = rows(new_rng(), shape)
    gradient = np.array([0.7], np.float32)
    out = run_twice(lambda g, d, a, b: g.cross_entropy_loss_back(d, a, b), gradient, logits, labels)
    wanted = (np.exp(log_softmax(logits)) - labels) * np.float64(gradient[0]) / (logits.size // shape[-1])
    assert np.abs(out.reshape(shape) - wanted).max() <= 2e-6 * np.exp(log_softmax(logits)).max()


@pytest.mark.parametrize("shape", [(1,), (5, 65), (2, 3, 4, 30)])
def test_adamw(shape):
    rng = new_rng()
    w, gradient, mean, square = (rng.uniform(0, 1, shape).astype(np.float32) for _ in range(4))
    params = np.array([1e-2, 0.9, 0.99, 1e-6, 0.1, 1.5, 2.5], np.float32)
    with Graph() as g:
        tensors = [g.input(x) for x in (w, gradient, mean, square, params)]
        lib.ggml_set_param(tensors[0])
        graph = g.graph(g.opt_step_adamw(*tensors))
        g.allocate()  # run() would find that the means have changed
        assert lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_SUCCESS
        after = [g.get(tensors[i]).reshape(shape) for i in (0, 2, 3)]
    alpha, beta1, beta2, eps, decay, beta1h, beta2h = params.astype(np.float64)
    m, v = mean * beta1 + gradient * (1 - beta1), square * beta2 + gradient.astype(np.float64)**2 * (1 - beta2)
    kept, step = w * (1 - alpha * decay), alpha * m * beta1h / (np.sqrt(v * beta2h) + eps)
    for got, exact, magnitude in zip(after, (kept - step, m, v), (kept + step, m, v)):
        assert_close(got, exact, magnitude, 12 * 2.0**-24)   # roundings on the way to a weight


@pytest.mark.parametrize("shape", [(1,), (5, 65), (2, 3, 4, 30)])
def test_sgd(shape):
    rng = new_rng()
    w, gradient = (rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(2))
    params = np.array([1e-2, 0.1], np.float32)
    with Graph() as g:
        tensors = [g.input(x) for x in (w, gradient, params)]
        lib.ggml_set_param(tensors[0])
        g.run(g.opt_step_sgd(*tensors))
        after = g.get(tensors[0]).reshape(shape)
    kept, step = w * (1 - np.float64(params[0]) * params[1]), np.float64(params[0]) * gradient
    assert_close(after, kept - step, np.abs(kept) + np.abs(step), 4 * 2.0**-24)


def test_refusals():
    x = np.ones((2, 4), np.float32)
    assert "contiguous" in refusal_of(lambda g, a: g.cross_entropy_loss(g.transpose(a), g.transpose(a)), x)
