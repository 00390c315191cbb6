/* Tiles one below the other in one function, where registers are few: what stands around a tile's multiply-adds, 150 instructions with a call
 * for each, is a third of those of 16 steps. Share of the multiply-add peak with 16, 24 and 32 steps, AVX2: tile by tile 0.80, 0.86, 0.88; one
 * below the other 0.94, 0.96, 0.97.
 *
 * Tiles are MR rows of NV vectors or, where columns go in threes of vectors, MR3 rows of three: 12 multiply-adds with 7 loads instead of 8, which
 * pays from 128 steps on, and for the last three vectors always. Columns begin at a panel's first vector or at its second.
 */
enum { GEMM_RUNS = REGISTERS <= 16 /* NEON: not measured */, RUN_ROWS = 20 /* of three vectors */, FAR_ROWS = 64 };
_Static_assert(!MR3 || (MR3 == 4 && MR * NV >= 3 * MR3), "columns in threes of vectors");

/* Of a tile of MR3 rows and three vectors: where the second and the third vector of B stand. */
typedef struct {
    ptrdiff_t second, third;
} gemm_threes;

/* The reduction of a tile whose rows of A are at x. `share` floats of `next` are fetched for each step, a line at a time. */
INLINE void gemm_run_steps(const fo_gemm_args *g, vf acc[MR][8], const int mr, const int nv, const float *x, const float *b, const gemm_threes at,
                           const bool fetches, const float *next, const ptrdiff_t share) {
    const ptrdiff_t k = g->k, lda = g->lda;
    if (nv == NV) {
        const float *a[POINTERS];
        UNROLL for (int i = 0; i < mr; i += REACH) a[i / REACH] = x + i * lda;
        gemm_steps(g, acc, mr, NV, FO_ROWS, a, b, 0, k, next, share, NR, !fetches);
    } else if (mr == MR3) {
        const float *last = x + (MR3 - 1) * lda, *end = x + k;
        for (; x + 4 <= end; x += 4, last += 4, b += 4 * NR) {
            if (fetches) __builtin_prefetch(next, 0, 2), next += 4 * share; /* to the second-level cache: the first is full */
            v_wide_steps(acc, true, x, lda, last, b, at.second, at.third);
        }
        for (; x < end; x++, last++, b += NR) v_wide_steps(acc, false, x, lda, last, b, at.second, at.third);
    } else
        for (const float *end = x + k; x < end; x++, b += NR) {
            const vf b0 = v_load(b), b1 = v_load(b + at.second), b2 = v_load(b + at.third);
            UNROLL for (int i = 0; i < mr; i++) {
                const vf av = v_set1(x[i * lda]);
                v_fma_to(acc[i][0], av, b0);
                v_fma_to(acc[i][1], av, b1);
                v_fma_to(acc[i][2], av, b2);
            }
        }
}

