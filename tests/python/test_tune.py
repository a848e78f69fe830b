"""strata-hip tune: its choice of ranges, its table, and a sweep."""
import csv
import io
import json
import math
import subprocess
import sys

import pytest

from strata_hip import tune
from strata_hip.cli import main
from strata_hip.errors import StrataError
from strata_hip.tune import Entry, Point, Range
from support.ggml import TYPES, plugin
from support.paths import ROOT

TABLE = ROOT / "backend" / "ops" / "tile_columns.inc"
ENTRIES = [Entry("q8_0", (Range(12, 16), Range(56.5, 48), Range(math.inf, 128)), "somewhere"), Entry("q4_K", (Range(math.inf, 32),), "elsewhere")]


def points(*rows: tuple[float, ...], at=(1, 2, 4, 8, 16, 32)) -> list[Point]:
    """Times of J16, J32, ... for rows an expert."""
    return [Point("q8_0", where, 16, dict(zip((16, 32, 48, 64, 128), us))) for where, us in zip(at, rows)]


def test_a_better_width_makes_a_range():
    assert tune.choose_ranges(points((10, 12), (10, 11), (30, 20), (60, 40)), 0.02) == (Range(3, 16), Range(math.inf, 32))
    assert tune.choose_ranges(points((12, 10), (10, 12), (12, 10)), 0.02) == (Range(1.5, 32), Range(3, 16), Range(math.inf, 32))


def test_a_little_better_does_not():
    assert tune.choose_ranges(points((100, 101), (100, 99), (100, 101)), 0.02) == (Range(math.inf, 16),)
    assert tune.choose_ranges(points((100, 101), (100, 99), (100, 101)), 0.0) == (Range(1.5, 16), Range(3, 32), Range(math.inf, 16))
    # a little at many points is more than the margin
    assert tune.choose_ranges(points((100, 102), (101, 100), (101, 100), (101, 100)), 0.02) == (Range(1.5, 16), Range(math.inf, 32))


def test_no_division_loses_less():
    """All ways to divide six points, by trying them out."""
    times = [(10, 11, 13), (10, 9.9, 12), (12, 10, 12), (15, 15.1, 15), (20, 19, 17), (31, 30, 30)]
    found = tune.choose_ranges(points(*times), 0.03)

    def cost(chosen):
        return (sum(times[n][j] / min(times[n]) - 1 for n, j in enumerate(chosen)) + 0.03 * sum(a != b for a, b in zip(chosen, chosen[1:])))

    best = min((cost((a, b, c, d, e, f)), (a, b, c, d, e, f)) for a in range(3) for b in range(3) for c in range(3) for d in range(3)
               for e in range(3) for f in range(3))
    taken = [next(each.columns for each in found if rows <= each.rows) for rows in (1, 2, 4, 8, 16, 32)]
    assert cost([(16, 32, 48).index(columns) for columns in taken]) == pytest.approx(best[0])


def test_what_is_written_is_read():
    text = tune.write_table(ENTRIES[::-1])
    assert text.endswith("TILE_COLUMNS(Q8_0, {12, 16}, {56.5, 48}, {any, 128}) // somewhere\nTILE_COLUMNS(Q4_K, {any, 32}) // elsewhere\n")
    assert tune.read_table(text) == ENTRIES


def test_the_table_is_what_the_command_writes_and_the_plugin_takes():
    text = TABLE.read_text()
    entries = tune.read_table(text)
    assert tune.write_table(entries) == text and entries
    for entry in entries:
        lower = 0.0
        for each in entry.ranges:
            upper = each.rows if not math.isinf(each.rows) else 1e6
            for rows in (lower + 0.01, upper):
                assert plugin().strata_hip_tile_columns(TYPES[entry.type], rows) == each.columns
            lower = upper


@pytest.mark.parametrize("line", [
    "TILE_COLUMNS(Q8_0, {12, 16}) // no end", "TILE_COLUMNS(Q8_0, {12, 16}, {12, 32}, {any, 48}) // does not ascend", "TILE_COLUMNS(Q8_0, ) // none",
    "TILE_COLUMNS(Q8_0, {any, 24}) // no such J", "TILE_COLUMNS(F16, {any, 32}) // no such J", "TILE_COLUMNS(Q9_0, {any, 16}) // no type",
    "TILE_COLUMNS(F32, {any, 64}) // no choice", "TILE_COLUMNS(Q8_0, {any, 16} {any, 32}) // no comma", "TILE_COLUMNS(Q8_0, {any, 16})", "#include",
    "TILE_COLUMNS(Q8_0, {any, 16}) // once\nTILE_COLUMNS(Q8_0, {any, 16}) // twice"])
def test_other_tables_are_refused(line):
    with pytest.raises(StrataError, match="line 4|line 5"):
        tune.read_table(tune.HEADER + "\n" * (3 - tune.HEADER.count("\n")) + line)


