/* C = epilogue(A B) of int8 or bfloat16 by tiles (AMX), with A and B as qgemm_tile.h has them.
 *
 *   A      up to 16 rows of up to 16 groups, where they lie
 *   B      as many groups of 16 columns
 *   sums   16 x 16
 *
 * A pair of A times a pair of B is four tiles of sums, which stay through all steps of k and go to memory; the epilogue
 * ends them there, some rows at each step of the next pair. A step multiplies a tile's groups. Of up to two steps B's
 * tiles stay, and A's pass. Rows of A are not copied first: a tile load waits for lines that were just stored, which
 * took a quarter of the time (64 -> 64 channels at 56x56, Xeon), and reads rows 2 and 6 KB apart as fast.
 */
enum {
    AMX_ROWS = 16,
    AMX_GROUPS = FO_TILE_GROUPS,
    MIN_AMX_GROUPS = 3, /* of a step; dot products of two groups take as long: four tiles 64 cycles */
    AMX_COLUMNS = 2 * VL,
    AMX_LINE = LINE_FLOATS * sizeof(float)
};

/* The shapes of all eight tiles, as the processor reads them. Sums come first, then two tiles of A, the first one being
 * number `a`; the rest is B. */
typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;
enum { AMX_A_OF_PAIRS = 4, AMX_A_OF_STREAMS = 2 };

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
        else if (type == FO_U8) \
            __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #sums ::); \
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

INLINE void tile_configure(int a, ptrdiff_t rows, ptrdiff_t groups) {
    tile_shapes shapes = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        shapes.rows[tile] = (uint8_t)(tile < a + 2 ? rows : groups);
        shapes.bytes[tile] = (uint16_t)(tile == a || tile == a + 1 ? 4 * groups : QUADS);
    }
    AMX_CONFIGURE(shapes);
}

/* ---- sums that wait for their epilogue --------------------------------------------------------------------------- */

/* Rows of a tile of sums, from row i of a line of C on. */
typedef struct {
    ptrdiff_t line, i, left;
    int32_t *sums;
} amx_rows;

/* The tiles of a pair, or one tile, whose panel t has, with what ends them: chosen once a panel. */
typedef struct {
    amx_rows first, second;
    const fo_gemm_args *all;
    fo_gemm_args args; /* of a line, the first one's */
    ptrdiff_t line;
    qstack t;
} amx_waiting;

static __attribute__((noinline)) void amx_turn_to(amx_waiting *w, ptrdiff_t line) {
    w->args = fo_gemm_line(w->all, line), w->line = line;
}

/* Ends up to `most` rows that wait, all of one tile. */
static __attribute__((noinline)) void amx_end_next(amx_waiting *w, ptrdiff_t most) {
    const ptrdiff_t rows = w->first.left < most ? w->first.left : most;
    w->t.end(&w->t, w->first.sums, (int)rows, w->first.i);
    w->first.i += rows, w->first.left -= rows, w->first.sums += rows * w->t.nv * VL;
    if (w->first.left) return;
    w->first = w->second, w->second.left = 0;
    if (w->first.left && w->first.line != w->line) amx_turn_to(w, w->first.line);
}

