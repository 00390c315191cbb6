"""Reads an ONNX model into a Graph, each operator in the form of the newest opset, so that nothing behind the reader knows of opsets."""
import contextlib
import os

import numpy as np

from .evaluate import CAST_TYPES, OPERATORS
from .ir import Graph, Node, Value, unique
from .shapes import REDUCTIONS

OPSETS = range(7, 22)


def read_onnx(model):
    """The Graph of an ONNX file (a path), or of a model in memory (bytes or an onnx.ModelProto).

    Raises
    ------
    ValueError
        Not an ONNX model, or a damaged one; an opset that is too old; operators that fusedops does not have, all of them named.
    """
    onnx = _import_onnx()
    proto = _parse(onnx, model)
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    opset = next((i.version for i in proto.opset_import if i.domain in ("", "ai.onnx")), None)
    if opset is None:
        raise ValueError("the model imports no operator set of ONNX: it is damaged, or made of another library's operators alone")
    upgraded = opset < OPSETS[0]
    if upgraded:
        proto, opset = _upgraded(onnx, proto, opset), OPSETS[0]
    _check_operators(onnx, proto.graph, opset)
    return _Reader(onnx, proto.graph, opset, upgraded).graph


def _import_onnx():
    try:
        import onnx
        import onnx.inliner
        import onnx.version_converter
    except ImportError:
        raise ImportError("reading ONNX models needs the onnx package: pip install 'fusedops[onnx]'") from None
    return onnx


def _parse(onnx, model):
    """A checked ModelProto."""
    path = None if isinstance(model, (bytes, bytearray, memoryview, onnx.ModelProto)) else os.fspath(model)
    what = "the model" if path is None else repr(path)
    with _one_error(onnx, what):
        if path is not None:
            proto = onnx.load(path, load_external_data=False)
        else:
            proto = model if isinstance(model, onnx.ModelProto) else onnx.load_model_from_string(bytes(model))
    outside = next((t.name for t in proto.graph.initializer if onnx.external_data_helper.uses_external_data(t)), None)
    if path is None and outside is not None:
        raise ValueError(f"the data of tensor {outside!r} lies in another file: load the model by its path")
    with _one_error(onnx, what):
        onnx.checker.check_model(proto if outside is None else path)  # a message ends at 2 GB, what lies beside it does not
        if path is not None:
            onnx.external_data_helper.load_external_data_for_model(proto, os.path.dirname(path))
    return proto


@contextlib.contextmanager
def _one_error(onnx, what):
    """What is wrong with a file comes as one kind of error, whatever the layer that found it."""
    from google.protobuf.message import DecodeError
    try:
        yield
    except (DecodeError, onnx.checker.ValidationError, ValueError, RuntimeError) as e:
        raise ValueError(f"{what} is not an ONNX model, or a damaged one: {str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__}") from None


def _upgraded(onnx, proto, opset):
    """A model of an opset that is older than those read here, as ONNX's own converter brings it up."""
    try:
        return onnx.version_converter.convert_version(proto, OPSETS[0])
    except (RuntimeError, ValueError, onnx.version_converter.ConvertError) as e:
        raise ValueError(f"the model has opset {opset}; fusedops reads {OPSETS[0]} to {OPSETS[-1]}, and ONNX cannot convert it: {e}") from None


def _check_operators(onnx, graph, opset):
    unknown = {}
    for i, node in enumerate(graph.node):
        name = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        if name not in READ or opset > OPSETS[-1] and _changed(onnx, name, opset):
            unknown.setdefault(name, []).append(node.name or f"#{i}")
    if unknown:
        listed = "; ".join(f"{op} ({', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''})" for op, names in sorted(unknown.items()))
        raise ValueError(f"the model (opset {opset}) has operators that fusedops does not have: {listed}")


def _changed(onnx, op, opset):
    """Whether a newer opset gave the operator another meaning. Up to 28 only Range has one, in 27; others took new types of elements."""
    return onnx.defs.get_schema(op, opset).since_version > (25 if op == "Range" else 28)


