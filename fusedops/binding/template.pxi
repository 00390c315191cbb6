# Templates of programs: steps whose sizes, strides and offsets are the values of formulas. Included by _core.pyx.
#
# A template is made once for many sizes of a network's inputs. For given ones, `Formulas.run` computes all numbers, and
# `ProgramTemplate.program` fills the steps with them: nothing else of planning is done again.

# fo_formula_kind
CONSTANT, GIVEN, ADD, SUBTRACT, MULTIPLY, DIVIDE, REMAINDER, SCALE = range(FO_SIZE_CONSTANT, FO_SIZE_EQUAL)
EQUAL, UNEQUAL, LESS, AT_MOST = range(FO_SIZE_EQUAL, FO_SIZE_AT_MOST + 1)

TAKEN, SHARED, IN_PLANES, FEW_PIXELS = range(4)  # outcomes of take_blocks

cdef double MAX_BYTES = 1 << 60  # of an arena


cdef class Formulas:
    """Integers that follow from the sizes of inputs, and conditions on them, in the order in which they were noted."""
    cdef fo_formula *formulas
    cdef Py_ssize_t count, given

    def __cinit__(self, list formulas):
        cdef Py_ssize_t i
        self.formulas = <fo_formula *>malloc((len(formulas) + 1) * sizeof(fo_formula))
        if self.formulas == NULL:
            raise MemoryError("fusedops: no memory for the formulas of sizes")
        for i, (kind, a, b) in enumerate(formulas):
            self.formulas[i].kind, self.formulas[i].a, self.formulas[i].b = kind, a, b
            if kind > FO_SIZE_GIVEN and not (0 <= a < i and 0 <= b < i):
                raise ValueError(f"formula {i} reads what comes after it")
            if kind == FO_SIZE_GIVEN:
                if a < 0:
                    raise ValueError(f"formula {i} reads size {a}")
                self.given = max(self.given, a + 1)
        self.count = len(formulas)

    def __dealloc__(self):
        free(self.formulas)

    def __len__(self):
        return self.count

    def run(self, tuple given):
        """The values for these sizes as an array, or None where a condition does not hold."""
        cdef cnp.npy_intp n = len(given), count = self.count
        cdef ndarray sizes = cnp.PyArray_SimpleNew(1, &n, cnp.NPY_INT64)
        cdef ndarray values = cnp.PyArray_ZEROS(1, &count, cnp.NPY_INT64, 0)
        cdef Py_ssize_t i
        if n < self.given:
            raise ValueError(f"a formula reads size {self.given - 1} of {n}")
        for i in range(n):
            (<int64_t *>cnp.PyArray_DATA(sizes))[i] = given[i]
        found = fo_formulas_run(self.formulas, self.count, <const int64_t *>cnp.PyArray_DATA(sizes),
                                <int64_t *>cnp.PyArray_DATA(values))
        return values if found else None


def lay_out(ndarray nbytes, ndarray first, ndarray last):
    """(offsets, bytes in all) of buffers in an arena, given arrays of int64: bytes, first step, last step of each."""
    cdef Py_ssize_t i, top, n = nbytes.size
    cdef double total = 0
    cdef bint lives = True
    cdef ndarray offsets = np.zeros(n, np.int64)
    cdef int64_t *found = <int64_t *>cnp.PyArray_DATA(offsets)
    cdef const int64_t *b = lifetimes_of(nbytes, n)
    cdef const int64_t *f = lifetimes_of(first, n)
    cdef const int64_t *l = lifetimes_of(last, n)
    cdef fo_lifetime *buffers = <fo_lifetime *>malloc((n + 1) * sizeof(fo_lifetime))
    if buffers == NULL:
        raise MemoryError("fusedops: no memory for the layout of an arena")
    for i in range(n):
        buffers[i].bytes, buffers[i].first, buffers[i].last = b[i], f[i], l[i]
        lives = lives and 0 <= f[i] <= l[i]
        total += <double>b[i]
    top = fo_lay_out(buffers, n) if lives and total <= MAX_BYTES else -1
    for i in range(n):
        found[i] = buffers[i].offset
    free(buffers)
    if not lives:
        raise ValueError("a buffer must be in use from a step on to that one or a later one")
    if top < 0:
        raise MemoryError(f"no memory for the layout of an arena of {total:.0f} bytes")
    return offsets, top


