"""`strata-hip bench`: llama-bench's tests, flags and tables, on llama_cpp's low-level interface.

A test is a prompt of random tokens (pp), generated tokens fed one by one (tg), or both, after `depth` tokens of context.
Like llama-bench it warms up first, repeats, and reports mean and standard deviation. What the emulator ran is labelled so:
those numbers say how fast the emulator is and nothing of the chip."""
import ctypes
import dataclasses
import itertools
import os
import random
import re
import statistics
import sys
import time
from typing import Any, Iterator, List, Optional, Sequence, TextIO

import llama_cpp

from . import __version__, bench_tables, llama, log, plugin
from .errors import DeviceError

# enum ggml_type by the names llama-bench takes
CACHE_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "iq4_nl": 20}
FLASH_ATTN = {"auto": -1, "off": 0, "on": 1, "0": 0, "1": 1, "-1": -1}
RANGE = re.compile(r"(\d+)(?:-(\d+)(?:([+*])(\d+))?)?(?:,|$)")


def int_range(text: str) -> List[int]:
    """"512", "1,2,4", "first-last", "first-last+step", "first-last*mult" as llama-bench reads them. Raises ValueError."""
    values: List[int] = []
    at = 0
    while at < len(text):
        found = RANGE.match(text, at)
        if not found:
            raise ValueError(f"{text!r} is no list of numbers or ranges")
        first, last = int(found[1]), int(found[2] or found[1])
        operator, step = found[3] or "+", int(found[4] or 1)
        value = first
        while value <= last:
            values.append(value)
            following = value + step if operator == "+" else value * step
            if following <= value:
                raise ValueError(f"{text!r}: the range does not grow")
            value = following
        at = found.end()
    if not values:
        raise ValueError(f"{text!r} names no value")
    return values


def layers(text: str) -> List[int]:
    """A list of layer counts, where -1 is all."""
    return [value for part in text.split(",") for value in ([-1] if part == "-1" else int_range(part))]


def pair(text: str) -> tuple:
    """"512,128" -> (512, 128)."""
    parts = re.fullmatch(r"(\d+),(\d+)", text)
    if not parts:
        raise ValueError(f"{text!r} is no pair of numbers")
    return int(parts[1]), int(parts[2])


@dataclasses.dataclass
class Options:
    """What was asked for; every list is one dimension of the tests."""
    model: List[str]
    n_prompt: List[int]
    n_gen: List[int]
    pg: List[tuple]
    n_depth: List[int]
    n_batch: List[int]
    n_ubatch: List[int]
    type_k: List[str]
    type_v: List[str]
    n_threads: List[int]
    n_gpu_layers: List[int]
    flash_attn: List[int]
    repetitions: int = 5
    warmup: bool = True
    backend: str = "strata-hip"
    runtime: Optional[str] = None

    def shows_threads(self) -> bool:
        """Whether the number of threads is a column even where a GPU computes."""
        return self.n_threads != [default_threads()]


@dataclasses.dataclass
class Case:
    """One row of the table."""
    model: str
    n_gpu_layers: int
    n_batch: int
    n_ubatch: int
    type_k: str
    type_v: str
    flash_attn: int
    n_threads: int
    n_depth: int
    n_prompt: int
    n_gen: int


def cases(options: Options) -> Iterator[Case]:
    """The tests in llama-bench's order, which loads each model as seldom as possible."""
    work = [(n, 0) for n in options.n_prompt if n] + [(0, n) for n in options.n_gen if n] + \
           [(p, g) for p, g in options.pg if p or g]
    for values in itertools.product(options.model, options.n_gpu_layers, options.n_batch, options.n_ubatch, options.type_k,
                                    options.type_v, options.flash_attn, options.n_threads, options.n_depth):
        for n_prompt, n_gen in work:
            yield Case(*values, n_prompt, n_gen)


