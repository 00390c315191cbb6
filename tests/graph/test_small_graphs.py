"""Small graphs, of a node or a few, against NumPy: scalars, views, empty arrays, and what is refused."""

import itertools

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx.parser import parse_model

import fusedops as fo
from fusedops.graph.ir.graph import Value
from fusedops.graph.runtime.arguments import checked
from fusedops.graph.runtime.session import PLANS

FORMS = list(itertools.product((True, False), repeat=2))


def networks(text, opset=17):
    """The network as fold and fuse make it, each switched on and off."""
    proto = parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> net {text}')
    return [fo.load_onnx(proto, fold=fold, fuse=fuse) for fold, fuse in FORMS]


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


# ---- scalars --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 2, -1, -3])
def test_gather_of_one_index_drops_the_axis(x, index):
    for net in networks(f"(float[n, 3] x) => (float[n] y) <int64 i = {{{index}}}> {{ y = Gather<axis = 1>(x, i) }}"):
        np.testing.assert_array_equal(net(x), x[:, index])


@pytest.mark.parametrize(
    "op, function", [("Add", np.add), ("Mul", np.multiply), ("Max", np.maximum), ("Pow", np.power)]
)
def test_arithmetic_of_scalars(x, op, function):
    text = f"(float[n, 3] x) => (float y) <float k = {{2}}> {{ s = ReduceSum<keepdims = 0>(x)  y = {op}(s, k) }}"
    for net in networks(text):
        y = net(x)
        assert y.shape == ()
        np.testing.assert_allclose(y, function(x.sum(), np.float32(2)), rtol=1e-6)


def test_a_constant_scalar_as_output(x):
    for net in networks("(float[n, 3] x) => (float[n, 3] y, float z) <float k = {2}> { y = Relu(x)  z = Identity(k) }"):
        assert net(x)[1].shape == () and net(x)[1] == 2


# ---- views ----------------------------------------------------------------------------------------------------------

VIEWS = {
    "permuted": ("Transpose<perm = [0, 2, 1, 3]>(h)", lambda x: x.transpose(0, 2, 1, 3)),
    "batch_last": ("Transpose<perm = [3, 1, 2, 0]>(h)", lambda x: x.transpose(3, 1, 2, 0)),
    "columns": ("Transpose<perm = [0, 3, 2, 1]>(h)", lambda x: x.transpose(0, 3, 2, 1)),
    "signal": ("Transpose<perm = [0, 2, 1]>(f)", lambda x: x.reshape(x.shape[0], x.shape[1], -1).transpose(0, 2, 1)),
    "reversed_batch": ("Slice(h, last, before, batch, back)", lambda x: x[::-1]),
    "reversed_channels": ("Slice(h, last, before, channels, back)", lambda x: x[:, ::-1]),
    "reversed_rows": ("Slice(h, last, before, rows, back)", lambda x: x[:, :, ::-1]),
    "every_second_row": ("Slice(h, batch, end, rows, rows)", lambda x: x[:, :, ::2]),
    "repeated": ("Expand(o, five)", lambda x: np.broadcast_to(x[:1], (5, *x.shape[1:]))),
}


def batch_norm(x, scale, shift):
    each = (-1, *[1] * (x.ndim - 2))
    return x / np.sqrt(1 + 1e-5) * scale.reshape(each) + shift.reshape(each)


