"""Attention, and the keys and values of a sequence that grows."""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from . import _core
from .layers import integer, multiplies
from .positions import options_by_name

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from ._types import Array, Input, Precision


MAX_AXES: int = 8  # before the heads


@options_by_name
def attention(
    q: Input,
    k: Input,
    v: Input,
    *,
    mask: Input | None = None,
    causal: bool = False,
    scale: float | None = None,
    precision: Precision = "float32",
    out: Array | None = None,
) -> Array:
    """Scaled dot-product attention in one pass: ``y = softmax(scale q k^T + mask) v`` for each head.

    ``y[h, i] = sum over j of w[h, i, j] v[g, j]``, ``w[h, i] = softmax over j of (scale q[h, i] . k[g, j] + mask[h, i,
    j])``, ``g = h // (heads / kv_heads)``

    Scores, softmax and the product with the values go over blocks of keys, and nothing of t x s elements is ever in
    memory. Scratch is less than 1 MB a thread for heads of up to 512 elements.

    Parameters
    ----------
    q : ndarray, float32, (..., heads, t, d)
        Any strides, as heads side by side in memory: ``x.reshape(n, t, heads, d).swapaxes(1, 2)`` is read as it is.
        Without the axis of heads, (t, d), there is one.
    k, v : ndarray, float32, (..., kv_heads, s, d) and (..., kv_heads, s, dv)
        kv_heads divides heads: each key head serves heads / kv_heads query heads in a row. The axes before are
        broadcast with q's.
    mask : ndarray, bool or float32, broadcastable to (..., heads, t, s), optional
        bool: True takes part. float32: added to the scores, so that -infinity leaves a key out.
    causal : bool
        Query i sees the keys 0 .. i, also where t is not s, as in PyTorch's `scaled_dot_product_attention` and ONNX's
        Attention without a past; what it does not see is not computed. Where the last query belongs to the last key, as
        behind keys of the past, see :meth:`KVCache.attention`.
    scale : float, optional
        ``1 / sqrt(d)`` by default.
    precision : "float32" or "bfloat16"
        Of the operands, as :class:`Linear` has it. With bfloat16, ``scale * q``, k, the weights before they are divided
        by their sum, and v are rounded to it; sums and softmax are float32. A single query, as of one token, is bound
        by reading k and v, and gains nothing.
    out : ndarray, float32, (..., heads, t, dv), optional
        Any strides; it may overlap an input.

    Returns
    -------
    ndarray, float32, (..., heads, t, dv)
        `out` where it is given. A new one is in q's order of memory where heads are side by side there, so that
        ``y.swapaxes(-3, -2).reshape(n, t, heads * dv)`` is no copy.

    Raises
    ------
    TypeError
        An array is not float32, a mask neither bool nor float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit. `out` has not been written to.

    Notes
    -----
    A query that sees no key, or whose scores are all -infinity, gives zeros; a plain softmax would give NaN. A NaN in a
    query, in a key that it sees or in a value reaches the row; where a value is infinite or NaN and its weight 0, the
    row is NaN, as in the plain product, unless `causal` has left the block out.

    A row's bits depend on its own query and on the keys that it sees, not on the number of threads, the batch, the
    strides or the other queries: token by token gives what the whole sequence gives with ``causal=True``.

    References
    ----------
    .. [1] Vaswani et al., "Attention is all you need", 2017, arXiv:1706.03762
    .. [2] Dao, Fu, Ermon, Rudra and Re, "FlashAttention: fast and memory-efficient exact attention with IO-awareness",
           2022, arXiv:2205.14135
    .. [3] Ainslie et al., "GQA: training generalized multi-query transformer models from multi-head checkpoints", 2023,
           arXiv:2305.13245

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> q = np.zeros((1, 3, 2), np.float32)
    >>> v = np.float32([[[3], [6], [9]]])
    >>> fo.attention(q, q, v, causal=True)[0, :, 0]
    array([3. , 4.5, 6. ], dtype=float32)
    """
    return _attention(q, k, v, mask, flag(causal), 0, scale, out, multiplies(precision))


