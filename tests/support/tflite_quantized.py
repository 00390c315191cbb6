"""Cases of TFLite's operators in 8 and 16 bits: what floats give, quantized, may be one step off."""

import numpy as np

from tflite_cases import CASES, Case, nhwc_conv
from tflite_models import Tensor

F = np.float32
LIMITS = {np.int8: 127, np.uint8: 127, np.int16: 32767}
ONE_QUANTIZATION = {  # whose results are quantized as their inputs are
    "MAX_POOL_2D", "AVERAGE_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "RESHAPE", "SQUEEZE", "EXPAND_DIMS",
    "TRANSPOSE", "SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V", "PAD", "MIRROR_PAD", "GATHER", "GATHER_ND", "PACK",
    "UNPACK", "CONCATENATION", "TILE", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND",
    "REVERSE_V2", "TOPK_V2", "REDUCE_MAX", "REDUCE_MIN", "MAXIMUM", "MINIMUM", "RELU_0_TO_1", "SELECT_V2",
    "BROADCAST_TO",
}  # fmt: skip
FIXED = {"SOFTMAX": (1 / 256, -128), "LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0), "LOG_SOFTMAX": (16 / 256, 127),
         "L2_NORMALIZATION": (1 / 128, 0)}  # fmt: skip
SINGLE = {
    "ABS", "RELU", "RELU6", "TANH", "LOGISTIC", "ELU", "HARD_SWISH", "LEAKY_RELU", "SOFTMAX", "LOG_SOFTMAX",
    "L2_NORMALIZATION", "ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "MEAN", "GELU",
    "ARG_MAX", "BATCH_MATMUL",
}  # fmt: skip


def store(x, scale, zero, dtype):
    """Real numbers as a quantized tensor has them."""
    info = np.iinfo(dtype)
    return np.clip(np.rint(np.asarray(x, float) / scale) + zero, info.min, info.max).astype(dtype)


def real(x, t):
    if t.scale is None:
        return x
    each = [-1 if a == t.axis else 1 for a in range(x.ndim)] if np.ndim(t.scale) else ()
    return (x.astype(float) - np.reshape(t.zero, each if np.ndim(t.zero) else ())) * np.reshape(t.scale, each)


def range_of(x, dtype):
    """(scale, zero point) for real numbers."""
    low, high = min(np.min(x), 0.0), max(np.max(x), 0.0)
    if dtype is np.int16:
        return max(high, -low, 1e-3) / 32767, 0
    info = np.iinfo(dtype)
    scale = max(high - low, 1e-3) / 255
    return float(np.float32(scale)), int(np.clip(np.rint(info.min - low / scale), info.min, info.max))


def quantized(case, dtype):
    """The case with all of its floats in 8 or 16 bits; None where TFLite has no such form of it."""
    one = case.kind in ONE_QUANTIZATION
    if dtype is np.int16 and case.kind == "RESIZE_BILINEAR":  # LiteRT's own is off by more than a step
        return None
    if case.kind not in SINGLE and not one or any(t is not None and t.data is not None and t.dtype in (F, np.dtype(F))
                                                  for t in case.inputs):  # fmt: skip
        return None
    rng, inputs, arrays = np.random.default_rng(5), [], []
    for t in case.inputs:
        if t is None or t.data is not None or t.dtype is not F:
            inputs.append(t)
            if t is not None and t.data is None:
                arrays.append(rng.integers(0, 2, t.shape).astype(t.dtype))
            continue
        low, high = map(float, t.name.split(":")) if ":" in t.name else (-3.0, 3.0)
        scale, zero = range_of([low, high], dtype)
        inputs.append(t._replace(dtype=dtype, scale=scale, zero=zero, name=""))
        arrays.append(real(store(rng.uniform(low, high, t.shape), scale, zero, dtype), inputs[-1]))
    first = next((t for t in inputs if t is not None and t.scale is not None), None)
    if first is None:
        return None
    outputs = []
    for t, y in zip(case.outputs, case.wanted(*arrays)):
        if t.dtype not in (F, np.dtype(F)):
            outputs.append(t)
            continue
        scale, zero = (first.scale, first.zero) if one else range_of(y, dtype)
        if dtype is np.int8:
            scale, zero = FIXED.get(case.kind, (scale, zero))
        outputs.append(t._replace(dtype=dtype, scale=scale, zero=zero))
    return case._replace(name=f"{case.name}_{np.dtype(dtype).name}", inputs=inputs, outputs=outputs)


