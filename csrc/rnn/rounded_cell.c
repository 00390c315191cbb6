/* Recurrent cells of bfloat16: products by kernels of their own, whose sums the step's kernel takes for those that it
 * makes itself (of_h of fo_step_args). A few units of some rows go from one to the other by way of the first-level
 * cache. Each member of a team rounds what it makes of h', for the next step of all. */
#include "../matmul/packing.h"
#include "rounded_cell.h"

static const fo_activation NO_ACTIVATION;

/* The stage's columns of rows of `each` bytes a unit, gate by gate; of zeros where `from` is NULL. */
static void *interleaved(const fo_cell *cell, const step_stage *stage, const void *from, size_t each) {
    const ptrdiff_t vl = cell->kn->vl, hidden = cell->s.hidden;
    char *to = fo_alloc(max_((ptrdiff_t)((size_t)stage->columns * each), 1));
    if (!to) return NULL;
    memset(to, 0, (size_t)stage->columns * each);
    for (ptrdiff_t g = 0; from && g < stage->gates; g++)
        for (ptrdiff_t u = 0; u < hidden; u++)
            memcpy(to + (size_t)((u / vl * stage->gates + g) * vl + u % vl) * each,
                   (const char *)from + (size_t)(g * hidden + u) * each, each);
    return to;
}

/* Weights of the stage, k to a row, whose first row is w's number `first`. */
static bool make(const fo_cell *cell, const step_stage *stage, const fo_weights *w, ptrdiff_t first, ptrdiff_t k,
                 const float *bias, fo_linear *to) {
    const fo_weights part = {(const char *)w->data + first * k * fo_size(w->type), w->type};
    uint16_t *rounded = fo_bf16_weights(stage->gates * cell->s.hidden, k, &part, k, 1, NULL);
    uint16_t *columns = rounded ? interleaved(cell, stage, rounded, (size_t)k * sizeof *rounded) : NULL;
    const bool made = columns && fo_product_make(to, FO_BF16, 1, stage->columns, k, &(fo_weights){columns, FO_BF16}, k,
                                                 1, bias, &NO_ACTIVATION);
    fo_free(rounded);
    fo_free(columns);
    return made;
}

bool fo_cell_rounded_weights(const fo_cell *cell, const fo_cell_weights *from, int first, step_stage *stage) {
    const ptrdiff_t hidden = cell->s.hidden, row = first * hidden;
    float *bias_h = interleaved(cell, stage, NULL, sizeof *bias_h);
    if (bias_h && stage->kind == FO_STEP_GRU && from->b_hh)
        for (ptrdiff_t u = 0, vl = cell->kn->vl; u < hidden; u++)
            bias_h[(u / vl * 3 + 2) * vl + u % vl] = from->b_hh[2 * hidden + u];
    const bool made = bias_h && make(cell, stage, &from->w_ih, row, cell->s.inputs, stage->bias, &stage->x) &&
                      make(cell, stage, &from->w_hh, row, cell->s.outputs, bias_h, &stage->h);
    fo_free(bias_h);
    return made;
}

bool fo_cell_rounded_projection(fo_cell *cell, const fo_weights *w_hr) {
    const ptrdiff_t outputs = cell->s.outputs, hidden = cell->s.hidden;
    uint16_t *rounded = fo_bf16_weights(outputs, hidden, w_hr, hidden, 1, NULL);
    const bool made = rounded && fo_product_make(&cell->hr, FO_BF16, 1, outputs, hidden,
                                                 &(fo_weights){rounded, FO_BF16}, hidden, 1, NULL, &NO_ACTIVATION);
    fo_free(rounded);
    return made;
}

/* Elements first .. first+n-1 of the results of m rows, k each, to rounded rows. */
static void round_results(const fo_cell *cell, ptrdiff_t m, ptrdiff_t k, const float *from, ptrdiff_t ld,
                          fo_rounded_rows to, ptrdiff_t first, ptrdiff_t n) {
    for (ptrdiff_t i = 0; to.at && i < m; i++)
        fo_round(fo_cell_kernel(cell), k, from + i * ld + first, to.at + i * to.ld, first, n);
}

static fo_rounded_rows rows_from(fo_rounded_rows rows, ptrdiff_t i) {
    return (fo_rounded_rows){rows.at ? rows.at + i * rows.ld : NULL, rows.ld};
}

/* One part of a stage: its sums, its gates, and the rounding of what comes of them. */
static void run_part(const fo_cell *cell, const step_stage *stage, const step_job *job, const fo_step_args *g,
                     ptrdiff_t i, ptrdiff_t m, ptrdiff_t from, ptrdiff_t to) {
    float of_x[FO_STEP_BLOCK_FLOATS] __attribute__((aligned(64)));
    float of_h[FO_STEP_BLOCK_FLOATS] __attribute__((aligned(64)));
    const fo_cell_rows *rows = &job->rounded;
    const ptrdiff_t each = stage->gates * cell->kn->vl, j = from * each, n = (to - from) * each;
    const ptrdiff_t hidden = cell->s.hidden, u = from * cell->kn->vl;
    const bool second = stage->kind == FO_STEP_GRU_NEW, inner = cell->projects || stage->kind == FO_STEP_GRU_RESET;
    fo_step_args part = fo_step_part(g, i, m, from, to);
    part.of_h = of_h, part.ldoh = n;
    fo_cell_multiply(&stage->h, m, rows_from(second ? rows->between : rows->h, i), j, n, of_h, n);
    if (rows->x.at) {
        fo_cell_multiply(&stage->x, m, rows_from(rows->x, i), j, n, of_x, n);
        part.start = of_x, part.lds = n;
    } else {
        part.start = g->start + i * g->lds + j;
    }
    cell->kn->step(&part);
    const ptrdiff_t units = min_(to * cell->kn->vl, hidden) - u;
    if (units > 0)
        round_results(cell, m, hidden, part.h_out, part.ldho, rows_from(inner ? rows->between : rows->h_out, i), u,
                      units);
}

void fo_cell_rounded_stage(const fo_cell *cell, const step_stage *stage, const step_job *job, const fo_step_args *g) {
    const ptrdiff_t panel = fo_rounded_panel(cell->kn) / cell->kn->vl;       /* vectors */
    const ptrdiff_t unit = stage->gates == 3 ? panel : panel / stage->gates; /* blocks that end where a panel does */
    const ptrdiff_t row = unit * stage->gates * cell->kn->vl;
    const ptrdiff_t m = clamp_(g->m, 1, FO_STEP_BLOCK_FLOATS / row);
    const ptrdiff_t blocks = FO_STEP_BLOCK_FLOATS / (m * row) * unit, parts = div_up(g->to - g->from, blocks);
    for (ptrdiff_t p = 0; p < parts; p++) {
        const ptrdiff_t from = g->from + (g->backwards ? parts - 1 - p : p) * blocks;
        for (ptrdiff_t i = 0; i < g->m; i += m)
            run_part(cell, stage, job, g, i, min_(m, g->m - i), from, min_(from + blocks, g->to));
    }
}

void fo_cell_rounded_project(const fo_cell *cell, const step_job *job, ptrdiff_t j, ptrdiff_t n) {
    fo_cell_multiply(&cell->hr, job->m, job->rounded.between, j, n, job->io.h_out + j, job->io.ldho);
    round_results(cell, job->m, cell->s.outputs, job->io.h_out, job->io.ldho, job->rounded.h_out, j, n);
}
