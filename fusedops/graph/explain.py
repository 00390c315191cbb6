"""What was fused, what was not and why, and what it buys, as tables."""
from typing import Any, NamedTuple


class Fusion(NamedTuple):
    """One thing done: `nodes` vanished into the node `into`."""
    kind: str
    nodes: tuple
    into: str
    operations: int  # arithmetic operations saved, for a batch of one
    bytes: int  # traffic to memory saved


class Refusal(NamedTuple):
    """One thing not done, and why."""
    kind: str
    node: str
    reason: str


class Explanation(NamedTuple):
    """What the passes did to a network; ``str()`` is a table.

    Operations and bytes are those saved in one call with a batch of one: arithmetic of nodes that vanished into
    constants or into the operation before them, and the writing and reading of values between nodes that no longer
    stand in memory.
    """

    fusions: list[Fusion]
    refusals: list[Refusal]

    @classmethod
    def of(cls, report):
        return cls([r for r in report if isinstance(r, Fusion)], [r for r in report if isinstance(r, Refusal)])

    @property
    def operations(self) -> int:
        return sum(f.operations for f in self.fusions)

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.fusions)

    def as_dict(self) -> dict[str, Any]:
        return {"fusions": [f._asdict() for f in self.fusions], "refusals": [r._asdict() for r in self.refusals],
                "operations": self.operations, "bytes": self.bytes}

    def __str__(self):
        rows = [(f.kind, ", ".join(f.nodes), "into", f.into, _quantity(f.operations), _quantity(f.bytes, "B"))
                for f in self.fusions]
        made = "1 fusion saves" if len(rows) == 1 else f"{len(rows)} fusions save"
        head = f"{made} {_quantity(self.operations)} operations and {_quantity(self.bytes, 'B')} of memory traffic a call"
        lines = [head, *table(("pass", "nodes", "", "", "operations", "traffic"), rows)]
        if self.refusals:
            lines += ["", f"{len(self.refusals)} refused", *table(("pass", "node", "because"), self.refusals)]
        return "\n".join(lines)


def _quantity(n, unit=""):
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {prefix}{unit}"
    return f"{n} {unit}".rstrip()


def table(head, rows):
    """Lines of left-aligned columns; numbers, which start with a digit, to the right."""
    rows = [tuple(map(str, r)) for r in rows]
    widths = [min(max(len(r[i]) for r in (head, *rows)), 60) for i in range(len(head))]
    right = [all(r[i][:1].isdigit() or not r[i] for r in rows) for i in range(len(head))]
    return [
        "  ".join(_cell(c, w, r) for c, w, r in zip(row, widths, right, strict=True)).rstrip() for row in (head, *rows)
    ]


def _cell(text, width, right):
    text = text if len(text) <= width else text[:width - 3] + "..."
    return text.rjust(width) if right else text.ljust(width)
