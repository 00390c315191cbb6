/* Products of few steps, with AVX-512: tiles go along the rows of C, all tiles of a height in one function.
 *
 *      C          panel 0    panel 1    panel 2      Such a product writes more than it reads. Along rows C is written in long runs, a pixel's
 *   rows 0..11  [ tile 0 ] [ tile 1 ] [ tile 2 ]     channels or a plane's pixels; panel after panel each row gets two lines before the next does.
 *   rows 12..   [ tile 3 ] ...
 *
 * 24 stores in a row hold up what follows: 27 cycles beside the 192 of 16 steps (Xeon). So a tile's sums are stored a row at a time, between the
 * multiply-adds that begin the next tile. Where pixels are columns, A is the weights: they are copied step after step, so that most of the
 * multiply-adds read their element themselves, 31 instructions for 24 of them.
 *
 * 1x1, time over that of panels one after the other, or of tiles that a function each computes (Xeon): planes at 112x112, 16 -> 64 channels 0.86,
 * 16 -> 96 0.80, 32 -> 64 0.81; channels last 0.82, 0.80, 0.88. Where C stays in the cache it is as fast (32 -> 192 at 28x28 1.01, 0.96).
 */
enum { GEMM_ALONG = FMA_READS && VL == 16, LEAST_STEPS = 4, LEAST_COLUMNS = 16 * NR /* for which A is copied */ };
enum { LEAST_PLANES = 6, LEAST_PIXELS = 10 }; /* rows of the tiles, so that there are not too many functions */

/* Step u of a tile. planes: rows of C are channels, A is packed. first: sums start at the bias; stores: after those of another tile, which go to `to`. */
INLINE void gemm_along_step(const fo_gemm_args *g, vf acc[MR][8], const int mr, const bool planes, const bool first, const bool stores, const int u,
                            const float *const *a, const float *b, const float *bias, float *to, float *lo) {
    ptrdiff_t lda = g->lda;
    vf bv[NV];
    UNROLL for (int j = 0; j < NV; j++) bv[j] = v_load(b + j * VL);
    if (stores) v_stays_in_memory(*lo); /* registers are for sums */
    const vf least = stores ? v_set1(*lo) : v_zero();
    v_hide(lda); /* or a register for each u has the sum */
    UNROLL for (int i = 0; i < mr; i++) {
        const float *at = planes ? a[0] + u * mr + i : a[i / REACH] + i % REACH * lda + u;
        if (first) {
            if (stores) {
                UNROLL for (int j = 0; j < NV; j++) v_store(to + j * VL, v_max(least, acc[i][j]));
                to += g->ldc;
                v_hide(to);
            }
            UNROLL for (int j = 0; j < NV; j++) acc[i][j] = planes ? v_set1(bias[i]) : v_load(bias + j * VL);
            if (!planes) v_hide(bias); /* loaded for each row, or it takes registers */
        }
        if (!first && (planes ? i % 4 : i % REACH == 0)) { /* two loads a cycle suffice */
            UNROLL for (int j = 0; j < NV; j++) v_fma_at(acc[i][j], at, bv[j]);
            continue;
        }
        const vf av = v_set1(*at);
        UNROLL for (int j = 0; j < NV; j++) v_fma_to(acc[i][j], av, bv[j]);
    }
    v_pin();
}

/* Steps 1, 2 and 3 of a group; pointers move on to the next one. */
INLINE const float *gemm_along_group(const fo_gemm_args *g, vf acc[MR][8], const int mr, const bool planes, const float **a, const float *b) {
    const ptrdiff_t ldb = planes ? g->ldb : NR;
    const int reach = planes ? MR : REACH;
    UNROLL for (int u = 1; u < 4; u++) {
        b += ldb;
        if (planes) v_hide(b);
        gemm_along_step(g, acc, mr, planes, false, false, u, a, b, NULL, NULL, NULL);
    }
    UNROLL for (int i = 0; i < mr; i += reach) {
        a[i / reach] += planes ? 4 * mr : 4;
        v_hide(a[i / reach]); /* or all have one index */
    }
    return b + ldb;
}

/* A tile's reduction, k >= LEAST_STEPS steps of A from `rows` on. */
INLINE void gemm_along_tile(const fo_gemm_args *g, vf acc[MR][8], const int mr, const bool planes, const float *rows, const float *b, const float *bias,
                            float *to, float *lo) {
    const int reach = planes ? MR : REACH;
    const float *a[POINTERS];
    UNROLL for (int i = 0; i < mr; i += reach) {
        a[i / reach] = rows + i * g->lda;
        v_hide(a[i / reach]); /* or all that is read from there has an address of its own, kept on the stack */
    }
    if (to)
        gemm_along_step(g, acc, mr, planes, true, true, 0, a, b, bias, to, lo);
    else
        gemm_along_step(g, acc, mr, planes, true, false, 0, a, b, bias, NULL, NULL);
    b = gemm_along_group(g, acc, mr, planes, a, b);
    ptrdiff_t left = g->k - 4;
    for (; left >= 4; left -= 4) {
        gemm_along_step(g, acc, mr, planes, false, false, 0, a, b, NULL, NULL, NULL);
        b = gemm_along_group(g, acc, mr, planes, a, b);
    }
    for (; left > 0; left--, b += planes ? g->ldb : NR) {
        gemm_along_step(g, acc, mr, planes, false, false, 0, a, b, NULL, NULL, NULL);
        UNROLL for (int i = 0; i < mr; i += reach) a[i / reach] += planes ? mr : 1;
    }
}

