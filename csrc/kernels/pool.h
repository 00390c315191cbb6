/* Pooling of images whose channels are neighbours: a row of output pixels, vectors along the channels. */

enum { POOL_VECTORS = 4 };

/* The taps first .. last-1 of `taps`, `step` apart from `base` on, that fall into lo .. hi-1. */
typedef struct {
    ptrdiff_t first, last;
} pool_range;

INLINE pool_range taps_inside(ptrdiff_t base, ptrdiff_t taps, ptrdiff_t step, ptrdiff_t lo, ptrdiff_t hi) {
    if (base >= lo && base + (taps - 1) * step < hi) return (pool_range){0, taps};
    ptrdiff_t first = base < lo ? (lo - base + step - 1) / step : 0;
    ptrdiff_t last = base < hi ? (hi - base + step - 1) / step : 0;
    if (last > taps) last = taps;
    return (pool_range){first < last ? first : last, last};
}

/* What a row of output pixels meets: its window's rows inside the image, and those that count for a mean; x: tap (0, 0)
 * of an output at column 0. */
typedef struct {
    const fo_pool_args *g;
    const float *x;
    float *y;
    pool_range rows, counted;
    vm lanes; /* of the vector, unless it is whole */
} pool_place;

/* acc, of nv vectors, and what stands at p. nv, whole and kind are literals. */
INLINE void pool_add(const fo_pool_kind kind, const int nv, const bool whole, const float *p, vm lanes,
                     vf acc[POOL_VECTORS]) {
    UNROLL for (int v = 0; v < nv; v++) {
        const vf at = whole ? v_load(p + v * VL) : v_load_mask(p, lanes);
        acc[v] = kind == FO_POOL_MAX ? v_largest(acc[v], at) : v_add(acc[v], at);
    }
}

INLINE void pool_start(const fo_pool_kind kind, const int nv, vf acc[POOL_VECTORS]) {
    UNROLL for (int v = 0; v < nv; v++) acc[v] = v_set1(kind == FO_POOL_MAX ? -INFINITY : 0);
}

/* Output column w. */
INLINE void pool_put(const fo_pool_kind kind, const int nv, const bool whole, const pool_place *p, ptrdiff_t w,
                     vf acc[POOL_VECTORS]) {
    const fo_pool_args *g = p->g;
    const pool_range counted = taps_inside(w * g->sw - g->left, g->kw, g->dw, g->w_lo, g->w_hi);
    const vf divisor = v_set1((float)((p->counted.last - p->counted.first) * (counted.last - counted.first)));
    UNROLL for (int v = 0; v < nv; v++) {
        if (kind != FO_POOL_MAX) acc[v] = v_div(acc[v], divisor);
        if (whole)
            v_store(p->y + w * g->y.sw + v * VL, acc[v]);
        else
            v_store_mask(p->y + w * g->y.sw, acc[v], p->lanes);
    }
}

/* Windows that share little: tap by tap. */
INLINE void pool_taps(const fo_pool_kind kind, const int nv, const bool whole, const pool_place *p) {
    FO_RAN("pool taps");
    const fo_pool_args g = *p->g; /* copies, which the compiler knows that no store changes */
    const pool_range rows = p->rows;
    const vm lanes = p->lanes;
    const ptrdiff_t down = g.dh * g.x.sh, along = g.dw * g.x.sw;
    for (ptrdiff_t w = 0; w < g.ow; w++) {
        const ptrdiff_t w0 = w * g.sw - g.left;
        const pool_range columns = taps_inside(w0, g.kw, g.dw, 0, g.iw);
        vf acc[POOL_VECTORS];
        pool_start(kind, nv, acc);
        const float *row = p->x + rows.first * down + w0 * g.x.sw + columns.first * along;
        for (ptrdiff_t i = rows.first; i < rows.last; i++, row += down) {
            const float *x = row;
            for (ptrdiff_t j = columns.first; j < columns.last; j++, x += along)
                pool_add(kind, nv, whole, x, lanes, acc);
        }
        pool_put(kind, nv, whole, p, w, acc);
    }
}

