/* fusedops: the C interface.
 *
 * Arrays are float32. Sizes and strides are in elements. A plan (fo_linear, fo_conv2d, ...) holds folded, packed weights for the
 * instruction set that was active when it was made; it is constant afterwards, so its run function may be called from many threads.
 * Functions that can run out of memory return FO_OK or FO_NO_MEMORY; nothing has been written to the output in the second case.
 *
 * Names: m n k of a product; n g ic ih iw oc oh ow kh kw sh sw ph pw dh dw of a convolution (dilation 1 is dense);
 * tensors x w bias residual y; gates i f g o and r z n. An input's arrays are only read.
 */
#ifndef FUSEDOPS_H
#define FUSEDOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { FO_OK, FO_NO_MEMORY } fo_status;

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
const char *fo_threading(void); /* "openmp" or "serial" */
const char *fo_compiler(void);

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
void fo_linear_free(fo_linear *plan);
fo_status fo_linear_run(const fo_linear *plan, ptrdiff_t m, const float *x, ptrdiff_t ldx, const float *residual, ptrdiff_t ldr,
                        float *y, ptrdiff_t ldy);

/* ---- convolution ------------------------------------------------------------------------------------------------ */

/* A batch of images: element (n, c, h, w) stands at data[n*sn + c*sc + h*sh + w*sw]. */
typedef struct {
    float *data;
    ptrdiff_t sn, sc, sh, sw;
} fo_image;

typedef enum { FO_AUTO, FO_DIRECT, FO_WINOGRAD } fo_algorithm;

typedef struct {
    ptrdiff_t ic, oc, groups, kh, kw, sh, sw, dh, dw;
    fo_activation act;
    fo_algorithm algorithm;
} fo_conv2d_shape;

/* The sizes of one call: n images of ih x iw give n of oh x ow. top rows and left columns of zeros stand before each image;
 * those behind it follow from the sizes. */
typedef struct {
    ptrdiff_t n, ih, iw, oh, ow, top, left;
} fo_conv2d_size;

/* y = activation(conv(x, w) + bias + residual), w (oc, ic/groups, kh, kw) contiguous,
 * y[n,o,h,w] = sum over c, i, j of w[o,c,i,j] x[n, c, h*sh + i*dh - top, w*sw + j*dw - left].
 * FO_WINOGRAD needs kh = kw = 3, stride and dilation 1, groups 1. bias may be NULL; so may residual, which has y's shape. */
typedef struct fo_conv2d fo_conv2d;
fo_conv2d *fo_conv2d_create(const fo_conv2d_shape *shape, const float *w, const float *bias);
void fo_conv2d_free(fo_conv2d *plan);
fo_status fo_conv2d_run(const fo_conv2d *plan, const fo_conv2d_size *size, const fo_image *x, const fo_image *residual, const fo_image *y);
/* The kernel that fo_conv2d_run uses for images of this size in this memory order, and the scratch memory it takes, in bytes. */
const char *fo_conv2d_kernel(const fo_conv2d *plan, const fo_conv2d_size *size, bool nhwc);
ptrdiff_t fo_conv2d_scratch(const fo_conv2d *plan, const fo_conv2d_size *size, bool nhwc);

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

#endif
