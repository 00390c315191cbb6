"""A case as an ONNX model, batch norm and activation as nodes of their own: whoever reads it does the fusing."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..cases import File
from . import Builder, inputs

OPSET = 20  # the first with Gelu
GATE_ORDER = {"RNN": [0], "LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}  # ONNX's: iofc, zrh


class OnnxBuilder(Builder):
    """Values are names."""

    activations = (*Builder.activations, "silu")

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, kind, *values, outputs=("",), **attributes):
        """The name of the node's output, the last of those in `outputs`; "" is one without a name of its own."""
        names = [*outputs[:-1], f"v{len(self.nodes)}"]
        self.nodes.append(helper.make_node(kind, list(values), names, **attributes))
        return names[-1]

    def activation(self, x, name):
        match name:
            case None:
                return x
            case "relu":
                return self.node("Relu", x)
            case "relu6":
                return self.node("Clip", x, *(self.constant(np.float32(v)) for v in (0, 6)))
            case "gelu_tanh":
                return self.node("Gelu", x, approximate="tanh")
            case "sigmoid":
                return self.node("Sigmoid", x)
            case "silu":
                return self.node("Mul", x, self.node("Sigmoid", x))

    def convolution(self, x, operation, a):
        p = operation.padding
        y = self.node(
            "Conv",
            x,
            self.constant(a.w),
            kernel_shape=a.w.shape[2:],
            strides=[operation.stride] * 2,
            pads=[p] * 4,
            group=operation.groups,
        )
        y = self.node("BatchNormalization", y, *map(self.constant, a.bn[:4]), epsilon=a.bn.eps)
        return self.activation(y, operation.activation)

    def product(self, x, operation, a):
        return self.activation(
            self.node("Gemm", x, self.constant(a.w), self.constant(a.bias), transB=1), operation.activation
        )

    def add(self, x, y, activation):
        return self.activation(self.node("Add", x, y), activation)

    def max_pool(self, x, operation):
        return self.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)

    def passed(self, x, operation, a):
        """Channels lie as ONNX has them."""
        options, parameters = dict(operation.options), [self.constant(v) for v in a.parameters]
        match operation.function:
            case "max_pool2d" | "avg_pool2d":
                kind = "MaxPool" if operation.function == "max_pool2d" else "AveragePool"
                k, more = options["kernel_size"], {} if kind == "MaxPool" else {"count_include_pad": 1}
                return self.node(
                    kind,
                    x,
                    kernel_shape=[k, k],
                    strides=[options.get("stride", k)] * 2,
                    pads=[options.get("padding", 0)] * 4,
                    **more,
                )
            case "softmax":
                return self.node("Softmax", x, axis=options.get("axis", -1))
            case "layer_norm":
                x = x if a.residual is None else self.node("Add", x, self.constant(a.residual))
                return self.node("LayerNormalization", x, *parameters, axis=-1)
            case "resize":
                scales = self.constant(np.float32([1, 1, options["scale"], options["scale"]]))
                if options.get("mode") == "linear":
                    return self.node("Resize", x, "", scales, mode="linear")
                return self.node(
                    "Resize",
                    x,
                    "",
                    scales,
                    mode="nearest",
                    nearest_mode="floor",
                    coordinate_transformation_mode="asymmetric",
                )
            case _:
                return super().passed(x, operation, a)

    def excite(self, x, operation, a):
        """As exporters write it: products are 1x1 convolutions."""
        y = self.node("GlobalAveragePool", x)
        for product, b in zip(operation.excite, a.excite, strict=True):
            y = self.node("Conv", y, self.constant(b.w[..., np.newaxis, np.newaxis]), self.constant(b.bias))
            y = self.activation(y, product.activation)
        return self.node("Mul", x, y)

    def encoder(self, x, operation, a):
        """As exporters write it: heads are an axis that is reshaped and transposed."""
        split = self.constant(np.array([0, 0, operation.heads, -1]))
        joined = self.constant(np.array([0, 0, operation.width]))
        scale = self.constant(np.float32((operation.width // operation.heads) ** -0.5))

        def product(x, w, bias):
            return self.node("Add", self.node("MatMul", x, self.constant(w.T)), self.constant(bias))

        def norm(x, parameters):
            return self.node("LayerNormalization", x, *map(self.constant, parameters), axis=-1, epsilon=1e-5)

        for layer in a.layers:
            q, k, v = (
                self.node("Transpose", self.node("Reshape", product(x, w, b), split), perm=perm)
                for w, b, perm in zip(*(np.split(p, 3) for p in layer.qkv), ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
            )
            weights = self.node("Softmax", self.node("Mul", self.node("MatMul", q, k), scale), axis=-1)
            heads = self.node("Transpose", self.node("MatMul", weights, v), perm=[0, 2, 1, 3])
            x = norm(self.node("Add", x, product(self.node("Reshape", heads, joined), *layer.out)), layer.norm1)
            y = product(self.node("Gelu", product(x, *layer.wide)), *layer.narrow)
            x = norm(self.node("Add", x, y), layer.norm2)
        return x

    def mean(self, x, operation):
        return self.node("Flatten", self.node("GlobalAveragePool", x))

    def cell(self, x, operation, a, *states):
        """One step; its last state alone is a result."""
        axis = self.constant(np.array([0]))
        x, *states = (self.node("Unsqueeze", v, axis) for v in (x, *states))
        return self.node("Squeeze", self._recurrent(x, operation, a, states, ("", "")), axis)

    def sequence(self, x, operation, a):
        return self.node("Squeeze", self._recurrent(x, operation, a, [], ("",)), self.constant(np.array([1])))

    def attention(self, q, operation, k, v):
        """As exporters write it; a causal mask is a constant."""
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.node("Mul", scores, self.constant(np.float32(operation.width**-0.5)))
        if operation.causal:
            scores = self.node(
                "Add", scores, self.constant(np.triu(np.full((operation.tokens,) * 2, -np.inf, np.float32), 1))
            )
        return self.node("MatMul", self.node("Softmax", scores, axis=-1), v)

    def _recurrent(self, x, operation, a, states, outputs):
        def ordered(v):
            return np.concatenate([np.split(v, len(order))[k] for k in order])

        order = GATE_ORDER[operation.mode]
        w_ih, w_hh, b_ih, b_hh = map(ordered, a.weights)
        weights = [self.constant(v[np.newaxis]) for v in (w_ih, w_hh, np.concatenate([b_ih, b_hh]))]
        options = {"linear_before_reset": 1} if operation.mode == "GRU" else {}
        return self.node(
            operation.mode,
            x,
            *weights,
            *(["", *states] if states else []),
            outputs=outputs,
            hidden_size=operation.hidden,
            **options,
        )


def onnx_model(operation, a):
    """The model's bytes; those of a case have inputs that are called x, x1 and x2."""
    if isinstance(operation, File):
        return Path(operation.path).read_bytes()
    values = inputs(operation, a)
    names = [f"x{i or ''}" for i in range(len(values))]
    builder = OnnxBuilder()
    y = builder.build(operation, a, *names)
    graph = helper.make_graph(
        builder.nodes,
        "case",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in zip(names, values, strict=True)],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
        builder.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()
