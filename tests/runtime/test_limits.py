"""Memory that runs out or grows, the processor's floating-point mode, and processors without wide vectors."""

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

import fusedops as fo
from catalog import EXHAUSTIVE, OPERATIONS, python
from fusedops import _core

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc and address-space limits")

# Memory

STARVED = """
import resource
import numpy as np
import fusedops as fo
fo.set_num_threads({threads})
small = np.ones((8, 8), np.float32)
{prepare}
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), resource.RLIM_INFINITY))
for _ in range(3):
    try:
        {call}
        print("computed")
    except MemoryError:
        print("MemoryError")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
{call}
"""
STARVING = {
    "result": ("x = np.ones((4096, 8), np.float32); w = np.ones((2048, 8), np.float32)", "fo.linear(x, w)"),
    "packed_weights": ("x = np.ones((1, 4096), np.float32); w = np.ones((4096, 4096), np.float32)", "fo.Linear(w)(x)"),
    "packed_kernel": (
        "x = np.ones((1, 1024, 3, 3), np.float32); w = np.ones((1024, 1024, 3, 3), np.float32)",
        "fo.conv2d(x, w)",
    ),
    "packed_cell": (
        "x = np.ones((4, 2048), np.float32); w = np.ones((8192, 2048), np.float32)",
        "fo.lstm_cell(x, x, x, w, w)",
    ),
    "winograd": (
        "layer = fo.Conv2d(np.ones((64, 64, 3, 3), np.float32), algorithm='winograd'); "
        "x = np.ones((4, 64, 250, 250), np.float32); y = np.empty((4, 64, 248, 248), np.float32)",
        "layer(x, out=y)",
    ),
    "overlapping": (
        "layer = fo.Linear(np.ones((512, 512), np.float32)); x = np.ones((8192, 512), np.float32)",
        "layer(x, out=x)",
    ),
    "sequence": (
        "layer = fo.GRU(np.ones((768, 256), np.float32), np.ones((768, 256), np.float32)); "
        "x = np.ones((200, 64, 256), np.float32)",
        "layer(x)",
    ),
}


@linux
@pytest.mark.parametrize("threads", [1, pytest.param(3, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", STARVING)
def test_memory_runs_out(name, threads):
    """MemoryError where 8 MB more are not enough, and afterwards everything is as before."""
    prepare, call = STARVING[name]
    done = python(STARVED.format(prepare=prepare, call=call, threads=threads), OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert said == ["MemoryError"] * 3 or name == "winograd" and set(said) <= {"MemoryError", "computed"}


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def networks():
    """A model, if onnx is there to make one."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    net = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> net (float[n, 5] x) => (float[n, 5] y)
        <float[5, 5] w = {1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5}>
        { h = MatMul(x, w)  r = Relu(h)  y = Softmax(r) }""")
    return fo.load_onnx(net)


def refused(x, w):
    with pytest.raises(ValueError):
        fo.linear(x, w)


def layers(draw):
    """Something that makes each kind of layer, calls it and drops it."""
    x, w, w_ih, w_hh = draw(1, 5, 9, 9), draw(7, 5, 3, 3), draw(28, 5), draw(28, 7)
    depthwise, pointwise = fo.Conv2d(draw(5, 1, 3, 3), groups=5, padding=1), fo.Conv2d(draw(7, 5, 1, 1))
    return {
        "Conv2d": lambda: fo.Conv2d(w, algorithm="direct")(x),
        "Conv2d_winograd": lambda: fo.Conv2d(w, algorithm="winograd")(x),
        "Linear": lambda: fo.Linear(w_ih)(x[0, :, 0, :5]),
        "LSTM": lambda: fo.LSTM(w_ih, w_hh)(x[0, :, :, :5]),
        "DepthwiseSeparable": lambda: fo.DepthwiseSeparable(depthwise, pointwise)(x),
        "stream": lambda: fo.LSTM(w_ih, w_hh).stream(1).step(x[0, 0, 0, :5]),
        "an_error": lambda: refused(x, w_hh),
        "unfused": lambda: fo.reference.linear(w_ih, w_ih, activation="tanh"),
    }


@linux
@pytest.mark.thorough
def test_memory_is_flat(draw):
    """Many calls of each operation and of each prepared layer, made and dropped, and of a network."""
    calls = {
        name: lambda operation=operation, arrays=operation.draw(draw): operation(arrays)
        for name, operation in OPERATIONS.items()
    }
    model, batches = networks(), cycle([draw(n, 5) for n in range(1, 41)])  # more sizes than plans are kept
    calls |= layers(draw) | {"network": lambda x=draw(3, 5): model(x), "sizes": lambda: model(next(batches))}
    for name, call in calls.items():
        grown = []  # a leak grows each time; what other tests left behind is given back or taken once
        for count in (2000, *[100_000 if EXHAUSTIVE else 10_000] * 3):
            before = resident()
            for _ in range(count):
                call()
            grown.append(resident() - before)
        assert min(grown) < 1 << 18, name


@linux
@pytest.mark.thorough
def test_memory_is_flat_over_networks(tmp_path):
    networks().save(tmp_path / "net")
    grown = []  # as above
    for count in (200, 1000, 1000, 1000):
        before = resident()
        for _ in range(count):
            fo.load(tmp_path / "net")(np.ones((2, 5), np.float32))
            networks()
        grown.append(resident() - before)
    assert min(grown) < 1 << 18


@linux
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="where a block's size is known")
def test_one_shot_calls_take_no_new_memory(draw):
    """The C library gives blocks at its heap's end back to the system, and to have such a page again takes a
    microsecond or two."""
    w, x, out = draw(256, 128, 1, 1), draw(1, 128, 16, 16), np.empty((1, 256, 16, 16), np.float32)
    resource = pytest.importorskip("resource")
    faults = []
    for _ in range(40):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        fo.conv2d(x, w, out=out)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert sum(faults[20:]) < 20 * 8


# Floating-point mode


def mode():
    """MXCSR: denormals, rounding, which exceptions trap; not those that were raised, for NumPy clears them."""
    environment = (ctypes.c_uint32 * 8)()
    ctypes.CDLL(None).fegetenv(environment)
    return environment[7] & ~0x3F


@linux
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="MXCSR is x86's")
class TestMode:
    def test_of_the_caller(self, isa, threads, draw):
        for operation in OPERATIONS.values():
            arrays = operation.draw(draw)
            for a in arrays.values():
                a.flat[0] = 1e-40
            before = mode()
            operation.function(**arrays, **operation.options)
            assert mode() == before

    def test_of_the_workers(self, threads, draw):
        """Threads that other libraries get from OpenMP, after the team has worked."""
        if _core.build_info()["threading"] != "openmp":
            pytest.skip("built without OpenMP")
        layer, x = fo.Linear(draw(256, 256) * np.float32(1e-30)), draw(256, 256) * np.float32(1e-10)
        modes, before = [], mode()
        layer(x)
        ask = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: modes.append(mode()))
        ctypes.CDLL("libgomp.so.1").GOMP_parallel(ask, None, threads, 0)
        control = 0xFFC0  # the rest are the exceptions that the thread has seen
        assert [m & control for m in modes] == [before & control] * threads


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "resize"])  # the nearest pixel is a copy
def test_denormals_are_zeros(isa, threads, draw, name):
    """Whoever computes a task: serial, caller or worker."""
    operation = OPERATIONS[name]
    arrays = operation.draw(draw)
    for a in arrays.values():
        a.flat[::3] = 0
    zeros = operation(arrays)
    for a in arrays.values():
        a.flat[::3] = 1e-40
    for y, y_zeros in zip(operation(arrays), zeros):
        np.testing.assert_array_equal(y, y_zeros)


