"""Small TFLite models, written with the schema of the ``tflite`` package."""

from typing import NamedTuple

import numpy as np


class Tensor(NamedTuple):
    """`data` is None where it is computed or an input; `scale` and `zero` are numbers, or one an index of `axis`."""

    shape: tuple
    dtype: object = np.float32
    data: object = None
    scale: object = None
    zero: object = 0
    axis: int = 0
    signature: tuple | None = None
    variable: bool = False
    name: str = ""
    sparsity: object = None  # a function of the builder that writes it
    details: object = None  # the same of BlockwiseQuantization


class Op(NamedTuple):
    """An operator: `options` are (name of a table, {field: number or list}); a custom one has `custom`, its bytes."""

    kind: str
    inputs: list
    outputs: list
    options: tuple | None = None
    custom: bytes | None = None


class Graph(NamedTuple):
    tensors: list
    ops: list
    inputs: list
    outputs: list


def constant(data, **more):
    data = np.asarray(data)
    return Tensor(data.shape, data.dtype, data, **more)


def write(*graphs, signatures=()):
    """The bytes of a model. `signatures`: (subgraph, {name: tensor} of inputs, the same of outputs, and a key)."""
    return _Writer(graphs, signatures).bytes()


def single(kind, inputs, outputs, options=None, custom=None):
    """A model of one operator: `inputs` are Tensors, None where left out; those with data are constants."""
    tensors = [t for t in (*inputs, *outputs) if t is not None]
    at = {id(t): i for i, t in enumerate(tensors)}
    places = [[-1 if t is None else at[id(t)] for t in ts] for ts in (inputs, outputs)]
    given = [at[id(t)] for t in inputs if t is not None and t.data is None and not t.variable]
    return write(Graph(tensors, [Op(kind, *places, options, custom)], given, places[1]))


