# What surrounds the products, as functions: pools, softmax, norms, resizing. And transposed convolutions. Included by
# _core.pyx.
#
# Each checks its arguments, takes `out` where kernels can write there or a new array, and makes one C call; `delivered`
# ends it. Shapes and options that follow from one another are the business of functional/.

# ---- results: for every call that takes `out`

cdef bint same_place(ndarray y, ndarray x) noexcept:
    """Whether each element of y lies where that of x does."""
    cdef int i
    if x is None or cnp.PyArray_NDIM(y) != cnp.PyArray_NDIM(x) or cnp.PyArray_DATA(y) != cnp.PyArray_DATA(x):
        return False
    for i in range(cnp.PyArray_NDIM(y)):
        if cnp.PyArray_DIM(y, i) != cnp.PyArray_DIM(x, i) or cnp.PyArray_STRIDE(y, i) != cnp.PyArray_STRIDE(x, i):
            return False
    return True


cdef ndarray writable(object out, int nd, cnp.npy_intp *dims, ndarray a, ndarray b=None, ndarray c=None,
                      bint in_place=False):
    """out, checked, if a kernel that reads a, b and c can write there; else None: the result goes to a new array, and
    `delivered` copies it.

    in_place: the kernel may write an element of a, b or c where it has read it.
    """
    cdef ndarray y
    if out is None:
        return None
    if ready(out) and cnp.PyArray_ISWRITEABLE(<ndarray>out) and same_shape(<ndarray>out, nd, dims):
        y = <ndarray>out
    else:
        y = checked_out(out, shape_of(nd, dims))
    if not ready(y) or in_the_way(y, a, in_place) or in_the_way(y, b, in_place) or in_the_way(y, c, in_place):
        return None
    return y


cdef bint in_the_way(ndarray y, ndarray x, bint in_place) noexcept:
    return overlap(y, x) and not (in_place and same_place(y, x))


cdef object delivered(ndarray y, object target):
    """The result of a call: target, which gets y's values where it is not y; y where there is none."""
    if target is None or y is target:
        return y
    if ready(target):
        copy_array(<ndarray>target, y)
    else:
        target[...] = y
    return target


cdef ndarray new_like(ndarray x):
    """A new array of x's shape, in its memory order."""
    if cnp.PyArray_IS_C_CONTIGUOUS(x):
        return new_result(cnp.PyArray_NDIM(x), cnp.PyArray_DIMS(x), data(x))
    return np.empty_like(x)


cdef inline Py_ssize_t stride_of(ndarray a, int d) noexcept:
    """In elements; 0 of a single one, whose stride may be anything."""
    return 0 if cnp.PyArray_DIM(a, d) == 1 else cnp.PyArray_STRIDE(a, d) // 4


cdef bint add_axis(fo_axes *axes, Py_ssize_t size, Py_ssize_t y, Py_ssize_t x, Py_ssize_t scale) noexcept nogil:
    """Appends an axis with its strides. False where there are too many that cannot be merged."""
    if axes.nd == FO_AXES:
        fo_fold(axes)
        if axes.nd == FO_AXES:
            return False
    axes.size[axes.nd] = size
    axes.stride[0][axes.nd], axes.stride[1][axes.nd], axes.stride[2][axes.nd], axes.stride[3][axes.nd] = y, x, scale, 0
    axes.nd += 1
    return True


cdef int copy_array(ndarray y, ndarray x) except -1:
    """y[...] = x of arrays that do not overlap, on all threads."""
    cdef fo_copy_args copy
    cdef fo_status status
    cdef int d
    if cnp.PyArray_SIZE(y) == 0:
        return 0
    copy.x, copy.y, copy.size, copy.axes.nd = data(x), data(y), 0, 0
    for d in range(cnp.PyArray_NDIM(y)):
        if not add_axis(&copy.axes, cnp.PyArray_DIM(y, d), stride_of(y, d), stride_of(x, d), 0):
            y[...] = x
            return 0
    fo_fold(&copy.axes)
    with nogil:
        status = fo_strided_copy(&copy)
    return check(status)


cdef ndarray in_lines(ndarray x):
    """x, or a copy of its order where no axis is contiguous: kernels would read each element by itself."""
    cdef ndarray y
    cdef int d
    for d in range(cnp.PyArray_NDIM(x)):
        if cnp.PyArray_DIM(x, d) > 1 and -4 <= cnp.PyArray_STRIDE(x, d) <= 4:
            return x
    if cnp.PyArray_SIZE(x) < 2:
        return x
    y = new_like(x)
    copy_array(y, x)
    return y


