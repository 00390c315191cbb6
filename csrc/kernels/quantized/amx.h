/* C = epilogue(A B) of int8 or bfloat16 by tiles (AMX), with A and B as gemm.h has them.
 *
 *   A      up to 16 rows of up to 16 groups      two of A times two of B give four tiles of sums, which go to memory;
 *   B      as many groups of 16 columns          the epilogue reads them there, while the next ones are made
 *   sums   16 x 16
 */
enum { AMX_ROWS = 16, AMX_GROUPS = 16, MIN_AMX_GROUPS = AMX_GROUPS / 4 };

/* The shapes of all eight tiles, as the processor reads them: sums are 0 to 3, A is 4 and 5, B is 6 and 7. */
typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;

#ifdef FO_EMULATED_AMX /* tests/emulated: no instruction of them */
#include <emulated_amx.h>
#else
#define AMX_CONFIGURE(shapes) __asm__ volatile("ldtilecfg %0" ::"m"(shapes))
#define AMX_RELEASE() __asm__ volatile("tilerelease" ::)
#define AMX_LOAD(tile, p, ld) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(p), "r"((ptrdiff_t)(ld)) : "memory")
#define AMX_STORE(tile, p, ld) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(p), "r"((ptrdiff_t)(ld)) : "memory")
#define AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define AMX_DOT(type, sums, a, b) \
    do \
        if (type == FO_BF16) \
            __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sums ::); \
        else \
            __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #sums ::); \
    while (0)
#endif

/* Groups of a tile, of which a segment has whole ones; 0 where they would be few. */
INLINE ptrdiff_t tile_groups(ptrdiff_t k) {
    ptrdiff_t groups = k < AMX_GROUPS ? k : AMX_GROUPS;
    while (groups >= MIN_AMX_GROUPS && k % groups) groups--;
    return groups >= MIN_AMX_GROUPS ? groups : 0;
}

INLINE void tile_configure(ptrdiff_t rows, ptrdiff_t groups) {
    tile_shapes shapes = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        shapes.rows[tile] = (uint8_t)(tile < 6 ? rows : groups);
        shapes.bytes[tile] = (uint16_t)(tile == 4 || tile == 5 ? 4 * groups : QUADS);
    }
    AMX_CONFIGURE(shapes);
}

/* The sums of `down` tiles of mr rows and `across` vectors of a panel of nv. */
INLINE void tile_sums(const fo_dtype type, const int down, const int across, const int nv, const fo_qgemm_args *g,
                      ptrdiff_t mr, ptrdiff_t groups, const uint8_t *a, const int8_t *b, int32_t *sums) {
    const ptrdiff_t ldb = nv * QUADS;
    AMX_ZERO(0);
    if (across > 1) AMX_ZERO(1);
    if (down > 1) AMX_ZERO(2);
    if (down > 1 && across > 1) AMX_ZERO(3);
    for (ptrdiff_t s = 0; s < g->segments; s++, a += g->segment)
        for (ptrdiff_t p = 0; p < g->k; p += groups, b += groups * ldb) {
            AMX_LOAD(4, a + 4 * p, g->lda);
            AMX_LOAD(6, b, ldb);
            AMX_DOT(type, 0, 4, 6);
            if (across > 1) AMX_LOAD(7, b + QUADS, ldb);
            if (across > 1) AMX_DOT(type, 1, 4, 7);
            if (down > 1) AMX_LOAD(5, a + mr * g->lda + 4 * p, g->lda);
            if (down > 1) AMX_DOT(type, 2, 5, 6);
            if (down > 1 && across > 1) AMX_DOT(type, 3, 5, 7);
        }
    AMX_STORE(0, sums, ldb);
    if (across > 1) AMX_STORE(1, sums + VL, ldb);
    if (down > 1) AMX_STORE(2, sums + mr * nv * VL, ldb);
    if (down > 1 && across > 1) AMX_STORE(3, sums + mr * nv * VL + VL, ldb);
}