def seconds(call):
    best = np.inf
    for _ in range(30):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def cell(gates, *states):
    return dict(x=(8, 128)) | dict.fromkeys(states, (8, 128)) | dict(w_ih=(gates * 128, 128), w_hh=(gates * 128, 128))


KERNELS = {
    "conv1x1": (fo.conv2d, dict(x=(1, 64, 28, 28), w=(128, 64, 1, 1)), {}),
    "conv3x3": (fo.conv2d, dict(x=(1, 64, 28, 28), w=(64, 64, 3, 3)), dict(algorithm="direct", padding=1)),
    "conv3x3_strided": (fo.conv2d, dict(x=(1, 28, 28, 64), w=(64, 64, 3, 3)), dict(stride=2, layout="NHWC")),
    "winograd_2": (fo.conv2d, dict(x=(1, 128, 7, 7), w=(128, 128, 3, 3)), dict(algorithm="winograd", padding=1)),
    "winograd_4": (fo.conv2d, dict(x=(1, 64, 14, 14), w=(64, 64, 3, 3)), dict(algorithm="winograd", padding=1)),
    "winograd_6": (fo.conv2d, dict(x=(1, 64, 96, 96), w=(64, 64, 3, 3)), dict(algorithm="winograd", padding=1)),
    "winograd_strided": (
        fo.conv2d,
        dict(x=(1, 64, 56, 56), w=(64, 64, 3, 3)),
        dict(algorithm="winograd", padding=1, stride=2),
    ),
    "depthwise": (fo.depthwise_conv2d, dict(x=(1, 256, 28, 28), w=(256, 3, 3)), dict(padding=1)),
    "depthwise_nhwc": (fo.depthwise_conv2d, dict(x=(1, 28, 28, 256), w=(256, 3, 3)), dict(padding=1, layout="NHWC")),
    "linear": (fo.linear, dict(x=(64, 512), w=(512, 512)), dict(activation="gelu")),
    "gemm": (fo.gemm, dict(a=(64, 512), b=(512, 512)), {}),
    "rnn_cell": (fo.rnn_cell, cell(1, "h"), {}),
    "lstm_cell": (fo.lstm_cell, cell(4, "h", "c"), {}),
    "gru_cell": (fo.gru_cell, cell(3, "h"), {}),
    "lstm": (
        lambda x, w_ih, w_hh: fo.lstm(x, None, w_ih, w_hh),
        dict(x=(20, 4, 64), w_ih=(512, 64), w_hh=(512, 128)),
        {},
    ),
    "unfused": (
        fo.reference.conv2d,
        dict(x=(1, 64, 28, 28), w=(64, 64, 1, 1), bias=(64,), residual=(1, 64, 28, 28)),
        dict(activation="silu"),
    ),
}
PREPARED = {
    fo.conv2d: fo.Conv2d,
    fo.linear: fo.Linear,
    fo.rnn_cell: fo.RNNCell,
    fo.lstm_cell: fo.LSTMCell,
    fo.gru_cell: fo.GRUCell,
}


