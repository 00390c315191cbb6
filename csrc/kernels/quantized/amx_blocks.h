/* The products of qblockwise.h, of many rows, by tiles (AMX): the same integers, and floats in the same order.
 *
 *   B   a panel of 32 columns as groups of four steps: 8 bits where they lie, 4 bits widened once for all rows, which
 *       is two groups a word, that of its low nibbles first, as rows of A have their steps
 *   A   int8, and B is the unsigned operand
 *
 * A pair of tiles of rows goes through all blocks. A block's sums are tiles, which go to memory, and become floats
 * while the next block is multiplied.
 */

/* A panel, and rows of A: of the tiles of a pair, where they begin, and rows of the first that the second has, too. */
typedef struct {
    const fo_gemm_args *g;
    ptrdiff_t rows, groups, steps; /* of a tile; tiles of a block, along k */
    ptrdiff_t at[2];
    const uint8_t *b;
    const float *scales;
    const uint32_t *zeros;
} amx_panel;

typedef struct {
    int32_t sums[2][2 * AMX_ROWS * AMX_COLUMNS]; /* of blocks, in turn */
    float total[2 * AMX_ROWS * AMX_COLUMNS];
} amx_blocks_memory;

/* A block's sums, in tiles. */
INLINE void amx_block(const int down, const amx_panel *p, ptrdiff_t block) {
    const ptrdiff_t lda = p->g->lda, ldb = 2 * QUADS, next = 4 * p->groups, second = (p->at[1] - p->at[0]) * lda;
    const uint8_t *a = p->g->a_groups + p->at[0] * lda + block * p->steps * next;
    const uint8_t *b = p->b + block * p->steps * p->groups * ldb;
    amx_zero(down, 2);
    for (ptrdiff_t step = 0; step < p->steps; step++, a += next, b += p->groups * ldb) {
        AMX_LOAD(4, a, lda);
        AMX_LOAD(6, b, ldb);
        AMX_DOT(FO_U8, 0, 4, 6);
        AMX_LOAD(7, b + QUADS, ldb);
        AMX_DOT(FO_U8, 1, 4, 7);
        if (down > 1) AMX_LOAD(5, a + second, lda);
        if (down > 1) AMX_DOT(FO_U8, 2, 5, 6);
        if (down > 1) AMX_DOT(FO_U8, 3, 5, 7);
    }
}

INLINE void amx_block_store(const int down, const amx_panel *p, int32_t *sums) {
    int32_t *lower = sums + p->rows * AMX_COLUMNS;
    AMX_STORE(0, sums, 2 * QUADS);
    AMX_STORE(1, sums + VL, 2 * QUADS);
    if (down > 1) AMX_STORE(2, lower, 2 * QUADS);
    if (down > 1) AMX_STORE(3, lower + VL, 2 * QUADS);
}

/* Adds a block's sums to those of all. Products of zero points are exact in float32, as sums are. */
INLINE void amx_block_add(const int bits, const int down, const amx_panel *p, ptrdiff_t block, const int32_t *sums,
                          float *total) {
    const int each = 32 / bits;
    const ptrdiff_t blocks = p->g->bits->blocks;
    const uint32_t *zeros = p->zeros + block / each * FO_BLOCKWISE_COLUMNS;
    vf scale[2], zero[2];
    UNROLL_FOR (int v = 0; v < 2; v++) {
        scale[v] = v_load(p->scales + block * FO_BLOCKWISE_COLUMNS + v * VL);
        zero[v] = v_sub(v_load_bits(zeros + v * VL, (int)(block % each) * bits, 0, bits), v_set1(0x1p23f));
    }
    for (int t = 0; t < down; t++) {
        const float *row_scale = p->g->row_scale + p->at[t] * blocks + block;
        const int32_t *row_zero = p->g->row_zero + p->at[t] * blocks + block;
        for (ptrdiff_t r = 0; r < p->rows; r++, row_scale += blocks, row_zero += blocks)
            UNROLL_FOR (int v = 0; v < 2; v++, sums += VL, total += VL) {
                const vf sum = v_fma(zero[v], v_to_float(v_iset1(*row_zero)), v_to_float(v_iload(sums)));
                v_store(total, v_fma(sum, v_mul(scale[v], v_set1(*row_scale)), v_load(total)));
            }
    }
}

