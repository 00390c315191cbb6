/* Products of few rows with a B in the caller's memory. A panel of it would be read in pieces of a line or two, each
 * from another page; here B is read along its rows, SWEEP_STEPS of them at a time, and the sums of a strip of columns
 * stay in the first-level cache:
 *
 *      sums[j] += a[p] * b[p][j] + a[p + 1] * b[p + 1][j] + ...      for each j, then the next steps p
 *
 * Sums run over p in order, as in every tile: a row is bit-identical in a product of many.
 */

enum { SWEEP_STEPS = 8, SWEEP_COLUMNS = FO_PAGE_FLOATS, SWEEP_ROWS = MR * NV / 4 };

/* sums[j] of `steps` rows of B, `n` columns. */
INLINE void sweep_rows(const int steps, const float *a, const float *b, ptrdiff_t ldb, ptrdiff_t n, float *sums) {
    vf av[SWEEP_STEPS];
    UNROLL_FOR (int u = 0; u < steps; u++) av[u] = v_set1(a[u]);
    ptrdiff_t j = 0;
    for (; j + VL <= n; j += VL) {
        vf sum = v_load(sums + j);
        UNROLL_FOR (int u = 0; u < steps; u++) sum = v_fma(av[u], v_load(b + u * ldb + j), sum);
        v_store(sums + j, sum);
    }
    if (j == n) return;
    vf sum = v_load(sums + j);
    UNROLL_FOR (int u = 0; u < steps; u++) sum = v_fma(av[u], v_load_tail(b + u * ldb + j, n - j), sum);
    v_store(sums + j, sum);
}

/* Columns j.. of C, n of them. */
INLINE void sweep_strip(const fo_gemm_args *g, ptrdiff_t j, ptrdiff_t n) {
    float sums[SWEEP_ROWS * SWEEP_COLUMNS];
    const float *b = g->b + j;
    for (ptrdiff_t i = 0; i < g->m; i++)
        for (ptrdiff_t v = 0; v < n; v += VL)
            v_store(sums + i * SWEEP_COLUMNS + v, g->ep.bias ? v_load_tail(g->ep.bias + j + v, n - v) : v_zero());
    ptrdiff_t p = 0;
    for (; p + SWEEP_STEPS <= g->k; p += SWEEP_STEPS, b += SWEEP_STEPS * g->ldb)
        for (ptrdiff_t i = 0; i < g->m; i++)
            sweep_rows(SWEEP_STEPS, g->a + i * g->lda + p, b, g->ldb, n, sums + i * SWEEP_COLUMNS);
    for (; p < g->k; p++, b += g->ldb)
        for (ptrdiff_t i = 0; i < g->m; i++)
            sweep_rows(1, g->a + i * g->lda + p, b, g->ldb, n, sums + i * SWEEP_COLUMNS);
    ep_tile(&g->ep, sums, SWEEP_COLUMNS, (int)g->m, (int)n, 0, j, g->c, g->ldc);
}

/* Returns false where it is none of these products. */
INLINE bool gemm_sweep(const fo_gemm_args *g) {
    const bool fits = g->form == FO_B_PACKING && g->m <= SWEEP_ROWS && g->n >= VL;
    if (!fits || g->start || g->accum2 || g->ep.channel_rows) return false;
    FO_RAN("gemm sweep");
    for (ptrdiff_t j = 0; j < g->n; j += SWEEP_COLUMNS)
        sweep_strip(g, j, g->n - j < SWEEP_COLUMNS ? g->n - j : SWEEP_COLUMNS);
    return true;
}
