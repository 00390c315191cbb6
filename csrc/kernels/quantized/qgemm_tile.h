/* C = epilogue(A B) of int8, summed in int32, or of bfloat16, summed in float32: `type`, a literal at every call.
 *
 *   A   rows of groups      a0 a1 a2 a3 | a4 ..      a group, of four bytes, is broadcast to all lanes of a vector
 *   B   panel of columns    group 0: b0 b1 b2 b3 of column 0, of column 1, ...; group 1: ...
 *
 * A group is four steps of int8, or two of bfloat16. Each lane adds the products of its column. Sums of integers are
 * exact, so no order matters; those of floats go over the groups in order, or over pairs of groups, whatever the tile.
 */
enum { Q_MAX_ROWS = Q_ROWS + Q_ROWS };
_Static_assert((int)Q_VECTORS <= (int)EB_VECTORS, "a row of a tile is packed at once");

/* Tiles of one shape below one another, the first at row i and column j. */
typedef struct {
    const fo_qgemm_args *g;
    ptrdiff_t i, j, count;
    const int8_t *b;
    int wanted; /* columns */
} qstack;

#ifdef v_dot_lane
/* As many groups as a vector has, of int8: a load has a row's next ones, and nothing is broadcast. Returns what is left
 * of k. */
INLINE ptrdiff_t qlanes(const int mr, const int nv, vi acc[][Q_VECTORS], const uint8_t *rows[], ptrdiff_t lda,
                        const int8_t **b, ptrdiff_t k) {
    for (; k >= VL; k -= VL) {
        vi x[Q_MAX_ROWS];
        UNROLL_FOR (int r = 0; r < mr; r++) x[r] = v_iload(rows[r / 3] + r % 3 * lda);
        UNROLL_FOR (int lane = 0; lane < VL; lane++)
            UNROLL_FOR (int v = 0; v < nv; v++, *b += QUADS) {
                const vi w = v_iload(*b);
                UNROLL_FOR (int r = 0; r < mr; r++) v_dot_lane(acc[r][v], x[r], w, lane);
            }
        UNROLL_FOR (int r = 0; r < mr; r += 3) rows[r / 3] += QUADS;
    }
    return k;
}
#endif

#ifdef v_mmla_bf16
/* Sums of pairs of rows by pairs of columns, or back: of two rows of a vector, its lower and its upper columns. */
INLINE void qpairs(const int mr, const int nv, vi acc[][Q_VECTORS]) {
    UNROLL_FOR (int r = 0; r < mr; r += 2)
        UNROLL_FOR (int v = 0; v < nv; v++) {
            const vi a = acc[r][v], b = r + 1 < mr ? acc[r + 1][v] : a;
            acc[r][v] = v_zip_pairs(a, b, 0), acc[r + 1][v] = v_zip_pairs(a, b, 1);
        }
}

/* Twice as many steps as a group has, by blocks of two rows and two columns; a last odd row is its own pair. What is
 * left of k. */
INLINE ptrdiff_t qblocks(const int mr, const int nv, vi acc[][Q_VECTORS], const uint8_t *rows[], ptrdiff_t lda,
                         const int8_t **b, ptrdiff_t k) {
    qpairs(mr, nv, acc);
    for (; k >= 2; k -= 2, *b += 2 * nv * QUADS) {
        vi x[Q_MAX_ROWS];
        UNROLL_FOR (int r = 0; r < mr; r += 2) {
            const int next = r + 1 < mr ? r + 1 : r;
            x[r] = v_load_two(rows[r / 3] + r % 3 * lda, rows[next / 3] + next % 3 * lda);
        }
        UNROLL_FOR (int v = 0; v < nv; v++) {
            const vi w0 = v_iload(*b + v * QUADS), w1 = v_iload(*b + (nv + v) * QUADS);
            const vi lower = v_zip_words(w0, w1, 0), upper = v_zip_words(w0, w1, 1);
            UNROLL_FOR (int r = 0; r < mr; r += 2) v_mmla_bf16(acc[r][v], x[r], lower);
            UNROLL_FOR (int r = 0; r < mr; r += 2) v_mmla_bf16(acc[r + 1][v], x[r], upper);
        }
        UNROLL_FOR (int r = 0; r < mr; r += 3) rows[r / 3] += 8;
    }
    qpairs(mr + mr % 2, nv, acc);
    return k;
}
#endif

