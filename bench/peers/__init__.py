"""The systems that fusedops is compared with, a module each: ``prepare(operation, a, threads)`` makes a :class:`Call`.

A module walks through a case with a :class:`Builder` of its own and reports what it does not have as
:class:`Unsupported`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fusedops.benchmark.workloads import Block, Cell, Convolution

from ..cases import Attention, File, MaxPool, MBConv, Network, Product, Residual, Sequence
from ..encoder import Encoder
from ..passes import Pass


class Peer(NamedTuple):
    label: str
    module: str
    needs: tuple[str, ...] = ()  # what must be importable
    package: str = ""


PEERS = {
    "fusedops": Peer("fusedops", "ours"),
    "numpy": Peer("NumPy", "plain_numpy"),
    "pytorch": Peer("PyTorch", "pytorch", ("torch",), "torch"),
    "pytorch_compiled": Peer("PyTorch, compiled", "pytorch_compiled", ("torch",), "torch"),
    "onnxruntime": Peer("ONNX Runtime", "onnx_runtime", ("onnx", "onnxruntime"), "onnxruntime onnx"),
    "openvino": Peer("OpenVINO", "open_vino", ("onnx", "openvino"), "openvino onnx"),
    "ncnn": Peer("ncnn", "ncnn_net", ("ncnn",), "ncnn"),
    "xnnpack": Peer("XNNPACK", "xnnpack", ("ai_edge_litert", "flatbuffers"), "ai-edge-litert"),
    "tvm": Peer("TVM", "tvm_relax", ("onnx", "tvm"), "apache-tvm onnx"),
    "tvm_unfused": Peer("TVM, unfused", "tvm_unfused", ("onnx", "tvm"), "apache-tvm onnx"),
}


def _array(y):
    """The first, where there are several."""
    return np.asarray(y[0] if isinstance(y, (tuple, list)) else y)


class Call(NamedTuple):
    """What is timed, a function without arguments, and how to read what it returned: not timed."""

    run: Callable
    array: Callable = _array


class Unsupported(Exception):
    """The peer does not have this case; the text says why."""


def inputs(operation, a):
    """What a call is given: everything but the weights."""
    if isinstance(operation, File):
        return a.inputs
    if isinstance(operation, Attention):
        return a.qkv
    return [a.x, *a.states] if isinstance(operation, Cell) else [a.x]


class Builder:
    """Goes through a case and makes each of its steps; what a value is, the subclass decides."""

    activations = (None, "relu", "relu6")  # of convolutions

    def build(self, operation, a, x, *states):
        match operation:
            case Convolution():
                if operation.activation not in self.activations:
                    raise Unsupported(f"its {operation.activation} is not compared here")
                return self.convolution(x, operation, a)
            case Product():
                return self.product(x, operation, a)
            case Cell():
                return self.cell(x, operation, a, *states)
            case Sequence():
                return self.sequence(x, operation, a)
            case Attention():
                return self.attention(x, operation, *states)
            case MaxPool():
                return self.max_pool(x, operation)
            case Pass():
                return self.passed(x, operation, a)
            case Block():
                x, skip = self.fork(x, operation.residual)
                y = self._in_a_row(operation.parts, a.parts, x)
                return self.add(y, skip, None) if operation.residual else y
            case Residual():
                x, skip = self.fork(x, True)
                y = self._in_a_row(operation.body, a.body, x)
                return self.add(
                    y, skip if operation.skip is None else self.convolution(skip, operation.skip, a.skip), "relu"
                )
            case MBConv():
                x, skip = self.fork(x, operation.residual)
                y = self._in_a_row(operation.parts[:-1], a.parts[:-1], x)
                y = self.convolution(self.excite(y, operation, a), operation.parts[-1], a.parts[-1])
                return self.add(y, skip, None) if operation.residual else y
            case Encoder():
                return self.encoder(x, operation, a)
            case File():
                raise Unsupported("it reads no ONNX files")
            case Network():
                x = self._in_a_row(operation.parts, a.parts, x)
                return self.product(self.mean(x, operation), operation.head, a.head)

    def _in_a_row(self, parts, arrays, x):
        for part, a in zip(parts, arrays, strict=True):
            x = self.build(part, a, x)
        return x

    def fork(self, x, twice):
        """A value for two readers."""
        return x, x

    def encoder(self, x, operation, a):
        raise Unsupported("its encoder is not compared here")

    def excite(self, x, operation, a):
        raise Unsupported("its squeeze and excite is not compared here")

    def cell(self, x, operation, a, *states):
        raise Unsupported("its recurrent layers are not compared here")

    def attention(self, q, operation, *keys_and_values):
        raise Unsupported("its attention is not compared here")

    def passed(self, x, operation, a):
        raise Unsupported("its pools, norms and the like are not compared here")

    def sequence(self, x, operation, a):
        raise Unsupported("its recurrent layers are not compared here")
