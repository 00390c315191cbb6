"""Whether a network computes what the module computes: on the example, on other values, and in other sizes where sizes
are open."""

import numpy as np

from ...inference.shape_inference import infer
from ...ir import draws
from ...ir.dtypes import BY_NAME, BY_ONNX
from .fx_values import as_array

NUDGE, NOISE = 1e-6, 8  # results may differ by as many times what such a relative change of the inputs makes of them
LEAST = 1e-4  # what a largest value counts as at least: sums that should be zero are rounding
FLIPPED = 0.01  # the part of integers and bools that may differ: the order of nearly equal values is rounding
SELECTED = 10  # times the tolerance that rows have which values select: what they are computed of was selected too


def difference(model, module, example, expected, sizes, traced, beyond=()):
    """None where the model gives the module's results, which are `expected` for the example; else what differs, in
    words, and whether it does so in the sizes of the example. `sizes` are lists of other shapes of the inputs, and so
    are those `beyond`, where the model may also fail; those that the module itself does not take do not count. Most of
    the time goes into the module's own calls: what was exported saw no values, so that other ones in other sizes are
    enough; what was `traced` did."""
    wrong = _compared(model, module, example, example.leaves, expected)
    if wrong:
        return f"on the example {wrong}", True
    taken = False
    for shapes in (*sizes, *beyond):
        if shapes != example.sizes():
            wrong = _on_other_values(model, module, example, shapes, 1, shapes in beyond)
            if wrong:
                return f"on inputs of shape {', '.join(map(str, shapes))} {wrong}", False
            taken |= wrong is not None and shapes in sizes
    if traced or not taken:
        wrong = _on_other_values(model, module, example, example.sizes(), -1)
        if wrong:
            return f"on other values {wrong}", True
    return None


def _on_other_values(model, module, example, shapes, sign, may_fail=False):
    """Describes the difference, "" if there is none, None if the module does not take inputs of these shapes."""
    # products of many elements that are 1.5 times as large overflow
    times = 1 if any(node.op == "ReduceProd" for node in model._graph.nodes) else 1.5
    leaves = example.varied(example.resized(shapes), sign, times)
    try:
        expected = example.tensors(module, leaves)
    except Exception:  # whatever a module raises for inputs that it does not take
        return None
    return _compared(model, module, example, leaves, expected, may_fail) or ""


def _compared(model, module, example, leaves, expected, may_fail=False):
    try:
        with draws.fixed():
            found = model(*map(as_array, leaves))
    except (ValueError, TypeError) as e:
        return None if may_fail else f"the network fails: {e}"
    found = found if isinstance(found, tuple) else (found,)
    if len(found) != len(expected):
        return f"there are {len(found)} results, not {len(expected)}"
    if any(node.op == "NonMaxSuppression" for node in model._graph.nodes):
        return _selected_differ(module, example, leaves, found, expected, model._graph)
    for i, (y, right) in enumerate(zip(found, expected, strict=True)):
        wrong = mismatch(y, as_array(right), _tolerance(module, right, model._graph, example.casts))
        if wrong and not _is_noise(module, example, leaves, i, y, right):
            return f"result {i} {wrong}"
    return None


def _selected_differ(module, example, leaves, found, expected, graph):
    """Describes the difference where boxes are selected by their scores: nearly equal ones come in any order, and one
    more or less may stay. Rows of all results of one length are compared as sets, and as many may be missing as when
    the inputs change in their last digits."""
    right = [as_array(e) for e in expected]
    for y, e in zip(found, right, strict=True):
        if y.dtype != e.dtype or y.shape[1:] != e.shape[1:]:
            return f"has elements of {y.dtype} {y.shape}, not {e.dtype} {e.shape}"
    tolerance = SELECTED * max(_tolerance(module, e, graph, example.casts) for e in expected)
    missing, rows = _missing_rows(found, right, tolerance)
    if missing <= FLIPPED * rows:
        return None
    nudged = example.tensors(module, [x * (1 + NUDGE) if x.dtype.is_floating_point else x for x in leaves])
    moved, _ = _missing_rows([as_array(n) for n in nudged], right, tolerance)
    return f"{missing} of {rows} rows are in none of its results" if missing > NOISE * moved else None


