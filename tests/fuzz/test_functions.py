"""Hostile arguments to every public function: the oracle's result or a documented exception, never a crash, `out`
untouched by an error."""

import inspect
import warnings

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import fusedops as fo
import oracle
from catalog import OPERATIONS, VIEWS, Draw, given, results
from fuzzing import fuzz

pytestmark = pytest.mark.thorough

ERRORS = (TypeError, ValueError, MemoryError)
VALUES = [0.0, -0.0, 1e-40, -1e-45, 1e30, -3e38, np.inf, -np.inf, np.nan]


@st.composite
def shapes(draw, shape):
    """A shape as it should be, or with an axis changed, added or dropped."""
    shape = list(shape)
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2]))):
        change = draw(st.sampled_from(["length", "insert", "drop"]))
        at = draw(st.integers(0, max(len(shape) - 1, 0)))
        if change == "insert":
            shape.insert(at, draw(st.integers(0, 3)))
        elif shape and change == "drop":
            del shape[at]
        elif shape:
            shape[at] = draw(st.sampled_from([0, 1, 2, 3, shape[at] + 1, 65]))
    return tuple(shape)


@st.composite
def arrays(draw, shape):
    """An array of about this shape: any memory, any values; sometimes of another dtype, huge by its strides, or no
    array at all."""
    kind = draw(st.sampled_from(["plain"] * 24 + ["view"] * 12 + ["values"] * 8 + ["dtype", "huge", "object"]))
    shape = draw(shapes(shape))
    a = Draw(draw(st.integers(0, 99)))(*shape)
    if kind == "view" and a.ndim and a.size:
        return VIEWS[draw(st.sampled_from(sorted(VIEWS)))](a)
    if kind == "values" and a.size:
        a.flat[draw(st.integers(0, a.size - 1)) :: draw(st.integers(1, 7))] = draw(st.sampled_from(VALUES))
    if kind == "dtype":
        return a.astype(
            draw(st.sampled_from([np.float64, np.float16, ">f4", np.int32, np.complex64, bool, object, "U8"]))
        )
    if kind == "huge" and a.ndim and a.size:
        long = list(shape)
        long[draw(st.integers(0, a.ndim - 1))] = draw(st.sampled_from([2**31, 2**40]))
        return np.broadcast_to(np.float32(1), long)
    return draw(st.sampled_from([None, 1.5, "text", [[1.0]], {}])) if kind == "object" else a


def is_huge(a):
    return isinstance(a, np.ndarray) and a.size >= 2**31


def copied(a):
    return a.copy() if isinstance(a, np.ndarray) and not is_huge(a) else a


def small(a):
    """Whether the oracle's error bound means something: no NaN, no infinity, nothing near the largest numbers."""
    return not isinstance(a, np.ndarray) or bool(np.isfinite(a).all() and np.abs(a).max(initial=0) < 1e6)


@st.composite
def batch_norms(draw, channels):
    """A batch norm of positive variances, or about one."""
    gamma, beta, mean, var = (draw(arrays((channels,))) for _ in range(4))
    if isinstance(var, np.ndarray) and var.dtype == np.float32 and not is_huge(var) and draw(st.integers(0, 4)):
        var = np.abs(var)
    return fo.BatchNorm(gamma, beta, mean, var, draw(st.sampled_from([1e-5, 1e-5, 0, -1, np.nan, 10**400, "x"])))


