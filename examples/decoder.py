"""Writes text with an ONNX decoder and its tokenizer, token by token.

    python examples/decoder.py MODEL.onnx tokenizer.json "Once upon a time"
        [--tokens 200] [--temperature 0.8] [--top-p 0.9] [--seed 0] [--weights int4]

Text goes to standard output as it comes, the speed to standard error. A temperature of 0, the default, takes the
likeliest token; above it a token is drawn from the likeliest ones that have a probability of top-p together. It ends at
a token that the tokenizer has for an end, or after so many. Any decoder whose caches are inputs and outputs will do,
such as what optimum-cli, torch.onnx.export or onnxruntime-genai's builder write.
"""

import argparse
import sys
import time
from itertools import chain

import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

import fusedops as fo

ENDS = "</s>", "<eos>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>"


def sampler(temperature=0.0, top_p=1.0, seed=None):
    """A function from the logits (words,) of a token to the token."""
    if not temperature:
        return np.argmax
    rng = np.random.default_rng(seed)

    def draw(logits):
        likeliest = np.argsort(-logits)
        p = np.exp((logits[likeliest].astype(np.float64) - logits.max()) / temperature)
        count = np.searchsorted(np.cumsum(p), top_p * p.sum()) + 1  # the first ones that have so much together
        return rng.choice(likeliest[:count], p=p[:count] / p[:count].sum())

    return draw


def write(model, tokens, choose, count, ends=()):
    """Yields up to `count` tokens after the list `tokens`, and stops at one of `ends`."""
    decoder, ids = model.decoder(), np.array([tokens], model.inputs[0].dtype)
    for _ in range(count):
        results = decoder(ids)
        logits = results[0] if isinstance(results, tuple) else results
        token = int(choose(logits[0, -1]))
        if token in ends:
            return
        yield token
        ids = np.array([[token]], ids.dtype)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="an ONNX file, or what model.save wrote")
    parser.add_argument("tokenizer", help="tokenizer.json")
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=200, help="most tokens (default: 200)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token (default)")
    parser.add_argument("--top-p", type=float, default=1.0, help="how much of the probability counts (default: 1)")
    parser.add_argument("--seed", type=int, help="for the same text each time")
    parser.add_argument("--weights", choices=("int4", "int8"), help="round the weights of a float32 network first")
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(options.tokenizer)
    model = (fo.load if options.model.endswith(".fo") else fo.load_onnx)(options.model)
    if options.weights:
        model = model.quantize(weights=options.weights)
    tokens = tokenizer.encode(options.prompt).ids
    if not tokens:
        parser.error("the prompt has no token: write at least a word")
    stream, start, written = DecodeStream(skip_special_tokens=True), time.perf_counter(), []
    choose = sampler(options.temperature, options.top_p, options.seed)
    ends = {tokenizer.token_to_id(end) for end in ENDS} - {None}
    for token in chain(tokens, write(model, tokens, choose, options.tokens, ends)):
        print(stream.step(tokenizer, token) or "", end="", flush=True)  # None: a character's first bytes
        written.append(token)
    count, seconds = len(written) - len(tokens), time.perf_counter() - start
    print(f"\n{count} tokens, {count / seconds:.1f} a second, the prompt included", file=sys.stderr)


if __name__ == "__main__":
    main()
