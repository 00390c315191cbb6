/* Bands of output rows, whose pixels under them are copied once, with what is outside the image: a row of A is kh
 * segments, the lines of a window, as they are there. A row begins stride_w pixels after the one before, which it
 * overlaps.
 *
 *   copy     . . . r g b r g b r g b r g b r g b ...       3 channels, kw 3, stride 2
 *   row 0    [. . . r g b r g b r]                         the tenth of a line's elements is times a weight of 0
 *   row 1                [r g b r g b r g b r]
 *
 * The copy also rounds floats to bfloat16, and lets planes be pixels: an image is read once, in any order.
 */
#include "../../runtime/arena.h"
#include "../../runtime/parallel.h"
#include "qbands.h"

#include <string.h>

#include "../../machine/machine.h"

enum { LINE_BYTES = LINE_FLOATS * (int)sizeof(float) };

typedef struct {
    const fo_product_call *p;
    fo_qpatches in;
    fo_gemm_args g; /* the whole */
    fo_rescale rescale;
    fo_qsteps steps; /* of the image */
    ptrdiff_t c;     /* of a group */
    /* bytes: of an element and a pixel of the copy; of an element of the image; of a line of a window */
    ptrdiff_t size, pixel, of_x, line;
    ptrdiff_t rows, bands, columns, row_bytes; /* rows of a band; columns and bytes of a row of the copy */
    ptrdiff_t beyond;                          /* bytes of a line after its window */
    bool checks;                               /* whether these are bfloat16 */
    struct {
        ptrdiff_t near, raw, windows, copy, all;
    } at; /* floats of a thread's scratch, which begins with sums of rows */
    float *scratch;
} band_job;

/* Pixels of a row of the image next to one another, as the kernel reads them. */
static void copy_pixels(const band_job *job, ptrdiff_t pixels, const uint8_t *x, float *near, uint8_t *to) {
    const fo_kernels *kn = job->p->plan->kn;
    const ptrdiff_t c = job->c, bytes = pixels * c * job->size;
    const fo_qsteps steps = job->steps;
    const uint8_t flip = job->in.flip;
    if (job->of_x != job->size) {
        fo_qround_pixels(kn, c, pixels, (const float *)x, steps, near, (uint16_t *)to);
    } else if ((steps.c == 1 || c == 1) && steps.w == c) {
        kn->flip(bytes, x, flip, to);
    } else if (steps.c == 1 && c >= FO_IM2COL_MIN_CHANNELS) {
        for (ptrdiff_t w = 0; w < pixels; w++) kn->flip(job->in.c, x + w * job->in.sw, flip, to + w * job->in.c);
    } else {
        fo_qmove_pixels(kn, job->size, c, pixels, x, steps, to, (fo_qsteps){1, c});
        for (ptrdiff_t i = 0; flip && i < bytes; i++) to[i] ^= flip;
    }
}

/* A row of the image, or NULL, from column -left on. */
static void band_row(const band_job *job, const uint8_t *x, float *scratch, uint8_t *row) {
    const fo_qpatches *in = &job->in;
    const ptrdiff_t c = job->c * job->size, left = min_(in->left, job->columns),
                    end = x ? clamp_(in->iw + in->left, left, job->columns) : left;
    const int phases = job->p->plan->kernel->phases;
    uint8_t *to = phases == 1 ? row : (uint8_t *)(scratch + job->at.raw);
    memset(to, in->zero, (size_t)(left * c));
    memset(to + end * c, in->zero, (size_t)(job->row_bytes / phases - end * c));
    if (end > left) copy_pixels(job, end - left, x, scratch + job->at.near, to + left * c);
    if (phases > 1) job->p->plan->kn->split(job->columns * job->pixel / 4, min_(c, 4), to, row);
}

/* Whether there are infinities or NaN among so many elements of bfloat16, whose products with 0 are NaN. */
static bool has_others(ptrdiff_t n, const uint16_t *x) {
    uint16_t found = 0;
    for (ptrdiff_t i = 0; i < n; i++) found |= (x[i] & 0x7f80) == 0x7f80;
    return found;
}

/* The windows of an output row, one after another, from its first pixel on, with zeros after their lines. */
static void copy_windows(const band_job *job, const uint8_t *from, uint8_t *to) {
    const fo_qpatches *in = &job->in;
    const ptrdiff_t bytes = in->kw * job->pixel, step = in->stride_w * job->pixel,
                    down = in->dilation_h * job->row_bytes;
    memset(to, 0, (size_t)(in->ow * in->kh * job->line));
    for (ptrdiff_t w = 0; w < in->ow; w++)
        for (ptrdiff_t i = 0; i < in->kh; i++, to += job->line) memcpy(to, from + w * step + i * down, (size_t)bytes);
}

