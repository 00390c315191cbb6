"""NumPy: what one writes without a library."""

from ..cases import variants
from . import Call, Unsupported


def prepare(operation, a, threads):
    try:
        return Call(variants(operation, a)["numpy"])
    except KeyError:
        raise Unsupported("blocks and networks are not written out in NumPy") from None
