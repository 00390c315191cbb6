"""LSTMs with int8 weights that quantize x and h as they come, as ONNX Runtime's DynamicQuantizeLSTM does: layers of
networks."""

from typing import NamedTuple

import numpy as np

from .. import _core
from .._internal import recurrent_weights
from .cells import KINDS, clip_of, gate_functions


class Weights(NamedTuple):
    """int8 weights (directions, gates*hidden, inputs) in ONNX's order of gates, with a scale and perhaps a zero point
    for each row."""

    w: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None


def _ordered(a, d):
    return None if a is None else recurrent_weights.gates("LSTM", a[d])


def dynamic_lstm(w, r, b, p, *, direction, clip, cell_clip, activations):
    """The layer of Weights w and r, and of b and p as :meth:`fusedops.LSTM.from_onnx` takes them."""
    plan, cells, functions = _core.SequencePlan(), [], gate_functions("LSTM", activations)[1]
    options = recurrent_weights.direction(direction, len(w.w), 0)
    for d in range(len(w.w)):
        w_ih, ih_scale, ih_zero = (_ordered(a, d) for a in w)
        w_hh, hh_scale, hh_zero = (_ordered(a, d) for a in r)
        b_ih, b_hh = (None, None) if b is None else (recurrent_weights.gates("LSTM", a) for a in np.split(b[d], 2))
        peephole = None if p is None else recurrent_weights.peepholes(p[d])
        cell = _core.LSTMCellPlan()
        quantized = ih_scale, hh_scale, ih_zero, hh_zero
        clips = clip_of(clip), clip_of(cell_clip, "cell_clip")
        cell._pack(
            KINDS["LSTM"], w_ih, w_hh, b_ih, b_hh, None, peephole, functions, False, *clips, "float32", quantized
        )
        cells.append(cell)
    plan._stack(tuple(cells), 1, len(cells), options["reverse"], False)
    return plan
