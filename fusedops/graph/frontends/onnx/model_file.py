"""An ONNX model as a checked message: damage, data that is in other files, opsets that are too old."""

import contextlib
import functools
import math
import os

import numpy as np

from ...._internal import install_hint
from ...._internal.mmap_arrays import mapped_file, opened, whole
from ...ir.errors import DamagedFile, UnsupportedOperator
from ...operators import early_onnx
from ...operators.learned import DOMAIN as LEARNED
from . import inline_weights, records

OPSETS = range(7, 29)
MAPPED = 1 << 24  # bytes of a file from which on it is mapped; others are read, and may be written again at once
SMALL = 1 << 20  # bytes of an array that is copied where its elements are not aligned


def import_onnx():
    try:
        import onnx
        import onnx.version_converter
    except ImportError:
        raise ImportError(f"reading ONNX models needs the onnx package: {install_hint.command('onnx')}") from None
    return onnx


def parse(onnx, model):
    """(its records, its opset, whether ONNX brought it up to that, what holds data of tensors by its location) of a
    path, bytes, a binary file or a ModelProto."""
    model = whole(model)
    path = None if isinstance(model, (bytes, bytearray, memoryview, onnx.ModelProto)) else os.fspath(model)
    what = "the model" if path is None else repr(path)
    with _one_error(onnx, what):
        proto, own = _message(onnx, model, path)
        found = records.Model(proto)
        _check(onnx, found)
    files = _outside(onnx, found, path, own)
    if found.opset is None and set(found.opsets) == {LEARNED}:
        found.opset = OPSETS[-1]  # of operators that none is of
    if found.opset is None:
        raise DamagedFile(
            "the model imports no operator set of ONNX: it is damaged, or made of another library's operators alone"
        )
    if found.opset < OPSETS[0]:
        _take_in(onnx, found, files)
        return records.Model(_upgraded(onnx, proto, found.opset), found.metadata), OPSETS[0], True, {}
    return found, found.opset, False, files


def _message(onnx, model, path):
    """(the ModelProto, the bytes that large data is left in)."""
    if isinstance(model, onnx.ModelProto):
        return model, b""
    own, text = (bytes(model), None) if path is None else (contents(path), _text_format(onnx, path))
    without = inline_weights.without_data(own) if text is None else None
    if without is not None:
        return onnx.load_model_from_string(without), own
    return onnx.load_model_from_string(own[:], text or "protobuf"), b""  # a pipe can be read once


def _text_format(onnx, path):
    """ONNX's name of the text that a file is by its ending, or None."""
    found = onnx.serialization.registry.get_format_from_file_extension(os.path.splitext(path)[1])
    return None if found == "protobuf" else found


def contents(path):
    """The bytes of a file; those of a large one take memory as they are read, which can be let go."""
    with opened(path) as f:
        if os.fstat(f.fileno()).st_size < MAPPED:
            return f.read()
        return mapped_file(f)


@contextlib.contextmanager
def _one_error(onnx, what):
    """What is wrong with a file comes as one kind of error, whatever the layer that found it."""
    from google.protobuf.message import DecodeError

    try:
        yield
    except (DecodeError, onnx.checker.ValidationError, ValueError, RuntimeError) as e:
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise DamagedFile(
            f"{what} is not an ONNX model, or a damaged one: {reason}: export or download it again; "
            "fusedops.load reads what model.save wrote"
        ) from None


def _check(onnx, model):
    """Each node by ONNX's own checker, where its operator is known and current; the order of nodes and names are
    checked as they are read."""
    if not model.graph.nodes and not model.graph.outputs:
        raise ValueError("it has no graph")
    versions = [model.ir_version, *model.opsets.values(), *(f.opset or 0 for f in model.functions.values())]
    for version in versions:
        if not 0 <= version < 2**31:
            raise ValueError(f"it has a version of {version}")
    context = onnx.checker.C.CheckerContext()
    context.ir_version = min(model.ir_version or onnx.IR_VERSION, onnx.IR_VERSION)
    context.opset_imports = model.opsets
    for graph in model.graph.all():
        for node in graph.nodes:
            if not node.nested and _is_current(model, node.key) and not _has_data_outside(node):
                proto = node.proto
                if proto.domain != node.domain:
                    proto = onnx.NodeProto.FromString(proto.SerializeToString())
                    proto.domain = node.domain  # which the checker knows by one name
                onnx.checker.check_node(proto, context)


def _has_data_outside(node):
    """Whether a tensor of a node, which the checker would look for, has its data elsewhere."""
    return any(a.is_tensor and a.proto.t.data_location for a in node.attributes)


def _is_current(model, key):
    """Whether ONNX's checker knows an operator. The value of a Constant is checked as it is read."""
    domain, op = key
    return key not in model.functions and op != "Constant" and _has_schema(op, model.opsets.get(domain, 0), domain)


@functools.lru_cache(1000)
def _has_schema(op, opset, domain):
    import onnx

    return onnx.defs.has(op, opset, domain) and not onnx.defs.get_schema(op, opset, domain).deprecated


