/* C[m,n] = epilogue(A[m,k] B[k,n]): a register tile of mr rows and nv vectors, and the walk over the matrix.
 *
 *            nv * VL columns              Each step p of the reduction loads nv vectors of B, broadcasts mr elements of A
 *           +--------------+              and does mr * nv multiply-adds. A is read as it lies; B in panels of NR columns:
 *   k of A  |  panel of B  | k
 *  +------+ +--------------+                panel 0: b[0][0..NR) b[1][0..NR) ... b[k-1][0..NR)   panel 1: ...
 *  |      | |              |
 * mr rows | |  C in registers             Sums start at the bias and run over p in order, whatever the tile:
 *  +------+ +--------------+              a row has the same bits alone and in a batch. They may start at a tile of sums instead.
 */

enum { NEAR_FLOATS = REGISTERS > 16 ? FO_NEAR_FLOATS : 96 << 10 }; /* well within a second-level cache of 1 MB, or of 512 KB */
enum { FEW_FLOATS = 32 << 10 }; /* of B that is not fetched, for it is there */
enum { LONG = 256 }; /* steps of a reduction that leave time to fetch more than B */
enum { ONE_SET = 1024 }; /* floats: rows of A a multiple of it apart are in one set of the first-level cache, of 8 or 12 lines */

/* Of up to SHORT steps, and of so many rows that nothing has to be fetched for them: what stands around the multiply-adds counts, and lower
 * tiles overlap better with each other. 16 -> 96 channels at 112x112 0.92 of the time, 24 -> 144 at 56x56 0.93, 64 steps 0.98. */
enum { SHORT = 64, MANY = 72, PLAIN_ROWS = MR < 8 ? MR : 8 };

/* The epilogue of a tile at rows i0.., columns j0.. of C, of which `rows` rows and `wanted` columns are stored. */
INLINE void gemm_finish(vf acc[MR][8], const int mr, const int nv, const int rows, const int wanted, const fo_epilogue *ep, ptrdiff_t i0,
                        ptrdiff_t j0, float *to, const ptrdiff_t ldc, const bool plain) {
    const ptrdiff_t ldr = ep->ldr;
    if (plain || (!ep->transposed && rows == mr && wanted == nv * VL && ep->act.kind <= FO_CLIP)) { /* nothing leaves the registers */
        float *c = to + i0 * ldc + j0;
        if (ep->residual)
            UNROLL for (int i = 0; i < mr; i++)
                UNROLL for (int j = 0; j < nv; j++)
                    acc[i][j] = v_add(acc[i][j], v_load(ep->residual + (i0 + i) * ldr + j0 + j * VL));
        if (ep->act.kind == FO_CLIP) {
            UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_max(v_set1(ep->act.p0), acc[i][j]);
            if (ep->act.p1 < INFINITY)
                UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_min(v_set1(ep->act.p1), acc[i][j]);
        }
        UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) v_store(c + i * ldc + j * VL, acc[i][j]);
        return;
    }
    float tile[MR * NV * VL]; /* mr * nv <= MR * NV */
    UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) v_store(tile + (i * nv + j) * VL, acc[i][j]);
    const ptrdiff_t at_c = ep->transposed ? j0 * ldc + i0 : i0 * ldc + j0, at_r = ep->transposed ? j0 * ldr + i0 : i0 * ldr + j0;
    finish_args f = {tile, rows, wanted, nv * VL, ep->residual ? ep->residual + at_r : NULL, ldr, to + at_c, ldc,
                     ep->act.slopes ? ep->act.slopes + (ep->channel_rows ? i0 : j0) : NULL, ep->channel_rows, ep->act.p0, ep->act.p1};
    FO_NAME(fo_finish_tile)(&f, ep->act.kind, ep->transposed);
}

/* Steps of packed panels in straight code. With 16 registers 12 multiply-adds stand beside 8 loads, and a core whose other thread is busy issues
 * three instructions a cycle: what loop and prefetches add counts in full. 22 instead of 29 a step, 512 x 512 x 512 in 0.89 of the time then. */
enum { GEMM_GROUP = FMA_READS || (REGISTERS <= 16 && VL > 1) ? 4 : 1 };

