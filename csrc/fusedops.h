/* fusedops: the C interface.
 *
 * Arrays are float32. Sizes and strides are in elements. A plan (fo_linear, fo_conv2d, ...) holds folded, packed weights for the
 * instruction set that was active when it was made; it is constant afterwards, so its run function may be called from many threads.
 * Functions that can fail return FO_OK or why they did: FO_NO_MEMORY, or FO_OUTSIDE for an index outside its axis. Nothing has been written
 * to the output then.
 *
 * Names: m n k of a product; n g ic ih iw oc oh ow kh kw sh sw ph pw dh dw of a convolution (dilation 1 is dense);
 * tensors x w bias residual y; gates i f g o and r z n. An input's arrays are only read.
 */
#ifndef FUSEDOPS_H
#define FUSEDOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { FO_OK, FO_NO_MEMORY, FO_OUTSIDE } fo_status;

/* ---- runtime ---------------------------------------------------------------------------------------------------- */

/* Instruction sets in ascending order of preference; fo_isa_count of them, of which fo_isa_available says what this machine runs. */
int fo_isa_count(void);
const char *fo_isa_name(int isa);
bool fo_isa_available(int isa);
int fo_get_isa(void);
void fo_set_isa(int isa);

/* Threads of the next operations; the default is what the affinity mask, the cgroup's quota and OMP_NUM_THREADS allow. */
void fo_set_num_threads(int n);
int fo_get_num_threads(void);
/* Processors' worth of time that the cgroup under this folder (version 2, else 1) grants, rounded up; 0 where it sets no limit. */
int fo_cgroup_quota(const char *folder);
const char *fo_threading(void); /* "openmp", or "serial: " and why */
const char *fo_compiler(void);

/* Bytes of a core's second-level cache, at most 1 MB, for which blocks are made; they decide cuts and scratch, never bits. */
ptrdiff_t fo_near_bytes(void);

/* Whether AVX-512 takes twice as long as shorter vectors, as on AMD's Zen 4: one multiply-add a cycle, not two. It decides the algorithms of plans, which
 * remember it from when they are made. Tests set it. */
bool fo_half_rate(void);
void fo_set_half_rate(bool half);
/* For tests: the kernel variants that ran since they were last forgotten, some names twice, NULL between them. Only a
 * build with FUSEDOPS_TRACE=1 has any. */
int fo_variants_most(void);
const char *fo_variant(int i);
void fo_forget_variants(void);

/* Where results lie in a page (runtime/place.c). Arrays under FO_PLACED bytes are not worth it. */
enum { FO_PAGE = 4096, FO_PLACED = 64 << 10 };
typedef enum {
    FO_BEHIND,       /* half a page and more behind x, at a line of the cache */
    FO_BEHIND_LIGHT, /* of a layer that loads as often as it stores: at the part of a line where x is */
    FO_BETWEEN       /* half as far: what is neither x nor its result */
} fo_place;
size_t fo_place_after(const void *x, fo_place place);             /* in a page, for x */
float *fo_place_in(float *room, const void *x, fo_place place);   /* the first such place in room */
size_t fo_place_of_step(size_t at, size_t bytes, size_t step);    /* from `at` on, for what step `step` of a network writes */

/* Memory of a caller's results, NULL where it cannot be had. The next ones of this thread begin `at` bytes behind a page's start, a multiple of 16. */
void fo_place_results(size_t at);
void *fo_alloc_result(size_t bytes);
void *fo_realloc_result(void *result, size_t bytes);
void fo_free_result(void *result);

/* ---- activations and the epilogue ------------------------------------------------------------------------------- */

typedef enum {
    FO_IDENTITY,
    FO_CLIP,       /* min(max(x, p0), p1): relu is (0, inf), relu6 (0, 6) */
    FO_LEAKY_RELU, /* x > 0 ? x : p0 x */
    FO_PRELU,      /* x > 0 ? x : slopes[channel] x */
    FO_ELU,        /* x > 0 ? x : p0 (e^x - 1) */
    FO_SIGMOID,
    FO_TANH,
    FO_GELU,      /* x/2 (1 + erf(x / sqrt 2)) */
    FO_GELU_TANH, /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    FO_SILU,
    FO_HARDSIGMOID, /* clip(x/6 + 1/2, 0, 1) */
    FO_HARDSWISH,
    FO_SOFTPLUS, /* log(1 + e^x) */
    FO_MISH,     /* x tanh(softplus(x)) */
    FO_ACTIVATIONS
} fo_act_kind;

