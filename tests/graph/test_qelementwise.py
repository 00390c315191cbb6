"""Steps on bytes between a network's layers: exact integers, all sets, nothing touched outside of arrays."""

from functools import partial

import numpy as np
import pytest

from fusedops._core import Program
from guard_pages import guarded

SIZES = [1, 15, 16, 63, 64, 65, 300, 33000]
TYPES = [np.dtype(np.uint8), np.dtype(np.int8)]


def some_bytes(shape, dtype, seed=0):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def run(kind, y, at_end=True, **arguments):
    """What a step writes to an array like y, each of its arrays against forbidden pages."""
    y = guarded(y, at_end)
    arrays = {name: guarded(a, at_end) if isinstance(a, np.ndarray) else a for name, a in arguments.items()}
    p = Program()
    p.append(kind, y=y, **arrays)
    p.run(())
    return y


def real(x, q):
    return q[0] * (x.astype(np.float64) - q[1])


def saturated(y, q, dtype):
    info = np.iinfo(dtype)
    return np.clip(np.rint(y / q[0]) + q[1], info.min, info.max).astype(dtype)


def same_but_for_halves(y, exact, q):
    """The nearest integers: an exact value is at most a half away, and a little."""
    info = np.iinfo(y.dtype)
    exact = np.clip(exact / q[0] + q[1], info.min, info.max)
    assert np.abs(y - exact).max(initial=0) <= 0.5 + 1e-3


@pytest.mark.parametrize("n", SIZES)
def test_lookup(threads, n):
    table = some_bytes(256, np.int8)
    for at_end, x in ((True, some_bytes(n, np.uint8)), (False, some_bytes(n, np.int8))):
        y = run("lookup", np.zeros(n, np.int8), at_end, x=x, table=table)
        np.testing.assert_array_equal(y, table[x.view(np.uint8)])


def test_lookup_of_any_order(threads):
    x, table = some_bytes((5, 6, 7), np.uint8), some_bytes(256, np.uint8)
    y = np.zeros((7, 6, 5), np.uint8).transpose(2, 1, 0)
    p = Program()
    p.append("lookup", x=x, y=y, table=table)
    p.run(())
    np.testing.assert_array_equal(y, table[x])


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize("n", SIZES)
def test_sums_and_products(isa, threads, name, n):
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]
    for i, types in enumerate(((0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1))):
        ta, tb, ty = (TYPES[t] for t in types)
        q = (0.021, 100 * (ta.kind == "u")), (0.034, -7 if tb.kind == "i" else 7), (0.05, 50)
        a, b = some_bytes((3, n), ta), some_bytes((3, n) if i % 2 else (3, 1), tb, 1)
        exact = function(real(a, q[0]), real(b, q[1]))
        for activation, clipped in ((None, exact), ((1, 0.0, 3.0, None), np.clip(exact, 0, 3))):
            y = np.zeros((3, n), ty)
            p = Program()
            p.append("qbinary", name, (ta, tb, ty), q, a, np.broadcast_to(b, a.shape), y, activation)
            p.run(())
            same_but_for_halves(y, clipped, q[2])
            if b.shape == a.shape:
                guarded_y = run("qbinary", y, name=name, types=(ta, tb, ty), q=q, a=a, b=b, activation=activation)
                np.testing.assert_array_equal(guarded_y, y)


def qpool(x, out, at_end=True, **arguments):
    """A pool of an image with its channels last."""
    y, x = guarded(np.zeros((len(x), *out, x.shape[-1]), x.dtype), at_end), guarded(x, at_end)
    p = Program()
    p.append("qpool", x=x.transpose(0, 3, 1, 2), y=y.transpose(0, 3, 1, 2), **arguments)
    p.run(())
    return y


