"""Arrays of .npz archives that are not compressed, read in one go: zipfile takes 10 ms to import, and NumPy 0.1 ms for
each array.

An archive is members in a row, each after a header of its own; a directory at the end, with a row for each; and an end
record that says where that begins. Numbers that do not fit into 32 bits stand in extra fields and in a second end.
"""

import math
import re
import struct
import zlib

import numpy as np

_ENTRY = struct.Struct("<4s4x2H4x3I3H8xI")  # a row of the directory: what of it counts
_LARGE = 0xFFFFFFFF  # stands for a number of 64 bits elsewhere
_HEADER = re.compile(
    rb"\{'descr': '([<>|=]?[a-z]\d+)', 'fortran_order': (True|False), 'shape': \(((?:\d+, )*\d*,?)\), \}\s*"
)


class Archive:
    """The arrays in bytes, or in a mapped file, by name; each is read when it is asked for."""

    def __init__(self, data):
        self._data, self._members = memoryview(data), {}
        count, at = _directory(data)
        for _ in range(count):
            at = self._enter(at)
        if sum(size for _, size, _, _ in self._members.values()) > len(data):
            raise ValueError("its arrays overlap")  # a small file could hold any number of large ones

    def _enter(self, at):
        """Notes a row of the directory; returns where the next one is."""
        signature, flags, method, crc, packed, size, name, extra, comment, start = _unpacked(_ENTRY, self._data, at)
        if signature != b"PK\1\2":
            raise ValueError("its directory is damaged")
        if method or flags & 1:
            raise ValueError("it is compressed")  # save writes none; a small file could unpack to any size
        first = at + _ENTRY.size
        fields = bytes(self._data[first + name : first + name + extra])
        numbers = _wide(fields, [size, packed, start])
        self._members[bytes(self._data[first : first + name]).decode()] = crc, *numbers
        return first + name + extra + comment

    def __getitem__(self, name):
        if f"{name}.npy" not in self._members:
            raise ValueError(f"it has no array {name}")
        crc, size, packed, at = self._members[f"{name}.npy"]
        signature, skipped, extra = _unpacked(struct.Struct("<4s22x2H"), self._data, at)
        start = at + 30 + skipped + extra
        content = self._data[start : start + size]
        if signature != b"PK\3\4" or size != packed or len(content) != size or zlib.crc32(content) != crc:
            raise ValueError(f"the bytes of array {name} are not those that were written")
        return _array(content)


def _unpacked(form, data, at):
    if not 0 <= at <= len(data) - form.size:
        raise ValueError("it ends early")
    return form.unpack_from(data, at)


def _directory(data):
    """(how many rows the directory has, where they begin)."""
    end = data.rfind(b"PK\5\6", max(len(data) - (1 << 16) - 22, 0))
    if end < 0:
        raise ValueError("it ends early")
    count, start = _unpacked(struct.Struct("<10xH4xI2x"), data, end)
    if count == 0xFFFF or start == _LARGE:
        signature, second = _unpacked(struct.Struct("<4s4xQ4x"), data, end - 20)
        if signature != b"PK\6\7":
            raise ValueError("its directory is damaged")
        count, start = _unpacked(struct.Struct("<32xQ8xQ"), data, second)
    return count, start


def _wide(fields, numbers):
    """Numbers of the directory, those of 64 bits from its extra fields."""
    at = 0
    while _LARGE in numbers and at + 4 <= len(fields):
        kind, size = struct.unpack_from("<2H", fields, at)
        if kind == 1:
            wide = iter(_unpacked(struct.Struct(f"<{size // 8}Q"), fields, at + 4))
            return [next(wide, n) if n == _LARGE else n for n in numbers]
        at += 4 + size
    return numbers


def _array(content):
    """The array of a member: a copy, whose elements are aligned."""
    major = content[6] if bytes(content[:6]) == b"\x93NUMPY" else 0
    long = major > 1
    (size,) = _unpacked(struct.Struct("<I" if long else "<H"), content, 8)
    start = size + (12 if long else 10)
    found = _HEADER.fullmatch(bytes(content[12 if long else 10 : start]))
    if major not in (1, 2, 3) or found is None:
        raise ValueError("an array has another header than those that were written")
    dtype, turned = _dtype(found[1].decode()), found[2] == b"True"
    shape = tuple(int(n) for n in found[3].split(b",") if n.strip())
    count = math.prod(shape)
    if count * dtype.itemsize != len(content) - start:
        raise ValueError(f"an array of shape {shape} has {len(content) - start} bytes")
    if not count:
        return np.empty(shape, dtype)
    flat = np.frombuffer(content, dtype, count, start)
    return (flat.reshape(shape[::-1]).T if turned else flat.reshape(shape)).copy("K")


def _dtype(name):
    try:
        return np.dtype(name)
    except TypeError:
        raise ValueError(f"an array has elements of type {name!r}") from None