INLINE void amx_end_all(amx_waiting *w) {
    while (w->first.left) amx_end_next(w, AMX_ROWS);
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* Tiles of rows are counted through all lines of C. */
typedef struct {
    const fo_gemm_args *g;
    ptrdiff_t rows, groups, steps;               /* of a tile; of a row of A */
    ptrdiff_t tiles, all;                        /* of a line, of all of them */
    int32_t (*sums)[2 * AMX_ROWS * AMX_COLUMNS]; /* two, in turn: one waits while the other is made */
    int turn;
    bool direct; /* sums are results */
    const int8_t *ahead,
        *known; /* what comes next of B, and where it ends: `fetched` lines of the cache at each step */
    ptrdiff_t fetched;
    amx_waiting waiting;
} amx_call;

/* A tile's rows. All tiles have one height, so the last of a line begins early enough to end with it: it shares rows
 * with the one before. */
INLINE amx_rows amx_rows_of(const amx_call *c, ptrdiff_t tile) {
    const ptrdiff_t i = tile % c->tiles * c->rows, last = c->g->m - c->rows;
    return (amx_rows){.line = tile / c->tiles, .i = i < last ? i : last, .left = c->rows};
}

/* A tile's rows wait, but for those that it shares. */
INLINE amx_rows amx_waits(const amx_call *c, ptrdiff_t tile, int32_t *sums) {
    amx_rows rows = amx_rows_of(c, tile);
    const ptrdiff_t shared = tile % c->tiles * c->rows - rows.i;
    rows.i += shared, rows.left -= shared, rows.sums = sums + shared * c->waiting.t.nv * VL;
    return rows;
}

/* The sums of `down` tiles wait, as none of others do any more. */
static __attribute__((noinline)) void amx_wait(const fo_dtype type, amx_call *c, ptrdiff_t tile, int down, ptrdiff_t j,
                                               int across) {
    amx_waiting *w = &c->waiting;
    int32_t *sums = c->sums[c->turn];
    const ptrdiff_t left = c->g->n - j;
    w->t.nv = across, w->t.wanted = (int)(left < across * VL ? left : across * VL);
    if (w->t.j != j || !w->t.end) w->t.j = j, w->t.end = qend_of(type, c->g, across, w->t.wanted);
    w->first = amx_waits(c, tile, sums), w->second.left = 0;
    if (down > 1) w->second = amx_waits(c, tile + 1, sums + c->rows * across * VL);
    if (w->first.line != w->line) amx_turn_to(w, w->first.line);
    c->turn ^= 1;
}

INLINE const uint8_t *amx_tile_of(const amx_call *c, ptrdiff_t tile) {
    const amx_rows rows = amx_rows_of(c, tile);
    return c->g->a_groups + rows.line * c->g->a_line + rows.i * c->g->lda;
}

INLINE void amx_fetch(amx_call *c) {
    if (c->ahead >= c->known) return;
    for (ptrdiff_t i = 0; i < c->fetched; i++, c->ahead += AMX_LINE) __builtin_prefetch(c->ahead, 0, 2);
}

/* Four tiles of sums, or as many as there are: begun with zeros, and stored. */
INLINE void amx_zero(const int down, const int across) {
    AMX_ZERO(0);
    if (across > 1) AMX_ZERO(1);
    if (down > 1) AMX_ZERO(2);
    if (down > 1 && across > 1) AMX_ZERO(3);
}

/* Where sums of a tile and of the next one go, with the bytes to the next row: to C, or where they wait. */
typedef struct {
    char *upper, *lower;
    ptrdiff_t ld;
} amx_target;

INLINE char *amx_direct(const amx_call *c, ptrdiff_t tile, ptrdiff_t j) {
    const amx_rows rows = amx_rows_of(c, tile);
    return (char *)(c->g->c + rows.line * c->g->c_line + rows.i * c->g->ldc + j);
}

INLINE amx_target amx_target_of(const amx_call *c, ptrdiff_t tile, const int down, ptrdiff_t j, const int across) {
    int32_t *sums = c->sums[c->turn];
    if (!c->direct) return (amx_target){(char *)sums, (char *)(sums + c->rows * across * VL), across * QUADS};
    return (amx_target){amx_direct(c, tile, j), amx_direct(c, tile + down - 1, j),
                        c->g->ldc * (ptrdiff_t)sizeof(float)};
}

INLINE void amx_store(const int down, const int across, amx_target to) {
    AMX_STORE(0, to.upper, to.ld);
    if (across > 1) AMX_STORE(1, to.upper + QUADS, to.ld);
    if (down > 1) AMX_STORE(2, to.lower, to.ld);
    if (down > 1 && across > 1) AMX_STORE(3, to.lower + QUADS, to.ld);
}

/* ---- pairs of tiles ---------------------------------------------------------------------------------------------- */

/* All steps of `down` tiles of rows by `across` of columns: literals. Sums of others end meanwhile. */
INLINE void amx_pair(const fo_dtype type, const int down, const int across, amx_call *c, ptrdiff_t tile, ptrdiff_t j) {
    const fo_gemm_args *g = c->g;
    const ptrdiff_t ldb = across * QUADS, lda = g->lda, next = 4 * c->groups, gap = g->segment - 4 * g->k;
    const ptrdiff_t waiting = c->waiting.first.left + c->waiting.second.left,
                    rows = (waiting + c->steps - 1) / c->steps;
    const uint8_t *a = amx_tile_of(c, tile);
    const ptrdiff_t second = amx_tile_of(c, tile + down - 1) - a;
    const int8_t *b = g->b_groups + 4 * j * g->k * g->segments;
    amx_zero(down, across);
    for (ptrdiff_t step = 0, at = 0; step < c->steps; step++, a += next, b += c->groups * ldb) {
        AMX_LOAD(4, a, lda);
        AMX_LOAD(6, b, ldb);
        AMX_DOT(type, 0, 4, 6);
        if (across > 1) AMX_LOAD(7, b + QUADS, ldb);
        if (across > 1) AMX_DOT(type, 1, 4, 7);
        if (down > 1) AMX_LOAD(5, a + second, lda);
        if (down > 1) AMX_DOT(type, 2, 5, 6);
        if (down > 1 && across > 1) AMX_DOT(type, 3, 5, 7);
        if ((at += c->groups) == g->k) at = 0, a += gap;
        amx_fetch(c);
        if (c->waiting.first.left) amx_end_next(&c->waiting, rows);
    }
    amx_end_all(&c->waiting);
    amx_store(down, across, amx_target_of(c, tile, down, j, across));
    if (!c->direct) amx_wait(type, c, tile, down, j, across);
}

/* Columns of B that all pairs are multiplied by before the next ones: they stay in the second-level cache. */
INLINE ptrdiff_t amx_width(const fo_gemm_args *g) {
    const ptrdiff_t fitting = FO_AMX_B_BYTES / (4 * AMX_COLUMNS * g->k * g->segments), most = fitting > 2 ? fitting : 2;
    const ptrdiff_t panels = (g->n + AMX_COLUMNS - 1) / AMX_COLUMNS, parts = (panels + most - 1) / most;
    return (panels + parts - 1) / parts * AMX_COLUMNS;
}

/* Some panels at a time, a pair of rows after another. The next panels are fetched meanwhile; one pair alone leaves no
 * time for that. */
INLINE void amx_pairs(const fo_dtype type, amx_call *c) {
    const fo_gemm_args *g = c->g;
    const ptrdiff_t pairs = (c->all + 1) / 2, width = amx_width(g), of_column = 4 * g->k * g->segments;
    for (ptrdiff_t first = 0, end; first < g->n; first = end) {
        end = g->n - first < width ? g->n : first + width;
        c->ahead = g->b_groups + end * of_column;
        c->known = g->b_groups + (g->n - end < width ? g->n : end + width) * of_column;
        c->fetched = pairs > 1 ? (4 * AMX_COLUMNS * c->groups / AMX_LINE + pairs - 1) / pairs : 0;
        for (ptrdiff_t tile = 0; tile < c->all; tile += 2)
            for (ptrdiff_t j = first, columns; j < end; j += columns) {
                const int down = tile + 1 < c->all ? 2 : 1;
                columns = fo_panel_columns(g->n - j, VL, AMX_COLUMNS);
                if (columns > VL)
                    down > 1 ? amx_pair(type, 2, 2, c, tile, j) : amx_pair(type, 1, 2, c, tile, j);
                else
                    down > 1 ? amx_pair(type, 2, 1, c, tile, j) : amx_pair(type, 1, 1, c, tile, j);
            }
    }
}

/* ---- products of one or two steps -------------------------------------------------------------------------------- */

/* A panel: B stays in tiles, and the rows of A pass. */
INLINE void amx_stream(const fo_dtype type, const int across, const int steps, amx_call *c, ptrdiff_t j) {
    const fo_gemm_args *g = c->g;
    const ptrdiff_t ldb = across * QUADS, lda = g->lda, half = (c->rows + 1) / 2;
    const ptrdiff_t second = c->groups == g->k ? g->segment : 4 * c->groups; /* of A: to the next step */
    const int8_t *b = g->b_groups + 4 * j * g->k * g->segments, *below = b + c->groups * ldb;
    AMX_LOAD(4, b, ldb);
    if (across > 1) AMX_LOAD(5, b + QUADS, ldb);
    if (steps > 1) AMX_LOAD(6, below, ldb);
    if (steps > 1 && across > 1) AMX_LOAD(7, below + QUADS, ldb);
    for (ptrdiff_t tile = 0; tile < c->all; tile++) {
        const uint8_t *a = amx_tile_of(c, tile);
        amx_zero(1, across);
        AMX_LOAD(2, a, lda);
        AMX_DOT(type, 0, 2, 4);
        if (across > 1) AMX_DOT(type, 1, 2, 5);
        if (steps > 1 && c->waiting.first.left) amx_end_next(&c->waiting, half);
        if (steps > 1) AMX_LOAD(3, a + second, lda);
        if (steps > 1) AMX_DOT(type, 0, 3, 6);
        if (steps > 1 && across > 1) AMX_DOT(type, 1, 3, 7);
        amx_end_all(&c->waiting);
        amx_store(1, across, amx_target_of(c, tile, 1, j, across));
        if (!c->direct) amx_wait(type, c, tile, 1, j, across);
    }
}

INLINE void amx_streams(const fo_dtype type, amx_call *c) {
    for (ptrdiff_t j = 0, columns; j < c->g->n; j += columns) {
        columns = fo_panel_columns(c->g->n - j, VL, AMX_COLUMNS);
        if (columns > VL)
            c->steps > 1 ? amx_stream(type, 2, 2, c, j) : amx_stream(type, 2, 1, c, j);
        else
            c->steps > 1 ? amx_stream(type, 1, 2, c, j) : amx_stream(type, 1, 1, c, j);
    }
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

INLINE void gemm_amx(const fo_dtype type, const fo_gemm_args *g, ptrdiff_t groups) {
    const ptrdiff_t steps = g->k / groups * g->segments;
    ptrdiff_t tiles = (g->m + AMX_ROWS - 1) / AMX_ROWS;
    if (steps > 2 && tiles > 1 && g->lines == 1) tiles += tiles % 2;
    const ptrdiff_t rows = (g->m + tiles - 1) / tiles;
    int32_t sums[2][2 * AMX_ROWS * AMX_COLUMNS] __attribute__((aligned(64)));
    amx_call c = {.g = g, .rows = rows, .groups = groups, .steps = steps, .sums = sums};
    c.direct = type == FO_BF16 && !g->ep.bias;
    c.waiting.all = g, c.waiting.line = -1, c.waiting.t.g = &c.waiting.args;
    c.tiles = (g->m + rows - 1) / rows, c.all = c.tiles * g->lines;
    tile_configure(steps > 2 ? AMX_A_OF_PAIRS : AMX_A_OF_STREAMS, rows, groups);
    if (steps > 2)
        amx_pairs(type, &c);
    else
        amx_streams(type, &c);
    AMX_RELEASE(); /* or the system would save them at each switch */
    amx_end_all(&c.waiting);
}

/* Few rows are bound by reading weights, half a tile's groups by the epilogue. */
void fo_gemm_int8_amx(const fo_gemm_args *g) {
    const ptrdiff_t groups = tile_groups(g->k);
    if (!groups || g->m <= Q_ROWS || 2 * g->k * g->segments < AMX_GROUPS) {
        gemm_by_table(FO_S8, g, &tiles_S8, AMX_COLUMNS);
        return;
    }
    FO_RAN("gemm S8 by AMX");
    gemm_amx(FO_S8, g, groups);
}

/* However few rows: a tile adds in another order than a dot product. */
void fo_gemm_bf16_amx(const fo_gemm_args *g) {
    const ptrdiff_t groups = tile_groups(g->k);
    if (!groups || 2 * g->k * g->segments < AMX_GROUPS) {
        gemm_by_table(FO_BF16, g, &tiles_BF16, AMX_COLUMNS);
        return;
    }
    if (!g->m) return;
    FO_RAN("gemm BF16 by AMX");
    gemm_amx(FO_BF16, g, groups);
}
