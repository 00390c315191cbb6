# Tensors of int8; included by _core.pyx.

cdef object BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
TYPES = {dtype: DTYPES[dtype.name] for dtype in (FLOAT32, *BYTES)}  # that layers of int8 have
TYPES[BFLOAT16] = DTYPES["bfloat16"]


def has_dot_product():
    """Whether kernels of int8 have a dot product."""
    return fo_has_dot_product()


def has_amx():
    """Whether kernels of int8 and bfloat16 have tiles."""
    return fo_multiplies_by_amx()


def has_bfloat16():
    """Whether the set in use has a dot product of bfloat16."""
    return fo_has_bf16()


Q_STEPS, Q_STEPS_OF_ZEROS = FO_Q_STEPS, FO_Q_STEPS_OF_ZEROS


def linear_nanoseconds(Py_ssize_t m, Py_ssize_t n, Py_ssize_t k):
    """What a product is predicted to take, in float32, in int8 and in bfloat16: only the ratios count."""
    return (fo_linear_nanoseconds(FO_F32, m, n, k), fo_linear_nanoseconds(FO_S8, m, n, k),
            fo_linear_nanoseconds(FO_BF16, m, n, k))


def convert_nanoseconds(Py_ssize_t elements):
    """What so many elements are predicted to take on the way between float32 and bytes."""
    return fo_convert_nanoseconds(FO_S8, elements)


def bfloat16_nanoseconds(Py_ssize_t elements):
    """The same between float32 and bfloat16."""
    return fo_convert_nanoseconds(FO_BF16, elements)


cdef fo_dtype type_of(ndarray a) noexcept:
    if a is None or cnp.PyArray_TYPE(a) == cnp.NPY_FLOAT32:
        return FO_F32
    return FO_U8 if cnp.PyArray_TYPE(a) == cnp.NPY_UINT8 else FO_S8


def as_bytes(x, str name, str why):
    """x as an array of uint8 or int8, of any strides; why: what takes bytes, for the error."""
    a = as_array(x, name)
    if a.dtype not in BYTES:
        raise TypeError(f"{name} has dtype {a.dtype}, but {why} takes uint8 or int8"
                        + (f": pass fo.quantize({name}, q)" if a.dtype == np.float32 else ""))
    return a


cdef inline bint is_bytes(object x) noexcept:
    """Whether x is an array of bytes already; what is not is looked at closely."""
    return cnp.PyArray_CheckExact(x) and cnp.PyArray_TYPE(<ndarray>x) in (cnp.NPY_UINT8, cnp.NPY_INT8)


def fits(int zero_point, str name, dtype):
    """Refuses a zero point that the type does not have."""
    info = np.iinfo(dtype)
    if not info.min <= zero_point <= info.max:
        raise ValueError(f"{name}.zero_point is {zero_point}, but {dtype} has {info.min}..{info.max}: "
                         f"use {'int8' if dtype == np.uint8 else 'uint8'} or another zero point")


cdef inline int fits_in(ndarray a, int zero_point, str name) except -1:
    """The same for a's type, at once where both have it."""
    if not 0 <= zero_point <= 127:
        fits(zero_point, name, (<object>a).dtype)
    return 0


def checked_byte_out(object out, tuple shape, tuple dtypes):
    """out, if it can take a result of this shape and one of these dtypes, or the error that says why not."""
    plain = isinstance(out, np.ndarray) and not isinstance(out, np.ma.MaskedArray)
    if plain and out.dtype in dtypes and out.dtype.isnative:
        if out.shape != shape:
            raise ValueError(f"out has shape {out.shape}, but the result has shape {shape}")
        if not out.flags.writeable:
            raise ValueError("out is read-only")
        return out
    if plain:
        raise TypeError(f"out has dtype {out.dtype}, but results are {' or '.join(map(str, dtypes))}: "
                        f"make it with np.empty({shape}, np.{dtypes[0]})")
    return checked_out(out, shape)


