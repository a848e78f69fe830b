"""`strata-hip profile`: what a model's prefill and decode launch, counted by the emulator (docs/emulator.md, "Counters").

The numbers are counts, exact and the same on every run. They are not time."""
import ctypes
import dataclasses
import json
import os
import pathlib
import tempfile
from typing import Any, Dict, List, Optional, TextIO

from . import environment, pictures
from .errors import DeviceError, StrataError

CLASSES = ("valu", "vopd", "dot", "trans", "wmma", "salu", "smem", "vmem", "lds", "branch", "wait", "other")
PHASES = ("prefill", "decode")
DIRECTIONS = {"host_to_device": "to the device", "device_to_host": "to the host", "device_to_device": "within the device"}


@dataclasses.dataclass
class Options:
    """What is profiled: a prompt of random tokens and then generated ones."""
    model: str
    n_prompt: int = 32
    n_gen: int = 2
    n_depth: int = 0
    n_ubatch: int = 512
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: int = -1
    top: int = 12
    output: str = "md"
    plot: Optional[str] = None


def run(options: Options, out: TextIO) -> None:
    """Runs the model on the emulator and prints the profile. Raises StrataError."""
    if options.plot:
        pictures.check(options.plot)
    result = measure(options)
    if options.output == "json":
        json.dump(result, out, indent=1)
        out.write("\n")
    else:
        out.write(markdown(result, options.top))
    if options.plot:
        plot(result, options.plot, options.top)


def measure(options: Options) -> Dict[str, Any]:
    """The profile as data: model, layers, tokens, and for each phase its launches in order, its kernels and its copies."""
    with tempfile.TemporaryDirectory(prefix="strata-profile-") as folder:
        file = pathlib.Path(folder) / "counts.json"
        with environment.changed(STRATA_COUNT=str(file)):
            layers = _run_model(options)
        if not file.exists():
            raise StrataError("the emulator wrote no counts: it had been started before in this process")
        counts = json.loads(file.read_text())
    phases = {}
    for name, tokens in zip(PHASES, (options.n_prompt, options.n_gen)):
        launches = [each for each in counts["launches"] if each["phase"] == name]
        if launches:
            phases[name] = {"tokens": tokens, "launches": launches, "kernels": by_kernel(launches), "copies": counts["copies"].get(name, {}),
                            "graphs": counts["graphs"].get(name, {"instantiated": 0, "launched": 0})}
    return {"model": options.model, "layers": layers, "registers": {
        name: {key: each[key] for key in ("vgprs", "sgprs", "vgpr_spills", "sgpr_spills", "static_lds", "scratch")}
        for name, each in counts["kernels"].items()}, "phases": phases}


def _run_model(options: Options) -> int:
    from . import bench, log, plugin
    ours = plugin.load("emulator")
    library = ctypes.CDLL(ours.info["library"])
    phase = library.strata_emulator_count_phase
    phase.argtypes, phase.restype = [ctypes.c_char_p], None
    library.strata_emulator_count_write.restype = None
    context = bench.Context("strata-hip", "emulator")
    case = bench.Case(options.model, options.n_prompt, options.n_gen, options.n_depth, n_batch=options.n_ubatch, n_ubatch=options.n_ubatch,
                      type_k=options.type_k, type_v=options.type_v, flash_attn=options.flash_attn)
    with log.captured(quiet=True):
        try:
            context.prepare(case)
            context.prompt(options.n_depth, options.n_ubatch)
            phase(b"prefill")
            context.prompt(options.n_prompt, options.n_ubatch)
            phase(b"decode")
            context.generate(options.n_gen)
            phase(b"")
            layers = context.model.n_layer if context.model else 0
            library.strata_emulator_count_write()
        finally:
            context.free()
    if layers <= 0:
        raise DeviceError(f"{options.model} says it has {layers} layers")
    return layers


