"""Random networks of small whole numbers, which bfloat16 holds: the results of float32, whatever is rounded and
wherever images and rows are stored in 16 bits."""

import math
import random
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from random_steps import MOVES, combined

import fusedops as fo
from fusedops import _core
from fusedops.graph.ir.dtypes import name_of
from fusedops.graph.planner import precision
from qdq_net import Net, runtime

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not _core.has_bfloat16(), reason="the processor has no dot product of bfloat16"),
]


@pytest.fixture(autouse=True)
def all_in_bfloat16(monkeypatch):
    """Whatever the size, wherever there is a product."""
    monkeypatch.setattr(precision, "_pays", lambda ns_of, *case: ns_of(*case)[1] < math.inf)


def whole(net, *shape):
    return net.rng.integers(-3, 3, shape, endpoint=True).astype(np.float32)


def held(net, v):
    return net.add("Clip", v, np.float32(-8), np.float32(100))


def summed(net, v):
    """v held, but for a product, whose sums are exact and take a residual."""
    last = net.nodes[-1] if net.nodes else None
    return v if last is not None and last.op_type in ("Conv", "MatMul") and v in last.output else held(net, v)


def convolution(net, rng, v, s):
    k, groups = rng.choice([1, 3]), rng.choice([1, 1, s[1]])
    channels = groups if groups > 1 else rng.choice([1, 5, 16, 17])
    if len(s) < 4:
        return v, s
    given = whole(net, channels, s[1] // groups, k, k), *([whole(net, channels)] if rng.random() < 0.6 else [])
    return net.add("Conv", held(net, v), *given, pads=[k // 2] * 4, group=groups), (s[0], channels, *s[2:])


def transposed_convolution(net, rng, v, s):
    if len(s) < 4 or s[2] * s[3] > 100:
        return v, s
    v = net.add("ConvTranspose", held(net, v), whole(net, s[1], 5, 2, 2), strides=[2, 2])
    return v, (s[0], 5, 2 * s[2], 2 * s[3])


def product(net, rng, v, s):
    n = rng.choice([1, 7, 16])
    v = net.add("MatMul", held(net, v), whole(net, s[-1], n))
    return net.add("Add", v, whole(net, n)) if rng.random() < 0.5 else v, (*s[:-1], n)


STEPS = [*[convolution] * 6, transposed_convolution, *[product] * 4, *MOVES]


def network(seed):
    """(model, input): a chain of steps with sums, products and concatenations of earlier values."""
    rng, net = random.Random(seed), Net(seed)
    shape = rng.choice([1, 2]), rng.choice([1, 3, 8, 17]), *[rng.choice([4, 5, 8])] * 2
    values = [("x", shape)]
    for _ in range(rng.randint(4, 12)):
        v, s = rng.choice(values[-2:])
        if rng.random() < 0.3:
            v, s = combined(net, rng, summed(net, v), s, values, lambda u: held(net, u))
        else:
            v, s = rng.choice(STEPS)(net, rng, v, s)
        if np.prod(s[1:]) > 6000:
            break
        values.append((v, s))
    x = net.rng.integers(-8, 8, shape, endpoint=True).astype(np.float32)
    batch = ("n", *shape[1:]) if rng.random() < 0.4 else shape
    results = dict.fromkeys([net.add("Neg", values[-1][0]), *rng.sample([v for v, _ in values[1:]], rng.randint(0, 1))])
    return net.model({"x": (np.float32, batch)}, *results, opset=18), x


def outputs(y):
    return y if isinstance(y, tuple) else (y,)


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_whole_numbers(first):
    types = Counter()
    for seed in range(first, first + 40):
        proto, x = network(seed)
        model = fo.load_onnx(proto, precision="bfloat16")
        for given in (x, x[:1], np.concatenate([x, -x])):
            if model.inputs[0].shape[0] == "n" or given is x:
                for y, want in zip(outputs(model(given)), runtime(proto, given, fused=False), strict=True):
                    np.testing.assert_array_equal(y, want, str(seed))
        types.update(name_of(t) for s in model._plan(x)[0].steps for t in s.arguments.get("types", ()))
    assert types["bfloat16"] and types["float32"] > 50  # stored in bfloat16, and rounded on the way
