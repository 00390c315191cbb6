"""The types of the binding, _core.pyi, name what it has."""
import ast
from pathlib import Path

import pytest

import fusedops
from fusedops import _core

STUB = Path(fusedops.__file__).parent / "_core.pyi"
IMPORTED = {"np"}


def declared(body):
    """Name to node of what a module or class declares."""
    names = {node.name: node for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    return names | {node.target.id: node for node in body if isinstance(node, ast.AnnAssign)}


def members(kind):
    return {name for name in vars(kind) if not name.startswith("_")}


def test_every_public_name_is_declared():
    stub = declared(ast.parse(STUB.read_text()).body)
    assert members(_core) - IMPORTED <= stub.keys()


@pytest.mark.parametrize("kind", [k for k in vars(_core).values() if isinstance(k, type)], ids=lambda k: k.__name__)
def test_every_method_is_declared(kind):
    assert declared(declared(ast.parse(STUB.read_text()).body)[kind.__name__].body).keys() >= members(kind)
