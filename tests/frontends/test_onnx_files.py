"""ONNX files as they are: what other runtimes accept, though ONNX's checker does not."""

import os
import pickle
import socket
import threading

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

import fusedops as fo
from fusedops.graph.frontends.onnx import reader

make = helper.make_node
X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, constants=None, opset=17, ir_version=8, **more):
    weights = [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), *more.pop("domains", [])], ir_version=ir_version, **more
    )


def relu(**more):
    return model([make("Relu", ["x"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3])], **more)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("ending", ["onnx", "textproto"])
def test_a_pipe_is_read_once(tmp_path, ending):
    pipe, proto = tmp_path / f"net.{ending}", relu()
    os.mkfifo(pipe)
    content = proto.SerializeToString() if ending == "onnx" else str(proto).encode()
    writer = threading.Thread(target=pipe.write_bytes, args=[content], daemon=True)
    writer.start()
    loaded = []
    reader = threading.Thread(target=lambda: loaded.append(fo.load_onnx(pipe)), daemon=True)
    reader.start()
    reader.join(60)  # who opens it again waits for ever
    np.testing.assert_array_equal(loaded[0](X), np.maximum(X, 0))


def test_nodes_in_any_order():
    """A row of a hundred additions whose nodes stand in random order."""
    order = np.random.default_rng(0).permutation(100)
    nodes = [make("Add", ["x" if i == 0 else f"v{i - 1}", "one"], ["y" if i == 99 else f"v{i}"]) for i in order]
    net = fo.load_onnx(model(nodes, [info("x", [2, 3])], [info("y", [2, 3])], {"one": np.float32(1)}))
    np.testing.assert_allclose(net(X), X + 100, rtol=1e-6)


def test_nodes_in_a_circle():
    nodes = [make("Add", ["x", "b"], ["a"]), make("Relu", ["a"], ["b"]), make("Relu", ["b"], ["y"])]
    with pytest.raises(ValueError, match="reads what depends on its own result"):
        fo.load_onnx(model(nodes, [info("x", [2])], [info("y", [2])]))
    twice = [make("Relu", ["x"], ["y"]), make("Neg", ["x"], ["y"])]
    with pytest.raises(ValueError, match="two nodes make 'y'"):
        fo.load_onnx(model(twice, [info("x", [2])], [info("y", [2])]))


def test_what_nothing_needs():
    """A dead node of an unknown operator, and outputs that have a name but no reader."""
    nodes = [make("Relu", ["x"], ["y"]), make("Unheard", ["x"], ["z"], domain="other"), make("Relu", ["z"], ["w"])]
    net = fo.load_onnx(
        model(nodes, [info("x", [2, 3])], [info("y", [2, 3])], domains=[helper.make_opsetid("other", 1)])
    )
    assert np.array_equal(net(X), np.maximum(X, 0))
    image = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    pool = make("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2], strides=[2, 2])
    net = fo.load_onnx(model([pool], [info("x", [1, 1, 4, 4])], [info("y", [1, 1, 2, 2])]))
    assert np.array_equal(net(image)[0, 0], [[5, 7], [13, 15]])


def test_a_part_that_nothing_reads():
    net = fo.load_onnx(
        model([make("Split", ["x"], ["y", "rest"], axis=0)], [info("x", [2, 3])], [info("y", [1, 3])], opset=13)
    )
    assert np.array_equal(net(X), X[:1])


@pytest.mark.parametrize(
    "change", ["no name", "no shape", "no type", "initializer twice", "old ir", "new ir", "minus one"]
)
def test_what_the_checker_refuses(change):
    proto = relu(constants={"w": np.float32(1)})
    if change == "no name":
        proto.graph.name = ""
    elif change == "no shape":
        proto.graph.output[0].type.tensor_type.ClearField("shape")
    elif change == "no type":
        proto.graph.output[0].ClearField("type")
    elif change == "initializer twice":
        proto.graph.initializer.append(proto.graph.initializer[0])
    elif change in ("old ir", "new ir"):
        proto.ir_version = 3 if change == "old ir" else onnx.IR_VERSION + 1
    else:
        for v in (proto.graph.input[0], proto.graph.output[0]):
            v.type.tensor_type.shape.dim[0].dim_value = -1
    net = fo.load_onnx(proto)
    assert np.array_equal(net(X), np.maximum(X, 0)) and net.outputs[0].dtype == np.float32
    if change == "minus one":
        assert net(X[:1]).shape == (1, 3)


def test_sparse_weights():
    proto = model([make("Add", ["x", "s"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3])])
    values = numpy_helper.from_array(np.float32([5, 7]), "s")
    places = numpy_helper.from_array(np.int64([1, 5]), "places")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2, 3]))
    assert np.array_equal(fo.load_onnx(proto)(X), X + np.float32([[0, 5, 0], [0, 0, 7]]))


