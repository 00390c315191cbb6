"""Recurrent layers in the graphs of torch.compile. Dynamo refuses functions that have some, unless it is allowed to
unroll them; while it makes a graph for this backend it is, and finds operators that it does not look into."""

import contextlib
import inspect
from functools import cache
from typing import Any

import torch

from .rnn_ops import whole

try:
    from torch._dynamo import callback
except ImportError:  # another version of torch
    callback = None  # type: ignore[assignment]


@cache
def register(backend):
    """Lets graphs for `backend` have recurrent layers, once; for other backends nothing changes. PyTorch keeps the
    layers where its version has not what this takes."""
    config = torch._dynamo.config
    handler: Any = getattr(callback, "callback_handler", None)
    if not hasattr(handler, "install_callbacks") or not hasattr(config, "allow_rnn"):
        return
    around = handler.install_callbacks  # of each graph; callbacks would be forgotten by torch._dynamo.reset

    @contextlib.contextmanager
    def allowed(*args, **given):
        with contextlib.ExitStack() as stack:
            if _is_for(backend):
                stack.enter_context(whole(torch))
                stack.enter_context(config.patch(allow_rnn=True))
            stack.enter_context(around(*args, **given))
            yield

    handler.install_callbacks = allowed


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
