/* Floats to bytes and back, and bytes to where products read them. */
#include "../../simd/lanes.h"

INLINE vi flips(uint8_t flip) { return v_iset1((int32_t)(flip * 0x01010101u)); }

/* The four vectors of floats from x on, of which n are there, as bytes. */
INLINE vi to_bytes(const bool all, const float *x, ptrdiff_t n, vf scale, const eb_bounds *b) {
    vi q[4];
    UNROLL_FOR (int v = 0; v < 4; v++) {
        const vf y = all ? v_load(x + v * VL) : n > v * VL ? v_load_tail(x + v * VL, n - v * VL) : v_zero();
        q[v] = eb_round(b, v_div(y, scale));
    }
    return v_pack(q, b->zero);
}

void FO_NAME(fo_quantize)(ptrdiff_t n, const float *x, float scale, int32_t zero, uint8_t flip, uint8_t *y) {
    const eb_bounds b = {v_set1((float)-zero), v_set1((float)(255 - zero)), v_iset1(zero * 0x10001), flips(flip)};
    const vf by = v_set1(scale);
    for (; n >= QUADS; n -= QUADS, x += QUADS, y += QUADS) v_istore(y, v_ixor(to_bytes(true, x, n, by, &b), b.flip));
    if (n) v_store_quads_tail(y, v_ixor(to_bytes(false, x, n, by, &b), b.flip), n);
}

void FO_NAME(fo_dequantize)(ptrdiff_t n, const uint8_t *x, uint8_t flip, int32_t zero, float scale, float *y) {
    const vi mask = v_iset1(flip), less = v_iset1(zero);
    const vf by = v_set1(scale);
    for (; n >= VL; n -= VL, x += VL, y += VL)
        v_store(y, v_mul(v_to_float(v_isub(v_ixor(v_load_bytes(x), mask), less)), by));
    if (n) v_store_tail(y, v_mul(v_to_float(v_isub(v_ixor(v_load_bytes_tail(x, n), mask), less)), by), n);
}

void FO_NAME(fo_range)(ptrdiff_t n, const float *x, float range[2]) {
    vf lo = v_zero(), hi = v_zero();
    for (; n > 0; n -= VL, x += VL) {
        const vf v = n >= VL ? v_load(x) : v_load_tail(x, n);
        lo = v_largest(lo, v_sub(v_zero(), v)), hi = v_largest(hi, v);
    }
    range[0] = 0 - v_first(v_largest_lane(lo)), range[1] = v_first(v_largest_lane(hi));
}

/* Vectors overlap at the end: a tail takes longer. */
INLINE void copy_bytes(ptrdiff_t n, const uint8_t *x, vi mask, uint8_t *y) {
    ptrdiff_t i = 0;
    for (; i + QUADS <= n; i += QUADS) v_istore(y + i, v_ixor(v_iload(x + i), mask));
    if (n >= QUADS && i < n)
        v_istore(y + n - QUADS, v_ixor(v_iload(x + n - QUADS), mask));
    else if (i < n)
        v_store_quads_tail(y, v_ixor(v_load_quads_tail(x, n), mask), n);
}

void FO_NAME(fo_flip)(ptrdiff_t n, const uint8_t *x, uint8_t flip, uint8_t *y) { copy_bytes(n, x, flips(flip), y); }

INLINE void fill_bytes(ptrdiff_t n, vi value, uint8_t *y) {
    for (; n >= QUADS; n -= QUADS, y += QUADS) v_istore(y, value);
    if (n > 0) v_store_quads_tail(y, value, n);
}

/* kw pixels of an image row from column w on. */
INLINE void patch_row(const fo_qpatches *p, const uint8_t *x, ptrdiff_t w, vi mask, vi zero, uint8_t *to) {
    const bool dense = p->dilation_w == 1 && p->sw == p->c;
    ptrdiff_t j = 0;
    if (dense) {
        const ptrdiff_t before = w < 0 ? -w < p->kw ? -w : p->kw : 0, end = p->iw - w < p->kw ? p->iw - w : p->kw;
        fill_bytes(before * p->c, zero, to);
        if (end > before) copy_bytes((end - before) * p->c, x + (w + before) * p->c, mask, to + before * p->c);
        j = end > before ? end : before;
        fill_bytes((p->kw - j) * p->c, zero, to + j * p->c);
        return;
    }
    for (; j < p->kw; j++, w += p->dilation_w, to += p->c) {
        if (w >= 0 && w < p->iw)
            copy_bytes(p->c, x + w * p->sw, mask, to);
        else
            fill_bytes(p->c, zero, to);
    }
}

void FO_NAME(fo_patches)(const fo_qpatches *p, ptrdiff_t pixel, uint8_t *row) {
    const vi mask = flips(p->flip), zero = flips(p->zero);
    const ptrdiff_t image = pixel / (p->oh * p->ow), at = pixel % (p->oh * p->ow);
    const ptrdiff_t w = at % p->ow * p->stride_w - p->left, bytes = p->kw * p->c;
    ptrdiff_t h = at / p->ow * p->stride_h - p->top;
    for (ptrdiff_t i = 0; i < p->kh; i++, h += p->dilation_h, row += p->line) {
        fill_bytes(p->line - bytes, zero, row + bytes);
        if (h >= 0 && h < p->ih)
            patch_row(p, p->x + image * p->sn + h * p->sh, w, mask, zero, row);
        else
            fill_bytes(bytes, zero, row);
    }
}

/* Floats rounded to the nearest bfloat16, halves to even; NaN stays one. In plain C: the compiler makes vectors of
 * it. */
void FO_NAME(fo_narrow)(ptrdiff_t n, const float *restrict x, uint16_t *restrict y) {
    for (ptrdiff_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        const uint32_t rounded = u + 0x7fff + (u >> 16 & 1), quiet = u | 1 << 22;
        y[i] = (uint16_t)(((u & INT32_MAX) > 0x7f800000 ? quiet : rounded) >> 16);
    }
}

#if DOTS_BF16
/* The same by the instruction. Denormals become zeros, as products count them. */
void FO_NAME(fo_narrow_bf16)(ptrdiff_t n, const float *x, uint16_t *y) {
    for (; n >= VL; n -= VL, x += VL, y += VL) v_store_bf16(y, v_load(x));
    if (n) eb_store_bf16(y, v_load_tail(x, n), n);
}
#endif

/* Sets of two phases: even bytes of a group as 16-bit integers, then odd ones. */
INLINE void split(const ptrdiff_t bytes, ptrdiff_t groups, const uint8_t *restrict x, uint8_t *restrict y) {
    const uint32_t odd = bytes == 3 ? 0xff : 0x00ff00ff;
    for (ptrdiff_t g = 0; g < groups; g++) {
        uint32_t four, two[2];
        memcpy(&four, x + bytes * g, sizeof four);
        two[0] = four & 0x00ff00ff, two[1] = four >> 8 & odd;
        memcpy(y + 8 * g, two, sizeof two);
    }
}

void FO_NAME(fo_split)(ptrdiff_t groups, ptrdiff_t bytes, const uint8_t *x, uint8_t *y) {
    bytes == 3 ? split(3, groups, x, y) : split(4, groups, x, y);
}
