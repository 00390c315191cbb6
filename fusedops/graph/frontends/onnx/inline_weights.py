"""Large weights inside an ONNX file stay where they are: the model is parsed without their data, which becomes data in
another file, namely in the model's own bytes. A parsed message would copy them, and so would each array made of it.

A message is fields in a row: a key, (number << 3) + wire type, and a varint, 8 bytes, a length with so many bytes, or 4
bytes.
"""

OWN = "\0"  # the location of data in the model's own bytes: no file has that name
LARGE = 1 << 16  # bytes of data that are worth it
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_DATA = "raw_data"
_INSIDE = {  # where data is: the numbers of fields in onnx.proto
    "ModelProto": {7: "GraphProto", 25: "FunctionProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto"},
    "FunctionProto": {7: "NodeProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {5: "TensorProto", 6: "GraphProto", 11: "GraphProto"},
    "TensorProto": {9: _DATA},
}
_EXTERNAL_DATA, _DATA_LOCATION, _EXTERNAL = 13, 14, 1  # of TensorProto


def without_data(model):
    """A serialized model without large data; None where it has none, or is no such message."""
    data = memoryview(model)
    try:
        pieces = _pieces(data, 0, len(data), "ModelProto")
    except (IndexError, RecursionError, ValueError):  # whoever parses it says what is wrong
        return None
    return b"".join(pieces) if len(pieces) > 1 else None


def _pieces(data, start, end, message):
    """The bytes of a message, with others in place of large data."""
    pieces, behind, kept = [], [], start  # of a field that comes twice the last one counts
    for number, at, value, stop in _long_fields(data, start, end):
        inner = _INSIDE[message].get(number)
        if inner == _DATA:
            pieces.append(data[kept:at])
            behind = [_reference(value, stop - value)]
            kept = stop
        elif inner:
            parts = _pieces(data, value, stop, inner)
            if len(parts) > 1:
                pieces += [data[kept:at], _field(number, b"".join(parts))]
                kept = stop
    return [*pieces, data[kept:end], *behind]


def _long_fields(data, start, end):
    """(number, where it begins, where its bytes begin and end) of each field of many bytes."""
    at = start
    while at < end:
        key, value = _read_varint(data, at)
        wire = key & 7
        if wire == _BYTES:
            size, value = _read_varint(data, value)
            stop = value + size
        elif wire == _VARINT:
            stop = _read_varint(data, value)[1]
        elif wire in (_EIGHT, _FOUR):
            stop = value + (8 if wire == _EIGHT else 4)
        else:
            raise ValueError(f"a field of type {wire}")
        if stop > end:
            raise ValueError("a field ends behind its message")
        if wire == _BYTES and stop - value >= LARGE:
            yield key >> 3, at, value, stop
        at = stop


def _read_varint(data, at):
    """(a number, where it ends)."""
    number = data[at]
    if number < 128:
        return number, at + 1
    number &= 127
    for i in range(1, 10):
        byte = data[at + i]
        number |= (byte & 127) << 7 * i
        if byte < 128:
            return number, at + i + 1
    raise ValueError("a number of more than 64 bits")


def _varint(number):
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes(found) + bytes([number])


def _field(number, content):
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _reference(offset, length):
    """The fields of a tensor that say where its data is."""
    entries = {"location": OWN, "offset": offset, "length": length}
    pairs = (_field(1, key.encode()) + _field(2, str(value).encode()) for key, value in entries.items())
    place = _varint(_DATA_LOCATION << 3 | _VARINT) + _varint(_EXTERNAL)
    return b"".join(_field(_EXTERNAL_DATA, pair) for pair in pairs) + place