/* `any`: the sums may start at others, any epilogue may end them, and the weights that follow are fetched. */
INLINE void gemm_run(const fo_gemm_args *args, const int mr, const int nv, const bool any, ptrdiff_t i0, ptrdiff_t j0, ptrdiff_t tiles) {
    static const float zeros[3 * VL > NR ? 3 * VL : NR];
    const fo_gemm_args g = *args; /* a copy, which the compiler knows that no store changes */
    const bool starts = any && g.start, direct = !any || g.ep.act.kind <= FO_CLIP;
    const float *b = g.b + j0 / NR * g.panel + j0 % NR, *x = g.a + i0 * g.lda;
    const float *start = starts ? g.start + i0 * g.lds + j0 : g.ep.bias ? g.ep.bias + j0 : zeros;
    const float *r = g.ep.residual && direct ? g.ep.residual + i0 * g.ep.ldr + j0 : NULL;
    float *c = g.c + i0 * g.ldc + j0, lo = g.ep.act.kind == FO_CLIP ? g.ep.act.p0 : -INFINITY, hi = g.ep.act.kind == FO_CLIP ? g.ep.act.p1 : INFINITY;
    const ptrdiff_t lds = starts ? g.lds : 0;
    const gemm_threes at = {j0 % NR ? g.panel - VL : VL, g.panel};
    const ptrdiff_t behind = (j0 + nv * VL + NR - 1) / NR, panels = (j0 + 2 * nv * VL + NR - 1) / NR - behind; /* that no tile of these columns has read */
    const ptrdiff_t floats = g.next ? g.next_floats : panels * NR * g.k, share = any && g.k ? (mr * floats / g.k + g.m - 1) / g.m : 0;
    const float *next = (g.next ? g.next : g.b + (behind * NR < g.n ? behind * g.panel : 0)) + i0 * (floats / g.m);
    v_stays_in_memory(lo); /* registers are for sums */
    v_stays_in_memory(hi);
    for (; tiles > 0; tiles--, i0 += mr) {
        vf acc[MR][8];
        UNROLL for (int i = 0; i < mr; i++) {
            UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_load(start + j * VL);
            if (any) start += lds;
        }
        if (any && g.k >= LONG)
            UNROLL for (int i = 0; i < mr; i++) gemm_fetch(g.c + (i0 + i) * g.ldc + j0, nv);
        gemm_run_steps(&g, acc, mr, nv, x, b, at, any, next, share);
        if (any) next += g.k * share;
        x += mr * g.lda;
        v_hide(x); /* or each row of A and C would take a pointer */
        if (!direct) {
            gemm_finish(acc, mr, nv, mr, nv * VL, &g.ep, i0, j0, g.c, g.ldc, false);
            continue;
        }
        if (r)
            UNROLL for (int i = 0; i < mr; i++, r += g.ep.ldr)
                UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_add(acc[i][j], v_load(r + j * VL));
        const vf least = v_set1(lo), most = v_set1(hi);
        UNROLL for (int i = 0; i < mr; i++, c += g.ldc)
            UNROLL for (int j = 0; j < nv; j++) v_store(c + j * VL, v_min(most, v_max(least, acc[i][j])));
        v_hide(c);
    }
}

/* Whether it takes the form for any product. */
INLINE bool gemm_run_is_any(const fo_gemm_args *g) { return g->start || g->ep.act.kind > FO_CLIP || g->n * g->k >= FEW_FLOATS || g->k > LONG; }

/* Functions of their own, or the compiler would share registers between tiles. */
#define RUN(name, mr, nv, any) \
    static void gemm_run_##name(const fo_gemm_args *g, ptrdiff_t i0, ptrdiff_t j0, ptrdiff_t tiles) { \
        if (GEMM_RUNS && (!any || REGISTERS <= 16) && mr > 0 && mr * nv <= MR * NV) gemm_run(g, mr > 0 ? mr : 1, nv, any, i0, j0, tiles); \
    }
RUN(high, MR, NV, false)
RUN(low, MR - 1, NV, false)
RUN(wide_high, MR3, 3, false)
RUN(wide_low, MR3 - 1, 3, false)
RUN(any_high, MR, NV, true)
RUN(any_low, MR - 1, NV, true)
RUN(any_wide_high, MR3, 3, true)
RUN(any_wide_low, MR3 - 1, 3, true)
#undef RUN

/* Many rows in tiles of one height, and of one row less. */
INLINE void gemm_run_rows(const fo_gemm_args *g, const int width, ptrdiff_t j0) {
    const bool wide = width > NV, any = gemm_run_is_any(g);
    const ptrdiff_t most = wide ? MR3 : MR, tiles = (g->m + most - 1) / most, low = tiles * most - g->m, high = tiles - low;
    if (!any && !wide) { /* products of a microsecond: their calls count */
        gemm_run_high(g, 0, j0, high);
        gemm_run_low(g, high * most, j0, low);
    } else {
        (any ? wide ? gemm_run_any_wide_high : gemm_run_any_high : gemm_run_wide_high)(g, 0, j0, high);
        (any ? wide ? gemm_run_any_wide_low : gemm_run_any_low : gemm_run_wide_low)(g, high * most, j0, low);
    }
}