typedef struct {
    fo_act_kind kind;
    float p0, p1;
    const float *slopes; /* FO_PRELU: one a channel; a plan keeps a copy */
} fo_activation;

/* ---- matrices --------------------------------------------------------------------------------------------------- */

/* y[m,n] = activation(x[m,k] w[n,k]^T + bias[n] + residual[m,n]); w element (j, p) stands at w[j*wn + p*wk]. bias may be NULL. */
typedef struct fo_linear fo_linear;
fo_linear *fo_linear_create(ptrdiff_t n, ptrdiff_t k, const float *w, ptrdiff_t wn, ptrdiff_t wk, const float *bias, fo_activation act);
const char *fo_linear_isa(const fo_linear *plan); /* the set of its kernels */
void fo_linear_free(fo_linear *plan);
fo_status fo_linear_run(const fo_linear *plan, ptrdiff_t m, const float *x, ptrdiff_t ldx, const float *residual, ptrdiff_t ldr,
                        float *y, ptrdiff_t ldy);

/* ---- convolution ------------------------------------------------------------------------------------------------ */

/* A batch of images: element (n, c, h, w) stands at data[n*sn + c*sc + h*sh + w*sw]. */
typedef struct {
    float *data;
    ptrdiff_t sn, sc, sh, sw;
} fo_image;

typedef enum { FO_AUTO, FO_DIRECT, FO_WINOGRAD, FO_WINOGRAD_1D, FO_STRASSEN } fo_named_algorithm;

typedef struct {
    ptrdiff_t ic, oc, groups, kh, kw, sh, sw, dh, dw;
    fo_activation act;
    fo_named_algorithm algorithm;
    bool nhwc; /* the memory order of the images that it is made for; those of the other one have the same bits */
} fo_conv2d_shape;

/* The sizes of one call: n images of ih x iw give n of oh x ow. top rows and left columns of zeros stand before each image;
 * those behind it follow from the sizes. */
typedef struct {
    ptrdiff_t n, ih, iw, oh, ow, top, left;
} fo_conv2d_size;

/* y = activation(conv(x, w) + bias + residual), w (oc, ic/groups, kh, kw) contiguous,
 * y[n,o,h,w] = sum over c, i, j of w[o,c,i,j] x[n, c, h*sh + i*dh - top, w*sw + j*dw - left].
 * FO_WINOGRAD needs kh = kw = 3, sh = sw of 1 or, with dilation 1, 2, groups 1; FO_STRASSEN kh = kw = 1, stride 1, no zeros, groups 1;
 * FO_WINOGRAD_1D sh < kh <= 16, dh 1, not depthwise. bias may be NULL; so may residual, which has y's shape, and scale, one for each output
 * channel, by which w is multiplied as by fo_fold_scale. */
typedef struct fo_conv2d fo_conv2d;
fo_conv2d *fo_conv2d_create(const fo_conv2d_shape *shape, const float *w, const double *scale, const float *bias);
void fo_conv2d_weights(const fo_conv2d *plan, float *w); /* back again, scaled */
const char *fo_conv2d_isa(const fo_conv2d *plan);
void fo_conv2d_free(fo_conv2d *plan);
fo_status fo_conv2d_run(const fo_conv2d *plan, const fo_conv2d_size *size, const fo_image *x, const fo_image *residual, const fo_image *y);

/* Prepared calls: the algorithm, the cut and scratch for images of one size and strides. One is for the threads that there are here, and one for a team
 * that is kept together, or NULL where that is the same. They are constant: any number of threads may run them. Both are NULL where memory is short. */