cdef ndarray in_order(ndarray x):
    """A C-contiguous copy."""
    cdef ndarray y = new_result(cnp.PyArray_NDIM(x), cnp.PyArray_DIMS(x))
    copy_array(y, x)
    return y


cdef bint join_axis(fo_axes *fibre, Py_ssize_t size, Py_ssize_t y, Py_ssize_t x) noexcept:
    """Appends an axis to the one of a fibre, in the order of its elements. False where they are not one axis."""
    if size != 1 and fibre.size[0] != 1 and (fibre.stride[0][0] != size * y or fibre.stride[1][0] != size * x):
        return False
    if size != 1:
        fibre.size[0] *= size
        fibre.stride[0][0], fibre.stride[1][0] = y, x
    return True


cdef bint split_axes(ndarray y, ndarray x, int first, int last, Py_ssize_t groups, fo_axes *kept,
                     fo_axes *fibre) noexcept:
    """The axes first .. last of y and x as those of a fibre, the others as kept. False where kernels cannot read it so.

    groups > 0: the first axis of the fibre is cut into so many, each with a scale of its own, after one another.
    """
    cdef int d
    cdef Py_ssize_t size
    kept.nd, fibre.nd, fibre.size[0], fibre.stride[0][0], fibre.stride[1][0] = 0, 1, 1, 0, 0
    for d in range(cnp.PyArray_NDIM(y)):
        size = cnp.PyArray_DIM(y, d)
        if first == d and groups:
            size //= groups
            if not add_axis(kept, groups, size * stride_of(y, d), size * stride_of(x, d), size):
                return False
        if first <= d <= last:
            if not join_axis(fibre, size, stride_of(y, d), stride_of(x, d)):
                return False
        elif not add_axis(kept, size, stride_of(y, d), stride_of(x, d), 0):
            return False
    fo_fold(kept)
    return True


# ---- softmax and norms

def softmax(x, int along, bint log, out=None):
    """softmax(x) along an axis in 0..x.ndim-1, or its logarithm; of whatever has no elements, nothing."""
    cdef ndarray a = as_float32(x, "x"), y
    cdef object target
    cdef fo_softmax_args g
    cdef fo_axes fibre
    cdef fo_status status
    a = in_lines(a)
    y = writable(out, cnp.PyArray_NDIM(a), cnp.PyArray_DIMS(a), a, None, None, True)
    y = new_like(a) if y is None else y
    target = y if out is None else out
    if cnp.PyArray_SIZE(a) == 0:
        return target
    if not split_axes(y, a, along, along, 0, &g.kept, &fibre):
        a = y = in_order(a)
        split_axes(y, a, along, along, 0, &g.kept, &fibre)
    g.n, g.sy, g.sx = fibre.size[0], fibre.stride[0][0], fibre.stride[1][0]
    g.log, g.y, g.x = log, data(y), data(a)
    with nogil:
        status = fo_softmax(&g)
    check(status)
    return delivered(y, target)


def norm(x, int first, Py_ssize_t groups, float eps, bint rms, weight=None, bias=None, residual=None, out=None):
    """The norm of x + residual over the axes from `first` on, of which that one is cut into groups where there are
    some.

    weight and bias have an element for each point of the axis `first`, or of the last one where there are no groups.
    """
    cdef ndarray a = as_float32(x, "x"), r = None, w = None, b = None, y
    cdef object target
    cdef int nd = cnp.PyArray_NDIM(a), scaled = first if groups else nd - 1
    cdef fo_norm_args g
    cdef fo_axes fibre
    cdef fo_status status
    a = in_lines(a)
    w, b = parameter(weight, "weight", a, scaled), parameter(bias, "bias", a, scaled)
    if residual is not None:
        r = as_float32(residual, "residual")
        if not same_shape(r, nd, cnp.PyArray_DIMS(a)):
            raise ValueError(f"residual has shape {np.shape(r)}, but x has shape {np.shape(a)}")
    y = writable(out, nd, cnp.PyArray_DIMS(a), a, r, None, True)
    y = new_like(a) if y is None or overlap(y, w) or overlap(y, b) else y
    target = y if out is None else out
    if cnp.PyArray_SIZE(a) == 0:
        return target
    if r is not None and not same_strides(r, a):  # the kernel reads both as one
        a, r = contiguous(a), contiguous(r)
    if not split_axes(y, a, first, nd - 1, groups, &g.kept, &fibre):
        a = y = in_order(a)
        r = None if r is None else contiguous(r)
        split_axes(y, a, first, nd - 1, groups, &g.kept, &fibre)
    g.n, g.sy, g.sx, g.ss, g.eps, g.rms = fibre.size[0], fibre.stride[0][0], fibre.stride[1][0], 1, eps, rms
    g.span = g.n // (cnp.PyArray_DIM(a, first) // groups) if groups else 1
    g.y, g.x, g.scale, g.shift, g.residual = data(y), data(a), data(w), data(b), data(r)
    with nogil:
        status = fo_norm(&g)
    check(status)
    return delivered(y, target)


