"""How TFLite's operators are read, one function each, in files by family.

A reader takes the TfliteReader and the operator as a Call, adds nodes, and puts values into the operator's outputs.
Names of custom operators stand in quotes.
"""

from . import (
    custom_ops,
    flow_ops,
    image_ops,
    indexing_ops,
    matrix_ops,
    placement_ops,
    pointwise_ops,
    recurrent_ops,
    reduction_ops,
)

FAMILIES = (
    image_ops,
    pointwise_ops,
    placement_ops,
    indexing_ops,
    reduction_ops,
    matrix_ops,
    recurrent_ops,
    flow_ops,
    custom_ops,
)
BUILTINS = {name: builtin for family in FAMILIES for name, builtin in family.READERS.items()}
_TABLES = "tables of words: look words up before the network"
_RANDOM = "random numbers: draw before or behind the network"
_STABLE = "written by no converter for inference: convert with TFLite's own operators"
ABSENT = {  # why an operator has no reader
    "CONCAT_EMBEDDINGS": "withdrawn from TFLite",
    "EMBEDDING_LOOKUP_SPARSE": "sparse tensors as inputs: pass dense ones",
    "HASHTABLE": _TABLES,
    "HASHTABLE_FIND": _TABLES,
    "HASHTABLE_IMPORT": _TABLES,
    "HASHTABLE_LOOKUP": _TABLES,
    "HASHTABLE_SIZE": _TABLES,
    "LSH_PROJECTION": "strings and hashes: compute them before the network",
    "MULTINOMIAL": _RANDOM,
    "RANDOM_STANDARD_NORMAL": _RANDOM,
    "RANDOM_UNIFORM": _RANDOM,
    "SKIP_GRAM": "strings: turn text into numbers before the network",
    "STABLEHLO_RNG_BIT_GENERATOR": _RANDOM,
}
