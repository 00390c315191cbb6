"""The operators: one record each, in files by family."""

from . import (
    absent,
    activation,
    attention,
    control,
    conv,
    eight_bits,
    elementwise,
    few_bits,
    indexing,
    integers,
    microsoft,
    microsoft_attention,
    microsoft_quantized,
    norm,
    places,
    pool,
    product,
    quantized,
    recurrent,
    reduce,
    resize,
    sampling,
    sequence,
    signal,
)
from .record import Absent, Operator, Rewrite

_FAMILIES = (
    absent,
    activation,
    attention,
    control,
    conv,
    eight_bits,
    elementwise,
    few_bits,
    indexing,
    integers,
    microsoft,
    microsoft_attention,
    microsoft_quantized,
    norm,
    places,
    pool,
    product,
    quantized,
    recurrent,
    reduce,
    resize,
    sampling,
    sequence,
    signal,
)
RECORDS = {name: record for family in _FAMILIES for name, record in family.RECORDS.items()}
OPERATORS: dict[str, Operator] = {name: record for name, record in RECORDS.items() if isinstance(record, Operator)}
READ = {
    name: record.read for name, record in RECORDS.items() if not isinstance(record, Absent) and record.read is not None
}


def carried(node):
    """The slice of a node's inputs whose elements its results have, in other places; None: there is none."""
    carries = OPERATORS[node.op].carries
    plain = node.activation is None and not node.residual
    return carries(node) if carries is not None and plain else None


__all__ = ["OPERATORS", "READ", "RECORDS", "Absent", "Operator", "Rewrite", "carried"]
