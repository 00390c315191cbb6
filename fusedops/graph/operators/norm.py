"""Norms, and softmax."""

import math

import numpy as np

from ...batchnorm import BatchNorm, scale_and_shift
from ..ir.graph_builder import GraphBuilder
from ..steps.lowering import LoweringContext
from ..steps.tensor import broadcast, broadcast_shapes, in_order_of, row_major, same_order
from . import conv3d
from .schema import (
    Inference,
    Kernel,
    Operator,
    Rewrite,
    Traits,
    axis_of,
    floats,
    mean_of,
    read_to_end,
    same_shape,
    sum_of,
)


def _batch_norm(node, x, scale, shift, mean, var):
    each = (-1, *[1] * (x.ndim - 2))
    if node.attrs.get("training_mode", 0):
        axes, momentum = tuple(a for a in range(x.ndim) if a != 1), node.attrs.get("momentum", 0.9)
        seen_mean, seen_var = mean_of(x, axes), x.var(axes, dtype=np.float64).astype(x.dtype)
        running = mean * momentum + seen_mean * (1 - momentum), var * momentum + seen_var * (1 - momentum)
        mean, var = seen_mean, seen_var
    factor = scale.astype(np.float64) / np.sqrt(var.astype(np.float64) + node.attrs.get("epsilon", 1e-5))
    offset = shift - mean * factor
    y = x * factor.astype(x.dtype).reshape(each) + offset.astype(x.dtype).reshape(each)
    return (y, *running) if node.attrs.get("training_mode", 0) else y


def _normalized(x, axes, eps):
    v = x.astype(np.float64)
    v = v - v.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt((v * v).mean(axes, keepdims=True) + eps)
    return v * inverse, inverse


def _layer_norm(node, x, scale, shift=None, residual=None):
    x = x if residual is None else x + residual
    axes = tuple(range(node.attrs.get("axis", -1) % x.ndim, x.ndim))
    v, inverse = _normalized(x, axes, node.attrs.get("epsilon", 1e-5))
    y = (v * scale if shift is None else v * scale + shift).astype(x.dtype)
    return y, mean_of(x, axes, True), inverse.astype(x.dtype)


def _rms_norm(node, x, scale):
    v = x.astype(np.float64)
    axes = tuple(range(node.attrs.get("axis", -1) % x.ndim, x.ndim))
    inverse = 1 / np.sqrt((v * v).mean(axes, keepdims=True) + node.attrs.get("epsilon", 1e-5))
    return (v * inverse * scale).astype(x.dtype)


def _instance_norm(node, x, scale, shift):
    each = (-1, *[1] * (x.ndim - 2))
    v, _ = _normalized(x, tuple(range(2, x.ndim)), node.attrs.get("epsilon", 1e-5))
    return (v * scale.reshape(each) + shift.reshape(each)).astype(x.dtype)


