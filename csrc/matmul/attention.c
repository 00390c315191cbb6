/* Attention: scores, softmax and the product with the values over blocks of keys.
 *
 *   a task: some rows, which are the queries of the heads that share keys (row = query * group + head of the group)
 *     for each block of keys               packed once: k as panels of keys, v as panels of values
 *       for each `height` rows             scores = q k^T,  weights (kernels/attention.h),  weights v,  merged
 *
 * The blocks of keys are those of the sizes alone, and each row merges those that it sees in order: its bits depend on
 * nothing else.
 * A single row, as of one token, reads k and v in place. Where tasks are few each block of keys is one, whose results
 * are kept in scratch until one thread merges them.
 */
#include <float.h>
#include <string.h>

#include "../dispatch/estimate.h"
#include "../machine/tune.h"
#include "attention_job.h"
#include "packing.h"

static float *take(float **from, ptrdiff_t floats) {
    float *part = *from;
    *from += round_up(floats, LINE_FLOATS);
    return part;
}

static fo_attended take_attended(const attention_job *j, float **from, ptrdiff_t steps) {
    const ptrdiff_t wide = steps * round_up(j->height, j->kn->vl);
    return (fo_attended){take(from, wide), take(from, wide), take(from, steps * j->height * j->ldv), j->ldv};
}

static float nowhere[1]; /* for sizes: scratch that begins here is not touched */

/* The parts of a thread's scratch; returns how long it is. */
static ptrdiff_t share_scratch(const attention_job *j, float *from, attention_scratch *x) {
    const fo_attention_args *a = j->a;
    const ptrdiff_t nr = j->kn->nr;
    float *at = from;
    x->k = take(&at, round_up(j->keys, nr) * a->d);
    x->v = take(&at, j->keys * round_up(a->dv, nr));
    x->scores = take(&at, j->height * j->lds);
    x->mask = take(&at, j->keys);
    x->q = take(&at, j->chunk * a->d + nr); /* a tile reads whole vectors */
    if (fo_attention_is_narrow(j))
        x->rows = take(&at, fo_attention_rows_room(j));
    else if (j->rounded)
        x->row = take(&at, a->d);
    x->wide_k = x->wide_v = NULL;
    if (a->kv_type != FO_F32) x->wide_k = take(&at, j->keys * a->d), x->wide_v = take(&at, j->keys * a->dv);
    x->all = take_attended(j, &at, div_up(j->chunk, j->height));
    x->block = take_attended(j, &at, 1);
    return at - from;
}

/* The keys that rows up to this one see. */
static ptrdiff_t keys_seen(const attention_job *j, ptrdiff_t diagonal, ptrdiff_t row) {
    const fo_attention_args *a = j->a;
    return a->causal ? clamp_(row / j->group + diagonal + 1, 0, a->s) : a->s;
}

/* The first key of the first block that rows from this one on see. */
static ptrdiff_t first_block(const attention_job *j, ptrdiff_t diagonal, ptrdiff_t row) {
    const fo_attention_args *a = j->a;
    return a->window ? max_(row / j->group + diagonal + 1 - a->window, 0) / j->keys * j->keys : 0;
}

static attention_place place_of(const attention_job *j, ptrdiff_t product) {
    const fo_attention_args *a = j->a;
    const ptrdiff_t head = product % a->kv_heads, point = product / a->kv_heads, h = head * j->group;
    ptrdiff_t of_rows[FO_TENSORS], of_keys[FO_TENSORS];
    fo_offsets(&a->rows, a->rows.nd, point, of_rows);
    fo_offsets(&a->keys, a->keys.nd, point, of_keys);
    const ptrdiff_t mask = of_rows[2] + h * a->mh, size = fo_size(a->kv_type);
    return (attention_place){.diagonal = a->diagonals ? (ptrdiff_t)a->diagonals[point] : a->diagonal,
                             .q = a->q + of_rows[1] + h * a->qh,
                             .k = (const char *)a->k + (of_keys[1] + head * a->kh) * size,
                             .v = (const char *)a->v + (of_keys[2] + head * a->vh) * size,
                             .added = a->added ? a->added + mask : NULL,
                             .taken = a->taken ? a->taken + mask : NULL,
                             .sinks = a->sinks ? a->sinks + h : NULL,
                             .y = a->y + of_rows[0] + h * a->yh};
}

