/* fusedops: layers. A plan holds folded, packed weights for the instruction set that was active when it was made. */
#ifndef FO_LAYERS_H
#define FO_LAYERS_H

#include "types.h"

/* ---- matrices --------------------------------------------------------------------------------------------------- */

/* y[m,n] = activation(x[m,k] w[n,k]^T + bias[n] + residual[m,n]); w element (j, p) is at w[j*wn + p*wk]. bias may
 * be NULL. a: what rows of x are rounded to, FO_F32 (as they are) or, to nearest, ties to even, FO_BF16; then w is
 * rounded, too, and sums are float32. Where the processor has no dot product of bfloat16 the rounded operands are
 * multiplied in float32. */
typedef struct fo_linear fo_linear;
fo_linear *fo_linear_create(ptrdiff_t n, ptrdiff_t k, fo_dtype a, const fo_weights *w, ptrdiff_t wn, ptrdiff_t wk,
                            const float *bias, fo_activation act);
bool fo_has_bf16(void); /* whether the set in use has that dot product */
/* The same of weights in blocks, which are the caller's and outlive the plan. Of rows of FO_F32 up to
 * FO_BLOCKWISE_ROWS unpack them in registers, more rows a panel at a time, with the bits of a product of floats. Of
 * FO_S8 blocks have up to FO_BLOCKWISE_BLOCK steps, each block of a row of x is rounded to int8 by its largest
 * magnitude, and sums of a block are exact. */
#define FO_BLOCKWISE_BLOCK ((1 << 24) / (UINT8_MAX * INT8_MAX))
fo_linear *fo_linear_create_blockwise(ptrdiff_t n, ptrdiff_t k, fo_dtype a, const fo_blockwise *w, const float *bias,
                                      fo_activation act);
/* The same of float32 weights that are the caller's and outlive the plan, for one run: few rows read them where they
 * lie. */
fo_linear *fo_linear_borrow(ptrdiff_t n, ptrdiff_t k, const float *w, ptrdiff_t wn, ptrdiff_t wk, const float *bias,
                            fo_activation act);
const char *fo_linear_isa(const fo_linear *plan); /* the set of its kernels */
/* w (n, k) again, contiguous and widened, of a plan that packed it and is not of int8. */
void fo_linear_weights(const fo_linear *plan, float *w);
ptrdiff_t fo_linear_bytes(const fo_linear *plan); /* of the packed weights */
void fo_linear_free(fo_linear *plan);
/* x, the residual and y are FO_F32, of a plan of bfloat16 FO_BF16, too, and of int8 FO_U8 and FO_S8; ld*: elements from
 * row to row. */
fo_status fo_linear_run(const fo_linear *plan, fo_types types, ptrdiff_t m, const void *x, ptrdiff_t ldx,
                        const void *residual, ptrdiff_t ldr, void *y, ptrdiff_t ldy);
/* The same of a float32 x whose columns are contiguous: element (i, p) at x[i + p*ldx]. */
fo_status fo_linear_run_columns(const fo_linear *plan, ptrdiff_t m, const float *x, ptrdiff_t ldx,
                                const float *residual, ptrdiff_t ldr, float *y, ptrdiff_t ldy);

/* ---- convolution ------------------------------------------------------------------------------------------------ */

#define FO_EACH_NAMED_ALGORITHM(X) \
    X(AUTO, "auto") \
    X(DIRECT, "direct") \
    X(WINOGRAD, "winograd") \
    X(WINOGRAD_1D, "winograd1d")
typedef enum { FO_EACH_NAMED_ALGORITHM(FO_MEMBER) } fo_named_algorithm;

typedef struct {
    ptrdiff_t ic, oc, groups, kh, kw, sh, sw, dh, dw;
    fo_activation act;
    fo_named_algorithm algorithm;
    bool nhwc; /* the memory order of the images that it is made for; results of the other one are bit-identical */
} fo_conv2d_shape;

/* The sizes of one call: n images of ih x iw give n of oh x ow. top rows and left columns of zeros stand before each
 * image; those after it follow from the sizes. */
typedef struct {
    ptrdiff_t n, ih, iw, oh, ow, top, left;
} fo_conv2d_size;

/* y = activation(conv(x, w) + bias + residual), w (oc, ic/groups, kh, kw) contiguous, y[n,o,h,w] = sum over c, i, j of
 * w[o,c,i,j] x[n, c, h*sh + i*dh - top, w*sw + j*dw - left]. FO_WINOGRAD needs kh = kw = 3, sh = sw of 1 or, with
 * dilation 1, 2, groups 1; FO_WINOGRAD_1D sh < kh <= 16, dh 1, not depthwise. bias may be NULL; so may residual, which
 * has y's shape, and scale, one for each output channel, by which w is multiplied as by fo_fold_scale. w->data may be
 * NULL: such a plan predicts times, and cannot be run. */
typedef struct fo_conv2d fo_conv2d;
fo_conv2d *fo_conv2d_create(const fo_conv2d_shape *shape, fo_dtype a, const fo_weights *w, const double *scale,
                            const float *bias);
