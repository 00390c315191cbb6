"""Messages of ONNX files, read without the onnx package, whose import takes longer than most networks do to load.

A message is fields in a row: a key, (number << 3) + wire type, and a varint, 8 bytes, a length with so many bytes, or 4
bytes. The classes name the fields that networks are made of, as onnx.proto does; others are skipped. Their objects have
the attributes that those of protobuf have. Large data of tensors stays where it is.
"""

import struct
from typing import ClassVar

import numpy as np

LARGE = 1 << 16  # bytes of data that are not copied
DEEPEST = 100  # messages inside messages, as protobuf has it
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_ONE_OF_MANY = {True, "number"}  # what a field says of repetition where each value has a field of its own
_SHORT = 64  # bytes of packed numbers that Python reads one by one


class Message:
    """What one of ONNX's messages says; fields that it does not have are at their defaults. `span` is where it is:
    (bytes, start, end)."""

    fields: ClassVar[dict] = {}  # key: (name, what reads it, whether it is repeated)
    span: tuple = (b"", 0, 0)

    def HasField(self, name):
        return name in self.__dict__

    def SerializeToString(self):
        data, start, end = self.span
        return bytes(data[start:end])


def parse(kind, data):
    """The message of a kind that bytes, or a mapped file, hold; ValueError where they hold none."""
    try:
        return _message(kind, data, 0, len(data), 0)
    except (IndexError, struct.error):
        raise ValueError("Error parsing message: it ends in the middle of a field") from None
    except RecursionError:
        raise ValueError("Error parsing message: it is too deep") from None


def _message(kind, data, at, end, depth):
    if depth > DEEPEST:
        raise ValueError("Error parsing message: it is too deep")
    found = kind()
    values, fields = found.__dict__, kind.fields
    values["span"] = data, at, end
    while at < end:
        key = data[at]
        at += 1
        if key > 127:
            key, at = _varint(data, at - 1)
        field = fields.get(key)
        if key & 7 == _BYTES:
            size = data[at]
            at += 1
            if size > 127:
                size, at = _varint(data, at - 1)
            start, at = at, at + size
            if at > end:
                raise ValueError("Error parsing message: a field ends after it")
            if field is None:
                continue
            value = field[1](data, start, at, depth)
        else:
            value, at = _number(data, at, key)
            if field is None:
                continue
            value = field[1](value)
        name, _, repeated = field
        if name in values:
            _add(values, field, value)
        else:
            values[name] = [value] if repeated in _ONE_OF_MANY else value
    if at > end:
        raise ValueError("Error parsing message: a field ends after it")
    return found


def _add(values, field, value):
    """Puts another value into a message: next to the first ones, in the place of the first, or in addition to it."""
    name, _, repeated = field
    found = values[name]
    if repeated == "number":  # numbers that came before in one field may be an array
        values[name] = [*found, value]
    elif repeated == "packed":
        values[name] = [*found, *value]
    elif repeated:
        found.append(value)
    else:
        values[name] = _merged(found, value) if isinstance(found, Message) else value


def _merged(old, new):
    """A message of which a file has two parts."""
    return parse(type(new), old.SerializeToString() + new.SerializeToString())


def _number(data, at, key):
    """(a number of a field that is no bytes, where it ends)."""
    wire = key & 7
    if key < 8 or wire not in (_VARINT, _EIGHT, _FOUR):
        raise ValueError(f"Error parsing message: a field {key >> 3} of type {wire}")
    if wire == _VARINT:
        return _varint(data, at)
    size = 4 if wire == _FOUR else 8
    return data[at : at + size], at + size


def _varint(data, at):
    """(a number, where it ends)."""
    number = data[at]
    if number < 128:
        return number, at + 1
    number &= 127
    for i in range(1, 10):
        byte = data[at + i]
        number |= (byte & 127) << 7 * i
        if byte < 128:
            return number & (1 << 64) - 1, at + i + 1
    raise ValueError("Error parsing message: a number of more than 64 bits")


# ---- what reads a field ---------------------------------------------------------------------------------------------


