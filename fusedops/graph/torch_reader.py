"""PyTorch modules: whole networks by way of torch's ONNX export, single layers directly."""
import contextlib
import io
import warnings

from .. import layers, recurrent
from .onnx_reader import read_onnx

OPSET = 17


def read_torch(module, example_inputs):
    """The Graph of a module in eval mode, as its export to ONNX has it; the first dimension of each input stays open.

    The tracing exporter goes first: it takes more networks with fewer nodes. Where torch no longer has it, where it fails, or writes a
    network that cannot be read, the current exporter does the work, if need be for the sizes of the examples alone."""
    torch = _import_torch()
    inputs = tuple(torch.as_tensor(x) for x in (example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)))
    axes = dict(dynamic_axes={f"input_{i}": {0: "batch"} for i, x in enumerate(inputs) if x.ndim})
    tracing = dict(opset_version=OPSET, training=torch.onnx.TrainingMode.PRESERVE)  # or torch folds batch norms itself, fold=False or not
    failures, refusals = [], []
    with _as_for_inference(torch, module):
        for options in (dict(dynamo=False, **axes, **tracing), dict(dynamo=True, **axes), dict(dynamo=True)):
            try:
                exported = _export(torch, module, inputs, options)
            except Exception as e:  # torch raises errors of many kinds here
                failures.append(e)
                continue
            try:
                return read_onnx(exported)
            except ValueError as e:
                refusals.append(e)
    if refusals:
        raise refusals[0]
    raise ValueError(f"torch cannot export the module to ONNX: {failures[0]}; and with its current exporter: {failures[-1]}") from failures[-1]


@contextlib.contextmanager
def _as_for_inference(torch, module):
    """The module in eval mode, without warnings and gradients; afterwards all is as it was."""
    training = {m: m.training for m in module.modules()}
    module.eval()
    try:
        with warnings.catch_warnings(), torch.no_grad(), _without_fast_path(torch):
            warnings.simplefilter("ignore")
            yield
    finally:
        for m, before in training.items():
            m.training = before


@contextlib.contextmanager
def _without_fast_path(torch):
    """nn.MultiheadAttention and nn.TransformerEncoder as operators that can be exported, not the one kernel that torch has for inference."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _import_torch():
    try:
        import torch
    except ImportError:
        raise ImportError("from_torch needs PyTorch: pip install 'fusedops[torch]'") from None
    return torch


def _export(torch, module, inputs, options):
    """The bytes of an export."""
    file = io.BytesIO()
    torch.onnx.export(module, inputs, file, input_names=[f"input_{i}" for i in range(len(inputs))], verbose=False, **options)
    return file.getvalue()


def layer_of(module):
    """The prepared layer of a single torch.nn layer.

    Raises
    ------
    TypeError
        There is no such layer.
    """
    torch = _import_torch()
    nn = torch.nn
    makers = {nn.Conv2d: _conv2d, nn.Linear: _linear, nn.RNN: _sequence, nn.LSTM: _sequence, nn.GRU: _sequence,
              nn.RNNCell: _cell, nn.LSTMCell: _cell, nn.GRUCell: _cell}
    kind = type(module)
    if kind not in makers:  # a quantised Linear is a Linear by its short name
        raise TypeError(f"there is no fusedops layer for {kind.__module__}.{kind.__qualname__}, only for "
                        f"torch.nn's {', '.join(known.__name__ for known in makers)}: "
                        "for anything else, pass example inputs as well, from_torch(module, example_inputs)")
    return makers[kind](module)


def _array(parameter):
    if parameter is None:
        return None
    if str(parameter.dtype) != "torch.float32":
        raise TypeError(f"the module's parameters are {parameter.dtype}, but fusedops computes in float32: pass module.float()")
    return parameter.detach().cpu().numpy()


def _conv2d(m):
    if m.padding_mode != "zeros":
        raise ValueError(f"Conv2d has padding_mode={m.padding_mode!r}; a fusedops layer pads with zeros: "
                         "load it as a network, from_torch(module, example_inputs)")
    return layers.Conv2d(_array(m.weight), _array(m.bias), stride=m.stride, padding=m.padding, dilation=m.dilation, groups=m.groups)


def _linear(m):
    return layers.Linear(_array(m.weight), _array(m.bias))


def _sequence(m):
    options = dict(num_layers=m.num_layers, bidirectional=m.bidirectional, batch_first=m.batch_first)
    if m.mode.startswith("RNN"):
        options["activation"] = m.nonlinearity
    names = [f"l{i}{suffix}" for i in range(m.num_layers) for suffix in ("", "_reverse")[:1 + m.bidirectional]]
    arrays = dict(w_ih="weight_ih", w_hh="weight_hh", b_ih="bias_ih", b_hh="bias_hh", w_hr="weight_hr")
    options |= {ours: [_array(getattr(m, f"{theirs}_{n}")) for n in names] for ours, theirs in arrays.items() if hasattr(m, f"{theirs}_{names[0]}")}
    return getattr(recurrent, type(m).__name__)(**options)


def _cell(m):
    options = dict(activation=m.nonlinearity) if hasattr(m, "nonlinearity") else {}
    return getattr(recurrent, type(m).__name__)(*map(_array, (m.weight_ih, m.weight_hh, m.bias_ih, m.bias_hh)), **options)
