/* Winograd's transforms a row of positions at a time (conv/winograd.c): of a strip of tiles all columns are transformed first, to `half`, and stay so;
 * the positions of one row are made from it when their products are due, and the products go back to where they came from:
 *
 *     x  columns ->  half[row][column][channel]  -- row i ->  V[position of row i][tile][channel]
 *                                                                       | products
 *     y  <- columns  half[row][column][channel]  <- row i --  M[position of row i][tile][channel]
 *
 * Of planes, where vectors are shorter than a cache line, half is half[row][channel][column]: columns are transformed along the row, one plane after the
 * other, and channels come together where a row of positions is made. So a plane's lines are needed once and in order, for of planes that lie 2^n bytes
 * apart few fit into a cache. A vector that is a whole line uses all of it at once, and a tile is half as wide: there channels come together first.
 *
 * V and M of a row of positions, an eighth of all, stay in a small second-level cache while the weights stream through it, and half has 6 values
 * of a tile's row instead of 8. All channels of a pixel follow each other, so that a vector shorter than a line does not fetch and evict it twice.
 */

enum { HALF_HAS_PLANES = VL < 16 }; /* floats of a line */

/* What lies `step` apart, of which every third has a pointer: addresses cost nothing then, and few registers. */
enum { THIRD = 3 };
typedef struct {
    float *p[THIRD];
    ptrdiff_t step;
} walk;

INLINE walk walk_from(const float *first, ptrdiff_t step) {
    walk w = {.step = step};
    UNROLL for (int i = 0; i < THIRD; i++) {
        w.p[i] = (float *)first + THIRD * i * step;
        v_hide(w.p[i]);
    }
    return w;
}

INLINE float *walk_at(const walk *w, int i) { return w->p[i / THIRD] + i % THIRD * w->step; }

INLINE void walk_on(walk *w, ptrdiff_t by) {
    UNROLL for (int i = 0; i < THIRD; i++) {
        w->p[i] += by;
        v_hide(w->p[i]);
    }
}

INLINE void load_all(const int n, const walk *from, vf *d) {
    UNROLL for (int i = 0; i < n; i++) d[i] = v_load(walk_at(from, i));
}

INLINE void store_all(const int n, const walk *to, const vf *d) {
    UNROLL for (int i = 0; i < n; i++) v_store(walk_at(to, i), d[i]);
}

/* ---- columns of x --------------------------------------------------------------------------------------------------- */

/* Columns q .. end-1 of the strip, which lie in the image from column w on; rows lo .. hi-1 of them do. */
INLINE void half_nhwc(const int m, const int height, const fo_winograd_input_args *g, int lo, int hi, ptrdiff_t q, ptrdiff_t end,
                      ptrdiff_t w) {
    const int n = height + 2;
    const ptrdiff_t whole = lo == 0 && hi == n ? g->channels / VL * VL : 0;
    for (; q < end; q++, w++) {
        walk x = walk_from(g->x.data + g->h0 * g->x.sh + w * g->x.sw, g->x.sh), to = walk_from(g->half + q * g->ldv, g->half_row);
        vf d[8];
        ptrdiff_t c = 0;
        for (; c < whole; c += VL) {
            load_all(n, &x, d);
            input_transform(1, m, height, d);
            store_all(n, &to, d);
            walk_on(&x, VL), walk_on(&to, VL);
        }
        for (; c < g->channels; c += VL) {
            const vm lanes = v_range(0, g->channels - c);
            UNROLL for (int i = 0; i < n; i++) d[i] = i < lo || i >= hi ? v_zero() : v_load_mask(walk_at(&x, i), lanes);
            input_transform(1, m, height, d);
            store_all(n, &to, d);
            walk_on(&x, VL), walk_on(&to, VL);
        }
    }
}

/* The walk over planes is nothing that the hardware foresees: the rows of one AHEAD planes further are fetched, as if they followed each other. */
enum { AHEAD = 2 };

