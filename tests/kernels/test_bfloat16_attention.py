"""Attention whose products are of bfloat16, against float64 products of rounded operands."""

import copy
import pickle

import numpy as np
import pytest

import fusedops as fo
import oracle
from fusedops import reference
from guard_pages import guarded
from oracle import Approx, bf16, check

# Query heads, key heads, queries, keys, elements of keys and of values.
SIZES = [
    (1, 1, 1, 1, 1, 1),
    (2, 2, 5, 7, 3, 4),
    (4, 2, 1, 257, 64, 64),
    (8, 2, 3, 31, 20, 40),
    (1, 1, 48, 256, 32, 33),
    (1, 1, 49, 255, 64, 31),
    (2, 1, 97, 513, 24, 64),
    (1, 1, 13, 330, 128, 7),
    (1, 1, 4, 40, 600, 150),
]
WEIGHT = 2**-8  # by which rounding changes one


def expected(q, k, v, mask, causal, scale=None):
    """Rounding each weight adds to the error of the same in float64."""
    scale = np.float32(1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    q, k, v = bf16(scale * q), bf16(k), bf16(v)
    options = dict(mask=mask, causal=causal, scale=1)
    y = oracle.attention(q, k, v, **options)
    return Approx(y.value, y.error + 1.01 * WEIGHT * oracle.attention(q, k, np.abs(v), **options).value)


def arrays(draw, heads, kv_heads, t, s, d, dv, n=2):
    return draw(n, heads, t, d) * 3, draw(n, kv_heads, s, d) * 3, draw(n, kv_heads, s, dv)


def mask_of(draw, kind, n, heads, t, s):
    if kind is None:
        return None
    mask = draw(n, heads, t, s)
    return mask < 0.3 if kind == "bool" else np.where(mask < 0.5, 4 * draw(n, heads, t, s), np.float32(-np.inf))


@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values(bf16_products, draw, sizes, causal, mask):
    q, k, v = arrays(draw, *sizes)
    m = mask_of(draw, mask, 2, sizes[0], *sizes[2:4])
    options = dict(mask=m, causal=causal, precision="bfloat16")
    for module in (fo, reference):
        check(module.attention(q, k, v, **options), expected(q, k, v, m, causal))
    check(fo.attention(q, k, v, scale=0.3, **options), expected(q, k, v, m, causal, 0.3))


@pytest.mark.parametrize("sizes", [SIZES[i] for i in (2, 3, 5, 6)], ids=str)
def test_bits_do_not_depend_on_threads_batch_or_strides(bf16_products, draw, sizes):
    q, k, v = arrays(draw, *sizes, n=3)
    before = fo.get_num_threads()
    for causal in (False, True):
        options, found = dict(causal=causal, precision="bfloat16"), []
        for threads in (1, 2, 3):
            fo.set_num_threads(threads)
            y = fo.attention(q, k, v, **options)
            found += [y, np.stack([fo.attention(q[i], k[i], v[i], **options) for i in range(3)])]
            for order in ((0, 2, 1, 3), (0, 1, 3, 2)):
                others = [np.ascontiguousarray(a.transpose(order)).transpose(np.argsort(order)) for a in (q, k, v)]
                found.append(fo.attention(*others, **options))
        fo.set_num_threads(before)
        for y in found:
            np.testing.assert_array_equal(y, found[0])


@pytest.mark.parametrize("heads, kv_heads", [(2, 2), (4, 2)])
def test_a_row_has_the_bits_that_it_has_alone(bf16_products, draw, heads, kv_heads):
    """What causal leaves out, and how many other queries there are, changes nothing."""
    q, k, v = arrays(draw, heads, kv_heads, 300, 300, 24, 40, n=1)
    whole = fo.attention(q, k, v, causal=True, precision="bfloat16")
    for t in (0, 1, 30, 37, 73, 255, 256, 299):
        alone = fo.attention(q[:, :, t : t + 1], k[:, :, : t + 1], v[:, :, : t + 1], precision="bfloat16")
        np.testing.assert_array_equal(alone, whole[:, :, t : t + 1])


def test_rows_that_see_nothing_and_values_that_are_not_finite(bf16_products, draw):
    q, k, v = arrays(draw, 1, 1, 6, 50, 16, 8, n=1)
    mask = np.ones((6, 50), bool)
    mask[2] = False
    y = fo.attention(q, k, v, mask=mask, precision="bfloat16")
    assert not y[0, 0, 2].any()
    clean = fo.attention(q, k, v, precision="bfloat16")
    q[0, 0, 1, 3] = np.nan
    y, others = fo.attention(q, k, v, precision="bfloat16"), [0, 2, 3, 4, 5]
    assert np.isnan(y[0, 0, 1]).all()
    np.testing.assert_array_equal(y[0, 0, others], clean[0, 0, others])
    v[0, 0, 7, 2] = np.inf
    assert (fo.attention(q, k, v, precision="bfloat16")[0, 0, others, 2] == np.inf).all()


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("sizes", [SIZES[i] for i in (1, 2, 5)], ids=str)
def test_stays_within_arrays(bf16_products, draw, sizes, at_end):
    q, k, v = arrays(draw, *sizes)
    y = fo.attention(q, k, v, precision="bfloat16")
    out = guarded(y, at_end)
    given = [guarded(a, at_end) for a in (q, k, v)]
    np.testing.assert_array_equal(fo.attention(*given, precision="bfloat16", out=out), y)


def test_cache(bf16_products, draw):
    """Tokens after others have the bits of the whole sequence."""
    q, k, v = arrays(draw, 4, 2, 70, 70, 24, 20)
    cache = fo.KVCache(2, 2, 24, 20)
    whole = fo.attention(q, k, v, causal=True, precision="bfloat16")
    for first, last in ((0, 40), (40, 41), (41, 70)):
        cache.append(k[:, :, first:last], v[:, :, first:last])
        y = cache.attention(q[:, :, first:last], precision="bfloat16")
        np.testing.assert_array_equal(y, whole[:, :, first:last])
    with pytest.raises(ValueError, match="unknown precision 'half'"):
        cache.attention(q[:, :, -1:], precision="half")


def test_multihead(bf16_products, draw):
    w, biases, x = draw(4, 24, 24) / 4, draw(4, 24), draw(2, 9, 24)
    layer = fo.MultiheadAttention(*w, *biases, heads=3, batch_first=True, precision="bfloat16")
    y = layer(x, causal=True)
    q, k, v = (fo.Linear(w[i], biases[i], precision="bfloat16")(x).reshape(2, 9, 3, 8).swapaxes(1, 2) for i in range(3))
    inner = fo.attention(q, k, v, causal=True, precision="bfloat16").swapaxes(1, 2).reshape(2, 9, 24)
    np.testing.assert_array_equal(y, fo.Linear(w[3], biases[3], precision="bfloat16")(inner))
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(other(x, causal=True), y)
    assert "precision='bfloat16'" in repr(layer)
    assert np.abs(fo.MultiheadAttention(*w, *biases, heads=3, batch_first=True)(x, causal=True) - y).max() > 1e-4


def test_errors(draw):
    q = draw(2, 5, 8)
    for function in (fo.attention, reference.attention):
        with pytest.raises(ValueError, match="unknown precision 'int8'; known are 'float32', 'bfloat16'"):
            function(q, q, q, precision="int8")
    with pytest.raises(ValueError, match="unknown precision"):
        fo.MultiheadAttention(*draw(4, 8, 8), heads=2, precision="half")


def test_nothing_to_compute(bf16_products):
    empty = np.zeros((2, 3, 0, 4), np.float32), np.zeros((2, 3, 5, 4), np.float32)
    assert fo.attention(empty[0], empty[1], empty[1], precision="bfloat16").shape == (2, 3, 0, 4)
    y = fo.attention(empty[1], empty[0], empty[0], precision="bfloat16")
    np.testing.assert_array_equal(y, np.zeros((2, 3, 5, 4)))
    ones = np.ones((1, 4, 0), np.float32), np.ones((1, 4, 2), np.float32)
    np.testing.assert_array_equal(fo.attention(ones[0], ones[0], ones[1], precision="bfloat16"), np.ones((1, 4, 2)))
