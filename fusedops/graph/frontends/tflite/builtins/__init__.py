"""How TFLite's operators are read, one function each, in files by family.

A reader takes the TfliteReader and the operator as a Call, adds nodes, and puts values into the operator's outputs.
"""

from . import flow_ops, image_ops, indexing_ops, matrix_ops, placement_ops, pointwise_ops, reduction_ops

FAMILIES = (flow_ops, image_ops, pointwise_ops, placement_ops, indexing_ops, reduction_ops, matrix_ops)
BUILTINS = {name: builtin for family in FAMILIES for name, builtin in family.READERS.items()}
ABSENT: dict[str, str] = {}
