/* Tiles of one shape in one function, down the rows of C, and at each place across the panels of B: what is around
 * a tile's multiply-adds, 150 instructions with a call for each, is a third of those of 16 steps.
 *
 *      C          panel 0    panel 1    panel 2
 *   rows 0..11  [ tile 0 ] [ tile 1 ] [ tile 2 ]
 *   rows 12..   [ tile 3 ] ...
 *
 * One panel at a time its B stays in the first-level cache while the rows of A pass. Products of few steps write more
 * than they read: with vectors of a whole line they go across all panels, so that C is written in long runs.
 */

/* `count` tiles of one shape, the first at row i and column j. */
typedef struct {
    const fo_gemm_args *g;
    ptrdiff_t i, j, count;
    bool across;           /* the next one is in the next panel, else below */
    bool direct;           /* results go from registers to C */
    bool fetches, results; /* lines of the residual, of C */
    int wanted;            /* columns that are stored of a tile */
} tile_stack;

/* Fetches nv vectors of a row of C or of what is added to it; NumPy's arrays begin anywhere in a cache line. */
INLINE void stack_fetch_row(const float *row, const int nv) {
    UNROLL_FOR (int j = 0; j < nv * VL; j += LINE_FLOATS) __builtin_prefetch(row + j, 1);
    __builtin_prefetch(row + nv * VL - 1, 1);
}

/* The rows of a tile of C, if `results`, and of the residual. */
INLINE void stack_fetch(const fo_gemm_args *g, const bool results, const float *c, const float *r, const int mr,
                        const int nv) {
    for (int i = 0; i < mr; i++) {
        if (results) stack_fetch_row(c + i * g->ldc, nv);
        if (r) stack_fetch_row(r + i * g->ep.ldr, nv);
    }
}

/* A bias of `wanted` columns, fewer than a tile has. */
static __attribute__((noinline)) const float *stack_bias(const float *bias, int wanted, int columns, float *to) {
    for (int v = 0; v < columns; v += VL) v_store(to + v, v_load_tail(bias + v, wanted - v));
    return to;
}

/* The sums that a tile starts with: rows at `from`, ld apart, or (by_rows) a value for each row. */
INLINE void stack_begin(const tile_shape s, const bool by_rows, vf acc[MR][EP_VECTORS], const float *from,
                        const ptrdiff_t ld) {
    UNROLL_FOR (int r = 0; r < s.mr; r++, from += by_rows ? 1 : ld) {
        UNROLL_FOR (int v = 0; v < s.nv; v++) acc[r][v] = by_rows ? v_set1(*from) : v_load(from + v * VL);
        if (!s.half || r % 2) continue;
        const int below = r + 1 < s.mr;
        acc[r][s.nv] = by_rows ? v_halves(v_set1(*from), v_set1(from[below]))
                               : v_load_halves(from + s.nv * VL, from + s.nv * VL + (below ? ld : 0));
    }
}

/* Adds sign times other sums, laid out as the first. */
INLINE void stack_add(const tile_shape s, vf acc[MR][EP_VECTORS], const float *from, const ptrdiff_t ld,
                      const float sign) {
    UNROLL_FOR (int r = 0; r < s.mr; r++, from += ld)
        UNROLL_FOR (int v = 0; v < s.nv; v++) acc[r][v] = v_fma(v_set1(sign), v_load(from + v * VL), acc[r][v]);
}

/* The end of a tile that does not go to C from its registers. */
INLINE void stack_end(const tile_stack *t, const tile_shape s, vf acc[MR][EP_VECTORS], ptrdiff_t i, ptrdiff_t j,
                      float *tile) {
    const int width = (s.nv + s.half) * VL;
    UNROLL_FOR (int r = 0; r < s.mr; r++) {
        UNROLL_FOR (int v = 0; v < s.nv; v++) v_store(tile + r * width + v * VL, acc[r][v]);
        if (s.half && r % 2 == 0)
            v_store_halves(tile + r * width + s.nv * VL, tile + (r + 1) * width + s.nv * VL, acc[r][s.nv]);
    }
    ep_tile(&t->g->ep, tile, width, s.mr, t->wanted, i, j, t->g->c, t->g->ldc);
}

/* What is fetched while tiles of mr rows pass `panel`: the caller's `next`, or the panel after, or where one tile
 * reads a panel what follows in it. */
