"""A float32 network in int8: calibrated on samples, its layers chosen by cost and error.

    samples -> ranges of values -> ranges of channels made alike -> scales, errors and biases -> the cheapest choice
            -> QuantizeLinear and DequantizeLinear in the graph -> the passes that files of quantized networks take

Everything is decided on the network as its passes left it: batch norm is in the weights, activations are known.
"""

import logging
import math
import numbers
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..._core import Q_STEPS
from ..inference import cost
from ..inference.evaluate import evaluate
from ..inference.shape_inference import infer
from ..ir.explanation import Quantized, QuantizedLayer, QuantizedOutput
from ..ir.graph import Value
from ..operators import qdq, qlinear
from ..operators.registry import OPERATORS
from . import calibration, choice, equalization, timing
from .insertion import Insertion, quantized_weights

LAYERS = "Conv", "Linear"
LOGGER = logging.getLogger("fusedops")
_ROUNDS = 3  # of measuring: what goes back to float32 moves conversions
_SNR = 20.0  # decibels: noise of a tenth of the signal


class Options(NamedTuple):
    method: tuple
    keep: tuple
    layer_snr: float
    snr: float
    measure: bool

    @classmethod
    def of(cls, calibration_, keep, layer_snr, snr, measure):
        """The options as a user gives them, None for the default of one."""
        calibration_ = "mse" if calibration_ is None else calibration_
        layer_snr, snr = (_SNR if value is None else value for value in (layer_snr, snr))
        if isinstance(keep, str):
            raise TypeError(f"keep takes names of several nodes: pass ({keep!r},)")
        if not hasattr(keep, "__iter__"):
            raise TypeError(f"keep is of type {type(keep).__name__}, but must be a list of names of nodes")
        for name, value in (("layer_snr", layer_snr), ("snr", snr)):
            if isinstance(value, bool) or not isinstance(value, numbers.Real) or math.isnan(value):
                raise ValueError(f"{name} is {value!r}, but must be decibels: 20 is noise of a tenth of the signal")
        return cls(calibration.method_of(calibration_), tuple(keep), float(layer_snr), float(snr), bool(measure))


def is_quantized(graph):
    """Whether a graph has quantized values."""
    return any(node.op in {*qdq.RECORDS, *qlinear.RECORDS} for node in graph.nodes)


def quantize(session, optimized, session_of, samples, options, progress):
    """(the graph in int8, the Quantized) of a session's network. `session_of` makes a session of a graph, `optimized`
    by way of the passes."""
    work = _Work(session_of, checked_samples(session, samples), progress)
    plain = optimized(session.graph)
    graph = plain.graph.copy()
    _check_layers(graph, options.keep)
    between = equalization.pairs(graph)
    if between:
        equalization.equalize(graph, work.channels(plain, between))
    base = session_of(graph)
    shapes = _shapes(graph, work.samples[0])
    measured = work.measure(base, shapes, options.method)
    return _chosen(plain, base, optimized, work, measured, shapes, options)


# ---- what is given ---------------------------------------------------------------------------------------------------


def checked_samples(session, samples):
    """The samples as tuples of arrays that the network takes."""
    if isinstance(samples, (np.ndarray, str, bytes, Mapping)) or not hasattr(samples, "__iter__"):
        raise TypeError(
            f"samples is of type {type(samples).__name__}, but must be a list of inputs, each an array, a tuple of "
            "arrays or a dict from names to arrays: pass [x] for one, list(x[:, np.newaxis]) for the rows of x one by "
            "one"
        )
    found = [_checked(session, i, sample) for i, sample in enumerate(samples)]
    if not found:
        raise ValueError("samples is empty: ranges are found on at least one input, better on ten or a hundred")
    return found


def _checked(session, i, sample):
    try:
        return _arrays(session, sample)
    except (TypeError, ValueError) as e:
        raise type(e)(f"samples[{i}]: {e}") from None


def _arrays(session, sample):
    names = [v.name for v in session.graph.inputs]
    if isinstance(sample, Mapping):
        if set(sample) != set(names):
            given = ", ".join(map(str, sample)) or "none"
            raise ValueError(f"the network takes the inputs {', '.join(names)}, got {given}")
        sample = [sample[name] for name in names]
    arrays = tuple(session.take(sample if isinstance(sample, (tuple, list)) else [sample]))
    for name, x in zip(names, arrays, strict=True):
        if isinstance(x, np.ndarray) and x.dtype.kind == "f" and not np.isfinite(x).all():
            raise ValueError(f"{name} has NaN or infinite elements, which have no range")
        if isinstance(x, np.ndarray) and not x.size:
            raise ValueError(f"{name} has shape {x.shape}, an empty batch, which has no range")
    return arrays