INLINE void fetch_plane(const float **line, const int lines) {
    UNROLL for (int i = 0; i < lines; i++) __builtin_prefetch(*line + i * LINE);
    *line += lines * LINE;
}

/* Columns w .. end-1 of the image, in vectors. Where not `columns`, some may lie beside it, where not `rows`, rows too: those become zero. */
INLINE void plane_columns(const bool rows, const bool columns, const int m, const int height, const fo_winograd_input_args *g, int lo, int hi,
                          ptrdiff_t w, ptrdiff_t end, walk *x, walk *to, const float **ahead) {
    const int n = height + 2;
    for (; w < end; w += VL) {
        const vm inside = columns ? v_range(0, 0) : v_range(-w, g->iw - w);
        vf d[8];
        UNROLL for (int i = 0; i < n; i++)
            d[i] = !rows && (i < lo || i >= hi) ? v_zero() : columns ? v_load(walk_at(x, i)) : v_load_mask(walk_at(x, i), inside);
        fetch_plane(ahead, n * VL / LINE);
        input_transform(1, m, height, d);
        store_all(n, to, d);
        walk_on(x, VL), walk_on(to, VL);
    }
}

/* half[row][channel][column] */
INLINE void half_planes(const int m, const int height, const fo_winograd_input_args *g, int lo, int hi, ptrdiff_t columns) {
    const float *plane = g->x.data + g->h0 * g->x.sh + g->w0;
    const bool rows = lo == 0 && hi == height + 2;
    const ptrdiff_t end = g->w0 + columns, whole = clamped(g->w0 < 0 ? g->w0 + (VL - 1 - g->w0) / VL * VL : g->w0, g->w0, end);
    const ptrdiff_t last = whole < g->iw ? whole + (clamped(end, whole, g->iw) - whole) / VL * VL : whole;
    for (ptrdiff_t c = 0; c < g->channels; c++, plane += g->x.sc) {
        walk x = walk_from(plane, g->x.sh), to = walk_from(g->half + c * g->half_plane, g->half_row);
        const float *ahead = plane + AHEAD * g->x.sc + lo * g->x.sh;
        if (rows) {
            plane_columns(true, false, m, height, g, lo, hi, g->w0, whole, &x, &to, &ahead);
            plane_columns(true, true, m, height, g, lo, hi, whole, last, &x, &to, &ahead);
            plane_columns(true, false, m, height, g, lo, hi, last, end, &x, &to, &ahead);
        } else
            plane_columns(false, false, m, height, g, lo, hi, g->w0, end, &x, &to, &ahead);
    }
}

/* The same of planes, where a vector is long: channels come together at once, VL of them and of columns at a time. */
INLINE void half_blocks(const int m, const int height, const fo_winograd_input_args *g, ptrdiff_t q, ptrdiff_t end, ptrdiff_t w) {
    const int n = height + 2;
    const ptrdiff_t after = w + end - q;
    input_state s;
    begin_input(g, n, &s);
    for (s.c = 0; s.c < g->channels; s.c += VL) {
        walk to = walk_from(g->half + q * g->ldv + s.c, g->half_row);
        s.next = PTRDIFF_MIN;
        for (ptrdiff_t column = w; column < after; column++, walk_on(&to, g->ldv)) {
            if (column >= s.next) load_block(&s, column - misalignment(g->x.data + s.c * g->x.sc + (g->h0 + s.lo) * g->x.sh + column));
            vf d[8];
            UNROLL for (int i = 0; i < n; i++) d[i] = v_load(s.block + (column - s.next + VL + i * VL) * VL);
            input_transform(1, m, height, d);
            store_all(n, &to, d);
        }
    }
}

