/* C = epilogue(A B) of int8 or bfloat16 by tiles (AMX), with A and B as qgemm_tile.h has them.
 *
 *   A      up to 16 rows of up to 16 groups      a pair of A times a pair of B gives four tiles of sums, which go to
 *   B      as many groups of 16 columns          memory; the epilogue reads them there, a few rows at each step of the
 *   sums   16 x 16                               next pair
 *
 * A step multiplies a tile's groups. Two tiles of A by FO_AMX_STEPS steps stay in the first-level cache while panels of
 * B pass, whose bytes are read in order; rows of A are not, so they are copied for several panels. Where there are more
 * steps, sums are loaded again for the next ones: steps are added in the order of k.
 */
enum {
    AMX_ROWS = 16,
    AMX_GROUPS = 16,
    MIN_AMX_GROUPS = AMX_GROUPS / 4,
    AMX_COLUMNS = 2 * VL,
    AMX_LINE = LINE_FLOATS * sizeof(float)
};

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

/* Rows of a tile of sums, from row i of a line of C on. */
typedef struct {
    ptrdiff_t line, i, left;
    int32_t *sums;
} amx_rows;

/* The sums of a pair, which wait for their epilogue, and the arguments of the first ones' line. */
typedef struct {
    amx_rows first, second;
    const fo_gemm_args *all;
    fo_gemm_args args;
    ptrdiff_t j, columns; /* the panel */
} amx_waiting;

/* Steps of a pair of A times a panel of B, and what is done meanwhile. */
typedef struct {
    int down;                       /* tiles of A */
    const uint8_t *a;               /* the first one's */
    ptrdiff_t lda, to_second, next; /* bytes: of a row, to the second tile, to the next step */
    ptrdiff_t k, at, gap;           /* groups of a segment (0: none ends), groups done, bytes to the next one's begin */
    ptrdiff_t rows, groups, steps;  /* of a tile */
    const int8_t *b;
    bool resumes; /* sums, of other steps */
    int32_t *sums;
    const int8_t *ahead; /* what comes next of B: `fetched` lines of the cache at each step */
    ptrdiff_t fetched;
    amx_waiting *waiting;
} amx_pair;

/* Ends up to `most` rows that wait, all of one tile. */
static __attribute__((noinline)) void amx_end_next(const fo_dtype type, amx_waiting *w, ptrdiff_t most) {
    const ptrdiff_t rows = w->first.left < most ? w->first.left : most, left = w->all->n - w->j;
    qstack t = {.g = &w->args, .j = w->j, .nv = (int)w->columns / VL};
    t.wanted = (int)(left < w->columns ? left : w->columns);
    qend_of(type, t.g, t.nv, t.wanted)(&t, w->first.sums, (int)rows, w->first.i);
    w->first.i += rows, w->first.left -= rows, w->first.sums += rows * w->columns;
    if (w->first.left) return;
    w->first = w->second, w->second.left = 0;
    w->args = fo_gemm_line(w->all, w->first.line);
}

/* The sums of `down` tiles of rows and `across` of columns: those of other steps, or zeros. */
INLINE void amx_start(const int down, const int across, const amx_pair *p) {
    const ptrdiff_t ldb = across * QUADS;
    const int32_t *lower = p->sums + p->rows * across * VL;
    if (p->resumes) {
        AMX_LOAD(0, p->sums, ldb);
        if (across > 1) AMX_LOAD(1, p->sums + VL, ldb);
        if (down > 1) AMX_LOAD(2, lower, ldb);
        if (down > 1 && across > 1) AMX_LOAD(3, lower + VL, ldb);
    } else {
        AMX_ZERO(0);
        if (across > 1) AMX_ZERO(1);
        if (down > 1) AMX_ZERO(2);
        if (down > 1 && across > 1) AMX_ZERO(3);
    }
}

