"""Attention with sinks: a term of each head's softmax that no key has, as GroupQueryAttention takes it."""

import numpy as np
import pytest

pytest.importorskip("onnx")
import fusedops as fo
from fusedops import _core
from onnx_single_node import agree, model

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def attention(q, k, v, sinks, first, window=-1, softcap=0.0):
    """(heads, queries, features) of queries from place `first` on, in float64."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    k, v = (np.repeat(a, len(q) // len(a), 0) for a in (k, v))
    s = q @ k.swapaxes(1, 2) * q.shape[2] ** -0.5
    s = softcap * np.tanh(s / softcap) if softcap else s
    at, keys = first + np.arange(q.shape[1])[:, np.newaxis], np.arange(k.shape[1])
    s = np.where((keys <= at) & ((keys > at - window) if window > 0 else True), s, -np.inf)
    s = np.concatenate([s, np.broadcast_to(sinks[:, np.newaxis, np.newaxis], (*s.shape[:2], 1))], 2)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True))[..., :-1] @ v


def grouped(length, past, heads=4, groups=2, size=16, batch=1, sinks=True):
    inputs = {
        "q": floats(batch, length, heads * size),
        "k": floats(batch, length, groups * size),
        "v": floats(batch, length, groups * size),
        "pk": floats(batch, groups, past, size),
        "pv": floats(batch, groups, past, size),
        "lasts": np.full(batch, past + length - 1, np.int32),
        "total": np.array([past + length], np.int32),
    }
    none = dict.fromkeys(["cos", "sin", "at", "bias"])
    return inputs | (none | {"sinks": floats(heads) + 1} if sinks else {})


def network(inputs, **attrs):
    return model("GroupQueryAttention", inputs, {}, (np.float32,) * 3, "com.microsoft", attrs)


@pytest.mark.parametrize("length, past", [(3, 0), (1, 4)])
@pytest.mark.parametrize("more", [{}, dict(local_window_size=2), dict(softcap=2.0)])
@pytest.mark.parametrize("sinks", [False, True])
def test_as_onnx_runtime_has_it(length, past, more, sinks):
    pytest.importorskip("onnxruntime")
    more = dict(num_heads=4, kv_num_heads=2) | more | ({} if sinks else dict(smooth_softmax=1))
    inputs = grouped(length, past, batch=2, sinks=sinks)
    agree("GroupQueryAttention", inputs, outputs=(np.float32,) * 3, domain="com.microsoft", **more)


@pytest.mark.parametrize("length, past", [(1, 0), (1, 9), (7, 0), (5, 40), (1, 3000), (70, 700)])
@pytest.mark.parametrize("window", [-1, 33])
@pytest.mark.parametrize("sinks", [False, True])
def test_sizes(length, past, window, sinks, isa, threads):
    """Queries of several steps and tasks, and keys whose blocks are tasks; all of it by kernels."""
    inputs = grouped(length, past, sinks=sinks)
    attrs = dict(num_heads=4, kv_num_heads=2, local_window_size=window, softcap=3.0)
    net = fo.load_onnx(network(inputs, **attrs, **({} if sinks else dict(smooth_softmax=1))))
    given = {name: a for name, a in inputs.items() if a is not None}
    assert all(step.kind != "numpy" for step in net._plan(*given.values())[0].steps)
    q, k, v = (inputs[n][0].reshape(length, -1, 16).swapaxes(0, 1) for n in "qkv")
    k, v = (np.concatenate([inputs[p][0], a], 1) for p, a in (("pk", k), ("pv", v)))
    terms = inputs["sinks"] if sinks else np.zeros(4)
    expected = attention(q, k, v, terms, past, window, 3.0).swapaxes(0, 1).reshape(1, length, -1)
    np.testing.assert_allclose(net.run(given)["y0"], expected, rtol=0, atol=2e-6)


def test_token_by_token(isa):
    """The bits of all tokens at once, whatever the steps."""
    inputs, found = grouped(40, 0), []
    net = fo.load_onnx(network(inputs, num_heads=4, kv_num_heads=2))
    for steps in ([40], [1] * 40, [5, 1, 20, 1, 13]):
        pk, pv, at, rows = inputs["pk"], inputs["pv"], 0, []
        for n in steps:
            part = {name: inputs[name][:, at : at + n] for name in "qkv"}
            place = dict(lasts=np.int32([at + n - 1]), total=np.int32([at + n]), sinks=inputs["sinks"])
            y, pk, pv = net.run(part | dict(pk=pk, pv=pv) | place).values()
            rows.append(y)
            at += n
        found.append(np.concatenate(rows, 1))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("diagonal", [-3, -1, 0, 5])
@pytest.mark.parametrize("size", [40, 3000])
def test_queries_that_see_no_key(diagonal, size, isa, threads):
    """Their result is zeros, with a sink and without; sinks beyond what floats hold take all or nothing."""
    q, k, v = floats(2, 1, 2, 16), floats(2, 1, size, 16), floats(2, 1, size, 16)
    q, k, v = (a.reshape(1, 2, *a.shape[2:]) for a in (q, k, v))
    for sink, share in ((0.5, None), (1e4, 0), (-np.inf, 1), (np.nan, np.nan)):
        y, program = np.full(q.shape, 7, np.float32), _core.Program()
        sinks = np.full(2, sink, np.float32)
        program.append("attention", q=q, k=k, v=v, y=y, mask=None, causal=True, diagonal=diagonal, diagonals=None,
                       sinks=sinks, scale=0.25)  # fmt: skip
        program.run(())
        alone = np.full(q.shape, 7, np.float32)
        program = _core.Program()
        program.append("attention", q=q, k=k, v=v, y=alone, mask=None, causal=True, diagonal=diagonal, diagonals=None,
                       sinks=None, scale=0.25)  # fmt: skip
        program.run(())
        sees = (np.arange(2) + diagonal >= 0)[:, np.newaxis]
        if share is None:
            s = (0.25 * q.astype(np.float64)) @ k.swapaxes(2, 3)
            s = np.where(np.arange(size) <= np.arange(2)[:, np.newaxis] + diagonal, s, -np.inf)
            e = np.exp(s)
            np.testing.assert_allclose(y[0], (e / (e.sum(-1, keepdims=True) + np.exp(0.5)) @ v)[0], atol=2e-6)
        elif np.isnan(share):
            assert np.isnan(y).all()
        else:
            np.testing.assert_allclose(y, np.where(sees, alone * share, 0), atol=1e-6)


def test_sinks_that_do_not_fit():
    q = floats(1, 2, 3, 8)
    with pytest.raises(ValueError, match=r"sinks \(3,\) must be one for each of 2 heads"):
        _core.Program().append("attention", q=q, k=q, v=q, y=q.copy(), mask=None, diagonals=None, sinks=floats(3))
