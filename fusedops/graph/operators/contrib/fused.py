"""Operators of the domain com.microsoft, as ONNX Runtime's optimisers write them, read as the graph's own."""

import numpy as np

from ...ir.graph import Node, unique
from ...ir.graph_builder import GraphBuilder
from ...steps.lowering import LoweringContext
from .. import activation, conv, elementwise, norm, pool
from ..schema import Inference, Kernel, Operator, Rewrite, Traits

_READERS = {**activation.RECORDS, **conv.RECORDS, **elementwise.RECORDS, **norm.RECORDS, **pool.RECORDS}


def onnx(r: GraphBuilder, op, node, *inputs, result=None, **attrs):
    """Reads one of ONNX's operators in the place of a node, or of a part of it; returns its result."""
    result = result or r.fresh(f"{node.name}.{op}")
    name = unique(f"{node.name}.{op}", r.names)
    _READERS[op].read(r, Node(op, name, [v for v in inputs if v is not None], [result], attrs))
    return result


def activated(r: GraphBuilder, node, x, result):
    """What a fused node does last: its activation, or nothing."""
    kind, a = node.attrs.get("activation", ""), node.attrs
    given = list(
        a.get("activation_params") or [a[f"activation_{n}"] for n in ("alpha", "beta") if f"activation_{n}" in a]
    )
    if not kind:
        return r.node("Identity", node, x, result=result)
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}.get(kind, ())
    if kind == "Clip":
        low, high = (*given, -np.inf, np.inf)[:2] if len(given) == 2 else (-np.inf, np.inf)
        return r.add(Node("Activation", node.name, [x], [result], activation=("clip", float(low), float(high))))
    if kind not in activation.RECORDS:
        raise ValueError(f"{node.op} {node.name!r} has the activation {kind!r}, which fusedops does not have")
    return onnx(r, kind, node, x, result=result, **dict(zip(names, given, strict=False)))


def _plain_attrs(node):
    return {k: v for k, v in node.attrs.items() if not k.startswith("activation")}


def _read_fused_conv(r: GraphBuilder, node, channels_last=False):
    """activation(conv(x, w) + bias + z)."""
    x, w, b, z = ([*node.inputs, "", "", ""])[:4]
    x = moved(r, node, x, -1, 1) if channels_last else x
    y = onnx(r, "Conv", node, x, w, *[b] * bool(b), **_plain_attrs(node))
    y = moved(r, node, y, 1, -1) if channels_last else y
    y = r.node("Add", node, y, z) if z else y
    activated(r, node, y, node.output)


def _read_nhwc_max_pool(r: GraphBuilder, node):
    y = onnx(r, "MaxPool", node, moved(r, node, node.inputs[0], -1, 1), **node.attrs)
    moved(r, node, y, 1, -1, node.output)


def _read_fused_gemm(r: GraphBuilder, node):
    y = r.node("Gemm", node, *node.inputs, **_plain_attrs(node))
    activated(r, node, y, node.output)


def moved(r: GraphBuilder, node, x, source, destination, result=None):
    """x with an axis at another place."""
    if x in r.graph.constants and result is None:
        return r.constant(f"{node.name}.moved", np.moveaxis(r.graph.constants[x], source, destination), r.dtype(x))
    return r.node("MoveAxis", node, x, result=result, source=source, destination=destination)


def product(r: GraphBuilder, node, a, b, result=None, scale=1.0):
    """scale * a b, with the transpositions that the node's attributes ask for: of batches first, then of the
    matrices."""
    for i, letter in enumerate("AB"):
        x = (a, b)[i]
        x = moved(r, node, x, 0, -2) if node.attrs.get(f"transBatch{letter}", 0) else x
        x = moved(r, node, x, -1, -2) if node.attrs.get(f"trans{letter}", 0) else x
        a, b = (x, b) if i == 0 else (a, x)
    if scale == 1:
        return r.node("MatMul", node, a, b, result=result)
    return r.node("Mul", node, r.node("MatMul", node, a, b), r.constant_like(node, "alpha", scale), result=result)


def _read_fused_matmul(r: GraphBuilder, node):
    a, b = node.inputs
    activated(r, node, product(r, node, a, b, scale=node.attrs.get("alpha", 1.0)), node.output)


def _read_gelu(form):
    """gelu(x), or of x with a bias."""

    def read(r: GraphBuilder, node):
        x = r.node("Add", node, *node.inputs) if node.input(1) else node.inputs[0]
        r.add(Node("Activation", node.name, [x], node.outputs, activation=form))

    return read