class _Reader:
    def __init__(self, onnx, proto, opset, upgraded):
        self.onnx, self.opset, self.upgraded, self.names = onnx, opset, upgraded, {}
        self.taken = dict.fromkeys([v for n in proto.node for v in (*n.input, *n.output)] + [v.name for v in (*proto.input, *proto.initializer)], 0)
        constants = {t.name: self.array(t) for t in proto.initializer}
        inputs = [self.value(i) for i in proto.input if i.name not in constants]
        outputs = [self.value(o) for o in proto.output]
        self.graph = Graph([], constants, inputs, outputs, [o.name for o in outputs], opset)
        known = {"", *constants, *(i.name for i in inputs)}
        for i, node in enumerate(proto.node):
            if not all(isinstance(v, str) for v in (node.name, *node.input, *node.output)):
                raise ValueError(f"the model is damaged: node {i} has a name that is no text")
            name = unique(node.name or f"{node.op_type}_{i}", self.names)
            missing = [v for v in node.input if v not in known]
            if missing:
                raise ValueError(f"the model is damaged: node {name!r} reads {missing[0]!r}, which nothing before it makes")
            try:
                self.read(node, name)
            except (KeyError, IndexError, TypeError, AttributeError) as e:
                raise ValueError(f"the model is damaged: node {name!r} ({node.op_type}) lacks or misuses an input or attribute: {e}") from e
            known.update(node.output)
        missing = [o.name for o in outputs if o.name not in known]
        if missing:
            raise ValueError(f"the model is damaged: nothing makes its output {missing[0]!r}")

    def array(self, tensor):
        if self.onnx.external_data_helper.uses_external_data(tensor):
            raise ValueError(f"the data of tensor {tensor.name!r} lies in another file: load the model by its path")
        try:
            a = self.onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError, RuntimeError) as e:
            raise ValueError(f"the model is damaged: the data of tensor {tensor.name!r} cannot be read: {e}") from None
        if a.dtype.kind not in "fiub":
            raise ValueError(f"tensor {tensor.name!r} has elements of type {a.dtype}, which are no numbers of NumPy")
        return a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("="))

    def value(self, info):
        if not info.type.HasField("tensor_type"):
            raise ValueError(f"{info.name!r} is not a tensor: sequences, maps and optional values are not supported")
        t = info.type.tensor_type
        try:
            dtype = np.dtype(self.onnx.helper.tensor_dtype_to_np_dtype(t.elem_type))
        except (KeyError, ValueError):
            raise ValueError(f"the model is damaged: {info.name!r} has no known type of elements") from None
        if dtype.kind not in "fiub":
            raise ValueError(f"{info.name!r} has elements of type {dtype}, which are no numbers of NumPy")
        shape = None
        if t.HasField("shape"):
            shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or f"{info.name}.{i}" for i, d in enumerate(t.shape.dim))
        return Value(info.name, shape, dtype)

    def fresh(self, name):
        return unique(name, self.taken)

    def constant(self, name, data, dtype=np.int64):
        name = self.fresh(name)
        self.graph.constants[name] = np.asarray(data, dtype)
        return name

    def read(self, proto, name):
        attrs = {a.name: self.attribute(a) for a in proto.attribute}
        inputs, outputs = list(proto.input), list(proto.output)
        while inputs and not inputs[-1]:
            inputs.pop()
        while len(outputs) > 1 and not outputs[-1]:
            outputs.pop()
        READ[proto.op_type](self, Node(proto.op_type, name, inputs, outputs, attrs))

    def attribute(self, a):
        value = self.onnx.helper.get_attribute_value(a)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, self.onnx.TensorProto):
            return self.array(value)
        if isinstance(value, (list, tuple)) or hasattr(value, "extend"):
            return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value]
        return value

    def add(self, node):
        self.graph.nodes.append(node)

    def as_input(self, node, attr, i):
        """Turns an attribute of an old opset into the constant input of a new one."""
        if attr in node.attrs:
            node.inputs += [""] * (i + 1 - len(node.inputs))
            node.inputs[i] = self.constant(f"{node.name}.{attr}", node.attrs.pop(attr))


