"""A TFLite model as light records: tensors with their data as NumPy arrays, operators with their options, subgraphs and
signatures. The ``tflite`` package has the schema; what is damaged ends here, or where a reader misses an option."""

import contextlib
import math
import os
from typing import NamedTuple

import numpy as np

from ...._internal import install_hint
from ...._internal.mmap_arrays import opened, whole
from ...ir.errors import BadNode, DamagedFile
from ...ir.graph import Metadata
from .sparse import densified

IDENTIFIER = b"TFL3"
_PLAIN = {
    f"{t}{n}"
    for t, sizes in (("FLOAT", (16, 32, 64)), ("INT", (8, 16, 32, 64)), ("UINT", (8, 16, 32, 64)))
    for n in sizes
}
_PLAIN |= {"BOOL", "COMPLEX64"}
_LATER = {19: "INT2", 20: "UINT4"}  # types that the schema of the tflite package does not have yet
_PACKED = {"INT4": 4, "INT2": 2, "UINT4": 4}  # bits of an element, of which the first is in the lowest ones
_SCHEMA = "flatbuffers", "tflite"
_BLOCKWISE = 2  # the number of BlockwiseQuantization, which that schema does not have either
QUANTIZED = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int16)


def import_tflite():
    try:
        import tflite
    except ImportError:
        raise ImportError(f"reading TFLite models needs the tflite package: {install_hint.command('tflite')}") from None
    return tflite


def table_of(options):
    """The options of a custom operator that are a table of names."""
    from flatbuffers import flexbuffers

    with one_error("the table of its options"):
        found = flexbuffers.Loads(options)
    if not isinstance(found, dict):
        raise BadNode("its options are not a table of names")
    return NamedOptions(found)


class NamedOptions(dict):
    """Options by their names; one that is missing, or no number where one is asked for, is an error of the operator."""

    def __missing__(self, name):
        raise BadNode(f"its options have no {name!r}")

    def number(self, name, default=None):
        found = self[name] if default is None else self.get(name, default)
        return _number(name, found)

    def integers(self, name):
        found = self[name]
        if not isinstance(found, list):
            raise BadNode(f"its option {name!r} is {found!r}, no list")
        return [int(_number(name, n)) for n in found]


def _number(name, found):
    if not isinstance(found, (int, float)) or not math.isfinite(found):
        raise BadNode(f"its option {name!r} is {found!r}, no number")
    return found


class QuantizationParameters(NamedTuple):
    """real = scale * (stored - zero), with one number or one an index of `axis`."""

    scale: np.ndarray
    zero: np.ndarray
    axis: int


class Tensor(NamedTuple):
    """`shape` has -1 where an axis is open, and is None where the file does not say it; `data` is None where it is
    computed."""

    name: str
    shape: tuple | None
    dtype: np.dtype | None  # None: no numbers
    kind: str
    quantization: QuantizationParameters | None
    data: np.ndarray | None
    variable: bool


class Operation(NamedTuple):
    """`kind` is the name of a builtin operator, or of a custom one in quotes; -1 stands for an input that is left
    out."""

    kind: str
    inputs: list
    outputs: list
    options: object  # of the schema, or None
    custom: bytes

    def input(self, i):
        return self.inputs[i] if i < len(self.inputs) else -1


class Subgraph(NamedTuple):
    name: str
    tensors: list
    operations: list
    inputs: list
    outputs: list


class FlatModel(NamedTuple):
    """`signatures`: for each subgraph that has one (its key, {tensor: name} of inputs, the same of outputs)."""

    tflite: object
    subgraphs: list
    signatures: dict
    metadata: Metadata


