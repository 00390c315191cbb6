# Programs: a network's operations as prepared steps that run in one C call. Included by _core.pyx.
#
# What a kind of step takes is in STEPS at the end, and one function that fills its arguments in C; `Program.append`
# does the rest. A tensor argument of a step is `(slot, offset in bytes, shape, strides in elements)`, memory that each
# run chooses, or an ndarray, which is bound for good. A fifth number is its distance in bytes from one round to the
# next (see `repeat`). Images are (n, c, h, w) with any strides, in practice channels last.
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset


cdef dict numbered(const char *const *names):
    """The members of an enum by name, as C has them (csrc/names.h)."""
    cdef int i = 0
    cdef dict numbers = {}
    while names[i] != NULL:
        numbers[names[i].decode()] = i
        i += 1
    return numbers


ALGORITHMS = numbered(fo_algorithm_names)
CELLS = numbered(fo_cell_names)
FUNCTIONS = numbered(fo_function_names)
REDUCTIONS = numbered(fo_reduction_names)
MAPS = numbered(fo_map_names)
SCATTERS = numbered(fo_scatter_names)
BEYOND = numbered(fo_beyond_names)
INTERPOLATIONS = numbered(fo_interpolation_names)
DTYPES = numbered(fo_dtype_names)
TRANSFORMS = numbered(fo_transform_names)
ROUNDINGS = numbered(fo_rounding_names)
ELEMENTS = {np.dtype(name): t for name, t in DTYPES.items() if "float16" not in name}  # that steps compute with
IDENTITY = (0, 0.0, 0.0, None)
FORMS = ("tensor", "rows", "indices", "bytes", "image", "image_any", "lines", "pixels")  # form_kind, in order

cdef enum:
    MAX_TENSORS = 8  # of a step


cdef enum form_kind:  # what a step asks of a tensor; from FORM_IMAGE on it has four axes
    FORM_TENSOR, FORM_ROWS, FORM_INDICES, FORM_ANY, FORM_IMAGE, FORM_IMAGE_ANY, FORM_LINES, FORM_PIXELS


cdef enum:
    BOUND = -1
    ABSENT = -2


cdef struct tensor:
    int slot  # BOUND: for good; ABSENT: not given
    Py_ssize_t offset  # in the slot; else the address
    Py_ssize_t stride_bytes
    int nd
    Py_ssize_t shape[8]
    Py_ssize_t stride[8]


cdef fo_step empty_step() noexcept:
    cdef fo_step s
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


cdef int check_form(tensor *t, form_kind form, str name) except -1:
    """What a step asks of a tensor's place in memory."""
    if form == FORM_ROWS and t.shape[t.nd - 1] > 1 and t.stride[t.nd - 1] != 1:
        raise ValueError(f"the last axis of {name} must be contiguous")
    if form >= FORM_IMAGE:
        check_axes(t, 4, name)
        if form == FORM_PIXELS and neighbour_distance(t, 1) != 1:
            raise ValueError(f"the channels of {name} must be neighbours in memory")
        if form == FORM_LINES and neighbour_distance(t, 1) != 1 and neighbour_distance(t, 3) != 1:
            raise ValueError(f"pixels or channels of {name} must be neighbours in memory")
    return 0


cdef void place(fo_step *s, void *pointer, tensor *t) noexcept:
    """Puts t's address into the pointer of s that stands at `pointer`, or binds it to t's slot."""
    if t.slot == BOUND:
        (<Py_ssize_t *>pointer)[0] = t.offset
    else:
        fo_bind(s, pointer, t.slot, t.offset, t.stride_bytes)


cdef void place_image(fo_step *s, fo_image *image, tensor *t) noexcept:
    image.sn, image.sc, image.sh, image.sw = [neighbour_distance(t, d) for d in range(4)]
    place(s, &image.data, t)


cdef Py_ssize_t neighbour_distance(tensor *t, int d) noexcept:
    return 1 if t.shape[d] == 1 else t.stride[d]


cdef void axis(fo_axes *a, Py_ssize_t size, Py_ssize_t first, Py_ssize_t second, Py_ssize_t third) noexcept:
    """Appends an axis with its stride in each tensor."""
    a.size[a.nd] = size
    a.stride[0][a.nd], a.stride[1][a.nd], a.stride[2][a.nd], a.stride[3][a.nd] = first, second, third, 0
    a.nd += 1


