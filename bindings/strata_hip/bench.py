"""`strata-hip bench`: llama-bench's tests, flags and tables, on llama_cpp's low-level interface.

A test is a prompt of random tokens (pp), generated tokens fed one by one (tg), or both, after `depth` tokens of context.
Like llama-bench it warms up first, repeats, and reports mean and standard deviation. What the emulator ran is labelled so:
those numbers say how fast the emulator is and nothing of the chip."""
import ctypes
import dataclasses
import os
import statistics
import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, TextIO

import llama_cpp
import numpy as np

from . import __version__, bench_tables, devices, engine, llama, log, pictures, plugin, provenance
from .bench_options import Case, Options, cases
from .errors import StrataError
from .llama_values import LAZY_MODES, LOAD_MODES, NICENESS, NUMA, SPLIT_MODES

# The fields of a case that make a model; a change of any loads it anew.
MODEL_FIELDS = ("model", "n_gpu_layers", "n_cpu_moe", "split_mode", "load_mode", "lazy_mode", "main_gpu", "devices", "tensor_split",
                "tensor_buft_overrides", "no_host", "repack")
# As llama.cpp's programs name the experts' tensors of a layer (common.h)
EXPERTS = r"blk\.{}\.ffn_(up|down|gate|gate_up)_(ch|)exps"


