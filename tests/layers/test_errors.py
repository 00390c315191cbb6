"""Every wrong argument is refused: the right type of error, a text that names it, and nothing written to `out`."""

import inspect
import warnings

import numpy as np
import pytest

import fusedops as fo
from catalog import OPERATIONS, dims, given, misaligned

ARGUMENTS = [(name, argument) for name, operation in OPERATIONS.items() for argument in operation.arrays]


def refused(error, operation, arrays, *texts, out=None, **options):
    """Calling it raises `error` whose text has all of `texts`, and leaves `out` alone."""
    out = operation.out() if out is None else out
    before = [y.copy() for y in out]
    with pytest.raises(error) as caught:
        operation(arrays, out=given(out), **options)
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in {str(caught.value)!r}"
    for y, y_before in zip(out, before):
        np.testing.assert_array_equal(y, y_before)


# What every operation refuses


HALVES = "linear", "conv", "im2col", "winograd", "first_layer"  # whose weights may be float16


@pytest.mark.parametrize("name, argument", ARGUMENTS)
def test_wrong_dtype(draw, name, argument):
    arrays = OPERATIONS[name].draw(draw)
    for dtype in np.float64, np.int32, np.float16, np.complex64, np.bool_, object:
        if dtype == np.float16 and argument == "w" and name.startswith(HALVES) and "transpose" not in name:
            continue  # float16 weights are taken (test_halves.py)
        wrong = arrays | {argument: arrays[argument].astype(dtype)}
        refused(TypeError, OPERATIONS[name], wrong, argument, np.dtype(dtype).name, f"{argument}.astype(np.float32)")


@pytest.mark.parametrize("name, argument", ARGUMENTS)
def test_foreign_byte_order(draw, name, argument):
    arrays = OPERATIONS[name].draw(draw)
    arrays[argument] = arrays[argument].astype(">f4")
    refused(TypeError, OPERATIONS[name], arrays, argument, f"{argument}.astype(np.float32)")


@pytest.mark.parametrize("name, argument", ARGUMENTS)
def test_not_an_array(draw, name, argument):
    may_be_none = argument in ("weight", "bias", "residual", "b_ih", "b_hh")
    for value in (1.5, [[1.0]], "text") + (() if may_be_none else (None,)):
        refused((TypeError, ValueError), OPERATIONS[name], OPERATIONS[name].draw(draw) | {argument: value}, argument)


def test_masked_array(draw):
    with pytest.raises(TypeError, match=r"x.*mask"):
        fo.linear(np.ma.masked_array(draw(3, 5), mask=True), draw(4, 5))


ANY_RANK = {fo.gemm, fo.linear, fo.softmax, fo.log_softmax, fo.layer_norm, fo.rms_norm, fo.group_norm}
ANY_RANK |= {fo.batch_norm, fo.instance_norm, fo.matmul}


@pytest.mark.parametrize("name, argument", [(n, a) for n, a in ARGUMENTS if n != "activation"])  # of any shape
def test_wrong_rank(draw, name, argument):
    arrays = OPERATIONS[name].draw(draw)
    if argument in ("q", "k", "v"):  # axes before the heads are broadcast
        arrays[argument] = arrays[argument][0, 0]
        return refused(ValueError, OPERATIONS[name], arrays, argument, str(np.shape(arrays[argument])))
    function = OPERATIONS[name].function
    any_rank = function in ANY_RANK and (argument in ("a", "x") or function is fo.matmul)
    arrays[argument] = arrays[argument].sum() if any_rank else arrays[argument][None, None]
    refused(ValueError, OPERATIONS[name], arrays, argument, str(np.shape(arrays[argument])))


def shared_axis(operation, argument):
    """An axis whose length follows from other arguments."""
    if argument == "x" and "w" in operation.arrays:
        return -1 if operation.options.get("layout") == "NHWC" or "linear" in operation.function.__name__ else 1
    if argument == "w":
        return 0 if operation.function.__name__.startswith(("depthwise", "conv_transpose")) else 1
    if argument == "x" and ("groups" in operation.options or operation.function is fo.instance_norm):
        return -1 if operation.options.get("layout") == "NHWC" else 1
    if argument in ("q", "k", "v"):
        return 2 if argument == "v" else -1
    return -1 if argument in ("a", "x", "h", "c", "w_ih", "w_hh") else 0


