"""Packed sequences while torch exports a module. They stay padded, with their lengths beside them, as recurrent layers
of networks take them: how many rows a packed one has only a call knows."""

import contextlib
from functools import cache

from .rnn_ops import Lengths, is_whole


@contextlib.contextmanager
def padded(torch):
    """While this lasts, what torch.nn.utils.rnn packs in this thread is rows of all steps, one after another; it is
    within `whole`."""
    functions, base = torch._VF, torch.nn.RNNBase
    packs, pads, expected = (
        functions._pack_padded_sequence,
        functions._pad_packed_sequence,
        base.get_expected_hidden_size,
    )

    def without_asking(self, x, batch_sizes):
        """The expected shape of states; int() of an open size would fix it."""
        if not isinstance(batch_sizes, Lengths):
            return expected(self, x, batch_sizes)
        layers = self.num_layers * (1 + self.bidirectional)
        return layers, batch_sizes[0], self.proj_size or self.hidden_size

    def pack(x, lengths, batch_first):
        return (_packed if is_whole() else packs)(x, lengths, batch_first)

    def pad(data, lengths, *rest):
        return _padded(torch, data, lengths, *rest) if isinstance(lengths, Lengths) else pads(data, lengths, *rest)

    functions._pack_padded_sequence, functions._pad_packed_sequence = pack, pad
    base.get_expected_hidden_size = without_asking
    try:
        yield
    finally:
        del functions._pack_padded_sequence, functions._pad_packed_sequence
        base.get_expected_hidden_size = expected


def _packed(x, lengths, batch_first):
    x = x.transpose(0, 1) if batch_first else x
    return x.flatten(0, 1), Lengths(lengths, *x.shape[:2])


def _padded(torch, data, lengths, batch_first, value, steps):
    """The opposite, with a value behind the ends of rows."""
    y = data.unflatten(0, (lengths.steps, lengths.batch))
    live = torch.arange(lengths.steps).unsqueeze(1) < lengths.tensor
    y = torch.where(live.reshape(*live.shape, *[1] * (y.ndim - 2)), y, value)
    if steps is lengths.longest:
        y = _cut(torch)(y, lengths.tensor)
    else:
        y = torch.constant_pad_nd(y, [0, 0] * (y.ndim - 1) + [0, steps - lengths.steps], value)
    return y.transpose(0, 1) if batch_first else y, lengths.tensor


@cache
def _cut(torch):
    """An operator of torch's library: the steps up to the largest of lengths."""

    def run(y, lengths):
        return y[: int(lengths.max())].clone()

    def shape(y, lengths):
        return y.new_empty(torch.library.get_ctx().new_dynamic_size(), *y.shape[1:])

    operator = torch.library.custom_op(
        "fusedops::_cut_steps", run, mutates_args=(), schema="(Tensor y, Tensor lengths) -> Tensor"
    )
    operator.register_fake(shape)
    return operator
