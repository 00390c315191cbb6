"""OpenVINO's CPU plugin, for latency, in float32."""

import io

import openvino

from . import Call, inputs
from .onnx_model import onnx_model


def prepare(operation, a, threads):
    core = openvino.Core()
    model = core.read_model(io.BytesIO(onnx_model(operation, a)))
    compiled = core.compile_model(
        model,
        "CPU",
        {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"},
    )
    request, values = compiled.create_infer_request(), inputs(operation, a)
    return Call(lambda: request.infer(values, share_inputs=True, share_outputs=True), lambda y: y[0])
