/* Products of matrices that both change from call to call. Few rows read B where it is; else each B is packed into
 * scratch, then blocks of rows are tasks. */
#include "../dispatch/estimate.h"
#include "../ops/axes.h"
#include "packing.h"

enum {
    ROWS = 96, /* of a block: enough to pay for its panel of B coming into the first-level cache */
};

/* How the kernel finds B. */
typedef enum {
    PANELS,   /* in scratch */
    IN_PLACE, /* where it is: packing it costs more than one tile of rows */
    SWAPPED,  /* where it is, its columns contiguous: C of one row is a column, of B's columns as rows times A */
    DOTS      /* as columns, which are contiguous or go into scratch */
} matmul_way;

typedef struct {
    const fo_matmul_args *a;
    const fo_kernels *kn;
    matmul_way way;
    bool copied; /* rows of A, to scratch */
    float *b, *rows;
    ptrdiff_t b_each, rows_each, panels, blocks;
    ptrdiff_t bi;              /* DOTS of one row and column each: from B to B */
    ptrdiff_t columns, across; /* of a block, all of them but where products are fewer than threads; blocks of them */
} matmul_job;

static void pack_panel(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const matmul_job *job = context;
    const fo_matmul_args *a = job->a;
    const ptrdiff_t product = task / job->panels, j = task % job->panels * job->kn->nr, n = min_(job->kn->nr, a->n - j);
    ptrdiff_t offset[FO_TENSORS];
    fo_offsets(&a->batch, a->batch.nd, product, offset);
    float *panel = job->b + product * job->b_each + j * a->k;
    const float *b = a->b + offset[2] + j * a->bn;
    if (job->way == DOTS)
        fo_pack_columns(job->kn, n, a->k, &(fo_weights){b, FO_F32}, a->bk, a->bn, panel);
    else
        fo_pack(job->kn, n, a->k, b, a->bk, a->bn, panel);
    if (a->scale != 1)
        for (ptrdiff_t i = 0; i < a->k * (job->way == DOTS ? n : job->kn->nr); i++) panel[i] *= a->scale;
}

/* A's rows i.. where the kernel reads them, contiguous. */
static const float *rows_of_a(const matmul_job *job, const float *from, ptrdiff_t m, float *scratch) {
    const fo_matmul_args *a = job->a;
    if (!job->copied) return from;
    if (a->am == 1)
        job->kn->transpose(a->k, m, from, a->ak, scratch, a->k);
    else
        for (ptrdiff_t r = 0; r < m; r++)
            for (ptrdiff_t p = 0; p < a->k; p++) scratch[r * a->k + p] = from[r * a->am + p * a->ak];
    return scratch;
}

static void multiply_block(void *context, ptrdiff_t task, int thread) {
    const matmul_job *job = context;
    const fo_matmul_args *a = job->a;
    const ptrdiff_t product = task / (job->blocks * job->across), block = task % (job->blocks * job->across);
    const ptrdiff_t i = block / job->across * ROWS, j = block % job->across * job->columns, nr = job->kn->nr;
    ptrdiff_t offset[FO_TENSORS];
    fo_offsets(&a->batch, a->batch.nd, product, offset);
    float *packed = job->rows + thread * job->rows_each;
    const float *b = a->b + offset[2] + j * a->bn;
    fo_gemm_args g = {.m = min_(ROWS, a->m - i),
                      .n = min_(job->columns, a->n - j),
                      .k = a->k,
                      .packed = packed,
                      .c = a->y + offset[0] + i * a->ym + j * a->yn,
                      .ldc = a->yn == 1 ? a->ym : a->yn,
                      .ep = {.transposed = a->yn != 1, .act = a->act}};
    if (g.ep.act.slopes) g.ep.act.slopes += j;
    g.a = rows_of_a(job, a->a + offset[1] + i * a->am, g.m, packed + nr * a->k), g.lda = job->copied ? a->k : a->am;
    switch (job->way) {
        case PANELS: fo_gemm_panels(job->kn, &g, job->b + product * job->b_each, FO_F32, 0); break;
        case IN_PLACE: g.form = FO_B_PACKING, g.b = b, g.ldb = a->bk, g.panel = nr; break;
        case DOTS:
            fo_gemm_columns(job->kn, &g, job->b_each ? job->b + product * job->b_each : b, job->b_each ? a->k : a->bn);
            g.b += i * job->bi, g.bi = job->bi, g.ak = !job->copied && a->ak != 1 ? a->ak : 0;
            break;
        case SWAPPED:
            g.form = FO_B_PACKING, g.b = g.a, g.ldb = 1, g.panel = nr, g.a = b, g.lda = a->bn;
            g.m = g.n, g.n = 1, g.ldc = a->yn, g.ep.transposed = false;
    }
    job->kn->gemm(&g);
}

