/* What attention does between its two products, a block of keys at a time (matmul/attention.c):
 *
 *   attention_weights   scores s, in memory          most = max(s), s = e^(s - most), sum = sum of s
 *   attention_merge     another block's results      most' = max(most, its most), and sums times e^(most - most')
 *   attention_end       y = values / sum
 *
 * and the products themselves for one query, which reads keys and values of float16 once, where they lie:
 *
 *   attention_keys      scores = k q                 rows of keys are lanes: blocks of VL x VL are transposed
 *   attention_values    y = weights v                elements of values are lanes
 *
 * Each block has a maximum of its own, so that its results do not depend on who computes the others; they are merged in
 * order.
 */
#include "attention_scores.h"

/* e^-fall, 0 from 87.7 on. Beyond 20, where it is small against a weight of 1, it is off by 2e-7 of itself. */
INLINE vf attention_power(vf fall) { return v_exp_minus(v_min(v_set1(88), fall), false); }

/* Weights from the scores of a row; 0 from the keys that it sees on to `end`. */
INLINE void attention_row(const scores_mask kind, const attention_seen *row, ptrdiff_t end, float *most, float *sum) {
    enum { STEP = SCORE_VECTORS * VL };
    const ptrdiff_t n = row->n;
    float *s = row->s;
    const vf from = attention_top(kind, s, row->mask, n);
    vf total[SCORE_VECTORS];
    UNROLL_FOR (int v = 0; v < SCORE_VECTORS; v++) total[v] = v_zero();
    ptrdiff_t p = 0;
    for (; p + STEP <= n; p += STEP)
        UNROLL_FOR (int v = 0; v < SCORE_VECTORS; v++) {
            const vf power = attention_power(v_sub(from, v_load(s + p + v * VL)));
            total[v] = v_add(total[v], power);
            v_store(s + p + v * VL, power);
        }
    UNROLL_FOR (int v = 0; v < SCORE_VECTORS; v++)
        if (p + v * VL < n) { /* in the order of whole steps */
            const vf power = attention_power(v_sub(from, v_load(s + p + v * VL)));
            total[v] = v_add(total[v], power);
            v_store(s + p + v * VL, power);
        }
    for (p = (n + VL - 1) / VL * VL; p < end; p += VL) v_store(s + p, v_zero());
    UNROLL_FOR (int v = 1; v < SCORE_VECTORS; v++) total[0] = v_add(total[0], total[v]);
    *most = v_first(from), *sum = v_first(v_sum_lanes(total[0]));
}

INLINE void attention_rows(const scores_mask kind, const fo_attention_block *b) {
    for (ptrdiff_t r = 0; r < b->rows; r++) {
        const attention_seen row = attention_begin(kind, b, r);
        attention_row(kind, &row, b->n, b->to.most + r, b->to.sum + r);
    }
}

void FO_NAME(fo_attention_weights)(const fo_attention_block *b) {
    if (b->added) {
        FO_RAN("attention added");
        attention_rows(SCORES_ADDED, b);
    } else if (b->taken) {
        FO_RAN("attention taken");
        attention_rows(SCORES_TAKEN, b);
    } else {
        FO_RAN("attention");
        attention_rows(SCORES_ALONE, b);
    }
}

/* to = to e^(most - most') + from e^(its most - most') for the values of a row. */
INLINE void attention_add(ptrdiff_t n, float *to, float keep, const float *from, float take) {
    const vf k = v_set1(keep), t = v_set1(take);
    for (ptrdiff_t j = 0; j < n; j += VL) v_store(to + j, v_fma(v_load(from + j), t, v_mul(v_load(to + j), k)));
}

void FO_NAME(fo_attention_merge)(ptrdiff_t rows, ptrdiff_t n, const fo_attended *to, const fo_attended *from) {
    FO_RAN("attention merge");
    float keep[VL], take[VL];
    for (ptrdiff_t r = 0; r < rows; r += VL) {
        const vf a = v_load(to->most + r), b = v_load(from->most + r), most = v_max(a, b);
        const vf k = attention_power(v_sub(most, a)), t = attention_power(v_sub(most, b));
        v_store(keep, k), v_store(take, t);
        v_store(to->most + r, most);
        v_store(to->sum + r, v_fma(v_load(from->sum + r), t, v_mul(v_load(to->sum + r), k)));
        for (ptrdiff_t i = r; i < rows && i < r + VL; i++)
            attention_add(n, to->values + i * to->ld, keep[i - r], from->values + i * from->ld, take[i - r]);
    }
}

