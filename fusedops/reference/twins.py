"""How an unfused function or layer gets the arguments of the fused one."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

from .._internal.keyword_options import by_name

Result = TypeVar("Result")


def twin_of(fused: Callable[..., Result], folds: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Result]]:
    """Decorates what computes `fused` in passes, given all arguments by their names, those with defaults too.

    What comes of it is called as `fused` is, also with `fold_bn` if it folds, and says so: its signature is that of
    `fused`, its docstring names `fused` and how the passes are.
    """

    def decorate(compute: Callable[..., Any]) -> Callable[..., Result]:
        takes = _arguments(signature(fused), folds)

        def twin(*given, **named):
            return compute(**_bound(takes, given, named))

        _describe(twin, fused, compute.__doc__, takes)
        twin.__name__ = twin.__qualname__ = fused.__name__
        parameters = takes.parameters.values()
        if any(p.kind is Parameter.VAR_KEYWORD for p in parameters):  # of the layer, which refuses unknown ones
            return twin
        inputs = [p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
        return by_name(twin, inputs, [p.name for p in parameters if p.name not in inputs])

    return decorate


class Twin:
    """A layer that is made as the layer `fused` of its class is, and with `fold_bn` if it folds; `_make` is given all
    arguments by their names."""

    _takes: Signature

    def __init_subclass__(cls, fused: type | None = None, folds: bool = True) -> None:
        if fused is not None:
            of_layer = signature(fused.__init__)  # type: ignore[misc]
            own = [p for p in of_layer.parameters.values() if p.name != "self"]
            cls._takes = _arguments(of_layer.replace(parameters=own), folds)
            _describe(cls, fused, cls.__doc__ if "__doc__" in vars(cls) else None, cls._takes)

    def __init__(self, *given: Any, **named: Any) -> None:
        self._make(**_bound(self._takes, given, named))

    _make: Callable[..., None]


def _arguments(of_fused, folds):
    """The signature of a twin."""
    parameters = list(of_fused.parameters.values())
    if folds:
        end = len(parameters) - (parameters[-1].kind is Parameter.VAR_KEYWORD)
        parameters.insert(end, Parameter("fold_bn", Parameter.KEYWORD_ONLY, default=False, annotation="bool"))
    return of_fused.replace(parameters=parameters)


def _bound(takes, given, named):
    """All arguments of a call by their names."""
    bound = takes.bind(*given, **named)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    more = next((p.name for p in takes.parameters.values() if p.kind is Parameter.VAR_KEYWORD), None)
    return arguments | (arguments.pop(more) if more else {})


def _describe(twin, fused, how, takes):
    kind = "class" if isinstance(fused, type) else "func"
    twin.__doc__ = f":{kind}:`fusedops.{fused.__name__}`, {how or 'unfused.'}"
    twin.__signature__ = takes