def test_an_input_with_a_default(tmp_path):
    nodes = [make("Mul", ["x", "t"], ["h"]), make("Relu", ["h"], ["y"])]
    proto = model(nodes, [info("t", [1]), info("x", [2, 3])], [info("y", [2, 3])], {"t": np.float32([2])})
    net = fo.load_onnx(proto)
    assert [v.name for v in net.inputs] == ["x"]
    assert np.array_equal(net(X), np.maximum(2 * X, 0))
    assert np.array_equal(net.run({"x": X, "t": np.float32([-3])})["y"], np.maximum(-3 * X, 0))
    assert np.array_equal(net.run({"x": X})["y"], np.maximum(2 * X, 0))
    with pytest.raises(ValueError, match=r"takes the inputs x \(and may take t\), got x, u"):
        net.run({"x": X, "u": X})
    net.save(tmp_path / "net.fo")
    for again in (fo.load(tmp_path / "net.fo"), pickle.loads(pickle.dumps(net))):
        assert np.array_equal(again(X), np.maximum(2 * X, 0))
        assert np.array_equal(again.run({"x": X, "t": np.float32([-3])})["y"], np.maximum(-3 * X, 0))
    again.save(tmp_path / "again.fo")
    assert (tmp_path / "again.fo").read_bytes() == (tmp_path / "net.fo").read_bytes()


def test_a_saved_default_that_fusion_folds(tmp_path):
    """A scale after a convolution becomes part of its weights, until a call gives another."""
    w, x = np.float32(np.arange(18).reshape(2, 1, 3, 3)), np.float32(np.arange(25).reshape(1, 1, 5, 5))
    nodes = [make("Conv", ["x", "w"], ["h"]), make("Mul", ["h", "s"], ["y"])]
    inputs, scale = [info("x", [1, 1, 5, 5]), info("s", [1, 2, 1, 1])], np.float32([[[[2]], [[3]]]])
    proto = model(nodes, inputs, [info("y", [1, 2, 3, 3])], {"w": w, "s": scale})
    net = fo.load_onnx(proto)
    net.save(tmp_path / "net.fo")
    again, given = fo.load(tmp_path / "net.fo"), {"x": x, "s": -scale}
    assert np.array_equal(again(x), net(x))
    np.testing.assert_allclose(again.run(given)["y"], -net(x), rtol=1e-6)


def test_weights_that_old_files_list_as_inputs(tmp_path):
    """As in ONNX Runtime these are no inputs, so that a saved network has its weights once."""
    w = np.float32(np.random.default_rng(0).standard_normal((64, 64)))
    nodes, inputs = [make("MatMul", ["x", "w"], ["y"])], [info("x", [2, 64]), info("w", [64, 64])]
    net = fo.load_onnx(model(nodes, inputs, [info("y", [2, 64])], {"w": w}, ir_version=3))
    x = np.ones((2, 64), np.float32)
    with pytest.raises(ValueError, match="takes the inputs x, got x, w"):
        net.run({"x": x, "w": w})
    net.save(tmp_path / "net.fo")
    assert (tmp_path / "net.fo").stat().st_size < 1.5 * w.nbytes
    np.testing.assert_allclose(fo.load(tmp_path / "net.fo")(x), x @ w, rtol=1e-5, atol=1e-5)