def _attention(q, k, v, mask, causal, diagonal, scale, out, bfloat16=False):
    q, k, v, mask, scale, one = operands(q, k, v, mask, scale)
    if out is not None:
        _core.checked_out(out, (*q.shape[one:-1], v.shape[-1]))
    to = out[np.newaxis] if one and out is not None else out
    y = _core.attention(q, k, v, mask, causal, diagonal, scale, to, bfloat16)
    return out if out is not None else y[0] if one else y


def operands(
    q: Input, k: Input, v: Input, mask: Input | None, scale: float | None
) -> tuple[Array, Array, Array, NDArray[Any] | None, float, bool]:
    """All of them, checked, and whether there was no axis of heads, which is added; those before it are broadcast, the
    mask to the scores' shape."""
    q, k, v = _broadcast(q, k, v)
    one = q.ndim == 2
    if one:
        q, k, v = q[np.newaxis], k[np.newaxis], v[np.newaxis]
    if mask is not None:
        mask = _mask(mask, (*q.shape[:-1], k.shape[-2]), one)
    return q, k, v, mask, _scale(scale, q.shape[-1]), one


def _broadcast(q, k, v):
    """q, k and v, checked, the axes before the heads broadcast; of 2 axes each or of 3 and more."""
    q, k, v = _core.as_input(q, "q"), _core.as_input(k, "k"), _core.as_input(v, "v")
    axes = q.ndim, k.ndim, v.ndim
    if min(axes) < 2 or (2 in axes and max(axes) > 2):
        raise _misfit(
            q,
            k,
            v,
            ", but they must be (..., heads, t, d), (..., kv_heads, s, d) and (..., kv_heads, s, dv), "
            "or all without heads",
        )
    if q.shape[-1] != k.shape[-1]:
        raise _misfit(q, k, v, ": the last axes of q and k must have one length")
    if k.shape[-2] != v.shape[-2]:
        raise _misfit(q, k, v, ": k and v must have one number of tokens")
    if q.ndim == 2:
        return q, k, v
    heads, kv_heads = q.shape[-3], k.shape[-3]
    if kv_heads != v.shape[-3] or (heads % kv_heads if kv_heads else heads):
        raise _misfit(q, k, v, ": k and v must have one number of heads, which divides that of q")
    if q.shape[:-3] == k.shape[:-3] == v.shape[:-3] and q.ndim <= MAX_AXES + 3:
        return q, k, v
    try:
        batch = np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    except ValueError:
        raise _misfit(q, k, v, ": the axes before the heads cannot be broadcast to one shape") from None
    if len(batch) > MAX_AXES:
        raise _misfit(q, k, v, f": at most {MAX_AXES} axes may be before the heads; reshape them to fewer")
    return tuple(np.broadcast_to(a, (*batch, *a.shape[-3:])) for a in (q, k, v))


def _misfit(q, k, v, why):
    return ValueError(f"q has shape {q.shape}, k {k.shape} and v {v.shape}{why}")


def _mask(mask, shape, one):
    """The mask, broadcast to the scores' shape (..., heads, t, s)."""
    mask = _core.as_array(mask, "mask")
    if mask.dtype != bool:
        if mask.dtype.kind != "f":
            raise TypeError(
                f"mask has dtype {mask.dtype}, but must be bool (True takes part) or float32 (added): "
                "pass mask.astype(bool) or a sum"
            )
        mask = _core.as_input(mask, "mask")
    if mask.shape == shape:
        return mask
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        shape = shape[1:] if one else shape
        raise ValueError(f"mask has shape {mask.shape}, which cannot be broadcast to the scores' {shape}") from None


def flag(causal: bool) -> bool:
    if not isinstance(causal, (bool, np.bool_)):
        raise TypeError(f"causal must be True or False, not {causal!r}")
    return bool(causal)


_LARGEST = float(np.finfo(np.float32).max)


