"""Calls whose caches lie in memory of the caller: each is an output that is given as the array which its input begins,
with rows behind it. The new rows are written there, and nothing is copied."""

import numpy as np

from . import destinations
from .arguments import checked, with_inputs


def run(session, arrays, given, executed):
    """The results of a call of a session that keeps caches, in the arrays that are given; None where its caches do not
    lie so. `executed` runs a plan."""
    inputs, caches = session.graph.inputs, session.caches
    memory = _memory(caches, arrays, given) if len(arrays) == len(inputs) else None
    if memory is None:
        return None
    room, own = memory
    pairs = enumerate(with_inputs(inputs, arrays))
    slots = [arrays[i] if i in own else checked(x, v, session.inner) for i, (x, v) in pairs]
    plan, arenas = session.plan([x.shape for x in slots], slots, (room,))
    if plan.segmented:
        return None
    destinations.check(given, session.graph.outputs, plan.outputs)
    results = {c.output: own[c.input] for c in caches}
    others = destinations.in_place([None if i in results else y for i, y in enumerate(given)], slots)
    slots = [own.get(i, x) for i, x in enumerate(slots)]
    made = executed(plan, arenas, slots, [results.get(i, y) for i, y in enumerate(others)])
    return destinations.deliver([given[i] if i in results else y for i, y in enumerate(made)], given)


def _memory(caches, arrays, given):
    """(rows that there is room for, {input: the memory of its cache}), or None."""
    own, rooms = {}, set()
    for c in caches:
        x, y = arrays[c.input], given[c.output]
        if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray) or not _begins(x, y, c.axis):
            return None
        room = _room(y, c.axis)
        if room is None:
            return None
        shape = (*y.shape[: c.axis], room, *y.shape[c.axis + 1 :])
        own[c.input] = np.lib.stride_tricks.as_strided(y, shape)  # not read behind the rows of y
        rooms.add(room)
    outputs = {c.output for c in caches}
    others = [x for i, x in enumerate(arrays) if i not in own] + [y for i, y in enumerate(given) if i not in outputs]
    return (rooms.pop(), own) if len(rooms) == 1 and not _share(own.values(), others) else None


def _share(memory, others):
    """Whether other arrays may lie in the memory of caches."""
    return any(np.may_share_memory(y, x) for y in memory for x in others if isinstance(x, np.ndarray))


def _begins(x, y, axis):
    """Whether an input is the first rows of an output's array."""
    a, b = (array.__array_interface__["data"][0] for array in (x, y))
    if a != b or x.strides != y.strides or x.dtype != y.dtype or not y.size:
        return False
    first = (*y.shape[:axis], min(x.shape[axis], y.shape[axis]), *y.shape[axis + 1 :])
    return x.shape == first and y.flags.writeable and y.flags.aligned


def _room(y, axis):
    """The rows that there is room for along an axis of an array, or None where its elements have gaps elsewhere."""
    step, room = y.itemsize, y.shape[axis]
    for a in reversed(range(y.ndim)):
        if a == axis - 1:
            room, rest = divmod(y.strides[a], y.strides[axis])
            if rest or room < y.shape[axis]:
                return None
            step = y.strides[a]
        if y.strides[a] != step:
            return None
        step *= y.shape[a]
    return room