@pytest.mark.parametrize("name, argument", [(n, a) for n, a in ARGUMENTS if len(OPERATIONS[n].arrays) > 1])
def test_an_axis_too_long(draw, name, argument):
    """One element more than the other arguments agree with; the text has the shape."""
    arrays = OPERATIONS[name].draw(draw)
    shape = list(arrays[argument].shape)
    shape[shared_axis(OPERATIONS[name], argument)] += 1
    arrays[argument] = draw(*shape)
    refused(ValueError, OPERATIONS[name], arrays, argument, str(tuple(shape)))


@pytest.mark.parametrize(
    "name, path",
    [
        pytest.param(name, path, id=f"{name}-{'fused' if path is fo else 'unfused'}")
        for name, operation in OPERATIONS.items()
        for path in (fo, fo.reference)
        if hasattr(path, operation.function.__name__)
    ],
)
def test_out(draw, name, path):
    operation = OPERATIONS[name]
    operation = operation._replace(function=getattr(path, operation.function.__name__))
    arrays, out = operation.draw(draw), operation.out()
    *first, last = out
    shape = last.shape
    read_only = last.copy()
    read_only.flags.writeable = False
    for error, texts, wrong in [
        (ValueError, [str(shape)], np.full((*shape[:-1], shape[-1] + 1), 7, np.float32)),
        (ValueError, [str(shape)], np.full((1, *shape), 7, np.float32)),
        (ValueError, [str(shape)], np.full((), 7, np.float32)),
        (ValueError, ["read-only"], read_only),
        (TypeError, ["float64"], np.full(shape, 7.0)),
        (TypeError, [], np.full(shape, 7, ">f4")),
        (TypeError, ["masked"], np.ma.masked_array(np.full(shape, 7, np.float32), mask=True, hard_mask=True)),
    ]:
        refused(error, operation, arrays, "out", *texts, out=[*first, wrong])
    with pytest.raises(TypeError, match="out"):
        operation(arrays, out=[1.0, 2.0])


# Convolutions

CONV, DEPTHWISE = OPERATIONS["conv3x3"], OPERATIONS["depthwise"]


@pytest.mark.parametrize("operation", [CONV, DEPTHWISE], ids=["conv2d", "depthwise_conv2d"])
@pytest.mark.parametrize(
    "options, texts",
    [
        (dict(stride=0), ["stride", "0"]),
        (dict(stride=-1), ["stride", "-1"]),
        (dict(stride=(1, 0)), ["stride"]),
        (dict(stride=(1, 2, 3)), ["stride"]),
        (dict(stride=2**31), ["stride", "2**31"]),
        (dict(stride=(1, 2**70)), ["stride", "2**31"]),
        (dict(dilation=0), ["dilation", "0"]),
        (dict(dilation=(1, -2)), ["dilation"]),
        (dict(dilation=2**70), ["dilation", "2**31"]),
        (dict(padding=-1), ["padding", "-1"]),
        (dict(padding=((0, 1), (-1, 0))), ["padding"]),
        (dict(padding=((0, 2**64), (1, 0))), ["padding", "2**31"]),
        (dict(padding=(1, 2, 3)), ["padding"]),
        (dict(padding="full"), ["padding", "full", "same", "valid"]),
        (dict(layout="NWHC"), ["layout", "NWHC", "NCHW", "NHWC"]),
        (dict(layout="nhwc"), ["layout", "nhwc", "NCHW", "NHWC"]),
        (dict(activation="rleu"), ["activation", "rleu", "relu"]),
        (dict(activation=("clip", 1)), ["clip"]),
        (dict(activation=("relu", 1)), ["relu"]),
        (dict(activation=("leaky_relu", 1, 2)), ["leaky_relu"]),
        (dict(activation="clip"), ["clip"]),
        (dict(activation="prelu"), ["prelu"]),
        (dict(activation=("prelu", np.ones(3, np.float32))), ["prelu", "(3,)"]),
    ],
)
def test_bad_value(draw, operation, options, texts):
    operation = operation._replace(options=operation.options | options)
    refused(ValueError, operation, operation.draw(draw), *texts)


