/* Products of int8 and of bfloat16: packed weights, what sums start with and become, and the cut of C among threads.
 * Layers say where rows of A come from. */
#ifndef FO_NET_QGEMM_H
#define FO_NET_QGEMM_H

#include "../kernels/qtable.h"

/* Weights of `groups` products of n columns and k steps each; arrays a channel have `columns` elements a group, whole
 * vectors. */
typedef struct {
    const fo_qkernels *kn;
    fo_dtype type;     /* of the weights: FO_S8 or FO_BF16 */
    fo_blockwise bits; /* or these, in blocks, where it has any */
    ptrdiff_t groups, n, k;
    ptrdiff_t quads, columns, panels; /* groups of four bytes; columns, padded; bytes of a group's weights */
    int8_t *w;
    int32_t *sums, *start[2]; /* of the weights; what sums start with for x of uint8 and of int8 */
    int32_t *w_zero;          /* zero points of the weights, negated, or NULL */
    float *scale, *bias, *slopes, *nudge;
    double largest; /* of the results before an activation */
    bool longer;    /* than the bits of a float: the sums of results that are rounded twice */
    fo_quantization x, product, residual, y;
    fo_activation act;
} fo_qplan;

/* w element (output o of all groups, step p) is at w[o*wn + p*wk], of a type; of FO_BF16 q has a bias and an activation
 * alone. False where memory is short; free it all the same. */
bool fo_qplan_make(fo_qplan *plan, fo_dtype type, ptrdiff_t groups, ptrdiff_t n, ptrdiff_t k, const void *w,
                   ptrdiff_t wn, ptrdiff_t wk, const fo_quantized *q);
/* The same of one product by weights in blocks of up to FO_BLOCKWISE_BLOCK steps, which are the caller's. */
bool fo_qplan_make_bits(fo_qplan *plan, ptrdiff_t n, ptrdiff_t k, const fo_blockwise *bits, const float *bias,
                        fo_activation act);
void fo_qplan_free(fo_qplan *plan);

/* Where output o of FO_BF16 weights is, of all groups: step s at [s / 2 * *ld + s % 2]. */
const uint16_t *fo_qcolumn_bf16(const fo_qplan *plan, ptrdiff_t o, ptrdiff_t *ld);

/* Whether the depthwise kernel serves: one filter a channel. */
static inline bool fo_qdepthwise(const fo_conv2d_shape *s) {
    return s->groups > 1 && s->groups == s->ic && s->groups == s->oc;
}

/* Channels of a group as a dense convolution has them. A group of three, as a first layer's, gets a fourth one, whose
 * weights are 0: a pixel of a band is whole groups of four bytes. */
static inline ptrdiff_t fo_qchannels(const fo_conv2d_shape *s) {
    const ptrdiff_t c = s->ic / s->groups;
    return c == 3 && s->kh * s->kw > 1 && s->dw == 1 ? c + 1 : c;
}

/* Whether a row of an image is tiles that are full enough: else copies of windows cost less. AMX has tiles of 16. */
static inline bool fo_qfills(const fo_qkernels *kn, ptrdiff_t ow) {
    return ow >= 4 * kn->mr || (kn->tiles && 4 * ow >= 3 * ((ow + 15) / 16 * 16));
}

/* Whether windows are read from bands of the image, of elements of a type; else each is copied. */
static inline bool fo_qbands(const fo_qkernels *kn, fo_dtype type, const fo_conv2d_shape *s, ptrdiff_t ow) {
    const ptrdiff_t c = fo_qchannels(s);
    return s->kh * s->kw > 1 && s->dw == 1 && c * fo_size(type) % 4 == 0 &&
           (c > s->ic / s->groups || fo_qfills(kn, ow));
}

/* How floats become uint8: 255 steps from the least to the largest and zero among them, as ONNX says. Where one is not
 * finite, scale is NaN, and so is all that comes of them. */
