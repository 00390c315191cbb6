"""Activations: the graph has one operator for all, in the form of fusedops.activations."""

import math

import numpy as np

from ... import _core, activations
from ..ir.graph import Node
from ..ir.graph_builder import GraphBuilder
from ..steps.lowering import LoweringContext
from .schema import Inference, Kernel, Operator, Rewrite, Traits, broadcast_shape


def erf(x):
    return np.array([math.erf(v) for v in x.ravel().tolist()], x.dtype).reshape(x.shape)


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def activate(x, activation, channel_axis=1):
    """An activation, computed in float64 and rounded to the type of x."""
    kind, p0, p1, slopes = activations.parse(activation)
    if slopes is not None and slopes.size > 1:
        slopes = slopes.reshape([-1 if a == channel_axis % x.ndim else 1 for a in range(x.ndim)])
    v, zero = x.astype(np.float64), np.zeros(())
    with np.errstate(over="ignore", invalid="ignore"):
        y = {
            "identity": lambda: v,
            "clip": lambda: np.minimum(np.maximum(v, p0), p1),
            "leaky_relu": lambda: np.where(v > 0, v, p0 * v),
            "prelu": lambda: np.where(v > 0, v, slopes * v),
            "elu": lambda: np.where(v > 0, v, p0 * np.expm1(np.minimum(v, zero))),
            "sigmoid": lambda: sigmoid(v),
            "tanh": lambda: np.tanh(v),
            "gelu": lambda: v / 2 * (1 + erf(v / math.sqrt(2))),
            "gelu_tanh": lambda: v / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
            "silu": lambda: v * sigmoid(v),
            "hardsigmoid": lambda: np.clip(v / 6 + 0.5, 0, 1),
            "hardswish": lambda: v * np.clip(v / 6 + 0.5, 0, 1),
            "softplus": lambda: np.logaddexp(v, 0),
            "mish": lambda: v * np.tanh(np.logaddexp(v, 0)),
        }[activations.KINDS[kind]]()
    return y.astype(x.dtype)


def lower_unary(name):
    def lower(p: LoweringContext, node):
        x = p.at(node.inputs[0])
        if x.dtype != np.float32:
            return lower_map(name)(p, node)
        y = p.result(node.output, like=x)
        p.add("unary", node, name=name, x=x, y=y, activation=p.activation(node))
        return True

    return lower


def lower_map(name, order=slice(None)):
    """Of elements of any type that the kernels take: of the operands in this order."""

    def lower(p: LoweringContext, node):
        if node.activation is not None or name not in _core.MAPS:
            return False
        operands, shape = [p.at(v) for v in node.inputs[order]], p.known[node.output].shape
        if len({x.dtype for x in operands[name == "where" :]}) > 1:
            return False
        y = p.result(node.output, like=next((x for x in operands if x.shape == shape), None))
        p.map(node, name, y, *operands)
        return True

    return lower


def _lower_activation(p: LoweringContext, node):
    *_, slopes = p.activation(node)
    if slopes is None:
        return lower_unary("identity")(p, node)
    x = p.at(node.inputs[0])
    y = p.result(node.output, like=x)
    each = slopes.reshape([-1 if a == 1 else 1 for a in range(len(x.shape))]) if slopes.size > 1 else slopes
    p.add("binary", node, name="prelu", a=x, b=np.broadcast_to(each, x.shape), y=y)
    return True


def _read_activation(form):
    """Reader of an activation; `form` makes it from the node's attributes."""

    def read(r: GraphBuilder, node):
        r.add(Node("Activation", node.name, node.inputs[:1], node.outputs, {}, activation=form(node.attrs)))

    return read


def _gelu_form(attrs):
    return "gelu_tanh" if attrs.get("approximate", "none") == "tanh" else "gelu"


def _read_hard_sigmoid(r: GraphBuilder, node):
    alpha, beta = node.attrs.get("alpha", 0.2), node.attrs.get("beta", 0.5)
    if np.float32(alpha) == np.float32(1 / 6) and beta == 0.5:
        return r.add(Node("Activation", node.name, node.inputs, node.outputs, activation="hardsigmoid"))
    scaled, shifted = r.fresh(node.name + ".scaled"), r.fresh(node.name + ".shifted")
    r.add(
        Node(
            "Mul", node.name + ".scale", [node.inputs[0], r.constant(node.name + ".alpha", alpha, np.float32)], [scaled]
        )
    )
    r.add(Node("Add", node.name + ".shift", [scaled, r.constant(node.name + ".beta", beta, np.float32)], [shifted]))
    r.add(Node("Activation", node.name, [shifted], node.outputs, activation=("clip", 0.0, 1.0)))


def _read_celu(r: GraphBuilder, node):
    """a elu(x / a): elu of slope 1 between two scalings."""
    alpha = r.constant(f"{node.name}.alpha", node.attrs.get("alpha", 1.0), np.float32)
    x, y = r.fresh(f"{node.name}.x"), r.fresh(f"{node.name}.y")
    r.add(Node("Div", f"{node.name}.div", [node.inputs[0], alpha], [x]))
    r.add(Node("Activation", node.name, [x], [y], activation=("elu", 1.0)))
    r.add(Node("Mul", f"{node.name}.mul", [y, alpha], node.outputs))


def _read_selu(r: GraphBuilder, node):
    """gamma elu(x)."""
    y = r.fresh(f"{node.name}.elu")
    gamma = r.constant(f"{node.name}.gamma", node.attrs.get("gamma", 1.0507009873554805), np.float32)
    r.add(
        Node("Activation", node.name, node.inputs, [y], activation=("elu", node.attrs.get("alpha", 1.6732632423543772)))
    )
    r.add(Node("Mul", f"{node.name}.mul", [y, gamma], node.outputs))


def _as(form):
    return Rewrite(_read_activation(form), ("Activation",))


RECORDS = {
    "Activation": Operator(
        lambda node, x: x,
        Inference(broadcast_shape),
        Kernel(_lower_activation, writes_strided=True),
        None,
        traits=Traits(keeps_logits=True, elementwise=True),
    ),
    "Celu": Rewrite(_read_celu, ("Div", "Activation", "Mul")),
    "Elu": _as(lambda a: ("elu", a.get("alpha", 1.0))),
    "Gelu": _as(_gelu_form),
    "HardSigmoid": Rewrite(_read_hard_sigmoid, ("Mul", "Add", "Activation")),
    "HardSwish": _as(lambda a: "hardswish"),
    "LeakyRelu": _as(lambda a: ("leaky_relu", a.get("alpha", 0.01))),
    "Mish": _as(lambda a: "mish"),
    "Relu": _as(lambda a: "relu"),
    "Selu": Rewrite(_read_selu, ("Activation", "Mul")),
    "Sigmoid": _as(lambda a: "sigmoid"),
    "Softplus": _as(lambda a: "softplus"),
    "Tanh": _as(lambda a: "tanh"),
}
