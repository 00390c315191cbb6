"""Where networks come from and go to: paths, bytes and open files; what files say of themselves; kinds of errors."""

import dataclasses
import io
import pathlib
import pickle

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx.parser import parse_model

import fusedops as fo

TEXT = """<ir_version: 8, opset_import: ["" : 17], producer_name: "me", model_version: 7, doc_string: "what it is",
          domain: "here", metadata_props: ["labels": "cat,dog"]>
net (float[?, 3] x, bfloat16[n] b) => (float[?, 3] y, bfloat16[n] c) { y = Relu(x)  c = Identity(b) }"""
X, B = np.float32([[-1, 0, 2]]), np.float32([1])
PROTO = parse_model(TEXT)
DATA = PROTO.SerializeToString()


def test_sources_of_onnx(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(DATA)
    with open(path, "rb") as f:
        for source in (path, str(path), DATA, bytearray(DATA), memoryview(DATA), io.BytesIO(DATA), f, PROTO):
            assert np.array_equal(fo.load_onnx(source)(X, B)[0], [[0, 0, 2]])
    with pytest.raises(TypeError, match="open it with mode 'rb'"):
        fo.load_onnx(io.StringIO("text"))


def test_sources_of_tflite():
    pytest.importorskip("tflite")
    import tflite_models as tm

    data = _relu(tm)
    for source in (data, io.BytesIO(data)):
        assert np.array_equal(fo.load_tflite(source)(np.float32([-1, 2])), [0, 2])


def _relu(tm):
    return tm.single("RELU", [tm.Tensor((2,), name="x")], [tm.Tensor((2,), name="y")])


@pytest.mark.parametrize("make", [str, pathlib.Path])
def test_where_networks_are_saved(tmp_path, make):
    fo.load_onnx(DATA).save(make(tmp_path / "net.fo"))
    with open(tmp_path / "open.fo", "w+b") as f:
        fo.load_onnx(DATA).save(f)
        assert not f.closed
        f.seek(0)
        assert np.array_equal(fo.load(f)(X, B)[0], [[0, 0, 2]])
    assert (tmp_path / "open.fo").read_bytes() == (tmp_path / "net.fo").read_bytes()
    data = (tmp_path / "net.fo").read_bytes()
    for source in (tmp_path / "net.fo", data, bytearray(data), io.BytesIO(data)):
        assert np.array_equal(fo.load(source)(X, B)[0], [[0, 0, 2]])
    with pytest.raises(TypeError, match="open it with mode 'wb'"):
        fo.load_onnx(DATA).save(io.StringIO())


# ---- what files say


def forms(net):
    f = io.BytesIO()
    net.save(f)
    return net, fo.load(f.getvalue()), pickle.loads(pickle.dumps(net))


def test_metadata():
    for net in forms(fo.load_onnx(DATA)):
        assert dataclasses.asdict(net.metadata) == {
            "producer": "me",
            "graph": "net",
            "domain": "here",
            "version": 7,
            "description": "what it is",
            "graph_description": "",
            "custom": {"labels": "cat,dog"},
        }


def test_metadata_of_an_old_file():
    """ONNX's converter, which brings it up, keeps less of it."""
    proto = parse_model(TEXT)
    proto.opset_import[0].version = 6
    del proto.graph.node[1], proto.graph.input[1], proto.graph.output[1]
    net = fo.load_onnx(proto)
    assert net.metadata.producer == "me" and net.metadata.custom == {"labels": "cat,dog"}


def test_a_network_without_metadata():
    proto = parse_model('<ir_version: 8, opset_import: ["" : 17]> net (float[2] x) => (float[2] y) { y = Relu(x) }')
    assert fo.load_onnx(proto).metadata == dataclasses.replace(fo.load_onnx(DATA).metadata, producer="", graph="net",
        domain="", version=0, description="", custom={})  # fmt: skip


def test_types_and_unnamed_sizes():
    for net in forms(fo.load_onnx(DATA)):
        for x, b in (net.inputs, net.outputs):
            assert (x.shape, x.dtype, x.file_type) == ((None, 3), np.float32, "float32")
            assert (b.shape, b.dtype, b.file_type) == (("n",), np.float32, "bfloat16")
        assert str(net) == "Model(x: float32 (x.0, 3), b: float32 (n) -> y: float32 (y.0, 3), c: float32 (n))"


def test_sequences_have_types():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (seq(float16[n]) x) => (float16[m] y) { y = ConcatFromSequence<axis=0>(x) }"""
    for net in forms(fo.load_onnx(parse_model(text))):
        assert (net.inputs[0].file_type, net.outputs[0].file_type) == ("sequence(float16)", "float16")


def test_metadata_that_is_damaged():
    f = io.BytesIO()
    fo.load_onnx(DATA).save(f)
    for old, new in ((b'"producer": "me"', b'"producer": 1234'), (b'"version": 7', b'"verslon": 7'),
                     (b'"labels": "cat,dog"', b'"labels": [1,2,3,4]')):  # fmt: skip
        assert len(old) == len(new) and f.getvalue().count(old) == 1
        with pytest.raises(fo.DamagedFile, match="damaged"):
            fo.load(_with_checksums(f.getvalue(), old, new))


def _with_checksums(data, old, new):
    """A saved network with other words in its header."""
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    arrays["header"] = np.frombuffer(bytes(arrays["header"]).replace(old, new), np.uint8)
    f = io.BytesIO()
    np.savez(f, **arrays)
    return f.getvalue()


# ---- kinds of errors


@pytest.mark.parametrize(
    ("load", "kind", "words"),
    [
        (lambda: fo.load(b"PK and more"), "DamagedFile", "not a saved network"),
        (lambda: fo.load(DATA), "DamagedFile", "not a saved network"),
        (lambda: fo.load_onnx(b"no model"), "DamagedFile", "not an ONNX model"),
        (lambda: fo.load_onnx(DATA[:-5]), "DamagedFile", "not an ONNX model"),
        (lambda: fo.load_onnx(_text("y = Relu(z)")), "DamagedFile", "reads 'z', which nothing makes"),
        (lambda: fo.load_onnx(_text("y = Softmax<axis = 9>(x, x)")), "DamagedFile", "damaged"),
        (lambda: fo.load_onnx(_text("y = Unknown(x)")), "UnsupportedOperator", "Unknown"),
        (lambda: fo.load_onnx(_text("y = Relu(x)"))(np.ones(3, np.float32)), "InvalidArgument", "x has shape"),
        (lambda: fo.load_onnx(_text("y = Relu(x)"))(), "InvalidArgument", "x is missing"),
    ],
)
def test_kinds_of_errors(load, kind, words):
    with pytest.raises(ValueError, match=words) as error:
        load()
    assert type(error.value) is getattr(fo, kind)


def _text(body):
    return parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net (float[2] x) => (float[2] y) {{ {body} }}')


def test_unknown_operators_are_listed():
    with pytest.raises(fo.UnsupportedOperator) as error:
        fo.load_onnx(
            parse_model("""<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
            net (float[2] x) => (float[2] y) { h = Unknown(x)  y = mine.Other(h) }""")
        )
    assert error.value.operators == ("Unknown", "mine.Other")


def test_kinds_of_errors_of_tflite():
    pytest.importorskip("tflite")
    import tflite_models as tm

    with pytest.raises(fo.DamagedFile, match="not a TFLite model"):
        fo.load_tflite(b"no model")
    with pytest.raises(fo.InvalidArgument, match="no signature 'other': it has no signatures"):
        fo.load_tflite(_relu(tm), signature="other")
