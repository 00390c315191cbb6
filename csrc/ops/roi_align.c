/* RoiAlign: each bin of a box is one sum of pixels, whose weights are those of all points in it along either axis. */
#include <math.h>

#include "../dispatch/estimate.h"
#include "../runtime/arena.h"
#include "../runtime/parallel.h"

/* The pixels that a bin reads along one axis. */
typedef struct {
    ptrdiff_t count;
    int64_t *at;
    float *weight;
} line;

/* How an axis is cut: bins of `step` from `start` on, each with points. */
typedef struct {
    double start, step, points;
    ptrdiff_t size; /* of the image */
} cut;

typedef struct {
    const fo_roi_align_args *a;
    const fo_kernels *kn;
    char *scratch;
    ptrdiff_t each, rows, columns; /* bytes of a thread; pixels that a bin reads, at most */
} roi_job;

/* Points go one way: a pixel that was there before is one of the last three. */
static void add(line *l, ptrdiff_t at, double weight) {
    if (weight == 0) return;
    for (ptrdiff_t e = max_(l->count - 3, 0); e < l->count; e++)
        if (l->at[e] == at) {
            l->weight[e] += (float)weight;
            return;
        }
    l->at[l->count] = at;
    l->weight[l->count++] = (float)weight;
}

/* Points from a pixel before the image to one after it are read at its border, and all others are 0. The range that
 * is walked has a point more at either end: a division rounds its limits. */
static void cut_bin(const cut *c, ptrdiff_t bin, line *to) {
    const double each = c->step / c->points, from = c->start + (double)bin * c->step;
    const double size = (double)c->size, last = size - 1, before = (-1 - from) / each, after = (size - from) / each;
    double first = fmax(0, floor(fmin(before, after)) - 1), end = fmin(c->points - 1, ceil(fmax(before, after)));
    if (each == 0) first = 0, end = c->points - 1;
    to->count = 0;
    if (c->size == 0) return;
    const double more = fmin(end - first, (size + 1) / fabs(each) + 3); /* the second: where 1 changes no number */
    for (ptrdiff_t k = 0; (double)k <= more; k++) {
        const double at = from + (first + (double)k + 0.5) * c->step / c->points;
        if (!(at >= -1 && at <= size)) continue;
        const double p = fmin(fmax(at, 0), last);
        const ptrdiff_t i = (ptrdiff_t)p;
        add(to, i, ((double)(i + 1) - p) / c->points);
        if (i < c->size - 1) add(to, i + 1, (p - (double)i) / c->points);
    }
}

static cut cut_of(const fo_roi_align_args *a, float from, float to, ptrdiff_t bins, ptrdiff_t size) {
    const double start = (double)from * (double)a->scale + (double)a->shift;
    double length = (double)to * (double)a->scale + (double)a->shift - start;
    if (!a->centred) length = fmax(length, 1);
    const double step = length / (double)bins;
    return (cut){start, step, a->samples ? (double)a->samples : fmax(ceil(step), 0), size};
}

static cut rows_of(const fo_roi_align_args *a, ptrdiff_t r) {
    const float *const box = a->boxes + r * a->ldb;
    return cut_of(a, box[1], box[3], a->oh, a->h);
}

static cut columns_of(const fo_roi_align_args *a, ptrdiff_t r) {
    const float *const box = a->boxes + r * a->ldb;
    return cut_of(a, box[0], box[2], a->ow, a->w);
}

/* No bin reads more pixels: those that it is long, one at either end, and one of rounding. */
static ptrdiff_t most_pixels(cut c) { return (ptrdiff_t)fmin((double)c.size, ceil(fabs(c.step)) + 3); }

/* The pixels of one bin of two lines, as rows of x with weights. */
static void read_bin(const roi_job *job, const line *rows, const line *columns, line *all, const float *x, float *y) {
    const fo_roi_align_args *a = job->a;
    all->count = 0;
    for (ptrdiff_t i = 0; i < rows->count; i++)
        for (ptrdiff_t j = 0; j < columns->count; j++, all->count++) {
            all->at[all->count] = rows->at[i] * a->x.sh + columns->at[j] * a->x.sw;
            all->weight[all->count] = rows->weight[i] * columns->weight[j];
        }
    job->kn->sample(&(fo_sample_args){1, all->count, a->c, 1, a->c, x, all->weight, all->at, y}, 0, 1);
}

static void roi_task(void *context, ptrdiff_t r, int thread) {
    const roi_job *job = context;
    const fo_roi_align_args *a = job->a;
    const cut down = rows_of(a, r), across = columns_of(a, r);
    const ptrdiff_t n = job->rows + job->columns;
    int64_t *const at = (int64_t *)(void *)(job->scratch + thread * job->each);
    float *const weight = (float *)(at + n + job->rows * job->columns);
    line rows = {0, at, weight}, columns = {0, at + job->rows, weight + job->rows}, all = {0, at + n, weight + n};
    const float *const x = a->x.data + a->batch[r * a->batch_step] * a->x.sn;
    for (ptrdiff_t j = 0; j < a->ow; j++) {
        cut_bin(&across, j, &columns);
        for (ptrdiff_t i = 0; i < a->oh; i++) {
            cut_bin(&down, i, &rows);
            read_bin(job, &rows, &columns, &all, x, a->y.data + r * a->y.sn + i * a->y.sh + j * a->y.sw);
        }
    }
}

fo_status fo_roi_align(const fo_roi_align_args *a) {
    for (ptrdiff_t r = 0; r < a->count; r++) {
        const int64_t image = a->batch[r * a->batch_step];
        bool right = image >= 0 && image < a->n;
        for (int i = 0; i < 4; i++) right &= (bool)isfinite(a->boxes[r * a->ldb + i]);
        if (!right) return FO_OUTSIDE;
    }
    const double bins = (double)a->count * (double)a->oh * (double)a->ow;
    if (!bins || !a->c) return FO_OK;
    const int threads = fo_threads_for(fo_nanoseconds(fo_active(), 16 * bins * (double)(a->c + 16), 4 * bins));
    roi_job job = {.a = a, .kn = fo_active()};
    for (ptrdiff_t r = 0; r < a->count; r++) {
        job.rows = max_(job.rows, most_pixels(rows_of(a, r)));
        job.columns = max_(job.columns, most_pixels(columns_of(a, r)));
    }
    const ptrdiff_t most = job.rows + job.columns + job.rows * job.columns;
    job.each = round_up(most * (ptrdiff_t)(sizeof(int64_t) + sizeof(float)), 64);
    job.scratch = fo_arena_take((size_t)threads * (size_t)job.each);
    if (!job.scratch) return FO_NO_MEMORY;
    fo_parallel_for(a->count, threads, roi_task, &job);
    fo_arena_release(job.scratch);
    return FO_OK;
}
