/* 1x1 convolutions by one step of Strassen's algorithm: the walk over pairs of blocks. Formula:
 * kernels/strassen_sums.h.
 *
 * The product is that of direct.c, C = A B: pixels are rows of A for NHWC, columns of B for NCHW, and the channels of
 * the image the reduction, halved. A block of rows is paired with the block below it, a block of columns with its
 * neighbor:
 *
 *             reduction              pair   pair  rest
 *           +-----+-----+           +--+--+--+--+-+
 *           | A00 | A01 |       B   |00|01|  |  | |
 *      pair +-----+-----+           +--+--+--+--+-+
 *           | A10 | A11 |           |10|11|  |  | |
 *           +-----+-----+           +--+--+--+--+-+
 *
 * The operands that weights give are computed once, in the plan. A task computes those of its pixels, which stay in
 * the cache while it goes through the pairs of weights. Columns that fill no pair are left to the direct product.
 *
 * Pairs are of one image and follow from its size and the memory order that the layer is made for, so that results
 * depend neither on the batch nor on threads. Images of other strides go by way of a copy.
 */
#include "../../dispatch/estimate.h"
#include "../../machine/machine.h"
#include "../../machine/tune.h"
#include "../cost.h"
#include "strassen_parts.h"

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* In the order of the products, one store each: copies of a list would load what has just been stored, in pieces of
 * another size. */
static void order(fo_strassen_block to[], fo_strassen_block q, fo_strassen_block p, fo_strassen_block c00,
                  fo_strassen_block u, fo_strassen_block v, fo_strassen_block c10, fo_strassen_block c01) {
    to[0] = q, to[1] = p, to[2] = c00, to[3] = u, to[4] = v, to[5] = c10, to[6] = c01;
}

/* The operands of each product, from a pair's panels of weights; */
static void order_panels(const fo_conv2d *plan, ptrdiff_t mr, const float *panels, fo_strassen_block to[]) {
    const ptrdiff_t part = mr * half_of(plan);
    const float *plain = panels + FO_STRASSEN_SUMS * part;
    const fo_strassen_block s1 = {panels, mr}, s2 = {panels + part, mr}, s3 = {panels + 2 * part, mr};
    const fo_strassen_block s4 = {panels + 3 * part, mr};
    const fo_strassen_block a00 = {plain, 2 * mr}, a01 = {plain + 2 * part, 2 * mr}, a11 = {a01.data + mr, 2 * mr};
    order(to, s1, a00, a01, s2, s3, a11, s4);
}

/* or sums, and blocks of X from after the sums or, where x is given, from X itself. */
static void order_left(const fo_conv2d *plan, pair r, const float *sums, ptrdiff_t ld, const float *x, ptrdiff_t ldx,
                       fo_strassen_block to[]) {
    const ptrdiff_t part = plan->kn->mr * ld, half = half_of(plan);
    const fo_strassen_block s1 = {sums, ld}, s2 = {sums + part, ld}, s3 = {sums + 2 * part, ld};
    const fo_strassen_block s4 = {sums + 3 * part, ld};
    const float *own = sums + FO_STRASSEN_SUMS * part;
    const fo_strassen_block a00 = x ? (fo_strassen_block){x + r.at * ldx, ldx} : (fo_strassen_block){own, ld};
    const fo_strassen_block a01 = x ? (fo_strassen_block){a00.data + half, ldx} : (fo_strassen_block){own + part, ld};
    const fo_strassen_block a11 =
        x ? (fo_strassen_block){a01.data + r.size[0] * ldx, ldx} : (fo_strassen_block){own + 2 * part, ld};
    order(to, s1, a00, a01, s2, s3, a11, s4);
}

