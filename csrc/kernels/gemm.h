/* C[m,n] = epilogue(A[m,k] B[k,n]): a register tile of mr rows and nv vectors, and the walk over the matrix.
 *
 *            nv * VL columns              Each step p of the reduction loads nv vectors of B, broadcasts mr elements of A
 *           +--------------+              and does mr * nv multiply-adds. A is read as it lies; B in panels of NR columns:
 *   k of A  |  panel of B  | k
 *  +------+ +--------------+                panel 0: b[0][0..NR) b[1][0..NR) ... b[k-1][0..NR)   panel 1: ...
 *  |      | |              |
 * mr rows | |  C in registers             Sums start at the bias and run over p in order, whatever the tile:
 *  +------+ +--------------+              a row has the same bits alone and in a batch.
 */

/* One tile. mr, nv, form and exact are literals at every call; `wanted` columns of the nv * VL are stored. */
INLINE void gemm_tile(const fo_gemm_args *g, const int mr, const int nv, const fo_form form, const bool exact, ptrdiff_t i0,
                      ptrdiff_t j0) {
    const ptrdiff_t lda = g->lda, ldb = g->ldb, panel = g->panel, k = g->k, *table = g->table;
    const float *a = g->a + i0 * lda, *b = g->b + j0 / NR * panel;
    const fo_epilogue *ep = &g->ep;
    const int wanted = g->n - j0 < nv * VL ? (int)(g->n - j0) : nv * VL;
    vf acc[MR][8];

    if (!ep->bias)
        UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_zero();
    else if (ep->channel_rows)
        UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_set1(ep->bias[i0 + i]);
    else
        UNROLL for (int j = 0; j < nv; j++) {
            acc[0][j] = wanted == nv * VL ? v_load(ep->bias + j0 + j * VL) : v_load_tail(ep->bias + j0 + j * VL, wanted - j * VL);
            UNROLL for (int i = 1; i < mr; i++) acc[i][j] = acc[0][j];
        }

    for (ptrdiff_t p = 0; p < k; p++) {
        const float *ap = form == FO_A_TABLE ? a + table[p] : a + p;
        const float *bp = form == FO_B_TABLE ? b + table[p] : b + p * ldb;
        vf bv[8];
        UNROLL for (int j = 0; j < nv; j++) {
            const float *at = bp + j / NV * panel + j % NV * VL;
            bv[j] = exact ? v_load_tail(at, wanted - j * VL) : v_load(at);
        }
        UNROLL for (int i = 0; i < mr; i++) {
            vf av = v_set1(ap[i * lda]);
            UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_fma(av, bv[j], acc[i][j]);
        }
    }

    const ptrdiff_t ldc = g->ldc, ldr = ep->ldr;
    if (!ep->transposed && wanted == nv * VL && ep->act.kind <= FO_CLIP) { /* the common case: nothing leaves the registers */
        float *c = g->c + i0 * ldc + j0;
        if (ep->residual)
            UNROLL for (int i = 0; i < mr; i++)
                UNROLL for (int j = 0; j < nv; j++)
                    acc[i][j] = v_add(acc[i][j], v_load(ep->residual + (i0 + i) * ldr + j0 + j * VL));
        if (ep->act.kind == FO_CLIP)
            UNROLL for (int i = 0; i < mr; i++)
                UNROLL for (int j = 0; j < nv; j++)
                    acc[i][j] = v_act(FO_CLIP, acc[i][j], ep->act.p0, ep->act.p1, v_zero());
        UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) v_store(c + i * ldc + j * VL, acc[i][j]);
        return;
    }
    float tile[MR * NV * VL]; /* mr * nv <= MR * NV */
    UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) v_store(tile + (i * nv + j) * VL, acc[i][j]);
    const ptrdiff_t at_c = ep->transposed ? j0 * ldc + i0 : i0 * ldc + j0, at_r = ep->transposed ? j0 * ldr + i0 : i0 * ldr + j0;
    finish_args f = {tile, mr, wanted, nv * VL, ep->residual ? ep->residual + at_r : NULL, ldr, g->c + at_c, ldc,
                     ep->act.slopes ? ep->act.slopes + (ep->channel_rows ? i0 : j0) : NULL, ep->channel_rows, ep->act.p0, ep->act.p1};
    finish_tile(&f, ep->act.kind, ep->transposed);
}

