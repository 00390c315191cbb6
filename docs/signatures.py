"""Signatures with types for the pages of functions and classes, as the sources and the binding's stub write them."""

import ast
from copy import copy
from functools import cache
from pathlib import Path

import fusedops


@cache
def definitions():
    """{module: {name, with its class: definition}} of the package."""
    package = Path(fusedops.__file__).parent
    found = {}
    for path in (*package.rglob("*.py"), package / "_core.pyi"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        names = found[module] = {}
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for child in node.body if isinstance(node, ast.ClassDef) else [node]:
                if isinstance(child, ast.FunctionDef) and not any(
                    "overload" in ast.dump(d) for d in child.decorator_list
                ):
                    names[child.name if child is node else f"{node.name}.{child.name}"] = child
    return found


def definition(thing, what):
    """The definition of a function, of a method, or of what makes an object of a class; or None."""
    if what == "class":
        named = ((c.__module__, f"{c.__qualname__}.__init__") for c in thing.__mro__)
    else:
        named = [(getattr(thing, "__module__", None), getattr(thing, "__qualname__", ""))]
    found = (definitions().get(module, {}).get(name) for module, name in named)
    return next(filter(None, found), None)


def signature(app, what, name, thing, options, signature, returns):
    """What autodoc shall print as the signature, or None where it is not known."""
    if thing is fusedops.Model:  # functions make it, its arguments are theirs
        return "", None
    node = definition(thing, what)
    if node is None:
        return None
    arguments = copy(node.args)
    if what in ("class", "method") and "staticmethod" not in map(ast.unparse, node.decorator_list):
        arguments.args = arguments.args[1:]  # not self
    returned = ast.unparse(node.returns) if node.returns and what != "class" else None
    return f"({ast.unparse(arguments)})", returned


def skipped(app, what, name, thing, skip, options):
    """Whether a member has no text of its own: the class describes the fields of a named tuple."""
    return True if type(thing).__name__ == "_tuplegetter" else None


def setup(app):
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skipped)
    return {"parallel_read_safe": True}