def _missing_rows(found, right, tolerance):
    """(how many of the right rows are not found or are too many, how many there are); those of results of one length
    belong together."""
    missing = total = 0
    for rows in dict.fromkeys(len(e) for e in right if e.ndim):
        pairs = [(y, e) for y, e in zip(found, right, strict=True) if e.ndim and len(e) == rows]
        total += max(rows, len(pairs[0][0]))
        missing += _missing_of(pairs, rows, tolerance)
    return missing, total


def _missing_of(pairs, rows, tolerance):
    """Describes the difference of (found, right) results of so many rows."""
    count = len(pairs[0][0])
    if not rows or not count or any(len(y) != count for y, _ in pairs):
        return max(rows, count)
    scales = [max(np.abs(e).max(initial=0), LEAST) if e.dtype.kind == "f" else tolerance for _, e in pairs]
    have, want = (
        np.concatenate([p[i].reshape(len(p[i]), -1) / s for p, s in zip(pairs, scales, strict=True)], 1) for i in (0, 1)
    )
    alone = sum(np.abs(have - row).max(1).min() > tolerance for row in want)
    return max(int(alone), abs(rows - count))


def _tolerance(module, result, graph, casts=()):
    """That of the coarsest type of elements that the module has or casts to (`casts` are ONNX's numbers): what is
    nearly between two neighbors may become either."""
    types = {str(t.dtype).removeprefix("torch.") for t in (result, *module.parameters(), *module.buffers())}
    found = [BY_NAME[t] for t in types if t in BY_NAME]
    to = [BY_ONNX[k] for k in (*casts, *casts_of(graph))]
    return max((t.tolerance for t in [*found, *(t for t in to if t.stored)]), default=0)


def casts_of(graph):
    """ONNX's numbers of the types that a graph casts to."""
    return {n.attrs.get("type", n.attrs.get("to")) for n in graph.nodes if n.op in ("Narrow", "Cast")}


def _is_noise(module, example, leaves, i, y, right):
    """Whether the difference is one that a change of the inputs in their last digits makes too."""
    if not right.dtype.is_floating_point or y.shape != tuple(right.shape):
        return False
    nudged = example.tensors(module, [x * (1 + NUDGE) if x.dtype.is_floating_point else x for x in leaves])[i]
    with np.errstate(invalid="ignore"):
        moved, off = np.abs(as_array(nudged) - as_array(right)), np.abs(y - as_array(right))
    return bool(np.all(np.isfinite(off)) and off.max(initial=0) <= NOISE * moved.max(initial=0))


def mismatch(y, expected, tolerance):
    """How an array differs from the right one, in words; None where it does not, or less than by `tolerance` times the
    largest value."""
    if y.shape != expected.shape:
        return f"has shape {y.shape}, not {expected.shape}"
    if y.dtype != expected.dtype:
        return f"has elements of type {y.dtype}, not {expected.dtype}"
    if y.dtype.kind != "f":
        part = np.mean(y != expected) if y.size else 0
        return f"differs in {part:.0%} of its elements" if part > FLIPPED else None
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(y)) or not np.array_equal(y[~finite], expected[~finite], equal_nan=True):
        return "has NaN or infinity in other places"
    y, expected = y[finite].astype(np.float64), expected[finite].astype(np.float64)
    off, scale = np.abs(y - expected).max(initial=0), max(np.abs(expected).max(initial=0), LEAST)
    return f"is off by {off / scale:.2g} of its largest value" if off > tolerance * scale else None


def first_difference(torch, program, graph, example):
    """The first of torch's operators whose result the graph does not have, in words; None where each node alone is
    right."""
    seen = {}

    class Watched(torch.fx.Interpreter):  # type: ignore[name-defined]
        def run_node(self, n):
            seen[n] = super().run_node(n)
            return seen[n]

    module = program.exported.graph_module
    given, inputs = iter(example.leaves), {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            constant = program.values[node]
            inputs[node] = next(given) if isinstance(constant, str) else constant
    Watched(module).run(*inputs.values())
    arrays = {v.name: as_array(inputs[n]) for n in inputs if (v := program.inputs.get(n)) is not None}
    known = infer(graph, {name: a.shape for name, a in arrays.items()}, arrays, strict=False)
    for node, right in seen.items():
        value = program.values.get(node)
        found = known.get(value) if isinstance(value, str) else None
        if isinstance(right, torch.Tensor) and found is not None and found.data is not None:
            wrong = mismatch(found.data, as_array(right), _tolerance(module, right, graph))
            if wrong:
                return f"{getattr(node.target, '_schema', node).name} {wrong}"
    return None
