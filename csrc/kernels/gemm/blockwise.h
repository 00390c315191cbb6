/* Weights of 4 or 8 bits in blocks (fo_blockwise), unpacked in registers: a vector of words has 8 or 4 steps of as many
 * columns.
 *
 *      q, a panel of 32 columns              v_load_bits gives 2^23 + q and 2^23 + zero, whose difference is exact. So
 *   words 0:  steps 0..7  of column 0..31    w = (q - zero) * scale rounds once, as a weight does that is unpacked
 *   words 1:  steps 8..15 of column 0..31    before, and sums have the bits of a product of such floats.
 */
_Static_assert(FO_BLOCKWISE_COLUMNS % NR == 0, "a panel has whole tiles");

/* Processors fetch too late what takes long to unpack: one row by 4096 x 4096 took 0.36 (AVX2: 0.45) of the time of
 * floats, now 0.24 (0.34). */
INLINE void blockwise_fetch(const void *row) {
    UNROLL_FOR (int j = 0; j < NR; j += LINE_FLOATS) __builtin_prefetch((const float *)row + FO_PAGE_FLOATS + j);
}

/* What a block's columns share: a vector each. */
typedef struct {
    vf scale[NV], zero[NV];
} blockwise_scales;

/* A step of a tile: bits from `first` on of its words at q, and elements of A at a. Or the weights go to `to`. */
INLINE void blockwise_step(const tile_shape s, const int bits, const blockwise_scales *b, vf acc[MR][EP_VECTORS],
                           const uint32_t *q, const int first, const float *a, const ptrdiff_t lda, float *to) {
    UNROLL_FOR (int j = 0; j < NV; j++) {
        const vf w = v_mul(v_sub(v_load_bits(q + j * VL, first, bits), b->zero[j]), b->scale[j]);
        if (to) v_store(to + j * VL, w);
        UNROLL_FOR (int i = 0; i < s.mr; i++) acc[i][j] = v_fma(v_set1(a[i * lda]), w, acc[i][j]);
    }
}

/* Straight code for the steps of a word, but for plain C, whose NR is 2. */
#define BITS_UNROLL_FOR(...) _Pragma("GCC unroll NR") for (__VA_ARGS__)

INLINE void blockwise_reduce(const fo_gemm_args *g, const tile_shape s, const int bits, vf acc[MR][EP_VECTORS],
                             const float *a, const ptrdiff_t j, float *to) {
    enum { COLUMNS = FO_BLOCKWISE_COLUMNS };
    const fo_blockwise *w = g->bits;
    const int each = 32 / bits;
    const ptrdiff_t block = w->block, blocks = w->blocks, lda = g->lda, at_column = (g->column + j) % COLUMNS;
    const ptrdiff_t panel = (g->column + j) / COLUMNS
    , zero_words = (blocks + each - 1) / each;
    ptrdiff_t i = g->first / block, at = g->first % block;
    const float *scales = w->scales + (panel * blocks * COLUMNS + at_column);
    const uint32_t *zeros = w->zeros + (panel * zero_words * COLUMNS + at_column);
    const uint32_t *q = w->q + ((panel * blocks * block + g->first) / each * COLUMNS + at_column);
    for (ptrdiff_t p = 0, end; p < g->k; p = end, i++, at = 0) {
        blockwise_scales b;
        blockwise_fetch(scales + i * COLUMNS);
        UNROLL_FOR (int v = 0; v < NV; v++) {
            b.scale[v] = v_load(scales + i * COLUMNS + v * VL);
            b.zero[v] = v_load_bits(zeros + i / each * COLUMNS + v * VL, (int)(i % each) * bits, bits);
        }
        end = g->k - p < block - at ? g->k : p + block - at;
        for (; p + each <= end; p += each, q += COLUMNS, a += each) {
            blockwise_fetch(q);
            BITS_UNROLL_FOR (int u = 0; u < each; u++)
                blockwise_step(s, bits, &b, acc, q, u * bits, a + u, lda, to ? to + (p + u) * NR : NULL);
        }
        for (int u = 0; p < end; p++, u++, a++)
            blockwise_step(s, bits, &b, acc, q, u * bits, a, lda, to ? to + p * NR : NULL);
    }
}

/* All steps of a tile from column j on, whose rows of A begin at a; or without rows its weights, to rows of NR floats.
 */
INLINE void blockwise_steps(const fo_gemm_args *g, const tile_shape s, vf acc[MR][EP_VECTORS], const float *a,
                            const ptrdiff_t j, float *to) {
    if (g->bits->bits == 4)
        blockwise_reduce(g, s, 4, acc, a, j, to);
    else
        blockwise_reduce(g, s, 8, acc, a, j, to);
}
