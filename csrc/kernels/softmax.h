/* softmax(x) = e^(x - max) / sum of e^(x - max), and its logarithm x - max - log(sum), along fibres. `fall` below is
 * max - x. A NaN reaches all of its fibre by way of the sum, whose order is one, whether a vector holds elements of one
 * fibre or an element of each of VL: a chain a lane, in long fibres of blocks, as in reduce.h. */

enum { SOFTMAX_VECTORS = 4 };

/* 0 from 87.7 on, so of an x of -infinity. */
INLINE vf fallen(vf fall) { return v_exp_minus(v_min(v_set1(88), fall), true); }

/* How many elements of a fibre are added before their sums are a block. */
INLINE ptrdiff_t softmax_block(ptrdiff_t n) { return n > SUM_CHAIN ? FO_SUM_BLOCK * VL : n; }

/* nv vectors of fibres from l on, one a lane. What is between the passes is in one place where there is room, else in
 * y: elements of fibres whose distance is a power of two would push one another out of the caches. nv and log are
 * literals; more than one vector is whole. */
INLINE void softmax_lanes(const bool log, const int nv, const fo_fibres *f, ptrdiff_t l) {
    float own[FO_SOFTMAX_FLOATS];
    const bool fits = f->n * nv * VL <= FO_SOFTMAX_FLOATS;
    const ptrdiff_t w = nv > 1 ? VL : f->w - l, x_lane = nv > 1 ? 1 : f->x.lane, y_lane = nv > 1 ? 1 : f->y.lane;
    const float *x = f->from + l * f->x.lane, *from = fits ? own : x;
    float *y = f->to + l * f->y.lane, *e = fits ? own : y;
    const ptrdiff_t from_step = fits ? nv * VL : f->x.step, from_lane = fits ? 1 : x_lane;
    const ptrdiff_t e_step = fits ? nv * VL : f->y.step, e_lane = fits ? 1 : y_lane;
    const ptrdiff_t block = softmax_block(f->n);
    vf most[SOFTMAX_VECTORS], sum[SOFTMAX_VECTORS][VL], all[SOFTMAX_VECTORS][VL], lost[SOFTMAX_VECTORS][VL];
    UNROLL_FOR (int v = 0; v < nv; v++) {
        most[v] = v_set1(-INFINITY);
        for (int i = 0; i < VL; i++) sum[v][i] = all[v][i] = lost[v][i] = v_zero();
    }
    for (ptrdiff_t p = 0; p < f->n; p++)
        UNROLL_FOR (int v = 0; v < nv; v++) {
            const vf at = v_load_strided(x + p * f->x.step + v * VL, x_lane, w);
            most[v] = v_max(at, most[v]);
            if (fits) v_store_strided(own + (p * nv + v) * VL, 1, at, w);
        }
    for (ptrdiff_t p = 0; p < f->n;) {
        for (const ptrdiff_t end = p + block < f->n ? p + block : f->n; p < end; p++)
            UNROLL_FOR (int v = 0; v < nv; v++) {
                const vf power = fallen(v_sub(most[v], v_load_strided(from + p * from_step + v * VL, from_lane, w)));
                sum[v][p % VL] = v_add(sum[v][p % VL], power);
                if (!log) v_store_strided(e + p * e_step + v * VL, e_lane, power, w);
            }
        if (block < f->n)
            for (int i = 0; i < nv * VL; i++) {
                v_add_keeping(all[i / VL] + i % VL, lost[i / VL] + i % VL, sum[i / VL][i % VL]);
                sum[i / VL][i % VL] = v_zero();
            }
    }
    vf total[SOFTMAX_VECTORS];
    UNROLL_FOR (int v = 0; v < nv; v++) {
        total[v] = v_sum_vectors(block < f->n ? all[v] : sum[v]);
        total[v] = log ? v_lanes(logf, total[v]) : v_div(v_set1(1), total[v]);
    }
    for (ptrdiff_t p = 0; p < f->n; p++)
        UNROLL_FOR (int v = 0; v < nv; v++) {
            const vf at = log ? v_load_strided(from + p * from_step + v * VL, from_lane, w)
                              : v_load_strided(e + p * e_step + v * VL, e_lane, w);
            const vf result = log ? v_sub(v_sub(at, most[v]), total[v]) : v_mul(at, total[v]);
            v_store_strided(y + p * f->y.step + v * VL, y_lane, result, w);
        }
}