/* Queries, scaled, and of bfloat16 rounded. */
static void load_queries(const attention_job *j, const attention_place *p, ptrdiff_t first, ptrdiff_t rows,
                         const attention_scratch *x) {
    const fo_attention_args *a = j->a;
    float *to = x->q;
    for (ptrdiff_t r = first; r < first + rows; r++, to += a->d) {
        const float *from = p->q + r % j->group * a->qh + r / j->group * a->qt;
        if (fo_attention_is_narrow(j)) {
            j->kn->narrow_scaled(a->d, from, a->qd, a->scale, (uint16_t *)to);
            continue;
        }
        float *q = j->rounded ? x->row : to;
        if (a->qd == 1)
            for (ptrdiff_t i = 0; i < a->d; i++) q[i] = a->scale * from[i];
        else
            for (ptrdiff_t i = 0; i < a->d; i++) q[i] = a->scale * from[i * a->qd];
        if (j->rounded) fo_round(j->rounded, a->d, q, to, 0, a->d);
    }
}

/* Asks for all rows at once: packing a panel reads one after the other, and waits for the memory of each. */
static void fetch_rows(const float_rows *x) {
    for (ptrdiff_t i = 0; i < x->n && x->element == 1; i++)
        for (ptrdiff_t l = 0; l < x->d; l += LINE_FLOATS) __builtin_prefetch(x->at + i * x->row + l);
}

/* Rows as floats: where they lie, or widened into `to` in the order that they have in memory. */
static float_rows as_floats(const attention_job *j, const char *from, ptrdiff_t n, ptrdiff_t d, ptrdiff_t row,
                            ptrdiff_t element, float *to) {
    if (j->a->kv_type == FO_F32) return (float_rows){(const float *)from, n, d, row, element};
    const bool across = row == 1 && element != 1; /* keys are neighbors */
    const ptrdiff_t lines = across ? d : n, length = across ? n : d, line = across ? element : row;
    const ptrdiff_t step = across ? 1 : element, size = fo_size(j->a->kv_type);
    for (ptrdiff_t i = 0; i < lines; i++, from += line * size)
        for (ptrdiff_t l = 0, some = step == 1 ? length : 1; l < length; l += some)
            j->kn->widen(some, j->a->kv_type, from + l * step * size, to + i * length + l);
    return (float_rows){to, n, d, across ? 1 : d, across ? n : 1};
}

static const char *key_at(const attention_job *j, const attention_place *p, ptrdiff_t at) {
    return p->k + at * j->a->ks * fo_size(j->a->kv_type);
}
static const char *value_at(const attention_job *j, const attention_place *p, ptrdiff_t at) {
    return p->v + at * j->a->vs * fo_size(j->a->kv_type);
}

static void pack_keys(const attention_job *j, const attention_place *p, const key_block *b,
                      const attention_scratch *x) {
    const fo_attention_args *a = j->a;
    const ptrdiff_t nr = j->kn->nr, n = b->packed;
    if (j->in_place && a->kv_type != FO_F32) return;
    const float_rows k = as_floats(j, key_at(j, p, b->at), n, a->d, a->ks, a->kd, x->wide_k),
                     v = as_floats(j, value_at(j, p, b->at), n, a->dv, a->vs, a->vd, x->wide_v);
    if (a->kv_type == FO_F32) fetch_rows(&k), fetch_rows(&v);
    if (j->in_place) return;
    if (fo_attention_is_narrow(j)) {
        fo_attention_pack_narrow(j, &k, &v, x);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i += nr)
        fo_pack_panel(j->kn, min_(nr, n - i), a->d, k.at + i * k.row, k.element, k.row, x->k + i * a->d);
    for (ptrdiff_t i = 0; i < a->dv; i += nr)
        fo_pack_panel(j->kn, min_(nr, a->dv - i), n, v.at + i * v.element, v.row, v.element, x->v + i * n);
    if (!j->rounded) return;
    const ptrdiff_t of_keys = round_up(n, nr) * a->d, of_values = round_up(a->dv, nr) * n;
    fo_round(j->rounded, of_keys, x->k, x->k, 0, of_keys);
    fo_round(j->rounded, of_values, x->v, x->v, 0, of_values);
}

static void multiply_scores(const attention_job *j, const attention_place *p, const attention_scratch *x,
                            const fo_attention_block *b, const float *q, ptrdiff_t at) {
    const fo_attention_args *a = j->a;
    const ptrdiff_t nr = j->kn->nr;
    if (j->in_place && a->kv_type != FO_F32) {
        j->kn->attention_keys(b->n, a->d, a->kv_type, (const uint16_t *)key_at(j, p, at), a->ks, q, x->scores);
        return;
    }
    fo_gemm_args g = {.form = FO_ROWS,
                      .m = b->rows,
                      .n = b->n,
                      .k = a->d,
                      .a = q,
                      .lda = a->d,
                      .b = x->k,
                      .ldb = nr,
                      .panel = nr * a->d,
                      .c = x->scores,
                      .ldc = j->lds};
    if (j->in_place) { /* keys are rows, the query is a column */
        g.m = b->n, g.n = 1, g.a = (const float *)key_at(j, p, at), g.lda = a->ks;
        g.b = q, g.ldb = g.panel = g.ldc = 1;
    }
    j->kn->gemm(&g);
}

