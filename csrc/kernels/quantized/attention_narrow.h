/* Attention by products of bfloat16 (matmul/attention_bf16.c): operands on their way to registers or memory are rounded
 * there, so that none is read once more.
 *
 *   attention_narrow   a row of scores       weights e^(s - most), rounded, and the sum of these
 *   narrow_scaled      a query               times the scale, rounded
 *   pack_narrow        keys, or values       panels of groups of two steps, rounded
 *
 * Weights are those of attention.h but for the exponential, off by 7.5e-5 of itself where rounding takes 2e-3. What is
 * summed is what the values are multiplied by: then a weighted mean is one, and equal values come out as they are.
 */
#if DOTS_BF16
#include "../attention_scores.h"

/* e^-fall, 0 from 87.7 on: 2^n times a minimax polynomial of degree 3. */
INLINE vf narrow_power(vf fall) {
    const vf x = v_min(v_set1(88), fall), base = v_set1(1.44269504f), pow2 = v_set1(V_POW2);
    const vf z = v_fnma(x, base, pow2), f = v_fnma(x, base, v_sub(pow2, z));
    vf p = v_fma(v_set1(0.055171669f), f, v_set1(0.24261113f));
    p = v_fma(p, f, v_set1(0.69326097f));
    p = v_fma(p, f, v_set1(0.99992806f));
    return v_mul(p, v_pow2(z));
}

/* Weights of the scores at s, and their sum. */
INLINE void narrow_weights(const float *s, vf from, uint16_t *to, vf *total) {
    const vi weights = v_narrow(narrow_power(v_sub(from, v_load(s))), narrow_power(v_sub(from, v_load(s + VL))));
    const vi ones = v_narrow(v_set1(1), v_set1(1));
    v_istore(to, weights);
    v_dot_bf16(*total, weights, ones);
}

/* Weights from n scores, pairs of vectors, whose largest is `most`; 0 from there on to `end`. Returns their sum. */
INLINE float narrow_row(const float *s, float most, uint16_t *to, ptrdiff_t n, ptrdiff_t end) {
    const vf from = v_set1(most);
    vf total[2] = {v_zero(), v_zero()};
    ptrdiff_t p = 0;
    for (; p + 4 * VL <= n; p += 4 * VL)
        UNROLL_FOR (int v = 0; v < 2; v++) narrow_weights(s + p + 2 * v * VL, from, to + p + 2 * v * VL, total + v);
    if (p < n) narrow_weights(s + p, from, to + p, total);
    for (p = n; p < end; p += 2 * VL) v_istore(to + p, v_iset1(0));
    return v_first(v_sum_lanes(v_add(total[0], total[1])));
}

/* Largest scores of some rows come first: one that waits for its own would leave the processor idle. */
INLINE void narrow_rows(const scores_mask kind, const fo_attention_block *b) {
    ptrdiff_t n[SCORE_VECTORS];
    for (ptrdiff_t first = 0, end; first < b->rows; first = end) {
        end = first + SCORE_VECTORS < b->rows ? first + SCORE_VECTORS : b->rows;
        for (ptrdiff_t r = first; r < end; r++) {
            const attention_seen row = attention_begin(kind, b, r);
            n[r - first] = (row.n + 2 * VL - 1) / (2 * VL) * (2 * VL);
            b->to.most[r] = v_first(attention_top(kind, row.s, row.mask, row.n));
            if (n[r - first] - row.n >= VL) v_store(row.s + n[r - first] - VL, v_set1(-INFINITY));
        }
        for (ptrdiff_t r = first; r < end; r++)
            b->to.sum[r] =
                narrow_row(b->scores + r * b->lds, b->to.most[r], b->narrow + r * b->ldn, n[r - first], b->ldn);
    }
}

