"""Single layers of torch.nn as the prepared layers of fusedops, with their weights."""

from .... import layers, recurrent


def import_torch():
    try:
        import torch
    except ImportError:
        raise ImportError("from_torch needs PyTorch: pip install 'fusedops[torch]'") from None
    return torch


def layer_of(module):
    """The prepared layer of a single torch.nn layer.

    Raises
    ------
    TypeError
        There is no such layer.
    """
    torch = import_torch()
    nn = torch.nn
    makers = {
        nn.Conv2d: _conv2d,
        nn.Linear: _linear,
        nn.RNN: _sequence,
        nn.LSTM: _sequence,
        nn.GRU: _sequence,
        nn.RNNCell: _cell,
        nn.LSTMCell: _cell,
        nn.GRUCell: _cell,
    }
    kind = type(module)
    if kind not in makers:  # a quantised Linear is a Linear by its short name
        raise TypeError(
            f"there is no fusedops layer for {kind.__module__}.{kind.__qualname__}, only for "
            f"torch.nn's {', '.join(known.__name__ for known in makers)}: "
            "for anything else, pass example inputs as well, from_torch(module, example_inputs)"
        )
    return makers[kind](module)


def _array(parameter):
    if parameter is None:
        return None
    if str(parameter.dtype) != "torch.float32":
        raise TypeError(
            f"the module's parameters are {parameter.dtype}, but fusedops computes in float32: pass module.float()"
        )
    return parameter.detach().cpu().numpy()


def _conv2d(m):
    if m.padding_mode != "zeros":
        raise ValueError(
            f"Conv2d has padding_mode={m.padding_mode!r}; a fusedops layer pads with zeros: "
            "load it as a network, from_torch(module, example_inputs)"
        )
    return layers.Conv2d(
        _array(m.weight), _array(m.bias), stride=m.stride, padding=m.padding, dilation=m.dilation, groups=m.groups
    )


def _linear(m):
    return layers.Linear(_array(m.weight), _array(m.bias))


def _sequence(m):
    options = dict(num_layers=m.num_layers, bidirectional=m.bidirectional, batch_first=m.batch_first)
    if m.mode.startswith("RNN"):
        options["activation"] = m.nonlinearity
    names = [f"l{i}{suffix}" for i in range(m.num_layers) for suffix in ("", "_reverse")[: 1 + m.bidirectional]]
    arrays = dict(w_ih="weight_ih", w_hh="weight_hh", b_ih="bias_ih", b_hh="bias_hh", w_hr="weight_hr")
    options |= {
        ours: [_array(getattr(m, f"{theirs}_{n}")) for n in names]
        for ours, theirs in arrays.items()
        if hasattr(m, f"{theirs}_{names[0]}")
    }
    return getattr(recurrent, type(m).__name__)(**options)


def _cell(m):
    options = dict(activation=m.nonlinearity) if hasattr(m, "nonlinearity") else {}
    return getattr(recurrent, type(m).__name__)(
        *map(_array, (m.weight_ih, m.weight_hh, m.bias_ih, m.bias_hh)), **options
    )
