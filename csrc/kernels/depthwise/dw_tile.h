/* Depthwise convolution where channels are lanes (NHWC): a tile of output pixels, a vector of channels at a time.
 *
 *      o o o o o o    the tile's window of x: each of its vectors is loaded once, for the taps of every pixel that
 *      o x x x x o    needs it; their sums are in registers (3 x 3, stride 1, 2 x 4 pixels)
 *      o x x x x o
 *      o o o o o o    Channels are neighbors in memory: a tile reads as many streams as its window has pixels.
 *
 * Taps are in blocks of VL channels, one vector a tap. Columns of the window that lie outside the image are zeros,
 * by a literal of the form or, in masked tiles, by a mask each; rows outside are skipped.
 */
#ifndef FO_DEPTHWISE_TILE_H
#define FO_DEPTHWISE_TILE_H

#include "common.h"

enum { DW_WINDOW = 16, DW_TILE_ROWS = 7, DW_TILE_COLS = 7 };

/* A tile's shape; a literal at every call. */
typedef struct {
    int k, s, rows, cols;
    bool masked;     /* anything may lie outside the image, or after the last channel */
    int left, right; /* else: how many of the window's first and last columns lie outside */
} dw_tile_form;

/* `tiles` of them along a row, `count` vectors of channels each. Not more than half of the kernel is above or below
 * the image, unless tiles are masked. */
typedef struct {
    const float *x, *w, *bias; /* of the first tile and vector */
    float *y;
    ptrdiff_t tiles, count, step_bias; /* from one vector to the next */
    ptrdiff_t xh, xw, yh, yw;
    int above, below; /* rows of the window outside the image */
    bool bounded;     /* whether the clip has an upper bound */
    ep_bounds ep;
    const vm *in;          /* masked: lanes that are read of each column of the window */
    int rows, cols, lanes; /* masked: what is stored; rows of a band */
} dw_tile;

typedef void dw_tile_fn(const dw_tile *);

INLINE int dw_window(const dw_tile_form f) { return (f.cols - 1) * f.s + f.k; }
INLINE int dw_window_rows(const dw_tile_form f) { return (f.rows - 1) * f.s + f.k; }
/* Whether all taps fit the registers, with the sums and a row of the window. */
INLINE bool dw_keeps_all_taps(const dw_tile_form f) { return f.k * f.k + f.rows * f.cols + dw_window(f) < REGISTERS; }
/* Whether the columns of the window come one after the other, because a row of it does not fit the registers with the
 * sums, but its taps do. */
INLINE bool dw_by_columns(const dw_tile_form f) {
    return f.rows == 2 && (DW_32 ? f.k == 5 : f.k == 3 && f.rows * f.cols + dw_window(f) >= REGISTERS);
}

/* Column u of the window, at x. What is outside is multiplied as zeros, as everywhere: a weight may be infinite. */
INLINE vf dw_column(const dw_tile_form f, const vm *in, const float *x, const int u) {
    if (f.masked) return v_load_mask(x, in[u]);
    return u < f.left || u >= dw_window(f) - f.right ? v_zero() : v_load(x);
}

/* Row q of the sums += taps of row t of the window, at x, column by column; q begins at acc[first], and all at *begin
 * unless it is NULL. */
INLINE void dw_add_columns(const dw_tile_form f, const vm *in, const float *x, ptrdiff_t xw, const int t,
                           const int first, const vf *tap, vf *begin, vf acc[][DW_TILE_COLS]) {
    UNROLL_FOR (int u = 0; u < dw_window(f); u++) {
        vf xv = dw_column(f, in, x + u % 3 * xw, u);
        v_force_reg(xv); /* or each of its multiply-adds loads it */
        UNROLL_FOR (int q = 0; q < f.rows; q++)
            UNROLL_FOR (int j = 0; j < f.k; j++) {
                const int v = (u - j) / f.s, i = t - q * f.s;
                if (i < 0 || i >= f.k || u < j || (u - j) % f.s || v >= f.cols) continue;
                vf *sum = &acc[(first + q) % f.rows][v];
                if (begin && !i && !j) {
                    if (!DW_32) v_force_mem(*begin); /* registers are for sums and taps */
                    *sum = *begin;
                }
                *sum = v_fma(tap[i * f.k + j], xv, *sum);
            }
        if (u % 3 == 2) {
            x += 3 * xw;
            v_launder(x); /* or each column would take a pointer */
        }
    }
}

/* The same, tap by tap: a row of the window is in registers. */
INLINE void dw_add_taps(const dw_tile_form f, const vm *in, const float *x, ptrdiff_t xw, const int t, const float *w,
                        const vf *tap, vf acc[][DW_TILE_COLS]) {
    vf xv[DW_WINDOW];
    UNROLL_FOR (int u = 0; u < dw_window(f); u++) xv[u] = dw_column(f, in, x + u * xw, u);
    UNROLL_FOR (int j = 0; j < f.k; j++)
        UNROLL_FOR (int q = 0; q < f.rows; q++) {
            const int i = t - q * f.s;
            if (i < 0 || i >= f.k) continue;
            const vf tv = dw_keeps_all_taps(f) ? tap[i * f.k + j] : v_load(w + (i * f.k + j) * VL);
            UNROLL_FOR (int v = 0; v < f.cols; v++) acc[q][v] = v_fma(tv, xv[v * f.s + j], acc[q][v]);
        }
}

