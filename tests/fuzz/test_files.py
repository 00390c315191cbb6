"""Damaged files: a model that loads (and then runs, or says why not), or a ValueError; never a crash, never anything executed."""
import functools
import io
import os
import tempfile

import numpy as np
import pytest
from hypothesis import strategies as st

import fusedops as fo
from fuzzing import fuzz

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
LARGEST = 1 << 22


@functools.cache
def files():
    """A small network with most kinds of nodes, as ONNX and as a saved model."""
    make, rng = onnx.helper, np.random.default_rng(0)
    constants = {"w": rng.random((4, 3, 3, 3)), "b": rng.random(4), "v": 1 + rng.random(4), "w2": rng.random((5, 64)), "f": rng.random((5, 6))}
    nodes = [
        make.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), make.make_node("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"]),
        make.make_node("Relu", ["n"], ["r"]), make.make_node("Add", ["r", "c"], ["s"]),
        make.make_node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        make.make_node("Transpose", ["p"], ["t"], perm=[0, 2, 3, 1]), make.make_node("Flatten", ["t"], ["l"]),
        make.make_node("Gemm", ["l", "w2"], ["g"], transB=1), make.make_node("Softmax", ["g"], ["m"], axis=-1), make.make_node("MatMul", ["m", "f"], ["y"]),
    ]
    x, y = (make.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", [1, 3, 8, 8]), ("y", [1, 6])))
    graph = make.make_graph(nodes, "net", [x], [y], [onnx.numpy_helper.from_array(v.astype(np.float32), k) for k, v in constants.items()])
    data = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8).SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net")
        fo.load_onnx(data).save(path)
        with open(path, "rb") as f:
            return data, f.read()


@st.composite
def mutations(draw, which):
    """The file with bytes changed, dropped, repeated or cut off, and for a saved model also its header or an array replaced."""
    data = bytearray(files()[which])
    for _ in range(draw(st.integers(1, 6))):
        at, n = draw(st.integers(0, len(data))), draw(st.sampled_from([1, 1, 1, 4, 30]))
        kind = draw(st.sampled_from(["set", "set", "set", "flip", "drop", "repeat", "cut"]))
        if kind == "set":
            data[at: at + n] = draw(st.binary(min_size=n, max_size=n))
        elif kind == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "drop":
            del data[at: at + n]
        elif kind == "repeat":
            data[at:at] = data[at: at + n]
        elif kind == "cut":
            del data[at:]
    return bytes(data)


def run(model):
    """Calls a loaded model; of those that a changed byte made enormous, nothing is asked."""
    shapes = [v.shape for v in model.inputs]
    if any(s is None or not all(isinstance(d, int) for d in s) or np.prod(s, dtype=object) > LARGEST for s in shapes):
        return
    try:
        model(*(np.zeros(s, v.dtype) for s, v in zip(shapes, model.inputs)))
    except (TypeError, ValueError, MemoryError) as error:
        assert str(error) or isinstance(error, MemoryError)


def check(load):
    try:
        model = load()
    except ValueError as error:
        assert str(error)
    else:
        run(model)


@fuzz(mutations(0))
def test_onnx(data):
    check(lambda: fo.load_onnx(data))


@fuzz(mutations(1))
def test_saved(data):
    check(lambda: load_saved(data))


def load_saved(data):
    with tempfile.NamedTemporaryFile() as f:
        f.write(data)
        f.flush()
        return fo.load(f.name)


@st.composite
def headers(draw):
    """The saved model's header with one of its JSON values replaced, in an intact archive: damage that no checksum finds."""
    import json
    with np.load(io.BytesIO(files()[1])) as archive:
        arrays = dict(archive)
    header = json.loads(bytes(arrays.pop("header")))
    for _ in range(draw(st.integers(1, 2))):
        at = header
        while True:
            key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if not isinstance(at[key], (dict, list)) or not at[key] or draw(st.integers(0, 4)) == 0:
                break
            at = at[key]
        at[key] = draw(st.sampled_from([None, 0, -1, 2**31, 2**63, 1.5, "", "x", [], {}, {"array": 0}, {"array": -1}, [1, 1], True]))
        if not isinstance(header, dict):
            break
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    out = io.BytesIO()
    np.savez(out, header=text, **arrays)
    return out.getvalue()


@fuzz(headers())
def test_saved_header(data):
    check(lambda: load_saved(data))
