/* Products of few columns and many steps, whose panels would be mostly padding: each element of C is a dot product of
 * a row of A and a column of B, both contiguous.
 *
 *      row of A      a0 a1 ... a31 | a32 ... a63 | ...      sums[l] += a[p + l] * b[p + l],  l < DOT_LANES
 *      column of B   b0 b1 ... b31 | b32 ... b63 | ...      then the upper half is added to the lower: 16, 8, 4, 2, 1
 *
 * The DOT_LANES sums of an element are the same with vectors of any length. A chain of multiply-adds has at most
 * FO_CHAIN_BLOCK steps: blocks of DOT_BLOCK elements are added as in blocked_sum.h. What a vector of one side is
 * multiplied with at once is a group of the other: columns, or where there is only one, rows. Where A's columns are
 * contiguous, a vector has rows of it, and the sums of lane l are a row in memory.
 */
enum {
    DOT_LANES = FO_DOT_LANES,
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

/* Whether a C of one column is written as a row: it lies like one, and its channel needs no vector. */
INLINE bool dot_is_row(const fo_gemm_args *g) {
    const fo_epilogue *e = &g->ep;
    return g->n == 1 && g->ldc == 1 && (!e->residual || e->ldr == 1) && !e->transposed && !e->act.slopes;
}

/* From m sums in a row to such a C. */
INLINE void dot_row_end(const fo_gemm_args *g, float *row, int m, ptrdiff_t i) {
    if (g->ep.bias)
        for (int r = 0; r < m; r++) row[r] += g->ep.bias[0];
    ep_tile(&g->ep, row, DOT_ROW, 1, m, 0, i, g->c, g->ldc);
}

/* From sums in rows of DOT_ROW floats to C. */
INLINE void dot_end(const fo_gemm_args *g, float *tile, int m, int n, ptrdiff_t i, ptrdiff_t j) {
    if (g->ep.bias)
        for (int r = 0; r < m; r++)
            for (int c = 0; c < n; c++) tile[r * DOT_ROW + c] += g->ep.bias[j + c];
    ep_tile(&g->ep, tile, DOT_ROW, m, n, i, j, g->c, g->ldc);
}

/* Rows i.. and columns j.. of C, one of either and a group of the other. */
INLINE void dot_tile(const fo_gemm_args *g, ptrdiff_t i, ptrdiff_t j, bool rows) {
    const float *a = g->a + i * g->lda, *b = g->b + j * g->ldb;
    const ptrdiff_t left = rows ? g->m - i : g->n - j;
    const int count = left < DOT_GROUP ? (int)left : DOT_GROUP, m = rows ? count : 1, n = rows ? 1 : count;
    const bool is_row = rows && dot_is_row(g);
    const ptrdiff_t step = rows && !is_row ? DOT_ROW : 1;
    float tile[DOT_GROUP * DOT_ROW];
    memset(tile, 0, (size_t)(is_row ? 1 : DOT_GROUP) * DOT_ROW * sizeof *tile);
    if (g->bi)
        for (int r = 0; r < m; r++)
            dot_group(&(dot_sides){b + (i + r) * g->bi, a + r * g->lda, 0, 1}, g->k, tile + r * step, 0);
    else
        dot_group(rows ? &(dot_sides){b, a, g->lda, count} : &(dot_sides){a, b, g->ldb, count}, g->k, tile, step);
    if (is_row)
        dot_row_end(g, tile, m, i);
    else
        dot_end(g, tile, m, n, i, j);
}

/* Products of an A whose columns are contiguous: `rows` rows from i on and n columns from j on, whose sums are a row of
 * `room` floats for each lane of each column. */
typedef struct {
    const fo_gemm_args *g;
    ptrdiff_t i, j, rows, room;
    int n;
} dots_down;

/* The sums of steps p .. end - 1. */
INLINE void down_steps(const dots_down *d, ptrdiff_t p, ptrdiff_t end, float *sums) {
    const ptrdiff_t ak = d->g->ak, ldb = d->g->ldb, rows = d->rows, room = d->room;
    const float *a = d->g->a + d->i + p * ak, *b = d->g->b + d->j * ldb;
    memset(sums, 0, (size_t)(d->n * DOT_LANES * room) * sizeof *sums);
    for (; p < end; p++, a += ak)
        for (int c = 0; c < d->n; c++) {
            float *to = sums + (c * DOT_LANES + p % DOT_LANES) * room;
            const vf bv = v_set1(b[c * ldb + p]);
            ptrdiff_t v = 0;
            for (; v + 4 * VL <= rows; v += 4 * VL)
                UNROLL_FOR (int u = 0; u < 4 * VL; u += VL)
                    v_store(to + v + u, v_fma(v_load(a + v + u), bv, v_load(to + v + u)));
            for (; v < rows; v += VL) v_store(to + v, v_fma(v_load_tail(a + v, rows - v), bv, v_load(to + v)));
        }
}

INLINE void down_rows(const dots_down *d) {
    const ptrdiff_t each = DOT_LANES * d->room, floats = d->n * each;
    const bool is_row = dot_is_row(d->g);
    float *sums = d->g->packed, *lost = sums + floats, *block = lost + floats, tile[DOT_GROUP * DOT_ROW] = {0};
    if (d->g->k > DOT_BLOCK) memset(lost, 0, (size_t)floats * sizeof *lost);
    for (ptrdiff_t p = 0; p < d->g->k; p += DOT_BLOCK) {
        down_steps(d, p, d->g->k - p < DOT_BLOCK ? d->g->k : p + DOT_BLOCK, p ? block : sums);
        if (p) long_add(sums, lost, block, floats);
    }
    for (int c = 0; c < d->n; c++)
        for (ptrdiff_t half = each / 2; half >= d->room; half /= 2)
            for (float *v = sums + c * each, *end = v + half; v < end; v += VL)
                v_store(v, v_add(v_load(v), v_load(v + half)));
    for (ptrdiff_t i = 0; i < d->rows; i += DOT_GROUP) {
        const ptrdiff_t m = d->rows - i < DOT_GROUP ? d->rows - i : DOT_GROUP;
        const ptrdiff_t step = is_row ? 1 : DOT_ROW;
        for (ptrdiff_t r = 0; r < m; r++)
            for (int c = 0; c < d->n; c++) tile[r * step + c] = sums[c * each + i + r];
        if (is_row)
            dot_row_end(d->g, tile, (int)m, d->i + i);
        else
            dot_end(d->g, tile, (int)m, d->n, d->i + i, d->j);
    }
}

/* So many rows at once that the lines of a column follow each other, and sums stay in the second-level cache. */
INLINE void gemm_down(const fo_gemm_args *g) {
    FO_RAN("gemm dots down");
    for (ptrdiff_t j = 0; j < g->n; j += DOT_GROUP) {
        dots_down d = {.g = g, .j = j, .n = g->n - j < DOT_GROUP ? (int)(g->n - j) : DOT_GROUP};
        const ptrdiff_t most = DOT_GROUP / d.n * DOT_LANES * VL;
        for (; d.i < g->m; d.i += most) {
            d.rows = g->m - d.i < most ? g->m - d.i : most, d.room = (d.rows + VL - 1) / VL * VL;
            down_rows(&d);
        }
    }
}

INLINE void gemm_dots(const fo_gemm_args *g) {
    const bool rows = g->n == 1;
    if (g->ak) {
        gemm_down(g);
        return;
    }
    FO_RAN("gemm dots");
    for (ptrdiff_t i = 0; i < g->m; i += rows ? DOT_GROUP : 1)
        for (ptrdiff_t j = 0; j < g->n; j += DOT_GROUP) dot_tile(g, i, j, rows);
}
