/* Scratch memory of one call: one block, taken from the calling thread's cache. */
#ifndef FO_ARENA_H
#define FO_ARENA_H

#include <stddef.h>

/* At least `bytes` of scratch, 64-byte aligned, or NULL. Give it back with fo_arena_release before the call returns. */
void *fo_arena_take(size_t bytes);
void fo_arena_release(void *scratch);

/* Memory of a plan: 64-byte aligned; free with fo_free. NULL where it cannot be had. */
void *fo_alloc(size_t bytes);
void fo_free(void *p);

#endif
