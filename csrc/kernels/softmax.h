/* softmax(x) = e^(x - max) / sum of e^(x - max), and its logarithm x - max - log(sum), along fibres. */

INLINE vf log_lanes(vf v) { return v_lanes(logf, v); }

/* Fibres l.. of which each lane holds one. */
INLINE void softmax_side_by_side(const bool log, const fo_fibres *f, ptrdiff_t l) {
    const ptrdiff_t w = f->w - l;
    const float *x = f->from + l * f->x.lane;
    float *y = f->to + l * f->y.lane;
    vf most = v_set1(-INFINITY), sum = v_zero();
    for (ptrdiff_t p = 0; p < f->n; p++) most = v_largest(most, v_load_strided(x + p * f->x.along, f->x.lane, w));
    for (ptrdiff_t p = 0; p < f->n; p++) {
        const vf d = v_sub(v_load_strided(x + p * f->x.along, f->x.lane, w), most), e = v_exp(d);
        sum = v_add(sum, e);
        v_store_strided(y + p * f->y.along, f->y.lane, log ? d : e, w);
    }
    if (log) sum = log_lanes(sum);
    for (ptrdiff_t p = 0; p < f->n; p++) {
        const vf v = v_load_strided(y + p * f->y.along, f->y.lane, w);
        v_store_strided(y + p * f->y.along, f->y.lane, log ? v_sub(v, sum) : v_div(v, sum), w);
    }
}

INLINE void softmax_contiguous(const bool log, const float *x, float *y, ptrdiff_t n) {
    const vf most = v_set1(reduce_contiguous(FO_LARGEST, x, n));
    vf sum = v_zero();
    for (ptrdiff_t p = 0; p < n; p += VL) {
        const vm inside = v_range(0, n - p);
        const vf d = v_sub(v_load_mask(x + p, inside), most), e = v_exp(d);
        sum = v_add(sum, v_select(inside, e, v_zero()));
        v_store_mask(y + p, log ? d : e, inside);
    }
    sum = v_set1(v_sum_lanes(sum));
    if (log) sum = log_lanes(sum);
    const vf scale = v_div(v_set1(1), sum);
    for (ptrdiff_t p = 0; p < n; p += VL) {
        const vm inside = v_range(0, n - p);
        const vf v = v_load_mask(y + p, inside);
        v_store_mask(y + p, log ? v_sub(v, sum) : v_mul(v, scale), inside);
    }
}

INLINE void softmax_fibres(const bool log, const fo_fibres *f) {
    if (f->x.along == 1 && f->y.along == 1 && f->x.lane != 1)
        for (ptrdiff_t l = 0; l < f->w; l++) softmax_contiguous(log, f->from + l * f->x.lane, f->to + l * f->y.lane, f->n);
    else
        for (ptrdiff_t l = 0; l < f->w; l += VL) softmax_side_by_side(log, f, l);
}

static void FO_NAME(fo_softmax)(const fo_fibres *f, bool log) {
    if (log)
        softmax_fibres(true, f);
    else
        softmax_fibres(false, f);
}
