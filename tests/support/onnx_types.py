"""Models of ONNX with other types of elements."""

import onnx
from onnx import helper, numpy_helper


def retyped(proto, kind):
    """The same model with tensors of TensorProto's type `kind` for those of float32 and float16, in all graphs."""
    made = onnx.ModelProto.FromString(proto.SerializeToString())
    floats = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16

    def tensor(t):
        if t.data_type in floats:
            array = numpy_helper.to_array(t).astype(helper.tensor_dtype_to_np_dtype(kind))
            t.CopyFrom(numpy_helper.from_array(array, t.name))

    def graph(g):
        for value in (*g.input, *g.output):
            if value.type.tensor_type.elem_type in floats:
                value.type.tensor_type.elem_type = kind
        for t in g.initializer:
            tensor(t)
        for attribute in (a for node in g.node for a in node.attribute):
            if attribute.HasField("t"):
                tensor(attribute.t)
            if attribute.HasField("g"):
                graph(attribute.g)

    graph(made.graph)
    return made
