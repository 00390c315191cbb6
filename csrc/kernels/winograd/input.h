/* The transform of the input, V = B^T d B: columns first, to `mid`, then rows.
 *
 *     x  columns ->  mid[row][column][channel]  row i ->  V[position of row i][tile][channel]
 *
 * By rows of positions (conv/algorithms/winograd.c) mid has a block of tiles with all their channels, and V one row of
 * positions, made when its products are due. All positions at once: mid is a strip of some columns and a vector of
 * channels, here.
 */

/* Elements `step` apart, of which every third has a pointer: addresses cost nothing then, and few registers. */
enum { THIRD = 3 };
typedef struct {
    float *p[THIRD];
    ptrdiff_t step;
} walk;

INLINE walk walk_from(const float *first, ptrdiff_t step) {
    walk w = {.step = step};
    UNROLL_FOR (int i = 0; i < THIRD; i++) {
        w.p[i] = (float *)first + THIRD * i * step;
        v_launder(w.p[i]);
    }
    return w;
}

INLINE float *walk_at(const walk *w, int i) { return w->p[i / THIRD] + i % THIRD * w->step; }

INLINE void walk_on(walk *w, ptrdiff_t by) {
    UNROLL_FOR (int i = 0; i < THIRD; i++) {
        w->p[i] += by;
        v_launder(w->p[i]);
    }
}

INLINE void load_all(const int n, const walk *from, vf *d) {
    UNROLL_FOR (int i = 0; i < n; i++) d[i] = v_load(walk_at(from, i));
}

INLINE void store_all(const int n, const walk *to, const vf *d) {
    UNROLL_FOR (int i = 0; i < n; i++) v_store(walk_at(to, i), d[i]);
}

