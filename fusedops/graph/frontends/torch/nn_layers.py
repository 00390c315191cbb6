"""Single layers of torch.nn as the prepared layers of fusedops, with their weights."""

import os
from collections.abc import Callable

import numpy as np

from .... import layers
from ...._internal import install_hint
from .fx_values import as_array


def no_module(given):
    """The error for what is no module, with what to do."""
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        read = f"torch.export.load({path!r})" if path.endswith(".pt2") else f"torch.load({path!r}, weights_only=False)"
        todo = f"pass {read}, or where that gives a dict of weights, make the module and call load_state_dict"
    else:
        is_dict = isinstance(given, dict)
        todo = "make its module, and call load_state_dict" if is_dict else "call it in a module's forward"
    return TypeError(f"from_torch takes a torch.nn.Module, not {type(given).__name__}: {todo}")


def import_torch(what="from_torch"):
    try:
        import torch
    except ImportError:
        raise ImportError(f"{what} needs PyTorch: {install_hint.command('torch')}") from None
    return torch


def layer_of(module, precision=None):
    """Prepares the layer of a single torch.nn layer, whose products have a precision; None: bfloat16 where the module's
    weights are.

    Raises
    ------
    TypeError
        There is no such layer.
    """
    torch = import_torch()
    nn = torch.nn
    makers: dict[type, Callable] = {
        nn.Conv1d: _convolution,
        nn.Conv2d: _convolution,
        nn.ConvTranspose1d: _transposed,
        nn.ConvTranspose2d: _transposed,
        nn.Linear: _linear,
        nn.MultiheadAttention: _attention,
        nn.RNN: _sequence,
        nn.LSTM: _sequence,
        nn.GRU: _sequence,
        nn.RNNCell: _cell,
        nn.LSTMCell: _cell,
        nn.GRUCell: _cell,
    }
    kind = type(module)
    if not isinstance(module, nn.Module):
        raise no_module(module)
    if kind not in makers:  # a quantized Linear is a Linear by its short name
        raise TypeError(
            f"there is no fusedops layer for {kind.__module__}.{kind.__qualname__}, only for "
            f"torch.nn's {', '.join(known.__name__ for known in makers)}: "
            "for anything else, pass example inputs as well, from_torch(module, example_inputs)"
        )
    if precision is None:
        rounded = {p.dtype for p in module.parameters() if p.ndim > 1} == {torch.bfloat16}
        precision = "bfloat16" if rounded else "float32"
    return makers[kind](module, precision=precision)


def _array(parameter):
    """A parameter in float32."""
    if parameter is None:
        return None
    if str(parameter.dtype) not in ("torch.float32", "torch.float16", "torch.bfloat16"):
        raise TypeError(
            f"the module's parameters are {parameter.dtype}, but fusedops computes in float32: pass module.float()"
        )
    return as_array(parameter.float())


def _weight(parameter):
    """A parameter that may stay float16."""
    return as_array(parameter) if str(parameter.dtype) == "torch.float16" else _array(parameter)


def _convolution(m, **options):
    name = type(m).__name__
    if m.padding_mode != "zeros":
        raise ValueError(
            f"{name} has padding_mode={m.padding_mode!r}; a fusedops layer pads with zeros: "
            "load it as a network, from_torch(module, example_inputs)"
        )
    return getattr(layers, name)(_weight(m.weight), _array(m.bias), groups=m.groups, **_windows(m), **options)


def _transposed(m, **options):
    more = dict(output_padding=_number(m.output_padding), groups=m.groups, **options)
    return getattr(layers, type(m).__name__)(_array(m.weight), _array(m.bias), **more, **_windows(m))


def _windows(m):
    return {name: _number(getattr(m, name)) for name in ("stride", "padding", "dilation")}


def _number(value):
    """The one number of a 1-D layer, which torch keeps as a tuple."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 else value


def _linear(m, **options):
    return layers.Linear(_weight(m.weight), _array(m.bias), **options)


def _sequence(m, **options):
    options |= dict(num_layers=m.num_layers, bidirectional=m.bidirectional, batch_first=m.batch_first)
    if m.mode.startswith("RNN"):
        options["activation"] = m.nonlinearity
    names = [f"l{i}{suffix}" for i in range(m.num_layers) for suffix in ("", "_reverse")[: 1 + m.bidirectional]]
    arrays = dict(w_ih="weight_ih", w_hh="weight_hh", b_ih="bias_ih", b_hh="bias_hh", w_hr="weight_hr")
    options |= {
        ours: [(_weight if ours.startswith("w") else _array)(getattr(m, f"{theirs}_{n}")) for n in names]
        for ours, theirs in arrays.items()
        if hasattr(m, f"{theirs}_{names[0]}")
    }
    return getattr(layers, type(m).__name__)(**options)


def _cell(m, **options):
    if hasattr(m, "nonlinearity"):
        options["activation"] = m.nonlinearity
    biases = _array(m.bias_ih), _array(m.bias_hh)
    return getattr(layers, type(m).__name__)(_weight(m.weight_ih), _weight(m.weight_hh), *biases, **options)


def _attention(m, **options):
    if m.bias_k is not None or m.add_zero_attn:
        raise ValueError(
            "MultiheadAttention has add_bias_kv or add_zero_attn, which no fusedops layer has: load it as a network, "
            "from_torch(module, example_inputs)"
        )
    alike = m.in_proj_weight is not None
    separate = m.q_proj_weight, m.k_proj_weight, m.v_proj_weight
    q, k, v = np.split(_array(m.in_proj_weight), 3) if alike else map(_array, separate)
    q_bias, k_bias, v_bias = [None] * 3 if m.in_proj_bias is None else np.split(_array(m.in_proj_bias), 3)
    weights = q, k, v, _array(m.out_proj.weight), q_bias, k_bias, v_bias
    return layers.MultiheadAttention(
        *weights,
        _array(m.out_proj.bias),
        heads=m.num_heads,
        batch_first=m.batch_first,
        **options,
    )
