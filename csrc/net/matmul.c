/* Products of matrices that both change from call to call: each B is packed into scratch, then blocks of rows are
 * tasks. */
#include "axes.h"

enum {
    ROWS = 96, /* of a block: enough to pay for its panel of B coming into the first-level cache */
};

typedef struct {
    const fo_matmul_args *a;
    const fo_kernels *kn;
    float *b, *rows;
    ptrdiff_t b_each, rows_each, panels, blocks;
    bool in_place; /* B is read where it is: packing it costs more than one tile of rows */
} matmul_job;

static void pack_panel(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const matmul_job *job = context;
    const fo_matmul_args *a = job->a;
    const ptrdiff_t product = task / job->panels, j = task % job->panels * job->kn->nr, n = min_(job->kn->nr, a->n - j);
    ptrdiff_t offset[FO_TENSORS];
    fo_offsets(&a->batch, a->batch.nd, product, offset);
    float *panel = job->b + product * job->b_each + j * a->k;
    fo_pack(job->kn, n, a->k, a->b + offset[2] + j * a->bn, a->bk, a->bn, panel);
    if (a->scale != 1)
        for (ptrdiff_t i = 0; i < a->k * job->kn->nr; i++) panel[i] *= a->scale;
}

static void multiply_block(void *context, ptrdiff_t task, int thread) {
    const matmul_job *job = context;
    const fo_matmul_args *a = job->a;
    const ptrdiff_t product = task / job->blocks, i = task % job->blocks * ROWS;
    ptrdiff_t offset[FO_TENSORS];
    fo_offsets(&a->batch, a->batch.nd, product, offset);
    fo_gemm_args g = {.form = FO_ROWS, .m = min_(ROWS, a->m - i), .n = a->n, .k = a->k,
                      .a = a->a + offset[1] + i * a->am, .lda = a->am, .b = job->b + product * job->b_each,
                      .ldb = job->kn->nr, .panel = job->kn->nr * a->k, .c = a->y + offset[0] + i * a->ym,
                      .ldc = a->yn == 1 ? a->ym : a->yn, .ep = {.transposed = a->yn != 1, .act = a->act}};
    float *scratch = job->rows + thread * job->rows_each;
    if (job->in_place) {
        g.form = FO_B_PACKING, g.b = a->b + offset[2], g.ldb = a->bk, g.panel = job->kn->nr;
        g.packed = scratch + (a->ak == 1 ? 0 : ROWS * a->k);
    }
    if (a->ak != 1) { /* the kernel reads contiguous rows of A */
        for (ptrdiff_t r = 0; r < g.m; r++)
            for (ptrdiff_t p = 0; p < g.k; p++) scratch[r * g.k + p] = g.a[r * a->am + p * a->ak];
        g.a = scratch, g.lda = g.k;
    }
    job->kn->gemm(&g);
}

fo_status fo_matmul(const fo_matmul_args *a) {
    matmul_job job = {.a = a, .kn = fo_active(), .panels = 0};
    const ptrdiff_t products = fo_points(&a->batch, a->batch.nd);
    if (!products || !a->m || !a->n) return FO_OK;
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, (double)products * a->m * a->n * a->k, 0));
    job.in_place = a->bn == 1 && a->scale == 1 && a->m <= job.kn->mr && products >= threads;
    job.b_each = job.in_place ? 0 : fo_packed_size(job.kn, a->n, a->k);
    job.rows_each = (a->ak == 1 ? 0 : ROWS * a->k) + (job.in_place ? job.kn->nr * a->k : 0);
    job.panels = div_up(a->n, job.kn->nr);
    job.blocks = div_up(a->m, ROWS);
    job.b = fo_arena_take((size_t)(products * job.b_each + threads * job.rows_each) * sizeof(float));
    if (!job.b) return FO_NO_MEMORY;
    job.rows = job.b + products * job.b_each;
    if (!job.in_place) fo_parallel_for(products * job.panels, threads, pack_panel, &job);
    fo_parallel_for(products * job.blocks, threads, multiply_block, &job);
    fo_arena_release(job.b);
    return FO_OK;
}
