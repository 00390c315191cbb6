"""Shapes and types of every value for given input shapes; what follows from shapes alone is computed here, not at run
time."""

import contextlib
import math

import numpy as np

from ..ir.graph import TensorInfo, constant
from ..ir.subgraph import DataDependentShape, captured, graphs_of
from ..ir.symbolic import Deferred, as_dim, is_symbolic, typed
from ..operators.registry import OPERATORS, check_inputs
from ..steps.tensor import broadcast_shapes, check_memory
from .evaluate import Interpreter, evaluate

MAX_COUNTS = 64  # integers of a value that shapes follow from

_OBJECT = np.dtype(object)

MAX_VALUES = 64  # of an input whose values a plan is made for


def shape_inputs(graph, inner=False):
    """Names of the network's inputs whose values, not only whose shapes, decide on the shapes inside: integers, and
    floats if they are few.
    Of a graph inside a node, what it computes anew in each round is none of them."""
    deciding = [v for node in graph.nodes for v in _shape_inputs(node) if v]
    if not deciding:
        return []
    inputs = graph.inputs[len(graph.inputs) - graph.captures :] if inner else graph.inputs
    knowable = {v.name for v in inputs if _may_decide(v)}.union(graph.constants)
    for node in graph.nodes:
        if OPERATORS[node.op].inference.shape_only or knowable.issuperset(node.reads()):
            knowable.update(node.outputs)
    wanted = knowable.intersection(deciding)
    for node in reversed(graph.nodes):
        if not OPERATORS[node.op].inference.shape_only and wanted.intersection(node.outputs):
            wanted.update(node.reads())
    return [v.name for v in graph.inputs if v.name in wanted]


def _may_decide(value):
    """Whether an input may be made of numbers that are sizes."""
    if value.dtype is None or value.shape is not None and len(value.shape) > 1:
        return False
    fixed = value.shape is not None and all(isinstance(n, int) for n in value.shape)
    return value.dtype.kind in "iub" or fixed and math.prod(value.shape) <= MAX_VALUES


def _shape_inputs(node):
    """The inputs of a node on whose values shapes depend, those inside its graphs too."""
    record = OPERATORS[node.op]
    found = [node.input(i) for i in record.inference.shape_inputs]
    for key, graph in graphs_of(node).items() if record.subgraphs else ():
        outside = dict(
            zip(
                (v.name for v in graph.inputs[len(graph.inputs) - graph.captures :]),
                captured(node, key, node.inputs),
                strict=True,
            )
        )
        found += [outside[v] for v in shape_inputs(graph, inner=True)]
    return found


def infer(graph, shapes, values=(), strict=True, earlier=()):
    """A dict of TensorInfo for every value of the graph whose inputs have the given shapes, a dict from name to tuple;
    `values` has the data of those inputs that decide on shapes inside. Where not `strict`, what cannot be known is left
    out. `earlier` has what is known of values already: passes keep what a name means."""
    inputs = {v.name: TensorInfo(tuple(shapes[v.name]), v.dtype) for v in graph.inputs if v.name in shapes}
    given = {name: constant(a, inputs[name].dtype) for name, a in dict(values).items()}
    return infer_from(graph, inputs | given, strict, earlier)


def infer_from(graph, inputs, strict=True, earlier=()):
    """As infer, from what is known of the inputs."""
    known = {name: constant(a) for name, a in graph.constants.items()}
    known.update(inputs)
    for node in graph.nodes:
        if node.outputs[0] in earlier:
            results = [v for v in node.outputs if v]
            if all(v in earlier for v in results):
                known.update({v: earlier[v] for v in results})
                continue
        if not strict and not all(map(known.__contains__, node.reads())):
            continue
        try:
            given = [known[v] if v else None for v in node.inputs]
            known.update(infer_node(node, given, known[node.residual] if node.residual else None))
        except DataDependentShape as e:
            if strict:
                e.node, e.known = node, known
                raise
        except (ArithmeticError, ValueError) as e:
            if strict:
                raise ValueError(f"{node.op} {node.name!r} {_does_not_fit(node, known)}: {e}") from e
    return known


