"""The public interface as a user's typed script has it; test_typing.py runs it and checks it with ``mypy --strict``."""

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fusedops as fo

Array = NDArray[np.float32]
rng = np.random.default_rng(0)


def random(*shape: int) -> Array:
    return rng.standard_normal(shape, np.float32)


def one_shot() -> list[Array]:
    x, w, one = random(1, 4, 8, 8), random(4, 4, 3, 3), np.ones(4, np.float32)
    bn = fo.BatchNorm(gamma=one, beta=None, mean=0 * one, var=one, eps=1e-3)
    folded, bias = fo.fold_batch_norm(w, None, bn)
    out = np.empty((1, 4, 8, 8), np.float32)
    return [
        fo.conv2d(x / 255, folded, bias=bias, residual=x, activation=("leaky_relu", 0.1), padding="same", out=out),
        fo.conv2d(x, w, activation=("prelu", one), stride=(1, 2), padding=((0, 1), (2, 0)), algorithm="direct"),
        fo.conv_bn_relu(x, w, bn, padding=1),
        fo.depthwise_conv2d(x, random(4, 3, 3), activation="silu", padding=(1, 1)),
        fo.depthwise_conv_bn_relu(x.transpose(0, 2, 3, 1), random(4, 1, 3, 3), bn, layout="NHWC"),
        fo.linear(random(2, 8), random(3, 8), random(3), residual=random(2, 3), activation=("clip", 0, 6)),
        fo.gemm(random(2, 8), random(8, 3), bias=random(3), activation="gelu"),
        fo.reference.conv2d(x, w, bn=bn, activation="relu", fold_bn=True),
    ]


def attend(q: Array, kv: Array) -> list[Array]:
    cache = fo.KVCache(1, 2, 8, capacity=2)
    cache.append(kv, kv)
    masked = fo.attention(q, kv, kv, mask=np.ones((3, 3), np.bool_), scale=0.5)
    return [masked, fo.attention(q, cache.k, cache.v, causal=True, out=masked), cache.attention(q[:, :, -1:])]


def eight_bits() -> list[NDArray[np.float32]]:
    x, w, q = np.ones((1, 4, 8, 8), np.uint8), np.ones((4, 4, 3, 3), np.int8), fo.Quantization(0.5, 3)
    out = np.empty((2, 3), np.uint8)
    fo.qlinear(np.ones((2, 8), np.uint8), np.ones((3, 8), np.int8), x_q=q, w_q=fo.Quantization(0.1), y_q=q, out=out)
    dynamic = fo.QLinear(random(3, 8), activation="relu")(random(2, 8))
    layer = fo.QConv2d(random(4, 4, 3, 3), x_q=q, y_q=q, padding=1)
    return [
        fo.dequantize(fo.quantize(random(3), q, np.int8), q),
        dynamic,
        fo.dequantize(layer(x), q),
        fo.qconv2d(x, w, x_q=q, w_q=fo.Quantization(np.ones(4, np.float32)), stride=2),
        fo.reference.qconv2d(x, w, x_q=q, w_q=fo.Quantization(0.1)),
    ]


def around() -> list[Array]:
    """What surrounds the products."""
    x, w, rows = random(1, 4, 8, 8), random(4, 2, 2, 2), random(3, 8)
    signal = random(1, 4, 9)
    return [
        fo.conv1d(signal, random(2, 4, 3), padding=1, activation="relu"),
        fo.Conv1d(random(2, 4, 3), stride=2)(signal),
        fo.conv_transpose2d(x, w, stride=2),
        fo.ConvTranspose2d(w, stride=2, activation="relu")(x),
        fo.max_pool2d(x, 2),
        fo.avg_pool2d(x, (3, 3), stride=1, padding=1, count_include_pad=False),
        fo.softmax(rows),
        *attend(random(1, 4, 3, 8), random(1, 2, 3, 8)),
        fo.log_softmax(rows, axis=0),
        fo.layer_norm(rows, random(8), random(8), residual=rows),
        fo.rms_norm(rows, random(8)),
        fo.group_norm(x, 2, eps=1e-3),
        fo.resize(x, scale=2, mode="linear"),
        fo.conv_transpose1d(signal, random(4, 3, 2), stride=2),
        fo.ConvTranspose1d(random(4, 3, 2), stride=2, activation="tanh")(signal),
        fo.conv3d(random(1, 4, 3, 5, 5), random(2, 4, 3, 3, 3), padding=((1, 1), (0, 0), (0, 0)), stride=(1, 2, 2)),
        fo.activation(rows, ("leaky_relu", 0.2)),
        fo.batch_norm(x, fo.BatchNorm(None, None, random(4), np.ones(4, np.float32)), activation="relu"),
        fo.instance_norm(x, random(4)),
        fo.max_pool1d(signal, 3, stride=2),
        fo.avg_pool1d(signal, 2, padding=(1, 0)),
        fo.global_avg_pool2d(x),
        fo.adaptive_avg_pool2d(x, (3, 2)),
        fo.matmul(random(2, 1, 3, 8), random(4, 8, 5)),
        fo.embedding(rows, [[0, 2], [1, -1]]),
        fo.MultiheadAttention(*random(4, 8, 8), heads=2)(random(5, 3, 8), causal=True),
        *streams(signal),
    ]


class Dense:
    """As Keras has it."""

    def get_config(self) -> dict[str, str]:
        return {"activation": "relu"}

    def get_weights(self) -> list[Array]:
        return [random(9, 2), random(2)]


