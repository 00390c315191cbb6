"""The graph: nodes over named values. ONNX's operators in the form of its newest opset, and what fusion makes of them.

Beside ONNX's own, two operators stand in a graph: ``Activation`` (every activation, in the form of
fusedops.activations) and ``Linear`` (x w^T + bias with constant w). A node's result is ``activation(op(inputs) +
residual)``: fusion fills these two fields.
"""

from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np

from .dtypes import name_of
from .errors import BadNode


def unique(name, taken):
    """A name like this one that is not taken; it is from now on. `taken`: a dict from names to how many were made of
    each."""
    found = name
    while found in taken:
        taken[name] += 1
        found = f"{name}.{taken[name]}"
    taken[found] = 0
    return found


class Attributes(dict):
    """The attributes of a node by name. A missing one is an error of the node, and so is one of another kind than the
    default that is asked for with it."""

    __slots__ = ()

    def __missing__(self, name):
        raise BadNode(f"it has no attribute {name!r}")

    def get(self, name, default=None):
        found = super().get(name, default)
        if found.__class__ is not default.__class__ and not isinstance(found, _kinds_like(default)):
            raise BadNode(f"its attribute {name!r} is {found!r}, where {default!r} would be one")
        return found


def _kinds_like(default):
    """The types that an attribute with this default may have."""
    for kinds in (str,), (Integral, np.bool_), (Real,), (np.ndarray,), (tuple, list, range, np.ndarray):
        if isinstance(default, kinds):
            return kinds
    return (object,)


@dataclass(slots=True, eq=False, repr=False)
class Node:
    op: str
    name: str
    inputs: list[str]  # "" where an optional input is not given
    outputs: list[str]
    attrs: dict = field(default_factory=dict)
    residual: str = ""  # a value added to the result before the activation
    activation: tuple | str | None = None
    fused_from: list[str] = field(default_factory=list)  # names of the nodes that were merged into this one

    def __post_init__(self):
        self.attrs = Attributes(self.attrs)

    @property
    def output(self):
        return self.outputs[0]

    def reads(self):
        """Names of all values that the node takes."""
        reads = self.inputs if "" not in self.inputs else [v for v in self.inputs if v]
        return [*reads, self.residual] if self.residual else list(reads)

    def input(self, i):
        return self.inputs[i] if i < len(self.inputs) else ""


class TensorInfo(NamedTuple):
    """What is known of a value before the network runs; `data` where it is all."""

    shape: tuple
    dtype: np.dtype
    data: np.ndarray | None = None


def constant(a, dtype=np.dtype(np.int64)):
    """Returns what is known of a value with this data; `dtype` is that of objects, which are SymInts of a plan."""
    return TensorInfo(a.shape, dtype if a.dtype == object else a.dtype, a)


@dataclass(slots=True)
class Value:
    """An input or output of a network.

    Attributes
    ----------
    name : str
    shape : tuple, or None
        A dimension is an int, or a str where it may differ from call to call; of ``Model.inputs`` and
        ``Model.outputs`` it is None where the file does not name such a dimension. None: of any number of axes.
    dtype : dtype
        Of the arrays that a call takes or gives.
    stored : str
        The type in the file where `dtype` is another, as of bfloat16; see `file_type`.
    optional : bool
        Whether the file has a value for it, which a call may replace.
    """

    name: str
    shape: tuple | None
    dtype: np.dtype
    stored: str = ""
    optional: bool = False

    @property
    def file_type(self) -> str:
        """The type of elements in the file, such as "float16", "bfloat16" or "sequence(float32)"."""
        return self.stored or name_of(self.dtype)

    def open_name(self, axis):
        """Names a dimension that the file does not name."""
        return f"{self.name}.{axis}"

    def as_in_file(self, optional=False):
        """The value with None for dimensions that the file does not name."""
        shape = self.shape
        if shape is not None:
            shape = tuple(None if n == self.open_name(i) else n for i, n in enumerate(shape))
        return Value(self.name, shape, self.dtype, self.stored, optional)

    def dimensions(self):
        """The shape with a name for each dimension that may differ; None where there is no shape."""
        if self.shape is None:
            return None
        return tuple(self.open_name(i) if n is None else n for i, n in enumerate(self.shape))

    def __str__(self):
        shape = "unknown" if self.shape is None else "(" + ", ".join(map(str, self.dimensions())) + ")"
        return f"{self.name}: {name_of(self.dtype)} {shape}"


@dataclass(slots=True, frozen=True)
class Metadata:
    """What a file says of itself.

    Attributes
    ----------
    producer, graph, domain, description, graph_description : str
        The program that wrote it, the name of its graph, and so on; "" where the file does not say it.
    version : int
        Of the network, as its author counts.
    custom : dict of str to str
        What else the file holds.
    """

    producer: str = ""
    graph: str = ""
    domain: str = ""
    version: int = 0
    description: str = ""
    graph_description: str = ""
    custom: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)  # each function that it makes takes 0.3 ms
class Graph:
    nodes: list[Node]  # each after the nodes whose results it takes
    constants: dict[str, np.ndarray]
    inputs: list[Value]
    outputs: list[Value]
    results: list[str]  # the value of each output; it may have another name than the output
    opset: int
    defaults: list[Value] = field(default_factory=list)  # inputs that need not be given: they are constants
    captures: int = 0  # inputs, the last ones, that a graph inside a node takes from outside
    # what the last inputs hold at first that the network keeps from call to call; the last results are what they hold
    # in the next call
    states: list[np.ndarray] = field(default_factory=list)
    # what the passes found of values where all inputs have one shape: the first plan need not infer it again
    known: dict = field(default_factory=dict, repr=False, compare=False)
    # a size for each open dimension, by its name, where the reader has one: passes look at the network in these
    example: dict = field(default_factory=dict, repr=False, compare=False)
    # of products where the caller names none: bfloat16 where all weights of two and more axes are
    precision: str = field(default="float32", repr=False, compare=False)
    metadata: Metadata = Metadata()

    def __getstate__(self):
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("known", "example", "precision")}

    def __setstate__(self, state):
        type(self).__init__(self, **state)

    def value_names(self):
        """The names of all values, as `unique` takes them."""
        return dict.fromkeys([*self.constants, *(v.name for v in self.inputs), *self.producers()], 0)

    def node_names(self):
        """Those of all nodes."""
        return dict.fromkeys((n.name for n in self.nodes), 0)

    def producers(self):
        return {v: node for node in self.nodes for v in node.outputs if v}

    def consumers(self):
        """The nodes that read each value, one entry for each reading."""
        found = {}
        for node in self.nodes:
            for v in node.reads():
                found.setdefault(v, []).append(node)
        return found

    def constant(self, node, i):
        """The i-th input of the node where it is constant, else None."""
        return self.constants.get(node.input(i))

    def copy(self):
        """A graph of its own nodes and the same constants."""
        nodes = [
            Node(
                n.op,
                n.name,
                list(n.inputs),
                list(n.outputs),
                {k: a.copy() if isinstance(a, Graph) else a for k, a in n.attrs.items()},
                n.residual,
                n.activation,
                list(n.fused_from),
            )
            for n in self.nodes
        ]
        return Graph(
            nodes,
            dict(self.constants),
            list(self.inputs),
            list(self.outputs),
            list(self.results),
            self.opset,
            list(self.defaults),
            self.captures,
            list(self.states),
            example=self.example,
            precision=self.precision,
            metadata=self.metadata,
        )
