"""ONNX files read without the onnx package: the same messages as protobuf has, the same networks from files, bytes and
messages, and large weights, which stay where they are."""

import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_function, parse_graph, parse_model

import fusedops as fo
from fusedops.graph.frontends.onnx import model_file, wire
from fusedops.graph.frontends.onnx.wire import LARGE

HEAD = '<ir_version: 10, opset_import: ["" : 21, "own" : 1]>'


@pytest.fixture(autouse=True)
def _mapped(monkeypatch):
    """Files of every size are mapped."""
    monkeypatch.setattr(model_file, "MAPPED", 1)


def initializers(**arrays):
    return [numpy_helper.from_array(a, name) for name, a in arrays.items()]


def loaded(proto, tmp_path):
    """The network from a file, from bytes, and from the message."""
    onnx.save(proto, tmp_path / "net.onnx")
    return [fo.load_onnx(m) for m in (tmp_path / "net.onnx", proto.SerializeToString(), proto)]


def same(proto, tmp_path, *arrays):
    """The result, which is the same from all three, and of the last byte of the file too."""
    found = [net(*arrays) for net in loaded(proto, tmp_path)]
    for y in found[1:]:
        np.testing.assert_array_equal(y, found[0])
    return found[0]


@pytest.fixture
def plain(rng):
    """A model of one large weight, as bytes."""
    w = rng.standard_normal((200, 300), np.float32)
    proto = parse_model(f"{HEAD} g (float[2, 200] x) => (float[2, 300] y) {{ y = MatMul(x, w) }}")
    proto.graph.initializer.extend(initializers(w=w))
    return proto.SerializeToString()


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("rows", [False, True])
def test_products_of_weights_at_any_address(rng, isa, shift, rows, tmp_path):
    """Columns after each other (MatMul) and rows (Gemm), n that ends in a panel, few columns that are dot products."""
    for k, n in (300, 1001), (17001, 1), (9001, 3), (701, 1024):
        w, x = rng.standard_normal((k, n), np.float32), rng.standard_normal((3, k), np.float32)
        op = "Gemm<transB = 1>" if rows else "MatMul"
        proto = parse_model(f"{HEAD} g (float[m, {k}] x) => (float[m, {n}] y) {{ y = {op}(x, w) }}")
        proto.producer_name = "p" * shift
        proto.graph.initializer.extend(initializers(w=np.ascontiguousarray(w.T) if rows else w))
        y = same(proto, tmp_path, x)
        np.testing.assert_allclose(y, x @ w.astype(np.float64), rtol=0, atol=2e-5 * k**0.5)


def test_large_weights_at_odd_addresses(rng, threads, tmp_path):
    """Those that are not copied as they are read: a product's, a table's, one that is added, one of a convolution."""
    w, table, b = (rng.standard_normal(s, np.float32) for s in ((600, 700), (1000, 600), (600, 700)))
    filters = rng.standard_normal((300, 200, 3, 3), np.float32)
    proto = parse_model(
        f"{HEAD} g (int64[600] i, float[1, 200, 5, 5] image) => (float[600, 700] y, float[1, 300, 5, 5] z) "
        "{ rows = Gather(t, i)  p = MatMul(rows, w)  y = Add(p, b)  z = Conv<pads = [1, 1, 1, 1]>(image, f) }"
    )
    proto.graph.initializer.extend(initializers(w=w, t=table, b=b, f=filters))
    i, image = rng.integers(-1000, 1000, 600), rng.standard_normal((1, 200, 5, 5), np.float32)
    for shift in range(4):
        proto.producer_name = "p" * shift
        found = [net(i, image) for net in loaded(proto, tmp_path)]
        np.testing.assert_allclose(found[0][0], table[i].astype(np.float64) @ w + b, rtol=0, atol=1e-3)
        for ys in found[1:]:
            for a, c in zip(ys, found[0], strict=True):
                np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "float16", "bool"])
