"""torch.compile(backend="fusedops"): right values and memory, what runs where, and when a graph is made again."""

import gc
import logging
import threading
import warnings
import weakref

import pytest

import fusedops as fo

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F

BACKEND = "fusedops"


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def check(function, *args, parts=1, eager=0):
    """Compiles a function, compares two calls with it, and returns the report."""
    compiled = torch.compile(function, backend=BACKEND)
    with torch.no_grad():
        for _ in range(2):
            same(compiled(*args), function(*args))
    report = fo.torch_report(compiled)
    assert sum(len(g.parts) for g in report.graphs) == parts
    assert sum(len(g.eager) for g in report.graphs) == eager
    return report


def network():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(1))


def linear():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU())


def test_the_backend_is_found_by_its_name():
    """Where this fails alone, the package's metadata is older than the entry point: install it again."""
    assert BACKEND in torch._dynamo.list_backends()


def test_a_network_is_one_part_with_its_weights():
    report = check(network().eval(), torch.randn(2, 3, 9, 9))
    model = report.graphs[0].parts[0].model
    assert len(model.inputs) == 1 and "BatchNormalization" not in {n.op for n in model._graph.nodes}
    assert report.graphs[0].nodes == len(report.graphs[0].parts[0].operators)


def attention(x):
    q = x.unflatten(-1, (2, -1)).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)


def resized(size):
    return lambda x: F.interpolate(x @ torch.ones(2, 2), size, mode="nearest").relu().softmax(1)


FUNCTIONS = {
    "attention": (attention, (torch.ones(2, 5, 16),)),
    "several results, one twice": (lambda x: (x @ x.t(), x.softmax(-1), x.softmax(-1)), (torch.eye(4),)),
    "int64 and bool": (
        lambda i, k, w: (F.embedding(i, w) @ w.t() * k[:, None], i + 1, ~k, (F.embedding(i, w) @ w.t()).argmax(-1)),
        (torch.tensor([2, 0, 1]), torch.tensor([True, False, True]), torch.ones(4, 5)),
    ),
    "float64": (lambda x: x @ x, (torch.eye(3, dtype=torch.float64),)),
    "float16": (lambda x: (x @ x).relu(), (torch.eye(3, dtype=torch.float16),)),
    "no element": (lambda x: (x @ torch.ones(3, 2)).relu(), (torch.ones(0, 3),)),
    "a number": (lambda x: (x @ x).sum() * 2, (torch.ones(3, 3),)),
    "what decomposes": (lambda x: torch.addcdiv(x @ x, x.addcmul(x, x, value=0.5), x + 1) @ x, (torch.eye(3),)),
    "nearest by whole factors": (resized((9, 4)), (torch.arange(36.0).reshape(2, 3, 3, 2),)),
    "nearest by others": (resized((4, 5)), (torch.arange(36.0).reshape(2, 3, 3, 2),)),
    "nearest of volumes": (resized((4, 5, 2)), (torch.arange(36.0).reshape(1, 3, 3, 2, 2),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function, args = FUNCTIONS[name]
    check(function, *args)


DECOMPOSED = {
    "addcmul": lambda x: x.addcmul(x, x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x + 1),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), x.sigmoid()),
    "nll_loss_forward": lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2])),
}
TOGETHER = {
    "aminmax": lambda x: torch.aminmax(x, dim=1)[0],
    "frac": torch.frac,
    "nan_to_num": torch.nan_to_num,
    "lerp": lambda x: torch.lerp(x, x + 1, 0.5),
    "logaddexp": lambda x: torch.logaddexp(x, x),
}


@pytest.mark.parametrize("name", [*DECOMPOSED, *TOGETHER])
def test_operators_that_are_decomposed(name):
    """Those that gain by it; others stay one operator of PyTorch."""
    function = (DECOMPOSED | TOGETHER)[name]
    check(lambda x: function((x @ x).relu()), torch.rand(3, 3), eager=name in TOGETHER)


# ---- memory


