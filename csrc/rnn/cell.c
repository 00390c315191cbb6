/* Recurrent cells: packing of the gates, and a call.
 *
 * A step has one or two stages, each a product with gate functions as its epilogue (kernels/rnn.h). A second one is
 * needed where all of a first result goes into another product: the GRU that resets before the product, and the LSTM's
 * projection. The threads of a team share the units of a layer, so that each reads its part of the weights and no
 * other.
 */
#include "../matmul/packing.h"
#include "cell_step.h"
#include "dynamic_cell.h"
#include "lent_cell.h"
#include "rounded_cell.h"

/* Floats of a row of a group of w_h. */
static ptrdiff_t group_width(const fo_kernels *kn, int gates) {
    return (gates == 3 ? kn->group_of_3 : kn->group) * kn->vl;
}

/* n rows of w, k long, from `unit` on, as columns of rows at distances of ld, the first at to + at. */
static void pack_units(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k, const fo_weights *w, ptrdiff_t unit, void *to,
                       ptrdiff_t at, ptrdiff_t ld) {
    if (w->type == FO_F32)
        kn->transpose(n, k, (const float *)w->data + unit * k, k, (float *)to + at, ld);
    else
        fo_transpose_16(n, k, (const uint16_t *)w->data + unit * k, k, (uint16_t *)to + at, ld);
}

/* Gate `gate` of the weights becomes vector `slot` of each unit block of the stage. */
static void pack_gate(const fo_cell *cell, const fo_cell_weights *from, int gate, const step_stage *to, int slot) {
    const fo_kernels *kn = cell->kn;
    const ptrdiff_t vl = kn->vl, nr = kn->nr, hidden = cell->s.hidden, inputs = cell->s.inputs;
    const ptrdiff_t outputs = cell->s.outputs;
    const ptrdiff_t group = group_width(kn, to->gates);
    for (ptrdiff_t u = 0; u < hidden; u += vl) {
        const ptrdiff_t unit = gate * hidden + u, j = (u / vl * to->gates + slot) * vl, n = min_(vl, hidden - u);
        pack_units(kn, n, inputs, &from->w_ih, unit, to->wx, j / nr * nr * inputs + j % nr, nr);
        pack_units(kn, n, outputs, &from->w_hh, unit, to->wh, j / group * group * outputs + j % group, group);
    }
}

/* Columns of rows at distances of ld as n rows of a weight again. */
static void unpack_units(const fo_cell *cell, ptrdiff_t n, ptrdiff_t k, const void *from, ptrdiff_t at, ptrdiff_t ld,
                         void *w, ptrdiff_t unit) {
    if (cell->type == FO_F32)
        cell->kn->transpose(k, n, (const float *)from + at, ld, (float *)w + unit * k, k);
    else
        fo_transpose_16(k, n, (const uint16_t *)from + at, ld, (uint16_t *)w + unit * k, k);
}

void fo_cell_weights_again(const fo_cell *cell, void *w_ih, void *w_hh) {
    const ptrdiff_t vl = cell->kn->vl, nr = cell->kn->nr, hidden = cell->s.hidden;
    for (int i = 0, gate = 0; i < cell->stages; i++) {
        const step_stage *s = &cell->stage[i];
        const ptrdiff_t group = group_width(cell->kn, s->gates);
        for (int slot = 0; slot < s->gates; slot++, gate++)
            for (ptrdiff_t u = 0; u < hidden; u += vl) {
                const ptrdiff_t unit = gate * hidden + u, j = (u / vl * s->gates + slot) * vl, n = min_(vl, hidden - u);
                const ptrdiff_t inputs = cell->s.inputs, outputs = cell->s.outputs;
                unpack_units(cell, n, inputs, s->wx, j / nr * nr * inputs + j % nr, nr, w_ih, unit);
                unpack_units(cell, n, outputs, s->wh, j / group * group * outputs + j % group, group, w_hh, unit);
            }
    }
}

