"""Loading the plugin: which library it takes, and what it says when it cannot work. Every case runs in its own process and
must leave it alive."""
import json
import os
import pathlib
import shutil
import tempfile

import pytest

from support import fakes
from support.libraries import library_dir
from support.process import run_python

LOAD = """
from support import ggml
ggml.lib.ggml_log_set(ggml.ffi.NULL, ggml.ffi.NULL)  # to stderr; llama_cpp leaves most of it out
try:
    ggml.plugin()
    print("loaded")
except ggml.PluginError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def fake_hip(tmp_path_factory) -> pathlib.Path:
    """A HIP library whose devices come from the environment."""
    return fakes.fake_hip(tmp_path_factory.mktemp("fake"))


def no_driver(tmp_path) -> dict:
    """Variables that show the plugin a machine without AMD's driver."""
    return {"STRATA_KFD_ROOT": tmp_path / "none", "STRATA_KFD_DEVICE": tmp_path / "none" / "kfd"}


def driver(tmp_path, *versions: int) -> dict:
    """Variables that show the plugin a machine with these gfx_target_versions (0 is a CPU)."""
    for index, version in enumerate(versions):
        node = tmp_path / "kfd" / "topology" / "nodes" / str(index)
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 0\nsimd_count 80\ngfx_target_version {version}\nvendor_id 4098\n")
    (tmp_path / "device").touch()
    return {"STRATA_KFD_ROOT": tmp_path / "kfd", "STRATA_KFD_DEVICE": tmp_path / "device"}


@pytest.mark.parametrize("runtime", [None, "auto", "hip"])
def test_without_gpu_nothing_is_chosen_silently(tmp_path, runtime):
    result = run_python(LOAD + "print('devices', [ggml.ffi.string(ggml.lib.ggml_backend_dev_name(ggml.lib.ggml_backend_dev_get(i)))"
                        " for i in range(ggml.lib.ggml_backend_dev_count())])",
                        **{"STRATA_RUNTIME": runtime or "", "ROCM_PATH": tmp_path / "rocm", "LD_LIBRARY_PATH": None, **no_driver(tmp_path)})
    text = result.stdout
    assert "no usable AMD GPU" in text
    for name in ("libamdhip64.so.7", "libamdhip64.so.6", f"{tmp_path}/rocm/lib/libamdhip64.so", "cannot open shared object file"):
        assert name in text, name
    assert f"{tmp_path}/none/kfd does not exist" in text and "amdgpu driver" in text
    for hint in ("STRATA_RUNTIME=emulator", 'device="emulator"', "--runtime emulator"):
        assert hint in text, hint
    assert "devices [b'CPU']" in text
    assert "no usable AMD GPU" in result.stderr  # also in ggml's log


def test_unknown_runtime():
    text = run_python(LOAD, STRATA_RUNTIME="vulkan").stdout
    assert "STRATA_RUNTIME=vulkan" in text and "auto, hip or emulator" in text


def test_missing_emulator_library(tmp_path):
    text = run_python(LOAD, STRATA_RUNTIME="emulator", STRATA_EMULATOR_LIBRARY=tmp_path / "gone.so").stdout
    assert "emulator cannot be used" in text and str(tmp_path / "gone.so") in text


def test_named_hip_library_is_the_only_one_tried(tmp_path):
    text = run_python(LOAD, STRATA_RUNTIME="hip", STRATA_HIP_LIBRARY=tmp_path / "mine.so").stdout
    assert str(tmp_path / "mine.so") in text and "libamdhip64.so.7" not in text


def test_library_without_devices(fake_hip, tmp_path):
    text = run_python(LOAD, STRATA_RUNTIME="hip", STRATA_HIP_LIBRARY=fake_hip, FAKE_HIP_ARCHS="", **no_driver(tmp_path)).stdout
    assert "lists no device" in text and str(fake_hip) in text


def test_failing_initialisation_is_named(fake_hip, tmp_path):
    text = run_python(LOAD, STRATA_RUNTIME="hip", STRATA_HIP_LIBRARY=fake_hip, FAKE_HIP_FAIL="hipInit:2", **no_driver(tmp_path)).stdout
    assert "hipInit failed: hipErrorOutOfMemory" in text


def test_old_hip_is_refused_by_version(fake_hip, tmp_path):
    text = run_python(LOAD, STRATA_RUNTIME="hip", STRATA_HIP_LIBRARY=fake_hip, FAKE_HIP_ARCHS="gfx1151", FAKE_HIP_VERSION="50731921",
                      **no_driver(tmp_path)).stdout
    assert "HIP 5.7.31921, too old" in text and "ROCm 6.2" in text


def test_library_with_a_function_missing(tmp_path):
    library = fakes.fake_hip(tmp_path, "-DFAKE_HIP_WITHOUT_LAUNCH")
    text = run_python(LOAD, STRATA_RUNTIME="hip", STRATA_HIP_LIBRARY=library, FAKE_HIP_ARCHS="gfx1151", **no_driver(tmp_path)).stdout
    assert "it lacks hipModuleLaunchKernel" in text and "ROCm 6.2" in text


