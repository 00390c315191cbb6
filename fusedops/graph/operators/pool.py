"""Pools over windows and over whole images."""
import numpy as np

from ..builder import Builder
from ..reader import Reader
from . import windows
from .record import Operator, lowest
from .reduce import lower_reduction


def _pool_windows(node, x, border, beyond):
    """The windows of a pool and the axes to reduce. The padding has the value `border`, cells past it (ceil_mode) `beyond`."""
    kernel = node.attrs["kernel_shape"]
    strides, dilations, pads = windows.window(node, x.shape[2:], kernel)
    sizes = windows.output_sizes(node, x.shape[2:], kernel)
    past = [(0, max(0, (o - 1) * s + (k - 1) * d + 1 - i - sum(p)))
            for p, o, s, k, d, i in zip(pads, sizes, strides, kernel, dilations, x.shape[2:], strict=True)]
    n = len(kernel)
    v = windows.view(windows.padded(windows.padded(x, pads, border), past, beyond), kernel, strides, dilations)
    return v[(slice(None),) * 2 + tuple(slice(o) for o in sizes)], tuple(range(2 + n, 2 + 2 * n))


def _max_pool(node, x):
    v, axes = _pool_windows(node, x, lowest(x.dtype), lowest(x.dtype))
    return v.max(axes)


def _average_pool(node, x):
    v, axes = _pool_windows(node, x, 0, 0)
    counted, _ = _pool_windows(node, np.ones((1, 1, *x.shape[2:]), x.dtype), int(node.attrs.get("count_include_pad", 0)), 0)
    return v.sum(axes) / counted.sum(axes)


def _pool_shape(node, x):
    if len(x.shape) < 3 or len(node.attrs["kernel_shape"]) != len(x.shape) - 2:
        raise ValueError(f"a window of {len(node.attrs['kernel_shape'])} axes does not fit")
    return (*x.shape[:2], *windows.output_sizes(node, x.shape[2:], node.attrs["kernel_shape"]))


def _whole_shape(node, x):
    return (*x.shape[:2], *[1] * (len(x.shape) - 2))


def _lower_pool(kind):
    def lower(p: Builder, node):
        kernel, shape = list(node.attrs["kernel_shape"]), p.known[node.inputs[0]].shape
        if len(kernel) > 2:
            return False
        strides, dilations, pads = windows.window(node, shape[2:], kernel)
        if len(kernel) == 1:
            kernel, strides, dilations, pads = [1, *kernel], [1, *strides], [1, *dilations], [(0, 0), *pads]
        x, y = p.as_2d(p.at(node.inputs[0])), p.as_2d(p.result(node.output, image=True))
        (top, bottom), (left, right) = pads
        counted = {}
        if kind == "avg_pool":
            h, w = x.shape[2:]
            counted = {"counted": (-top, h + bottom, -left, w + right) if node.attrs.get("count_include_pad", 0) else (0, h, 0, w)}
        p.add(kind, node, x=x, y=y, kernel=tuple(kernel), stride=tuple(strides), before=(top, left), dilation=tuple(dilations), **counted)
        return True
    return lower


def _whole(mean):
    """Global pools: `mean`, or the largest."""
    def run(node, x):
        return (x.mean if mean else x.max)(tuple(range(2, x.ndim)), keepdims=True)

    def lower(p: Builder, node):
        return lower_reduction(p, node, "mean" if mean else "max", tuple(range(2, len(p.known[node.inputs[0]].shape))))
    return Operator(run, _whole_shape, lower, anywhere=True, weightless=True)


def _read_max_pool(r: Reader, node):
    if len(node.outputs) > 1:
        raise ValueError(f"max pool {node.name!r} gives the indices of its maxima, which fusedops does not")
    r.add(node)


_NOTE = "one or two spatial axes"
RECORDS = {
    "AveragePool": Operator(_average_pool, _pool_shape, _lower_pool("avg_pool"), anywhere=True, weightless=True, note=_NOTE),
    "GlobalAveragePool": _whole(mean=True),
    "GlobalMaxPool": _whole(mean=False),
    "MaxPool": Operator(_max_pool, _pool_shape, _lower_pool("max_pool"), _read_max_pool, anywhere=True, weightless=True, note=_NOTE),
}
