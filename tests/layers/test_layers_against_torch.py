"""Agreement with PyTorch, on the conventions above all: gate orders, padding, the meaning of each argument."""

import pickle

import numpy as np
import pytest

import fusedops as fo
from fusedops import activations

torch = pytest.importorskip("torch", reason="PyTorch is not installed (its CPU build is enough)")
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


def close(actual, expected):
    expected = expected.detach().numpy()
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


def tensors(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "kernel, options",
    [
        (1, {}),
        (3, dict(padding=1)),
        (3, dict(padding="same", dilation=2)),
        (4, dict(padding="same")),
        (5, dict(stride=2, padding=2)),
        (3, dict(stride=(1, 2), padding=(0, 1), dilation=(2, 1))),
        (3, dict(groups=2, padding=1)),
        (3, dict(groups=6, padding=1)),
    ],
)
def test_conv2d(isa, draw, layout, kernel, options):
    x, w, bias = draw(2, 6, 11, 12), draw(12, 6 // options.get("groups", 1), kernel, kernel), draw(12)
    expected = F.conv2d(*tensors(x, w, bias), **options)
    if layout == "NHWC":
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        expected = expected.permute(0, 2, 3, 1)
    close(fo.conv2d(x, w, bias=bias, **options, layout=layout), expected)


def test_channels_last_tensor(draw):
    x = torch.from_numpy(draw(2, 6, 9, 9)).to(memory_format=torch.channels_last)
    w = torch.from_numpy(draw(8, 6, 3, 3)).to(memory_format=torch.channels_last)
    y = fo.conv2d(x.numpy(), w.numpy(), padding=1)
    close(y, F.conv2d(x, w, padding=1))
    assert torch.from_numpy(y).is_contiguous(memory_format=torch.channels_last)


def test_a_tensor_is_an_array(draw):
    x, w = draw(3, 5), draw(4, 5)
    np.testing.assert_array_equal(fo.linear(torch.from_numpy(x), torch.from_numpy(w)), fo.linear(x, w))


def test_residual_block(isa, draw):
    """activation(batch_norm(conv(x) + bias) + residual), the layers in a row."""
    conv = torch.nn.Conv2d(8, 8, 3, padding=1)
    norm = torch.nn.BatchNorm2d(8).eval()
    parameters = [norm.weight, norm.bias, norm.running_mean, norm.running_var]
    for p in parameters:
        p.data.copy_(torch.from_numpy(draw(8) + 2))
    x = draw(1, 8, 9, 9)
    bn = fo.BatchNorm(*(p.detach().numpy() for p in parameters), norm.eps)
    y = fo.conv_bn_relu(x, conv.weight.detach().numpy(), bn, bias=conv.bias.detach().numpy(), residual=x, padding=1)
    close(y, F.relu(norm(conv(torch.from_numpy(x))) + torch.from_numpy(x)))


@pytest.mark.parametrize(
    "name, activation, function",
    [
        ("relu", "relu", F.relu),
        ("relu6", "relu6", F.relu6),
        ("clip", ("clip", -0.5, 0.75), lambda x: F.hardtanh(x, -0.5, 0.75)),
        ("leaky_relu", "leaky_relu", F.leaky_relu),
        ("leaky_relu_0.2", ("leaky_relu", 0.2), lambda x: F.leaky_relu(x, 0.2)),
        ("elu", "elu", F.elu),
        ("elu_0.5", ("elu", 0.5), lambda x: F.elu(x, 0.5)),
        ("gelu", "gelu", F.gelu),
        ("gelu_tanh", "gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
        ("softplus", "softplus", F.softplus),
        *((name, name, getattr(F, form.torch)) for name, form in activations.FORMS.items() if form.torch),
    ],
)
def test_activations(isa, draw, name, activation, function):
    x, w = 5 * draw(9, 7), draw(37, 7)
    close(fo.linear(x, w, activation=activation), function(F.linear(*tensors(x, w))))


def test_prelu(draw):
    x, w, slopes = draw(2, 5, 6, 6), draw(7, 5, 3, 3), draw(7)
    close(fo.conv2d(x, w, activation=("prelu", slopes)), F.prelu(F.conv2d(*tensors(x, w)), *tensors(slopes)))


@pytest.mark.parametrize(
    "module, cell",
    [
        (torch.nn.RNNCell, fo.RNNCell),
        (torch.nn.LSTMCell, fo.LSTMCell),
        (torch.nn.GRUCell, fo.GRUCell),
    ],
)
def test_cells(isa, draw, module, cell):
    torch.manual_seed(0)
    module = module(10, 21)
    weights = [p.detach().numpy() for p in (module.weight_ih, module.weight_hh, module.bias_ih, module.bias_hh)]
    x, h, c = draw(3, 10), draw(3, 21), draw(3, 21)
    if cell is fo.LSTMCell:
        for y, expected in zip(cell(*weights)(x, h, c), module(torch.from_numpy(x), tuple(tensors(h, c)))):
            close(y, expected)
    else:
        close(cell(*weights)(x, h), module(*tensors(x, h)))


@pytest.mark.parametrize(
    "options",
    [
        dict(kernel_size=3, padding=1),
        dict(kernel_size=4, padding="same", bias=False),
        dict(kernel_size=(3, 5), stride=(2, 1), padding=(0, 2), dilation=(1, 2), groups=2),
        dict(kernel_size=3, padding="valid", groups=6),
    ],
)
def test_a_module_as_a_layer(draw, options):
    torch.manual_seed(0)
    module, x = torch.nn.Conv2d(6, 12, **options), draw(2, 6, 11, 12)
    layer = fo.from_torch(module)
    close(layer(x), module(torch.from_numpy(x)))
    assert isinstance(layer, fo.Conv2d)
    module = torch.nn.Linear(5, 3, bias="bias" not in options)
    x = draw(4, 5)
    close(fo.from_torch(module)(x), module(torch.from_numpy(x)))


@pytest.mark.parametrize(
    "module, error, fix",
    [
        (torch.nn.LSTM(4, 3).double(), TypeError, r"torch.float64.*pass module.float\(\)"),
        (
            torch.nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"),
            ValueError,
            r"reflect.*from_torch\(module, example_inputs\)",
        ),
        (torch.nn.Softmax(1), TypeError, r"Softmax.*Conv2d.*Linear.*from_torch\(module, example_inputs\)"),
    ],
    ids=lambda m: type(m).__name__ if isinstance(m, torch.nn.Module) else "",
)
def test_a_module_that_has_no_layer(module, error, fix):
    with pytest.raises(error, match=fix):
        fo.from_torch(module)


@pytest.mark.parametrize("option", ["fold", "fuse"])
def test_options_of_networks_are_not_for_a_layer(option):
    with pytest.raises(TypeError, match="a single layer has nothing to fold or fuse"):
        fo.from_torch(torch.nn.Linear(4, 3), **{option: False})


@pytest.mark.parametrize(
    "name, options",
    [
        ("Conv1d", dict(stride=2, padding=1, dilation=2, groups=2)),
        ("Conv1d", dict(padding="same", bias=False)),
        ("ConvTranspose1d", dict(stride=3, padding=1, output_padding=2, groups=2)),
        ("ConvTranspose2d", dict(stride=(2, 1), padding=(1, 0), output_padding=(1, 0), dilation=(1, 2))),
    ],
)
def test_single_convolutions(draw, name, options):
    module = getattr(torch.nn, name)(6, 12, 3, **options)
    x = draw(2, 6, 11, 12) if "2d" in name else draw(2, 6, 23)
    made = fo.from_torch(module)
    assert type(made) is getattr(fo, name)
    close(made(x), module(torch.from_numpy(x)))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    "options", [dict(), dict(bias=False), dict(kdim=10, vdim=8)], ids=["plain", "no_bias", "other_keys"]
)
def test_multihead_attention(draw, options, batch_first):
    module = torch.nn.MultiheadAttention(24, 4, **options, batch_first=batch_first).eval()
    layer = fo.from_torch(module)
    of_k, of_v = options.get("kdim", 24), options.get("vdim", 24)
    x, k, v = (draw(*((3, t, c) if batch_first else (t, 3, c))) for t, c in ((5, 24), (7, of_k), (7, of_v)))
    left_out = np.arange(35).reshape(5, 7) % 3 == 1
    expected = module(*tensors(x, k, v), attn_mask=torch.from_numpy(left_out), need_weights=False)[0]
    close(layer(x, k, v, mask=~left_out), expected)
    out = np.full(x.shape, 7, np.float32)
    assert layer(x, k, v, mask=~left_out, out=out) is out
    close(out, expected)
    if not options.get("kdim"):
        close(layer(x), module(*tensors(x, x, x))[0])
        close(layer(x[0]), module(*tensors(x[0], x[0], x[0]))[0])
    copied = pickle.loads(pickle.dumps(layer))
    np.testing.assert_array_equal(copied(x, k, v), layer(x, k, v))


def test_multihead_attention_refuses(draw):
    with pytest.raises(ValueError, match="add_bias_kv"):
        fo.from_torch(torch.nn.MultiheadAttention(8, 2, add_bias_kv=True))
    with pytest.raises(ValueError, match="multiple of heads=3"):
        fo.MultiheadAttention(*draw(4, 8, 8), heads=3)
    with pytest.raises(ValueError, match="reflect"):
        fo.from_torch(torch.nn.Conv1d(4, 8, 3, padding=1, padding_mode="reflect"))
