/* Depthwise convolution of any other kernel, stride, dilation and multiplier.
 *
 * Where lanes are channels: tiles of one or two output rows (dw_across_rows). Where they are columns: walks of kernels of up to 3 x 3, stride 1
 * (dw_spread_planes), long rows of any kernel (dw_slide_planes), and any others with what each lane of a tap meets (dw_any).
 */
#ifndef FO_DEPTHWISE_ANY_H
#define FO_DEPTHWISE_ANY_H

#include "common.h"

enum { DW_ANY_ROWS = 8 };

/* Any kernel, stride and dilation where lanes are channels: up to DW_ACROSS pixels of one or two output rows, whose sums stand in registers, one vector of
 * channels after the other. An input row that two output rows meet is loaded once. */
enum { DW_ACROSS = REGISTERS < 32 ? 6 : 8 };

/* Such tiles: pixels h, w on, `cols` of them a row, and `count` vectors of channels from c on, of n lanes each. */
typedef struct {
    ptrdiff_t h, w, c, count, n, shared; /* shared: taps' rows from the one that the second output row meets to that of the first */
    int cols;
} dw_across_tiles;

/* acc += what the taps' row at w, which the first output row has here, and that at w - shared, which the second has, meet in the input row at x, which
 * stands at `column`. inside: no window reaches beyond the left or right end of the image, and there are VL channels. */
INLINE void dw_across_row(const int cols, const bool inside, const bool first, const bool second, const fo_depthwise_args *g, const float *x,
                          ptrdiff_t column, const vm lanes, const float *w, ptrdiff_t shared, vf acc[2][DW_ACROSS]) {
    static const float zeros[VL];
    const ptrdiff_t step = g->s->sw * g->x.sw, next = g->s->dw * g->x.sw, dw = g->s->dw;
    for (ptrdiff_t j = g->s->kw; j > 0; j--, column += dw, x += next, w += VL) {
        const vf tap = first ? v_load(w) : v_zero(), other = second ? v_load(w - shared) : v_zero();
        UNROLL for (int v = 0; v < cols; v++) {
            const float *at = inside || (size_t)(column + v * g->s->sw) < (size_t)g->z->iw ? x + v * step : zeros;
            const vf xv = inside ? v_load(at) : v_load_mask(at, lanes);
            if (first) acc[0][v] = v_fma(tap, xv, acc[0][v]);
            if (second) acc[1][v] = v_fma(other, xv, acc[1][v]);
        }
    }
}

/* The sums of output row h, from channel c on, to y. */
INLINE void dw_across_put(const int cols, const bool inside, const fo_depthwise_args *g, const dw_across_tiles *p, ptrdiff_t c, ptrdiff_t h,
                          vf sums[DW_ACROSS], const ep_bounds *ep, float *y) {
    if (!dw_in_registers(g)) {
        float buffer[DW_ACROSS * VL];
        UNROLL for (int v = 0; v < cols; v++) v_store(buffer + v * VL, sums[v]);
        dw_finish(g, &(dw_sums){buffer, VL, c, p->n, h, p->w, p->cols, true});
        return;
    }
    UNROLL for (int v = 0; v < cols; v++) {
        if (!inside && v >= p->cols) break;
        if (inside)
            ep_store(ep, y + v * g->y.sw, sums[v]);
        else
            v_store_tail(y + v * g->y.sw, ep_vector(ep, sums[v]), p->n);
    }
}

