"""A small GPT-like network that writes token by token, in NumPy and fusedops alone: keys and values of the past are
kept and never computed again.

    python examples/gpt.py [--tokens 64] [--layers 4] [--width 256] [--heads 8] [--kv-heads 2]

The weights are random, so it writes nothing that makes sense. What counts: greedy decoding token by token gives the
tokens, and the bits of the logits, that the network gives for the whole sequence at once; and a token takes the same
time at any place, but for reading the keys before it.
"""

import argparse
import time

import numpy as np

import fusedops as fo


class Block:
    """Attention and two layers, each after a norm and with a residual."""

    def __init__(self, rng, width, heads, kv_heads):
        def w(n, k):
            return rng.standard_normal((n, k), np.float32) / np.float32(np.sqrt(k))

        self.heads, self.kv_heads, self.d = heads, kv_heads, width // heads
        self.qkv = fo.Linear(w((heads + 2 * kv_heads) * self.d, width))  # one product for all three
        self.out, self.up, self.down = (
            fo.Linear(w(width, width)),
            fo.Linear(w(4 * width, width), activation="gelu"),
            fo.Linear(w(width, 4 * width)),
        )
        self.norms = [1 + rng.standard_normal(width, np.float32) / 8 for _ in range(2)]

    def cache(self, batch, capacity=64):
        return fo.KVCache(batch, self.kv_heads, self.d, capacity=capacity)

    def __call__(self, x, cache):
        """x (batch, t, width) of the next t tokens; without a cache, of all."""
        batch, t, width = x.shape
        heads = (
            self.qkv(fo.rms_norm(x, self.norms[0])).reshape(batch, t, -1, self.d).swapaxes(1, 2)
        )  # heads side by side in memory: no copy
        q, k, v = np.split(heads, [self.heads, self.heads + self.kv_heads], axis=1)
        if cache is None:
            y = fo.attention(q, k, v, causal=True)
        else:
            cache.append(k, v)
            y = cache.attention(q)
        x = self.out(y.swapaxes(1, 2).reshape(batch, t, width), residual=x)
        return self.down(self.up(fo.rms_norm(x, self.norms[1])), residual=x)


class Decoder:
    def __init__(self, seed=0, words=512, layers=4, width=256, heads=8, kv_heads=2, positions=4096):
        rng = np.random.default_rng(seed)
        self.words = rng.standard_normal((words, width), np.float32)
        self.positions = rng.standard_normal((positions, width), np.float32) / 4
        self.blocks = [Block(rng, width, heads, kv_heads) for _ in range(layers)]
        self.head = fo.Linear(self.words / np.float32(np.sqrt(width)))

    def caches(self, batch=1, capacity=64):
        return [block.cache(batch, capacity) for block in self.blocks]

    def __call__(self, tokens, caches=None):
        """Logits (batch, t, words) of tokens (batch, t), which follow those in the caches."""
        first = len(caches[0]) if caches else 0
        x = self.words[tokens] + self.positions[first : first + tokens.shape[1]]
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache)
        return self.head(x)

    def write(self, tokens, count):
        """(`count` tokens after those of (batch, t), the logits of each, the seconds of each)."""
        caches, written, logits, seconds = self.caches(len(tokens)), [], [], []
        for _ in range(count):
            start = time.perf_counter()
            logits.append(self(tokens, caches)[:, -1])
            tokens = logits[-1].argmax(-1)[:, np.newaxis]
            seconds.append(time.perf_counter() - start)
            written.append(tokens)
        return np.concatenate(written, 1), np.stack(logits, 1), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("tokens", 64), ("layers", 4), ("width", 256), ("heads", 8), ("kv-heads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = vars(parser.parse_args())
    count = options.pop("tokens")
    decoder, prompt = Decoder(**options), np.array([[1, 2, 3, 4, 5]])
    written, logits, seconds = decoder.write(prompt, count)
    whole = decoder(np.concatenate([prompt, written[:, :-1]], 1))[:, prompt.shape[1] - 1 :]
    assert (whole.argmax(-1) == written).all() and np.array_equal(whole, logits)
    print(
        f"{count} tokens, {1e3 * np.median(seconds[1:] or seconds):.2f} ms each; "
        "the whole sequence gives the same tokens and bits"
    )


if __name__ == "__main__":
    main()
