#!/usr/bin/env python3
"""What fusions save: chains of nodes at the widths of Qwen3.6-35B-A3B on stock ggml-hip (with its own fusions), on this backend a launch for
each node, and on this backend. Counted and modelled on the emulator.

    python tests/bench/bench_fusions.py [-p REGEX] [--stock FILE | --no-stock] [-o md|json]

The chains are those whose bits tests/ops/test_fusions.py, test_fusions_delta_net.py and test_fusions_qwen4exp.py compare; those of gpt-oss-20b (experts with
biases) and of qwen4exp (with the widths of llama.cpp's converter: 4 streams, 64 heads of an index, blocks of 4 keys) have theirs. Time is modelled (docs/model.md), with 2 us between
launches.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Sequence, TextIO

import numpy as np

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "ops")]

import test_fusions as chains  # noqa: E402
import test_fusions_qwen4exp as qwen4exp  # noqa: E402
from strata_hip import bench_ops  # noqa: E402
from strata_hip.calibrate import GAP_US  # noqa: E402
from strata_hip.errors import StrataError  # noqa: E402
from strata_hip.ggml import ffi, lib  # noqa: E402
from support.delta_net_layer import Layer, Net  # noqa: E402
from support.fusions import fusions  # noqa: E402

SIDES = ("stock", "apart", "fused")
WIDTH, HEADS, SIZE, EXPERTS, USED, FF = 2048, 32, 128, 32, 8, 512   # of 256 experts, which 32 stand for, a token reads 8


@dataclasses.dataclass(frozen=True)
class Chain:
    name: str        # the fusions that it is for
    shape: str
    build: Callable[[Any], Any]


def given(g: Any, *arrays: np.ndarray) -> List[Any]:
    """Inputs that hold these arrays."""
    types = {"float32": "f32", "float16": "f16", "int32": "i32", "int64": "i64"}
    return [g.tensor(types[str(array.dtype)], *array.shape[::-1], fill=lambda rng, array=array: array) for array in arrays]


def experts_of(g: Any, tokens: int) -> Any:
    return g.tensor("i32", USED, tokens, fill=chains.experts(EXPERTS, tokens, USED))


def stored_heads(g: Any, heads: int, tokens: int) -> Any:
    """RMS_NORM, MUL, ROPE with interleaved sections, SET_ROWS of keys."""
    size = 256
    x, w = g.tensor("f32", size, heads, tokens), g.tensor("f32", size)
    positions = g.tensor("i32", 4 * tokens, fill=chains.numbers(4096, 4 * tokens))
    index = g.tensor("i64", tokens, fill=chains.numbers(4096, tokens, np.int64, distinct=True))
    return chains.stored(g, chains.norm_rope_sections(g, x, w, positions)[0], index, g.tensor("f16", size * heads, 4096)),


def turned_heads(g: Any, heads: int, tokens: int) -> Any:
    size = 256
    positions = g.tensor("i32", 4 * tokens, fill=chains.numbers(4096, 4 * tokens))
    return chains.norm_rope_sections(g, g.tensor("f32", size, heads, tokens), g.tensor("f32", size), positions)


def projections(g: Any, tokens: int) -> Any:
    """The residual, the norm of an attention's layer, and q (with its gate), k and v."""
    rows = lambda: g.tensor("f32", WIDTH, tokens)
    total = g.add(rows(), rows())
    n = g.mul(g.rms_norm(total, 1e-6), g.tensor("f32", WIDTH))
    return total, *(g.mul_mat(g.tensor("q4_K", WIDTH, m), n) for m in (8192, 512, 512))


def feed_forward(g: Any, tokens: int) -> Any:
    """Gate, up, SwiGLU and down of the shared expert."""
    matrix = lambda k, m: g.tensor("q4_K", k, m)
    return chains.glu_then_down(g, matrix(WIDTH, FF), matrix(WIDTH, FF), matrix(FF, WIDTH), g.tensor("f32", WIDTH, tokens))[:1]


def expert_feed_forward(g: Any, tokens: int) -> Any:
    matrix = lambda k, m: g.tensor("q4_K", k, m, EXPERTS)
    ids = experts_of(g, tokens)
    return chains.experts_then_down(g, matrix(WIDTH, FF), matrix(WIDTH, FF), matrix(FF, WIDTH), g.tensor("f32", WIDTH, tokens), ids)[:1]


