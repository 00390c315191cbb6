"""What is known of an operator, in one record. Passes, shapes, evaluation and planning ask the record; nothing else
knows operators by name, but a pass that is about one."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..ir.graph import Node
from ..ir.graph_builder import GraphBuilder
from ..ir.subgraph import DataDependentShape
from ..steps.tensor import broadcast_shapes


def plain(r: GraphBuilder, node: Node):
    """Reads an operator that every opset has in the newest form."""
    r.add(node)


def with_inputs(*attrs):
    """Reads an operator whose inputs from the second on were attributes in old opsets."""

    def read(r: GraphBuilder, node):
        for i, attr in enumerate(attrs, 1):
            r.as_input(node, attr, i)
        r.add(node)

    return read


def read_to_end(r: GraphBuilder, node: Node):
    """Reads an operator that works along one axis, in older opsets along all from this one on."""
    node.attrs.setdefault("axis", -1 if r.opset >= 13 else 1)
    node.attrs["to_end"] = r.opset < 13
    r.add(node)


def as_first(node, inputs, i):
    """The type of elements that the first input has."""
    return inputs[0].dtype


def always(*dtypes):
    """The types of results that do not depend on inputs."""
    return lambda node, inputs, i: np.dtype(dtypes[min(i, len(dtypes) - 1)])


def same_shape(node, x, *others):
    return x.shape


def broadcast_shape(node, *xs):
    return broadcast_shapes(*(x.shape for x in xs if x is not None))


class Operator(NamedTuple):
    """An operator of the graph. The first three fields have no default: a kernel, or the reason why there is none, is
    said for each."""

    evaluate: Callable  # (node, *arrays) -> its result, or a tuple of them: the meaning that all else must keep
    shape: Callable | None  # (node, *Knowns) -> the shape of its result, or a list of shapes; None: see infer
    # (builder, node) -> whether it added steps, else NumPy computes this node; or why NumPy always does
    lower: Callable | str
    read: Callable | None = plain  # (reader, node): adds it in the form of the newest opset; None where no file has it
    dtype: Callable = as_first  # (node, inputs, i) -> the type of elements of the i-th result
    note: str = ""  # for which nodes there are kernels, for the documentation
    shaping: tuple[int, ...] = ()  # inputs on whose values the shape of the result depends
    from_shapes: bool = False  # its result follows from the shapes of its inputs
    views: bool = False  # its steps place what they read otherwise, whatever the type of its elements
    typed: bool = False  # its lowering looks at the types of elements itself
    sizes: bool = False  # it evaluates arrays of SymInts (of dtype object) as it does integers
    grows: bool = False  # its result may be much larger than its inputs
    call: Callable | None = None  # (node, residual, *arrays) -> its results by the library's own calls, or None
    idle: Callable | None = None  # (node, *Knowns or None) -> whether it gives back its first input
    adds: bool = False  # its steps add a residual
    activates: bool = False  # its steps apply an activation
    channels: bool = False  # an activation may have a slope for each of its channels
    # its steps write an image with any distance between its pixels, such as a part of a concatenation
    anywhere: bool = False
    weighted: str = ""  # it has weights, into which scales fold: what it is in words
    scales: int = 1  # the input that a scale of its channels folds into; 0: none, but shifts fold into the bias
    bytes: bool = False  # its steps take and make bytes
    # the inputs whose elements, or the largest of them, the result has in other places: a slice of them, by the node
    carries: Callable | None = None
    on_bytes: str = ""  # the same operator on bytes, which takes the inputs that are not parameters
    weightless: bool = False  # what goes in comes out, in another shape, order or mean: logits stay logits
    logits: bool = False  # differences of its inputs become factors
    formula: bool = False  # activations that are spelled out may consist of it
    infer: Callable | None = (
        None  # (node, *Knowns) -> what is known of its results, where shapes and types do not say all
    )
    subgraphs: bool = False  # graphs inside: evaluate and infer are handed what runs or infers these, before the node


class Rewrite(NamedTuple):
    """An operator of files that the graph has as others."""

    read: Callable
    into: tuple[str, ...]


class Absent(NamedTuple):
    """An operator of ONNX that fusedops does not have: why, and what to do instead."""

    why: str


def floats(*arrays):
    return all(a is None or a.dtype == np.float32 for a in arrays)


def values(x, what):
    """The data of an input that shapes depend on."""
    if x is None:
        return None
    if x.data is None:
        raise DataDependentShape(f"its {what} depends on the values of the network's input, so no plan can be made")
    return x.data


def axes_of(axes, ndim):
    """Axes, of which negative ones count from behind, as numbers from 0; None is all of them."""
    axes = range(ndim) if axes is None else [int(a) for a in axes]
    found = tuple(a + ndim * (a < 0) for a in axes)
    if len(set(found)) < len(found) or not all(0 <= a < ndim for a in found):
        raise ValueError(f"{list(axes)} are not axes of an array of {ndim}")
    return found


def axis_of(node, ndim, default=0, name="axis"):
    """The one axis that a node works along."""
    return axes_of([node.attrs.get(name, default)], ndim)[0]


def lowest(dtype):
    """The least value of a type of elements."""
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def highest(dtype):
    """The largest value of a type of elements."""
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max