INLINE void dw_across(const int rows, const int cols, const bool inside, const fo_depthwise_args *args, const dw_across_tiles *tiles) {
    static const float none[VL];
    const fo_depthwise_args g = *args; /* copies, which the compiler knows that no store changes */
    const dw_across_tiles p = *tiles;
    const ptrdiff_t kh = g.s->kh, kw = g.s->kw, step_bias = g.bias ? VL : 0, beyond = rows > 1 ? p.shared : 0;
    const ptrdiff_t t0 = p.h * g.s->sh - g.z->top, u = p.w * g.s->sw - g.z->left, down = g.s->dh * g.x.sh;
    const vm lanes = v_range(0, p.n);
    const ep_bounds ep = ep_start(&g.act);
    const float *w = g.w + p.c * kh * kw, *x = g.x.data + t0 * g.x.sh + u * g.x.sw + p.c, *bias = g.bias ? g.bias + p.c : none;
    float *y = g.y.data + p.h * g.y.sh + p.w * g.y.sw + p.c;
    for (ptrdiff_t c = p.c, n = p.count; n > 0; n--, c += VL, w += kh * kw * VL, x += VL, y += VL, bias += step_bias) {
        vf acc[2][DW_ACROSS];
        const vf start = inside ? v_load(bias) : v_load_mask(bias, lanes);
        UNROLL for (int q = 0; q < rows; q++) UNROLL for (int v = 0; v < cols; v++) acc[q][v] = start;
        const float *row = x, *taps = w;
        for (ptrdiff_t i = 0, t = t0; i < kh + beyond; i++, t += g.s->dh, row += down, taps += kw * VL) {
            if ((size_t)t >= (size_t)g.z->ih) continue;
            if (rows == 1 || i < beyond)
                dw_across_row(cols, inside, true, false, &g, row, u, lanes, taps, 0, acc);
            else if (i < kh)
                dw_across_row(cols, inside, true, true, &g, row, u, lanes, taps, beyond * kw * VL, acc);
            else
                dw_across_row(cols, inside, false, true, &g, row, u, lanes, taps, beyond * kw * VL, acc);
        }
        UNROLL for (int q = 0; q < rows; q++)
            dw_across_put(cols, inside, &g, &p, c, p.h + q, acc[q], &ep, y + q * g.y.sh);
    }
}

typedef void dw_across_fn(const fo_depthwise_args *, const dw_across_tiles *);

#define ACROSS(rows, cols, inside) \
    static __attribute__((noinline)) void dw_across_##rows##cols##inside(const fo_depthwise_args *g, const dw_across_tiles *p) { \
        if (cols <= DW_ACROSS) dw_across(rows, cols, inside, g, p); \
    }
#define ACROSS_EITHER(cols) ACROSS(1, cols, 0) ACROSS(1, cols, 1) ACROSS(2, cols, 0) ACROSS(2, cols, 1)
#define ACROSS_ROW(cols) {{dw_across_1##cols##0, dw_across_1##cols##1}, {dw_across_2##cols##0, dw_across_2##cols##1}}
ACROSS_EITHER(4)
ACROSS_EITHER(5)
ACROSS_EITHER(6)
ACROSS_EITHER(7)
ACROSS_EITHER(8)

/* Tiles of like width along a row, of so few vectors that the rows which all output rows meet stay in the first-level cache. */
static void dw_across_rows(const fo_depthwise_args *g) {
    enum { LEAST = 4, BYTES = 24 << 10 };
    static dw_across_fn *const tiles[][2][2] = {ACROSS_ROW(4), ACROSS_ROW(5), ACROSS_ROW(6), ACROSS_ROW(7), ACROSS_ROW(8)};
    const fo_conv2d_shape *s = g->s;
    const ptrdiff_t ow = g->z->ow, across = (ow + DW_ACROSS - 1) / DW_ACROSS, even = (ow + across - 1) / across, cols = even > LEAST ? even : LEAST;
    const ptrdiff_t rows_bytes = s->kh * g->z->iw * VL * (ptrdiff_t)sizeof(float), fit = BYTES / (rows_bytes ? rows_bytes : BYTES);
    const ptrdiff_t group = s->kh == 1 ? g->c1 - g->c0 : (fit ? fit : 1) * VL; /* none is met twice by kernels of one row */
    const bool shares = s->sh % s->dh == 0 && s->sh / s->dh < s->kh;
    for (ptrdiff_t c0 = g->c0, c1; c0 < g->c1; c0 = c1) {
        c1 = c0 + group < g->c1 ? c0 + group : g->c1;
        const ptrdiff_t whole = (c1 - c0) / VL, rest = (c1 - c0) % VL;
        for (ptrdiff_t h = g->h0, rows; h < g->h1; h += rows) {
            rows = shares && h + 1 < g->h1 ? 2 : 1;
            for (ptrdiff_t w = 0; w < ow; w += cols) {
                const ptrdiff_t first = w * s->sw - g->z->left, last = first + (cols - 1) * s->sw + (s->kw - 1) * s->dw;
                dw_across_tiles p = {h, w, c0, whole, VL, s->sh / s->dh, (int)(ow - w < cols ? ow - w : cols)};
                if (whole) tiles[cols - LEAST][rows - 1][first >= 0 && last < g->z->iw && p.cols == cols](g, &p);
                p.c = c1 - rest, p.count = 1, p.n = rest;
                if (rest) tiles[cols - LEAST][rows - 1][0](g, &p);
            }
        }
    }
}

