/* Products of int8 and of bfloat16: C is cut into blocks of rows, whose A stays in the second-level cache while the
 * panels of weights pass, and, where rows are few, of columns. Rows that the kernels cannot take as they lie are
 * made in scratch, a block at a time. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "qgemm.h"
#include "../pack.h"
#include "../machine/machine.h"

static float within_floats(double v) { return v > FLT_MAX ? FLT_MAX : v < -FLT_MAX ? -FLT_MAX : (float)v; }
static double between(double v, double least, double most) { return v < least ? least : v > most ? most : v; }

/* Bytes behind a clip are computed in units of their scale: one product less. */
static double unit_of(const fo_qplan *plan) { return plan->y.scale && fo_in_registers(&plan->act) ? plan->y.scale : 1; }

/* That of products with their bias: of what they are rounded to first, if that comes before all else. */
static double unit_of_products(const fo_qplan *plan) {
    return plan->product.scale ? plan->product.scale : unit_of(plan);
}
static bool are_rounded(const fo_qplan *plan) {
    return plan->product.scale || (plan->y.scale && fo_in_registers(&plan->act));
}

/* Whether all results fit 32 bits before they are held to bytes. */
static bool fits_integers(const fo_qplan *plan, const fo_quantized *q) {
    const double unit = unit_of_products(plan);
    for (ptrdiff_t o = 0; o < plan->groups * plan->n; o++) {
        const double largest = q->x.scale * q->w_scale[o] * 255.0 * 255 * plan->k + (q->bias ? fabs(q->bias[o]) : 0);
        if (largest / unit >= 0x1p30) return false;
    }
    return true;
}

/* A multiplier as LiteRT has it, of 31 bits. */
static double multiplier_of(double scale) {
    int exponent;
    const double part = frexp(scale, &exponent);
    return ldexp(round(ldexp(part, 31)), exponent - 31);
}

/* Results that are rounded twice, whose bias is a whole number of sums: its part of what they start with. */
static int32_t make_twice(fo_qplan *plan, const fo_quantized *q, ptrdiff_t o, ptrdiff_t at) {
    const double sum = (double)q->x.scale * q->w_scale[o], scale = multiplier_of(sum / unit_of_products(plan));
    plan->scale[at] = within_floats(scale), plan->bias[at] = (float)(scale - plan->scale[at]);
    plan->nudge[at] = q->nudge[o];
    const double bias = q->bias ? between(rint(q->bias[o] / sum), INT32_MIN, INT32_MAX) : 0;
    plan->longer |= fabs(bias) + 255.0 * (plan->w_zero ? 255 : 128) * plan->k > 0x1p24;
    return (int32_t)bias;
}

static void make_bias(fo_qplan *plan, const fo_quantized *q) {
    for (ptrdiff_t o = 0; o < plan->groups * plan->n; o++) {
        const ptrdiff_t at = o / plan->n * plan->columns + o % plan->n;
        if (q->bias) plan->bias[at] = q->bias[o];
        if (plan->slopes) plan->slopes[at] = q->act.slopes[o];
    }
}

static void make_constants(fo_qplan *plan, const fo_quantized *q) {
    const double unit = unit_of_products(plan), x_scale = q->x.scale ? q->x.scale : 1;
    double largest = 0;
    for (ptrdiff_t o = 0; o < plan->groups * plan->n; o++) {
        const ptrdiff_t at = o / plan->n * plan->columns + o % plan->n;
        plan->scale[at] = within_floats(x_scale * q->w_scale[o] / unit);
        plan->bias[at] = q->bias ? (float)(q->bias[o] / unit) : 0;
        if (plan->slopes) plan->slopes[at] = q->act.slopes[o];
        const double most =
            fabs(plan->scale[at]) * (255.0 * (plan->w_zero ? 255 : 128) * plan->k) + fabs(plan->bias[at]);
        if (most > largest || isnan(most)) largest = most; /* NaN stays: no result is known to fit */
        if (!plan->nudge) continue;
        const int32_t bias = make_twice(plan, q, o, at);
        for (int s = 0; s < 2; s++) plan->start[s][at] = bias;
    }
    if (plan->product.scale) largest = 255 * unit / unit_of(plan);
    plan->largest = largest + 255 * q->residual.scale / unit_of(plan);
    for (int s = 0; q->x.scale && s < 2; s++) {
        const int32_t zero = q->x.zero_point + fo_qoffset(plan->kn, s ? FO_S8 : FO_U8);
        for (ptrdiff_t at = 0; at < plan->groups * plan->columns; at++) plan->start[s][at] -= zero * plan->sums[at];
    }
}

