/* Recurrent layers: packing of the gates, a step, and sequences.
 *
 * A step has one or two stages, each a product with gate functions as its epilogue (kernels/recurrent.h). A second one is needed
 * where all of a first result goes into another product: the GRU that resets before the product, and the LSTM's projection.
 * The threads of a team share the units of a layer, so that each reads its part of the weights and no other.
 *
 * A sequence makes the x part of many steps at once, as a GEMM, and its steps read the recurrent weights alone. Its threads share
 * units, rows, directions or layers, whatever is estimated to take the least time; a layer follows the one before it by some steps:
 *
 *     thread 0    layer 0, steps 0-3    layer 0, steps 4-7    layer 0, steps 8-11   ...
 *     thread 1                          layer 1, steps 0-3    layer 1, steps 4-7    ... */
#include <math.h>
#include <string.h>

#include "../pack.h"

typedef struct {
    fo_stage_kind kind;
    int gates;
    ptrdiff_t columns;     /* blocks * gates * vl */
    ptrdiff_t lds;         /* distance of two rows of x parts made before */
    float *wx, *wh, *bias; /* packed as kernels/recurrent.h has them */
} step_stage;

struct fo_cell {
    const fo_kernels *kn;
    fo_cell_shape s;
    ptrdiff_t blocks; /* of vl units; even, so that panels of the GEMM end where blocks do */
    int stages;
    step_stage stage[2];
    float *bias_n, *peephole, *w_hr;
};

/* Floats of a row of a group of w_h. */
static ptrdiff_t group_width(const fo_kernels *kn, int gates) { return (gates == 3 ? kn->group_of_3 : kn->group) * kn->vl; }

/* Gate `gate` of the weights becomes vector `slot` of each unit block of the stage. The bias is b_ih + b_hh, or b_ih alone. */
static void pack_gate(const fo_cell *cell, const fo_cell_weights *from, int gate, const step_stage *to, int slot, bool b_hh) {
    const fo_kernels *kn = cell->kn;
    const ptrdiff_t vl = kn->vl, nr = kn->nr, hidden = cell->s.hidden, inputs = cell->s.inputs, outputs = cell->s.outputs;
    const ptrdiff_t group = group_width(kn, to->gates);
    for (ptrdiff_t u = 0; u < hidden; u += vl) {
        const ptrdiff_t unit = gate * hidden + u, j = (u / vl * to->gates + slot) * vl, n = min_(vl, hidden - u);
        kn->transpose(n, inputs, from->w_ih + unit * inputs, inputs, to->wx + j / nr * nr * inputs + j % nr, nr);
        kn->transpose(n, outputs, from->w_hh + unit * outputs, outputs, to->wh + j / group * group * outputs + j % group, group);
        for (ptrdiff_t q = 0; q < n; q++)
            to->bias[j + q] = (from->b_ih ? from->b_ih[unit + q] : 0) + (b_hh && from->b_hh ? from->b_hh[unit + q] : 0);
    }
}

static float *zeroed(ptrdiff_t floats, bool *failed) {
    float *p = fo_alloc((size_t)floats * sizeof *p);
    if (p)
        memset(p, 0, (size_t)floats * sizeof *p);
    else
        *failed = true;
    return p;
}

/* The gates first, first + 1, ... as the cell's next stage. */
static void add_stage(fo_cell *cell, const fo_cell_weights *weights, fo_stage_kind kind, int first, int gates, bool *failed) {
    step_stage *stage = &cell->stage[cell->stages++];
    *stage = (step_stage){.kind = kind, .gates = gates, .columns = cell->blocks * gates * cell->kn->vl};
    stage->lds = fo_leading(cell->kn, stage->columns);
    stage->wx = zeroed(stage->columns * cell->s.inputs, failed);
    stage->wh = zeroed(round_up(stage->columns, group_width(cell->kn, gates)) * cell->s.outputs, failed);
    stage->bias = zeroed(stage->columns, failed);
    if (*failed) return;
    for (int g = 0; g < gates; g++) pack_gate(cell, weights, first + g, stage, g, !(kind == FO_STEP_GRU && g == 2));
}

