"""Functions whose options are given by name: who gives one in order, or one that there is not, is told what to write."""

from functools import wraps


def options_by_name(function):
    """The function, with errors for too many arguments in order and for unknown names that say how to pass them."""
    code = function.__code__
    most, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    inputs, options = code.co_varnames[:most], code.co_varnames[most:last]
    known, title = frozenset((*inputs, *options)), function.__name__

    @wraps(function)
    def checked(*arrays, **named):
        if len(arrays) > most:
            call = ", ".join([*inputs, f"{options[0]}=..."])
            taken = f"{', '.join(inputs[:-1])} and {inputs[-1]}"
            raise TypeError(
                f"{title} takes {most} arguments in order, {taken}, not {len(arrays)}: write "
                f"the others with their names, {title}({call}); the names are {', '.join(options)}"
            )
        try:
            return function(*arrays, **named)
        except TypeError:
            if unknown := sorted(named.keys() - known):
                raise TypeError(
                    f"{title} has no argument {' and no '.join(unknown)}: its options are {', '.join(options)}"
                ) from None
            raise

    return checked