LAYOUTS = {
    "channels_last": lambda: torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(8, 8, 3, 2).permute(3, 2, 1, 0),
    "every other": lambda: torch.randn(2, 3, 16, 8)[:, :, ::2],
    "expanded": lambda: torch.randn(1, 1, 8, 8).expand(2, 3, 8, 8),
    "an offset": lambda: torch.randn(3, 3, 8, 8)[1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_any_strides(layout):
    check(network().eval(), LAYOUTS[layout]())


def test_results_have_the_order_that_pytorch_goes_on_with():
    """A view that needs channels last in memory, after a part."""
    layer = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    check(lambda x: layer(x).permute(0, 2, 3, 1).view(2, 36, 8), x)


def test_results_are_new_and_owned_by_torch():
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    compiled = torch.compile(layer, backend=BACKEND)
    with torch.no_grad():
        y = compiled(x)
        kept = y.clone()
        assert compiled(x).data_ptr() != y.data_ptr()
        assert y.data_ptr() % 64 == 0 and y.is_contiguous()
        same(y, kept)


def test_changes_in_place_and_views_are_those_of_the_function():
    def function(a, b):
        a.add_(1)
        a[:, 0] = b.sum()
        v = a.view(-1)
        v[3] = 7
        c = a @ b
        return c, a, v, c[1], c.t()

    compiled, a, b = torch.compile(function, backend=BACKEND), torch.randn(4, 4), torch.randn(4, 4)
    mine = a.clone()
    with torch.no_grad():
        expected, found = function(a, b), compiled(mine, b)
    same(found, expected)
    same(mine, a)
    assert found[1] is mine and found[2].data_ptr() == mine.data_ptr()
    found[0].fill_(3)
    assert (found[3] == 3).all() and (found[4] == 3).all(), "views of a result share its memory"
    assert len(fo.torch_report(compiled).graphs[0].parts) == 1


def test_a_buffer_that_is_written_is_no_constant():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.layer(x) * self.calls

    module = Counting()
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        for n in (1, 2, 3):
            same(compiled(torch.ones(2, 4)), module.layer(torch.ones(2, 4)) * n)
    assert module.calls == 3


# ---- parameters


def test_parameters_that_change_are_seen():
    module, x = linear(), torch.randn(3, 8)
    counter = CompileCounterWithBackend(BACKEND)
    compiled = torch.compile(module, backend=counter)
    with torch.no_grad():
        same(compiled(x), module(x))
        module[0].weight.mul_(2)
        same(compiled(x), module(x))
        module[0].bias = nn.Parameter(torch.randn(8))
        same(compiled(x), module(x))
        module.load_state_dict({k: torch.randn_like(v) for k, v in module.state_dict().items()})
        same(compiled(x), module(x))
    assert counter.frame_count == 1


def test_modules_of_one_form_keep_their_own_parameters():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x):
            return self.inner(x).relu()

    layers, x = [Layer() for _ in range(3)], torch.randn(2, 8)
    layers.append(Layer())
    layers[-1].inner = layers[0].inner  # shared
    with torch.no_grad():
        for _ in range(2):
            for layer in layers:
                expected = layer.inner(x).relu()
                layer.compile(backend=BACKEND)
                same(layer(x), expected)
    assert all(len(fo.torch_report(layer).graphs) == 1 for layer in layers[:3])


def test_a_module_that_is_gone_is_forgotten():
    module = linear()
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        compiled(torch.randn(2, 8))
    left = weakref.ref(module), weakref.ref(module[0].weight)
    del module, compiled
    gc.collect()
    assert [r() for r in left] == [None, None]


def test_weights_are_not_copied_before_they_are_packed():
    module = nn.Linear(64, 64)
    report = check(module, torch.randn(2, 64))
    constants = report.graphs[0].parts[0].model._source.constants.values()
    assert module.weight.data_ptr() in {a.ctypes.data for a in constants}


# ---- sizes


@pytest.mark.parametrize("dynamic, sizes_seen", [(None, 2), (True, 1)])
def test_new_sizes_make_no_new_graph(dynamic, sizes_seen):
    module, counter, counts = network().eval(), CompileCounterWithBackend(BACKEND), []
    compiled = torch.compile(module, backend=counter, dynamic=dynamic)
    with torch.inference_mode():
        for n in range(2, 8):
            x = torch.randn(n, 3, 6 + n, 7 + n)
            same(compiled(x), module(x))
            counts.append(counter.frame_count)
    assert counts[sizes_seen - 1] == counts[-1]
    model = fo.torch_report(compiled).graphs[-1].parts[0].model
    assert model._session.failures == 0 and sum(map(len, model._session._symbolic.values())) == 1


def test_marked_sizes_are_open():
    module, counter = linear(), CompileCounterWithBackend(BACKEND)
    compiled = torch.compile(module, backend=counter)
    with torch.no_grad():
        for n in (3, 5, 9):
            x = torch.randn(n, 8)
            torch._dynamo.mark_dynamic(x, 0)
            same(compiled(x), module(x))
    assert counter.frame_count == 1


def test_sizes_inside_are_counted_from_those_that_come_in():
    """A size of what a convolution made, in a shape, as a result and as a number that no input's shape has."""
    layer = nn.Conv2d(3, 4, 3)

    def function(x, n):
        y = layer(x)
        return y.view(y.shape[0], 4, y.shape[2] * y.shape[3]) * n, y.shape[2] * 3, x.new_ones(n, n) @ x.new_ones(n, n)

    compiled = torch.compile(function, backend=BACKEND, dynamic=True)
    with torch.no_grad():
        for n in (6, 7, 9):
            x = torch.randn(2, 3, n, n + 1)
            same(compiled(x, n), function(x, n))
    assert [len(g.parts) for g in fo.torch_report(compiled).graphs] == [1]


def test_causal_attention_of_open_length():
    layer = nn.Linear(16, 16)
    compiled = torch.compile(lambda x: attention(layer(x)), backend=BACKEND)
    with torch.no_grad():
        for n in (3, 5, 8, 13):
            x = torch.randn(2, n, 16)
            same(compiled(x), attention(layer(x)))


# ---- what PyTorch runs


def test_what_has_no_reader_runs_in_pytorch():
    layer = nn.Linear(8, 8)
    report = check(lambda x: layer(torch.special.i0(layer(x))), torch.randn(2, 8), parts=2, eager=1)
    (node,) = report.graphs[0].eager
    assert node.operator == "i0" and "does not have" in node.reason
    assert "addmm" in str(report) and "i0: fusedops does not have" in str(report)


def test_tensors_that_numpy_does_not_have_run_in_pytorch():
    layer = nn.Linear(8, 8)
    report = check(lambda x: layer(x).to(torch.float8_e5m2).float(), torch.ones(2, 8), eager=2)
    assert "float8_e5m2" in report.graphs[0].eager[0].reason


def test_a_few_numbers_are_not_worth_a_call():
    report = check(lambda x: x * 2 + 1, torch.randn(4), parts=0, eager=2)
    assert "worth a call" in report.graphs[0].eager[0].reason


def test_graph_breaks_are_those_of_dynamo():
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)

    def function(x):
        y = first(x)
        return second(y) if y.sum() > 0 else second(-y)

    report = check(function, torch.randn(2, 8), parts=2)
    assert len(report.graphs) == 2


