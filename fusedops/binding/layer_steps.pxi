# What steps of layers, products and attention put into their arguments: t are their tensors and o their options, in the
# order of step_kinds.pxi. Included by _core.pyx.

cdef fo_conv2d_size conv_size(Py_ssize_t ic, Py_ssize_t oc, tensor *x, tensor *y, Py_ssize_t top,
                              Py_ssize_t left) except *:
    if x.shape[0] != y.shape[0] or x.shape[1] != ic or y.shape[1] != oc:
        raise ValueError(f"x {shape_text(x)} and y {shape_text(y)} do not fit a layer from {ic} to {oc} channels")
    cdef fo_conv2d_size z
    z.n, z.ih, z.iw, z.oh, z.ow = x.shape[0], x.shape[2], x.shape[3], y.shape[2], y.shape[3]
    z.top, z.left = top, left
    return z


cdef int fill_conv2d(Program p, fo_step *s, tensor *t, tuple o) except -1:
    cdef Conv2dPlan layer = <Conv2dPlan?>o[0]
    s.conv2d.plan, s.conv2d.size = layer.plan, conv_size(layer.shape.ic, layer.shape.oc, t, t + 1, o[1], o[2])


cdef int fill_separable(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """A depthwise-separable block or inverted residual; top and left are the padding of its depthwise part."""
    cdef SeparablePlan layer = <SeparablePlan?>o[0]
    s.separable.block, s.separable.size = layer.block(), conv_size(layer.ic, layer.oc, t, t + 1, o[1], o[2])


cdef int fill_conv_transpose(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """top and left are rows and columns cut off."""
    cdef ConvTranspose2dPlan layer = <ConvTranspose2dPlan?>o[0]
    s.conv_transpose.plan = layer.plan
    s.conv_transpose.size = conv_size(layer.shape.ic, layer.shape.oc, t, t + 1, o[1], o[2])


cdef int fill_linear(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """x (m, k), y and residual (m, n)."""
    cdef LinearPlan layer = <LinearPlan?>o[0]
    cdef fo_linear_args *a = &s.linear
    cdef tensor *x = t
    cdef tensor *y = t + 1
    check_axes(x, 2, "x")
    check_axes(y, 2, "y")
    if x.shape[1] != layer.k or y.shape[1] != layer.n or x.shape[0] != y.shape[0]:
        raise ValueError(f"x {shape_text(x)} and y {shape_text(y)} do not fit w {layer.n, layer.k}")
    a.types = floats()
    a.plan, a.m, a.ldx, a.ldy = layer.plan, x.shape[0], x.stride[0], y.stride[0]
    a.ldr = 0 if t[2].slot == ABSENT else t[2].stride[0]


cdef int fill_recurrent(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """x (steps, batch, inputs), y (steps, batch, directions * outputs) with any order of the first two in memory.

    States are contiguous; hn, and cn of an LSTM, must be given: there the layer keeps them. Lengths are in 0..steps.
    """
    cdef SequencePlan layer = <SequencePlan?>o[0]
    cdef fo_sequence *a = &s.sequence
    cdef tensor *x = t
    cdef tensor *y = t + 1
    a[0] = layer.sequence
    check_axes(x, 3, "x")
    check_axes(y, 3, "y")
    if x.shape[2] != layer.inputs or shape_text(y) != (x.shape[0], x.shape[1], a.directions * layer.outputs):
        raise ValueError(f"x {shape_text(x)} and y {shape_text(y)} do not fit a layer of {a.directions} directions "
                         f"from {layer.inputs} to {layer.outputs}")
    a.steps, a.batch, a.xt, a.xb = x.shape[0], x.shape[1], x.stride[0], x.stride[1]
    a.yt, a.yb = y.stride[0], y.stride[1]
    check_state(a, t + 2, "h0", layer.outputs)
    check_state(a, t + 3, "c0", layer.hidden)
    check_state(a, t + 4, "hn", layer.outputs)
    check_state(a, t + 5, "cn", layer.hidden)
    if t[4].slot == ABSENT or layer.lstm and t[5].slot == ABSENT:
        raise ValueError("hn, and cn of an LSTM, must be given")
    if t[6].slot != ABSENT and (t[6].nd != 1 or t[6].shape[0] != a.batch or neighbour_distance(t + 6, 0) != 1):
        raise ValueError(f"lengths has shape {shape_text(t + 6)}, but must be contiguous and have shape ({a.batch},)")


cdef int check_state(fo_sequence *a, tensor *t, str name, Py_ssize_t width) except -1:
    shape = a.layers * a.directions, a.batch, width
    if t.slot != ABSENT and (shape_text(t) != shape or t.stride[2] != 1 or t.stride[1] != width
                             or t.stride[0] != shape[1] * width):
        raise ValueError(f"{name} has shape {shape_text(t)}, but must be contiguous and have shape {shape}")
    return 0


cdef int fill_matmul(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y = activation(scale * a b) over the last two axes; the others agree, what is broadcast has stride 0."""
    cdef fo_matmul_args *g = &s.matmul
    cdef tensor *a = t
    cdef tensor *b = t + 1
    cdef tensor *y = t + 2
    cdef int d, i = y.nd - 2, j = y.nd - 1
    if (i < 0 or a.nd != y.nd or b.nd != y.nd
            or a.shape[j] != b.shape[i] or a.shape[i] != y.shape[i] or b.shape[j] != y.shape[j]):
        raise ValueError(f"a {shape_text(a)}, b {shape_text(b)} and y {shape_text(y)} form no product")
    for d in range(i):
        axis(&g.batch, y.shape[d], y.stride[d], a.stride[d], b.stride[d])
    fo_fold(&g.batch)
    g.m, g.n, g.k = y.shape[i], y.shape[j], a.shape[j]
    g.ym, g.yn = y.stride[i], 1 if g.n == 1 else y.stride[j]
    g.am, g.ak, g.bk, g.bn = a.stride[i], 1 if g.k == 1 else a.stride[j], b.stride[i], b.stride[j]
    if g.yn != 1 and g.m == 1:
        g.ym = 1
    if g.yn != 1 and g.ym != 1:
        raise ValueError("rows or columns of y must be contiguous")
    g.scale, g.act = o[0], p.activation(o[1])


cdef int fill_grouped_matmul(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y (m, n): the rows of x (m, k) in groups, each by its matrix of w (groups, k, n); ends (groups,) are of rows."""
    cdef fo_grouped_matmul_args *a = &s.grouped_matmul
    cdef fo_matmul_args *g = &a.each
    cdef tensor *x = t
    cdef tensor *w = t + 1
    cdef tensor *y = t + 3
    check_axes(x, 2, "x")
    check_axes(w, 3, "w")
    check_axes(y, 2, "y")
    if x.shape[1] != w.shape[1] or y.shape[0] != x.shape[0] or y.shape[1] != w.shape[2]:
        raise ValueError(f"x {shape_text(x)}, w {shape_text(w)} and y {shape_text(y)} form no product")
    if t[2].nd != 1 or t[2].shape[0] != w.shape[0] or (w.shape[0] > 1 and neighbour_distance(t + 2, 0) != 1):
        raise ValueError(f"ends {shape_text(t + 2)} must be contiguous, one for each matrix of w {shape_text(w)}")
    g.m, g.n, g.k, g.ym, g.yn = y.shape[0], y.shape[1], x.shape[1], y.stride[0], 1
    g.am, g.ak, g.bk, g.bn = x.stride[0], 1 if g.k == 1 else x.stride[1], w.stride[1], w.stride[2]
    g.scale, a.groups, a.wg = 1, w.shape[0], w.stride[0]


cdef Py_ssize_t last_stride(tensor *t) noexcept:
    return 1 if t.shape[t.nd - 1] == 1 else t.stride[t.nd - 1]


cdef int fill_attention(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y = softmax(scale q k^T + mask) v over the last two axes, the third last are heads; causal: query i sees the keys
    up to i + diagonal.

    The axes before agree, what is broadcast has stride 0; so has a mask of (..., heads, t, s).
    """
    cdef fo_attention_args *g = &s.attention
    cdef tensor *q = t
    cdef tensor *k = t + 1
    cdef tensor *v = t + 2
    cdef tensor *y = t + 3
    cdef tensor *mask = t + 4
    cdef int d, h = y.nd - 3, i = y.nd - 2, j = y.nd - 1
    cdef bint masked = mask.slot != ABSENT
    if (h < 0 or q.nd != y.nd or k.nd != y.nd or v.nd != y.nd
            or q.shape[j] != k.shape[j] or k.shape[i] != v.shape[i] or v.shape[j] != y.shape[j]
            or q.shape[i] != y.shape[i] or q.shape[h] != y.shape[h] or k.shape[h] != v.shape[h]
            or k.shape[h] < 1 or q.shape[h] % k.shape[h]):
        raise ValueError(f"q {shape_text(q)}, k {shape_text(k)}, v {shape_text(v)} and y {shape_text(y)} form no "
                         "attention")
    if masked and (mask.nd != y.nd or mask.shape[j] != k.shape[i] or mask.shape[i] != y.shape[i]
                   or mask.shape[h] != y.shape[h]):
        raise ValueError(f"mask {shape_text(mask)} does not fit q {shape_text(q)}, k {shape_text(k)}, "
                         f"v {shape_text(v)} and y {shape_text(y)}")
    for d in range(h):
        axis(&g.rows, y.shape[d], y.stride[d], q.stride[d], mask.stride[d] if masked else 0)
        axis(&g.keys, y.shape[d], 0, k.stride[d], v.stride[d])
    g.heads, g.kv_heads, g.t, g.s, g.d, g.dv = y.shape[h], k.shape[h], y.shape[i], k.shape[i], q.shape[j], y.shape[j]
    g.yh, g.yt, g.yd = y.stride[h], y.stride[i], last_stride(y)
    g.qh, g.qt, g.qd = q.stride[h], q.stride[i], last_stride(q)
    g.kh, g.ks, g.kd = k.stride[h], k.stride[i], last_stride(k)
    g.vh, g.vs, g.vd = v.stride[h], v.stride[i], last_stride(v)
    if masked:
        g.mh, g.mt, g.ms = mask.stride[h], mask.stride[i], mask.stride[j]
    kv_type, g.scale, g.causal, g.diagonal, g.window, g.softcap, precision = o
    if kv_type != FLOAT32 and kv_type not in NARROW:
        raise TypeError(f"keys and values are {kv_type}, but must be float32, float16 or bfloat16")
    g.kv_type, g.a = MOVED[kv_type], DTYPES[precision]
    if t[5].slot != ABSENT and (h != 1 or t[5].nd != 1 or t[5].shape[0] != y.shape[0]
                                or neighbour_distance(t + 5, 0) != 1):
        raise ValueError(f"diagonals {shape_text(t + 5)} must be contiguous, one for each row of y {shape_text(y)}")
    if t[6].slot != ABSENT and (t[6].nd != 1 or t[6].shape[0] != g.heads):
        raise ValueError(f"sinks {shape_text(t + 6)} must be one for each of {g.heads} heads")
    if g.window < 0 or g.window and not g.causal:
        raise ValueError(f"a window of {g.window} keys is for causal attention, and not negative")


cdef int fill_append(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y (n, heads, room, d) of past (n, heads, kept, d) and x (n, heads, t, d) after begins (n,) rows of it."""
    cdef fo_append_args *a = &s.append
    cdef tensor *past = t
    cdef tensor *x = t + 1
    cdef tensor *y = t + 2
    check_axes(x, 4, "x")
    check_axes(y, 4, "y")
    a.n, a.heads, a.t, a.room, a.d = y.shape[0], y.shape[1], x.shape[2], y.shape[2], y.shape[3]
    if x.shape[0] != a.n or x.shape[1] != a.heads or x.shape[3] != a.d or t[3].nd != 1 or t[3].shape[0] != a.n:
        raise ValueError(f"x {shape_text(x)} and begins {shape_text(t + 3)} do not fit y {shape_text(y)}")
    if past.slot != ABSENT:
        check_axes(past, 4, "past")
        if past.shape[0] != a.n or past.shape[1] != a.heads or past.shape[3] != a.d:
            raise ValueError(f"past {shape_text(past)} does not fit y {shape_text(y)}")
        a.kept, a.pn, a.ph, a.pt = past.shape[2], past.stride[0], past.stride[1], past.stride[2]
    if neighbour_distance(t + 3, 0) != 1:
        raise ValueError("begins must be contiguous")
    (a.size,) = o
    a.xn, a.xh, a.xt, a.yn, a.yh, a.yt = x.stride[0], x.stride[1], x.stride[2], y.stride[0], y.stride[1], y.stride[2]