def test_tables_of_any_type(rng, dtype, axis, tmp_path):
    table = rng.integers(0, 2 if dtype == "bool" else 100, (120, 130, 140)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(table.dtype)
    i = rng.integers(-120, 120, (3, 2))
    node = helper.make_node("Gather", ["t", "i"], ["y"], axis=axis)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [3, 2])],
        [helper.make_tensor_value_info("y", kind, None)],
        initializers(t=table),
    )
    for shift in range(3):
        graph.name = "g" * (shift + 1)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        np.testing.assert_array_equal(same(proto, tmp_path, i), np.take(table, i, axis))


def test_weights_of_nodes_branches_and_functions(rng, tmp_path):
    """Constants of nodes, initializers of a branch, and constants of a function of the model."""
    proto = parse_model(f"{HEAD} g (float[200, 100] x, bool c) => (float[200, 100] y) {{ y = If(c, x, x) }}")
    value = {name: rng.standard_normal((200, 100), np.float32) for name in "abd"}
    branches = {}
    for name, body in ("then_branch", "own.Sum"), ("else_branch", "Sub"):
        branches[name] = parse_graph(f"{name} () => (float[200, 100] r) {{ q = {body}(x, w)  r = Add(q, k) }}")
        branches[name].initializer.extend(initializers(w=value["a"]))
        constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(value["b"], "k"))
        branches[name].node.insert(0, constant)
    del proto.graph.node[:]
    proto.graph.node.append(helper.make_node("If", ["c"], ["y"], **branches))
    function = parse_function(
        '<domain: "own", opset_import: ["" : 21]> Sum (p, q) => (r) { s = Add(p, q) r = Add(s, d) }'
    )
    constant = helper.make_node("Constant", [], ["d"], value=numpy_helper.from_array(value["d"], "d"))
    function.node.insert(0, constant)
    proto.functions.append(function)
    x = rng.standard_normal((200, 100), np.float32)
    yes, no = (same(proto, tmp_path, x, np.bool_(c)) for c in (True, False))
    np.testing.assert_allclose(yes, x + value["a"] + value["d"] + value["b"], atol=1e-5)
    np.testing.assert_allclose(no, x - value["a"] + value["b"], atol=1e-5)


def test_numbers_of_4_bits_and_bfloat16(rng, tmp_path):
    """Elements that NumPy does not have."""
    numbers = rng.integers(-8, 8, (400, 500))
    packed = (numbers.reshape(-1, 2) & 15) @ np.array([1, 16])
    q = TensorProto(name="q", data_type=TensorProto.INT4, dims=[400, 500], raw_data=packed.astype(np.uint8).tobytes())
    wide = rng.standard_normal((300, 500), np.float32).view(np.uint32) & 0xFFFF0000
    h = TensorProto(name="h", data_type=TensorProto.BFLOAT16, dims=[300, 500])
    h.raw_data = (wide >> 16).astype(np.uint16).tobytes()
    proto = parse_model(
        f"{HEAD} g (float[1] x) => (float[700, 500] y) <float s = {{1.0}}> "
        "{ a = DequantizeLinear(q, s)  b = Cast<to = 1>(h)  c = Concat<axis = 0>(a, b)  y = Mul(c, x) }"
    )
    proto.graph.initializer.extend([q, h])
    y = same(proto, tmp_path, np.ones(1, np.float32))
    np.testing.assert_array_equal(y, np.concatenate([numbers, wide.view(np.float32)]).astype(np.float32))


def test_a_tensor_that_says_it_is_inside(plain):
    """As some exporters write it, after the data."""
    proto = onnx.load_model_from_string(plain)
    w = proto.graph.initializer[0]
    w.data_location = TensorProto.DEFAULT
    assert w.HasField("data_location")
    x = np.ones((2, 200), np.float32)
    np.testing.assert_array_equal(fo.load_onnx(proto.SerializeToString())(x), fo.load_onnx(plain)(x))


def test_an_old_opset(rng, tmp_path):
    """ONNX brings such models up, with their weights in the message."""
    w = rng.standard_normal((200, 300), np.float32)
    proto = parse_model(
        '<ir_version: 3, opset_import: ["" : 6]> g (float[2, 200] x, float[200, 300] w) => (float[2, 300] y) '
        "{ y = MatMul(x, w) }"
    )
    proto.graph.initializer.extend(initializers(w=w))
    x = rng.standard_normal((2, 200), np.float32)
    np.testing.assert_allclose(same(proto, tmp_path, x), x @ w, atol=1e-4)


