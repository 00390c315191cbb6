/* The convolution that a network of images begins with, 3x3 of stride 2 with few channels: two output rows ("lines")
 * together.
 *
 *     lines   y0 = shared + (d0-d2) g0 + d1 g1        shared = d2 (g0+g2): the rows of the image that both meet
 *             y1 = shared + (d4-d2) g2 + d3 g1        5 products of rows instead of 6
 *
 * Rows stand in scratch in the order in which they are met, d2, d0-d2, d1, d4-d2, d3, each of them a plane for every
 * channel, so that a tile of pixels walks down the planes: no table. Three taps of a plane are straight code. The
 * reduction is so short that what is around it counts: all panels and both lines of a tile go through one function,
 * and a line's sums go from registers to the result.
 */
enum { STEM_TAPS = 3, STEM_STRIDE = 2 };

/* acc += `planes` planes from x on, times as many rows of taps from w on. */
INLINE void stem_planes(const int mr, vf acc[MR][EP_VECTORS], const float *x, const ptrdiff_t plane, const float *w,
                        ptrdiff_t planes) {
    for (; planes > 0; planes--, x += plane, w += STEM_TAPS * NR)
        UNROLL_FOR (int p = 0; p < STEM_TAPS; p++) {
            vf taps[NV];
            UNROLL_FOR (int j = 0; j < NV; j++) taps[j] = v_load(w + p * NR + j * VL);
            UNROLL_FOR (int i = 0; i < mr; i++) {
                const vf pixel = v_set1(x[i * STEM_STRIDE + p]);
                UNROLL_FOR (int j = 0; j < NV; j++) v_fma_to(acc[i][j], pixel, taps[j]);
            }
            v_barrier(); /* or loads of the next taps come first, and sums are spilled */
        }
}

/* Tiles of mr pixels from pixel i on. Each fetches its share of the image rows that the next lines need, and the lines
 * of y that the tile after the next stores to: both may come from memory. */
INLINE void stem_run(const fo_stem_args *args, const int mr, ptrdiff_t i, ptrdiff_t tiles) {
    static const float zeros[NR];
    const fo_stem_args g = *args; /* a copy, which the compiler knows that no store changes */
    const ptrdiff_t plane = g.plane, once = g.ic, step = once * STEM_TAPS * NR;
    ep_bounds end = ep_start(&g.act);
    v_force_mem(end); /* registers are for sums */
    for (; tiles > 0; tiles--, i += mr) {
        const float *w = g.w, *next = g.next + i * g.fetched;
        for (ptrdiff_t c = 0; c < g.channels_fetched; c++, next += g.next_plane)
            for (int f = 0; f < mr * g.fetched; f += LINE_FLOATS) __builtin_prefetch(next + f);
        for (ptrdiff_t j = 0; j < g.oc; j += NR, w += 5 * step) {
            const float *x = g.x + i * STEM_STRIDE, *bias = g.bias ? g.bias + j : zeros;
            vf acc[MR][EP_VECTORS], shared[MR][EP_VECTORS];
            UNROLL_FOR (int q = 0; q < mr; q++)
                UNROLL_FOR (int v = 0; v < NV; v++) acc[q][v] = v_load(bias + v * VL);
            stem_planes(mr, acc, x, plane, w, once);
            UNROLL_FOR (int q = 0; q < mr; q++)
                UNROLL_FOR (int v = 0; v < NV; v++) {
                    shared[q][v] = acc[q][v];
                    v_force_mem(shared[q][v]);
                }
            for (int l = 0; l < 2; l++) {
                if (!g.y[l]) continue;
                UNROLL_FOR (int q = 0; q < mr; q++) __builtin_prefetch(g.y[l] + (i + 2 * mr + q) * g.ldy + j, 1);
                UNROLL_FOR (int q = 0; q < mr; q++)
                    UNROLL_FOR (int v = 0; v < NV; v++) acc[q][v] = shared[q][v];
                const ptrdiff_t before = 1 + 2 * l;
                stem_planes(mr, acc, x + before * once * plane, plane, w + before * step, 2 * once);
                ep_rows(&end, mr, NV, false, acc, g.residual[l] ? g.residual[l] + i * g.ldr + j : NULL, g.ldr,
                        g.y[l] + i * g.ldy + j, g.ldy);
            }
        }
    }
}

static __attribute__((noinline)) void stem_high(const fo_stem_args *g, ptrdiff_t i, ptrdiff_t tiles) {
    stem_run(g, MR, i, tiles);
}
static __attribute__((noinline)) void stem_low(const fo_stem_args *g, ptrdiff_t i, ptrdiff_t tiles) {
    stem_run(g, MR - 1, i, tiles);
}

/* One tile whose epilogue is another, or whose result stands in planes: a panel at a time, by way of the stack. */
static void stem_by_panels(const fo_stem_args *g, const int mr, ptrdiff_t i) {
    float sums[2][MR * NR];
    fo_stem_args one = *g;
    one.x += i * STEM_STRIDE, one.oc = NR, one.ldy = NR, one.act.kind = FO_IDENTITY,
                              one.residual[0] = one.residual[1] = NULL, one.channels_fetched = 0;
    one.y[0] = sums[0], one.y[1] = g->y[1] ? sums[1] : NULL;
    for (ptrdiff_t j = 0; j < g->oc; j += NR, one.w += 5 * g->ic * STEM_TAPS * NR) {
        if (g->bias) one.bias = g->bias + j;
        (mr == MR ? stem_high : stem_low)(&one, 0, 1);
        for (int l = 0; l < 2 && g->y[l]; l++) {
            const fo_epilogue ep = {
                .act = g->act, .residual = g->residual[l], .ldr = g->ldr, .transposed = g->transposed};
            ep_tile(&ep, sums[l], NR, mr, NR, i, j, g->y[l], g->ldy);
        }
    }
}

/* Many pixels, in tiles of MR and of one less. */
void FO_NAME(fo_stem)(const fo_stem_args *g) {
    const ptrdiff_t tiles = (g->ow + MR - 1) / MR, low = tiles * MR - g->ow, lower = (tiles - low) * MR;
    if (!g->transposed && fo_in_registers(&g->act)) {
        stem_high(g, 0, tiles - low);
        stem_low(g, lower, low);
        return;
    }
    for (ptrdiff_t i = 0; i < lower; i += MR) stem_by_panels(g, MR, i);
    for (ptrdiff_t i = lower; i < g->ow; i += MR - 1) stem_by_panels(g, MR - 1, i);
}

/* The planes of one channel, `step` apart, of n pixels of five image rows. */
void FO_NAME(fo_stem_rows)(ptrdiff_t n, const float *const rows[5], float *y, ptrdiff_t step) {
    for (ptrdiff_t j = 0; j < n; j += VL) {
        vf d[5];
        if (j + VL <= n)
            UNROLL_FOR (int t = 0; t < 5; t++) d[t] = v_load(rows[t] + j);
        else
            UNROLL_FOR (int t = 0; t < 5; t++) d[t] = v_load_tail(rows[t] + j, n - j);
        const vf planes[5] = {d[2], v_sub(d[0], d[2]), d[1], v_sub(d[4], d[2]), d[3]};
        UNROLL_FOR (int t = 0; t < 5; t++) v_store(y + t * step + j, planes[t]); /* after the row stand zeros */
    }
}
