/* Depthwise convolution: the output is cut into channels and rows of an image, and the kernel does the rest. Planes
 * are transposed where the kernels have no walk along rows, or where a row is so short that most lanes of a vector are
 * idle: some channels at a time become pixels in scratch memory,
 *
 *      x  c0 [ pixels ]  ->  [ pixel 0: c0 c1 .. c15 ]  ->  kernel, channels last  ->  y  c0 [ pixels ]
 *         c1 [ pixels ]      [ pixel 1: c0 c1 .. c15 ]                                    c1 [ pixels ]
 *
 * which takes as long as five multiply-adds of each vector in x and in y. Pixels of a layer with several outputs a
 * channel are copied with each channel as often, some channels and rows at a time, and are those of one output each.
 */
#include "../../dispatch/estimate.h"
#include "../../machine/tune.h"
#include "depthwise.h"

/* How planes become pixels: how many channels and output rows at a time; 0: they do not. */
typedef struct {
    ptrdiff_t channels, rows;
} transposing;

typedef struct {
    fo_depthwise_args g; /* all channels and rows of image 0 */
    const fo_conv2d *plan;
    const fo_kernels *kn;
    ptrdiff_t channels, rows;      /* of a task */
    ptrdiff_t across, down, tasks; /* of an image, and in all */
    ptrdiff_t phases;              /* images that an image is to a dilated kernel, or 1 */
    transposing transpose, repeat; /* repeat: copies of pixels, each channel as often as it has outputs */
    ptrdiff_t unit;                /* channels that are not cut */
    float *scratch;
    ptrdiff_t each; /* floats of a thread */
} depthwise_job;

/* Channels as lanes: blocks of vl channels, padded to whole vectors; in a block one vector for each tap. */
static void pack_taps(const fo_conv2d *plan, const void *context, ptrdiff_t block, float *taps) {
    (void)context;
    const ptrdiff_t vl = plan->kn->vl;
    for (ptrdiff_t o = block * vl; o < (block + 1) * vl; o++)
        for (ptrdiff_t t = 0; t < plan->k; t++)
            taps[(block * plan->k + t) * vl + o % vl] = o < plan->s.oc ? plan->w[o * plan->ldw + t] : 0;
}

/* What is a convolution without dilation: every dh-th row and dw-th column of x and y.
 *
 *      o . o . o . o      the input columns of outputs 0, 2, 4 ... and (.) those of outputs 1, 3, 5 ... (dw = 2)
 */
typedef struct {
    fo_conv2d_shape s;
    fo_conv2d_size z;
} phase;

/* How many there are where channels are lanes and the kernels have tiles for what is left: taps would take as long
 * as in dw_across_rows otherwise, 576 channels at 33x33, 3 x 3 and dw = 2, 278 us instead of 133. */
static ptrdiff_t phases_of(const fo_conv2d *plan) {
    const fo_conv2d_shape *s = &plan->s;
    const bool tiles = s->kh == s->kw && ((s->kh >= 2 && s->kh <= 5) || s->kh == 7) && s->sh == 1 && s->sw == 1;
    return tiles && plan->ocg == 1 ? s->dh * s->dw : 1;
}

/* Rows (or columns) of phase a: the zeros before them, the first one in x, and how many there are in x and in y.
 * `before` zeros stand before x. */
typedef struct {
    ptrdiff_t zeros, first, inputs, outputs;
} phase_axis;

static phase_axis axis_of(ptrdiff_t a, ptrdiff_t dilation, ptrdiff_t before, ptrdiff_t inputs, ptrdiff_t outputs) {
    const ptrdiff_t zeros = a < before ? div_up(before - a, dilation) : 0, first = a - before + zeros * dilation;
    const ptrdiff_t in = first < inputs ? div_up(inputs - first, dilation) : 0;
    const ptrdiff_t out = a < outputs ? div_up(outputs - a, dilation) : 0;
    return (phase_axis){zeros, first, in, out};
}

/* Every dh-th row and dw-th column of an image, from row h and column w on. */
static void step_over(fo_image *t, ptrdiff_t h, ptrdiff_t w, const fo_conv2d_shape *s) {
    t->data += h * t->sh + w * t->sw;
    t->sh *= s->dh, t->sw *= s->dw;
}