def _check_layers(graph, keep):
    layers = [n for n in graph.nodes if n.op in LAYERS and graph.constant(n, 1) is not None]
    if not layers:
        raise ValueError(
            "the network has no layer that can go to int8: no convolution or product with constant weights"
        )
    names = {name: n.name for n in layers for name in (n.name, *n.fused_from)}
    unknown = [name for name in keep if name not in names]
    if unknown:
        raise ValueError(
            f"keep names {unknown[0]!r}, which is not a layer; the layers are {', '.join(n.name for n in layers)}"
        )


def _shapes(graph, arrays):
    """The shape of each value of float32 that is known when the first sample is."""
    given = {v.name: x for v, x in zip(graph.inputs, arrays, strict=True) if isinstance(x, np.ndarray)}
    known = infer(graph, {v: x.shape for v, x in given.items()}, strict=False)
    return {v: tuple(map(int, k.shape)) for v, k in known.items() if k.dtype == np.float32 and k.data is None}


# ---- what the samples say --------------------------------------------------------------------------------------------


class _Errors:
    """Sums over the samples of a layer's products, of what int8 makes of them, and of their squares."""

    def __init__(self):
        self.signal = self.noise = self.count = 0.0
        self.error = 0.0  # of each channel

    def add(self, exact, moved, axis):
        exact, moved = (np.moveaxis(a, axis, -1).astype(np.float64).reshape(-1, a.shape[axis]) for a in (exact, moved))
        self.signal, self.noise = self.signal + (exact**2).sum(), self.noise + ((moved - exact) ** 2).sum()
        self.error, self.count = self.error + (exact - moved).sum(0), self.count + len(exact)

    @property
    def bias(self):
        """What to add to each channel, so that it is right in the mean."""
        return self.error / self.count

    @property
    def snr(self):
        """In decibels, with that bias."""
        return decibels(self.signal, max(self.noise - self.count * (self.bias**2).sum(), 0.0))


def decibels(signal, noise):
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and noise < math.inf else -math.inf


def _signal_and_noise(y, z):
    """Of a result and what int8 makes of it: the sums of squares of floats; of integers, how many there are and how
    many differ. A float that is not finite has no part in it if it stays what it is; the noise is infinite if not."""
    if y.dtype.kind != "f":
        return y.size, np.count_nonzero(y != z)
    y, z = y.astype(np.float64), z.astype(np.float64)
    finite = np.isfinite(y) & np.isfinite(z)
    stays = finite | (y == z) | np.isnan(y) & np.isnan(z)
    noise = ((z[finite] - y[finite]) ** 2).sum() if stays.all() else math.inf
    return (y[finite] ** 2).sum(), noise


class _Measured(NamedTuple):
    quantizations: dict
    snrs: dict  # of a layer's name
    biases: dict
    unbounded: frozenset = frozenset()  # values that are not finite on the samples


