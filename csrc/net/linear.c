/* y = activation(x w^T + bias + residual) on packed weights: the output is cut into blocks of rows and columns.
 *
 * A block of rows of x stays in the second-level cache while the panels of w go by; with one or few rows the product is
 * bound by reading w, and the blocks are ranges of columns. The reduction is never shared; a long one goes in pieces,
 * whose sums wait in scratch. Weights of 4 or 8 bits are unpacked in registers for few rows, else a panel at a time;
 * weights that a caller lends for one run are read where they lie, or packed a panel at a time, for up to
 * FO_MIN_ROWS rows. */
#include "axes.h"
#include "../machine/machine.h"

#include <string.h>

struct fo_linear {
    const fo_kernels *kn;
    ptrdiff_t n, k;
    fo_dtype type; /* of the weights */
    bool dots;     /* columns of them, not panels */
    void *w;       /* or NULL: */
    fo_blockwise bits;
    const float *lent; /* w (n, k) at distances of wn and wk, or NULL */
    ptrdiff_t wn, wk;
    float *bias, *slopes;
    fo_activation act;
};

/* A plan without its weights. */
static fo_linear *linear_new(ptrdiff_t n, ptrdiff_t k, const float *bias, fo_activation act) {
    fo_linear *plan = fo_alloc(sizeof *plan);
    if (!plan) return NULL;
    bool failed = false;
    *plan = (fo_linear){.kn = fo_kernels_for(n, k, false), .n = n, .k = k, .act = act};
    plan->bias = fo_copy(bias, n, &failed);
    plan->act.slopes = plan->slopes = fo_copy(act.slopes, n, &failed);
    if (!failed) return plan;
    fo_linear_free(plan);
    return NULL;
}

ptrdiff_t fo_linear_bytes(const fo_linear *plan) {
    const ptrdiff_t n = plan->n, k = plan->k;
    return (plan->dots ? n * k : fo_packed_size(plan->kn, n, k)) * fo_size(plan->type);
}

bool fo_linear_weights(const fo_linear *plan, float *w) {
    const ptrdiff_t n = plan->n, k = plan->k, nr = plan->kn->nr;
    const bool wide = plan->type == FO_F32;
    if (plan->dots) {
        memcpy(w, plan->w, (size_t)(n * k) * sizeof *w);
        return true;
    }
    float *panel = wide ? NULL : fo_alloc((size_t)max_(k * nr, 1) * sizeof *panel);
    if (!wide && !panel) return false;
    for (ptrdiff_t j = 0; k && j < n; j += nr) {
        const char *from = (const char *)plan->w + j * k * fo_size(plan->type);
        if (!wide) plan->kn->widen(k * nr, plan->type, from, panel);
        plan->kn->transpose(k, min_(nr, n - j), wide ? (const float *)from : panel, nr, w + j * k, k);
    }
    fo_free(panel);
    return true;
}

fo_linear *fo_linear_create(ptrdiff_t n, ptrdiff_t k, const fo_weights *w, ptrdiff_t wn, ptrdiff_t wk,
                            const float *bias, fo_activation act) {
    fo_linear *plan = linear_new(n, k, bias, act);
    if (!plan) return NULL;
    plan->dots = fo_is_dots(n, k);
    plan->type = plan->dots ? FO_F32 : w->type;
    plan->w = fo_alloc((size_t)fo_linear_bytes(plan));
    if (!plan->w) {
        fo_linear_free(plan);
        return NULL;
    }
    if (plan->dots)
        fo_pack_columns(plan->kn, n, k, w, wk, wn, plan->w);
    else
        fo_pack_weights(plan->kn, n, k, w, wk, wn, plan->w);
    return plan;
}

fo_linear *fo_linear_create_blockwise(ptrdiff_t n, ptrdiff_t k, const fo_blockwise *w, const float *bias,
                                      fo_activation act) {
    fo_linear *plan = linear_new(n, k, bias, act);
    if (plan) plan->bits = *w;
    return plan;
}

fo_linear *fo_linear_lend(ptrdiff_t n, ptrdiff_t k, const float *w, ptrdiff_t wn, ptrdiff_t wk, const float *bias,
                          fo_activation act) {
    if (!k || (fo_is_dots(n, k) && wk != 1)) return fo_linear_create(n, k, &(fo_weights){w, FO_F32}, wn, wk, bias, act);
    fo_linear *plan = linear_new(n, k, bias, act);
    if (plan) plan->dots = fo_is_dots(n, k), plan->lent = w, plan->wn = wn, plan->wk = wk;
    return plan;
}

const char *fo_linear_isa(const fo_linear *plan) { return plan->kn->name; }

