"""A NumPy pipeline whose dense layers are fused: a table is standardized, goes through three layers and is scored,
batch by batch.

    python examples/score_table.py [--rows 100000] [--columns 64] [--hidden 128]

The same in plain NumPy is next to it and is timed: each layer there is a product and then a pass for each of bias,
residual and activation. Weights and table are made up.
"""

import argparse
import time

import numpy as np

import fusedops as fo

BATCH = 1024


class Layers:
    """One hidden layer, one with a residual, one that scores; the standardization is part of the first one's
    weights."""

    def __init__(self, rng, table, hidden):
        def w(n, k):
            return rng.standard_normal((n, k), np.float32) / np.float32(np.sqrt(k))

        mean, deviation = table.mean(axis=0), table.std(axis=0)
        # w ((x - mean) / deviation) = (w / deviation) x - (w / deviation) mean
        first = w(hidden, table.shape[1]) / deviation
        self.weights = [(first, -first @ mean), (w(hidden, hidden), w(hidden, 1)[:, 0]), (w(1, hidden), w(1, 1)[:, 0])]


class Fused(Layers):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.layers = [
            fo.Linear(w, bias, activation=activation)
            for (w, bias), activation in zip(self.weights, ("relu", "relu", "sigmoid"))
        ]
        self.hidden = [np.empty((BATCH, len(w)), np.float32) for w, _ in self.weights[:2]]

    def __call__(self, x, out):
        first, second, score = self.layers
        a, b = (hidden[: len(x)] for hidden in self.hidden)
        first(x, out=a)
        second(a, residual=a, out=b)
        score(b, out=out)


class Plain(Layers):
    def __call__(self, x, out):
        (w, bias), (w2, bias2), (w3, bias3) = self.weights
        a = np.maximum(x @ w.T + bias, 0)
        b = np.maximum(a @ w2.T + bias2 + a, 0)
        np.divide(1, 1 + np.exp(-(b @ w3.T + bias3)), out=out)


def run(pipeline, table):
    """(scores, seconds), the best of three times."""
    scores, seconds = np.empty((len(table), 1), np.float32), []
    for _ in range(3):
        start = time.perf_counter()
        for i in range(0, len(table), BATCH):
            pipeline(table[i : i + BATCH], scores[i : i + BATCH])
        seconds.append(time.perf_counter() - start)
    return scores, min(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128)
    options = parser.parse_args()
    table = np.random.default_rng(0).normal(3, 2, (options.rows, options.columns)).astype(np.float32)
    (fused, fast), (plain, slow) = (
        run(kind(np.random.default_rng(1), table, options.hidden), table) for kind in (Fused, Plain)
    )
    assert np.abs(fused - plain).max() < 1e-4
    print(
        f"{options.rows} rows: fused {1e3 * fast:.1f} ms, plain NumPy {1e3 * slow:.1f} ms: {slow / fast:.1f}x; "
        f"the scores differ by {np.abs(fused - plain).max():.0e} at most"
    )


if __name__ == "__main__":
    main()
