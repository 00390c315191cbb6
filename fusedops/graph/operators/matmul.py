"""Matrix products."""

import math

import numpy as np

from ...layers import ConstantLinear
from ..ir.float16_weights import as_float16_weights
from ..ir.graph_builder import GraphBuilder
from ..steps.lowering import LoweringContext
from ..steps.prepared import OfConstants, UnpackedLayer
from ..steps.tensor import broadcast, broadcast_shapes, reshaped, row_major, transposed
from .conv import constant_weights
from .schema import Inference, Kernel, NumPyOnly, Operator


def _gemm(node, a, b, c=None):
    a, b = a.T if node.attrs.get("transA", 0) else a, b.T if node.attrs.get("transB", 0) else b
    y = (a @ b) * np.asarray(node.attrs.get("alpha", 1.0), a.dtype)
    return y if c is None else y + c * np.asarray(node.attrs.get("beta", 1.0), a.dtype)


def _grouped_product(node, x, w, ends):
    """Rows of x by the matrix of their group; those of group e end before ends[e]. Rows after all groups are zero."""
    bounds = [0, *ends, len(x)]
    if np.any(np.diff(bounds) < 0):
        raise ValueError(f"the ends of groups {ends.tolist()} do not rise from 0 to {len(x)} rows")
    y = np.zeros((len(x), w.shape[2]), x.dtype)
    for begin, end, matrix in zip(bounds, ends, w, strict=False):
        y[begin:end] = x[begin:end] @ matrix
    return y


def _linear(node, x, w, b=None):
    return x @ w.T if b is None else x @ w.T + b


def _einsum(node, *xs):
    return np.einsum(node.attrs["equation"], *xs, optimize=True)


def _einsum_terms(equation, ndims):
    """([the letters of each operand's axes], the letters of the result's axes); an ellipsis becomes capital letters of
    its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in equation]
    hidden = [n - len(t.replace("...", "")) if "..." in t else 0 for t, n in zip(terms, ndims, strict=True)]
    ellipsis = "".join(spare[: max(hidden)])
    if not arrow:
        right = "..." * any("..." in t for t in terms) + "".join(
            sorted(c for c in set(left) - {",", "."} if left.count(c) == 1)
        )
    terms = [t.replace("...", ellipsis[len(ellipsis) - n :]) for t, n in zip(terms, hidden, strict=True)]
    if [len(t) for t in terms] != list(ndims):
        raise ValueError(f"the equation {equation!r} does not fit inputs of {', '.join(map(str, ndims))} axes")
    return terms, right.replace("...", ellipsis)


def _gemm_shape(node, a, b, c=None):
    (m, k), (k2, n) = (
        (a.shape[::-1] if node.attrs.get("transA", 0) else a.shape),
        (b.shape[::-1] if node.attrs.get("transB", 0) else b.shape),
    )
    if k != k2:
        raise ValueError("the inner sizes differ")
    return m, n


def matmul_shape(node, a, b):
    sa, sb = (1, *a.shape) if len(a.shape) == 1 else a.shape, (*b.shape, 1) if len(b.shape) == 1 else b.shape
    if len(sa) < 2 or len(sb) < 2 or sa[-1] != sb[-2]:
        raise ValueError("the inner sizes differ")
    y = (*broadcast_shapes(sa[:-2], sb[:-2]), sa[-2], sb[-1])
    y = y[:-2] + y[-1:] if len(a.shape) == 1 else y
    return y[:-1] if len(b.shape) == 1 else y


def _grouped_shape(node, x, w, ends):
    if x.shape[1] != w.shape[1] or ends.shape != w.shape[:1]:
        raise ValueError(f"rows {x.shape} and ends of groups {ends.shape} do not fit matrices {w.shape}")
    return x.shape[0], w.shape[2]


def _linear_shape(node, x, w, b=None):
    if len(w.shape) != 2 or x.shape[-1:] != w.shape[1:]:
        raise ValueError(f"weights of shape {w.shape} do not fit an input of shape {x.shape}")
    return (*x.shape[:-1], w.shape[0])


def _einsum_shape(node, *xs):
    terms, result = _einsum_terms(node.attrs["equation"], [len(x.shape) for x in xs])
    sizes = {}
    for term, x in zip(terms, xs, strict=True):
        for letter, n in zip(term, x.shape, strict=True):
            if n != sizes.setdefault(letter, n) and 1 not in (n, sizes[letter]):
                raise ValueError(
                    f"the axes {letter!r} of {node.attrs['equation']!r} have the lengths {sizes[letter]} and {n}"
                )
            sizes[letter] = n if sizes[letter] == 1 else sizes[letter]
    return tuple(sizes[letter] for letter in result)


def _lower_linear(p: LoweringContext, node):
    weights = constant_weights(p, node, _linear_shape, 2)
    if weights is None:
        return False

    def make(precision):
        (w,), b = as_float16_weights(weights[0]), weights[1]
        return ConstantLinear(w, b, activation=node.activation, precision=precision)

    add_linear(p, node, UnpackedLayer(_key(node, weights), make), weights[0].shape[1])
    return True


def _key(node, weights):
    """The key of a prepared product: nodes with the same constants share one."""
    kind, *parameters = node.activation if isinstance(node.activation, tuple) else (node.activation,)
    if not all(isinstance(a, (int, float)) for a in parameters):
        return node.name  # a slope for each channel
    return OfConstants(("Linear", kind, *parameters), *weights)


def add_linear(p: LoweringContext, node, layer, k, rounds=False):
    """Adds the step of a prepared product of rows of k elements, which it rounds or takes as they are."""
    y = p.result(node.output)
    y = y._replace(shape=(math.prod(y.shape[:-1]), y.shape[-1]), strides=(y.shape[-1], 1))
    x = p.reshape(node, p.at(node.inputs[0]), (y.shape[0], k))
    if x.strides[1] != 1 and x.shape[1] != 1:
        x = p.dense(node, x, row_major(x.shape))
    r = p.residual(node, p.at(node.output))
    tensors = dict(layer=layer, x=x, y=y, residual=r and p.reshape(node, r, y.shape))
    if rounds:
        p.add("qlinear", node, types=(x.dtype, r and r.dtype, y.dtype), **tensors)
    else:
        p.add("linear", node, **tensors)


def _columns_as_rows(a, b):
    """The operands of the same results, (b^T a^T)^T, where each batch has one column for a matrix that all share."""
    if len(b.shape) == 2 or b.shape[-1] != 1 or any(n != 1 for n in a.shape[:-2]):
        return a, b
    rows = b._replace(shape=(*b.shape[:-2], 1, b.shape[-2]), strides=(*b.strides[:-2], 1, b.strides[-2]))
    return rows, transposed(a._replace(shape=a.shape[-2:], strides=a.strides[-2:]))


def _as_rows(a, b, shape):
    """The operands and the shape of a product, where batches that share a right operand are rows of one matrix, as far
    as a's memory allows: each right operand is packed once."""
    front = (1,) * (len(shape) - len(b.shape)) + b.shape[:-2]
    own = next((i for i in range(len(front), 0, -1) if front[i - 1] != 1), 0)  # axes in front that b has
    if own == len(front) or a.shape[:-1] != tuple(shape[:-1]):
        return a, b, shape
    rows = (*shape[:own], math.prod(shape[own:-1]), a.shape[-1])
    strides = reshaped(a.shape, a.strides, rows)
    if strides is None:
        return a, b, shape
    b = broadcast(b, (*front, *b.shape[-2:]))
    b = b._replace(shape=(*front[:own], *b.shape[-2:]), strides=(*b.strides[:own], *b.strides[-2:]))
    return a._replace(shape=rows, strides=strides), b, (*rows[:-1], shape[-1])


