"""The documentation: every public name has what a reader looks for, and every example gives what it shows."""
import doctest
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import fusedops as fo
from fusedops import _core

ROOT = Path(__file__).parent.parent
NEEDS = ("torch", "onnx", "matplotlib", "threadpoolctl")  # where an example imports one that is not there, it is skipped


def public():
    """(name, object) of what users call: the public names, and the public methods of their classes."""
    for name in fo.__all__:
        thing = getattr(fo, name)
        yield name, thing
        for method, f in inspect.getmembers(thing, inspect.isroutine) if inspect.isclass(thing) else ():
            if not method.startswith("_") and (getattr(f, "__module__", None) or "").startswith("fusedops"):  # those of tuple are no business of ours
                yield f"{name}.{method}", f


NOTHING_COMES_BACK = ("KVCache.append", "KVCache.truncate", "Model.save", "set_isa", "set_num_threads")
INTERNAL = {"Model.built", "Model.plan", "Model.timed"}  # called by other modules of the package alone
PUBLIC = {name: thing for name, thing in public() if name not in INTERNAL}


def sections(thing):
    """Title to text of a numpydoc docstring; the text above the first title is the summary."""
    parts = re.split(r"^(\w[\w ]*)\n-+\n", inspect.getdoc(thing) or "", flags=re.MULTILINE)
    return dict(zip(("summary", *parts[1::2]), parts[::2], strict=True))


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_written(name):
    """A summary; every parameter, by its name; an example."""
    thing, found = PUBLIC[name], sections(PUBLIC[name])
    assert re.match(r"[A-Z2].*[.:]", found["summary"]), "no summary"
    signature = inspect.signature(thing)
    described = re.findall(r"\**\w+", " ".join(re.findall(r"^\S.*", found.get("Parameters", ""), re.MULTILINE)))
    parameters = [str(p).split("=")[0].split(":")[0] for p in signature.parameters.values() if p.name not in ("self", "cls")]
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
    """Runs code, or the examples of a text and compares what they give with what is shown; `names` is their namespace."""
    for module in NEEDS:
        if re.search(rf"^[ >.]*(import|from) {module}\b", text, re.MULTILINE):
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
    """The blocks marked python of a page run one after the other; what stands behind >>> gives what is shown."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        run(block, page.name, names)


@pytest.mark.skipif(not (ROOT / "csrc").exists(), reason="not in a checkout")
@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("*/*.md"))], ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page):
    """Links to files of this repository lead somewhere."""
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
