# Activations, batch norm, batches of products and rows of a table, as functions. Included by _core.pyx after
# functions.pxi, which says how each of them takes its arrays.

# ---- element by element

cdef bint share_axes(fo_axes *axes, ndarray y, ndarray x, int channel) noexcept:
    """The axes that y and x have, and a third array with an element for each point of the axis `channel`; -1: one for
    all. False where they are too many."""
    cdef int d
    axes.nd = 0
    for d in range(cnp.PyArray_NDIM(y)):
        if not add_axis(axes, cnp.PyArray_DIM(y, d), stride_of(y, d), stride_of(x, d), d == channel):
            return False
    fo_fold(axes)
    return True


def activated(x, tuple activation, out=None):
    """activation(x), parsed; the slopes of a PReLU are one for all or one for each point of axis 1."""
    cdef ndarray a = as_float32(x, "x"), y, slopes = activation[3]
    cdef object target
    cdef fo_elementwise_args g
    cdef fo_status status
    cdef int channel = -1 if slopes is None or cnp.PyArray_SIZE(slopes) == 1 else 1
    a = in_lines(a)
    y = writable(out, cnp.PyArray_NDIM(a), cnp.PyArray_DIMS(a), a, None, None, True)
    y = new_like(a) if y is None else y
    target = y if out is None else out
    if cnp.PyArray_SIZE(a) == 0:
        return target
    if not share_axes(&g.axes, y, a, channel):
        a = y = in_order(a)
        share_axes(&g.axes, y, a, channel)
    g.f, g.act = FUNCTIONS["identity"], activation_of(activation)
    if slopes is not None:
        g.f, g.act = FUNCTIONS["prelu"], activation_of(IDENTITY)
    g.y, g.a, g.b = data(y), data(a), data(slopes)
    with nogil:
        status = fo_elementwise(&g)
    check(status)
    return delivered(y, target)


cdef bint channel_rows(fo_pointwise_args *g, ndarray y, ndarray x, int channel) noexcept:
    """The rows of y and x, in order: pixels where channels are neighbors in both, else planes. False where they are
    none."""
    cdef int d
    cdef fo_axes rows, columns
    cdef fo_axes *part
    cdef bint pixels = stride_of(y, channel) == 1 and stride_of(x, channel) == 1
    rows.nd, rows.size[0], rows.stride[0][0], rows.stride[1][0] = 1, 1, 0, 0
    columns = rows
    for d in range(cnp.PyArray_NDIM(y)):
        if pixels and d == channel:
            continue
        part = &rows if pixels or d <= channel else &columns
        if not join_axis(part, cnp.PyArray_DIM(y, d), stride_of(y, d), stride_of(x, d)):
            return False
    g.m, g.ldy, g.ldx = rows.size[0], rows.stride[0][0], rows.stride[1][0]
    g.n, g.channel_rows = cnp.PyArray_DIM(y, channel), 0
    if not pixels:
        g.n, g.channel_rows = columns.size[0], cnp.PyArray_DIM(y, channel)
    return pixels or g.n == 1 or columns.stride[0][0] == 1 and columns.stride[1][0] == 1


def affine(x, int channel, ndarray scale, ndarray shift, tuple activation, out=None):
    """activation(x * scale + shift), with an element of scale, shift and slopes, all contiguous, for each point of the
    axis `channel`."""
    cdef ndarray a = as_float32(x, "x"), y
    cdef object target
    cdef fo_pointwise_args g
    memset(&g, 0, sizeof(g))
    a = in_lines(a)
    y = writable(out, cnp.PyArray_NDIM(a), cnp.PyArray_DIMS(a), a, None, None, True)
    y = new_like(a) if y is None else y
    target = y if out is None else out
    if cnp.PyArray_SIZE(a) == 0:
        return target
    if not channel_rows(&g, y, a, channel):
        a = y = in_order(a)
        channel_rows(&g, y, a, channel)
    g.x, g.y, g.scale, g.shift, g.act = data(a), data(y), data(scale), data(shift), activation_of(activation)
    with nogil:
        fo_pointwise(&g)
    return delivered(y, target)


def copy_to(ndarray y, ndarray x):
    """y[...] = x of float32 arrays of one shape that do not overlap, on all threads."""
    if not ready(y) or not ready(x) or not same_shape(y, cnp.PyArray_NDIM(x), cnp.PyArray_DIMS(x)):
        raise ValueError(f"y has shape {np.shape(y)} and x {np.shape(x)}")
    copy_array(y, x)


# ---- products and rows

