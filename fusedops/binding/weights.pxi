# Weights as layers take them, and passes over images. Included by _core.pyx.

cdef ndarray vector(object a, str name, Py_ssize_t channels):
    """A parameter of each output channel, contiguous."""
    cdef ndarray v
    if a is None:
        return None
    v = as_float32(a, name)
    if cnp.PyArray_NDIM(v) != 1 or cnp.PyArray_DIM(v, 0) != channels:
        raise ValueError(f"{name} has shape {np.shape(v)}, but there are {channels} output channels: it must have "
                         f"shape ({channels},)")
    return contiguous(v)


def batch_norm_scale(gamma, beta, mean, var, double eps, Py_ssize_t channels):
    """scale and shift in float64 of a batch norm, or the error that says what is wrong; None where some var + eps is
    not positive."""
    cdef cnp.npy_intp n = channels
    cdef ndarray g = vector(gamma, "bn.gamma", n), b = vector(beta, "bn.beta", n)
    cdef ndarray m = vector(mean, "bn.mean", n), v = vector(var, "bn.var", n)
    cdef ndarray scale = cnp.PyArray_EMPTY(1, &n, cnp.NPY_FLOAT64, 0)
    cdef ndarray shift = cnp.PyArray_EMPTY(1, &n, cnp.NPY_FLOAT64, 0)
    if fo_batch_norm_scale(n, data(g), data(b), data(m), data(v), eps, doubles(scale), doubles(shift)):
        return scale, shift


def fold_bias(bias, ndarray scale, ndarray shift):
    """bias * scale + shift in float64, rounded once. scale and shift float64, contiguous; bias may be None."""
    cdef cnp.npy_intp n = cnp.PyArray_DIM(scale, 0)
    cdef ndarray given = vector(bias, "bias", n), folded = cnp.PyArray_EMPTY(1, &n, cnp.NPY_FLOAT32, 0)
    fo_fold_bias(n, data(given), doubles(scale), doubles(shift), data(folded))
    return folded


def fold_scale(ndarray w, ndarray scale):
    """w[o] * scale[o] in float64, rounded once. w float32 and scale float64, both contiguous."""
    cdef ndarray folded = np.empty_like(w)
    cdef Py_ssize_t m = w.shape[0], n = w.size // m if m else 0
    with nogil:
        fo_fold_scale(m, n, data(w), doubles(scale), data(folded))
    return folded


def as_input(x, str name, ndim=None):
    """x as a float32 array of ndim axes (an int or a tuple of ints), or the error that says what is wrong."""
    return with_axes(as_float32(x, name), name, ndim)


cdef object with_axes(object a, str name, object ndim):
    if ndim is not None and a.ndim not in ((ndim,) if isinstance(ndim, int) else ndim):
        raise ValueError(f"{name} has shape {a.shape}, but must have "
                         f"{ndim if isinstance(ndim, int) else ' or '.join(map(str, ndim))} axes")
    return a


def is_bfloat16(dtype):
    """Whether a dtype is bfloat16 by its name, as that of ml_dtypes; or its bits, a number or a field of that name."""
    return dtype.itemsize == 2 and dtype.isnative and "bfloat16" in str(dtype)  # the name is slow to get


cdef narrowed(ndarray w, dtype):
    """float32 weights as a type that has all of their values."""
    if not is_bfloat16(dtype):
        return w.astype(dtype, copy=False)
    return (w.view(np.uint32) >> 16).astype(np.uint16).view(dtype)


def as_weights(w, str name, ndim=None, str order="C", bint bfloat16=False):
    """A copy of weights that are float32 or float16, or bfloat16 where that is taken; or the error that says what is
    wrong. order None: as they are, no copy."""
    if isinstance(w, (int, np.integer)):
        raise TypeError(f"{name} must be an array of weights, not {w}: layers are made from weights, not from sizes")
    cdef object a = w if ready(w) else as_array(w, name)
    if not (bfloat16 and is_bfloat16(a.dtype)) and a.dtype != np.float16:
        a = as_input(w, name, ndim)
        return a if order is None else a.copy(order)
    a = with_axes(a, name, ndim)
    plain = a.flags.aligned and not any([stride % a.itemsize for stride in a.strides])
    return a if order is None and plain else a.copy(order or "C")