/* The bytes that the plan keeps of its weights in form number `form`, 0 where it does not (yet) have it, and its name;
 * a negative number where there is no such form. */
ptrdiff_t fo_conv2d_memory(const fo_conv2d *plan, int form, const char **name);
/* The weights back again, scaled, those of a product of bfloat16 as floats; false where memory is short. */
bool fo_conv2d_weights(const fo_conv2d *plan, void *w);
const char *fo_conv2d_isa(const fo_conv2d *plan);
void fo_conv2d_free(fo_conv2d *plan);
fo_status fo_conv2d_run(const fo_conv2d *plan, const fo_conv2d_size *size, const fo_image *x, const fo_image *residual,
                        const fo_image *y);

/* The same of images of other types, as the plan takes them. */
fo_status fo_conv2d_run_as(const fo_conv2d *plan, fo_types types, const fo_conv2d_size *size, const fo_image *x,
                           const fo_image *residual, const fo_image *y);

/* Prepared calls: the algorithm, the cut and scratch for images of one size and strides. One is for the threads that
 * there are here, and one for a team that is kept together, or NULL where that is the same. They are constant: any
 * number of threads may run them. Both are NULL where memory is short. */
typedef struct fo_prepared_conv2d fo_prepared_conv2d;
void fo_conv2d_prepare(fo_prepared_conv2d *calls[2], const fo_conv2d *plan, fo_types types, const fo_conv2d_size *size,
                       const fo_image *x, const fo_image *residual, const fo_image *y);
void fo_conv2d_release(fo_prepared_conv2d *call);

/* fo_conv2d_run_as by one of these calls of the same arguments, if one is for as many threads as there are now. */
fo_status fo_conv2d_run_prepared(fo_prepared_conv2d *const calls[2], const fo_conv2d *plan, fo_types types,
                                 const fo_conv2d_size *size, const fo_image *x, const fo_image *residual,
                                 const fo_image *y);

/* The kernel that fo_conv2d_run uses for images of this size in this memory order, and the scratch memory it takes, in
 * bytes; NULL: it is FO_NO_MEMORY. */
const char *fo_conv2d_kernel(const fo_conv2d *plan, const fo_conv2d_size *size, bool nhwc, ptrdiff_t *scratch);
/* The algorithms that have a kernel for images of this size, best known first; how many. */
enum { FO_ALGORITHM_NAMES = 8 };
int fo_conv2d_algorithms(const fo_conv2d *plan, const fo_conv2d_size *size, const char *names[FO_ALGORITHM_NAMES]);
/* The floats from one pixel of x to the next that it reads fastest, where channels are neighbors: those of the
 * channels, or more. */
ptrdiff_t fo_conv2d_pixel(const fo_conv2d *plan);

/* y = activation(the transposed convolution of x + bias + residual), w (ic, oc/groups, kh, kw) contiguous, y[n,o,h,w] =
 * sum of w[c,o,i,j] x[n,c,p,q] over all c, i, j, p, q with h = p*sh + i*dh - top and w = q*sw + j*dw - left.
 * shape->algorithm is that of the convolutions it is made of. a, and w NULL: as of fo_conv2d_create. */
typedef struct fo_conv_transpose fo_conv_transpose;
fo_conv_transpose *fo_conv_transpose_create(const fo_conv2d_shape *shape, fo_dtype a, const float *w,
                                            const float *bias);
void fo_conv_transpose_free(fo_conv_transpose *plan);
/* What a run of a plan of floats is predicted to take with products of a type, FO_F32 or FO_BF16. */
double fo_conv_transpose_nanoseconds(const fo_conv_transpose *plan, const fo_conv2d_size *size, fo_dtype type);
fo_status fo_conv_transpose_run(const fo_conv_transpose *plan, const fo_conv2d_size *size, const fo_image *x,
                                const fo_image *residual, const fo_image *y);

/* ---- recurrent networks ----------------------------------------------------------------------------------------- */

#define FO_EACH_CELL(X) X(RNN, "RNN") X(LSTM, "LSTM") X(GRU, "GRU")
typedef enum { FO_EACH_CELL(FO_MEMBER) } fo_cell_kind;

/* One layer in one direction. s = w_ih x + b_ih + w_hh h + b_hh for each gate, and
 *   RNN   h' = activation(s)
 *   LSTM  c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c');
 *         with a projection h' = w_hr (sigmoid(o) tanh(c'))
 *   GRU   r = sigmoid(r), z = sigmoid(z), n = tanh(w_in x + b_in + r (w_hn h + b_hn)), h' = (1 - z) n + z h;
 *         without reset_after n = tanh(w_in x + b_in + w_hn (r h) + b_hn)
 * with `gate` for each sigmoid, `act` for an RNN's activation and the tanh of g and n, `out` for that of c'. */