class Context:
    """A llama.cpp model and, one at a time, a context made for a case."""

    def __init__(self, backend: str, runtime: Optional[str]):
        self.backend = backend
        self.devices = llama.device_list(backend, runtime)
        self.model = None
        self.ctx = None
        self.loaded: Optional[tuple] = None

    def prepare(self, case: Case) -> None:
        """Loads the model if the last case had another one, and makes the context. Raises as Llama() does."""
        self.free_context()
        with log.captured() as messages:
            if self.loaded != (case.model, case.n_gpu_layers):
                self.free()
                llama.check_model_file(case.model)
                parameters = llama_cpp.llama_model_default_params()
                parameters.devices = ctypes.cast(self.devices, ctypes.c_void_p)
                parameters.n_gpu_layers = 0x7FFFFFFF if case.n_gpu_layers < 0 else case.n_gpu_layers
                self.model = llama_cpp.llama_model_load_from_file(case.model.encode(), parameters)
                if not self.model:
                    self.model = None
                    raise llama.load_error(case.model, f"failed to load model from file: {case.model}", messages.reason())
                self.loaded = (case.model, case.n_gpu_layers)
            parameters = llama_cpp.llama_context_default_params()
            parameters.n_ctx = case.n_prompt + case.n_gen + case.n_depth
            parameters.n_batch, parameters.n_ubatch = case.n_batch, case.n_ubatch
            parameters.type_k, parameters.type_v = CACHE_TYPES[case.type_k], CACHE_TYPES[case.type_v]
            parameters.flash_attn_type = case.flash_attn
            parameters.n_threads = parameters.n_threads_batch = case.n_threads
            parameters.swa_full = False
            self.ctx = llama_cpp.llama_init_from_model(self.model, parameters)
            if not self.ctx:
                self.ctx = None
                raise llama.load_error(case.model, "failed to create the context", messages.reason())
        if self.backend == "strata-hip":
            llama.warn_of_cpu_work(self.model, case.n_gpu_layers, messages.splits)
        self.memory = llama_cpp.llama_get_memory(self.ctx)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(self.memory, False)

    def state(self) -> ctypes.Array:
        """The sequence as it stands, to come back to."""
        size = llama_cpp.llama_state_seq_get_size(self.ctx, 0)
        buffer = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self.ctx, buffer, size, 0)
        return buffer

    def restore(self, state: ctypes.Array) -> bool:
        return llama_cpp.llama_state_seq_set_data(self.ctx, state, len(state), 0) != 0

    def prompt(self, n: int, n_batch: int) -> None:
        """Decodes `n` random tokens in batches. Raises DeviceError."""
        with plugin.failures_raise(self.ctx):
            for start in range(0, n, n_batch):
                tokens = [self._token(first=start + i == 0) for i in range(min(n_batch, n - start))]
                self._decode(tokens)

    def generate(self, n: int) -> None:
        """Decodes `n` random tokens one by one, waiting for each. Raises DeviceError."""
        for i in range(n):
            with plugin.failures_raise(self.ctx):
                self._decode([self._token(first=i == 0)])

    def _token(self, first: bool) -> int:
        if first and llama_cpp.llama_vocab_get_add_bos(self.vocab):
            return llama_cpp.llama_vocab_bos(self.vocab)
        return random.randrange(llama_cpp.llama_vocab_n_tokens(self.vocab))

    def _decode(self, tokens: Sequence[int]) -> None:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        code = llama_cpp.llama_decode(self.ctx, llama_cpp.llama_batch_get_one(array, len(tokens)))
        if code != 0:
            raise DeviceError(f"llama_decode returned {code}")

    def free_context(self) -> None:
        if self.ctx:
            llama_cpp.llama_free(self.ctx)
        self.ctx = None

    def free(self) -> None:
        self.free_context()
        if self.model:
            llama_cpp.llama_model_free(self.model)
        self.model = self.loaded = None


def measure(context: Context, case: Case, options: Options, tick) -> bench_tables.Row:
    """Runs one case; `tick` is called after every run, the warm-up included."""
    context.prepare(case)
    if options.warmup:
        context.clear()
        context.prompt(case.n_prompt, case.n_batch)
        if case.n_gen:
            context.generate(1)
        tick()
    samples: List[int] = []
    state = None
    for _ in range(options.repetitions):
        context.clear()
        if case.n_depth and not (state and context.restore(state)):
            context.prompt(case.n_depth, case.n_batch)
            state = context.state()
        start = time.perf_counter_ns()
        context.prompt(case.n_prompt, case.n_batch)
        context.generate(case.n_gen)
        samples.append(time.perf_counter_ns() - start)
        tick()
    return row(context, case, samples)


