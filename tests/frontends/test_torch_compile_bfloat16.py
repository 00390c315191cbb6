"""Modules and tensors of bfloat16 in torch.compile(backend="fusedops")."""

import pytest

import fusedops as fo

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    """A layer of a transformer after an embedding."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(50, 64), nn.LayerNorm(64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

    def forward(self, i):
        x = self.table(i)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed(self.norm(x))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.GRU(16, 32, batch_first=True), nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.layer(x)[0])


def images():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(5)
    )


MODULES = {
    "transformer": (Block, lambda: torch.randint(0, 50, (2, 10))),
    "recurrent": (Recurrent, lambda: torch.randn(2, 7, 16)),
    "images": (images, lambda: torch.randn(2, 3, 12, 12).contiguous(memory_format=torch.channels_last)),
}


def _error(y, wanted):
    return ((y.float() - wanted).abs().max() / wanted.abs().max()).item()


@pytest.mark.parametrize("form", ["module", "autocast"])
@pytest.mark.parametrize("name", MODULES)
def test_all_of_a_module_runs_here(name, form):
    """As near to what float32 gives as PyTorch's own bfloat16 is."""
    make, inputs = MODULES[name]
    module, x = make().eval(), inputs()
    module(x)
    x = x.to(BF16) if x.is_floating_point() else x
    wanted = module(x.float() if x.is_floating_point() else x).detach()
    module = module.to(BF16) if form == "module" else module
    compiled = torch.compile(module, backend="fusedops")
    with torch.no_grad(), torch.autocast("cpu", dtype=BF16, enabled=form == "autocast"):
        y, theirs = compiled(x), module(x)
    assert (y.dtype, y.shape, y.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
    assert _error(y, wanted) < max(2 * _error(theirs, wanted), 0.01)
    graph = fo.torch_report(compiled).graphs[0]
    assert not graph.eager and [p.model._options.precision for p in graph.parts] == ["bfloat16"]


@pytest.mark.parametrize("options, precision", [(None, "bfloat16"), ({"precision": "float32"}, "float32")])
def test_products_are_of_bfloat16_unless_told_otherwise(options, precision):
    layer = nn.Linear(64, 64).to(BF16)
    compiled = torch.compile(lambda x: layer(x) * 2, backend="fusedops", options=options)
    with torch.inference_mode():
        y = compiled(torch.randn(4, 64, dtype=BF16))
    assert y.dtype == BF16
    assert fo.torch_report(compiled).graphs[0].parts[0].model._options.precision == precision


def test_products_of_two_types_stay_float32():
    first, second = nn.Linear(64, 64).to(BF16), nn.Linear(64, 64)
    compiled = torch.compile(lambda x: second(first(x).float()), backend="fusedops")
    x = torch.randn(4, 64, dtype=BF16)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), second(first(x).float()), rtol=0.02, atol=0.02)
    assert fo.torch_report(compiled).graphs[0].parts[0].model._options.precision == "float32"


def test_results_in_another_order_of_axes():
    layer = nn.Conv2d(3, 4, 3).to(BF16)
    x = torch.randn(1, 3, 8, 8).to(BF16, memory_format=torch.channels_last)
    compiled = torch.compile(lambda x: (layer(x).relu(), x.argmax(1)), backend="fusedops")
    with torch.inference_mode():
        for y, theirs in zip(compiled(x), (layer(x).relu(), x.argmax(1))):
            assert y.stride() == theirs.stride()
            torch.testing.assert_close(y, theirs, rtol=0.02, atol=0.02)
