"""Sizes that a network has never seen: nothing is lowered for them, and the values are right."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import numpy_helper
from onnx.parser import parse_model

import decoder_net
import fusedops as fo
from fusedops.graph.planner import batch_tiling, plan
from onnx_text import expected

RNG = np.random.default_rng(0)
NEW = 50


@pytest.fixture
def lowered(monkeypatch):
    """The names of the nodes that were lowered, in order."""
    found, lower = [], plan._lower
    monkeypatch.setattr(plan, "_lower", lambda builder, node: found.append(node.name) or lower(builder, node))
    return found


def w(*shape):
    return RNG.standard_normal(shape, np.float32) / 4


def ints(*values, dtype=np.int64):
    return np.array(values, dtype)


def rows(*shape):
    return lambda t: {"x": w(*[t + 2 if n is None else n for n in shape])}


def rows_and(name, make, least=2):
    """x (1, t, 8) and another input that follows from t."""
    return lambda t: {"x": w(1, t + least, 8), name: make(t)}


# name: inputs, body, constants, the inputs for a number from 0 to 49
NETWORKS = {
    "convolutions": (
        "float[1, 4, h, w] x",
        "a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b) "
        "y = GlobalAveragePool(c)",
        dict(w=w(8, 4, 3, 3)),
        lambda t: {"x": w(1, 4, t + 4, 70 - t)},
    ),
    "blocks, as one or layer by layer": (
        "float[1, 64, h, w] x",
        "a = Conv(x, p) b = Relu(a) c = Conv<pads=[1,1,1,1], group=128>(b, d) e = Relu(c) f = Conv(e, q) "
        "g = Conv(f, p1) h = Relu(g) i = Conv<pads=[1,1,1,1], strides=[2,2], group=128>(h, d1) k = Relu(i) "
        "y = Conv(k, q1)",
        dict(
            p=w(128, 64, 1, 1),
            d=w(128, 1, 3, 3),
            q=w(64, 128, 1, 1),
            p1=w(128, 64, 1, 1),
            d1=w(128, 1, 3, 3),
            q1=w(32, 128, 1, 1),
        ),
        lambda t: {"x": w(1, 64, 2 * t + 2, 3 * t + 2)},
    ),
    "a mask of positions": (
        "float[1, t, 8] x",
        "s = Shape(x) t1 = Gather(s, one) i = Range(zero, t1, one) c = Unsqueeze(i, first) r = Unsqueeze(i, zeros) "
        "seen = LessOrEqual(r, c) m = Where(seen, null, low) k = Transpose<perm=[0,2,1]>(x) l = MatMul(x, k) "
        "n = Add(l, m) p = Softmax<axis=-1>(n) y = MatMul(p, x)",
        dict(
            zero=np.array(0), one=np.array(1), first=ints(1), zeros=ints(0), null=np.float32(0), low=np.float32(-np.inf)
        ),
        rows(1, None, 8),
    ),
    "a triangle of ones": (
        "float[1, t, 8] x",
        "s = Shape(x) t1 = Gather(s, ones) tt = Concat<axis=0>(t1, t1) m = ConstantOfShape<value=float[1] {1}>(tt) "
        "n = Trilu<upper=0>(m) y = MatMul(n, x)",
        dict(ones=ints(1)),
        rows(1, None, 8),
    ),
    "a triangle of a value": (
        "float[t, t] x",
        "a = Exp(x) b = Trilu(a, k) y = Neg(b)",
        dict(k=np.array(-1)),
        rows(None, None),
    ),
    "a diagonal that is an input": (
        "float[1, t, 8] x, int64 k",
        "y = Trilu<upper=0>(x, k)",
        {},
        rows_and("k", lambda t: np.array(t % 7)),
    ),
    "where a slice ends, of 32 bits": (
        "float[1, t, 8] x, int32[1] k",
        "a = Exp(x) y = Slice(a, zero, k, one)",
        dict(zero=ints(0, dtype=np.int32), one=ints(1, dtype=np.int32)),
        rows_and("k", lambda t: ints(t + 1, dtype=np.int32)),
    ),
    "a place": (
        "float[1, t, 8] x, int64 k",
        "a = Exp(x) y = Gather<axis=1>(a, k)",
        {},
        rows_and("k", lambda t: np.array(t)),
    ),
    "a place from the shape": (
        "float[1, t, 8] x",
        "s = Shape(x) t1 = Gather(s, one) k = Sub(t1, two) a = Exp(x) y = Gather<axis=1>(a, k)",
        dict(one=np.array(1), two=np.array(2)),
        rows(1, None, 8),
    ),
    "how many of the largest": (
        "float[1, t, 8] x, int64[1] k",
        "y, i = TopK<axis=1>(x, k)",
        {},
        rows_and("k", lambda t: ints(t % 5 + 1), 6),
    ),
    "sums of what came before": (
        "float[1, t, 8] x",
        "s = Shape(x) o = ConstantOfShape<value=float[1] {1}>(s) p = CumSum(o, one) y = Mul(p, x)",
        dict(one=np.array(1)),
        rows(1, None, 8),
    ),
    "a border": (
        "float[1, 4, t, 8] x, int64[8] p",
        "y = Pad(x, p)",
        {},
        lambda t: {"x": w(1, 4, t + 2, 8), "p": ints(0, 0, t % 9 + 1, 1, 0, 0, 3, t + 1)},
    ),
    "a size in 32 bits": (
        "float[n, t, 8] x",
        "s = Shape(x) t1 = Gather(s, one) k = Cast<to=6>(t1) h = Div(k, two) l = Cast<to=7>(h) e = Unsqueeze(l, zeros) "
        "y = Slice(x, zeros, e, ones)",
        dict(one=np.array(1), two=np.array(2, np.int32), zeros=ints(0), ones=ints(1)),
        rows(1, None, 8),
    ),
    "one hot": (
        "float[1, t, 8] x",
        "s = Shape(x) t1 = Gather(s, one) i = ArgMax<axis=1, keepdims=0>(x) o = OneHot(i, t1, onoff) y = Exp(o)",
        dict(one=ints(1), onoff=np.float32([0, 1])),
        rows(1, None, 8),
    ),
    "a branch by the size": (
        "float[1, t, 8] x",
        "s = Shape(x) t1 = Gather(s, one) c = Greater(t1, four) "
        "y = If<then_branch = g () => (float[1, t, 8] a) { a = Exp(x) }, "
        "else_branch = h () => (float[1, t, 8] b) { b = Neg(x) }>(c)",
        dict(one=np.array(1), four=np.array(4)),
        rows(1, None, 8),
    ),
    "resized": (
        "float[1, 4, h, w] x",
        'y = Resize<mode="linear">(x, , s)',
        dict(s=np.float32([1, 1, 2, 1.5])),
        lambda t: {"x": w(1, 4, t + 3, 2 * t + 4)},
    ),
}


def network(inputs, body, constants, results="y"):
    proto = parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net ({inputs}) => (float {results}) {{ {body} }}')
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    proto.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in constants.items())
    return proto


def run(net, proto, feed):
    """The results of a network, which are right."""
    found = net.run(feed)
    for y, truth in zip(found.values(), expected(proto, feed), strict=True):
        assert y.dtype == truth.dtype and y.shape == truth.shape
        np.testing.assert_allclose(y, truth, rtol=1e-5, atol=1e-4 * max(1, np.abs(truth).max(initial=0)))
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_is_lowered_again(name, lowered):
    inputs, body, constants, make = NETWORKS[name]
    proto = network(inputs, body, constants)
    net, seen = fo.load_onnx(proto), (0, 1, 2, NEW, NEW + 1)
    for i, t in enumerate([*seen, *((i * 17) % NEW for i in range(NEW))]):
        if i == len(seen):
            lowered.clear()
        run(net, proto, make(t))
    assert lowered == []


@pytest.mark.parametrize("batch", [1, 3])
def test_a_decoder_lowers_nothing_again(batch, lowered):
    """Word by word, as many at once as there are, and a second text: each length is a new one."""
    proto = decoder_net.decoder()
    net, past, tokens = fo.load_onnx(proto), decoder_net.no_past(batch), RNG.integers(0, 50, (batch, 5))
    for i in range(NEW + 2):
        found = run(net, proto, decoder_net.step(past, tokens))
        past, tokens = decoder_net.as_past(found), found["logits"][:, -1:].argmax(-1)
        if i == 1:
            lowered.clear()
    assert lowered == []
    for new in (*range(2, 9), 1, 1) if batch == 1 else ():
        past = decoder_net.as_past(run(net, proto, decoder_net.step(past, RNG.integers(0, 50, (batch, new)))))
    assert len(lowered) <= len(net._graph.nodes), "several words at once, once"


def test_a_batch_in_tiles_has_a_plan_for_each_number_of_tiles(lowered, monkeypatch):
    monkeypatch.setattr(batch_tiling, "CACHE_BYTES", (16 << 20) // fo.get_num_threads())  # of any machine
    proto = network(
        "float[n, 64, 64, 64] x",
        "a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) y = GlobalAveragePool(b)",
        dict(w=w(64, 64, 3, 3)),
    )
    net = fo.load_onnx(proto)
    for i, n in enumerate((2, 1, 3, 16, 12, 8, 17, 16, 12, 8, 17, 4, 5)):
        if i == 7:
            lowered.clear()
        run(net, proto, {"x": np.full((n, 64, 64, 64), n / 16, np.float32)})
    assert lowered == []


def test_numbers_that_decide_on_shapes_may_be_more_or_fewer():
    text = """<ir_version: 8, opset_import: ["" : 18]> net (float[s, 4] x, int64[n] lengths) => (float[m, 4] y) {
        zero = Constant<value = int64[1] {0}>()  end = ReduceMax<keepdims = 1>(lengths)
        part = Slice(x, zero, end, zero)  y = Relu(part)
    }"""
    model, x = fo.load_onnx(parse_model(text).SerializeToString()), w(9, 4)
    for lengths in (3, 5, 2), (1, 2, 4), (7, 7, 7), (3, 2), (6, 1, 2, 2), (4,):
        np.testing.assert_array_equal(model(x, np.array(lengths)), np.maximum(x[: max(lengths)], 0))


@pytest.mark.parametrize("repeats", [(0, 2), (2, 0), (0, 0), (1, 2), (2, 1)])
def test_tiles_of_any_number(repeats):
    """None of them writes nothing: a copy of the input would end after the result."""
    text = """<ir_version: 8, opset_import: ["" : 18]> net (float[a, 3] x) => (float[m, k] y) { y = Tile(x, r) }"""
    graph = parse_model(text)
    graph.graph.initializer.append(numpy_helper.from_array(np.array(repeats), "r"))
    model = fo.load_onnx(graph.SerializeToString())
    for n in 2, 5, 4:
        x = w(n, 3)
        np.testing.assert_array_equal(model(x), np.tile(x, repeats))