def _read_quick_gelu(r: GraphBuilder, node):
    """x sigmoid(alpha x)."""
    x, alpha = node.inputs[0], node.attrs.get("alpha", 1.702)
    scaled = x if alpha == 1 else r.node("Mul", node, x, r.constant_like(node, "alpha", alpha))
    r.node("Mul", node, x, onnx(r, "Sigmoid", node, scaled), result=node.output)


def _output(node, i):
    return node.outputs[i] if i < len(node.outputs) else ""


def simplified_norm(r: GraphBuilder, node, x, scale, eps, result, inverse=""):
    """x / sqrt(mean(x x) + eps) * scale, over the axes from the node's on."""
    if node.attrs.get("axis", -1) != -1:
        raise ValueError(
            f"{node.op} {node.name!r} works on axes from {node.attrs['axis']} on, fusedops on the last one: use axis=-1"
        )
    squares = r.node("ReduceMean", node, r.node("Mul", node, x, x), r.constant(f"{node.name}.axes", [-1]), keepdims=1)
    root = r.node("Sqrt", node, r.node("Add", node, squares, r.constant_like(node, "epsilon", eps)))
    inverse = r.node("Reciprocal", node, root, result=inverse or None)
    r.node("Mul", node, r.node("Mul", node, x, inverse), scale, result=result)


def _read_simplified(r: GraphBuilder, node):
    x, scale = node.inputs[:2]
    simplified_norm(r, node, x, scale, node.attrs.get("epsilon", 1e-5), node.output, _output(node, 1))


def _read_skip_norm(simplified):
    """A norm of the sum of two values and a bias, which is a result too."""

    def read(r: GraphBuilder, node):
        (x, skip, gamma), rest = node.inputs[:3], node.inputs[3:]
        beta, bias = ("", *rest, "")[:2] if simplified else (*rest, "", "")[:2]
        total = r.node("Add", node, x, bias) if bias else x
        total = r.node("Add", node, total, skip, result=_output(node, 3) or None)
        eps = node.attrs.get("epsilon", 1e-12 if not simplified else 1e-5)
        if simplified:
            return simplified_norm(r, node, total, gamma, eps, node.output, _output(node, 2))
        layer_norm(r, node, total, gamma, beta, eps, node.outputs[:3])

    return read


def layer_norm(r: GraphBuilder, node, x, gamma, beta, eps, outputs):
    while len(outputs) > 1 and not outputs[-1]:
        outputs = outputs[:-1]
    r.add(
        Node(
            "LayerNormalization",
            node.name,
            [x, gamma, *[beta] * bool(beta)],
            outputs,
            {"axis": -1, "epsilon": eps},
        )
    )


def read_embeddings(r: GraphBuilder, node):
    """The norm of the sum of what is looked up for words, positions and segments; and how long each row is."""
    ids, segments, words, positions, kinds, gamma, beta, mask, places = ([*node.inputs, *[""] * 9])[:9]
    ids = r.node("Cast", node, ids, to=7)
    total = r.node("Gather", node, words, ids, axis=0)
    if places:
        total = r.node(
            "Add", node, total, r.node("Gather", node, positions, r.node("Cast", node, places, to=7), axis=0)
        )
    else:
        length = r.node("Shape", node, ids, start=1, end=2)
        total = r.node(
            "Add", node, total, r.node("Slice", node, positions, r.constant(f"{node.name}.start", [0]), length)
        )
    if segments:
        total = r.node("Add", node, total, r.node("Gather", node, kinds, r.node("Cast", node, segments, to=7), axis=0))
    if _output(node, 2):
        r.node("Identity", node, total, result=_output(node, 2))
    layer_norm(r, node, total, gamma, beta, node.attrs.get("epsilon", 1e-12), node.outputs[:1])
    if _output(node, 1):
        axis = r.constant(f"{node.name}.axis", [1])
        counted = mask or r.node(
            "Mul", node, r.node("Cast", node, ids, to=6), r.constant(f"{node.name}.none", 0, np.int32)
        )
        r.node("ReduceSum", node, r.node("Cast", node, counted, to=6), axis, result=_output(node, 1), keepdims=0)


def _read_bias_softmax(r: GraphBuilder, node):
    """softmax(x + bias); a bias of fewer axes has the last ones of x, or of the same with 1 between."""
    x = r.node("Add", node, *node.inputs)
    r.add(Node("Softmax", node.name, [x], node.outputs, {"axis": node.attrs.get("axis", 1), "to_end": True}))


def _read_group_norm(r: GraphBuilder, node):
    """A norm of groups of channels, with SiLU if ``activation``; its images have their channels last or first."""
    _group_norm(r, node, node.inputs[0])


