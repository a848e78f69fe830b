"""The command `strata-hip`."""
import argparse
import itertools
import re
import signal
import sys
import textwrap
from typing import Any, List, Optional, Tuple

from .errors import StrataError

Commands = Any  # what add_subparsers() returns: argparse keeps the class private


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs a command; returns the exit code: 0, 1 after an error (told on stderr), 2 for wrong usage. Ctrl-C ends the
    process at once: Python's handler would wait until a batch is done, which takes the emulator minutes."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return options.command(options) or 0
    except StrataError as error:
        print(f"strata-hip: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of a pipe left; Python would complain again while it exits.
        sys.stdout = None
        return 0
    finally:
        signal.signal(signal.SIGINT, before)


def parse(arguments: List[str]) -> argparse.Namespace:
    """The command line's options. A value like the -1,0 of `-ngl -1,0`, or a prompt that begins with a dash, would look like a flag: it
    is tied to its own. What follows -- is another program's, and so is what follows a command that runs one, but for our own flags."""
    if arguments and arguments[0] in RUN_ANOTHER:
        ours, theirs = split(arguments[1:])
        return parser().parse_args([arguments[0], *ours], argparse.Namespace(arguments=theirs))
    if arguments[:1] == ["bench"]:  # llama-bench takes --n_prompt for --n-prompt
        arguments = [re.sub(r"^--[\w-]+", lambda flag: flag[0].replace("_", "-"), argument) for argument in arguments]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    tied: List[str] = []
    for argument in arguments[:end]:
        is_value = re.match(r"-\d+[^\d]", argument) and tied and tied[-1].startswith("-")
        if is_value or (argument.startswith("-") and tied and tied[-1] in ("-p", "--prompt")):
            tied[-1] += "=" + argument
        else:
            tied.append(argument)
    return parser().parse_args(tied + arguments[end:])


RUN_ANOTHER = ("serve", "rpc-server")


def split(arguments: List[str]) -> Tuple[List[str], List[str]]:
    """Of the arguments of a command in RUN_ANOTHER: (ours, the other program's). argparse would take -hf for -h."""
    ours: List[str] = []
    theirs: List[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--runtime":
            ours += [argument, *itertools.islice(rest, 1)]
        else:
            (ours if argument in ("-h", "--help") or argument.startswith("--runtime=") else theirs).append(argument)
    return ours, theirs


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="strata-hip", description="llama.cpp on AMD Strix Halo (gfx1151), or on its emulator.")
    root.add_argument("--version", action=_Version, nargs=0, help="show the version and what it was built from")
    commands = root.add_subparsers(required=True, metavar="COMMAND", parser_class=_Command)
    _devices_parser(commands)
    _run_parser(commands)
    _serve_parser(commands)
    _rpc_server_parser(commands)
    _bench_parser(commands)
    _verify_parser(commands)
    _ops_parser(commands)
    _bench_ops_parser(commands)
    _tune_parser(commands)
    _emulator_parser(commands)
    _profile_parser(commands)
    _sanitize_parser(commands)
    _doctor_parser(commands)
    return root


class _Command(argparse.ArgumentParser):
    """Tells what it does not know with its own usage: argparse would leave that to the whole program's."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


class _Version(argparse.Action):
    """Prints what the build is made from and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from . import built
        print(built.text())
        parser.exit()


def _runtime_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument("--runtime", choices=["auto", "hip", "emulator"], default=None,
                         help="hip: a real GPU; emulator: none needed; auto: hip (default: $STRATA_RUNTIME or auto)")


def _backend_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument("--backend", choices=["strata-hip", "cpu"], default="strata-hip",
                         help="cpu: stock llama.cpp, to compare with (default: strata-hip)")


# devices

def _devices_parser(commands: Commands) -> None:
    command = commands.add_parser("devices", help="show the device, or why there is none")
    _runtime_argument(command)
    command.add_argument("-o", "--output", choices=["text", "json"], default="text", help="format (default: text)")
    command.set_defaults(command=_devices)


def _devices(options: argparse.Namespace) -> None:
    import json

    from . import plugin
    info = plugin.load(options.runtime).info
    if options.output == "json":
        print(json.dumps(info, indent=2))
        return
    for device in info["devices"]:
        print(f"{device['name']}: {device['description']}")
        print(f"  arch    {device['arch']}, {device['compute_units']} compute units")
        print(f"  memory  {device['memory_free'] / 2**30:.1f} GiB free of {device['memory_total'] / 2**30:.1f} GiB")
    print(f"runtime   {info['runtime']}: {info['library']}")
    families = ", ".join(sorted({each["family"] for each in info["code_objects"]}))
    targets = ", ".join(sorted({each["target"] for each in info["code_objects"]}))
    print(textwrap.fill(f"{families} ({targets})", width=110, initial_indent="kernels   ", subsequent_indent=" " * 10))


# run

def _run_parser(commands: Commands) -> None:
    command = commands.add_parser(
        "run", help="answer or continue a prompt",
        description="A model with a chat template answers as an assistant; any other model, or -no-cnv, continues the prompt. "
                    "On a terminal the conversation goes on until an empty line or Ctrl-D, unless -st.")
    add = command.add_argument
    add("-m", "--model", required=True, metavar="FILE", help="a GGUF file")
    add("-p", "--prompt", help="the prompt; without it, it is read from stdin")
    add("-f", "--file", help="read the prompt from a file")
    add("-sys", "--system-prompt", help="system prompt of a conversation")
    add("-n", "--predict", "--n-predict", type=int, default=-1, metavar="N", help="tokens at most an answer (default: till it ends)")
    add("-c", "--ctx-size", type=int, default=4096, metavar="N", help="context size, 0: the model's (default: 4096)")
    add("-b", "--batch-size", type=int, default=2048, metavar="N", help="logical batch (default: 2048)")
    add("-ub", "--ubatch-size", type=int, default=512, metavar="N", help="physical batch (default: 512)")
    add("-t", "--threads", type=int, default=None, metavar="N", help="CPU threads")
    add("-ngl", "--gpu-layers", "--n-gpu-layers", type=int, default=-1, metavar="N", help="layers on the device, -1: all (default)")
    add("-fa", "--flash-attn", choices=["on", "off", "auto"], default="auto",
        help="flash attention; auto: on, which the device can for every model (default: auto)")
    add("-ctk", "--cache-type-k", default="f16", metavar="TYPE", help="type of the K cache (default: f16)")
    add("-ctv", "--cache-type-v", default="f16", metavar="TYPE", help="type of the V cache (default: f16)")
    add("-s", "--seed", type=int, default=-1, metavar="N", help="random seed, -1: any (default)")
    add("--temp", type=float, default=0.8, metavar="T", help="temperature, 0: always the likeliest token (default: 0.8)")
    add("--top-k", type=int, default=40, metavar="N", help="sample among the N likeliest tokens (default: 40)")
    add("--top-p", type=float, default=0.95, metavar="P", help="sample among the likeliest of this joint probability (default: 0.95)")
    add("--min-p", type=float, default=0.05, metavar="P", help="drop tokens less likely than P times the likeliest (default: 0.05)")
    add("--repeat-penalty", type=float, default=1.0, metavar="X", help="penalty for repetition, 1: none (default)")
    chat = command.add_mutually_exclusive_group()
    chat.add_argument("-cnv", "--conversation", action="store_true", default=None, help="as an assistant")
    chat.add_argument("-no-cnv", "--no-conversation", dest="conversation", action="store_false", help="continue the text")
    add("-st", "--single-turn", action="store_true", help="stop after one answer")
    add("--no-display-prompt", action="store_true", help="print only what the model wrote")
    add("-v", "--verbose", action="store_true", help="llama.cpp's log on stderr")
    _backend_argument(command)
    _runtime_argument(command)
    command.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> None:
    from . import run
    run.run(options)


# serve, rpc-server

def _serve_parser(commands: Commands) -> None:
    command = commands.add_parser(
        "serve", usage="%(prog)s [-h] [--runtime {auto,hip,emulator}] -m FILE [llama-server's flags]",
        help="llama-server on the device: an OpenAI-compatible server, and llama.cpp's own endpoints",
        description="Runs llama.cpp's own llama-server with the model on our device, and says when it is ready. Every flag but --runtime "
                    "and -h is passed on to it; --usage lists them. Its LLAMA_ARG_... variables count too.")
    _runtime_argument(command)
    command.set_defaults(command=_serve, parser=command)


def _serve(options: argparse.Namespace) -> int:
    from . import serve
    if serve.lacks_model(options.arguments):
        options.parser.error("-m is missing: a GGUF file to serve; or -hf, -mu or -dr, which download one, or --models-dir or "
                             "--models-preset, which offer several")
    return serve.run(options.arguments, options.runtime)


def _rpc_server_parser(commands: Commands) -> None:
    command = commands.add_parser(
        "rpc-server", usage="%(prog)s [-h] [--runtime {auto,hip,emulator}] [-H HOST] [-p PORT] [ggml-rpc-server's flags]",
        help="offer the device to llama.cpp on another machine",
        description="Runs llama.cpp's own ggml-rpc-server with our device. Its flags: -H/--host HOST (127.0.0.1), -p/--port PORT (50052), "
                    "-d/--device LIST (STRATA0), -t/--threads N, of the CPU, -c/--cache: keep weights on disk. It is not protected: use it "
                    "in a network that you trust. The other machine names it: strata-hip serve --rpc HOST:PORT.")
    _runtime_argument(command)
    command.set_defaults(command=_rpc_server)


def _rpc_server(options: argparse.Namespace) -> int:
    from . import rpc
    return rpc.run(options.arguments, options.runtime)


# bench

def _bench_parser(commands: Commands) -> None:
    from . import bench_options
    command = commands.add_parser(
        "bench", help="measure tokens a second, as llama-bench does",
        description="Lists may be given to each parameter of the tests with commas or by repeating it; numbers as first-last, "
                    "first-last+step or first-last*mult too.")
    bench_options.add_arguments(command)
    _backend_argument(command)
    _runtime_argument(command)
    command.set_defaults(command=_bench, parser=command)


def _bench(options: argparse.Namespace) -> None:
    from . import bench, bench_options
    wanted = bench_options.from_arguments(options)
    if options.list_devices:
        bench.list_devices(wanted, sys.stdout)
    else:
        bench.run(wanted, sys.stdout, sys.stderr)


# verify

def _verify_parser(commands: Commands) -> None:
    command = commands.add_parser(
        "verify", help="is the output right? a model on the device against the CPU",
        description="Perplexity, divergence and likeliest tokens against llama.cpp's CPU backend, at several batch sizes, with flash "
                    "attention and without, with several KV caches and offload levels; and runs that must give the same bytes. "
                    "The exit code is 1 if anything is outside the bounds.")
    add = command.add_argument
    add("-m", "--model", required=True, metavar="FILE", help="a GGUF file")
    add("-f", "--file", metavar="TEXT", help="the text to read (default: a story that comes with the package)")
    add("--tokens", type=int, metavar="N", help="of the text (default: 2048, or all); fewer are quicker and tell less")
    add("--full", action="store_true", help="every combination and ten repetitions, not every value once")
    add("-t", "--threads", type=int, metavar="N", help="CPU threads (default: all CPUs)")
    add("-o", "--output", choices=["md", "json"], default="md", help="format (default: md)")
    _runtime_argument(command)
    command.set_defaults(command=_verify, parser=command)


def _verify(options: argparse.Namespace) -> int:
    from . import verify
    for name in ("tokens", "threads"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            options.parser.error(f"--{name}: at least 1")
    return verify.run(verify.Options(options.model, options.file, options.tokens, options.full, options.threads, options.runtime,
                                     options.output), sys.stdout)


# ops

def _ops_parser(commands: Commands) -> None:
    command = commands.add_parser(
        "ops", help="ggml's own operator tests on the device",
        description="test-backend-ops of the pinned llama.cpp, which compares each operator with the CPU backend. list: its cases; "
                    "support: what the device accepts, and why not; test: run all that it accepts; perf: time them.")
    command.add_argument("action", choices=["list", "support", "test", "perf"])
    command.add_argument("-o", "--op", metavar="OP[,OP]", help="names of operators, regexes of them, or one whole case")
    command.add_argument("-p", "--pattern", metavar="REGEX", help="only cases whose parameters hold this")
    command.add_argument("-j", "--jobs", type=_positive, default=None, metavar="N",
                         help="test: programs at a time (default: one for each core on the emulator, one on a GPU)")
    _runtime_argument(command)
    command.set_defaults(command=_ops)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of 1 or more")
    return int(text)


def _ops(options: argparse.Namespace) -> int:
    from . import op_tests
    return op_tests.run(options)


# bench-ops

def _bench_ops_parser(commands: Commands) -> None:
    command = commands.add_parser(
        "bench-ops", help="operators on stock ggml-hip and on this backend, counted by the emulator",
        description="Both backends compute the same operators in one process on the emulator. The table says how many wave instructions, "
                    "launches and bytes each takes. Stock ggml-hip is built by tests/bench/peer/build_stock_hip.py.")
    command.add_argument("--op", metavar="OP[,OP]", help="names of operators, or regexes of them")
    command.add_argument("-p", "--pattern", metavar="REGEX", help="only shapes that hold this")
    command.add_argument("-l", "--list", action="store_true", help="list the cases and end")
    command.add_argument("--large", action="store_true", help="the large shapes too (minutes)")
    command.add_argument("--time", action="store_true", help="also modelled time (slower; docs/model.md)")
    command.add_argument("-o", "--output", choices=["md", "csv", "json"], default="md", help="format (default: md)")
    command.add_argument("--plot", metavar="FILE", help="draw the ratios, with matplotlib")
    command.add_argument("--stock", metavar="FILE", help="libggml-hip.so (default: $STRATA_PEER_LIBRARY, or the one in the cache)")
    command.set_defaults(command=_bench_ops)


def _bench_ops(options: argparse.Namespace) -> None:
    from . import bench_ops
    bench_ops.run(options)


# tune

def _tune_parser(commands: Commands) -> None:
    command = commands.add_parser(
        "tune", help="which tile width suits products with experts, by type and rows an expert",
        description="Runs MUL_MAT_ID with every tile width J that its kernels exist for, and finds ranges of rows an expert for each type. All "
                    "give the same bits. On the emulator time is modelled (docs/model.md). --write makes the table that the plugin is compiled "
                    "with: backend/ops/tile_columns.inc.")
    add = command.add_argument
    add("--op", choices=["MUL_MAT_ID", "MUL_MAT"], default="MUL_MAT_ID", help="MUL_MAT: dense products, --rows are its columns (default: MUL_MAT_ID)")
    add("--type", metavar="TYPE[,TYPE]", help="types of weights (default: q8_0,q4_K,q5_K,q6_K,iq2_s,iq3_xxs,iq4_xs,mxfp4)")
    add("--rows", metavar="N[,N]", help="rows an expert (default: 1,2,4,8,12,16,24,32,48,64,96,128)")
    add("--shape", default="512x2048", metavar="MxK", help="rows and length of the weights (default: 512x2048)")
    add("--experts", type=int, default=32, metavar="N", help="experts of a matrix (default: 32)")
    add("--used", type=int, default=8, metavar="N", help="experts that a token has (default: 8)")
    add("--tiles", metavar="J[,J]", help="only these widths (default: all that a type has: 16,32,48,64,128; f16 and bf16 16,64)")
    add("--margin", type=float, default=2, metavar="PERCENT", help="what a further range must save (default: 2)")
    add("--events", type=int, default=3_000_000, metavar="N",
        help="on the emulator: instructions of a launch that the time model follows at most, of which more take longer (default: 3000000)")
    add("-r", "--repetitions", type=int, default=5, metavar="N", help="on a GPU: runs, of which the quickest counts (default: 5)")
    add("-o", "--output", choices=["md", "csv", "json"], default="md", help="format (default: md)")
    add("--write", metavar="FILE", help="write the ranges; lines of other types are kept")
    _runtime_argument(command)
    command.set_defaults(command=_tune, parser=command)


def _tune(options: argparse.Namespace) -> None:
    from . import tune
    from .bench_options import positive
    parser: argparse.ArgumentParser = options.parser
    shape = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", options.shape)
    if not shape:
        parser.error(f"--shape: {options.shape!r} is no shape like 512x2048")
    for name in ("experts", "used", "repetitions", "events"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: at least 1")
    if not options.margin >= 0:
        parser.error("--margin: at least 0")
    lists = {}
    for name in ("rows", "tiles"):
        try:
            given = getattr(options, name)
            lists[name] = None if given is None else sorted(set(positive(given)))
        except ValueError as error:
            parser.error(f"--{name}: {error}")
    types = list(dict.fromkeys(options.type.split(","))) if options.type is not None else tune.DEFAULT_TYPES
    tune.run(tune.Options(options.op, types, lists["rows"] or tune.DEFAULT_ROWS, (int(shape[1]), int(shape[2])), options.experts, options.used,
                          lists["tiles"], options.margin / 100, options.events, options.repetitions, options.output, options.write, options.runtime), sys.stdout)


# emulator

def _emulator_parser(commands: Commands) -> None:
    command = commands.add_parser("emulator", help="about the emulator itself")
    tools = command.add_subparsers(required=True, metavar="TOOL")
    calibrate = tools.add_parser(
        "calibrate", help="modelled times of stock kernels against published ones",
        description="Runs stock ggml-hip at the shapes with published gfx1151 times and prints modelled against published. Minutes.")
    calibrate.add_argument("-p", "--pattern", default="", metavar="TEXT", help="only cases that hold this text")
    calibrate.add_argument("--model", default="1", metavar="WORDS", help="as STRATA_MODEL: parameters that differ, as l0_latency=100,issue_width=2")
    calibrate.add_argument("-o", "--output", choices=["md", "csv", "json"], default="md", help="format (default: md)")
    calibrate.add_argument("--stock", metavar="FILE", help="libggml-hip.so (default: $STRATA_PEER_LIBRARY, or the one in the cache)")
    calibrate.set_defaults(command=_calibrate)


def _calibrate(options: argparse.Namespace) -> None:
    from . import calibrate
    calibrate.run(options)


# profile

def _profile_parser(commands: Commands) -> None:
    command = commands.add_parser(
        "profile", help="what a model launches, counted by the emulator",
        description="Runs a prompt and some tokens on the emulator and prints launches per token and layer, the plan, and the kernels "
                    "that execute most. Counts are exact and repeatable; they are not time.")
    add = command.add_argument
    add("-m", "--model", required=True, metavar="FILE", help="a GGUF file")
    add("-p", "--n-prompt", type=int, default=32, metavar="N", help="prompt tokens (default: 32)")
    add("-n", "--n-gen", type=int, default=2, metavar="N", help="generated tokens (default: 2)")
    add("-d", "--n-depth", type=int, default=0, metavar="N", help="context before both, not counted (default: 0)")
    add("-ub", "--ubatch-size", type=int, default=512, metavar="N", help="physical batch (default: 512)")
    add("-ctk", "--cache-type-k", default="f16", metavar="TYPE", help="type of the K cache (default: f16)")
    add("-ctv", "--cache-type-v", default="f16", metavar="TYPE", help="type of the V cache (default: f16)")
    add("-fa", "--flash-attn", choices=["on", "off", "auto"], default="auto", help="flash attention (default: auto)")
    add("--top", type=int, default=12, metavar="N", help="kernels to show (default: 12)")
    add("-o", "--output", choices=["md", "json"], default="md", help="format (default: md)")
    add("--plot", metavar="FILE", help="draw the top kernels to a picture; needs matplotlib (the extra `plot`)")
    command.set_defaults(command=_profile, parser=command)


def _profile(options: argparse.Namespace) -> None:
    from . import profile
    from .llama_values import CACHE_TYPES, FLASH_ATTN
    for name, least in (("n_prompt", 1), ("n_gen", 1), ("n_depth", 0), ("ubatch_size", 1), ("top", 1)):
        if getattr(options, name) < least:
            options.parser.error(f"--{name.replace('_', '-')}: at least {least}")
    for name in ("cache_type_k", "cache_type_v"):
        if getattr(options, name) not in CACHE_TYPES:
            options.parser.error(f"--{name.replace('_', '-')}: {getattr(options, name)!r} is none of {', '.join(CACHE_TYPES)}")
    profile.run(profile.Options(
        options.model, options.n_prompt, options.n_gen, options.n_depth, options.ubatch_size, options.cache_type_k, options.cache_type_v,
        FLASH_ATTN[options.flash_attn], options.top, options.output, options.plot), sys.stdout)


# sanitize

def _sanitize_parser(commands: Commands) -> None:
    from .sanitize import KINDS
    command = commands.add_parser(
        "sanitize", help="run a program on the emulator under its sanitizer",
        description="Runs a program with STRATA_SANITIZE set, as in: strata-hip sanitize -- python program.py. The exit code is not 0 if "
                    "anything was reported.")
    command.add_argument("-k", "--kinds", default="all", metavar="LIST",
                         help=f"of {', '.join(KINDS)}, with commas, or all, which leaves out align (default: all)")
    command.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="the program and its arguments")
    command.set_defaults(command=_sanitize, parser=command)


def _sanitize(options: argparse.Namespace) -> int:
    from . import sanitize
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        options.parser.error("no program is given")
    unknown = [kind for kind in options.kinds.split(",") if kind not in (*sanitize.KINDS, "all")]
    if unknown:
        options.parser.error(f"--kinds: {unknown[0]!r} is none of {', '.join(sanitize.KINDS)}, all")
    return sanitize.run(program, options.kinds)


# doctor

def _doctor_parser(commands: Commands) -> None:
    command = commands.add_parser(
        "doctor", help="is this machine set up right?",
        description="Looks at the GPU, permissions, driver, firmware, memory limits, AMD's runtime, llama-cpp-python and this package. Each "
                    "line says ok, warn or bad, what it means, and what to do. The exit code is 1 if anything is bad.")
    command.add_argument("--root", default="/", metavar="DIR", help="look at a copy of another machine's /sys, /proc, /dev and /etc")
    command.add_argument("-o", "--output", choices=["text", "json"], default="text", help="format (default: text)")
    command.set_defaults(command=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from . import doctor
    return doctor.run(options)


if __name__ == "__main__":
    sys.exit(main())