typedef struct fo_conv2d_call fo_conv2d_call;
void fo_conv2d_prepare(fo_conv2d_call *calls[2], const fo_conv2d *plan, const fo_conv2d_size *size, const fo_image *x, const fo_image *residual,
                       const fo_image *y);
void fo_conv2d_release(fo_conv2d_call *call);

/* fo_conv2d_run by one of these calls of the same arguments, if one is for as many threads as there are now. */
fo_status fo_conv2d_run_prepared(fo_conv2d_call *const calls[2], const fo_conv2d *plan, const fo_conv2d_size *size, const fo_image *x,
                                 const fo_image *residual, const fo_image *y);

/* The kernel that fo_conv2d_run uses for images of this size in this memory order, and the scratch memory it takes, in bytes; NULL: it is FO_NO_MEMORY. */
const char *fo_conv2d_kernel(const fo_conv2d *plan, const fo_conv2d_size *size, bool nhwc, ptrdiff_t *scratch);
/* The algorithms that have a kernel for images of this size, best known first; how many. */
enum { FO_ALGORITHM_NAMES = 8 };
int fo_conv2d_algorithms(const fo_conv2d *plan, const fo_conv2d_size *size, const char *names[FO_ALGORITHM_NAMES]);
/* How often an algorithm has been chosen: calls of sizes that a plan or a program knows choose none. */
ptrdiff_t fo_conv2d_choices(void);
/* The floats from one pixel of x to the next that it reads fastest, where channels are neighbours: those of the channels, or more. */
ptrdiff_t fo_conv2d_pixel(const fo_conv2d *plan);

/* y = activation(the transposed convolution of x + bias + residual), w (ic, oc/groups, kh, kw) contiguous,
 * y[n,o,h,w] = sum of w[c,o,i,j] x[n,c,p,q] over all c, i, j, p, q with h = p*sh + i*dh - top and w = q*sw + j*dw - left.
 * y's channels are neighbours (sc = 1). shape->algorithm is that of the convolutions it is made of. */
typedef struct fo_conv_transpose fo_conv_transpose;
fo_conv_transpose *fo_conv_transpose_create(const fo_conv2d_shape *shape, const float *w, const float *bias);
void fo_conv_transpose_free(fo_conv_transpose *plan);
fo_status fo_conv_transpose_run(const fo_conv_transpose *plan, const fo_conv2d_size *size, const fo_image *x, const fo_image *residual,
                                const fo_image *y);

/* ---- recurrent networks ----------------------------------------------------------------------------------------- */

typedef enum { FO_RNN, FO_LSTM, FO_GRU } fo_cell_kind;

/* One layer in one direction. s = w_ih x + b_ih + w_hh h + b_hh for each gate, and
 *   RNN   h' = activation(s)
 *   LSTM  c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'); with a projection h' = w_hr (sigmoid(o) tanh(c'))
 *   GRU   r = sigmoid(r), z = sigmoid(z), n = tanh(w_in x + b_in + r (w_hn h + b_hn)), h' = (1 - z) n + z h;
 *         without reset_after n = tanh(w_in x + b_in + w_hn (r h) + b_hn) */
typedef struct {
    fo_cell_kind kind;
    ptrdiff_t inputs, hidden, outputs; /* of x, c and h; without a projection outputs = hidden */
    bool reset_after;                  /* GRU */
    fo_activation act;                 /* RNN; not FO_PRELU */
    float clip;                        /* arguments of the gate functions are held in -clip..clip; INFINITY: they are not */
} fo_cell_shape;

/* Contiguous; the gates stand one after another, i f g o or r z n: w_ih (gates*hidden, inputs), w_hh (gates*hidden, outputs),
 * b_ih and b_hh (gates*hidden), w_hr (outputs, hidden), peephole (3, hidden) for i, f and o. All but w_ih and w_hh may be NULL. */
typedef struct {
    const float *w_ih, *w_hh, *b_ih, *b_hh, *w_hr, *peephole;
} fo_cell_weights;

typedef struct fo_cell fo_cell;
fo_cell *fo_cell_create(const fo_cell_shape *shape, const fo_cell_weights *weights);
void fo_cell_free(fo_cell *cell);

