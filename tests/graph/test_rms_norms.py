"""RMSNorm as exporters spell it out becomes one step; what is only like it stays as it is."""

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx import numpy_helper
from onnx.parser import parse_model

import fusedops as fo

RNG = np.random.default_rng(0)
SQUARES = {"product": "q = Mul(x, x)", "power": "q = Pow(x, two)"}
ENDS = {
    "quotient": "n = Div(x, r)",
    "inverse": "i = Reciprocal(r) n = Mul(x, i)",
    "one over": "i = Div(one, r) n = Mul(i, x)",
}
CONSTANTS = dict(two=np.float32(2), one=np.float32(1), eps=np.float32(1e-3), w=RNG.standard_normal(16, np.float32))


def network(body, **constants):
    proto = parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> net (float[n, t, 16] x) => (float[a, b, c] y) {{ {body} }}'
    )
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), k) for k, a in (CONSTANTS | constants).items()
    )
    return fo.load_onnx(proto)


def spelled(squares="q = Mul(x, x)", mean="m = ReduceMean<axes=[-1]>(q)", end="n = Div(x, r)", scale="y = Mul(n, w)"):
    return f"{squares} {mean} e = Add(m, eps) r = Sqrt(e) {end} {scale}"


def ops(net):
    return [node.op for node in net._graph.nodes]


def rms(x, eps=1e-3):
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


@pytest.mark.parametrize("squares", SQUARES)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("scale", ["y = Mul(n, w)", "y = Mul(w, n)", "y = Identity(n)", "y = Mul(n, one)"])
def test_one_step(isa, squares, end, scale):
    net = network(spelled(SQUARES[squares], end=ENDS[end], scale=scale))
    assert ops(net)[0] == "RMSNormalization"
    for shape in ((1, 1, 16), (3, 5, 16), (2, 0, 16)):
        x = RNG.standard_normal(shape, np.float32)
        np.testing.assert_allclose(net(x), rms(x) * (CONSTANTS["w"] if "w" in scale else 1), rtol=2e-6, atol=1e-6)
        assert next(step.kind for step in net._plan(x)[0].steps) == "norm"


@pytest.mark.parametrize(
    "body, constants",
    [
        (spelled(mean="m = ReduceMean<axes=[1]>(q)"), {}),
        (spelled(mean="m = ReduceMean<axes=[-2,-1]>(q)"), {}),
        (spelled(squares="q = Pow(x, two)"), dict(two=np.float32(3))),
        (spelled(end="n = Div(r, x)"), {}),
        (spelled(end="i = Div(two, r) n = Mul(x, i)"), {}),
        (spelled(end="i = Reciprocal(r) n = Mul(q, i)"), {}),
        (spelled(scale="s = Mul(n, w) y = Mul(s, m)"), {}),
        (spelled(), dict(eps=np.full(16, 1e-3, np.float32))),
    ],
)
def test_what_is_something_else(body, constants):
    assert "RMSNormalization" not in ops(network(body, **constants))


def test_a_scale_that_the_network_computes():
    proto = parse_model(
        '<ir_version: 10, opset_import: ["" : 23]> net (float[n, 16] x, float[16] w) => (float[n, 16] y) '
        "{ y = RMSNormalization<axis=-1, epsilon=0.001>(x, w) }"
    )
    net, x, w = fo.load_onnx(proto), RNG.standard_normal((4, 16), np.float32), CONSTANTS["w"]
    np.testing.assert_allclose(net(x, w), rms(x) * w, rtol=2e-6, atol=1e-6)
    assert [step.kind for step in net._plan(x, w)[0].steps] == ["norm", "binary"]
