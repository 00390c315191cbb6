/* Products of one row and weights in the caller's memory, whose rows are columns of B: blocks of VL x VL are transposed
 * in registers, and nothing is packed.
 *
 *      w   row l   w0 w1 w2 ... of output l        sums[l] += x[p] * w[l][p], then p + 1, ...
 *
 * Sums run over p in order, one chain an output, as in every tile: the bits are those of packed weights. A vector of
 * outputs at a time: to transpose takes as long as its chain, and more rows at once would share sets of the cache
 * (1024 x 1024, Zen 4: 1, 2 and 4 vectors of 16 take 100, 152 and 145 us).
 */
/* VL steps, or where the block is not whole up to `steps` of them, of `rows` outputs. */
INLINE vf gemv_block(const bool whole, ptrdiff_t rows, ptrdiff_t steps, const float *w, ptrdiff_t ldw, const float *x,
                     vf sum) {
    vf t[VL];
    if (whole) {
        v_load_transposed(t, w, ldw);
    } else {
        const vm m = v_range(0, steps);
        UNROLL_FOR (int l = 0; l < VL; l++) t[l] = l < rows ? v_load_mask(w + l * ldw, m) : v_zero();
        v_transpose(t);
    }
    UNROLL_FOR (int u = 0; u < VL; u++)
        if (whole || u < steps) sum = v_fma(v_set1(x[u]), t[u], sum);
    return sum;
}

/* Vector v; whole: of VL outputs. Blocks begin where vectors of memory do: rows that share sets of the cache would lose
 * a line before its other part is read (1024 x 2048 in half of the time, Zen 4). */
INLINE void gemv_vector(const fo_gemv_args *g, const bool whole, ptrdiff_t v) {
    const float *w = g->w + v * g->step, *x = g->x;
    const ptrdiff_t before = (ptrdiff_t)(-(uintptr_t)w / sizeof *w % VL), first = before < g->k ? before : g->k;
    vf sum = gemv_block(false, g->rows, first, w, g->ldw, x, v_load(g->start + v * VL));
    ptrdiff_t p = first;
    for (; p + VL <= g->k; p += VL) sum = gemv_block(whole, g->rows, VL, w + p, g->ldw, x + p, sum);
    v_store(g->sums + v * VL, gemv_block(false, g->rows, g->k - p, w + p, g->ldw, x + p, sum));
}

void FO_NAME(fo_gemv)(const fo_gemv_args *g) {
    FO_RAN(g->rows == VL ? "gemv columns" : "gemv columns, a part");
    for (ptrdiff_t v = 0; v < g->vectors; v++)
        if (g->rows == VL)
            gemv_vector(g, true, v);
        else
            gemv_vector(g, false, v);
}
