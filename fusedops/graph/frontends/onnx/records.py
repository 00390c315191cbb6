"""An ONNX model as light records, made in one walk: Python's view of a message is slow to touch, and all who read a
model ask for the same few fields. What is rarely asked for stays in the message, `proto`.

`outside` is a list that takes up the tensors whose data is in another file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.graph import Metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

VALUES = {  # of attributes, by AttributeProto's numbers for the types that most have
    1: lambda a: a.f,
    2: lambda a: a.i,
    3: lambda a: a.s.decode("utf-8", "replace"),
    6: lambda a: list(a.floats),
    7: lambda a: list(a.ints),
    8: lambda a: [v.decode("utf-8", "replace") for v in a.strings],
}
TENSOR, SPARSE, EXTERNAL = 4, 11, 1  # AttributeProto's and TensorProto's numbers


def one_name(domain):
    """ONNX's own operators have a domain of two names."""
    return "" if domain == "ai.onnx" else domain


def _hold(outside, tensor):
    if tensor.data_location == EXTERNAL:
        outside.append(tensor)


class Attribute:
    """`value` where the type is one of VALUES; `ref` is the attribute of the function around it that it is."""

    __slots__ = "graph", "graphs", "is_tensor", "name", "proto", "ref", "type", "value"

    def __init__(self, proto, outside):
        self.proto, self.name, self.ref, self.type = proto, proto.name, proto.ref_attr_name, proto.type
        self.value, self.graph, self.is_tensor = None, None, self.type == TENSOR
        self.graphs: Sequence[Graph] = ()
        if self.type in VALUES:
            self.value = VALUES[self.type](proto)
        elif self.is_tensor:
            _hold(outside, proto.t)
        else:
            single = proto.HasField("g")
            self.graphs = [Graph(g, outside) for g in (*([proto.g] if single else ()), *proto.graphs)]
            self.graph = self.graphs[0] if single else None


class Operation:
    """A node. `op` is its operator with the domain, `key` these two. `reads` are the values that it takes, and those
    that graphs inside it take from outside."""

    __slots__ = "attributes", "domain", "graphs", "inputs", "key", "name", "nested", "op", "outputs", "reads"

    def __init__(self, proto, i, outside):
        self.name, self.domain, kind = proto.name, one_name(proto.domain), proto.op_type
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        self.attributes = [Attribute(a, outside) for a in proto.attribute]
        try:
            "".join((kind, self.domain, self.name, *self.inputs, *self.outputs, *[a.name for a in self.attributes]))
        except TypeError:
            raise ValueError(f"node {i} has a name that is not text") from None
        self.key, self.op = (self.domain, kind), f"{self.domain}.{kind}" if self.domain else kind
        self.nested = [graph for a in self.attributes if a.graphs for graph in a.graphs]
        self.graphs = [a.graph for a in self.attributes if a.graph] if self.nested else ()
        self.reads = dict.fromkeys(self.inputs)
        self.reads.pop("", None)
        for graph in self.graphs:
            self.reads |= graph.captured


class Graph:
    """`inputs` and `results` are messages, `outputs` the names of the results; `captured` has what it takes from
    outside as keys."""

    __slots__ = "captured", "inputs", "nodes", "outputs", "results", "sparse", "tensors"

    def __init__(self, proto, outside):
        self.inputs, self.results, self.sparse = list(proto.input), list(proto.output), list(proto.sparse_initializer)
        self.outputs, self.tensors = [v.name for v in self.results], [(t.name, t) for t in proto.initializer]
        for _, tensor in self.tensors:
            _hold(outside, tensor)
        self.nodes = [Operation(node, i, outside) for i, node in enumerate(proto.node)]
        made = set().union(*(node.outputs for node in self.nodes))
        made.update(v.name for v in self.inputs)
        made.update(name for name, _ in self.tensors)
        reads = [*(v for node in self.nodes for v in node.reads), *self.outputs]
        self.captured = dict.fromkeys(v for v in reads if v not in made)

    def all(self):
        """The graph and those inside its nodes."""
        yield self
        for node in self.nodes:
            for graph in node.nested or ():
                yield from graph.all()


class Function:
    """`names` are those of its attributes, `defaults` those of them that have one; `opset` None: that of the model."""

    __slots__ = "defaults", "inputs", "key", "name", "names", "nodes", "opset", "outputs"

    def __init__(self, proto, outside):
        self.name, self.key = proto.name, (one_name(proto.domain), proto.name)
        self.inputs, self.outputs, self.names = list(proto.input), list(proto.output), list(proto.attribute)
        self.defaults = [Attribute(a, outside) for a in proto.attribute_proto]
        self.opset = next((i.version for i in proto.opset_import if one_name(i.domain) == ""), None)
        self.nodes = [Operation(node, i, outside) for i, node in enumerate(proto.node)]


class Model:
    """A model: `opsets` by domain, of which `opset` is that of ONNX's own operators, and `outside`."""

    __slots__ = "functions", "graph", "ir_version", "metadata", "opset", "opsets", "outside"

    def __init__(self, proto, metadata=None):
        self.outside = []
        self.metadata = metadata or Metadata(
            proto.producer_name,
            proto.graph.name,
            proto.domain,
            proto.model_version,
            proto.doc_string,
            proto.graph.doc_string,
            {entry.key: entry.value for entry in proto.metadata_props},
        )
        self.ir_version, self.opsets = proto.ir_version, {one_name(i.domain): i.version for i in proto.opset_import}
        self.opset = next((i.version for i in proto.opset_import if one_name(i.domain) == ""), None)
        self.graph = Graph(proto.graph, self.outside)
        self.functions = {f.key: f for f in (Function(f, self.outside) for f in proto.functions)}
