"""Nothing is read or written outside of an array: each argument lies against pages that may not be touched.

A kernel that does so ends the test run with a segmentation fault.
"""

import sys

import numpy as np
import pytest

import fusedops as fo
import oracle
from catalog import OPERATIONS, Operation, dims, given
from conv_cases import DEPTHWISE, DIRECT
from fusedops import activations
from fusedops._core import ConvTranspose2dPlan, Program
from guard_pages import guarded

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mprotect of an anonymous mapping")


def check(operation, draw):
    arrays = operation.draw(draw)
    expected = operation(arrays)
    for at_end in (False, True):
        out = [guarded(y, at_end) for y in operation.out()]
        operation({name: guarded(a, at_end) for name, a in arrays.items()}, out=given(out))
        for y, y_expected in zip(out, expected):
            np.testing.assert_array_equal(y, y_expected)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(isa, draw, name):
    check(OPERATIONS[name], draw)


@pytest.mark.parametrize("m", [1, 2, 5, 6, 7, 11, 12, 13])
def test_products(isa, draw, m):
    for n in (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63):
        for k in (1, 3, 16, 33):
            check(Operation(fo.gemm, dict(a=(m, k), b=(k, n), bias=(n,), residual=(m, n)), {}, [(m, n)]), draw)
            check(Operation(fo.linear, dict(x=(m, k), w=(n, k), bias=(n,), residual=(m, n)), {}, [(m, n)]), draw)


@pytest.mark.parametrize("m", [16, 17, 33, 70])
@pytest.mark.parametrize("n, k", [(1, 16), (1, 1024), (2, 67), (3, 113)])
def test_products_whose_rows_are_lanes(isa, half_rate, draw, m, n, k):
    check(Operation(fo.linear, dict(x=(m, k), w=(n, k), bias=(n,), residual=(m, n)), {}, [(m, n)]), draw)


