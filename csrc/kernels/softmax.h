/* softmax(x) = e^(x - max) / sum of e^(x - max), and its logarithm x - max - log(sum), along fibres. `fall` below is
 * max - x. A NaN reaches all of its fibre by way of the sum. */

/* 0 from 87.7 on, so of an x of -infinity. */
INLINE vf fallen(vf fall) { return v_exp_minus(v_min(v_set1(88), fall), true); }
INLINE vf log_lanes(vf v) { return v_lanes(logf, v); }

/* Fibres l.. of which each lane holds one. */
INLINE void softmax_lanes(const bool log, const fo_fibres *f, ptrdiff_t l) {
    const ptrdiff_t w = f->w - l;
    const float *x = f->from + l * f->x.lane;
    float *y = f->to + l * f->y.lane;
    vf most = v_set1(-INFINITY), sum = v_zero();
    for (ptrdiff_t p = 0; p < f->n; p++) most = v_max(v_load_strided(x + p * f->x.along, f->x.lane, w), most);
    for (ptrdiff_t p = 0; p < f->n; p++) {
        const vf fall = v_sub(most, v_load_strided(x + p * f->x.along, f->x.lane, w)), e = fallen(fall);
        sum = v_add(sum, e);
        v_store_strided(y + p * f->y.along, f->y.lane, log ? v_sub(v_zero(), fall) : e, w);
    }
    if (log) sum = log_lanes(sum);
    for (ptrdiff_t p = 0; p < f->n; p++) {
        const vf v = v_load_strided(y + p * f->y.along, f->y.lane, w);
        v_store_strided(y + p * f->y.along, f->y.lane, log ? v_sub(v, sum) : v_div(v, sum), w);
    }
}

/* The largest element, NaN apart. */
INLINE vf softmax_largest(const float *x, ptrdiff_t n) {
    vf most[REDUCE_VECTORS];
    UNROLL for (int v = 0; v < REDUCE_VECTORS; v++) most[v] = v_set1(-INFINITY);
    ptrdiff_t p = 0;
    for (; p + REDUCE_VECTORS * VL <= n; p += REDUCE_VECTORS * VL)
        UNROLL for (int v = 0; v < REDUCE_VECTORS; v++) most[v] = v_max(v_load(x + p + v * VL), most[v]);
    for (; p < n; p += VL) {
        const vm inside = v_range(0, n - p);
        most[0] = v_max(v_select(inside, v_load_mask(x + p, inside), most[0]), most[0]);
    }
    UNROLL for (int v = 1; v < REDUCE_VECTORS; v++) most[0] = v_max(most[0], most[v]);
    return v_largest_lane(most[0]);
}

INLINE void softmax_contiguous(const bool log, const float *x, float *y, ptrdiff_t n) {
    const ptrdiff_t whole = n / VL * VL;
    const vm rest = v_range(0, n - whole);
    const vf most = softmax_largest(x, n);
    vf sum = v_zero();
    for (ptrdiff_t p = 0; p < whole; p += VL) {
        const vf fall = v_sub(most, v_load(x + p)), e = fallen(fall);
        sum = v_add(sum, e);
        v_store(y + p, log ? v_sub(v_zero(), fall) : e);
    }
    if (whole < n) {
        const vf fall = v_sub(most, v_load_mask(x + whole, rest)), e = fallen(fall);
        sum = v_add(sum, v_select(rest, e, v_zero()));
        v_store_mask(y + whole, log ? v_sub(v_zero(), fall) : e, rest);
    }
    sum = v_sum_lanes(sum);
    if (log) sum = log_lanes(sum);
    const vf factor = v_div(v_set1(1), sum);
    for (ptrdiff_t p = 0; p < whole; p += VL)
        v_store(y + p, log ? v_sub(v_load(y + p), sum) : v_mul(v_load(y + p), factor));
    if (whole == n) return;
    const vf v = v_load_mask(y + whole, rest);
    v_store_mask(y + whole, log ? v_sub(v, sum) : v_mul(v, factor), rest);
}

INLINE void softmax_fibres(const bool log, const fo_fibres *f) {
    if (f->x.along == 1 && f->y.along == 1 && f->x.lane != 1) {
        FO_RAN("softmax contiguous");
        for (ptrdiff_t l = 0; l < f->w; l++)
            softmax_contiguous(log, f->from + l * f->x.lane, f->to + l * f->y.lane, f->n);
    } else {
        FO_RAN("softmax lanes");
        for (ptrdiff_t l = 0; l < f->w; l += VL) softmax_lanes(log, f, l);
    }
}

void FO_NAME(fo_softmax)(const fo_fibres *f, bool log) {
    if (log)
        softmax_fibres(true, f);
    else
        softmax_fibres(false, f);
}
