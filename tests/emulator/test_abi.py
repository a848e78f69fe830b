"""The HIP ABI that the plugin and the emulator share, against facts of HIP's public headers.

The facts are those of hip/hip_runtime_api.h and hip/driver_types.h of HIP 7.1 (also found in the `triton` wheel, in
triton/backends/amd/include). Where such headers are installed, a compiler compares all of hip_abi.h with them.
"""

import ctypes
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from support.compile import ROOT, find_clang
from support.hip import HipError
from support.libraries import emulator_library

HEADER = ROOT / "backend" / "runtime" / "hip_abi.h"
GUEST_HEADER = ROOT / "backend" / "emulator" / "guest_abi.h"

ERRORS = {
    "hipSuccess": 0, "hipErrorInvalidValue": 1, "hipErrorOutOfMemory": 2, "hipErrorNotInitialized": 3, "hipErrorDeinitialized": 4,
    "hipErrorInvalidConfiguration": 9, "hipErrorInvalidPitchValue": 12, "hipErrorInvalidDevicePointer": 17,
    "hipErrorInvalidDeviceFunction": 98, "hipErrorIllegalState": 401, "hipErrorPeerAccessNotEnabled": 705,
    "hipErrorHostMemoryAlreadyRegistered": 712, "hipErrorHostMemoryNotRegistered": 713, "hipErrorStreamCaptureUnmatched": 903,
    "hipErrorStreamCaptureIsolation": 905, "hipErrorCapturedEvent": 907, "hipErrorGraphExecUpdateFailure": 910,
    "hipErrorInvalidMemcpyDirection": 21, "hipErrorNoDevice": 100, "hipErrorInvalidDevice": 101, "hipErrorInvalidImage": 200,
    "hipErrorInvalidContext": 201, "hipErrorNoBinaryForGpu": 209, "hipErrorFileNotFound": 301, "hipErrorInvalidHandle": 400,
    "hipErrorNotFound": 500, "hipErrorNotReady": 600, "hipErrorIllegalAddress": 700, "hipErrorLaunchOutOfResources": 701,
    "hipErrorLaunchTimeOut": 702, "hipErrorLaunchFailure": 719, "hipErrorCooperativeLaunchTooLarge": 720, "hipErrorNotSupported": 801,
    "hipErrorStreamCaptureUnsupported": 900,
    "hipErrorUnknown": 999,
}
OTHERS = {
    "hipMemcpyHostToHost": 0, "hipMemcpyHostToDevice": 1, "hipMemcpyDeviceToHost": 2, "hipMemcpyDeviceToDevice": 3, "hipMemcpyDefault": 4,
    "hipStreamNonBlocking": 1, "hipEventDefault": 0, "hipEventDisableTiming": 2, "hipHostMallocDefault": 0,
    "hipStreamCaptureModeRelaxed": 2,
}
# Of guest_abi.h, compared with HIP's headers where there are any.
GUEST_VALUES = {"hipFuncAttributeMaxDynamicSharedMemorySize": 8, "hipGraphExecUpdateSuccess": 0,
                "hipGraphExecUpdateErrorTopologyChanged": 2, "hipHostRegisterReadOnly": 8}
OVERLOADED = ["hipOccupancyMaxActiveBlocksPerMultiprocessor", "hipLaunchCooperativeKernel"]  # by templates in HIP's header
# hipDeviceProp_tR0600, 1472 bytes: member, offset, struct format, the emulated device's value (None: any).
PROPERTIES = [
    ("sharedMemPerBlock", 296, "Q", 65536), ("warpSize", 308, "i", 32), ("maxThreadsPerBlock", 320, "i", 1024),
    ("maxThreadsDim", 324, "3i", (1024,) * 3), ("maxGridSize", 336, "3i", None), ("clockRate", 348, "i", 2900000), ("major", 360, "i", 11),
    ("minor", 364, "i", 5), ("multiProcessorCount", 388, "i", 20), ("integrated", 396, "i", 1), ("canMapHostMemory", 400, "i", 1),
    ("memoryBusWidth", 612, "i", 256), ("l2CacheSize", 616, "i", 2 << 20), ("maxThreadsPerMultiProcessor", 624, "i", 2048),
    ("managedMemory", 652, "i", 0), ("maxSharedMemoryPerMultiProcessor", 1416, "Q", 65536),
]
# hipDeviceAttribute_t
ATTRIBUTES = {"Integrated": (16, 1), "ClockRate": (5, 2900000), "ComputeCapabilityMajor": (23, 11), "ComputeCapabilityMinor": (61, 5),
              "MaxThreadsPerBlock": (56, 1024), "MultiprocessorCount": (63, 20), "MaxSharedMemoryPerBlock": (74, 65536),
              "WarpSize": (87, 32), "PhysicalMultiProcessorCount": (10015, 40), "PciBusId": (67, 0xC5), "ManagedMemory": (24, 0)}


