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
typedef struct qstack {
    const fo_gemm_args *g;
    ptrdiff_t i, j, count;
    const int8_t *b;
    int nv, wanted; /* vectors of columns, columns that are stored */
    bool direct;    /* sums are results: products of bfloat16 without a bias, of whole vectors of columns */
    /* the epilogue of mr rows of sums, from row i on */
    void (*end)(const struct qstack *, const int32_t *sums, int mr, ptrdiff_t i);
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

void FO_NAME(fo_row_sums)(const fo_gemm_args *g, int32_t *sums) {
    const vi ones = v_dot_weights(v_iset1(0x01010101), 0);
    const ptrdiff_t bytes = 4 * PHASES * g->k;
    int32_t lanes[VL];
    for (ptrdiff_t i = 0; i < g->lines * g->m; i++) {
        const uint8_t *row = g->a_groups + i / g->m * g->a_line + i % g->m * g->lda;
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

/* ---- the end of a tile, whose sums of products are in memory: mr rows of nv vectors ----------------------------- */

typedef void qend_fn(const qstack *t, const int32_t *sums, int mr, ptrdiff_t i);

/* What is added to sums of int8. */
INLINE eb_starts qstarts(const fo_gemm_args *g) {
    const fo_rescale *s = g->ep.rescale;
    if (!s) return (eb_starts){NULL, NULL, NULL, NULL};
    return (eb_starts){s->start + g->column, s->w_zero ? s->w_zero + g->column : NULL, g->row_zero, g->row_sums};
}

/* What a loop over rows adds to sums: `start` and the bias; a residual of int8 too, rounded before or not; anything. */
typedef enum { QEND_PLAIN, QEND_SUM, QEND_ROUNDED_SUM, QEND_ANY, QEND_KINDS } qend_kind;

/* Scales of sums of int8, from the call's first column on. */
typedef struct {
    const float *scale, *nudge; /* nudge: or NULL */
    bool longer;
} qend_scales;

INLINE qend_scales qend_scales_of(const fo_gemm_args *g, const bool nudged) {
    const fo_rescale *s = g->ep.rescale;
    return (qend_scales){s->scale + g->column, nudged && s->nudge ? s->nudge + g->column : NULL, s->longer};
}

/* All columns, of no activation but a clip. */
INLINE void qend_rows(const fo_dtype type, const eb_out out, const qend_kind kind, const int nv, const qstack *t,
                      const int32_t *sums, const int mr, ptrdiff_t i) {
    const fo_gemm_args *g = t->g;
    const fo_epilogue *e = &g->ep;
    const ptrdiff_t ldc = g->ldc * fo_size(e->type);
    const eb_bounds b = eb_start(e);
    const eb_starts starts = qstarts(g);
    const bool any = kind == QEND_ANY, adds = kind == QEND_SUM || kind == QEND_ROUNDED_SUM;
    const eb_added added = adds ? eb_added_of(e) : (eb_added){.rounds = false};
    const qend_scales s = type == FO_S8 ? qend_scales_of(g, any) : (qend_scales){NULL, NULL, false};
    char *c = (char *)g->c_typed + i * ldc + t->j * fo_size(e->type);
    for (const ptrdiff_t end = i + mr; i < end; i++, sums += nv * VL, c += ldc) {
        vf y[EB_VECTORS];
        UNROLL_FOR (int v = 0; v < nv; v++) {
            const ptrdiff_t j = t->j + v * VL;
            vi sum = v_iload(sums + v * VL);
            if (type == FO_S8) sum = any ? eb_started(&starts, sum, i, j) : v_iadd(sum, v_iload(starts.start + j));
            y[v] = eb_vector(type, sum, s.scale + j, any && g->row_scale ? g->row_scale + i : NULL, e->bias + j,
                             s.nudge ? s.nudge + j : NULL, s.longer);
            if (any && e->residual) y[v] = eb_residual(e, y[v], e->residual, i * e->ldr + j, VL);
            if (adds)
                y[v] = eb_add_int8(&added, kind == QEND_ROUNDED_SUM, y[v],
                                   v_load_bytes((const uint8_t *)e->residual + i * e->ldr + j));
        }
        eb_store(out, true, e, &b, nv, true, y, c, nv * VL);
    }
}

/* Other activations, edges. */
INLINE void qend_activated(const fo_dtype type, const qstack *t, const int32_t *sums, int mr, ptrdiff_t i) {
    const fo_gemm_args *g = t->g;
    const fo_epilogue *e = &g->ep;
    const fo_rescale *rescale = type == FO_S8 ? e->rescale : NULL;
    const ptrdiff_t size = fo_size(e->type), of_residual = fo_size(e->residual_type), j = t->j, at = g->column + j;
    const eb_sums s = {.e = e,
                       .type = type,
                       .sums = sums,
                       .ldt = t->nv * VL,
                       .mr = mr,
                       .n = t->wanted,
                       .starts = {.start = rescale ? rescale->start + at : NULL,
                                  .w_zero = rescale && rescale->w_zero ? rescale->w_zero + at : NULL,
                                  .row_zero = g->row_zero ? g->row_zero + i : NULL,
                                  .row_sums = g->row_sums ? g->row_sums + i : NULL},
                       .scale = rescale ? rescale->scale + at : NULL,
                       .bias = e->bias + j,
                       .nudge = rescale && rescale->nudge ? rescale->nudge + at : NULL,
                       .longer = rescale && rescale->longer,
                       .slopes = e->act.slopes ? e->act.slopes + j : NULL,
                       .row_scale = g->row_scale ? g->row_scale + i : NULL,
                       .r = e->residual ? (const char *)e->residual + (i * e->ldr + j) * of_residual : NULL,
                       .c = (char *)g->c_typed + (i * g->ldc + j) * size,
                       .ldc = g->ldc};
    eb_rows(&s);
}

/* A loop over rows for each type of operands and results, and each width: what all rows share is decided before it. */
#define QEND(type, out, kind) \
    static void qend_##type##_##out##_##kind(const qstack *t, const int32_t *sums, int mr, ptrdiff_t i) { \
        FO_RAN("gemm end " #type " " #out " " #kind); \
        if (t->nv == 4) \
            qend_rows(FO_##type, EB_##out, QEND_##kind, 4, t, sums, mr, i); \
        else if (t->nv == 2) \
            qend_rows(FO_##type, EB_##out, QEND_##kind, 2, t, sums, mr, i); \
        else \
            qend_rows(FO_##type, EB_##out, QEND_##kind, 1, t, sums, mr, i); \
    }
#define QEND_ACTIVATED(type) \
    static void qend_##type(const qstack *t, const int32_t *sums, int mr, ptrdiff_t i) { \
        FO_RAN("gemm end " #type); \
        qend_activated(FO_##type, t, sums, mr, i); \
    }
QEND(S8, FLOATS, ANY)
QEND(S8, FLOATS, PLAIN)
QEND(S8, SATURATED, PLAIN)
QEND(S8, BOUNDED, ANY)
QEND(S8, BOUNDED, PLAIN)
QEND(S8, BOUNDED, SUM)
QEND(S8, BOUNDED, ROUNDED_SUM)
QEND_ACTIVATED(S8)
QEND(F32, FLOATS, PLAIN)
QEND_ACTIVATED(F32)
#if DOTS_BF16
QEND(BF16, FLOATS, ANY)
QEND(BF16, FLOATS, PLAIN)
QEND(BF16, BFLOATS, ANY)
QEND(BF16, BFLOATS, PLAIN)
QEND_ACTIVATED(BF16)
#endif

/* By results and kind; NULL: as activations. */
typedef qend_fn *const qend_table[EB_OUTS][QEND_KINDS];
#define QEND_EACH(type, out) \
    [EB_##out] = {qend_##type##_##out##_PLAIN, qend_##type##_##out##_ANY, qend_##type##_##out##_ANY, \
                  qend_##type##_##out##_ANY}
static qend_table qends_S8 = {
    QEND_EACH(S8, FLOATS),
    [EB_SATURATED] = {qend_S8_SATURATED_PLAIN, qend_S8_BOUNDED_SUM, qend_S8_BOUNDED_ROUNDED_SUM, qend_S8_BOUNDED_ANY},
    [EB_BOUNDED] = {qend_S8_BOUNDED_PLAIN, qend_S8_BOUNDED_SUM, qend_S8_BOUNDED_ROUNDED_SUM, qend_S8_BOUNDED_ANY}};
static qend_table qends_F32 = {[EB_FLOATS] = {qend_F32_FLOATS_PLAIN}};
#if DOTS_BF16
static qend_table qends_BF16 = {QEND_EACH(BF16, FLOATS), QEND_EACH(BF16, BFLOATS)};
#endif

/* What is added to a call's rows. */
INLINE qend_kind qend_kind_of(const fo_dtype type, const fo_gemm_args *g) {
    const fo_epilogue *e = &g->ep;
    if (type == FO_S8 && (g->row_scale || g->row_zero || g->row_sums || e->rescale->nudge)) return QEND_ANY;
    if (!e->residual) return QEND_PLAIN;
    if (fo_size(e->residual_type) > 1) return QEND_ANY;
    return e->rescale->product_scale != 0 ? QEND_ROUNDED_SUM : QEND_SUM;
}

/* The end of a call's tiles, of nv vectors of which `wanted` columns are stored. */
INLINE qend_fn *qend_of(const fo_dtype type, const fo_gemm_args *g, const int nv, const int wanted) {
    qend_table *table = type == FO_S8 ? &qends_S8 : &qends_F32;
    qend_fn *activated = type == FO_S8 ? qend_S8 : qend_F32;
#if DOTS_BF16
    if (type == FO_BF16) table = &qends_BF16, activated = qend_BF16;
#endif
    qend_fn *rows = (*table)[eb_out_of(&g->ep)][qend_kind_of(type, g)];
    return rows && fo_in_registers(&g->ep.act) && wanted == nv * VL ? rows : activated;
}

INLINE void qtiles(const fo_dtype type, const qstack *t, const int mr, const int nv) {
    const fo_gemm_args *g = t->g;
    ptrdiff_t i = t->i;
    for (ptrdiff_t done = 0; done < t->count; done++, i += mr) {
        vi acc[Q_MAX_ROWS][Q_VECTORS];
        int32_t sums[Q_MAX_ROWS * Q_VECTORS * VL];
        UNROLL_FOR (int r = 0; r < mr; r++)
            UNROLL_FOR (int v = 0; v < nv; v++) acc[r][v] = v_iset1(0);
        const int8_t *b = t->b;
        for (ptrdiff_t s = 0; s < g->segments; s++)
            b = qsteps(type, mr, nv, acc, g->a_groups + i * g->lda + s * g->segment, g->lda, b, g->k);
        const bool direct = type == FO_BF16 && t->direct;
        int32_t *to = direct ? (int32_t *)g->c + i * g->ldc + t->j : sums;
        const ptrdiff_t ld = direct ? g->ldc : nv * VL;
        UNROLL_FOR (int r = 0; r < mr; r++)
            UNROLL_FOR (int v = 0; v < nv; v++) v_istore(to + r * ld + v * VL, acc[r][v]);
        if (!direct) t->end(t, sums, mr, i);
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
static void line_by_table(const fo_dtype type, const fo_gemm_args *g, qtable *table, ptrdiff_t nr) {
    ptrdiff_t columns;
    if (!g->m) return;
    for (ptrdiff_t j = 0; j < g->n; j += columns) {
        columns = fo_panel_columns(g->n - j, VL, nr);
        const ptrdiff_t nv = columns / VL, room = Q_ROWS * Q_VECTORS / nv, high = room < Q_MAX_ROWS ? room : Q_MAX_ROWS;
        const ptrdiff_t tiles = (g->m + high - 1) / high, mr = g->m / tiles, taller = g->m % tiles;
        qstack t = {.g = g, .j = j, .b = g->b_groups + 4 * j * g->k * g->segments, .nv = (int)nv};
        t.wanted = (int)(g->n - j < columns ? g->n - j : columns);
        t.end = qend_of(type, g, t.nv, t.wanted);
        t.direct = type == FO_BF16 && !g->ep.bias;
        for (ptrdiff_t done = 0; done < tiles; done += t.count) {
            const ptrdiff_t rows = done < taller ? mr + 1 : mr;
            t.count = done < taller ? taller : tiles - taller;
            (*table)[nv][rows - 1](&t);
            t.i += t.count * rows;
        }
    }
}

static void gemm_by_table(const fo_dtype type, const fo_gemm_args *g, qtable *table, ptrdiff_t nr) {
    for (ptrdiff_t line = 0; line < g->lines; line++) {
        const fo_gemm_args one = fo_gemm_line(g, line);
        line_by_table(type, &one, table, nr);
    }
}

void FO_NAME(fo_gemm_int8)(const fo_gemm_args *g) { gemm_by_table(FO_S8, g, &tiles_S8, Q_VECTORS * VL); }

#if DOTS_BF16
#define TILE_BF16(nv, mr) TILE_OF(BF16, nv, mr)
#define ENTRY_BF16(nv, mr) ENTRY_OF(BF16, nv, mr)
TILES(TILE_BF16)
static qtable tiles_BF16 = TABLE_OF(ENTRY_BF16);
void FO_NAME(fo_gemm_bf16)(const fo_gemm_args *g) { gemm_by_table(FO_BF16, g, &tiles_BF16, Q_VECTORS * VL); }
#endif
