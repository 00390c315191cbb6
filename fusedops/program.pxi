# Programs: a network's operations as prepared steps that run in one C call. Included by _core.pyx.
#
# A tensor argument of a step is `(slot, offset in bytes, shape, strides in elements)`, memory that each run chooses, or
# an ndarray, which is bound for good. A fifth number is its distance in bytes from one round to the next (see `repeat`).
# Images are (n, c, h, w) with any strides, in practice channels last.
from libc.stdlib cimport free, realloc
from libc.string cimport memset

FUNCTIONS = {name: code for code, name in enumerate((  # fo_function
    "identity", "sqrt", "exp", "log", "erf", "reciprocal", "neg", "abs",
    "add", "sub", "mul", "div", "pow", "max", "min", "prelu"))}
cdef int FIRST_BINARY = 8  # of FUNCTIONS
REDUCTIONS = {"mean": 0, "sum": 1, "max": 2}
IDENTITY = (0, 0.0, 0.0, None)

cdef enum:
    SLOTS = 64


cdef struct tensor:
    int slot  # -1: bound for good
    Py_ssize_t offset  # in the slot; else the address
    Py_ssize_t advance
    int nd
    Py_ssize_t shape[8]
    Py_ssize_t stride[8]


cdef fo_call empty_call() noexcept:
    cdef fo_call s
    memset(&s, 0, sizeof(s))
    return s


cdef tuple shape_text(tensor *t):
    return tuple([t.shape[d] for d in range(t.nd)])


cdef int check_axes(tensor *t, int nd, str name) except -1:
    if t.nd != nd:
        raise ValueError(f"{name} has {t.nd} axes, but must have {nd}")
    return 0


cdef int check_same(tensor *a, tensor *b, str name, str other) except -1:
    if a.nd != b.nd or any([a.shape[d] != b.shape[d] for d in range(a.nd)]):
        raise ValueError(f"{name} has shape {shape_text(a)}, but {other} has shape {shape_text(b)}")
    return 0


cdef void place(fo_call *s, const void *pointer, tensor *t) noexcept:
    """Puts t's address into the pointer of s that stands at `pointer`, or binds it to t's slot."""
    if t.slot < 0:
        (<Py_ssize_t *>pointer)[0] = t.offset
    else:
        fo_bind(s, <void *>pointer, t.slot, t.offset, t.advance)


cdef void place_image(fo_call *s, fo_image *image, tensor *t) noexcept:
    image.sn, image.sc, image.sh, image.sw = [1 if t.shape[d] == 1 else t.stride[d] for d in range(4)]
    place(s, &image.data, t)


cdef void axis(fo_axes *a, Py_ssize_t size, Py_ssize_t first, Py_ssize_t second, Py_ssize_t third) noexcept:
    """Appends an axis with its stride in each tensor."""
    a.size[a.nd] = size
    a.stride[0][a.nd], a.stride[1][a.nd], a.stride[2][a.nd] = first, second, third
    a.nd += 1


cdef void axes_of(fo_axes *a, tensor *y, tensor *x, tensor *z) noexcept:
    """All axes of tensors of one shape; x and z may be NULL."""
    cdef int d
    a.nd = 0
    for d in range(y.nd):
        axis(a, y.shape[d], y.stride[d], x.stride[d] if x != NULL else 0, z.stride[d] if z != NULL else 0)
    fo_fold(a)


cdef int check_contiguous(tensor *t, str name) except -1:
    if t.shape[t.nd - 1] > 1 and t.stride[t.nd - 1] != 1:
        raise ValueError(f"the last axis of {name} must be contiguous")
    return 0


cdef fo_conv2d_size conv_size(Py_ssize_t ic, Py_ssize_t oc, tensor *x, tensor *y, Py_ssize_t top,
                              Py_ssize_t left) except *:
    check_axes(x, 4, "x")
    check_axes(y, 4, "y")
    if x.shape[0] != y.shape[0] or x.shape[1] != ic or y.shape[1] != oc:
        raise ValueError(f"x {shape_text(x)} and y {shape_text(y)} do not fit a layer from {ic} to {oc} channels")
    cdef fo_conv2d_size z
    z.n, z.ih, z.iw, z.oh, z.ow = x.shape[0], x.shape[2], x.shape[3], y.shape[2], y.shape[3]
    z.top, z.left = top, left
    return z


cdef bint neighbours(fo_image *image) noexcept:
    return image.sc == 1 or image.sw == 1