/* g becomes phase `number` of itself. */
static void take_phase(fo_depthwise_args *g, phase *p, ptrdiff_t number) {
    const fo_conv2d_shape *s = g->s;
    const ptrdiff_t a = number / s->dw, b = number % s->dw;
    const phase_axis rows = axis_of(a, s->dh, g->z->top, g->z->ih, g->z->oh);
    const phase_axis columns = axis_of(b, s->dw, g->z->left, g->z->iw, g->z->ow);
    step_over(&g->x, rows.first, columns.first, s);
    step_over(&g->y, a, b, s);
    if (g->r.data) step_over(&g->r, a, b, s);
    g->h0 = g->h0 > a ? div_up(g->h0 - a, s->dh) : 0, g->h1 = g->h1 > a ? div_up(g->h1 - a, s->dh) : 0;
    *p = (phase){*s,
                 {.n = g->z->n,
                  .ih = rows.inputs,
                  .iw = columns.inputs,
                  .oh = rows.outputs,
                  .ow = columns.outputs,
                  .top = rows.zeros,
                  .left = columns.zeros}};
    p->s.dh = p->s.dw = 1;
    if (!columns.outputs) g->h1 = g->h0;
    g->s = &p->s, g->z = &p->z;
}

/* Rows of the window of so many output rows. */
static ptrdiff_t window_rows(const fo_conv2d_shape *s, ptrdiff_t rows) {
    return (rows - 1) * s->sh + (s->kh - 1) * s->dh + 1;
}

/* Floats of a channel: of x, of so many rows of y, and of a residual's. */
static ptrdiff_t transposed_floats(const fo_conv2d_shape *s, const fo_conv2d_size *z, bool adds, ptrdiff_t rows) {
    return min_(z->ih, window_rows(s, rows)) * z->iw + (1 + adds) * rows * z->ow;
}

/* Whether the kernels have walks along rows for it, or other ways that pay; r: residual or NULL. Rows of any kernel
 * pay where they are long: 64 channels of 4x512 with 1x7 take 52 us instead of 78, 32 of 128x256 with 3x5 810
 * instead of 1050, but 64 of 64x100 with 1x7 295 instead of 215. */
static bool walks(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *r) {
    const fo_conv2d_shape *s = &plan->s;
    if (s->kh != s->kw || s->sh != s->sw) return s->sw <= 2 && z->ow >= FO_DEPTHWISE_MANY * plan->kn->vl;
    if (s->sh > 2) return false;
    const bool dilated = s->dh > 1 || s->dw > 1, any = s->kh <= 3 && s->sh == 1 && fo_in_registers(&s->act) && !r;
    if (dilated || (s->kh <= 2 && s->sh == 1)) return any;
    return s->kh <= 3 || s->kh == 5 || (s->kh == 7 && s->sh == 1);
}

/* Whether rows leave so many lanes idle that a walk takes longer than to transpose the planes. 3 x 3 kernels have
 * vectors of several rows, of stride 2 from three columns on. At half rate 768x7x7 with a kernel of 7 x 7 takes 40
 * us instead of 66, 960x7x7 with 5 x 5 31 instead of 45, 512x6x6 with 3 x 3 8.7 instead of 9.3, 512x4x4 3.0 instead
 * of 7.0. */
static bool is_small(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const ptrdiff_t vl = plan->kn->vl, k = plan->s.kh, stride = plan->s.sh;
    const bool dilated = plan->s.dh > 1 || plan->s.dw > 1, long_vectors = vl >= 16 && !plan->half_rate;
    if (plan->s.oc < vl || (k == 1 && stride == 1)) return false;
    if (k != 3 || dilated) return z->ow <= vl / 2;
    return z->ow <= min_(vl, stride == 2 ? 32 / vl : long_vectors ? 4 : 6);
}

/* Floats of what is transposed at once. */
enum { NEAR = FO_L2_PIECE / sizeof(float), FAR = FO_L2_SHARE / sizeof(float) };

