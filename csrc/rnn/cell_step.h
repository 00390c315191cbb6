/* One step of a cell, by a team of threads. */
#ifndef FO_CELL_STEP_H
#define FO_CELL_STEP_H

#include "cell_plan.h"

/* This member's share of `all` things that come `together` so many: first .. last-1. */
void fo_cell_share(const team_place *at, ptrdiff_t all, ptrdiff_t together, ptrdiff_t *first, ptrdiff_t *last);

/* One step: this member's units, all rows. Returns when the member has done its share of h', not when the others
 * have. */
void fo_cell_step(const fo_cell *cell, const step_job *job, const team_place *at);

/* Floats of `between` for m rows. */
ptrdiff_t fo_cell_between(const fo_cell *cell, ptrdiff_t m);

/* Estimated nanoseconds of a step for one of `threads` threads that share its units: its multiply-adds, or its weights
 * from the cache that has room for them, which overlap for the most part; then they wait for one another, and each
 * reads what the others made of h. */
double fo_cell_nanoseconds(const fo_cell *cell, ptrdiff_t rows, int threads);

#endif
