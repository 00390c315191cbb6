"""XNNPACK through LiteRT, which hands it whole graphs: a .tflite model written here, channels last, batch norm folded
by us."""

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from fusedops import fold_batch_norm

from . import Builder, Call, inputs

NONE, RELU, RELU6 = (getattr(schema.ActivationFunctionType, name) for name in ("NONE", "RELU", "RELU6"))
ACTIVATIONS = {None: NONE, "relu": RELU, "relu6": RELU6}
VERSION = 3  # of the file format


class TfliteBuilder(Builder):
    """Values are numbers of tensors, which know their shapes."""

    def __init__(self):
        self.graph, self.model = schema.SubGraphT(), schema.ModelT()
        self.graph.tensors, self.graph.operators = [], []
        self.model.operatorCodes, self.model.subgraphs = [], [self.graph]
        self.model.buffers = [schema.BufferT()]  # the first is empty by convention: tensors that are no constants
        self.model.version = VERSION

    def tensor(self, shape, kind=schema.TensorType.FLOAT32, buffer=0):
        t = schema.TensorT()
        t.shape, t.type, t.buffer, t.name = list(shape), kind, buffer, f"t{len(self.graph.tensors)}"
        self.graph.tensors.append(t)
        return len(self.graph.tensors) - 1

    def constant(self, array):
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        kind = schema.TensorType.FLOAT32 if array.dtype == np.float32 else schema.TensorType.INT32
        return self.tensor(array.shape, kind, len(self.model.buffers) - 1)

    def node(self, kind, values, shape, **options):
        """A node with its options, ``Conv2DOptions`` for a CONV_2D; returns its result."""
        code, node, result = schema.OperatorCodeT(), schema.OperatorT(), self.tensor(shape)
        number, name = kind
        code.builtinCode = number
        code.deprecatedBuiltinCode = min(number, 127)
        self.model.operatorCodes.append(code)
        node.opcodeIndex = len(self.model.operatorCodes) - 1
        node.inputs, node.outputs = list(values), [result]
        node.builtinOptionsType = getattr(schema.BuiltinOptions, name)
        node.builtinOptions = getattr(schema, name + "T")()
        for option, value in options.items():
            setattr(node.builtinOptions, option, value)
        self.graph.operators.append(node)
        return result

    def shape(self, value):
        return self.graph.tensors[value].shape

    def padded(self, x, padding):
        """A node of its own where "SAME" is not the same on both sides."""
        n, h, w, c = self.shape(x)
        amounts = self.constant(np.array([[0, 0], [padding] * 2, [padding] * 2, [0, 0]], np.int32))
        return self.node(
            (schema.BuiltinOperator.PAD, "PadOptions"), [x, amounts], (n, h + 2 * padding, w + 2 * padding, c)
        )

    def convolution(self, x, operation, a):
        w, bias = fold_batch_norm(a.w, None, a.bn)
        same = operation.stride == 1
        if not same and operation.padding:
            x = self.padded(x, operation.padding)
        shape = operation.batch, operation.result_size, operation.result_size, operation.outputs
        options = dict(
            padding=schema.Padding.SAME if same else schema.Padding.VALID,
            strideW=operation.stride,
            strideH=operation.stride,
            fusedActivationFunction=ACTIVATIONS[operation.activation],
        )
        if operation.groups == 1:
            kind, order = (schema.BuiltinOperator.CONV_2D, "Conv2DOptions"), (0, 2, 3, 1)
        else:
            kind, order = (schema.BuiltinOperator.DEPTHWISE_CONV_2D, "DepthwiseConv2DOptions"), (1, 2, 3, 0)
            options["depthMultiplier"] = 1
        return self.node(kind, [x, self.constant(w.transpose(order)), self.constant(bias)], shape, **options)

    def product(self, x, operation, a):
        gelu = operation.activation == "gelu_tanh"
        shape = operation.rows, operation.outputs
        y = self.node(
            (schema.BuiltinOperator.FULLY_CONNECTED, "FullyConnectedOptions"),
            [x, self.constant(a.w), self.constant(a.bias)],
            shape,
            fusedActivationFunction=NONE if gelu else ACTIVATIONS[operation.activation],
        )
        return self.node((schema.BuiltinOperator.GELU, "GeluOptions"), [y], shape, approximate=True) if gelu else y

    def add(self, x, y, activation):
        return self.node(
            (schema.BuiltinOperator.ADD, "AddOptions"),
            [x, y],
            self.shape(x),
            fusedActivationFunction=ACTIVATIONS[activation],
        )

    def max_pool(self, x, operation):
        """Zeros around an image after a ReLU: as good as nothing."""
        size = operation.size // 2
        return self.node(
            (schema.BuiltinOperator.MAX_POOL_2D, "Pool2DOptions"),
            [self.padded(x, 1)],
            (1, size, size, operation.channels),
            padding=schema.Padding.VALID,
            strideW=2,
            strideH=2,
            filterWidth=3,
            filterHeight=3,
        )

    def mean(self, x, operation):
        n, _, _, c = self.shape(x)
        return self.node(
            (schema.BuiltinOperator.MEAN, "ReducerOptions"), [x, self.constant(np.array([1, 2], np.int32))], (n, c)
        )

    def file(self, x, y):
        self.graph.inputs, self.graph.outputs = [x], [y]
        writer = flatbuffers.Builder(1 << 20)
        writer.Finish(self.model.Pack(writer), b"TFL3")
        return bytes(writer.Output())


def prepare(operation, a, threads):
    builder = TfliteBuilder()
    given = inputs(operation, a)[0]
    image = given.ndim == 4
    values = np.ascontiguousarray(given.transpose(0, 2, 3, 1)) if image else given
    x = builder.tensor(values.shape)
    y = builder.build(operation, a, x)
    interpreter = Interpreter(model_content=builder.file(x, y), num_threads=threads)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], values)

    def array(_):
        y = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        return y.transpose(0, 3, 1, 2) if y.ndim == 4 else y

    return Call(interpreter.invoke, array)
