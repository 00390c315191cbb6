/* Nearest and linear resizing: columns first, then rows. Vectors run along the channels of a pixel where these are
 * neighbors, else along the columns. */

INLINE vf v_between(vf a, vf b, vf t) { return v_fma(t, v_sub(b, a), a); }

/* VL channels of an output, or (not whole) those of a mask; upper and lower: the two pixels of either row. */
INLINE vf resize_pixel(const fo_resize_args *g, const bool whole, const float *const upper[2],
                       const float *const lower[2], ptrdiff_t c, vf across, vf down, vm inside) {
    vf v = whole ? v_load(upper[0] + c) : v_load_mask(upper[0] + c, inside);
    if (g->w1) v = v_between(v, whole ? v_load(upper[1] + c) : v_load_mask(upper[1] + c, inside), across);
    if (!g->h1) return v;
    vf below = whole ? v_load(lower[0] + c) : v_load_mask(lower[0] + c, inside);
    if (g->w1) below = v_between(below, whole ? v_load(lower[1] + c) : v_load_mask(lower[1] + c, inside), across);
    return v_between(v, below, down);
}

/* Output row h of image n. */
void FO_NAME(fo_resize_row)(const fo_resize_args *args, ptrdiff_t n, ptrdiff_t h) {
    const fo_resize_args g = *args; /* a copy, which the compiler knows that no store changes */
    const fo_image *s = &g.x;
    const float *image = s->data + n * s->sn, *upper = image + g.h0[h] * s->sh,
                *lower = g.h1 ? image + g.h1[h] * s->sh : upper;
    const vf down = v_set1(g.h1 ? g.th[h] : 0);
    const ptrdiff_t whole = g.c / VL * VL;
    const vm inside = v_range(0, g.c - whole);
    float *y = g.y.data + n * g.y.sn + h * g.y.sh;
    for (ptrdiff_t w = 0; w < g.ow; w++, y += g.y.sw) {
        const ptrdiff_t left = g.w0[w] * s->sw, right = g.w1 ? g.w1[w] * s->sw : left;
        const float *const two[2] = {upper + left, upper + right}, *const below[2] = {lower + left, lower + right};
        const vf across = v_set1(g.w1 ? g.tw[w] : 0);
        for (ptrdiff_t c = 0; c < whole; c += VL)
            v_store(y + c, resize_pixel(&g, true, two, below, c, across, down, inside));
        if (whole < g.c)
            v_store_first(y + whole, resize_pixel(&g, false, two, below, whole, across, down, inside), g.c - whole,
                          inside);
    }
}

/* Whether each column of x is nearest to two of y. */
INLINE bool resize_doubles(const fo_resize_args *g) {
    int64_t others = 0;
    for (ptrdiff_t w = 0; w < g->ow; w++) others |= g->w0[w] ^ w / 2;
    return !g->w1 && g->x.sw == 1 && !others;
}

/* The pixels of a row of x that are nearest; the compiler makes vectors of the pairs. */
INLINE void resize_nearest(const fo_resize_args *g, bool doubles, const float *restrict x, float *restrict row) {
    const ptrdiff_t sw = g->x.sw, ow = g->ow, pairs = doubles ? ow / 2 * 2 : 0;
    for (ptrdiff_t w = 0; w < pairs; w += 2) row[w] = row[w + 1] = x[w / 2];
    for (ptrdiff_t w = pairs; w < ow; w++) row[w] = x[g->w0[w] * sw];
}

/* A row of x, as wide as y. */
INLINE void resize_columns(const fo_resize_args *g, bool doubles, const float *x, float *row) {
    const ptrdiff_t sw = g->x.sw;
    if (!g->w1)
        resize_nearest(g, doubles, x, row);
    else
        for (ptrdiff_t w = 0; w < g->ow; w++) {
            const float a = x[g->w0[w] * sw], b = x[g->w1[w] * sw];
            row[w] = fmaf(g->tw[w], b - a, a);
        }
}

/* The rows of x that were made last, as wide as y. */
typedef struct {
    float *rows;
    ptrdiff_t width, held[2];
    bool doubles;
} resize_rows;

/* Row h of x; row `other` stays. */
INLINE const float *resize_row_of(const fo_resize_args *g, const float *x, resize_rows *made, ptrdiff_t h,
                                  ptrdiff_t other) {
    for (int i = 0; i < 2; i++)
        if (made->held[i] == h) return made->rows + i * made->width;
    const int i = made->held[0] == other;
    made->held[i] = h;
    resize_columns(g, made->doubles, x + h * g->x.sh, made->rows + i * made->width);
    return made->rows + i * made->width;
}

/* Output rows first .. last-1 of a plane, x to y. rows: 2 ow floats. Rows of y that are nearest to one of x are copies
 * of the first of them. */
void FO_NAME(fo_resize_plane)(const fo_resize_args *args, const float *x, float *y, ptrdiff_t first, ptrdiff_t last,
                              float *rows) {
    const fo_resize_args g = *args;
    resize_rows made = {rows, g.ow, {-1, -1}, resize_doubles(args)};
    for (ptrdiff_t h = first; h < last; h++) {
        float *to = y + h * g.y.sh;
        if (!g.h1 && g.y.sw == 1) {
            if (h > first && g.h0[h] == g.h0[h - 1])
                memcpy(to, to - g.y.sh, (size_t)g.ow * sizeof *to);
            else
                resize_columns(&g, made.doubles, x + g.h0[h] * g.x.sh, to);
            continue;
        }
        const ptrdiff_t below = g.h1 ? g.h1[h] : g.h0[h];
        const float *upper = resize_row_of(&g, x, &made, g.h0[h], below),
                    *lower = resize_row_of(&g, x, &made, below, g.h0[h]);
        const vf down = v_set1(g.h1 ? g.th[h] : 0);
        for (ptrdiff_t w = 0; w < g.ow; w += VL) {
            vf v = v_load_tail(upper + w, g.ow - w);
            if (g.h1) v = v_between(v, v_load_tail(lower + w, g.ow - w), down);
            v_store_strided(to + w * g.y.sw, g.y.sw, v, g.ow - w);
        }
    }
}
