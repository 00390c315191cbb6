"""Packed sequences while torch exports a module. They stay padded, with their lengths beside them, as recurrent layers
of networks take them: how many rows a packed one has only a call knows."""

import contextlib
import math
from functools import cache

from .fx_values import as_array
from .rnn_ops import Lengths, is_whole, whole
from .verify import mismatch

_TOLERANCE = 0.01  # that of bfloat16: rows that should not be read are NaN


@contextlib.contextmanager
def padded(torch, pack=None):
    """While this lasts, what torch.nn.utils.rnn packs in this thread is rows of all steps, one after another, or what
    `pack` makes; it is within `whole`. Yields a list that has the steps of all that was packed."""
    functions, base, steps = torch._VF, torch.nn.RNNBase, []
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

    def packed(x, lengths, batch_first):
        if not is_whole():
            return packs(x, lengths, batch_first)
        steps.append(x.shape[1 if batch_first else 0])
        return pack(x, lengths, batch_first) if pack else _packed(torch, x, lengths, batch_first)

    def pad(data, lengths, *rest):
        return _padded(torch, data, lengths, *rest) if isinstance(lengths, Lengths) else pads(data, lengths, *rest)

    before = dict(vars(functions))
    functions._pack_padded_sequence, functions._pad_packed_sequence = packed, pad
    base.get_expected_hidden_size = without_asking
    try:
        yield steps
    finally:
        for name in ("_pack_padded_sequence", "_pad_packed_sequence"):
            delattr(functions, name)
            if name in before:  # another's, in the place of torch's
                setattr(functions, name, before[name])
        base.get_expected_hidden_size = expected


def difference(torch, module, example):
    """Describes the difference between the results of a module with packed sequences and of one whose sequences stay
    padded; None if there is none. It packs with shorter lengths too, as those of the example may be all steps."""
    packs, seen = torch._VF._pack_padded_sequence, False
    for shorter in (lambda n: n, lambda n: torch.cat([n[:1], torch.ones_like(n[1:])]), torch.ones_like):
        ends = []

        def pack(x, lengths, batch_first, shorter=shorter, ends=ends):
            lengths = shorter(lengths)
            ends.append(int(lengths.min()))
            return packs(x, lengths, batch_first)

        def stay(x, lengths, batch_first, shorter=shorter):
            return _packed(torch, x, shorter(lengths), batch_first, fill=math.nan)

        try:
            with whole(torch), padded(torch, pack) as steps:
                expected = example.tensors(module, example.leaves)
        except Exception:  # whatever a module raises for lengths that it does not take
            continue
        seen |= all(n < m or m == 1 for n, m in zip(ends, steps, strict=True))
        wrong = _wrong(torch, module, example, stay, expected)
        if wrong:
            return wrong
    return None if seen else "no lengths below all steps could be tried: pass an example that has some"


def _wrong(torch, module, example, pack, expected):
    try:
        with whole(torch), padded(torch, pack):
            found = example.tensors(module, example.leaves)
    except Exception as e:  # such as of shapes that differ
        return str(e).splitlines()[0] if str(e) else type(e).__name__
    pairs = zip(found, expected, strict=True)
    return next((w for y, right in pairs if (w := mismatch(as_array(y), as_array(right), _TOLERANCE))), None)


def _packed(torch, x, lengths, batch_first, fill=None):
    x = x.transpose(0, 1) if batch_first else x
    steps, batch = x.shape[:2]
    lengths = Lengths(_checks(torch)(lengths, x), steps, batch, fill)
    return lengths.filled(torch, x).flatten(0, 1), lengths


def _padded(torch, data, lengths, batch_first, value, steps):
    """The opposite, with a value after the ends of rows."""
    y = data.unflatten(0, (lengths.steps, lengths.batch))
    given = lengths.tensor
    if steps is not lengths.longest:
        y = torch.constant_pad_nd(y, [0, 0] * (y.ndim - 1) + [0, steps - lengths.steps], value)
        given = _checks(torch)(given, y)
    y = torch.where(Lengths(given, y.shape[0], lengths.batch).live(torch, y), y, value)
    if steps is lengths.longest:
        y = _cut(torch)(y, given)
    return y.transpose(0, 1) if batch_first else y, given


@cache
def _checks(torch):
    """An operator of torch's library: lengths, which must be in 1..steps of x, as torch demands."""

    def run(lengths, x):
        if lengths.min() < 1 or lengths.max() > len(x):
            raise ValueError(f"lengths must be in 1..{len(x)}")
        return lengths.clone()

    operator = torch.library.custom_op(
        "fusedops::_checked_lengths", run, mutates_args=(), schema="(Tensor lengths, Tensor x) -> Tensor"
    )
    operator.register_fake(lambda lengths, x: torch.empty_like(lengths))
    return operator


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
