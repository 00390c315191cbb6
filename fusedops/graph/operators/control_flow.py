"""Operators with graphs inside: `If`, `Loop` and `Scan`. Each graph is a network of its own, planned once for each set
of shapes."""

import math
from itertools import count

import numpy as np

from ..ir import subgraph
from ..ir.errors import BadNode
from ..ir.graph import TensorInfo, Value, constant
from ..ir.subgraph import DataDependentShape, captured, own_inputs
from ..steps.tensor import check_bytes, check_memory
from .random_numbers import draws
from .schema import Inference, NumPyOnly, Operator, axes_of

_COUNTER, _FLAG = TensorInfo((), np.dtype(np.int64)), TensorInfo((), np.dtype(np.bool_))


def _same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.dtype != object


# ---- If


def _if(graphs, node, *inputs):
    key = subgraph.branch_of(node, inputs[0])
    return graphs.call(node.attrs[key], captured(node, key, inputs))


def _infer_if(graphs, node, *inputs):
    """Of a branch that is known, all that is known of its results; else their shapes, where both branches give the
    same."""
    if inputs[0].data is not None:
        key = subgraph.branch_of(node, inputs[0].data)
        return graphs.infer(node.attrs[key], captured(node, key, inputs))
    a, b = (graphs.infer(node.attrs[key], captured(node, key, inputs)) for key in ("then_branch", "else_branch"))
    if not all(map(_same, a, b)):
        raise DataDependentShape(
            "its condition depends on the values of the network's input, and its branches give results of other shapes"
        )
    return [TensorInfo(k.shape, k.dtype) for k in a]


def _read_if(r, node):
    branches = subgraph.graphs_of(node)
    if set(branches) != {"then_branch", "else_branch"} or len(own_inputs(node, node.inputs)) != 1:
        raise BadNode("an If has a condition and two branches")
    sizes = {len(g.results) for g in branches.values()}
    if len(sizes) > 1 or min(sizes) < len(node.outputs):
        raise ValueError(
            f"the branches of If {node.name!r} have {' and '.join(map(str, sorted(sizes)))} results, "
            f"of which it gives {len(node.outputs)}"
        )
    r.add(node)


def _if_type(node, inputs, i):
    return node.attrs["then_branch"].outputs[i].dtype


# ---- Loop


def _loop(graphs, node, trips, flag, *inputs):
    """Carried values from iteration to iteration, and what each adds to the scanned results."""
    body, carried, outside = _loop_parts(node, (trips, flag, *inputs))
    most = math.inf if trips is None else _scalar(trips, "number of rounds")
    going, scanned = flag is None or bool(_scalar(flag, "condition")), [[] for _ in body.results[1 + len(carried) :]]
    always = _goes_on(body)
    if trips is None and flag is None and always:
        raise ValueError("it has no number of rounds, and its condition is always true: it would run for ever")
    inputs = [np.array(0, np.int64), np.array(True), *carried, *outside]
    rounds = graphs.fixed_shapes(body, inputs, 2, 1, len(carried)) if going and most > 0 else None
    for i in count():
        if not going or i >= most:
            break
        if i == subgraph.MAX_ITERATIONS:
            raise ValueError(f"it ran {i} rounds without an end: it would run for ever")
        if rounds is not None:
            rounds.inputs[0] = np.array(i, np.int64)
            (flag,) = rounds.run()
            going = always or bool(_scalar(flag, "condition"))
            continue
        flag, *results = graphs.call(body, [np.array(i, np.int64), np.array(True), *carried, *outside])
        going, carried = bool(_scalar(flag, "condition")), results[: len(carried)]
        _add_round(scanned, results[len(carried) :])
    if rounds is not None:
        carried, stacked = rounds.end()
        return [*carried, *stacked]
    outputs = body.outputs[1 + len(carried) :]
    if outputs and not any(scanned):
        outputs = _of_no_round(graphs, body, [_COUNTER, _FLAG, *map(_shape_of, (*carried, *outside))], outputs)
    return [*carried, *map(_stacked, scanned, outputs)]


