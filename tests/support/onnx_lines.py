"""ONNX networks of lines such as "y = Gemm beta=2 x w c"."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper


def network(graph, inputs, constants=None, axes=1, opset=17):
    """An ONNX model of lines such as "y = Gemm beta=2 x w c", whose result, of so many axes, is that of the last one;
    "-" is no input. The first axis of an input is open, unless it is 1."""
    nodes = []
    for line in graph.split("; "):
        result, call = line.split(" = ")
        op, *words = call.split()
        attributes = {k: float(v) for k, v in (w.split("=") for w in words if "=" in w)}
        nodes.append(helper.make_node(op, [w.replace("-", "") for w in words if "=" not in w], [result], **attributes))
    shapes = {k: [n if n == 1 or i else "n" for i, n in enumerate(a.shape)] for k, a in inputs.items()} | {
        nodes[-1].output[0]: [None] * axes
    }
    x, y = (
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, shapes[k]) for k in names]
        for names in (inputs, nodes[-1].output)
    )
    weights = [
        numpy_helper.from_array(np.asarray(a, getattr(a, "dtype", "f4")), k) for k, a in (constants or {}).items()
    ]
    return helper.make_model(
        helper.make_graph(nodes, "g", x, y, weights), opset_imports=[helper.make_opsetid("", opset)], ir_version=8
    )