def test_arch_without_code_object_is_refused_by_name(fake_hip, tmp_path):
    text = run_python(LOAD, STRATA_RUNTIME="hip", STRATA_HIP_LIBRARY=fake_hip, FAKE_HIP_ARCHS="gfx1150", **driver(tmp_path, 0, 110500)).stdout
    assert "gfx1150" in text and "no code objects" in text and "gfx1151" in text and "STRATA_RUNTIME=emulator" in text


def test_supported_device_beside_an_unsupported_one(fake_hip):
    text = run_python(LOAD + "print(ggml.ffi.string(ggml.plugin().strata_hip_device_json()).decode())",
                      STRATA_RUNTIME="hip", STRATA_HIP_LIBRARY=fake_hip, FAKE_HIP_ARCHS="gfx1100,gfx1151").stdout
    description = json.loads(text.splitlines()[-1])
    assert [(each["name"], each["arch"], each["device_id"]) for each in description["devices"]] == [("STRATA0", "gfx1151", "0000:c1:00.0")]
    assert description["runtime"] == "hip" and description["library"] == str(fake_hip)
    assert description["devices"][0]["compute_units"] == 40
    assert description["devices"][0]["memory_free"] == 3 << 30 and description["devices"][0]["memory_total"] == 4 << 30
    assert {each["target"] for each in description["code_objects"]} == {"gfx1151"} and len(description["code_objects"]) > 5


@pytest.mark.parametrize("version, name", [(110501, "gfx1151"), (90010, "gfx90a"), (120001, "gfx1201"), (100300, "gfx1030")])
def test_driver_archs_are_listed(tmp_path, version, name):
    text = run_python(LOAD, STRATA_RUNTIME="auto", STRATA_HIP_LIBRARY=tmp_path / "gone.so", **driver(tmp_path, 0, version)).stdout
    assert f"{tmp_path}/device is accessible; GPUs listed in {tmp_path}/kfd/topology/nodes: {name}." in text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_user_outside_the_render_group():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        variables = driver(root, 0, 110501)
        root.chmod(0o755)
        (root / "device").chmod(0o660)
        for name in ("libggml-strata-hip.so", "ggml_declarations.h"):
            shutil.copy(library_dir() / name, root)  # where the other user can read it
        code = """
from support import ggml
import os
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
""" + LOAD
        text = run_python(code, STRATA_RUNTIME="auto", STRATA_HIP_LIBRARY=root / "gone.so", STRATA_LIBRARY_DIR=root, **variables).stdout
        assert "may not open it" in text and "usermod -aG render,video" in text and "gfx1151" in text


def test_a_failed_start_can_be_repeated(fake_hip):
    result = run_python(LOAD + """
import os
os.environ["STRATA_RUNTIME"] = "hip"
print(ggml.ffi.string(ggml.lib.ggml_backend_dev_name(ggml.device())).decode())
""", STRATA_RUNTIME="nonsense", STRATA_HIP_LIBRARY=fake_hip, FAKE_HIP_ARCHS="gfx1151")
    assert "STRATA_RUNTIME=nonsense" in result.stdout and result.stdout.endswith("STRATA0\n")


def test_the_plugin_takes_the_ggml_of_the_process(fake_hip):
    text = run_python(LOAD + """
print(len({line.split()[-1] for line in open("/proc/self/maps") if "libggml-base" in line}))
""", STRATA_RUNTIME="hip", STRATA_HIP_LIBRARY=fake_hip, FAKE_HIP_ARCHS="gfx1151").stdout
    assert text == "loaded\n1\n"


START = """
import ctypes
plugin = ctypes.CDLL({plugin!r})
plugin.ggml_backend_init.restype = ctypes.c_void_p
plugin.strata_hip_last_error.restype = ctypes.c_char_p
print(plugin.ggml_backend_init(), plugin.strata_hip_last_error().decode())
"""


def start_with(folder: pathlib.Path, definitions: str) -> str:
    """What ggml_backend_init returns and says in a process whose ggml has these functions."""
    fakes.fake_ggml(folder, definitions)
    return run_python(START.format(plugin=str(library_dir() / "libggml-strata-hip.so")), LD_LIBRARY_PATH=folder, STRATA_RUNTIME="emulator").stdout


def test_another_ggml_version_is_refused(tmp_path):
    text = start_with(tmp_path, 'const char *ggml_version(void) { return "0.26.1"; }')
    assert text.startswith("None ") and "built for ggml 0.25.3" in text and "this process has ggml 0.26.1" in text
    assert "llama-cpp-python 0.3.36" in text


def test_another_layout_of_the_same_version_is_refused(tmp_path):
    text = start_with(tmp_path, 'const char *ggml_version(void) { return "0.25.3"; }\n'
                                'unsigned long ggml_tensor_overhead(void) { return 400; }')
    assert text.startswith("None ") and "ggml_tensor size differs (368 here, 400 there)" in text


def test_another_list_of_operations_is_refused(tmp_path):
    text = start_with(tmp_path, 'const char *ggml_version(void) { return "0.25.3"; }\n'
                                'unsigned long ggml_tensor_overhead(void) { return 368; }\n'
                                'unsigned long ggml_graph_overhead_custom(unsigned long size, int grads) { return 160; }\n'
                                'const char *ggml_op_name(int op) { return "NONE"; }')
    assert text.startswith("None ") and "list of operations differs" in text
