/* LSTMs of int8 weights, whose x and h are quantized as they come (DynamicQuantizeLSTM).
 *
 *   sums[t] = w_ih x[t] + bias      of all steps at once, x quantized by the range of all
 *   start   = w_hh h + sums[t]      h quantized by the range of all rows; then the gates of kn->step
 *
 * Products are those of matmul/product.h, their columns gates of blocks of units (kernels/rnn.h).
 */
#include "cell_step.h"
#include "dynamic_cell.h"

/* Rows of weights, gate by gate, and what goes with them as columns of a product; n counts those of padding. */
typedef struct {
    ptrdiff_t n, k;
    int8_t *w, *zero;
    float *scale, *bias;
} interleaved;

static void interleave(const fo_cell *cell, interleaved *to, const int8_t *w, const float *scale, const int8_t *zero,
                       const float *b_ih, const float *b_hh) {
    const ptrdiff_t vl = cell->kn->vl, hidden = cell->s.hidden, gates = cell->stage[0].gates;
    for (ptrdiff_t row = 0; row < gates * hidden; row++) {
        const ptrdiff_t gate = row / hidden, u = row % hidden, j = (u / vl * gates + gate) * vl + u % vl;
        memcpy(to->w + j * to->k, w + row * to->k, (size_t)to->k);
        to->scale[j] = scale[row];
        to->zero[j] = zero ? zero[row] : 0;
        to->bias[j] = (b_ih ? b_ih[row] : 0) + (b_hh ? b_hh[row] : 0);
    }
}

static fo_linear *product_of(const fo_cell *cell, ptrdiff_t k, const int8_t *w, const float *scale, const int8_t *zero,
                             const float *b_ih, const float *b_hh) {
    bool failed = false;
    interleaved to = {.n = cell->stage[0].columns, .k = k};
    to.w = fo_cell_zeros(max_(to.n * k, 1), 1, &failed), to.zero = fo_cell_zeros(to.n, 1, &failed);
    to.scale = fo_cell_zeros(to.n, sizeof(float), &failed), to.bias = fo_cell_zeros(to.n, sizeof(float), &failed);
    fo_linear *plan = NULL;
    if (!failed) {
        interleave(cell, &to, w, scale, zero, b_ih, b_hh);
        const fo_quantized q = {
            .w_scale = to.scale, .w_zero = zero ? to.zero : NULL, .bias = b_ih || b_hh ? to.bias : NULL, .whole = true};
        plan = fo_linear_create_int8(to.n, k, to.w, k, 1, &q);
    }
    fo_free(to.w), fo_free(to.zero), fo_free(to.scale), fo_free(to.bias);
    return plan;
}

void fo_cell_make_dynamic(fo_cell *cell, const fo_cell_weights *w, bool *failed) {
    step_stage *stage = &cell->stage[cell->stages++];
    *stage = (step_stage){.kind = FO_STEP_LSTM, .gates = 4, .columns = cell->blocks * 4 * cell->kn->vl};
    stage->lds = stage->columns;
    /* nothing is read of them, but addresses within a row are made */
    stage->wh = fo_cell_zeros(stage->columns, sizeof(float), failed);
    stage->wx = fo_cell_zeros(stage->columns, sizeof(float), failed);
    cell->of_x = product_of(cell, cell->s.inputs, w->w_ih.data, w->ih_scale, w->ih_zero, w->b_ih, w->b_hh);
    cell->of_h = product_of(cell, cell->s.outputs, w->w_hh.data, w->hh_scale, w->hh_zero, NULL, NULL);
    *failed |= !cell->of_x || !cell->of_h;
}

static const fo_types FLOATS = {FO_F32, FO_F32, FO_F32};

/* A step whose x part is in `sums`, rows of columns; start: room for as many. */
static fo_status step(const fo_cell *cell, step_job *job, const float *sums, float *start) {
    const ptrdiff_t n = cell->stage[0].columns;
    const fo_status status = fo_linear_run(cell->of_h, FLOATS, job->m, job->io.h, job->io.ldh, sums, n, start, n);
    job->sums[0] = start;
    if (status == FO_OK) fo_cell_step(cell, job, &(team_place){.members = 1});
    return status;
}

fo_status fo_dynamic_step(const fo_cell *cell, ptrdiff_t batch, const fo_cell_io *io) {
    const ptrdiff_t all = batch * cell->stage[0].columns;
    float *sums = fo_arena_take((size_t)(2 * all) * sizeof(float));
    if (!sums) return FO_NO_MEMORY;
    step_job job = {.io = *io, .m = batch};
    fo_status status = fo_linear_run(cell->of_x, FLOATS, batch, io->x, io->ldx, NULL, 0, sums, cell->stage[0].columns);
    if (status == FO_OK) status = step(cell, &job, sums, sums + all);
    fo_arena_release(sums);
    return status;
}

/* One direction and its scratch: x's parts of all steps, of one and the sums of one, x in order, states by turns. */
typedef struct {
    const fo_sequence *s;
    const fo_cell *cell;
    int direction;
    bool backwards;
    float *sums, *added, *start, *x, *h[2], *c[2];
} dynamic_direction;

typedef struct {
    const fo_sequence *s;
    ptrdiff_t step, x, state, each; /* floats of one step's sums, of x in order, of a state and of all */
    float *scratch;
    fo_status status[2];
} dynamic_run;

