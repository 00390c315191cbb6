"""Caches in memory of the caller where it is shared with other arrays, or does not fit what the network declares."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper
from onnx.parser import parse_model

import fusedops as fo
import onnx_text
from fusedops.graph.runtime import destinations

RNG = np.random.default_rng(0)
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
READ = """net (float[batch, 2, new, 4] x, float[batch, 2, past, 4] seen, float[batch, 2, 1, 4] more, int64[n] i)
    => (float[batch, 2, rows, 4] y, float[batch, 2, total, 4] kept, float[n, 3] e)
    <float[4, 3] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}> {
    kept = Concat<axis=2>(seen, x)  y = Add(kept, more)  e = Gather(table, i) }"""


def some(*shape):
    return RNG.standard_normal(shape, np.float32)


@pytest.fixture
def net():
    return fo.load_onnx(parse_model(HEAD + READ))


def lends(net):
    """Whether a call wrote to a cache in memory of its caller."""
    return net._session._lent._keeping is not None


class Viewing:
    """An array of another library, which NumPy reads without a copy."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


@pytest.mark.parametrize("form", [np.asarray, Viewing])
def test_other_inputs_in_the_memory_of_a_cache(form, net):
    memory, x, i = some(1, 2, 20, 4), some(1, 2, 1, 4), np.int64([1])
    more = memory[0, 0, 5:7].reshape(1, 2, 1, 4)  # of which one is the row that is written
    kept = np.concatenate([memory[:, :, :5], x], 2)
    expected = kept + more
    y = net(x, memory[:, :, :5], form(more), i, out=(None, memory[:, :, :6], None))[0]
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(memory[:, :, :6], kept)
    assert not lends(net)


@pytest.mark.parametrize("kind", ["another reader", "result", "alone"])
def test_past_of_a_shared_buffer(kind):
    """New rows lie among the past, whose other reader finds it as it was."""
    value = helper.make_tensor_value_info
    own = dict(domain="com.microsoft", num_heads=4, kv_num_heads=2)
    given = ["q", "k", "v", "keys", "values", "lasts", "total"]
    nodes = [helper.make_node("GroupQueryAttention", given, ["y", "all_keys", "all_values"], **own)]
    if kind != "alone":
        nodes.append(helper.make_node({"result": "Identity"}.get(kind, "Neg"), ["keys"], ["o"]))
    ins = [value(n, TensorProto.FLOAT, ["b", "t", c]) for n, c in (("q", 32), ("k", 16), ("v", 16))]
    ins += [value(n, TensorProto.FLOAT, ["b", 2, "past", 8]) for n in ("keys", "values")]
    ins += [value("lasts", TensorProto.INT32, ["b"]), value("total", TensorProto.INT32, [])]
    outs = [value(n, TensorProto.FLOAT, None) for n in ("y", "all_keys", "all_values", "o")[: 3 + (kind != "alone")]]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "g", ins, outs)
    net = fo.load_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    new, past = [some(1, 1, c) for c in (32, 16, 16)], [some(1, 2, 24, 8) for _ in range(2)]
    lengths = np.int32([5]), np.array(6, np.int32)
    expected = net(*new, *(a.copy() for a in past), *lengths)
    found = net(*new, *past, *lengths, out=(None, *past, None)[: len(outs)])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert lends(net)
    assert [c.input for c in net._session._lent._caches] == ([3, 4] if kind == "alone" else [4])


def test_an_error_leaves_other_results(net):
    """Only new rows may be written by a call that refuses a value."""
    memory, y = np.zeros((1, 2, 20, 4), np.float32), np.full((1, 2, 4, 4), 7, np.float32)
    given = some(1, 2, 1, 4), memory[:, :, :3], some(1, 2, 1, 4)
    with pytest.raises(ValueError, match="outside its axis"):
        net(*given, np.int64([9]), out=(y, memory[:, :, :4], None))
    assert (y == 7).all() and not memory[:, :, :3].any() and lends(net)
    found = net(*given, np.int64([2]), out=(y, memory[:, :, :4], None))
    assert found[0] is y and np.array_equal(y, memory[:, :, :4] + given[2])
    np.testing.assert_array_equal(found[2], [[6, 7, 8]])


