/* The k largest or least elements of fibres, in order. A heap keeps the best so far, the worst of them at its root: of
 * n elements in any order few are better than that, and the others cost a comparison each. Kept are their keys. */
#include "../dispatch/estimate.h"
#include "../runtime/arena.h"
#include "../runtime/parallel.h"
#include "axes.h"
#include "heap.h"

typedef struct {
    const fo_top_k_args *a;
    uint64_t *heaps; /* of k keys for each thread */
} top_k_job;

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
    for (ptrdiff_t p = 0; p < a->k; p++) heap[p] = fo_key(x[p * a->sx], p, a->least);
    fo_make_heap(heap, a->k);
    for (ptrdiff_t p = a->k; (p = next_better(a, x, p, x[fo_key_place(heap[0]) * a->sx])) < a->n; p++) {
        const uint64_t key = fo_key(x[p * a->sx], p, a->least);
        if (key > heap[0]) heap[0] = key, fo_sink(heap, a->k, 0);
    }
    for (ptrdiff_t last = a->k - 1; last >= 0; last--) { /* the worst goes after the others */
        const uint64_t worst = heap[0];
        const ptrdiff_t place = fo_key_place(worst);
        a->y[offset[0] + last * a->sy] = x[place * a->sx];
        a->places[offset[2] + last * a->sp] = place;
        heap[0] = heap[last];
        fo_sink(heap, last, 0);
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
