/* C = epilogue(A B) by one step of Strassen's algorithm, in Winograd's form: seven products of blocks in place of
 * eight.
 *
 *     |C00 C01|   |A00 A01|   |B00 B01|        S1 = A10 + A11   S2 = S1 - A00    S3 = A00 - A10   S4 = A01 - S2
 *     |C10 C11| = |A10 A11| * |B10 B11|        T1 = B01 - B00   T2 = B11 - T1    T3 = B11 - B01   T4 = B10 - T2
 *
 *     Q = S1 T1        P = A00 B00      U = P + S2 T2        C00 = P + A01 B10       C01 = U + Q + S4 B11
 *                                       V = U + S3 T3        C10 = V + A11 T4        C11 = V + Q
 *
 * The blocks of C are register tiles and the products one chain, most of which go on with the sums that the one before
 * left in the registers. Q, P and U + Q wait in the first-level cache, each for at least one product, so that no load
 * meets its store.
 */
#include <stdalign.h>

/* The operands S1 S2 S3 S4, or T1 T2 T3 T4, at distances of `part`; after them, where a product must not read X itself,
 * A00 A01 A11 or B00 B10 B11. */
INLINE void strassen_sum(const bool right, const bool copies, vf x00, vf x01, vf x10, vf x11, float *to,
                         ptrdiff_t part) {
    const vf one = right ? v_sub(x01, x00) : v_add(x10, x11), two = v_sub(right ? x11 : one, right ? one : x00);
    v_store(to, one);
    v_store(to + part, two);
    v_store(to + 2 * part, right ? v_sub(x11, x01) : v_sub(x00, x10));
    v_store(to + 3 * part, v_sub(right ? x10 : x01, two));
    if (!copies) return;
    v_store(to + 4 * part, x00);
    v_store(to + 5 * part, right ? x10 : x01);
    v_store(to + 6 * part, x11);
}

INLINE void strassen_operands(const bool right, const bool copies, const fo_strassen_operands *g) {
    for (ptrdiff_t i = 0; i < g->rows[0]; i++) {
        const float *top = g->x + i * g->ldx, *low = top + g->rows[0] * g->ldx;
        const ptrdiff_t below = i < g->rows[1] ? g->columns[0] : 0; /* columns that the lower blocks have in this row */
        float *to = g->to + i * g->ld;
        ptrdiff_t j = 0;
        for (; j + VL <= (below ? g->columns[1] : 0); j += VL)
            strassen_sum(right, copies, v_load(top + j), v_load(top + g->across + j), v_load(low + j),
                         v_load(low + g->across + j), to + j, g->part);
        for (; j < g->columns[0]; j += VL) {
            const ptrdiff_t left = g->columns[0] - j, other = g->columns[1] - j, lower = below ? left : 0,
                            corner = below ? other : 0;
            strassen_sum(right, copies, v_load_tail(top + j, left), v_load_tail(top + g->across + j, other),
                         v_load_tail(low + j, lower), v_load_tail(low + g->across + j, corner), to + j, g->part);
        }
    }
}

void FO_NAME(fo_strassen_operands)(const fo_strassen_operands *g) {
    if (g->right)
        g->copies ? strassen_operands(true, true, g) : strassen_operands(true, false, g);
    else
        g->copies ? strassen_operands(false, true, g) : strassen_operands(false, false, g);
}

/* ---- the chain --------------------------------------------------------------------------------------------------- */

/* The products in the chain's order, and the block of C that each completes: V completes C11 on the way to C10. */
enum { STRASSEN_Q, STRASSEN_P, STRASSEN_C00, STRASSEN_U, STRASSEN_V, STRASSEN_C10, STRASSEN_C01, STRASSEN_END };

typedef struct {
    const fo_strassen_args *g;
    float *q, *u;  /* blocks that wait: Q; P, then U + Q */
    float *tile;   /* a block of C on its way to an epilogue that needs more than registers */
    bool direct;   /* the epilogue needs registers alone */
    ep_bounds end; /* of direct results */
} strassen_chain;

