"""Graphs of int8 and uint8 values, written node by node, and what ONNX Runtime computes of them."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

ort = pytest.importorskip("onnxruntime")

KINDS = {
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.float32): TensorProto.FLOAT,
}


class Net:
    """A graph that is written node by node; `exact`: scales are powers of two, so that floats of its sums are exact."""

    def __init__(self, seed=0, exact=False):
        self.nodes, self.constants, self.rng, self.exact = [], [], np.random.default_rng(seed), exact

    def constant(self, a):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(a), name))
        return name

    def add(self, op, *inputs, domain="", **attrs):
        given = [v if isinstance(v, str) else self.constant(v) for v in inputs]
        result = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, given, [result], result, domain=domain, **attrs))
        return result

    def quantize(self, x, scale=0.05, zero=120, dtype=np.uint8, **attrs):
        return self.add("QuantizeLinear", x, np.float32(scale), np.asarray(zero, dtype), **attrs)

    def dequantize(self, q, scale=0.05, zero=120, dtype=np.uint8, **attrs):
        return self.add("DequantizeLinear", q, np.float32(scale), np.asarray(zero, dtype), **attrs)

    def between(self, x, *q):
        return self.dequantize(self.quantize(x, *q), *q)

    def weights(self, *shape, axis=0, each=True, dtype=np.int8, zero=0):
        info = np.iinfo(dtype)
        w = self.rng.integers(max(info.min, -127), info.max, shape, dtype, endpoint=True)
        n = shape[axis] if each else 1
        scale = 0.5 ** self.rng.integers(8, 11, n) if self.exact else self.rng.uniform(0.001, 0.003, n)
        scale = scale.astype(np.float32)
        zeros = np.full(n, zero, dtype)
        return self.add("DequantizeLinear", w, *((scale, zeros) if each else (scale[0], zeros[0])), axis=axis)

    def bias(self, n):
        q = self.rng.integers(-3000, 3000, n, dtype=np.int32)
        return self.add("DequantizeLinear", q, np.float32(2**-12 if self.exact else 2e-4), np.int32(0))

    def model(self, inputs, *results, shapes=None, types=None, opset=17):
        values = [helper.make_tensor_value_info(name, KINDS[np.dtype(d)], s) for name, (d, s) in inputs.items()]
        outputs = [
            helper.make_tensor_value_info(r, KINDS[np.dtype(types[i] if types else np.float32)], None)
            for i, r in enumerate(results)
        ]
        graph = helper.make_graph(self.nodes, "net", values, outputs, self.constants)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def runtime(proto, *arrays, fused=True):
    options = ort.SessionOptions()
    # its int8 products of processors without VNNI saturate sums of pairs in 16 bits
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not fused:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], arrays, strict=True)))
