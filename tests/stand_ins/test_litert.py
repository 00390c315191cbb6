"""The interface of LiteRT's interpreter: each test runs with fusedops.litert, and with LiteRT itself where that is
installed, so that what is tested is what it does."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tflite")
import fusedops as fo
import tflite_models as tm

F = np.float32
W = np.arange(6, dtype=F).reshape(2, 3)
X = np.float32([[1, 2, 3], [-1, -2, -3]])


@pytest.fixture(params=["fusedops.litert", "ai_edge_litert.interpreter"])
def lite(request):
    return pytest.importorskip(request.param)


def dense(signature=(-1, 3), signatures=((0, {"image": 0}, {"scores": 3}),)):
    tensors = [
        tm.Tensor((1, 3), name="x:0", signature=signature),
        tm.constant(W, name="w"),
        tm.Tensor((1, 2), name="h", signature=(-1, 2)),
        tm.Tensor((1, 2), name="y:0", signature=(-1, 2)),
    ]
    ops = [tm.Op("FULLY_CONNECTED", [0, 1, -1], [2], ("FullyConnectedOptions", {})), tm.Op("RELU", [2], [3])]
    return tm.write(tm.Graph(tensors, ops, [0], [3]), signatures=signatures)


def quantized():
    x, y = (tm.Tensor((1, 3), np.int8, None, 0.5, 3, name=name) for name in "xy")
    return tm.single("RELU", [x], [y])


def two_signatures():
    def graph(kind):
        return tm.Graph([tm.Tensor((2,), name="a"), tm.Tensor((2,), name="b")], [tm.Op(kind, [0], [1])], [0], [1])

    names = {"a": 0}, {"b": 1}
    return tm.write(graph("RELU"), graph("NEG"), signatures=[(0, *names, "clip"), (1, *names, "turn")])


@pytest.fixture
def interpreter(lite):
    made = lite.Interpreter(model_content=dense())
    made.allocate_tensors()
    return made


def plain(details):
    return {k: v.tolist() if isinstance(v, np.ndarray) else plain(v) if isinstance(v, dict) else v
            for k, v in details.items()}  # fmt: skip


# ---- what there is


def test_details(interpreter):
    (x,), (y,) = interpreter.get_input_details(), interpreter.get_output_details()
    assert plain(x) == {
        "name": "x:0",
        "index": 0,
        "shape": [1, 3],
        "shape_signature": [-1, 3],
        "dtype": np.float32,
        "quantization": (0.0, 0),
        "quantization_parameters": {"scales": [], "zero_points": [], "quantized_dimension": 0, "block_size": 0},
        "sparsity_parameters": {},
    }
    assert (y["name"], y["index"], y["shape"].tolist()) == ("y:0", 3, [1, 2])
    assert x["shape"].dtype == x["shape_signature"].dtype == np.int32
    assert [t["name"] for t in interpreter.get_tensor_details()] == ["x:0", "w", "h", "y:0"]
    assert interpreter.num_subgraphs() == 1
    with pytest.raises(ValueError, match="subgraph_index is out of range: 1"):
        interpreter.get_tensor_details(1)


def test_scales(lite):
    interpreter = lite.Interpreter(model_content=quantized())
    (x,) = interpreter.get_input_details()
    assert x["dtype"] == np.int8 and x["quantization"] == (0.5, 3)
    parameters = x["quantization_parameters"]
    assert parameters["scales"].tolist() == [0.5] and parameters["zero_points"].tolist() == [3]
    assert parameters["scales"].dtype == np.float32 and parameters["zero_points"].dtype == np.int32
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.int8([[-9, 3, 9]]))
    interpreter.invoke()
    assert interpreter.get_tensor(1).tolist() == [[3, 3, 9]] and interpreter.get_tensor(1).dtype == np.int8


def test_a_scale_for_each_channel(lite):
    w = tm.constant(np.int8([[1, 2], [3, 4]]), scale=[0.5, 0.25], zero=[0, 0], axis=0, name="w")
    tensors = [
        tm.Tensor((1, 2), np.int8, None, 1.0, 0, name="x"),
        w,
        tm.Tensor((1, 2), np.int8, None, 1.0, 0, name="y"),
    ]
    op = tm.Op("FULLY_CONNECTED", [0, 1, -1], [2], ("FullyConnectedOptions", {}))
    interpreter = lite.Interpreter(model_content=tm.write(tm.Graph(tensors, [op], [0], [2])))
    found = interpreter.get_tensor_details()[1]
    assert found["quantization"] == (0.0, 0) and found["quantization_parameters"]["scales"].tolist() == [0.5, 0.25]


# ---- calls


def test_a_call(interpreter):
    interpreter.set_tensor(0, X[:1])
    interpreter.invoke()
    y = interpreter.get_tensor(3)
    assert np.array_equal(y, np.maximum(X[:1] @ W.T, 0))
    y[:] = 7  # a copy
    assert not np.array_equal(interpreter.get_tensor(3), y)
    assert np.array_equal(interpreter.get_tensor(1), W) and np.array_equal(interpreter.get_tensor(0), X[:1])


def test_arrays_are_written_in_place(interpreter):
    x, y = interpreter.tensor(0), interpreter.tensor(3)
    for n in (1, 2):
        x()[:] = n * X[:1]
        interpreter.invoke()
        assert np.array_equal(y(), n * np.maximum(X[:1] @ W.T, 0))


def test_before_tensors_are_allocated(lite):
    interpreter = lite.Interpreter(model_content=dense())
    with pytest.raises(ValueError, match="allocate_tensors"):
        interpreter.set_tensor(0, X[:1])
    with pytest.raises(ValueError, match="allocate_tensors"):
        interpreter.get_tensor(3)
    with pytest.raises(RuntimeError, match="not ready"):
        interpreter.invoke()


@pytest.mark.parametrize(
    ("i", "value", "words"),
    [
        (0, X[:1].astype(float), "Got value of type FLOAT64 but expected type FLOAT32 for input 0, name: x:0"),
        (0, [[1, 2, 3]], "Got value of type INT64 but expected type FLOAT32"),
        (0, X, r"Dimension mismatch\. Got .*2.* but expected .*1.* input 0"),
        (0, X[0], r"Dimension mismatch\. Got .*1|3.* but expected .*2|3.* input 0"),
        (9, X[:1], "Invalid tensor index 9 exceeds max tensor index 4"),
        (-1, X[:1], "Invalid tensor index -1 exceeds max tensor index 4"),
    ],
)
def test_wrong_values(interpreter, i, value, words):
    with pytest.raises(ValueError, match=words):
        interpreter.set_tensor(i, value)


def test_wrong_tensors(interpreter):
    with pytest.raises(ValueError, match="Invalid tensor index 77 exceeds max tensor index 4"):
        interpreter.get_tensor(77)
    with pytest.raises(ValueError, match="Tensor data is null"):
        interpreter.get_tensor(2)  # between two operations that are one


# ---- sizes


@pytest.mark.parametrize("signature", [(-1, 3), (1, 3)])
def test_another_size(lite, signature):
    """Of an axis that is open, and of one that the file fixes."""
    interpreter = lite.Interpreter(model_content=dense(signature))
    interpreter.allocate_tensors()
    for rows in (2, 5, 1):
        interpreter.resize_tensor_input(0, [rows, 3])
        assert interpreter.get_input_details()[0]["shape"].tolist() == [rows, 3]
        interpreter.allocate_tensors()
        assert interpreter.get_output_details()[0]["shape"].tolist() == [rows, 2]
        assert interpreter.get_output_details()[0]["shape_signature"].tolist() == [-1, 2]
        x = np.resize(X, (rows, 3))
        interpreter.set_tensor(0, x)
        interpreter.invoke()
        assert np.array_equal(interpreter.get_tensor(3), np.maximum(x @ W.T, 0))


def test_a_call_needs_the_new_size(interpreter):
    interpreter.resize_tensor_input(0, [2, 3])
    with pytest.raises(RuntimeError, match="not ready"):
        interpreter.invoke()


def test_sizes_that_cannot_be(interpreter):
    with pytest.raises(RuntimeError):
        interpreter.resize_tensor_input(0, [2, 5], strict=True)
    interpreter.resize_tensor_input(0, [2, 5])
    with pytest.raises((RuntimeError, ValueError)):
        interpreter.allocate_tensors()


def test_images_of_another_size(lite):
    """What follows a convolution gets its size from there, whatever the file says."""
    w, b = np.ones((4, 3, 3, 2), F), np.zeros(4, F)
    tensors = [
        tm.Tensor((1, 8, 8, 2), name="x"),
        tm.constant(w),
        tm.constant(b),
        tm.Tensor((1, 8, 8, 4), name="h"),
        tm.constant(np.int32([1, 2])),
        tm.Tensor((1, 4), name="y"),
    ]
    options = ("Conv2DOptions", {"StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1})
    ops = [tm.Op("CONV_2D", [0, 1, 2], [3], options), tm.Op("MEAN", [3, 4], [5], ("ReducerOptions", {}))]
    interpreter = lite.Interpreter(model_content=tm.write(tm.Graph(tensors, ops, [0], [5])))
    interpreter.resize_tensor_input(0, [2, 12, 6, 2])
    interpreter.allocate_tensors()
    assert interpreter.get_output_details()[0]["shape"].tolist() == [2, 4]
    interpreter.set_tensor(0, np.ones((2, 12, 6, 2), F))
    interpreter.invoke()
    inner, edge, corner = 10 * 4 * 18, 2 * (10 + 4) * 12, 4 * 8
    np.testing.assert_allclose(interpreter.get_tensor(5), np.full((2, 4), (inner + edge + corner) / 72), rtol=1e-6)


# ---- signatures


def test_a_signature(lite):
    interpreter = lite.Interpreter(model_content=dense())
    assert interpreter.get_signature_list() == {"serving_default": {"inputs": ["image"], "outputs": ["scores"]}}
    runner = interpreter.get_signature_runner()
    for x in (X[:1], X):
        found = runner(image=x)
        assert list(found) == ["scores"] and np.array_equal(found["scores"], np.maximum(x @ W.T, 0))
    assert list(runner.get_input_details()) == ["image"] and runner.get_output_details()["scores"]["index"] == 3
    for wrong, words in (({}, "expected 1 vs provided 0"), ({"x": X}, r"Invalid Input name \(x\)"),
                         ({"image": X.astype(float)}, "FLOAT64")):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            runner(**wrong)


def test_several_signatures(lite):
    interpreter = lite.Interpreter(model_content=two_signatures())
    assert list(interpreter.get_signature_list()) == ["clip", "turn"] and interpreter.num_subgraphs() == 2
    a = np.float32([-1, 2])
    assert interpreter.get_signature_runner("clip")(a=a)["b"].tolist() == [0, 2]
    assert interpreter.get_signature_runner("turn")(a=a)["b"].tolist() == [1, -2]
    with pytest.raises(ValueError, match="model has 2 Signatures"):
        interpreter.get_signature_runner()
    with pytest.raises(ValueError, match='Invalid signature_key provided: "other"'):
        interpreter.get_signature_runner("other")


def test_no_signature(lite):
    interpreter = lite.Interpreter(model_content=quantized())
    assert interpreter.get_signature_list() == {}
    with pytest.raises(ValueError, match="model has 0 Signatures"):
        interpreter.get_signature_runner()


# ---- loading


def test_sources(lite, tmp_path):
    (tmp_path / "net.tflite").write_bytes(dense())
    for path in (tmp_path / "net.tflite", str(tmp_path / "net.tflite")):
        interpreter = lite.Interpreter(path, num_threads=1)
        interpreter.allocate_tensors()
        assert interpreter.get_input_details()[0]["name"] == "x:0"
    for given, words in (
        ({}, "must be specified"),
        ({"model_path": "net", "model_content": b"net"}, "both provide"),
        ({"model_path": str(tmp_path / "none.tflite")}, "Could not open"),
        ({"model_content": b"no model, whatever it may be"}, "not a"),
        ({"model_content": dense()[:200]}, "not a"),
        ({"model_content": dense(), "num_threads": 0}, "num_threads should >= 1"),
        ({"model_content": dense(), "num_threads": 1.5}, "type of num_threads should be int"),
    ):
        with pytest.raises(ValueError, match=words):
            lite.Interpreter(**given)


# ---- what fusedops does differently


@pytest.fixture
def ours():
    import fusedops.litert

    return fusedops.litert


def test_what_is_not_there_is_told(ours, caplog):
    with pytest.raises(ValueError, match="Failed to load delegate from libedgetpu"):
        ours.load_delegate("libedgetpu.so.1")
    with pytest.raises(ValueError, match="takes no delegates"):
        ours.Interpreter(model_content=dense(), experimental_delegates=[object()])
    with pytest.raises(TypeError, match="no argument 'threads'"):
        ours.Interpreter(model_content=dense(), threads=3)
    with pytest.raises(ValueError, match="Unrecognized"):
        ours.Interpreter(model_content=dense(), experimental_op_resolver_type=1)
    with pytest.warns(UserWarning, match="keeps no tensors between operations"):
        ours.Interpreter(model_content=dense(), experimental_preserve_all_tensors=True)
    with caplog.at_level("INFO", "fusedops.litert"):
        ours.Interpreter(model_content=dense(), experimental_op_resolver_type=ours.OpResolverType.BUILTIN_REF)
    assert "BUILTIN_REF has no counterpart" in caplog.text
    interpreter = ours.Interpreter(model_content=dense())
    interpreter.allocate_tensors()
    with pytest.raises(ValueError, match="call invoke"):
        interpreter.get_tensor(3)
    with pytest.raises(ValueError, match="is not an input"):
        interpreter.set_tensor(3, np.zeros((1, 2), F))
    with pytest.raises(ValueError, match="has 2 axes"):
        interpreter.resize_tensor_input(0, [3])


def test_threads(ours):
    assert ours.Interpreter(model_content=dense(), num_threads=1)._model.num_threads == 1


def test_models_of_other_sizes_are_few(ours):
    interpreter = ours.Interpreter(model_content=dense((1, 3)))
    first = interpreter._model
    for rows in range(2, 12):
        interpreter.resize_tensor_input(0, [rows, 3])
        interpreter.allocate_tensors()
        interpreter.invoke()
        assert interpreter.get_tensor(3).shape == (rows, 2)
    assert len(interpreter._models) < 7 and first in interpreter._models.values()


def test_a_signature_of_load_tflite():
    assert fo.load_tflite(two_signatures(), signature="turn")(np.float32([1, 2])).tolist() == [-1, -2]
    with pytest.raises(fo.InvalidArgument, match="no signature 'other': its signatures are clip, turn"):
        fo.load_tflite(two_signatures(), signature="other")


PROGRAM = """
import importlib.util, sys
import fusedops.litert
{before}
fusedops.litert.install()
from ai_edge_litert.interpreter import Interpreter as A, load_delegate
from tflite_runtime.interpreter import Interpreter as B
import tflite_runtime.interpreter as runtime
assert A is B is runtime.Interpreter is fusedops.litert.Interpreter
import tensorflow as tf
{after}
"""


def test_imports_get_it(tmp_path):
    (tmp_path / "tensorflow.py").write_text("lite = 'its own'")
    for before, after in (
        ("", "assert tf.lite.Interpreter is A and tf.lite.experimental.load_delegate is load_delegate"),
        (f"sys.path.insert(0, {str(tmp_path)!r})", "assert tf.lite == 'its own'"),
    ):
        if before or __import__("importlib").util.find_spec("tensorflow") is None:
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM.format(before=before, after=after)], capture_output=True
            )
            assert done.returncode == 0, done.stderr.decode()


def test_an_operator_that_wants_fixed_sizes(ours, monkeypatch):
    """Gets those of the file, as LiteRT begins with them."""
    load = fo.graph.load_tflite

    def refusing(data, **options):
        model = load(data, **options)
        if None in model.inputs[0].shape:
            raise fo.UnsupportedOperator("it wants fixed sizes")
        return model

    monkeypatch.setattr(fo, "load_tflite", refusing)
    interpreter = ours.Interpreter(model_content=dense())
    for rows in (1, 2):
        interpreter.resize_tensor_input(0, [rows, 3])
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, X[:rows])
        interpreter.invoke()
        assert np.array_equal(interpreter.get_tensor(3), np.maximum(X[:rows] @ W.T, 0))
    assert interpreter.get_input_details()[0]["shape_signature"].tolist() == [-1, 3]
    monkeypatch.setattr(fo, "load_tflite", lambda data, **options: load(b"TFL3" + data, **options))
    with pytest.raises(fo.DamagedFile):
        ours.Interpreter(model_content=dense())
