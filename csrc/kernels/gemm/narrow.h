/* Products of up to three columns, whose tiles would leave most lanes idle: here rows are lanes.
 *
 *      A          p ->           VL rows of VL steps are transposed: all elements of a step stand in one vector,
 *      row 0      a b c ..       which takes one element of B for each column:  sums[j] += t[p] * b[p][j]
 *      row 1      e f g ..  ->   t[0] = a e ..  t[1] = b f ..
 *
 * A column's sums are one chain of multiply-adds, so that some blocks of VL rows take turns, a line of A each, to hide
 * its latency. Not where the distance of rows is a page: there the blocks' lines would drive each other out. Sums run
 * over p in order, as in every other tile: a row is bit-identical alone.
 */
#include "../../simd/lanes.h"

enum { MAX_COLUMNS = 3, NARROW_BLOCKS = 4 };
_Static_assert((int)VL <= LINE_FLOATS, "a line has whole vectors");

/* VL rows from a on, and the next steps of B: VL of them, or (not all) fewer. */
INLINE void narrow_steps(const fo_gemm_args *g, const int n, const bool all, const float *a, const float *b,
                         ptrdiff_t steps, vf sums[MAX_COLUMNS]) {
    vf t[VL];
    if (all)
        v_load_transposed(t, a, g->lda);
    else {
        UNROLL_FOR (int l = 0; l < VL; l++) t[l] = v_load_tail(a + l * g->lda, steps);
        v_transpose(t);
    }
    UNROLL_FOR (int u = 0; u < VL; u++)
        if (all || u < steps)
            UNROLL_FOR (int j = 0; j < n; j++) sums[j] = v_fma(t[u], v_set1(b[u * g->ldb + j]), sums[j]);
}

/* Column j of `rows` rows from i on, whose neighbors in `sums` are rows, too: a transposed tile, but for where C has
 * its rows. */
static __attribute__((noinline)) void narrow_end(const fo_gemm_args *g, const float *sums, ptrdiff_t i, int j,
                                                 ptrdiff_t rows) {
    fo_epilogue ep = g->ep;
    float y[VL];
    v_store(y, ep.residual
                   ? v_add(v_load(sums), v_load_strided((const float *)ep.residual + i * ep.ldr + j, ep.ldr, rows))
                   : v_load(sums));
    ep.residual = NULL, ep.channel_rows = true, ep.act.slopes = ep.act.slopes ? ep.act.slopes + j : NULL;
    ep_tile(&ep, y, VL, 1, VL, 0, 0, y, VL);
    v_store_strided(g->c + i * g->ldc + j, g->ldc, v_load(y), rows);
}

/* `blocks` blocks of rows from i on, of which the first `done` rows are there already. */
INLINE void narrow_rows(const fo_gemm_args *g, const int n, const int blocks, ptrdiff_t i, ptrdiff_t done) {
    vf sums[NARROW_BLOCKS][MAX_COLUMNS];
    UNROLL_FOR (int q = 0; q < blocks; q++)
        UNROLL_FOR (int j = 0; j < n; j++)
            sums[q][j] = g->start ? v_load_strided(g->start + (i + q * VL) * g->lds + j, g->lds, VL)
                                  : v_set1(g->ep.bias ? g->ep.bias[j] : 0);
    const float *a = g->a + i * g->lda, *b = g->b;
    ptrdiff_t left = g->k;
    for (; left >= LINE_FLOATS; left -= LINE_FLOATS, a += LINE_FLOATS, b += LINE_FLOATS * g->ldb)
        UNROLL_FOR (int q = 0; q < blocks; q++)
            UNROLL_FOR (int u = 0; u < LINE_FLOATS; u += VL)
                narrow_steps(g, n, true, a + q * VL * g->lda + u, b + u * g->ldb, VL, sums[q]);
    for (; left > 0; left -= VL, a += VL, b += VL * g->ldb)
        UNROLL_FOR (int q = 0; q < blocks; q++) narrow_steps(g, n, false, a + q * VL * g->lda, b, left, sums[q]);
    float column[2 * VL] = {0};
    UNROLL_FOR (int q = 0; q < blocks; q++)
        UNROLL_FOR (int j = 0; j < n; j++) {
            v_store(column, sums[q][j]);
            narrow_end(g, column + done, i + q * VL + done, j, VL - done);
        }
}

/* As many blocks at once as hide the latency of one column's chain, then one by one; the last one overlaps the one
 * before. */
#define NARROW(n) \
    static void narrow_##n(const fo_gemm_args *g) { \
        enum { BLOCKS = NARROW_BLOCKS / n }; \
        FO_RAN("gemm narrow " #n); \
        ptrdiff_t i = 0; \
        for (; BLOCKS > 1 && g->lda % FO_PAGE_FLOATS && i + BLOCKS * VL <= g->m; i += BLOCKS * VL) \
            narrow_rows(g, n, BLOCKS, i, 0); \
        for (; i + VL <= g->m; i += VL) narrow_rows(g, n, 1, i, 0); \
        if (i < g->m) narrow_rows(g, n, 1, g->m - VL, i - (g->m - VL)); \
    }
NARROW(1)
NARROW(2)
NARROW(3)
#undef NARROW

/* Returns false where it is none of these products, or rows do not fill a vector, or steps do not repay what is
 * around them. */
INLINE bool gemm_narrow(const fo_gemm_args *g) {
    static void (*const of_columns[])(const fo_gemm_args *) = {narrow_1, narrow_2, narrow_3};
    const bool fits = !IS_SCALAR && g->n <= MAX_COLUMNS && g->m >= VL && g->k >= FO_NARROW_STEPS(g->n);
    /* without what is beyond the last column */
    const bool read = (g->form == FO_ROWS && g->b_type == FO_F32) || g->form == FO_B_PACKING;
    if (!fits || !read || g->accum2 || g->ep.transposed || g->ep.channel_rows) return false;
    of_columns[g->n - 1](g);
    return true;
}
