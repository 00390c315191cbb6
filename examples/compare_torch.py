"""How much faster fusion makes a PyTorch model of your own: what is fused in it and what is not, its time fused, folded
only and unfused, and PyTorch's.

    python examples/compare_torch.py [FILE.py:NAME --shape 1,3,224,224] [--threads 1]

NAME is a module, or a class or function without arguments that makes one. Without it: a small network of residual
blocks. Needs pip install -e '.[torch]'.
"""

import argparse
import runpy
from statistics import median
from timeit import timeit

import torch
from torch import nn

import fusedops as fo


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return torch.relu(self.layers(x) + x)


def small():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1),
        nn.Hardswish(),
        Block(32),
        nn.MaxPool2d(2),
        Block(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
        nn.Softmax(1),
    )


def module_of(text):
    """The module that FILE.py:NAME means."""
    path, _, name = text.rpartition(":")
    found = runpy.run_path(path)[name]
    return found if isinstance(found, nn.Module) else found()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="?", metavar="FILE.py:NAME")
    parser.add_argument("--shape", default="1,3,64,64", type=lambda text: tuple(map(int, text.split(","))))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    fo.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    module = (module_of(options.module) if options.module else small()).eval()
    x = torch.randn(options.shape)

    model = fo.from_torch(module, x)
    print(model.explain(), end="\n\n")
    with torch.inference_mode():
        difference = (torch.from_numpy(model(x)) - module(x)).abs().max().item()
        calls, times = {"fusedops": lambda: model(x), "PyTorch": lambda: module(x)}, {"fusedops": [], "PyTorch": []}
        for _ in range(20):  # interleaved, so that other work on the machine meets both
            for name, call in calls.items():
                times[name].append(100 * timeit(call, number=10))
    print(model.benchmark(x), end="\n\n")
    print(*(f"{name}: {median(ms):.4f} ms" for name, ms in times.items()), sep=", ", end=" (medians); ")
    print(f"results differ by {difference:.0e} at most")


if __name__ == "__main__":
    main()
