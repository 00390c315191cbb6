/* The first place of the largest or least element of each fibre; a NaN counts as such. Where fibres lie side by side, a
 * vector has one element of each; where one is contiguous, some of its own. */
#ifndef FO_ARGMAX_H
#define FO_ARGMAX_H

INLINE bool argmax_before(const bool least, float x, float best) {
    return (least ? x < best : x > best) || (x != x && best == best);
}

/* w fibres side by side, up to four vectors of them, whose elements are counted in 32 bits. */
INLINE void argmax_lanes(const bool least, const fo_fibres *f, const float *x, ptrdiff_t w, int64_t *y) {
    float best[4 * VL];
    int32_t at[4 * VL] = {0};
    for (ptrdiff_t l = 0; l < w; l++) best[l] = x[l];
    for (ptrdiff_t p = 1; p < f->n; p++) {
        const float *const row = x + p * f->x.step;
        for (ptrdiff_t l = 0; l < w; l++) {
            const bool taken = argmax_before(least, row[l], best[l]);
            best[l] = taken ? row[l] : best[l];
            at[l] = taken ? (int32_t)p : at[l];
        }
    }
    for (ptrdiff_t l = 0; l < w; l++) y[l * f->y.lane] = at[l];
}

INLINE int64_t argmax_in(const bool least, const float *x, ptrdiff_t n, ptrdiff_t step) {
    ptrdiff_t at = 0;
    for (ptrdiff_t p = 1; p < n; p++)
        if (argmax_before(least, x[p * step], x[at * step])) at = p;
    return at;
}

/* A contiguous fibre: its best element, then where that is. */
INLINE int64_t argmax_contiguous(const bool least, const float *x, ptrdiff_t n) {
    const float best = v_first(reduce_contiguous(least ? FO_LEAST : FO_LARGEST, false, x, n));
    ptrdiff_t at = 0;
    if (best == best)
        while (at < n - 1 && x[at] != best) at++; /* another thread may write to x meanwhile */
    else
        while (at < n - 1 && x[at] == x[at]) at++;
    return at;
}

INLINE void argmax_fibres(const bool least, const fo_fibres *f, int64_t *y) {
    const bool lanes = f->x.lane == 1 && f->n <= INT32_MAX, contiguous = f->x.step == 1 && f->n >= VL;
    FO_RAN(contiguous && !lanes ? "argmax contiguous" : "argmax");
    for (ptrdiff_t l = 0; l < f->w; l += lanes ? 4 * VL : 1)
        if (lanes)
            argmax_lanes(least, f, f->from + l, l + 4 * VL < f->w ? 4 * VL : f->w - l, y + l * f->y.lane);
        else if (contiguous)
            y[l * f->y.lane] = argmax_contiguous(least, f->from + l * f->x.lane, f->n);
        else
            y[l * f->y.lane] = argmax_in(least, f->from + l * f->x.lane, f->n, f->x.step);
}

void FO_NAME(fo_argmax)(const fo_fibres *f, int64_t *y, bool least) {
    if (least)
        argmax_fibres(true, f, y);
    else
        argmax_fibres(false, f, y);
}

#endif
