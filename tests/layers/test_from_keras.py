"""Layers of Keras: stand-ins with the same configuration and weights, against Keras's documented formulas in
float64."""

import numpy as np
import pytest

import fusedops as fo


def layer_of(name, weights, **config):
    """What from_keras sees of a Keras layer."""
    return type(name, (), {"get_config": lambda self: config, "get_weights": lambda self: weights})()


def convolved(x, kernel, strides=1, padding="valid", dilation=1, depthwise=False):
    """Keras's convolution of x (n, h, w, c) with kernel (kh, kw, c, oc), or (kh, kw, c, m) of depthwise ones."""
    kh, kw = kernel.shape[:2]
    if padding == "same":
        total = [
            max((-(-n // strides) - 1) * strides + (k - 1) * dilation + 1 - n, 0)
            for n, k in zip(x.shape[1:3], (kh, kw))
        ]
        x = np.pad(x, ((0, 0), *((t // 2, t - t // 2) for t in total), (0, 0)))
    h, w = ((n - (k - 1) * dilation - 1) // strides + 1 for n, k in zip(x.shape[1:3], (kh, kw)))
    y = 0
    for i, j in np.ndindex(kh, kw):
        part = x[:, i * dilation :, j * dilation :][
            :, : (h - 1) * strides + 1 : strides, : (w - 1) * strides + 1 : strides
        ]
        if depthwise:
            y = y + (part[..., np.newaxis] * kernel[i, j]).reshape(*part.shape[:3], -1)
        else:
            y = y + part @ kernel[i, j]
    return y


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


FUNCTIONS = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "swish": lambda x: x * sigmoid(x),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.2 * x),
}


def close(actual, expected):
    assert actual.shape == expected.shape and actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize(
    "options", [dict(), dict(strides=2, padding="same"), dict(padding="same", dilation=2)], ids=str
)
def test_conv2d(draw, activation, options):
    x, kernel, bias = draw(2, 9, 8, 5), draw(3, 2, 5, 7), draw(7)
    keras = dict(padding="valid", data_format="channels_last", strides=(1, 1)) | options
    keras |= dict(strides=(options.get("strides", 1),) * 2, dilation_rate=(options.get("dilation", 1),) * 2)
    made = fo.from_keras(layer_of("Conv2D", [kernel, bias], **keras, activation=activation, use_bias=True, groups=1))
    close(made(x), FUNCTIONS[activation](convolved(np.float64(x), kernel, **options) + bias))


def test_channels_first_and_groups(draw):
    x, kernel = draw(2, 6, 9, 8), draw(3, 3, 2, 9)
    options = dict(padding="valid", data_format="channels_first", use_bias=False, groups=3, activation="linear")
    each = [convolved(np.moveaxis(g, 1, -1), k) for g, k in zip(np.split(x, 3, 1), np.split(np.float64(kernel), 3, -1))]
    close(fo.from_keras(layer_of("Conv2D", [kernel], **options))(x), np.moveaxis(np.concatenate(each, -1), -1, 1))


@pytest.mark.parametrize("multiplier", [1, 3])
def test_depthwise(draw, multiplier):
    x, kernel, bias = draw(2, 9, 8, 5), draw(3, 3, 5, multiplier), draw(5 * multiplier)
    config = dict(padding="same", strides=(2, 2), activation="relu", use_bias=True)
    expected = convolved(np.float64(x), kernel, 2, "same", depthwise=True)
    close(fo.from_keras(layer_of("DepthwiseConv2D", [kernel, bias], **config))(x), np.maximum(expected + bias, 0))


def test_separable(draw):
    x, depthwise, pointwise, bias = draw(2, 9, 8, 5), draw(3, 3, 5, 1), draw(1, 1, 5, 7), draw(7)
    config = dict(padding="same", strides=(1, 1), activation="relu", use_bias=True, depth_multiplier=1)
    expected = convolved(np.float64(x), depthwise, padding="same", depthwise=True) @ pointwise[0, 0] + bias
    made = fo.from_keras(layer_of("SeparableConv2D", [depthwise, pointwise, bias], **config))
    assert isinstance(made, fo.DepthwiseSeparable)
    close(made(x), np.maximum(expected, 0))


def test_dense(draw):
    x, kernel, bias = draw(4, 3, 9), draw(9, 5), draw(5)
    close(
        fo.from_keras(layer_of("Dense", [kernel, bias], activation="tanh"))(x), np.tanh(np.float64(x) @ kernel + bias)
    )


def recurrent(kind, x, kernel, inner, bias, activation, gate=sigmoid, reset_after=True):
    """Every step's output of Keras's cells: gates i f c o, z r h."""
    n = inner.shape[0]
    of_x, of_h = bias if np.ndim(bias) == 2 else (bias, 0 * bias)
    h, c, y = (np.zeros((x.shape[0], n)) for _ in range(3))
    y = np.zeros((*x.shape[:2], n))
    for t in range(x.shape[1]):
        a = x[:, t].astype(np.float64) @ kernel + of_x
        if kind == "SimpleRNN":
            h = activation(a + h @ inner)
        elif kind == "LSTM":
            i, f, g, o = np.split(a + h @ inner, 4, -1)
            c = gate(f) * c + gate(i) * activation(g)
            h = gate(o) * activation(c)
        else:
            b = h @ inner + of_h
            z, r = gate(a[:, :n] + b[:, :n]), gate(a[:, n : 2 * n] + b[:, n : 2 * n])
            if reset_after:
                new = activation(a[:, 2 * n :] + r * b[:, 2 * n :])
            else:
                new = activation(a[:, 2 * n :] + (r * h) @ inner[:, 2 * n :])
            h = z * h + (1 - z) * new
        y[:, t] = h
    return y


GATES = {"SimpleRNN": 1, "LSTM": 4, "GRU": 3}


@pytest.mark.parametrize("activation, gate", [("tanh", "sigmoid"), ("relu", "hard_sigmoid")])
@pytest.mark.parametrize("reset_after", [True, False])
@pytest.mark.parametrize("kind", GATES)
def test_recurrent(draw, kind, reset_after, activation, gate):
    x, rows = draw(3, 6, 5), GATES[kind] * 8
    kernel, inner = draw(5, rows), draw(8, rows) / 4
    bias = draw(2, rows) if kind == "GRU" and reset_after else draw(rows)
    config = dict(activation=activation, recurrent_activation=gate, reset_after=reset_after, use_bias=True)
    made = fo.from_keras(layer_of(kind, [kernel, inner, bias], **config))
    functions = FUNCTIONS[activation], FUNCTIONS[gate]
    close(made(x)[0], recurrent(kind, x, kernel, inner, bias, *functions, reset_after))


def test_bidirectional(draw):
    x, weights = draw(3, 6, 5), [draw(5, 32), draw(8, 32) / 4, draw(32), draw(5, 32), draw(8, 32) / 4, draw(32)]
    config = dict(
        merge_mode="concat",
        layer=dict(class_name="LSTM", config=dict(activation="tanh", recurrent_activation="sigmoid")),
    )
    there = recurrent("LSTM", x, *weights[:3], np.tanh)
    back = recurrent("LSTM", x[:, ::-1], *weights[3:], np.tanh)[:, ::-1]
    close(fo.from_keras(layer_of("Bidirectional", weights, **config))(x)[0], np.concatenate([there, back], -1))


@pytest.mark.parametrize(
    "error, name, weights, config, text",
    [
        (TypeError, "Embedding", [np.ones((2, 2), np.float32)], {}, "no fusedops layer for .*Embedding"),
        (ValueError, "Dense", [], {}, "no weights yet"),
        (TypeError, "Dense", [np.ones((2, 2)), np.ones(2)], {}, "float64"),
        (ValueError, "Dense", [np.ones((2, 2), np.float32)] * 2, dict(activation="softmax"), "softmax.* none that"),
        (ValueError, "Dense", [np.ones((2, 2), np.float32)], {}, "needs 2 arrays"),
        (ValueError, "GRU", [np.ones((2, 6), np.float32)] * 2, dict(go_backwards=True), "go_backwards=True"),
        (ValueError, "Bidirectional", [np.ones(1, np.float32)] * 6, dict(merge_mode="sum"), "merge_mode='sum'"),
    ],
)
def test_refused(error, name, weights, config, text):
    with pytest.raises(error, match=text):
        fo.from_keras(layer_of(name, weights, **config))


@pytest.mark.parametrize(
    "name, shapes, x, config",
    [
        ("Conv2D", [(3, 3, 4, 8)], (1, 6, 6, 4), dict(padding="valid")),
        ("DepthwiseConv2D", [(3, 3, 4, 1)], (1, 6, 6, 4), dict(padding="valid")),
        ("SeparableConv2D", [(3, 3, 4, 1), (1, 1, 4, 8)], (1, 6, 6, 4), dict(padding="valid")),
        ("Dense", [(4, 8)], (3, 4), {}),
        ("SimpleRNN", [(4, 8), (8, 8)], (2, 5, 4), {}),
        ("LSTM", [(4, 32), (8, 32)], (2, 5, 4), dict(recurrent_activation="sigmoid")),
        ("GRU", [(4, 24), (8, 24)], (2, 5, 4), dict(recurrent_activation="sigmoid")),
    ],
)
def test_precision(draw, name, shapes, x, config):
    """Operands are rounded; a network's layer says so."""
    layer, x = layer_of(name, [draw(*shape) for shape in shapes], use_bias=False, **config), draw(*x)
    made = fo.from_keras(layer, precision="bfloat16")
    (y, expected) = (v[0] if isinstance(v, tuple) else v for v in (made(x), fo.from_keras(layer)(x)))
    assert "precision='bfloat16'" in repr(made)
    assert 1e-5 < np.abs(y - expected).max() / np.abs(expected).max() < 0.05
    with pytest.raises(ValueError, match="unknown precision 'half'"):
        fo.from_keras(layer, precision="half")