def _add_round(scanned, results):
    """Adds what a round gives to what those before it gave."""
    for rows, result in zip(scanned, results, strict=True):
        if rows and rows[0].shape != result.shape:
            raise ValueError(f"a round gives a result of shape {result.shape}, the ones before it {rows[0].shape}")
        rows.append(result)
    check_bytes(sum(len(rows) * rows[0].nbytes for rows in scanned if rows))


def _shape_of(a):
    return TensorInfo((), np.dtype(object)) if isinstance(a, list) else TensorInfo(a.shape, a.dtype)


def _of_no_round(graphs, body, inputs, outputs):
    """The scanned outputs of a body with the shapes that a round would give, where they can be told and the body does
    not say."""
    if all(v.shape is not None and all(isinstance(n, int) for n in v.shape) for v in outputs):
        return outputs
    try:
        found = graphs.infer(body, inputs)[-len(outputs) :]
    except ValueError:
        return outputs
    return [Value(v.name, k.shape, k.dtype) for v, k in zip(outputs, found, strict=True)]


def _loop_parts(node, inputs):
    """(body, carried values, values from outside) of a Loop."""
    return node.attrs["body"], own_inputs(node, inputs)[2:], captured(node, "body", inputs)


def _scalar(a, what):
    a = np.asarray(a)
    if a.size != 1:
        raise ValueError(f"its {what} has shape {a.shape}, but must have one element")
    return a.item()


def _goes_on(body):
    """Whether the condition that a body gives is true, whatever happens."""
    flag = body.results[0]
    producers = {n.output: n for n in body.nodes}
    while flag in producers and producers[flag].op == "Identity":
        flag = producers[flag].inputs[0]
    return flag == body.inputs[1].name or flag in body.constants and bool(np.all(body.constants[flag]))


def _stacked(rows, value, axis=0):
    """The results of all rounds as one array; of no round at all, one of no elements."""
    if isinstance(rows, np.ndarray):
        return np.moveaxis(rows, 0, axis)
    if rows:
        return np.stack(rows, axis)
    shape = tuple(n if isinstance(n, int) else 0 for n in value.shape or ())
    return np.empty((*shape[:axis], 0, *shape[axis:]), value.dtype)


def _known_rounds(body, trips, flag):
    """(how many rounds a Loop has at most, or None; whether it has as many)."""
    rounds = None if trips is None or trips.data is None else _scalar(trips.data, "number of rounds")
    starts = True if flag is None else None if flag.data is None else bool(np.all(flag.data))
    if starts is False or rounds is not None and rounds <= 0:
        raise DataDependentShape("it has no round")
    return rounds, rounds is not None and starts is True and _goes_on(body)


def _infer_loop(graphs, node, trips, flag, *inputs):
    body, carried, outside = _loop_parts(node, (trips, flag, *inputs))
    rounds, counted = _known_rounds(body, trips, flag)
    _, *found = graphs.infer(body, [_COUNTER, _FLAG, *(k._replace(data=None) for k in carried), *outside])
    if not all(map(_same, found, carried)):
        raise DataDependentShape("it carries a value whose shape differs from round to round")
    scanned = found[len(carried) :]
    if scanned and not counted:
        raise DataDependentShape("its number of rounds depends on the values of the network's input")
    results = [TensorInfo(k.shape, k.dtype) for k in found[: len(carried)]]
    results += [TensorInfo((rounds, *k.shape), k.dtype) for k in scanned]
    check_memory(results)
    known = all(k is None or k.data is not None for k in (trips, flag, *inputs))
    if not known or rounds is None or not counted or rounds > subgraph.MAX_FOLDED_ITERATIONS or draws(body):
        return results
    values = (k if k is None else k.data for k in (trips, flag, *inputs))
    return [constant(np.asarray(a)) for a in _loop(graphs, node, *values)]


