/* Depthwise convolution where channels are lanes, 3 x 3: bands of columns from the top of the image to its end, in
 * which each vector of x is loaded once. For AVX-512 with a first-level cache of 32 KB, and pixels so far from each
 * other that they share few of its sets.
 */
#ifndef FO_DEPTHWISE_BANDS_H
#define FO_DEPTHWISE_BANDS_H

#include "dw_tile.h"

/* Columns of a band: three rows of sums, all taps and a vector of x fit 32 registers. */
enum { DW_BAND = 7 };

/* Stride 1, one vector of channels after the other: three rows of sums are in registers. a: the tile of the first
 * output row, and how many rows. */
INLINE void dw_band(const dw_tile_form f, const dw_tile *args) {
    const dw_tile a = *args; /* a copy, which the compiler knows that no store changes */
    const ptrdiff_t end = a.rows + 2 - a.below;
    const float *from = a.x, *w = a.w, *bias = a.bias;
    float *to = a.y - 2 * a.yh;
    ep_bounds ep = a.ep;
    v_force_mem(ep); /* registers are for sums and taps */
    for (ptrdiff_t n = a.count; n > 0; n--, from += VL, to += VL, w += 9 * VL, bias += a.step_bias) {
        vf start = v_load(bias), acc[3][DW_TILE_COLS], tap[9];
        v_force_mem(start);
        const float *x = from;
        float *y = to;
        UNROLL_FOR (int t = 0; t < 9; t++) tap[t] = v_load(w + t * VL);
        UNROLL_FOR (int q = 0; q < 3; q++)
            UNROLL_FOR (int v = 0; v < f.cols; v++) acc[q][v] = start;
        for (ptrdiff_t t = 0; t < a.rows + 2;) /* input row t completes output row t - 2 */
            UNROLL_FOR (int first = 0; first < 3; first++, t++, x += a.xh, y += a.yh) { /* roles change places */
                if (t >= a.rows + 2) break;
                if (t >= a.above && t < end) dw_add_columns(f, NULL, x, a.xw, 2, first, tap, NULL, acc);
                if (t >= 2) ep_row(&ep, a.bounded, f.cols, acc[first], y, a.yw);
                UNROLL_FOR (int v = 0; v < f.cols; v++) acc[first][v] = start;
            }
    }
}

/* Stride 2, one row of some vectors of channels before the next: lines that follow each other come twice as fast. An
 * input row that two output rows share is read once, and what it gives the next one is kept in `sums`. */
typedef struct {
    const dw_tile *tile;
    float *sums;
    bool puts, next; /* whether there is an output row here; whether one follows */
} dw_relay;

INLINE void dw_relay_row(const dw_tile_form f, const dw_relay *r) {
    const dw_tile a = *r->tile; /* copies, which the compiler knows that no store changes */
    const bool puts = r->puts, next = r->next;
    const float *x = a.x + a.xh, *w = a.w, *bias = a.bias;
    float *y = a.y, *sums = r->sums;
    for (ptrdiff_t n = a.count; n > 0; n--, x += VL, y += VL, w += 9 * VL, bias += a.step_bias, sums += DW_BAND * VL) {
        vf acc[2][DW_TILE_COLS], tap[9];
        const vf start = v_load(bias);
        UNROLL_FOR (int t = 0; t < 9; t++) tap[t] = v_load(w + t * VL);
        UNROLL_FOR (int v = 0; v < f.cols; v++) acc[0][v] = a.above || !puts ? start : v_load(sums + v * VL);
        UNROLL_FOR (int v = 0; v < f.cols; v++) acc[1][v] = start;
        if (puts) dw_add_columns(f, NULL, x, a.xw, 1, 0, tap, NULL, acc);
        if (!a.below) dw_add_columns(f, NULL, x + a.xh, a.xw, 2, 0, tap, NULL, acc);
        if (next)
            UNROLL_FOR (int v = 0; v < f.cols; v++) v_store(sums + v * VL, acc[1][v]);
        if (puts) ep_row(&a.ep, a.bounded, f.cols, acc[0], y, a.yw);
    }
}

typedef void dw_relay_fn(const dw_relay *);
#define BAND(side) \
    static __attribute__((noinline)) void dw_band_##side(const dw_tile *a) { \
        dw_band((dw_tile_form){3, 1, 3, DW_BAND, false, (side & 1) != 0, (side & 2) != 0}, a); \
    }
#define RELAY(side) \
    static __attribute__((noinline)) void dw_relay_##side(const dw_relay *r) { \
        dw_relay_row((dw_tile_form){3, 2, 2, DW_BAND, false, (side & 1) != 0, (side & 2) != 0}, r); \
    }
#define SIDES(name) {name##0, name##1, name##2, name##3}
BAND(0) BAND(1) BAND(2) BAND(3) RELAY(0) RELAY(1) RELAY(2) RELAY(3)

#endif
