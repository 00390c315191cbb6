"""Random arguments that several tests of functions share, and how a function is compared with the oracle."""

from contextlib import contextmanager

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import fusedops as fo
import oracle
from catalog import VIEWS, using_isa
from fusedops import reference
from oracle import ACTIVATIONS, check

examples = settings(derandomize=True, max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
isas, numbers_of_threads = st.sampled_from(fo.available_isas()), st.sampled_from([1, 2])
layouts, seeds = st.sampled_from(["NCHW", "NHWC"]), st.integers(0, 2**32 - 1)
views = st.sampled_from([np.ascontiguousarray] * 4 + [*VIEWS.values()])
sides = st.tuples(st.integers(0, 2), st.integers(0, 2))


def pairs(elements):
    return elements | st.tuples(elements, elements)


@contextmanager
def running(isa, threads):
    before = fo.get_num_threads()
    fo.set_num_threads(threads)
    try:
        with using_isa(isa):
            yield
    finally:
        fo.set_num_threads(before)


def agrees(name, x, *args, isa, threads, **options):
    """The function with and without `out`, and unfused, against the oracle."""
    expected = getattr(oracle, name)(x, *args, **options)
    with running(isa, threads):
        y = getattr(fo, name)(x, *args, **options)
        check(np.ascontiguousarray(y), expected)
        out = np.full_like(y, 7)
        assert getattr(fo, name)(x, *args, **options, out=out) is out
        np.testing.assert_array_equal(out, y)
        if hasattr(reference, name):
            check(np.ascontiguousarray(getattr(reference, name)(x, *args, **options)), expected)


@st.composite
def epilogues(draw, arrays, c, shape):
    """Any of bias, batch norm, residual and activation."""
    options = {
        name: make()
        for name, make in dict(
            bias=lambda: arrays(c), bn=lambda: arrays.batch_norm(c), residual=lambda: draw(views)(arrays(*shape))
        ).items()
        if draw(st.booleans())
    }
    return options | dict(activation=arrays.activation(draw(st.sampled_from([None, *ACTIVATIONS])), c))
