"""What programs made by HIP's own compiler need: embedded device code, launches by host function, captured graphs, memory of
the host, and hipBLAS. The stock backend itself is run by test_stock.py."""

import ctypes
import struct
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint32, c_void_p

import numpy as np
import pytest

from support.hip import DEVICE_TO_HOST, HOST_TO_DEVICE, HipError
from support.kernels import basic_kernels

RELAXED = 2
PER_THREAD = 2
MAX_DYNAMIC_LDS = 8


class Dim3(ctypes.Structure):
    _fields_ = [("x", c_uint32), ("y", c_uint32), ("z", c_uint32)]


class Wrapper(ctypes.Structure):
    _fields_ = [("magic", c_uint32), ("version", c_uint32), ("bundle", c_void_p), ("unused", c_void_p)]


class BufferArgs(ctypes.Structure):
    """buffer_args of support.kernels"""
    _fields_ = [("data", c_void_p), ("index", ctypes.c_uint64), ("value", c_uint32)]


def bundle(images: dict[str, bytes]) -> bytes:
    """A clang offload bundle of code objects by target triple."""
    entries = [("host-x86_64-unknown-linux-gnu-", b""), *images.items()]
    offset = 24 + 8 + sum(24 + len(triple) for triple, _ in entries)
    table, data = b"", b""
    for triple, image in entries:
        table += struct.pack("<QQQ", offset + len(data), len(image), len(triple)) + triple.encode()
        data += image
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + table + data


