/* Bytes to bytes between layers: sums and products of two tensors, maxima and means of windows. */
#include "qepilogue.h"

/* VL bytes as integers less their zero point; those after n are anything. */
INLINE vi less_zero(const uint8_t *x, ptrdiff_t n, vi flip, vi zero) {
    return v_isub(v_ixor(n >= VL ? v_load_bytes(x) : v_load_bytes_tail(x, n > 0 ? n : 0), flip), zero);
}

INLINE vi pair_bytes(const bool product, const fo_qpair *p, const eb_bounds *b, ptrdiff_t i) {
    const vf a_scale = v_set1(p->a_scale), b_scale = v_set1(p->b_scale);
    vi q[EB_VECTORS];
    UNROLL_FOR (int v = 0; v < EB_VECTORS; v++) {
        const ptrdiff_t at = i + v * VL, n = p->n - at;
        const vi x = less_zero(p->a + at, n, v_iset1(p->a_flip), v_iset1(p->a_zero));
        const vi y = p->one ? v_iset1(p->b_first) : less_zero(p->b + at, n, v_iset1(p->b_flip), v_iset1(p->b_zero));
        q[v] = eb_round(b, product ? v_mul(v_to_float(v_imul(x, y)), a_scale)
                                   : eb_sum(v_to_float(x), a_scale, v_to_float(y), b_scale));
    }
    return v_ixor(v_pack(q, b->zero), b->flip);
}

INLINE void pair_row(const bool product, const fo_qpair *p) {
    const eb_bounds b = {v_set1(p->lo), v_set1(p->hi), v_iset1(p->zero * 0x10001), flips(p->flip)};
    ptrdiff_t i = 0;
    for (; i + QUADS <= p->n; i += QUADS) v_istore(p->y + i, pair_bytes(product, p, &b, i));
    if (i < p->n) v_store_quads_tail(p->y + i, pair_bytes(product, p, &b, i), p->n - i);
}

void FO_NAME(fo_qpair)(const fo_qpair *p) {
    if (p->product)
        pair_row(true, p);
    else
        pair_row(false, p);
}

/* Plain C, which the compiler makes vectors of. */
void FO_NAME(fo_qmax)(ptrdiff_t n, const uint8_t *restrict x, uint8_t flip, uint8_t *restrict y) {
    for (ptrdiff_t i = 0; i < n; i++) {
        const uint8_t v = x[i] ^ flip;
        y[i] = y[i] > v ? y[i] : v;
    }
}

void FO_NAME(fo_qadd)(ptrdiff_t n, const uint8_t *x, uint8_t flip, int32_t *sums) {
    const vi mask = v_iset1(flip);
    for (; n >= VL; n -= VL, x += VL, sums += VL) v_istore(sums, v_iadd(v_iload(sums), v_ixor(v_load_bytes(x), mask)));
    if (n) v_istore(sums, v_iadd(v_iload(sums), v_ixor(v_load_bytes_tail(x, n), mask)));
}

void FO_NAME(fo_qmean)(ptrdiff_t n, const int32_t *sums, int32_t less, float scale, int32_t zero, uint8_t flip,
                       uint8_t *y) {
    const eb_bounds b = {v_set1((float)-zero), v_set1((float)(255 - zero)), v_iset1(zero * 0x10001), flips(flip)};
    for (ptrdiff_t i = 0; i < n; i += QUADS) {
        vi q[EB_VECTORS];
        UNROLL_FOR (int v = 0; v < EB_VECTORS; v++)
            q[v] = eb_round(&b, v_mul(v_to_float(v_isub(v_iload(sums + i + v * VL), v_iset1(less))), v_set1(scale)));
        v_store_quads_tail(y + i, v_ixor(v_pack(q, b.zero), b.flip), n - i < QUADS ? n - i : QUADS);
    }
}
