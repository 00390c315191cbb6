"""Decoders of two branches in one file, as optimum merges them: the first call makes keys and values, later ones have
them in place."""

import numpy as np
import pytest

pytest.importorskip("onnx")
from merged_net import WIDTH, WORDS, logits, merged
from onnx import TensorProto
from onnx.parser import parse_model

import fusedops as fo
from fusedops.graph.planner import plan
from onnx_types import retyped


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
