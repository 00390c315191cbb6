"""Sums of a layer's bytes and others inside the layer: the integers of two steps."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import fusedops as fo
from fusedops.graph.inference import cost
from q_oracle import bytes_of
from qdq_net import Net, runtime

ALONE = {"disabled_passes": ("8-bit additions",)}
KINDS = np.uint8, np.int8
SHAPES = {  # of x, outputs, kernel, groups
    "pixels": ((2, 19, 5, 7), 37, (1, 1), 1),
    "many pixels": ((1, 64, 14, 14), 80, (1, 1), 1),
    "patches": ((1, 5, 6, 5), 33, (3, 3), 1),
    "bands": ((1, 8, 5, 70), 16, (3, 3), 1),
    "groups": ((1, 12, 6, 5), 20, (3, 3), 4),
    "depthwise": ((2, 70, 6, 9), 70, (3, 3), 70),
    "planes": ((1, 3, 9, 80), 3, (3, 3), 3),
}


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    """int8 are worth it for every layer, on every machine."""
    monkeypatch.setattr(cost, "unquantized", lambda *shapes: 0.5)


def kinds(model, *arrays):
    return [step.kind for step in model._plan(*arrays)[0].steps]


def same(proto, *arrays, steps):
    """The bits of two steps, within one of ONNX Runtime's; the kinds of steps that are left."""
    model, alone = fo.load_onnx(proto), fo.load_onnx(proto, **ALONE)
    y = model(*arrays)
    np.testing.assert_array_equal(y, alone(*arrays))
    off = np.abs(y.astype(int) - runtime(proto, *arrays, fused=False)[0].astype(int))
    assert off.max(initial=0) <= 1 and np.count_nonzero(off) <= max(2, off.size // 200)
    assert len(np.unique(y)) > 30
    left = [kind for kind in kinds(model, *arrays) if kind != "copy"]
    assert left == steps and "qbinary" in kinds(alone, *arrays)
    return model


def block(shape, oc, kernel, groups, types, first, activation=None):
    """A convolution rounded to bytes, plus other bytes; types: of x, product, residual and result."""
    net = Net()
    zeros = [131 if t == np.uint8 else -7 for t in types]
    real = net.dequantize("x", 0.05, zeros[0], types[0])
    w = net.weights(oc, shape[1] // groups, *kernel)
    size = (shape[0], oc, *(n if kernel[0] == 3 else n - kernel[0] + 1 for n in shape[2:]))
    pads = [1] * 4 if kernel[0] == 3 else [0] * 4
    y = net.add("Conv", real, w, net.bias(oc), group=groups, pads=pads)
    scale = 0.05 * 0.0017 * 70 * (shape[1] // groups * kernel[0] * kernel[1]) ** 0.5 / 60
    y = net.between(y, scale, zeros[1], types[1])
    other = net.dequantize("r", scale * 0.7931, zeros[2], types[2])
    y = net.add("Add", y, other) if first else net.add("Add", other, y)
    y = net.add(activation, y) if activation else y
    y = net.quantize(y, scale * 1.1713, zeros[3], types[3])
    return net.model({"x": (types[0], shape), "r": (types[2], size)}, y, types=types[3:]), size


@pytest.mark.parametrize("shape", SHAPES)
def test_same_integers(isa, threads, rng, shape, products):
    for i in range(4):
        types = [KINDS[i >> bit & 1] for bit in range(2)] * 2
        proto, size = block(*SHAPES[shape], types, first=i % 2, activation=(None, "Relu")[i // 2])
        arrays = bytes_of(rng, SHAPES[shape][0], types[0]), bytes_of(rng, size, types[2])
        same(proto, *arrays, steps=["qconv2d"])


@pytest.mark.parametrize("m", [1, 5, 33])
def test_same_integers_of_linear_layers(isa, rng, m):
    net = Net()
    y = net.add("Add", net.add("MatMul", net.dequantize("x"), net.weights(40, 45, axis=1)), net.bias(45))
    y = net.add("Relu", net.add("Add", net.dequantize("r", 0.0173, 3), net.between(y, 0.00717, 128)))
    inputs = {"x": (np.uint8, ("n", 40)), "r": (np.uint8, ("n", 45))}
    proto = net.model(inputs, net.quantize(y, 0.02, 0), types=[np.uint8])
    same(proto, bytes_of(rng, (m, 40), np.uint8), bytes_of(rng, (m, 45), np.uint8), steps=["qlinear"])


def skip(shortcut, activation=None, reads=1):
    """Two layers whose results meet: an addition may come before its layers in the file."""
    net = Net()
    real = net.dequantize("x")
    a = net.add("Conv", real, net.weights(16, 16, 3, 3), net.bias(16), pads=[1] * 4)
    a = net.add(activation, a) if activation else a
    a = net.between(a, 0.03, 128)
    b = net.between(net.add("Conv", real, net.weights(16, 16, 1, 1)) if shortcut else net.add("Tanh", real), 0.011, 90)
    y = net.add("Add", a, b)
    y = net.quantize(net.add("Add", net.between(y, 0.04, 100), a) if reads > 1 else net.add("Relu", y), 0.05, 10)
    return net.model({"x": (np.uint8, ("n", 16, 9, 8))}, y, types=[np.uint8])


@pytest.mark.parametrize("n", [1, 3])
def test_a_sum_waits_for_both_addends(threads, rng, n):
    x = bytes_of(rng, (n, 16, 9, 8), np.uint8)
    model = same(skip(True), x, steps=["qconv2d", "qconv2d"])
    assert [f.kind for f in model.explain().fusions].count("8-bit additions") == 1
    same(skip(False), x, steps=["lookup", "qconv2d"])


def test_what_is_not_added_inside_is_named(rng):
    x = bytes_of(rng, (1, 16, 9, 8), np.uint8)
    for proto, reason in (skip(False, "Relu"), "has an activation"), (skip(False, reads=2), "has 2 consumers"):
        model = fo.load_onnx(proto)
        assert any(r.kind == "8-bit additions" and reason in r.reason for r in model.explain().refusals)
        np.testing.assert_array_equal(model(x), fo.load_onnx(proto, **ALONE)(x))


def test_a_row_that_is_broadcast_stays_apart(rng):
    """Over a batch that is one as the network is read, too."""
    net = Net()
    y = net.between(net.add("MatMul", net.dequantize("x"), net.weights(40, 45, axis=1)), 0.007, 128)
    y = net.quantize(net.add("Add", y, net.dequantize("r", 0.02, 3)), 0.02, 120)
    proto = net.model({"x": (np.uint8, ("n", 40)), "r": (np.uint8, (1, 45))}, y, types=[np.uint8])
    model = fo.load_onnx(proto)
    assert any("not of one known shape" in r.reason for r in model.explain().refusals)
    for n in (1, 3):
        arrays = bytes_of(rng, (n, 40), np.uint8), bytes_of(rng, (1, 45), np.uint8)
        assert np.abs(model(*arrays).astype(int) - runtime(proto, *arrays, fused=False)[0]).max() <= 1


def test_saved(rng, tmp_path):
    x = bytes_of(rng, (2, 16, 9, 8), np.uint8)
    model = fo.load_onnx(skip(True))
    model.save(tmp_path / "net.fo")
    y, loaded = model(x), fo.load(tmp_path / "net.fo")
    np.testing.assert_array_equal(loaded(x), y)
    assert kinds(loaded, x) == kinds(model, x)
