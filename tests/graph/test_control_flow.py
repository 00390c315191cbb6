"""If, Loop and Scan, against ONNX Runtime and by hand: fused and unfused, saved and loaded, from several threads."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model

import fusedops as fo
from fusedops.graph.ir import subgraph
from fusedops.graph.runtime import segments
from onnx_text import FALSE, HEAD, RNG, TRUE, X, check

# ---- If

IF = """
net (float[3, 4] x, bool c) => (float[3, 4] y) {
    s = Mul(x, x)
    b = If (c) <then_branch = a () => (float[3, 4] p) { q = Add(s, x)  p = Relu(q) },
                else_branch = b () => (float[3, 4] r) { r = Sub(s, x) }>
    y = Neg(b)
}"""


def test_if_of_an_input(tmp_path):
    model = check(IF, {"x": X, "c": TRUE}, {"x": X, "c": FALSE}, tmp_path=tmp_path)
    assert np.array_equal(model(X, TRUE), -np.maximum(X * X + X, 0))
    assert not any(step.kind == "numpy" for step in model._plan(X, TRUE)[0].steps), (
        "the branch has kernels of the network's own"
    )


@pytest.mark.parametrize("taken", [True, False])
def test_if_of_a_constant(taken, tmp_path):
    proto = parse_model(HEAD + IF)
    del proto.graph.input[1]
    proto.graph.initializer.append(numpy_helper.from_array(np.array(taken), "c"))
    model = check(proto, {"x": X}, tmp_path=tmp_path)
    assert all(node.op != "If" for node in model._graph.nodes)


def test_if_of_a_shape():
    """A condition that follows from shapes is known for each plan; branches give results of other shapes."""
    model = check(
        """
    net (float[n, m] x) => (float[k] y) {
        shape = Shape(x)  zero = Constant<value_ints = [0]>()  three = Constant<value_ints = [3]>()
        n = Gather(shape, zero)  c = Equal(n, three)
        b = If (c) <then_branch = a () => (float[i, j] p) { p = Relu(x) },
                    else_branch = b () => (float[i, j] r) { r = Transpose(x) }>
        minus = Constant<value_ints = [-1]>()
        y = Reshape(b, minus)
    }""",
        {"x": X},
        {"x": X[:2]},
        {"x": X},
    )
    assert np.array_equal(model(X), np.maximum(X, 0).ravel())


COMPUTED = """
net (float[n, 4] x) => (float[k, 4] y) {
    zero = Constant<value_float = 0.0>()
    s = ReduceSum<keepdims = 0>(x)  c = Greater(s, zero)
    b = If (c) <then_branch = a () => (float[i, 4] p) { h = Mul(x, x)  p = Relu(h) },
                else_branch = b () => (float[i, 4] r) { ELSE }>
    y = Add(b, b)
}"""


@pytest.mark.parametrize("other", ["r = Sub(zero, x)", "r = Concat<axis = 0>(x, x)", "r = Identity(x)"])
def test_if_of_a_value(other, tmp_path):
    """A condition that only a call knows: with branches of one shape, and of two."""
    model = check(
        COMPUTED.replace("ELSE", other), {"x": np.abs(X)}, {"x": -np.abs(X)}, {"x": np.abs(X[:1])}, tmp_path=tmp_path
    )
    assert any("condition is known only when" in r.reason for r in model.explain().refusals)
    assert isinstance(model._plan(X)[0], segments.Segment) == ("Concat" in other)


def test_plans_of_a_branch_are_kept():
    model = fo.load_onnx(parse_model(HEAD + COMPUTED.replace("ELSE", "r = Sub(zero, x)")))
    model(np.abs(X)), model(-np.abs(X))
    branches = list(model._session.subgraphs.sessions.values())
    before = [list(b._plans) for b in branches]
    for _ in range(5):
        model(RNG.standard_normal((3, 4), np.float32)), model(np.abs(X)), model(-np.abs(X))
    assert [list(b._plans) for b in branches] == before and all(len(b) == 1 for b in before)


def test_if_inside_if():
    check(
        """
    net (float[3, 4] x, bool c, bool d) => (float[3, 4] y) {
        one = Constant<value_float = 1.0>()
        y = If (c) <
            then_branch = a () => (float[3, 4] p) {
                h = Add(x, one)
                p = If (d) <then_branch = e () => (float[3, 4] q) { q = Mul(h, x) },
                            else_branch = f () => (float[3, 4] s) { s = Neg(h) }>
            },
            else_branch = b () => (float[3, 4] r) { r = Identity(x) }>
    }""",
        *({"x": X, "c": c, "d": d} for c in (TRUE, FALSE) for d in (TRUE, FALSE)),
    )


def test_branches_with_convolutions_are_fused():
    w = RNG.standard_normal((5, 2, 3, 3), np.float32)
    x = RNG.standard_normal((1, 2, 6, 6), np.float32)
    proto = parse_model(
        HEAD
        + """
    net (float[1, 2, 6, 6] x) => (float[1, 5, 6, 6] y) {
        zero = Constant<value_float = 0.0>()
        s = ReduceMax<keepdims = 0>(x)  c = Greater(s, zero)
        y = If (c) <then_branch = a () => (float[1, 5, 6, 6] p) { h = Conv<pads = [1, 1, 1, 1]>(x, w)  p = Relu(h) },
                    else_branch = b () => (float[1, 5, 6, 6] r) { g = Conv<pads = [1, 1, 1, 1]>(x, w)  r = Sigmoid(g) }>
    }"""
    )
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    model = check(proto, {"x": x}, {"x": -np.abs(x)})
    fused = model.explain().fusions
    assert {f.into.split("/")[0].split(".")[-1] for f in fused} == {"then_branch", "else_branch"}
    with ThreadPoolExecutor(4) as pool:
        for y in pool.map(lambda i: model(x if i % 2 else -np.abs(x)), range(64)):
            assert y.shape == (1, 5, 6, 6)


def test_a_condition_of_many_elements():
    proto = parse_model(HEAD + IF.replace("bool c", "bool[2] c"))
    with pytest.raises(ValueError, match="condition has shape"):
        fo.load_onnx(proto)(X, np.array([True, False]))


# ---- Loop

SUM = """
net (TRIPS float[2] x) => (float[2] last, float[n, 2] all) {
    CONSTANT
    last, all = Loop (COUNT, FLAG, x) <body = b (int64 i, bool c, float[2] v)
    => (bool go, float[2] next, float[2] row) {
        f = Cast<to = 1>(i)  one = Constant<value_float = 1.0>()  f1 = Add(f, one)
        row = Mul(v, f1)  next = Add(v, row)  go = GO
    }>
}"""


def loop(trips="int64 n,", constant="", count="n", flag="", go="Identity(c)"):
    text = (
        SUM.replace("TRIPS", trips)
        .replace("CONSTANT", constant)
        .replace("COUNT", count)
        .replace("FLAG", flag)
        .replace("GO", go)
    )
    return text.replace("last, all = Loop (, ,", "last, all = Loop ( , ,")


def by_hand(x, rounds):
    rows = []
    for i in range(rounds):
        rows.append(x * np.float32(i + 1))
        x = x + rows[-1]
    return x, np.stack(rows) if rows else np.empty((0, 2), np.float32)


def test_loop_of_a_count(tmp_path):
    x = np.float32([1, -2])
    model = check(
        loop(flag="t", constant="t = Constant<value = bool {1}>()"),
        *({"n": np.array(n), "x": x} for n in (3, 1, 0, 5, -2)),
        tmp_path=tmp_path,
    )
    for n in (0, 1, 4):
        last, rows = model(np.array(n), x)
        np.testing.assert_allclose(last, by_hand(x, n)[0], rtol=1e-6)
        np.testing.assert_allclose(rows, by_hand(x, n)[1], rtol=1e-6)


def test_loop_of_a_constant_count():
    model = check(
        loop(trips="", constant="n = Constant<value_int = 4>()  t = Constant<value = bool {1}>()", flag="t"),
        {"x": np.float32([1, 2])},
    )
    assert not isinstance(model._plan(np.float32([1, 2]))[0], segments.Segment), "its shapes are known"


def test_loop_until_a_value():
    go = "Less(m, big)  m = ReduceMax<keepdims = 0>(next)  big = Constant<value_float = 50.0>()"
    nodes = loop(
        trips="",
        count="n",
        flag="t",
        constant="n = Constant<value_int = 1000>()  t = Constant<value = bool {1}>()",
        go=go,
    )
    nodes = nodes.replace(
        "go = Less(m, big)  m = ReduceMax<keepdims = 0>(next)  big = Constant<value_float = 50.0>()",
        "m = ReduceMax<keepdims = 0>(next)  big = Constant<value_float = 50.0>()  go = Less(m, big)",
    )
    model = check(nodes, {"x": np.float32([1, 2])}, {"x": np.float32([0.1, 2])}, {"x": np.float32([100, 2])})
    assert model(np.float32([1, 2]))[1].shape == (4, 2)


def test_loop_that_grows():
    """A carried value whose shape differs from round to round, and what is computed with it after the loop."""
    check(
        """
    net (int64 n, float[1, 2] x) => (float[k, 2] y, float s) {
        t = Constant<value = bool {1}>()
        last = Loop (n, t, x) <body = b (int64 i, bool c, float[m, 2] v) => (bool go, float[k, 2] next) {
            w = Neg(v)  next = Concat<axis = 0>(v, w)  go = Identity(c)
        }>
        h = Add(last, last)  y = Relu(h)  s = ReduceSum<keepdims = 0>(h)
    }""",
        *({"n": np.array(n), "x": np.float32([[1, -2]])} for n in (0, 1, 3)),
    )


@pytest.mark.parametrize("declared", ["[3]", "[w]", ""])
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("rest, expected", [("y = Identity(r)", (0, 3)), ("y = Concat<axis = 0>(r, x)", (4, 3))])
def test_the_rows_of_no_round(declared, flag, rest, expected):
    """Their shape is that of a round's, which the body need not say."""
    text = """
    net (float[4, 3] x, int64 n, bool c) => (float[k, m] y) {
        r = Loop (n, c) <body = b (int64 i, bool go) => (bool on, float[w] o) {
            row = Gather<axis = 0>(x, i)  o = Mul(row, row)  on = Identity(go)
        }>
        REST
    }"""
    proto = parse_model(HEAD + text.replace("REST", rest))
    shape = proto.graph.node[0].attribute[0].g.output[1].type.tensor_type
    shape.ClearField("shape")
    if declared:
        shape.shape.dim.add(**({"dim_value": 3} if declared == "[3]" else {"dim_param": "w"}))
    x, n = RNG.standard_normal((4, 3), np.float32), np.array(0 if flag else 5)
    for options in {}, {"fuse": False}, {"fold": False, "fuse": False}:
        y = fo.load_onnx(proto, **options).run({"x": x, "n": n, "c": np.array(flag)})["y"]
        assert y.shape == expected
        np.testing.assert_array_equal(y, x[: len(y)])