pairs = st.one_of(
    st.integers(-1, 4),
    st.tuples(st.integers(-1, 4), st.integers(-1, 4)),
    st.sampled_from([65, 2**31 - 1, (1, 2**31 - 1), 2**31, 2**62, 2**70, 1.5, "x", None, ()]),
)
OPTIONS = {
    "stride": pairs,
    "dilation": pairs,
    "padding": pairs | st.sampled_from(["same", "valid", ((0, 1), (2, 3)), ((2**62, 1), (2, 3)), ((0, 1), 2)]),
    "groups": st.sampled_from([0, 1, 2, 5, -1, 2**40, "x"]),
    "layout": st.sampled_from(["NCHW", "NHWC", "nchw", None]),
    "algorithm": st.sampled_from(["auto", "direct", "winograd", "winograd1d", "fft", 1]),
    "activation": st.sampled_from(
        [
            None,
            *(a for a in oracle.ACTIVATIONS if a not in ("clip", "prelu")),
            ("clip", -1, 1),
            ("clip", 1, 0),
            ("clip", np.nan, 1),
            ("elu", "x"),
            ("leaky_relu", 1e40),
            (),
            7,
            "prelu",
            ("prelu", np.ones(9)),
        ]
    ),
    "reset_after": st.booleans(),
    "bn": None,
    "causal": st.booleans(),
    "scale": st.sampled_from([None, 0.5, -1.0, 0, np.nan, 1e40, 10**400, "x"]),
}
CONVOLUTION = set(OPTIONS) - {"reset_after", "causal", "scale"}
TAKES = {
    fo.conv2d: CONVOLUTION,
    fo.conv_bn_relu: CONVOLUTION - {"activation"},
    fo.depthwise_conv2d: {"stride", "dilation", "padding", "layout", "activation", "bn"},
    fo.depthwise_conv_bn_relu: {"stride", "dilation", "padding", "layout", "bn"},
    fo.conv1d: CONVOLUTION,
    fo.conv_transpose2d: CONVOLUTION - {"algorithm"},
    fo.max_pool2d: {"stride", "dilation", "padding", "layout"},
    fo.avg_pool2d: {"stride", "dilation", "padding", "layout"},
    fo.softmax: set(),
    fo.log_softmax: set(),
    fo.layer_norm: set(),
    fo.rms_norm: set(),
    fo.group_norm: {"groups", "layout"},
    fo.resize: {"layout"},
    fo.attention: {"causal", "scale"},
    fo.gemm: {"activation"},
    fo.linear: {"activation"},
    fo.rnn_cell: {"activation"},
    fo.gru_cell: {"reset_after"},
    fo.lstm_cell: set(),
    fo.conv_transpose1d: CONVOLUTION - {"algorithm"},
    fo.conv3d: CONVOLUTION - {"algorithm"},
    fo.activation: {"activation"},
    fo.batch_norm: {"activation", "layout"},
    fo.instance_norm: {"layout"},
    fo.matmul: set(),
    fo.max_pool1d: {"stride", "dilation", "padding", "layout"},
    fo.avg_pool1d: {"stride", "dilation", "padding", "layout"},
    fo.global_avg_pool2d: {"layout"},
    fo.adaptive_avg_pool2d: {"layout"},
}


@st.composite
def calls(draw):
    operation = OPERATIONS[draw(st.sampled_from(sorted(OPERATIONS)))]
    chosen = {name: draw(arrays(shape)) for name, shape in operation.arrays.items()}
    takes = sorted(TAKES[operation.function])
    names = draw(st.sets(st.sampled_from(takes), max_size=2)) if takes else ()
    values = {k: draw(batch_norms(operation.arrays["w"][0]) if k == "bn" else OPTIONS[k]) for k in sorted(names)}
    unfused = draw(st.sampled_from([None, None, None, {}, {"fold_bn": True}]))
    twin = getattr(fo.reference, operation.function.__name__, None)
    if twin is None or "fold_bn" not in inspect.signature(twin).parameters:
        unfused = None
    return (
        operation,
        chosen,
        operation.options | values,
        unfused,
        draw(st.sampled_from(["none"] * 4 + ["right", "wrong", "overlapping"])),
    )