INLINE void half_run(const int m, const int height, const fo_winograd_input_args *g) {
    const int n = height + 2, lo = (int)clamped(-g->h0, 0, n), hi = (int)clamped(g->ih - g->h0, lo, n);
    const ptrdiff_t end = g->count * m + g->last + 2, inside = clamped(-g->w0, 0, end), outside = clamped(g->iw - g->w0, inside, end);
    if (HALF_HAS_PLANES && g->half_plane) {
        half_planes(m, height, g, lo, hi, end);
        return;
    }
    for (int i = 0; i < n; i++) { /* columns beside the image */
        memset(g->half + i * g->half_row, 0, (size_t)(inside * g->ldv) * sizeof(float));
        memset(g->half + i * g->half_row + outside * g->ldv, 0, (size_t)((end - outside) * g->ldv) * sizeof(float));
    }
    if (HALF_HAS_PLANES || g->x.sc == 1)
        half_nhwc(m, height, g, lo, hi, inside, outside, g->w0 + inside);
    else
        half_blocks(m, height, g, inside, outside, g->w0 + inside);
}

void FO_NAME(fo_winograd_columns)(const fo_winograd_input_args *g) {
    WITH_TILE(g->tile, g->height, half_run(TILE, SIZE, g));
}

/* ---- one row of positions ---------------------------------------------------------------------------------------------- */

/* d[0..n) of VL planes, and the other way round: a vector's lanes beyond n become whatever, and up to VL-1 columns behind them too. */
INLINE void load_turned(const int n, const float *from, ptrdiff_t plane, vf *d) {
    UNROLL for (int j = 0; j < n; j += VL) {
        vf t[VL];
        v_load_transposed(t, from + j, plane);
        UNROLL for (int l = 0; l < VL; l++)
            if (j + l < n) d[j + l] = t[l];
    }
}

INLINE void store_turned(const int n, float *to, ptrdiff_t plane, const vf *d) {
    UNROLL for (int j = 0; j < n; j += VL) {
        vf t[VL];
        UNROLL for (int l = 0; l < VL; l++) t[l] = d[j + l < n ? j + l : n - 1];
        v_transpose(t);
        float *lower = to + j, *upper = lower + VL / 2 * plane;
        v_hide(upper);
        UNROLL for (int l = 0; l < VL; l++) v_store((l < VL / 2 ? lower : upper) + l % ((VL + 1) / 2) * plane, t[l]);
    }
}

/* V of `tiles` tiles of one width, whose values of row i of half stand at `from`. */
INLINE void row_tiles(const int m, const int width, const fo_winograd_input_args *g, const float *from, ptrdiff_t tiles, float *v) {
    for (ptrdiff_t t = 0; t < tiles; t++, from += width * g->ldv, v += g->ldv) {
        walk x = walk_from(from, g->ldv), to = walk_from(v, g->position);
        for (ptrdiff_t c = 0; c < g->channels; c += VL) {
            vf d[8];
            load_all(width + 2, &x, d);
            input_transform(1, m, width, d);
            store_all(width + 2, &to, d);
            walk_on(&x, VL), walk_on(&to, VL);
        }
    }
}

/* The same of planes, along which the tiles go. */
INLINE void row_planes(const int m, const int width, const fo_winograd_input_args *g, const float *from, ptrdiff_t tiles, float *v) {
    const ptrdiff_t plane = g->half_plane, ldv = g->ldv;
    for (ptrdiff_t c = 0; c < g->channels; c += VL) {
        const float *x = from + c * plane;
        walk to = walk_from(v + c, g->position);
        for (ptrdiff_t t = 0; t < tiles; t++, x += width, walk_on(&to, ldv)) {
            vf d[8];
            load_turned(width + 2, x, plane, d);
            input_transform(1, m, width, d);
            store_all(width + 2, &to, d);
        }
    }
}

