/* Threads as the system gives them: whether they start, and with what. */
#ifndef FO_SYSTEM_THREADS_H
#define FO_SYSTEM_THREADS_H

#include <stdbool.h>

/* Whether so many threads start, all at once. libgomp ends the process where one does not (a limit on processes or
 * address space). At most MAX_THREADS. */
enum { MAX_THREADS = 1024 };
bool fo_threads_start(int n);

/* Starts a thread that hands down to the threads it starts that no signal is theirs, but of faults: who blocks one in
 * the threads it knows waits for it. */
bool fo_start_quietly(void *(*fn)(void *));

/* Whether the stack of this thread, which is not the first, is as large as kernels need (OMP_STACKSIZE, `ulimit -s`).
 * Where that cannot be told it is. */
bool fo_has_stack(void);

#endif
