"""How long layers take in int8 and in float32, measured on a sample: predictions are of machines, not of this one."""

import math
from time import perf_counter
from typing import NamedTuple

from .choice import Cost

_SECONDS, _LEAST, _MOST = 0.5, 4, 40  # for all rounds, and how many there are


class Times(NamedTuple):
    """Least seconds of each layer, and of a whole call, in int8 and in float32."""

    layers: dict  # of a name: (int8, float32)
    whole: tuple

    def joined(self, newer):
        """With newer times."""
        return Times(self.layers | newer.layers, newer.whole)

    @property
    def lost(self):
        """Whether the whole network loses by int8."""
        return self.whole[0] > self.whole[1]

    def costs(self, predicted):
        """Costs of layers: as measured where they were, in the unit of the predictions, {node: Cost}, which stay for
        the others."""
        known = {n: self.layers[n.name] for n in predicted if n.name in self.layers}
        seconds = sum(float32 for _, float32 in known.values())
        unit = sum(predicted[n].float_ns for n in known) / seconds if seconds else 1.0
        return predicted | {n: Cost(int8 * unit, float32 * unit) for n, (int8, float32) in known.items()}


NONE = Times({}, ())


def measured(int8, float32, arrays, predicted):
    """The Times of two sessions of a network on the same inputs, of the layers that are in int8 in the first one. What
    runs as one step is divided among its layers as is `predicted`, {name: Cost}."""
    layers, (best, whole) = {}, _least((int8, float32), arrays)
    for names in _groups(float32.timed(arrays)[0]):
        found = {name: predicted[name] for name in names if name in predicted}
        both = [sum(of.get(name, 0.0) for name in names) for of in best]
        if len(found) == len(names) and all(both):
            sums = [sum(costs) for costs in zip(*found.values(), strict=True)]
            each = {
                name: [s * c / of for s, c, of in zip(both, cost, sums, strict=True)] for name, cost in found.items()
            }
            layers |= {name: tuple(times) for name, times in each.items()}
    return Times(layers, tuple(whole))


def _least(sessions, arrays):
    """([{name of a node: least seconds}], [least seconds of a call]) of sessions, in interleaved calls."""
    best, whole = [{} for _ in sessions], [math.inf for _ in sessions]
    for session in sessions:
        session.timed(arrays)  # plans, packs and brings into caches
    start, rounds = perf_counter(), 0
    while rounds < _LEAST or rounds < _MOST and perf_counter() - start < _SECONDS:
        for i, session in enumerate(sessions):
            plan, seconds = session.timed(arrays)
            whole[i] = min(whole[i], sum(seconds))
            best[i] |= {name: min(s, best[i].get(name, s)) for name, s in _by_name(plan, seconds).items()}
        rounds += 1
    return best, whole


def _groups(plan):
    """The names of nodes that run as one step, for each step."""
    return [tuple(n.name for n in (*step.inner, step.node)) for step in plan.steps]


def _by_name(plan, seconds):
    total = {}
    for step, s in zip(plan.steps, seconds, strict=True):
        total[step.node.name] = total.get(step.node.name, 0.0) + s
    return total