def _plain(r, node):
    r.add(node)


def _activation(form):
    """Reader of an activation; `form` makes it from the node's attributes."""
    def read(r, node):
        r.add(Node("Activation", node.name, node.inputs[:1], node.outputs, {}, activation=form(node.attrs)))
    return read


def _constant(r, node):
    values = {"value": lambda v: v, "value_float": np.float32, "value_int": np.int64, "value_floats": lambda v: np.array(v, np.float32),
              "value_ints": lambda v: np.array(v, np.int64)}
    (kind, value), = node.attrs.items()
    if kind not in values:
        raise ValueError(f"constant {node.name!r} is of the kind {kind!r}, which fusedops does not have")
    r.graph.constants[node.output] = np.asarray(values[kind](value))


def _dropout(r, node):
    training = r.graph.constant(node, 2)
    if node.input(2) and (training is None or training):
        raise ValueError(f"dropout {node.name!r} is in training mode: export the network for inference (module.eval())")
    node.inputs = node.inputs[:1]
    r.add(node)


def _batch_norm(r, node):
    if node.attrs.get("spatial", 1) == 0:
        raise ValueError(f"batch norm {node.name!r} has spatial=0, one statistic a pixel, which fusedops does not have")
    if r.opset < 14 and len(node.outputs) > 1:
        raise ValueError(f"batch norm {node.name!r} is in training mode: export the network for inference (module.eval())")
    r.add(node)


def _clip(r, node):
    """Bounds that are constant make an activation; others stay an operator."""
    if r.opset < 11:
        lo, hi = node.attrs.get("min", -np.inf), node.attrs.get("max", np.inf)
    else:
        bounds = [r.graph.constant(node, i) for i in (1, 2)]
        floats = all(b is None or b.dtype == np.float32 and b.size == 1 for b in bounds)
        if not floats or any(b is None and node.input(i) for i, b in enumerate(bounds, 1)):
            return r.add(node)
        lo, hi = (b if b is None else b.item() for b in bounds)
        lo, hi = -np.inf if lo is None else lo, np.inf if hi is None else hi
    if not lo <= hi:
        bounds = [r.constant(f"{node.name}.bound", b, np.float32) for b in (lo, hi)]
        return r.add(Node("Clip", node.name, [node.inputs[0], *bounds], node.outputs))
    r.add(Node("Activation", node.name, node.inputs[:1], node.outputs, activation=("clip", float(lo), float(hi))))


def _hard_sigmoid(r, node):
    alpha, beta = node.attrs.get("alpha", 0.2), node.attrs.get("beta", 0.5)
    if np.float32(alpha) == np.float32(1 / 6) and beta == 0.5:
        return r.add(Node("Activation", node.name, node.inputs, node.outputs, activation="hardsigmoid"))
    scaled, shifted = r.fresh(node.name + ".scaled"), r.fresh(node.name + ".shifted")
    r.add(Node("Mul", node.name + ".scale", [node.inputs[0], r.constant(node.name + ".alpha", alpha, np.float32)], [scaled]))
    r.add(Node("Add", node.name + ".shift", [scaled, r.constant(node.name + ".beta", beta, np.float32)], [shifted]))
    r.add(Node("Activation", node.name, [shifted], node.outputs, activation=("clip", 0.0, 1.0)))


def _sum(r, node):
    """A sum of many as additions of two, in order."""
    total = node.inputs[0]
    for i, v in enumerate(node.inputs[1:], 1):
        last = i == len(node.inputs) - 1
        result = node.output if last else r.fresh(f"{node.name}.{i}")
        r.add(Node("Add", node.name if last else f"{node.name}.{i}", [total, v], [result]))
        total = result
    if len(node.inputs) == 1:
        r.add(Node("Identity", node.name, node.inputs, node.outputs))


