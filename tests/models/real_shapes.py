"""Models in the real shapes, without the models: GGUF files with few layers and everything else as in the real model.

For graphs the metadata and the names of the tensors are enough: the data is a hole in the file. llama.cpp maps it, builds its graphs, and
test-export-graph-ops writes the operators. For what computes, the data is random.
"""
import pathlib
from typing import Iterator, List, Sequence, Tuple

import gguf

import toys
from strata_hip import models
from support.ops import quantize
from support.tools import run_tool

QWEN36_35B_A3B = toys.Shape(arch="qwen35moe", n_vocab=248320, n_embd=2048, n_head=16, n_head_kv=2, k_heads=16, v_heads=32, n_expert=256,
                            n_used=8, n_ff_expert=512, n_ff_shared=512)
QWEN35_27B = toys.Shape(n_vocab=248320, n_embd=5120, n_ff=17408, n_head=24, n_head_kv=4, k_heads=16, v_heads=48)

# As a Q4_K_M file has them; gpt-oss as it is published.
Q4_K_M = {"matrix": "q4_K", "output": "q6_K", "embedding": "q4_K"}
GPT_OSS_TYPES = {"matrix": "q8_0", "experts": "mxfp4", "embedding": "q8_0"}

Tensors = Iterator[Tuple[str, Tuple[int, ...], str]]