/* One step of a batch of rows: x (batch, inputs), h (batch, outputs), c (batch, hidden). h_out is neither x nor h; c_out may be c.
 * Only an LSTM has c and c_out. */
typedef struct {
    const float *x, *h, *c;
    ptrdiff_t ldx, ldh, ldc;
    float *h_out, *c_out;
    ptrdiff_t ldho, ldco;
} fo_cell_io;
fo_status fo_cell_run(const fo_cell *cell, ptrdiff_t batch, const fo_cell_io *io);

/* A stack of layers over a batch of sequences: layer i reads the outputs of layer i - 1, those of its directions side by side.
 * Arrays without strides are contiguous. The state of a row runs over its lengths[row] first steps only, from the last of them where
 * the direction is backwards; y is 0 from there on. */
typedef struct {
    const fo_cell *const *cells; /* layers x directions */
    int layers, directions;
    bool reverse; /* the first direction runs backwards, the second one forwards */
    ptrdiff_t steps, batch;
    const float *x; /* element (t, b, i) at x[t*xt + b*xb + i] */
    ptrdiff_t xt, xb;
    const int64_t *lengths; /* (batch), each in 0..steps; NULL: all are steps */
    const float *h0, *c0;   /* (layers*directions, batch, outputs or hidden); NULL: zeros */
    float *hn, *cn;         /* the same, after the last step; may be h0 and c0 */
    float *y;               /* element (t, b, o) at y[t*yt + b*yb + o] */
    ptrdiff_t yt, yb;
} fo_sequence;
fo_status fo_sequence_run(const fo_sequence *sequence);

/* y = pointwise(depthwise(expand(x))) + residual inside pointwise's activation, in one pass without intermediate images. expand may be
 * NULL; it and pointwise are 1x1 convolutions of one group, stride 1 and no padding, depthwise has one filter for each channel.
 * The size is the depthwise part's. fo_separable_layers: the three one after the other, with the bits that they have by themselves.
 * fo_separable_pays: whether one pass is faster than that; it depends on the size of one image, as the bits of its parts do. */
typedef struct {
    const fo_conv2d *expand, *depthwise, *pointwise;
} fo_separable;
fo_status fo_separable_run(const fo_separable *block, const fo_conv2d_size *size, const fo_image *x, const fo_image *residual, const fo_image *y);
fo_status fo_separable_layers(const fo_separable *block, const fo_conv2d_size *size, const fo_image *x, const fo_image *residual, const fo_image *y);
bool fo_separable_pays(const fo_separable *block, const fo_conv2d_size *size, bool nhwc);

/* Calls of fo_separable_run that are prepared, as fo_conv2d_prepare does. */
typedef struct fo_separable_call fo_separable_call;
void fo_separable_prepare(fo_separable_call *calls[2], const fo_separable *block, const fo_conv2d_size *size, const fo_image *x, const fo_image *residual,
                          const fo_image *y);
void fo_separable_release(fo_separable_call *call);
fo_status fo_separable_run_prepared(fo_separable_call *const calls[2], const fo_separable *block, const fo_conv2d_size *size, const fo_image *x,
                                    const fo_image *residual, const fo_image *y);

/* scale = gamma / sqrt(var + eps), shift = beta - mean * scale, for each of n channels; gamma and beta may be NULL.
 * False where some var + eps is not positive. */
bool fo_batch_norm_scale(ptrdiff_t n, const float *gamma, const float *beta, const float *mean, const float *var, double eps,
                         double *scale, double *shift);

/* folded = bias * scale + shift in double, rounded once; bias may be NULL. */
void fo_fold_bias(ptrdiff_t n, const float *bias, const double *scale, const double *shift, float *folded);

/* folded[o, :] = w[o, :] * scale[o] in double, rounded once; a result below the normal range becomes 0. */
void fo_fold_scale(ptrdiff_t oc, ptrdiff_t each, const float *w, const double *scale, float *folded);

/* ---- passes over memory, one at a time: the unfused path, and what a network needs between its layers ------------- */