class _Writer:
    def __init__(self, graphs, signatures):
        import flatbuffers
        import tflite

        self.tflite, self.b = tflite, flatbuffers.Builder(1024)
        self.graphs, self.signatures, self.data = graphs, signatures, [None]
        kinds = dict.fromkeys((op.kind, op.custom is not None) for g in graphs for op in g.ops)
        self.codes = {kind: i for i, kind in enumerate(kinds)}

    def bytes(self):
        b, t = self.b, self.tflite
        codes = [self.code(*kind) for kind in self.codes]
        graphs = [self.graph(g) for g in self.graphs]
        signatures = [self.signature(*s) for s in self.signatures]
        buffers = [self.buffer(a) for a in self.data]
        lists = [self.tables(x) for x in (codes, graphs, buffers, signatures)]
        t.ModelStart(b)
        t.ModelAddVersion(b, 3)
        for add, found in zip(
            (t.ModelAddOperatorCodes, t.ModelAddSubgraphs, t.ModelAddBuffers, t.ModelAddSignatureDefs), lists
        ):
            add(b, found)
        b.Finish(t.ModelEnd(b), file_identifier=b"TFL3")
        return bytes(b.Output())

    def tables(self, offsets):
        self.b.StartVector(4, len(offsets), 4)
        for o in reversed(offsets):
            self.b.PrependUOffsetTRelative(o)
        return self.b.EndVector()

    def ints(self, values):
        return self.b.CreateNumpyVector(np.asarray(values, np.int32))

    def code(self, kind, custom):
        b, t = self.b, self.tflite
        name = b.CreateString(kind) if custom else None
        number = t.BuiltinOperator.CUSTOM if custom else getattr(t.BuiltinOperator, kind)
        t.OperatorCodeStart(b)
        t.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
        t.OperatorCodeAddBuiltinCode(b, number)
        if custom:
            t.OperatorCodeAddCustomCode(b, name)
        return t.OperatorCodeEnd(b)

    def buffer(self, a):
        b, t = self.b, self.tflite
        data = None if a is None else b.CreateNumpyVector(np.ascontiguousarray(a).reshape(-1).view(np.uint8))
        t.BufferStart(b)
        if data is not None:
            t.BufferAddData(b, data)
        return t.BufferEnd(b)

    def graph(self, g):
        b, t = self.b, self.tflite
        lists = [self.tables([self.tensor(x, i) for i, x in enumerate(g.tensors)])]
        lists += [self.ints(g.inputs), self.ints(g.outputs), self.tables([self.op(op) for op in g.ops])]
        t.SubGraphStart(b)
        adders = t.SubGraphAddTensors, t.SubGraphAddInputs, t.SubGraphAddOutputs, t.SubGraphAddOperators
        for add, found in zip(adders, lists):
            add(b, found)
        return t.SubGraphEnd(b)

    def tensor(self, x, i):
        b, t = self.b, self.tflite
        buffer = 0
        if x.data is not None:
            buffer = len(self.data)
            self.data.append(x.data)
        name, shape = b.CreateString(x.name or f"t{i}"), self.ints(x.shape)
        signature = None if x.signature is None else self.ints(x.signature)
        q = None if x.scale is None else self.quantization(x)
        sparsity = None if x.sparsity is None else x.sparsity(t, b)
        t.TensorStart(b)
        t.TensorAddShape(b, shape)
        kind = x.dtype if isinstance(x.dtype, (str, int)) else np.dtype(x.dtype).name.upper()
        t.TensorAddType(b, kind if isinstance(kind, int) else getattr(t.TensorType, kind))
        t.TensorAddBuffer(b, buffer)
        t.TensorAddName(b, name)
        for add, value in ((t.TensorAddShapeSignature, signature), (t.TensorAddQuantization, q)):
            if value is not None:
                add(b, value)
        if sparsity is not None:
            t.TensorAddSparsity(b, sparsity)
        t.TensorAddIsVariable(b, x.variable)
        return t.TensorEnd(b)

    def quantization(self, x):
        b, t = self.b, self.tflite
        details = None if x.details is None else x.details(t, b)
        scale = b.CreateNumpyVector(np.atleast_1d(np.asarray(x.scale, np.float32)))
        zero = b.CreateNumpyVector(np.broadcast_to(np.asarray(x.zero, np.int64), np.atleast_1d(x.scale).shape).copy())
        t.QuantizationParametersStart(b)
        t.QuantizationParametersAddScale(b, scale)
        t.QuantizationParametersAddZeroPoint(b, zero)
        t.QuantizationParametersAddQuantizedDimension(b, x.axis)
        if details is not None:
            t.QuantizationParametersAddDetailsType(b, 2)
            t.QuantizationParametersAddDetails(b, details)
        return t.QuantizationParametersEnd(b)

    def op(self, op):
        b, t = self.b, self.tflite
        inputs, outputs = self.ints(op.inputs), self.ints(op.outputs)
        custom = None if not op.custom else b.CreateNumpyVector(np.frombuffer(op.custom, np.uint8))
        second = op.options is not None and not hasattr(t.BuiltinOptions, op.options[0])
        options = None if op.options is None else self.options(*op.options)
        t.OperatorStart(b)
        t.OperatorAddOpcodeIndex(b, self.codes[op.kind, op.custom is not None])
        t.OperatorAddInputs(b, inputs)
        t.OperatorAddOutputs(b, outputs)
        if custom is not None:
            t.OperatorAddCustomOptions(b, custom)
        if options is not None and second:
            t.OperatorAddBuiltinOptions2Type(b, getattr(t.BuiltinOptions2, op.options[0]))
            t.OperatorAddBuiltinOptions2(b, options)
        elif options is not None:
            t.OperatorAddBuiltinOptionsType(b, getattr(t.BuiltinOptions, op.options[0]))
            t.OperatorAddBuiltinOptions(b, options)
        return t.OperatorEnd(b)

    def options(self, name, fields):
        b, t = self.b, self.tflite
        values = {}
        for field, value in fields.items():
            if isinstance(value, str):
                value = b.CreateString(value)
            elif isinstance(value, (list, tuple)):
                kind = np.float32 if any(isinstance(v, float) for v in value) else np.int32
                value = b.CreateNumpyVector(np.asarray(value, kind))
            elif isinstance(value, np.ndarray):
                value = b.CreateNumpyVector(value)
            values[field] = value
        getattr(t, f"{name}Start")(b)
        for field, value in values.items():
            getattr(t, f"{name}Add{field}")(b, value)
        return getattr(t, f"{name}End")(b)

    def signature(self, subgraph, inputs, outputs, called="serving_default"):
        b, t = self.b, self.tflite
        lists = []
        for names in (inputs, outputs):
            found = []
            for name, i in names.items():
                text = b.CreateString(name)
                t.TensorMapStart(b)
                t.TensorMapAddName(b, text)
                t.TensorMapAddTensorIndex(b, i)
                found.append(t.TensorMapEnd(b))
            lists.append(self.tables(found))
        key = b.CreateString(called)
        t.SignatureDefStart(b)
        t.SignatureDefAddInputs(b, lists[0])
        t.SignatureDefAddOutputs(b, lists[1])
        t.SignatureDefAddSignatureKey(b, key)
        t.SignatureDefAddSubgraphIndex(b, subgraph)
        return t.SignatureDefEnd(b)