/* The reduction. A pointer serves three rows, whose distances are parts of an address. */
INLINE const int8_t *qsteps(const fo_dtype type, const int mr, const int nv, vi acc[][Q_VECTORS], const uint8_t *a,
                            ptrdiff_t lda, const int8_t *b, ptrdiff_t k) {
    const int phases = type == FO_BF16 ? 1 : PHASES;
    const uint8_t *rows[(Q_MAX_ROWS + 2) / 3];
    UNROLL_FOR (int r = 0; r < mr; r += 3) {
        rows[r / 3] = a + r * lda;
        v_launder(rows[r / 3]); /* or each row would take a pointer */
    }
#ifdef v_dot_lane
    if (type != FO_BF16) k = qlanes(mr, nv, acc, rows, lda, &b, k);
#endif
#ifdef v_mmla_bf16
    if (type == FO_BF16) k = qblocks(mr, nv, acc, rows, lda, &b, k);
#endif
    for (; k > 0; k--, b += nv * QUADS) {
        UNROLL_FOR (int phase = 0; phase < phases; phase++) {
            vi w[Q_VECTORS];
            UNROLL_FOR (int v = 0; v < nv; v++) w[v] = v_iload(b + v * QUADS);
            UNROLL_FOR (int v = 0; type != FO_BF16 && v < nv; v++) w[v] = v_dot_weights(w[v], phase);
            UNROLL_FOR (int r = 0; r < mr; r++) {
                int32_t four;
                memcpy(&four, rows[r / 3] + r % 3 * lda + 4 * phase, sizeof four);
                const vi x = v_iset1(four);
                UNROLL_FOR (int v = 0; v < nv; v++)
                    if (type == FO_BF16)
                        v_dot_bf16(acc[r][v], x, w[v]);
                    else
                        v_dot(acc[r][v], x, w[v]);
            }
        }
        UNROLL_FOR (int r = 0; r < mr; r += 3) rows[r / 3] += 4 * phases;
    }
    return b;
}

/* What sums start with: of x's zero point, or that of each row, and of the weights'; of floats 0. */
INLINE void qstart(const fo_dtype type, const fo_qgemm_args *g, const int mr, const int nv, vi acc[][Q_VECTORS],
                   ptrdiff_t i, ptrdiff_t j) {
    UNROLL_FOR (int r = 0; r < mr; r++)
        UNROLL_FOR (int v = 0; v < nv; v++) {
            const vi start = type == FO_BF16 ? v_iset1(0) : v_iload(g->ep.start + j + v * VL);
            acc[r][v] = type != FO_BF16 && g->row_zero ? v_imul(start, v_iset1(g->row_zero[i + r])) : start;
            if (type == FO_BF16 || !g->row_sums) continue;
            acc[r][v] = v_iadd(acc[r][v], v_imul(v_iload(g->ep.w_zero + j + v * VL), v_iset1(g->row_sums[i + r])));
        }
}

static void qrow_sums(const fo_qgemm_args *g, int32_t *sums) {
    const vi ones = v_dot_weights(v_iset1(0x01010101), 0);
    const ptrdiff_t bytes = 4 * PHASES * g->k;
    int32_t lanes[VL];
    for (ptrdiff_t i = 0; i < g->lines * g->m; i++) {
        const uint8_t *row = g->a + i / g->m * g->a_line + i % g->m * g->lda;
        vi sum = v_iset1(0);
        for (ptrdiff_t s = 0; s < g->segments; s++) {
            const uint8_t *a = row + s * g->segment;
            ptrdiff_t left = bytes;
            for (; left >= QUADS; left -= QUADS, a += QUADS) v_dot(sum, v_iload(a), ones);
            if (left) v_dot(sum, v_load_quads_tail(a, left), ones);
        }
        v_istore(lanes, sum);
        sums[i] = 0;
        for (int l = 0; l < VL; l++) sums[i] += lanes[l];
    }
}

