import re
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import fusedops as fo
from catalog import Draw, using_isa
from fusedops import _core
from fusedops.graph.runtime.session import Session

PEERS = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "dask": "Dask"}
left_out = pytest.StashKey[int]()


def pytest_addoption(parser):
    parser.addoption("--but", metavar="LOG", help="leave out what passed in another run, whose output with -rp this is")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Of plain C, whose largest shapes take longest, every eighth item is enough for each day; CI runs all."""
    if log := config.getoption("but"):
        passed = set(re.findall(r"^PASSED (.+)$", Path(log).read_text(), re.MULTILINE))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    if fo.available_isas() == ["scalar"]:
        return
    for item in items:
        of_scalar = hasattr(item, "callspec") and item.callspec.params.get("isa") == "scalar"
        if of_scalar and zlib.crc32(item.nodeid.encode()) % 8:
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
    return Draw(seed=0)


def pytest_generate_tests(metafunc):
    """Every instruction set of this machine in turn, and AVX-512 at either rate: other tiles, other algorithms, other
    sets for some products, whichever rate it has here."""
    rates = {name: [False, True] if name == "avx512" else [False] for name in fo.available_isas()}
    names = [name for name in ("isa", "half_rate") if name in metafunc.fixturenames]
    if names == ["isa", "half_rate"]:
        cases = [(name, rate) for name, found in rates.items() for rate in found]
        ids = [f"{name}-{'half' if rate else 'full'}-rate" if len(rates[name]) > 1 else name for name, rate in cases]
        metafunc.parametrize(names, cases, indirect=True, ids=ids)
    elif names:
        metafunc.parametrize(names[0], rates if names == ["isa"] else rates[fo.isa()], indirect=True)


@pytest.fixture
def isa(request):
    with using_isa(request.param):
        yield request.param


@pytest.fixture
def half_rate(request):
    before = _core.half_rate()
    _core.set_half_rate(request.param)
    yield request.param
    _core.set_half_rate(before)


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
