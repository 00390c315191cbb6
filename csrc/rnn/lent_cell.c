/* Cells whose weights the caller lends: a row's sums are made gate by gate of the rows of w, in the order of those of
 * packed weights (kernels/gemm/gemv_columns.h), and lie as the step's kernel has them:
 *
 *   sums   of x and h together, but of a GRU's n those of x      of_h   of n those of h, else zeros
 */
#include "lent_cell.h"

ptrdiff_t fo_cell_lent(const fo_cell *cell) {
    ptrdiff_t columns = 0;
    for (int i = 0; i < cell->stages; i++) columns = max_(columns, cell->stage[i].columns);
    return cell->s.lends ? 2 * columns : 0;
}

/* sums += w x for gates first .. first+gates-1 of unit block b, or of a stage of one gate for so many blocks. */
static void add(const fo_cell *cell, const step_stage *stage, ptrdiff_t b, ptrdiff_t blocks, int first, int gates,
                const float *w, ptrdiff_t k, const float *x, float *sums) {
    const ptrdiff_t vl = cell->kn->vl, hidden = cell->s.hidden, u = b * vl, rows = min_(vl, hidden - u);
    float *at = sums + (b * stage->gates + first) * vl;
    if (rows <= 0) return;
    cell->kn->gemv(&(fo_gemv_args){.vectors = stage->gates == 1 ? blocks : gates,
                                   .rows = rows,
                                   .k = k,
                                   .w = w + (first * hidden + u) * k,
                                   .ldw = k,
                                   .step = (stage->gates == 1 ? vl : hidden) * k,
                                   .x = x,
                                   .start = at,
                                   .sums = at});
}

void fo_cell_lent_stage(const fo_cell *cell, const step_stage *stage, const step_job *job, const fo_step_args *g) {
    const ptrdiff_t vl = cell->kn->vl, each = stage->gates * vl, inputs = cell->s.inputs, outputs = cell->s.outputs;
    const ptrdiff_t whole = cell->s.hidden / vl;
    const bool three = stage->kind == FO_STEP_GRU;
    const int gates = stage->gates, together = three ? 2 : gates; /* whose sums of x and h are one */
    float *sums = job->lent, *of_h = sums + stage->columns;
    for (ptrdiff_t i = 0; i < g->m; i++) {
        const float *x = g->x + i * g->ldx, *h = g->h + i * g->ldh;
        const ptrdiff_t first = g->from * each, floats = (g->to - g->from) * each;
        memcpy(sums + first, stage->bias + first, (size_t)floats * sizeof *sums);
        if (three) memset(of_h + first, 0, (size_t)floats * sizeof *of_h);
        for (ptrdiff_t b = g->from, blocks; b < g->to; b += blocks) {
            blocks = gates == 1 ? max_(min_(g->to, whole) - b, 1) : 1;
            add(cell, stage, b, blocks, 0, gates, stage->lent_x, inputs, x, sums);
            add(cell, stage, b, blocks, 0, together, stage->lent_h, outputs, h, sums);
            if (!three) continue;
            memcpy(of_h + b * each + 2 * vl, cell->bias_n + b * vl, (size_t)vl * sizeof *of_h);
            add(cell, stage, b, 1, 2, 1, stage->lent_h, outputs, h, of_h);
        }
        fo_step_args part = fo_step_part(g, i, 1, g->from, g->to);
        part.start = sums, part.lds = stage->columns, part.kx = part.kh = 0;
        part.wx = part.wh = sums; /* nothing is read of them */
        if (three) part.start += first, part.of_h = of_h + first;
        cell->kn->step(&part);
    }
}
