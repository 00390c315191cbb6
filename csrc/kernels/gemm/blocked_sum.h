/* Products of very many terms. A chain of multiply-adds rounds at each one, so its error grows with its length. Here it
 * is cut into blocks of FO_CHAIN_BLOCK steps. Their sums are added with what the additions before have lost (Kahan), so
 * the error stays that of a block.
 */

/* sums += block, `lost` is what has been lost so far. */
INLINE void long_add(float *sums, float *lost, const float *block, ptrdiff_t floats) {
    for (ptrdiff_t v = 0; v < floats; v += VL) {
        vf sum = v_load(sums + v), losing = v_load(lost + v);
        v_add_keeping(&sum, &losing, v_load(block + v));
        v_store(sums + v, sum), v_store(lost + v, losing);
    }
}

/* Steps p.. of the rows and columns of g, which are a tile's. */
static void long_block(const fo_gemm_args *g, ptrdiff_t p, float *block, ptrdiff_t ld) {
    fo_gemm_args one = *g;
    one.k = g->k - p < FO_CHAIN_BLOCK ? g->k - p : FO_CHAIN_BLOCK;
    one.c = block, one.ldc = ld, one.next = NULL;
    one.ep = (fo_epilogue){.bias = p ? NULL : g->ep.bias, .channel_rows = g->ep.channel_rows};
    if (p) one.start = one.accum2 = NULL;
    if (g->form == FO_A_TABLE || g->form == FO_B_TABLE) one.table += p;
    if (g->form != FO_A_TABLE) one.a += p;
    if (g->form != FO_B_TABLE) one.b += p * g->ldb, one.first += p;
    if (g->form == FO_UNPACKING) one.packed += p * NR;
    gemm_walk(&one);
}

/* A tile, from row i and column j on. Of weights in blocks for many rows the first tile keeps what it unpacks. */
static fo_gemm_args long_tile(const fo_gemm_args *args, ptrdiff_t i, ptrdiff_t m, ptrdiff_t j, ptrdiff_t n) {
    fo_gemm_args g = *args;
    g.m = g.m - i < m ? g.m - i : m, g.n = g.n - j < n ? g.n - j : n;
    g.a += i * g.lda, g.b += j / NR * g.panel, g.column += j;
    if (g.form == FO_BLOCKWISE && args->m > FO_BLOCKWISE_ROWS)
        g.form = i ? FO_ROWS : FO_UNPACKING, g.b = g.packed, g.ldb = NR, g.panel = 0;
    if (g.start) g.start += i * g.lds + j;
    if (g.accum2) g.accum2 += i * g.lds + j;
    if (g.ep.bias) g.ep.bias += g.ep.channel_rows ? i : j;
    return g;
}

/* C tile by tile: where rows are few, so many more columns. */
static __attribute__((noinline)) void gemm_long(const fo_gemm_args *args) {
    const ptrdiff_t high = args->m < MR ? args->m : MR, wide = MR / high * NR;
    const bool unpacks = args->form == FO_BLOCKWISE && high > BLOCKWISE_HIGH, all = args->m <= FO_BLOCKWISE_ROWS;
    float sums[MR * NR], lost[MR * NR], block[MR * NR] = {0};
    FO_RAN("gemm long");
    for (ptrdiff_t j = 0; j < args->n; j += wide)
        for (ptrdiff_t i = 0, step; i < args->m; i += step) {
            step = unpacks && (all || !i) ? BLOCKWISE_HIGH : high;
            const fo_gemm_args g = long_tile(args, i, step, j, wide);
            memset(sums, 0, sizeof sums), memset(lost, 0, sizeof lost);
            for (ptrdiff_t p = 0; p < g.k; p += FO_CHAIN_BLOCK) {
                long_block(&g, p, block, wide);
                long_add(sums, lost, block, g.m * wide);
            }
            ep_tile(&args->ep, sums, wide, (int)g.m, (int)g.n, i, j, args->c, args->ldc);
        }
}
