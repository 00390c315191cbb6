"""An ONNX model as a checked message: damage, data that is in other files, opsets that are too old. The onnx package is
imported for what it alone can do: text, operators that it defines by others, opsets that are too old."""

import contextlib
import math
import os
import sys
from typing import TYPE_CHECKING

import numpy as np

from ...._internal import install_hint
from ...._internal.lazy import LazyModule
from ...._internal.mmap_arrays import mapped_file, opened, whole
from ...ir.errors import DamagedFile, UnsupportedOperator
from . import records, schemas, wire

if TYPE_CHECKING:
    from ...operators import early_onnx, learned
else:
    early_onnx, learned = (LazyModule(f"fusedops.graph.operators.{name}") for name in ("early_onnx", "learned"))

OPSETS = range(7, 29)
MAPPED = 1 << 24  # bytes of a file from which on it is mapped; others are read, and may be written again at once
SMALL = 1 << 20  # bytes of an array that is copied where its elements are not aligned
_TEXT = {".txtpb", ".pbtxt", ".textproto", ".prototxt", ".onnxjson", ".json", ".onnxtxt", ".onnxtext"}


def import_onnx():
    try:
        import onnx
        import onnx.version_converter
    except ImportError:
        raise ImportError(f"reading this ONNX model needs the onnx package: {install_hint.command('onnx')}") from None
    return onnx


def parse(model):
    """(its records, its opset, whether ONNX brought it up to that, what holds data of tensors by its location) of a
    path, bytes, a binary file or a ModelProto."""
    model = whole(model)
    path = None if isinstance(model, (bytes, bytearray, memoryview)) or is_proto(model) else os.fspath(model)
    what = "the model" if path is None else repr(path)
    data = _data(model, path)
    with _one_error(what):
        proto = data if is_proto(data) else wire.parse(wire.Model, data)
        found = records.Model(proto)
        _check(found)
    files = _outside(found, path)
    if found.opset is None and set(found.opsets) == {learned.DOMAIN}:
        found.opset = OPSETS[-1]  # of operators that none is of
    if found.opset is None:
        raise DamagedFile(
            "the model imports no operator set of ONNX: it is damaged, or made of another library's operators alone"
        )
    if found.opset < OPSETS[0]:
        return _newer(found, data, files), OPSETS[0], True, {}
    return found, found.opset, False, files


def is_proto(model):
    """Whether it is a ModelProto of the onnx package, which who has one has imported."""
    return isinstance(model, getattr(sys.modules.get("onnx"), "ModelProto", ()))


def _data(model, path):
    """The bytes of a model, or its message where it is one or the text of one."""
    if path is None:
        return model if is_proto(model) or isinstance(model, bytes) else bytes(model)
    if os.path.splitext(path)[1] not in _TEXT:
        return contents(path)
    onnx = import_onnx()
    with _one_error(repr(path)):
        text = onnx.serialization.registry.get_format_from_file_extension(os.path.splitext(path)[1])
        return onnx.load_model_from_string(contents(path)[:], text)


def contents(path):
    """The bytes of a file; those of a large one take memory as they are read, which can be let go."""
    with opened(path) as f:
        if os.fstat(f.fileno()).st_size < MAPPED:
            return f.read()
        return mapped_file(f)


@contextlib.contextmanager
def _one_error(what):
    """Turns errors of all layers about a file into one kind."""
    try:
        yield
    except Exception as e:
        if not isinstance(e, (ValueError, RuntimeError)) and not type(e).__module__.startswith(("google.", "onnx.")):
            raise
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise DamagedFile(
            f"{what} is not an ONNX model, or a damaged one: {reason}: export or download it again; "
            "fusedops.load reads what model.save wrote"
        ) from None


def _check(model):
    """Each node by what ONNX says of its operator, where that is known and current; the order of nodes and names are
    checked as they are read."""
    if not model.graph.nodes and not model.graph.outputs:
        raise ValueError("it has no graph")
    versions = [model.ir_version, *model.opsets.values(), *(f.opset or 0 for f in model.functions.values())]
    for version in versions:
        if not 0 <= version < 2**31:
            raise ValueError(f"it has a version of {version}")
    for graph in model.graph.all():
        for node in graph.nodes:
            if node.key not in model.functions:
                schemas.check(node, model.opsets.get(node.domain, 0))


def _outside(model, path):
    """{location: bytes} of files with data of tensors, in the model's folder or in that of the file it links to."""
    found = {}
    if not model.outside:
        return found
    folder = os.path.dirname(os.path.abspath(path or ""))
    roots = {os.path.realpath(folder), os.path.dirname(os.path.realpath(path or ""))}
    for tensor in model.outside:
        with _one_error(repr(path)):
            location = _place_of_data(tensor)[0]
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
        raise DamagedFile(damaged + "which is not a regular file")
    return there


def _place_of_data(tensor):
    """(location, first byte, number of bytes or None) of the data of a tensor that is in another file."""
    given = {entry.key: entry.value for entry in tensor.external_data}
    try:
        return given["location"], int(given.get("offset") or 0), int(given["length"]) if "length" in given else None
    except (KeyError, ValueError):
        raise ValueError(f"tensor {tensor.name!r} does not say where its data is: {given}") from None


def read_outside(tensor, files, dtype=None):
    """The data of a tensor, which is in `files`: as an array where its dtype is that of an element, else as bytes. A
    message has room for 2 GB; such an array is a view, which may have its elements at odd addresses."""
    location, offset, length = _place_of_data(tensor)
    data = files[location]
    length = len(data) - offset if length is None else length
    if not 0 <= offset <= offset + length <= len(data):
        raise DamagedFile(f"bytes {offset} to {offset + length} of {location!r}, which has {len(data)}")
    if dtype is None:
        return data[offset : offset + length]
    return array_of(memoryview(data)[offset : offset + length], dtype, tuple(tensor.dims))


def array_of(data, dtype, shape):
    """The array of a tensor's bytes: a view of them, which may have its elements at odd addresses."""
    if len(data) != dtype.itemsize * math.prod(shape):
        raise DamagedFile(f"{len(data)} bytes for the shape {shape} of {dtype}")
    a = (np.frombuffer(data, dtype) if len(data) else np.empty(0, dtype)).reshape(shape)
    return a.copy() if not a.flags.aligned and len(data) < SMALL else a


def _newer(model, data, files):
    """The records of a model of an opset that is older than those read here, as ONNX brings it up."""
    onnx, opset = import_onnx(), model.opset
    if not is_proto(data) and len(data) >= 1 << 31:
        raise _too_large(opset)
    proto = data if is_proto(data) else onnx.load_model_from_string(data[:])
    outside = records.Model(proto).outside
    for tensor in outside:
        tensor.raw_data = read_outside(tensor, files)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return records.Model(_upgraded(onnx, proto, opset), model.metadata)


def _too_large(opset):
    return UnsupportedOperator(
        f"the model has opset {opset} and more than the 2 GB that ONNX can convert; fusedops reads {OPSETS[0]} to "
        f"{OPSETS[-1]}: export it again with one of these"
    )


def _upgraded(onnx, proto, opset):
    """A model of an opset that is older than those read here, as ONNX's own converter brings it up."""
    from google.protobuf.message import EncodeError

    try:
        stand_ins, proto = _with_stand_ins(onnx, proto)
        return _put_back(onnx.version_converter.convert_version(proto, OPSETS[0]), stand_ins)
    except EncodeError:
        raise _too_large(opset) from None
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
