"""Passes change no result: small graphs at which folding or fusing could, against NumPy, in every form of loading."""
import itertools

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import fusedops as fo  # noqa: E402

FORMS = [{"fold": fold, "fuse": fuse} for fold, fuse in itertools.product((False, True), repeat=2)]
RNG = np.random.default_rng(0)


def some(*shape):
    return RNG.uniform(1, 2, shape).astype(np.float32)


def network(graph, inputs, constants=None, axes=1, opset=17):
    """An ONNX model of lines such as "y = Gemm beta=2 x w c", whose result, of so many axes, is that of the last one; "-" is no input. The
    first axis of an input is open, unless it is 1."""
    nodes = []
    for line in graph.split("; "):
        result, call = line.split(" = ")
        op, *words = call.split()
        attributes = {k: float(v) for k, v in (w.split("=") for w in words if "=" in w)}
        nodes.append(helper.make_node(op, [w.replace("-", "") for w in words if "=" not in w], [result], **attributes))
    shapes = {k: [n if n == 1 or i else "n" for i, n in enumerate(a.shape)] for k, a in inputs.items()} | {nodes[-1].output[0]: [None] * axes}
    x, y = ([helper.make_tensor_value_info(k, TensorProto.FLOAT, shapes[k]) for k in names] for names in (inputs, nodes[-1].output))
    weights = [numpy_helper.from_array(np.asarray(a, None if np.asarray(a).dtype.kind == "i" else "f4"), k) for k, a in (constants or {}).items()]
    return helper.make_model(helper.make_graph(nodes, "g", x, y, weights), opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(expected, graph, inputs, constants=None, rtol=1e-5):
    """The network with everything folded and fused, after a comparison of all forms with the expected result."""
    proto = network(graph, inputs, constants, expected.ndim)
    for form in FORMS:
        net = fo.load_onnx(proto, **form)
        y = net(*inputs.values())
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, rtol, err_msg=str(form))
    return net


ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


@pytest.mark.parametrize("layer", ["Conv", "ConvTranspose", "Gemm", "MatMul"])
@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("swapped", [False, True])
def test_arithmetic_with_a_constant_behind_weights(layer, op, swapped):
    x, w, b, c = some(3, 2), some(2, 4), some(4), some(4)
    h = x @ w + (0 if layer == "MatMul" else b)
    expected = ARITHMETIC[op](*(c, h) if swapped else (h, c))
    if "Conv" in layer:
        x, w, c, expected = (a[..., None, None] for a in (x, w.T if layer == "Conv" else w, c, expected))
    graph = f"h = {layer} x w{'' if layer == 'MatMul' else ' b'}; y = {op} {'c h' if swapped else 'h c'}"
    net = check(expected, graph, {"x": x}, {"w": w, "b": b, "c": c})
    assert len(net._graph.nodes) == (2 if op == "Div" and swapped else 1)


@pytest.mark.parametrize("rows", [3, 4])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (4,), (1, 4), ("rows", 1), ("rows", 4)])
def test_addend_of_a_gemm(rows, shape):
    x, w, c = some(rows, 2), some(2, 4), some(*(rows if n == "rows" else n for n in shape))
    check(x @ w + 2 * c, "y = Gemm beta=2 x w c", {"x": x}, {"w": w, "c": c})