/* Its bias: b_ih + b_hh, or b_ih alone. */
static void pack_bias(const fo_cell *cell, const fo_cell_weights *from, int gate, const step_stage *to, int slot,
                      bool b_hh) {
    const ptrdiff_t vl = cell->kn->vl, hidden = cell->s.hidden;
    for (ptrdiff_t u = 0; u < hidden; u++) {
        const ptrdiff_t unit = gate * hidden + u;
        to->bias[(u / vl * to->gates + slot) * vl + u % vl] =
            (from->b_ih ? from->b_ih[unit] : 0) + (b_hh && from->b_hh ? from->b_hh[unit] : 0);
    }
}

/* The gates first, first + 1, ... as the cell's next stage. */
static void add_stage(fo_cell *cell, const fo_cell_weights *weights, fo_stage_kind kind, int first, int gates,
                      bool *failed) {
    step_stage *stage = &cell->stage[cell->stages++];
    *stage = (step_stage){.kind = kind, .gates = gates, .columns = cell->blocks * gates * cell->kn->vl};
    stage->lds = fo_leading(cell->kn, stage->columns);
    stage->bias = fo_cell_zeros(stage->columns, sizeof(float), failed);
    if (*failed) return;
    for (int g = 0; g < gates; g++) pack_bias(cell, weights, first + g, stage, g, !(kind == FO_STEP_GRU && g == 2));
    if (cell->s.a == FO_BF16) {
        *failed |= !fo_cell_rounded_weights(cell, weights, first, stage);
        return;
    }
    if (cell->s.lends) {
        stage->lent_x = (const float *)weights->w_ih.data + first * cell->s.hidden * cell->s.inputs;
        stage->lent_h = (const float *)weights->w_hh.data + first * cell->s.hidden * cell->s.outputs;
        return;
    }
    const size_t each = (size_t)fo_size(cell->type);
    stage->wx = fo_cell_zeros(stage->columns * cell->s.inputs, each, failed);
    stage->wh = fo_cell_zeros(round_up(stage->columns, group_width(cell->kn, gates)) * cell->s.outputs, each, failed);
    if (*failed) return;
    for (int g = 0; g < gates; g++) pack_gate(cell, weights, first + g, stage, g);
}

/* The weights of a projection. */
static void add_projection(fo_cell *cell, const fo_weights *w_hr, bool *failed) {
    const ptrdiff_t hidden = cell->s.hidden, outputs = cell->s.outputs;
    cell->projects = true;
    if (cell->s.a == FO_BF16) {
        *failed |= !fo_cell_rounded_projection(cell, w_hr);
        return;
    }
    cell->w_hr = fo_alloc((size_t)(fo_packed_size(cell->kn, outputs, hidden) * fo_size(cell->type)));
    *failed |= !cell->w_hr;
    if (!*failed) fo_pack_weights(cell->kn, outputs, hidden, w_hr, 1, hidden, cell->w_hr);
}

fo_cell *fo_cell_create(const fo_cell_shape *shape, const fo_cell_weights *weights) {
    fo_cell *cell = fo_alloc(sizeof *cell);
    if (!cell) return NULL;
    const fo_kernels *kn = fo_active();
    const ptrdiff_t hidden = shape->hidden;
    bool failed = false;
    *cell = (fo_cell){.kn = kn,
                      .s = *shape,
                      .blocks = round_up(div_up(hidden, kn->vl), 2),
                      .together = shape->a == FO_BF16 ? fo_rounded_panel(kn) / kn->vl : 2,
                      .type = shape->a == FO_BF16 ? FO_BF16 : weights->w_hh.type};
    if (cell->type == FO_S8) {
        fo_cell_make_dynamic(cell, weights, &failed);
    } else if (shape->kind == FO_RNN) {
        add_stage(cell, weights, FO_STEP_RNN, 0, 1, &failed);
    } else if (shape->kind == FO_LSTM) {
        add_stage(cell, weights, FO_STEP_LSTM, 0, 4, &failed);
    } else if (shape->reset_after) {
        add_stage(cell, weights, FO_STEP_GRU, 0, 3, &failed);
        cell->bias_n = fo_cell_zeros(cell->blocks * kn->vl, sizeof(float), &failed);
        if (weights->b_hh && !failed) memcpy(cell->bias_n, weights->b_hh + 2 * hidden, (size_t)hidden * sizeof(float));
    } else {
        add_stage(cell, weights, FO_STEP_GRU_RESET, 0, 2, &failed);
        add_stage(cell, weights, FO_STEP_GRU_NEW, 2, 1, &failed);
    }
    cell->peephole = fo_copy(weights->peephole, 3 * hidden, &failed);
    if (weights->w_hr.data) add_projection(cell, &weights->w_hr, &failed);
    if (failed) {
        fo_cell_free(cell);
        return NULL;
    }
    return cell;
}

