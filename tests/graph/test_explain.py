"""What ``explain()`` says beside fusions and refusals: operators beside names, what NumPy computes, activations that
were left alone; and tables that fit a terminal."""

import pickle

import numpy as np
import pytest

import fusedops as fo

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper
from onnx.parser import parse_model

from fusedops.graph.ir.explanation import Fusion, Refusal, table


def network(text, weights=None, **options):
    proto = parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}')
    proto.graph.initializer.extend([numpy_helper.from_array(a, name) for name, a in (weights or {}).items()])
    return fo.load_onnx(proto, **options)


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A terminal in which every reason fits a line."""
    monkeypatch.setenv("COLUMNS", "250")


BOXES = "(float[1, 6, 4] b, float[1, 1, 6] s) => (int64[n, 3] y) { y = NonMaxSuppression(b, s) }"
MIXED = """(float[n, 6] x) => (float[n, 6] y, double[n, 6] z) {
    r = Relu(x)  s = Sin(r)  t = Sigmoid(s)  h = Add(t, t)  y = Tanh(h)  d = Cast<to = 11>(y)  z = Relu(d)
}"""


# ---- what NumPy computes


def test_a_network_that_numpy_computes():
    """In stages, for its shape depends on values."""
    told = network(BOXES).explain()
    (node,) = told.numpy
    assert node.operator == "NonMaxSuppression" and "depends on values" in node.reason and node.share is None
    assert "1 node computed by NumPy" in str(told) and node.reason in str(told)


def test_nodes_between_kernels():
    told = network(MIXED).explain()
    assert [n.operator for n in told.numpy] == ["Sin", "relu"]
    assert "float64" in told.numpy[1].reason
    assert "2 nodes computed by NumPy" in str(told)


@pytest.mark.parametrize(
    "text, operators",
    [
        ("(float[n, 6] x) => (float[n, 6] y) { h = Mul(x, x) y = Softmax(h) }", []),
        ("(float[n, 6] x) => (int64[2] y) { y = Shape(x) }", []),  # known as soon as shapes are
        ("(double[n, 6] x) => (double[n, 6] y) { y = Softmax(x) }", ["Softmax"]),
        ("(float[n, m] x) => (float[n, m] y, int64[2, k] i) { y = Relu(x) i = NonZero(x) }", ["NonZero"]),
        # after a stage: what never has a kernel
        (
            "(float[n] x) => (float[k] y) { i = NonZero(x) t = Transpose(i) g = GatherND(x, t) y = Sin(g) }",
            ["NonZero", "Sin"],
        ),
        # values decide on shapes, and no plan is made without them
        ("(float[n, 6] x, int64[2] s) => (float[a, b] y) { h = Sin(x) y = Reshape(h, s) }", ["Sin"]),
    ],
)
def test_what_numpy_computes(text, operators):
    assert [n.operator for n in network(text).explain().numpy] == operators


def test_the_steps_of_numpy_are_those_that_are_named():
    """Of plans; a node of an operator with kernels is named where its types have none."""
    model = network(MIXED)
    steps = [s.node.name for s in model._session.plan([(3, 6)])[0].steps if s.kind == "numpy"]
    assert [n.node for n in model.explain().numpy] == [n for n in steps if not n.startswith("output")]


def test_shares_of_the_time_are_known_after_a_profile():
    model = network(MIXED)
    assert {n.share for n in model.explain().numpy} == {None} and "%" not in str(model.explain())
    profile = model.profile(np.ones((40, 6), np.float32), repeat=2)
    told = model.explain()
    total = sum(layer.ms for layer in profile.layers)
    for node in told.numpy:
        (layer,) = [layer for layer in profile.layers if layer.name == node.node]
        assert node.share == pytest.approx(layer.ms / total) and f"{node.share:.1%}" in str(told)


# ---- activations


@pytest.mark.parametrize(
    "text, options, reasons",
    [
        ("(float[n, 6] x) => (float[n, 6] y) { y = Relu(x) }", {}, {"relu": "x is an input of the network"}),
        (
            "(float[n, 6] x) => (float[n, 6] y) { h = Sin(x) y = Tanh(h) }",
            {},
            {"tanh": "Sin Sin_0 apply no activation"},
        ),
        (
            "(float[n, 6] x) => (float[n, 6] y, float[n, 6] z) { h = Add(x, x) y = Tanh(h) z = Neg(h) }",
            {},
            {"tanh": "has 2 consumers"},
        ),
        ("(float[n, 6] x) => (float[n, 6] y) { h = Add(x, x) y = Relu(h) }", {}, {}),
        (
            "(float[n, 6] x) => (float[n, 6] y) { h = Add(x, x) y = Relu(h) }",
            dict(disabled_passes=("epilogue",)),
            {"relu": "switched off"},
        ),
        (
            "(float[n, 6] x) => (float[n, 6] y) { h = Add(x, x) y = Relu(h) }",
            dict(fuse=False),
            {"relu": "switched off"},
        ),
        (
            "(float[n, 6] x, float[6] w) => (float[n, 6] y) { h = Add(x, x) y = PRelu(h, w) }",
            {},
            {"PRelu": "slopes are not one constant"},
        ),
    ],
)
def test_every_activation_left_alone_has_a_reason(text, options, reasons):
    told = network(text, **options).explain()
    assert [a.operator for a in told.activations] == list(reasons)
    for activation, reason in zip(told.activations, reasons.values(), strict=True):
        assert reason in activation.reason and activation.reason in str(told)
    assert ("left alone" in str(told)) == bool(reasons)


def test_no_activation_is_missing():
    """As many as the plan runs as passes, or NumPy."""
    model = network(MIXED)
    alone = [a.node for a in model.explain().activations]
    assert alone == [n.name for n in model._graph.nodes if n.op == "Activation"] and len(alone) == 3


# ---- operators


@pytest.fixture
def convolution():
    w = {"w": np.ones((4, 3, 3, 3), np.float32), "b": np.ones(4, np.float32)}
    text = """(float[n, 3, 8, 8] x) => (float[n, 4, 6, 6] y, float[n, 4, 6, 6] z) {
        h = Conv(x, w, b)  r = Relu(h)  y = Sigmoid(r)  z = Add(r, r) }"""
    proto = parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}')
    proto.graph.initializer.extend([numpy_helper.from_array(a, name) for name, a in w.items()])
    for node, name in zip(proto.graph.node, ("stem", "first", "second", "sum"), strict=True):
        node.name = name
    return fo.load_onnx(proto)


def test_operators_stand_beside_names(convolution):
    told = convolution.explain()
    (fusion,) = told.fusions
    assert (fusion.operators, fusion.into_operator) == (("relu",), "Conv")
    assert {r.node: r.operator for r in told.refusals} == {"second": "sigmoid", "sum": "Add"}
    assert "relu first  into  Conv stem" in str(told) and "sigmoid second" in str(told)


def test_a_name_that_is_the_operator_is_not_doubled():
    shown = str(network("(float[n, 6] x) => (float[n, 6] y) { h = Add(x, x) y = Relu(h) }").explain())
    assert "Relu_1  into  Add_0" in shown


def by_node(told):
    """The rows of fusions by node."""
    _, section = str(told).split("The same fusions, by node\n")
    rows = section.split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.split("<-")] for row in rows]


def test_fusions_by_node():
    """A row for each convolution, and one for an attention that took in a product into which its scale had gone."""
    w = {name: np.ones((4, 4, 3, 3), np.float32) for name in ("v", "w")} | {"bn": np.ones(4, np.float32)}
    text = """(float[n, 4, 9, 9] x) => (float[n, 4, 5, 5] y) {
        h = Conv(x, v)  b = BatchNormalization(h, bn, bn, bn, bn)  r = Relu(b)  i = Conv(r, w)  y = Sigmoid(i) }"""
    rows = by_node(network(text, w).explain())
    assert rows == [["Conv_0", "BatchNormalization, relu"], ["Conv_3", "sigmoid"]]

    text = """(float[n, 3, 8] q, float[n, 8, 3] k, float[n, 3, 8] v) => (float[n, 3, 8] y) {
        s = Constant<value_float = 0.5>()  c = Mul(q, s)  t = MatMul(c, k)  p = Softmax<axis = -1>(t)
        m = MatMul(p, v)  a = Relu(m)  y = Relu(a) }"""
    rows = by_node(network(text).explain())
    assert rows[0][1].split(", ")[:3] == ["Mul", "MatMul", "Softmax"] and rows[0][0].endswith("MatMul_4")


def test_one_fusion_is_not_told_twice(convolution):
    assert "by node" not in str(convolution.explain())


def test_reports_are_saved_and_pickled(convolution, tmp_path):
    convolution.save(tmp_path / "net.fo")
    for other in fo.load(tmp_path / "net.fo"), pickle.loads(pickle.dumps(convolution)):
        assert other.explain() == convolution.explain() and str(other.explain()) == str(convolution.explain())


def test_reports_of_earlier_versions():
    """Have no operators."""
    told = fo.load_onnx(
        parse_model('<ir_version: 8, opset_import: ["" : 17]> net (float[n] x) => (float[n] y) { y = Neg(x) }')
    )
    told._report[:] = [Fusion("epilogue", ("a", "b"), "c", 0, 8), Refusal("bias", "d", "it is none")]
    shown = str(told.explain()).splitlines()
    assert "epilogue  a, b   into  c" in shown[2] and shown[-1] == "bias  d     it is none"
    told._report.insert(1, Fusion("epilogue", ("c", "e"), "f", 0, 8))
    assert by_node(told.explain()) == [["f", "a, b, c, e"]]
    told._report.insert(2, Fusion("epilogue", ("f",), "c", 0, 8))  # a circle, by names that come twice
    assert len(by_node(told.explain())) == 2


def test_as_dict(convolution):
    given = convolution.explain().as_dict()
    assert given["activations"][0]["operator"] == "sigmoid" and given["numpy"] == []


# ---- tables


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_table_fits_its_width_and_loses_nothing(width):
    reason = "the sums of its products, which are those of floats, are not scaled by the scales of its input"
    rows = [("epilogue", "/layer1/block2/conv3/Conv", reason), ("bias", "fc", "short"), ("x", "y" * 90, "z")]
    lines = table(("pass", "node", "because"), rows, width)
    assert max(map(len, lines)) <= width
    for row in rows:
        for cell in row:
            letters = "".join("".join(lines).split())
            assert all(word in letters for word in cell.split() if len(word) < 12)
    assert sum(line.count("y") for line in lines) >= 90
    assert (len(lines) == 4) == (width == 200)


def test_a_table_of_one_line_a_row_stays_as_it_is():
    assert table(("a", "n"), [("x", 1), ("long", 22)], 20) == ["a      n", "x      1", "long  22"]


def test_a_terminal_says_how_wide_tables_are(monkeypatch):
    told = network(BOXES).explain()
    (node,) = told.numpy
    for columns, whole in (("60", False), ("200", True)):
        monkeypatch.setenv("COLUMNS", columns)
        lines = str(told).splitlines()
        assert any(node.reason in line for line in lines) == whole
        assert max(map(len, lines[2:])) <= int(columns)
        words = " ".join(" ".join(lines).split())
        assert all(word in words for word in node.reason.split())
