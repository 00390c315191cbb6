"""Weights that a file has in float16 stay so in memory: those of products and convolutions."""

import io

import numpy as np
import pytest

pytest.importorskip("onnx")
import merged_net
import onnx
from onnx import TensorProto, numpy_helper
from onnx.parser import parse_model

import fusedops as fo
from fusedops._internal.mmap_arrays import for_a_while, let_go
from onnx_types import retyped

HEAD = '<ir_version: 8, opset_import: ["" : 18]> net '
TEXT = """(float16[n, 32, 5, 4] x) => (float16[n, 48] y) {
    c = Conv<pads=[1, 1, 1, 1]>(x, cw)  r = Relu(c)  g = GlobalAveragePool(r)  f = Flatten(g)
    h = MatMul(f, w)  t = Gemm<transB=1>(h, v)  y = Relu(t) }"""
SHAPES = dict(cw=(40, 32, 3, 3), w=(40, 64), v=(48, 64))


def network(rng, text=TEXT, shapes=SHAPES):
    proto = parse_model(HEAD + text)
    weights = {v: (rng.standard_normal(s) / 8).astype(np.float16) for v, s in shapes.items()}
    proto.graph.initializer.extend(numpy_helper.from_array(a, v) for v, a in weights.items())
    return proto


def large(net):
    return [a for a in net._graph.constants.values() if a.size >= 1024]


def test_they_are_those_of_the_file(rng, tmp_path):
    proto, x = network(rng), rng.standard_normal((2, 32, 5, 4)).astype(np.float16)
    onnx.save(proto, tmp_path / "net.onnx")
    net, wide = fo.load_onnx(tmp_path / "net.onnx"), fo.load_onnx(retyped(proto, TensorProto.FLOAT))
    given = list(net._source.constants.values())
    assert len(large(net)) == 3 and all(a.dtype == np.float16 for a in (*given, *large(net)))
    assert all(any(np.shares_memory(a, b) for b in given) for a in large(net))
    expected = wide(x.astype(np.float32))
    np.testing.assert_array_equal(net(x), expected.astype(np.float16))
    file = io.BytesIO()
    net.save(file)
    again = fo.load(io.BytesIO(file.getvalue()))
    assert all(a.dtype == np.float16 for a in large(again))
    np.testing.assert_array_equal(again(x), net(x))
    unfused = fo.load_onnx(proto, fold=False, fuse=False)
    np.testing.assert_allclose(unfused(x).astype(float), expected, rtol=2e-3, atol=2e-3)


def test_what_is_read_elsewhere_too_is_float32(rng):
    proto = network(
        rng, "(float16[n, 40] x) => (float16[n, 64] y, float16[40, 64] z) { y = MatMul(x, w)  z = Neg(w) }",
        dict(w=(40, 64)),
    )  # fmt: skip
    net, x = fo.load_onnx(proto), rng.standard_normal((3, 40)).astype(np.float16)
    y, z = net(x)
    w = numpy_helper.to_array(proto.graph.initializer[0])
    np.testing.assert_array_equal(z, -w)
    np.testing.assert_allclose(y.astype(float), x.astype(float) @ w.astype(float), rtol=2e-3, atol=2e-3)


def test_astype_has_them_once(rng):
    wide = fo.load_onnx(retyped(network(rng), TensorProto.FLOAT))
    small, x = wide.astype("float16"), rng.standard_normal((2, 32, 5, 4)).astype(np.float32)
    assert all(a.dtype == np.float16 for a in large(small)) and all(a.dtype == np.float32 for a in large(wide))
    np.testing.assert_array_equal(small(x), wide(x))
    bits = small.astype("bfloat16")
    np.testing.assert_allclose(bits(x), wide(x), atol=0.05)


def test_branches_share_what_they_pack(rng):
    """Of a decoder of two branches, also where its weights are rounded."""
    proto = merged_net.merged()[0]
    for net in fo.load_onnx(retyped(proto, TensorProto.FLOAT16)), fo.load_onnx(proto).astype("float16"):
        decoder, ids = net.decoder(), rng.integers(0, merged_net.WORDS, (1, 9))
        decoder(ids[:, :5])
        decoder(ids[:, 5:6])
        first, later = (
            {id(layer) for layer in session.layers.values()} for session in (net._first_call.session, net._decoding)
        )
        assert first & later


@pytest.mark.parametrize("how", ["samples", "int8"])
def test_quantized(how, rng):
    """As of the same weights in float32."""
    proto = network(rng)
    x = rng.standard_normal((4, 32, 5, 4)).astype(np.float16)
    results = []
    for net, given in (fo.load_onnx(proto), x), (fo.load_onnx(retyped(proto, TensorProto.FLOAT)), x.astype(np.float32)):
        small = net.quantize([given]) if how == "samples" else net.quantize(weights=how)
        results.append(small(given).astype(np.float32))
    np.testing.assert_allclose(*results, rtol=2e-3, atol=2e-3)


def test_constants_of_few_elements():
    proto = parse_model(
        HEAD
        + """(float16[n] x) => (float16[n] y, float16[0] z) <float16[1] c = {16896}, float16[0] e = {}>
        { m = Mul(x, c)  y = Add(m, c)  z = Neg(e) }"""
    )
    y, z = fo.load_onnx(proto)(np.ones(3, np.float16))
    assert y.tolist() == [6.0] * 3 and z.shape == (0,) and z.dtype == np.float16


def test_memory_for_a_while(rng):
    """Only what a file has can be given back while it is still read."""
    a = rng.standard_normal((300, 200)).astype(np.float16)
    wide = for_a_while(a, np.float32)
    let_go(wide)
    np.testing.assert_array_equal(wide, a)
    assert wide.dtype == np.float32 and wide.flags.writeable
