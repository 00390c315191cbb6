"""Packed sequences in modules that from_torch loads: rows of padded steps, with their lengths as an input."""

import threading

import numpy as np
import pytest

import fusedops as fo

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from fusedops.graph.frontends.torch import rnn_ops
from fusedops.graph.frontends.torch.packed_ops import padded

LENGTHS = [3, 6, 2], [5, 5, 1, 9], [1], [7, 7]


class Encoder(nn.Module):
    def __init__(self, kind=nn.LSTM, enforce_sorted=False, batch_first=True, whole=False, **options):
        super().__init__()
        self.embedding, self.inside = nn.Embedding(50, 6), nn.Linear(6, 6)
        self.layer = kind(6, 8, batch_first=batch_first, bidirectional=True, **options)
        self.head = nn.Linear(2 * (options.get("proj_size") or 8), 3)
        self.packing = dict(batch_first=batch_first, enforce_sorted=enforce_sorted)
        self.whole = whole

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths, **self.packing)
        packed = PackedSequence(self.inside(packed.data), *packed[1:])
        y, states = self.layer(packed)
        first = self.packing["batch_first"]
        steps = words.shape[1 if first else 0]
        y, n = pad_packed_sequence(y, first, padding_value=0.5, total_length=steps + 2 if self.whole else None)
        return self.head(y), states, n


CASES = {
    "sorted by torch": {},
    "sorted by the caller": dict(enforce_sorted=True),
    "gru, steps first": dict(kind=nn.GRU, batch_first=False),
    "rnn of two layers": dict(kind=nn.RNN, num_layers=2),
    "projection": dict(proj_size=4),
    "padded to more steps": dict(whole=True),
}


@pytest.mark.parametrize("name", CASES)
def test_packed_sequences(name):
    torch.manual_seed(0)
    module = Encoder(**CASES[name]).eval()
    in_order, first = CASES[name].get("enforce_sorted"), module.packing["batch_first"]

    def example(lengths):
        words = torch.randint(0, 50, (len(lengths), max(7, *lengths)))
        return words if first else words.T.contiguous(), torch.tensor(sorted(lengths)[::-1] if in_order else lengths)

    free = ({0: "batch", 1: "steps"} if first else {0: "steps", 1: "batch"}), {0: "batch"}
    model = fo.from_torch(module, example([7, 4, 2]), dynamic_shapes=free)
    assert not [e for e in model.explain().numpy if e.operator == "LSTM"]
    for lengths in LENGTHS:
        given = example(lengths)
        with torch.no_grad():
            expected = torch.utils._pytree.tree_leaves(module(*given))
        for y, known in zip(model(*(g.numpy() for g in given)), expected, strict=True):
            np.testing.assert_allclose(y, known.numpy(), rtol=1e-5, atol=1e-6)


