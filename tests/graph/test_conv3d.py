"""Three spatial axes: convolutions, pools, norms and resizing by kernels for two, against the operators' meaning."""

import itertools

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo
from fusedops.graph.inference.evaluate import evaluate
from fusedops.graph.ir.graph import Node


def network(nodes, x, constants, **options):
    """The network of some nodes, which takes x and gives what the last of them does."""

    def value(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    inputs, results = [value("x", ["n", x.shape[1], "d", "h", "w"])], [value(nodes[-1].output[0], None)]
    graph = helper.make_graph(
        nodes, "volumes", inputs, results, [numpy_helper.from_array(a, name) for name, a in constants.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return fo.load_onnx(model.SerializeToString(), **options)


def kinds(net, *arrays):
    return {step.kind for step in net._plan(*arrays)[0].steps}


def meaning(op, x, *others, **attrs):
    """What the operator means, in float64."""
    arrays = [a if a is None or a.dtype.kind != "f" else a.astype(np.float64) for a in (x, *others)]
    return evaluate(Node(op, op, list("abcdefg"[: len(arrays)]), ["y"], attrs), arrays)[0]


def close(y, expected):
    assert y.shape == expected.shape and y.dtype == np.float32
    np.testing.assert_allclose(y, expected, rtol=0, atol=2e-5 * max(1, np.abs(expected).max(initial=0)))


CONVOLUTIONS = {  # channels, outputs, groups, kernel, attributes
    "3x3x3": (5, 7, 1, (3, 3, 3), dict(pads=[1] * 6)),
    "no padding": (5, 7, 1, (3, 3, 3), {}),
    "1x1x1": (16, 20, 1, (1, 1, 1), {}),
    "1x3x3": (4, 6, 1, (1, 3, 3), dict(pads=[0, 1, 1] * 2)),
    "3x1x1": (4, 6, 1, (3, 1, 1), dict(pads=[1, 0, 0] * 2)),
    "strides": (3, 8, 1, (3, 3, 3), dict(pads=[1] * 6, strides=[2, 1, 2])),
    "1x1x1 with strides": (6, 8, 1, (1, 1, 1), dict(strides=[2, 2, 2])),
    "dilations": (4, 8, 1, (3, 2, 3), dict(pads=[2, 0, 1, 1, 2, 1], dilations=[2, 2, 1])),
    "more padding than image": (3, 4, 1, (2, 3, 3), dict(pads=[6, 1, 1, 7, 1, 1])),
    "groups": (6, 9, 3, (3, 3, 3), dict(pads=[1] * 6)),
    "depthwise": (17, 17, 17, (3, 3, 3), dict(pads=[1] * 6)),
    "depthwise, strides": (17, 17, 17, (3, 3, 3), dict(pads=[1] * 6, strides=[2, 2, 1])),
    "depthwise, dilations": (8, 16, 8, (2, 3, 3), dict(dilations=[3, 1, 1])),
    "same": (5, 7, 1, (4, 3, 2), dict(auto_pad="SAME_UPPER", strides=[2, 2, 2])),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(isa, draw, case, batch):
    channels, outputs, groups, kernel, attrs = CONVOLUTIONS[case]
    x, w, b = draw(batch, channels, 5, 9, 8), draw(outputs, channels // groups, *kernel), draw(outputs)
    bn = dict(g=draw(outputs), s=draw(outputs), m=draw(outputs), v=np.abs(draw(outputs)) + 0.5)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], group=groups, **attrs),
        helper.make_node("BatchNormalization", ["c", *bn], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    expected = meaning("BatchNormalization", meaning("Conv", x, w, b, group=groups, **attrs), *bn.values()).clip(0)
    for fold, fuse in itertools.product((True, False), repeat=2):
        net = network(nodes, x, dict(w=w, b=b, **bn), fold=fold, fuse=fuse)
        close(net(x), expected)
        assert "numpy" not in kinds(net, x)
        np.testing.assert_array_equal(net(x[:1]), net(x)[:1])
        assert net(x[:0]).shape == (0, *expected.shape[1:])


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("groups", [1, 4, 8])
def test_residual_and_activation(isa, threads, draw, batch, groups):
    x, w, b = draw(batch, 8, 4, 6, 6), draw(8, 8 // groups, 3, 3, 3), draw(8)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], group=groups, pads=[1] * 6),
        helper.make_node("Add", ["c", "x"], ["s"]),
        helper.make_node("LeakyRelu", ["s"], ["y"], alpha=0.1),
    ]
    net, sums = network(nodes, x, dict(w=w, b=b)), meaning("Conv", x, w, b, group=groups, pads=[1] * 6) + x
    close(net(x), np.where(sums < 0, 0.1 * sums, sums))
    assert kinds(net, x) <= {"fill", "copy", "conv2d"}


TRANSPOSED = {
    "2x2x2": (4, 3, 1, (2, 2, 2), dict(strides=[2, 2, 2])),
    "overlapping": (4, 3, 1, (3, 3, 3), dict(strides=[2, 2, 2], pads=[1] * 6, output_padding=[1] * 3)),
    "gaps": (4, 6, 2, (1, 2, 2), dict(strides=[3, 2, 2])),
    "cropped": (4, 3, 1, (4, 4, 4), dict(strides=[2, 2, 2], pads=[1] * 6)),
    "dilations": (4, 4, 4, (2, 3, 3), dict(dilations=[2, 1, 1])),
    "all of the front cropped": (3, 3, 1, (2, 2, 2), dict(strides=[2, 2, 2], pads=[3, 0, 0, 1, 0, 0])),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolution(isa, draw, case, batch):
    channels, outputs, groups, kernel, attrs = TRANSPOSED[case]
    x, w, b = draw(batch, channels, 3, 4, 5), draw(channels, outputs // groups, *kernel), draw(outputs)
    expected = meaning("ConvTranspose", x, w, b, group=groups, **attrs)
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], group=groups, **attrs)]
    close(network(nodes, x, dict(w=w, b=b))(x), expected)
    r = draw(*expected.shape)
    nodes += [helper.make_node("Add", ["c", "r"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    net = network(nodes, x, dict(w=w, b=b, r=r))
    close(net(x), (expected + r).clip(0))
    assert "numpy" not in kinds(net, x)


POOLS = {
    "2x2x2": ((2, 2, 2), dict(strides=[2, 2, 2])),
    "3x3x3": ((3, 3, 3), dict(strides=[1, 2, 2], pads=[1] * 6)),
    "ceiling": ((3, 2, 2), dict(strides=[2, 3, 2], ceil_mode=1, pads=[1, 0, 0, 1, 1, 1])),
    "1x3x3": ((1, 3, 3), dict(pads=[0, 1, 1] * 2)),
    "dilations": ((2, 2, 2), dict(dilations=[2, 3, 1])),
}


@pytest.mark.parametrize("op, more", [("MaxPool", {}), ("AveragePool", {}), ("AveragePool", {"count_include_pad": 1})])
@pytest.mark.parametrize("case", POOLS)
def test_pool(isa, draw, case, op, more):
    kernel, attrs = POOLS[case]
    x, attrs = draw(2, 18, 5, 8, 7), dict(kernel_shape=list(kernel), **attrs, **more)
    net = network([helper.make_node(op, ["x"], ["y"], **attrs)], x, {})
    close(net(x), meaning(op, x, **attrs))
    assert "numpy" not in kinds(net, x)


def test_norms_and_means(isa, draw):
    x, g, b = draw(2, 6, 3, 5, 4), draw(6), draw(6)
    bn = dict(g=g, b=b, m=draw(6), v=np.abs(draw(6)) + 0.5)
    for nodes, expected in (
        ([helper.make_node("BatchNormalization", ["x", *bn], ["y"])], meaning("BatchNormalization", x, *bn.values())),
        (
            [helper.make_node("InstanceNormalization", ["x", "g", "b"], ["y"])],
            meaning("InstanceNormalization", x, g, b),
        ),
        ([helper.make_node("GlobalAveragePool", ["x"], ["y"])], x.astype(np.float64).mean((2, 3, 4), keepdims=True)),
        (
            [
                helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 4, 2, 3]),
                helper.make_node("InstanceNormalization", ["t", "g", "b"], ["y"]),
            ],
            meaning("InstanceNormalization", x, g, b).transpose(0, 1, 4, 2, 3),
        ),
    ):
        net = network(nodes, x, {name: bn[name] for name in nodes[-1].input if name in bn})
        close(net(x), expected)
        assert "numpy" not in kinds(net, x)


@pytest.mark.parametrize("scales", [[2, 2, 2], [1, 2, 2], [2, 1, 1], [1.5, 2.5, 0.6]])
@pytest.mark.parametrize(
    "attrs",
    [
        dict(mode="nearest"),
        dict(mode="linear"),
        dict(mode="linear", coordinate_transformation_mode="align_corners"),
        dict(mode="cubic"),
    ],
)
def test_resize(isa, draw, scales, attrs):
    x, s = draw(2, 5, 4, 6, 5), np.float32([1, 1, *scales])
    net = network([helper.make_node("Resize", ["x", "", "s"], ["y"], **attrs)], x, dict(s=s))
    close(net(x), evaluate(Node("Resize", "r", ["x", "", "s"], ["y"], attrs), [x.astype(np.float64), None, s])[0])
    assert "numpy" not in kinds(net, x)


def test_a_network_of_volumes(isa, threads, draw):
    """A U-Net's way down and up, for any number of images and any depth."""
    weights = {
        "w1": draw(8, 2, 3, 3, 3),
        "w2": draw(16, 8, 3, 3, 3) / 8,
        "w3": draw(16, 8, 2, 2, 2),
        "w4": draw(4, 16, 3, 3, 3) / 8,
        "b1": draw(8),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1] * 6),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2] * 3, strides=[2] * 3),
        helper.make_node("Conv", ["p", "w2"], ["c"], pads=[1] * 6),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("ConvTranspose", ["d", "w3"], ["u"], strides=[2] * 3),
        helper.make_node("Concat", ["r", "u"], ["k"], axis=1),
        helper.make_node("Conv", ["k", "w4"], ["y"], pads=[1] * 6),
    ]
    whole = draw(2, 2, 6, 8, 10)
    net = network(nodes, whole, weights)
    for x in whole, whole[1:], whole[:, :, :4], np.concatenate([whole, whole], 2)[:1]:
        a = meaning("Conv", x, weights["w1"], weights["b1"], pads=[1] * 6).clip(0)
        down = meaning("MaxPool", a, kernel_shape=[2] * 3, strides=[2] * 3)
        up = meaning(
            "ConvTranspose", meaning("Conv", down, weights["w2"], pads=[1] * 6).clip(0), weights["w3"], strides=[2] * 3
        )
        close(net(x), meaning("Conv", np.concatenate([a, up], 1), weights["w4"], pads=[1] * 6))
        assert "numpy" not in kinds(net, x)
        np.testing.assert_array_equal(net(x[-1:]), net(x)[-1:])


@pytest.mark.parametrize("pads", [[-1, 0, 0, 0, 0, 0], [0, -1, 1, -1, 0, -1]])
@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_negative_pads_cut_the_image(op, pads):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((1, 3, 6, 5, 7), (4, 3, 2, 2, 2)))
    begin, end = pads[:3], pads[3:]
    cut = (slice(None),) * 2 + tuple(
        slice(max(-b, 0), n + min(e, 0)) for n, b, e in zip(x.shape[2:], begin, end, strict=True)
    )
    attrs = {"kernel_shape": [2, 2, 2]}
    weights = {"w": w} if op == "Conv" else {}
    expected = meaning(op, np.ascontiguousarray(x[cut]), *weights.values(), **attrs, pads=[max(p, 0) for p in pads])
    node = helper.make_node(op, ["x", *weights], ["y"], **attrs, pads=pads)
    for options in ({}, {"fold": False, "fuse": False}):
        close(network([node], x, weights, **options)(x), expected)