/* Rows of A that a pointer reaches: a register each costs no additions, but where rows are many. */
enum { REACH = FMA_READS ? 2 : REGISTERS > 16 ? 3 : 1, POINTERS = (MR + REACH - 1) / REACH };

/* Whole groups of steps from p on, a line of `next` with each; answers where they end. */
INLINE ptrdiff_t gemm_groups(const fo_gemm_args *g, vf acc[MR][8], const int mr, const int nv, const fo_form form, const float *const *a,
                             const float *b, ptrdiff_t p, const ptrdiff_t end, const float *next, const ptrdiff_t share, const bool plain) {
    const ptrdiff_t panel = g->panel, *table = g->table;
    const float *bp = b + p * NR;
    for (; p + GEMM_GROUP <= end; p += GEMM_GROUP, bp += GEMM_GROUP * NR) {
        if (nv == NV && !plain) __builtin_prefetch(next), next += GEMM_GROUP * share;
        UNROLL for (int u = 0; u < GEMM_GROUP; u++) {
            const ptrdiff_t step = form == FO_A_TABLE ? table[p + u] : p + u;
            vf bv[8];
            UNROLL for (int j = 0; j < nv; j++) bv[j] = v_load(bp + u * NR + j / NV * panel + j % NV * VL);
            UNROLL for (int i = 0; i < mr; i++) {
                const vf av = v_set1(a[i / REACH][i % REACH * g->lda + step]);
                UNROLL for (int j = 0; j < nv; j++) v_fma_to(acc[i][j], av, bv[j]);
            }
            v_pin(); /* or loads of the next steps come first, and sums are spilled */
        }
    }
    return p;
}

/* Whether the multiply-adds of row i read its element of A themselves, which saves an instruction: where a pointer stands at it, for an address of
 * two registers takes it back, and where two loads a cycle suffice. Beside few steps they are needed for what begins and ends a
 * tile. */
INLINE bool gemm_reads(const int mr, const int nv, const int i, const bool plain) {
    return plain ? !i : i % REACH == 0 && nv + mr + (mr + 1) / 2 * (nv - 1) <= mr * nv + 1;
}

/* The same where multiply-adds can read A: pointers move along its rows, which are contiguous for g->run steps of a table. near: or rows that stand so
 * far apart are read from the first one's place, which is looked up, and B may have rows of any length. Of 12 x 2 tiles 34 instructions a step instead of 46, 512 x 512 x 512
 * beside busy threads in 0.92 of the time. `lines` of next are fetched with each group. */
INLINE ptrdiff_t gemm_walk(const fo_gemm_args *g, vf acc[MR][8], const int mr, const int nv, const fo_form form, const int near, const int lines,
                           const float *const *a, const float *b, ptrdiff_t p, const ptrdiff_t end, const float *next, const ptrdiff_t share, const bool plain) {
    const bool runs = form == FO_A_TABLE && !near;
    const ptrdiff_t panel = g->panel, ldb = near ? g->ldb : NR, run = runs ? g->run : (end - p) / GEMM_GROUP * GEMM_GROUP, *table = g->table + p;
    const float *bp = b + p * ldb, *x[POINTERS];
    ptrdiff_t lda = g->lda;
    for (; run && p + run <= end; p += run) {
        UNROLL for (int i = 0; i < mr; i += REACH) x[i / REACH] = a[i / REACH] + (runs ? g->table[p] : near ? 0 : p);
        for (ptrdiff_t turns = run / GEMM_GROUP; turns; turns--, bp += GEMM_GROUP * ldb, table += GEMM_GROUP) {
            UNROLL for (int l = 0; l < lines; l++) __builtin_prefetch(next + l * LINE_FLOATS);
            next += GEMM_GROUP * share;
            UNROLL for (int u = 0; u < GEMM_GROUP; u++) {
                const float *row = form == FO_B_TABLE ? b + table[u] : bp + u * ldb, *first = near ? a[0] + table[u] : NULL;
                vf bv[8];
                UNROLL for (int j = 0; j < nv; j++) bv[j] = v_load(row + j / NV * panel + j % NV * VL);
                if (near)
                    v_hide(first);
                else
                    v_hide(lda); /* or a register for each u has the sum */
                UNROLL for (int i = 0; i < mr; i++) {
                    const float *at = near ? first + i * near : x[i / REACH] + i % REACH * lda + u;
                    if (gemm_reads(mr, nv, i, plain)) {
                        UNROLL for (int j = 0; j < nv; j++) v_fma_at(acc[i][j], at, bv[j]);
                        continue;
                    }
                    const vf av = v_set1(*at);
                    UNROLL for (int j = 0; j < nv; j++) v_fma_to(acc[i][j], av, bv[j]);
                }
                v_pin();
            }
            if (!near)
                UNROLL for (int i = 0; i < mr; i += REACH) {
                    x[i / REACH] += GEMM_GROUP;
                    v_hide(x[i / REACH]); /* or all have one index */
                }
        }
    }
    return p;
}