def _outside(onnx, model, path, own):
    """{location: bytes} of what holds data of tensors: the model's own bytes, or files in its folder or in that of the
    file it links to."""
    found = {inline_weights.OWN: own}
    if not model.outside:
        return found
    folder = os.path.dirname(os.path.abspath(path or ""))
    roots = {os.path.realpath(folder), os.path.dirname(os.path.realpath(path or ""))}
    for tensor in model.outside:
        with _one_error(onnx, repr(path)):
            location = onnx.external_data_helper.ExternalDataInfo(tensor).location
        if location in found:
            continue
        if path is None:
            raise DamagedFile(f"the data of tensor {tensor.name!r} lies in another file: load the model by its path")
        found[location] = contents(_place(path, tensor.name, location, folder, roots))
    return found


def _place(path, name, location, folder, roots):
    """The path of a regular file with the data of a tensor. A pipe could keep the load waiting."""
    damaged = f"{path!r} is not an ONNX model, or a damaged one: tensor {name!r} points to {location!r}, "
    if "\0" in location:
        raise DamagedFile(damaged + "which no file can be called")
    there = os.path.realpath(os.path.join(folder, location))
    if os.path.isabs(location) or not any(os.path.commonpath([root, there]) == root for root in roots):
        raise DamagedFile(damaged + "outside its folder")
    if not os.path.exists(there):
        raise FileNotFoundError(
            f"{path!r} has its weights in another file, {location!r}, which is not there: put it next to the model"
        )
    if not os.path.isfile(there):
        raise DamagedFile(damaged + "which is no regular file")
    return there


def read_outside(onnx, tensor, files, dtype=None):
    """The data of a tensor, which is in `files`: as an array where its dtype is that of an element, else as bytes. A
    message has room for 2 GB; such an array is a view, which may have its elements at odd addresses."""
    info = onnx.external_data_helper.ExternalDataInfo(tensor)
    data, offset = files[info.location], info.offset or 0
    length = len(data) - offset if info.length is None else info.length
    if not 0 <= offset <= offset + length <= len(data):
        where = "the file" if info.location == inline_weights.OWN else repr(info.location)
        raise DamagedFile(f"bytes {offset} to {offset + length} of {where}, which has {len(data)}")
    if dtype is None:
        return data[offset : offset + length]
    if length != dtype.itemsize * math.prod(tensor.dims):
        raise DamagedFile(f"{length} bytes for the shape {tuple(tensor.dims)} of {dtype}")
    a = np.frombuffer(data, dtype, length // dtype.itemsize, offset) if length else np.empty(0, dtype)
    a = a.reshape(tuple(tensor.dims))
    return a.copy() if not a.flags.aligned and length < SMALL else a


def _take_in(onnx, model, files):
    """Reads the data of tensors from other files into the messages."""
    for tensor in model.outside:
        tensor.raw_data = read_outside(onnx, tensor, files)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _upgraded(onnx, proto, opset):
    """A model of an opset that is older than those read here, as ONNX's own converter brings it up."""
    from google.protobuf.message import EncodeError

    try:
        stand_ins, proto = _with_stand_ins(onnx, proto)
        return _put_back(onnx.version_converter.convert_version(proto, OPSETS[0]), stand_ins)
    except EncodeError:
        raise UnsupportedOperator(
            f"the model has opset {opset} and more than the 2 GB that ONNX can convert; fusedops reads {OPSETS[0]} to "
            f"{OPSETS[-1]}: export it again with one of these"
        ) from None
    except (RuntimeError, TypeError, ValueError, onnx.version_converter.ConvertError) as e:
        raise UnsupportedOperator(
            f"the model has opset {opset}; fusedops reads {OPSETS[0]} to {OPSETS[-1]}, and ONNX cannot convert it: {e}"
        ) from None


def _with_stand_ins(onnx, proto):
    """({result: node}, a copy of the model) with nodes that ONNX's converter knows in place of operators that it does
    not, of results of the same shapes."""
    found, stand_ins = type(proto).FromString(proto.SerializeToString()), {}
    for node in found.graph.node:
        if node.op_type in early_onnx.RECORDS and records.one_name(node.domain) == "" and node.output:
            stand_ins[node.output[0]] = type(node).FromString(node.SerializeToString())
            given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            del node.attribute[:]
            node.op_type = "Identity"
            if stand_ins[node.output[0]].op_type == "Crop" and "border" in given:
                node.op_type, names = "Slice", ("starts", "ends", "axes")
                node.attribute.extend(map(onnx.helper.make_attribute, names, early_onnx.crop(given)))
    return stand_ins, found


def _put_back(proto, stand_ins):
    for node in proto.graph.node:
        was = stand_ins.get(node.output[0]) if node.output else None
        if was is not None and node.op_type == "Identity":
            node.op_type = was.op_type
            node.attribute.extend(was.attribute)
    return proto