void FO_NAME(fo_winograd_row)(const fo_winograd_input_args *g, int i) {
    const float *from = g->half + i * g->half_row, *last = from + g->count * g->tile * (g->half_plane ? 1 : g->ldv);
    if (HALF_HAS_PLANES && g->half_plane) {
        if (g->count) WITH_TILE(g->tile, g->tile, row_planes(TILE, SIZE, g, from, g->count, g->v));
        if (g->last) WITH_TILE(g->tile, g->last, row_planes(TILE, SIZE, g, last, 1, g->v_last));
        return;
    }
    if (g->count) WITH_TILE(g->tile, g->tile, row_tiles(TILE, SIZE, g, from, g->count, g->v));
    if (g->last) WITH_TILE(g->tile, g->last, row_tiles(TILE, SIZE, g, last, 1, g->v_last));
}

INLINE void back_row_tiles(const int m, const int width, const fo_winograd_output_args *g, const float *products, ptrdiff_t tiles,
                           float *half) {
    for (ptrdiff_t t = 0; t < tiles; t++, products += g->ldp, half += width * g->ldp) {
        walk from = walk_from(products, g->position), to = walk_from(half, g->ldp);
        for (ptrdiff_t o = 0; o < g->channels; o += VL) {
            vf d[8];
            load_all(width + 2, &from, d);
            output_transform(1, m, width, d);
            store_all(width, &to, d);
            walk_on(&from, VL), walk_on(&to, VL);
        }
    }
}

/* Of planes; the next tile overwrites what one stores too much. */
INLINE void back_row_planes(const int m, const int width, const fo_winograd_output_args *g, const float *products, ptrdiff_t tiles,
                            float *half) {
    const ptrdiff_t plane = g->half_plane, ldp = g->ldp;
    for (ptrdiff_t o = 0; o < g->channels; o += VL) {
        float *to = half + o * plane;
        walk from = walk_from(products + o, g->position);
        for (ptrdiff_t t = 0; t < tiles; t++, to += width, walk_on(&from, ldp)) {
            vf d[8];
            load_all(width + 2, &from, d);
            output_transform(1, m, width, d);
            store_turned(width, to, plane, d);
        }
    }
}

void FO_NAME(fo_winograd_back_row)(const fo_winograd_output_args *g, int i) {
    float *to = g->half + i * g->half_row, *last = to + g->count * g->tile * (g->half_plane ? 1 : g->ldp);
    if (HALF_HAS_PLANES && g->half_plane) {
        if (g->count) WITH_TILE(g->tile, g->tile, back_row_planes(TILE, SIZE, g, g->products, g->count, to));
        if (g->last) WITH_TILE(g->tile, g->last, back_row_planes(TILE, SIZE, g, g->products_last, 1, last));
        return;
    }
    if (g->count) WITH_TILE(g->tile, g->tile, back_row_tiles(TILE, SIZE, g, g->products, g->count, to));
    if (g->last) WITH_TILE(g->tile, g->last, back_row_tiles(TILE, SIZE, g, g->products_last, 1, last));
}

/* ---- columns of y ------------------------------------------------------------------------------------------------------- */

/* Whole vectors of channels that follow each other in y, and nothing to apply but limits: from the registers to y. */
INLINE void back_nhwc(const int m, const int height, const fo_winograd_output_args *g) {
    const vf lo = v_set1(g->act.kind == FO_CLIP ? g->act.p0 : -INFINITY), hi = v_set1(g->act.kind == FO_CLIP ? g->act.p1 : INFINITY);
    for (ptrdiff_t q = 0; q < g->columns; q++) {
        walk from = walk_from(g->half + q * g->ldp, g->half_row), y = walk_from(g->y.data + q * g->y.sw, g->y.sh);
        const float *r = g->r.data ? g->r.data + q * g->r.sw : NULL;
        for (ptrdiff_t o = 0; o < g->channels; o += VL) {
            const vf bias = g->bias ? v_load(g->bias + o) : v_zero();
            vf d[8];
            load_all(height + 2, &from, d);
            output_transform(1, m, height, d);
            UNROLL for (int i = 0; i < height; i++) d[i] = v_add(d[i], bias);
            if (r)
                UNROLL for (int i = 0; i < height; i++) d[i] = v_add(d[i], v_load(r + i * g->r.sh + o));
            UNROLL for (int i = 0; i < height; i++) d[i] = v_min(hi, v_max(lo, d[i]));
            store_all(height, &y, d);
            walk_on(&from, VL), walk_on(&y, VL);
        }
    }
}

