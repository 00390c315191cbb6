/* Depthwise convolution where lanes are columns (NCHW): which walks go where. */
#ifndef FO_DEPTHWISE_PLANES_H
#define FO_DEPTHWISE_PLANES_H

#include "dw_walk.h"

/* Rows of a buffer whose sums are finished later; walks of a row. */
enum { DW_BUFFER_ROWS = 16, DW_PLACES = 8 };

/* Output rows of some channels, one vector wide, in tiles of DW_TALL rows; all rows of the window lie in the image, but
 * for half of the kernel at either end. The processor's queue of vector operations is full all the time: what moves a
 * mask or a pointer through it delays the loads. */
INLINE void dw_tall_tile(const dw_form f, const vm in[DW_LOADS], const float *x, ptrdiff_t xh, ptrdiff_t above,
                         ptrdiff_t below, const vf taps[9], vf acc[DW_TALL]) {
    const int window = (DW_TALL - 1) * f.s + f.k, margin = f.k / 2;
    UNROLL_FOR (int t = 0; t < window; t++, x += xh) {
        v_launder(x);
        if ((t < margin && t < above) || (t >= window - margin && window - 1 - t < below)) continue;
        vf row[DW_LOADS];
        dw_load_row(f, in, x, row);
        UNROLL_FOR (int j = 0; j < f.k; j++) {
            const vf *from = row + j % f.s * dw_reach(f) + j / f.s / VL;
            const vf xv = j / f.s % VL ? v_concat(from[0], from[1], j / f.s % VL) : from[0];
            UNROLL_FOR (int q = 0; q < DW_TALL; q++) {
                const int i = t - q * f.s;
                if (i >= 0 && i < f.k) acc[q] = v_fma(taps[i * f.k + j], xv, acc[q]);
            }
        }
    }
}

INLINE void dw_tall(const dw_form f, const dw_plane *args, const dw_columns *c) {
    dw_plane a = *args;
    const ep_bounds ep = *a.ep;
    const bool bounded = a.bounded;
    const ptrdiff_t lanes = c->lanes, window = (DW_TALL - 1) * f.s + f.k;
    vm in[DW_LOADS];
    UNROLL_FOR (int q = 0; q < dw_loads(f); q++) in[q] = c->in[q];
    a.x += c->w * f.s, a.y += c->w;
    for (ptrdiff_t n = 0; n < a.channels; n++) {
        v_force_mem(a);
        const vf start = v_set1(a.bias[n * a.bias_c]);
        const float *w = a.w + n * a.wc, *x = a.x + n * a.xc;
        float *y = a.y + n * a.yc;
        const ptrdiff_t xh = a.xh, yh = a.yh;
        vf taps[9];
        UNROLL_FOR (int t = 0; t < f.k * f.k; t++) taps[t] = v_set1(w[t]);
        for (ptrdiff_t h = 0, t = a.t; h < a.rows; h += DW_TALL, t += DW_TALL * f.s, x += DW_TALL * f.s * xh) {
            vf acc[DW_TALL];
            UNROLL_FOR (int q = 0; q < DW_TALL; q++) acc[q] = start;
            dw_tall_tile(f, in, x, xh, -t, t + window - (ptrdiff_t)a.ih, taps, acc);
            ep_vectors(&ep, bounded, DW_TALL, acc);
            UNROLL_FOR (int q = 0; q < DW_TALL; q++, y += yh) {
                v_launder(y);
                v_store_tail(y, acc[q], lanes);
            }
        }
    }
}

/* The walks that exist: kernel, stride, vectors, edge. With 16 registers 3 x 3 has up to four vectors, else two of each
 * fit; with 32 registers 3 x 3 of stride 1 has whole rows of up to eight. */
