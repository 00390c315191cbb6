"""Recurrent layers in the graphs of torch.compile. Dynamo refuses functions that have some, unless it is allowed to
unroll them; while it makes a graph for this backend it is, and finds operators that it does not look into."""

import contextlib
import inspect

import torch
from torch._dynamo.callback import callback_handler

from .rnn_ops import Functions


def register(backend):
    """Lets graphs for `backend` have recurrent layers, once; for other backends nothing changes."""
    rnn = torch.nn.modules.rnn
    if isinstance(rnn._VF, Functions):
        return
    around = callback_handler.install_callbacks  # of each graph; callbacks would be forgotten by torch._dynamo.reset

    @torch._dynamo.assume_constant_result
    def ours():
        return _is_for(backend)

    @contextlib.contextmanager
    def allowed(*args, **given):
        config = torch._dynamo.config
        with config.patch(allow_rnn=config.allow_rnn or _is_for(backend)), around(*args, **given):
            yield

    rnn._VF = Functions(torch, rnn._VF, lambda: torch.compiler.is_dynamo_compiling() and ours())
    callback_handler.install_callbacks = allowed


def _is_for(backend):
    """Whether the graph that Dynamo makes now is for a backend, and without gradients, which our operators do not
    have."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "_compile" and "compiler_fn" in frame.f_locals:
            return not torch.is_grad_enabled() and _innermost(frame.f_locals["compiler_fn"]) is backend
        frame = frame.f_back
    return False


def _innermost(backend):
    """A backend without what Dynamo and torch.compile put around it."""
    while True:
        inner = getattr(backend, "_torchdynamo_orig_backend", None) or getattr(backend, "compiler_fn", None)
        if inner is None:
            return backend
        backend = inner