def by_kernel(launches: List[Dict[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """Sums over the launches of each kernel, the busiest first."""
    kernels: Dict[str, Dict[str, Any]] = {}
    for each in launches:
        row = kernels.setdefault(each["kernel"], {
            "launches": 0, "waves": 0, "instructions": dict.fromkeys((*CLASSES, "total"), 0), "load_bytes": 0, "store_bytes": 0,
            "lines": 0, "request_lines": 0, "requests": 0, "lds_passes": 0, "lds_conflicts": 0, "limits": {}})
        row["launches"] += 1
        row["waves"] += each["waves"]
        for name, count in each["instructions"].items():
            row["instructions"][name] += count
        memory = each["global"]
        row["load_bytes"] += memory["load_bytes"] + each["scalar"]["load_bytes"]
        row["store_bytes"] += memory["store_bytes"]
        row["lines"] += memory["lines"]["launch"] + each["scalar"]["lines"]["launch"]
        row["request_lines"] += memory["lines"]["request"]
        row["requests"] += memory["load_requests"] + memory["store_requests"] + memory["atomic_requests"]
        row["lds_passes"] += each["lds"]["passes"]
        row["lds_conflicts"] += each["lds"]["conflicts"]
        place = f"{each['occupancy']['waves_per_simd']:g} ({each['occupancy']['limit']})"
        row["limits"][place] = row["limits"].get(place, 0) + 1
        if "modelled" in each:
            row["modelled_us"] = row.get("modelled_us", 0.0) + each["modelled"]["us"]
            row["simulated"] = min(row.get("simulated", 1.0), each["modelled"]["share"])
    return dict(sorted(kernels.items(), key=lambda item: -item[1]["instructions"]["total"]))


def sampled(share: float) -> str:
    """What the smallest share of a launch's instructions that the time model followed means for a reader."""
    return "all instructions were simulated" if share >= 1 else f"large launches from a sample, {share:.1%} of the instructions at least"


def plan(launches: List[Dict[str, Any]]) -> List[str]:
    """The launches in order; what repeats, as layers do, is shown once with how often."""
    names = [f"{each['kernel']}  grid {'x'.join(map(str, each['grid']))}  block {'x'.join(map(str, each['block']))}" for each in launches]
    lines: List[str] = []
    at = 0
    while at < len(names):
        best, times = 1, 1
        for length in range(1, min(64, (len(names) - at) // 2) + 1):
            block = names[at:at + length]
            count = 1
            while names[at + count * length:at + (count + 1) * length] == block:
                count += 1
            if count > 1 and (count - 1) * length > (times - 1) * best:
                best, times = length, count
        if times > 1:
            lines.append(f"{times} times:")
        lines += [("    " if times > 1 else "") + name for name in names[at:at + best]]
        at += best * times
    return lines


def markdown(result: Dict[str, Any], top: int) -> str:
    """The profile as text."""
    lines = [f"# {os.path.basename(result['model'])}: {result['layers']} layers", "",
             "Counted on the emulator: exact and repeatable; not time.", "",
             "| phase | tokens | launches | per token | per layer and token | instructions | bytes loaded | bytes stored | lines of 128 B |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for name, phase in result["phases"].items():
        rows = list(phase["kernels"].values())
        # A prompt is launched in batches: what counts there is a batch, not a token.
        batches = phase["tokens"] if name == "decode" else 1
        per = len(phase["launches"]) / batches
        total = sum(row["instructions"]["total"] for row in rows)
        lines.append(f"| {name} | {phase['tokens']} | {len(phase['launches'])} | {len(phase['launches']) / phase['tokens']:.1f} | "
                     f"{per / result['layers']:.2f}{'' if name == 'decode' else ' (of the prompt)'} | {total:,} | "
                     f"{sum(row['load_bytes'] for row in rows):,} | {sum(row['store_bytes'] for row in rows):,} | "
                     f"{sum(row['lines'] for row in rows):,} |")
    lines += ["", "| phase | " + " | ".join(f"copies {words} | bytes" for words in DIRECTIONS.values()) + " |", "|---|" + "--:|" * 6]
    for name, phase in result["phases"].items():
        some = [phase["copies"].get(direction, {"copies": 0, "bytes": 0}) for direction in DIRECTIONS]
        lines.append(f"| {name} | " + " | ".join(f"{each['copies']} | {each['bytes']:,}" for each in some) + " |")
    lines += ["", "HIP graphs, whose launches count above like all others: " + "; ".join(
        f"{name} {phase['graphs']['instantiated']} captured, {phase['graphs']['launched']} launched" for name, phase in result["phases"].items()) + "."]
    for name, phase in result["phases"].items():
        launches = phase["launches"]
        if name == "decode":
            launches = launches[-(len(launches) // phase["tokens"]):]
        lines += ["", f"## {name}: the plan{' of the last token' if name == 'decode' else ''} ({len(launches)} launches)", ""]
        lines += ["    " + line for line in plan(launches)]
        timed = any("modelled_us" in row for row in phase["kernels"].values())
        lines += ["", f"## {name}: top kernels", "",
                  "| kernel | launches | waves | instructions | " + " | ".join(CLASSES) + " | loaded | stored | lines/request | "
                  "LDS conflicts | VGPRs | spills | waves a SIMD (limit) |" + (" modelled us |" if timed else ""),
                  "|---|" + "--:|" * (len(CLASSES) + 9) + "---|" + ("--:|" if timed else "")]
        for kernel, row in list(phase["kernels"].items())[:top]:
            registers = result["registers"][kernel]
            coalescing = f"{row['request_lines'] / row['requests']:.2f}" if row["requests"] else "-"
            lines.append(f"| {kernel} | {row['launches']} | {row['waves']:,} | {row['instructions']['total']:,} | " +
                         " | ".join(f"{row['instructions'][each]:,}" for each in CLASSES) +
                         f" | {row['load_bytes']:,} | {row['store_bytes']:,} | {coalescing} | {row['lds_conflicts']:,} | "
                         f"{registers['vgprs']} | {registers['vgpr_spills']} | {', '.join(row['limits'])} |" +
                         (f" {row['modelled_us']:,.1f} |" if timed else ""))
        if timed:
            lines += ["", f"Modelled us: {sampled(min(row['simulated'] for row in phase['kernels'].values()))}."]
    return "\n".join(lines) + "\n"


def plot(result: Dict[str, Any], path: str, top: int) -> None:
    """Draws the top kernels of each phase, their instructions by class, to a picture file. Raises StrataError."""
    pyplot = pictures.pyplot()
    phases = result["phases"]
    figure, axes = pyplot.subplots(len(phases), 1, figsize=(11, 1.5 + 0.35 * top * len(phases)), squeeze=False)
    for (name, phase), axis in zip(phases.items(), axes[:, 0]):
        kernels = list(phase["kernels"].items())[:top][::-1]
        left = [0.0] * len(kernels)
        for index, each in enumerate(CLASSES):
            widths = [row["instructions"][each] / 1e6 for _, row in kernels]
            axis.barh([kernel for kernel, _ in kernels], widths, left=left, label=each, color=pyplot.get_cmap("tab20")(index))
            left = [a + b for a, b in zip(left, widths)]
        axis.set_title(f"{os.path.basename(result['model'])}, {name}: {len(phase['launches'])} launches, tokens: {phase['tokens']}")
        axis.set_xlabel("million wave instructions")
        axis.tick_params(axis="y", labelsize=8)
    axes[0, 0].legend(fontsize=7, ncol=2, loc="lower right")
    figure.tight_layout()
    pictures.save(figure, path)
