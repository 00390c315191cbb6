"""Images of three spatial axes (n, c, d, h, w), with their channels last in memory, by the kernels for two: slices of
the depth are images of a batch, and what goes along the depth sees images of d rows, each a whole slice."""

from functools import partial

import numpy as np

from ... import _core
from ...activations import parse
from ...layers import ALGORITHMS, Conv2d
from ...layers.conv3d import by_taps, depth_range, kernels, merges
from ..steps.lowering import LoweringContext
from ..steps.prepared import UnpackedLayer
from ..steps.tensor import channels_last, part
from . import conv_geometry


def unpacked_conv(key, w, b, *, activation, stride, dilation, groups, layout, algorithm):
    """The layer of a convolution of two axes, for the planner to choose its type."""
    options = dict(stride=stride, dilation=dilation, groups=groups, layout=layout, algorithm=algorithm)
    shape = _core.Conv2dShape()._describe(
        w.shape, parse(activation, len(w)), stride, dilation, groups, layout == "NHWC", ALGORITHMS[algorithm]
    )

    def make(precision):
        wide = w.astype(np.float32, copy=False)
        return Conv2d(wide, b, activation=activation, precision=precision, **options)

    return UnpackedLayer(key, make, shape)


def unpacked_conv_transpose(key, w, b, activation, stride, dilation, groups):
    """The same of a transposed convolution."""
    make = partial(_core.ConvTranspose2dPlan, activation=activation, stride=stride, dilation=dilation, groups=groups)
    return UnpackedLayer(key, partial(make, w, b), make(w.shape))


def depth_slices(x, image=None):
    """The slices of the depth as images (n d, c, h, w), or those of one image of the batch."""
    n, c, d, h, w = x.shape
    sn, *strides = x.strides
    x = x if image is None else x._replace(offset=x.offset + image * sn * x.dtype.itemsize)
    return x._replace(shape=(n * d if image is None else d, c, h, w), strides=(strides[1], strides[0], *strides[2:]))


def rows(x):
    """Images (n, c, d, h w): a row for each slice of the depth."""
    n, c, d, h, w = x.shape
    sn, sc, sd, _, sw = x.strides
    return x._replace(shape=(n, c, d, h * w), strides=(sn, sc, sd, sw))


def pixels_in_rows(p: LoweringContext, node, x):
    """Images as rows() has them, copied where the rows of a slice do not follow each other."""
    if x.strides[3] != x.shape[4] * x.strides[4]:
        x = p.dense(node, x, channels_last(x.shape))
    return rows(x)


def volume(p: LoweringContext, node, value):
    """The tensor of a value with its channels last."""
    x = p.at(value)
    return p.dense(node, x, channels_last(x.shape))


def _depth(x, begin, count, step):
    """Some slices of the depth."""
    every = slice(None)
    return part(x, [every, every, slice(begin, begin + (count - 1) * step + 1, step), every, every])


def _two_axes(*volumes):
    """The tensors of three spatial axes, or None, as those of two: once for all of a batch, or for each of its
    images."""
    images = [None] if all(map(merges, filter(None, volumes))) else range(volumes[0].shape[0])
    return [[t if t is None else depth_slices(t, image) for t in volumes] for image in images]


def lower_conv(p: LoweringContext, node, w, b):
    """A convolution whose taps along the depth are groups of channels; of one channel a group, a sum of one convolution
    for each tap."""
    strides, dilations, pads = conv_geometry.window(node, p.known[node.inputs[0]].shape[2:], w.shape[2:])
    if min(map(min, pads)) < 0:
        return False
    x, y = volume(p, node, node.inputs[0]), p.result(node.output, image=True, direct=False)
    residual = volume(p, node, node.residual) if node.residual else None
    lower = _depthwise if by_taps(w, node.attrs.get("group", 1)) else _dense
    lower(p, node, w, b, x, y, residual, strides, dilations, pads)
    return True


def _convolve(p, node, key, kernel, x, y, residual, strides, dilations, pads):
    (w, b, activation), exact = kernel, node.output in p.logits
    layer = unpacked_conv(
        key,
        w,
        b,
        activation=activation,
        stride=tuple(strides[1:]),
        dilation=tuple(dilations[1:]),
        groups=node.attrs.get("group", 1),
        layout="NHWC",
        algorithm="direct" if exact else "auto",
    )
    for images, result, added in _two_axes(x, y, residual):
        p.add("conv2d", node, layer=layer, x=images, y=result, residual=added, top=pads[1][0], left=pads[2][0])


def _dense(p, node, w, b, x, y, residual, strides, dilations, pads):
    (few, taps), groups = w.shape[1:3], node.attrs.get("group", 1)
    n, _, d, *size = x.shape
    if (taps, strides[0], pads[0]) != (1, 1, (0, 0)):
        depth = y.shape[2]
        shape = n, groups * taps * few, depth, *size
        gathered = p.new(shape, channels_last(shape))
        ranges = [depth_range(d, strides[0], depth, tap * dilations[0] - pads[0][0]) for tap in range(taps)]
        if any(lo > 0 or hi < depth for lo, hi in ranges):
            p.add("fill", node, y=gathered, value=0, size=4)
        for tap, (lo, hi) in enumerate(ranges):
            if lo < hi:
                source = _depth(x, lo * strides[0] + tap * dilations[0] - pads[0][0], hi - lo, strides[0])
                target = _depth(gathered, lo, hi - lo, 1)
                target = target._replace(offset=target.offset + 4 * tap * few)
                p.copy(
                    node,
                    *(
                        t._replace(
                            shape=(n, groups, few, hi - lo, *size), strides=(t.strides[0], stride, *t.strides[1:])
                        )
                        for t, stride in ((source, few), (target, taps * few))
                    ),
                )
        x = gathered
    (kernel,) = kernels(w, b, node.activation, groups)
    _convolve(p, node, node.name, kernel, x, y, residual, strides, dilations, pads)


