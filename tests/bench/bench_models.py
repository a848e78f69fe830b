#!/usr/bin/env python3
"""How fast the emulator runs whole models: `make bench` prints this after the emulator's own figures.

The table is `strata-hip bench`'s; then the CPU time, which does not depend on what else the machine is doing, and how many
launches a token takes. Goals, on 2 cores: Gemma 3 270M decodes at 1 token/s and prefills at 15."""
import os
import time

from strata_hip import bench, cli, log, models, plugin

GOALS = {"decode": 1.0, "prefill": 15.0}
CASES = {"prefill": (128, 0), "decode": (0, 8)}


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def measure(context: bench.Context, name: str) -> None:
    """Prints one line for a case: tokens a second by the clock and by CPU time, launches a token."""
    n_prompt, n_gen = CASES[name]
    tokens = n_prompt + n_gen
    case = bench.Case(str(models.gemma3()), n_prompt, n_gen, n_batch=512, flash_attn=1)
    context.prepare(case)
    context.prompt(n_prompt, 512)
    context.generate(min(n_gen, 1))
    context.clear()
    launches, cpu, clock = plugin.loaded().counter("launches"), cpu_seconds(), time.perf_counter()
    context.prompt(n_prompt, 512)
    context.generate(n_gen)
    clock, cpu = time.perf_counter() - clock, cpu_seconds() - cpu
    launches = plugin.loaded().counter("launches") - launches
    print(f"{name:8} {tokens:4} tokens  {tokens / clock:7.2f} token/s (goal {GOALS[name]:g})  "
          f"{cpu / tokens:6.3f} s of CPU time a token  {launches / (n_gen or 1):.0f} launches {'a token' if n_gen else 'in all'}")


def main() -> None:
    print("\nWhole models on the emulator")
    cli.main(["bench", "--runtime", "emulator", "-m", f"{models.smollm2()},{models.gemma3()}", "-p", "128", "-n", "8", "-r", "2",
              "-fa", "on"])
    print("\nGemma 3 270M")
    with log.captured(quiet=True):
        context = bench.Context("strata-hip", "emulator")
        for name in CASES:
            measure(context, name)
        context.free()


if __name__ == "__main__":
    main()
