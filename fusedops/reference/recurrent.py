"""Recurrent cells and sequences, unfused: products, gates and states are a pass each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core, activations, functional, layers
from .._internal.bfloat16 import rounded
from ..layers import cells, stacks
from .twins import Twin, twin_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._types import Array, Input

_WEIGHTS = "w_ih", "w_hh", "b_ih", "b_hh", "w_hr", "peephole"


class _UnfusedCell(Twin):
    """Two products, their biases, then the gates and the new state, each step a pass over memory."""

    def _assemble(
        self, kind, w_ih, w_hh, b_ih, b_hh, w_hr=None, peephole=None, *, clip=None, precision="float32", fold_bn=False
    ):
        self._rounds = layers.checked_precision(precision) == "bfloat16"
        self._weights = cells.cell_weights(kind, w_ih, w_hh, b_ih, b_hh, w_hr, peephole)
        w_ih, w_hh, b_ih, b_hh, w_hr, self._peephole = self._weights
        self._inputs, self._outputs = w_ih.shape[1], w_hh.shape[1]
        self._hidden = self._outputs if w_hr is None else w_hr.shape[1]
        self._of_x, self._of_h = (self._affine(w, b, fold_bn) for w, b in ((w_ih, b_ih), (w_hh, b_hh)))
        self._project = None if w_hr is None else self._affine(w_hr, None, True)
        self._clip = _clip(clip, "clip")

    _step: Callable[..., Any]  # of its kind

    def _widths(self):
        """Of the states."""
        return (self._outputs,)

    def __call__(self, x, *states):
        """The new states for an x (batch, inputs) or (inputs,); ``_step`` writes over its first argument."""
        x = _core.as_input(x, "x", (1, 2))
        if x.shape[-1] != self._inputs:
            raise ValueError(f"x has shape {x.shape}, but w_ih has {self._inputs} columns")
        states = [_state(s, name, (*x.shape[:-1], width)) for s, name, width in zip(states, "hc", self._widths())]
        if x.ndim == 2:
            return self._step(self._of_x(x), *states)
        return [s[0] for s in self._step(self._of_x(x[np.newaxis]), *(s[np.newaxis] for s in states))]

    def _affine(self, w, bias, folded):
        """``w x + bias`` as a function of x, with the bias in the kernel or as a pass of its own."""
        layer = layers.Linear(rounded(w) if self._rounds else w, bias if folded else None)
        product = (lambda x: layer(rounded(x))) if self._rounds else layer
        if folded or bias is None:
            return product

        def affine(x):
            y = product(x)
            _core.pointwise(y, y, shift=bias)
            return y

        return affine

    def _apply(self, gate, activation):
        """A gate's function, after the clip where there is one."""
        if self._clip is not None:
            _core.pointwise(gate, gate, activation=self._clip)
        _core.pointwise(gate, gate, activation=activation)


def _clip(most, name):
    """The activation that holds values in -most..most, or None."""
    return None if most is None else activations.parse(("clip", -cells.clip_of(most, name), most))


def _state(state, name, shape):
    state = _core.as_input(state, name)
    if state.shape != shape:
        raise ValueError(f"{name} has shape {state.shape}, but x needs one of shape {shape}")
    return np.ascontiguousarray(state)


def _written(y, out):
    """y, in `out` where that is given."""
    if out is None:
        return y
    _core.checked_out(out, y.shape)[...] = y
    return out


class RNNCell(_UnfusedCell, fused=layers.RNNCell):
    def _make(self, w_ih, w_hh, b_ih, b_hh, activation, **options):
        self._assemble("RNN", w_ih, w_hh, b_ih, b_hh, **options)
        self._activation = cells.activation_of(activation)

    def _step(self, of_x, h):
        _core.pointwise(of_x, of_x, residual=self._of_h(h))
        self._apply(of_x, self._activation)
        return (of_x,)

    def __call__(self, x: Input, h: Input, out: Array | None = None) -> Array:
        return _written(super().__call__(x, h)[0], out)


