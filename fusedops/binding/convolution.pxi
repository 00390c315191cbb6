# Convolutions and blocks of them. Included by _core.pyx.

cdef bint as_image(ndarray a, bint nhwc, fo_image *image, int row=0) noexcept:
    """Whether kernels can read a as it lies: strides of whole elements, and pixels or channels that are neighbors.
    row: the axis of its one row, which a lacks, or 0."""
    cdef int h = 1 if nhwc else 2, c = 3 if nhwc else 1, i, d = 0
    cdef Py_ssize_t s[4]
    for i in range(4):
        s[i] = 1
        if row and i == row:
            continue
        if cnp.PyArray_STRIDE(a, d) % 4:
            return False
        if cnp.PyArray_DIM(a, d) != 1:
            s[i] = cnp.PyArray_STRIDE(a, d) // 4
        d += 1
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
        cdef ndarray a = as_float32(x, "x")
        if cnp.PyArray_NDIM(a) != 4 or cnp.PyArray_DIM(a, 3 if self.nhwc else 1) != self.ic:
            raise self.misfit(np.shape(a))
        return self.call(a, residual, out, 0)

    cdef object call(self, ndarray a, object residual, object out, int row):
        """The result for an x of the layer's axes and channels. row: the axis of the one row of its images, which all
        arrays lack, or 0."""
        cdef ndarray r = None, y, same_order
        cdef int nd = 3 if row else 4, c = nd - 1 if self.nhwc else 1, w = nd - 2 if self.nhwc else nd - 1
        cdef cnp.npy_intp dims[4]
        cdef fo_conv2d_size z
        cdef fo_image xi, ri, yi
        self.size(cnp.PyArray_DIM(a, 0), 1 if row else cnp.PyArray_DIM(a, w - 1), cnp.PyArray_DIM(a, w), &z)
        dims[w - 1] = z.oh  # of one row it is another axis, whose size follows
        dims[0], dims[c], dims[w] = z.n, self.oc, z.ow
        if residual is not None:
            r = as_float32(residual, "residual")
            if not same_shape(r, nd, dims):
                raise ValueError(f"residual has shape {np.shape(r)}, but the result has shape {shape_of(nd, dims)}")
        if not as_image(a, self.nhwc, &xi, row):
            a = copied(a)
            as_image(a, self.nhwc, &xi, row)
        if r is not None and not as_image(r, self.nhwc, &ri, row):
            r = copied(r)
            as_image(r, self.nhwc, &ri, row)
        y = writable(out, nd, dims, a, r)
        if y is None or not as_image(y, self.nhwc, &yi, row):
            y = self.empty_like(a, nd, dims, xi.sc == 1 and xi.sw != 1)
            as_image(y, self.nhwc, &yi, row)
        # read together with y, so in y's memory order
        if r is not None and not (ri.sc == 1 if yi.sc == 1 else ri.sw == 1):
            same_order = np.empty_like(y)
            same_order[...] = r
            r = same_order
            as_image(r, self.nhwc, &ri, row)
        self.run_one(&z, &xi, NULL if r is None else &ri, &yi)
        return delivered(y, out)

    cdef int run_one(self, const fo_conv2d_size *z, const fo_image *x, const fo_image *residual,
                     const fo_image *y) except -1:
        """Runs it, without the GIL where that takes long."""
        cdef fo_status status
        if self.work * z.n * (<double>z.ih * z.iw + <double>z.oh * z.ow) <= SMALL:
            status = self.run(z, x, residual, y)
        else:
            with nogil:
                status = self.run(z, x, residual, y)
        return check(status)

    cdef ndarray empty_like(self, ndarray x, int nd, cnp.npy_intp *dims, bint nhwc_memory):
        """A new result in the memory order of x."""
        cdef cnp.npy_intp order[4]
        cdef fo_place place = FO_AFTER_LIGHT if self.light else FO_AFTER
        cdef int i
        if self.nhwc or not nhwc_memory:
            return new_result(nd, dims, data(x), place)
        order[0], order[nd - 1] = dims[0], dims[1]
        for i in range(2, nd):
            order[i - 1] = dims[i]
        y = new_result(nd, order, data(x), place)
        return y.transpose(0, 3, 1, 2) if nd == 4 else y.transpose(0, 2, 1)


cdef enum:
    LARGE_SIDE = 64  # pixels


