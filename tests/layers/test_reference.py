"""The reference path: the same operations unfused, within the same bounds."""

import inspect

import numpy as np
import pytest

import fusedops as fo
import oracle
from catalog import OPERATIONS, dims
from conv_cases import DIRECT
from fusedops import reference
from oracle import check

# What fuses nothing has no other path.
UNFUSED = {name: operation for name, operation in OPERATIONS.items() if hasattr(reference, operation.function.__name__)}


@pytest.mark.parametrize("name", UNFUSED)
def test_agrees_with_the_oracle(isa, threads, draw, name):
    operation = OPERATIONS[name]
    arrays = operation.draw(draw)
    unfused = operation._replace(function=getattr(reference, operation.function.__name__))
    for y, y64 in zip(unfused(arrays), operation.oracle(arrays)):
        check(y, y64, error=2e-5 if operation.options.get("algorithm", "direct") != "direct" else None)


@pytest.mark.parametrize("fold_bn", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("ic, size, oc, kernel, options", DIRECT[1::4])
def test_batch_norm_folded_or_not(isa, draw, fold_bn, layout, ic, size, oc, kernel, options):
    x = draw(*dims(layout, 2, ic, *size))
    w, bias, bn = draw(oc, ic // options.get("groups", 1), *kernel), draw(oc), draw.batch_norm(oc)
    options = options | dict(bias=bias, bn=bn, layout=layout)
    residual = draw(*fo.Conv2d(w, **options).output_shape(x.shape))
    for activation in (None, "relu", "silu", ("prelu", draw(oc))):
        epilogue = dict(residual=residual, activation=activation)
        y = reference.conv2d(x, w, **options, **epilogue, fold_bn=fold_bn, algorithm="direct")
        check(y, oracle.conv2d(x, w, **options, **epilogue))


@pytest.mark.parametrize("name", [name for name, o in UNFUSED.items() if "w" in o.arrays or "b" in o.arrays])
def test_same_bits_where_fusion_rounds_nothing(isa, draw, name):
    """The kernels are the same: without an epilogue, or with ReLU as a pass, nothing differs."""
    operation = OPERATIONS[name]
    plain = operation._replace(options=operation.options | dict(activation="relu"))
    if operation.function.__name__.endswith("relu"):
        plain = operation
    arrays = {k: v for k, v in operation.draw(draw).items() if k not in ("bias", "residual")}
    unfused = plain._replace(function=getattr(reference, operation.function.__name__))
    np.testing.assert_array_equal(unfused(arrays)[0], plain(arrays)[0])


@pytest.mark.parametrize("name", sorted({o.function.__name__ for o in UNFUSED.values()}))
def test_same_signatures(name):
    """Whatever the fused function takes, the reference takes too, with the same default; `fold_bn` is its own."""
    fused = inspect.signature(getattr(fo, name)).parameters
    unfused = dict(inspect.signature(getattr(reference, name)).parameters)
    unfused.pop("fold_bn", None)
    assert unfused == fused


@pytest.mark.parametrize("name", [name for name in reference.__all__ if name[0].isupper()])
def test_layers_have_the_same_arguments(name):
    fused = inspect.signature(getattr(fo, name).__init__).parameters
    unfused = dict(inspect.signature(getattr(reference, name)).parameters)
    folds = unfused.pop("fold_bn", None)
    assert unfused == {k: v for k, v in fused.items() if k != "self"}
    assert (folds is None) == (name in ("DepthwiseSeparable", "InvertedResidual", "QLinear", "QConv2d"))
    assert getattr(reference, name).__doc__.startswith(f":class:`fusedops.{name}`, unfused")


def test_wrong_arguments_are_those_of_the_fused(draw):
    x, w = draw(1, 3, 6, 6), draw(4, 3, 3, 3)
    with pytest.raises(TypeError, match="conv2d has no argument activaton: its options are bias, .*fold_bn"):
        reference.conv2d(x, w, activaton="relu")
    with pytest.raises(TypeError, match="conv2d takes 2 arguments in order, x and w, not 3"):
        reference.conv2d(x, w, None)
    with pytest.raises(TypeError, match="activaton"):
        reference.Conv2d(w, activaton="relu")
    assert reference.conv2d.__doc__ == ":func:`fusedops.conv2d`, unfused."


def test_out(draw):
    x, w, out = draw(1, 3, 6, 6), draw(4, 3, 3, 3), np.empty((1, 4, 4, 4), np.float32)
    y = reference.conv_bn_relu(x, w, draw.batch_norm(4), out=out)
    assert y is out


@pytest.mark.parametrize(
    "options",
    [
        {},
        dict(reverse=True, clip=0.5),
        dict(num_layers=2, bidirectional=True, batch_first=True),
        dict(lengths=[4, 0, 2]),
        dict(bidirectional=True, lengths=[4, 0, 2]),
    ],
    ids=lambda options: "-".join(options) or "plain",
)
@pytest.mark.parametrize(
    "name, gates, more",
    [
        ("rnn", 1, dict(activation="relu")),
        ("lstm", 4, {}),
        ("lstm", 4, dict(w_hr=(3, 5), peephole=(3, 5))),
        ("lstm", 4, dict(peephole=(3, 5), cell_clip=0.3)),
        ("gru", 3, {}),
        ("gru", 3, dict(reset_after=False)),
    ],
)
@pytest.mark.parametrize("fold_bn", [False, True])
def test_sequences_agree_with_the_fused(draw, name, gates, more, options, fold_bn):
    steps, batch, inputs, hidden, directions = 4, 3, 6, 5, 1 + ("bidirectional" in options)
    outputs = more["w_hr"][0] if "w_hr" in more else hidden
    count = directions * options.get("num_layers", 1)
    width = [inputs if i < directions else directions * outputs for i in range(count)]
    weights = [[draw(gates * hidden, n) for n in width]]
    weights += [[draw(gates * hidden, *s) for _ in width] for s in ((outputs,), (), ())]
    more = {k: [draw(*v) for _ in width] if isinstance(v, tuple) else v for k, v in more.items()}
    x = draw(batch, steps, inputs) if "batch_first" in options else draw(steps, batch, inputs)
    h, c = draw(count, batch, outputs), draw(count, batch, hidden)
    for state in (None, (h, c) if name == "lstm" else h):
        fused = getattr(fo, name)(x, state, *weights, **more, **options)
        unfused = getattr(reference, name)(x, state, *weights, **more, **options, fold_bn=fold_bn)
        for y, expected in zip(_arrays(unfused), _arrays(fused), strict=True):
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def _arrays(result):
    y, state = result
    return y, *(state if isinstance(state, tuple) else (state,))