INLINE void amx_store(const int down, const int across, const amx_pair *p) {
    const ptrdiff_t ldb = across * QUADS;
    int32_t *lower = p->sums + p->rows * across * VL;
    AMX_STORE(0, p->sums, ldb);
    if (across > 1) AMX_STORE(1, p->sums + VL, ldb);
    if (down > 1) AMX_STORE(2, lower, ldb);
    if (down > 1 && across > 1) AMX_STORE(3, lower + VL, ldb);
}

/* All steps of a pair. Sums that wait may be where these go, so they end before. */
INLINE void amx_steps(const fo_dtype type, const int down, const int across, const amx_pair *p) {
    const ptrdiff_t ldb = across * QUADS, lda = p->lda, next = p->next;
    const ptrdiff_t rows = (p->waiting->first.left + p->waiting->second.left + p->steps - 1) / p->steps;
    const uint8_t *a = p->a;
    const int8_t *b = p->b, *ahead = p->ahead;
    amx_start(down, across, p);
    for (ptrdiff_t step = 0, at = p->at; step < p->steps; step++, a += next, b += p->groups * ldb) {
        AMX_LOAD(4, a, lda);
        AMX_LOAD(6, b, ldb);
        AMX_DOT(type, 0, 4, 6);
        if (across > 1) AMX_LOAD(7, b + QUADS, ldb);
        if (across > 1) AMX_DOT(type, 1, 4, 7);
        if (down > 1) AMX_LOAD(5, a + p->to_second, lda);
        if (down > 1) AMX_DOT(type, 2, 5, 6);
        if (down > 1 && across > 1) AMX_DOT(type, 3, 5, 7);
        if ((at += p->groups) == p->k) at = 0, a += p->gap;
        for (ptrdiff_t i = 0; i < p->fetched; i++, ahead += AMX_LINE) __builtin_prefetch(ahead, 0, 2);
        if (p->waiting->first.left) amx_end_next(type, p->waiting, rows);
    }
    while (p->waiting->first.left) amx_end_next(type, p->waiting, rows);
    amx_store(down, across, p);
}

/* A call. Tiles, and so pairs, are counted through all lines of C. */
typedef struct {
    const fo_gemm_args *g;
    ptrdiff_t rows, groups, steps; /* of a tile; of a row of A */
    ptrdiff_t tiles, all;          /* of a line, of all of them */
    ptrdiff_t j, end;              /* columns of the panels that pairs are multiplied by now */
    int32_t (*sums)[2 * AMX_ROWS * AMX_COLUMNS];
    uint8_t *copy;               /* of a pair: tiles, step by step */
    const int8_t *ahead, *known; /* see amx_pair; where it ends */
    ptrdiff_t fetched;
    amx_waiting waiting;
} amx_call;

/* A tile's rows. All tiles have one height, so the last of a line begins early enough to end with it: it shares rows
 * with the one before. */
INLINE amx_rows amx_rows_of(const amx_call *c, ptrdiff_t tile) {
    const ptrdiff_t i = tile % c->tiles * c->rows, last = c->g->m - c->rows;
    return (amx_rows){.line = tile / c->tiles, .i = i < last ? i : last, .left = c->rows};
}

/* A tile's sums are those of all of k: its rows wait, but for those that it shares. */
INLINE amx_rows amx_waits(const amx_call *c, ptrdiff_t tile, ptrdiff_t columns, int32_t *sums) {
    amx_rows rows = amx_rows_of(c, tile);
    const ptrdiff_t shared = tile % c->tiles * c->rows - rows.i;
    rows.i += shared, rows.left -= shared, rows.sums = sums + shared * columns;
    return rows;
}

/* The sums of a pair wait, as none of another do any more. */
INLINE void amx_wait(amx_call *c, ptrdiff_t pair, ptrdiff_t j, ptrdiff_t columns, int32_t *sums) {
    amx_waiting *w = &c->waiting;
    w->first = amx_waits(c, 2 * pair, columns, sums), w->second.left = 0;
    if (2 * pair + 1 < c->all) w->second = amx_waits(c, 2 * pair + 1, columns, sums + c->rows * columns);
    w->args = fo_gemm_line(c->g, w->first.line), w->j = j, w->columns = columns;
}