def _axes(i=1):
    def read(r, node):
        r.as_input(node, "axes", i)
        r.add(node)
    return read


def _split(r, node):
    r.as_input(node, "split", 1)
    r.add(node)


def _slice(r, node):
    for i, attr in enumerate(("starts", "ends", "axes"), 1):
        r.as_input(node, attr, i)
    r.add(node)


def _pad(r, node):
    value = node.attrs.pop("value", 0.0)
    if "pads" in node.attrs:
        r.as_input(node, "pads", 1)
        node.inputs.append(r.constant(f"{node.name}.value", value, np.float32))
    r.add(node)


def _softmax(r, node):
    node.attrs.setdefault("axis", -1 if r.opset >= 13 else 1)
    node.attrs["to_end"] = r.opset < 13  # older opsets: over all axes from this one on
    r.add(node)


def _resize(r, node):
    if r.opset < 11:
        node.inputs = [node.inputs[0], "", node.inputs[1]]
        node.attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    mode, transform = node.attrs.get("mode", "nearest"), node.attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode not in ("nearest", "linear") or transform == "tf_crop_and_resize" or node.attrs.get("antialias", 0):
        raise ValueError(f"resize {node.name!r} has mode {mode!r}, coordinates {transform!r}, antialias={node.attrs.get('antialias', 0)}: "
                         "fusedops has the modes nearest and linear, without antialiasing or cropping")
    r.add(node)


def _upsample(r, node):
    """What Resize was before opset 10."""
    if "scales" in node.attrs:
        node.inputs.append(r.constant(f"{node.name}.scales", node.attrs.pop("scales"), np.float32))
    _resize(r, Node("Resize", node.name, node.inputs, node.outputs, node.attrs))


def _prelu(r, node):
    """The slopes of old opsets are one a channel; newer ones are broadcast as NumPy does."""
    slopes = r.graph.constant(node, 1)
    if r.upgraded and slopes is not None and slopes.ndim == 1:
        return r.add(Node("Activation", node.name, node.inputs[:1], node.outputs, activation=("prelu", slopes)))
    r.add(node)


def _top_k(r, node):
    r.as_input(node, "k", 1)
    r.add(node)


def _cast(r, node):
    if node.attrs["to"] not in CAST_TYPES:
        raise ValueError(f"cast {node.name!r} makes elements of ONNX's type {node.attrs['to']}, which NumPy does not have")
    r.add(node)


def _max_pool(r, node):
    if len(node.outputs) > 1:
        raise ValueError(f"max pool {node.name!r} gives the indices of its maxima, which fusedops does not")
    r.add(node)


def _gelu(attrs):
    return "gelu_tanh" if attrs.get("approximate", "none") == "tanh" else "gelu"


def _celu(r, node):
    """a elu(x / a): elu of slope 1 between two scalings."""
    alpha = r.constant(f"{node.name}.alpha", node.attrs.get("alpha", 1.0), np.float32)
    x, y = r.fresh(f"{node.name}.x"), r.fresh(f"{node.name}.y")
    r.add(Node("Div", f"{node.name}.div", [node.inputs[0], alpha], [x]))
    r.add(Node("Activation", node.name, [x], [y], activation=("elu", 1.0)))
    r.add(Node("Mul", f"{node.name}.mul", [y, alpha], node.outputs))


def _selu(r, node):
    """gamma elu(x)."""
    y = r.fresh(f"{node.name}.elu")
    gamma = r.constant(f"{node.name}.gamma", node.attrs.get("gamma", 1.0507009873554805), np.float32)
    r.add(Node("Activation", node.name, node.inputs, [y], activation=("elu", node.attrs.get("alpha", 1.6732632423543772))))
    r.add(Node("Mul", f"{node.name}.mul", [y, gamma], node.outputs))