def test_a_file_of_text_is_read(tmp_path):
    proto = parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {{ y = Relu(x) }}")
    onnx.save(proto, tmp_path / "net.textproto")
    np.testing.assert_array_equal(fo.load_onnx(tmp_path / "net.textproto")(np.float32([-1, 1])), [0, 1])


# ---- damage ---------------------------------------------------------------------------------------------------------


def outcome(model, x):
    """The network's result, or None where the model is refused."""
    try:
        return fo.load_onnx(model)(x)
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files(plain, seed):
    """Fields that end after their message, lengths of many bytes, unknown types: as whoever parses it whole has it."""
    rng, x = np.random.default_rng(seed), np.ones((2, 200), np.float32)
    around = [*range(120), *range(len(plain) - 80, len(plain))]  # the data
    for _ in range(60):
        broken = bytearray(plain)
        for place in rng.choice(around, 2):
            broken[place] = rng.choice([0, 1, 127, 128, 255, rng.integers(256)])
        found = outcome(bytes(broken), x)
        try:
            whole = onnx.load_model_from_string(bytes(broken))
        except Exception:
            assert found is None
            continue
        expected = outcome(whole, x)
        assert (found is None) == (expected is None)
        if expected is not None:
            np.testing.assert_array_equal(found, expected)


def test_files_that_end_early(plain, tmp_path):
    for end in (1, 10, 80, len(plain) // 2, len(plain) - 1):
        (tmp_path / "net.onnx").write_bytes(plain[:end])
        with pytest.raises(ValueError, match="not an ONNX model, or a damaged one"):
            fo.load_onnx(tmp_path / "net.onnx")


def _varint(number):
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes(found) + bytes([number])


def field(number, content):
    """The bytes of a field that holds others."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


@pytest.mark.parametrize("depth", [120, 3999])
def test_graphs_inside_graphs_inside_graphs(depth):
    """Deeper than messages may be, and than Python calls itself."""
    message = b""
    for i in range(depth):
        message = field((6, 5, 1)[i % 3], message)  # the graph of an attribute of a node
    with pytest.raises(ValueError, match="not an ONNX model, or a damaged one: .*too deep"):
        fo.load_onnx(field(7, message))


@pytest.mark.parametrize("size", [-4, 4])
def test_data_of_another_size_than_the_shape(plain, size, tmp_path):
    proto = onnx.load_model_from_string(plain)
    data = proto.graph.initializer[0].raw_data
    proto.graph.initializer[0].raw_data = data[:size] if size < 0 else data + bytes(size)
    for net in proto, proto.SerializeToString():
        with pytest.raises(ValueError, match=r"damaged: the data of tensor 'w'.*\(200, ?300\)"):
            fo.load_onnx(net)


def message_of(found):
    """A message of this library's as protobuf has it."""
    names = {"Attribute": "AttributeProto", "Graph": "GraphProto", "Node": "NodeProto"}
    made = getattr(onnx, names.get(type(found).__name__, type(found).__name__))()
    for name, value in vars(found).items():
        if name == "span":
            continue
        if isinstance(value, wire.Message):
            getattr(made, name).CopyFrom(nested(made, name, value))
        elif isinstance(value, list) and value and isinstance(value[0], wire.Message):
            getattr(made, name).extend(message_of(v) for v in value)
        elif isinstance(value, (list, np.ndarray)):
            getattr(made, name).extend(np.asarray(value, object).tolist())
        else:
            setattr(made, name, bytes(value) if isinstance(value, memoryview) else value)
    return made


def nested(made, name, value):
    """A message inside one, whose class onnx does not export."""
    return type(getattr(made, name)).FromString(value.SerializeToString())


def every_kind():
    """A model with fields of all kinds, negative numbers, long lists, and numbers that are not packed."""
    proto = parse_model(
        f"{HEAD} g (float[n, 2] x, seq(float[2]) s) => (float[2] y) {{ y = own.F<a = -3, b = 1.5>(x) }}"
    )
    values = {"ints": list(range(-100, 100)), "floats": [0.5] * 40, "strings": ["a", "b"], "text": "é", "i": -(2**63)}
    values["t"] = helper.make_tensor("t", TensorProto.INT32, [200], range(-100, 100))
    proto.graph.node.append(helper.make_node("F", ["y"], ["z"], domain="own", **values))
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.UINT64, [2], [1, 2**64 - 1]))
    proto.graph.initializer.append(helper.make_tensor("d", TensorProto.DOUBLE, [2], [1.5, -2.0]))
    proto.graph.initializer.append(helper.make_tensor("q", TensorProto.STRING, [1], [b"text"]))
    helper.set_model_props(proto, {"key": "value"})
    return proto


