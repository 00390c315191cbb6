/* Pooling. Images whose channels are neighbours go to the kernel as they lie; others in blocks of channels that are
 * transposed into scratch and back. */
#include "../pack.h"

enum { BLOCK = 16 }; /* channels of a transposed block: it stays in the second-level cache up to 100 x 100 pixels */

typedef struct {
    const fo_pool_args *a;
    const fo_kernels *kn;
    ptrdiff_t blocks; /* of channels, in an image */
    float *scratch;
    ptrdiff_t x_each, y_each; /* floats of a thread */
} pool_job;

static void pool_row(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const pool_job *job = context;
    job->kn->pool_row(job->a, task / job->a->oh, task % job->a->oh);
}

/* c channels between an image's planes and scratch, where a pixel's channels are neighbours. */
static void to_pixels(const fo_kernels *kn, const float *x, const fo_image *s, ptrdiff_t c, ptrdiff_t h, ptrdiff_t w,
                      float *to) {
    for (ptrdiff_t i = 0; i < h; i++, x += s->sh, to += w * BLOCK)
        if (s->sw == 1)
            kn->transpose(c, w, x, s->sc, to, BLOCK);
        else
            for (ptrdiff_t j = 0; j < w; j++)
                for (ptrdiff_t l = 0; l < c; l++) to[j * BLOCK + l] = x[l * s->sc + j * s->sw];
}

static void from_pixels(const fo_kernels *kn, const float *from, const fo_image *s, ptrdiff_t c, ptrdiff_t h,
                        ptrdiff_t w, float *y) {
    for (ptrdiff_t i = 0; i < h; i++, y += s->sh, from += w * BLOCK)
        if (s->sw == 1)
            kn->transpose(w, c, from, BLOCK, y, s->sc);
        else
            for (ptrdiff_t j = 0; j < w; j++)
                for (ptrdiff_t l = 0; l < c; l++) y[l * s->sc + j * s->sw] = from[j * BLOCK + l];
}

static void pool_block(void *context, ptrdiff_t task, int thread) {
    const pool_job *job = context;
    const ptrdiff_t n = task / job->blocks, c = task % job->blocks * BLOCK;
    fo_pool_args a = *job->a;
    float *x = job->scratch + thread * (job->x_each + job->y_each), *y = x + job->x_each;
    a.c = min_(BLOCK, a.c - c);
    to_pixels(job->kn, a.x.data + n * a.x.sn + c * a.x.sc, &a.x, a.c, a.ih, a.iw, x);
    a.x = (fo_image){.data = x, .sc = 1, .sw = BLOCK, .sh = BLOCK * a.iw};
    a.y = (fo_image){.data = y, .sc = 1, .sw = BLOCK, .sh = BLOCK * a.ow};
    for (ptrdiff_t h = 0; h < a.oh; h++) job->kn->pool_row(&a, 0, h);
    from_pixels(job->kn, y, &job->a->y, a.c, a.oh, a.ow, job->a->y.data + n * job->a->y.sn + c * job->a->y.sc);
}

fo_status fo_pool(const fo_pool_args *a) {
    pool_job job = {.a = a, .kn = fo_active(), .blocks = div_up(a->c, BLOCK), .x_each = BLOCK * a->ih * a->iw,
                    .y_each = BLOCK * a->oh * a->ow};
    const double outputs = (double)a->n * a->c * a->oh * a->ow, inputs = (double)a->n * a->c * a->ih * a->iw;
    const int threads = fo_threads_for(fo_nanoseconds(job.kn, 4 * outputs * a->kh * a->kw, 4 * (outputs + inputs)));
    if (a->x.sc == 1 && a->y.sc == 1) {
        fo_parallel_for(a->n * a->oh, threads, pool_row, &job);
        return FO_OK;
    }
    job.scratch = fo_arena_take((size_t)((job.x_each + job.y_each) * threads) * sizeof(float));
    if (!job.scratch) return FO_NO_MEMORY;
    fo_parallel_for(a->n * job.blocks, threads, pool_block, &job);
    fo_arena_release(job.scratch);
    return FO_OK;
}
