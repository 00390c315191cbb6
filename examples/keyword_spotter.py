"""A keyword spotter, layer by layer in NumPy and fusedops alone: which word a second of sound holds.

    python examples/keyword_spotter.py [--seconds 5]

Forty bands of a spectrum, then convolutions along the time, each with its batch norm, ReLU and addition in the same
kernel. The weights are random, so the words say nothing. tests/package/test_examples.py compares the result with
PyTorch's.
"""

import argparse
import time

import numpy as np

import fusedops as fo

RATE, FRAME, HOP, BANDS = 16_000, 480, 160, 40  # samples: a second, a frame, from frame to frame; bands of a spectrum
EDGES = (np.linspace(1.4, 15.4, BANDS + 1) ** 2).astype(int)
WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go", "silence", "something else")
WIDTHS, KERNEL = (32, 48, 64), 9  # channels of each block
NORM = ("weight", "bias", "running_mean", "running_var")


def features(sound):
    """(BANDS, frames): the logarithm of the power in each band, with a mean of 0 and a variance of 1 over a frame."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, FRAME)[::HOP]
    power = np.abs(np.fft.rfft(frames * np.hanning(FRAME))) ** 2
    bands = np.log(np.add.reduceat(power, EDGES[:-1], axis=1) + 1e-3)
    return fo.layer_norm(bands.astype(np.float32)).T


def random_weights(seed=0):
    rng, w = np.random.default_rng(seed), {}

    def conv(name, oc, ic, k):
        w[name] = rng.standard_normal((oc, ic, k), np.float32) * np.float32((2 / (ic * k)) ** 0.5)
        w.update({f"{name}.bn.{part}": rng.uniform(0.5, 1, oc).astype(np.float32) for part in NORM})

    conv("first", 16, BANDS, 3)
    before = 16
    for i, width in enumerate(WIDTHS):
        conv(f"{i}.one", width, before, KERNEL)
        conv(f"{i}.two", width, width, KERNEL)
        conv(f"{i}.short", width, before, 1)
        before = width
    w["words"] = rng.standard_normal((len(WORDS), before), np.float32) / np.float32(before**0.5)
    return w


class KeywordSpotter:
    def __init__(self, w):
        def conv(name, stride=1, activation="relu"):
            bn = fo.BatchNorm(*(w[f"{name}.bn.{part}"] for part in NORM))
            return fo.Conv1d(w[name], bn=bn, stride=stride, padding=w[name].shape[2] // 2, activation=activation)

        self.first, self.words = conv("first"), fo.Linear(w["words"])
        self.blocks = [(conv(f"{i}.short", 2), conv(f"{i}.one", 2), conv(f"{i}.two")) for i in range(len(WIDTHS))]

    def __call__(self, bands):
        """Probabilities (n, words) of spectra (n, BANDS, frames)."""
        x = self.first(bands)
        for short, one, two in self.blocks:
            x = two(one(x), short(x))
        mean = fo.avg_pool2d(x[:, :, np.newaxis], (1, x.shape[2]))[:, :, 0, 0]
        return fo.softmax(self.words(mean))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    options = parser.parse_args()
    spot, rng = KeywordSpotter(random_weights()), np.random.default_rng(1)
    at = np.arange(RATE * options.seconds) / RATE
    sound = np.sin(2 * np.pi * np.cumsum(200 + 100 * np.sin(2 * np.pi * at)) / RATE) + 0.1 * rng.standard_normal(
        at.size
    )
    print("random weights: the words say nothing")
    start = time.perf_counter()
    for second in range(options.seconds):
        p = spot(features(sound[second * RATE : (second + 1) * RATE])[np.newaxis])[0]
        print(f"second {second}: {WORDS[p.argmax()]} ({p.max():.0%})")
    print(f"{1000 * (time.perf_counter() - start) / options.seconds:.1f} ms for a second of sound, spectrum included")


if __name__ == "__main__":
    main()
