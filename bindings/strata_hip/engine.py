"""A llama.cpp model and contexts of it, through llama_cpp's low-level interface: what `bench`, `profile` and `verify` run."""
import ctypes
import os
from typing import Any, List, Optional, Sequence, Tuple

import llama_cpp
import numpy as np

from . import llama, log, plugin
from .errors import DeviceError, StrataError
from .llama_values import CACHE_TYPES, default_threads

ALL_LAYERS = 0x7FFFFFFF


class Model:
    """A loaded model.

    Args:
        path: a GGUF file.
        devices: a NULL-terminated array of ggml devices (llama.device_list); None: llama.cpp's choice.
        n_gpu_layers: layers on the device, the output being the last; negative: all.
        **parameters: other fields of llama_model_params.

    Raises what Llama() raises.
    """

    def __init__(self, path: str, devices: Optional[ctypes.Array], n_gpu_layers: int = -1, **parameters: Any):
        llama.check_model_file(path)
        self.path, self.n_gpu_layers = path, n_gpu_layers
        self._kept = (devices, parameters)  # llama.cpp keeps pointers into them
        wanted = llama_cpp.llama_model_default_params()
        wanted.n_gpu_layers = ALL_LAYERS if n_gpu_layers < 0 else n_gpu_layers
        if devices is not None:
            wanted.devices = ctypes.cast(devices, ctypes.c_void_p)
        for name, value in parameters.items():
            setattr(wanted, name, value)
        with log.captured() as messages:
            self.handle: Optional[int] = llama_cpp.llama_model_load_from_file(os.fsencode(path), wanted)
            if not self.handle:
                raise llama.load_error(path, f"failed to load model from file: {path}", messages.reason())
        self.vocab = llama_cpp.llama_model_get_vocab(self.handle)
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.n_layer: int = llama_cpp.llama_model_n_layer(self.handle)

    @property
    def description(self) -> str:
        """As "llama 256M Q4_1"."""
        text = ctypes.create_string_buffer(128)
        llama_cpp.llama_model_desc(self.handle, text, len(text))
        return text.value.decode("utf-8", "replace")

    def tokens(self, text: bytes) -> List[int]:
        """The text's tokens, led by the token that begins a text if the model has one. Raises StrataError if there are none."""
        buffer = (llama_cpp.llama_token * (len(text) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, text, len(text), buffer, len(buffer), True, False)
        if count <= 0:
            raise StrataError(f"{self.path}: the text has no tokens in this model's vocabulary")
        return list(buffer[:count])

    def close(self) -> None:
        """Frees the model; its contexts must be closed."""
        if self.handle:
            llama_cpp.llama_model_free(self.handle)
        self.handle = None


class Context:
    """A context of a model.

    Args:
        model: must stay open for as long as this is.
        **parameters: fields of llama_context_params; type_k and type_v by their names.

    Raises what Llama() raises. Everything that computes raises DeviceError when the device failed, StrataError for a model without logits.
    """

    def __init__(self, model: Model, **parameters: Any):
        self.model = model
        wanted = llama_cpp.llama_context_default_params()
        wanted.n_threads = wanted.n_threads_batch = default_threads()
        for name, value in parameters.items():
            setattr(wanted, name, CACHE_TYPES[value] if name in ("type_k", "type_v") else value)
        with log.captured() as messages:
            self.ctx: Any = llama_cpp.llama_init_from_model(model.handle, wanted)
            if not self.ctx:
                raise llama.load_error(model.path, "failed to create the context", messages.reason())
        self.splits = messages.splits  # graph splits of a batch, at most
        self.flash_attn = wanted.flash_attn_type == 1 if messages.flash_attn is None else messages.flash_attn
        self.memory = llama_cpp.llama_get_memory(self.ctx)
        self.n_batch = int(llama_cpp.llama_n_batch(self.ctx))
        self._batch: Optional[llama_cpp.llama_batch] = None

    def decode(self, rows: Sequence[Tuple[int, int, int]]) -> np.ndarray:
        """Decodes at most n_batch rows (token, position, sequence) and returns their logits, [rows, vocabulary] f32. Not a copy:
        valid until the next call."""
        if self._batch is None:
            self._batch = llama_cpp.llama_batch_init(self.n_batch, 0, 1)
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = 1
        with log.captured() as messages, plugin.failures_raise(self.ctx):
            self._run(batch, messages)
        logits = llama_cpp.llama_get_logits(self.ctx)
        if not logits:
            raise StrataError(f"{self.model.path} gives no logits: it does not continue text")
        return np.ctypeslib.as_array(logits, (len(rows), self.model.n_vocab))

    def append(self, tokens: np.ndarray) -> None:
        """Decodes tokens (int32) that follow what sequence 0 holds, at most n_batch; only the last one's logits are computed. Does not wait
        for the device: the caller's plugin.failures_raise does."""
        pointer = tokens.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token))
        self._run(llama_cpp.llama_batch_get_one(pointer, len(tokens)))

    def _run(self, batch: llama_cpp.llama_batch, messages: Optional[log.Log] = None) -> None:
        code = llama_cpp.llama_decode(self.ctx, batch)
        if code != 0:
            raise DeviceError(f"llama_decode returned {code}" + (f": {messages.reason()}" if messages else ""))

    def clear(self) -> None:
        """Forgets all sequences."""
        llama_cpp.llama_memory_clear(self.memory, False)

    def state(self) -> ctypes.Array:
        """Sequence 0 as it stands, to come back to."""
        size = llama_cpp.llama_state_seq_get_size(self.ctx, 0)
        buffer = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self.ctx, buffer, size, 0)
        return buffer

    def restore(self, state: ctypes.Array) -> bool:
        """Takes sequence 0 from what state() of a context like this one returned; False if it does not fit."""
        return bool(llama_cpp.llama_state_seq_set_data(self.ctx, state, len(state), 0) != 0)

    def close(self) -> None:
        """Frees the context."""
        if self._batch is not None:
            llama_cpp.llama_batch_free(self._batch)
        self._batch = None
        if self.ctx:
            llama_cpp.llama_free(self.ctx)
        self.ctx = None
