/* Boxes that no better one of their class overlaps too much (NonMaxSuppression). Candidates of a class come from a
 * heap, the best first, until as many are kept as may be: what is left is never sorted. A candidate is compared with
 * boxes that are kept, 16 at once, which the compiler makes vectors of; their corners and areas are rows:
 *
 *      y0 y0 y0 ...   lower and upper corners, areas; up to a whole vector there are boxes without an area, which
 *      x0 x0 x0 ...   overlap none
 */
#include <math.h>
#include <string.h>

#include "../dispatch/estimate.h"
#include "../runtime/arena.h"
#include "../runtime/parallel.h"
#include "heap.h"

typedef struct {
    const fo_suppress_args *a;
    ptrdiff_t most, room, each; /* boxes of a class that are kept at most; floats of a row, bytes of a thread */
    char *scratch;
} suppress_job;

typedef struct {
    float y0, x0, y1, x1, area;
} box;
enum { NUMBERS = sizeof(box) / sizeof(float) };

static float lesser(float a, float b) { return a < b ? a : b; }
static float larger(float a, float b) { return a > b ? a : b; }

static box box_of(const float *p, bool centred) {
    const float w = p[2] / 2, h = p[3] / 2;
    box b = centred ? (box){p[1] - h, p[0] - w, p[1] + h, p[0] + w, 0}
                    : (box){lesser(p[0], p[2]), lesser(p[1], p[3]), larger(p[0], p[2]), larger(p[1], p[3]), 0};
    b.area = (b.y1 - b.y0) * (b.x1 - b.x0);
    return b;
}

/* Whether one of PASSED boxes overlaps b by more than it may. Where a number is NaN no comparison holds. */
static bool any_overlaps(const float *kept, ptrdiff_t room, const box *b, float overlap) {
    const float *y0 = kept, *x0 = y0 + room, *y1 = x0 + room, *x1 = y1 + room, *areas = x1 + room;
    int found = 0;
    for (int l = 0; l < PASSED; l++) {
        const float h = lesser(y1[l], b->y1) - larger(y0[l], b->y0), w = lesser(x1[l], b->x1) - larger(x0[l], b->x0);
        const float common = h * w, both = areas[l] + b->area - common;
        found |=
            (h > 0) & (w > 0) & (common > 0) & (both > 0) & (areas[l] > 0) & (b->area > 0) & (common / both > overlap);
    }
    return found;
}

static bool is_suppressed(const suppress_job *job, const float *kept, ptrdiff_t count, const box *b) {
    for (ptrdiff_t p = 0; p < count; p += PASSED)
        if (any_overlaps(kept + p, job->room, b, job->a->overlap)) return true;
    return false;
}

static bool any_above(const float *score, float least) {
    int found = 0;
    for (int l = 0; l < PASSED; l++) found |= score[l] > least;
    return found;
}

/* Puts the boxes whose scores are above the least one into a heap, the best at its root; returns how many there are. A
 * NaN is above none, and without a least score it comes last. */
static ptrdiff_t candidates(const fo_suppress_args *a, const float *score, uint64_t *heap) {
    ptrdiff_t count = 0;
    for (ptrdiff_t p = 0; p < a->boxes;) {
        const ptrdiff_t end = min_(p + PASSED, a->boxes);
        if (a->limited && end - p == PASSED && !any_above(score + p, a->least)) p = end;
        for (; p < end; p++) {
            heap[count] = isnan(score[p]) ? ~(uint64_t)(uint32_t)~(uint32_t)p : ~fo_key(score[p], p, false);
            count += !a->limited || score[p] > a->least;
        }
    }
    fo_make_heap(heap, count);
    return count;
}

static void suppress_class(void *context, ptrdiff_t task, int thread) {
    const suppress_job *job = context;
    const fo_suppress_args *a = job->a;
    const float *boxes = a->box + task / a->classes * a->boxes * 4;
    uint64_t *heap = (uint64_t *)(job->scratch + thread * job->each);
    float *kept = (float *)(heap + a->boxes);
    uint32_t *result = a->kept + task * job->most;
    ptrdiff_t count = 0;
    for (ptrdiff_t left = candidates(a, a->score + task * a->boxes, heap); left && count < job->most;) {
        const ptrdiff_t place = fo_key_place(~heap[0]);
        const box b = box_of(boxes + place * 4, a->centred);
        heap[0] = heap[--left];
        fo_sink(heap, left, 0);
        if (is_suppressed(job, kept, count, &b)) continue;
        if (count % PASSED == 0)
            for (int row = 0; row < NUMBERS; row++) memset(kept + row * job->room + count, 0, PASSED * sizeof(float));
        for (int row = 0; row < NUMBERS; row++) kept[row * job->room + count] = ((const float *)&b)[row];
        result[count++] = (uint32_t)place;
    }
    a->counts[task] = count;
}

fo_status fo_suppress(const fo_suppress_args *a, ptrdiff_t *found) {
    const ptrdiff_t tasks = a->batch * a->classes;
    suppress_job job = {.a = a, .most = min_(a->most, a->boxes)};
    *found = 0;
    if (!tasks || !job.most) return FO_OK;
    const int threads = fo_threads_for(fo_nanoseconds(fo_active(), 16.0 * (double)tasks * (double)a->boxes, 0));
    job.room = round_up(job.most, PASSED);
    job.each = a->boxes * (ptrdiff_t)sizeof(uint64_t) + NUMBERS * job.room * (ptrdiff_t)sizeof(float);
    job.each = round_up(job.each, 64);
    job.scratch = fo_arena_take((size_t)threads * (size_t)job.each);
    if (!job.scratch) return FO_NO_MEMORY;
    fo_parallel_for(tasks, threads, suppress_class, &job);
    fo_arena_release(job.scratch);
    for (ptrdiff_t task = 0; task < tasks; task++) *found += a->counts[task];
    return FO_OK;
}

void fo_suppressed(const fo_suppress_args *a, int64_t *rows) {
    const ptrdiff_t most = min_(a->most, a->boxes);
    for (ptrdiff_t task = 0; most && task < a->batch * a->classes; task++)
        for (ptrdiff_t i = 0; i < a->counts[task]; i++, rows += 3)
            rows[0] = task / a->classes, rows[1] = task % a->classes, rows[2] = a->kept[task * most + i];
}