cdef const int64_t *lifetimes_of(ndarray a, Py_ssize_t n) except NULL:
    if a.dtype != np.int64 or a.size != n or not a.flags.c_contiguous:
        raise TypeError(f"the lifetimes of {n} buffers must be contiguous arrays of int64")
    return <const int64_t *>cnp.PyArray_DATA(a)


def take_blocks(list blocks, ndarray values, Py_ssize_t least, bytearray idle, ndarray nbytes=None):
    """What becomes of each block for these values of formulas: TAKEN, or why it is not. A block is (its layer, numbers
    of the formulas of rows and columns before and after, or None where its images stand in planes, its step, its
    parts, and the buffers between these, which take no memory where it is taken). `idle` gets 1 for each step that does
    not run; blocks are for images of `least` rows and columns."""
    cdef const int64_t *v = <const int64_t *>cnp.PyArray_DATA(values)
    cdef int64_t *sizes = NULL if nbytes is None else <int64_t *>cnp.PyArray_DATA(nbytes)
    cdef list found = []
    cdef Py_ssize_t i
    cdef fo_conv2d_size z
    cdef SeparablePlan layer
    for layer, numbers, step, parts, inside in blocks:
        outcome = SHARED if any([idle[i] for i in parts]) else IN_PLANES if numbers is None else TAKEN
        if outcome == TAKEN:
            z.ih, z.iw, z.oh, z.ow = [v[i] for i in numbers]
            outcome = TAKEN if min(z.ih, z.iw) >= least and layer.pays(&z) else FEW_PIXELS
        if outcome != TAKEN:
            idle[step] = 1
        else:
            for i in parts:
                idle[i] = 1
            for i in inside:
                sizes[i] = 0
        found.append(outcome)
    return found


cdef enum:
    WHOLE = -3  # a constant that is read as the array is


cdef struct tensor_form:
    int slot  # or BOUND, WHOLE: of a constant; ABSENT
    int source  # the number of the constant, or of the buffer in the arena; -1 for none
    int nd
    int offset, stride_bytes  # here and below: numbers of formulas
    int shape[8]
    int stride[8]


