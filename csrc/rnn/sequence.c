/* Recurrent layers over sequences.
 *
 * A sequence makes the x part of many steps at once, as a GEMM, and its steps read the recurrent weights alone. Its
 * threads share units, rows, directions or layers, whatever is estimated to take the least time; a layer follows the
 * one before it by some steps:
 *
 *     thread 0    layer 0, steps 0-3    layer 0, steps 4-7    layer 0, steps 8-11   ...
 *     thread 1                          layer 1, steps 0-3    layer 1, steps 4-7    ...
 *
 * Where rows have lengths, the longest comes first inside, so that the rows that still run are the first ones, and
 * chunks end where a row does: nothing after a length is computed. The first layer's x is gathered chunk by chunk,
 * the last layer's y written row by row; layers between them keep this order.
 */
#include <stdlib.h>
#include <string.h>

#include "../matmul/packing.h"
#include "cell_step.h"
#include "dynamic_cell.h"
#include "rounded_cell.h"

/* How the threads of a team share a sequence. Rows and directions are independent; units need a barrier after each
 * step, layers follow one another. */
typedef enum { SPLIT_UNITS, SPLIT_ROWS, SPLIT_DIRECTIONS, SPLIT_LAYERS } sequence_split;

/* Bytes of the x part of some steps, made at once: it stays in the second-level cache until they are due. */
static ptrdiff_t sums_bytes(void) { return fo_this_machine()->l2 / 2; }

/* Scratch of one direction, for the whole batch. */
typedef struct {
    float *h[2]; /* before and after a step, by turns */
    float *c, *between, *sums, *x;
    char *rounded[3]; /* of bfloat16: rows of h before and after a step, by turns, and of `between` */
} direction_scratch;

/* A row of the batch: its steps, and where the caller has it. */
typedef struct {
    ptrdiff_t length, at;
} sequence_row;

typedef struct {
    const fo_sequence *s;
    sequence_split split;
    ptrdiff_t steps, all; /* of the longest row, of all rows together */
    bool moved;           /* rows is another order than the caller's */
    sequence_row *rows;   /* the longest first; NULL: all have all steps */
    ptrdiff_t chunk;      /* steps whose x parts are made at once */
    /* the most that any cell has; width: of its x parts; floats of a copied row: inputs of x, row of rounded h */
    ptrdiff_t outputs, hidden, width, inputs, row;
    float *scratch; /* for each direction, or for each thread that has layers of its own */
    ptrdiff_t h, c, sums, x, rounded, between, each; /* floats of its parts (rounded: of one of three) and of all */
    float *middle[2];                                /* y of a layer that is not the last, by turns */
    fo_barrier whole, part[2];
    fo_progress *progress; /* SPLIT_LAYERS: steps that each layer has done */
} sequence_run;

static direction_scratch scratch_at(const sequence_run *run, int place) {
    float *p = run->scratch + place * run->each, *c = p + 2 * run->h, *sums = c + run->c, *x = sums + run->sums;
    float *between = x + run->x, *rounded = between + run->between;
    direction_scratch d = {{p, p + run->h}, c, between, sums, x, {NULL}};
    for (int i = 0; i < 3; i++) d.rounded[i] = (char *)(rounded + i * run->rounded);
    return d;
}

static const fo_rounded_rows NO_ROWS;

/* One member's rows, and its place among those who share their units. */
typedef struct {
    ptrdiff_t row, rows;
    team_place at;
} row_share;

/* A sequence as one layer sees it, or some of its steps. */
typedef struct {
    const float *x;
    float *y;
    ptrdiff_t xt, xb, yt, yb;
    bool x_moved, y_moved; /* rows are where the caller has them, not in our order */
} layer_io;

static ptrdiff_t sums_width(const fo_cell *cell) { return cell->stage[0].lds + cell->stage[1].lds; }

