"""The steps of a program."""

from dataclasses import dataclass

from ... import _core
from ..ir.graph import Node
from .tensor import TensorView


@dataclass(slots=True, eq=False)
class Step:
    """One step: a kind of _core.STEPS with its arguments by name, or (kind "numpy") a node to evaluate; `inner` are the
    nodes before it that it computes too, `tiles` the parts of the batch that it runs on one after the other."""

    kind: str
    node: Node
    arguments: dict
    reads: list[TensorView]
    writes: list[TensorView]
    inner: tuple[Node, ...] = ()
    tiles: int = 1

    @classmethod
    def of(cls, kind, node, arguments):
        """A step of a program; its description says what it reads and writes."""
        results = _core.STEPS[kind].results
        reads = [a for name, a in arguments.items() if isinstance(a, TensorView) and name not in results]
        writes = [a for name in results if isinstance(a := arguments.get(name), TensorView)]
        return cls(kind, node, arguments, reads, writes)

    def tensors(self):
        return [t for t in (*self.reads, *self.writes) if t is not None]

    def with_rows(self):
        """Names of the arguments that have a row for each image of a batch."""
        described = _core.STEPS[self.kind]
        return [
            name for name in described.tensors if name not in described.indices and self.arguments.get(name) is not None
        ]

    def replace(self, arguments):
        """Takes other tensors, by the name of the argument that each replaces."""
        by_old = {id(self.arguments[name]): t for name, t in arguments.items()}
        self.arguments = {name: by_old.get(id(a), a) for name, a in self.arguments.items()}
        self.reads, self.writes = ([by_old.get(id(t), t) for t in ts] for ts in (self.reads, self.writes))
