/* The transform of the output, y = activation(A^T M A + bias + residual): rows first, to `mid`, then columns.
 *
 *     y  <- columns  mid[row][column][channel]  <- row i  M[position of row i][tile][channel]
 *
 * By rows of positions, or all positions at once by strips, as the input's (input.h).
 */

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* A row of tiles of one width: the row's positions in M, and its row of mid. */
typedef struct {
    const float *products;
    ptrdiff_t ldp, position, tiles, channels;
    float *mid;
    ptrdiff_t ld;
} output_row;

INLINE void restore_row(const int stride, const int m, const int width, const output_row *g) {
    const bool strip = g->channels <= VL; /* of one vector: tiles are the inner loop */
    const ptrdiff_t vectors = (g->channels + VL - 1) / VL, mid_tile = width * g->ld;
    const ptrdiff_t outer = strip ? 1 : g->tiles, inner = strip ? g->tiles : vectors;
    const ptrdiff_t from_step = strip ? g->ldp : VL, to_step = strip ? mid_tile : VL;
    for (ptrdiff_t t = 0; t < outer; t++) {
        walk from = walk_from(g->products + t * g->ldp, g->position), to = walk_from(g->mid + t * mid_tile, g->ld);
        for (ptrdiff_t i = 0; i < inner; i++) {
            vf d[MAX_VALUES];
            load_all(points_of(stride, width), &from, d);
            output_transform(stride, m, width, d);
            store_all(width, &to, d);
            walk_on(&from, from_step), walk_on(&to, to_step);
        }
    }
}

static __attribute__((noinline)) void row_out(int stride, int tile, int width, const output_row *g) {
    WITH_TILE(stride, tile, width, restore_row(STRIDE, TILE, SIZE, g));
}

/* ---- columns --------------------------------------------------------------------------------------------------- */

/* Some columns of y: `rows` rows of them are wanted. */
typedef struct {
    fo_image y, r; /* data: the first pixel and channel; r.data is NULL where there is no residual */
    ptrdiff_t rows, columns, channels;
    const float *bias;
    fo_activation act;
    one_sided mid;
} output_columns;

/* d = A^T of a column of mid, and the bias. */
INLINE void restore_column(const int stride, const int m, const int height, const walk *from, vf bias, vf *d) {
    load_all(points_of(stride, height), from, d);
    output_transform(stride, m, height, d);
    UNROLL_FOR (int i = 0; i < height; i++) d[i] = v_add(d[i], bias);
}

/* From the registers to y: all rows, channels that are neighbors, in whole vectors, and a clip at most. */
INLINE void columns_direct(const int stride, const int m, const int height, const output_columns *g,
                           ptrdiff_t channels) {
    const ep_bounds ep = ep_start(&g->act);
    for (ptrdiff_t q = 0; q < g->columns; q++) {
        walk from = walk_from(g->mid.p + q * g->mid.ld, g->mid.row), y = walk_from(g->y.data + q * g->y.sw, g->y.sh);
        const float *r = g->r.data ? g->r.data + q * g->r.sw : NULL;
        for (ptrdiff_t o = 0; o < channels; o += VL) {
            vf d[MAX_VALUES];
            restore_column(stride, m, height, &from, g->bias ? v_load(g->bias + o) : v_zero(), d);
            if (r)
                UNROLL_FOR (int i = 0; i < height; i++) d[i] = v_add(d[i], v_load(r + i * g->r.sh + o));
            UNROLL_FOR (int i = 0; i < height; i++) ep_store(&ep, walk_at(&y, i), d[i]);
            walk_on(&from, VL), walk_on(&y, VL);
        }
    }
}

/* By way of a block of a line of columns and VL channels; a line of each channel of y is fetched meanwhile. */
INLINE void columns_by_block(const int stride, const int m, const int height, const output_columns *g, ptrdiff_t o) {
    enum { ROW = LINE_FLOATS * VL };
    const bool nhwc = g->y.sc == 1;
    const ptrdiff_t lanes = fewer(g->channels - o, VL);
    const vf bias = g->bias ? v_load_tail(g->bias + o, lanes) : v_zero();
    alignas(64) float block[6 * ROW];
    for (ptrdiff_t q = 0; q < g->columns; q += LINE_FLOATS) {
        const ptrdiff_t columns = fewer(g->columns - q, LINE_FLOATS);
        float *y = g->y.data + o * g->y.sc + q * g->y.sw;
        walk from = walk_from(g->mid.p + q * g->mid.ld + o, g->mid.row), to = walk_from(block, ROW);
        for (ptrdiff_t p = 0; p < columns; p++, walk_on(&from, g->mid.ld), walk_on(&to, VL)) {
            if (!nhwc && p < lanes)
                UNROLL_FOR (int i = 0; i < height; i++) __builtin_prefetch(y + p * g->y.sc + i * g->y.sh, 1);
            vf d[MAX_VALUES];
            restore_column(stride, m, height, &from, bias, d);
            store_all(height, &to, d);
        }
        finish_args f = {.mr = (int)columns,
                         .n = (int)lanes,
                         .ldt = VL,
                         .ldr = nhwc ? g->r.sw : g->r.sc,
                         .ldc = nhwc ? g->y.sw : g->y.sc,
                         .slopes = g->act.slopes ? g->act.slopes + o : NULL,
                         .p0 = g->act.p0,
                         .p1 = g->act.p1};
        for (int i = 0; i < g->rows; i++) {
            f.tile = block + i * ROW, f.c = y + i * g->y.sh;
            f.r = g->r.data ? g->r.data + o * g->r.sc + i * g->r.sh + q * g->r.sw : NULL;
            FO_NAME(fo_finish_tile)(&f, g->act.kind, !nhwc);
        }
    }
}