/* Rows of A, step after step. */
static __attribute__((noinline)) void gemm_along_pack(const fo_gemm_args *g, int mr, ptrdiff_t i0, float *packed) {
    FO_NAME(fo_transpose)(mr, g->k, g->a + i0 * g->lda, g->lda, packed, mr);
}

/* `down` tiles of mr rows from i0 on, of `across` panels from column j0 on. */
INLINE void gemm_along(const fo_gemm_args *args, const int mr, const bool planes, ptrdiff_t i0, ptrdiff_t down, ptrdiff_t j0, ptrdiff_t across) {
    static const float zeros[NR > MR ? NR : MR];
    const fo_gemm_args g = *args; /* a copy, which the compiler knows that no store changes */
    const fo_activation *act = &g.ep.act;
    const bool waits = !g.ep.residual && (act->kind == FO_IDENTITY || (act->kind == FO_CLIP && act->p1 == INFINITY)); /* one operation before a store */
    float lo = act->kind == FO_CLIP ? act->p0 : -INFINITY;
    float packed[MR * SHORT], *to = NULL;
    vf acc[MR][8];
    UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < NV; j++) acc[i][j] = v_zero();
    for (const ptrdiff_t end = i0 + down * mr; i0 < end; i0 += mr) {
        const float *a = g.a + i0 * g.lda, *b = g.b + j0 / NR * g.panel, *bias = !g.ep.bias ? zeros : g.ep.bias + (planes ? i0 : j0);
        if (planes) gemm_along_pack(&g, mr, i0, packed);
        float *c = g.c + i0 * g.ldc + j0;
        for (ptrdiff_t t = 0; t < across; t++, b += g.panel, c += NR) {
            gemm_along_tile(&g, acc, mr, planes, planes ? packed : a, b, bias, to, &lo);
            if (waits)
                to = c;
            else
                gemm_finish(acc, mr, NV, mr, NR, &g.ep, i0, j0 + t * NR, g.c, g.ldc, false);
            if (!planes && g.ep.bias) bias += NR;
        }
        if (!to || (!planes && i0 + mr < end)) continue;
        UNROLL for (int i = 0; i < mr; i++, to += g.ldc)
            UNROLL for (int j = 0; j < NV; j++) v_store(to + j * VL, v_max(v_set1(lo), acc[i][j]));
        to = NULL;
    }
}

#define ALONG(planes, mr) \
    static void along_##planes##_##mr(const fo_gemm_args *g, ptrdiff_t i0, ptrdiff_t down, ptrdiff_t j0, ptrdiff_t across) { \
        if (GEMM_ALONG && mr <= MR) gemm_along(g, mr <= MR ? mr : 1, planes, i0, down, j0, across); \
    }
ALONG(true, 6)
ALONG(true, 7)
ALONG(true, 8)
ALONG(true, 9)
ALONG(true, 10)
ALONG(true, 11)
ALONG(true, 12)
ALONG(false, 10)
ALONG(false, 11)
ALONG(false, 12)
#undef ALONG

/* Whether whole panels are such tiles, of nearly equal heights. */
INLINE bool gemm_goes_along(const fo_gemm_args *g) {
    const bool planes = g->form == FO_B_PACKING && g->ep.channel_rows && g->n >= LEAST_COLUMNS;
    const bool pixels = g->form == FO_ROWS && !g->ep.channel_rows && g->ldb == NR && g->n >= NR && g->n * g->k < FEW_FLOATS;
    return GEMM_ALONG && (planes || pixels) && g->k >= LEAST_STEPS && g->k <= SHORT && !g->start && !g->ep.transposed &&
           g->m / ((g->m + MR - 1) / MR) >= (planes ? LEAST_PLANES : LEAST_PIXELS);
}

/* All rows of them; answers the columns that are done. Planes are cut where the second-level cache keeps the pixels. */
INLINE ptrdiff_t gemm_along_rows(const fo_gemm_args *g) {
    typedef void along_fn(const fo_gemm_args *g, ptrdiff_t i0, ptrdiff_t down, ptrdiff_t j0, ptrdiff_t across);
    static along_fn *const of_pixels[] = {along_false_10, along_false_11, along_false_12};
    static along_fn *const of_planes[] = {along_true_6, along_true_7, along_true_8, along_true_9, along_true_10, along_true_11, along_true_12};
    const bool planes = g->form == FO_B_PACKING;
    const ptrdiff_t tiles = (g->m + MR - 1) / MR, height = g->m / tiles, taller = g->m % tiles, panels = g->n / NR;
    const ptrdiff_t most = planes ? NEAR_FLOATS / 2 / (g->k + 1) / NR : panels;
    along_fn *const *low = planes ? &of_planes[height - LEAST_PLANES] : &of_pixels[height - LEAST_PIXELS];
    for (ptrdiff_t t = 0; t < panels; t += most) {
        const ptrdiff_t across = panels - t < most ? panels - t : most;
        if (taller) low[1](g, 0, taller, t * NR, across);
        low[0](g, taller * (height + 1), tiles - taller, t * NR, across);
    }
    return panels * NR;
}