/* Kernels of up to 3 x 3, stride 1 and any dilation: walks down every dh-th row of a plane, as depthwise_planes.h has them. Each tap has its own lanes
 * inside the image, wherever it stands. */
enum { DW_SPREAD = REGISTERS < 32 ? 2 : 4 }; /* vectors side by side */

typedef struct {
    ptrdiff_t lanes; /* of the last vector */
    vm in[3][DW_SPREAD];
} dw_spread_place;

typedef struct {
    const float *x, *w;
    float *y;
    ptrdiff_t t, ih, xh, yh, dh, dw; /* the input row at x; from one row of x and of y to the next that is met */
    vf start, taps[9], acc[3][DW_SPREAD];
    ep_bounds ep;
} dw_spread;

/* The input row at x, which is row i of the output row whose sums are acc[first]. */
INLINE void dw_spread_row(const int k, const int nv, dw_spread *s, const dw_spread_place *p, const int i, const int first) {
    if ((size_t)s->t < (size_t)s->ih)
        UNROLL for (int j = 0; j < k; j++) {
            vf xv[DW_SPREAD];
            UNROLL for (int v = 0; v < nv; v++) xv[v] = v_load_mask(s->x + v * VL + j * s->dw, p->in[j][v]);
            UNROLL for (int q = 0; q <= i; q++) {
                const int tap = (i - q) * k + j;
                const vf t = REGISTERS < 32 ? v_set1(s->w[tap]) : s->taps[tap];
                UNROLL for (int v = 0; v < nv; v++) s->acc[(first + q) % k][v] = v_fma(t, xv[v], s->acc[(first + q) % k][v]);
            }
        }
    s->t += s->dh, s->x += s->xh;
}

/* The next output row, whose sums are acc[turn]. */
INLINE void dw_spread_output(const int k, const int nv, dw_spread *s, const dw_spread_place *p, const int turn) {
    dw_spread_row(k, nv, s, p, k - 1, turn);
    UNROLL for (int v = 0; v < nv; v++) {
        const vf sum = ep_vector(&s->ep, s->acc[turn][v]);
        if (v < nv - 1)
            v_store(s->y + v * VL, sum);
        else
            v_store_tail(s->y + v * VL, sum, p->lanes);
        s->acc[turn][v] = s->start;
    }
    s->y += s->yh;
}

/* `rows` output rows. */
INLINE void dw_spread_walk(const int k, const int nv, dw_spread *s, const dw_spread_place *p, ptrdiff_t rows) {
    if (REGISTERS >= 32) UNROLL for (int t = 0; t < k * k; t++) s->taps[t] = v_set1(s->w[t]);
    UNROLL for (int q = 0; q < k; q++) UNROLL for (int v = 0; v < nv; v++) s->acc[q][v] = s->start;
    UNROLL for (int i = 0; i < k - 1; i++) dw_spread_row(k, nv, s, p, i, 0);
    for (;;) { /* unrolled by hand, as in dw_walk */
        if (!rows--) return;
        dw_spread_output(k, nv, s, p, 0);
        if (k == 1) continue;
        if (!rows--) return;
        dw_spread_output(k, nv, s, p, 1 % k);
        if (k == 2) continue;
        if (!rows--) return;
        dw_spread_output(k, nv, s, p, k - 1);
    }
}

/* All channels and rows of nv vectors from output column w on. */
INLINE void dw_spread_columns(const int k, const int nv, const fo_depthwise_args *args, ptrdiff_t w) {
    const fo_depthwise_args g = *args; /* copies, which the compiler knows that no store changes */
    const ptrdiff_t ow = g.z->ow, iw = g.z->iw, left = g.z->left, lanes = ow - w - (nv - 1) * VL, dh = g.s->dh, dw = g.s->dw;
    dw_spread_place p = {.lanes = lanes < VL ? lanes : VL};
    for (int j = 0; j < k; j++)
        for (int v = 0; v < nv; v++) p.in[j][v] = v_range(left - w - v * VL - j * dw, iw + left - w - v * VL - j * dw);
    dw_spread s = {.ih = g.z->ih, .xh = dh * g.x.sh, .yh = dh * g.y.sh, .dh = dh, .dw = dw,
                   .ep = ep_start(&g.act)};
    for (ptrdiff_t c = g.c0; c < g.c1; c++)
        for (ptrdiff_t h = g.h0; h < g.h0 + dh && h < g.h1; h++) {
            s.t = h - g.z->top;
            s.x = g.x.data + c * g.x.sc + s.t * g.x.sh + w - left, s.y = g.y.data + c * g.y.sc + h * g.y.sh + w, s.w = g.w + c * g.ldw;
            s.start = g.bias ? v_set1(g.bias[c]) : v_zero();
            dw_spread_walk(k, nv, &s, &p, (g.h1 - h + dh - 1) / dh);
        }
}

