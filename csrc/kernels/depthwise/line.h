/* Depthwise convolution, 3 x 3, channels as lanes: one row of outputs, some vectors of channels, from three input rows
 * anywhere in memory. For blocks of convolutions (conv/blocks/block.c), where input rows are fresh in the first-level
 * cache: four pixels at a time, nine taps in registers.
 */
#ifndef FO_DEPTHWISE_LINE_H
#define FO_DEPTHWISE_LINE_H

#include "dw_tile.h"

enum { DW_COLS = 4 };

/* A literal at every call. */
typedef struct {
    int s;
    bool all, near; /* all three input rows lie in the image; from one pixel to the next there are NR floats */
} dw_line_form;

/* A vector of channels: its rows from the first window's first column on, taps, output. */
typedef struct {
    const float *in[3];
    vf tap[9];
    float *y;
} dw_line_vector;

/* The pixels from output column w on. Literals: whether the window's first or last column is outside the image. */
INLINE void dw_line_tile(const dw_line_form f, const bool left, const bool right, const fo_depthwise_line_args *g,
                         const dw_line_vector *l, const vf start, const ep_bounds *ep, ptrdiff_t w) {
    const dw_tile_form tile = {3, f.s, 1, DW_COLS, false, left, right};
    const ptrdiff_t xw = f.near ? NR : g->xw;
    vf acc[1][DW_TILE_COLS];
    UNROLL_FOR (int v = 0; v < DW_COLS; v++) acc[0][v] = start;
    UNROLL_FOR (int i = 0; i < 3; i++)
        if (f.all || l->in[i]) dw_add_columns(tile, NULL, l->in[i] + w * f.s * xw, xw, i, 0, l->tap, NULL, acc);
    ep_row(ep, true, DW_COLS, acc[0], l->y + w * g->yw, g->yw);
}

INLINE void dw_line(const dw_line_form f, const fo_depthwise_line_args *args) {
    const fo_depthwise_line_args g = *args; /* a copy, which the compiler knows that no store changes */
    const ptrdiff_t before = g.left * (f.near ? NR : g.xw), last = g.ow - DW_COLS;
    const bool left = g.left, right = (g.ow - 1) * f.s + 3 - g.left > g.iw;
    const ep_bounds ep = ep_start(&g.act);
    for (ptrdiff_t n = 0; n < g.vectors; n++) {
        dw_line_vector l = {.y = g.y + n * VL};
        vf start = g.bias ? v_load(g.bias + n * VL) : v_zero();
        v_force_mem(start); /* registers are for taps and sums */
        UNROLL_FOR (int i = 0; i < 3; i++) l.in[i] = f.all || g.rows[i] ? g.rows[i] + n * VL - before : NULL;
        UNROLL_FOR (int t = 0; t < 9; t++) l.tap[t] = v_load(g.w + (n * 9 + t) * VL);
        if (left)
            dw_line_tile(f, true, false, &g, &l, start, &ep, 0);
        else
            dw_line_tile(f, false, false, &g, &l, start, &ep, 0);
        for (ptrdiff_t w = DW_COLS; w < last; w += DW_COLS) dw_line_tile(f, false, false, &g, &l, start, &ep, w);
        if (right) /* the last one ends where the row ends */
            dw_line_tile(f, false, true, &g, &l, start, &ep, last);
        else
            dw_line_tile(f, false, false, &g, &l, start, &ep, last);
    }
}

typedef void dw_line_fn(const fo_depthwise_line_args *);
#define LINE(s, all, near) \
    static __attribute__((noinline)) void dw_line_##s##all##near(const fo_depthwise_line_args *g) { \
        dw_line((dw_line_form){s, all, near}, g); \
    }
LINE(1, 0, 0)
LINE(1, 1, 0)
LINE(1, 1, 1)
LINE(2, 0, 0)
LINE(2, 1, 0)
LINE(2, 1, 1)

void FO_NAME(fo_depthwise_line)(const fo_depthwise_line_args *g) {
    static dw_line_fn *const lines[2][3] = {{dw_line_100, dw_line_110, dw_line_111},
                                            {dw_line_200, dw_line_210, dw_line_211}};
    const bool all = g->rows[0] && g->rows[1] && g->rows[2];
    lines[g->stride - 1][all + (all && g->xw == NR)](g);
}

#endif
