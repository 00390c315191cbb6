"""Decoders of the transformers package with random weights, as both exporters of torch.onnx write them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import fusedops as fo
from fusedops.graph.planner import plan
from torch_decoder import export, exported, program

pytestmark = pytest.mark.thorough
RNG = np.random.default_rng(0)
PLAIN = dict(vocab_size=100, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4)
KINDS = {
    "GPT2": dict(vocab_size=100, n_embd=64, n_layer=2, n_head=4, n_positions=128, bos_token_id=0, eos_token_id=0),
    "Llama": PLAIN | dict(num_key_value_heads=2),
    "Qwen2": PLAIN | dict(num_key_value_heads=2),
    "Gemma": PLAIN | dict(num_key_value_heads=1, head_dim=16),
    "Gemma2": PLAIN | dict(num_key_value_heads=2, head_dim=16, sliding_window=8),
    "Gemma3Text": PLAIN | dict(num_key_value_heads=2, head_dim=16, sliding_window=8),
    "Phi": PLAIN | dict(pad_token_id=0),
    "Bloom": dict(vocab_size=100, hidden_size=64, n_layer=2, n_head=4),
}
EXPERTS = {"Mixtral": PLAIN | dict(num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)}
CROSS = dict(vocab_size=100, d_model=64, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=96)
CROSS |= dict(encoder_layers=1, encoder_attention_heads=4, encoder_ffn_dim=96, pad_token_id=0, bos_token_id=0)
CROSS |= dict(eos_token_id=0, decoder_start_token_id=1)
WITH_SOURCES = {  # an encoder's keys and values stay the same for a whole text
    "Whisper": CROSS | dict(max_target_positions=128, max_source_positions=30),
    "Bart": CROSS | dict(max_position_embeddings=128),
    "T5": dict(vocab_size=100, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, decoder_start_token_id=0),
}


class Decoder(torch.nn.Module):
    """Keys and values as plain arguments and results."""

    def __init__(self, kind):
        super().__init__()
        config = getattr(transformers, f"{kind}Config")(**(KINDS | EXPERTS)[kind])
        attention = "eager" if kind in ("Bloom", "Gemma2") else "sdpa"
        self.model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        self.layers = range(config.num_hidden_layers)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self.cache = heads, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def forward(self, input_ids, attention_mask, position_ids, *past):
        cache = transformers.DynamicCache()  # of one with the configuration, windows that slide keep less
        for i in self.layers:
            cache.update(past[2 * i], past[2 * i + 1], i)
        given = dict(attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        if self.model.config.model_type != "bloom":  # distances between words, ALiBi
            given["position_ids"] = position_ids
        found = self.model(input_ids=input_ids, **given)
        made = found.past_key_values.layers
        return found.logits, *(x for i in self.layers for x in (made[i].keys, made[i].values))


class CrossDecoder(torch.nn.Module):
    """The decoder of a pair, whose keys and values of the source come after its own."""

    def __init__(self, kind):
        super().__init__()
        config = getattr(transformers, f"{kind}Config")(**WITH_SOURCES[kind])
        config._attn_implementation = "eager" if kind == "T5" else "sdpa"
        self.model = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
        self.layers = range(2)

    def forward(self, input_ids, attention_mask, *past):
        own, source = transformers.DynamicCache(), transformers.DynamicCache()
        for i in self.layers:
            own.update(past[2 * i], past[2 * i + 1], i)
            source.update(past[4 + 2 * i], past[5 + 2 * i], i)
        hidden = torch.zeros(input_ids.shape[0], past[4].shape[2], self.model.config.d_model)  # is not read
        found = self.model(
            decoder_input_ids=input_ids,
            decoder_attention_mask=attention_mask,
            encoder_outputs=(hidden,),
            past_key_values=transformers.EncoderDecoderCache(own, source),
            use_cache=True,
        )
        made = found.past_key_values.self_attention_cache.layers
        return found.logits, *(x for i in self.layers for x in (made[i].keys, made[i].values))


@pytest.fixture
def lowered(monkeypatch):
    """The names of the nodes that were lowered, in order."""
    found, lower = [], plan._lower
    monkeypatch.setattr(plan, "_lower", lambda builder, node: found.append(node.name) or lower(builder, node))
    return found


def newest(net):
    """The kinds of steps of a decoder's latest plan; the operators of those that NumPy computes."""
    steps = max(net._decoding._plans.values(), key=lambda found: found[0].used)[0].steps
    return [step.node.op if step.kind == "numpy" else step.kind for step in steps]


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("kind", KINDS)
def test_word_by_word(kind, dynamo, lowered):
    if dynamo:
        pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    module = Decoder(kind).eval()
    heads, size = module.cache
    net = fo.load_onnx(exported(module, dynamo, heads=heads, size=size))
    follows(net, module, lowered)
    assert {kind for kind in newest(net) if kind[0].isupper()} <= {"Cos", "Sin"}
    assert newest(net).count("attention") == 2


def follows(net, module, lowered):
    """Checks a network word by word, and that none is lowered again after the first ones."""
    heads, size = module.cache
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


@pytest.mark.parametrize("kind", EXPERTS)
def test_mixture_of_experts(kind, lowered):
    """Torch's exporters to ONNX do not have the products of the experts: from the program itself."""
    pytest.importorskip("transformers.integrations.moe", reason="transformers has no products of experts")
    torch.manual_seed(0)
    module = Decoder(kind).eval()
    heads, size = module.cache
    net = fo.from_torch(program(module, heads=heads, size=size))
    follows(net, module, lowered)
    assert newest(net).count("grouped_matmul") == 4


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("kind", WITH_SOURCES)
def test_with_a_source(kind, dynamo, lowered):
    if dynamo:
        pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    module, names = CrossDecoder(kind).eval(), [f"{i}.{x}" for i in range(2) for x in "kv"]
    plain = {
        "input_ids": (torch.ones(2, 3, dtype=torch.int64), {0: "batch", 1: "new"}),
        "attention_mask": (torch.ones(2, 7, dtype=torch.int64), {0: "batch", 1: "total"}),
    }
    caches = {f"past.{name}": (torch.randn(2, 4, 4, 16), {0: "batch", 2: "past"}) for name in names}
    source = {f"source.{name}": (torch.randn(2, 4, 30, 16), {0: "batch", 2: "source"}) for name in names}
    net = fo.load_onnx(export(module, dynamo, plain, caches | source, ["logits", *(f"present.{n}" for n in names)]))
    given = {name: x for name, (x, _) in source.items()}
    by_name = {name: x.numpy() for name, x in given.items()}
    decoder, past = net.decoder(), [torch.zeros(2, 4, 0, 16)] * 4
    assert list(decoder(np.ones((2, 1), np.int64), **by_name).shape) == [2, 1, 100]
    assert list(decoder.caches) == list(caches)
    decoder.truncate()
    for i, new in enumerate([5, *[1] * 20]):
        ids, total = RNG.integers(0, 100, (2, new)), len(decoder) + new
        with torch.no_grad():
            mask = torch.ones(2, total, dtype=torch.int64)
            y, *past = module(torch.from_numpy(ids), mask, *past, *given.values())
        np.testing.assert_allclose(decoder(ids, **by_name), y, rtol=1e-4, atol=2e-4)
        if i == 2:
            lowered.clear()
    assert lowered == []
    assert newest(net).count("attention") == 4
    assert not [kind for kind in newest(net) if kind[0].isupper()]