INLINE const uint8_t *amx_tile_of(const amx_call *c, ptrdiff_t tile) {
    const amx_rows rows = amx_rows_of(c, tile);
    return c->g->a_groups + rows.line * c->g->a_line + rows.i * c->g->lda;
}

/* The steps of a tile, row by row: `a` is the first one. */
INLINE void amx_copy(const amx_pair *p, const uint8_t *a, uint8_t *to) {
    for (ptrdiff_t r = 0; r < p->rows; r++, a += p->lda, to += QUADS) {
        const uint8_t *row = a;
        for (ptrdiff_t step = 0, at = p->at; step < p->steps; step++, row += p->next) {
            v_istore(to + step * p->rows * QUADS, v_load_quads_tail(row, 4 * p->groups));
            if ((at += p->groups) == p->k) at = 0, row += p->gap;
        }
    }
}

/* Steps `from` to `end` of a pair of A, in its own memory, or copied where several panels read it. */
INLINE amx_pair amx_pair_of(amx_call *c, ptrdiff_t pair, ptrdiff_t from, ptrdiff_t end) {
    const fo_gemm_args *g = c->g;
    const ptrdiff_t in_segment = g->k / c->groups, at = from % in_segment * c->groups;
    const uint8_t *first = amx_tile_of(c, 2 * pair) + from / in_segment * g->segment + 4 * at;
    amx_pair p = {.down = 2 * pair + 1 < c->all ? 2 : 1,
                  .a = first,
                  .lda = g->lda,
                  .next = 4 * c->groups,
                  .k = g->k,
                  .at = at,
                  .gap = g->segment - 4 * g->k,
                  .rows = c->rows,
                  .groups = c->groups,
                  .steps = end - from,
                  .resumes = from > 0,
                  .waiting = &c->waiting};
    p.to_second = amx_tile_of(c, 2 * pair + p.down - 1) - amx_tile_of(c, 2 * pair);
    if (c->end - c->j <= AMX_COLUMNS) return p;
    const ptrdiff_t bytes = p.steps * c->rows * QUADS;
    for (ptrdiff_t d = 0; d < p.down; d++) amx_copy(&p, first + d * p.to_second, c->copy + d * bytes);
    p.a = c->copy, p.lda = QUADS, p.to_second = bytes, p.next = c->rows * QUADS, p.k = 0;
    return p;
}

/* Steps `from` to `end` of a pair times the panels. */
INLINE void amx_panels(const fo_dtype type, amx_call *c, ptrdiff_t pair, ptrdiff_t from, ptrdiff_t end) {
    const fo_gemm_args *g = c->g;
    amx_pair p = amx_pair_of(c, pair, from, end);
    for (ptrdiff_t j = c->j, columns, panel = 0; j < c->end; j += columns, panel++) {
        columns = fo_panel_columns(g->n - j, VL, AMX_COLUMNS);
        p.b = g->b_groups + 4 * j * g->k * g->segments + 4 * columns * c->groups * from;
        p.sums = c->sums[c->steps > FO_AMX_STEPS ? panel : 0];
        p.ahead = c->ahead, p.fetched = c->ahead < c->known ? c->fetched : 0;
        c->ahead += p.steps * p.fetched * AMX_LINE;
        if (columns > VL)
            p.down > 1 ? amx_steps(type, 2, 2, &p) : amx_steps(type, 1, 2, &p);
        else
            p.down > 1 ? amx_steps(type, 2, 1, &p) : amx_steps(type, 1, 1, &p);
        if (end == c->steps) amx_wait(c, pair, j, columns, p.sums);
    }
}