void FO_NAME(fo_attention_narrow)(const fo_attention_block *b) {
    if (b->added) {
        FO_RAN("attention narrow added");
        narrow_rows(SCORES_ADDED, b);
    } else if (b->taken) {
        FO_RAN("attention narrow taken");
        narrow_rows(SCORES_TAKEN, b);
    } else {
        FO_RAN("attention narrow");
        narrow_rows(SCORES_ALONE, b);
    }
}

void FO_NAME(fo_narrow_scaled)(ptrdiff_t n, const float *x, ptrdiff_t step, float scale, uint16_t *y) {
    const vf by = v_set1(scale);
    ptrdiff_t i = 0;
    for (; step == 1 && i + 2 * VL <= n; i += 2 * VL)
        v_istore(y + i, v_narrow(v_mul(by, v_load(x + i)), v_mul(by, v_load(x + i + VL))));
    for (; i < n; i += VL)
        eb_store_bf16(y + i, v_mul(by, v_load_strided(x + i * step, step, n - i)), (n + 1) / 2 * 2 - i);
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* A block of VL columns, of which n are there, and of 2 * VL steps, of which k are; columns are contiguous. */
INLINE void pack_narrow_columns(const bool whole, ptrdiff_t k, ptrdiff_t n, const float *b, ptrdiff_t bn,
                                ptrdiff_t groups, ptrdiff_t columns, uint16_t *panel) {
    vf t[VL];
    UNROLL_FOR (int l = 0; l < VL; l++, b += bn) {
        v_launder(b);
        t[l] = v_zero();
        if (whole)
            t[l] = v_as_float(v_narrow(v_load(b), v_load(b + VL)));
        else if (l < n)
            t[l] = v_as_float(v_narrow(v_load_tail(b, k), v_load_strided(b + VL, 1, k - VL)));
    }
    v_transpose(t);
    UNROLL_FOR (int u = 0; u < VL; u++, panel += 2 * columns) {
        v_launder(panel);
        if (whole || u < groups) v_istore(panel, v_as_int(t[u]));
    }
}

/* Two steps, or one and zeros. */
INLINE void pack_narrow_group(const bool two, ptrdiff_t n, const float *b, ptrdiff_t bk, ptrdiff_t bn,
                              ptrdiff_t columns, uint16_t *panel) {
    ptrdiff_t j = 0;
    for (; bn == 1 && j + VL <= n; j += VL)
        v_istore(panel + 2 * j, v_narrow_pairs(v_load(b + j), two ? v_load(b + bk + j) : v_zero()));
    for (; j < columns; j += VL) {
        const vf first = v_load_strided(b + j * bn, bn, n - j);
        const vf second = two ? v_load_strided(b + bk + j * bn, bn, n - j) : v_zero();
        v_istore(panel + 2 * j, v_narrow_pairs(first, second));
    }
}

void FO_NAME(fo_pack_narrow)(ptrdiff_t k, ptrdiff_t n, const float *b, ptrdiff_t bk, ptrdiff_t bn, ptrdiff_t groups,
                             ptrdiff_t columns, uint16_t *panel) {
    if (bk == 1) {
        FO_RAN("pack narrow columns");
        for (ptrdiff_t j = 0; j < columns; j += VL)
            for (ptrdiff_t p = 0; p < 2 * groups; p += 2 * VL) {
                const float *from = b + j * bn + p;
                uint16_t *to = panel + p * columns + 2 * j;
                if (j + VL <= n && p + 2 * VL <= k)
                    pack_narrow_columns(true, 2 * VL, VL, from, bn, VL, columns, to);
                else
                    pack_narrow_columns(false, k - p, n - j, from, bn, groups - p / 2, columns, to);
            }
        return;
    }
    FO_RAN("pack narrow groups");
    for (ptrdiff_t g = 0; g < groups; g++, panel += 2 * columns) {
        const float *from = b + 2 * g * bk;
        if (2 * g + 1 < k)
            pack_narrow_group(true, n, from, bk, bn, columns, panel);
        else
            pack_narrow_group(false, 2 * g < k ? n : 0, from, bk, bn, columns, panel);
    }
}
#endif
