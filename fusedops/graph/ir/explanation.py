"""What was fused, what was not and why, and what it saves, as tables."""

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._internal.lazy import LazyModule
from .graph import Node

if TYPE_CHECKING:
    import shutil
    import textwrap
else:
    shutil, textwrap = LazyModule("shutil"), LazyModule("textwrap")

WIDTH = 120  # of tables that go to no terminal
_MANY = 3  # layers of one kind that a table has one by one
LEAST = 12  # letters to which a column may shrink


class Fusion(NamedTuple):
    """One thing done: `nodes` vanished into the node `into`."""

    kind: str
    nodes: tuple
    into: str
    operations: int  # arithmetic operations saved, for a batch of one
    bytes: int  # traffic to memory saved
    operators: tuple = ()  # of the nodes
    into_operator: str = ""


class Refusal(NamedTuple):
    """One thing not done, and why."""

    kind: str
    node: str
    reason: str
    operator: str = ""


class Evaluated(NamedTuple):
    """A node that NumPy computes, between two calls of the kernels, and why no kernel does. `share`: its part of the
    network's time, None before ``model.profile``."""

    node: str
    operator: str
    reason: str
    share: float | None = None


class QuantizedLayer(NamedTuple):
    """A layer of a network that was quantized. `bits`: 8 or 4, or 32 where it stayed float32 and 16 where bfloat16, and
    `reason` why; `snr`: the signal to noise of its products in int8, in decibels, None where that was not measured;
    `ns` and `float_ns`: the nanoseconds that it is predicted to take in int8 and in the faster of float32 and, where
    the network's precision allows it, bfloat16; only the ratio counts. `us` and `float_us`: the microseconds that it
    was measured to take, with what runs in one step with it, None where it was not."""

    node: str
    op: str
    bits: int
    snr: float | None
    ns: float | None
    float_ns: float | None
    reason: str
    us: float | None = None
    float_us: float | None = None

    @property
    def measured_gain(self) -> float | None:
        """How many times as fast it is in int8, as measured."""
        return self.float_us / self.us if self.us and self.float_us else None

    @property
    def gain(self) -> float | None:
        """How many times as fast it is in int8, by the prediction."""
        return self.float_ns / self.ns if self.ns and self.float_ns else None


class QuantizedOutput(NamedTuple):
    """How far an output moved on the samples: signal to noise in decibels."""

    output: str
    snr: float


class Quantized(NamedTuple):
    """What ``model.quantize`` did; ``str()`` is a table. `ns` and `float_ns` are predicted for the network's layers and
    for conversions between them, as it is and with all of them in float32; `other_ns` for all other nodes, None where
    an earlier version made it. `ms` and `float_ms` were measured for a call on the first sample, as it is and without
    int8, None where that was not measured or nothing is in int8."""

    calibration: str
    layers: tuple[QuantizedLayer, ...]
    outputs: tuple[QuantizedOutput, ...]
    ns: float
    float_ns: float
    other_ns: float | None = None
    ms: float | None = None
    float_ms: float | None = None

    @property
    def measured_gain(self) -> float | None:
        """How many times as fast the whole network is, as measured."""
        return self.float_ms / self.ms if self.ms and self.float_ms else None

    @property
    def gain(self) -> float:
        """How many times as fast as float32 its layers are, by the prediction."""
        return self.float_ns / self.ns if self.ns else 1.0

    @property
    def changed_gain(self) -> float:
        """How many times as fast the layers in int8 are, by the prediction, without conversions."""
        changed = [n for n in self.layers if n.bits == 8 and n.ns and n.float_ns]
        return sum(n.float_ns or 0 for n in changed) / sum(n.ns or 0 for n in changed) if changed else 1.0

    @property
    def network_gain(self) -> float | None:
        """How many times as fast as float32 the whole network is, by the prediction; None where that is not known."""
        if self.other_ns is None:
            return None
        ns = self.ns + self.other_ns
        return (self.float_ns + self.other_ns) / ns if ns else 1.0

    def as_dict(self) -> dict[str, Any]:
        layers = [layer._asdict() | {g: getattr(layer, g) for g in ("gain", "measured_gain")} for layer in self.layers]
        gains = {name: getattr(self, name) for name in ("gain", "changed_gain", "network_gain", "measured_gain")}
        return self._asdict() | gains | {"layers": layers, "outputs": [o._asdict() for o in self.outputs]}

    def __repr__(self):
        moved = "".join(f", {o.output}: {o.snr:.1f} dB" for o in self.outputs)
        gain = self.gain if self.network_gain is None else self.network_gain
        predicted = f", predicted gain {gain:.2f}" if self.float_ns else ""
        return f"Quantized({self._count}{predicted}{moved})"

    @property
    def _count(self) -> str:
        bits = [layer.bits for layer in self.layers if layer.bits <= 8]
        return f"{len(bits)} of {len(self.layers)} layers in int{min(bits, default=8)}"

    def __str__(self):
        network = "" if self.network_gain is None else f", the whole network {self.network_gain:.2f} times"
        before = "without it" if any(layer.bits == 16 for layer in self.layers) else "in float32"
        found = ""
        if self.measured_gain is not None:
            found = f"; measured {self.measured_gain:.2f} times ({self.ms:.3g} ms, {self.float_ms:.3g} {before})"
        head = (
            f"{self._count}, predicted {self.changed_gain:.2f} times as fast as {before}{network}{found}; ranges by "
            f"{self.calibration}"
            if self.float_ns
            else f"{self._count}; weights by {self.calibration}"
        )
        rows = [row for group in _alike(self.layers) for row in _shown(group)]
        titles: tuple[str, ...] = "node", "operator", "in", "dB", "gain", "measured", "because"
        if all(layer.measured_gain is None for layer in self.layers):
            titles, rows = (*titles[:5], titles[6]), [(*row[:5], row[6]) for row in rows]
        moved = [f"{o.output}: {o.snr:.1f} dB of signal to noise, over all samples" for o in self.outputs]
        lines = [
            head,
            *table(titles, rows),
            *([""] if moved else []),
            *moved,
        ]
        return "\n".join(lines)


