/* Weights of 4 or 8 bits in blocks (fo_blockwise), unpacked in registers: a vector of words has 8 or 4 steps of as many
 * columns. What a tile unpacks for its rows it may keep for those of others.
 *
 *      q, a panel of 32 columns              v_load_bits gives 2^23 + q and 2^23 + zero, whose difference is exact. So
 *   words 0:  steps 0..7  of column 0..31    w = (q - zero) * scale rounds once, as a weight does that is unpacked
 *   words 1:  steps 8..15 of column 0..31    before, and sums have the bits of a product of such floats.
 */
_Static_assert(FO_BLOCKWISE_COLUMNS % NR == 0, "a panel has whole tiles");

/* Rows of a tile that unpacks. */
enum { BLOCKWISE_HIGH = FO_BLOCKWISE_HIGH(MR) };
#define UNPACKS(form) ((form) == FO_BLOCKWISE || (form) == FO_UNPACKING)

/* Processors fetch too late what takes long to unpack: one row by 4096 x 4096 took 0.36 (AVX2: 0.45) of the time of
 * floats, now 0.24 (0.34). */
INLINE void blockwise_fetch(const void *row) {
    UNROLL_FOR (int j = 0; j < NR; j += LINE_FLOATS) __builtin_prefetch((const float *)row + FO_PAGE_FLOATS + j);
    __builtin_prefetch((const float *)row + FO_PAGE_FLOATS + NR - 1); /* NumPy's arrays begin anywhere in a line */
}

/* What a block's columns share: a vector each. Of two numbers that are side by side the second one stays in its place,
 * `bits` higher, which is less to do than another shift; `zero` is what both come with. */
typedef struct {
    vf scale[NV], zero[2][NV];
} blockwise_scales;

/* Where a tile from a column on finds its words, scales and zero points. */
typedef struct {
    const uint32_t *q, *zeros;
    const float *scales;
    ptrdiff_t i, at; /* the block of the first step, and that step's place in it */
} blockwise_place;

INLINE blockwise_place blockwise_find(const fo_gemm_args *g, const int bits, const ptrdiff_t column) {
    const fo_blockwise *w = g->bits;
    const ptrdiff_t each = 32 / bits, blocks = w->blocks, zero_words = (blocks + each - 1) / each;
    const ptrdiff_t lane = column % FO_BLOCKWISE_COLUMNS, first = (column - lane) * blocks;
    blockwise_place place = {.i = g->first / w->block, .at = g->first % w->block};
    place.q = w->q + (first * w->block / each + g->first / each * FO_BLOCKWISE_COLUMNS + lane);
    place.zeros = w->zeros + ((column - lane) * zero_words + lane);
    place.scales = w->scales + (first + lane);
    return place;
}

/* Those of the next block. */
INLINE blockwise_scales blockwise_next(blockwise_place *place, const int bits) {
    const ptrdiff_t each = 32 / bits;
    const float *scales = place->scales + place->i * FO_BLOCKWISE_COLUMNS;
    const uint32_t *zeros = place->zeros + place->i / each * FO_BLOCKWISE_COLUMNS;
    const vf lower = v_set1(0x1p23f - (float)(1 << (23 - bits)));
    blockwise_scales b;
    blockwise_fetch(scales);
    UNROLL_FOR (int v = 0; v < NV; v++) {
        b.scale[v] = v_load(scales + v * VL);
        b.zero[0][v] = v_load_bits(zeros + v * VL, (int)(place->i % each) * bits, 0, bits);
        b.zero[1][v] = v_sub(b.zero[0][v], lower);
    }
    place->i++, place->at = 0;
    return b;
}

/* Step u of the words at q of a tile, whose elements of A are at `rows`; its weights may go to `to`. */
INLINE void blockwise_step(const tile_shape s, const int bits, const blockwise_scales *b, vf acc[MR][EP_VECTORS],
                           const uint32_t *q, const int u, const float *const *rows, const ptrdiff_t lda, const int at,
                           float *to) {
    const int second = u % 2;
    vf w[NV];
    UNROLL_FOR (int j = 0; j < NV; j++) {
        w[j] = v_mul(v_sub(v_load_bits(q + j * VL, (u - second) * bits, second * bits, bits), b->zero[second][j]),
                     b->scale[j]);
        if (s.form == FO_UNPACKING) v_store(to + j * VL, w[j]);
    }
    tile_multiply(s, acc, w, rows, lda, 0, true, at);
}

/* Straight code for the steps of a word, but for plain C, whose NR is 2. */
#define BITS_UNROLL_FOR(...) _Pragma("GCC unroll NR") for (__VA_ARGS__)

INLINE void blockwise_reduce(const fo_gemm_args *g, const tile_shape s, const int bits, vf acc[MR][EP_VECTORS],
                             const float **rows, const ptrdiff_t j) {
    const int each = 32 / bits;
    const ptrdiff_t block = g->bits->block, k = g->k;
    ptrdiff_t lda = g->lda;
    blockwise_place place = blockwise_find(g, bits, g->column + j);
    float *to = g->packed;
    for (ptrdiff_t p = 0, end; p < k; p = end) {
        end = k - p < block - place.at ? k : p + block - place.at;
        const blockwise_scales b = blockwise_next(&place, bits);
        for (; p + each <= end; p += each, place.q += FO_BLOCKWISE_COLUMNS) {
            blockwise_fetch(place.q);
            v_launder(lda);
            BITS_UNROLL_FOR (int u = 0; u < each; u++)
                blockwise_step(s, bits, &b, acc, place.q, u, rows, lda, u, to + u * NR);
            to += each * NR;
            UNROLL_FOR (int i = 0; i < s.mr; i += REACH) rows[i / REACH] += each;
        }
        for (int u = 0; p < end; p++, u++, to += NR) blockwise_step(s, bits, &b, acc, place.q, u, rows, lda, u, to);
    }
}

/* All steps of a tile from column j on, whose rows of A are at `rows`. */
INLINE void blockwise_steps(const fo_gemm_args *g, const tile_shape s, vf acc[MR][EP_VECTORS], const float **rows,
                            const ptrdiff_t j) {
    if (g->bits->bits == 4)
        blockwise_reduce(g, s, 4, acc, rows, j);
    else
        blockwise_reduce(g, s, 8, acc, rows, j);
}
