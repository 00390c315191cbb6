"""The operators: one record each, in files by family."""
from . import (
    activation,
    control,
    conv,
    elementwise,
    indexing,
    norm,
    places,
    pool,
    product,
    recurrent,
    reduce,
    resize,
    sequence,
)
from .record import Operator, Rewrite

_FAMILIES = (activation, control, conv, elementwise, indexing, norm, places, pool, product, recurrent, reduce, resize,
             sequence)
RECORDS = {name: record for family in _FAMILIES for name, record in family.RECORDS.items()}
OPERATORS: dict[str, Operator] = {name: record for name, record in RECORDS.items() if isinstance(record, Operator)}
READ = {name: record.read for name, record in RECORDS.items() if record.read is not None}

__all__ = ["OPERATORS", "READ", "RECORDS", "Operator", "Rewrite"]