def _lower_product(p: LoweringContext, node, a, b, scale=1.0):
    shape = p.known[node.output].shape
    y = p.result(node.output)
    if len(a.shape) == 1:
        a, shape = (
            a._replace(shape=(1, *a.shape), strides=(1, *a.strides)),
            (*shape[:-1], 1, shape[-1]) if len(b.shape) > 1 else (1,),
        )
    if len(b.shape) == 1:
        b, shape = b._replace(shape=(*b.shape, 1), strides=(*b.strides, 1)), (*shape, 1)
    a, b = _columns_as_rows(a, b)
    a, b, shape = _as_rows(a, b, (*shape[:-2], a.shape[-2], b.shape[-1]))
    a, b = broadcast(a, (*shape[:-2], *a.shape[-2:])), broadcast(b, (*shape[:-2], *b.shape[-2:]))
    y = y._replace(shape=shape, strides=row_major(shape))
    p.add("matmul", node, a=a, b=b, y=y, scale=float(scale), activation=p.activation(node))
    return True


def _lower_matmul(p: LoweringContext, node):
    a, b = map(p.at, node.inputs)
    return b.dtype == np.float32 and _lower_product(p, node, a, b, node.attrs.get("alpha", 1.0))


def _lower_grouped(p: LoweringContext, node):
    x, w, ends = map(p.at, node.inputs)
    if not all(t.dtype == np.float32 for t in (x, w)):
        return False
    p.add("grouped_matmul", node, x=x, w=w, ends=p.dense(node, ends, row_major(ends.shape)), y=p.result(node.output))
    return True


def _lower_gemm(p: LoweringContext, node):
    """A product of two values that both come from the network's input; one with constant weights is a Linear."""
    if node.input(2):
        return False
    a, b = map(p.at, node.inputs)
    a, b = (transposed(t) if node.attrs.get(name, 0) else t for t, name in ((a, "transA"), (b, "transB")))
    return _lower_product(p, node, a, b, node.attrs.get("alpha", 1.0))


def _axes_of_product(terms, right):
    """Returns (the axes that all three have, the first operand's, the summed ones, the second's), in order, of an
    einsum that is a product of two matrices, perhaps for each of several axes; or None."""
    if len(terms) != 2 or any(len(set(t)) < len(t) for t in (*terms, right)):
        return None
    a, b, y = set(terms[0]), set(terms[1]), set(right)
    shared, rows, inner, columns = a & b & y, (a & y) - b, (a & b) - y, (b & y) - a
    if not inner or shared | rows | columns != y or a | b != shared | rows | inner | columns:
        return None
    return [
        [c for c in order if c in kind]
        for order, kind in ((right, shared), (right, rows), (terms[0], inner), (right, columns))
    ]


