# Convolutions of sequences, which are images of one row, and their streams. Included by _core.pyx.

cdef class RowPlan:
    """What makes sequences of sequences: a plan of images of one row, whose axis all arrays lack."""
    cdef ImagePlan images
    cdef int row

    def _over(self, ImagePlan images not None, int row):
        """The plan, and the axis of its row."""
        make_once(self, self.images is not None)
        self.images, self.row = images, row

    cdef object misfit(self, tuple shape):
        """The error for an x of a shape that does not fit."""
        cdef tuple w
        if self.images is None:
            return unmade(self)
        w, ic = self.images._weights_shape(), self.images.ic
        last = self.row == 1
        fixes = f": pass x[np.newaxis]" if len(shape) == 2 and shape[1 if last else 0] == ic else ""
        return ValueError(f"x has shape {shape}, but w {w[:2] + w[3:]} with groups={self._options['groups']} needs "
                          f"{f'(n, l, {ic})' if last else f'(n, {ic}, l)'}{fixes}")

    def __call__(self, x, residual=None, out=None):
        cdef ndarray a = as_float32(x, "x")
        if (self.images is None or cnp.PyArray_NDIM(a) != 3
                or cnp.PyArray_DIM(a, 2 if self.row == 1 else 1) != self.images.ic):
            raise self.misfit(np.shape(a))
        return self.images.call(a, residual, out, self.row)

    def output_shape(self, shape):
        """The shape of the result for an x of this shape.

        Parameters
        ----------
        shape : tuple of int
            Of x: (n, ic, l), or (n, l, ic) with ``layout="NHWC"``.

        Returns
        -------
        tuple of int

        Raises
        ------
        TypeError, ValueError
            No shape of three ints, other channels than the layer's, a kernel longer than the padded sequence.

        Examples
        --------
        >>> import numpy as np, fusedops as fo
        >>> fo.Conv1d(np.ones((8, 3, 3), np.float32), stride=2).output_shape((1, 3, 32))
        (1, 8, 15)
        """
        if not isinstance(shape, (tuple, list)):
            raise TypeError(f"the shape of x must be a tuple of ints, not {shape!r}")
        if self.images is None or len(shape) != 3 or shape[2 if self.row == 1 else 1] != self.images.ic:
            raise self.misfit(tuple(shape))
        shape = self.images.output_shape((*shape[:self.row], 1, *shape[self.row:]))
        return shape[:self.row] + shape[self.row + 1:]


