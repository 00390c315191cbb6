/* Depthwise convolution where channels are lanes: which tiles go where, and how channels are cut into vectors. */
#ifndef FO_DEPTHWISE_PIXELS_H
#define FO_DEPTHWISE_PIXELS_H

#include "bands.h"

enum { DW_TAPS = 12 << 10, DW_BLOCK = 8 * VL };

/* Tiles that kernels of one size and stride have: by the rows that are left, or by the columns. Narrow and high ones
 * read and write each row from one end to the other. */
typedef struct {
    bool by_rows;
    int count;
    dw_shape shape[3];
} dw_kernels;

#define TILES \
    SIDED(3, 1, 7, 2) SIDED(3, 1, 4, 2) SIDED(3, 1, 2, 2) SIDED(3, 2, 7, 2) SIDED(3, 2, 4, 2) SIDED(3, 2, 2, 2) \
    SIDED(5, 1, 2, 7) SIDED(5, 1, 2, 4) PLAIN(5, 2, 3, 4) PLAIN(7, 1, 4, 4) PLAIN(7, 2, 4, 4) SIDED(3, 1, 2, 4) \
    SIDED(3, 2, 2, 4) PLAIN(5, 1, 4, 2) PLAIN(5, 2, 4, 2) PLAIN(7, 1, 3, 2) PLAIN(7, 2, 3, 2) PLAIN(2, 1, 4, 4) \
    PLAIN(2, 2, 4, 4) PLAIN(4, 1, 4, 4) PLAIN(4, 2, 4, 4) PLAIN(2, 1, 3, 4) PLAIN(2, 2, 3, 4) PLAIN(4, 1, 3, 2) \
    PLAIN(4, 2, 3, 2)
TILES

static const dw_kernels *dw_kernels_of(ptrdiff_t k, ptrdiff_t s) {
#define ONE(k, s, rows, cols) {false, 1, {PLAIN_SHAPE(k, s, rows, cols)}}
#define BOTH(k, rows, cols) {ONE(k, 1, rows, cols), ONE(k, 2, rows, cols)}
#define WIDE(k, s, rows, cols, few) {false, 2, {SIDED_SHAPE(k, s, rows, cols), SIDED_SHAPE(k, s, rows, few)}}
#define HIGH(s) {true, 3, {SIDED_SHAPE(3, s, 7, 2), SIDED_SHAPE(3, s, 4, 2), SIDED_SHAPE(3, s, 2, 2)}}
    static const dw_kernels many[][2] = {[2] = BOTH(2, 4, 4),
                                         [3] = {HIGH(1), HIGH(2)},
                                         [4] = BOTH(4, 4, 4),
                                         [5] = {WIDE(5, 1, 2, 7, 4), ONE(5, 2, 3, 4)},
                                         [7] = BOTH(7, 4, 4)};
    static const dw_kernels few[][2] = {[2] = BOTH(2, 3, 4),
                                        [3] = {WIDE(3, 1, 2, 4, 2), WIDE(3, 2, 2, 4, 2)},
                                        [4] = BOTH(4, 3, 2),
                                        [5] = BOTH(5, 4, 2),
                                        [7] = BOTH(7, 3, 2)};
    return DW_32 ? &many[k][s - 1] : &few[k][s - 1];
}

/* The shape where `rows` and `cols` are left. High tiles read fewer of the rows above again; of stride 2, or where the
 * lines of a column of pixels are in a few sets of the first-level cache, seven rows are too many streams. */
static const dw_shape *dw_next_shape(const dw_kernels *kn, const fo_depthwise_args *g, ptrdiff_t rows, ptrdiff_t cols) {
    const dw_shape *s = kn->shape;
    const ptrdiff_t all = g->h1 - g->h0;
    const bool crowded = g->s->sh == 2 || (g->x.sw % 64 == 0 && all % 4 == 0);
    if (kn->by_rows) return all == 7 || (all % 7 == 0 && !crowded) ? &s[0] : rows > 2 && all >= 4 ? &s[1] : &s[2];
    return kn->count > 1 && (cols <= s[1].cols || g->z->ow < s[0].cols) ? &s[1] : s;
}