static matmul_way way_of(const matmul_job *job) {
    const fo_matmul_args *a = job->a;
    if (fo_is_dots(a->n, a->k)) return DOTS;
    if (a->scale != 1) return PANELS;
    if (a->m == 1 && a->bk == 1 && a->bn != 1 && !a->act.slopes) return SWAPPED;
    return a->bn == 1 && a->m <= job->kn->mr ? IN_PLACE : PANELS;
}

/* Many products of a row and a column are one of that many rows, each of which has a B of its own. */
static void merge_products(fo_matmul_args *a, ptrdiff_t *bi) {
    const bool merged = a->m == 1 && a->n == 1 && fo_is_dots(1, a->k) && a->batch.nd == 1 && a->scale == 1 &&
                        a->ak == 1 && a->bk == 1 && a->batch.stride[2][0];
    if (!merged) return;
    a->m = a->batch.size[0], a->ym = a->batch.stride[0][0], a->am = a->batch.stride[1][0], a->yn = 1;
    *bi = a->batch.stride[2][0], a->batch.size[0] = 1;
}

/* Blocks, and scratch for B and of each thread. */
static void cut(matmul_job *job, ptrdiff_t products, int threads) {
    const fo_matmul_args *a = job->a;
    job->blocks = div_up(a->m, ROWS), job->panels = div_up(a->n, job->kn->nr);
    if (job->way == PANELS)
        job->b_each = fo_packed_size(job->kn, a->n, a->k);
    else if (job->way == DOTS)
        job->b_each = a->bk == 1 && a->scale == 1 ? 0 : a->n * a->k;
    else if (products < threads)
        job->columns = round_up(div_up(a->n, threads), job->kn->nr), job->across = div_up(a->n, job->columns);
    job->copied = a->ak != 1 && !(job->way == DOTS && a->am == 1);
    job->rows_each = a->k * (job->kn->nr + (job->copied ? min_(ROWS, a->m) : 0));
    if (job->way == DOTS && a->ak != 1) job->rows_each = max_(job->rows_each, fo_dots_scratch(job->kn));
}

fo_status fo_matmul(const fo_matmul_args *args) {
    fo_matmul_args own = *args;
    const fo_matmul_args *a = &own;
    matmul_job job = {.a = a, .kn = fo_active(), .across = 1};
    merge_products(&own, &job.bi);
    job.columns = a->n;
    const ptrdiff_t products = fo_points(&a->batch, a->batch.nd);
    if (!products || !a->m || !a->n) return FO_OK;
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, (double)products * a->m * a->n * a->k, 0));
    job.way = way_of(&job);
    cut(&job, products, threads);
    job.b = fo_arena_take((size_t)(products * job.b_each + threads * job.rows_each) * sizeof(float));
    if (!job.b) return FO_NO_MEMORY;
    job.rows = job.b + products * job.b_each;
    if (job.b_each) fo_parallel_for(products * job.panels, threads, pack_panel, &job);
    fo_parallel_for(products * job.blocks * job.across, threads, multiply_block, &job);
    fo_arena_release(job.b);
    return FO_OK;
}