/* Steps p .. end of the reduction. `next` is what the hardware does not foresee: `share` floats of it are fetched at each step. */
INLINE void gemm_steps(const fo_gemm_args *g, vf acc[MR][8], const int mr, const int nv, const fo_form form, const float *const *a,
                       const float *b, ptrdiff_t p, const ptrdiff_t end, const float *next, const ptrdiff_t share, const int wanted,
                       const bool plain) {
    const ptrdiff_t lda = g->lda, ldb = g->ldb, panel = g->panel, *table = g->table;
    /* Packed weights may come from the third-level cache or memory, too far for the hardware: fetched as many multiply-adds ahead for any mr. */
    const ptrdiff_t ahead = ldb == NR ? 64 * MR / mr * NR : 0;
    /* Of few rows each step fetches. */
    const bool packed = form <= FO_A_TABLE && ldb == NR && (FMA_READS || GEMM_GROUP * share <= LINE_FLOATS), looks = form == FO_A_TABLE && !g->run;
    /* Steps a page apart come from the second-level cache, for which one at a time waits less: 128 -> 256, 56x56, stride 2, 0.85 of the time. */
    const bool close = form == FO_A_TABLE && FMA_READS && nv == NV && g->k > 1 && table[1] - table[0] < 1024;
    const int lines = nv == NV && !plain && form <= FO_A_TABLE ? 2 : 0, many = GEMM_GROUP * NR / LINE_FLOATS;
    if (!FMA_READS) {
        if (GEMM_GROUP > 1 && packed && nv <= NV) p = gemm_groups(g, acc, mr, nv, form, a, b, p, end, next, share, plain);
    } else if (lines && packed && !looks && GEMM_GROUP * share > lines * LINE_FLOATS)
        p = gemm_walk(g, acc, mr, nv, form, 0, many, a, b, p, end, next, share, plain);
    else if (form == FO_B_TABLE || (packed && !looks))
        p = gemm_walk(g, acc, mr, nv, form, 0, lines, a, b, p, end, next, share, plain);
    else if (close && lda == 1)
        p = gemm_walk(g, acc, mr, nv, form, 1, 2 * lines, a, b, p, end, next, share, plain);
    else if (close && lda == 2)
        p = gemm_walk(g, acc, mr, nv, form, 2, 2 * lines, a, b, p, end, next, share, plain);
    for (; p < end; p++) {
        const ptrdiff_t step = form == FO_A_TABLE ? table[p] : p;
        const float *bp = form == FO_B_TABLE ? b + table[p] : b + p * ldb;
        if (form <= FO_A_TABLE && nv == NV && !plain && (!FMA_READS || form == FO_A_TABLE)) {
            UNROLL for (int j = 0; j < nv * VL; j += LINE_FLOATS) __builtin_prefetch(bp + j + ahead);
            __builtin_prefetch(next), next += share;
        }
        vf bv[8];
        UNROLL for (int j = 0; j < nv; j++) {
            const float *at = bp + j / NV * panel + j % NV * VL;
            bv[j] = form == FO_B_PACKING ? v_load_tail(at, wanted - j * VL) : v_load(at);
            if (form == FO_B_PACKING) v_store(g->packed + p * NR + j * VL, bv[j]);
        }
        UNROLL for (int i = 0; i < mr; i++) {
            vf av = v_set1(a[i / REACH][i % REACH * lda + step]);
            UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_fma(av, bv[j], acc[i][j]);
        }
    }
}