fo_qepilogue fo_qepilogue_of(const fo_qproduct *p) {
    const fo_qplan *plan = p->plan;
    const fo_activation *act = &plan->act;
    const fo_types types = p->types;
    const double unit = unit_of(plan);
    fo_qepilogue e = {.start = fo_qstart(plan, types.x),
                      .w_zero = plan->w_zero,
                      .scale = plan->scale,
                      .bias = plan->bias,
                      .nudge = plan->nudge,
                      .longer = plan->longer,
                      .residual_type = types.residual,
                      .ldr = p->ldr,
                      .type = types.y,
                      .clips = fo_in_registers(act),
                      .act = *act};
    double lo = act->kind == FO_CLIP ? act->p0 / unit : -INFINITY,
           hi = act->kind == FO_CLIP ? act->p1 / unit : INFINITY;
    e.act.slopes = plan->slopes;
    if (fo_size(types.y) == 1) {
        e.zero = plan->y.zero_point + (types.y == FO_S8 ? 128 : 0), e.inverse = within_floats(1.0 / plan->y.scale);
        lo = between(lo, -e.zero, 255 - e.zero), hi = between(hi, -e.zero, 255 - e.zero);
    }
    e.lo = (float)lo, e.hi = (float)hi;
    e.saturates = fo_size(types.y) == 1 && e.clips && lo == -e.zero && hi == 255 - e.zero && plan->x.scale &&
                  plan->largest < 0x1p30 && (!p->residual || types.residual != FO_F32);
    e.residual_scale = within_floats((plan->residual.scale ? plan->residual.scale : 1) / unit);
    e.residual_zero = plan->residual.zero_point + (types.residual == FO_S8 ? 128 : 0);
    e.product_scale = within_floats(plan->product.scale / unit);
    e.product_lo = (float)-plan->product.zero_point, e.product_hi = (float)(255 - plan->product.zero_point);
    return e;
}

typedef struct {
    const fo_qplan *plan;
    const void *w;
    ptrdiff_t wn, wk;
} packing;

static void pack_panel_bf16(const packing *p, ptrdiff_t columns, ptrdiff_t wanted, const uint16_t *w, uint16_t *to) {
    for (ptrdiff_t c = 0; c < wanted; c++, w += p->wn)
        for (ptrdiff_t s = 0; s < p->plan->k; s++) to[(s / 2 * columns + c) * 2 + s % 2] = w[s * p->wk];
}

/* A panel of one group from column j on, and the sums of its weights. */
static void pack_panel(const packing *p, ptrdiff_t group, ptrdiff_t j, ptrdiff_t columns) {
    const fo_qplan *plan = p->plan;
    int8_t *to = plan->w + group * plan->panels + 4 * j * plan->quads;
    const ptrdiff_t first = (group * plan->n + j) * p->wn, wanted = min_(columns, plan->n - j);
    const int8_t *w = (const int8_t *)p->w + first;
    memset(to, 0, (size_t)(4 * columns * plan->quads));
    if (plan->type == FO_BF16) {
        pack_panel_bf16(p, columns, wanted, (const uint16_t *)p->w + first, (uint16_t *)to);
        return;
    }
    for (ptrdiff_t c = 0; c < wanted; c++, w += p->wn) {
        int32_t sum = 0;
        for (ptrdiff_t s = 0; s < plan->k; s++) {
            const int8_t value = w[s * p->wk];
            to[(s / 4 * columns + c) * 4 + s % 4] = value;
            sum += value;
        }
        const ptrdiff_t at = group * plan->columns + j + c;
        plan->sums[at] = sum + (plan->w_zero ? (int32_t)plan->k * plan->w_zero[at] : 0);
    }
}