def test_a_body_is_planned_once():
    proto = parse_model(HEAD + loop(flag="t", constant="t = Constant<value = bool {1}>()"))
    model = fo.load_onnx(proto)
    model(np.array(30), np.float32([1, 1]))
    (body,) = model._session.subgraphs.sessions.values()
    assert len(body._plans) == 1


def test_a_body_that_slices_by_its_counter():
    """Shapes that depend on the counter: the body is planned for the shapes that come out, not for each round."""
    model = check(
        """
    net (float[6, 3] x) => (float[n, 1, 3] y) {
        n = Constant<value_int = 6>()  t = Constant<value = bool {1}>()
        y = Loop (n, t) <body = b (int64 i, bool c) => (bool go, float[1, 3] row) {
            z = Constant<value_ints = [0]>()  o = Constant<value_ints = [1]>()
            a = Unsqueeze(i, z)  e = Add(a, o)  p = Slice(x, a, e, z)  q = Mul(p, p)  row = Relu(q)  go = Identity(c)
        }>
    }""",
        {"x": RNG.standard_normal((6, 3), np.float32)},
    )
    (body,) = model._session.subgraphs.sessions.values()
    assert len(body._plans) == 1


def test_loops_inside_loops(tmp_path):
    check(
        """
    net (float[2, 3] x, int64 n) => (float[2, 3] y) {
        t = Constant<value = bool {1}>()
        y = Loop (n, t, x) <body = a (int64 i, bool c, float[2, 3] v) => (bool go, float[2, 3] next) {
            go = Identity(c)
            next = Loop (i, c, v) <body = b (int64 j, bool d, float[2, 3] w) => (bool on, float[2, 3] more) {
                k = Add(i, j)  f = Cast<to = 1>(k)  h = Add(w, f)  more = Add(h, x)  on = Identity(d)
            }>
        }>
    }""",
        {"x": X[:2, :3], "n": np.array(4)},
        {"x": X[:2, :3], "n": np.array(1)},
        tmp_path=tmp_path,
    )


