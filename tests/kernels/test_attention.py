"""Attention: against float64, with equal bits whatever the threads, the batch and the memory, and the errors."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fusedops as fo
import oracle
from catalog import Draw, using_isa
from fusedops import _core, reference
from guard_pages import guarded

# Query heads, key heads, queries, keys, elements of keys and of values: tile borders, blocks of 256 keys and of 48
# rows, and few rows.
SIZES = [
    (1, 1, 1, 1, 1, 1),
    (2, 2, 5, 7, 3, 4),
    (3, 3, 1, 300, 16, 32),
    (4, 2, 1, 257, 64, 64),
    (8, 2, 3, 31, 20, 40),
    (1, 1, 48, 256, 32, 33),
    (1, 1, 49, 255, 64, 31),
    (2, 1, 97, 513, 24, 64),
    (6, 3, 30, 64, 80, 80),
    (1, 1, 13, 530, 128, 7),
    (2, 2, 2, 1024, 65, 48),
    (1, 1, 4, 40, 600, 600),
]
MASKS = [None, "bool", "float", "rows", "keys", "holes"]


def arrays(draw, heads, kv_heads, t, s, d, dv, n=2):
    return draw(n, heads, t, d) * 3, draw(n, kv_heads, s, d) * 3, draw(n, kv_heads, s, dv)


def mask_of(draw, kind, n, heads, t, s):
    if kind is None:
        return None
    shape = {"rows": (t, 1), "keys": (n, 1, 1, s)}.get(kind, (n, heads, t, s))
    if kind == "float":
        return draw(*shape) * 4
    mask = draw(*shape) < 0.3
    if kind == "holes":
        return np.where(mask, draw(*shape), np.float32(-np.inf))
    return mask


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values(isa, draw, sizes, causal, mask):
    q, k, v = arrays(draw, *sizes)
    m = mask_of(draw, mask, 2, sizes[0], *sizes[2:4])
    expected = oracle.attention(q, k, v, mask=m, causal=causal)
    for module in (fo, reference):
        oracle.check(module.attention(q, k, v, mask=m, causal=causal), expected)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_bits_do_not_depend_on_threads_batch_or_strides(isa, draw, sizes):
    q, k, v = arrays(draw, *sizes, n=3)
    m = mask_of(draw, "float", 3, sizes[0], *sizes[2:4])
    expected = {}
    for threads in (1, 2, 3):
        with using_threads(threads):
            for causal, mask in ((False, None), (True, None), (False, m)):
                y = fo.attention(q, k, v, causal=causal, mask=mask)
                np.testing.assert_array_equal(y, expected.setdefault((causal, mask is None), y))
                alone = fo.attention(q[1], k[1], v[1], causal=causal, mask=None if mask is None else mask[1])
                np.testing.assert_array_equal(alone, y[1])
                for order in ((0, 2, 1, 3), (0, 1, 3, 2), (3, 0, 2, 1)):
                    others = [
                        None if a is None else np.ascontiguousarray(a.transpose(order)).transpose(np.argsort(order))
                        for a in (q, k, v, mask)
                    ]
                    np.testing.assert_array_equal(fo.attention(*others[:3], causal=causal, mask=others[3]), y)
                back = [None if a is None else a[:, :, ::-1, ::-1].copy()[:, :, ::-1, ::-1] for a in (q, k, v, mask)]
                out = np.full((3, *y.shape[1:3], 2 * y.shape[3]), 7, np.float32)[..., ::2]
                assert fo.attention(*back[:3], causal=causal, mask=back[3], out=out) is out
                np.testing.assert_array_equal(out, y)


class using_threads:
    def __init__(self, threads):
        self.threads = threads

    def __enter__(self):
        self.before = fo.get_num_threads()
        fo.set_num_threads(self.threads)

    def __exit__(self, *_):
        fo.set_num_threads(self.before)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_sizes(data):
    kv_heads, group = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    t, s = data.draw(st.integers(0, 110)), data.draw(st.integers(0, 600))
    d, dv = data.draw(st.integers(0, 70)), data.draw(st.integers(0, 70))
    causal, mask, seed = data.draw(st.booleans()), data.draw(st.sampled_from(MASKS)), data.draw(st.integers(0, 9))
    draw = Draw(seed)
    q, k, v = arrays(draw, kv_heads * group, kv_heads, t, s, d, dv, 1)
    m = mask_of(draw, mask, 1, kv_heads * group, t, s)
    expected = oracle.attention(q, k, v, mask=m, causal=causal)
    for isa in fo.available_isas():
        with using_isa(isa):
            y = fo.attention(q, k, v, mask=m, causal=causal)
            oracle.check(y, expected)
            with using_threads(2):
                np.testing.assert_array_equal(fo.attention(q, k, v, mask=m, causal=causal), y)


@pytest.mark.parametrize("t", [1, 5, 100])
def test_rows_that_see_nothing(isa, draw, t):
    q, k, v = arrays(draw, 2, 1, t, 300, 16, 16)
    seen = np.ones((t, 300), bool)
    seen[t // 2] = False
    for mask in (seen, np.where(seen, np.float32(0), np.float32(-np.inf))):
        for module in (fo, reference):
            y = module.attention(q, k, v, mask=mask)
            assert (y[:, :, t // 2] == 0).all() and (y[:, :, t // 2 + 1 :] != 0).all()
    first = fo.attention(q, k, v, mask=np.arange(300) >= 290)  # whole blocks of keys, then some that are seen
    oracle.check(first, oracle.attention(q, k[:, :, 290:], v[:, :, 290:]))
    assert (fo.attention(q, k[:, :, :0], v[:, :, :0]) == 0).all()


@pytest.mark.parametrize("t, s", [(1, 40), (7, 300), (60, 300)])
def test_nan_and_large_values(isa, draw, t, s):
    q, k, v = arrays(draw, 1, 1, t, s, 16, 16)
    plain = fo.attention(q, k, v)
    for a, rows in ((q, np.arange(t) == t // 2), (k, np.ones(t, bool)), (v, np.ones(t, bool))):
        changed = a.copy()
        changed[0, 0, t // 2 if a is q else s // 2] = np.nan
        y = fo.attention(*(changed if a is b else b for b in (q, k, v)))
        assert np.isnan(y[0, 0, rows]).all()
        np.testing.assert_array_equal(y[0, 0, ~rows], plain[0, 0, ~rows])
        np.testing.assert_array_equal(y[1], plain[1])
    taken = np.arange(s) != s // 2
    hidden = k.copy()
    hidden[:, :, s // 2] = np.nan
    oracle.check(fo.attention(q, hidden, v, mask=taken), oracle.attention(q, k, v, mask=taken))
    large = np.sign(q) * np.float32(1e4)
    for scale in (1.0, 1e4):
        oracle.check(
            fo.attention(large, np.sign(k), v, scale=scale), oracle.attention(large, np.sign(k), v, scale=scale)
        )
    least = np.full((t, s), np.finfo(np.float32).min)
    np.testing.assert_allclose(fo.attention(q, k, v, mask=least)[0, 0, 0], v[0, 0].mean(0), rtol=1e-4, atol=1e-5)


def test_causal_is_what_it_is_elsewhere(isa, draw):
    for t, s in ((5, 9), (9, 5), (300, 300), (1, 3)):
        q, k, v = arrays(draw, 2, 2, t, s, 8, 8)
        np.testing.assert_allclose(
            fo.attention(q, k, v, causal=True),
            fo.attention(q, k, v, mask=np.tril(np.ones((t, s), bool))),
            rtol=1e-5,
            atol=1e-6,
        )


def test_what_causal_leaves_out_is_not_read(isa, draw):
    q, k, v = arrays(draw, 1, 1, 300, 600, 16, 16)
    k[:, :, 300:], v[:, :, 300:] = np.nan, np.nan
    assert np.isfinite(fo.attention(q, k, v, causal=True)).all()


def test_heads_side_by_side(isa, draw):
    x = draw(2, 33, 3, 4, 16)
    q, k, v = (x[:, :, i].swapaxes(1, 2) for i in range(3))
    y = fo.attention(q, k, v)
    np.testing.assert_array_equal(y, fo.attention(*map(np.ascontiguousarray, (q, k, v))))
    assert y.swapaxes(1, 2).flags.c_contiguous


def test_axes_before_the_heads(isa, draw):
    q, k, v, mask = draw(2, 1, 4, 5, 8), draw(3, 2, 6, 8), draw(2, 3, 2, 6, 8), draw(3, 1, 1, 6)
    y = fo.attention(q, k, v, mask=mask)
    assert y.shape == (2, 3, 4, 5, 8)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_array_equal(y[i, j], fo.attention(q[i, 0], k[j], v[i, j], mask=mask[j]))
    one = fo.attention(q[0, 0, 0], k[0, 0], v[0, 0, 0], mask=mask[0, 0])
    np.testing.assert_array_equal(one, fo.attention(q[0, 0, :1], k[0, :1], v[0, 0, :1], mask=mask[0])[0])


def test_out_may_overlap(isa, draw):
    q, k, v = arrays(draw, 2, 2, 60, 60, 16, 16)
    expected = fo.attention(q, k, v)
    for i in range(3):
        given = [q.copy(), k.copy(), v.copy()]
        assert fo.attention(*given, out=given[i]) is given[i]
        np.testing.assert_array_equal(given[i], expected)


Q, KV = np.zeros((2, 4, 3, 8), np.float32), np.zeros((2, 2, 5, 8), np.float32)
WRONG = [
    (dict(q=Q.astype(np.float64)), TypeError, "q has dtype float64"),
    (
        dict(k=KV[..., :7]),
        ValueError,
        "q has shape (2, 4, 3, 8), k (2, 2, 5, 7) and v (2, 2, 5, 8): the last axes of q and k must have one length",
    ),
    (dict(v=KV[:, :, :4]), ValueError, "k and v must have one number of tokens"),
    (dict(q=Q[:, :3]), ValueError, "one number of heads, which divides that of q"),
    (dict(k=KV[:, :1]), ValueError, "one number of heads"),
    (dict(q=np.concatenate([Q, Q])[:3]), ValueError, "the axes before the heads cannot be broadcast"),
    (dict(q=Q[0, 0]), ValueError, "or all without heads"),
    (dict(q=Q[0, 0, 0]), ValueError, "must be (..., heads, t, d)"),
    (dict(q=Q.reshape((1,) * 9 + Q.shape)), ValueError, "at most 8 axes"),
    (
        dict(mask=np.zeros((3, 4), bool)),
        ValueError,
        "mask has shape (3, 4), which cannot be broadcast to the scores' (2, 4, 3, 5)",
    ),
    (dict(mask=np.zeros((3, 5), np.int64)), TypeError, "mask has dtype int64, but must be bool"),
    (dict(mask=np.zeros((3, 5))), TypeError, "mask has dtype float64"),
    (dict(causal=1), TypeError, "causal must be True or False, not 1"),
    (dict(scale="a"), TypeError, "scale must be a number"),
    (dict(scale=np.inf), ValueError, "scale must be a finite number"),
    (dict(scale=1e40), ValueError, "scale must be a finite number that float32 holds"),
    (
        dict(out=np.zeros((2, 4, 3, 7), np.float32)),
        ValueError,
        "out has shape (2, 4, 3, 7), but the result has shape (2, 4, 3, 8)",
    ),
]


@pytest.mark.parametrize("module", [fo, reference])
@pytest.mark.parametrize("given, kind, text", WRONG)
def test_errors(module, given, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        module.attention(**(dict(q=Q, k=KV, v=KV) | given))


# ---- the cache


@pytest.mark.parametrize("heads, kv_heads", [(2, 2), (4, 2), (8, 1)])
def test_token_by_token_has_the_bits_of_the_whole_sequence(isa, threads, draw, heads, kv_heads):
    q, k, v = arrays(draw, heads, kv_heads, 530, 530, 32, 40)
    whole, cache = fo.attention(q, k, v, causal=True), fo.KVCache(2, kv_heads, 32, 40, capacity=3)
    at = 0
    for step in (1, 1, 3, 250, 1, 1, 20, 1, 252):
        cache.append(k[:, :, at : at + step], v[:, :, at : at + step])
        np.testing.assert_array_equal(cache.attention(q[:, :, at : at + step]), whole[:, :, at : at + step])
        at += step
    assert len(cache) == at == 530
    np.testing.assert_array_equal(cache.k, k)
    cache.truncate(100)
    np.testing.assert_array_equal(cache.attention(q[:, :, 99:100]), whole[:, :, 99:100])


def test_a_cache_refuses_what_does_not_fit(draw):
    cache = fo.KVCache(1, 2, 4, capacity=2)
    assert repr(cache) == "KVCache(1, 2, 4, 4, capacity=2) of 0 tokens"
    for k, v in ((draw(1, 2, 1, 5), draw(1, 2, 1, 4)), (draw(1, 2, 1, 4), draw(1, 2, 2, 4)), (draw(2, 4), draw(2, 4))):
        with pytest.raises(ValueError, match="but must be"):
            cache.append(k, v)
    with pytest.raises(TypeError, match="k has dtype float64"):
        cache.append(np.zeros((1, 2, 1, 4)), draw(1, 2, 1, 4))
    assert len(cache) == 0
    cache.append(draw(1, 2, 3, 4), draw(1, 2, 3, 4))
    with pytest.raises(ValueError, match="up to the 3 tokens of the cache"):
        cache.attention(draw(1, 2, 4, 4))
    with pytest.raises(ValueError, match="tokens is 4, but the cache has 3"):
        cache.truncate(4)
    with pytest.raises(TypeError, match="heads must be an int"):
        fo.KVCache(1, 2.0, 4)


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("narrow", [np.dtype(np.float16), _core.BFLOAT16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_keys_and_values_of_16_bits(isa, draw, sizes, narrow, precision, order, at_end):
    """Read as they are, with the bits of the same values in float32 but for the order of one query's sums, and nothing
    beyond them."""
    q, *given = arrays(draw, *sizes)
    results = []
    for kind in narrow, np.dtype(np.float32):
        k, v = (oracle.cast(oracle.cast(a, narrow), kind) for a in given)
        k = guarded(k.swapaxes(2, 3), at_end).swapaxes(2, 3) if order == "columns" else guarded(k, at_end)
        y = np.empty((*q.shape[:3], sizes[5]), np.float32)
        program = _core.Program()
        program.append("attention", q, k, guarded(v, at_end), y, kv_type=kind, precision=precision)
        program.run(())
        results.append(y)
    if precision == "bfloat16" or order == "columns" or sizes[0] // sizes[1] * sizes[2] > 1:
        np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


def test_other_types_of_keys_and_values_are_refused(draw):
    q, k = draw(1, 3, 8), draw(1, 5, 8).astype(np.float64)
    with pytest.raises(TypeError, match="must be float32, float16 or bfloat16"):
        _core.Program().append("attention", q, k, k, q.copy(), kv_type=k.dtype)