INLINE tile_ahead stack_ahead(const fo_gemm_args *g, const tile_shape s, ptrdiff_t i, const float *panel) {
    enum { FETCHED = 4 * LINE_FLOATS };                                 /* floats at once */
    enum { STEPS = FETCHED < STRAIGHT * NR ? STRAIGHT : FETCHED / NR }; /* at once: the reduction goes by STRAIGHT */
    const int mr = s.mr, row = NR * (int)fo_size(s.type) / 4;
    if (mr == g->m && !g->next) return (tile_ahead){panel + FO_AHEAD_STEPS * row, STEPS * row, STEPS};
    const ptrdiff_t floats = g->next ? g->next_floats : g->k * row, share = (mr * floats / g->k + g->m - 1) / g->m;
    const ptrdiff_t steps = share ? (FETCHED / share + 4) / 4 * 4 : g->k;
    return (tile_ahead){(g->next ? g->next : panel + g->panel) + i * (floats / g->m), steps * share, steps};
}

/* All steps of the tile whose rows of A begin at a, and its part of B, from column j on, at b. */
INLINE void stack_steps(const fo_gemm_args *g, const tile_shape s, vf acc[MR][EP_VECTORS], const float *a,
                        const float *b, const ptrdiff_t j, tile_ahead *ahead) {
    tile_place place = {.b = b};
    UNROLL_FOR (int q = 0; q < s.mr; q += REACH) {
        place.rows[q / REACH] = a + q * g->lda;
        v_launder(place.rows[q / REACH]); /* or each address that is read there is kept on the stack */
    }
    if (UNPACKS(s.form))
        blockwise_steps(g, s, acc, place.rows, j);
    else
        tile_steps(g, s, acc, &place, ahead);
}

/* The tiles of a stack. */
INLINE void stack_tiles(const tile_stack *t, const tile_shape s) {
    static const float zeros[EP_VECTORS * VL];
    const fo_gemm_args *g = t->g;
    const fo_epilogue *ep = &g->ep;
    const ep_bounds bounds = ep_start(&ep->act);
    const bool bias = !g->start && ep->bias, by_rows = bias && ep->channel_rows;
    const ptrdiff_t i = t->i, j = t->j, down = t->across ? 0 : s.mr, right = t->across ? NR : 0;
    const ptrdiff_t lda = g->lda, ldc = g->ldc, ldr = ep->ldr, lds = g->start ? g->lds : 0;
    const ptrdiff_t next_a = down * lda, next_b = t->across ? g->panel : 0, next_c = down * ldc + right;
    const ptrdiff_t next_r = ep->residual ? down * ldr + right : 0;
    const ptrdiff_t next_sums = g->start ? down * lds + right : bias ? right : 0;
    const float *a = g->a + i * lda, *b = g->b + j / NR * g->panel,
                *r = ep->residual ? (const float *)ep->residual + i * ldr + j : NULL;
    const float *from = g->start ? g->start + i * lds + j : bias ? ep->bias + j : zeros;
    float *c = g->c + i * ldc + j, sums[(MR * NV + MR) * VL], edge[EP_VECTORS * VL];
    if (bias && !by_rows && t->wanted < s.nv * VL) from = stack_bias(from, t->wanted, s.nv * VL, edge);
    tile_ahead ahead = {b, 0, g->k};
    if (s.nv == NV && s.form != FO_B_TABLE && !UNPACKS(s.form) && g->k > FO_FEW_STEPS) ahead = stack_ahead(g, s, i, b);
    for (ptrdiff_t done = 0; done < t->count; done++) {
        vf acc[MR][EP_VECTORS];
        if (by_rows)
            stack_begin(s, true, acc, ep->bias + i + done * down, 0);
        else
            stack_begin(s, false, acc, from, lds);
        if (g->accum2) stack_add(s, acc, g->accum2 + (from - g->start), lds, g->sign);
        if (t->fetches) stack_fetch(g, t->results, c, r, s.mr, s.nv);
        stack_steps(g, s, acc, a, b, j, &ahead);
        if (t->direct)
            ep_rows(&bounds, s.mr, s.nv, s.half, acc, r, ldr, c, ldc);
        else
            stack_end(t, s, acc, i + done * down, j + done * right, sums);
        a += next_a, b += next_b, c += next_c, r += next_r, from += next_sums;
        v_launder(a); /* or each row of A and C would take a pointer */
    }
}

/* A function for each height and width that the registers hold, or the compiler would share registers between tiles.
 * Widths are in halves of a vector. gemm_width gives few rows of packed B four vectors, not three. */
