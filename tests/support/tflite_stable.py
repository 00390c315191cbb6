"""Cases of StableHLO's operators in TFLite files, and of windows that are reduced, with what they compute."""

import numpy as np

from tflite_cases import Case
from tflite_models import Graph, Op, Tensor, constant, write

F, INT = np.float32, np.int32


def _long(*values):
    return np.array(values, np.int64)


def _stable(kind, wanted, inputs, outputs, options=None, name=""):
    fields = {k: _long(*v) if isinstance(v, tuple) else v for k, v in (options or ("", {}))[1].items()}
    options = None if options is None else (f"Stablehlo{options[0]}Options", fields)
    return Case(name or f"stablehlo_{kind.lower()}", f"STABLEHLO_{kind}", inputs, outputs, wanted, options)


def _binary(kind, wanted, dtype=F):
    x = Tensor((2, 3, 4), dtype)
    return _stable(kind, lambda a, b: [wanted(a, b)], [x, Tensor((2, 3, 4), dtype)], [x._replace(name="y")],
                   name=f"stablehlo_{kind.lower()}_{np.dtype(dtype).name}")  # fmt: skip


def _unary(kind, wanted):
    return _stable(kind, lambda a: [wanted(a)], [Tensor((2, 3, 4))], [Tensor((2, 3, 4))])


def _padded(x):
    y = np.full((2, 7), 9.0)
    y[:, ::2] = x
    return np.pad(y, [(1, 0), (0, 2)], constant_values=9.0)[:, 1:]


_ROWS = np.array([[0, 5], [2, 1]], INT)  # the second number of the first row is beyond
_PICK = dict(OffsetDims=(1, 2), CollapsedSliceDims=(0,), StartIndexMap=(0, 1), IndexVectorDim=1, SliceSizes=(1, 2, 4))
_FLAT = dict(OffsetDims=(0,), CollapsedSliceDims=(1,), StartIndexMap=(1,), IndexVectorDim=2, SliceSizes=(3, 1))
_AT = np.array([[0, 2], [1, 1]], INT)
_DOT = dict(LhsBatchingDimensions=(0,), RhsBatchingDimensions=(2,), LhsContractingDimensions=(1,),
            RhsContractingDimensions=(0,))  # fmt: skip
STABLE = [
    *[_binary(kind, f) for kind, f in (("ADD", np.add), ("SUBTRACT", np.subtract), ("MULTIPLY", np.multiply),
      ("DIVIDE", np.divide), ("MAXIMUM", np.maximum), ("MINIMUM", np.minimum), ("REMAINDER", np.fmod))],
    _binary("AND", np.logical_and, np.bool_), _binary("OR", np.logical_or, np.bool_),
    _binary("AND", np.bitwise_and, INT), _binary("OR", np.bitwise_or, INT),
    _unary("CBRT", np.cbrt), _unary("COSINE", np.cos), _unary("LOGISTIC", lambda x: 1 / (1 + np.exp(-x))),
    _unary("NEGATE", np.negative),
    _stable("SHIFT_LEFT", lambda a: [a << 3], [Tensor((5,), INT), constant(np.full(5, 3, INT))], [Tensor((5,), INT)]),
    _stable("CLAMP", lambda a: [np.clip(a, -0.5, 1.0)], [constant(F(-0.5)), Tensor((3, 4)), constant(F(1))],
            [Tensor((3, 4))]),
    _stable("COMPARE", lambda a, b: [a >= b], [Tensor((3, 4)), Tensor((3, 4))], [Tensor((3, 4), np.bool_)],
            ("Compare", dict(ComparisonDirection=2))),
    _stable("RESHAPE", lambda a: [a.reshape(4, 3)], [Tensor((3, 4))], [Tensor((4, 3))]),
    _stable("TRANSPOSE", lambda a: [a.transpose(2, 0, 1)], [Tensor((2, 3, 4))], [Tensor((4, 2, 3))],
            ("Transpose", dict(Permutation=(2, 0, 1)))),
    _stable("CONCATENATE", lambda a, b: [np.concatenate([a, b], 1)], [Tensor((2, 3)), Tensor((2, 4))],
            [Tensor((2, 7))], ("Concatenate", dict(Dimension=1))),
    _stable("BROADCAST_IN_DIM", lambda a: [np.broadcast_to(a[:, None, :], (2, 5, 3))], [Tensor((2, 3))],
            [Tensor((2, 5, 3))], ("BroadcastInDim", dict(BroadcastDimensions=(0, 2)))),
    _stable("IOTA", lambda: [np.broadcast_to(np.arange(4.0), (3, 4))], [], [Tensor((3, 4))],
            ("Iota", dict(IotaDimension=1))),
    _stable("SLICE", lambda a: [a[1:3, ::2]], [Tensor((3, 5))], [Tensor((2, 3))],
            ("Slice", dict(StartIndices=(1, 0), LimitIndices=(3, 5), Strides=(1, 2)))),
    _stable("DYNAMIC_SLICE", lambda a: [a[1:3, 2:4]], [Tensor((3, 4)), constant(INT(1)), constant(INT(7))],
            [Tensor((2, 2))], ("DynamicSlice", dict(SliceSizes=(2, 2)))),
    _stable("DYNAMIC_UPDATE_SLICE", lambda a, b: [np.concatenate([a[:1], np.c_[a[1:, :1], b, a[1:, 3:]]])],
            [Tensor((3, 4)), Tensor((2, 2)), constant(INT(5)), constant(INT(1))], [Tensor((3, 4))]),
    _stable("PAD", lambda a: [_padded(a)], [Tensor((2, 4)), constant(F(9))], [Tensor((3, 8))],
            ("Pad", dict(EdgePaddingLow=(1, -1), EdgePaddingHigh=(0, 2), InteriorPadding=(0, 1)))),
    _stable("GATHER", lambda a: [np.stack([a[0, 1:3], a[2, 1:3]])], [Tensor((3, 3, 4)), constant(_ROWS)],
            [Tensor((2, 2, 4))], ("Gather", _PICK)),
    _stable("GATHER", lambda a: [a[:, _AT]], [Tensor((3, 4)), constant(_AT)], [Tensor((3, 2, 2))], ("Gather", _FLAT),
            name="stablehlo_gather_columns"),
    _stable("DOT_GENERAL", lambda a, b: [np.einsum("bkm,knb->bmn", a, b)], [Tensor((2, 3, 4)), Tensor((3, 5, 2))],
            [Tensor((2, 4, 5))], ("DotGeneral", _DOT)),
]  # fmt: skip


def with_body(kind, options, inputs, output, body, field):
    """A model of one operator, whose second subgraph combines two numbers by the operator `body`."""
    one = Tensor((), inputs[0].dtype)
    ops = [Op(body, [0, 1], [2])] if body else []
    inner = Graph([one, one, one], ops, [0, 1], [2] if body else [1])
    fields = {k: _long(*v) if isinstance(v, tuple) else v for k, v in options[1].items()} | {field: 1}
    op = Op(kind, list(range(len(inputs))), [len(inputs)], (options[0], fields))
    given = [i for i, t in enumerate(inputs) if t.data is None]
    return write(Graph([*inputs, output], [op], given, [len(inputs)]), inner)