@pytest.mark.parametrize("operation", [CONV, DEPTHWISE], ids=["conv2d", "depthwise_conv2d"])
@pytest.mark.parametrize(
    "options, texts",
    [
        (dict(stride=1.5), ["stride"]),
        (dict(stride="2"), ["stride"]),
        (dict(dilation=None), ["dilation"]),
        (dict(padding=0.5), ["padding"]),
        (dict(padding=(1, (0, 1))), ["padding", "two such pairs"]),
        (dict(padding=np.ones((2, 2), int)), ["padding", "two such pairs"]),
        (dict(padding=(0, 0, 1, 1)), ["padding", "two such pairs"]),
        (dict(padding="causal"), ["((k - 1) * dilation, 0)"]),
        (dict(layout=1), ["layout"]),
        (dict(layout=np.array(["NCHW", "NHWC"])), ["unknown layout"]),
        (dict(activation=1), ["activation"]),
        (dict(activation=()), ["activation"]),
        (dict(activation=("leaky_relu", "steep")), ["leaky_relu"]),
        (dict(activation=("prelu", np.ones(9))), ["prelu", "float64", "astype(np.float32)"]),
        (dict(activation=("prelu", np.ma.ones(9, np.float32))), ["slopes", "mask"]),
    ],
)
def test_bad_type(draw, operation, options, texts):
    operation = operation._replace(options=operation.options | options)
    refused((TypeError, ValueError), operation, operation.draw(draw), *texts)


def test_unknown_algorithm(draw):
    operation = CONV._replace(options=dict(padding=1, algorithm="fft"))
    refused(ValueError, operation, operation.draw(draw), "algorithm", "fft", "auto", "direct", "winograd")


@pytest.mark.parametrize("groups", [1.5, "2", None])
def test_groups_that_are_no_number(draw, groups):
    with pytest.raises(TypeError, match="groups"):
        fo.conv2d(draw(1, 5, 6, 6), draw(10, 5, 3, 3), groups=groups)


@pytest.mark.parametrize("groups", [0, -1, 2, 3, 10])
def test_groups_that_do_not_divide(draw, groups):
    with pytest.raises(ValueError, match=f"groups.*{groups}|{groups}.*groups"):
        fo.conv2d(draw(1, 5, 6, 6), draw(10, 5, 3, 3), groups=groups)


def test_groups_that_divide_the_input_alone(draw):
    with pytest.raises(ValueError, match="groups"):
        fo.conv2d(draw(1, 6, 6, 6), draw(9, 3, 3, 3), groups=2)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "size, kernel, options",
    [
        ((4, 9), (5, 3), {}),
        ((9, 4), (3, 7), dict(padding=1)),
        ((4, 4), (3, 3), dict(dilation=2)),
        ((0, 4), (3, 3), dict(padding=1)),
    ],
)
def test_kernel_larger_than_the_padded_image(draw, layout, size, kernel, options):
    x = draw(*dims(layout, 1, 3, *size))
    for function, w in (fo.conv2d, draw(2, 3, *kernel)), (fo.depthwise_conv2d, draw(3, 1, *kernel)):
        with pytest.raises(ValueError, match="kernel"):
            function(x, w, layout=layout, **options)


