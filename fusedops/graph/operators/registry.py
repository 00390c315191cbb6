"""The operators: one record each, in files by family."""

import functools
import inspect
import math

from ..ir.errors import BadNode
from . import (
    activation,
    bitwise,
    control_flow,
    conv,
    deform_conv,
    detection,
    early_onnx,
    elementwise,
    gather_scatter,
    grid_sample,
    int16_tables,
    learned,
    linear_algebra,
    matmul,
    matmul_nbits,
    norm,
    onnx_sequences,
    padding,
    pool,
    qdq,
    qlinear,
    random_numbers,
    ranges,
    reduce,
    resize,
    rnn,
    sdpa,
    shape_ops,
    signal,
    trees,
    unsupported,
)
from .contrib import as_onnx, fused, grouped_attention, multi_head_attention, nchwc, quantized_ops
from .schema import Absent, Operator, Rewrite

_FAMILIES = (
    unsupported,
    activation,
    sdpa,
    control_flow,
    conv,
    qlinear,
    elementwise,
    matmul_nbits,
    gather_scatter,
    ranges,
    bitwise,
    fused,
    grouped_attention,
    multi_head_attention,
    quantized_ops,
    nchwc,
    as_onnx,
    norm,
    shape_ops,
    pool,
    matmul,
    qdq,
    rnn,
    reduce,
    resize,
    deform_conv,
    grid_sample,
    onnx_sequences,
    padding,
    signal,
    random_numbers,
    early_onnx,
    linear_algebra,
    detection,
    int16_tables,
    learned,
    trees,
)
RECORDS = {name: record for family in _FAMILIES for name, record in family.RECORDS.items()}
OPERATORS: dict[str, Operator] = {name: record for name, record in RECORDS.items() if isinstance(record, Operator)}
READ = {
    name: record.read for name, record in RECORDS.items() if not isinstance(record, Absent) and record.read is not None
}


def check_inputs(node):
    """Refuses a node without the inputs that its operator needs, or with more than it has."""
    record = OPERATORS[node.op]
    needed, most = _arity(record.evaluate, record.subgraphs)
    given = len(node.inputs)
    if not needed <= given <= most or any(not node.inputs[i] and i not in record.optional for i in range(needed)):
        raise BadNode(f"of the {needed} inputs that it needs it has {', '.join(map(repr, node.inputs)) or 'none'}")


@functools.cache
def _arity(evaluate, subgraphs):
    """(how many inputs an operator needs, how many it may have)."""
    given = list(inspect.signature(evaluate).parameters.values())[1 + subgraphs :]
    plain = [p for p in given if p.kind is not p.VAR_POSITIONAL]
    return sum(p.default is p.empty for p in plain), len(plain) if plain == given else math.inf


def carried(node):
    """The slice of a node's inputs whose elements its results have, in other places; None: there is none."""
    moves = OPERATORS[node.op].traits.moves_elements
    plain = node.activation is None and not node.residual
    return moves(node) if moves is not None and plain else None


__all__ = ["OPERATORS", "READ", "RECORDS", "Absent", "Operator", "Rewrite", "carried", "check_inputs"]
