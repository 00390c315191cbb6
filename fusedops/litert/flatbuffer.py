"""What a TFLite file says of its tensors and signatures: names, sizes and scales, which a network does not need and
programs ask for. The file is one that :func:`fusedops.load_tflite` has read."""

from typing import Any, NamedTuple

import numpy as np

TYPES = {
    "FLOAT32": np.float32,
    "FLOAT16": np.float16,
    "FLOAT64": np.float64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "BOOL": np.bool_,
    "COMPLEX64": np.complex64,
    "COMPLEX128": np.complex128,
    "STRING": np.bytes_,
    "INT4": np.int8,
}


class Tensor(NamedTuple):
    """`shape` has numbers for all axes, `signature` -1 where one is open; `data` is None where it is computed."""

    name: str
    number: int
    shape: np.ndarray
    signature: np.ndarray
    dtype: Any
    scales: np.ndarray
    zero_points: np.ndarray
    axis: int
    data: np.ndarray | None

    def details(self, shape=None):
        """The tensor as LiteRT describes one; with another shape where it was resized or computed."""
        one = self.scales.size == 1
        return {
            "name": self.name,
            "index": self.number,
            "shape": np.array(self.shape if shape is None else shape, np.int32),
            "shape_signature": self.signature.copy(),
            "dtype": self.dtype,
            "quantization": (float(self.scales[0]), int(self.zero_points[0])) if one else (0.0, 0),
            "quantization_parameters": {
                "scales": self.scales.copy(),
                "zero_points": self.zero_points.copy(),
                "quantized_dimension": self.axis,
                "block_size": 0,
            },
            "sparsity_parameters": {},
        }


class Signature(NamedTuple):
    """The subgraph that it names, and the tensors of that by their names in it."""

    subgraph: int
    inputs: dict[str, int]
    outputs: dict[str, int]


class File:
    """The tensors, inputs and outputs of each subgraph, and the signatures by their keys."""

    def __init__(self, data):
        import tflite

        model = tflite.Model.GetRootAs(data, 0)
        self._types = {number: name for name, number in vars(tflite.TensorType).items() if isinstance(number, int)}
        self.data, self._graphs = data, [model.Subgraphs(i) for i in range(model.SubgraphsLength())]
        self.tensors = [[self._tensor(model, g.Tensors(i), i) for i in range(g.TensorsLength())] for g in self._graphs]
        self.inputs = [_indices(g.InputsAsNumpy()) for g in self._graphs]
        self.outputs = [_indices(g.OutputsAsNumpy()) for g in self._graphs]
        found = [model.SignatureDefs(i) for i in range(model.SignatureDefsLength())]
        self.signatures = {
            _text(s.SignatureKey()): Signature(
                s.SubgraphIndex(), _named(s.Inputs, s.InputsLength()), _named(s.Outputs, s.OutputsLength())
            )
            for s in found
        }
        self.has_variables = any(
            g.Tensors(i).IsVariable() or self._types.get(g.Tensors(i).Type()) == "RESOURCE"
            for g in self._graphs
            for i in range(g.TensorsLength())
        )

    def _tensor(self, model, tensor, i):
        shape = np.array(_indices(tensor.ShapeAsNumpy()), np.int32)
        open_ = tensor.ShapeSignatureLength() > 0
        signature = np.array(_indices(tensor.ShapeSignatureAsNumpy()), np.int32) if open_ else shape
        dtype, given = TYPES.get(self._types.get(tensor.Type(), "")), tensor.Quantization()
        scales = np.array(given.ScaleAsNumpy() if given and given.ScaleLength() else [], np.float32)
        zeros = np.array(given.ZeroPointAsNumpy() if given and given.ZeroPointLength() else [], np.int32)
        if zeros.size < scales.size:
            zeros = np.zeros(scales.size, np.int32) if not zeros.size else np.repeat(zeros, scales.size)
        axis = given.QuantizedDimension() if given else 0
        data = self._data(model, tensor, dtype, shape)
        return Tensor(_text(tensor.Name()), i, shape, signature, dtype, scales, zeros, axis, data)

    def _data(self, model, tensor, dtype, shape):
        """The elements of a constant as the file has them; None of those that are packed or sparse."""
        raw = model.Buffers(tensor.Buffer()).DataAsNumpy()
        if isinstance(raw, int) or not raw.size or dtype is None or tensor.Sparsity() is not None:
            return None
        if raw.size != np.dtype(dtype).itemsize * np.prod(shape, dtype=np.int64):
            return None
        return raw.view(np.dtype(dtype).newbyteorder("<")).astype(dtype).reshape(shape)

    def resized(self, sizes):
        """The file with other sizes of inputs: {(subgraph, tensor): shape} of as many axes as they have."""
        data = bytearray(self.data)
        for (subgraph, i), shape in sizes.items():
            tensor = self._graphs[subgraph].Tensors(i)
            for slot in _SHAPE, _SHAPE_SIGNATURE:
                at = tensor._tab.Offset(slot)
                if at:
                    start = tensor._tab.Vector(at)
                    data[start : start + 4 * len(shape)] = np.array(shape, "<i4").tobytes()
        return bytes(data)


_SHAPE, _SHAPE_SIGNATURE = 4, 18  # slots of a tensor in the schema


def _indices(array):
    return [] if isinstance(array, int) else array.tolist()


def _named(get, n):
    return {_text(get(i).Name()): get(i).TensorIndex() for i in range(n)}


def _text(raw):
    return "" if raw is None else raw.decode("utf-8", "replace")
