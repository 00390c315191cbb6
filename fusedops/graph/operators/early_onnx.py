"""Operators that ONNX had on trial before opset 7, as ONNX Runtime still runs them."""

import numpy as np

from ..ir.errors import BadNode
from ..ir.graph import Node
from ..ir.graph_builder import GraphBuilder
from .schema import Rewrite

_FIRST_NORM = 9  # opset in which ONNX defined MeanVarianceNormalization anew


def _affine(r: GraphBuilder, node, x, scale, shift, result):
    """scale x + shift."""
    y = r.node("Mul", node, x, r.constant_like(node, "scale", scale))
    return r.node("Add", node, y, r.constant_like(node, "shift", shift), result=result)


def _read_affine(r: GraphBuilder, node):
    _affine(r, node, node.inputs[0], node.attrs.get("alpha", 1.0), node.attrs.get("beta", 0.0), node.output)


def _read_scale(r: GraphBuilder, node):
    r.node(
        "Mul", node, node.inputs[0], r.constant_like(node, "scale", node.attrs.get("scale", 1.0)), result=node.output
    )


def crop(node):
    """The (starts, ends, axes) of the slice that a Crop is: of what its border (left, top, right, bottom) leaves, or,
    with a scale, of so many rows and columns."""
    border, size = node.get("border", ()), node.get("scale", (0, 0))
    if np.shape(border) != (4,) or np.shape(size) != (2,):
        raise BadNode(f"a Crop has the border {border} and the scale {size}")
    left, top, right, bottom = border
    if "scale" not in node:
        return [top, left], [-bottom or _END, -right or _END], [2, 3]
    rows, columns = size
    return [top, left], [top + rows, left + columns], [2, 3]


_END = 2**31 - 1


def _read_crop(r: GraphBuilder, node):
    given = [
        r.constant(f"{node.name}.{name}", v)
        for name, v in zip(("starts", "ends", "axes"), crop(node.attrs), strict=True)
    ]
    r.node("Slice", node, node.inputs[0], *given, result=node.output)


def _read_image_scaler(r: GraphBuilder, node):
    """scale x + the bias of each channel."""
    bias = np.reshape(node.attrs["bias"], (-1, 1, 1))
    y = r.node("Mul", node, node.inputs[0], r.constant_like(node, "scale", node.attrs.get("scale", 1.0)))
    r.node("Add", node, y, r.constant_like(node, "bias", bias), result=node.output)


def _read_scaled(form):
    """Reads alpha f(beta x)."""

    def read(r: GraphBuilder, node):
        y = r.node("Mul", node, node.inputs[0], r.constant_like(node, "beta", node.attrs.get("beta", 1.0)))
        made = r.fresh(f"{node.name}.{form}")
        r.add(Node("Activation", f"{node.name}.{form}", [y], [made], activation=form))
        r.node("Mul", node, made, r.constant_like(node, "alpha", node.attrs.get("alpha", 1.0)), result=node.output)

    return Rewrite(read, ("Mul", "Activation"))


def _read_thresholded(r: GraphBuilder, node):
    x = node.inputs[0]
    above = r.node("Greater", node, x, r.constant_like(node, "alpha", node.attrs.get("alpha", 1.0)))
    r.node("Where", node, above, x, r.constant_like(node, "zero", 0), result=node.output)


def _read_norm(r: GraphBuilder, node):
    """(x - mean) / (deviation + 1e-9); in the early form over each channel or all of them, perhaps the mean alone."""
    if r.opset < _FIRST_NORM:
        axes, divides = (
            [0, 1, 2, 3] if node.attrs.get("across_channels", 0) else [0, 2, 3],
            node.attrs.get("normalize_variance", 1),
        )
    else:
        axes, divides = node.attrs.get("axes", [0, 2, 3]), True
    axes = r.constant(f"{node.name}.axes", axes)
    mean = r.node("ReduceMean", node, node.inputs[0], axes, keepdims=1)
    if not divides:
        return r.node("Sub", node, node.inputs[0], mean, result=node.output)
    x = r.node("Sub", node, node.inputs[0], mean)
    deviation = r.node("Sqrt", node, r.node("ReduceMean", node, r.node("Mul", node, x, x), axes, keepdims=1))
    return r.node(
        "Div", node, x, r.node("Add", node, deviation, r.constant_like(node, "epsilon", 1e-9)), result=node.output
    )


_LINEAR = ("Mul", "Add")
RECORDS = {
    "Affine": Rewrite(_read_affine, _LINEAR),
    "Crop": Rewrite(_read_crop, ("Slice",)),
    "ImageScaler": Rewrite(_read_image_scaler, _LINEAR),
    "MeanVarianceNormalization": Rewrite(_read_norm, ("ReduceMean", "Sub", "Mul", "Sqrt", "Div")),
    "ParametricSoftplus": _read_scaled("softplus"),
    "Scale": Rewrite(_read_scale, ("Mul",)),
    "ScaledTanh": _read_scaled("tanh"),
    "ThresholdedRelu": Rewrite(_read_thresholded, ("Greater", "Where")),
}