cdef void axes_of(fo_axes *a, tensor *y, tensor *x, tensor *z) noexcept:
    """All axes of tensors of one shape; x and z may be NULL."""
    cdef int d
    a.nd = 0
    for d in range(y.nd):
        axis(a, y.shape[d], y.stride[d], x.stride[d] if x != NULL else 0, z.stride[d] if z != NULL else 0)
    fo_fold(a)


cdef class ConvTranspose2dPlan:
    """y = activation(conv_transpose(x, w) + bias + residual) with w (ic, oc/groups, kh, kw) packed once."""
    cdef fo_conv_transpose *plan
    cdef fo_conv2d_shape shape
    cdef tuple given

    def __cinit__(self, w, bias=None, tuple activation=None, tuple stride=(1, 1), tuple dilation=(1, 1),
                  Py_ssize_t groups=1, bint bfloat16=False):
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
        self.given = (w, bias, activation, stride, dilation, groups)
        self.plan = fo_conv_transpose_create(s, bfloat16, data(weights), data(b))
        if self.plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")

    def in_bfloat16(self):
        """The same with products of bfloat16."""
        return ConvTranspose2dPlan(*self.given, bfloat16=True)

    def _nanoseconds(self, tuple image, tuple result, Py_ssize_t top, Py_ssize_t left):
        """What an image (n, ih, iw) and a result (oh, ow) are predicted to take in float32 and in bfloat16."""
        cdef fo_conv2d_size z
        z.n, z.ih, z.iw = image
        z.oh, z.ow = result
        z.top, z.left = top, left
        return (fo_conv_transpose_nanoseconds(self.plan, &z, FO_F32),
                fo_conv_transpose_nanoseconds(self.plan, &z, FO_BF16))

    def __dealloc__(self):
        fo_conv_transpose_free(self.plan)


cdef class Program
ctypedef int (*fill_step)(Program program, fo_step *s, tensor *t, tuple options) except -1


cdef class StepKind:
    """What one kind of step takes: the names of its arguments in order; which are tensors, and which of these it
    writes."""
    cdef readonly str name
    cdef readonly tuple names, tensors, results
    cdef readonly frozenset indices  # tensors of int64, whose axes are not those of the others
    cdef readonly object independent_rows  # whether a step with these arguments keeps the rows of axis 0 separate
    cdef readonly bint in_place  # it may write over its first operand
    cdef dict defaults
    cdef tuple options
    cdef fo_step_kind call
    cdef fill_step fill
    cdef int count  # of tensors
    cdef form_kind forms[MAX_TENSORS]
    cdef int alike[MAX_TENSORS]  # the tensor that has the same shape, or -1
    cdef bint optional[MAX_TENSORS]
    cdef Py_ssize_t at[MAX_TENSORS]  # of each tensor's pointer, or image, in fo_step

    def options_of(self, dict arguments):
        """The arguments that are no tensors, in order."""
        return tuple([arguments[name] if name in arguments else self.defaults[name] for name in self.options])

    cdef dict bound(self, tuple given, dict named):
        """Arguments by their names."""
        found = {**self.defaults, **dict(zip(self.names, given)), **named}
        missing = any([name not in found for name in self.names])
        if len(given) > len(self.names) or len(found) != len(self.names) or missing:
            raise TypeError(f"a step {self.name} takes {', '.join(self.names)}, not {len(given)} arguments and "
                            f"{', '.join(named) or 'no names'}")
        return found