/* A sum of 0 is that of a query that sees nothing. */
void FO_NAME(fo_attention_end)(ptrdiff_t n, const float *values, float sum, float *y, ptrdiff_t sy) {
    const bool none = sum == 0;
    const vf over = v_set1(none ? 0 : 1 / sum);
    for (ptrdiff_t j = 0; j < n; j += VL)
        v_store_strided(y + j * sy, sy, none ? v_zero() : v_mul(v_load(values + j), over), n - j);
}

/* n > 0 elements of float16, zeros after them. */
INLINE vf v_load_f16_tail(const uint16_t *p, ptrdiff_t n) {
    uint16_t some[VL] = {0};
    if (n >= VL) return v_load_f16(p);
    for (ptrdiff_t l = 0; l < VL - 1 && l < n; l++) some[l] = p[l];
    return v_load_f16(some);
}

/* VL steps, or the `steps` that are left, of `rows` keys from k on. */
INLINE vf keys_block(const bool whole, const uint16_t *k, ptrdiff_t ks, ptrdiff_t rows, ptrdiff_t steps, const float *q,
                     vf sum) {
    vf t[VL];
    UNROLL_FOR (int l = 0; l < VL; l++)
        t[l] = whole ? v_load_f16(k + l * ks) : l < rows ? v_load_f16_tail(k + l * ks, steps) : v_zero();
    v_transpose(t);
    UNROLL_FOR (int u = 0; u < VL; u++)
        if (whole || u < steps) sum = v_fma(v_set1(q[u]), t[u], sum);
    return sum;
}

/* Scores of `blocks` blocks of VL keys, or of the `rows` keys of one: a block is transposed while another's chain of
 * multiply-adds waits. */
INLINE void keys_scores(const int blocks, ptrdiff_t rows, ptrdiff_t d, const uint16_t *k, ptrdiff_t ks, const float *q,
                        float *scores) {
    const bool whole = blocks > 1 || rows >= VL;
    vf sums[FO_KEYS_BLOCKS];
    UNROLL_FOR (int b = 0; b < blocks; b++) sums[b] = v_zero();
    ptrdiff_t p = 0;
    for (; whole && p + VL <= d; p += VL)
        UNROLL_FOR (int b = 0; b < blocks; b++)
            sums[b] = keys_block(true, k + b * VL * ks + p, ks, VL, VL, q + p, sums[b]);
    for (; p < d; p += VL)
        UNROLL_FOR (int b = 0; b < blocks; b++)
            sums[b] = keys_block(false, k + b * VL * ks + p, ks, rows, d - p, q + p, sums[b]);
    UNROLL_FOR (int b = 0; b < blocks; b++) v_store(scores + b * VL, sums[b]);
}

/* Scores have room for whole vectors. Sums run over the elements in order, as those of floats. */
void FO_NAME(fo_attention_keys)(ptrdiff_t n, ptrdiff_t d, const uint16_t *k, ptrdiff_t ks, const float *q,
                                float *scores) {
    FO_RAN("attention keys of float16");
    ptrdiff_t i = 0;
    for (; i + FO_KEYS_BLOCKS * VL <= n; i += FO_KEYS_BLOCKS * VL)
        keys_scores(FO_KEYS_BLOCKS, FO_KEYS_BLOCKS * VL, d, k + i * ks, ks, q, scores + i);
    for (; i < n; i += VL) keys_scores(1, n - i, d, k + i * ks, ks, q, scores + i);
}

/* `vectors` vectors of y, or the `left` elements of one. */
INLINE void values_columns(const int vectors, ptrdiff_t n, const float *weights, const uint16_t *v, ptrdiff_t vs,
                           ptrdiff_t left, float *y) {
    vf sums[8];
    UNROLL_FOR (int c = 0; c < vectors; c++) sums[c] = v_zero();
    for (ptrdiff_t i = 0; i < n; i++, v += vs) {
        const vf w = v_set1(weights[i]);
        UNROLL_FOR (int c = 0; c < vectors; c++)
            sums[c] = v_fma(w, vectors == 1 ? v_load_f16_tail(v, left) : v_load_f16(v + c * VL), sums[c]);
    }
    UNROLL_FOR (int c = 0; c < vectors; c++) v_store(y + c * VL, sums[c]);
}

/* y has room for whole vectors. */
void FO_NAME(fo_attention_values)(ptrdiff_t n, ptrdiff_t d, const float *weights, const uint16_t *v, ptrdiff_t vs,
                                  float *y) {
    FO_RAN("attention values of float16");
    ptrdiff_t j = 0;
    for (; j + 8 * VL <= d; j += 8 * VL) values_columns(8, n, weights, v + j, vs, 0, y + j);
    for (; j + 2 * VL <= d; j += 2 * VL) values_columns(2, n, weights, v + j, vs, 0, y + j);
    for (; j < d; j += VL) values_columns(1, n, weights, v + j, vs, d - j, y + j);
}