@pytest.mark.parametrize("function", [fo.conv2d, fo.conv_bn_relu, fo.depthwise_conv2d, fo.depthwise_conv_bn_relu])
@pytest.mark.parametrize("field", ["gamma", "beta", "mean", "var"])
def test_batch_norm(draw, function, field):
    x, w, bn = draw(1, 6, 5, 5), draw(6, 6 if "depthwise" not in function.__name__ else 1, 3, 3), draw.batch_norm(6)
    out = np.full((1, 6, 3, 3), 7, np.float32)
    with pytest.raises(ValueError, match=rf"{field}.*\(5,\)"):
        function(x, w, bn=bn._replace(**{field: draw(5)}), out=out)
    with pytest.raises(ValueError, match=field):
        function(x, w, bn=bn._replace(**{field: draw(6, 1)}), out=out)
    with pytest.raises(TypeError, match=rf"{field}.*float64.*astype\(np.float32\)"):
        function(x, w, bn=bn._replace(**{field: np.ones(6)}), out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("var, eps", [(-1.0, 1e-5), (0.0, 0.0), (-1e-5, 1e-6)])
def test_batch_norm_without_a_root(draw, var, eps):
    x, w, bn = draw(1, 6, 5, 5), draw(4, 6, 3, 3), draw.batch_norm(4)
    bn.var[2] = var
    with pytest.raises(ValueError, match="var"):
        fo.conv2d(x, w, bn=bn._replace(eps=eps))
    with pytest.raises(ValueError, match="var"):
        fo.fold_batch_norm(w, None, bn._replace(eps=eps))


def test_fold_batch_norm(draw):
    w, bn = draw(4, 6, 3, 3), draw.batch_norm(4)
    with pytest.raises(TypeError, match=r"w.*float64.*astype\(np.float32\)"):
        fo.fold_batch_norm(w.astype(np.float64), None, bn)
    with pytest.raises(ValueError, match=r"bias.*\(5,\)"):
        fo.fold_batch_norm(w, draw(5), bn)
    with pytest.raises(ValueError, match=r"\(5,\)"):
        fo.fold_batch_norm(w, None, draw.batch_norm(5))


@pytest.mark.parametrize(
    "x, channels, layout, text",
    [
        (
            (1, 0, 5, 5),
            0,
            "NCHW",
            r"x has shape \(1, 0, 5, 5\), but a depthwise convolution needs at least one channel",
        ),
        ((1, 5, 5, 6), 6, "nhwc", "unknown layout 'nhwc'"),
    ],
)
def test_channels_of_a_depthwise_convolution(draw, x, channels, layout, text):
    with pytest.raises(ValueError, match=text):
        fo.depthwise_conv2d(draw(*x), draw(channels, 1, 3, 3), layout=layout)


# Products and cells


@pytest.mark.parametrize(
    "call, shapes",
    [
        (lambda draw: fo.gemm(draw(3, 5), draw(6, 7)), ["(3, 5)", "(6, 7)"]),
        (lambda draw: fo.gemm(draw(2, 3, 5), draw(2, 5, 7)), ["(2, 5, 7)"]),
        (lambda draw: fo.gemm(draw(3, 5), draw(5)), ["(5,)"]),
        (lambda draw: fo.gemm(draw(3, 5), draw(6, 5)), ["(3, 5)", "(6, 5)", ": pass b.T"]),
        (lambda draw: fo.matmul(draw(2, 3, 5), draw(2, 6, 5)), ["(2, 6, 5)", ": pass b.swapaxes(-2, -1)"]),
        (lambda draw: fo.linear(draw(3, 5), draw(7, 6)), ["(3, 5)", "(7, 6)"]),
        (lambda draw: fo.linear(draw(3, 5), draw(5)), ["(5,)"]),
        (lambda draw: fo.linear(draw(3, 5), draw(7, 5), draw(3)), ["bias", "(3,)"]),
        (lambda draw: fo.linear(draw(3, 5), draw(7, 5), residual=draw(7)), ["residual", "(7,)", "(3, 7)"]),
    ],
)
def test_shapes_of_products(draw, call, shapes):
    with pytest.raises(ValueError) as caught:
        call(draw)
    for shape in shapes:
        assert shape in str(caught.value)


@pytest.mark.parametrize("function, gates", [(fo.rnn_cell, 1), (fo.lstm_cell, 4), (fo.gru_cell, 3)])
def test_shapes_of_cells(draw, function, gates):
    good = dict(x=(3, 5), h=(3, 8), w_ih=(gates * 8, 5), w_hh=(gates * 8, 8), b_ih=(gates * 8,), b_hh=(gates * 8,))
    if function is fo.lstm_cell:
        good |= dict(c=(3, 8))
    wrong = dict(x=(3, 6), h=(4, 8), c=(3, 9), w_ih=(gates * 8 + 1, 5), w_hh=(gates * 8, 9), b_ih=(gates * 8 - 1,))
    for argument, shape in wrong.items():
        if argument in good:
            with pytest.raises(ValueError) as caught:
                function(**{k: draw(*v) for k, v in (good | {argument: shape}).items()})
            assert argument in str(caught.value) and str(shape) in str(caught.value)


def test_activation_of_a_cell(draw):
    with pytest.raises(ValueError, match="activation.*sinh"):
        fo.rnn_cell(draw(3, 5), draw(3, 8), draw(8, 5), draw(8, 8), activation="sinh")


# Prepared layers


def test_layers_check_their_weights_at_once(draw):
    with pytest.raises(TypeError, match=r"w.*float64.*astype\(np.float32\)"):
        fo.Conv2d(np.ones((4, 3, 3, 3)))
    with pytest.raises(ValueError, match=r"w.*\(4, 3, 3\)"):
        fo.Conv2d(draw(4, 3, 3))
    with pytest.raises(ValueError, match="groups"):
        fo.Conv2d(draw(4, 3, 3, 3), groups=3)
    with pytest.raises(ValueError, match="bias"):
        fo.Conv2d(draw(4, 3, 3, 3), draw(3))
    with pytest.raises(ValueError, match=r"bn.*\(3,\)"):
        fo.Conv2d(draw(4, 3, 3, 3), bn=draw.batch_norm(3))
    with pytest.raises(ValueError, match="stride"):
        fo.Conv2d(draw(4, 3, 3, 3), stride=0)
    with pytest.raises(ValueError, match="activation"):
        fo.Linear(draw(4, 3), activation="swoosh")
    with pytest.raises(ValueError, match=r"\(7, 5\)"):
        fo.GRUCell(draw(7, 5), draw(6, 2))


def test_layers_check_their_input(draw):
    with pytest.raises(ValueError, match=r"\(1, 4, 6, 6\)"):
        fo.Conv2d(draw(4, 3, 3, 3))(draw(1, 4, 6, 6))
    with pytest.raises(ValueError, match=r"\(2, 4\)"):
        fo.Linear(draw(4, 3))(draw(2, 4))
    with pytest.raises(TypeError, match=r"x.astype\(np.float32\)"):
        fo.Linear(draw(4, 3))(np.ones((2, 3)))
    with pytest.raises(ValueError, match="h"):
        fo.LSTMCell(draw(8, 3), draw(8, 2))(draw(2, 3), draw(2, 3), draw(2, 2))
    with pytest.raises(ValueError, match=r"h must have shape \(5,\)"):
        fo.rnn_cell(draw(0), draw(3, 5), draw(5, 0), draw(5, 5))


@pytest.mark.parametrize(
    "call, fix",
    [
        (lambda draw: fo.conv2d(draw(3, 6, 7), draw(4, 3, 3, 3)), r"pass x\[np.newaxis\]"),
        (lambda draw: fo.conv2d(draw(6, 7, 3), draw(4, 3, 3, 3), layout="NHWC"), r"pass x\[np.newaxis\]"),
        (lambda draw: fo.conv2d(draw(1, 6, 7, 3), draw(4, 3, 3, 3)), "pass layout='NHWC'"),
        (lambda draw: fo.conv2d(draw(6, 7, 3), draw(4, 3, 3, 3)), r"pass x\[np.newaxis\] and layout='NHWC'"),
        (
            lambda draw: fo.conv2d(draw(3, 6, 7), draw(4, 3, 3, 3), layout="NHWC"),
            r"pass x\[np.newaxis\] and layout='NCHW'",
        ),
        (lambda draw: fo.conv2d(draw(1, 3, 6, 7), draw(4, 3, 3, 3), layout="NHWC"), "pass layout='NCHW'"),
        (lambda draw: fo.linear(draw(2, 5), draw(5, 3)), "pass w.T"),
        # weights of all groups, whose image is no other layout's for having as many columns as that needs channels
        (lambda draw: fo.conv2d(draw(1, 4, 8, 8), draw(8, 4, 3, 3), groups=2), r"w of shape \(8, 2, 3, 3\).*groups=1$"),
        (lambda draw: fo.conv2d(draw(1, 3, 8, 6), draw(8, 3, 3, 3), groups=2), "pass groups=1$"),
        (lambda draw: fo.conv2d(draw(1, 8, 8, 4), draw(8, 2, 3, 3), groups=2), "pass layout='NHWC'$"),
        (lambda draw: fo.conv2d(draw(1, 6, 8, 8), draw(6, 1, 3, 3)), "pass groups=6$"),
        (lambda draw: fo.conv2d(draw(6, 8, 8), draw(6, 1, 3, 3)), r"pass x\[np.newaxis\] and groups=6$"),
        (lambda draw: fo.conv2d(draw(1, 16, 8, 8), draw(3, 3, 16, 5)), r"pass w.transpose\(3, 2, 0, 1\), if"),
        (
            lambda draw: fo.conv2d(draw(1, 8, 8, 16), draw(3, 3, 16, 5), layout="NHWC"),
            r"pass w.transpose\(3, 2, 0, 1\)",
        ),
        (
            lambda draw: fo.depthwise_conv2d(draw(1, 6, 8, 8), draw(3, 5, 6, 2)),
            r"w.transpose\(2, 3, 0, 1\).reshape\(12, 1, 3, 5\)",
        ),
    ],
)
def test_the_likely_fix_of_a_shape(draw, call, fix):
    with pytest.raises(ValueError, match=fix):
        call(draw)


def test_the_advice_on_weights_is_right(draw):
    """What the texts above say to pass gives the convolution that was meant."""
    x, w = draw(1, 6, 8, 8), draw(5, 6, 3, 3)
    np.testing.assert_array_equal(fo.conv2d(x, w.transpose(2, 3, 1, 0).transpose(3, 2, 0, 1)), fo.conv2d(x, w))
    w = draw(12, 1, 3, 5)
    given = w.reshape(6, 2, 3, 5).transpose(2, 3, 0, 1)  # (kh, kw, c, m)
    fixed = given.transpose(2, 3, 0, 1).reshape(12, 1, 3, 5)
    np.testing.assert_array_equal(fo.depthwise_conv2d(x, fixed), fo.depthwise_conv2d(x, w))


@pytest.mark.parametrize(
    "call", [lambda x, w: fo.conv2d(x, w), lambda x, w: fo.Conv2d(w)(x), lambda x, w: fo.conv_bn_relu(x, w)]
)
def test_weights_of_rgb_images_in_another_order(draw, call):
    """A kernel of (kh, kw, ic, oc) that fits as one of (oc, ic, kh, kw) is computed, with a warning."""
    with pytest.warns(UserWarning, match=r"\(3, 3, 3, 16\).*w.transpose\(3, 2, 0, 1\)") as caught:
        assert call(draw(1, 3, 20, 20), draw(3, 3, 3, 16)).shape == (1, 3, 18, 5)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "shape, groups", [((3, 3, 3, 3), 1), ((3, 3, 3, 7), 1), ((3, 3, 1, 16), 1), ((3, 3, 3, 16), 3), ((16, 3, 3, 3), 1)]
)
def test_weights_in_use_get_no_warning(draw, shape, groups):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fo.Conv2d(draw(*shape), groups=groups)


