/* Depthwise convolution of any other kernel, stride, dilation and multiplier. */
#ifndef FO_DEPTHWISE_ANY_H
#define FO_DEPTHWISE_ANY_H

#include "common.h"

enum { DW_ANY = 8 };

/* Any kernel, stride and dilation where lanes are channels: up to DW_ACROSS pixels of one or two output rows, one
 * vector of channels after the other. An input row that both need is loaded once. */
enum { DW_ACROSS = DW_32 ? 8 : 6 };

/* Such tiles: pixels h, w on, `cols` of them a row, and `count` vectors of channels from c on, of n lanes each. */
typedef struct {
    ptrdiff_t h, w, c, count, n;
    ptrdiff_t shared; /* from the taps' row of the second output row to that of the first, in one input row */
    int cols;
} dw_across_tiles;

/* acc += what the taps' row at w, of the first output row, and that at w - shared, of the second, give in the input row
 * at x, whose first column is `column`. inside: no window reaches beyond the left or right end of the image, and there
 * are VL channels. */
INLINE void dw_across_row(const int cols, const bool inside, const bool first, const bool second,
                          const fo_depthwise_args *g, const float *x, ptrdiff_t column, const vm lanes, const float *w,
                          ptrdiff_t shared, vf acc[2][DW_ACROSS]) {
    static const float zeros[VL];
    const ptrdiff_t sw = g->s->sw, dw = g->s->dw, step = sw * g->x.sw, next = dw * g->x.sw;
    for (ptrdiff_t j = g->s->kw; j > 0; j--, column += dw, x += next, w += VL) {
        const vf tap = first ? v_load(w) : v_zero(), other = second ? v_load(w - shared) : v_zero();
        UNROLL_FOR (int v = 0; v < cols; v++) {
            const float *at = inside || (size_t)(column + v * sw) < (size_t)g->z->iw ? x + v * step : zeros;
            const vf xv = inside ? v_load(at) : v_load_mask(at, lanes);
            if (first) acc[0][v] = v_fma(tap, xv, acc[0][v]);
            if (second) acc[1][v] = v_fma(other, xv, acc[1][v]);
        }
    }
}

/* The sums of output row h, from channel c on. */
INLINE void dw_across_put(const int cols, const bool inside, const fo_depthwise_args *g, const dw_across_tiles *p,
                          ptrdiff_t c, ptrdiff_t h, vf sums[DW_ACROSS]) {
    if (inside && dw_in_registers(g)) {
        const ep_bounds ep = ep_start(&g->act);
        ep_row(&ep, ep_bounded(&g->act), cols, sums, g->y.data + h * g->y.sh + p->w * g->y.sw + c, g->y.sw);
        return;
    }
    float buffer[DW_ACROSS * VL];
    UNROLL_FOR (int v = 0; v < cols; v++) v_store(buffer + v * VL, sums[v]);
    dw_finish(g, &(dw_sums){buffer, VL, c, p->n, h, p->w, p->cols, true});
}

INLINE void dw_across(const int rows, const int cols, const bool inside, const fo_depthwise_args *args,
                      const dw_across_tiles *tiles) {
    const fo_depthwise_args g = *args; /* copies, which the compiler knows that no store changes */
    const dw_across_tiles p = *tiles;
    const ptrdiff_t kh = g.s->kh, kw = g.s->kw, beyond = rows > 1 ? p.shared : 0;
    const ptrdiff_t t0 = p.h * g.s->sh - g.z->top, u = p.w * g.s->sw - g.z->left;
    const vm lanes = v_range(0, p.n);
    for (ptrdiff_t n = 0, c = p.c; n < p.count; n++, c += VL) {
        vf acc[2][DW_ACROSS];
        const vf start = !g.bias ? v_zero() : inside ? v_load(g.bias + c) : v_load_mask(g.bias + c, lanes);
        UNROLL_FOR (int q = 0; q < rows; q++)
            UNROLL_FOR (int v = 0; v < cols; v++) acc[q][v] = start;
        const float *x = g.x.data + t0 * g.x.sh + u * g.x.sw + c, *w = g.w + c * kh * kw;
        for (ptrdiff_t i = 0, t = t0; i < kh + beyond; i++, t += g.s->dh, x += g.s->dh * g.x.sh, w += kw * VL) {
            if ((size_t)t >= (size_t)g.z->ih) continue;
            if (rows == 1 || i < beyond)
                dw_across_row(cols, inside, true, false, &g, x, u, lanes, w, 0, acc);
            else if (i < kh)
                dw_across_row(cols, inside, true, true, &g, x, u, lanes, w, beyond * kw * VL, acc);
            else
                dw_across_row(cols, inside, false, true, &g, x, u, lanes, w, beyond * kw * VL, acc);
        }
        UNROLL_FOR (int q = 0; q < rows; q++) dw_across_put(cols, inside, &g, &p, c, p.h + q, acc[q]);
    }
}