#define DW_PLAIN(X, k, s, nv) X(k, s, nv, INSIDE) X(k, s, nv, MASKED) X(k, s, nv, FITS)
#define DW_BOTH(X) \
    DW_PLAIN(X, 3, 1, 1) DW_PLAIN(X, 3, 1, 2) DW_PLAIN(X, 3, 2, 1) DW_PLAIN(X, 3, 2, 2) DW_PLAIN(X, 5, 1, 1) \
    DW_PLAIN(X, 5, 1, 2) DW_PLAIN(X, 5, 2, 1) DW_PLAIN(X, 5, 2, 2) DW_PLAIN(X, 7, 1, 1) X(3, 1, 3, INSIDE) \
    X(3, 1, 4, INSIDE) X(3, 2, 4, INSIDE) X(3, 1, 1, ENDS) X(3, 1, 2, ENDS) X(3, 1, 3, ENDS) X(3, 1, 4, ENDS) \
    X(5, 1, 1, ENDS) X(5, 1, 2, ENDS) X(7, 1, 1, ENDS)
#define DW_OF_32(X) \
    X(3, 1, 4, MASKED) X(3, 1, 4, FITS) X(3, 2, 4, MASKED) X(3, 2, 4, FITS) DW_PLAIN(X, 5, 1, 4) DW_PLAIN(X, 5, 2, 4) \
    DW_PLAIN(X, 7, 1, 2) X(3, 1, 1, SEVEN) X(3, 2, 1, SEVEN) X(3, 1, 5, ENDS) X(3, 1, 6, ENDS) X(3, 1, 7, ENDS) \
    X(3, 1, 8, ENDS) X(5, 1, 3, INSIDE) X(5, 1, 3, ENDS) X(5, 1, 4, ENDS) X(7, 1, 2, ENDS)
#define DW_OF_16(X) \
    X(3, 2, 3, INSIDE) X(3, 2, 1, ENDS) X(3, 2, 2, ENDS) X(3, 2, 3, ENDS) X(3, 2, 4, ENDS) X(3, 1, 1, LEFT) \
    X(3, 1, 2, LEFT) X(3, 1, 3, LEFT) X(3, 1, 4, LEFT) X(3, 2, 1, LEFT) X(3, 2, 2, LEFT) X(3, 2, 3, LEFT) \
    X(3, 2, 4, LEFT)