/* Columns q .. end-1 of a plane, in vectors; whole: of all rows. */
INLINE void back_plane_columns(const bool whole, const int m, const int height, const fo_winograd_output_args *g, vf bias, vf lo, vf hi, ptrdiff_t q,
                               ptrdiff_t end, walk *from, walk *y, walk *r, const float **ahead) {
    const ptrdiff_t rows = g->rows;
    const bool adds = r->p[0];
    for (; q < end; q += VL) {
        const vm lanes = v_range(0, end - q);
        vf d[8];
        load_all(height + 2, from, d);
        fetch_plane(ahead, height * VL / LINE);
        output_transform(1, m, height, d);
        UNROLL for (int i = 0; i < height; i++) d[i] = v_add(d[i], bias);
        if (adds) {
            UNROLL for (int i = 0; i < height; i++)
                if (whole || i < rows) d[i] = v_add(d[i], whole ? v_load(walk_at(r, i)) : v_load_mask(walk_at(r, i), lanes));
            walk_on(r, VL);
        }
        UNROLL for (int i = 0; i < height; i++) d[i] = v_min(hi, v_max(lo, d[i]));
        UNROLL for (int i = 0; i < height; i++)
            if (whole)
                v_store(walk_at(y, i), d[i]);
            else if (i < rows)
                v_store_first(walk_at(y, i), d[i], end - q, lanes);
        walk_on(from, VL), walk_on(y, VL);
    }
}

/* Planes, one after the other as on the way in, whose lines are fetched too. */
INLINE void back_planes(const int m, const int height, const fo_winograd_output_args *g) {
    const vf lo = v_set1(g->act.kind == FO_CLIP ? g->act.p0 : -INFINITY), hi = v_set1(g->act.kind == FO_CLIP ? g->act.p1 : INFINITY);
    const ptrdiff_t whole = g->rows == height ? g->columns / VL * VL : 0;
    for (ptrdiff_t c = 0; c < g->channels; c++) {
        const vf bias = v_set1(g->bias ? g->bias[c] : 0);
        walk from = walk_from(g->half + c * g->half_plane, g->half_row), y = walk_from(g->y.data + c * g->y.sc, g->y.sh), r = {0};
        if (g->r.data) r = walk_from(g->r.data + c * g->r.sc, g->r.sh);
        const float *ahead = g->y.data + (c + AHEAD) * g->y.sc;
        back_plane_columns(true, m, height, g, bias, lo, hi, 0, whole, &from, &y, &r, &ahead);
        back_plane_columns(false, m, height, g, bias, lo, hi, whole, g->columns, &from, &y, &r, &ahead);
    }
}

/* Planes where a vector is long: VL channels of VL columns at a time, whose lines are fetched before they are written. Strips of 48 columns, as in
 * back_any, take 1.01 of the time, of 112x112 1.04. */
INLINE void back_blocks(const int m, const int height, const fo_winograd_output_args *g) {
    const float lo = g->act.kind == FO_CLIP ? g->act.p0 : -INFINITY, hi = g->act.kind == FO_CLIP ? g->act.p1 : INFINITY;
    alignas(64) float block[6 * VL * VL];
    for (ptrdiff_t o = 0; o < g->channels; o += VL) {
        const vf bias = g->bias ? v_load(g->bias + o) : v_zero();
        for (ptrdiff_t q = 0; q < g->columns; q += VL) {
            const ptrdiff_t columns = clamped(g->columns - q, 0, VL);
            float *const y = g->y.data + o * g->y.sc + q;
            walk from = walk_from(g->half + q * g->ldp + o, g->half_row), to = walk_from(block, VL * VL);
            for (ptrdiff_t p = 0; p < columns; p++, walk_on(&from, g->ldp), walk_on(&to, VL)) {
                vf d[8];
                UNROLL for (int i = 0; i < height; i++) __builtin_prefetch(y + p * g->y.sc + i * g->y.sh, 1);
                load_all(height + 2, &from, d);
                output_transform(1, m, height, d);
                UNROLL for (int i = 0; i < height; i++) d[i] = v_add(d[i], bias);
                store_all(height, &to, d);
            }
            finish_args f = {.mr = (int)columns, .n = VL, .ldt = VL, .ldr = g->r.sc, .ldc = g->y.sc, .p0 = lo, .p1 = hi};
            for (int i = 0; i < g->rows; i++) {
                f.tile = block + i * VL * VL, f.c = y + i * g->y.sh;
                f.r = g->r.data ? g->r.data + o * g->r.sc + i * g->r.sh + q : NULL;
                finish_columns(FO_CLIP, &f);
            }
        }
    }
}

