"""Nodes in plain NumPy: the tool of constant folding, and what computes operators without a kernel."""

from typing import TYPE_CHECKING

import numpy as np

from ..._internal.lazy import LazyModule
from ..ir.errors import BadNode, NoSymbolic
from ..operators.activation import activate
from ..operators.registry import OPERATORS

if TYPE_CHECKING:
    from ..operators import qlinear
else:
    qlinear = LazyModule("..operators.qlinear", __package__)


def evaluate(node, inputs, residual=None, graphs=None):
    """The results of a node as a list of arrays: ``activation(op(inputs) + residual)``, in int8 where the node says
    so; ValueError where its inputs or attributes have none. `graphs` runs those inside the node; None: node by node."""
    with np.errstate(all="ignore"):  # as kernels, whose infinities and NaN are results
        return _evaluated(node, inputs, residual, graphs)


def _evaluated(node, inputs, residual, graphs):
    record = OPERATORS[node.op]
    if not (record.sequences or record.subgraphs) and any(isinstance(x, list) for x in inputs):
        raise BadNode(f"{node.op} {node.name!r} takes arrays, not a sequence")
    try:
        results = (
            record.evaluate(graphs or Interpreter(), node, *inputs)
            if record.subgraphs
            else record.evaluate(node, *inputs)
        )
    except TypeError as e:
        if isinstance(e.__cause__, NoSymbolic):  # which NumPy met in an array
            raise e.__cause__ from None
        raise
    except (ArithmeticError, IndexError) as e:  # of NumPy, about values
        raise ValueError(f"{node.op} {node.name!r} cannot be computed: {e}") from e
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if residual is not None:
        results[0] = _with_residual(node, results[0], residual)
    if node.activation is not None:
        results[0] = activate(results[0], node.activation, -1 if "Linear" in node.op else 1)
    if node.attrs.get("y_q") is not None:
        results[0] = qlinear.quantized(node, results[0])
    return results


def _with_residual(node, y, residual):
    """The sum of a result and a residual, each of which int8 may hold."""
    if node.attrs.get("product_q") is not None or node.attrs.get("residual_q") is not None:
        y, residual = qlinear.rounded(node, "product", y), qlinear.real(node, "residual_q", residual)
    return y + residual


class Interpreter:
    """Runs graphs inside nodes without a plan, node by node."""

    def call(self, graph, inputs):
        """The results of a graph, as a list."""
        if len(inputs) != len(graph.inputs):
            raise ValueError(f"a graph inside it takes {len(graph.inputs)} values, got {len(inputs)}")
        values = graph.constants | dict(zip((v.name for v in graph.inputs), inputs, strict=True))
        for node in graph.nodes:
            given = [values[v] if v else None for v in node.inputs]
            results = evaluate(node, given, values.get(node.residual), self)
            values |= {v: r for v, r in zip(node.outputs, results, strict=False) if v}
        return [values[v] for v in graph.results]

    def infer(self, graph, inputs):
        """Raises ValueError: the shapes of values are found by running."""
        raise ValueError("shapes are not inferred here")

    def fixed_shapes(self, graph, inputs, first_in, first_out, carried):
        """None: no round is planned."""
