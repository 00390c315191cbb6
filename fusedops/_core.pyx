# cython: boundscheck=False, wraparound=False, cdivision=True, freethreading_compatible=True
"""The binding: checks arguments, finds how arrays lie in memory, allocates results and makes one C call without the
GIL."""
import contextvars

import numpy as np

cimport numpy as cnp
from cpython.number cimport PyNumber_Index
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset, strcpy
from numpy cimport ndarray

cnp.import_array()

cdef object FLOAT32 = np.dtype(np.float32)


# ---- runtime --------------------------------------------------------------------------------------------------------

def isa_names():
    return [fo_isa_name(i).decode() for i in range(fo_isa_count()) if fo_isa_available(i)]


def isa_count():
    """Those of this build, which the processor may lack."""
    return fo_isa_count()


def get_isa():
    return fo_isa_name(fo_get_isa()).decode()


def set_isa(str name):
    for i in range(fo_isa_count()):
        if fo_isa_available(i) and fo_isa_name(i).decode() == name:
            fo_set_isa(i)
            return
    raise ValueError(f"instruction set {name!r} is not available; this machine has {', '.join(isa_names())}")


def set_num_threads(int n):
    fo_set_num_threads(n)


def get_num_threads():
    return fo_get_num_threads()


def cgroup_quota(str root, str list):
    """For tests: the processors that the cgroups of a list (/proc/self/cgroup) allow, mounted under `root`
    (/sys/fs/cgroup); 0 for no limit."""
    return fo_cgroup_quota(root.encode(), list.encode())


def build_info():
    return {"threading": fo_threading().decode(), "compiler": fo_compiler().decode()}


def choices():
    """For tests: how often a convolution's algorithm has been chosen: calls of known sizes choose none."""
    return fo_conv2d_choices()


def activation_names():
    """The activations of csrc/activations.h, in the order of their codes."""
    return tuple([fo_activation_name(kind).decode() for kind in range(FO_ACTIVATIONS)])


def l2_bytes():
    """The bytes of a core's second-level cache, at most 1 MB."""
    return fo_l2_bytes()


def half_rate():
    """Whether AVX-512 takes twice as long as shorter vectors here."""
    return fo_half_rate()


def set_half_rate(bint half):
    """For tests: what layers that are made from now on do on such a processor, or on another."""
    fo_set_half_rate(half)


def variants():
    """For tests: the names of the kernel variants that ran since the last call of this; None in a build without
    FUSEDOPS_TRACE=1."""
    cdef int i, most = fo_variants_most()
    if not most:
        return None
    names = {fo_variant(i).decode() for i in range(most) if fo_variant(i) != NULL}
    fo_forget_variants()
    return names


# ---- memory of results ----------------------------------------------------------------------------------------------

# NumPy's large arrays begin 16 bytes past a line of the cache, and each store of a full vector touches two lines there.
# Results that begin at a line made 1x1 convolutions of few channels 1.1 to 1.4 times as fast (AVX-512). Below FO_PLACED
# bytes the allocation costs as much as it gains.
PLACED = FO_PLACED



cdef void *result_malloc(void *ctx, size_t bytes) noexcept nogil:
    return fo_alloc_result(bytes)


cdef void *result_calloc(void *ctx, size_t count, size_t bytes) noexcept nogil:
    cdef void *p = NULL if bytes and count > <size_t>-1 // bytes else fo_alloc_result(count * bytes)
    return memset(p, 0, count * bytes) if p else NULL


cdef void *result_realloc(void *ctx, void *p, size_t bytes) noexcept nogil:
    return fo_realloc_result(p, bytes)


cdef void result_free(void *ctx, void *p, size_t bytes) noexcept nogil:
    fo_free_result(p)


cdef cnp.PyDataMem_Handler result_memory
strcpy(result_memory.name, b"fusedops")
result_memory.version = 1
result_memory.allocator = cnp.PyDataMemAllocator(NULL, result_malloc, result_calloc, result_realloc, result_free)
cdef object RESULT_MEMORY = PyCapsule_New(&result_memory, b"mem_handler", NULL)
# whatever the user has set in his own context
cdef object NUMPY_MEMORY = contextvars.Context().run(lambda: cnp.PyDataMem_GetHandler())


cdef ndarray new_result(int nd, cnp.npy_intp *dims, const void *x=NULL, fo_place place=FO_BEHIND,
                        int dtype=cnp.NPY_FLOAT32):
    """A new array, placed behind x, if it is not small and the user has no handler of NumPy's memory."""
    cdef double nbytes = sizeof(float) if dtype == cnp.NPY_FLOAT32 else cnp.PyArray_DescrFromType(dtype).itemsize
    cdef int i
    for i in range(nd):
        nbytes *= dims[i]
    if nbytes < FO_PLACED or cnp.PyDataMem_GetHandler() is not NUMPY_MEMORY:
        return cnp.PyArray_EMPTY(nd, dims, dtype, 0)
    before = cnp.PyDataMem_SetHandler(RESULT_MEMORY)
    try:
        fo_place_results(fo_place_after(x, place))
        return cnp.PyArray_EMPTY(nd, dims, dtype, 0)
    finally:
        cnp.PyDataMem_SetHandler(before)


# ---- arrays ---------------------------------------------------------------------------------------------------------

cdef inline bint ready(object x) noexcept:
    """A float32 array in native byte order, aligned: what kernels read."""
    return (cnp.PyArray_CheckExact(x) and cnp.PyArray_TYPE(<ndarray>x) == cnp.NPY_FLOAT32
            and cnp.PyArray_ISALIGNED(<ndarray>x) and cnp.PyArray_ISNOTSWAPPED(<ndarray>x))


cpdef ndarray as_array(object x, str name):
    """x as an array of whatever dtype: by the buffer or array protocol, or by DLPack; a view where that is possible."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, and the kernels would ignore its mask: pass {name}.filled(value)")
    if isinstance(x, np.ndarray):
        return np.asarray(x)
    kind = type(x).__name__
    if getattr(x, "requires_grad", False):
        raise TypeError(f"{name} is a {kind} that requires grad, but fusedops records no gradients: pass "
                        f"{name}.detach()")
    dlpack = hasattr(x, "__dlpack__")
    try:
        elsewhere = dlpack and x.__dlpack_device__()[0] != 1  # kDLCPU
        if not elsewhere:
            return np.from_dlpack(x) if dlpack and not hasattr(x, "__array__") else np.asarray(x)
    except Exception as e:  # whatever the other library raises
        narrow = "bfloat16" in str(getattr(x, "dtype", ""))  # which NumPy lacks
        raise TypeError(f"{name} is a {kind} that cannot be read as a dense float32 array: {e}"
                        + (f": pass {conversion(x, name)}" if narrow else "")) from e
    raise TypeError(f"{name} is a {kind} on {getattr(x, 'device', 'another device')}, but fusedops computes on the "
                    f"CPU: "
                    + (f"pass {name}.cpu()" if hasattr(x, "cpu") else f"move {name} there first"))


cpdef bint is_plain(x, dtype, tuple shape):
    """Whether x is an array of this dtype as kernels read it, contiguous, and of this shape, in which None or a name is
    any size; None: of any shape."""
    cdef ndarray a
    cdef int d
    if not cnp.PyArray_CheckExact(x):
        return False
    a = x
    if a.dtype is not dtype or not cnp.PyArray_ISCARRAY_RO(a):
        return False
    if shape is None:
        return True
    if len(shape) != cnp.PyArray_NDIM(a):
        return False
    for d in range(cnp.PyArray_NDIM(a)):
        size = shape[d]
        if size is not None and not isinstance(size, str) and <Py_ssize_t>size != cnp.PyArray_DIM(a, d):
            return False
    return True


cpdef tuple plain_shapes(tuple arrays):
    """The shapes of arrays that programs read as they lie, contiguous ones of float32; None where there are others."""
    for x in arrays:
        if not ready(x) or not cnp.PyArray_IS_C_CONTIGUOUS(<ndarray>x):
            return None
    return tuple([x.shape for x in arrays])


cpdef list new_results(list kinds):
    """A result for each pair of shape and dtype."""
    cdef list arrays = []
    cdef cnp.npy_intp sizes[cnp.NPY_MAXDIMS]
    cdef tuple shape
    cdef int d
    for shape, dtype in kinds:
        if len(shape) > cnp.NPY_MAXDIMS:
            raise ValueError(f"a result has {len(shape)} axes, but an array at most {cnp.NPY_MAXDIMS}")
        for d in range(<int>len(shape)):
            sizes[d] = shape[d]
        arrays.append(new_result(<int>len(shape), sizes, NULL, FO_BEHIND, dtype.num))
    return arrays


cpdef str conversion(object x, str name, object kind=FLOAT32):
    """How to convert x, for an error."""
    if hasattr(x, "astype"):
        return f"{name}.astype(np.{kind.name})"
    return f"{name}.float()" if hasattr(x, "float") and kind == np.float32 else f"np.asarray({name}, np.{kind.name})"


cdef ndarray as_float32(object x, str name):
    """x as an array that kernels can read; a view where that is possible, never a cast."""
    if ready(x):
        return <ndarray>x
    a = as_array(x, name)
    if a.dtype.kind not in "biufc" and not isinstance(x, np.ndarray):
        raise TypeError(f"{name} must be a float32 array, not {type(x).__name__}")
    if a.dtype != np.float32 or not a.dtype.isnative:
        raise TypeError(f"{name} has dtype {a.dtype.str if a.dtype == np.dtype('>f4') else a.dtype}, but fusedops "
                        f"computes in float32: "
                        f"pass {conversion(x, name)}")
    return a if ready(a) else a.copy()


cpdef ndarray checked_out(object out, tuple shape):
    """out, if it can take a result of this shape, or the error that says why not."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a numpy array, not {type(out).__name__}"
                        + (": pass out.numpy()" if hasattr(out, "numpy") else ""))
    if isinstance(out, np.ma.MaskedArray):
        raise TypeError("out is a masked array, and nothing would be written where its mask is hard: pass out.data")
    if out.dtype != np.float32 or not out.dtype.isnative:
        raise TypeError(f"out has dtype {out.dtype}, but results are float32: make it with np.empty({shape}, "
                        f"np.float32)")
    if out.shape != shape:
        raise ValueError(f"out has shape {out.shape}, but the result has shape {shape}")
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    return out


