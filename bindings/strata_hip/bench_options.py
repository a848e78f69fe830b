"""What `strata-hip bench` can be asked: llama-bench's flags, and the cases that they make."""
import argparse
import dataclasses
import itertools
import re
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple

from . import __version__
from .bench_tables import PRINTERS
from .llama_values import CACHE_TYPES, FLASH_ATTN, LAZY_MODES, LOAD_MODES, NICENESS, NUMA, SPLIT_MODES, default_threads

RANGE = r"(?:-(\d+)(?:([+*])(\d+))?)?(?:,|$)"
Overrides = Tuple[Tuple[str, str], ...]  # (pattern of tensor names, name of a buffer type)


def int_range(text: str, negative: bool = False) -> List[int]:
    """"512", "1,2,4", "first-last", "first-last+step", "first-last*mult" as llama-bench reads them. Raises ValueError."""
    expression = re.compile((r"(-?\d+)" if negative else r"(\d+)") + RANGE)
    values: List[int] = []
    at = 0
    while at < len(text):
        found = expression.match(text, at)
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
    """Layer counts; a negative one is all."""
    return int_range(text, negative=True)


def positive(text: str) -> List[int]:
    """As int_range(), without 0."""
    values = int_range(text)
    if 0 in values:
        raise ValueError("at least 1")
    return values


def switches(text: str) -> List[int]:
    """A list of 0 and 1."""
    return [int(value) for value in one_of("0", "1")(text)]


def one_of(*words: str) -> Callable[[str], List[str]]:
    """A reader of lists of such words."""
    def convert(text: str) -> List[str]:
        for word in text.split(","):
            if word not in words:
                raise ValueError(f"{word!r} is none of {', '.join(words)}")
        return text.split(",")
    return convert


def flash_attn(text: str) -> List[int]:
    """on, off, auto and their synonyms."""
    return [FLASH_ATTN[word] for word in one_of(*FLASH_ATTN)(text)]


def cpu_masks(text: str) -> List[str]:
    """Hexadecimal masks of CPUs."""
    for mask in text.split(","):
        if not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,128}", mask):
            raise ValueError(f"{mask!r} is no hexadecimal mask")
    return text.split(",")


def percents(text: str) -> List[int]:
    """Numbers up to 100."""
    values = int_range(text)
    if max(values) > 100:
        raise ValueError(f"{max(values)} is more than 100")
    return values


def pair(text: str) -> List[Tuple[int, int]]:
    """"512,128" -> [(512, 128)]."""
    parts = re.fullmatch(r"(\d+),(\d+)", text)
    if not parts:
        raise ValueError(f"{text!r} is no pair of numbers")
    return [(int(parts[1]), int(parts[2]))]


def tensor_splits(text: str) -> List[Tuple[float, ...]]:
    """"3/1,1" -> [(3, 1), (1,)]."""
    return [tuple(float(part) for part in re.split("[;/]+", split)) for split in text.split(",")]


