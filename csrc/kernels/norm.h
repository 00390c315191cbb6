/* y = (x - mean) / sqrt(variance + eps) * scale + shift along fibres; rms: the mean counts as 0. A residual is added
 * first, in y.
 *
 * The mean is a float and a rest, the mean of what is left, so that values far from zero keep their differences d; the
 * variance is the mean of d^2 less rest^2. Where squares pass the largest float, all is computed once more of x *
 * NORM_SMALL. Sums have one order, whether a vector holds elements of one fibre or an element of each of VL: bits do
 * not depend on strides. And local response normalization, whose window runs over the channels of a pixel. */

enum { NORM_SUMS = 4 /* at a time, of a vector each */, NORM_TIMES = 2 /* that a mean is made better */ };
#define NORM_SMALL 0x1p-100f

/* Fibre(s) to be read: one contiguous one, or one for each of w lanes. */
typedef struct {
    const float *x;
    ptrdiff_t step, lane, n, w;
} norm_fibre;

/* (x * unit + minus - rest) * factor is the normalized x. */
typedef struct {
    vf unit, minus, rest, factor;
} norm_moments;

/* The sums of d = x * unit - mean and of d^2 over a contiguous fibre, in every lane. */
INLINE void norm_sums_contiguous(const norm_fibre *f, vf unit, vf mean, vf *sum, vf *squares) {
    const vf minus = v_sub(v_zero(), mean);
    vf sums = v_zero(), all = v_zero(), lost[] = {v_zero(), v_zero()};
    const bool longer = f->n > SUM_CHAIN;
    for (ptrdiff_t p = 0; p < f->n;) {
        const ptrdiff_t end = p + SUM_BLOCK * VL < f->n ? p + SUM_BLOCK * VL : f->n;
        vf s[NORM_SUMS], q[NORM_SUMS];
        UNROLL_FOR (int v = 0; v < NORM_SUMS; v++) s[v] = q[v] = v_zero();
        for (; p + NORM_SUMS * VL <= end; p += NORM_SUMS * VL)
            UNROLL_FOR (int v = 0; v < NORM_SUMS; v++) {
                const vf d = v_fma(v_load(f->x + p + v * VL), unit, minus);
                s[v] = v_add(s[v], d), q[v] = v_fma(d, d, q[v]);
            }
        for (; p < end; p += VL) {
            const vm inside = v_range(0, end - p);
            const vf d = v_select(inside, v_fma(v_load_mask(f->x + p, inside), unit, minus), v_zero());
            s[0] = v_add(s[0], d), q[0] = v_fma(d, d, q[0]);
        }
        UNROLL_FOR (int v = 0; v < NORM_SUMS; v++) {
            reduce_part(FO_SUM, longer, &sums, lost, s[v]);
            reduce_part(FO_SUM, longer, &all, lost + 1, q[v]);
        }
    }
    *sum = v_sum_lanes(sums), *squares = v_sum_lanes(all);
}

/* The same of a fibre a lane: slot v * VL + l has what lane l of vector v has there. */
INLINE void norm_sums_lanes(const norm_fibre *f, vf unit, vf mean, vf *sum, vf *squares) {
    const vf minus = v_sub(v_zero(), mean);
    const bool longer = f->n > SUM_CHAIN;
    vf sums[VL], all[VL], lost[2][VL];
    for (int l = 0; l < VL; l++) sums[l] = all[l] = lost[0][l] = lost[1][l] = v_zero();
    for (ptrdiff_t p = 0; p < f->n; p += SUM_BLOCK * VL) {
        const ptrdiff_t count = f->n - p < SUM_BLOCK * VL ? f->n - p : SUM_BLOCK * VL,
                        whole = count / (NORM_SUMS * VL) * (NORM_SUMS * VL);
        const int slots = whole || longer ? NORM_SUMS * VL : VL;
        vf s[NORM_SUMS * VL], q[NORM_SUMS * VL];
        for (int i = 0; i < slots; i++) s[i] = q[i] = v_zero();
        for (ptrdiff_t i = 0; i < count; i++) {
            const ptrdiff_t slot = i < whole ? i % (NORM_SUMS * VL) : i % VL;
            const vf d = v_fma(v_load_strided(f->x + (p + i) * f->step, f->lane, f->w), unit, minus);
            s[slot] = v_add(s[slot], d), q[slot] = v_fma(d, d, q[slot]);
        }
        for (int i = 0; i < slots; i++) {
            reduce_part(FO_SUM, longer, sums + i % VL, lost[0] + i % VL, s[i]);
            reduce_part(FO_SUM, longer, all + i % VL, lost[1] + i % VL, q[i]);
        }
    }
    *sum = v_sum_vectors(sums), *squares = v_sum_vectors(all);
}