/* Vectors of channels that follow each other: `count` of them from channel c on. */
typedef struct {
    ptrdiff_t c, count;
    const float *w, *bias;
} dw_span;

/* How channels are cut into vectors: all of them from the first on, and a masked one with the `rest`. Or (shift) from
 * channel `shift` on, each in one cache line of y, for a store across two takes twice as long; their taps and bias are
 * copies that come round. Where pixels touch, the last one reaches into the next pixel:
 *
 *     pixels   |0   0   0   0   |1   1   1   1   |2   2   2   2   |
 *     vectors   f o   o   o   o   o   o   o   o   f o   o   o   l
 *
 * f and l: `first` and `last`, across lines, where no vector reaches into the pixel, or out of it. */
typedef struct {
    dw_span all, first, last;
    ptrdiff_t shift, rest;
    bool touch;
} dw_cut;

static const float dw_no_bias[VL];

static dw_span dw_span_at(const fo_depthwise_args *g, ptrdiff_t c, ptrdiff_t count) {
    return (dw_span){c, count, g->w + c * g->s->kh * g->s->kw, g->bias ? g->bias + c : dw_no_bias};
}

/* Taps of the vectors from c0 + shift on: lanes of two neighboring blocks, the last one's of the last and the first.
 * After them the bias, likewise. */
static void dw_shift_taps(const fo_depthwise_args *g, dw_cut *v, float *to) {
    const ptrdiff_t kk = g->s->kh * g->s->kw, own = VL - v->shift, count = v->all.count;
    const vm left = v_range(0, own), right = v_range(own, VL);
    const float *from[] = {v->all.w, v->all.bias};
    const float **const copies[] = {&v->all.w, &v->all.bias};
    for (int part = 0; part < (g->bias ? 2 : 1); part++) {
        const ptrdiff_t block = part ? VL : kk * VL;
        *copies[part] = to;
        for (ptrdiff_t n = 0; n < count; n++) {
            const float *this = from[part] + n * block, *next = from[part] + (n + 1) % count * block;
            for (ptrdiff_t t = 0; t < block; t += VL, to += VL)
                v_store(to, v_select(left, v_load_tail(this + t + v->shift, own), v_load_mask(next + t - own, right)));
        }
    }
}

/* `may`: whether vectors may begin at the lines of y, which serves where all pixels lie on lines in the same way. */
static dw_cut dw_cut_channels(const fo_depthwise_args *g, bool may, float taps[DW_TAPS]) {
    const ptrdiff_t kk = g->s->kh * g->s->kw, channels = g->c1 - g->c0, whole = channels / VL;
    const ptrdiff_t off = (ptrdiff_t)((uintptr_t)(g->y.data + g->c0) / sizeof(float) % VL);
    const bool touch = !g->c0 && g->s->sh == 1 && g->x.sw == channels && g->y.sw == channels;
    const bool few = channels < (touch ? 32 : 6 * VL); /* would lose by vectors more, of a row or of each pixel */
    dw_cut v = {.all = dw_span_at(g, g->c0, whole), .rest = channels % VL, .touch = touch};
    if (!may || !off || (g->y.sw | g->y.sh | channels) % VL || few || channels * (kk + 1) + VL > DW_TAPS) return v;
    v.shift = VL - off;
    v.first = dw_span_at(g, g->c0, 1), v.last = dw_span_at(g, g->c1 - VL, 1);
    dw_shift_taps(g, &v, taps);
    v.all.c += v.shift;
    return v;
}

/* Where a tile is. */
typedef struct {
    dw_tile tile;
    const float *x; /* its first channel */
    float *y;
    ptrdiff_t h, w, u, after; /* its first output pixel; the window's first column, and columns after the image */
} dw_place;

/* What all tiles of a call share. */
static dw_place dw_start(const fo_depthwise_args *g) {
    return (dw_place){.tile = {.tiles = 1,
                               .step_bias = g->bias ? VL : 0,
                               .xh = g->x.sh,
                               .xw = g->x.sw,
                               .yh = g->y.sh,
                               .yw = g->y.sw,
                               .bounded = ep_bounded(&g->act),
                               .ep = ep_start(&g->act),
                               .lanes = VL}};
}