def _read_einsum(r: GraphBuilder, node):
    """Reads a product as a MatMul: shared axes first, then those of which either operand has more than one, 1 in the
    other, then the rows, the summed axis, the columns. Where nothing is summed it is a Mul."""
    terms, right = _known_terms(r, node)
    if terms is not None and _sums_nothing(terms, right):
        return r.node("Mul", node, *(_aligned(r, node, i, terms[i], right) for i in (0, 1)), result=node.output)
    kinds = None if terms is None else _axes_of_product(terms, right)
    if kinds is None:
        return r.add(node)
    batch, rows, inner, columns = kinds
    (*row_batch, row), (*column_batch, column) = rows or [""], columns or [""]
    a = _operand(r, node, 0, terms[0], [*batch, *row_batch], row, inner)
    b = _operand(r, node, 1, terms[1], [*batch, *column_batch], column, inner)
    if column_batch:
        at = len(batch) + len(row_batch)
        a = r.node("Unsqueeze", node, a, r.constant(f"{node.name}.axes", range(at, at + len(column_batch))))
    y = r.node("MatMul", node, a, _beside(r, node, b, kinds, len(row_batch), len(column_batch)))
    made = [*batch, *row_batch, *column_batch]
    single = [len(made) + i for i, c in enumerate((row, column)) if not c]
    y = r.node("Squeeze", node, y, r.constant(f"{node.name}.single", single)) if single else y
    order = [c for c in (*made, row, column) if c]
    r.node("Transpose", node, y, perm=[order.index(c) for c in right], result=node.output)


def _sums_nothing(terms, right):
    """Whether an einsum of two operands multiplies elements alone, as an outer product does."""
    once = all(len(set(term)) == len(term) for term in (*terms, right))
    return len(terms) == 2 and once and set(terms[0]) | set(terms[1]) == set(right)


def _aligned(r: GraphBuilder, node, i, term, right):
    """An operand with its axes in the order of the result, and 1 for those that it does not have."""
    x = r.node("Transpose", node, node.inputs[i], perm=[term.index(c) for c in right if c in term])
    missing = [axis for axis, c in enumerate(right) if c not in term]
    return r.node("Unsqueeze", node, x, r.constant(f"{node.name}.missing", missing)) if missing else x


def _known_terms(r: GraphBuilder, node):
    """As _einsum_terms; (None, "") where it takes a number of axes that is not known."""
    equation, axes = node.attrs["equation"].replace(" ", ""), [r.axes(v) for v in node.inputs]
    left, arrow, right = equation.partition("->")
    if arrow and "." not in equation:
        return left.split(","), right
    return (None, "") if None in axes else _einsum_terms(equation, axes)


def _operand(r: GraphBuilder, node, i, term, batch, row, inner):
    """An operand with its axes in the order of a matrix of rows, of one row where it has none, with one summed axis."""
    order = [*batch, *row, *inner]
    x = r.node("Transpose", node, node.inputs[i], perm=[term.index(c) for c in order])
    if len(inner) > 1:
        x = r.node("Reshape", node, x, r.constant(f"{node.name}.joined", [0] * (len(order) - len(inner)) + [-1]))
    return x if row else r.node("Unsqueeze", node, x, r.constant(f"{node.name}.one", [len(batch)]))


def _beside(r: GraphBuilder, node, b, kinds, row_batch, column_batch):
    """The second operand with columns last and axes of 1 where the first has rows of its own, but that of plain
    matrices, which may be weights."""
    batch = len(kinds[0])
    if row_batch and (batch or column_batch):
        b = r.node("Unsqueeze", node, b, r.constant(f"{node.name}.axes", range(batch, batch + row_batch)))
        batch += row_batch
    batch += column_batch
    return r.node("Transpose", node, b, perm=[*range(batch), batch + 1, batch])


def _det(node, x):
    return np.linalg.det(x.astype(np.float64)).astype(x.dtype)


RECORDS = {
    "Det": Operator(_det, Inference(lambda node, x: x.shape[:-2]), NumPyOnly("no kernel: rare")),
    "Einsum": Operator(
        _einsum,
        Inference(_einsum_shape),
        NumPyOnly("products of two values are read as MatMul or Mul, others go to NumPy"),
        _read_einsum,
    ),
    "Gemm": Operator(_gemm, Inference(_gemm_shape), Kernel(_lower_gemm)),
    "GroupedMatMul": Operator(_grouped_product, Inference(_grouped_shape), Kernel(_lower_grouped), None),
    "Linear": Operator(
        _linear,
        Inference(_linear_shape),
        Kernel(_lower_linear, fuses={"residual", "activation"}, weights="linear layer"),
        None,
    ),
    "MatMul": Operator(_gemm, Inference(matmul_shape), Kernel(_lower_matmul, fuses={"activation"})),
}
