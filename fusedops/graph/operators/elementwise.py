"""Arithmetic, comparisons and logic, element by element."""

import numpy as np

from ..._internal import bfloat16
from ...activations import erf
from ..ir.dtypes import BFLOAT16, BY_ONNX, MOVED, PROGRAM, from_onnx, to_onnx
from ..ir.graph import Node
from ..ir.graph_builder import GraphBuilder
from ..ir.symbolic import is_symbolic
from ..steps.lowering import LoweringContext
from ..steps.tensor import broadcast, in_order_of
from .activation import lower_map, lower_unary
from .schema import (
    Inference,
    Kernel,
    NumPyOnly,
    Operator,
    Rewrite,
    Traits,
    always,
    as_first,
    broadcast_shape,
    by_numpy,
    plain,
    same_shape,
)
from .shape_ops import lower_same


def _to_zero(a, b):
    """The quotient of two integers as in C."""
    q = abs(a) // abs(b)
    return -q if (a < 0) != (b < 0) else q


def quotient(a, b):
    """Of arrays of integers, towards zero; 0 by 0, and the lowest by -1 wraps around. Without absolute values, which
    the lowest integer does not have."""
    if object in (a.dtype, b.dtype):
        return np.vectorize(_to_zero, [object])(a, b)
    with np.errstate(all="ignore"):
        return np.floor_divide(a - np.fmod(a, b), b)


def _div(node, a, b):
    return a / b if a.dtype.kind == "f" else quotient(a, b).astype(a.dtype)


def _mod(node, a, b):
    return (np.fmod if node.attrs.get("fmod", 0) else np.mod)(a, b)


def _clip(node, x, lo=None, hi=None):
    x = x if lo is None else np.maximum(x, lo)
    return x if hi is None else np.minimum(x, hi)


def _holds(dtype, n):
    """Whether a type of integers has a number, which sizes of a plan are from then on."""
    return np.iinfo(dtype).min <= n <= np.iinfo(dtype).max


def _cast_type(node):
    """Readers make bfloat16 float32, but where it is only moved (ir/float16_moves.py)."""
    to = node.attrs["to"]
    return BFLOAT16 if to == to_onnx(BFLOAT16) else from_onnx(to)


def _cast(node, x):
    to = _cast_type(node)
    if BFLOAT16 in (to, x.dtype):
        return bfloat16.cast(x, to)
    if x.dtype == object and to.kind in "iu" and (to == np.int64 or all(_holds(to, n) for n in x.reshape(-1))):
        return x  # SymInts of a plan
    return x.astype(to)


def _narrow(node, x):
    """Rounded to float16 or bfloat16, as float32."""
    if BY_ONNX[node.attrs["type"]].name == "float16":
        return x.astype(np.float16).astype(np.float32)
    return bfloat16.rounded(x.astype(np.float32))


def _is_inf(node, x):
    """Infinities, of one sign or both."""
    signs = [sign for sign, name in ((-1, "detect_negative"), (1, "detect_positive")) if node.attrs.get(name, 1)]
    return np.isinf(x) & np.isin(np.sign(x), signs)


def _rounded(function):
    """Of integers too, whose result is one again: what a reduction of integers takes the root or logarithm of."""

    return lambda node, x: function(x).astype(x.dtype)


def _power(node, a, b):
    return np.power(a, b).astype(a.dtype)


def _prelu(node, x, slope):
    return np.where(x > 0, x, slope * x)


def _lower_binary(name):
    def lower(p: LoweringContext, node):
        a, b = map(p.at, node.inputs)
        if b.dtype != np.float32 and name == "pow":
            b = _as_float(p, node, node.inputs[1])
        if {a.dtype, b.dtype} != {np.dtype(np.float32)}:
            return lower_map(name)(p, node)
        shape = p.known[node.output].shape
        whole = [t for t in (a, b) if t.shape == shape and t.buffer.array is None]
        y = p.result(node.output, like=whole[0] if whole else None)
        p.add(
            "binary", node, name=name, a=broadcast(a, shape), b=broadcast(b, shape), y=y, activation=p.activation(node)
        )
        return True

    return lower


def _as_float(p, node, value):
    """A value as float32."""
    data = p.data(value)
    if isinstance(data, np.ndarray) and not is_symbolic(data):
        return p.constant(data.astype(np.float32), data.shape)
    x = p.at(value)
    y = p.new(x.shape, dtype=np.dtype(np.float32))
    p.map(node, "cast", y, x)
    return y


