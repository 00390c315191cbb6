"""Recurrent layers in torch.compile(backend="fusedops"): whole, in all lengths, and for this backend alone."""

import threading

import numpy as np
import pytest

import fusedops as fo

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn
from torch._dynamo.callback import callback_handler
from torch._dynamo.utils import counters

from fusedops.graph.frontends.torch import compile_recurrent, rnn_ops
from fusedops.graph.frontends.torch.compile_recurrent import register


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


class Tagger(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layer = kind(6, 8, batch_first=True, **options)
        self.head = nn.Linear(8 * (2 if options.get("bidirectional") else 1), 3)

    def forward(self, x, *states):
        y, states = self.layer(x, *states)
        return self.head(y.relu()), states


KINDS = {
    "lstm": (nn.LSTM, {}),
    "lstm of two layers, both ways": (nn.LSTM, dict(num_layers=2, bidirectional=True, dropout=0.3)),
    "gru without bias": (nn.GRU, dict(bias=False)),
    "rnn of relu": (nn.RNN, dict(nonlinearity="relu", bidirectional=True)),
}


@pytest.mark.parametrize("name", KINDS)
def test_layers_are_whole_in_all_lengths(name):
    kind, options = KINDS[name]
    module = Tagger(kind, **options).eval()
    compiled = torch.compile(module, backend="fusedops")
    with torch.no_grad():
        for batch, steps in ((2, 5), (2, 7), (2, 40), (2, 3)):
            x = torch.randn(batch, steps, 6)
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-6)
    report = fo.torch_report(compiled)
    assert counters["stats"]["unique_graphs"] == len(report.graphs) == 2  # of one length and of all
    for graph in report.graphs:
        assert not graph.eager and [p.operators[0] for p in graph.parts] == [f"{_operator(kind, options)}"]
    assert not torch._dynamo.config.allow_rnn


def _operator(kind, options):
    return f"rnn_{options.get('nonlinearity', 'tanh')}" if kind is nn.RNN else kind.__name__.lower()


def test_states_go_in_and_out():
    module = Tagger(nn.LSTM).eval()
    compiled = torch.compile(module, backend="fusedops")
    with torch.inference_mode():
        x, states = torch.randn(2, 5, 6), (torch.randn(1, 2, 8), torch.randn(1, 2, 8))
        torch.testing.assert_close(compiled(x, states), module(x, states), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, dict(bidirectional=True, num_layers=2), dict(bias=False)])
def test_projections(options):
    module = Tagger(nn.LSTM, **options)
    module.layer = nn.LSTM(6, 16, batch_first=True, proj_size=8, **options)
    module.eval()
    compiled = torch.compile(module, backend="fusedops")
    rows = (1 + options.get("bidirectional", False)) * options.get("num_layers", 1)
    with torch.no_grad():
        for steps in (5, 7):
            x, states = torch.randn(2, steps, 6), (torch.randn(rows, 2, 8), torch.randn(rows, 2, 16))
            for given in ((x,), (x, states)):
                torch.testing.assert_close(compiled(*given), module(*given), rtol=1e-5, atol=1e-6)
    for graph in fo.torch_report(compiled).graphs:
        assert not graph.eager and [p.operators[0] for p in graph.parts] == ["lstm"]
    model = fo.from_torch(module, (x, states))
    assert not model.explain().numpy
    np.testing.assert_allclose(
        model(x.numpy(), *(s.numpy() for s in states))[0], module(x, states)[0].detach(), 1e-5, 1e-6
    )


def test_packed_sequences_are_right():
    x = torch.randn(2, 5, 6)

    def packed(x):
        rows = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(plain(rows)[0], batch_first=True)[0]

    plain = nn.LSTM(6, 8, batch_first=True)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(packed, backend="fusedops")(x), packed(x), rtol=1e-5, atol=1e-6)


def test_other_backends_and_gradients_keep_pytorchs_layers():
    module, x = Tagger(nn.GRU), torch.randn(2, 5, 6)
    with torch.no_grad():
        torch.compile(module.eval(), backend="fusedops")(x)
    torch._dynamo.reset()
    graphs = []
    other = torch.compile(module, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    with torch.no_grad():
        torch.testing.assert_close(other(x), module(x))
    assert not any("fusedops" in str(n.target) for g in graphs for n in g.graph.nodes)
    torch._dynamo.reset()
    compiled = torch.compile(module.train(), backend="fusedops")
    compiled(x)[0].sum().backward()
    assert module.layer.weight_ih_l0.grad.abs().sum() > 0


def test_torch_jit_still_takes_recurrent_layers():
    module, x = nn.Sequential(nn.LSTM(4, 4)).eval(), torch.randn(3, 2, 4)
    with torch.no_grad():
        torch.compile(module, backend="fusedops")(x)
        scripted = torch.jit.script(module)
        torch.testing.assert_close(scripted(x), module(x))
    assert "aten::lstm" in str(scripted.inlined_graph)


def test_an_export_in_another_thread_leaves_layers_whole():
    module, x = Tagger(nn.GRU).eval(), torch.randn(2, 5, 6)
    started, done = threading.Event(), threading.Event()

    def export():
        with rnn_ops.whole(torch):
            started.set()
            done.wait(60)

    thread = threading.Thread(target=export)
    thread.start()
    started.wait(60)
    register.cache_clear()
    compiled = torch.compile(module, backend=fo.graph.torch_backend)
    done.set()
    thread.join()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-6)
    (graph,) = fo.torch_report(compiled).graphs
    assert not graph.eager and [p.operators[0] for p in graph.parts] == ["gru"]


def test_layers_are_left_to_pytorch_where_dynamo_is_another(monkeypatch):
    found = callback_handler.install_callbacks
    monkeypatch.setattr(compile_recurrent, "callback", None)
    register.cache_clear()
    register(fo.graph.torch_backend)
    assert callback_handler.install_callbacks is found