cdef class ProgramTemplate:
    """Steps in a row that one call computes."""
    cdef tensor_form *forms  # MAX_TENSORS for each step
    cdef list kinds, names, sections

    def __cinit__(self):
        self.kinds, self.names, self.sections = [], [], []

    def __dealloc__(self):
        free(self.forms)

    def __len__(self):
        return len(self.kinds)

    def append(self, str kind, list tensors, str name):
        """Adds a step. Each of its tensors is None, the number of a constant, or (slot or -1 for a constant, number of
        the constant or the buffer or -1, and numbers of formulas: offset, stride_bytes, shape, strides)."""
        cdef StepKind k = STEPS[kind]
        cdef Py_ssize_t i, d, first = len(self.kinds) * MAX_TENSORS
        cdef tensor_form *f
        cdef tensor_form *forms = <tensor_form *>realloc(self.forms, (first + MAX_TENSORS) * sizeof(tensor_form))
        if forms == NULL:
            raise MemoryError("fusedops: no memory for the steps of a program")
        self.forms = forms
        for i, t in enumerate(tensors):
            f = &forms[first + i]
            memset(f, 0, sizeof(tensor_form))
            if t is None and not k.optional[i]:
                raise TypeError(f"a step {kind} needs {k.tensors[i]}")
            if t is None or isinstance(t, int):
                f.slot, f.source = ABSENT if t is None else WHOLE, -1 if t is None else t
                continue
            f.slot, f.source, f.offset, f.stride_bytes, shape, strides = t
            if len(shape) > FO_AXES or len(shape) != len(strides):
                raise ValueError(f"{k.tensors[i]} has {len(shape)} axes; the kernels take up to {FO_AXES}")
            f.nd = <int>len(shape)
            for d in range(f.nd):
                f.shape[d], f.stride[d] = shape[d], strides[d]
        self.kinds.append(k)
        self.names.append(name)

    def repeat(self, Py_ssize_t first, Py_ssize_t repeats):
        """As Program.repeat, for the steps so far."""
        self.sections.append((first, len(self.kinds), repeats))

    def program(self, ndarray values, ndarray offsets, list constants, list options, bytearray idle, Py_ssize_t before,
                Program like=None):
        """The Program for these values of formulas, offsets of buffers, constants, and options of each step; without
        the steps that are idle, the first of which is number `before` there. `like` is one for other values, whose
        steps are taken where they are the same."""
        cdef Program p = Program()
        cdef tensor t[MAX_TENSORS]
        cdef StepKind k
        cdef int j
        cdef Py_ssize_t first, stop, repeats, start
        cdef const char *skipped = idle
        cdef const int64_t *v = <const int64_t *>cnp.PyArray_DATA(values)
        cdef const int64_t *at = <const int64_t *>cnp.PyArray_DATA(offsets)
        cdef Py_ssize_t step = 0
        p.given = values, offsets, constants, options, idle
        if like is not None and (like.given is None or like.given[4] != idle):
            like = None
        p.reserve(len(self.kinds))
        p.slots = 0 if like is None else like.slots
        for first, stop, repeats in self.sections:
            start = p.count
            while step < stop:
                if not skipped[before + step]:
                    k = self.kinds[step]
                    if like is not None and self.is_same(step, k, p.given, like.given):
                        p.take(like)
                    else:
                        for j in range(k.count):
                            self.tensor(p, &self.forms[step * MAX_TENSORS + j], &t[j], k, j, v, at, constants)
                        p.fill(k, t, options[step], self.names[step])
                step += 1
            if p.count > start:
                p.repeat(start, repeats)
        return p

    cdef bint is_same(self, Py_ssize_t step, StepKind k, tuple now, tuple before) except -1:
        """Whether a step that owns no memory is the same with what two programs are given."""
        cdef const int64_t *v = <const int64_t *>cnp.PyArray_DATA(<ndarray>now[0])
        cdef const int64_t *w = <const int64_t *>cnp.PyArray_DATA(<ndarray>before[0])
        cdef const int64_t *at = <const int64_t *>cnp.PyArray_DATA(<ndarray>now[1])
        cdef const int64_t *was_at = <const int64_t *>cnp.PyArray_DATA(<ndarray>before[1])
        cdef tensor_form *f
        cdef int j, d
        if k.call in (FO_STEP_CONV2D, FO_STEP_SEPARABLE) or (<list>now[3])[step] is not (<list>before[3])[step]:
            return False
        for j in range(k.count):
            f = &self.forms[step * MAX_TENSORS + j]
            if f.slot == ABSENT:
                continue
            if f.slot in (WHOLE, BOUND):
                if (<list>now[2])[f.source] is not (<list>before[2])[f.source]:
                    return False
            elif f.source >= 0 and at[f.source] != was_at[f.source]:
                return False
            if f.slot == WHOLE:
                continue
            if v[f.offset] != w[f.offset] or v[f.stride_bytes] != w[f.stride_bytes]:
                return False
            for d in range(f.nd):
                if v[f.shape[d]] != w[f.shape[d]] or v[f.stride[d]] != w[f.stride[d]]:
                    return False
        return True

    cdef int tensor(self, Program p, tensor_form *f, tensor *t, StepKind k, int j, const int64_t *v,
                    const int64_t *at, list constants) except -1:
        """Fills in one tensor of a step."""
        cdef int d, wanted
        cdef ndarray base
        t.slot = f.slot
        if f.slot == ABSENT:
            return 0
        if f.slot == WHOLE:
            p.read_array(constants[f.source], t, k.tensors[j], k.forms[j])
            return check_form(t, k.forms[j], k.tensors[j])
        t.offset, t.stride_bytes, t.nd = v[f.offset], v[f.stride_bytes], f.nd
        if f.slot == BOUND:
            base = constants[f.source]
            wanted = cnp.NPY_INT64 if k.forms[j] == FORM_INDICES else cnp.NPY_FLOAT32
            if k.forms[j] != FORM_ANY and k.forms[j] != FORM_IMAGE_ANY and cnp.PyArray_TYPE(base) != wanted:
                raise TypeError(f"{k.tensors[j]} has dtype {base.dtype}")
            t.offset += <Py_ssize_t>cnp.PyArray_DATA(base)
            p.kept.append(base)
        else:
            t.offset += 0 if f.source < 0 else at[f.source]
            p.slots = max(p.slots, f.slot + 1)
        for d in range(f.nd):
            t.shape[d], t.stride[d] = v[f.shape[d]], v[f.stride[d]]
        return check_form(t, k.forms[j], k.tensors[j])