typedef struct {
    float step, scale;
    int32_t zero_point;
} fo_qrange;
fo_qrange fo_qrange_of(const fo_qkernels *kn, ptrdiff_t n, const float *x);
/* Of m rows of n floats, on all threads; false where memory is short. */
bool fo_qrange_of_rows(const fo_qkernels *kn, ptrdiff_t m, ptrdiff_t n, const float *x, ptrdiff_t ldx,
                       fo_qrange *range);

/* n floats as uint8 by the range of all, on all threads; false where memory is short. */
bool fo_qby_range(ptrdiff_t n, const float *x, uint8_t *bytes, fo_qrange *range);

/* Writes row i of a group's A, k elements; in int8, where x is of floats, also its scale and its zero point,
 * negated; for weights in blocks whole blocks, and for each a scale and the bytes' negated sum. */
typedef struct fo_qproduct fo_qproduct;
typedef void fo_qrow(const fo_qproduct *, ptrdiff_t group, ptrdiff_t i, uint8_t *row, float *scale, int32_t *zero);

/* C of m rows and groups * n columns; ld*: elements of C and of the residual. */
struct fo_qproduct {
    const fo_qplan *plan;
    fo_types types;
    ptrdiff_t m;
    /* rows as they are, `lda` bytes from row to row, a group's k elements behind another's, if the kernels can take
     * them so: fo_qdirect */
    const uint8_t *a;
    ptrdiff_t lda;
    fo_qrow *row; /* else this makes them, of source */
    const void *source;
    void *c;
    ptrdiff_t ldc;
    const void *residual; /* or NULL */
    ptrdiff_t ldr;
    /* Lines of so many rows, unless it is 0: elements from line to line of C and of the residual. */
    ptrdiff_t line, c_line, r_line;
};

/* Kernels take bytes x ^ flip, whose zero point is x's + offset; bfloat16 as it is. */
static inline uint8_t fo_qflip(const fo_qkernels *kn, fo_dtype type) {
    return type != FO_BF16 && (type == FO_S8) != kn->is_signed ? 0x80 : 0;
}
static inline int32_t fo_qoffset(const fo_qkernels *kn, fo_dtype type) {
    return type == FO_BF16 ? 0 : (type == FO_S8 ? 128 : 0) - (kn->is_signed ? 128 : 0);
}

/* Operands of a group of four bytes: kn->phases of int8. */
static inline int fo_qphases(const fo_qplan *plan) {
    return plan->type == FO_BF16 || plan->bits.bits ? 1 : plan->kn->phases;
}

/* Scales of a row of floats: one, or one a block. */
static inline ptrdiff_t fo_qscales(const fo_qplan *plan) { return plan->bits.bits ? plan->bits.blocks : 1; }

/* What sums start with for x of this type; of floats, whose zero point a run knows, the sums of weights. */
static inline const int32_t *fo_qstart(const fo_qplan *plan, fo_dtype x) {
    return x == FO_F32 ? plan->sums : plan->start[x == FO_S8];
}

static inline bool fo_qdirect(const fo_qplan *plan, fo_dtype x) {
    return x != FO_F32 && !fo_qflip(plan->kn, x) && fo_qphases(plan) == 1 && plan->k * fo_size(plan->type) % 4 == 0;
}
/* The epilogue of a product's calls. */
fo_qepilogue fo_qepilogue_of(const fo_qproduct *product);
fo_status fo_qproduct_run(const fo_qproduct *product);

/* A block by the kernel of its type. */
static inline void fo_qgemm(const fo_qplan *plan, const fo_qgemm_args *g) {
    if (plan->bits.bits)
        plan->kn->gemm_blockwise(g);
    else
        plan->type == FO_BF16 ? plan->kn->gemm_bf16(g) : plan->kn->gemm(g);
}

/* For layers with loops of their own: a product's block from row i and a group's column j on, but for its size and A;
 * ep: fo_qepilogue_of. And the threads that the whole is worth. */
fo_qgemm_args fo_qblock_of(const fo_qproduct *product, const fo_qepilogue *ep, ptrdiff_t group, ptrdiff_t i,
                           ptrdiff_t j);
int fo_qthreads(const fo_qproduct *product);

#endif
