/* Lanes that do not stand side by side, and what the lanes hold together. */
#ifndef FO_LANES_H
#define FO_LANES_H

#include "../include/fusedops/dtype.h"

/* VL elements of a type, a literal, as floats: `at` elements after p. */
INLINE vf v_load_as(const fo_dtype type, const void *p, const ptrdiff_t at) {
    if (type == FO_F16) return v_load_f16((const uint16_t *)p + at);
    return type == FO_BF16 ? v_load_bf16((const uint16_t *)p + at) : v_load((const float *)p + at);
}

/* n elements, `stride` apart; of n <= 0, nothing is read or written. */
INLINE vf v_load_strided(const float *p, ptrdiff_t stride, ptrdiff_t n) {
    if (stride == 1) return v_load_tail(p, n);
    if (stride == 0) return n > 0 ? v_set1(*p) : v_zero();
    float lane[VL] = {0};
    for (int l = 0; l < VL && l < n; l++) lane[l] = p[l * stride];
    return v_load(lane);
}

INLINE void v_store_strided(float *p, ptrdiff_t stride, vf v, ptrdiff_t n) {
    if (stride == 1) {
        v_store_tail(p, v, n);
        return;
    }
    float lane[VL];
    v_store(lane, v);
    for (int l = 0; l < VL && l < n; l++) p[l * stride] = lane[l];
}

/* The larger one and the smaller one; a NaN in either goes through. */
INLINE vf v_largest(vf a, vf b) { return v_select(v_isnan(a), a, v_max(a, b)); }
INLINE vf v_least(vf a, vf b) { return v_select(v_isnan(a), a, v_min(a, b)); }

INLINE float v_first(vf v) {
    float lane[VL];
    v_store(lane, v);
    return lane[0];
}

/* The sum of all lanes and the largest one, in every lane. */
INLINE vf v_sum_lanes(vf v) {
    UNROLL_FOR (int half = VL / 2; half; half /= 2) v = v_add(v, v_concat(v, v, half));
    return v;
}

/* Long sums are of blocks of so many terms: equal ones round the same way each time, where the products of
 * FO_CHAIN_BLOCK rarely do. */
enum { FO_SUM_BLOCK = 32 };

/* sum += x less what the additions before have lost, which is found anew (Kahan): the error of a sum does not grow with
 * its length. An infinite sum loses nothing. */
INLINE void v_add_keeping(vf *sum, vf *lost, vf x) {
    const vf before = *sum, term = v_sub(x, *lost), after = v_add(before, term),
             losing = v_sub(v_sub(after, before), term);
    *sum = after, *lost = v_select(v_lt(v_abs(losing), v_set1(INFINITY)), losing, v_zero());
}

/* The sum of VL vectors, in the order in which v_sum_lanes takes the lanes of one. */
INLINE vf v_sum_vectors(vf v[VL]) {
    for (int half = VL / 2; half; half /= 2)
        for (int l = 0; l < half; l++) v[l] = v_add(v[l], v[l + half]);
    return v[0];
}

INLINE vf v_largest_lane(vf v) {
    UNROLL_FOR (int half = VL / 2; half; half /= 2) v = v_largest(v, v_concat(v, v, half));
    return v;
}

/* A function of libm, lane by lane, where an exact result matters more than time. */
INLINE vf v_lanes(float (*f)(float), vf v) {
    float lane[VL];
    v_store(lane, v);
    for (int l = 0; l < VL; l++) lane[l] = f(lane[l]);
    return v_load(lane);
}

#endif
