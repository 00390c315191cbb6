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

/* nv vectors of channels of one pixel; x is tap (0, 0)'s place, which may lie outside the image. nv and kind are literals. */
INLINE void pool_pixel(const fo_pool_args *g, const fo_pool_kind kind, const int nv, const float *x, float *y, vm tail,
                       pool_range rows, pool_range columns, float divisor) {
    const bool most = kind == FO_POOL_MAX;
    vf acc[POOL_VECTORS];
    UNROLL for (int v = 0; v < nv; v++) acc[v] = v_set1(most ? -INFINITY : 0);
    for (ptrdiff_t i = rows.first; i < rows.last; i++)
        for (ptrdiff_t j = columns.first; j < columns.last; j++) {
            const float *p = x + i * g->dh * g->x.sh + j * g->dw * g->x.sw;
            UNROLL for (int v = 0; v < nv; v++) {
                vf at = nv == 1 ? v_load_mask(p, tail) : v_load(p + v * VL);
                acc[v] = most ? v_largest(acc[v], at) : v_add(acc[v], at);
            }
        }
    UNROLL for (int v = 0; v < nv; v++) {
        if (!most) acc[v] = v_div(acc[v], v_set1(divisor));
        if (nv == 1)
            v_store_mask(y, acc[v], tail);
        else
            v_store(y + v * VL, acc[v]);
    }
}

INLINE void pool_row(const fo_pool_args *g, const fo_pool_kind kind, ptrdiff_t n, ptrdiff_t h) {
    const ptrdiff_t h0 = h * g->sh - g->top;
    const pool_range rows = taps_inside(h0, g->kh, g->dh, 0, g->ih);
    const pool_range high = taps_inside(h0, g->kh, g->dh, g->h_lo, g->h_hi);
    const float *x = g->x.data + n * g->x.sn + h0 * g->x.sh;
    float *y = g->y.data + n * g->y.sn + h * g->y.sh;
    for (ptrdiff_t w = 0; w < g->ow; w++) {
        const ptrdiff_t w0 = w * g->sw - g->left;
        const pool_range columns = taps_inside(w0, g->kw, g->dw, 0, g->iw);
        const pool_range wide = taps_inside(w0, g->kw, g->dw, g->w_lo, g->w_hi);
        const float divisor = (float)((high.last - high.first) * (wide.last - wide.first));
        const float *from = x + w0 * g->x.sw;
        float *to = y + w * g->y.sw;
        ptrdiff_t c = 0;
        for (; c + POOL_VECTORS * VL <= g->c; c += POOL_VECTORS * VL)
            pool_pixel(g, kind, POOL_VECTORS, from + c, to + c, v_range(0, VL), rows, columns, divisor);
        for (; c < g->c; c += VL) pool_pixel(g, kind, 1, from + c, to + c, v_range(0, g->c - c), rows, columns, divisor);
    }
}

/* Output row h of image n. */
static void FO_NAME(fo_pool_row)(const fo_pool_args *g, ptrdiff_t n, ptrdiff_t h) {
    if (g->kind == FO_POOL_MAX)
        pool_row(g, FO_POOL_MAX, n, h);
    else
        pool_row(g, FO_POOL_AVERAGE, n, h);
}
