/* Winograd's transforms a row of positions at a time (ops/winograd.c): of a strip of tiles all columns are transformed first, to `half`, and stay so;
 * the positions of one row are made from it when their products are due, and the products go back to where they came from:
 *
 *     x  columns ->  half[row][column][channel]  -- row i ->  V[position of row i][tile][channel]
 *                                                                       | products
 *     y  <- columns  half[row][column][channel]  <- row i --  M[position of row i][tile][channel]
 *
 * V and M of a row of positions, an eighth of all, stay in a small second-level cache while the weights stream through it, and half has 6 values
 * of a tile's row instead of 8. All channels of a pixel follow each other, so that a vector shorter than a line does not fetch and evict it twice.
 */

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

/* Planes come in blocks of WIDE pixels and VL channels, whole lines of a set whose vectors are half a line. */
enum { WIDE = 2 * VL, CHUNK = 2 * WIDE };

/* block[row][pixel][channel] from column w on. The same pixels of the next channels are fetched, for the walk is nothing that the hardware foresees. */
INLINE void load_wide(const bool whole, const fo_winograd_input_args *g, int lo, int hi, ptrdiff_t c, ptrdiff_t w, ptrdiff_t ahead, float *block) {
    const vm columns[2] = {v_range(-w, g->iw - w), v_range(-w - VL, g->iw - w - VL)};
    const ptrdiff_t channels = g->channels - c, sc = g->x.sc;
    for (int i = lo; i < hi; i++)
        for (int part = 0; part < 2; part++) {
            const float *x = g->x.data + c * sc + (g->h0 + i) * g->x.sh + w + part * VL;
            vf t[VL];
            UNROLL for (int l = 0; l < VL; l++, x += sc) {
                v_hide(x);
                t[l] = whole ? v_load(x) : l < channels ? v_load_mask(x, columns[part]) : v_zero();
                if (part) __builtin_prefetch(x + ahead); /* not before: planes 2^n bytes apart share few sets */
            }
            v_transpose(t);
            UNROLL for (int l = 0; l < VL; l++) v_store(block + ((i * 2 + part) * VL + l) * VL, t[l]);
        }
}

INLINE void half_nchw(const int m, const int height, const fo_winograd_input_args *g, int lo, int hi, ptrdiff_t q, ptrdiff_t end,
                      ptrdiff_t w) {
    const int n = height + 2;
    alignas(64) float block[8 * WIDE * VL];
    for (int i = 0; i < n; i++)
        if (i < lo || i >= hi) memset(block + i * WIDE * VL, 0, WIDE * VL * sizeof(float));
    const ptrdiff_t before = (ptrdiff_t)((uintptr_t)(g->x.data + (g->h0 + lo) * g->x.sh + w) / sizeof(float) % WIDE), first = q - before;
    w -= q; /* of column 0 */
    for (ptrdiff_t chunk = first; chunk < end; chunk += CHUNK)
        for (ptrdiff_t c = 0; c < g->channels; c += VL)
            for (ptrdiff_t line = chunk; line < end && line < chunk + CHUNK; line += WIDE) {
                const ptrdiff_t from = line < q ? q : line, to = line + WIDE < end ? line + WIDE : end;
                const ptrdiff_t ahead = line + WIDE < chunk + CHUNK ? WIDE : VL * g->x.sc - (line - chunk);
                if (w + line >= 0 && w + line + WIDE <= g->iw && g->channels - c >= VL)
                    load_wide(true, g, lo, hi, c, w + line, ahead, block);
                else
                    load_wide(false, g, lo, hi, c, w + line, ahead, block);
                walk half = walk_from(g->half + from * g->ldv + c, g->half_row);
                for (ptrdiff_t p = from; p < to; p++, walk_on(&half, g->ldv)) {
                    vf d[8];
                    UNROLL for (int i = 0; i < n; i++) d[i] = v_load(block + (i * WIDE + p - line) * VL);
                    input_transform(1, m, height, d);
                    store_all(n, &half, d);
                }
            }
}

INLINE void half_run(const int m, const int height, const fo_winograd_input_args *g) {
    const int n = height + 2, lo = (int)clamped(-g->h0, 0, n), hi = (int)clamped(g->ih - g->h0, lo, n);
    const ptrdiff_t end = g->count * m + g->last + 2, inside = clamped(-g->w0, 0, end), outside = clamped(g->iw - g->w0, inside, end);
    for (int i = 0; i < n; i++) { /* columns beside the image */
        memset(g->half + i * g->half_row, 0, (size_t)(inside * g->ldv) * sizeof(float));
        memset(g->half + i * g->half_row + outside * g->ldv, 0, (size_t)((end - outside) * g->ldv) * sizeof(float));
    }
    if (g->x.sc == 1)
        half_nhwc(m, height, g, lo, hi, inside, outside, g->w0 + inside);
    else
        half_nchw(m, height, g, lo, hi, inside, outside, g->w0 + inside);
}

static void FO_NAME(fo_winograd_columns)(const fo_winograd_input_args *g) {
    WITH_TILE(g->tile, g->height, half_run(TILE, SIZE, g));
}

/* ---- one row of positions ---------------------------------------------------------------------------------------------- */

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