def _text(data, start, end, depth):
    """Text; bytes that are none stay bytes."""
    found = data[start:end]
    try:
        return str(found, "utf-8")
    except UnicodeDecodeError:
        return found


def _bytes(data, start, end, depth):
    return data[start:end]


def _data(data, start, end, depth):
    """Data of a tensor: small data as a copy."""
    return data[start:end] if end - start < LARGE else memoryview(data)[start:end]


def _signed(number):
    return number - (1 << 64) if number >> 63 else number


def _int32(number):
    number &= (1 << 32) - 1
    return number - (1 << 32) if number >> 31 else number


def _float(data):
    return struct.unpack("<f", data)[0]


def _double(data):
    return struct.unpack("<d", data)[0]


def _unsigned(number):
    return number


def _varints(data, start, end, depth):
    """Packed varints as they are, without a sign."""
    if end - start > _SHORT:
        return _many_varints(np.frombuffer(data, np.uint8, end - start, start)).tolist()
    found = []
    while start < end:
        number, start = _varint(data, start)
        found.append(number)
    if start > end:
        raise ValueError("Error parsing message: a number ends after its field")
    return found


def _many_varints(data):
    last = np.flatnonzero(data < 128)
    if not last.size or last[-1] != data.size - 1:
        raise ValueError("Error parsing message: a number ends after its field")
    first = np.concatenate([[0], last[:-1] + 1])
    lengths = last - first + 1
    if lengths.max() > 10:
        raise ValueError("Error parsing message: a number of more than 64 bits")
    shifts = 7 * (np.arange(data.size) - np.repeat(first, lengths))
    parts = (data & 127).astype(np.uint64) << shifts.astype(np.uint64)
    return np.bitwise_or.reduceat(parts, first)


def _packed_varints(convert):
    return lambda data, start, end, depth: [convert(n) for n in _varints(data, start, end, depth)]


def _varint_array(dtype):
    """Reads packed varints as an array, modulo the type's range."""

    def read(data, start, end, depth):
        return _many_varints(np.frombuffer(data, np.uint8, end - start, start)).astype(dtype) if end > start else []

    return read


def _float_array(dtype):
    def read(data, start, end, depth):
        if (end - start) % np.dtype(dtype).itemsize:
            raise ValueError("Error parsing message: a number ends after its field")
        return np.frombuffer(bytes(data[start:end]), dtype)

    return read


def _packed_floats(data, start, end, depth):
    return _float_array("<f4")(data, start, end, depth).tolist()


def _inner(kind):
    return lambda data, start, end, depth: _message(kind, data, start, end, depth + 1)


_NUMBERS = {  # kind: (wire type of one, what reads it, what reads many)
    "int64": (_VARINT, _signed, _packed_varints(_signed)),
    "int32": (_VARINT, _int32, _packed_varints(_int32)),
    "float": (_FOUR, _float, _packed_floats),
    # of tensors, which may have many
    "int32s": (_VARINT, _int32, _varint_array(np.int32)),
    "int64s": (_VARINT, _signed, _varint_array(np.int64)),
    "uint64s": (_VARINT, _unsigned, _varint_array(np.uint64)),
    "floats": (_FOUR, _float, _float_array("<f4")),
    "doubles": (_EIGHT, _double, _float_array("<f8")),
}
_READERS = {"text": _text, "bytes": _bytes, "data": _data}
_DEFAULTS: dict = {"text": "", "bytes": b"", "data": b"", "float": 0.0}


def _fields(kind, /, **described):
    """Gives a kind of messages its fields; each is (number, what it holds), where a list holds any number of these."""
    found: dict = {}
    for name, (number, holds) in described.items():
        many = isinstance(holds, list)
        what = holds[0] if many else holds
        if what in _NUMBERS:
            wire, one, several = _NUMBERS[what]
            found[number << 3 | wire] = name, one, "number" if many else ""
            if many:
                found[number << 3 | _BYTES] = name, several, "packed"
        else:
            found[number << 3 | _BYTES] = name, _READERS[what] if isinstance(what, str) else _inner(what), many
        default = _DEFAULTS.get(what, 0) if isinstance(what, str) else what()
        setattr(kind, name, () if many else default)
    kind.fields = found


