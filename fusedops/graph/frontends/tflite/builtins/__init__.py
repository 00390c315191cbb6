"""How TFLite's operators are read, one function each, in files by family.

A reader takes the TfliteReader and the operator as a Call, adds nodes, and puts values into the operator's outputs.
Names of custom operators stand in quotes.
"""

from . import (
    complex_ops,
    custom_ops,
    flow_ops,
    image_ops,
    indexing_ops,
    landmark_ops,
    matrix_ops,
    placement_ops,
    pointwise_ops,
    random_ops,
    recurrent_ops,
    reduction_ops,
    stable_ops,
)

FAMILIES = (
    image_ops,
    pointwise_ops,
    placement_ops,
    indexing_ops,
    reduction_ops,
    matrix_ops,
    recurrent_ops,
    complex_ops,
    flow_ops,
    custom_ops,
    landmark_ops,
    random_ops,
    stable_ops,
)
BUILTINS = {name: builtin for family in FAMILIES for name, builtin in family.READERS.items()}
_TABLES = "tables of words: look words up before the network"
STABLE = "StableHLO: convert with TFLite's own operators"  # those that have no reader
ABSENT = {  # why an operator has no reader
    "CONCAT_EMBEDDINGS": "withdrawn from TFLite",
    "EMBEDDING_LOOKUP_SPARSE": "sparse tensors as inputs: pass dense ones",
    "HASHTABLE": _TABLES,
    "HASHTABLE_FIND": _TABLES,
    "HASHTABLE_IMPORT": _TABLES,
    "HASHTABLE_LOOKUP": _TABLES,
    "HASHTABLE_SIZE": _TABLES,
    "LSH_PROJECTION": "strings and hashes: compute them before the network",
    "SKIP_GRAM": "strings: turn text into numbers before the network",
    "DELEGATE": "compiled for one processor: take the model as it was before",
}


def why_absent(kind):
    """Why an operator has no reader, where that is known; else None."""
    return STABLE if kind.startswith("STABLEHLO") else ABSENT.get(kind)
