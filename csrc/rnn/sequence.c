/* Recurrent layers over sequences.
 *
 * A sequence makes the x part of many steps at once, as a GEMM, and its steps read the recurrent weights alone. Its
 * threads share units, rows, directions or layers, whatever is estimated to take the least time; a layer follows the
 * one before it by some steps:
 *
 *     thread 0    layer 0, steps 0-3    layer 0, steps 4-7    layer 0, steps 8-11   ...
 *     thread 1                          layer 1, steps 0-3    layer 1, steps 4-7    ...
 */
#include <string.h>

#include "cell.h"

/* How the threads of a team share a sequence. Rows and directions are independent; units need a barrier after each
 * step, layers follow one another. */
typedef enum { SPLIT_UNITS, SPLIT_ROWS, SPLIT_DIRECTIONS, SPLIT_LAYERS } sequence_split;

/* Bytes of the x part of some steps, made at once: it stays in the second-level cache until they are due. */
static ptrdiff_t sums_bytes(void) { return fo_this_machine()->l2 / 2; }

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

/* sums[t, row, :] = bias + x[t, row, :] w_x of one stage, for n steps; this member's columns. One product where x
 * allows it. */
static void input_sums(const fo_cell *cell, const step_stage *stage, const float *x, ptrdiff_t xt, ptrdiff_t xb,
                       ptrdiff_t n, const row_share *mine, float *sums) {
    const fo_kernels *kn = cell->kn;
    const ptrdiff_t inputs = cell->s.inputs, lds = stage->lds, m = mine->rows;
    ptrdiff_t from, to;
    fo_cell_share(&mine->at, cell->blocks, &from, &to);
    const ptrdiff_t j = from * stage->gates * kn->vl;
    fo_gemm_args g = {.n = (to - from) * stage->gates * kn->vl, .k = inputs, .ep = {.bias = stage->bias + j}};
    if (g.n <= 0) return;
    fo_gemm_panels(kn, &g, stage->wx, cell->halves, j / kn->nr);
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
static void sequence_step(const sequence_run *run, const fo_cell *cell, const layer_io *io, const direction_scratch *d,
                          ptrdiff_t t, int turn, float *const sums[2], const row_share *mine) {
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
        step_job job = {.io = {.x = io->x + t * io->xt + b * io->xb,
                               .ldx = io->xb,
                               .h = d->h[turn] + b * outputs,
                               .ldh = outputs,
                               .h_out = d->h[1 - turn] + b * outputs,
                               .ldho = outputs,
                               .c = d->c + b * hidden,
                               .ldc = hidden,
                               .c_out = d->c + b * hidden,
                               .ldco = hidden},
                        .m = next - b,
                        .y = y,
                        .ldy = io->yb,
                        .between = d->between + 2 * b * hidden,
                        .backwards = turn};
        for (int i = 0; sums && i < cell->stages; i++) job.sums[i] = sums[i] + (b - mine->row) * cell->stage[i].lds;
        if (mine->at.members > 1) fetch(job.io.h, job.m * outputs);
        fo_cell_step(cell, &job, &mine->at);
    }
    fo_barrier_wait(mine->at.barrier, mine->at.members);
}

/* One layer in one direction. place: of its scratch. */
static void run_direction(const sequence_run *run, int layer, int direction, int place, const layer_io *io,
                          const row_share *mine) {
    const fo_sequence *s = run->s;
    const int index = layer * s->directions + direction;
    const fo_cell *cell = s->cells[index];
    const direction_scratch scratch = scratch_at(run, place), *d = &scratch;
    const bool backwards = (direction == 1) != s->reverse, lead = mine->at.member == 0;
    const ptrdiff_t outputs = cell->s.outputs, hidden = cell->s.hidden, first = mine->row, m = mine->rows;
    const ptrdiff_t state = index * s->batch + first;
    if (lead) {
        for (int turn = 0; turn < (s->lengths ? 2 : 1); turn++)
            set_rows(d->h[turn] + first * outputs, outputs, s->h0 ? s->h0 + state * outputs : NULL, outputs, m,
                     outputs);
        if (cell->s.kind == FO_LSTM)
            set_rows(d->c + first * hidden, hidden, s->c0 ? s->c0 + state * hidden : NULL, hidden, m, hidden);
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
            if (layer < s->layers - 1)
                io.y = run->middle[layer & 1] + d * run->outputs, io.yt = s->batch * width, io.yb = width;
            run_direction(run, layer, d, run->split == SPLIT_LAYERS ? member : d, &io, &mine);
        }
        if (run->split == SPLIT_DIRECTIONS) fo_barrier_wait(&run->whole, members);
    }
}

/* Steps by which a layer follows the one before it: some microseconds of work, for each transfer takes one. */
static ptrdiff_t following(const fo_sequence *s, double layer_step) {
    return max_(min_((ptrdiff_t)(FO_LAYER_LAG_NS / layer_step), s->steps / 4), max_(1, s->steps / 16));
}

/* Threads for a sequence, and how they share it: what a step of all layers is estimated to take. */
static int choose_split(sequence_run *run) {
    const fo_sequence *s = run->s;
    const int cells = s->layers * s->directions;
    double alone = 0, units = 0, rows = 0, directions = 0;
    for (int i = 0; i < cells; i++) alone += fo_cell_nanoseconds(s->cells[i], s->batch, 1);
    const int threads = fo_threads_for(alone * s->steps), in_line = (int)min_(threads, s->layers);
    run->split = s->directions == 2 ? SPLIT_DIRECTIONS : SPLIT_UNITS;
    if (threads == 1) return 1;
    for (int i = 0; i < cells; i++) {
        units += fo_cell_nanoseconds(s->cells[i], s->batch, threads);
        rows += fo_cell_nanoseconds(s->cells[i], div_up(s->batch, threads), 1);
        directions += fo_cell_nanoseconds(s->cells[i], s->batch, (int)max_(1, threads / 2)) / 2;
    }
    const ptrdiff_t lag = following(s, alone / cells);
    const double layers = alone / s->layers * div_up(s->layers, in_line) * (1 + (double)(in_line - 1) * lag / s->steps);
    double best = FO_SPLIT_GAIN * alone;
    int team = 1;
    if (s->directions == 2) best = directions, team = threads < 4 ? 2 : threads;
    if (s->directions == 1 && units < best) best = units, team = threads;
    if (s->batch >= threads && rows < best) best = rows, team = threads, run->split = SPLIT_ROWS;
    if (s->directions == 1 && layers < best)
        team = in_line, run->split = SPLIT_LAYERS, run->chunk = min_(run->chunk, lag);
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
        between = max_(between, fo_cell_between(s->cells[i], s->batch));
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