def _kind(name, /, **described):
    kind = type(name, (Message,), {})
    _fields(kind, **described)
    return kind


# ---- ONNX's messages ------------------------------------------------------------------------------------------------

Entry = _kind("StringStringEntryProto", key=(1, "text"), value=(2, "text"))
OperatorSet = _kind("OperatorSetIdProto", domain=(1, "text"), version=(2, "int64"))
Tensor = _kind(
    "TensorProto",
    dims=(1, ["int64"]),
    data_type=(2, "int32"),
    float_data=(4, ["floats"]),
    int32_data=(5, ["int32s"]),
    string_data=(6, ["bytes"]),
    int64_data=(7, ["int64s"]),
    name=(8, "text"),
    raw_data=(9, "data"),
    double_data=(10, ["doubles"]),
    uint64_data=(11, ["uint64s"]),
    external_data=(13, [Entry]),
    data_location=(14, "int32"),
)
SparseTensor = _kind("SparseTensorProto", values=(1, Tensor), indices=(2, Tensor), dims=(3, ["int64"]))
Dimension = _kind("Dimension", dim_value=(1, "int64"), dim_param=(2, "text"))
Shape = _kind("TensorShapeProto", dim=(1, [Dimension]))
TensorType = _kind("TypeProto.Tensor", elem_type=(1, "int32"), shape=(2, Shape))
ElementType = _kind("TypeProto.Element", tensor_type=(1, TensorType))
SequenceType = _kind("TypeProto.Sequence", elem_type=(1, ElementType))
OtherType = _kind("TypeProto.Other")
Type = _kind(
    "TypeProto",
    tensor_type=(1, TensorType),
    sequence_type=(4, SequenceType),
    map_type=(5, OtherType),
    opaque_type=(7, OtherType),
    sparse_tensor_type=(8, OtherType),
    optional_type=(9, OtherType),
)
ValueInfo = _kind("ValueInfoProto", name=(1, "text"), type=(2, Type))


class Attribute(Message):
    pass


class Node(Message):
    pass


class Graph(Message):
    pass


_fields(
    Graph,
    node=(1, [Node]),
    name=(2, "text"),
    initializer=(5, [Tensor]),
    doc_string=(10, "text"),
    input=(11, [ValueInfo]),
    output=(12, [ValueInfo]),
    sparse_initializer=(15, [SparseTensor]),
)
_fields(
    Node,
    input=(1, ["text"]),
    output=(2, ["text"]),
    name=(3, "text"),
    op_type=(4, "text"),
    attribute=(5, [Attribute]),
    domain=(7, "text"),
)
_fields(
    Attribute,
    name=(1, "text"),
    f=(2, "float"),
    i=(3, "int64"),
    s=(4, "bytes"),
    t=(5, Tensor),
    g=(6, Graph),
    floats=(7, ["float"]),
    ints=(8, ["int64"]),
    strings=(9, ["bytes"]),
    tensors=(10, [Tensor]),
    graphs=(11, [Graph]),
    type=(20, "int32"),
    ref_attr_name=(21, "text"),
    sparse_tensor=(22, SparseTensor),
)
Function = _kind(
    "FunctionProto",
    name=(1, "text"),
    input=(4, ["text"]),
    output=(5, ["text"]),
    attribute=(6, ["text"]),
    node=(7, [Node]),
    opset_import=(9, [OperatorSet]),
    domain=(10, "text"),
    attribute_proto=(11, [Attribute]),
)
Model = _kind(
    "ModelProto",
    ir_version=(1, "int64"),
    producer_name=(2, "text"),
    domain=(4, "text"),
    model_version=(5, "int64"),
    doc_string=(6, "text"),
    graph=(7, Graph),
    opset_import=(8, [OperatorSet]),
    metadata_props=(14, [Entry]),
    functions=(25, [Function]),
)
