/* What attention does between its two products, a block of keys at a time (matmul/attention.c):
 *
 *   attention_weights   scores s, in memory          most = max(s), s = e^(s - most), sum = sum of s
 *   attention_merge     another block's results      most' = max(most, its most), and sums times e^(most - most')
 *   attention_end       y = values / sum
 *
 * and the products themselves for one query, which reads keys and values of float16 or bfloat16 once, where they lie:
 *
 *   attention_keys      scores = k q                 elements are lanes, whose sums of VL keys are transposed
 *   attention_values    y = weights v                elements are lanes
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

/* Elements of a type of 16 bits from p on: VL, or the `left` > 0 that are there and zeros after them. */
INLINE vf load_narrow(const fo_dtype type, const bool whole, const uint16_t *p, ptrdiff_t left) {
    uint16_t some[VL] = {0};
    if (whole || left >= VL) return v_load_as(type, p, 0);
    for (ptrdiff_t l = 0; l < VL - 1 && l < left; l++) some[l] = p[l];
    return v_load_as(type, some, 0);
}

/* sums[l] += the products of q and key l for VL elements, or those that are `left`. After the last of the `rows` keys
 * the first one is read again. */
INLINE void keys_step(const fo_dtype type, const bool whole, const uint16_t *k, ptrdiff_t ks, ptrdiff_t rows,
                      ptrdiff_t left, const float *q, vf sums[VL]) {
    const vf of_q = whole ? v_load(q) : v_load_tail(q, left);
    UNROLL_FOR (int l = 0; l < VL; l++)
        sums[l] = v_fma(of_q, load_narrow(type, whole, k + (l < rows ? l : 0) * ks, left), sums[l]);
}

/* Scores of VL keys: the sums of each one's lanes, which are transposed, are added up at once. */
INLINE void keys_scores(const fo_dtype type, ptrdiff_t rows, ptrdiff_t d, const uint16_t *k, ptrdiff_t ks,
                        const float *q, float *scores) {
    vf sums[VL];
    UNROLL_FOR (int l = 0; l < VL; l++) sums[l] = v_zero();
    ptrdiff_t p = 0;
    for (; p + VL <= d; p += VL) keys_step(type, true, k + p, ks, rows, VL, q + p, sums);
    if (p < d) keys_step(type, false, k + p, ks, rows, d - p, q + p, sums);
    v_transpose(sums);
    v_store(scores, v_sum_vectors(sums));
}

INLINE void keys_all(const fo_dtype type, ptrdiff_t n, ptrdiff_t d, const uint16_t *k, ptrdiff_t ks, const float *q,
                     float *scores) {
    ptrdiff_t i = 0;
    for (; i + VL <= n; i += VL) keys_scores(type, VL, d, k + i * ks, ks, q, scores + i);
    if (i < n) keys_scores(type, n - i, d, k + i * ks, ks, q, scores + i);
}

/* Scores have room for whole vectors. */
void FO_NAME(fo_attention_keys)(ptrdiff_t n, ptrdiff_t d, fo_dtype type, const uint16_t *k, ptrdiff_t ks,
                                const float *q, float *scores) {
    FO_RAN(type == FO_F16 ? "attention keys of float16" : "attention keys of bfloat16");
    type == FO_F16 ? keys_all(FO_F16, n, d, k, ks, q, scores) : keys_all(FO_BF16, n, d, k, ks, q, scores);
}

/* `vectors` vectors of y, or the `left` elements of one. */
INLINE void values_columns(const fo_dtype type, const int vectors, ptrdiff_t n, const float *weights, const uint16_t *v,
                           ptrdiff_t vs, ptrdiff_t left, float *y) {
    vf sums[8];
    UNROLL_FOR (int c = 0; c < vectors; c++) sums[c] = v_zero();
    for (ptrdiff_t i = 0; i < n; i++, v += vs) {
        const vf w = v_set1(weights[i]);
        UNROLL_FOR (int c = 0; c < vectors; c++)
            sums[c] = v_fma(w, load_narrow(type, vectors > 1, v + c * VL, left), sums[c]);
    }
    UNROLL_FOR (int c = 0; c < vectors; c++) v_store(y + c * VL, sums[c]);
}

INLINE void values_all(const fo_dtype type, ptrdiff_t n, ptrdiff_t d, const float *weights, const uint16_t *v,
                       ptrdiff_t vs, float *y) {
    ptrdiff_t j = 0;
    for (; j + 8 * VL <= d; j += 8 * VL) values_columns(type, 8, n, weights, v + j, vs, 0, y + j);
    for (; j + 4 * VL <= d; j += 4 * VL) values_columns(type, 4, n, weights, v + j, vs, 0, y + j);
    for (; j < d; j += VL) values_columns(type, 1, n, weights, v + j, vs, d - j, y + j);
}

/* y has room for whole vectors. */
void FO_NAME(fo_attention_values)(ptrdiff_t n, ptrdiff_t d, const float *weights, fo_dtype type, const uint16_t *v,
                                  ptrdiff_t vs, float *y) {
    FO_RAN(type == FO_F16 ? "attention values of float16" : "attention values of bfloat16");
    type == FO_F16 ? values_all(FO_F16, n, d, weights, v, vs, y) : values_all(FO_BF16, n, d, weights, v, vs, y);
}