def declared_values() -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"^\s+(hip\w+) = (\d+),", HEADER.read_text(), re.MULTILINE)}


def declared_functions(header: Path = HEADER) -> list[str]:
    return re.findall(r"^    X\([^,]+, ((?:__)?hip\w+),", header.read_text(), re.MULTILINE)


def test_declared_values_are_hips():
    assert declared_values() == ERRORS | OTHERS


def test_declared_values_of_guests_are_hips():
    text = GUEST_HEADER.read_text()
    assert {name: int(re.search(rf"\b{name} = (\d+),", text)[1]) for name in GUEST_VALUES} == GUEST_VALUES


def test_every_function_is_exported_and_nothing_else():
    nm = shutil.which("nm") or shutil.which("llvm-nm") or str(Path(find_clang()).resolve().parent / "llvm-nm")
    listed = subprocess.run([nm, "-D", "--defined-only", str(emulator_library())], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1].split("@")[0] for line in listed.splitlines()}
    functions, of_guests = set(declared_functions()), set(declared_functions(GUEST_HEADER))
    assert len(functions) > 35 and functions <= names
    assert len(of_guests) > 30 and of_guests <= names and not functions & of_guests
    functions |= of_guests
    assert {name for name in names - functions if not name.startswith("strata_emulator_")} == {"hipDeviceReset"}


def test_error_names_and_texts(hip):
    for name, code in ERRORS.items():
        assert hip.raw.hipGetErrorName(code).decode() == name
        assert len(hip.raw.hipGetErrorString(code)) > 5
    assert hip.raw.hipGetErrorName(12345) == b"hipErrorUnknown"


def test_device_properties(hip):
    prop = ctypes.create_string_buffer(b"\xaa" * 1600, 1600)
    hip.call("hipGetDevicePropertiesR0600", prop, 0)
    raw = prop.raw
    assert raw[1472:] == b"\xaa" * 128  # nothing written behind the struct
    assert raw[:256].split(b"\0")[0] == b"AMD Radeon 8060S (emulated gfx1151)"
    assert raw[1160:1416].split(b"\0")[0] == b"gfx1151"
    for name, offset, kind, wanted in PROPERTIES:
        values = struct.unpack_from("<" + kind, raw, offset)
        if wanted is not None:
            assert (values if len(values) > 1 else values[0]) == wanted, name
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    hip.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    assert struct.unpack_from("<Q", raw, 288)[0] == total.value
    with pytest.raises(HipError) as error:
        hip.call("hipGetDevicePropertiesR0600", prop, 1)
    assert error.value.name == "hipErrorInvalidDevice"


def test_device_attributes(hip):
    value = ctypes.c_int()
    for name, (number, wanted) in ATTRIBUTES.items():
        hip.call("hipDeviceGetAttribute", ctypes.byref(value), number, 0)
        assert value.value == wanted, name
    with pytest.raises(HipError, match="attribute 4711"):
        hip.call("hipDeviceGetAttribute", ctypes.byref(value), 4711, 0)