class _Override(ctypes.Structure):  # struct llama_model_tensor_buft_override
    _fields_ = [("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p)]


class Context:
    """A llama.cpp model and, one at a time, a context made for a case."""

    def __init__(self, backend: str, runtime: Optional[str], priority: int = 0):
        """backend: "strata-hip" or "cpu"; runtime: as for plugin.load(); priority: of the CPU's threads. Raises DeviceError."""
        self.backend, self.priority = backend, priority
        found = llama.device_list(backend, runtime)
        assert found is not None
        self.devices = found
        self.model: Optional[engine.Model] = None
        self.context: Optional[engine.Context] = None
        self._threads: Optional[devices.ThreadPool] = None
        self._loaded: Optional[Dict[str, Any]] = None
        # The same tokens for every case and every run: llama-bench's rand() has no seed either.
        self._random = np.random.default_rng(0)

    def prepare(self, case: Case) -> None:
        """Loads the model if the last case had another one, and makes the context. Raises as Llama() does."""
        self._free_context()
        wanted = {field: getattr(case, field) for field in MODEL_FIELDS}
        if self._loaded != wanted:
            self.free()
            self.model = self._load(case)
            self._loaded = wanted
        assert self.model
        self.context = engine.Context(
            self.model, n_ctx=case.n_prompt + case.n_gen + case.n_depth, n_batch=case.n_batch, n_ubatch=case.n_ubatch, type_k=case.type_k,
            type_v=case.type_v, offload_kqv=not case.no_kv_offload, flash_attn_type=case.flash_attn, embeddings=bool(case.embeddings),
            op_offload=not case.no_op_offload, swa_full=False, n_threads=case.n_threads, n_threads_batch=case.n_threads)
        self._threads = devices.ThreadPool(case.n_threads, int(case.cpu_mask, 16), bool(case.cpu_strict), case.poll, self.priority)
        self._threads.attach(self.context.ctx)
        elsewhere = case.no_kv_offload or case.n_cpu_moe or case.tensor_buft_overrides or case.devices == "none"
        if self.backend == "strata-hip" and not elsewhere:
            llama.warn_of_cpu_work(self.model.handle, case.n_gpu_layers, self.context.splits)

    def _load(self, case: Case) -> engine.Model:
        split = (ctypes.c_float * llama_cpp.llama_max_devices())(*case.tensor_split)
        overrides = self.overrides(case)
        return engine.Model(
            case.model, self.device_array(case.devices), case.n_gpu_layers, split_mode=SPLIT_MODES[case.split_mode],
            load_mode=LOAD_MODES[case.load_mode], lazy_mode=LAZY_MODES[case.lazy_mode], main_gpu=case.main_gpu, tensor_split=split,
            tensor_buft_overrides=ctypes.cast(overrides, ctypes.c_void_p) if len(overrides) > 1 else None,
            no_host=bool(case.no_host), use_extra_bufts=bool(case.repack))

    def device_array(self, names: str) -> ctypes.Array:
        """llama_model_params.devices for -dev. Raises StrataError."""
        return self.devices if names == "auto" else devices.named(names)

    def overrides(self, case: Case) -> ctypes.Array:
        """llama_model_params.tensor_buft_overrides for -ot and -ncmoe, the last one empty. Raises StrataError."""
        # llama.cpp aborts where a device that takes no part is to hold weights.
        types = devices.buffer_types(self.device_array(case.devices))
        pairs = list(case.tensor_buft_overrides) + [(EXPERTS.format(i), "CPU") for i in range(case.n_cpu_moe)]
        for _, kind in pairs:
            if kind not in types:
                raise StrataError(f"--override-tensor: buffer type {kind!r} is none of {', '.join(types)}")
        return (_Override * (len(pairs) + 1))(*(_Override(pattern.encode(), types[kind]) for pattern, kind in pairs))

    @property
    def _ready(self) -> engine.Context:
        assert self.context, "prepare() first"
        return self.context

    def clear(self) -> None:
        """Forgets the context's tokens."""
        self._ready.clear()

    def state(self) -> ctypes.Array:
        """The sequence as it stands, to come back to."""
        return self._ready.state()

    def restore(self, state: ctypes.Array) -> bool:
        """Whether the sequence could be taken from what state() returned."""
        return self._ready.restore(state)

    def prompt(self, n: int, n_batch: int) -> None:
        """Decodes `n` random tokens in batches. Raises DeviceError."""
        with plugin.failures_raise(self._ready.ctx):
            for start in range(0, n, n_batch):
                self._ready.append(self._tokens(min(n_batch, n - start), first=start == 0))

    def generate(self, n: int) -> None:
        """Decodes `n` random tokens one by one, waiting for each. Raises DeviceError."""
        for i in range(n):
            with plugin.failures_raise(self._ready.ctx):
                self._ready.append(self._tokens(1, first=i == 0))

    def _tokens(self, n: int, first: bool) -> np.ndarray:
        assert self.model
        tokens = self._random.integers(self.model.n_vocab, size=n, dtype=np.int32)
        if first and llama_cpp.llama_vocab_get_add_bos(self.model.vocab):
            tokens[0] = llama_cpp.llama_vocab_bos(self.model.vocab)
        return tokens

    def _free_context(self) -> None:
        if self.context:
            self.context.close()
        if self._threads:
            self._threads.close()
        self.context = self._threads = None

    def free(self) -> None:
        """Frees context and model."""
        self._free_context()
        if self.model:
            self.model.close()
        self.model = self._loaded = None


class Progress:
    """A bar on stderr if that is a terminal; with --progress, a line for each run as llama-bench prints them."""

    def __init__(self, options: Options, todo: int):
        import tqdm
        self._lines, self._todo, self._case = options.progress, todo, 0
        self._bar = tqdm.tqdm(total=todo * (options.repetitions + options.warmup), unit="run", leave=False, file=sys.stderr,
                              disable=options.progress or not sys.stderr.isatty())

    def start(self, case: Case) -> None:
        self._case += 1
        self._bar.set_postfix_str(bench_tables.test_name(case.n_prompt, case.n_gen, case.n_depth))
        self.tell("starting")

    def tell(self, what: str) -> None:
        if self._lines:
            print(f"strata-hip bench: benchmark {self._case}/{self._todo}: {what}", file=sys.stderr, flush=True)

    def done(self) -> None:
        """One run is."""
        self._bar.update()

    def hide(self) -> None:
        """Makes room for a row of the table."""
        self._bar.clear()

    def close(self) -> None:
        self._bar.close()


def measure(context: Context, case: Case, options: Options, progress: Progress, depth: Dict[int, ctypes.Array]) -> List[int]:
    """Runs one case and returns each run's time [ns]. `depth` keeps the state at the last depth, which the next case may have too."""
    context.prepare(case)
    time.sleep(options.delay)
    if options.warmup:
        progress.tell("warmup run")
        context.prompt(case.n_prompt, case.n_batch)
        context.generate(min(case.n_gen, 1))
        progress.done()
    samples: List[int] = []
    for i in range(options.repetitions):
        context.clear()
        if case.n_depth and not (case.n_depth in depth and context.restore(depth[case.n_depth])):
            progress.tell(f"depth run {i + 1}/{options.repetitions}")
            context.prompt(case.n_depth, case.n_batch)
            depth.clear()
            depth[case.n_depth] = context.state()
        progress.tell(f"run {i + 1}/{options.repetitions}")
        start = time.perf_counter_ns()
        context.prompt(case.n_prompt, case.n_batch)
        context.generate(case.n_gen)
        samples.append(time.perf_counter_ns() - start)
        progress.done()
    return samples


def rates(n_tokens: int, samples_ns: Sequence[int]) -> Dict[str, Any]:
    """llama-bench's arithmetic: {"avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ts"} of runs of so many tokens."""
    per_second = [1e9 * n_tokens / nanoseconds for nanoseconds in samples_ns]
    return dict(avg_ns=sum(samples_ns) // len(samples_ns), stddev_ns=int(deviation(samples_ns)), avg_ts=statistics.fmean(per_second),
                stddev_ts=deviation(per_second), samples_ts=per_second)


def deviation(values: Sequence[float]) -> float:
    """The sample standard deviation; 0 for a single value, as llama-bench has it."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def row(context: Context, case: Case, samples_ns: List[int], origin: provenance.Provenance) -> bench_tables.Row:
    """A measured case in llama-bench's fields and ours."""
    assert context.model and context.context
    values = dataclasses.asdict(case)
    values.update(
        build_commit=f"strata-hip {__version__}, llama-cpp-python {llama_cpp.__version__}", build_number=0,
        cpu_info=provenance.cpu_name(), gpu_info=gpu_info(context.backend), backends=backend_name(context.backend),
        model_filename=values.pop("model"), model_type=context.model.description,
        model_size=llama_cpp.llama_model_size(context.model.handle), model_n_params=llama_cpp.llama_model_n_params(context.model.handle),
        devices=device_names(context.backend) if case.devices == "auto" else case.devices, tensor_split=split_text(case.tensor_split),
        tensor_buft_overrides=";".join(f"{pattern}={kind}" for pattern, kind in case.tensor_buft_overrides) or "none",
        fit_target=0, fit_min_ctx=0, test_time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        flash_attn_used=context.context.flash_attn, **dataclasses.asdict(origin))
    measured = rates(case.n_prompt + case.n_gen, samples_ns)
    samples_ts = measured.pop("samples_ts")
    return bench_tables.Row({**values, **measured}, samples_ns, samples_ts)


def split_text(shares: Sequence[float]) -> str:
    """(3, 1) -> "3.00/1.00", without the zeros at the end."""
    last = max((i for i, share in enumerate(shares) if share > 0), default=0)
    return "/".join(f"{share:.2f}" for share in shares[:last + 1])


def backend_name(backend: str) -> str:
    """The column `backends`."""
    ours = plugin.loaded()
    if backend == "cpu" or ours is None:
        return "CPU"
    name = str(plugin.ggml_base().ggml_backend_reg_name(ours.registry).decode())
    return f"{name} (emulated)" if ours.runtime == "emulator" else name


def gpu_info(backend: str) -> str:
    """The column of that name: what the GPUs are called."""
    ours = plugin.loaded()
    if backend == "cpu" or ours is None:
        return ""
    return ", ".join(plugin.ggml_base().ggml_backend_dev_description(device).decode() for device in ours.devices())


def device_names(backend: str) -> str:
    """What -dev auto stands for."""
    ours = plugin.loaded()
    if backend == "cpu" or ours is None:
        return "auto"
    return "/".join(plugin.ggml_base().ggml_backend_dev_name(device).decode() for device in ours.devices())


def run(options: Options, out: TextIO, err: TextIO) -> None:
    """Runs all cases and prints each row as it is done, to `out` and, if asked for, to `err` too. Raises StrataError."""
    if options.plot:
        pictures.check(options.plot)
    for model in options.lists["model"]:
        llama.check_model_file(model)
    _set_priority(options.priority)
    # llama.cpp's log is no part of a table; what goes wrong comes back in exceptions.
    with log.captured(quiet=not options.verbose):
        if options.numa:
            llama_cpp.llama_numa_init(NUMA[options.numa])
        context = Context(options.backend, options.runtime, options.priority)
        todo = list(cases(options))
        for case in todo:  # wrong names are told before anything is printed
            context.overrides(case)
        try:
            rows = [*_run(options, context, todo, out, err)]
        finally:
            context.free()
    if options.plot:
        plot(rows, options.plot)


def _run(options: Options, context: Context, todo: List[Case], out: TextIO, err: TextIO) -> Iterator[bench_tables.Row]:
    origin = provenance.of(options.backend)
    printers = [bench_tables.printer(form, file, options, backend_name(options.backend), origin)
                for form, file in ((options.output, out), (options.output_err, err)) if form != "none"]
    for printer in printers:
        printer.header()
    progress = Progress(options, len(todo))
    depth: Dict[int, ctypes.Array] = {}
    try:
        for case in todo:
            progress.start(case)
            measured = row(context, case, measure(context, case, options, progress, depth), origin)
            progress.hide()
            for printer in printers:
                printer.row(measured)
                printer.out.flush()
            yield measured
    finally:
        progress.close()
    for printer in printers:
        printer.footer()


def _set_priority(priority: int) -> None:
    if priority == 0:
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS[priority])
    except OSError as error:
        raise StrataError(f"--prio {priority}: the process's priority cannot be set: {error}") from None


def list_devices(options: Options, out: TextIO) -> None:
    """--list-devices. Raises DeviceError."""
    with log.captured(quiet=not options.verbose):
        llama.device_list(options.backend, options.runtime)
        print(devices.table(), file=out)


def plot(rows: Sequence[bench_tables.Row], path: str) -> None:
    """Draws prefill and decode, tokens a second with their deviations against depth, to a picture file. Raises StrataError."""
    pyplot = pictures.pyplot()
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5))
    # A line for each combination of what is not the same in all rows.
    kept = ("model_type", "backends", "n_prompt", "n_gen", *(field for field in bench_tables.OPTIONAL if field != "n_depth"))
    varied = [field for field in kept if len({str(each.values[field]) for each in rows}) > 1 and field not in ("n_prompt", "n_gen")]
    for axis, title, chosen in ((axes[0], "prefill", lambda v: v["n_prompt"] > 0), (axes[1], "decode", lambda v: v["n_prompt"] == 0)):
        lines: Dict[str, List[bench_tables.Row]] = {}
        for each in rows:
            if chosen(each.values):
                label = bench_tables.test_name(each.values["n_prompt"], each.values["n_gen"], 0)
                label += "".join(f", {bench_tables.TITLES.get(field, field)} {each.values[field]}" for field in varied)
                lines.setdefault(label, []).append(each)
        for label, line in lines.items():
            line = sorted(line, key=lambda each: each.values["n_depth"])
            axis.errorbar([each.values["n_depth"] for each in line], [each.values["avg_ts"] for each in line],
                          [each.values["stddev_ts"] for each in line], marker="o", capsize=3, label=label)
        axis.set_title(title)
        axis.set_xlabel("depth: tokens of context before the test")
        axis.set_ylabel("tokens a second")
        axis.xaxis.get_major_locator().set_params(integer=True)
        if lines:
            axis.set_ylim(0, 1.1 * max(each.values["avg_ts"] + each.values["stddev_ts"] for line in lines.values() for each in line))
            axis.legend(fontsize=7)
        else:
            axis.set_visible(False)
    first = rows[0].values
    emulated = ", emulated: not the chip's speed" if first["emulated"] else ""
    models = ", ".join(dict.fromkeys(each.values["model_type"] for each in rows))
    figure.suptitle(f"{models} on {first['device']} ({first['arch']}{emulated})", fontsize=10)
    figure.tight_layout()
    pictures.save(figure, path)