def memory(operation, chosen, kind):
    """What `out=` gets."""
    first = next(iter(chosen.values()))
    if kind == "right":
        return given(operation.out())
    if kind == "overlapping" and isinstance(first, np.ndarray) and first.flags.writeable:
        return given([first] * len(operation.results))
    return given([np.zeros((3, 1), np.float32)] * len(operation.results))


@fuzz(calls())
def test_functions(call):
    """Fused, or where `unfused` has the options of the reference path, there."""
    operation, chosen, options, unfused, kind = call
    function = operation.function if unfused is None else getattr(fo.reference, operation.function.__name__)
    before = {k: copied(v) for k, v in chosen.items()}
    if any(map(is_huge, chosen.values())):
        kind = "wrong"  # of such arrays the checks alone are asked for, not a year of computing
    out = {} if kind == "none" else {"out": memory(operation, chosen, kind)}
    out_before = [copied(a) for a in results(out.get("out", ()))]
    try:
        y = results(function(**chosen, **options, **out, **unfused or {}))
    except ERRORS as error:
        assert str(error) or isinstance(error, MemoryError)
        for a, a_before in zip(results(out.get("out", ())), out_before):
            np.testing.assert_array_equal(a, a_before)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = results(getattr(oracle, operation.function.__name__)(**before, **options))
        except MemoryError:
            return  # a border that the kernel only counts, and the oracle makes
        except ValueError as error:
            if "too big" not in str(error):
                raise
            return
    expected = [expected] if isinstance(expected, oracle.Approx) else expected
    winograd = options.get("algorithm", "direct" if operation.function.__name__ != "conv2d" else "auto") != "direct"
    for actual, approx in zip(y, expected, strict=True):
        assert actual.shape == approx.value.shape and actual.dtype == np.float32
        if all(
            map(
                small,
                (
                    *before.values(),
                    *(options.get("bn") or ()),
                    *map(np.asarray, results(options.get("activation"))[1:]),
                ),
            )
        ):
            oracle.check(np.ascontiguousarray(actual), approx, error=1e-4 if winograd else None)


@st.composite
def foldings(draw):
    channels = draw(st.integers(0, 5))
    w = draw(arrays((channels, *draw(st.sampled_from([(), (4,), (2, 3, 3)])))))
    return w, draw(st.none() | arrays((channels,))), draw(batch_norms(channels))


@fuzz(foldings())
def test_fold_batch_norm(call):
    w, bias, bn = call
    assume(not any(map(is_huge, (w, bias, *bn))))
    try:
        folded = fo.fold_batch_norm(w, bias, bn)
    except ERRORS as error:
        assert str(error)
        return
    with np.errstate(all="ignore"):
        expected = oracle.fold_batch_norm(w, bias, bn)
    for actual, exact in zip(folded, expected, strict=True):
        assert actual.dtype == np.float32 and actual.shape == exact.shape
        if all(map(small, (w, bias, *bn))):
            scale = np.abs(bn.gamma) / np.sqrt(bn.var.astype(np.float64) + bn.eps) if bn.gamma is not None else 0
            lost = np.finfo(np.float32).tiny * (1.1 + np.max(scale, initial=0))  # w and results below it count as zero
            np.testing.assert_allclose(actual, exact, rtol=1e-6, atol=lost)


@st.composite
def blocks(draw):
    """The convolutions of a block, or nearly those, and its input."""
    c, wide, oc = (
        draw(st.sampled_from([1, 3, 16])),
        draw(st.sampled_from([3, 16, 33])),
        draw(st.sampled_from([1, 3, 16])),
    )
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    kernel, shapes = draw(st.sampled_from([1, 3, 5])), []
    groups = draw(st.sampled_from([wide] * 8 + [1, c]))
    depthwise = dict(
        stride=draw(pairs), padding=draw(OPTIONS["padding"]), dilation=draw(st.integers(1, 2)), groups=groups
    )
    for shape, options in (((wide, c, 1, 1), {}), ((wide, 1, kernel, kernel), depthwise), ((oc, wide, 1, 1), {})):
        shapes.append(
            (
                draw(arrays(shape)),
                options | dict(layout=layout, activation=draw(st.sampled_from([None, "relu6", "silu"]))),
            )
        )
    h, w = draw(st.integers(0, 20)), draw(st.integers(0, 20))
    expands = draw(st.booleans())
    image = (2, c if expands else wide, h, w)
    return (
        shapes if expands else shapes[1:],
        draw(arrays(image if layout == "NCHW" else (2, h, w, image[1]))),
        draw(st.booleans()),
    )


