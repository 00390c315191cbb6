"""Times each algorithm of a convolution by itself, on one thread, for the cost model (csrc/conv/cost.c).

    python -m bench.tune.measure zen4.csv            all sets of this machine, about ten minutes
    python -m bench.tune.measure zen4.csv --set avx2

A row is a shape, a set, a layout and an algorithm, with the microseconds of a call: `warm`, all in the caches from the
call before, and `cold`, after everything has left them, as a network's weights have. Both are the least of several
calls, of all algorithms interleaved. "other" is what the library takes by itself where no algorithm's name asks for it.
Add the processor to MACHINES of judge.py.
"""

import argparse
import csv
import itertools
import time
from functools import partial
from pathlib import Path

import numpy as np

import fusedops as fo
from fusedops import layers

HERE = Path(__file__).resolve().parent
COLUMNS = ("set", "layout", "ic", "ih", "iw", "oc", "kh", "kw", "stride", "groups", "algorithm", "warm", "cold")
EVICTED = np.zeros(24 << 20, np.float32)  # more than a third-level cache


LAYERS = [  # ic, image, oc, kernel, stride
    (3, 224, 64, 7, 2),
    (3, 224, 32, 3, 2),
    (3, 224, 64, 3, 1),
    (128, 28, 256, 1, 1),
    (64, 128, 64, 3, 1),
    (256, 56, 64, 1, 1),
    (1024, 14, 256, 1, 1),
    (512, 7, 512, 3, 1),
    (128, 56, 128, 3, 2),
    (24, 28, 40, 5, 1),
    (48, 27, 64, 5, 1),
    (32, 14, 32, 7, 1),
    (64, 56, 128, 1, 2),
    (256, 56, 512, 1, 2),
    (512, 28, 1024, 1, 2),
    (1024, 14, 2048, 1, 2),
]
POINTWISE = [
    (16, 96),
    (96, 24),
    (32, 64),
    (64, 64),
    (64, 256),
    (80, 480),
    (144, 24),
    (128, 128),
    (256, 128),
    (384, 96),
    (512, 512),
    (320, 1280),
    (960, 160),
]
SIZES = (7, 14, 28, 56, 112)


def shapes():
    """(ic, ih, iw, oc, kh, kw, stride, groups): layers of known networks, and a grid around them."""
    for c, size, o, k, s, g in _square_shapes():
        yield c, size, size, o, k, k, s, g
    for c, size, k in itertools.product((32, 128), (12, 28), (3, 7)):
        yield c, size, size, 64, k, 1, 1, 1
        yield c, size, size, 64, 1, k, 1, 1


def _square_shapes():
    """(ic, size, oc, kernel, stride, groups)."""
    square = [(*layer, 1) for layer in LAYERS]
    square += [
        (c, size, o, 3, s, 1)
        for s in (1, 2)
        for size in SIZES
        for c, o in [(16, 16), (32, 32), (32, 64), (64, 64), (128, 128), (256, 256)]
        if c * size <= 7200
    ]
    square += [(512, size, o, 3, s, 1) for s in (1, 2) for o in (128, 512) for size in (7, 14)]
    square += [
        (c, size, o, 1, 1, 1)
        for size in SIZES
        for c, o in POINTWISE
        if c * size**2 <= 900_000 and c * o * size**2 < 4e8
    ]
    square += [(g * c, size, g * c, 3, 1, g) for g, c, size in itertools.product((4, 32), (8, 16, 32), (7, 14, 28))]
    return square


def made_layer(*args, **options):
    """The layer, or None where the algorithm does not apply."""
    try:
        return fo.Conv2d(*args, **options)
    except ValueError:
        return None


def made(shape, layout):
    """The input, and {algorithm: layer} of what applies; "auto" is the first."""
    ic, ih, iw, oc, kh, kw, stride, groups = shape
    rng = np.random.default_rng(0)
    w = rng.standard_normal((oc, ic // groups, kh, kw), np.float32) / np.float32((ic * kh * kw / groups) ** 0.5)
    x = rng.standard_normal((1, ic, ih, iw) if layout == "NCHW" else (1, ih, iw, ic), np.float32)
    options = dict(activation="relu", stride=stride, padding=(kh // 2, kw // 2), groups=groups, layout=layout)
    layer = partial(made_layer, w, rng.standard_normal(oc, np.float32), **options)
    return x, {name: found for name in layers.ALGORITHMS if (found := layer(algorithm=name))}


def least(calls, seconds, before=None):
    """The least microseconds of each call, interleaved, for about so many seconds."""
    best, end = dict.fromkeys(calls, np.inf), time.perf_counter() + seconds
    for turn in itertools.count():
        for name, call in calls.items():
            if before:
                before()
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
        if turn > 3 and time.perf_counter() > end:
            return {name: 1e6 * value for name, value in best.items()}


def evict():
    EVICTED[::16] += 1


def rows(isa):
    fo.set_num_threads(1)
    fo.set_isa(isa)
    for shape, layout in itertools.product(shapes(), ("NCHW", "NHWC")):
        x, found = made(shape, layout)
        out = np.empty(found["auto"].output_shape(x.shape), np.float32)
        kernel = {name: layer.kernel(x.shape) for name, layer in found.items()}
        auto = kernel.pop("auto")
        calls = {name: partial(found[name], x, out=out) for name in kernel}
        if auto not in kernel.values():
            calls["other"] = partial(found["auto"], x, out=out)
        warm, cold = least(calls, 0.08), least(calls, 0.1, evict)
        for name in calls:
            yield (isa, layout, *shape, name, f"{warm[name]:.1f}", f"{cold[name]:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--set", choices=fo.available_isas())
    options = parser.parse_args()
    with (HERE / options.file).open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for isa in [options.set] if options.set else [s for s in fo.available_isas() if s != "scalar"]:
            for row in rows(isa):
                table.writerow(row)
                file.flush()


if __name__ == "__main__":
    main()
