"""Attention, and rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._internal.arguments import checked_precision
from .._internal.attention import attended, flag
from .._internal.keyword_options import options_by_name

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .._types import Array, Input, Precision


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
        Any strides, such as those of interleaved heads: ``x.reshape(n, t, heads, d).swapaxes(1, 2)`` is read as it is.
        Without the axis of heads, (t, d), there is one.
    k, v : ndarray, float32, (..., kv_heads, s, d) and (..., kv_heads, s, dv)
        kv_heads divides heads: each key head serves heads / kv_heads query heads in a row. The axes before are
        broadcast with q's.
    mask : ndarray, bool or float32, broadcastable to (..., heads, t, s), optional
        bool: True takes part. float32: added to the scores, so that -infinity leaves a key out.
    causal : bool
        Query i sees the keys 0 .. i, also where t is not s, as in PyTorch's `scaled_dot_product_attention` and ONNX's
        Attention without a past; what it does not see is not computed. Where the last query belongs to the last key, as
        after keys of the past, see :meth:`KVCache.attention`.
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
    return attended(q, k, v, mask, flag(causal), 0, scale, out, checked_precision(precision))


def embedding(table: Input, indices: ArrayLike, *, out: Array | None = None) -> Array:
    """Rows of a table: ``y[..., :] = table[indices[...], :]``.

    Parameters
    ----------
    table : ndarray, float32, (rows, d)
        Any strides, as PyTorch's ``nn.Embedding.weight``.
    indices : int or ndarray of integers, of any shape
        Each in -rows..rows-1; negative ones count from the end.
    out : ndarray, float32, (..., d) after the shape of indices, optional
        Any strides; it may overlap `table`.

    Returns
    -------
    ndarray, float32, (..., d) after the shape of indices
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