static void multiply_values(const attention_job *j, const attention_place *p, const attention_scratch *x,
                            const fo_attention_block *b, const key_block *keys) {
    const fo_attention_args *a = j->a;
    const ptrdiff_t nr = j->kn->nr, whole = a->dv / nr * nr;
    if (j->in_place && a->kv_type != FO_F32) {
        const uint16_t *v = (const uint16_t *)value_at(j, p, keys->at);
        j->kn->attention_values(b->n, a->dv, x->scores, a->kv_type, v, a->vs, b->to.values);
        return;
    }
    fo_gemm_args g = {.form = FO_ROWS,
                      .m = b->rows,
                      .n = a->dv,
                      .k = b->n,
                      .a = x->scores,
                      .lda = j->lds,
                      .b = x->v,
                      .ldb = nr,
                      .panel = nr * keys->packed,
                      .c = b->to.values,
                      .ldc = b->to.ld};
    if (j->in_place) g.n = whole, g.b = (const float *)value_at(j, p, keys->at), g.ldb = a->vs, g.panel = nr;
    for (ptrdiff_t r = 0; j->rounded && r < b->rows; r++)
        fo_round(j->rounded, b->n, x->scores + r * j->lds, x->scores + r * j->lds, 0, b->n);
    j->kn->gemm(&g);
    if (!j->in_place || whole == a->dv) return;
    g.form = FO_B_PACKING, g.n = a->dv - whole, g.b += whole, g.c += whole, g.packed = x->v;
    j->kn->gemm(&g);
}

/* Results of rows first .. first + rows - 1 for a block of keys. */
static void attend(const attention_job *j, const attention_place *p, const attention_scratch *x, const float *q,
                   ptrdiff_t first, ptrdiff_t rows, const key_block *keys, const fo_attended *to) {
    const fo_attention_args *a = j->a;
    const ptrdiff_t seen = keys_seen(j, p->diagonal, first + rows - 1);
    const ptrdiff_t n = min_(keys->packed, seen - keys->at), skipped = keys->at * a->ms;
    fo_attention_block b = {.rows = rows,
                            .n = n,
                            .first = first,
                            .group = j->group,
                            .causal = a->causal,
                            .diagonal = p->diagonal - keys->at,
                            .window = a->window,
                            .softcap = a->softcap,
                            .scores = x->scores,
                            .lds = j->lds,
                            .mask = x->mask,
                            .mh = a->mh,
                            .mt = a->mt,
                            .ms = a->ms,
                            .to = *to,
                            .added = p->added ? p->added + skipped : NULL,
                            .taken = p->taken ? p->taken + skipped : NULL};
    if (fo_attention_is_narrow(j)) {
        fo_attention_narrow_scores(j, x, q, rows, n, keys);
        fo_attention_narrow_weights(j, x, &b);
        fo_attention_narrow_values(j, x, &b, keys);
        return;
    }
    multiply_scores(j, p, x, &b, q, keys->at);
    j->kn->attention_weights(&b);
    multiply_values(j, p, x, &b, keys);
}

/* What step i of a task's rows has. */
static fo_attended step_of(const attention_job *j, const fo_attended *all, ptrdiff_t i) {
    const ptrdiff_t wide = i * round_up(j->height, j->kn->vl);
    return (fo_attended){all->most + wide, all->sum + wide, all->values + i * j->height * all->ld, all->ld};
}

/* A head's sink as a block of one key, whose value is zeros. Rows that see no key have no values yet. */
static void merge_sinks(const attention_job *j, const attention_place *p, ptrdiff_t first, ptrdiff_t rows,
                        const fo_attended *to, const fo_attended *block) {
    const size_t row = (size_t)to->ld * sizeof(float);
    for (ptrdiff_t r = 0; r < rows; r++) {
        block->most[r] = p->sinks[(first + r) % j->group], block->sum[r] = 1;
        memset(block->values + r * block->ld, 0, row);
        if (to->sum[r] == 0) memset(to->values + r * to->ld, 0, row);
    }
    j->kn->attention_merge(rows, j->a->dv, to, block);
}

