/* Depthwise convolution: y[c,h,w] = epilogue(sum over i, j of w[c,i,j] x[c, h*sh + i*dh - top, w*sw + j*dw - left]).
 *
 * Square kernels of 3, 5 and 7 have instances: depthwise_planes.h where lanes are columns (NCHW), depthwise_pixels.h where they are
 * channels (NHWC). Taps are added in the order of i, then j, everywhere, and rows outside the image are skipped: bits depend neither on
 * the memory order nor on where a vector begins.
 */
enum { DW_TILE_ROWS = 16, DW_ANY_ROWS = 8 };

/* The other epilogues, from sums of `rows` vectors (NHWC: pixels) of n lanes that stand ld floats apart: y and r are the places of the first. */
static __attribute__((noinline)) void dw_finish(const fo_depthwise_args *g, const float *sums, ptrdiff_t ld, ptrdiff_t c, ptrdiff_t n, int rows,
                                                float *y, ptrdiff_t ldy, const float *r, ptrdiff_t ldr) {
    const bool one_slope = !g->nhwc && g->act.kind == FO_PRELU;
    finish_args f = {.tile = sums, .mr = rows, .n = (int)n, .ldt = ld, .r = r, .ldr = ldr, .c = y, .ldc = ldy,
                     .slopes = g->act.slopes ? g->act.slopes + c : NULL, .p0 = one_slope ? g->act.slopes[c] : g->act.p0, .p1 = g->act.p1};
    finish_tile(&f, one_slope ? FO_LEAKY_RELU : g->act.kind, false);
}

#include "depthwise_planes.h"
#include "depthwise_pixels.h"

/* How the lanes of one tap lie in an input row; a literal at every call. */
typedef enum { DW_CHANNELS, DW_COLUMNS, DW_EVERY_SECOND, DW_ANYHOW } dw_lanes;

static dw_lanes dw_lanes_of(const fo_depthwise_args *g) {
    if (g->nhwc) return g->x.sc == 1 && g->multiplier == 1 ? DW_CHANNELS : DW_ANYHOW;
    return g->x.sw != 1 || g->s->sw > 2 ? DW_ANYHOW : g->s->sw == 1 ? DW_COLUMNS : DW_EVERY_SECOND;
}

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
    const float *x = g->x.data + t * g->x.sh + (lanes == DW_CHANNELS ? column * g->x.sw + c : c / g->multiplier * g->x.sc + column);
    const vm in = lanes == DW_CHANNELS ? v_range(0, column >= 0 && column < iw ? g->c1 - c : 0) : v_range(-column, iw - column);
    const vm next = v_range(-column - VL, iw - column - VL);
    UNROLL for (int q = 0; q < DW_ANY_ROWS; q++, x += step) {
        if (!all && (q < q0 || q >= q1)) continue;
        vf xv;
        if (lanes == DW_ANYHOW)
            xv = dw_gather(g, g->x.data + (t + q * g->s->sh) * g->x.sh, c, column);
        else if (lanes == DW_EVERY_SECOND)
            xv = v_even(v_load_mask(x, in), v_load_mask(x + VL, next));
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
    const ptrdiff_t at_y = c * g->y.sc + h0 * g->y.sh + w * g->y.sw, at_r = c * g->r.sc + h0 * g->r.sh + w * g->r.sw;
    dw_finish(g, sums, VL, c, count < VL ? count : VL, (int)(h1 - h0), g->y.data + at_y, g->y.sh, g->r.data ? g->r.data + at_r : NULL, g->r.sh);
}

INLINE void dw_everywhere(const dw_lanes lanes, const fo_depthwise_args *g) {
    const ptrdiff_t along_w = g->nhwc ? 1 : VL, along_c = g->nhwc ? VL : 1;
    for (ptrdiff_t c = g->c0; c < g->c1; c += along_c)
        for (ptrdiff_t h = g->h0; h < g->h1; h += DW_ANY_ROWS)
            for (ptrdiff_t w = 0; w < g->z->ow; w += along_w)
                dw_any(lanes, g, c, w, h, h + DW_ANY_ROWS < g->h1 ? h + DW_ANY_ROWS : g->h1);
}

static void FO_NAME(fo_depthwise)(const fo_depthwise_args *g) {
    static dw_walk_fn *const walks[][DW_WALKS][DW_EDGES] = {
        {STEP_1(3), WHOLE_ROWS}, STEP_2_ENDS(3), {STEP_1(5)}, STEP_2(5), {ONE_ROW(7), ENDS_ROW(7, 1, 2)}};
    static dw_tiles_fn *const tiles[][DW_WIDTHS][2] = {TILE_ROW(3, 1), TILE_ROW_2(3), TILE_ROW(5, 1), TILE_ROW_2(5), TILE_ROW(7, 1)};
    const fo_conv2d_shape *s = g->s;
    const bool square = s->kh == s->kw && s->sh == s->sw && s->dh == 1 && s->dw == 1;
    const bool same_order = g->nhwc ? g->x.sc == 1 && g->multiplier == 1 : g->x.sw == 1;
    if (square && same_order && ((s->sh <= 2 && (s->kh == 3 || s->kh == 5)) || (s->sh == 1 && s->kh == 7))) {
        const ptrdiff_t instance = (s->kh - 3) + (s->sh - 1);
        if (g->nhwc)
            dw_pixels(g, tiles[instance]);
        else
            dw_planes(g, walks[instance], s->sh == 1 ? dw_tall_31 : dw_tall_32);
        return;
    }
    switch (dw_lanes_of(g)) {
        case DW_CHANNELS: dw_everywhere(DW_CHANNELS, g); break;
        case DW_COLUMNS: dw_everywhere(DW_COLUMNS, g); break;
        case DW_EVERY_SECOND: dw_everywhere(DW_EVERY_SECOND, g); break;
        case DW_ANYHOW: dw_everywhere(DW_ANYHOW, g); break;
    }
}