/* The tile at output pixel (h, w). It overlaps others before w1 and h1 rather than be smaller, if it may, and its
 * window ends in the image, or as far after as it can. */
static void dw_place_tile(const dw_tile_form f, const fo_depthwise_args *g, const bool overlaps, ptrdiff_t h,
                          ptrdiff_t w, ptrdiff_t w1, dw_place *p) {
    const fo_conv2d_size *z = g->z;
    if (overlaps && g->h1 - g->h0 >= f.rows && h > g->h1 - f.rows) h = g->h1 - f.rows;
    if (overlaps && z->ow >= f.cols && w > w1 - f.cols) w = w1 - f.cols;
    if (overlaps && (z->ow - 1) * f.s + f.k - z->left - z->iw <= f.k / 2)
        while (w > 0 && w < z->ow - f.cols && w * f.s - z->left + dw_window(f) > z->iw) w--;
    const ptrdiff_t t = h * f.s - z->top, u = w * f.s - z->left, needed = (g->h1 - 1) * f.s - z->top + f.k;
    const ptrdiff_t below = t + dw_window_rows(f) - (needed < z->ih ? needed : z->ih);
    p->x = g->x.data + t * g->x.sh + u * g->x.sw, p->y = g->y.data + h * g->y.sh + w * g->y.sw;
    p->tile.above = t < 0 ? (int)-t : 0, p->tile.below = below > 0 ? (int)below : 0;
    p->tile.rows = (int)(g->h1 - h < f.rows ? g->h1 - h : f.rows);
    p->tile.cols = (int)(z->ow - w < f.cols ? z->ow - w : f.cols);
    p->h = h, p->w = w, p->u = u, p->after = u + dw_window(f) - z->iw;
}

/* The kernel that has the tile's side by literals, or NULL. */
static dw_tile_fn *dw_sided(const dw_tile_form f, const dw_shape *shape, const dw_place *p) {
    const int half = f.k / 2, side = (p->u < 0 ? DW_NO_FIRST : 0) + (p->after > 0 ? DW_NO_LAST : 0);
    const bool whole = p->tile.rows == f.rows && p->tile.cols == f.cols;
    const bool known = whole && p->tile.above <= half && p->tile.below <= half;
    return known && (p->u >= 0 || p->u == -half) && (p->after <= 0 || p->after == half) ? shape->side[side] : NULL;
}

/* The channels of a span; fields are set in place, for what is copied would wait for its stores. fn: or NULL. */
INLINE void dw_call(dw_tile_fn *fn, dw_place *p, dw_span v) {
    p->tile.x = p->x + v.c, p->tile.y = p->y + v.c, p->tile.w = v.w, p->tile.bias = v.bias, p->tile.count = v.count;
    if (fn && v.count > 0) fn(&p->tile);
}

/* The same masked, with `lanes` of each vector; where there are several tiles, their columns are all in the image. */
static void dw_call_masked(const dw_tile_form f, const fo_depthwise_args *g, const dw_shape *shape, dw_place *p,
                           ptrdiff_t lanes, dw_span v) {
    vm in[DW_WINDOW];
    p->tile.in = in, p->tile.lanes = (int)lanes;
    for (int q = 0; q < dw_window(f); q++) in[q] = v_range(0, p->u + q >= 0 && p->u + q < g->z->iw ? lanes : 0);
    dw_call(shape->masked, p, v);
}

