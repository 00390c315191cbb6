"""What all prepared layers have: copies, pickles and their words."""

from __future__ import annotations

import numpy as np

from .. import _core
from .._internal.arguments import PACKAGE


def storage_of(dtype):
    """Returns the type of weights for a repr."""
    return "" if dtype == np.float32 else f"{'float16' if dtype == np.float16 else 'bfloat16'} weights, "


def kept_activation(activation, parsed):
    """The activation with its own copy of what the caller may change later."""
    if parsed[3] is not None:
        return "prelu", parsed[3]
    return tuple(activation) if isinstance(activation, list) else activation


# attributes that a layer's __init__ sets
_OWN = ("_arguments", "_options", "_layer", "_layers", "_plain", "_precision", "_made_of")


class Layer:
    """Pickling and copying: the folded weights travel, and are packed again where they arrive.

    So do the attributes that a subclass adds; its own __init__, which may take anything, does not run there.
    """

    def __getattr__(self, name):
        if name in _OWN:
            raise _core.unmade(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __reduce__(self):
        kind = next(c for c in type(self).__mro__ if c.__module__.startswith(f"{PACKAGE}."))
        return rebuilt, (type(self), kind, self._arguments, self._added())

    def _added(self):
        return {k: v for k, v in vars(self).items() if k not in _OWN}

    def __copy__(self):
        return self  # a layer does not change

    def __deepcopy__(self, memo):
        return self


def rebuilt(cls, kind, arguments, added):
    layer = cls.__new__(cls)
    kind.__init__(layer, *arguments[0], **arguments[1])
    vars(layer).update(added)
    return layer


def shown_precision(options):
    """Returns the precision of operands for a repr."""
    precision = options.get("precision", "float32")
    return "" if precision == "float32" else f", precision={precision!r}"