/* Fetches nv vectors of a row of C or of what is added to it; NumPy's arrays begin anywhere in a cache line. */
INLINE void gemm_fetch(const float *row, const int nv) {
    UNROLL for (int j = 0; j < nv * VL; j += LINE_FLOATS) __builtin_prefetch(row + j, 1);
    __builtin_prefetch(row + nv * VL - 1, 1);
}

/* Where the tile's sums start: at those of another product, at zero or at the bias. */
INLINE void gemm_begin(const fo_gemm_args *g, vf acc[MR][8], const int mr, const int nv, const bool plain, ptrdiff_t i0, ptrdiff_t j0, const int wanted) {
    const fo_epilogue *ep = &g->ep;
    if (!plain && g->start) {
        UNROLL for (int i = 0; i < mr; i++)
            UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_load(g->start + (i0 + i) * g->lds + j0 + j * VL);
        if (g->turned) {
            const vf sign = v_set1(g->sign);
            UNROLL for (int i = 0; i < mr; i++)
                UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_fma(sign, v_load(g->turned + (i0 + i) * g->lds + j0 + j * VL), acc[i][j]);
        }
    } else if (!ep->bias)
        UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_zero();
    else if (!plain && ep->channel_rows)
        UNROLL for (int i = 0; i < mr; i++) UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_set1(ep->bias[i0 + i]);
    else
        UNROLL for (int j = 0; j < nv; j++) {
            acc[0][j] = wanted == nv * VL ? v_load(ep->bias + j0 + j * VL) : v_load_tail(ep->bias + j0 + j * VL, wanted - j * VL);
            UNROLL for (int i = 1; i < mr; i++) acc[i][j] = acc[0][j];
        }
}

/* The tile at rows i0.., columns j0... mr, nv, form and plain are literals at every call; of the nv * VL columns those below g->n are
 * stored. plain: gemm_is_plain. */
INLINE void gemm_tile(const fo_gemm_args *g, const int mr, const int nv, const fo_form form, const bool plain, ptrdiff_t i0, ptrdiff_t j0) {
    const ptrdiff_t lda = g->lda, k = g->k;
    const float *b = g->b + j0 / NR * g->panel, *a[POINTERS]; /* a row is a[i / REACH] + i % REACH * lda */
    const fo_epilogue *ep = &g->ep;
    const int wanted = !plain && g->n - j0 < nv * VL ? (int)(g->n - j0) : nv * VL;
    vf acc[MR][8];
    gemm_begin(g, acc, mr, nv, plain, i0, j0, wanted);
    UNROLL for (int i = 0; i < mr; i += REACH) a[i / REACH] = g->a + (i0 + i) * lda;
    /* Few rows leave a panel little time: its tiles share in fetching the next, which may come from memory and fits the cache beside them. One
     * line a group of steps is in time but for the fewest rows, whose steps fetch one each, and only of a B that is not small. */
    const bool spare = FMA_READS || GEMM_GROUP == 1 || GEMM_GROUP * mr * NR <= LINE_FLOATS * g->m || g->n * k >= FEW_FLOATS;
    const bool few = !plain && g->panel && mr < g->m && (FMA_READS || g->m <= 2 * MANY) && spare && (g->m + 2 * NR) * k <= NEAR_FLOATS;
    const bool fetches = form <= FO_A_TABLE && nv == NV && g->ldb == NR && !plain && k && (g->next || few);
    const ptrdiff_t floats = fetches && g->next ? g->next_floats : k * NR, share = fetches ? (mr * floats / k + g->m - 1) / g->m : 0;
    const float *next = fetches ? (g->next ? g->next : b + g->panel) + i0 * (floats / g->m) : b;
    const bool own = FMA_READS && !fetches && mr == g->m && g->ldb == NR; /* a panel that one tile reads, as far ahead as that takes */
    /* Matrices that the cache does not hold together: C and the rows of A below are fetched too, and only a row of each at a time, for
     * too many lines at once would hold up those of B. */
    const bool far = !plain && form == FO_ROWS && nv == NV && k >= LONG && !ep->transposed && g->m * g->n + (g->m + g->n) * k >= 2 * NEAR_FLOATS;
    if (far) {
        const ptrdiff_t below = i0 + 2 * mr <= g->m ? i0 + mr : 0, floats_below = mr < LINE_FLOATS / GEMM_GROUP ? mr : LINE_FLOATS / GEMM_GROUP;
        for (ptrdiff_t i = 0, p = 0, end; i < mr; i++, p = end) {
            end = i + 1 < mr ? p + (FMA_READS ? k / mr / GEMM_GROUP * GEMM_GROUP : k / mr) : k;
            gemm_fetch(g->c + (i0 + i) * g->ldc + j0, nv);
            if (ep->residual) gemm_fetch(ep->residual + (i0 + i) * ep->ldr + j0, nv);
            gemm_steps(g, acc, mr, nv, form, a, b, p, end, fetches ? next + p * share : g->a + (below + i) * lda, fetches ? share : floats_below, wanted, plain);
        }
    } else
        gemm_steps(g, acc, mr, nv, form, a, b, 0, k, own ? b + 64 * MR / mr * NR : next, own ? NR : share, wanted, plain);

    gemm_finish(acc, mr, nv, mr, wanted, ep, i0, j0, g->c, g->ldc, plain);
}