def layer(kind, shape, w_shape, dtype=np.int8, per_channel=True, act=0):
    """A convolution or product with weights and bias of integers."""
    rng = np.random.default_rng(8)
    x_scale, x_zero = range_of([-2, 2], dtype)
    axis = 3 if kind == "DEPTHWISE_CONV_2D" else 0
    kind_w = np.uint8 if dtype is np.uint8 else np.int8
    n = w_shape[axis]
    w_scale = rng.uniform(0.002, 0.01, n) if per_channel else 0.006
    w_zero = 128 if dtype is np.uint8 else 0
    stored = rng.integers(1 if w_zero else -127, 255 if w_zero else 128, w_shape).astype(kind_w)
    w = Tensor(w_shape, kind_w, stored, w_scale, w_zero, axis)
    bias_type = np.int64 if dtype is np.int16 else np.int32
    bias = rng.integers(-2000, 2000, n).astype(bias_type)
    b = Tensor((n,), bias_type, bias, np.atleast_1d(w_scale) * x_scale, 0, 0)
    real_w, real_b = real(stored, w), bias * (x_scale * np.atleast_1d(w_scale))

    def wanted(x):
        if kind == "FULLY_CONNECTED":
            y = x @ real_w.T + real_b
        elif kind == "CONV_2D":
            y = nhwc_conv(x, real_w, real_b, padding="SAME")
        else:
            y = nhwc_conv(x, real_w.transpose(3, 1, 2, 0), real_b, padding="SAME", groups=shape[3])
        return [[y, np.maximum(y, 0)][act]]

    made = wanted(rng.uniform(-2, 2, shape))[0]
    scale, zero = range_of(made, dtype)
    x, y = Tensor(shape, dtype, None, x_scale, x_zero), Tensor(made.shape, dtype, None, scale, zero)
    options = dict(FusedActivationFunction=act)
    if kind != "FULLY_CONNECTED":
        options |= dict(StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1, Padding=0)
        options |= dict(DepthMultiplier=1) if kind == "DEPTHWISE_CONV_2D" else {}
    names = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
    name = f"{kind.lower()}_{np.dtype(dtype).name}_{per_channel}_{act}"
    return Case(name, kind, [x, w, b], [y], wanted, (names.get(kind, "FullyConnectedOptions"), options))


def _whole_number_bilinear(x, h, w, corners, half):
    """Pixels between which LiteRT steps by whole numbers of 2^-10."""
    for axis, m in ((1, h), (2, w)):
        n = x.shape[axis]
        ends = (n - 1, m - 1) if corners else (n, m)
        step = (1024 * ends[0] + ends[1] // 2) // ends[1]
        at = np.maximum(np.arange(m) * step + half * (step // 2 - 512), 0) / 1024
        low = np.minimum(at.astype(int), n - 1)
        t = (at - low).reshape([-1 if a == axis else 1 for a in range(4)])
        x = x.take(low, axis) * (1 - t) + x.take(np.minimum(low + 1, n - 1), axis) * t
    return x


def enlarged(corners, half):
    """A small image of int8 made large, where steps that are rounded add up."""
    x, y = (Tensor((1, *size, 3), np.int8, None, 0.1, 3) for size in ((7, 9), (99, 120)))
    options = ("ResizeBilinearOptions", dict(AlignCorners=corners, HalfPixelCenters=half))
    size = Tensor((2,), np.int32, np.array([99, 120], np.int32))
    name = f"enlarged_{'corners' if corners else 'half' if half else 'plain'}"
    return Case(name, "RESIZE_BILINEAR", [x, size], [y],
                lambda a: [_whole_number_bilinear(a, 99, 120, corners, half)], options)  # fmt: skip


ENLARGED = [enlarged(*how) for how in ((True, False), (False, True), (False, False))]
LAYERS = [
    layer(kind, shape, w_shape, dtype, per_channel, act)
    for kind, shape, w_shape in (
        ("CONV_2D", (1, 6, 7, 8), (12, 3, 3, 8)),
        ("DEPTHWISE_CONV_2D", (1, 6, 7, 8), (1, 3, 3, 8)),
        ("FULLY_CONNECTED", (5, 32), (10, 32)),
    )
    for dtype, per_channel in ((np.int8, True), (np.int8, False), (np.uint8, False), (np.int16, True))
    for act in (0, 1)
]
QUANTIZED = (
    [c for case in CASES for dtype in (np.int8, np.uint8, np.int16) if (c := quantized(case, dtype)) is not None]
    + LAYERS
    + ENLARGED
)


def feeds(case, seed=0):
    """(what the network takes, the real numbers that it stands for)."""
    rng, given = np.random.default_rng(seed), []
    for t in case.inputs:
        if t is None or t.data is not None:
            continue
        if t.scale is None:
            given.append((rng.integers(0, 2, t.shape).astype(t.dtype),) * 2)
        else:
            info = np.iinfo(t.dtype)
            x = rng.integers(info.min, info.max, t.shape, endpoint=True).astype(t.dtype)
            given.append((x, real(x, t)))
    return [x for x, _ in given], [y for _, y in given]
