"""Decoders of two branches in one file, as optimum merges them: the first call makes keys and values, later ones have
them in place."""

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_graph, parse_model

import fusedops as fo
from fusedops.graph.planner import plan
from onnx_types import retyped

WIDTH, WORDS = 16, 40
BOTH = "x = Gather(table, ids)  q = MatMul(x, wq)  k0 = MatMul(x, wk)  v0 = MatMul(x, wv)"
ATTENTION = (
    "kt = Transpose<perm = [0, 2, 1]>(k)  s = MatMul(q, kt)  {mask}  p = Softmax<axis = -1>(m)  o = MatMul(p, v)"
)
MASK = """two = Shape<start = 1>(ids)  square = Concat<axis = 0>(two, two)
    low = ConstantOfShape<value = float[1] {-3e4}>(square)  above = Trilu<upper = 1>(low, next)  m = Add(s, above)"""
CROSS = "ct = Transpose<perm = [0, 2, 1]>(c)  cs = MatMul(o, ct)  cp = Softmax<axis = -1>(cs)  r = MatMul(cp, c)"
KEYS = f"float[b, past, {WIDTH}]"


def branch(name, body, crossed, with_past):
    """A graph of logits, keys and values, and of those of another text."""
    outputs = [f"float[b, n, {WORDS}] l", f"{KEYS} k", f"{KEYS} v", *[f"float[b, source, {WIDTH}] made"] * crossed]
    graph = parse_graph(f"{name} () => ({', '.join(outputs)}) {{ {body} }}")
    if crossed and with_past:  # optimum's stand-in for an output that this branch does not have
        empty = numpy_helper.from_array(np.zeros((0, 0, WIDTH), np.float32), "made")
        graph.node.append(helper.make_node("Constant", [], ["made"], value=empty))
    return graph


def merged(crossed=False, then_has_past=True):
    """(the model, its weights)"""
    head = "l = MatMul(r, head)" if crossed else "l = MatMul(o, head)"
    past = f"{BOTH}  k = Concat<axis = 1>(past_k, k0)  v = Concat<axis = 1>(past_v, v0) "
    past += (
        ATTENTION.format(mask="m = Identity(s)") + (f" c = Identity(past_cross)  {CROSS} " if crossed else " ") + head
    )
    none = f"{BOTH}  k = Identity(k0)  v = Identity(v0) " + ATTENTION.format(mask=MASK)
    none += (f" c = MatMul(text, wc)  made = Identity(c)  {CROSS} " if crossed else " ") + head
    graphs = [branch("with_past", past, crossed, True), branch("no_past", none, crossed, False)]
    inputs = f"int64[b, n] ids, {KEYS} past_k, {KEYS} past_v"
    outputs = f"float[b, n, {WORDS}] logits, float[b, total, {WIDTH}] present_k, float[b, total, {WIDTH}] present_v"
    if crossed:
        inputs += f", float[b, source, {WIDTH}] past_cross, float[b, source, {WIDTH}] text"
        outputs += f", float[b, source, {WIDTH}] present_cross"
    names = ["logits", "present_k", "present_v", "present_cross"][: 3 + crossed]
    proto = parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}, bool[1] use_cache_branch) => ({outputs}) '
        f"{{ {', '.join(names)} = If(use_cache_branch) }}"
    )
    then, other = graphs if then_has_past else graphs[::-1]
    proto.graph.node[0].attribute.extend(
        [helper.make_attribute("then_branch", then), helper.make_attribute("else_branch", other)]
    )
    rng = np.random.default_rng(0)
    shapes = dict.fromkeys(["wq", "wk", "wv", "wc"], (WIDTH, WIDTH)) | {"head": (WIDTH, WORDS), "table": (WORDS, WIDTH)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) / np.float32(4) for name, shape in shapes.items()}
    proto.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in weights.items())
    proto.graph.initializer.append(numpy_helper.from_array(np.int64(1), "next"))
    return proto, weights


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logits(w, ids, text=None):
    """Those of a whole text at once, in float64."""
    w = {name: a.astype(np.float64) for name, a in w.items()}
    x = w["table"][ids]
    q, k, v = (x @ w[name] for name in ("wq", "wk", "wv"))
    scores = q @ k.swapaxes(1, 2) + np.triu(np.full((ids.shape[1],) * 2, -np.inf), 1)
    y = softmax(scores) @ v
    if text is not None:
        c = text @ w["wc"]
        y = softmax(y @ c.swapaxes(1, 2)) @ c
    return y @ w["head"]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("then_has_past", [True, False])