def _lower_clip(p: LoweringContext, node):
    """Bounds that are computed: the larger of x and one, the smaller of that and the other."""
    bounds = [(name, v) for name, v in zip(("max", "min"), node.inputs[1:], strict=False) if v]
    if not bounds or any(p.known[v].dtype != np.float32 for _, v in bounds):
        return False
    x, shape = p.at(node.inputs[0]), p.known[node.output].shape
    for i, (name, v) in enumerate(bounds):
        last = i == len(bounds) - 1
        y = p.result(node.output, like=x) if last else p.new(shape, in_order_of(shape, broadcast(x, shape).strides))
        activation = p.activation(node) if last else None
        p.add("binary", node, name=name, a=broadcast(x, shape), b=broadcast(p.at(v), shape), y=y, activation=activation)
        x = y
    return True


def _lower_cast(p: LoweringContext, node):
    same = p.known[node.inputs[0]].dtype == p.known[node.output].dtype
    return lower_same(p, node) if same else lower_map("cast", slice(1))(p, node)


def _lower_narrow(p: LoweringContext, node):
    name = BY_ONNX[node.attrs["type"]].name
    return p.known[node.inputs[0]].dtype == np.float32 and lower_map(name)(p, node)


def _read_sum(r: GraphBuilder, node):
    """A sum of many as additions of two, in order."""
    total = node.inputs[0]
    for i, v in enumerate(node.inputs[1:], 1):
        last = i == len(node.inputs) - 1
        result = node.output if last else r.fresh(f"{node.name}.{i}")
        r.add(Node("Add", node.name if last else f"{node.name}.{i}", [total, v], [result]))
        total = result
    if len(node.inputs) == 1:
        r.add(Node("Identity", node.name, node.inputs, node.outputs))


def _read_extreme(r: GraphBuilder, node):
    """The largest or smallest of many values as that of two, in order."""
    best = node.inputs[0]
    for i, v in enumerate(node.inputs[1:-1], 1):
        result = r.fresh(f"{node.name}.{i}")
        r.add(Node(node.op, f"{node.name}.{i}", [best, v], [result]))
        best = result
    r.add(
        Node(node.op, node.name, [best, *node.inputs[-1:]], node.outputs)
        if len(node.inputs) > 1
        else Node("Identity", node.name, node.inputs, node.outputs)
    )


def _read_mean(r: GraphBuilder, node):
    if len(node.inputs) == 1:
        return r.add(Node("Identity", node.name, node.inputs, node.outputs))
    total = r.fresh(f"{node.name}.sum")
    _read_sum(r, Node("Sum", f"{node.name}.sum", node.inputs, [total]))
    r.node("Div", node, total, r.constant_like(node, "count", len(node.inputs)), result=node.output)


def _read_clip(r: GraphBuilder, node):
    """Bounds that are constant make an activation; others stay an operator. Without bounds nothing is clipped, but
    before opset 11 these are the largest numbers by default, which infinities become."""
    most = float(np.finfo(np.float32).max)
    if r.opset < 11:
        lo, hi = node.attrs.get("min", -most), node.attrs.get("max", most)
    elif not any(node.inputs[1:]):
        return r.add(Node("Identity", node.name, node.inputs[:1], node.outputs))
    else:
        bounds = [r.known(node, i) for i in (1, 2)]
        floats = all(b is None or b.dtype in (np.float32, np.float16) and b.size == 1 for b in bounds)
        if not floats or any(b is None and node.input(i) for i, b in enumerate(bounds, 1)):
            return r.add(node)
        lo, hi = (b if b is None else b.item() for b in bounds)
        lo, hi = -np.inf if lo is None else lo, np.inf if hi is None else hi
    if not lo <= hi:
        bounds = [r.constant(f"{node.name}.bound", b, np.float32) for b in (lo, hi)]
        return r.add(Node("Clip", node.name, [node.inputs[0], *bounds], node.outputs))
    r.add(Node("Activation", node.name, node.inputs[:1], node.outputs, activation=("clip", float(lo), float(hi))))