def _read_loop(r, node):
    body = node.attrs["body"]
    explicit = own_inputs(node, node.inputs)
    node.inputs = [*explicit, *[""] * (2 - len(explicit)), *node.inputs[len(explicit) :]]
    carried = max(len(explicit), 2) - 2
    if (
        len(body.inputs) - body.captures != 2 + carried
        or not 1 + carried <= len(body.results)
        or len(node.outputs) >= len(body.results)
    ):
        raise ValueError(
            f"the body of Loop {node.name!r} takes {len(body.inputs) - body.captures} values and gives "
            f"{len(body.results)}, "
            f"which does not fit {carried} carried values and {len(node.outputs)} results"
        )
    r.add(node)


def _loop_type(node, inputs, i):
    carried = own_inputs(node, inputs)[2:]
    return carried[i].dtype if i < len(carried) and carried[i] is not None else node.attrs["body"].outputs[1 + i].dtype


# ---- Scan


def _scan_parts(node, inputs):
    """(body, states, scanned inputs, values from outside, the axis of each scanned input)."""
    body, own, n = node.attrs["body"], own_inputs(node, inputs), node.attrs["num_scan_inputs"]
    axes = list(node.attrs.get("scan_input_axes") or [0] * n)
    return body, own[:-n], own[-n:], captured(node, "body", inputs), axes


def _scan_axes(node, n):
    return list(node.attrs.get("scan_output_axes") or [0] * n)


def _directions(node, key, n):
    return list(node.attrs.get(key) or [0] * n)


def _length(xs, axes):
    sizes = {x.shape[axes_of([a], len(x.shape))[0]] for x, a in zip(xs, axes, strict=True)}
    if len(sizes) != 1:
        raise ValueError(
            f"its inputs have {' and '.join(map(str, sorted(sizes)))} places along the axes that it walks along"
        )
    return sizes.pop()


def _scan(graphs, node, *inputs):
    body, states, xs, outside, axes = _scan_parts(node, inputs)
    rounds = _length(xs, axes)
    back = _directions(node, "scan_input_directions", len(xs))
    xs = [np.moveaxis(x, a, 0)[:: -1 if b else 1] for x, a, b in zip(xs, axes, back, strict=True)]
    scanned = [[] for _ in body.results[len(states) :]]
    found = rounds and graphs.fixed_shapes(body, [*states, *(x[0] for x in xs), *outside], 0, 0, len(states))
    for i in range(rounds):
        if found:
            found.inputs[len(states) : len(states) + len(xs)] = [np.array(x[i], order="C") for x in xs]
            found.run()
            continue
        results = graphs.call(body, [*states, *(x[i] for x in xs), *outside])
        states = results[: len(states)]
        for rows, result in zip(scanned, results[len(states) :], strict=True):
            rows.append(result)
    if found:
        states, scanned = found.end()
    outputs = body.outputs[len(states) :]
    if not rounds:
        parts = [TensorInfo(x.shape[1:], x.dtype) for x in xs]
        outputs = _of_no_round(graphs, body, [*map(_shape_of, states), *parts, *map(_shape_of, outside)], outputs)
    return [*states, *_scan_results(node, scanned, outputs)]


def _scan_results(node, scanned, outputs):
    """What each iteration gave, along the axis and in the direction that the node says."""
    back, axes = _directions(node, "scan_output_directions", len(scanned)), _scan_axes(node, len(scanned))
    for rows, v, a, b in zip(scanned, outputs, axes, back, strict=True):
        nd = 1 + len(rows[0].shape if len(rows) else v.shape or ())
        yield _stacked(rows[::-1] if b else rows, v, axes_of([a], nd)[0])


def _infer_scan(graphs, node, *inputs):
    body, states, xs, outside, axes = _scan_parts(node, inputs)
    rounds = _length(xs, axes)
    at = [axes_of([a], len(x.shape))[0] for x, a in zip(xs, axes, strict=True)]
    parts = [TensorInfo((*x.shape[:a], *x.shape[a + 1 :]), x.dtype) for x, a in zip(xs, at, strict=True)]
    found = graphs.infer(body, [*(k._replace(data=None) for k in states), *parts, *outside])
    if not rounds or not all(map(_same, found, states)):
        raise DataDependentShape("it has no round, or carries a value whose shape differs from round to round")
    results = [TensorInfo(k.shape, k.dtype) for k in found[: len(states)]]
    for k, a in zip(found[len(states) :], _scan_axes(node, len(found) - len(states)), strict=True):
        (a,) = axes_of([a], 1 + len(k.shape))
        results.append(TensorInfo((*k.shape[:a], rounds, *k.shape[a:]), k.dtype))
    check_memory(results)
    return results