def gated_and_projected(g: Any, tokens: int) -> Any:
    """The gated norm of a delta net's result and the product behind it."""
    heads = lambda: g.tensor("f32", SIZE, HEADS, tokens)
    n = g.mul(g.mul(g.rms_norm(heads(), 1e-6), g.tensor("f32", SIZE)), g.silu(heads()))
    return g.mul_mat(g.tensor("q4_K", SIZE * HEADS, WIDTH), g.reshape_2d(n, SIZE * HEADS, tokens)),


def of(build: Callable[..., Any], *makers: Callable[[np.random.Generator], np.ndarray]) -> Callable[[Any], Any]:
    """build(g, *inputs), the inputs made by functions of a random generator."""
    rng = np.random.default_rng(3)
    return lambda g: build(g, *given(g, *(make(rng) for make in makers)))


def attention_layer(g: Any, tokens: int) -> Any:
    """q, k and v of 16 heads, 2 of keys."""
    rng = np.random.default_rng(3)
    return chains.attention_of_sections(g, *given(g, *(make(rng) for make in chains.attention_numbers(16, 2, 256, 512, tokens, gates=2, positions=4))))


def linear_projections(g: Any) -> Any:
    """What a linear layer projects: qkv, decay and update rate, z."""
    f32 = lambda *ne: g.tensor("f32", *ne)
    return chains.products_and_gates(g, g.tensor("q4_K", WIDTH, 8192), g.tensor("q4_K", WIDTH, 4096), f32(WIDTH, HEADS), f32(WIDTH, HEADS),
                                     f32(HEADS), f32(HEADS), f32(WIDTH, 1))


def expert_ends(g: Any) -> Any:
    """From the experts' units to the layer's result."""
    f32 = lambda *ne: g.tensor("f32", *ne)
    return chains.expert_output(g, g.tensor("q4_K", FF, WIDTH, EXPERTS), f32(FF, USED, 1), experts_of(g, 1), f32(1, USED, 1), f32(WIDTH, 1), f32(WIDTH, 1),
                                g.tensor("q4_K", FF, WIDTH), f32(FF, 1))


def expert_beginnings(g: Any) -> Any:
    matrices = [g.tensor("q4_K", WIDTH, FF, EXPERTS) for _ in range(2)]
    return chains.glu_of_experts_and_shared(g, *matrices, experts_of(g, 1), g.tensor("q4_K", WIDTH, FF), g.tensor("q4_K", WIDTH, FF),
                                            g.tensor("f32", WIDTH, 1))


def biased_experts(g: Any) -> Any:
    """Of gpt-oss-20b: 4 of 32 experts."""
    ids = g.tensor("i32", 4, 1, fill=chains.experts(32, 1, 4))
    matrices = [g.tensor("mxfp4", 2880, 2880, 32) for _ in range(2)]
    return chains.glu_of_biased_experts(g, *matrices, g.tensor("f32", 2880, 32), g.tensor("f32", 2880, 32), g.tensor("f32", 2880, 1), ids)


