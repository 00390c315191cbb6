"""Pools over windows and over whole images."""

import math
import operator
from typing import Literal

import numpy as np

from ..ir.dtypes import INT8, INT8_AND_FLOAT32
from ..ir.graph_builder import GraphBuilder
from ..steps.lowering import LoweringContext
from . import conv3d, conv_geometry
from .reduce import lower_reduction
from .schema import Inference, Kernel, NumPyOnly, Operator, Traits, lowest, mean_of, sum_of, values


def _pool_windows(node, x, border, beyond):
    """The windows of a pool and the axes to reduce. The padding has the value `border`, cells past it (ceil_mode)
    `beyond`."""
    kernel = node.attrs["kernel_shape"]
    strides, dilations, pads = conv_geometry.window(node, x.shape[2:], kernel)
    sizes = conv_geometry.output_sizes(node, x.shape[2:], kernel)
    past = [
        (0, max(0, (o - 1) * s + (k - 1) * d + 1 - i - sum(p)))
        for p, o, s, k, d, i in zip(pads, sizes, strides, kernel, dilations, x.shape[2:], strict=True)
    ]
    n = len(kernel)
    v = conv_geometry.view(
        conv_geometry.padded(conv_geometry.padded(x, pads, border), past, beyond), kernel, strides, dilations
    )
    return v[(slice(None),) * 2 + tuple(slice(o) for o in sizes)], tuple(range(2 + n, 2 + 2 * n))


def _max_pool(node, x):
    """The maxima, and where they lie in x, which is numbered row by row, or column by column if ``storage_order``."""
    v, axes = _pool_windows(node, x, lowest(x.dtype), lowest(x.dtype))
    if len(node.outputs) == 1:
        return v.max(axes)
    order: Literal["C", "F"] = "F" if node.attrs.get("storage_order", 0) else "C"
    numbers = np.arange(math.prod(x.shape[2:])).reshape((1, 1, *x.shape[2:]), order=order)
    numbers, _ = _pool_windows(node, numbers, -1, -1)
    v, numbers = (a.reshape(*a.shape[: axes[0]], -1) for a in (v, numbers))
    v, numbers = np.broadcast_arrays(v, numbers)
    best = np.where(numbers >= 0, v == v.max(-1, keepdims=True), False).argmax(-1)[..., np.newaxis]
    images = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(axes)) * math.prod(x.shape[2:])
    return v.max(-1), np.take_along_axis(numbers, best, -1)[..., 0] + images


def _lp_pool(node, x):
    v, axes = _pool_windows(node, np.abs(x), 0, 0)
    p = node.attrs.get("p", 2)
    return ((v.astype(np.float64) ** p).sum(axes) ** (1 / p)).astype(x.dtype)


def _whole_lp_pool(node, x):
    p = node.attrs.get("p", 2)
    return ((np.abs(x.astype(np.float64)) ** p).sum(tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)).astype(x.dtype)


def _unpooled_sizes(node, sizes):
    """The spatial sizes that a pool makes these of."""
    kernel = node.attrs["kernel_shape"]
    strides, pads = (
        node.attrs.get(name) or [default] * len(kernel) * times
        for name, default, times in (("strides", 1, 1), ("pads", 0, 2))
    )
    return [
        (n - 1) * s + k - b - e
        for n, s, k, b, e in zip(sizes, strides, kernel, pads[: len(kernel)], pads[len(kernel) :], strict=True)
    ]


def _max_unpool(node, x, numbers, shape=None):
    """Zeros but for the values of x, at the numbers that a pool of the result gives or, where these come from
    elsewhere, one of the smallest fitting image, after which are zeros too."""
    whole = node.attrs.get("of_result") and shape is not None
    made = tuple(shape.tolist()) if whole else (*x.shape[:2], *_unpooled_sizes(node, x.shape[2:]))
    y = np.zeros(math.prod(made), x.dtype)
    y[numbers.reshape(-1)] = x.reshape(-1)
    y = y.reshape(made)
    return y if shape is None else np.pad(y, [(0, n - m) for n, m in zip(shape.tolist(), made, strict=True)])


def _max_unpool_shape(node, x, numbers, shape=None):
    made = (*x.shape[:2], *_unpooled_sizes(node, x.shape[2:]))
    wanted = made if shape is None else tuple(values(shape, "shape").tolist())
    fits = len(wanted) == len(made) and (node.attrs.get("of_result") or all(map(operator.ge, wanted, made)))
    if numbers.shape != x.shape or not fits:
        raise ValueError(
            f"indices of shape {numbers.shape} must have {x.shape}, the result {made} or more and not {wanted}"
        )
    return wanted


def _read_unpool(r: GraphBuilder, node):
    """After a MaxPool the numbers are of the image that it pooled, whose shape is then that of the result."""
    maker = r.makers.get(node.inputs[1])
    if node.input(2) and maker is not None and maker.op == "MaxPool":
        node.attrs["of_result"] = 1
    r.add(node)