typedef void dw_across_fn(const fo_depthwise_args *, const dw_across_tiles *);
#define ACROSS(rows, cols, inside) \
    static __attribute__((noinline)) void dw_across_##rows##cols##inside(const fo_depthwise_args *g, \
                                                                         const dw_across_tiles *p) { \
        if (cols <= DW_ACROSS) dw_across(rows, cols, inside, g, p); \
    }
#define ACROSS_EITHER(cols) ACROSS(1, cols, 0) ACROSS(1, cols, 1) ACROSS(2, cols, 0) ACROSS(2, cols, 1)
#define ACROSS_ALL ACROSS_EITHER(4) ACROSS_EITHER(6) ACROSS_EITHER(8)
#define ACROSS_ROW(cols) {{dw_across_1##cols##0, dw_across_1##cols##1}, {dw_across_2##cols##0, dw_across_2##cols##1}}
ACROSS_ALL

/* Tiles of like width along a row, of so few vectors that the first-level cache keeps the rows which all output rows
 * need. */
static void dw_across_rows(const fo_depthwise_args *g) {
    enum { LEAST = 4 };
    static dw_across_fn *const tiles[][2][2] = {ACROSS_ROW(4), ACROSS_ROW(6), ACROSS_ROW(8)};
    const fo_conv2d_shape *s = g->s;
    const ptrdiff_t ow = g->z->ow, across = (ow + DW_ACROSS - 1) / DW_ACROSS, even = (ow + across - 1) / across;
    const ptrdiff_t cols = even > LEAST ? (even + 1) / 2 * 2 : LEAST;
    const ptrdiff_t bytes = s->kh * g->z->iw * VL * (ptrdiff_t)sizeof(float);
    const ptrdiff_t fit = FO_L1_SHARE / (bytes ? bytes : FO_L1_SHARE);
    const ptrdiff_t group = s->kh == 1 ? g->c1 - g->c0 : (fit ? fit : 1) * VL; /* kernels of one row read each once */
    const bool shares = s->sh % s->dh == 0 && s->sh / s->dh < s->kh;
    for (ptrdiff_t c0 = g->c0, c1; c0 < g->c1; c0 = c1) {
        c1 = c0 + group < g->c1 ? c0 + group : g->c1;
        const ptrdiff_t whole = (c1 - c0) / VL, rest = (c1 - c0) % VL;
        for (ptrdiff_t h = g->h0, rows; h < g->h1; h += rows) {
            rows = shares && h + 1 < g->h1 ? 2 : 1;
            for (ptrdiff_t w = 0; w < ow; w += cols) {
                const ptrdiff_t first = w * s->sw - g->z->left, last = first + (cols - 1) * s->sw + (s->kw - 1) * s->dw;
                dw_across_tiles p = {h, w, c0, whole, VL, s->sh / s->dh, (int)(ow - w < cols ? ow - w : cols)};
                const bool inside = first >= 0 && last < g->z->iw && p.cols == cols;
                if (whole) tiles[cols / 2 - 2][rows - 1][inside](g, &p);
                p.c = c1 - rest, p.count = 1, p.n = rest;
                if (rest) tiles[cols / 2 - 2][rows - 1][0](g, &p);
            }
        }
    }
}

