"""Reads an ONNX model into a Graph, each operator in the form of the newest opset, so that nothing after the reader
knows of opsets."""

import functools
import sys
from typing import TYPE_CHECKING

import numpy as np

from ...._internal.lazy import LazyModule
from ...inference.shape_inference import infer_from
from ...ir.dtypes import BY_ONNX, ELEMENT_TYPES, FIELDS, from_onnx
from ...ir.errors import BadNode, DamagedFile, UnsupportedOperator
from ...ir.graph import Graph, Node, TensorInfo, Value, unique
from ...ir.graph_builder import GraphBuilder
from ...operators.registry import OPERATORS, READ, RECORDS, Absent, check_inputs
from .model_file import OPSETS, array_of, import_onnx, parse, read_outside
from .records import EXTERNAL, SPARSE, VALUES, Attribute, Function

if TYPE_CHECKING:
    from ...operators.contrib import nchwc
else:
    nchwc = LazyModule("fusedops.graph.operators.contrib.nchwc")

_FOUR_BITS = {21: np.uint8, 22: np.int8}  # what holds elements of UINT4 and INT4, which NumPy does not have
DEEPEST = 200  # functions that call functions, within the 1000 calls that Python nests
LARGEST = 1_000_000  # nodes that are read, those of a function once for each call
_PLAIN = {t.onnx: t for t in ELEMENT_TYPES if t.field}  # whose elements are in files as NumPy has them
_OTHER_VALUES = "sequence_type", "map_type", "opaque_type", "sparse_tensor_type", "optional_type"
_FLOAT16, _BFLOAT16, _FLOATS = 10, 16, {1, 10, 11, 16}  # TensorProto's numbers


def read_onnx(model):
    """The Graph of an ONNX file (a path, or opened as binary), or of a model in memory (bytes or an onnx.ModelProto).

    Raises
    ------
    DamagedFile
        Not an ONNX model, or a damaged one.
    UnsupportedOperator
        An opset that is too old; operators that fusedops does not have, all of them named.
    OSError
        The file, or one with its weights, cannot be read.
    """
    found, opset, upgraded, files = parse(model)
    graph = _Reader(_Library(found, opset, files), found.graph, upgraded).graph
    graph.metadata = found.metadata
    return graph


def _reason(op):
    """Why an operator is left out, where that is known: for it, or for its whole domain."""
    record = RECORDS.get(op, RECORDS.get(op.rpartition(".")[0] + ".*"))
    return f", {record.why}" if isinstance(record, Absent) else ""


def _is_number(dtype):
    """Whether NumPy itself has the type; what onnx adds to it may say that it is a float."""
    return dtype.kind in "fiub" and dtype.type.__module__ == "numpy"


def _ordered(nodes, wanted):
    """The nodes that the wanted values need, each after those that it reads, and else in their order in the file."""
    makers = {}
    for i, node in enumerate(nodes):
        for v in node.outputs:
            if v and makers.setdefault(v, i) != i:
                raise DamagedFile(f"the model is damaged: two nodes make {v!r}")
    if any(makers.get(v, -1) >= i for i, node in enumerate(nodes) for v in node.reads):
        return [nodes[i] for i in _sorted(nodes, makers, wanted)]
    live, kept = set(wanted), []
    for node in reversed(nodes):
        if not live.isdisjoint(node.outputs):
            live.update(node.reads)
            kept.append(node)
    return kept[::-1]


def _sorted(nodes, makers, wanted):
    """The order of the nodes that the wanted values need, in a file that has them in any."""
    needed, front = set(), [makers[v] for v in wanted if v in makers]
    before = {}
    while front:
        i = front.pop()
        if i not in needed:
            needed.add(i)
            before[i] = [makers[v] for v in nodes[i].reads if v in makers]
            front += before[i]
    order, state = [], {}  # state: 1 while what a node needs is being visited, 2 when it is placed
    for first in sorted(needed):
        stack = [first]
        while stack:
            i = stack[-1]
            state.setdefault(i, 1)
            waiting = [j for j in before[i] if j not in state]
            if any(state.get(j) == 1 for j in before[i]):
                raise DamagedFile(
                    f"the model is damaged: node {nodes[i].name!r} ({nodes[i].key[1]}) reads what depends on its own "
                    f"result"
                )
            if waiting:
                stack.append(waiting[0])
            else:
                stack.pop()
                if state[i] == 1:
                    order.append(i)
                state[i] = 2
    return order