static void pack_group(void *context, ptrdiff_t task, int thread) {
    const packing *p = context;
    const fo_qkernels *kn = p->plan->kn;
    const ptrdiff_t blocks = div_up(p->plan->n, kn->nr), first = task % blocks * kn->nr;
    (void)thread;
    for (ptrdiff_t j = first, columns; j < min_(first + kn->nr, p->plan->n); j += columns) {
        columns = fo_qpanel(p->plan->n - j, kn->vl, kn->nr);
        pack_panel(p, task / blocks, j, columns);
    }
}

/* Zeros for a value a channel. */
static void *channels(const fo_qplan *plan, bool *failed) {
    const size_t bytes = (size_t)(plan->groups * plan->columns + MAX_LANES) * sizeof(float);
    void *p = fo_alloc(bytes);
    if (p)
        memset(p, 0, bytes);
    else
        *failed = true;
    return p;
}

/* What has an element a channel, of a plan whose sizes are known; false where memory is short. */
static bool make_channels(fo_qplan *plan, const fo_quantized *q) {
    bool failed = false;
    plan->kn = fo_active_qkernels(), plan->columns = round_up(plan->n, plan->kn->vl);
    plan->x = q->x, plan->product = q->product, plan->residual = q->residual, plan->y = q->y, plan->act = q->act;
    plan->scale = channels(plan, &failed), plan->bias = channels(plan, &failed);
    plan->sums = channels(plan, &failed);
    for (int s = 0; s < 2; s++) plan->start[s] = channels(plan, &failed);
    if (q->act.slopes) plan->slopes = channels(plan, &failed);
    if (q->nudge && q->x.scale && are_rounded(plan) && fits_integers(plan, q)) plan->nudge = channels(plan, &failed);
    if (q->w_zero) plan->w_zero = channels(plan, &failed);
    return !failed;
}

bool fo_qplan_make(fo_qplan *plan, fo_dtype type, ptrdiff_t groups, ptrdiff_t n, ptrdiff_t k, const void *w,
                   ptrdiff_t wn, ptrdiff_t wk, const fo_quantized *q) {
    *plan = (fo_qplan){.type = type, .groups = groups, .n = n, .k = k, .quads = div_up(k * fo_size(type), 4)};
    const bool made = make_channels(plan, q);
    plan->panels = 4 * plan->columns * plan->quads;
    plan->w = fo_alloc((size_t)max_(groups * plan->panels, 1));
    if (!plan->w || !made) return false;
    for (ptrdiff_t o = 0; q->w_zero && o < groups * n; o++) plan->w_zero[o / n * plan->columns + o % n] = -q->w_zero[o];
    packing p = {plan, w, wn, wk};
    if (n) fo_parallel_for(groups * div_up(n, plan->kn->nr), fo_pack_threads(groups * n * k), pack_group, &p);
    type == FO_BF16 ? make_bias(plan, q) : make_constants(plan, q);
    return true;
}

bool fo_qplan_make_bits(fo_qplan *plan, ptrdiff_t n, ptrdiff_t k, const fo_blockwise *bits, const float *bias,
                        fo_activation act) {
    const ptrdiff_t steps = bits->blocks * bits->block;
    *plan = (fo_qplan){.type = FO_S8, .bits = *bits, .groups = 1, .n = n, .k = k, .quads = steps / 4};
    const fo_quantized q = {.bias = bias, .act = act};
    if (!make_channels(plan, &q)) return false;
    plan->panels = n * (steps * bits->bits / 8 + 4 * bits->blocks);
    make_bias(plan, &q);
    return true;
}

const uint16_t *fo_qcolumn_bf16(const fo_qplan *plan, ptrdiff_t o, ptrdiff_t *ld) {
    ptrdiff_t j = o % plan->n, first = 0, columns; /* of its panel */
    while (j >= (columns = fo_qpanel(plan->n - first, plan->kn->vl, plan->kn->nr))) first += columns, j -= columns;
    *ld = 2 * columns;
    return (const uint16_t *)(plan->w + o / plan->n * plan->panels + 4 * first * plan->quads) + 2 * j;
}