void fo_linear_free(fo_linear *plan) {
    if (!plan) return;
    fo_free(plan->w);
    fo_free(plan->bias);
    fo_free(plan->slopes);
    fo_free(plan);
}

typedef struct {
    fo_gemm_args g; /* the whole product */
    const fo_kernels *kn;
    ptrdiff_t rows, columns;  /* of a block */
    ptrdiff_t across;         /* blocks side by side */
    ptrdiff_t piece;          /* steps at a time */
    bool unpacks, lone;       /* lone: a row, by lent weights */
    const fo_kernels *widest; /* those of a lone row by lent weights */
    const fo_linear *lent;    /* whose weights it unpacks, or NULL */
    ptrdiff_t panel, each;    /* floats of an unpacked panel; of a thread's scratch, which has it and sums behind it */
    float *scratch;
} gemm_job;

/* All pieces but the last leave sums, where the next one starts. */
static void gemm_pieces(const gemm_job *job, const fo_gemm_args *whole, float *sums) {
    fo_gemm_args g = *whole;
    g.lds = g.ldc = round_up(g.n, job->kn->nr);
    g.c = sums, g.k = job->piece;
    g.ep = (fo_epilogue){.bias = whole->ep.bias};
    for (ptrdiff_t left = whole->k; left > 0; left -= g.k, g.start = sums) {
        if (left <= job->piece) g.k = left, g.c = whole->c, g.ldc = whole->ldc, g.ep = whole->ep;
        job->kn->gemm(&g);
        g.a += g.k, g.b += g.k * g.ldb;
    }
}

/* Rows and columns of a product, from row i and column j on. */
static fo_gemm_args gemm_part(const fo_gemm_args *whole, ptrdiff_t nr, ptrdiff_t i, ptrdiff_t m, ptrdiff_t j,
                              ptrdiff_t n) {
    fo_gemm_args g = *whole;
    g.m = m, g.n = n, g.column += j;
    g.a += i * g.lda;
    g.b += j / nr * g.panel;
    g.c += i * g.ldc + j;
    if (g.ep.bias) g.ep.bias += j;
    if (g.ep.residual) g.ep.residual += i * g.ep.ldr + j;
    if (g.ep.act.slopes) g.ep.act.slopes += j;
    return g;
}

/* A product by weights in blocks or in the caller's order, each panel of which is unpacked before. */
static void gemm_unpacking(const gemm_job *job, const fo_gemm_args *whole, float *scratch) {
    const ptrdiff_t nr = job->kn->nr;
    for (ptrdiff_t j = 0; j < whole->n; j += nr) {
        fo_gemm_args g = gemm_part(whole, nr, 0, whole->m, j, min_(nr, whole->n - j));
        if (job->lent)
            fo_pack_panel(job->kn, g.n, g.k, job->lent->lent + g.column * job->lent->wn, job->lent->wk, job->lent->wn,
                          scratch);
        else
            job->kn->unpack(g.bits, g.k, g.column, scratch);
        g.b = scratch;
        gemm_pieces(job, &g, scratch + job->panel);
    }
}

/* One row of x, by the rows of lent weights. With the widest vectors, for the last ones of which no column is padded,
 * and which read whole lines (1000 x 2048 in 0.5 of the time, Zen 4). */
static void gemm_lent_row(const gemm_job *job, const fo_gemm_args *whole, float *sums) {
    const fo_linear *plan = job->lent;
    const fo_kernels *kn = job->widest;
    const ptrdiff_t vl = kn->vl, vectors = whole->n / vl, rest = whole->n % vl;
    fo_gemv_args v = {vectors,  vl,   whole->k, plan->lent + whole->column * plan->wn, plan->wn, vl * plan->wn,
                      whole->a, sums, sums};
    for (ptrdiff_t j = 0; j < whole->n + (rest ? vl - rest : 0); j++)
        sums[j] = whole->ep.bias && j < whole->n ? whole->ep.bias[j] : 0;
    kn->gemv(&v);
    v.w += vectors * v.step, v.vectors = 1, v.rows = rest, v.sums = sums + vectors * vl, v.start = v.sums;
    if (rest) kn->gemv(&v);
    fo_gemm_args g = *whole; /* of no steps: the epilogue */
    g.k = 0, g.b = sums, g.start = sums, g.lds = whole->n;
    job->kn->gemm(&g);
}