OPTIONS_BY_NAME = [
    (name, path)
    for path in (fo, fo.reference)
    for name in [
        "attention",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_bn_relu",
        "depthwise_conv2d",
        "depthwise_conv_bn_relu",
        "gemm",
        "linear",
        "qconv2d",
        "qlinear",
    ]
]


@pytest.mark.parametrize("name, path", [pytest.param(n, p, id=f"{p.__name__}.{n}") for n, p in OPTIONS_BY_NAME])
def test_an_option_in_order_is_told_its_name(name, path):
    """The call that the error writes has the names of the function's own signature."""
    function = getattr(path, name)
    options = list(inspect.signature(function).parameters.values())
    inputs = [p.name for p in options if p.kind is p.POSITIONAL_OR_KEYWORD]
    first = next(p.name for p in options if p.kind is p.KEYWORD_ONLY)
    with pytest.raises(TypeError) as caught:
        function(*range(len(inputs) + 1))
    assert f"{name}({', '.join(inputs)}, {first}=...)" in str(caught.value)
    assert "out" in str(caught.value)


def test_an_unknown_option_is_told_the_names(draw):
    with pytest.raises(
        TypeError, match=r"conv2d has no argument pad and no strides: its options are .*stride, padding"
    ):
        fo.conv2d(draw(1, 3, 8, 8), draw(4, 3, 3, 3), strides=2, pad=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):  # Python's own word
        fo.conv2d(draw(1, 3, 8, 8), stride=2)


