/* Rows of y as sums of rows of x at computed positions, each with a weight; and images between their pixels: positions
 * and weights are computed for some points at a time, in plain C of which the compiler makes vectors. */
#ifndef FO_SAMPLE_H
#define FO_SAMPLE_H

/* Vectors of channels, whose sums stay in registers over the taps. Rows that weigh 0 are not read: they may be those of
 * points beyond an image, and infinite. */
INLINE void sample_channels(const fo_sample_args *a, ptrdiff_t point, ptrdiff_t c, const int vectors, ptrdiff_t last) {
    vf acc[NV];
    UNROLL_FOR (int v = 0; v < vectors; v++) acc[v] = v_zero();
    for (ptrdiff_t t = 0; t < a->taps; t++) {
        if (a->w[t * a->points + point] == 0) continue;
        const float *const x = a->x + a->at[t * a->points + point] * a->ldx + c;
        const vf w = v_set1(a->w[t * a->points + point]);
        UNROLL_FOR (int v = 0; v < vectors; v++)
            acc[v] = v_fma(w, v < vectors - 1 ? v_load(x + v * VL) : v_load_tail(x + v * VL, last), acc[v]);
    }
    float *const y = a->y + point * a->ldy + c;
    UNROLL_FOR (int v = 0; v < vectors - 1; v++) v_store(y + v * VL, acc[v]);
    v_store_tail(y + (vectors - 1) * VL, acc[vectors - 1], last);
}

void FO_NAME(fo_sample)(const fo_sample_args *a, ptrdiff_t first, ptrdiff_t last) {
    FO_RAN("sample");
    for (ptrdiff_t point = first; point < last; point++) {
        ptrdiff_t c = 0;
        for (; c + NR <= a->c; c += NR) sample_channels(a, point, c, NV, VL);
        for (; c < a->c; c += VL) sample_channels(a, point, c, 1, a->c - c < VL ? a->c - c : VL);
    }
}

enum { GRID_TAPS = 4, GRID_POINTS = GRID_TAPS * VL };

/* Where points lie along one axis: tap t of point j is pixel at[t][j], with a weight. */
typedef struct {
    int32_t at[GRID_TAPS][GRID_POINTS];
    float weight[GRID_TAPS][GRID_POINTS];
} grid_pixels;

/* v as it is reflected at low and high, as often as need be. */
INLINE float grid_reflected(float v, float low, float high) {
    const float span = high - low, twice = 2 * span, along = v - low, d = along - twice * floorf(along / twice);
    return span > 0 ? low + (d < twice - d ? d : twice - d) : 0;
}

/* The weights of `taps` pixels, of which the first is at or before a point, t after it or, of four, after the
 * second. */
INLINE void grid_weights(const int taps, float t, float weight[GRID_TAPS]) {
    const float a = -0.75f, s = 1 - t, far = 1 + t, end = 2 - t; /* of cubic weights */
    weight[0] = taps == 1 ? 1 : taps == 2 ? s : a * (((far - 5) * far + 8) * far - 4);
    if (taps > 1) weight[1] = taps == 2 ? t : ((a + 2) * t - (a + 3)) * t * t + 1;
    if (taps > 2) {
        weight[2] = ((a + 2) * s - (a + 3)) * s * s + 1;
        weight[3] = a * (((end - 5) * end + 8) * end - 4);
    }
}

/* n points, `from` so far into its positions, along an axis of images `size` long; taps is a literal. */
INLINE void grid_line(const fo_grid_sample_args *g, const int taps, const fo_grid_axis *a, ptrdiff_t size,
                      ptrdiff_t from, ptrdiff_t n, grid_pixels *to) {
    const float outside = 0x1p30f, before = a->before, scale = a->scale, shift = a->shift, low = a->low, high = a->high;
    const float *const places = a->places + from;
    const bool reflected = g->beyond == FO_BEYOND_REFLECTION, zeros = g->beyond == FO_BEYOND_ZEROS;
    const int32_t last = (int32_t)size - 1;
    for (ptrdiff_t j = 0; j < n; j++) {
        float p = (places[j * g->pw] + before) * scale + shift, weight[GRID_TAPS];
        p = p >= -outside ? p : -outside; /* NaN, too */
        p = p <= outside ? p : outside;
        if (reflected && taps < GRID_TAPS) p = grid_reflected(p, low, high);
        const float first = taps == 1 ? rintf(p) : floorf(p);
        grid_weights(taps, p - first, weight);
        UNROLL_FOR (int t = 0; t < taps; t++) {
            int32_t i = (int32_t)first + t - (taps == GRID_TAPS);
            if (reflected && taps == GRID_TAPS) i = (int32_t)grid_reflected((float)i, low, high);
            to->weight[t][j] = zeros && (i < 0 || i > last) ? 0 : weight[t];
            i = i > 0 ? i : 0;
            to->at[t][j] = i < last ? i : last;
        }
    }
}

INLINE void grid_points(const fo_grid_sample_args *g, const int taps, ptrdiff_t from, ptrdiff_t n, const float *x,
                        float *y) {
    int64_t at[GRID_TAPS * GRID_TAPS * GRID_POINTS];
    float weight[GRID_TAPS * GRID_TAPS * GRID_POINTS];
    grid_pixels rows, columns;
    grid_line(g, taps, &g->rows, g->h, from, n, &rows);
    grid_line(g, taps, &g->columns, g->w, from, n, &columns);
    for (int t = 0; t < taps * taps; t++) {
        const int r = t / taps, c = t % taps;
        for (ptrdiff_t j = 0; j < n; j++) {
            at[t * n + j] = rows.at[r][j] * (int64_t)g->x.sh + columns.at[c][j] * (int64_t)g->x.sw;
            weight[t * n + j] = rows.weight[r][j] * columns.weight[c][j];
        }
    }
    FO_NAME(fo_sample)(&(fo_sample_args){n, taps * taps, g->c, 1, g->y.sw, x, weight, at, y}, 0, n);
}

void FO_NAME(fo_grid_row)(const fo_grid_sample_args *g, ptrdiff_t image, ptrdiff_t row) {
    FO_RAN("grid row");
    const float *const x = g->x.data + image * g->x.sn;
    for (ptrdiff_t j = 0; j < g->ow; j += GRID_POINTS) {
        const ptrdiff_t n = g->ow - j < GRID_POINTS ? g->ow - j : GRID_POINTS;
        const ptrdiff_t from = image * g->pn + row * g->ph + j * g->pw;
        float *const y = g->y.data + image * g->y.sn + row * g->y.sh + j * g->y.sw;
        if (g->mode == FO_BY_NEAREST)
            grid_points(g, 1, from, n, x, y);
        else if (g->mode == FO_BY_LINEAR)
            grid_points(g, 2, from, n, x, y);
        else
            grid_points(g, GRID_TAPS, from, n, x, y);
    }
}

#endif
