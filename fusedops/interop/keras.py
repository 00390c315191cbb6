"""Single layers of Keras as the prepared layers of fusedops. Keras itself is not imported: a layer is what has its
class's name, `get_config` and `get_weights`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core, layers
from .._internal.recurrent_weights import of_keras
from ..activations import FORMS
from ..layers import Conv2d, DepthwiseSeparable, Linear

if TYPE_CHECKING:
    from typing import Any

    from .._types import Precision


# Keras 3's names; None: the identity
_ACTIVATIONS = {
    "linear": None,
    "relu": "relu",
    "relu6": "relu6",
    "elu": "elu",
    "leaky_relu": ("leaky_relu", 0.2),
    "swish": "silu",
    "hard_swish": "hardswish",
    **{form.keras: name for name, form in FORMS.items() if form.keras is not None},
}


def from_keras(layer: Any, *, precision: Precision = "float32") -> Any:
    """The layer of fusedops that computes what a single Keras layer does, with its weights and activation.

    Parameters
    ----------
    layer : keras.layers.Layer
        A built `Conv2D`, `DepthwiseConv2D`, `SeparableConv2D`, `Dense`, `SimpleRNN`, `LSTM` or `GRU`, or a
        `Bidirectional` of one of the last three: of Keras 3, by whatever backend. Its weights are copied.
    precision : "float32" or "bfloat16"
        Of the operands of products, as :class:`Linear` has it.

    Returns
    -------
    Conv2d, DepthwiseSeparable, Linear, RNN, LSTM or GRU
        Convolutions have the layer's `data_format` as their layout. Recurrent layers take (batch, steps, inputs) and
        return every step's output and the state: without `return_sequences`, Keras has the last one, ``y[:, -1]``.

    Raises
    ------
    TypeError
        There is no such layer, or its weights are not float32.
    ValueError
        The layer has no weights yet, or an option or activation that no layer of fusedops has.

    See Also
    --------
    from_torch : The same for PyTorch, and whole networks.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> class Dense:  # keras.layers.Dense(2, activation="relu"), built
    ...     def get_config(self):
    ...         return {"activation": "relu", "use_bias": True}
    ...
    ...     def get_weights(self):
    ...         return [np.float32([[1, -1], [1, -1]]), np.float32([0, 1])]
    >>> fo.from_keras(Dense())(np.float32([[2, 3]]))
    array([[5., 0.]], dtype=float32)
    """
    name = type(layer).__name__
    if name not in _MAKERS or not hasattr(layer, "get_config") or not hasattr(layer, "get_weights"):
        raise TypeError(
            f"there is no fusedops layer for {type(layer).__module__}.{name}, only for Keras's {', '.join(_MAKERS)}"
        )
    weights = list(layer.get_weights())
    if not weights:
        raise ValueError(f"{name} has no weights yet: call it once, or its build")
    weights = [_core.as_input(w, f"{name}'s weights") for w in weights]
    return _MAKERS[name](layer.get_config(), weights, precision=precision)


def _activation(config, key="activation"):
    given = config.get(key, "linear")
    if isinstance(given, dict):  # a function as Keras 3 writes it down
        given = given.get("config")
    if not isinstance(given, str) or given not in _ACTIVATIONS:
        raise ValueError(
            f"{key} {config[key]!r} is none that a layer of fusedops applies; known are {', '.join(_ACTIVATIONS)}: "
            "take it out of the layer and apply it after"
        )
    return _ACTIVATIONS[given]


def _only(config, **usual):
    """Refuses options with another than the usual value."""
    for name, value in usual.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name}={config[name]!r} is an option that no fusedops layer has")


def _split(weights, config, count):
    """The weights, and the bias or None after them."""
    with_bias = config.get("use_bias", True)
    if len(weights) != count + with_bias:
        raise ValueError(f"use_bias={with_bias} needs {count + with_bias} arrays of weights, not {len(weights)}")
    return (*weights, None) if not with_bias else weights


def _windows(config):
    layout = {"channels_last": "NHWC", "channels_first": "NCHW"}[config.get("data_format") or "channels_last"]
    dilation = config.get("dilation_rate", 1)
    return dict(stride=config.get("strides", 1), padding=config["padding"], dilation=dilation, layout=layout)


def _conv2d(config, weights, **options):
    kernel, bias = _split(weights, config, 1)  # (kh, kw, ic / groups, oc)
    groups = config.get("groups", 1)
    w = kernel.transpose(3, 2, 0, 1)
    return Conv2d(w, bias, activation=_activation(config), groups=groups, **_windows(config), **options)


def _channelwise(kernel):
    """(kh, kw, c, m) as one filter for each output channel."""
    kh, kw, c, m = kernel.shape
    return kernel.transpose(2, 3, 0, 1).reshape(c * m, 1, kh, kw)


def _depthwise(config, weights, **options):
    kernel, bias = _split(weights, config, 1)
    options |= dict(activation=_activation(config), groups=kernel.shape[2])
    return Conv2d(_channelwise(kernel), bias, **options, **_windows(config))


def _separable(config, weights, **options):
    depthwise, pointwise, bias = _split(weights, config, 2)
    _only(config, depth_multiplier=1)
    windows = _windows(config)
    return DepthwiseSeparable(
        Conv2d(_channelwise(depthwise), groups=depthwise.shape[2], **windows, **options),
        Conv2d(
            pointwise.transpose(3, 2, 0, 1),
            bias,
            activation=_activation(config),
            layout=windows["layout"],
            **options,
        ),
    )


def _dense(config, weights, **options):
    kernel, bias = _split(weights, config, 1)
    return Linear(kernel.T, bias, activation=_activation(config), **options)


def _recurrent(kind):
    def make(config, weights, **options):
        _only(config, go_backwards=False, stateful=False, time_major=False)
        functions = _activation(config)
        if kind == "SimpleRNN":
            return layers.RNN(**of_keras("RNN", weights), activation=functions, batch_first=True, **options)
        gates = _activation(config, "recurrent_activation")
        if kind == "LSTM":
            options |= dict(activations=(gates, functions, functions))
        else:
            options |= dict(activations=(gates, functions), reset_after=bool(config.get("reset_after", True)))
        return getattr(layers, kind)(**of_keras(kind, weights), **options, batch_first=True)

    return make


def _bidirectional(config, weights, **options):
    _only(config, merge_mode="concat")
    inner = config["layer"]
    if inner["class_name"] not in _RECURRENT:
        raise TypeError(f"there is no fusedops layer for a Bidirectional of {inner['class_name']}")
    return _RECURRENT[inner["class_name"]](inner["config"], weights, **options)


_RECURRENT = {kind: _recurrent(kind) for kind in ("SimpleRNN", "LSTM", "GRU")}
_MAKERS = {
    "Conv2D": _conv2d,
    "DepthwiseConv2D": _depthwise,
    "SeparableConv2D": _separable,
    "Dense": _dense,
    **_RECURRENT,
    "Bidirectional": _bidirectional,
}
