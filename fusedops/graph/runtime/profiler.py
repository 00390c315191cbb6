"""How long a network takes, as a whole and layer by layer."""

import math
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ... import _core
from ..._internal.timing import Shown, Summary, batch_time
from ...layers import Linear
from ...runtime import get_num_threads
from ..ir.explanation import quantity, table
from ..operators.registry import OPERATORS
from ..planner.plan import CallSequence


class Benchmark(NamedTuple):
    """Execution times of a network's forms; ``str()`` is a table. `mean`, `median`, `max`, `min` and `std` are those of
    the network itself."""

    times: dict[str, Summary]

    def __getattr__(self, name: str) -> float:
        if name in Summary._fields:
            return getattr(next(iter(self.times.values())), name)
        raise AttributeError(name)

    def as_dict(self) -> dict[str, dict[str, float]]:
        return {name: s.as_dict() for name, s in self.times.items()}

    def __str__(self):
        shown = Shown.of(self.times.values())
        unit, written = _unit(max(s.min for s in self.times.values()))
        rows = [[name, *(written(getattr(s, f)) for f in shown.columns)] for name, s in self.times.items()]
        titles = ["", *(f"{f} ({unit})" for f in shown.columns)]
        if "unfused" in self.times:  # a saved network has the fused form alone
            titles.append("vs unfused")
            unfused, *forms = (getattr(s, shown.compared) for s in (self.times["unfused"], *self.times.values()))
            for row, form in zip(rows, forms, strict=True):
                row.append(f"{unfused / form:.2f}x")
        return "\n".join([shown.heading, *table(titles, rows)])


def _unit(ms):
    """Chooses the unit of a table of times up to `ms` milliseconds; returns it and a function that writes a time."""
    return ("ms", lambda ms: f"{ms:.4f}") if ms >= 1 else ("us", lambda ms: f"{1e3 * ms:.2f}")


def benchmark(models, arrays, number, repeat, progress):
    """Times models on the same inputs, interleaved: `repeat` samples, each the mean of `number` calls after one that
    brings back into the caches what the others drove out."""
    samples = {name: [] for name in models}
    for done in range(repeat):
        for name, model in models.items():
            model(*arrays)
            samples[name].append(batch_time(lambda m=model: m(*arrays), number))
        progress((done + 1) / repeat)
    return Benchmark({name: Summary.of(s) for name, s in samples.items()})


class NodeProfile(NamedTuple):
    """One node of a network as it runs. `ms` is its time, `unfused_ms` that of the nodes it was fused from, each alone
    (None where the network as it was read is not at hand); `gflop` its multiply-adds as operations, `bytes` its inputs,
    weights and results, `share` its speed over that of a large product."""

    name: str
    op: str
    kernels: str
    ms: float
    unfused_ms: float | None
    gflop: float
    bytes: int
    share: float


class Profile(NamedTuple):
    """Times of a network's nodes; ``str()`` is a table."""

    layers: list[NodeProfile]
    peak: float  # GFLOP/s of large products of float32 on this machine, with as many threads
    bandwidth: float  # GB/s of a pass over more memory than the caches hold

    def as_dict(self) -> dict[str, Any]:
        return {"peak": self.peak, "bandwidth": self.bandwidth, "layers": [n._asdict() for n in self.layers]}

    def _columns(self):
        """Writes each column that has anything, by its title."""
        times, unfused, gflop = ([getattr(n, f) for n in self.layers] for f in ("ms", "unfused_ms", "gflop"))
        unit, written = _unit(sum(times))
        columns = {
            "node": [*(n.name for n in self.layers), "all"],
            "operator": [*(n.op for n in self.layers), ""],
            "steps": [*(n.kernels for n in self.layers), ""],
            unit: [written(ms) for ms in (*times, sum(times))],
            f"unfused {unit}": [] if None in unfused else [written(ms) for ms in (*unfused, sum(unfused))],
            "operations": [quantity(round(1e9 * n)) if n else "" for n in (*gflop, sum(gflop))],
            "of peak": [*(f"{100 * n.share:.0f}%" if n.gflop else "" for n in self.layers), ""],
        }
        return {title: cells for title, cells in columns.items() if any(cells)}

    def __str__(self):
        columns = self._columns()
        lines = [
            *table(tuple(columns), zip(*columns.values(), strict=True)),
            f"peak: {self.peak:.0f} GFLOP/s, {self.bandwidth:.0f} GB/s",
            "times: of each node the least of several runs",
        ]
        if any(n.unfused_ms is None for n in self.layers):
            lines.append("no unfused times: a network that was saved, copied or unpickled has its fused form alone")
        if any(n.share > 1.02 for n in self.layers):
            lines.append(
                "over 100%: Winograd's algorithm multiplies less often than is counted; "
                "int8 is faster than float32's peak"
            )
        return "\n".join(lines)


