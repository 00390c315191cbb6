"""Whose fault an error is: what a network lacks is a ValueError that names the node, and a fault of this library shows
as it is, and makes no network damaged or slow."""

import numpy as np
import pytest

import fusedops as fo
from fusedops.graph.inference.evaluate import evaluate
from fusedops.graph.inference.shape_inference import infer_node
from fusedops.graph.ir.errors import BadNode, NoSymbolic
from fusedops.graph.ir.graph import Attributes, Graph, Node, Value, constant
from fusedops.graph.ir.symbolic import ShapeEnv, as_dim
from fusedops.graph.operators.registry import OPERATORS, check_inputs
from fusedops.graph.runtime.session import Session

FLOAT = np.dtype(np.float32)
X = np.ones((2, 3), np.float32)
FAULTS = [AttributeError, KeyError, TypeError]


def softmax():
    nodes = [Node("Softmax", "s", ["x"], ["y"], {"axis": -1, "to_end": False})]
    return Graph(nodes, {}, [Value("x", ("n", 3), FLOAT)], [Value("y", None, FLOAT)], ["y"], 18)


def faulty(error):
    def raises(*_, **__):
        raise error("a fault of this library")

    return raises


@pytest.mark.parametrize("error", FAULTS)
@pytest.mark.parametrize("where", ["shape", "dtype", "lower"])
@pytest.mark.parametrize("calls", [1, 2])
def test_a_fault_of_planning_shows(where, calls, error, monkeypatch):
    """Also in the second size, whose plan has open sizes."""
    session, record = Session(softmax()), OPERATORS["Softmax"]
    for n in range(1, calls):
        session.run((X[:n],))
    if where == "lower":
        record = record._replace(kernel=record.kernel._replace(lower=faulty(error)))
    else:
        record = record._replace(inference=record.inference._replace(**{where: faulty(error)}))
    monkeypatch.setitem(OPERATORS, "Softmax", record)
    with pytest.raises(error, match="a fault of this library"):
        session.run((X,))


@pytest.mark.parametrize("error", FAULTS)
def test_a_fault_of_evaluation_shows(error, monkeypatch):
    monkeypatch.setitem(OPERATORS, "Softmax", OPERATORS["Softmax"]._replace(evaluate=faulty(error)))
    with pytest.raises(error, match="a fault of this library"):
        evaluate(softmax().nodes[0], [X])


@pytest.mark.parametrize("error", FAULTS)
def test_a_fault_of_reading_shows(error, monkeypatch):
    pytest.importorskip("onnx")
    from onnx.parser import parse_model

    record = OPERATORS["Softmax"]
    record = record._replace(inference=record.inference._replace(dtype=faulty(error)))
    monkeypatch.setitem(OPERATORS, "Softmax", record)
    text = '<ir_version: 8, opset_import: ["" : 17]> net (float[n, 3] x) => (float[n, 3] y) { y = Softmax(x) }'
    with pytest.raises(error, match="a fault of this library"):
        fo.load_onnx(parse_model(text))


@pytest.mark.parametrize(
    "op, inputs",
    [
        ("Softmax", []),
        ("Softmax", [""]),
        ("Softmax", ["x", "x"]),
        ("Add", ["x"]),
        ("Add", ["x", ""]),
        ("Where", ["x", "x"]),
        ("com.microsoft.GroupQueryAttention", ["", "", "", "x", "x", "x", "x"]),
    ],
)
def test_inputs_that_a_node_lacks(op, inputs):
    node = Node(op, "node", inputs, ["y"])
    with pytest.raises(BadNode, match="of the [1-7] inputs that it needs"):
        check_inputs(node)
    with pytest.raises(BadNode):
        infer_node(node, [constant(X) if v else None for v in inputs])


def test_inputs_that_may_be_left_out():
    check_inputs(Node("com.microsoft.GroupQueryAttention", "", ["x", "", "", "x", "x", "x", "x"], ["y"]))
    check_inputs(Node("Clip", "", ["x", "", "x"], ["y"]))
    check_inputs(Node("Concat", "", ["x"] * 9, ["y"]))


def test_attributes_of_another_kind():
    a = Attributes(axis="x", epsilon=1, mode=3, pads=2, perm=[1, 0])
    assert a.get("epsilon", 1e-5) == 1 and a.get("perm", ()) == [1, 0] and a.get("axes", (1,)) == (1,)
    for name, default in {"axis": 0, "mode": "constant", "pads": ()}.items():
        assert a.get(name) == a[name]
        with pytest.raises(BadNode, match=f"its attribute '{name}' is"):
            a.get(name, default)
    with pytest.raises(BadNode, match="it has no attribute 'alpha'"):
        a["alpha"]


@pytest.mark.parametrize("n", [1.5, "3", None, np.float32(2), [2]], ids=repr)
def test_what_is_no_size(n):
    with pytest.raises(BadNode, match="is not a size"):
        as_dim(n)


@pytest.mark.parametrize("compute", [lambda n: n**2, lambda n: 2 << n, lambda n: ~n, lambda n: n.bit_length()])
def test_what_open_sizes_do_not_have(compute):
    (n,) = ShapeEnv((3,)).given
    with pytest.raises(NoSymbolic):
        compute(n)
    with pytest.raises(NoSymbolic):
        evaluate(Node("Sqrt", "", ["x"], ["y"]), [np.array([n], object)])