cdef class Windows:
    """Which frames a convolution's outputs need. Outputs are counted as the layer without padding has them, over the
    frames that are held and the new ones; padding: (before, after), "same" or "valid"."""
    cdef Py_ssize_t stride, span, before, zeros_after
    cdef bint one_for_one

    def __cinit__(self, Py_ssize_t stride, Py_ssize_t span, padding, *more):
        self.stride, self.span = stride, span

    def __init__(self, stride, span, padding):
        if stride > span:
            raise ValueError(f"a stream needs a stride, here {stride}, within what the kernel spans, {span}")
        if padding == "same" and stride > 1:
            raise ValueError("padding='same' follows from the length of the sequence: a stream needs numbers")
        if isinstance(padding, str):
            padding = ((span - 1) // 2, span // 2) if padding == "same" else (0, 0)
        self.before, self.zeros_after = padding
        self.one_for_one = stride == 1 and self.before == span - 1

    cdef Py_ssize_t whole(self, Py_ssize_t frames) noexcept:
        """Outputs of so many frames and the zeros before them."""
        cdef Py_ssize_t beyond = self.before + frames - self.span
        return beyond // self.stride + 1 if beyond >= 0 else 0

    cdef Py_ssize_t done(self, Py_ssize_t count) noexcept:
        """Outputs after so many frames; the first frame brings those of the zeros before it, too."""
        return self.whole(count) if count else 0

    cdef void complete(self, Py_ssize_t count, Py_ssize_t held, Py_ssize_t added, Py_ssize_t *first,
                       Py_ssize_t *last) noexcept:
        """The outputs first .. last - 1 that new frames complete, where `count` have come and `held` of them are
        kept."""
        first[0], last[0] = 0, self.done(count + added) - self.done(count)

    cdef void rest(self, Py_ssize_t count, Py_ssize_t held, Py_ssize_t *first, Py_ssize_t *last) noexcept:
        """Those that the end of the sequence completes."""
        first[0], last[0] = 0, self.whole(count + self.zeros_after) - self.done(count)

    cdef Py_ssize_t kept(self, Py_ssize_t count) noexcept:
        """From the first frame on that the next output needs, zeros before the sequence among them."""
        return self.before + count - self.done(count) * self.stride


cdef class TransposedWindows(Windows):
    """The same of a transposed convolution: which outputs no later frame adds to. `more`: of the layer without padding,
    the outputs after those of the last frame."""
    cdef Py_ssize_t end, late, overlap

    def __init__(self, stride, span, padding, more):
        if isinstance(padding, str):
            before = max(span - stride, 0) // 2
            padding = (before, span - stride - before) if padding == "same" else (0, 0)
        self.before, after = padding
        # of the result, counted from the first output of a frame after the last one
        self.end = span + more - after - stride
        self.late = max(0, -self.end)  # outputs that the end of the sequence may cut off
        # frames that later outputs need or stand at, besides the next one
        self.overlap = max((span - 1 + self.late) // stride, (self.late + stride - 1) // stride, self.end > 0)
        self.one_for_one = stride == 1 and self.before == self.late == 0

    cdef void part(self, Py_ssize_t before, Py_ssize_t *first, Py_ssize_t *last) noexcept:
        """Outputs of the whole sequence without padding as those over the frames that are held; before: frames that
        are no longer."""
        first[0] = max(first[0], self.before) - before * self.stride
        last[0] -= before * self.stride

    cdef void complete(self, Py_ssize_t count, Py_ssize_t held, Py_ssize_t added, Py_ssize_t *first,
                       Py_ssize_t *last) noexcept:
        first[0], last[0] = count * self.stride - self.late, (count + added) * self.stride - self.late
        self.part(count - held, first, last)

    cdef void rest(self, Py_ssize_t count, Py_ssize_t held, Py_ssize_t *first, Py_ssize_t *last) noexcept:
        first[0] = last[0] = count * self.stride - self.late
        if count:
            last[0] = count * self.stride + self.end
        self.part(count - held, first, last)

    cdef Py_ssize_t kept(self, Py_ssize_t count) noexcept:
        return min(count, self.overlap)


cdef class ConvolutionStream:
    """A convolution of a sequence taken piece by piece. Made by ``layer.stream(batch)``; for one thread at a time.

    What `step` and at the end `flush` return, one after the other, is the result of the whole sequence, with its bits:
    those of ``algorithm="direct"``, which "auto" takes too. A copy, also by way of pickle, has a state of its own.

    Examples
    --------
    >>> import numpy as np, fusedops as fo
    >>> stream = fo.Conv1d(np.ones((1, 1, 3), np.float32), padding=(2, 0)).stream()  # causal: a frame for each
    >>> [float(stream.step(np.float32([n]))[0]) for n in (1, 2, 3, 4)]
    [1.0, 3.0, 6.0, 9.0]
    >>> stream.reset()
    >>> stream.step(np.float32([[[1, 2, 3]]]))  # a chunk: (batch, channels, frames)
    array([[[1., 3., 6.]]], dtype=float32)
    >>> stream = fo.ConvTranspose1d(np.ones((1, 1, 3), np.float32), stride=2).stream()
    >>> stream.step(np.float32([[[1, 2]]])), stream.flush()
    (array([[[1., 1., 3., 2.]]], dtype=float32), array([[[2.]]], dtype=float32))
    """
    cdef RowPlan layer  # as it was made
    cdef ImagePlan images  # of the layer without padding
    cdef Windows windows
    cdef ndarray memory  # of frames, one after the other: (batch, frames, ic)
    cdef Py_ssize_t batch, begin, end  # of the frames in memory
    cdef Py_ssize_t count  # frames that have come

    def __cinit__(self, RowPlan layer not None, Py_ssize_t batch):
        plain, self.windows = layer._windows()
        self.layer, self.images, self.batch = layer, (<RowPlan?>plain).images, batch
        self.memory = np.empty((batch, 0, self.images.ic), np.float32)
        self.reset()

    def step(self, x, out=None):
        """The outputs that are complete with the next frames.

        Parameters
        ----------
        x : ndarray, float32, (batch, ic, l), or (batch, l, ic) with ``layout="NHWC"``
            The next l frames; or a single one, (batch, ic), or (ic,) for a batch of one, where each frame completes an
            output: of a causal convolution of stride 1.
        out : ndarray, float32, of the result's shape, optional
            Any strides; it may overlap x. The result is written there and nowhere else.

        Returns
        -------
        ndarray, float32, (batch, oc, m), (batch, m, oc) or (batch, oc) or (oc,), as x is
            m may be 0. `out` where it is given.

        Raises
        ------
        TypeError, ValueError
            Not float32, or a shape that does not fit; the state stays as it was.
        """
        cdef ndarray a = as_float32(x, "x"), y
        cdef int nd = cnp.PyArray_NDIM(a), frames = 1 if self.layer.row == 1 else 2
        cdef Py_ssize_t held, end, added = 1, first, last, count = self.count
        if nd < 3 and not self.windows.one_for_one:
            raise ValueError(f"x has shape {np.shape(a)}, but this layer does not make one frame of each: pass chunks "
                             f"of shape {self.chunks()}")
        if not self.fits(a):
            raise ValueError(f"x has shape {np.shape(a)}, but this stream's chunks have shape {self.chunks()}")
        if nd == 3:
            added = cnp.PyArray_DIM(a, frames)
        held = self.make_room(added)
        end = self.end  # other threads' steps, which this stream is not for, must not add to it
        self.windows.complete(count, held, added, &first, &last)
        y = self.place(out, nd, last - first)
        self.put(a, added)
        self.compute(y, held + added, first)
        self.end, self.count = end + added, count + added
        self.begin = self.end - self.windows.kept(self.count)
        return delivered(y, out)

    cdef bint fits(self, ndarray a) noexcept:
        """Whether these are frames of this stream."""
        cdef int nd = cnp.PyArray_NDIM(a), c = 2 if nd == 3 and self.layer.row == 1 else 1
        if nd < 2:
            return self.batch == 1 and cnp.PyArray_SIZE(a) == self.images.ic
        return nd <= 3 and cnp.PyArray_DIM(a, 0) == self.batch and cnp.PyArray_DIM(a, c) == self.images.ic

    cdef str chunks(self):
        """What errors write of the shape of chunks."""
        l_and_c = f"l, {self.images.ic}" if self.layer.row == 1 else f"{self.images.ic}, l"
        return f"({self.batch}, {l_and_c})"

    def flush(self, out=None):
        """The outputs that the end of the sequence completes, which its padding is a part of; then `reset`.

        Parameters
        ----------
        out : ndarray, float32, of the result's shape, optional

        Returns
        -------
        ndarray, float32, (batch, oc, m) or (batch, m, oc)
            m may be 0. `out` where it is given.
        """
        cdef Py_ssize_t zeros = self.windows.zeros_after, first, last, held = self.make_room(zeros)
        cdef ndarray y
        self.windows.rest(self.count, held, &first, &last)
        y = self.place(out, 3, last - first)
        self.memory[:, self.end:self.end + zeros] = 0
        self.compute(y, held + zeros, first)
        self.reset()
        return delivered(y, out)

    cdef ndarray place(self, object out, int nd, Py_ssize_t outputs):
        """Where so many outputs go: out, or a new array in the order of the frames; nd: the axes of x."""
        cdef cnp.npy_intp dims[3]
        cdef cnp.npy_intp order[3]
        cdef int last = self.layer.row == 1 and nd == 3
        cdef fo_image image
        cdef ndarray y
        dims[0], dims[1], dims[2] = self.batch, self.images.oc, max(outputs, 0)
        if last:
            dims[1], dims[2] = dims[2], dims[1]
        if nd < 2:
            nd, dims[0] = 1, self.images.oc
        y = writable(out, nd, dims, None)
        if y is not None and (nd < 3 and single_frame(y) or nd == 3 and as_image(y, last, &image, self.layer.row)):
            return y
        if last or nd < 3:
            return new_result(nd, dims)
        order[0], order[1], order[2] = dims[0], dims[2], dims[1]
        return new_result(3, order).transpose(0, 2, 1)

    cdef int put(self, ndarray a, Py_ssize_t added) except -1:
        """Copies frames to the end of those that are held."""
        cdef fo_copy_args copy
        cdef int nd = cnp.PyArray_NDIM(a), c = 2 if nd == 3 and self.layer.row == 1 else min(nd - 1, 1)
        cdef Py_ssize_t ic = self.images.ic
        copy.x, copy.y, copy.size, copy.axes.nd = data(a), data(self.memory) + self.end * ic, 0, 0
        if not self.batch * added * ic:
            return 0
        add_axis(&copy.axes, self.batch, cnp.PyArray_DIM(self.memory, 1) * ic, stride_of(a, 0) if nd > 1 else 0, 0)
        if nd == 3:
            add_axis(&copy.axes, added, ic, stride_of(a, 3 - c), 0)
        add_axis(&copy.axes, ic, 1, stride_of(a, c) if nd else 0, 0)
        fo_fold(&copy.axes)
        return check(fo_strided_copy(&copy))

    cdef int compute(self, ndarray y, Py_ssize_t frames, Py_ssize_t first) except -1:
        """Writes outputs from `first` on of the layer without padding, over frames from the first of those held."""
        cdef fo_conv2d_size z
        cdef fo_image xi, yi
        cdef Py_ssize_t ic = self.images.ic
        cdef int nd = cnp.PyArray_NDIM(y), c = 0 if nd == 1 else 2 if nd == 3 and self.layer.row == 1 else 1
        if not cnp.PyArray_SIZE(y):
            return 0
        z.n, z.ih, z.iw, z.top, z.left, z.oh, z.ow = self.batch, 1, frames, 0, first, 1, 1
        xi.data, xi.sc, xi.sh, xi.sw = data(self.memory) + self.begin * ic, 1, 1, ic
        xi.sn = cnp.PyArray_DIM(self.memory, 1) * ic
        yi.data, yi.sc, yi.sh, yi.sw, yi.sn = data(y), stride_of(y, c), 1, 1, stride_of(y, 0)
        if nd == 3:
            z.ow, yi.sw = cnp.PyArray_DIM(y, 3 - c), stride_of(y, 3 - c)
        yi.sc, yi.sw = yi.sc or 1, yi.sw or 1
        return self.images.run_one(&z, &xi, NULL, &yi)

    def reset(self):
        """Back to the beginning of a sequence."""
        self.keep(np.zeros((self.batch, self.windows.kept(0), self.images.ic), np.float32), 0)

    def __repr__(self):
        return f"Stream(batch={self.batch}, {self.layer!r})"

    def __reduce__(self):
        return ConvolutionStream, (self.layer, self.batch), self.state

    def __setstate__(self, state):
        self.state = state

    @property
    def state(self):
        """A copy of the frames that are kept, (batch, ic, frames) or as the layout has them, and how many have come;
        assign to it to set it."""
        return self.by_layout(self.memory[:, self.begin:self.end]).copy(), self.count

    @state.setter
    def state(self, value):
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise TypeError(f"state must be a pair (frames, how many have come), not {type(value).__name__}")
        count = PyNumber_Index(value[1])
        if count < 0:
            raise ValueError(f"state says that {count} frames have come")
        given = as_float32(value[0], "state")
        frames = self.by_layout(given)
        needed = (self.batch, self.windows.kept(count), self.images.ic)
        if frames.shape != needed:
            shown = self.by_layout(np.broadcast_to(np.float32(0), needed)).shape
            raise ValueError(f"state has frames of shape {np.shape(given)}, but after {count} frames they have {shown}")
        self.keep(frames.copy(), count)

    cdef object by_layout(self, x):
        """x with its channels last, and back."""
        return x if self.layer.row == 1 or x.ndim != 3 else x.swapaxes(1, 2)

    cdef int keep(self, frames, Py_ssize_t count) except -1:
        self.begin = self.end = 0
        self.make_room(frames.shape[1])
        self.memory[:, :frames.shape[1]] = frames
        self.end, self.count = frames.shape[1], count
        return 0

    cdef Py_ssize_t make_room(self, Py_ssize_t added) except -1:
        """For so many frames after those that are held, which move to the front now and then; returns how many are
        held."""
        cdef Py_ssize_t held = self.end - self.begin, room = cnp.PyArray_DIM(self.memory, 1)
        if self.end + added <= room:
            return held
        memory = self.memory
        if 2 * held + added > room:
            memory = np.empty((self.batch, 4 * held + 2 * added + 16, self.images.ic), np.float32)
        memory[:, :held] = self.memory[:, self.begin:self.end]
        self.memory, self.begin, self.end = memory, 0, held
        return held


cdef bint single_frame(ndarray y) noexcept:
    """Whether kernels can write a frame (batch, oc) or (oc,) there: strides of whole elements."""
    cdef int d
    for d in range(cnp.PyArray_NDIM(y)):
        if cnp.PyArray_STRIDE(y, d) % 4:
            return False
    return True
