"""Trains the two small networks that the other examples use, in about a minute, and writes their files next to it.

    python examples/make_networks.py        needs PyTorch and scikit-learn; nothing else here does

digits.fo       a network of convolutions for handwritten digits, as model.save() writes it
digits.npz      images that it has not seen, and what they show
voice.npz       the weights of an LSTM that tells speech from noise
"""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from voice_stream import BANDS, HOP, RATE, features, scene

import fusedops as fo

HERE = Path(__file__).parent


def fit(net, loss_of, steps, rate=3e-3):
    """Adam with a rate that falls to nothing."""
    optimizer = torch.optim.Adam(net.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(step).backward()
        optimizer.step()
        schedule.step()
    return net.eval()


def separable(inputs, outputs, stride):
    return (
        nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def digits():
    data = load_digits()
    x = torch.from_numpy(data.images.astype(np.float32)[:, None] / 16)
    y = torch.from_numpy(data.target)
    shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
    held_out, seen = shuffled[:200], shuffled[200:]
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *separable(16, 32, 1),
        *separable(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    loss = nn.CrossEntropyLoss()

    def batch_loss(step):
        i = seen[torch.randint(len(seen), (64,))]
        return loss(net(x[i]), y[i])

    fit(net, batch_loss, 1500)
    fo.from_torch(net, x[:1]).save(HERE / "digits.fo")
    images = (x[held_out, 0].numpy() * 16).astype(np.uint8)
    np.savez_compressed(HERE / "digits.npz", images=images, labels=y[held_out].numpy().astype(np.uint8))


class Voice(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.lstm, self.score = nn.LSTM(BANDS, hidden), nn.Linear(hidden, 1)

    def forward(self, x):
        return self.score(self.lstm(x)[0])[..., 0]


def voice():
    net, rng = Voice(), np.random.default_rng(0)
    loss, frames = nn.BCEWithLogitsLoss(), 4 * RATE // HOP

    def batch_loss(step):
        scenes = [scene(rng, 4) for _ in range(8)]
        x = np.stack([[features(sound[t * HOP : (t + 1) * HOP]) for t in range(frames)] for sound, _ in scenes], 1)
        truth = np.stack([speaks[HOP // 2 :: HOP] for _, speaks in scenes], 1).astype(np.float32)
        return loss(net(torch.from_numpy(x)), torch.from_numpy(truth))

    fit(net, batch_loss, 150, 1e-2)
    np.savez_compressed(HERE / "voice.npz", **{name: p.detach().numpy() for name, p in net.named_parameters()})


if __name__ == "__main__":
    torch.manual_seed(0)
    digits()
    voice()
