/* Parallel loops: the only interface to OpenMP. */
#ifndef FO_PARALLEL_H
#define FO_PARALLEL_H

#include <stddef.h>

/* How many threads a job of so many nanoseconds (an estimate, at full speed) gets: 1 where the team would cost more than it brings. */
int fo_threads_for(double nanoseconds);

/* fn(context, task, thread) for task 0 .. tasks-1, on `threads` threads that claim the next task when they have done one;
 * 0 <= thread < threads. Tasks write disjoint outputs, so the result does not depend on who runs what.
 * Denormals are flushed inside; each thread's floating-point mode is restored. */
typedef void fo_task(void *context, ptrdiff_t task, int thread);
void fo_parallel_for(ptrdiff_t tasks, int threads, fo_task *fn, void *context);

#endif