def overrides(text: str) -> List[Overrides]:
    """"pattern=type;pattern=type,..." -> a tuple of (pattern, type) a group; an empty group overrides nothing."""
    groups = []
    for group in text.split(","):
        pairs = []
        for part in filter(None, group.split(";")):
            pattern, equals, kind = part.partition("=")
            if not (pattern and equals and kind):
                raise ValueError(f"{part!r} is no PATTERN=TYPE")
            pairs.append((pattern, kind))
        groups.append(tuple(pairs))
    return groups


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the table. Fields are named as llama-bench's columns are."""
    model: str
    n_prompt: int = 0
    n_gen: int = 0
    n_depth: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    type_k: str = "f16"
    type_v: str = "f16"
    n_threads: int = dataclasses.field(default_factory=default_threads)
    cpu_mask: str = "0x0"
    cpu_strict: int = 0
    poll: int = 50
    n_gpu_layers: int = -1
    n_cpu_moe: int = 0
    split_mode: str = "layer"
    main_gpu: int = 0
    no_kv_offload: int = 0
    flash_attn: int = -1
    devices: str = "auto"
    load_mode: str = "auto"
    lazy_mode: str = "auto"
    embeddings: int = 0
    tensor_split: Tuple[float, ...] = (0.0,)
    tensor_buft_overrides: Overrides = ()
    no_op_offload: int = 0
    no_host: int = 0
    repack: int = 1


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A flag whose values are one dimension of the cases."""
    field: str
    flags: Sequence[str]
    metavar: str
    convert: Callable[[str], List[Any]]
    help: str

    def default(self) -> List[Any]:
        """The values if the flag is not given."""
        special = {"model": [], "n_prompt": [512], "n_gen": [128]}
        return special[self.field] if self.field in special else [getattr(Case(""), self.field)]


# In the order of llama-bench's loops, the outermost first, which loads each model as seldom as possible.
DIMENSIONS = (
    Parameter("model", ("-m", "--model"), "FILE", lambda text: text.split(","), "a GGUF file"),
    Parameter("n_gpu_layers", ("-ngl", "--n-gpu-layers"), "N", layers, "layers on the device, -1: all"),
    Parameter("n_cpu_moe", ("-ncmoe", "--n-cpu-moe"), "N", int_range, "layers whose experts stay with the CPU"),
    Parameter("split_mode", ("-sm", "--split-mode"), "|".join(SPLIT_MODES), one_of(*SPLIT_MODES), "how several devices share a model"),
    Parameter("load_mode", ("-lm", "--load-mode"), "|".join(LOAD_MODES), one_of(*LOAD_MODES), "how the file is read"),
    Parameter("lazy_mode", ("-lzm", "--lazy-mode"), "|".join(LAZY_MODES), one_of(*LAZY_MODES), "reading rows on demand"),
    Parameter("main_gpu", ("-mg", "--main-gpu"), "I", int_range, "the device with -sm none"),
    Parameter("devices", ("-dev", "--device"), "DEV/DEV/...", lambda text: text.split(","), "devices, none, or auto: --backend's"),
    Parameter("tensor_split", ("-ts", "--tensor-split"), "TS/TS/...", tensor_splits, "shares of the devices"),
    Parameter("tensor_buft_overrides", ("-ot", "--override-tensor"), "PATTERN=TYPE;...", overrides,
              "buffer types of the tensors whose names match"),
    Parameter("no_host", ("--no-host",), "0|1", switches, "bypass host buffers"),
    Parameter("repack", ("--repack",), "0|1", switches, "the CPU's repacked weights"),
    Parameter("embeddings", ("-embd", "--embeddings"), "0|1", switches, "embeddings too"),
    Parameter("no_op_offload", ("-nopo", "--no-op-offload"), "0|1", switches, "large products of the CPU's layers stay there"),
    Parameter("n_batch", ("-b", "--batch-size"), "N", positive, "logical batch"),
    Parameter("n_ubatch", ("-ub", "--ubatch-size"), "N", positive, "physical batch"),
    Parameter("type_k", ("-ctk", "--cache-type-k"), "TYPE", one_of(*CACHE_TYPES), "type of the K cache"),
    Parameter("type_v", ("-ctv", "--cache-type-v"), "TYPE", one_of(*CACHE_TYPES), "type of the V cache"),
    Parameter("no_kv_offload", ("-nkvo", "--no-kv-offload"), "0|1", switches, "the KV cache stays with the CPU"),
    Parameter("flash_attn", ("-fa", "--flash-attn"), "on|off|auto", flash_attn, "flash attention"),
    Parameter("n_threads", ("-t", "--threads"), "N", positive, "CPU threads"),
    Parameter("cpu_mask", ("-C", "--cpu-mask"), "HEX", cpu_masks, "CPUs to use, 0x0: all"),
    Parameter("cpu_strict", ("--cpu-strict",), "0|1", switches, "a CPU a thread"),
    Parameter("n_depth", ("-d", "--n-depth"), "N", int_range, "context before the test"),
    Parameter("poll", ("--poll",), "0..100", percents, "how eagerly threads wait"),
)
WORK = (
    Parameter("n_prompt", ("-p", "--n-prompt"), "N", int_range, "prompt tokens, 0: no such test"),
    Parameter("n_gen", ("-n", "--n-gen"), "N", int_range, "generated tokens, 0: no such test"),
)
_HF = "strata-hip downloads no models: fetch the file, then name it with -m"
_FIT = "fitting is part of llama.cpp's programs, not of the library that computes here: -ngl, -ncmoe and -ot place a model"
REFUSED = {
    ("-hf", "-hfr", "--hf-repo"): _HF, ("-hff", "--hf-file"): _HF, ("-hft", "--hf-token"): _HF,
    ("-fitt", "--fit-target"): _FIT, ("-fitc", "--fit-ctx"): _FIT,
    ("-rpc", "--rpc"): "the ggml that computes here is built without RPC",
    ("-mmp", "--mmap"): "this llama.cpp has -lm/--load-mode instead", ("-dio", "--direct-io"): "this llama.cpp has -lm/--load-mode instead",
}


@dataclasses.dataclass(frozen=True)
class Options:
    """What was asked for."""
    lists: Dict[str, List[Any]]  # field of Case -> its values
    pg: List[Tuple[int, int]]
    repetitions: int = 5
    delay: int = 0               # seconds
    priority: int = 0
    numa: Optional[str] = None
    warmup: bool = True
    verbose: bool = False
    progress: bool = False
    output: str = "md"
    output_err: str = "none"
    plot: Optional[str] = None
    backend: str = "strata-hip"
    runtime: Optional[str] = None

    def differs(self, field: str) -> bool:
        """Whether a dimension has other values than its default."""
        return self.lists[field] != next(each for each in DIMENSIONS if each.field == field).default()


def cases(options: Options) -> Iterator[Case]:
    """The tests in llama-bench's order."""
    work = [(n, 0) for n in options.lists["n_prompt"] if n] + [(0, n) for n in options.lists["n_gen"] if n] + \
           [(p, g) for p, g in options.pg if p or g]
    fields = [each.field for each in DIMENSIONS]
    for values in itertools.product(*(options.lists[field] for field in fields)):
        for n_prompt, n_gen in work:
            yield Case(n_prompt=n_prompt, n_gen=n_gen, **dict(zip(fields, values)))


