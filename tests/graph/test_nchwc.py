"""Files that ONNX Runtime saved at its default level: images have their channels in blocks."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper
from onnx.parser import parse_model

import fusedops as fo
import machines
from fusedops.graph.operators.contrib import nchwc

RNG = np.random.default_rng(0)
NET = """<ir_version: 8, opset_import: ["" : 13]>
net (float[n, 3, h, w] x) => (float[n, o, hh, ww] y, float[n, c, one, two] pooled, float[n, p, a, b] up,
                               float[n, m, d, e] g) {
    a = Conv<pads=[1, 1, 1, 1]>(x, wa, ba)  ra = Relu(a)  b = Conv<group=32, pads=[1, 1, 1, 1]>(ra, wb, bb)
    rb = LeakyRelu<alpha=0.2>(b)  s = Add(rb, ra)  c = Conv(s, wc, bc)  rc = Sigmoid(c)
    p = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(rc)  d = Conv<pads=[1, 1, 1, 1], group=2>(p, wd)  t = Add(d, p)
    y = Relu(t)  q = AveragePool<kernel_shape=[2, 2]>(p)  pooled = GlobalAveragePool(q)  g = GlobalMaxPool(q)
    up = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(p, , scales)
}"""
SHAPES = {"wa": (32, 3, 3, 3), "wb": (32, 1, 3, 3), "wc": (64, 32, 1, 1), "wd": (64, 32, 3, 3)}


def saved(tmp_path):
    proto = parse_model(NET)
    for name, shape in SHAPES.items():
        w = RNG.standard_normal(shape, np.float32) / np.float32(np.prod(shape[1:])) ** 0.5
        proto.graph.initializer.extend([numpy_helper.from_array(w, name)])
        if name != "wd":
            bias = numpy_helper.from_array(RNG.standard_normal(shape[0], np.float32), f"b{name[1]}")
            proto.graph.initializer.extend([bias])
    proto.graph.initializer.extend([numpy_helper.from_array(np.float32([1, 1, 2, 3]), "scales")])
    options = ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "saved.onnx"), 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.skipif(machines.named(), reason="ONNX Runtime takes its blocks from the processor")
def test_what_onnx_runtime_saves(tmp_path):
    session = saved(tmp_path)
    kinds = {n.op_type for n in onnx.load(tmp_path / "saved.onnx").graph.node if n.domain == nchwc.DOMAIN}
    if not kinds:
        pytest.skip("on this processor ONNX Runtime has no blocks")
    assert {"Conv", "ReorderOutput", "MaxPool", "Upsample"} <= kinds
    for options in ({}, {"fold": False, "fuse": False}):
        net = fo.load_onnx(tmp_path / "saved.onnx", **options)
        for shape in ((1, 3, 12, 10), (2, 3, 9, 16)):
            x = RNG.standard_normal(shape, np.float32)
            for y, wanted in zip(net(x), session.run(None, {"x": x}), strict=True):
                np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=2e-6)


def in_blocks(w, block, inside):
    """Weights in the order of ONNX Runtime's blocks: of outputs, and `inside` of inputs too."""
    o, i, h, k = w.shape
    if not inside:
        return np.ascontiguousarray(w.reshape(o // block, block, i, h, k).transpose(0, 2, 3, 4, 1)).reshape(w.shape)
    parts = w.reshape(o // block, block, i // block, block, h, k).transpose(0, 2, 4, 5, 3, 1)
    return np.ascontiguousarray(parts).reshape(w.shape)


@pytest.mark.parametrize("channels, padded, block", [(24, 24, 8), (20, 32, 16), (32, 32, None)])
@pytest.mark.parametrize("last", [0, 1])
def test_blocks_of_other_processors(channels, padded, block, last):
    """The length of a block follows from channels; where all fit, it is that of the processor at hand."""
    used = block or nchwc.block_of([], {})
    w, v = np.zeros((padded, padded, 1, 1), np.float32), np.zeros((padded, 1, 3, 3), np.float32)
    w[:channels, :channels] = RNG.standard_normal((channels, channels, 1, 1))
    v[:channels] = RNG.standard_normal((channels, 1, 3, 3))
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["a"], domain=nchwc.DOMAIN, channels_last=last),
        helper.make_node("Conv", ["a", "w"], ["b"], domain=nchwc.DOMAIN, activation="Relu"),
        helper.make_node("Conv", ["b", "v", "", "a"], ["c"], domain=nchwc.DOMAIN, group=padded, pads=[1] * 4),
        helper.make_node("ReorderOutput", ["c"], ["y"], domain=nchwc.DOMAIN, channels=channels, channels_last=last),
    ]
    stored = [
        numpy_helper.from_array(in_blocks(w, used, True), "w"),
        numpy_helper.from_array(in_blocks(v, used, False), "v"),
    ]
    values = [helper.make_tensor_value_info(name, 1, [1, None, None, None]) for name in "xy"]
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(nchwc.DOMAIN, 1)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    net = fo.load_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    x = RNG.standard_normal((1, channels, 6, 5), np.float32)
    y = fo.depthwise_conv2d(fo.conv2d(x, w=w[:channels, :channels], activation="relu"), v[:channels], padding=1) + x
    found = net(x.transpose(0, 2, 3, 1) if last else x)
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2) if last else found, y, rtol=1e-4, atol=1e-5)


def test_weights_that_are_in_no_blocks():
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain=nchwc.DOMAIN)
    values = [helper.make_tensor_value_info(name, 1, [1, None, None, None]) for name in "xy"]
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(nchwc.DOMAIN, 1)]
    stored = [numpy_helper.from_array(np.ones((5, 3, 1, 1), np.float32), "w")]
    proto = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:], stored), opset_imports=opsets)
    with pytest.raises(ValueError, match="not in blocks of 8 channels"):
        fo.load_onnx(proto)
    del proto.graph.initializer[:]
    proto.graph.input.extend([helper.make_tensor_value_info("w", 1, [16, 3, 1, 1])])
    with pytest.raises(ValueError, match="weights that are not constant"):
        fo.load_onnx(proto)
