/* What one instruction set offers for tensors of int8 and products of bfloat16. A processor that has a dot product
 * of bytes has a table of its own for each set; results are the same integers with either.
 *
 * real = scale * (q - zero_point). Inside, bytes are uint8, or int8 where the set's dot product takes those
 * (is_signed): x ^ flip. */
#ifndef FO_KERNELS_QTABLE_H
#define FO_KERNELS_QTABLE_H

#include "table.h"
#include "../quantized.h"

/* What becomes of a sum: y = activation(residual_scale * (residual - residual_zero) + (sum * scale + bias)), a float
 * or rounded and saturated to a byte. nudge: sums start with their bias, and `bias` is what scale lacks (eb_twice).
 * Operations of floats in this order, a multiply-add rounding once, so that all sets have the same bits. */
typedef struct {
    const int32_t *start;      /* what sums start with; with row_zero the sums of weights; a channel, whole vectors */
    const int32_t *w_zero;     /* likewise zero points of the weights, negated, or NULL */
    const float *scale, *bias; /* a channel, whole vectors */
    const float *nudge;        /* likewise, or NULL */
    bool longer;               /* with nudge: sums may not fit the bits of a float */
    const void *residual;      /* laid out as C with its own ldr, or NULL; of bfloat16 only in products of them */
    ptrdiff_t ldr;
    fo_dtype residual_type;
    float residual_scale;
    int32_t residual_zero;
    float product_scale, product_lo, product_hi; /* 0, or of what the last brackets are rounded to, see eb_residual */
    fo_dtype type;                               /* of C */
    bool clips; /* no activation, or a clip: lo and hi are its bounds, and bytes have scale, bias and residual_scale in
                   units of their scale */
    bool saturates; /* no bounds but those of a byte, and rounded values fit 32 bits */
    float inverse;  /* else 1 / the scale of bytes */
    float lo, hi;   /* of floats; of bytes less zero */
    int32_t zero;   /* of a uint8 */
    fo_activation act;
} fo_qepilogue;

/* C[m,n] = epilogue(A B). A's rows are `segments` of k groups of four steps of int8 or two of bfloat16, the last one
 * padded, each group 4 * phases bytes; a segment begins `segment` bytes behind the one before. There are `lines` such
 * products, each with rows of its own, by one B. B is in panels of nr, 2 * vl or vl columns (fo_qpanel), each segments * k
 * groups of four bytes a column. row_zero and row_scale: those of A's rows, zero points negated, or NULL. row_sums: of
 * the kernel of this name, where weights have zero points. In the place of all these gemm_blockwise takes weights in
 * blocks, and rows of as many bytes (quantized/qblockwise.h), each block of which has a scale and, as row_zero, its
 * bytes' negated sum. */
typedef struct {
    ptrdiff_t m, n, k, segments;
    ptrdiff_t lines, a_line, c_line, r_line; /* how many; to the next: bytes of A, elements of C and of the residual */
    const uint8_t *a;
    ptrdiff_t lda, segment;
    const int8_t *b;
    const fo_blockwise *bits; /* gemm_blockwise: from this column on */
    ptrdiff_t column;
    const int32_t *row_zero, *row_sums;
    const float *row_scale;
    void *c;
    ptrdiff_t ldc;
    fo_qepilogue ep;
} fo_qgemm_args;

/* Patches of an image whose channels are neighbours: rows of kh * kw * c bytes, flipped; what is outside
 * the image is `zero`. */
typedef struct {
    const uint8_t *x; /* the first channel */
    ptrdiff_t sn, sh, sw, c;
    ptrdiff_t ih, iw, oh, ow, kh, kw, top, left;
    ptrdiff_t stride_h, stride_w, dilation_h, dilation_w;
    uint8_t flip, zero;
} fo_qpatches;

