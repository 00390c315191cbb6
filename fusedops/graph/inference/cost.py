"""Predicted nanoseconds of layers in float32, int8 and bfloat16, of which only the ratios count."""

import math

from ... import _core
from ...activations import parse
from ...layers import ALGORITHMS
from ..operators import conv_geometry
from ..operators.registry import OPERATORS


def of_layer(node, x, y, layer):
    """(float32, int8, bfloat16) of a layer for the shapes of its input and result; `layer`: a convolution's Conv2d."""
    if "Conv" not in node.op:
        return _core.linear_nanoseconds(math.prod(x[:-1]), y[-1], x[-1])
    _, _, pads = _window(node, x, layer._weights_shape())
    return _of_convolution(layer, x, y, pads)


def of_others(nodes, shapes):
    """Nanoseconds in float32 of nodes that are no layers: of reading and writing their values, or of their
    multiply-adds at the rate of a middling product, whichever is more. `shapes` are those of computed values."""
    each = _core.linear_nanoseconds(64, 64, 64)[0] / 64**3
    total = 0.0
    for node in nodes:
        if OPERATORS[node.op].traits.moves_elements is None or "Pool" in node.op:
            values = [math.prod(shapes[v]) for v in (*node.reads(), *node.outputs) if v in shapes]
            total += max(_core.convert_nanoseconds(sum(values)), each * _multiply_adds(node, shapes))
    return total


def _multiply_adds(node, shapes):
    """Those of products of two computed values."""
    reads = [shapes.get(v) for v in node.inputs[:3]]
    if node.op == "MatMul" and reads[0] and node.output in shapes:
        return math.prod(shapes[node.output]) * reads[0][-1]
    if node.op == "SoftmaxProduct" and all(reads):
        q, k, v = reads
        return math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1])
    return 0


def unquantized(node, x, y, w):
    """How many times as fast a layer between bytes is in float32, its conversions counted, as in int8."""
    if "Conv" in node.op:
        strides, dilations, pads = _window(node, x, w)
        shape, groups = (*w[:2], *_image(w)), node.attrs.get("group", 1)
        layer = _core.Conv2dShape()._describe(shape, parse(None), strides, dilations, groups, True, ALGORITHMS["auto"])
        float_ns, ns, _ = _of_convolution(layer, x, y, pads)
    else:
        float_ns, ns, _ = of_layer(node, x, y, None)
    return ns / (float_ns + sum(_core.convert_nanoseconds(math.prod(shape)) for shape in (x, y)))


def _of_convolution(layer, x, y, pads):
    return layer._nanoseconds((x[0], *_image(x)), _image(y), pads[0][0], pads[1][0])


def _image(shape):
    """The two spatial sizes of a shape of three or four axes."""
    return (1, *shape[2:])[-2:]


def _window(node, x, w):
    """The window of a convolution over images, whose height is 1 where it has one spatial axis."""
    strides, dilations, pads = conv_geometry.window(node, x[2:], w[len(w) - len(x) + 2 :])
    return tuple([1, *strides][-2:]), tuple([1, *dilations][-2:]), [(0, 0), *pads][-2:]
