"""What documentation says that the code knows better."""

import importlib.util
import re
from pathlib import Path

import pytest

import fusedops as fo

pytest.importorskip("onnx")
pytest.importorskip("tflite")
ROOT = Path(__file__).parents[2]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def operators():
    return script("operators")


def test_tables_of_figures_are_those_of_their_runs():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    figures = script("figures")
    marked = [path for path in figures.PAGES if figures.MARKED.search(path.read_text(encoding="utf-8"))]
    assert marked
    for path in marked:
        assert path.read_text(encoding="utf-8") == figures.page(path), f"{path.name}: run python docs/figures.py"


def words(picture):
    """What is written in an SVG, which does not depend on fonts as the places do."""
    return re.findall(r"<text[^>]*>([^<]*)", picture.read_text(encoding="utf-8"))


@pytest.mark.thorough
def test_charts_are_those_of_their_runs(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    figures, drawn = script("figures"), {}
    save = figures.charts.save
    monkeypatch.setattr(figures.charts, "save", lambda figure, path: drawn.setdefault(path, figure))
    for path in figures.PAGES:
        figures.page(path, write=True)
    assert set(drawn) == set((ROOT / "docs/pictures").iterdir())
    for path, figure in drawn.items():
        if path.stem.endswith("light"):
            save(figure, tmp_path / path.name)
            assert words(tmp_path / path.name) == words(path), f"{path.name}: run python docs/figures.py"


def test_the_version_is_the_one_that_changes_go_into():
    """A tree with changes after a release is on its way to a later version."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased, last = re.search(r"(?ms)^## \[Unreleased\]$(.*?)^## \[(.*?)\]", changes).groups()
    changed, (release, dev) = "\n- " in unreleased, re.fullmatch(r"([\d.]+?)(\.dev\d+)?", fo.__version__).groups()
    later = [int(n) for n in release.split(".")] > [int(n) for n in last.split(".")]
    assert (later, bool(dev)) == (changed, changed)


def test_every_public_name_has_a_page():
    listed = re.findall(
        r"^   fusedops\.(\w+)$", (ROOT / "docs/operations.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(set(fo.__all__) - {"reference"})


def test_the_table_of_operators_is_that_of_the_records():
    made = operators()
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "run python docs/operators.py"


def test_every_operator_of_onnx_has_a_row():
    made = operators()
    assert not [name for name in made.names() if made.computed_by(name)[1] == "nothing"]


def test_every_operator_of_tflite_has_a_row():
    made = operators()
    assert not [name for name in made.tflite_names() if made.tflite_row(name)[1] == "refused: None"]


def test_what_onnx_says_of_operators_is_written_down():
    made = script("schemas")
    written = made.FILE.read_text(encoding="utf-8")
    if not written.startswith(f"# onnx {made.onnx.__version__},"):
        pytest.skip("another version of onnx wrote it")
    assert made.text() == written, "run python docs/schemas.py"
