"""The drop-in Llama class."""
import contextlib
import ctypes
import functools
import os
import re
import warnings
from typing import Any, Callable, Dict, Iterator, Optional, Sequence

import llama_cpp

from . import log, plugin
from .errors import CpuWorkWarning, DeviceError, DeviceMemoryError, ModelFileError, ModelNotFoundError

_GPU, _IGPU = 1, 2  # enum ggml_backend_dev_type


class Llama(llama_cpp.Llama):
    """llama_cpp.Llama on this project's backend. All of its arguments and methods work as they do there.

    Args:
        model_path: a GGUF file.
        backend: "strata-hip" (default): the model computes on our device, all layers unless `n_gpu_layers` says otherwise.
            None: stock llama_cpp, as if this package had not been loaded. "cpu": stock and no GPU whatsoever.
        device: "hip", "emulator", or None for what $STRATA_RUNTIME says and otherwise a real GPU. A process has one.
        **kwargs: as for llama_cpp.Llama.

    Raises:
        DeviceError (a RuntimeError): no supported GPU and no emulator asked for; or the device failed.
        DeviceMemoryError (also a MemoryError): model or context do not fit; the message names the sizes.
        ModelNotFoundError (FileNotFoundError and ValueError): no such file.
        ModelFileError (a ValueError): not a GGUF file, truncated, or of a kind that llama.cpp does not know.

    Warns with CpuWorkWarning if all layers were given to the device and part of them computes on the CPU all the same.
    """

    _stack = contextlib.ExitStack()  # what the base class's destructor closes if the arguments do not even fit the constructor

    def __init__(self, model_path: str, *, backend: Optional[str] = "strata-hip", device: Optional[str] = None, **kwargs: Any):
        self._stack = contextlib.ExitStack()  # the base class closes it, also when what follows fails
        if backend not in ("strata-hip", "cpu", None):
            raise ValueError(f"backend={backend!r}: expected 'strata-hip', 'cpu' or None")
        self._backend, self._device = backend, device
        model_path = os.fspath(model_path)
        check_model_file(model_path)
        self._device_list = device_list(backend, device)
        if backend == "strata-hip":
            kwargs.setdefault("n_gpu_layers", -1)
        elif backend == "cpu":
            kwargs["n_gpu_layers"] = 0
        with log.captured() as messages:
            try:
                super().__init__(model_path, **kwargs)
            except ValueError as error:
                raise load_error(model_path, str(error), messages.reason()) from None
        self._n_ctx = min(self._n_ctx, len(self.input_ids))  # llama.cpp rounds n_ctx up; the base class has room for what was asked for
        if backend == "strata-hip" and kwargs.get("offload_kqv", True):
            warn_of_cpu_work(self._model.model, kwargs["n_gpu_layers"], messages.splits)

    @property
    def model_params(self) -> llama_cpp.llama_model_params:
        """As in llama_cpp.Llama, with the chosen devices filled in: the base class has no argument for them."""
        return self._model_params

    @model_params.setter
    def model_params(self, value: llama_cpp.llama_model_params) -> None:
        if self._device_list is not None:
            value.devices = ctypes.cast(self._device_list, ctypes.c_void_p)  # type: ignore[assignment]  # declared as an array
        self._model_params = value

    def eval(self, tokens: Sequence[int]) -> None:
        """As in llama_cpp.Llama. Raises ValueError for more tokens than fit the context."""
        needed = self.n_tokens + len(tokens)
        if needed > self._n_ctx:
            raise ValueError(f"Requested tokens ({needed}) exceed context window of {self._n_ctx}")
        super().eval(tokens)

    def _create_completion(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """As in llama_cpp.Llama, which names the rounded size of the context where a prompt does not fit."""
        try:
            yield from super()._create_completion(*args, **kwargs)
        except ValueError as error:
            text, told = re.subn(r"(exceed context window of) \d+$", rf"\1 {self._n_ctx}", str(error))
            if not told:
                raise
            raise ValueError(text) from None

    def __getstate__(self) -> Dict[str, Any]:
        return dict(super().__getstate__(), backend=self._backend, device=self._device)


def device_list(backend: Optional[str], device: Optional[str]) -> Optional[ctypes.Array]:
    """llama_model_params.devices for a backend, a NULL-terminated array; None leaves the choice to llama.cpp.

    Loads the plugin for "strata-hip". Raises DeviceError."""
    if backend == "strata-hip":
        devices = plugin.load(device).devices()
    elif backend == "cpu":
        devices = []
    elif (ours := plugin.loaded()) is None:
        return None
    else:
        base = plugin.ggml_base()
        gpus = [gpu for gpu in plugin.all_devices() if base.ggml_backend_dev_type(gpu) in (_GPU, _IGPU)]
        devices = [gpu for gpu in gpus if gpu not in ours.devices()]
    return (ctypes.c_void_p * (len(devices) + 1))(*devices, None)


def check_model_file(path: str) -> None:
    """Raises ModelNotFoundError or ModelFileError for what is plainly no GGUF file."""
    if not os.path.exists(path):
        raise ModelNotFoundError(f"Model path does not exist: {path}")
    if os.path.isdir(path):
        raise ModelFileError(f"{path} is a folder, not a GGUF file")
    with open(path, "rb") as file:
        head = file.read(24)
    if head[:4] != b"GGUF":
        raise ModelFileError(f"{path} is not a GGUF file: it starts with {head[:4]!r}")
    if len(head) < 24:
        raise ModelFileError(f"{path} is truncated: {len(head)} bytes are less than a GGUF header")


def warn_of_cpu_work(model: Any, n_gpu_layers: int, splits: int) -> None:
    """Warns if all layers of a model were given to the device and a context of it needs more than the two graph splits of one
    that computes there: the CPU looks up the tokens' embeddings, the device does the rest."""
    if splits > 2 and (n_gpu_layers < 0 or n_gpu_layers > llama_cpp.llama_model_n_layer(model)):
        warnings.warn(f"part of the model computes on the CPU: {splits} graph splits instead of 2, since the device has no kernel for "
                      "some of its operations or for this type of KV cache (GGML_SCHED_DEBUG=2 and verbose=True show which)",
                      CpuWorkWarning, stacklevel=3)


def load_error(path: str, error: str, reason: str) -> Exception:
    """The exception for a model or context that llama.cpp could not make, from what it logged."""
    ours = plugin.loaded()
    device_reason = ours.last_error if ours else ""
    if device_reason.partition("\n")[0] not in reason:
        device_reason = ""  # of an earlier failure
    if "out of memory" in device_reason.lower() or (not device_reason and "failed to allocate" in reason):
        return DeviceMemoryError(f"{path}: {device_reason or reason}")
    if device_reason or "context" in error:
        return DeviceError(f"{error}: {device_reason or reason}")
    return ModelFileError(f"{error}: {reason}")


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a method raise DeviceError after close(), where llama.cpp would use freed memory."""
    @functools.wraps(method)
    def wrapped(self: Llama, *args: Any, **kwargs: Any) -> Any:
        if self._model.model is None:
            raise DeviceError("this Llama has been closed")
        return method(self, *args, **kwargs)
    return wrapped


def _device_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a method that decodes raise DeviceError when the device fails.

    Work runs behind llama_decode's back, and waiting for it returns nothing: a failure that comes late shows only in the
    plugin's count of errors."""
    @functools.wraps(method)
    def wrapped(self: Llama, *args: Any, **kwargs: Any) -> Any:
        if self._backend != "strata-hip":
            return method(self, *args, **kwargs)
        with plugin.failures_raise(self._ctx.ctx):
            return method(self, *args, **kwargs)
    return wrapped


for _name in ("eval", "embed"):
    setattr(Llama, _name, _checked(_device_errors(getattr(Llama, _name))))
for _name in ("tokenize", "detokenize", "reset", "save_state", "load_state"):
    setattr(Llama, _name, _checked(getattr(Llama, _name)))