/* From registers to C: all columns of a tile. */
INLINE void qend(const fo_dtype type, const qstack *t, const eb_bounds *b, const int mr, const int nv,
                 vi acc[][Q_VECTORS], ptrdiff_t i) {
    const fo_qgemm_args *g = t->g;
    const fo_qepilogue *e = &g->ep;
    const ptrdiff_t size = fo_size(e->type);
    char *c = (char *)g->c + (i * g->ldc + t->j) * size;
    UNROLL_FOR (int r = 0; r < mr; r++, c += g->ldc * size) {
        vf y[EB_VECTORS];
        UNROLL_FOR (int v = 0; v < nv; v++) {
            y[v] = eb_vector(type, acc[r][v], e->scale + t->j + v * VL, g->row_scale ? g->row_scale + i + r : NULL,
                             e->bias + t->j + v * VL, e->nudge ? e->nudge + t->j + v * VL : NULL, e->longer);
            if (e->residual) y[v] = eb_residual(e, y[v], e->residual, (i + r) * e->ldr + t->j + v * VL, VL);
        }
        eb_store(e, b, nv, true, y, c, nv * VL);
        v_launder(c);
    }
}

/* By way of memory: other activations, edges. */
static __attribute__((noinline, noclone)) void qend_sums(const fo_dtype type, const qstack *t, const int32_t *sums,
                                                         ptrdiff_t ldt, int mr, ptrdiff_t i) {
    const fo_qgemm_args *g = t->g;
    const fo_qepilogue *e = &g->ep;
    const ptrdiff_t size = fo_size(e->type), of_residual = fo_size(e->residual_type);
    const eb_sums s = {.e = e,
                       .type = type,
                       .sums = sums,
                       .ldt = ldt,
                       .mr = mr,
                       .n = t->wanted,
                       .scale = e->scale + t->j,
                       .bias = e->bias + t->j,
                       .nudge = e->nudge ? e->nudge + t->j : NULL,
                       .slopes = e->act.slopes ? e->act.slopes + t->j : NULL,
                       .row_scale = g->row_scale ? g->row_scale + i : NULL,
                       .r = e->residual ? (const char *)e->residual + (i * e->ldr + t->j) * of_residual : NULL,
                       .c = (char *)g->c + (i * g->ldc + t->j) * size,
                       .ldc = g->ldc};
    eb_rows(&s);
}

/* The end of a tile, whichever way. */
INLINE void qfinish(const fo_dtype type, const qstack *t, const eb_bounds *bounds, const int mr, const int nv,
                    vi acc[][Q_VECTORS], ptrdiff_t i) {
    if (t->g->ep.clips && t->wanted == nv * VL) {
        qend(type, t, bounds, mr, nv, acc, i);
        return;
    }
    int32_t sums[Q_MAX_ROWS * Q_VECTORS * VL];
    UNROLL_FOR (int r = 0; r < mr; r++)
        UNROLL_FOR (int v = 0; v < nv; v++) v_istore(sums + (r * nv + v) * VL, acc[r][v]);
    qend_sums(type, t, sums, nv * VL, mr, i);
}

INLINE void qtiles(const fo_dtype type, const qstack *t, const int mr, const int nv) {
    const fo_qgemm_args *g = t->g;
    const eb_bounds bounds = eb_start(&g->ep);
    ptrdiff_t i = t->i;
    for (ptrdiff_t done = 0; done < t->count; done++, i += mr) {
        vi acc[Q_MAX_ROWS][Q_VECTORS];
        qstart(type, g, mr, nv, acc, i, t->j);
        const int8_t *b = t->b;
        for (ptrdiff_t s = 0; s < g->segments; s++)
            b = qsteps(type, mr, nv, acc, g->a + i * g->lda + s * g->segment, g->lda, b, g->k);
        qfinish(type, t, &bounds, mr, nv, acc, i);
    }
}

