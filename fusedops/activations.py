"""Activations: their names, parameters and the form in which the kernels take them."""

import math
from numbers import Real

import numpy as np

from . import _core

# The order of fo_act_kind in csrc/fusedops.h.
KINDS = (
    "identity",
    "clip",
    "leaky_relu",
    "prelu",
    "elu",
    "sigmoid",
    "tanh",
    "gelu",
    "gelu_tanh",
    "silu",
    "hardsigmoid",
    "hardswish",
    "softplus",
    "mish",
)
_CODE = {name: code for code, name in enumerate(KINDS)}
_DEFAULTS = {"leaky_relu": (0.01,), "elu": (1.0,)}
NAMES = ("relu", "relu6", *(k for k in KINDS if k != "identity"))


def parse(activation, channels=None):
    """The kernels' form ``(kind, p0, p1, slopes)`` of `activation`.

    Parameters
    ----------
    activation : None, str or tuple
        A name, or ``(name, parameter...)``, as the functions of fusedops take it.
    channels : int, optional
        Output channels, against which the slopes of ``("prelu", slopes)`` are checked.

    Raises
    ------
    ValueError
        Unknown name, wrong number or value of parameters.
    TypeError
        Not a name, or a parameter that is not a number.
    """
    if activation is None:
        return 0, 0.0, 0.0, None
    if type(activation) is str and activation in _PLAIN:
        return _PLAIN[activation]
    name, *parameters = activation if isinstance(activation, (tuple, list)) and len(activation) else (activation,)
    if not isinstance(name, str):
        raise TypeError(
            f"activation must be None, a name or (name, parameter...), not {activation!r}; names: {', '.join(NAMES)}"
        )
    if name not in NAMES:
        raise ValueError(f"unknown activation {name!r}; known are {', '.join(NAMES)}")
    if name == "prelu":
        return _prelu(parameters, channels)
    bounds = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0)}.get(name)
    wanted = 2 if name == "clip" else len(_DEFAULTS.get(name, ()))
    if len(parameters) > wanted or name == "clip" and len(parameters) != 2:
        raise ValueError(
            f"activation {name!r} takes {wanted} parameter{'s' * (wanted != 1)}, got {len(parameters)}: {activation!r}"
        )
    parameters = [number(p, f"a parameter of activation {name!r}") for p in parameters]
    if name == "clip" and not parameters[0] <= parameters[1]:
        raise ValueError(f"activation 'clip' needs lo <= hi, got lo={parameters[0]!r}, hi={parameters[1]!r}")
    p0, p1 = (*(bounds or parameters or _DEFAULTS.get(name, ())), 0.0, 0.0)[:2]
    return _CODE["clip" if bounds else name], p0, p1, None


_PLAIN: dict = {}  # names that take no parameters or have defaults, parsed


def number(value, name):
    """The float that `value` is, or the error that says why not."""
    if not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is larger than any float") from None


def described(activation):
    """`activation` as the repr of a layer has it: without the numbers of a long array."""
    return "('prelu', slopes)" if isinstance(activation, tuple) and activation[0] == "prelu" else repr(activation)


def _prelu(parameters, channels):
    if len(parameters) != 1:
        raise ValueError("activation 'prelu' takes the slopes: ('prelu', slopes), one slope for each output channel")
    slopes = _core.as_array(parameters[0], "slopes")
    if slopes.dtype != np.float32:
        raise TypeError(
            f"the slopes of 'prelu' have dtype {slopes.dtype}, but fusedops computes in float32: pass "
            f"slopes.astype(np.float32)"
        )
    if channels is not None and slopes.size != channels:
        raise ValueError(
            f"the slopes of 'prelu' have shape {slopes.shape}, but there are {channels} output channels: one slope each"
        )
    return _CODE["prelu"], 0.0, 0.0, slopes.flatten()


_PLAIN.update((name, parse(name)) for name in NAMES if name not in ("clip", "prelu"))
