"""Small models in place of those that upstream's tests fetch from a hub: the same architectures and vocabularies, random weights."""
import pathlib
import struct
from typing import Dict, Iterator, Tuple

import gguf
import numpy as np

from strata_hip.quantized import quantize
from support.paths import llama_cpp_source

KIND = "q8_0"
_SIZES = {"n": 128, "layers": 2, "ff": 256, "heads": 4, "inner": 256, "state": 16, "rank": 8, "conv": 4, "context": 512}

Tensors = Iterator[Tuple[str, Tuple[int, ...], str]]


def _mamba() -> Tensors:
    """(name, numpy shape, kind): "matrix", "one", "zero", "decay", or "small" for values that stay float32."""
    n, inner, state, rank = (_SIZES[key] for key in ("n", "inner", "state", "rank"))
    for i in range(_SIZES["layers"]):
        at = f"blk.{i}."
        yield at + "attn_norm.weight", (n,), "one"
        yield at + "ssm_in.weight", (2 * inner, n), "matrix"
        yield at + "ssm_conv1d.weight", (inner, _SIZES["conv"]), "small"
        yield at + "ssm_conv1d.bias", (inner,), "small"
        yield at + "ssm_x.weight", (rank + 2 * state, inner), "matrix"
        yield at + "ssm_dt.weight", (inner, rank), "small"
        yield at + "ssm_dt.bias", (inner,), "small"
        yield at + "ssm_a", (inner, state), "decay"
        yield at + "ssm_d", (inner,), "one"
        yield at + "ssm_out.weight", (n, inner), "matrix"
    yield "output_norm.weight", (n,), "one"


def _bert() -> Tensors:
    n, ff = _SIZES["n"], _SIZES["ff"]
    yield "token_types.weight", (2, n), "small"
    yield "position_embd.weight", (_SIZES["context"], n), "small"
    yield "token_embd_norm.weight", (n,), "one"
    yield "token_embd_norm.bias", (n,), "zero"
    for i in range(_SIZES["layers"]):
        for name, rows, columns in (("attn_q", n, n), ("attn_k", n, n), ("attn_v", n, n), ("attn_output", n, n), ("ffn_up", ff, n),
                                    ("ffn_down", n, ff)):
            yield f"blk.{i}.{name}.weight", (rows, columns), "matrix"
            yield f"blk.{i}.{name}.bias", (rows,), "small"
        for name in ("attn_output_norm", "layer_output_norm"):
            yield f"blk.{i}.{name}.weight", (n,), "one"
            yield f"blk.{i}.{name}.bias", (n,), "zero"


def _values(rng: np.random.Generator, shape: Tuple[int, ...], kind: str) -> np.ndarray:
    if kind in ("one", "zero"):
        return np.full(shape, kind == "one", np.float32)
    if kind == "decay":
        return -rng.uniform(0.5, 8, shape).astype(np.float32)
    return (rng.standard_normal(shape) / (10 if kind == "small" else np.sqrt(shape[-1]))).astype(np.float32)


def _add_sizes(writer: gguf.GGUFWriter) -> None:
    writer.add_context_length(_SIZES["context"])
    writer.add_embedding_length(_SIZES["n"])
    writer.add_block_count(_SIZES["layers"])


def _vocabulary(name: str) -> Tuple[int, int, bytes]:
    """Of one of llama.cpp's vocabularies (models/ggml-vocab-NAME.gguf of the pinned sources): its size, the number of its keys, and these
    keys with their values as a GGUF file has them. (gguf's reader makes an array of each token and each merge.)"""
    data = memoryview((llama_cpp_source() / "models" / f"ggml-vocab-{name}.gguf").read_bytes())
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # GGUFValueType

    def number(at: int, format: str) -> int:
        return struct.unpack_from(format, data, at)[0]

    def after(at: int, kind: int) -> int:
        if kind == gguf.GGUFValueType.STRING:
            return at + 8 + number(at, "<Q")
        if kind == gguf.GGUFValueType.ARRAY:
            inner, count = number(at, "<I"), number(at + 4, "<Q")
            if inner in sizes:
                return at + 12 + sizes[inner] * count
            at += 12
            for _ in range(count):
                at = after(at, inner)
            return at
        return at + sizes[kind]

    at, tokens, copied = 24, 0, []
    for _ in range(number(16, "<Q")):
        begin, value = at, after(at, gguf.GGUFValueType.STRING)
        key = bytes(data[begin + 8:value]).decode()
        at = after(value + 4, number(value, "<I"))
        if key.startswith("tokenizer.") and key != "tokenizer.chat_template":
            copied.append(bytes(data[begin:at]))
        if key == "tokenizer.ggml.tokens":
            tokens = number(value + 8, "<Q")
    return tokens, len(copied), b"".join(copied)


def _write(path: pathlib.Path, writer: gguf.GGUFWriter, tensors: Tensors, vocabulary: str) -> None:
    rng = np.random.default_rng(1)
    count, keys, data = _vocabulary(vocabulary)
    quantized: Dict[str, np.ndarray] = {"token_embd.weight": quantize(rng.standard_normal((count, _SIZES["n"]), np.float32), KIND)}
    for name, shape, kind in tensors:
        values = _values(rng, shape, kind)
        if kind == "matrix":
            quantized[name] = quantize(values, KIND)
        else:
            writer.add_tensor(name, values)
    for name, raw in quantized.items():
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[KIND.upper()])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    file = writer.fout[0]
    file.seek(16)
    file.write(struct.pack("<Q", len(writer.kv_data[0]) + keys))
    file.seek(0, 2)
    file.write(data)
    writer.write_tensors_to_file()
    writer.close()


def mamba(path: pathlib.Path) -> None:
    """A recurrent model, with the vocabulary of mamba-130m."""
    writer = gguf.GGUFWriter(path, "mamba")
    _add_sizes(writer)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_ssm_conv_kernel(_SIZES["conv"])
    writer.add_ssm_inner_size(_SIZES["inner"])
    writer.add_ssm_state_size(_SIZES["state"])
    writer.add_ssm_time_step_rank(_SIZES["rank"])
    _write(path, writer, _mamba(), "gpt-neox")


def bert(path: pathlib.Path) -> None:
    """An embedding model, with the vocabulary and the pooling of bge-small-en."""
    writer = gguf.GGUFWriter(path, "bert")
    _add_sizes(writer)
    writer.add_feed_forward_length(_SIZES["ff"])
    writer.add_head_count(_SIZES["heads"])
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.CLS)
    _write(path, writer, _bert(), "bert-bge")