typedef void dw_spread_fn(const fo_depthwise_args *, ptrdiff_t w);

#define SPREAD(k, nv) \
    static __attribute__((noinline)) void dw_spread_##k##nv(const fo_depthwise_args *g, ptrdiff_t w) { \
        if (nv <= DW_SPREAD) dw_spread_columns(k, nv, g, w); \
    }
#define SPREADS(k) SPREAD(k, 1) SPREAD(k, 2) SPREAD(k, 3) SPREAD(k, 4)
#define SPREAD_ROW(k) {dw_spread_##k##1, dw_spread_##k##2, dw_spread_##k##3, dw_spread_##k##4}
SPREADS(1)
SPREADS(2)
SPREADS(3)

/* Whether the planes are such: done. */
static bool dw_spread_planes(const fo_depthwise_args *g) {
    static dw_spread_fn *const spread[][4] = {[1] = SPREAD_ROW(1), [2] = SPREAD_ROW(2), [3] = SPREAD_ROW(3)};
    const fo_conv2d_shape *s = g->s;
    const ptrdiff_t ow = g->z->ow, vectors = (ow + VL - 1) / VL, groups = (vectors + DW_SPREAD - 1) / DW_SPREAD, nv = (vectors + groups - 1) / groups;
    if (s->kh != s->kw || !s->kh || s->kh > 3 || s->sh != 1 || s->sw != 1 || g->x.sw != 1 || !dw_in_registers(g) || g->multiplier != 1) return false;
    for (ptrdiff_t w = 0, n; w < ow; w += n * VL) {
        n = (ow - w + VL - 1) / VL < nv ? (ow - w + VL - 1) / VL : nv;
        spread[s->kh][n - 1](g, w);
    }
    return true;
}

/* Planes, any kernel and dilation, stride 1 or 2 along the row: DW_SLIDE vectors of an output row at a time, which slide over the rows that they meet, and
 * single ones where the windows reach beyond the image. */
enum { DW_SLIDE = REGISTERS < 32 ? 4 : 8 };

typedef struct {
    ptrdiff_t c, h, i0, i1; /* the kernel's rows that lie in the image */
    const float *x, *w;  /* where the window of output column 0 begins, perhaps beside the image */
    float *y;
    vf start;
    ep_bounds ep;
} dw_slide_row;

/* A vector of x, which stands at `column`; and what every second output meets from there on. */
INLINE vf dw_slide_vector(const bool inside, const float *x, ptrdiff_t column, ptrdiff_t iw) {
    return inside ? v_load(x) : v_load_mask(x, v_range(-column, iw - column));
}
INLINE vf dw_slide_load(const int stride, const bool inside, const float *x, ptrdiff_t column, ptrdiff_t iw) {
    const vf first = dw_slide_vector(inside, x, column, iw);
    return stride == 1 ? first : v_uzp_even(first, dw_slide_vector(inside, x + VL, column + VL, iw));
}

/* nv vectors from output column w on. */
INLINE void dw_slide(const int stride, const int nv, const bool inside, const fo_depthwise_args *g, const dw_slide_row *p, ptrdiff_t w) {
    const ptrdiff_t kw = g->s->kw, dw = g->s->dw, down = g->s->dh * g->x.sh, iw = g->z->iw, n = g->z->ow - w < nv * VL ? g->z->ow - w : nv * VL;
    const float *row = p->x + p->i0 * down + w * stride;
    vf acc[DW_SLIDE];
    UNROLL for (int v = 0; v < nv; v++) acc[v] = p->start;
    for (ptrdiff_t i = p->i0; i < p->i1; i++, row += down) {
        const float *x = row, *tap = p->w + i * kw;
        ptrdiff_t column = w * stride - g->z->left;
        for (ptrdiff_t j = kw; j > 0; j--, tap++, x += dw, column += dw) {
            const vf t = v_set1(*tap);
            UNROLL for (int v = 0; v < nv; v++) acc[v] = v_fma(t, dw_slide_load(stride, inside, x + v * VL * stride, column, iw), acc[v]);
        }
    }
    float *y = p->y + w;
    if (!dw_in_registers(g)) {
        float sums[DW_SLIDE * VL];
        UNROLL for (int v = 0; v < nv; v++) v_store(sums + v * VL, acc[v]);
        dw_finish(g, &(dw_sums){sums, nv * VL, p->c, n, p->h, w, 1, false});
        return;
    }
    UNROLL for (int v = 0; v < nv; v++) {
        const vf sum = ep_vector(&p->ep, acc[v]);
        if (inside)
            v_store(y + v * VL, sum);
        else
            v_store_tail(y + v * VL, sum, n);
    }
}