def test_many_inputs_and_outputs():
    nodes = [make("Relu", [f"x{i}"], [f"y{i}"]) for i in range(200)]
    net = fo.load_onnx(model(nodes, [info(f"x{i}", [3]) for i in range(200)], [info(f"y{i}", [3]) for i in range(200)]))
    ys = net(*[X[0] + i for i in range(200)])
    assert all(np.array_equal(y, np.maximum(X[0] + i, 0)) for i, y in enumerate(ys))


def test_layer_norm_before_its_opset():
    scale = np.float32([1, 2, 3])
    proto = model(
        [make("LayerNormalization", ["x", "s"], ["y"])],
        [info("x", [2, 3])],
        [info("y", [2, 3])],
        {"s": scale},
        opset=12,
    )
    x = X.astype(np.float64)
    expected = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(fo.load_onnx(proto)(X), expected, rtol=1e-5, atol=1e-6)


FUNCTION = """<ir_version: 9, opset_import: ["" : {opset}, "my" : 1]>
net (float[2, 3] x) => (float[2, 3] y) {{ y = my.f{given}(x) }}
<domain: "my", opset_import: ["" : {own}]> f {attributes}(a) => (b) {{ {body} }}
"""


@pytest.mark.parametrize("given, slope", [("", 0.3), ("<al = 0.5>", 0.5)])
def test_defaults_of_a_functions_attributes(given, slope):
    text = FUNCTION.format(
        opset=18, own=18, given=given, attributes="<al : float = 0.3>", body="b = LeakyRelu<alpha : float = @al>(a)"
    )
    net = fo.load_onnx(onnx.parser.parse_model(text))
    np.testing.assert_allclose(net(X), np.where(X > 0, X, np.float32(slope) * X), rtol=1e-6)


def test_a_function_of_another_opset():
    """Softmax of opset 12 is over all axes from the given one on, of opset 13 over that one."""
    text = FUNCTION.format(opset=18, own=12, given="", attributes="", body="b = Softmax<axis = 0>(a)")
    e = np.exp(X.astype(np.float64) - X.max())
    np.testing.assert_allclose(fo.load_onnx(onnx.parser.parse_model(text))(X), e / e.sum(), rtol=1e-5)


def test_functions_inside_functions():
    text = FUNCTION.format(opset=18, own=18, given="", attributes="", body="c = my.g(a) b = Add(c, a)")
    text = text.replace('<domain: "my", opset_import: ["" : 18]>', '<domain: "my", opset_import: ["" : 18, "my" : 1]>')
    inner = onnx.parser.parse_model(text + '<domain: "my", opset_import: ["" : 18]> g (a) => (b) { b = Neg(a) }')
    assert not fo.load_onnx(inner)(X).any()
    endless = onnx.parser.parse_model(text.replace("my.g", "my.f"))
    with pytest.raises(ValueError, match="function 'f' calls itself"):
        fo.load_onnx(endless)