static void gemm_block(void *context, fo_piece piece, int thread) {
    const gemm_job *job = context;
    ptrdiff_t i = piece.task / job->across * job->rows, j = piece.task % job->across * job->columns;
    const ptrdiff_t unit = job->g.m > 4 ? job->kn->nr : 4 * job->kn->nr; /* few rows want four panels at once */
    ptrdiff_t m = min_(job->rows, job->g.m - i), n = min_(job->columns, job->g.n - j);
    n > unit ? fo_divide(piece, unit, &j, &n) : fo_divide(piece, 1, &i, &m);
    if (!n || !m) return;
    fo_gemm_args g = gemm_part(&job->g, job->kn->nr, i, m, j, n);
    float *scratch = job->scratch + thread * job->each;
    g.packed = scratch;
    if (job->lone)
        gemm_lent_row(job, &g, scratch);
    else if (job->unpacks)
        gemm_unpacking(job, &g, scratch);
    else if (job->piece < g.k)
        gemm_pieces(job, &g, scratch + job->panel);
    else
        job->kn->gemm(&g);
}

/* Blocks have multiples of so many columns: of four panels, or of what gives few rows enough independent sums where
 * each thread would have less than two blocks. Of one it had none: 16x4096x64 took 1.00 of the time of one thread. */
static ptrdiff_t unit_columns(const fo_kernels *kn, ptrdiff_t m, ptrdiff_t n, int threads, ptrdiff_t down) {
    ptrdiff_t panels = 4;
    while (panels * m > 4 && panels > 1 && down * div_up(n, panels * kn->nr) < 2 * threads) panels /= 2;
    return panels * kn->nr;
}

/* Floats of x in a block. */
static ptrdiff_t near_floats(void) { return fo_this_machine()->l2 / 2 / (ptrdiff_t)sizeof(float); }

/* Rows of x, of k steps, that stay in the cache; with long vectors so many that the next panel of w is fetched with
 * them (128 x 1024 x 1024 in 0.94 of the time, Zen 4). */
static ptrdiff_t fitting_rows(const fo_kernels *kn, ptrdiff_t k) {
    const ptrdiff_t fitting = near_floats() / max_(k, 1);
    const ptrdiff_t fetching = max_(FO_L2_SHARE / 4 / max_(k, 1) - 2 * kn->nr, FO_MIN_ROWS);
    return !kn->vec_is_line ? fitting : min_(fitting, fetching);
}

/* Whether to fetch lines of a large result: 4096x128x512 in 0.90 of the time, 4096x200x1024 in 0.95; but of few steps
 * 10000x16x100 in 1.03. */
static bool wants_lines(const fo_linear *plan, ptrdiff_t m) {
    return plan->k >= FO_FEW_STEPS && fo_is_large(m * plan->n, plan->act.kind);
}

/* Whether a row of x is multiplied by the rows of lent weights. */
static bool is_lone(const fo_linear *plan, const fo_gemm_args *g) {
    return plan->lent && plan->wk == 1 && g->m == 1 && g->k <= FO_CHAIN_STEPS;
}

/* Lets B be the weights. Those of 4 or 8 bits are unpacked in registers, or from many rows on a panel at a time. */
static void with_weights(const fo_linear *plan, gemm_job *job) {
    fo_gemm_args *g = &job->g;
    if (g->ak) job->each = fo_dots_scratch(job->kn);
    if (plan->w) {
        plan->dots ? fo_gemm_columns(job->kn, g, plan->w, g->k) : fo_gemm_panels(job->kn, g, plan->w, plan->type, 0);
        return;
    }
    const ptrdiff_t nr = job->kn->nr;
    if (plan->lent && plan->dots) {
        fo_gemm_columns(job->kn, g, plan->lent, plan->wn);
        return;
    }
    g->bits = &plan->bits;
    job->lent = plan->lent ? plan : NULL;
    if (plan->lent && plan->wn == 1 && g->m <= job->kn->mr) {
        g->form = FO_B_PACKING, g->b = plan->lent, g->ldb = plan->wk, g->panel = nr, job->panel = job->each = g->k * nr;
        return;
    }
    job->lone = is_lone(plan, g);
    job->unpacks = plan->lent || g->m > FO_BLOCKWISE_ROWS;
    if (job->lone)
        g->form = FO_ROWS, g->ldb = nr, job->each = round_up(g->n, max_(nr, MAX_LANES)), job->widest = fo_active();
    else if (job->unpacks)
        g->form = FO_ROWS, g->ldb = nr, job->panel = job->each = g->k * nr;
    else
        g->form = FO_BLOCKWISE;
}

/* Bytes of memory that cost as much as a weight: of 4 and 8 bits, to unpack them. */
static ptrdiff_t weight_bytes(const fo_linear *plan) { return plan->w || plan->lent ? fo_size(plan->type) : 1; }

