"""Small integers, whose sums of products are floats: here every result is exact, and any order of the sum gives it."""

import numpy as np
import pytest

import fusedops as fo
import oracle
from catalog import dims
from fusedops import reference

CONVOLUTIONS = [
    # input channels, image, output channels, kernel, options
    (7, (9, 17), 13, (1, 1), {}),
    (64, (12, 12), 33, (1, 1), dict(stride=2)),
    (5, (11, 13), 17, (3, 3), dict(padding=1)),
    (33, (7, 6), 65, (3, 3), dict(padding=1, stride=2)),
    (3, (15, 15), 31, (7, 7), dict(padding=3, stride=2)),
    (4, (12, 11), 8, (3, 3), dict(padding=((2, 1), (0, 2)), dilation=(2, 1))),
    (12, (8, 9), 18, (3, 3), dict(padding=1, groups=3)),
    (18, (8, 19), 18, (3, 3), dict(padding=1, groups=18)),
    (19, (9, 35), 19, (5, 5), dict(padding=2, groups=19, stride=2)),
]
EPILOGUES = [dict(), dict(activation="relu"), dict(activation=("clip", -50, 50)), dict(activation=("leaky_relu", 0.5))]


def integer_batch_norm(draw, c):
    """Its scale is a power of two."""
    gamma, var = 2.0 ** draw.rng.integers(-2, 3, c), 4.0 ** draw.rng.integers(-1, 2, c)
    return fo.BatchNorm(np.float32(gamma), draw.integers(c), draw.integers(c), np.float32(var), eps=0.0)


@pytest.mark.parametrize("module", [fo, reference], ids=["fused", "reference"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("ic, size, oc, kernel, options", CONVOLUTIONS)
def test_conv2d(isa, draw, module, layout, ic, size, oc, kernel, options):
    x = draw.integers(*dims(layout, 2, ic, *size))
    w = draw.integers(oc, ic // options.get("groups", 1), *kernel)
    shape = oracle.conv2d(x, w, **options, layout=layout).value.shape
    for epilogue in EPILOGUES:
        epilogue = epilogue | dict(bias=draw.integers(oc), residual=draw.integers(*shape), layout=layout)
        epilogue["bn"] = integer_batch_norm(draw, oc)
        y = module.conv2d(x, w, **options, **epilogue, algorithm="direct")
        np.testing.assert_array_equal(y, oracle.conv2d(x, w, **options, **epilogue).value)


@pytest.mark.parametrize("module", [fo, reference], ids=["fused", "reference"])
@pytest.mark.parametrize("m, k, n", [(1, 64, 33), (7, 129, 17), (13, 31, 65), (50, 300, 47), (128, 1000, 1)])
def test_gemm_and_linear(isa, draw, threads, module, m, k, n):
    a, b, bias, residual = draw.integers(m, k), draw.integers(k, n), draw.integers(n), draw.integers(m, n)
    for epilogue in EPILOGUES:
        expected = oracle.gemm(a, b, bias=bias, residual=residual, **epilogue).value
        np.testing.assert_array_equal(module.gemm(a, b, bias=bias, residual=residual, **epilogue), expected)
        np.testing.assert_array_equal(module.linear(a, b.T, bias, residual=residual, **epilogue), expected)


@pytest.mark.parametrize("inputs, hidden", [(3, 5), (16, 33), (40, 64)])
def test_rnn_cell(isa, draw, inputs, hidden):
    shapes = [(5, inputs), (5, hidden), (hidden, inputs), (hidden, hidden), (hidden,), (hidden,)]
    arguments = [draw.integers(*shape) for shape in shapes]
    y = fo.rnn_cell(*arguments, activation="relu")
    np.testing.assert_array_equal(y, oracle.rnn_cell(*arguments, activation="relu").value)