def _read_shrink(r: GraphBuilder, node):
    """x + bias below -lambd, x - bias above lambd, else 0. Integers are floats meanwhile, which have a -lambd."""
    x, dtype, bias, bound = (
        node.inputs[0],
        r.dtype(node.inputs[0]),
        *(node.attrs.get(name, default) for name, default in (("bias", 0.0), ("lambd", 0.5))),
    )
    whole = dtype is not None and dtype.kind in "iu"
    x = r.node("Cast", node, x, to=to_onnx(np.float64)) if whole else x
    zero, by, low, high = (
        r.constant(f"{node.name}.{name}", n, r.dtype(x) or np.float32)
        for name, n in (("zero", 0), ("bias", bias), ("low", -bound), ("high", bound))
    )
    y = r.node("Where", node, r.node("Greater", node, x, high), r.node("Sub", node, x, by), zero)
    below, more = r.node("Less", node, x, low), r.node("Add", node, x, by)
    y = r.node("Where", node, below, more, y, result=None if whole else node.output)
    if whole:  # what leaves a type comes back at its other end
        r.node("Cast", node, r.node("Cast", node, y, to=to_onnx(np.int64)), to=to_onnx(dtype), result=node.output)


def _read_prelu(r: GraphBuilder, node):
    """The slopes of old opsets are one a channel; newer ones are broadcast as NumPy does."""
    slopes = r.graph.constant(node, 1)
    if r.upgraded and slopes is not None and slopes.ndim == 1:
        return r.add(Node("Activation", node.name, node.inputs[:1], node.outputs, activation=("prelu", slopes)))
    r.add(node)


def _read_cast(r: GraphBuilder, node):
    if node.attrs["to"] not in BY_ONNX:
        raise ValueError(
            f"cast {node.name!r} makes elements of ONNX's type {node.attrs['to']}, which NumPy does not have"
        )
    r.add(node)


def _lower_mod(p: LoweringContext, node):
    """Of integers; of floats what is beyond a whole number, x - floor(x)."""
    x, by = p.at(node.inputs[0]), p.data(node.inputs[1])
    if node.attrs.get("fmod", 0) or node.activation is not None:
        return False
    fraction = x.dtype == np.float32 and isinstance(by, np.ndarray) and x.shape == p.known[node.output].shape
    if not fraction or (by != 1).any():
        return lower_map("mod")(p, node)
    y, whole = p.result(node.output, like=x), p.new(x.shape, in_order_of(x.shape, x.strides))
    p.map(node, "floor", whole, x)
    p.add("binary", node, name="sub", a=x, b=whole, y=y, activation=None)
    return True


_BOOLS = "its results are not floats"
_SWAPPED = slice(None, None, -1)
_RARE = "no kernel: networks spend no time in it"


_FORMULA = Traits(elementwise=True)


def _unary(name, function, traits=_FORMULA):
    """A function of one value that a kernel has."""
    return Operator(
        by_numpy(function),
        Inference(broadcast_shape, symbolic=name in ("abs", "neg")),
        Kernel(lower_unary(name), dtypes=PROGRAM, fuses={"activation"}, writes_strided=True),
        traits=traits,
    )


def _binary(name, evaluate, read=plain, traits=Traits(), note=""):
    """A function of two values that a kernel has."""
    return Operator(
        evaluate,
        Inference(broadcast_shape, symbolic=name in ("add", "sub", "mul", "div", "max", "min")),
        Kernel(_lower_binary(name), note, dtypes=PROGRAM, fuses={"activation"}, writes_strided=True),
        read,
        traits,
    )


def _numpy(function):
    return Operator(by_numpy(function), Inference(broadcast_shape), NumPyOnly(_RARE))


def _mapped(function, name, *order, dtype=as_first, symbolic=False, inputs=1):
    """A function that a kernel of any elements has."""
    kernel = Kernel(lower_map(name, *order), dtypes=MOVED)
    return Operator(by_numpy(function, inputs), Inference(broadcast_shape, dtype, symbolic=symbolic), kernel)


def _test(function, name, *order):
    return _mapped(function, name, *order, dtype=always(np.bool_), symbolic=True)


