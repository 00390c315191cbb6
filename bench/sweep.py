"""Sweeps sizes through tile borders, odd and prime sizes and powers of two, and looks for cliffs: ``python
bench/sweep.py``.

A point is a cliff where its work is over 1 MFLOP and its rate under 70 % of the median of its neighbors (two on either
side). A point that looks like one is measured again before it is called that: the machine may have been busy.

    --plot FILE.png   GFLOP/s over each sweep
    --threads N       default 1
"""

import argparse
import statistics
import time

import numpy as np

import fusedops as fo

SIZES = (
    1,
    2,
    3,
    5,
    7,
    8,
    11,
    12,
    13,
    16,
    17,
    23,
    24,
    25,
    31,
    32,
    33,
    47,
    48,
    49,
    63,
    64,
    65,
    96,
    97,
    127,
    128,
    129,
    192,
    193,
    255,
    256,
    257,
    384,
    500,
    511,
    512,
    513,
    768,
    1000,
    1023,
    1024,
    1025,
)
IMAGES = (
    4,
    5,
    7,
    8,
    9,
    13,
    14,
    15,
    16,
    17,
    27,
    28,
    29,
    31,
    32,
    33,
    48,
    49,
    55,
    56,
    57,
    63,
    64,
    65,
    96,
    112,
    113,
    127,
    128,
    129,
)
LIMIT = 0.7


def _random(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def product(m, n, k):
    layer, x = fo.Linear(_random(n, k), activation="relu"), _random(m, k)
    return layer, x, 2 * m * n * k


def convolution(size, channels, outputs, kernel, stride=1, groups=1):
    layer = fo.Conv2d(
        _random(outputs, channels // groups, kernel, kernel),
        activation="relu",
        padding=kernel // 2,
        stride=stride,
        groups=groups,
    )
    x = _random(1, channels, size, size)
    return layer, x, 2 * layer(x).size * kernel**2 * channels // groups


SWEEPS = {
    "product, m x 256 x 256": (SIZES, lambda s: product(s, 256, 256)),
    "product, 256 x n x 256": (SIZES, lambda s: product(256, s, 256)),
    "product, 256 x 256 x k": (SIZES, lambda s: product(256, 256, s)),
    "product, n x n x n": (SIZES, lambda s: product(s, s, s)),
    "1x1 convolution, 64 -> 128": (IMAGES, lambda s: convolution(s, 64, 128, 1)),
    "3x3 convolution, 64 -> 64": (IMAGES, lambda s: convolution(s, 64, 64, 3)),
    "3x3 convolution, stride 2, 32 -> 64": (IMAGES, lambda s: convolution(s, 32, 64, 3, 2)),
    "5x5 convolution, 24 -> 40": (IMAGES, lambda s: convolution(s, 24, 40, 5)),
    "3x3 convolution, 128 channels, 32 groups": (IMAGES, lambda s: convolution(s, 128, 128, 3, 1, 32)),
    "3x3 convolution, 64 channels, depthwise": (IMAGES, lambda s: convolution(s, 64, 64, 3, 1, 64)),
    "3x3 convolution of 28x28, c -> 64": (SIZES[:36], lambda s: convolution(28, s, 64, 3)),
    "3x3 convolution of 28x28, 64 -> c": (SIZES[:36], lambda s: convolution(28, 64, s, 3)),
}


def rate(point):
    """GFLOP/s: the median of batches of calls."""
    layer, x, flop = point
    y = layer(x)
    start = time.perf_counter()
    layer(x, out=y)
    calls = max(1, int(5e-4 / max(time.perf_counter() - start, 1e-7)))
    samples = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(calls):
            layer(x, out=y)
        samples.append((time.perf_counter() - start) / calls)
    return flop / statistics.median(samples) * 1e-9


def neighbors(rates, i):
    return statistics.median(rates[max(i - 2, 0) : i] + rates[i + 1 : i + 3])


def sweep(sizes, make):
    """The rate at each size, and the sizes that are cliffs."""
    points = [make(s) for s in sizes]
    rates = [rate(p) for p in points]
    cliffs = []
    for i, p in enumerate(points):
        for _ in range(5):
            if p[2] < 1e6 or rates[i] >= LIMIT * neighbors(rates, i):
                break
            rates[i] = max(rates[i], rate(p))
        else:
            cliffs.append(sizes[i])
    return rates, cliffs


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--plot"), arguments.add_argument("--threads", type=int, default=1)
    options = arguments.parse_args()
    fo.set_num_threads(options.threads)
    results = {}
    for name, (sizes, make) in SWEEPS.items():
        rates, cliffs = results[name] = sweep(sizes, make)
        print(
            f"{name:42} up to {max(rates):6.1f} GFLOP/s, "
            f"{'cliffs at ' + ', '.join(map(str, cliffs)) if cliffs else 'no cliff'}",
            flush=True,
        )
    if options.plot:
        plot(results, options.plot)


def plot(results, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(4, 3, figsize=(15, 15), layout="constrained")
    for axis in axes.flat[len(results) :]:
        axis.remove()
    for axis, (name, (rates, cliffs)) in zip(axes.flat, results.items()):
        sizes = SWEEPS[name][0][: len(rates)]
        axis.plot(sizes, rates, marker=".")
        axis.plot(cliffs, [rates[sizes.index(c)] for c in cliffs], "rx")
        axis.set(title=name, xscale="log", xlabel="size", ylabel="GFLOP/s")
        axis.set_ylim(bottom=0)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
