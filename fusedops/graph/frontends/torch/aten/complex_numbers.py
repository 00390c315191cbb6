"""Complex numbers: two values of the graph, the real and the imaginary parts.

What only moves elements, or is linear with real factors, is read as for real numbers, once for each of the two. A name
here is that of the operator after "complex"."""

from types import SimpleNamespace

from ..fx_values import FxComplex, FxValue, Unsupported, sizes
from . import convolutions, indexing, pointwise, products, reductions, shapes

_REAL = {
    name: reader
    for family in (convolutions, pointwise, indexing, shapes, products, reductions)
    for name, reader in family.READERS.items()
}


def part_type(p, dtype):
    """The type of the parts of a type of numbers."""
    return p.torch.float64 if dtype in (p.torch.complex128, p.torch.float64) else p.torch.float32


def given_type(p):
    """The type of the parts of the result, which may be real."""
    made = p.made[0] if isinstance(p.made, (list, tuple)) else p.made
    return part_type(p, made.dtype)


def as_complex(p, v):
    """A tensor or number as FxComplex."""
    if isinstance(v, FxComplex):
        return v
    if isinstance(v, (int, float, complex)):
        re, im = (p.torch.tensor(n, dtype=given_type(p)) for n in (complex(v).real, complex(v).imag))
        return FxComplex(re, im if isinstance(v, complex) else None, (), p.torch.complex64)
    if isinstance(v, p.torch.Tensor) and v.is_complex():
        return FxComplex(v.real.contiguous(), v.imag.contiguous(), tuple(v.shape), v.dtype)
    return FxComplex(p.cast(v, given_type(p)), None, tuple(v.shape), p.torch.complex64)


def made_of(p, re, im, pair=None):
    """The result of a node, of its two parts; the broadcast part of a real number and a complex one is made whole."""
    shape, dtype = sizes(p.made.shape), part_type(p, p.made.dtype)
    if im is None:
        im = p.op("Expand", p.torch.zeros((), dtype=dtype), p.shape(shape))
    re, im = (FxValue(v, shape, dtype) if isinstance(v, str) else v for v in (re, im))
    return FxComplex(re, im, shape, p.made.dtype, pair)


def pair_of(p, x):
    """Both parts along a last axis."""
    if x.pair is None:
        ends = [p.op("Unsqueeze", v, [x.ndim]) for v in (x.re, whole_im(p, x))]
        x.pair = p.op("Concat", *ends, axis=x.ndim)
    return x.pair


def whole_im(p, x):
    return p.op("Sub", x.re, x.re) if x.im is None else x.im


def of_pair(p, pair):
    """The result of a node, whose parts lie along the last axis of a value."""
    re, im = (p.op("Gather", pair, p.torch.tensor(i), axis=len(p.made.shape)) for i in range(2))
    return made_of(p, re, im, pair)


# ---- one part after the other


def _each_part(name):
    """Reads an operator on each part as on real numbers. What is real stands for the real parts."""
    reader = _REAL[name]

    def read(p, x, **given):
        made, parts = p.made, []
        given |= {k: complex(v) for k, v in given.items() if k == "value" and isinstance(v, (int, float))}
        p.made = _real_made(p, made)
        for i in range(2):
            first, others = _part(p, x, i), {k: _part(p, v, i) for k, v in given.items()}
            parts.append(_typed(reader(p, first, **others), p.made))
        p.made = made
        re, im = parts
        if isinstance(made, (list, tuple)):
            return [FxComplex(a, b, sizes(m.shape), m.dtype) for m, a, b in zip(made, re, im, strict=True)]
        return FxComplex(re, im, sizes(made.shape), made.dtype)

    return read


def _real_made(p, made):
    if isinstance(made, (list, tuple)):
        return [_real_made(p, m) for m in made]
    return SimpleNamespace(shape=made.shape, dtype=part_type(p, made.dtype), ndim=made.ndim, numel=made.numel)


def _typed(result, made):
    if isinstance(result, list):
        return [_typed(r, m) for r, m in zip(result, made, strict=True)]
    return FxValue(result, sizes(made.shape), made.dtype) if isinstance(result, str) else result