def swept(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "strata_hip.cli", "tune", "--runtime", "emulator", *arguments], capture_output=True, text=True, timeout=300)


SMALL = ("--type", "q8_0,f16", "--rows", "4,20", "--shape", "128x256", "--experts", "8", "--used", "2")


def test_a_sweep(tmp_path):
    file = tmp_path / "table.inc"
    file.write_text(tune.write_table([ENTRIES[1], ENTRIES[0]]))
    done = swept(*SMALL, "-o", "json", "--write", str(file))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(each["type"], each["rows"]) for each in told["points"]] == [("q8_0", 4), ("q8_0", 20), ("f16", 4), ("f16", 20)]
    assert told["modelled"] is True
    for each in told["points"]:
        assert list(each["us"]) == (["16", "32", "48", "64", "128"] if each["type"] == "q8_0" else ["16", "64"])
        assert min(each["us"].values()) > 1 and len(set(each["us"].values())) > 1
        assert each["us"][str(each["best"])] == min(each["us"].values()) and str(each["table"]) in each["us"]
    written = {entry.type: entry for entry in tune.read_table(file.read_text())}
    assert set(written) == {"q8_0", "f16", "q4_K"} and written["q4_K"] == ENTRIES[1]
    assert written["q8_0"].origin == "128x256, top-2 of 8, 4 to 20 rows, 2%: gfx1151, modelled, 3 M instructions a launch"
    for type, ranges in told["ranges"].items():
        assert [[None if math.isinf(each.rows) else each.rows, each.columns] for each in written[type].ranges] == ranges


def test_dense_products_and_repeated_times():
    """The same times again: each run begins with empty caches."""
    arguments = ("--op", "MUL_MAT", "--type", "q4_K", "--rows", "20,60", "--shape", "2048x256", "--tiles", "32,64")
    table, *others = (swept(*arguments, "-o", output).stdout for output in ("csv", "csv", "md"))
    assert table == others[0]
    rows = list(csv.DictReader(io.StringIO(table)))
    assert len(rows) == 4 and all(row["op"] == "MUL_MAT" and row["modelled"] == "1" for row in rows)
    assert [row["columns"] for row in rows if row["table"] == "1"] == ["32", "64"]
    assert "Modelled time on the emulator" in others[1] and "| q4_K | 60 |" in others[1] and "All J gave the same bits" in others[1]


@pytest.mark.parametrize("arguments, words", [
    (["--type", "q9_9"], "'q9_9' is no type"), (["--type", "f32"], "'f32' is no type"), (["--type", "i32"], "'i32' is no type"),
    (["--shape", "512x100"], "100 is no multiple"), (["--experts", "4"], "8 of 4 experts"), (["--rows", "3", "--experts", "9"], "no number of tokens"),
    (["--rows", "1", "--experts", "8"], "take more experts"), (["--op", "MUL_MAT", "--rows", "8,16"], "no tiles"),
    (["--op", "MUL_MAT", "--rows", "16", "--write", "x"], "by a rule"), (["--tiles", "16,24"], "kernels of 16, 32, 48, 64, 128 columns"), (["--write", "/dev/zero/table"], "/dev/zero is no folder")])
def test_what_cannot_be_run(arguments, words, capsys):
    assert main(["tune", "--runtime", "emulator", *arguments]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments, words", [
    (["--shape", "512"], "no shape"), (["--shape", "0x32"], "no shape"), (["--rows", "x"], "no list of numbers"), (["--rows", "0"], "at least 1"),
    (["--experts", "0"], "--experts: at least 1"), (["--used", "-1"], "--used: at least 1"), (["--margin", "-1"], "--margin"),
    (["--op", "ADD"], "invalid choice"), (["-o", "xml"], "invalid choice")])
def test_wrong_usage(arguments, words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tune", *arguments])
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_a_file_that_is_no_table_stays(tmp_path, capsys):
    file = tmp_path / "notes.txt"
    file.write_text("not a table\n")
    assert main(["tune", "--runtime", "emulator", "--write", str(file)]) == 1
    assert "no line of a table" in capsys.readouterr().err and file.read_text() == "not a table\n"


def test_other_bits_are_told(monkeypatch):
    """A plugin whose kernels disagree: the sweep stops, and nothing stays forced."""
    sweep = tune._Sweep.__new__(tune._Sweep)
    sweep.options, sweep.type, sweep.products, sweep._graphs = tune.Options(rows=(4,)), "f16", ["product"], ["graph"]
    results = iter([b"1234", b"1235"])
    sweep.graph = type("", (), {"raw": lambda self, tensor: memoryview(next(results))})()
    clock = type("", (), {"run": lambda self, compute, evict: None})()
    monkeypatch.setattr(tune, "plugin_functions", plugin)
    with pytest.raises(StrataError, match="J64 gives other bits than J16"):
        sweep.run(clock, lambda text: None)
    assert plugin().strata_hip_tile_columns(TYPES["f16"], 1.0) == 16
