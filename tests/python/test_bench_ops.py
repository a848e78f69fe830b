"""strata-hip bench-ops: its cases, its tables, and with a stock backend built, a comparison."""

import csv
import io
import json
import re

import pytest

from strata_hip import bench_ops, calibrate
from strata_hip.cli import main
from strata_hip.errors import StrataError
from support import peer

LAUNCH = {"kernel": "k", "waves": 2, "instructions": {"valu": 7, "total": 10},
          "global": {"load_bytes": 100, "store_bytes": 28, "lines": {"launch": 3}}}
TIMED = [bench_ops.measure([LAUNCH | {"modelled": {"us": 3.0, "share": share}} for share in shares], 0) for shares in ((1.0, 0.25), (1.0,))]
ROWS = [
    bench_ops.Row("MUL_MAT", "small", bench_ops.measure([LAUNCH, LAUNCH, LAUNCH], 0), bench_ops.measure([LAUNCH], 0), 1e-9),
    bench_ops.Row("MUL_MAT", "by hipBLAS", bench_ops.measure([LAUNCH], 1), bench_ops.measure([LAUNCH], 0), 0.0),
    bench_ops.Row("OTHER", "refused", bench_ops.measure([LAUNCH], 0), None, None),
]


def printed(form: str) -> str:
    out = io.StringIO()
    bench_ops.PRINTERS[form](ROWS, out)
    return out.getvalue()


def test_measures_add_up():
    stock = ROWS[0].stock
    assert (stock.launches, stock.waves, stock.instructions, stock.requested_bytes, stock.line_bytes) == (3, 6, 30, 384, 9 * 128)
    assert stock.kernels == {"k": {"waves": 6, "valu": 21, "total": 30}}
    assert ROWS[0].ratio("instructions") == 3 and ROWS[1].ratio("instructions") is None and ROWS[2].ratio("instructions") is None
    assert ROWS[0].ratio("modelled_us") is None


def test_markdown():
    lines = printed("md").splitlines()
    assert len({len(line) for line in lines[:5]}) == 1  # columns line up
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:5]]
    assert cells[0] == ["MUL_MAT", "small", "3 / 1", "30", "10", "3.00", "384", "128", "3.00"]
    assert cells[1][3:6] == ["10 + hipBLAS", "10", "-"]
    assert cells[2][2:6] == ["1 / -", "10", "-", "-"]


def test_modelled_times_say_how_much_was_simulated():
    out = io.StringIO()
    bench_ops.PRINTERS["md"]([bench_ops.Row("MUL_MAT", "large", *TIMED, None)], out)
    assert "|                 6 |    3 |  2.00 |" in out.getvalue() and "25.0% of the instructions at least." in out.getvalue()
    published = calibrate.Published("MUL_MAT(large)", 5.0)
    lines = [calibrate.Line(published, side.modelled_us, side.launches, side.simulated) for side in TIMED]
    out = io.StringIO()
    calibrate.PRINTERS["md"](lines, out)
    assert "| MUL_MAT(large) | 2 | 5 us | 6 us | 1.20 | 25.0% |" in out.getvalue() and "1 of 2 within 25 %" in out.getvalue()


def test_csv_and_json():
    rows = list(csv.DictReader(io.StringIO(printed("csv"))))
    assert rows[0]["stock_instructions"] == "30" and rows[0]["ours_launches"] == "1" and rows[0]["ratio_instructions"] == "3.0"
    assert rows[1]["stock_blas"] == "1" and rows[1]["ratio_instructions"] == "" and rows[2]["ours_instructions"] == ""
    described = json.loads(printed("json"))
    assert described[0]["ratio"]["requested_bytes"] == 3 and described[2]["ours"] is None


def test_cases_have_names_of_their_own(capsys):
    names = [case.name for case in bench_ops.cases()]
    assert len(set(names)) == len(names) > 150
    assert main(["bench-ops", "-l", "--op", "MUL_MAT", "-p", "^q4_K"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed and all(re.match(r"MUL_MAT\(q4_K ", name) for name in listed)


@pytest.mark.parametrize("arguments,message", [(["--op", "NO_OP"], "no case matches"), (["-p", "("], "not a regular expression"),
                                               (["--op", "MUL_MAT", "--stock", "/nowhere/libggml-hip.so"], "build_stock_hip.py")])
def test_wrong_use(arguments, message, capsys):
    assert main(["bench-ops", *arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.skipif(peer.library() is None, reason="stock ggml-hip is not built: run tests/bench/peer/build_stock_hip.py")
def test_a_comparison():
    wanted = bench_ops.chosen("MUL_MAT,RMS_NORM", "64x2048, 1 col|2048 x 1$", False)
    rows = bench_ops.compare(wanted, peer.library())
    assert len(rows) == len(wanted) >= 4
    for row in rows:
        assert row.stock.instructions > 0 and row.ours.instructions > 0 and row.nmse < 1e-6
    again = bench_ops.compare(wanted, peer.library())
    assert again == rows


def test_a_comparison_without_its_library(tmp_path):
    with pytest.raises(StrataError):
        bench_ops.stock_library(str(tmp_path / "libggml-hip.so"))
