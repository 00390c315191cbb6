"""Model.astype: weights in 16 bits, and caches of float16."""

import io

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx import numpy_helper
from onnx.parser import parse_model

import decoder_net
import fusedops as fo
import oracle

F16 = {"float16": lambda a: a.astype(np.float16).astype(np.float32), "bfloat16": oracle.bf16}


def of_weights(text, **weights):
    proto = parse_model('<ir_version: 8, opset_import: ["" : 17]> net ' + text)
    proto.graph.initializer.extend([numpy_helper.from_array(np.float32(w), name) for name, w in weights.items()])
    return fo.load_onnx(proto)


def saved(net):
    file = io.BytesIO()
    net.save(file)
    return file.getvalue()


NETWORKS = {
    "product": ("(float[n, 96] x) => (float[n, 40] y) { y = MatMul(x, w) }", dict(w=(96, 40)), (3, 96)),
    "convolution": (
        "(float[n, 16, 9, 8] x) => (float[n, 24, 9, 8] y) { y = Conv<pads=[1, 1, 1, 1]>(x, w) }",
        dict(w=(24, 16, 3, 3)),
        (2, 16, 9, 8),
    ),
    "recurrent": (
        "(float[5, n, 16] x) => (float[5, 1, n, 32] y) { y = LSTM<hidden_size=32>(x, w, r) }",
        dict(w=(1, 128, 16), r=(1, 128, 32)),
        (5, 2, 16),
    ),
}


@pytest.mark.parametrize("kind", F16)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_rounded_weights(rng, name, kind):
    """It is the network that one gets of weights rounded before."""
    text, shapes, shape = NETWORKS[name]
    weights = {v: rng.standard_normal(s) / np.sqrt(s[-1]) for v, s in shapes.items()}
    rounded = of_weights(text, **{v: F16[kind](np.float32(w)) for v, w in weights.items()})
    net, x = of_weights(text, **weights), rng.standard_normal(shape).astype(np.float32)
    small = net.astype(kind)
    if kind == "float16":  # products of bfloat16 round x, too, where they are faster
        np.testing.assert_array_equal(small(x), rounded(x))
        np.testing.assert_array_equal(net.astype(np.float16)(x), rounded(x))
    else:
        np.testing.assert_allclose(small(x), rounded(x), atol=0.02)
    assert small(x).dtype == np.float32 and not np.array_equal(small(x), net(x))
    file, elements = saved(small), sum(map(np.prod, shapes.values()))
    assert len(file) < len(saved(net)) - 2 * elements + 99
    np.testing.assert_array_equal(fo.load(io.BytesIO(file))(x), small(x))


@pytest.mark.parametrize("kind", F16)
def test_what_stays_as_it_is(rng, kind):
    """The network itself, small constants, those that the type does not hold, and scales of weights in 4 bits."""
    text = "(float[n, 64] x) => (float[n, 64] y) { h = MatMul(x, w)  i = MatMul(h, v)  y = Mul(i, s) }"
    w, s = rng.standard_normal((64, 64)), rng.standard_normal((1, 64))
    net = of_weights(text, w=w, v=1e5 * rng.standard_normal((64, 64)), s=s)
    before, x = {k: a.copy() for k, a in net._graph.constants.items()}, rng.standard_normal((2, 64)).astype(np.float32)
    small = net.astype(kind)
    same = [k for k, a in small._graph.constants.items() if np.array_equal(a, before[k])]
    assert len(same) == len(before) - (1 if kind == "float16" else 2)
    assert all(np.array_equal(a, before[k]) for k, a in net._graph.constants.items())
    few = net.quantize(weights="int4")
    np.testing.assert_array_equal(few.astype("float16")(x), few(x))


def test_a_table_stays_float16(rng):
    """Of which rows are gathered: it takes half the memory in a process, too."""
    text = "(int64[n] i) => (float[n, 64] y) { g = Gather(w, i)  y = Relu(g) }"
    w = rng.standard_normal((2000, 64)).astype(np.float32)
    small, i = of_weights(text, w=w).astype("float16"), np.array([1999, 0, -1])
    assert [a.dtype for a in small._graph.constants.values() if a.size > 1] == [np.float16]
    np.testing.assert_array_equal(small(i), np.maximum(F16["float16"](w)[i], 0))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_decoder_has_caches_of_float16(rng, batch):
    net = fo.load_onnx(decoder_net.decoder())
    small, ids = net.astype("float16"), rng.integers(0, decoder_net.WORDS, (batch, 12))
    caches = [v.name for v in small.inputs if v.dtype == np.float16]
    assert len(caches) == 4 and all(np.dtype(v.dtype) != np.float16 for v in net.inputs)
    decoder, right = small.decoder(), net.decoder()
    for start, end in (0, 5), (5, 6), (6, 9), (9, 12):
        y, expected = decoder(ids[:, start:end]), right(ids[:, start:end])
        np.testing.assert_allclose(y, expected, atol=5e-3 * np.abs(expected).max())
    assert {a.dtype for a in decoder.caches.values()} == {np.dtype(np.float16)}
    steps = small._plan(*decoder_net.step(decoder_net.no_past(batch), ids).values())[0].steps
    assert {s.arguments["kv_type"] for s in steps if s.kind == "attention"} == {np.dtype(np.float16)}
    with pytest.raises(TypeError, match="float16"):
        small.run(decoder_net.step(decoder_net.no_past(batch), ids))


def test_what_is_kept_of_other_types(rng):
    """Words before, which a call gives back with more, stay integers."""
    text = """(int64[1, past] seen, int64[1, t] new, float[1, past, 4] kept, float[1, t, 4] x)
        => (int64[1, all] words, float[1, all, 4] y) {
        words = Concat<axis=1>(seen, new)  y = Concat<axis=1>(kept, x) }"""
    small = of_weights(text).astype("float16")
    assert [v.dtype.name for v in (*small.inputs, *small.outputs)] == (
        ["int64", "int64", "float16", "float32", "int64", "float16"]
    )
    x = rng.standard_normal((1, 3, 4)).astype(np.float32)
    words, y = small(np.array([[70_000]]), np.array([[1, 2, 3]]), np.ones((1, 1, 4), np.float16), x)
    assert words.tolist() == [[70_000, 1, 2, 3]]
    np.testing.assert_array_equal(y[:, 1:], x.astype(np.float16))


def test_graphs_inside_nodes(rng):
    text = """(float[n, 64] x, bool b) => (float[n, 64] y) {
        y = If(b) <then_branch = t () => (float[n, 64] p) { p = MatMul(x, w) },
                  else_branch = e () => (float[n, 64] q) { q = Neg(x) }> }"""
    w, x = rng.standard_normal((64, 64)), rng.standard_normal((2, 64)).astype(np.float32)
    net, rounded = of_weights(text, w=w), of_weights(text, w=F16["float16"](np.float32(w)))
    for b in True, False:
        np.testing.assert_array_equal(net.astype("float16")(x, b), rounded(x, b))


@pytest.mark.parametrize("dtype", ["float32", "int8", np.float64, "half"])
def test_other_types(dtype):
    net = of_weights("(float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }")
    with pytest.raises(ValueError, match=r"astype takes 'float16' or 'bfloat16'.*model.quantize"):
        net.astype(dtype)