class _Library:
    """What operators mean in this model: its opsets, its own functions, and those that ONNX gives operators."""

    def __init__(self, model, opset, files):
        self.defaults = not 0 < model.ir_version < 4  # older files have to list every weight as an input
        self.files, self.opset, self.domains = files, opset, model.opsets | {"": opset}
        self.functions, unknown, self.orders, self.graph = model.functions, {}, {}, model.graph
        self.int4_constants = {}  # constants of 4 bits by their ids
        self.nodes_read = 0
        self._collect(model.graph, opset, unknown, set())
        if unknown:
            listed = "; ".join(
                f"{op} ({', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}){_reason(op)}"
                for op, names in sorted(unknown.items())
            )
            raise UnsupportedOperator(
                f"the model (opset {opset}) has operators that fusedops does not have: {listed}; "
                "export it without them, or give it a function of that name (onnx.FunctionProto) for each",
                tuple(sorted(unknown)),
            )

    def ordered(self, graph, wanted):
        """As _ordered; what a graph's outputs need is found once."""
        key = graph, tuple(wanted)
        if key not in self.orders:
            self.orders[key] = _ordered(graph.nodes, wanted)
        return self.orders[key]

    def _collect(self, graph, opset, unknown, seen, depth=0):
        if depth > DEEPEST:
            raise DamagedFile(f"the model is damaged: functions call each other {depth} deep")
        known = set()  # operators of nodes before
        for i, node in enumerate(self.ordered(graph, graph.outputs)):
            for inner in node.graphs:
                self._collect(inner, opset, unknown, seen, depth)
            if node.key in known:
                continue
            function = self.functions.get(node.key)
            if function is not None:
                if node.key not in seen:
                    seen.add(node.key)
                    self._collect(function, self.opset_of(function), unknown, seen, depth + 1)
            elif self._is_known(node, opset):
                known.add(node.key)
            else:
                unknown.setdefault(node.op, []).append(node.name or f"#{i}")

    @functools.cached_property
    def onnx(self):
        """The onnx package, where a model has what it alone knows."""
        return import_onnx()

    @functools.cached_property
    def channel_block(self):
        """See nchwc: nodes and shapes of the whole file say it."""
        graphs = list(self.graph.all())
        nodes = [n for g in graphs for n in g.nodes if n.domain == nchwc.DOMAIN]
        shapes = {name: tuple(t.dims) for g in graphs for name, t in g.tensors}
        described = [(n.key[1], n.inputs, n.outputs, {a.name: a.value for a in n.attributes}) for n in nodes]
        return nchwc.block_of(described, shapes)

    def opset_of(self, function):
        return self.opset if function.opset is None else function.opset

    def _is_known(self, node, opset):
        if node.op in READ:
            return opset <= OPSETS[-1] or node.domain or not self._changed(node.op, opset)
        return self._schema(node, opset) is not None

    def _changed(self, op, opset):
        """Whether an opset that is newer than those known here defines the operator anew."""
        return self.onnx.defs.has(op, opset, "") and self.onnx.defs.get_schema(op, opset).since_version > OPSETS[-1]

    def _schema(self, node, opset):
        """The schema of an operator that ONNX defines by a function, or None."""
        domain, op = node.key
        version = opset if domain == "" else self.domains.get(domain, 1)
        if not self.onnx.defs.has(op, version, domain):
            return None
        schema = self.onnx.defs.get_schema(op, version, domain)
        return schema if schema.has_function or schema.has_context_dependent_function else None

    def function(self, node, given, opset, types):
        """(the function that a node without a record calls, the defaults of its attributes). `given` are the node's
        attributes; `types` gives the (type of elements, shape) of each input, as far as they are known."""
        function = self.functions.get(node.key)
        if function is not None:
            return function, dict.fromkeys(function.names) | {a.name: a for a in function.defaults}
        schema = self._schema(node, opset)
        if schema is None:
            raise UnsupportedOperator(
                f"the model (opset {opset}) has an operator that fusedops does not have: "
                f"{node.op} ({node.name}){_reason(node.op)}"
            )
        defaults = {
            name: Attribute(a.default_value, []) for name, a in schema.attributes.items() if a.default_value.name
        }
        return self._body(schema, node, given, opset, types), dict.fromkeys(schema.attributes) | defaults

    def _body(self, schema, node, given, opset, types):
        """The function of an operator; one that depends on the node is made for attributes that refer to nothing
        outside."""
        onnx = self.onnx
        domain, op = node.key
        if schema.has_function:
            at = [v for v in schema.function_opset_versions if v <= opset]
            data = schema.get_function_with_opset_version(at[-1]) if at else schema.function_body.SerializeToString()
        else:
            at = [
                v for v in schema.context_dependent_function_opset_versions if v <= opset
            ] or schema.context_dependent_function_opset_versions
            make = onnx.helper.make_tensor_type_proto
            kinds = [
                make(onnx.helper.np_dtype_to_tensor_dtype(t[0]), t[1]) if t and t[0] is not None else onnx.TypeProto()
                for t in types()
            ]
            plain = onnx.NodeProto(op_type=op, domain=domain, input=node.inputs, output=node.outputs)
            for name, a in given.items():
                plain.attribute.append(onnx.AttributeProto.FromString(a.proto.SerializeToString()))
                plain.attribute[-1].name = name
            data = schema.get_context_dependent_function_with_opset_version(
                at[-1], plain.SerializeToString(), [k.SerializeToString() for k in kinds]
            )
        function = Function(onnx.FunctionProto.FromString(data), [])
        if not function.nodes:
            raise UnsupportedOperator(
                f"{op} {node.name!r} needs inputs whose sizes the model says: export it with "
                "fixed sizes, or run onnx.shape_inference on it"
            )
        return function


