"""Recurrent layers as one operator each while torch exports or compiles a module: left to itself, PyTorch unrolls them
over the steps and so fixes their number."""

import contextlib
import threading
from functools import cache

_FUNCTIONS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class Lengths:
    """In the place of a packed sequence's batch sizes where its rows are padded, one step after another: the length of
    each row. `fill` is what floats after the ends are filled with, if anything."""

    def __init__(self, tensor, steps, batch, fill=None):
        self.tensor, self.device, self.steps, self.batch = tensor, tensor.device, steps, batch
        self.longest, self.fill = _Longest(), fill

    def live(self, torch, x):
        """Whether elements of x (steps, batch, ...) are before the ends of rows, to broadcast with it."""
        steps = torch.arange(self.steps).unsqueeze(1)
        return (steps < self.tensor).reshape(self.steps, self.batch, *[1] * (x.ndim - 2))

    def filled(self, torch, x):
        if self.fill is None:
            return x
        return x.where(self.live(torch, x), self.fill if x.is_floating_point() else x.max())

    def __getitem__(self, i):
        """The batch, which is the first of the sizes."""
        if i != 0:
            raise TypeError("fusedops does not have the batch sizes of packed sequences, but the first")
        return self.batch

    def size(self, axis):
        """The number of steps that the longest row has."""
        return self.longest


class _Longest:
    """It is no number, but no number is too small for it."""

    def __gt__(self, other):
        return False


_LOCK = threading.Lock()


class _Now(threading.local):
    whole = False


_NOW = _Now()


@contextlib.contextmanager
def whole(torch, on=True):
    """While this lasts torch.nn's recurrent layers call operators of our own, which torch does not look into, in this
    thread; or else torch's."""
    _install(torch)
    before, _NOW.whole = _NOW.whole, on
    try:
        yield
    finally:
        _NOW.whole = before


def is_whole():
    """Whether this thread's layers are."""
    return _NOW.whole


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

    def split(hx, params, *rest):
        return list(hx) if isinstance(hx, (list, tuple)) else [hx], list(params), *rest

    def called(x, hx, *rest):
        if not wanted() or isinstance(hx, torch.Tensor) and hx.ndim == 1:  # the batch sizes of packed sequences
            return original(x, hx, *rest)
        if isinstance(hx, Lengths):
            lengths, (hx, *rest) = hx, rest
            y, *last = ours(x.unflatten(0, (lengths.steps, lengths.batch)), *split(hx, *rest), False, lengths.tensor)
            return lengths.filled(torch, y).flatten(0, 1), *last
        return ours(x, *split(hx, *rest))

    with contextlib.suppress(AttributeError):  # of another version of torch
        table = torch.jit._builtins
        table._register_builtin(called, table._find_builtin(original))  # torch.jit.script takes it as the original
    return called


@cache
def _operator(torch, name, function):
    """An operator of torch's library that is the function, with all states in one list."""
    several = name == "lstm"

    def run(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, lengths=None):
        rest = (hx if several else hx[0], params, has_biases, num_layers, dropout, train, bidirectional)
        if lengths is None:
            found = function(x, *rest, batch_first)
        else:
            with whole(torch, False):
                packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
                y, *last = function(*packed[:2], *rest)
                y, _ = torch.nn.utils.rnn.pad_packed_sequence(packed._replace(data=y), total_length=len(x))
            found = y, *last
        return tuple(y.contiguous() for y in found)  # as `shapes` says

    def shapes(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first, lengths=None):
        return x.new_empty(*x.shape[:2], (1 + bidirectional) * hx[0].shape[2]), *map(torch.empty_like, hx)

    schema = (
        "(Tensor x, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
        "bool bidirectional, bool batch_first, Tensor? lengths=None) -> "
    ) + ("(Tensor, Tensor, Tensor)" if several else "(Tensor, Tensor)")
    operator = torch.library.custom_op(f"fusedops::{name}", run, mutates_args=(), schema=schema)
    operator.register_fake(shapes)
    return operator
