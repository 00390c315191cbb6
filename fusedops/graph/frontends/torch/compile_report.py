"""What became of a module that was compiled: which parts of its graphs are networks, what PyTorch runs and why."""

import inspect
import itertools
import sys
import weakref
from collections import Counter
from typing import Any, NamedTuple

import torch

from ...ir.explanation import table

LISTED = 5  # operators of a part in a report
_graphs: weakref.WeakSet = weakref.WeakSet()  # CompiledGraph, as long as Dynamo keeps them
_numbers = itertools.count()


class TorchPart(NamedTuple):
    """A part of a graph that is a network: the names of torch's operators in it, and the model."""

    operators: tuple[str, ...]
    model: Any


class EagerNode(NamedTuple):
    """A node that PyTorch runs, and why."""

    node: str
    operator: str
    reason: str


class TorchGraph(NamedTuple):
    """One of the graphs that Dynamo made of a module. `fallback`: why PyTorch runs all of it; "" where it does not."""

    parts: tuple[TorchPart, ...]
    eager: tuple[EagerNode, ...]
    fallback: str

    @property
    def nodes(self) -> int:
        """Torch's operators that run here."""
        return sum(len(p.operators) for p in self.parts)


class TorchReport(NamedTuple):
    """What :func:`fusedops.torch_report` found; ``str()`` is a table."""

    graphs: tuple[TorchGraph, ...]

    def __str__(self):
        here, there = sum(g.nodes for g in self.graphs), sum(len(g.eager) for g in self.graphs)
        parts = sum(len(g.parts) for g in self.graphs)
        lines = [
            f"{_counted(len(self.graphs), 'graph')}: {_counted(here, 'operator')} in {_counted(parts, 'part')} here, "
            f"{there} in PyTorch"
        ]
        rows = [
            (i, f"part {k}", len(part.operators), _most_common(part.operators))
            for i, g in enumerate(self.graphs)
            for k, part in enumerate(g.parts)
        ]
        lines += table(("graph", "runs in", "operators", "what"), rows + list(self._in_torch()))
        return "\n".join(lines)

    def _in_torch(self):
        for i, g in enumerate(self.graphs):
            if g.fallback:
                yield i, "PyTorch", "all", g.fallback
            for (operator, reason), count in Counter((n.operator, n.reason) for n in g.eager).items():
                yield i, "PyTorch", count, f"{operator}: {reason}"


def _counted(n, what):
    return f"{n} {what}{'s' * (n != 1)}"


def _most_common(operators):
    found = Counter(operators).most_common(LISTED + 1)
    names = [f"{name} x {n}" if n > 1 else name for name, n in found[:LISTED]]
    return ", ".join(names + ["..."] * (len(found) > LISTED))


class CompiledGraph:
    """A graph that Dynamo keeps, and whose it is."""

    def __init__(self, fallback=""):
        self.number, self.parts, self.eager, self.fallback = next(_numbers), (), (), fallback
        self.owners = _compiling()
        self.first = not any(g.fallback == fallback and self.owners & g.owners for g in list(_graphs))
        _graphs.add(self)

    def add_owners(self):
        """Notes whose call it serves now: Dynamo gives one graph to all modules of one form."""
        self.owners |= _compiling()


def _compiling():
    """References to the functions and modules that are being called compiled, from the stack."""
    found, frame = set(), sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "compile_wrapper" and "fn" in frame.f_locals:
            found.add(weakref.ref(_owner(frame.f_locals["fn"])))
        frame = frame.f_back
    return found


def _owner(function):
    """The module of a method, or the function itself."""
    function = inspect.unwrap(getattr(function, "_torchdynamo_orig_callable", function))
    own = getattr(function, "__self__", None)
    return own if isinstance(own, torch.nn.Module) else getattr(function, "__func__", function)


def report(compiled):
    """The report of a module or function that torch.compile made."""
    if not callable(compiled):
        raise TypeError(
            f"torch_report takes what torch.compile(..., backend='fusedops') gave, not {type(compiled).__name__}"
        )
    owner = getattr(compiled, "_orig_mod", compiled) if isinstance(compiled, torch.nn.Module) else _owner(compiled)
    graphs = sorted((g for g in list(_graphs) if weakref.ref(owner) in g.owners), key=lambda g: g.number)
    return TorchReport(tuple(TorchGraph(tuple(g.parts), tuple(g.eager), g.fallback) for g in graphs))
