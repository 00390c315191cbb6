# What steps of int8 put into their arguments: t are their tensors and o their options, in the order of step_kinds.pxi.
# Included by _core.pyx.

cdef fo_types types_of(tuple given) except *:
    """Of the types of x, the residual and y."""
    cdef fo_types types
    types.x, types.residual, types.y = [TYPES[FLOAT32 if dtype is None else dtype] for dtype in given]
    return types


cdef int fill_qconv2d(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """types: those of x, residual and y; a Conv2dPlan has products of bfloat16."""
    cdef WindowPlan layer = <WindowPlan?>o[0]
    s.conv2d.plan = (<Conv2dPlan>layer).plan if isinstance(layer, Conv2dPlan) else (<QConv2dPlan?>layer).plan
    s.conv2d.types = types_of(o[1])
    s.conv2d.size = conv_size(layer.shape.ic, layer.shape.oc, t, t + 1, o[2], o[3])


cdef int fill_qlinear(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """x (m, k), y and residual (m, n); types as of qconv2d; a LinearPlan has products of bfloat16."""
    cdef fo_linear_args *a = &s.linear
    cdef tensor *x = t
    cdef tensor *y = t + 1
    cdef Py_ssize_t n, k
    cdef int i
    layer = o[0]
    if isinstance(layer, LinearPlan):
        a.plan, n, k = (<LinearPlan>layer).plan, (<LinearPlan>layer).n, (<LinearPlan>layer).k
    else:
        a.plan, n, k = (<QLinearPlan?>layer).plan, (<QLinearPlan>layer).n, (<QLinearPlan>layer).k
    check_axes(x, 2, "x")
    check_axes(y, 2, "y")
    if x.shape[1] != k or y.shape[1] != n or x.shape[0] != y.shape[0]:
        raise ValueError(f"x {shape_text(x)} and y {shape_text(y)} do not fit w {n, k}")
    for i in range(3):
        if t[i].slot != ABSENT and t[i].shape[1] > 1 and t[i].stride[1] != 1:
            raise ValueError("the last axis of x, y and residual must be contiguous")
    a.types = types_of(o[1])
    a.m, a.ldx, a.ldy = x.shape[0], x.stride[0], y.stride[0]
    a.ldr = 0 if t[2].slot == ABSENT else t[2].stride[0]


cdef Py_ssize_t dense_size(tensor *y, tensor *x) except -1:
    """The elements of tensors that are dense and of one order."""
    cdef fo_axes axes
    axes_of(&axes, y, x, NULL)
    if axes.nd > 1 or axes.size[0] > 1 and not axes.stride[0][0] == axes.stride[1][0] == 1:
        raise ValueError("x and y must be dense and of one order")
    return axes.size[0]


cdef int fill_convert(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """Floats as bytes of a type, or back: to and from are types, q is (scale, zero_point)."""
    cdef fo_convert_args *a = &s.convert
    a.n, a.from_, a.to, a.q = dense_size(t + 1, t), TYPES[o[0]], TYPES[o[1]], quantization_of(o[2])


cdef int fill_requantize(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """q: (scale, zero_point) of uint8, or None: by the range of x."""
    s.requantize.n, s.requantize.q = dense_size(t + 1, t), quantization_of(o[0])


cdef int fill_lookup(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """table: 256 bytes, by those of x."""
    cdef ndarray table = np.ascontiguousarray(o[0])
    axes_of(&s.lookup.axes, t + 1, t, NULL)
    if table.dtype not in BYTES or table.size != 256:
        raise ValueError("a table must have 256 bytes")
    p.kept.append(table)
    s.lookup.table = <const uint8_t *>cnp.PyArray_DATA(table)


cdef int fill_qbinary(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """types and q: those of a, b and y; what is broadcast has stride 0."""
    cdef fo_qbinary_args *g = &s.qbinary
    cdef int last
    name, types, (qa, qb, qy), activation = o
    axes_of(&g.axes, t + 2, t, t + 1)
    last = g.axes.nd - 1
    if g.axes.size[last] > 1 and not (g.axes.stride[0][last] == g.axes.stride[1][last] == 1
                                      and 0 <= g.axes.stride[2][last] <= 1):
        raise ValueError("the last axis of a and y must be contiguous, that of b too, or it is broadcast")
    if name not in ("add", "sub", "mul"):
        raise ValueError(f"there is no step {name} of bytes")
    g.f, g.act = function_of(name, True), p.activation(activation)
    g.ta, g.tb, g.ty = [TYPES[dtype] for dtype in types]
    g.qa, g.qb, g.qy = quantization_of(qa), quantization_of(qb), quantization_of(qy)


cdef int fill_qpool(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """As avg_pool, or max_pool where `counted` is None; types and q: those of x and y."""
    cdef fo_qpool_args *a = &s.qpool
    cdef fo_step floats = empty_step()
    (tx, ty), (qx, qy) = o[:2]
    if t[0].shape[1] > 1 and not t[0].stride[1] == t[1].stride[1] == 1:
        raise ValueError("the channels of x and y must be neighbors in memory")
    if o[6] is None:
        fill_max_pool(p, &floats, t, o[2:])
    else:
        fill_avg_pool(p, &floats, t, o[2:])
    a.pool = floats.pool
    a.tx, a.ty, a.qx, a.qy = TYPES[tx], TYPES[ty], quantization_of(qx), quantization_of(qy)


cdef int fill_nearest(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """As resize, of bytes and without i1 and t."""
    if t[0].shape[1] > 1 and not t[0].stride[1] == t[1].stride[1] == 1:
        raise ValueError("the channels of x and y must be neighbors in memory")
    fill_resize(p, s, t, o)
    if s.nearest.h1 != NULL or s.nearest.w1 != NULL:
        raise ValueError("bytes are not interpolated")