static bool in_order(const fo_sequence *s) { return s->batch == 1 || s->steps == 1 || s->xt == s->batch * s->xb; }

static ptrdiff_t length_of(const fo_sequence *s, ptrdiff_t b) {
    return s->lengths ? clamp_(s->lengths[b], 0, s->steps) : s->steps;
}

static fo_status input_sums(const dynamic_direction *d) {
    const fo_sequence *s = d->s;
    const ptrdiff_t inputs = d->cell->s.inputs, rows = s->steps * s->batch;
    const float *x = s->x;
    ptrdiff_t ldx = s->batch == 1 ? s->xt : s->xb;
    if (!in_order(s)) {
        for (ptrdiff_t i = 0; i < rows; i++)
            memcpy(d->x + i * inputs, x + i / s->batch * s->xt + i % s->batch * s->xb, (size_t)inputs * sizeof *x);
        x = d->x, ldx = inputs;
    }
    return fo_linear_run(d->cell->of_x, FLOATS, rows, x, ldx, NULL, 0, d->sums, d->cell->stage[0].columns);
}

/* Step t of each row that has one, which is another of x for each where their lengths differ. */
static fo_status one_step(const dynamic_direction *d, ptrdiff_t t, int turn) {
    const fo_sequence *s = d->s;
    const ptrdiff_t hidden = d->cell->s.hidden, n = d->cell->stage[0].columns, m = s->batch;
    const float *sums = d->sums + (d->backwards ? s->steps - 1 - t : t) * m * n;
    for (ptrdiff_t b = 0; s->lengths && b < m; b++) {
        const ptrdiff_t length = length_of(s, b), at = t >= length ? 0 : d->backwards ? length - 1 - t : t;
        memcpy(d->added + b * n, d->sums + (at * m + b) * n, (size_t)n * sizeof *sums);
    }
    step_job job = {.io = {.h = d->h[turn],
                           .ldh = hidden,
                           .h_out = d->h[1 - turn],
                           .ldho = hidden,
                           .c = d->c[turn],
                           .ldc = hidden,
                           .c_out = d->c[1 - turn],
                           .ldco = hidden},
                    .m = m,
                    .backwards = turn};
    const fo_status status = step(d->cell, &job, s->lengths ? d->added : sums, d->start);
    for (ptrdiff_t b = 0; b < m; b++) {
        const ptrdiff_t length = length_of(s, b), at = t >= length ? t : d->backwards ? length - 1 - t : t;
        float *y = s->y + at * s->yt + b * s->yb + d->direction * hidden, *h = d->h[1 - turn] + b * hidden;
        const size_t bytes = (size_t)hidden * sizeof *y;
        if (t < length) {
            memcpy(y, h, bytes);
            continue;
        }
        memset(y, 0, bytes);
        memcpy(h, d->h[turn] + b * hidden, bytes);
        memcpy(d->c[1 - turn] + b * hidden, d->c[turn] + b * hidden, bytes);
    }
    return status;
}

static void copy_state(float *to, const float *from, ptrdiff_t n) {
    if (from)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        memset(to, 0, (size_t)n * sizeof *to);
}

static void run_direction(void *context, ptrdiff_t i, int thread) {
    dynamic_run *run = context;
    const fo_sequence *s = run->s;
    float *p = run->scratch + i * run->each;
    dynamic_direction d = {.s = s, .cell = s->cells[i], .direction = (int)i, .backwards = (i == 1) != s->reverse};
    const ptrdiff_t all = s->batch * d.cell->s.hidden;
    (void)thread;
    d.sums = p, p += s->steps * run->step;
    d.added = p, d.start = p + run->step, p += 2 * run->step;
    d.h[0] = p, d.h[1] = p + run->state, d.c[0] = p + 2 * run->state, d.c[1] = p + 3 * run->state;
    d.x = p + 4 * run->state;
    copy_state(d.h[0], s->h0 ? s->h0 + i * all : NULL, all);
    copy_state(d.c[0], s->c0 ? s->c0 + i * all : NULL, all);
    fo_status status = input_sums(&d);
    for (ptrdiff_t t = 0; t < s->steps && status == FO_OK; t++) status = one_step(&d, t, t & 1);
    copy_state(s->hn + i * all, d.h[s->steps & 1], all);
    copy_state(s->cn + i * all, d.c[s->steps & 1], all);
    run->status[i] = status;
}

fo_status fo_dynamic_sequence(const fo_sequence *s) {
    const fo_cell *cell = s->cells[0];
    const ptrdiff_t n = cell->stage[0].columns, k = cell->s.inputs + cell->s.hidden, rows = s->steps * s->batch;
    dynamic_run run = {.s = s, .step = s->batch * n, .x = in_order(s) ? 0 : rows * cell->s.inputs};
    run.state = round_up(s->batch * cell->s.hidden, 16);
    run.each = round_up((s->steps + 2) * run.step + 4 * run.state + run.x, 16);
    run.scratch = fo_arena_take((size_t)(s->directions * run.each) * sizeof(float));
    if (!run.scratch) return FO_NO_MEMORY;
    const double nanoseconds = (double)s->directions * rows * n * k / (FO_STEP_MACS * cell->kn->vl);
    fo_parallel_for(s->directions, s->directions > 1 ? fo_threads_for(nanoseconds) : 1, run_direction, &run);
    fo_arena_release(run.scratch);
    return run.status[0] != FO_OK ? run.status[0] : run.status[1];
}
