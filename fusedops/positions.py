"""Functions whose options are given by name: who gives one in order is told what to write."""

from functools import wraps


def options_by_name(function):
    """The function, with an error for too many arguments in order that says how to pass them."""
    code = function.__code__
    most, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    inputs, options = code.co_varnames[:most], code.co_varnames[most:last]

    @wraps(function)
    def checked(*arrays, **named):
        if len(arrays) > most:
            call = ", ".join([*inputs, f"{options[0]}=..."])
            raise TypeError(
                f"{function.__name__} takes {most} arguments in order, {' and '.join(inputs)}, not {len(arrays)}: write "
                f"the others with their names, {function.__name__}({call}); the names are {', '.join(options)}"
            )
        return function(*arrays, **named)

    return checked