/* A depthwise convolution; p.c is 1, and p.x begins at the first channel. w: blocks of 4*vl channels, `block` bytes
 * from one to the next, of each four rows of the kernel kw times 4 vectors of quads, then, of up to three rows, the
 * same a row further down. A last block of few channels has them as often as parts fit a vector (fo_qparts).
 * ep.start, scale, bias and nudge are in the order of quads (fo_quad_channel), those here in that of channels. */
typedef struct {
    fo_qpatches p;
    const int8_t *w;
    ptrdiff_t block;
    const float *scale, *bias, *nudge;
    void *c;                       /* pixels at a distance of `ldc` elements */
    ptrdiff_t ldc, x_step, c_step; /* steps: see planes */
    fo_qepilogue ep;
} fo_qdepthwise_args;

/* y = round(a_scale * a + b_scale * b), or of a product a_scale * a * b, held to lo .. hi: n bytes less their zero
 * points, all in units of y's scale and less its zero point. one: b is b_first throughout. */
typedef struct {
    bool product, one;
    ptrdiff_t n;
    const uint8_t *a, *b;
    uint8_t *y;
    uint8_t a_flip, b_flip, flip;
    int32_t a_zero, b_zero, b_first, zero; /* of uint8 */
    float a_scale, b_scale, lo, hi;
} fo_qpair;

typedef struct {
    const char *name;
    int vl, mr, nr; /* lanes; rows and columns of the GEMM tile */
    int phases;
    int parts; /* most groups of rows in a vector of a depthwise kernel */
    bool is_signed;
    bool tiles;                                    /* large products are by AMX tiles */
    void (*gemm)(const fo_qgemm_args *);           /* of int8 */
    void (*gemm_bf16)(const fo_qgemm_args *);      /* or NULL, where the processor has no dot product of them */
    void (*gemm_blockwise)(const fo_qgemm_args *); /* by weights in blocks */
    void (*row_sums)(const fo_qgemm_args *, int32_t *sums);   /* of A's bytes, m of them */
    void (*narrow)(ptrdiff_t n, const float *x, uint16_t *y); /* floats as bfloat16 */
    /* y = round(x / scale) + zero within bytes, ^ flip */
    void (*quantize)(ptrdiff_t n, const float *x, float scale, int32_t zero, uint8_t flip, uint8_t *y);
    /* y = scale * ((x ^ flip) - zero) */
    void (*dequantize)(ptrdiff_t n, const uint8_t *x, uint8_t flip, int32_t zero, float scale, float *y);
    /* The least and the largest of n floats and 0; NaN where one is */
    void (*range)(ptrdiff_t n, const float *x, float range[2]);
    void (*copy)(ptrdiff_t n, const uint8_t *x, uint8_t flip, uint8_t *y); /* y = x ^ flip */
    void (*patches)(const fo_qpatches *, ptrdiff_t pixel, uint8_t *row);
    void (*depthwise)(const fo_qdepthwise_args *, ptrdiff_t image, ptrdiff_t h, ptrdiff_t end, ptrdiff_t c0,
                      ptrdiff_t c1);
    /* rows of channels, whose images begin at p.x and c and are x_step and c_step elements away from one another, with
     * scratch for `planes` of them; w: `block` bytes a channel, rows of the kernel in whole fours; ep of channels */
    void (*planes)(const fo_qdepthwise_args *, ptrdiff_t c, ptrdiff_t count, ptrdiff_t h, ptrdiff_t end,
                   ptrdiff_t planes, uint8_t *scratch);
    void (*transpose)(ptrdiff_t m, ptrdiff_t n, const uint8_t *x, ptrdiff_t ldx, uint8_t *y,
                      ptrdiff_t ldy);                              /* y[j*ldy + i] = x[i*ldx + j] */
    void (*widen)(ptrdiff_t groups, const uint8_t *x, uint8_t *y); /* four bytes as the operands of two phases */
    void (*pair)(const fo_qpair *);
    void (*max)(ptrdiff_t n, const uint8_t *x, uint8_t flip, uint8_t *y); /* y = the larger of y and x ^ flip */
    /* sums += x ^ flip; whole vectors of sums are there */
    void (*add)(ptrdiff_t n, const uint8_t *x, uint8_t flip, int32_t *sums);
    /* y = round((sums - less) * scale) + zero within bytes, ^ flip; whole vectors of bytes of sums are there */
    void (*mean)(ptrdiff_t n, const int32_t *sums, int32_t less, float scale, int32_t zero, uint8_t flip, uint8_t *y);
} fo_qkernels;

