"""An ONNX model as light records, read from its bytes: Python's view of protobuf's messages is slow to touch, and all
who read a model ask for the same few fields. What is rarely asked for stays in the bytes of each message, `data`. The
numbers of fields and types are those of onnx.proto."""
from typing import Any, NamedTuple

from .._core import DATA, FLOAT, INT, INTS, MESSAGE, MESSAGES, NUMBERS, TEXT, TEXTS, Message

EXTERNAL = 1  # a TensorProto's data_location


def one_name(domain):
    """ONNX's own operators have a domain of two names."""
    return "" if domain == "ai.onnx" else domain


class Tensor(NamedTuple):
    """As a TensorProto; `floats` and `doubles` are views of bytes, `data` all of its."""
    data: memoryview
    dims: Any
    type: int
    floats: Any
    int32s: Any
    int64s: Any
    name: str
    raw: memoryview | None
    doubles: Any
    location: int


class SparseTensor:
    __slots__ = "data", "dims", "indices", "values"

    def __init__(self, values):
        self.data, found, at, self.dims = values
        self.values, self.indices = (TENSOR.read(b"") if t is None else t for t in (found, at))


class Value(NamedTuple):
    """A ValueInfoProto."""
    data: memoryview
    name: str
    type: Any


class Type(NamedTuple):
    """A TypeProto, which has one of these."""
    data: memoryview
    tensor: Any
    sequence: Any
    map: memoryview | None
    opaque: memoryview | None
    sparse: memoryview | None
    optional: memoryview | None


class TensorType(NamedTuple):
    data: memoryview
    type: int
    shape: Any


class Sequence(NamedTuple):
    data: memoryview
    type: Any


class Shape(NamedTuple):
    data: memoryview
    dims: Any


class Dim(NamedTuple):
    """A dimension: its size as a sequence, which is empty where it has a name or nothing."""
    data: memoryview
    size: Any
    name: str


class Import(NamedTuple):
    data: memoryview
    domain: str
    version: int


class Attribute(NamedTuple):
    """As an AttributeProto; `ref` is the attribute of the function around it that it is."""
    data: memoryview
    name: str
    f: float
    i: int
    s: memoryview | None
    tensor: Tensor | None
    graph: Any
    floats: Any
    ints: Any
    graphs: Any
    type: int
    ref: str


class Operation:
    """A node. `op` is its operator with the domain, `key` these two. `reads` are the values that it takes, and those
    that graphs inside it take from outside; `graphs` are those that an attribute is, `nested` also those of lists."""
    __slots__ = "attributes", "data", "domain", "graphs", "inputs", "key", "name", "nested", "op", "outputs", "reads"

    def __init__(self, values):
        self.data, self.inputs, self.outputs, self.name, kind, self.attributes, domain = values
        self.domain = domain = one_name(domain)
        self.key, self.op = (domain, kind), f"{domain}.{kind}" if domain else kind
        self.graphs = [a.graph for a in self.attributes if a.graph is not None]
        self.nested = [*self.graphs, *(graph for a in self.attributes for graph in a.graphs)]
        self.reads = dict.fromkeys(self.inputs)
        self.reads.pop("", None)
        for graph in self.graphs:
            self.reads |= graph.captured

    def has_text(self):
        """Whether all its names are text."""
        return all(v.__class__ is str for v in (*self.key, self.name, *self.inputs, *self.outputs))


class Graph:
    """`results` are those that `outputs` name; `captured` has what it takes from outside as keys."""
    __slots__ = "captured", "data", "inputs", "nodes", "outputs", "results", "sparse", "tensors"

    def __init__(self, values):
        self.data, self.nodes, self.tensors, self.inputs, self.results, self.sparse = values
        self.outputs = [v.name for v in self.results]
        made = {v for node in self.nodes for v in node.outputs}
        made.update([v.name for v in self.inputs], [t.name for t in self.tensors])
        reads = [*(v for node in self.nodes for v in node.reads), *self.outputs]
        self.captured = dict.fromkeys(v for v in reads if v not in made)

    def all(self):
        """The graph and those inside its nodes."""
        yield self
        for node in self.nodes:
            for graph in node.nested:
                yield from graph.all()


