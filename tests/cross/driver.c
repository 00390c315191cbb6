/* Runs the C interface on the cases of a file and compares the results: on every instruction set of the machine, and
 * twice, with each array right after and right before memory that may not be touched.
 *
 * A case (vectors.py writes them) is a line of text,
 *
 *     kind name activation scalars[3] integers: count, values... inputs: count, sizes... outputs: count, sizes...
 *
 * then the inputs, float each, and of every output the exact values and how far a result may be off, double each. */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../csrc/include/fusedops/fusedops.h"

enum { INTEGERS = 48, INPUTS = 40, OUTPUTS = 3 };

typedef struct {
    char kind[16], name[64];
    int activation;
    float scalars[3];
    ptrdiff_t integers, i[INTEGERS], inputs, in_size[INPUTS], outputs, out_size[OUTPUTS];
    float *in_values[INPUTS];
    double *exact[OUTPUTS], *bound[OUTPUTS];
    const float *in[INPUTS]; /* where this run has them; NULL where the size is 0 */
    float *y[OUTPUTS];
} test_case;

static const char *now = "reading the cases"; /* what a signal interrupts */

static void die(const char *what) {
    printf("FAILED: %s: %s\n", now, what);
    fflush(stdout);
    _exit(2);
}

static void on_signal(int number) { die(number == SIGSEGV ? "memory outside of the arrays is touched" : "signal"); }

/* ---- memory between pages that may not be touched ---- */

static size_t whole_pages(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* n floats that begin where a forbidden page ends, or end where one begins. */
static float *guarded(ptrdiff_t n, bool at_end) {
    const size_t page = whole_pages(1), bytes = (size_t)n * sizeof(float), inside = whole_pages(bytes);
    char *p = mmap(NULL, inside + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + page, inside, PROT_READ | PROT_WRITE)) die("no memory");
    return (float *)(p + page + (at_end ? inside - bytes : 0));
}

static void give_back(const float *p, ptrdiff_t n) {
    const size_t page = whole_pages(1), at = (size_t)p;
    munmap((char *)p - at % page - page, whole_pages((size_t)n * sizeof(float)) + 2 * page);
}

/* ---- one function for each kind of case ---- */

static fo_activation activation(const test_case *t, const float *slopes) {
    return (fo_activation){(fo_act_kind)t->activation, t->scalars[0], t->scalars[1], slopes};
}

static fo_image image(float *data, bool nhwc, ptrdiff_t c, ptrdiff_t h, ptrdiff_t w) {
    if (nhwc) return (fo_image){data, h * w * c, 1, w * c, c};
    return (fo_image){data, c * h * w, h * w, w, 1};
}

/* nd, sizes, then the strides of three tensors; folded, as the operations want them. */
static fo_axes axes(const ptrdiff_t *i) {
    fo_axes a = {.nd = (int)*i++};
    for (int d = 0; d < a.nd; d++) a.size[d] = *i++;
    for (int t = 0; t < 3; t++)
        for (int d = 0; d < a.nd; d++) a.stride[t][d] = *i++;
    fo_fold(&a);
    return a;
}

static fo_status linear(const test_case *t) { /* m n k, fo_dtype of w; slopes x w bias residual */
    const ptrdiff_t m = t->i[0], n = t->i[1], k = t->i[2];
    const fo_weights w = {t->in[2], (fo_dtype)t->i[3]};
    fo_linear *plan = fo_linear_create(n, k, FO_F32, &w, k, 1, t->in[3], activation(t, t->in[0]));
    const fo_status status = fo_linear_run(plan, (fo_types){0}, m, t->in[1], k, t->in[4], n, t->y[0], n);
    fo_linear_free(plan);
    return status;
}