cdef class Program:
    """Steps that run in order in one call; append them first, then run from any thread."""
    cdef fo_step *steps
    cdef Py_ssize_t count, room
    cdef readonly list names
    cdef list kept  # layers, constants and activations whose memory the step points to that comes next
    cdef list held  # the same of each step
    cdef int slots
    cdef tuple given  # what a template filled it with: values, offsets, constants, options, idle

    def __cinit__(self):
        self.names, self.kept, self.held = [], [], []

    def __dealloc__(self):
        fo_program_release(self.steps, self.count)
        free(self.steps)

    def __len__(self):
        return self.count

    def append(self, str kind, *given, **named):
        """Adds a step; STEPS[kind] has the names of its arguments."""
        cdef StepKind k = STEPS[kind]
        cdef tensor t[MAX_TENSORS]
        cdef dict arguments = k.bound(given, named)
        cdef int i
        for i in range(k.count):
            self.read(arguments[k.tensors[i]], &t[i], k.tensors[i], k.forms[i], k.optional[i])
        self.fill(k, t, tuple([arguments[name] for name in k.options]), arguments.get("name", kind))

    cdef int fill(self, StepKind k, tensor *t, tuple options, str name) except -1:
        """Adds a step with these tensors."""
        cdef int i
        cdef fo_step s
        memset(&s, 0, sizeof(s))
        for i in range(k.count):
            if k.alike[i] >= 0 and t[i].slot != ABSENT:
                check_same(&t[i], &t[k.alike[i]], k.tensors[i], k.tensors[k.alike[i]])
        k.fill(self, &s, t, options)
        for i in range(k.count):
            if t[i].slot != ABSENT and k.forms[i] >= FORM_IMAGE:
                place_image(&s, <fo_image *>(<char *>&s + k.at[i]), &t[i])
            elif t[i].slot != ABSENT:
                place(&s, <char *>&s + k.at[i], &t[i])
        self.kept.append(options)
        s.kind = k.call
        return self.add(&s, name)

    cdef int add(self, fo_step *s, str name) except -1:
        if self.count == self.room:
            self.reserve(2 * self.room + 16)
        self.steps[self.count] = s[0]
        fo_program_prepare(&self.steps[self.count])
        self.count += 1
        self.names.append(name)
        self.held.append(self.kept)
        self.kept = []
        return 0

    cdef int take(self, Program other) except -1:
        """Adds the next step as another program has it, which must own no memory."""
        self.steps[self.count] = other.steps[self.count]
        self.names.append(other.names[self.count])
        self.held.append(other.held[self.count])
        self.count += 1
        return 0

    cdef int reserve(self, Py_ssize_t count) except -1:
        """Makes room for so many steps in all."""
        cdef fo_step *steps
        if count > self.room:
            steps = <fo_step *>realloc(self.steps, count * sizeof(fo_step))
            if steps == NULL:
                raise MemoryError("fusedops: no memory for the steps of a program")
            self.steps, self.room = steps, count
        return 0

    cdef int read(self, object t, tensor *out, str name, form_kind form, bint optional) except -1:
        cdef int d
        if t is None and optional:
            out.slot = ABSENT
            return 0
        if isinstance(t, np.ndarray):
            self.read_array(t, out, name, form)
        else:
            slot, offset, shape, strides, *stride_bytes = t
            if slot < 0 or len(shape) > FO_AXES or len(shape) != len(strides) or offset < 0:
                raise ValueError(f"{name}={t!r} is not a tensor of at most {FO_AXES} axes in a slot")
            out.slot, out.offset, out.nd = slot, offset, <int>len(shape)
            out.stride_bytes = stride_bytes[0] if stride_bytes else 0
            for d in range(out.nd):
                out.shape[d], out.stride[d] = shape[d], strides[d]
            self.slots = max(self.slots, out.slot + 1)
        check_form(out, form, name)
        return 0

    cdef int read_array(self, ndarray a, tensor *out, str name, form_kind form) except -1:
        cdef int d
        if form == FORM_ANY or form == FORM_IMAGE_ANY:
            pass
        elif form != FORM_INDICES:
            a = as_float32(a, name)
        elif a.dtype != np.int64:
            raise TypeError(f"{name} has dtype {a.dtype}, but must be int64")
        else:
            a = np.ascontiguousarray(a).reshape(np.shape(a))
        if a.ndim > FO_AXES:
            raise ValueError(f"{name} has {a.ndim} axes; the kernels take up to {FO_AXES}")
        self.kept.append(a)
        out.slot, out.offset, out.stride_bytes, out.nd = BOUND, <Py_ssize_t>cnp.PyArray_DATA(a), 0, a.ndim
        for d in range(a.ndim):
            out.shape[d], out.stride[d] = cnp.PyArray_DIM(a, d), cnp.PyArray_STRIDE(a, d) // cnp.PyArray_ITEMSIZE(a)
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

    cdef const int64_t *positions(self, object indices, Py_ssize_t n, Py_ssize_t size) except? NULL:
        if indices is None:
            return NULL
        cdef ndarray a = np.ascontiguousarray(indices, np.int64)
        if a.size != n or n and (a.min() < 0 or a.max() >= size):
            raise ValueError(f"indices must be {n} numbers in 0..{size - 1}")
        self.kept.append(a)
        return <const int64_t *>cnp.PyArray_DATA(a)

    def repeat(self, Py_ssize_t first, Py_ssize_t repeats):
        """Lets the steps from number `first` to the last so far run so often, as a section of its own."""
        if not 0 <= first < self.count or repeats < 1:
            raise ValueError(f"first={first} and repeats={repeats} are no section of {self.count} steps")
        self.steps[self.count - 1].back, self.steps[self.count - 1].repeats = self.count - 1 - first, repeats

    def run(self, tuple slots, ndarray times=None):
        """Runs all steps; `slots` are arrays, or None where no step uses the slot. `times` gets each step's seconds."""
        cdef char **memory
        cdef double *seconds = NULL
        cdef fo_status status
        cdef Py_ssize_t i, n = len(slots)
        if n < self.slots:
            raise ValueError(f"the program uses {self.slots} slots, but got {n}")
        if times is not None:
            if times.dtype != np.float64 or times.size < self.count or not times.flags.c_contiguous:
                raise ValueError(f"times must be a contiguous float64 array of {self.count} elements")
            seconds = <double *>cnp.PyArray_DATA(times)
        memory = <char **>malloc(n * sizeof(char *))
        if n and memory == NULL:
            raise MemoryError("fusedops: no memory for the arguments of a program")
        try:
            for i in range(n):
                memory[i] = NULL if slots[i] is None else <char *>cnp.PyArray_DATA(<ndarray?>slots[i])
            with nogil:
                status = fo_program_run(self.steps, self.count, memory, seconds)
        finally:
            free(memory)
        check(status)