def rest_cases() -> List[Chain]:
    """Parts of those above, and what other models have."""
    f32 = lambda g, *ne: g.tensor("f32", *ne)
    quantized = lambda g, *ne: g.tensor("q4_K", *ne)
    found = [
        Chain("rms_norm_mul_add", f"{WIDTH} x 1", lambda g: chains.norm_mul_add(g, f32(g, WIDTH, 1), f32(g, WIDTH), f32(g, WIDTH, 1))),
        Chain("rms_norm_mul_add_rms_norm_mul", f"{WIDTH} x 1", lambda g: chains.norm_add_norm(
            g, f32(g, WIDTH, 1), f32(g, WIDTH), f32(g, WIDTH, 1), f32(g, WIDTH))),
        Chain("rms_norm_scale", f"{SIZE} x 16", lambda g: chains.norm_scale(g, f32(g, SIZE, 16))),
        Chain("rope_set_rows", "128 x 8 heads, 1 tok", lambda g: chains.rope_stored(
            g, f32(g, 128, 8, 1), g.tensor("i32", 1, fill=chains.numbers(4096, 1)), g.tensor("i64", 1, fill=chains.numbers(4096, 1, np.int64)),
            g.tensor("f16", 1024, 4096))),
        *(Chain("rms_norm_mul_rope_set_rows_qkv", f"256 x 16 and 2 heads, {n} tok", lambda g, n=n: attention_layer(g, n)) for n in (1, 64)),
        Chain("mul_mat_group_delta_net_gates", f"q4_K 8192, 4096 x {WIDTH}, {HEADS} heads, 1 tok", linear_projections),
        Chain("mul_mat_id_glu_shared", f"q4_K 2 of {FF}x{WIDTH}, top-8 and shared, 1 tok", expert_beginnings),
        Chain("expert_output", f"q4_K {WIDTH}x{FF}, top-8 and shared, 1 tok", expert_ends),
        Chain("expert_sum_shared_gate", f"{WIDTH} x 8, 1 tok", lambda g: chains.experts_and_shared(
            g, f32(g, WIDTH, 8, 1), f32(g, 1, 8, 1), f32(g, WIDTH, 1), f32(g, WIDTH, 1), f32(g, WIDTH, 1))),
        Chain("shared_expert_gate_add", f"{WIDTH}, 1 tok", lambda g: chains.shared_gate_add(g, f32(g, WIDTH, 1), *(f32(g, WIDTH, 1) for _ in range(4)))),
        Chain("mul_mat_id_add_id_glu", "mxfp4 2 of 2880x2880, top-4, 1 tok", biased_experts),
        Chain("gated_delta_net_cpy", f"H={HEADS} S={SIZE}, 3 sequences of 1 tok", of(
            lambda g, *inputs: Net(size=SIZE, heads=HEADS, tokens=1, sequences=3, rows=(1, 2, 3)).build(g, *inputs),
            *(lambda rng, array=array: array for array in Net(size=SIZE, heads=HEADS, tokens=1, sequences=3, rows=(1, 2, 3)).inputs(
                np.random.default_rng(3))))),
        Chain("gate_q8_1, cont_sigmoid_mul", f"256 x 16 heads, q4_K {WIDTH}x4096, 1 tok", lambda g: chains.gate_then_down(
            g, f32(g, 256, 16, 1), f32(g, 512, 16, 1), quantized(g, 4096, WIDTH))),
        Chain("get_rows_q8_1", f"1 of 64 x {WIDTH}, q4_K 4096x{WIDTH}", lambda g: chains.rows_of_product(
            g, f32(g, WIDTH, 64), g.tensor("i32", 1, fill=chains.numbers(64, 1)), quantized(g, WIDTH, 4096))),
        Chain("shared_q8_1", f"q4_K 3 of 512x{WIDTH}, 64 tok", lambda g: chains.products_of_column(
            g, *(quantized(g, WIDTH, 512) for _ in range(3)), f32(g, WIDTH, 64))),
        Chain("shared_routing", f"q4_K 2 of {FF}x{WIDTH}, top-8, 64 tok", lambda g: chains.products_of_experts(
            g, *(quantized(g, WIDTH, FF, EXPERTS) for _ in range(2)), f32(g, WIDTH, 64), experts_of(g, 64))),
        Chain("ssm_conv_add_silu", "8192 channels, 1 tok", lambda g: chains.conv_bias_silu(g, f32(g, 4, 8192, 1), f32(g, 4, 8192), f32(g, 8192))),
    ]
    for name, build in (("sigmoid_mul", chains.sigmoid_gate), ("softplus_mul", chains.softplus_gate), ("silu_mul", chains.silu_gate)):
        found.append(Chain(name, "4096 x 1", lambda g, build=build: build(g, f32(g, 4096, 1), f32(g, 4096, 1))))
    return found