extern const fo_qkernels fo_qkernels_scalar, fo_qkernels_avx2, fo_qkernels_avx2vnni, fo_qkernels_avx512,
    fo_qkernels_avx512vnni, fo_qkernels_avx512bf16, fo_qkernels_avx512amx, fo_qkernels_neon, fo_qkernels_neondot,
    fo_qkernels_neonbf16;

/* Lanes of a vector of quads that are neighbouring channels, and the channel that vector q of a block of four has in a
 * lane: that of v_quads (simd.h). */
static inline ptrdiff_t fo_quad_lanes(ptrdiff_t vl) { return vl / 4 ? 4 : 1; }
static inline ptrdiff_t fo_quad_channel(ptrdiff_t q, ptrdiff_t lane, ptrdiff_t vl) {
    const ptrdiff_t lanes = fo_quad_lanes(vl);
    return lane / lanes * 4 * lanes + q * lanes + lane % lanes;
}

/* Planes of a depthwise kernel (quantized/planes.h): from row to row of the copy, whose bytes outside the image serve
 * the row before, too; bytes of the copy under `rows` output rows, and of those rows with the copy. */
static inline ptrdiff_t fo_qpitch(const fo_qpatches *p) {
    const ptrdiff_t right = (p->ow - 1) * p->stride_w + p->kw - p->left - p->iw;
    return p->iw + (right > p->left ? right : p->left);
}
static inline ptrdiff_t fo_qplane_copy(const fo_qpatches *p, ptrdiff_t rows, ptrdiff_t vl) {
    return ((rows - 1) * p->stride_h + (p->kh - 1) * p->dilation_h + 2) * fo_qpitch(p) + 16 * vl + p->kw + 64;
}
static inline ptrdiff_t fo_qplane_scratch(const fo_qpatches *p, ptrdiff_t rows, ptrdiff_t vl) {
    return (fo_qplane_copy(p, rows, vl) + rows * fo_qpitch(p) + 8 * vl) | 63; /* not a multiple of a line */
}

/* How many times `channels` fit a vector of so many bytes: 1, 2 or 4. */
static inline int fo_qparts(int most, ptrdiff_t channels, ptrdiff_t bytes) {
    return most >= 4 && 4 * channels <= bytes ? 4 : most >= 2 && 2 * channels <= bytes ? 2 : 1;
}

/* One line of a product. */
static inline fo_qgemm_args fo_qline(const fo_qgemm_args *g, ptrdiff_t line) {
    fo_qgemm_args one = *g;
    const ptrdiff_t rows = line * g->m;
    one.lines = 1, one.a += line * g->a_line;
    one.c = (char *)g->c + line * g->c_line * fo_size(g->ep.type);
    if (g->ep.residual)
        one.ep.residual = (const char *)g->ep.residual + line * g->r_line * fo_size(g->ep.residual_type);
    if (g->row_scale) one.row_scale += rows;
    if (g->row_zero) one.row_zero += rows;
    if (g->row_sums) one.row_sums += rows;
    return one;
}

/* Columns of the next panel of B where so many are left. */
static inline ptrdiff_t fo_qpanel(ptrdiff_t left, ptrdiff_t vl, ptrdiff_t nr) {
    const ptrdiff_t vectors = (left + vl - 1) / vl;
    return vectors * vl >= nr ? nr : vectors >= 2 ? 2 * vl : vl;
}

#endif
