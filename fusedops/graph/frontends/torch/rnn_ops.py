"""Recurrent layers as one operator each while torch exports or compiles a module: left to itself, PyTorch unrolls them
over the steps and so fixes their number."""

import contextlib
import threading
from functools import cache

_FUNCTIONS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_LOCK = threading.Lock()


class _Now(threading.local):
    whole = False


_NOW = _Now()


@contextlib.contextmanager
def whole(torch):
    """While this lasts torch.nn's recurrent layers call operators of our own, which torch does not look into, in this
    thread."""
    _install(torch)
    before, _NOW.whole = _NOW.whole, True
    try:
        yield
    finally:
        _NOW.whole = before


def _install(torch):
    """Puts functions that ask whether layers are whole into torch._VF, for good: each call of a compiled graph checks
    that what it was made with is still there."""
    with _LOCK:
        for name in _FUNCTIONS:
            if name not in vars(torch._VF):
                setattr(torch._VF, name, _function(torch, name, getattr(torch._VF, name)))


def _function(torch, name, original):
    ours = _operator(torch, name, original)

    @torch._dynamo.assume_constant_result
    def wanted():
        return _NOW.whole and not torch.is_grad_enabled()  # ours have no gradients

    def called(x, hx, *rest):
        if not wanted() or isinstance(hx, torch.Tensor) and hx.ndim == 1:  # the batch sizes of packed sequences
            return original(x, hx, *rest)
        params = rest[0]
        states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
        return ours(x, states, list(params), *rest[1:])

    with contextlib.suppress(AttributeError):  # of another version of torch
        table = torch.jit._builtins
        table._register_builtin(called, table._find_builtin(original))  # torch.jit.script takes it as the original
    return called


@cache
def _operator(torch, name, function):
    """An operator of torch's library that is the function, with all states in one list."""
    several = name == "lstm"

    def run(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
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