def convert(ndarray x, ndarray scale, ndarray zero_point, ndarray y):
    """quantize or dequantize, as x is float32 or bytes: y of x's shape.

    scale float32 and zero_point int32, one a row of x's first axis, or one.
    """
    cdef Py_ssize_t rows = scale.size, n = x.size // rows if rows else 0
    cdef const float *s = data(scale)
    cdef const int32_t *z = <const int32_t *>cnp.PyArray_DATA(zero_point)
    cdef void *xs
    cdef void *ys
    cdef fo_dtype to = type_of(y), of = type_of(x)
    cdef ndarray xc = contiguous(x), target = y
    if not cnp.PyArray_IS_C_CONTIGUOUS(y) or overlap(y, xc):
        y = cnp.PyArray_EMPTY(cnp.PyArray_NDIM(y), cnp.PyArray_DIMS(y), cnp.PyArray_TYPE(y), 0)
    xs, ys = cnp.PyArray_DATA(xc), cnp.PyArray_DATA(y)
    with nogil:
        if to == FO_F32:
            fo_dequantize(rows, n, xs, s, z, of, <float *>ys)
        else:
            fo_quantize(rows, n, <const float *>xs, s, z, to, ys)
    return delivered(y, None if target is y else target)


cdef fo_quantization quantization_of(object q) noexcept:
    """A (scale, zero_point) of numbers; None: floats."""
    cdef fo_quantization c
    c.scale, c.zero_point = (0, 0) if q is None else (q[0], q[1])
    return c


cdef ndarray qrows(ndarray a, Py_ssize_t *ld):
    """a as rows of its elements' size, contiguous each, and the elements from one to the next."""
    cdef Py_ssize_t m
    cdef Py_ssize_t size = cnp.PyArray_ITEMSIZE(a)
    cdef int nd = cnp.PyArray_NDIM(a)
    if not cnp.PyArray_IS_C_CONTIGUOUS(a) and not (nd == 2 and cnp.PyArray_STRIDE(a, 1) == size
                                                  and cnp.PyArray_STRIDE(a, 0) > 0
                                                  and cnp.PyArray_STRIDE(a, 0) % size == 0):
        a = copied(a)
    ld[0] = cnp.PyArray_STRIDE(a, 0) // size if nd == 2 else cnp.PyArray_DIM(a, nd - 1)
    return a


cdef ndarray qinput(object x, tuple x_q):
    """x as an array of the type that a layer takes: bytes, or float32 without x_q."""
    cdef ndarray a
    if x_q is None:
        return as_float32(x, "x")
    a = <ndarray>x if is_bytes(x) else as_bytes(x, "x", "a layer with x_q")
    fits_in(a, x_q[1], "x_q")
    return a


cdef ndarray qresidual(object residual, tuple residual_q, tuple shape):
    """The residual, checked."""
    cdef ndarray r
    if residual is None:
        return None
    if residual_q is None:
        r = as_float32(residual, "residual")
    else:
        r = as_bytes(residual, "residual", "a layer with residual_q")
        fits_in(r, residual_q[1], "residual_q")
    if (<object>r).shape != shape:
        raise ValueError(f"residual has shape {np.shape(r)}, but the result has shape {shape}")
    return r


cdef object byte_dtype(object out, tuple shape, tuple y_q, ndarray x):
    """The type of a new result: float32 without y_q, else out's, or that of x. Checks out, where there is one."""
    if out is not None:
        if not (y_q is not None and is_bytes(out) and cnp.PyArray_ISWRITEABLE(<ndarray>out)
                and (<object>out).shape == shape):
            checked_byte_out(out, shape, (FLOAT32,) if y_q is None else BYTES)
        if y_q is not None:
            fits_in(<ndarray>out, y_q[1], "y_q")
        return (<object>out).dtype
    if y_q is None:
        return FLOAT32
    dtype = BYTES[0] if type_of(x) == FO_F32 else (<object>x).dtype
    fits(y_q[1], "y_q", dtype)
    return dtype


cdef bint clear(object out, ndarray x, ndarray residual) noexcept:
    """Whether results can go to out while a kernel reads these."""
    return (out is not None and cnp.PyArray_ISALIGNED(<ndarray>out)
            and not overlap(<ndarray>out, x) and not overlap(<ndarray>out, residual))