void fo_qplan_free(fo_qplan *plan) {
    fo_free(plan->w), fo_free(plan->scale), fo_free(plan->bias), fo_free(plan->slopes);
    fo_free(plan->nudge), fo_free(plan->w_zero), fo_free(plan->sums), fo_free(plan->start[0]), fo_free(plan->start[1]);
}

/* A cut of C, and what each thread has for its block's rows: sums, their bytes, a row before it is widened, scales and
 * zero points. */
typedef struct {
    const fo_qproduct *p;
    fo_qepilogue ep;
    ptrdiff_t rows, columns, down, across, row_bytes, each;
    float *scratch;
} qjob;

/* Rows i .. i+m-1 of a group into a thread's scratch; g gets them. */
static void make_rows(const qjob *job, fo_qgemm_args *g, ptrdiff_t group, ptrdiff_t i, float *scratch) {
    const fo_qplan *plan = job->p->plan;
    uint8_t *rows = (uint8_t *)scratch, *raw = rows + job->rows * job->row_bytes;
    const ptrdiff_t each = fo_qscales(plan);
    float *scale = (float *)(raw + round_up(4 * plan->quads, 64));
    int32_t *zero = (int32_t *)(scale + job->rows * each);
    const ptrdiff_t bytes = plan->k * fo_size(plan->type);
    for (ptrdiff_t r = 0; r < g->m; r++, rows += job->row_bytes) {
        uint8_t *to = fo_qphases(plan) == 1 ? rows : raw;
        memset(to + bytes, 0, (size_t)(4 * plan->quads - bytes));
        job->p->row(job->p, group, i + r, to, scale + r * each, zero + r * each);
        if (fo_qphases(plan) > 1) plan->kn->widen(plan->quads, raw, rows);
    }
    g->a = (const uint8_t *)scratch, g->lda = job->row_bytes;
    if (plan->type == FO_S8 && !plan->x.scale) g->row_scale = scale, g->row_zero = zero;
}

fo_qgemm_args fo_qblock_of(const fo_qproduct *p, const fo_qepilogue *ep, ptrdiff_t group, ptrdiff_t i, ptrdiff_t j) {
    const fo_qplan *plan = p->plan;
    const ptrdiff_t column = group * plan->n + j, at = group * plan->columns + j;
    const ptrdiff_t line = p->line ? i / p->line : 0, row = i - line * p->line;
    fo_qgemm_args g = {.k = plan->quads,
                       .segments = 1,
                       .lines = 1,
                       .ldc = p->ldc,
                       .ep = *ep,
                       .b = plan->w ? plan->w + group * plan->panels + 4 * j * plan->quads : NULL,
                       .bits = &plan->bits,
                       .column = j,
                       .c = (char *)p->c + (line * p->c_line + row * p->ldc + column) * fo_size(ep->type)};
    g.ep.start += at, g.ep.scale += at, g.ep.bias += at;
    if (g.ep.act.slopes) g.ep.act.slopes += at;
    if (g.ep.nudge) g.ep.nudge += at;
    if (g.ep.w_zero) g.ep.w_zero += at;
    if (p->residual)
        g.ep.residual =
            (const char *)p->residual + (line * p->r_line + row * p->ldr + column) * fo_size(ep->residual_type);
    return g;
}

/* A block from row i and a group's column j on, line by line. */
static void run_lines(const qjob *job, const fo_qgemm_args *block, ptrdiff_t group, ptrdiff_t i, ptrdiff_t j) {
    const fo_qproduct *p = job->p;
    const ptrdiff_t scales = fo_qscales(p->plan);
    for (ptrdiff_t r = 0, some; r < block->m; r += some) {
        const fo_qgemm_args at = fo_qblock_of(p, &job->ep, group, i + r, j);
        fo_qgemm_args g = *block;
        g.m = some = min_(block->m - r, p->line - (i + r) % p->line);
        g.a += r * g.lda, g.c = at.c, g.ep.residual = at.ep.residual;
        if (g.row_scale) g.row_scale += r * scales, g.row_zero += r * scales;
        if (g.row_sums) g.row_sums += r;
        fo_qgemm(p->plan, &g);
    }
}

