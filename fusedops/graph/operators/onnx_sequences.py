"""Sequences of arrays, which are Python lists. What the passes cannot resolve is computed between the segments of a
network."""

import numpy as np

from ..ir.subgraph import DataDependentShape, captured, own_inputs
from .schema import Inference, NumPyOnly, Operator, always, axis_of

_LISTS = "no kernel: lists of arrays are resolved when planning, or kept by Python"


def _only_called(*inputs):
    raise DataDependentShape("it has to do with a sequence, whose length only a call knows")


def _place(sequence, at, most):
    """An index into a sequence, from the end where it is negative."""
    i = int(np.reshape(at, ()))
    if not -len(sequence) <= i <= most:
        raise ValueError(f"index {i} is outside a sequence of {len(sequence)}")
    return i + len(sequence) * (i < 0)


def _at(node, sequence, at):
    return sequence[_place(sequence, at, len(sequence) - 1)]


def _insert(node, sequence, x, at=None):
    i = len(sequence) if at is None else _place(sequence, at, len(sequence))
    return ([*sequence[:i], x, *sequence[i:]],)


def _erase(node, sequence, at=None):
    i = _place(sequence, -1 if at is None else at, len(sequence) - 1)
    return ([*sequence[:i], *sequence[i + 1 :]],)


def parts_of(length, sizes):
    """The sizes of the parts that SplitToSequence makes of an axis; `sizes` is an array or None."""
    if sizes is None:
        return [1] * length
    if sizes.ndim == 0:
        size = int(sizes)
        if size < 1:
            raise ValueError(f"parts of {size} cannot be made")
        return [min(size, length - i) for i in range(0, length, size)]
    if sizes.ndim > 1 or sizes.min(initial=0) < 0 or int(sizes.sum()) != length:
        raise ValueError(f"an axis of {length} cannot be split into parts of {sizes.tolist()}")
    return sizes.tolist()


def _split(node, x, sizes=None):
    axis = axis_of(node, x.ndim)
    lengths = parts_of(x.shape[axis], sizes)
    parts = [np.ascontiguousarray(a) for a in np.split(x, np.cumsum(lengths)[:-1], axis)] if lengths else []
    return ([a.squeeze(axis) for a in parts] if sizes is None and not node.attrs.get("keepdims", 1) else parts,)


def _concat(node, sequence):
    if not sequence:
        raise ValueError("it joins a sequence of nothing")
    join = np.stack if node.attrs.get("new_axis", 0) else np.concatenate
    return join(sequence, node.attrs["axis"])


def _map(graphs, node, sequence, *inputs):
    """The body's results for each element, as a sequence each."""
    body, own = node.attrs["body"], own_inputs(node, (sequence, *inputs))
    outside = captured(node, "body", (sequence, *inputs))
    lengths = {len(x) for x in own if isinstance(x, list)}
    if len(lengths) > 1:
        raise ValueError(f"its sequences have {' and '.join(map(str, sorted(lengths)))} elements")
    rounds = [
        graphs.call(body, [*(x[i] if isinstance(x, list) else x for x in own), *outside]) for i in range(len(sequence))
    ]
    return tuple([results[i] for results in rounds] for i in range(len(body.results)))


def _read_map(r, node):
    body = node.attrs["body"]
    if len(body.inputs) - body.captures != len(own_inputs(node, node.inputs)) or len(body.results) < len(node.outputs):
        raise ValueError(
            f"the body of SequenceMap {node.name!r} takes {len(body.inputs) - body.captures} values and "
            f"gives {len(body.results)}, which does not fit"
        )
    r.add(node)


def _unknown(node, inputs, i):
    """The type of elements of what a sequence has is known when it is there."""
    return None


def _sequence(evaluate, dtype=always(object), **more):
    return Operator(evaluate, Inference(None, dtype, infer=_only_called), NumPyOnly(_LISTS), sequences=True, **more)


RECORDS = {
    "ConcatFromSequence": _sequence(_concat, _unknown),
    "SequenceAt": _sequence(_at, _unknown),
    "SequenceConstruct": _sequence(lambda node, *xs: (list(xs),)),
    "SequenceEmpty": _sequence(lambda node: ([],)),
    "SequenceErase": _sequence(_erase),
    "SequenceInsert": _sequence(_insert),
    "SequenceLength": _sequence(lambda node, sequence: np.array(len(sequence), np.int64), always(np.int64)),
    "SequenceMap": _sequence(_map, read=_read_map, subgraphs=True),
    "SplitToSequence": _sequence(_split),
}
