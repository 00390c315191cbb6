/* Bands of output rows, whose pixels under them are copied once, with what is outside the image: a row of A is kh
 * segments of kw pixels, as they are there. */
#include "../../runtime/arena.h"
#include "../../runtime/parallel.h"
#include "qbands.h"

#include <string.h>

#include "../../machine/machine.h"

typedef struct {
    const fo_product_call *p;
    fo_qpatches in;
    fo_gemm_args g; /* the whole */
    fo_rescale rescale;
    ptrdiff_t size, sc, channels; /* bytes: of an element, from channel to channel, of a pixel of the copy */
    ptrdiff_t rows, bands, columns, row_bytes, sums, each; /* rows of a band; columns and bytes of a row of the copy;
                                                              pixels of a band whose sums are needed */
    float *scratch;
} band_job;

/* Pixels of three channels as ones of four, of `bytes` in all, a literal: whole words but for the last pixel, beyond
 * which nothing is read. */
static inline void pad_pixels(const fo_qpatches *in, const size_t bytes, ptrdiff_t pixels, const uint8_t *x,
                              uint8_t *to) {
    const uint64_t flip = in->flip * 0x0101010101010101u, kept = UINT64_MAX >> (64 - 6 * bytes);
    uint64_t v = 0;
    for (ptrdiff_t w = 0; w < pixels; w++, x += in->sw, to += bytes) {
        if (w + 1 < pixels)
            memcpy(&v, x, bytes);
        else
            memcpy(&v, x, bytes / 4 * 3);
        v = (v ^ flip) & kept;
        memcpy(to, &v, bytes);
    }
}

static void copy_pixels(const band_job *job, ptrdiff_t pixels, const uint8_t *x, uint8_t *to) {
    const fo_qpatches *in = &job->in;
    const fo_kernels *kn = job->p->plan->kn;
    if (job->channels > in->c && job->sc == job->size && in->sw >= in->c) {
        job->size == 1 ? pad_pixels(in, 4, pixels, x, to) : pad_pixels(in, 8, pixels, x, to);
    } else if (job->channels > in->c) {
        for (ptrdiff_t i = 0, at = 0; at < in->c; i++, at += job->size)
            for (ptrdiff_t w = 0; w < pixels; w++)
                for (ptrdiff_t b = 0; b < job->size; b++)
                    to[w * job->channels + at + b] = x[w * in->sw + i * job->sc + b] ^ in->flip;
    } else if (in->sw == in->c) {
        kn->flip(pixels * in->c, x, in->flip, to);
    } else {
        for (ptrdiff_t w = 0; w < pixels; w++) kn->flip(in->c, x + w * in->sw, in->flip, to + w * in->c);
    }
}

/* A row of the image from column -left on, and the bytes that a phase takes. */
static void band_row(const band_job *job, const uint8_t *x, uint8_t *raw, uint8_t *row) {
    const fo_qpatches *in = &job->in;
    const ptrdiff_t c = job->channels, end = min_(job->columns, in->iw + in->left), left = min_(in->left, job->columns);
    const int phases = job->p->plan->kernel->phases;
    uint8_t *to = phases == 1 ? row : raw;
    memset(to, in->zero, (size_t)(job->columns * c));
    if (x && end > left) copy_pixels(job, end - left, x, to + left * c);
    if (phases > 1) job->p->plan->kn->split(job->columns * c / 4, raw, row);
}

static void band_task(void *context, ptrdiff_t task, int thread) {
    const band_job *job = context;
    const fo_qpatches *in = &job->in;
    const fo_linear *plan = job->p->plan;
    const fo_product_kernel *kernel = plan->kernel;
    const ptrdiff_t group = task % plan->groups, band = task / plan->groups, image = band / job->bands,
                    h = band % job->bands * job->rows, rows = min_(job->rows, in->oh - h);
    const ptrdiff_t first = h * in->stride_h - in->top,
                    copied = (rows - 1) * in->stride_h + (in->kh - 1) * in->dilation_h + 1;
    int32_t *sums = (int32_t *)(job->scratch + thread * job->each);
    uint8_t *raw = (uint8_t *)(sums + job->sums), *copy = raw + round_up(job->columns * job->channels, 64);
    for (ptrdiff_t r = 0; r < copied; r++) {
        const bool there = first + r >= 0 && first + r < in->ih;
        const uint8_t *x = in->x + image * in->sn + (first + r) * in->sh + group * (in->c / job->size) * job->sc;
        band_row(job, there ? x : NULL, raw, copy + r * job->row_bytes);
    }
    const ptrdiff_t pixel = (image * in->oh + h) * in->ow;
    const ptrdiff_t width = kernel->tiles ? plan->n : kernel->nr; /* AMX reads A once for all panels */
    for (ptrdiff_t j = 0; j < plan->n; j += width) {
        fo_gemm_args g = fo_product_part(job->p, &job->g, group, pixel, j);
        g.m = in->ow, g.n = min_(width, plan->n - j), g.lines = rows;
        g.segments = in->kh, g.k = in->kw * job->channels / 4, g.segment = in->dilation_h * job->row_bytes;
        g.a_groups = copy, g.lda = in->stride_w * job->channels * kernel->phases,
        g.a_line = in->stride_h * job->row_bytes;
        g.c_line = job->p->line ? job->p->c_line : in->ow * job->p->ldc;
        g.r_line = job->p->line ? job->p->r_line : in->ow * job->p->ldr;
        if (job->sums && !j) plan->kn->row_sums(&g, sums);
        if (job->sums) g.row_sums = sums;
        kernel->run(&g);
    }
}

fo_status fo_qrun_bands(const fo_product_call *p, const fo_qpatches *in, ptrdiff_t images, ptrdiff_t sc,
                        ptrdiff_t channels) {
    const fo_linear *plan = p->plan;
    const int threads = fo_product_threads(p);
    const ptrdiff_t size = fo_size(plan->kernel->product.a);
    band_job job = {.p = p, .in = *in, .size = size, .sc = sc * size, .channels = channels * size};
    fo_product_args(p, &job.g, &job.rescale);
    job.columns = (in->ow - 1) * in->stride_w + in->kw;
    job.row_bytes = job.columns * job.channels * plan->kernel->phases;
    const ptrdiff_t fitting = fo_this_machine()->l2 / 4 / (in->stride_h * job.row_bytes),
                    wanted = threads > 1 ? div_up(FO_TASKS_A_THREAD * threads, images * plan->groups) : 1;
    job.rows = clamp_(fitting, 1, div_up(in->oh, wanted)), job.bands = div_up(in->oh, job.rows);
    job.rows = div_up(in->oh, job.bands);
    const ptrdiff_t copied = (job.rows - 1) * in->stride_h + (in->kh - 1) * in->dilation_h + 1;
    job.sums = plan->q.w_zero ? round_up(job.rows * in->ow, 16) : 0;
    job.each =
        job.sums + div_up(round_up(job.columns * job.channels, 64) + copied * job.row_bytes, (ptrdiff_t)sizeof(float));
    job.scratch = fo_arena_share(&job.each, threads, 0);
    if (!job.scratch) return FO_NO_MEMORY;
    fo_parallel_for(images * job.bands * plan->groups, threads, band_task, &job);
    fo_arena_release(job.scratch);
    return FO_OK;
}
