"""ncnn: batch norm folded by us, as its converters do, activations as parameters of its layers."""

import struct
import tempfile
from pathlib import Path

import ncnn
import numpy as np

from fusedops import fold_batch_norm

from . import Builder, Call, Unsupported

ACTIVATIONS = {None: "", "relu": " 9=1", "relu6": " 9=3 -23310=2,0.0,6.0"}


class NcnnBuilder(Builder):
    """Values are names of blobs; each has one reader."""

    def __init__(self):
        self.layers, self.weights, self.blobs = ["Input in 0 1 in"], bytearray(), ["in"]

    def layer(self, kind, values, parameters="", outputs=1):
        names = [f"b{len(self.blobs) + i}" for i in range(outputs)]
        self.blobs += names
        self.layers.append(
            f"{kind} l{len(self.layers)} {len(values)} {outputs} {' '.join((*values, *names))} {parameters}"
        )
        return names if outputs > 1 else names[0]

    def store(self, w, bias):
        self.weights += struct.pack("<I", 0) + w.astype("<f4").tobytes() + bias.astype("<f4").tobytes()  # 0: as floats

    def convolution(self, x, operation, a):
        if operation.batch != 1:
            raise Unsupported("takes one image")
        w, bias = fold_batch_norm(a.w, None, a.bn)
        self.store(w, bias)
        kind, groups = (
            ("Convolution", "") if operation.groups == 1 else ("ConvolutionDepthWise", f" 7={operation.groups}")
        )
        return self.layer(
            kind,
            [x],
            f"0={operation.outputs} 1={operation.kernel} 3={operation.stride} 4={operation.padding} 5=1 "
            f"6={w.size}{groups}{ACTIVATIONS[operation.activation]}",
        )

    def product(self, x, operation, a):
        self.store(a.w, a.bias)
        gelu = operation.activation == "gelu_tanh"
        y = self.layer(
            "InnerProduct",
            [x],
            f"0={operation.outputs} 1=1 2={a.w.size}{'' if gelu else ACTIVATIONS[operation.activation]}",
        )
        return self.layer("GELU", [y], "0=1") if gelu else y

    def add(self, x, y, activation):
        z = self.layer("BinaryOp", [x, y], "0=0")
        return self.layer("ReLU", [z]) if activation else z

    def max_pool(self, x, operation):
        return self.layer("Pooling", [x], "0=0 1=3 2=2 3=1 5=1")

    def mean(self, x, operation):
        return self.layer("Pooling", [x], "0=1 4=1")

    def fork(self, x, twice):
        return self.layer("Split", [x], outputs=2) if twice else (x, None)


def prepare(operation, a, threads):
    builder = NcnnBuilder()
    result = builder.build(operation, a, "in")
    net = ncnn.Net()
    net.opt.num_threads = threads
    for reduced in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
        setattr(net.opt, reduced, False)
    with tempfile.TemporaryDirectory() as folder:
        parameters, weights = Path(folder, "net.param"), Path(folder, "net.bin")
        parameters.write_text(
            "\n".join(["7767517", f"{len(builder.layers)} {len(builder.blobs)}", *builder.layers, ""])
        )
        weights.write_bytes(builder.weights)
        if net.load_param(str(parameters)) or net.load_model(str(weights)):
            raise Unsupported("does not load the net")
    image = ncnn.Mat(np.ascontiguousarray(a.x[0] if a.x.ndim == 4 else a.x)).clone()

    def call():
        extractor = net.create_extractor()
        extractor.input("in", image)
        return extractor, extractor.extract(result)[1]  # which lives as long as the extractor

    return Call(call, lambda y: np.array(y[1]))
