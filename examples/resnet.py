"""A ResNet-18, layer by layer in NumPy and fusedops alone: each batch norm, addition and ReLU is part of a convolution.

    python examples/resnet.py [--images 4] [--size 224] [--weights FILE.npz]

FILE.npz has the arrays of torchvision's resnet18 under their names (np.savez of its state_dict); without one the
weights are random, and the classes say nothing. tests/package/test_examples.py compares the result with PyTorch's.
"""

import argparse
import time

import numpy as np

import fusedops as fo

STAGES = [(64, 1), (128, 2), (256, 2), (512, 2)]  # channels, stride of the first of two blocks
NORM = ("weight", "bias", "running_mean", "running_var")


def random_weights(seed=0, classes=1000):
    """Arrays of the right shapes, under torchvision's names."""
    rng, w = np.random.default_rng(seed), {}

    def conv(name, norm, oc, ic, k):
        w[f"{name}.weight"] = rng.standard_normal((oc, ic, k, k), np.float32) * np.float32((2 / (ic * k * k)) ** 0.5)
        w.update({f"{norm}.{part}": rng.uniform(0.5, 1, oc).astype(np.float32) for part in NORM})

    conv("conv1", "bn1", 64, 3, 7)
    before = 64
    for i, (c, stride) in enumerate(STAGES, 1):
        for j in range(2):
            conv(f"layer{i}.{j}.conv1", f"layer{i}.{j}.bn1", c, before if j == 0 else c, 3)
            conv(f"layer{i}.{j}.conv2", f"layer{i}.{j}.bn2", c, c, 3)
        if stride > 1:
            conv(f"layer{i}.0.downsample.0", f"layer{i}.0.downsample.1", c, before, 1)
        before = c
    w["fc.weight"] = rng.standard_normal((classes, 512), np.float32) / np.float32(512**0.5)
    w["fc.bias"] = rng.standard_normal(classes, np.float32)
    return w


class Block:
    """Two convolutions, and what went in added before the last ReLU."""

    def __init__(self, conv, name, stride):
        self.first = conv(f"{name}.conv1", f"{name}.bn1", stride=stride, padding=1, activation="relu")
        self.second = conv(f"{name}.conv2", f"{name}.bn2", padding=1, activation="relu")
        self.short = conv(f"{name}.downsample.0", f"{name}.downsample.1", stride=stride) if stride > 1 else None

    def __call__(self, x):
        return self.second(self.first(x), x if self.short is None else self.short(x))


class ResNet:
    def __init__(self, w):
        def conv(name, norm, **options):
            return fo.Conv2d(w[f"{name}.weight"], bn=fo.BatchNorm(*(w[f"{norm}.{part}"] for part in NORM)), **options)

        self.stem = conv("conv1", "bn1", stride=2, padding=3, activation="relu")
        self.blocks = [
            Block(conv, f"layer{i}.{j}", stride if j == 0 else 1)
            for i, (_, stride) in enumerate(STAGES, 1)
            for j in range(2)
        ]
        self.head = fo.Linear(w["fc.weight"], w["fc.bias"])

    def __call__(self, images):
        """Logits of images (n, 3, h, w); their channels go side by side in memory, and stay so."""
        x = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        x = fo.max_pool2d(self.stem(x), 3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x)
        return self.head(fo.avg_pool2d(x, x.shape[2:])[:, :, 0, 0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--weights")
    options = parser.parse_args()
    net = ResNet(np.load(options.weights) if options.weights else random_weights())
    images = np.random.default_rng(1).standard_normal((options.images, 3, options.size, options.size), np.float32)
    net(images)
    start = time.perf_counter()
    p = fo.softmax(net(images))
    ms = 1000 * (time.perf_counter() - start)
    if not options.weights:
        print("random weights: the classes say nothing")
    for i, row in enumerate(p):
        print(f"image {i}: " + ", ".join(f"class {c} {row[c]:.1%}" for c in row.argsort()[:-4:-1]))
    print(f"{ms / len(images):.1f} ms for an image of {options.size} x {options.size}")


if __name__ == "__main__":
    main()