class _Work:
    """Runs networks on the samples and tells how much is done."""

    def __init__(self, session_of, samples, progress):
        self.session_of, self.samples, self.progress, self.passes = session_of, samples, progress, 0

    def values(self, session, names):
        """For each sample a dict of these values of the network."""
        graph = session.graph.copy()
        graph.results, graph.outputs = list(names), [Value(v, None, np.dtype(np.float32)) for v in names]
        tapped = self.session_of(graph, layers=session.layers)
        self.passes += 1
        for i, arrays in enumerate(self.samples):
            yield dict(zip(names, tapped.run(arrays), strict=True))
            # how many passes there will be is not known: each does 0.3 of what is left
            self.progress(1 - 0.7 ** (self.passes - 1 + (i + 1) / len(self.samples)))

    def channels(self, session, taps):
        """The largest magnitude of each channel of the values between pairs of layers."""
        axes = {first.output: 1 if first.op == "Conv" else -1 for first, _ in taps}
        found = dict.fromkeys(axes, 0.0)
        for values in self.values(session, list(axes)):
            for v, axis in axes.items():
                x = np.abs(np.moveaxis(values[v], axis, -1))
                found[v] = np.maximum(found[v], x.max(axis=tuple(range(x.ndim - 1)), initial=0))
        return found

    def measure(self, session, shapes, method):
        """Scales of what layers read, and what their products lose by them and by int8 weights."""
        graph = session.graph
        layers = [n for n in graph.nodes if _why_not(graph, n, shapes) == ""]
        if not layers:
            return _Measured({}, {}, {})
        ends = [v for n in layers for v in (n.inputs[0], n.output)]
        between = [v for n in graph.nodes if (reads := choice.taken(n, shapes)) for v in (*reads, n.output)]
        ranges, unbounded = self._ranges(session, [v for v in dict.fromkeys(ends + between) if v in shapes], method)
        found = {v: r.quantization(method) for v, r in ranges.items()}
        layers = [n for n in layers if n.inputs[0] in found and n.output in found]
        errors = self._errors(session, layers, found)
        biases = {n.name: _added(graph.constant(n, 2), e.bias) for n, e in errors.items()}
        return _Measured(found, {n.name: e.snr for n, e in errors.items()}, biases, unbounded)

    def _ranges(self, session, names, method):
        """({name: Range} of the values that are finite on all samples, the names of the others)."""
        ranges = {v: calibration.Range() for v in names}
        for values in self.values(session, names):
            for v, x in values.items():
                ranges[v].widen(x)
        unbounded = frozenset(v for v, r in ranges.items() if not r.finite)
        ranges = {v: r for v, r in ranges.items() if v not in unbounded}
        for values in self.values(session, names) if method[0] != "minmax" else ():
            for v, r in ranges.items():
                r.count(values[v])
        return ranges, unbounded

    def _errors(self, session, layers, found):
        """{layer: _Errors} of products of rounded operands."""
        errors = {n: _Errors() for n in layers}
        for values in self.values(session, list(dict.fromkeys(n.inputs[0] for n in layers))):
            for node in layers:
                x, w = values[node.inputs[0]], session.graph.constants[node.inputs[1]]
                exact, rounded = (x, w), (_rounded(x, found[node.inputs[0]]), _rounded_weights(w))
                errors[node].add(_product(node, *exact), _product(node, *rounded), 1 if node.op == "Conv" else -1)
        return errors

    def moved(self, session, other):
        """How far the outputs of another network are from this one's, over all samples, by their names."""
        names = [v.name for v in session.graph.outputs]
        sums = {name: np.zeros(2) for name in names}
        for arrays in self.samples:
            for name, y, z in zip(names, session.run(arrays), other.run(arrays), strict=True):
                if isinstance(y, np.ndarray) and y.shape == z.shape:
                    sums[name] += _signal_and_noise(y, z)
        return tuple(QuantizedOutput(name, decibels(*s)) for name, s in sums.items())


def _rounded(x, q):
    """Floats that went to uint8 and back."""
    scale = np.float32(q.scale)
    return np.clip(np.rint(x / scale), -q.zero_point, 255 - q.zero_point) * scale


def _rounded_weights(w):
    q, scale = quantized_weights(w)
    return q * scale.reshape(-1, *[1] * (w.ndim - 1))


def _product(node, x, w):
    """What a layer sums, without bias and what follows."""
    plain, run_layer = replace(node, activation=None, residual=""), OPERATORS[node.op].run_layer
    y = run_layer(plain, None, x, w) if run_layer else None
    return evaluate(plain, [x, w])[0] if y is None else y


def _added(bias, correction):
    return (correction if bias is None else bias.astype(np.float64) + correction).astype(np.float32)


# ---- the choice ------------------------------------------------------------------------------------------------------


def _why_not(graph, node, shapes):
    """Why a layer cannot go to int8: "" if it can; None: it is no layer."""
    w = graph.constant(node, 1)
    if node.op not in LAYERS or w is None:
        return None
    if node.inputs[0] not in shapes or node.output not in shapes:
        return "its shapes are not known before the network runs"
    if w.dtype != np.float32 or node.op == "Conv" and w.ndim != 4:
        return "there is no kernel of int8 for it"
    if node.input(2) and graph.constant(node, 2) is None:
        return "its bias is computed"
    if w[:1].size > Q_STEPS:
        return f"sums of {w[:1].size} products of int8 may not fit 32 bits"
    if not np.isfinite(w).all():
        return "its weights are not finite"
    return ""


class _Choice(NamedTuple):
    """Layers in int8, and what follows from that."""

    int8: set
    made: object  # the graph
    session: object  # of it
    outputs: tuple  # how far they moved
    ns: float  # predicted
    float_ns: float