@fuzz(blocks())
def test_blocks(call):
    """What the parts give one after the other, or a documented exception."""
    parts, x, residual = call
    assume(not any(map(is_huge, (x, *(w for w, _ in parts)))))
    try:
        layers = [fo.Conv2d(w, **options) for w, options in parts]
        block = fo.DepthwiseSeparable(*layers) if len(layers) == 2 else fo.InvertedResidual(*layers, residual=residual)
        y = block(x)
    except ERRORS as error:
        assert str(error) or isinstance(error, MemoryError)
        return
    expected = x
    try:
        for layer in layers[:-1]:
            expected = layer(expected)
    except MemoryError:  # for an image that the block does without
        return
    added = residual and len(layers) == 3 and layers[-1](expected).shape == x.shape
    expected = layers[-1](expected, x if added else None)
    assert y.shape == expected.shape
    if all(map(small, (x, *(w for w, _ in parts)))):
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


SEQUENCES = {fo.rnn: 1, fo.lstm: 4, fo.gru: 3}


@st.composite
def sequences(draw):
    function, hidden = draw(st.sampled_from(list(SEQUENCES))), draw(st.sampled_from([1, 5, 17]))
    rows = SEQUENCES[function] * hidden
    weights = [draw(arrays(shape)) for shape in ((rows, 7), (rows, hidden), (rows,), (rows,))]
    state = draw(st.none() | arrays((1, 3, hidden)) | st.tuples(arrays((1, 3, hidden)), arrays((1, 3, hidden))))
    options = draw(
        st.fixed_dictionaries(
            {},
            optional=dict(
                batch_first=st.booleans(),
                reverse=st.booleans(),
                bidirectional=st.booleans(),
                num_layers=st.sampled_from([1, 2, 0, -1, 2**70, "x"]),
                clip=st.sampled_from([1, 0, -1, np.nan, 10**400, "x"]),
                lengths=st.sampled_from(
                    [[1, 2, 3], [0, 0, 0], [9, 1, 1], [-1, 2, 2], [1.5], "x", np.ones((3, 1), int)]
                ),
            ),
        )
    )
    return function, draw(arrays((4, 3, 7))), state, weights, options


@fuzz(sequences())
def test_sequences(call):
    """A result of the right shape and the same once more, or a documented exception; test_recurrent.py has the
    oracle."""
    function, x, state, weights, options = call
    assume(not any(map(is_huge, (x, *weights, *results(state)))))
    try:
        y, last = function(x, state, *weights, **options)
    except ERRORS as error:
        assert str(error)
        return
    assert y.shape[:-1] == np.shape(x)[:-1] and y.dtype == np.float32
    again, last_again = function(x, state, *weights, **options)
    for a, b in zip((y, *results(last)), (again, *results(last_again))):
        np.testing.assert_array_equal(a, b)
    plain = np.ndim(x) == 3 and all(
        options.get(k) in (None, False) for k in ("batch_first", "reverse", "bidirectional", "lengths")
    )
    if plain and state is None and np.shape(x)[1]:
        stream = {fo.rnn: fo.RNN, fo.lstm: fo.LSTM, fo.gru: fo.GRU}[function](*weights, **options).stream(
            np.shape(x)[1]
        )
        for step, expected in zip(x, y, strict=True):
            np.testing.assert_array_equal(stream.step(step), expected)
