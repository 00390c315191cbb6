"""The types of elements, a row each: all that readers, operators and plans know of one.

NumPy has no bfloat16: such values are float32 in a graph, or their bits, of the type BFLOAT16, where they are only
moved. float16 and bfloat16 are ways to store; networks compute with them in float32.
"""

from typing import NamedTuple

import numpy as np

from ... import _core
from .errors import BadNode


class ElementType(NamedTuple):
    name: str  # NumPy's and torch's
    onnx: int  # TensorProto's number
    field: str = ""  # of a TensorProto, with the elements that are not in raw_data; "" where it has their bits
    tolerance: float = 0.0  # of results, by their largest value, where a module computes in this type
    stored: bool = False  # and computed in float32

    @property
    def dtype(self):
        """Its type in a graph."""
        return np.dtype(np.float32 if self.name == "bfloat16" else self.name)


ELEMENT_TYPES = (
    ElementType("float32", 1, "float_data", 1e-4),
    ElementType("uint8", 2, "int32_data"),
    ElementType("int8", 3, "int32_data"),
    ElementType("uint16", 4, "int32_data"),
    ElementType("int16", 5, "int32_data"),
    ElementType("int32", 6, "int32_data"),
    ElementType("int64", 7, "int64_data"),
    ElementType("bool", 9, "int32_data"),
    ElementType("float16", 10, tolerance=1e-2, stored=True),
    ElementType("float64", 11, "double_data", 1e-9),
    ElementType("uint32", 12, "uint64_data"),
    ElementType("uint64", 13, "uint64_data"),
    ElementType("bfloat16", 16, tolerance=5e-2, stored=True),
)
BY_NAME = {t.name: t for t in ELEMENT_TYPES}
BY_ONNX = {t.onnx: t for t in ELEMENT_TYPES}
FIELDS = {"float_data": "f4", "int32_data": "i4", "int64_data": "i8", "uint64_data": "u8", "double_data": "f8"}
BFLOAT16 = _core.BFLOAT16
NARROW = {np.dtype(np.float16): "float16", BFLOAT16: "bfloat16"}  # that kernels widen as they read, and their names
INT8 = np.dtype(np.uint8), np.dtype(np.int8)  # that quantized values have

# Sets of types that a kernel makes.
FLOAT32 = frozenset([np.dtype(np.float32)])
INT8_AND_FLOAT32 = FLOAT32.union(INT8)
PROGRAM = frozenset(_core.ELEMENTS)  # that steps of a program compare, choose and compute with
MOVED = frozenset(_core.MOVED)  # that they move and cast, too: those of 16 bits
ANY = frozenset([*(t.dtype for t in ELEMENT_TYPES), BFLOAT16])  # as elements are only moved


def from_onnx(number):
    """NumPy's type of elements of ONNX's number; BadNode where it has none."""
    if not isinstance(number, int) or number not in BY_ONNX:
        raise BadNode(f"ONNX's type of elements {number!r} is none of NumPy's")
    return BY_ONNX[number].dtype


def to_onnx(dtype):
    """ONNX's number of a type."""
    return BY_NAME[name_of(dtype)].onnx


def name_of(dtype):
    """The name of a type, which NumPy does not have for BFLOAT16; None where only a call knows the type."""
    return NARROW.get(dtype) or (None if dtype is None else np.dtype(dtype).name)
