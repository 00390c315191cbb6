"""Attention with its projections, the weights packed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core
from .._internal.arguments import integer
from .._internal.attention import attended, flag
from .layer import Layer, shown_precision
from .linear import Linear

if TYPE_CHECKING:
    from .._types import Array, Input, Precision


class MultiheadAttention(Layer):
    """Attention of several heads between its projections: ``y = attention(x w_q^T + b_q, k w_k^T + b_k, v w_v^T + b_v)
    w_out^T + b_out``.

    Parameters
    ----------
    w_q : ndarray, float32, (heads * d, inputs)
    w_k, w_v : ndarray, float32, (heads * d, inputs of keys) and (heads * dv, inputs of values)
    w_out : ndarray, float32, (outputs, heads * dv)
        All as the weights of :class:`Linear`. Copied.
    b_q, b_k, b_v, b_out : ndarray, float32, optional
    heads : int
    batch_first : bool
        x and y are (batch, tokens, width) rather than (tokens, batch, width).
    precision : "float32" or "bfloat16"
        Of the operands of the projections and of :func:`attention`.

    Raises
    ------
    TypeError
        An array is not float32, or an option has the wrong type.
    ValueError
        Shapes that do not fit.

    Notes
    -----
    ``layer(x, k=None, v=None, *, mask=None, causal=False, out=None)`` takes x (tokens, batch, inputs), or (tokens,
    inputs) without a batch. `k` is `x` where it is not given, and `v` is `k`. `mask` and `causal` are those of
    :func:`attention`: True takes part, where PyTorch's `attn_mask` has True for what does not. A layer may be called
    from many threads, copied and pickled.

    References
    ----------
    .. [1] Vaswani et al., "Attention is all you need", 2017, arXiv:1706.03762

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> layer = fo.MultiheadAttention(*np.ones((4, 8, 8), np.float32), heads=2)
    >>> layer(np.ones((5, 3, 8), np.float32)).shape
    (5, 3, 8)
    """

    def __init__(
        self,
        w_q: Input,
        w_k: Input,
        w_v: Input,
        w_out: Input,
        b_q: Input | None = None,
        b_k: Input | None = None,
        b_v: Input | None = None,
        b_out: Input | None = None,
        *,
        heads: int,
        batch_first: bool = False,
        precision: Precision = "float32",
    ) -> None:
        self._options = heads, batch_first = integer(heads, "heads"), bool(batch_first)
        named = dict(w_q=w_q, w_k=w_k, w_v=w_v, w_out=w_out)
        w = {name: _core.as_input(value, name, 2) for name, value in named.items()}
        shapes = ", ".join(f"{name} {value.shape}" for name, value in w.items())
        keys, values = len(w["w_k"]), len(w["w_v"])
        if len(w["w_q"]) != keys or keys % heads or values % heads or w["w_out"].shape[1] != values:
            raise ValueError(
                f"weights do not fit: {shapes}; w_q and w_k must have as many rows, w_out as many columns as w_v rows, "
                f"both a multiple of heads={heads}"
            )
        biases = [b_q, b_k, b_v, b_out]
        self._layers = tuple(Linear(value, b, precision=precision) for value, b in zip(w.values(), biases))
        self._precision = precision

    @property
    def _arguments(self):
        weights, biases = zip(*(layer._weights() for layer in self._layers), strict=True)
        heads, batch_first = self._options
        return (*weights, *biases), dict(heads=heads, batch_first=batch_first, precision=self._precision)

    def __call__(
        self,
        x: Input,
        k: Input | None = None,
        v: Input | None = None,
        *,
        mask: Input | None = None,
        causal: bool = False,
        out: Array | None = None,
    ) -> Array:
        heads, batch_first = self._options
        x = _core.as_input(x, "x", (2, 3))
        k = x if k is None else _core.as_input(k, "k", x.ndim)
        v = k if v is None else _core.as_input(v, "v", x.ndim)
        q, k, v = (self._by_heads(layer(a), heads, batch_first) for layer, a in zip(self._layers, (x, k, v)))
        y = attended(q, k, v, mask, flag(causal), 0, None, None, self._precision)  # (batch, heads, tokens, dv)
        y = y.swapaxes(-3, -2)
        y = y.reshape(*y.shape[:-2], y.shape[-2] * y.shape[-1])
        swapped = x.ndim == 3 and not batch_first
        if out is None or not swapped:
            y = self._layers[3](y, None, out)
            return y.swapaxes(0, 1) if swapped else y
        shape = (*x.shape[:-1], self._layers[3].n)
        self._layers[3](y, None, _core.checked_out(out, shape).swapaxes(0, 1))
        return out

    @staticmethod
    def _by_heads(x, heads, batch_first):
        """(tokens, batch, heads d) or as the layer has them as (batch, heads, tokens, d)."""
        x = x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)
        return x.swapaxes(0, 1) if x.ndim == 3 else x.swapaxes(1, 2) if batch_first else x.transpose(1, 2, 0, 3)

    def __repr__(self):
        return (
            f"MultiheadAttention({self._layers[0].k} -> {self._layers[3].n}, heads={self._options[0]}, "
            f"batch_first={self._options[1]}{shown_precision({'precision': self._precision})})"
        )