cdef class QLinearPlan:
    """y = activation(x w^T + bias + residual) in int8, with w packed once."""
    cdef fo_linear *plan
    cdef Py_ssize_t n, k
    cdef tuple x_q, residual_q, y_q
    cdef readonly str isa

    def __cinit__(self):
        self.k = UNMADE

    def __dealloc__(self):
        fo_linear_free(self.plan)

    def _pack(self, ndarray w, ndarray w_scale, ndarray bias, tuple activation, x_q, residual_q, y_q,
              bint whole=False, ndarray nudge=None, product_q=None, ndarray w_zero=None):
        """w (n, k) int8 of any strides; w_scale (n,) and bias (n,) or None float32, contiguous.

        *_q: (scale, zero_point) of numbers, or None. whole: rows of floats have one quantization in all. nudge (n,),
        product_q, of uint8, and w_zero (n,) int8: see quantized.h.
        """
        cdef fo_quantized q
        cdef fo_linear *plan
        cdef Py_ssize_t n = w.shape[0], k = w.shape[1]
        make_once(self, self.plan != NULL)
        q.w_scale, q.bias, q.act = data(w_scale), data(bias), activation_of(activation)
        q.x, q.residual, q.y = quantization_of(x_q), quantization_of(residual_q), quantization_of(y_q)
        q.whole, q.nudge, q.product = whole, data(nudge), quantization_of(product_q)
        q.w_zero = <const int8_t *>memory(w_zero)
        with nogil:
            plan = fo_linear_create_int8(n, k, <const int8_t *>cnp.PyArray_DATA(w), cnp.PyArray_STRIDE(w, 0),
                                         cnp.PyArray_STRIDE(w, 1), &q)
        if plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")
        self.plan, self.n, self.k, self.isa = plan, n, k, fo_linear_isa(plan).decode()
        self.x_q, self.residual_q, self.y_q = x_q, residual_q, y_q

    def __call__(self, x, residual=None, out=None):
        if self.k == UNMADE:
            raise unmade(self)
        cdef ndarray a = qinput(x, self.x_q), r, y
        cdef int nd = cnp.PyArray_NDIM(a)
        cdef Py_ssize_t m, ldx, ldr = 0, ldy
        cdef fo_types types
        cdef fo_status status
        if nd < 1 or cnp.PyArray_DIM(a, nd - 1) != self.k:
            raise ValueError(f"x has shape {np.shape(a)}, but w has shape {(self.n, self.k)}: "
                             f"the last axis of x must have length {self.k}"
                             + (", or pass w.T" if nd and cnp.PyArray_DIM(a, nd - 1) == self.n else ""))
        shape = (*(<object>a).shape[:nd - 1], self.n)
        r = qresidual(residual, self.residual_q, shape)
        dtype = byte_dtype(out, shape, self.y_q, a)
        if clear(out, a, r) and qrows(<ndarray>out, &ldy) is out:
            y = <ndarray>out
        else:
            y = new_results([(shape, dtype)])[0]
        m = cnp.PyArray_SIZE(y) // self.n if self.n else 0
        types.x, types.residual, types.y = type_of(a), type_of(r), type_of(y)
        a = qrows(a, &ldx)
        r = None if r is None else qrows(r, &ldr)
        qrows(y, &ldy)
        with nogil:
            status = fo_linear_run(self.plan, types, m, memory(a), ldx, memory(r), ldr, memory(y), ldy)
        check(status)
        return delivered(y, out)


cdef inline void *memory(ndarray a) noexcept nogil:
    return NULL if a is None else cnp.PyArray_DATA(a)


cdef fo_image image_any(ndarray a, bint nhwc) noexcept:
    """The order of an image in memory; strides of an axis of one may be anything."""
    cdef fo_image image
    cdef int h = 1 if nhwc else 2, c = 3 if nhwc else 1, i
    cdef Py_ssize_t s[4]
    for i in range(4):
        s[i] = 1 if cnp.PyArray_DIM(a, i) == 1 else cnp.PyArray_STRIDE(a, i) // cnp.PyArray_ITEMSIZE(a)
    image.data = <float *>cnp.PyArray_DATA(a)
    image.sn, image.sc, image.sh, image.sw = s[0], s[c], s[h], s[h + 1]
    return image


