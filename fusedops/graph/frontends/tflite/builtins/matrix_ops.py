"""Products of matrices."""

import numpy as np

from .entry import Builtin, activated
from .image_ops import bias, rounding


def _fully_connected(r, op):
    """x w^T + bias over rows; integers of a float input's weights make a product of int8 that quantizes its input."""
    x, held = op.inputs[:2]
    if op.option("WeightsFormat"):
        raise op.error("its weights are in the shuffled order of one processor: convert the model without it")
    w, q, sizes = r.array(held), held.quantization, r.fixed(held)
    if sizes is None or len(sizes) != 2:
        raise op.error(f"its weights have shape {sizes}, not (outputs, inputs)")
    n, k = sizes
    as_it_is = _is_of_rows(op, r.sizes(x), k)
    rows = r.value(x) if as_it_is else r.emit("Reshape", r.value(x), [-1, k])
    b = bias(r, op, 2)
    if _is_dynamic(x, w, q):
        y = _with_bias(r, _dynamic(r, rows, w, q), b)
    elif as_it_is and r.rank(x) > 2:
        y = _with_bias(r, r.emit("MatMul", rows, _columns(r, op, held, w, q), **rounding(r, op, n)), b)
    else:
        y = r.emit("Gemm", rows, _rows(r, op, held, w, q), b, transB=1, **rounding(r, op, n))
    y = activated(r, op, y)
    r.put(op.outputs[0], y if as_it_is else _shaped(r, op, y, n))


def _is_of_rows(op, shape, k):
    """Whether the product is one of the input as it is: rows of k that keep their axes."""
    return bool(shape and len(shape) > 1 and shape[-1] == k and (len(shape) == 2 or op.option("KeepNumDims")))


def _is_dynamic(x, w, q):
    """Whether floats meet weights of int8."""
    return w is not None and q is not None and x.quantization is None and w.dtype == np.int8 and not q.zero.any()


def _with_bias(r, y, b):
    return r.emit("Add", y, b) if b else y


def _columns(r, op, held, w, q):
    """The weights as a value (k, n)."""
    if w is None:
        return r.emit("Transpose", r.value(held), perm=[1, 0])
    if q is None or op.inputs[0].quantization is None:
        return r.constant(f"{r.at}.weights", np.ascontiguousarray(r.real_array(held).T), np.float32)
    value = r.constant(f"{r.at}.weights", np.ascontiguousarray(w.T), w.dtype)
    return r.emit("DequantizeLinear", value, *r.quantization(q, w.dtype), axis=1 - q.axis)


def _rows(r, op, held, w, q):
    """The weights (n, k) as a value."""
    if w is not None and (q is None or op.inputs[0].quantization is None):
        return r.constant(f"{r.at}.weights", r.real_array(held), np.float32)
    return r.value(held)


def _dynamic(r, rows, w, q):
    """A product of weights of int8 by floats, of which each row is quantized as it comes, as ONNX spells it out."""
    known = r.info(rows)
    x, scale, zero = r.emit("DynamicQuantizeLinear", rows, count=3, each=1 if known is None else len(known.shape) - 1)
    w = r.constant(f"{r.at}.weights", np.ascontiguousarray(w.T), np.int8)
    sums = r.emit("Cast", r.emit("MatMulInteger", x, w, zero), to=1)
    each = r.constant(f"{r.at}.scale", q.scale if q.scale.size > 1 else q.scale[0], np.float32)
    return r.emit("Mul", sums, r.emit("Mul", scale, each))


def _shaped(r, op, y, n):
    """The rows in the shape that the operator says."""
    sizes = r.sizes(op.inputs[0])
    if not op.option("KeepNumDims") or sizes is None or len(sizes) == 2:
        return y
    shape = [-1 if m is None else m for m in (*sizes[:-1], n)]
    if shape.count(-1) > 1:
        raise op.error("several of its sizes are open: convert it with one open size, the batch")
    return r.emit("Reshape", y, shape)


def _batch_matmul(r, op):
    values = []
    for held, adjoint in zip(op.inputs[:2], (op.option("AdjX"), op.option("AdjY")), strict=True):
        value, rank = r.value(held), r.rank(held)
        if adjoint:
            if rank is None:
                raise op.error(f"the number of axes of {held.tensor.name!r} is not known")
            a, q = r.array(held), held.quantization
            perm = [*range(rank - 2), rank - 1, rank - 2]
            if a is not None and q is not None and q.scale.size == 1:
                stored = r.constant(f"{r.at}.weights", np.ascontiguousarray(a.transpose(perm)), a.dtype)
                value = r.dequantized(stored, q, False)
            else:
                value = r.emit("Transpose", value, perm=perm)
        values.append(value)
    r.put(op.outputs[0], r.emit("MatMul", *values))


READERS = {
    "BATCH_MATMUL": Builtin(_batch_matmul),
    "FULLY_CONNECTED": Builtin(_fully_connected),
}
