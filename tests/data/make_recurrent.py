"""Makes recurrent.npz: small recurrent layers, their weights and results as the frameworks themselves have and compute
them.

    python make_recurrent.py torch onnx keras     # what is installed; entries of the others stay as they are

An entry is `framework/name/array`. torch: weights by their names in nn.LSTM. onnx: W R B P and the result of ONNX
Runtime, with layout 1 (which it refuses) of ONNX's reference evaluator. keras: get_weights() by number.
"""

import os
import sys
from pathlib import Path

import numpy as np

PATH = Path(__file__).with_name("recurrent.npz")
rng = np.random.default_rng(5)


def draw(*shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)


def of_torch():
    import torch

    for name, kind, options in (
        ("rnn", "RNN", {}),
        ("rnn_relu", "RNN", dict(nonlinearity="relu")),
        ("lstm", "LSTM", {}),
        ("gru", "GRU", {}),
        ("lstm_2_bidirectional", "LSTM", dict(num_layers=2, bidirectional=True, batch_first=True)),
        ("gru_2_bidirectional", "GRU", dict(num_layers=2, bidirectional=True)),
        ("lstm_projection", "LSTM", dict(proj_size=2)),
    ):
        torch.manual_seed(5)
        m = getattr(torch.nn, kind)(3, 5, **options)
        x = draw(4, 2, 3)
        y, state = m(torch.from_numpy(x))
        yield f"torch/{name}/x", x
        yield f"torch/{name}/y", y.detach().numpy()
        for k, s in zip("hc", state if kind == "LSTM" else (state,)):
            yield f"torch/{name}/{k}", s.detach().numpy()
        for key, value in m.named_parameters():
            yield f"torch/{name}/{key}", value.detach().numpy()


def of_onnx():
    import onnxruntime
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    gates = dict(RNN=1, LSTM=4, GRU=3)
    for name, op, attributes in (
        ("rnn", "RNN", {}),
        ("lstm", "LSTM", {}),
        ("lstm_peephole", "LSTM", {}),
        ("lstm_clip", "LSTM", dict(clip=0.4)),
        ("gru", "GRU", {}),
        ("gru_linear_before_reset", "GRU", dict(linear_before_reset=1)),
        ("gru_clip", "GRU", dict(clip=0.4)),
        ("lstm_reverse", "LSTM", dict(direction="reverse")),
        ("lstm_bidirectional", "LSTM", dict(direction="bidirectional")),
        ("gru_bidirectional", "GRU", dict(direction="bidirectional")),
        ("lstm_layout_1", "LSTM", dict(layout=1)),
        ("gru_layout_1", "GRU", dict(layout=1)),
    ):
        directions, layout, rows = (
            1 + (attributes.get("direction") == "bidirectional"),
            attributes.get("layout", 0),
            5 * gates[op],
        )
        arrays = dict(
            X=draw(*(2, 4, 3) if layout else (4, 2, 3)),
            W=draw(directions, rows, 3),
            R=draw(directions, rows, 5),
            B=draw(directions, 2 * rows),
        )
        arrays["sequence_lens"] = np.array([4, 4] if layout else [4, 2], np.int32)
        for k in ("initial_h", "initial_c")[: 1 + (op == "LSTM")]:
            arrays[k] = draw(*(2, directions, 5) if layout else (directions, 2, 5))
        if name == "lstm_peephole":
            arrays["P"] = draw(directions, 15)
        inputs = [
            k if k in arrays else ""
            for k in ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")[: 8 if op == "LSTM" else 6]
        ]
        outputs = ["Y", "Y_h", "Y_c"][: 2 + (op == "LSTM")]
        if layout:
            inputs[4] = ""
            outputs = outputs[:2]
        node = helper.make_node(op, inputs, outputs, hidden_size=5, **attributes)
        graph = helper.make_graph(
            [node],
            "g",
            [
                helper.make_tensor_value_info(
                    k, TensorProto.INT32 if a.dtype == np.int32 else TensorProto.FLOAT, a.shape
                )
                for k, a in arrays.items()
                if k in inputs
            ],
            [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in outputs],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
        feed = {k: a for k, a in arrays.items() if k in inputs}
        results = (
            ReferenceEvaluator(model).run(None, feed)
            if layout
            else onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
        )
        for key, value in {**feed, **dict(zip(outputs, results))}.items():
            yield f"onnx/{name}/{key}", value


def of_keras():
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    layers = keras.layers
    for name, layer in (
        ("rnn", layers.SimpleRNN(5, return_sequences=True)),
        ("lstm", layers.LSTM(5, return_sequences=True)),
        ("gru_reset_after", layers.GRU(5, return_sequences=True)),
        ("gru_reset_before", layers.GRU(5, return_sequences=True, reset_after=False)),
        ("lstm_bidirectional", layers.Bidirectional(layers.LSTM(5, return_sequences=True))),
        ("gru_bidirectional", layers.Bidirectional(layers.GRU(5, return_sequences=True))),
    ):
        x = draw(2, 4, 3)
        layer(x)
        layer.set_weights([draw(*w.shape) for w in layer.get_weights()])
        yield f"keras/{name}/x", x
        yield f"keras/{name}/y", np.asarray(layer(x))
        for i, w in enumerate(layer.get_weights()):
            yield f"keras/{name}/{i}", np.asarray(w)


if __name__ == "__main__":
    entries = dict(np.load(PATH)) if PATH.exists() else {}
    for framework in sys.argv[1:]:
        entries = {k: v for k, v in entries.items() if not k.startswith(framework)} | dict(
            globals()[f"of_{framework}"]()
        )
    np.savez_compressed(PATH, **entries)
    print(f"{len(entries)} arrays, {PATH.stat().st_size} bytes")