def average_pool(node, x):
    v, axes = _pool_windows(node, x, 0, 0)
    counted, _ = _pool_windows(
        node, np.ones((1, 1, *x.shape[2:]), x.dtype), int(node.attrs.get("count_include_pad", 0)), 0
    )
    return sum_of(v, axes) / counted.sum(axes)


def pool_shape(node, x):
    if len(x.shape) < 3 or len(node.attrs["kernel_shape"]) != len(x.shape) - 2:
        raise ValueError(f"a window of {len(node.attrs['kernel_shape'])} axes does not fit")
    shape = (*x.shape[:2], *conv_geometry.output_sizes(node, x.shape[2:], node.attrs["kernel_shape"]))
    return [shape] * len(node.outputs)


def whole_shape(node, x):
    return (*x.shape[:2], *[1] * (len(x.shape) - 2))


def lower_pool(kind):
    def lower(p: LoweringContext, node):
        kernel, shape = list(node.attrs["kernel_shape"]), p.known[node.inputs[0]].shape
        types = np.dtype(np.float32), *INT8
        if len(kernel) > 3 or len(node.outputs) > 1 or p.known[node.inputs[0]].dtype not in types:
            return False
        if len(kernel) == 3:
            return conv3d.lower_pool(p, node, kind)
        strides, dilations, pads = conv_geometry.window(node, shape[2:], kernel)
        if len(kernel) == 1:
            kernel, strides, dilations, pads = [1, *kernel], [1, *strides], [1, *dilations], [(0, 0), *pads]
        x, of_bytes = p.as_2d(p.at(node.inputs[0])), p.known[node.inputs[0]].dtype in INT8
        if of_bytes:
            x = p.pixels(node, node.inputs[0])
        y = p.as_2d(p.result(node.output, image=True, direct=not of_bytes))
        more: dict[str, tuple] = (
            {"counted": conv_geometry.counted(node, x.shape[2:], pads)} if kind == "avg_pool" else {}
        )
        if of_bytes:
            x_q, y_q = (tuple(node.attrs.get(name) or (1.0, 0)) for name in ("x_q", "y_q"))
            more |= {"types": (x.dtype, y.dtype), "q": (x_q, y_q)}
        p.add(
            "qpool" if of_bytes else kind,
            node,
            x=x,
            y=y,
            kernel=tuple(kernel),
            stride=tuple(strides),
            before=(pads[0][0], pads[1][0]),
            dilation=tuple(dilations),
            **more,
        )
        return True

    return lower


def whole_mean(node, x):
    return mean_of(x, tuple(range(2, x.ndim)), True)


def _whole(mean):
    """Global pools: `mean`, or the largest."""

    def run(node, x):
        return whole_mean(node, x) if mean else x.max(tuple(range(2, x.ndim)), keepdims=True)

    def lower(p: LoweringContext, node):
        return lower_reduction(p, node, "mean" if mean else "max", tuple(range(2, len(p.known[node.inputs[0]].shape))))

    on_bytes = "QuantizedGlobalAveragePool" if mean else ""
    return Operator(
        run,
        Inference(whole_shape),
        Kernel(lower, writes_strided=True),
        traits=Traits(quantized_as=on_bytes, keeps_logits=True),
    )


_RARE = "no kernel: rare"
_NOTE = "up to three spatial axes"
RECORDS = {
    "AveragePool": Operator(
        average_pool,
        Inference(pool_shape),
        Kernel(lower_pool("avg_pool"), _NOTE, writes_strided=True),
        traits=Traits(quantized_as="QuantizedAveragePool", keeps_logits=True),
    ),
    "GlobalAveragePool": _whole(mean=True),
    "GlobalLpPool": Operator(_whole_lp_pool, Inference(whole_shape), NumPyOnly(_RARE)),
    "GlobalMaxPool": _whole(mean=False),
    "LpPool": Operator(_lp_pool, Inference(pool_shape), NumPyOnly(_RARE)),
    "MaxPool": Operator(
        _max_pool,
        Inference(pool_shape, dtype=lambda node, inputs, i: np.dtype(np.int64) if i else inputs[0].dtype),
        Kernel(
            lower_pool("max_pool"),
            _NOTE + ", without the indices of the maxima",
            dtypes=INT8_AND_FLOAT32,
            writes_strided=True,
        ),
        traits=Traits(moves_elements=lambda node: slice(0, 1) if len(node.outputs) == 1 else None, keeps_logits=True),
    ),
    "MaxUnpool": Operator(
        _max_unpool, Inference(_max_unpool_shape, shape_inputs=(2,), may_grow=True), NumPyOnly(_RARE), _read_unpool
    ),
}