typedef void dw_slide_fn(const fo_depthwise_args *, const dw_slide_row *, ptrdiff_t w);

#define SLIDE(stride, nv, inside) \
    static __attribute__((noinline)) void dw_slide_##stride##nv##inside(const fo_depthwise_args *g, const dw_slide_row *p, ptrdiff_t w) { \
        if (nv <= DW_SLIDE) dw_slide(stride, nv, inside, g, p, w); \
    }
#define SLIDES(stride) SLIDE(stride, 1, 0) SLIDE(stride, 1, 1) SLIDE(stride, 2, 1) SLIDE(stride, 4, 1) SLIDE(stride, 8, 1)
#define SLIDE_SET(stride) {dw_slide_##stride##10, dw_slide_##stride##11, dw_slide_##stride##21, dw_slide_##stride##41, dw_slide_##stride##81}
SLIDES(1)
SLIDES(2)

/* Whether the planes are such: done. Short rows of several go eight at a time (dw_any), for most of their vectors have masks: 64 channels at 28x28 with 4x4
 * took 110 us instead of 61. */
static bool dw_slide_planes(const fo_depthwise_args *g) {
    enum { LONG = 16 /* vectors */, FEW = 2 /* rows */ };
    static dw_slide_fn *const slides[][5] = {[1] = SLIDE_SET(1), [2] = SLIDE_SET(2)}; /* masked, and of 1, 2, 4 and 8 vectors */
    const fo_conv2d_shape *s = g->s;
    const ptrdiff_t ow = g->z->ow, iw = g->z->iw, left = g->z->left, reach = (s->kw - 1) * s->dw;
    if (s->sw > 2 || (ow < LONG * VL && g->z->oh > FEW)) return false;
    dw_slide_row p = {.ep = ep_start(&g->act)};
    for (p.c = g->c0; p.c < g->c1; p.c++) {
        p.start = g->bias ? v_set1(g->bias[p.c]) : v_zero(), p.w = g->w + p.c * g->ldw;
        for (ptrdiff_t h = g->h0; h < g->h1; h++) {
            const ptrdiff_t t = h * s->sh - g->z->top, below = g->z->ih - t;
            p.i0 = t < 0 ? (s->dh - 1 - t) / s->dh : 0, p.i1 = below > 0 ? (below + s->dh - 1) / s->dh : 0;
            if (p.i1 > s->kh) p.i1 = s->kh;
            p.x = g->x.data + p.c / g->multiplier * g->x.sc + t * g->x.sh - left;
            p.y = g->y.data + p.c * g->y.sc + h * g->y.sh, p.h = h;
            for (ptrdiff_t w = 0, nv; w < ow; w += nv * VL) {
                const ptrdiff_t column = w * s->sw - left, outputs = (ow - w) / VL, inputs = (iw - reach - column) / (VL * s->sw);
                int form = 0;
                nv = column < 0 ? 0 : outputs < inputs ? outputs : inputs; /* whose windows lie in the image */
                while (form < 4 && (1 << form) <= DW_SLIDE && (1 << form) <= nv) form++;
                nv = form ? 1 << (form - 1) : 1;
                slides[s->sw][form](g, &p, w);
            }
        }
    }
    return true;
}

/* How the lanes of one tap lie in an input row; a literal at every call. */
typedef enum { DW_COLUMNS, DW_EVERY_SECOND, DW_ANYHOW } dw_lanes;

/* Lanes of one tap one by one: columns from `column` on, s->sw apart, or channels from c on. */
static __attribute__((noinline)) vf dw_gather(const fo_depthwise_args *g, const float *row, ptrdiff_t c, ptrdiff_t column) {
    const ptrdiff_t sw = g->s->sw, iw = g->z->iw, m = g->multiplier;
    ptrdiff_t input = c / m, copies = c % m;
    float lanes[VL];
    for (int l = 0; l < VL; l++) {
        const ptrdiff_t at = g->nhwc ? column : column + l * sw;
        lanes[l] = at >= 0 && at < iw && (!g->nhwc || c + l < g->c1) ? row[input * g->x.sc + at * g->x.sw] : 0;
        if (g->nhwc && ++copies == m) copies = 0, input++;
    }
    return v_load(lanes);
}