/* Floats of a plane of y whose lines are fetched to the second-level cache while a strip is computed, for so many drive each other out of the first. */
enum { LARGE_PLANE = 8 << 10 };

INLINE void back_any(const int m, const int height, const fo_winograd_output_args *g) {
    const bool nhwc = g->y.sc == 1, fetches = g->y.sc >= LARGE_PLANE;
    alignas(64) float strip[8 * PITCH];
    for (ptrdiff_t q = 0; q < g->columns; q += STRIP * 6)
        for (ptrdiff_t o = 0; o < g->channels; o += VL) {
            const int lanes = g->channels - o < VL ? (int)(g->channels - o) : VL;
            const vf bias = g->bias ? v_load_tail(g->bias + o, lanes) : v_zero();
            const ptrdiff_t pixels = clamped(g->columns - q, 0, STRIP * 6);
            walk from = walk_from(g->half + q * g->ldp + o, g->half_row), to = walk_from(strip, PITCH);
            float *const y = g->y.data + o * g->y.sc + q * g->y.sw;
            for (ptrdiff_t p = 0; p < pixels; p++, walk_on(&from, g->ldp), walk_on(&to, VL)) {
                if (fetches && p % m == 0) fetch_share(g, y, pixels, lanes, p / m, (pixels + m - 1) / m);
                vf d[8];
                load_all(height + 2, &from, d);
                output_transform(1, m, height, d);
                UNROLL for (int i = 0; i < height; i++) d[i] = v_add(d[i], bias);
                store_all(height, &to, d);
            }
            finish_args f = {.mr = (int)pixels, .n = lanes, .ldt = VL, .ldr = nhwc ? g->r.sw : g->r.sc, .ldc = nhwc ? g->y.sw : g->y.sc,
                             .slopes = g->act.slopes ? g->act.slopes + o : NULL, .p0 = g->act.p0, .p1 = g->act.p1};
            for (ptrdiff_t i = 0; i < g->rows; i++) {
                f.tile = strip_at(strip, (int)i, 0);
                f.c = y + i * g->y.sh;
                f.r = g->r.data ? g->r.data + o * g->r.sc + i * g->r.sh + q * g->r.sw : NULL;
                FO_NAME(fo_finish_tile)(&f, g->act.kind, !nhwc);
            }
        }
}

INLINE void back_run(const int m, const int height, const fo_winograd_output_args *g) {
    const bool plain = g->channels % VL == 0 && g->act.kind <= FO_CLIP;
    if (plain && g->y.sc == 1 && g->rows == height)
        back_nhwc(m, height, g);
    else if (HALF_HAS_PLANES && g->half_plane)
        back_planes(m, height, g);
    else if (!HALF_HAS_PLANES && plain && g->y.sw == 1 && (!g->r.data || g->r.sw == 1))
        back_blocks(m, height, g);
    else
        back_any(m, height, g);
}

void FO_NAME(fo_winograd_back_columns)(const fo_winograd_output_args *g) {
    WITH_TILE(g->tile, g->height, back_run(TILE, SIZE, g));
}

