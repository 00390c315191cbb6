"""Random networks of int8, quantized anywhere, against ONNX Runtime without optimization."""

import random

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from random_steps import MOVES, alone, combined

import fusedops as fo
from fusedops.graph.inference import cost
from fusedops.graph.operators import qlinear
from qdq_net import Net, runtime

pytestmark = pytest.mark.thorough

LONGEST = 250  # products whose sum of int8 is exact in float32


@pytest.fixture(autouse=True)
def all_in_int8(monkeypatch):
    """Whatever the size: int8 are worth it for every layer, and several pixels at once."""
    monkeypatch.setattr(cost, "unquantized", lambda *shapes: 0.5)
    monkeypatch.setattr(qlinear, "PIXELS", 16)


def quantization(net, rng):
    """(scale, zero point, type)."""
    dtype = rng.choice([np.uint8, np.int8])
    info = np.iinfo(dtype)
    scale = 0.5 ** rng.randint(3, 7) if net.exact else rng.uniform(0.01, 0.06)
    return scale, rng.choice([0, rng.randint(int(info.min), int(info.max))]), dtype


def weights(net, rng, *shape, axis=0):
    dtype = rng.choice([np.int8, np.int8, np.uint8])
    zero = rng.choice([0, 0, -100, 127] if dtype is np.int8 else [128, 0, 77])
    return net.weights(*shape, axis=axis, each=rng.random() < 0.6, dtype=dtype, zero=zero)


def convolution(net, rng, v, s):
    groups = rng.choice([1, 1, 1, s[1]])
    channels, k = groups if groups > 1 else rng.choice([1, 3, 5, 8]), rng.choice([1, 3])
    if len(s) < 4 or s[1] * k * k > LONGEST:
        return v, s
    given = weights(net, rng, channels, s[1] // groups, k, k), *([net.bias(channels)] if rng.random() < 0.6 else [])
    return net.add("Conv", v, *given, pads=[k // 2] * 4, group=groups), (s[0], channels, *s[2:])


def product(net, rng, v, s):
    n = rng.choice([1, 4, 9])
    v = net.add("MatMul", v, weights(net, rng, s[-1], n, axis=1))
    return net.add("Add", v, net.bias(n)) if rng.random() < 0.5 else v, (*s[:-1], n)


def mean(net, rng, v, s):
    return (net.add("GlobalAveragePool", v), (*s[:2], 1, 1)) if len(s) == 4 else (v, s)


EXACT = [convolution, convolution, product, *MOVES]
STEPS = [*EXACT, mean, *map(alone, ("Sigmoid", "Tanh", "HardSwish")), alone("Mul", np.float32(1.37))]


def network(seed, exact):
    """(model, input): a chain of steps with sums, products and concatenations of earlier values."""
    rng, net = random.Random(seed), Net(seed, exact)
    shape = rng.choice([1, 2]), rng.choice([1, 1, 3, 4, 8]), *[rng.choice([4, 5, 8])] * 2
    values = [("x", shape)]

    def rounded(v):
        return net.between(v, *quantization(net, rng))

    for _ in range(rng.randint(4, 10)):
        v, s = rng.choice(values[-3:])
        v = rounded(v) if exact or rng.random() < 0.8 else v
        if rng.random() < 0.45:
            v, s = combined(net, rng, v, s, values, rounded)
        else:
            v, s = rng.choice(EXACT if exact else STEPS)(net, rng, v, s)
        if np.prod(s[1:]) > 6000:
            break
        values.append((v, s))
    q = quantization(net, rng)
    y = net.quantize(values[-1][0], *q)
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    batch = ("n", *shape[1:]) if rng.random() < 0.4 else shape
    return net.model({"x": (np.float32, batch)}, y, types=[q[2]], opset=18), x


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("first", range(0, 240, 20))
def test_random_networks(first, exact):
    """Values within rounding of a half may go either way, and what follows from them: few, by few steps; none where
    floats are exact."""
    steps, share = (0, 0) if exact else (2, 0.02)
    for seed in range(first, first + 20):
        proto, x = network(seed, exact)
        want = runtime(proto, x, fused=False)[0]
        model = fo.load_onnx(proto)
        for each in (model, *([] if exact else [fo.load_onnx(proto, fuse=False)])):  # unfused, Winograd rounds
            y = each(x)
            assert y.shape == want.shape and y.dtype == want.dtype, seed
            assert np.mean(np.abs(y.astype(int) - want) > steps) <= share, seed
        if model.inputs[0].shape[0] == "n":
            np.testing.assert_array_equal(model(x[:1]), model(x)[:1])