def write_header(path: pathlib.Path, arch: str, add_metadata, tensors: Tensors, types: dict) -> "Tuple[gguf.GGUFWriter, int]":
    """Writes all of a GGUF file but the data: (its writer, the bytes of data that are to follow)."""
    writer = gguf.GGUFWriter(path, arch)
    add_metadata(writer)
    size = 0
    for name, shape, role in tensors:
        kind = gguf.GGMLQuantizationType[types.get(role, "f32").upper()]
        elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        count = 1
        for n in shape:
            count *= n
        stored = count // elements * block_bytes
        raw = shape if kind == gguf.GGMLQuantizationType.F32 else (*shape[:-1], shape[-1] // elements * block_bytes)
        dtype = "float32" if kind == gguf.GGMLQuantizationType.F32 else "uint8"
        writer.add_tensor_info(name, raw, toys.np.dtype(dtype), stored, raw_dtype=kind)
        size += gguf.GGUFWriter.ggml_pad(stored, writer.data_alignment)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    return writer, size


def write_hollow(path: pathlib.Path, arch: str, add_metadata, tensors: Tensors, types: dict) -> None:
    """Writes a GGUF file whose tensors are holes."""
    writer, size = write_header(path, arch, add_metadata, tensors, types)
    writer.close()
    with open(path, "r+b") as file:
        begin = gguf.GGUFWriter.ggml_pad(file.seek(0, 2), writer.data_alignment)
        file.truncate(begin + size)


def write_qwen(path: pathlib.Path, shape: toys.Shape) -> None:
    write_hollow(path, shape.arch, lambda writer: toys.add_metadata(writer, shape), toys.tensors(shape), Q4_K_M)


def write_random(path: pathlib.Path, shape: toys.Shape, types: dict = Q4_K_M, rows: int = 64) -> None:
    """Writes a Qwen of that shape with random weights. Of matrices as many rows as given are random, and repeated: to quantize a
    gigabyte takes minutes."""
    writer, _ = write_header(path, shape.arch, lambda writer: toys.add_metadata(writer, shape), toys.tensors(shape), types)
    for name, dimensions, role in toys.tensors(shape):
        if role in types:
            some = quantize(toys.values(name, (rows, dimensions[-1]), role, seed=1), types[role])
            data = toys.np.resize(some, (*dimensions[:-1], some.shape[-1]))
        else:
            data = toys.values(name, dimensions, role, seed=1)
        writer.write_tensor_data(data)
    writer.close()


def write_gpt_oss(path: pathlib.Path) -> None:
    """gpt-oss-20b: 24 layers of 2 kinds, sliding windows of 128 tokens in every other one."""
    n_vocab, n_layer, n_embd, n_head, n_head_kv, head, n_expert, n_ff = 201088, 2, 2880, 64, 8, 64, 32, 2880

    def add_metadata(writer: gguf.GGUFWriter) -> None:
        writer.add_context_length(131072)
        writer.add_embedding_length(n_embd)
        writer.add_block_count(n_layer)
        writer.add_feed_forward_length(n_ff)
        writer.add_expert_feed_forward_length(n_ff)
        writer.add_head_count(n_head)
        writer.add_head_count_kv(n_head_kv)
        writer.add_key_length(head)
        writer.add_value_length(head)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(150000.0)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(32.0)
        writer.add_rope_scaling_orig_ctx_len(4096)
        writer.add_sliding_window(128)
        writer.add_expert_count(n_expert)
        writer.add_expert_used_count(4)
        toys.add_vocabulary(writer, n_vocab)

    def tensors() -> Tensors:
        yield "token_embd.weight", (n_vocab, n_embd), "embedding"
        yield "output_norm.weight", (n_embd,), "f32"
        yield "output.weight", (n_vocab, n_embd), "matrix"
        for i in range(n_layer):
            block = f"blk.{i}."
            yield block + "attn_norm.weight", (n_embd,), "f32"
            yield block + "post_attention_norm.weight", (n_embd,), "f32"
            for name, rows in (("attn_q", n_head * head), ("attn_k", n_head_kv * head), ("attn_v", n_head_kv * head)):
                yield f"{block}{name}.weight", (rows, n_embd), "matrix"
                yield f"{block}{name}.bias", (rows,), "f32"
            yield block + "attn_output.weight", (n_embd, n_head * head), "matrix"
            yield block + "attn_output.bias", (n_embd,), "f32"
            yield block + "attn_sinks.weight", (n_head,), "f32"
            yield block + "ffn_gate_inp.weight", (n_expert, n_embd), "f32"
            yield block + "ffn_gate_inp.bias", (n_expert,), "f32"
            for name, rows, row in (("ffn_gate", n_ff, n_embd), ("ffn_up", n_ff, n_embd), ("ffn_down", n_embd, n_ff)):
                yield f"{block}{name}_exps.weight", (n_expert, rows, row), "experts"
                yield f"{block}{name}_exps.bias", (n_expert, rows), "f32"

    write_hollow(path, "gpt-oss", add_metadata, tensors(), GPT_OSS_TYPES)


def qwen36(folder: pathlib.Path) -> pathlib.Path:
    write_qwen(folder / "qwen3.6-35b-a3b.gguf", QWEN36_35B_A3B)
    return folder / "qwen3.6-35b-a3b.gguf"


def qwen35(folder: pathlib.Path) -> pathlib.Path:
    write_qwen(folder / "qwen3.5-27b.gguf", QWEN35_27B)
    return folder / "qwen3.5-27b.gguf"


def gpt_oss(folder: pathlib.Path) -> pathlib.Path:
    write_gpt_oss(folder / "gpt-oss-20b.gguf")
    return folder / "gpt-oss-20b.gguf"


def gemma3(_: pathlib.Path) -> pathlib.Path:
    return models.gemma3()


MODELS = {"qwen3.6-35b-a3b": qwen36, "qwen3.5-27b": qwen35, "gemma3-270m": gemma3, "gpt-oss-20b": gpt_oss}


def operators(model: pathlib.Path, batches: Sequence[int], folder: pathlib.Path, *arguments: str) -> List[str]:
    """The operators of the model's graphs for a single token and for each batch size, as lines of a test-backend-ops test file;
    without the tensors' names, each once."""
    found = {}
    for n in batches:
        target = folder / f"{model.stem}-{n}.txt"
        result = run_tool("test-export-graph-ops", "-m", model, "-o", target, "-c", max(512, n), "-b", n, "-ub", n, "--no-repack", *arguments,
                          timeout=300)
        assert result.returncode == 0, result.stdout[-3000:]
        for line in target.read_text().splitlines():
            found[nameless(line)] = None
    return list(found)


def nameless(line: str) -> str:
    """A line with its last field, the tensor's name, replaced by "-"."""
    fields = line.split(" ")
    at = 6 + 1 + int(fields[6])           # op, type, ne, count of parameters, parameters
    at += 1 + 9 * int(fields[at])         # count of sources, sources: type, ne, nb
    return " ".join([*fields[:at], "-"])