@pytest.mark.parametrize("t, s", [(1, 1), (1, 33), (1, 300), (3, 17), (50, 65)])
@pytest.mark.parametrize("d, dv", [(1, 1), (7, 9), (16, 33), (24, 40), (64, 80)])
def test_attention(isa, draw, t, s, d, dv):
    for mask in (None, (t, s), (2, 1, 1, s)):
        arrays = dict(q=(2, 4, t, d), k=(2, 2, s, d), v=(2, 2, s, dv)) | ({} if mask is None else dict(mask=mask))
        check(Operation(fo.attention, arrays, {}, [(2, 4, t, dv)]), draw)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "ic, size, oc, kernel, options",
    DIRECT
    + [
        (c, size, c * multiplier, kernel, options | dict(groups=c))
        for c, multiplier, size, kernel, options in DEPTHWISE
    ],
)
def test_images(isa, draw, layout, ic, size, oc, kernel, options):
    x, w = dims(layout, 2, ic, *size), (oc, ic // options.get("groups", 1), *kernel)
    y = oracle.conv2d(np.zeros(x), np.zeros(w), **options, layout=layout).value.shape
    arrays = dict(x=x, w=w, bias=(oc,), residual=y)
    check(Operation(fo.conv2d, arrays, options | dict(layout=layout), [y]), draw)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "ic, oc, size, stride",
    [(3, 64, (9, 11), 2), (65, 66, (23, 29), 2), (9, 70, (1, 37), (1, 3)), (64, 64, (34, 17), (3, 1))],
)
def test_pixels_that_a_stride_leaves(isa, draw, layout, ic, oc, size, stride):
    test_images(isa, draw, layout, ic, size, oc, (1, 1), dict(stride=stride))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("left, right", [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_strips_of_rows(isa, draw, stride, left, right):
    for width in [*range(3, 36), 64, 65]:
        x, options = (1, 2, 9, width), dict(stride=stride, padding=((1, 1), (left, right)))
        y = 1, 2, 8 // stride + 1, (width + left + right - 3) // stride + 1
        check(Operation(fo.depthwise_conv2d, dict(x=x, w=(2, 3, 3), bias=(2,)), options, [y]), draw)


@pytest.mark.parametrize("k", [3, 5])
def test_pixels_that_are_copied_aside(isa, draw, k):
    x = 1, 9, 7, 512
    check(
        Operation(fo.depthwise_conv2d, dict(x=x, w=(512, k, k), residual=x), dict(padding=k // 2, layout="NHWC"), [x]),
        draw,
    )


@pytest.mark.parametrize("m", [1, 2, 3, 5, 7, 9, 13])
@pytest.mark.parametrize(
    "function, gates, options",
    [(fo.rnn_cell, 1, {}), (fo.lstm_cell, 4, {}), (fo.gru_cell, 3, {}), (fo.gru_cell, 3, dict(reset_after=False))],
)
def test_steps(isa, draw, m, function, gates, options):
    for hidden in (1, 16, 17, 40):
        states = dict.fromkeys("hc" if gates == 4 else "h", (m, hidden))
        arrays = (
            dict(x=(m, 5), w_ih=(gates * hidden, 5), w_hh=(gates * hidden, hidden), b_hh=(gates * hidden,)) | states
        )
        check(Operation(function, arrays, options, list(states.values())), draw)


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("c", [1, 2, 7, 8, 15, 16, 17, 33, 65])
def test_steps_of_programs(isa, draw, c, at_end):
    """Their values: test_program.py and test_pool.py."""

    def array(*shape):
        return guarded(draw(*shape), at_end)

    def channels_last(c, h, w):
        return array(2, h, w, c).transpose(0, 3, 1, 2)

    p, mean, sigmoid = Program(), draw(c), activations.parse("sigmoid")
    for image in (channels_last, lambda *shape: array(2, *shape)):
        p.append("max_pool", image(c, 5, 6), image(c, 3, 3), (3, 3), (2, 2), (1, 1))
        p.append("avg_pool", image(c, 5, 6), image(c, 4, 2), (2, 3), (1, 2), (0, 0), (1, 1), (0, 5, 0, 6))
        p.append("reduce", "mean", image(c, 5, 6), image(c, 1, 1), (2, 3))
        p.append("reduce", "max", image(c, 5, 6), image(1, 5, 6), (1,))
        p.append("instance_norm", image(c, 5, 6), image(c, 5, 6), 1e-5, mean, mean)
        p.append("affine", image(c, 5, 6), image(c, 5, 6), image(c, 5, 6), mean, mean, sigmoid)
        p.append("copy", image(c, 5, 6), channels_last(c, 5, 6))
        p.append("softmax", image(c, 5, 6), image(c, 5, 6), 1)
        p.append("softmax", image(c, 5, 6), image(c, 5, 6), 3, True)
    columns = np.arange(6) % 5, np.arange(6)[::-1] % 5, draw(6)
    p.append("resize", channels_last(c, 5, 5), channels_last(c, 6, 6), columns, columns)
    p.append("lrn", channels_last(c, 5, 6), channels_last(c, 5, 6), 5, 1e-4, 0.75, 1)
    layer = ConvTranspose2dPlan(draw(c, 5, 3, 3), None, None, (2, 2))
    p.append("conv_transpose", layer, channels_last(c, 4, 5), channels_last(5, 9, 11))
    p.append("unary", "exp", array(3, c), array(3, c), sigmoid)
    p.append("binary", "mul", array(3, c), np.broadcast_to(array(c), (3, c)), array(3, c))
    p.append("norm", array(3, c), array(3, c), 1e-5, mean, mean)
    p.append("gather", array(4, c), np.array([3, -4]), array(2, c), 0)
    p.append("matmul", array(5, c), array(c, 3), array(5, 3))
    p.append("matmul", array(c, 5).T, array(3, c).T, array(3, 5).T)
    p.append("attention", array(2, 5, c), array(1, 9, c), array(1, 9, c), array(2, 5, c), array(2, 5, 9))
    p.run(())
