"""Random numbers: of the network's generator or, with a seed in the file, of a sequence of the operator's own."""

import numpy as np

from ....ir.dtypes import to_onnx
from .entry import Builtin, as_shape

_BITS = 2**64 - 1


def _seed(op):
    """The attribute of a seed of two parts; both 0 are none."""
    first, second = (op.option(name) & _BITS for name in ("Seed", "Seed2"))
    return {"seed": first << 64 | second} if first or second else {}


def _random(kind):
    def read(r, op):
        shape, attrs = as_shape(r, op, 0), {"dtype": to_onnx(np.float32), **_seed(op)}
        if isinstance(shape, list):
            return r.put(op.outputs[0], r.emit(kind, shape=shape, **attrs))
        return r.put(op.outputs[0], r.emit(f"{kind}Like", r.emit("ConstantOfShape", shape), **attrs))

    return read


def _multinomial(r, op):
    count, y = int(op.constant(1, "number of samples").reshape(-1)[0]), op.outputs[0]
    dtype = to_onnx(y.tensor.dtype or np.int64)
    r.put(y, r.emit("Multinomial", r.value(op.inputs[0]), sample_size=count, dtype=dtype, **_seed(op)))


READERS = {
    "MULTINOMIAL": Builtin(_multinomial),
    "RANDOM_STANDARD_NORMAL": Builtin(_random("RandomNormal")),
    "RANDOM_UNIFORM": Builtin(_random("RandomUniform")),
}
