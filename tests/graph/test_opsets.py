"""Every operator, in each of the opsets 7 to 21 that has it in this form, against ONNX Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo

RNG = np.random.default_rng(0)
IMAGE, ROWS, STEPS = (RNG.uniform(0.3, 1, shape).astype(np.float32) for shape in ((2, 4, 6, 6), (2, 6), (3, 2, 6)))
AXES = {"Shape": 1, "Flatten": 2, "Reshape": 3, "Squeeze": 3, "Unsqueeze": 5, "RNN": 4, "LSTM": 4, "GRU": 4}
TYPES = {"Shape": TensorProto.INT64, "Cast": TensorProto.INT64}


def floats(*shape):
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def scales(*values):
    return np.array(values, np.float32)


def case(op, *constants, x=IMAGE, opsets=(7, 21), outputs=1, **attrs):
    return op, constants, x, range(opsets[0], opsets[-1] + 1), outputs, attrs


NEW, PAIR = (11, 21), dict(kernel_shape=[2, 2])
CASES = [
    case("Conv", floats(6, 4, 3, 3), floats(6), pads=[1] * 4),
    case("Conv", floats(5, 4, 3), x=IMAGE[:, :, 0], pads=[1, 1]),
    case("ConvTranspose", floats(4, 3, 3, 3), strides=[2, 2], pads=[1] * 4, output_padding=[1, 1]),
    case("BatchNormalization", *floats(4, 4)),
    case("Gemm", floats(6, 5), floats(5), x=ROWS),
    case("Gemm", floats(5, 6), floats(5), x=ROWS, transB=1, alpha=0.5, beta=2.0),
    case("MatMul", floats(6, 5), x=ROWS),
    *map(
        case,
        (
            "Relu",
            "Elu",
            "Sigmoid",
            "Tanh",
            "HardSigmoid",
            "Softplus",
            "Softsign",
            "Sqrt",
            "Exp",
            "Flatten",
            "Shape",
            "Dropout",
            "Identity",
            "GlobalAveragePool",
            "GlobalMaxPool",
        ),
    ),
    *(case(op, floats(4, 1, 1)) for op in ("Add", "Sub", "Mul", "Div", "PRelu")),
    case("LeakyRelu", alpha=0.1),
    case("Clip", min=0.4, max=0.8, opsets=(7, 10)),
    case("Clip", np.float32(0.4), np.float32(0.8), opsets=NEW),
    case("Gelu", opsets=(20, 21)),
    case("Gelu", opsets=(20, 21), approximate="tanh"),
    case("HardSwish", opsets=(14, 21)),
    case("Mish", opsets=(18, 21)),
    case("Sum", IMAGE, IMAGE),
    case("Pow", np.float32(2)),
    case("Erf", opsets=(9, 21)),
    case("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    case("MaxPool", **PAIR, opsets=(10, 21), dilations=[2, 2]),
    case("MaxPool", kernel_shape=[3, 3], opsets=(10, 21), strides=[2, 2], ceil_mode=1),
    case("AveragePool", **PAIR, pads=[1] * 4),
    case("AveragePool", **PAIR, pads=[1] * 4, count_include_pad=1),
    case("AveragePool", **PAIR, opsets=(19, 21), dilations=[2, 2]),
    case("ReduceMean", opsets=(7, 17), axes=[2, 3]),
    case("ReduceMean", ints(2, 3), opsets=(18, 21)),
    case("Reshape", ints(0, -1, 3)),
    case("Transpose", perm=[0, 2, 3, 1]),
    case("Squeeze", x=IMAGE[:, :1], opsets=(7, 12), axes=[1]),
    case("Squeeze", ints(1), x=IMAGE[:, :1], opsets=(13, 21)),
    case("Unsqueeze", opsets=(7, 12), axes=[1]),
    case("Unsqueeze", ints(1), opsets=(13, 21)),
    case("Concat", IMAGE, axis=1),
    case("Gather", ints(2, 0), axis=1),
    case("Split", opsets=(7, 12), outputs=2, axis=1, split=[1, 3]),
    case("Split", ints(1, 3), opsets=(13, 21), outputs=2, axis=1),
    case("Slice", opsets=(7, 9), starts=[1], ends=[4], axes=[2]),
    case("Slice", ints(1), ints(5), ints(2), ints(2), opsets=(10, 21)),
    case("Pad", opsets=(7, 10), pads=[0, 0, 1, 1] * 2),
    case("Pad", ints(*[0, 0, 1, 1] * 2), opsets=NEW),
    case("Pad", ints(*[0, 0, 1, 1] * 2), opsets=NEW, mode="reflect"),
    case("Upsample", opsets=(7, 8), scales=[1.0, 1.0, 2.0, 2.0]),
    case("Pad", ints(1, 1, 1, 1), np.float32(0), ints(2, 3), opsets=(18, 21)),
    case("Upsample", scales(1, 1, 2, 2), opsets=(9, 9)),
    case("Upsample", scales(1, 1, 2, 2), opsets=(9, 9), mode="linear"),
    case("Resize", scales(1, 1, 2, 2), opsets=(10, 10)),
    *(case("Resize", scales(), scales(1, 1, 2, 1.5), opsets=NEW, mode=mode) for mode in ("nearest", "linear")),
    *(
        case(
            "Resize",
            scales(),
            scales(1, 1, 7 / 6, 1.6),
            opsets=NEW,
            mode="linear",
            coordinate_transformation_mode=transform,
        )
        for transform in ("align_corners", "half_pixel", "asymmetric", "pytorch_half_pixel")
    ),
    *(case(op, x=x, axis=1) for op in ("Softmax", "LogSoftmax") for x in (IMAGE, ROWS)),
    case("LRN", size=3),
    *(case(op, x=STEPS) for op in ("Softmax", "LogSoftmax")),
    case("LayerNormalization", *floats(2, 6), opsets=(17, 21)),
    case("InstanceNormalization", *floats(2, 4)),
    case("Dropout", np.float32(0.5), opsets=(12, 21)),
    case("Cast", to=TensorProto.INT64),
    case("Expand", ints(2, 4, 6, 6), x=IMAGE[:, :, :1], opsets=(8, 21)),
    *(
        case(op, floats(1, g * 5, 6) - 1, floats(1, g * 5, 5) - 1, x=STEPS, outputs=n, hidden_size=5)
        for op, g, n in (("RNN", 1, 2), ("LSTM", 4, 3), ("GRU", 3, 2))
    ),
]


def proto(op, constants, x, opset, outputs, attrs):
    results, names = [f"y{i}" for i in range(outputs)], [f"c{i}" for i in range(len(constants))]
    node = helper.make_node(op, ["x", *names], results, **attrs)
    known = AXES.get(op, x.ndim)
    states = op in ("RNN", "LSTM", "GRU")  # results after the first have an axis less
    shapes = [[f"{name}_{axis}" for axis in range(known - (states and i > 0))] for i, name in enumerate(results)]
    kind, stored = TYPES.get(op, TensorProto.FLOAT), map(numpy_helper.from_array, constants, names)
    values = [helper.make_tensor_value_info(name, kind, shape) for name, shape in zip(results, shapes, strict=True)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    graph = helper.make_graph([node], "g", inputs, values, list(stored))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("opset", range(7, 22))
def test_opset(opset):
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    for op, constants, x, opsets, outputs, attrs in CASES:
        if opset not in opsets:
            continue
        model = proto(op, constants, x, opset, outputs, attrs)
        expected = ort.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
        for fold, fuse in ((True, True), (False, False)):
            found = fo.load_onnx(model, fold=fold, fuse=fuse).run({"x": x})
            for a, b in zip(found.values(), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"{op} {attrs}")


@pytest.mark.parametrize("opset", [7, 10])
@pytest.mark.parametrize("bounds", [{}, {"min": -2.0}, {"max": 3.0}, {"min": -2.0, "max": 3.0}])
def test_infinities_become_bounds_by_default(bounds, opset):
    """Before opset 11 a bound that a file leaves out is the largest float32."""
    x, most = np.array([-np.inf, -5, 0, 7, np.inf, np.nan], np.float32), np.finfo(np.float32).max
    nodes = [helper.make_node("Clip", ["x"], ["y"], **bounds)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    net = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))
    np.testing.assert_array_equal(net(x), np.clip(x, bounds.get("min", -most), bounds.get("max", most)))


@pytest.mark.parametrize("op, number", [("LeakyRelu", 0.01), ("Selu", 1.6732632423543772)])
def test_defaults_are_float32_in_float64_too(op, number):
    x = np.array([-1.0, -3.0, -40.0])
    values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [None]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", values[:1], values[1:])
    net = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8))
    number = float(np.float32(number))
    right = number * x if op == "LeakyRelu" else float(np.float32(1.0507009873554805)) * number * np.expm1(x)
    np.testing.assert_allclose(net(x), right, rtol=1e-14)
