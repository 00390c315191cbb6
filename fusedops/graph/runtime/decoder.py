"""A network that writes token by token, and keeps its keys and values from call to call."""

from __future__ import annotations

from itertools import count
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from ...layers import integer
from ..steps.tensor import working_memory
from .arguments import checked, in_order, with_inputs
from .threads import limited

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from .merged_decoder import FirstCall

_NOTHING = np.empty(0)
_MASKS, _POSITIONS = ("attention_mask", "mask"), ("position_ids", "positions")


def _room(tokens):
    """Capacity for at least this many tokens, rounded up to a prime, which no number of tokens divides. Otherwise
    strides could be equal by chance and let views merge that do not merge at other lengths, and those would need a new
    plan."""
    return next(n for n in count(max(tokens, 2)) if all(n % d for d in range(2, isqrt(n) + 1)))


def _all_but(hidden, values):
    return [i for i in range(len(values)) if i not in hidden]


def _named_sizes(graph, caches):
    """The names of sizes of caches that other inputs say."""
    names = {n for c in caches for a, n in enumerate(graph.inputs[c.input].shape or ()) if a != c.axis}
    return [n for n in names if isinstance(n, str)]


class Decoder:
    """A network and its keys and values, as :meth:`Model.decoder` makes it.

    ``decoder(*arrays, **by_name)`` takes the inputs that are no caches, in order or by their names, and returns the
    outputs that are none: an array, or a tuple of them. What a call adds to the caches is written after what is there,
    in memory that is doubled where it is used up. An input ``attention_mask`` that is not given is all ones, and
    ``position_ids`` count on from the tokens before. A call that raises an error leaves the caches as they are. A
    decoder is for one thread; several of one model may run at the same time.

    Attributes
    ----------
    caches : dict of str to ndarray
        The inputs that are kept, by their names: views, which a later call may leave behind.
    """

    def __init__(
        self,
        session: Any,
        first: FirstCall | None,
        capacity: int,
        random: Any = None,
        num_threads: int | None = None,
    ) -> None:
        graph, self._session, self._room, self._tokens = session.graph, session, _room(capacity), 0
        self._own = {c.input: c for c in session.caches}
        self._first = first
        self._kept: dict[int, Any] = {}  # other inputs than caches that follow from the first call
        kept = {} if first is None else first.kept
        hidden = {*self._own, *kept, *([] if first is None else [first.condition])}
        self._numbers = _all_but(hidden, graph.inputs)
        self._inputs = [graph.inputs[i] for i in self._numbers]
        self._names = {v.name for v in self._inputs}
        self._results = _all_but({*(c.output for c in session.caches), *kept.values()}, graph.outputs)
        self._buffers: list[Any] = []
        self._random, self._num_threads = random, num_threads
        self._open = _named_sizes(graph, session.caches)
        self._open_sizes: list[Any] | None = None
        self._around: dict[int, Any] = {}  # the sizes of caches before and after the axis that grows
        self._made: tuple[Any, Any] = None, None  # what there are buffers for

    def __len__(self) -> int:
        return self._tokens

    def __repr__(self):
        return f"Decoder({', '.join(v.name for v in self._inputs)}) of {self._tokens} tokens"

    @property
    def caches(self) -> dict[str, NDArray[Any]]:
        names = [self._session.graph.inputs[c.input].name for c in self._session.caches]
        views = [self._view(b, c, self._tokens) for b, c in zip(self._buffers, self._session.caches, strict=False)]
        return dict(zip(names, views, strict=False))

    def truncate(self, tokens: int = 0) -> None:
        """Forgets all but the first `tokens` tokens: a new text, or one that goes back. Memory is kept.

        Parameters
        ----------
        tokens : int

        Raises
        ------
        TypeError, ValueError
            `tokens` is not an int, or not in 0 .. len(decoder).
        """
        tokens = integer(tokens, "tokens", 0)
        if tokens > self._tokens:
            raise ValueError(f"tokens is {tokens}, but the decoder has {self._tokens}")
        self._tokens = tokens

    def __call__(self, /, *arrays, **by_name) -> Any:
        return limited(self._num_threads, self._answer)(*arrays, **by_name)

    def _answer(self, /, *arrays, **by_name):
        given = self._filled(in_order(self._inputs, arrays, by_name) | by_name)
        unknown = given.keys() - self._names
        if unknown:
            raise ValueError(f"the decoder takes {', '.join(v.name for v in self._inputs)}, not {', '.join(unknown)}")
        arrays = [given[v.name] for v in self._inputs if v.name in given]
        arrays = [checked(x, v) for x, v in with_inputs(self._inputs, arrays)]
        if self._first is not None and not self._tokens:
            return self._begin(self._first, arrays)
        slots = self._kept | dict(zip(self._numbers, arrays, strict=True))
        shapes, new = self._shapes(slots), next((x.shape[1] for x in arrays if x.ndim > 1), 0)
        self._grow(self._tokens + new)  # a guess, which saves planning twice
        plan, arenas, total = self._plan(shapes, slots)
        if self._grow(total):
            plan, arenas, _ = self._plan(shapes, slots)
        self._make_room()
        return self._run(plan, arenas, slots, total)

    def _begin(self, first, arrays):
        """The first call of a merged decoder, by the branch that makes the caches."""
        inputs = self._session.graph.inputs
        slots = dict(zip(self._numbers, arrays, strict=True))
        slots[first.condition] = self._condition(first, first.value)
        sizes = self._sizes(slots)
        for i in (*self._own, *first.kept):
            shape = [n if isinstance(n, int) else sizes.get(n, 0) for n in inputs[i].shape or ()]
            slots[i] = np.empty(shape, inputs[i].dtype)
        given = tuple(slots[i] for i in range(len(inputs)))
        made = first.session.run(given) if self._random is None else self._random.call(first.session.run, given)
        shapes = {c.input: made[c.output].shape for c in self._own.values()}
        (total,) = {shapes[i][c.axis] for i, c in self._own.items()}
        self._grow(total)
        self._around = {i: (shapes[i][: c.axis], shapes[i][c.axis + 1 :]) for i, c in self._own.items()}
        self._open_sizes = None
        self._make_room()
        for buffer, cache in zip(self._buffers, self._session.caches, strict=True):
            self._view(buffer, cache, total)[...] = made[cache.output]
        self._kept = {i: made[output] for i, output in first.kept.items()}
        self._kept[first.condition] = self._condition(first, not first.value)
        self._tokens = total
        return self._returned(made)

    def _condition(self, first, value):
        v = self._session.graph.inputs[first.condition]
        return np.full([n if isinstance(n, int) else 1 for n in v.shape or ()], value, v.dtype)

    def _grow(self, total):
        """Whether there is more room from now on, as so many tokens do not leave any."""
        if total < self._room:
            return False
        self._room = _room(max(2 * self._room, total + 1))
        return True

    def _filled(self, given):
        """Adds the mask and the positions that the caller did not give."""
        first = np.shape(next(iter(given.values()), 0))
        if len(first) != 2:
            return given
        batch, new = first
        all_ = self._tokens + new
        for v in self._inputs:
            if v.name in given or v.dtype.kind not in "iu":
                continue
            if v.name in _MASKS:
                given[v.name] = np.ones((batch, all_), v.dtype)
            elif v.name in _POSITIONS:
                given[v.name] = np.broadcast_to(np.arange(self._tokens, all_, dtype=v.dtype), (batch, new))
        return given

    def _sizes(self, slots):
        """The sizes of open axes that inputs say, by their names."""
        return {
            name: n
            for i, x in slots.items()
            for n, name in zip(x.shape, self._session.graph.inputs[i].shape or (), strict=False)
            if isinstance(name, str)
        }

    def _shapes(self, slots):
        """The shapes of all inputs of the network: those of caches follow from the tokens in them, and from the sizes
        that others have under the same names."""
        sizes = self._sizes(slots)
        open_sizes = [sizes.get(name) for name in self._open]
        if open_sizes != self._open_sizes:
            around = self._sizes_around(sizes)
            if self._tokens:
                self._check(around)
            self._around, self._open_sizes = around, open_sizes
        around, shapes = self._around, []
        for i in range(len(self._session.graph.inputs)):
            if i in slots:
                shapes.append(slots[i].shape)
            else:
                front, after = around[i]
                shapes.append((*front, self._tokens, *after))
        return shapes

    def _sizes_around(self, sizes):
        """{cache: the sizes before and after the axis that grows}."""
        found = {}
        for i, cache in self._own.items():
            v = self._session.graph.inputs[i]
            shape = [n if isinstance(n, int) else sizes.get(n) for n in v.shape]
            shape[cache.axis] = self._tokens
            if self._tokens:  # what no input says is as the first call made it
                front, after = self._around[i]
                shape = [m if n is None else n for n, m in zip(shape, (*front, self._tokens, *after), strict=True)]
            if None in shape:
                raise ValueError(f"no input says how long axis {shape.index(None)} of {v} is")
            found[i] = tuple(shape[: cache.axis]), tuple(shape[cache.axis + 1 :])
        return found

    def _check(self, around):
        """Refuses sizes that the caches do not have, such as another number of sequences."""
        for buffer, cache in zip(self._buffers, self._session.caches, strict=True):
            value, (front, after) = self._session.graph.inputs[cache.input], around[cache.input]
            for a, (n, m) in enumerate(zip(buffer.shape, (*front, self._room, *after), strict=True)):
                if a != cache.axis and n != m:
                    raise ValueError(
                        f"the caches of the decoder have {value.shape[a]} {n}, but it is {m} now: "
                        "truncate() begins anew"
                    )

    def _plan(self, shapes, slots):
        """(plan, arenas, tokens after the call) for caches with the room that there is."""
        values = [slots.get(i, _NOTHING) for i in range(len(shapes))]
        plan, arenas = self._session.plan(shapes, values, (self._room,))
        if plan.segmented:
            raise ValueError("the network has shapes that depend on values: call the model with its caches")
        (total,) = {plan.outputs[c.output][0][c.axis] for c in self._own.values()}
        return plan, arenas, total

    def _make_room(self):
        """Memory for the caches, with what is in them."""
        if self._made[0] is self._around and self._made[1] == self._room:
            return
        buffers = []
        for i, cache in enumerate(self._session.caches):
            value, (front, after) = self._session.graph.inputs[cache.input], self._around[cache.input]
            shape, old = (*front, self._room, *after), self._buffers[i] if self._buffers else None
            if old is None or old.shape != shape:
                made = np.empty(shape, value.dtype)
                if self._tokens:
                    self._view(made, cache, self._tokens)[...] = self._view(old, cache, self._tokens)
                old = made
            buffers.append(old)
        self._buffers, self._made = buffers, (self._around, self._room)

    @staticmethod
    def _view(buffer, cache, tokens):
        return buffer[(slice(None),) * cache.axis + (slice(tokens),)]

    def _run(self, plan, arenas, slots, total):
        given = [None] * len(plan.outputs)
        for cache, buffer in zip(self._session.caches, self._buffers, strict=True):
            slots[cache.input] = given[cache.output] = buffer
        arrays = [slots[i] for i in range(len(slots))]
        arena, *results = working_memory(plan, arenas, given)
        try:
            if self._random is None:
                plan.run((arena, *arrays, *results))
            else:
                self._random.call(plan.run, (arena, *arrays, *results))
        finally:
            arenas.append(arena)
        self._tokens = total
        return self._returned(results)

    def _returned(self, results):
        found = tuple(results[i] for i in self._results)
        return found[0] if len(found) == 1 else found