# ---- what each kind of step puts into its arguments; t are its tensors and o its options, in the order of STEPS

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


cdef int fill_affine(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y = activation(x * scale[c] + shift[c] + residual), c counts along axis 1."""
    cdef fo_pointwise_args *a = &s.pointwise
    cdef tensor *x = t
    cdef tensor *y = t + 1
    cdef tensor *r = y if t[2].slot == ABSENT else t + 2
    cdef fo_axes rows
    cdef int d, last = 1
    if y.nd < 2:
        raise ValueError(f"x has {x.nd} axes, but needs one for channels behind that of the batch")
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
    if o[1] not in (1, 4):
        raise ValueError(f"elements of {o[1]} bytes cannot be filled")


cdef fo_dtype element_of(object dtype) except *:
    if dtype not in ELEMENTS:
        raise TypeError(f"no kernel takes elements of {dtype}")
    return ELEMENTS[dtype]


_FLOATS = {np.float16, np.float32}  # between which steps cast; they do nothing else with float16


def map_takes(str name, of, to=FLOAT32):
    """Whether a step "map" computes a function of elements of this type; of casts to another."""
    f, integer, real = MAPS[name], of in (np.int64, np.int32), of == np.float32
    if name == "cast":
        return of in ELEMENTS and to in ELEMENTS or {of.type, to.type} == _FLOATS
    if MAPS["and"] <= f <= MAPS["not"]:
        return of == np.bool_
    if MAPS["add"] <= f <= MAPS["sign"]:
        return integer or name == "sign" and real
    return real if MAPS["floor"] <= f <= MAPS["bfloat16"] else of in ELEMENTS


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
    m.f, m.from_, m.to = MAPS[name], DTYPES[of.name], DTYPES[to.name]


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
    m.f, m.to, m.stride = FO_MAP_GATHER, element_of(o[1]), x.stride[along]
    m.size, m.from_ = x.shape[along], element_of(np.dtype(np.int64))


def scatter_takes(str reduction, of):
    """Whether a step "scatter" puts elements of this type so."""
    return of in ELEMENTS if reduction == "none" else of in (np.float32, np.int32, np.int64)


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
    a.kind, a.type = SCATTERS[reduction], element_of(of)


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
            raise ValueError(f"places {shape_text(rows)} do not fit y {shape_text(y)}, or differ in their strides")
    if x.shape[2] >= 1 << 30 or x.shape[3] >= 1 << 30:
        raise ValueError(f"images {shape_text(x)} are too large: rows and columns are counted in 30 bits")
    a.n, a.c, a.h, a.w, a.oh, a.ow = y.shape[0], y.shape[1], x.shape[2], x.shape[3], y.shape[2], y.shape[3]
    a.pn, a.ph, a.pw = rows.stride[0], rows.stride[2], rows.stride[3]
    a.mode, a.beyond = INTERPOLATIONS[mode], BEYOND[beyond]
    fill_grid_axis(&a.rows, a.h, coordinates)
    fill_grid_axis(&a.columns, a.w, coordinates)


cdef int fill_grid_axis(fo_grid_axis *a, double size, str coordinates) except -1:
    a.before, a.scale, a.shift = {"pixels": (0, 1, 0), "corners": (1, (size - 1) / 2, 0),
                                  "borders": (1, size / 2, -0.5)}[coordinates]
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
    """Neighbouring axes that lie as one in all tensors become one; at least one stays."""
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
    if o[3] not in (np.float32, np.int64):
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
            raise ValueError(f"y {shape_text(y)} is no reduction of x {shape_text(x)} over axes {tuple(axes)}")
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


cdef int normalise(Program p, fo_step *s, tensor *t, tuple o, axes, scaled) except -1:
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
    """Layer norm of x + residual over first_axis and those behind it, where scale and shift have an element each; rms:
    with 0 for the mean."""
    cdef int d
    normalise(p, s, t, o, range(o[3] % t.nd, t.nd), ())
    s.norm.rms = o[4]
    for d in range(t.nd if t[2].slot != ABSENT else 0):
        if t[2].stride[d] != t.stride[d] and t.shape[d] != 1:
            raise ValueError("residual must lie in memory as x does")


cdef int fill_instance_norm(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """Over the axes behind the first two; scale and shift have an element for each point of axis 1."""
    normalise(p, s, t, o, range(2, t.nd), (1,))


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
    g.scale, g.causal, g.diagonal, g.window, g.softcap, g.bfloat16 = o
    if t[5].slot != ABSENT and (h != 1 or t[5].nd != 1 or t[5].shape[0] != y.shape[0]
                                or neighbour_distance(t + 5, 0) != 1):
        raise ValueError(f"diagonals {shape_text(t + 5)} must be contiguous, one for each row of y {shape_text(y)}")
    if t[6].slot != ABSENT and (t[6].nd != 1 or t[6].shape[0] != g.heads):
        raise ValueError(f"sinks {shape_text(t + 6)} must be one for each of {g.heads} heads")
    if g.window < 0 or g.window and not g.causal:
        raise ValueError(f"a window of {g.window} keys is for causal attention, and not negative")


cdef int fill_append(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """y (n, heads, room, d) of past (n, heads, kept, d) and x (n, heads, t, d) behind begins (n,) rows of it."""
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
    a.xn, a.xh, a.xt, a.yn, a.yh, a.yt = x.stride[0], x.stride[1], x.stride[2], y.stride[0], y.stride[1], y.stride[2]


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
    cdef fo_qlinear_args *a = &s.qlinear
    cdef tensor *x = t
    cdef tensor *y = t + 1
    cdef Py_ssize_t n, k
    cdef int i
    layer = o[0]
    if isinstance(layer, LinearPlan):
        a.plan, n, k = (<LinearPlan>layer).narrow, (<LinearPlan>layer).n, (<LinearPlan>layer).k
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
        raise ValueError("the channels of x and y must be neighbours in memory")
    if o[6] is None:
        fill_max_pool(p, &floats, t, o[2:])
    else:
        fill_avg_pool(p, &floats, t, o[2:])
    a.pool = floats.pool
    a.tx, a.ty, a.qx, a.qy = TYPES[tx], TYPES[ty], quantization_of(qx), quantization_of(qy)


cdef int fill_nearest(Program p, fo_step *s, tensor *t, tuple o) except -1:
    """As resize, of bytes and without i1 and t."""
    if t[0].shape[1] > 1 and not t[0].stride[1] == t[1].stride[1] == 1:
        raise ValueError("the channels of x and y must be neighbours in memory")
    fill_resize(p, s, t, o)
    if s.nearest.h1 != NULL or s.nearest.w1 != NULL:
        raise ValueError("bytes are not interpolated")


# ---- the kinds of steps

STEPS = {}  # name: StepKind


cdef StepKind step(str name, fo_step_kind call, fill_step fill, str arguments, list at, dict defaults={}):
    """Describes a kind of step. A tensor of its arguments is written `name:form`, with `~other` if it has the shape of
    another, `!` if it is written and `?` if it may be None. Forms: an image of four axes, in `lines` if pixels or
    channels are neighbours, in `pixels` if channels are; `rows`, if the last axis is contiguous; `indices` of int64;
    any other `tensor`. `bytes` and `image_any` have elements of any type. `at` are the places of their
    pointers in fo_step."""
    cdef StepKind k = StepKind.__new__(StepKind)
    cdef int i
    words = [word.partition(":") for word in arguments.split()]
    marks = [(*word.rstrip("!?").partition("~"), word, form) for word, colon, form in words if colon]
    k.name, k.names, k.call, k.fill = name, tuple([word.rstrip("!?").partition("~")[0] for word,
                                                   *_ in words]), call, fill
    k.tensors, k.count = tuple([m[0] for m in marks]), len(marks)
    k.results, optional = tuple([m[0] for m in marks if "!" in m[3]]), [m[0] for m in marks if "?" in m[3]]
    k.indices = frozenset([m[0] for m in marks if m[4] == "indices"])
    k.options = tuple([n for n in k.names if n not in k.tensors])
    k.defaults, k.independent_rows = dict.fromkeys(optional) | defaults, lambda arguments: True
    for i, m in enumerate(marks):
        k.forms[i], k.at[i], k.optional[i] = FORMS.index(m[4]), at[i], "?" in m[3]
        k.alike[i] = k.tensors.index(m[2]) if m[2] else -1
    STEPS[name] = k
    return k


cdef fo_step sample  # its fields are where those of every step are


cdef inline Py_ssize_t at(const void *field):
    """The bytes before a field of the sample."""
    return <const char *>field - <const char *>&sample


def _describe_steps():
    cdef fo_step *s = &sample
    not_first, never = (lambda a: a["axis"] > 0), (lambda a: False)
    padding, plain = {"top": 0, "left": 0}, {"activation": None}
    step("conv2d", FO_STEP_CONV2D, fill_conv2d, "layer x:lines y!:lines residual~y?:image top left",
         [at(&s.conv2d.x), at(&s.conv2d.y), at(&s.conv2d.residual)], padding)
    step("separable", FO_STEP_SEPARABLE, fill_separable, "layer x:lines y!:lines residual~y?:image top left",
         [at(&s.separable.x), at(&s.separable.y), at(&s.separable.residual)], padding)
    step("conv_transpose", FO_STEP_CONV_TRANSPOSE, fill_conv_transpose,
         "layer x:lines y!:pixels residual~y?:pixels top left",
         [at(&s.conv_transpose.x), at(&s.conv_transpose.y), at(&s.conv_transpose.residual)], padding)
    step("linear", FO_STEP_LINEAR, fill_linear, "layer x:rows y!:rows residual~y?:rows",
         [at(&s.linear.x), at(&s.linear.y), at(&s.linear.residual)])
    step("recurrent", FO_STEP_SEQUENCE, fill_recurrent, "layer x:rows y!:rows h0?:tensor c0?:tensor hn!?:tensor "
                                                        "cn!?:tensor lengths?:indices",
         [at(&s.sequence.x), at(&s.sequence.y), at(&s.sequence.h0), at(&s.sequence.c0), at(&s.sequence.hn),
          at(&s.sequence.cn), at(&s.sequence.lengths)]).independent_rows = never
    step("affine", FO_STEP_POINTWISE, fill_affine, "x~y:tensor y!:tensor residual~y?:tensor scale shift activation",
         [at(&s.pointwise.x), at(&s.pointwise.y), at(&s.pointwise.residual)],
         {"scale": None, "shift": None, "activation": None}).in_place = True
    step("unary", FO_STEP_ELEMENTWISE, fill_unary, "name x~y:tensor y!:tensor activation",
         [at(&s.elementwise.a), at(&s.elementwise.y)], plain).in_place = True
    step("binary", FO_STEP_ELEMENTWISE, fill_binary, "name a~y:tensor b~y:tensor y!:tensor activation",
         [at(&s.elementwise.a), at(&s.elementwise.b), at(&s.elementwise.y)], plain).in_place = True
    step("copy", FO_STEP_COPY, fill_copy, "x~y:bytes y!:bytes size", [at(&s.copy.x), at(&s.copy.y)], {"size": 4})
    step("fill", FO_STEP_FILL, fill_fill, "y!:bytes value size", [at(&s.fill.y)], {"size": 4})
    step("map", FO_STEP_MAP, fill_map, "name a~y:bytes b~y?:bytes c~y?:bytes y!:bytes of to",
         [at(&s.map.a), at(&s.map.b), at(&s.map.c), at(&s.map.y)])
    step("gather", FO_STEP_MAP, fill_gather, "x:bytes indices:indices y!:bytes along to single",
         [at(&s.map.a), at(&s.map.b), at(&s.map.y)],
         {"to": FLOAT32, "single": False}).independent_rows = lambda a: a["along"] > 0
    step("grid_sample", FO_STEP_GRID_SAMPLE, fill_grid_sample,
         "x:pixels rows:tensor columns~rows:tensor y!:pixels mode beyond coordinates",
         [at(&s.grid_sample.x), at(&s.grid_sample.rows.places), at(&s.grid_sample.columns.places),
          at(&s.grid_sample.y)])
    step("roi_align", FO_STEP_ROI_ALIGN, fill_roi_align,
         "x:pixels boxes:rows images:indices y!:pixels samples scale shift centred",
         [at(&s.roi_align.x), at(&s.roi_align.boxes), at(&s.roi_align.batch), at(&s.roi_align.y)]
         ).independent_rows = never
    step("scatter", FO_STEP_SCATTER, fill_scatter,
         "x~y:bytes indices:indices updates:bytes y!:bytes reduction along of",
         [at(&s.scatter.x), at(&s.scatter.indices), at(&s.scatter.updates), at(&s.scatter.y)]).independent_rows = never
    step("argmax", FO_STEP_ARGMAX, fill_argmax, "least x:tensor y!:bytes axis",
         [at(&s.argmax.x), at(&s.argmax.y)]).independent_rows = not_first
    step("top_k", FO_STEP_TOP_K, fill_top_k, "least x:tensor y!:tensor places!:bytes axis",
         [at(&s.top_k.x), at(&s.top_k.y), at(&s.top_k.places)]).independent_rows = not_first
    step("cumsum", FO_STEP_CUMSUM, fill_cumsum, "x~y:bytes y!:bytes axis exclusive reverse of",
         [at(&s.cumsum.x), at(&s.cumsum.y)]).independent_rows = not_first
    step("rotate", FO_STEP_ROTATE, fill_rotate, "x~y:tensor y!:tensor cos:rows sin~cos:rows interleaved",
         [at(&s.rotate.x), at(&s.rotate.y), at(&s.rotate.c), at(&s.rotate.s)])
    step("max_pool", FO_STEP_POOL, fill_max_pool, "x:image y!:image kernel stride before dilation",
         [at(&s.pool.x), at(&s.pool.y)], {"before": (0, 0), "dilation": (1, 1)})
    step("avg_pool", FO_STEP_POOL, fill_avg_pool, "x:image y!:image kernel stride before dilation counted",
         [at(&s.pool.x), at(&s.pool.y)])
    step("resize", FO_STEP_RESIZE, fill_resize, "x:lines y!:lines rows columns", [at(&s.resize.x), at(&s.resize.y)])
    step("lrn", FO_STEP_LRN, fill_lrn, "x~y:pixels y!:pixels size alpha beta bias", [at(&s.lrn.x), at(&s.lrn.y)])
    step("reduce", FO_STEP_REDUCE, fill_reduce, "name x:tensor y!:tensor axes",
         [at(&s.reduce.x), at(&s.reduce.y)]).independent_rows = \
        lambda a: 0 not in a["axes"]
    step("softmax", FO_STEP_SOFTMAX, fill_softmax, "x~y:tensor y!:tensor axis log",
         [at(&s.softmax.x), at(&s.softmax.y)], {"log": False}).independent_rows = not_first
    step("norm", FO_STEP_NORM, fill_norm, "x~y:tensor y!:tensor eps scale shift first_axis residual~y?:tensor rms",
         [at(&s.norm.x), at(&s.norm.y), at(&s.norm.residual)],
         {"scale": None, "shift": None, "first_axis": -1, "rms": False}).independent_rows = \
        lambda a: a["first_axis"] > 0
    step("instance_norm", FO_STEP_NORM, fill_instance_norm, "x~y:tensor y!:tensor eps scale shift",
         [at(&s.norm.x), at(&s.norm.y)], {"scale": None, "shift": None})
    step("matmul", FO_STEP_MATMUL, fill_matmul, "a:tensor b:tensor y!:tensor scale activation",
         [at(&s.matmul.a), at(&s.matmul.b), at(&s.matmul.y)], {"scale": 1.0, "activation": None}).independent_rows = \
        lambda a: len(a["y"].shape) > 2
    step("attention", FO_STEP_ATTENTION, fill_attention,
         "q:tensor k:tensor v:tensor y!:tensor mask?:tensor scale causal diagonal window softcap bfloat16 "
         "diagonals?:indices sinks?:rows",
         [at(&s.attention.q), at(&s.attention.k), at(&s.attention.v), at(&s.attention.y), at(&s.attention.added),
          at(&s.attention.diagonals), at(&s.attention.sinks)],
         {"scale": 1.0, "causal": False, "diagonal": 0, "window": 0, "softcap": 0.0, "bfloat16": False}
         ).independent_rows = lambda a: len(a["y"].shape) > 3 and a.get("diagonals") is None
    step("append", FO_STEP_APPEND, fill_append, "past?:rows x:rows y!:rows begins:indices",
         [at(&s.append.past), at(&s.append.x), at(&s.append.y), at(&s.append.begins)]).independent_rows = never
    step("qconv2d", FO_STEP_CONV2D, fill_qconv2d,
         "layer types x:image_any y!:image_any residual~y?:image_any top left",
         [at(&s.conv2d.x), at(&s.conv2d.y), at(&s.conv2d.residual)], padding)
    step("qlinear", FO_STEP_QLINEAR, fill_qlinear, "layer types x:bytes y!:bytes residual~y?:bytes",
         [at(&s.qlinear.x), at(&s.qlinear.y), at(&s.qlinear.residual)]).independent_rows = \
        lambda a: a["types"][0] != np.float32
    step("convert", FO_STEP_CONVERT, fill_convert, "x~y:bytes y!:bytes from to q",
         [at(&s.convert.x), at(&s.convert.y)])
    fixed = step("requantize", FO_STEP_REQUANTIZE, fill_requantize, "x~y:tensor y!:tensor q",
                 [at(&s.requantize.x), at(&s.requantize.y)], {"q": None})
    fixed.in_place, fixed.independent_rows = True, lambda a: a.get("q") is not None
    step("lookup", FO_STEP_LOOKUP, fill_lookup, "x~y:bytes y!:bytes table",
         [at(&s.lookup.x), at(&s.lookup.y)]).in_place = True
    step("qbinary", FO_STEP_QBINARY, fill_qbinary, "name types q a~y:bytes b~y:bytes y!:bytes activation",
         [at(&s.qbinary.a), at(&s.qbinary.b), at(&s.qbinary.y)], plain)
    step("qpool", FO_STEP_QPOOL, fill_qpool,
         "types q x:image_any y!:image_any kernel stride before dilation counted",
         [at(&s.qpool.pool.x), at(&s.qpool.pool.y)], {"dilation": (1, 1), "counted": None})
    step("nearest", FO_STEP_NEAREST, fill_nearest, "x:image_any y!:image_any rows columns",
         [at(&s.nearest.x), at(&s.nearest.y)])


_describe_steps()
