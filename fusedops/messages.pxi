# Messages of protobuf, read by tables of their fields. Included by _core.pyx.
#
# A message is a row of fields: a key, number * 8 + wire type, then a varint, 4 or 8 bytes, or a length and as many
# bytes. Whatever ends too early or has another form is Damaged; a field of another number or wire type is passed over,
# as protobuf does. A field that comes once and is there twice is Damaged too: protobuf merges such, and writes it once.

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    DEEPEST_MESSAGE = 100  # inside each other, as in protobuf
    MOST_FIELDS = 32

cdef enum:  # what is made of a field
    AS_INT, AS_FLOAT, AS_TEXT, AS_DATA, AS_MESSAGE, AS_INTS, AS_NUMBERS, AS_TEXTS, AS_MESSAGES

INT, FLOAT, TEXT, DATA, MESSAGE, INTS, NUMBERS, TEXTS, MESSAGES = range(AS_MESSAGES + 1)


class Damaged(ValueError):
    """Bytes that are no message, or one that protobuf writes in another way."""


cdef class Message:
    """How messages of a type are read: each becomes `make(values)`, a list with its bytes and a value a field.

    `fields` is a list of (number, INT ... MESSAGES) and, for messages, (number, MESSAGE, Message). TEXT is a str, or
    bytes where it is no UTF-8; DATA a view of the bytes; INTS, TEXTS and MESSAGES are sequences; NUMBERS, floats or
    doubles, are a sequence of views of their bytes. What is missing is 0, "", (), or None for DATA and MESSAGE.
    """
    cdef object make
    cdef list missing
    cdef list inner
    cdef int places[MOST_FIELDS]
    cdef int kinds[MOST_FIELDS]

    def __init__(self, make):
        self.make, self.missing, self.inner = make, [None], [None]
        memset(self.places, 0, sizeof(self.places))

    def define(self, fields):
        for number, kind, *inner in fields:
            if not 0 < number < MOST_FIELDS:
                raise ValueError(f"field {number} is none of 1 to {MOST_FIELDS - 1}")
            self.places[number], self.kinds[number] = len(self.missing), kind
            self.missing.append({INT: 0, FLOAT: 0.0, TEXT: "", DATA: None, MESSAGE: None}.get(kind, ()))
            self.inner.append(inner[0] if inner else None)

    def read(self, bytes data):
        """What `make` makes of the message; Damaged where it is none."""
        cdef const uint8_t *start = data
        return read_message(self, memoryview(data), start, start, start + len(data), DEEPEST_MESSAGE)


cdef inline bint read_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) noexcept:
    cdef int shift = 0
    cdef uint8_t byte = 128
    value[0] = 0
    while byte >= 128 and at[0] < end and shift < 70:
        byte = at[0][0]
        value[0] |= <uint64_t>(byte & 127) << shift
        shift += 7
        at[0] += 1
    return byte < 128


cdef object read_message(Message message, object view, const uint8_t *base, const uint8_t *at, const uint8_t *end,
                         int deepest):
    cdef list values = message.missing.copy()
    cdef uint64_t key, n = 0
    cdef const uint8_t *data
    cdef int place, kind, wire
    values[0] = view[at - base:end - base]
    if deepest == 0:
        raise Damaged("it has messages too deep inside each other")
    while at < end:
        if not read_varint(&at, end, &key) or key < 8 or key >> 32:
            raise Damaged("a field has no number")
        wire, data = key & 7, at
        if wire == 0:
            if not read_varint(&at, end, &n):
                raise Damaged("an integer does not end")
        elif wire == 2:
            if not read_varint(&at, end, &n) or n > <uint64_t>(end - at):
                raise Damaged("a field is longer than its message")
            data, at = at, at + n
        elif wire == 1 or wire == 5:
            if end - at < (8 if wire == 1 else 4):
                raise Damaged("a number is longer than its message")
            at += 8 if wire == 1 else 4
        else:
            raise Damaged("a field has no known form")
        key >>= 3
        place = message.places[key] if key < MOST_FIELDS else 0
        if place:
            read_field(message, values, place, message.kinds[key], wire, n, view, base, data, at, deepest)
    return message.make(values)


cdef int read_field(Message message, list values, int place, int kind, int wire, uint64_t n, object view,
                    const uint8_t *base, const uint8_t *data, const uint8_t *end, int deepest) except -1:
    cdef object value
    cdef bint many = kind >= AS_INTS
    cdef uint32_t bits
    cdef float real
    if kind == AS_INT and wire == 0 or kind == AS_INTS and wire == 0:
        value = <int64_t>n
    elif kind == AS_INTS and wire == 2:
        while data < end:
            if not read_varint(&data, end, &n):
                raise Damaged("an integer does not end")
            put(values, place, <int64_t>n)
        return 0
    elif kind == AS_FLOAT and wire == 5:
        bits = data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        memcpy(&real, &bits, sizeof(real))
        value = real
    elif (kind == AS_TEXT or kind == AS_TEXTS) and wire == 2:
        try:
            value = PyUnicode_DecodeUTF8(<const char *>data, end - data, NULL)
        except UnicodeDecodeError:
            value = PyBytes_FromStringAndSize(<const char *>data, end - data)
    elif kind == AS_DATA and wire == 2 or kind == AS_NUMBERS and wire != 0:
        value = view[data - base:end - base]
    elif (kind == AS_MESSAGE or kind == AS_MESSAGES) and wire == 2:
        value = read_message(message.inner[place], view, base, data, end, deepest - 1)
    else:
        return 0
    if many:
        put(values, place, value)
    elif values[place] is not message.missing[place]:
        raise Damaged("a field is there twice")
    else:
        values[place] = value
    return 0


cdef inline int put(list values, int place, object value) except -1:
    if type(values[place]) is tuple:
        values[place] = [value]
    else:
        (<list>values[place]).append(value)
    return 0
