"""Functions of int16 by the tables of TFLite's reference kernels, which are some steps off what the functions are."""

from functools import cache

import numpy as np

from ....operators.int16_tables import interpolated


def is_int16(op):
    """Whether LiteRT has a table: input and result are int16, each with one scale, and zero as zero point; results
    below 1 have 15 bits after the point."""
    held = op.inputs[0], op.outputs[0]
    known = [h.quantization for h in held if h.tensor.dtype == np.int16 and h.quantization is not None]
    if len(known) < 2 or any(q.scale.size != 1 or q.zero.any() for q in known):
        return False
    return op.kind in ("EXP", "LOG") or known[1].scale[0] == 2.0**-15


def _scales(op):
    return [held.quantization.scale[0] for held in (op.inputs[0], op.outputs[0])]


def _looked_up(r, op, results):
    """Each element's value of a table, whose order is that of the numbers -32768 to 32767."""
    table = r.constant(f"{r.at}.table", np.roll(results, 32768), np.int16)
    r.put(op.outputs[0], r.emit("LookedUpInt16", r.value(op.inputs[0], real=False), table), real=False)


# ---- the sigmoid and what follows of it


@cache
def _sigmoid():
    """65536 sigmoid(i / 24) for 0 to 255, each moved by half of the error of a line in the middle after it; the last
    is the end."""
    here, middle, following = (65536 / (1 + np.exp(-(np.arange(256) + a) / 24)) for a in (0, 0.5, 1))
    table = np.rint(here - ((here + following) / 2 - middle) / 2).astype(np.int64)
    table[-1] = 65535
    return table


def _multiplier(scale):
    """(the factor, the shift to the right) to steps of 1 / (3 * 4096)."""
    shift = 12 + np.rint(np.log2(float(scale)))
    if 2.0 ** (shift - 12) == scale and shift in (0, 1):
        return 3 << int(shift), 0
    factor, shift = float(scale) * 4096.0 * 3.0, 0
    while factor <= 32767 / 2 and shift <= 30:
        factor, shift = factor * 2, shift + 1
    return int(factor), shift


def _from_sigmoid(scale, bits):
    """(the scaled input, the table's value for its magnitude with `bits` more bits) for all of int16."""
    factor, shift = _multiplier(scale)
    x = np.arange(-32768, 32768) * factor + (1 << shift >> 1) >> shift
    size, table = np.abs(x), _sigmoid()
    at = np.minimum(size >> bits, 254)
    between = (table[at] << bits) + (size & (1 << bits) - 1) * (table[at + 1] - table[at])
    return x, between, size >> bits >= 255


def logistic(r, op):
    x, found, beyond = _from_sigmoid(_scales(op)[0], 9)
    found = np.where(beyond, 0x7FFF << 10, found)
    _looked_up(r, op, np.where(x >= 0, found + (1 << 9), (1 << 25) - found + (1 << 9) - 1) >> 10)


def tanh(r, op):
    x, found, beyond = _from_sigmoid(_scales(op)[0], 8)
    found = np.where(beyond, 0xFFFF << 8, found) - (1 << 23)
    _looked_up(r, op, np.where(x >= 0, found + (1 << 7), -found + (1 << 7) - 1) >> 8)


# ---- tables of 513 values


def _round(v):
    """To an integer, ties away from zero."""
    return np.copysign(np.floor(np.abs(v) + v.dtype.type(0.5)), v)


def _table(x_scale, x_zero, y_scale, y_zero, function, real=np.float32):
    """A function's values at every 128th of int16, each moved by half of the error in the middle after it; `real` is
    the type of floats that all is computed in."""
    low, high = (real(x_scale) * real(n - x_zero) for n in (-32768, 32767))
    least, most = (real(y_scale) * real(n - y_zero) for n in (-32768, 32767))
    step, steps = (high - low) / real(512), real(65536) / (most - least)

    def at(points):
        return function(points.astype(np.float64)).astype(real) * steps

    points = low + np.arange(512, dtype=real) * step
    with np.errstate(over="ignore", invalid="ignore"):
        here, middle = _round(at(points)), _round(at(points + step / real(2)))
        following = at(low + np.arange(1, 513, dtype=real) * step)
        error = _round((following + here) / real(2)) - middle
        values = np.append(here - _round(error / real(2)), _round(at(np.array([high]))))
    return np.clip(np.nan_to_num(values, nan=np.inf), -32768, 32767).astype(np.int64)


def exponential(r, op):
    x, y = _scales(op)
    _looked_up(r, op, interpolated(_table(x, 0, y, 0, np.exp), np.arange(-32768, 32768)))


def logarithm(r, op):
    """Numbers that have no logarithm give the lowest result."""
    x, y = _scales(op)
    lowest = np.float32(-32768) * y

    def log(v):
        return np.log(v, where=v > 0, out=np.full_like(v, lowest))

    _looked_up(r, op, interpolated(_table(x, 0, y, 0, log), np.arange(-32768, 32768)))


def softmax(r, op, beta):
    """Along the last axis."""
    significand, shift = np.frexp(float(_scales(op)[0]) * beta / (10.0 / 65535.0))
    exponentials = _table(10.0 / 65535, 32767, 2.0 / 65535, 0, np.exp, np.float64)
    reciprocals = _table(1.0 / 65535, -32768, 2.0 / 65535, 0, lambda v: 1 / (1 + v), np.float64)
    tables = [r.constant(f"{r.at}.table", t, np.int64) for t in (exponentials, reciprocals)]
    attrs = dict(multiplier=int(np.rint(significand * 2**31)), shift=int(shift))
    r.put(op.outputs[0], r.emit("SoftmaxInt16", r.value(op.inputs[0], real=False), *tables, **attrs), real=False)