/* y[i,j] = activation(x[i,j] * factor[i,j] * scale[c] + shift[c] + residual[i,j]), c = i % channel_rows where channels are rows,
 * else j. factor, scale, shift and residual may be NULL; y may be any of the matrices. */
typedef struct {
    ptrdiff_t m, n;
    const float *x, *factor, *residual;
    float *y;
    ptrdiff_t ldx, ldf, ldr, ldy;
    const float *scale, *shift;
    ptrdiff_t channel_rows; /* 0: channels are columns; else row i has channel i % channel_rows */
    fo_activation act;
} fo_pointwise_args;
void fo_pointwise(const fo_pointwise_args *args);

/* ---- between a network's layers ---------------------------------------------------------------------------------- */

/* The axes that up to three tensors share, outermost first; stride 0 repeats an element. The first tensor is the output.
 * fo_fold orders the axes by the output's strides and merges those that lie as one in every tensor: nd becomes as small as it
 * can be, and at least 1. */
enum { FO_AXES = 8, FO_TENSORS = 3 };
typedef struct {
    int nd;
    ptrdiff_t size[FO_AXES], stride[FO_TENSORS][FO_AXES];
} fo_axes;
void fo_fold(fo_axes *axes);

/* y = x and y = value; axes: y, x. */
typedef struct {
    fo_axes axes;
    float *y;
    const float *x;
} fo_copy_args;
fo_status fo_strided_copy(const fo_copy_args *args);
typedef struct {
    fo_axes axes;
    float *y, value;
} fo_fill_args;
fo_status fo_fill(const fo_fill_args *args);

/* y[.., i, ..] = x[.., indices[i], ..] for count indices in -size..size-1, negative ones from the end.
 * axes: y, x without the axis that is indexed, whose strides are sy and sx. */
typedef struct {
    fo_axes axes;
    float *y;
    const float *x;
    const int64_t *indices;
    ptrdiff_t count, size, sy, sx;
} fo_gather_args;
fo_status fo_gather(const fo_gather_args *args);

/* y = activation(f(a, b)), element by element; axes: y, a, b. Functions of one argument leave b alone. */
typedef enum {
    FO_SAME, FO_SQRT, FO_EXP, FO_LOG, FO_ERF, FO_RECIPROCAL, FO_NEG, FO_ABS,
    FO_ADD, FO_SUB, FO_MUL, FO_DIV, FO_POW, FO_MAX, FO_MIN,
    FO_SLOPE, /* a > 0 ? a : b a */
    FO_FUNCTIONS
} fo_function;
typedef struct {
    fo_axes axes;
    fo_function f;
    float *y;
    const float *a, *b;
    fo_activation act;
} fo_elementwise_args;
fo_status fo_elementwise(const fo_elementwise_args *args);

/* y[n,c,h,w] = the maximum or the mean of x[n, c, h*sh + i*dh - top, w*sw + j*dw - left], i < kh, j < kw, inside the image;
 * the mean's divisor is the number of the window's points with rows in h_lo..h_hi-1 and columns in w_lo..w_hi-1. */
typedef enum { FO_POOL_MAX, FO_POOL_AVERAGE } fo_pool_kind;
typedef struct {
    fo_pool_kind kind;
    ptrdiff_t n, c, ih, iw, oh, ow, kh, kw, sh, sw, dh, dw, top, left, h_lo, h_hi, w_lo, w_hi;
    fo_image x, y;
} fo_pool_args;
fo_status fo_pool(const fo_pool_args *args);

/* y = the mean, sum or maximum of x over the axes `over` (x's strides stand first there); kept: y, x. over.nd <= 3. */
typedef enum { FO_MEAN, FO_SUM, FO_LARGEST } fo_reduction;
typedef struct {
    fo_axes kept, over;
    fo_reduction kind;
    float *y;
    const float *x;
} fo_reduce_args;
fo_status fo_reduce(const fo_reduce_args *args);

