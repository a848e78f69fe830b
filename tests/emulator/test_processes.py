"""The emulator's threads at the end of a process, in a forked child, and when the library is closed."""

import subprocess

import pytest

from support.compile import find_clang
from support.libraries import emulator_library
from support.process import run_python

START = """
import ctypes, os, sys
from support.hip import emulator, Hip, HipError
from support.kernels import *
hip = emulator()
spin = hip.kernel(basic_kernels(), "spin")
data = hip.malloc(4)
"""


def test_exit_does_not_wait_for_a_long_kernel():
    """On 50 streams, each of which has work for many minutes."""
    run_python(START + """
for _ in range(50):
    stream = hip.stream()
    for _ in range(50):
        hip.launch(spin, 1, 32, spin_args(data, 2**31 - 1), stream=stream)
""", timeout=300)


def test_exit_with_queued_short_work():
    for _ in range(5):
        done = run_python(START + """
store = hip.kernel(basic_kernels(), "store")
big = hip.malloc(32 * 4 * 64)
for _ in range(200):
    hip.launch(store, 64, 32, store_args(big), stream=0)
""")
        assert done.returncode == 0, done.stderr


def test_a_forked_child_is_told_so_and_ends():
    done = run_python(START + """
hip.launch(spin, 1, 32, spin_args(data, 300_000))
child = os.fork()
if child == 0:
    try:
        hip.malloc(16)
    except HipError as e:
        assert e.name == "hipErrorNotInitialized" and "forked" in e.message, e
        sys.exit(7)   # a full exit, with the handlers
    sys.exit(1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
hip.synchronize()     # the parent goes on
assert hip.download(data, 1, np.uint32)[0] == spin_result(300_000)
""")
    assert done.returncode == 0, done.stderr


def test_a_child_forked_before_the_start_may_use_the_emulator():
    done = run_python("""
import os
from support.hip import emulator
from support.kernels import *
hip = emulator()
child = os.fork()
data = hip.malloc(4)
hip.launch(hip.kernel(basic_kernels(), "spin"), 1, 32, spin_args(data, 1000))
hip.synchronize()
assert hip.download(data, 1, np.uint32)[0] == spin_result(1000)
if child:
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("work", ["", "hip.launch(spin, 1, 32, spin_args(data, 3_000_000))"])
def test_closing_the_library_is_harmless(work):
    done = run_python(START + work + """
import _ctypes
_ctypes.dlclose(hip.raw._handle)
""")
    assert done.returncode == 0, done.stderr


LATE_CALLS = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static int (*synchronize)(void), (*copy)(void *, const void *, unsigned long, int), (*release)(void *), (*allocate)(void **, unsigned long);
static void *first, *second;
/* Runs after the emulator's own handler, as destructors of a program's globals do. */
static void late(void) {
    char bytes[16];
    const int synchronized = synchronize(), released = release(first), copied = copy(bytes, second, 16, 2);
    printf("%d %d %d %d", synchronized, released, copied, synchronize());
    fflush(stdout);
}
int main(int argc, char ** argv) {
    atexit(late);
    void * library = dlopen(argv[argc - 1], RTLD_NOW);
    if (!library) return 1;
    *(void **) &synchronize = dlsym(library, "hipDeviceSynchronize");
    *(void **) &copy = dlsym(library, "hipMemcpy");
    *(void **) &release = dlsym(library, "hipFree");
    *(void **) &allocate = dlsym(library, "hipMalloc");
    return allocate(&first, 16) || allocate(&second, 16) || synchronize();
}
"""


def test_calls_after_the_end_do_not_hang(tmp_path):
    """A program's destructors may still free and synchronize; new work is refused."""
    source, program = tmp_path / "late.c", tmp_path / "late"
    source.write_text(LATE_CALLS)
    subprocess.run([find_clang(), "-x", "c", str(source), "-o", str(program), "-ldl"], check=True)
    done = subprocess.run([program, emulator_library()], capture_output=True, text=True, timeout=300)
    # hipSuccess, hipSuccess, hipErrorDeinitialized, hipErrorDeinitialized
    assert (done.returncode, done.stdout) == (0, "0 0 4 4"), done