fo_cell *fo_cell_create(const fo_cell_shape *shape, const fo_cell_weights *weights) {
    fo_cell *cell = fo_alloc(sizeof *cell);
    if (!cell) return NULL;
    const fo_kernels *kn = fo_active();
    const ptrdiff_t hidden = shape->hidden, outputs = shape->outputs;
    bool failed = false;
    *cell = (fo_cell){.kn = kn, .s = *shape, .blocks = round_up(div_up(hidden, kn->vl), 2)};
    if (shape->kind == FO_RNN) {
        add_stage(cell, weights, FO_STEP_RNN, 0, 1, &failed);
    } else if (shape->kind == FO_LSTM) {
        add_stage(cell, weights, FO_STEP_LSTM, 0, 4, &failed);
    } else if (shape->reset_after) {
        add_stage(cell, weights, FO_STEP_GRU, 0, 3, &failed);
        cell->bias_n = zeroed(cell->blocks * kn->vl, &failed);
        if (weights->b_hh && !failed) memcpy(cell->bias_n, weights->b_hh + 2 * hidden, (size_t)hidden * sizeof(float));
    } else {
        add_stage(cell, weights, FO_STEP_GRU_RESET, 0, 2, &failed);
        add_stage(cell, weights, FO_STEP_GRU_NEW, 2, 1, &failed);
    }
    cell->peephole = fo_copy(weights->peephole, 3 * hidden, &failed);
    if (weights->w_hr) {
        cell->w_hr = fo_alloc((size_t)fo_packed_size(kn, outputs, hidden) * sizeof(float));
        failed |= !cell->w_hr;
        if (!failed) fo_pack(kn, outputs, hidden, weights->w_hr, 1, hidden, cell->w_hr);
    }
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
    }
    fo_free(cell->bias_n);
    fo_free(cell->peephole);
    fo_free(cell->w_hr);
    fo_free(cell);
}

/* ---- one step --------------------------------------------------------------------------------------------------- */

/* What the threads of a team have in common, and who of them this is. */
typedef struct {
    fo_barrier *barrier;
    int member, members;
} team_place;

/* The step of fo_cell_io for m rows. sums: where not NULL, the x part of each stage, made before. y: a second place for h', or NULL. */
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
static void share(const team_place *at, ptrdiff_t all, ptrdiff_t *first, ptrdiff_t *last) {
    const ptrdiff_t pairs = div_up(all, 2);
    *first = pairs * at->member / at->members * 2;
    *last = min_(pairs * (at->member + 1) / at->members * 2, all);
}

/* h' = w_hr h, this member's columns of it. */
static void project(const fo_cell *cell, const step_job *job, const team_place *at) {
    const fo_kernels *kn = cell->kn;
    const ptrdiff_t hidden = cell->s.hidden, outputs = cell->s.outputs;
    ptrdiff_t from, to;
    share(at, div_up(outputs, kn->nr), &from, &to);
    const ptrdiff_t j = from * kn->nr, n = min_(to * kn->nr, outputs) - j;
    if (n <= 0) return;
    fo_gemm_args g = {.form = FO_ROWS, .m = job->m, .n = n, .k = hidden, .a = job->between, .lda = hidden, .b = cell->w_hr + j * hidden,
                      .ldb = kn->nr, .panel = kn->nr * hidden, .c = job->io.h_out + j, .ldc = job->io.ldho};
    kn->gemm(&g);
    if (job->y)
        for (ptrdiff_t i = 0; i < job->m; i++)
            memcpy(job->y + i * job->ldy + j, job->io.h_out + i * job->io.ldho + j, (size_t)n * sizeof(float));
}

/* One step: this member's units, all rows. Returns when the member has done its share of h', not when the others have. */
static void step(const fo_cell *cell, const step_job *job, const team_place *at) {
    const fo_kernels *kn = cell->kn;
    const fo_cell_io *io = &job->io;
    const ptrdiff_t hidden = cell->s.hidden, inputs = cell->s.inputs, outputs = cell->s.outputs;
    for (int i = 0; i < cell->stages; i++) {
        const step_stage *stage = &cell->stage[i];
        const float *sums = job->sums[i];
        fo_step_args g = {.kind = stage->kind, .gates = stage->gates, .backwards = job->backwards, .m = job->m, .hidden = hidden,
                          .x = io->x, .ldx = io->ldx, .kx = sums ? 0 : inputs, .h = io->h, .ldh = io->ldh, .kh = outputs,
                          .wx = stage->wx, .wh = stage->wh,
                          .start = sums ? sums : stage->bias, .lds = sums ? stage->lds : 0, .bias_n = cell->bias_n, .c = io->c,
                          .ldc = io->ldc, .c_out = io->c_out, .ldco = io->ldco, .h_out = io->h_out, .ldho = io->ldho, .y = job->y,
                          .ldy = job->ldy, .peephole = cell->peephole, .act = cell->s.act, .clip = cell->s.clip};
        float *z = job->between + job->m * hidden;
        if (cell->w_hr || stage->kind == FO_STEP_GRU_RESET) {
            g.h_out = job->between, g.ldho = hidden, g.y = NULL;
            if (stage->kind == FO_STEP_GRU_RESET) g.c_out = z, g.ldco = hidden;
        } else if (stage->kind == FO_STEP_GRU_NEW) {
            fo_barrier_wait(at->barrier, at->members);
            g.old = io->h, g.ldold = io->ldh, g.h = job->between, g.ldh = hidden, g.c = z, g.ldc = hidden;
        }
        share(at, cell->blocks, &g.from, &g.to);
        kn->step(&g);
    }
    if (cell->w_hr) {
        fo_barrier_wait(at->barrier, at->members);
        project(cell, job, at);
    }
}

