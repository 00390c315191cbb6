"""The documentation: every public name has what a reader looks for, and every example gives what it shows."""

import doctest
import importlib.util
import inspect
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import fusedops as fo
from fusedops import _core

ROOT = Path(__file__).parents[2]
# where an example imports one that is not there, it is skipped
NEEDS = ("torch", "onnx", "tflite", "matplotlib", "threadpoolctl", "dask")


def public():
    """(name, object) of what users call: the public names, and the public methods of their classes."""
    for name in fo.__all__:
        thing = getattr(fo, name)
        yield name, thing
        for method, f in inspect.getmembers(thing, inspect.isroutine) if inspect.isclass(thing) else ():
            # those of tuple are no business of ours
            if not method.startswith("_") and (getattr(f, "__module__", None) or "").startswith("fusedops"):
                yield f"{name}.{method}", f


NOTHING_COMES_BACK = (
    "KVCache.append",
    "KVCache.truncate",
    "Model.reset",
    "Model.save",
    "Model.seed",
    "set_isa",
    "set_num_threads",
)
INTERNAL = {"Model.built", "Model.timed"}  # called by other modules of the package alone
PUBLIC = {name: thing for name, thing in public() if name not in INTERNAL}


def sections(thing):
    """Title to text of a numpydoc docstring; the text above the first title is the summary."""
    parts = re.split(r"^(\w[\w ]*)\n-+\n", inspect.getdoc(thing) or "", flags=re.MULTILINE)
    return dict(zip(("summary", *parts[1::2]), parts[::2], strict=True))


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_written(name):
    """A summary; every parameter, by its name; an example."""
    thing, found = PUBLIC[name], sections(PUBLIC[name])
    assert re.fullmatch(r"[A-Z2].*[.:]\s*", found["summary"].split("\n\n")[0], re.DOTALL), "no summary"
    signature = inspect.signature(thing)
    described = re.findall(r"\**\w+", " ".join(re.findall(r"^\S.*", found.get("Parameters", ""), re.MULTILINE)))
    parameters = [
        str(p).split("=")[0].split(":")[0] for p in signature.parameters.values() if p.name not in ("self", "cls")
    ]
    if thing is not fo.Model:  # it is made by the functions that load a network
        assert set(parameters) <= set(described), f"not described: {sorted(set(parameters) - set(described))}"
    assert ">>> " in found.get("Examples", ""), "no example"


@pytest.mark.parametrize("name", [n for n, f in PUBLIC.items() if inspect.isroutine(f)])
def test_what_is_written_of_functions(name):
    """What comes back, if anything does, and the errors of those that can be called wrongly."""
    found, signature = sections(PUBLIC[name]), inspect.signature(PUBLIC[name])
    assert "Returns" in found or name in NOTHING_COMES_BACK
    assert "Raises" in found or not signature.parameters.keys() - {"self"}


def run(text, name, names):
    """Runs code, or the examples of a text and compares what they give with what is shown; `names` is their
    namespace."""
    for module in NEEDS:
        if re.search(rf"^[ >.]*(import|from) {module}\b|load_{module}\(", text, re.MULTILINE):
            pytest.importorskip(module, reason=f"{module} is not installed")
    if ">>> " not in text:
        exec(text, names)
        return
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    test.globs = names
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
    assert result.attempted and not result.failed


