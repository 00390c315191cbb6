"""Writes a network in today's format, its input and what ONNX's reference makes of it: ``python make_saved.py NAME``.

Run it when a release changes what a file may hold, under a new name; files that are there stay as they are. The first
one, ``saved_1_first``, was written by the first version that could save (commit f958dce), before weights of 16 bits and
graphs inside nodes.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import fusedops as fo

NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[N, 3, 8, 8] x, bool[] flag) => (float[N, 16] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w)
    b = BatchNormalization(c, gamma, beta, mean, variance)
    r = Relu(b)
    m = GlobalAveragePool(r)
    f = Flatten(m)
    g = Gemm<transB = 1>(f, v, u)
    y = If(flag) <then_branch = yes () => (float[N, 16] s) { s = Sigmoid(g) },
                  else_branch = no () => (float[N, 16] t) { t = Gemm<transB = 1>(g, v2) }>
}"""


def main(name):
    rng = np.random.default_rng(0)
    shapes = {
        "w": (6, 3, 3, 3),
        "gamma": (6,),
        "beta": (6,),
        "mean": (6,),
        "variance": (6,),
        "v": (16, 6),
        "u": (16,),
        "v2": (16, 16),
    }
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    weights["v"] = weights["v"].astype(np.float16).astype(np.float32)  # which a file keeps in 16 bits
    weights["variance"] = weights["variance"] ** 2 + np.float32(0.5)
    proto = onnx.parser.parse_model(NET)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in weights.items())
    inputs = {"x": rng.standard_normal((2, 3, 8, 8)).astype(np.float32), "flag": np.array(False)}
    y = ReferenceEvaluator(proto).run(None, inputs)[0]
    folder = Path(__file__).parent
    fo.load_onnx(proto).save(folder / f"{name}.fo")
    np.savez(folder / f"{name}.npz", y=y, **inputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
