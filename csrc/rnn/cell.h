/* A recurrent cell whose weights are packed, and the share of a thread in one of its steps. */
#ifndef FO_CELL_H
#define FO_CELL_H

#include "../machine/machine.h"
#include "../machine/tune.h"
#include "../pack.h"

typedef struct {
    fo_stage_kind kind;
    int gates;
    ptrdiff_t columns; /* blocks * gates * vl */
    ptrdiff_t lds;     /* distance of two rows of x parts made before */
    void *wx, *wh;     /* packed as kernels/rnn.h has them */
    float *bias;
} step_stage;

struct fo_cell {
    const fo_kernels *kn;
    fo_cell_shape s;
    ptrdiff_t blocks; /* of vl units; even, so that panels of the GEMM end where blocks do */
    fo_dtype type;    /* of the weights */
    int stages;
    step_stage stage[2];
    float *bias_n, *peephole;
    void *w_hr;
};

/* ---- one step -------------------------------------------------------------------------------------------------- */

/* What the threads of a team have in common, and who of them this is. */
typedef struct {
    fo_barrier *barrier;
    int member, members;
} team_place;

/* The step of fo_cell_io for m rows. sums: where not NULL, the x part of each stage, made before. y: a second place for
 * h', or NULL. */
typedef struct {
    fo_cell_io io;
    ptrdiff_t m;
    const float *sums[2];
    float *y;
    ptrdiff_t ldy;
    float *between; /* results of the first stage of two: 2 * m * hidden floats */
    bool backwards; /* the order in which the units are done */
} step_job;

/* This member's share of `all` things that come in pairs: first .. last-1. */
void fo_cell_share(const team_place *at, ptrdiff_t all, ptrdiff_t *first, ptrdiff_t *last);

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