def qwen4exp_cases() -> List[Chain]:
    f32 = lambda g, *ne: g.tensor("f32", *ne)
    streams, index_heads, members, keys = 4, 64, 4, 4096
    blocks = keys // members
    cells = lambda g, high, *ne: g.tensor("i32", *ne, fill=lambda rng: rng.integers(0, high, ne[::-1]).astype(np.int32))
    combined = lambda g: (f32(g, streams, 1), f32(g, WIDTH, 1), f32(g, WIDTH, streams, 1))
    found = [
        Chain("sigmoid_hc_post", f"{WIDTH} x {streams}, 1 tok", lambda g: qwen4exp.post(g, *combined(g))),
        Chain("sigmoid_hc_post_rms_norm_mul", f"{WIDTH} x {streams}, 1 tok", lambda g: qwen4exp.post_norm(g, *combined(g), f32(g, WIDTH, streams))),
        Chain("hc_pre_q8_1", f"{WIDTH} x {streams}, q4_K 512x{WIDTH}, 1 tok", lambda g: qwen4exp.mixed_of_products(
            g, f32(g, WIDTH, streams, 1), f32(g, WIDTH, streams, 1), g.tensor("q4_K", WIDTH, 512))),
        Chain("scale_silu", "256 x 1", lambda g: qwen4exp.scaled_silu(g, f32(g, 256, 1))),
        Chain("sigmoid_gated_rms_norm", f"{SIZE} x {HEADS}", lambda g: qwen4exp.sigmoid_norm(g, f32(g, SIZE, HEADS), f32(g, SIZE), f32(g, SIZE, HEADS))),
        Chain("get_rows_block_mean", f"{keys} x 128 of f16", lambda g: qwen4exp.block_means(
            g, g.tensor("f16", 128, keys), cells(g, keys, keys), members)),
        Chain("slice_sum", f"{index_heads} heads, {blocks} blocks", lambda g: qwen4exp.head_sum(g, f32(g, blocks, index_heads, 1))),
        Chain("get_rows_add_mask", f"{keys} keys", lambda g: qwen4exp.expanded(
            g, f32(g, blocks, 1, 1), cells(g, blocks, keys), g.tensor("f16", keys, 1, fill=lambda rng: np.zeros((1, keys), np.float16)))),
        Chain("top_k_cont", f"2048 of {keys}", lambda g: qwen4exp.top_k(g, f32(g, keys, 1), 2048)),
        Chain("fill_set_rows_add_mask", f"2048 of {keys}", lambda g: qwen4exp.chosen_mask(
            g, g.tensor("f16", keys, 1, fill=lambda rng: np.zeros((1, keys), np.float16)),
            g.tensor("i32", 2048, 1, fill=lambda rng: rng.permutation(keys)[None, :2048].astype(np.int32)))),
    ]
    rng = np.random.default_rng(3)
    for n in (1, 64):
        found.append(Chain("per_layer_gate", f"{WIDTH} x {streams}, {n} tok", of(qwen4exp.per_layer_gate, *qwen4exp.gate_inputs(n, streams, WIDTH))))
        layer = qwen4exp.PerLayer(width=WIDTH, streams=streams, tokens=n)
        found.append(Chain("per_layer_conv", f"{WIDTH * streams} channels, 4 taps, {n} tok", of(layer.build, *layer.inputs())))
    layer = Layer(heads=HEADS, key_heads=16, cells=2, sigmoid=True)
    found.append(Chain("delta_net_decode", f"H={HEADS} S={SIZE}, gate's sigmoid, 1 tok", lambda g: layer.build(g, *given(g, *layer.inputs(rng)))))
    return found