#define EACH_ROW UNROLL_FOR (int i = 0; i < mr; i++)
#define EACH_VECTOR EACH_ROW UNROLL_FOR (int j = 0; j < NV; j++)

/* The first row and column of the block of C that a product completes. */
INLINE int strassen_row(const int step, const int mr) { return step == STRASSEN_V || step == STRASSEN_C10 ? mr : 0; }
INLINE int strassen_column(const int step) { return step == STRASSEN_V || step == STRASSEN_C01 ? NR : 0; }

/* The product for whose block of C there is time to be fetched during this one. */
INLINE int strassen_after(const int step) {
    switch (step) {
        case STRASSEN_P: return STRASSEN_C00;
        case STRASSEN_C00: return STRASSEN_V;
        case STRASSEN_U: return STRASSEN_C10;
        case STRASSEN_C10: return STRASSEN_C01;
        default: return STRASSEN_END;
    }
}

/* What a product multiplies by, taken from X itself: the block `from`, for T1 T2 T3 T4 less another; and which of the
 * operands it is, in the order in which they stand in memory. */
INLINE int strassen_operand(const fo_strassen_args *g, const int step, fo_strassen_block *from,
                            fo_strassen_block *less) {
    const fo_strassen_block b00 = g->b[STRASSEN_P], b01 = {b00.data + NR, b00.ld}, b10 = g->b[STRASSEN_C00],
                            b11 = g->b[STRASSEN_C01];
    switch (step) {
        case STRASSEN_Q: return *from = b01, *less = b00, 0;
        case STRASSEN_U: return *from = b11, *less = g->b[STRASSEN_Q], 1;
        case STRASSEN_V: return *from = b11, *less = b01, 2;
        case STRASSEN_C10: return *from = b10, *less = g->b[STRASSEN_U], 3;
        case STRASSEN_P: return *from = *less = b00, 4;
        case STRASSEN_C00: return *from = *less = b10, 5;
        default: return *from = *less = b11, 6;
    }
}

/* Steps of a product in straight code: 12 or 24 multiply-adds are among 20 or 33 instructions, and what a loop adds to
 * them counts in full on a processor whose other thread is busy. While operands are made fewer of them: where three
 * chains meet a pair of pixels, each of another function, their code would pass the first-level cache (256 -> 64 at
 * 56x56, AVX-512: 0.91 of the time). */
enum { STRASSEN_GROUP = FMA_FROM_MEM || (!MANY_REGS && !IS_SCALAR) ? 4 : 1 };
enum { STRASSEN_MAKING_GROUP = FMA_FROM_MEM ? 2 : STRASSEN_GROUP };

/* Rows of A as it lies that a pointer reaches: few registers reach all. */
enum { STRASSEN_REACH = FMA_FROM_MEM ? 2 : 3, STRASSEN_POINTERS = (MR + STRASSEN_REACH - 1) / STRASSEN_REACH };

/* Whether the multiply-adds of row i read its element of A themselves, an instruction less: not all, for a cycle has
 * two loads, and of rows in place those that a pointer is at, for with two registers in the address they are
 * two instructions again. */
INLINE bool strassen_reads(const bool panels, const int i) {
    return FMA_FROM_MEM && (panels ? i % 3 : i % STRASSEN_REACH == 0);
}

/* One step: the row of B at b, less another, which goes to `to` where operands are made, and column p of A, or a
 * panel's row. */
INLINE void strassen_step(const float *b, const float *less, float *to, const float *const *a, const float *panel,
                          const ptrdiff_t lda, const ptrdiff_t p, const int operand, const bool pixels_right,
                          const int mr, vf acc[MR][NV]) {
    vf bv[NV];
    UNROLL_FOR (int j = 0; j < NV; j++) {
        if (!pixels_right && STRASSEN_GROUP == 1) __builtin_prefetch(b + j * VL + FO_AHEAD_STEPS * NR);
        bv[j] = v_load(b + j * VL);
        if (operand >= 0 && operand < FO_STRASSEN_SUMS) bv[j] = v_sub(bv[j], v_load(less + j * VL));
        if (operand >= 0) v_store(to + j * VL, bv[j]);
    }
    EACH_ROW {
        const float *at = pixels_right ? panel + i : a[i / STRASSEN_REACH] + i % STRASSEN_REACH * lda + p;
        if (strassen_reads(pixels_right, i)) {
            UNROLL_FOR (int j = 0; j < NV; j++) v_fma_at(acc[i][j], at, bv[j]);
        } else {
            const vf av = v_set1(*at);
            UNROLL_FOR (int j = 0; j < NV; j++) v_fma_to(acc[i][j], av, bv[j]);
        }
    }
    if (FMA_FROM_MEM) v_barrier(); /* or loads of the next steps come first, and sums are spilled */
}