INLINE void norm_sums(const bool lanes, const norm_fibre *f, vf unit, vf mean, vf *sum, vf *squares) {
    if (lanes)
        norm_sums_lanes(f, unit, mean, sum, squares);
    else
        norm_sums_contiguous(f, unit, mean, sum, squares);
}

/* The mean, and what remains of it and of the squares. */
typedef struct {
    vf unit, mean, rest, variance;
} norm_spread;

INLINE void norm_around(const bool lanes, const bool rms, const norm_fibre *f, norm_spread *s) {
    const vf n = v_set1((float)f->n);
    vf sum, squares;
    norm_sums(lanes, f, s->unit, s->mean, &sum, &squares);
    s->rest = rms ? v_zero() : v_div(sum, n);
    s->variance = v_max(v_zero(), v_fnma(s->rest, s->rest, v_div(squares, n)));
}

INLINE void norm_measure(const bool lanes, const bool rms, const norm_fibre *f, norm_spread *s) {
    vf sum = v_zero(), squares;
    if (!rms) norm_sums(lanes, f, s->unit, v_zero(), &sum, &squares);
    s->mean = v_div(sum, v_set1((float)f->n));
    norm_around(lanes, rms, f, s);
}

INLINE bool v_any(vm m) { return v_first(v_largest_lane(v_select(m, v_set1(1), v_zero()))) > 0; }

/* Where the rest is as large as the differences, as of very many values far from zero, the mean is made better. */
INLINE norm_moments norm_moments_of(const bool lanes, const bool rms, const norm_fibre *f, float eps) {
    norm_spread s = {.unit = v_set1(1)};
    norm_measure(lanes, rms, f, &s);
    if (!(v_first(v_largest_lane(s.variance)) < INFINITY)) {
        s.unit = v_select(v_lt(s.variance, v_set1(INFINITY)), v_set1(1), v_set1(NORM_SMALL));
        norm_measure(lanes, rms, f, &s);
    }
    for (int i = 0; i < NORM_TIMES && !rms; i++) {
        const vm far = v_lt(s.variance, v_mul(v_set1(4), v_mul(s.rest, s.rest)));
        if (!v_any(far)) break;
        s.mean = v_select(far, v_add(s.mean, s.rest), s.mean);
        norm_around(lanes, rms, f, &s);
    }
    const vf root = v_sqrt(v_fma(v_set1(eps), v_mul(s.unit, s.unit), s.variance));
    /* eps vanishes in small units, where equal values must become 0 none the less */
    const vf least = v_select(v_lt(s.unit, v_set1(1)), v_set1(FLT_MIN), v_zero());
    return (norm_moments){s.unit, v_sub(v_zero(), s.mean), s.rest, v_div(v_set1(1), v_max(least, root))};
}

INLINE vf norm_element(const bool rms, vf x, const norm_moments *m) {
    return v_mul(rms ? v_mul(x, m->unit) : v_sub(v_fma(x, m->unit, m->minus), m->rest), m->factor);
}

/* Elements p .. end-1 of a contiguous fibre, which have one scale and one shift (same), or one each. */
INLINE void norm_put(const bool same, const bool rms, const float *x, float *y, const float *scale, const float *shift,
                     ptrdiff_t p, ptrdiff_t end, const norm_moments *m) {
    const vf one_scale = same && scale ? v_set1(*scale) : v_zero(),
             one_shift = same && shift ? v_set1(*shift) : v_zero();
    for (; p + VL <= end; p += VL) {
        vf v = norm_element(rms, v_load(x + p), m);
        if (scale) v = v_mul(v, same ? one_scale : v_load(scale + p));
        if (shift) v = v_add(v, same ? one_shift : v_load(shift + p));
        v_store(y + p, v);
    }
    if (p >= end) return;
    const vm inside = v_range(0, end - p);
    vf v = norm_element(rms, v_load_mask(x + p, inside), m);
    if (scale) v = v_mul(v, same ? one_scale : v_load_mask(scale + p, inside));
    if (shift) v = v_add(v, same ? one_shift : v_load_mask(shift + p, inside));
    v_store_mask(y + p, v, inside);
}

INLINE void norm_contiguous(const bool rms, const norm_fibre *f, const fo_norm_args *a, ptrdiff_t each,
                            const float *scale, const float *shift, float *y) {
    const norm_moments m = norm_moments_of(false, rms, f, a->eps);
    if (a->ss && each == 1) {
        norm_put(false, rms, f->x, y, scale, shift, 0, f->n, &m);
        return;
    }
    for (ptrdiff_t p = 0; p < f->n; p += each, scale += scale ? a->ss : 0, shift += shift ? a->ss : 0)
        norm_put(true, rms, f->x, y, scale, shift, p, p + each, &m);
}

