"""Model.astype: weights and caches in 16 bits."""

import io

import numpy as np
import pytest

pytest.importorskip("onnx")
import merged_net
from grouped_net import grouped
from onnx import TensorProto, numpy_helper
from onnx.parser import parse_model

import decoder_net
import fusedops as fo
import oracle

F16 = {"float16": lambda a: a.astype(np.float16).astype(np.float32), "bfloat16": oracle.bf16}
DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype([("bfloat16", np.uint16)])}


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


@pytest.mark.parametrize("kind", F16)
def test_a_table_stays_in_16_bits(rng, kind):
    """Of which rows are gathered: it takes half the memory in a process, too."""
    text = "(int64[n] i) => (float[n, 64] y) { g = Gather(w, i)  y = Relu(g) }"
    w = rng.standard_normal((2000, 64)).astype(np.float32)
    small, i = of_weights(text, w=w).astype(kind), np.array([1999, 0, -1])
    for net in small, fo.load(io.BytesIO(saved(small))):
        assert [a.dtype for a in net._graph.constants.values() if a.size > 1] == [DTYPES[kind]]
        np.testing.assert_array_equal(net(i), np.maximum(F16[kind](w)[i], 0))


@pytest.mark.parametrize("kind", F16)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_decoder_has_caches_of_16_bits(rng, batch, kind):
    net = fo.load_onnx(decoder_net.decoder())
    small, ids = net.astype(kind), rng.integers(0, decoder_net.WORDS, (batch, 12))
    assert [v.file_type for v in small.inputs].count(kind) == 4 and kind not in str(net)
    assert str(small).count(kind) == 8  # and outputs
    decoder, again, right = small.decoder(), fo.load(io.BytesIO(saved(small))).decoder(), net.decoder()
    for start, end in (0, 5), (5, 6), (6, 9), (9, 12):
        y, expected = decoder(ids[:, start:end]), right(ids[:, start:end])
        np.testing.assert_allclose(y, expected, atol=(5e-3 if kind == "float16" else 4e-2) * np.abs(expected).max())
        np.testing.assert_array_equal(y, again(ids[:, start:end]))
    assert {a.dtype for a in decoder.caches.values()} == {DTYPES[kind]}
    steps = small._plan(*decoder_net.step(decoder_net.no_past(batch), ids).values())[0].steps
    assert {s.arguments["kv_type"] for s in steps if s.kind == "attention"} == {DTYPES[kind]}
    with pytest.raises(TypeError, match=f"the network takes {kind}"):
        small.run(decoder_net.step(decoder_net.no_past(batch), ids))


def test_caches_of_another_librarys_bfloat16(rng):
    """As ml_dtypes and onnx name its bits."""
    text = "(float[1, past, 4] kept, float[1, t, 4] x) => (float[1, all, 4] y) { y = Concat<axis=1>(kept, x) }"
    small, given = of_weights(text).astype("bfloat16"), oracle.bf16(rng.standard_normal((1, 7, 4)))
    x = rng.standard_normal((1, 2, 4)).astype(np.float32)
    y = small(oracle.cast(given, DTYPES["bfloat16"]).view((np.uint16, {"bfloat16": (np.uint16, 0)})), x)
    np.testing.assert_array_equal(oracle.cast(y, np.float32), np.concatenate([given, oracle.bf16(x)], 1))


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("batch, lasts", [(1, [5]), (2, [5, 3])])
def test_grouped_attention_of_bfloat16(batch, lasts, rotary, rng):
    """The same in float32, whose keys and values are those that bfloat16 keeps."""
    heads, kv, size, past, t = 4, 2, 16, 5, 1
    net = fo.load_onnx(grouped(heads, kv, size, rotary, TensorProto.FLOAT))
    x = rng.standard_normal((batch, t, (heads + 2 * kv) * size)).astype(np.float32)
    pk, pv = oracle.bf16(rng.standard_normal((2, batch, kv, past, size)))
    rest = np.array(lasts, np.int32), np.array(past + t, np.int32)
    small = net.astype("bfloat16")
    y, k, v = small(x, *(oracle.cast(a, DTYPES["bfloat16"]) for a in (pk, pv)), *rest)
    expected = net(x, pk, pv, *rest)
    np.testing.assert_allclose(y, expected[0], atol=2e-2)
    for found, want in zip((k, v), expected[1:], strict=True):
        np.testing.assert_array_equal(oracle.cast(found, np.float32), oracle.bf16(want))


@pytest.mark.parametrize("kind", F16)
@pytest.mark.parametrize("crossed", [False, True])
def test_a_merged_decoder(crossed, kind, rng):
    """The caches of its later branch, and what the first one makes for them, are in 16 bits."""
    proto, weights = merged_net.merged(crossed)
    small = fo.load_onnx(proto).astype(kind)
    assert [v.file_type for v in small.inputs].count(kind) == 2 + crossed
    for net in small, fo.load(io.BytesIO(saved(small))):
        decoder, ids = net.decoder(), rng.integers(0, merged_net.WORDS, (1, 9))
        text = [rng.standard_normal((1, 3, merged_net.WIDTH)).astype(np.float32)] if crossed else []
        expected = merged_net.logits(weights, ids, *text)
        for start, end in (0, 5), (5, 6), (6, 7), (7, 9):
            y, atol = decoder(ids[:, start:end], *text), (0.03 if kind == "float16" else 0.2)
            np.testing.assert_allclose(y[:, -1], expected[:, end - 1], rtol=0, atol=atol)
        assert {a.dtype for a in decoder.caches.values()} == {DTYPES[kind]}


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
