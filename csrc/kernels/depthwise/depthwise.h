/* Depthwise convolution: y[c,h,w] = epilogue(sum over i, j of w[c,i,j] x[c, h*sh + i*dh - top, w*sw + j*dw - left]).
 *
 * Square kernels have instances: of 3, 5 and 7 in depthwise_planes.h, where lanes are columns (NCHW), of 2 to 5 and 7 in depthwise_pixels.h, where they
 * are channels (NHWC). All others, and dilated ones, go by depthwise_any.h. Taps are added in the order of i, then j, everywhere, and rows outside the image are skipped: bits depend neither on
 * the memory order nor on where a vector begins.
 */
enum { DW_TILE_ROWS = 16, DW_ANY_ROWS = 8 };

/* The other epilogues, from sums of `rows` vectors (NHWC: pixels) of n lanes that stand ld floats apart: y and r are the places of the first. */
static __attribute__((noinline)) void dw_finish(const fo_depthwise_args *g, const float *sums, ptrdiff_t ld, ptrdiff_t c, ptrdiff_t n, int rows,
                                                float *y, ptrdiff_t ldy, const float *r, ptrdiff_t ldr) {
    const bool one_slope = !g->nhwc && g->act.kind == FO_PRELU;
    finish_args f = {.tile = sums, .mr = rows, .n = (int)n, .ldt = ld, .r = r, .ldr = ldr, .c = y, .ldc = ldy,
                     .slopes = g->act.slopes ? g->act.slopes + c : NULL, .p0 = one_slope ? g->act.slopes[c] : g->act.p0, .p1 = g->act.p1};
    FO_NAME(fo_finish_tile)(&f, one_slope ? FO_LEAKY_RELU : g->act.kind, false);
}

#include "planes.h"
#include "pixels.h"
#include "any.h"

/* Where lanes are channels. */
static void dw_any_pixels(const fo_depthwise_args *g, ptrdiff_t k, ptrdiff_t stride) {
    static dw_tiles_fn *const tiles[][2][DW_WIDTHS][2] = {
        [2] = {TILE_ROW(2, 1), TILE_ROW_2(2)}, [3] = {TILE_ROW(3, 1), TILE_ROW_2(3)}, [4] = {TILE_ROW(4, 1), TILE_ROW_2(4)},
        [5] = {TILE_ROW(5, 1), TILE_ROW_2(5)}, [7] = {TILE_ROW(7, 1), TILE_ROW_2(7)}};
    const bool known = (k >= 2 && k <= 5) || k == 7, dilated = g->s->dh > 1 || g->s->dw > 1;
    if (known && !dilated && (stride == 1 || stride == 2))
        dw_pixels(g, tiles[k][stride - 1]);
    else
        dw_across_rows(g);
}

/* Where they are columns. */
static void dw_any_planes(const fo_depthwise_args *g, ptrdiff_t k, ptrdiff_t stride) {
    static dw_walk_fn *const walks[][2][DW_WALKS][DW_EDGES] = {
        [3] = {{STEP_1(3), WHOLE_ROWS}, STEP_2_ENDS(3)}, [5] = {{STEP_1(5)}, STEP_2(5)}, [7] = {{ONE_ROW(7), ENDS_ROW(7, 1, 2)}}};
    const bool dilated = g->s->dh > 1 || g->s->dw > 1;
    if (!dilated && ((k == 7 && stride == 1) || ((k == 3 || k == 5) && (stride == 1 || stride == 2))))
        dw_planes(g, walks[k][stride - 1], stride == 1 ? dw_tall_31 : dw_tall_32);
    else if (dw_spread_planes(g) || dw_slide_planes(g))
        return;
    else if (g->s->sw == 1)
        dw_everywhere(DW_COLUMNS, g);
    else if (g->s->sw == 2)
        dw_everywhere(DW_EVERY_SECOND, g);
    else
        dw_everywhere(DW_ANYHOW, g);
}

void FO_NAME(fo_depthwise)(const fo_depthwise_args *g) {
    const fo_conv2d_shape *s = g->s;
    const ptrdiff_t k = s->kh == s->kw ? s->kh : 0, stride = s->sh == s->sw ? s->sh : 0; /* 0: neither of those that kernels know */
    if (g->nhwc && g->x.sc == 1 && g->multiplier == 1)
        dw_any_pixels(g, k, stride);
    else if (!g->nhwc && g->x.sw == 1)
        dw_any_planes(g, k, stride);
    else
        dw_everywhere(DW_ANYHOW, g);
}
