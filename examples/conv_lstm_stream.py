"""A convolution and an LSTM as two streams: raw samples in chunks of any length go in, the probability of speech comes
out for each frame that a chunk completes. The convolution is the spectrum of each frame, as sines and cosines; the LSTM
is the trained one of voice_stream.py.

    python examples/conv_lstm_stream.py [--seconds 10] [--seed 1]

NumPy alone. The results are bit-identical to those of the whole sound at once.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from voice_stream import EDGES, HOP, RATE, WINDOW, scene

import fusedops as fo

BINS = HOP // 2 + 1  # frequencies of a spectrum


class Listener:
    """The layers, whose weights are packed once, and how their results go from one to the next."""

    def __init__(self, path):
        w = np.load(path)
        angles = 2 * np.pi / HOP * np.outer(np.arange(BINS), np.arange(HOP))
        basis = np.concatenate([np.cos(angles), np.sin(angles)]) * WINDOW
        self.spectrum = fo.Conv1d(basis[:, np.newaxis].astype(np.float32), stride=HOP, algorithm="direct")
        self.lstm = fo.LSTM(*(w[f"lstm.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
        self.score = fo.Linear(w["score.weight"], w["score.bias"], activation="sigmoid")

    @staticmethod
    def features(waves):
        """The logarithm of the power in each band, frame by frame: (1, 2 * BINS, frames) -> (frames, bands)."""
        power = np.square(waves[0, :BINS]) + np.square(waves[0, BINS:])
        return np.log(np.add.reduceat(power, EDGES[:-1], axis=0) + 1e-3).T.astype(np.float32, order="C")

    def whole(self, sound):
        """The probabilities of all frames at once."""
        return self.score(self.lstm(self.features(self.spectrum(sound.reshape(1, 1, -1))))[0])[:, 0]

    def stream(self):
        """A function of the next samples, which gives the probabilities of the frames that they complete."""
        spectrum, lstm = self.spectrum.stream(), self.lstm.stream()

        def step(samples):
            frames = self.features(spectrum.step(samples.reshape(1, 1, -1)))
            return [float(self.score(lstm.step(frame))[0]) for frame in frames]

        return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    sound, speaks = scene(rng, options.seconds)
    listener = Listener(Path(__file__).parent / "voice.npz")
    step, heard, us, at = listener.stream(), [], [], 0
    while at < len(sound):  # as a sound card hands them over
        samples = sound[at : at + rng.integers(1, 1000)]
        at += len(samples)
        start = time.perf_counter()
        heard += step(samples)
        us.append(1e6 * (time.perf_counter() - start))

    truth = speaks[HOP // 2 :: HOP]
    for label, row in ("speech", truth), ("heard", np.array(heard) > 0.5):
        print(f"{label:8}" + "".join("#" if part.mean() > 0.5 else "." for part in np.array_split(row, 100)))
    assert np.array_equal(heard, listener.whole(sound)), "streams have the bits of the whole sound"
    print(
        f"{((np.array(heard) > 0.5) == truth).mean():.1%} of {len(heard)} frames right, in {len(us)} chunks; a chunk "
        f"takes {np.percentile(us, 50):.0f} us (p50), {np.percentile(us, 99):.0f} us (p99), {max(us):.0f} us (longest) "
        f"of the {1e6 * len(sound) / RATE / len(us):.0f} us that it lasts"
    )


if __name__ == "__main__":
    main()