def nested_functions(count, calls="b = my.f{next}(a)"):
    """A model of functions that call the next one."""
    body = "".join(
        f'<domain: "my", opset_import: ["" : 18, "my" : 1]> f{i} (a) => (b) {{ {calls.format(next=i + 1)} }}\n'
        for i in range(count)
    )
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18, "my" : 1]>
        g (float[2, 3] x) => (float[2, 3] y) {{ y = my.f0(x) }}
        {body}<domain: "my", opset_import: ["" : 18]> f{count} (a) => (b) {{ b = Neg(a) }}""")


def test_a_chain_of_functions(monkeypatch):
    np.testing.assert_array_equal(fo.load_onnx(nested_functions(150))(X), -X)
    with pytest.raises(ValueError, match="functions call each other 201 deep"):
        fo.load_onnx(nested_functions(1500))
    monkeypatch.setattr(reader, "LARGEST", 1000)
    with pytest.raises(ValueError, match="functions call each other for more than 1000 nodes"):
        fo.load_onnx(nested_functions(40, "c = my.f{next}(a) b = my.f{next}(c)"))


@pytest.mark.parametrize("version", [2**40, -1])
@pytest.mark.parametrize("where", ["ir_version", "opset", "function"])
def test_versions_that_nobody_has(where, version):
    proto = onnx.parser.parse_model(FUNCTION.format(opset=18, own=18, given="", attributes="", body="b = Neg(a)"))
    if where == "ir_version":
        proto.ir_version = version
    else:
        (proto.functions[0] if where == "function" else proto).opset_import[0].version = version
    with pytest.raises(ValueError, match=f"damaged one: it has a version of {version}"):
        fo.load_onnx(proto)


def test_an_attribute_without_a_type():
    proto = model(
        [make("Constant", [], ["c"], value_floats=[1.0, 2.0, 3.0]), make("Mul", ["x", "c"], ["y"])],
        [info("x", [2, 3])],
        [info("y", [2, 3])],
    )
    proto.graph.node[0].attribute[0].ClearField("type")
    with pytest.raises(ValueError, match="attribute 'value_floats' has no type"):
        fo.load_onnx(proto)


def test_weights_of_a_negative_size():
    proto = model([make("Mul", ["x", "c"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3])], {"c": np.ones(3, "f4")})
    proto.graph.initializer[0].dims[0] = -1
    with pytest.raises(ValueError, match="tensor 'c' cannot be read: its shape is"):
        fo.load_onnx(proto)


@pytest.mark.parametrize(
    "op, attributes, expected",
    [
        ("Shrink", {"lambd": 0.7, "bias": 0.2}, np.where(X < -0.7, X + 0.2, np.where(X > 0.7, X - 0.2, 0))),
        ("ThresholdedRelu", {"alpha": 0.6}, np.where(X > 0.6, X, 0)),
        ("MeanVarianceNormalization", {"axes": [1]}, (X - X.mean(1, keepdims=True)) / (X.std(1, keepdims=True) + 1e-9)),
    ],
)
def test_operators_that_are_functions(op, attributes, expected):
    proto = model([make(op, ["x"], ["y"], **attributes)], [info("x", [2, 3])], [info("y", [2, 3])], opset=18)
    np.testing.assert_allclose(fo.load_onnx(proto)(X), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "hi",
    [
        "hi = Identity(six)",
        "d = Cast<to = 11>(six)  hi = Cast<to = 1>(d)",
        "hi = Sqrt(many)",
        "o = Constant<value_ints = [1]>()  r = Reshape(six, o)  z = Constant<value_ints = [0]>()  hi = Squeeze(r, z)",
    ],
)
def test_bounds_that_constants_make(hi):
    """A Clip whose bounds pass through other nodes is an activation of the operation before it."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    net (float[2, 3] x, float[2, 3] z0) => (float[2, 3] y) {{
        six = Constant<value_float = 1.5>()  many = Constant<value_float = 2.25>()  lo = Constant<value_float = -0.5>()
        {hi}  s = Add(x, z0)  y = Clip(s, lo, hi)
    }}"""
    net = fo.load_onnx(onnx.parser.parse_model(text))
    assert np.array_equal(net(X, X), np.clip(2 * X, np.float32(-0.5), np.float32(1.5)))
    assert [step.kind for step in net._plan(X, X)[0].steps] == ["binary"]


def test_dropout_whose_flag_is_made_by_nodes():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[2, 3] x) => (float[2, 3] y) {
        t = Constant<value = bool {FLAG}>()  u = Identity(t)  r = Constant<value_float = 0.5>()  y = Dropout(x, r, u)
    }"""
    for flag in "01":
        model = fo.load_onnx(onnx.parser.parse_model(text.replace("FLAG", flag)))
        assert np.array_equal(model(X), X) and ("training mode" in str(model.explain())) == (flag == "1")


def test_onnx_under_its_other_name():
    proto = relu()
    proto.graph.node[0].domain = "ai.onnx"
    assert np.array_equal(fo.load_onnx(proto)(X), np.maximum(X, 0))
    proto.opset_import[0].domain = "ai.onnx"
    assert np.array_equal(fo.load_onnx(proto)(X), np.maximum(X, 0))


