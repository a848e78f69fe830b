"""STRATA_MODEL: modelled time of kernels simple enough to be worked out by hand from the parameters of the model."""
import re
import struct

import numpy as np
import pytest

from support.assembly import kernel_image
from support.instruments import Counting, Instrumented
from support.paths import ROOT

PARAMETERS = {name: float(value.replace(" << ", "e0 * 2**").split("e0")[0]) for name, value in re.findall(
    r"^    (?:unsigned|double) (\w+) = ([\d. <]+);", (ROOT / "backend/emulator/instruments/model/parameters.h").read_text(), re.MULTILINE)}
START = PARAMETERS["launch_latency"]


class Modelling(Counting):
    def __init__(self, folder, model: str = "1", **variables):
        super().__init__(folder, STRATA_MODEL=model, **variables)

    def cycles(self, body: str, *arguments: int, grid=1, block=32, **kernel) -> float:
        """Modelled cycles of a kernel behind its start."""
        self.launch(self.kernel(kernel_image(body, pointers=len(arguments), **kernel), "probe"), grid, block,
                    struct.pack(f"<{len(arguments)}Q", *arguments))
        return self.launches()[-1]["modelled"]["us"] * PARAMETERS["clock_ghz"] * 1e3 - START


@pytest.fixture(scope="module")
def hip(tmp_path_factory):
    return Modelling(tmp_path_factory.mktemp("model"))


def lines(text: str, count: int) -> str:
    """`text` so many times, {n} a register of its own."""
    return "\n".join(text.format(n=8 + k % 200) for k in range(count))


@pytest.mark.parametrize("body, expected", [
    (lines("v_add_f32 v1, v1, v1", 200), 200 * PARAMETERS["valu_latency"]),   # each waits for the one before
    (lines("v_add_f32 v{n}, v1, v1", 200), 200),
    (lines("v_rcp_f32 v{n}, v1", 200), 200 * PARAMETERS["trans_cycles"]),
    (lines("v_wmma_f32_16x16x16_f16 v[24:31], v[8:15], v[16:23], v[32:39]", 40), 39 * PARAMETERS["wmma_cycles"]),
    (lines("v_wmma_i32_16x16x16_iu4 v[24:31], v[8:9], v[16:17], v[32:39]", 40), 39 * PARAMETERS["wmma_iu4_cycles"]),
    (lines("s_add_u32 s8, s8, s9", 200), 200 * PARAMETERS["salu_latency"]),
    ("v_mov_b32 v1, 0\n" + lines("ds_load_b32 v2, v1\ns_waitcnt lgkmcnt(0)", 20), 20 * (PARAMETERS["lds_latency"] + 2)),
], ids=["dependent", "independent", "transcendental", "wmma", "wmma iu4", "scalar", "lds"])
def test_one_wave(hip, body, expected):
    cycles = hip.cycles(body, lds=256)
    print(f"{cycles:.1f} cycles, {expected} expected")
    assert expected - 10 <= cycles <= expected * 1.03 + 10


def test_waves_of_a_simd_fill_each_others_gaps(hip):
    """Up to five waves of additions that each wait for the one before take no longer than one; eight take what they issue."""
    body = lines("v_add_f32 v1, v1, v1", 400)
    alone, four, eight = (hip.cycles(body, block=32 * 4 * waves) for waves in (1, 4, 8))
    print(alone, four, eight)
    assert four / alone == pytest.approx(1, rel=0.05)
    assert eight / alone == pytest.approx(8 / PARAMETERS["valu_latency"], rel=0.05)


def test_a_load_from_memory_and_again_from_the_l2(tmp_path):
    hip = Modelling(tmp_path)  # a chip of its own: its L2 has nothing of other launches
    data = hip.upload(np.zeros(32, np.uint32))
    body = "s_load_b64 s[8:9], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\ns_waitcnt lgkmcnt(0)\nglobal_load_b32 v2, v1, s[8:9]\ns_waitcnt vmcnt(0)"
    first, second = hip.cycles(body, data), hip.cycles(body, data)
    print(first, second)
    # The scalar load of the argument, and then the vector load.
    assert abs((first - second) - 2 * (PARAMETERS["dram_latency"] - PARAMETERS["l2_latency"])) < 10
    hip.synchronize()
    hip.raw.strata_emulator_model_cold.restype = None
    hip.raw.strata_emulator_model_cold()
    assert hip.cycles(body, data) == first and hip.cycles(body, data) == second


READ = """
    s_load_b64 s[8:9], s[0:1], 0x0
    s_lshl_b32 s12, s2, 12
    v_lshl_add_u32 v1, v0, 4, s12
    s_waitcnt lgkmcnt(0)
    global_load_b128 v[4:7], v1, s[8:9]
    s_waitcnt vmcnt(0)"""


def test_reading_much_runs_at_the_rate_of_dram(hip):
    megabytes = 16
    data = hip.upload(np.zeros(megabytes << 18, np.uint32))
    cycles = hip.cycles(READ, data, grid=megabytes << 8, block=256)
    rate = (megabytes << 20) / cycles
    print(f"{rate:.1f} bytes a cycle")
    assert 0.8 * PARAMETERS["dram_bytes"] < rate <= PARAMETERS["dram_bytes"] * 1.01
    memory = hip.launches()[-1]["modelled"]
    assert memory["dram_bytes"] == pytest.approx(megabytes << 20, rel=0.01)
    assert memory["busy"]["dram"] > 0.8


def test_the_same_on_every_run_and_for_any_number_of_threads(tmp_path_factory):
    def times(**variables) -> list[float]:
        hip = Modelling(tmp_path_factory.mktemp("threads"), **variables)
        data = hip.upload(np.zeros(1 << 20, np.uint32))
        return [hip.cycles(READ + lines("\nv_add_f32 v1, v1, v1", 100), data, grid=1024, block=256) for _ in range(2)]

    assert times(STRATA_EMULATOR_THREADS="1") == times(STRATA_EMULATOR_THREADS="4") == times()


def test_a_sample_stands_for_a_large_launch(hip):
    body = lines("v_add_f32 v1, v1, v1", 500)
    some = hip.cycles(body, grid=20 * 8 * 4, block=256)
    many = hip.cycles(body, grid=20 * 8 * 64, block=256)
    share = hip.launches()[-1]["modelled"]["share"]
    print(some, many, share)
    assert share < 0.5
    assert many / some == pytest.approx(16, rel=0.05)


def test_variants(tmp_path_factory, capfd):
    hip = Modelling(tmp_path_factory.mktemp("variants"), "1;valu_latency=10;valu_latncy=3,trans_cycles=-1")
    hip.cycles(lines("v_add_f32 v1, v1, v1", 200))
    launch = hip.launches()[-1]
    ten, unchanged = (us * PARAMETERS["clock_ghz"] * 1e3 - START for us in launch["variants_us"])
    assert ten == pytest.approx(2000, rel=0.02)
    assert unchanged == pytest.approx(200 * PARAMETERS["valu_latency"], rel=0.02)
    told = capfd.readouterr().err
    assert "valu_latncy=3 is not a parameter" in told and "trans_cycles=-1 is not a parameter" in told


def test_it_needs_a_file(tmp_path, capfd):
    Instrumented(tmp_path, STRATA_MODEL="1")
    assert "STRATA_MODEL needs STRATA_COUNT" in capfd.readouterr().err