#define DW_WALK(k, s, nv, edge) \
    static __attribute__((noinline)) void dw_walk_##k##s##nv##edge(const dw_plane *a, const dw_columns *c) { \
        if (DW_##edge == DW_SEVEN) \
            dw_tall((dw_form){k, s, nv, DW_FITS}, a, c); \
        else \
            dw_walks((dw_form){k, s, nv, DW_##edge}, a, c); \
    }
#define DW_ENTRY(k, s, nv, edge) [(k) / 2 - 1][(s) - 1][(nv) - 1][DW_##edge] = dw_walk_##k##s##nv##edge,
#define DW_ALL(X) DW_BOTH(X) DW_OF_32(X) DW_OF_16(X)
DW_ALL(DW_WALK)

typedef dw_walk_fn *dw_walk_table[3][2][DW_VECTORS][DW_EACH];

static dw_walk_fn *dw_walk_of(const dw_form f) {
    static const dw_walk_table of_32 = {DW_BOTH(DW_ENTRY) DW_OF_32(DW_ENTRY)};
    static const dw_walk_table of_16 = {DW_BOTH(DW_ENTRY) DW_OF_16(DW_ENTRY)};
    const dw_walk_table *const walks = DW_32 ? &of_32 : &of_16;
    return (*walks)[f.k / 2 - 1][f.s - 1][f.nv - 1][f.edge];
}

/* Vectors of a row whose sums the registers hold; whole rows may have more. */
INLINE int dw_most(const dw_form f) {
    const int fit = REGISTERS * 5 / 8 / dw_live(f), wide = DW_32 ? 4 : 2;
    return fit < wide ? fit : wide;
}

/* Whether a row's vectors may be as DW_ENDS has them: n of them from output column w on. Loads across cache lines take
 * longer from caches further away: with 32 registers 3 x 3 kernels lose by them there (144x56x56, 3.6 MB, 190 to 220
 * us), unless an odd vector would go alone, a row would be cut or a shuffle is several instructions. */
static bool dw_ends(const dw_form f, const fo_depthwise_args *g, ptrdiff_t w, ptrdiff_t n) {
    const fo_conv2d_size *z = g->z;
    const ptrdiff_t s = f.s, right = (z->ow - 1) * s + f.k - z->left - z->iw, own = (n - 1) * VL;
    const ptrdiff_t vectors = (z->ow + VL - 1) / VL;
    const bool inner = n == 1 || ((w + own - 1) * s + f.k - z->left <= z->iw && (w + VL) * s >= z->left &&
                                  (z->ow - VL) * s >= z->left);
    const bool long_lines = DW_32 && f.k == 3, pays = !long_lines || vectors % 2 || n > 4;
    const bool alone = z->ow - w >= VL && (!long_lines || w > 0);
    const bool known = z->left <= f.k / 2 && right <= f.k / 2 && (s == 1 || (!DW_32 && f.k == 3));
    return known && pays && inner && (n > 1 || alone);
}

/* nv vectors from output column w on. Edges that were not chosen: inside, or masked. */
static void dw_put(dw_form *f, const fo_depthwise_args *g, ptrdiff_t w, dw_columns *p) {
    const ptrdiff_t first = w * f->s - g->z->left, iw = g->z->iw, lanes = g->z->ow - w - (f->nv - 1) * VL;
    const bool mixes = dw_mixes(*f), exact = !DW_32 && (mixes || f->s == 1); /* no more is read than taps need */
    const ptrdiff_t end = first + (exact ? (f->nv * VL - 1) * f->s + f->k : dw_loads(*f) * VL);
    p->w = w;
    p->lanes = lanes < VL ? (int)lanes : VL;
    p->last = lanes < VL ? g->z->ow - w - VL : (f->nv - 1) * VL;
    p->ahead = g->x.sh > 0 && g->x.sh < FO_PAGE_FLOATS ? FO_PAGE_FLOATS / g->x.sh * g->x.sh : g->x.sh;
    if (f->nv <= 4 && p->lanes == VL && first >= 0 && end <= iw)
        f->edge = DW_INSIDE;
    else if (f->edge == DW_INSIDE)
        f->edge = first + f->nv * f->s * VL >= iw ? DW_FITS : DW_MASKED;
    for (int q = 0; q < dw_loads(*f); q++) p->in[q] = v_range(-(first + q * VL), iw - first - q * VL);
    for (int j = 0; j < f->k && f->edge >= DW_ENDS; j++) {
        const ptrdiff_t column = first + j + (j > f->k / 2 ? p->last * f->s : 0) + (mixes && j == 2 ? VL - 1 : 0);
        p->in[j] = v_range(-column, iw - column);
    }
}

/* How many vectors go from output column w on, and how: of 16 registers even shares of a row; of 32 whole rows, or as
 * many as fit. A vector that overlaps another is not alone: sums of both are at hand before either is stored. */
static dw_form dw_choose(dw_form f, const fo_depthwise_args *g, ptrdiff_t w, dw_columns *p) {
    const ptrdiff_t left = (g->z->ow - w + VL - 1) / VL, most = dw_most(f), shares = (left + 3) / 4;
    f.nv = (int)(DW_32 ? left : (left + shares - 1) / shares);
    const bool whole = DW_32 && !w && left > 4 && left <= DW_VECTORS;
    f.edge = DW_ENDS;
    if (f.k == 3 && (whole || !DW_32)) {
        const bool ends = dw_ends(f, g, w, f.nv);
        dw_put(&f, g, w, p);
        const bool inner = p->lanes == VL && (w + f.nv * VL - 1) * f.s + f.k - g->z->left <= g->z->iw;
        if (!DW_32 && f.edge == DW_ENDS && inner) f.edge = DW_LEFT; /* literal places: few pointers */
        if (ends || f.edge == DW_INSIDE) return f;
    }
    const ptrdiff_t n = left < most ? left : most;
    const ptrdiff_t even = left == most + 1 && most > 1 && (DW_32 || (g->z->ow - w) % VL) ? left / 2 : n;
    const bool ends = dw_ends(f, g, w, even);
    f.edge = ends ? DW_ENDS : DW_INSIDE;
    f.nv = (int)(ends ? even : n - (n == 3));
    dw_put(&f, g, w, p);
    return f;
}

/* How many of the rows tall tiles take. */
static ptrdiff_t dw_tall_rows(const dw_form f, const fo_depthwise_args *g) {
    const ptrdiff_t tiles = (g->h1 - g->h0) / DW_TALL, t = g->h0 * f.s - g->z->top, last = t + tiles * DW_TALL * f.s;
    const bool fits = t >= -(f.k / 2) && last - f.s + f.k <= g->z->ih + f.k / 2;
    const bool tall = DW_32 && f.k == 3 && f.nv == 1 && f.edge == DW_FITS && dw_in_registers(g);
    return tall && fits ? tiles * DW_TALL : 0;
}

/* Rows of which the first go by tall tiles. */
static void dw_tall_down(const dw_form f, const dw_plane *all, const dw_columns *p, ptrdiff_t tall) {
    dw_plane a = *all;
    a.rows = tall;
    dw_walk_of((dw_form){f.k, f.s, 1, DW_SEVEN})(&a, p);
    a.t += tall * f.s, a.x += tall * f.s * a.xh, a.y += tall * a.yh, a.rows = all->rows - tall;
    if (a.rows) dw_walk_of(f)(&a, p);
}

/* Rows whose sums need another epilogue: of channel c, from row h on. */
static void dw_finished_down(const dw_form f, const fo_depthwise_args *g, const dw_plane *all, const dw_columns *p,
                             ptrdiff_t c, ptrdiff_t h) {
    _Alignas(64) float sums[DW_BUFFER_ROWS * DW_VECTORS * VL];
    const ep_bounds open = {.lo = v_set1(-INFINITY), .hi = v_set1(INFINITY)};
    const ptrdiff_t columns = f.nv * VL, own = g->z->ow - p->w;
    dw_plane a = *all;
    a.y = sums - p->w, a.yh = columns, a.bounded = false, a.ep = &open;
    dw_walk_of(f)(&a, p);
    dw_finish(g, &(dw_sums){sums, columns, c, own < columns ? own : columns, h, p->w, (int)a.rows, false});
}

/* Rows of a strip: all, or with 16 registers so many that the first-level cache, of which they take half,
 * keeps the lines that two walks share. */
static ptrdiff_t dw_strip_rows(const fo_depthwise_args *g, int places) {
    const ptrdiff_t row = (g->s->sh * g->z->iw + g->z->ow) * (ptrdiff_t)sizeof(float), rows = g->h1 - g->h0;
    const ptrdiff_t most = FO_L1_SHARE / row > DW_TALL ? FO_L1_SHARE / row : DW_TALL;
    const ptrdiff_t count = (rows + most - 1) / most;
    if (!dw_in_registers(g)) return DW_BUFFER_ROWS;
    return DW_32 || g->s->kh != 3 || places == 1 || !count ? rows : (rows + count - 1) / count;
}

/* What all walks of a call share. */
static dw_plane dw_plane_of(const fo_depthwise_args *g, const ep_bounds *ep) {
    static const float none;
    return (dw_plane){.x = g->x.data - g->z->left,
                      .w = g->w,
                      .bias = g->bias ? g->bias : &none,
                      .y = g->y.data,
                      .channels = 1,
                      .xc = g->x.sc,
                      .yc = g->y.sc,
                      .wc = g->ldw,
                      .bias_c = g->bias ? 1 : 0,
                      .xh = g->x.sh,
                      .yh = g->y.sh,
                      .ih = (size_t)g->z->ih,
                      .dh = 1,
                      .bounded = ep_bounded(&g->act),
                      .ep = ep};
}

/* One channel after the other, an input row read once. */
static void dw_planes(const fo_depthwise_args *g, ptrdiff_t k, ptrdiff_t stride) {
    const bool registers = dw_in_registers(g);
    const ep_bounds ep = ep_start(&g->act);
    dw_columns place[DW_PLACES];
    dw_form form[DW_PLACES];
    dw_walk_fn *walk[DW_PLACES];
    ptrdiff_t tall[DW_PLACES];
    for (ptrdiff_t w = 0; w < g->z->ow;) {
        int places = 0;
        for (; places < DW_PLACES && w < g->z->ow; w += form[places++].nv * VL) {
            const dw_form f = form[places] = dw_choose((dw_form){.k = (int)k, .s = (int)stride}, g, w, &place[places]);
            walk[places] = dw_walk_of(f), tall[places] = dw_tall_rows(f, g);
        }
        const ptrdiff_t strip = dw_strip_rows(g, places);
        dw_plane a = dw_plane_of(g, &ep);
        a.channels = places == 1 && registers && g->multiplier == 1 ? g->c1 - g->c0 : 1;
        for (ptrdiff_t c = g->c0; c < g->c1; c += a.channels) {
            a.w = g->w + c * g->ldw, a.bias = g->bias ? g->bias + c : a.bias;
            const float *x = g->x.data + c / g->multiplier * g->x.sc - g->z->left;
            for (ptrdiff_t h = g->h0; h < g->h1; h += strip) {
                a.t = h * stride - g->z->top, a.rows = h + strip < g->h1 ? strip : g->h1 - h;
                a.x = x + a.t * a.xh, a.y = g->y.data + c * a.yc + h * a.yh;
                for (int p = 0; p < places; p++)
                    if (!registers)
                        dw_finished_down(form[p], g, &a, &place[p], c, h);
                    else if (tall[p])
                        dw_tall_down(form[p], &a, &place[p], tall[p]);
                    else
                        walk[p](&a, &place[p]);
            }
        }
    }
}

#define DW_EACHS(k) DW_WALK(k, 1, 1, EACH) DW_WALK(k, 1, 2, EACH) DW_WALK(k, 1, 4, EACH)
#define DW_EACH_ROW(k) {dw_walk_##k##11EACH, dw_walk_##k##12EACH, DW_32 ? dw_walk_##k##14EACH : NULL}
#define DW_ALL_EACH DW_EACHS(1) DW_EACHS(2) DW_EACHS(3)
DW_ALL_EACH

/* Kernels of up to 3 x 3, stride 1 and any dilation: walks down every dh-th row. Whether the planes are such: done. */
static bool dw_dilated_planes(const fo_depthwise_args *g) {
    static dw_walk_fn *const walks[][3] = {DW_EACH_ROW(1), DW_EACH_ROW(2), DW_EACH_ROW(3)};
    const ptrdiff_t k = g->s->kh, ow = g->z->ow, dh = g->s->dh, dw = g->s->dw;
    const bool square = k == g->s->kw && k >= 1 && k <= 3 && g->s->sh == 1 && g->s->sw == 1;
    if (!square || !dw_in_registers(g) || g->multiplier != 1) return false;
    const ep_bounds ep = ep_start(&g->act);
    const dw_plane all = dw_plane_of(g, &ep);
    for (ptrdiff_t w = 0, nv; w < ow; w += nv * VL) {
        const ptrdiff_t left = (ow - w + VL - 1) / VL;
        const int form = DW_32 && left >= 4 ? 2 : left >= 2;
        nv = 1 << form;
        dw_columns p = {.w = w, .lanes = (int)(ow - w < nv * VL ? ow - w - (nv - 1) * VL : VL)};
        for (int q = 0; q < k * nv; q++) {
            const ptrdiff_t column = w + q % nv * VL + q / nv * dw - g->z->left;
            p.in[q] = v_range(-column, g->z->iw - column);
        }
        for (ptrdiff_t c = g->c0; c < g->c1; c++)
            for (ptrdiff_t h = g->h0; h < g->h0 + dh && h < g->h1; h++) {
                dw_plane a = all;
                a.t = h - g->z->top, a.rows = (g->h1 - h + dh - 1) / dh, a.dh = dh, a.dw = dw;
                a.x += c * a.xc + a.t * a.xh, a.y += c * a.yc + h * a.yh, a.w += c * a.wc, a.bias += c * a.bias_c;
                a.xh *= dh, a.yh *= dh;
                walks[k - 1][form](&a, &p);
            }
    }
    return true;
}

#endif