RECORDS = {
    "Abs": _unary("abs", np.abs),
    "Acos": _numpy(np.arccos),
    "Acosh": _numpy(np.arccosh),
    "Add": _binary("add", by_numpy(np.add), traits=Traits(quantized_as="QuantizedAdd", elementwise=True)),
    "And": _test(np.logical_and, "and"),
    "Asin": _numpy(np.arcsin),
    "Asinh": _numpy(np.arcsinh),
    "Atan": _numpy(np.arctan),
    "Atanh": _numpy(np.arctanh),
    "Cast": Operator(
        _cast,
        Inference(same_shape, dtype=lambda node, inputs, i: _cast_type(node), symbolic=True),
        Kernel(
            _lower_cast,
            "between float32, float64, bool and integers of 8, 32 and 64 bits; float32 and float16 or bfloat16",
            dtypes=MOVED,
        ),
        _read_cast,
        traits=Traits(is_identity=lambda node, x: x is not None and x.dtype == _cast_type(node)),
    ),
    "CastLike": Operator(
        lambda node, x, like: x.astype(like.dtype),
        Inference(lambda node, x, like: x.shape, dtype=lambda node, inputs, i: as_first(node, inputs[1:], i)),
        Kernel(_lower_cast, dtypes=MOVED),
        traits=Traits(is_identity=lambda node, x, like: None not in (x, like) and x.dtype == like.dtype),
    ),
    "Ceil": _mapped(np.ceil, "ceil"),
    "Clip": Operator(
        _clip,
        Inference(broadcast_shape),
        Kernel(
            _lower_clip,
            "float32; bounds that are constant make an activation",
            fuses={"activation"},
            writes_strided=True,
        ),
        _read_clip,
        traits=Traits(elementwise=True),
    ),
    "Cos": _numpy(np.cos),
    "Cosh": _numpy(np.cosh),
    "Div": _binary("div", _div, traits=_FORMULA),
    "Equal": _test(np.equal, "equal"),
    "Erf": _unary("erf", erf),
    "Exp": _unary("exp", np.exp),
    "Floor": _mapped(np.floor, "floor"),
    "Greater": _test(np.greater, "less", _SWAPPED),
    "GreaterOrEqual": _test(np.greater_equal, "at_most", _SWAPPED),
    "IsInf": Operator(_is_inf, Inference(broadcast_shape, dtype=always(np.bool_)), NumPyOnly(_BOOLS)),
    "IsNaN": Operator(
        by_numpy(np.isnan), Inference(broadcast_shape, always(np.bool_), symbolic=True), NumPyOnly(_BOOLS)
    ),
    "Less": _test(np.less, "less"),
    "LessOrEqual": _test(np.less_equal, "at_most"),
    "Log": _unary("log", np.log)._replace(evaluate=_rounded(np.log)),
    "Max": _binary("max", by_numpy(np.maximum), _read_extreme),
    "Mean": Rewrite(_read_mean, ("Add", "Div")),
    "Min": _binary("min", by_numpy(np.minimum), _read_extreme),
    "Mod": Operator(
        _mod,
        Inference(broadcast_shape, symbolic=True),
        Kernel(
            _lower_mod, "integers of 32 and 64 bits, with the sign of the divisor, and float32 by 1", dtypes=PROGRAM
        ),
    ),
    "Mul": _binary("mul", by_numpy(np.multiply), traits=Traits(quantized_as="QuantizedMul", elementwise=True)),
    "Narrow": Operator(
        _narrow,
        Inference(same_shape, dtype=always(np.float32)),
        Kernel(_lower_narrow, "float32 rounded to float16 or bfloat16: casts to these and back"),
        None,
    ),
    "Neg": _unary("neg", np.negative),
    "Not": _test(np.logical_not, "not"),
    "Or": _test(np.logical_or, "or"),
    "PRelu": _binary("prelu", _prelu, _read_prelu),
    "Pow": _binary("pow", _power, traits=_FORMULA, note="of float32, the exponents of any type"),
    "Reciprocal": _unary("reciprocal", np.reciprocal),
    "Round": _mapped(np.rint, "round"),
    "Shrink": Rewrite(_read_shrink, ("Less", "Where")),
    "Sign": _mapped(np.sign, "sign"),
    "Sin": _numpy(np.sin),
    "Sinh": _numpy(np.sinh),
    "Sqrt": _unary("sqrt", np.sqrt)._replace(evaluate=_rounded(np.sqrt)),
    "Sub": _binary("sub", by_numpy(np.subtract), traits=Traits(quantized_as="QuantizedSub", elementwise=True)),
    "Sum": Rewrite(_read_sum, ("Add",)),
    "Tan": _numpy(np.tan),
    "Where": _mapped(np.where, "where", dtype=lambda node, inputs, i: inputs[1].dtype, symbolic=True, inputs=3),
    "Xor": _test(np.logical_xor, "xor"),
}
