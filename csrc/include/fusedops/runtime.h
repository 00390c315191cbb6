/* fusedops: instruction sets, threads, and where results lie in memory. */
#ifndef FO_RUNTIME_H
#define FO_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

/* Instruction sets in ascending order of preference; fo_isa_count of them, of which fo_isa_available says what this
 * machine runs. */
int fo_isa_count(void);
const char *fo_isa_name(int isa);
bool fo_isa_available(int isa);
int fo_get_isa(void);
void fo_set_isa(int isa);

/* Threads of the next operations; the default is what the affinity mask, the cgroup's quota and OMP_NUM_THREADS allow.
 */
void fo_set_num_threads(int n);
int fo_get_num_threads(void);
/* At most so many threads in operations that the calling thread starts, 0: as many as there are; returns the limit that
 * it had. */
int fo_limit_threads(int n);
const char *fo_threading(void); /* "openmp", or "serial: " and why */
const char *fo_compiler(void);

/* Where results lie in a page (runtime/place.c). Arrays under FO_PLACED bytes are not worth it. */
enum { FO_PAGE = 4096, FO_PLACED = 64 << 10 };
typedef enum {
    FO_AFTER,       /* half a page and more after x, at a line of the cache */
    FO_AFTER_LIGHT, /* of a layer that loads as often as it stores: at the part of a line where x is */
    FO_BETWEEN      /* half as far: what is neither x nor its result */
} fo_place;
size_t fo_place_after(const void *x, fo_place place);           /* in a page, for x */
float *fo_place_in(float *room, const void *x, fo_place place); /* the first such place in room */
/* from `at` on, for what step `step` of a network writes */
size_t fo_place_of_step(size_t at, size_t bytes, size_t step);

/* Memory of a caller's results, NULL where it cannot be had. The next ones of this thread begin `at` bytes after a
 * page's start, a multiple of 16. */
void fo_place_results(size_t at);
void *fo_alloc_result(size_t bytes);
void *fo_realloc_result(void *result, size_t bytes);
void fo_free_result(void *result);

#endif