INLINE ptrdiff_t clamped(ptrdiff_t i, ptrdiff_t lo, ptrdiff_t hi) { return i < lo ? lo : i > hi ? hi : i; }
INLINE ptrdiff_t fewer(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

/* What is transformed on one side: element (i, j, channel) at p[i * row + j * ld + channel]. */
typedef struct {
    float *p;
    ptrdiff_t ld, row;
} one_sided;

/* A strip of it in the first-level cache: FO_WINOGRAD_STRIP columns, the two that reach beyond the last tile, and VL
 * channels. */
enum { STRIP_ROW = (FO_WINOGRAD_STRIP + 2) * VL };

/* ---- columns --------------------------------------------------------------------------------------------------- */

/* Some columns of x, column w of the image first; of their rows those outside lo .. hi-1 are zeros. */
typedef struct {
    fo_image x; /* data: the first row of column 0, the first channel */
    ptrdiff_t channels, iw, w, columns;
    int lo, hi;
    one_sided mid;
} input_columns;

/* all: every row and lane is there. */
INLINE void load_column(const int n, const bool all, const input_columns *g, const walk *x, vm lanes, vf *d) {
    UNROLL_FOR (int i = 0; i < n; i++)
        d[i] = all ? v_load(walk_at(x, i)) : i < g->lo || i >= g->hi ? v_zero() : v_load_mask(walk_at(x, i), lanes);
}

/* `count` vectors: columns, or the channels of one. */
INLINE void transform_columns(const int stride, const int m, const int height, const bool all, const input_columns *g,
                              walk x, ptrdiff_t x_step, float *to, ptrdiff_t to_step, vm lanes, ptrdiff_t count) {
    const int n = values_of(stride, height);
    walk y = walk_from(to, g->mid.row);
    for (; count > 0; count--) {
        vf d[MAX_VALUES];
        load_column(n, all, g, &x, lanes, d);
        input_transform(stride, m, height, d);
        store_all(n, &y, d);
        walk_on(&x, x_step), walk_on(&y, to_step);
    }
}

/* Columns q .. end-1 of an image whose channels are neighbors. */
INLINE void columns_nhwc(const int stride, const int m, const int height, const input_columns *g, ptrdiff_t q,
                         ptrdiff_t end) {
    const bool strip = g->channels <= VL; /* of one vector: columns are the inner loop */
    const ptrdiff_t whole = g->lo == 0 && g->hi == values_of(stride, height) ? g->channels / VL : 0;
    const ptrdiff_t x_step = strip ? g->x.sw : VL, to_step = strip ? g->mid.ld : VL, count = strip ? end - q : whole;
    for (; q < end; q += strip ? end - q : 1) {
        const float *x = g->x.data + (g->w + q) * g->x.sw;
        float *to = g->mid.p + q * g->mid.ld;
        if (whole)
            transform_columns(stride, m, height, true, g, walk_from(x, g->x.sh), x_step, to, to_step, v_range(0, VL),
                              count);
        for (ptrdiff_t c = whole * VL; c < g->channels; c += VL)
            transform_columns(stride, m, height, false, g, walk_from(x + c, g->x.sh), x_step, to + c, to_step,
                              v_range(0, g->channels - c), strip ? count : 1);
    }
}

/* block[row][column][channel] of VL channels from c on and VL columns of the image from w on, for rows inside it. */
INLINE void transpose_block(const input_columns *g, ptrdiff_t c, ptrdiff_t w, float *block) {
    const vm columns = v_range(-w, g->iw - w);
    const ptrdiff_t channels = g->channels - c;
    for (int i = g->lo; i < g->hi; i++) {
        const float *x = g->x.data + c * g->x.sc + i * g->x.sh + w;
        vf t[VL];
        UNROLL_FOR (int l = 0; l < VL; l++) t[l] = l < channels ? v_load_mask(x + l * g->x.sc, columns) : v_zero();
        UNROLL_FOR (int l = 0; l < VL; l++) __builtin_prefetch(x + l * g->x.sc + LINE_FLOATS, 0, 2);
        v_transpose(t);
        UNROLL_FOR (int l = 0; l < VL; l++) v_store(block + (i * VL + l) * VL, t[l]);
    }
}

/* The same of planes. Blocks begin at vector boundaries; the channels of a line of mid come one after the other. */
INLINE void columns_nchw(const int stride, const int m, const int height, const input_columns *g, ptrdiff_t q,
                         ptrdiff_t end) {
    const bool all = g->lo == 0 && g->hi == values_of(stride, height);
    alignas(64) float block[MAX_VALUES * VL * VL];
    for (ptrdiff_t c0 = 0; c0 < g->channels; c0 += LINE_FLOATS)
        for (ptrdiff_t at = q, next; at < end; at = next) {
            const float *x = g->x.data + c0 * g->x.sc + g->lo * g->x.sh + g->w + at;
            const ptrdiff_t before = (ptrdiff_t)((uintptr_t)x / sizeof *x % VL);
            next = fewer(at + VL - before, end);
            for (ptrdiff_t c = c0; c < fewer(c0 + LINE_FLOATS, g->channels); c += VL) {
                const walk from = walk_from(block + before * VL, VL * VL);
                float *to = g->mid.p + at * g->mid.ld + c;
                transpose_block(g, c, g->w + at - before, block);
                if (all)
                    transform_columns(stride, m, height, true, g, from, VL, to, g->mid.ld, v_range(0, VL), next - at);
                else
                    transform_columns(stride, m, height, false, g, from, VL, to, g->mid.ld, v_range(0, VL), next - at);
            }
        }
}

/* Columns outside the image are zeros of all channels, padded as the others to whole vectors. */
INLINE void zero_columns(const int n, const input_columns *g, ptrdiff_t q, ptrdiff_t end) {
    for (; q < end; q++)
        for (int i = 0; i < n; i++)
            for (ptrdiff_t c = 0; c < g->channels; c += VL)
                v_store(g->mid.p + i * g->mid.row + q * g->mid.ld + c, v_zero());
}

INLINE void transform_all_columns(const int stride, const int m, const int height, const input_columns *g) {
    const int n = values_of(stride, height);
    const ptrdiff_t inside = clamped(-g->w, 0, g->columns), outside = clamped(g->iw - g->w, inside, g->columns);
    zero_columns(n, g, 0, inside);
    zero_columns(n, g, outside, g->columns);
    if (g->x.sc == 1) {
        FO_RAN("winograd in nhwc");
        columns_nhwc(stride, m, height, g, inside, outside);
    } else {
        FO_RAN("winograd in nchw");
        columns_nchw(stride, m, height, g, inside, outside);
    }
}

static __attribute__((noinline)) void columns_in(int stride, int tile, int height, const input_columns *g) {
    WITH_TILE(stride, tile, height, transform_all_columns(STRIDE, TILE, SIZE, g));
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* A row of tiles of one width: their row of mid, whose ld it has, and its positions in V. Stride 2: `second` is the
 * distance of what odd rows add to a position with a single value, `phase` of a position's phases. */
typedef struct {
    const float *mid;
    ptrdiff_t ld, tiles, channels;
    float *v;
    ptrdiff_t ldv, position, second, phase;
} input_row;

INLINE void store_row(const int stride, const int width, const input_row *g, const walk *to, const vf *d) {
    if (stride == 1)
        store_all(width + 2, to, d);
    else
        UNROLL_FOR (int j = 0; j < values_of(2, width); j++) {
            const int point = point_of(width, j);
            v_store(to->p[0] + point * g->position + values_at(point) * g->second + is_odd(width, j) * g->phase, d[j]);
        }
}

INLINE void transform_row(const int stride, const int m, const int width, const input_row *g) {
    const bool strip = g->channels <= VL; /* of one vector: tiles are the inner loop */
    const ptrdiff_t vectors = (g->channels + VL - 1) / VL, mid_tile = stride * width * g->ld;
    const ptrdiff_t outer = strip ? 1 : g->tiles, inner = strip ? g->tiles : vectors;
    const ptrdiff_t from_step = strip ? mid_tile : VL, to_step = strip ? g->ldv : VL;
    for (ptrdiff_t t = 0; t < outer; t++) {
        walk from = walk_from(g->mid + t * mid_tile, g->ld), to = walk_from(g->v + t * g->ldv, g->position);
        for (ptrdiff_t i = 0; i < inner; i++) {
            vf d[MAX_VALUES];
            load_all(values_of(stride, width), &from, d);
            input_transform(stride, m, width, d);
            store_row(stride, width, g, &to, d);
            walk_on(&from, from_step), walk_on(&to, to_step);
        }
    }
}

static __attribute__((noinline)) void row_in(int stride, int tile, int width, const input_row *g) {
    WITH_TILE(stride, tile, width, transform_row(STRIDE, TILE, SIZE, g));
}

/* ---- by rows of positions, and all at once --------------------------------------------------------------------- */

/* The call's columns, channels from c on. */
static input_columns columns_of(const fo_winograd_input_args *g, ptrdiff_t c, ptrdiff_t channels, one_sided mid) {
    const int n = values_of(g->stride, g->height), lo = (int)clamped(-g->h0, 0, n);
    input_columns i = {.x = g->x, .channels = channels, .iw = g->iw, .w = g->w0, .lo = lo, .mid = mid};
    i.columns = g->stride * (g->count * g->tile + g->last) + 3 - g->stride;
    i.hi = (int)clamped(g->ih - g->h0, lo, n);
    i.x.data += g->h0 * g->x.sh + c * g->x.sc;
    return i;
}

void FO_NAME(fo_winograd_columns)(const fo_winograd_input_args *g) {
    FO_RAN("winograd by rows");
    const input_columns i = columns_of(g, 0, g->channels, (one_sided){g->mid, g->ldv, g->mid_row});
    columns_in(g->stride, g->tile, g->height, &i);
}

void FO_NAME(fo_winograd_row)(const fo_winograd_input_args *g, int i) {
    input_row r = {.mid = g->mid + i * g->mid_row,
                   .ld = g->ldv,
                   .tiles = g->count,
                   .channels = g->channels,
                   .v = g->v,
                   .ldv = g->ldv,
                   .position = g->position};
    row_in(g->stride, g->tile, g->tile, &r);
    r.mid += g->count * g->tile * g->ldv, r.v = g->v_last, r.tiles = 1;
    row_in(g->stride, g->tile, g->last, &r);
}

/* All rows of a strip's tiles of one width. */
static void strip_rows(const fo_winograd_input_args *g, int width, ptrdiff_t tiles, const float *strip, float *v) {
    const ptrdiff_t points = points_of(g->stride, g->tile);
    for (int i = 0; i < values_of(g->stride, g->height); i++, strip += STRIP_ROW) {
        const bool odd = g->stride == 2 && is_odd(g->height, i);
        const int point = g->stride == 2 ? point_of(g->height, i) : i;
        row_in(g->stride, g->tile, width,
               &(input_row){strip, VL, tiles, VL, v + point * points * g->position, g->ldv, g->position,
                            odd ? g->phase : 0, g->phase});
    }
}

void FO_NAME(fo_winograd_input)(const fo_winograd_input_args *g) {
    FO_RAN("winograd by strips");
    const ptrdiff_t step = g->stride * g->tile, tiles = FO_WINOGRAD_STRIP / step;
    alignas(64) float strip[MAX_VALUES * STRIP_ROW];
    for (ptrdiff_t c = 0; c < g->channels; c += VL) {
        input_columns all = columns_of(g, c, fewer(g->channels - c, VL), (one_sided){strip, VL, STRIP_ROW});
        const ptrdiff_t end = all.columns;
        for (ptrdiff_t t = 0; t < g->count + (g->last > 0); t += tiles) {
            const ptrdiff_t count = clamped(g->count - t, 0, tiles);
            all.w = g->w0 + t * step, all.columns = fewer(end - t * step, FO_WINOGRAD_STRIP + 3 - g->stride);
            columns_in(g->stride, g->tile, g->height, &all);
            strip_rows(g, g->tile, count, strip, g->v + t * g->ldv + c);
            if (count < tiles && g->last) strip_rows(g, g->last, 1, strip + count * step * VL, g->v_last + c);
        }
    }
}