cpdef tuple as_pair(object given, str name):
    """The h and c of an LSTM."""
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"{name} must be a pair of arrays (h, c), not "
                        + (f"{len(given)} of them" if isinstance(given, (tuple, list))
                           else f"a single {type(given).__name__}"))
    return tuple(given)


cpdef int disjoint(ndarray h, ndarray c) except -1:
    """Refuses two results in the same memory."""
    if overlap(h, c):
        raise ValueError("the two arrays of out overlap")
    return 0


cpdef ndarray as_lengths(object lengths, Py_ssize_t steps, Py_ssize_t batch):
    """The steps of each row of a batch."""
    cdef object n = as_array(lengths, "lengths")
    if n.dtype.kind not in "iu" and n.size:  # NumPy's dtype of an empty list says nothing
        raise TypeError(f"lengths has dtype {n.dtype}, but must be integers of at most 64 bits")
    if n.shape != (batch,):
        raise ValueError(f"lengths has shape {n.shape}, but must have shape ({batch},), one for each row of the batch "
                         f"of x")
    if n.size and (n.min() < 0 or n.max() > steps):
        raise ValueError(f"lengths must be in 0..{steps}, the steps of x, but one is "
                         f"{n.min() if n.min() < 0 else n.max()}")
    return np.array(n, np.int64)  # a copy: out may overlap it


cdef inline bint same_shape(ndarray a, int nd, const cnp.npy_intp *dims) noexcept:
    cdef int i
    if cnp.PyArray_NDIM(a) != nd:
        return False
    for i in range(nd):
        if cnp.PyArray_DIM(a, i) != dims[i]:
            return False
    return True


cdef tuple shape_of(int nd, const cnp.npy_intp *dims):
    return tuple([dims[i] for i in range(nd)])


cdef void bounds(ndarray a, char **lo, char **hi) noexcept:
    """The bytes that a's elements span."""
    cdef int i
    cdef Py_ssize_t reach
    lo[0] = hi[0] = <char *>cnp.PyArray_DATA(a)
    for i in range(cnp.PyArray_NDIM(a)):
        reach = (cnp.PyArray_DIM(a, i) - 1) * cnp.PyArray_STRIDE(a, i)
        if reach < 0:
            lo[0] += reach
        else:
            hi[0] += reach
    hi[0] += 4


cdef bint overlap(ndarray a, ndarray b) noexcept:
    cdef char *alo
    cdef char *ahi
    cdef char *blo
    cdef char *bhi
    if a is None or b is None or cnp.PyArray_SIZE(a) == 0 or cnp.PyArray_SIZE(b) == 0:
        return False
    bounds(a, &alo, &ahi)
    bounds(b, &blo, &bhi)
    return alo < bhi and blo < ahi


cdef inline float *data(ndarray a) noexcept nogil:
    return NULL if a is None else <float *>cnp.PyArray_DATA(a)


cdef fo_weights weights_of(ndarray a) noexcept:
    """Weights as as_weights gives them."""
    cdef fo_weights w
    w.data, w.type = NULL, FO_F32
    if a is not None:
        w.data = cnp.PyArray_DATA(a)
        if cnp.PyArray_TYPE(a) == cnp.NPY_INT8:
            w.type = FO_S8
        elif cnp.PyArray_TYPE(a) != cnp.NPY_FLOAT32:
            w.type = FO_F16 if cnp.PyArray_TYPE(a) == cnp.NPY_FLOAT16 else FO_BF16
    return w


cdef inline fo_types floats() noexcept nogil:
    """The types of a call whose tensors are all float32."""
    cdef fo_types types
    types.x = types.residual = types.y = FO_F32
    return types


cdef inline double *doubles(ndarray a) noexcept nogil:
    return NULL if a is None else <double *>cnp.PyArray_DATA(a)


cdef ndarray contiguous(ndarray a):
    """a itself, if its elements lie one after the other; else a copy. The strides of an axis of length 1 may be
    anything."""
    return in_order(a) if ready(a) and not cnp.PyArray_IS_C_CONTIGUOUS(a) else cnp.PyArray_GETCONTIGUOUS(a)


cdef ndarray copied(ndarray a):
    """A C-contiguous copy: every stride is a whole number of elements."""
    cdef int i
    for i in range(cnp.PyArray_NDIM(a)):
        if cnp.PyArray_STRIDE(a, i) % 4:
            return cnp.PyArray_NewCopy(a, cnp.NPY_CORDER)
    return in_order(a)


cdef bint as_columns(ndarray a, Py_ssize_t *m, Py_ssize_t *ld) noexcept:
    """Whether a lies as a matrix whose columns are contiguous, ld elements apart."""
    if cnp.PyArray_NDIM(a) != 2 or cnp.PyArray_STRIDE(a, 0) != 4 or cnp.PyArray_STRIDE(a, 1) % 4:
        return False
    m[0], ld[0] = cnp.PyArray_DIM(a, 0), cnp.PyArray_STRIDE(a, 1) // 4
    return ld[0] >= m[0] > 0


cdef bint as_rows(ndarray a, Py_ssize_t *m, Py_ssize_t *ld) noexcept:
    """Whether a lies as m rows, ld elements apart, each contiguous."""
    cdef int nd = cnp.PyArray_NDIM(a), i
    cdef Py_ssize_t rows = 1, step = 0, d, s
    cdef bint empty = cnp.PyArray_SIZE(a) == 0  # its strides mean nothing
    if nd and cnp.PyArray_DIM(a, nd - 1) > 1 and cnp.PyArray_STRIDE(a, nd - 1) != 4 and not empty:
        return False
    for i in range(nd - 2, -1, -1):
        d = cnp.PyArray_DIM(a, i)
        s = cnp.PyArray_STRIDE(a, i)
        if d == 1:
            continue
        if rows == 1:
            step = s
        elif s != rows * step and not empty:
            return False
        rows *= d
    m[0] = rows
    ld[0] = step // 4
    return step % 4 == 0


cdef fo_activation activation_of(tuple parsed) noexcept:
    """parsed: what activations.parse returned; it must outlive the call that gets this."""
    cdef fo_activation act
    act.kind = parsed[0]
    act.p0 = parsed[1]
    act.p1 = parsed[2]
    act.slopes = NULL if parsed[3] is None else data(<ndarray>parsed[3])
    return act


cdef int check(fo_status status) except -1:
    if status == FO_NO_MEMORY:
        raise MemoryError("fusedops: no memory for the scratch space of this operation")
    if status == FO_OUTSIDE:
        raise ValueError("an index of a Gather (GatherElements, GatherND), a Scatter (ScatterElements, ScatterND) or a "
                         "RotaryEmbedding is outside its axis: one of n elements has those in -n..n-1; or the rows "
                         "of a GroupQueryAttention do not follow those of earlier calls; or lengths of a "
                         "ReverseSequence are not in 0..n; or a box of a RoiAlign is not finite, or in no image")
    return 0


# Sizes of a layer before its __init__ has run: no array has them, so that the checks of a call find it.
cdef enum: UNMADE = -1


cpdef object unmade(object layer):
    return RuntimeError(f"this {type(layer).__name__} has no weights: its __init__ has not run")


cdef int make_once(object layer, bint made) except -1:
    """Refuses a second __init__: other layers, streams and threads use what the first one made."""
    if made:
        raise RuntimeError(f"this {type(layer).__name__} has its weights, and a layer does not change: make a new one")
    return 0


# ---- linear ---------------------------------------------------------------------------------------------------------

BITS_COLUMNS = FO_BLOCKWISE_COLUMNS  # of a panel of weights of 4 or 8 bits
BITS_BLOCK = FO_BLOCKWISE_BLOCK  # most steps of a block whose rows are rounded
cdef enum: LARGEST = 1 << 30  # of their sizes


