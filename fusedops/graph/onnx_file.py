"""An ONNX model as a checked message: damage, data that is in other files, opsets that are too old."""
import contextlib
import functools
import os

OPSETS = range(7, 29)


def import_onnx():
    try:
        import onnx
        import onnx.version_converter
    except ImportError:
        raise ImportError("reading ONNX models needs the onnx package: pip install 'fusedops[onnx]'") from None
    return onnx


def parse(onnx, model):
    """(ModelProto, its opset, whether ONNX brought it up to that) of a path, bytes or a ModelProto."""
    path = None if isinstance(model, (bytes, bytearray, memoryview, onnx.ModelProto)) else os.fspath(model)
    what = "the model" if path is None else repr(path)
    with _one_error(onnx, what):
        if path is not None:
            proto = onnx.load(path, load_external_data=False)
        else:
            proto = model if isinstance(model, onnx.ModelProto) else onnx.load_model_from_string(bytes(model))
        _check(onnx, proto)
    _load_outside(onnx, proto, path)
    opset = next((i.version for i in proto.opset_import if i.domain in ("", "ai.onnx")), None)
    if opset is None:
        raise ValueError(
            "the model imports no operator set of ONNX: it is damaged, or made of another library's operators alone")
    if opset < OPSETS[0]:
        return _upgraded(onnx, proto, opset), OPSETS[0], True
    return proto, opset, False


@contextlib.contextmanager
def _one_error(onnx, what):
    """What is wrong with a file comes as one kind of error, whatever the layer that found it."""
    from google.protobuf.message import DecodeError
    try:
        yield
    except (DecodeError, onnx.checker.ValidationError, ValueError, RuntimeError) as e:
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise ValueError(
            f"{what} is not an ONNX model, or a damaged one: {reason}: export or download it again"
        ) from None


def _check(onnx, proto):
    """Each node by ONNX's own checker, where its operator is known and current; the order of nodes and names are
    checked as they are read."""
    if not proto.graph.node and not proto.graph.output:
        raise ValueError("it has no graph")
    context = onnx.checker.C.CheckerContext()
    context.ir_version = min(proto.ir_version or onnx.IR_VERSION, onnx.IR_VERSION)
    context.opset_imports = {_own(i.domain): i.version for i in proto.opset_import}
    own, current = {(f.domain, f.name) for f in proto.functions}, functools.cache(functools.partial(_is_current, onnx))
    for graph in graphs(onnx, proto.graph):
        for i, node in enumerate(graph.node):
            if not all(isinstance(v, str) for v in (node.op_type, node.domain, node.name, *node.input, *node.output)):
                raise ValueError(f"node {i} has a name that is no text")
            domain = _own(node.domain)
            nested = any(a.HasField("g") or a.graphs for a in node.attribute)
            known = (
                domain,
                node.op_type,
            ) not in own and node.op_type != "Constant"  # whose value is checked as it is read
            if known and not nested and current(node.op_type, context.opset_imports.get(domain, 0), domain):
                if node.domain != domain:
                    node = onnx.NodeProto.FromString(node.SerializeToString())
                    node.domain = domain
                onnx.checker.check_node(node, context)


def _own(domain):
    """ONNX's own operators have a domain of two names; its checker knows one."""
    return "" if domain == "ai.onnx" else domain


def _is_current(onnx, op, opset, domain):
    return onnx.defs.has(op, opset, domain) and not onnx.defs.get_schema(op, opset, domain).deprecated


def graphs(onnx, graph):
    """A graph and those inside its nodes."""
    yield graph
    for node in graph.node:
        for a in node.attribute:
            for inner in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                yield from graphs(onnx, inner)


def _load_outside(onnx, proto, path):
    """Reads the data of tensors that lies in other files, which must be in the model's folder, or in that of the file
    it links to."""
    outside = [
        t for graph in graphs(onnx, proto.graph) for t in graph.initializer
        if onnx.external_data_helper.uses_external_data(t)
    ]
    if outside and path is None:
        raise ValueError(f"the data of tensor {outside[0].name!r} lies in another file: load the model by its path")
    folder = os.path.dirname(os.path.abspath(path or ""))
    roots = {os.path.realpath(folder), os.path.dirname(os.path.realpath(path or ""))}
    for tensor in outside:
        info = onnx.external_data_helper.ExternalDataInfo(tensor)
        there = os.path.realpath(os.path.join(folder, info.location))
        if os.path.isabs(info.location) or not any(os.path.commonpath([root, there]) == root for root in roots):
            raise ValueError(
                f"{path!r} is not an ONNX model, or a damaged one: tensor {tensor.name!r} points to {info.location!r}, "
                f"outside its folder"
            )
        try:
            with open(there, "rb") as f:
                f.seek(info.offset or 0)
                tensor.raw_data = f.read(-1 if info.length is None else info.length)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{path!r} has its weights in another file, {info.location!r}, which is not there: put it next to the "
                f"model"
            ) from None
        except ValueError as e:
            raise ValueError(f"{path!r} is not an ONNX model, or a damaged one: tensor {tensor.name!r}: {e}") from None
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _upgraded(onnx, proto, opset):
    """A model of an opset that is older than those read here, as ONNX's own converter brings it up."""
    try:
        return onnx.version_converter.convert_version(proto, OPSETS[0])
    except (RuntimeError, ValueError, onnx.version_converter.ConvertError) as e:
        raise ValueError(
            f"the model has opset {opset}; fusedops reads {OPSETS[0]} to {OPSETS[-1]}, and ONNX cannot convert it: {e}"
        ) from None
