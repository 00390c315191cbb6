# Recurrent cells. Included by _core.pyx.

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
              tuple activations, bint reset_after, float clip, float cell_clip, str precision="float32",
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
        s.reset_after, s.clip, s.cell_clip, s.a = reset_after, clip, cell_clip, DTYPES[precision]
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
        if y is None or self._lent is not None or not as_rows(y, &m, ld):  # an out may be a part of borrowed weights
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