#include "along.h"
#include "run.h"
#include "halves.h"
#include "few.h"

/* A function for each height, or the compiler would share registers between tiles; what the registers cannot hold is left out. */
typedef void gemm_tile_fn(const fo_gemm_args *g, ptrdiff_t i0, ptrdiff_t j0);
#define TILE(form, nv, mr) \
    static void tile_##form##_##nv##_##mr(const fo_gemm_args *g, ptrdiff_t i0, ptrdiff_t j0) { \
        if (mr <= MR && mr * nv <= MR * NV) gemm_tile(g, mr <= MR ? mr : 1, nv, form, false, i0, j0); \
    }
#define PLAIN_TILE(form, name, mr) \
    static void tile_##form##_##name##_##mr(const fo_gemm_args *g, ptrdiff_t i0, ptrdiff_t j0) { \
        if (mr <= MR) gemm_tile(g, mr <= MR ? mr : 1, NV, form, true, i0, j0); \
    }
#define HALVES_TILE(form, nv, mr) \
    static void tile_##form##_##nv##_##mr(const fo_gemm_args *g, ptrdiff_t i0, ptrdiff_t j0) { \
        if (mr <= MR) gemm_halves_tile(g, mr <= MR ? mr : 1, form, i0, j0); \
    }
#define TILES(form, nv) EACH_HEIGHT(TILE, form, nv)
#define EACH_HEIGHT(TILE, form, nv) \
    TILE(form, nv, 1) TILE(form, nv, 2) TILE(form, nv, 3) TILE(form, nv, 4) TILE(form, nv, 5) TILE(form, nv, 6) \
    TILE(form, nv, 7) TILE(form, nv, 8) TILE(form, nv, 9) TILE(form, nv, 10) TILE(form, nv, 11) TILE(form, nv, 12)
