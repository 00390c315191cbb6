"""Modules that few networks need: each is imported when something of it is first used."""

from importlib import import_module


class LazyModule:
    """Stands in for a module until something of it is asked for. Its name is next to an import for checkers of types,
    which also tells tools such as PyInstaller of it."""

    def __init__(self, name, package=None):
        self._name = name, package

    def __getattr__(self, name):
        found = getattr(import_module(*self._name), name)
        self.__dict__[name] = found
        return found
