"""Modules that stand in for others by their names, and programs that run with them."""

import importlib.abc
import os
import runpy
import sys
import types
import warnings

_USAGE = """\
usage: python -m {prog} script.py [arguments ...]
       python -m {prog} -m package [arguments ...]

Runs a program, or a package as python -m does, whose own `import {name}` gets {prog}.
"""


class _Refusal(importlib.abc.MetaPathFinder):
    """Says of modules that have no stand-in that it is so: the search would find those of another library."""

    def __init__(self, name, own, reason):
        self.name, self._own, self._reason = name, own, reason

    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith(f"{self.name}."):
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: {self._own} stands in for {self.name}, and {self._reason}",
                name=fullname,
            )
        return None


class Installed:
    """Stand-ins that are in place. ``with`` takes them away at the end of its block."""

    def __init__(self, undo=()):
        self._undo = undo

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for undo in self._undo:
            undo()


def install(name, module, modules, reason, own=""):
    """Lets `name` be a module, and names in it modules of the given contents; of others `reason` says why there are
    none, in the name of the module `own`. Returns the functions that undo it."""
    before, own = (
        {m: found for m, found in sys.modules.items() if f"{m}.".startswith(f"{name}.")},
        own or module.__name__,
    )
    if any(isinstance(finder, _Refusal) and finder.name == name for finder in sys.meta_path) and name in before:
        return []
    if name in before:
        warnings.warn(
            f"{name} was imported before {own} took its place: names that were taken from it stay as they are",
            stacklevel=3,
        )
    for loaded in before:
        del sys.modules[loaded]
    made = {"": module, **{path: types.ModuleType(f"{name}.{path}") for path in modules}}
    for path, contents in modules.items():
        made[path].__dict__.update(contents, __path__=[])
        parent, _, last = path.rpartition(".")
        setattr(made[parent], last, made[path])
    sys.modules.update({f"{name}.{path}".rstrip("."): found for path, found in made.items()})
    refusal = _Refusal(name, own, reason)
    sys.meta_path.insert(0, refusal)

    def undo():
        sys.meta_path.remove(refusal)
        for loaded in [m for m in sys.modules if f"{m}.".startswith(f"{name}.")]:
            del sys.modules[loaded]
        sys.modules.update(before)

    return [undo]


def run(argv, prog, name, install):
    """Runs the program that a command line names; returns what the process shall end with."""
    options = argv[1:]
    if not options or options[0] in ("-h", "--help"):
        print(_USAGE.format(prog=prog, name=name), end="", file=sys.stdout if options else sys.stderr)
        return 0 if options else 2
    install()
    if options[0] == "-m":
        if len(options) < 2:
            print(f"{prog}: -m takes the name of a package or module", file=sys.stderr)
            return 2
        sys.argv = options[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(options[1], run_name="__main__", alter_sys=True)
    else:
        if not os.path.exists(options[0]):
            print(f"{prog}: there is no file {options[0]}", file=sys.stderr)
            return 2
        sys.argv = options
        sys.path[0] = os.path.dirname(os.path.abspath(options[0]))
        runpy.run_path(options[0], run_name="__main__")
    return 0
