"""Calls whose caches are in memory of the caller: each is an output that is given as the array which its input begins,
with rows after it. The new rows are written there, and nothing is copied."""

import numpy as np

from . import destinations
from .arguments import check_shape, checked, with_inputs


class LentCaches:
    """The caches of a session's graph, where callers lend memory for them. The session that keeps them is made for the
    first such call."""

    def __init__(self, caches):
        self._caches, self._keeping = caches, None

    def run(self, session, arrays, given, executed):
        """The results of a call of the session, in the arrays that are given; None where it lends no memory for caches.
        `executed` runs a plan."""
        caches, inputs = self._caches, session.graph.inputs
        room = _room_of(inputs, caches, arrays, given) if caches and len(arrays) == len(inputs) else None
        slots = None if room is None else _separate(session, caches, arrays, given)
        if slots is None:
            return None
        self._keeping = self._keeping or session.keeping(caches)
        plan, arenas = self._keeping.plan([() if isinstance(x, list) else x.shape for x in slots], slots, (room,))
        if plan.segmented:  # as it will be in later calls
            self._caches = []
            return None
        destinations.check(given, session.graph.outputs, plan.outputs)
        ready = [None] * len(given) if plan.template.refuses else destinations.in_place(given, slots)
        for c in caches:  # a program asks for the addresses of its slots alone
            slots[c.input] = ready[c.output] = given[c.output]
        return destinations.deliver(executed(plan, arenas, slots, ready), given)


def _room_of(inputs, caches, arrays, given):
    """The rows that the memory of all caches has room for, or None."""
    rooms = set()
    for c in caches:
        x, y = arrays[c.input], given[c.output]
        if x.__class__ is not np.ndarray or not isinstance(y, np.ndarray) or not _begins(x, y, c.axis):
            return None
        check_shape(x.shape, inputs[c.input])
        rooms.add(_room(y, c.axis))
    return rooms.pop() if len(rooms) == 1 else None


def _separate(session, caches, arrays, given):
    """The inputs of a call, checked, or None where other arrays may share the memory of caches."""
    read, written = {c.input for c in caches}, {c.output for c in caches}
    pairs = enumerate(with_inputs(session.graph.inputs, arrays))
    slots = [arrays[i] if i in read else checked(x, v, session.inner) for i, (x, v) in pairs]
    others = [*_arrays(slots, read), *_arrays(given, written)]
    return None if any(np.may_share_memory(given[i], a) for i in written for a in others) else slots


def _arrays(values, but):
    """The arrays among values and in sequences of them, but those of some numbers."""
    for i, x in enumerate(values):
        if i not in but:
            yield from (a for a in (x if isinstance(x, list) else [x]) if isinstance(a, np.ndarray))


def _begins(x, y, axis):
    """Whether an input is the first rows of an output's array."""
    if x.strides != y.strides or x.dtype != y.dtype or not y.size or axis >= x.ndim:
        return False
    a, b = x.shape, y.shape
    if a[:axis] != b[:axis] or a[axis] > b[axis] or a[axis + 1 :] != b[axis + 1 :]:
        return False
    flags = y.flags
    if not (flags.writeable and flags.aligned):
        return False
    return x.__array_interface__["data"][0] == y.__array_interface__["data"][0]


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
