"""Convolutions and transposed convolutions."""

import math

import numpy as np

from ...layers import LARGEST, Conv2d, ConvTranspose2d
from ..steps.lowering import LoweringContext
from . import conv3d, conv_geometry
from .conv3d import unpacked_conv, unpacked_conv_transpose
from .schema import Inference, Kernel, Operator, floats

PHASES = 4096  # of a transposed convolution, each a plan of its own unless they are merged


def convolution(node, x, w, b=None):
    kernel, groups = w.shape[2:], node.attrs.get("group", 1)
    strides, dilations, pads = conv_geometry.window(node, x.shape[2:], kernel)
    v = conv_geometry.view(conv_geometry.padded(x, pads, 0), kernel, strides, dilations)
    out, taps = v.shape[2 : 2 + len(kernel)], math.prod(kernel)
    # n, groups, out..., c, kernel...
    v = np.moveaxis(v.reshape(x.shape[0], groups, -1, *v.shape[2:]), 2, 2 + len(kernel))
    v = v.reshape(x.shape[0], groups, math.prod(out), w.shape[1] * taps)
    y = v @ w.reshape(groups, -1, w.shape[1] * taps).swapaxes(1, 2)
    y = y.swapaxes(2, 3).reshape(x.shape[0], w.shape[0], *out)
    return y if b is None else y + b.reshape(-1, *[1] * len(kernel))


def _conv_transpose(node, x, w, b=None):
    kernel, groups = w.shape[2:], node.attrs.get("group", 1)
    sizes, strides, dilations, begins = conv_geometry.transposed(node, x.shape[2:], kernel)
    reach = _reach(x, w, strides, dilations)
    full = np.zeros(
        (x.shape[0], w.shape[1] * groups, *[max(r, b0 + o) for r, b0, o in zip(reach, begins, sizes, strict=True)]),
        x.dtype,
    )
    xg = x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)
    for tap in np.ndindex(*kernel):
        wt = w[(slice(None), slice(None), *tap)].reshape(groups, -1, w.shape[1])
        y = (wt.swapaxes(1, 2) @ xg).reshape(x.shape[0], -1, *x.shape[2:])
        full[
            (slice(None),) * 2
            + tuple(
                slice(t * d, t * d + (i - 1) * s + 1, s)
                for t, d, i, s in zip(tap, dilations, x.shape[2:], strides, strict=True)
            )
        ] += y
    y = full[(slice(None),) * 2 + tuple(slice(b0, b0 + o) for b0, o in zip(begins, sizes, strict=True))]
    return y if b is None else y + b.reshape(-1, *[1] * len(kernel))


def _reach(x, w, strides, dilations):
    """SymInts of what the taps of a transposed convolution write."""
    return [
        (i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations, strict=True)
    ]


def _check_channels(node, x, w, axis, each=1):
    """Whether the weights' size along an axis, times `each`, is the input's channels."""
    groups = node.attrs.get("group", 1)
    if len(x.shape) < 3 or len(w.shape) != len(x.shape) or groups < 1:
        raise ValueError(f"weights of {len(w.shape)} axes in {groups} groups do not fit an input of {len(x.shape)}")
    channels = w.shape[axis] * each
    if x.shape[1] != channels or w.shape[0] % groups:
        raise ValueError(f"the weights need an input of {channels} channels, in {groups} groups")


def convolution_shape(node, x, w, b=None):
    _check_channels(node, x, w, 1, node.attrs.get("group", 1))
    return (x.shape[0], w.shape[0], *conv_geometry.output_sizes(node, x.shape[2:], w.shape[2:]))


def _conv_transpose_shape(node, x, w, b=None):
    _check_channels(node, x, w, 0)
    sizes = conv_geometry.transposed(node, x.shape[2:], w.shape[2:])[0]
    if min(sizes) < 0:
        raise ValueError(f"the result would have the size {sizes}")
    return (x.shape[0], w.shape[1] * node.attrs.get("group", 1), *sizes)