def parse(model):
    """The FlatModel of a path, of bytes or of a binary file."""
    tflite, model = import_tflite(), whole(model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        what, data = "the model", bytes(model)
    else:
        path = os.fspath(model)
        what = repr(path)
        with opened(path) as f:
            data = f.read()
    if data[4:8] != IDENTIFIER:
        hint = "; fusedops.load reads saved networks" if data[:2] == b"PK" else ""
        raise DamagedFile(f"{what} is not a TFLite model: it does not say {IDENTIFIER.decode()} where one does{hint}")
    with one_error(f"{what} is not a TFLite model, or a damaged one", ": download it again"):
        return _Parser(tflite, data).model()


@contextlib.contextmanager
def one_error(what, todo=""):
    """Damage comes as one kind of error, that of checks here. Faults of this library show as they are."""
    try:
        with schema_errors():
            yield
    except ValueError as e:
        raise DamagedFile(f"{what}: {e}{todo}") from None


@contextlib.contextmanager
def schema_errors():
    """Whatever the schema's package raises where an offset leads outside, as a BadNode."""
    try:
        yield
    except Exception as e:
        if isinstance(e, ValueError) or not _is_of_schema(e):
            raise
        raise BadNode(next(iter(str(e).strip().splitlines()), type(e).__name__)) from e


def _is_of_schema(error):
    """Whether the code that raised an error is of the packages that have the schema, or read by it."""
    at = error.__traceback__
    while at.tb_next is not None:
        at = at.tb_next
    return at.tb_frame.f_globals["__name__"].partition(".")[0] in _SCHEMA


def names_of(enumeration):
    """{number: name} of an enumeration of the schema."""
    return {number: name for name, number in vars(enumeration).items() if isinstance(number, int)}


class _Parser:
    def __init__(self, tflite, data):
        self.tflite, self.data = tflite, data
        self.file = tflite.Model.GetRootAs(data, 0)
        self.operators, self.types = names_of(tflite.BuiltinOperator), _LATER | names_of(tflite.TensorType)
        self.options = names_of(tflite.BuiltinOptions), names_of(tflite.BuiltinOptions2)
        self.arrays = {}

    def model(self):
        codes = [self.code(self.file.OperatorCodes(i)) for i in self.each(self.file.OperatorCodesLength())]
        subgraphs = [self.subgraph(self.file.Subgraphs(i), codes) for i in self.each(self.file.SubgraphsLength())]
        if not subgraphs:
            raise ValueError("it has no subgraph")
        signatures = {}
        for i in self.each(self.file.SignatureDefsLength()):
            signature = self.file.SignatureDefs(i)
            inputs = self.named(signature.Inputs, signature.InputsLength())
            outputs = self.named(signature.Outputs, signature.OutputsLength())
            signatures.setdefault(signature.SubgraphIndex(), (text(signature.SignatureKey()), inputs, outputs))
        metadata = Metadata(graph=subgraphs[0].name, description=text(self.file.Description()))
        return FlatModel(self.tflite, subgraphs, signatures, metadata)

    def each(self, n):
        """The indices of a vector, which cannot have more elements than the file has bytes."""
        if n > len(self.data):
            raise ValueError(f"a list has {n} elements, more than the file has bytes")
        return range(n)

    def named(self, get, n):
        found = [get(i) for i in self.each(n)]
        return {each.TensorIndex(): text(each.Name()) for each in found}

    def code(self, code):
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        kind = self.operators.get(number)
        if kind == "CUSTOM":
            return repr(text(code.CustomCode()))
        if kind is None:
            return f"builtin operator {number}"
        return kind

    def subgraph(self, graph, codes):
        tensors = [self.tensor(graph.Tensors(i), i, graph) for i in self.each(graph.TensorsLength())]
        operations = [self.operation(graph.Operators(i), codes) for i in self.each(graph.OperatorsLength())]
        inputs, outputs = self.indices(graph.InputsAsNumpy()), self.indices(graph.OutputsAsNumpy())
        for i in (*inputs, *outputs, *(v for each in operations for v in (*each.inputs, *each.outputs))):
            if not -1 <= i < len(tensors):
                raise ValueError(f"it names tensor {i} of {len(tensors)}")
        return Subgraph(text(graph.Name()), tensors, operations, inputs, outputs)

    @staticmethod
    def indices(array):
        return [] if isinstance(array, int) else array.tolist()

    def operation(self, operator, codes):
        if not 0 <= operator.OpcodeIndex() < len(codes):
            raise ValueError(f"it names operator {operator.OpcodeIndex()} of {len(codes)}")
        kind = codes[operator.OpcodeIndex()]
        options = None
        for number, table, names in (
            (operator.BuiltinOptionsType(), operator.BuiltinOptions(), self.options[0]),
            (operator.BuiltinOptions2Type(), operator.BuiltinOptions2(), self.options[1]),
        ):
            if table is not None and number:
                if number not in names:
                    raise ValueError(f"an operator has options of the kind {number}, which the schema does not have")
                options = getattr(self.tflite, names[number])()
                options.Init(table.Bytes, table.Pos)
        custom = operator.CustomOptionsAsNumpy()
        custom = b"" if isinstance(custom, int) else custom.tobytes()
        return Operation(
            kind, self.indices(operator.InputsAsNumpy()), self.indices(operator.OutputsAsNumpy()), options, custom
        )

    def tensor(self, tensor, i, graph):
        name, kind = text(tensor.Name()) or f"tensor {i}", self.types.get(tensor.Type(), str(tensor.Type()))
        dtype = np.dtype(kind.lower()) if kind in _PLAIN else None
        if kind in _PACKED:
            dtype = np.dtype(np.uint8 if kind[0] == "U" else np.int8)
        dtype = np.dtype(np.float32) if kind == "BFLOAT16" else dtype
        shape = None if tensor.ShapeIsNone() else tuple(self.indices(tensor.ShapeAsNumpy()))
        if tensor.ShapeSignatureLength():
            shape = tuple(self.indices(tensor.ShapeSignatureAsNumpy()))
        data = self.array(tensor, name, kind, dtype, () if shape is None else shape)
        if data is not None and tensor.Quantization() and tensor.Quantization().DetailsType() == _BLOCKWISE:
            data = self.real(tensor.Quantization().Details(), name, data, graph)
            dtype = data.dtype
        return Tensor(
            name, shape, dtype, kind, self.quantization(tensor, dtype, shape), data, bool(tensor.IsVariable())
        )

    def array(self, tensor, name, kind, dtype, shape):
        """The data of a tensor as an array; None where it is computed."""
        raw = self.raw(tensor.Buffer())
        if not len(raw) or dtype is None:
            return None
        if min(shape, default=0) < 0:
            raise ValueError(f"tensor {name!r} has data and an open shape, {shape}")
        if kind in _PACKED:
            bits = _PACKED[kind]
            each = np.left_shift(raw[:, np.newaxis], np.arange(8 - bits, -1, -bits, dtype=np.uint8)).view(dtype)
            raw = (each >> (8 - bits)).reshape(-1)[: math.prod(shape)]
        elif kind == "BFLOAT16":
            raw = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        stored = raw.view(dtype.newbyteorder("<")).astype(dtype, copy=False)
        stored = stored if stored.flags.aligned else stored.copy()
        sparsity = tensor.Sparsity()
        if sparsity is not None:
            return densified(self.tflite, sparsity, stored, shape, self.each)
        if stored.size != math.prod(shape):
            raise ValueError(f"tensor {name!r} of shape {shape} has {stored.size} elements of {dtype}")
        return stored.reshape(shape)

    def real(self, details, name, stored, graph):
        """The real numbers of weights (n, k) that have a scale, and perhaps a zero point, for each block of a row."""

        def number(slot):
            at = details.Offset(4 + 2 * slot)
            return details.Get(number_types.Int32Flags, at + details.Pos) if at else 0

        def array(i):
            return self.tensor(graph.Tensors(i), i, graph).data if 0 <= i < graph.TensorsLength() else None

        from flatbuffers import number_types

        if details is None:
            raise ValueError(f"tensor {name!r} has no scales for its blocks")
        scale, zero, block = (number(slot) for slot in range(3))
        scale = array(scale)
        zero = array(zero) if zero > 0 else np.zeros_like(scale)  # a number that is left out reads as 0
        if scale is None or zero is None or block < 1 or stored.ndim != 2 or stored.shape[1] % block:
            raise ValueError(f"tensor {name!r} of shape {stored.shape} has no scales for blocks of {block}")
        shape = len(stored), stored.shape[1] // block, 1
        scale, zero = (a.reshape(shape).astype(np.float32) for a in (scale, zero))
        return ((stored.reshape(*shape[:2], block) - zero) * scale).reshape(stored.shape)

    def raw(self, i):
        """The bytes of a buffer."""
        if not 0 <= i < self.file.BuffersLength():
            raise ValueError(f"it names buffer {i} of {self.file.BuffersLength()}")
        buffer = self.file.Buffers(i)
        if buffer.Offset() > 1:  # after the tables, in a file of more than 2 GB
            start, size = buffer.Offset(), buffer.Size()
            if start + size > len(self.data):
                raise ValueError(f"buffer {i} ends at byte {start + size} of {len(self.data)}")
            return np.frombuffer(self.data, np.uint8, size, start)
        found = buffer.DataAsNumpy()
        return np.empty(0, np.uint8) if isinstance(found, int) else found

    def quantization(self, tensor, dtype, shape):
        given = tensor.Quantization()
        if given is None or not given.ScaleLength() or dtype not in (*QUANTIZED, np.int32, np.int64):
            return None
        scale = given.ScaleAsNumpy().astype(np.float32)
        zero = given.ZeroPointAsNumpy() if given.ZeroPointLength() else np.zeros(scale.size, np.int64)
        axis = given.QuantizedDimension()
        if zero.size != scale.size and zero.size == 1:
            zero = np.repeat(zero, scale.size)
        if zero.size != scale.size or scale.size > 1 and not (shape and 0 <= axis < len(shape)):
            raise ValueError(f"{scale.size} scales and {zero.size} zero points do not fit a tensor of shape {shape}")
        return QuantizationParameters(scale, zero.astype(np.int64), axis if scale.size > 1 else 0)


def text(raw):
    return "" if raw is None else raw.decode("utf-8", "replace")
