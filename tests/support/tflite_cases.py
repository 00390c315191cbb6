"""Operators of TFLite with what they compute, in float64: a row each."""

from typing import Any, NamedTuple

import numpy as np

from oracle import conv2d
from tflite_models import Tensor, constant

F, INT, B = np.float32, np.int32, np.bool_


class Case(NamedTuple):
    """`inputs`: Tensors or None; `wanted(*arrays)`: the results for the inputs that are no constants."""

    name: str
    kind: str
    inputs: list
    outputs: list
    wanted: Any
    options: tuple | None = None
    custom: bytes | None = None


def _random(shape, seed=0, low=-2.0, high=2.0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(F)


def _unary(kind, wanted, low=-3.0, high=3.0, options=None, dtype=F):
    x = Tensor((2, 3, 5, 4), dtype, name=f"{low}:{high}")
    return Case(kind.lower(), kind, [x], [Tensor((2, 3, 5, 4), dtype)], lambda a: [wanted(a)], options)


def _binary(kind, wanted, options=None, dtype=F, out=None, shapes=((2, 3, 4), (3, 1)), low=-3.0):
    inputs = [Tensor(s, dtype, name=f"{low}:3") for s in shapes]
    y = Tensor(np.broadcast_shapes(*shapes), out or dtype)
    return Case(f"{kind.lower()}_{np.dtype(dtype).name}", kind, inputs, [y], lambda a, b: [wanted(a, b)], options)


def _shaped(name, kind, wanted, shape, *others, options=None, out=None, dtype=F, custom=None, outputs=1):
    """An operator of one array and constants; its results have the shapes that `wanted` gives."""
    x = Tensor(shape, dtype)
    made = wanted(np.zeros(shape, dtype))
    made = made if isinstance(made, list) else [made]
    kinds = [np.asarray(y).dtype for y in made]
    ys = [Tensor(np.shape(y), out or (F if d == np.float64 else d)) for y, d in zip(made, kinds)]

    def results(a):
        found = wanted(a)
        return found if isinstance(found, list) else [found]

    inputs = [x, *(o if o is None or isinstance(o, Tensor) else constant(o) for o in others)]
    return Case(name, kind, inputs, ys, results, options, custom)


def _gelu(x):
    from math import erf

    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def _softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def nhwc_conv(x, w, bias, stride=1, padding="VALID", dilation=1, groups=1):
    """A convolution of TFLite: x (n, h, w, c), w (outputs, height, width, inputs / groups)."""
    pads = [(0, 0), (0, 0)]
    if padding == "SAME":
        pads = []
        for n, k in zip(x.shape[1:3], w.shape[1:3]):
            total = max((-(-n // stride) - 1) * stride + (k - 1) * dilation + 1 - n, 0)
            pads.append((total // 2, total - total // 2))
    x = np.pad(x.transpose(0, 3, 1, 2), [(0, 0), (0, 0), *pads])
    y = conv2d(x, w.transpose(0, 3, 1, 2), stride=stride, dilation=dilation, groups=groups).value
    return y.transpose(0, 2, 3, 1) + bias


def _conv(name, shape, w_shape, groups=1, kind="CONV_2D", act=0, **options):
    """A convolution; `options` are stride, padding and dilation."""
    w, b = _random(w_shape, 1, -0.5, 0.5), _random((w_shape[0],), 2)
    stored = w if kind == "CONV_2D" else w.transpose(3, 1, 2, 0)
    stride, dilation = options.get("stride", 1), options.get("dilation", 1)
    table = dict(StrideH=stride, StrideW=stride, DilationHFactor=dilation, DilationWFactor=dilation)
    table |= dict(Padding=int(options.get("padding", "VALID") == "VALID"), FusedActivationFunction=act)
    if kind != "CONV_2D":
        table["DepthMultiplier"] = w_shape[0] // groups

    def wanted(x):
        y = nhwc_conv(x, w, b, groups=groups, **options)
        return [y, np.maximum(y, 0), np.clip(y, -1, 1), np.clip(y, 0, 6)][act]

    names = "Conv2DOptions", "DepthwiseConv2DOptions"
    return _shaped(name, kind, wanted, shape, stored, b, options=(names[kind != "CONV_2D"], table))


def _windows(x, size, stride, padding, fill):
    """(n, h, w, c, size * size) with the elements of each window."""
    pads = [(0, 0)] * 4
    if padding == "SAME":
        for a in (1, 2):
            total = max((-(-x.shape[a] // stride) - 1) * stride + size - x.shape[a], 0)
            pads[a] = (total // 2, total - total // 2)
    x = np.pad(x, pads, constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))[:, ::stride, ::stride]
    return view.reshape(*view.shape[:4], -1)


def _pool(name, kind, wanted, fill=np.nan, padding="SAME", size=3, stride=2):
    table = dict(StrideH=stride, StrideW=stride, FilterHeight=size, FilterWidth=size, Padding=int(padding == "VALID"))
    return _shaped(
        name, kind, lambda x: wanted(_windows(x.astype(float), size, stride, padding, fill)), (2, 7, 6, 5),
        options=("Pool2DOptions", table),
    )  # fmt: skip


def _resize_places(n, m, corners, half):
    o = np.arange(m)
    if corners:
        return o * (n - 1) / max(m - 1, 1)
    return np.clip((o + 0.5) * n / m - 0.5, 0, n - 1) if half else np.minimum(o * n / m, n - 1)


def _bilinear(x, h, w, corners, half):
    x = x.astype(float)
    for axis, m in ((1, h), (2, w)):
        at = _resize_places(x.shape[axis], m, corners, half)
        low = np.floor(at).astype(int)
        high, t = np.minimum(low + 1, x.shape[axis] - 1), (at - low).reshape([-1 if a == axis else 1 for a in range(4)])
        x = x.take(low, axis) * (1 - t) + x.take(high, axis) * t
    return x


def _nearest(x, h, w, corners, half):
    for axis, m in ((1, h), (2, w)):
        n, o = x.shape[axis], np.arange(m)
        at = np.floor(o * (n - 1) / (m - 1) + 0.5) if corners else np.floor((o + 0.5 * half) * n / m)
        x = x.take(np.clip(at, 0, n - 1).astype(int), axis)
    return x


def _resizing(kind, wanted, table, corners, half):
    return _shaped(
        f"{kind.lower()}_{'corners' if corners else 'half' if half else 'plain'}", kind,
        lambda x: wanted(x, 7, 9, corners, half), (1, 4, 5, 3), np.array([7, 9], INT),
        options=(table, dict(AlignCorners=corners, HalfPixelCenters=half)),
    )  # fmt: skip


def _transposed(x, w, stride, begins, sizes):
    """A transposed convolution: w (outputs, height, width, inputs)."""
    n, h, wide, _ = x.shape
    full = np.zeros((n, (h - 1) * stride + w.shape[1] + 8, (wide - 1) * stride + w.shape[2] + 8, w.shape[0]))
    for i in range(w.shape[1]):
        for j in range(w.shape[2]):
            full[:, i : i + (h - 1) * stride + 1 : stride, j : j + (wide - 1) * stride + 1 : stride] += x @ w[:, i, j].T
    return full[:, begins[0] : begins[0] + sizes[0], begins[1] : begins[1] + sizes[1]]


def _transpose_conv(padding, kernel, sizes):
    w, b = _random((4, kernel, kernel, 3), 1), _random((4,), 2)
    total = [max((n - 1) * 2 + kernel - m, 0) if padding == "SAME" else 0 for n, m in zip((5, 4), sizes)]
    x = Tensor((2, 5, 4, 3))
    return Case(
        f"transpose_conv_{padding}_{kernel}", "TRANSPOSE_CONV",
        [constant(np.array([2, *sizes, 4], INT)), constant(w), x, constant(b)], [Tensor((2, *sizes, 4))],
        lambda a: [_transposed(a, w.astype(float), 2, [t // 2 for t in total], sizes) + b],
        ("TransposeConvOptions", dict(StrideH=2, StrideW=2, Padding=int(padding == "VALID"))),
    )  # fmt: skip


def _slices(name, shape, begin, end, step, wanted, **masks):
    return _shaped(name, "STRIDED_SLICE", wanted, shape, *(np.array(v, INT) for v in (begin, end, step)),
                   options=("StridedSliceOptions", masks))  # fmt: skip


def _reduction(kind, function, axes, keep, dtype=F):
    return _shaped(
        f"{kind.lower()}_{len(axes)}_{keep}", kind, lambda x: function(x, tuple(axes), keepdims=keep), (2, 3, 4, 5),
        np.array(axes, INT), options=("ReducerOptions", dict(KeepDims=keep)), dtype=dtype, out=dtype,
    )  # fmt: skip


def _fully_connected(name, shape, keep, act=0):
    w, b = _random((6, shape[-1]), 1), _random((6,), 2)

    def wanted(x):
        y = x.reshape(-1, shape[-1]).astype(float) @ w.T + b
        y = [y, np.maximum(y, 0)][act]
        return y.reshape(*shape[:-1], 6) if keep else y

    table = dict(KeepNumDims=keep, FusedActivationFunction=act)
    return _shaped(name, "FULLY_CONNECTED", wanted, shape, w, b, options=("FullyConnectedOptions", table))


def _matmul(adj_x, adj_y):
    a, b = (2, 5, 3) if not adj_x else (2, 3, 5), (2, 3, 4) if not adj_y else (2, 4, 3)

    def wanted(x, y):
        return [(x.swapaxes(1, 2) if adj_x else x) @ (y.swapaxes(1, 2) if adj_y else y)]

    table = ("BatchMatMulOptions", dict(AdjX=adj_x, AdjY=adj_y))
    return Case(f"matmul_{adj_x}{adj_y}", "BATCH_MATMUL", [Tensor(a), Tensor(b)], [Tensor((2, 5, 4))], wanted, table)


def _space_to_batch(x):
    x = np.pad(x, [(0, 0), (1, 1), (0, 0), (0, 0)])
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(2, 4, 0, 1, 3, 5).reshape(4 * n, h // 2, w // 2, c)


def _batch_to_space(x):
    n, h, w, c = x.shape
    y = x.reshape(2, 2, n // 4, h, w, c).transpose(2, 3, 0, 4, 1, 5).reshape(n // 4, 2 * h, 2 * w, c)
    return y[:, 1:-1]


def _one_hot(i):
    return np.where(i[..., None] == np.arange(4), 3.0, -1.0).astype(F)


def _depth_to_space(x):
    n, h, w, c = x.shape
    return x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, c // 4)


def _space_to_depth(x):
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h // 2, w // 2, 4 * c)


def _gathered(x, i, axis, batch):
    if not batch:
        return x.take(i, axis)
    return np.stack([_gathered(a, b, axis - 1, batch - 1) for a, b in zip(x, i)])


def _gather(name, shape, i, axis, batch=0):
    i = np.array(i, INT)
    return _shaped(name, "GATHER", lambda x: _gathered(x, i, axis, batch), shape, i,
                   options=("GatherOptions", dict(Axis=axis, BatchDims=batch)))  # fmt: skip


def _split(x):
    return [p.copy() for p in np.split(x, 3, 2)]


_IMAGE = (1, 6, 7, 8)
_MIRROR = np.array([[0, 0], [1, 2], [2, 1], [0, 0]], INT)
CASES = [
    _unary("ABS", np.abs), _unary("CEIL", np.ceil), _unary("COS", np.cos), _unary("SIN", np.sin),
    _unary("EXP", np.exp), _unary("FLOOR", np.floor), _unary("NEG", np.negative), _unary("ROUND", np.rint),
    _unary("LOG", np.log, 0.1), _unary("SQRT", np.sqrt, 0.1), _unary("RSQRT", lambda x: x**-0.5, 0.1),
    _unary("SQUARE", np.square), _unary("SIGN", np.sign), _unary("RELU", lambda x: np.maximum(x, 0)),
    _unary("RELU6", lambda x: np.clip(x, 0, 6), -9, 9), _unary("RELU_N1_TO_1", lambda x: np.clip(x, -1, 1)),
    _unary("RELU_0_TO_1", lambda x: np.clip(x, 0, 1)), _unary("TANH", np.tanh), _unary("LOGISTIC", _sigmoid),
    _unary("ELU", lambda x: np.where(x > 0, x, np.expm1(x))),
    _unary("HARD_SWISH", lambda x: x * np.clip(x + 3, 0, 6) / 6, -5, 5),
    _unary("LEAKY_RELU", lambda x: np.where(x > 0, x, 0.3 * x), options=("LeakyReluOptions", dict(Alpha=0.3))),
    _unary("GELU", _gelu, options=("GeluOptions", dict(Approximate=False))),
    _unary("SOFTMAX", lambda x: _softmax(2 * x), options=("SoftmaxOptions", dict(Beta=2.0))),
    _unary("LOG_SOFTMAX", lambda x: np.log(_softmax(x))),
    _unary("L2_NORMALIZATION", lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True))),
    _unary("LOGICAL_NOT", np.logical_not, dtype=B),
    *[_binary(kind, f) for kind, f in (("ADD", np.add), ("SUB", np.subtract), ("MUL", np.multiply), ("DIV", np.divide),
      ("MAXIMUM", np.maximum), ("MINIMUM", np.minimum), ("SQUARED_DIFFERENCE", lambda a, b: (a - b) ** 2),
      ("FLOOR_DIV", np.floor_divide), ("FLOOR_MOD", np.mod))],
    _binary("ATAN2", np.arctan2, shapes=((3, 4), (3, 4))),
    _binary("ADD", lambda a, b: np.maximum(a + b, 0), ("AddOptions", dict(FusedActivationFunction=1)),
            shapes=((1, 4, 4, 3), (1, 1, 1, 3))),
    _binary("POW", np.power, low=0.1),
    *[_binary(kind, f, dtype=INT) for kind, f in (("ADD", np.add), ("SUB", np.subtract), ("MUL", np.multiply))],
    *[_binary(kind, f, out=B) for kind, f in (("EQUAL", np.equal), ("NOT_EQUAL", np.not_equal), ("LESS", np.less),
      ("LESS_EQUAL", np.less_equal), ("GREATER", np.greater), ("GREATER_EQUAL", np.greater_equal))],
    *[_binary(kind, f, dtype=B) for kind, f in (("LOGICAL_AND", np.logical_and), ("LOGICAL_OR", np.logical_or))],
    Case("add_n", "ADD_N", [Tensor((2, 3)), Tensor((2, 3)), Tensor((2, 3))], [Tensor((2, 3))],
         lambda a, b, c: [a + b + c]),
    Case("select_rows", "SELECT", [Tensor((2,), B), Tensor((2, 3)), Tensor((2, 3))], [Tensor((2, 3))],
         lambda c, a, b: [np.where(c[:, None], a, b)]),
    Case("select_v2", "SELECT_V2", [Tensor((2, 1), B), Tensor((2, 3)), Tensor((3,))], [Tensor((2, 3))],
         lambda c, a, b: [np.where(c, a, b)]),
    _shaped("prelu", "PRELU", lambda x: np.where(x > 0, x, x * _random((1, 1, 8), 3)), _IMAGE, _random((1, 1, 8), 3)),
    _shaped("cast", "CAST", lambda x: x.astype(INT), (2, 3), options=("CastOptions", dict(OutDataType=2))),
    _shaped("bucketize", "BUCKETIZE", lambda x: np.digitize(x, [-1.0, 0.0, 1.0]).astype(INT), (2, 5),
            options=("BucketizeOptions", dict(Boundaries=[-1.0, 0.0, 1.0]))),
    # images
    _conv("conv", _IMAGE, (4, 3, 3, 8)), _conv("conv_same", _IMAGE, (4, 3, 3, 8), stride=2, padding="SAME", act=1),
    _conv("conv_dilated", _IMAGE, (4, 3, 3, 8), padding="SAME", dilation=2, act=3),
    _conv("conv_groups", _IMAGE, (6, 3, 3, 4), groups=2),
    _conv("depthwise", _IMAGE, (8, 3, 3, 1), 8, "DEPTHWISE_CONV_2D", padding="SAME", act=2),
    _conv("depthwise_multiplied", _IMAGE, (16, 3, 3, 1), 8, "DEPTHWISE_CONV_2D", stride=2),
    _transpose_conv("SAME", 3, (10, 8)), _transpose_conv("VALID", 3, (11, 9)), _transpose_conv("SAME", 2, (10, 8)),
    _transpose_conv("VALID", 4, (12, 10)),
    _pool("average_pool", "AVERAGE_POOL_2D", lambda v: np.nanmean(v, -1)),
    _pool("average_pool_valid", "AVERAGE_POOL_2D", lambda v: v.mean(-1), padding="VALID", size=2),
    _pool("max_pool", "MAX_POOL_2D", lambda v: np.nanmax(v, -1)),
    _pool("l2_pool", "L2_POOL_2D", lambda v: np.sqrt(np.nanmean(v * v, -1))),
    *[_resizing("RESIZE_BILINEAR", _bilinear, "ResizeBilinearOptions", *how)
      for how in ((True, False), (False, True), (False, False))],
    *[_resizing("RESIZE_NEAREST_NEIGHBOR", _nearest, "ResizeNearestNeighborOptions", *how)
      for how in ((True, False), (False, True), (False, False))],
    _shaped("depth_to_space", "DEPTH_TO_SPACE", _depth_to_space, (1, 3, 2, 8),
            options=("DepthToSpaceOptions", dict(BlockSize=2))),
    _shaped("space_to_depth", "SPACE_TO_DEPTH", _space_to_depth, (1, 4, 6, 3),
            options=("SpaceToDepthOptions", dict(BlockSize=2))),
    _shaped("space_to_batch", "SPACE_TO_BATCH_ND", _space_to_batch, (2, 4, 6, 3), np.array([2, 2], INT),
            np.array([[1, 1], [0, 0]], INT)),
    _shaped("batch_to_space", "BATCH_TO_SPACE_ND", _batch_to_space, (8, 4, 3, 3), np.array([2, 2], INT),
            np.array([[1, 1], [0, 0]], INT)),
    _shaped("lrn", "LOCAL_RESPONSE_NORMALIZATION", lambda x: np.stack(
        [x[..., c] / (1 + 0.5 * (x[..., max(c - 2, 0) : c + 3] ** 2).sum(-1)) ** 0.75 for c in range(8)], -1), _IMAGE,
        options=("LocalResponseNormalizationOptions", dict(Radius=2, Bias=1.0, Alpha=0.5, Beta=0.75))),
    # products
    _fully_connected("fully_connected", (5, 7), False, 1), _fully_connected("fully_connected_3d", (2, 5, 7), True),
    _fully_connected("fully_connected_flat", (2, 5, 7), False),
    *[_matmul(a, b) for a in (False, True) for b in (False, True)],
    # shapes
    _shaped("reshape", "RESHAPE", lambda x: x.reshape(6, 4), (2, 3, 4), np.array([-1, 4], INT)),
    _shaped("squeeze", "SQUEEZE", lambda x: x[:, 0], (2, 1, 3, 1), options=("SqueezeOptions", dict(SqueezeDims=[1]))),
    _shaped("expand_dims", "EXPAND_DIMS", lambda x: x[:, None], (2, 3), np.array(1, INT)),
    _shaped("transpose", "TRANSPOSE", lambda x: x.transpose(2, 0, 3, 1), (2, 3, 4, 5), np.array([2, 0, 3, 1], INT)),
    _shaped("tile", "TILE", lambda x: np.tile(x, (2, 1, 3)), (2, 3, 2), np.array([2, 1, 3], INT)),
    _shaped("broadcast_to", "BROADCAST_TO", lambda x: np.broadcast_to(x, (4, 2, 3)), (2, 1), np.array([4, 2, 3], INT)),
    _shaped("zeros_like", "ZEROS_LIKE", np.zeros_like, (2, 3)),
    _shaped("slice", "SLICE", lambda x: x[1:, 1:3], (3, 4), np.array([1, 1], INT), np.array([-1, 2], INT)),
    _slices("strided_slice", (4, 6, 5), [1, 5, 0], [4, 0, 5], [2, -2, 1], lambda x: x[1:4:2, 5:0:-2]),
    _slices("strided_slice_shrink", (4, 6, 5), [1, 0, -1], [2, 6, 0], [1, 1, 1], lambda x: x[1, :, -1],
            ShrinkAxisMask=5),
    _slices("strided_slice_masks", (4, 6, 5), [1, 3], [4, 4], [1, 2], lambda x: x[:4, 3::2], BeginMask=1, EndMask=2),
    _slices("strided_slice_ellipsis", (4, 6, 5), [0, 1], [0, 4], [1, 1], lambda x: x[..., 1:4], EllipsisMask=1),
    _slices("strided_slice_new_axis", (4, 5), [0, 0, 1], [0, 0, 3], [1, 1, 1], lambda x: x[:, None, 1:3],
            NewAxisMask=2, BeginMask=1, EndMask=1),
    Case("split", "SPLIT", [constant(np.array(2, INT)), Tensor((2, 3, 6))], [Tensor((2, 3, 2)) for _ in range(3)],
         _split, ("SplitOptions", dict(NumSplits=3))),
    _shaped("split_v", "SPLIT_V", lambda x: [x[:2], x[2:]], (5, 3), np.array([2, -1], INT), np.array(0, INT),
            options=("SplitVOptions", dict(NumSplits=2))),
    Case("concatenation", "CONCATENATION", [Tensor((2, 3, 4)), Tensor((2, 1, 4))], [Tensor((2, 4, 4))],
         lambda a, b: [np.concatenate([a, b], 1)], ("ConcatenationOptions", dict(Axis=-2))),
    Case("pack", "PACK", [Tensor((2, 3)), Tensor((2, 3))], [Tensor((2, 2, 3))], lambda a, b: [np.stack([a, b], 1)],
         ("PackOptions", dict(Axis=1, ValuesCount=2))),
    _shaped("unpack", "UNPACK", lambda x: [x[:, 0], x[:, 1]], (3, 2, 4),
            options=("UnpackOptions", dict(Axis=1, Num=2))),
    _shaped("pad", "PAD", lambda x: np.pad(x, _MIRROR), _IMAGE, _MIRROR),
    _shaped("pad_v2", "PADV2", lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=3), (2, 3),
            np.array([[1, 0], [0, 2]], INT), np.array(3, F)),
    _shaped("mirror_pad", "MIRROR_PAD", lambda x: np.pad(x, _MIRROR, mode="reflect"), _IMAGE, _MIRROR,
            options=("MirrorPadOptions", dict(Mode=0))),
    _shaped("mirror_pad_symmetric", "MIRROR_PAD", lambda x: np.pad(x, _MIRROR, mode="symmetric"), _IMAGE, _MIRROR,
            options=("MirrorPadOptions", dict(Mode=1))),
    _shaped("reverse", "REVERSE_V2", lambda x: x[:, ::-1], (2, 3, 4), np.array([1], INT)),
    _shaped("reverse_sequence", "REVERSE_SEQUENCE", lambda x: np.stack([np.r_[x[0, :2][::-1], x[0, 2:]], x[1, ::-1]]),
            (2, 4, 3), np.array([2, 4], INT), options=("ReverseSequenceOptions", dict(SeqDim=1, BatchDim=0))),
    # places
    _gather("gather", (4, 3), [[2, 0], [1, 1]], 0), _gather("gather_axis", (2, 4, 3), [2, 0], 1),
    _gather("gather_batch", (2, 4, 3), [[2, 0], [1, 3]], 1, 1),
    _gather("gather_batch_axis", (2, 3, 4), [[2, 0], [1, 3]], 2, 1),
    _shaped("gather_nd", "GATHER_ND", lambda x: x[[1, 0], [2, 1]], (2, 3, 4), np.array([[1, 2], [0, 1]], INT)),
    Case("scatter_nd", "SCATTER_ND",
         [constant(np.array([[1], [3]], INT)), Tensor((2, 3)), constant(np.array([4, 3], INT))],
         [Tensor((4, 3))], lambda x: [np.stack([0 * x[0], x[0], 0 * x[0], x[1]])]),
    Case("one_hot", "ONE_HOT", [Tensor((3,), INT), *map(constant, (np.array(4, INT), np.array(3, F), np.array(-1, F)))],
         [Tensor((3, 4))], lambda i: [_one_hot(i)], ("OneHotOptions", dict(Axis=-1))),
    Case("embedding_lookup", "EMBEDDING_LOOKUP", [Tensor((3,), INT), constant(_random((5, 4)))], [Tensor((3, 4))],
         lambda i: [_random((5, 4))[i]]),
    _shaped("update_slice", "DYNAMIC_UPDATE_SLICE", lambda x: np.r_[x[:1], np.ones((2, 3)), x[3:]], (4, 3),
            np.ones((2, 3), F), np.array([1, 0], INT), out=F),
    _shaped("matrix_diag", "MATRIX_DIAG", lambda x: x[..., None] * np.eye(4, dtype=F), (2, 4)),
    _shaped("matrix_set_diag", "MATRIX_SET_DIAG", lambda x: np.where(np.eye(3, 4), 7, x), (2, 3, 4),
            np.full((2, 3), 7, F), out=F),
    # reductions
    *[_reduction("MEAN", np.mean, axes, keep) for axes, keep in (([1, 2], True), ([1, 2], False), ([-1], False))],
    _reduction("SUM", np.sum, [1], False), _reduction("REDUCE_MAX", np.max, [2, 3], True),
    _reduction("REDUCE_MIN", np.min, [0], False), _reduction("REDUCE_PROD", np.prod, [3], False),
    _reduction("REDUCE_ANY", np.any, [1], False, B), _reduction("REDUCE_ALL", np.all, [1], True, B),
    _shaped("arg_max", "ARG_MAX", lambda x: x.argmax(-1).astype(INT), (2, 3, 4), np.array(-1, INT),
            options=("ArgMaxOptions", dict(OutputType=2))),
    _shaped("arg_min", "ARG_MIN", lambda x: x.argmin(1), (2, 3, 4), np.array(1, INT),
            options=("ArgMinOptions", dict(OutputType=4))),
    _shaped("top_k", "TOPK_V2", lambda x: [-np.sort(-x, -1)[..., :2], np.argsort(-x, -1)[..., :2].astype(INT)], (3, 5),
            np.array(2, INT)),
    _shaped("cumsum", "CUMSUM", lambda x: np.cumsum(x, 1), (2, 4), np.array(1, INT),
            options=("CumsumOptions", dict(Exclusive=False, Reverse=False))),
    _shaped("segment_sum", "SEGMENT_SUM", lambda x: np.stack([x[0] + x[1], x[2]]), (3, 4), np.array([0, 0, 1], INT)),
    _shaped("unsorted_segment_max", "UNSORTED_SEGMENT_MAX", lambda x: np.stack([np.maximum(x[0], x[2]), x[1]]), (3, 4),
            np.array([0, 1, 0], INT), np.array(2, INT)),
]  # fmt: skip


def feeds(case, seed=0):
    """Arrays for the inputs of a case that are no constants; a tensor's name may say their range."""
    rng, found = np.random.default_rng(seed), []
    for t in case.inputs:
        if t is None or t.data is not None:
            continue
        low, high = map(float, t.name.split(":")) if ":" in t.name else (-3.0, 3.0)
        if t.dtype is F:
            found.append(rng.uniform(low, high, t.shape).astype(F))
        else:
            found.append(rng.integers(0, 2, t.shape).astype(t.dtype) if t.dtype is B else
                         rng.integers(0, 3, t.shape).astype(t.dtype))  # fmt: skip
    return found