def _scale(scale, d):
    if scale is None:
        return 1 / math.sqrt(d) if d else 1.0
    if not isinstance(scale, Real) or isinstance(scale, (bool, np.bool_)):
        raise TypeError(f"scale must be a number, not {scale!r}")
    if not abs(scale) <= _LARGEST:  # type: ignore[operator]
        raise ValueError(f"scale must be a finite number that float32 holds, at most {_LARGEST:.3g}, not {scale!r}")
    return float(scale)


def embedding(table: Input, indices: ArrayLike, *, out: Array | None = None) -> Array:
    """Rows of a table: ``y[..., :] = table[indices[...], :]``.

    Parameters
    ----------
    table : ndarray, float32, (rows, d)
        Any strides, as PyTorch's ``nn.Embedding.weight``.
    indices : int or ndarray of integers, of any shape
        Each in -rows..rows-1; negative ones count from the end.
    out : ndarray, float32, (..., d) behind the shape of indices, optional
        Any strides; it may overlap `table`.

    Returns
    -------
    ndarray, float32, (..., d) behind the shape of indices
        `out` where it is given.

    Raises
    ------
    TypeError
        The table is not float32, or the indices are no integers.
    ValueError
        A table that has not two axes, or `out` of another shape.
    IndexError
        There is no such row. `out` has not been written to.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> fo.embedding(np.float32([[1, 2], [3, 4]]), [[0, -1, 1]])
    array([[[1., 2.],
            [3., 4.],
            [3., 4.]]], dtype=float32)
    """
    table, given = _core.as_input(table, "table", 2), _core.as_array(indices, "indices")
    if given.dtype.kind not in "iu" and given.size:  # NumPy's dtype of an empty list says nothing
        raise TypeError(f"indices has dtype {given.dtype}, but must be integers: pass indices.astype(np.int64)")
    rows = len(table)
    if given.size and not -rows <= given.min() <= given.max() < rows:
        wrong = given.min() if given.min() < -rows else given.max()
        raise IndexError(f"indices has {wrong}, but table {table.shape} has rows {-rows}..{rows - 1}")
    return _core.rows_of(table, np.array(given, np.int64, order="C"), out)