@pytest.mark.skipif(np.__version__ < "2", reason="NumPy 1 writes its scalars in another way")
@pytest.mark.parametrize("name", [*PUBLIC, "Stream"])
def test_docstrings(name):
    run(inspect.getdoc(PUBLIC.get(name, _core.Stream)), name, {})


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_pages(page, tmp_path, monkeypatch):
    """The blocks marked python of a page run one after the other; what stands after >>> gives what is shown."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        run(block, page.name, names)


@pytest.mark.skipif(not (ROOT / "csrc").exists(), reason="not in a checkout")
@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("*/*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links(page):
    """Links to files of this repository lead somewhere."""
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.thorough
@pytest.mark.skipif(not (ROOT / "examples").exists(), reason="not in a checkout")
def test_notebook(monkeypatch):
    """It runs from top to bottom, times its networks in three forms, and draws its picture."""
    for module in ("ipykernel", "matplotlib", "onnx"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    monkeypatch.setenv("PYTHONPATH", str(Path(fo.__file__).parent.parent), prepend=os.pathsep)
    monkeypatch.setenv("FUSION_QUICK", "1")
    book = nbformat.read(ROOT / "examples/fusion.ipynb", as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": ROOT / "examples"}}).execute()
    results = [output for cell in code for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in results)
    printed = "".join(output.get("text", "") for output in results)
    assert float(re.search(r"([\d.]+)% of 200 digits", printed)[1]) > 90
    rows = re.findall(r"^1x1, 128x28x28 -> 256 .*|^3x3, 256x14x14 .*", printed, re.MULTILINE)
    assert len(rows) == 4  # two layers, in float32 and in int8
    assert timed_networks(printed)


def timed_networks(printed):
    """Whether both networks have three times and a gain each."""
    rows = re.findall(r"^(MobileNetV2|ResNet-18)((?: +[\d.]+){3}) +[\d.]+x$", printed, re.MULTILINE)
    return [name for name, _ in rows] == ["MobileNetV2", "ResNet-18"]


@pytest.mark.skipif(not (ROOT / "examples").exists(), reason="not in a checkout")
def test_results_of_the_notebook():
    """It is committed as it ran, from top to bottom, on a machine of which it tells the processor alone."""
    text = (ROOT / "examples/fusion.ipynb").read_text(encoding="utf-8")
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}  # no error
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}  # no warning
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert timed_networks("".join("".join(output.get("text", "")) for output in outputs))
    assert not re.search(r"site-packages|ipykernel_\d+|\"/(home|root|tmp|usr|Users)\b", text)


# The networks that are written layer by layer


def example(name):
    """A program of examples/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Theirs:
    """PyTorch's operations on the arrays of an example."""

    def __init__(self, torch, w):
        self.torch, self.f, self.w = torch, torch.nn.functional, {k: torch.from_numpy(a) for k, a in w.items()}

    def norm(self, x, name):
        weight, bias, mean, var = (self.w[f"{name}.{p}"] for p in ("weight", "bias", "running_mean", "running_var"))
        return self.f.batch_norm(x, mean, var, weight, bias)

    def resnet(self, x):
        f, w = self.f, self.w

        def conv(x, name, norm, **options):
            return self.norm(f.conv2d(x, w[f"{name}.weight"], **options), norm)

        x = f.max_pool2d(conv(x, "conv1", "bn1", stride=2, padding=3).relu(), 3, 2, 1)
        for name in [f"layer{i}.{j}" for i in (1, 2, 3, 4) for j in (0, 1)]:
            short = f"{name}.downsample.0" if f"{name}.downsample.0.weight" in w else None
            y = conv(x, f"{name}.conv1", f"{name}.bn1", stride=2 if short else 1, padding=1).relu()
            y = conv(y, f"{name}.conv2", f"{name}.bn2", padding=1)
            x = (y + (conv(x, short, f"{name}.downsample.1", stride=2) if short else x)).relu()
        return f.linear(x.mean((2, 3)), w["fc.weight"], w["fc.bias"])

    def unet(self, x, depth):
        f, w, kept = self.f, self.w, []

        def block(x, name):
            for i in 0, 1:
                x = self.norm(f.conv2d(x, w[f"{name}.conv{i}"], padding=1), f"{name}.bn{i}").relu()
            return x

        x = block(x, "down.0")
        for i in range(1, depth + 1):
            kept.append(x)
            x = block(f.max_pool2d(x, 2), f"down.{i}")
        x = f.group_norm(x, 8, w["middle.weight"], w["middle.bias"])
        for i in reversed(range(depth)):
            up = f.conv_transpose2d(x, w[f"up.{i}.transposed"], w[f"up.{i}.bias"], stride=2)
            x = block(self.torch.cat([kept[i], up], 1), f"up.{i}")
        return f.log_softmax(f.conv2d(x, w["head"]), 1)

    def keyword_spotter(self, x):
        f, w = self.f, self.w

        def conv(x, name, stride=1):
            return self.norm(f.conv1d(x, w[name], stride=stride, padding=w[name].shape[2] // 2), f"{name}.bn")

        x = conv(x, "first").relu()
        for i in range(3):
            x = (conv(conv(x, f"{i}.one", 2).relu(), f"{i}.two") + conv(x, f"{i}.short", 2).relu()).relu()
        return f.softmax(f.linear(x.mean(2), w["words"]), -1)


@pytest.mark.skipif(not (ROOT / "examples").exists(), reason="not in a checkout")
class TestNetworksByHand:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch", reason="PyTorch is not installed")

    def compare(self, torch, w, ours, theirs, x):
        with torch.inference_mode():
            expected = getattr(Theirs(torch, w), theirs[0])(torch.from_numpy(x), *theirs[1:]).numpy()
        y = ours(x)
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())

    @pytest.mark.parametrize("size", [64, (57, 80)])
    def test_resnet(self, isa, threads, torch, draw, size):
        made = example("resnet")
        w = made.random_weights()
        self.compare(torch, w, made.ResNet(w), ["resnet"], draw(2, 3, *np.broadcast_to(size, 2)))

    @pytest.mark.parametrize("depth", [1, 3])
    def test_unet(self, isa, threads, torch, draw, depth):
        made = example("unet")
        w = made.random_weights(depth=depth, width=8, classes=5)
        self.compare(torch, w, made.UNet(w), ["unet", depth], draw(2, 3, 32, 48))

    def test_keyword_spotter(self, isa, threads, torch, draw):
        made = example("keyword_spotter")
        w = made.random_weights()
        bands = np.stack([made.features(draw(made.RATE)) for _ in range(2)])
        assert bands.shape[:2] == (2, made.BANDS)
        self.compare(torch, w, made.KeywordSpotter(w), ["keyword_spotter"], bands)
