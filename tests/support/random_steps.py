"""Steps of random networks that keep whole numbers whole; each adds to a Net what reads the value v of shape s, and
gives (the result, its shape)."""

import numpy as np


def alone(op, *more, **attrs):
    """An operator that keeps the shape."""
    return lambda net, rng, v, s: (net.add(op, v, *more, **attrs), s)


def enlarged(net, rng, v, s):
    if len(s) < 4 or s[2] * s[3] > 200:
        return v, s
    nearest = dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    v = net.add("Resize", v, "", np.float32([1, 1, 2, 2]), **nearest)
    return v, (*s[:2], 2 * s[2], 2 * s[3])


def transposed(net, rng, v, s):
    perm = [0, *rng.sample(range(1, len(s)), len(s) - 1)]
    return net.add("Transpose", v, perm=perm), tuple(s[a] for a in perm)


def flat(net, rng, v, s):
    """Rows, or an image of one column."""
    if len(s) == 4 and rng.random() < 0.5:
        return net.add("Reshape", v, np.int64([0, 0, -1, 1])), (*s[:2], s[2] * s[3], 1)
    return net.add("Reshape", v, np.int64([0, s[1], -1])), (*s[:2], int(np.prod(s[2:])))


def padded(net, rng, v, s):
    inner = len(s) - 2
    pads = np.int64([0, 0, *[1] * inner, 0, 0, *[2] * inner])
    return net.add("Pad", v, pads), (*s[:2], *(n + 3 for n in s[2:]))


def part(net, rng, v, s):
    axis = rng.randrange(1, len(s))
    first = rng.randrange(s[axis])
    ends = np.int64([first]), np.int64([s[axis]]), np.int64([axis])
    return net.add("Slice", v, *ends), (*s[:axis], s[axis] - first, *s[axis + 1 :])


def pooled(net, rng, v, s):
    return (net.add("MaxPool", v, kernel_shape=[3, 3], pads=[1] * 4), s) if len(s) == 4 else (v, s)


MOVES = [alone("Relu"), enlarged, transposed, flat, padded, part, pooled]


def combined(net, rng, v, s, values, read=lambda v: v):
    """A sum, product or concatenation with one of the values, as `read` gives it; v where none fits."""
    alike = [u for u in values if len(u[1]) == len(s) and u[1][0] == s[0] and u[1][2:] == s[2:]]
    if not alike:
        return v, s
    other, t = rng.choice(alike)
    if t == s and rng.random() < 0.5:
        return net.add(rng.choice(["Add", "Mul", "Sub"]), v, read(other)), s
    return net.add("Concat", v, read(other), axis=1), (s[0], s[1] + t[1], *s[2:])