/* Fetches a line of what comes later. To the second-level cache where it is weights, too, or columns of pixels, for the
 * first is full of what they make. */
INLINE void strassen_ahead(const float *next, const bool pixels_right) {
    if (pixels_right || STRASSEN_GROUP > 1)
        __builtin_prefetch(next, 0, 2);
    else
        __builtin_prefetch(next);
}

/* Adds a product to the sums. Where the operands are not there yet, they are made on the way: loads, differences and a
 * store are free among multiply-adds. pixels_right: the pixels are B and the weights panels, a step's rows side by
 * side, lda from step to step; else weights are B, which may come from the third-level cache. */
INLINE void strassen_run(const fo_strassen_args *g, const int step, const bool pixels_right, const bool makes,
                         const int mr, vf acc[MR][NV]) {
    const bool grouped = STRASSEN_GROUP > 1, moves = FMA_FROM_MEM && !pixels_right; /* the pointers to rows of A */
    const bool doubled = step == STRASSEN_P || step == STRASSEN_C00 || step == STRASSEN_C10;
    const int group = makes ? STRASSEN_MAKING_GROUP : STRASSEN_GROUP;
    const int lines = grouped && !pixels_right ? (MR + 6) / 7 : group;  /* fetched in a group of steps */
    const bool fetches = pixels_right ? step * LINE_FLOATS < 2 * NR     /* each product a column of lines */
                                      : grouped || step < (MR + 3) / 4; /* a pair has MR / 4 lines a step */
    const ptrdiff_t k = g->k, lda = grouped && pixels_right ? (doubled ? 2 : 1) * mr : g->a[step].ld; /* a literal */
    fo_strassen_block b = g->b[step], less = b;
    const int operand = makes ? strassen_operand(g, step, &b, &less) : -1;
    float *to = makes ? g->operands + operand * (g->b[STRASSEN_U].data - g->b[STRASSEN_Q].data) : NULL;
    const float *a[STRASSEN_POINTERS], *panel = g->a[step].data; /* row i: a[i / REACH] + i % REACH * lda */
    UNROLL_FOR (int i = 0; i < mr; i += STRASSEN_REACH) a[i / STRASSEN_REACH] = panel + i * lda;
    const float *next = g->next.data + (pixels_right ? step * LINE_FLOATS : step * lines * (k / group) * g->next.ld);
    ptrdiff_t p = 0;
    if (grouped) {
        const ptrdiff_t ldb = makes ? b.ld : NR, ldn = g->next.ld;
        for (; p + group <= k; p += group) {
            if (moves && g->ahead)
                UNROLL_FOR (int j = 0; j < group * NV; j++) __builtin_prefetch(b.data + j * VL + FO_AHEAD_STEPS * NR);
            if (fetches && ldn)
                UNROLL_FOR (int u = 0; u < lines; u++) strassen_ahead(next, pixels_right), next += ldn;
            UNROLL_FOR (int u = 0; u < group; u++, b.data += ldb, panel += lda) {
                strassen_step(b.data, less.data, to, a, panel, lda, moves ? u : p + u, operand, pixels_right, mr, acc);
                if (makes) less.data += less.ld, to += NR;
            }
            if (moves)
                UNROLL_FOR (int i = 0; i < mr; i += STRASSEN_REACH) {
                    a[i / STRASSEN_REACH] += group;
                    v_launder(a[i / STRASSEN_REACH]);
                }
        }
    }
    if (pixels_right && !g->next.ld) next = (const float *)g; /* nothing to fetch: a line that is near */
    for (; p < k; p++, b.data += b.ld, panel += lda) {
        if (fetches && (pixels_right || !grouped)) strassen_ahead(next, pixels_right), next += g->next.ld;
        strassen_step(b.data, less.data, to, a, panel, lda, moves ? p % group : p, operand, pixels_right, mr, acc);
        if (makes) less.data += less.ld, to += NR;
    }
}

