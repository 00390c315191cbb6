"""Functions whose options are given by name: who gives one in order, or one that there is not, is told what to
write."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeVar

    Function = TypeVar("Function")


def options_by_name(function: Function) -> Function:
    """The function, with errors for too many arguments in order and for unknown names that say how to pass them."""
    plain: Any = function
    code = plain.__code__
    most, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    return by_name(plain, code.co_varnames[:most], code.co_varnames[most:last])


def by_name(plain: Any, inputs: Any, options: Any) -> Any:
    """A function whose `inputs` are given in order, and whose `options` by name, with those errors."""
    most, known, title = len(inputs), frozenset((*inputs, *options)), plain.__name__

    @wraps(plain)
    def checked(*arrays, **named):
        if len(arrays) > most:
            call = ", ".join([*inputs, f"{options[0]}=..."])
            taken = f"{', '.join(inputs[:-1])} and {inputs[-1]}"
            raise TypeError(
                f"{title} takes {most} arguments in order, {taken}, not {len(arrays)}: write "
                f"the others with their names, {title}({call}); the names are {', '.join(options)}"
            )
        try:
            return plain(*arrays, **named)
        except TypeError:
            if unknown := sorted(named.keys() - known):
                raise TypeError(
                    f"{title} has no argument {' and no '.join(unknown)}: its options are {', '.join(options)}"
                ) from None
            raise

    return checked
