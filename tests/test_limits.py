"""Memory that runs out or grows, the processor's floating-point mode, and processors without wide vectors."""
import ctypes
import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

import fusedops as fo
from fusedops import _core
from operations import OPERATIONS, python

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
    "packed_weights": ("x = np.ones((1, 4096), np.float32); w = np.ones((4096, 4096), np.float32)", "fo.linear(x, w)"),
    "packed_kernel": ("x = np.ones((1, 1024, 3, 3), np.float32); w = np.ones((1024, 1024, 3, 3), np.float32)", "fo.conv2d(x, w)"),
    "packed_cell": ("x = np.ones((1, 2048), np.float32); w = np.ones((8192, 2048), np.float32)", "fo.lstm_cell(x, x, x, w, w)"),
    "winograd": ("layer = fo.Conv2d(np.ones((64, 64, 3, 3), np.float32), algorithm='winograd'); "
                 "x = np.ones((4, 64, 250, 250), np.float32); y = np.empty((4, 64, 248, 248), np.float32)", "layer(x, out=y)"),
    "overlapping": ("layer = fo.Linear(np.ones((512, 512), np.float32)); x = np.ones((8192, 512), np.float32)", "layer(x, out=x)"),
    "sequence": ("layer = fo.GRU(np.ones((768, 256), np.float32), np.ones((768, 256), np.float32)); "
                 "x = np.ones((200, 64, 256), np.float32)", "layer(x)"),
}


@linux
@pytest.mark.parametrize("threads", [1, 3])
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


@linux
@pytest.mark.slow
def test_memory_is_flat():
    """10^5 calls of each operation, one-shot, and of a prepared layer."""
    draw = np.random.default_rng(0)
    for name, operation in OPERATIONS.items():
        arrays = {k: draw.standard_normal(shape).astype(np.float32) for k, shape in operation.arrays.items()}
        for calls in (1000, 100_000):
            before = resident()
            for _ in range(calls):
                operation(arrays)
        assert resident() - before < 1 << 20, name


# Floating-point mode


def mode():
    """MXCSR: exceptions, denormals, rounding."""
    environment = (ctypes.c_uint32 * 8)()
    ctypes.CDLL(None).fegetenv(environment)
    return environment[7]


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
        """Threads of the team, asked through OpenMP itself after they worked."""
        if _core.build_info()["threading"] != "openmp":
            pytest.skip("built without OpenMP")
        layer, x = fo.Linear(draw(256, 256) * np.float32(1e-30)), draw(256, 256) * np.float32(1e-10)
        modes, before = [], mode()
        layer(x)
        ask = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: modes.append(mode()))
        ctypes.CDLL("libgomp.so.1").GOMP_parallel(ask, None, threads, 0)
        control = 0xFFC0  # the rest are the exceptions that the thread has seen
        assert [m & control for m in modes] == [before & control] * threads


@pytest.mark.parametrize("name", OPERATIONS)
def test_denormals_are_zeros(isa, threads, draw, name):
    """Whoever computes a task: serial, caller or worker."""
    operation = OPERATIONS[name]
    arrays = operation.draw(draw)
    for a in arrays.values():
        a.flat[:: 3] = 0
    zeros = operation(arrays)
    for a in arrays.values():
        a.flat[:: 3] = 1e-40
    for y, y_zeros in zip(operation(arrays), zeros):
        np.testing.assert_array_equal(y, y_zeros)


def seconds(call):
    best = np.inf
    for _ in range(30):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("name, shapes", [
    (fo.conv2d, dict(x=(1, 64, 28, 28), w=(64, 64, 3, 3))), (fo.depthwise_conv2d, dict(x=(1, 256, 28, 28), w=(256, 3, 3))),
    (fo.linear, dict(x=(64, 512), w=(512, 512))), (fo.lstm_cell, dict(x=(8, 128), h=(8, 128), c=(8, 128), w_ih=(512, 128), w_hh=(512, 128))),
], ids=lambda v: getattr(v, "__name__", ""))
def test_denormals_are_not_slow(draw, name, shapes):
    arrays = {k: draw(*shape) for k, shape in shapes.items()}
    tiny = {k: np.full(shape, 1e-40, np.float32) for k, shape in shapes.items()}
    ratio = min(seconds(lambda: name(**tiny)) / seconds(lambda: name(**arrays)) for _ in range(3))
    print(f"{name.__name__}: {ratio:.2f} times as long with denormals")
    assert ratio < 1.3


# Any processor

MODULE = _core.__file__


@pytest.mark.skipif(not (shutil.which("objdump") and shutil.which("nm")), reason="binutils are not installed")
@pytest.mark.skipif(not linux.args[0] and os.uname().machine != "x86_64", reason="x86 alone has such registers")
def test_wide_instructions_stand_in_their_sets_alone():
    """Every function of the extension that touches a ymm or zmm register was compiled from the file of its instruction set."""
    source, home = "", {}
    for line in subprocess.run(["nm", "-ap", MODULE], capture_output=True, text=True, check=True).stdout.splitlines():
        kind, name = line[17:].partition(" ")[::2]
        if kind == "a":
            source = name
        elif kind in ("t", "T"):
            home[int(line[:16], 16)] = source
    if "avx2.c" not in home.values():
        pytest.skip("the extension has been stripped")
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", MODULE], capture_output=True, text=True, check=True).stdout
    wide = set()
    for function in re.split(r"\n(?=[0-9a-f]{16} <)", text)[1:]:
        if re.search(r"%[yz]mm\d", function):
            wide.add(home.get(int(function[:16], 16), "an unknown file"))
    assert wide <= {"avx2.c", "avx512.c"}
