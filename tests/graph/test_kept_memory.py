"""What networks keep in memory: weights that are shared once, and nothing of a constant that is only spread."""

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper
from onnx.parser import parse_model

import fusedops as fo

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
SPREAD = {  # the rows of a constant c (1, 500) as (4000, 500): 8 MB
    "Expand": "int64[2] to = {4000, 500}> { e = Expand(c, to)",
    "Tile": "int64[2] to = {4000, 1}> { e = Tile(c, to)",
}


def traced(make):
    """(what `make` returns, the bytes that are then held by it)."""
    make()  # what modules keep
    gc.collect()
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        return made, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("op", ["Expand", "Tile"])
def test_a_constant_that_is_spread_is_not_stored(rng, op):
    proto = parse_model(f"{HEAD} g (float[1, 500] x) => (float[4000, 500] y) <{SPREAD[op]}  y = Add(e, x) }}")
    c = rng.standard_normal((1, 500), np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(c, "c"))
    model, held = traced(lambda: fo.load_onnx(proto))
    x = rng.standard_normal((1, 500), np.float32)
    np.testing.assert_array_equal(model(x), np.broadcast_to(c + x, (4000, 500)))
    assert held < 2_000_000


def test_a_constant_of_one_number_is_not_stored(rng):
    proto = parse_model(
        f"{HEAD} g (float[500] x) => (float[4000, 500] y) <int64[2] to = {{4000, 500}}> "
        "{ e = ConstantOfShape<value = float[1] {2.5}>(to)  y = Add(e, x) }"
    )
    model, held = traced(lambda: fo.load_onnx(proto))
    x = rng.standard_normal(500, np.float32)
    np.testing.assert_array_equal(model(x), np.broadcast_to(x + np.float32(2.5), (4000, 500)))
    assert held < 2_000_000


def test_signs_of_zeros_and_nan_are_not_lost(rng):
    """Rows that differ in what compares as equal, and rows of NaN."""
    rows = np.zeros((2, 50_000), np.float32)
    rows[1] = -0.0
    rows[:, 7] = np.nan
    proto = parse_model(
        f"{HEAD} g (float[1] x) => (float[2, 50000] y) <int64[2] to = {{2, 50000}}> "
        "{ e = Expand(c, to)  y = Mul(e, x) }"
    )
    proto.graph.initializer.append(numpy_helper.from_array(rows, "c"))
    y = fo.load_onnx(proto)(np.ones(1, np.float32))
    np.testing.assert_array_equal(y, rows)
    np.testing.assert_array_equal(np.signbit(y[:, :7]), np.signbit(rows[:, :7]))


@pytest.mark.parametrize("gemm", [False, True])
def test_products_that_share_weights_are_packed_once(rng, gemm):
    """Twelve layers on one matrix: 4 MB, and 4 MB packed."""
    nodes = "".join(
        f"h{i + 1} = Gemm<transB = 1>(h{i}, w)  " if gemm else f"h{i + 1} = MatMul(h{i}, w)  " for i in range(12)
    )
    proto = parse_model(f"{HEAD} g (float[n, 1000] x) => (float[n, 1000] y) {{ h0 = Tanh(x)  {nodes} y = Tanh(h12) }}")
    w = (rng.standard_normal((1000, 1000)) / 1000**0.5).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    model, x = fo.load_onnx(proto), rng.standard_normal((3, 1000)).astype(np.float32)
    y = np.tanh(x.astype(np.float64))
    for _ in range(12):
        y = y @ (w.T if gemm else w).astype(np.float64)
    np.testing.assert_allclose(model(x), np.tanh(y), atol=1e-4)
    layers = {id(layer): layer for layer in model._session.layers.values()}
    assert len(layers) == 2  # the last one has an activation
    assert len({id(a) for a in model._graph.constants.values()}) == 1


def test_layers_keep_constants_without_a_copy(rng):
    proto = parse_model(f"{HEAD} g (float[n, 800] x) => (float[n, 700] y) {{ y = MatMul(x, w) }}")
    w = rng.standard_normal((800, 700)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    model = fo.load_onnx(proto)
    model(np.ones((1, 800), np.float32))
    (layer,) = model._session.layers.values()
    assert not any(isinstance(a, np.ndarray) for a in vars(layer).values())
    np.testing.assert_array_equal(layer._arguments[0][0], w.T)  # unpacked
    assert layer.memory() == {"panels": pytest.approx(w.nbytes, rel=0.1)}


def resident(model):
    """Kilobytes of mapped files that are in memory, of this model's folder."""
    found, of_it = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            of_it = str(model) in line
        elif of_it and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell")
@pytest.mark.parametrize("inline", [False, True])
def test_weights_in_files_are_mapped(rng, tmp_path, inline):
    n = 2200
    proto = parse_model(f"{HEAD} g (float[n, {n}] x) => (float[n, {n}] y) {{ h = MatMul(x, w)  y = Add(h, b) }}")
    w, b = rng.standard_normal((n, n)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    proto.graph.initializer.extend([numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    options = {} if inline else dict(save_as_external_data=True, location="net.data", size_threshold=0)
    onnx.save_model(proto, tmp_path / "net.onnx", **options)
    model, x = fo.load_onnx(tmp_path / "net.onnx"), rng.standard_normal((3, n)).astype(np.float32)
    np.testing.assert_allclose(model(x), x @ w.astype(np.float64) + b, rtol=0, atol=2e-3)
    assert resident(tmp_path) < 3000  # of 19000: they are packed
    rows = fo.load_onnx(tmp_path / "net.onnx", fold=False, fuse=False)  # what was let go is read again
    np.testing.assert_allclose(rows(x), model(x), rtol=0, atol=1e-4)
    assert model.benchmark(x, number=1, repeat=1)


@pytest.mark.parametrize("shift", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2, 3))])
def test_a_tied_embedding_is_packed_once(rng, tmp_path, shift):
    """The table of words that is also the last product: read where it lies in the file, and packed for the product."""
    words, width = 30000, 160  # 19 MB
    proto = parse_model(
        f"{HEAD} g (int64[b, n] i) => (float[b, n, {words}] y) "
        "{ x = Gather(w, i)  t = Transpose<perm = [1, 0]>(w)  y = MatMul(x, t) }"
    )
    proto.producer_name = "p" * shift
    w, i = rng.standard_normal((words, width), np.float32), rng.integers(0, words, (1, 2))
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    onnx.save_model(proto, tmp_path / "net.onnx")
    model, held = traced(lambda: fo.load_onnx(tmp_path / "net.onnx"))
    tracemalloc.start()
    np.testing.assert_allclose(model(i), w[i].astype(np.float64) @ w.T, atol=1e-3)
    y = model(i)
    new = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 1_000_000 and new - y.nbytes < 1_000_000  # of NumPy; packed weights are not its
    assert len(model._session.layers) == 1