def row(context: Context, case: Case, samples: List[int]) -> bench_tables.Row:
    """llama-bench's fields for a measured case."""
    description = ctypes.create_string_buffer(128)
    llama_cpp.llama_model_desc(context.model, description, len(description))
    per_second = [1e9 * (case.n_prompt + case.n_gen) / nanoseconds for nanoseconds in samples]
    backends, gpu_info = backend_names(context.backend)
    values = dict(
        build_commit=f"strata-hip {__version__}, llama-cpp-python {llama_cpp.__version__}", build_number=0,
        cpu_info=cpu_info(), gpu_info=gpu_info, backends=backends,
        model_filename=case.model, model_type=description.value.decode(),
        model_size=llama_cpp.llama_model_size(context.model), model_n_params=llama_cpp.llama_model_n_params(context.model),
        n_batch=case.n_batch, n_ubatch=case.n_ubatch, n_threads=case.n_threads, cpu_mask="0x0", cpu_strict=0, poll=50,
        type_k=case.type_k, type_v=case.type_v, n_gpu_layers=case.n_gpu_layers, n_cpu_moe=0, split_mode="layer", main_gpu=0,
        no_kv_offload=0, flash_attn=case.flash_attn, devices=device_names(context.backend), tensor_split="0.00",
        tensor_buft_overrides="none", load_mode="auto", lazy_mode="auto", embeddings=0, no_op_offload=0, no_host=0, repack=1,
        fit_target=0, fit_min_ctx=0, n_prompt=case.n_prompt, n_gen=case.n_gen, n_depth=case.n_depth,
        test_time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        avg_ns=round(statistics.mean(samples)), stddev_ns=round(deviation(samples)),
        avg_ts=statistics.mean(per_second), stddev_ts=deviation(per_second))
    return bench_tables.Row(values, samples, per_second)


def deviation(values: Sequence[float]) -> float:
    """The sample standard deviation; 0 for a single value, as llama-bench has it."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def backend_names(backend: str) -> tuple:
    """(backends, gpu_info) of the table."""
    ours = plugin.loaded()
    if backend == "cpu" or ours is None:
        return "CPU", ""
    base = plugin.ggml_base()
    name = base.ggml_backend_reg_name(ours.registry).decode()
    gpus = ", ".join(base.ggml_backend_dev_description(device).decode() for device in ours.devices())
    emulated = ours.runtime == "emulator"
    return (f"{name} (emulated)" if emulated else name), gpus


def device_names(backend: str) -> str:
    ours = plugin.loaded()
    if backend == "cpu" or ours is None:
        return "auto"
    return "/".join(plugin.ggml_base().ggml_backend_dev_name(device).decode() for device in ours.devices())


def cpu_info() -> str:
    """The CPU's name."""
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return ""


def default_threads() -> int:
    """The CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(options: Options, form: str, out: TextIO) -> None:
    """Runs all cases and prints each row as it is done; a progress bar on stderr if that is a terminal."""
    # llama.cpp's log is no part of a table; what goes wrong comes back in exceptions.
    with log.captured(quiet=True):
        _run(options, form, out)


def _run(options: Options, form: str, out: TextIO) -> None:
    todo = list(cases(options))
    for model in options.model:
        llama.check_model_file(model)
    context = Context(options.backend, options.runtime)
    printer = bench_tables.printer(form, out, options, backend_names(options.backend)[0])
    printer.header()
    try:
        with progress(len(todo) * (options.repetitions + options.warmup)) as bar:
            for case in todo:
                bar.set_postfix_str(bench_tables.test_name(case.n_prompt, case.n_gen, case.n_depth))
                printed = measure(context, case, options, bar.update)
                bar.clear()
                printer.row(printed)
                out.flush()
    finally:
        context.free()
    printer.footer()


def progress(total: int) -> Any:
    """A tqdm bar that shows only on a terminal."""
    import tqdm
    return tqdm.tqdm(total=total, unit="run", leave=False, file=sys.stderr, disable=not sys.stderr.isatty())