/* A tile of mr rows, mr known at run time only. Tiles that the registers cannot hold are left out when this is compiled. */
#define ROWS_CASE(rows) \
    case rows: \
        if (rows <= MR && rows * nv <= MR * NV) gemm_tile(g, rows <= MR ? rows : 1, nv, form, exact, i, j); \
        return;

INLINE void gemm_rows(const fo_gemm_args *g, int mr, const int nv, const fo_form form, const bool exact, ptrdiff_t i, ptrdiff_t j) {
    switch (mr) {
        ROWS_CASE(1) ROWS_CASE(2) ROWS_CASE(3) ROWS_CASE(4) ROWS_CASE(5) ROWS_CASE(6)
        ROWS_CASE(7) ROWS_CASE(8) ROWS_CASE(9) ROWS_CASE(10) ROWS_CASE(11) ROWS_CASE(12)
    }
}
#undef ROWS_CASE

/* All rows of the columns from j: as few tiles as MR allows, of nearly equal height, for 8 + 8 rows beat 12 + 4. */
INLINE void gemm_columns(const fo_gemm_args *g, const int nv, const fo_form form, const bool exact, ptrdiff_t j) {
    const ptrdiff_t tiles = (g->m + MR - 1) / MR;
    const int least = (int)(g->m / tiles);
    for (ptrdiff_t i = 0, more = g->m % tiles; i < g->m; more--) {
        const int mr = least + (more > 0);
        gemm_rows(g, mr, nv, form, exact, i, j);
        i += mr;
    }
}

#define COLUMNS(nv, form, exact) \
    static __attribute__((noinline)) void gemm_##nv##form##exact(const fo_gemm_args *g, ptrdiff_t j) { gemm_columns(g, nv, form, exact, j); }
COLUMNS(1, FO_ROWS, false) COLUMNS(2, FO_ROWS, false) COLUMNS(4, FO_ROWS, false) COLUMNS(8, FO_ROWS, false)
COLUMNS(1, FO_ROWS, true) COLUMNS(2, FO_ROWS, true)
COLUMNS(1, FO_A_TABLE, false) COLUMNS(2, FO_A_TABLE, false) COLUMNS(4, FO_A_TABLE, false) COLUMNS(8, FO_A_TABLE, false)
COLUMNS(1, FO_B_TABLE, false) COLUMNS(2, FO_B_TABLE, false)
#undef COLUMNS

/* The tile's width for the columns that are left: NV vectors; fewer rows leave registers for more, so that enough
 * independent sums hide the multiply-add's latency. */
INLINE int gemm_width(const fo_gemm_args *g, ptrdiff_t left) {
    if (left <= VL) return 1;
    if (g->form != FO_B_TABLE && !g->b_exact) {
        if (g->m * 8 <= MR * NV && left > 4 * VL) return 8;
        if (g->m * 4 <= MR * NV && left > 2 * VL) return 4;
    }
    return 2;
}

static void FO_NAME(fo_gemm)(const fo_gemm_args *g) {
    typedef void columns(const fo_gemm_args *, ptrdiff_t);
    static columns *const whole[FO_FORMS][9] = {
        [FO_ROWS] = {[1] = gemm_1FO_ROWSfalse, [2] = gemm_2FO_ROWSfalse, [4] = gemm_4FO_ROWSfalse, [8] = gemm_8FO_ROWSfalse},
        [FO_A_TABLE] = {[1] = gemm_1FO_A_TABLEfalse, [2] = gemm_2FO_A_TABLEfalse, [4] = gemm_4FO_A_TABLEfalse, [8] = gemm_8FO_A_TABLEfalse},
        [FO_B_TABLE] = {[1] = gemm_1FO_B_TABLEfalse, [2] = gemm_2FO_B_TABLEfalse}};
    for (ptrdiff_t j = 0, left = g->n; left > 0;) {
        int nv = gemm_width(g, left);
        if (g->b_exact && left < nv * VL)
            (nv == 1 ? gemm_1FO_ROWStrue : gemm_2FO_ROWStrue)(g, j);
        else
            whole[g->form][nv](g, j);
        j += nv * VL, left -= nv * VL;
    }
}
