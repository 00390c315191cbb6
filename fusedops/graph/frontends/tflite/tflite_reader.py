"""Reads a TFLite model into a Graph of ONNX's operators.

Images of TFLite have their channels last. A convolution's result is kept with its channels first, as the graph has
images, and each value gets its other form, a view, where something asks for it: networks of images have no
transposition but at their ends. Quantized tensors are DequantizeLinear of integers, and their results QuantizeLinear,
of which the passes make layers of int8.
"""

import contextlib
import platform

import numpy as np

from ...inference.shape_inference import infer_from, infer_node
from ...ir.dtypes import to_onnx
from ...ir.errors import BadNode, DamagedFile, InvalidArgument, UnsupportedOperator
from ...ir.graph import Graph, Node, TensorInfo, Value, constant, unique
from ...ir.graph_builder import GraphBuilder
from .builtins import BUILTINS, complex_ops, why_absent
from .call import FIRST, LAST, Call, Held
from .flat_model import names_of, parse, schema_errors

OPSET = 23
UNSIGNED = platform.machine().lower() in ("x86_64", "amd64", "i686")
DEEPEST = 64  # subgraphs that call subgraphs
LARGEST = 200_000  # operators that are read, those of a subgraph once for each call
SMALL = 1 << 20  # elements of a value that is computed here, where constants alone make it


def read_tflite(model, signature=None):
    """The Graph of a TFLite file (a path, or opened as binary), or of one in memory (bytes); `signature` is the one to
    read, where it is not the first subgraph.

    Raises
    ------
    DamagedFile
        Not a TFLite model, or a damaged one.
    UnsupportedOperator
        Operators that fusedops does not have, all of them named.
    InvalidArgument
        The file has no such signature.
    OSError
        The file cannot be read.
    """
    found = parse(model)
    _refuse_unknown(found)
    graph = TfliteReader(found).main(_subgraph_of(found, signature))
    graph.metadata = found.metadata
    return graph


def _subgraph_of(model, signature):
    """The number of a signature's subgraph."""
    if signature is None:
        return 0
    numbers = {key: i for i, (key, _, _) in model.signatures.items()}
    if signature not in numbers:
        has = f"its signatures are {', '.join(numbers)}" if numbers else "it has no signatures"
        raise InvalidArgument(f"the model has no signature {signature!r}: {has}")
    return numbers[signature]


def _are_constants(node, inputs, found):
    """Whether results are to be constants: known, and not much larger than what they follow from."""
    if node.op == "DequantizeLinear" or not found or any(k.data is None for k in found.values()):
        return False
    return sum(k.data.size for k in found.values()) <= max(
        [SMALL, *(i.data.size for i in inputs if i and i.data is not None)]
    )


def _refuse_unknown(model):
    """One error for all operators that have no reader, with the tensors that they make."""
    unknown = {}
    for graph in model.subgraphs:
        for operation in graph.operations:
            if operation.kind not in BUILTINS:
                made = next((graph.tensors[i].name for i in operation.outputs if i >= 0), "nothing")
                unknown.setdefault(operation.kind, []).append(made)
    if unknown:
        listed = "; ".join(
            f"{kind} ({', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}){_why(kind)}"
            for kind, names in sorted(unknown.items())
        )
        raise UnsupportedOperator(
            f"the model has operators that fusedops does not have: {listed}; convert it without them, or compute them "
            f"before or after the network",
            tuple(sorted(unknown)),
        )


def _why(kind):
    flex = ": an operator of TensorFlow itself, convert with builtin operators alone" if kind[1:5] == "Flex" else ""
    return f", {why_absent(kind)}" if why_absent(kind) else flex