/* Rows of k operands from row b on, in one of a direction's places. */
static fo_rounded_rows rounded_rows(const fo_cell *cell, char *place, ptrdiff_t b, ptrdiff_t k) {
    const ptrdiff_t ld = fo_row_distance(fo_cell_kernel(cell), k);
    return (fo_rounded_rows){place + b * ld, ld};
}

/* sums[t, row, :] = bias + x[t, row, :] w_x of one stage, for n steps; this member's columns. One product where x
 * allows it. */
static void input_sums(const fo_cell *cell, const step_stage *stage, const float *x, ptrdiff_t xt, ptrdiff_t xb,
                       ptrdiff_t n, const row_share *mine, float *sums) {
    const fo_kernels *kn = cell->kn;
    const ptrdiff_t inputs = cell->s.inputs, lds = stage->lds, m = mine->rows;
    ptrdiff_t from, to;
    fo_cell_share(&mine->at, cell->blocks, cell->together, &from, &to);
    const ptrdiff_t j = from * stage->gates * kn->vl;
    if (cell->type == FO_BF16 && to > from) { /* x is rounded rows, one after another */
        const fo_rounded_rows rows = rounded_rows(cell, (char *)x, 0, inputs);
        fo_cell_multiply(&stage->x, n * m, rows, j, (to - from) * stage->gates * kn->vl, sums + j, lds);
        return;
    }
    fo_gemm_args g = {.n = (to - from) * stage->gates * kn->vl, .k = inputs, .ep = {.bias = stage->bias + j}};
    if (g.n <= 0) return;
    fo_gemm_panels(kn, &g, stage->wx, cell->type, j / kn->nr);
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

static ptrdiff_t place_of(const sequence_run *run, ptrdiff_t b) { return run->moved ? run->rows[b].at : b; }

/* How many of these rows have a step t: the first ones. */
static ptrdiff_t running(const sequence_run *run, const row_share *mine, ptrdiff_t t) {
    ptrdiff_t least = 0, most = mine->rows;
    if (!run->rows) return most;
    while (least < most) {
        const ptrdiff_t middle = (least + most) / 2;
        if (run->rows[mine->row + middle].length > t)
            least = middle + 1;
        else
            most = middle;
    }
    return least;
}

/* Up to *n steps from `done` on, of which the same rows have each: *n becomes how many, the result how many rows. */
static ptrdiff_t same_rows(const sequence_run *run, const row_share *mine, bool backwards, ptrdiff_t done,
                           ptrdiff_t *n) {
    const ptrdiff_t first = backwards ? run->steps - 1 - done : done, m = running(run, mine, first);
    const sequence_row *rows = run->rows + mine->row;
    *n = min_(*n, run->steps - done);
    if (!run->rows || (m == 0 && !backwards)) return m;
    *n = min_(*n, backwards ? first + 1 - (m < mine->rows ? rows[m].length : 0) : rows[m - 1].length - first);
    return m;
}

/* Copies x of n steps of these rows, this member's share, to where they are in our order, and says so; a cell of
 * bfloat16 has them rounded. */
static void gather(const sequence_run *run, const fo_cell *cell, const direction_scratch *d, ptrdiff_t n,
                   const row_share *mine, layer_io *io) {
    const ptrdiff_t m = mine->rows, all = n * m, member = mine->at.member, members = mine->at.members;
    const ptrdiff_t inputs = cell->s.inputs;
    float *to = d->x + mine->row * run->chunk * run->inputs; /* not of this layer's: rows run ahead of others */
    const fo_rounded_rows rounded = cell->type == FO_BF16 ? rounded_rows(cell, (char *)to, 0, inputs) : NO_ROWS;
    for (ptrdiff_t i = all * member / members; i < all * (member + 1) / members; i++) {
        const ptrdiff_t row = io->x_moved ? place_of(run, mine->row + i % m) : i % m;
        const float *x = io->x + i / m * io->xt + row * io->xb;
        if (rounded.at)
            fo_round(fo_cell_kernel(cell), inputs, x, rounded.at + i * rounded.ld, 0, inputs);
        else
            set_rows(to + i * inputs, 0, x, 0, 1, inputs);
    }
    fo_barrier_wait(mine->at.barrier, mine->at.members);
    io->x = to, io->xt = m * inputs, io->xb = inputs;
}

/* Step i of those in io, of these rows: from h[turn] to h[1 - turn]. sums NULL: the cell reads x itself. */
static void sequence_step(const sequence_run *run, const fo_cell *cell, const layer_io *io, const direction_scratch *d,
                          ptrdiff_t i, int turn, float *const sums[2], const row_share *mine) {
    const ptrdiff_t outputs = cell->s.outputs, hidden = cell->s.hidden, m = mine->rows, b = mine->row;
    const int member = mine->at.member, members = mine->at.members;
    float *y = io->y + i * io->yt, *h_out = d->h[1 - turn] + b * outputs;
    step_job job = {.io = {.x = io->x + i * io->xt,
                           .ldx = io->xb,
                           .h = d->h[turn] + b * outputs,
                           .ldh = outputs,
                           .h_out = h_out,
                           .ldho = outputs,
                           .c = d->c + b * hidden,
                           .ldc = hidden,
                           .c_out = d->c + b * hidden,
                           .ldco = hidden},
                    .m = m,
                    .sums = {sums ? sums[0] : NULL, sums ? sums[1] : NULL},
                    .y = io->y_moved ? NULL : y + b * io->yb,
                    .ldy = io->yb,
                    .between = d->between + 2 * b * hidden,
                    .backwards = turn};
    if (cell->type == FO_BF16)
        job.rounded = (fo_cell_rows){sums ? NO_ROWS : rounded_rows(cell, (char *)io->x, i * m, cell->s.inputs),
                                     rounded_rows(cell, d->rounded[turn], b, outputs),
                                     rounded_rows(cell, d->rounded[1 - turn], b, outputs),
                                     rounded_rows(cell, d->rounded[2], b, hidden)};
    if (members > 1) fetch(job.io.h, m * outputs);
    fo_cell_step(cell, &job, &mine->at);
    fo_barrier_wait(mine->at.barrier, members);
    for (ptrdiff_t r = m * member / members; io->y_moved && r < m * (member + 1) / members; r++)
        set_rows(y + place_of(run, b + r) * io->yb, 0, h_out + r * outputs, 0, 1, outputs);
}

/* The state of these rows before the first step; where rows start or end at different steps, for either turn. index:
 * the cell's. */
static void begin_state(const sequence_run *run, const fo_cell *cell, int index, const direction_scratch *d,
                        const row_share *mine) {
    const fo_sequence *s = run->s;
    const ptrdiff_t outputs = cell->s.outputs, hidden = cell->s.hidden;
    for (ptrdiff_t b = mine->row; b < mine->row + mine->rows; b++) {
        const ptrdiff_t state = index * s->batch + place_of(run, b);
        for (int turn = 0; turn < (run->rows ? 2 : 1); turn++) {
            float *h = d->h[turn] + b * outputs;
            set_rows(h, 0, s->h0 ? s->h0 + state * outputs : NULL, 0, 1, outputs);
            if (cell->type == FO_BF16)
                fo_round(fo_cell_kernel(cell), outputs, h, rounded_rows(cell, d->rounded[turn], b, outputs).at, 0,
                         outputs);
        }
        if (cell->s.kind == FO_LSTM)
            set_rows(d->c + b * hidden, 0, s->c0 ? s->c0 + state * hidden : NULL, 0, 1, hidden);
    }
}

/* The state after the last step. turn < 0: that of each row's length. */
static void end_state(const sequence_run *run, const fo_cell *cell, int index, const direction_scratch *d, int turn,
                      const row_share *mine) {
    const fo_sequence *s = run->s;
    const ptrdiff_t outputs = cell->s.outputs, hidden = cell->s.hidden;
    for (ptrdiff_t b = mine->row; b < mine->row + mine->rows; b++) {
        const ptrdiff_t state = index * s->batch + place_of(run, b);
        const float *h = d->h[turn < 0 ? run->rows[b].length & 1 : turn];
        set_rows(s->hn + state * outputs, 0, h + b * outputs, 0, 1, outputs);
        if (cell->s.kind == FO_LSTM) set_rows(s->cn + state * hidden, 0, d->c + b * hidden, 0, 1, hidden);
    }
}

/* The steps of a chunk, t0 .. t0 + n - 1, of these rows, which all have them; returns the turn after them. */
static int run_chunk(const sequence_run *run, const fo_cell *cell, const layer_io *all, const direction_scratch *d,
                     bool backwards, ptrdiff_t t0, ptrdiff_t n, int turn, const row_share *mine) {
    const ptrdiff_t m = mine->rows;
    layer_io io = *all;
    io.x += t0 * io.xt + (io.x_moved ? 0 : mine->row * io.xb), io.y += t0 * io.yt;
    if (io.x_moved || cell->type == FO_BF16) gather(run, cell, d, n, mine, &io);
    float *sums[2] = {d->sums + mine->row * run->chunk * run->width};
    sums[1] = sums[0] + n * m * cell->stage[0].lds;
    for (int i = 0; n > 1 && i < cell->stages; i++)
        input_sums(cell, &cell->stage[i], io.x, io.xt, io.xb, n, mine, sums[i]);
    for (ptrdiff_t j = 0; j < n; j++, turn = 1 - turn) {
        const ptrdiff_t at = backwards ? n - 1 - j : j;
        float *now[2] = {sums[0] + at * m * cell->stage[0].lds, sums[1] + at * m * cell->stage[1].lds};
        sequence_step(run, cell, &io, d, at, turn, n > 1 ? now : NULL, mine);
    }
    return turn;
}

/* One layer in one direction. place: of its scratch. */
static void run_direction(const sequence_run *run, int layer, int direction, int place, const layer_io *io,
                          const row_share *mine) {
    const fo_sequence *s = run->s;
    const int index = layer * s->directions + direction;
    const fo_cell *cell = s->cells[index];
    const direction_scratch scratch = scratch_at(run, place), *d = &scratch;
    const bool backwards = (direction == 1) != s->reverse, lead = mine->at.member == 0;
    if (lead) begin_state(run, cell, index, d, mine);
    fo_barrier_wait(mine->at.barrier, mine->at.members);
    int turn = 0;
    for (ptrdiff_t done = 0, n; done < run->steps; done += n) {
        row_share some = *mine;
        n = run->chunk;
        some.rows = same_rows(run, mine, backwards, done, &n);
        if (run->split == SPLIT_LAYERS && layer) fo_progress_wait(&run->progress[layer - 1], done + n);
        const ptrdiff_t t0 = backwards ? run->steps - done - n : done;
        if (some.rows) turn = run_chunk(run, cell, io, d, backwards, t0, n, turn, &some);
        if (run->split == SPLIT_LAYERS) fo_progress_set(&run->progress[layer], done + n);
    }
    if (lead) end_state(run, cell, index, d, run->rows && !backwards ? -1 : turn, mine);
}

/* Zeroes y after each row's length, this member's share of the steps. */
static void zero_rest(const sequence_run *run, int member, int members) {
    const fo_sequence *s = run->s;
    const ptrdiff_t n = s->directions * s->cells[(s->layers - 1) * s->directions]->s.outputs;
    for (ptrdiff_t t = s->steps * member / members; t < s->steps * (member + 1) / members; t++)
        for (ptrdiff_t b = s->batch; b-- && run->rows[b].length <= t;)
            set_rows(s->y + t * s->yt + run->rows[b].at * s->yb, 0, NULL, 0, 1, n);
}

/* The first row of a member, of whom each has about the same number of steps. */
static ptrdiff_t share_of_rows(const sequence_run *run, int member, int members) {
    const ptrdiff_t batch = run->s->batch;
    if (!run->rows || member == members) return batch * member / members;
    ptrdiff_t b = 0;
    for (ptrdiff_t before = 0; b < batch && before < run->all / members * member;) before += run->rows[b++].length;
    return b;
}

static void run_member(void *context, int member, int members) {
    sequence_run *run = context;
    const fo_sequence *s = run->s;
    row_share mine = {0, s->batch, {&run->whole, member, members}};
    int from = 0, to = s->directions, first_layer = 0, next_layer = 1;
    if (run->rows) zero_rest(run, member, members);
    if (run->split == SPLIT_ROWS) {
        mine.row = share_of_rows(run, member, members);
        mine.rows = share_of_rows(run, member + 1, members) - mine.row;
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
            layer_io io = {s->x, s->y + d * run->outputs, s->xt, s->xb, s->yt, s->yb, run->moved, run->moved};
            if (layer) io.x = run->middle[(layer - 1) & 1], io.xt = s->batch * width, io.xb = width, io.x_moved = false;
            if (layer < s->layers - 1)
                io.y = run->middle[layer & 1] + d * run->outputs, io.yt = s->batch * width, io.yb = width,
                io.y_moved = false;
            run_direction(run, layer, d, run->split == SPLIT_LAYERS ? member : d, &io, &mine);
        }
        if (run->split == SPLIT_DIRECTIONS) fo_barrier_wait(&run->whole, members);
    }
}