def constant_weights(p: LoweringContext, node, shape, *allowed):
    """(weights, which may be float16, bias), or None where the layer cannot be prepared; `shape` is that of the
    operator's record."""
    w, b = p.data(node.inputs[1]), p.data(node.input(2))
    known = w is not None and w.ndim in allowed and (w.dtype == np.float16 or floats(w))
    if not known or not floats(b) or node.input(2) and b is None:
        return None
    if node.residual:
        product = tuple(shape(node, *[p.known[v] if v else None for v in node.inputs]))
        if not product == p.known[node.residual].shape == p.known[node.output].shape:
            return None
    return w, b


def _called(layer, node, shape, residual, x, w, b, strides, dilations, pads, **options):
    """The result of a layer for one call, whose weights the network computes. None where there is no such layer;
    `shape` is that of the operator's record."""
    arrays = (x, w, b, residual)
    if x.ndim not in (3, 4) or w.ndim != x.ndim or not floats(*arrays) or 0 in (*x.shape, *w.shape):
        return None
    if residual is not None and residual.shape != tuple(shape(node, x, w)):
        return None
    if min(p for pair in pads for p in pair) < 0:
        return None
    flat = x.ndim == 3
    if flat:
        x, w, residual = (a if a is None else a[:, :, np.newaxis] for a in (x, w, residual))
        strides, dilations, pads = [1, *strides], [1, *dilations], [(0, 0), *pads]
        options = {name: [0, *values] for name, values in options.items()}
    options = {name: tuple(values) for name, values in options.items()}
    y = layer(
        w,
        b,
        activation=node.activation,
        stride=tuple(strides),
        dilation=tuple(dilations),
        padding=tuple(pads),
        groups=node.attrs.get("group", 1),
        **options,
    )(x, residual)
    return y[:, :, 0] if flat else y


def _call_conv(node, residual, x, w, b=None):
    return _called(
        Conv2d, node, convolution_shape, residual, x, w, b, *conv_geometry.window(node, x.shape[2:], w.shape[2:])
    )


def _call_conv_transpose(node, residual, x, w, b=None):
    sizes, strides, dilations, begins = conv_geometry.transposed(node, x.shape[2:], w.shape[2:])
    ends = [r - size - begin for r, size, begin in zip(_reach(x, w, strides, dilations), sizes, begins, strict=True)]
    more = [max(-end, 0) for end in ends]
    fits = all(m < max(s, d) for m, s, d in zip(more, strides, dilations, strict=True))
    if not fits or 0 in sizes or math.prod(strides) > PHASES or max(*begins, *ends) > LARGEST:
        return None
    pads = [(begin, max(end, 0)) for begin, end in zip(begins, ends, strict=True)]
    return _called(
        ConvTranspose2d, node, _conv_transpose_shape, residual, x, w, b, strides, dilations, pads, output_padding=more
    )


def _comes_in_planes(p: LoweringContext, value):
    """Whether a value is an input of the network, as it is or in another type, or an image that stayed as one."""
    cast = p.producers.get(value)
    given = value if cast is None or cast.op != "Cast" else cast.inputs[0]
    return p.at(given).buffer.slot > 0 or value in p.planes


def _stays_in_planes(p: LoweringContext, node):
    """Whether the result may stay in planes: it is an output of the network that nothing reads, or its one reader is a
    1x1 convolution whose result is an output and may stay so. Converting a small network's image to channels last and
    back would take longer than its layers."""
    readers = p.graph.consumers().get(node.output, [])
    if node.residual or not readers or node.output in p.targets:
        return not node.residual and not readers
    reader = readers[0]
    if len(readers) != 1 or reader.op != "Conv" or reader.output not in p.targets or not _stays_in_planes(p, reader):
        return False
    w = p.data(reader.inputs[1])
    return (
        w is not None
        and set(w.shape[2:]) == {1}
        and reader.inputs[0] == node.output
        and _reads_planes(w, reader.attrs.get("group", 1))
    )


