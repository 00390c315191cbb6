/* Pooling: the rows of a window's columns first, then the columns, so that a mean's bits do not depend on the order in
 * memory. Vectors run along the channels where these are neighbors, else along the columns. Where the sides of a
 * window are more than POOL_CHAIN together, rows and columns are added in blocks, with what the additions before have
 * lost. Blocks of columns begin at multiples in the window, so that zeros around the image change no bit. */

enum { POOL_VECTORS = 4, POOL_CHAIN = 128, POOL_FLOATS = FO_L1_SHARE / sizeof(float) /* of what columns come to */ };

/* The taps first .. last-1 of `taps`, `base` first and then at every `step`, that fall into lo .. hi-1. */
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

/* What a row of output pixels reads: its window's rows inside the image, and those that count for a mean; x: tap (0, 0)
 * of an output at column 0. */
typedef struct {
    const fo_pool_args *g;
    const float *x;
    float *y;
    pool_range rows, counted;
    vm lanes; /* of the vector, unless it is whole */
} pool_place;

INLINE vf pool_two(const fo_pool_kind kind, vf a, vf b) { return kind == FO_POOL_MAX ? v_largest(a, b) : v_add(a, b); }

/* acc, of nv vectors, and what stands at p; whole: so is the last vector. nv, whole and kind are literals. */
INLINE void pool_add(const fo_pool_kind kind, const int nv, const bool whole, const float *p, vm lanes,
                     vf acc[POOL_VECTORS]) {
    UNROLL_FOR (int v = 0; v < nv; v++) {
        const vf at = whole || v < nv - 1 ? v_load(p + v * VL) : v_load_mask(p + v * VL, lanes);
        acc[v] = pool_two(kind, acc[v], at);
    }
}

INLINE void pool_start(const fo_pool_kind kind, const int nv, vf acc[POOL_VECTORS]) {
    UNROLL_FOR (int v = 0; v < nv; v++) acc[v] = v_set1(kind == FO_POOL_MAX ? -INFINITY : 0);
}

INLINE bool pool_longer(const fo_pool_kind kind, const fo_pool_args *g) {
    return kind != FO_POOL_MAX && g->kh + g->kw > POOL_CHAIN;
}

/* acc and a part of it; longer: `lost` is what the additions before have lost. A part of 0 is left out, as blocks of
 * zeros around the image are where only what is inside is read. */
INLINE void pool_part(const fo_pool_kind kind, const int nv, bool longer, vf acc[POOL_VECTORS], vf lost[POOL_VECTORS],
                      const vf part[POOL_VECTORS]) {
    UNROLL_FOR (int v = 0; v < nv; v++)
        if (kind != FO_POOL_MAX && longer) {
            const vm nothing = v_lt(v_abs(part[v]), v_set1(FLT_MIN));
            vf sum = acc[v], losing = lost[v];
            v_add_keeping(&sum, &losing, part[v]);
            acc[v] = v_select(nothing, acc[v], sum), lost[v] = v_select(nothing, lost[v], losing);
        } else
            acc[v] = pool_two(kind, acc[v], part[v]);
}

/* acc = what stands at x, x + step, ..., of taps first .. last-1. */
INLINE void pool_run(const fo_pool_kind kind, const int nv, const bool whole, bool longer, const float *x,
                     ptrdiff_t step, ptrdiff_t first, ptrdiff_t last, vm lanes, vf acc[POOL_VECTORS]) {
    pool_start(kind, nv, acc);
    if (kind == FO_POOL_MAX || !longer) {
        for (ptrdiff_t i = first; i < last; i++, x += step) pool_add(kind, nv, whole, x, lanes, acc);
        return;
    }
    vf lost[POOL_VECTORS], part[POOL_VECTORS];
    pool_start(kind, nv, lost);
    for (ptrdiff_t i = first; i < last;) {
        const ptrdiff_t next = (i / FO_SUM_BLOCK + 1) * FO_SUM_BLOCK, end = next < last ? next : last;
        pool_start(kind, nv, part);
        for (; i < end; i++, x += step) pool_add(kind, nv, whole, x, lanes, part);
        pool_part(kind, nv, true, acc, lost, part);
    }
}