def _scan_of_batch(graphs, node, lengths, *inputs):
    """Scan of opset 8: each image of a batch by itself, of a length of its own; what is after its length is 0."""
    _, states, xs, outside, _ = _scan_parts(node, inputs)
    batch, most = xs[0].shape[:2]
    if any(x.shape[:2] != (batch, most) for x in xs) or any(s.shape[:1] != (batch,) for s in states):
        raise ValueError("its inputs have other batches or lengths than each other")
    lengths = np.full(batch, most) if lengths is None else lengths
    if lengths.shape != (batch,) or not batch or not 1 <= lengths.min() <= lengths.max() <= most:
        raise ValueError(f"its lengths must be {batch} numbers of 1 to {most}, not {lengths.tolist()}")
    rows = []
    for i, length in enumerate(lengths.tolist()):
        results = _scan(graphs, node, *(s[i] for s in states), *(x[i, :length] for x in xs), *outside)
        scanned = [np.pad(r, [(0, most - length)] + [(0, 0)] * (r.ndim - 1)) for r in results[len(states) :]]
        rows.append([*results[: len(states)], *scanned])
    return list(map(np.stack, zip(*rows, strict=True)))


def _infer_scan_of_batch(graphs, node, *inputs):
    raise DataDependentShape("each image of its batch has a length of its own")


def _read_scan(r, node):
    """Scan of opset 8 has a batch in front, and its lengths as first input."""
    body, n, explicit = node.attrs["body"], node.attrs["num_scan_inputs"], own_inputs(node, node.inputs)
    if r.opset < 9:
        node.op, explicit = "ScanOfBatch", explicit[1:]
        node.attrs["scan_input_directions"] = node.attrs.pop("directions", [0] * n)
    if (
        not 1 <= n <= len(explicit)
        or len(body.inputs) - body.captures != len(explicit)
        or not len(explicit) - n <= len(node.outputs) <= len(body.results)
    ):
        raise ValueError(
            f"the body of Scan {node.name!r} takes {len(body.inputs) - body.captures} values and gives "
            f"{len(body.results)}, "
            f"which does not fit {len(explicit)} inputs and {len(node.outputs)} results"
        )
    r.add(node)


def _scan_type(node, inputs, i):
    states = own_inputs(node, inputs)[: -node.attrs["num_scan_inputs"]]
    return states[i].dtype if i < len(states) and states[i] is not None else node.attrs["body"].outputs[i].dtype


_OWN = "its graph is a network of its own, with kernels inside"
RECORDS = {
    "If": Operator(
        _if,
        Inference(None, dtype=_if_type, shape_inputs=(0,), infer=_infer_if),
        NumPyOnly("a branch that is known when planning takes its place; else each is a network of its own"),
        _read_if,
        subgraphs=True,
    ),
    "Loop": Operator(
        _loop,
        Inference(None, dtype=_loop_type, shape_inputs=(0, 1), infer=_infer_loop),
        NumPyOnly(_OWN),
        _read_loop,
        optional={0, 1},
        subgraphs=True,
    ),
    "ScanOfBatch": Operator(
        _scan_of_batch,
        Inference(None, dtype=lambda node, inputs, i: _scan_type(node, inputs[1:], i), infer=_infer_scan_of_batch),
        NumPyOnly(_OWN),
        None,
        optional={0},
        subgraphs=True,
    ),
    "Scan": Operator(
        _scan, Inference(None, dtype=_scan_type, infer=_infer_scan), NumPyOnly(_OWN), _read_scan, subgraphs=True
    ),
}