static void FO_NAME(fo_winograd_row)(const fo_winograd_input_args *g, int i) {
    const float *from = g->half + i * g->half_row, *last = from + g->count * g->tile * g->ldv;
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

static void FO_NAME(fo_winograd_back_row)(const fo_winograd_output_args *g, int i) {
    float *to = g->half + i * g->half_row, *last = to + g->count * g->tile * g->ldp;
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

/* Pixels from q on to the end of a line of y, WIDE of them where there is no such end. */
INLINE ptrdiff_t pixels_of_line(const fo_winograd_output_args *g, ptrdiff_t q) {
    return g->y.sc == 1 ? WIDE : WIDE - (ptrdiff_t)((uintptr_t)(g->y.data + q) / sizeof(float) % WIDE);
}

/* Whole vectors of channels in planes, a line of pixels at a time; the lines of y are fetched, into the second-level cache one turn before. */
INLINE void back_nchw(const int m, const int height, const fo_winograd_output_args *g) {
    const ptrdiff_t sc = g->y.sc;
    finish_args f = {.ldr = g->r.sc, .ldc = sc, .p0 = g->act.kind == FO_CLIP ? g->act.p0 : -INFINITY, .p1 = g->act.kind == FO_CLIP ? g->act.p1 : INFINITY};
    alignas(64) float strip[6 * WIDE * VL];
    const ptrdiff_t first = -(ptrdiff_t)((uintptr_t)g->y.data / sizeof(float) % WIDE);
    for (ptrdiff_t chunk = first; chunk < g->columns; chunk += CHUNK)
        for (ptrdiff_t o = 0; o < g->channels; o += VL) {
            const vf bias = g->bias ? v_load(g->bias + o) : v_zero();
            for (ptrdiff_t line = chunk; line < g->columns && line < chunk + CHUNK; line += WIDE) {
                const ptrdiff_t q = line < 0 ? 0 : line, pixels = clamped(g->columns, q, line + WIDE) - q;
                walk from = walk_from(g->half + q * g->ldp + o, g->half_row);
                float *to = strip, *y = g->y.data + o * sc + q;
                for (ptrdiff_t p = 0; p < pixels; p++, to += VL, walk_on(&from, g->ldp)) {
                    vf d[8];
                    if (p < VL)
                        UNROLL for (int i = 0; i < height; i++) __builtin_prefetch(y + p * sc + i * g->y.sh);
                    load_all(height + 2, &from, d);
                    output_transform(1, m, height, d);
                    UNROLL for (int i = 0; i < height; i++) v_store(to + i * WIDE * VL, v_add(d[i], bias));
                }
                for (int i = 0; i < g->rows; i++, y += g->y.sh)
                    for (int part = 0; part * VL < pixels; part++) {
                        vf t[VL];
                        UNROLL for (int l = 0; l < VL; l++) t[l] = v_load(strip + ((i * 2 + part) * VL + l) * VL);
                        v_transpose(t);
                        f.c = y + part * VL;
                        f.r = g->r.data ? g->r.data + o * g->r.sc + i * g->r.sh + q + part * VL : NULL;
                        if (pixels - part * VL >= VL)
                            finish_block(FO_CLIP, true, &f, 0, 0, t, VL, v_range(0, VL));
                        else
                            finish_block(FO_CLIP, false, &f, 0, 0, t, (int)(pixels - part * VL), v_range(0, pixels - part * VL));
                    }
            }
        }
}

INLINE void back_any(const int m, const int height, const fo_winograd_output_args *g) {
    const bool nhwc = g->y.sc == 1;
    alignas(64) float strip[8 * PITCH];
    for (ptrdiff_t q = 0; q < g->columns; q += STRIP * 6)
        for (ptrdiff_t o = 0; o < g->channels; o += VL) {
            const int lanes = g->channels - o < VL ? (int)(g->channels - o) : VL;
            const vf bias = g->bias ? v_load_tail(g->bias + o, lanes) : v_zero();
            const ptrdiff_t pixels = clamped(g->columns - q, 0, STRIP * 6);
            walk from = walk_from(g->half + q * g->ldp + o, g->half_row), to = walk_from(strip, PITCH);
            for (ptrdiff_t p = 0; p < pixels; p++, walk_on(&from, g->ldp), walk_on(&to, VL)) {
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
                f.c = g->y.data + o * g->y.sc + i * g->y.sh + q * g->y.sw;
                f.r = g->r.data ? g->r.data + o * g->r.sc + i * g->r.sh + q * g->r.sw : NULL;
                finish_tile(&f, g->act.kind, !nhwc);
            }
        }
}

INLINE void back_run(const int m, const int height, const fo_winograd_output_args *g) {
    const bool plain = g->channels % VL == 0 && g->act.kind <= FO_CLIP;
    if (plain && g->y.sc == 1 && g->rows == height)
        back_nhwc(m, height, g);
    else if (plain && g->y.sw == 1 && (!g->r.data || g->r.sw == 1))
        back_nchw(m, height, g);
    else
        back_any(m, height, g);
}

static void FO_NAME(fo_winograd_back_columns)(const fo_winograd_output_args *g) {
    WITH_TILE(g->tile, g->height, back_run(TILE, SIZE, g));
}