/* m n k, bits, steps of a block, whether rows are rounded; x, q scales zeros as fo_blockwise, bias */
static fo_status bits(const test_case *t) {
    const ptrdiff_t m = t->i[0], n = t->i[1], k = t->i[2], block = t->i[4];
    const fo_blockwise w = {
        (int)t->i[3], block, (k + block - 1) / block, (const uint32_t *)t->in[1], (const uint32_t *)t->in[3], t->in[2]};
    const fo_dtype rows = t->i[5] ? FO_S8 : FO_F32;
    fo_linear *plan = fo_linear_create_blockwise(n, k, rows, &w, t->in[4], activation(t, NULL));
    const fo_status status = fo_linear_run(plan, (fo_types){0}, m, t->in[0], k, NULL, 0, t->y[0], n);
    fo_linear_free(plan);
    return status;
}

/* ic oc groups kh kw sh sw dh dw, as all convolutions begin */
static fo_conv2d_shape conv_shape(const test_case *t, const float *slopes, fo_named_algorithm algorithm, bool nhwc) {
    const ptrdiff_t *i = t->i;
    return (fo_conv2d_shape){i[0],      i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], activation(t, slopes),
                             algorithm, nhwc};
}

static fo_conv2d_size conv_size(const ptrdiff_t *i) { /* after them: n ih iw oh ow top left */
    return (fo_conv2d_size){i[9], i[10], i[11], i[12], i[13], i[14], i[15]};
}

/* and then x and y in NHWC, algorithm, Winograd's tile or 0; slopes x w bias residual */
static fo_status convolution(const test_case *t, bool transposed) {
    const ptrdiff_t *i = t->i;
    const fo_conv2d_shape s = conv_shape(t, t->in[0], (fo_named_algorithm)i[18], i[17]);
    const fo_conv2d_size z = conv_size(i);
    const fo_image x = image((float *)t->in[1], i[16], s.ic, z.ih, z.iw), y = image(t->y[0], i[17], s.oc, z.oh, z.ow);
    fo_image r = y, *residual = t->in[4] ? &r : NULL;
    r.data = (float *)t->in[4];
    fo_status status;
    if (transposed) {
        fo_conv_transpose *plan = fo_conv_transpose_create(&s, FO_F32, t->in[2], t->in[3]);
        status = fo_conv_transpose_run(plan, &z, &x, residual, &y);
        fo_conv_transpose_free(plan);
    } else {
        fo_conv2d *plan = fo_conv2d_create(&s, FO_F32, &(fo_weights){t->in[2], FO_F32}, NULL, t->in[3]);
        ptrdiff_t scratch;
        if (i[19] && strchr(fo_conv2d_kernel(plan, &z, i[16], &scratch), '(')[1] - '0' != i[19])
            die("another tile is chosen");
        status = fo_conv2d_run(plan, &z, &x, residual, &y);
        fo_conv2d_free(plan);
    }
    return status;
}

static fo_status conv2d(const test_case *t) { return convolution(t, false); }
static fo_status conv_transpose(const test_case *t) { return convolution(t, true); }

/* kind inputs hidden outputs, whether reset_after plus 2 of bfloat16; w_ih w_hh b_ih b_hh w_hr peephole from input
 * `first` on */
static fo_cell *cell_of(const test_case *t, ptrdiff_t inputs, int first) {
    const float *const *in = t->in + first;
    const fo_cell_shape s = {.kind = (fo_cell_kind)t->i[0],
                             .inputs = inputs,
                             .hidden = t->i[2],
                             .outputs = t->i[3],
                             .reset_after = t->i[4] & 1,
                             .a = t->i[4] & 2 ? FO_BF16 : FO_F32,
                             .act = activation(t, NULL),
                             .gate = {.kind = FO_SIGMOID},
                             .out = {.kind = FO_TANH},
                             .clip = t->scalars[2],
                             .cell_clip = INFINITY};
    const fo_weights w_ih = {in[0], FO_F32}, w_hh = {in[1], FO_F32}, w_hr = {in[4], FO_F32};
    return fo_cell_create(
        &s,
        &(fo_cell_weights){.w_ih = w_ih, .w_hh = w_hh, .w_hr = w_hr, .b_ih = in[2], .b_hh = in[3], .peephole = in[5]});
}

