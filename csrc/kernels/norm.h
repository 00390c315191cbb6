/* y = (x - mean) / sqrt(variance + eps) * scale + shift along fibres; the variance from the differences, in a second
 * sweep. And local response normalisation, whose window runs over the channels of a pixel. */

enum { NORM_SUMS = 2 }; /* of squares, one after the other */

/* Fibres l.. of which each lane holds one. */
INLINE void norm_lanes(const fo_fibres *f, float eps, const float *scale, const float *shift, ptrdiff_t l) {
    const ptrdiff_t w = f->w - l, at = l * f->scale.lane;
    const float *x = f->from + l * f->x.lane;
    float *y = f->to + l * f->y.lane;
    const vf n = v_set1((float)f->n);
    vf mean = v_zero(), variance = v_zero();
    reduce_of_lanes(FO_SUM, 1, x, f->x.lane, f->x.along, f->n, w, &mean);
    mean = v_div(mean, n);
    for (ptrdiff_t p = 0; p < f->n; p++) {
        const vf d = v_sub(v_load_strided(x + p * f->x.along, f->x.lane, w), mean);
        variance = v_fma(d, d, variance);
    }
    const vf factor = v_div(v_set1(1), v_sqrt(v_add(v_div(variance, n), v_set1(eps))));
    for (ptrdiff_t p = 0; p < f->n; p++) {
        vf v = v_mul(v_sub(v_load_strided(x + p * f->x.along, f->x.lane, w), mean), factor);
        if (scale) v = v_mul(v, v_load_strided(scale + at + p * f->scale.along, f->scale.lane, w));
        if (shift) v = v_add(v, v_load_strided(shift + at + p * f->scale.along, f->scale.lane, w));
        v_store_strided(y + p * f->y.along, f->y.lane, v, w);
    }
}

/* Elements p .. of a contiguous fibre's scale or shift, which may have one value (`same`). */
INLINE vf norm_parameter(const bool same, const bool whole, const float *at, ptrdiff_t p, vm inside) {
    return same ? v_set1(*at) : whole ? v_load(at + p) : v_load_mask(at + p, inside);
}

/* One vector of a contiguous fibre: its elements p.., of which `inside` are there, or (whole) all. */
INLINE void norm_vector(const bool same, const bool whole, const float *x, float *y, const float *scale,
                        const float *shift, ptrdiff_t p, vm inside, vf mean, vf factor) {
    vf v = v_mul(v_sub(whole ? v_load(x + p) : v_load_mask(x + p, inside), mean), factor);
    if (scale) v = v_mul(v, norm_parameter(same, whole, scale, p, inside));
    if (shift) v = v_add(v, norm_parameter(same, whole, shift, p, inside));
    if (whole)
        v_store(y + p, v);
    else
        v_store_mask(y + p, v, inside);
}

/* A contiguous fibre. */
INLINE void norm_contiguous(const bool same, const float *x, float *y, const float *scale, const float *shift,
                            ptrdiff_t n, float eps) {
    const ptrdiff_t whole = n / VL * VL;
    const vm rest = v_range(0, n - whole);
    const vf mean = v_set1(v_first(reduce_contiguous(FO_SUM, x, n)) / (float)n);
    vf squares[NORM_SUMS];
    UNROLL for (int v = 0; v < NORM_SUMS; v++) squares[v] = v_zero();
    ptrdiff_t p = 0;
    for (; p + NORM_SUMS * VL <= n; p += NORM_SUMS * VL)
        UNROLL for (int v = 0; v < NORM_SUMS; v++) {
            const vf d = v_sub(v_load(x + p + v * VL), mean);
            squares[v] = v_fma(d, d, squares[v]);
        }
    for (; p < n; p += VL) {
        const vm inside = v_range(0, n - p);
        const vf d = v_select(inside, v_sub(v_load_mask(x + p, inside), mean), v_zero());
        squares[0] = v_fma(d, d, squares[0]);
    }
    UNROLL for (int v = 1; v < NORM_SUMS; v++) squares[0] = v_add(squares[0], squares[v]);
    const vf factor = v_set1(1 / sqrtf(v_first(v_sum_lanes(squares[0])) / (float)n + eps));
    for (p = 0; p < whole; p += VL) norm_vector(same, true, x, y, scale, shift, p, rest, mean, factor);
    if (whole < n) norm_vector(same, false, x, y, scale, shift, whole, rest, mean, factor);
}

INLINE void norm_contiguous_fibres(const bool same, const fo_fibres *f, float eps, const float *scale,
                                   const float *shift) {
    for (ptrdiff_t l = 0; l < f->w; l++) {
        const ptrdiff_t at = l * f->scale.lane;
        norm_contiguous(same, f->from + l * f->x.lane, f->to + l * f->y.lane, scale ? scale + at : NULL,
                        shift ? shift + at : NULL, f->n, eps);
    }
}

void FO_NAME(fo_norm)(const fo_fibres *f, float eps, const float *scale, const float *shift) {
    const bool contiguous = f->x.along == 1 && f->y.along == 1 && f->x.lane != 1;
    if (contiguous && f->scale.along == 1) {
        FO_RAN("norm contiguous");
        norm_contiguous_fibres(false, f, eps, scale, shift);
    } else if (contiguous && (!f->scale.along || (!scale && !shift))) {
        FO_RAN("norm contiguous, one scale");
        norm_contiguous_fibres(true, f, eps, scale, shift);
    } else {
        FO_RAN("norm lanes");
        for (ptrdiff_t l = 0; l < f->w; l += VL) norm_lanes(f, eps, scale, shift, l);
    }
}

/* v^-beta of v > 0; 3/4 is the usual beta. */
INLINE vf lrn_power(vf v, float beta) {
    if (beta == 0.75f) {
        const vf root = v_sqrt(v);
        return v_div(v_set1(1), v_mul(root, v_sqrt(root)));
    }
    float lane[VL];
    v_store(lane, v);
    for (int l = 0; l < VL; l++) lane[l] = powf(lane[l], -beta);
    return v_load(lane);
}

/* Row h of image n, channels contiguous: vectors of channels, whose neighbours are loads shifted by one. */
void FO_NAME(fo_lrn_row)(const fo_lrn_args *g, ptrdiff_t n, ptrdiff_t h) {
    /* perhaps far more than there are channels */
    const ptrdiff_t lower = (g->size - 1) / 2, upper = g->size - 1 - lower;
    const ptrdiff_t before = lower < g->c ? lower : g->c - 1, after = upper < g->c ? upper : g->c - 1;
    const vf alpha = v_set1(g->alpha / (float)g->size), bias = v_set1(g->bias);
    for (ptrdiff_t w = 0; w < g->w; w++) {
        const float *x = g->x.data + n * g->x.sn + h * g->x.sh + w * g->x.sw;
        float *y = g->y.data + n * g->y.sn + h * g->y.sh + w * g->y.sw;
        for (ptrdiff_t c = 0; c < g->c; c += VL) {
            vf sum = v_zero();
            for (ptrdiff_t d = -before; d <= after; d++) {
                const vf v = v_load_mask(x + c + d, v_range(-(c + d), g->c - (c + d)));
                sum = v_fma(v, v, sum);
            }
            const vm inside = v_range(0, g->c - c);
            const vf v = v_load_mask(x + c, inside);
            v_store_mask(y + c, v_mul(v, lrn_power(v_fma(alpha, sum, bias), g->beta)), inside);
        }
    }
}