cdef class WindowPlan(ImagePlan):
    """A convolution's sizes, and its plan, which a subclass makes."""
    cdef fo_conv2d_shape shape
    cdef fo_conv2d *plan
    cdef Py_ssize_t top, left, bottom, right
    cdef bint same

    def __dealloc__(self):
        fo_conv2d_free(self.plan)

    cdef int describe(self, tuple w, tuple activation, tuple stride, padding, tuple dilation, Py_ssize_t groups,
                      bint nhwc) except -1:
        """w: its shape (oc, ic/groups, kh, kw); activation as parsed; padding ((top, bottom), (left, right)) or
        "same"."""
        cdef fo_conv2d_shape *s = &self.shape
        s.oc, s.ic, s.kh, s.kw = w
        s.ic *= groups
        s.groups = groups
        s.sh, s.sw = stride
        s.dh, s.dw = dilation
        s.act = activation_of(activation)
        s.algorithm, s.nhwc = 0, nhwc
        self.nhwc, self.same = nhwc, padding == "same"
        if not self.same:
            (self.top, self.bottom), (self.left, self.right) = padding
        return 0

    cdef int size(self, Py_ssize_t n, Py_ssize_t ih, Py_ssize_t iw, fo_conv2d_size *z) except -1:
        cdef fo_conv2d_shape *s = &self.shape
        cdef Py_ssize_t eh = (s.kh - 1) * s.dh + 1, ew = (s.kw - 1) * s.dw + 1
        z.n, z.ih, z.iw, z.top, z.left = n, ih, iw, self.top, self.left
        if self.same:  # the output has ceil(input / stride) points; the odd zero goes at the end
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
            Products of int8 and of bfloat16 have buffers of their own, which are not counted.

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


cdef class Conv2dShape(WindowPlan):
    """A convolution without its weights, for what follows from shapes alone; it cannot be called."""
    cdef tuple activation  # whose slopes the plan refers to

    def _describe(self, tuple w, tuple activation, tuple stride, tuple dilation, Py_ssize_t groups, bint nhwc,
                  int algorithm):
        """w: the shape of the weights; the rest as of Conv2dPlan._pack. Returns itself."""
        cdef fo_weights weights
        make_once(self, self.plan != NULL)
        self.describe(w, activation, stride, ((0, 0), (0, 0)), dilation, groups, nhwc)
        self.shape.algorithm, self.activation = algorithm, activation
        weights.data, weights.type = NULL, FO_F32
        self.plan = fo_conv2d_create(&self.shape, FO_F32, &weights, NULL, NULL)
        if self.plan == NULL:
            raise MemoryError("fusedops: no memory for the plan of a convolution")
        return self

    def _nanoseconds(self, tuple image, tuple result, Py_ssize_t top, Py_ssize_t left):
        """What an image (n, ih, iw) and a result (oh, ow), as a network's steps have them, are predicted to take in
        float32, in int8 and in bfloat16: only the ratios count."""
        cdef fo_conv2d_size z
        z.n, z.ih, z.iw = image
        z.oh, z.ow = result
        z.top, z.left = top, left
        return (fo_conv2d_nanoseconds(self.plan, &z), fo_conv2d_nanoseconds_as(FO_S8, &self.shape, &z),
                fo_conv2d_nanoseconds_as(FO_BF16, &self.shape, &z))

    def _pixel(self):
        """The floats from one pixel to the next that it reads fastest in an image whose channels are neighbors."""
        return fo_conv2d_pixel(self.plan)

    cdef bint pixelwise(self) noexcept:
        cdef fo_conv2d_shape *s = &self.shape
        return s.kh == s.kw == s.sh == s.sw == s.groups == 1 and (
            self.same or not (self.top or self.bottom or self.left or self.right))