static fo_status cell(const test_case *t) { /* as cell_of, then the batch; x h c, then as cell_of */
    const ptrdiff_t inputs = t->i[1], hidden = t->i[2], outputs = t->i[3];
    fo_cell *plan = cell_of(t, inputs, 3);
    const fo_cell_io io = {.x = t->in[0],
                           .h = t->in[1],
                           .c = t->in[2],
                           .ldx = inputs,
                           .ldh = outputs,
                           .ldc = hidden,
                           .h_out = t->y[0],
                           .c_out = t->y[1],
                           .ldho = outputs,
                           .ldco = hidden};
    const fo_status status = fo_cell_run(plan, t->i[5], &io);
    fo_cell_free(plan);
    return status;
}

/* as cell_of, then layers directions reverse steps batch, whether there are lengths, the lengths;
 * x h0 c0, then as cell_of for each */
static fo_status sequence(const test_case *t) {
    enum { CELLS = 4 };
    const ptrdiff_t inputs = t->i[1], outputs = t->i[3], batch = t->i[9];
    const int layers = (int)t->i[5], directions = (int)t->i[6];
    fo_cell *cells[CELLS];
    int64_t lengths[16];
    for (int i = 0; i < layers * directions; i++)
        cells[i] = cell_of(t, i < directions ? inputs : directions * outputs, 3 + 6 * i);
    for (ptrdiff_t b = 0; b < batch; b++) lengths[b] = t->i[11 + b];
    const fo_sequence s = {.cells = (const fo_cell *const *)cells,
                           .layers = layers,
                           .directions = directions,
                           .reverse = t->i[7],
                           .steps = t->i[8],
                           .batch = batch,
                           .lengths = t->i[10] ? lengths : NULL,
                           .x = t->in[0],
                           .xt = batch * inputs,
                           .xb = inputs,
                           .h0 = t->in[1],
                           .c0 = t->in[2],
                           .y = t->y[0],
                           .yt = batch * directions * outputs,
                           .yb = directions * outputs,
                           .hn = t->y[1],
                           .cn = t->y[2]};
    const fo_status status = fo_sequence_run(&s);
    for (int i = 0; i < layers * directions; i++) fo_cell_free(cells[i]);
    return status;
}

static fo_status pointwise(const test_case *t) { /* m n channel_rows; slopes x factor residual scale shift */
    const ptrdiff_t m = t->i[0], n = t->i[1];
    fo_pointwise(&(fo_pointwise_args){m, n, t->in[1], t->in[2], t->in[3], t->y[0], n, n, n, n, t->in[4], t->in[5],
                                      t->i[2], activation(t, t->in[0])});
    return FO_OK;
}

static fo_status elementwise(const test_case *t) { /* function, axes; a b */
    return fo_elementwise(
        &(fo_elementwise_args){axes(t->i + 1), (fo_function)t->i[0], t->y[0], t->in[0], t->in[1], activation(t, NULL)});
}

static fo_status copy(const test_case *t) { /* axes; x */
    return fo_strided_copy(&(fo_copy_args){axes(t->i), t->y[0], t->in[0], 0});
}

/* kind n c ih iw oh ow kh kw sh sw dh dw top left h_lo h_hi w_lo w_hi; x in NHWC */
static fo_status pool(const test_case *t) {
    fo_pool_args a = {.kind = (fo_pool_kind)t->i[0]};
    memcpy(&a.n, t->i + 1, 18 * sizeof a.n);
    a.x = image((float *)t->in[0], true, a.c, a.ih, a.iw);
    a.y = image(t->y[0], true, a.c, a.oh, a.ow);
    return fo_pool(&a);
}

/* kind, of `over`: nd, sizes and strides in x, three times; axes kept; x */
static fo_status reduce(const test_case *t) {
    const fo_axes over = axes(t->i + 1);
    return fo_reduce(&(fo_reduce_args){axes(t->i + 2 + 4 * t->i[1]), over, (fo_reduction)t->i[0], t->y[0], t->in[0]});
}

static fo_status softmax(const test_case *t) { /* n sy sx log, axes; x */
    return fo_softmax(&(fo_softmax_args){axes(t->i + 4), t->i[0], t->i[1], t->i[2], t->i[3], t->y[0], t->in[0]});
}