# ---- limits


def test_a_loop_without_an_end(monkeypatch):
    endless = parse_model(HEAD + loop(trips="", count="", flag=""))
    with pytest.raises(ValueError, match="would run for ever"):
        fo.load_onnx(endless)(np.float32([1, 1]))
    monkeypatch.setattr(subgraph, "MAX_ITERATIONS", 20)
    counted = parse_model(HEAD + loop(flag="t", constant="t = Constant<value = bool {1}>()"))
    with contextlib.suppress(MemoryError), pytest.raises(ValueError, match="memory|run for ever|rounds"):
        fo.load_onnx(counted)(np.array(2**63 - 1), np.float32([1, 1]))
    text = """
    net (float[2] x) => (float[2] y) {
        y = Loop ( , t, x) <body = b (int64 i, bool c, float[2] v) => (bool go, float[2] next) {
            next = Abs(v)  m = ReduceMax<keepdims = 0>(v)  big = Constant<value_float = 5.0>()  go = Less(m, big)
        }>
    }"""
    proto = parse_model(HEAD + text)
    proto.graph.initializer.append(numpy_helper.from_array(TRUE, "t"))
    with pytest.raises(ValueError, match="ran 20 rounds without an end"):
        fo.load_onnx(proto)(np.float32([1, 1]))
    assert np.array_equal(fo.load_onnx(proto)(np.float32([9, 1])), [9, 1])