def as_layer(function, arrays, options):
    """The call on a prepared layer where there is one of this function."""
    weights = {k: a for k, a in arrays.items() if k.startswith("w")}
    layer = PREPARED[function](**weights, **options)
    return lambda: layer(*(a for k, a in arrays.items() if k not in weights))


@pytest.mark.thorough
@pytest.mark.parametrize("value", [1e-40, 1e-20], ids=["denormal_inputs", "denormal_products"])
@pytest.mark.parametrize("name", KERNELS)
def test_denormals_are_not_slow(draw, name, value):
    """Every family, one-shot and prepared: at most 1.3 times what it takes with usual numbers."""
    function, shapes, options = KERNELS[name]
    usual = {k: draw(*shape) for k, shape in shapes.items()}
    tiny = {k: np.full(shape, value, np.float32) for k, shape in shapes.items()}
    for form in (
        lambda arrays: lambda: function(**arrays, **options),
        *[lambda arrays: as_layer(function, arrays, options)] * (function in PREPARED),
    ):
        ratio = min(seconds(form(tiny)) / seconds(form(usual)) for _ in range(3))
        print(f"{name}: {ratio:.2f} times as long with denormals")
        assert ratio < 1.3


# Any processor

WITHOUT_AVX = """
import hashlib, sys
import numpy as np
import fusedops as fo
fo.set_isa("scalar")
rng, digest = np.random.default_rng(0), hashlib.sha256()
draw = lambda *shape: rng.uniform(-1, 1, shape).astype(np.float32)
x, w = draw(1, 8, 14, 14), draw(16, 8, 3, 3)
for y in (fo.conv_bn_relu(x, w, padding=1), fo.conv2d(x, w, algorithm="winograd"),
          fo.depthwise_conv2d(x, draw(8, 3, 3), activation="gelu"), fo.linear(draw(3, 40), draw(20, 40)),
          fo.lstm_cell(draw(2, 5), draw(2, 7), draw(2, 7), draw(28, 5), draw(28, 7))[1]):
    digest.update(y.tobytes())
print(*sys.argv[1:], *fo.available_isas(), digest.hexdigest())
"""


@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="qemu-user is not installed")
@pytest.mark.skipif(not linux.args[0] and os.uname().machine != "x86_64", reason="a processor of x86")
def test_a_processor_without_avx():
    """On the first x86 that NumPy runs on, in an emulator: the module loads, finds no set but the plain one and has its
    bits."""
    # it may name a set that this processor has not
    environment = {k: v for k, v in os.environ.items() if k != "FUSEDOPS_ISA"}
    here = subprocess.run(
        [sys.executable, "-c", WITHOUT_AVX],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=Path(fo.__file__).parent.parent,
    )
    # Under qemu OpenBLAS takes a missing XGETBV for AVX; told what the processor is, it does not ask.
    there = subprocess.run(
        ["qemu-x86_64", "-cpu", "Nehalem", sys.executable, "-c", WITHOUT_AVX],
        capture_output=True,
        text=True,
        env=environment | {"OPENBLAS_CORETYPE": "NEHALEM", "OPENBLAS_NUM_THREADS": "1"},
        cwd=Path(fo.__file__).parent.parent,
    )
    assert there.returncode == 0, there.stderr
    assert there.stdout.split() == ["scalar", here.stdout.split()[-1]]


MODULE = _core.__file__


@pytest.mark.skipif(not (shutil.which("objdump") and shutil.which("nm")), reason="binutils are not installed")
@pytest.mark.skipif(not linux.args[0] and os.uname().machine != "x86_64", reason="x86 alone has such registers")
def test_wide_instructions_stand_in_their_sets_alone():
    """Every function of the extension that touches a ymm or zmm register was compiled from the file of its instruction
    set."""
    source, home = "", {}
    for line in subprocess.run(["nm", "-ap", MODULE], capture_output=True, text=True, check=True).stdout.splitlines():
        kind, name = line[17:].partition(" ")[::2]
        if kind == "a":
            source = name
        elif kind in ("t", "T"):
            home[int(line[:16], 16)] = source
    if "avx2.c" not in home.values():
        pytest.skip("the extension has been stripped")
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", MODULE], capture_output=True, text=True, check=True
    ).stdout
    wide = set()
    for function in re.split(r"\n(?=[0-9a-f]{16} <)", text)[1:]:
        if re.search(r"%[yz]mm\d", function):
            wide.add(home.get(int(function[:16], 16), "an unknown file"))
    assert wide <= {"avx2.c", "avx512.c"}