static fo_status norm(const test_case *t) { /* n sy sx ss, axes; x scale shift; eps is the first scalar */
    return fo_norm(&(fo_norm_args){axes(t->i + 4), t->i[0], t->i[1], t->i[2], t->i[3], t->scalars[0], t->y[0], t->in[0],
                                   t->in[1], t->in[2], NULL, 0, false});
}

static fo_status lrn(const test_case *t) { /* n c h w size; x in NHWC; scalars alpha beta bias */
    const ptrdiff_t *i = t->i;
    return fo_lrn(&(fo_lrn_args){i[0], i[1], i[2], i[3], i[4], t->scalars[0], t->scalars[1], t->scalars[2],
                                 image((float *)t->in[0], true, i[1], i[2], i[3]),
                                 image(t->y[0], true, i[1], i[2], i[3])});
}

/* n c ih iw oh ow, linear, h0[oh] h1[oh] w0[ow] w1[ow]; x in NHWC, th, tw */
static fo_status resize(const test_case *t) {
    enum { SIDE = 8 };
    const ptrdiff_t n = t->i[0], c = t->i[1], oh = t->i[4], ow = t->i[5];
    const bool linear = t->i[6];
    int64_t at[4][SIDE];
    const ptrdiff_t *from = t->i + 7;
    for (int side = 0; side < 4; side++)
        for (ptrdiff_t j = 0; j < (side < 2 ? oh : ow); j++) at[side][j] = *from++;
    return fo_resize(&(fo_resize_args){n, c, oh, ow, image((float *)t->in[0], true, c, t->i[2], t->i[3]),
                                       image(t->y[0], true, c, oh, ow), at[0], linear ? at[1] : NULL, at[2],
                                       linear ? at[3] : NULL, t->in[1], t->in[2]});
}

static fo_status sample(const test_case *t) { /* points taps c, at[taps][points]; x and w */
    enum { PLACES = 64 };
    int64_t at[PLACES];
    for (ptrdiff_t j = 0; j < t->i[0] * t->i[1]; j++) at[j] = t->i[3 + j];
    fo_sample(&(fo_sample_args){t->i[0], t->i[1], t->i[2], t->i[2], t->i[2], t->in[0], t->in[1], at, t->y[0]});
    return FO_OK;
}

/* n c h w oh ow beyond; x in NHWC, rows and columns in pixels */
static fo_status grid_sample(const test_case *t) {
    const ptrdiff_t *i = t->i;
    const fo_grid_axis rows = {t->in[1], 0, 1, 0, 0, 0}, columns = {t->in[2], 0, 1, 0, 0, 0};
    return fo_grid_sample(&(fo_grid_sample_args){
        i[0], i[1], i[2], i[3], i[4], i[5], image((float *)t->in[0], true, i[1], i[2], i[3]),
        image(t->y[0], true, i[1], i[4], i[5]), rows, columns, i[4] * i[5], i[5], 1, FO_BY_LINEAR, (fo_beyond)i[6]});
}

/* boxes c h w oh ow samples; one x in NHWC, boxes */
static fo_status roi_align(const test_case *t) {
    const ptrdiff_t *i = t->i;
    const int64_t first = 0;
    return fo_roi_align(&(fo_roi_align_args){i[0], 1, i[1], i[2], i[3], i[4], i[5], i[6], 4, 0,
                                             image((float *)t->in[0], true, i[1], i[2], i[3]),
                                             image(t->y[0], true, i[1], i[4], i[5]), t->in[1], &first, 1, 0, true});
}

static fo_status matmul(const test_case *t) { /* m n k ym yn am ak bk bn, axes; a b; the third scalar is the factor */
    const ptrdiff_t *i = t->i;
    return fo_matmul(&(fo_matmul_args){axes(i + 9), i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], t->y[0],
                                       t->in[0], t->in[1], t->scalars[2], activation(t, NULL)});
}