/* acc and column j of a window, whose last one is last - 1. */
INLINE void pool_column(const fo_pool_kind kind, const int nv, bool longer, ptrdiff_t j, ptrdiff_t last,
                        const vf column[POOL_VECTORS], vf part[POOL_VECTORS], vf lost[POOL_VECTORS],
                        vf acc[POOL_VECTORS]) {
    if (kind == FO_POOL_MAX || !longer) {
        pool_part(kind, nv, false, acc, lost, column);
        return;
    }
    pool_part(kind, nv, false, part, lost, column);
    if ((j + 1) % FO_SUM_BLOCK && j + 1 < last) return;
    pool_part(kind, nv, true, acc, lost, part);
    pool_start(kind, nv, part);
}

/* Output column w. */
INLINE void pool_put(const fo_pool_kind kind, const int nv, const bool whole, const pool_place *p, ptrdiff_t w,
                     vf acc[POOL_VECTORS]) {
    const fo_pool_args *g = p->g;
    const pool_range counted = taps_inside(w * g->sw - g->left, g->kw, g->dw, g->w_lo, g->w_hi);
    const vf divisor = v_set1((float)((p->counted.last - p->counted.first) * (counted.last - counted.first)));
    UNROLL_FOR (int v = 0; v < nv; v++) {
        if (kind != FO_POOL_MAX) acc[v] = v_div(acc[v], divisor);
        if (whole)
            v_store(p->y + w * g->y.sw + v * VL, acc[v]);
        else
            v_store_mask(p->y + w * g->y.sw, acc[v], p->lanes);
    }
}

/* Windows that share little: tap by tap. */
INLINE void pool_taps(const fo_pool_kind kind, const int nv, const bool whole, const pool_place *p) {
    const fo_pool_args g = *p->g; /* copies, which the compiler knows that no store changes */
    const pool_range rows = p->rows;
    const vm lanes = p->lanes;
    const ptrdiff_t down = g.dh * g.x.sh, right = g.dw * g.x.sw; /* 0 of a broadcast image */
    const bool longer = pool_longer(kind, &g);
    for (ptrdiff_t w = 0; w < g.ow; w++) {
        const ptrdiff_t w0 = w * g.sw - g.left;
        const pool_range columns = taps_inside(w0, g.kw, g.dw, 0, g.iw);
        vf acc[POOL_VECTORS], part[POOL_VECTORS], lost[POOL_VECTORS];
        pool_start(kind, nv, acc), pool_start(kind, nv, part), pool_start(FO_POOL_AVERAGE, nv, lost);
        const float *row = p->x + rows.first * down + w0 * g.x.sw + columns.first * right;
        for (ptrdiff_t j = columns.first; j < columns.last; j++, row += right) {
            vf column[POOL_VECTORS];
            pool_run(kind, nv, whole, longer, row, down, 0, rows.last - rows.first, lanes, column);
            pool_column(kind, nv, longer, j, columns.last, column, part, lost, acc);
        }
        pool_put(kind, nv, whole, p, w, acc);
    }
}

/* sums with what is at x, n whole vectors. */
INLINE void pool_into(const fo_pool_kind kind, float *sums, const float *x, ptrdiff_t n) {
    for (ptrdiff_t v = 0; v < n; v += VL) v_store(sums + v, pool_two(kind, v_load(sums + v), v_load(x + v)));
}

/* The one window of an image: some hundred channels of each pixel, more than registers hold, or lines at the distance
 * of pixels would be read. Returns how many channels are done. */
