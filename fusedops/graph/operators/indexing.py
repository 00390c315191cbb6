"""What picks elements by indices, or puts them there."""
import numpy as np

from ..builder import Builder
from ..memory import along, row_major, same_order
from ..sizes import decide
from .record import Operator, axis_of, same_shape


def _index(node, i):
    """The index of elements whose place along one axis is in i, and along the others their own."""
    index = list(np.indices(i.shape, sparse=True))
    index[node.attrs.get("axis", 0)] = i
    return tuple(index)


def _gather_elements(node, x, i):
    return x[_index(node, i)]


def _gather_nd(node, x, i):
    """Elements, or parts of x, whose leading indices are rows of i, behind ``batch_dims`` axes that both have."""
    batch = node.attrs.get("batch_dims", 0)
    own = (a.reshape(*a.shape, *[1] * (i.ndim - 1 - batch)) for a in np.indices(i.shape[:batch], sparse=True))
    return x[(*own, *np.moveaxis(i, -1, 0))]


def _scattered(node, x, index, updates):
    y, reduction = x.copy(), node.attrs.get("reduction", "none")
    if reduction == "none":
        y[index] = updates
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction].at(y, index, updates)
    return y


def _scatter_elements(node, x, i, updates):
    return _scattered(node, x, _index(node, i), updates)


def _scatter_nd(node, x, i, updates):
    return _scattered(node, x, tuple(np.moveaxis(i, -1, 0)), updates)


def _triangle(node, x, k=None):
    return (np.triu if node.attrs.get("upper", 1) else np.tril)(x, 0 if k is None else k.item())


def _are_inside(indices, size):
    return -size <= indices.min() <= indices.max() < size


def _gather_shape(node, x, i):
    axis = axis_of(node, len(x.shape))
    size = x.shape[axis]
    if size == 0 and 0 not in i.shape:
        raise ValueError("there are indices into an axis of 0")
    if i.data is not None and 0 not in i.shape and not decide(_are_inside, i.data, size):
        raise ValueError(f"there are indices {i.data.min()} to {i.data.max()} into an axis of {size}")
    return (*x.shape[:axis], *i.shape, *x.shape[axis + 1:])


def _gather_nd_shape(node, x, i):
    batch, depth = node.attrs.get("batch_dims", 0), i.shape[-1]
    if batch + depth > len(x.shape) or batch >= len(i.shape) or x.shape[:batch] != i.shape[:batch]:
        raise ValueError(f"indices of {depth} behind {batch} axes do not fit")
    return (*i.shape[:-1], *x.shape[batch + depth:])


def _lower_gather(p: Builder, node):
    x, i = p.at(node.inputs[0]), p.at(node.inputs[1])
    axis = node.attrs.get("axis", 0) % len(x.shape)
    if p.data(node.inputs[1]) is not None and i.shape == ():
        at = int(p.data(node.inputs[1])) % x.shape[axis]
        part = along(x, axis, at, 1)
        p.view(node.output, part._replace(shape=x.shape[:axis] + x.shape[axis + 1:], strides=x.strides[:axis] + x.strides[axis + 1:]))
        return True
    if i.dtype != np.int64 or not same_order(i.shape, i.strides, row_major(i.shape)):
        return False
    y = p.result(node.output)
    p.add("gather", node, x=x, indices=i, y=y, along=axis)
    return True


_SINGLE = "no kernel that picks single elements"
RECORDS = {
    "Gather": Operator(
        lambda node, x, i: x.take(i, node.attrs.get("axis", 0)),
        _gather_shape,
        _lower_gather,
        note="constant or int64 indices",
        sizes=True,
    ),
    "GatherElements": Operator(_gather_elements, lambda node, x, i: i.shape, _SINGLE),
    "GatherND": Operator(_gather_nd, _gather_nd_shape, _SINGLE),
    "ScatterElements": Operator(_scatter_elements, same_shape, _SINGLE),
    "ScatterND": Operator(_scatter_nd, same_shape, _SINGLE),
    "Trilu": Operator(_triangle, same_shape, "no kernel: mostly of constants"),
}