/* heads kv_heads t s d dv causal, strides of the mask; q k v mask; heads are side by side in q and y */
static fo_status attention(const test_case *t) {
    const ptrdiff_t *i = t->i, d = i[4], dv = i[5], none[] = {0};
    return fo_attention(&(fo_attention_args){.rows = axes(none),
                                             .keys = axes(none),
                                             .heads = i[0],
                                             .kv_heads = i[1],
                                             .t = i[2],
                                             .s = i[3],
                                             .d = d,
                                             .dv = dv,
                                             .yh = dv,
                                             .yt = i[0] * dv,
                                             .yd = 1,
                                             .qh = d,
                                             .qt = i[0] * d,
                                             .qd = 1,
                                             .kh = i[3] * d,
                                             .ks = d,
                                             .kd = 1,
                                             .vh = i[3] * dv,
                                             .vs = dv,
                                             .vd = 1,
                                             .mh = i[7],
                                             .mt = i[8],
                                             .ms = i[9],
                                             .y = t->y[0],
                                             .q = t->in[0],
                                             .k = t->in[1],
                                             .v = t->in[2],
                                             .added = t->in[3],
                                             .scale = t->scalars[2],
                                             .causal = i[6],
                                             .a = i[10] ? FO_BF16 : FO_F32});
}

/* Bytes come as the bits of floats, and the last integer says whether they are int8. x has zero point 100, or as much
 * less 128, and a scale of 0.02, y 20 and the third scalar. */
static int less(const test_case *t) { return t->i[t->integers - 1] ? 128 : 0; }
static fo_types types(const test_case *t) {
    const fo_dtype type = less(t) ? FO_S8 : FO_U8;
    return (fo_types){type, type, type};
}
static fo_quantized quantized(const test_case *t) {
    return (fo_quantized){.w_scale = t->in[2],
                          .bias = t->in[3],
                          .nudge = t->inputs > 4 ? t->in[4] : NULL,
                          .x = {0.02f, 100 - less(t)},
                          .y = {t->scalars[2], 20 - less(t)},
                          .act = activation(t, NULL)};
}

/* Bytes that end where memory may not be touched, and then as floats in y[0]. */
static uint8_t *byte_results(const test_case *t) {
    return (uint8_t *)guarded((t->out_size[0] + 3) / 4, true) + (4 - t->out_size[0] % 4) % 4;
}

static void as_results(const test_case *t, uint8_t *bytes) {
    for (ptrdiff_t j = 0; j < t->out_size[0]; j++) t->y[0][j] = less(t) ? (int8_t)bytes[j] : bytes[j];
    give_back((float *)bytes, (t->out_size[0] + 3) / 4);
}

static fo_status qlinear(const test_case *t) { /* m n k; x w scales bias [nudge] */
    const ptrdiff_t m = t->i[0], n = t->i[1], k = t->i[2];
    const fo_quantized q = quantized(t);
    fo_linear *plan = fo_linear_create_int8(n, k, (const int8_t *)t->in[1], k, 1, &q);
    uint8_t *y = byte_results(t);
    const fo_status status = fo_linear_run(plan, types(t), m, t->in[0], k, NULL, 0, y, n);
    fo_linear_free(plan);
    as_results(t, y);
    return status;
}

static fo_status qdynamic(const test_case *t) { /* the same, x and y floats */
    const ptrdiff_t m = t->i[0], n = t->i[1], k = t->i[2];
    const fo_quantized q = {.w_scale = t->in[2], .bias = t->in[3]};
    fo_linear *plan = fo_linear_create_int8(n, k, (const int8_t *)t->in[1], k, 1, &q);
    const fo_status status = fo_linear_run(plan, (fo_types){0}, m, t->in[0], k, NULL, 0, t->y[0], n);
    fo_linear_free(plan);
    return status;
}

static fo_status qrounded(const test_case *t) { /* m n k; x w bias: rounded to bfloat16, y floats */
    const ptrdiff_t m = t->i[0], n = t->i[1], k = t->i[2];
    const fo_weights w = {t->in[1], FO_F32};
    fo_linear *plan = fo_linear_create(n, k, FO_BF16, &w, k, 1, t->in[2], activation(t, NULL));
    const fo_status status = fo_linear_run(plan, (fo_types){0}, m, t->in[0], k, NULL, 0, t->y[0], n);
    fo_linear_free(plan);
    return status;
}