/* Tiles whose sums need another epilogue, a block of channels after the other. */
static void dw_tile_finish(const dw_tile_form f, const fo_depthwise_args *g, const dw_shape *shape, dw_tile_fn *fn,
                           dw_place p) {
    _Alignas(64) float sums[16 * DW_BLOCK];
    p.tile.yw = DW_BLOCK, p.tile.yh = f.cols * DW_BLOCK, p.tile.bounded = false, p.tile.ep.lo = v_set1(-INFINITY);
    for (ptrdiff_t c = g->c0, n; c < g->c1; c += n) {
        n = g->c1 - c < DW_BLOCK ? g->c1 - c : DW_BLOCK;
        p.y = sums - c;
        if (fn)
            dw_call(fn, &p, dw_span_at(g, c, n / VL));
        else
            dw_call_masked(f, g, shape, &p, VL, dw_span_at(g, c, n / VL));
        if (n % VL) dw_call_masked(f, g, shape, &p, n % VL, dw_span_at(g, c + n / VL * VL, 1));
        for (int q = 0; q < p.tile.rows; q++)
            dw_finish(g, &(dw_sums){sums + q * p.tile.yh, DW_BLOCK, c, n, p.h + q, p.w, p.tile.cols, true});
    }
}

/* All channels of the tile at output pixel (h, w), or of so many that follow it; `reached`: whether vectors of a tile
 * before it reach into it. How many. A residual may be y itself, so that tiles which add one do not overlap. */
static ptrdiff_t dw_tiles_at(const fo_depthwise_args *g, const dw_cut *cut, const dw_shape *shape, ptrdiff_t h,
                             ptrdiff_t w, ptrdiff_t w1, dw_place *p, bool *reached) {
    const dw_tile_form f = {.k = (int)g->s->kh, .s = (int)g->s->sh, .rows = shape->rows, .cols = shape->cols};
    const bool registers = dw_in_registers(g);
    dw_place_tile(f, g, registers && shape->side[DW_NO_LAST], h, w, w1, p);
    dw_tile_fn *const fn = dw_sided(f, shape, p);
    if (!registers) {
        dw_tile_finish(f, g, shape, fn, *p);
        return 1;
    }
    const ptrdiff_t reach = cut->shift && cut->touch, step = f.cols * f.s;
    const bool reaches = reach && p->u >= 0 && p->after + reach <= 0 && p->w + f.cols + reach <= g->z->ow;
    ptrdiff_t n = 1;
    if (fn && p->u >= 0 && (cut->touch || !cut->shift))
        while (w + (n + 1) * f.cols <= w1 - (w1 == g->z->ow && reach) && p->after + n * step + reach <= 0) n++;
    dw_span spans[3] = {cut->all, cut->first, cut->last};
    if (cut->shift && !reaches) spans[0].count--;
    for (int v = 0, ends = !cut->shift || (reaches && *reached) ? 0 : reaches ? 1 : 2; v <= ends; v++) {
        p->tile.tiles = v ? 1 : n;
        if (fn)
            dw_call(fn, p, spans[v]);
        else
            dw_call_masked(f, g, shape, p, VL, spans[v]);
    }
    if (cut->rest) dw_call_masked(f, g, shape, p, cut->rest, dw_span_at(g, g->c1 - cut->rest, 1));
    *reached = reaches;
    return n;
}

/* All tiles, from the top down, in ranges of columns so narrow that a cache keeps the rows which two tiles share: the
 * second level's; where registers are few the first level's (of stride 2 tiles share one row of five: wide ones). */
static void dw_all_tiles(const fo_depthwise_args *g, const dw_kernels *kn) {
    const ptrdiff_t k = g->s->kh, s = g->s->sh, ow = g->z->ow, channels = g->c1 - g->c0;
    const dw_shape *const first = dw_next_shape(kn, g, g->h1 - g->h0, ow);
    const ptrdiff_t column = channels * (ptrdiff_t)sizeof(float) * (first->rows * (s * s + 1) + k - 1);
    const ptrdiff_t bytes = !DW_32 && k == 3 && s == 1 ? FO_L1_SHARE : FO_L2_SHARE, cols = first->cols;
    const ptrdiff_t fit = bytes / column / cols * cols, range = fit > 2 * cols ? fit : 2 * cols;
    float taps[DW_TAPS];
    const bool may = dw_in_registers(g) && (DW_32 || k > 3) && (s == 1 || channels >= FO_DEPTHWISE_MANY * VL);
    const dw_cut cut = dw_cut_channels(g, may, taps);
    dw_place place = dw_start(g);
    for (ptrdiff_t w0 = 0; w0 < ow; w0 += range) {
        const ptrdiff_t w1 = w0 + range < ow ? w0 + range : ow;
        for (ptrdiff_t h = g->h0, rows; h < g->h1; h += rows) {
            rows = dw_next_shape(kn, g, g->h1 - h, ow)->rows;
            bool reached = w0 > 0;
            for (ptrdiff_t w = w0; w < w1;) {
                const dw_shape *shape = dw_next_shape(kn, g, g->h1 - h, w1 - w);
                w += shape->cols * dw_tiles_at(g, &cut, shape, h, w, w1, &place, &reached);
            }
        }
    }
}