@pytest.mark.parametrize("c", [1, 3, 16, 63, 64, 65, 130])
@pytest.mark.parametrize("dtype", TYPES)
def test_pools(isa, threads, c, dtype):
    x, q = some_bytes((2, 6, 7, c), dtype), ((0.021, 3), (0.017, 9))
    for kernel, stride, before, dilation in (
        ((3, 3), (2, 2), (1, 1), (1, 1)),
        ((2, 3), (1, 2), (0, 1), (2, 1)),
        ((6, 7), (1, 1), (0, 0), (1, 1)),
    ):
        pads = [(p, p) for p in before]
        out = [
            (n + 2 * p - (k - 1) * d - 1) // s + 1
            for n, p, k, d, s in zip((6, 7), before, kernel, dilation, stride, strict=True)
        ]
        lowest = np.iinfo(dtype).min
        taps = [
            (
                slice(i * dilation[0], i * dilation[0] + (out[0] - 1) * stride[0] + 1, stride[0]),
                slice(j * dilation[1], j * dilation[1] + (out[1] - 1) * stride[1] + 1, stride[1]),
            )
            for i in range(kernel[0])
            for j in range(kernel[1])
        ]
        pooled = partial(
            qpool, x, out, types=(dtype, dtype), kernel=kernel, stride=stride, before=before, dilation=dilation
        )

        padded = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=lowest)
        want = np.max([padded[:, h, w] for h, w in taps], 0)
        np.testing.assert_array_equal(pooled(counted=None, q=(q[0], q[0])), want)
        values = np.pad(real(x, q[0]), [(0, 0), *pads, (0, 0)])
        counts = np.pad(np.ones((1, 6, 7, 1)), [(0, 0), *pads, (0, 0)])
        total, count = (sum(a[:, h, w] for h, w in taps) for a in (values, counts))
        same_but_for_halves(pooled(counted=(0, 6, 0, 7), q=q, at_end=False), total / count, q[1])
        everything = (-before[0], 6 + before[0], -before[1], 7 + before[1])
        same_but_for_halves(pooled(counted=everything, q=q), total / len(taps), q[1])


@pytest.mark.parametrize("n", SIZES)
def test_floats_and_back(isa, threads, n):
    x, q = np.random.default_rng(0).standard_normal(n).astype(np.float32), (0.0213, 5)
    for dtype in TYPES:
        y = run("convert", np.zeros(n, dtype), x=x, q=q, **{"from": np.dtype(np.float32), "to": dtype})
        np.testing.assert_array_equal(y, saturated((x / np.float32(q[0])).astype(np.float64), (1, q[1]), dtype))
        z = run("convert", np.zeros(n, np.float32), x=y, q=q, **{"from": dtype, "to": np.dtype(np.float32)})
        np.testing.assert_allclose(z, real(y, q), rtol=1e-6)
    z = run("requantize", np.zeros(n, np.float32), x=x)
    scale = (max(x.max(), 0) - min(x.min(), 0)) / 255
    assert np.abs(z - x).max() <= scale * 0.51 or n == 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.int64])
def test_copies_of_any_type(isa, threads, dtype):
    for shape in ((3, 5), (70, 33), (2, 64, 65)):
        x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        y = np.zeros(shape[::-1], dtype).T
        p = Program()
        p.append("copy", x=guarded(x, True), y=y, size=x.itemsize)
        p.run(())
        np.testing.assert_array_equal(y, x)


def test_nearest(threads):
    x = some_bytes((2, 4, 5, 70), np.uint8)
    rows, columns = np.int64([0, 0, 1, 3, 3]), np.int64([4, 3, 2, 1, 0, 0])
    y = np.zeros((2, 5, 6, 70), np.uint8)
    p = Program()
    p.append(
        "nearest",
        x=x.transpose(0, 3, 1, 2),
        y=y.transpose(0, 3, 1, 2),
        rows=(rows, None, None),
        columns=(columns, None, None),
    )
    p.run(())
    np.testing.assert_array_equal(y, x[:, rows][:, :, columns])


def test_what_does_not_fit_is_an_error():
    x, y, q = some_bytes((4, 6), np.uint8), np.zeros((4, 6), np.uint8), ((1.0, 0),) * 3
    p, types = Program(), (TYPES[0],) * 3
    with pytest.raises(ValueError, match="a table must have 256 bytes"):
        p.append("lookup", x=x, y=y, table=x[0])
    with pytest.raises(ValueError, match="contiguous"):
        p.append("qbinary", "add", types, q, x[:, ::2], x[:, ::2], y[:, ::2])
    with pytest.raises(ValueError, match="no step div of bytes"):
        p.append("qbinary", "div", types, q, x, x, y)
    with pytest.raises(ValueError, match="dense and of one order"):
        p.append("requantize", x=np.ones((4, 6), np.float32)[:, ::2], y=np.ones((4, 3), np.float32))
    with pytest.raises(ValueError, match="elements of 3 bytes"):
        p.append("copy", x=x, y=y, size=3)
    image = x.reshape(1, 2, 3, 4)
    with pytest.raises(ValueError, match="neighbors in memory"):
        p.append("qpool", types=types[:2], q=q[:2], x=image, y=image, kernel=(1, 1), stride=(1, 1), before=(0, 0))
