"""Arithmetic, comparisons, logic and activations."""

import math

from ..... import activations


def _unary(op):
    def read(p, x):
        return p.op(op, p.cast(x, p.made.dtype))

    return read


def _test_unary(op):
    return lambda p, x: p.op(op, x)


def _binary(op):
    """Both operands in the type of the result. `alpha` is a factor of the second."""

    def read(p, x, other, alpha=1):
        dtype = p.made.dtype
        other = p.cast(other, dtype)
        return p.op(op, p.cast(x, dtype), other if alpha == 1 else p.op("Mul", other, p.cast(alpha, dtype)))

    return read


def _reversed_sub(p, x, other, alpha=1):
    dtype = p.made.dtype
    x = p.cast(x, dtype)
    return p.op("Sub", p.cast(other, dtype), x if alpha == 1 else p.op("Mul", x, p.cast(alpha, dtype)))


def _comparison(op):
    """Both operands in the type that torch compares them in."""

    def read(p, x, other):
        dtype = p.torch.result_type(*[_sample(p, v) for v in p.fx_node.args[:2]])
        return p.op(op, p.cast(x, dtype), p.cast(other, dtype))

    return read


def _sample(p, arg):
    """A tensor, or number, of the type and number of axes of an argument, to ask torch for types."""
    found = arg.meta["val"] if isinstance(arg, p.torch.fx.Node) else arg
    if isinstance(found, p.torch.Tensor):
        return p.torch.empty([1] * found.ndim, dtype=found.dtype)
    return 1.0 if isinstance(found, p.torch.SymFloat) else 1 if isinstance(found, p.torch.SymInt) else found


def _logic(op):
    return lambda p, x, other: p.op(op, p.cast(x, p.torch.bool), p.cast(other, p.torch.bool))


def _bits(op):
    """Of bools logic, of integers bit by bit."""

    def read(p, x, *given, **others):
        operands = [p.cast(v, p.made.dtype) for v in (x, *given, *others.values())]
        return p.op(op if p.made.dtype == p.torch.bool else f"Bitwise{op}", *operands)

    return read


def _shift(direction):
    return lambda p, x, other: p.op(
        "BitShift", p.cast(x, p.made.dtype), p.cast(other, p.made.dtype), direction=direction
    )


def _div(p, x, other, rounding_mode=None):
    dtype = p.made.dtype
    x, other = p.cast(x, dtype), p.cast(other, dtype)
    if rounding_mode is None:
        return p.op("Div", x, other)
    if dtype.is_floating_point:
        quotient = p.op("Div", x, other)
        return p.op("Floor", quotient) if rounding_mode == "floor" else _truncated(p, quotient)
    return p.op("Div", x if rounding_mode == "trunc" else p.op("Sub", x, p.op("Mod", x, other)), other)


def _floor_divide(p, x, other):
    return _div(p, x, other, "floor")


def _truncated(p, x):
    return p.op("Mul", p.op("Sign", x), p.op("Floor", p.op("Abs", x)))


def _trunc(p, x):
    return _truncated(p, x)


def _mod(fmod):
    def read(p, x, other):
        return p.op("Mod", p.cast(x, p.made.dtype), p.cast(other, p.made.dtype), fmod=fmod)

    return read


def _pow(p, x, exponent):
    """Small whole powers and roots as products, which cost less and are exact."""
    dtype = p.made.dtype
    x = p.cast(x, dtype)
    if exponent == 1 and not isinstance(exponent, bool):
        return p.op("Identity", x)
    if exponent in (2, 3, 4) and isinstance(exponent, (int, float)):
        square = p.op("Mul", x, x)
        return square if exponent == 2 else p.op("Mul", square, x if exponent == 3 else square)
    if dtype.is_floating_point and isinstance(exponent, (int, float)) and exponent in (0.5, -0.5, -1):
        root = x if exponent == -1 else p.op("Sqrt", x)
        return root if exponent == 0.5 else p.op("Reciprocal", root)
    return p.op("Pow", x, p.cast(exponent, dtype))


def _where(p, condition, **branches):
    if not branches:  # the places of what is not 0, for each axis an array
        places = p.op("NonZero", condition)
        return [p.op("Gather", places, p.constant("axis", i), axis=0) for i in range(condition.ndim)]
    a, b = branches["self"], branches["other"]
    return p.op("Where", p.cast(condition, p.torch.bool), p.cast(a, p.made.dtype), p.cast(b, p.made.dtype))


def _masked_fill(p, x, mask, value):
    return p.op("Where", mask, p.cast(value, p.made.dtype), p.cast(x, p.made.dtype))


def _round(p, x, decimals=0):
    if decimals == 0:
        return p.op("Round", x)
    factor = p.scalar(10.0**decimals, p.made)
    return p.op("Div", p.op("Round", p.op("Mul", x, factor)), factor)