class _Refuse(argparse.Action):
    """A flag of llama-bench that cannot apply: says why."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, reason: str):
        super().__init__(option_strings, dest, nargs="?", help=argparse.SUPPRESS)
        self.reason = reason

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: Optional[str] = None) -> NoReturn:
        parser.error(f"{option_string}: {self.reason}")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """All flags of llama-bench, and ours."""
    add = command.add_argument
    for each in (*DIMENSIONS, *WORK):
        names = {"model": "required", "n_threads": "default: all CPUs", "n_prompt": "default: 512", "n_gen": "default: 128"}
        default = names.get(each.field) or f"default: {_text(each)}"
        add(*each.flags, dest=each.field, action="append", metavar=each.metavar, help=f"{each.help} ({default})")
    add("-pg", action="append", metavar="PP,TG", help="a prompt of PP tokens, then TG generated ones")
    add("-r", "--repetitions", type=int, default=5, metavar="N", help="times each test is repeated (default: 5)")
    add("--delay", type=int, default=0, metavar="S", help="seconds to wait before each test (default: 0)")
    add("--prio", type=int, default=0, choices=sorted(NICENESS), help="priority of the process and its threads (default: 0)")
    add("--numa", choices=list(NUMA), help="NUMA mode (default: disabled)")
    add("-o", "--output", choices=[*PRINTERS, "none"], default="md", help="format on stdout (default: md)")
    add("-oe", "--output-err", choices=[*PRINTERS, "none"], default="none", help="format on stderr (default: none)")
    add("--plot", metavar="FILE", help="draw prefill and decode against depth; needs matplotlib (the extra `plot`)")
    add("--list-devices", action="store_true", help="list the devices and end")
    add("--offline", action="store_true", help="no effect: nothing is ever downloaded")
    add("-v", "--verbose", action="store_true", help="llama.cpp's log on stderr")
    add("--progress", action="store_true", help="a line on stderr for each run")
    add("--no-warmup", action="store_true", help="skip the warm-up runs")
    add("--version", action="version", version=f"strata-hip {__version__}")
    for flags, reason in REFUSED.items():
        add(*flags, action=_Refuse, reason=reason, dest=argparse.SUPPRESS)


def _text(parameter: Parameter) -> str:
    value = parameter.default()[0]
    if parameter.field == "flash_attn":
        return "auto"
    return "none" if value == () else "/".join(f"{part:g}" for part in value) if isinstance(value, tuple) else str(value)


def from_arguments(given: argparse.Namespace) -> Options:
    """Options of the command line; a wrong value ends the program with the usage (exit code 2)."""
    parser: argparse.ArgumentParser = given.parser

    def values(field: str, flag: str, convert: Callable[[str], List[Any]], default: List[Any]) -> List[Any]:
        texts = getattr(given, field)
        try:
            return [value for text in texts for value in convert(text)] if texts else default
        except ValueError as error:
            parser.error(f"{flag}: {error}")

    lists = {each.field: values(each.field, each.flags[-1], each.convert, each.default()) for each in (*DIMENSIONS, *WORK)}
    if not lists["model"] and not given.list_devices:
        parser.error("the following arguments are required: -m/--model")
    pg = values("pg", "-pg", pair, [])
    if not any((*lists["n_prompt"], *lists["n_gen"], *(sum(each) for each in pg))) and not given.list_devices:
        given.parser.error("no test is left: -p, -n and -pg are all 0")
    for name, least in (("repetitions", 1), ("delay", 0)):
        if getattr(given, name) < least:
            parser.error(f"--{name}: at least {least}")
    return Options(
        lists=lists, pg=pg, repetitions=given.repetitions, delay=given.delay, priority=given.prio, numa=given.numa,
        warmup=not given.no_warmup, verbose=given.verbose, progress=given.progress, output=given.output, output_err=given.output_err,
        plot=given.plot, backend=given.backend, runtime=given.runtime)
