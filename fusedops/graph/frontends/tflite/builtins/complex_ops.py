"""Fourier transforms. Complex numbers are pairs, real part first, along one more axis at the end."""

from .entry import Builtin, length


def _rfft2d(r, op):
    """The first half of the transform of rows, and over them the whole one of columns."""
    sizes = r.sizes(op.inputs[0])
    height, width = (int(n) for n in op.constant(1, "length").reshape(-1)[:2])
    if sizes is None or len(sizes) < 2 or min(height, width) < 1:
        raise op.error(f"it transforms {height} x {width} points of a tensor of shape {sizes}")
    rank = len(sizes)
    x = r.value(op.inputs[0])
    for axis, n in ((rank - 2, height), (rank - 1, width)):
        x = _fitted(r, x, axis, sizes[axis], n)
    x = r.emit("DFT", r.emit("Unsqueeze", x, [rank]), width, rank - 1, onesided=1)
    if height > 1:
        x = r.emit("DFT", x, height, rank - 2)
    r.put(op.outputs[0], x)


def _fitted(r, x, axis, size, n):
    """The first n elements along an axis, or zeros after those that are there; the size is None where it is open."""
    if size is None or size > n:
        x = r.emit("Slice", x, [0], [n], [axis])
    if size is None:
        missing = r.emit("Sub", [n], length(r, x, axis))
        return r.emit("Pad", x, r.emit("Concat", [0], missing, axis=0), "", [axis])
    return r.emit("Pad", x, [0, n - size], "", [axis]) if size < n else x


def _part(i):
    def read(r, op):
        x = r.value(op.inputs[0])
        r.put(op.outputs[0], r.emit("Gather", x, i, axis=-1))

    return Builtin(read, "of what RFFT2D gives")


def _magnitude(r, op):
    x = r.value(op.inputs[0])
    r.put(op.outputs[0], r.emit("Sqrt", r.emit("ReduceSum", r.emit("Mul", x, x), [-1], keepdims=0)))


READERS = {
    "COMPLEX_ABS": Builtin(_magnitude, "of what RFFT2D gives"),
    "IMAG": _part(1),
    "REAL": _part(0),
    "RFFT2D": Builtin(_rfft2d),
}