def test_messages_are_those_of_protobuf():
    proto = every_kind()
    assert message_of(wire.parse(wire.Model, proto.SerializeToString())) == proto
    one_by_one = proto.SerializeToString() + field(7, field(5, b"\x08\x03\x08\x02" + field(8, b"more")))
    assert message_of(wire.parse(wire.Model, one_by_one)) == onnx.load_model_from_string(one_by_one)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_messages_are_refused_as_by_protobuf(seed):
    """What both read is the same."""
    rng, data = np.random.default_rng(seed), every_kind().SerializeToString()
    read = 0
    for _ in range(500):
        broken = bytearray(data)
        for place in rng.integers(len(data), size=2):
            broken[place] = rng.choice([0, 1, 10, 127, 128, 255, rng.integers(256)])
        try:
            expected = onnx.load_model_from_string(bytes(broken))
        except Exception:
            continue  # protobuf looks into fields that are skipped here
        try:
            found = wire.parse(wire.Model, bytes(broken))
        except ValueError:
            continue  # and knows groups, which ONNX has none of
        read += 1
        assert [n.op_type for n in found.graph.node] == [n.op_type for n in expected.graph.node]
        assert [list(t.dims) for t in found.graph.initializer] == [list(t.dims) for t in expected.graph.initializer]
        assert [list(a.ints) for n in found.graph.node for a in n.attribute] == [
            list(a.ints) for n in expected.graph.node for a in n.attribute
        ]
    assert read > 100


def test_large_data_is_a_view_and_small_data_a_copy():
    for n, kind in (LARGE // 4 - 1, bytes), (LARGE // 4, memoryview):
        proto = parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {{ y = Add(x, w) }}")
        proto.graph.initializer.extend(initializers(w=np.zeros(n, np.float32)))
        found = wire.parse(wire.Model, proto.SerializeToString())
        assert type(found.graph.initializer[0].raw_data) is kind


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ("Relu(x, x)", r"Relu has 2 inputs, where Relu has 1"),
        ("Relu<axis = 1>(x)", r"Relu has an attribute 'axis', which Relu does not have"),
        ("Softmax<axis = 1.5>(x)", r"'axis' of .*Softmax is a number, where Softmax has an integer"),
        ("Cast(x)", r"Cast has no attribute 'to'"),
        ("LSTM(x)", r"LSTM has 1 input, where LSTM has 3 to 8"),
    ],
)
def test_nodes_are_what_onnx_says_of_their_operators(node, told):
    proto = parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {{ y = {node} }}")
    for model in proto, proto.SerializeToString():
        with pytest.raises(fo.DamagedFile, match=told):
            fo.load_onnx(model)


def test_a_name_that_is_no_text():
    data = parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {{ y = Softmax<axis = 0>(x) }}").SerializeToString()
    for name in b"axis", b"Softmax":
        with pytest.raises(fo.DamagedFile, match="node 0 has a name that is not text"):
            fo.load_onnx(data.replace(name, b"\xff" + name[1:]))


def test_a_network_is_read_without_the_onnx_package(plain, tmp_path):
    (tmp_path / "net.onnx").write_bytes(plain)
    program = (
        "import sys; sys.modules['onnx'] = None; sys.modules['google.protobuf'] = None\n"
        f"import fusedops as fo; print(fo.load_onnx({str(tmp_path / 'net.onnx')!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "Model(x: float32 (2, 200)" in done.stdout, done.stderr