@pytest.mark.parametrize("name, here", [("swish", "silu"), ("ReLU", "relu"), ("LeakyReLU", "leaky_relu")])
def test_an_activation_by_another_librarys_name(draw, name, here):
    with pytest.raises(ValueError, match=f"unknown activation '{name}', which is '{here}' here"):
        fo.activation(draw(3), name)


def test_names_that_there_are_not():
    with pytest.raises(AttributeError, match=r"write activation\(x, 'relu'\)"):
        _ = fo.relu
    with pytest.raises(AttributeError) as caught:
        _ = fo.Conv2D
    assert (caught.value.name, caught.value.obj) == ("Conv2D", fo)  # of which Python makes "Did you mean: 'Conv2d'?"


@pytest.mark.parametrize("make", [lambda: fo.Linear(64, 16), lambda: fo.Conv2d(3, 8, 3), lambda: fo.LSTM(16, 32)])
def test_layers_are_not_made_from_sizes(make):
    with pytest.raises(TypeError, match="layers are made from weights, not from sizes"):
        make()


@pytest.mark.parametrize("method", ["output_shape", "kernel", "fuses"])
@pytest.mark.parametrize(
    "shape, text",
    [
        ((1, 7, 8, 8), "(n, 6, h, w)"),
        ((1, 8, 8, 6), "pass layout='NHWC'"),
        ((6, 8, 8), "pass x[np.newaxis]"),
        ([1, 6, 8], "(1, 6, 8)"),
        ((1, 6, -8, 8), "(1, 6, -8, 8)"),
        ((-1, 6, 8, 8), "(-1, 6, 8, 8)"),
        ((1, 6, 2, 8), "kernel"),
        ((1, 6, 2**62, 8), "more than an array can have"),
        ((1, 6, 2**70, 8), "more than an array can have"),
        ((0, 6, 2**40, 2**40), "more than an array can have"),
        ((1, 6, 2**30, 2**30), "more than an array can have"),
    ],
)
def test_shapes_that_a_layer_is_asked_about(draw, method, shape, text):
    depthwise = fo.Conv2d(draw(6, 1, 3, 3), groups=6)
    layer = fo.DepthwiseSeparable(depthwise, fo.Conv2d(draw(4, 6, 1, 1))) if method == "fuses" else depthwise
    with pytest.raises(ValueError) as caught:
        getattr(layer, method)(shape)
    assert text in str(caught.value)