/* Channels of whole planes that take up to NEAR floats, a vector's of larger ones, or of some rows: FAR floats. */
static transposing transposing_of(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r,
                                  const fo_image *y) {
    const fo_conv2d_shape *s = &plan->s;
    const ptrdiff_t vl = plan->kn->vl, all = transposed_floats(s, z, r != NULL, z->oh);
    const bool planes =
        x->sw == 1 && y->sw == 1 && x->sh == z->iw && y->sh == z->ow && (!r || (r->sw == 1 && r->sh == z->ow));
    if (vl == 1 || plan->ocg > 1 || !planes || (walks(plan, z, r) && !is_small(plan, z))) return (transposing){0, 0};
    if (all <= FAR / vl)
        return (transposing){clamp_(NEAR / all / vl * vl, vl, min_(FO_DEPTHWISE_MANY * vl, round_up(s->oc, vl))),
                             z->oh};
    const ptrdiff_t rows = (FAR / vl - window_rows(s, 0) * z->iw) / (s->sh * z->iw + (r ? 2 : 1) * z->ow);
    return rows > 0 ? (transposing){vl, min_(rows, z->oh)} : (transposing){0, 0};
}

/* Output rows h0 .. h1 of planes c0 .. c1, so many that the scratch holds them as pixels. The kernel computes whole
 * vectors. */
static void transposed_part(const depthwise_job *job, const fo_depthwise_args *g, float *room) {
    const fo_conv2d_size *z = g->z;
    const ptrdiff_t block = job->transpose.channels, n = g->c1 - g->c0, rows = g->h1 - g->h0, outputs = rows * z->ow;
    const ptrdiff_t top = g->h0 * g->s->sh - z->top, window = window_rows(g->s, rows);
    const ptrdiff_t t0 = clamp_(top, 0, z->ih), t1 = clamp_(top + window, t0, z->ih); /* its rows in the image */
    const fo_image x = fo_contiguous(block, z->ih, z->iw, true), y = fo_contiguous(block, z->oh, z->ow, true);
    float *const from = room, *const to = from + (t1 - t0) * z->iw * block, *const residual = to + outputs * block;
    fo_depthwise_args part = *g;
    part.x = x, part.y = y, part.c0 = 0, part.c1 = round_up(n, job->kn->vl);
    part.x.data = from - t0 * x.sh, part.y.data = to - g->h0 * y.sh;
    part.w += g->c0 * g->s->kh * g->s->kw;
    if (g->bias) part.bias += g->c0;
    if (g->act.slopes) part.act.slopes += g->c0;
    job->kn->transpose(n, (t1 - t0) * z->iw, g->x.data + g->c0 * g->x.sc + t0 * z->iw, g->x.sc, from, block);
    if (g->r.data) {
        part.r = y, part.r.data = residual - g->h0 * y.sh;
        job->kn->transpose(n, outputs, g->r.data + g->c0 * g->r.sc + g->h0 * z->ow, g->r.sc, residual, block);
    }
    for (ptrdiff_t n = 0, phases = phases_of(job->plan); n < phases; n++) {
        fo_depthwise_args some = part;
        phase phase;
        if (phases > 1) take_phase(&some, &phase, n);
        if (some.h0 < some.h1) job->kn->depthwise(&some);
    }
    job->kn->transpose(outputs, n, to, block, g->y.data + g->c0 * g->y.sc + g->h0 * z->ow, g->y.sc);
}

/* Channels and rows of copies whose window takes FAR floats at most, unless it is of one row. */
static transposing repeating_of(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x) {
    const ptrdiff_t block = plan->ocg * plan->kn->vl;
    if (plan->ocg == 1 || x->sc != 1) return (transposing){0, 0};
    const ptrdiff_t rows = (FAR / block / max_(z->iw, 1) - window_rows(&plan->s, 0)) / plan->s.sh;
    return (transposing){block, clamp_(rows, 1, z->oh)};
}

static void repeated_part(const depthwise_job *job, const fo_depthwise_args *g, float *room) {
    const fo_conv2d_size *z = g->z;
    const ptrdiff_t n = g->c1 - g->c0, m = g->multiplier, top = g->h0 * g->s->sh - z->top;
    const ptrdiff_t t0 = clamp_(top, 0, z->ih), t1 = clamp_(top + window_rows(g->s, g->h1 - g->h0), t0, z->ih);
    fo_depthwise_args part = *g;
    part.x = fo_contiguous(n, z->ih, z->iw, true), part.x.data = room - t0 * part.x.sh;
    for (ptrdiff_t t = t0; t < t1; t++)
        for (ptrdiff_t w = 0; w < z->iw; w++)
            job->kn->transpose(m, n / m, fo_at(&g->x, 0, g->c0 / m, t, w), 0, fo_at(&part.x, 0, 0, t, w), m);
    part.multiplier = 1, part.c0 = 0, part.c1 = n, part.w += g->c0 * g->s->kh * g->s->kw;
    part.y.data += g->c0 * g->y.sc, part.r.data += g->r.data ? g->c0 * g->r.sc : 0;
    if (g->bias) part.bias += g->c0;
    if (g->act.slopes) part.act.slopes += g->c0;
    job->kn->depthwise(&part);
}