static void order_right(const fo_conv2d *plan, const float *sums, ptrdiff_t part, const float *x, ptrdiff_t ldx,
                        fo_strassen_block to[]) {
    const ptrdiff_t nr = plan->kn->nr;
    const fo_strassen_block t1 = {sums, nr}, t2 = {sums + part, nr}, t3 = {sums + 2 * part, nr};
    const fo_strassen_block t4 = {sums + 3 * part, nr};
    const float *own = sums + FO_STRASSEN_SUMS * part;
    const fo_strassen_block b00 = x ? (fo_strassen_block){x, ldx} : (fo_strassen_block){own, nr};
    const fo_strassen_block b10 =
        x ? (fo_strassen_block){x + half_of(plan) * ldx, ldx} : (fo_strassen_block){own + part, nr};
    const fo_strassen_block b11 = x ? (fo_strassen_block){b10.data + nr, ldx} : (fo_strassen_block){own + 2 * part, nr};
    order(to, t1, b00, b10, t2, t3, t4, b11);
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const fo_conv2d *plan;
    fo_image x, y, r; /* an image is one row of pixels; r.data is NULL where there is no residual */
    ptrdiff_t images, pixels;
    bool columns; /* pixels are columns, else rows */
    /* a pass before the products makes the operands, so that these do not read the image itself */
    bool copies;
    const float *packed, *bias;
    /* of the first channel; what is added to it and its slopes are set for each block of the result */
    fo_epilogue ep;
    ptrdiff_t ldc;
    rows rows;                /* pixels, or where those are columns channels, in pairs */
    const float *panels;      /* columns: plain weights for pixels that are rows, where they are small, */
    ptrdiff_t *table;         /* and where those find step p of the reduction */
    ptrdiff_t pairs, weights; /* of an image's pixels, and of the weights */
    ptrdiff_t share;          /* columns: pairs of weights of a task */
    ptrdiff_t down, across;   /* tasks of an image */
    bool by_weights;          /* columns: a thread has its part of the weights for all pixels */
    bool fetches;             /* columns: the next pair may come from beyond the second-level cache */
    bool whole;               /* rows: no pair of them is cut between tasks */
    bool stay;                /* rows: the cache holds all weights */
    int threads;
    float *scratch;
    ptrdiff_t scratch_each; /* floats of a thread */
} strassen;

/* The place in C of output channel o and pixel p of image n, and what the epilogue has there. */
static float *aim(const strassen *s, ptrdiff_t n, ptrdiff_t o, ptrdiff_t p, fo_epilogue *ep) {
    ep->bias = s->bias + o;
    if (s->ep.act.slopes) ep->act.slopes = s->ep.act.slopes + o;
    if (s->r.data) ep->residual = fo_at(&s->r, n, o, 0, p);
    return fo_at(&s->y, n, o, 0, p);
}

/* The same for a product that is not a chain's. */
static void place(const strassen *s, ptrdiff_t n, ptrdiff_t o, ptrdiff_t p, fo_gemm_args *g) {
    g->ep = s->ep, g->ldc = s->ldc;
    g->c = aim(s, n, o, p, &g->ep);
}

/* The pixels in no pair. Pair i of the weights multiplies whole vectors of them as columns; */
static void rest_columns(const strassen *s, ptrdiff_t n, ptrdiff_t i, float *scratch) {
    const fo_conv2d *plan = s->plan;
    const fo_kernels *kn = plan->kn;
    const pair w = row_pair(&s->rows, i);
    const ptrdiff_t rest = rest_of(kn, s->pixels), p = s->pixels - s->pixels % kn->vl;
    if (p == rest) return;
    fo_gemm_args g = {.form = FO_B_PACKING,
                      .m = w.size[0] + w.size[1],
                      .n = p - rest,
                      .k = plan->k,
                      .a = plan->w + w.at * plan->ldw,
                      .lda = plan->ldw,
                      .b = fo_at(&s->x, n, 0, 0, rest),
                      .ldb = s->x.sc,
                      .panel = kn->nr,
                      .packed = scratch};
    place(s, n, w.at, rest, &g);
    kn->gemm(&g);
}

/* those left are rows, where no lane is idle: with small weights for all channels, in wide tiles, */
static void rest_panels(const strassen *s, ptrdiff_t n) {
    const fo_conv2d *plan = s->plan;
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t p = s->pixels - s->pixels % kn->vl;
    fo_gemm_args g = {.form = FO_A_TABLE,
                      .m = s->pixels - p,
                      .n = plan->s.oc,
                      .k = plan->k,
                      .a = fo_at(&s->x, n, 0, 0, p),
                      .lda = 1,
                      .table = s->table,
                      .b = s->panels,
                      .ldb = kn->nr,
                      .panel = kn->nr * plan->k};
    place(s, n, 0, p, &g);
    g.ep.channel_rows = false, g.ep.transposed = true;
    kn->gemm(&g);
}

