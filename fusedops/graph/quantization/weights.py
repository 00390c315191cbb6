"""Weights of products in 4 or 8 bits, without samples: rounded to nearest in blocks, each with the scale of the least
squared error. Rows are rounded to int8 as they come (accuracy level 4 of MatMulBits)."""

import logging
import math

import numpy as np

from ..._core import BITS_COLUMNS
from ..._internal.progress import quiet
from ..ir.explanation import Quantized, QuantizedLayer
from ..ir.float16_weights import narrow, widen
from ..ir.graph import unique
from ..operators.matmul_nbits import pack, packed
from ..operators.registry import OPERATORS

LOGGER = logging.getLogger("fusedops")
BITS = {"int4": 4, "int8": 8}
BLOCK = 32
_CANDIDATES = np.linspace(0.75, 1.1, 15, dtype=np.float32)  # times that for which the largest weight is the last level
_AT_ONCE = 1 << 20  # weights that are looked at


def quantize_weights(graph, weights, keep, tell=quiet):
    """(the graph with the weights of its products in so many bits, the Quantized); `keep` names layers that stay, and
    `tell` is told what part is done."""
    graph, bits = graph.copy(), bits_of(weights)
    widened = widen(graph)
    layers = [n for n in graph.nodes if n.op == "Linear" and graph.constant(n, 1) is not None]
    rows = [*_rounded_rows(graph, layers, _kept(layers, keep), bits, tell), *_others(graph, layers)]
    LOGGER.info("weights in %s: %d of %d layers", weights, sum(row.bits == bits for row in rows), len(rows))
    used = {v for n in graph.nodes for v in n.reads()} | set(graph.results)
    graph.constants, graph.defaults = {v: a for v, a in graph.constants.items() if v in used}, []
    return narrow(graph, widened), Quantized("rounding to nearest", tuple(rows), (), 0.0, 0.0)


def _rounded_rows(graph, layers, kept, bits, tell):
    """Rounds the weights of layers in place; yields what was done to each."""
    sizes, made, done = [graph.constant(n, 1).size for n in layers], {}, 0
    for node, size in zip(layers, sizes, strict=True):
        tell(done / max(sum(sizes), 1), node.name)
        why = "kept, as was asked" if node.name in kept else _why_not(graph, node, bits)
        snr = None if why else _replace(graph, node, bits, made)
        yield QuantizedLayer(node.name, "Linear", 32 if why else bits, snr, None, None, why)
        done += size
    tell(1.0)


def _others(graph, layers):
    """Yields what is said of the other nodes with weights: these stay as they are."""
    names = {n.name for n in layers}
    for node in graph.nodes:
        w = graph.constant(node, 1) if OPERATORS[node.op].kernel.weights else None
        if w is not None and node.name not in names and node.op != "LinearBits":
            yield QuantizedLayer(node.name, node.op, 32, None, None, None, "only products have weights in blocks")


def _kept(layers, keep):
    """The names of the nodes that `keep` names, or the error that there are none of a name, or none at all."""
    if not layers:
        raise ValueError("the network has no product with constant weights")
    names = {name: n.name for n in layers for name in (n.name, *n.fused_from)}
    unknown = [name for name in keep if name not in names]
    if unknown:
        products = ", ".join(n.name for n in layers)
        raise ValueError(f"keep names {unknown[0]!r}, which is not a product; the products are {products}")
    return {names[name] for name in keep}


def bits_of(weights):
    if weights not in BITS:
        raise ValueError(f"weights is {weights!r}, but must be one of {', '.join(map(repr, BITS))}")
    return BITS[weights]


def _why_not(graph, node, bits):
    """Why a product's weights (n, k) stay as they are, or ""."""
    w = graph.constants[node.inputs[1]]
    if w.dtype != np.float32 or node.input(2) and graph.constant(node, 2) is None:
        return f"its weights are of {w.dtype}, or its bias is computed"
    n, k = (-(-size // whole) * whole for size, whole in zip(w.shape, (BITS_COLUMNS, BLOCK), strict=True))
    if n * k * bits // 8 + 4 * n * k // BLOCK >= w.nbytes:
        return "its weights would not be smaller"
    return "" if np.isfinite(w).all() else "its weights are not finite"


def _replace(graph, node, bits, made):
    """Lets a product have such weights; their signal to noise. `made`: constants of weights that products share."""
    name = node.inputs[1]
    (n, k), names = graph.constants[name].shape, [f"{name}.{part}" for part in ("int", "scales", "zeros")]
    attrs = {"N": n, "K": k, "bits": bits, "block_size": BLOCK, "accuracy_level": 4}
    bias = node.input(2)
    node.op, node.attrs, node.inputs = "LinearBits", attrs, [node.inputs[0], "", bias, "", ""]
    if name not in made:
        q, scales, snr = rounded_weights(graph.constants[name], bits)
        taken = dict.fromkeys(graph.constants, 0)
        names = [unique(each, taken) for each in names]
        graph.constants |= dict(zip(names, packed(node, pack(bits, q), scales, None), strict=True))
        made[name] = names, snr
    names, snr = made[name]
    node.inputs = [node.inputs[0], names[0], bias, *names[1:]]
    return snr


def rounded_weights(w, bits):
    """(q of whole blocks, scales, signal to noise in decibels) of weights (n, k), that are (q - 2^(bits - 1)) scale."""
    n, k = w.shape
    blocks = -(-k // BLOCK)
    q, scales = np.empty((n, blocks, BLOCK), np.uint8), np.empty((n, blocks), np.float32)
    signal = noise = 0.0
    rows = max(_AT_ONCE // (blocks * BLOCK), 1)
    for i in range(0, n, rows):
        part = np.zeros((min(rows, n - i), blocks * BLOCK), np.float32)
        part[:, :k] = w[i : i + rows]
        part = part.reshape(-1, BLOCK)
        found, scale = _rounded(part, 2 ** (bits - 1))
        signal += np.square(part, dtype=np.float64).sum()
        noise += np.square(found * scale - part, dtype=np.float64).sum()
        q[i : i + rows] = (found + 2 ** (bits - 1)).reshape(-1, blocks, BLOCK)
        scales[i : i + rows] = scale.reshape(-1, blocks)
    return q.reshape(n, -1), scales, math.inf if not noise else 10 * math.log10(signal / noise)


def _rounded(w, most):
    """(integers in -most .. most - 1 as floats, scales (blocks, 1)) of blocks: of some scales, each made the best one
    for the integers that it gives, those of the least squared error."""
    largest = np.take_along_axis(w, np.abs(w).argmax(1, keepdims=True), 1)  # becomes -most
    best = np.full((len(w), 1), -1.0, np.float32)  # what the error is less than the squares of weights
    q, scale = np.zeros_like(w), np.zeros((len(w), 1), np.float32)
    for part in _CANDIDATES:
        step = largest * np.float32(part / -most)
        tried = np.clip(np.rint(np.divide(w, step, out=np.zeros_like(w), where=step != 0)), -most, most - 1)
        product, square = np.einsum("ij,ij->i", w, tried)[:, None], np.einsum("ij,ij->i", tried, tried)[:, None]
        fitting = np.divide(product, square, out=np.zeros_like(product), where=square != 0)
        better = product * fitting > best
        best = np.where(better, product * fitting, best)
        scale, q = np.where(better, fitting, scale), np.where(better, tried, q)
    return q, scale