class Function:
    """`names` are those of its attributes, `defaults` those of them that have one; `opset` None: that of the model."""
    __slots__ = "data", "defaults", "inputs", "key", "name", "names", "nodes", "opset", "outputs"

    def __init__(self, values):
        self.data, self.name, self.inputs, self.outputs, self.names, self.nodes, imports, domain, self.defaults = values
        self.key, self.opset = (one_name(domain), self.name), opset_of(imports)


def opset_of(imports):
    return next((i.version for i in imports if one_name(i.domain) == ""), None)


class Model:
    """A model: `opsets` by domain, of which `opset` is that of ONNX's own operators."""
    __slots__ = "data", "functions", "graph", "ir_version", "opset", "opsets"

    def __init__(self, values):
        self.data, self.ir_version, graph, imports, functions = values
        self.graph = GRAPH.read(b"") if graph is None else graph
        self.opsets, self.opset = {one_name(i.domain): i.version for i in imports}, opset_of(imports)
        self.functions = {f.key: f for f in functions}

    def outside(self):
        """The tensors whose data is in another file."""
        graphs = list(self.graph.all())
        nodes = [node for each in (*graphs, *self.functions.values()) for node in each.nodes]
        tensors = [t for graph in graphs for t in graph.tensors]
        tensors += [a.tensor for node in nodes for a in node.attributes if a.tensor is not None]
        return [t for t in tensors if t.location == EXTERNAL]


MODEL, GRAPH, FUNCTION, NODE, SPARSE = map(Message, (Model, Graph, Function, Operation, SparseTensor))
ATTRIBUTE, TENSOR, VALUE, IMPORT, TYPE, TENSOR_TYPE, SEQUENCE, SHAPE, DIM = (
    Message(each._make) for each in (Attribute, Tensor, Value, Import, Type, TensorType, Sequence, Shape, Dim))
MODEL.define([(1, INT), (7, MESSAGE, GRAPH), (8, MESSAGES, IMPORT), (25, MESSAGES, FUNCTION)])
GRAPH.define([(1, MESSAGES, NODE), (5, MESSAGES, TENSOR), (11, MESSAGES, VALUE), (12, MESSAGES, VALUE),
              (15, MESSAGES, SPARSE)])
FUNCTION.define([(1, TEXT), (4, TEXTS), (5, TEXTS), (6, TEXTS), (7, MESSAGES, NODE), (9, MESSAGES, IMPORT), (10, TEXT),
                 (11, MESSAGES, ATTRIBUTE)])
NODE.define([(1, TEXTS), (2, TEXTS), (3, TEXT), (4, TEXT), (5, MESSAGES, ATTRIBUTE), (7, TEXT)])
ATTRIBUTE.define([(1, TEXT), (2, FLOAT), (3, INT), (4, DATA), (5, MESSAGE, TENSOR), (6, MESSAGE, GRAPH), (7, NUMBERS),
                  (8, INTS), (11, MESSAGES, GRAPH), (20, INT), (21, TEXT)])
TENSOR.define([(1, INTS), (2, INT), (4, NUMBERS), (5, INTS), (7, INTS), (8, TEXT), (9, DATA), (10, NUMBERS),
               (14, INT)])
SPARSE.define([(1, MESSAGE, TENSOR), (2, MESSAGE, TENSOR), (3, INTS)])
VALUE.define([(1, TEXT), (2, MESSAGE, TYPE)])
TYPE.define([(1, MESSAGE, TENSOR_TYPE), (4, MESSAGE, SEQUENCE), (5, DATA), (7, DATA), (8, DATA), (9, DATA)])
TENSOR_TYPE.define([(1, INT), (2, MESSAGE, SHAPE)])
SEQUENCE.define([(1, MESSAGE, TYPE)])
SHAPE.define([(1, MESSAGES, DIM)])
DIM.define([(1, INTS), (2, TEXT)])
IMPORT.define([(1, TEXT), (2, INT)])
