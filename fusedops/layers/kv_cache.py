"""The keys and values of a sequence that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import _core
from .._internal.arguments import checked_precision, integer
from .._internal.attention import attended

if TYPE_CHECKING:
    from .._types import Array, Input, Precision


class KVCache:
    """The keys and values of sequences that grow token by token, for :func:`attention`.

    Memory for more tokens is allocated at the start and doubled when it is full. Appending copies only the new rows,
    and attention reads the others in place.

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
        Sizes that are not ints, or not positive.

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
            `tokens` is not an int, or not in 0 .. len(cache).

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
            Bit-identical to what :func:`attention` of the whole sequence with ``causal=True`` has for these tokens.

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
        q, precision = _core.as_input(q, "q"), checked_precision(precision)
        if q.ndim != 4 or q.shape[2] > self._tokens:
            raise ValueError(
                f"q has shape {q.shape}, but must be (batch, query heads, t, d) with t up to the {self._tokens} tokens "
                "of the cache"
            )
        return attended(q, self.k, self.v, mask, True, self._tokens - q.shape[2], scale, out, precision)
