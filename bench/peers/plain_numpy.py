"""NumPy: what one writes without a library."""

from . import Call, Unsupported
from .variants import variants


def prepare(operation, a, threads):
    try:
        return Call(variants(operation, a)["numpy"])
    except KeyError:
        raise Unsupported("blocks and networks are not written out in NumPy") from None
