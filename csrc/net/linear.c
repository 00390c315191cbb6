/* y = activation(x w^T + bias + residual) on packed weights: the output is cut into blocks of rows and columns.
 *
 * A block of rows of x stays in the second-level cache while the panels of w go by; with one or few rows the product is
 * bound by reading w, and the blocks are ranges of columns. The reduction is never shared; a long one goes in pieces,
 * whose sums wait in scratch. */
#include "../pack.h"

struct fo_linear {
    const fo_kernels *kn;
    ptrdiff_t n, k;
    bool halves, dots; /* the weights; columns of them, not panels */
    void *w;
    float *bias, *slopes;
    fo_activation act;
};

fo_linear *fo_linear_create(ptrdiff_t n, ptrdiff_t k, const fo_weights *w, ptrdiff_t wn, ptrdiff_t wk,
                            const float *bias, fo_activation act) {
    fo_linear *plan = fo_alloc(sizeof *plan);
    if (!plan) return NULL;
    const fo_kernels *kn = fo_kernels_for(n, k, false);
    bool failed = false;
    *plan = (fo_linear){.kn = kn, .n = n, .k = k, .dots = fo_is_dots(n, k), .act = act};
    plan->halves = w->halves && !plan->dots;
    plan->w = fo_alloc((size_t)(plan->dots ? n * k : fo_packed_size(kn, n, k)) * fo_weight_bytes(plan->halves));
    plan->bias = fo_copy(bias, n, &failed);
    plan->act.slopes = plan->slopes = fo_copy(act.slopes, n, &failed);
    if (!plan->w || failed) {
        fo_linear_free(plan);
        return NULL;
    }
    if (plan->dots)
        fo_pack_columns(kn, n, k, w, wk, wn, plan->w);
    else
        fo_pack_weights(kn, n, k, w, wk, wn, plan->w);
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
    ptrdiff_t rows, columns; /* of a block */
    ptrdiff_t across;        /* blocks side by side */
    ptrdiff_t piece, sums_each; /* steps at a time; floats of a thread's sums */
    float *sums;
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

static void gemm_block(void *context, fo_piece piece, int thread) {
    const gemm_job *job = context;
    ptrdiff_t i = piece.task / job->across * job->rows, j = piece.task % job->across * job->columns;
    fo_gemm_args g = job->g;
    const ptrdiff_t unit = g.m > 4 ? job->kn->nr : 4 * job->kn->nr; /* few rows want four panels at once */
    g.m = min_(job->rows, g.m - i);
    g.n = min_(job->columns, g.n - j);
    g.n > unit ? fo_divide(piece, unit, &j, &g.n) : fo_divide(piece, 1, &i, &g.m);
    if (!g.n || !g.m) return;
    g.a += i * g.lda;
    g.b += j / job->kn->nr * g.panel;
    g.c += i * g.ldc + j;
    if (g.ep.bias) g.ep.bias += j;
    if (g.ep.residual) g.ep.residual += i * g.ep.ldr + j;
    if (g.ep.act.slopes) g.ep.act.slopes += j;
    if (job->piece < g.k)
        gemm_pieces(job, &g, job->sums + thread * job->sums_each);
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
static ptrdiff_t near_floats(void) { return fo_near_bytes() / 2 / (ptrdiff_t)sizeof(float); }

/* Rows of x, of k steps, that stay in the cache; with long vectors so many that the next panel of w is fetched with
 * them (128 x 1024 x 1024 in 0.94 of the time, Zen 4). */
static ptrdiff_t fitting_rows(const fo_kernels *kn, ptrdiff_t k) {
    const ptrdiff_t fitting = near_floats() / max_(k, 1);
    const ptrdiff_t fetching = max_(FO_L2_SHARE / 4 / max_(k, 1) - 2 * kn->nr, FO_LEAST_ROWS);
    return !kn->vec_is_line ? fitting : min_(fitting, fetching);
}

/* Whether to fetch lines of a large result: 4096x128x512 in 0.90 of the time, 4096x200x1024 in 0.95; but of few steps
 * 10000x16x100 in 1.03. */
static bool wants_lines(const fo_linear *plan, ptrdiff_t m) {
    return plan->k >= FO_FEW_STEPS && fo_is_large(m * plan->n, plan->act.kind);
}

fo_status fo_linear_run(const fo_linear *plan, ptrdiff_t m, const float *x, ptrdiff_t ldx, const float *residual,
                        ptrdiff_t ldr, float *y, ptrdiff_t ldy) {
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t n = plan->n, k = plan->k;
    if (!m || !n) return FO_OK;
    gemm_job job = {.g = {.m = m, .n = n, .k = k, .a = x, .lda = ldx, .c = y, .ldc = ldy,
                          .ep = {.bias = plan->bias, .residual = residual, .ldr = ldr, .act = plan->act,
                                 .large = wants_lines(plan, m)}},
                    .kn = kn,
                    .rows = m,
                    .columns = n,
                    .across = 1,
                    .piece = k};
    plan->dots ? fo_gemm_columns(kn, &job.g, plan->w, k) : fo_gemm_panels(kn, &job.g, plan->w, plan->halves, 0);
    const double bytes = (double)fo_weight_bytes(plan->halves) * n * k;
    const int threads = fo_threads_for(fo_nanoseconds(kn, (double)m * n * k, bytes));
    const ptrdiff_t tasks = threads > 1 ? FO_TASKS_A_THREAD * threads : 1;
    const bool narrow = !kn->vec_is_line;
    const ptrdiff_t floats = near_floats();
    const bool few_rows = !plan->dots && (narrow ? k > FO_PIECE_STEPS : floats / max_(k, 1) < FO_LEAST_ROWS);
    if (few_rows && m * k > floats && k <= FO_CHAIN_STEPS) job.piece = div_up(k, div_up(k, FO_PIECE_STEPS));
    const ptrdiff_t fitting = div_up(m, max_(fitting_rows(kn, job.piece), 2 * kn->mr));
    const ptrdiff_t blocks = max_(fitting, min_(tasks, div_up(m, FO_LEAST_ROWS)));
    job.rows = div_up(m, blocks);
    const ptrdiff_t down = div_up(m, job.rows);
    ptrdiff_t across = div_up(tasks, down);
    while (down * across % threads) across++; /* as many for one thread as for another */
    if (down < tasks) job.columns = round_up(div_up(n, across), unit_columns(kn, m, n, threads, down));
    if (job.piece < k) {
        job.columns = min_(job.columns, FO_PIECE_COLUMNS);
        job.sums_each = job.rows * round_up(job.columns, kn->nr);
        job.sums = fo_arena_share(&job.sums_each, threads, 0);
        if (!job.sums) return FO_NO_MEMORY;
    }
    job.across = div_up(n, job.columns);
    fo_parallel_pieces(down * job.across, threads, gemm_block, &job);
    if (job.sums) fo_arena_release(job.sums);
    return FO_OK;
}
