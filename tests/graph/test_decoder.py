"""A network that keeps its keys and values: the bits of one that takes and gives them, with nothing copied or lowered
again."""

import threading

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx.parser import parse_model

import decoder_net
import fusedops as fo
from fusedops.graph.planner import plan

RNG = np.random.default_rng(0)
CONCAT = """<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, new, 8] x, float[batch, 2, past, 4] keys, float[batch, 2, past, 4] values)
    => (float[batch, new, 8] y, float[batch, 2, total, 4] all_keys, float[batch, 2, total, 4] all_values)
    <int64[4] split = {0, 0, 2, 4}, int64[3] joined = {0, 0, -1}> {
    a = Reshape(x, split)  b = Transpose<perm=[0,2,1,3]>(a)  c = Exp(b)
    all_keys = Concat<axis=2>(keys, b)  all_values = Concat<axis=-2>(values, c)
    t = Transpose<perm=[0,1,3,2]>(all_keys)  s = MatMul(b, t)  p = Softmax<axis=-1>(s)  o = MatMul(p, all_values)
    r = Transpose<perm=[0,2,1,3]>(o)  y = Reshape(r, joined) }"""

# the positions of queries and keys as ranges, a mask that indices read, and another text that all words see
RANGES = """<ir_version: 8, opset_import: ["" : 18]>
net (float[batch, new, 8] x, bool[batch, total] mask, float[batch, source, 8] text, float[batch, past, 8] seen)
    => (float[batch, new, 8] y, float[batch, all, 8] kept)
    <int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}, int64[1] second = {1}, int64[1] third = {2},
     int64[2] inner = {1, 2}, int64[1] middle = {1}, int64[1] first = {0}, float none = {0}, float low = {-3e38}> {
    kept = Concat<axis=1>(seen, x)
    b1 = Shape<start=0, end=1>(x)  b = Squeeze(b1)  p1 = Shape<start=1, end=2>(seen)  p = Squeeze(p1)
    n1 = Shape<start=1, end=2>(x)  n = Squeeze(n1)  t = Add(p, n)
    columns = Range(zero, t, one)  counted = Range(zero, n, one)  rows = Add(counted, p)
    r = Unsqueeze(rows, last)  causal = LessOrEqual(columns, r)
    t1 = Unsqueeze(t, first)  shape = Concat<axis=0>(b1, second, t1)
    batches = Range(zero, b, one)  b3 = Unsqueeze(batches, inner)  be = Expand(b3, shape)  bi = Unsqueeze(be, last)
    ce = Expand(columns, shape)  ci = Unsqueeze(ce, last)  i = Concat<axis=-1>(bi, ci)  given = GatherND(mask, i)
    sees = And(causal, given)  m = Where(sees, none, low)
    k = Transpose<perm=[0,2,1]>(kept)  s = MatMul(x, k)  sm = Add(s, m)  w = Softmax<axis=-1>(sm)  o = MatMul(w, kept)
    tk = Transpose<perm=[0,2,1]>(text)  ts = MatMul(o, tk)  tw = Softmax<axis=-1>(ts)  y = MatMul(tw, text) }"""


def words(*shape):
    return RNG.integers(0, decoder_net.WORDS, shape)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("capacity", [1, 64])
def test_the_bits_of_a_network_that_is_given_its_past(batch, capacity, threads):
    net = fo.load_onnx(decoder_net.decoder())
    decoder, past, ids = net.decoder(capacity=capacity), decoder_net.no_past(batch), words(batch, 5)
    for i in range(30):
        found = net.run(decoder_net.step(past, ids))
        y, past = decoder(ids), decoder_net.as_past(found)
        np.testing.assert_array_equal(y, found["logits"])
        assert len(decoder) == 5 + i and sorted(decoder.caches) == sorted(past)
        for name, a in decoder.caches.items():
            np.testing.assert_array_equal(a, past[name])
        ids = y[:, -1:].argmax(-1)


def test_several_words_at_once_and_back_again():
    decoder, text = fo.load_onnx(decoder_net.decoder()).decoder(), words(1, 20)
    whole = decoder(text)
    for parts in ([20], [1] * 20, [7, 1, 1, 5, 6], [19, 1]):
        decoder.truncate()
        found = [decoder(part) for part in np.split(text, np.cumsum(parts)[:-1], 1)]
        np.testing.assert_array_equal(np.concatenate(found, 1), whole)
    decoder.truncate(12)
    np.testing.assert_array_equal(decoder(text[:, 12:]), whole[:, 12:])
    other = decoder_net.decoder()
    assert not np.array_equal(fo.load_onnx(other).decoder()(text[:, ::-1].copy()), whole)


def test_new_lengths_lower_nothing_again(monkeypatch):
    lowered, lower = [], plan._lower
    monkeypatch.setattr(plan, "_lower", lambda builder, node: lowered.append(node.name) or lower(builder, node))
    net = fo.load_onnx(decoder_net.decoder())
    decoder = net.decoder(capacity=8)
    for ids in (words(1, 5), words(1, 1), words(1, 1)):
        decoder(ids)
    lowered.clear()
    for _ in range(50):
        decoder(words(1, 1))
    other = net.decoder(capacity=300)
    other(words(1, 5))
    for _ in range(5):
        other(words(1, 1))
    assert len(lowered) <= len(net._graph.nodes), "another prompt, at most"