/* Steps by which a layer follows the one before it: some microseconds of work, for each transfer takes one. */
static ptrdiff_t following(ptrdiff_t steps, double layer_step) {
    return max_(min_((ptrdiff_t)(FO_LAYER_LAG_NS / layer_step), steps / 4), max_(1, steps / 16));
}

/* Threads for a sequence, and how they share it: what a step of all layers is estimated to take. */
static int choose_split(sequence_run *run) {
    const fo_sequence *s = run->s;
    const int cells = s->layers * s->directions;
    double alone = 0, units = 0, rows = 0, directions = 0;
    for (int i = 0; i < cells; i++) alone += fo_cell_nanoseconds(s->cells[i], s->batch, 1);
    const int threads = fo_threads_for(alone * run->all / s->batch), in_line = (int)min_(threads, s->layers);
    run->split = s->directions == 2 ? SPLIT_DIRECTIONS : SPLIT_UNITS;
    if (threads == 1) return 1;
    for (int i = 0; i < cells; i++) {
        units += fo_cell_nanoseconds(s->cells[i], s->batch, threads);
        rows += fo_cell_nanoseconds(s->cells[i], div_up(s->batch, threads), 1);
        directions += fo_cell_nanoseconds(s->cells[i], s->batch, (int)max_(1, threads / 2)) / 2;
    }
    const ptrdiff_t lag = following(run->steps, alone / cells);
    const double layers =
        alone / s->layers * div_up(s->layers, in_line) * (1 + (double)(in_line - 1) * lag / run->steps);
    double best = FO_SPLIT_GAIN * alone;
    int team = 1;
    if (s->directions == 2) best = directions, team = threads < 4 ? 2 : threads;
    if (s->directions == 1 && units < best) best = units, team = threads;
    if (s->batch >= threads && rows < best) best = rows, team = threads, run->split = SPLIT_ROWS;
    if (s->directions == 1 && layers < best)
        team = in_line, run->split = SPLIT_LAYERS, run->chunk = min_(run->chunk, lag);
    return team;
}