/* else with pair i of the weights, which a chain has just brought into the cache. */
static void rest_rows(const strassen *s, ptrdiff_t n, ptrdiff_t i) {
    const fo_conv2d *plan = s->plan;
    const fo_kernels *kn = plan->kn;
    const pair r = row_pair(&s->rows, i);
    const ptrdiff_t left = s->pixels % kn->vl, p = s->pixels - left, mr = r.size[0];
    fo_gemm_args g = {.form = FO_A_TABLE,
                      .m = left,
                      .n = mr + r.size[1],
                      .k = plan->k,
                      .a = fo_at(&s->x, n, 0, 0, p),
                      .lda = 1,
                      .table = s->table,
                      .b = s->packed + left_at(plan, i) + FO_STRASSEN_SUMS * mr * half_of(plan),
                      .ldb = 2 * mr,
                      .panel = kn->nr};
    place(s, n, r.at, p, &g);
    g.ep.channel_rows = false, g.ep.transposed = true;
    kn->gemm(&g);
}

/* The pixels that a pair's chains with the first two pairs of weights fetch: half of the reduction each of the next
 * pair. */
static fo_strassen_block next_columns(const strassen *s, ptrdiff_t j, ptrdiff_t chain, const float *x) {
    if (!s->fetches || chain > 1 || j == s->pairs - 1) return (fo_strassen_block){x, 0};
    return (fo_strassen_block){x + 2 * s->plan->kn->nr + chain * half_of(s->plan) * s->x.sc, s->x.sc};
}

/* Whether the pixels in no pair are multiplied by pair i of the weights in a task of pair j of the columns: each has a
 * part of them, or one would be late. */
static bool has_rest(const strassen *s, ptrdiff_t i, ptrdiff_t j) { return i % s->pairs == j; }

/* Pair j of the columns of image n with the pairs of weights first .. last-1, which are rows; and its part of the
 * rest. */
static void columns_task(const strassen *s, ptrdiff_t n, ptrdiff_t j, ptrdiff_t first, ptrdiff_t last, float *scratch) {
    const fo_conv2d *plan = s->plan;
    const fo_kernels *kn = plan->kn;
    const float *x = fo_at(&s->x, n, 0, 0, j * 2 * kn->nr);
    fo_strassen_args a = {.k = half_of(plan), .ldc = s->ldc, .ep = s->ep};
    if (s->copies) right_operands(plan, true, x, s->x.sc, kn->nr, scratch, column_part(plan));
    for (ptrdiff_t i = first; i < last; i++) {
        const pair r = row_pair(&s->rows, i);
        a.rows[0] = r.size[0], a.rows[1] = r.size[1];
        order_panels(plan, r.size[0], s->packed + left_at(plan, i), a.a);
        a.c = aim(s, n, r.at, j * 2 * kn->nr, &a.ep);
        a.operands = i == first && !s->copies ? scratch : NULL; /* the first chain makes them for the others */
        order_right(plan, scratch, column_part(plan), a.operands ? x : NULL, s->x.sc, a.b);
        a.next = next_columns(s, j, i - first, x);
        kn->strassen(&a);
        if (s->table && !s->panels && has_rest(s, i, j)) rest_rows(s, n, i);
    }
    for (ptrdiff_t i = first; i < last; i++)
        if (has_rest(s, i, j)) rest_columns(s, n, i, scratch);
    if (s->panels && !first && !j) rest_panels(s, n);
}

/* The part of the pair of weights after pair j that a chain with this one fetches. */
static fo_strassen_block next_weights(const strassen *s, ptrdiff_t j, ptrdiff_t chain) {
    const ptrdiff_t each = right_at(s->plan, 2 * s->plan->kn->nr);
    const float *next = s->packed + (j + 1) % s->weights * each;
    return (fo_strassen_block){next + chain * each / FO_STRASSEN_CHAINS, chain < FO_STRASSEN_CHAINS ? LINE_FLOATS : 0};
}

/* Pairs of rows from .. done-1 with the weights in no pair. */
static void rest_of_rows(const strassen *s, ptrdiff_t n, ptrdiff_t from, ptrdiff_t done) {
    const fo_conv2d *plan = s->plan;
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t o = rest_of(kn, plan->s.oc), p = row_pair(&s->rows, from).at;
    const ptrdiff_t last = done < s->pairs ? row_pair(&s->rows, done).at : s->pixels;
    fo_gemm_args g = {.form = FO_ROWS,
                      .m = last - p,
                      .n = plan->s.oc - o,
                      .k = plan->k,
                      .a = fo_at(&s->x, n, 0, 0, p),
                      .lda = s->x.sw,
                      .b = s->packed + right_at(plan, o),
                      .ldb = kn->nr,
                      .panel = plan->k * kn->nr};
    place(s, n, o, p, &g);
    kn->gemm(&g);
}

