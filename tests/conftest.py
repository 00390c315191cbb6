import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import fusedops as fo
from fusedops import _core
from operations import Draw, using_isa


@pytest.fixture(scope="session", autouse=True)
def _oracle_on_one_thread():
    """Its products are small; a second BLAS thread only waits, for long where the cores are busy."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def draw():
    return Draw(seed=0)


@pytest.fixture(params=fo.available_isas())
def isa(request):
    """Every instruction set of this machine in turn."""
    with using_isa(request.param):
        yield request.param


@pytest.fixture(params=[False, True], ids=["full-rate", "half-rate"])
def half_rate(request):
    """As where AVX-512 runs at either rate, whichever it is here: other tiles, other algorithms, other sets for some
    products."""
    if "isa" in request.fixturenames:
        request.getfixturevalue("isa")
    if request.param and fo.isa() != "avx512":
        pytest.skip("only AVX-512 may run at half rate")
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
