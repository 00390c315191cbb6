/* Scratch memory of one call: one block, taken from the calling thread's cache. */
#ifndef FO_ARENA_H
#define FO_ARENA_H

#include <stddef.h>

/* At least `bytes` of scratch, 64-byte aligned, or NULL. Give it back with fo_arena_release before the call returns. */
void *fo_arena_take(size_t bytes);
void fo_arena_release(void *scratch);

/* The same for a team: *each floats for each of so many threads, and `rest` floats after them all. *each becomes the
 * distance between two threads' parts, which stays from call to call: a thread finds its part in its own processor's
 * cache. */
float *fo_arena_share(ptrdiff_t *each, int threads, ptrdiff_t rest);

/* Memory of a plan: 64-byte aligned; free with fo_free. NULL where it cannot be had. */
void *fo_alloc(size_t bytes);
void fo_free(void *p);

#endif
