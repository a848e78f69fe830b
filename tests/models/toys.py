"""Toy models of the architectures qwen35 and qwen35moe: the real shapes scaled down, random weights, any type of weights.

The linear layers keep the real head size of 128 and the 4-wide convolution, the full attention the real head size of 256 with 64
rotated dimensions in three sections, every 4th layer as in the real models; fewer heads, layers, experts, narrower rows.

With n_nextn = 1 a block that drafts the token after the next one (multi-token prediction) comes last, as in the real files.
"""
import dataclasses
import pathlib
import zlib
from typing import Iterator, Tuple

import gguf
import numpy as np

from strata_hip.ggml import TYPES, lib
from support.ops import quantize

N_VOCAB = 512


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a toy is made of."""
    arch: str = "qwen35"
    n_vocab: int = N_VOCAB
    n_layer: int = 4
    n_embd: int = 512
    n_ff: int = 768
    n_head: int = 2
    n_head_kv: int = 1
    head: int = 256
    rotated: int = 64
    sections: Tuple[int, ...] = (11, 11, 10, 0)
    state: int = 128       # head size of the linear layers
    k_heads: int = 2
    v_heads: int = 4
    conv: int = 4
    n_expert: int = 16     # qwen35moe
    n_used: int = 4
    n_ff_expert: int = 256
    n_ff_shared: int = 256
    interval: int = 4      # every how manyth layer is one of full attention
    n_nextn: int = 0       # blocks that draft
    drafts_often_right: bool = False  # drafts are made of the token's embedding alone, and so, mostly, is the next token


QUANTIZED = ("matrix", "output", "embedding", "large embedding")  # what quantizers quantize
SHAPES = {"qwen35": Shape(), "qwen35moe": Shape(arch="qwen35moe")}

# Routers choose clearly; what a layer adds is 1/sqrt(2 n_layer) of what it is given, as models are initialised. Otherwise rounding to 8
# bits alone makes the CPU's logits differ from those of the same weights in f32 by an NMSE of 1e-3 (q4_K, dense) to 4e-2 (experts).
SCALE = {"router": 4, "output": 0.35}
LARGE = 2  # a token's embedding, against what the layers add to it


def tensors(shape: Shape) -> Iterator[Tuple[str, Tuple[int, ...], str]]:
    """(name, numpy shape, kind) of every tensor; the kind is "matrix", "output" or "embedding" for what quantizers quantize,
    "f32" for other weights, or the name of a distribution."""
    value = shape.state * shape.v_heads
    mixed = 2 * shape.state * shape.k_heads + value
    yield "token_embd.weight", (shape.n_vocab, shape.n_embd), "large embedding" if shape.drafts_often_right else "embedding"
    yield "output_norm.weight", (shape.n_embd,), "norm"
    yield "output.weight", (shape.n_vocab, shape.n_embd), "matrix"
    for i in range(shape.n_layer + shape.n_nextn):
        def named(name: str) -> str:
            return f"blk.{i}.{name}"

        yield named("attn_norm.weight"), (shape.n_embd,), "norm"
        yield named("post_attention_norm.weight"), (shape.n_embd,), "norm"
        if i >= shape.n_layer:
            yield named("nextn.eh_proj.weight"), (shape.n_embd, 2 * shape.n_embd), "token alone" if shape.drafts_often_right else "matrix"
            yield named("nextn.enorm.weight"), (shape.n_embd,), "norm"
            yield named("nextn.hnorm.weight"), (shape.n_embd,), "norm"
        if (i + 1) % shape.interval == 0 or i >= shape.n_layer:
            yield named("attn_q.weight"), (2 * shape.head * shape.n_head, shape.n_embd), "matrix"
            yield named("attn_k.weight"), (shape.head * shape.n_head_kv, shape.n_embd), "matrix"
            yield named("attn_v.weight"), (shape.head * shape.n_head_kv, shape.n_embd), "matrix"
            yield named("attn_output.weight"), (shape.n_embd, shape.head * shape.n_head), "output"
            yield named("attn_q_norm.weight"), (shape.head,), "head norm"
            yield named("attn_k_norm.weight"), (shape.head,), "head norm"
        else:
            yield named("attn_qkv.weight"), (mixed, shape.n_embd), "matrix"
            yield named("attn_gate.weight"), (value, shape.n_embd), "matrix"
            yield named("ssm_conv1d.weight"), (mixed, shape.conv), "conv"
            yield named("ssm_dt.bias"), (shape.v_heads,), "dt"
            yield named("ssm_a"), (shape.v_heads,), "decay"
            yield named("ssm_beta.weight"), (shape.v_heads, shape.n_embd), "f32"
            yield named("ssm_alpha.weight"), (shape.v_heads, shape.n_embd), "f32"
            yield named("ssm_norm.weight"), (shape.state,), "norm"
            yield named("ssm_out.weight"), (shape.n_embd, value), "output"
        if shape.arch == "qwen35moe":
            yield named("ffn_gate_inp.weight"), (shape.n_expert, shape.n_embd), "router"
            yield named("ffn_gate_exps.weight"), (shape.n_expert, shape.n_ff_expert, shape.n_embd), "matrix"
            yield named("ffn_up_exps.weight"), (shape.n_expert, shape.n_ff_expert, shape.n_embd), "matrix"
            yield named("ffn_down_exps.weight"), (shape.n_expert, shape.n_embd, shape.n_ff_expert), "output"
            yield named("ffn_gate_inp_shexp.weight"), (shape.n_embd,), "f32"
            yield named("ffn_gate_shexp.weight"), (shape.n_ff_shared, shape.n_embd), "matrix"
            yield named("ffn_up_shexp.weight"), (shape.n_ff_shared, shape.n_embd), "matrix"
            yield named("ffn_down_shexp.weight"), (shape.n_embd, shape.n_ff_shared), "output"
        else:
            yield named("ffn_gate.weight"), (shape.n_ff, shape.n_embd), "matrix"
            yield named("ffn_up.weight"), (shape.n_ff, shape.n_embd), "matrix"
            yield named("ffn_down.weight"), (shape.n_embd, shape.n_ff), "output"


def values(name: str, shape: Tuple[int, ...], kind: str, seed: int) -> np.ndarray:
    """A tensor's random values, the same for every type: rows of norm 1 or so, decays and steps as trained models have them."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if kind == "norm":
        return (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32)
    if kind == "embedding":  # as large as what the layers add to it
        return rng.standard_normal(shape).astype(np.float32)
    if kind == "large embedding":
        return (LARGE * rng.standard_normal(shape)).astype(np.float32)
    if kind == "head norm":  # scores with a deviation of 2, not 16: a soft maximum that hangs on one key has no use for precision
        return (0.35 * (1 + 0.1 * rng.standard_normal(shape))).astype(np.float32)
    if kind == "decay":  # -exp(A_log)
        return -rng.uniform(0.2, 8, shape).astype(np.float32)
    if kind == "dt":
        return rng.uniform(-4, 1, shape).astype(np.float32)
    if kind == "token alone":  # of the pair (embedding, hidden state)
        return LARGE * np.eye(*shape, dtype=np.float32)
    if kind == "conv":
        return (0.5 * rng.standard_normal(shape)).astype(np.float32)
    scale = SCALE.get(kind, 1)
    return (scale / np.sqrt(shape[-1]) * rng.standard_normal(shape)).astype(np.float32)