@pytest.mark.parametrize("crossed", [False, True])
def test_word_by_word(crossed, then_has_past, kind, rng, threads, monkeypatch):
    proto, weights = merged(crossed, then_has_past)
    proto, half = retyped(proto, kind), kind == TensorProto.FLOAT16
    dtype, atol = (np.float16, 0.03) if half else (np.float32, 2e-4)
    lowered, lower = [], plan._lower
    monkeypatch.setattr(plan, "_lower", lambda builder, node: lowered.append(node.name) or lower(builder, node))
    decoder = fo.load_onnx(proto).decoder(capacity=4)
    assert "use_cache_branch" not in repr(decoder) and "past" not in repr(decoder)
    for batch, source in (2, 7), (1, 3):  # another text, of other sizes, begins anew
        decoder.truncate()
        text = rng.standard_normal((batch, source, WIDTH)).astype(dtype)
        more = [text] if crossed else []
        ids = rng.integers(0, WORDS, (batch, 25))
        expected = logits(weights, ids, *more)
        np.testing.assert_allclose(decoder(ids[:, :5], *more), expected[:, :5], rtol=0, atol=atol)
        for i in range(5, 25):
            np.testing.assert_allclose(decoder(ids[:, i : i + 1], *more), expected[:, i : i + 1], rtol=0, atol=atol)
            assert len(decoder) == i + 1 and {a.dtype for a in decoder.caches.values()} == {np.dtype(dtype)}
            if i == 7:
                lowered.clear()
        assert not lowered


@pytest.mark.parametrize("crossed", [False, True])
def test_calls_of_the_network_itself(crossed, rng):
    proto, weights = merged(crossed)
    net, ids = fo.load_onnx(proto), rng.integers(0, WORDS, (1, 6))
    text = rng.standard_normal((1, 3, WIDTH)).astype(np.float32)
    none = {"past_k": np.zeros((1, 0, WIDTH), np.float32), "past_v": np.zeros((1, 0, WIDTH), np.float32)}
    more = {"past_cross": np.zeros((1, 0, WIDTH), np.float32), "text": text} if crossed else {}
    found = net.run({"ids": ids[:, :5], **none, **more, "use_cache_branch": np.array([False])})
    expected = logits(weights, ids, *([text] if crossed else []))
    np.testing.assert_allclose(found["logits"], expected[:, :5], rtol=0, atol=2e-4)
    past = {name.replace("present", "past"): a for name, a in found.items() if name != "logits"}
    found = net.run({"ids": ids[:, 5:], **more, **past, "use_cache_branch": np.array([True])})
    np.testing.assert_allclose(found["logits"], expected[:, 5:], rtol=0, atol=2e-4)


def test_branches_share_packed_weights_and_caches_stay(rng):
    net = fo.load_onnx(merged()[0])
    decoder, ids = net.decoder(), rng.integers(0, WORDS, (1, 9))
    decoder(ids[:, :5])
    decoder(ids[:, 5:6])
    before = decoder.caches
    decoder(ids[:, 6:7])
    for name, a in decoder.caches.items():
        assert np.shares_memory(a, before[name])
    first, later = (
        {id(layer) for layer in session.layers.values()} for session in (net._first_call.session, net._decoding)
    )
    assert len(first & later) >= 1  # the head, and where branches merge them alike queries, keys and values


def test_back_and_on(rng):
    proto, weights = merged()
    decoder, ids = fo.load_onnx(proto).decoder(), rng.integers(0, WORDS, (1, 8))
    expected = logits(weights, ids)
    decoder(ids[:, :5])
    decoder(rng.integers(0, WORDS, (1, 1)))
    decoder.truncate(5)
    np.testing.assert_allclose(decoder(ids[:, 5:6]), expected[:, 5:6], rtol=0, atol=2e-4)


@pytest.mark.parametrize("name", ["width", ""])
def test_sizes_of_caches_that_no_input_says(rng, name):
    """The first call makes them: later ones have them from it."""
    proto, weights = merged()
    for v in proto.graph.input[1:3]:
        v.type.tensor_type.shape.dim[2].Clear()
        v.type.tensor_type.shape.dim[2].dim_param = name
    decoder, ids = fo.load_onnx(proto).decoder(), rng.integers(0, WORDS, (2, 9))
    for text in ids, ids[:1]:
        decoder.truncate()
        expected = logits(weights, text)
        np.testing.assert_allclose(decoder(text[:, :5]), expected[:, :5], rtol=0, atol=2e-4)
        for i in range(5, 9):
            np.testing.assert_allclose(decoder(text[:, i : i + 1]), expected[:, i : i + 1], rtol=0, atol=2e-4)
    with pytest.raises(ValueError, match="the caches of the decoder have b 1, but it is 2 now"):
        decoder(ids[:, :1])


def test_branches_without_caches():
    proto = parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x, bool c) => (float[n] y) '
        "{ y = If(c) <then_branch = t () => (float[n] a) { a = Relu(x) }, "
        "else_branch = e () => (float[n] b) { b = Neg(x) }> }"
    )
    with pytest.raises(ValueError, match="it has no caches"):
        fo.load_onnx(proto).decoder()
