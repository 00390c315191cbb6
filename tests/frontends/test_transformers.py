"""Decoders of the transformers package with random weights, as both exporters of torch.onnx write them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import fusedops as fo
from fusedops.graph.planner import plan
from torch_decoder import exported

pytestmark = pytest.mark.thorough
RNG = np.random.default_rng(0)
PLAIN = dict(vocab_size=100, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4)
KINDS = {
    "GPT2": dict(vocab_size=100, n_embd=64, n_layer=2, n_head=4, n_positions=128, bos_token_id=0, eos_token_id=0),
    "Llama": PLAIN | dict(num_key_value_heads=2),
    "Qwen2": PLAIN | dict(num_key_value_heads=2),
    "Gemma": PLAIN | dict(num_key_value_heads=1, head_dim=16),
    "Phi": PLAIN | dict(pad_token_id=0),
}


class Decoder(torch.nn.Module):
    """Keys and values as plain arguments and results."""

    def __init__(self, kind):
        super().__init__()
        config = getattr(transformers, f"{kind}Config")(**KINDS[kind])
        self.model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        self.layers = range(config.num_hidden_layers)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self.cache = heads, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def forward(self, input_ids, attention_mask, position_ids, *past):
        cache = transformers.DynamicCache(config=self.model.config)
        for i in self.layers:
            cache.update(past[2 * i], past[2 * i + 1], i)
        given = dict(attention_mask=attention_mask, position_ids=position_ids, past_key_values=cache, use_cache=True)
        found = self.model(input_ids=input_ids, **given)
        made = found.past_key_values.layers
        return found.logits, *(x for i in self.layers for x in (made[i].keys, made[i].values))


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("kind", KINDS)
def test_word_by_word(kind, dynamo, monkeypatch):
    if dynamo:
        pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    module = Decoder(kind).eval()
    heads, size = module.cache
    net, lowered, lower = fo.load_onnx(exported(module, dynamo, heads=heads, size=size)), [], plan._lower
    monkeypatch.setattr(plan, "_lower", lambda builder, node: lowered.append(node.name) or lower(builder, node))
    decoder, past = net.decoder(), [torch.zeros(2, heads, 0, size)] * (2 * len(module.layers))
    for i, new in enumerate([5, *[1] * 20]):
        ids, at = RNG.integers(0, 100, (2, new)), len(decoder)
        places = torch.arange(at, at + new)[None].expand(2, -1)
        with torch.no_grad():
            y, *past = module(torch.from_numpy(ids), torch.ones(2, at + new, dtype=torch.int64), places, *past)
        np.testing.assert_allclose(decoder(ids), y, rtol=1e-4, atol=2e-4)
        if i == 2:
            lowered.clear()
    assert lowered == []
    steps = max(net._decoding._plans.values(), key=lambda found: found[0].used)[0].steps
    assert [step.kind for step in steps].count("attention") == 2
