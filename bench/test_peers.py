"""fusedops and the peers that are installed, each in a process of its own, every result compared with ours first."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from . import cases
from .peers import PEERS, Unsupported, variants
from .peers.process import Clock, PeerProcess

QUICK = (
    "conv1x1_128x28_256",
    "conv3x3_64x128_weenet",
    "conv3x3_64x56",
    "dw3x3_512x14",
    "inverted_24x56",
    "linear_512x512x512",
    "rnn_cell_128",
    "lstm_cell_128",
    "lstm_50x1_128",
    "mobilenet_v2",
)
TOLERANCE = 1e-4  # of the largest value
clock = Clock()
pytestmark = pytest.mark.benchmark(timer=clock)


@pytest.fixture(scope="module", params=PEERS)
def peer(request):
    """The process of a peer; it ends before the next one starts."""
    needs, package = PEERS[request.param].needs, PEERS[request.param].package
    if not all(map(find_spec, needs)):
        pytest.skip(f"not installed: pip install {package}")
    process = clock.process = PeerProcess(request.param, request.config.option.threads)
    yield process
    process.close()


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", [*cases.CASES, *cases.files(metafunc.config.option.networks)])


def test_peer(benchmark, quick, peer, name):
    file = name not in cases.CASES
    if quick and not file and name not in QUICK:
        pytest.skip("not in a quick run")
    if file or name in cases.NETWORKS:
        pytest.importorskip("onnx", reason="networks need onnx: pip install -e '.[onnx]'")
    try:
        ours, result = _ours(name), peer.prepare(name)
    except Unsupported as e:
        pytest.skip(str(e))
    except Exception as e:  # a file that one of them does not read or run
        if not file:
            raise
        pytest.skip(f"{type(e).__name__}: {e}")
    ours = ours.astype(np.float64)
    error = np.max(np.abs(result.reshape(ours.shape) - ours)) / np.max(np.abs(ours))
    if file and not error < TOLERANCE:
        pytest.skip(f"differs by {error:.1e} of the largest value: int8, or a network that enlarges rounding")
    assert error < TOLERANCE
    case = Path(name).stem
    benchmark.group = f"{case}, peers"
    benchmark.extra_info.update(kind="peer", name=case, peer=peer.peer, flop=cases.data(name)[0].flop)
    round_seconds, total_seconds = (2e-3, 1e-2) if quick else (1e-2, 0.3)
    seconds = peer.seconds_of_a_call()
    number = max(1, round(round_seconds / seconds))
    benchmark.pedantic(peer.run, (number,), rounds=max(5, round(total_seconds / (number * seconds))))


def _ours(name):
    operation, a = cases.data(name)
    y = list(variants.variants(operation, a).values())[-1]()
    return y[0] if isinstance(y, tuple) else y