/* Row t of the window. */
INLINE void dw_tile_row(const dw_tile_form f, const vm *in, const float *x, ptrdiff_t xw, const int t, const float *w,
                        vf *tap, vf *begin, vf acc[][DW_TILE_COLS]) {
    if (!dw_by_columns(f)) {
        dw_add_taps(f, in, x, xw, t, w, tap, acc);
        return;
    }
    UNROLL_FOR (int q = 0; q < f.rows; q++)
        UNROLL_FOR (int n = (t - q * f.s) * f.k; n < (t - q * f.s + 1) * f.k; n++) {
            if (n < 0 || n >= f.k * f.k) continue;
            tap[n] = v_load(w + n * VL);
            v_force_reg(tap[n]); /* kept, or multiply-adds would load what they share again */
        }
    dw_add_columns(f, in, x, xw, t, 0, tap, begin, acc);
}

/* The sums of a tile, at `to`, clipped. */
INLINE void dw_tile_store(const dw_tile_form f, const dw_tile *a, float *to, vf acc[][DW_TILE_COLS]) {
    const ptrdiff_t yh = a->yh, yw = a->yw;
    UNROLL_FOR (int q = 0; q < f.rows; q++, to += yh) {
        v_launder(to);
        if (!f.masked) {
            ep_row(&a->ep, a->bounded, f.cols, acc[q], to, yw);
            continue;
        }
        ep_vectors(&a->ep, a->bounded, f.cols, acc[q]);
        UNROLL_FOR (int v = 0; v < f.cols; v++)
            if (q < a->rows && v < a->cols) v_store_tail(to + v * yw, acc[q][v], a->lanes);
    }
}

/* One vector of channels of a tile. */
INLINE void dw_tile_vector(const dw_tile_form f, const dw_tile *a, const float *x, const float *w, const float *bias,
                           float *y) {
    const int window = dw_window_rows(f), above = a->above, below = a->below;
    const ptrdiff_t xh = a->xh, xw = a->xw;
    vf acc[DW_TILE_ROWS][DW_TILE_COLS], tap[49];
    const vf start = f.masked ? v_load_tail(bias, a->lanes) : v_load(bias);
    vf begin = start;
    UNROLL_FOR (int q = 0; q < f.rows; q++)
        UNROLL_FOR (int v = 0; v < f.cols; v++) acc[q][v] = start;
    if (dw_keeps_all_taps(f))
        UNROLL_FOR (int t = 0; t < f.k * f.k; t++) tap[t] = v_load(w + t * VL);
    UNROLL_FOR (int t = 0; t < window; t++, x += xh) {
        v_launder(x);
        if ((f.masked || t < f.k / 2) && t < above) continue;
        if ((f.masked || window - 1 - t < f.k / 2) && window - 1 - t < below) continue;
        dw_tile_row(f, a->in, x, xw, t, w, tap, f.masked ? NULL : &begin, acc);
    }
    dw_tile_store(f, a, y, acc);
}

INLINE void dw_tiles(const dw_tile_form f, const dw_tile *args) {
    const dw_tile a = *args; /* a copy, which the compiler knows that no store changes */
    const float *x = a.x;
    float *y = a.y;
    for (ptrdiff_t tiles = a.tiles; tiles > 0; tiles--) {
        const float *w = a.w, *bias = a.bias;
        for (ptrdiff_t n = a.count; n > 0; n--, x += VL, y += VL, w += f.k * f.k * VL, bias += a.step_bias)
            dw_tile_vector(f, &a, x, w, bias, y);
        x += f.cols * f.s * a.xw - a.count * VL, y += f.cols * a.yw - a.count * VL;
    }
}

/* The window's columns: all in the image, or the first, the last or both outside (bands alone). */
enum { DW_WITHIN, DW_NO_FIRST, DW_NO_LAST, DW_NO_ENDS, DW_SIDES };

/* The kernels of a shape: for each side that it has by literals, and masked. */
typedef struct {
    int rows, cols;
    dw_tile_fn *side[DW_SIDES], *masked;
} dw_shape;

#define TILE(name, k, s, rows, cols, side, masked) \
    static __attribute__((noinline)) void dw_tile_##k##s##rows##cols##name(const dw_tile *a) { \
        const int left = (side) & DW_NO_FIRST ? k / 2 : 0, right = (side) & DW_NO_LAST ? k / 2 : 0; \
        dw_tiles((dw_tile_form){k, s, rows, cols, masked, left, right}, a); \
    }
#define PLAIN(k, s, rows, cols) TILE(0, k, s, rows, cols, DW_WITHIN, false) TILE(m, k, s, rows, cols, DW_WITHIN, true)
#define SIDED(k, s, rows, cols) \
    PLAIN(k, s, rows, cols) TILE(1, k, s, rows, cols, DW_NO_FIRST, false) TILE(2, k, s, rows, cols, DW_NO_LAST, false)
#define OF(k, s, rows, cols, side) dw_tile_##k##s##rows##cols##side
#define PLAIN_SHAPE(k, s, rows, cols) {rows, cols, {OF(k, s, rows, cols, 0)}, OF(k, s, rows, cols, m)}
#define SIDED_SHAPE(k, s, rows, cols) \
    {rows, cols, {OF(k, s, rows, cols, 0), OF(k, s, rows, cols, 1), OF(k, s, rows, cols, 2)}, OF(k, s, rows, cols, m)}

#endif