class _Reader(GraphBuilder):
    """`scope` has the graph's value of each name of the file; a graph inside a node takes what it lacks from the
    `outer` reader."""

    def __init__(self, library, graph, upgraded=False, outer=None):
        self.library, self.outer, self.depth = library, outer, 0
        taken = dict.fromkeys([v for n in graph.nodes for v in (*n.inputs, *n.outputs)], 0)
        taken |= dict.fromkeys([*(v.name for v in graph.inputs), *(name for name, _ in graph.tensors)], 0)
        constants = {name: self.array(t) for name, t in graph.tensors}
        constants |= {t.values.name: self.sparse_array(t) for t in graph.sparse}
        inputs = [self.value(i) for i in graph.inputs if i.name not in constants]
        if "" in (*graph.outputs, *(i.name for i in inputs)):
            raise DamagedFile("the model is damaged: an input or output of a graph has no name")
        opset = library.opset if outer is None else outer.opset
        super().__init__(Graph([], constants, inputs, [], [], opset), upgraded, taken, infer_from)
        types = {t.data_type for _, t in graph.tensors if len(t.dims) > 1}
        if types & _FLOATS == {_BFLOAT16}:
            self.graph.precision = "bfloat16"
        if library.defaults:
            self.graph.defaults = [self.value(i) for i in graph.inputs if i.name in constants]
        self.scope = {"": ""} | {name: name for name in (*constants, *(i.name for i in inputs))}
        self.types |= {i.name: i.dtype for i in inputs}
        self.captured = []  # values of the outer graph, in the order of the inputs that they became
        self.given = {}  # attributes of the function that is being read
        self.nodes(graph, graph.outputs, lambda v: v)
        self.graph.results = [self.resolve(v, "its output") for v in graph.outputs]
        self.graph.outputs = [
            self.value(o, self.types.get(v, self.dtype(v)))
            for o, v in zip(graph.results, self.graph.results, strict=True)
        ]

    # ---- values

    def array(self, tensor):
        try:
            if min(tensor.dims, default=0) < 0:
                raise ValueError(f"its shape is {tuple(tensor.dims)}")
            if tensor.data_type in _PLAIN and sys.byteorder == "little":
                return self.plain_array(tensor, _PLAIN[tensor.data_type])
            a = self.other_array(tensor)
        except (ValueError, TypeError, KeyError, OverflowError, RuntimeError) as e:
            raise DamagedFile(f"the model is damaged: the data of tensor {tensor.name!r} cannot be read: {e}") from None
        if tensor.data_type in _FOUR_BITS:
            a = a.astype(_FOUR_BITS[tensor.data_type])
            self.library.int4_constants[id(a)] = a
        if not _is_number(a.dtype):
            raise UnsupportedOperator(
                f"tensor {tensor.name!r} has elements of type {a.dtype}, which are not numbers of NumPy"
            )
        return a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("="))

    def plain_array(self, tensor, kind):
        """The array of elements that files have as NumPy has them."""
        if tensor.data_location == EXTERNAL:
            return read_outside(tensor, self.library.files, kind.dtype)
        if tensor.raw_data:
            return array_of(tensor.raw_data, kind.dtype, tuple(tensor.dims))
        data = np.array(getattr(tensor, kind.field), FIELDS[kind.field]).astype(kind.dtype, copy=False)
        return data.reshape(tuple(tensor.dims))

    def other_array(self, tensor):
        """The array of elements that NumPy has in another way, or not at all."""
        outside = tensor.data_location == EXTERNAL
        raw = read_outside(tensor, self.library.files) if outside else tensor.raw_data
        if tensor.data_type in (_FLOAT16, _BFLOAT16):
            if raw and tensor.data_type == _FLOAT16:
                return array_of(memoryview(raw), np.dtype("<f2"), tuple(tensor.dims))
            bits = np.frombuffer(raw, "<u2") if raw else np.array(tensor.int32_data, np.int32)
            if tensor.data_type == _FLOAT16:
                return bits.astype(np.uint16).view(np.float16).reshape(tuple(tensor.dims))
            return (bits.astype(np.uint32) << 16).view(np.float32).reshape(tuple(tensor.dims))
        onnx = self.library.onnx
        plain = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=bytes(raw))
        inside = raw or isinstance(tensor, onnx.TensorProto)
        given = (plain if raw else tensor) if inside else onnx.TensorProto.FromString(tensor.SerializeToString())
        return onnx.numpy_helper.to_array(given)

    def sparse_array(self, tensor):
        """A tensor of which a file has the elements that are not zero."""
        found, at = self.array(tensor.values), self.array(tensor.indices)
        dense = np.zeros(tuple(tensor.dims), found.dtype)
        try:
            if at.ndim == 1:
                dense.reshape(-1)[at] = found
            else:
                dense[tuple(at.T)] = found
        except (IndexError, ValueError) as e:
            raise DamagedFile(
                f"the model is damaged: the sparse tensor {tensor.values.name!r} cannot be read: {e}"
            ) from None
        return dense

    def value(self, info, dtype=None):
        """An input or output; `dtype` where the file need not say it."""
        if info.type.HasField("sequence_type") and info.type.sequence_type.elem_type.HasField("tensor_type"):
            inner = self.value_type(info.type.sequence_type.elem_type.tensor_type.elem_type)
            return Value(info.name, None, np.dtype(object), f"sequence({inner})")
        if not info.type.HasField("tensor_type"):
            if not any(map(info.type.HasField, _OTHER_VALUES)) and (dtype is not None or self.outer is not None):
                return Value(info.name, None, dtype)
            raise UnsupportedOperator(f"{info.name!r} is not a tensor: maps and optional values are not supported")
        t = info.type.tensor_type
        try:
            if t.elem_type in BY_ONNX:
                dtype = from_onnx(t.elem_type)
            elif t.elem_type or dtype is None:
                dtype = np.dtype(self.library.onnx.helper.tensor_dtype_to_np_dtype(t.elem_type))
        except (KeyError, ValueError):
            raise DamagedFile(f"the model is damaged: {info.name!r} has no known type of elements") from None
        if not _is_number(dtype):
            raise UnsupportedOperator(f"{info.name!r} has elements of type {dtype}, which are not numbers of NumPy")
        shape = None
        if t.HasField("shape"):
            shape = tuple(
                d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or f"{info.name}.{i}"
                for i, d in enumerate(t.shape.dim)
            )
        return Value(info.name, shape, dtype, "bfloat16" if t.elem_type == _BFLOAT16 else "")

    def value_type(self, number):
        """The name of a type of elements."""
        if number == _BFLOAT16:
            return "bfloat16"
        return from_onnx(number).name if number in BY_ONNX else "unknown"

    def channel_block(self):
        return self.library.channel_block

    def has_int4(self, value):
        return id(self.graph.constants.get(value)) in self.library.int4_constants

    def resolve(self, name, reader):
        """The value of a name of the file."""
        if name not in self.scope and self.outer is not None:
            outside = self.outer.resolve(name, reader)
            self.scope[name] = self.fresh(name)
            if outside in self.outer.graph.constants:
                self.graph.constants[self.scope[name]] = self.outer.graph.constants[outside]
            else:
                self.types[self.scope[name]] = self.outer.dtype(outside)
                self.graph.inputs.append(Value(self.scope[name], None, self.outer.dtype(outside)))
                self.captured.append(outside)
                self.graph.captures += 1
        if name not in self.scope:
            raise DamagedFile(
                f"the model is damaged: {reader} reads {name!r}, which nothing makes"
                if reader != "its output"
                else f"the model is damaged: nothing makes its output {name!r}"
            )
        return self.scope[name]

    def add(self, node):
        super().add(node)
        record = OPERATORS[node.op]
        check_inputs(node)
        inputs = [TensorInfo((), self.dtype(v)) if v else None for v in node.inputs]
        for i, v in enumerate(node.outputs):
            self.types[v] = record.inference.dtype(node, inputs, i)

    # ---- nodes

    def nodes(self, graph, outputs, named):
        """Reads the nodes that the outputs of a graph or function need; `named` makes the name of a value from that
        in the file."""
        operations = self.library.ordered(graph, outputs)
        used = set(outputs).union(*(each.reads for each in operations))
        for i, each in enumerate(operations):
            name = unique(each.name or f"{each.key[1]}_{i}", self.names)
            scope = self.scope
            inputs = [scope[v] if v in scope else self.resolve(v, f"node {name!r}") for v in each.inputs]
            made = [v if v in used or not j else "" for j, v in enumerate(each.outputs)]
            results = [named(v) if v else "" for v in made]
            scope.update(zip(made, results, strict=True))
            try:
                self.read(each, name, inputs, results)
            except (BadNode, IndexError) as e:  # of an input that is not there
                raise DamagedFile(
                    f"the model is damaged: node {name!r} ({each.key[1]}) lacks or misuses an input or attribute: {e}"
                ) from e

    def read(self, operation, name, inputs, outputs):
        self.library.nodes_read += 1
        if self.library.nodes_read > LARGEST:
            raise ValueError(f"the model is damaged: its functions call each other for more than {LARGEST} nodes")
        while inputs and not inputs[-1]:
            inputs.pop()
        while (
            len(outputs) > 1 and not outputs[-1] and operation.key[1] != "Split"
        ):  # whose parts are as many as its outputs
            outputs.pop()
        given = self.attributes_of(operation)
        if operation.key in self.library.functions or operation.op not in READ:
            function, defaults = self.library.function(
                operation, given, self.opset, lambda: [(self.dtype(v), self.shape(v)) if v else None for v in inputs]
            )
            return self.call(function, name, inputs, outputs, defaults | given)
        attrs = {}
        for key, a in given.items():
            if a.graph is not None:
                inner = _Reader(self.library, a.graph, outer=self)
                attrs[key] = inner.graph
                inputs += inner.captured
            else:
                attrs[key] = self.attribute(a)
        READ[operation.op](self, Node(operation.op, name, inputs, outputs, attrs))

    def attributes_of(self, operation):
        """The attributes of a node by name; one that refers to an attribute of the function around it is that."""
        if not operation.attributes:
            return {}
        found = {a.name: self.given.get(a.ref) if a.ref else a for a in operation.attributes}
        return {name: a for name, a in found.items() if a is not None} if None in found.values() else found

    def call(self, function, name, inputs, outputs, given):
        """Reads the nodes of a function in the place of the node that calls it."""
        if self.depth == DEEPEST:
            raise DamagedFile(f"the model is damaged: function {function.name!r} calls itself")
        before = self.scope, self.opset, self.given
        inner = {"": ""} | dict(zip(function.inputs, [*inputs, *[""] * len(function.inputs)], strict=False))
        results = dict(zip(function.outputs, outputs, strict=False))
        self.given = given
        self.scope, self.opset, self.depth = inner, self.library.opset_of(function), self.depth + 1
        wanted = [v for v in function.outputs if results.get(v)]
        self.nodes(function, wanted, lambda v: results.get(v) or self.fresh(f"{name}.{v}"))
        passed = [(v, inner[v]) for v in wanted if inner[v] != results[v]]
        (self.scope, self.opset, self.given), self.depth = before, self.depth - 1
        for v, source in passed:  # an output that is an input
            self.add(Node("Identity", unique(f"{name}.{v}", self.names), [source], [results[v]]))

    def attribute(self, a):
        if a.type in VALUES:
            return a.value
        if a.is_tensor:
            return self.array(a.proto.t)
        if a.type == SPARSE:
            return self.sparse_array(a.proto.sparse_tensor)
        what = f"type {a.type}, which no operator here takes" if a.type else "no type"
        raise DamagedFile(f"the model is damaged: attribute {a.name!r} has {what}")
