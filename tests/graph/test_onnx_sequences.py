"""Sequences, against ONNX Runtime: resolved where their elements are known, else kept between stages."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx.parser import parse_model

import fusedops as fo
from fusedops.graph.runtime import segments
from onnx_text import FALSE, TRUE, X, check


def ops(model):
    return {node.op for node in model._graph.nodes}


@pytest.mark.parametrize(
    "sizes, keep",
    [
        ("s = Constant<value_int = 3>()", 1),
        ("s = Constant<value_ints = [1, 2]>()", 1),
        ("s = Constant<value_ints = [0, 3]>()", 1),
    ],
)
def test_split_and_take(sizes, keep, tmp_path):
    """What torch's chunk and split become, with shapes that are fixed: parts without a list."""
    axis = 1 if "value_int =" in sizes else 0
    model = check(
        f"""
    net (float[3, 4] x) => (float[n, m] y, float[k, l] z, int64 count) {{
        zero = Constant<value_int = 0>()  last = Constant<value_int = -1>()
        {sizes}  all = SplitToSequence<axis = {axis}>(x, s)
        a = SequenceAt(all, zero)  b = SequenceAt(all, last)  y = Relu(a)  z = Neg(b)  count = SequenceLength(all)
    }}""",
        {"x": X},
        tmp_path=tmp_path,
    )
    assert not any("Sequence" in op for op in ops(model)) and not isinstance(model._plan(X)[0], segments.Segment)


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("rows", ["3", "n"])
def test_split_into_rows(keep, rows):
    """With an open length the parts are as many as a call brings."""
    text = """
    net (float[ROWS, 4] x) => (float[k, m, 4] y, int64 count) {
        all = SplitToSequence<axis = 0, keepdims = KEEP>(x)
        y = ConcatFromSequence<axis = 0, new_axis = 1>(all)  count = SequenceLength(all)
    }"""
    text = text.replace("KEEP", str(keep)).replace("ROWS", rows)
    feeds = [{"x": X}] if rows == "3" else [{"x": X}, {"x": X[:2]}]
    check(text if keep else text.replace("float[k, m, 4] y", "float[k, 4] y"), *feeds)


def test_made_changed_and_joined(tmp_path):
    model = check(
        """
    net (float[3, 4] x) => (float[n, 4] y) {
        one = Constant<value_int = 1>()  minus = Constant<value_int = -1>()
        r = Relu(x)  s = Neg(x)
        a = SequenceConstruct(x, r, s)  b = SequenceErase(a, one)  c = SequenceInsert(b, r, minus)
        d = SequenceInsert(c, x)
        e = SequenceErase(d)
        y = ConcatFromSequence<axis = 0>(e)
    }""",
        {"x": X},
        tmp_path=tmp_path,
    )
    assert not any("Sequence" in op for op in ops(model))


def test_places_that_a_call_gives(tmp_path):
    model = check(
        """
    net (float[3, 4] x, int64 i) => (float[n, 4] y, seq(float) all) {
        r = Relu(x)  a = SequenceConstruct(x, r)  b = SequenceInsert(a, x, i)  c = SequenceAt(b, i)
        all = SequenceErase(b, i)
        y = Abs(c)
    }""",
        {"x": X, "i": np.array(1)},
        {"x": X, "i": np.array(-1)},
        tmp_path=tmp_path,
    )
    with pytest.raises(ValueError, match="index 9 is outside a sequence of 2"):
        model(X, np.array(9))


GROWS = """
net (float[3, 4] x, int64 n) => (float[m, 4] y) {
    t = Constant<value = bool {1}>()
    empty = SequenceEmpty()
    all = Loop (n, t, empty) <body = b (int64 i, bool c, seq(float) s) => (bool go, seq(float) next) {
        row = Gather(x, i)  z = Constant<value_ints = [0]>()  two = Unsqueeze(row, z)  h = Mul(two, two)
        next = SequenceInsert(s, h)  go = Identity(c)
    }>
    joined = ConcatFromSequence<axis = 0>(all)  y = Relu(joined)
}"""


def test_a_loop_that_collects(tmp_path):
    model = check(GROWS, {"x": X, "n": np.array(3)}, {"x": X, "n": np.array(1)}, tmp_path=tmp_path)
    with pytest.raises(ValueError, match="joins a sequence of nothing"):
        model(X, np.array(0))


def test_a_sequence_through_if():
    check(
        """
    net (float[3, 4] x, bool c) => (float[m, 4] y, int64 n) {
        zero = Constant<value_float = 0.0>()  s = ReduceSum<keepdims = 0>(x)  d = Greater(s, zero)
        a = SequenceConstruct(x, x)
        b = If (d) <then_branch = f () => (seq(float) p) { p = SequenceInsert(a, x) },
                    else_branch = g () => (seq(float) q) { q = Identity(a) }>
        y = ConcatFromSequence<axis = 0>(b)  n = SequenceLength(b)
    }""",
        {"x": X, "c": TRUE},
        {"x": np.abs(X), "c": TRUE},
        {"x": -np.abs(X), "c": FALSE},
    )


@pytest.mark.parametrize("more", [False, True])
def test_map(more):
    body = "b (float[n, 4] a, float[n, 4] e) => (float[n, 4] z) { k = Add(a, e)  z = Relu(k) }"
    check(
        f"""
    net (float[3, 4] x) => (float[m, 4] y) {{
        r = Neg(x)  a = SequenceConstruct(x, r)  o = {"SequenceConstruct(r, x)" if more else "Abs(x)"}
        s = SequenceMap (a, o) <body = {body}>
        y = ConcatFromSequence<axis = 0>(s)
    }}""",
        {"x": X},
    )


def test_a_sequence_as_an_input():
    model = fo.load_onnx(
        __import__("onnx").parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 17]>
    net (seq(float) s) => (float[m, 4] y) { j = ConcatFromSequence<axis = 0>(s)  y = Relu(j) }"""
        )
    )
    assert np.array_equal(model([X, -X]), np.maximum(np.concatenate([X, -X]), 0))
    with pytest.raises(TypeError, match="list of arrays"):
        model(3.0)


def test_a_sequence_is_a_list():
    net = fo.load_onnx(
        parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> g (seq(float[2]) s, int64 i) => (float[2] y) '
            "{ y = SequenceAt(s, i) }"
        )
    )
    x = [np.float32([1, 2]), np.float32([3, 4])]
    np.testing.assert_array_equal(net(x, np.int64(1)), [3, 4])
    objects = np.empty(2, object)
    objects[:] = x
    with pytest.raises(TypeError, match="s is a sequence: pass a list of arrays, not ndarray"):
        net(objects, np.int64(1))
