/* Parallel loops: the only interface to OpenMP. */
#ifndef FO_PARALLEL_H
#define FO_PARALLEL_H

#include <stdatomic.h>
#include <stddef.h>

/* How many threads a job of so many nanoseconds (an estimate, at full speed) gets: 1 where the team would cost more
 * than it brings. */
int fo_threads_for(double nanoseconds);

/* The same for a job that is prepared here and runs later: the team of this place, and that in fo_parallel_region. */
typedef struct {
    double least; /* nanoseconds of a job that it is for */
    int threads;
} fo_team;
fo_team fo_team_here(void);
fo_team fo_region_team(void);
static inline int fo_threads_of(fo_team team, double ns) { return ns < team.least ? 1 : team.threads; }

/* fn(context, task, thread) for task 0 .. tasks-1, on `threads` threads that claim the next task when they have done
 * one; 0 <= thread < threads. Tasks write disjoint outputs, so the result does not depend on who runs what. Denormals
 * are flushed inside; each thread's floating-point mode is restored. */
typedef void fo_task(void *context, ptrdiff_t task, int thread);
void fo_parallel_for(ptrdiff_t tasks, int threads, fo_task *fn, void *context);

/* The same of tasks that can be divided: a thread that comes late to the last of its tasks, because a neighbor takes a
 * share of its core, claims a half of it, then a quarter, so that others who have nothing left to do take the rest. */
typedef struct {
    ptrdiff_t task;
    int first, end; /* quarters of it */
} fo_piece;
typedef void fo_divided(void *context, fo_piece piece, int thread);
void fo_parallel_pieces(ptrdiff_t tasks, int threads, fo_divided *fn, void *context);

/* Lets n things from *at on be those of a piece, in units of so many; 0 may be left. */
void fo_divide(fo_piece piece, ptrdiff_t unit, ptrdiff_t *at, ptrdiff_t *n);

/* fn(context, member, members) on `threads` threads at once, 0 <= member < members <= threads; they may wait for one
 * another. */
typedef void fo_member(void *context, int member, int members);
void fo_parallel_team(int threads, fo_member *fn, void *context);

/* fn(context) on this thread, the team kept together for the loops in it, which then start and end within a fraction of
 * a microsecond. */
void fo_parallel_region(void (*fn)(void *context), void *context);

/* Whether this thread has led a team since it last asked. */
int fo_led_team(void);

/* Returns when all members have called it, so often. A barrier begins as zeros; it has cache lines of its own. */
typedef struct {
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_int round;
} fo_barrier;
void fo_barrier_wait(fo_barrier *barrier, int members);

/* How far one member has come, for another that follows it. Begins as zero; it only grows. */
typedef struct {
    _Alignas(64) atomic_ptrdiff_t done;
} fo_progress;
void fo_progress_set(fo_progress *progress, ptrdiff_t done);
void fo_progress_wait(fo_progress *progress, ptrdiff_t done);

#endif
