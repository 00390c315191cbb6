"""Modules of float16 and bfloat16, and modules under autocast, as networks and as layers."""

import numpy as np
import pytest

import fusedops as fo

torch = pytest.importorskip("torch", reason="PyTorch is not installed (its CPU build is enough)")
from torch import nn

from fusedops.graph.ir.dtypes import BY_NAME
from torch_families import FAMILIES

BF16, F16 = torch.bfloat16, torch.float16
TYPES = {"bfloat16": BF16, "float16": F16}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def images():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(144, 5)
    ).eval()


def array(tensor):
    return tensor.detach().float().numpy()


def close(y, right, kind):
    expected = array(right)
    np.testing.assert_allclose(y, expected, rtol=0, atol=BY_NAME[kind].tolerance * np.abs(expected).max())


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "graph"])  # which mixes types, and fails itself
def test_families(kind, name):
    """from_torch compares each with its module, in other sizes, too."""
    make, inputs, _ = FAMILIES[name]
    given = [x.to(TYPES[kind]) if x.dtype.is_floating_point else x for x in inputs()]
    net = fo.from_torch(make().eval().to(TYPES[kind]), tuple(given))
    floats = [v.file_type for v in (*net.inputs, *net.outputs) if v.dtype.kind == "f"]
    assert floats and set(floats) == {kind}


def test_inputs_and_outputs_of_bfloat16_are_float32():
    module, x = images().to(BF16), torch.randn(2, 3, 8, 8).to(BF16)
    net = fo.from_torch(module, x)
    assert [(v.dtype, v.file_type) for v in (*net.inputs, *net.outputs)] == [(np.float32, "bfloat16")] * 2
    y = net(array(x))
    assert y.dtype == np.float32
    close(y, module(x), "bfloat16")


def test_a_module_of_bfloat16_multiplies_in_it_unless_told():
    linear, x = nn.Linear(2048, 2048), torch.randn(64, 2048)
    small, given = linear.to(BF16), x.to(BF16)
    rounds = fo.Linear(array(small.weight), array(small.bias), precision="bfloat16")(array(given))
    wide = fo.Linear(array(small.weight), array(small.bias))(array(given))
    nets = {p: fo.from_torch(small, given, precision=p) for p in (None, "bfloat16", "float32")}
    np.testing.assert_allclose(nets["float32"](array(given)), wide, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(nets[None](array(given)), nets["bfloat16"](array(given)))
    assert any(np.array_equal(nets[None](array(given)), y) for y in (rounds, wide))  # as is predicted to be faster
    assert fo.from_torch(linear.float(), x)._options.precision == "float32"


def test_a_saved_network_keeps_the_type(tmp_path):
    x = torch.randn(2, 3, 8, 8).to(BF16)
    net = fo.from_torch(images().to(BF16), x)
    net.save(tmp_path / "net.fo")
    again = fo.load(tmp_path / "net.fo")
    assert [v.file_type for v in (*again.inputs, *again.outputs)] == ["bfloat16"] * 2
    np.testing.assert_array_equal(again(array(x)), net(array(x)))


def test_an_exported_program():
    x = torch.randn(2, 3, 8, 8).to(BF16)
    net = fo.from_torch(torch.export.export(images().to(BF16), (x,)))
    assert net.inputs[0].file_type == "bfloat16"


class Inside(nn.Module):
    """Computes in a narrower type, and gives float32."""

    def __init__(self, module, dtype):
        super().__init__()
        self.module, self.dtype = module, dtype

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype):
            return self.module(x).float()


@pytest.mark.parametrize("kind", TYPES)
def test_autocast_inside(kind):
    module, x = Inside(images(), TYPES[kind]), torch.randn(2, 3, 8, 8)
    net = fo.from_torch(module, x)
    assert net.outputs[0].file_type == "float32"
    close(net(x.numpy()), module(x), kind)


@pytest.mark.parametrize("kind", TYPES)
def test_autocast_around(kind):
    module, x = images(), torch.randn(2, 3, 8, 8)
    with torch.autocast("cpu", dtype=TYPES[kind]):
        net, right = fo.from_torch(module, x), module(x)
    assert net.inputs[0].file_type == "float32" and net.outputs[0].file_type == kind
    close(net(x.numpy()), right, kind)


LAYERS = {
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3), (2, 4, 9)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, bias=False), (2, 4, 9, 8)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 6, 3), (2, 4, 9)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 6, 3), (2, 4, 9, 8)),
    "Linear": (lambda: nn.Linear(9, 7), (3, 9)),
    "LSTM": (lambda: nn.LSTM(5, 6, num_layers=2), (4, 2, 5)),
    "GRUCell": (lambda: nn.GRUCell(5, 5), (2, 5)),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(8, 2), (4, 2, 8)),
}
WIDENED = {"ConvTranspose1d", "ConvTranspose2d", "MultiheadAttention"}  # whose weights are float32 always


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(kind, name):
    """float16 weights stay so where a layer takes them; a layer of bfloat16 multiplies in it."""
    make, shape = LAYERS[name]
    module, x = make().to(TYPES[kind]), torch.randn(*shape).to(TYPES[kind])
    layer = fo.from_torch(module)
    given = (x,) * {"MultiheadAttention": 3, "GRUCell": 2}.get(name, 1)
    y, right = layer(*map(array, given)), module(*given)
    first = y[0] if isinstance(y, tuple) else y
    close(first, right[0] if isinstance(right, tuple) else right, kind)
    if kind == "bfloat16":
        assert "precision='bfloat16'" in repr(layer)
    else:
        assert ("float16 weights" in repr(layer)) == (name not in WIDENED)


def test_a_layer_of_bfloat16_in_float32():
    assert "bfloat16" not in repr(fo.from_torch(nn.Linear(4, 3).to(BF16), precision="float32"))