def _reads_planes(w, groups):
    """Whether the kernel of these weights reads images in planes: of other groups it reads channels last."""
    return groups == 1 or w.shape[1] == 1


def _lower_conv(p: LoweringContext, node):
    weights = constant_weights(p, node, convolution_shape, 3, 4, 5)
    if weights is None:
        return False
    w, b = weights
    if w.ndim == 5:
        return conv3d.lower_conv(p, node, w.astype(np.float32, copy=False), b)
    strides, dilations, pads = conv_geometry.window(node, p.known[node.inputs[0]].shape[2:], w.shape[2:])
    if w.ndim == 3:
        w, strides, dilations, pads = w[:, :, np.newaxis], [1, *strides], [1, *dilations], [(0, 0), *pads]
    groups = node.attrs.get("group", 1)
    # an input of the network is read in place, by the ungrouped kernel
    outer = _comes_in_planes(p, node.inputs[0])
    mixes = groups == 1 or w.shape[1] > 1  # depthwise kernels do not write planes of pixels, but of planes
    alone = outer and _reads_planes(w, groups) and _stays_in_planes(p, node)
    p.planes |= {node.output} if alone else set()
    # a softmax makes factors of differences: where logits are large, channels must round alike
    exact = node.output in p.logits
    # a part of the network, as quantization runs them, may end where all of it goes on
    key = (node.name, "planes") if alone else node.name
    layer = unpacked_conv(
        key,
        w,
        b,
        activation=node.activation,
        stride=tuple(strides),
        dilation=tuple(dilations),
        groups=groups,
        layout="NCHW" if alone else "NHWC",
        algorithm="direct" if exact else "auto",
    )
    x, y = (
        (p.image if outer and groups == 1 or alone else p.pixels)(node, node.inputs[0]),
        p.as_2d(p.result(node.output, image=not alone, direct=mixes or alone)),
    )
    x, pads = conv_geometry.cropped(node, x, pads)
    p.add("conv2d", node, layer=layer, x=x, y=y, residual=p.residual(node, y), top=pads[0][0], left=pads[1][0])
    return True


def _lower_conv_transpose(p: LoweringContext, node):
    weights = constant_weights(p, node, _conv_transpose_shape, 3, 4, 5)
    if weights is None:
        return False
    w, b = weights
    _, strides, dilations, begins = conv_geometry.transposed(node, p.known[node.inputs[0]].shape[2:], w.shape[2:])
    if np.prod(strides, dtype=object) > PHASES or max(map(abs, begins)) > LARGEST:
        return False
    if w.ndim == 5:
        return conv3d.lower_conv_transpose(p, node, w, b)
    if w.ndim == 3:
        w, strides, dilations, begins = w[:, :, np.newaxis], [1, *strides], [1, *dilations], [0, *begins]
    groups = node.attrs.get("group", 1)
    options = p.activation(node, w.shape[1] * groups), tuple(strides), tuple(dilations), groups
    layer = unpacked_conv_transpose(node.name, w, b, *options)
    x, y = p.image(node, node.inputs[0]), p.as_2d(p.result(node.output, image=True, direct=False))
    p.add("conv_transpose", node, layer=layer, x=x, y=y, residual=p.residual(node, y), top=begins[0], left=begins[1])
    return True


_NOTE = "up to three spatial axes, constant weights"
_FUSES = "residual", "activation", "slopes"
RECORDS = {
    "Conv": Operator(
        convolution,
        Inference(convolution_shape),
        Kernel(_lower_conv, _NOTE, fuses=_FUSES, writes_strided=True, weights="convolution"),
        run_layer=_call_conv,
    ),
    "ConvTranspose": Operator(
        _conv_transpose,
        Inference(_conv_transpose_shape, may_grow=True),
        Kernel(_lower_conv_transpose, _NOTE, fuses=_FUSES, writes_strided=True, weights="transposed convolution"),
        run_layer=_call_conv_transpose,
    ),
}