/* Pixels as rows: cells c0 .. c1-1 of the grid of their pairs and the pairs of weights, numbered by weights. A pair
 * of weights serves all rows of the task in turn; a pair of rows alone fetches the next. `fetches`: each pair of
 * weights the next, too. `far`: the first chain with a pair of weights brings them into the cache. */
static void rows_task(const strassen *s, ptrdiff_t n, ptrdiff_t c0, ptrdiff_t c1, bool fetches, bool far,
                      float *scratch) {
    const fo_conv2d *plan = s->plan;
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t weights = s->weights, from = c0 / weights, to = div_up(c1, weights), done = c1 / weights;
    const ptrdiff_t ld = fo_leading(kn, half_of(plan)), each = parts(s->copies) * left_part(plan);
    const float *x = fo_at(&s->x, n, 0, 0, 0);
    const bool alone = s->down == s->pairs;
    for (ptrdiff_t i = from; i < to; i++)
        left_operands(plan, s->copies, row_pair(&s->rows, i), x, s->x.sw, scratch + (i - from) * each);
    /* cleared once: for every chain it is one of hundreds of cycles */
    fo_strassen_args a = {.k = half_of(plan), .ldc = s->ldc, .ep = s->ep};
    pair r = {0};
    ptrdiff_t ordered = -1; /* the pair of rows whose operands `a` has */
    for (ptrdiff_t j = 0; j < weights; j++) {
        const ptrdiff_t o = j * 2 * kn->nr;
        const ptrdiff_t first = from + (from * weights + j < c0), end = to - ((to - 1) * weights + j >= c1);
        order_right(plan, s->packed + right_at(plan, o), right_part(plan), NULL, 0, a.b);
        for (ptrdiff_t i = first; i < end; i++) {
            if (i != ordered) { /* a task of one pair orders its operands once */
                r = row_pair(&s->rows, ordered = i);
                a.rows[0] = r.size[0], a.rows[1] = r.size[1];
                order_left(plan, r, scratch + (i - from) * each, ld, s->copies ? NULL : x, s->x.sw, a.a);
            }
            a.c = aim(s, n, o, r.at, &a.ep);
            a.next = alone && !j ? (fo_strassen_block){x + row_pair(&s->rows, to).at * s->x.sw, LINE_FLOATS}
                     : fetches   ? next_weights(s, j, i - first)
                                 : (fo_strassen_block){x, 0};
            a.ahead = i == first && far;
            kn->strassen(&a);
        }
    }
    /* what is left of a pair's columns is for who computes its last cell */
    if (from < done && rest_of(kn, plan->s.oc) < plan->s.oc) rest_of_rows(s, n, from, done);
}

/* The first cell of a task whose pixels are rows. */
static ptrdiff_t first_cell(const strassen *s, ptrdiff_t part) {
    const ptrdiff_t weights = s->weights;
    return s->whole ? s->pairs * part / s->down * weights : s->pairs * weights * part / s->down;
}

/* Whether a thread begins with this task (runtime/parallel.c). */
static bool is_first(const strassen *s, ptrdiff_t task) {
    const ptrdiff_t tasks = s->images * s->down * s->across;
    return tasks * div_up(task * s->threads, tasks) / s->threads == task;
}

/* Whether chains fetch weights: a thread's first task, for which they come from memory in a network. */
static bool fetches_weights(const strassen *s, ptrdiff_t task) {
    return !s->plan->kn->vec_is_line && is_first(s, task);
}

static void strassen_task(void *context, fo_piece piece, int thread) {
    const strassen *s = context;
    const ptrdiff_t task = piece.task, pair = s->by_weights ? task : task / s->across; /* of pixels, in all images */
    const ptrdiff_t n = pair / s->down % s->images, part = pair % s->down;
    ptrdiff_t first =
        s->columns ? (s->by_weights ? task / s->down / s->images : task % s->across) * s->share : first_cell(s, part);
    ptrdiff_t count = s->columns ? min_(s->share, s->weights - first) : first_cell(s, part + 1) - first;
    float *scratch = s->scratch + thread * s->scratch_each;
    fo_divide(piece, 1, &first, &count);
    if (!count) return;
    if (s->columns)
        columns_task(s, n, part, first, first + count, scratch);
    else
        rows_task(s, n, first, first + count, fetches_weights(s, task), !s->stay || is_first(s, task), scratch);
}

