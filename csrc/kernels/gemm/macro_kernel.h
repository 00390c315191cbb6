/* The walk over C = epilogue(A B): stacks of tiles, a panel of B after another. */
#include "tile.h"
#include "blockwise.h"
#include "tile_stack.h"
#include "narrow.h"
#include "gemv_rows.h"

/* Halves of a vector of the next tile, for the columns that are left: fewer rows leave registers for more, so that
 * enough independent sums hide the multiply-add's latency; the last three vectors are one tile, for one alone would
 * load an element of A for each multiply-add. Weights that are not float32 always take full panels. */
INLINE int gemm_width(const fo_gemm_args *g, ptrdiff_t left) {
    const ptrdiff_t vectors = (left + VL - 1) / VL;
    const bool rows = g->form == FO_ROWS, panels = UNPACKS(g->form) || g->b_type != FO_F32;
    if (IS_SCALAR) return vectors < 2 && !panels ? 2 : 2 * NV;
    /* all panels that a tile reads are there */
    if (rows && g->m * 8 <= MR * NV && left > 3 * NR) return 16;
    if (rows && g->m * 4 <= MR * NV && left > NR) return 8;
    if (g->form == FO_B_TABLE && g->m * 4 <= MR * NV && left > 3 * VL) return 8;
    if (panels) return 2 * NV;
    if (vectors == 3 && g->form != FO_B_PACKING) return 6;
    if (left == VL + VL / 2 && rows && !g->accum2) return 3;
    return vectors < 2 ? 2 : 4;
}

/* The rows from i on of a panel, or of `panels` panels, in tiles of nearly equal heights, for 8 + 8 rows beat 12 + 4.
 */
INLINE void gemm_rows(const fo_gemm_args *g, const int width, ptrdiff_t i, ptrdiff_t j, ptrdiff_t panels) {
    const fo_epilogue *ep = &g->ep;
    const int columns = width * VL / 2;
    const bool long_rows = g->form == FO_ROWS && g->b_type == FO_F32 && g->k >= FO_LONG_STEPS,
               clash = long_rows && g->lda % FO_PAGE_FLOATS == 0 && MANY_REGS;
    const ptrdiff_t high = UNPACKS(g->form) ? BLOCKWISE_HIGH
                           : width > 2 * NV ? 2 * MR * NV / width
                                            : MR - clash,
                    m = g->m - i, count = (m + high - 1) / high, mr = m / count, taller = m % count;
    tile_stack t = {
        .g = g, .i = i, .j = j, .across = panels > 0, .wanted = g->n - j < columns ? (int)(g->n - j) : columns};
    t.direct = !ep->transposed && t.wanted == columns && fo_in_registers(&ep->act);
    t.results = long_rows || (ep->large && VEC_IS_LINE); /* halves of lines do not wait */
    t.fetches = !ep->transposed && (t.results || (ep->large && ep->residual));
    tile_fn *const *of_height = tiles_of(g, width) - 1;
    for (ptrdiff_t done = 0, step; done < count; done += step) {
        const ptrdiff_t rows = done < taller ? mr + 1 : mr;
        step = panels ? 1 : done < taller ? taller : count - taller;
        t.count = panels ? panels : step;
        of_height[rows](&t);
        t.i += step * rows;
    }
}

/* A panel of a B in the caller's memory. Whole panels are read as they lie, unless a stride of a multiple of 1 KB
 * would put all rows into few sets of the cache. */
static __attribute__((noinline)) void gemm_packing(const fo_gemm_args *args, const int width, ptrdiff_t j) {
    fo_gemm_args g = *args;
    g.form = FO_ROWS;
    if (g.n - j < NR || g.ldb % FO_SHARED_SETS_FLOATS == 0) {
        const int columns = width * VL / 2, wanted = g.n - j < columns ? (int)(g.n - j) : columns;
        const float *b = g.b + j / NR * g.panel;
        for (ptrdiff_t p = 0; p < g.k; p++, b += g.ldb)
            for (int v = 0; v < columns; v += VL) v_store(g.packed + p * NR + v, v_load_tail(b + v, wanted - v));
        g.b = g.packed, g.ldb = NR, g.panel = 0;
    }
    gemm_rows(&g, width, 0, j, 0);
}

/* A panel of weights in blocks, for more rows than unpack it themselves: the first tile does, whose multiply-adds hide
 * most of that, and the others read what it keeps. */
static __attribute__((noinline)) void gemm_unpacking(const fo_gemm_args *args, ptrdiff_t j) {
    const ptrdiff_t half = (args->m + 1) / 2, left = args->n - j;
    fo_gemm_args g = *args;
    g.form = FO_UNPACKING, g.m = half < BLOCKWISE_HIGH ? half : BLOCKWISE_HIGH, g.b = g.next = g.packed, g.ldb = NR,
    g.panel = 0;
    gemm_rows(&g, 2 * NV, 0, j, 0);
    const ptrdiff_t first = g.m;
    g.form = FO_ROWS, g.m = args->m;
    gemm_rows(&g, left < NR ? gemm_width(&g, left) : 2 * NV, first, j, 0);
}

/* Products of few steps whose rows are written in long runs: all whole panels, or where pixels are columns as many as
 * the second-level cache keeps; returns the columns that are done. */
INLINE ptrdiff_t gemm_across(const fo_gemm_args *args) {
    const bool planes = args->form == FO_B_PACKING && args->ep.channel_rows,
               pixels = args->form == FO_ROWS && args->b_type == FO_F32 && args->ldb == NR && !args->ep.channel_rows;
    const ptrdiff_t panels = args->n / NR;
    if (!VEC_IS_LINE || args->k > FO_FEW_STEPS || args->ep.transposed || args->start) return 0;
    if (planes ? panels < FO_MIN_PANELS : !pixels || 4 * args->n * args->k >= FO_L2_PIECE) return 0;
    const ptrdiff_t most = planes ? FO_NEAR_PIXELS_FLOATS / (args->k + 1) / NR : panels;
    fo_gemm_args g = *args;
    g.form = FO_ROWS;
    for (ptrdiff_t j = 0; j < panels; j += most)
        gemm_rows(&g, 2 * NV, 0, j * NR, panels - j < most ? panels - j : most);
    return panels * NR;
}

/* All of C, with sums of one chain each. */
static __attribute__((noinline)) void gemm_walk(const fo_gemm_args *g) {
    if (gemm_narrow(g) || gemm_sweep(g)) return;
    int width;
    for (ptrdiff_t j = gemm_across(g); j < g->n; j += width * VL / 2) {
        width = gemm_width(g, g->n - j);
        if (g->form == FO_B_PACKING)
            gemm_packing(g, width, j);
        else if (g->form == FO_BLOCKWISE && g->m > FO_BLOCKWISE_ROWS)
            gemm_unpacking(g, j);
        else
            gemm_rows(g, width, 0, j, 0);
    }
}