/* Fetches the block of C that product `step` completes, and what is added to it: a second-level cache of half a
 * megabyte may hold neither, one of two not those of many channels (128 -> 512 at 28x28, 256 -> 128 at 56x56, AVX-512:
 * 0.94 of the time). */
INLINE void strassen_fetch(const fo_strassen_args *g, const int step, const int mr) {
    const ptrdiff_t row = strassen_row(step, mr), column = strassen_column(step), ldc = g->ldc, ldr = g->ep.ldr;
    const float *c = g->c + row * ldc + column, *r = g->ep.residual;
    for (int i = 0; i < mr; i++) __builtin_prefetch(c + i * ldc, 1), __builtin_prefetch(c + i * ldc + NR - 1, 1);
    if (r)
        for (int i = 0; i < mr; i++)
            __builtin_prefetch(r + (row + i) * ldr + column), __builtin_prefetch(r + (row + i) * ldr + column + NR - 1);
}

/* What the sums of a product still lack when it ends: bias and residual of the block of C. Channels as rows: the lower
 * bias is in V, which C10 goes on with; as columns: the right one is in Q, which C01 goes on with. */
INLINE void strassen_complete(const strassen_chain *s, const int step, const bool channel_rows, const int mr,
                              vf acc[MR][NV]) {
    const fo_epilogue *ep = &s->g->ep;
    const int row = strassen_row(step, mr), column = strassen_column(step);
    if (channel_rows && step != STRASSEN_C10)
        EACH_VECTOR acc[i][j] = v_add(acc[i][j], v_set1(ep->bias[row + i]));
    else if (!channel_rows && (step == STRASSEN_C00 || step == STRASSEN_C10))
        EACH_VECTOR acc[i][j] = v_add(acc[i][j], v_load(ep->bias + j * VL));
    if (!ep->residual || !s->direct) return;
    const float *r = (const float *)ep->residual + row * ep->ldr + column;
    if (step == STRASSEN_V) /* C10 goes on without it */
        EACH_VECTOR v_store(s->q + i * NR + j * VL,
                            v_add(v_load(s->q + i * NR + j * VL), v_load(r + i * ep->ldr + j * VL)));
    else
        EACH_VECTOR acc[i][j] = v_add(acc[i][j], v_load(r + i * ep->ldr + j * VL));
}

/* Stores the sums, plus q where it is given, which may be results; they stay as they are. */
INLINE void strassen_leave(const strassen_chain *s, const float *q, const bool results, const int mr, vf acc[MR][NV],
                           float *to, ptrdiff_t ld) {
    const ep_bounds end = s->end;
    EACH_ROW {
        UNROLL_FOR (int j = 0; j < NV; j++) {
            vf sum = q ? v_add(acc[i][j], v_load(q + i * NR + j * VL)) : acc[i][j];
            if (results)
                ep_store(&end, to + i * ld + j * VL, sum);
            else
                v_store(to + i * ld + j * VL, sum);
        }
        v_barrier(); /* sums that wait for their store would need registers */
    }
}