/* A pair of columns is a task, for it shares nothing with the next. Weights are cut where pairs are few, so that the
 * slowest thread is done first: each part computes the operands of its pixels anew. Where pixels are few, a thread
 * has a part of the weights for all of them, which its cache then holds: two threads, 14x14, 256 -> 1024 and 512 ->
 * 256 channels 0.96 of the time, 1024 -> 256 1.03 to 1.07. */
static void cut_columns(strassen *s, int threads) {
    const ptrdiff_t weights = s->weights;
    double best = 0;
    s->down = s->pairs;
    for (ptrdiff_t pieces = 1; pieces <= (threads > 1 ? min_(weights, 4) : 1); pieces++) {
        const ptrdiff_t share = div_up(weights, pieces), across = div_up(weights, share);
        const double rounds = (double)div_up(s->images * s->down * across, threads);
        const double time = rounds * ((double)share * (1 + FO_STRASSEN_WEIGHTS) + FO_STRASSEN_OPERANDS);
        if (best && time >= best) continue;
        best = time;
        s->share = share, s->across = across;
    }
    s->scratch_each = max_(FO_STRASSEN_PRODUCTS * column_part(s->plan), s->plan->k * s->plan->kn->nr);
    s->fetches = 4 * s->plan->k * s->pixels > fo_this_machine()->l2;
    s->by_weights = 8 * s->plan->k * s->pixels <= fo_this_machine()->l2;
}

/* Pairs of rows share the weights that pass by: a task is as many as stay in the cache, or one where the weights
 * stay there. Few tasks are equal to a cell, so that each of two threads has the half of the image that it has in
 * other layers, and that its cache holds. */
static void cut_rows(strassen *s, int threads) {
    const ptrdiff_t each = parts(s->copies) * left_part(s->plan);
    const ptrdiff_t scratch = fo_this_machine()->l2 / 2; /* the weights that pass by want the rest */
    const bool stay = s->stay = 4 * right_weights(s->plan) <= scratch;
    /* the pixels themselves are as many */
    const ptrdiff_t most = stay ? 1 : max_(scratch / (2 * 4 * FO_STRASSEN_SUMS * left_part(s->plan)), 1);
    s->across = 1;
    s->down = div_up(s->pairs, most);
    s->whole = threads == 1 || s->images * s->down >= FO_STRASSEN_MANY_TASKS * threads;
    if (!s->whole && s->images * s->down % threads) s->down = min_(round_up(s->down, threads), s->pairs * s->weights);
    const ptrdiff_t pairs = s->whole ? div_up(s->pairs, s->down) : s->pairs / s->down + 2;
    s->scratch_each = each * min_(s->pairs, pairs);
}

/* Halves of an odd reduction, and of odd rows, have no equal lengths. */
static bool copies(const strassen *s) { return s->plan->k % 2 || (!s->columns && s->pixels % 2); }

/* Columns that fill no vector are multiplied as rows, which a table finds. */
static ptrdiff_t table_floats(const strassen *s) {
    const bool wanted = s->columns && s->pixels % s->plan->kn->vl;
    return wanted ? s->plan->k * (ptrdiff_t)(sizeof *s->table / sizeof(float)) : 0;
}

static void setup(strassen *s, const fo_conv2d *plan, const fo_conv2d_size *z, int threads) {
    const fo_kernels *kn = plan->kn;
    const bool nhwc = plan->s.nhwc;
    *s = (strassen){.plan = plan, .images = z->n, .pixels = z->oh * z->ow, .columns = !nhwc, .threads = threads};
    s->copies = copies(s);
    s->rows = rows_of(kn, nhwc ? s->pixels : plan->s.oc);
    s->pairs = nhwc ? s->rows.pairs : column_pairs(kn, s->pixels);
    s->weights = nhwc ? column_pairs(kn, plan->s.oc) : s->rows.pairs;
    (nhwc ? cut_rows : cut_columns)(s, threads);
}