cdef class QConv2dPlan(WindowPlan):
    """y = activation(conv(x, w) + bias + residual) in int8, with w packed once."""
    cdef tuple x_q, residual_q, y_q
    cdef readonly str isa

    def _pack(self, ndarray w, ndarray w_scale, ndarray bias, tuple activation, tuple stride, padding, tuple dilation,
              Py_ssize_t groups, bint nhwc, x_q, residual_q, y_q, ndarray nudge=None, product_q=None,
              ndarray w_zero=None):
        """w (oc, ic/groups, kh, kw) int8, w_scale (oc,) and bias (oc,) or None float32, contiguous.

        The rest as Conv2dPlan and QLinearPlan.
        """
        cdef fo_quantized q
        cdef fo_conv2d *plan
        make_once(self, self.plan != NULL)
        self.describe(np.shape(w), activation, stride, padding, dilation, groups, nhwc)
        q.w_scale, q.bias, q.act = data(w_scale), data(bias), self.shape.act
        q.x, q.residual, q.y = quantization_of(x_q), quantization_of(residual_q), quantization_of(y_q)
        q.whole, q.nudge, q.product = False, data(nudge), quantization_of(product_q)
        q.w_zero = <const int8_t *>memory(w_zero)
        with nogil:
            plan = fo_conv2d_create_int8(&self.shape, <const int8_t *>cnp.PyArray_DATA(w), &q)
        if plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")
        self.plan, self.isa = plan, fo_conv2d_isa(plan).decode()
        self.ic, self.oc = self.shape.ic, self.shape.oc
        self.x_q, self.residual_q, self.y_q = x_q, residual_q, y_q

    def _kernel(self):
        """The name of its kernel, for images of any size."""
        cdef fo_conv2d_size z
        cdef const char *names[FO_ALGORITHM_NAMES]
        self.size(1, LARGE_SIDE, LARGE_SIDE, &z)
        fo_conv2d_algorithms(self.plan, &z, names)
        return names[0].decode()

    def __call__(self, x, residual=None, out=None):
        if self.ic == UNMADE:
            raise unmade(self)
        cdef ndarray a = qinput(x, self.x_q), r, y
        cdef int c = 3 if self.nhwc else 1, h = 1 if self.nhwc else 2
        cdef fo_conv2d_size z
        cdef fo_types types
        cdef fo_image xi, ri, yi
        cdef fo_status status
        if cnp.PyArray_NDIM(a) != 4 or cnp.PyArray_DIM(a, c) != self.ic:
            raise self.misfit(np.shape(a))
        self.size(cnp.PyArray_DIM(a, 0), cnp.PyArray_DIM(a, h), cnp.PyArray_DIM(a, h + 1), &z)
        shape = self.result_shape(&z)
        r = qresidual(residual, self.residual_q, shape)
        dtype = byte_dtype(out, shape, self.y_q, a)
        xi = image_any(a, self.nhwc)
        if clear(out, a, r) and whole_elements(<ndarray>out):
            y = <ndarray>out
        elif self.nhwc or not (xi.sc == 1 and xi.sw != 1):
            y = new_results([(shape, dtype)])[0]
        else:  # x's memory order
            y = new_results([((shape[0], shape[2], shape[3], shape[1]), dtype)])[0].transpose(0, 3, 1, 2)
        if r is not None:
            r = r if whole_elements(r) else copied(r)
            ri = image_any(r, self.nhwc)
        yi = image_any(y, self.nhwc)
        types.x, types.residual, types.y = type_of(a), type_of(r), type_of(y)
        with nogil:
            status = fo_conv2d_run_as(self.plan, types, &z, &xi, NULL if r is None else &ri, &yi)
        check(status)
        return delivered(y, out)


cdef bint whole_elements(ndarray a) noexcept:
    """Whether strides are whole numbers of elements."""
    cdef int i
    for i in range(cnp.PyArray_NDIM(a)):
        if cnp.PyArray_STRIDE(a, i) % cnp.PyArray_ITEMSIZE(a):
            return False
    return True
