"""ONNX Runtime's CPU provider, with all its graph optimizations."""

import onnxruntime

from . import Call, inputs
from .onnx_model import onnx_model


def prepare(operation, a, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(onnx_model(operation, a), options, providers=["CPUExecutionProvider"])
    feed = dict(zip((i.name for i in session.get_inputs()), inputs(operation, a), strict=True))
    return Call(lambda: session.run(None, feed))
