"""The table of element types against ONNX's own, and what a file has of each."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper

import fusedops as fo
from fusedops.graph.ir.dtypes import BY_ONNX, ELEMENT_TYPES, FIELDS, from_onnx, to_onnx

FIELD = [t for t in ELEMENT_TYPES if t.field]


@pytest.mark.parametrize("t", ELEMENT_TYPES, ids=lambda t: t.name)
def test_numbers_are_onnx_own(t):
    assert TensorProto.DataType.Name(t.onnx) == {"float32": "FLOAT", "float64": "DOUBLE"}.get(t.name, t.name.upper())
    if t.name != "bfloat16":
        assert from_onnx(t.onnx) == helper.tensor_dtype_to_np_dtype(t.onnx) == t.dtype and to_onnx(t.dtype) == t.onnx


@pytest.mark.parametrize("t", FIELD, ids=lambda t: t.name)
def test_field_of_a_tensor(t):
    """Elements that are not in raw_data are read from the field that ONNX says, as numbers of its type."""
    assert t.field == helper.tensor_dtype_to_field(t.onnx)
    values = [0, 1] if t.dtype == bool else [0, 1, np.iinfo(t.dtype).max] if t.dtype.kind in "iu" else [0, 0.5, 1e30]
    tensor = TensorProto(data_type=t.onnx, dims=[len(values)], name="c", **{t.field: values})
    node = helper.make_node("Identity", ["c"], ["y"])
    output = helper.make_tensor_value_info("y", t.onnx, [len(values)])
    graph = helper.make_graph([node], "net", [], [output], [tensor])
    y = fo.load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))()
    assert y.dtype == t.dtype
    np.testing.assert_array_equal(y, np.array(values, t.dtype))


def test_every_field_has_its_type():
    assert {t.field for t in FIELD} == set(FIELDS)
    assert BY_ONNX[TensorProto.BFLOAT16].dtype == np.float32, "NumPy has no bfloat16"
