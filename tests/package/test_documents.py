"""What documentation says that the code knows better."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("onnx")
ROOT = Path(__file__).parents[2]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def operators():
    return script("operators")


def test_tables_of_figures_are_those_of_their_runs():
    figures = script("figures")
    marked = [path for path in figures.PAGES if figures.MARKED.search(path.read_text(encoding="utf-8"))]
    assert marked
    for path in marked:
        assert path.read_text(encoding="utf-8") == figures.page(path), f"{path.name}: run python docs/figures.py"


def test_the_table_of_operators_is_that_of_the_records():
    made = operators()
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "run python docs/operators.py"


def test_every_operator_of_onnx_has_a_row():
    made = operators()
    assert not [name for name in made.names() if made.computed_by(name)[1] == "nothing"]