def _part(p, v, i):
    """The i-th part of what is complex; zeros for that of real numbers, but for indices, masks and settings."""
    if isinstance(v, (list, tuple)):
        return [_part(p, e, i) for e in v]
    if isinstance(v, complex):
        return v.imag if i else v.real
    if isinstance(v, (FxComplex, FxValue, p.torch.Tensor)) and v.dtype.is_complex:
        v = as_complex(p, v)
        return FxValue(whole_im(p, v), v.shape, v.re.dtype) if i and v.im is None else (v.re, v.im)[i]
    if i and isinstance(v, p.torch.Tensor) and v.is_floating_point():
        return p.torch.zeros_like(v)
    if i and isinstance(v, FxValue) and v.dtype.is_floating_point:
        return FxValue(p.op("Sub", v, v), v.shape, v.dtype)
    return v


# ---- sums and products


def _scaled(p, x, alpha):
    return x if alpha == 1 else _product(p, x, as_complex(p, alpha))


def _sum(op, reverse=False):
    def read(p, x, other, alpha=1):
        a, b = as_complex(p, x), _scaled(p, as_complex(p, other), alpha)
        a, b = (b, a) if reverse else (a, b)
        im = p.op(op, *(whole_im(p, v) for v in (a, b))) if a.im is not None or b.im is not None else None
        return made_of(p, p.op(op, a.re, b.re), im)

    return read


def _product(p, a, b, times=lambda p, x, y: p.op("Mul", x, y)):
    """(ar br - ai bi, ar bi + ai br) as FxComplex without a shape."""
    if b.im is None:
        return FxComplex(times(p, a.re, b.re), a.im if a.im is None else times(p, a.im, b.re), a.shape, a.dtype)
    if a.im is None:
        return FxComplex(times(p, a.re, b.re), times(p, a.re, b.im), a.shape, a.dtype)
    re = p.op("Sub", times(p, a.re, b.re), times(p, a.im, b.im))
    return FxComplex(re, p.op("Add", times(p, a.re, b.im), times(p, a.im, b.re)), a.shape, a.dtype)


def _mul(p, x, other):
    y = _product(p, as_complex(p, x), as_complex(p, other))
    return made_of(p, y.re, y.im)


def _square_of_length(p, x):
    square = p.op("Mul", x.re, x.re)
    return square if x.im is None else p.op("Add", square, p.op("Mul", x.im, x.im))


def _div(p, x, other):
    a, b = as_complex(p, x), as_complex(p, other)
    if b.im is None:
        return made_of(p, p.op("Div", a.re, b.re), a.im if a.im is None else p.op("Div", a.im, b.re))
    y = _product(p, a, FxComplex(b.re, p.op("Neg", b.im), b.shape, b.dtype))
    square = _square_of_length(p, b)
    return made_of(p, p.op("Div", y.re, square), p.op("Div", y.im, square))


def _pow(p, x, exponent):
    if exponent != 2:
        raise Unsupported(f"fusedops does not have complex numbers to the power of {exponent}")
    return _mul(p, x, x)


def _bilinear(name):
    """A product of two operands, whatever it sums over; those of einsum stand in a list after its equation."""
    reader = _REAL[name]

    def read(p, first, **given):
        listed, made = isinstance(first, str) and "tensors" in given, p.made
        operands = given["tensors"] if listed else [first, *list(given.values())[:1]]
        if len(operands) != 2 or len(given) > 1:
            raise Unsupported(f"fusedops does not have {name} of such operands with complex numbers")

        def times(p, a, b):
            others = {"tensors": [a, b]} if listed else dict.fromkeys(given, b)
            return _typed(reader(p, first if listed else a, **others), p.made)

        p.made = _real_made(p, made)
        a, b = (as_complex(p, v) for v in operands)
        y = _product(p, a, b, times)
        p.made = made
        return made_of(p, y.re, y.im)

    return read


# ---- parts, lengths and angles


def _view_as_complex(p, x):
    return of_pair(p, x)


def _view_as_real(p, x):
    return pair_of(p, as_complex(p, x))


def _complex(p, x, imag):
    return made_of(p, *(p.cast(v, given_type(p)) for v in (x, imag)))


