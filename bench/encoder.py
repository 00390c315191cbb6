"""The encoder of a BERT: attention over projected tokens, two products with GELU between them, norms of the sums."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np


@dataclass(frozen=True)
class Encoder:
    """So many layers of `width` elements for each token, four times as many between the two products."""

    layers: int
    tokens: int
    width: int
    heads: int
    batch: int = 1

    @property
    def flop(self):
        products = 2 * self.tokens * 12 * self.width**2
        return self.batch * self.layers * (products + 4 * self.tokens**2 * self.width)

    def arrays(self, rng):
        def product(outputs, inputs):
            w = rng.standard_normal((outputs, inputs), np.float32) / np.float32(np.sqrt(inputs))
            return w, rng.standard_normal(outputs, np.float32) / 10

        def norm():
            return rng.uniform(0.5, 1.5, self.width).astype(np.float32), rng.standard_normal(self.width, np.float32)

        n = self.width
        layers = [
            SimpleNamespace(
                qkv=product(3 * n, n),
                out=product(n, n),
                norm1=norm(),
                wide=product(4 * n, n),
                narrow=product(n, 4 * n),
                norm2=norm(),
            )
            for _ in range(self.layers)
        ]
        return SimpleNamespace(x=rng.standard_normal((self.batch, self.tokens, n), np.float32), layers=layers)
