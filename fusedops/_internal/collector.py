"""Python's collector of circular garbage, at rest while many objects are made that all stay."""

import gc
from contextlib import contextmanager


@contextmanager
def resting():
    """Lets the collector rest: a network of many nodes becomes a million objects, which it would look through several
    times, a quarter of the time of a load. A collector that is off stays off."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
