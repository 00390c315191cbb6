"""Activations: the graph has one operator for all, in the form of fusedops.activations."""

import numpy as np

from ... import _core, activations
from ..ir.graph import Node
from ..ir.graph_builder import GraphBuilder
from ..steps.lowering import LoweringContext
from .schema import Inference, Kernel, Operator, Rewrite, Traits, broadcast_shape


def activate(x, activation, channel_axis=1):
    """An activation, computed in float64 and rounded to the type of x; integers are clipped in their own type."""
    kind, p0, p1, slopes = activations.parse(activation)
    if x.dtype.kind in "iu" and activations.KINDS[kind] == "clip":  # float64 lacks integers of 64 bits
        info = np.iinfo(x.dtype)
        lo, hi = (x.dtype.type(int(min(max(p, info.min), info.max))) for p in (p0, p1))
        return np.minimum(np.maximum(x, lo), hi)
    form = activations.FORMS[activations.KINDS[kind]]
    parameters = (p0, p1)[: 2 if activations.KINDS[kind] == "clip" else len(form.defaults)]
    if slopes is not None:
        each = [-1 if a == channel_axis % x.ndim else 1 for a in range(x.ndim)]
        parameters = (slopes.reshape(each) if slopes.size > 1 else slopes,)
    with np.errstate(over="ignore", invalid="ignore"):
        return form.numpy(x.astype(np.float64), *parameters).astype(x.dtype)


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
    alpha = node.attrs.get("alpha", _as_attribute(1.6732632423543772))
    r.add(Node("Activation", node.name, node.inputs, [y], activation=("elu", alpha)))
    r.add(Node("Mul", f"{node.name}.mul", [y, gamma], node.outputs))


def _as_attribute(number):
    """A default as attributes of files have it, which are float32 also where elements are float64."""
    return float(np.float32(number))


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
    "LeakyRelu": _as(lambda a: ("leaky_relu", a.get("alpha", _as_attribute(0.01)))),
    "Relu": _as(lambda a: "relu"),
    "Selu": Rewrite(_read_selu, ("Activation", "Mul")),
    **{form.onnx: _as(lambda a, name=name: name) for name, form in activations.FORMS.items() if form.onnx is not None},
}
