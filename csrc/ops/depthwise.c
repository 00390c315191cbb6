/* Depthwise convolution: the output is cut into channels and rows of an image; the kernel does the rest, without scratch. */
#include "conv2d.h"

/* Planes balance threads by many tasks. Pixels lose by them: tasks that are few channels wide read each pixel in pieces (144x56x56 on two
 * threads with 1, 2 and 4: 32, 32 and 43 us; 256x14x14 3.6, 3.7 and 5.1), so that there are two only where rows do not divide evenly. */
enum { TASKS_A_THREAD = 4, WIDE = 384, ROWS_AT_ONCE = 2 /* of tiles with AVX-512, channels last */ };

typedef struct {
    fo_depthwise_args g; /* all channels and rows of image 0 */
    const fo_kernels *kn;
    ptrdiff_t channels, rows; /* of a task */
    ptrdiff_t across, down;   /* tasks of an image */
} depthwise_job;

/* Channels as lanes: blocks of vl channels, padded to whole vectors; in a block one vector for each tap. */
static void pack_taps(const fo_conv2d *plan, ptrdiff_t block, float *taps) {
    const ptrdiff_t vl = plan->kn->vl;
    for (ptrdiff_t o = block * vl; o < (block + 1) * vl; o++)
        for (ptrdiff_t t = 0; t < plan->k; t++)
            taps[(block * plan->k + t) * vl + o % vl] = o < plan->s.oc ? plan->w[o * plan->ldw + t] : 0;
}

static void depthwise_task(void *context, fo_piece piece, int thread) {
    (void)thread;
    const depthwise_job *job = context;
    const ptrdiff_t task = piece.task, across = task % job->across, down = task / job->across % job->down, n = task / job->across / job->down;
    fo_depthwise_args g = job->g;
    g.c0 = across * job->channels, g.h0 = down * job->rows;
    ptrdiff_t channels = min_(g.c1 - g.c0, job->channels), rows = min_(g.h1 - g.h0, job->rows);
    const bool by_rows = g.nhwc && rows >= 2 * ROWS_AT_ONCE;
    by_rows ? fo_divide(piece, ROWS_AT_ONCE, &g.h0, &rows) : fo_divide(piece, g.nhwc ? job->kn->vl : 1, &g.c0, &channels);
    if (!rows || !channels) return;
    g.c1 = g.c0 + channels, g.h1 = g.h0 + rows;
    g.x.data += n * g.x.sn, g.y.data += n * g.y.sn;
    if (g.r.data) g.r.data += n * g.r.sn;
    job->kn->depthwise(&g);
}

/* Channels as lanes are cut along the rows first, as the products before and after are: what a thread has written it reads again.
 * Seven rows of many channels are cut along those alone, for tiles of all rows (1024x7x7 on two threads 10.4 to 9.4 us). Planes are cut along
 * the channels first, for rows share input rows at the cuts. */
static void depthwise_cut(depthwise_job *job, const fo_conv2d_size *z, int threads) {
    const fo_depthwise_args *g = &job->g;
    const bool flat = g->nhwc && z->oh < 8 && z->oh % threads && g->c1 >= threads * WIDE;
    const ptrdiff_t each = !g->nhwc ? TASKS_A_THREAD : z->oh % threads && !flat ? 2 : 1;
    const ptrdiff_t unit = g->nhwc ? job->kn->vl : 1, tasks = threads > 1 ? div_up(each * threads, z->n) : 1;
    const ptrdiff_t down = g->nhwc && !flat ? min_(min_(threads, tasks), z->oh) : 1;
    job->channels = round_up(div_up(g->c1, div_up(tasks, down)), unit);
    job->across = div_up(g->c1, job->channels);
    job->rows = g->nhwc ? div_up(z->oh, down) : max_(div_up(z->oh, div_up(tasks, job->across)), min_(z->oh, 8));
    job->down = div_up(z->oh, job->rows);
}

/* Whether lanes are channels: where x and y have different orders, y decides. */
static bool channel_lanes(const fo_image *x, const fo_image *r, const fo_image *y) {
    return y->sc == 1 && !(y->sw == 1 && x->sw == 1 && (!r || r->sw == 1));
}

bool fo_depthwise_weights(const fo_conv2d *plan, fo_depthwise_args *g) {
    g->s = &plan->s, g->act = plan->s.act, g->bias = plan->bias, g->multiplier = plan->ocg, g->c1 = plan->s.oc;
    g->ldw = plan->ldw, g->half_rate = fo_at_half_rate(plan->kn);
    const ptrdiff_t blocks = div_up(plan->s.oc, plan->kn->vl);
    g->w = g->nhwc ? fo_conv2d_packed(plan, FO_DEPTHWISE_TAPS, blocks * plan->k * plan->kn->vl, blocks, pack_taps) : plan->w;
    return g->w != NULL;
}

fo_status fo_depthwise_run(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y) {
    const fo_conv2d_shape *s = &plan->s;
    depthwise_job job = {.g = {.z = z, .x = *x, .y = *y, .nhwc = channel_lanes(x, r, y), .h1 = z->oh}, .kn = plan->kn};
    if (r) job.g.r = *r;
    if (!fo_depthwise_weights(plan, &job.g)) return FO_NO_MEMORY;
    const double points = (double)z->n * s->oc * z->oh * z->ow;
    const int threads = fo_threads_for(fo_nanoseconds(plan->kn, points * plan->k, 8 * points));
    depthwise_cut(&job, z, threads);
    fo_parallel_pieces(z->n * job.across * job.down, threads, depthwise_task, &job);
    return FO_OK;
}
