"""Ranges of channels made alike: channel c of a value is divided by s, and the weights that read it are multiplied
by s.

The value is between two layers, the first with an activation f for which f(x / s) = f(x) / s. Each s is a power of
two, so that nothing is rounded: the network computes what it did. In int8 a value has one scale for all channels,
and a channel of small range few of its levels.
"""

import numpy as np

_HOMOGENEOUS = None, "relu", "leaky_relu", "prelu"
_MOST = 12  # as the exponent of a scale: weights stay far from the ends of float32


def pairs(graph):
    """(first, second) of layers between which a value may be scaled: the second reads it alone, and it is no output."""
    consumers, found = graph.consumers(), []
    producers = graph.producers()
    for second in graph.nodes:
        first, w = producers.get(second.input(0)), graph.constant(second, 1)
        if first is None or not {first.op, second.op} <= {"Conv", "Linear"} or w is None or first.op != second.op:
            continue
        alone = first.output not in graph.results and len(consumers[first.output]) == 1
        if alone and _may_scale(graph, first) and (w.shape[1] == 1 or second.attrs.get("group", 1) == 1):
            found.append((first, second))
    return found


def _may_scale(graph, layer):
    """Whether the result of a layer is scaled by scaling its weights and bias."""
    kind = layer.activation[0] if isinstance(layer.activation, tuple) else layer.activation
    constant = all(not layer.input(i) or graph.constant(layer, i) is not None for i in (1, 2))
    return kind in _HOMOGENEOUS and not layer.residual and constant


def equalize(graph, ranges):
    """Scales the values between layers, in place; `ranges` has the largest magnitude of each channel of each of them.
    Returns the names of those that were scaled."""
    scaled = []
    for first, second in pairs(graph):
        reads, groups = graph.constants[second.inputs[1]], second.attrs.get("group", 1)
        scale = _scales(reads, groups, ranges[first.output])
        if np.any(scale != 1):
            scaled.append(first.output)
            _replace(graph, first, 1, 1 / scale, 0)
            if first.input(2):
                _replace(graph, first, 2, 1 / scale, 0)
            _replace(graph, second, 1, scale if groups == 1 else scale.repeat(len(reads) // groups), int(groups == 1))
    return scaled


def _scales(reads, groups, most):
    """A power of two for each channel. A depthwise layer has a scale of its weights for each channel: all of the
    difference goes there. Elsewhere the weights' channels share it evenly."""
    most = np.where(most > 0, most, most.max(initial=0))
    if groups == 1:
        weights = np.abs(reads).max(axis=tuple(a for a in range(reads.ndim) if a != 1), initial=0)
        most = np.sqrt(most / np.where(weights > 0, weights, max(weights.max(initial=0), np.finfo(np.float32).tiny)))
    if not np.all(most > 0) or not np.all(np.isfinite(most)):
        return np.ones(len(most), np.float32)
    logs = np.log2(most.astype(np.float64))
    return np.exp2(np.clip(np.rint(logs - logs.mean()), -_MOST, _MOST)).astype(np.float32)


def _replace(graph, node, i, scale, axis):
    """The i-th input of this node alone, a constant, times a factor for each index of an axis."""
    a = graph.constants[node.inputs[i]]
    name = f"{node.inputs[i]} equalized for {node.name}"
    while name in graph.constants:
        name += "'"
    graph.constants[name] = a * scale.reshape([-1 if at == axis else 1 for at in range(a.ndim)])
    node.inputs[i] = name