typedef struct {
    fo_cell_kind kind;
    ptrdiff_t inputs, hidden, outputs; /* of x, c and h; without a projection outputs = hidden */
    bool reset_after;                  /* GRU */
    fo_activation act, gate, out;      /* not FO_PRELU */
    /* arguments of the gate functions are held in -clip..clip; INFINITY: they are not */
    float clip;
    float cell_clip; /* LSTM: c' is held in -cell_clip..cell_clip; INFINITY: it is not */
    fo_dtype a;      /* as of fo_linear_create: FO_F32, or FO_BF16 */
    /* w_ih and w_hh are float32 and the caller's, and outlive the cell: steps of few rows read them where they lie */
    bool lends;
} fo_cell_shape;

/* Contiguous; the gates stand one after another, i f g o or r z n: w_ih (gates*hidden, inputs), w_hh (gates*hidden,
 * outputs), b_ih and b_hh (gates*hidden), w_hr (outputs, hidden), peephole (3, hidden) for i, f and o. All but w_ih and
 * w_hh may be NULL.
 *
 * An LSTM without w_hr may have w_ih and w_hh of FO_S8, with a scale and, or NULL, a zero point for each row. x and h
 * are then quantized as they come, x by the range of the whole sequence, h by that of all rows before each step. */
typedef struct {
    fo_weights w_ih, w_hh, w_hr; /* of one type */
    const float *b_ih, *b_hh, *peephole;
    const float *ih_scale, *hh_scale;
    const int8_t *ih_zero, *hh_zero;
} fo_cell_weights;

typedef struct fo_cell fo_cell;
fo_cell *fo_cell_create(const fo_cell_shape *shape, const fo_cell_weights *weights);
/* w_ih and w_hh again, as they came, of a cell that packed them as they are: float32 or float16. */
void fo_cell_weights_again(const fo_cell *cell, void *w_ih, void *w_hh);
void fo_cell_free(fo_cell *cell);

/* One step of a batch of rows: x (batch, inputs), h (batch, outputs), c (batch, hidden). h_out is neither x nor h;
 * c_out may be c. Only an LSTM has c and c_out. */
typedef struct {
    const float *x, *h, *c;
    ptrdiff_t ldx, ldh, ldc;
    float *h_out, *c_out;
    ptrdiff_t ldho, ldco;
} fo_cell_io;
fo_status fo_cell_run(const fo_cell *cell, ptrdiff_t batch, const fo_cell_io *io);

/* A stack of layers over a batch of sequences: layer i reads the outputs of layer i - 1, those of its directions side
 * by side. Arrays without strides are contiguous. The state of a row runs over its lengths[row] first steps only, from
 * the last of them where the direction is backwards; y is 0 from there on. */
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

/* y = pointwise(depthwise(expand(x))) + residual inside pointwise's activation, in one pass without intermediate
 * images. expand may be NULL; it and pointwise are 1x1 convolutions of one group, stride 1 and no padding, depthwise
 * has one filter for each channel. The size is the depthwise part's. fo_separable_layers: the three one after the
 * other, with the bits that they have by themselves. fo_separable_pays: whether one pass is faster than that; it
 * depends on the size of one image, as the bits of its parts do. */
typedef struct {
    const fo_conv2d *expand, *depthwise, *pointwise;
} fo_separable;
fo_status fo_separable_run(const fo_separable *block, const fo_conv2d_size *size, const fo_image *x,
                           const fo_image *residual, const fo_image *y);
fo_status fo_separable_layers(const fo_separable *block, const fo_conv2d_size *size, const fo_image *x,
                              const fo_image *residual, const fo_image *y);
bool fo_separable_pays(const fo_separable *block, const fo_conv2d_size *size, bool nhwc);

/* Calls of fo_separable_run that are prepared, as fo_conv2d_prepare does. */
typedef struct fo_prepared_separable fo_prepared_separable;
void fo_separable_prepare(fo_prepared_separable *calls[2], const fo_separable *block, const fo_conv2d_size *size,
                          const fo_image *x, const fo_image *residual, const fo_image *y);
void fo_separable_release(fo_prepared_separable *call);
fo_status fo_separable_run_prepared(fo_prepared_separable *const calls[2], const fo_separable *block,
                                    const fo_conv2d_size *size, const fo_image *x, const fo_image *residual,
                                    const fo_image *y);

/* scale = gamma / sqrt(var + eps), shift = beta - mean * scale, for each of n channels; gamma and beta may be NULL.
 * False where some var + eps is not positive. */
bool fo_batch_norm_scale(ptrdiff_t n, const float *gamma, const float *beta, const float *mean, const float *var,
                         double eps, double *scale, double *shift);

/* folded = bias * scale + shift in double, rounded once; bias may be NULL. */
void fo_fold_bias(ptrdiff_t n, const float *bias, const double *scale, const double *shift, float *folded);

/* folded[o, :] = w[o, :] * scale[o] in double, rounded once; a result below the normal range becomes 0. */
void fo_fold_scale(ptrdiff_t oc, ptrdiff_t each, const float *w, const double *scale, float *folded);

/* ---- passes over memory, one at a time: the unfused path, and what a network needs between its layers -------------
 */

/* y[i,j] = activation(x[i,j] * factor[i,j] * scale[c] + shift[c] + residual[i,j]), c = i % channel_rows where channels
 * are rows, else j. factor, scale, shift and residual may be NULL; y may be any of the matrices. */
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

#endif