def _polar(p, x, angle):
    return made_of(p, p.op("Mul", x, p.op("Cos", angle)), p.op("Mul", x, p.op("Sin", angle)))


def _real(p, x):
    return as_complex(p, x).re


def _imag(p, x):
    return whole_im(p, as_complex(p, x))


def _abs(p, x):
    return p.op("Sqrt", _square_of_length(p, as_complex(p, x)))


def _angle(p, x):
    x = as_complex(p, x)
    return _REAL["atan2"](p, whole_im(p, x), x.re)


def _conj(p, x):
    x = as_complex(p, x)
    return made_of(p, x.re, x.im if x.im is None else p.op("Neg", x.im))


def _exp(p, x):
    x = as_complex(p, x)
    length, im = p.op("Exp", x.re), whole_im(p, x)
    return made_of(p, p.op("Mul", length, p.op("Cos", im)), p.op("Mul", length, p.op("Sin", im)))


def _log(p, x):
    x = as_complex(p, x)
    length = p.op("Sqrt", _square_of_length(p, x))
    made, p.made = p.made, _real_made(p, p.made)
    angle = _REAL["atan2"](p, whole_im(p, x), x.re)
    p.made = made
    return made_of(p, p.op("Log", length), angle)


def _sgn(p, x):
    """Numbers of length 1, and 0 where they are 0."""
    x, one = as_complex(p, x), p.torch.ones((), dtype=given_type(p))
    length = p.op("Sqrt", _square_of_length(p, x))
    length = p.op("Where", p.op("Equal", length, p.torch.zeros((), dtype=given_type(p))), one, length)
    return made_of(p, p.op("Div", x.re, length), p.op("Div", whole_im(p, x), length))


def _to(p, x, *_, **__):
    """A type of complex numbers, or that of their real parts."""
    x = as_complex(p, x)
    re, im = (v if v is None else p.cast(v, given_type(p)) for v in (x.re, x.im))
    return made_of(p, re, im) if p.made.dtype.is_complex else re


def _same(p, x, *_, **__):
    return x


_MOVING = (
    "view", "_unsafe_view", "reshape", "view_as", "reshape_as", "flatten", "unflatten", "unsqueeze", "squeeze",
    "expand", "expand_as", "broadcast_to", "split", "split_with_sizes", "chunk", "unsafe_chunk", "unsafe_split",
    "transpose", "t", "swapaxes", "permute", "movedim", "repeat", "cat", "concat", "stack", "unbind", "select", "slice",
    "narrow", "slice_scatter", "select_scatter", "constant_pad_nd", "flip", "roll", "index", "index_select", "gather",
    "index_put", "zeros", "ones", "zeros_like", "new_zeros", "empty", "empty_like", "where", "masked_fill", "copy",
    "fill", "neg", "sum", "mean", "cumsum", "diagonal", "tril", "triu",
)  # fmt: skip
READERS = {
    f"complex {name}": reader
    for name, reader in {
        **{name: _each_part(name) for name in _MOVING},
        **{name: _bilinear(name) for name in ("matmul", "mm", "bmm", "mv", "dot", "einsum", "outer", "linear")},
        **dict.fromkeys(
            ("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "resolve_conj", "resolve_neg"), _same
        ),
        **dict.fromkeys(("conj", "_conj", "conj_physical", "_conj_physical"), _conj),
        **dict.fromkeys(("to", "_to_copy", "type_as"), _to),
        **dict.fromkeys(("div", "true_divide", "divide"), _div),
        **dict.fromkeys(("mul", "multiply"), _mul),
        "abs": _abs,
        "add": _sum("Add"),
        "angle": _angle,
        "complex": _complex,
        "exp": _exp,
        "imag": _imag,
        "log": _log,
        "polar": _polar,
        "pow": _pow,
        "real": _real,
        "reciprocal": lambda p, x: _div(p, 1, x),
        "rsub": _sum("Sub", reverse=True),
        "sgn": _sgn,
        "square": lambda p, x: _mul(p, x, x),
        "sub": _sum("Sub"),
        "view_as_complex": _view_as_complex,
        "view_as_real": _view_as_real,
    }.items()
}