def instance_norm(x, scale, shift):
    axes = tuple(range(2, x.ndim))
    return batch_norm(
        (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5) * np.sqrt(1 + 1e-5), scale, shift
    )


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("norm", [batch_norm, instance_norm])
# an image with its columns and one with its channels as neighbors
@pytest.mark.parametrize("before", ["Relu(x)", "Conv(x, eye)"])
def test_norms_of_views(view, norm, before, draw):
    text, function = VIEWS[view]
    x = np.abs(draw(3, 4, 5, 6))
    v = function(x)
    c = v.shape[1]
    scale, shift = 1 + np.arange(c, dtype=np.float32), np.arange(c, dtype=np.float32)
    op, more = ("BatchNormalization", ", zeros, ones") if norm is batch_norm else ("InstanceNormalization", "")
    constants = {"scale": scale, "shift": shift, "zeros": 0 * scale, "ones": 0 * scale + 1}
    vectors = ", ".join(f"float[{c}] {k} = {{{', '.join(map(str, a))}}}" for k, a in constants.items())
    eye = ", ".join(map(str, np.eye(4).ravel()))
    for net in networks(f"""(float[n, 4, 5, 6] x) => (float[{", ".join("abcd"[: v.ndim])}] y)
            <{vectors}, float[4, 4, 1, 1] eye = {{{eye}}}, int64[1] batch = {{0}}, int64[1] channels = {{1}},
             int64[1] rows = {{2}}, int64[1] last = {{-1}}, int64[1] back = {{-1}}, int64[1] before = {{-999}},
             int64[1] end = {{999}}, int64[3] flat = {{0, 0, -1}}, int64[4] five = {{5, 4, 5, 6}}>
            {{ h = {before}  f = Reshape(h, flat)  o = Slice(h, batch, channels)  v = {text}
               z = {op}(v, scale, shift{more})  y = Relu(z) }}"""):
        np.testing.assert_allclose(net(x), np.maximum(norm(v, scale, shift), 0), rtol=1e-4, atol=1e-4)


# ---- blocks ---------------------------------------------------------------------------------------------------------


