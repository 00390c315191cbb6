/* What a recurrent cell is: its packed weights, and what one of its steps takes. */
#ifndef FO_CELL_PLAN_H
#define FO_CELL_PLAN_H

#include <string.h>

#include "../machine/machine.h"
#include "../machine/tune.h"
#include "../matmul/product.h"
#include "../runtime/arena.h"
#include "../runtime/parallel.h"

typedef struct {
    fo_stage_kind kind;
    int gates;
    ptrdiff_t columns; /* blocks * gates * vl */
    ptrdiff_t lds;     /* distance of two rows of x parts made before */
    void *wx, *wh;     /* packed as kernels/rnn.h has them */
    float *bias;
    fo_linear x, h;               /* in their place, of bfloat16 */
    const float *lent_x, *lent_h; /* in their place, the caller's: the rows of the stage's first gate on */
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
    fo_linear hr;           /* in its place, of bfloat16 */
    fo_linear *of_x, *of_h; /* products by int8 weights, columns as kernels/rnn.h has them; else NULL */
};

/* ---- one step -------------------------------------------------------------------------------------------------- */

/* What the threads of a team have in common, and who of them this is. */
typedef struct {
    fo_barrier *barrier;
    int member, members;
} team_place;

/* Rows of operands: where they are, and the bytes from one to the next. */
typedef struct {
    char *at;
    ptrdiff_t ld;
} fo_rounded_rows;

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
    float *lent;    /* of a cell that lends: what fo_cell_lent_stage needs, fo_cell_lent floats */
    bool backwards; /* the order in which the units are done */
    fo_cell_rows rounded;
} step_job;

/* The kernel of the products of a cell of bfloat16, which reads their rounded operands. */
static inline const fo_product_kernel *fo_cell_kernel(const fo_cell *cell) { return cell->stage[0].h.kernel; }
/* Floats that a rounded row of k operands takes, with the distance to the next. */
static inline ptrdiff_t fo_rounded_floats(const fo_cell *cell, ptrdiff_t k) {
    return div_up(fo_row_distance(fo_cell_kernel(cell), k), (ptrdiff_t)sizeof(float));
}
/* Columns from which such a product may start are multiples of this. */
static inline ptrdiff_t fo_rounded_panel(const fo_kernels *kn) { return 4 * kn->vl; }
/* Columns j .. j + n - 1 of a product of m such rows. */
static inline void fo_cell_multiply(const fo_linear *w, ptrdiff_t m, fo_rounded_rows a, ptrdiff_t j, ptrdiff_t n,
                                    float *c, ptrdiff_t ldc) {
    fo_product_columns(w, m, a.at, a.ld, j, n, c, ldc);
}

/* Zeros for `count` elements; sets *failed where memory is short. */
static inline void *fo_cell_zeros(ptrdiff_t count, size_t each, bool *failed) {
    void *p = fo_alloc((size_t)count * each);
    if (p)
        memset(p, 0, (size_t)count * each);
    else
        *failed = true;
    return p;
}

/* The kernel's arguments for rows i .. i+m-1 of blocks from .. to-1. */
static inline fo_step_args fo_step_part(const fo_step_args *g, ptrdiff_t i, ptrdiff_t m, ptrdiff_t from, ptrdiff_t to) {
    fo_step_args part = *g;
    part.m = m, part.from = from, part.to = to;
    part.h += i * g->ldh, part.h_out += i * g->ldho;
    if (g->c) part.c += i * g->ldc;
    if (g->c_out) part.c_out += i * g->ldco;
    if (g->old) part.old += i * g->ldold;
    if (g->y) part.y += i * g->ldy;
    return part;
}

#endif
