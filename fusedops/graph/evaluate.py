"""Nodes in plain NumPy: the tool of constant folding, and what computes operators without a kernel."""
from .operators import OPERATORS
from .operators.activation import activate
from .operators.eight_bits import quantized, real


def evaluate(node, inputs, residual=None):
    """The results of a node as a list of arrays: ``activation(op(inputs) + residual)``, in 8 bits where the node says
    so; ValueError where its inputs or attributes have none."""
    try:
        results = OPERATORS[node.op].evaluate(node, *inputs)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as e:
        raise ValueError(f"{node.op} {node.name!r} cannot be computed: {e}") from e
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if residual is not None:
        results[0] = results[0] + real(node, "residual_q", residual)
    if node.activation is not None:
        results[0] = activate(results[0], node.activation, -1 if "Linear" in node.op else 1)
    results[0] = quantized(node, results[0])
    return results
