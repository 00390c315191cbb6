"""What a network is called with: checked, as a plan takes it."""

from collections.abc import Mapping
from operator import index

import numpy as np

from ... import _core
from ..ir.dtypes import name_of
from ..ir.errors import InvalidArgument

_SEQUENCE = np.dtype(object)  # of inputs that are no tensors


def with_inputs(inputs, given):
    """Pairs each input with the value that is given for it."""
    if any(x.__class__ is not np.ndarray and isinstance(x, Mapping) for x in given):  # which takes its time to say no
        names = ", ".join(v.name for v in inputs)
        raise TypeError(
            f"the network takes arrays, not a dict: write model(**inputs), or model.run(inputs) for a dict of the "
            f"outputs too, with {names} as keys"
        )
    if len(given) != len(inputs):
        nested = any(isinstance(x, (tuple, list, dict)) for x in given)
        missing = [v.name for v in inputs[len(given) :]]
        absent = f" ({', '.join(missing)} {_is(missing)} missing)" if missing and not nested else ""
        raise InvalidArgument(
            f"the network takes {len(inputs)} input{'s' * (len(inputs) != 1)} ({', '.join(map(str, inputs))}), got "
            f"{len(given)}{absent}" + ": pass the arrays inside a tuple, list or dict one by one" * nested
        )
    return zip(given, inputs, strict=True)


def in_order(inputs, arrays, by_name):
    """Gives positional arrays the names of the first inputs; `by_name` has those given by name."""
    if len(arrays) > len(inputs):
        with_inputs(inputs, arrays)  # says what it takes
    given = {v.name: x for v, x in zip(inputs, arrays, strict=False)}
    twice = [name for name in given if name in by_name]
    if twice:
        names = ", ".join(v.name for v in inputs)
        raise InvalidArgument(f"{twice[0]} is given twice, in order and by name: the inputs are {names}")
    return given


def by_names(inputs, optional, given):
    """The inputs that the network has to take for those given by their names: its own, and optional ones among them."""
    names, more = [v.name for v in inputs], [v.name for v in optional]
    known = {*names, *more}
    missing, unknown = [n for n in names if n not in given], [str(n) for n in given if n not in known]
    if missing or unknown:
        taken = ", ".join(names) + (f" (and may take {', '.join(more)})" if more else "")
        wrong = [
            f"{', '.join(found)} {_is(found)} {what}"
            for found, what in ((missing, "missing"), (unknown, "unknown"))
            if found
        ]
        got = ", ".join(map(str, given)) or "none"
        raise InvalidArgument(f"the network takes the inputs {taken}, got {got}: {' and '.join(wrong)}")
    return [n for n in more if n in given]


def _is(names):
    return "are" if len(names) > 1 else "is"


def checked(x, value, any_shape=False):
    """x as a contiguous array of the type and shape that the network takes."""
    if value.dtype is not _SEQUENCE and _core.is_plain(x, value.dtype, None if any_shape else value.shape):
        return x
    if value.dtype == object:
        if not isinstance(x, (list, tuple)):
            raise TypeError(f"{value.name} is a sequence: pass a list of arrays, not {type(x).__name__}")
        return [np.ascontiguousarray(a).reshape(np.shape(a)) for a in x]
    a = _core.as_array(x, value.name)
    if value.dtype == _core.BFLOAT16 and _core.is_bfloat16(a.dtype):  # as another library names it
        a = a.view(value.dtype)
    if a.dtype != value.dtype:
        raise TypeError(
            f"{value.name} has dtype {a.dtype}, but the network takes {name_of(value.dtype)}: pass "
            f"{_core.conversion(x, value.name, value.dtype)}"
        )
    if not any_shape:
        check_shape(a.shape, value)
    return a if a.flags.c_contiguous and a.flags.aligned else a.copy()


def shape_of(given, value):
    """A shape that the network takes."""
    try:
        shape = tuple(map(index, given))
    except TypeError:
        raise TypeError(f"the shape of {value.name} must be a tuple of ints, not {given!r}") from None
    check_shape(shape, value)
    return shape


def check_shape(shape, value):
    """Refuses a shape that the network does not take."""
    if value.shape is not None and not _fits(shape, value) or min(shape, default=0) < 0:
        raise InvalidArgument(f"{value.name} has shape {shape}, but the network takes {value}{_mended(shape, value)}")


def _fits(shape, value):
    return len(shape) == len(value.shape) and all(
        n == m for n, m in zip(value.shape, shape, strict=True) if isinstance(n, int)
    )


def _laid_out(shape):
    """Yields the expression that turns an array into another shape, such as "[np.newaxis]", and that shape."""
    yield "[np.newaxis]", (1, *shape)
    if len(shape) in (3, 4):  # an image, or several
        new = 4 - len(shape)
        for order in ((0, 3, 1, 2), (0, 2, 3, 1)):
            order = tuple(i - new for i in order[new:])
            yield f".transpose{order}" + "[np.newaxis]" * new, (*(1,) * new, *(shape[i] for i in order))


def _mended(shape, value):
    """Returns a hint for axes in another order, or for sizes that were fixed when the network was made; else ""."""
    for how, laid_out in _laid_out(shape):
        if _fits(laid_out, value):
            return f": pass {value.name}{how}"
    if len(shape) != len(value.shape):
        return ""
    axes = [i for i, (n, m) in enumerate(zip(value.shape, shape, strict=True)) if isinstance(n, int) and n != m]
    features = len(shape) > 3 or len(shape) == 2 and value.dtype == np.float32
    if min(shape, default=0) < 0 or features and 1 in axes:
        return ""
    named = ", ".join(f"{i}: {_AXES.get((len(shape), i), f'size{i}')!r}" for i in axes)
    return (
        f": its size was fixed when the network was made; fusedops.from_torch and torch.onnx.export leave it open with "
        f"dynamic_shapes, {{{named}}} for {value.name}"
    )


_AXES = {(4, 2): "height", (4, 3): "width", (2, 1): "length", (3, 1): "length"} | {(n, 0): "batch" for n in range(1, 9)}