def _chosen(plain, base, optimized, work, measured, shapes, options):
    """The cheapest choice whose outputs move no farther than they may. What is then measured to be slower in int8 goes
    back to float32."""
    graph = base.graph
    shapes = {v: shape for v, shape in shapes.items() if v not in measured.unbounded}
    able = [n for n in graph.nodes if _why_not(graph, n, shapes) == ""]
    prepared = {n: base.layers.get(n.name, base.layers.get((n.name, "planes"))) for n in able}
    timed = [n for n in able if n.op == "Linear" or prepared[n] is not None]

    def costs_of(precision):
        return {n: choice.cost_of(n, shapes, prepared[n], precision) for n in timed}

    costs, float32 = map(costs_of, (plain.options.precision, "float32"))
    kept = _kept(able, measured, options)

    def choose(costs):
        return _within_bounds(base, optimized, work, measured, shapes, options.snr, costs, kept)

    found, times = choose(costs), timing.NONE
    if options.measure:
        found, times = _measured(found, choose, plain, work.samples[0], costs, kept)
    work.progress(1.0)
    bits = {n: 32 if costs.get(n) == float32.get(n) else 16 for n in graph.nodes} | dict.fromkeys(found.int8, 8)
    reasons = {n: why or kept.get(n.name) for n in graph.nodes if (why := _why_not(graph, n, shapes)) is not None}
    rows = [_row(n, bits[n], measured, costs, why, times) for n, why in reasons.items()]
    others = cost.of_others([n for n in graph.nodes if n not in costs], shapes)
    whole = [1e3 * s for s in times.whole] if found.int8 and times.whole else (None, None)
    method = calibration.shown(options.method)
    done = Quantized(method, tuple(rows), found.outputs, found.ns, found.float_ns, others, *whole)
    LOGGER.info("quantized: %r", done)
    for row in rows:
        LOGGER.debug("quantized: %s %s: %s", row.op, row.node, row.reason or f"int{row.bits}")
    return found.made, done


def _measured(found, choose, plain, arrays, costs, kept):
    """(the choice by times as measured in place of predicted ones, the Times). All of it is float32 where the whole
    network is slower in int8."""
    times = timing.NONE
    for _ in range(_ROUNDS):
        predicted = {n.name: costs[n] for n in found.int8 if n in costs}
        if not predicted:
            return found, times
        times = times.joined(timing.measured(found.session, plain, arrays, predicted))
        before, found = found, choose(times.costs(costs))
        if found.int8 == before.int8:
            break
    else:
        times = times.joined(timing.measured(found.session, plain, arrays, {}))
    if times.lost:
        why = "the whole network is measured to be slower in int8 here: {:.3g} ms, {:.3g} in float32"
        why = why.format(*(1e3 * s for s in times.whole))
        kept |= {n.name: why for n in found.int8 if n in costs}
        found = choose(costs)
    return found, times


def _within_bounds(base, optimized, work, measured, shapes, snr, costs, kept):
    """The cheapest choice. While outputs move too far, the layers that move their own results most go back to float32,
    twice as many each time; `kept` gets them, with the reason."""
    graph, back = base.graph, 1
    while True:
        int8, values, total, float_total = choice.choose(graph, costs, shapes, kept)
        quantizations = choice.shared(int8 - costs.keys(), measured.quantizations)
        made = Insertion(graph, int8, values, quantizations, measured.biases).made()
        session = optimized(made)
        outputs = work.moved(base, session)
        worst = sorted((n for n in int8 if n in costs), key=lambda n: measured.snrs[n.name])[:back]
        if not worst or min(o.snr for o in outputs) >= snr:
            return _Choice(int8, made, session, outputs, total, float_total)
        kept |= {n.name: f"the outputs would move beyond the bound of {snr:g} dB" for n in worst}
        back *= 2


def _row(node, bits, measured, costs, why, times):
    """What was done to a layer; `why` it may not go to int8, if there is a reason other than cost."""
    if measured.unbounded & {*node.inputs, node.output}:
        why = "its values are not finite on the samples"
    why = why or ("" if bits == 8 else _dearer(node, costs, times))
    ns, float_ns = costs.get(node, (None, None))
    us, float_us = (1e6 * s for s in times.layers[node.name]) if node.name in times.layers else (None, None)
    return QuantizedLayer(node.name, node.op, bits, measured.snrs.get(node.name), ns, float_ns, why, us, float_us)


def _kept(able, measured, options):
    """Why layers that could go to int8 stay float32 whatever it costs, by their names."""
    kept = {
        name: f"its error is above the bound of {options.layer_snr:g} dB"
        for name, snr in measured.snrs.items()
        if snr < options.layer_snr
    }
    return kept | {n.name: "kept, as was asked" for n in able if set(options.keep) & {n.name, *n.fused_from}}


def _dearer(node, costs, times):
    if node not in costs:
        return "there is no kernel of int8 for it"
    int8, float32 = times.layers.get(node.name, (0, 0))
    if int8 > float32:
        return f"it is measured to be slower in int8 here: {1e6 * int8:.3g} us, {1e6 * float32:.3g} in float32"
    if costs[node].ns >= costs[node].float_ns:
        return "it is predicted to be slower in int8 here"
    return "its gain would not pay for the conversions around it"
