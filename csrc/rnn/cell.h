/* A recurrent cell whose weights are packed, and the share of a thread in one of its steps. */
#ifndef FO_CELL_H
#define FO_CELL_H

#include "../net/rounded_product.h"
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
    fo_rounded_weights x, h; /* in their place, of bfloat16 */
} step_stage;

struct fo_cell {
    const fo_kernels *kn;
    fo_cell_shape s;
    ptrdiff_t blocks;   /* of vl units; even, so that panels of the GEMM end where blocks do */
    ptrdiff_t together; /* blocks that are one thread's, for the same reason */
    fo_dtype type;      /* of the weights; FO_BF16: products are of rounded operands */
    int stages;
    step_stage stage[2];
    float *bias_n, *peephole;
    bool projects;
    void *w_hr;
    fo_rounded_weights hr;   /* in its place, of bfloat16 */
    fo_qlinear *of_x, *of_h; /* products by int8 weights, columns as kernels/rnn.h has them; else NULL */
};

/* ---- one step -------------------------------------------------------------------------------------------------- */

/* What the threads of a team have in common, and who of them this is. */
typedef struct {
    fo_barrier *barrier;
    int member, members;
} team_place;

/* Rounded rows of a cell of bfloat16: x, where its sums were not made before, h, and where each member rounds what it
 * made of h' (or nowhere) and of the results between two products. */
typedef struct {
    fo_rounded_rows x, h, h_out, between;
} fo_cell_rows;

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
    fo_cell_rows rounded;
} step_job;

/* This member's share of `all` things that come `together` so many: first .. last-1. */
void fo_cell_share(const team_place *at, ptrdiff_t all, ptrdiff_t together, ptrdiff_t *first, ptrdiff_t *last);

/* One step: this member's units, all rows. Returns when the member has done its share of h', not when the others
 * have. */
void fo_cell_step(const fo_cell *cell, const step_job *job, const team_place *at);

/* Of a cell of bfloat16 (rounded_cell.c). What rounds its operands. */
static inline const fo_qkernels *fo_cell_rounding(const fo_cell *cell) { return cell->stage[0].h.narrow.kn; }
/* The weights of a stage whose gates are `first` and those behind it, and the
 * projection's; false where memory is short. */
bool fo_cell_rounded_weights(const fo_cell *cell, const fo_cell_weights *from, int first, step_stage *stage);
bool fo_cell_rounded_projection(fo_cell *cell, const fo_weights *w_hr);
/* The products of a stage, the gates and the rounding of what comes of them, for the units of g. */
void fo_cell_rounded_stage(const fo_cell *cell, const step_stage *stage, const step_job *job, const fo_step_args *g);
/* Columns j .. j+n-1 of the projection, and their rounding. */
void fo_cell_rounded_project(const fo_cell *cell, const step_job *job, ptrdiff_t j, ptrdiff_t n);

/* Zeros for `count` elements; sets *failed where memory is short. */
void *fo_cell_zeros(ptrdiff_t count, size_t each, bool *failed);

/* Cells of int8 weights (dynamic.c): their one stage, without products of its own; and sequences of one layer, or a
 * step, of them. */
void fo_cell_make_dynamic(fo_cell *cell, const fo_cell_weights *weights, bool *failed);
fo_status fo_dynamic_sequence(const fo_sequence *s);
fo_status fo_dynamic_step(const fo_cell *cell, ptrdiff_t batch, const fo_cell_io *io);

/* Floats of `between` for m rows. */
ptrdiff_t fo_cell_between(const fo_cell *cell, ptrdiff_t m);

/* Estimated nanoseconds of a step for one of `threads` threads that share its units: its multiply-adds, or its weights
 * from the cache that has room for them, which overlap for the most part; then they wait for one another, and each
 * reads what the others made of h. */
double fo_cell_nanoseconds(const fo_cell *cell, ptrdiff_t rows, int threads);

#endif
