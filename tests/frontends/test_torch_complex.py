"""Modules of PyTorch with complex numbers inside: spectra, spectrograms, rotary positions. from_torch itself compares
each with the module, on other values and in other sizes too."""

import numpy as np
import pytest

import fusedops as fo

torch = pytest.importorskip("torch", reason="PyTorch is not installed (its CPU build is enough)")
from torch import nn

from fusedops.graph.frontends.torch import export

fft, real, as_complex = torch.fft, torch.view_as_real, torch.view_as_complex
HANN = torch.hann_window(16)


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


@pytest.fixture(autouse=True)
def exported(monkeypatch):
    """Torch's graph export alone."""

    def none(*_):
        raise export.Unsupported("tracing was needed")

    monkeypatch.setattr(export, "_traced", none)


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def loaded(function, *inputs, **options):
    return fo.from_torch(Called(function), inputs, **options)


W = torch.complex(randn(8, 5), randn(5, 8).T)
ARITHMETIC = {
    "sum": lambda z, x: z + z.conj() * 3,
    "sum with a factor": lambda z, x: torch.add(z, z * 1j, alpha=2) - torch.sub(x, z, alpha=3),
    "sum with a real one of more axes": lambda z, x: z[0] + x,
    "difference": lambda z, x: 2 - z,
    "product": lambda z, x: z * (z + 1j) * x,
    "product with a number": lambda z, x: (2 - 3j) * z,
    "quotient": lambda z, x: z / (z.conj() + 5),
    "quotient by a real one": lambda z, x: z / (x.abs() + 1),
    "real over complex": lambda z, x: x / (z + 4j),
    "reciprocal": lambda z, x: (z + 4).reciprocal(),
    "square": lambda z, x: z**2 + z.square(),
    "exponential": lambda z, x: torch.exp(z / 4),
    "logarithm": lambda z, x: torch.log(z + 9),
    "sign": lambda z, x: torch.sgn(z),
    "polar": lambda z, x: torch.polar(z.abs(), z.angle()) + torch.polar(torch.ones_like(x), x),
    "complex": lambda z, x: torch.complex(z.imag, x) - torch.complex(x, z.real),
    "made complex": lambda z, x: x.to(torch.complex64) + z,
    "product of matrices": lambda z, x: z @ W[:, :3],
    "product with a real matrix made complex": lambda z, x: z @ x.transpose(1, 2).to(z.dtype),
    "einsum": lambda z, x: torch.einsum("bij,jk->bik", z, W),
    "mean": lambda z, x: z.mean(1) + z.sum(1),
    "moved": lambda z, x: torch.cat([z.transpose(1, 2).flip(1), z.reshape(-1, 8, 4)], 2)[:, 1:, ::2].unsqueeze(0),
    "joined with a real one": lambda z, x: torch.stack([z, x.to(z.dtype)], 1).squeeze(0),
    "parted": lambda z, x: torch.mul(*z.chunk(2, -1)).roll(1, 0),
    "chosen": lambda z, x: torch.where(x > 0, z, z.conj()).masked_fill(x > 1, 2.0).to(torch.complex128),
    "chosen by index": lambda z, x: z[:, [2, 0]].index_select(2, torch.tensor([1, 1, 3])),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name):
    loaded(lambda p, x: real(ARITHMETIC[name](as_complex(p), x)), randn(3, 4, 8, 2), randn(3, 4, 8))


def test_real_results():
    def parts(p):
        z = as_complex(p)
        return z.real, z.imag, z.abs(), z.angle(), torch.view_as_real(z.conj().resolve_conj()), (z * z.conj()).real

    loaded(parts, randn(3, 5, 2))