/* By a plan of its own that packs lent weights, for many rows. */
static fo_status run_packed(const fo_linear *lent, ptrdiff_t m, const float *x, ptrdiff_t ldx, const float *residual,
                            ptrdiff_t ldr, float *y, ptrdiff_t ldy) {
    const fo_weights w = {lent->lent, FO_F32};
    fo_linear *plan = fo_linear_create(lent->n, lent->k, &w, lent->wn, lent->wk, lent->bias, lent->act);
    const fo_status status = plan ? fo_linear_run(plan, m, x, ldx, residual, ldr, y, ldy) : FO_NO_MEMORY;
    fo_linear_free(plan);
    return status;
}

/* Element (i, p) of x is at x[i*ldx + p], or ak != 0: at x[i + p*ak]. */
static fo_status run(const fo_linear *plan, ptrdiff_t m, const float *x, ptrdiff_t ldx, ptrdiff_t ak,
                     const float *residual, ptrdiff_t ldr, float *y, ptrdiff_t ldy) {
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t n = plan->n, k = plan->k;
    if (!m || !n) return FO_OK;
    gemm_job job = {.g = {.m = m,
                          .n = n,
                          .k = k,
                          .a = x,
                          .lda = ldx,
                          .ak = ak,
                          .c = y,
                          .ldc = ldy,
                          .ep = {.bias = plan->bias,
                                 .residual = residual,
                                 .ldr = ldr,
                                 .act = plan->act,
                                 .large = wants_lines(plan, m)}},
                    .kn = kn,
                    .rows = m,
                    .columns = n,
                    .across = 1,
                    .piece = k};
    with_weights(plan, &job);
    const double bytes = (double)weight_bytes(plan) * n * k;
    const int threads = fo_threads_for(fo_nanoseconds(kn, (double)m * n * k, bytes));
    const ptrdiff_t tasks = threads > 1 ? FO_TASKS_A_THREAD * threads : 1;
    const bool narrow = !kn->vec_is_line;
    const ptrdiff_t floats = near_floats();
    const bool few_rows = !plan->dots && (narrow ? k > FO_PIECE_STEPS : floats / max_(k, 1) < FO_MIN_ROWS);
    if (few_rows && m * k > floats && k <= FO_CHAIN_STEPS && job.g.form != FO_BLOCKWISE)
        job.piece = div_up(k, div_up(k, FO_PIECE_STEPS));
    const ptrdiff_t fitting = div_up(m, max_(fitting_rows(kn, job.piece), 2 * kn->mr));
    const ptrdiff_t blocks = max_(fitting, min_(tasks, div_up(m, FO_MIN_ROWS)));
    job.rows = div_up(m, blocks);
    const ptrdiff_t down = div_up(m, job.rows);
    ptrdiff_t across = div_up(tasks, down);
    while (down * across % threads) across++; /* as many for one thread as for another */
    if (down < tasks) job.columns = round_up(div_up(n, across), unit_columns(kn, m, n, threads, down));
    if (job.piece < k) {
        job.columns = min_(job.columns, FO_PIECE_COLUMNS);
        job.each = job.panel + job.rows * round_up(job.columns, kn->nr);
    }
    if (job.each && !(job.scratch = fo_arena_share(&job.each, threads, 0))) return FO_NO_MEMORY;
    job.across = div_up(n, job.columns);
    fo_parallel_pieces(down * job.across, threads, gemm_block, &job);
    if (job.scratch) fo_arena_release(job.scratch);
    return FO_OK;
}

fo_status fo_linear_run(const fo_linear *plan, ptrdiff_t m, const float *x, ptrdiff_t ldx, const float *residual,
                        ptrdiff_t ldr, float *y, ptrdiff_t ldy) {
    if (plan->lent && !plan->dots && m > FO_MIN_ROWS) return run_packed(plan, m, x, ldx, residual, ldr, y, ldy);
    return run(plan, m, x, ldx, 0, residual, ldr, y, ldy);
}

fo_status fo_linear_run_columns(const fo_linear *plan, ptrdiff_t m, const float *x, ptrdiff_t ldx,
                                const float *residual, ptrdiff_t ldr, float *y, ptrdiff_t ldy) {
    const ptrdiff_t k = plan->k;
    if (plan->dots) return run(plan, m, x, 1, ldx, residual, ldr, y, ldy);
    float *rows = fo_alloc_result((size_t)max_(m * k, 1) * sizeof *rows);
    if (!rows) return FO_NO_MEMORY;
    fo_copy_args copy = {.axes = {.nd = 2, .size = {m, k}, .stride = {{k, 1}, {1, ldx}}}, .y = rows, .x = x};
    fo_fold(&copy.axes);
    fo_status status = fo_strided_copy(&copy);
    if (status == FO_OK) status = fo_linear_run(plan, m, rows, k, residual, ldr, y, ldy);
    fo_free_result(rows);
    return status;
}
