"""Damaged TFLite files: a model that loads (and then runs, or says why not), or a documented exception; never a crash
and never without an end."""

import numpy as np
import pytest
from hypothesis import strategies as st

pytest.importorskip("tflite")
from flatbuffers import flexbuffers

import fusedops as fo
from fuzzing import fuzz
from tflite_cases import CASES
from tflite_models import Graph, Op, Tensor, constant, single, write
from tflite_quantized import QUANTIZED

pytestmark = pytest.mark.thorough

LARGEST = 1 << 22
WORDS = [0, 1, -1, 2, 4, 127, 255, 65535, 2**31 - 1, -(2**31), 1 << 20, 1 << 28]


def subgraphs():
    """A loop, a branch and a variable."""
    number, flag, x, handle = Tensor((), np.int32), Tensor((), np.bool_), Tensor((3,)), Tensor((), "RESOURCE")
    one, three, start = (constant(np.array(n, np.int32)) for n in (1, 3, 0))
    var = Op("VAR_HANDLE", [], [6], ("VarHandleOptions", dict(SharedName="s")))
    ops = [
        Op("CALL_ONCE", [], [], ("CallOnceOptions", dict(InitSubgraphIndex=5))),
        var,
        Op("READ_VARIABLE", [6], [7]),
        Op("WHILE", [1, 0], [2, 3], ("WhileOptions", dict(CondSubgraphIndex=1, BodySubgraphIndex=2))),
        Op("IF", [4, 3, 7], [5], ("IfOptions", dict(ThenSubgraphIndex=3, ElseSubgraphIndex=4))),
        Op("ASSIGN_VARIABLE", [6, 5], []),
    ]
    main = Graph([x, start, number, x, flag, x, handle, x], ops, [0, 4], [5])
    condition = Graph([number, x, three, flag], [Op("LESS", [0, 2], [3])], [0, 1], [3])
    body = Graph([number, x, one, number, x], [Op("ADD", [0, 2], [3]), Op("TANH", [1], [4])], [0, 1], [3, 4])
    branches = [Graph([x, x, x], [Op(kind, [0, 1], [2])], [0, 1], [2]) for kind in ("ADD", "MUL")]
    init = Graph([handle, constant(np.ones(3, np.float32))], [var._replace(outputs=[0]),
                 Op("ASSIGN_VARIABLE", [0, 1], [])], [], [])  # fmt: skip
    return write(main, condition, body, *branches, init)


def recurrent():
    """An LSTM with a projection, whose states are variables, and a filter over the last values."""

    def random(*shape):
        return constant(np.random.default_rng(0).standard_normal(shape).astype(np.float32))

    weights = [random(3, 2) for _ in range(4)], [random(3, 4) for _ in range(4)], [random(3) for _ in range(4)]
    states = [Tensor((1, n), variable=True) for n in (4, 3)]
    inputs = [Tensor((1, 5, 2)), *weights[0], *weights[1], None, None, None, *weights[2], random(4, 3), None, *states]
    options = dict(FusedActivationFunction=4, CellClip=1.0)
    yield single("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [Tensor((1, 5, 4))],
                 ("UnidirectionalSequenceLSTMOptions", options))  # fmt: skip
    inputs = [Tensor((2, 3)), random(4, 3), random(4, 6), None, Tensor((2, 24), variable=True)]
    yield single("SVDF", inputs, [Tensor((2, 2))], ("SVDFOptions", dict(Rank=2)))


def landmarks():
    """MediaPipe's operators between landmarks and crops, and a function of int16 by its table."""
    options = dict(subset_idxs=[0, 3, 4], left_rotation_idx=1, right_rotation_idx=2, target_rotation_radians=0.5,
                   output_height=4, output_width=5, scale_x=1.5, scale_y=1.25)  # fmt: skip
    x, matrix, custom = Tensor((1, 5, 3)), Tensor((1, 4, 4)), bytes(flexbuffers.Dumps(options))
    yield single("Landmarks2TransformMatrix", [x], [matrix], None, custom)
    yield single("TransformLandmarks", [x, matrix], [x], None, b"")
    yield single("TransformTensorBilinear", [Tensor((1, 6, 7, 2)), matrix], [Tensor((1, 4, 5, 2))], None, custom)
    for kind in ("TANH", "SOFTMAX"):
        x, y = (Tensor((2, 9), np.int16, None, scale, 0) for scale in (2.0**-12, 2.0**-15))
        yield single(kind, [x], [y], *[("SoftmaxOptions", dict(Beta=1.0))] * (kind == "SOFTMAX"))


FILES = [subgraphs(), *recurrent(), *landmarks()] * 4 + [
    single(*case[1:4], *case[5:]) for case in (*CASES, *QUANTIZED[::4])
]


@st.composite
def mutations(draw):
    """A file with words or bytes changed, or cut off: words are what offsets, shapes, sizes and options are."""
    data = bytearray(draw(st.sampled_from(FILES)))
    for _ in range(draw(st.integers(1, 5))):
        if len(data) < 8:
            break
        at = draw(st.integers(0, max(len(data) - 5, 0)))
        kind = draw(st.sampled_from(["word", "word", "word", "near", "byte", "cut"]))
        if kind == "word":
            at -= at % 4
            data[at : at + 4] = draw(st.sampled_from(WORDS)).to_bytes(4, "little", signed=True)
        elif kind == "near":
            data[at] = (data[at] + draw(st.sampled_from([-4, -1, 1, 4]))) % 256
        elif kind == "byte":
            data[at] = draw(st.integers(0, 255))
        elif len(data) > 400 and draw(st.integers(0, 9)) == 0:
            del data[at:]
    return bytes(data)


@fuzz(mutations())
def test_damaged(data):
    try:
        model = fo.load_tflite(data)
    except (ValueError, MemoryError) as error:
        assert str(error) or isinstance(error, MemoryError)
        return
    shapes = [[d if isinstance(d, int) else 2 for d in v.shape or ()] for v in model.inputs]
    if any(np.prod(s, dtype=object) > LARGEST for s in shapes):
        return
    try:
        model(*(np.zeros(s, v.dtype) for s, v in zip(shapes, model.inputs)))
    except (TypeError, ValueError, MemoryError) as error:
        assert str(error) or isinstance(error, MemoryError)
