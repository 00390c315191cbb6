"""Networks of one node, as fusedops and ONNX Runtime compute them."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import fusedops as fo

few = settings(max_examples=25, deadline=None, derandomize=True)
SEEDS = st.integers(0, 10**6)


def floats(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(seed, low, high, *shape, dtype=np.int64):
    return np.random.default_rng(seed).integers(low, high, shape, endpoint=True).astype(dtype)


def ints(*numbers):
    return np.array(numbers, np.int64)


def model(op, inputs, constants, outputs, domain="", attrs=(), opset=21):
    """A network of one node; `inputs` and `constants` are arrays by name in the order of the node's inputs, None for
    one that it does not have; `outputs` are types of elements, None for one that is not wanted."""
    names = [name if given is not None else "" for name, given in {**inputs, **constants}.items()]
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(a.dtype), [f"{name}{i}" for i in range(a.ndim)]
        )
        for name, a in inputs.items()
        if a is not None
    ]
    made = {f"y{i}": t for i, t in enumerate(outputs) if t is not None}
    results = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(t)), None)
        for name, t in made.items()
    ]
    written = [f"y{i}" if t is not None else "" for i, t in enumerate(outputs)]
    node = helper.make_node(op, names, written, domain=domain, name=op, **dict(attrs))
    stored = [numpy_helper.from_array(a, name) for name, a in constants.items() if a is not None]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph([node], "g", values, results, stored), opset_imports=opsets, ir_version=9
    )


def peer(proto, given):
    """What ONNX Runtime computes; the one function here that needs it."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    # its int8 products of processors without VNNI saturate sums of pairs in 16 bits
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return ort.InferenceSession(proto.SerializeToString(), options).run(None, given)


def agree(
    op, inputs, constants=None, outputs=(np.float32,), domain="", opset=21, rtol=1e-4, atol=2e-5, attrs=(), **more
):
    """Raises AssertionError unless both compute the same, in types and shapes too, with fusion and without."""
    given = {k: a for k, a in inputs.items() if a is not None}
    proto = model(op, inputs, constants or {}, outputs, domain, {**dict(attrs), **more}, opset)
    expected = peer(proto, given)
    for fold, fuse in ((True, True), (False, False)):
        found = fo.load_onnx(proto, fold=fold, fuse=fuse).run(given)
        for a, b in zip(found.values(), expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape, f"{a.dtype} {a.shape}, not {b.dtype} {b.shape}"
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=atol)
