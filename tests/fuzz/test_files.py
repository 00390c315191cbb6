"""Damaged files: a model that loads (and then runs, or says why not), or a documented exception; never a crash, never
anything executed."""

import copy
import functools
import io
import json
import os
import tempfile

import numpy as np
import pytest
from hypothesis import strategies as st

import fusedops as fo
from fuzzing import fuzz

pytestmark = pytest.mark.thorough

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
LARGEST = 1 << 22


def small():
    """Constants, nodes and the shapes of input and output of a network whose batch is fixed."""
    rng, make = np.random.default_rng(0), onnx.helper.make_node
    constants = {
        "w": rng.random((4, 3, 3, 3)),
        "b": rng.random(4),
        "v": 1 + rng.random(4),
        "w2": rng.random((5, 64)),
        "f": rng.random((5, 6)),
    }
    nodes = [
        make("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        make("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"]),
        make("Relu", ["n"], ["r"]),
        make("Add", ["r", "c"], ["s"]),
        make("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        make("Transpose", ["p"], ["t"], perm=[0, 2, 3, 1]),
        make("Flatten", ["t"], ["l"]),
        make("Gemm", ["l", "w2"], ["g"], transB=1),
        make("Softmax", ["g"], ["m"], axis=-1),
        make("MatMul", ["m", "f"], ["y"]),
    ]
    return constants, nodes, [1, 3, 8, 8], [1, 6]


def large():
    """The same of a network with most other kinds of nodes, whose batch is free."""
    rng, make = np.random.default_rng(1), onnx.helper.make_node
    shapes = {
        "w": (3, 2, 3, 3),
        "s": (4,),
        "slopes": (4, 1, 1),
        "dw": (4, 1, 3, 3),
        "pw": (6, 4, 1, 1),
        "k0": (1, 3, 9),
        "ln": (9,),
        "k": (1, 20, 9),
        "r": (1, 20, 5),
    }
    constants = {name: rng.random(shape) for name, shape in shapes.items()} | {
        "lo": np.float64(-1),
        "scales": np.array([1, 1, 2, 0.5]),
    }
    integers = {
        "pads": [0, 0, 1, 0, 0, 0, 0, 1],
        "zero": [0],
        "one": [1],
        "two": [2],
        "last": [-1],
        "parts": [2, 2],
        "like": [1, 3, 9],
        "i": [0, 5, -1],
    }
    nodes = [
        make("ConvTranspose", ["x", "w"], ["u"], strides=[2, 2], pads=[1, 1, 0, 0]),
        make("AveragePool", ["u"], ["a"], kernel_shape=[3, 3], strides=[2, 2]),
        make("LRN", ["a"], ["l"], size=3),
        make("Resize", ["l", "", "scales"], ["z"], mode="linear"),
        make("Concat", ["z", "z"], ["c"], axis=1),
        make("Pad", ["c", "pads"], ["d"]),
        make("InstanceNormalization", ["d", "s", "s"], ["n"]),
        make("PRelu", ["n", "slopes"], ["p"]),
        make("Conv", ["p", "dw"], ["e"], group=4, auto_pad="SAME_UPPER"),
        make("Clip", ["e", "lo"], ["f"]),
        make("Conv", ["f", "pw"], ["g"]),
        make("Split", ["f", "parts"], ["f1", "f2"], axis=1),
        make("Mul", ["f1", "f2"], ["m"]),
        make("GlobalAveragePool", ["m"], ["q"]),
        make("ReduceMean", ["g", "one"], ["h"], keepdims=1),
        make("Slice", ["h", "zero", "last", "two"], ["o"]),
        make("Add", ["o", "q"], ["t"]),
        make("Flatten", ["t"], ["t1"]),
        make("Gather", ["t1", "i"], ["t2"], axis=1),
        make("Unsqueeze", ["t2", "one"], ["t3"]),
        make("Expand", ["k0", "like"], ["k1"]),
        make("MatMul", ["t3", "k1"], ["t4"]),
        make("LayerNormalization", ["t4", "ln"], ["t5"]),
        make("LSTM", ["t5", "k", "r"], ["t6"], hidden_size=5),
        make("Squeeze", ["t6", "one"], ["y"]),
    ]
    return constants | {name: np.array(v) for name, v in integers.items()}, nodes, ["n", 3, 8, 8], ["n", 1, 5]


def loops():
    """The same of a network with branches, loops and sequences, whose numbers of rounds a changed byte makes huge."""
    text = """<ir_version: 8, opset_import: ["" : 18]> net (float[2, 3] x) => (float[k, 3] y)
    <float[3] w = {1, 2, 3}, int64 n = {4}, bool t = {1}, int64 zero = {0}, float half = {0.5}> {
        last, rows = Loop (n, t, x) <body = b (int64 i, bool c, float[2, 3] v)
        => (bool go, float[2, 3] next, float[2, 3] row) {
            a = Add(v, w)  f = Cast<to = 1>(i)  row = Mul(a, f)  next = Relu(row)  go = Identity(c) }>
        most = ReduceMax<keepdims = 0>(last)  big = Greater(most, half)
        h = If (big) <then_branch = p () => (float[2, 3] p0) { p0 = Sub(last, w) },
                      else_branch = q () => (float[m, 3] q0) { q0 = Concat<axis = 0>(x, x) }>
        s = SplitToSequence<axis = 0>(h)  e = SequenceAt(s, zero)  s2 = SequenceInsert(s, e)
        j = ConcatFromSequence<axis = 0>(s2)
        u, z = Scan <num_scan_inputs = 1, body = d (float[3] a0, float[3] b0) => (float[3] c0, float[3] d0) {
            c0 = Add(a0, b0)  d0 = Neg(c0) }> (w, j)
        y = Add(z, u)
    }"""
    return onnx.parser.parse_model(text)


@functools.cache
def files(network):
    """A network as ONNX and as a saved model."""
    if network is loops:
        return saved_too(loops().SerializeToString())
    make, (constants, nodes, x, y) = onnx.helper, network()
    x, y = (make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (("x", x), ("y", y)))
    constants = [
        onnx.numpy_helper.from_array(v if v.dtype == np.int64 else v.astype(np.float32), k)
        for k, v in constants.items()
    ]
    graph = make.make_graph(nodes, "net", [x], [y], constants)
    return saved_too(
        make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=8).SerializeToString()
    )


def saved_too(data):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net")
        fo.load_onnx(data).save(path)
        with open(path, "rb") as f:
            return data, f.read()


NETWORKS = st.sampled_from([small, large, loops])


@st.composite
def mutations(draw, which):
    """The file with bytes changed, dropped, repeated or cut off, and for a saved model also its header or an array
    replaced."""
    data = bytearray(files(draw(NETWORKS))[which])
    for _ in range(draw(st.integers(1, 6))):
        at, n = draw(st.integers(0, len(data))), draw(st.sampled_from([1, 1, 1, 4, 30]))
        kind = draw(st.sampled_from(["set", "set", "set", "flip", "drop", "repeat", "cut"]))
        if kind == "set":
            data[at : at + n] = draw(st.binary(min_size=n, max_size=n))
        elif kind == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "drop":
            del data[at : at + n]
        elif kind == "repeat":
            data[at:at] = data[at : at + n]
        elif kind == "cut":
            del data[at:]
    return bytes(data)


def run(model):
    """Calls a loaded model; of those that a changed byte made enormous, nothing is asked."""
    shapes = [[d if isinstance(d, int) else 2 for d in v.shape or ()] for v in model.inputs]
    if any(np.prod(s, dtype=object) > LARGEST for s in shapes):
        return
    try:
        model(*(np.zeros(s, v.dtype) for s, v in zip(shapes, model.inputs)))
    except (TypeError, ValueError, MemoryError) as error:
        assert str(error) or isinstance(error, MemoryError)


def check(load):
    try:
        model = load()
    except (ValueError, MemoryError) as error:
        assert str(error) or isinstance(error, MemoryError)
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


VALUES = [
    None,
    True,
    0,
    1,
    -1,
    3,
    2**31 - 1,
    2**31,
    2**63,
    1.5,
    1e300,
    "",
    "x",
    "Add",
    "Softmax",
    "Conv",
    "|O",
    ">f4",
    "<f8",
    [],
    [1, 1],
    {},
    {"array": 0},
    {"array": 3},
    {"array": -1},
]


@st.composite
def headers(draw):
    """The saved model's header with one of its JSON values replaced, in an intact archive: damage that no checksum
    finds."""
    with np.load(io.BytesIO(files(draw(NETWORKS))[1])) as archive:
        arrays = dict(archive)
    header = json.loads(bytes(arrays.pop("header")))
    for _ in range(draw(st.integers(1, 2))):
        at = header
        while True:
            key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if not isinstance(at[key], (dict, list)) or not at[key] or draw(st.integers(0, 4)) == 0:
                break
            at = at[key]
        at[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        if not isinstance(header, dict):
            break
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    out = io.BytesIO()
    np.savez(out, header=text, **arrays)
    return out.getvalue()


@fuzz(headers())
def test_saved_header(data):
    check(lambda: load_saved(data))
