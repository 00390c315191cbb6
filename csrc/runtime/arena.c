/* Scratch memory. A thread keeps the block of its last call up to KEEP bytes, so that a repeated call allocates nothing;
 * a larger block goes back to the system with the call that needed it. A nested call finds the block taken and gets its own. */
#define _GNU_SOURCE
#include "arena.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGN = 64, KEEP = 64 << 20, KEEP_FLOATS = KEEP / sizeof(float), HUGE = 2 << 20 };

typedef struct {
    void *block;
    size_t bytes;
    int taken;
    ptrdiff_t each; /* floats of a thread's part, as many as any call wanted */
} cache;

static __thread cache mine;
static pthread_key_t at_exit; /* frees a thread's block when the thread ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void) { pthread_key_create(&at_exit, free); }

void *fo_alloc(size_t bytes) {
    size_t align = bytes >= HUGE ? HUGE : ALIGN;
    if (bytes > (size_t)-1 - align) return NULL;
    void *p = aligned_alloc(align, (bytes + align - 1) / align * align + (bytes ? 0 : align));
#ifdef MADV_HUGEPAGE
    if (p && bytes >= HUGE) madvise(p, bytes, MADV_HUGEPAGE); /* fewer TLB misses in packed weights and tiles */
#endif
    return p;
}

void fo_free(void *p) { free(p); }

void *fo_arena_take(size_t bytes) {
    if (mine.taken || bytes > KEEP) return fo_alloc(bytes);
    if (!mine.block || bytes > mine.bytes) {
        pthread_once(&once, make_key);
        free(mine.block);
        mine.block = fo_alloc(bytes);
        mine.bytes = mine.block ? bytes : 0;
        pthread_setspecific(at_exit, mine.block);
    }
    mine.taken = mine.block != NULL;
    return mine.block;
}

float *fo_arena_share(ptrdiff_t *each, int threads, ptrdiff_t rest) {
    const ptrdiff_t widest = *each > mine.each ? *each : mine.each;
    if (threads > 1 && *each && widest <= KEEP_FLOATS / threads - rest) *each = mine.each = widest; /* a block that is kept */
    return fo_arena_take((size_t)(*each * threads + rest) * sizeof(float));
}

void fo_arena_release(void *scratch) {
    if (scratch == mine.block)
        mine.taken = 0;
    else
        free(scratch);
}