/* Whether bands serve: 3 x 3, whole vectors, margins that they know, pixels that share few sets of the cache. Stride 1:
 * a multiple of 2 KB from each other, and the second-level cache holds x and y; from a cache further away lines that
 * follow each other come better (512x28x28 on two threads 0.6). Stride 2: also where that cache holds most of x and y,
 * and there are many channels, or, where none is across lines, some. Longer rows of few channels come better in one
 * piece: 96x112x112 98 us, by tiles 80. */
static bool dw_wants_bands(const fo_depthwise_args *g) {
    const fo_conv2d_size *z = g->z;
    const ptrdiff_t s = g->s->sh, right = (z->ow - 1) * s + 3 - z->left - z->iw, rows = g->h1 - g->h0;
    const ptrdiff_t bottom = (z->oh - 1) * s + 3 - z->top - z->ih, channels = g->c1 - g->c0;
    const bool known = z->left <= 1 && right <= 1 && z->top <= 1 && bottom <= 1;
    if (!DW_32 || !g->half_rate || !known || g->s->kh != 3 || channels % VL || !dw_in_registers(g)) return false;
    const ptrdiff_t bytes = channels * (ptrdiff_t)sizeof(float) * rows * (s * z->iw + z->ow);
    const bool at_lines = ((uintptr_t)(g->x.data + g->c0) | (uintptr_t)(g->y.data + g->c0)) % (VL * sizeof(float)) == 0;
    if (s == 1)
        return z->ow % DW_BAND == 0 && rows >= DW_BAND && g->x.sw % (FO_PAGE_FLOATS / 2) == 0 && bytes <= FO_L2_ALL;
    const bool many = rows >= DW_BAND && bytes <= 2 * FO_L2_ALL &&
                      channels >= (at_lines ? FO_DEPTHWISE_MANY / 2 : FO_DEPTHWISE_MANY) * VL;
    return z->ow >= DW_BAND && rows >= 2 && (g->x.sw % (FO_PAGE_FLOATS / 8) == 0 || many);
}

static void dw_band_down(const fo_depthwise_args *g, dw_span v, ptrdiff_t w) {
    static dw_tile_fn *const bands[] = SIDES(dw_band_);
    const dw_tile_form f = {.k = 3, .s = 1, .rows = (int)(g->h1 - g->h0), .cols = DW_BAND};
    dw_place p = dw_start(g);
    dw_place_tile(f, g, true, g->h0, w, g->z->ow, &p);
    dw_call(bands[(p.u < 0 ? DW_NO_FIRST : 0) + (p.after > 0 ? DW_NO_LAST : 0)], &p, v);
}

/* From the row before, unless it is outside; the last band overlaps. */
static void dw_relay_down(const fo_depthwise_args *g, dw_span v, ptrdiff_t w) {
    static dw_relay_fn *const relays[] = SIDES(dw_relay_);
    enum { VECTORS = 8, NEXT = VECTORS * VL };
    _Alignas(64) float sums[VECTORS * DW_BAND * VL];
    const dw_tile_form f = {.k = 3, .s = 2, .rows = 1, .cols = DW_BAND};
    dw_place p = dw_start(g);
    for (; v.count > 0; v.c += NEXT, v.w += 9 * NEXT, v.bias += g->bias ? NEXT : 0, v.count -= VECTORS)
        for (ptrdiff_t h = g->h0 - (g->h0 > 0 || !g->z->top); h < g->h1; h++) {
            dw_place_tile(f, g, true, h, w, g->z->ow, &p);
            dw_call(NULL, &p, (dw_span){v.c, v.count < VECTORS ? v.count : VECTORS, v.w, v.bias});
            const dw_relay r = {&p.tile, sums, h >= g->h0, h + 1 < g->h1};
            relays[(p.u < 0 ? DW_NO_FIRST : 0) + (p.after > 0 ? DW_NO_LAST : 0)](&r);
        }
}

