/* Products of few columns and many steps, whose panels would be mostly padding: each element of C is a dot product of
 * a row of A and a column of B, both contiguous.
 *
 *      row of A      a0 a1 ... a31 | a32 ... a63 | ...      sums[l] += a[p + l] * b[p + l],  l < DOT_LANES
 *      column of B   b0 b1 ... b31 | b32 ... b63 | ...      then the upper half is added to the lower: 16, 8, 4, 2, 1
 *
 * The DOT_LANES sums of an element are the same with vectors of any length. A chain of multiply-adds has at most
 * FO_CHAIN_BLOCK steps: blocks of DOT_BLOCK elements are added as in long.h. What a vector of one side is multiplied
 * with at once is a group of the other: columns, or where there is only one, rows.
 */
enum {
    DOT_LANES = 32,
    DOT_VECTORS = DOT_LANES / VL,
    DOT_BLOCK = DOT_LANES * FO_CHAIN_BLOCK,
    DOT_GROUP = FO_DOT_COLUMNS,   /* elements of C that share a block of what they have in common */
    DOT_ROW = FO_DOT_COLUMNS * 2, /* of C, padded to whole vectors */
    DOT_AT_ONCE = DOT_VECTORS > 2 ? 2 : 4,
};

/* One side's vector, and those of `count` on the other side, at distances of `ld`. */
typedef struct {
    const float *one, *others;
    ptrdiff_t ld;
    int count;
} dot_sides;

/* The sums of `steps` steps from p on, of `count` elements from c on. */
INLINE void dot_block(const dot_sides *s, const int count, int c, ptrdiff_t p, ptrdiff_t steps, float *sums) {
    const float *a = s->one + p, *b = s->others + c * s->ld + p;
    vf acc[DOT_AT_ONCE][DOT_VECTORS];
    UNROLL_FOR (int j = 0; j < count; j++)
        UNROLL_FOR (int v = 0; v < DOT_VECTORS; v++) acc[j][v] = v_zero();
    for (; steps >= DOT_LANES; steps -= DOT_LANES, a += DOT_LANES, b += DOT_LANES)
        UNROLL_FOR (int v = 0; v < DOT_VECTORS; v++) {
            const vf av = v_load(a + v * VL);
            UNROLL_FOR (int j = 0; j < count; j++) acc[j][v] = v_fma(av, v_load(b + j * s->ld + v * VL), acc[j][v]);
        }
    if (steps > 0)
        UNROLL_FOR (int v = 0; v < DOT_VECTORS; v++) {
            const vf av = v_load_tail(a + v * VL, steps - v * VL);
            UNROLL_FOR (int j = 0; j < count; j++)
                acc[j][v] = v_fma(av, v_load_tail(b + j * s->ld + v * VL, steps - v * VL), acc[j][v]);
        }
    UNROLL_FOR (int j = 0; j < count; j++)
        UNROLL_FOR (int v = 0; v < DOT_VECTORS; v++) v_store(sums + j * DOT_LANES + v * VL, acc[j][v]);
}

INLINE float dot_total(const float *sums) {
    vf v[DOT_VECTORS];
    UNROLL_FOR (int i = 0; i < DOT_VECTORS; i++) v[i] = v_load(sums + i * VL);
    UNROLL_FOR (int half = DOT_VECTORS / 2; half; half /= 2)
        UNROLL_FOR (int i = 0; i < half; i++) v[i] = v_add(v[i], v[i + half]);
    return v_first(v_sum_lanes(v[0]));
}

/* The elements of a group, at distances of `step` floats. */
INLINE void dot_group(const dot_sides *s, ptrdiff_t k, float *to, ptrdiff_t step) {
    float sums[DOT_GROUP * DOT_LANES], lost[DOT_GROUP * DOT_LANES], block[DOT_GROUP * DOT_LANES];
    if (k > DOT_BLOCK) memset(lost, 0, sizeof lost);
    for (ptrdiff_t p = 0; p < k; p += DOT_BLOCK) {
        const ptrdiff_t steps = k - p < DOT_BLOCK ? k - p : DOT_BLOCK;
        float *at = p ? block : sums;
        int c = 0;
        for (; c + DOT_AT_ONCE <= s->count; c += DOT_AT_ONCE)
            dot_block(s, DOT_AT_ONCE, c, p, steps, at + c * DOT_LANES);
        for (; c < s->count; c++) dot_block(s, 1, c, p, steps, at + c * DOT_LANES);
        if (p) long_add(sums, lost, block, s->count * DOT_LANES);
    }
    for (int c = 0; c < s->count; c++) to[c * step] = dot_total(sums + c * DOT_LANES);
}

/* Rows i.. and columns j.. of C, one of either and a group of the other. */
INLINE void dot_tile(const fo_gemm_args *g, ptrdiff_t i, ptrdiff_t j, bool rows) {
    const float *a = g->a + i * g->lda, *b = g->b + j * g->ldb;
    const ptrdiff_t left = rows ? g->m - i : g->n - j;
    const int count = left < DOT_GROUP ? (int)left : DOT_GROUP, m = rows ? count : 1, n = rows ? 1 : count;
    float tile[DOT_GROUP * DOT_ROW] = {0};
    dot_group(rows ? &(dot_sides){b, a, g->lda, count} : &(dot_sides){a, b, g->ldb, count}, g->k, tile,
              rows ? DOT_ROW : 1);
    if (g->ep.bias)
        for (int r = 0; r < m; r++)
            for (int c = 0; c < n; c++) tile[r * DOT_ROW + c] += g->ep.bias[j + c];
    ep_tile(&g->ep, tile, DOT_ROW, m, n, i, j, g->c, g->ldc);
}

INLINE void gemm_dots(const fo_gemm_args *g) {
    const bool rows = g->n == 1;
    FO_RAN("gemm dots");
    for (ptrdiff_t i = 0; i < g->m; i += rows ? DOT_GROUP : 1)
        for (ptrdiff_t j = 0; j < g->n; j += DOT_GROUP) dot_tile(g, i, j, rows);
}