def test_three_errors_with_their_mends(tmp_path):
    """A data file that is missing, an operator that is unknown, and a damaged file are told from each other."""
    proto = model(
        [make("Add", ["x", "w"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3])], {"w": np.ones((2, 3), np.float32)}
    )
    onnx.save_model(proto, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    assert np.array_equal(fo.load_onnx(tmp_path / "net.onnx")(X), X + 1)
    (tmp_path / "net.data").unlink()
    with pytest.raises(FileNotFoundError, match=r"net.onnx.*net.data.*put it next to the model"):
        fo.load_onnx(tmp_path / "net.onnx")
    unknown = model(
        [make("Nothing", ["x"], ["y"], domain="other")],
        [info("x", [2])],
        [info("y", [2])],
        domains=[helper.make_opsetid("other", 1)],
    )
    with pytest.raises(ValueError, match="operators that fusedops does not have: other.Nothing"):
        fo.load_onnx(unknown)
    (tmp_path / "bad.onnx").write_bytes(relu().SerializeToString()[:-7])
    with pytest.raises(ValueError, match="bad.onnx.*not an ONNX model, or a damaged one"):
        fo.load_onnx(tmp_path / "bad.onnx")


@pytest.mark.parametrize("linked", ["file", "data", "folder"])
def test_weights_behind_links(linked, tmp_path):
    """As Hugging Face's cache keeps them: links to files elsewhere in the folder tree."""
    proto = model(
        [make("Add", ["x", "w"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3])], {"w": np.ones((2, 3), np.float32)}
    )
    home = tmp_path / "blobs"
    home.mkdir()
    onnx.save_model(proto, home / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    path = tmp_path / "snap" / "net.onnx"
    if linked == "folder":
        path.parent.symlink_to(home)
    else:
        path.parent.mkdir()
        path.symlink_to(home / "net.onnx")
        (path.parent / "net.data").symlink_to(home / "net.data")
        if linked == "data":
            path.unlink()
            path.write_bytes((home / "net.onnx").read_bytes())
            (path.parent / "net.data").unlink()
            (path.parent / "weights").mkdir()
            (path.parent / "weights" / "w").write_bytes((home / "net.data").read_bytes())
            (path.parent / "net.data").symlink_to("weights/w")
    assert np.array_equal(fo.load_onnx(path)(X), X + 1)


def test_more_than_eight_axes():
    """Axes that fold: ten of them, as some exporters spell windows."""
    shape = [1, 2, 1, 2, 1, 3, 1, 2, 1, 2]
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    nodes = [
        make("Relu", ["x"], ["r"]),
        make("Add", ["r", "x"], ["s"]),
        make("Transpose", ["s"], ["t"], perm=[0, 1, 2, 4, 3, 5, 7, 6, 8, 9]),
        make("Sigmoid", ["t"], ["y"]),
    ]
    net = fo.load_onnx(model(nodes, [info("x", shape)], [info("y", None)]))
    expected = (np.maximum(x, 0) + x).transpose(0, 1, 2, 4, 3, 5, 7, 6, 8, 9)
    np.testing.assert_allclose(net(x), 1 / (1 + np.exp(-expected)), rtol=1e-5)


def test_three_errors_each_with_its_mend(tmp_path):
    """An operator that fusedops lacks and a damaged file are two things; data that is not there is the third."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    nodes = [
        helper.make_node("Magic", ["x"], ["a"], domain="own"),
        helper.make_node("SVMRegressor", ["a"], ["y"], domain="ai.onnx.ml"),
    ]
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 17), ("own", 1), ("ai.onnx.ml", 3))]
    unknown = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=8)
    listed = r"ai\.onnx\.ml\.SVMRegressor \(#1\), models.*; own\.Magic \(#0\); .*FunctionProto"
    with pytest.raises(ValueError, match=listed) as first:
        fo.load_onnx(unknown)
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"\x08\x08 no model")
    with pytest.raises(ValueError, match="damaged one.*export or download it again") as second:
        fo.load_onnx(damaged)
    assert "damaged" not in str(first.value) and "operators" not in str(second.value)


def outside(name, a, offset, **more):
    """A tensor whose data is in weights.bin, from an offset on."""
    tensor = numpy_helper.from_array(a, name)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": offset, "length": a.nbytes, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def test_weights_behind_two_gigabytes(tmp_path):
    """Offsets have more than 32 bits; initializers, those of types that NumPy widens, and tensors of nodes."""
    w, half, far = np.float32([1, 2, 3]), np.float16([0.5, 1, 2]), (2 << 30) + 4096
    with open(tmp_path / "weights.bin", "wb") as f:  # sparse
        f.seek(far)
        f.write(w.tobytes() + half.tobytes())
    nodes = [
        make("Constant", [], ["c"], value=outside("c", w, far)),
        make("Cast", ["half"], ["h"], to=1),
        make("Sum", ["x", "w", "c", "h"], ["y"]),
    ]
    proto = model(nodes, [info("x", [2, 3])], [info("y", [2, 3])], {})
    proto.graph.initializer.extend([outside("w", w, far), outside("half", half, far + w.nbytes)])
    onnx.save_model(proto, tmp_path / "net.onnx")
    assert np.array_equal(fo.load_onnx(tmp_path / "net.onnx")(X), X + 2 * w + half)


@pytest.mark.parametrize(
    "more, reason",
    [
        ({"offset": 8}, "bytes 8 to 20 of 'weights.bin', which has 12"),
        ({"length": 8}, r"8 bytes for the shape \(3,\) of float32"),
        ({"offset": 1 << 62}, "which has 12"),
        ({"offset": -4}, ""),
        ({"length": -4}, ""),
    ],
)
def test_damaged_weights_in_another_file(more, reason, tmp_path):
    (tmp_path / "weights.bin").write_bytes(np.float32([1, 2, 3]).tobytes())
    proto = model([make("Add", ["x", "w"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3])], {})
    proto.graph.initializer.append(outside("w", np.zeros(3, np.float32), **({"offset": 0} | more)))
    onnx.save_model(proto, tmp_path / "net.onnx")
    with pytest.raises(ValueError, match=f"damaged.* tensor 'w'.*{reason}"):
        fo.load_onnx(tmp_path / "net.onnx")


def _pipe(name):
    os.mkfifo(name)


def _socket(name):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("make_file", [_pipe, _socket, os.mkdir])
def test_weights_in_no_regular_file(make_file, tmp_path, monkeypatch):
    """Nothing is opened that could keep the load waiting."""
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    make_file("weights")
    proto = model([make("Add", ["x", "w"], ["y"])], [info("x", [2, 3])], [info("y", [2, 3])], {})
    proto.graph.initializer.append(outside("w", np.zeros(3, np.float32), 0, location="weights"))
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    found = []

    def read():
        try:
            fo.load_onnx("net.onnx")
        except Exception as e:
            found.append(e)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(60)
    (error,) = found
    assert isinstance(error, ValueError) and "tensor 'w' points to 'weights', which is not a regular file" in str(error)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="the system has no such device")
@pytest.mark.parametrize("load", [fo.load_onnx, fo.load_tflite, fo.load])
def test_devices_are_not_read(load):
    with pytest.raises(OSError, match="'/dev/zero' is a device"):
        load("/dev/zero")


@pytest.mark.thorough
def test_weights_of_more_than_two_gigabytes(tmp_path):
    """They are in memory once: a message, which ends at 2 GB, has no copy. ONNX cannot convert such a model."""
    shape, row = (150_000, 4096), np.arange(4096, dtype=np.float32)
    size = 4 * shape[0] * shape[1]
    with open(tmp_path / "weights.bin", "wb") as f:  # sparse but for the last row
        f.seek(size - row.nbytes)
        f.write(row.tobytes())
    proto = model(
        [make("Gather", ["w", "i"], ["y"])], [info("i", [2], onnx.TensorProto.INT64)], [info("y", [2, 4096])], {}
    )
    w = outside("w", row, 0, length=size)
    w.dims[:] = shape
    proto.graph.initializer.append(w)
    onnx.save_model(proto, tmp_path / "net.onnx")
    y = fo.load_onnx(tmp_path / "net.onnx")(np.int64([0, shape[0] - 1]))
    assert not y[0].any() and np.array_equal(y[1], row)
    proto.opset_import[0].version = 6
    onnx.save_model(proto, tmp_path / "old.onnx")
    with pytest.raises(ValueError, match="opset 6 and more than the 2 GB"):
        fo.load_onnx(tmp_path / "old.onnx")
