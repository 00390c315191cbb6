"""Recurrent layers as one operator each while torch exports or compiles a module: left to itself, PyTorch unrolls them
over the steps and so fixes their number."""

import contextlib
from functools import cache

_FUNCTIONS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@contextlib.contextmanager
def whole(torch):
    """While this lasts torch.nn's recurrent layers call operators of our own, which torch does not look into."""
    rnn = torch.nn.modules.rnn
    original = rnn._VF
    rnn._VF = Functions(torch, original, lambda: True)
    try:
        yield
    finally:
        rnn._VF = original


class Functions:
    """torch's functions, with ours in the place of the recurrent ones where `wanted()`."""

    def __init__(self, torch, original, wanted):
        self._original = original
        for name in _FUNCTIONS:
            setattr(self, name, _function(torch, name, getattr(original, name), wanted))

    def __getattr__(self, name):
        return getattr(self._original, name)


def _function(torch, name, original, wanted):
    ours = _operator(torch, name)

    def called(x, hx, *rest):
        if not wanted() or isinstance(hx, torch.Tensor) and hx.ndim == 1:  # the batch sizes of packed sequences
            return original(x, hx, *rest)
        params, has_biases, num_layers, _, _, bidirectional, _ = rest
        if len(params) != (4 if has_biases else 2) * num_layers * (1 + bidirectional):  # projections
            return original(x, hx, *rest)
        states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
        return ours(x, states, list(params), *rest[1:])

    return called


@cache
def _operator(torch, name):
    """An operator of torch's library that is the function of this name, with all states in one list."""
    several = name == "lstm"

    def run(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        function = getattr(torch._VF, name)
        found = function(
            x, hx if several else hx[0], params, has_biases, num_layers, dropout, train, bidirectional, batch_first
        )
        return tuple(y.contiguous() for y in found)  # as `shapes` says

    def shapes(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        return x.new_empty(*x.shape[:2], (1 + bidirectional) * hx[0].shape[2]), *map(torch.empty_like, hx)

    schema = (
        "(Tensor x, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
        f"bool bidirectional, bool batch_first) -> (Tensor, Tensor{', Tensor' if several else ''})"
    )
    operator = torch.library.custom_op(f"fusedops::{name}", run, mutates_args=(), schema=schema)
    operator.register_fake(shapes)
    return operator