def cases() -> List[Chain]:
    f32 = lambda g, *ne: g.tensor("f32", *ne)
    found = []
    for n in (1, 64):
        rows = lambda g, n=n: f32(g, WIDTH, n)
        found += [
            Chain("rms_norm_mul", f"{WIDTH} x {n}", lambda g, rows=rows: chains.norm_mul(g, rows(g), f32(g, WIDTH))),
            Chain("add_rms_norm_mul", f"{WIDTH} x {n}", lambda g, rows=rows: chains.add_norm_mul(g, rows(g), rows(g), f32(g, WIDTH))),
            Chain("rms_norm_scale_pair", f"2 of {SIZE} x {16 * n}", lambda g, n=n: chains.norm_scale_pair(g, f32(g, 2 * SIZE, 16 * n))),
            Chain("rms_norm_mul_rope", f"256 x 16 heads, {n} tok", lambda g, n=n: turned_heads(g, 16, n)),
            Chain("rms_norm_mul_rope_set_rows", f"256 x 2 heads, {n} tok", lambda g, n=n: stored_heads(g, 2, n)),
            Chain("cont_sigmoid_mul", f"256 x 16 heads, {n} tok", lambda g, n=n: chains.strided_gate(g, f32(g, 256, 16, n), f32(g, 512, 16, n))),
            Chain("top_k_router", f"256 experts, top-8, {n} tok", lambda g, n=n: chains.router(g, f32(g, 256, n), 8)),
            Chain("expert_sum", f"{WIDTH} x 8, {n} tok", lambda g, n=n: chains.expert_sum(g, f32(g, WIDTH, 8, n), f32(g, 1, 8, n))),
            Chain("ssm_conv_silu", f"8192 channels, {n} tok", lambda g, n=n: chains.conv_silu(g, f32(g, n + 3, 8192, 1), f32(g, 4, 8192))),
        ]
    for n in (1, 4):
        rows = lambda g, n=n: f32(g, WIDTH, n)
        found += [
            Chain("shared_expert_gate", f"{WIDTH}, {n} tok", lambda g, rows=rows: chains.shared_gate(g, f32(g, WIDTH, 1), rows(g), rows(g), rows(g))),
            Chain("expert_sum_shared_gate_add", f"{WIDTH} x 8, {n} tok", lambda g, n=n, rows=rows: chains.experts_and_shared_add(
                g, f32(g, WIDTH, 8, n), f32(g, 1, 8, n), f32(g, WIDTH, 1), rows(g), rows(g), rows(g))),
            Chain("delta_net_gates", f"{HEADS} heads, k {WIDTH}, {n} tok", lambda g, n=n: chains.delta_net_gates(
                g, f32(g, WIDTH, HEADS), f32(g, WIDTH, HEADS), f32(g, HEADS), f32(g, HEADS), f32(g, WIDTH, n))),
            Chain("add_rms_norm_mul, rms_norm_q8_1, mul_mat_group", f"q4_K 8192, 512, 512 x {WIDTH}, {n} tok", lambda g, n=n: projections(g, n)),
            Chain("gated_rms_norm, rms_norm_q8_1", f"q4_K {WIDTH}x{SIZE * HEADS}, {n} tok", lambda g, n=n: gated_and_projected(g, n)),
            Chain("mul_mat_glu, glu_q8_1", f"q4_K 2 of {FF}x{WIDTH} and {WIDTH}x{FF}, {n} tok", lambda g, n=n: feed_forward(g, n)),
            Chain("mul_mat_id_glu, glu_q8_1", f"q4_K 2 of {FF}x{WIDTH} and {WIDTH}x{FF}, top-8, {n} tok", lambda g, n=n: expert_feed_forward(g, n)),
        ]
    rng = np.random.default_rng(3)
    layer = Layer(heads=HEADS, key_heads=16, cells=2)
    for each in (layer, dataclasses.replace(layer, tokens=4, snapshots=4), dataclasses.replace(layer, tokens=64)):
        name = "delta_net_decode" if each.tokens <= 8 else "ssm_conv_silu, get_rows_gated_delta_net_cpy, gated_rms_norm"
        found.append(Chain(name, f"H={HEADS} S={SIZE}, {each.tokens} tok" + (f", {each.snapshots} states kept" if each.snapshots > 1 else ""),
                           lambda g, each=each: each.build(g, *given(g, *each.inputs(rng)))))
    wide = dataclasses.replace(layer, heads=64)
    found.append(Chain("delta_net_decode", f"H=64 S={SIZE}, 1 tok", lambda g: wide.build(g, *given(g, *wide.inputs(rng)))))
    net = Net(size=SIZE, heads=HEADS, tokens=1)
    found.append(Chain("get_rows_gated_delta_net_cpy", f"H={HEADS} S={SIZE}, 1 tok", lambda g: net.build(g, *given(g, *net.inputs(rng)))))
    return found + rest_cases() + qwen4exp_cases()


def compute(process: bench_ops.Process, build: Callable[[Any], Any], backend: Any) -> Optional[Dict[str, int]]:
    """Which launches the chain took; None if the backend does not compute all of it."""
    ctx = lib.ggml_init({"mem_size": 1 << 21, "mem_buffer": ffi.NULL, "no_alloc": True})
    try:
        builder = bench_ops.Builder(ctx)
        made = lib.ggml_new_graph(ctx)
        for output in build(builder):
            lib.ggml_set_output(output)
            lib.ggml_build_forward_expand(made, output)
        if not all(lib.ggml_backend_supports_op(backend, lib.ggml_graph_node(made, i)) for i in range(lib.ggml_graph_n_nodes(made))):
            return None
        buffer = lib.ggml_backend_alloc_ctx_tensors(ctx, backend)
        taken = process.compute(builder, made, backend, "a chain")
        lib.ggml_backend_buffer_free(buffer)
        return taken
    finally:
        lib.ggml_free(ctx)


