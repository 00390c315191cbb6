"""What a network is called with: checked, as a plan takes it."""

from operator import index

import numpy as np

from ... import _core


def with_inputs(inputs, given):
    """What is given for each of the inputs, with that input."""
    if len(given) != len(inputs):
        nested = any(isinstance(x, (tuple, list, dict)) for x in given)
        raise ValueError(
            f"the network takes {len(inputs)} input{'s' * (len(inputs) != 1)} ({', '.join(map(str, inputs))}), got "
            f"{len(given)}" + ": pass the arrays inside a tuple, list or dict one by one" * nested
        )
    return zip(given, inputs, strict=True)


def checked(x, value, any_shape=False):
    """x as a contiguous array of the type and shape that the network takes."""
    if value.dtype == object:
        if not isinstance(x, (list, tuple)):
            raise TypeError(f"{value.name} is a sequence: pass a list of arrays, not {type(x).__name__}")
        return [np.ascontiguousarray(a).reshape(np.shape(a)) for a in x]
    a = _core.as_array(x, value.name)
    if a.dtype != value.dtype:
        raise TypeError(
            f"{value.name} has dtype {a.dtype}, but the network takes {value.dtype}: pass "
            f"{_core.conversion(x, value.name, value.dtype)}"
        )
    if not any_shape:
        _check_shape(a.shape, value)
    return a if a.flags.c_contiguous and a.flags.aligned else a.copy()


def shape_of(given, value):
    """A shape that the network takes."""
    try:
        shape = tuple(map(index, given))
    except TypeError:
        raise TypeError(f"the shape of {value.name} must be a tuple of ints, not {given!r}") from None
    _check_shape(shape, value)
    return shape


def _check_shape(shape, value):
    wrong = value.shape is not None and (
        len(shape) != len(value.shape)
        or any(isinstance(n, int) and n != m for n, m in zip(value.shape, shape, strict=True))
    )
    if wrong or min(shape, default=0) < 0:
        raise ValueError(f"{value.name} has shape {shape}, but the network takes {value}")