def _does_not_fit(node, known):
    return f"does not fit its inputs of shape {', '.join(str(known[v].shape) for v in node.inputs if v in known)}"


def without_data(known):
    """What is known of the values that only a call has: what a later inference need not find again."""
    return {v: k for v, k in known.items() if k.data is None}


def infer_node(node, inputs, residual=None):
    """{output: TensorInfo} of one node."""
    record = OPERATORS[node.op]
    rules = record.inference
    check_inputs(node)
    if rules.shape_only:
        return {node.output: constant(record.evaluate(node, *inputs))}
    constants = not rules.random and (residual is None or residual.data is not None)
    for x in inputs:
        if x is not None:
            if x.dtype is _OBJECT:
                raise DataDependentShape("it takes a sequence, whose length only a call knows")
            constants = constants and x.data is not None
    if rules.infer is not None:
        found = rules.infer(*([SubgraphInference()] * record.subgraphs), node, *inputs)
        return {v: k for v, k in zip(node.outputs, found, strict=False) if v}
    found = _shapes_and_types(node, rules, inputs, residual)
    if constants or rules.may_grow:
        check_memory(found.values())
    return _computed(node, inputs, residual and residual.data, found) if constants else found


def _shapes_and_types(node, rules, inputs, residual):
    """{output: TensorInfo} of a node whose rule for shapes says all."""
    shapes = rules.shape(node, *inputs)
    shapes = shapes if isinstance(shapes, list) else [shapes]
    if residual is not None:
        shapes[0] = broadcast_shapes(shapes[0], residual.shape)
    return {
        v: TensorInfo(tuple([n if n.__class__ is int else as_dim(n) for n in s]), rules.dtype(node, inputs, i))
        for i, (v, s) in enumerate(zip(node.outputs, shapes, strict=False))
        if v
    }


def _computed(node, inputs, residual, found):
    """As infer_node, where all inputs are known, and `found` of the results shapes and types."""
    arrays = [x if x is None else x.data for x in inputs]
    if is_symbolic((*arrays, residual)) or any(is_symbolic(known.shape) for known in found.values()):
        return _open(node, inputs, residual, found)
    results = zip(node.outputs, evaluate(node, arrays, residual), strict=False)
    return {v: constant(np.asarray(r)) for v, r in results if v}


def _open(node, inputs, residual, found):
    """As _computed, for values that follow from open sizes: those that shapes are made of as arrays of SymInts, others
    when sizes are given."""
    arrays = [x if x is None else x.data for x in inputs]
    if OPERATORS[node.op].inference.symbolic and residual is None and _counts(arrays, found.values()):
        with contextlib.suppress(ArithmeticError, ValueError):  # of plain ints alone: then later
            results = {v: np.asarray(r) for v, r in zip(node.outputs, evaluate(node, arrays), strict=False) if v}
            return {
                v: constant(r if is_symbolic(r) else r.astype(found[v].dtype), found[v].dtype)
                for v, r in results.items()
            }
    arrays = [x if x is None else typed(x.data, x.dtype) for x in inputs]
    each = Deferred(evaluate, (node, arrays, residual))
    return {
        v: known._replace(
            data=Deferred(_result, (each, node.outputs.index(v), known.shape, known.dtype), known.shape, known.dtype)
        )
        for v, known in found.items()
    }


def _counts(arrays, results):
    """Whether a node computes with a few integers of known number, such as sizes are."""
    values = all(a is None or isinstance(a, np.ndarray) and (a.dtype == object or a.dtype.kind in "bi") for a in arrays)
    return values and all(
        not is_symbolic(r.shape) and math.prod(r.shape) <= MAX_COUNTS and r.dtype.kind in "bi" for r in results
    )


def _result(results, i, shape, dtype):
    return np.ascontiguousarray(results[i], dtype).reshape(shape)


class SubgraphInference(Interpreter):
    """What is known of graphs inside nodes; those that only take constants are run."""

    def infer(self, graph, inputs):
        """What is known of a graph's results, from what is of its inputs."""
        found = infer_from(graph, dict(zip((v.name for v in graph.inputs), inputs, strict=True)))
        return [found[v] for v in graph.results]