def test_caches_are_checked_as_other_inputs_are():
    text = READ.replace("float[batch, 2, past, 4] seen", "float[1, 2, 4, 4] seen")
    net, x, more, i = fo.load_onnx(parse_model(HEAD + text)), some(1, 2, 1, 4), some(1, 2, 1, 4), np.int64([1])
    memory, three = some(1, 2, 20, 4), some(1, 3, 20, 4)

    def call(array, n, x=x):
        return net(x, array[:, :, :n], more, i, out=(None, np.asarray(array)[:, :, : n + 1], None))

    with pytest.raises(ValueError, match=r"seen has shape \(1, 2, 5, 4\), but the network takes"):
        call(memory, 5)
    with pytest.raises(ValueError, match=r"seen has shape \(1, 3, 4, 4\), but the network takes"):
        call(three, 4, some(1, 3, 1, 4))
    with pytest.raises(ValueError, match=r"seen has shape \(4, 4\), but the network takes"):
        net(x, memory[0, 0, :4], more, i, out=(None, memory[0, 0, :4], None))
    with pytest.raises(TypeError, match="seen is a masked array"):
        call(np.ma.masked_array(memory, memory > 0), 4)
    assert call(memory, 4)[1].shape == (1, 2, 5, 4) and lends(net)


def test_a_sequence_beside_a_cache():
    text = """net (float[n, 4] x, float[p, 4] seen, seq(float[m, 4]) s) => (float[t, 4] kept, float[k, 4] y)
        { kept = Concat<axis=0>(seen, x)  y = ConcatFromSequence<axis=0>(s) }"""
    net, memory, x = fo.load_onnx(parse_model(HEAD + text)), some(9, 4), some(1, 4)
    for s in [some(2, 4), some(1, 4)], [memory[2:4]]:
        expected = np.concatenate([memory[:3], x]), np.concatenate(s)
        for a, b in zip(net(x, memory[:3], s, out=(memory[:4], None)), expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_results_of_unknown_shapes_beside_a_cache():
    """The network is segmented: caches are copied, and no session is asked for them again."""
    text = """net (float[n, 4] x, float[p, 4] seen) => (float[t, 4] kept, int64[2, k] where)
        { kept = Concat<axis=0>(seen, x)  where = NonZero(x)  }"""
    proto = parse_model(HEAD + text)
    net, memory, x = fo.load_onnx(proto), np.zeros((9, 4), np.float32), np.eye(1, 4, dtype=np.float32)
    for n in range(4):
        kept, where = net(x, memory[:n], out=(memory[: n + 1], None))
        truth = onnx_text.expected(proto, {"x": x, "seen": memory[:n]})
        assert np.array_equal(kept, truth[0]) and np.array_equal(where, truth[1])
    assert not net._session._lent._caches


def test_a_call_with_other_memory_makes_no_session(net):
    given = some(1, 2, 1, 4), some(1, 2, 3, 4), some(1, 2, 1, 4), np.int64([1])
    y = np.empty((1, 2, 4, 4), np.float32)
    assert net(*given, out=(y, None, None))[0] is y and not lends(net)


@pytest.mark.parametrize("few", [0, 16])
def test_overlaps_of_many_arrays(few, monkeypatch):
    """Pairs are asked whose bounds meet, whatever lies between them."""
    monkeypatch.setattr(destinations, "ALL_PAIRS", few)
    names = "abcde"
    text = f"net (float[n, 2] x) => ({', '.join(f'float[n, 2] {v}' for v in names)}) {{ "
    net = fo.load_onnx(parse_model(HEAD + text + " ".join(f"{v} = Neg(x)" for v in names) + " }"))
    memory, x = np.zeros((30, 6), np.float32), some(5, 2)
    columns = [memory[:5, 2 * i : 2 * i + 2] for i in range(3)]
    flipped, separate = memory[5:10, 2:0:-1], np.empty((5, 2), np.float32)
    for y in net(x, out=(*columns, flipped, separate)):
        np.testing.assert_array_equal(y, -x)
    for other in flipped, memory[4:9, 4:], memory[4:9][::-1, 4:], columns[2]:
        for arrays in (other, separate, *columns), (*columns, other, separate), (separate, *columns[::-1], other):
            if other is flipped:
                net(x, out=arrays)
                continue
            with pytest.raises(ValueError, match="two arrays of out overlap"):
                net(x, out=arrays)