static ptrdiff_t length_of(const fo_sequence *s, ptrdiff_t b) { return clamp_(s->lengths[b], 0, s->steps); }

/* Looks through the lengths: the longest, their sum, and whether rows have to move for the longest to come first. */
static void measure(sequence_run *run) {
    const fo_sequence *s = run->s;
    run->steps = s->lengths ? 0 : s->steps, run->all = s->lengths ? 0 : s->steps * s->batch;
    for (ptrdiff_t b = 0; s->lengths && b < s->batch; b++) {
        run->steps = max_(run->steps, length_of(s, b)), run->all += length_of(s, b);
        run->moved |= b && length_of(s, b) > length_of(s, b - 1);
    }
}

static int compare_rows(const void *a, const void *b) {
    const sequence_row *x = a, *y = b;
    return x->length != y->length ? (x->length < y->length ? 1 : -1) : (x->at > y->at) - (x->at < y->at);
}

static void order_rows(sequence_run *run) {
    for (ptrdiff_t b = 0; b < run->s->batch; b++) run->rows[b] = (sequence_row){length_of(run->s, b), b};
    if (run->moved) qsort(run->rows, (size_t)run->s->batch, sizeof *run->rows, compare_rows);
}

/* Floats of a row that is copied: of x, of the first layer where rows have moved, of all that are rounded; of h and of
 * results between two products, rounded. Longer rows may stand closer, so that each cell is asked. */