def test_a_squeeze_of_an_open_batch(draw):
    """The number of its axes depends on the batch: there is one less where the batch is one."""
    x, w = draw(3, 1, 3, 4), np.float32([[0.5, 0.25]] * 4)
    for net in networks("""(float[n, 1, 3, 4] x) => (float y) <float[4, 2] w =
        {0.5, 0.25, 0.5, 0.25, 0.5, 0.25, 0.5, 0.25}> { s = Squeeze(x)  y = MatMul(s, w) }"""):
        for n in (1, 3):
            np.testing.assert_allclose(net(x[:n]), np.squeeze(x[:n]) @ w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pads", [[0, 0, 2, 2], [2, 2, 0, 0], [0, 2, 2, 0], [1, 1, 1, 1]])
def test_blocks_with_padding_on_one_side(pads, draw):
    """A kernel that fits the image thanks to its padding alone."""
    x = draw(2, 2, 7, 7)
    fused, *others = networks(f"""(float[n, 2, 7, 7] x) => (float[n, 2, a, b] y)
        <float[1] half = {{0.5}}, int64[4] depthwise = {{2, 1, 9, 9}}, int64[4] pointwise = {{2, 2, 1, 1}}>
        {{ v = Expand(half, depthwise)  w = Expand(half, pointwise)
           d = Conv<group = 2, pads = {pads}>(x, v)  y = Conv(d, w) }}""")
    assert fused.explain().refusals and fused(x).shape == (2, 2, 1, 1)
    for net in others:
        np.testing.assert_allclose(fused(x), net(x), rtol=1e-4, atol=1e-4)


def test_a_convolution_whose_name_is_that_of_a_block(draw):
    """Nodes may have any names; the layers of nodes and of blocks are kept apart."""
    proto = parse_model("""<ir_version: 8, opset_import: ["" : 17]> net (float[n, 2, 9, 9] x) => (float[n, 2, a, b] z)
        <float[1] half = {0.5}, int64[4] dense = {2, 2, 3, 3},
         int64[4] depthwise = {2, 1, 3, 3}, int64[4] pointwise = {2, 2, 1, 1}>
        { u = Expand(half, dense)  v = Expand(half, depthwise)  w = Expand(half, pointwise)
          c = Conv<pads = [1, 1, 1, 1]>(x, u)  d = Conv<group = 2, pads = [1, 1, 1, 1]>(c, v)  y = Conv(d, w)
          z = Conv<pads = [1, 1, 1, 1]>(y, u) }""")
    for node in proto.graph.node:
        node.name = {"c": "y.block"}.get(node.output[0], node.output[0])
    fused, plain, x = fo.load_onnx(proto), fo.load_onnx(proto, fuse=False), draw(1, 2, 9, 9)
    np.testing.assert_allclose(fused(x), plain(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "slopes, shape", [([0.25], (2, 5, 3)), ([0.25, 0.5, 2], (2, 3, 4)), ([0.25, 0.5, 2], (3, 2, 3)), ([0.25], (3, 2))]
)
def test_slopes_beside_open_dimensions(slopes, shape, draw):
    """One slope for all, for each channel, or for each point of an axis whose length is open: here the batch, made the
    second."""
    x, s = draw(*shape), np.float32(slopes)
    axes = "".join(f", {c}" for c in "ncd"[: len(shape)])[2:]
    swap = shape[0] == len(slopes)
    view = "Transpose<perm = [1, 0, 2]>(x)" if swap else "Identity(x)"
    text = f"float[{len(slopes)}{', 1' * (len(slopes) > 1)}] s = {{{', '.join(map(str, slopes))}}}"
    each, v = s.reshape(-1, 1) if len(slopes) > 1 else s, x.swapaxes(0, 1) if swap else x
    for net in networks(f"(float[{axes}] x) => (float[{axes}] y) <{text}> {{ v = {view}  y = PRelu(v, s) }}"):
        np.testing.assert_array_equal(net(x), np.where(v > 0, v, each * v))


# ---- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["int64 i = {3}", "int64 i = {-4}", "int64[2] i = {0, 3}", "int64[2] i = {-4, 1}"])
def test_gather_outside(x, index):
    for net in networks(f"(float[n, 3] x) => (float[n] y) <{index}> {{ y = Gather<axis = 1>(x, i) }}"):
        with pytest.raises(ValueError, match="axis of 3"):
            net(x)


@pytest.mark.parametrize("node", ["Gather(x, i)", "GatherElements(x, r)", "GatherND(x, r)"])
@pytest.mark.parametrize("index", [6, -7])
def test_gather_outside_when_it_runs(draw, node, index):
    """As where the index is known before; the network is as good as before."""
    for net in networks(
        f"(float[6, 3] x, int64[n] i) => (float[a, b] y) <int64[2] s = {{1, -1}}> {{ r = Reshape(i, s)  y = {node} }}"
    ):
        x = draw(6, 3)
        for _ in range(2):
            with pytest.raises(ValueError, match=node[: node.index("(")]):
                net(x, np.array([index]))
        assert np.isin(net(x, np.array([5])), x[5]).all()


@pytest.mark.parametrize("given", ["", ", int64[1] i"])
def test_gather_from_an_empty_axis(x, given):
    """Nothing is read from past the array; no indices are as many as there are elements."""
    text = f"(float[n, 3] x{given}) => (float[1, 3] y)" + " <int64[1] i = {0}>" * (not given) + " { y = Gather(x, i) }"
    indices = [np.zeros(1, np.int64)] * bool(given)
    for net in networks(text):
        np.testing.assert_array_equal(net(x, *indices), x[:1])
        with pytest.raises(ValueError, match="axis of 0"):
            net(x[:0], *indices)
    for net in networks("(float[n, 3] x, int64[k] i) => (float[k, 3] y) { y = Gather(x, i) }"):
        assert net(x[:0], np.zeros(0, np.int64)).shape == (0, 3)


DAMAGED = {
    "Unsqueeze(x, i)": [[0, 0], [0, -4], [4], [-5]],
    "Squeeze(x, i)": [[0], [1, 1], [2]],
    "Flatten<axis = 3>(x)": [[]],
    "ReduceSum(x, i)": [[2], [-3], [0, -2]],
    "Reshape(x, i)": [[-2, -3], [-1, -1, -1], [-1, 4], [6, 0, 0]],
    "Transpose<perm = [0, 0]>(x)": [[]],
    "Transpose<perm = [0]>(x)": [[]],
    "Transpose<perm = [0, 1, 2]>(x)": [[]],
    "Softmax<axis = 2>(x)": [[]],
    "Pad(x, i)": [[-2, 0, -1, 0], [-3, 0, 4, 0]],
    'Pad<mode = "edge">(x, i)': [[-2, 0, 1, 0]],
    "MaxPool<kernel_shape = [1]>(x)": [[]],
    "Concat<axis = 2>(x, x)": [[]],
    "Gather<axis = -3>(x, i)": [[0]],
}


@pytest.mark.parametrize("node, values", [(node, values) for node, each in DAMAGED.items() for values in each])
def test_damaged_nodes(x, node, values):
    """Where ONNX has no result, neither a pass nor a plan makes one up."""
    proto = parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> net (float[2, 3] x) => (float y)
        <int64[{len(values)}] i = {{{", ".join(map(str, values))}}}> {{ h = {node}  y = Relu(h) }}""")
    for fold, fuse in FORMS:
        with pytest.raises(ValueError, match=r"\w+ '.*' does not fit its inputs of shape \(2, 3\)"):
            fo.load_onnx(proto, fold=fold, fuse=fuse)


@pytest.mark.parametrize(
    "sizes",
    [
        "a, b = Split(x, two)",
        "a, b = Split(x, four)",
        "a, b = Split(x, negative)",
        "a, b = Split(x, three)",
        "a, b, c, d = Split<num_outputs = 4>(x)",
        "a, b = Split<num_outputs = 3>(x)",
    ],
)
def test_split_into_parts_that_are_not_the_whole(sizes):
    proto = parse_model(f"""<ir_version: 8, opset_import: ["" : 18]> net (float[5] x) => (float[n] y)
        <int64[2] two = {{2, 2}}, int64[2] four = {{4, 4}}, int64[2] negative = {{6, -1}}, int64[3] three = {{1, 2, 2}}>
        {{ {sizes}  y = Relu(b) }}""")
    for fold, fuse in FORMS:
        with pytest.raises(ValueError, match="axis of 5 cannot be split"):
            fo.load_onnx(proto, fold=fold, fuse=fuse)


# ---- recurrent nodes ------------------------------------------------------------------------------------------------


def test_a_clip_that_the_kernel_does_not_have(draw):
    """A clip of 0 leaves sigmoid(0) and tanh(0)."""
    for net in networks("""(float[t, n, 2] x) => (float[t, 1, n, 1] y)
            <float[1, 4, 2] w = {1, 1, 1, 1, 1, 1, 1, 1}, float[1, 4, 1] r = {1, 1, 1, 1}>
            { y = LSTM<hidden_size = 1, clip = 0.0>(x, w, r) }"""):
        np.testing.assert_array_equal(net(draw(3, 2, 2)), np.zeros((3, 1, 2, 1)))


@pytest.mark.parametrize(
    "x, w, r",
    [
        ((3, 2, 5, 2), (1, 4, 2), (1, 4, 1)),
        ((3, 2, 3), (1, 4, 2), (1, 4, 1)),
        ((3, 2, 2), (1, 3, 2), (1, 3, 1)),
        ((3, 2, 2), (1, 4, 2), (1, 4, 2)),
        ((3, 2, 2), (2, 4, 2), (1, 4, 1)),
    ],
)
def test_weights_that_do_not_fit(x, w, r):
    for net in networks(
        "(float[a, b, c, d] x, float[e, f, g] w, float[h, i, j] r) => (float y) { y = LSTM<hidden_size = 1>(x, w, "
        "r) }".replace("[a, b, c, d]", str(list(x)))
    ):
        with pytest.raises(ValueError, match="do not fit"):
            net(*(np.ones(shape, np.float32) for shape in (x, w, r)))


# ---- calls ----------------------------------------------------------------------------------------------------------


def test_inputs_at_odd_addresses(draw):
    """As where a file is mapped: kernels get an aligned copy."""
    x = draw(2, 3)
    memory = np.zeros(x.nbytes + 1, np.uint8)
    odd = memory[1:].view(np.float32).reshape(x.shape)
    odd[:] = x
    assert not odd.flags.aligned and checked(odd, Value("x", None, x.dtype)).flags.aligned
    for net in networks("(float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }"):
        np.testing.assert_array_equal(net(odd), np.maximum(x, 0))


def test_the_plan_in_use_stays(x):
    net = networks("(float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }")[0]
    first = net._plan(x)[0]
    for n in range(3 * PLANS):
        net(np.ones((n + 3, 3), np.float32))
        assert net._plan(x)[0] is first
    assert PLANS // 2 <= len(net._session._plans) <= PLANS


def test_plans_leave_by_halves():
    """Those that were not used for longest; a batch that was used again is among those that stay."""
    net = networks("(float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }")[0]
    plans = [net._plan(np.ones((n, 3), np.float32))[0] for n in range(1, PLANS + 1)]
    assert len(net._session._plans) == PLANS and net._plan(np.ones((1, 3), np.float32))[0] is plans[0]
    plans.append(net._plan(np.ones((PLANS + 1, 3), np.float32))[0])
    kept = [plan for plan, *_ in net._session._plans.values()]
    assert {id(p) for p in kept} == {id(p) for p in (plans[0], *plans[PLANS // 2 + 1 :])}
