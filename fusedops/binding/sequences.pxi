# Sequences of cells, and streams of them. Included by _core.pyx.

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

    The outputs are bit-identical to those of the whole sequence at once. A copy, also by way of pickle, has a state of
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