/* A function for each height and width that the registers hold, of int8 and, where the set has their dot product, of
 * bfloat16. */
typedef void qtile_fn(const qstack *t);
#define Q_FITS(nv, mr) (nv <= Q_VECTORS && mr * nv <= Q_ROWS * Q_VECTORS)
#define TILE_OF(type, nv, mr) \
    static void tile_##type##_##nv##_##mr(const qstack *t) { \
        FO_RAN("gemm " #type " " #mr "x" #nv); \
        qtiles(FO_##type, t, Q_FITS(nv, mr) ? mr : 1, Q_FITS(nv, mr) ? nv : 1); \
    }
#define Q_HEIGHTS(X, nv) X(nv, 1) X(nv, 2) X(nv, 3) X(nv, 4) X(nv, 5) X(nv, 6)
#define Q_MORE_HEIGHTS(X, nv) Q_HEIGHTS(X, nv) X(nv, 7) X(nv, 8) X(nv, 9) X(nv, 10) X(nv, 11) X(nv, 12)
#define TILES(X) Q_MORE_HEIGHTS(X, 1) Q_MORE_HEIGHTS(X, 2) Q_HEIGHTS(X, 4)
#define ENTRY_OF(type, nv, mr) Q_FITS(nv, mr) ? tile_##type##_##nv##_##mr : NULL,
#define TABLE_OF(X) {[1] = {Q_MORE_HEIGHTS(X, 1)}, [2] = {Q_MORE_HEIGHTS(X, 2)}, [4] = {Q_HEIGHTS(X, 4)}}
typedef qtile_fn *const qtable[EB_VECTORS + 1][Q_MAX_ROWS];

#define TILE_S8(nv, mr) TILE_OF(S8, nv, mr)
#define ENTRY_S8(nv, mr) ENTRY_OF(S8, nv, mr)
TILES(TILE_S8)
static qtable tiles_S8 = TABLE_OF(ENTRY_S8);

/* A panel of columns after another, of up to nr; its rows in tiles of nearly equal heights. */
static void line_by_table(const fo_qgemm_args *g, qtable *table, ptrdiff_t nr) {
    ptrdiff_t columns;
    if (!g->m) return;
    for (ptrdiff_t j = 0; j < g->n; j += columns) {
        columns = fo_qpanel(g->n - j, VL, nr);
        const ptrdiff_t nv = columns / VL, room = Q_ROWS * Q_VECTORS / nv, high = room < Q_MAX_ROWS ? room : Q_MAX_ROWS;
        const ptrdiff_t tiles = (g->m + high - 1) / high, mr = g->m / tiles, taller = g->m % tiles;
        qstack t = {.g = g, .j = j, .b = g->b + 4 * j * g->k * g->segments};
        t.wanted = (int)(g->n - j < columns ? g->n - j : columns);
        for (ptrdiff_t done = 0; done < tiles; done += t.count) {
            const ptrdiff_t rows = done < taller ? mr + 1 : mr;
            t.count = done < taller ? taller : tiles - taller;
            (*table)[nv][rows - 1](&t);
            t.i += t.count * rows;
        }
    }
}

static void gemm_by_table(const fo_qgemm_args *g, qtable *table, ptrdiff_t nr) {
    for (ptrdiff_t line = 0; line < g->lines; line++) {
        const fo_qgemm_args one = fo_qline(g, line);
        line_by_table(&one, table, nr);
    }
}

static void qgemm(const fo_qgemm_args *g) { gemm_by_table(g, &tiles_S8, Q_VECTORS * VL); }

#if DOTS_BF16
#define TILE_BF16(nv, mr) TILE_OF(BF16, nv, mr)
#define ENTRY_BF16(nv, mr) ENTRY_OF(BF16, nv, mr)
TILES(TILE_BF16)
static qtable tiles_BF16 = TABLE_OF(ENTRY_BF16);
static void qgemm_bf16(const fo_qgemm_args *g) { gemm_by_table(g, &tiles_BF16, Q_VECTORS * VL); }
#endif