/* Band after band, for the vectors inside a pixel, and for either end of each. */
static void dw_all_bands(const fo_depthwise_args *g) {
    const ptrdiff_t s = g->s->sh;
    float taps[DW_TAPS];
    dw_cut cut = dw_cut_channels(g, s == 1 || g->c1 - g->c0 >= FO_DEPTHWISE_MANY * VL, taps);
    cut.all.count -= cut.shift > 0;
    const dw_span spans[] = {cut.all, cut.first, cut.last};
    for (int v = 0; v < 3; v++)
        for (ptrdiff_t w = 0; spans[v].count > 0 && w < g->z->ow; w += DW_BAND)
            (s == 1 ? dw_band_down : dw_relay_down)(g, spans[v], w);
}

/* Pixels whose distance is a multiple of 2 KB share two of the 64 sets of a first-level cache of 32 KB, which hold less
 * than a tile's window: each half of a line would be fetched by itself. Some channels of some rows are copied to a
 * buffer first; false where a few rows would not fit. */
static bool dw_copied(const fo_depthwise_args *g, const dw_kernels *kn) {
    enum { CHANNELS = FO_DEPTHWISE_MANY / 2 * VL, FLOATS = FO_L1_SHARE / sizeof(float) };
    const ptrdiff_t k = g->s->kh, s = g->s->sh, iw = g->z->iw, line = iw * CHANNELS, fit = line ? FLOATS / line : 0;
    const ptrdiff_t most = fit < k ? 0 : (fit - k) / s + 1, unit = kn->shape->rows, strip = most / unit * unit;
    if (DW_32 || g->x.sw % (FO_PAGE_FLOATS / 2) || !strip) return false;
    _Alignas(64) float copy[FLOATS];
    for (ptrdiff_t c = g->c0; c < g->c1; c += CHANNELS)
        for (ptrdiff_t h = g->h0; h < g->h1; h += strip) {
            fo_depthwise_args part = *g;
            part.c0 = c, part.c1 = c + CHANNELS < g->c1 ? c + CHANNELS : g->c1;
            part.h0 = h, part.h1 = h + strip < g->h1 ? h + strip : g->h1;
            const ptrdiff_t first = h * s - g->z->top, last = (part.h1 - 1) * s - g->z->top + k;
            const ptrdiff_t t0 = first > 0 ? first : 0, t1 = last < g->z->ih ? last : g->z->ih;
            float *to = copy;
            for (ptrdiff_t t = t0; t < t1; t++)
                for (ptrdiff_t u = 0; u < iw; u++, to += CHANNELS) {
                    const float *from = g->x.data + t * g->x.sh + u * g->x.sw + c;
                    if (part.c1 - c == CHANNELS)
                        UNROLL_FOR (int v = 0; v < CHANNELS; v += VL) v_store(to + v, v_load(from + v));
                    else
                        for (ptrdiff_t v = 0; v < part.c1 - c; v += VL)
                            v_store(to + v, v_load_tail(from + v, part.c1 - c - v));
                }
            part.x = (fo_image){copy - c - t0 * line, 0, 1, line, CHANNELS};
            dw_all_tiles(&part, kn);
        }
    return true;
}

static void dw_pixels(const fo_depthwise_args *g, ptrdiff_t k, ptrdiff_t stride) {
    const dw_kernels *const kn = dw_kernels_of(k, stride);
    if (dw_wants_bands(g))
        dw_all_bands(g);
    else if (!dw_copied(g, kn))
        dw_all_tiles(g, kn);
}

#endif