/* Of a fibre a lane; l: the first of them. */
INLINE void norm_lanes(const bool rms, const norm_fibre *f, const fo_norm_args *a, ptrdiff_t each, const float *scale,
                       const float *shift, ptrdiff_t lane, float *y, ptrdiff_t step, ptrdiff_t y_lane) {
    const norm_moments m = norm_moments_of(true, rms, f, a->eps);
    for (ptrdiff_t p = 0; p < f->n; scale += scale ? a->ss : 0, shift += shift ? a->ss : 0) {
        const vf factor = scale ? v_load_strided(scale, lane, f->w) : v_zero(),
                 term = shift ? v_load_strided(shift, lane, f->w) : v_zero();
        for (const ptrdiff_t end = p + each; p < end; p++) {
            vf v = norm_element(rms, v_load_strided(f->x + p * f->step, f->lane, f->w), &m);
            if (scale) v = v_mul(v, factor);
            if (shift) v = v_add(v, term);
            v_store_strided(y + p * step, y_lane, v, f->w);
        }
    }
}

/* y = x + residual, which lies as x does. */
INLINE void norm_add(const fo_fibres *f, const float *residual) {
    const bool contiguous = f->x.step == 1 && f->y.step == 1;
    const ptrdiff_t count[] = {f->w, f->n}, x[] = {f->x.lane, f->x.step}, y[] = {f->y.lane, f->y.step};
    const int outer = contiguous ? 0 : 1; /* vectors run over the other axis */
    for (ptrdiff_t i = 0; i < count[outer]; i++)
        for (ptrdiff_t j = 0; j < count[!outer]; j += VL) {
            const ptrdiff_t at = i * x[outer] + j * x[!outer], left = count[!outer] - j;
            const vf sum =
                v_add(v_load_strided(f->from + at, x[!outer], left), v_load_strided(residual + at, x[!outer], left));
            v_store_strided(f->to + i * y[outer] + j * y[!outer], y[!outer], sum, left);
        }
}

/* w fibres from the first one on: one that is contiguous, or up to VL. */
INLINE void norm_some(const bool rms, const bool contiguous, fo_fibres f, const fo_norm_args *a, const float *residual,
                      const float *scale, const float *shift) {
    if (residual) {
        norm_add(&f, residual);
        f.from = f.to, f.x.lane = f.y.lane, f.x.step = f.y.step;
    }
    const ptrdiff_t each = !a->ss ? f.n : a->span ? a->span : 1; /* elements in a row that share a scale */
    const norm_fibre fibre = {f.from, f.x.step, f.x.lane, f.n, f.w};
    if (contiguous)
        norm_contiguous(rms, &fibre, a, each, scale, shift, f.to);
    else
        norm_lanes(rms, &fibre, a, each, scale, shift, f.scale.lane, f.to, f.y.step, f.y.lane);
}

INLINE void norm_fibres(const bool rms, const fo_fibres *f, const fo_norm_args *a) {
    const bool contiguous = f->x.step == 1 && f->y.step == 1 && f->x.lane != 1;
    for (ptrdiff_t l = 0; l < f->w; l += contiguous ? 1 : VL) {
        const float *residual = a->residual ? a->residual + l * f->x.lane : NULL;
        const float *scale = a->scale ? a->scale + l * f->scale.lane : NULL,
                    *shift = a->shift ? a->shift + l * f->scale.lane : NULL;
        fo_fibres some = *f;
        some.from += l * f->x.lane, some.to += l * f->y.lane, some.w = f->w - l;
        if (contiguous) {
            some.w = 1;
            norm_some(rms, true, some, a, residual, scale, shift);
        } else if (some.w >= VL && f->x.lane == 1 && f->y.lane == 1) {
            some.w = VL, some.x.lane = some.y.lane = 1; /* literals: whole vectors */
            norm_some(rms, false, some, a, residual, scale, shift);
        } else
            norm_some(rms, false, some, a, residual, scale, shift);
    }
}

/* a: its scale, shift and residual are those of the first fibre. */
void FO_NAME(fo_norm)(const fo_fibres *f, const fo_norm_args *a) {
    if (a->rms)
        norm_fibres(true, f, a);
    else
        norm_fibres(false, f, a);
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

/* Row h of image n, channels contiguous: vectors of channels, whose neighbors are loads shifted by one. */
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