/* Calls `run` for parts of g, whose scratch `room` holds. */
static void in_parts(const depthwise_job *job, const fo_depthwise_args *g, const transposing *of, float *room,
                     void (*run)(const depthwise_job *, const fo_depthwise_args *, float *)) {
    fo_depthwise_args part = *g;
    for (; part.c0 < g->c1; part.c0 = part.c1) {
        part.c1 = min_(part.c0 + of->channels, g->c1);
        for (part.h0 = g->h0; part.h0 < g->h1; part.h0 = part.h1) {
            part.h1 = min_(part.h0 + of->rows, g->h1);
            run(job, &part, room);
        }
    }
}

static void depthwise_task(void *context, fo_piece piece, int thread) {
    const depthwise_job *job = context;
    const ptrdiff_t task = piece.task, across = task % job->across, down = task / job->across % job->down;
    const ptrdiff_t image = task / job->across / job->down;
    const ptrdiff_t n = image / job->phases;
    fo_depthwise_args g = job->g;
    phase phase;
    g.x.data += n * g.x.sn, g.y.data += n * g.y.sn;
    if (g.r.data) g.r.data += n * g.r.sn;
    if (job->phases > 1) take_phase(&g, &phase, image % job->phases);
    g.c0 = across * job->channels, g.h0 = down * job->rows;
    ptrdiff_t channels = min_(g.c1 - g.c0, job->channels), rows = clamp_(g.h1 - g.h0, 0, job->rows);
    const bool transposed = job->transpose.channels;
    const bool by_rows = g.nhwc && !transposed && rows >= 2 * FO_DEPTHWISE_ROWS_AT_ONCE;
    if (by_rows)
        fo_divide(piece, FO_DEPTHWISE_ROWS_AT_ONCE, &g.h0, &rows);
    else
        fo_divide(piece, job->unit, &g.c0, &channels);
    if (!rows || !channels) return;
    g.c1 = g.c0 + channels, g.h1 = g.h0 + rows;
    float *const room = job->each ? job->scratch + thread * job->each : NULL;
    if (transposed)
        in_parts(job, &g, &job->transpose, room, transposed_part);
    else if (job->repeat.channels)
        in_parts(job, &g, &job->repeat, room, repeated_part);
    else
        job->kn->depthwise(&g);
}

/* Channels as lanes are cut along the rows first, as the products before and after are: what a thread has written it
 * reads again. Seven rows of many channels are cut along those alone, for tiles of all rows (1024x7x7 on two threads
 * 10.4 to 9.4 us). Planes are cut along the channels first, for rows share input rows at the cuts, which are transposed
 * twice. */
static void depthwise_cut(depthwise_job *job, const fo_conv2d_size *z, int threads) {
    const fo_depthwise_args *g = &job->g;
    const ptrdiff_t images = z->n * job->phases, oh = job->phases > 1 ? div_up(z->oh, g->s->dh) : z->oh;
    const bool pixels = g->nhwc && !job->transpose.channels;
    const bool flat = pixels && oh < 8 && oh % threads && g->c1 >= threads * FO_DEPTHWISE_WIDE;
    const ptrdiff_t each = !pixels ? FO_TASKS_A_THREAD : oh % threads && !flat ? 2 : 1;
    const ptrdiff_t tasks = threads > 1 ? div_up(each * threads, images) : 1;
    const ptrdiff_t down = pixels && !flat ? min_(min_(threads, tasks), oh) : 1;
    job->channels = round_up(div_up(g->c1, div_up(tasks, down)), job->unit);
    job->across = div_up(g->c1, job->channels);
    const ptrdiff_t parts = div_up(job->transpose.channels ? min_(tasks, threads) : tasks, job->across); /* of planes */
    job->rows = pixels ? div_up(oh, down) : max_(div_up(oh, parts), min_(oh, 8));
    job->down = div_up(oh, job->rows);
    job->tasks = images * job->across * job->down;
}