class KVCache:
    """The keys and values of sequences that grow token by token, for :func:`attention`.

    Memory for more tokens is there from the start, and doubled where it is used up: appending copies what is new, and
    attention reads the rest in place.

    Parameters
    ----------
    batch, heads : int
        Sequences, and key heads of each.
    d : int
        Elements of a key.
    dv : int, optional
        Elements of a value; `d` by default.
    capacity : int
        Tokens that there is memory for at first.

    Attributes
    ----------
    k, v : ndarray, float32, (batch, heads, len(cache), d) and (batch, heads, len(cache), dv)
        What has been appended: views, which a later append may leave behind.

    Raises
    ------
    TypeError, ValueError
        Sizes that are no ints, or not positive.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> cache = fo.KVCache(1, 2, 4)
    >>> for token in range(3):
    ...     q = k = v = np.full((1, 2, 1, 4), token, np.float32)
    ...     cache.append(k, v)
    ...     y = cache.attention(q)
    >>> len(cache), y.shape
    (3, (1, 2, 1, 4))
    """

    def __init__(self, batch: int, heads: int, d: int, dv: int | None = None, *, capacity: int = 64) -> None:
        batch, heads, d = integer(batch, "batch"), integer(heads, "heads"), integer(d, "d")
        dv, capacity = d if dv is None else integer(dv, "dv"), integer(capacity, "capacity")
        self._k, self._v = (np.empty((batch, heads, capacity, n), np.float32) for n in (d, dv))
        self._tokens = 0

    def __len__(self) -> int:
        return self._tokens

    def __repr__(self):
        batch, heads, capacity, d = self._k.shape
        return f"KVCache({batch}, {heads}, {d}, {self._v.shape[-1]}, capacity={capacity}) of {self._tokens} tokens"

    @property
    def k(self) -> Array:
        return self._k[:, :, : self._tokens]

    @property
    def v(self) -> Array:
        return self._v[:, :, : self._tokens]

    def append(self, k: Input, v: Input) -> None:
        """Adds the keys and values of t tokens.

        Parameters
        ----------
        k, v : ndarray, float32, (batch, heads, t, d) and (batch, heads, t, dv)

        Raises
        ------
        TypeError, ValueError
            Not float32, or shapes that do not fit. Nothing has been appended.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> cache = fo.KVCache(1, 1, 2)
        >>> cache.append(np.ones((1, 1, 3, 2), np.float32), np.zeros((1, 1, 3, 2), np.float32))
        >>> cache
        KVCache(1, 1, 2, 2, capacity=64) of 3 tokens
        """
        k, v = _core.as_input(k, "k"), _core.as_input(v, "v")
        t = k.shape[2] if k.ndim == 4 else 1
        for given, name, own in ((k, "k", self._k), (v, "v", self._v)):
            wanted = (*own.shape[:2], t, own.shape[3])
            if given.shape != wanted:
                raise ValueError(
                    f"{name} has shape {given.shape}, but must be {wanted}: k {k.shape} and v {v.shape} go to {self!r}"
                )
        end = self._tokens + t
        if end > self._k.shape[2]:
            self._k, self._v = self._grown(self._k, end), self._grown(self._v, end)
        self._k[:, :, self._tokens : end] = k
        self._v[:, :, self._tokens : end] = v
        self._tokens = end

    def _grown(self, own, tokens):
        batch, heads, capacity, n = own.shape
        more = np.empty((batch, heads, max(2 * capacity, tokens), n), np.float32)
        more[:, :, : self._tokens] = own[:, :, : self._tokens]
        return more

    def truncate(self, tokens: int = 0) -> None:
        """Forgets all but the first `tokens` tokens: a new sequence, or one that goes back. Memory is kept.

        Parameters
        ----------
        tokens : int

        Raises
        ------
        TypeError, ValueError
            `tokens` is no int, or not in 0 .. len(cache).

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> cache = fo.KVCache(1, 1, 2)
        >>> cache.append(*np.ones((2, 1, 1, 3, 2), np.float32))
        >>> cache.truncate(1)
        >>> len(cache)
        1
        """
        tokens = integer(tokens, "tokens", 0)
        if tokens > self._tokens:
            raise ValueError(f"tokens is {tokens}, but the cache has {self._tokens}")
        self._tokens = tokens

    def attention(
        self,
        q: Input,
        *,
        mask: Input | None = None,
        scale: float | None = None,
        precision: Precision = "float32",
        out: Array | None = None,
    ) -> Array:
        """Attention of the last t tokens, see :func:`attention`: query i sees the keys 0 .. len(cache) - t + i.

        Parameters
        ----------
        q : ndarray, float32, (batch, query heads, t, d)
            Of the tokens that were appended last.
        mask, scale, precision, out
            See :func:`attention`; a mask has len(cache) keys.

        Returns
        -------
        ndarray, float32, (batch, query heads, t, dv)
            With the bits that :func:`attention` of the whole sequence with ``causal=True`` has for these tokens.

        Raises
        ------
        TypeError, ValueError
            As :func:`attention`; also for more queries than the cache has tokens.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> cache = fo.KVCache(1, 1, 2)
        >>> cache.append(np.zeros((1, 1, 2, 2), np.float32), np.float32([[[[2, 4], [4, 8]]]]))
        >>> cache.attention(np.zeros((1, 4, 1, 2), np.float32))[0, 0]
        array([[3., 6.]], dtype=float32)
        """
        q, bfloat16 = _core.as_input(q, "q"), multiplies(precision)
        if q.ndim != 4 or q.shape[2] > self._tokens:
            raise ValueError(
                f"q has shape {q.shape}, but must be (batch, query heads, t, d) with t up to the {self._tokens} tokens "
                "of the cache"
            )
        return _attention(q, self.k, self.v, mask, True, self._tokens - q.shape[2], scale, out, bfloat16)