def test_nothing_is_copied():
    """The memory of caches stays where it is, and no step reads what is there but attention."""
    net = fo.load_onnx(decoder_net.decoder())
    decoder = net.decoder()
    decoder(words(1, 5)), decoder(words(1, 1))
    before = {name: a.ctypes.data for name, a in decoder.caches.items()}
    decoder(words(1, 1))
    assert {name: a.ctypes.data for name, a in decoder.caches.items()} == before
    steps = max(net._decoding._plans.values(), key=lambda found: found[0].used)[0].steps
    written = [step for step in steps if any(t.buffer.slot in (3, 4) for t in step.writes)]
    assert [step.kind for step in written] == ["rotate", "copy"], "of the first layer's keys and values"
    assert all(step.writes[0].shape[2] == 1 for step in written)


def test_rows_after_a_concat():
    net = fo.load_onnx(parse_model(CONCAT))
    decoder, past = net.decoder(capacity=4), [np.zeros((2, 2, 0, 4), np.float32)] * 2
    for new in (3, 1, 1, 2, 1, 1):
        x = RNG.standard_normal((2, new, 8), np.float32)
        y, *past = net(x, *past)
        np.testing.assert_allclose(decoder(x), y, rtol=1e-6, atol=1e-6)
        for a, b in zip(decoder.caches.values(), past, strict=True):
            np.testing.assert_array_equal(a, b)