static void set_row_floats(sequence_run *run) {
    const fo_sequence *s = run->s;
    run->inputs = run->moved ? s->cells[0]->s.inputs : 0, run->row = 0;
    for (int i = 0; s->cells[0]->type == FO_BF16 && i < s->layers * s->directions; i++) {
        const fo_cell *cell = s->cells[i];
        run->inputs = max_(run->inputs, fo_rounded_floats(cell, cell->s.inputs));
        run->row = max_(run->row, fo_rounded_floats(cell, cell->s.outputs));
        run->row = max_(run->row, fo_rounded_floats(cell, cell->s.hidden));
    }
}

/* Takes the scratch of a run: of directions or threads, images between layers, progress and the order of rows. */
static bool take_scratch(sequence_run *run, ptrdiff_t places, ptrdiff_t between) {
    const fo_sequence *s = run->s;
    run->h = round_up(s->batch * run->outputs, 16), run->c = round_up(s->batch * run->hidden, 16);
    run->sums = round_up(s->batch * run->chunk * run->width, 16);
    set_row_floats(run), run->between = round_up(between, 16);
    run->x = round_up(s->batch * run->chunk * run->inputs, 16);
    run->rounded = round_up(s->batch * run->row, 16);
    run->each = 2 * run->h + run->c + run->sums + run->x + run->between + 3 * run->rounded;
    const ptrdiff_t middle = s->layers > 1 ? round_up(run->steps * s->batch * s->directions * run->outputs, 16) : 0;
    const size_t floats = (size_t)(places * run->each + min_(s->layers - 1, 2) * middle) * sizeof(float);
    const size_t progress = (size_t)s->layers * sizeof *run->progress;
    run->scratch = fo_arena_take(floats + progress + (s->lengths ? (size_t)s->batch * sizeof *run->rows : 0));
    if (!run->scratch) return false;
    run->middle[0] = run->scratch + places * run->each;
    run->middle[1] = run->middle[0] + middle;
    run->progress = memset((char *)run->scratch + floats, 0, progress);
    if (s->lengths) run->rows = (void *)((char *)run->progress + progress);
    return true;
}

fo_status fo_sequence_run(const fo_sequence *s) {
    sequence_run run = {.s = s};
    ptrdiff_t between = 0;
    if (!s->batch) return FO_OK;
    if (s->cells[0]->of_h) return fo_dynamic_sequence(s);
    measure(&run);
    for (int i = 0; i < s->layers * s->directions; i++) {
        run.outputs = max_(run.outputs, s->cells[i]->s.outputs);
        run.hidden = max_(run.hidden, s->cells[i]->s.hidden);
        run.width = max_(run.width, sums_width(s->cells[i]));
        between = max_(between, fo_cell_between(s->cells[i], s->batch));
    }
    run.chunk = min_(run.steps, max_(1, sums_bytes() / (ptrdiff_t)sizeof(float) / max_(1, s->batch * run.width)));
    const int threads = choose_split(&run);
    if (!take_scratch(&run, run.split == SPLIT_LAYERS ? threads : s->directions, between)) return FO_NO_MEMORY;
    if (run.rows) order_rows(&run);
    fo_parallel_team(threads, run_member, &run);
    fo_arena_release(run.scratch);
    return FO_OK;
}