/* How the lanes of one tap lie in an input row; a literal at every call. */
typedef enum { DW_EVERY, DW_EVERY_SECOND, DW_GATHERED } dw_lanes;

/* Lanes of one tap one by one: columns from `column` on, s->sw from each other, or channels from c on. */
static __attribute__((noinline)) vf dw_gather(const fo_depthwise_args *g, const float *row, ptrdiff_t c,
                                              ptrdiff_t column) {
    const ptrdiff_t sw = g->s->sw, iw = g->z->iw, m = g->multiplier;
    ptrdiff_t input = c / m, copies = c % m;
    float lanes[VL];
    for (int l = 0; l < VL; l++) {
        const ptrdiff_t at = g->nhwc ? column : column + l * sw;
        const bool inside = at >= 0 && at < iw && (!g->nhwc || c + l < g->c1);
        lanes[l] = inside ? row[input * g->x.sc + at * g->x.sw] : 0;
        if (g->nhwc && ++copies == m) copies = 0, input++;
    }
    return v_load(lanes);
}

/* Those at `column` of the image row t. */
INLINE vf dw_any_lanes(const dw_lanes lanes, const bool inside, const fo_depthwise_args *g, ptrdiff_t c, ptrdiff_t t,
                       ptrdiff_t column) {
    const float *row = g->x.data + t * g->x.sh, *x = row + c / g->multiplier * g->x.sc + column;
    if (lanes == DW_GATHERED) return dw_gather(g, row, c, column);
    const ptrdiff_t iw = g->z->iw;
    const vf first = inside ? v_load(x) : v_load_mask(x, v_range(-column, iw - column));
    if (lanes == DW_EVERY) return first;
    const vf next = inside ? v_load(x + VL) : v_load_mask(x + VL, v_range(-column - VL, iw - column - VL));
    return v_uzp_even(first, next);
}

/* Any kernel, stride, dilation, multiplier and pair of memory orders: `rows` output rows of nv vectors, from channel c,
 * row h and column w on. inside: no window reaches beyond the left or right end of the image; all lanes are wanted. */
INLINE void dw_any(const dw_lanes lanes, const int rows, const int nv, const bool inside, const fo_depthwise_args *g,
                   ptrdiff_t c, ptrdiff_t h, ptrdiff_t w) {
    const fo_conv2d_shape *s = g->s;
    const ptrdiff_t left = g->nhwc ? g->c1 - c : g->z->ow - w, n = left < nv * VL ? left : nv * VL;
    const ptrdiff_t last = g->h1 - h < rows ? g->h1 - h : rows;
    const vf start = !g->bias ? v_zero() : g->nhwc ? v_load_tail(g->bias + c, n) : v_set1(g->bias[c]);
    const float *w_c = g->nhwc ? g->w + c * s->kh * s->kw : g->w + c * g->ldw;
    vf acc[DW_ANY];
    UNROLL_FOR (int q = 0; q < rows * nv; q++) acc[q] = start;
    for (ptrdiff_t i = 0, t = h * s->sh - g->z->top; i < s->kh; i++, t += s->dh) {
        ptrdiff_t q0 = 0, q1 = last; /* those whose input row is in the image */
        while (q0 < q1 && t + q0 * s->sh < 0) q0++;
        while (q0 < q1 && t + (q1 - 1) * s->sh >= g->z->ih) q1--;
        for (ptrdiff_t j = 0, column = w * s->sw - g->z->left; j < s->kw && q0 < q1; j++, column += s->dw) {
            const ptrdiff_t tap = i * s->kw + j;
            const vf tv = g->nhwc ? v_load(w_c + tap * VL) : v_set1(w_c[tap]);
            UNROLL_FOR (int q = 0; q < rows; q++) {
                if (rows > 1 && (q < q0 || q >= q1)) continue;
                UNROLL_FOR (int v = 0; v < nv; v++) {
                    const vf xv = dw_any_lanes(lanes, inside, g, c, t + q * s->sh, column + v * VL * s->sw);
                    acc[q * nv + v] = v_fma(tv, xv, acc[q * nv + v]);
                }
            }
        }
    }
    if (inside && dw_in_registers(g)) {
        const ep_bounds ep = ep_start(&g->act);
        ep_row(&ep, ep_bounded(&g->act), nv, acc, g->y.data + c * g->y.sc + h * g->y.sh + w, VL);
        return;
    }
    float sums[DW_ANY * VL];
    UNROLL_FOR (int q = 0; q < rows * nv; q++) v_store(sums + q * VL, acc[q]);
    dw_finish(g, &(dw_sums){sums, nv * VL, c, n, h, w, (int)last, false});
}