/* Output rows of a band: lines of A, of pixels from one on. */
static void multiply(const band_job *job, ptrdiff_t group, ptrdiff_t pixel, const fo_gemm_args *a, int32_t *sums) {
    const fo_linear *plan = job->p->plan;
    const fo_product_kernel *kernel = plan->kernel;
    const ptrdiff_t ow = job->in.ow, width = kernel->tiles ? plan->n : kernel->nr; /* AMX reads A once for all panels */
    for (ptrdiff_t j = 0; j < plan->n; j += width) {
        fo_gemm_args g = fo_product_part(job->p, &job->g, group, pixel, j);
        g.m = ow, g.n = min_(width, plan->n - j), g.lines = a->lines;
        g.segments = job->in.kh, g.k = job->line / 4, g.segment = a->segment;
        g.a_groups = a->a_groups, g.lda = a->lda, g.a_line = a->a_line;
        g.c_line = job->p->line ? job->p->c_line : ow * job->p->ldc;
        g.r_line = job->p->line ? job->p->r_line : ow * job->p->ldr;
        if (plan->q.w_zero && !j) plan->kn->row_sums(&g, sums);
        if (plan->q.w_zero) g.row_sums = sums;
        kernel->run(&g);
    }
}

static void band_task(void *context, ptrdiff_t task, int thread) {
    const band_job *job = context;
    const fo_qpatches *in = &job->in;
    const fo_linear *plan = job->p->plan;
    const int phases = plan->kernel->phases;
    const ptrdiff_t group = task % plan->groups, band = task / plan->groups, image = band / job->bands,
                    h = band % job->bands * job->rows, rows = min_(job->rows, in->oh - h);
    const ptrdiff_t first = h * in->stride_h - in->top,
                    copied = (rows - 1) * in->stride_h + (in->kh - 1) * in->dilation_h + 1;
    float *scratch = job->scratch + thread * job->at.all;
    uint8_t *copy = (uint8_t *)(scratch + job->at.copy), *windows = (uint8_t *)(scratch + job->at.windows);
    bool others = false;
    for (ptrdiff_t r = 0; r < copied; r++) {
        const bool there = first + r >= 0 && first + r < in->ih;
        const uint8_t *x = in->x + image * in->sn + (first + r) * in->sh + group * job->c * job->steps.c * job->of_x;
        uint8_t *row = copy + r * job->row_bytes;
        band_row(job, there ? x : NULL, scratch, row);
        if (job->checks) others = others || has_others(job->columns * job->c, (const uint16_t *)row);
    }
    memset(copy + copied * job->row_bytes, 0, (size_t)job->beyond);
    const ptrdiff_t pixel = (image * in->oh + h) * in->ow;
    fo_gemm_args a = {.lines = rows, .a_groups = copy, .lda = in->stride_w * job->pixel * phases};
    a.a_line = in->stride_h * job->row_bytes, a.segment = in->dilation_h * job->row_bytes;
    if (!others) {
        multiply(job, group, pixel, &a, (int32_t *)scratch);
        return;
    }
    a.lines = 1, a.a_groups = windows, a.lda = in->kh * job->line, a.segment = job->line;
    for (ptrdiff_t r = 0; r < rows; r++) {
        copy_windows(job, copy + r * a.a_line, windows);
        multiply(job, group, pixel + r * in->ow, &a, NULL);
    }
}

fo_status fo_qrun_bands(const fo_product_call *p, const fo_qpatches *in, ptrdiff_t images, fo_qsteps steps,
                        ptrdiff_t pixel) {
    const fo_linear *plan = p->plan;
    const int threads = fo_product_threads(p), phases = plan->kernel->phases;
    const ptrdiff_t size = fo_size(plan->kernel->product.a), of_x = fo_size(p->types.x);
    band_job job = {.p = p, .in = *in, .steps = steps, .c = in->c / of_x, .size = size, .of_x = of_x};
    job.pixel = pixel * size, job.line = plan->k / in->kh * size;
    job.beyond = job.line - in->kw * job.pixel, job.checks = job.beyond && plan->kernel->product.a == FO_BF16;
    fo_product_args(p, &job.g, &job.rescale);
    job.columns = (in->ow - 1) * in->stride_w + in->kw;
    job.row_bytes = round_up(job.columns * job.pixel, 4) * phases;
    const ptrdiff_t fitting = fo_this_machine()->l2 / 4 / (in->stride_h * job.row_bytes),
                    wanted = threads > 1 ? div_up(FO_TASKS_A_THREAD * threads, images * plan->groups) : 1;
    job.rows = clamp_(fitting, 1, div_up(in->oh, wanted)), job.bands = div_up(in->oh, job.rows);
    job.rows = div_up(in->oh, job.bands);
    const ptrdiff_t copied = (job.rows - 1) * in->stride_h + (in->kh - 1) * in->dilation_h + 1;
    const bool makes_near = of_x != size && steps.c != 1;
    job.at.near = plan->q.w_zero ? round_up(job.rows * in->ow, LINE_FLOATS) : 0;
    job.at.raw = job.at.near + (makes_near ? round_up(job.columns * job.c, LINE_FLOATS) : 0);
    job.at.windows = job.at.raw + (phases > 1 ? round_up(job.columns * job.pixel, LINE_BYTES) / 4 : 0);
    job.at.copy = job.at.windows + (job.checks ? round_up(in->ow * in->kh * job.line, LINE_BYTES) / 4 : 0);
    job.at.all = job.at.copy + round_up(copied * job.row_bytes + job.beyond, 4) / 4;
    job.scratch = fo_arena_share(&job.at.all, threads, 0);
    if (!job.scratch) return FO_NO_MEMORY;
    fo_parallel_for(images * job.bands * plan->groups, threads, band_task, &job);
    fo_arena_release(job.scratch);
    return FO_OK;
}