class Program:
    """A host object with embedded code, as its constructors register it. Host functions are addresses of nothing."""

    def __init__(self, hip, image: bytes):
        raw = hip.raw
        getattr(raw, "__hipRegisterFatBinary").restype = c_void_p
        raw.hipLaunchKernel.argtypes = [c_void_p, Dim3, Dim3, c_void_p, c_size_t, c_void_p]
        raw.hipLaunchCooperativeKernel.argtypes = [c_void_p, Dim3, Dim3, c_void_p, c_uint, c_void_p]
        self.hip, self.image = hip, ctypes.create_string_buffer(image, len(image))
        self.wrapper = Wrapper(0x48495046, 1, ctypes.addressof(self.image), None)
        self.handle = getattr(raw, "__hipRegisterFatBinary")(ctypes.byref(self.wrapper))
        self.functions = {}
        for name in ("store", "spin", "copy", "nothing"):
            address = ctypes.create_string_buffer(1)
            self.functions[name] = address
            getattr(raw, "__hipRegisterFunction")(c_void_p(self.handle), address, c_char_p(name.encode()), c_char_p(name.encode()),
                                                     c_uint(0xFFFFFFFF), None, None, None, None, None)

    def launch(self, name: str, grid: int, block: int, *arguments, lds: int = 0, stream: int = 0) -> None:
        params = (c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        self.hip.call("hipLaunchKernel", self.functions[name], Dim3(grid, 1, 1), Dim3(block, 1, 1), params, lds, stream)

    def store(self, data: int, value: int, stream: int = 0) -> None:
        self.launch("store", 1, 32, BufferArgs(data, 0, value), stream=stream)

    def close(self) -> None:
        getattr(self.hip.raw, "__hipUnregisterFatBinary")(c_void_p(self.handle))


@pytest.fixture
def program(hip):
    made = Program(hip, bundle({"hipv4-amdgcn-amd-amdhsa--gfx1100": b"another", "hipv4-amdgcn-amd-amdhsa--gfx1151": basic_kernels()}))
    yield made
    made.close()


def stored(hip, data: int) -> int:
    """What `store` has stored, if all its 32 words are there."""
    hip.synchronize()
    words = hip.download(data, 32, np.uint32)
    assert (words == words[0] + np.arange(32)).all()
    return int(words[0])


def test_a_registered_kernel_is_launched_by_its_host_function(hip, program):
    data = hip.malloc(128)
    program.store(data, 7)
    assert stored(hip, data) == 7
    hip.call("hipDeviceReset")  # the code goes, and is loaded again
    data = hip.malloc(128)
    program.store(data, 8)
    assert stored(hip, data) == 8


def test_launches_that_cannot_be(hip, program):
    with pytest.raises(HipError, match="no kernel that a loaded program has registered") as error:
        hip.call("hipLaunchKernel", 0x1234, Dim3(1, 1, 1), Dim3(1, 1, 1), None, 0, None)
    assert error.value.name == "hipErrorInvalidDeviceFunction"
    with pytest.raises(HipError, match="compressed"):
        Program(hip, b"CCOB" + bytes(60)).launch("nothing", 1, 1)
    with pytest.raises(HipError, match="neither a clang offload bundle nor an ELF"):
        Program(hip, bytes(64)).launch("nothing", 1, 1)
    with pytest.raises(HipError, match="no device code for gfx1151, but for hipv4-amdgcn-amd-amdhsa--gfx1100") as error:
        Program(hip, bundle({"hipv4-amdgcn-amd-amdhsa--gfx1100": b"x"})).launch("nothing", 1, 1)
    assert error.value.name == "hipErrorNoBinaryForGpu"
    with pytest.raises(HipError, match="not offer cooperative") as error:
        hip.call("hipLaunchCooperativeKernel", program.functions["nothing"], Dim3(1, 1, 1), Dim3(1, 1, 1), None, 0, None)
    assert error.value.name == "hipErrorNotSupported"
    program.close()
    with pytest.raises(HipError, match="registered"):
        program.launch("nothing", 1, 1)


def test_occupancy_and_attributes(hip, program):
    blocks = c_int()
    nothing = program.functions["nothing"]
    for block, lds, wanted in ((32, 0, 64), (33, 0, 32), (256, 0, 8), (1024, 0, 2), (32, 16384, 4), (32, 65536, 1)):
        hip.call("hipOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(blocks), nothing, block, lds)
        assert blocks.value == wanted, (block, lds)
    hip.call("hipFuncSetAttribute", nothing, MAX_DYNAMIC_LDS, 65536)
    with pytest.raises(HipError, match="65537"):
        hip.call("hipFuncSetAttribute", nothing, MAX_DYNAMIC_LDS, 65537)


def test_call_configuration_is_a_stack(hip):
    push, pop = (getattr(hip.raw, f"__hip{word}CallConfiguration") for word in ("Push", "Pop"))
    push.argtypes = [Dim3, Dim3, c_size_t, c_void_p]
    assert push(Dim3(1, 2, 3), Dim3(4, 5, 6), 7, 0) == 0
    assert push(Dim3(10, 20, 30), Dim3(40, 50, 60), 70, PER_THREAD) == 0
    grid, block, lds, stream = Dim3(), Dim3(), c_size_t(), c_void_p()
    for factor, where in ((10, PER_THREAD), (1, None)):
        assert pop(ctypes.byref(grid), ctypes.byref(block), ctypes.byref(lds), ctypes.byref(stream)) == 0
        assert (grid.x, grid.y, grid.z, block.x, block.y, block.z, lds.value) == tuple(factor * n for n in range(1, 8))
        assert stream.value == where
    assert pop(ctypes.byref(grid), ctypes.byref(block), ctypes.byref(lds), ctypes.byref(stream)) != 0


def test_a_captured_graph_runs_when_it_is_launched(hip, program):
    data, source, stream = hip.malloc(128), np.full(32, 5, np.uint32), hip.stream()
    copied = hip.upload(np.zeros(32, np.uint32))
    program.store(data, 1, stream)
    hip.synchronize(stream)
    hip.call("hipStreamBeginCapture", stream, RELAXED)
    status = c_int()
    hip.call("hipStreamIsCapturing", stream, ctypes.byref(status))
    assert status.value == 1
    program.store(data, 2, stream)
    hip.call("hipMemcpyAsync", copied, source.ctypes.data, 128, HOST_TO_DEVICE, stream)
    with pytest.raises(HipError) as error:
        hip.synchronize(stream)
    assert error.value.name == "hipErrorStreamCaptureUnsupported"
    graph = c_void_p()
    hip.call("hipStreamEndCapture", stream, ctypes.byref(graph))
    assert stored(hip, data) == 1
    exec_ = c_void_p()
    hip.call("hipGraphInstantiate", ctypes.byref(exec_), graph, None, None, c_size_t(0))
    source[:] = 6  # a captured copy reads its source when it runs
    hip.call("hipGraphLaunch", exec_, c_void_p(stream))
    assert stored(hip, data) == 2 and (hip.download(copied, 32, np.uint32) == 6).all()

    def capture(*values: int) -> c_void_p:
        hip.call("hipStreamBeginCapture", stream, RELAXED)
        for value in values:
            program.store(data, value, stream)
        made = c_void_p()
        hip.call("hipStreamEndCapture", stream, ctypes.byref(made))
        return made

    result = c_int(-1)
    hip.call("hipGraphExecUpdate", exec_, capture(3, 4), None, ctypes.byref(result))
    hip.call("hipGraphDestroy", graph)
    hip.call("hipGraphLaunch", exec_, c_void_p(stream))
    assert result.value == 0 and stored(hip, data) == 4
    with pytest.raises(HipError, match="1 nodes, the executable one 2") as error:
        hip.call("hipGraphExecUpdate", exec_, capture(9), None, ctypes.byref(result))
    assert error.value.name == "hipErrorGraphExecUpdateFailure" and result.value != 0
    hip.call("hipGraphExecDestroy", exec_)
    for call in ("hipGraphExecDestroy", "hipGraphDestroy"):
        with pytest.raises(HipError):
            hip.call(call, exec_ if "Exec" in call else graph)


def test_a_capture_takes_in_streams_that_wait_for_its_events(hip, program):
    first, second = hip.stream(), hip.stream()
    data, other = hip.malloc(128), hip.malloc(128)
    fork, join = hip.event(), hip.event()
    hip.call("hipStreamBeginCapture", first, RELAXED)
    program.store(data, 1, first)
    hip.call("hipEventRecord", fork, first)
    hip.call("hipStreamWaitEvent", second, fork, 0)
    program.store(other, 2, second)
    hip.call("hipEventRecord", join, second)
    hip.call("hipStreamWaitEvent", first, join, 0)
    program.store(data, 3, first)
    with pytest.raises(HipError) as error:
        hip.call("hipEventSynchronize", fork)
    assert error.value.name == "hipErrorCapturedEvent"
    with pytest.raises(HipError) as error:
        hip.call("hipStreamEndCapture", second, ctypes.byref(c_void_p()))
    assert error.value.name == "hipErrorStreamCaptureUnmatched"
    graph, exec_ = c_void_p(), c_void_p()
    hip.call("hipStreamEndCapture", first, ctypes.byref(graph))
    hip.synchronize(second)
    hip.call("hipGraphInstantiate", ctypes.byref(exec_), graph, None, None, c_size_t(0))
    hip.call("hipGraphLaunch", exec_, c_void_p(second))
    assert stored(hip, data) == 3 and stored(hip, other) == 2


def test_captures_that_cannot_be(hip):
    stream, event = hip.stream(), hip.event()
    hip.call("hipEventRecord", event, stream)
    for call, name in ((("hipStreamBeginCapture", 0, RELAXED), "hipErrorStreamCaptureUnsupported"),
                       (("hipStreamBeginCapture", stream, 3), "hipErrorInvalidValue"),
                       (("hipStreamEndCapture", stream, ctypes.byref(c_void_p())), "hipErrorIllegalState")):
        with pytest.raises(HipError) as error:
            hip.call(*call)
        assert error.value.name == name
    hip.call("hipStreamBeginCapture", stream, RELAXED)
    with pytest.raises(HipError) as error:
        hip.call("hipStreamWaitEvent", stream, event, 0)
    assert error.value.name == "hipErrorStreamCaptureIsolation"
    with pytest.raises(HipError) as error:
        hip.call("hipStreamBeginCapture", stream, RELAXED)
    assert error.value.name == "hipErrorIllegalState"


def test_host_functions_run_in_the_streams_order(hip, program):
    data, stream, seen = hip.malloc(128), hip.stream(), []
    copy = np.zeros(32, np.uint32)

    @ctypes.CFUNCTYPE(None, c_void_p)
    def look(argument):
        seen.append((argument, int(copy[0])))

    for value in (1, 2):
        program.store(data, value, stream)
        hip.call("hipMemcpyAsync", copy.ctypes.data, data, 128, DEVICE_TO_HOST, stream)
        hip.call("hipLaunchHostFunc", c_void_p(stream), look, c_void_p(40 + value))
    hip.synchronize(stream)
    assert seen == [(41, 1), (42, 2)]


def test_the_stream_of_a_thread(hip, program):
    data, result = hip.malloc(128), np.zeros(32, np.uint32)
    program.store(data, 9, PER_THREAD)
    hip.call("hipMemcpyAsync", result.ctypes.data, data, 128, DEVICE_TO_HOST, PER_THREAD)
    hip.synchronize(PER_THREAD)
    assert result[0] == 9
    hip.call("hipDeviceReset")
    data = hip.malloc(128)
    program.store(data, 10, PER_THREAD)
    assert stored(hip, data) == 10


def test_registered_host_memory_is_the_devices_too(hip, program):
    memory = np.zeros(96, np.uint32)
    inside = memory.ctypes.data + 128
    hip.call("hipHostRegister", c_void_p(inside), c_size_t(128), 0)
    with pytest.raises(HipError) as error:
        hip.call("hipHostRegister", c_void_p(inside + 64), c_size_t(4), 0)
    assert error.value.name == "hipErrorHostMemoryAlreadyRegistered"
    seen = c_void_p()
    hip.call("hipHostGetDevicePointer", ctypes.byref(seen), c_void_p(inside), 0)
    assert seen.value == inside
    program.store(inside, 3)
    hip.synchronize()
    assert (memory[32:64] == 3 + np.arange(32)).all() and not memory[:32].any() and not memory[64:].any()
    hip.call("hipHostUnregister", c_void_p(inside))
    with pytest.raises(HipError) as error:
        hip.call("hipHostUnregister", c_void_p(inside))
    assert error.value.name == "hipErrorHostMemoryNotRegistered"
    program.store(inside, 4)
    with pytest.raises(HipError):
        hip.synchronize()
    assert memory[32] == 3


def test_read_only_registration_is_kept(hip, program):
    memory = np.zeros(32, np.uint32)
    hip.call("hipHostRegister", c_void_p(memory.ctypes.data), c_size_t(128), 8)
    program.store(memory.ctypes.data, 4)
    with pytest.raises(HipError, match="read-only"):
        hip.synchronize()
    assert not memory.any()


def test_peers_and_managed_memory(hip, program):
    can = c_int(-1)
    hip.call("hipDeviceCanAccessPeer", ctypes.byref(can), 0, 0)
    assert can.value == 0
    for call in (("hipDeviceEnablePeerAccess", 0, 0), ("hipDeviceDisablePeerAccess", 0), ("hipDeviceCanAccessPeer", ctypes.byref(can), 0, 1)):
        with pytest.raises(HipError):
            hip.call(*call)
    managed, copy = c_void_p(), hip.malloc(128)
    hip.call("hipMallocManaged", ctypes.byref(managed), c_size_t(128), 1)
    hip.call("hipMemAdvise", managed, c_size_t(128), 100, 0)
    program.store(managed.value, 5)
    hip.call("hipMemcpyPeerAsync", c_void_p(copy), 0, managed, 0, c_size_t(128), None)
    assert stored(hip, copy) == 5 and c_uint32.from_address(managed.value).value == 5


# hipBLAS

N, T = 111, 112
F32, F16, BF16 = 0, 2, 14
COMPUTE_16F, COMPUTE_32F = 0, 2
random = np.random.default_rng(3)


def to_bf16(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


ENCODE = {F32: lambda x: x.astype(np.float32), F16: lambda x: x.astype(np.float16), BF16: to_bf16}
DECODE = {F32: lambda x: x.astype(np.float64), F16: lambda x: x.astype(np.float64),
          BF16: lambda x: (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)}
STEP = {F32: 2.0**-23, F16: 2.0**-10, BF16: 2.0**-7}


class Blas:
    def __init__(self, hip, stream: int = 0):
        self.hip, self.handle = hip, c_void_p()
        assert hip.raw.hipblasCreate(ctypes.byref(self.handle)) == 0
        assert hip.raw.hipblasSetStream(self.handle, c_void_p(stream)) == 0

    def call(self, name: str, *arguments) -> int:
        return getattr(self.hip.raw, name)(self.handle, *arguments)


def columns(x: np.ndarray, leading: int, kind: int) -> np.ndarray:
    """The matrix as hipBLAS wants it: columns one after the other, `leading` elements apart, NaN between them."""
    rows, count = x.shape
    padded = np.full((count, leading), np.nan, np.float32)
    padded[:, :rows] = x.T
    return ENCODE[kind](padded)


@pytest.mark.parametrize("op_a,op_b", [(N, N), (T, N), (N, T), (T, T)])
@pytest.mark.parametrize("types,compute", [((F32, F32, F32), COMPUTE_32F), ((F16, F16, F16), COMPUTE_16F), ((F16, F16, F32), COMPUTE_32F),
                                           ((BF16, BF16, F32), COMPUTE_32F), ((BF16, BF16, BF16), COMPUTE_32F)])
def test_products(hip, op_a, op_b, types, compute):
    m, n, k, batch = 7, 5, 35, 3
    blas = Blas(hip)
    scalar = np.float16 if compute == COMPUTE_16F else np.float32
    alpha, beta = np.array([1.5], scalar), np.array([0.5], scalar)
    shape_a, shape_b = (m, k) if op_a == N else (k, m), (k, n) if op_b == N else (n, k)
    lead = [shape_a[0] + 2, shape_b[0] + 3, m + 1]
    host = [np.stack([columns(random.standard_normal(shape), leading, kind) for _ in range(batch)])
            for shape, leading, kind in zip((shape_a, shape_b, (m, n)), lead, types)]
    decoded = [DECODE[kind](x) for kind, x in zip(types, host)]
    wanted = []
    for a, b, c in zip(*decoded):
        a, b = a[:, :shape_a[0]].T, b[:, :shape_b[0]].T
        wanted.append(1.5 * (a if op_a == N else a.T) @ (b if op_b == N else b.T) + 0.5 * c[:, :m].T)
    bound = 30 * STEP[F32] * k + 4 * STEP[types[2]]

    def check(pointer: int, name: str) -> None:
        got = DECODE[types[2]](hip.download(pointer, host[2].shape, host[2].dtype))
        for one, right in zip(got, wanted):
            assert np.abs(one[:, :m].T - right).max() <= bound * np.abs(right).max(), name
        assert np.isnan(got[:, :, m:]).all()  # between the columns

    ptr = ctypes.c_void_p
    strides = [ctypes.c_int64(x[0].size) for x in host]
    a, b = hip.upload(host[0]), hip.upload(host[1])
    c = hip.upload(host[2])
    assert blas.call("hipblasGemmStridedBatchedEx", op_a, op_b, m, n, k, ptr(alpha.ctypes.data), ptr(a), types[0], lead[0], strides[0], ptr(b),
                     types[1], lead[1], strides[1], ptr(beta.ctypes.data), ptr(c), types[2], lead[2], strides[2], batch, compute, 160) == 0
    check(c, "strided")
    c = hip.upload(host[2])
    pointers = [hip.upload(np.array([base + i * x[0].nbytes for i in range(batch)], np.uint64)) for base, x in zip((a, b, c), host)]
    assert blas.call("hipblasGemmBatchedEx", op_a, op_b, m, n, k, ptr(alpha.ctypes.data), ptr(pointers[0]), types[0], lead[0],
                     ptr(pointers[1]), types[1], lead[1], ptr(beta.ctypes.data), ptr(pointers[2]), types[2], lead[2], batch, compute, 160) == 0
    check(c, "batched")
    if types == (F32, F32, F32):
        c = hip.upload(host[2])
        assert blas.call("hipblasSgemmBatched", op_a, op_b, m, n, k, ptr(alpha.ctypes.data), ptr(pointers[0]), lead[0], ptr(pointers[1]),
                         lead[1], ptr(beta.ctypes.data), ptr(hip.upload(np.array([c + i * host[2][0].nbytes for i in range(batch)],
                                                                                  np.uint64))), lead[2], batch) == 0
        check(c, "float batched")
        c = hip.upload(host[2])
        for i in range(batch):
            assert blas.call("hipblasSgemm", op_a, op_b, m, n, k, ptr(alpha.ctypes.data), ptr(a + i * host[0][0].nbytes), lead[0],
                             ptr(b + i * host[1][0].nbytes), lead[1], ptr(beta.ctypes.data), ptr(c + i * host[2][0].nbytes), lead[2]) == 0
        check(c, "float")


def test_a_product_does_not_read_c_when_beta_is_zero_nor_the_factors_when_alpha_is(hip):
    blas, one, zero = Blas(hip), np.ones(1, np.float32), np.zeros(1, np.float32)
    ptr, nan = ctypes.c_void_p, np.full((2, 2), np.nan, np.float32)
    a, c = hip.upload(np.eye(2, dtype=np.float32)), hip.upload(nan)
    assert blas.call("hipblasSgemm", N, N, 2, 2, 2, ptr(one.ctypes.data), ptr(a), 2, ptr(a), 2, ptr(zero.ctypes.data), ptr(c), 2) == 0
    assert (hip.download(c, (2, 2), np.float32) == np.eye(2)).all()
    bad = hip.upload(nan)
    assert blas.call("hipblasSgemm", N, N, 2, 2, 2, ptr(zero.ctypes.data), ptr(bad), 2, ptr(bad), 2, ptr(one.ctypes.data), ptr(c), 2) == 0
    assert (hip.download(c, (2, 2), np.float32) == np.eye(2)).all()


def test_products_are_work_of_their_stream(hip, program):
    stream = hip.stream()
    blas, one, zero, ptr = Blas(hip, stream), np.ones(1, np.float32), np.zeros(1, np.float32), ctypes.c_void_p
    a, c = hip.upload(np.eye(4, dtype=np.float32)), hip.upload(np.zeros((4, 4), np.float32))
    hip.synchronize()
    hip.call("hipStreamBeginCapture", stream, RELAXED)
    assert blas.call("hipblasSgemm", N, N, 4, 4, 4, ptr(one.ctypes.data), ptr(a), 4, ptr(a), 4, ptr(zero.ctypes.data), ptr(c), 4) == 0
    graph, exec_ = c_void_p(), c_void_p()
    hip.call("hipStreamEndCapture", stream, ctypes.byref(graph))
    assert not hip.download(c, (4, 4), np.float32).any()
    hip.call("hipGraphInstantiate", ctypes.byref(exec_), graph, None, None, c_size_t(0))
    hip.call("hipGraphLaunch", exec_, c_void_p(stream))
    hip.synchronize(stream)
    assert (hip.download(c, (4, 4), np.float32) == np.eye(4)).all()


def test_wrong_products(hip):
    blas, one, ptr = Blas(hip), np.ones(1, np.float32), ctypes.c_void_p
    scalar, a = ptr(one.ctypes.data), ptr(hip.upload(np.zeros((4, 4), np.float32)))
    assert blas.call("hipblasSgemm", N, N, 4, 4, 4, scalar, a, 3, a, 4, scalar, a, 4) == 3  # leading dimension
    assert blas.call("hipblasSgemm", N, 5, 4, 4, 4, scalar, a, 4, a, 4, scalar, a, 4) == 3
    assert blas.call("hipblasGemmEx", N, N, 4, 4, 4, scalar, a, 99, 4, a, F32, 4, scalar, a, F32, 4, COMPUTE_32F, 160) == 7
    assert blas.call("hipblasSgemm", N, N, 5, 4, 4, scalar, a, 5, a, 4, scalar, a, 5) == 0
    with pytest.raises(HipError, match="hipBLAS: matrix A, 80 bytes .* 16 of its 80 bytes lie past the end"):
        hip.synchronize()
    assert hip.raw.hipblasDestroy(blas.handle) == 0
    assert hip.raw.hipblasDestroy(blas.handle) == 1


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("op", [N, T])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_solves(hip, side, upper, op, unit):
    m, n, batch = 6, 9, 2
    order = m if side == "left" else n
    blas, ptr, alpha = Blas(hip), ctypes.c_void_p, np.array([2.0], np.float32)
    full = random.standard_normal((batch, order, order)) / order + 2 * np.eye(order)
    b = random.standard_normal((batch, m, n))
    a_host = np.ascontiguousarray(full.transpose(0, 2, 1)).astype(np.float32)
    b_host = np.ascontiguousarray(b.transpose(0, 2, 1)).astype(np.float32)
    a, x = hip.upload(a_host), hip.upload(b_host)
    pointers = [hip.upload(np.array([base + i * h[0].nbytes for i in range(batch)], np.uint64)) for base, h in ((a, a_host), (x, b_host))]
    assert blas.call("hipblasStrsmBatched", 141 if side == "left" else 142, 121 if upper else 122, op, 132 if unit else 131, m, n,
                     ptr(alpha.ctypes.data), ptr(pointers[0]), order, ptr(pointers[1]), m, batch) == 0
    got = hip.download(x, b_host.shape, np.float32).transpose(0, 2, 1).astype(np.float64)
    for i in range(batch):
        t = np.triu(full[i]) if upper else np.tril(full[i])
        if unit:
            np.fill_diagonal(t, 1)
        t = t if op == N else t.T
        again = t @ got[i] if side == "left" else got[i] @ t
        assert np.abs(again - 2 * b[i]).max() < 1e-4
