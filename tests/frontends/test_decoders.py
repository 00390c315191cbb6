"""Decoders that PyTorch exports, as ONNX or as programs of its own, with masks and caches spelled out: they take the
road of those with an operator of their own."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
import fusedops as fo
from fusedops.graph.planner import plan
from torch_decoder import HEAD, KV_HEADS, WORDS, Llama, exported, program

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module", params=["torchscript", "dynamo", "torch.export"])
def both(request):
    """(module, network)"""
    torch.manual_seed(0)
    module = Llama().eval()
    if request.param == "torch.export":
        return module, fo.from_torch(program(module))
    if request.param == "dynamo":
        pytest.importorskip("onnxscript")
    return module, fo.load_onnx(exported(module, request.param == "dynamo"))


def no_past(batch):
    return [torch.zeros(batch, KV_HEADS, 0, HEAD)] * 4


def written(module, ids, mask, past):
    at = past[0].shape[2]
    with torch.no_grad():
        positions = torch.arange(at, at + ids.shape[1])[None].expand(len(ids), -1)
        return module(torch.from_numpy(ids), torch.from_numpy(mask), positions, *past)


@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_word_by_word(both, batch, monkeypatch):
    module, net = both
    lowered, lower = [], plan._lower
    monkeypatch.setattr(plan, "_lower", lambda builder, node: lowered.append(node.name) or lower(builder, node))
    decoder, past = net.decoder(capacity=4), no_past(batch)
    for i, new in enumerate([5, *[1] * 40]):
        ids, mask = RNG.integers(0, WORDS, (batch, new)), np.ones((batch, 5 + i), np.int64)
        mask[-1, :2] = batch == 1  # the second text begins later
        y, *past = written(module, ids, mask, past)
        np.testing.assert_allclose(decoder(ids, attention_mask=mask), y, rtol=1e-4, atol=1e-4)
        if i == 2:
            lowered.clear()
    assert lowered == []


def test_what_a_word_costs(both):
    """Attention reads the keys and values of groups where they are, scaled with the scores; norms are one step each."""
    decoder = both[1].decoder(capacity=64)
    for new in (5, 1, 1):
        decoder(RNG.integers(0, WORDS, (1, new)))
    steps = max(both[1]._decoding._plans.values(), key=lambda found: found[0].used)[0].steps
    kinds = [step.kind for step in steps]
    assert (
        kinds.count("attention") == 2 and kinds.count("norm") == 4 and "softmax" not in kinds and "matmul" not in kinds
    )
    for step in steps:
        assert step.kind == "attention" or all(
            np.prod(t.shape) < 7 * HEAD or t.shape[2] != 7 for t in step.writes if len(t.shape) > 2
        )


def test_the_whole_text_at_once(both):
    module, net = both
    text = RNG.integers(0, WORDS, (1, 12))
    y, *_ = written(module, text, np.ones((1, 12), np.int64), no_past(1))
    for parts in ([12], [4, 1, 7], [1] * 12):
        decoder = net.decoder()
        found = [decoder(part) for part in np.split(text, np.cumsum(parts)[:-1], 1)]
        np.testing.assert_allclose(np.concatenate(found, 1), y, rtol=1e-4, atol=1e-4)
