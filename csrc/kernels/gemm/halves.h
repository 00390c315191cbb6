/* Register tiles of one vector and a half, for a panel of which VL + VL/2 columns are left (24 channels of MobileNetV2 with VL 16):
 *
 *      row i      [  vector 0  ] [ half 1 |        ]       two rows' halves stand in one register, so that a pair of rows takes
 *      row i+1    [  vector 0  ] [        | half 1 ]       three multiply-adds a step instead of four
 *
 * 12 rows of 96 steps run at 0.82 of the peak (AMD Zen 5), where two vectors with a quarter of their lanes idle run at 0.65 of it, and a
 * shuffle costs no more than the multiply-add that it saves where both wait for one port. Each sum runs over p in the order of
 * every other tile, with the same bits.
 */
enum { HALF = VL / 2 };

INLINE void gemm_halves_finish(const fo_gemm_args *g, const int mr, ptrdiff_t i0, ptrdiff_t j0, vf whole[MR], vf halves[MR]) {
    const vf lo = v_set1(g->ep.act.kind == FO_CLIP ? g->ep.act.p0 : -INFINITY), hi = v_set1(g->ep.act.kind == FO_CLIP ? g->ep.act.p1 : INFINITY);
    const ptrdiff_t ldc = g->ldc, ldr = g->ep.ldr;
    float *c = g->c + i0 * ldc + j0;
    const float *r = g->ep.residual ? g->ep.residual + i0 * ldr + j0 : NULL;
    UNROLL for (int i = 0; i < mr; i += 2) {
        const int below = i + 1 < mr ? 1 : 0;
        vf half = halves[i / 2];
        if (r) half = v_add(half, v_load_halves(r + i * ldr + VL, r + (i + below) * ldr + VL));
        half = v_min(hi, v_max(lo, half));
        UNROLL for (int q = i; q <= i + below; q++) {
            if (r) whole[q] = v_add(whole[q], v_load(r + q * ldr));
            v_store(c + q * ldc, v_min(hi, v_max(lo, whole[q])));
        }
        if (below)
            v_store_halves(c + i * ldc + VL, c + (i + 1) * ldc + VL, half);
        else
            v_store_tail(c + i * ldc + VL, half, HALF);
    }
}

INLINE void gemm_halves_tile(const fo_gemm_args *g, const int mr, const fo_form form, ptrdiff_t i0, ptrdiff_t j0) {
    const ptrdiff_t lda = g->lda, ldb = g->ldb, k = g->k, *table = g->table;
    const float *b = g->b + j0 / NR * g->panel, *bias = g->ep.bias, *a[MR / 3 + 1];
    vf whole[MR], halves[MR];
    whole[0] = bias ? v_load(bias + j0) : v_zero();
    halves[0] = bias ? v_load_halves(bias + j0 + VL, bias + j0 + VL) : v_zero();
    UNROLL for (int i = 1; i < mr; i++) whole[i] = whole[0], halves[i] = halves[0];
    UNROLL for (int i = 0; i < mr; i += 3) a[i / 3] = g->a + (i0 + i) * lda;
    for (ptrdiff_t p = 0; p < k; p++, b += ldb) {
        const ptrdiff_t step = form == FO_A_TABLE ? table[p] : p;
        const vf bw = v_load(b), bh = v_load_halves(b + VL, b + VL);
        UNROLL for (int i = 0; i < mr; i += 2) {
            const vf av = v_set1(a[i / 3][i % 3 * lda + step]), next = i + 1 < mr ? v_set1(a[(i + 1) / 3][(i + 1) % 3 * lda + step]) : av;
            whole[i] = v_fma(av, bw, whole[i]);
            if (i + 1 < mr) whole[i + 1] = v_fma(next, bw, whole[i + 1]);
            halves[i / 2] = v_fma(v_halves(av, next), bh, halves[i / 2]);
        }
    }
    gemm_halves_finish(g, mr, i0, j0, whole, halves);
}

/* Whether the columns from j on are such a panel, with an epilogue that stays in the registers. */
INLINE bool gemm_halves_fit(const fo_gemm_args *g, ptrdiff_t j) {
    return VL > 1 && g->n - j == VL + HALF && g->form <= FO_A_TABLE && !g->start && !g->ep.transposed && !g->ep.channel_rows && g->ep.act.kind <= FO_CLIP;
}