static void end_rows(const attention_job *j, const attention_place *p, const attention_scratch *x, ptrdiff_t first,
                     ptrdiff_t rows, const fo_attended *from) {
    const fo_attention_args *a = j->a;
    if (p->sinks) merge_sinks(j, p, first, rows, from, &x->block);
    for (ptrdiff_t r = 0; r < rows; r++) {
        float *y = p->y + (first + r) % j->group * a->yh + (first + r) / j->group * a->yt;
        j->kn->attention_end(a->dv, from->values + r * from->ld, from->sum[r], y, a->yd);
    }
}

/* All blocks of keys for some rows. */
static void attend_blocks(const attention_job *j, const attention_place *p, const attention_scratch *x, ptrdiff_t first,
                          ptrdiff_t rows) {
    const ptrdiff_t end = keys_seen(j, p->diagonal, first + rows - 1), wide = round_up(j->height, j->kn->vl);
    for (ptrdiff_t i = 0; i < div_up(rows, j->height) * wide; i++) x->all.most[i] = -FLT_MAX, x->all.sum[i] = 0;
    for (key_block keys = {first_block(j, p->diagonal, first), 0}; keys.at < end; keys.at += j->keys) {
        keys.packed = min_(j->keys, end - keys.at);
        pack_keys(j, p, &keys, x);
        for (ptrdiff_t i = 0; i < rows; i += j->height) {
            const ptrdiff_t some = min_(j->height, rows - i), begin = first_block(j, p->diagonal, first + i);
            if (keys.at < begin || keys_seen(j, p->diagonal, first + i + some - 1) <= keys.at) continue;
            const fo_attended to = step_of(j, &x->all, i / j->height);
            attend(j, p, x, x->q + i * j->a->d, first + i, some, &keys, keys.at > begin ? &x->block : &to);
            if (keys.at > begin) j->kn->attention_merge(some, j->a->dv, &to, &x->block);
        }
    }
}

/* Where the last rows see most keys, they come first. */
static void attend_rows(void *context, fo_piece piece, int thread) {
    const attention_job *j = context;
    const ptrdiff_t chunk = piece.task % j->chunks;
    ptrdiff_t first = (j->a->causal ? j->chunks - 1 - chunk : chunk) * j->chunk, rows = min_(j->chunk, j->rows - first);
    fo_divide(piece, j->height, &first, &rows);
    if (!rows) return;
    attention_scratch x;
    share_scratch(j, j->scratch + thread * j->each, &x);
    const attention_place p = place_of(j, piece.task / j->chunks);
    load_queries(j, &p, first, rows, &x);
    attend_blocks(j, &p, &x, first, rows);
    for (ptrdiff_t i = 0; i < rows; i += j->height) {
        const fo_attended from = step_of(j, &x.all, i / j->height);
        end_rows(j, &p, &x, first + i, min_(j->height, rows - i), &from);
    }
}

/* The results of a block of keys for a product's rows. */
static fo_attended partial_of(const attention_job *j, ptrdiff_t product, ptrdiff_t block) {
    float *at = j->partials + (product * j->blocks + block) * j->partial;
    return take_attended(j, &at, 1);
}

static void attend_block(void *context, ptrdiff_t task, int thread) {
    const attention_job *j = context;
    const ptrdiff_t product = task / j->blocks, block = task % j->blocks, at = block * j->keys;
    const attention_place p = place_of(j, product);
    const key_block keys = {at, min_(j->keys, keys_seen(j, p.diagonal, j->rows - 1) - at)};
    const fo_attended to = partial_of(j, product, block);
    attention_scratch x;
    if (at < first_block(j, p.diagonal, 0) || keys.packed <= 0) return;
    share_scratch(j, j->scratch + thread * j->each, &x);
    load_queries(j, &p, 0, j->rows, &x);
    pack_keys(j, &p, &keys, &x);
    attend(j, &p, &x, x.q, 0, j->rows, &keys, &to);
}

static void merge_blocks(void *context, ptrdiff_t product, int thread) {
    const attention_job *j = context;
    const attention_place p = place_of(j, product);
    const ptrdiff_t blocks = div_up(keys_seen(j, p.diagonal, j->rows - 1), j->keys),
                    first = first_block(j, p.diagonal, 0) / j->keys;
    const bool none = first >= blocks; /* it sees no key, or its window begins after them */
    const fo_attended to = partial_of(j, product, none ? 0 : first);
    attention_scratch x;
    share_scratch(j, j->scratch + thread * j->each, &x);
    for (ptrdiff_t r = 0; none && r < j->rows; r++) to.most[r] = -FLT_MAX, to.sum[r] = 0;
    for (ptrdiff_t block = first + 1; block < blocks; block++) {
        const fo_attended from = partial_of(j, product, block);
        j->kn->attention_merge(j->rows, j->a->dv, &to, &from);
    }
    end_rows(j, &p, &x, 0, j->rows, &to);
}

