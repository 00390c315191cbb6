"""How torch's operators are read, one function each, in files by family.

A reader takes the FxReader, the operator's first argument, and the others by the names of torch's schema. Tensors among
them are values of the graph (fx_values.FxValue) or, where constant, tensors of torch. It adds nodes and returns the
name of the result, or a list of them. A use of an operator that it does not have is Unsupported.
"""

from . import (
    boxes,
    complex_numbers,
    convolutions,
    fourier,
    indexing,
    linear_algebra_ops,
    normalization,
    pointwise,
    products,
    random_tensors,
    reductions,
    resizing,
    shapes,
)

FAMILIES = (
    boxes,
    convolutions,
    pointwise,
    indexing,
    normalization,
    shapes,
    products,
    reductions,
    resizing,
    random_tensors,
    complex_numbers,
    fourier,
    linear_algebra_ops,
)
READERS = {name: reader for family in FAMILIES for name, reader in family.READERS.items()}