/* Of images in the layer's memory order whose pixels form one row each. */
static fo_status run_flat(strassen *s) {
    const fo_conv2d *plan = s->plan;
    s->ep = fo_conv2d_epilogue(plan, 0);
    s->ep.channel_rows = s->columns;
    s->ep.ldr = s->columns ? s->r.sc : s->r.sw;
    s->ldc = s->columns ? s->y.sc : s->y.sw;
    if (!(s->packed = fo_strassen_weights(plan))) return FO_NO_MEMORY;
    s->bias = s->packed + fo_strassen_floats(plan);
    const bool small = 4 * plan->s.oc * plan->k <= fo_this_machine()->l2 / 4;
    if (small && table_floats(s) && !(s->panels = fo_conv2d_panels(plan))) return FO_NO_MEMORY;
    if (!(s->scratch = fo_arena_share(&s->scratch_each, s->threads, table_floats(s)))) return FO_NO_MEMORY;
    if (table_floats(s)) {
        s->table = (ptrdiff_t *)(void *)(s->scratch + s->scratch_each * s->threads);
        for (ptrdiff_t p = 0; p < plan->k; p++) s->table[p] = p * s->x.sc;
    }
    fo_parallel_pieces(s->images * s->down * s->across, s->threads, strassen_task, s);
    fo_arena_release(s->scratch);
    return FO_OK;
}

/* ---- the algorithm ----------------------------------------------------------------------------------------------- */

/* What one pair of blocks needs. Beyond LONGEST the error may pass the promised bound: 5.1e-6 seen with 2048 channels,
 * 3e-6 with 1024. */
enum { PAIR = 64, LONGEST = 1024 };

bool fo_strassen_applies(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_conv2d_shape *s = &plan->s;
    if (!fo_is_pixelwise(s) || s->groups > 1 || !fo_is_unpadded(z) || !s->ic || s->oc < PAIR) return false;
    return z->oh * z->ow >= PAIR && (s->algorithm == FO_STRASSEN || s->ic <= LONGEST);
}

fo_status fo_strassen_prepare(fo_prepared_conv2d *call) {
    const fo_conv2d *plan = call->plan;
    const fo_conv2d_size *z = &call->layout.z;
    const double macs = (double)z->n * (z->oh * z->ow) * plan->s.oc * plan->k;
    strassen *s = fo_call_prepare(call, sizeof *s, fo_nanoseconds(plan->kn, macs, 4.0 * plan->s.oc * plan->k));
    if (!s) return FO_NO_MEMORY;
    setup(s, plan, z, call->threads);
    call->kernel = s->columns ? "strassen, pixels as columns" : "strassen, pixels as rows";
    call->scratch = (s->scratch_each * call->threads + table_floats(s)) * (ptrdiff_t)sizeof(float);
    return FO_OK;
}

static bool is_flat(const fo_image *t, const fo_conv2d_size *z, bool nhwc) {
    return !t->data || ((nhwc ? t->sc : t->sw) == 1 && (z->oh == 1 || t->sh == z->ow * t->sw));
}

fo_status fo_strassen_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *residual,
                          const fo_image *y) {
    strassen s = *(const strassen *)call->state;
    const fo_conv2d_size *z = &call->layout.z;
    const bool nhwc = s.plan->s.nhwc;
    const ptrdiff_t channels[] = {s.plan->s.ic, s.plan->s.oc, s.plan->s.oc};
    const fo_image given[] = {*x, residual ? *residual : (fo_image){0}, *y};
    fo_image *const flat[] = {&s.x, &s.r, &s.y};
    ptrdiff_t floats = 0, at[3];
    if (s.columns)
        FO_RAN("conv strassen columns");
    else
        FO_RAN("conv strassen rows");
    for (int t = 0; t < 3; t++) {
        *flat[t] = given[t], at[t] = floats;
        if (!is_flat(&given[t], z, nhwc)) floats += z->n * channels[t] * s.pixels;
    }
    if (!floats) return run_flat(&s);
    float *room = fo_arena_take((size_t)floats * sizeof *room);
    if (!room) return FO_NO_MEMORY;
    fo_status status = FO_OK;
    for (int t = 0; t < 3; t++) {
        if (is_flat(&given[t], z, nhwc)) continue;
        *flat[t] = fo_contiguous(channels[t], z->oh, z->ow, nhwc);
        flat[t]->data = room + at[t];
        if (t < 2 && status == FO_OK) status = fo_copy_image(flat[t], &given[t], z, channels[t]);
    }
    if (status == FO_OK) status = run_flat(&s);
    if (status == FO_OK && s.y.data != y->data) status = fo_copy_image(y, &s.y, z, channels[2]);
    fo_arena_release(room);
    return status;
}
