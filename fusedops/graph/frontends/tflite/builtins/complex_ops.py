"""Fourier transforms. Complex numbers are pairs, real part first, along one more axis behind."""

from .entry import Builtin


def _rfft2d(r, op):
    """The first half of the transform of rows, and over them the whole one of columns."""
    sizes = r.fixed(op.inputs[0])
    height, width = (int(n) for n in op.constant(1, "length").reshape(-1)[:2])
    if sizes is None or len(sizes) < 2 or min(height, width) < 1:
        raise op.error(f"it transforms {height} x {width} points of a tensor of shape {sizes}")
    rank = len(sizes)
    x = r.value(op.inputs[0])
    for axis, n in ((rank - 2, height), (rank - 1, width)):
        if sizes[axis] > n:
            x = r.emit("Slice", x, [0], [n], [axis])
        elif sizes[axis] < n:
            x = r.emit("Pad", x, [0, n - sizes[axis]], "", [axis])
    x = r.emit("DFT", r.emit("Unsqueeze", x, [rank]), width, rank - 1, onesided=1)
    if height > 1:
        x = r.emit("DFT", x, height, rank - 2)
    r.put(op.outputs[0], x)


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
    "RFFT2D": Builtin(_rfft2d, "of fixed sizes"),
}
