# How arrays that a caller gives lie in memory, and what is wrong with them. Included by _core.pyx.

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
    # xarray's arrays have the method too; it gives None where they hold NumPy's
    if hasattr(x, "__dask_graph__") and x.__dask_graph__() is not None:
        raise TypeError(f"{name} is a Dask array, and the call would compute all of it into this memory: write "
                        f"{name}.map_blocks(f, dtype=np.float32), where f is this function of a block, layer or model; "
                        f"where it changes shapes, with chunks= those of the result and drop_axis= the axes that it "
                        f"lacks; or pass {name}.compute()")
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
        narrow = dtype == BFLOAT16
        y = new_result(<int>len(shape), sizes, NULL, FO_AFTER, cnp.NPY_UINT16 if narrow else dtype.num)
        arrays.append(y.view(BFLOAT16) if narrow else y)
    return arrays


cpdef str conversion(object x, str name, object kind=FLOAT32):
    """How to convert x, for an error."""
    if kind == BFLOAT16:
        return f"{name}.astype(ml_dtypes.bfloat16)"
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
        raise ValueError("an index is outside its axis")  # of a step: Program.run says more
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