def test_lengths_that_torch_refuses():
    """Of 0, over the steps, and over the total length that a module asks for."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(4, 8)

        def forward(self, x, lengths):
            y = self.layer(pack_padded_sequence(x, lengths, enforce_sorted=False))[0]
            return pad_packed_sequence(y, total_length=4)[0]

    module, x = Model().eval(), torch.randn(5, 3, 4)
    model = fo.from_torch(module, (x, torch.tensor([4, 2, 3])))
    lengths = torch.tensor([1, 2, 4])
    np.testing.assert_allclose(model(x.numpy(), lengths.numpy()), module(x, lengths).detach(), rtol=1e-5, atol=1e-6)
    for wrong, limit in ([2, 5, 3], 4), ([0, 2, 3], 5), ([2, 6, 3], 5):
        with pytest.raises((RuntimeError, ValueError)):
            module(x, torch.tensor(wrong))
        with pytest.raises(ValueError, match=rf"lengths must be in 1\.\.{limit}"):
            model(x.numpy(), np.array(wrong))


@pytest.mark.parametrize("part", [lambda y: y, lambda y: y.batch_sizes], ids=["all", "batch sizes"])
def test_packed_results_are_refused(part):
    class Model(nn.Module):
        def forward(self, x, lengths):
            return part(pack_padded_sequence(x, lengths, enforce_sorted=False))

    with pytest.raises(ValueError, match="packed sequences and their batch sizes cannot be results"):
        fo.from_torch(Model(), (torch.randn(5, 3, 4), torch.tensor([5, 2, 3])))


def test_packing_without_a_recurrent_layer():
    class Model(nn.Module):
        def forward(self, x, lengths):
            y = pack_padded_sequence(x, lengths, enforce_sorted=False)
            return pad_packed_sequence(y._replace(data=y.data.exp()), total_length=x.shape[0])[0]

    x, lengths = torch.randn(5, 3, 4), torch.tensor([2, 5, 3])
    model = fo.from_torch(Model(), (x, torch.tensor([5, 5, 5])))
    np.testing.assert_allclose(model(x.numpy(), lengths.numpy()), Model()(x, lengths), rtol=1e-5, atol=1e-6)


def test_torch_is_not_changed_for_modules_that_do_not_pack():
    """Another thread may compile at that time, and Dynamo would look into what stands there."""
    seen = []

    class Model(nn.Module):
        def forward(self, x):
            seen.append("_pack_padded_sequence" in vars(torch._VF))
            return x.exp()

    fo.from_torch(Model(), torch.ones(2, 3))
    assert len(seen) > 1 and not any(seen)


def test_other_batch_sizes_are_refused():
    class Counts(nn.Module):
        def forward(self, x, lengths):
            return pack_padded_sequence(x, lengths, enforce_sorted=False).batch_sizes[1] * x

    with pytest.raises(ValueError, match="does not have the batch sizes of packed sequences"):
        fo.from_torch(Counts(), (torch.ones(3, 2, 4), torch.tensor([3, 2])))


class Rows(nn.Module):
    """What `reads` makes of the rows of a packed result."""

    def __init__(self, reads):
        super().__init__()
        self.layer, self.reads = nn.LSTM(4, 8), reads

    def forward(self, x, lengths):
        return self.reads(self.layer(pack_padded_sequence(x, lengths, enforce_sorted=False))[0].data)


ACROSS = {
    "mean": lambda y: y.mean(0),
    "largest": lambda y: y.relu().amax(0),
    "all": lambda y: y,
    "one after an end": lambda y: y[-1],
    "softmax": lambda y: y.softmax(0).sum(),
}


@pytest.mark.parametrize("name, lengths", [*((name, [5, 5, 5]) for name in ACROSS), ("mean", [5]), ("all", [5, 2])])
def test_what_reads_across_packed_rows_is_refused(name, lengths):
    """Also where the example's rows are all as long, so that nothing differs for it."""
    with pytest.raises(ValueError, match="padded sequences"):
        fo.from_torch(Rows(ACROSS[name]), (torch.randn(5, len(lengths), 4), torch.tensor(lengths)))


def test_what_a_row_decides_is_loaded():
    """Elementwise, and by each row alone."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.LSTM(4, 8), nn.LayerNorm(8)

        def forward(self, x, lengths):
            y = self.layer(pack_padded_sequence(x, lengths, enforce_sorted=False))[0]
            y = y._replace(data=self.norm(y.data).softmax(-1).exp())
            return pad_packed_sequence(y, total_length=x.shape[0])[0].mean(0)

    module, x = Model().eval(), torch.randn(5, 3, 4)
    model = fo.from_torch(module, (x, torch.tensor([5, 5, 5])))
    lengths = torch.tensor([2, 4, 3])
    np.testing.assert_allclose(model(x.numpy(), lengths.numpy()), module(x, lengths).detach(), rtol=1e-5, atol=1e-6)


def _packs():
    packed = pack_padded_sequence(torch.ones(3, 2, 4), torch.tensor([3, 2]))
    y, _ = pad_packed_sequence(nn.GRU(4, 5)(packed)[0])
    return packed.data.shape == (5, 4) and packed.batch_sizes.tolist() == [2, 2, 1] and y.shape == (3, 2, 5)


def test_torch_packs_as_before():
    assert _packs() and not {"_pack_padded_sequence", "_pad_packed_sequence"} & set(vars(torch._VF))


def test_a_function_in_the_place_of_torchs_stays(monkeypatch):
    def mine(*given):
        return torch._C._VariableFunctions._pack_padded_sequence(*given)

    monkeypatch.setitem(vars(torch._VF), "_pack_padded_sequence", mine)
    fo.from_torch(nn.Linear(3, 4), torch.ones(2, 3))
    assert vars(torch._VF)["_pack_padded_sequence"] is mine and "_pad_packed_sequence" not in vars(torch._VF)


def test_another_thread_packs_as_before():
    found = []
    thread = threading.Thread(target=lambda: found.append(_packs()))
    with rnn_ops.whole(torch), padded(torch):
        thread.start()
        thread.join()
        assert isinstance(pack_padded_sequence(torch.ones(3, 2, 4), torch.tensor([3, 2])).batch_sizes, rnn_ops.Lengths)
    assert found == [True]