cdef class LinearPlan:
    """y = activation(x w^T + bias + residual) with w packed once."""
    cdef fo_linear *plan
    cdef fo_qlinear *narrow  # in its place, where products are of bfloat16, or of rows rounded by blocks
    cdef readonly Py_ssize_t n, k
    cdef object bias, dtype  # as given; dtype: of the weights where they come back
    cdef readonly str isa
    cdef readonly tuple _kept  # what the plan reads where it is
    cdef ndarray _lent  # weights of a plan for one call

    def __cinit__(self):
        self.k = UNMADE

    def __dealloc__(self):
        fo_linear_free(self.plan)
        fo_qlinear_free(self.narrow)

    def _pack(self, ndarray w, ndarray bias, tuple activation, bint bfloat16=False, bint lend=False):
        """w (n, k) of any strides, as as_weights gives them; bias (n,) contiguous or None; activation as parsed.
        bfloat16: of products of that. lend: for one call, whose few rows read float32 weights where they lie."""
        cdef fo_linear *plan
        cdef fo_qlinear *narrow
        cdef fo_activation act = activation_of(activation)
        cdef Py_ssize_t n = w.shape[0], k = w.shape[1]
        cdef Py_ssize_t each = cnp.PyArray_ITEMSIZE(w)
        cdef fo_weights weights = weights_of(w)
        cdef Py_ssize_t wn = cnp.PyArray_STRIDE(w, 0) // each, wk = cnp.PyArray_STRIDE(w, 1) // each
        make_once(self, self.plan != NULL or self.narrow != NULL)
        if lend and ready(w):
            self._lent = w
            self._keep(fo_linear_lend(n, k, data(w), wn, wk, data(bias), act), n, k)
        elif not bfloat16:
            with nogil:
                plan = fo_linear_create(n, k, &weights, wn, wk, data(bias), act)
            self._keep(plan, n, k)
        else:
            with nogil:
                narrow = fo_qlinear_create_bf16(n, k, &weights, wn, wk, data(bias), act)
            self._keep_narrow(narrow, n, k)
        self.bias = None if bias is None else bias.copy()
        self.dtype = FLOAT32 if bfloat16 and not is_bfloat16(w.dtype) else w.dtype

    def _weights(self):
        """w and bias again; w of products in bfloat16 is rounded, and float32 or bfloat16."""
        cdef ndarray w
        cdef float *to
        cdef bint made
        if self.k == UNMADE:
            raise unmade(self)
        if self.dtype is None or self._lent is not None:
            raise TypeError("weights in blocks, or lent for one call, are the caller's arrays")
        w = np.empty((self.n, self.k), FLOAT32)
        to = data(w)
        with nogil:
            made = fo_qlinear_weights(self.narrow, to) if self.narrow != NULL else fo_linear_weights(self.plan, to)
        check(FO_OK if made else FO_NO_MEMORY)
        return narrowed(w, self.dtype), self.bias

    def _dtype(self):
        return self.dtype

    def _has_bias(self):
        return self.bias is not None

    def memory(self):
        """The bytes that the layer keeps of its weights, by the form in which it keeps them.

        Returns
        -------
        dict of str to int
            The weights are kept once: as panels of columns, few columns of many steps one after the other, or blocks
            of 4 or 8 bits.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.Linear(np.ones((64, 100), np.float32)).memory()
        {'panels': 25600}
        """
        if self.k == UNMADE:
            raise unmade(self)
        if self._kept is not None:
            return {"blocks": sum([a.nbytes for a in self._kept])}
        if self._lent is not None:
            return {}
        return {"panels": fo_qlinear_bytes(self.narrow) if self.narrow != NULL else fo_linear_bytes(self.plan)}

    def _pack_bits(self, Py_ssize_t n, Py_ssize_t k, int bits, Py_ssize_t block, ndarray q, ndarray scales,
                   ndarray zeros, ndarray bias, tuple activation, bint rounds=False):
        """Weights as fo_blockwise has them, which are kept and not copied: C-contiguous arrays (panels, words of a
        column, BITS_COLUMNS) of uint32 and float32. rounds: rows are rounded to int8, block by block."""
        cdef fo_blockwise w
        cdef Py_ssize_t each = 32 // bits if bits in (4, 8) else 1
        make_once(self, self.plan != NULL or self.narrow != NULL)
        if min(n, k, block) < 1 or max(n, k, block) > LARGEST or each == 1 or block % 8:
            raise ValueError(f"{n} x {k} weights of {bits} bits in blocks of {block}: fusedops takes 4 or 8 bits, in "
                             f"blocks of a multiple of 8")
        if rounds and block > BITS_BLOCK:
            raise ValueError(f"rows are rounded in blocks of up to {BITS_BLOCK}, not of {block}")
        w.bits, w.block, w.blocks = bits, block, (k + block - 1) // block
        for a, dtype, rows in ((q, np.uint32, w.blocks * block // each), (scales, np.float32, w.blocks),
                               (zeros, np.uint32, (w.blocks + each - 1) // each)):
            shape = (n + FO_BLOCKWISE_COLUMNS - 1) // FO_BLOCKWISE_COLUMNS, rows, BITS_COLUMNS
            if a.dtype != dtype or np.shape(a) != shape or not a.flags.c_contiguous or not a.flags.aligned:
                raise ValueError(f"packed weights of {bits} bits have shape {np.shape(a)} and dtype {a.dtype}, but "
                                 f"must have {shape} and {np.dtype(dtype)}")
        if bias is not None and (np.shape(bias) != (n,) or bias.dtype != np.float32 or not bias.flags.c_contiguous):
            raise ValueError(f"bias has shape {np.shape(bias)} and dtype {bias.dtype}, but must have {(n,)} and "
                             f"float32")
        w.q, w.zeros = <const uint32_t *>cnp.PyArray_DATA(q), <const uint32_t *>cnp.PyArray_DATA(zeros)
        w.scales = data(scales)
        if rounds:
            self._keep_narrow(fo_qlinear_create_bits(n, k, &w, data(bias), activation_of(activation)), n, k)
        else:
            self._keep(fo_linear_create_blockwise(n, k, &w, data(bias), activation_of(activation)), n, k)
        self._kept = q, scales, zeros

    cdef int _keep(self, fo_linear *plan, Py_ssize_t n, Py_ssize_t k) except -1:
        if plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")
        self.plan, self.n, self.k, self.isa = plan, n, k, fo_linear_isa(plan).decode()
        return 0

    cdef int _keep_narrow(self, fo_qlinear *plan, Py_ssize_t n, Py_ssize_t k) except -1:
        if plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")
        self.narrow, self.n, self.k, self.isa = plan, n, k, fo_qlinear_isa(plan).decode()
        return 0

    def __call__(self, x, residual=None, out=None):
        cdef ndarray a = as_float32(x, "x"), r = None, y
        cdef int nd = cnp.PyArray_NDIM(a), i
        cdef cnp.npy_intp dims[64]  # NumPy has no more
        cdef Py_ssize_t m, ldx, ldr = 0, ldy
        cdef bint columns
        cdef fo_status status
        if nd < 1 or cnp.PyArray_DIM(a, nd - 1) != self.k:
            if self.k == UNMADE:
                raise unmade(self)
            raise ValueError(f"x has shape {np.shape(a)}, but w has shape {(self.n, self.k)}: the last axis of x must "
                             f"have length {self.k}"
                             + (", or pass w.T" if nd and cnp.PyArray_DIM(a, nd - 1) == self.n else ""))
        for i in range(nd - 1):
            dims[i] = cnp.PyArray_DIM(a, i)
        dims[nd - 1] = self.n
        if residual is not None:
            r = as_float32(residual, "residual")
            if not same_shape(r, nd, dims):
                raise ValueError(f"residual has shape {np.shape(r)}, but the result has shape {shape_of(nd, dims)}")
        y = writable(out, nd, dims, a, r, self._lent)
        if y is None or not as_rows(y, &m, &ldy):
            y = new_result(nd, dims, data(a))
            as_rows(y, &m, &ldy)
        columns = self.narrow == NULL and not as_rows(a, &m, &ldx) and as_columns(a, &m, &ldx)
        if not columns and not as_rows(a, &m, &ldx):
            a = copied(a)
            as_rows(a, &m, &ldx)
        if r is not None and not as_rows(r, &m, &ldr):
            r = copied(r)
            as_rows(r, &m, &ldr)
        with nogil:
            if self.narrow != NULL:
                status = fo_qlinear_run(self.narrow, floats(), m, data(a), ldx, data(r), ldr, data(y), ldy)
            elif columns:
                status = fo_linear_run_columns(self.plan, m, data(a), ldx, data(r), ldr, data(y), ldy)
            else:
                status = fo_linear_run(self.plan, m, data(a), ldx, data(r), ldr, data(y), ldy)
        check(status)
        return delivered(y, out)


# ---- convolution ----------------------------------------------------------------------------------------------------

cdef bint as_image(ndarray a, bint nhwc, fo_image *image) noexcept:
    """Whether kernels can read a as it lies: strides of whole elements, and pixels or channels that are neighbours."""
    cdef int h = 1 if nhwc else 2, c = 3 if nhwc else 1, i
    cdef Py_ssize_t s[4]
    for i in range(4):
        s[i] = cnp.PyArray_STRIDE(a, i)
        if s[i] % 4:
            return False
        s[i] = 1 if cnp.PyArray_DIM(a, i) == 1 else s[i] // 4
    image.data = data(a)
    image.sn, image.sc, image.sh, image.sw = s[0], s[c], s[h], s[h + 1]
    return image.sc == 1 or image.sw == 1


# Multiply-adds up to which a call keeps the GIL: to give it away and take it back costs up to 0.09 us, 4 to 8 % of a
# call of half a microsecond to two, and nobody waits longer for it than for the interpreter's own switch.
cdef enum: SMALL = 1 << 18


cdef int possible(tuple shape, str name) except -1:
    """Refuses what no array can have, as NumPy does."""
    cdef object nbytes = 4
    for n in shape:
        nbytes *= n or 1
    if nbytes >= 2**63:
        raise ValueError(f"{name} has shape {shape}, which is more than an array can have")
    return 0


cdef class ImagePlan:
    """What makes images of images: the checks of a call, and its arrays. A subclass says the sizes and makes the C
    call."""
    cdef Py_ssize_t ic, oc
    cdef double work  # multiply-adds a pixel, of x or of the result, with a few more for each output's epilogue
    cdef bint nhwc
    # so little work that loads count as stores do: best where x and the result begin alike within a line
    cdef bint light

    def __cinit__(self):
        self.ic = UNMADE

    cdef int size(self, Py_ssize_t n, Py_ssize_t ih, Py_ssize_t iw, fo_conv2d_size *z) except -1:
        """Of a result as large as x."""
        z.n, z.ih, z.iw, z.top, z.left, z.oh, z.ow = n, ih, iw, 0, 0, ih, iw
        return 0

    cdef fo_status run(self, const fo_conv2d_size *z, const fo_image *x, const fo_image *residual,
                       const fo_image *y) noexcept nogil:
        return FO_OK

    cdef str weights(self):
        """What x has to fit, for the error."""
        return "the layer"

    cdef str other_weights(self, Py_ssize_t here, Py_ssize_t there):
        """What of the weights to change for an x of as many channels, `there` in the other layout, or None."""
        return None

    cdef object misfit(self, tuple shape):
        """The error for an x of a shape that does not fit, with what to do about it where that can be guessed."""
        if self.ic == UNMADE:
            return unmade(self)
        fixes = []
        if len(shape) in (3, 4):
            first, last = shape[len(shape) - 3], shape[len(shape) - 1]
            here, there = (last, first) if self.nhwc else (first, last)
            other = self.other_weights(here, there)
            if len(shape) == 3 and (other or self.ic in (here, there)):
                fixes.append("x[np.newaxis]")
            if other:
                fixes.append(other)
            elif self.ic == there and here != there:
                fixes.append(f"layout={'NCHW' if self.nhwc else 'NHWC'!r}")
        needed = f"(n, h, w, {self.ic})" if self.nhwc else f"(n, {self.ic}, h, w)"
        return ValueError(f"x has shape {shape}, but {self.weights()} needs {needed}"
                          + (f": pass {' and '.join(fixes)}" if fixes else ""))

    cdef int size_for(self, object shape, fo_conv2d_size *z) except -1:
        """The sizes for an x of a shape that a caller names."""
        cdef int c = 3 if self.nhwc else 1, h = 1 if self.nhwc else 2
        try:
            shape = tuple([PyNumber_Index(n) for n in shape])
        except TypeError:
            raise TypeError(f"the shape of x must be a tuple of ints, not {shape!r}") from None
        if len(shape) != 4 or shape[c] != self.ic or min(shape) < 0:
            raise self.misfit(shape)
        possible(shape, "x")
        self.size(shape[0], shape[h], shape[h + 1], z)
        return possible(self.result_shape(z), "the result")

    cdef tuple result_shape(self, const fo_conv2d_size *z):
        if self.nhwc:
            return z.n, z.oh, z.ow, self.oc
        return z.n, self.oc, z.oh, z.ow

    def output_shape(self, shape):
        """The shape of the result for an x of this shape.

        Parameters
        ----------
        shape : tuple of int
            Of x: (n, ic, ih, iw), or (n, ih, iw, ic) with ``layout="NHWC"``.

        Returns
        -------
        tuple of int

        Raises
        ------
        TypeError, ValueError
            No shape of four ints, other channels than the layer's, a kernel larger than the padded image.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.Conv2d(np.ones((8, 3, 3, 3), np.float32), stride=2).output_shape((1, 3, 32, 32))
        (1, 8, 15, 15)
        """
        cdef fo_conv2d_size z
        self.size_for(shape, &z)
        return self.result_shape(&z)

    def __call__(self, x, residual=None, out=None):
        cdef ndarray a = as_float32(x, "x"), r = None, y, same_order
        cdef int c = 3 if self.nhwc else 1, h = 1 if self.nhwc else 2
        cdef cnp.npy_intp dims[4]
        cdef fo_conv2d_size z
        cdef fo_image xi, ri, yi
        cdef fo_status status
        if cnp.PyArray_NDIM(a) != 4 or cnp.PyArray_DIM(a, c) != self.ic:
            raise self.misfit(np.shape(a))
        self.size(cnp.PyArray_DIM(a, 0), cnp.PyArray_DIM(a, h), cnp.PyArray_DIM(a, h + 1), &z)
        dims[0], dims[c], dims[h], dims[h + 1] = z.n, self.oc, z.oh, z.ow
        if residual is not None:
            r = as_float32(residual, "residual")
            if not same_shape(r, 4, dims):
                raise ValueError(f"residual has shape {np.shape(r)}, but the result has shape {shape_of(4, dims)}")
        if not as_image(a, self.nhwc, &xi):
            a = copied(a)
            as_image(a, self.nhwc, &xi)
        if r is not None and not as_image(r, self.nhwc, &ri):
            r = copied(r)
            as_image(r, self.nhwc, &ri)
        y = writable(out, 4, dims, a, r)
        if y is None or not as_image(y, self.nhwc, &yi):
            y = self.empty_like(a, dims, xi.sc == 1 and xi.sw != 1)
            as_image(y, self.nhwc, &yi)
        # read together with y, so in y's memory order
        if r is not None and not (ri.sc == 1 if yi.sc == 1 else ri.sw == 1):
            same_order = np.empty_like(y)
            same_order[...] = r
            r = same_order
            as_image(r, self.nhwc, &ri)
        if self.work * z.n * (<double>z.ih * z.iw + <double>z.oh * z.ow) <= SMALL:
            status = self.run(&z, &xi, NULL if r is None else &ri, &yi)
        else:
            with nogil:
                status = self.run(&z, &xi, NULL if r is None else &ri, &yi)
        check(status)
        return delivered(y, out)

    cdef ndarray empty_like(self, ndarray x, cnp.npy_intp *dims, bint nhwc_memory):
        """A new result in the memory order of x."""
        cdef cnp.npy_intp order[4]
        cdef fo_place place = FO_BEHIND_LIGHT if self.light else FO_BEHIND
        if self.nhwc or not nhwc_memory:
            return new_result(4, dims, data(x), place)
        order[0], order[1], order[2], order[3] = dims[0], dims[2], dims[3], dims[1]
        return new_result(4, order, data(x), place).transpose(0, 3, 1, 2)


cdef enum:
    LARGE_SIDE = 64  # pixels


cdef class WindowPlan(ImagePlan):
    """A convolution's sizes."""
    cdef fo_conv2d_shape shape
    cdef Py_ssize_t top, left, bottom, right
    cdef bint same

    cdef void describe(self, ndarray w, tuple activation, tuple stride, padding, tuple dilation, Py_ssize_t groups,
                       bint nhwc) noexcept:
        """w (oc, ic/groups, kh, kw); activation as parsed; padding ((top, bottom), (left, right)) or "same"."""
        cdef fo_conv2d_shape *s = &self.shape
        s.oc, s.ic = cnp.PyArray_DIM(w, 0), cnp.PyArray_DIM(w, 1) * groups
        s.kh, s.kw = cnp.PyArray_DIM(w, 2), cnp.PyArray_DIM(w, 3)
        s.groups = groups
        s.sh, s.sw = stride
        s.dh, s.dw = dilation
        s.act = activation_of(activation)
        s.algorithm, s.nhwc = 0, nhwc
        self.nhwc, self.same = nhwc, padding == "same"
        if not self.same:
            (self.top, self.bottom), (self.left, self.right) = padding

    cdef int size(self, Py_ssize_t n, Py_ssize_t ih, Py_ssize_t iw, fo_conv2d_size *z) except -1:
        cdef fo_conv2d_shape *s = &self.shape
        cdef Py_ssize_t eh = (s.kh - 1) * s.dh + 1, ew = (s.kw - 1) * s.dw + 1
        z.n, z.ih, z.iw, z.top, z.left = n, ih, iw, self.top, self.left
        if self.same:  # the output has ceil(input / stride) points; the odd zero goes behind
            z.oh, z.ow = (ih + s.sh - 1) // s.sh, (iw + s.sw - 1) // s.sw
            z.top, z.left = max((z.oh - 1) * s.sh + eh - ih, 0) // 2, max((z.ow - 1) * s.sw + ew - iw, 0) // 2
            return 0
        ih += self.top + self.bottom
        iw += self.left + self.right
        if ih < eh or iw < ew:
            raise ValueError(f"x padded is {ih} x {iw} pixels, smaller than the kernel of w, which spans {eh} x {ew} "
                             f"(dilation {s.dh}, {s.dw})")
        z.oh, z.ow = (ih - eh) // s.sh + 1, (iw - ew) // s.sw + 1
        return 0

    def _weights_shape(self):
        """w's shape."""
        cdef fo_conv2d_shape *s = &self.shape
        if self.ic == UNMADE:
            raise unmade(self)
        return s.oc, s.ic // s.groups, s.kh, s.kw

    cdef str weights(self):
        return f"w {self._weights_shape()} with groups={self.shape.groups}"

    cdef str other_weights(self, Py_ssize_t here, Py_ssize_t there):
        cdef fo_conv2d_shape *s = &self.shape
        cdef Py_ssize_t each = s.ic // s.groups
        if s.groups > 1:  # w has the channels of all groups
            if here != each:
                return None
            return (f"w of shape {(s.oc, each // s.groups, s.kh, s.kw)}, as each group reads its own channels, or "
                    f"groups=1" if each % s.groups == 0 else "groups=1")
        if s.oc == each and each != here == s.kh:
            return "w.transpose(3, 2, 0, 1), if w is (kh, kw, ic, oc)"
        if self.ic != there and each and here > each and here % each == 0 and s.oc % (here // each) == 0:
            return f"groups={here // each}"
        return None


cdef class Conv2dPlan(WindowPlan):
    """y = activation(conv(x, w) + bias + residual) with w packed once."""
    cdef fo_conv2d *plan
    cdef ndarray bias
    cdef object dtype  # of the weights
    cdef readonly str isa

    def __dealloc__(self):
        fo_conv2d_free(self.plan)

    def _pack(self, ndarray w, ndarray scale, ndarray bias, tuple activation, tuple stride, padding, tuple dilation,
              Py_ssize_t groups,
              bint nhwc, int algorithm, bint bfloat16=False):
        """w (oc, ic/groups, kh, kw) of float32 or float16, bias (oc,) and scale (oc,) of float64 or None, contiguous;
        padding ((top, bottom), (left, right)) or "same"; bfloat16: of products of that, whose weights are float32
        where they come back."""
        cdef fo_conv2d_shape *s = &self.shape
        cdef fo_conv2d *plan
        make_once(self, self.plan != NULL)
        self.describe(w, activation, stride, padding, dilation, groups, nhwc)
        s.algorithm = algorithm
        cdef fo_weights weights = weights_of(w)
        with nogil:
            if bfloat16:
                plan = fo_conv2d_create_bf16(s, &weights, doubles(scale), data(bias))
            else:
                plan = fo_conv2d_create(s, &weights, doubles(scale), data(bias))
        if plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")
        self.plan, self.isa = plan, fo_conv2d_isa(plan).decode()
        self.bias, self.dtype = None if bias is None else bias.copy(), FLOAT32 if bfloat16 else w.dtype
        self.ic, self.oc, self.work = s.ic, s.oc, <double>s.oc * (w.shape[1] * s.kh * s.kw + 8)
        self.light = w.shape[1] == 1 < groups

    def _weights(self):
        """w with the scale in it, and bias."""
        cdef ndarray w = np.empty(self._weights_shape(), self.dtype)
        with nogil:
            fo_conv2d_weights(self.plan, cnp.PyArray_DATA(w))
        return w, self.bias

    def memory(self):
        """The bytes that the layer keeps of its weights, by the form in which it keeps them.

        Returns
        -------
        dict of str to int
            "weights" are those that the layer was given; 1x1 kernels with ``layout="NHWC"`` keep panels of them alone,
            of which rows are made again where they are asked for. An algorithm that reads them in another order, or multiplies
            less often by sums of them, adds a form when the first image comes for which it is the fastest:
            Winograd's weights of a 3x3 kernel are 1.8 (2x2 pixels), 4 or 7.1 (6x6) times as many, for 2.25, 4 or 5.1
            times fewer multiplications.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> layer = fo.Conv2d(np.ones((8, 4, 3, 3), np.float32))
        >>> layer.memory()
        {'weights': 1152}
        """
        cdef int form = 0
        cdef const char *name
        cdef Py_ssize_t nbytes
        cdef dict kept = {}
        if self.plan == NULL:
            raise unmade(self)
        while (nbytes := fo_conv2d_memory(self.plan, form, &name)) >= 0:
            if nbytes:
                kept[name.decode()] = nbytes
            form += 1
        return kept

    def _dtype(self):
        return self.dtype

    def _has_bias(self):
        return self.bias is not None

    def kernel(self, shape, bint nhwc_memory=False):
        """The name of the kernel that serves an x of this shape, and the bytes of scratch memory that it takes.

        Parameters
        ----------
        shape : tuple of int
            Of x: (n, ic, ih, iw), or (n, ih, iw, ic) with ``layout="NHWC"``.
        nhwc_memory : bool
            An NCHW-shaped x has its channels last in memory.

        Returns
        -------
        name : str
        scratch : int

        Raises
        ------
        TypeError, ValueError
            As :meth:`output_shape`.
        MemoryError
            A call would need more than an image of 2^48 elements.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.Conv2d(np.ones((8, 1, 3, 3), np.float32), groups=8).kernel((1, 8, 32, 32))
        ('depthwise, columns as lanes', 0)
        """
        cdef fo_conv2d_size z
        cdef const char *name
        cdef Py_ssize_t scratch
        self.size_for(shape, &z)
        name = fo_conv2d_kernel(self.plan, &z, nhwc_memory or self.nhwc, &scratch)
        if name == NULL:
            check(FO_NO_MEMORY)
        return name.decode(), scratch

    def _algorithms(self):
        """The names of the algorithms that have a kernel for large images, best first."""
        cdef fo_conv2d_shape *s = &self.shape
        cdef fo_conv2d_size z
        cdef const char *names[FO_ALGORITHM_NAMES]
        self.size(1, max((s.kh - 1) * s.dh + 1, LARGE_SIDE), max((s.kw - 1) * s.dw + 1, LARGE_SIDE), &z)
        return [names[i].decode() for i in range(fo_conv2d_algorithms(self.plan, &z, names))]

    def _nanoseconds(self, tuple image, tuple result, Py_ssize_t top, Py_ssize_t left):
        """What an image (n, ih, iw) and a result (oh, ow), as a network's steps have them, are predicted to take in
        float32, in int8 and in bfloat16: only the ratios count."""
        cdef fo_conv2d_size z
        z.n, z.ih, z.iw = image
        z.oh, z.ow = result
        z.top, z.left = top, left
        return (fo_conv2d_nanoseconds(self.plan, &z), fo_qconv2d_nanoseconds(&self.shape, &z),
                fo_bf16_conv2d_nanoseconds(&self.shape, &z))

    def _pixel(self):
        """The floats from one pixel to the next that it reads fastest in an image whose channels are neighbours."""
        return fo_conv2d_pixel(self.plan)

    cdef bint pixelwise(self) noexcept:
        cdef fo_conv2d_shape *s = &self.shape
        return s.kh == s.kw == s.sh == s.sw == s.groups == 1 and (
            self.same or not (self.top or self.bottom or self.left or self.right))

    cdef fo_status run(self, const fo_conv2d_size *z, const fo_image *x, const fo_image *residual,
                       const fo_image *y) noexcept nogil:
        return fo_conv2d_run(self.plan, z, x, residual, y)


cdef class SeparablePlan(ImagePlan):
    """[1x1 expand ->] depthwise -> 1x1 pointwise as one pass; the parts keep their weights."""
    cdef Conv2dPlan expand, depthwise, pointwise

    def _join(self, Conv2dPlan expand, Conv2dPlan depthwise not None, Conv2dPlan pointwise not None):
        """The parts, or the error that says which of them does not fit; expand may be None."""
        cdef Conv2dPlan part
        make_once(self, self.depthwise is not None)
        for name, part in (("expand", expand), ("pointwise", pointwise)):
            if part is not None and not part.pixelwise():
                raise ValueError(f"{name} must be a 1x1 convolution with stride 1, no padding and groups=1, not "
                                 f"{part!r}")
        if not depthwise.shape.ic == depthwise.shape.oc == depthwise.shape.groups:
            raise ValueError(f"depthwise must have one filter for each channel: groups = input channels = output "
                             f"channels, not {depthwise!r}")
        if pointwise.ic != depthwise.oc or expand is not None and expand.oc != depthwise.ic:
            raise ValueError(f"the channels of the parts do not fit: {expand!r}, {depthwise!r}, {pointwise!r}")
        if pointwise.nhwc != depthwise.nhwc or expand is not None and expand.nhwc != depthwise.nhwc:
            raise ValueError(f"the parts must have one layout: {expand!r}, {depthwise!r}, {pointwise!r}")
        self.expand, self.depthwise, self.pointwise = expand, depthwise, pointwise
        self.ic = depthwise.ic if expand is None else expand.ic
        self.oc, self.nhwc = pointwise.oc, depthwise.nhwc
        self.work = depthwise.work + pointwise.work + (0 if expand is None else expand.work)

    cdef fo_separable block(self) noexcept nogil:
        cdef fo_separable b
        b.expand = NULL if self.expand is None else self.expand.plan
        b.depthwise, b.pointwise = self.depthwise.plan, self.pointwise.plan
        return b

    cdef int size(self, Py_ssize_t n, Py_ssize_t ih, Py_ssize_t iw, fo_conv2d_size *z) except -1:
        cdef fo_conv2d_size other
        if self.expand is not None:  # each part refuses the image that it would refuse by itself
            self.expand.size(n, ih, iw, &other)
        self.depthwise.size(n, ih, iw, z)
        return self.pointwise.size(n, z.oh, z.ow, &other)

    cdef fo_status run(self, const fo_conv2d_size *z, const fo_image *x, const fo_image *residual,
                       const fo_image *y) noexcept nogil:
        cdef fo_separable b = self.block()
        return fo_separable_run(&b, z, x, residual, y)

    cdef str weights(self):
        return (self.depthwise if self.expand is None else self.expand).weights()

    def fuses(self, shape):
        """Whether one pass is faster than the parts one after the other, for an x of this shape: what a block's call
        takes.

        Parameters
        ----------
        shape : tuple of int
            Of x: (n, c, ih, iw), or (n, ih, iw, c) where the parts have ``layout="NHWC"``.

        Returns
        -------
        bool

        Raises
        ------
        TypeError, ValueError
            No shape of four ints, other channels than the block's, a kernel larger than the padded image.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> depthwise = fo.Conv2d(np.ones((32, 1, 3, 3), np.float32), padding=1, groups=32, layout="NHWC")
        >>> block = fo.DepthwiseSeparable(depthwise, fo.Conv2d(np.ones((16, 32, 1, 1), np.float32), layout="NHWC"))
        >>> block.fuses((1, 224, 224, 32)), block.fuses((1, 7, 7, 32))
        (True, False)
        """
        cdef fo_conv2d_size z
        self.size_for(shape, &z)
        return self.pays(&z)

    cdef bint pays(self, const fo_conv2d_size *z) noexcept:
        """As fuses, for the sizes of the images in front of and behind the depthwise part, whatever its padding."""
        cdef fo_separable b = self.block()
        return fo_separable_pays(&b, z, self.nhwc)


cdef class BlockPlan(SeparablePlan):
    """One pass where that is faster, else the same parts one after the other, the images between them in scratch
    memory."""

    cdef fo_status run(self, const fo_conv2d_size *z, const fo_image *x, const fo_image *residual,
                       const fo_image *y) noexcept nogil:
        cdef fo_separable b = self.block()
        if fo_separable_pays(&b, z, self.nhwc):
            return fo_separable_run(&b, z, x, residual, y)
        return fo_separable_layers(&b, z, x, residual, y)


cdef class ResidualPlan(BlockPlan):
    """A block that may add its x."""
    cdef bint adds

    def _add(self, bint adds):
        """Whether x is added where it has the shape of the result."""
        self.adds = adds

    cdef bint keeps_shape(self, ndarray x) except -1:
        cdef int c = 3 if self.nhwc else 1, h = 1 if self.nhwc else 2
        cdef fo_conv2d_size z
        if self.ic != self.oc or cnp.PyArray_NDIM(x) != 4 or cnp.PyArray_DIM(x, c) != self.ic:
            return False
        self.size(cnp.PyArray_DIM(x, 0), cnp.PyArray_DIM(x, h), cnp.PyArray_DIM(x, h + 1), &z)
        return z.oh == z.ih and z.ow == z.iw

    def __call__(self, x, out=None):
        cdef ndarray a = as_float32(x, "x")
        return BlockPlan.__call__(self, a, a if self.adds and self.keeps_shape(a) else None, out)


# ---- recurrent cells ------------------------------------------------------------------------------------------------

cdef class CellPlan:
    """h' = cell(x, h) with all gates' weights packed once: an RNN or a GRU; :class:`LSTMCellPlan` has c as well."""
    cdef fo_cell *cell
    cdef fo_cell_shape shape
    cdef readonly str isa
    cdef tuple _lent  # what is read where it is

    def __cinit__(self):
        self.shape.inputs = UNMADE

    def __dealloc__(self):
        fo_cell_free(self.cell)

    def _pack(self, int kind, ndarray w_ih, ndarray w_hh, ndarray b_ih, ndarray b_hh, ndarray w_hr, ndarray peephole,
              tuple activations, bint reset_after, float clip, float cell_clip, bint bfloat16=False,
              tuple quantized=(None,) * 4, bint lend=False):
        """Arrays are contiguous, of the shapes in fusedops.h; activations as parsed: act, gate and out. quantized: the
        scales of int8 w_ih and w_hh, float32, and their zero points, int8. lend: for calls of few rows, which read
        float32 weights where they lie."""
        cdef fo_cell_shape s
        cdef fo_cell_weights w
        cdef fo_cell *cell
        cdef tuple act, gate, out
        make_once(self, self.cell != NULL)
        s.kind = <fo_cell_kind>kind
        s.inputs, s.outputs = w_ih.shape[1], w_hh.shape[1]
        s.hidden = s.outputs if w_hr is None else w_hr.shape[1]
        act, gate, out = activations
        s.act, s.gate, s.out = activation_of(act), activation_of(gate), activation_of(out)
        s.reset_after, s.clip, s.cell_clip, s.bfloat16 = reset_after, clip, cell_clip, bfloat16
        s.lends = lend
        self._lent = (w_ih, w_hh) if lend else None
        w.w_ih, w.w_hh, w.w_hr = weights_of(w_ih), weights_of(w_hh), weights_of(w_hr)
        w.b_ih, w.b_hh, w.peephole = data(b_ih), data(b_hh), data(peephole)
        w.ih_scale, w.hh_scale = data(quantized[0]), data(quantized[1])
        w.ih_zero, w.hh_zero = <const int8_t *>memory(quantized[2]), <const int8_t *>memory(quantized[3])
        with nogil:
            cell = fo_cell_create(&s, &w)
        if cell == NULL:
            raise MemoryError("fusedops: no memory for packed weights")
        self.cell, self.shape, self.isa = cell, s, get_isa()

    def _shapes(self):
        """Those of w_ih and w_hh."""
        cdef Py_ssize_t rows = (1, 4, 3)[<int>self.shape.kind] * self.shape.hidden
        if self.shape.inputs == UNMADE:
            raise unmade(self)
        return (rows, self.shape.inputs), (rows, self.shape.outputs)

    def _weights(self, dtype):
        """w_ih and w_hh again, of their dtype."""
        cdef ndarray w_ih, w_hh
        w_ih, w_hh = [np.empty(shape, dtype) for shape in self._shapes()]
        with nogil:
            fo_cell_weights_again(self.cell, cnp.PyArray_DATA(w_ih), cnp.PyArray_DATA(w_hh))
        return w_ih, w_hh

    cdef ndarray rows(self, object given, str name, ndarray x, Py_ssize_t width, Py_ssize_t *ld):
        """An x (x None), or a state of as many rows as x."""
        cdef ndarray a = as_float32(given, name)
        cdef int nd = cnp.PyArray_NDIM(a)
        cdef Py_ssize_t m
        if nd < 1 or nd > 2 or cnp.PyArray_DIM(a, nd - 1) != width or x is not None and (
                nd != cnp.PyArray_NDIM(x) or nd == 2 and cnp.PyArray_DIM(a, 0) != cnp.PyArray_DIM(x, 0)):
            if width == UNMADE:
                raise unmade(self)
            if x is None:
                raise ValueError(f"x has shape {np.shape(a)}, but w_ih has shape "
                                 f"{((1, 4, 3)[<int>self.shape.kind] * self.shape.hidden, width)}: "
                                 f"x must be (batch, {width}) or ({width},)")
            raise ValueError(f"{name} has shape {np.shape(a)}, but x has shape {np.shape(x)}: {name} must have shape "
                             f"{(*np.shape(x)[:cnp.PyArray_NDIM(x) - 1], width)}")
        if not as_rows(a, &m, ld):
            a = copied(a)
            as_rows(a, &m, ld)
        return a

    cdef ndarray result(self, object out, ndarray x, ndarray h, ndarray c, Py_ssize_t width, Py_ssize_t *ld):
        """Where a new state goes: the caller's array where the kernel can write there, else a new one."""
        cdef cnp.npy_intp dims[2]
        cdef int nd = cnp.PyArray_NDIM(x)
        cdef Py_ssize_t m
        cdef ndarray y
        dims[0], dims[nd - 1] = cnp.PyArray_DIM(x, 0), width
        y = writable(out, nd, dims, x, h, c)
        if y is None or self._lent is not None or not as_rows(y, &m, ld):  # an out may be a part of lent weights
            y = new_result(nd, dims)
            as_rows(y, &m, ld)
        return y

    cdef int run(self, ndarray x, fo_cell_io *io) except -1:
        cdef fo_status status
        cdef Py_ssize_t m = cnp.PyArray_DIM(x, 0) if cnp.PyArray_NDIM(x) == 2 else 1
        with nogil:
            status = fo_cell_run(self.cell, m, io)
        return check(status)

    def __call__(self, x, h, out=None):
        cdef fo_cell_io io
        cdef ndarray xs = self.rows(x, "x", None, self.shape.inputs, &io.ldx)
        cdef ndarray hs = self.rows(h, "h", xs, self.shape.outputs, &io.ldh)
        cdef ndarray y = self.result(out, xs, hs, None, self.shape.outputs, &io.ldho)
        io.x, io.h, io.h_out = data(xs), data(hs), data(y)
        self.run(xs, &io)
        return delivered(y, out)


cdef class LSTMCellPlan(CellPlan):
    """(h', c') = cell(x, h, c) with all gates' weights packed once."""
    def __call__(self, x, h, c, out=None):
        cdef fo_cell_io io
        cdef ndarray xs = self.rows(x, "x", None, self.shape.inputs, &io.ldx)
        cdef ndarray hs = self.rows(h, "h", xs, self.shape.outputs, &io.ldh)
        cdef ndarray cs = self.rows(c, "c", xs, self.shape.hidden, &io.ldc)
        cdef ndarray y, cy
        h_out, c_out = (None, None) if out is None else as_pair(out, "out")
        if out is not None and (h_out is None or c_out is None):
            raise TypeError("out must be a pair of arrays (h, c), not None in the place of one")
        y = self.result(h_out, xs, hs, cs, self.shape.outputs, &io.ldho)
        cy = self.result(c_out, xs, hs, cs, self.shape.hidden, &io.ldco)
        if out is not None:
            disjoint(h_out, c_out)
        io.x, io.h, io.c, io.h_out, io.c_out = data(xs), data(hs), data(cs), data(y), data(cy)
        self.run(xs, &io)
        return delivered(y, h_out), delivered(cy, c_out)


# ---- sequences ------------------------------------------------------------------------------------------------------

cdef bint as_steps(ndarray a, bint batch_first, Py_ssize_t *t, Py_ssize_t *b) noexcept:
    """Whether kernels can read a as it lies, and its strides over steps and rows of the batch."""
    cdef bint unbatched = cnp.PyArray_NDIM(a) == 2
    t[0] = cnp.PyArray_STRIDE(a, 1 if batch_first and not unbatched else 0)
    b[0] = 0 if unbatched else cnp.PyArray_STRIDE(a, 0 if batch_first else 1)
    if cnp.PyArray_SIZE(a) == 0:
        return True
    cdef int last = cnp.PyArray_NDIM(a) - 1
    if t[0] % 4 or b[0] % 4 or cnp.PyArray_DIM(a, last) > 1 and cnp.PyArray_STRIDE(a, last) != 4:
        return False
    t[0] //= 4
    b[0] //= 4
    return True


cdef class SequencePlan:
    """Layers of recurrent cells over a sequence; the weights are packed in the cells."""
    cdef readonly tuple cells  # layers x directions
    cdef ndarray pointers
    cdef fo_sequence sequence  # what is the same for all calls
    cdef Py_ssize_t inputs, hidden, outputs
    cdef bint lstm, batch_first

    def __cinit__(self):
        self.inputs = UNMADE

    def _stack(self, tuple cells, int layers, int directions, bint reverse, bint batch_first):
        cdef CellPlan cell
        cdef Py_ssize_t i
        make_once(self, self.cells is not None)
        self.pointers = np.empty(len(cells), np.uintp)
        for i in range(len(cells)):
            cell = cells[i]
            (<const fo_cell **>cnp.PyArray_DATA(self.pointers))[i] = cell.cell
        cell = cells[0]
        self.inputs, self.hidden, self.outputs = cell.shape.inputs, cell.shape.hidden, cell.shape.outputs
        self.lstm, self.batch_first, self.cells = cell.shape.kind == FO_LSTM, batch_first, cells
        self.sequence.cells = <const fo_cell *const *>cnp.PyArray_DATA(self.pointers)
        self.sequence.layers, self.sequence.directions, self.sequence.reverse = layers, directions, reverse

    cdef tuple state_shape(self, bint unbatched, Py_ssize_t batch, Py_ssize_t width):
        cdef Py_ssize_t n = self.sequence.layers * self.sequence.directions
        if unbatched:
            return n, width
        return n, batch, width

    cdef ndarray state_array(self, object given, str name, tuple shape):
        """An initial state, contiguous."""
        cdef ndarray a = as_float32(given, name)
        if np.shape(a) != shape:
            raise ValueError(f"{name} has shape {np.shape(a)}, but must have shape {shape} (layers * directions, "
                             f"batch, width), as x has its rows")
        return contiguous(a)

    def __call__(self, x, state=None, lengths=None, out=None):
        cdef fo_sequence s = self.sequence
        cdef ndarray a = as_float32(x, "x"), h0 = None, c0 = None, hn, cn = None, n = None, y
        cdef cnp.npy_intp dims[3]
        cdef bint unbatched = cnp.PyArray_NDIM(a) == 2
        cdef tuple h_shape, c_shape
        cdef fo_status status
        if cnp.PyArray_NDIM(a) not in (2, 3) or cnp.PyArray_DIM(a, cnp.PyArray_NDIM(a) - 1) != self.inputs:
            if self.inputs == UNMADE:
                raise unmade(self)
            order = "batch, steps" if self.batch_first else "steps, batch"
            raise ValueError(f"x has shape {np.shape(a)}, but w_ih has {self.inputs} columns: x must be ({order}, "
                             f"{self.inputs}) or (steps, {self.inputs})")
        s.steps = cnp.PyArray_DIM(a, 1 if self.batch_first and not unbatched else 0)
        s.batch = 1 if unbatched else cnp.PyArray_DIM(a, 0 if self.batch_first else 1)
        h_shape = self.state_shape(unbatched, s.batch, self.outputs)
        c_shape = self.state_shape(unbatched, s.batch, self.hidden)
        if state is not None:
            if self.lstm:
                h, c = as_pair(state, "state")
                h0, c0 = self.state_array(h, "h", h_shape), self.state_array(c, "c", c_shape)
            else:
                h0 = self.state_array(state, "h", h_shape)
        if lengths is not None:
            n = as_lengths(lengths, s.steps, s.batch)
        if not as_steps(a, self.batch_first, &s.xt, &s.xb):
            a = copied(a)
            as_steps(a, self.batch_first, &s.xt, &s.xb)
        dims[0], dims[1] = cnp.PyArray_DIM(a, 0), cnp.PyArray_DIM(a, 1)
        dims[1 if unbatched else 2] = s.directions * self.outputs
        y = writable(out, cnp.PyArray_NDIM(a), dims, a, h0, c0)
        if y is None or not as_steps(y, self.batch_first, &s.yt, &s.yb):
            y = new_result(cnp.PyArray_NDIM(a), dims)
            as_steps(y, self.batch_first, &s.yt, &s.yb)
        hn = np.empty(h_shape, np.float32)
        if self.lstm:
            cn = np.empty(c_shape, np.float32)
        s.x, s.h0, s.c0, s.hn, s.cn, s.y = data(a), data(h0), data(c0), data(hn), data(cn), data(y)
        s.lengths = NULL
        if n is not None:
            s.lengths = <const int64_t *>cnp.PyArray_DATA(n)
        with nogil:
            status = fo_sequence_run(&s)
        check(status)
        return delivered(y, out), (hn, cn) if self.lstm else hn


cdef class Stream:
    """A sequence taken step by step, or chunk by chunk: the state stays here between calls. Made by
    ``layer.stream(batch)``; for one thread at a time.

    The outputs have the same bits as those of the whole sequence at once. A copy, also by way of pickle, has a state of
    its own.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> stream = fo.RNN(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), activation="relu").stream()
    >>> stream.step(np.float32([1, 2]))
    array([1., 2.], dtype=float32)
    >>> kept = stream.state
    >>> stream.step(np.float32([1, 2]))
    array([2., 4.], dtype=float32)
    >>> stream.state = kept  # (layers, batch, hidden): back by one step
    >>> stream.reset()  # zeros
    >>> stream.state
    array([[[0., 0.]]], dtype=float32)
    """
    cdef SequencePlan layer
    cdef fo_sequence sequence
    cdef ndarray h, c

    def __cinit__(self, SequencePlan layer not None, Py_ssize_t batch):
        cdef Py_ssize_t n = layer.sequence.layers
        self.layer, self.sequence = layer, layer.sequence
        self.h = np.zeros((n, batch, layer.outputs), np.float32)
        self.c = np.zeros((n, batch, layer.hidden), np.float32) if layer.lstm else None
        self.sequence.steps, self.sequence.batch = 1, batch
        self.sequence.h0 = self.sequence.hn = data(self.h)
        self.sequence.c0 = self.sequence.cn = data(self.c)

    def step(self, x, out=None):
        """y of the next step, or of the steps of a chunk, with the bits that it has in the whole sequence.

        Parameters
        ----------
        x : ndarray, float32, (batch, inputs), or a chunk (steps, batch, inputs)
            With batch_first a chunk is (batch, steps, inputs); a batch of one may also be (inputs,), (steps, inputs).
        out : ndarray, float32, of y's shape, optional
            Any strides; it may overlap x.

        Returns
        -------
        ndarray, float32, of x's shape but for the outputs in place of the inputs
            `out` where it is given.

        Raises
        ------
        TypeError, ValueError
            Not float32, or a shape that does not fit; the state stays as it was.
        """
        cdef ndarray a = as_float32(x, "x"), y
        cdef int nd = cnp.PyArray_NDIM(a)
        cdef cnp.npy_intp dims[3]
        cdef bint first = self.layer.batch_first
        cdef fo_sequence s = self.sequence  # a copy: another thread's step must not find these arrays in it
        cdef fo_status status
        if not self.fits(a):
            chunk = f"({s.batch}, steps, {self.layer.inputs})" if first else f"(steps, {s.batch}, {self.layer.inputs})"
            raise ValueError(f"x has shape {np.shape(a)}, but this stream's steps have shape "
                             f"{(s.batch, self.layer.inputs)}, chunks of them {chunk}")
        if not self.lies(a, &s.xt, &s.xb, &s.steps):
            a = copied(a)
            self.lies(a, &s.xt, &s.xb, &s.steps)
        for d in range(nd - 1):
            dims[d] = cnp.PyArray_DIM(a, d)
        dims[nd - 1] = self.layer.outputs
        y = writable(out, nd, dims, a)
        if y is None or not self.lies(y, &s.yt, &s.yb, &s.steps):
            y = new_result(nd, dims)
            self.lies(y, &s.yt, &s.yb, &s.steps)
        s.x, s.y = data(a), data(y)
        with nogil:
            status = fo_sequence_run(&s)
        check(status)
        return delivered(y, out)

    cdef bint fits(self, ndarray a) noexcept:
        """Whether these are steps of this stream."""
        cdef int nd = cnp.PyArray_NDIM(a)
        cdef Py_ssize_t batch = self.sequence.batch
        if nd < 1 or nd > 3 or cnp.PyArray_DIM(a, nd - 1) != self.layer.inputs:
            return False
        if nd == 3:
            return cnp.PyArray_DIM(a, 0 if self.layer.batch_first else 1) == batch
        return batch == 1 or nd == 2 and cnp.PyArray_DIM(a, 0) == batch

    cdef bint lies(self, ndarray a, Py_ssize_t *t, Py_ssize_t *b, Py_ssize_t *steps) noexcept:
        """Whether kernels can read x or write y as it lies, its strides over steps and rows, and how many steps it
        has."""
        cdef Py_ssize_t rows
        cdef bint chunk = cnp.PyArray_NDIM(a) == 3 or cnp.PyArray_NDIM(a) == 2 and self.sequence.batch == 1
        t[0], steps[0] = 0, 1
        if not chunk:
            return as_rows(a, &rows, b)
        steps[0] = cnp.PyArray_DIM(a, 1 if self.layer.batch_first and cnp.PyArray_NDIM(a) == 3 else 0)
        return as_steps(a, self.layer.batch_first, t, b)

    def reset(self):
        """Back to a state of zeros."""
        self.h.fill(0)
        if self.c is not None:
            self.c.fill(0)

    def __repr__(self):
        return f"Stream(batch={self.sequence.batch}, {self.layer!r})"

    def __reduce__(self):
        return Stream, (self.layer, self.sequence.batch), self.state

    def __setstate__(self, state):
        self.state = state

    @property
    def state(self):
        """A copy of h, or of (h, c) for an LSTM, each (layers, batch, width); assign to it to set it."""
        return self.h.copy() if self.c is None else (self.h.copy(), self.c.copy())

    @state.setter
    def state(self, value):
        if self.c is None:
            self.h[...] = self.layer.state_array(value, "h", np.shape(self.h))
            return
        h, c = as_pair(value, "state")
        h, c = self.layer.state_array(h, "h", np.shape(self.h)), self.layer.state_array(c, "c", np.shape(self.c))
        self.h[...] = h
        self.c[...] = c


# ---- weights and passes ---------------------------------------------------------------------------------------------

cdef ndarray vector(object a, str name, Py_ssize_t channels):
    """A parameter of each output channel, contiguous."""
    cdef ndarray v
    if a is None:
        return None
    v = as_float32(a, name)
    if cnp.PyArray_NDIM(v) != 1 or cnp.PyArray_DIM(v, 0) != channels:
        raise ValueError(f"{name} has shape {np.shape(v)}, but there are {channels} output channels: it must have "
                         f"shape ({channels},)")
    return contiguous(v)


def batch_norm_scale(gamma, beta, mean, var, double eps, Py_ssize_t channels):
    """scale and shift in float64 of a batch norm, or the error that says what is wrong; None where some var + eps is
    not positive."""
    cdef cnp.npy_intp n = channels
    cdef ndarray g = vector(gamma, "bn.gamma", n), b = vector(beta, "bn.beta", n)
    cdef ndarray m = vector(mean, "bn.mean", n), v = vector(var, "bn.var", n)
    cdef ndarray scale = cnp.PyArray_EMPTY(1, &n, cnp.NPY_FLOAT64, 0)
    cdef ndarray shift = cnp.PyArray_EMPTY(1, &n, cnp.NPY_FLOAT64, 0)
    if fo_batch_norm_scale(n, data(g), data(b), data(m), data(v), eps, doubles(scale), doubles(shift)):
        return scale, shift


def fold_bias(bias, ndarray scale, ndarray shift):
    """bias * scale + shift in float64, rounded once. scale and shift float64, contiguous; bias may be None."""
    cdef cnp.npy_intp n = cnp.PyArray_DIM(scale, 0)
    cdef ndarray given = vector(bias, "bias", n), folded = cnp.PyArray_EMPTY(1, &n, cnp.NPY_FLOAT32, 0)
    fo_fold_bias(n, data(given), doubles(scale), doubles(shift), data(folded))
    return folded


def fold_scale(ndarray w, ndarray scale):
    """w[o] * scale[o] in float64, rounded once. w float32 and scale float64, both contiguous."""
    cdef ndarray folded = np.empty_like(w)
    cdef Py_ssize_t m = w.shape[0], n = w.size // m if m else 0
    with nogil:
        fo_fold_scale(m, n, data(w), doubles(scale), data(folded))
    return folded


def as_input(x, str name, ndim=None):
    """x as a float32 array of ndim axes (an int or a tuple of ints), or the error that says what is wrong."""
    return with_axes(as_float32(x, name), name, ndim)


cdef object with_axes(object a, str name, object ndim):
    if ndim is not None and a.ndim not in ((ndim,) if isinstance(ndim, int) else ndim):
        raise ValueError(f"{name} has shape {a.shape}, but must have "
                         f"{ndim if isinstance(ndim, int) else ' or '.join(map(str, ndim))} axes")
    return a


def is_bfloat16(dtype):
    """Whether a dtype is bfloat16 by its name, as that of ml_dtypes; or its bits, a number or a field of that name."""
    return dtype.itemsize == 2 and dtype.isnative and "bfloat16" in str(dtype)  # the name is slow to get


cdef narrowed(ndarray w, dtype):
    """float32 weights as a type that has all of their values."""
    if not is_bfloat16(dtype):
        return w.astype(dtype, copy=False)
    return (w.view(np.uint32) >> 16).astype(np.uint16).view(dtype)


def as_weights(w, str name, ndim=None, str order="C", bint bfloat16=False):
    """A copy of weights that are float32 or float16, or bfloat16 where that is taken; or the error that says what is
    wrong. order None: as they are, no copy."""
    if isinstance(w, (int, np.integer)):
        raise TypeError(f"{name} must be an array of weights, not {w}: layers are made from weights, not from sizes")
    cdef object a = w if ready(w) else as_array(w, name)
    if not (bfloat16 and is_bfloat16(a.dtype)) and a.dtype != np.float16:
        a = as_input(w, name, ndim)
        return a if order is None else a.copy(order)
    a = with_axes(a, name, ndim)
    plain = a.flags.aligned and not any([stride % a.itemsize for stride in a.strides])
    return a if order is None and plain else a.copy(order or "C")


def widened(a, str name, ndarray w):
    """A vector that goes with weights w, as float32: it may be of their type. None stays."""
    if a is None or cnp.PyArray_TYPE(w) == cnp.NPY_FLOAT32:
        return a
    b = as_array(a, name)
    if b.dtype != (<object>w).dtype:
        return a
    if b.dtype == np.float16:
        return b.astype(np.float32)
    return (np.ascontiguousarray(b).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


cdef inline Py_ssize_t row_stride(ndarray a) noexcept:
    return 0 if a is None else cnp.PyArray_STRIDE(a, 0) // 4


def pointwise(ndarray x, ndarray y, *, Py_ssize_t channel_rows=0, ndarray factor=None, ndarray scale=None,
              ndarray shift=None,
              ndarray residual=None, tuple activation=(0, 0.0, 0.0, None)):
    """y = activation(x * factor * scale + shift + residual) as one pass over (m, n) matrices with contiguous rows; y
    may be x."""
    cdef fo_pointwise_args g
    g.m, g.n = x.shape[0], x.shape[1]
    g.x, g.factor, g.residual, g.y = data(x), data(factor), data(residual), data(y)
    g.ldx, g.ldf, g.ldr, g.ldy = row_stride(x), row_stride(factor), row_stride(residual), row_stride(y)
    g.scale, g.shift = data(scale), data(shift)
    g.channel_rows = channel_rows
    g.act = activation_of(activation)
    with nogil:
        fo_pointwise(&g)


def sampled(ndarray x, ndarray at, ndarray w):
    """(points, c): row p is the sum over t of w[t, p] times row at[t, p] of x; x (rows, c) and w (taps, points) are
    float32, `at` int64, all contiguous."""
    cdef fo_sample_args g
    cdef Py_ssize_t i, size = at.size, rows = x.shape[0]
    cdef const int64_t *places = <const int64_t *>cnp.PyArray_DATA(at)
    cdef bint inside = True
    for i in range(size):
        inside &= 0 <= places[i] < rows
    if not inside:
        raise IndexError(f"places from {at.min()} to {at.max()} are not all among {rows} rows")
    cdef ndarray y = np.empty((at.shape[1], x.shape[1]), np.float32)
    g.taps, g.points, g.c = at.shape[0], at.shape[1], x.shape[1]
    g.ldx = g.ldy = g.c
    g.x, g.w, g.at, g.y = data(x), data(w), places, data(y)
    with nogil:
        fo_sample(&g)
    return y


def suppressed(boxes, scores, Py_ssize_t most, float overlap, least, bint centred):
    """Rows (batch, class, box) of boxes (batch, count, 4) that no better one of their class overlaps by more than
    `overlap`; scores (batch, classes, count), above `least` unless that is None."""
    cdef ndarray box = np.ascontiguousarray(as_float32(boxes, "boxes"))
    cdef ndarray score = np.ascontiguousarray(as_float32(scores, "scores"))
    cdef fo_suppress_args a
    cdef Py_ssize_t found = 0
    cdef fo_status status
    a.batch, a.classes, a.boxes, a.most = score.shape[0], score.shape[1], score.shape[2], max(most, 0)
    cdef ndarray counts = np.empty(a.batch * a.classes, np.intp)
    cdef ndarray kept = np.empty(a.batch * a.classes * min(a.most, a.boxes), np.uint32)
    a.box, a.score, a.centred, a.limited = data(box), data(score), centred, least is not None
    a.overlap, a.least = overlap, 0 if least is None else least
    a.counts, a.kept = <Py_ssize_t *>cnp.PyArray_DATA(counts), <uint32_t *>cnp.PyArray_DATA(kept)
    with nogil:
        status = fo_suppress(&a, &found)
    check(status)
    cdef ndarray rows = np.empty((found, 3), np.int64)
    if found:
        fo_suppressed(&a, <int64_t *>cnp.PyArray_DATA(rows))
    return rows


# ---- networks -------------------------------------------------------------------------------------------------------

include "program.pxi"
include "template.pxi"


# ---- what surrounds the products -------------------------------------------------------------------------------------

include "_functions.pxi"
include "_arrays.pxi"


# ---- int8 -----------------------------------------------------------------------------------------------------

include "_quantized.pxi"
