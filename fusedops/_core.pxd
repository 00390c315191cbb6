# The C interface of csrc/include/fusedops/fusedops.h, as far as the binding uses it.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t


cdef extern from "fusedops/fusedops.h" nogil:
    ctypedef enum fo_status:
        FO_OK
        FO_NO_MEMORY
        FO_OUTSIDE

    ctypedef enum fo_dtype:
        FO_F32
        FO_F16
        FO_BF16
        FO_U8
        FO_S8
    const char *const fo_dtype_names[]
    const char *const fo_function_names[]
    const char *const fo_map_names[]
    const char *const fo_reduction_names[]
    const char *const fo_scatter_names[]
    const char *const fo_beyond_names[]
    const char *const fo_interpolation_names[]
    const char *const fo_cell_names[]
    const char *const fo_algorithm_names[]
    const char *const fo_transform_names[]
    const char *const fo_rounding_names[]

    int fo_isa_count()
    const char *fo_isa_name(int isa)
    bint fo_isa_available(int isa)
    int fo_get_isa()
    void fo_set_isa(int isa)
    void fo_set_num_threads(int n)
    int fo_get_num_threads()
    int fo_limit_threads(int n)
    const char *fo_threading()
    const char *fo_compiler()
    enum:
        FO_PLACED
    ctypedef enum fo_place:
        FO_AFTER
        FO_AFTER_LIGHT
    size_t fo_place_after(const void *x, fo_place place)
    void fo_place_results(size_t at)
    void *fo_alloc_result(size_t bytes)
    void *fo_realloc_result(void *result, size_t bytes)
    void fo_free_result(void *result)

    ctypedef int fo_act_kind
    enum:
        FO_ACTIVATIONS
    const char *fo_activation_name(fo_act_kind kind)
    ctypedef struct fo_activation:
        fo_act_kind kind
        float p0
        float p1
        const float *slopes

    ctypedef struct fo_weights:
        const void *data
        fo_dtype type
    ctypedef struct fo_linear:
        pass
    fo_linear *fo_linear_create(Py_ssize_t n, Py_ssize_t k, fo_dtype a, const fo_weights *w, Py_ssize_t wn,
                                Py_ssize_t wk, const float *bias, fo_activation act)
    ctypedef struct fo_blockwise:
        int bits
        Py_ssize_t block, blocks
        const uint32_t *q
        const uint32_t *zeros
        const float *scales
    enum:
        FO_BLOCKWISE_COLUMNS
        FO_DOT_COLUMNS
    fo_linear *fo_linear_create_blockwise(Py_ssize_t n, Py_ssize_t k, fo_dtype a, const fo_blockwise *w,
                                          const float *bias, fo_activation act)
    const char *fo_linear_isa(const fo_linear *plan)
    void fo_linear_weights(const fo_linear *plan, float *w)
    Py_ssize_t fo_linear_bytes(const fo_linear *plan)
    void fo_linear_free(fo_linear *plan)
    fo_linear *fo_linear_borrow(Py_ssize_t n, Py_ssize_t k, const float *w, Py_ssize_t wn, Py_ssize_t wk,
                              const float *bias, fo_activation act)
    fo_status fo_linear_run_columns(const fo_linear *plan, Py_ssize_t m, const float *x, Py_ssize_t ldx,
                                    const float *residual, Py_ssize_t ldr, float *y, Py_ssize_t ldy)
    fo_status fo_linear_run(const fo_linear *plan, fo_types types, Py_ssize_t m, const void *x, Py_ssize_t ldx,
                            const void *residual, Py_ssize_t ldr, void *y, Py_ssize_t ldy)

    void fo_quantize(Py_ssize_t rows, Py_ssize_t n, const float *x, const float *scale, const int32_t *zero_point,
                     fo_dtype type, void *y)
    void fo_dequantize(Py_ssize_t rows, Py_ssize_t n, const void *x, const float *scale, const int32_t *zero_point,
                       fo_dtype type, float *y)
    bint fo_has_dot_product()
    bint fo_multiplies_by_amx()
    ctypedef struct fo_quantization:
        float scale
        int32_t zero_point
    ctypedef struct fo_quantized:
        const float *w_scale
        const float *bias
        const float *nudge
        const int8_t *w_zero
        fo_quantization x, residual, y, product
        bint whole
        fo_activation act
    ctypedef struct fo_types:
        fo_dtype x, residual, y
    enum:
        FO_Q_STEPS
        FO_Q_STEPS_OF_ZEROS
    fo_linear *fo_linear_create_int8(Py_ssize_t n, Py_ssize_t k, const int8_t *w, Py_ssize_t wn, Py_ssize_t wk,
                                     const fo_quantized *q)
    enum:
        FO_BLOCKWISE_BLOCK
    bint fo_has_bf16()

    ctypedef struct fo_image:
        float *data
        Py_ssize_t sn, sc, sh, sw
    ctypedef int fo_named_algorithm
    ctypedef struct fo_conv2d_shape:
        Py_ssize_t ic, oc, groups, kh, kw, sh, sw, dh, dw
        fo_activation act
        fo_named_algorithm algorithm
        bint nhwc
    ctypedef struct fo_conv2d_size:
        Py_ssize_t n, ih, iw, oh, ow, top, left
    ctypedef struct fo_conv2d:
        pass
    fo_conv2d *fo_conv2d_create(const fo_conv2d_shape *shape, fo_dtype a, const fo_weights *w, const double *scale,
                                const float *bias)
    Py_ssize_t fo_conv2d_memory(const fo_conv2d *plan, int form, const char **name)
    bint fo_conv2d_weights(const fo_conv2d *plan, void *w)
    const char *fo_conv2d_isa(const fo_conv2d *plan)
    void fo_conv2d_free(fo_conv2d *plan)
    fo_status fo_conv2d_run(const fo_conv2d *plan, const fo_conv2d_size *size, const fo_image *x,
                            const fo_image *residual,
                            const fo_image *y)
    const char *fo_conv2d_kernel(const fo_conv2d *plan, const fo_conv2d_size *size, bint nhwc, Py_ssize_t *scratch)
    enum: FO_ALGORITHM_NAMES
    int fo_conv2d_algorithms(const fo_conv2d *plan, const fo_conv2d_size *size, const char **names)
    Py_ssize_t fo_conv2d_pixel(const fo_conv2d *plan)

    ctypedef enum fo_cell_kind:
        FO_RNN
        FO_LSTM
        FO_GRU
    ctypedef struct fo_cell_shape:
        fo_cell_kind kind
        Py_ssize_t inputs, hidden, outputs
        bint reset_after
        fo_activation act, gate, out
        float clip
        float cell_clip
        fo_dtype a
        bint lends
    ctypedef struct fo_cell_weights:
        fo_weights w_ih, w_hh, w_hr
        const float *b_ih
        const float *b_hh
        const float *peephole
        const float *ih_scale
        const float *hh_scale
        const int8_t *ih_zero
        const int8_t *hh_zero
    ctypedef struct fo_cell:
        pass
    fo_cell *fo_cell_create(const fo_cell_shape *shape, const fo_cell_weights *weights)
    void fo_cell_weights_again(const fo_cell *cell, void *w_ih, void *w_hh)
    void fo_cell_free(fo_cell *cell)
    ctypedef struct fo_cell_io:
        const float *x
        const float *h
        const float *c
        Py_ssize_t ldx, ldh, ldc
        float *h_out
        float *c_out
        Py_ssize_t ldho, ldco
    fo_status fo_cell_run(const fo_cell *cell, Py_ssize_t batch, const fo_cell_io *io)
    ctypedef struct fo_sequence:
        const fo_cell *const *cells
        int layers, directions
        bint reverse
        Py_ssize_t steps, batch
        const float *x
        Py_ssize_t xt, xb
        const int64_t *lengths
        const float *h0
        const float *c0
        float *hn
        float *cn
        float *y
        Py_ssize_t yt, yb
    fo_status fo_sequence_run(const fo_sequence *sequence)

    fo_conv2d *fo_conv2d_create_int8(const fo_conv2d_shape *shape, const int8_t *w, const fo_quantized *q)
    double fo_linear_nanoseconds(fo_dtype type, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k)
    double fo_conv2d_nanoseconds(const fo_conv2d *plan, const fo_conv2d_size *size)
    double fo_conv2d_nanoseconds_as(fo_dtype type, const fo_conv2d_shape *shape, const fo_conv2d_size *size)
    double fo_convert_nanoseconds(fo_dtype type, Py_ssize_t elements)
    fo_status fo_conv2d_run_as(const fo_conv2d *plan, fo_types types, const fo_conv2d_size *size, const fo_image *x,
                               const fo_image *residual, const fo_image *y)

    ctypedef struct fo_conv_transpose:
        pass
    fo_conv_transpose *fo_conv_transpose_create(const fo_conv2d_shape *shape, fo_dtype a, const float *w,
                                                const float *bias)
    void fo_conv_transpose_free(fo_conv_transpose *plan)
    double fo_conv_transpose_nanoseconds(const fo_conv_transpose *plan, const fo_conv2d_size *size, fo_dtype type)

    ctypedef struct fo_separable:
        const fo_conv2d *expand
        const fo_conv2d *depthwise
        const fo_conv2d *pointwise
    fo_status fo_separable_run(const fo_separable *block, const fo_conv2d_size *size, const fo_image *x,
                               const fo_image *residual,
                               const fo_image *y)
    fo_status fo_separable_layers(const fo_separable *block, const fo_conv2d_size *size, const fo_image *x,
                                  const fo_image *residual,
                               const fo_image *y)
    bint fo_separable_pays(const fo_separable *block, const fo_conv2d_size *size, bint nhwc)

    bint fo_batch_norm_scale(Py_ssize_t n, const float *gamma, const float *beta, const float *mean, const float *var,
                             double eps,
                             double *scale, double *shift)
    void fo_fold_bias(Py_ssize_t n, const float *bias, const double *scale, const double *shift, float *folded)
    void fo_fold_scale(Py_ssize_t oc, Py_ssize_t each, const float *w, const double *scale, float *folded)


    enum:
        FO_AXES
        FO_BINDINGS
        FO_TENSORS
    ctypedef struct fo_axes:
        int nd
        Py_ssize_t size[8]
        Py_ssize_t stride[4][8]
    void fo_fold(fo_axes *axes)
    ctypedef int fo_map_function
    enum:
        FO_MAP_GATHER
    ctypedef int fo_function
    ctypedef int fo_pool_kind
    ctypedef int fo_reduction
    ctypedef int fo_scatter_kind
    ctypedef int fo_beyond
    ctypedef int fo_interpolation
    ctypedef struct fo_grid_axis:
        const float *places
        float before
        float scale
        float shift
        float low
        float high

    ctypedef struct fo_lifetime:
        Py_ssize_t bytes, first, last, offset
    Py_ssize_t fo_lay_out(fo_lifetime *buffers, Py_ssize_t n)
    enum:
        FO_SIZE_CONSTANT
        FO_SIZE_GIVEN
        FO_SIZE_EQUAL
        FO_SIZE_AT_MOST
    ctypedef struct fo_formula:
        int64_t kind, a, b
    ctypedef enum fo_transform:
        pass
    ctypedef enum fo_rounding:
        FO_BOTH_SIDES
    ctypedef struct fo_resized_axis:
        fo_transform transform
        fo_rounding rounding
        double scale
        Py_ssize_t size, out
    void fo_resize_points(const fo_resized_axis *axis, int64_t *i0, int64_t *i1, float *t)
    bint fo_formulas_run(const fo_formula *formulas, Py_ssize_t n, const int64_t *given, int64_t *values)
    fo_status fo_conv_transpose_run(const fo_conv_transpose *plan, const fo_conv2d_size *size, const fo_image *x,
                                    const fo_image *residual,
                                    const fo_image *y)


include "_steps.pxi"  # fo_step and its arguments


cdef extern from "fusedops/fusedops.h" nogil:
    fo_status fo_suppress(const fo_suppress_args *args, Py_ssize_t *found)
    void fo_suppressed(const fo_suppress_args *args, int64_t *rows)
    void fo_bind(fo_step *step, void *pointer, int slot, Py_ssize_t offset, Py_ssize_t stride_bytes)
    void fo_program_prepare(fo_step *step)
    void fo_program_release(fo_step *steps, Py_ssize_t count)
    fo_status fo_program_run(const fo_step *steps, Py_ssize_t count, char **slots, double *seconds,
                             Py_ssize_t *failed)


cdef extern from "program/fusedops_test.h" nogil:
    ctypedef struct fo_machine:
        Py_ssize_t l1, l2, l3, sets, processors
        bint dot_product, bf16, tiles, half_rate
    const fo_machine *fo_this_machine()
    void fo_set_machine(const fo_machine *machine)
    void fo_forget_kernels()
    int fo_cgroup_quota(const char *root, const char *list)
    Py_ssize_t fo_conv2d_choices()
    int fo_variants_most()
    const char *fo_variant(int i)
    void fo_forget_variants()
