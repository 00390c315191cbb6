/* What all depthwise kernels share.
 *
 *   y[c,h,w] = epilogue(sum over i, j of w[c,i,j] x[c, h*sh + i*dh - top, w*sw + j*dw - left])
 *
 * Taps are added in the order of i, then j, everywhere, and rows outside the image are skipped: bits depend neither on
 * the memory order nor on where a vector begins. A kernel's only end is a clip, on its registers. Sums that want more,
 * a residual or another activation, go to a buffer first, with no bounds, and from there through dw_finish.
 */
#ifndef FO_DEPTHWISE_COMMON_H
#define FO_DEPTHWISE_COMMON_H

#include "../kernels.h"

/* Forms differ where 32 registers hold what 16 do not: tiles' shapes, where taps are, what is copied. */
enum { DW_32 = REGISTERS >= 32 };

/* Whether results leave the registers by a clip alone. */
INLINE bool dw_in_registers(const fo_depthwise_args *g) { return fo_in_registers(&g->act) && !g->r.data; }

/* The epilogue of sums in a buffer: `rows` vectors (NHWC: pixels) of n lanes, ld floats from one to the next. They
 * belong to channel c on, and to row h and column w on, along which (across) or down which they go. */
typedef struct {
    const float *sums;
    ptrdiff_t ld, c, n, h, w;
    int rows;
    bool across;
} dw_sums;

static __attribute__((noinline)) void dw_finish(const fo_depthwise_args *g, const dw_sums *s) {
    const bool one_slope = !g->nhwc && g->act.kind == FO_PRELU;
    const ptrdiff_t y = s->c * g->y.sc + s->h * g->y.sh + s->w * g->y.sw;
    const ptrdiff_t r = s->c * g->r.sc + s->h * g->r.sh + s->w * g->r.sw;
    finish_args f = {.tile = s->sums,
                     .mr = s->rows,
                     .n = (int)s->n,
                     .ldt = s->ld,
                     .r = g->r.data ? g->r.data + r : NULL,
                     .ldr = s->across ? g->r.sw : g->r.sh,
                     .c = g->y.data + y,
                     .ldc = s->across ? g->y.sw : g->y.sh,
                     .slopes = g->act.slopes ? g->act.slopes + s->c : NULL,
                     .p0 = one_slope ? g->act.slopes[s->c] : g->act.p0,
                     .p1 = g->act.p1};
    FO_NAME(fo_finish_tile)(&f, one_slope ? FO_LEAKY_RELU : g->act.kind, false);
}

#endif
