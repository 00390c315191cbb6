"""Classifies images with a saved network: NumPy and fusedops are all that this needs.

    python examples/classify.py [NETWORK.fo IMAGES.npz]

IMAGES.npz has `images` (n, h, w), integers, and `labels` (n,). Without arguments: the digits next to this file, which
the network, trained and saved by make_networks.py, has not seen.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import fusedops as fo

HERE = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", default=HERE / "digits.fo")
    parser.add_argument("images", nargs="?", default=HERE / "digits.npz")
    options = parser.parse_args()
    model, data = fo.load(options.network), np.load(options.images)
    x = data["images"][:, np.newaxis].astype(np.float32) / 16
    model(x)  # plans the memory for this batch

    start = time.perf_counter()
    scores = model(x)
    seconds = time.perf_counter() - start

    best = scores.argmax(axis=1)
    for i in range(3):
        print(f"image {i}: {best[i]}, in truth {data['labels'][i]}")
        for row in data["images"][i]:
            print("   " + "".join(" .:-=+*#%@"[pixel * 9 // 16] * 2 for pixel in row))
    print(f"{(best == data['labels']).mean():.1%} of {len(x)} images right, {1e6 * seconds / len(x):.1f} us each")


if __name__ == "__main__":
    main()