def _clamp(p, x, min=None, max=None):
    """Bounds that are numbers make an activation."""
    x = p.cast(x, p.made.dtype)
    if p.made.dtype == p.torch.float32 and all(b is None or isinstance(b, (int, float)) for b in (min, max)):
        lo, hi = -math.inf if min is None else min, math.inf if max is None else max
        if lo <= hi:
            return p.activation(x, ("clip", float(lo), float(hi)))
    for op, bound in (("Max", min), ("Min", max)):
        x = x if bound is None else p.op(op, x, p.cast(bound, p.made.dtype))
    return x


def _hardtanh(p, x, min_val=-1.0, max_val=1.0):
    return _clamp(p, x, min_val, max_val)


def _activation(form):
    return lambda p, x: p.activation(p.cast(x, p.made.dtype), form)


def _elu(p, x, alpha=1.0, scale=1.0, input_scale=1.0):
    if (scale, input_scale) == (1, 1):
        return p.activation(x, ("elu", float(alpha)))
    x = p.op("Mul", x, p.scalar(input_scale, p.made))
    return p.op("Mul", p.activation(x, ("elu", float(alpha))), p.scalar(scale, p.made))


def _leaky_relu(p, x, negative_slope=0.01):
    return p.activation(x, ("leaky_relu", float(negative_slope)))


def _rrelu(p, x, lower=1 / 8, upper=1 / 3, training=False):
    return _leaky_relu(p, x, (lower + upper) / 2)


def _gelu(p, x, approximate="none"):
    return p.activation(x, "gelu_tanh" if approximate == "tanh" else "gelu")


def _softplus(p, x, beta=1.0, threshold=20.0):
    """log(1 + exp(beta x)) / beta; beyond the threshold it is x."""
    scaled = x if beta == 1 else p.op("Mul", x, p.scalar(beta, p.made))
    y = p.activation(scaled, "softplus")
    y = y if beta == 1 else p.op("Div", y, p.scalar(beta, p.made))
    return y if threshold >= 20 else p.op("Where", p.op("Greater", scaled, p.scalar(threshold, p.made)), x, y)


def _shrink(p, x, lambd=0.5, hard=True):
    """0 within -lambd to lambd; outside x, or x less lambd in size."""
    outside = p.op("Greater", p.op("Abs", x), p.scalar(lambd, p.made))
    beyond = x if hard else p.op("Sub", x, p.op("Mul", p.op("Sign", x), p.scalar(lambd, p.made)))
    return p.op("Where", outside, beyond, p.scalar(0, p.made))


def _threshold(p, x, threshold, value):
    return p.op("Where", p.op("Greater", x, p.scalar(threshold, p.made)), x, p.scalar(value, p.made))


def _prelu(p, x, weight):
    """One slope, or one for each channel, which is the second axis."""
    if tuple(weight.shape) not in ((), (1,)) and x.ndim > 2:
        weight = p.op("Reshape", weight, [-1, *[1] * (x.ndim - 2)])
    return p.op("PRelu", x, weight)


def _glu(p, x, dim=-1):
    a, b = p.op("Split", x, count=2, axis=dim, num_outputs=2)
    return p.op("Mul", a, p.op("Sigmoid", b))


def _chain(*steps):
    """Unary operators one after another."""

    def read(p, x):
        x = p.cast(x, p.made.dtype)
        for op in steps:
            x = p.op(op, x)
        return x

    return read


def _with_number(op, number, before=None, after=None):
    """An operator of a number and x, with x as `before` makes it; `after` is done to the result."""

    def read(p, x):
        x = p.cast(x, p.made.dtype)
        y = p.op(op, p.op(before, x) if before else x, p.scalar(number, p.made))
        return p.op(after, y) if after else y

    return read


def _exp2(p, x):
    return p.op("Pow", p.scalar(2, p.made), p.cast(x, p.made.dtype))


def _erfc(p, x):
    return p.op("Sub", p.scalar(1, p.made), p.op("Erf", x))


def _cast(p, x, *_, **__):
    return p.cast(x, p.made.dtype)


def _same(p, x, /, *_, **__):
    """What gives back its input: copies, detachments, dropouts that do nothing."""
    return x


def _fill(p, x, value):
    return p.op("Expand", p.cast(value, p.made.dtype), p.shape(p.made.shape))


def _copy(p, x, src):
    return p.op("Expand", p.cast(src, p.made.dtype), p.shape(p.made.shape))


def _atan2(p, x, other):
    """From the arc tangent of the quotient, moved by pi on the left half plane."""
    zero, pi = p.scalar(0, p.made), p.scalar(math.pi, p.made)
    turn = p.op("Where", p.op("Less", x, zero), p.op("Neg", pi), pi)
    angle = p.op("Atan", p.op("Div", x, other))
    angle = p.op("Where", p.op("Less", other, zero), p.op("Add", angle, turn), angle)
    return p.op("Where", p.op("And", p.op("Equal", x, zero), p.op("Equal", other, zero)), zero, angle)


def _hypot(p, x, other):
    return p.op("Sqrt", p.op("Add", p.op("Mul", x, x), p.op("Mul", other, other)))


