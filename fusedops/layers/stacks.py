"""Stacks of cells: layers and directions of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core
from .._internal.arguments import one_of
from . import integer
from .layer import Layer

if TYPE_CHECKING:
    from typing import Any


def each_layer(num_layers, bidirectional, **weights):
    """For each layer and direction a dict of its arrays, from lists of them, or from single arrays for a single one."""
    num_layers = integer(num_layers, "num_layers")
    count = num_layers * (2 if bidirectional else 1)
    for name, value in weights.items():
        if not isinstance(value, (tuple, list)):
            weights[name] = value = [value] * (count if value is None else 1)
        if len(value) != count:
            raise ValueError(
                f"{name} holds {len(value)} array{'s' * (len(value) != 1)}, but num_layers={num_layers} "
                f"and bidirectional={bool(bidirectional)} make {count}: pass a list, layer by layer, "
                "forward before backward"
            )
    return [{name: value[i] for name, value in weights.items()} for i in range(count)]


DIRECTIONS = "forward", "reverse", "bidirectional"


def ways(direction, bidirectional, reverse):
    """(bidirectional, reverse) of a layer's three options, of which `direction` alone says all."""
    if direction is None:
        return bool(bidirectional), bool(reverse)
    found = one_of(direction, "direction", DIRECTIONS) == "bidirectional", direction == "reverse"
    if (bidirectional or reverse) and found != (bool(bidirectional), bool(reverse)):
        raise ValueError(f"direction={direction!r}, but {bidirectional=} and {reverse=}: pass direction alone")
    return found


def directions_of(shapes, bidirectional, reverse):
    """How many directions there are, for layers whose shapes of (w_ih, w_hh) fit one another."""
    if reverse and bidirectional:
        raise ValueError("reverse=True is for one direction; a bidirectional layer has both")
    directions = 2 if bidirectional else 1
    w_ih, w_hh = shapes[0]
    for i, found in enumerate(shapes):
        expected = (w_ih[0], w_ih[1] if i < directions else directions * w_hh[1]), w_hh
        if found != expected:
            raise ValueError(
                f"w_ih[{i}] has shape {found[0]} and w_hh[{i}] has shape {found[1]}, but to follow "
                f"w_ih[0] {w_ih} and w_hh[0] {w_hh} they must have {expected[0]} "
                f"and {expected[1]}"
            )
    return directions


class Stack(Layer):
    """Layers of cells over a sequence."""

    def _assemble(self, cells, bidirectional, reverse, batch_first):
        directions = directions_of([cell._shapes() for cell in cells], bidirectional, reverse)
        self._options = bool(bidirectional), bool(reverse), bool(batch_first)
        self._stack(tuple(cells), len(cells) // directions, directions, *self._options[1:])

    def __reduce__(self):
        return assembled, (type(self), self.cells, self._options, self._added())

    def __repr__(self):
        options = dict(zip(("bidirectional", "reverse", "batch_first"), self._options))
        shown = [
            f"num_layers={len(self.cells) // (1 + options['bidirectional'])}",
            *(f"{k}=True" for k, v in options.items() if v),
        ]
        return f"{type(self).__name__}({', '.join(shown)}, {self.cells[0]!r})"

    def stream(self, batch: int = 1) -> _core.Stream:
        """A stepper that keeps its state between calls.

        Its outputs have the bits of the whole sequence at once.

        Parameters
        ----------
        batch : int
            Sequences side by side.

        Returns
        -------
        Stream
            ``.step(x)`` takes x (batch, inputs), or (inputs,) for a batch of one, and returns y alike; ``.reset()``
            sets the state to zeros; ``.state`` is a copy of it, and may be assigned to.

        Raises
        ------
        ValueError
            The layer runs backwards, which would need the steps to come.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> stream = fo.RNN(np.ones((1, 1), np.float32), np.ones((1, 1), np.float32), activation="relu").stream()
        >>> [float(stream.step(np.ones(1, np.float32))[0]) for _ in range(3)]
        [1.0, 2.0, 3.0]
        """
        batch = integer(batch, "batch")
        if self._options[0] or self._options[1]:
            raise ValueError("a stream cannot run backwards: it needs a layer without bidirectional and reverse")
        layer: Any = self  # a SequencePlan
        return _core.Stream(layer, batch)


def assembled(cls, cells, options, added):
    layer = cls.__new__(cls)
    layer._assemble(cells, *options)
    vars(layer).update(added)
    return layer