/* Windows that share much: first what the rows of each column come to, once for all windows, then kw of those; some
 * windows at a time. Whether there is room for one does not depend on nv, for a mean's bits depend on the order of its
 * sum. */
INLINE void pool_columns(const fo_pool_kind kind, const int nv, const bool whole, const pool_place *p) {
    const fo_pool_args *g = p->g;
    const ptrdiff_t reach = (g->kw - 1) * g->dw + 1, room = FO_POOL_FLOATS / (POOL_VECTORS * VL);
    const ptrdiff_t windows = room < reach ? 0 : (room - reach) / g->sw + 1;
    if (!windows) {
        pool_taps(kind, nv, whole, p);
        return;
    }
    FO_RAN("pool columns");
    float sums[FO_POOL_FLOATS];
    for (ptrdiff_t w = 0; w < g->ow; w += windows) {
        const ptrdiff_t end = w + windows < g->ow ? w + windows : g->ow, u0 = w * g->sw - g->left;
        const ptrdiff_t u1 = (end - 1) * g->sw - g->left + reach;
        for (ptrdiff_t u = u0 > 0 ? u0 : 0; u < u1 && u < g->iw; u++) {
            vf acc[POOL_VECTORS];
            pool_start(kind, nv, acc);
            for (ptrdiff_t i = p->rows.first; i < p->rows.last; i++)
                pool_add(kind, nv, whole, p->x + i * g->dh * g->x.sh + u * g->x.sw, p->lanes, acc);
            UNROLL for (int v = 0; v < nv; v++) v_store(sums + ((u - u0) * nv + v) * VL, acc[v]);
        }
        for (ptrdiff_t v = w; v < end; v++) {
            const ptrdiff_t w0 = v * g->sw - g->left;
            const pool_range columns = taps_inside(w0, g->kw, g->dw, 0, g->iw);
            vf acc[POOL_VECTORS];
            pool_start(kind, nv, acc);
            for (ptrdiff_t j = columns.first; j < columns.last; j++)
                pool_add(kind, nv, true, sums + (w0 - u0 + j * g->dw) * nv * VL, p->lanes, acc);
            pool_put(kind, nv, whole, p, v, acc);
        }
    }
}

/* Where windows share less than half of their columns, to keep those takes longer (3 x 3 of stride 2, 64 channels at
 * 112 x 112: 98 us instead of 75). */
INLINE void pool_channels(const fo_pool_kind kind, const int nv, const bool whole, const pool_place *p) {
    if (p->g->kw >= 2 * p->g->sw && p->g->kh > 1)
        pool_columns(kind, nv, whole, p);
    else
        pool_taps(kind, nv, whole, p);
}

INLINE void pool_row(const fo_pool_args *g, const fo_pool_kind kind, ptrdiff_t n, ptrdiff_t h) {
    const ptrdiff_t h0 = h * g->sh - g->top;
    pool_place p = {.g = g, .x = g->x.data + n * g->x.sn + h0 * g->x.sh, .y = g->y.data + n * g->y.sn + h * g->y.sh,
                    .rows = taps_inside(h0, g->kh, g->dh, 0, g->ih),
                    .counted = taps_inside(h0, g->kh, g->dh, g->h_lo, g->h_hi), .lanes = v_range(0, g->c % VL)};
    ptrdiff_t c = 0;
    for (; c + POOL_VECTORS * VL <= g->c; c += POOL_VECTORS * VL, p.x += POOL_VECTORS * VL, p.y += POOL_VECTORS * VL)
        pool_channels(kind, POOL_VECTORS, true, &p);
    for (; c + VL <= g->c; c += VL, p.x += VL, p.y += VL) pool_channels(kind, 1, true, &p);
    if (c < g->c) pool_channels(kind, 1, false, &p);
}

/* Output row h of image n. */
void FO_NAME(fo_pool_row)(const fo_pool_args *g, ptrdiff_t n, ptrdiff_t h) {
    if (g->kind == FO_POOL_MAX)
        pool_row(g, FO_POOL_MAX, n, h);
    else
        pool_row(g, FO_POOL_AVERAGE, n, h);
}