/* The largest element, NaN apart. */
INLINE vf softmax_largest(const float *x, ptrdiff_t n) {
    vf most[REDUCE_VECTORS];
    UNROLL_FOR (int v = 0; v < REDUCE_VECTORS; v++) most[v] = v_set1(-INFINITY);
    ptrdiff_t p = 0;
    for (; p + REDUCE_VECTORS * VL <= n; p += REDUCE_VECTORS * VL)
        UNROLL_FOR (int v = 0; v < REDUCE_VECTORS; v++) most[v] = v_max(v_load(x + p + v * VL), most[v]);
    for (; p < n; p += VL) {
        const vm inside = v_range(0, n - p);
        most[0] = v_max(v_select(inside, v_load_mask(x + p, inside), most[0]), most[0]);
    }
    UNROLL_FOR (int v = 1; v < REDUCE_VECTORS; v++) most[0] = v_max(most[0], most[v]);
    return v_largest_lane(most[0]);
}

INLINE void softmax_contiguous(const bool log, const float *x, float *y, ptrdiff_t n) {
    const ptrdiff_t whole = n / VL * VL, block = softmax_block(n);
    const vm rest = v_range(0, n - whole);
    const vf most = softmax_largest(x, n);
    vf sum = v_zero(), all = v_zero(), lost = v_zero();
    for (ptrdiff_t p = 0; p < n;) {
        const ptrdiff_t end = p + block < n ? p + block : n;
        for (; p < end && p < whole; p += VL) {
            const vf power = fallen(v_sub(most, v_load(x + p)));
            sum = v_add(sum, power);
            if (!log) v_store(y + p, power);
        }
        if (p < end) {
            const vf power = fallen(v_sub(most, v_load_mask(x + p, rest)));
            sum = v_add(sum, v_select(rest, power, v_zero()));
            if (!log) v_store_mask(y + p, power, rest);
            p = end;
        }
        if (block < n) v_add_keeping(&all, &lost, sum), sum = v_zero();
    }
    sum = v_sum_lanes(block < n ? all : sum);
    const vf total = log ? v_set1(logf(v_first(sum))) : v_div(v_set1(1), sum);
    for (ptrdiff_t p = 0; p < whole; p += VL)
        v_store(y + p, log ? v_sub(v_sub(v_load(x + p), most), total) : v_mul(v_load(y + p), total));
    if (whole == n) return;
    const vf v = v_load_mask((log ? x : y) + whole, rest);
    v_store_mask(y + whole, log ? v_sub(v_sub(v, most), total) : v_mul(v, total), rest);
}

/* Short fibres go together even where each is contiguous: sums and maxima of lanes take longer than the exponentials
 * (rows of 32 and of 65: 39 and 42 ns, of 64 together 74; Zen 4, AVX-512). */
INLINE void softmax_fibres(const bool log, const fo_fibres *f) {
    const bool contiguous = f->x.step == 1 && f->y.step == 1 && f->x.lane != 1;
    ptrdiff_t l = 0;
    if (contiguous && (f->n > 32 || f->w < VL)) {
        for (; l < f->w; l++) softmax_contiguous(log, f->from + l * f->x.lane, f->to + l * f->y.lane, f->n);
        return;
    }
    if (f->x.lane == 1 && f->y.lane == 1)
        for (; l + SOFTMAX_VECTORS * VL <= f->w; l += SOFTMAX_VECTORS * VL) softmax_lanes(log, SOFTMAX_VECTORS, f, l);
    for (; l < f->w; l += VL) softmax_lanes(log, 1, f, l);
}

void FO_NAME(fo_softmax)(const fo_fibres *f, bool log) {
    if (log)
        softmax_fibres(true, f);
    else
        softmax_fibres(false, f);
}
