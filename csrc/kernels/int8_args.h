/* The arguments of kernels of int8, and how their operands lie.
 *
 * real = scale * (q - zero_point). Inside, elements are uint8, or int8 where the set's dot product takes those
 * (is_signed): x ^ flip. */
#ifndef FO_KERNELS_INT8_ARGS_H
#define FO_KERNELS_INT8_ARGS_H

#include "product.h"

/* Patches of an image whose channels are neighbors: rows of kh lines, each kw * c bytes, flipped, in the room of
 * `line`; what is outside the image is `zero`. */
typedef struct {
    const uint8_t *x; /* the first channel */
    ptrdiff_t sn, sh, sw, c, line;
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
    fo_epilogue ep;
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

/* Lanes of a vector of quads that are neighboring channels, and the channel that vector q of a block of four has in a
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

#endif