/* Floats of `between` for m rows. */
static ptrdiff_t floats_between(const fo_cell *cell, ptrdiff_t m) {
    return cell->stages == 2 || cell->w_hr ? 2 * m * cell->s.hidden : 0;
}

/* Estimated nanoseconds of a step for one of `threads` threads that share its units: its multiply-adds, or its weights from the cache
 * that has room for them, which overlap but for a tenth; then they wait for one another, and each reads what the others made of h. */
static double step_nanoseconds(const fo_cell *cell, ptrdiff_t rows, int threads) {
    enum { THIRD_LEVEL = 16 << 20, BARRIER = 250 };
    static const double transfer = 0.1; /* of a float */
    const fo_cell_shape *s = &cell->s;
    const int gates = s->kind == FO_RNN ? 1 : s->kind == FO_GRU ? 3 : 4, waits = cell->stages == 2 || cell->w_hr ? 2 : 1;
    const ptrdiff_t pairs = max_(1, div_up(cell->blocks, 2));
    const double share = (double)div_up(pairs, threads) / pairs;
    const double weights = share * (gates * s->hidden * (s->inputs + s->outputs) + (cell->w_hr ? s->hidden * s->outputs : 0));
    const double bytes = 4 * weights, compute = rows * weights / (8 * cell->kn->vl);
    const double memory = bytes / (bytes <= fo_near_bytes() ? 200 : bytes <= THIRD_LEVEL ? 150 : 30);
    return (compute > memory ? compute + 0.1 * memory : memory + 0.1 * compute) + (threads > 1 ? waits * (BARRIER + transfer * rows * s->outputs) : 0);
}

/* What a split must save: an estimate may be wrong, and another process may have the other processor. */
static const double worth = 0.85;

typedef struct {
    const fo_cell *cell;
    step_job job;
    fo_barrier barrier;
} cell_run;

static void run_cell(void *context, int member, int members) {
    cell_run *run = context;
    step(run->cell, &run->job, &(team_place){&run->barrier, member, members});
}

fo_status fo_cell_run(const fo_cell *cell, ptrdiff_t batch, const fo_cell_io *io) {
    if (!batch) return FO_OK;
    const ptrdiff_t between = floats_between(cell, batch);
    cell_run run = {.cell = cell, .job = {.io = *io, .m = batch}};
    if (between && !(run.job.between = fo_arena_take((size_t)between * sizeof(float)))) return FO_NO_MEMORY;
    const double alone = step_nanoseconds(cell, batch, 1);
    const int threads = fo_threads_for(alone);
    fo_parallel_team(step_nanoseconds(cell, batch, threads) < worth * alone ? threads : 1, run_cell, &run);
    if (between) fo_arena_release(run.job.between);
    return FO_OK;
}

/* ---- sequences -------------------------------------------------------------------------------------------------- */

/* How the threads of a team share a sequence. Rows and directions are independent; units need a barrier after each step, layers follow
 * one another. */
typedef enum { SPLIT_UNITS, SPLIT_ROWS, SPLIT_DIRECTIONS, SPLIT_LAYERS } sequence_split;

/* Bytes of the x part of some steps, made at once: it waits in the second-level cache. */
static ptrdiff_t sums_bytes(void) { return fo_near_bytes() / 2; }

/* Scratch of one direction, for the whole batch. */
typedef struct {
    float *h[2]; /* before and after a step, by turns */
    float *c, *between, *sums;
} direction_scratch;