static fo_status qconv2d(const test_case *t) { /* as convolution's up to left, in NHWC; x w scales bias [nudge] */
    const ptrdiff_t *i = t->i;
    const fo_conv2d_shape s = conv_shape(t, NULL, FO_AUTO, i[16]);
    const fo_conv2d_size z = conv_size(i);
    const fo_quantized q = quantized(t);
    fo_conv2d *plan = fo_conv2d_create_int8(&s, (const int8_t *)t->in[1], &q);
    uint8_t *bytes = byte_results(t);
    const fo_image x = image((float *)t->in[0], i[16], s.ic, z.ih, z.iw),
                   y = image((float *)bytes, i[16], s.oc, z.oh, z.ow);
    const fo_status status = fo_conv2d_run_as(plan, types(t), &z, &x, NULL, &y);
    fo_conv2d_free(plan);
    as_results(t, bytes);
    return status;
}

static fo_status qconv2d_bf16(const test_case *t) { /* as convolution's up to left, whether in NHWC; x w bias */
    const bool nhwc = t->i[16];
    const fo_conv2d_shape s = conv_shape(t, NULL, FO_DIRECT, nhwc); /* where float32 multiplies, integers stay exact */
    const fo_conv2d_size z = conv_size(t->i);
    fo_conv2d *plan = fo_conv2d_create(&s, FO_BF16, &(fo_weights){t->in[1], FO_F32}, NULL, t->in[2]);
    const fo_image x = image((float *)t->in[0], nhwc, s.ic, z.ih, z.iw), y = image(t->y[0], nhwc, s.oc, z.oh, z.ow);
    const fo_status status = fo_conv2d_run_as(plan, (fo_types){0}, &z, &x, NULL, &y);
    fo_conv2d_free(plan);
    return status;
}

static const struct {
    const char *kind;
    fo_status (*run)(const test_case *);
} kinds[] = {{"linear", linear},
             {"bits", bits},
             {"conv2d", conv2d},
             {"conv_transpose", conv_transpose},
             {"cell", cell},
             {"sequence", sequence},
             {"pointwise", pointwise},
             {"elementwise", elementwise},
             {"copy", copy},
             {"pool", pool},
             {"reduce", reduce},
             {"softmax", softmax},
             {"norm", norm},
             {"lrn", lrn},
             {"resize", resize},
             {"sample", sample},
             {"roi_align", roi_align},
             {"grid_sample", grid_sample},
             {"matmul", matmul},
             {"attention", attention},
             {"qlinear", qlinear},
             {"qdynamic", qdynamic},
             {"qconv2d", qconv2d},
             {"qrounded", qrounded},
             {"qconv2d_bf16", qconv2d_bf16}};

/* ---- cases ---- */

static ptrdiff_t read_list(FILE *f, ptrdiff_t most, ptrdiff_t *values) {
    ptrdiff_t n;
    if (fscanf(f, "%td", &n) != 1 || n > most) die("not a list");
    for (ptrdiff_t i = 0; i < n; i++)
        if (fscanf(f, "%td", &values[i]) != 1) die("not a number");
    return n;
}

static void *read_array(FILE *f, ptrdiff_t n, size_t each) {
    void *p = malloc((size_t)n * each + 1);
    if (!p || fread(p, each, (size_t)n, f) != (size_t)n) die("not an array");
    return p;
}

static bool read_case(FILE *f, test_case *t) {
    memset(t, 0, sizeof *t);
    float *s = t->scalars;
    if (fscanf(f, "%15s %63s %d %f %f %f", t->kind, t->name, &t->activation, s, s + 1, s + 2) != 6) return false;
    t->integers = read_list(f, INTEGERS, t->i);
    t->inputs = read_list(f, INPUTS, t->in_size);
    t->outputs = read_list(f, OUTPUTS, t->out_size);
    if (fgetc(f) != '\n') die("no end of a line");
    for (ptrdiff_t i = 0; i < t->inputs; i++) t->in_values[i] = read_array(f, t->in_size[i], sizeof(float));
    for (ptrdiff_t o = 0; o < t->outputs; o++) {
        t->exact[o] = read_array(f, t->out_size[o], sizeof(double));
        t->bound[o] = read_array(f, t->out_size[o], sizeof(double));
    }
    return true;
}