/* Columns of B that all pairs are multiplied by before the next ones: they stay in the second-level cache. */
INLINE ptrdiff_t amx_width(const fo_gemm_args *g, ptrdiff_t blocks) {
    const ptrdiff_t fitting = FO_AMX_B_BYTES / (4 * AMX_COLUMNS * g->k * g->segments);
    const ptrdiff_t most = blocks > 1 && fitting > FO_AMX_PANELS ? FO_AMX_PANELS : fitting > 2 ? fitting : 2;
    const ptrdiff_t panels = (g->n + AMX_COLUMNS - 1) / AMX_COLUMNS, parts = (panels + most - 1) / most;
    return (panels + parts - 1) / parts * AMX_COLUMNS;
}

/* Some panels at a time, a pair of rows after another. The next panels are fetched meanwhile; one pair alone leaves no
 * time for that. */
INLINE void gemm_amx(const fo_dtype type, const fo_gemm_args *g, ptrdiff_t groups) {
    ptrdiff_t tiles = (g->m + AMX_ROWS - 1) / AMX_ROWS;
    if (tiles > 1 && g->lines == 1) tiles += tiles % 2;
    const ptrdiff_t rows = (g->m + tiles - 1) / tiles, steps = g->k / groups * g->segments;
    int32_t sums[FO_AMX_PANELS][2 * AMX_ROWS * AMX_COLUMNS] __attribute__((aligned(64)));
    uint8_t copy[2 * FO_AMX_STEPS * AMX_ROWS * QUADS] __attribute__((aligned(64)));
    amx_call c = {.g = g, .rows = rows, .groups = groups, .steps = steps, .sums = sums, .copy = copy, .waiting.all = g};
    c.tiles = (g->m + rows - 1) / rows, c.all = c.tiles * g->lines;
    const ptrdiff_t pairs = (c.all + 1) / 2, blocks = (steps + FO_AMX_STEPS - 1) / FO_AMX_STEPS,
                    width = amx_width(g, blocks), of_column = 4 * g->k * g->segments;
    tile_configure(rows, groups);
    for (; c.j < g->n; c.j = c.end) {
        c.end = g->n - c.j < width ? g->n : c.j + width;
        c.ahead = g->b_groups + c.end * of_column;
        c.known = g->b_groups + (g->n - c.end < width ? g->n : c.end + width) * of_column;
        c.fetched = pairs > 1 ? (4 * AMX_COLUMNS * groups / AMX_LINE + pairs - 1) / pairs : 0;
        for (ptrdiff_t pair = 0; pair < pairs; pair++)
            for (ptrdiff_t block = 0; block < blocks; block++)
                amx_panels(type, &c, pair, steps * block / blocks, steps * (block + 1) / blocks);
    }
    AMX_RELEASE(); /* or the system would save them at each switch */
    while (c.waiting.first.left) amx_end_next(type, &c.waiting, rows);
}

/* Few rows are bound by reading weights, few groups by the epilogue. */
void fo_gemm_int8_amx(const fo_gemm_args *g) {
    const ptrdiff_t groups = tile_groups(g->k);
    if (!groups || g->m <= Q_ROWS || g->k * g->segments < AMX_GROUPS) {
        gemm_by_table(FO_S8, g, &tiles_S8, AMX_COLUMNS);
        return;
    }
    FO_RAN("gemm S8 by AMX");
    gemm_amx(FO_S8, g, groups);
}

/* However few rows: a tile adds in another order than a dot product. */
void fo_gemm_bf16_amx(const fo_gemm_args *g) {
    const ptrdiff_t groups = tile_groups(g->k);
    if (!groups || g->k * g->segments < AMX_GROUPS) {
        gemm_by_table(FO_BF16, g, &tiles_BF16, AMX_COLUMNS);
        return;
    }
    if (!g->m) return;
    FO_RAN("gemm BF16 by AMX");
    gemm_amx(FO_BF16, g, groups);
}