def child(stock: str, indices: Sequence[int]) -> None:
    """Prints a line of JSON a chain."""
    process = bench_ops.Process(pathlib.Path(stock) if stock else None)
    every = cases()
    for index in indices:
        ran = {}
        for side in SIDES:
            name = "stock" if side == "stock" else "ours"
            if name in process.backends:
                with fusions(side != "apart"):
                    ran[side] = compute(process, every[index].build, process.backends[name])
        print("@row " + json.dumps(ran), flush=True)
        print(f"{every[index].name}: {every[index].shape}", file=sys.stderr)


def measure(indices: Sequence[int], stock: Optional[pathlib.Path]) -> List[Dict[str, bench_ops.Measure]]:
    """What each side took for each chain. Raises StrataError."""
    with tempfile.TemporaryDirectory() as folder:
        counts = pathlib.Path(folder) / "counts.json"
        environment = dict(os.environ, STRATA_COUNT=str(counts), STRATA_MODEL="1", GGML_CUDA_DISABLE_GRAPHS="1")
        process = subprocess.run([sys.executable, __file__, "--child", str(stock or ""), *map(str, indices)], env=environment,
                                 stdout=subprocess.PIPE, text=True)
        if process.returncode != 0:
            raise StrataError(f"the comparison ended with exit code {process.returncode}")
        rows = [json.loads(line[5:]) for line in process.stdout.splitlines() if line.startswith("@row ")]
        launches = json.loads(counts.read_text())["launches"]
    return [{side: bench_ops.measure(launches[ran["first"]:ran["last"]], ran["blas"]) for side, ran in row.items() if ran} for row in rows]


def us(found: bench_ops.Measure) -> float:
    """Modelled, gaps included."""
    return (found.modelled_us or 0.0) + GAP_US * (found.launches - 1)


def markdown(wanted: Sequence[Chain], rows: Sequence[Dict[str, bench_ops.Measure]], out: TextIO) -> None:
    print("| fusions | shape | launches: stock, apart, fused | k instructions | KB | modelled us | apart / fused | stock / fused |", file=out)
    print("|---|---|--:|--:|--:|--:|--:|--:|", file=out)
    for chain, row in zip(wanted, rows):
        def each(value: Callable[[bench_ops.Measure], Any], text: str = "{:g}") -> str:
            return ", ".join(text.format(value(row[side])) + ("*" if row[side].blas else "") if side in row else "-" for side in SIDES)
        ratio = lambda side: f"{us(row[side]) / us(row['fused']):.2f}" if side in row and not row[side].blas else "-"
        print(f"| {', '.join(f'`{name}`' for name in chain.name.split(', '))} | {chain.shape} | {each(lambda m: m.launches)} | "
              f"{each(lambda m: m.instructions / 1e3, '{:.1f}')} | {each(lambda m: m.line_bytes / 1e3, '{:.1f}')} | {each(us, '{:.1f}')} | "
              f"{ratio('apart')} | {ratio('stock')} |", file=out)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], [int(text) for text in sys.argv[3:]])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-p", "--pattern", default="", metavar="REGEX", help="of fusions and shape")
    parser.add_argument("--stock", metavar="FILE", help="libggml-hip.so, built by tests/bench/peer/build_stock_hip.py")
    parser.add_argument("--no-stock", action="store_true", help="this backend alone")
    parser.add_argument("-o", "--output", choices=["md", "json"], default="md")
    options = parser.parse_args()
    every = cases()
    indices = [i for i, chain in enumerate(every) if re.search(options.pattern, f"{chain.name} {chain.shape}")]
    rows = measure(indices, None if options.no_stock else bench_ops.stock_library(options.stock))
    wanted = [every[i] for i in indices]
    if options.output == "json":
        print(json.dumps([{"fusions": chain.name.split(", "), "shape": chain.shape, **{side: dataclasses.asdict(found) for side, found in row.items()}}
                          for chain, row in zip(wanted, rows)], indent=1))
    else:
        markdown(wanted, rows, sys.stdout)


if __name__ == "__main__":
    try:
        main()
    except StrataError as error:
        sys.exit(f"strata-hip: {error}")