static void qblock(void *context, ptrdiff_t task, int thread) {
    const qjob *job = context;
    const fo_qproduct *p = job->p;
    const fo_qplan *plan = p->plan;
    const ptrdiff_t group = task % plan->groups, block = task / plan->groups, i = block / job->across * job->rows,
                    j = block % job->across * job->columns;
    float *scratch = job->scratch + thread * job->each;
    fo_qgemm_args g = fo_qblock_of(p, &job->ep, group, i, j);
    g.m = min_(job->rows, p->m - i), g.n = min_(job->columns, plan->n - j);
    if (p->a)
        g.a = p->a + i * p->lda + group * plan->k * fo_size(plan->type), g.lda = p->lda;
    else
        make_rows(job, &g, group, i, scratch + (plan->w_zero ? round_up(job->rows, 16) : 0));
    if (plan->w_zero) {
        plan->kn->row_sums(&g, (int32_t *)scratch);
        g.row_sums = (const int32_t *)scratch;
    }
    if (p->line)
        run_lines(job, &g, group, i, j);
    else
        fo_qgemm(plan, &g);
}

/* Blocks of rows that fit, as many as keep the threads busy; few of them are cut by columns, too. */
static void cut(qjob *job, int threads) {
    const fo_qplan *plan = job->p->plan;
    const fo_qkernels *kn = plan->kn;
    const ptrdiff_t m = job->p->m, fitting = max_(fo_this_machine()->l2 / 2 / max_(job->row_bytes, 1), 2 * kn->mr),
                    tasks = threads > 1 ? FO_TASKS_A_THREAD * threads : 1;
    const ptrdiff_t blocks = max_(div_up(m, fitting), min_(div_up(tasks, plan->groups), div_up(m, 4 * kn->mr)));
    job->rows = div_up(m, blocks), job->down = div_up(m, job->rows);
    job->columns = plan->n;
    if (job->down * plan->groups < tasks)
        job->columns = round_up(div_up(plan->n, div_up(tasks, job->down * plan->groups)), kn->nr);
    job->across = div_up(plan->n, job->columns);
}

int fo_qthreads(const fo_qproduct *p) {
    const fo_qplan *plan = p->plan;
    const double products = (double)p->m * plan->n * plan->groups * plan->k * (double)fo_size(plan->type);
    const double rate = (plan->kn->tiles ? 32.0 : fo_qphases(plan) == 1 ? 8.0 : 4.0) * plan->kn->vl;
    return fo_threads_for(fmax(products / rate, (double)(plan->groups * plan->panels) / 60));
}

fo_status fo_qproduct_run(const fo_qproduct *p) {
    const fo_qplan *plan = p->plan;
    if (!p->m || !plan->n || !plan->groups) return FO_OK;
    qjob job = {.p = p, .ep = fo_qepilogue_of(p), .row_bytes = 4 * plan->quads * fo_qphases(plan)};
    if (job.row_bytes % (FO_SHARED_SETS_FLOATS * (ptrdiff_t)sizeof(float)) == 0) job.row_bytes += 64;
    const int threads = fo_qthreads(p);
    cut(&job, threads);
    if (!p->a)
        job.each = div_up(job.rows * (job.row_bytes + 8 * fo_qscales(plan)) + round_up(4 * plan->quads, 64),
                          (ptrdiff_t)sizeof(float));
    if (plan->w_zero) job.each += round_up(job.rows, 16);
    if (job.each) {
        job.scratch = fo_arena_share(&job.each, threads, 0);
        if (!job.scratch) return FO_NO_MEMORY;
    }
    fo_parallel_for(job.down * job.across * plan->groups, threads, qblock, &job);
    if (job.scratch) fo_arena_release(job.scratch);
    return FO_OK;
}
