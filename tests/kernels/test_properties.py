"""Random shapes and options, all against the oracle."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fusedops as fo
import oracle
from catalog import VIEWS, Draw, dims, using_isa
from fusedops import reference
from oracle import ACTIVATIONS, check

settings.register_profile(
    "fusedops", derandomize=True, max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fusedops")

isas = st.sampled_from(fo.available_isas())
layouts = st.sampled_from(["NCHW", "NHWC"])
views = st.sampled_from([np.ascontiguousarray, *VIEWS.values()])
seeds = st.integers(0, 2**32 - 1)


def pairs(elements):
    return elements | st.tuples(elements, elements)


sides = st.tuples(st.integers(0, 3), st.integers(0, 3))
paddings = pairs(st.integers(0, 3)) | st.sampled_from(["same", "valid"]) | st.tuples(sides, sides)


@st.composite
def epilogues(draw, arrays, c, shape):
    """Any of bias, batch norm, residual and activation."""
    options = {}
    if draw(st.booleans()):
        options["bias"] = arrays(c)
    if draw(st.booleans()):
        options["residual"] = draw(views)(arrays(*shape))
    name = draw(st.sampled_from([None, *ACTIVATIONS]))
    return options | dict(activation=arrays.activation(name, c))


@st.composite
def convolutions(draw, depthwise=False):
    arrays = Draw(draw(seeds))
    groups = draw(st.integers(1, 20 if depthwise else 4))
    icg = 1 if depthwise else draw(st.integers(1, 20))
    oc = groups * draw(st.integers(1, 3) if depthwise else st.integers(1, 36))
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    options = dict(
        groups=groups,
        stride=draw(pairs(st.integers(1, 3))),
        dilation=draw(pairs(st.integers(1, 3))),
        padding=draw(paddings),
    )
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, oracle.pair(options["dilation"]))]
    n, (h, w) = draw(st.integers(1, 3)), (draw(st.integers(span, span + 20)) for span in spans)
    layout = draw(layouts)
    x = draw(views)(arrays(*dims(layout, n, groups * icg, h, w)))
    weights = draw(views)(arrays(oc, icg, *kernel))
    options["layout"] = layout
    shape = oracle.conv2d(x, weights, **options).value.shape
    options |= draw(epilogues(arrays, oc, shape))
    if draw(st.booleans()):
        options["bn"] = arrays.batch_norm(oc)
    return x, weights, options


@given(convolutions(), isas)
def test_conv2d(convolution, isa):
    x, w, options = convolution
    with using_isa(isa):
        check(fo.conv2d(x, w, **options, algorithm="direct"), oracle.conv2d(x, w, **options))


@given(convolutions(depthwise=True), isas)
def test_depthwise(convolution, isa):
    x, w, options = convolution
    del options["groups"]
    with using_isa(isa):
        check(fo.depthwise_conv2d(x, w, **options), oracle.depthwise_conv2d(x, w, **options))


@given(convolutions(), isas, st.booleans())
def test_reference(convolution, isa, fold_bn):
    x, w, options = convolution
    with using_isa(isa):
        y = reference.conv2d(x, w, **options, fold_bn=fold_bn, algorithm="direct")
        check(y, oracle.conv2d(x, w, **options))


@given(st.data(), isas, seeds)
def test_gemm(data, isa, seed):
    arrays = Draw(seed)
    m, k, n = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 80), st.integers(1, 80)))
    a, b = data.draw(views)(arrays(m, k)), data.draw(views)(arrays(k, n))
    options = data.draw(epilogues(arrays, n, (m, n)))
    with using_isa(isa):
        check(fo.gemm(a, b, **options), oracle.gemm(a, b, **options))
        check(fo.linear(a, b.T, **options), oracle.gemm(a, b, **options))


@given(st.data(), isas, seeds, st.sampled_from([(fo.rnn_cell, 1), (fo.lstm_cell, 4), (fo.gru_cell, 3)]))
def test_cells(data, isa, seed, cell):
    arrays, (function, gates) = Draw(seed), cell
    batch, inputs, hidden = data.draw(st.tuples(st.integers(1, 14), st.integers(1, 40), st.integers(1, 70)))
    states = [(batch, hidden)] * (2 if gates == 4 else 1)
    shapes = [(batch, inputs), *states, (gates * hidden, inputs), (gates * hidden, hidden)]
    arguments = [data.draw(views)(arrays(*shape)) for shape in shapes]
    biases = [data.draw(st.sampled_from([None, arrays(gates * hidden)])) for _ in range(2)]
    with using_isa(isa):
        y, y64 = (f(*arguments, *biases) for f in (function, getattr(oracle, function.__name__)))
        for actual, expected in zip(*((y, y64) if gates == 4 else ([y], [y64]))):
            check(actual, expected)