def streams(signal: Array) -> list[Array]:
    stream = fo.Conv1d(random(2, 4, 3), padding=1).stream()
    frames, count = stream.state
    assert frames.shape == (1, 4, 1) and count == 0
    dense: fo.Linear = fo.from_keras(Dense())
    return [stream.step(signal[:, :, :5]), stream.step(signal[:, :, 5:]), stream.flush(), dense(signal)]


def layers() -> list[Array]:
    x = random(1, 4, 8, 8)
    depthwise = fo.Conv2d(random(4, 1, 3, 3), padding=1, groups=4, activation="relu6")
    pointwise = fo.Conv2d(random(4, 4, 1, 1), random(4))
    kernel, scratch = depthwise.kernel(x.shape)
    assert kernel.startswith("depthwise") and scratch == 0 and depthwise.isa == fo.isa()
    assert depthwise.output_shape(x.shape) == x.shape
    return [
        fo.DepthwiseSeparable(depthwise, pointwise)(x, residual=x),
        fo.InvertedResidual(None, depthwise, pointwise)(x, out=np.empty_like(x)),
        fo.Linear(random(3, 8), activation="tanh")(random(2, 8)),
    ]


def recurrent() -> list[Array]:
    x, h, c = random(2, 5), random(2, 4), random(2, 4)
    w_ih, w_hh = random(16, 5), random(16, 4)
    h_new, c_new = fo.LSTMCell(w_ih, w_hh)(x, h, c)
    h_new, c_new = fo.lstm_cell(x, h_new, c_new, w_ih, w_hh)
    fo.LSTM(w_ih, w_hh, direction="reverse")(random(6, 2, 5))
    steps = random(6, 2, 5)
    y, (hn, cn) = fo.LSTM(w_ih, w_hh)(steps)
    both, (_, _) = fo.lstm(steps, None, [w_ih, w_ih], [w_hh, w_hh], bidirectional=True)
    y_rnn, state = fo.RNN(w_ih, random(16, 16), activation="relu")(steps, None, lengths=[6, 3])
    y_rnn, state = fo.rnn(steps, state, w_ih, random(16, 16), batch_first=False)
    y_gru, state = fo.gru(steps, None, random(12, 5), w_hh[:12])
    stream = fo.GRU(random(12, 5), w_hh[:12]).stream(batch=2)
    frames = [stream.step(frame) for frame in steps]
    stream.reset()
    stream.state = random(1, 2, 4)
    cells = [
        fo.RNNCell(w_ih, random(16, 16))(x, random(2, 16)),
        fo.GRUCell(random(12, 5), w_hh[:12])(x, h),
        fo.rnn_cell(x, random(2, 16), w_ih, random(16, 16)),
        fo.gru_cell(x, h, random(12, 5), w_hh[:12]),
    ]
    return [h_new, c_new, y, hn, cn, both, y_rnn, y_gru, state, *frames, *cells]


def names(model: fo.Model) -> tuple[fo.Explanation, list[fo.Value], list[str]]:
    """What has names for annotations alone."""
    stream: fo.Stream = fo.RNN(random(2, 3), random(2, 2)).stream()
    frames: fo.ConvolutionStream = fo.Conv1d(random(2, 4, 3), padding=(2, 0)).stream()
    timed: fo.Benchmark = model.benchmark(random(1, 4, 8, 8), number=1, repeat=1, progress=None)
    profile: fo.Profile = model.profile(random(1, 4, 8, 8), repeat=1)
    return model.explain(), model.inputs, [str(x) for x in (stream, frames, timed, profile)]


def decode(decoder: fo.Decoder, token: Array) -> int:
    decoder(token)
    return len(decoder)


def network(model: fo.Model, path: Path) -> Array:
    shape = tuple(n if isinstance(n, int) else 1 for n in model.inputs[0].shape or ())
    x = random(*shape)
    explanation = model.explain()
    print(
        explanation, explanation.bytes, [f.into for f in explanation.fusions], [r.reason for r in explanation.refusals]
    )
    print(model.benchmark(x, number=1, repeat=2).as_dict()["fused"]["median"], model.memory(shape))
    print([layer.ms for layer in model.profile(x, repeat=2).layers])
    model.save(path)
    again: Array = fo.load(path)(x)
    named: Array = model.run({model.inputs[0].name: x})[model.outputs[0].name]
    print(model(x, out=named) is named, model(**{model.inputs[0].name: x}, out={model.outputs[0].name: named}) is named)  # type: ignore[arg-type]
    print(model.metadata.producer, model.optional_inputs, model.num_threads, model.inputs[0].file_type)
    try:
        fo.load(b"no network", num_threads=1)
    except (fo.DamagedFile, fo.UnsupportedOperator, fo.InvalidArgument) as error:
        print(error)
    part: Array = model(x, outputs=model.outputs[0].name)
    return again - named + 0 * part


def runtime() -> str:
    threads, isa = fo.get_num_threads(), fo.isa()
    fo.set_num_threads(1)
    fo.set_isa(fo.available_isas()[0])
    fo.set_isa(isa)
    fo.set_num_threads(threads)
    config = fo.show_config()
    return f"fusedops {fo.__version__}, {config['threading']}"


if __name__ == "__main__":
    results = one_shot() + eight_bits() + around() + layers() + recurrent()
    assert all(y.dtype == np.float32 for y in results)
    print(runtime(), sum(y.size for y in results))
    if sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            assert not network(fo.load_onnx(sys.argv[1]), Path(folder) / "model.fo").any()
