"""`strata-hip bench`: flags, tests and tables are llama-bench's."""
import csv
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

from strata_hip import bench, bench_tables, cli, models
from support.paths import llama_cpp_source

SMALL = ["-p", "8", "-n", "2", "-r", "3", "--no-warmup", "--backend", "cpu", "-t", "1"]


def options(*arguments: str) -> bench.Options:
    return cli.bench_options(cli.parse(["bench", "-m", "model.gguf", *arguments]))


def run(*arguments: str) -> str:
    """The output of a small bench of SmolLM2 on the CPU."""
    command = [sys.executable, "-m", "strata_hip.cli", "bench", "-m", str(models.smollm2()), *SMALL, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "neither a log nor a progress bar belongs where no terminal is"
    return done.stdout


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
    for condition, width in re.findall(r"if \((.*?)\) \{\s*return (-?\d+);", widths, re.S):
        for name in set(re.findall(r'"([\w/]+)"', condition)) & set(bench_tables.WIDTHS):
            assert bench_tables.WIDTHS[name] == int(width), name
    for name, title in re.findall(r'field == "(\w+)"\) \{\s*return "(\w+)"', titles):
        if name in bench_tables.WIDTHS:
            assert bench_tables.TITLES.get(name, name) == title


@pytest.mark.parametrize("text,values", [
    ("512", [512]), ("1,2,8", [1, 2, 8]), ("1-4", [1, 2, 3, 4]), ("10-30+10", [10, 20, 30]), ("1-16*2", [1, 2, 4, 8, 16]),
    ("0", [0]), ("3,5-6", [3, 5, 6]), ("5-7+3", [5])])
def test_ranges(text, values):
    assert bench.int_range(text) == values


@pytest.mark.parametrize("text", ["", "x", "1,,2", "-1", "1-8*1", "1-8+0", "0-8*2", "4-1", "1 2", "1-2-3"])
def test_bad_ranges(text):
    with pytest.raises(ValueError):
        bench.int_range(text)


def test_every_combination_once_in_llama_benchs_order():
    wanted = options("-p", "16,32", "-n", "4", "-pg", "8,2", "-ub", "64,128", "-fa", "on,off", "-ngl", "-1,0", "-d", "0,100")
    got = list(bench.cases(wanted))
    assert len(got) == 2 * 2 * 2 * 2 * 4
    assert len(set(map(str, got))) == len(got)
    assert [(c.n_prompt, c.n_gen) for c in got[:4]] == [(16, 0), (32, 0), (0, 4), (8, 2)]
    assert [c.n_gpu_layers for c in got] == [-1] * 32 + [0] * 32
    assert [c.n_depth for c in got[:8]] == [0] * 4 + [100] * 4


def test_defaults():
    wanted = options()
    assert (wanted.n_prompt, wanted.n_gen, wanted.n_batch, wanted.n_ubatch, wanted.repetitions) == ([512], [128], [2048], [512], 5)
    assert (wanted.flash_attn, wanted.type_k, wanted.n_gpu_layers, wanted.n_depth) == ([-1], ["f16"], [-1], [0])


def test_repeated_flags_add_up_and_zero_drops_a_test():
    wanted = options("-p", "16", "-p", "32", "-n", "0")
    assert [(c.n_prompt, c.n_gen) for c in bench.cases(wanted)] == [(16, 0), (32, 0)]


@pytest.mark.parametrize("arguments", [["-p", "x"], ["-ctk", "q9_9"], ["-fa", "maybe"], ["-pg", "1"], ["-pg", "a,b"],
                                       ["-pg", "-8,4"], ["-b", "0"], ["-b", "8,0"], ["-r", "0"], ["-o", "xml"]])
def test_bad_flags_end_with_usage(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        options(*arguments)
    assert end.value.code == 2
    assert arguments[0].strip("-")[0] in capsys.readouterr().err


def test_a_missing_model_is_told_before_any_output():
    done = subprocess.run([sys.executable, "-m", "strata_hip.cli", "bench", "-m", "/no/such.gguf", "--backend", "cpu", "-o", "json"],
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "") and "/no/such.gguf" in done.stderr


def test_markdown():
    lines = run("-pg", "4,2", "-d", "0,8", "-fa", "on").splitlines()
    assert len({len(line) for line in lines}) == 1, "columns are not aligned"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["model", "size", "params", "backend", "threads", "fa", "test", "t/s"]
    assert re.fullmatch(r"[|: -]+", lines[1])
    assert [row[6] for row in cells[2:]] == ["pp8", "tg2", "pp4+tg2", "pp8 @ d8", "tg2 @ d8", "pp4+tg2 @ d8"]
    for row in cells[2:]:
        assert row[:6] == ["llama 256M Q4_1", "92.10 MiB", "134.52 M", "CPU", "1", "1"]
        assert re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", row[7])


def check_numbers(row: dict) -> None:
    """The means and deviations are those of the samples."""
    rates = [1e9 * (row["n_prompt"] + row["n_gen"]) / sample for sample in row["samples_ns"]]
    assert len(rates) == 3
    assert row["samples_ts"] == pytest.approx(rates, rel=1e-5)
    assert row["avg_ts"] == pytest.approx(statistics.mean(rates), rel=1e-5)
    assert row["stddev_ts"] == pytest.approx(statistics.stdev(rates), rel=1e-4, abs=1e-5)
    assert row["avg_ns"] == pytest.approx(statistics.mean(row["samples_ns"]), abs=1)
    assert row["stddev_ns"] == pytest.approx(statistics.stdev(row["samples_ns"]), abs=1)


def test_json_and_json_lines():
    array = json.loads(run("-o", "json"))
    lines = [json.loads(line) for line in run("-o", "jsonl").splitlines()]
    for rows in (array, lines):
        assert [(row["n_prompt"], row["n_gen"]) for row in rows] == [(8, 0), (0, 2)]
        for row in rows:
            assert list(row) == [*bench_tables.FIELDS, "samples_ns", "samples_ts"]
            assert row["no_kv_offload"] is False and row["backends"] == "CPU" and row["n_threads"] == 1
            check_numbers(row)


def test_csv():
    rows = list(csv.DictReader(io.StringIO(run("-o", "csv"))))
    assert list(rows[0]) == list(bench_tables.FIELDS)
    assert [(row["n_prompt"], row["n_gen"]) for row in rows] == [("8", "0"), ("0", "2")]


def test_sql():
    database = sqlite3.connect(":memory:")
    database.executescript(run("-o", "sql"))
    rows = database.execute("SELECT n_prompt, n_gen, avg_ts, model_type FROM llama_bench").fetchall()
    assert [row[:2] for row in rows] == [(8, 0), (0, 2)]
    assert all(row[2] > 0 and row[3] == "llama 256M Q4_1" for row in rows)


def test_quotes_in_values_survive():
    row = bench_tables.Row({field: 0 for field in bench_tables.FIELDS}, [1], [1.0])
    row.values["model_filename"] = name = "it's a \"model\"\\.gguf"
    out = io.StringIO()
    for form in ("csv", "sql", "jsonl"):
        printer = bench_tables.printer(form, out, options(), "CPU")
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


def test_emulated_rows_say_so():
    command = [sys.executable, "-m", "strata_hip.cli", "bench", "-m", str(models.smollm2()), "-p", "4", "-n", "1", "-r", "1",
               "--no-warmup", "--runtime", "emulator"]
    done = subprocess.run([*command, "-o", "md"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    header, _, *rows = done.stdout.splitlines()
    assert [cell.strip() for cell in header.strip("|").split("|")] == ["model", "size", "params", "backend", "ngl", "test", "t/s"]
    assert all("strata-hip (emulated)" in row for row in rows[:2])
    assert "emulator" in rows[-1]
    done = subprocess.run([*command, "-o", "jsonl"], capture_output=True, text=True, timeout=300)
    for line in done.stdout.splitlines():
        row = json.loads(line)
        assert row["backends"] == "strata-hip (emulated)" and row["devices"] == "STRATA0" and row["gpu_info"]


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
    assert len(done.stdout.splitlines()) == 4 and "\r" not in done.stdout