def test_sequences_are_no_arrays():
    with pytest.raises(BadNode, match="takes arrays, not a sequence"):
        evaluate(Node("Softmax", "", ["x"], ["y"]), [[X]])


# ---- readers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", FAULTS)
def test_a_fault_of_reading_tflite_shows(error, monkeypatch):
    pytest.importorskip("tflite")
    from fusedops.graph.frontends.tflite.builtins import BUILTINS
    from tflite_models import Tensor, single

    monkeypatch.setitem(BUILTINS, "SOFTMAX", BUILTINS["SOFTMAX"]._replace(read=faulty(error)))
    with pytest.raises(error, match="a fault of this library"):
        fo.load_tflite(single("SOFTMAX", [Tensor((2, 3))], [Tensor((2, 3))], ("SoftmaxOptions", dict(Beta=1.0))))


def test_what_an_operator_of_tflite_lacks():
    """Inputs, options, and options of another operator."""
    pytest.importorskip("tflite")
    from tflite_models import Tensor, single

    x, options = Tensor((1, 4, 4, 2)), ("Conv2DOptions", dict(StrideH=1, StrideW=1))
    for kind, inputs, given, message in (
        ("ADD", [x], None, "it has no tensor 1 among 1"),
        ("CONV_2D", [x, None], options, "it has no tensor 1 among 2"),
        ("MAX_POOL_2D", [x], options, "its options are Conv2DOptions, which have no"),
    ):
        with pytest.raises(ValueError, match=f"{kind} .* lacks or misuses an input or option: {message}"):
            fo.load_tflite(single(kind, inputs, [x], given))


@pytest.mark.parametrize("broken, error", [("OPERATORS", TypeError), ("activations", AttributeError)])
def test_a_fault_of_reading_saved_networks_shows(broken, error, monkeypatch, tmp_path):
    from fusedops.graph.frontends import native

    x = [Value("x", ("n", 3), FLOAT)]
    graph = Graph([Node("Exp", "e", ["x"], ["y"])], {}, x, [Value("y", None, FLOAT)], ["y"], 18)
    native.save(tmp_path / "net.fo", graph, [])
    assert fo.load(tmp_path / "net.fo")(X).shape == X.shape
    monkeypatch.setattr(native, broken, None)
    with pytest.raises(error, match="NoneType"):
        fo.load(tmp_path / "net.fo")


def test_what_a_saved_network_lacks(tmp_path):
    import json

    from fusedops.graph.frontends import native

    x = [Value("x", ("n", 3), FLOAT)]
    graph = Graph([Node("Exp", "e", ["x"], ["y"])], {}, x, [Value("y", None, FLOAT)], ["y"], 18)
    native.save(tmp_path / "net.fo", graph, [])
    with np.load(tmp_path / "net.fo") as archive:
        header = json.loads(bytes(archive["header"]))
    for change, message in (
        ({"nodes": 5}, "5 stands where a list must"),
        ({"nodes": [1]}, "stands where tables must"),
        ({"constants": []}, "stands where 'constants' must"),
        ({"report": [["Fusion", [1]]]}, "a Fusion of its report has 1 fields"),
        ({"seed": "x"}, "seed is an int"),
        ({"inputs": [{"name": "x", "shape": 3, "dtype": "<f4"}]}, "3 stands where a list must"),
        ({"inputs": [{"name": "x", "shape": None, "dtype": "what"}]}, "an array has dtype 'what'"),
        ({"inputs": [{"name": "x", "dtype": "<f4"}]}, "it has no 'shape'"),
    ):
        text = np.frombuffer(json.dumps(header | change).encode(), np.uint8)
        with open(tmp_path / "other.fo", "wb") as f:
            np.savez(f, header=text)
        with pytest.raises(ValueError, match=f"or a damaged one: .*{message}"):
            fo.load(tmp_path / "other.fo")


@pytest.mark.parametrize("error", FAULTS)
def test_a_fault_of_reading_torch_shows(error, monkeypatch):
    torch = pytest.importorskip("torch")
    from fusedops.graph.frontends.torch import aten

    monkeypatch.setitem(aten.READERS, "softmax", lambda p, x, dim, dtype=None: faulty(error)())
    with pytest.raises(error, match="a fault of this library"):
        fo.from_torch(torch.nn.Softmax(-1), (torch.ones(2, 3),))


def test_open_sizes_are_no_numbers():
    pytest.importorskip("torch")
    from fusedops.graph.frontends.torch.fx_values import FxSize, FxValue, OpenSize, Unsupported

    for n in (OpenSize("s0"), FxSize("size", None), FxValue("x")):
        for compute in (
            int,
            float,
            abs,
            lambda n: n * 2,
            lambda n: 2 * n,
            lambda n: n < 3,
            lambda n: n + 1,
            lambda n: n // 2,
        ):
            with pytest.raises(Unsupported, match="an open size"):
                compute(n)
    assert FxValue("x") + ".y" == "x.y" and sorted([FxValue("b"), FxValue("a")]) == ["a", "b"]