def widened(a, str name, ndarray w):
    """A vector that goes with weights w, as float32: it may be of their type. None stays."""
    if a is None or cnp.PyArray_TYPE(w) == cnp.NPY_FLOAT32:
        return a
    b = as_array(a, name)
    if b.dtype != (<object>w).dtype:
        return a
    if b.dtype == np.float16:
        return b.astype(np.float32)
    return (np.ascontiguousarray(b).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


cdef inline Py_ssize_t row_stride(ndarray a) noexcept:
    return 0 if a is None else cnp.PyArray_STRIDE(a, 0) // 4


def pointwise(ndarray x, ndarray y, *, Py_ssize_t channel_rows=0, ndarray factor=None, ndarray scale=None,
              ndarray shift=None,
              ndarray residual=None, tuple activation=(0, 0.0, 0.0, None)):
    """y = activation(x * factor * scale + shift + residual) as one pass over (m, n) matrices with contiguous rows; y
    may be x."""
    cdef fo_pointwise_args g
    g.m, g.n = x.shape[0], x.shape[1]
    g.x, g.factor, g.residual, g.y = data(x), data(factor), data(residual), data(y)
    g.ldx, g.ldf, g.ldr, g.ldy = row_stride(x), row_stride(factor), row_stride(residual), row_stride(y)
    g.scale, g.shift = data(scale), data(shift)
    g.channel_rows = channel_rows
    g.act = activation_of(activation)
    with nogil:
        fo_pointwise(&g)


def sampled(ndarray x, ndarray at, ndarray w):
    """(points, c): row p is the sum over t of w[t, p] times row at[t, p] of x; x (rows, c) and w (taps, points) are
    float32, `at` int64, all contiguous."""
    cdef fo_sample_args g
    cdef Py_ssize_t i, size = at.size, rows = x.shape[0]
    cdef const int64_t *places = <const int64_t *>cnp.PyArray_DATA(at)
    cdef bint inside = True
    for i in range(size):
        inside &= 0 <= places[i] < rows
    if not inside:
        raise IndexError(f"places from {at.min()} to {at.max()} are not all among {rows} rows")
    cdef ndarray y = np.empty((at.shape[1], x.shape[1]), np.float32)
    g.taps, g.points, g.c = at.shape[0], at.shape[1], x.shape[1]
    g.ldx = g.ldy = g.c
    g.x, g.w, g.at, g.y = data(x), data(w), places, data(y)
    with nogil:
        fo_sample(&g)
    return y


def suppressed(boxes, scores, Py_ssize_t most, float overlap, least, bint centred):
    """Rows (batch, class, box) of boxes (batch, count, 4) that no better one of their class overlaps by more than
    `overlap`; scores (batch, classes, count), above `least` unless that is None."""
    cdef ndarray box = np.ascontiguousarray(as_float32(boxes, "boxes"))
    cdef ndarray score = np.ascontiguousarray(as_float32(scores, "scores"))
    cdef fo_suppress_args a
    cdef Py_ssize_t found = 0
    cdef fo_status status
    a.batch, a.classes, a.boxes, a.most = score.shape[0], score.shape[1], score.shape[2], max(most, 0)
    cdef ndarray counts = np.empty(a.batch * a.classes, np.intp)
    cdef ndarray kept = np.empty(a.batch * a.classes * min(a.most, a.boxes), np.uint32)
    a.box, a.score, a.centred, a.limited = data(box), data(score), centred, least is not None
    a.overlap, a.least = overlap, 0 if least is None else least
    a.counts, a.kept = <Py_ssize_t *>cnp.PyArray_DATA(counts), <uint32_t *>cnp.PyArray_DATA(kept)
    with nogil:
        status = fo_suppress(&a, &found)
    check(status)
    cdef ndarray rows = np.empty((found, 3), np.int64)
    if found:
        fo_suppressed(&a, <int64_t *>cnp.PyArray_DATA(rows))
    return rows