/* acc[q] += tap x for the rows q0 .. q1 (all: every q), x the lanes at `column` of input row t + q*sh. */
INLINE void dw_any_tap(const dw_lanes lanes, const bool all, const fo_depthwise_args *g, ptrdiff_t c, ptrdiff_t column, ptrdiff_t t, int q0, int q1,
                       vf tap, vf acc[DW_ANY_ROWS]) {
    const ptrdiff_t iw = g->z->iw, step = g->s->sh * g->x.sh;
    const float *x = g->x.data + t * g->x.sh + c / g->multiplier * g->x.sc + column;
    const vm in = v_range(-column, iw - column);
    const vm next = v_range(-column - VL, iw - column - VL);
    UNROLL for (int q = 0; q < DW_ANY_ROWS; q++, x += step) {
        if (!all && (q < q0 || q >= q1)) continue;
        vf xv;
        if (lanes == DW_ANYHOW)
            xv = dw_gather(g, g->x.data + (t + q * g->s->sh) * g->x.sh, c, column);
        else if (lanes == DW_EVERY_SECOND)
            xv = v_uzp_even(v_load_mask(x, in), v_load_mask(x + VL, next));
        else
            xv = v_load_mask(x, in);
        acc[q] = v_fma(tap, xv, acc[q]);
    }
}

/* Any kernel, stride, dilation, multiplier and pair of memory orders: a vector of each of the output rows h0 .. h1. */
INLINE void dw_any(const dw_lanes lanes, const fo_depthwise_args *g, ptrdiff_t c, ptrdiff_t w, ptrdiff_t h0, ptrdiff_t h1) {
    const fo_conv2d_shape *s = g->s;
    const ptrdiff_t count = g->nhwc ? g->c1 - c : g->z->ow - w;
    const vf start = !g->bias ? v_zero() : g->nhwc ? v_load_tail(g->bias + c, count) : v_set1(g->bias[c]);
    const float *taps = g->nhwc ? g->w + c * s->kh * s->kw : g->w + c * g->ldw;
    vf acc[DW_ANY_ROWS];
    UNROLL for (int q = 0; q < DW_ANY_ROWS; q++) acc[q] = start;
    for (ptrdiff_t i = 0; i < s->kh; i++) {
        const ptrdiff_t t = h0 * s->sh + i * s->dh - g->z->top;
        int q0 = 0, q1 = (int)(h1 - h0); /* those whose input row lies in the image */
        while (q0 < q1 && t + q0 * s->sh < 0) q0++;
        while (q0 < q1 && t + (q1 - 1) * s->sh >= g->z->ih) q1--;
        for (ptrdiff_t j = 0; j < s->kw; j++) {
            const ptrdiff_t tap = i * s->kw + j;
            const ptrdiff_t column = w * s->sw + j * s->dw - g->z->left;
            const vf tv = g->nhwc ? v_load(taps + tap * VL) : v_set1(taps[tap]);
            if (q1 - q0 == DW_ANY_ROWS)
                dw_any_tap(lanes, true, g, c, column, t, q0, q1, tv, acc);
            else
                dw_any_tap(lanes, false, g, c, column, t, q0, q1, tv, acc);
        }
    }
    float sums[DW_ANY_ROWS * VL];
    UNROLL for (int q = 0; q < DW_ANY_ROWS; q++) v_store(sums + q * VL, acc[q]);
    dw_finish(g, &(dw_sums){sums, VL, c, count < VL ? count : VL, h0, w, (int)(h1 - h0), false});
}

INLINE void dw_everywhere(const dw_lanes lanes, const fo_depthwise_args *g) {
    const ptrdiff_t step_w = g->nhwc ? 1 : VL, step_c = g->nhwc ? VL : 1;
    for (ptrdiff_t c = g->c0; c < g->c1; c += step_c)
        for (ptrdiff_t h = g->h0; h < g->h1; h += DW_ANY_ROWS)
            for (ptrdiff_t w = 0; w < g->z->ow; w += step_w)
                dw_any(lanes, g, c, w, h, h + DW_ANY_ROWS < g->h1 ? h + DW_ANY_ROWS : g->h1);
}

#endif
