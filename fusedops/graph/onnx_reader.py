"""Reads an ONNX model into a Graph, each operator in the form of the newest opset, so that nothing behind the reader knows of opsets."""
import contextlib
import os

import numpy as np

from .ir import Graph, Node, Value, unique
from .operators import READ
from .reader import Reader

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


class _Reader(Reader):
    def __init__(self, onnx, proto, opset, upgraded):
        self.onnx = onnx
        taken = dict.fromkeys([v for n in proto.node for v in (*n.input, *n.output)] + [v.name for v in (*proto.input, *proto.initializer)], 0)
        constants = {t.name: self.array(t) for t in proto.initializer}
        inputs = [self.value(i) for i in proto.input if i.name not in constants]
        outputs = [self.value(o) for o in proto.output]
        super().__init__(Graph([], constants, inputs, outputs, [o.name for o in outputs], opset), upgraded, taken)
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
