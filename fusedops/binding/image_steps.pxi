# What pools, resizing, reductions and norms put into their arguments: t are their tensors and o their options, in the
# order of step_kinds.pxi. Included by _core.pyx.

cdef int check_channels(tensor *x, tensor *y) except -1:
    if x.shape[0] != y.shape[0] or x.shape[1] != y.shape[1]:
        raise ValueError(f"x {shape_text(x)} and y {shape_text(y)} differ in batch or channels")
    return 0


cdef int fill_max_pool(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """kernel, stride, padding before and dilation are pairs; the output's size is y's."""
    cdef fo_pool_args *a = &s.pool
    check_channels(t, t + 1)
    a.n, a.c, a.ih, a.iw, a.oh, a.ow = t.shape[0], t.shape[1], t.shape[2], t.shape[3], t[1].shape[2], t[1].shape[3]
    (a.kh, a.kw), (a.sh, a.sw), (a.top, a.left), (a.dh, a.dw) = o[:4]


cdef int fill_avg_pool(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """The divisor: a window's points with h_lo <= row < h_hi and w_lo <= column < w_hi, `counted` in this order."""
    fill_max_pool(p, s, t, o)
    s.pool.kind = 1
    s.pool.h_lo, s.pool.h_hi, s.pool.w_lo, s.pool.w_hi = o[4]


cdef struct points:  # of an axis of fo_resize_args
    const int64_t *i0
    const int64_t *i1
    const float *t


cdef points points_of(Program p, tuple how, Py_ssize_t size, Py_ssize_t out) except *:
    """How an axis is resized: (i0, i1, t), y = (1 - t) x[i0] + t x[i1]; (i0, None, None), y = x[i0]; or where these
    follow from the sizes, names of fo_transform and fo_rounding and the scale, None for out / size."""
    cdef points found
    cdef fo_resized_axis axis
    cdef cnp.npy_intp n = out * (2 * sizeof(int64_t) + sizeof(float))
    cdef ndarray memory
    cdef int64_t *i0
    cdef float *t
    if not isinstance(how[0], str):
        found.i0, found.i1 = p.positions(how[0], out, size), p.positions(how[1], out, size)
        found.t = p.vector(how[2], out, "t")
        return found
    axis.transform, axis.rounding, axis.size, axis.out = TRANSFORMS[how[0]], ROUNDINGS[how[1]], size, out
    if size < 1 and out > 0:
        raise ValueError(f"no {out} pixels can be made of none")
    axis.scale = <double>out / max(size, 1) if how[2] is None else how[2]
    memory = cnp.PyArray_SimpleNew(1, &n, cnp.NPY_UINT8)
    p.kept.append(memory)
    i0 = <int64_t *>cnp.PyArray_DATA(memory)
    t = <float *>(i0 + 2 * out)
    fo_resize_points(&axis, i0, i0 + out, t)
    between = axis.rounding == FO_BOTH_SIDES
    found.i0, found.i1, found.t = i0, i0 + out if between else NULL, t if between else NULL
    return found


cdef int fill_resize(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """rows and columns: as points_of takes them."""
    cdef fo_resize_args *a = &s.resize
    cdef points h = points_of(p, o[0], t.shape[2], t[1].shape[2])
    cdef points w = points_of(p, o[1], t.shape[3], t[1].shape[3])
    check_channels(t, t + 1)
    a.n, a.c, a.oh, a.ow = t[1].shape[0], t[1].shape[1], t[1].shape[2], t[1].shape[3]
    a.h0, a.h1, a.th, a.w0, a.w1, a.tw = h.i0, h.i1, h.t, w.i0, w.i1, w.t


cdef int fill_lrn(Program p, fo_step *s, tensor *t, tuple o) except -1:
    cdef fo_lrn_args *a = &s.lrn
    a.n, a.c, a.h, a.w = t.shape[0], t.shape[1], t.shape[2], t.shape[3]
    a.size, a.alpha, a.beta, a.bias = o


cdef int fill_reduce(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y has x's shape, but for length 1 along the axes."""
    cdef fo_reduce_args *a = &s.reduce
    cdef tensor *x = t
    cdef tensor *y = t + 1
    cdef int d
    name, axes = o
    check_axes(y, x.nd, "y")
    for d in range(x.nd):
        if y.shape[d] != (1 if d in axes else x.shape[d]):
            raise ValueError(f"y {shape_text(y)} is not a reduction of x {shape_text(x)} over axes {tuple(axes)}")
        if d in axes:
            axis(&a.over, x.shape[d], x.stride[d], 0, 0)
        else:
            axis(&a.kept, x.shape[d], y.stride[d], x.stride[d], 0)
    fo_fold(&a.over)
    fo_fold(&a.kept)
    if a.over.nd > 3:
        raise ValueError("the reduced axes lie in more than three pieces in memory")
    a.kind = REDUCTIONS[name]


cdef bint along(tensor *x, tensor *y, axes, scaled, fo_axes *kept, Py_ssize_t *n, Py_ssize_t *sy, Py_ssize_t *sx):
    """Splits the axes of x and y into those kept and one that stands for `axes`: its length n and strides.

    The third stride of the kept axes is 1 for those in `scaled`. Returns False where `axes` are not one in memory.
    """
    cdef fo_axes one
    cdef int d
    one.nd = kept.nd = 0
    for d in range(y.nd):
        if d in axes:
            axis(&one, y.shape[d], y.stride[d], x.stride[d], 0)
        else:
            axis(kept, y.shape[d], y.stride[d], x.stride[d], 1 if d in scaled else 0)
    fo_fold(&one)
    fo_fold(kept)
    n[0], sy[0], sx[0] = one.size[0], one.stride[0][0], one.stride[1][0]
    return one.nd == 1


cdef int fill_softmax(Program p, fo_step *s, tensor *t, tuple o) except -1:
    cdef fo_softmax_args *a = &s.softmax
    cdef int axis = o[0]
    if not -t.nd <= axis < t.nd:
        raise ValueError(f"axis {axis} is not one of x's {t.nd}")
    along(t, t + 1, (axis + t.nd if axis < 0 else axis,), (), &a.kept, &a.n, &a.sy, &a.sx)
    a.log = o[1]


cdef int normalize(Program p, fo_step *s, tensor *t, tuple o, axes, scaled) except -1:
    """scale and shift have an element for each point of `axes` in their order, or of axis `scaled`."""
    cdef fo_norm_args *a = &s.norm
    cdef fo_step copy = empty_step()
    if not along(t, t + 1, axes, scaled, &a.kept, &a.n, &a.sy, &a.sx):
        fill_copy(p, &copy, t, (4,))
        place(&copy, &copy.copy.x, t)
        place(&copy, &copy.copy.y, t + 1)
        copy.kind = FO_STEP_COPY
        p.add(&copy, "copy")
        t[0] = t[1]
        if not along(t, t + 1, axes, scaled, &a.kept, &a.n, &a.sy, &a.sx):
            raise ValueError("y must be evenly spaced along the axes of the norm")
    a.eps, a.ss = o[0], not scaled
    count = t.shape[1] if scaled else a.n
    a.scale, a.shift = p.vector(o[1], count, "scale"), p.vector(o[2], count, "shift")
    return 0


cdef int fill_norm(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """Layer norm of x + residual over first_axis and those after it, where scale and shift have an element each; rms:
    with 0 for the mean."""
    cdef int d
    normalize(p, s, t, o, range(o[3] % t.nd, t.nd), ())
    s.norm.rms = o[4]
    for d in range(t.nd if t[2].slot != ABSENT else 0):
        if t[2].stride[d] != t.stride[d] and t.shape[d] != 1:
            raise ValueError("residual must lie in memory as x does")


cdef int fill_instance_norm(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """Over the axes after the first two; scale and shift have an element for each point of axis 1."""
    normalize(p, s, t, o, range(2, t.nd), (1,))
