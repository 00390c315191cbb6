"""Norms, and softmax."""

from ..fx_values import FxValue
from .reductions import variance
from .shapes import axis


def _filled(p, tensor, number, count, like):
    """Parameters, or as many times a number where there are none."""
    return p.torch.full((count,), number, dtype=like.dtype) if tensor is None else tensor


def batch_norm(p, x, weight, bias, mean, var, eps):
    c = x.shape[1]
    weight, bias = _filled(p, weight, 1.0, c, x), _filled(p, bias, 0.0, c, x)
    return p.op("BatchNormalization", x, weight, bias, mean, var, epsilon=eps)


def _batch_norm(p, x, weight, bias, running_mean, running_var, training=False, momentum=0.1, eps=1e-5):
    if training or running_mean is None:
        return _by_batch(p, x, weight, bias, eps)
    return batch_norm(p, x, weight, bias, running_mean, running_var, eps)


def _by_batch(p, x, weight, bias, eps):
    """By the statistics of the batch, where none are kept."""
    found, mean = variance(p, x, [a for a in range(x.ndim) if a != 1], 0, True)
    y = p.op("Div", p.op("Sub", x, mean), p.op("Sqrt", p.op("Add", found, p.scalar(eps, x))))
    return _scaled(p, y, weight, bias, x)


def _norm_of_batch(p, x, weight, bias, training, momentum, eps):
    return [_by_batch(p, x, weight, bias, eps), None, None]


def _native_batch_norm(p, *args, **given):
    return [_batch_norm(p, *args, **given), None, None]


def _instance_norm(p, x, weight, bias, running_mean, running_var, use_input_stats, momentum, eps):
    if not use_input_stats:
        return batch_norm(p, x, weight, bias, running_mean, running_var, eps)
    c = x.shape[1]
    return p.op("InstanceNormalization", x, _filled(p, weight, 1.0, c, x), _filled(p, bias, 0.0, c, x), epsilon=eps)


def _layer_norm(p, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    x = input
    if weight is None:
        weight = p.torch.ones(tuple(p.static(normalized_shape, "layer norm")), dtype=x.dtype)
    return p.op(
        "LayerNormalization",
        x,
        weight,
        *[b for b in (bias,) if b is not None],
        axis=x.ndim - len(normalized_shape),
        epsilon=eps,
    )


def _native_layer_norm(p, *args, **given):
    return [_layer_norm(p, *args, **given), None, None]


def _rms_norm(p, x, normalized_shape, weight=None, eps=None):
    """x / sqrt(mean of squares + eps), times the weight."""
    eps = p.torch.finfo(x.dtype).eps if eps is None else eps
    axes = list(range(x.ndim - len(normalized_shape), x.ndim))
    mean = p.op("ReduceMean", p.op("Mul", x, x), axes, keepdims=1)
    y = p.op("Div", x, p.op("Sqrt", p.op("Add", mean, p.scalar(eps, x))))
    return y if weight is None else p.op("Mul", y, weight)


def _fused_rms_norm(p, *args, **given):
    return [_rms_norm(p, *args, **given), None]


def _group_norm(p, x, num_groups, weight=None, bias=None, eps=1e-5):
    """Each group as one channel of an instance norm; constant parameters of channels as those of a batch norm, which
    takes an activation into its step."""
    ones, zeros = p.torch.ones(num_groups, dtype=x.dtype), p.torch.zeros(num_groups, dtype=x.dtype)
    y = p.op("InstanceNormalization", p.op("Reshape", x, [0, num_groups, -1]), ones, zeros, epsilon=eps)
    y = p.reshape(FxValue(y, (x.shape[0], num_groups, None), x.dtype), x.shape)
    if not isinstance(weight, p.torch.Tensor) or not isinstance(bias, p.torch.Tensor):
        return _scaled(p, y, weight, bias, x)
    return p.op("BatchNormalization", y, weight, bias, *(p.torch.full_like(bias, n) for n in (0, 1)), epsilon=0.0)


def _scaled(p, y, weight, bias, x):
    """y with a factor and an addend for each channel of x, where there are any."""
    for op, parameter in (("Mul", weight), ("Add", bias)):
        each = None if parameter is None else p.op("Reshape", parameter, [-1, *[1] * (x.ndim - 2)])
        y = y if each is None else p.op(op, y, each)
    return y


def _native_group_norm(p, x, weight, bias, N, C, HxW, group, eps):
    return [_group_norm(p, x, group, weight, bias, eps), None, None]


def _softmax(op):
    def read(p, x, dim, dtype=None, half_to_float=False):
        return p.op(op, p.cast(x, p.made.dtype), axis=axis(x, dim))

    return read


READERS = {
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _native_batch_norm,
    "native_batch_norm": _native_batch_norm,
    "_native_batch_norm_legit": _norm_of_batch,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "native_layer_norm": _native_layer_norm,
    "rms_norm": _rms_norm,
    "_fused_rms_norm": _fused_rms_norm,
    "group_norm": _group_norm,
    "native_group_norm": _native_group_norm,
    **dict.fromkeys(("softmax", "_softmax", "_safe_softmax"), _softmax("Softmax")),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _softmax("LogSoftmax")),
}