def _lrn(node, x):
    size, channels = node.attrs["size"], x.shape[1]
    squares = np.zeros_like(x)
    for c in range(channels):
        squares[:, c] = np.square(x[:, max(0, c - (size - 1) // 2) : min(channels, c + size // 2 + 1)]).sum(1)
    return x / (node.attrs.get("bias", 1.0) + node.attrs.get("alpha", 1e-4) / size * squares) ** node.attrs.get(
        "beta", 0.75
    )


def _softmax(node, x):
    axis = node.attrs.get("axis", -1) % max(x.ndim, 1)
    axes = tuple(range(axis, x.ndim)) if node.attrs.get("to_end") else axis
    e = x - x.max(axes, keepdims=True)
    if node.op == "LogSoftmax":
        return e - np.log(sum_of(np.exp(e), axes, True))
    e = np.exp(e)
    return e / sum_of(e, axes, True)


def _lp_normalized(node, x):
    """x over its norm along an axis, and 0 where that is 0."""
    axis, p = node.attrs.get("axis", -1), node.attrs.get("p", 2)
    v = x.astype(np.float64)
    norm = np.abs(v).sum(axis, keepdims=True) if p == 1 else np.sqrt((v * v).sum(axis, keepdims=True))
    return np.divide(v, norm, out=np.zeros_like(v), where=norm != 0).astype(x.dtype)


_LEAST = float(np.finfo(np.float32).tiny)  # under a norm, so that 0 by it is 0


def _lower_lp_normalized(p: LoweringContext, node):
    """By the sum of magnitudes; or by the largest of them, so that no square is lost, then as an RMS norm whose scale
    makes a sum of the mean."""
    x, order = p.at(node.inputs[0]), node.attrs.get("p", 2)
    axis = axis_of(node, len(x.shape), -1)
    n = x.shape[axis]
    if x.dtype != np.float32 or not isinstance(n, int) or not n:
        return False
    y = p.result(node.output, like=x)
    total = p.new((*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    p.add("unary", node, name="abs", x=x, y=y)
    p.add("reduce", node, name="sum" if order == 1 else "max", x=y, y=total, axes=(axis,))
    p.add("binary", node, name="max", a=total, b=np.full(total.shape, _LEAST, np.float32), y=total, activation=None)
    p.add("binary", node, name="div", a=x, b=broadcast(total, x.shape), y=y, activation=None)
    if order == 2:
        rows, scale = _axis_last(y, axis), np.full(n, n**-0.5, np.float32)
        p.add("norm", node, x=rows, y=rows, eps=_LEAST, scale=scale, first_axis=len(x.shape) - 1, rms=True)
    return True


def _axis_last(t, axis):
    moved = [*t.shape[:axis], *t.shape[axis + 1 :]], [*t.strides[:axis], *t.strides[axis + 1 :]]
    return t._replace(shape=(*moved[0], t.shape[axis]), strides=(*moved[1], t.strides[axis]))


def _batch_norm_shape(node, x, *parameters):
    return [x.shape, *(s.shape for s in parameters[2:])]


def _softmax_shape(node, x):
    axis_of(node, len(x.shape), -1)
    return x.shape


def _layer_norm_shape(node, x, scale, shift=None, residual=None):
    axis = axis_of(node, len(x.shape), -1)
    seen = (*x.shape[:axis], *[1] * (len(x.shape) - axis))
    return [x.shape, seen, seen]


def _norm_result(p: LoweringContext, node, x):
    """Where a norm over the pixels of x writes: in x's layout where that is row-major, else with its channels last.
    Both are evenly spaced."""
    return p.result(node.output, image=not same_order(x.shape, x.strides, row_major(x.shape)))


def _lower_batch_norm(p: LoweringContext, node):
    bn, x = [p.data(v) for v in node.inputs[1:5]], p.at(node.inputs[0])
    if (
        any(a is None for a in bn)
        or not floats(*bn)
        or node.attrs.get("training_mode", 0)
        or len(x.shape) not in (2, 3, 4, 5)
    ):
        return False
    if (
        node.residual
        and p.known[node.residual].shape != x.shape
        or not np.all(bn[3] + node.attrs.get("epsilon", 1e-5) > 0)
    ):
        return False
    gamma, beta, mean, var = bn
    scale, shift = scale_and_shift(BatchNorm(gamma, beta, mean, var, node.attrs.get("epsilon", 1e-5)), x.shape[1])
    y = _norm_result(p, node, x)
    order = in_order_of(y.shape, y.strides)

    def ordered(t):
        return p.dense(node, t, t.strides if same_order(t.shape, t.strides, y.strides) else order)

    x, r = ordered(x), ordered(p.at(node.residual)) if node.residual else None
    if len(x.shape) == 5:
        x, y, r = conv3d.rows(x), conv3d.rows(y), None if r is None else conv3d.rows(r)
    p.add(
        "affine",
        node,
        x=x,
        y=y,
        residual=r,
        scale=scale.astype(np.float32),
        shift=shift.astype(np.float32),
        activation=p.activation(node, y.shape[1]),
    )
    return True


def _lower_layer_norm(p: LoweringContext, node):
    parameters, x = [p.data(v) for v in node.inputs[1:3] if v], p.at(node.inputs[0])
    axis = node.attrs.get("axis", -1) % len(x.shape)
    if (
        any(node.outputs[1:])
        or not floats(*parameters)
        or [np.shape(a) for a in parameters] != [x.shape[axis:]] * len(parameters)
    ):
        return False
    y, order = p.result(node.output), row_major(x.shape)
    scale, shift = (*parameters, None)[:2]
    residual = p.dense(node, p.at(node.inputs[3]), order) if node.input(3) else None
    p.add(
        "norm",
        node,
        x=p.dense(node, x, order),
        y=y,
        residual=residual,
        eps=node.attrs.get("epsilon", 1e-5),
        scale=scale,
        shift=shift,
        first_axis=axis,
    )
    return True


def _lower_rms_norm(p: LoweringContext, node):
    """A scale that is not one constant for each element is a product after it."""
    x, scale = p.at(node.inputs[0]), p.data(node.inputs[1])
    axis, order = node.attrs.get("axis", -1) % len(x.shape), row_major(x.shape)
    inside = isinstance(scale, np.ndarray) and scale.shape == x.shape[axis:]
    if p.known[node.inputs[1]].dtype != np.float32:
        return False
    y, eps = p.result(node.output), node.attrs.get("epsilon", 1e-5)
    scale = scale if inside else None
    p.add("norm", node, x=p.dense(node, x, order), y=y, eps=eps, scale=scale, first_axis=axis, rms=True)
    if not inside:
        factor = broadcast(p.at(node.inputs[1]), y.shape)
        p.add("binary", node, name="mul", a=y, b=factor, y=y, activation=None)
    return True


def _rms_norm_shape(node, x, scale):
    axis_of(node, len(x.shape), -1)
    if broadcast_shapes(x.shape, scale.shape) != x.shape:
        raise ValueError(f"a scale of shape {scale.shape} does not fit {x.shape}")
    return x.shape


def _lower_instance_norm(p: LoweringContext, node):
    scale, shift, x = p.data(node.inputs[1]), p.data(node.inputs[2]), p.at(node.inputs[0])
    if scale is None or shift is None or not floats(scale, shift) or len(x.shape) not in (3, 4, 5):
        return False
    y = _norm_result(p, node, x)
    x, y = (conv3d.pixels_in_rows(p, node, x), conv3d.rows(y)) if len(x.shape) == 5 else (p.as_2d(x), p.as_2d(y))
    p.add("instance_norm", node, x=x, y=y, eps=node.attrs.get("epsilon", 1e-5), scale=scale, shift=shift)
    return True


def _lower_lrn(p: LoweringContext, node):
    x = p.at(node.inputs[0])
    if len(x.shape) != 4:
        return False
    x, y, a = p.pixels(node, node.inputs[0]), p.result(node.output, image=True, direct=False), node.attrs
    p.add(
        "lrn",
        node,
        x=x,
        y=y,
        size=a["size"],
        alpha=a.get("alpha", 1e-4),
        beta=a.get("beta", 0.75),
        bias=a.get("bias", 1.0),
    )
    return True


def _lower_softmax(p: LoweringContext, node):
    x = p.at(node.inputs[0])
    axis, log = node.attrs["axis"] % max(len(x.shape), 1), node.op == "LogSoftmax"
    if node.attrs["to_end"] and axis != len(x.shape) - 1:
        y = p.result(node.output)
        flat = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
        x, y, axis = p.reshape(node, x, flat), y._replace(shape=flat, strides=row_major(flat)), 1
    else:
        y = p.result(node.output, like=x)
    p.add("softmax", node, x=x, y=y, axis=axis, log=log)
    return True


def _read_batch_norm(r: GraphBuilder, node):
    if node.attrs.get("spatial", 1) == 0:
        raise ValueError(f"batch norm {node.name!r} has spatial=0, one statistic a pixel, which fusedops does not have")
    if r.opset < 14 and len(node.outputs) > 1:
        raise ValueError(
            f"batch norm {node.name!r} is in training mode: export the network for inference (module.eval())"
        )
    r.add(node)


def group_norm(r: GraphBuilder, node, x, groups, scale, shift, result=None):
    """Each group of channels of x as one channel of an instance norm, then a factor and an addend for each channel;
    these are a batch norm where they are constant, which takes an activation and an addition into its step."""
    shape, kind = r.node("Shape", node, x), r.dtype(x) or np.float32
    rows = r.node("Reshape", node, x, r.constant(f"{node.name}.groups", [0, groups, -1]))
    ones, zeros = (r.constant(f"{node.name}.{n}", np.full(groups, n), kind) for n in (1, 0))
    y = r.node("InstanceNormalization", node, rows, ones, zeros, epsilon=node.attrs.get("epsilon", 1e-5))
    y = r.node("Reshape", node, y, shape)
    channels = r.shape(scale) if scale in r.graph.constants and shift in r.graph.constants else None
    if channels is not None:
        mean, var = (r.constant(f"{node.name}.{n}", np.full(channels, n), kind) for n in (0, 1))
        return r.node("BatchNormalization", node, y, scale, shift, mean, var, result=result, epsilon=0.0)
    axes = r.node("Range", node, *_spatial_axes(r, node, shape))
    scale, shift = (r.node("Unsqueeze", node, v, axes) for v in (scale, shift))
    return r.node("Add", node, r.node("Mul", node, y, scale), shift, result=result)


def _spatial_axes(r: GraphBuilder, node, shape):
    """The bounds of a Range over the axes 1, 2, ... of a channel's value, one for each spatial axis of an image."""
    one, first = r.constant(f"{node.name}.one", 1), r.constant(f"{node.name}.first", [0])
    axes = r.node("Squeeze", node, r.node("Shape", node, shape), first)
    return one, r.node("Sub", node, axes, one), one


def _read_group_norm(r: GraphBuilder, node):
    """Before opset 21 the parameters are those of groups."""
    x, scale, shift = node.inputs
    if r.opset >= 21:
        return group_norm(r, node, x, node.attrs["num_groups"], scale, shift, node.output)
    rows = r.node("Reshape", node, x, r.constant(f"{node.name}.groups", [0, node.attrs["num_groups"], -1]))
    y = r.node("InstanceNormalization", node, rows, scale, shift, epsilon=node.attrs.get("epsilon", 1e-5))
    r.node("Reshape", node, y, r.node("Shape", node, x), result=node.output)


_PARAMETERS = "constant parameters"
RECORDS = {
    "BatchNormalization": Operator(
        _batch_norm,
        Inference(_batch_norm_shape),
        Kernel(
            _lower_batch_norm,
            "up to three spatial axes, constant parameters",
            fuses={"residual", "activation", "slopes"},
            writes_strided=True,
        ),
        _read_batch_norm,
    ),
    "GroupNormalization": Rewrite(_read_group_norm, ("InstanceNormalization", "BatchNormalization")),
    "InstanceNormalization": Operator(
        _instance_norm,
        Inference(same_shape),
        Kernel(_lower_instance_norm, "up to three spatial axes, constant parameters"),
    ),
    "LRN": Operator(_lrn, Inference(same_shape), Kernel(_lower_lrn, "two spatial axes", writes_strided=True)),
    "LayerNormalization": Operator(
        _layer_norm,
        Inference(_layer_norm_shape),
        Kernel(_lower_layer_norm, _PARAMETERS + "; an addition in front of it is part of its step"),
    ),
    "LogSoftmax": Operator(
        _softmax, Inference(_softmax_shape), Kernel(_lower_softmax), read_to_end, traits=Traits(reads_logits=True)
    ),
    "LpNormalization": Operator(_lp_normalized, Inference(_softmax_shape), Kernel(_lower_lp_normalized)),
    "RMSNormalization": Operator(_rms_norm, Inference(_rms_norm_shape), Kernel(_lower_rms_norm)),
    "Softmax": Operator(
        _softmax, Inference(_softmax_shape), Kernel(_lower_softmax), read_to_end, traits=Traits(reads_logits=True)
    ),
}