def _alike(layers):
    """Layers that stay as they are for one reason and were not measured, together; the others one by one."""
    groups: dict[Any, list[QuantizedLayer]] = {}
    for layer in layers:
        plain = layer.bits == 32 and layer.snr is None and layer.gain is None and layer.us is None
        groups.setdefault((layer.op, layer.reason) if plain else layer.node, []).append(layer)
    return groups.values()


def _shown(layers):
    """The rows of layers that are alike: one for many."""
    if len(layers) > _MANY:
        layers = [layers[0]._replace(node=f"{len(layers)} layers, {layers[0].node} to {layers[-1].node}")]
    return [
        (
            layer.node,
            layer.op,
            {32: "float32", 16: "bfloat16"}.get(layer.bits, f"int{layer.bits}"),
            _number(layer.snr, ".1f"),
            _number(layer.gain, ".2f"),
            _number(layer.measured_gain, ".2f"),
            layer.reason,
        )
        for layer in layers
    ]


def _number(value, form):
    return "" if value is None else format(value, form)


class Explanation(NamedTuple):
    """What the passes did to a network; ``str()`` is a table.

    Operations and bytes are those saved in one call with a batch of one: arithmetic of nodes that vanished into
    constants or into the operation before them, and the writing and reading of values between nodes that no longer
    stand in memory. `quantized` says what ``model.quantize`` did, None without it. `numpy` has the nodes that NumPy
    computes, `activations` those that are passes of their own, each with the reason.
    """

    fusions: list[Fusion]
    refusals: list[Refusal]
    quantized: Quantized | None
    numpy: list[Evaluated]
    activations: list[Refusal]

    @classmethod
    def of(cls, report, numpy, activations):
        return cls(
            [r for r in report if isinstance(r, Fusion)],
            [r for r in report if isinstance(r, Refusal)],
            next((r for r in report if isinstance(r, Quantized)), None),
            numpy,
            activations,
        )

    @property
    def operations(self) -> int:
        return sum(f.operations for f in self.fusions)

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.fusions)

    def as_dict(self) -> dict[str, Any]:
        quantized = {} if self.quantized is None else {"quantized": self.quantized.as_dict()}
        return {
            "fusions": [f._asdict() for f in self.fusions],
            "refusals": [r._asdict() for r in self.refusals],
            "numpy": [n._asdict() for n in self.numpy],
            "activations": [a._asdict() for a in self.activations],
            "operations": self.operations,
            "bytes": self.bytes,
            **quantized,
        }

    def _by_node(self):
        """A table of the nodes that others were fused into: its name, and their operators in the order of the fusions.
        Where a node was fused into a second one, and that into a third, the third has both. One fusion alone needs
        no second table."""
        if len(self.fusions) < 2:
            return []
        into = {name: f.into for f in self.fusions for name in f.nodes if name != f.into}
        groups: dict[str, Counter[str]] = {}
        operators = {f.into: f.into_operator for f in self.fusions}
        for f in self.fusions:
            last, passed = f.into, {f.into}
            while last in into and into[last] not in passed:
                last = into[last]
                passed.add(last)
            groups.setdefault(last, Counter()).update(f.operators or f.nodes)
        rows = [
            (
                _beside(operators[name], name),
                "<-",
                ", ".join(operator if n == 1 else f"{operator} x {n}" for operator, n in group.items()),
            )
            for name, group in groups.items()
        ]
        return ["", "The same fusions, by node", *table(("node", "", "operators"), rows)]

    def __str__(self):
        rows = [
            (
                f.kind,
                ", ".join(_beside(op, name) for op, name in zip(f.operators or [""] * len(f.nodes), f.nodes)),
                "into",
                _beside(f.into_operator, f.into),
                quantity(f.operations),
                quantity(f.bytes, "B"),
            )
            for f in self.fusions
        ]
        made = f"{_counted(rows, 'fusion')} save{'s' * (len(rows) == 1)}"
        saved = f"{quantity(self.operations)} operations and {quantity(self.bytes, 'B')} of memory traffic"
        head = f"{made} {saved} a call"
        lines = [head, *(table(("pass", "nodes", "", "", "operations", "traffic"), rows) if rows else [])]
        lines += self._by_node()
        alone = {a.node for a in self.activations}
        refusals = [(r.kind, _beside(r.operator, r.node), r.reason) for r in self.refusals if r.node not in alone]
        if refusals:
            lines += ["", f"{len(refusals)} refused", *table(("pass", "node", "because"), refusals)]
        if self.activations:
            rows = [(_beside(a.operator, a.node), a.reason) for a in self.activations]
            lines += ["", f"{_counted(rows, 'activation')} left alone", *table(("node", "because"), rows)]
        if self.numpy:
            rows = [(n.node, n.operator, "" if n.share is None else f"{n.share:.1%}", n.reason) for n in self.numpy]
            lines += ["", f"{_counted(rows, 'node')} computed by NumPy"]
            lines += table(("node", "operator", "of the time", "because"), rows)
        if self.quantized is not None:
            lines += ["", str(self.quantized)]
        return "\n".join(lines)


