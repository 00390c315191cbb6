"""Random networks of int8, quantised anywhere, against ONNX Runtime without optimisation."""

import random

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import fusedops as fo
from qdq_net import Net, runtime

pytestmark = pytest.mark.thorough


def quantisation(rng):
    """(scale, zero point, type)."""
    dtype = rng.choice([np.uint8, np.int8])
    info = np.iinfo(dtype)
    return rng.uniform(0.01, 0.06), rng.choice([0, rng.randint(int(info.min), int(info.max))]), dtype


def convolution(net, rng, v, s):
    channels, k = rng.choice([3, 5, 8]), rng.choice([1, 3])
    bias = [net.bias(channels)] if rng.random() < 0.6 else []
    return net.add("Conv", v, net.weights(channels, s[1], k, k), *bias, pads=[k // 2] * 4), (s[0], channels, *s[2:])


def resized(net, rng, v, s):
    nearest = dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    v = net.add("Resize", v, "", np.float32([1, 1, 2, 2]), **nearest)
    return v, (*s[:2], 2 * s[2], 2 * s[3])


def same(op, *more, **attrs):
    """An operator that keeps the shape."""
    return lambda net, rng, v, s: (net.add(op, v, *more, **attrs), s)


STEPS = [
    convolution,
    resized,
    lambda net, rng, v, s: (net.add("Conv", v, net.weights(s[1], 1, 3, 3), group=s[1], pads=[1] * 4), s),
    *(same(op) for op in ("Relu", "Sigmoid", "Tanh", "HardSwish")),
    same("Mul", np.float32(1.37)),
    same("MaxPool", kernel_shape=[3, 3], pads=[1] * 4),
    same("AveragePool", kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
    lambda net, rng, v, s: (net.add("GlobalAveragePool", v), (*s[:2], 1, 1)),
    lambda net, rng, v, s: (net.add("Transpose", v, perm=[0, 1, 3, 2]), (*s[:2], s[3], s[2])),
    lambda net, rng, v, s: (net.add("Reshape", v, np.int64([0, 0, -1, 1])), (*s[:2], s[2] * s[3], 1)),
    lambda net, rng, v, s: (net.add("Pad", v, np.int64([0, 0, 1, 0, 0, 0, 0, 1])), (*s[:2], s[2] + 1, s[3] + 1)),
    lambda net, rng, v, s: (net.add("Slice", v, np.int64([-1]), np.int64([s[1]]), np.int64([1])), (s[0], 1, *s[2:])),
]


def network(seed):
    """(model, input): a chain of steps with sums, products and concatenations of earlier values."""
    rng, net = random.Random(seed), Net(seed)
    shape = rng.choice([1, 2]), rng.choice([3, 4, 8]), *[rng.choice([5, 8])] * 2
    values = [("x", shape)]
    for _ in range(rng.randint(3, 9)):
        v, s = rng.choice(values[-3:])
        v = net.between(v, *quantisation(rng)) if rng.random() < 0.8 else v
        alike = [u for u in values if u[1][0] == s[0] and u[1][2:] == s[2:]]
        if rng.random() < 0.3 and alike:
            other, t = rng.choice(alike)
            other = net.between(other, *quantisation(rng))
            if t == s and rng.random() < 0.6:
                v = net.add(rng.choice(["Add", "Mul", "Sub"]), v, other)
            else:
                v, s = net.add("Concat", v, other, axis=1), (s[0], s[1] + t[1], *s[2:])
        else:
            v, s = rng.choice(STEPS)(net, rng, v, s)
        if np.prod(s[1:]) > 6000:
            break
        values.append((v, s))
    q = quantisation(rng)
    y = net.quantize(values[-1][0], *q)
    batch = ("n", *shape[1:]) if rng.random() < 0.4 else shape
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return net.model({"x": (np.float32, batch)}, y, types=[q[2]], opset=18), x


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_networks(first):
    """Values within rounding of a half may go either way, and what follows from them: few, by few steps."""
    for seed in range(first, first + 20):
        proto, x = network(seed)
        want = runtime(proto, x, fused=False)[0]
        model = fo.load_onnx(proto)
        for each in (model, fo.load_onnx(proto, fuse=False)):
            y = each(x)
            assert y.shape == want.shape and y.dtype == want.dtype, seed
            assert np.mean(np.abs(y.astype(int) - want) > 2) < 0.02, seed
        if model.inputs[0].shape[0] == "n":
            np.testing.assert_array_equal(model(x[:1]), model(x)[:1])