typedef struct {
    const fo_sequence *s;
    sequence_split split;
    ptrdiff_t chunk;                  /* steps whose x parts are made at once */
    ptrdiff_t outputs, hidden, width; /* the most that any cell has; width: of its x parts */
    float *scratch;                   /* for each direction, or for each thread that has layers of its own */
    ptrdiff_t h, c, sums, each;       /* floats of its parts and of all */
    float *middle[2];                 /* y of a layer that is not the last, by turns */
    fo_barrier whole, part[2];
    fo_progress *progress; /* SPLIT_LAYERS: steps that each layer has done */
} sequence_run;

static direction_scratch scratch_at(const sequence_run *run, int place) {
    float *p = run->scratch + place * run->each, *c = p + 2 * run->h;
    return (direction_scratch){{p, p + run->h}, c, c + run->c + run->sums, c + run->c};
}

/* One member's rows, and its place among those who share their units. */
typedef struct {
    ptrdiff_t row, rows;
    team_place at;
} row_share;

/* A sequence as one layer sees it. */
typedef struct {
    const float *x;
    float *y;
    ptrdiff_t xt, xb, yt, yb;
} layer_io;

static ptrdiff_t sums_width(const fo_cell *cell) { return cell->stage[0].lds + cell->stage[1].lds; }

/* sums[t, row, :] = bias + x[t, row, :] w_x of one stage, for n steps; this member's columns. One product where x allows it. */
static void input_sums(const fo_cell *cell, const step_stage *stage, const float *x, ptrdiff_t xt, ptrdiff_t xb, ptrdiff_t n,
                       const row_share *mine, float *sums) {
    const fo_kernels *kn = cell->kn;
    const ptrdiff_t inputs = cell->s.inputs, lds = stage->lds, panel = kn->nr * inputs, m = mine->rows;
    ptrdiff_t from, to;
    share(&mine->at, cell->blocks, &from, &to);
    const ptrdiff_t j = from * stage->gates * kn->vl;
    fo_gemm_args g = {.form = FO_ROWS, .n = (to - from) * stage->gates * kn->vl, .k = inputs, .b = stage->wx + j * inputs,
                      .ldb = kn->nr, .panel = panel, .ep = {.bias = stage->bias + j}};
    if (g.n <= 0) return;
    ptrdiff_t products = 1, next_x = 0, next_sums = 0;
    g.m = n * m, g.lda = m == 1 ? xt : xb, g.ldc = lds;
    if (m > 1 && n > 1 && xt != m * xb) {
        if (n > m)
            products = m, g.m = n, g.lda = xt, g.ldc = m * lds, next_x = xb, next_sums = lds;
        else
            products = n, g.m = m, next_x = xt, next_sums = m * lds;
    }
    for (ptrdiff_t p = 0; p < products; p++) {
        g.a = x + p * next_x;
        g.c = sums + p * next_sums + j;
        kn->gemm(&g);
    }
}

/* Copies or zeroes `rows` rows of n floats, ld apart. */
static void set_rows(float *to, ptrdiff_t ld, const float *from, ptrdiff_t ldf, ptrdiff_t rows, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < rows; i++)
        if (from)
            memcpy(to + i * ld, from + i * ldf, (size_t)n * sizeof *to);
        else
            memset(to + i * ld, 0, (size_t)n * sizeof *to);
}

/* Asks for n floats that another processor has written: one after another they would take 70 ns a line. */
static void fetch(const float *p, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i += 16) __builtin_prefetch(p + i);
}

/* Step t of the rows that are as long: from h[turn] to h[1 - turn]. sums NULL: the cell reads x itself. */
static void sequence_step(const sequence_run *run, const fo_cell *cell, const layer_io *io, const direction_scratch *d, ptrdiff_t t,
                          int turn, float *const sums[2], const row_share *mine) {
    const ptrdiff_t outputs = cell->s.outputs, hidden = cell->s.hidden, end = mine->row + mine->rows;
    const int64_t *lengths = run->s->lengths;
    for (ptrdiff_t b = mine->row, next; b < end; b = next) {
        const bool active = !lengths || t < lengths[b];
        next = end;
        if (lengths)
            for (next = b + 1; next < end && (t < lengths[next]) == active;) next++;
        float *y = io->y + t * io->yt + b * io->yb;
        if (!active) {
            if (!mine->at.member) set_rows(y, io->yb, NULL, 0, next - b, outputs);
            continue;
        }
        step_job job = {.io = {.x = io->x + t * io->xt + b * io->xb, .ldx = io->xb, .h = d->h[turn] + b * outputs, .ldh = outputs,
                               .h_out = d->h[1 - turn] + b * outputs, .ldho = outputs, .c = d->c + b * hidden, .ldc = hidden,
                               .c_out = d->c + b * hidden, .ldco = hidden},
                        .m = next - b, .y = y, .ldy = io->yb, .between = d->between + 2 * b * hidden, .backwards = turn};
        for (int i = 0; sums && i < cell->stages; i++) job.sums[i] = sums[i] + (b - mine->row) * cell->stage[i].lds;
        if (mine->at.members > 1) fetch(job.io.h, job.m * outputs);
        step(cell, &job, &mine->at);
    }
    fo_barrier_wait(mine->at.barrier, mine->at.members);
}