/* From memory to C, what sums start with added. */
INLINE void tile_end(const fo_dtype type, const qstack *t, const eb_bounds *bounds, const int nv, int32_t *sums,
                     ptrdiff_t rows, ptrdiff_t i) {
    const bool whole = t->g->ep.clips && t->wanted == nv * VL;
    for (ptrdiff_t r = 0; r < rows; r++, sums += nv * VL) {
        vi acc[1][Q_VECTORS];
        qstart(type, t->g, 1, nv, acc, i + r, t->j);
        UNROLL_FOR (int v = 0; v < nv; v++)
            acc[0][v] = type == FO_BF16 ? v_iload(sums + v * VL) : v_iadd(acc[0][v], v_iload(sums + v * VL));
        if (whole)
            qend(type, t, bounds, 1, nv, acc, i + r);
        else
            UNROLL_FOR (int v = 0; v < nv; v++) v_istore(sums + v * VL, acc[0][v]);
    }
    if (!whole) qend_sums(type, t, sums - rows * nv * VL, nv * VL, (int)rows, i);
}

INLINE void tile_stack(const fo_dtype type, const qstack *t, const int nv, ptrdiff_t mr, ptrdiff_t groups) {
    const fo_qgemm_args *g = t->g;
    const eb_bounds bounds = eb_start(&g->ep);
    const int across = nv > 1 ? 2 : 1;
    int32_t sums[2 * AMX_ROWS * Q_VECTORS * VL] __attribute__((aligned(64)));
    ptrdiff_t i = t->i, left = t->count;
    for (ptrdiff_t down; left > 0; left -= down, i += down * mr) {
        const uint8_t *a = g->a + i * g->lda;
        down = left > 1 ? 2 : 1;
        for (int v = 0; v < nv; v += across)
            if (down > 1)
                tile_sums(type, 2, across, nv, g, mr, groups, a, t->b + v * QUADS, sums + v * VL);
            else
                tile_sums(type, 1, across, nv, g, mr, groups, a, t->b + v * QUADS, sums + v * VL);
        tile_end(type, t, &bounds, nv, sums, down * mr, i);
    }
}

/* A panel of columns after another; its rows in tiles of nearly equal heights. */
INLINE void gemm_amx(const fo_dtype type, const fo_qgemm_args *g, ptrdiff_t groups) {
    const ptrdiff_t tiles = (g->m + AMX_ROWS - 1) / AMX_ROWS;
    ptrdiff_t i = 0;
    for (ptrdiff_t part = 0; part < 2; part++) {
        const ptrdiff_t rows = g->m / tiles + 1 - part, count = part ? tiles - g->m % tiles : g->m % tiles;
        if (!count) continue;
        tile_configure(rows, groups);
        for (ptrdiff_t j = 0, columns; j < g->n; j += columns) {
            columns = fo_qpanel(g->n - j, VL, Q_VECTORS * VL);
            const qstack t = {.g = g,
                              .i = i,
                              .j = j,
                              .count = count,
                              .b = g->b + 4 * j * g->k * g->segments,
                              .wanted = (int)(g->n - j < columns ? g->n - j : columns)};
            if (columns == Q_VECTORS * VL)
                tile_stack(type, &t, Q_VECTORS, rows, groups);
            else if (columns == 2 * VL)
                tile_stack(type, &t, 2, rows, groups);
            else
                tile_stack(type, &t, 1, rows, groups);
        }
        i += count * rows;
    }
    AMX_RELEASE(); /* or the system would save them at each switch */
}

/* Few rows are bound by reading weights, few groups by the epilogue. */
static void qgemm_amx(const fo_qgemm_args *g) {
    const ptrdiff_t groups = tile_groups(g->k);
    if (!groups || g->m <= Q_ROWS || g->k * g->segments < AMX_GROUPS) {
        qgemm(g);
        return;
    }
    FO_RAN("gemm S8 by AMX");
    gemm_amx(FO_S8, g, groups);
}

/* However few rows: a tile adds in another order than a dot product. */
static void qgemm_bf16_amx(const fo_qgemm_args *g) {
    const ptrdiff_t groups = tile_groups(g->k);
    if (!groups || g->k * g->segments < AMX_GROUPS) {
        qgemm_bf16(g);
        return;
    }
    if (!g->m) return;
    FO_RAN("gemm BF16 by AMX");
    gemm_amx(FO_BF16, g, groups);
}