@pytest.mark.parametrize("change", ["body", "count", "results", "branches", "none"])
def test_damaged_graphs(change):
    proto = parse_model(
        HEAD + (IF if change in ("branches", "none") else loop(flag="t", constant="t = Constant<value = bool {1}>()"))
    )
    node = next(n for n in proto.graph.node if n.op_type in ("If", "Loop"))
    if change == "body":
        del node.attribute[0].g.input[2]
    elif change == "count":
        node.input.append("x")
    elif change == "results":
        del node.attribute[0].g.output[1:]
    elif change == "branches":
        del node.attribute[0].g.output[:]
    else:
        del node.attribute[1]
    with pytest.raises(ValueError, match="damaged|does not fit|results"):
        fo.load_onnx(proto)


# ---- Scan


def scan_model(**attributes):
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["s1"]), helper.make_node("Mul", ["s1", "w"], ["o"])],
        "body",
        [info("s", TensorProto.FLOAT, [4]), info("e", TensorProto.FLOAT, [4])],
        [info("s1", TensorProto.FLOAT, [4]), info("o", TensorProto.FLOAT, [4])],
    )
    node = helper.make_node("Scan", ["init", "x"], ["last", "all"], body=body, num_scan_inputs=1, **attributes)
    graph = helper.make_graph(
        [node],
        "net",
        [
            info("init", TensorProto.FLOAT, [4]),
            info("x", TensorProto.FLOAT, ["n", 4] if not attributes.get("scan_input_axes") else [4, "n"]),
        ],
        [info("last", TensorProto.FLOAT, [4]), info("all", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32([1, 2, 3, 4]), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_directions": [1]},
        {"scan_output_directions": [1]},
        {"scan_output_axes": [1]},
        {"scan_input_axes": [1]},
        {"scan_input_axes": [-1], "scan_output_axes": [-1], "scan_input_directions": [1]},
    ],
)
def test_scan(attributes, tmp_path):
    init = np.float32([1, 0, -1, 2])
    x = X.T.copy() if attributes.get("scan_input_axes") else X
    model = check(scan_model(**attributes), {"init": init, "x": x}, tmp_path=tmp_path)
    if not attributes:
        np.testing.assert_allclose(model(init, X)[1], (init + np.cumsum(X, 0)) * np.float32([1, 2, 3, 4]), rtol=1e-5)
        last, rows = model(init, X[:0])
        assert np.array_equal(last, init) and rows.shape == (0, 4)


@pytest.mark.parametrize("lengths", [None, [2, 3]])
@pytest.mark.parametrize("back", [0, 1])
def test_scan_of_a_batch(lengths, back):
    """Scan of opset 8."""
    info = helper.make_tensor_value_info
    four = [info(name, TensorProto.FLOAT, [4]) for name in ("s", "e", "s1", "o")]
    nodes = [helper.make_node("Add", ["s", "e"], ["s1"]), helper.make_node("Mul", ["s1", "s1"], ["o"])]
    body = helper.make_graph(nodes, "body", four[:2], four[2:])
    node = helper.make_node(
        "Scan",
        ["lengths" if lengths else "", "init", "x"],
        ["last", "all"],
        body=body,
        num_scan_inputs=1,
        directions=[back],
    )
    inputs = [info("init", TensorProto.FLOAT, [2, 4]), info("x", TensorProto.FLOAT, [2, 3, 4])]
    outputs = [info("last", TensorProto.FLOAT, [2, 4]), info("all", TensorProto.FLOAT, [2, 3, 4])]
    weights = [numpy_helper.from_array(np.array(lengths, np.int64), "lengths")] if lengths else []
    graph = helper.make_graph([node], "net", inputs, outputs, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=8)
    check(proto, {"init": RNG.standard_normal((2, 4), np.float32), "x": RNG.standard_normal((2, 3, 4), np.float32)})


# ---- many rounds


def test_rows_of_many_rounds(monkeypatch):
    """Rows are kept in blocks that grow; together they may not be more than the machine holds."""
    text = """
    net (int64 n, float[2] x) => (float[2] last, float[k, 2] rows, int64[k] places) {
        t = Constant<value = bool {1}>()
        last, rows, places = Loop (n, t, x) <body = b (int64 i, bool c, float[2] v)
        => (bool go, float[2] next, float[2] row, int64 place) {
            w = Constant<value_floats = [0.5, 0.25]>()  row = Add(v, w)  next = Identity(row)  place = Identity(i)
            go = Identity(c)
        }>
    }"""
    x = np.float32([1, 2])
    model = check(text, *({"n": np.array(n), "x": x} for n in (1, 15, 16, 17, 100)))
    last, rows, places = model(np.array(9000), x)
    expected = x + np.arange(1, 9001, dtype=np.float32)[:, None] * np.float32([0.5, 0.25])
    assert np.array_equal(rows, expected) and np.array_equal(last, expected[-1])
    assert np.array_equal(places, np.arange(9000))
    assert np.array_equal(x, [1, 2])
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(y[1], expected[:50]) for y in pool.map(lambda _: model(np.array(50), x), range(32)))
    monkeypatch.setattr("fusedops.graph.steps.tensor.physical_memory", lambda: 10000)
    with pytest.raises((MemoryError, ValueError), match="memory|this machine has"):
        fo.load_onnx(
            parse_model(
                HEAD
                + text.replace("t = Const", "go0 = Greater(n, n)  t0 = Not(go0)  u = Const").replace(
                    "(n, t, x)", "(n, t0, x)"
                )
            )
        )(np.array(5000), x)