def test_a_part_that_cannot_be_built_runs_in_pytorch(monkeypatch):
    from fusedops.graph import Model

    def refuses(*_):
        raise ValueError("it cannot be")

    monkeypatch.setattr(Model, "built", refuses)
    report = check(linear(), torch.randn(2, 8), parts=0, eager=2)
    assert {n.reason for n in report.graphs[0].eager} == {"it cannot be"}


def warned(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in found if "fusedops" in str(w.message)]


def test_gradients_are_left_to_pytorch_with_one_warning():
    module, x = linear(), torch.randn(3, 8)
    compiled = torch.compile(module, backend=BACKEND)
    (told,) = warned(lambda: [compiled(torch.randn(n, 8)).sum().backward() for n in (3, 4)])
    assert "torch.inference_mode()" in told and module[0].weight.grad is not None
    assert "gradients" in str(fo.torch_report(compiled))
    with torch.no_grad():
        same(compiled(x), module(x))
    assert any(g.parts for g in fo.torch_report(compiled).graphs)


def test_training_mode_is_left_to_pytorch_with_one_warning():
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout())
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        (told,) = warned(lambda: [compiled(torch.randn(n, 8)) for n in (3, 4, 5)])
    assert "eval()" in told and module[1].num_batches_tracked == 3


def test_other_devices_are_left_to_pytorch_with_a_warning():
    module = linear().to("meta")
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        (told,) = warned(lambda: compiled(torch.empty(2, 8, device="meta")))
    assert "CPU" in told


# ---- options, the report and threads