cdef class Conv2dPlan(Conv2dShape):
    """y = activation(conv(x, w) + bias + residual) with w packed once."""
    cdef ndarray bias
    cdef object dtype  # of the weights
    cdef readonly str isa

    def _pack(self, ndarray w, ndarray scale, ndarray bias, tuple activation, tuple stride, padding, tuple dilation,
              Py_ssize_t groups,
              bint nhwc, int algorithm, str precision="float32"):
        """w (oc, ic/groups, kh, kw) of float32 or float16, bias (oc,) and scale (oc,) of float64 or None, contiguous;
        padding ((top, bottom), (left, right)) or "same"; precision: of the operands; weights of bfloat16 are float32
        where they come back."""
        cdef fo_conv2d_shape *s = &self.shape
        cdef fo_conv2d *plan
        cdef fo_dtype a = DTYPES[precision]
        make_once(self, self.plan != NULL)
        self.describe(np.shape(w), activation, stride, padding, dilation, groups, nhwc)
        s.algorithm = algorithm
        cdef fo_weights weights = weights_of(w)
        with nogil:
            plan = fo_conv2d_create(s, a, &weights, doubles(scale), data(bias))
        if plan == NULL:
            raise MemoryError("fusedops: no memory for packed weights")
        self.plan, self.isa = plan, fo_conv2d_isa(plan).decode()
        self.bias, self.dtype = None if bias is None else bias.copy(), FLOAT32 if a == FO_BF16 else w.dtype
        self.ic, self.oc, self.work = s.ic, s.oc, <double>s.oc * (w.shape[1] * s.kh * s.kw + 8)
        self.light = w.shape[1] == 1 < groups

    def _weights(self):
        """w with the scale in it, and bias."""
        cdef ndarray w = np.empty(self._weights_shape(), self.dtype)
        cdef bint made
        with nogil:
            made = fo_conv2d_weights(self.plan, cnp.PyArray_DATA(w))
        check(FO_OK if made else FO_NO_MEMORY)
        return w, self.bias

    def memory(self):
        """The bytes that the layer keeps of its weights, by the form in which it keeps them.

        Returns
        -------
        dict of str to int
            "weights" are those that the layer was given; 1x1 kernels with ``layout="NHWC"`` keep panels of them alone,
            of which rows are made again where they are asked for. An algorithm that reads them in another order, or
            multiplies less often by sums of them, adds a form when the first image comes for which it is the fastest:
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

    def _algorithms(self):
        """The names of the algorithms that have a kernel for large images, best first."""
        cdef fo_conv2d_shape *s = &self.shape
        cdef fo_conv2d_size z
        cdef const char *names[FO_ALGORITHM_NAMES]
        self.size(1, max((s.kh - 1) * s.dh + 1, LARGE_SIDE), max((s.kw - 1) * s.dw + 1, LARGE_SIDE), &z)
        return [names[i].decode() for i in range(fo_conv2d_algorithms(self.plan, &z, names))]

    cdef fo_status run(self, const fo_conv2d_size *z, const fo_image *x, const fo_image *residual,
                       const fo_image *y) noexcept nogil:
        return fo_conv2d_run(self.plan, z, x, residual, y)


cdef class SeparablePlan(ImagePlan):
    """[1x1 expand ->] depthwise -> 1x1 pointwise as one pass; the parts keep their weights."""
    cdef Conv2dShape expand, depthwise, pointwise

    def _join(self, Conv2dShape expand, Conv2dShape depthwise not None, Conv2dShape pointwise not None):
        """Takes the parts, or raises the error that says which of them does not fit; expand may be None. Returns
        itself."""
        cdef Conv2dShape part
        make_once(self, self.depthwise is not None)
        for name, part in (("expand", expand), ("pointwise", pointwise)):
            if part is not None and not part.pixelwise():
                raise ValueError(f"{name} must be a 1x1 convolution with stride 1, no padding and groups=1, not "
                                 f"{part!r}")
        if not depthwise.shape.ic == depthwise.shape.oc == depthwise.shape.groups:
            raise ValueError(f"depthwise must have one filter for each channel: groups = input channels = output "
                             f"channels, not {depthwise!r}")
        if pointwise.shape.ic != depthwise.shape.oc or expand is not None and expand.shape.oc != depthwise.shape.ic:
            raise ValueError(f"the channels of the parts do not fit: {expand!r}, {depthwise!r}, {pointwise!r}")
        if pointwise.nhwc != depthwise.nhwc or expand is not None and expand.nhwc != depthwise.nhwc:
            raise ValueError(f"the parts must have one layout: {expand!r}, {depthwise!r}, {pointwise!r}")
        self.expand, self.depthwise, self.pointwise = expand, depthwise, pointwise
        self.ic = depthwise.ic if expand is None else expand.ic
        self.oc, self.nhwc = pointwise.oc, depthwise.nhwc
        self.work = depthwise.work + pointwise.work + (0 if expand is None else expand.work)
        return self

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
        """As fuses, for the sizes of the images before and after the depthwise part, whatever its padding."""
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