cdef bint lies_in_lines(ndarray y) noexcept:
    """Whether the rows or the columns of matrices are contiguous."""
    cdef int j = cnp.PyArray_NDIM(y) - 1
    return (cnp.PyArray_DIM(y, j) == 1 or cnp.PyArray_DIM(y, j - 1) == 1 or stride_of(y, j) == 1
            or stride_of(y, j - 1) == 1)


cdef void place_products(fo_matmul_args *g, ndarray y, ndarray a, ndarray b) noexcept:
    """The sizes and strides of a product over the last two axes; batches that share b and follow one another are rows
    of one product."""
    cdef int i = cnp.PyArray_NDIM(y) - 2, j = i + 1
    g.m, g.n, g.k = cnp.PyArray_DIM(y, i), cnp.PyArray_DIM(y, j), cnp.PyArray_DIM(a, j)
    g.ym, g.yn = stride_of(y, i), 1 if g.n == 1 else stride_of(y, j)
    g.am, g.ak = stride_of(a, i), 1 if g.k == 1 else stride_of(a, j)
    g.bk, g.bn = stride_of(b, i), 1 if g.n == 1 else stride_of(b, j)
    if g.batch.nd == 1 and g.yn == 1 and g.batch.stride[2][0] == 0 and (
            g.m == 1 or g.batch.stride[0][0] == g.m * g.ym and g.batch.stride[1][0] == g.m * g.am):
        if g.m == 1:
            g.ym, g.am = g.batch.stride[0][0], g.batch.stride[1][0]
        g.m *= g.batch.size[0]
        g.batch.size[0] = 1
    elif g.yn != 1 and g.m == 1:
        g.ym = 1


cdef bint share_batches(fo_axes *batch, ndarray y, ndarray a, ndarray b) noexcept:
    """The axes before the last two. False where they are too many."""
    cdef int d
    batch.nd = 0
    for d in range(cnp.PyArray_NDIM(y) - 2):
        if not add_axis(batch, cnp.PyArray_DIM(y, d), stride_of(y, d), stride_of(a, d), stride_of(b, d)):
            return False
    fo_fold(batch)
    return True


def products(ndarray a, ndarray b, out=None):
    """a @ b of float32 arrays (..., m, k) and (..., k, n) with the same axes in front, of which any may have stride
    0."""
    cdef ndarray y
    cdef fo_matmul_args g
    cdef fo_status status
    cdef int nd = cnp.PyArray_NDIM(a), d
    cdef cnp.npy_intp dims[64]  # NumPy has no more
    for d in range(nd):
        dims[d] = cnp.PyArray_DIM(a, d)
    dims[nd - 1] = cnp.PyArray_DIM(b, nd - 1)
    y = writable(out, nd, dims, a, b)
    if y is None or not lies_in_lines(y):
        y = new_result(nd, dims, data(a))
    if cnp.PyArray_SIZE(a) == 0 or cnp.PyArray_SIZE(b) == 0:
        y.fill(0)
        return delivered(y, out)
    if not share_batches(&g.batch, y, a, b):
        a, b, y = contiguous(a), contiguous(b), new_result(nd, dims, data(a))
        share_batches(&g.batch, y, a, b)
    place_products(&g, y, a, b)
    g.y, g.a, g.b, g.scale, g.act = data(y), data(a), data(b), 1, activation_of(IDENTITY)
    with nogil:
        status = fo_matmul(&g)
    check(status)
    return delivered(y, out)


def rows_of(ndarray table, ndarray indices, out=None):
    """table[indices] of float32 rows (n, d) and contiguous indices of 64 bits, -n..n-1."""
    cdef ndarray y
    cdef fo_map_args g
    cdef fo_status status
    cdef int nd = cnp.PyArray_NDIM(indices), d
    cdef cnp.npy_intp dims[64]
    for d in range(nd):
        dims[d] = cnp.PyArray_DIM(indices, d)
    dims[nd] = cnp.PyArray_DIM(table, 1)
    y = writable(out, nd + 1, dims, table)
    if y is None or not cnp.PyArray_IS_C_CONTIGUOUS(y):
        y = new_result(nd + 1, dims)
    memset(&g, 0, sizeof(g))
    add_axis(&g.axes, cnp.PyArray_SIZE(indices), dims[nd], 0, 1)
    add_axis(&g.axes, dims[nd], 1, stride_of(table, 1), 0)
    fo_fold(&g.axes)
    g.f, g.from_, g.to = FO_MAP_GATHER, ELEMENTS[np.dtype(np.int64)], ELEMENTS[FLOAT32]
    g.size, g.stride = cnp.PyArray_DIM(table, 0), stride_of(table, 0)
    g.y, g.a, g.b = data(y), data(table), cnp.PyArray_DATA(indices)
    with nogil:
        status = fo_map(&g)
    check(status)
    return delivered(y, out)
