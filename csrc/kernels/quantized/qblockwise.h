/* C = epilogue(A B) of floats by weights of 4 or 8 bits in blocks (fo_blockwise), where each block of a row of A is
 * bytes with a scale of its own: integers are multiplied within a block, and its sum is a float from there on.
 *
 *      c = sum over blocks of (sum q a - zero sum a) * (w_scale * a_scale)
 *
 *   q   a word: 8 steps of a column                       a   8 bytes: those of its lower, of its upper halves of bytes
 *       s1 s0 | s3 s2 | s5 s4 | s7 s6                         0 2 4 6 | 1 3 5 7
 *
 * Weights are the unsigned operand of the dot product, A is the signed one; where both are signed, weights of int8
 * are 128 less. Sums of up to FO_BLOCKWISE_BLOCK steps are exact in float32.
 */
enum {
    BITS_ROWS = FO_BLOCKWISE_ROWS / 2,
    BITS_VECTORS = FO_BLOCKWISE_COLUMNS > Q_VECTORS *VL ? Q_VECTORS : FO_BLOCKWISE_COLUMNS / VL
};
_Static_assert(FO_BLOCKWISE_COLUMNS % (BITS_VECTORS * VL) == 0, "a panel has whole tiles");

/* The products of `words` words of each column. */
INLINE void bits_words(const int bits, const int mr, vi acc[][Q_VECTORS], const uint32_t *q, ptrdiff_t words,
                       const uint8_t *a, ptrdiff_t lda) {
    const int parts = bits == 4 ? 2 : 1;
    const vi flip = v_iset1(DOT_SIGNED && bits == 8 ? (int32_t)0x80808080 : 0);
    for (; words; words--, q += FO_BLOCKWISE_COLUMNS, a += 4 * parts) {
        UNROLL_FOR (int v = 0; v < BITS_VECTORS * VL; v += LINE_FLOATS)
            __builtin_prefetch((const float *)q + FO_PAGE_FLOATS + v);
        vi w[BITS_VECTORS];
        UNROLL_FOR (int v = 0; v < BITS_VECTORS; v++) w[v] = v_iload(q + v * VL);
        UNROLL_FOR (int part = 0; part < parts; part++)
            UNROLL_FOR (int phase = 0; phase < PHASES; phase++) {
                vi u[BITS_VECTORS];
                UNROLL_FOR (int v = 0; v < BITS_VECTORS; v++)
                    u[v] = v_dot_bytes(bits == 4 ? v_nibbles(w[v], part) : v_ixor(w[v], flip), phase);
                UNROLL_FOR (int r = 0; r < mr; r++) {
                    int32_t four;
                    memcpy(&four, a + r * lda + 4 * part, sizeof four);
                    const vi x = v_dot_weights(v_iset1(four), phase);
                    UNROLL_FOR (int v = 0; v < BITS_VECTORS; v++) v_dot(acc[r][v], u[v], x);
                }
            }
    }
}

/* All blocks of a tile whose rows of A are from i on and whose weights are from column j on: its sums, floats, to
 * `sums`. */
INLINE void bits_blocks(const int bits, const fo_gemm_args *g, const int mr, ptrdiff_t i, ptrdiff_t j,
                        float sums[][BITS_VECTORS * VL]) {
    const fo_blockwise *w = g->bits;
    const int each = 32 / bits;
    const ptrdiff_t blocks = w->blocks, words = w->block / each, panel = j / FO_BLOCKWISE_COLUMNS;
    const float *scales = w->scales + panel * blocks * FO_BLOCKWISE_COLUMNS + j % FO_BLOCKWISE_COLUMNS;
    const uint32_t *zeros =
        w->zeros + panel * ((blocks + each - 1) / each) * FO_BLOCKWISE_COLUMNS + j % FO_BLOCKWISE_COLUMNS;
    const uint32_t *q = w->q + panel * blocks * words * FO_BLOCKWISE_COLUMNS + j % FO_BLOCKWISE_COLUMNS;
    const uint8_t *a = g->a_groups + i * g->lda;
    const int32_t *row_zero = g->row_zero + i * blocks;
    const float *row_scale = g->row_scale + i * blocks;
    const vi mask = v_iset1((1 << bits) - 1), middle = v_iset1(DOT_SIGNED && bits == 8 ? 128 : 0);
    UNROLL_FOR (int r = 0; r < mr; r++)
        UNROLL_FOR (int v = 0; v < BITS_VECTORS; v++) v_store(sums[r] + v * VL, v_zero());
    for (ptrdiff_t b = 0; b < blocks;
         b++, q += words * FO_BLOCKWISE_COLUMNS, a += w->block, scales += FO_BLOCKWISE_COLUMNS) {
        vi acc[BITS_ROWS][Q_VECTORS];
        UNROLL_FOR (int v = 0; v < BITS_VECTORS; v++) {
            const vf stored =
                v_load_bits(zeros + b / each * FO_BLOCKWISE_COLUMNS + v * VL, (int)(b % each) * bits, 0, bits);
            const vi zero = v_isub(v_iand(v_as_int(stored), mask), middle);
            UNROLL_FOR (int r = 0; r < mr; r++) acc[r][v] = v_imul(zero, v_iset1(row_zero[r * blocks + b]));
        }
        bits_words(bits, mr, acc, q, words, a, g->lda);
        UNROLL_FOR (int v = 0; v < BITS_VECTORS; v++) {
            const vf scale = v_load(scales + v * VL);
            UNROLL_FOR (int r = 0; r < mr; r++) {
                float *sum = sums[r] + v * VL;
                v_store(sum,
                        v_fma(v_to_float(acc[r][v]), v_mul(scale, v_set1(row_scale[r * blocks + b])), v_load(sum)));
            }
        }
    }
}

INLINE void bits_tile(const int bits, const qstack *t, const int mr) {
    float sums[BITS_ROWS][BITS_VECTORS * VL];
    bits_blocks(bits, t->g, mr, t->i, t->g->column + t->j, sums);
    t->end(t, (const int32_t *)sums, mr, t->i); /* their bits */
}

/* A tile of any height: straight code for each. */
#define BITS_CASE(bits, mr) \
    case mr: \
        FO_RAN("gemm bits " #bits " " #mr); \
        bits_tile(bits, &t, mr); \
        break;
#define BITS_TILE(bits, rows) \
    switch (rows) { BITS_CASE(bits, 1) BITS_CASE(bits, 2) BITS_CASE(bits, 3) BITS_CASE(bits, 4) }

void FO_NAME(fo_gemm_blocks)(const fo_gemm_args *g) {
    enum { COLUMNS = BITS_VECTORS * VL };
    for (ptrdiff_t j = 0; j < g->n; j += COLUMNS)
        for (ptrdiff_t i = 0; i < g->m; i += BITS_ROWS) {
            const int wanted = (int)(g->n - j < COLUMNS ? g->n - j : COLUMNS);
            const qstack t = {.g = g,
                              .i = i,
                              .j = j,
                              .nv = BITS_VECTORS,
                              .wanted = wanted,
                              .end = qend_of(FO_F32, g, BITS_VECTORS, wanted)};
            const int rows = (int)(g->m - i < BITS_ROWS ? g->m - i : BITS_ROWS);
            if (g->bits->bits == 4) BITS_TILE(4, rows) else BITS_TILE(8, rows)
        }
}