def _copysign(p, x, other):
    """The size of x with the sign of another; that of -0 shows in 1 / -0."""
    other = p.cast(other, p.made.dtype) if hasattr(other, "dtype") else p.scalar(other, p.made)
    zero, size = p.scalar(0, p.made), p.op("Abs", p.cast(x, p.made.dtype))
    negative = p.op("Or", p.op("Less", other, zero), p.op("Less", p.op("Reciprocal", other), zero))
    return p.op("Where", negative, p.op("Neg", size), size)


def _ldexp(p, x, other):
    return p.op("Mul", p.cast(x, p.made.dtype), p.op("Pow", p.scalar(2, p.made), p.cast(other, p.made.dtype)))


READERS = {
    **{
        op.lower(): _unary(op)
        for op in (
            "Exp",
            "Log",
            "Sqrt",
            "Sin",
            "Cos",
            "Tan",
            "Asin",
            "Acos",
            "Atan",
            "Sinh",
            "Cosh",
            "Asinh",
            "Acosh",
            "Atanh",
            "Erf",
            "Reciprocal",
            "Abs",
            "Neg",
            "Ceil",
            "Floor",
            "Sign",
            "Relu",
            "Selu",
        )
    },
    **{
        name: _binary(op)
        for name, op in {
            "add": "Add",
            "sub": "Sub",
            "mul": "Mul",
            "multiply": "Mul",
            "maximum": "Max",
            "minimum": "Min",
        }.items()
    },
    **{
        name: _comparison(op)
        for name, op in {
            "eq": "Equal",
            "gt": "Greater",
            "ge": "GreaterOrEqual",
            "lt": "Less",
            "le": "LessOrEqual",
        }.items()
    },
    **{name: _logic(op) for name, op in {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}.items()},
    **{
        name: _bits(op)
        for name, op in {
            "bitwise_and": "And",
            "bitwise_or": "Or",
            "bitwise_xor": "Xor",
            "bitwise_not": "Not",
            "__and__": "And",
            "__or__": "Or",
            "__xor__": "Xor",
        }.items()
    },
    **{
        name: _activation(form)
        for name, form in {"relu6": "relu6", **{f.torch: k for k, f in activations.FORMS.items() if f.torch}}.items()
    },
    **dict.fromkeys(
        (
            "clone",
            "contiguous",
            "detach",
            "alias",
            "lift_fresh",
            "lift_fresh_copy",
            "feature_dropout",
            "alpha_dropout",
            "feature_alpha_dropout",
            "native_dropout",
            "resolve_conj",
            "resolve_neg",
            "positive",
        ),
        _same,
    ),
    **dict.fromkeys(("to", "_to_copy", "type_as", "float", "double", "half", "bool", "long", "int"), _cast),
    "ne": lambda p, x, other: p.op("Not", _comparison("Equal")(p, x, other)),
    "logical_not": lambda p, x: p.op("Not", p.cast(x, p.torch.bool)),
    "isnan": _test_unary("IsNaN"),
    "isinf": _test_unary("IsInf"),
    "rsub": _reversed_sub,
    "div": _div,
    "divide": _div,
    "true_divide": _div,
    "floor_divide": _floor_divide,
    "trunc": _trunc,
    "remainder": _mod(0),
    "fmod": _mod(1),
    "pow": _pow,
    "square": lambda p, x: _pow(p, x, 2),
    "where": _where,
    "masked_fill": _masked_fill,
    "round": _round,
    "clamp": _clamp,
    "clip": _clamp,
    "hardtanh": _hardtanh,
    "clamp_min": lambda p, x, min: _clamp(p, x, min),
    "clamp_max": lambda p, x, max: _clamp(p, x, None, max),
    "elu": _elu,
    "celu": lambda p, x, alpha=1.0: p.op("Celu", x, alpha=float(alpha)),
    "leaky_relu": _leaky_relu,
    "rrelu": _rrelu,
    "gelu": _gelu,
    "softplus": _softplus,
    "hardshrink": _shrink,
    "softshrink": lambda p, x, lambd=0.5: _shrink(p, x, lambd, hard=False),
    "threshold": _threshold,
    "prelu": _prelu,
    "_prelu_kernel": _prelu,
    "glu": _glu,
    "log_sigmoid": _chain("Neg", "Softplus", "Neg"),
    "rsqrt": _chain("Sqrt", "Reciprocal"),
    "log1p": _with_number("Add", 1, after="Log"),
    "expm1": _with_number("Sub", 1, before="Exp"),
    "log2": _with_number("Mul", 1 / math.log(2), before="Log"),
    "log10": _with_number("Mul", 1 / math.log(10), before="Log"),
    "exp2": _exp2,
    "erfc": _erfc,
    "fill": _fill,
    "copy": _copy,
    "atan2": _atan2,
    "__lshift__": _shift("LEFT"),
    "__rshift__": _shift("RIGHT"),
    "bitwise_left_shift": _shift("LEFT"),
    "bitwise_right_shift": _shift("RIGHT"),
    "hypot": _hypot,
    "copysign": _copysign,
    "ldexp": _ldexp,
}
