"""Computes features of more images than fit into memory: a Dask array of images goes through layers block by block.

    python examples/dask_larger.py --gigabytes 40 --threads 2

Needs pip install -e '.[dask]'. Dask makes a block of images, computes it and drops it, so that memory holds a block for
each thread. The images are random numbers here; `dask.array.from_zarr` or `from_array(np.load(path, mmap_mode="r"))`
reads real ones. Prints the largest memory of the process.
"""

import argparse
import resource
import sys
import time

import dask
import dask.array as da
import numpy as np

import fusedops as fo

SIDE, CHANNELS, BLOCK = 128, 32, 16  # of an image; of the features; images of a block


class Features:
    """Two convolutions and a mean over pixels: (n, 3, SIDE, SIDE) -> (n, CHANNELS)."""

    def __init__(self, rng):
        first = rng.standard_normal((CHANNELS, 3, 3, 3), np.float32) / 5
        second = rng.standard_normal((CHANNELS, CHANNELS, 3, 3), np.float32) / 17
        self.first = fo.Conv2d(first, activation="relu", stride=2, padding=1)
        self.second = fo.Conv2d(second, activation="relu", stride=2, padding=1)

    def __call__(self, images):
        return fo.global_avg_pool2d(self.second(self.first(images))).reshape(len(images), CHANNELS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--threads", type=int, default=2, help="of Dask: each computes a block")
    options = parser.parse_args()
    fo.set_num_threads(1)  # Dask's threads are the parallel part
    blocks = max(1, round(options.gigabytes * 1e9 / (4 * 3 * SIDE**2 * BLOCK)))
    shape = blocks * BLOCK, 3, SIDE, SIDE
    images = da.random.default_rng(0).standard_normal(shape, dtype=np.float32, chunks=(BLOCK, 3, SIDE, SIDE))
    features = Features(np.random.default_rng(0))
    # what a block becomes: two axes less, and as many columns as there are channels
    table = images.map_blocks(features, dtype=np.float32, drop_axis=(2, 3), chunks=(images.chunks[0], (CHANNELS,)))
    start = time.perf_counter()
    with dask.config.set(scheduler="threads", num_workers=options.threads):
        mean, spread = dask.compute(table.mean(axis=0), table.std(axis=0))
        first = table[:BLOCK].compute()
    seconds = time.perf_counter() - start
    assert mean.shape == spread.shape == (CHANNELS,)
    assert np.array_equal(first, features(images[:BLOCK].compute())), "a block has the bits of its images"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(
        f"{images.nbytes / 1e9:.2f} GB, {len(images)} images in {images.npartitions} blocks: {seconds:.1f} s, "
        f"{len(images) / seconds:.0f} images a second; at most {memory / 1e6:.0f} MB of memory"
    )


if __name__ == "__main__":
    main()