/* One layer in one direction. place: of its scratch. */
static void run_direction(const sequence_run *run, int layer, int direction, int place, const layer_io *io, const row_share *mine) {
    const fo_sequence *s = run->s;
    const int index = layer * s->directions + direction;
    const fo_cell *cell = s->cells[index];
    const direction_scratch scratch = scratch_at(run, place), *d = &scratch;
    const bool backwards = (direction == 1) != s->reverse, lead = mine->at.member == 0;
    const ptrdiff_t outputs = cell->s.outputs, hidden = cell->s.hidden, first = mine->row, m = mine->rows;
    const ptrdiff_t state = index * s->batch + first;
    if (lead) {
        for (int turn = 0; turn < (s->lengths ? 2 : 1); turn++)
            set_rows(d->h[turn] + first * outputs, outputs, s->h0 ? s->h0 + state * outputs : NULL, outputs, m, outputs);
        if (cell->s.kind == FO_LSTM) set_rows(d->c + first * hidden, hidden, s->c0 ? s->c0 + state * hidden : NULL, hidden, m, hidden);
    }
    fo_barrier_wait(mine->at.barrier, mine->at.members);
    int turn = 0;
    for (ptrdiff_t done = 0, n; done < s->steps; done += n) {
        n = min_(run->chunk, s->steps - done);
        if (run->split == SPLIT_LAYERS && layer) fo_progress_wait(&run->progress[layer - 1], done + n);
        const ptrdiff_t t0 = backwards ? s->steps - done - n : done;
        float *sums[2] = {d->sums + first * run->chunk * run->width};
        sums[1] = sums[0] + n * m * cell->stage[0].lds;
        for (int i = 0; n > 1 && i < cell->stages; i++)
            input_sums(cell, &cell->stage[i], io->x + t0 * io->xt + first * io->xb, io->xt, io->xb, n, mine, sums[i]);
        for (ptrdiff_t j = 0; j < n; j++, turn = 1 - turn) {
            const ptrdiff_t at = backwards ? n - 1 - j : j;
            float *now[2] = {sums[0] + at * m * cell->stage[0].lds, sums[1] + at * m * cell->stage[1].lds};
            sequence_step(run, cell, io, d, t0 + at, turn, n > 1 ? now : NULL, mine);
        }
        if (run->split == SPLIT_LAYERS) fo_progress_set(&run->progress[layer], done + n);
    }
    if (!lead) return;
    for (ptrdiff_t b = 0; b < m; b++) {
        const int last = s->lengths && !backwards ? s->lengths[first + b] & 1 : turn;
        set_rows(s->hn + (state + b) * outputs, 0, d->h[last] + (first + b) * outputs, 0, 1, outputs);
    }
    if (cell->s.kind == FO_LSTM) set_rows(s->cn + state * hidden, hidden, d->c + first * hidden, hidden, m, hidden);
}

static void run_member(void *context, int member, int members) {
    sequence_run *run = context;
    const fo_sequence *s = run->s;
    row_share mine = {0, s->batch, {&run->whole, member, members}};
    int from = 0, to = s->directions, first_layer = 0, next_layer = 1;
    if (run->split == SPLIT_ROWS) {
        mine.row = s->batch * member / members;
        mine.rows = s->batch * (member + 1) / members - mine.row;
        mine.at = (team_place){&run->whole, 0, 1};
    } else if (run->split == SPLIT_LAYERS) {
        first_layer = member, next_layer = members;
        mine.at = (team_place){&run->whole, 0, 1};
    } else if (run->split == SPLIT_DIRECTIONS && members > 1) {
        const int half = members / 2; /* the second direction's team has the odd one */
        from = member >= half, to = from + 1;
        mine.at = (team_place){&run->part[from], from ? member - half : member, from ? members - half : half};
    }
    for (int layer = first_layer; layer < s->layers; layer += next_layer) {
        const ptrdiff_t width = s->directions * run->outputs;
        for (int d = from; d < to; d++) {
            layer_io io = {s->x, s->y + d * run->outputs, s->xt, s->xb, s->yt, s->yb};
            if (layer) io.x = run->middle[(layer - 1) & 1], io.xt = s->batch * width, io.xb = width;
            if (layer < s->layers - 1) io.y = run->middle[layer & 1] + d * run->outputs, io.yt = s->batch * width, io.yb = width;
            run_direction(run, layer, d, run->split == SPLIT_LAYERS ? member : d, &io, &mine);
        }
        if (run->split == SPLIT_DIRECTIONS) fo_barrier_wait(&run->whole, members);
    }
}