def quantity(n, unit=""):
    """Writes a number with the prefix that suits its size."""
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {prefix}{unit}"
    return f"{n} {unit}".rstrip()


def _counted(rows, what):
    return f"{len(rows)} {what}{'s' * (len(rows) != 1)}"


def operator_of(node: Node) -> str:
    """Returns a node's operator as users know it: an activation by its name."""
    kind = node.activation if node.op == "Activation" else node.op
    return str(kind[0] if isinstance(kind, tuple) else kind)


def _beside(operator, name):
    """A node's operator and its name, which may be the operator's with a number."""
    last = re.split(r"[./:]", name)[-1]
    same = re.fullmatch(rf"{re.escape(operator)}[_-]?\d*", last, re.IGNORECASE)
    return name if same or not operator else f"{operator} {name}"


def table(head, rows, width=None):
    """Lines of left-aligned columns; numbers, which start with a digit, to the right. What is wider than the terminal
    goes on in the next lines."""
    rows = [tuple(map(str, r)) for r in rows]
    right = [all(r[i][:1].isdigit() or not r[i] for r in rows) for i in range(len(head))]
    widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
    width = (shutil.get_terminal_size((WIDTH, 24)).columns if width is None else width) - 2 * (len(head) - 1)
    while sum(widths) > width and max(widths) > LEAST:
        widest = widths.index(max(widths))
        widths[widest] = max(LEAST, widths[widest] - (sum(widths) - width), *_below(widths))
    return [line for row in (head, *rows) for line in _lines(row, widths, right)]


def _below(widths):
    """The widths that are less than the largest, which shrinks no further at once."""
    return [w for w in widths if w < max(widths)]


def _lines(row, widths, right):
    cells = [
        [text] if len(text) <= w else textwrap.wrap(text, w, break_on_hyphens=False)
        for text, w in zip(row, widths, strict=True)
    ]
    for i in range(max(map(len, cells))):
        parts = [cell[i] if i < len(cell) else "" for cell in cells]
        yield "  ".join(
            part.rjust(w) if r else part.ljust(w) for part, w, r in zip(parts, widths, right, strict=True)
        ).rstrip()