def test_decoders_of_one_network_in_threads():
    net, text = fo.load_onnx(decoder_net.decoder()), words(4, 24)
    expected, found = [net.decoder()(row[None]) for row in text], [None] * 4

    def write(i):
        decoder = net.decoder(capacity=2)
        found[i] = np.concatenate([decoder(text[i : i + 1, t : t + 1]) for t in range(24)], 1)

    team = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    [t.start() for t in team], [t.join() for t in team]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_mask_is_ones_and_positions_count_on():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[batch, new] x, int64[batch, total] attention_mask, int64[batch, new] position_ids,
         float[batch, past] seen)
        => (int64[batch] sum, int64[batch, new] at, float[batch, total] all) {
        all = Concat<axis=1>(seen, x)  at = Identity(position_ids)
        one = Constant<value = int64[1] {1}>()  sum = ReduceSum<keepdims=0>(attention_mask, one) }"""
    decoder = fo.load_onnx(parse_model(text)).decoder()
    for new, total in ((3, 3), (2, 5)):
        count, at = decoder(np.zeros((2, new), np.float32))
        assert count.tolist() == [total] * 2 and at.tolist() == [[*range(total - new, total)]] * 2
    count, at = decoder(
        np.zeros((2, 1), np.float32), position_ids=np.full((2, 1), 9), attention_mask=np.zeros((2, 6), np.int64)
    )
    assert count.tolist() == [0, 0] and at.tolist() == [[9], [9]]


class Memory:
    """Room for the caches of a decoder, of which calls take and give the first rows."""

    def __init__(self, net, batch, room, layout=lambda a: a):
        shape = batch, decoder_net.KV_HEADS, room, decoder_net.HEAD
        self.net, self.tokens = net, 0
        self.arrays = {v.name: layout(np.full(shape, np.nan, np.float32)) for v in net.inputs[2:]}

    def __call__(self, ids, **more):
        total = self.tokens + ids.shape[1]
        past, present = ({n: a[:, :, :k] for n, a in self.arrays.items()} for k in (self.tokens, total))
        out = {name.replace("past", "present"): a for name, a in present.items()}
        found = self.net(ids, np.ones((len(ids), total), np.int64), *past.values(), out=out | more)
        assert all(y is a for y, a in zip(found[1:], out.values(), strict=True))
        self.tokens = total
        return found[0]


@pytest.mark.parametrize("batch", [1, 3])
def test_caches_in_memory_of_the_caller(batch, threads, monkeypatch):
    lowered, lower = [], plan._lower
    monkeypatch.setattr(plan, "_lower", lambda builder, node: lowered.append(node.name) or lower(builder, node))
    net, text = fo.load_onnx(decoder_net.decoder()), words(batch, 30)
    memory, decoder = Memory(net, batch, 31), net.decoder(capacity=31)
    for i, ids in enumerate(np.split(text, [5, 6, 9, *range(10, 30)], 1)):
        np.testing.assert_array_equal(memory(ids), decoder(ids))
        if i == 4:
            lowered.clear()
    assert not lowered
    for name, a in decoder.caches.items():
        np.testing.assert_array_equal(memory.arrays[name][:, :, :30], a)
        assert np.isnan(memory.arrays[name][:, :, 30:]).all(), "what is after stays"
    steps = max(net._session._lent._keeping._plans.values(), key=lambda found: found[0].used)[0].steps
    kinds = [step.kind for step in steps if any(t.buffer.slot in (3, 4) for t in step.writes)]
    assert kinds == (["append"] * 2 if batch > 1 else ["rotate", "copy"])


@pytest.mark.parametrize("kind", ["strided", "other room", "elsewhere"])
def test_caches_that_lie_otherwise_are_copied(kind):
    net, text = fo.load_onnx(decoder_net.decoder()), words(2, 6)
    memory, decoder = (
        Memory(net, 2, 20, lambda a: np.repeat(a, 2, 3)[..., ::2] if kind == "strided" else a),
        net.decoder(),
    )
    first = next(iter(memory.arrays))
    if kind == "other room":
        memory.arrays[first] = np.zeros((2, decoder_net.KV_HEADS, 40, decoder_net.HEAD), np.float32)
    for ids in np.split(text, [4, 5], 1):
        y = decoder(ids)
        if kind == "elsewhere":
            past = {n: a[:, :, : memory.tokens].copy() for n, a in memory.arrays.items()}
            memory.net = lambda *given, past=past, **out: net(*given[:2], *past.values(), **out)
        np.testing.assert_array_equal(memory(ids), y)
    for name, a in decoder.caches.items():
        np.testing.assert_array_equal(memory.arrays[name][:, :, :6], a)
    assert net._session._lent._keeping is None


def test_what_caches_in_memory_of_the_caller_refuse():
    net = fo.load_onnx(decoder_net.decoder())
    memory = Memory(net, 1, 20)
    memory(words(1, 3))
    name, kept = next(iter(memory.arrays.items()))
    with pytest.raises(ValueError, match="out for logits has shape"):
        memory(words(1, 1), logits=np.empty((1, 2, decoder_net.WORDS), np.float32))
    with pytest.raises(ValueError, match="outside its axis"):
        memory(np.array([[decoder_net.WORDS]]))
    one_head, out = (
        [a[:, :1, :3] for a in memory.arrays.values()],
        [None, *(a[:, :, :4] for a in memory.arrays.values())],
    )
    with pytest.raises(ValueError, match="has shape"):
        net(words(1, 1), np.ones((1, 4), np.int64), *one_head, out=out)
    memory.arrays[name] = kept[..., :8]
    with pytest.raises(ValueError, match="has shape"):
        memory(words(1, 1))
    memory.arrays[name] = kept
    kept.flags.writeable = False
    with pytest.raises(ValueError, match="is read-only"):
        memory(words(1, 1))
    kept.flags.writeable = True
    assert memory(words(1, 1)).shape == (1, 1, decoder_net.WORDS)


def test_errors():
    plain = fo.load_onnx(
        parse_model('<ir_version: 8, opset_import: ["" : 17]> net (float[n] x) => (float[n] y) { y = Exp(x) }')
    )
    with pytest.raises(ValueError, match="no input of the network comes back"):
        plain.decoder()
    net = fo.load_onnx(decoder_net.decoder())
    with pytest.raises((TypeError, ValueError), match="capacity"):
        net.decoder(capacity=0)
    decoder = net.decoder()
    decoder(words(1, 3))
    with pytest.raises(ValueError, match="the network takes 2 inputs"):
        decoder()
    with pytest.raises(ValueError, match="not wrong"):
        decoder(words(1, 1), wrong=1)
    with pytest.raises(TypeError, match="ids has dtype float64"):
        decoder(np.ones((1, 1)))
    with pytest.raises(ValueError, match="have batch 1, but it is 2 now"):
        decoder(words(2, 1))
    with pytest.raises(ValueError, match="tokens is 4, but the decoder has 3"):
        decoder.truncate(4)
    with pytest.raises(ValueError, match="outside its axis"):
        decoder(np.array([[decoder_net.WORDS]]))
    assert len(decoder) == 3
    decoder.truncate()
    assert decoder(words(2, 1)).shape == (2, 1, decoder_net.WORDS), "an empty one takes any number of sequences"


def test_masks_of_ranges(monkeypatch, threads):
    """What follows from lengths alone is computed by steps, and nothing is lowered for a new one."""
    lowered, lower = [], plan._lower
    monkeypatch.setattr(plan, "_lower", lambda builder, node: lowered.append(node.name) or lower(builder, node))
    net, seen = fo.load_onnx(parse_model(RANGES)), np.zeros((3, 0, 8), np.float32)
    decoder, text = net.decoder(), RNG.standard_normal((3, 6, 8), np.float32)
    for step, new in enumerate([4, 1, 1, 1, 3, 1, 2, 1, 1]):
        x, mask = RNG.standard_normal((3, new, 8), np.float32), np.ones((3, seen.shape[1] + new), bool)
        mask[1, :2] = False
        found = net.run(dict(x=x, mask=mask, text=text, seen=seen))
        lowered.clear()
        np.testing.assert_array_equal(decoder(x, mask, text), found["y"])
        seen = found["kept"]
        assert not lowered or step in (0, 1, 2, 4, 6)
    steps = max(net._decoding._plans.values(), key=lambda made: made[0].used)[0].steps
    assert [s.kind for s in steps].count("attention") == 2
    assert {"numpy", "gather"}.isdisjoint(s.kind for s in steps)
