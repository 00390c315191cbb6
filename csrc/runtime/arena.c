/* Scratch memory. A thread keeps the block of its last call up to FO_KEEP_BYTES, so that a repeated call allocates
 * nothing; a larger block goes back to the system with the call that needed it. A call inside another (a layer of a
 * block of layers) finds that one's block taken and has another, which is kept too; deeper ones allocate. */
#define _GNU_SOURCE
#include "../include/fusedops/fusedops.h"
#include "../machine/tune.h"
#include "arena.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { ALIGN = 64, KEEP_FLOATS = FO_KEEP_BYTES / sizeof(float), HUGE = 2 << 20, LEVELS = 2 };

typedef struct {
    void *block;
    size_t bytes;
    int taken;
    ptrdiff_t each; /* floats of a thread's part, as many as any call wanted */
} cache;

static __thread cache mine[LEVELS];
static pthread_key_t at_exit[LEVELS]; /* free a thread's blocks when the thread ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_keys(void) {
    for (int i = 0; i < LEVELS; i++) pthread_key_create(&at_exit[i], free);
}

/* The level of the next call; LEVELS where all blocks are taken. */
static int level(void) {
    int i = 0;
    while (i < LEVELS && mine[i].taken) i++;
    return i;
}

/* Blocks that plans gave back, for the next plan: glibc returns memory at its heap's end to the system, and the page
 * faults of new memory took up to half as long as a one-shot call (weights of 270 KB: 140 us). Less than 8 MB in all,
 * so that they stay where memory is short, too. */
static _Atomic(void *) spares[FO_SPARES];
static atomic_uint turn;

static size_t spare_bytes(void *p) {
#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ /* which looks for blocks that are used after they were freed */
    const size_t bytes = malloc_usable_size(p);
    return bytes >= FO_MIN_SPARE && bytes < HUGE ? bytes : 0;
#else
    return (void)p, 0;
#endif
}

static void *take_spare(size_t bytes) {
    for (int i = 0; bytes >= FO_MIN_SPARE && i < FO_SPARES; i++) {
        void *p = atomic_load(&spares[i]) ? atomic_exchange(&spares[i], NULL) : NULL;
        if (!p) continue;
        if (spare_bytes(p) >= bytes && spare_bytes(p) / 2 <= bytes) return p;
        fo_free(p);
    }
    return NULL;
}

void *fo_alloc(size_t bytes) {
    size_t align = bytes >= HUGE ? HUGE : ALIGN;
    if (bytes > (size_t)-1 - align) return NULL;
    void *spare = bytes < HUGE ? take_spare(bytes) : NULL;
    if (spare) return spare;
    void *p = aligned_alloc(align, (bytes + align - 1) / align * align + (bytes ? 0 : align));
#ifdef MADV_HUGEPAGE
    if (p && bytes >= HUGE) madvise(p, bytes, MADV_HUGEPAGE); /* fewer TLB misses in packed weights and tiles */
#endif
    return p;
}

/* Before a result: the block that it is a part of. */
typedef struct {
    void *block;
    size_t bytes, at;
} result_head;
static __thread size_t result_at = ALIGN;

void fo_place_results(size_t at) { result_at = at; }

static void *alloc_at(size_t at, size_t bytes) {
    if (bytes > (size_t)-1 - 2 * FO_PAGE) return NULL;
    char *block = malloc(bytes + FO_PAGE + sizeof(result_head));
    if (!block) return NULL;
    char *p = block + sizeof(result_head);
    p += (at - (size_t)p) % FO_PAGE;
    ((result_head *)p)[-1] = (result_head){block, bytes, at};
#ifdef MADV_HUGEPAGE
    const size_t lead = -(size_t)p % HUGE;
    if (bytes >= 2 * HUGE) madvise(p + lead, bytes - lead, MADV_HUGEPAGE); /* as NumPy does for its own */
#endif
    return p;
}

void *fo_alloc_result(size_t bytes) { return alloc_at(result_at, bytes); }

void *fo_realloc_result(void *p, size_t bytes) {
    if (!p) return fo_alloc_result(bytes);
    const result_head head = ((result_head *)p)[-1];
    void *moved = alloc_at(head.at, bytes);
    if (moved) memcpy(moved, p, bytes < head.bytes ? bytes : head.bytes), free(head.block);
    return moved;
}

void fo_free_result(void *p) {
    if (p) free(((result_head *)p)[-1].block);
}

void fo_free(void *p) {
    void *none = NULL;
    if (!spare_bytes(p)) {
        free(p);
        return;
    }
    for (int i = 0; i < FO_SPARES; i++, none = NULL)
        if (atomic_compare_exchange_strong(&spares[i], &none, p)) return;
    free(atomic_exchange(&spares[atomic_fetch_add(&turn, 1) % FO_SPARES], p));
}

void *fo_arena_take(size_t bytes) {
    const int at = level();
    if (at == LEVELS || bytes > FO_KEEP_BYTES) return fo_alloc(bytes);
    cache *c = &mine[at];
    if (!c->block || bytes > c->bytes) {
        pthread_once(&once, make_keys);
        free(c->block);
        c->block = fo_alloc(bytes);
        c->bytes = c->block ? bytes : 0;
        pthread_setspecific(at_exit[at], c->block);
    }
    c->taken = c->block != NULL;
    return c->block;
}

float *fo_arena_share(ptrdiff_t *each, int threads, ptrdiff_t rest) {
    const int at = level();
    ptrdiff_t *wanted = at < LEVELS ? &mine[at].each : each;
    const ptrdiff_t widest = *each > *wanted ? *each : *wanted;
    /* a block that is kept */
    if (threads > 1 && *each && widest <= KEEP_FLOATS / threads - rest) *each = *wanted = widest;
    return fo_arena_take((size_t)(*each * threads + rest) * sizeof(float));
}

void fo_arena_release(void *scratch) {
    for (int i = 0; i < LEVELS; i++)
        if (scratch && scratch == mine[i].block) {
            mine[i].taken = 0;
            return;
        }
    free(scratch);
}