def test_bfloat16():
    module, x = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)), torch.randn(64, 256)
    compiled = torch.compile(module, backend=BACKEND, options={"precision": "bfloat16"})
    with torch.no_grad():
        y, expected = compiled(x), module(x)
    assert (y - expected).abs().max() < 0.05 * expected.abs().max()
    assert fo.torch_report(compiled).graphs[0].parts[0].model._options.precision == "bfloat16"


@pytest.mark.parametrize(
    "given, said",
    [
        (dict(options={"precison": "bfloat16"}), "no option 'precison': its options are disabled_passes, precision"),
        (dict(mode="max-autotune"), "no mode"),
        (dict(options={"precision": "int4"}), "precision"),
        (dict(options={"precision": "int8"}), "int8 needs ranges: write model.quantize"),
        (dict(options={"progress": "yes"}), "progress must be True, or a function"),
        (dict(options={"disabled_passes": ("none",)}), "none"),
    ],
)
def test_wrong_options(given, said):
    with torch.no_grad(), pytest.raises(Exception, match=said):
        torch.compile(linear(), backend=BACKEND, **given)(torch.randn(2, 8))


def test_progress_and_the_log(caplog):
    told = []
    with torch.no_grad(), caplog.at_level(logging.INFO, "fusedops"):
        torch.compile(linear(), backend=BACKEND, options={"progress": told.append})(torch.randn(2, 8))
    assert told[0] == 0.0 and told[-1] == 1.0 and sorted(told) == told
    assert "torch.compile: parts that run here: 1" in [record.getMessage() for record in caplog.records]


def test_the_report_is_of_one_module_until_reset():
    first, second = (torch.compile(linear(), backend=BACKEND) for _ in range(2))
    assert not fo.torch_report(first).graphs
    with torch.no_grad():
        first(torch.randn(2, 8))
    assert len(fo.torch_report(first).graphs) == 1 and not fo.torch_report(second).graphs
    torch._dynamo.reset()
    gc.collect()
    assert not fo.torch_report(first).graphs
    with torch.no_grad():
        same(first(torch.ones(2, 8)), first._orig_mod(torch.ones(2, 8)))
    with pytest.raises(TypeError, match="torch_report takes what torch.compile"):
        fo.torch_report(torch.ones(1))


def test_threads_with_a_model_each():
    modules = [network().eval(), linear()]
    inputs = [torch.randn(2, 3, 12, 12), torch.randn(4, 8)]
    wrong = []

    def work(module, x):
        compiled = torch.compile(module, backend=BACKEND)
        with torch.no_grad():
            expected = module(x)
            wrong.extend(1 for _ in range(20) if not torch.allclose(compiled(x), expected, rtol=1e-4, atol=1e-5))

    threads = [threading.Thread(target=work, args=pair) for pair in zip(modules, inputs, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- networks that others made


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_large_100", "vit_tiny_patch16_224", "convnext_atto"])
def test_networks_of_timm(name):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    check(timm.create_model(name, pretrained=False).eval(), torch.randn(1, 3, 224, 224))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn"])
def test_detectors_of_torchvision(name):
    """Their export fails, as boxes are chosen by values: what is before that and after it runs here."""
    detection = pytest.importorskip("torchvision.models.detection", reason="torchvision is not installed")
    module = getattr(detection, name)(
        weights=None, weights_backbone=None, box_score_thresh=0.0, score_thresh=0.0
    ).eval()
    images, compiled = [torch.rand(3, 320, 320)], torch.compile(module, backend=BACKEND)
    with torch.inference_mode():
        (found,), (expected,) = compiled(images), module(images)
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found["scores"], expected["scores"], rtol=1e-3, atol=1e-5)
    assert any(g.parts for g in fo.torch_report(compiled).graphs)


@pytest.mark.thorough
def test_gpt2_of_transformers_in_all_lengths():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=100)
    module, counter = transformers.GPT2LMHeadModel(config).eval(), CompileCounterWithBackend(BACKEND)
    compiled = torch.compile(module, backend=counter)
    with torch.inference_mode():
        for n in (5, 6, 7, 12):
            tokens = torch.randint(0, 100, (1, n))
            same(compiled(tokens, use_cache=False).logits, module(tokens, use_cache=False).logits)
    assert counter.frame_count == 2
