/* Scores of a block of keys before they become weights: bounded, masked, and the largest of a row; for weights in
 * float32 (attention.h) and in bfloat16 (quantized/attention_narrow.h).
 *
 * Where all scores are -infinity the maximum counts as -FLT_MAX: their weights are 0 then, and not NaN. A NaN reaches
 * its row by way of the weights and the sum. */

enum { SCORE_VECTORS = 4 };

typedef enum { SCORES_ALONE, SCORES_ADDED, SCORES_TAKEN } scores_mask;

/* The mask's row for row r of the block: as it is, or the elements of one that is not contiguous; for TAKEN 1 or 0. */
static const float *attention_mask(const fo_attention_block *b, ptrdiff_t r) {
    const ptrdiff_t at = (b->first + r) % b->group * b->mh + (b->first + r) / b->group * b->mt;
    if (b->added && b->ms == 1) return b->added + at;
    if (b->added)
        for (ptrdiff_t p = 0; p < b->n; p++) b->mask[p] = b->added[at + p * b->ms];
    else if (b->ms == 1)
        for (ptrdiff_t p = 0; p < b->n; p++) b->mask[p] = b->taken[at + p] ? 1 : 0;
    else
        for (ptrdiff_t p = 0; p < b->n; p++) b->mask[p] = b->taken[at + p * b->ms] ? 1 : 0;
    return b->mask;
}

/* A vector of scores, of which `left` are there, unless all are; the others are -infinity. */
INLINE vf attention_scores(const scores_mask kind, const bool all, const float *s, const float *mask, ptrdiff_t left) {
    const vf none = v_set1(-INFINITY);
    const vf m = kind == SCORES_ALONE ? v_zero() : all ? v_load(mask) : v_load_tail(mask, left);
    vf x = v_load(s);
    if (kind == SCORES_ADDED) x = v_add(x, m);
    if (kind == SCORES_TAKEN) x = v_select(v_lt(v_zero(), m), x, none);
    return all ? x : v_select(v_range(0, left), x, none);
}

/* The largest score of n keys, in every lane; the scores in memory are masked then, and -infinity from n on, to whole
 * vectors. */
INLINE vf attention_top(const scores_mask kind, float *s, const float *mask, ptrdiff_t n) {
    vf top[SCORE_VECTORS];
    UNROLL_FOR (int v = 0; v < SCORE_VECTORS; v++) top[v] = v_set1(-INFINITY);
    ptrdiff_t p = 0;
    for (; p + SCORE_VECTORS * VL <= n; p += SCORE_VECTORS * VL)
        UNROLL_FOR (int v = 0; v < SCORE_VECTORS; v++) {
            const vf x = attention_scores(kind, true, s + p + v * VL, mask + p + v * VL, VL);
            top[v] = v_max(x, top[v]);
            if (kind != SCORES_ALONE) v_store(s + p + v * VL, x);
        }
    for (; p < n; p += VL) {
        const vf x = attention_scores(kind, false, s + p, mask + p, n - p);
        top[0] = v_max(x, top[0]);
        v_store(s + p, x);
    }
    UNROLL_FOR (int v = 1; v < SCORE_VECTORS; v++) top[0] = v_max(top[0], top[v]);
    UNROLL_FOR (int half = VL / 2; half; half /= 2) top[0] = v_max(top[0], v_concat(top[0], top[0], half));
    return v_max(top[0], v_set1(-FLT_MAX));
}

/* Scores of n keys, bounded. */
INLINE void attention_cap(float *s, ptrdiff_t n, float softcap) {
    const vf cap = v_set1(softcap), over = v_set1(1 / softcap);
    for (ptrdiff_t p = 0; p < n; p += VL) v_store(s + p, v_mul(cap, v_tanh(v_mul(v_load(s + p), over))));
}

/* A row's scores, of the n keys that it sees, and its mask. */
typedef struct {
    float *s;
    const float *mask;
    ptrdiff_t n;
} attention_seen;

/* Finds what row r sees. Scores are bounded then, and -infinity before its window. */
INLINE attention_seen attention_begin(const scores_mask kind, const fo_attention_block *b, ptrdiff_t r) {
    const ptrdiff_t seen = b->causal ? (b->first + r) / b->group + b->diagonal + 1 : b->n;
    const ptrdiff_t n = seen < 0 ? 0 : seen < b->n ? seen : b->n;
    float *s = b->scores + r * b->lds;
    if (b->softcap > 0) attention_cap(s, n, b->softcap);
    if (b->window)
        for (ptrdiff_t p = 0; p < n && p < seen - b->window; p++) s[p] = -INFINITY;
    return (attention_seen){s, kind == SCORES_ALONE ? NULL : attention_mask(b, r), n};
}
