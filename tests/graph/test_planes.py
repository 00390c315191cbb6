"""Small networks whose images stay in planes, as they came: no step turns them to channels last and back."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

import fusedops as fo


def network(x, nodes):
    """A chain of nodes (operator, attributes, constants), and the kinds of its steps."""
    made, stored = [], []
    for i, (op, attributes, constants) in enumerate(nodes):
        names = [f"c{i}.{j}" if a is not None else "" for j, a in enumerate(constants)]
        stored += [numpy_helper.from_array(a, k) for k, a in zip(names, constants, strict=True) if k]
        made.append(helper.make_node(op, [f"v{i}", *names], [f"v{i + 1}"], **attributes))
    ends = helper.make_tensor_value_info("v0", 1, x.shape), helper.make_empty_tensor_value_info(f"v{len(nodes)}")
    graph = helper.make_graph(made, "g", ends[:1], ends[1:], stored)
    net = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    return net, [step.kind for step in net._plan(x)[0].steps]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resizing(mode, draw):
    x = draw(1, 3, 8, 9)
    net, steps = network(x, [("Resize", {"mode": mode}, [None, np.float32([1, 1, 2, 2])])])
    assert steps == ["resize"]
    np.testing.assert_array_equal(net(x), fo.resize(x, scale=2, mode=mode))


@pytest.mark.parametrize("channels, groups, last_groups", [(8, 8, 1), (3, 1, 1), (8, 2, 1), (8, 1, 8), (8, 1, 4)])
def test_a_convolution_and_one_of_pixels(channels, groups, last_groups, draw):
    """A grouped kernel reads channels that are neighbors: the input is turned, or a kernel before writes them so."""
    x, w, last = draw(1, channels, 12, 13), draw(8, channels // groups, 3, 3), draw(8, 8 // last_groups, 1, 1)
    first = ("Conv", {"pads": [1] * 4, "group": groups}, [w])
    net, steps = network(x, [first, ("Relu", {}, []), ("Conv", {"group": last_groups}, [last])])
    assert steps == ["copy"] * (groups == 2) + ["conv2d", "conv2d"]
    layers = fo.Conv2d(w, padding=1, groups=groups, activation="relu"), fo.Conv2d(last, groups=last_groups)
    np.testing.assert_allclose(net(x), layers[1](layers[0](x)), rtol=0, atol=2e-4)


def test_a_result_that_others_read_goes_channels_last(draw):
    """Of a longer network images are turned once."""
    x, w, inner, last = draw(1, 8, 12, 13), draw(8, 1, 3, 3), draw(8, 8, 1, 1), draw(5, 8, 1, 1)
    first = ("Conv", {"pads": [1] * 4, "group": 8}, [w])
    net, steps = network(x, [first, ("Relu", {}, []), ("Conv", {}, [inner]), ("Relu", {}, []), ("Conv", {}, [last])])
    assert steps[0] == "copy" and steps.count("copy") == 1
    layers = fo.Conv2d(w, padding=1, groups=8, activation="relu"), fo.Conv2d(inner, activation="relu"), fo.Conv2d(last)
    np.testing.assert_allclose(net(x), layers[2](layers[1](layers[0](x))), rtol=0, atol=1e-3)


def test_a_result_that_is_read_again_goes_channels_last(draw):
    """A block of two convolutions has one layout: the second one's result is the network's and a layer's input."""
    x, w, last = draw(1, 8, 12, 13), draw(8, 1, 3, 3), draw(5, 8, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], group=8, pads=[1] * 4),
        helper.make_node("Conv", ["a", "last"], ["y"]),
        helper.make_node("Transpose", ["y"], ["z"], perm=[0, 3, 2, 1]),
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in "zy"]
    stored = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(last, "last")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, x.shape)], results, stored)
    net = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    z, y = net(x)
    np.testing.assert_allclose(y, fo.Conv2d(last)(fo.Conv2d(w, padding=1, groups=8)(x)), rtol=0, atol=2e-4)
    np.testing.assert_array_equal(z, y.transpose(0, 3, 2, 1))