TRANSFORMS = {
    "fft": lambda x: fft.fft(x),
    "fft of more points": lambda x: fft.fft(x, 20, 1),
    "fft of fewer points": lambda x: fft.fft(x, 5, norm="ortho"),
    "ifft": lambda x: fft.ifft(fft.fft(x), norm="forward"),
    "rfft": lambda x: fft.rfft(x, norm="forward"),
    "rfft of an odd number": lambda x: fft.rfft(x, 7),
    "fft2": lambda x: fft.fft2(x),
    "ifft2": lambda x: fft.ifft2(x, norm="ortho"),
    "rfft2": lambda x: fft.rfft2(x, s=(4, 10)),
    "fftn": lambda x: fft.fftn(x, norm="ortho"),
    "fftn of some axes": lambda x: fft.fftn(x, dim=(0, 2)),
    "shift": lambda x: fft.fftshift(fft.fft(x), dim=-1),
    "shift back": lambda x: fft.ifftshift(fft.fft(x), dim=(1, 2)),
}
INVERSES = {
    "irfft": lambda x: fft.irfft(fft.rfft(x) * (1 + 2j)),
    "irfft of an odd number": lambda x: fft.irfft(fft.rfft(x), 9, norm="ortho"),
    "irfft along another axis": lambda x: fft.irfft(fft.rfft(x, dim=1), x.shape[1], 1),
    "irfft2": lambda x: fft.irfft2(fft.rfft2(x), s=(6, 8)),
    "irfftn": lambda x: fft.irfftn(fft.rfftn(x), norm="forward"),
    "shift of real numbers": lambda x: fft.fftshift(x, dim=-1),
    "mixing of FNet": lambda x: fft.fft(fft.fft(x, dim=-1), dim=-2).real,
    "convolution": lambda x: fft.irfft(fft.rfft(x, 16) * fft.rfft(x[:1, :1], 16), 16),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    loaded(lambda x: real(TRANSFORMS[name](x)), randn(3, 6, 8))


@pytest.mark.parametrize("name", INVERSES)
def test_inverse_transforms(name):
    loaded(INVERSES[name], randn(3, 6, 8))


def test_transforms_of_double_precision_and_of_open_sizes():
    net = loaded(lambda x: fft.fft(x, norm="ortho").abs(), randn(2, 8).double(), dynamic_shapes=({1: "length"},))
    x = randn(3, 11).double()
    np.testing.assert_allclose(net(x.numpy()), fft.fft(x, norm="ortho").abs().numpy(), rtol=1e-12)


SPECTROGRAMS = {
    "plain": dict(n_fft=16, hop_length=4, window=HANN),
    "usual hop, no window": dict(n_fft=16),
    "short window": dict(n_fft=16, hop_length=4, win_length=10, window=torch.hann_window(10)),
    "normalized": dict(n_fft=16, hop_length=5, window=HANN, normalized=True),
    "not centred": dict(n_fft=16, hop_length=8, window=torch.hamming_window(16), center=False),
}


@pytest.mark.parametrize("name", SPECTROGRAMS)
@pytest.mark.parametrize("shape", [(2, 64), (64,)])
def test_spectrograms(name, shape):
    loaded(lambda x: real(torch.stft(x, return_complex=True, **SPECTROGRAMS[name])), randn(*shape))


@pytest.mark.parametrize("name", SPECTROGRAMS)
@pytest.mark.parametrize("length", [None, *(pytest.param(n, marks=pytest.mark.thorough) for n in (57, 70))])
def test_inverse_spectrograms(name, length):
    options = {k: v for k, v in SPECTROGRAMS[name].items() if k != "normalized"}
    if length == 70 and name in ("not centred", "short window"):
        pytest.skip("there are no 70 points that a window covers, and torch says so")

    def masked(x):
        spectrum = torch.stft(x, return_complex=True, **SPECTROGRAMS[name])
        gains = torch.sigmoid(spectrum.abs() - 1)
        return torch.istft(spectrum * gains, length=length, **SPECTROGRAMS[name])

    assert options and loaded(masked, randn(2, 64)) is not None


def test_a_spectrogram_of_open_length():
    net = loaded(
        lambda x: torch.stft(x, 16, 4, window=HANN, return_complex=True).abs(), randn(1, 64), dynamic_shapes=({1: "n"},)
    )
    for n in (40, 100):
        x = randn(3, n)
        expected = torch.stft(x, 16, 4, window=HANN, return_complex=True).abs()
        np.testing.assert_allclose(net(x.numpy()), expected.numpy(), rtol=1e-4, atol=1e-5)


class Rotary(nn.Module):
    """Positions as Llama's first code turns queries by them; `stored`: by a buffer of complex numbers."""

    def __init__(self, stored):
        super().__init__()
        self.q, turns = nn.Linear(32, 32, bias=False), torch.outer(torch.arange(64.0), 1e4 ** (-torch.arange(4) / 4))
        turns = torch.polar(torch.ones_like(turns), turns)
        self.register_buffer("turns", turns if stored else real(turns))

    def forward(self, x):
        b, t, _ = x.shape
        turns = self.turns if self.turns.is_complex() else as_complex(self.turns)
        q = as_complex(self.q(x).view(b, t, 4, 8).float().reshape(b, t, 4, -1, 2))
        return real(q * turns[:t].view(1, t, 1, 4)).flatten(3)


@pytest.mark.parametrize("stored", [True, False])
def test_rotary_positions(stored):
    net = fo.from_torch(Rotary(stored), randn(2, 10, 32), dynamic_shapes=({1: "length"},))
    assert net(np.zeros((1, 7, 32), np.float32)).shape == (1, 7, 4, 8)


class Operator(nn.Module):
    """A layer of a Fourier neural operator: the lowest frequencies times complex weights, the others zero."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.complex(randn(4, 4, 5), randn(4, 5, 4).transpose(1, 2)))

    def forward(self, x):
        z = fft.rfft(x)
        y = torch.zeros_like(z)
        y[:, :, :5] = torch.einsum("bix,iox->box", z[:, :, :5], self.w)
        return fft.irfft(y, n=x.shape[-1])


def test_neural_operators():
    fo.from_torch(Operator(), randn(2, 4, 16))


@pytest.mark.parametrize("function, words", [
    (lambda x: fft.fft(x), "let the module return view_as_real"),
    (lambda x: fft.fft(x).pow(3).real, "to the power of 3"),
    (lambda x: torch.special.gammaln(fft.fft(x).abs()) + fft.fft(x).sqrt().real, "aten::"),
    (lambda x: torch.stft(fft.fft(x[0]), 4, center=False, onesided=False, return_complex=True).abs(), "form of stft"),
])  # fmt: skip
def test_what_is_refused(function, words):
    with pytest.raises(ValueError, match=words):
        loaded(function, randn(2, 3, 18))