class LSTMCell(_UnfusedCell, fused=layers.LSTMCell):
    def _make(self, w_ih, w_hh, b_ih, b_hh, w_hr, peephole, cell_clip, activations, **options):
        self._assemble("LSTM", w_ih, w_hh, b_ih, b_hh, w_hr, peephole, **options)
        self._cell_clip = _clip(cell_clip, "cell_clip")
        _, (self._of_new, self._of_gates, self._of_out) = cells.gate_functions("LSTM", activations)

    def _widths(self):
        return self._outputs, self._hidden

    def _step(self, of_x, h, c):
        n = self._hidden
        _core.pointwise(of_x, of_x, residual=self._of_h(h))
        i, f, g, o = of_x[:, :n], of_x[:, n : 2 * n], of_x[:, 2 * n : 3 * n], of_x[:, 3 * n :]
        self._peep(i, c, 0)
        self._peep(f, c, 1)
        self._apply(of_x[:, : 2 * n], self._of_gates)
        self._apply(g, self._of_new)
        c_new, h_new = np.empty_like(c), np.empty_like(c)
        _core.pointwise(f, c_new, factor=c)
        _core.pointwise(i, i, factor=g)
        _core.pointwise(c_new, c_new, residual=i)
        if self._cell_clip is not None:
            _core.pointwise(c_new, c_new, activation=self._cell_clip)
        self._peep(o, c_new, 2)
        self._apply(o, self._of_gates)
        _core.pointwise(c_new, h_new, activation=self._of_out)
        _core.pointwise(h_new, h_new, factor=o)
        return h_new if self._project is None else self._project(h_new), c_new

    def _peep(self, gate, c, which):
        if self._peephole is not None:
            _core.pointwise(c, gate, scale=self._peephole[which], residual=gate)

    def __call__(self, x: Input, h: Input, c: Input, out: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        if out is not None:
            out = _core.as_pair(out, "out")
            _core.disjoint(
                *(_core.checked_out(a, np.asarray(state).shape) for a, state in zip(out, (h, c), strict=True))
            )
        return tuple(map(_written, super().__call__(x, h, c), (None, None) if out is None else out))


class GRUCell(_UnfusedCell, fused=layers.GRUCell):
    def _make(self, w_ih, w_hh, b_ih, b_hh, reset_after, activations, fold_bn, **options):
        self._assemble("GRU", w_ih, w_hh, b_ih, b_hh, fold_bn=fold_bn, **options)
        _, (self._of_new, self._of_gates, _) = cells.gate_functions("GRU", activations)
        self._reset_after = reset_after
        if not reset_after:  # n waits for r: its rows are a product of their own
            w, b, cut = self._weights[1], self._weights[3], 2 * self._hidden
            self._of_h = self._affine(w[:cut], None if b is None else b[:cut], fold_bn)
            self._of_rh = self._affine(w[cut:], None if b is None else b[cut:], fold_bn)
        self._minus = np.full(self._hidden, -1, np.float32)

    def _step(self, of_x, h):
        cut, of_h = 2 * self._hidden, self._of_h(h)
        rz, n = of_x[:, :cut], of_x[:, cut:]
        _core.pointwise(rz, rz, residual=of_h[:, :cut])
        self._apply(rz, self._of_gates)
        r, z = rz[:, : self._hidden], rz[:, self._hidden :]
        if self._reset_after:
            inner = of_h[:, cut:]
            _core.pointwise(inner, inner, factor=r)
        else:
            _core.pointwise(r, r, factor=h)
            inner = self._of_rh(r)
        _core.pointwise(n, n, residual=inner)
        self._apply(n, self._of_new)
        y = np.empty_like(h)  # n + z (h - n)
        _core.pointwise(n, y, scale=self._minus, residual=h)
        _core.pointwise(y, y, factor=z)
        _core.pointwise(y, y, residual=n)
        return (y,)

    def __call__(self, x: Input, h: Input, out: Array | None = None) -> Array:
        return _written(super().__call__(x, h)[0], out)


@twin_of(functional.rnn_cell)
def rnn_cell(x, h, out, **given):
    return RNNCell(**given)(x, h, out)


@twin_of(functional.lstm_cell)
def lstm_cell(x, h, c, out, **given):
    return LSTMCell(**given)(x, h, c, out)


@twin_of(functional.gru_cell)
def gru_cell(x, h, out, **given):
    return GRUCell(**given)(x, h, out)


class _Sequence(Twin):
    """Layers of unfused cells: the share of x in all steps as one product, then step by step."""

    _cell: type[_UnfusedCell]

    def _make(self, num_layers, bidirectional, reverse, direction, batch_first, **options):
        bidirectional, reverse = stacks.ways(direction, bidirectional, reverse)
        weights = {name: options.pop(name) for name in _WEIGHTS if name in options}
        self._cells = [
            self._cell(**each, **options) for each in stacks.each_layer(num_layers, bidirectional, **weights)
        ]
        shapes = [tuple(w.shape for w in cell._weights[:2]) for cell in self._cells]
        self._directions = stacks.directions_of(shapes, bidirectional, reverse)
        self._reverse, self._batch_first = reverse, batch_first

    def __call__(
        self, x: Input, state: Any = None, lengths: Input | None = None, out: Array | None = None
    ) -> tuple[Array, Any]:
        cells, inputs = self._cells, self._cells[0]._inputs
        x = _core.as_input(x, "x", (2, 3))
        if x.shape[-1] != inputs:
            order = "batch, steps" if self._batch_first else "steps, batch"
            raise ValueError(
                f"x has shape {x.shape}, but w_ih has {inputs} columns: x must be ({order}, {inputs}) or (steps, "
                f"{inputs})"
            )
        unbatched = x.ndim == 2
        y = x[:, np.newaxis] if unbatched else x.swapaxes(0, 1) if self._batch_first else x
        lengths = np.full(y.shape[1], len(y)) if lengths is None else _core.as_lengths(lengths, *y.shape[:2])
        states = _initial(cells, state, y.shape[1], unbatched)
        for first in range(0, len(cells), self._directions):
            both = []
            for k in range(first, first + self._directions):
                of_step, states[k] = _steps(cells[k], y, states[k], self._reverse or k > first, lengths)
                both.append(of_step)
            y = np.concatenate(both, axis=-1)
        last = [np.stack(s) for s in zip(*states)]
        if unbatched:
            y, last = y[:, 0], [s[:, 0] for s in last]
        elif self._batch_first:
            y = y.swapaxes(0, 1)
        return _written(y, out), last[0] if len(last) == 1 else tuple(last)


class RNN(_Sequence, fused=layers.RNN):
    _cell = RNNCell


class LSTM(_Sequence, fused=layers.LSTM):
    _cell = LSTMCell


class GRU(_Sequence, fused=layers.GRU):
    _cell = GRUCell


def _sequence(fused: Any, layer: Any) -> Any:
    @twin_of(fused)
    def sequence(x, state, lengths, out, **given):
        return layer(**given)(x, state, lengths, out)

    return sequence


rnn = _sequence(functional.rnn, RNN)
lstm = _sequence(functional.lstm, LSTM)
gru = _sequence(functional.gru, GRU)


def _initial(cells, state, batch, unbatched):
    """For each cell its states, (batch, width) each."""
    widths = cells[0]._widths()
    if state is None:
        return [[np.zeros((batch, width), np.float32) for width in widths] for _ in cells]
    given = _core.as_pair(state, "state") if len(widths) == 2 else (state,)
    shapes = [(len(cells), width) if unbatched else (len(cells), batch, width) for width in widths]
    given = [
        _state(s, name, shape).reshape(len(cells), batch, shape[-1])
        for s, name, shape in zip(given, "hc"[: len(widths)], shapes, strict=True)
    ]
    return [[s[k] for s in given] for k in range(len(cells))]


def _steps(cell, x, states, backwards, lengths):
    """One cell over x: (its outputs, the last states). Beyond a row's length its output is 0 and its states stay."""
    steps, batch, inputs = x.shape
    of_x = cell._of_x(x.reshape(steps * batch, inputs)).reshape(steps, batch, cell._weights[0].shape[0])
    y = np.zeros((steps, batch, cell._outputs), np.float32)
    for t in reversed(range(steps)) if backwards else range(steps):
        new, runs = cell._step(of_x[t], *states), t < lengths
        states = new if runs.all() else [np.where(runs[:, np.newaxis], n, s) for n, s in zip(new, states, strict=True)]
        y[t, runs] = states[0][runs]
    return y, states
