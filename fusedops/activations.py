"""Activations: their names, parameters and the form in which the kernels take them."""

import math
from collections.abc import Callable
from numbers import Real
from typing import NamedTuple

import numpy as np

from . import _core


class Form(NamedTuple):
    """What Python knows of an activation, besides the kernels' code for it."""

    numpy: Callable  # of an array of floats and the parameters, in the array's type
    defaults: tuple = ()  # of its parameters
    onnx: str | None = None  # the operator of ONNX that is this and has no attributes
    torch: str | None = None  # the operator of PyTorch, likewise
    keras: str | None = None  # Keras 3's name


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def erf(x):
    return np.array([math.erf(v) for v in x.ravel().tolist()], x.dtype).reshape(x.shape)


def _elu(x, alpha):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, np.zeros((), x.dtype))))


def _gated(x, factor):
    """x times a factor that is 0 far below 0: as in the kernels, the product of -infinity is 0 too."""
    return np.maximum(x, -1e3) * factor


def _gelu_tanh(x):
    return _gated(x, (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2)


# By the names of csrc/include/fusedops/activations.h.
FORMS = {
    "identity": Form(lambda x: x),
    "clip": Form(lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi)),
    "leaky_relu": Form(lambda x, slope: np.where(x > 0, x, slope * x), (0.01,)),
    "prelu": Form(lambda x, slopes: np.where(x > 0, x, slopes * x)),
    "elu": Form(_elu, (1.0,)),
    "sigmoid": Form(sigmoid, onnx="Sigmoid", torch="sigmoid", keras="sigmoid"),
    "tanh": Form(np.tanh, onnx="Tanh", torch="tanh", keras="tanh"),
    "gelu": Form(lambda x: _gated(x, (1 + erf(x / math.sqrt(2))) / 2), keras="gelu"),
    "gelu_tanh": Form(_gelu_tanh),
    "silu": Form(lambda x: _gated(x, sigmoid(x)), torch="silu", keras="silu"),
    "hardsigmoid": Form(lambda x: np.clip(x / 6 + 0.5, 0, 1), torch="hardsigmoid", keras="hard_sigmoid"),
    "hardswish": Form(
        lambda x: _gated(x, np.clip(x / 6 + 0.5, 0, 1)), onnx="HardSwish", torch="hardswish", keras="hard_silu"
    ),
    "softplus": Form(lambda x: np.logaddexp(x, 0), onnx="Softplus", keras="softplus"),
    "mish": Form(lambda x: _gated(x, np.tanh(np.logaddexp(x, 0))), onnx="Mish", torch="mish", keras="mish"),
    "softsign": Form(lambda x: x / (1 + np.abs(x)), onnx="Softsign", torch="softsign", keras="softsign"),
}
KINDS = _core.activation_names()
_CODE = {name: code for code, name in enumerate(KINDS)}
NAMES = ("relu", "relu6", *(k for k in KINDS if k != "identity"))
# Names that stand alone: without parameters, and not a clip of two bounds.
PLAIN = tuple(k for k in KINDS if k not in ("identity", "clip", "prelu") and not FORMS[k].defaults)


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
        raise ValueError(f"unknown activation {name!r}{_here(name)}; known are {', '.join(NAMES)}")
    if name == "prelu":
        return _prelu(parameters, channels)
    bounds = _BOUNDS.get(name)
    parameters = _numbers(name, parameters, () if bounds else FORMS[name].defaults)
    p0, p1 = (*(bounds or parameters), 0.0, 0.0)[:2]
    return _CODE["clip" if bounds else name], p0, p1, None


_BOUNDS = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0)}  # of clips with a name of their own


def _numbers(name, parameters, defaults):
    """The parameters of an activation, or its defaults where it is given none; a clip has none."""
    wanted = 2 if name == "clip" else len(defaults)
    if len(parameters) > wanted or name == "clip" and len(parameters) != 2:
        raise ValueError(
            f"activation {name!r} takes {wanted} parameter{'s' * (wanted != 1)}, got {len(parameters)}: "
            f"{(name, *parameters) if parameters else name!r}"
        )
    found = [number(p, f"a parameter of activation {name!r}") for p in parameters]
    if name == "clip" and not found[0] <= found[1]:
        raise ValueError(f"activation 'clip' needs lo <= hi, got lo={found[0]!r}, hi={found[1]!r}")
    return found or defaults


def _plain(name):
    return name.lower().replace("_", "").replace(" ", "")


def _here(name):
    """Returns a hint for an error about a name of another library."""
    here = _ELSEWHERE.get(_plain(name))
    return f", which is {here!r} here" if here else ""


_ELSEWHERE = {"swish": "silu", "hardsilu": "hardswish", **{_plain(name): name for name in NAMES}}
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