INLINE ptrdiff_t pool_stream(const fo_pool_kind kind, pool_place *p, ptrdiff_t channels) {
    enum { FLOATS = POOL_FLOATS / POOL_VECTORS };
    const fo_pool_args *g = p->g;
    const ptrdiff_t down = g->dh * g->x.sh, right = g->dw * g->x.sw;
    const pool_range columns = taps_inside(-g->left, g->kw, g->dw, 0, g->iw), rows = p->rows;
    float column[FLOATS], sums[FLOATS];
    vf acc[POOL_VECTORS];
    ptrdiff_t c = 0;
    for (ptrdiff_t n; channels - c >= 2 * POOL_VECTORS * VL; c += n, p->x += n) {
        n = (channels - c < FLOATS ? channels - c : FLOATS) / VL * VL;
        FO_RAN("pool whole image");
        pool_start(kind, 1, acc);
        for (ptrdiff_t v = 0; v < n; v += VL) v_store(sums + v, acc[0]);
        for (ptrdiff_t j = columns.first; j < columns.last; j++) {
            const float *x = p->x + rows.first * down - g->left * g->x.sw + j * right;
            for (ptrdiff_t v = 0; v < n; v += VL) v_store(column + v, acc[0]);
            for (ptrdiff_t i = rows.first; i < rows.last; i++, x += down) pool_into(kind, column, x, n);
            pool_into(kind, sums, column, n);
        }
        for (ptrdiff_t v = 0; v < n; v += VL, p->y += VL) {
            acc[0] = v_load(sums + v);
            pool_put(kind, 1, true, p, 0, acc);
        }
    }
    return c;
}

/* Windows that share much: first what the rows of each column come to, once for all windows, then kw of those; some
 * windows at a time. */
INLINE void pool_shared(const fo_pool_kind kind, const int nv, const bool whole, const pool_place *p) {
    const fo_pool_args *g = p->g;
    const ptrdiff_t reach = (g->kw - 1) * g->dw + 1, room = POOL_FLOATS / (POOL_VECTORS * VL);
    const ptrdiff_t windows = room < reach ? 0 : (room - reach) / g->sw + 1;
    const bool longer = pool_longer(kind, g);
    if (!windows) {
        pool_taps(kind, nv, whole, p);
        return;
    }
    float sums[POOL_FLOATS];
    for (ptrdiff_t w = 0; w < g->ow; w += windows) {
        const ptrdiff_t end = w + windows < g->ow ? w + windows : g->ow, u0 = w * g->sw - g->left,
                        u1 = (end - 1) * g->sw - g->left + reach;
        for (ptrdiff_t u = u0 > 0 ? u0 : 0; u < u1 && u < g->iw; u++) {
            const ptrdiff_t down = g->dh * g->x.sh;
            vf acc[POOL_VECTORS];
            pool_run(kind, nv, whole, longer, p->x + p->rows.first * down + u * g->x.sw, down, 0,
                     p->rows.last - p->rows.first, p->lanes, acc);
            UNROLL_FOR (int v = 0; v < nv; v++) v_store(sums + ((u - u0) * nv + v) * VL, acc[v]);
        }
        for (ptrdiff_t v = w; v < end; v++) {
            const ptrdiff_t w0 = v * g->sw - g->left;
            const pool_range columns = taps_inside(w0, g->kw, g->dw, 0, g->iw);
            vf acc[POOL_VECTORS];
            pool_run(kind, nv, true, longer, sums + (w0 - u0 + columns.first * g->dw) * nv * VL, g->dw * nv * VL,
                     columns.first, columns.last, p->lanes, acc);
            pool_put(kind, nv, whole, p, v, acc);
        }
    }
}

/* Where windows share less than half of their columns, to keep those takes longer (3 x 3 of stride 2, 64 channels at
 * 112 x 112: 98 us instead of 75). */
INLINE void pool_channels(const fo_pool_kind kind, const int nv, const bool whole, const pool_place *p) {
    if (p->g->kw >= 2 * p->g->sw && p->g->kh > 1)
        pool_shared(kind, nv, whole, p);
    else
        pool_taps(kind, nv, whole, p);
}

