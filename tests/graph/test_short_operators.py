"""Operators of one node in the kernels that NumPy computed: against float64, on every set, in every memory order."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper

import fusedops as fo


def network(op, *inputs, outputs=1, opset=17, **attributes):
    """A network of one operator whose inputs are inputs of the network."""
    values = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for i, a in enumerate(inputs)
    ]
    results = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    node = helper.make_node(op, [v.name for v in values], [v.name for v in results], **attributes)
    graph = helper.make_graph([node], "g", values, results)
    return fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))


def test_logarithms(isa):
    """Floats of every exponent, of both signs; NaN has one."""
    with np.errstate(all="ignore"):
        x = np.arange(0, 1 << 32, 40_009, np.uint64).astype(np.uint32).view(np.float32)
        x = np.concatenate([x, np.float32([0, -0.0, 1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.4142135, 1.4142137])])
        expected, y = np.log(x.astype(np.float64)), network("Log", x)(x)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(y[~finite], expected[~finite].astype(np.float32))
    place = np.spacing(np.abs(expected[finite]).astype(np.float32))
    assert (np.abs(y[finite] - expected[finite]) <= 0.9 * place).all()


@pytest.mark.parametrize("step", [1, 2])
def test_casts_between_float16_and_float32(isa, step):
    """All float16, and around each and halfway to its neighbor the floats that round to it."""
    narrow = np.arange(1 << 16, dtype=np.uint16).view(np.float16)[::step]
    wide = narrow.astype(np.float32)
    near = (wide.view(np.uint32)[:, None] + np.array([0, 1, 4095, 4096, 4097, 8191], np.uint32)).view(np.float32)
    with np.errstate(all="ignore"):
        for x, to in ((narrow, np.float32), (near, np.float16)):
            y = network("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))(x)
            np.testing.assert_array_equal(y, x.astype(to))
            assert y.dtype == to


@pytest.mark.parametrize("of", [np.float32, np.int32, np.uint8, np.int8, np.bool_])
@pytest.mark.parametrize("to", [np.float32, np.int32, np.uint8, np.int8, np.bool_])
def test_casts_of_4_bytes_and_1(isa, rng, of, to):
    x = rng.integers(0, 100, (3, 67)).astype(of)
    y = network("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))(x)
    np.testing.assert_array_equal(y, x.astype(to))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("p", [1, 2])
def test_rows_over_their_norms(isa, rng, p, axis):
    x = rng.standard_normal((5, 37, 19), np.float32)
    x[:, 3] = x[2] = x[..., 7] = 0
    x[0], x[4] = x[0] * 1e-25, x[4] * 1e25
    model, wide = network("LpNormalization", x, p=p, axis=axis), x.astype(np.float64)
    norm = np.linalg.norm(wide, p, axis, keepdims=True)
    expected = np.divide(wide, norm, out=np.zeros_like(wide), where=norm != 0)
    np.testing.assert_allclose(model(x), expected, rtol=1e-6, atol=1e-7)
    assert "computed by NumPy" not in str(model.explain())
    transposed = np.ascontiguousarray(x.T).T
    np.testing.assert_array_equal(model(transposed), model(x))


@pytest.mark.parametrize("n", [1, 15, 16, 17, 64, 1000])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_first_of_the_best(isa, rng, op, n):
    x = rng.integers(0, 5, (20, n)).astype(np.float32)
    x[3, n // 2 :] = np.nan
    x[4], x[5] = np.where(np.arange(n) % 2, 0.0, -0.0), (np.inf, -np.inf)[op == "ArgMin"]
    model = network(op, x, axis=1, keepdims=0)
    np.testing.assert_array_equal(model(x), getattr(np, op.lower())(x, 1))


RECURRENT = {"LSTM": (4, {}), "GRU": (3, {}), "GRU after": (3, {"linear_before_reset": 1}), "RNN": (1, {})}


@pytest.mark.parametrize("given", ["weights", "all"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_layers_of_computed_weights(rng, kind, layout, direction, given):
    """The bits of constant weights, which a layer has packed."""
    gates, attributes = RECURRENT[kind]
    directions, hidden, batch, steps = 1 + (direction == "bidirectional"), 9, 3, 7

    def draw(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    states = (batch, directions, hidden) if layout else (directions, batch, hidden)
    x = draw(batch, steps, 5) if layout else draw(steps, batch, 5)
    named = {"w": draw(directions, gates * hidden, 5), "r": draw(directions, gates * hidden, hidden)}
    if given == "all":
        named |= {"b": draw(directions, 2 * gates * hidden), "len": np.array([7, 2, 5], np.int32), "h": draw(*states)}
        named |= {"c": draw(*states), "p": draw(directions, 3 * hidden)} if gates == 4 else {}
    outputs = ["y", "hn", "cn"][: 2 + (gates == 4)]
    node = helper.make_node(
        kind.split()[0],
        ["x", *named],
        outputs,
        hidden_size=hidden,
        layout=layout,
        direction=direction,
        clip=2.0,
        **attributes,
    )

    def model(constants):
        values = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for k, a in ({"x": x} | named).items()
            if k not in constants
        ]
        results = [helper.make_empty_tensor_value_info(k) for k in outputs]
        stored = [numpy_helper.from_array(named[k], k) for k in constants]
        graph = helper.make_graph([node], "g", values, results, stored)
        return fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))

    constants = [k for k in named if k in ("w", "r", "b", "p")]
    computed = model([])(x, *named.values())
    packed = model(constants)(x, *(a for k, a in named.items() if k not in constants))
    for a, b in zip(computed, packed, strict=True):
        np.testing.assert_array_equal(a, b)