def test_scan_over_numbers():
    """Elements of the scanned input that have no axis left."""
    info = helper.make_tensor_value_info
    scalars = [info(name, TensorProto.FLOAT, []) for name in ("s", "e", "s1", "o")]
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["s1"]), helper.make_node("Neg", ["s1"], ["o"])],
        "body",
        scalars[:2],
        scalars[2:],
    )
    node = helper.make_node("Scan", ["init", "x"], ["last", "all"], body=body, num_scan_inputs=1)
    graph = helper.make_graph(
        [node],
        "net",
        [info("init", TensorProto.FLOAT, []), info("x", TensorProto.FLOAT, ["n"])],
        [info("last", TensorProto.FLOAT, []), info("all", TensorProto.FLOAT, ["n"])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    check(proto, {"init": np.array(1, np.float32), "x": RNG.standard_normal(5, np.float32)})


UNCHANGED = """
net (float[1, 4] x, float[4, 4] u, int64 n)
=> (float[1, 4] y, float[4, 4] w_last, float[4, 4] u_last, float[k, 1, 4] rows)
    <float[4, 4] w = {1, 0, 0, 2, 0, 1, 0, 0, 0, 0, 1, 0, 3, 0, 0, 1}> {
    a, w_out, u_last, rows = Loop (n, , x, w, u) <body = b
        (int64 i, bool c, float[1, 4] h, float[4, 4] w_in, float[4, 4] u_in)
        => (bool go, float[1, 4] next, float[4, 4] w_next, float[4, 4] u_next, float[1, 4] row) {
            p = MatMul(h, w_in)  q = MatMul(p, u_in)  next = Tanh(q)  row = Neg(p)
            w_same = Identity(w_in)  w_next = Identity(w_same)  u_next = Identity(u_in)  go = Identity(c) }>
    y = Add(a, a)  w_last = Abs(w_out) }"""


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_loop_that_hands_on_what_it_takes(rounds, tmp_path):
    """Values that no round changes are taken from outside: of constant ones its products are packed once."""
    u = RNG.standard_normal((4, 4)).astype(np.float32)
    model = check(UNCHANGED, {"x": X[:1], "u": u, "n": np.array(rounds)}, tmp_path=tmp_path)
    (loop,) = [n for n in model._graph.nodes if n.op == "Loop"]
    body = loop.attrs["body"]
    assert len(body.results) == 3 and len(loop.outputs) == 2 and body.captures == 1
    assert sorted(n.op for n in body.nodes if n.op in ("Linear", "MatMul")) == ["Linear", "MatMul"]


def test_a_scan_that_hands_on_what_it_takes(tmp_path):
    model = check("""
    net (float[3, 4] x) => (float[4] last, float[4, 4] w_last, float[3, 1, 4] rows)
        <float[4] zero = {0, 0, 0, 0}, float[4, 4] w = {1, 0, 0, 2, 0, 1, 0, 0, 0, 0, 1, 0, 3, 0, 0, 1}> {
        w_last, last, rows = Scan <num_scan_inputs = 1, body = b (float[4, 4] w_in, float[4] s, float[4] v)
            => (float[4, 4] w_next, float[4] s_next, float[1, 4] row) {
                first = Constant<value_ints = [0]>()  a = Unsqueeze(v, first)
                row = MatMul(a, w_in)  s_next = Add(s, v)  w_next = Identity(w_in) }> (w, zero, x) }""",
        {"x": X}, tmp_path=tmp_path)  # fmt: skip
    (scan,) = [n for n in model._graph.nodes if n.op == "Scan"]
    assert len(scan.attrs["body"].results) == 2 and "Linear" in {n.op for n in scan.attrs["body"].nodes}


ONCE = """
net (float[1, 4] x) => (float[1, 4] y, float[k, 1, 4] rows, float[1, 4] z)
    <int64 one = {1}, int64 zero = {0}, bool t = {1}, int64 n = {COUNT}> {
    t_last, a, rows = Loop (TRIPS, FLAG, zero, x) <body = b (int64 i, bool c, int64 at, float[1, 4] h)
        => (bool go, int64 next_at, float[1, 4] next, float[1, 4] row) {
            f = Cast<to = 1>(i)  p = Add(h, f)  next = Tanh(p)  row = Neg(x)
            next_at = Add(at, one)  go = GO }>
    y = Add(a, a)  z = Abs(a) }"""


@pytest.mark.parametrize("trips, flag, count, go, once", [
    ("one", "", 5, "Identity(c)", True), ("one", "t", 5, "Identity(c)", True), ("", "t", 1, "Less(next_at, n)", True),
    ("n", "t", 9, "Less(next_at, one)", True), ("", "t", 2, "Less(next_at, n)", False),
    ("n", "t", 2, "Identity(c)", False), ("zero", "", 1, "Identity(c)", False),
])  # fmt: skip
def test_a_loop_of_one_round(trips, flag, count, go, once, tmp_path):
    """A body that runs once, whatever a call gives, takes the place of its loop."""
    text = ONCE
    for name, value in {"TRIPS": trips, "FLAG": flag, "COUNT": count, "GO": go}.items():
        text = text.replace(name, str(value))
    model = check(text, {"x": X[:1]}, tmp_path=tmp_path)
    assert ("Loop" not in {n.op for n in model._graph.nodes}) == once
