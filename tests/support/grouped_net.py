"""A network of one GroupQueryAttention."""

import numpy as np
from onnx import helper, numpy_helper


def grouped(heads, kv, size, rotary, kind):
    """Queries, keys and values of one input, and the past, of floats of a type of TensorProto."""
    features = (heads + 2 * kv) * size
    inputs = [("x", ["b", "t", features]), ("pk", ["b", kv, "p", size]), ("pv", ["b", kv, "p", size])]
    info = helper.make_tensor_value_info
    node = helper.make_node(
        "GroupQueryAttention", ["x", "", "", "pk", "pv", "last", "total", *(["cos", "sin"] if rotary else [])],
        ["y", "k", "v"], domain="com.microsoft", num_heads=heads, kv_num_heads=kv, do_rotary=int(rotary),
    )  # fmt: skip
    angles = np.arange(64)[:, np.newaxis] * 0.5 ** np.arange(size // 2)
    tables = [
        numpy_helper.from_array(f(angles).astype(helper.tensor_dtype_to_np_dtype(kind)), n)
        for f, n in ((np.cos, "cos"), (np.sin, "sin"))
    ]
    graph = helper.make_graph(
        [node], "g", [*(info(n, kind, s) for n, s in inputs), info("last", 6, ["b"]), info("total", 6, [])],
        [info("y", kind, ["b", "t", heads * size]), *(info(n, kind, ["b", kv, "q", size]) for n in "kv")],
        tables if rotary else [],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
