/* Passes over memory, cut into blocks of rows; a single long row into ranges of columns. */
#include "../dispatch/estimate.h"
#include "../runtime/parallel.h"

typedef struct {
    fo_pointwise_args a;
    const fo_kernels *kn;
    ptrdiff_t rows, columns, across;
} pointwise_job;

static void pointwise_block(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const pointwise_job *job = context;
    const ptrdiff_t i = task / job->across * job->rows, j = task % job->across * job->columns;
    const ptrdiff_t channel = job->a.channel_rows ? 0 : j;
    fo_pointwise_args a = job->a;
    a.m = min_(job->rows, a.m - i);
    a.n = min_(job->columns, a.n - j);
    a.x += i * a.ldx + j;
    a.y += i * a.ldy + j;
    if (a.factor) a.factor += i * a.ldf + j;
    if (a.residual) a.residual += i * a.ldr + j;
    if (a.scale) a.scale += channel;
    if (a.shift) a.shift += channel;
    if (a.act.slopes) a.act.slopes += channel;
    job->kn->pointwise(&a);
}

void fo_pointwise(const fo_pointwise_args *args) {
    if (!args->m || !args->n) return;
    pointwise_job job = {.a = *args, .kn = fo_active(), .across = 1};
    const double cost = 1 + fo_act_cost(&args->act);
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, cost * args->m * args->n, 8.0 * args->m * args->n));
    const ptrdiff_t unit = args->channel_rows ? args->channel_rows : 1; /* a block starts at channel 0 */
    job.rows = round_up(div_up(args->m, threads), unit);
    job.columns = args->n;
    if (threads > 1 && job.rows >= args->m) job.columns = round_up(div_up(args->n, threads), job.kn->vl);
    job.across = div_up(args->n, job.columns);
    fo_parallel_for(div_up(args->m, job.rows) * job.across, threads, pointwise_block, &job);
}