typedef void dw_any_fn(const fo_depthwise_args *, ptrdiff_t c, ptrdiff_t h, ptrdiff_t w);
#define ANY(lanes, rows, nv, inside) \
    static __attribute__((noinline)) void dw_any_##lanes##rows##nv##inside(const fo_depthwise_args *g, ptrdiff_t c, \
                                                                           ptrdiff_t h, ptrdiff_t w) { \
        dw_any(DW_##lanes, rows, nv, inside, g, c, h, w); \
    }
#define SLIDES(lanes) \
    ANY(lanes, 8, 1, 0) ANY(lanes, 1, 1, 0) ANY(lanes, 1, 1, 1) ANY(lanes, 1, 2, 1) ANY(lanes, 1, 4, 1) \
    ANY(lanes, 1, 8, 1)
#define ANY_ALL SLIDES(EVERY) SLIDES(EVERY_SECOND) ANY(GATHERED, 8, 1, 0)
#define SLIDE_SET(lanes) \
    {dw_any_##lanes##810, dw_any_##lanes##110, dw_any_##lanes##111, dw_any_##lanes##121, dw_any_##lanes##141, \
     dw_any_##lanes##181}
ANY_ALL

/* Eight rows of a vector at a time, or where rows are long, or few, up to eight vectors of a row: single ones with
 * masks where windows reach beyond the image. Short rows have masks for most of their vectors: 64 channels at 28x28
 * with 4x4 take 61 us, by rows 110. */
static void dw_everywhere(const fo_depthwise_args *g) {
    enum { MOST = DW_32 ? 8 : 4 };
    static dw_any_fn *const forms[][6] = {SLIDE_SET(EVERY), SLIDE_SET(EVERY_SECOND), {dw_any_GATHERED810}};
    const fo_conv2d_shape *s = g->s;
    const bool gathers = g->nhwc || g->x.sw != 1 || s->sw > 2;
    const ptrdiff_t iw = g->z->iw, reach = (s->kw - 1) * s->dw, step_w = g->nhwc ? 1 : VL, step_c = g->nhwc ? VL : 1;
    const bool slides = !gathers && (g->z->ow >= FO_DEPTHWISE_MANY * VL || g->z->oh <= 2);
    dw_any_fn *const *const of = forms[gathers ? 2 : s->sw - 1];
    for (ptrdiff_t c = g->c0; c < g->c1; c += step_c)
        for (ptrdiff_t h = g->h0; h < g->h1; h += slides ? 1 : DW_ANY)
            for (ptrdiff_t w = 0, nv; w < g->z->ow; w += nv * step_w) {
                const ptrdiff_t column = w * s->sw - g->z->left, outputs = (g->z->ow - w) / VL;
                const ptrdiff_t inputs = column < 0 ? 0 : (iw - reach - column) / (VL * s->sw);
                const ptrdiff_t whole = !slides ? 0 : outputs < inputs ? outputs : inputs;
                int form = slides;
                for (nv = 1; nv <= MOST && nv <= whole; nv *= 2) form++;
                nv = form > 1 ? nv / 2 : 1;
                of[form](g, c, h, w);
            }
}

#endif