/* Steps by which a layer follows the one before it: some microseconds of work, for each transfer takes one. */
static ptrdiff_t following(const fo_sequence *s, double layer_step) {
    return max_(min_((ptrdiff_t)(3000 / layer_step), s->steps / 4), max_(1, s->steps / 16));
}

/* Threads for a sequence, and how they share it: what a step of all layers is estimated to take. */
static int choose_split(sequence_run *run) {
    const fo_sequence *s = run->s;
    const int cells = s->layers * s->directions;
    double alone = 0, units = 0, rows = 0, directions = 0;
    for (int i = 0; i < cells; i++) alone += step_nanoseconds(s->cells[i], s->batch, 1);
    const int threads = fo_threads_for(alone * s->steps), in_line = (int)min_(threads, s->layers);
    run->split = s->directions == 2 ? SPLIT_DIRECTIONS : SPLIT_UNITS;
    if (threads == 1) return 1;
    for (int i = 0; i < cells; i++) {
        units += step_nanoseconds(s->cells[i], s->batch, threads);
        rows += step_nanoseconds(s->cells[i], div_up(s->batch, threads), 1);
        directions += step_nanoseconds(s->cells[i], s->batch, (int)max_(1, threads / 2)) / 2;
    }
    const ptrdiff_t lag = following(s, alone / cells);
    const double layers = alone / s->layers * div_up(s->layers, in_line) * (1 + (double)(in_line - 1) * lag / s->steps);
    double best = worth * alone;
    int team = 1;
    if (s->directions == 2) best = directions, team = threads < 4 ? 2 : threads;
    if (s->directions == 1 && units < best) best = units, team = threads;
    if (s->batch >= threads && rows < best) best = rows, team = threads, run->split = SPLIT_ROWS;
    if (s->directions == 1 && layers < best) team = in_line, run->split = SPLIT_LAYERS, run->chunk = min_(run->chunk, lag);
    return team;
}

fo_status fo_sequence_run(const fo_sequence *s) {
    sequence_run run = {.s = s};
    const int cells = s->layers * s->directions;
    ptrdiff_t between = 0;
    for (int i = 0; i < cells; i++) {
        run.outputs = max_(run.outputs, s->cells[i]->s.outputs);
        run.hidden = max_(run.hidden, s->cells[i]->s.hidden);
        run.width = max_(run.width, sums_width(s->cells[i]));
        between = max_(between, floats_between(s->cells[i], s->batch));
    }
    if (!s->batch) return FO_OK;
    run.chunk = min_(s->steps, max_(1, sums_bytes() / (ptrdiff_t)sizeof(float) / max_(1, s->batch * run.width)));
    const int threads = choose_split(&run);
    run.h = round_up(s->batch * run.outputs, 16), run.c = round_up(s->batch * run.hidden, 16);
    run.sums = round_up(s->batch * run.chunk * run.width, 16);
    run.each = 2 * run.h + run.c + run.sums + round_up(between, 16);
    const ptrdiff_t places = run.split == SPLIT_LAYERS ? threads : s->directions;
    const ptrdiff_t middle = s->layers > 1 ? round_up(s->steps * s->batch * s->directions * run.outputs, 16) : 0;
    const ptrdiff_t floats = places * run.each + min_(s->layers - 1, 2) * middle;
    run.scratch = fo_arena_take((size_t)floats * sizeof(float) + (size_t)s->layers * sizeof *run.progress);
    if (!run.scratch) return FO_NO_MEMORY;
    run.middle[0] = run.scratch + places * run.each;
    run.middle[1] = run.middle[0] + middle;
    run.progress = memset(run.scratch + floats, 0, (size_t)s->layers * sizeof *run.progress);
    fo_parallel_team(threads, run_member, &run);
    fo_arena_release(run.scratch);
    return FO_OK;
}