def _read_skip_group_norm(r: GraphBuilder, node):
    """A norm of groups of channels of the sum of an image, one that may have one value a channel, and a bias."""
    x, _, _, skip, bias = [*node.inputs, ""][:5]
    last = node.attrs.get("channels_last", 1)
    if len(r.shape(skip) or ()) == 2:
        skip = r.node("Unsqueeze", node, skip, r.constant(f"{node.name}.image", [1, 2] if last else [2, 3]))
    if bias and not last:
        bias = r.node("Unsqueeze", node, bias, r.constant(f"{node.name}.channel", [1, 2]))
    x = r.node("Add", node, x, bias) if bias else x
    _group_norm(r, node, r.node("Add", node, x, skip, result=_output(node, 1) or None))


def _group_norm(r: GraphBuilder, node, x):
    last = node.attrs.get("channels_last", 1)
    x = moved(r, node, x, -1, 1) if last else x
    y = norm.group_norm(r, node, x, node.attrs["groups"], *node.inputs[1:3])
    if node.attrs.get("activation", 0):
        y = r.node("Mul", node, y, onnx(r, "Sigmoid", node, y))
    return moved(r, node, y, 1, -1, node.output) if last else r.node("Identity", node, y, result=node.output)


def _move(node, x):
    return np.moveaxis(x, node.attrs["source"], node.attrs["destination"])


def _order(node, ndim):
    order = list(range(ndim))
    order.insert(node.attrs["destination"] % ndim, order.pop(node.attrs["source"] % ndim))
    return order


def _lower_move(p: LoweringContext, node):
    x = p.at(node.inputs[0])
    order = _order(node, len(x.shape))
    p.view(node.output, x._replace(shape=tuple(x.shape[a] for a in order), strides=tuple(x.strides[a] for a in order)))
    return True


def _as(op):
    """An operator that is one of ONNX's under another name."""

    def read(r: GraphBuilder, node):
        r.add(Node(op, node.name, node.inputs, node.outputs, node.attrs))

    return Rewrite(read, (op,))


_FUSED = Rewrite(_read_fused_matmul, ("MatMul",))
RECORDS = {
    "MoveAxis": Operator(
        _move,
        Inference(lambda node, x: tuple(x.shape[a] for a in _order(node, len(x.shape)))),
        Kernel(_lower_move),
        None,
        traits=Traits(keeps_logits=True),
    ),
    "SimplifiedLayerNormalization": Rewrite(_read_simplified, ("Mul", "ReduceMean")),
    **{
        f"com.microsoft.{name}": record
        for name, record in {
            "BiasGelu": Rewrite(_read_gelu("gelu"), ("Add", "Activation")),
            "BiasSoftmax": Rewrite(_read_bias_softmax, ("Add", "Softmax")),
            "EmbedLayerNormalization": Rewrite(read_embeddings, ("Gather", "Add", "LayerNormalization")),
            "FastGelu": Rewrite(_read_gelu("gelu_tanh"), ("Add", "Activation")),
            "FusedConv": Rewrite(_read_fused_conv, ("Conv", "Add", "Activation")),
            "FusedGemm": Rewrite(_read_fused_gemm, ("Gemm", "Activation")),
            "FusedMatMul": _FUSED,
            "FusedMatMulActivation": _FUSED,
            "GatherND": _as("GatherND"),
            "Gelu": Rewrite(_read_gelu("gelu"), ("Activation",)),
            "GroupNorm": Rewrite(_read_group_norm, ("InstanceNormalization", "BatchNormalization")),
            "NhwcConv": Rewrite(lambda r, node: _read_fused_conv(r, node, True), ("Conv",)),
            "NhwcFusedConv": Rewrite(lambda r, node: _read_fused_conv(r, node, True), ("Conv", "Add", "Activation")),
            "NhwcMaxPool": Rewrite(_read_nhwc_max_pool, ("MaxPool",)),
            "Pad": _as("Pad"),
            "QuickGelu": Rewrite(_read_quick_gelu, ("Mul", "Activation")),
            "Range": _as("Range"),
            "SkipGroupNorm": Rewrite(_read_skip_group_norm, ("Add", "InstanceNormalization", "BatchNormalization")),
            "SkipLayerNormalization": Rewrite(_read_skip_norm(simplified=False), ("Add", "LayerNormalization")),
            "SkipSimplifiedLayerNormalization": Rewrite(_read_skip_norm(simplified=True), ("Add", "Mul", "ReduceMean")),
            "TransposeMatMul": _FUSED,
            "Trilu": _as("Trilu"),
        }.items()
    },
}