def _depthwise(p, node, w, b, x, y, residual, strides, dilations, pads):
    depth, (front, back) = y.shape[2], pads[0]
    if front or back:
        n, c, d, *size = x.shape
        shape = n, c, d + front + back, *size
        padded = p.new(shape, channels_last(shape))
        p.add("fill", node, y=padded, value=0, size=4)
        p.copy(node, x, _depth(padded, front, d, 1))
        x = padded
    for tap, kernel in enumerate(kernels(w, b, node.activation, node.attrs.get("group", 1))):
        images = _depth(x, tap * dilations[0], depth, strides[0])
        _convolve(p, node, (node.name, tap), kernel, images, y, y if tap else residual, strides, dilations, pads)


def lower_conv_transpose(p: LoweringContext, node, w, b):
    """A sum of one transposed convolution for each tap along the depth, which writes every s-th slice."""
    _, strides, dilations, begins = conv_geometry.transposed(node, p.known[node.inputs[0]].shape[2:], w.shape[2:])
    x, y = volume(p, node, node.inputs[0]), p.result(node.output, image=True, direct=False)
    residual = volume(p, node, node.residual) if node.residual else None
    taps, groups, d, depth = w.shape[2], node.attrs.get("group", 1), x.shape[2], y.shape[2]
    # each slice of the result is that of one tap, which then ends it; else they are sums
    alone = taps == strides[0] and dilations[0] == 1 and begins[0] == 0 and depth == d * taps
    if not alone and residual is not None:
        p.copy(node, residual, y)
    elif not alone:
        p.add("fill", node, y=y, value=0, size=4)
    bias, activation = (b, p.activation(node, y.shape[1])) if alone else (None, parse(None))
    for tap in range(taps):
        offset = tap * dilations[0] - begins[0]
        lo, hi = depth_range(depth, strides[0], d, offset)
        options = activation, tuple(strides[1:]), tuple(dilations[1:]), groups
        layer = unpacked_conv_transpose((node.name, tap), w[:, :, tap], bias, *options)
        if lo < hi:
            first = lo * strides[0] + offset
            added = residual if alone else y
            written = [t and _depth(t, first, hi - lo, strides[0]) for t in (y, added)]
            for images, result, added in _two_axes(_depth(x, lo, hi - lo, 1), *written):
                p.add(
                    "conv_transpose",
                    node,
                    layer=layer,
                    x=images,
                    y=result,
                    residual=added,
                    top=begins[1],
                    left=begins[2],
                )
    if not alone and (b is not None or node.activation is not None):
        _end_sums(p, node, y, b)
    return True


def _end_sums(p, node, y, b):
    """Bias and activation of sums that are complete."""
    channels = y.shape[1]
    p.add(
        "affine",
        node,
        x=rows(y),
        y=rows(y),
        residual=None,
        scale=np.ones(channels, np.float32),
        shift=np.zeros(channels, np.float32) if b is None else b,
        activation=p.activation(node, channels),
    )


def lower_pool(p: LoweringContext, node, kind):
    """A pool of each slice, then one along the depth; bytes have no step for that."""
    if p.known[node.inputs[0]].dtype != np.float32:
        return False
    kernel = list(node.attrs["kernel_shape"])
    strides, dilations, pads = conv_geometry.window(node, p.known[node.inputs[0]].shape[2:], kernel)
    x, y = volume(p, node, node.inputs[0]), p.result(node.output, image=True, direct=False)
    inner = *x.shape[:3], *y.shape[3:]
    halfway = p.new(inner, channels_last(inner))
    steps = [
        (depth_slices(x), depth_slices(halfway), (kernel[1:], strides[1:], pads[1:], dilations[1:])),
        (rows(halfway), rows(y), ((kernel[0], 1), (strides[0], 1), (pads[0], (0, 0)), (dilations[0], 1))),
    ]
    for image, result, (k, s, pads, dilation) in steps:
        mean = {"counted": conv_geometry.counted(node, image.shape[2:], pads)} if kind == "avg_pool" else {}
        p.add(
            kind,
            node,
            x=image,
            y=result,
            kernel=tuple(k),
            stride=tuple(s),
            before=(pads[0][0], pads[1][0]),
            dilation=tuple(dilation),
            **mean,
        )
    return True


def lower_resize(p: LoweringContext, node, kind, axes, same):
    """A resizing of each slice, then one of the depth. `axes` are how each axis is resized, `same` how one is that
    stays as it is."""
    depth, height, width = axes
    x, y = volume(p, node, node.inputs[0]), p.result(node.output, image=True, direct=False)
    inner = *x.shape[:3], *y.shape[3:]
    halfway = p.new(inner, channels_last(inner), x.dtype)
    p.add(kind, node, x=depth_slices(x), y=depth_slices(halfway), rows=height, columns=width)
    p.add(kind, node, x=rows(halfway), y=rows(y), rows=depth, columns=same)
    return True