static void free_case(test_case *t) {
    for (ptrdiff_t i = 0; i < t->inputs; i++) free(t->in_values[i]);
    for (ptrdiff_t o = 0; o < t->outputs; o++) free(t->exact[o]), free(t->bound[o]);
}

static bool compare(const test_case *t) {
    for (ptrdiff_t o = 0; o < t->outputs; o++) {
        ptrdiff_t bad = 0, first = 0;
        for (ptrdiff_t j = t->out_size[o] - 1; j >= 0; j--) {
            const double y = t->y[o][j], exact = t->exact[o][j];
            if (!(fabs(y - exact) <= t->bound[o][j] || y == exact || (isnan(y) && isnan(exact)))) bad++, first = j;
        }
        if (!bad) continue;
        printf("FAILED: %s: %td of %td elements are off; the first at %td: %.9g for %.9g, allowed %.3g\n", now, bad,
               t->out_size[o], first, t->y[o][first], t->exact[o][first], t->bound[o][first]);
        return false;
    }
    return true;
}

static bool run_case(test_case *t, int kind, bool at_end) {
    for (ptrdiff_t i = 0; i < t->inputs; i++) {
        if (!t->in_size[i]) continue;
        float *p = guarded(t->in_size[i], at_end);
        memcpy(p, t->in_values[i], (size_t)t->in_size[i] * sizeof *p);
        t->in[i] = p;
    }
    for (ptrdiff_t o = 0; o < t->outputs; o++) {
        t->y[o] = guarded(t->out_size[o], at_end);
        for (ptrdiff_t j = 0; j < t->out_size[o]; j++) t->y[o][j] = 7e7f;
    }
    if (kinds[kind].run(t) != FO_OK) die("no memory");
    const bool good = compare(t);
    for (ptrdiff_t i = 0; i < t->inputs; i++)
        if (t->in_size[i]) give_back(t->in[i], t->in_size[i]);
    for (ptrdiff_t o = 0; o < t->outputs; o++) give_back(t->y[o], t->out_size[o]);
    return good;
}

int main(int argc, char **argv) {
    FILE *f = argc == 3 || argc == 4 ? fopen(argv[1], "rb") : NULL;
    if (!f) die("give the file of the cases, what multiplies int8, and how the kinds that are run begin");
    const char *const chosen = argc == 4 ? argv[3] : "";
    const char *products = fo_has_bf16() ? "BFMMLA" : fo_has_dot_product() ? "SDOT" : "multiply-add";
    if (strcmp(argv[2], products)) die("int8 and bfloat16 are multiplied otherwise");
    signal(SIGSEGV, on_signal);
    signal(SIGBUS, on_signal);
    signal(SIGILL, on_signal);
    static char text[128];
    now = text;
    test_case t;
    int passed = 0, failed = 0;
    while (read_case(f, &t)) {
        int kind = 0;
        while (kind < (int)(sizeof kinds / sizeof *kinds) && strcmp(kinds[kind].kind, t.kind)) kind++;
        if (kind == sizeof kinds / sizeof *kinds) die("an unknown kind of case");
        for (int isa = 0; isa < fo_isa_count(); isa++) {
            if (!fo_isa_available(isa) || strncmp(t.kind, chosen, strlen(chosen))) continue;
            fo_set_isa(isa);
            snprintf(text, sizeof text, "%s %s on %s", t.kind, t.name, fo_isa_name(isa));
            const bool good = run_case(&t, kind, false) && run_case(&t, kind, true);
            *(good ? &passed : &failed) += 1;
        }
        free_case(&t);
    }
    fclose(f);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