cdef ndarray parameter(object values, str name, ndarray x, int axis):
    """A contiguous vector with an element for each point of an axis of x, or None."""
    if values is None:
        return None
    cdef ndarray a = as_float32(values, name)
    if cnp.PyArray_NDIM(a) != 1 or cnp.PyArray_DIM(a, 0) != cnp.PyArray_DIM(x, axis):
        raise ValueError(f"{name} has shape {np.shape(a)}, but x has shape {np.shape(x)}: it must have shape "
                         f"({cnp.PyArray_DIM(x, axis)},)")
    return contiguous(a)


cdef bint same_strides(ndarray a, ndarray b) noexcept:
    cdef int d
    for d in range(cnp.PyArray_NDIM(a)):
        if stride_of(a, d) != stride_of(b, d):
            return False
    return True


# ---- attention

def attention(x, ndarray k, ndarray v, ndarray mask, bint causal, Py_ssize_t diagonal, float scale, out=None,
              str precision="float32"):
    """q, k and v of 3 axes and more, whose axes before (heads, tokens, elements) agree; a mask of (..., heads, t, s),
    bool or float32, or None.

    causal: query i sees the keys up to i + diagonal. precision: of the operands. The result is in q's memory order
    where heads stand between a token's elements.
    """
    cdef ndarray q = as_float32(x, "q"), y
    cdef fo_attention_args g
    cdef fo_status status
    cdef int nd = cnp.PyArray_NDIM(q), d
    cdef cnp.npy_intp dims[64]  # NumPy has no more
    cdef int width = 1 if mask is None else cnp.PyArray_ITEMSIZE(mask)
    for d in range(nd):
        dims[d] = cnp.PyArray_DIM(q, d)
    dims[nd - 1] = cnp.PyArray_DIM(v, nd - 1)
    y = writable(out, nd, dims, q, k, False)
    if y is None or overlap(y, v) or overlap(y, mask):
        y = attended(q, dims)
    g.rows.nd = g.keys.nd = 0
    for d in range(nd - 3):
        add_axis(&g.rows, dims[d], stride_of(y, d), stride_of(q, d),
                 0 if mask is None else bytes_between(mask, d) // width)
        add_axis(&g.keys, dims[d], 0, stride_of(k, d), stride_of(v, d))
    g.heads, g.t, g.d, g.dv = dims[nd - 3], dims[nd - 2], q.shape[nd - 1], dims[nd - 1]
    g.kv_heads, g.s = k.shape[nd - 3], k.shape[nd - 2]
    g.yh, g.yt, g.yd = stride_of(y, nd - 3), stride_of(y, nd - 2), unit_stride(y)
    g.qh, g.qt, g.qd = stride_of(q, nd - 3), stride_of(q, nd - 2), unit_stride(q)
    g.kh, g.ks, g.kd = stride_of(k, nd - 3), stride_of(k, nd - 2), unit_stride(k)
    g.vh, g.vs, g.vd = stride_of(v, nd - 3), stride_of(v, nd - 2), unit_stride(v)
    g.added, g.taken, g.mh, g.mt, g.ms = NULL, NULL, 0, 0, 0
    if mask is not None:
        g.mh, g.mt, g.ms = [bytes_between(mask, d) // width for d in range(nd - 3, nd)]
        if width == 1:
            g.taken = <uint8_t *>cnp.PyArray_DATA(mask)
        else:
            g.added = data(mask)
    g.y, g.q, g.k, g.v, g.scale, g.causal, g.diagonal = data(y), data(q), data(k), data(v), scale, causal, diagonal
    g.window, g.diagonals, g.sinks, g.softcap, g.a, g.kv_type = 0, NULL, NULL, 0, DTYPES[precision], FO_F32
    if cnp.PyArray_SIZE(y):
        with nogil:
            status = fo_attention(&g)
        check(status)
    return delivered(y, out)


cdef inline Py_ssize_t bytes_between(ndarray a, int d) noexcept:
    return 0 if cnp.PyArray_DIM(a, d) == 1 else cnp.PyArray_STRIDE(a, d)


cdef inline Py_ssize_t unit_stride(ndarray a) noexcept:
    """The stride of the last axis; 1 of a single element."""
    cdef int d = cnp.PyArray_NDIM(a) - 1
    return 1 if cnp.PyArray_DIM(a, d) == 1 else cnp.PyArray_STRIDE(a, d) // 4


cdef ndarray attended(ndarray q, cnp.npy_intp *dims):
    """A new array of so many (..., heads, t, dv), in memory (..., t, heads, dv) where q is."""
    cdef int nd = cnp.PyArray_NDIM(q), h = nd - 3, t = nd - 2
    cdef ndarray y
    if dims[h] == 1 or dims[t] == 1 or not 0 < stride_of(q, h) < stride_of(q, t):
        return new_result(nd, dims, data(q))
    dims[h], dims[t] = dims[t], dims[h]
    y = new_result(nd, dims, data(q))
    dims[h], dims[t] = dims[t], dims[h]
    return y.swapaxes(h, t)


# ---- images

cdef void describe(ndarray a, bint nhwc, fo_image *image) noexcept:
    """How the image lies; the strides of an axis of length 1 may be anything."""
    cdef int h = 1 if nhwc else 2, c = 3 if nhwc else 1, i
    cdef Py_ssize_t s[4]
    for i in range(4):
        s[i] = 1 if cnp.PyArray_DIM(a, i) == 1 else cnp.PyArray_STRIDE(a, i) // 4
    image.data = data(a)
    image.sn, image.sc, image.sh, image.sw = s[0], s[c], s[h], s[h + 1]


cdef ndarray image_of(object x, bint nhwc, fo_image *image):
    cdef ndarray a = as_float32(x, "x")
    if cnp.PyArray_NDIM(a) != 4:
        raise ValueError(f"x has shape {np.shape(a)}, but must be {'(n, h, w, c)' if nhwc else '(n, c, h, w)'}")
    describe(a, nhwc, image)
    if image.sc != 1 and image.sw != 1 and cnp.PyArray_SIZE(a):  # kernels would read each element by itself
        a = in_order(a)
        describe(a, nhwc, image)
    return a


cdef ndarray resized_image(object out, ndarray x, bint nhwc, Py_ssize_t oh, Py_ssize_t ow, const fo_image *xi,
                           fo_image *yi):
    """Where an image of x's channels and another size goes, in x's memory order where it is new."""
    cdef int c = 3 if nhwc else 1, h = 1 if nhwc else 2
    cdef cnp.npy_intp dims[4]
    cdef cnp.npy_intp order[4]
    cdef ndarray y
    dims[0], dims[c], dims[h], dims[h + 1] = cnp.PyArray_DIM(x, 0), cnp.PyArray_DIM(x, c), oh, ow
    y = writable(out, 4, dims, x)
    if y is None and xi.sc == 1 and xi.sw != 1 and not nhwc:
        order[0], order[1], order[2], order[3] = dims[0], oh, ow, dims[1]
        y = new_result(4, order, data(x)).transpose(0, 3, 1, 2)
    elif y is None:
        y = new_result(4, dims, data(x))
    describe(y, nhwc, yi)
    return y


def pool(x, bint average, tuple kernel, tuple stride, tuple before, tuple dilation, tuple size, tuple counted,
         bint nhwc, out=None):
    """The maximum or mean of windows, pairs of (rows, columns); the mean's divisor: points with h_lo, h_hi, w_lo, w_hi
    = counted."""
    cdef fo_pool_args g
    cdef fo_status status
    cdef ndarray a = image_of(x, nhwc, &g.x), y
    g.kind, g.n, g.c = average, cnp.PyArray_DIM(a, 0), cnp.PyArray_DIM(a, 3 if nhwc else 1)
    g.ih, g.iw = cnp.PyArray_DIM(a, 1 if nhwc else 2), cnp.PyArray_DIM(a, 2 if nhwc else 3)
    (g.kh, g.kw), (g.sh, g.sw), (g.top, g.left), (g.dh, g.dw), (g.oh, g.ow) = kernel, stride, before, dilation, size
    g.h_lo, g.h_hi, g.w_lo, g.w_hi = counted
    y = resized_image(out, a, nhwc, g.oh, g.ow, &g.x, &g.y)
    if cnp.PyArray_SIZE(y):
        with nogil:
            status = fo_pool(&g)
        check(status)
    return delivered(y, out)


def resize(x, tuple rows, tuple columns, bint nhwc, out=None):
    """rows and columns: (i0, i1, t) of int64, int64 and float32, contiguous, y = (1 - t) x[i0] + t x[i1]; or (i0, None,
    None), y = x[i0]."""
    cdef fo_resize_args g
    cdef fo_status status
    cdef ndarray a = image_of(x, nhwc, &g.x), y, h0 = rows[0], h1 = rows[1], th = rows[2], w0 = columns[0]
    cdef ndarray w1 = columns[1], tw = columns[2]
    g.n, g.c = cnp.PyArray_DIM(a, 0), cnp.PyArray_DIM(a, 3 if nhwc else 1)
    g.oh, g.ow = cnp.PyArray_SIZE(h0), cnp.PyArray_SIZE(w0)
    y = resized_image(out, a, nhwc, g.oh, g.ow, &g.x, &g.y)
    g.h0, g.h1, g.w0, g.w1 = positions(h0), positions(h1), positions(w0), positions(w1)
    g.th, g.tw = data(th), data(tw)
    if cnp.PyArray_SIZE(y):
        with nogil:
            status = fo_resize(&g)
        check(status)
    return delivered(y, out)


cdef int64_t *positions(ndarray a) noexcept:
    return NULL if a is None else <int64_t *>cnp.PyArray_DATA(a)


# ---- transposed convolutions

cdef class TransposedPlan(ImagePlan):
    """y = activation(conv_transpose(x, w) + bias + residual) with w packed once."""
    cdef fo_conv_transpose *plan
    cdef fo_conv2d_shape shape
    cdef Py_ssize_t top, bottom, left, right, more_rows, more_columns
    cdef bint same

    def __dealloc__(self):
        fo_conv_transpose_free(self.plan)

    def _pack(self, ndarray w, ndarray bias, tuple activation, tuple stride, padding, tuple output_padding,
              tuple dilation, Py_ssize_t groups, bint nhwc, str precision):
        """w (ic, oc/groups, kh, kw) and bias (oc,) or None, contiguous; padding ((top, bottom), (left, right)) or
        "same"."""
        cdef fo_conv2d_shape s
        cdef fo_conv_transpose *plan
        cdef fo_dtype a = DTYPES[precision]
        s.ic, s.oc, s.groups, s.kh, s.kw = w.shape[0], w.shape[1] * groups, groups, w.shape[2], w.shape[3]
        (s.sh, s.sw), (s.dh, s.dw) = stride, dilation
        s.act, s.algorithm, s.nhwc = activation_of(activation), 0, True
        make_once(self, self.plan != NULL)
        with nogil:
            plan = fo_conv_transpose_create(&s, a, data(w), data(bias))
        if plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")
        self.plan, self.shape, self.nhwc, self.same = plan, s, nhwc, padding == "same"
        self.ic, self.oc, self.work = s.ic, s.oc, <double>s.oc * (s.ic // groups * s.kh * s.kw + 8)
        self.more_rows, self.more_columns = output_padding
        if not self.same:
            (self.top, self.bottom), (self.left, self.right) = padding

    cdef int size(self, Py_ssize_t n, Py_ssize_t ih, Py_ssize_t iw, fo_conv2d_size *z) except -1:
        cdef fo_conv2d_shape *s = &self.shape
        z.n, z.ih, z.iw, z.top, z.left = n, ih, iw, self.top, self.left
        z.oh = (ih - 1) * s.sh + (s.kh - 1) * s.dh + 1 + self.more_rows - self.top - self.bottom
        z.ow = (iw - 1) * s.sw + (s.kw - 1) * s.dw + 1 + self.more_columns - self.left - self.right
        if self.same:  # the output has input * stride points; the odd row is cut off at the end
            z.top, z.left = max(z.oh - ih * s.sh, 0) // 2, max(z.ow - iw * s.sw, 0) // 2
            z.oh, z.ow = ih * s.sh, iw * s.sw
        if ih < 1 or iw < 1 or z.oh < 1 or z.ow < 1:
            raise ValueError(f"x is {ih} x {iw} pixels, of which the kernel of w, the stride and the padding leave "
                             f"{z.oh} x {z.ow}")
        return 0

    def _weights_shape(self):
        """w's shape."""
        cdef fo_conv2d_shape *s = &self.shape
        if self.plan == NULL:
            raise unmade(self)
        return s.ic, s.oc // s.groups, s.kh, s.kw

    cdef str weights(self):
        return f"w {self._weights_shape()} with groups={self.shape.groups}"

    cdef fo_status run(self, const fo_conv2d_size *z, const fo_image *x, const fo_image *residual,
                       const fo_image *y) noexcept nogil:
        return fo_conv_transpose_run(self.plan, z, x, residual, y)
