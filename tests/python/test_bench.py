"""`strata-hip bench`: flags, tests and tables are llama-bench's."""
import csv
import dataclasses
import fcntl
import io
import json
import os
import re
import sqlite3
import statistics
import struct
import subprocess
import sys
import termios

import pytest

from strata_hip import bench, bench_options, bench_tables, cli, models
from strata_hip.errors import StrataError
from strata_hip.provenance import Provenance
from support.paths import ROOT, llama_cpp_source
from support.tools import tool

sys.path.insert(0, str(ROOT / "tests" / "models"))
import toys  # noqa: E402

SMALL = ["-p", "8", "-n", "2", "-r", "3", "--no-warmup", "--backend", "cpu", "-t", "1"]


NOWHERE = Provenance("CPU: one", "cpu", "x86_64", "Linux 6.1", "", "", False)


def options(*arguments: str) -> bench_options.Options:
    return bench_options.from_arguments(cli.parse(["bench", "-m", "model.gguf", *arguments]))


def run(*arguments: str) -> str:
    """The output of a small bench of SmolLM2 on the CPU."""
    done = bench_of(models.smollm2(), *SMALL, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "neither a log nor a progress bar belongs where no terminal is"
    return done.stdout


def bench_of(model, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "strata_hip.cli", "bench", "-m", str(model), *arguments],
                          capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A model of 5 MB."""
    path = tmp_path_factory.mktemp("bench") / "toy.gguf"
    toys.write(path, toys.SHAPES["qwen35"], "q4_K")
    return path


def upstream(pattern: str) -> str:
    found = re.search(pattern, (llama_cpp_source() / "tools/llama-bench/llama-bench.cpp").read_text(), re.S)
    assert found, f"{pattern} is not in llama-bench.cpp"
    return found[1]


def test_fields_are_those_of_llama_bench():
    assert re.findall(r'"(\w+)"', upstream(r"fields = \{(.*?)\};")) == list(bench_tables.FIELDS)


@pytest.mark.parametrize("kind,ours", [("INT", bench_tables.INTEGERS), ("BOOL", bench_tables.BOOLEANS),
                                       ("FLOAT", bench_tables.REALS)])
def test_field_types_are_those_of_llama_bench(kind, ours):
    body = upstream(r"static field_type get_field_type\(.*?\{(.*?)return STRING;\s*\}\s*\n")
    names = set()
    for condition, result in re.findall(r"if \((.*?)\) \{\s*return (\w+);", body, re.S):
        if result == kind:
            names |= set(re.findall(r'"(\w+)"', condition))
    assert names & set(bench_tables.FIELDS) == ours


def test_markdown_widths_and_titles_are_those_of_llama_bench():
    widths = upstream(r"static int get_field_width\(.*?\{(.*?)int width = ")
    titles = upstream(r"static std::string get_field_display_name\(.*?\{(.*?)return field;")
    theirs = {name: int(width) for condition, width in re.findall(r"if \((.*?)\) \{\s*return (-?\d+);", widths, re.S)
              for name in re.findall(r'"([\w/]+)"', condition)}
    assert theirs == bench_tables.WIDTHS
    names = dict(re.findall(r'field == "(\w+)"\) \{\s*return "(\w+)"', titles))
    assert {name: names[name] for name in names if not name.startswith("fit_")} == bench_tables.TITLES


def test_optional_columns_come_in_llama_benchs_order():
    body = upstream(r"void print_header\(const cmd_params & params\) override \{\s*// select fields(.*?)fprintf")
    names = re.findall(r'if \(params.*?fields\.emplace_back\("(\w+)"\)', body, re.S)
    assert [name for name in names if not name.startswith("fit_")] == list(bench_tables.OPTIONAL)


def test_every_flag_of_llama_bench_is_taken_or_refused():
    """All that its parser compares an argument with, and its defaults."""
    ours = {flag for each in (*bench_options.DIMENSIONS, *bench_options.WORK) for flag in each.flags}
    ours |= {flag for flags in bench_options.REFUSED for flag in flags}
    help = subprocess.run([sys.executable, "-m", "strata_hip.cli", "bench", "--help"], capture_output=True, text=True).stdout
    theirs = set(re.findall(r'arg == "(-[\w-]+)"', upstream(r"static cmd_params parse_cmd_params(.*?)// set defaults")))
    assert len(theirs) > 70
    assert {flag for flag in theirs - ours if not re.search(rf"{flag}\b", help)} == set()


@pytest.mark.parametrize("flags", [*bench_options.REFUSED])
def test_what_cannot_apply_is_refused_by_name(flags, capsys):
    for flag in flags:
        with pytest.raises(SystemExit) as end:
            options(flag, "1")
        assert end.value.code == 2
        assert f"{flag}: {bench_options.REFUSED[flags]}" in capsys.readouterr().err


@pytest.mark.parametrize("text,values", [
    ("512", [512]), ("1,2,8", [1, 2, 8]), ("1-4", [1, 2, 3, 4]), ("10-30+10", [10, 20, 30]), ("1-16*2", [1, 2, 4, 8, 16]),
    ("0", [0]), ("3,5-6", [3, 5, 6]), ("5-7+3", [5])])
def test_ranges(text, values):
    assert bench_options.int_range(text) == values


@pytest.mark.parametrize("text", ["", "x", "1,,2", "-1", "1-8*1", "1-8+0", "0-8*2", "4-1", "1 2", "1-2-3"])
def test_bad_ranges(text):
    with pytest.raises(ValueError):
        bench_options.int_range(text)


def test_every_combination_once_in_llama_benchs_order():
    wanted = options("-p", "16,32", "-n", "4", "-pg", "8,2", "-ub", "64,128", "-fa", "on,off", "-ngl", "-1,0", "-d", "0,100")
    got = list(bench_options.cases(wanted))
    assert len(got) == 2 * 2 * 2 * 2 * 4
    assert len(set(map(str, got))) == len(got)
    assert [(c.n_prompt, c.n_gen) for c in got[:4]] == [(16, 0), (32, 0), (0, 4), (8, 2)]
    assert [c.n_gpu_layers for c in got] == [-1] * 32 + [0] * 32
    assert [c.n_depth for c in got[:8]] == [0] * 4 + [100] * 4


def test_defaults():
    wanted = options()
    lists = {**wanted.lists, "n_threads": [0]}
    case = bench_options.Case("model.gguf", n_threads=0)
    assert lists == {**{field: [getattr(case, field)] for field in lists}, "n_prompt": [512], "n_gen": [128]}
    assert (wanted.pg, wanted.repetitions, wanted.delay, wanted.priority, wanted.output, wanted.output_err) == ([], 5, 0, 0, "md", "none")
    values = upstream(r"static const cmd_params cmd_params_defaults = \{(.*?)\n\};")
    for field in ("n_depth", "n_batch", "n_ubatch", "poll", "n_gpu_layers", "n_cpu_moe", "main_gpu", "n_prompt", "n_gen"):
        assert [int(value) for value in re.findall(rf"/\* {field} +\*/ \{{ (-?\d+) \}}", values)] == lists[field], field


@pytest.mark.parametrize("arguments,field,values", [
    (["-ngl", "-1,0"], "n_gpu_layers", [-1, 0]), (["-ncmoe", "0-2"], "n_cpu_moe", [0, 1, 2]),
    (["-sm", "none,row"], "split_mode", ["none", "row"]),
    (["-mg", "1"], "main_gpu", [1]), (["-nkvo", "0,1"], "no_kv_offload", [0, 1]),
    (["-fa", "on,0,auto,disabled"], "flash_attn", [1, 0, -1, 0]),
    (["-dev", "A/B,none"], "devices", ["A/B", "none"]), (["-lm", "mmap+mlock,dio"], "load_mode", ["mmap+mlock", "dio"]),
    (["-lzm", "on"], "lazy_mode", ["on"]), (["-embd", "1"], "embeddings", [1]),
    (["-ts", "3/1,1;2"], "tensor_split", [(3.0, 1.0), (1.0, 2.0)]),
    (["-ot", r"blk\.1=CPU;exps=X,"], "tensor_buft_overrides", [((r"blk\.1", "CPU"), ("exps", "X")), ()]),
    (["-nopo", "1"], "no_op_offload", [1]), (["--no-host", "1"], "no_host", [1]), (["--repack", "0"], "repack", [0]),
    (["-C", "0x3,F"], "cpu_mask", ["0x3", "F"]), (["--cpu-strict", "1"], "cpu_strict", [1]), (["--poll", "0,100"], "poll", [0, 100]),
    (["--n_prompt", "7"], "n_prompt", [7]), (["--model=my_model.gguf"], "model", ["model.gguf", "my_model.gguf"])])
def test_lists(arguments, field, values):
    assert options(*arguments).lists[field] == values


def test_repeated_flags_add_up_and_zero_drops_a_test():
    wanted = options("-p", "16", "-p", "32", "-n", "0")
    assert [(c.n_prompt, c.n_gen) for c in bench_options.cases(wanted)] == [(16, 0), (32, 0)]


@pytest.mark.parametrize("arguments", [["-p", "x"], ["-ctk", "q9_9"], ["-fa", "maybe"], ["-pg", "1"], ["-pg", "a,b"],
                                       ["-pg", "-8,4"], ["-b", "0"], ["-b", "8,0"], ["-r", "0"], ["-o", "xml"], ["-nkvo", "2"],
                                       ["-C", "0xg"], ["--poll", "101"], ["-ot", "x"], ["-ts", "a"], ["--delay", "-1"], ["--prio", "4"]])
def test_bad_flags_end_with_usage(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        options(*arguments)
    assert end.value.code == 2
    assert arguments[0].strip("-")[0] in capsys.readouterr().err


def test_flags_that_leave_no_test(capsys):
    with pytest.raises(SystemExit) as end:
        options("-p", "0", "-n", "0", "-pg", "0,0")
    assert end.value.code == 2 and "no test is left" in capsys.readouterr().err


def test_a_priority_that_is_not_granted_is_told(monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(bench.os, "setpriority", refuse)
    with pytest.raises(StrataError, match="--prio 3: .*Permission denied"):
        bench.run(dataclasses.replace(options("--prio", "3", "--backend", "cpu"), lists={"model": []}), io.StringIO(), io.StringIO())


def test_a_missing_model_is_told_before_any_output():
    done = bench_of("/no/such.gguf", "--backend", "cpu", "-o", "json")
    assert (done.returncode, done.stdout) == (1, "") and "/no/such.gguf" in done.stderr


@pytest.mark.parametrize("arguments,told", [(["-dev", "FOO"], "'FOO' is none of none, auto"), (["-dev", "CPU"], "'CPU'"),
                                            (["-ot", "a=FOO"], "'FOO' is none of CPU")])
def test_wrong_names_are_told_before_any_output(toy, arguments, told):
    done = bench_of(toy, "--backend", "cpu", *arguments)
    assert (done.returncode, done.stdout) == (1, "") and told in done.stderr


def test_markdown():
    lines, _, footer = run("-pg", "4,2", "-d", "0,8", "-fa", "on").partition("\n\n")
    lines = lines.splitlines()
    assert len({len(line) for line in lines}) == 1, "columns are not aligned"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["model", "size", "params", "backend", "threads", "fa", "test", "t/s"]
    assert re.fullmatch(r"[|: -]+", lines[1])
    assert [row[6] for row in cells[2:]] == ["pp8", "tg2", "pp4+tg2", "pp8 @ d8", "tg2 @ d8", "pp4+tg2 @ d8"]
    for row in cells[2:]:
        assert row[:6] == ["llama 256M Q4_1", "92.10 MiB", "134.52 M", "CPU", "1", "1"]
        assert re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", row[7])
    assert footer.startswith("build: strata-hip ") and "all rows: n_ubatch 512, type_k f16, type_v f16\n" in footer


def check_numbers(row: dict) -> None:
    """The means and deviations are those of the samples."""
    rates = [1e9 * (row["n_prompt"] + row["n_gen"]) / sample for sample in row["samples_ns"]]
    assert len(rates) == 3
    assert row["samples_ts"] == pytest.approx(rates, rel=1e-5)
    assert row["avg_ts"] == pytest.approx(statistics.mean(rates), rel=1e-5)
    assert row["stddev_ts"] == pytest.approx(statistics.stdev(rates), rel=1e-4, abs=1e-5)
    assert row["avg_ns"] == pytest.approx(statistics.mean(row["samples_ns"]), abs=1)
    assert row["stddev_ns"] == pytest.approx(statistics.stdev(row["samples_ns"]), abs=1)


# What is asked of both benches. The columns that may differ: build, times, and what a device that is or is not loaded is called.
SAME = ["-p", "16", "-n", "3", "-pg", "8,2", "-d", "0,4", "-r", "3", "-t", "1", "-ctk", "q8_0", "-fa", "on", "-b", "64", "-ub", "32",
        "-embd", "1", "-ot", r"blk\.1=CPU", "-ncmoe", "1", "--poll", "10", "-C", "0x3", "-lm", "mmap", "-nkvo", "1", "-ts", "3/1",
        "--repack", "0", "-dev", "none"]
DIFFER = {"build_commit", "build_number", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts", "gpu_info",
          "backends"}


@pytest.mark.timeout(900)
def test_columns_and_arithmetic_of_the_real_llama_bench(toy):
    """The same model, the same flags: the same columns with the same values in the same order; and our arithmetic gives, from the times
    that llama-bench measured, the rates and deviations that it printed."""
    real, ours = {}, {}
    for form, on_stderr in (("json", "csv"), ("md", "sql")):
        formats = ["-o", form, "-oe", on_stderr]
        done = subprocess.run([tool("llama-bench"), "-m", toy, *SAME, *formats], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        real[form], real[on_stderr] = done.stdout, done.stderr
        done = bench_of(toy, "--backend", "cpu", *SAME, *formats)
        assert done.returncode == 0, done.stderr
        ours[form], ours[on_stderr] = done.stdout, done.stderr
    theirs, mine = json.loads(real["json"]), json.loads(ours["json"])
    assert len(theirs) == len(mine) == 6
    for expected, got in zip(theirs, mine):
        assert [*got][:len(expected)] == [*expected] and [*got][len(expected):] == list(bench_tables.PROVENANCE)
        assert {key: got[key] for key in {*expected} - DIFFER} == {key: expected[key] for key in {*expected} - DIFFER}
        computed = bench.rates(expected["n_prompt"] + expected["n_gen"], expected["samples_ns"])
        assert computed["samples_ts"] == pytest.approx(expected["samples_ts"], rel=1e-5)
        assert computed["avg_ts"] == pytest.approx(expected["avg_ts"], rel=1e-5)
        assert computed["stddev_ts"] == pytest.approx(expected["stddev_ts"], rel=1e-3, abs=1e-3)
        assert computed["avg_ns"] == expected["avg_ns"]
    titles = [next(line for line in text.splitlines() if line.startswith("build_commit")).split(",") for text in (ours["csv"], real["csv"])]
    assert titles[0] == titles[1] + list(bench_tables.PROVENANCE)
    headers = [[cell.strip() for cell in text.splitlines()[0].strip("|").split("|")] for text in (ours["md"], real["md"])]
    assert headers[0] == headers[1]
    tests = [re.findall(r"\S*(?:pp|tg)\d+\S*(?: @ d\d+)?", text) for text in (ours["md"], real["md"])]
    assert tests[0] == tests[1] and len(tests[0]) == 6
    tables = [re.search(r"INSERT INTO llama_bench \((.*?)\)", text)[1] for text in (ours["sql"], real["sql"])]
    assert tables[0] == ", ".join([tables[1], *bench_tables.PROVENANCE])


def test_json_and_json_lines():
    array = json.loads(run("-o", "json"))
    lines = [json.loads(line) for line in run("-o", "jsonl").splitlines()]
    for rows in (array, lines):
        assert [(row["n_prompt"], row["n_gen"]) for row in rows] == [(8, 0), (0, 2)]
        for row in rows:
            assert list(row) == [*bench_tables.FIELDS, "samples_ns", "samples_ts", *bench_tables.PROVENANCE]
            assert row["no_kv_offload"] is False and row["backends"] == "CPU" and row["n_threads"] == 1
            check_numbers(row)


def test_csv():
    rows = list(csv.DictReader(io.StringIO(run("-o", "csv"))))
    assert list(rows[0]) == list(bench_tables.ALL_FIELDS)
    assert [(row["n_prompt"], row["n_gen"]) for row in rows] == [("8", "0"), ("0", "2")]


def test_sql():
    database = sqlite3.connect(":memory:")
    database.executescript(run("-o", "sql"))
    rows = database.execute("SELECT n_prompt, n_gen, avg_ts, model_type FROM llama_bench").fetchall()
    assert [row[:2] for row in rows] == [(8, 0), (0, 2)]
    assert all(row[2] > 0 and row[3] == "llama 256M Q4_1" for row in rows)


def test_quotes_in_values_survive():
    row = bench_tables.Row({field: 0 for field in bench_tables.ALL_FIELDS}, [1], [1.0])
    row.values["model_filename"] = name = "it's a \"model\"\\.gguf"
    out = io.StringIO()
    for form in ("csv", "sql", "jsonl"):
        printer = bench_tables.printer(form, out, options(), "CPU", NOWHERE)
        printer.header()
        printer.row(row)
        text = out.getvalue()
        if form == "csv":
            assert next(csv.DictReader(io.StringIO(text)))["model_filename"] == name
        elif form == "sql":
            database = sqlite3.connect(":memory:")
            database.executescript(text)
            assert database.execute("SELECT model_filename FROM llama_bench").fetchone() == (name,)
        else:
            assert json.loads(text)["model_filename"] == name
        out.seek(0)
        out.truncate()


def test_results_carry_what_made_them(toy, tmp_path):
    """Markdown, JSON and the picture of one run on the emulator."""
    picture = tmp_path / "depth.svg"
    command = [sys.executable, "-m", "strata_hip.cli", "bench", "-m", str(toy), "-p", "4", "-n", "1", "-d", "0,4", "-r", "1", "--no-warmup",
               "--runtime", "emulator", "-oe", "jsonl", "--plot", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ, STRATA_DISABLE="mul_mat_vec"))
    assert done.returncode == 0, done.stderr
    table, _, footer = done.stdout.partition("\n\n")
    header, _, *rows = table.splitlines()
    assert [cell.strip() for cell in header.strip("|").split("|")] == ["model", "size", "params", "backend", "ngl", "test", "t/s"]
    assert len(rows) == 4 and all("strata-hip (emulated)" in row for row in rows)
    assert "*emulated*" in footer and "emulator's" in footer and "STRATA_DISABLE=mul_mat_vec" in footer and "flash_attn auto (on)" in footer
    for line in done.stderr.splitlines():
        row = json.loads(line)
        assert row["backends"] == "strata-hip (emulated)" and row["devices"] == "STRATA0" and row["gpu_info"]
        assert row["device"].startswith("STRATA0: ") and row["runtime"] == "emulator" and row["arch"] == "gfx1151"
        assert row["emulated"] is True
        assert re.fullmatch(r"HIP \d+\.\d+\.\d+, Linux .*", row["driver_version"]) and re.fullmatch(r"[0-9a-f]{16}", row["code_objects"])
        assert row["switches"] == "STRATA_DISABLE=mul_mat_vec" and row["flash_attn"] == -1 and row["flash_attn_used"] is True
    drawn = picture.read_text()
    assert all(text in drawn for text in ("<!-- prefill -->", "<!-- decode -->", "<!-- pp4 -->", "<!-- tg1 -->"))
    assert "emulated: not the chip" in drawn


def test_flags_reach_llama_cpp(toy):
    """Of the device: experts, tensors and caches kept elsewhere make more graph splits, which is what llama.cpp's log shows with -v."""
    done = bench_of(toy, "--runtime", "emulator", "-p", "4", "-n", "0", "-r", "1", "--no-warmup", "-v", "-ot", r",blk\.2=CPU", "-fa", "on",
                    "-dev", "STRATA0", "-sm", "none", "-mg", "0", "-nopo", "1", "--no-host", "1")
    assert done.returncode == 0, done.stderr
    splits = [int(number) for number in re.findall(r"splits = (\d+)", done.stderr)]
    assert splits[0] == 2 and splits[-1] > 2
    done = bench_of(toy, "--runtime", "emulator", "-p", "4", "-n", "0", "-r", "1", "-sm", "row")
    assert done.returncode == 1 and "split buffers" in done.stderr
    done = bench_of(toy, "--runtime", "emulator", "-p", "4", "-n", "0", "-dev", "none", "-ot", "x=STRATA0")
    assert done.returncode == 1 and "'STRATA0' is none of CPU" in done.stderr


def test_devices_and_progress(toy):
    done = bench_of(toy, "--list-devices", "--runtime", "emulator")
    assert done.returncode == 0 and re.fullmatch(r"Available devices:\n  STRATA0: .*gfx1151.* \(\d+ MiB, \d+ MiB free\)\n", done.stdout)
    done = bench_of(toy, "--backend", "cpu", "-p", "4", "-n", "0", "-r", "1", "--no-warmup", "--progress", "-o", "none")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "strata-hip bench: benchmark 1/1: starting\nstrata-hip bench: benchmark 1/1: run 1/1\n"


def test_progress_bar_on_a_terminal():
    """On stderr, and only there: the table stays clean."""
    terminal, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    command = [sys.executable, "-m", "strata_hip.cli", "bench", "-m", str(models.smollm2()), *SMALL]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=end, text=True, timeout=300)
    os.set_blocking(terminal, False)
    shown = os.read(terminal, 100_000).decode()
    os.close(end)
    os.close(terminal)
    assert done.returncode == 0
    assert "pp8" in shown and "tg2" in shown and "/6" in shown
    assert len(done.stdout.partition("\n\n")[0].splitlines()) == 4 and "\r" not in done.stdout
