"""Operators that ONNX had on trial before opset 7, and some that came to be defined by others later, against ONNX
Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper

import fusedops as fo

X = np.random.default_rng(0).standard_normal((2, 3, 6, 5)).astype(np.float32)


def network(nodes, opset, shape=(2, 3, 6, 5), constants=()):
    old = opset < 4  # files of that time list weights as inputs
    stored = [numpy_helper.from_array(a, name) for name, a in dict(constants).items()]
    given = [helper.make_tensor_value_info("x", 1, shape)]
    given += [helper.make_tensor_value_info(t.name, 1, t.dims) for t in stored] if old or opset < 7 else []
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", 1, None)], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


def expected(proto, x):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )


def check(proto, x=X):
    (wanted,) = expected(proto, x)
    for options in ({}, {"fold": False, "fuse": False}):
        y = fo.load_onnx(proto, **options).run({"x": x})["y"]
        assert y.dtype == wanted.dtype and y.shape == wanted.shape
        np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("opset", [1, 6, 7, 8])
@pytest.mark.parametrize("op, attrs", [
    ("Affine", {"alpha": 2.0, "beta": 0.5}), ("Affine", {}),
    ("Crop", {"border": [1, 2, 0, 1]}), ("Crop", {"border": [1, 2, 1, 1], "scale": [2, 3]}),
    ("ImageScaler", {"bias": [1.0, 2.0, 3.0], "scale": 2.0}), ("ImageScaler", {"bias": [1.0, 2.0, 3.0]}),
    ("MeanVarianceNormalization", {}), ("MeanVarianceNormalization", {"across_channels": 1}),
    ("MeanVarianceNormalization", {"normalize_variance": 0}),
    ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}), ("Scale", {"scale": 0.5}),
    ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}), ("ThresholdedRelu", {"alpha": 0.5}), ("ThresholdedRelu", {}),
])  # fmt: skip
def test_operators_on_trial(op, attrs, opset):
    check(network([helper.make_node(op, ["x"], ["y"], **attrs)], opset))


def test_between_others_of_an_opset_that_is_converted():
    """The converter has to know the shapes in front of an addition with a bias."""
    nodes = [
        helper.make_node("ImageScaler", ["x"], ["s"], bias=[1.0, 2.0, 3.0], scale=2.0),
        helper.make_node("Crop", ["s"], ["c"], border=[1, 1, 1, 0]),
        helper.make_node("Affine", ["c"], ["a"], alpha=0.5),
        helper.make_node("Add", ["a", "b"], ["y"], broadcast=1),
    ]
    net = fo.load_onnx(network(nodes, 6, constants={"b": np.float32([3, -1, 2])}))  # ONNX Runtime adds from opset 7 on
    expected = (2 * X + np.float32([1, 2, 3])[:, None, None])[:, :, 1:, 1:4] / 2 + np.float32([3, -1, 2])
    np.testing.assert_allclose(net(X), expected, rtol=1e-6)


@pytest.mark.parametrize("opset", [6, 7])
@pytest.mark.parametrize("attrs", [{}, {"border": [1, 2]}, {"border": 3}, {"border": [0, 0, 0, 0], "scale": [2]}])
def test_damaged_crops(attrs, opset):
    with pytest.raises(ValueError):
        fo.load_onnx(network([helper.make_node("Crop", ["x"], ["y"], **attrs)], opset))


def test_thresholds_of_the_opset_that_has_them():
    check(network([helper.make_node("ThresholdedRelu", ["x"], ["y"], alpha=0.25)], 10))
    check(network([helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2])], 9))


@pytest.mark.parametrize("opset", [7, 11, 13, 18])
def test_logarithm_of_a_sum(opset):
    axes = {"constants": {}} if opset < 18 else {"constants": {"a": np.int64([1, 3])}}
    attrs = {"axes": [1, 3]} if opset < 18 else {}
    node = helper.make_node("ReduceLogSum", ["x", *axes["constants"]], ["y"], keepdims=0, **attrs)
    check(network([node], opset, **axes), np.abs(X))


@pytest.mark.parametrize("height, ceil", [(6, 0), (7, 0), (7, 1)])
def test_maxima_go_back_where_they_were(height, ceil):
    """The indices of a pool are those of its image, which the wanted shape may restore where the pool left a row out or
    looked beyond it."""
    x = np.random.default_rng(1).standard_normal((2, 3, height, 5)).astype(np.float32)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "i"], ceil_mode=ceil, **window),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("MaxUnpool", ["p", "i", "s"], ["y"], **window),
    ]
    proto = network(nodes, 11, (None, 3, None, None))
    if not ceil:  # where ONNX Runtime wants more rows than the image has
        check(proto, x)
    y = fo.load_onnx(proto)(x)
    assert np.array_equal(y[y != 0], x[y != 0]) and (y != 0).sum() == np.prod(nodes_out(x.shape, ceil))


def nodes_out(shape, ceil):
    return [*shape[:2], *(-(-n // 2) if ceil else n // 2 for n in shape[2:])]
