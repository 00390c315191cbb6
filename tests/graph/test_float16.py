"""float16 as it is: moves keep all bits, caches stay 16 bits wide, and attention reads them so."""

import numpy as np
import pytest

pytest.importorskip("onnx")
from grouped_net import grouped
from onnx import TensorProto, numpy_helper
from onnx.parser import parse_model

import fusedops as fo
import oracle
from onnx_types import retyped

HEAD = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]> net '
CACHES = """(float16[b, heads, t, d] q, float16[b, kv, past, d] seen_k, float16[b, kv, t, d] new_k,
    float16[b, kv, past, e] seen_v, float16[b, kv, t, e] new_v)
    => (float16[b, heads, t, e] y, float16[b, kv, all, d] k, float16[b, kv, all, e] v) <float16 c = {12288}> {
    k = Concat<axis=2>(seen_k, new_k)  v = Concat<axis=2>(seen_v, new_v)  kt = Transpose<perm=[0, 1, 3, 2]>(k)
    s = MatMul(q, kt)  m = Mul(s, c)  p = Softmax<axis=-1>(m)  y = MatMul(p, v) }"""
# Elements of keys and values, words before, new words: whole vectors and not, several blocks of keys and rows.
SIZES = [(16, 16, 0, 1), (5, 3, 7, 1), (64, 64, 300, 1), (80, 17, 31, 1), (8, 48, 9, 5), (64, 33, 270, 49)]


def float16(rng, *shape):
    return rng.standard_normal(shape).astype(np.float16)


def kinds(net, *inputs):
    """The steps of a call, with the types that they write."""
    return [(step.kind, *(t.dtype.name for t in step.writes if t is not None)) for step in net._plan(*inputs)[0].steps]


MOVES = {
    "y = Gather<axis=1>(x, i)": lambda x, i, z: x[:, i],
    "y = Slice(x, one, two)": lambda x, i, z: x[1:2],
    "y = Concat<axis=0>(x, z)": lambda x, i, z: np.concatenate([x, z]),
    "y = Transpose<perm=[2, 0, 1]>(x)": lambda x, i, z: x.transpose(2, 0, 1),
    "y = Where(b, x, z)": lambda x, i, z: np.where(x > 0, x, z),
    "y = GatherElements<axis=2>(x, j)": lambda x, i, z: np.take_along_axis(x, np.abs(x).argsort(2), 2),
    "y = ScatterElements<axis=2>(x, j, z)": lambda x, i, z: scattered(x, z),
    "y = ScatterND(x, k, u)": lambda x, i, z: np.concatenate([x[:1], z[:1], x[2:]]),
    "e = Unsqueeze(x, one)  y = Expand(e, wide)": lambda x, i, z: np.broadcast_to(x[:, None], (3, 2, 4, 5)),
    "y = Tile(x, three)": lambda x, i, z: np.tile(x, (3, 3, 3)),
    "a, y = Split<axis=2, num_outputs=2>(x)": lambda x, i, z: x[..., 3:],
}


def scattered(x, z):
    y = x.copy()
    np.put_along_axis(y, np.abs(x).argsort(2), z, 2)
    return y


@pytest.mark.parametrize("nodes", MOVES)
def test_what_is_moved_stays(nodes, isa, rng):
    """No step computes in float32, and all bits go through: of NaN, infinities and denormal numbers, too."""
    text = (
        HEAD
        + """(float16[n, 4, 5] x, float16[n, 4, 5] z, bool[n, 4, 5] b, int64[n, 4, 5] j, float16[1, 4, 5] u)
        => (float16[o, p, q] y) <int64[1] one = {1}, int64[1] two = {2}, int64[3] three = {3, 3, 3},
        int64[2] i = {3, -4}, int64[1, 1] k = {1}, int64[4] wide = {1, 2, 1, 1}> { %s }"""
    )
    proto = parse_model(text % nodes)
    if "Expand" in nodes:
        proto.graph.output[0].type.tensor_type.shape.dim.add().dim_param = "r"
    net, x, z = fo.load_onnx(proto), float16(rng, 3, 4, 5), float16(rng, 3, 4, 5)
    x[0, 0, :3] = np.inf, -np.inf, 6e-8
    given = x, z, x > 0, np.abs(x).argsort(2), z[:1]
    expected = MOVES[nodes](x, np.array([3, -4]), z)
    y = net(*given)
    assert y.dtype == np.float16
    np.testing.assert_array_equal(y.view(np.uint16), np.ascontiguousarray(expected).view(np.uint16))
    assert not any("float32" in types for _, *types in kinds(net, *given))