typedef void tile_fn(const tile_stack *t);
#define FITS(form, width, mr) \
    (mr <= MR && mr * (width / 2) <= MR * NV && (!IS_SCALAR || width == 2 || width == 2 * NV) && \
     (form != FO_ROWS || width != 6 || 8 * mr > MR * NV) && (!UNPACKS(form) || mr <= BLOCKWISE_HIGH) && \
     (form != FO_UNPACKING || mr > FO_BLOCKWISE_ROWS / 2 || mr == BLOCKWISE_HIGH))
#define TILE(form, type, width, mr) \
    static void tile_##form##_##type##_##width##_##mr(const tile_stack *t) { \
        FO_RAN("gemm " #form " " #type " " #mr "x" #width "/2"); \
        stack_tiles(t, (tile_shape){FITS(form, width, mr) ? mr : 1, width / 2, width % 2, form, FO_##type}); \
    }
#define PLACE(form, type, width, mr) FITS(form, width, mr) ? tile_##form##_##type##_##width##_##mr : NULL,
#define EACH_HEIGHT(X, form, type, width) \
    X(form, type, width, 1) X(form, type, width, 2) X(form, type, width, 3) X(form, type, width, 4) \
    X(form, type, width, 5) X(form, type, width, 6) X(form, type, width, 7) X(form, type, width, 8) \
    X(form, type, width, 9) X(form, type, width, 10) X(form, type, width, 11) X(form, type, width, 12)
#define TILES(form, type, width) \
    EACH_HEIGHT(TILE, form, type, width) \
    static tile_fn *const tiles_##form##_##type##_##width[] = {EACH_HEIGHT(PLACE, form, type, width)};
#define ROWS_OF(type) TILES(FO_ROWS, type, 4) TILES(FO_ROWS, type, 8) TILES(FO_ROWS, type, 16)
#define WIDTH(form, type, width) [width] = tiles_##form##_##type##_##width
#define WIDTHS_OF(type) \
    [FO_##type] = {WIDTH(FO_ROWS, type, 4), WIDTH(FO_ROWS, type, 8), WIDTH(FO_ROWS, type, 16)},
_Static_assert(MR <= 12, "a height for each number of rows");
FO_EACH_WEIGHT(ROWS_OF)
TILES(FO_ROWS, F32, 2)
TILES(FO_ROWS, F32, 3)
TILES(FO_ROWS, F32, 6)
TILES(FO_A_TABLE, F32, 2)
TILES(FO_A_TABLE, F32, 4)
TILES(FO_A_TABLE, F32, 6)
TILES(FO_B_TABLE, F32, 2)
TILES(FO_B_TABLE, F32, 4)
TILES(FO_B_TABLE, F32, 6)
TILES(FO_B_TABLE, F32, 8)
TILES(FO_BLOCKWISE, F32, 4)
TILES(FO_UNPACKING, F32, 4)
typedef tile_fn *const *tiles_of_widths[17];                                /* by width, then by height */
static const tiles_of_widths tiles_of_rows[] = {FO_EACH_WEIGHT(WIDTHS_OF)}; /* by type */
static const tiles_of_widths tiles_of_form[] = {
    [FO_ROWS] = {WIDTH(FO_ROWS, F32, 2), WIDTH(FO_ROWS, F32, 3), WIDTH(FO_ROWS, F32, 6)}, /* parts of a panel */
    [FO_A_TABLE] = {WIDTH(FO_A_TABLE, F32, 2), WIDTH(FO_A_TABLE, F32, 4), WIDTH(FO_A_TABLE, F32, 6)},
    [FO_B_TABLE] = {WIDTH(FO_B_TABLE, F32, 2), WIDTH(FO_B_TABLE, F32, 4), WIDTH(FO_B_TABLE, F32, 6),
                    WIDTH(FO_B_TABLE, F32, 8)},
    [FO_BLOCKWISE] = {WIDTH(FO_BLOCKWISE, F32, 4)},
    [FO_UNPACKING] = {WIDTH(FO_UNPACKING, F32, 4)},
};

INLINE tile_fn *const *tiles_of(const fo_gemm_args *g, const int width) {
    return (g->form == FO_ROWS && width % (2 * NV) == 0 ? tiles_of_rows[g->b_type] : tiles_of_form[g->form])[width];
}
#undef FITS
#undef TILE
#undef PLACE
#undef EACH_HEIGHT
#undef TILES
#undef ROWS_OF
#undef WIDTH
#undef WIDTHS_OF
