/* The k largest or least elements of fibres, in order. A heap keeps the best so far, the worst of them at its root: of
 * n elements in any order few are better than that, and the others cost a comparison each. Kept is a key of 64 bits,
 * which orders as the element does, and of equal elements the first before the next:
 *
 *      the element's bits, as an integer that orders alike | all ones minus its place
 */
#include <math.h>
#include <string.h>

#include "axes.h"

enum { PASSED = 16 }; /* elements that are passed over at once where none is better: the compiler makes vectors */

typedef struct {
    const fo_top_k_args *a;
    uint64_t *heaps; /* of k keys for each thread */
} top_k_job;

/* NaNs are the largest, both zeros are equal. */
static uint64_t key_of(float x, ptrdiff_t place, bool least) {
    const float value = isnan(x) ? fabsf(x) : x + 0.f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(x)) bits = INT32_MAX;
    const uint32_t order = bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
    return (uint64_t)(least ? ~order : order) << 32 | (uint32_t)~(uint32_t)place;
}

static ptrdiff_t place_of(uint64_t key) { return (ptrdiff_t)(uint32_t)~(uint32_t)key; }

/* Lets the key at `at` sink to where no child is less. */
static void sink(uint64_t *heap, ptrdiff_t size, ptrdiff_t at) {
    const uint64_t key = heap[at];
    for (ptrdiff_t child; (child = 2 * at + 1) < size; at = child) {
        child += child + 1 < size && heap[child + 1] < heap[child];
        if (heap[child] >= key) break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

/* Whether an element may be better than the worst one kept: all are but those that are surely not. */
static bool better(float x, float worst, bool least) { return least ? !(x >= worst) : !(x <= worst); }

static bool any_better(const float *x, float worst, bool least) {
    int found = 0;
    for (int l = 0; l < PASSED; l++) found |= better(x[l], worst, least);
    return found;
}

/* The first place from p on that may be better. */
static ptrdiff_t next_better(const fo_top_k_args *a, const float *x, ptrdiff_t p, float worst) {
    if (a->sx == 1)
        while (p + PASSED <= a->n && !any_better(x + p, worst, a->least)) p += PASSED;
    while (p < a->n && !better(x[p * a->sx], worst, a->least)) p++;
    return p;
}

static void top_k_fibre(void *context, ptrdiff_t task, int thread) {
    const top_k_job *job = context;
    const fo_top_k_args *a = job->a;
    ptrdiff_t offset[FO_TENSORS];
    fo_offsets(&a->kept, a->kept.nd, task, offset);
    const float *x = a->x + offset[1];
    uint64_t *heap = job->heaps + thread * a->k;
    for (ptrdiff_t p = 0; p < a->k; p++) heap[p] = key_of(x[p * a->sx], p, a->least);
    for (ptrdiff_t at = a->k / 2; at-- > 0;) sink(heap, a->k, at);
    for (ptrdiff_t p = a->k; (p = next_better(a, x, p, x[place_of(heap[0]) * a->sx])) < a->n; p++) {
        const uint64_t key = key_of(x[p * a->sx], p, a->least);
        if (key > heap[0]) heap[0] = key, sink(heap, a->k, 0);
    }
    for (ptrdiff_t last = a->k - 1; last >= 0; last--) { /* the worst goes behind the others */
        const uint64_t worst = heap[0];
        const ptrdiff_t place = place_of(worst);
        a->y[offset[0] + last * a->sy] = x[place * a->sx];
        a->places[offset[2] + last * a->sp] = place;
        heap[0] = heap[last];
        sink(heap, last, 0);
    }
}

fo_status fo_top_k(const fo_top_k_args *a) {
    const ptrdiff_t fibres = fo_points(&a->kept, a->kept.nd);
    if (!fibres || !a->k) return FO_OK;
    const int threads = fo_threads_for(fo_nanoseconds(fo_active(), 16.0 * (double)fibres * (double)a->n, 0));
    top_k_job job = {a, fo_arena_take((size_t)(threads * a->k) * sizeof(uint64_t))};
    if (!job.heaps) return FO_NO_MEMORY;
    fo_parallel_for(fibres, threads, top_k_fibre, &job);
    fo_arena_release(job.heaps);
    return FO_OK;
}