def write(path: pathlib.Path, shape: Shape, kind: str, seed: int = 1, text: bool = False) -> None:
    """Writes the toy with its matrices in the type of that name (ggml's: "q4_K", "iq2_xs" ...). text: it reads text, and writes nothing
    but printable ASCII; at least 354 tokens."""
    writer = gguf.GGUFWriter(path, shape.arch)
    add_metadata(writer, shape, text)
    for name, dimensions, role in tensors(shape):
        data = values(name, dimensions, role, seed)
        if text and name == "output.weight":
            data[:FIRST_CHARACTER] = 0  # never the likeliest of so many
        if role in QUANTIZED:
            writer.add_tensor(name, quantize(data, kind), raw_dtype=file_type(kind))
        else:
            writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def file_type(kind: str) -> int:
    """The number of a type in a file. gguf is told of types younger than itself."""
    number = TYPES[kind]
    gguf.GGML_QUANT_SIZES.setdefault(number, (lib.ggml_blck_size(number), lib.ggml_type_size(number)))
    return number


def add_metadata(writer: gguf.GGUFWriter, shape: Shape, text: bool = False) -> None:
    """The keys that llama.cpp needs to load a model of this shape."""
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer + shape.n_nextn)
    if shape.n_nextn:
        writer.add_nextn_predict_layers(shape.n_nextn)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(shape.rotated)
    writer.add_array(f"{shape.arch}.rope.dimension_sections", list(shape.sections))
    writer.add_rope_freq_base(1e7)
    writer.add_uint32(f"{shape.arch}.full_attention_interval", shape.interval)
    writer.add_ssm_conv_kernel(shape.conv)
    writer.add_ssm_inner_size(shape.state * shape.v_heads)
    writer.add_ssm_state_size(shape.state)
    writer.add_ssm_time_step_rank(shape.v_heads)
    writer.add_ssm_group_count(shape.k_heads)
    if shape.arch == "qwen35moe":
        writer.add_expert_count(shape.n_expert)
        writer.add_expert_used_count(shape.n_used)
        writer.add_expert_feed_forward_length(shape.n_ff_expert)
        writer.add_expert_shared_feed_forward_length(shape.n_ff_shared)
    (add_characters if text else add_vocabulary)(writer, shape.n_vocab)


def add_vocabulary(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """Tokens without text: llama.cpp has a tokenizer for such files."""
    writer.add_vocab_size(n_vocab)
    writer.add_tokenizer_model("test")
    writer.add_token_list([f"tok_{i}" for i in range(n_vocab)])
    writer.add_token_scores([0.0] * n_vocab)
    writer.add_bos_token_id(1)


CONTROL = ["<unk>", "<s>", "</s>"]
FIRST_CHARACTER = len(CONTROL) + 256
PRINTABLE = [chr(code) for code in range(32, 127)]
CHAT = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"


def add_characters(writer: gguf.GGUFWriter, n_vocab: int) -> None:
    """A token for each byte, for each printable character of ASCII, and for pairs of letters, as many as there is room for."""
    pairs = [a + b for a in "etaoinshr" for b in "etaoinshr"][:n_vocab - FIRST_CHARACTER - len(PRINTABLE)]
    tokens = [*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256)), *PRINTABLE, *pairs]
    tokens[tokens.index(" ")] = "\u2581"
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
    writer.add_vocab_size(n_vocab)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(len(tokens))])
    writer.add_token_types([*kinds, *([gguf.TokenType.NORMAL] * (len(tokens) - len(kinds)))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT)