def profile(session, unfused, arrays, repeat=20):
    """The Profile of a session on these inputs; `unfused` is that of the same network with nothing fused or folded, or
    None."""
    peaks = [_peak()]  # before, between and after: other work on the machine comes and goes
    times = _node_times(session, arrays, repeat)
    peaks.append(_peak())
    plain = _node_times(unfused, arrays, repeat) if unfused else {}
    (plan, _), peak = session.timed(arrays), max(*peaks, _peak())
    rows = []
    for node in dict.fromkeys(step.node for step in plan.steps):
        seconds, steps = times[node.name], [s for s in plan.steps if s.node is node]
        nodes = [*(n for s in steps for n in s.inner), node]
        gflop = sum(_operations(plan, n) for n in nodes) / 1e9
        kernels = ", ".join(dict.fromkeys(s.kind for s in steps))
        before = sum(plain.get(name, 0) for name in (node.name, *node.fused_from)) if unfused else None
        traffic = _traffic(plan, nodes)
        rows.append(
            NodeProfile(
                node.name,
                node.op,
                kernels,
                1e3 * seconds,
                before if before is None else 1e3 * before,
                gflop,
                traffic,
                gflop / seconds / peak,
            )
        )
    return Profile(rows, peak, _bandwidth())


def _traffic(plan, nodes):
    """Bytes that nodes of one kernel read and write; what is between them stays in registers and caches."""
    inner = {"", *(n.output for n in nodes[:-1])}
    return 4 * sum(math.prod(plan.shapes[v]) for n in nodes for v in (*n.inputs, *n.outputs) if v not in inner)


def _node_times(session, arrays, repeat):
    """The least seconds of each node's steps together, by its name."""
    best = {}
    for _ in range(repeat):
        plan, seconds = session.timed(arrays)
        total = {}
        for step, s in zip(plan.steps, seconds, strict=True):
            total[step.node.name] = total.get(step.node.name, 0.0) + s
        best = {name: min(s, best.get(name, s)) for name, s in total.items()}
    return best


def run_timed(plan, slots):
    """Runs a plan; returns the seconds of each step."""
    seconds = []
    for part in plan.parts:
        if isinstance(part, CallSequence):
            times = np.zeros(len(part.steps_of(plan)))
            part.run(slots, times)
            seconds += times.tolist()
        else:
            start = perf_counter()
            part.run(slots)
            seconds.append(perf_counter() - start)
    return seconds


def _operations(plan, node):
    """Operations of a node's multiply-adds."""
    if not OPERATORS[node.op].kernel.weights:
        return 0
    x, y, w = (plan.shapes[v] for v in (node.inputs[0], node.output, node.inputs[1]))
    points = np.prod(x if node.op == "ConvTranspose" else y)
    return 2 * int(points) * int(np.prod(w[1:]))


def _peak():
    """GFLOP/s of the best of many products of 64 rows a thread by 512 x 512.

    Each takes a fraction of a millisecond: other work on the machine disturbs most long samples, but not every short
    one.
    """
    rng, rows = np.random.default_rng(0), 64 * get_num_threads()
    w, x = (rng.standard_normal((n, 512), np.float32) for n in (512, rows))
    layer, y = Linear(w), np.empty((rows, 512), np.float32)
    return 2 * y.size * 512 / min(batch_time(lambda: layer(x, out=y), 1) for _ in range(100)) / 1e9


def _bandwidth():
    """GB/s of the best of some passes that read 64 MB and write another 64 MB."""
    x = np.zeros((1 << 10, 1 << 14), np.float32)
    y = np.zeros_like(x)
    return 2 * x.nbytes / min(batch_time(lambda: _core.pointwise(x, y), 1) for _ in range(4)) / 1e9