def test_one_device(hip):
    value = ctypes.c_int(-1)
    hip.call("hipInit", 0)
    hip.call("hipGetDeviceCount", ctypes.byref(value))
    assert value.value == 1
    hip.call("hipSetDevice", 0)
    hip.call("hipGetDevice", ctypes.byref(value))
    assert value.value == 0
    with pytest.raises(HipError) as error:
        hip.call("hipSetDevice", 1)
    assert error.value.name == "hipErrorInvalidDevice"
    for call in ("hipDriverGetVersion", "hipRuntimeGetVersion"):
        hip.call(call, ctypes.byref(value))
        assert value.value // 100000 == 701  # major * 10000000 + minor * 100000 + patch
    bus = ctypes.create_string_buffer(13)
    hip.call("hipDeviceGetPCIBusId", bus, 13, 0)
    assert re.fullmatch(rb"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", bus.value)
    with pytest.raises(HipError, match="too small"):
        hip.call("hipDeviceGetPCIBusId", bus, 12, 0)


def test_null_pointers_for_results(hip):
    for call in (("hipMalloc", None, 4), ("hipHostMalloc", None, 4, 0), ("hipGetDeviceCount", None), ("hipMemGetInfo", None, None),
                 ("hipStreamCreateWithFlags", None, 0), ("hipEventCreateWithFlags", None, 0), ("hipModuleLoadData", None, None),
                 ("hipDriverGetVersion", None), ("hipGetDevice", None)):
        with pytest.raises(HipError, match="null pointer|result") as error:
            hip.call(*call)
        assert error.value.name == "hipErrorInvalidValue"


def hip_include() -> Path | None:
    """A directory with HIP's headers of version 6 or later, if there is one."""
    candidates = [os.environ.get("STRATA_HIP_INCLUDE"), f"{os.environ.get('ROCM_PATH', '/opt/rocm')}/include", "/usr/include"]
    for candidate in filter(None, candidates):
        version = Path(candidate) / "hip" / "hip_version.h"
        if version.exists() and int(re.search(r"HIP_VERSION_MAJOR (\d+)", version.read_text())[1]) >= 6:
            return Path(candidate)
    return None


def test_headers_agree(tmp_path):
    include = hip_include()
    if include is None:
        pytest.skip("no HIP headers of version 6 or later (STRATA_HIP_INCLUDE, $ROCM_PATH/include, /usr/include)")
    lines = [f"static_assert(int({name}) == {value});" for name, value in declared_values().items()]
    names = declared_functions() + [name for name in declared_functions(GUEST_HEADER) if not name.startswith(("__", "hipblas"))
                                       and name not in OVERLOADED]
    lines += [f"static_assert(same(::{name}, strata::abi::{name}), \"{name}\");" for name in names]
    lines += [f"static_assert(int({name}) == {value});" for name, value in GUEST_VALUES.items()]
    lines += [f"static_assert(offsetof(hipDeviceProp_tR0600, {name}) == {offset});" for name, offset, _, _ in PROPERTIES]
    lines += [f"static_assert(hipDeviceAttribute{name} == {number});" for name, (number, _) in ATTRIBUTES.items()]
    source = tmp_path / "check.cpp"
    source.write_text("""
#include "emulator/guest_abi.h"
namespace strata::abi {
#define STRATA_X(result, name, parameters) result name parameters;
STRATA_HIP_FUNCTIONS(STRATA_X)
STRATA_HIP_OPTIONAL_FUNCTIONS(STRATA_X)
STRATA_GUEST_FUNCTIONS(STRATA_X)
#undef STRATA_X
}
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_DISABLE_CPP_FUNCTIONS__ 1
#include <hip/hip_runtime_api.h>
template <class A, class B> constexpr bool alike = sizeof(A) == sizeof(B) && __is_pointer(A) == __is_pointer(B);
template <class R, class... A, class S, class... B>
constexpr bool same(R (*)(A...), S (*)(B...)) {
    if constexpr (sizeof...(A) != sizeof...(B)) { return false; } else { return alike<R, S> && (alike<A, B> && ...); }
}
static_assert(sizeof(hipDeviceProp_tR0600) == sizeof(strata::hipDeviceProp_tR0600));
static_assert(offsetof(hipDeviceProp_tR0600, gcnArchName) == strata::hip_prop_gcn_arch_name_offset);
""" + "\n".join(lines))
    done = subprocess.run([find_clang(), "-std=c++20", "-w", "-fsyntax-only", "-I", str(include), "-I", str(ROOT / "backend"), str(source)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
