"""A real-time example: a noise suppressor's network, frame by frame as a sound card delivers them, and the time of
each.

    python bench/stream.py [--frames 20000] [--hidden 256]

Two GRU layers and a mask over 257 frequencies; a frame of 10 ms must be done well within 10 ms, slow ones too.
Weights are random: the time does not depend on them.
"""

import argparse
import time

import numpy as np

import fusedops as fo

BINS, FRAME_MS = 257, 10


def suppressor(hidden, rng):
    """A function of one frame's spectrum (257,) that keeps its state between calls."""

    def w(*shape):
        return rng.uniform(-0.1, 0.1, shape).astype(np.float32)

    inputs, rows = (BINS, hidden), 3 * hidden
    gru = fo.GRU([w(rows, n) for n in inputs], [w(rows, hidden) for _ in inputs], num_layers=2)
    mask = fo.Linear(w(BINS, hidden), activation="sigmoid")
    stream = gru.stream()
    return lambda spectrum: spectrum * mask(stream.step(spectrum))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--frames", type=int, default=20_000)
    arguments.add_argument("--hidden", type=int, default=256)
    options = arguments.parse_args()
    rng = np.random.default_rng(0)
    fo.set_num_threads(1)  # a second thread would have to be woken up for each frame
    step = suppressor(options.hidden, rng)
    spectra = rng.uniform(0, 1, (100, BINS)).astype(np.float32)
    microseconds = np.empty(options.frames)
    for i in range(-100, options.frames):
        start = time.perf_counter()
        step(spectra[i % 100])
        if i >= 0:
            microseconds[i] = (time.perf_counter() - start) * 1e6
    p50, p99, p999 = np.percentile(microseconds, [50, 99, 99.9])
    print(f"{options.frames} frames of {FRAME_MS} ms, us a frame: p50 {p50:.1f}   p99 {p99:.1f}   p99.9 {p999:.1f}")


if __name__ == "__main__":
    main()