void fo_cell_free(fo_cell *cell) {
    if (!cell) return;
    for (int i = 0; i < cell->stages; i++) {
        fo_free(cell->stage[i].wx);
        fo_free(cell->stage[i].wh);
        fo_free(cell->stage[i].bias);
        fo_product_free(&cell->stage[i].x);
        fo_product_free(&cell->stage[i].h);
    }
    fo_product_free(&cell->hr);
    fo_linear_free(cell->of_x), fo_linear_free(cell->of_h);
    fo_free(cell->bias_n);
    fo_free(cell->peephole);
    fo_free(cell->w_hr);
    fo_free(cell);
}

/* ---- one step -------------------------------------------------------------------------------------------------- */

typedef struct {
    const fo_cell *cell;
    step_job job;
    fo_barrier barrier;
} cell_run;

static void run_cell(void *context, int member, int members) {
    cell_run *run = context;
    fo_cell_step(run->cell, &run->job, &(team_place){&run->barrier, member, members});
}

/* Lets x and h be rounded rows from `at` on, and results between after them. */
static void round_operands(const fo_cell *cell, ptrdiff_t batch, const fo_cell_io *io, char *at, fo_cell_rows *rows) {
    const fo_product_kernel *kernel = fo_cell_kernel(cell);
    const ptrdiff_t inputs = cell->s.inputs, outputs = cell->s.outputs;
    *rows = (fo_cell_rows){.x = {at, fo_row_distance(kernel, inputs)}};
    rows->h = (fo_rounded_rows){at + batch * rows->x.ld, fo_row_distance(kernel, outputs)};
    rows->between = (fo_rounded_rows){rows->h.at + batch * rows->h.ld, fo_row_distance(kernel, cell->s.hidden)};
    for (ptrdiff_t i = 0; i < batch; i++) {
        fo_round(kernel, inputs, io->x + i * io->ldx, rows->x.at + i * rows->x.ld, 0, inputs);
        fo_round(kernel, outputs, io->h + i * io->ldh, rows->h.at + i * rows->h.ld, 0, outputs);
    }
}

fo_status fo_cell_run(const fo_cell *cell, ptrdiff_t batch, const fo_cell_io *io) {
    const fo_cell_shape *s = &cell->s;
    if (!batch) return FO_OK;
    if (cell->of_h) return fo_dynamic_step(cell, batch, io);
    const ptrdiff_t between = fo_cell_between(cell, batch);
    const ptrdiff_t row = cell->type == FO_BF16
                              ? fo_rounded_floats(cell, s->inputs) + fo_rounded_floats(cell, s->outputs) +
                                    fo_rounded_floats(cell, s->hidden)
                              : 0;
    const ptrdiff_t rounded = batch * row;
    cell_run run = {.cell = cell, .job = {.io = *io, .m = batch}};
    const size_t floats = (size_t)(between + rounded + fo_cell_lent(cell));
    if (floats && !(run.job.between = fo_arena_take(floats * sizeof(float)))) return FO_NO_MEMORY;
    run.job.lent = run.job.between + between + rounded;
    if (rounded) round_operands(cell, batch, io, (char *)(run.job.between + between), &run.job.rounded);
    const double alone = fo_cell_nanoseconds(cell, batch, 1);
    const int threads = fo_threads_for(alone);
    fo_parallel_team(fo_cell_nanoseconds(cell, batch, threads) < FO_SPLIT_GAIN * alone ? threads : 1, run_cell, &run);
    if (floats) fo_arena_release(run.job.between);
    return FO_OK;
}