/* Along n elements whose strides are sy and sx, for each point of kept (y, x): softmax(x) or its logarithm. */
typedef struct {
    fo_axes kept;
    ptrdiff_t n, sy, sx;
    bool log;
    float *y;
    const float *x;
} fo_softmax_args;
fo_status fo_softmax(const fo_softmax_args *args);

/* y = (x - mean) / sqrt(variance + eps) * scale + shift, mean and variance over n elements with strides sy, sx and ss,
 * for each point of kept (y, x, scale and shift alike, which may be NULL). Where ss is 1, `span` elements in a row share a scale (0: one).
 * x is x + residual where that is given, which lies as x does. rms: the mean counts as 0. y may be x. */
typedef struct {
    fo_axes kept;
    ptrdiff_t n, sy, sx, ss;
    float eps;
    float *y;
    const float *x, *scale, *shift, *residual;
    ptrdiff_t span;
    bool rms;
} fo_norm_args;
fo_status fo_norm(const fo_norm_args *args);

/* y[n,c,h,w] = x[n,c,h,w] / (bias + alpha/size * sum of x[n,d,h,w]^2 over the size channels d around c)^beta. */
typedef struct {
    ptrdiff_t n, c, h, w, size;
    float alpha, beta, bias;
    fo_image x, y;
} fo_lrn_args;
fo_status fo_lrn(const fo_lrn_args *args);

/* y[n,c,h,w] = x interpolated between rows h0[h] and h1[h] at th[h], and columns w0[w] and w1[w] at tw[w];
 * without h1 and w1: x[n, c, h0[h], w0[w]]. */
typedef struct {
    ptrdiff_t n, c, oh, ow;
    fo_image x, y;
    const int64_t *h0, *h1, *w0, *w1;
    const float *th, *tw;
} fo_resize_args;
fo_status fo_resize(const fo_resize_args *args);

/* y[m,n] = activation(scale a[m,k] b[k,n]) for each point of batch (y, a, b); row and column strides of each. */
typedef struct {
    fo_axes batch;
    ptrdiff_t m, n, k, ym, yn, am, ak, bk, bn;
    float *y;
    const float *a, *b;
    float scale;
    fo_activation act;
} fo_matmul_args;
fo_status fo_matmul(const fo_matmul_args *args);

/* y[h,i,:] = sum over j of w[h,i,j] v[g,j,:], w[h,i,:] = softmax over j of (scale q[h,i,:] . k[g,j,:] + mask[h,i,j]),
 * g = h / (heads / kv_heads), for each point of rows (y, q, mask) and keys (no tensor, k, v), of the same sizes. heads
 * is a multiple of kv_heads. A mask is `added`, or a key takes part where `taken` is not 0; one or both are NULL.
 * causal: query i sees the keys j <= i + diagonal. A query that sees none, or whose scores are all -infinity, gives
 * zeros. A row's bits depend on its query and on the keys that it sees; others may be read, and values whose weight is
 * 0 must be finite. Nothing of t x s elements is in memory. */
typedef struct {
    fo_axes rows, keys;
    ptrdiff_t heads, kv_heads, t, s, d, dv; /* queries, keys; elements of a key, of a value */
    ptrdiff_t yh, yt, yd, qh, qt, qd, kh, ks, kd, vh, vs, vd, mh, mt, ms;
    float *y;
    const float *q, *k, *v, *added;
    const uint8_t *taken;
    float scale;
    bool causal;
    ptrdiff_t diagonal;
} fo_attention_args;
fo_status fo_attention(const fo_attention_args *args);

/* ---- sizes of a network -------------------------------------------------------------------------------------------- */

/* A buffer of a network's arena: it is in use from step `first` to step `last`. */
typedef struct {
    ptrdiff_t bytes, first, last, offset;
} fo_lifetime;
/* Gives each buffer its offset; returns the bytes of the arena, -1 where there is no memory to lay it out. */
ptrdiff_t fo_lay_out(fo_lifetime *buffers, ptrdiff_t n);