cdef int check_channels_last(fo_image *image) except -1:
    if image.sc != 1:
        raise ValueError("the image's channels must be neighbours in memory")
    return 0


cdef class ConvTranspose2dPlan:
    """y = activation(conv_transpose(x, w) + bias + residual) with w (ic, oc/groups, kh, kw) packed once."""
    cdef fo_conv_transpose *plan
    cdef fo_conv2d_shape shape

    def __cinit__(self, w, bias=None, tuple activation=None, tuple stride=(1, 1), tuple dilation=(1, 1),
                  Py_ssize_t groups=1):
        cdef fo_conv2d_shape *s = &self.shape
        cdef ndarray weights = np.ascontiguousarray(as_float32(w, "w")), b = None
        if weights.ndim != 4 or groups < 1 or weights.shape[0] % groups or 0 in np.shape(weights):
            raise ValueError(f"w has shape {np.shape(weights)}, but must be (ic, oc/groups, kh, kw); groups={groups}")
        s.ic, s.oc, s.groups = weights.shape[0], weights.shape[1] * groups, groups
        s.kh, s.kw = weights.shape[2], weights.shape[3]
        s.sh, s.sw = stride
        s.dh, s.dw = dilation
        if bias is not None:
            b = np.ascontiguousarray(as_float32(bias, "bias"))
            if b.size != s.oc:
                raise ValueError(f"bias has shape {np.shape(b)}, but w gives {s.oc} output channels")
        s.act = activation_of(IDENTITY if activation is None else activation)
        s.algorithm, s.nhwc = 0, True
        self.plan = fo_conv_transpose_create(s, data(weights), data(b))
        if self.plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")

    def __dealloc__(self):
        fo_conv_transpose_free(self.plan)


