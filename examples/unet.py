"""A small U-Net, layer by layer in NumPy and fusedops alone: which class each pixel of an image belongs to.

    python examples/unet.py [--size 128] [--depth 3] [--classes 3]

The weights are random, so the classes say nothing. tests/package/test_examples.py compares the result with PyTorch's.
"""

import argparse
import time

import numpy as np

import fusedops as fo

NORM = ("weight", "bias", "running_mean", "running_var")


def random_weights(seed=0, channels=3, width=16, depth=3, classes=3):
    """Arrays by name: down.0 .. down.depth, each two convolutions with batch norm; up.0 .., each a transposed one and
    two more; middle, a group norm; head, a 1x1 convolution."""
    rng, w = np.random.default_rng(seed), {}

    def block(name, ic, oc):
        for i, c in enumerate((ic, oc)):
            w[f"{name}.conv{i}"] = rng.standard_normal((oc, c, 3, 3), np.float32) * np.float32((2 / (9 * c)) ** 0.5)
            w.update({f"{name}.bn{i}.{part}": rng.uniform(0.5, 1, oc).astype(np.float32) for part in NORM})

    for i in range(depth + 1):
        block(f"down.{i}", width << i - 1 if i else channels, width << i)
    w |= {f"middle.{part}": rng.uniform(0.5, 1, width << depth).astype(np.float32) for part in ("weight", "bias")}
    for i in range(depth):
        c = width << i
        w[f"up.{i}.transposed"] = rng.standard_normal((2 * c, c, 2, 2), np.float32) * np.float32((1 / c) ** 0.5)
        w[f"up.{i}.bias"] = rng.standard_normal(c, np.float32)
        block(f"up.{i}", 2 * c, c)
    w["head"] = rng.standard_normal((classes, width, 1, 1), np.float32) / np.float32(width**0.5)
    return w


class Block:
    """Two convolutions, each with its batch norm and ReLU in the same kernel."""

    def __init__(self, w, name):
        self.layers = [
            fo.Conv2d(
                w[f"{name}.conv{i}"],
                bn=fo.BatchNorm(*(w[f"{name}.bn{i}.{p}"] for p in NORM)),
                padding=1,
                activation="relu",
            )
            for i in range(2)
        ]

    def __call__(self, x):
        return self.layers[1](self.layers[0](x))


class UNet:
    def __init__(self, w):
        depth = sum(name.startswith("down") and name.endswith("conv0") for name in w) - 1
        self.down = [Block(w, f"down.{i}") for i in range(depth + 1)]
        self.up = [
            (fo.ConvTranspose2d(w[f"up.{i}.transposed"], w[f"up.{i}.bias"], stride=2), Block(w, f"up.{i}"))
            for i in range(depth)
        ]
        self.middle, self.head = (w["middle.weight"], w["middle.bias"]), fo.Conv2d(w["head"])

    def __call__(self, images):
        """Logarithms of the classes' probabilities (n, classes, h, w) of images (n, channels, h, w)."""
        x = self.down[0](np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2))
        kept = []
        for down in self.down[1:]:
            kept.append(x)
            x = down(fo.max_pool2d(x, 2))
        x = fo.group_norm(x, 8, *self.middle)
        for skip, (transposed, block) in zip(reversed(kept), reversed(self.up), strict=True):
            n, c, h, w = skip.shape
            both = np.empty((n, h, w, 2 * c), np.float32).transpose(0, 3, 1, 2)  # channels last, as all images here
            both[:, :c] = skip
            transposed(x, out=both[:, c:])  # straight into its half: nothing is concatenated
            x = block(both)
        return fo.log_softmax(self.head(x), axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--classes", type=int, default=3)
    options = parser.parse_args()
    net = UNet(random_weights(depth=options.depth, classes=options.classes))
    thumbnail = np.random.default_rng(1).standard_normal((1, 3, 16, 16), np.float32)
    image = fo.resize(thumbnail, options.size, mode="linear")
    net(image)
    start = time.perf_counter()
    classes = net(image)[0].argmax(0)
    ms = 1000 * (time.perf_counter() - start)
    print("random weights: the classes say nothing")
    step = max(options.size // 32, 1)
    for row in classes[:: 2 * step, ::step]:
        print("".join(".:oO#%@"[c % 7] for c in row))
    print(f"{ms:.1f} ms for {options.size} x {options.size} pixels")


if __name__ == "__main__":
    main()