/* Whether lanes are channels: where x and y have different orders, y decides. One column has no order of its own, and
 * would leave lanes idle. */
static bool channel_lanes(const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y) {
    if (z->iw == 1 && z->ow == 1 && x->sc == 1 && y->sc == 1 && (!r || r->sc == 1)) return true;
    return y->sc == 1 && !(y->sw == 1 && x->sw == 1 && (!r || r->sw == 1));
}

void fo_depthwise_shape(const fo_conv2d *plan, fo_depthwise_args *g) {
    g->s = &plan->s, g->act = plan->s.act, g->bias = plan->bias, g->multiplier = plan->ocg, g->c1 = plan->s.oc;
    g->ldw = plan->ldw, g->half_rate = plan->half_rate;
}

bool fo_depthwise_weights(const fo_conv2d *plan, fo_depthwise_args *g) {
    const ptrdiff_t blocks = div_up(plan->s.oc, plan->kn->vl), floats = blocks * plan->k * plan->kn->vl;
    g->w = g->nhwc ? fo_conv2d_packed(plan, FO_DEPTHWISE_TAPS, floats, blocks, pack_taps, NULL) : plan->w;
    return g->w != NULL;
}

bool fo_depthwise_applies(const fo_conv2d *plan, const fo_conv2d_size *z) {
    (void)z;
    return fo_is_depthwise(plan);
}

fo_status fo_depthwise_prepare(fo_prepared_conv2d *call) {
    const fo_conv2d *plan = call->plan;
    const fo_layout *l = &call->layout;
    const fo_conv2d_size *z = &l->z;
    const fo_image *x = &l->x, *y = &l->y, *r = l->adds ? &l->r : NULL;
    const double points = (double)z->n * plan->s.oc * z->oh * z->ow;
    depthwise_job *job = fo_call_prepare(call, sizeof *job, fo_nanoseconds(plan->kn, points * plan->k, 8 * points));
    if (!job) return FO_NO_MEMORY;
    *job = (depthwise_job){.g = {.z = z, .x = *x, .y = *y, .r = l->r, .nhwc = channel_lanes(z, x, r, y), .h1 = z->oh},
                           .plan = plan,
                           .kn = plan->kn};
    job->transpose = transposing_of(plan, z, x, r, y);
    const ptrdiff_t floats = transposed_floats(&plan->s, z, r != NULL, job->transpose.rows);
    if (job->transpose.channels) job->g.nhwc = true, job->each = job->transpose.channels * floats;
    job->phases = job->g.nhwc && x->sc == 1 && !job->transpose.channels ? phases_of(plan) : 1;
    fo_depthwise_shape(plan, &job->g);
    if (job->g.nhwc && !job->transpose.channels) job->repeat = repeating_of(plan, z, x);
    if (job->repeat.channels) job->each = job->repeat.channels * window_rows(&plan->s, job->repeat.rows) * z->iw;
    job->unit = job->repeat.channels ? job->repeat.channels : job->g.nhwc ? plan->kn->vl : 1;
    depthwise_cut(job, z, call->threads);
    const char *lanes = job->g.nhwc ? "depthwise, channels as lanes" : "depthwise, columns as lanes";
    call->kernel = job->transpose.channels ? "depthwise, planes become pixels" : lanes;
    call->scratch = job->each * call->threads * (ptrdiff_t)sizeof(float);
    return FO_OK;
}

fo_status fo_depthwise_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *r, const fo_image *y) {
    depthwise_job job = *(const depthwise_job *)call->state;
    if (job.transpose.channels)
        FO_RAN("conv depthwise planes to pixels");
    else if (job.repeat.channels)
        FO_RAN("conv depthwise repeated channels");
    else if (job.g.nhwc)
        FO_RAN("conv depthwise channel lanes");
    else
        FO_RAN("conv depthwise column lanes");
    fo_call_images(x, r, y, &job.g.x, &job.g.r, &job.g.y);
    if (!fo_depthwise_weights(job.plan, &job.g)) return FO_NO_MEMORY;
    if (job.each && !(job.scratch = fo_arena_share(&job.each, call->threads, 0))) return FO_NO_MEMORY;
    fo_parallel_pieces(job.tasks, call->threads, depthwise_task, &job);
    if (job.scratch) fo_arena_release(job.scratch);
    return FO_OK;
}