def _norm(before, root=False):
    """A reduction of absolute values or squares: the sum of what `before` makes of x, and the root of that."""
    def read(r, node):
        r.as_input(node, "axes", 1)
        terms, total = r.fresh(f"{node.name}.terms"), r.fresh(f"{node.name}.sum") if root else node.output
        r.add(Node(before, f"{node.name}.terms", node.inputs[:1] * (2 if before == "Mul" else 1), [terms]))
        r.add(Node("ReduceSum", node.name, [terms, *node.inputs[1:]], [total], node.attrs))
        if root:
            r.add(Node("Sqrt", f"{node.name}.root", [total], node.outputs))
    return read


def _einsum(r, node):
    """A product over at most one axis of each kind as a MatMul: shared axes first, then the rows, the summed axis, the columns."""
    left, arrow, right = node.attrs["equation"].replace(" ", "").partition("->")
    terms = left.split(",")
    a, b = map(set, terms) if len(terms) == 2 else (set(), set())
    y = set(right)
    shared, rows, inner, columns = a & b & y, (a & y) - b, (a & b) - y, (b & y) - a
    alike = len(left) == len(a) + len(b) + 1 and shared | rows | columns == y and len(y) == len(right) and a | b == shared | rows | inner | columns
    if not arrow or "." in left or not alike or max(map(len, (rows, inner, columns))) > 1 or not inner:
        return r.add(node)
    batch, (row, column), summed = [c for c in right if c in shared], ("".join(s) for s in (rows, columns)), "".join(inner)

    def part(x, term, first, last):
        """An operand with its axes in the order of a matrix product; one of length 1 where it has no rows or columns."""
        order = [*batch, *first, *last]
        x = step("Transpose", x, {"perm": [term.index(c) for c in order]})
        return x if first and last else step("Unsqueeze", x, {}, [len(batch) + bool(first)])

    def step(op, x, attrs, axes=None, result=None):
        result = result or r.fresh(f"{node.name}.{op}")
        r.add(Node(op, unique(f"{node.name}.{op}", r.names), [x] if axes is None else [x, r.constant(f"{node.name}.axes", axes)], [result], attrs))
        return result

    operands = [part(node.inputs[0], terms[0], row, summed), part(node.inputs[1], terms[1], summed, column)]
    made = r.fresh(f"{node.name}.product")
    r.add(Node("MatMul", node.name, operands, [made]))
    if not (row and column):
        made = step("Squeeze", made, {}, [len(batch) + i for i, c in enumerate((row, column)) if not c])
    order = [*batch, *row, *column]
    step("Transpose", made, {"perm": [order.index(c) for c in right]}, result=node.output)


READ = dict.fromkeys(OPERATORS, _plain) | {
    "BatchNormalization": _batch_norm, "Cast": _cast, "Celu": _celu, "Clip": _clip, "Constant": _constant, "Dropout": _dropout, "Einsum": _einsum,
    "Elu": _activation(lambda a: ("elu", a.get("alpha", 1.0))), "Gelu": _activation(_gelu), "HardSigmoid": _hard_sigmoid,
    "HardSwish": _activation(lambda a: "hardswish"), "LeakyRelu": _activation(lambda a: ("leaky_relu", a.get("alpha", 0.01))),
    "LogSoftmax": _softmax, "MaxPool": _max_pool, "Mish": _activation(lambda a: "mish"), "PRelu": _prelu, "Pad": _pad,
    "ReduceL1": _norm("Abs"), "ReduceL2": _norm("Mul", root=True), "ReduceSumSquare": _norm("Mul"), **dict.fromkeys(REDUCTIONS, _axes()),
    "Relu": _activation(lambda a: "relu"), "Resize": _resize, "Selu": _selu, "Sigmoid": _activation(lambda a: "sigmoid"),
    "Slice": _slice, "Softmax": _softmax, "Softplus": _activation(lambda a: "softplus"), "Split": _split, "Squeeze": _axes(),
    "Sum": _sum, "Tanh": _activation(lambda a: "tanh"), "TopK": _top_k, "Unsqueeze": _axes(), "Upsample": _upsample,
}
READ.pop("Activation"), READ.pop("Linear")
