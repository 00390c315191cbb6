/* A step of a cell: one or two stages, and the projection, each member of a team its units. */
#include "../matmul/packing.h"
#include "cell_step.h"
#include "lent_cell.h"
#include "rounded_cell.h"

void fo_cell_share(const team_place *at, ptrdiff_t all, ptrdiff_t together, ptrdiff_t *first, ptrdiff_t *last) {
    const ptrdiff_t parts = div_up(all, together);
    *first = min_(parts * at->member / at->members * together, all);
    *last = min_(parts * (at->member + 1) / at->members * together, all);
}

/* h' = w_hr h, this member's columns of it. */
static void project(const fo_cell *cell, const step_job *job, const team_place *at) {
    const fo_kernels *kn = cell->kn;
    const ptrdiff_t hidden = cell->s.hidden, outputs = cell->s.outputs;
    ptrdiff_t from, to;
    fo_cell_share(at, div_up(outputs, kn->nr), 2, &from, &to);
    const ptrdiff_t j = from * kn->nr, n = min_(to * kn->nr, outputs) - j;
    if (n <= 0) return;
    if (cell->type == FO_BF16) {
        fo_cell_rounded_project(cell, job, j, n);
    } else {
        fo_gemm_args g = {.m = job->m,
                          .n = n,
                          .k = hidden,
                          .a = job->between,
                          .lda = hidden,
                          .c = job->io.h_out + j,
                          .ldc = job->io.ldho};
        fo_gemm_panels(kn, &g, cell->w_hr, cell->type, from);
        kn->gemm(&g);
    }
    if (job->y)
        for (ptrdiff_t i = 0; i < job->m; i++)
            memcpy(job->y + i * job->ldy + j, job->io.h_out + i * job->io.ldho + j, (size_t)n * sizeof(float));
}

static bool has_usual(const fo_cell *cell) {
    const fo_cell_shape *s = &cell->s;
    return s->act.kind == FO_TANH && s->gate.kind == FO_SIGMOID && s->out.kind == FO_TANH;
}

/* What the kernel takes for stage i, but for the blocks of a member. */
static fo_step_args stage_args(const fo_cell *cell, const step_job *job, int i) {
    const fo_cell_io *io = &job->io;
    const ptrdiff_t hidden = cell->s.hidden, inputs = cell->s.inputs, outputs = cell->s.outputs;
    const step_stage *stage = &cell->stage[i];
    const float *sums = job->sums[i];
    float *z = job->between + job->m * hidden;
    fo_step_args g = {.kind = stage->kind,
                      .gates = stage->gates,
                      .backwards = job->backwards,
                      .m = job->m,
                      .hidden = hidden,
                      .x = io->x,
                      .ldx = io->ldx,
                      .kx = sums ? 0 : inputs,
                      .h = io->h,
                      .ldh = io->ldh,
                      .kh = cell->of_h ? 0 : outputs,
                      .wx = stage->wx,
                      .wh = stage->wh,
                      .w_type = cell->type,
                      .start = sums ? sums : stage->bias,
                      .lds = sums ? stage->lds : 0,
                      .bias_n = cell->bias_n,
                      .c = io->c,
                      .ldc = io->ldc,
                      .c_out = io->c_out,
                      .ldco = io->ldco,
                      .h_out = io->h_out,
                      .ldho = io->ldho,
                      .y = job->y,
                      .ldy = job->ldy,
                      .peephole = cell->peephole,
                      .act = cell->s.act,
                      .gate = cell->s.gate,
                      .out = cell->s.out,
                      .usual = has_usual(cell),
                      .clip = cell->s.clip,
                      .cell_clip = cell->s.cell_clip};
    if (cell->projects || stage->kind == FO_STEP_GRU_RESET) {
        g.h_out = job->between, g.ldho = hidden, g.y = NULL;
        if (stage->kind == FO_STEP_GRU_RESET) g.c_out = z, g.ldco = hidden;
    } else if (stage->kind == FO_STEP_GRU_NEW) {
        g.old = io->h, g.ldold = io->ldh, g.h = job->between, g.ldh = hidden, g.c = z, g.ldc = hidden;
    }
    return g;
}

void fo_cell_step(const fo_cell *cell, const step_job *job, const team_place *at) {
    for (int i = 0; i < cell->stages; i++) {
        const step_stage *stage = &cell->stage[i];
        fo_step_args g = stage_args(cell, job, i);
        if (stage->kind == FO_STEP_GRU_NEW) fo_barrier_wait(at->barrier, at->members);
        fo_cell_share(at, cell->blocks, cell->together, &g.from, &g.to);
        if (cell->type == FO_BF16)
            fo_cell_rounded_stage(cell, stage, job, &g);
        else if (cell->s.lends)
            fo_cell_lent_stage(cell, stage, job, &g);
        else
            cell->kn->step(&g);
    }
    if (cell->projects) {
        fo_barrier_wait(at->barrier, at->members);
        project(cell, job, at);
    }
}

ptrdiff_t fo_cell_between(const fo_cell *cell, ptrdiff_t m) {
    return cell->stages == 2 || cell->projects ? 2 * m * cell->s.hidden : 0;
}

double fo_cell_nanoseconds(const fo_cell *cell, ptrdiff_t rows, int threads) {
    const bool narrow = cell->type == FO_BF16 && fo_cell_kernel(cell)->reads == FO_BF16;
    const fo_machine *machine = fo_this_machine();
    const fo_cell_shape *s = &cell->s;
    const int gates = s->kind == FO_RNN ? 1 : s->kind == FO_GRU ? 3 : 4;
    const int barriers = cell->stages == 2 || cell->projects ? 2 : 1;
    const ptrdiff_t parts = max_(1, div_up(cell->blocks, cell->together));
    const double share = (double)div_up(parts, threads) / parts;
    const double weights =
        share * (gates * s->hidden * (s->inputs + s->outputs) + (cell->projects ? s->hidden * s->outputs : 0));
    const double bytes = (double)fo_size(cell->type) * weights;
    const double compute = rows * weights * (narrow ? fo_costs_of_bf16.step : 1) / (FO_STEP_MACS * cell->kn->vl);
    const double rate = bytes <= machine->l2 ? FO_L2_RATE : bytes <= machine->l3 ? FO_L3_RATE : FO_MEMORY_RATE;
    const double memory = bytes / rate, longer = compute > memory ? compute : memory;
    const double alone = longer + FO_STEP_OVERLAP * (compute + memory - longer);
    return alone + (threads > 1 ? barriers * (FO_BARRIER_NS + FO_TRANSFER_NS * rows * s->outputs) : 0);
}
