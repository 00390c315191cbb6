"""What is known of an operator, in one record. Passes, shapes, evaluation and planning ask the record; nothing else
knows operators by name, but a pass that is about one."""

from collections.abc import Callable, Collection, Set
from typing import NamedTuple

import numpy as np

from ..ir.dtypes import FLOAT32
from ..ir.errors import BadNode
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
    """The type of elements that the first input has; None where it is not known."""
    return inputs[0] and inputs[0].dtype


def always(*dtypes):
    """The types of results that do not depend on inputs."""
    return lambda node, inputs, i: np.dtype(dtypes[min(i, len(dtypes) - 1)])


def by_numpy(function, inputs=1):
    """What an operator computes by a function of NumPy, which does not take every type of elements."""

    def evaluate(*xs):
        try:
            return function(*xs)
        except TypeError as e:
            if any(np.asarray(x).dtype == object for x in xs):  # it called methods of this library's
                raise
            raise BadNode(f"NumPy cannot compute it: {e}") from e

    forms = {
        1: lambda node, x: evaluate(x),
        2: lambda node, a, b: evaluate(a, b),
        3: lambda node, a, b, c: evaluate(a, b, c),
    }
    form = forms[getattr(function, "nin", inputs)]
    form.ufunc = function if isinstance(function, np.ufunc) else None  # type: ignore[attr-defined]
    return form


def same_shape(node, x, *others):
    return x.shape


def broadcast_shape(node, *xs):
    return broadcast_shapes(*[x.shape for x in xs if x is not None])


class Inference(NamedTuple):
    """What is known of results before the network runs."""

    shape: Callable | None  # (node, *TensorInfos) -> the shape of its result, or a list of shapes; None: see infer
    dtype: Callable = as_first  # (node, inputs, i) -> the type of elements of the i-th result
    shape_inputs: tuple[int, ...] = ()  # inputs on whose values the shape of the result depends
    shape_only: bool = False  # its result follows from the shapes of its inputs
    symbolic: bool = False  # it evaluates arrays of SymInts (of dtype object) as it does integers
    may_grow: bool = False  # its result may be much larger than its inputs
    random: bool = False  # nobody knows its results before a call draws them
    # (node, *TensorInfos) -> what is known of its results, where `shape` is None
    infer: Callable | None = None


class Kernel(NamedTuple):
    """Steps of kernels that compute it."""

    lower: Callable  # (LoweringContext, node) -> whether it added steps, else NumPy computes this node
    note: str = ""  # for which nodes there are kernels, for the documentation
    dtypes: frozenset[np.dtype] = FLOAT32  # of results; NumPy makes others
    fuses: Collection[str] = ()  # what its steps apply: "residual", "activation", "slopes" (one for each channel)
    writes_strided: bool = False  # an image with any distance between its pixels, such as a part of a concatenation
    weights: str = ""  # it has weights, into which scales fold: what it is in words
    scale_input: int = 1  # that a scale of its channels folds into; 0: none, but shifts fold into the bias


class NumPyOnly(NamedTuple):
    """NumPy computes it: why. The rest is what passes ask a kernel."""

    why: str
    fuses: Collection[str] = ()
    writes_strided: bool = False
    weights: str = ""
    scale_input: int = 0


class Traits(NamedTuple):
    """What passes may do with it."""

    is_identity: Callable | None = None  # (node, *TensorInfos or None) -> whether it gives back its first input
    # the inputs whose elements, or the largest of them, the result has elsewhere: a slice of them, by the node
    moves_elements: Callable | None = None
    quantized_as: str = ""  # the operator on quantized values, which takes the inputs that are not parameters
    keeps_logits: bool = False  # what goes in comes out, in another shape, order or mean: logits stay logits
    reads_logits: bool = False  # differences of its inputs become factors
    elementwise: bool = False  # of one value and numbers: activations that are spelled out may consist of it


class Operator(NamedTuple):
    """An operator of the graph. What has no default is said for each: its meaning, its shape, and a kernel or the
    reason why there is none."""

    evaluate: Callable  # (node, *arrays) -> its result, or a tuple of them: the meaning that all else must keep
    inference: Inference
    kernel: Kernel | NumPyOnly
    read: Callable | None = plain  # (GraphBuilder, node): adds it as the newest opset has it; None where no file has it
    traits: Traits = Traits()
    run_layer: Callable | None = None  # (node, residual, *arrays) -> its results by the library's own calls, or None
    optional: Set[int] = frozenset()  # inputs that may be left out before others that may not
    sequences: bool = False  # it takes or gives lists of arrays
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


def sum_of(x, axes, keepdims=False):
    """The sum; that of floats is float64 on the way, so that its error does not grow with the number of terms."""
    with np.errstate(over="ignore", invalid="ignore"):
        return x.sum(axes, keepdims=keepdims, dtype=np.float64 if x.dtype.kind == "f" else x.dtype).astype(x.dtype)


def mean_of(x, axes, keepdims=False):
    """The mean of floats; it is float64 on the way."""
    with np.errstate(over="ignore", invalid="ignore"):
        return x.mean(axes, keepdims=keepdims, dtype=np.float64).astype(x.dtype)


def axes_of(axes, ndim):
    """Axes, of which negative ones count from the end, as numbers from 0; None is all of them."""
    if getattr(axes, "ndim", 1) != 1:
        raise BadNode(f"its axes are {axes.tolist()}, which is not a list")
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