class TfliteReader(GraphBuilder):
    """`scope` has the Held of each tensor of the subgraph that is read; `states` the variables by their keys: (value at
    first, value now)."""

    def __init__(self, model, counter=None):
        super().__init__(Graph([], {}, [], [], [], OPSET), False, {}, infer_from)
        self.model, self.tflite, self.infos, self.scope = model, model.tflite, {}, {}
        self.states, self.depth, self.counter, self.nested = {}, 0, counter or [0], counter is not None
        # resources: first values and tensors by their keys, and the states that they are
        self.variables, self.resources, self.initial, self.called_once = {}, {}, False, set()
        self.single = len(model.subgraphs) == 1
        self.activations = names_of(self.tflite.ActivationFunctionType)
        self.padding = names_of(self.tflite.Padding)

    # ---- the network

    def main(self, number=0):
        graph = self.model.subgraphs[number]
        _, inputs, outputs = self.model.signatures.get(number, ("", {}, {}))
        given = [self.input(graph.tensors[i], inputs.get(i), i) for i in graph.inputs]
        results = self.subgraph(number, given)
        for i, held in zip(graph.outputs, results, strict=True):
            value = self.value(held, real=False)
            self.graph.results.append(value)
            name = outputs.get(i) or held.tensor.name
            self.graph.outputs.append(self.described(name, value, held))
        for key, (first, now) in self.states.items():
            name = next(v.name for v in self.graph.inputs if v.name == key)
            self.graph.states.append(first)
            self.graph.results.append(now)
            self.graph.outputs.append(Value(f"{name}.next", first.shape, first.dtype))
        self.graph.inputs.sort(key=lambda v: v.name in self.states)  # variables are the last
        return self.graph

    def input(self, tensor, name, i):
        if tensor.dtype is None:
            raise UnsupportedOperator(
                f"input {tensor.name!r} has elements of type {tensor.kind}, which are not numbers of NumPy"
            )
        name = self.fresh(name or tensor.name)
        shape = tensor.shape and tuple(n if n >= 0 else f"{name}.{a}" for a, n in enumerate(tensor.shape))
        return self.add_input(tensor, name, () if shape is None else shape)

    def add_input(self, tensor, name, shape):
        """A new input of the graph as a Held."""
        self.graph.inputs.append(Value(name, shape, tensor.dtype))
        self.types[name] = tensor.dtype
        if shape is not None and all(isinstance(n, int) for n in shape):
            self.infos[name] = TensorInfo(shape, tensor.dtype)
        return Held(tensor, name)

    def described(self, name, value, held):
        info = self.infos.get(value)
        shape = None if info is None else tuple(map(int, info.shape))
        if shape is None and held.tensor.shape is not None:
            shape = tuple(n if n >= 0 else f"{name}.{i}" for i, n in enumerate(held.tensor.shape))
        return Value(name, shape, held.tensor.dtype if info is None else info.dtype)

    # ---- subgraphs

    def child(self):
        """The reader of a graph inside a node."""
        child = TfliteReader(self.model, self.counter)
        child.depth, child.at = self.depth, self.at
        return child

    def formal(self, outer, held, constant=True, shape=True):
        """(the Held here of one of the reader around, its value there, "" where it is a constant here). `constant`:
        whether it may be; `shape`: whether it has the shape that it has there."""
        if held.handle is not None and not held.forms:
            raise UnsupportedOperator(f"{outer.at!r} hands a variable to a loop or branch: fusedops does not have that")
        value, tensor, a = outer.value(held, real=False), held.tensor, outer.array(held)
        if constant and a is not None and a.size <= SMALL:
            return Held(tensor, self.constant(tensor.name, a, a.dtype)), ""
        tensor = tensor if shape else tensor._replace(shape=None)
        name, info = self.fresh(tensor.name), outer.info(value)
        found = self.add_input(tensor, name, None)
        if info is not None and shape:
            self.infos[name] = TensorInfo(tuple(info.shape), info.dtype)
        return found, value

    def finish(self, results, captures):
        """Ends a graph inside a node: its results, and how many of its inputs are captured."""
        if self.states:
            raise UnsupportedOperator("the network keeps a state inside a loop or branch: fusedops does not have that")
        self.graph.results, self.graph.captures = list(results), captures
        infos = [self.info(v) for v in results]
        self.graph.outputs = [
            Value(v, None, self.dtype(v) if info is None else info.dtype)
            for v, info in zip(results, infos, strict=True)
        ]

    def subgraph(self, i, given):
        """Reads the operators of a subgraph for the given Helds; returns those of its results."""
        if not 0 <= i < len(self.model.subgraphs):
            raise DamagedFile(f"the model is damaged: it calls subgraph {i} of {len(self.model.subgraphs)}")
        graph, outer = self.model.subgraphs[i], self.scope
        if self.depth == DEEPEST:
            raise DamagedFile(f"the model is damaged: its subgraphs call each other {DEEPEST} deep")
        if len(graph.inputs) != len(given):
            raise DamagedFile(
                f"the model is damaged: subgraph {i} takes {len(graph.inputs)} tensors and is given {len(given)}"
            )
        self.depth += 1
        self.scope = dict(zip(graph.inputs, given, strict=True))
        for operation in graph.operations:
            self.operation(graph, operation)
        results = [self.held(graph, v, "its output") for v in graph.outputs]
        self.scope, self.depth = outer, self.depth - 1
        return results

    def held(self, graph, i, reader):
        """Returns what is held of a tensor that something reads."""
        if i < 0 and reader == "its output":
            raise DamagedFile("the model is damaged: nothing makes one of its outputs")
        if i < 0:
            return None
        if i not in self.scope:
            tensor = graph.tensors[i]
            data, empty = tensor.data, min(tensor.shape or (1,)) == 0
            if data is None and empty and tensor.dtype is not None:  # files keep nothing of it
                data = np.zeros(tensor.shape, tensor.dtype)
            if data is not None:
                self.scope[i] = Held(tensor, self.constant(tensor.name, data, data.dtype))
            elif tensor.variable:
                self.scope[i] = self.variable(tensor, i)
            else:
                raise DamagedFile(f"the model is damaged: {reader} reads tensor {tensor.name!r}, which nothing makes")
        return self.scope[i]

    def operation(self, graph, operation):
        self.counter[0] += 1
        if self.counter[0] > LARGEST:
            raise DamagedFile(f"the model is damaged: its subgraphs call each other more than {LARGEST} operators")
        made = [graph.tensors[i] for i in operation.outputs if i >= 0]
        name = (made[0].name if made else operation.kind).partition(";")[0] or operation.kind
        self.at = name
        inputs = [self.held(graph, i, f"{operation.kind} {name!r}") for i in operation.inputs]
        outputs = [self.made(graph, i) if i >= 0 else None for i in operation.outputs]
        op = Call(self, operation, name, inputs, outputs)
        if any(h and h.tensor.kind == "COMPLEX64" for h in inputs) and operation.kind not in complex_ops.READERS:
            raise op.error("it takes complex numbers, of which fusedops has the parts and the magnitude alone")
        self.read(op)
        self.scope |= {i: held for i, held in zip(operation.outputs, op.outputs, strict=True) if i >= 0}

    def read(self, op):
        """Adds what an operator is in the graph."""
        try:
            with schema_errors():
                BUILTINS[op.kind].read(self, op)
        except BadNode as e:
            raise DamagedFile(
                f"the model is damaged: {op.kind} {op.name!r} lacks or misuses an input or option: {e}"
            ) from e

    def made(self, graph, i):
        """The Held of a tensor that an operator makes. One of int8 inside the network is kept as uint8, with a zero
        point 128 above, where the processor's products take those."""
        tensor = graph.tensors[i]
        q = tensor.quantization
        if UNSIGNED and self.single and tensor.dtype == np.int8 and q is not None and i not in graph.outputs:
            return Held(tensor._replace(dtype=np.dtype(np.uint8), quantization=q._replace(zero=q.zero + 128)), raw=128)
        return Held(tensor)

    # ---- variables

    def variable(self, tensor, i):
        """A variable tensor, which keeps from call to call what operators write into it; at first zeros."""
        if self.nested:
            raise UnsupportedOperator(
                f"tensor {tensor.name!r} keeps a state inside a loop or branch: fusedops does not have that"
            )
        if tensor.dtype is None or tensor.shape is None or min(tensor.shape, default=0) < 0:
            raise DamagedFile(f"the model is damaged: variable {tensor.name!r} has no fixed shape, or no numbers")
        zero = tensor.quantization.zero[0] if tensor.dtype == np.int8 and tensor.quantization else 0
        held = self.state(tensor, tensor.name, np.full(tensor.shape, zero, tensor.dtype))
        return held

    def state(self, tensor, name, first):
        """A Held of a new state with the value that it has at first; its handle is its key."""
        name = self.fresh(name)
        held = self.add_input(tensor._replace(dtype=first.dtype), name, first.shape)
        self.states[name] = first, name
        held.handle = name
        return held

    def write(self, key, value):
        """Lets a state have a value of the graph from here on."""
        first, _ = self.states[key]
        info = self.infos.get(value)
        if info is not None and (tuple(info.shape), info.dtype) != (first.shape, first.dtype):
            raise UnsupportedOperator(
                f"variable {key!r} of {first.dtype} {first.shape} is assigned {info.dtype} {tuple(info.shape)}: "
                f"fusedops keeps variables of one shape"
            )
        self.states[key] = first, value

    # ---- forms of a tensor

    def value(self, held, first=False, real=True):
        """The value of a tensor: with its channels `first` or last, as real numbers or as they are stored."""
        real = real and held.quantization is not None
        if (first, real) not in held.forms:
            if (not first, real) in held.forms:
                made = self.emit("Transpose", held.forms[not first, real], perm=FIRST if first else LAST)
            elif real:
                made = self.dequantized(self.value(held, first, False), held.quantization, first)
            elif (first, True) in held.forms or (not first, True) in held.forms:
                made = self.quantized(self.value(held, first), held, first)
            else:
                raise UnsupportedOperator(
                    f"tensor {held.tensor.name!r} holds no numbers: it is a variable's handle, or empty"
                )
            held.forms[first, real] = made
        return held.forms[first, real]

    def integers(self, held, first=False):
        """The value of a tensor as the file has its elements."""
        value = self.value(held, first, False)
        if not held.raw:
            return value
        wide = self.emit("Sub", self.cast(value, np.dtype(np.int32)), self.number(held.raw, np.int32))
        return self.cast(wide, np.dtype(np.int8))

    def dequantized(self, value, q, first):
        axis = FIRST.index(q.axis) if first and q.scale.size > 1 else q.axis
        given = self.quantization(q, self.infos[value].dtype if value in self.infos else self.dtype(value))
        return self.emit("DequantizeLinear", value, *given, axis=axis)

    def quantization(self, q, dtype):
        """Constants with the scales and zero points of a tensor."""
        scale, zero = (q.scale, q.zero) if q.scale.size > 1 else (q.scale[0], q.zero[0])
        return self.constant(f"{self.at}.scale", scale, np.float32), self.constant(f"{self.at}.zero", zero, dtype)

    def quantized(self, value, held, first):
        q = held.quantization
        axis = FIRST.index(q.axis) if first and q.scale.size > 1 else q.axis
        return self.emit("QuantizeLinear", value, *self.quantization(q, held.tensor.dtype), axis=axis)

    def put(self, held, value, first=False, real=True):
        """Lets a tensor be a value of the graph, which is quantized where the tensor is. Of 16 bits it stays in floats,
        rounded: these have kernels."""
        q = held.quantization
        if real and q is not None and held.tensor.dtype == np.int16 and q.scale.size == 1 and not q.zero.any():
            scale = self.number(q.scale[0])
            value = self.emit("Round", self.emit("Div", value, scale))
            value = self.emit("Activation", value, activation=("clip", -32768.0, 32767.0))
            value = self.emit("Mul", value, scale)
        elif real and q is not None:
            value, real = self.quantized(value, held, first), False
        held.forms, held.native = {(first, real and q is not None): value}, first

    def rank(self, held):
        """The number of a tensor's axes; None where it is not known."""
        sizes = self.sizes(held)
        return None if sizes is None else len(sizes)

    def sizes(self, held):
        """The shape of a tensor with its channels last: None for an axis that is open, or as a whole where nothing is
        known."""
        for (first, _), value in held.forms.items():
            if (info := self.info(value)) is not None:
                shape = tuple(map(int, info.shape))
                return tuple(shape[a] for a in LAST) if first else shape
        shape = held.tensor.shape
        return None if shape is None else tuple(n if n >= 0 and a else None for a, n in enumerate(shape))

    def fixed(self, held):
        """The shape of a tensor with its channels last; None where not all of it is known."""
        sizes = self.sizes(held)
        return None if sizes is None or None in sizes else sizes

    def array(self, held):
        """The data of a tensor as it is stored, where it is constant; else None."""
        if held is None:
            return None
        for (first, real), value in held.forms.items():
            if value in self.graph.constants and not real:
                a = self.graph.constants[value]
                return a.transpose(LAST) if first else a
        return None

    def real_array(self, held):
        """The data of a constant tensor as real numbers, or None."""
        a = self.array(held)
        q = None if held is None else held.quantization
        if a is None or q is None:
            return a.astype(np.float32) if a is not None and a.dtype == np.float16 else a
        each = [-1 if i == q.axis else 1 for i in range(a.ndim)] if q.scale.size > 1 else []
        return (a.astype(np.int64) - q.zero.reshape(each)).astype(np.float32) * q.scale.reshape(each)

    # ---- nodes

    def emit(self, op, *inputs, count=1, activation=None, **attrs):
        """Adds a node of the graph; ints and lists of them are constants. Returns its result, or `count` of them."""
        name = unique(self.at, self.names)
        inputs = [self.constant(f"{name}.{op}", v, np.int64) if not isinstance(v, str) else v for v in inputs]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = [self.fresh(name) for _ in range(count)]
        self.add(Node(op, name, inputs, list(outputs), attrs, activation=activation))
        return outputs if count > 1 else outputs[0]

    def add(self, node):
        """Adds a node, or its results where constants alone make them. DequantizeLinear stays: passes look for it."""
        inputs = [self.info(v) if v else None for v in node.inputs]
        known = all(i is not None or not v for i, v in zip(inputs, node.inputs, strict=True))
        found = self.inferred(node, inputs) if known else {}
        if _are_constants(node, inputs, found):
            self.graph.constants |= {v: np.ascontiguousarray(k.data).reshape(k.shape) for v, k in found.items()}
        else:
            found = {v: k._replace(data=None) for v, k in found.items()}
            super().add(node)
        self.infos |= found
        self.types |= {v: k.dtype for v, k in found.items()}

    def inferred(self, node, inputs):
        """Infers a node's results; {} if its inputs do not fit: the plan will say why."""
        if node.op == "DequantizeLinear":
            inputs = [inputs[0]._replace(data=None), *inputs[1:]]
        with contextlib.suppress(ArithmeticError, ValueError, MemoryError), np.errstate(all="ignore"):
            return infer_node(node, inputs)
        return {}

    def info(self, value):
        """Returns what is known of a value, with its data."""
        if value in self.graph.constants:
            return constant(self.graph.constants[value])
        return self.infos.get(value)

    def cast(self, value, dtype):
        """A value as elements of another type."""
        info = self.info(value)
        if info is not None and info.dtype == dtype:
            return value
        return self.emit("Cast", value, to=to_onnx(dtype))

    def number(self, value, like=np.float32):
        """A constant number as a value without axes."""
        return self.constant(f"{self.at}.number", value, like)
