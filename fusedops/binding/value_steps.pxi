# What steps that compute, move or look up values put into their arguments: t are their tensors and o their options, in
# the order of step_kinds.pxi. Included by _core.pyx.

cdef int fill_affine(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y = activation(x * scale[c] + shift[c] + residual), c counts along axis 1."""
    cdef fo_pointwise_args *a = &s.pointwise
    cdef tensor *x = t
    cdef tensor *y = t + 1
    cdef tensor *r = y if t[2].slot == ABSENT else t + 2
    cdef fo_axes rows
    cdef int d, last = 1
    if y.nd < 2:
        raise ValueError(f"x has {x.nd} axes, but needs one for channels after that of the batch")
    if y.shape[1] > 1 and not y.stride[1] == x.stride[1] == r.stride[1] == 1:  # channels are rows
        last = y.nd - 1
        a.channel_rows = y.shape[1]
    rows.nd = 0  # the axes that are rows; in the second case those within a channel follow in `columns`
    for d in range(y.nd):
        if (d != 1) if last == 1 else (d < 2):
            axis(&rows, y.shape[d], y.stride[d], x.stride[d], r.stride[d])
    fo_fold(&rows)
    if rows.nd > 1:
        raise ValueError("the rows of x, y and residual must be evenly spaced in memory")
    a.m, a.ldy, a.ldx, a.ldr = rows.size[0], rows.stride[0][0], rows.stride[1][0], rows.stride[2][0]
    a.n = y.shape[1]
    if last != 1:
        rows.nd = 0
        for d in range(2, y.nd):
            axis(&rows, y.shape[d], y.stride[d], x.stride[d], r.stride[d])
        fo_fold(&rows)
        a.n = rows.size[0]
        if rows.nd > 1 or a.n > 1 and not rows.stride[0][0] == rows.stride[1][0] == rows.stride[2][0] == 1:
            raise ValueError("x, y and residual must have contiguous channels or contiguous planes")
    a.scale, a.shift = p.vector(o[0], y.shape[1], "scale"), p.vector(o[1], y.shape[1], "shift")
    a.act = p.activation(o[2])


cdef int function_of(str name, bint binary) except -1:
    cdef int f = FUNCTIONS[name]
    if binary != (f >= FUNCTIONS["add"]):
        raise ValueError(f"{name} takes {'one argument' if binary else 'two arguments'}")
    return f


cdef int fill_unary(Program p, fo_step *s, tensor *t, tuple o) except -1:
    axes_of(&s.elementwise.axes, t + 1, t, NULL)
    s.elementwise.f, s.elementwise.act = function_of(o[0], False), p.activation(o[1])


cdef int fill_binary(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """What is broadcast has stride 0."""
    axes_of(&s.elementwise.axes, t + 2, t, t + 1)
    s.elementwise.f, s.elementwise.act = function_of(o[0], True), p.activation(o[1])


cdef int fill_copy(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """Elements of any type that has `size` bytes."""
    axes_of(&s.copy.axes, t + 1, t, NULL)
    s.copy.size = o[0]
    if o[0] not in (1, 2, 4, 8):
        raise ValueError(f"elements of {o[0]} bytes cannot be copied")


cdef int fill_fill(Program p, fo_step *s, tensor *t, tuple o) except -1:
    axes_of(&s.fill.axes, t, NULL, NULL)
    s.fill.value, s.fill.size = o
    if o[1] not in (1, 2, 4):
        raise ValueError(f"elements of {o[1]} bytes cannot be filled")
    if o[1] == 2:
        s.fill.half = int(np.float16(o[0]).view(np.uint16))


cdef fo_dtype element_of(object dtype, dict types=ELEMENTS) except *:
    if dtype not in types:
        raise TypeError(f"no kernel takes elements of {dtype}")
    return types[dtype]


def map_takes(str name, of, to=FLOAT32):
    """Whether a step "map" computes a function of elements of this type; of casts to another."""
    f, integer, real = MAPS[name], of in (np.int64, np.int32), of == np.float32
    if name == "cast":
        return of in ELEMENTS and to in ELEMENTS or real and to in NARROW or of in NARROW and to == np.float32
    if MAPS["and"] <= f <= MAPS["not"]:
        return of == np.bool_
    if MAPS["add"] <= f <= MAPS["sign"]:
        return integer or name == "sign" and real
    return real if MAPS["floor"] <= f <= MAPS["bfloat16"] else of in (MOVED if name == "where" else ELEMENTS)


cdef int fill_map(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y = f(a, b, c); what is broadcast has stride 0. Types: of what is computed with, and of y."""
    cdef fo_map_args *m = &s.map
    cdef tensor *y = t + 3
    cdef int d
    name, of, to = o
    for d in range(y.nd):
        axis(&m.axes, y.shape[d], y.stride[d], t.stride[d], t[1].stride[d] if t[1].slot != ABSENT else 0)
        m.axes.stride[3][d] = t[2].stride[d] if t[2].slot != ABSENT else 0
    fo_fold(&m.axes)
    made = to if name in ("cast", "where") else np.dtype(np.bool_) if MAPS[name] < MAPS["add"] else of
    if not map_takes(name, of, to) or to != made or name == "where" and of != to:
        raise TypeError(f"no kernel computes {name} of {of} as {to}")
    m.f, m.from_, m.to = MAPS[name], MOVED[of], MOVED[to]


cdef int fill_gather(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y[..., i, ...] = x[..., indices[i], ...]; indices of any number of axes, or `single` of those of y, which is then
    y[..., i, ...] = x[..., indices[..., i, ...], ...]."""
    cdef fo_map_args *m = &s.map
    cdef tensor *x = t
    cdef tensor *i = t + 1
    cdef tensor *y = t + 2
    cdef int d, e, along = o[0], more = 0 if o[2] else i.nd - 1
    if y.nd != x.nd + more or not 0 <= along < x.nd or o[2] and i.nd != y.nd:
        raise ValueError(f"y has {y.nd} axes, x {x.nd}, indices {i.nd}: they do not fit axis {along}")
    for d in range(y.nd):
        e = d if d < along else d - more  # of x
        if o[2]:
            axis(&m.axes, y.shape[d], y.stride[d], 0 if d == along else x.stride[d], i.stride[d])
        elif along <= d <= along + more:
            axis(&m.axes, y.shape[d], y.stride[d], 0, i.stride[d - along])
        else:
            axis(&m.axes, y.shape[d], y.stride[d], x.stride[e], 0)
    fo_fold(&m.axes)
    m.f, m.to, m.stride = FO_MAP_GATHER, element_of(o[1], MOVED), x.stride[along]
    m.size, m.from_ = x.shape[along], element_of(np.dtype(np.int64))


def scatter_takes(str reduction, of):
    """Whether a step "scatter" puts elements of this type so."""
    return of in MOVED if reduction == "none" else of in (np.float32, np.int32, np.int64)


cdef int fill_scatter(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y = x but for the parts that rows of indices lead to, which become the updates, or their `reduction` with what is
    there; or, `along` an axis, for elements that are elsewhere along that axis alone. All but the axes that are indexed
    lie in the order of their sizes."""
    cdef fo_scatter_args *a = &s.scatter
    cdef tensor *x = t
    cdef tensor *i = t + 1
    cdef tensor *u = t + 2
    cdef tensor *y = t + 3
    cdef int d, e, depth
    reduction, along, of = o
    if not scatter_takes(reduction, of):
        raise TypeError(f"no kernel puts {of} by {reduction}")
    axes_of(&a.whole, y, x, NULL)
    depth = i.shape[i.nd - 1] if along is None else 1
    fits = u.nd == i.nd - 1 + y.nd - depth if along is None else i.nd == u.nd == y.nd
    if not fits:
        raise ValueError(f"indices {shape_text(i)} and updates {shape_text(u)} do not fit x {shape_text(x)}")
    for d in range(u.nd):
        if along is not None:
            if u.shape[d] != i.shape[d] or d != along and u.shape[d] > y.shape[d]:
                raise ValueError(f"updates {shape_text(u)} do not fit indices {shape_text(i)} of x {shape_text(x)}")
            axis(&a.points, u.shape[d], 0 if d == along else y.stride[d], u.stride[d], i.stride[d])
        elif d < i.nd - 1:
            if u.shape[d] != i.shape[d]:
                raise ValueError(f"updates {shape_text(u)} do not fit indices {shape_text(i)}")
            axis(&a.points, u.shape[d], 0, u.stride[d], i.stride[d])
        else:
            e = d - (i.nd - 1) + depth  # of y
            if u.shape[d] != y.shape[e]:
                raise ValueError(f"updates {shape_text(u)} do not fit x {shape_text(x)}")
            axis(&a.points, u.shape[d], y.stride[e], u.stride[d], 0)
    merge_in_order(&a.points)
    for d in range(depth):
        e = d if along is None else along
        axis(&a.named, y.shape[e], y.stride[e], 0, 0)
    a.component = i.stride[i.nd - 1] if along is None else 0
    a.kind, a.type = SCATTERS[reduction], element_of(of, MOVED)


cdef int fill_grid_sample(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """rows and columns (n, 1, oh, ow) of each axis of x, in this order, as pixels, or from -1 to 1: between the middles
    of the corners' pixels, or between the image's borders."""
    cdef fo_grid_sample_args *a = &s.grid_sample
    cdef tensor *x = t
    cdef tensor *rows = t + 1
    cdef tensor *y = t + 3
    cdef int d
    mode, beyond, coordinates = o
    check_channels(x, y)
    check_axes(rows, 4, "rows")
    for d in range(4):
        if rows.shape[d] != (1 if d == 1 else y.shape[d]) or rows.stride[d] != t[2].stride[d]:
            raise ValueError(f"positions {shape_text(rows)} do not fit y {shape_text(y)}, or differ in their strides")
    for name, known in (mode, INTERPOLATIONS), (beyond, BEYOND), (coordinates, GRID_COORDINATES):
        if name not in known:
            raise ValueError(f"unknown {name!r}; known are {', '.join(known)}")
    if x.shape[2] >= 1 << 30 or x.shape[3] >= 1 << 30:
        raise ValueError(f"images {shape_text(x)} are too large: rows and columns are counted in 30 bits")
    a.n, a.c, a.h, a.w, a.oh, a.ow = y.shape[0], y.shape[1], x.shape[2], x.shape[3], y.shape[2], y.shape[3]
    a.pn, a.ph, a.pw = rows.stride[0], rows.stride[2], rows.stride[3]
    a.mode, a.beyond = INTERPOLATIONS[mode], BEYOND[beyond]
    fill_grid_axis(&a.rows, a.h, coordinates)
    fill_grid_axis(&a.columns, a.w, coordinates)


# (before, scale, shift) of a position along an axis of so many pixels
GRID_COORDINATES = {"pixels": lambda size: (0, 1, 0), "corners": lambda size: (1, (size - 1) / 2, 0),
                    "borders": lambda size: (1, size / 2, -0.5)}


cdef int fill_grid_axis(fo_grid_axis *a, double size, str coordinates) except -1:
    a.before, a.scale, a.shift = GRID_COORDINATES[coordinates](size)
    a.low, a.high = (0.0, size - 1) if coordinates == "corners" else (-0.5, size - 0.5)


cdef int fill_roi_align(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """boxes (count, 4), images (count): which image of x each is in."""
    cdef fo_roi_align_args *a = &s.roi_align
    cdef tensor *x = t
    cdef tensor *boxes = t + 1
    cdef tensor *images = t + 2
    cdef tensor *y = t + 3
    a.samples, a.scale, a.shift, a.centred = o
    if (boxes.nd != 2 or boxes.shape[1] != 4 or images.nd != 1 or images.shape[0] != boxes.shape[0]
            or y.shape[0] != boxes.shape[0] or y.shape[1] != x.shape[1]):
        raise ValueError(f"boxes {shape_text(boxes)} of images {shape_text(images)} do not fit x {shape_text(x)} and "
                         f"y {shape_text(y)}")
    a.count, a.n, a.c, a.h, a.w = y.shape[0], x.shape[0], x.shape[1], x.shape[2], x.shape[3]
    a.oh, a.ow, a.ldb, a.batch_step = y.shape[2], y.shape[3], boxes.stride[0], images.stride[0]


cdef void merge_in_order(fo_axes *a) noexcept:
    """Neighboring axes that lie as one in all tensors become one; at least one stays."""
    cdef int d, k, last = -1
    cdef bint one
    for d in range(a.nd):
        one = last >= 0
        for k in range(FO_TENSORS):
            one = one and (a.size[last] == 1 or a.stride[k][last] == a.size[d] * a.stride[k][d])
        if a.size[d] != 1 or last < 0:
            last += not one
            a.size[last] = a.size[d] * (a.size[last] if one else 1)
            for k in range(FO_TENSORS):
                a.stride[k][last] = a.stride[k][d]
    a.nd = last + 1
    if a.nd == 0:
        axis(a, 1, 0, 0, 0)


cdef int fill_argmax(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y has x's shape, but for length 1 along the axis."""
    cdef fo_argmax_args *a = &s.argmax
    cdef tensor *x = t
    cdef tensor *y = t + 1
    cdef int d, along = o[1]
    check_axes(y, x.nd, "y")
    for d in range(x.nd):
        if y.shape[d] != (1 if d == along else x.shape[d]):
            raise ValueError(f"y {shape_text(y)} has no place of x {shape_text(x)} along axis {along}")
        if d != along:
            axis(&a.kept, x.shape[d], y.stride[d], x.stride[d], y.stride[d])
    fo_fold(&a.kept)
    a.least, a.n, a.sx = o[0], x.shape[along], x.stride[along]


cdef int fill_top_k(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y and places have x's shape, but for k along the axis."""
    cdef fo_top_k_args *a = &s.top_k
    cdef tensor *x = t
    cdef tensor *y = t + 1
    cdef tensor *places = t + 2
    cdef int d, along = o[1]
    check_axes(y, x.nd, "y")
    check_axes(places, x.nd, "places")
    for d in range(x.nd):
        if places.shape[d] != y.shape[d] or (y.shape[d] > x.shape[d] if d == along else y.shape[d] != x.shape[d]):
            raise ValueError(f"y {shape_text(y)} and places {shape_text(places)} have no places of x {shape_text(x)} "
                             f"along axis {along}")
        if d != along:
            axis(&a.kept, x.shape[d], y.stride[d], x.stride[d], places.stride[d])
    if x.shape[along] >= <Py_ssize_t>1 << 32:
        raise ValueError(f"x {shape_text(x)} has more elements along axis {along} than are ordered, 4294967295")
    fo_fold(&a.kept)
    a.least, a.n, a.k = o[0], x.shape[along], y.shape[along]
    a.sx, a.sy, a.sp = x.stride[along], y.stride[along], places.stride[along]


cdef int fill_cumsum(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y has x's shape."""
    cdef fo_cumsum_args *a = &s.cumsum
    if not 0 <= o[0] < t.nd:
        raise ValueError(f"axis {o[0]} is not one of x's {t.nd}")
    if o[3] not in (np.float32, np.int32, np.int64):
        raise TypeError(f"elements of {o[3]} have no cumsum")
    along(t, t + 1, (o[0],), (), &a.kept, &a.n, &a.sy, &a.sx)
    a.exclusive, a.reverse, a.type = o[1], o[2], element_of(o[3])


cdef int fill_rotate(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """cos and sin have x's axes, the last of them as long as there are pairs in a row of x."""
    cdef fo_rotate_args *a = &s.rotate
    cdef tensor *x = t
    cdef tensor *y = t + 1
    cdef tensor *c = t + 2
    cdef int d, last = y.nd - 1
    if last < 0 or c.nd != y.nd or any([c.shape[d] != y.shape[d] for d in range(last)]) or (
            2 * c.shape[last] > y.shape[last]):
        raise ValueError(f"angles of shape {shape_text(c)} do not fit x {shape_text(x)}")
    for d in range(last):
        axis(&a.rows, y.shape[d], y.stride[d], x.stride[d], c.stride[d])
        a.rows.stride[3][d] = t[3].stride[d]
    fo_fold(&a.rows)
    a.half, a.d, a.sy, a.sx = c.shape[last], y.shape[last], last_stride(y), last_stride(x)
    a.interleaved = o[0]