@pytest.mark.parametrize("shape", [5, (1.5, 6, 8, 8), (1, 6, "8", 8), None])
def test_what_is_no_shape(draw, shape):
    layer = fo.Conv2d(draw(6, 1, 3, 3), groups=6)
    for method in layer.output_shape, layer.kernel:
        with pytest.raises(TypeError, match="the shape of x must be a tuple of ints"):
            method(shape)


@pytest.mark.parametrize(
    "kernel, size", [((3, 3), (2**21, 2**26)), ((1, 1), (2**21, 2**26)), ((5, 5), (2**28, 2**20)), ((7, 1), (2**46, 8))]
)
def test_no_kernel_has_a_name_for_an_image_that_a_call_refuses(draw, kernel, size):
    for layout in "NCHW", "NHWC":
        layer, shape = fo.Conv2d(draw(4, 4, *kernel), layout=layout), dims(layout, 1, 4, *size)
        with pytest.raises(MemoryError):
            layer.kernel(shape)
        with pytest.raises(MemoryError):
            layer(np.broadcast_to(np.float32(0), shape))


def test_misaligned_arrays_are_no_error(draw):
    x = draw(3, 5)
    np.testing.assert_array_equal(fo.linear(misaligned(x, 1), misaligned(x, 3)), fo.linear(x, x))
