"""torch.compile's backend: Dynamo's graphs without changes in place (by AOTAutograd), parameters as constants, and what
has readers in networks."""

import logging
import warnings
import weakref
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import NamedTuple

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.utils._python_dispatch import _disable_current_modes

from ...._internal.progress import shown
from .compile_report import CompiledGraph
from .parts import split

LOGGER = logging.getLogger("fusedops")

_VERSION = torch.Tensor._version.__get__
_HOW = {
    "gradients are wanted": "for inference call it under torch.inference_mode() or torch.no_grad()",
    "it is in training mode": "for inference call .eval() first",
    "its tensors are not in the CPU's memory": ".cpu() moves it there",
}
_DECOMPOSED = {  # others without a reader are faster in PyTorch: one pass there, several here
    "addcdiv",
    "addcmul",
    "binary_cross_entropy",
    "nll_loss_forward",
    "smooth_l1_loss",
}


def compile_graph(graph_module, inputs, build, progress=None):
    """What torch.compile calls in the place of a graph; `build` makes a Model of a Graph; `progress` shows how far this
    is, or is told."""
    reason = _why_not(inputs)
    if reason:
        return _in_torch(graph_module.forward, reason)

    def compiled(functional, _):
        if _trains(functional.graph):
            return make_boxed_func(_in_torch(functional.forward, "it is in training mode"))
        context = torch._guards.TracingContext.get()
        given, metadata = [*(context.params_flat or ()), *inputs], context.fw_metadata
        static = set(metadata.static_input_indices or ()) - set(metadata.mutated_inp_runtime_indices)
        alone = len(given) == sum(n.op == "placeholder" for n in functional.graph.nodes)  # no input is part of another
        return _Compiled(functional, sorted(static) if alone else [], given, build, progress)

    compiler = aot_autograd(fw_compiler=compiled, inference_compiler=compiled, decompositions=_decompositions())
    return compiler(graph_module, inputs)


@cache
def _decompositions():
    """Torch's own, of the operators that gain by it."""
    table = core_aten_decompositions()
    return {op: simpler for op, simpler in table.items() if op._schema.name.split("::")[1] in _DECOMPOSED}


def _why_not(inputs):
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return "gradients are wanted"
    if any(x.device.type != "cpu" for x in tensors):
        return "its tensors are not in the CPU's memory"
    return ""


def _trains(graph):
    """Whether an operator works as in training."""
    for node in graph.nodes:
        names = [a.name for a in getattr(getattr(node.target, "_schema", None), "arguments", ())]
        given = dict(zip(names, node.args)) | node.kwargs
        if given.get("training") is True or given.get("train") is True:
            return True
    return False


def _in_torch(run, reason):
    """A graph as it is, with a warning, the first for its module."""
    graph = CompiledGraph(reason)
    LOGGER.info("torch.compile: PyTorch runs a graph: %s", reason)
    if graph.first:
        warnings.warn(
            f"fusedops: {reason}, so PyTorch runs this module; {_HOW[reason]}",
            RuntimeWarning,
            stacklevel=2,
        )

    def forward(*args):
        return run(*args)

    forward.graph = graph  # type: ignore[attr-defined]
    return forward


class _Compiled:
    """A graph with parameters as constants. Dynamo gives one graph to all modules of one form, and parameters may be
    written: networks are kept by parameters and their versions, and made at the first call with these."""

    _boxed_call = True

    def __init__(self, module, static, inputs, build, progress):
        self._module, self._static, self._build, self._progress = module, static, build, progress
        self._names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        self._variants, self._lock = {}, Lock()
        self.graph = CompiledGraph()
        self._variant([inputs[i] for i in static])  # now, as what it decides by open sizes becomes a guard

    def __call__(self, args):
        given = [args[i] for i in self._static]
        found = self._variants.get(tuple(map(id, given)))
        if found is None or found.versions != _versions(given):
            found = self._variant(given)
        results = found.run(*[args[i] for i in found.used])
        args.clear()
        return results

    def _variant(self, given):
        """The graph with these parameters."""
        key, versions = tuple(map(id, given)), _versions(given)
        with self._lock:
            found = self._variants.get(key)
            if found is None or found.versions != versions:
                module = self._split(given)
                self.graph.add_owners()
                used = [self._names.index(n.name) for n in module.graph.nodes if n.op == "placeholder"]
                forget = [weakref.ref(t, lambda _: self._variants.pop(key, None)) for t in given]
                self._variants[key] = found = _Variant(versions, used, module.forward, forget)
            return found

    def _split(self, given):
        constants = {self._names[i]: t for i, t in zip(self._static, given, strict=True)}
        with torch.no_grad(), _disable_current_modes(), shown(self._progress, "torch.compile") as tell:
            module, self.graph.parts, self.graph.eager = split(self._module, constants, self._build, tell)
            tell(1.0)
        LOGGER.info("torch.compile: parts that run here: %d", len(self.graph.parts))
        for node in self.graph.eager:
            LOGGER.info("torch.compile: PyTorch runs %s %s: %s", node.operator, node.node, node.reason)
        return module


class _Variant(NamedTuple):
    """A graph with some parameters: their versions, the places of the inputs that it takes, what runs it, and weak
    references that forget it with the first of its parameters."""

    versions: list
    used: list
    run: Callable
    forget: list


def _versions(tensors):
    """How often each was written to; tensors of inference mode do not count."""
    try:
        return list(map(_VERSION, tensors))
    except RuntimeError:
        return [None if t.is_inference() else t._version for t in tensors]
