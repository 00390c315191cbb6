/* Plain tiles (gemm_is_plain) one below the other in one function, where registers are few: what stands around a tile's multiply-adds, 150
 * instructions with a call for each, is a third of those of 16 steps. Share of the multiply-add peak with 16, 24 and 32 steps, AVX2: tile by
 * tile 0.80, 0.86, 0.88; one below the other 0.94, 0.96, 0.97. */
enum { GEMM_RUNS = REGISTERS <= 16 };
_Static_assert(!GEMM_RUNS || MANY >= (MR - 1) * (MR - 1), "so many rows are tiles of MR and of MR - 1 rows");

INLINE void gemm_run(const fo_gemm_args *args, const int mr, ptrdiff_t i0, ptrdiff_t j0, ptrdiff_t tiles) {
    static const float zeros[NR];
    const fo_gemm_args g = *args; /* a copy, which the compiler knows that no store changes */
    const float *b = g.b + j0 / NR * g.panel, *x = g.a + i0 * g.lda, *bias = g.ep.bias ? g.ep.bias + j0 : zeros;
    const float *r = g.ep.residual ? g.ep.residual + i0 * g.ep.ldr + j0 : NULL;
    float *c = g.c + i0 * g.ldc + j0, lo = g.ep.act.kind == FO_CLIP ? g.ep.act.p0 : -INFINITY, hi = g.ep.act.kind == FO_CLIP ? g.ep.act.p1 : INFINITY;
    v_stays_in_memory(lo); /* registers are for sums */
    v_stays_in_memory(hi);
    for (; tiles > 0; tiles--) {
        vf acc[MR][8];
        const float *a[POINTERS];
        UNROLL for (int i = 0; i < mr; i++, x += g.lda) {
            if (i % REACH == 0) a[i / REACH] = x;
            UNROLL for (int j = 0; j < NV; j++) acc[i][j] = v_load(bias + j * VL);
        }
        v_hide(x); /* or each row of A and C would take a pointer */
        gemm_steps(&g, acc, mr, NV, FO_ROWS, a, b, 0, g.k, b, 0, NR, true);
        if (r)
            UNROLL for (int i = 0; i < mr; i++, r += g.ep.ldr)
                UNROLL for (int j = 0; j < NV; j++) acc[i][j] = v_add(acc[i][j], v_load(r + j * VL));
        const vf least = v_set1(lo), most = v_set1(hi);
        UNROLL for (int i = 0; i < mr; i++, c += g.ldc)
            UNROLL for (int j = 0; j < NV; j++) v_store(c + j * VL, v_min(most, v_max(least, acc[i][j])));
        v_hide(c);
    }
}

static void gemm_run_high(const fo_gemm_args *g, ptrdiff_t i0, ptrdiff_t j0, ptrdiff_t tiles) { gemm_run(g, MR, i0, j0, tiles); }
static void gemm_run_low(const fo_gemm_args *g, ptrdiff_t i0, ptrdiff_t j0, ptrdiff_t tiles) { gemm_run(g, MR - 1, i0, j0, tiles); }

/* Many rows in tiles of MR rows, and of one less. */
INLINE void gemm_run_rows(const fo_gemm_args *g, ptrdiff_t j0) {
    const ptrdiff_t tiles = (g->m + MR - 1) / MR, low = tiles * MR - g->m;
    gemm_run_high(g, 0, j0, tiles - low);
    gemm_run_low(g, (tiles - low) * MR, j0, low);
}