/* Keys of a block, a power of two: their panels and those of their values stay in the second-level cache. */
static ptrdiff_t keys_of_block(const fo_attention_args *a) {
    ptrdiff_t keys = fo_attention_cut.keys;
    while (keys > fo_attention_cut.least_keys && keys * (a->d + a->dv) > fo_attention_cut.block_floats) keys /= 2;
    return keys;
}

/* Rows of a task: so many as their queries and results leave room for in the second-level cache, fewer where threads
 * would have nothing to do. */
static void cut_rows(attention_job *j, ptrdiff_t products, int threads) {
    const ptrdiff_t fitting = fo_attention_cut.row_floats / (j->a->d + j->ldv);
    const ptrdiff_t most = clamp_(fitting, j->height, fo_attention_cut.rows), tasks = fo_attention_cut.tasks * threads;
    j->chunk = min_(most / j->height * j->height, round_up(j->rows, j->height));
    while (threads > 1 && products * div_up(j->rows, j->chunk) < tasks && j->chunk >= 2 * fo_attention_cut.least_rows)
        j->chunk = round_up(j->chunk / 2, j->height);
    j->chunks = div_up(j->rows, j->chunk);
}

/* Blocks of keys of the point that sees most of them. */
static ptrdiff_t most_blocks(const attention_job *j) {
    const fo_attention_args *a = j->a;
    ptrdiff_t most = a->diagonals ? 0 : keys_seen(j, a->diagonal, j->rows - 1);
    for (ptrdiff_t point = 0; a->diagonals && point < fo_points(&a->rows, a->rows.nd); point++)
        most = max_(most, keys_seen(j, (ptrdiff_t)a->diagonals[point], j->rows - 1));
    return div_up(most, j->keys);
}

static int threads_of(const attention_job *j, ptrdiff_t products) {
    const fo_attention_args *a = j->a;
    const double scores = (double)products * (double)j->rows * (double)a->s * (a->causal ? 0.5 : 1);
    const double floats = (double)products * (double)a->s * (double)(a->d + a->dv);
    return fo_threads_for(fo_nanoseconds(j->kn, scores * (double)(a->d + a->dv + FO_ACTIVATION_MACS), 4 * floats));
}

/* Whether blocks of keys are tasks: of some rows that are one step, where these are too few for the threads. */
static bool by_blocks(const attention_job *j, ptrdiff_t products, int threads) {
    return threads > 1 && j->blocks > 1 && j->rows <= j->height && products < fo_attention_cut.tasks * threads &&
           products * j->blocks * j->partial <= fo_attention_cut.partial_floats * threads;
}

fo_status fo_attention(const fo_attention_args *a) {
    attention_job j = {.a = a,
                       .kn = fo_active(),
                       .rounded = a->a == FO_BF16 ? fo_product_of(fo_active(), FO_BF16, FO_BF16) : NULL,
                       .group = a->heads / max_(a->kv_heads, 1)};
    const ptrdiff_t products = fo_points(&a->rows, a->rows.nd) * a->kv_heads;
    j.rows = j.group * a->t;
    if (!products || !j.rows || !a->dv) return FO_OK;
    const int threads = threads_of(&j, products);
    attention_scratch x;
    float *end = nowhere;
    j.height = div_up(j.rows, div_up(j.rows, fo_attention_cut.height));
    j.keys = keys_of_block(a), j.lds = fo_leading(j.kn, j.keys), j.ldv = fo_leading(j.kn, a->dv);
    j.in_place = !j.rounded && j.rows == 1 && a->kd == 1 && a->vd == 1;
    j.blocks = most_blocks(&j);
    cut_rows(&j, products, threads);
    take_attended(&j, &end, 1), j.partial = end - nowhere;
    const bool blocks = by_blocks(&j, products, threads);
    j.each = share_scratch(&j, nowhere, &x);
    j.scratch = fo_arena_share(&j.each, threads, blocks ? products * j.blocks * j.partial : 0);
    if (!j.scratch) return FO_NO_MEMORY;
    j.partials = j.scratch + threads * j.each;
    if (blocks) {
        fo_parallel_for(products * j.blocks, threads, attend_block, &j);
        fo_parallel_for(products, threads, merge_blocks, &j);
    } else {
        fo_parallel_pieces(products * j.chunks, threads, attend_rows, &j);
    }
    fo_arena_release(j.scratch);
    return FO_OK;
}
