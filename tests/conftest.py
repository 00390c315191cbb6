import faulthandler
import os
import re
import signal
import zlib
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import machines

machines.become()  # before the library is loaded

import catalog
import fusedops as fo
from fusedops import _core
from fusedops.graph.runtime.session import Session

PEERS = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "dask": "Dask"}
SECONDS = 900  # of one test
left_out = pytest.StashKey[int]()


def pytest_addoption(parser):
    parser.addoption("--but", metavar="LOG", help="leave out what passed in another run, whose output with -rp this is")


def pytest_configure():
    """A test that waits for ever ends the process, and shows where every thread waits. An alarm costs nothing; pytest's
    own faulthandler_timeout starts a thread for each test."""
    if reason := machines.lacks():
        pytest.exit(reason, returncode=0)
    if hasattr(signal, "SIGALRM"):
        faulthandler.register(signal.SIGALRM, file=os.dup(2), chain=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol():
    alarm = getattr(signal, "alarm", int)
    alarm(SECONDS)
    try:
        return (yield)
    finally:
        alarm(0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Of sets below the newest a part of the items is enough for each day: every eighth of plain C, whose largest
    shapes take longest, and every second of others; as one of several machines every third of a kernel. CI runs all."""
    if log := config.getoption("but"):
        passed = set(re.findall(r"^PASSED (.+)$", Path(log).read_text(), re.MULTILINE))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    parts = {isa: 8 if isa == "scalar" else 2 for isa in fo.available_isas()[:-1]}
    for item in items:
        part = parts.get(item.callspec.params.get("isa"), 1) if hasattr(item, "callspec") else 1
        if machines.named() and item.path.parent.name == "kernels" and "amx" not in item.name:
            part *= 3
        if zlib.crc32(f"{item.nodeid}{machines.NAME}".encode()) % part:
            item.add_marker("thorough")


def pytest_deselected(items):
    for item in items:
        if item.get_closest_marker("thorough"):
            item.config.stash[left_out] = item.config.stash.get(left_out, 0) + 1


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # of a process of pytest-xdist: all of them collect the same items
        session.config.workeroutput["left_out"] = session.config.stash.get(left_out, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[left_out] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter, config):
    if count := config.stash.get(left_out, 0):
        terminalreporter.write_line(f"{count:,} tests that take longer were left out: pytest -m '' runs them too.")
    if absent := [name for package, name in PEERS.items() if find_spec(package) is None]:
        terminalreporter.write_line(
            f"{', '.join(absent)}: not installed, so nothing was compared with them: "
            f"pip install {' '.join(package for package in PEERS if find_spec(package) is None)}, and pytest again."
        )


@pytest.fixture(autouse=True)
def _symbolic_plans_do_not_fail(request, monkeypatch):
    """No network of any test has an operator that must be planned anew for each size."""
    if request.path.parent.name in ("frontends", "fuzz", "graph", "quantization"):
        monkeypatch.setattr(
            Session, "_failed", lambda session, error: pytest.fail(f"a symbolic plan failed: {error!r}")
        )


@pytest.fixture(scope="session", autouse=True)
def _oracle_on_one_thread():
    """Its products are small; a second BLAS thread only waits, for long where the cores are busy."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def draw():
    return catalog.Draw(seed=0)


def rates(isa):
    """Returns AVX-512's two rates, which have other tiles, other algorithms and other sets for some products, whichever
    it has here; of a machine that is named, its own."""
    if isa != "avx512":
        return ["full-rate"]
    if machines.named():
        return ["half-rate" if _core.machine()["half_rate"] else "full-rate"]
    return ["full-rate", "half-rate"]


# What tests take of an instruction set: rates, and each kind of products that this processor has.
OF_A_SET = {
    "half_rate": rates,
    "products": catalog.int8_products,
    "bf16_products": catalog.bf16_products,
}


def pytest_generate_tests(metafunc):
    """Every instruction set of this machine in turn, and what each has."""
    names = [name for name in OF_A_SET if name in metafunc.fixturenames]
    with_isa = "isa" in metafunc.fixturenames
    if names or with_isa:
        newest = not with_isa or machines.named()
        sets = [fo.isa()] if newest else fo.available_isas()
        cases = [(isa, *rest) for isa in sets for rest in product(*(OF_A_SET[name](isa) for name in names))]
        cases = [case[not with_isa :] for case in cases]
        metafunc.parametrize(["isa"] * with_isa + names, cases, indirect=True, ids=map("-".join, cases))


@pytest.fixture
def isa(request):
    with catalog.using_isa(request.param):
        yield request.param


@pytest.fixture
def half_rate(request):
    with catalog.using_machine(half_rate=request.param == "half-rate"):
        yield request.param == "half-rate"


@pytest.fixture
def products(isa, request):
    """One kind of products of int8: by AMX, by the int8 dot product, or by neither."""
    with catalog.using_int8_products(request.param):
        yield request.param


@pytest.fixture
def bf16_products(isa, request):
    """One kind of products of bfloat16: by AMX, by its dot product, or in float32."""
    with catalog.using_bf16_products(request.param):
        yield request.param


@pytest.fixture(params=[1, 3], ids="{}-threads".format)
def threads(request):
    before = fo.get_num_threads()
    fo.set_num_threads(request.param)
    yield request.param
    fo.set_num_threads(before)


@pytest.fixture(autouse=True)
def _same_state_after():
    """No test leaves another instruction set, another thread count or changed floating-point modes behind."""
    before = fo.isa(), fo.get_num_threads()
    yield
    assert (fo.isa(), fo.get_num_threads()) == before
    assert np.float32(1e-40) * np.float32(1) != 0
