"""Tells where somebody speaks in a noisy sound, frame by frame as a microphone delivers it: an LSTM that keeps its
state between calls.

    python examples/voice_stream.py [--seconds 10] [--seed 1]

NumPy alone. The sound is made up: vowels of a buzzing voice in syllables, over noise. voice.npz was trained by
make_networks.py.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import fusedops as fo

RATE, HOP, BANDS = 16_000, 320, 20  # samples a second; samples of a frame of 20 ms; bands of its spectrum
EDGES = np.geomspace(3, HOP // 2, BANDS + 1).astype(int)
WINDOW = np.hanning(HOP).astype(np.float32)


def scene(rng, seconds):
    """(sound, whether somebody speaks), both by sample: noise, and now and then some syllables."""
    n = seconds * RATE
    t = np.arange(n) / RATE
    sound = rng.uniform(0.02, 0.1) * np.convolve(rng.standard_normal(n), [1, rng.uniform(-0.9, 0.9)], "same")
    speaks, at = np.zeros(n, bool), rng.uniform(0.3, 1)
    while at < seconds:
        end = at + rng.uniform(0.5, 1.2)
        speaks |= (at <= t) & (t < end)
        at = end + rng.uniform(0.4, 1.2)
    pitch = rng.uniform(90, 220) * (1 + 0.1 * np.sin(2 * np.pi * 0.7 * t))
    phase = np.cumsum(pitch) / RATE
    formants = [(rng.uniform(300, 800), 120), (rng.uniform(900, 2300), 200)]
    voice = sum(
        np.sin(2 * np.pi * k * phase) * sum(np.exp(-(((k * pitch - f) / width) ** 2)) for f, width in formants)
        for k in range(1, 25)
    )
    syllables = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * t)
    return (sound + rng.uniform(0.1, 0.3) * voice * syllables * speaks).astype(np.float32), speaks


def features(frame):
    """The logarithm of a frame's power in each band."""
    power = np.abs(np.fft.rfft(frame * WINDOW)) ** 2
    return np.log(np.add.reduceat(power, EDGES[:-1]) + 1e-3).astype(np.float32)


class Detector:
    """The probability of speech, frame by frame."""

    def __init__(self, path):
        w = np.load(path)
        self.layer = fo.LSTM(*(w[f"lstm.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
        self.score = fo.Linear(w["score.weight"], w["score.bias"], activation="sigmoid")
        self.stream = self.layer.stream()
        self.hidden = np.empty(self.stream.state[0].shape[-1], np.float32)  # each step writes here
        self.probability = np.empty(1, np.float32)

    def __call__(self, frame):
        self.stream.step(features(frame), out=self.hidden)
        return float(self.score(self.hidden, out=self.probability)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sound, speaks = scene(np.random.default_rng(options.seed), options.seconds)
    frames = sound.reshape(-1, HOP)
    detector = Detector(Path(__file__).parent / "voice.npz")

    heard, us = np.empty(len(frames), bool), np.empty(len(frames))
    for i, frame in enumerate(frames):
        start = time.perf_counter()
        heard[i] = detector(frame) > 0.5
        us[i] = 1e6 * (time.perf_counter() - start)

    truth = speaks[HOP // 2 :: HOP]
    for label, row in ("speech", truth), ("heard", heard):
        print(f"{label:8}" + "".join("#" if part.mean() > 0.5 else "." for part in np.array_split(row, 100)))
    print(
        f"{(heard == truth).mean():.1%} of {len(frames)} frames right; a frame of {1000 * HOP // RATE} ms takes "
        f"{np.percentile(us, 50):.0f} us (p50), {np.percentile(us, 99):.0f} us (p99), {us.max():.0f} us (longest), "
        f"features included"
    )

    steps = np.stack([features(frame) for frame in frames])
    whole, _ = detector.layer(steps)
    again = detector.layer.stream()
    assert all(np.array_equal(again.step(x), y) for x, y in zip(steps, whole)), (
        "a stream has the bits of the whole sequence"
    )


if __name__ == "__main__":
    main()
