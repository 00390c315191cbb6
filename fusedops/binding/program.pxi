# Programs: a network's operations as prepared steps that run in one C call. Included by _core.pyx.
#
# What a kind of step takes is in STEPS (step_kinds.pxi), next to one function that fills its arguments in C (the other
# *_steps.pxi); `Program.append` does the rest. A tensor argument of a step is `(slot, offset in bytes, shape, strides
# in elements)`, memory that each run chooses, or an ndarray, which is bound for good. A fifth number is its distance in
# bytes from one round to the next (see `repeat`). Images are (n, c, h, w) with any strides, in practice channels last.
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset


cdef dict numbered(const char *const *names):
    """The members of an enum by name, as C has them (csrc/include/fusedops/names.h)."""
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
BFLOAT16 = np.dtype([("bfloat16", np.uint16)])  # its bits, which NumPy does not compute with
ELEMENTS = {np.dtype(name): t for name, t in DTYPES.items() if "float16" not in name}  # that steps compute with
NARROW = {np.dtype(np.float16): DTYPES["float16"], BFLOAT16: DTYPES["bfloat16"]}
MOVED = ELEMENTS | NARROW  # that they move without computing
IDENTITY = (0, 0.0, 0.0, None)
AXES = FO_AXES  # most of a tensor of a step
FORMS = ("tensor", "rows", "indices", "bytes", "rows_any", "image", "image_any", "lines", "pixels")  # as form_kind

cdef enum:
    MAX_TENSORS = FO_BINDINGS  # of a step


cdef enum form_kind:  # what a step asks of a tensor; from FORM_IMAGE on it has four axes
    FORM_TENSOR, FORM_ROWS, FORM_INDICES, FORM_ANY, FORM_ROWS_ANY
    FORM_IMAGE, FORM_IMAGE_ANY, FORM_LINES, FORM_PIXELS


cdef enum:
    BOUND = -1
    ABSENT = -2


cdef struct tensor:
    int slot  # BOUND: for good; ABSENT: not given
    Py_ssize_t offset  # in the slot; else the address
    Py_ssize_t stride_bytes
    int nd
    Py_ssize_t shape[FO_AXES]
    Py_ssize_t stride[FO_AXES]


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
    if (form == FORM_ROWS or form == FORM_ROWS_ANY) and t.shape[t.nd - 1] > 1 and t.stride[t.nd - 1] != 1:
        raise ValueError(f"the last axis of {name} must be contiguous")
    if form >= FORM_IMAGE:
        check_axes(t, 4, name)
        if form == FORM_PIXELS and neighbour_distance(t, 1) != 1:
            raise ValueError(f"the channels of {name} must be neighbors in memory")
        if form == FORM_LINES and neighbour_distance(t, 1) != 1 and neighbour_distance(t, 3) != 1:
            raise ValueError(f"pixels or channels of {name} must be neighbors in memory")
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
    cdef tuple activation  # whose slopes a plan without weights refers to

    def __cinit__(self, w, bias=None, tuple activation=None, tuple stride=(1, 1), tuple dilation=(1, 1),
                  Py_ssize_t groups=1, str precision="float32"):
        """w: the weights, or their shape alone, for what a run would take."""
        cdef fo_conv2d_shape *s = &self.shape
        cdef ndarray weights = None, b = None
        cdef tuple shape = w if isinstance(w, tuple) else np.shape(w)
        if len(shape) != 4 or groups < 1 or shape[0] % groups or 0 in shape:
            raise ValueError(f"w has shape {shape}, but must be (ic, oc/groups, kh, kw); groups={groups}")
        s.ic, s.oc, s.kh, s.kw = shape
        s.oc, s.groups = s.oc * groups, groups
        s.sh, s.sw = stride
        s.dh, s.dw = dilation
        if w is not shape:
            weights = np.ascontiguousarray(as_float32(w, "w"))
        if bias is not None:
            b = np.ascontiguousarray(as_float32(bias, "bias"))
            if b.size != s.oc:
                raise ValueError(f"bias has shape {np.shape(b)}, but w gives {s.oc} output channels")
        self.activation = IDENTITY if activation is None else activation
        s.act = activation_of(self.activation)
        s.algorithm, s.nhwc = 0, True
        self.plan = fo_conv_transpose_create(s, DTYPES[precision], data(weights), data(b))
        if self.plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")

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
    cdef readonly str refuses  # what values it ends at, after other steps have written; None: none
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


class StepError(ValueError):
    """A value that a step does not take, such as an index outside its axis; `step` is its number in the program."""

    def __init__(self, text, step):
        super().__init__(text)
        self.step = step


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
        if form == FORM_ANY or form == FORM_ROWS_ANY or form == FORM_IMAGE_ANY:
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
            raise ValueError(f"first={first} and repeats={repeats} are not a section of {self.count} steps")
        self.steps[self.count - 1].back, self.steps[self.count - 1].repeats = self.count - 1 - first, repeats

    def run(self, tuple slots, ndarray times=None):
        """Runs all steps; `slots` are arrays, or None where no step uses the slot. `times` gets each step's seconds."""
        cdef char **memory
        cdef double *seconds = NULL
        cdef fo_status status
        cdef Py_ssize_t i, failed = 0, n = len(slots)
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
                status = fo_program_run(self.steps, self.count, memory, seconds, &failed)
        finally:
            free(memory)
        if status == FO_OUTSIDE:
            raise StepError(REFUSALS[self.steps[failed].kind], failed)
        check(status)