cdef class Program:
    """Steps that run in order in one call; append them first, then run from any thread."""
    cdef fo_call *steps
    cdef Py_ssize_t count, room
    cdef readonly list names
    cdef list kept  # layers, constants and activations whose memory the steps point to
    cdef int slots

    def __cinit__(self):
        self.names, self.kept = [], []

    def __dealloc__(self):
        fo_program_release(self.steps, self.count)
        free(self.steps)

    def __len__(self):
        return self.count

    cdef int append(self, fo_call *s, fo_call_kind kind, str name) except -1:
        cdef fo_call *steps
        if self.count == self.room:
            self.room = 2 * self.room + 16
            steps = <fo_call *>realloc(self.steps, self.room * sizeof(fo_call))
            if steps == NULL:
                self.room = self.count
                raise MemoryError("fusedops: no memory for the steps of a program")
            self.steps = steps
        s.kind = kind
        self.steps[self.count] = s[0]
        fo_program_prepare(&self.steps[self.count])
        self.count += 1
        self.names.append(name)
        return 0

    cdef int read(self, object t, tensor *out, str name) except -1:
        cdef ndarray a
        cdef int d
        if isinstance(t, np.ndarray):
            a = as_float32(t, name)
            if a.ndim > FO_AXES:
                raise ValueError(f"{name} has {a.ndim} axes; the kernels take up to {FO_AXES}")
            self.kept.append(a)
            out.slot, out.offset, out.nd = -1, <Py_ssize_t>cnp.PyArray_DATA(a), a.ndim
            for d in range(a.ndim):
                out.shape[d], out.stride[d] = cnp.PyArray_DIM(a, d), cnp.PyArray_STRIDE(a, d) // 4
            return 0
        slot, offset, shape, strides, *advance = t
        if not 0 <= slot < SLOTS or len(shape) > FO_AXES or len(shape) != len(strides) or offset < 0:
            raise ValueError(f"{name}={t!r} is not a tensor of at most {FO_AXES} axes in slot 0..{SLOTS - 1}")
        out.slot, out.offset, out.nd, out.advance = slot, offset, <int>len(shape), advance[0] if advance else 0
        for d in range(out.nd):
            out.shape[d], out.stride[d] = shape[d], strides[d]
        self.slots = max(self.slots, out.slot + 1)
        return 0

    cdef int pair(self, object x, object y, tensor *tx, tensor *ty) except -1:
        self.read(x, tx, "x")
        self.read(y, ty, "y")
        return 0

    cdef fo_activation activation(self, tuple parsed):
        parsed = IDENTITY if parsed is None else parsed
        self.kept.append(parsed)
        return activation_of(parsed)

    cdef const float *vector(self, object values, Py_ssize_t n, str name) except? NULL:
        """n floats that stay, or NULL for None."""
        if values is None:
            return NULL
        cdef ndarray a = np.ascontiguousarray(as_float32(values, name))
        if a.size != n:
            raise ValueError(f"{name} has {a.size} elements, but must have {n}")
        self.kept.append(a)
        return data(a)

    def repeat(self, Py_ssize_t first, Py_ssize_t rounds):
        """Lets the steps from number `first` to the last so far run so often, as a section of its own."""
        if not 0 <= first < self.count or rounds < 1:
            raise ValueError(f"first={first} and rounds={rounds} are no section of {self.count} steps")
        self.steps[self.count - 1].back, self.steps[self.count - 1].rounds = self.count - 1 - first, rounds

    def run(self, tuple slots, ndarray times=None):
        """Runs all steps; `slots` are arrays, or None where no step uses the slot. `times` gets each step's seconds."""
        cdef char *memory[SLOTS]
        cdef double *seconds = NULL
        cdef fo_status status
        cdef Py_ssize_t i, n = len(slots)
        if n < self.slots or n > SLOTS:
            raise ValueError(f"the program uses {self.slots} slots, but got {n}")
        for i in range(n):
            memory[i] = NULL if slots[i] is None else <char *>cnp.PyArray_DATA(<ndarray?>slots[i])
        if times is not None:
            if times.dtype != np.float64 or times.size < self.count or not times.flags.c_contiguous:
                raise ValueError(f"times must be a contiguous float64 array of {self.count} elements")
            seconds = <double *>cnp.PyArray_DATA(times)
        with nogil:
            status = fo_program_run(self.steps, self.count, memory, seconds)
        check(status)

    # ---- layers

    def conv2d(self, Conv2dPlan layer not None, x, y, residual=None, Py_ssize_t top=0, Py_ssize_t left=0):
        cdef tensor tx, ty, tr
        cdef fo_call s = empty_call()
        cdef fo_conv2d_args *a = &s.conv2d
        self.pair(x, y, &tx, &ty)
        a.plan = layer.plan
        a.size = conv_size(layer.shape.ic, layer.shape.oc, &tx, &ty, top, left)
        place_image(&s, &a.x, &tx)
        place_image(&s, &a.y, &ty)
        if residual is not None:
            self.read(residual, &tr, "residual")
            check_same(&tr, &ty, "residual", "y")
            place_image(&s, &a.residual, &tr)
        if not neighbours(&a.x) or not neighbours(&a.y):
            raise ValueError("pixels or channels of x and y must be neighbours in memory")
        self.kept.append(layer)
        self.append(&s, FO_CALL_CONV2D, "conv2d")

    def separable(self, SeparablePlan layer not None, x, y, residual=None, Py_ssize_t top=0, Py_ssize_t left=0):
        """A depthwise-separable block or inverted residual; top and left are the padding of its depthwise part."""
        cdef tensor tx, ty, tr
        cdef fo_call s = empty_call()
        cdef fo_separable_args *a = &s.separable
        self.pair(x, y, &tx, &ty)
        a.block = layer.block()
        a.size = conv_size(layer.ic, layer.oc, &tx, &ty, top, left)
        place_image(&s, &a.x, &tx)
        place_image(&s, &a.y, &ty)
        if residual is not None:
            self.read(residual, &tr, "residual")
            check_same(&tr, &ty, "residual", "y")
            place_image(&s, &a.residual, &tr)
        if not neighbours(&a.x) or not neighbours(&a.y):
            raise ValueError("pixels or channels of x and y must be neighbours in memory")
        self.kept.append(layer)
        self.append(&s, FO_CALL_SEPARABLE, "separable")

    def conv_transpose(self, ConvTranspose2dPlan layer not None, x, y, residual=None, Py_ssize_t top=0,
                       Py_ssize_t left=0):
        """top and left are rows and columns cut off; y's channels, and the residual's, are neighbours in memory."""
        cdef tensor tx, ty, tr
        cdef fo_call s = empty_call()
        cdef fo_conv_transpose_args *a = &s.conv_transpose
        self.pair(x, y, &tx, &ty)
        a.plan = layer.plan
        a.size = conv_size(layer.shape.ic, layer.shape.oc, &tx, &ty, top, left)
        place_image(&s, &a.x, &tx)
        place_image(&s, &a.y, &ty)
        check_channels_last(&a.y)
        if not neighbours(&a.x):
            raise ValueError("pixels or channels of x must be neighbours in memory")
        if residual is not None:
            self.read(residual, &tr, "residual")
            check_same(&tr, &ty, "residual", "y")
            place_image(&s, &a.residual, &tr)
            check_channels_last(&a.residual)
        self.kept.append(layer)
        self.append(&s, FO_CALL_CONV_TRANSPOSE, "conv_transpose")

    def linear(self, LinearPlan layer not None, x, y, residual=None):
        """x (m, k), y and residual (m, n), the last axis contiguous."""
        cdef tensor tx, ty, tr
        cdef fo_call s = empty_call()
        cdef fo_linear_args *a = &s.linear
        self.pair(x, y, &tx, &ty)
        check_axes(&tx, 2, "x")
        check_axes(&ty, 2, "y")
        if tx.shape[1] != layer.k or ty.shape[1] != layer.n or tx.shape[0] != ty.shape[0]:
            raise ValueError(f"x {shape_text(&tx)} and y {shape_text(&ty)} do not fit w {layer.n, layer.k}")
        a.plan, a.m, a.ldx, a.ldy = layer.plan, tx.shape[0], tx.stride[0], ty.stride[0]
        check_contiguous(&tx, "x")
        check_contiguous(&ty, "y")
        place(&s, &a.x, &tx)
        place(&s, &a.y, &ty)
        if residual is not None:
            self.read(residual, &tr, "residual")
            check_same(&tr, &ty, "residual", "y")
            check_contiguous(&tr, "residual")
            a.ldr = tr.stride[0]
            place(&s, &a.residual, &tr)
        self.kept.append(layer)
        self.append(&s, FO_CALL_LINEAR, "linear")

    def recurrent(self, SequencePlan layer not None, x, y, h0=None, c0=None, hn=None, cn=None, lengths=None):
        """x (steps, batch, inputs), y (steps, batch, directions * outputs) with any order of the first two in memory.

        States are contiguous; hn, and cn of an LSTM, must be given: there the layer keeps them. lengths are constants.
        """
        cdef tensor tx, ty, state
        cdef fo_call s = empty_call()
        cdef fo_sequence *a = &s.sequence
        a[0] = layer.sequence
        self.pair(x, y, &tx, &ty)
        check_axes(&tx, 3, "x")
        check_axes(&ty, 3, "y")
        check_contiguous(&tx, "x")
        check_contiguous(&ty, "y")
        if tx.shape[2] != layer.inputs or shape_text(&ty) != (tx.shape[0], tx.shape[1], a.directions * layer.outputs):
            raise ValueError(f"x {shape_text(&tx)} and y {shape_text(&ty)} do not fit a layer of {a.directions} directions "
                             f"from {layer.inputs} to {layer.outputs}")
        a.steps, a.batch, a.xt, a.xb = tx.shape[0], tx.shape[1], tx.stride[0], tx.stride[1]
        a.yt, a.yb = ty.stride[0], ty.stride[1]
        place(&s, &a.x, &tx)
        place(&s, &a.y, &ty)
        self.state(&s, &a.h0, h0, "h0", layer.outputs)
        self.state(&s, &a.hn, hn, "hn", layer.outputs)
        self.state(&s, &a.c0, c0, "c0", layer.hidden)
        self.state(&s, &a.cn, cn, "cn", layer.hidden)
        if hn is None or layer.lstm and cn is None:
            raise ValueError("hn, and cn of an LSTM, must be given")
        if lengths is not None:
            lengths = as_lengths(lengths, a.steps, a.batch)
            self.kept.append(lengths)
            a.lengths = <const int64_t *>cnp.PyArray_DATA(<ndarray>lengths)
        self.kept.append(layer)
        self.append(&s, FO_CALL_SEQUENCE, "recurrent")

    cdef int state(self, fo_call *s, const void *pointer, object given, str name, Py_ssize_t width) except -1:
        cdef tensor t
        if given is None:
            return 0
        self.read(given, &t, name)
        shape = s.sequence.layers * s.sequence.directions, s.sequence.batch, width
        if shape_text(&t) != shape or t.stride[2] != 1 or t.stride[1] != width or t.stride[0] != shape[1] * width:
            raise ValueError(f"{name} has shape {shape_text(&t)}, but must be contiguous and have shape {shape}")
        place(s, pointer, &t)
        return 0

    # ---- element by element

    def affine(self, x, y, residual=None, scale=None, shift=None, tuple activation=None):
        """y = activation(x * scale[c] + shift[c] + residual), c counts along axis 1."""
        cdef tensor tx, ty, tr
        cdef fo_call s = empty_call()
        cdef fo_pointwise_args *a = &s.pointwise
        cdef fo_axes rows
        cdef int d, last = 1
        self.pair(x, y, &tx, &ty)
        if residual is not None:
            self.read(residual, &tr, "residual")
            check_same(&tr, &ty, "residual", "y")
        else:
            tr = ty
        check_same(&tx, &ty, "x", "y")
        if ty.nd < 2:
            raise ValueError(f"x has {tx.nd} axes, but needs one for channels behind that of the batch")
        if ty.shape[1] > 1 and not ty.stride[1] == tx.stride[1] == tr.stride[1] == 1:  # channels are rows
            last = ty.nd - 1
            a.channel_rows = ty.shape[1]
        rows.nd = 0  # the axes that are rows; in the second case those within a channel follow in `columns`
        for d in range(ty.nd):
            if (d != 1) if last == 1 else (d < 2):
                axis(&rows, ty.shape[d], ty.stride[d], tx.stride[d], tr.stride[d])
        fo_fold(&rows)
        if rows.nd > 1:
            raise ValueError("the rows of x, y and residual must be evenly spaced in memory")
        a.m, a.ldy, a.ldx, a.ldr = rows.size[0], rows.stride[0][0], rows.stride[1][0], rows.stride[2][0]
        a.n = ty.shape[1]
        if last != 1:
            rows.nd = 0
            for d in range(2, ty.nd):
                axis(&rows, ty.shape[d], ty.stride[d], tx.stride[d], tr.stride[d])
            fo_fold(&rows)
            a.n = rows.size[0]
            if rows.nd > 1 or a.n > 1 and not rows.stride[0][0] == rows.stride[1][0] == rows.stride[2][0] == 1:
                raise ValueError("x, y and residual must have contiguous channels or contiguous planes")
        a.scale, a.shift = self.vector(scale, ty.shape[1], "scale"), self.vector(shift, ty.shape[1], "shift")
        a.act = self.activation(activation)
        place(&s, &a.x, &tx)
        place(&s, &a.y, &ty)
        if residual is not None:
            place(&s, &a.residual, &tr)
        self.append(&s, FO_CALL_POINTWISE, "affine")

    def unary(self, str name, x, y, tuple activation=None):
        cdef tensor tx, ty
        cdef fo_call s = empty_call()
        cdef int f = FUNCTIONS[name]
        if f >= FIRST_BINARY:
            raise ValueError(f"{name} takes two arguments")
        self.pair(x, y, &tx, &ty)
        check_same(&tx, &ty, "x", "y")
        axes_of(&s.elementwise.axes, &ty, &tx, NULL)
        place(&s, &s.elementwise.a, &tx)
        place(&s, &s.elementwise.y, &ty)
        s.elementwise.f = f
        s.elementwise.act = self.activation(activation)
        self.append(&s, FO_CALL_ELEMENTWISE, name)

    def binary(self, str name, a, b, y, tuple activation=None):
        """a, b and y have one shape; what is broadcast has stride 0."""
        cdef tensor ta, tb, ty
        cdef fo_call s = empty_call()
        cdef int f = FUNCTIONS[name]
        if f < FIRST_BINARY:
            raise ValueError(f"{name} takes one argument")
        self.read(a, &ta, "a")
        self.read(b, &tb, "b")
        self.read(y, &ty, "y")
        check_same(&ta, &ty, "a", "y")
        check_same(&tb, &ty, "b", "y")
        axes_of(&s.elementwise.axes, &ty, &ta, &tb)
        place(&s, &s.elementwise.a, &ta)
        place(&s, &s.elementwise.b, &tb)
        place(&s, &s.elementwise.y, &ty)
        s.elementwise.f = f
        s.elementwise.act = self.activation(activation)
        self.append(&s, FO_CALL_ELEMENTWISE, name)

    def prelu(self, x, slopes, y):
        self.binary("prelu", x, slopes, y)

    # ---- copies

    def copy(self, x, y):
        cdef tensor tx, ty
        cdef fo_call s = empty_call()
        self.pair(x, y, &tx, &ty)
        check_same(&tx, &ty, "x", "y")
        axes_of(&s.copy.axes, &ty, &tx, NULL)
        place(&s, &s.copy.x, &tx)
        place(&s, &s.copy.y, &ty)
        self.append(&s, FO_CALL_COPY, "copy")

    def fill(self, y, float value):
        cdef tensor ty
        cdef fo_call s = empty_call()
        self.read(y, &ty, "y")
        axes_of(&s.fill.axes, &ty, NULL, NULL)
        place(&s, &s.fill.y, &ty)
        s.fill.value = value
        self.append(&s, FO_CALL_FILL, "fill")

    def gather(self, x, indices, y, int along):
        """y[..., i, ...] = x[..., indices[i], ...]; int64 indices, contiguous, of any number of axes."""
        cdef tensor tx, ty, ti
        cdef fo_call s = empty_call()
        cdef fo_gather_args *a = &s.gather
        cdef fo_axes chosen
        cdef int d, more
        self.pair(x, y, &tx, &ty)
        self.read_indices(indices, &ti, "indices")
        more = ti.nd - 1
        if ty.nd != tx.nd + more or not 0 <= along < tx.nd:
            raise ValueError(f"y has {ty.nd} axes, x {tx.nd}, indices {ti.nd}: they do not fit axis {along}")
        chosen.nd = 0
        for d in range(ti.nd):
            axis(&chosen, ti.shape[d], ty.stride[along + d], 0, 0)
        fo_fold(&chosen)
        if chosen.nd > 1:
            raise ValueError("the indexed axes of y must be evenly spaced in memory")
        for d in range(tx.nd):
            if d != along:
                axis(&a.axes, tx.shape[d], ty.stride[d + (more if d > along else 0)], tx.stride[d], 0)
        fo_fold(&a.axes)
        a.count, a.sy, a.size, a.sx = chosen.size[0], chosen.stride[0][0], tx.shape[along], tx.stride[along]
        place(&s, &a.x, &tx)
        place(&s, &a.y, &ty)
        place(&s, &a.indices, &ti)
        self.append(&s, FO_CALL_GATHER, "gather")

    cdef int read_indices(self, object t, tensor *out, str name) except -1:
        """As read, for int64; a constant is made contiguous."""
        cdef int d
        cdef Py_ssize_t step = 1
        if isinstance(t, np.ndarray):
            if t.dtype != np.int64:
                raise TypeError(f"{name} has dtype {t.dtype}, but must be int64")
            t = np.ascontiguousarray(t).reshape(t.shape)
            self.kept.append(t)
            out.slot, out.offset, out.nd = -1, <Py_ssize_t>cnp.PyArray_DATA(<ndarray>t), t.ndim
            for d in range(out.nd):
                out.shape[d] = t.shape[d]
            return 0
        self.read(t, out, name)
        for d in range(out.nd - 1, -1, -1):
            if out.shape[d] != 1 and out.stride[d] != step:
                raise ValueError(f"{name} must be contiguous")
            step *= out.shape[d]
        return 0

    # ---- images

    cdef int images(self, object x, object y, tensor *tx, tensor *ty) except -1:
        self.read(x, tx, "x")
        self.read(y, ty, "y")
        check_axes(tx, 4, "x")
        check_axes(ty, 4, "y")
        if tx.shape[0] != ty.shape[0] or tx.shape[1] != ty.shape[1]:
            raise ValueError(f"x {shape_text(tx)} and y {shape_text(ty)} differ in batch or channels")
        return 0

    cdef int pool(self, int kind, object x, object y, tuple kernel, tuple stride, tuple before, tuple dilation,
                  tuple counted) except -1:
        cdef tensor tx, ty
        cdef fo_call s = empty_call()
        cdef fo_pool_args *a = &s.pool
        self.images(x, y, &tx, &ty)
        a.kind, a.n, a.c = kind, tx.shape[0], tx.shape[1]
        a.ih, a.iw, a.oh, a.ow = tx.shape[2], tx.shape[3], ty.shape[2], ty.shape[3]
        (a.kh, a.kw), (a.sh, a.sw), (a.top, a.left), (a.dh, a.dw) = kernel, stride, before, dilation
        a.h_lo, a.h_hi, a.w_lo, a.w_hi = counted
        place_image(&s, &a.x, &tx)
        place_image(&s, &a.y, &ty)
        self.append(&s, FO_CALL_POOL, "avg_pool" if kind else "max_pool")
        return 0

    def max_pool(self, x, y, tuple kernel, tuple stride, tuple before=(0, 0), tuple dilation=(1, 1)):
        """kernel, stride, padding before and dilation are pairs; the output's size is y's."""
        self.pool(0, x, y, kernel, stride, before, dilation, (0, 0, 0, 0))

    def avg_pool(self, x, y, tuple kernel, tuple stride, tuple before, tuple dilation, tuple counted):
        """The divisor: a window's points with h_lo <= row < h_hi and w_lo <= column < w_hi, `counted` in this order."""
        self.pool(1, x, y, kernel, stride, before, dilation, counted)

    def resize(self, x, y, tuple rows, tuple columns):
        """rows and columns: (i0, i1, t), y = (1 - t) x[i0] + t x[i1]; or (i0, None, None), y = x[i0]."""
        cdef tensor tx, ty
        cdef fo_call s = empty_call()
        cdef fo_resize_args *a = &s.resize
        self.images(x, y, &tx, &ty)
        a.n, a.c, a.oh, a.ow = ty.shape[0], ty.shape[1], ty.shape[2], ty.shape[3]
        place_image(&s, &a.x, &tx)
        place_image(&s, &a.y, &ty)
        check_channels_last(&a.x)
        check_channels_last(&a.y)
        a.h0, a.h1 = self.positions(rows[0], a.oh, tx.shape[2]), self.positions(rows[1], a.oh, tx.shape[2])
        a.w0, a.w1 = self.positions(columns[0], a.ow, tx.shape[3]), self.positions(columns[1], a.ow, tx.shape[3])
        a.th, a.tw = self.vector(rows[2], a.oh, "t"), self.vector(columns[2], a.ow, "t")
        self.append(&s, FO_CALL_RESIZE, "resize")

    cdef const int64_t *positions(self, object indices, Py_ssize_t n, Py_ssize_t size) except? NULL:
        if indices is None:
            return NULL
        cdef ndarray a = np.ascontiguousarray(indices, np.int64)
        if a.size != n or n and (a.min() < 0 or a.max() >= size):
            raise ValueError(f"indices must be {n} numbers in 0..{size - 1}")
        self.kept.append(a)
        return <const int64_t *>cnp.PyArray_DATA(a)

    def lrn(self, x, y, Py_ssize_t size, float alpha, float beta, float bias):
        cdef tensor tx, ty
        cdef fo_call s = empty_call()
        cdef fo_lrn_args *a = &s.lrn
        self.images(x, y, &tx, &ty)
        check_same(&tx, &ty, "x", "y")
        a.n, a.c, a.h, a.w = tx.shape[0], tx.shape[1], tx.shape[2], tx.shape[3]
        a.size, a.alpha, a.beta, a.bias = size, alpha, beta, bias
        place_image(&s, &a.x, &tx)
        place_image(&s, &a.y, &ty)
        check_channels_last(&a.x)
        check_channels_last(&a.y)
        self.append(&s, FO_CALL_LRN, "lrn")

    # ---- along axes

    def reduce(self, str name, x, y, axes):
        """y has x's shape, but for length 1 along the axes."""
        cdef tensor tx, ty
        cdef fo_call s = empty_call()
        cdef fo_reduce_args *a = &s.reduce
        cdef int d
        self.pair(x, y, &tx, &ty)
        check_axes(&ty, tx.nd, "y")
        for d in range(tx.nd):
            if ty.shape[d] != (1 if d in axes else tx.shape[d]):
                raise ValueError(f"y {shape_text(&ty)} is no reduction of x {shape_text(&tx)} over axes {tuple(axes)}")
            if d in axes:
                axis(&a.over, tx.shape[d], tx.stride[d], 0, 0)
            else:
                axis(&a.kept, tx.shape[d], ty.stride[d], tx.stride[d], 0)
        fo_fold(&a.over)
        fo_fold(&a.kept)
        if a.over.nd > 3:
            raise ValueError("the reduced axes lie in more than three pieces in memory")
        a.kind = REDUCTIONS[name]
        place(&s, &a.x, &tx)
        place(&s, &a.y, &ty)
        self.append(&s, FO_CALL_REDUCE, name)

    cdef int along(self, tensor *tx, tensor *ty, axes, scaled, fo_axes *kept, Py_ssize_t *n, Py_ssize_t *sy,
                   Py_ssize_t *sx) except -1:
        """Splits the axes of x and y into those kept and one that stands for `axes`: its length n and strides.

        The third stride of the kept axes is 1 for those in `scaled`. Returns 0 where `axes` are not one in memory.
        """
        cdef fo_axes one
        cdef int d
        one.nd = kept.nd = 0
        for d in range(ty.nd):
            if d in axes:
                axis(&one, ty.shape[d], ty.stride[d], tx.stride[d], 0)
            else:
                axis(kept, ty.shape[d], ty.stride[d], tx.stride[d], 1 if d in scaled else 0)
        fo_fold(&one)
        fo_fold(kept)
        n[0], sy[0], sx[0] = one.size[0], one.stride[0][0], one.stride[1][0]
        return one.nd == 1

    def softmax(self, x, y, int axis, bint log=False):
        cdef tensor tx, ty
        cdef fo_call s = empty_call()
        cdef fo_softmax_args *a = &s.softmax
        self.pair(x, y, &tx, &ty)
        check_same(&tx, &ty, "x", "y")
        if not -tx.nd <= axis < tx.nd:
            raise ValueError(f"axis {axis} is not one of x's {tx.nd}")
        self.along(&tx, &ty, (axis + tx.nd if axis < 0 else axis,), (), &a.kept, &a.n, &a.sy, &a.sx)
        a.log = log
        place(&s, &a.x, &tx)
        place(&s, &a.y, &ty)
        self.append(&s, FO_CALL_SOFTMAX, "log_softmax" if log else "softmax")

    cdef int normalise(self, object x, object y, float eps, object scale, object shift, axes, scaled, bint along,
                       str name) except -1:
        """scale and shift have an element for each point of `axes` in their order (along), or of axis `scaled`."""
        cdef tensor tx, ty
        cdef fo_call s = empty_call()
        cdef fo_norm_args *a = &s.norm
        self.pair(x, y, &tx, &ty)
        check_same(&tx, &ty, "x", "y")
        if not self.along(&tx, &ty, axes, scaled, &a.kept, &a.n, &a.sy, &a.sx):
            self.copy(x, y)
            x, tx = y, ty
            if not self.along(&tx, &ty, axes, scaled, &a.kept, &a.n, &a.sy, &a.sx):
                raise ValueError("y must be evenly spaced along the axes of the norm")
        a.ss, a.eps = along, eps
        count = a.n if along else ty.shape[1]
        a.scale, a.shift = self.vector(scale, count, "scale"), self.vector(shift, count, "shift")
        place(&s, &a.x, &tx)
        place(&s, &a.y, &ty)
        self.append(&s, FO_CALL_NORM, name)
        return 0

    def norm(self, x, y, float eps, scale=None, shift=None, int first_axis=-1):
        """Layer norm over first_axis and those behind it, along which scale and shift have an element each."""
        nd = np.ndim(y) if isinstance(y, np.ndarray) else len(y[2])
        self.normalise(x, y, eps, scale, shift, range(first_axis % nd, nd), (), True, "norm")

    def instance_norm(self, x, y, float eps, scale=None, shift=None):
        """Over the axes behind the first two; scale and shift have an element for each point of axis 1."""
        nd = np.ndim(y) if isinstance(y, np.ndarray) else len(y[2])
        self.normalise(x, y, eps, scale, shift, range(2, nd), (1,), False, "instance_norm")

    # ---- products

    def matmul(self, a, b, y, float scale=1, tuple activation=None):
        """y = activation(scale * a b) over the last two axes; the others agree, what is broadcast has stride 0."""
        cdef tensor ta, tb, ty
        cdef fo_call s = empty_call()
        cdef fo_matmul_args *g = &s.matmul
        cdef int d, i, j
        self.read(a, &ta, "a")
        self.read(b, &tb, "b")
        self.read(y, &ty, "y")
        i, j = ty.nd - 2, ty.nd - 1
        if (i < 0 or ta.nd != ty.nd or tb.nd != ty.nd
                or ta.shape[j] != tb.shape[i] or ta.shape[i] != ty.shape[i] or tb.shape[j] != ty.shape[j]):
            raise ValueError(f"a {shape_text(&ta)}, b {shape_text(&tb)} and y {shape_text(&ty)} form no product")
        for d in range(i):
            axis(&g.batch, ty.shape[d], ty.stride[d], ta.stride[d], tb.stride[d])
        fo_fold(&g.batch)
        g.m, g.n, g.k = ty.shape[i], ty.shape[j], ta.shape[j]
        g.ym, g.yn = ty.stride[i], 1 if g.n == 1 else ty.stride[j]
        g.am, g.ak, g.bk, g.bn = ta.stride[i], 1 if g.k == 1 else ta.stride[j], tb.stride[i], tb.stride[j]
        if g.yn != 1 and g.m == 1:
            g.ym = 1
        if g.yn != 1 and g.ym != 1:
            raise ValueError("rows or columns of y must be contiguous")
        g.scale, g.act = scale, self.activation(activation)
        place(&s, &g.a, &ta)
        place(&s, &g.b, &tb)
        place(&s, &g.y, &ty)
        self.append(&s, FO_CALL_MATMUL, "matmul")