/* An integer that follows from earlier ones (a and b are their numbers), a constant a, the a-th given; or a condition. */
typedef enum {
    FO_SIZE_CONSTANT, FO_SIZE_GIVEN, FO_SIZE_ADD, FO_SIZE_SUBTRACT, FO_SIZE_MULTIPLY, FO_SIZE_DIVIDE, FO_SIZE_REMAINDER,
    FO_SIZE_EQUAL, FO_SIZE_UNEQUAL, FO_SIZE_LESS, FO_SIZE_AT_MOST
} fo_formula_kind;
typedef struct {
    int64_t kind, a, b;
} fo_formula;
/* Computes n values, division as in Python. Returns whether all conditions hold and nothing overflows. */
bool fo_formulas_run(const fo_formula *formulas, ptrdiff_t n, const int64_t *given, int64_t *values);

/* ---- programs: a whole network in one call ------------------------------------------------------------------------ */

typedef struct {
    const fo_conv2d *plan;
    fo_conv2d_size size;
    fo_image x, residual, y; /* residual.data may be NULL */
    fo_conv2d_call *calls[2]; /* fo_program_prepare */
} fo_conv2d_args;
typedef struct {
    fo_separable block;
    fo_conv2d_size size;
    fo_image x, residual, y;
    fo_separable_call *calls[2];
} fo_separable_args;
typedef struct {
    const fo_conv_transpose *plan;
    fo_conv2d_size size;
    fo_image x, residual, y;
} fo_conv_transpose_args;
typedef struct {
    const fo_linear *plan;
    ptrdiff_t m, ldx, ldr, ldy;
    const float *x, *residual;
    float *y;
} fo_linear_args;

typedef enum {
    FO_CALL_CONV2D, FO_CALL_SEPARABLE, FO_CALL_CONV_TRANSPOSE, FO_CALL_LINEAR, FO_CALL_SEQUENCE, FO_CALL_POINTWISE, FO_CALL_ELEMENTWISE, FO_CALL_COPY, FO_CALL_FILL, FO_CALL_GATHER,
    FO_CALL_POOL, FO_CALL_REDUCE, FO_CALL_SOFTMAX, FO_CALL_NORM, FO_CALL_LRN, FO_CALL_RESIZE, FO_CALL_MATMUL,
    FO_CALL_ATTENTION
} fo_call_kind;

/* One prepared call. A pointer of its arguments that is bound to a slot holds an offset in bytes from that slot's memory,
 * which each run chooses; the other pointers are final. Steps in a row may run several times as a section, on one part of
 * their memory after the other: the last of them knows how often and how far back the first is. */
typedef struct {
    fo_call_kind kind;
    ptrdiff_t rounds, back;
    int bindings;
    struct {
        ptrdiff_t at; /* of the pointer, in bytes from the step's start */
        ptrdiff_t advance; /* bytes from one round to the next */
        int slot;
    } binding[8];
    union {
        fo_conv2d_args conv2d;
        fo_separable_args separable;
        fo_conv_transpose_args conv_transpose;
        fo_linear_args linear;
        fo_sequence sequence;
        fo_pointwise_args pointwise;
        fo_elementwise_args elementwise;
        fo_copy_args copy;
        fo_fill_args fill;
        fo_gather_args gather;
        fo_pool_args pool;
        fo_reduce_args reduce;
        fo_softmax_args softmax;
        fo_norm_args norm;
        fo_lrn_args lrn;
        fo_resize_args resize;
        fo_matmul_args matmul;
        fo_attention_args attention;
    };
} fo_call;

/* Binds the pointer at `pointer` inside step to a slot. */
void fo_bind(fo_call *step, void *pointer, int slot, ptrdiff_t offset, ptrdiff_t advance);
/* Prepares the call of a step whose arguments are bound, so that no run chooses anything; frees what steps have prepared. */
void fo_program_prepare(fo_call *step);
void fo_program_release(fo_call *steps, ptrdiff_t count);
/* Runs the steps in order on this run's memory; seconds, if given, gets the time of each. */
fo_status fo_program_run(const fo_call *steps, ptrdiff_t count, char *const *slots, double *seconds);

#ifndef FO_ISA /* kernels of floats do without */
#include "quantized.h"
#endif

#endif
