"""Convolutions and pools."""

import math

import numpy as np

from ..fx_values import FxValue, Unsupported


def _list(value, n):
    """A setting for each of n axes; an empty list stays one."""
    values = [value] if isinstance(value, int) else list(value)
    return values * n if len(values) == 1 else values


def _with_batch(p, x, n, run):
    """What `run` makes of x with a batch axis in front, where it has none."""
    if x.ndim == n + 2:
        return run(x)
    single = run(FxValue(p.op("Unsqueeze", x, [0]), (1, *x.shape), x.dtype))
    return [p.op("Squeeze", y, [0]) for y in single] if isinstance(single, list) else p.op("Squeeze", single, [0])


def _pads(padding, kernel, dilation):
    """Padding as ONNX has it, all fronts before all ends; torch puts the odd one of "same" at the end."""
    if padding == "valid":
        return [0] * 2 * len(kernel)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return [t // 2 for t in total] + [t - t // 2 for t in total]
    return list(padding) * 2


def _conv(p, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    n = weight.ndim - 2
    kernel, stride, dilation = list(weight.shape[2:]), _list(stride, n), _list(dilation, n)
    pads = _pads(padding if isinstance(padding, str) else _list(padding, n), kernel, dilation)
    attrs = dict(kernel_shape=kernel, strides=stride, dilations=dilation, pads=pads, group=groups)
    return _with_batch(p, x, n, lambda x: p.op("Conv", x, weight, bias, **attrs))


def _conv_transpose(p, x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    n = weight.ndim - 2
    stride, padding, output_padding, dilation = (_list(v, n) for v in (stride, padding, output_padding, dilation))
    attrs = dict(
        kernel_shape=list(weight.shape[2:]),
        strides=stride,
        dilations=dilation,
        pads=padding * 2,
        output_padding=output_padding,
        group=groups,
    )
    return _with_batch(p, x, n, lambda x: p.op("ConvTranspose", x, weight, bias, **attrs))


def _convolution(p, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, **_):
    if transposed:
        return _conv_transpose(p, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(p, x, weight, bias, stride, padding, dilation, groups)


def _pool_settings(n, kernel_size, stride, padding, ceil_mode):
    kernel, padding = _list(kernel_size, n), _list(padding, n)
    return dict(
        kernel_shape=kernel, strides=_list(stride, n) if stride else kernel, pads=padding * 2, ceil_mode=int(ceil_mode)
    )


def _max_pool(n, indices=False):
    def read(p, x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        attrs = _pool_settings(n, kernel_size, stride, padding, ceil_mode) | dict(dilations=_list(dilation, n))
        if indices and _reads_places(p):
            return _with_batch(p, x, n, lambda x: _with_places(p, x, n, attrs))
        y = _with_batch(p, x, n, lambda x: p.op("MaxPool", x, **attrs))
        return [y, None] if indices else y

    return read


def _max_unpool(n):
    """Zeros but for x, each element at its place in the image that was pooled."""

    def read(p, x, indices, output_size, *_, **__):
        lead, area = list(x.shape[:-n]), p.op("ReduceProd", p.shape(p.made.shape[-n:]), [0], keepdims=1)
        flat = p.op("Concat", p.shape(lead), area, axis=0)
        zeros = p.op("Expand", p.scalar(0, p.made), flat)
        rows = [p.op("Reshape", v, p.op("Concat", p.shape(lead), np.array([-1]), axis=0)) for v in (indices, x)]
        return p.reshape(FxValue(p.op("ScatterElements", zeros, *rows, axis=-1), [*lead, -1]), p.made.shape)

    return read


def _with_places(p, x, n, attrs):
    """The maxima, and their places in each channel: ONNX counts those of all channels."""
    y, places = p.op("MaxPool", x, count=2, **attrs)
    return [y, p.op("Mod", places, p.op("ReduceProd", p.shape(x.shape[-n:]), [0], keepdims=0))]


def _reads_places(p):
    return any(reader.args[1] == 1 and reader.users for reader in p.fx_node.users)


def _without_places(p, y):
    """Both results of a max pool whose second, the places of the maxima, nobody reads."""
    if _reads_places(p):
        raise Unsupported("fusedops does not have the places of a max pool's maxima")
    return [y, None]


def _avg_pool(n):
    def read(p, x, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        attrs = _pool_settings(n, kernel_size, stride, padding, ceil_mode)
        if divisor_override is None:
            return _with_batch(
                p, x, n, lambda x: p.op("AveragePool", x, **attrs, count_include_pad=int(count_include_pad))
            )
        if ceil_mode:
            raise Unsupported("fusedops does not have an average pool with divisor_override and ceil_mode")
        factor = p.scalar(math.prod(attrs["kernel_shape"]) / divisor_override, x)
        return _with_batch(p, x, n, lambda x: p.op("Mul", p.op("AveragePool", x, **attrs, count_include_pad=1), factor))

    return read


def _adaptive(n, mean):
    """A pool to a given size: over the whole image, by equal windows, or by windows of the sizes that torch takes."""

    def read(p, x, output_size):
        wanted = [x.shape[x.ndim - n + i] if o is None else o for i, o in enumerate(_list(output_size, n))]
        y = _with_batch(p, x, n, lambda x: _adapted(p, x, n, wanted, mean))
        return y if mean else _without_places(p, y)

    return read


def _adapted(p, x, n, wanted, mean):
    if all(o == 1 for o in wanted):
        return p.op("GlobalAveragePool" if mean else "GlobalMaxPool", x)
    sizes = p.static(x.shape[2:], "an adaptive pool of an image")
    if all(s % o == 0 for s, o in zip(sizes, wanted, strict=True)):
        kernel = [s // o for s, o in zip(sizes, wanted, strict=True)]
        return p.op("AveragePool" if mean else "MaxPool", x, kernel_shape=kernel, strides=kernel)
    for a, (s, o) in enumerate(zip(sizes, wanted, strict=True), 2):
        if s != o:
            x = _adapted_axis(p, x, a, n + 2, s, o, mean)
    return x


def _adapted_axis(p, x, a, ndim, size, wanted, mean):
    """One axis: means as a product with a matrix of weights, maxima of windows that are filled up with their last
    element."""
    bounds = [(i * size // wanted, -(-(i + 1) * size // wanted)) for i in range(wanted)]
    if not mean:
        longest = max(e - b for b, e in bounds)
        table = np.array([[min(b + j, e - 1) for j in range(longest)] for b, e in bounds], np.int64)
        return p.op("ReduceMax", p.op("Gather", x, table, axis=a), [a + 1], keepdims=0)
    weights = p.torch.zeros(size, wanted, dtype=p.made.dtype)
    for i, (b, e) in enumerate(bounds):
        weights[b:e, i] = 1 / (e - b)
    order = [i for i in range(ndim) if i != a] + [a]
    y = p.op("MatMul", p.op("Transpose", x, perm=order), weights)
    return p.op("Transpose", y, perm=[order.index(i) for i in range(ndim)])


READERS = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _conv),
    "convolution": _convolution,
    "_convolution": _convolution,
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_transpose),
    **{f"max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": _max_pool(n, indices=True) for n in (1, 2, 3)},
    **{f"max_unpool{n}d": _max_unpool(n) for n in (2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    **{f"{prefix}adaptive_avg_pool{n}d": _adaptive(n, mean=True) for prefix in ("", "_") for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _adaptive(n, mean=False) for n in (1, 2, 3)},
}