/* A product. Its sums go on with those in the registers unless it begins anew. */
INLINE void strassen_product(const strassen_chain *s, const int step, const bool channel_rows, const bool makes,
                             const int mr, vf acc[MR][NV]) {
    const fo_strassen_args *g = s->g;
    const fo_epilogue *ep = &g->ep;
    if (step == STRASSEN_Q)
        EACH_VECTOR acc[i][j] = channel_rows ? v_zero() : v_load(ep->bias + NR + j * VL);
    else if (step == STRASSEN_P)
        EACH_VECTOR acc[i][j] = v_zero();
    else if (step == STRASSEN_U || step == STRASSEN_C01)
        EACH_VECTOR acc[i][j] = v_load(s->u + i * NR + j * VL);
    if (STRASSEN_GROUP > 1 && strassen_after(step) != STRASSEN_END) strassen_fetch(g, strassen_after(step), mr);
    strassen_run(g, step, channel_rows, makes, mr, acc);
    if (step < STRASSEN_C00 || step == STRASSEN_U) {
        strassen_leave(s, step == STRASSEN_U ? s->q : NULL, false, mr, acc, step == STRASSEN_Q ? s->q : s->u, NR);
        return;
    }
    strassen_complete(s, step, channel_rows, mr, acc);
    const ptrdiff_t row = strassen_row(step, mr), column = strassen_column(step);
    float *c = g->c + row * g->ldc + column;
    strassen_leave(s, step == STRASSEN_V ? s->q : NULL, true, mr, acc, s->direct ? c : s->tile,
                   s->direct ? g->ldc : NR);
    if (s->direct) return;
    ep_tile(ep, s->tile, NR, (int)g->rows[row > 0], NR, row, column, g->c, g->ldc);
}

/* The four blocks of C, each of mr rows and NR columns. */
INLINE void strassen_tile(const strassen_chain *s, const bool channel_rows, const bool makes, const int mr) {
    vf acc[MR][NV];
    strassen_product(s, STRASSEN_Q, channel_rows, makes, mr, acc);
    strassen_product(s, STRASSEN_P, channel_rows, makes, mr, acc);
    strassen_product(s, STRASSEN_C00, channel_rows, makes, mr, acc);
    strassen_product(s, STRASSEN_U, channel_rows, makes, mr, acc);
    strassen_product(s, STRASSEN_V, channel_rows, makes, mr, acc);
    strassen_product(s, STRASSEN_C10, channel_rows, makes, mr, acc);
    strassen_product(s, STRASSEN_C01, channel_rows, makes, mr, acc);
}
#undef EACH_ROW
#undef EACH_VECTOR

/* A function for each height of pairs that are nearly equal, two or more of them: channels as rows, with and without
 * making the operands, and as columns. */
typedef void strassen_fn(const strassen_chain *s);
#define FITS(mr) (mr <= MR && 2 * mr >= MR)
#define TILE(mr) \
    static void strassen_makes_##mr(const strassen_chain *s) { strassen_tile(s, true, true, FITS(mr) ? mr : 1); } \
    static void strassen_rows_##mr(const strassen_chain *s) { strassen_tile(s, true, false, FITS(mr) ? mr : 1); } \
    static void strassen_columns_##mr(const strassen_chain *s) { strassen_tile(s, false, false, FITS(mr) ? mr : 1); }
#define PLACE(channels, mr) FITS(mr) ? strassen_##channels##_##mr : NULL
#define HEIGHTS(channels) \
    {PLACE(channels, 1), PLACE(channels, 2), PLACE(channels, 3), PLACE(channels, 4), \
     PLACE(channels, 5), PLACE(channels, 6), PLACE(channels, 7), PLACE(channels, 8), \
     PLACE(channels, 9), PLACE(channels, 10), PLACE(channels, 11), PLACE(channels, 12)}
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)
static strassen_fn *const strassen_tiles[3][12] = {HEIGHTS(columns), HEIGHTS(rows), HEIGHTS(makes)};
#undef FITS
#undef PLACE
#undef TILE
#undef HEIGHTS

void FO_NAME(fo_strassen)(const fo_strassen_args *g) {
    alignas(64) float q[MR * NR], u[MR * NR], tile[MR * NR];
    const bool direct = g->rows[0] == g->rows[1] && fo_in_registers(&g->ep.act);
    const fo_activation none = {.kind = FO_IDENTITY};
    const strassen_chain s = {g, q, u, tile, direct, ep_start(direct ? &g->ep.act : &none)};
    strassen_tiles[g->operands ? 2 : g->ep.channel_rows][g->rows[0] - 1](&s);
}