INLINE void amx_block_pair(const int bits, const int down, const amx_panel *p, amx_blocks_memory *m) {
    const ptrdiff_t blocks = p->g->bits->blocks;
    memset(m->total, 0, sizeof m->total);
    for (ptrdiff_t block = 0; block < blocks; block++) {
        amx_block(down, p, block);
        if (block) amx_block_add(bits, down, p, block - 1, m->sums[(block - 1) % 2], m->total);
        amx_block_store(down, p, m->sums[block % 2]);
    }
    amx_block_add(bits, down, p, blocks - 1, m->sums[(blocks - 1) % 2], m->total);
}

/* The words of a panel of 4 bits as groups. */
static void amx_widen(const uint32_t *q, ptrdiff_t words, uint8_t *to) {
    for (; words; words--, q += FO_BLOCKWISE_COLUMNS, to += 4 * QUADS)
        UNROLL_FOR (int v = 0; v < 2; v++) {
            const vi w = v_iload(q + v * VL);
            v_istore(to + v * QUADS, v_nibbles(w, 0)), v_istore(to + (2 + v) * QUADS, v_nibbles(w, 1));
        }
}

/* All rows by a panel, from column j of C on. Tiles have one height: the last one ends with the rows, and shares some
 * with the one before, of which it ends the others. */
INLINE void amx_block_rows(const int bits, amx_panel *p, ptrdiff_t j, amx_blocks_memory *m) {
    const fo_gemm_args *g = p->g;
    const int wanted = (int)(g->n - j < AMX_COLUMNS ? g->n - j : AMX_COLUMNS);
    const qstack stack = {.g = g, .j = j, .nv = 2, .wanted = wanted, .end = qend_of(FO_F32, g, 2, wanted)};
    const ptrdiff_t last = g->m - p->rows;
    for (ptrdiff_t i = 0; i < g->m; i += 2 * p->rows) {
        const int down = g->m - i > p->rows ? 2 : 1;
        p->at[0] = i < last ? i : last, p->at[1] = i + p->rows < last ? i + p->rows : last;
        down > 1 ? amx_block_pair(bits, 2, p, m) : amx_block_pair(bits, 1, p, m);
        for (int t = 0; t < down; t++) {
            const ptrdiff_t shared = i + t * p->rows - p->at[t];
            const float *total = m->total + (t * p->rows + shared) * AMX_COLUMNS;
            stack.end(&stack, (const int32_t *)total, (int)(p->rows - shared), p->at[t] + shared);
        }
    }
}

/* Of few rows a tile is mostly empty; blocks of 8 steps are too short for one. */
void fo_gemm_blocks_amx(const fo_gemm_args *g) {
    const fo_blockwise *w = g->bits;
    const ptrdiff_t words = w->block * w->bits / 32, groups = tile_groups(w->block / 4);
    const ptrdiff_t tiles = (g->m + AMX_ROWS - 1) / AMX_ROWS, each = 32 / w->bits;
    if (!groups || g->m <= FO_BLOCKWISE_ROWS) {
        FO_NAME(fo_gemm_blocks)(g);
        return;
    }
    FO_RAN("gemm bits by AMX");
    amx_blocks_memory memory __attribute__((aligned(64)));
    amx_panel p = {.g = g, .rows = (g->m + tiles - 1) / tiles, .groups = groups, .steps = w->block / 4 / groups};
    tile_configure(AMX_A_OF_PAIRS, p.rows, groups);
    for (ptrdiff_t j = 0; j < g->n; j += AMX_COLUMNS) {
        const ptrdiff_t panel = (g->column + j) / FO_BLOCKWISE_COLUMNS;
        const uint32_t *q = w->q + panel * w->blocks * words * FO_BLOCKWISE_COLUMNS;
        p.b = w->bits == 4 ? (const uint8_t *)g->packed : (const uint8_t *)q;
        p.scales = w->scales + panel * w->blocks * FO_BLOCKWISE_COLUMNS;
        p.zeros = w->zeros + panel * ((w->blocks + each - 1) / each) * FO_BLOCKWISE_COLUMNS;
        if (w->bits == 4) amx_widen(q, w->blocks * words, (uint8_t *)g->packed);
        w->bits == 4 ? amx_block_rows(4, &p, j, &memory) : amx_block_rows(8, &p, j, &memory);
    }
    AMX_RELEASE();
}
