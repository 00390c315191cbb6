# Products with packed weights. Included by _core.pyx.

BITS_COLUMNS = FO_BLOCKWISE_COLUMNS  # of a panel of weights of 4 or 8 bits
DOT_COLUMNS = FO_DOT_COLUMNS  # up to which the sums of a product may have another order than those of a convolution
BITS_BLOCK = FO_BLOCKWISE_BLOCK  # most steps of a block whose rows are rounded
cdef enum: LARGEST = 1 << 30  # of their sizes


cdef class LinearPlan:
    """y = activation(x w^T + bias + residual) with w packed once."""
    cdef fo_linear *plan
    cdef readonly Py_ssize_t n, k
    cdef object bias, dtype  # as given; dtype: of the weights where they come back
    cdef readonly str isa
    cdef readonly tuple _kept  # what the plan reads where it is
    cdef ndarray _lent  # weights of a plan for one call

    def __cinit__(self):
        self.k = UNMADE

    def __dealloc__(self):
        fo_linear_free(self.plan)

    def _pack(self, ndarray w, ndarray bias, tuple activation, str precision="float32", bint lend=False):
        """w (n, k) of any strides, as as_weights gives them; bias (n,) contiguous or None; activation as parsed.
        precision: of products' operands. lend: for one call, whose few rows read float32 weights where they lie."""
        cdef fo_linear *plan
        cdef fo_dtype a = DTYPES[precision]
        cdef fo_activation act = activation_of(activation)
        cdef Py_ssize_t n = w.shape[0], k = w.shape[1]
        cdef Py_ssize_t each = cnp.PyArray_ITEMSIZE(w)
        cdef fo_weights weights = weights_of(w)
        cdef Py_ssize_t wn = cnp.PyArray_STRIDE(w, 0) // each, wk = cnp.PyArray_STRIDE(w, 1) // each
        make_once(self, self.plan != NULL)
        if lend and ready(w):
            self._lent = w
            self._keep(fo_linear_borrow(n, k, data(w), wn, wk, data(bias), act), n, k)
        else:
            with nogil:
                plan = fo_linear_create(n, k, a, &weights, wn, wk, data(bias), act)
            self._keep(plan, n, k)
        self.bias = None if bias is None else bias.copy()
        self.dtype = FLOAT32 if a == FO_BF16 and not is_bfloat16(w.dtype) else w.dtype

    def _weights(self):
        """w and bias again; w of products in bfloat16 is rounded, and float32 or bfloat16."""
        cdef ndarray w
        cdef float *to
        if self.k == UNMADE:
            raise unmade(self)
        if self.dtype is None or self._lent is not None:
            raise TypeError("weights in blocks, or lent for one call, are the caller's arrays")
        w = np.empty((self.n, self.k), FLOAT32)
        to = data(w)
        with nogil:
            fo_linear_weights(self.plan, to)
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
        return {"panels": fo_linear_bytes(self.plan)}

    def _pack_bits(self, Py_ssize_t n, Py_ssize_t k, int bits, Py_ssize_t block, ndarray q, ndarray scales,
                   ndarray zeros, ndarray bias, tuple activation, bint rounds=False):
        """Weights as fo_blockwise has them, which are kept and not copied: C-contiguous arrays (panels, words of a
        column, BITS_COLUMNS) of uint32 and float32. rounds: rows are rounded to int8, block by block."""
        cdef fo_blockwise w
        cdef Py_ssize_t each = 32 // bits if bits in (4, 8) else 1
        make_once(self, self.plan != NULL)
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
        self._keep(fo_linear_create_blockwise(n, k, FO_S8 if rounds else FO_F32, &w, data(bias),
                                              activation_of(activation)), n, k)
        self._kept = q, scales, zeros

    cdef int _keep(self, fo_linear *plan, Py_ssize_t n, Py_ssize_t k) except -1:
        if plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")
        self.plan, self.n, self.k, self.isa = plan, n, k, fo_linear_isa(plan).decode()
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
        columns = not as_rows(a, &m, &ldx) and as_columns(a, &m, &ldx)
        if not columns and not as_rows(a, &m, &ldx):
            a = copied(a)
            as_rows(a, &m, &ldx)
        if r is not None and not as_rows(r, &m, &ldr):
            r = copied(r)
            as_rows(r, &m, &ldr)
        with nogil:
            if columns:
                status = fo_linear_run_columns(self.plan, m, data(a), ldx, data(r), ldr, data(y), ldy)
            else:
                status = fo_linear_run(self.plan, floats(), m, data(a), ldx, data(r), ldr, data(y), ldy)
        check(status)
        return delivered(y, out)