INLINE void restore_columns(const int stride, const int m, const int height, const output_columns *g) {
    const bool direct = g->y.sc == 1 && g->rows == height && fo_in_registers(&g->act);
    const ptrdiff_t whole = direct ? g->channels / VL * VL : 0;
    if (whole) {
        FO_RAN("winograd out registers");
        columns_direct(stride, m, height, g, whole);
    }
    if (whole < g->channels) FO_RAN("winograd out block");
    for (ptrdiff_t o = whole; o < g->channels; o += VL) columns_by_block(stride, m, height, g, o);
}

static __attribute__((noinline)) void columns_out(int stride, int tile, int height, const output_columns *g) {
    WITH_TILE(stride, tile, height, restore_columns(STRIDE, TILE, SIZE, g));
}

/* ---- by rows of positions, and all at once --------------------------------------------------------------------- */

/* The call's columns from q on, channels from o on. */
static output_columns columns_to(const fo_winograd_output_args *g, ptrdiff_t q, ptrdiff_t columns, ptrdiff_t o,
                                 ptrdiff_t channels, one_sided mid) {
    output_columns c = {.y = g->y,
                        .r = g->r,
                        .rows = g->rows,
                        .columns = columns,
                        .channels = channels,
                        .bias = g->bias ? g->bias + o : NULL,
                        .act = g->act,
                        .mid = mid};
    c.y.data += q * g->y.sw + o * g->y.sc;
    if (g->r.data) c.r.data += q * g->r.sw + o * g->r.sc;
    if (g->act.slopes) c.act.slopes += o;
    return c;
}

void FO_NAME(fo_winograd_back_row)(const fo_winograd_output_args *g, int i) {
    output_row r = {.products = g->products,
                    .ldp = g->ldp,
                    .position = g->position,
                    .tiles = g->count,
                    .channels = g->channels,
                    .mid = g->mid + i * g->mid_row,
                    .ld = g->ldp};
    row_out(g->stride, g->tile, g->tile, &r);
    r.products = g->products_last, r.mid += g->count * g->tile * g->ldp, r.tiles = 1;
    row_out(g->stride, g->tile, g->last, &r);
}

void FO_NAME(fo_winograd_back_columns)(const fo_winograd_output_args *g) {
    const output_columns c = columns_to(g, 0, g->columns, 0, g->channels, (one_sided){g->mid, g->ldp, g->mid_row});
    columns_out(g->stride, g->tile, g->height, &c);
}

/* All rows of a strip's tiles of one width. */
static void strip_rows_back(const fo_winograd_output_args *g, int width, ptrdiff_t tiles, const float *products,
                            float *strip) {
    const ptrdiff_t points = points_of(g->stride, g->tile);
    for (int i = 0; i < points_of(g->stride, g->height); i++, products += points * g->position, strip += STRIP_ROW)
        row_out(g->stride, g->tile, width, &(output_row){products, g->ldp, g->position, tiles, VL, strip, VL});
}

void FO_NAME(fo_winograd_output)(const fo_winograd_output_args *g) {
    const ptrdiff_t tiles = FO_WINOGRAD_STRIP / g->tile;
    alignas(64) float strip[MAX_VALUES * STRIP_ROW];
    for (ptrdiff_t o = 0; o < g->channels; o += VL)
        for (ptrdiff_t t = 0; t * g->tile < g->columns; t += tiles) {
            const ptrdiff_t count = clamped(g->count - t, 0, tiles), q = t * g->tile;
            strip_rows_back(g, g->tile, count, g->products + t * g->ldp + o, strip);
            float *last = strip + count * g->tile * VL;
            if (count < tiles && g->last) strip_rows_back(g, g->last, 1, g->products_last + o, last);
            const int width = fewer(g->columns - q, FO_WINOGRAD_STRIP);
            const output_columns c =
                columns_to(g, q, width, o, fewer(g->channels - o, VL), (one_sided){strip, VL, STRIP_ROW});
            columns_out(g->stride, g->tile, g->height, &c);
        }
}