INLINE void pool_row(const fo_pool_args *g, const fo_pool_kind kind, ptrdiff_t n, ptrdiff_t h) {
    const ptrdiff_t h0 = h * g->sh - g->top;
    pool_place p = {.g = g,
                    .x = g->x.data + n * g->x.sn + h0 * g->x.sh,
                    .y = g->y.data + n * g->y.sn + h * g->y.sh,
                    .rows = taps_inside(h0, g->kh, g->dh, 0, g->ih),
                    .counted = taps_inside(h0, g->kh, g->dh, g->h_lo, g->h_hi),
                    .lanes = v_range(0, g->c % VL)};
    ptrdiff_t c = g->oh == 1 && g->ow == 1 && !pool_longer(kind, g) ? pool_stream(kind, &p, g->c) : 0;
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

/* Rows first .. last-1 of a plane's output, and what the columns of each come to, `width` floats apart. */
typedef struct {
    const fo_pool_args *g;
    const float *x;
    float *y, *columns;
    ptrdiff_t first, last, width;
    const float *counts;
} pool_strip;

/* What `height` rows from x on come to in nv vectors of columns, neighbors; lanes: of the last vector, unless it is
 * whole. The other lanes are as outside the image. */
INLINE void pool_columns(const fo_pool_kind kind, const int nv, const bool whole, bool longer, const float *x,
                         ptrdiff_t down, ptrdiff_t height, float *columns, vm lanes) {
    vf acc[POOL_VECTORS], outside[POOL_VECTORS];
    pool_start(kind, 1, outside);
    pool_run(kind, nv, whole, longer, x, down, 0, height, lanes, acc);
    if (!whole) acc[nv - 1] = v_select(lanes, acc[nv - 1], outside[0]);
    UNROLL_FOR (int v = 0; v < nv; v++) v_store(columns + v * VL, acc[v]);
}

/* The same of up to VL columns, n, that are `right` floats from each other. */
INLINE void pool_spread_columns(const fo_pool_kind kind, bool longer, const float *x, ptrdiff_t down, ptrdiff_t right,
                                ptrdiff_t height, float *columns, ptrdiff_t n) {
    vf acc[POOL_VECTORS], lost[POOL_VECTORS], part[POOL_VECTORS], outside[POOL_VECTORS];
    const ptrdiff_t block = longer ? FO_SUM_BLOCK : height;
    pool_start(kind, 1, acc), pool_start(kind, 1, outside), pool_start(FO_POOL_AVERAGE, 1, lost);
    for (ptrdiff_t i = 0; i < height;) {
        pool_start(kind, 1, part);
        for (const ptrdiff_t end = i + block < height ? i + block : height; i < end; i++, x += down)
            part[0] = pool_two(kind, part[0], v_load_strided(x, right, n));
        pool_part(kind, 1, longer, acc, lost, part);
    }
    v_store(columns, v_select(v_range(0, n), acc[0], outside[0]));
}

INLINE void pool_strip_columns(const fo_pool_kind kind, const pool_strip *s) {
    const fo_pool_args *g = s->g;
    const ptrdiff_t down = g->dh * g->x.sh, right = g->x.sw, iw = g->iw, pairs = (iw - 1) / (2 * VL) * (2 * VL);
    const vm pair = v_range(0, iw - pairs - VL), one = v_range(0, iw - pairs);
    const bool longer = pool_longer(kind, g);
    float *columns = s->columns + g->left;
    for (ptrdiff_t h = s->first; h < s->last; h++, columns += s->width) {
        const ptrdiff_t h0 = h * g->sh - g->top;
        const pool_range rows = taps_inside(h0, g->kh, g->dh, 0, g->ih);
        const ptrdiff_t height = rows.last - rows.first;
        const float *x = s->x + (h0 + rows.first * g->dh) * g->x.sh;
        ptrdiff_t u = 0;
        if (right != 1) {
            for (; u < iw; u += VL)
                pool_spread_columns(kind, longer, x + u * right, down, right, height, columns + u, iw - u);
            continue;
        }
        for (; u + POOL_VECTORS * VL <= pairs; u += POOL_VECTORS * VL)
            pool_columns(kind, POOL_VECTORS, true, longer, x + u, down, height, columns + u, one);
        for (; u < pairs; u += 2 * VL) pool_columns(kind, 2, true, longer, x + u, down, height, columns + u, one);
        if (iw - u > VL)
            pool_columns(kind, 2, false, longer, x + u, down, height, columns + u, pair);
        else
            pool_columns(kind, 1, false, longer, x + u, down, height, columns + u, one);
    }
}

/* acc with taps of windows, `taps` of each. */
INLINE void pool_add_taps(const fo_pool_kind kind, const int stride, const int nv, const fo_pool_args *g,
                          const float *at, ptrdiff_t taps, vf acc[POOL_VECTORS]) {
    const ptrdiff_t dw = g->dw, sw = stride ? stride : g->sw;
    for (ptrdiff_t j = 0; j < taps; j++, at += dw)
        UNROLL_FOR (int v = 0; v < nv; v++) {
            const float *from = at + v * VL * sw;
            acc[v] = pool_two(kind, acc[v],
                              stride == 1   ? v_load(from)
                              : stride == 2 ? v_uzp_inlane_even(v_load(from), v_load(from + VL))
                                            : v_load_strided(from, sw, VL));
        }
}

/* The windows of the columns from `at` on in nv vectors; height: rows that count for a mean. */
INLINE void pool_windows(const fo_pool_kind kind, const int stride, const int nv, const fo_pool_args *g,
                         const float *at, vf height, const float *counts, vf acc[POOL_VECTORS]) {
    const ptrdiff_t kw = g->kw, dw = g->dw;
    pool_start(kind, nv, acc);
    if (!pool_longer(kind, g))
        pool_add_taps(kind, stride, nv, g, at, kw, acc);
    else {
        vf part[POOL_VECTORS], lost[POOL_VECTORS];
        pool_start(kind, nv, lost);
        for (ptrdiff_t j = 0; j < kw; j += FO_SUM_BLOCK) {
            pool_start(kind, nv, part);
            pool_add_taps(kind, stride, nv, g, at + j * dw, kw - j < FO_SUM_BLOCK ? kw - j : FO_SUM_BLOCK, part);
            pool_part(kind, nv, true, acc, lost, part);
        }
    }
    UNROLL_FOR (int v = 0; v < nv; v++) {
        if (stride == 2) acc[v] = v_lane_order(acc[v]);
        if (kind != FO_POOL_MAX) acc[v] = v_div(acc[v], v_mul(height, v_load(counts + v * VL)));
    }
}

INLINE void pool_strip_windows(const fo_pool_kind kind, const int stride, const pool_strip *s) {
    const fo_pool_args g = *s->g;
    const ptrdiff_t ow = g.ow, sw = stride ? stride : g.sw, right = g.y.sw;
    const float *at = s->columns, *counts = s->counts;
    vf acc[POOL_VECTORS];
    for (ptrdiff_t h = s->first; h < s->last; h++, at += s->width) {
        const pool_range counted = taps_inside(h * g.sh - g.top, g.kh, g.dh, g.h_lo, g.h_hi);
        const vf height = v_set1((float)(counted.last - counted.first));
        float *y = s->y + h * g.y.sh;
        ptrdiff_t w = 0;
        if (right == 1 && stride)
            for (; w + 2 * VL <= ow; w += 2 * VL) {
                pool_windows(kind, stride, 2, &g, at + w * sw, height, counts + w, acc);
                v_store(y + w, acc[0]), v_store(y + w + VL, acc[1]);
            }
        for (; w < ow; w += VL) {
            pool_windows(kind, stride, 1, &g, at + w * sw, height, counts + w, acc);
            v_store_strided(y + w * right, right, acc[0], ow - w);
        }
    }
}

INLINE void pool_plane(const fo_pool_kind kind, const pool_strip *s) {
    pool_strip_columns(kind, s);
    if (s->g->sw == 1)
        pool_strip_windows(kind, 1, s);
    else if (s->g->sw == 2 && !IS_SCALAR)
        pool_strip_windows(kind, 2, s);
    else
        pool_strip_windows(kind, 0, s);
}

/* Output rows first .. last-1 of the plane of an image's channel, x to y. columns: of a strip's rows, and around them
 * what a window finds outside the image. First the columns of some rows, then their windows: a load that takes parts of
 * two recent stores has to wait for them. */
void FO_NAME(fo_pool_plane)(const fo_pool_args *g, const float *x, float *y, ptrdiff_t first, ptrdiff_t last,
                            const fo_pool_strip *strip, float *columns) {
    for (; first < last; first += strip->rows) {
        const ptrdiff_t end = last - first < strip->rows ? last : first + strip->rows;
        const pool_strip s = {g, x, y, columns, first, end, strip->width, strip->counts};
        if (g->kind == FO_POOL_MAX)
            pool_plane(FO_POOL_MAX, &s);
        else
            pool_plane(FO_POOL_AVERAGE, &s);
    }
}

/* The one window of each of some planes, up to VL from `first` on: what the rows of each column come to, then VL
 * columns of all planes at once. */
INLINE void pool_planes_whole(const fo_pool_kind kind, const fo_pool_args *g, ptrdiff_t first, ptrdiff_t count) {
    const float *x[VL];
    for (ptrdiff_t l = 0; l < VL; l++) {
        const ptrdiff_t plane = first + (l < count ? l : 0);
        x[l] = g->x.data + plane / g->c * g->x.sn + plane % g->c * g->x.sc;
    }
    const ptrdiff_t down = g->dh * g->x.sh;
    const bool longer = pool_longer(kind, g);
    vf acc[POOL_VECTORS], part[POOL_VECTORS], lost[POOL_VECTORS];
    pool_start(kind, 1, acc), pool_start(kind, 1, part), pool_start(FO_POOL_AVERAGE, 1, lost);
    for (ptrdiff_t u = 0, left = g->kw; left > 0;) {
        const int nv = left > (POOL_VECTORS - 1) * VL ? POOL_VECTORS : 1; /* several hide an addition's latency */
        const vm inside = v_range(0, left - (nv - 1) * VL);
        vf columns[POOL_VECTORS][VL];
        for (int l = 0; l < VL; l++) {
            vf column[POOL_VECTORS] = {v_zero()};
            if (l < count && nv > 1)
                pool_run(kind, POOL_VECTORS, left >= nv * VL, longer, x[l] + u, down, 0, g->kh, inside, column);
            else if (l < count)
                pool_run(kind, 1, left >= VL, longer, x[l] + u, down, 0, g->kh, inside, column);
            for (int v = 0; v < nv; v++) columns[v][l] = column[v];
        }
        for (int v = 0; v < nv; v++, u += VL, left -= VL) {
            v_transpose(columns[v]);
            for (ptrdiff_t j = 0; j < VL && j < left; j++) {
                const vf column[POOL_VECTORS] = {columns[v][j]};
                pool_column(kind, 1, longer, u + j, g->kw, column, part, lost, acc);
            }
        }
    }
    const pool_range rows = taps_inside(0, g->kh, g->dh, g->h_lo, g->h_hi);
    const pool_range wide = taps_inside(0, g->kw, g->dw, g->w_lo, g->w_hi);
    const ptrdiff_t counted = (rows.last - rows.first) * (wide.last - wide.first);
    if (kind != FO_POOL_MAX) acc[0] = v_div(acc[0], v_set1((float)counted));
    float y[VL];
    v_store(y, acc[0]);
    for (ptrdiff_t l = 0; l < count; l++) g->y.data[(first + l) / g->c * g->y.sn + (first + l) % g->c * g->y.sc] = y[l];
}

void FO_NAME(fo_pool_whole)(const fo_pool_args *g, ptrdiff_t first, ptrdiff_t count) {
    FO_RAN("pool whole planes");
    if (g->kind == FO_POOL_MAX)
        pool_planes_whole(FO_POOL_MAX, g, first, count);
    else
        pool_planes_whole(FO_POOL_AVERAGE, g, first, count);
}