#define HEIGHTS(form, nv) \
    {tile_##form##_##nv##_1, tile_##form##_##nv##_2, tile_##form##_##nv##_3, tile_##form##_##nv##_4, \
     tile_##form##_##nv##_5, tile_##form##_##nv##_6, tile_##form##_##nv##_7, tile_##form##_##nv##_8, \
     tile_##form##_##nv##_9, tile_##form##_##nv##_10, tile_##form##_##nv##_11, tile_##form##_##nv##_12}
_Static_assert(MR <= 12, "a height for each number of rows");
TILES(FO_ROWS, 1) TILES(FO_ROWS, 2) TILES(FO_ROWS, 3) TILES(FO_ROWS, 4) TILES(FO_ROWS, 8)
TILES(FO_A_TABLE, 1) TILES(FO_A_TABLE, 2) TILES(FO_A_TABLE, 3) TILES(FO_A_TABLE, 4) TILES(FO_A_TABLE, 8)
TILES(FO_B_TABLE, 1) TILES(FO_B_TABLE, 2) TILES(FO_B_TABLE, 3) TILES(FO_B_TABLE, 4)
TILES(FO_B_PACKING, 1) TILES(FO_B_PACKING, 2)
EACH_HEIGHT(HALVES_TILE, FO_ROWS, halves) EACH_HEIGHT(HALVES_TILE, FO_A_TABLE, halves)
static gemm_tile_fn *const gemm_tiles[FO_FORMS][9][12] = {
    [FO_ROWS] = {[1] = HEIGHTS(FO_ROWS, 1), HEIGHTS(FO_ROWS, 2), HEIGHTS(FO_ROWS, 3), HEIGHTS(FO_ROWS, 4), [8] = HEIGHTS(FO_ROWS, 8)},
    [FO_A_TABLE] = {[1] = HEIGHTS(FO_A_TABLE, 1), HEIGHTS(FO_A_TABLE, 2), HEIGHTS(FO_A_TABLE, 3), HEIGHTS(FO_A_TABLE, 4),
                    [8] = HEIGHTS(FO_A_TABLE, 8)},
    [FO_B_TABLE] = {[1] = HEIGHTS(FO_B_TABLE, 1), HEIGHTS(FO_B_TABLE, 2), HEIGHTS(FO_B_TABLE, 3), HEIGHTS(FO_B_TABLE, 4)},
    [FO_B_PACKING] = {[1] = HEIGHTS(FO_B_PACKING, 1), HEIGHTS(FO_B_PACKING, 2)}};
EACH_HEIGHT(PLAIN_TILE, FO_ROWS, plain) EACH_HEIGHT(PLAIN_TILE, FO_A_TABLE, plain)
static gemm_tile_fn *const gemm_plain_tiles[][12] = {[FO_ROWS] = HEIGHTS(FO_ROWS, plain), [FO_A_TABLE] = HEIGHTS(FO_A_TABLE, plain)};
static gemm_tile_fn *const gemm_halves_tiles[][12] = {[FO_ROWS] = HEIGHTS(FO_ROWS, halves), [FO_A_TABLE] = HEIGHTS(FO_A_TABLE, halves)};
#undef TILE
#undef PLAIN_TILE
#undef HALVES_TILE
#undef TILES
#undef EACH_HEIGHT
#undef HEIGHTS

/* Fetches the rows of C and of the residual that a tile of a large result will meet, or its stores and additions would wait until the third level or
 * memory answers: 3 -> 64 channels at 224x224, beside others' work, 0.71 of the time in planes, 0.94 channels last, with a residual 0.75. Stores of half a line (AVX2)
 * do not wait, and to fetch for them took 1.03 times as long; with a residual 0.6. Of many steps gemm_tile fetches, where matrices are far. */
INLINE void gemm_fetch_tile(const fo_gemm_args *g, const int nv, ptrdiff_t i0, ptrdiff_t mr, ptrdiff_t j0) {
    if (!g->ep.large || g->ep.transposed || (g->form == FO_ROWS && g->k >= LONG)) return;
    for (ptrdiff_t i = i0; i < i0 + mr; i++) {
        if ((int)VL >= LINE_FLOATS) gemm_fetch(g->c + i * g->ldc + j0, nv);
        if (g->ep.residual) gemm_fetch(g->ep.residual + i * g->ep.ldr + j0, nv);
    }
}

/* Whether the columns from j on, `width` vectors of them, are tiles that run one below the other. Winograd's positions are products of few rows,
 * too, whose B is small: 64 -> 64 channels, 22 rows at a time, 0.95 of the time. With a larger B fewer than FAR_ROWS wait for it: 7x7, 1.04. */
INLINE bool gemm_runs(const fo_gemm_args *g, const int width, ptrdiff_t j) {
    const ptrdiff_t high = width == NV ? MR : MR3; /* rows are so many that tiles have those or one less */
    const bool enough = g->m >= FAR_ROWS || ((width == NV || g->m >= RUN_ROWS) && g->n * g->k < FEW_FLOATS);
    return GEMM_RUNS && g->form == FO_ROWS && (width == NV || (MR3 && width == 3)) && enough && (g->m + high - 1) / high * (high - 1) <= g->m &&
           g->n - j >= width * VL && (g->ldb == NR || (width == NV && g->k <= LONG)) && !g->turned && !g->ep.transposed && !g->ep.channel_rows;
}

/* Vectors of the next tile, for the columns that are left: fewer rows leave registers for more, so that enough independent sums hide
 * the multiply-add's latency; the last three go together, for one alone would load an element of A for each multiply-add. */
INLINE int gemm_width(const fo_gemm_args *g, ptrdiff_t left) {
    const ptrdiff_t vectors = (left + VL - 1) / VL;
    if (MR3 && (left == 3 * VL || (g->k >= LONG / 2 && left % (3 * VL) == 0)) && gemm_runs(g, 3, g->n - left)) return 3;
    if (g->form < FO_B_TABLE && g->m * 8 <= MR * NV && left > 3 * NR) return 8; /* all panels that a tile reads are there */
    if (g->form < FO_B_PACKING && g->m * 4 <= MR * NV && left > (g->form < FO_B_TABLE ? NR : 3 * VL)) return 4;
    if (vectors == 3 && g->form != FO_B_PACKING) return 3;
    return vectors < 2 ? 1 : 2;
}

/* Whether the panel at column j is a whole one of few steps and many rows, whose sums start at a bias and end in the registers. */
INLINE bool gemm_is_plain(const fo_gemm_args *g, ptrdiff_t j) {
    return g->form <= FO_A_TABLE && g->k <= SHORT && g->m >= MANY && g->n - j >= NR && !g->start && !g->ep.transposed && !g->ep.channel_rows &&
           g->ep.act.kind <= FO_CLIP;
}

/* The rows of a panel in tiles of nearly equal heights, for 8 + 8 rows beat 12 + 4. `first` computes the topmost tile, `rest` the others. */
INLINE void gemm_rows(const fo_gemm_args *first, const fo_gemm_args *rest, const int width, ptrdiff_t j) {
    const bool halves = width == NV && gemm_halves_fit(first, j), plain = width == NV && gemm_is_plain(first, j);
    if (gemm_runs(first, width, j)) {
        gemm_run_rows(first, width, j);
        return;
    }
    /* 1024 x 1024 x 1024 in tiles of 12 rows takes 1.07 of the time. */
    const int high = MR > 8 && first->form == FO_ROWS && first->lda % ONE_SET == 0 && first->k >= LONG ? MR - 1 : MR;
    const ptrdiff_t most = plain ? PLAIN_ROWS : width > NV ? MR * NV / width : high, m = first->m, tiles = (m + most - 1) / most;
    const ptrdiff_t height = m / tiles, taller = m % tiles; /* the first `taller` tiles have one row more */
    for (ptrdiff_t t = 0, i = 0, mr; t < tiles; t++, i += mr) {
        const fo_gemm_args *g = t ? rest : first;
        mr = height + (t < taller);
        gemm_fetch_tile(g, width, i, mr, j);
        (halves ? gemm_halves_tiles[g->form] : plain ? gemm_plain_tiles[g->form] : gemm_tiles[g->form][width])[mr - 1](g, i, j);
    }
}

/* A panel of a B in the caller's memory. Whole panels are read as they lie, unless rows a multiple of 1 KB apart would share few
 * sets of the cache; else the first tile copies what it reads to `packed`, from where the others read. */
INLINE void gemm_packing(const fo_gemm_args *g, const int width, ptrdiff_t j) {
    const bool copy = g->n - j < NR || g->ldb % 256 == 0;
    fo_gemm_args rest = *g;
    rest.form = FO_ROWS;
    if (copy) rest.b = g->packed, rest.ldb = NR, rest.panel = 0;
    gemm_rows(copy ? g : &rest, &rest, width, j);
}

void FO_NAME(fo_gemm)(const fo_gemm_args *g) {
    if (!g->m || !g->n || gemm_few(g)) return;
    for (ptrdiff_t j = gemm_goes_along(g) ? gemm_along_rows(g) : 0; j < g->n;) {
        const int width = gemm_width(g, g->n - j);
        if (g->form == FO_B_PACKING)
            gemm_packing(g, width, j);
        else
            gemm_rows(g, g, width, j);
        j += width * VL;
    }
}
