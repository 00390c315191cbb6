"""Networks of one layer or two, and the same as layers that are called one by one, for cliffs.py: rows of (text, nodes
as (operator, attributes, constants), input, what calls the layers)."""

import numpy as np

import fusedops as fo


def _convolutions(draw):
    """Channels first: alone, and with a ReLU and a 1x1 convolution after it."""
    for ic, s, oc, k, g, stride in [
        *[(32, 128, 32, 3, 32, 1), (96, 28, 96, 5, 96, 2), (240, 28, 240, 3, 240, 1), (64, 112, 64, 3, 64, 1)],
        *[(64, 56, 64, 3, 1, 1), (3, 224, 32, 3, 1, 2), (256, 14, 256, 1, 1, 1), (512, 7, 512, 3, 1, 1)],
        *[(16, 32, 32, 3, 1, 1), (8, 64, 16, 1, 1, 1)],
    ]:
        x, w, b, last = draw((1, ic, s, s)), draw((oc, ic // g, k, k)), draw((oc,)), draw((oc, oc, 1, 1))
        options = dict(stride=stride, padding=k // 2, groups=g)
        attributes = dict(strides=[stride] * 2, pads=[k // 2] * 4, group=g)
        layer, second = fo.Conv2d(w, b, **options), fo.Conv2d(last)
        first = fo.Conv2d(w, b, activation="relu", **options)
        text = f"Conv {ic}x{s}x{s} {oc}x{k}x{k} group={g} stride={stride}"
        yield text, [("Conv", attributes, [w, b])], x, layer
        nodes = [("Conv", attributes, [w, b]), ("Relu", {}, []), ("Conv", {}, [last])]
        yield text + ", Relu, 1x1", nodes, x, lambda x, f=first, g=second: g(f(x))


def _rows(draw):
    for m, k, n in [(16, 784, 128), (64, 768, 768), (300, 300, 300)]:
        x, w, b, last = draw((m, k)), draw((n, k)), draw((n,)), draw((10, n))
        layer, first, second = fo.Linear(w, b), fo.Linear(w, b, activation="relu"), fo.Linear(last)
        node = ("Gemm", {"transB": 1}, [w, b])
        yield f"Gemm {m}x{k} {n}", [node], x, layer
        nodes = [node, ("Relu", {}, []), ("Gemm", {"transB": 1}, [last])]
        yield f"Gemm {m}x{k} {n}, Relu, 10", nodes, x, lambda x, f=first, g=second: g(f(x))
    for shape in (100, 256), (8, 512, 256):
        x, scale, shift = draw(shape), draw(shape[-1:]), draw(shape[-1:])
        nodes = [("LayerNormalization", {}, [scale, shift])]
        yield f"LayerNormalization {shape}", nodes, x, lambda x, a=scale, b=shift: fo.layer_norm(x, a, b)


def _images(draw):
    for shape in (1, 64, 56, 56), (1, 3, 224, 224), (8, 32, 32, 32):
        x, scales = draw(shape), np.float32([1, 1, 2, 2])
        window = dict(kernel_shape=[3, 3], strides=[2, 2])
        yield f"MaxPool {shape}", [("MaxPool", window, [])], x, lambda x: fo.max_pool2d(x, kernel_size=3, stride=2)
        yield f"AveragePool {shape}", [("AveragePool", window, [])], x, lambda x: fo.avg_pool2d(x, 3, stride=2)
        yield f"GlobalAveragePool {shape}", [("GlobalAveragePool", {}, [])], x, fo.global_avg_pool2d
        for mode in "nearest", "linear":
            resized = [("Resize", {"mode": mode}, [None, scales])]
            yield f"Resize {shape} {mode}", resized, x, lambda x, m=mode: fo.resize(x, scale=2, mode=m)


def _sequences(draw):
    for t, batch, inputs, hidden in [(50, 1, 64, 64), (10, 16, 128, 256)]:
        x, w, r = draw((t, batch, inputs)), draw((1, 4 * hidden, inputs)) / 9, draw((1, 4 * hidden, hidden)) / 9
        order = np.r_[:hidden, 2 * hidden : 4 * hidden, hidden : 2 * hidden]  # of ONNX's gates i o f c as i f g o
        layer = fo.LSTM(w[0][order], r[0][order])
        yield f"LSTM {t}x{batch}x{inputs} {hidden}", [("LSTM", {"hidden_size": hidden}, [w, r])], x, layer


def networks(draw):
    for rows in _convolutions, _rows, _images, _sequences:
        yield from rows(draw)