def test_a_table_keeps_its_type(rng, tmp_path):
    """Only the rows that are gathered are widened."""
    table, w = float16(rng, 50, 8), float16(rng, 8, 3)
    proto = parse_model(HEAD + "(int64[n] i) => (float16[n, m] y) { e = Gather(table, i)  y = MatMul(e, w) }")
    proto.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in {"table": table, "w": w}.items())
    i = np.array([3, -1, 49])
    expected = table[i].astype(np.float64) @ w.astype(np.float64)
    net = fo.load_onnx(proto)
    net.save(tmp_path / "net.fo")
    for form in (net, fo.load(tmp_path / "net.fo"), fo.load_onnx(proto, fold=False, fuse=False)):
        np.testing.assert_allclose(form(i).astype(float), expected, rtol=2e-3, atol=2e-3)
        assert kinds(form, i)[0] == ("gather", "float16")


def attention(q, k, v):
    return oracle.attention(q, k, v, scale=0.125)[0]


@pytest.mark.parametrize("heads, kv", [(2, 2), (4, 4)])
@pytest.mark.parametrize("d, e, past, t", SIZES)
def test_attention_reads_caches_as_they_are(d, e, past, t, heads, kv, isa, threads, rng):
    net = fo.load_onnx(parse_model(HEAD + CACHES))
    q = float16(rng, 2, heads, t, d)
    seen_k, new_k, seen_v, new_v = (float16(rng, 2, kv, n, w) for w in (d, e) for n in (past, t))
    y, k, v = net(q, seen_k, new_k, seen_v, new_v)
    for made, seen, new in ((k, seen_k, new_k), (v, seen_v, new_v)):
        np.testing.assert_array_equal(made, np.concatenate([seen, new], 2))
    expected = attention(q, k, v)
    np.testing.assert_allclose(y.astype(float), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    # a query alone reads keys and values where they lie
    given = q[:, :, -1:], k[:, :, :-1], k[:, :, -1:], v[:, :, :-1], v[:, :, -1:]
    alone = net(*given)[0].astype(float)
    np.testing.assert_allclose(alone, expected[:, :, -1:], rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    found = [kind for kind, *_ in kinds(net, *given)]
    assert found.count("attention") == 1 and found.count("map") == 2  # queries are widened, and results rounded


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("batch, lasts", [(1, [5]), (2, [5, 3])])
def test_grouped_attention(batch, lasts, rotary, isa, rng):
    """The same in float32, whose keys and values are those that float16 keeps."""
    heads, kv, size, past, t = 4, 2, 16, 5, 1
    proto = grouped(heads, kv, size, rotary, TensorProto.FLOAT16)
    x, pk, pv = float16(rng, batch, t, (heads + 2 * kv) * size), *float16(rng, 2, batch, kv, past, size)
    rest = np.array(lasts, np.int32), np.array(past + t, np.int32)
    y, k, v = fo.load_onnx(proto)(x, pk, pv, *rest)
    assert {a.dtype for a in (y, k, v)} == {np.dtype(np.float16)}
    wide = fo.load_onnx(retyped(proto, TensorProto.FLOAT))
    expected = wide(*(a.astype(np.float32) for a in (x, pk, pv)), *rest)
    for found, want in zip((y, k, v), expected, strict=True):
        np.testing.assert_allclose(found.astype(np.float32), want, rtol=2e-3, atol=2e-3)
    for row, last in enumerate(lasts):
        np.testing.assert_array_equal(k[row, :, :last], pk[row, :, :last])


def test_a_decoder_keeps_float16(rng):
    """Its caches have half the bytes; results are those of calls with a past, and no step widens all of it."""
    text = (
        HEAD
        + """(float16[b, new, 8] x, float16[b, past, 8] seen) => (float16[b, new, 8] y, float16[b, all, 8] kept)
        { kept = Concat<axis=1>(seen, x)  k = Transpose<perm=[0, 2, 1]>(kept)  s = MatMul(x, k)  w = Softmax<axis=-1>(s)
          y = MatMul(w, kept) }"""
    )
    net, past = fo.load_onnx(parse_model(text)), np.empty((2, 0, 8), np.float16)
    decoder = net.decoder()
    for length in (4, 1, 1, 3):
        x = float16(rng, 2, length, 8)
        expected, past = net(x, past)
        np.testing.assert_array_equal(decoder(x), expected)
        assert decoder.caches["seen"].dtype == np.float16
        np.testing.assert_array_equal(decoder.caches["seen"], past)
        exact = oracle.attention(x[:, None], past[:, None], past[:, None], scale=1.0)[0][:, 0]
        np.testing.assert_allclose(expected.astype(float), exact, rtol=2e-3, atol=2e-3)


def test_a_cache_that_the_file_rounds(rng):
    text = (
        HEAD
        + """(float[b, new, 2] x, float16[b, past, 2] seen) => (float16[b, all, 2] kept, float[b, all, 2] y) {
        h = Cast<to=10>(x)  kept = Concat<axis=1>(seen, h)  f = Cast<to=1>(kept)  y = Add(f, f) }"""
    )
    net = fo.load_onnx(parse_model(text))
    decoder, x = net.decoder(), rng.standard_normal((1, 3, 2)).astype(np.float32)
    for length in (3, 4):
        y = decoder(x)
        kept = decoder.caches["seen"]
        assert kept.dtype == np.float16 and kept.shape == (1, 3 * (length - 2), 2)
        np.testing.assert_array_equal(kept[:, -3:], x.astype(np.float16))
        np.testing.assert_allclose(y[:, -3:], 2 * x, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("m", [1, 15, 17, 33, 64, 130])
@pytest.mark.parametrize("n", [1, 2, 16, 31, 65, 1030])
def test_transpositions_of_whole_blocks_and_edges(isa, rng, m, n):
    net = fo.load_onnx(
        parse_model(
            f"{HEAD}(float16[2, {m}, {n}] x) => (float16[2, {n}, {m}] y) {{ y = Transpose<perm=[0, 2, 1]>(x) }}"
        )
    )
    x = rng.integers(0, 1 << 16, (2, m, n)).astype(np.uint16).view(np.float16)
    np.testing.assert_array_equal(net(x).view(np.uint16), x.transpose(0, 2, 1).view(np.uint16))


def test_what_else_reads_a_moved_value_reads_float32(rng):
    """Shapes do not widen it, and a value that several nodes compute with is widened once."""
    text = (
        HEAD
        + """(float16[n, 4] x, float16[m, 4] z)
        => (float16[k, 4] y, float16[k, 4] c, int64[2] s, float16[k, 4] a) {
        c = Concat<axis=0>(x, z)  s = Shape(c)  e = Exp(c)  y = Add(e, c)  a = Relu(z1)  z1 = Concat<axis=0>(z, x) }"""
    )
    proto = parse_model(text)
    proto.graph.node.insert(4, proto.graph.node.pop())
    net, x, z = fo.load_onnx(proto, fuse=False), float16(rng, 2, 4), float16(rng, 3, 4)
    y, c, s, a = net(x, z)
    whole = np.concatenate([x, z])
    np.testing.assert_array_equal(c, whole)
    np.testing.assert_array_equal(s, (5, 4))
    np.testing.assert_array_equal(a, np.maximum(np.concatenate([z, x]), 0))
    np.testing.assert_allclose(y.astype(float), np.exp(whole.astype(float)) + whole, rtol=2e-3, atol=2e-3)
    assert sum(node.op == "Cast" and node.attrs["to"] == 1 for node in net._graph.nodes) == 2


def test_a_state_that_is_computed_with_is_widened_once(rng):
    """Where no part of it is only moved on, as a Cast for each part would take longer."""
    text = (
        HEAD
        + """(float16[2, n, 4] h) => (float16[n, 4] y) <int64[1] zero = {0}> {
        a, b = Split<axis=0, num_outputs=2>(h)  c = Squeeze(a, zero)  d = Squeeze(b, zero)  y = Mul(c, d) }"""
    )
    net, h = fo.load_onnx(parse_model(text)), float16(rng, 2, 3, 4)
    np.testing.assert_allclose(net(h).astype(float), h[0].astype(float) * h[1], rtol=1e-3)
    assert sum(node.op == "Cast" and node.attrs["to"] == 1 for node in net._graph.nodes) == 1


def test_a_loop_and_a_branch_read_float32(rng):
    """Graphs inside nodes take what they capture as float32."""
    text = (
        HEAD
        + """(float16[n, 4] x, bool c) => (float16[n, 4] y) { m = Transpose<perm=[1, 0]>(x)
        t = Transpose<perm=[1, 0]>(m)
        y = If(c)<then_branch = a() => (float16[n, 4] u) { u = Exp(t) },
                  else_branch = b() => (float16[n, 4] v) { v = Neg(t) }> }"""
    )
    net, x = fo.load_onnx(parse_model(text)), float16(rng, 3, 4)
    np.testing.assert_allclose(net(x, np.array(True)).astype(float), np.exp(x.astype(float)), rtol=2e-3)
    np.testing.assert_array_equal(net(x, np.array(False)), -x)


def test_a_convolution_reads_what_is_widened_and_clips(rng):
    """Bounds of float16 make an activation, and no step moves the channels of the image."""
    text = """(float16[n, 3, 9, 8] x) => (float16[n, 16, 9, 8] y) <float16 lo = {0}, float16 hi = {17920}>
        { c = Conv<pads=[1, 1, 1, 1]>(x, w)  y = Clip(c, lo, hi) }"""
    proto = parse_model(HEAD + text)
    proto.graph.initializer.append(numpy_helper.from_array(float16(rng, 16, 3, 3, 3), "w"))
    net, x = fo.load_onnx(proto), float16(rng, 2, 3, 9, 8)
    assert [kind for kind, *_ in kinds(net, x)] == ["map", "conv2d", "map"]
    wide = fo.load_onnx(retyped(proto, TensorProto.FLOAT))
    np.testing.assert_array_equal(net(x), wide(x.astype(np.float32)).astype(np.float16))
    assert net(x).max() == 6
