/* C = epilogue(A B) by the plan of B: C is cut into blocks of rows and columns, which threads take.
 *
 * A block of rows of A stays in the second-level cache while the panels of B go by; with one or few rows the product is
 * bound by reading B, and the blocks are ranges of columns. The reduction is never shared. What a kernel does not take
 * as it lies is made for it in a thread's scratch, a block at a time:
 *
 *   rows      of another type than the kernel reads, or of an image's windows
 *   a panel   of the caller's B, or of B in blocks of 4 or 8 bits, for more rows than unpack it themselves
 *   sums      of pieces of a long reduction
 *   results   in float32, where the kernel stores no other type
 */
#include <math.h>
#include <string.h>

#include "../dispatch/estimate.h"
#include "../machine/machine.h"
#include "../ops/axes.h"
#include "packing.h"
#include "product.h"

typedef struct {
    const fo_product_call *call;
    fo_gemm_args g; /* the whole */
    fo_rescale rescale;
    ptrdiff_t rows, columns, down, across; /* of a block; blocks down and across */
    ptrdiff_t piece;                       /* steps at a time */
    ptrdiff_t row_bytes;                   /* of a row that is made, and from one to the next */
    bool makes, packs, lone, converts;     /* rows; panels; lone: a row by borrowed weights; results */
    bool at_once;                          /* the kernel takes the whole */
    const fo_kernels *widest;              /* those of a lone row */
    struct {
        ptrdiff_t row_sums, panel, sums, results, rows, each; /* where they begin in a thread's scratch; floats of it */
    } at;
    float *scratch;
} product_job;

/* ---- rows of A --------------------------------------------------------------------------------------------------- */

/* Scales of a row of floats that becomes int8: one, or one a block; else none. */
static ptrdiff_t scales_of(const fo_linear *plan) {
    const bool rounds = plan->kernel->product.group == 4 && !plan->q.x.scale;
    return !rounds ? 0 : plan->kept == FO_IN_BLOCKS ? plan->blocks.blocks : 1;
}

/* Bytes of a row's elements, whole groups, before the kernel's own form of them. */
static ptrdiff_t raw_bytes(const fo_linear *plan) {
    return plan->steps * plan->kernel->product.group * fo_size(plan->kernel->product.a);
}

static bool is_raw(const fo_linear *plan) {
    return plan->kernel->phases > 1 || plan->kernel->reads != plan->kernel->product.a;
}

/* Floats of a block's rows, of a row before it has the kernel's form, and of the rows' scales and zero points. */
static ptrdiff_t floats_of_rows(const product_job *job) {
    const fo_linear *plan = job->call->plan;
    const ptrdiff_t bytes = job->rows * (job->row_bytes + 8 * scales_of(plan)) + round_up(raw_bytes(plan), 64);
    return round_up(div_up(bytes, (ptrdiff_t)sizeof(float)), LINE_FLOATS);
}

/* Makes the block's rows from row i of a group on, and lets A be these. */
static void make_rows(const product_job *job, fo_gemm_args *g, ptrdiff_t group, ptrdiff_t i, float *scratch) {
    const fo_linear *plan = job->call->plan;
    const fo_product_kernel *kernel = plan->kernel;
    const ptrdiff_t scales = scales_of(plan), bytes = plan->k * fo_size(kernel->product.a), whole = raw_bytes(plan);
    uint8_t *rows = (uint8_t *)scratch, *raw = rows + job->rows * job->row_bytes;
    float *scale = (float *)(raw + round_up(whole, 64));
    int32_t *zero = (int32_t *)(scale + job->rows * scales);
    for (ptrdiff_t r = 0; r < g->m; r++, rows += job->row_bytes) {
        uint8_t *to = is_raw(plan) ? raw : rows;
        memset(to + bytes, 0, (size_t)(whole - bytes));
        job->call->row(job->call, group, i + r, to, scale + r * scales, zero + r * scales);
        if (kernel->phases > 1) plan->kn->split(plan->steps, 4, raw, rows);
        if (kernel->reads != kernel->product.a) plan->kn->widen(plan->k, kernel->product.a, raw, (float *)rows);
    }
    const bool floats = kernel->reads == FO_F32;
    g->a = scratch, g->lda = floats ? job->row_bytes / (ptrdiff_t)sizeof(float) : job->row_bytes;
    if (scales) g->row_scale = scale, g->row_zero = zero;
}

void fo_round_floats(ptrdiff_t n, const float *x, float *to) {
    const fo_kernels *kn = fo_active();
    uint16_t narrow[16 * MAX_LANES];
    for (ptrdiff_t i = 0, some; i < n; i += some) {
        some = min_(n - i, (ptrdiff_t)(sizeof narrow / sizeof *narrow));
        kn->narrow(some, x + i, narrow);
        kn->widen(some, FO_BF16, narrow, to + i);
    }
}

void fo_round(const fo_product_kernel *kernel, ptrdiff_t k, const float *x, void *row, ptrdiff_t first, ptrdiff_t n) {
    if (kernel->reads == FO_F32) {
        fo_round_floats(n, x, (float *)row + first);
        return;
    }
    uint16_t *to = (uint16_t *)row + first;
    fo_active()->narrow(n, x, to);
    if (k % 2 && first + n == k) to[n] = 0;
}

/* ---- panels of B, and pieces of a reduction ---------------------------------------------------------------------- */

/* All pieces but the last leave sums, where the next one starts. */
static void multiply_pieces(const product_job *job, const fo_gemm_args *whole, float *sums) {
    const fo_linear *plan = job->call->plan;
    fo_gemm_args g = *whole;
    g.lds = g.ldc = round_up(g.n, plan->kn->nr);
    g.c = sums, g.k = job->piece;
    g.ep = (fo_epilogue){.bias = whole->ep.bias};
    for (ptrdiff_t left = whole->k; left > 0; left -= g.k, g.start = sums) {
        if (left <= job->piece) g.k = left, g.c = whole->c, g.ldc = whole->ldc, g.ep = whole->ep;
        plan->kernel->run(&g);
        g.a += g.k, g.b += g.k * g.ldb, g.first += g.k;
    }
}

/* Columns of a block's arguments, from column j of it on. */
static fo_gemm_args columns_of(const fo_gemm_args *block, ptrdiff_t j, ptrdiff_t n) {
    fo_gemm_args g = *block;
    g.n = n, g.column += j, g.c += j;
    if (g.ep.bias) g.ep.bias += j;
    if (g.ep.residual) g.ep.residual = (const float *)g.ep.residual + j;
    if (g.ep.act.slopes) g.ep.act.slopes += j;
    return g;
}

/* By weights in the caller's order, each panel of which is packed before. */
static void multiply_packing(const product_job *job, const fo_gemm_args *block, float *scratch) {
    const fo_linear *plan = job->call->plan;
    float *panel = scratch + job->at.panel;
    for (ptrdiff_t j = 0, nr = plan->kn->nr; j < block->n; j += nr) {
        fo_gemm_args g = columns_of(block, j, min_(nr, block->n - j));
        fo_pack_panel(plan->kn, g.n, g.k, plan->borrowed + g.column * plan->wn, plan->wk, plan->wn, panel);
        g.b = panel;
        multiply_pieces(job, &g, scratch + job->at.sums);
    }
}

/* One row of x, by the rows of borrowed weights. With the widest vectors, for the last ones of which no column is
 * padded, and which read whole lines (1000 x 2048 in 0.5 of the time, Zen 4). */
static void multiply_lone_row(const product_job *job, const fo_gemm_args *block, float *sums) {
    const fo_linear *plan = job->call->plan;
    const ptrdiff_t vl = job->widest->vl, vectors = block->n / vl, rest = block->n % vl;
    fo_gemv_args v = {vectors,  vl,   block->k, plan->borrowed + block->column * plan->wn, plan->wn, vl * plan->wn,
                      block->a, sums, sums};
    for (ptrdiff_t j = 0; j < block->n + (rest ? vl - rest : 0); j++)
        sums[j] = block->ep.bias && j < block->n ? block->ep.bias[j] : 0;
    job->widest->gemv(&v);
    v.w += vectors * v.step, v.vectors = 1, v.rows = rest, v.sums = sums + vectors * vl, v.start = v.sums;
    if (rest) job->widest->gemv(&v);
    fo_gemm_args g = *block; /* of no steps: the epilogue */
    g.k = 0, g.b = sums, g.start = sums, g.lds = block->n;
    plan->kernel->run(&g);
}

/* Rows of C line by line, from row i of a group and its column j on. */
static void multiply_lines(const product_job *job, const fo_gemm_args *block, ptrdiff_t group, ptrdiff_t i,
                           ptrdiff_t j) {
    const fo_product_call *call = job->call;
    const fo_linear *plan = call->plan;
    for (ptrdiff_t r = 0, some; r < block->m; r += some) {
        const fo_gemm_args at = fo_product_part(call, &job->g, group, i + r, j);
        fo_gemm_args g = *block;
        g.m = some = min_(block->m - r, call->line - (i + r) % call->line);
        plan->kernel->reads == FO_F32 ? (void)(g.a += r * g.lda) : (void)(g.a_groups += r * g.lda);
        g.c = at.c, g.ep.residual = at.ep.residual;
        if (g.row_scale) g.row_scale += r, g.row_zero += r;
        if (g.row_sums) g.row_sums += r;
        plan->kernel->run(&g);
    }
}

/* ---- results of other types -------------------------------------------------------------------------------------- */

static ptrdiff_t row_at(const fo_product_call *call, ptrdiff_t i, ptrdiff_t line, ptrdiff_t ld) {
    return call->line ? i / call->line * line + i % call->line * ld : i * ld;
}

/* Lets C be floats in scratch, and the residual be there, too. */
static void begin_results(const product_job *job, fo_gemm_args *g, ptrdiff_t i, ptrdiff_t column, float *results) {
    const fo_product_call *call = job->call;
    const fo_dtype type = call->types.residual;
    g->c = results, g->ldc = g->n, g->ep.type = g->ep.residual_type = FO_F32;
    if (!call->residual) return;
    for (ptrdiff_t r = 0; r < g->m; r++) {
        const ptrdiff_t at = row_at(call, i + r, call->r_line, call->ldr) + column;
        const char *from = (const char *)call->residual + at * fo_size(type);
        if (type == FO_F32)
            memcpy(results + r * g->n, from, (size_t)g->n * sizeof *results);
        else
            call->plan->kn->widen(g->n, type, from, results + r * g->n);
    }
    g->ep.residual = results, g->ep.ldr = g->n;
}

static void end_results(const product_job *job, const fo_gemm_args *g, ptrdiff_t i, ptrdiff_t column,
                        const float *results) {
    const fo_product_call *call = job->call;
    const fo_dtype type = call->types.y;
    for (ptrdiff_t r = 0; r < g->m; r++) {
        const ptrdiff_t at = row_at(call, i + r, call->c_line, call->ldc) + column;
        char *to = (char *)call->c + at * fo_size(type);
        if (type == FO_F32)
            memcpy(to, results + r * g->n, (size_t)g->n * sizeof *results);
        else
            fo_active()->narrow(g->n, results + r * g->n, (uint16_t *)to);
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void multiply(const product_job *job, fo_gemm_args *g, ptrdiff_t group, ptrdiff_t i, ptrdiff_t j,
                     float *scratch) {
    if (job->lone)
        multiply_lone_row(job, g, scratch + job->at.panel);
    else if (job->packs)
        multiply_packing(job, g, scratch);
    else if (job->piece < g->k)
        multiply_pieces(job, g, scratch + job->at.sums);
    else if (job->call->line && !job->converts)
        multiply_lines(job, g, group, i, j);
    else
        job->call->plan->kernel->run(g);
}

/* Whether the kernel takes all at once: then a small product costs little around it. */
static bool is_one_call(const product_job *job) {
    return !job->makes && job->down * job->across * job->call->plan->groups == 1 && !job->at.each && !job->converts &&
           !job->call->line;
}

static void product_block(void *context, fo_piece piece, int thread) {
    const product_job *job = context;
    const fo_product_call *call = job->call;
    const fo_linear *plan = call->plan;
    if (job->at_once) {
        plan->kernel->run(&job->g);
        return;
    }
    const ptrdiff_t group = piece.task % plan->groups, block = piece.task / plan->groups;
    ptrdiff_t i = block / job->across * job->rows, j = block % job->across * job->columns;
    const ptrdiff_t nr = plan->kernel->nr, unit = call->m > 4 ? nr : 4 * nr; /* few rows want four panels at once */
    ptrdiff_t m = min_(job->rows, call->m - i), n = min_(job->columns, plan->n - j);
    const bool by_rows = n <= unit || (job->makes && m > 1); /* or rows would be made twice */
    by_rows ? fo_divide(piece, 1, &i, &m) : fo_divide(piece, unit, &j, &n);
    if (!n || !m) return;
    float *scratch = job->scratch + thread * job->at.each;
    fo_gemm_args g = fo_product_part(call, &job->g, group, i, j);
    g.m = m, g.n = n, g.packed = scratch + job->at.panel;
    if (job->makes)
        make_rows(job, &g, group, i, scratch + job->at.rows);
    else if (plan->kernel->reads == FO_F32)
        g.a += i * g.lda;
    else
        g.a_groups += i * g.lda + group * plan->k * fo_size(plan->kernel->product.a);
    if (plan->q.w_zero) {
        int32_t *sums = (int32_t *)(scratch + job->at.row_sums);
        plan->kn->row_sums(&g, sums);
        g.row_sums = sums;
    }
    const ptrdiff_t column = group * plan->n + j;
    if (job->converts) begin_results(job, &g, i, column, scratch + job->at.results);
    multiply(job, &g, group, i, j, scratch);
    if (job->converts) end_results(job, &g, i, column, scratch + job->at.results);
}

/* ---- the cut ----------------------------------------------------------------------------------------------------- */

/* Blocks have multiples of so many columns: four panels, or fewer if a thread would get less than two blocks, but
 * enough for independent sums of few rows. (With one block each, 16x4096x64 gained nothing from a second thread.) */
static ptrdiff_t unit_columns(ptrdiff_t nr, ptrdiff_t m, ptrdiff_t n, int threads, ptrdiff_t down) {
    ptrdiff_t panels = 4;
    while (panels * m > 4 && panels > 1 && down * div_up(n, panels * nr) < 2 * threads) panels /= 2;
    return panels * nr;
}

/* Bytes of A in a block. */
static ptrdiff_t near_bytes(void) { return fo_this_machine()->l2 / 2; }

/* Rows of A, of so many bytes, that stay in the cache; of floats with long vectors so many that the next panel of B is
 * fetched with them (128 x 1024 x 1024 in 0.94 of the time, Zen 4). */
static ptrdiff_t fitting_rows(const product_job *job, ptrdiff_t bytes) {
    const fo_linear *plan = job->call->plan;
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t fitting = near_bytes() / max_(bytes, 1), k = bytes / (ptrdiff_t)sizeof(float);
    if (plan->kernel->reads != FO_F32 || !kn->vec_is_line) return fitting;
    return min_(fitting, max_(FO_L2_SHARE / 4 / max_(k, 1) - 2 * kn->nr, FO_MIN_ROWS));
}

/* Whether few rows of so many steps fit: then a long reduction goes in pieces. */
static bool has_pieces(const product_job *job) {
    const fo_linear *plan = job->call->plan;
    const ptrdiff_t floats = near_bytes() / (ptrdiff_t)sizeof(float), k = plan->k;
    const bool tiles = job->g.form == FO_ROWS || job->g.form == FO_B_PACKING || job->g.form == FO_BLOCKWISE;
    if (plan->kernel->reads != FO_F32 || !tiles || job->lone || k > FO_CHAIN_STEPS) return false;
    const bool few_rows = !plan->kn->vec_is_line ? k > FO_PIECE_STEPS : floats / max_(k, 1) < FO_MIN_ROWS;
    return few_rows && job->call->m * k > floats;
}

/* Blocks of rows that fit, as many as keep the threads busy; few of them are cut by columns, too. */
static void cut(product_job *job, int threads) {
    const fo_linear *plan = job->call->plan;
    const fo_product_kernel *kernel = plan->kernel;
    const bool floats = kernel->reads == FO_F32;
    const ptrdiff_t m = job->call->m, n = plan->n, tasks = threads > 1 ? FO_TASKS_A_THREAD * threads : 1;
    job->piece = has_pieces(job) ? round_up(div_up(plan->k, div_up(plan->k, FO_PIECE_STEPS)), 8) : plan->steps;
    const ptrdiff_t bytes = floats ? job->piece * (ptrdiff_t)sizeof(float) : job->row_bytes;
    /* of fewer rows each block would unpack the weights again: 64x11008x1024 0.72 (AVX2) */
    const ptrdiff_t enough = job->g.form == FO_BLOCKWISE ? FO_MIN_ROWS : 2 * kernel->mr;
    const ptrdiff_t most = max_(fitting_rows(job, bytes), enough);
    job->rows = m, job->columns = n, job->down = job->across = 1;
    if (threads == 1 && m <= most && job->piece == plan->steps) return;
    const ptrdiff_t fitting = div_up(m, most);
    const ptrdiff_t least = floats ? FO_MIN_ROWS : 4 * kernel->mr;
    job->rows = div_up(m, max_(fitting, min_(div_up(tasks, plan->groups), div_up(m, least))));
    job->down = div_up(m, job->rows);
    ptrdiff_t across = div_up(tasks, job->down * plan->groups);
    while (job->down * plan->groups * across % threads) across++; /* as many for one thread as for another */
    if (job->down * plan->groups < tasks)
        job->columns = round_up(div_up(n, across), unit_columns(kernel->nr, m, n, threads, job->down));
    if (job->piece < plan->steps) job->columns = min_(job->columns, FO_PIECE_COLUMNS);
    job->across = div_up(n, job->columns);
}

/* Chooses how B is read where it is not panels of the plan's. */
static void read_weights(product_job *job) {
    const fo_linear *plan = job->call->plan;
    const ptrdiff_t nr = plan->kn->nr;
    fo_gemm_args *g = &job->g;
    if (plan->kept == FO_BORROWED && fo_is_dots(plan->n, plan->k)) {
        fo_gemm_columns(plan->kn, g, plan->borrowed, plan->wn);
    } else if (plan->kept == FO_BORROWED && plan->wn == 1 && g->m <= plan->kn->mr) {
        g->form = FO_B_PACKING, g->b = plan->borrowed, g->ldb = plan->wk, g->panel = nr;
    } else if (plan->kept == FO_BORROWED) {
        g->form = FO_ROWS, g->b = NULL, g->ldb = nr, g->panel = 0;
        job->lone = plan->wk == 1 && g->m == 1 && g->k <= FO_CHAIN_STEPS, job->packs = !job->lone;
        job->widest = fo_active();
    }
}

/* Floats of a panel that is unpacked for many rows: of floats, or of 4 bits as bytes for tiles. */
static ptrdiff_t unpacked_panel(const product_job *job) {
    const fo_linear *plan = job->call->plan;
    const fo_blockwise *w = &plan->blocks;
    if (plan->kept != FO_IN_BLOCKS || job->g.m <= FO_BLOCKWISE_ROWS) return 0;
    if (plan->kernel->reads == FO_F32) return plan->k * plan->kn->nr;
    return plan->kernel->tiles && w->bits == 4 ? w->blocks * w->block / 4 * plan->kernel->nr : 0;
}

/* Lays out a thread's scratch. */
static void lay_out(product_job *job) {
    const fo_linear *plan = job->call->plan;
    const fo_gemm_args *g = &job->g;
    const ptrdiff_t nr = plan->kn->nr;
    const bool packs = job->packs || g->form == FO_B_PACKING;
    job->at.row_sums = 0;
    ptrdiff_t at = plan->q.w_zero ? round_up(job->rows, LINE_FLOATS) : 0;
    job->at.panel = at;
    at += g->ak       ? fo_dots_scratch(plan->kn)
          : job->lone ? round_up(job->columns, max_(nr, MAX_LANES))
          : packs     ? g->k * nr
                      : unpacked_panel(job);
    job->at.sums = at;
    if (job->piece < g->k) at += job->rows * round_up(job->columns, nr);
    job->at.results = at;
    if (job->converts) at += job->rows * job->columns + MAX_LANES;
    job->at.rows = at;
    if (job->makes)
        at = round_up(at, LINE_FLOATS) + floats_of_rows(job), job->at.rows = round_up(job->at.rows, LINE_FLOATS);
    job->at.each = at;
}

/* Bytes of memory that cost as much as the weights: those in blocks take time to unpack. */
static double bytes_of_weights(const fo_linear *plan) {
    const bool unpacked = plan->kept == FO_IN_BLOCKS && plan->kernel->reads == FO_F32;
    return unpacked ? (double)plan->n * (double)plan->k : (double)(plan->groups * plan->bytes);
}

int fo_product_threads(const fo_product_call *call) {
    const fo_linear *plan = call->plan;
    const double macs = (double)call->m * plan->n * plan->groups * plan->k, bytes = bytes_of_weights(plan);
    if (plan->kernel->reads == FO_F32) return fo_threads_for(fo_nanoseconds(plan->kn, macs, bytes));
    return fo_threads_for(fmax(macs / (plan->kernel->rate * plan->kn->vl), fo_nanoseconds(plan->kn, 0, bytes)));
}

fo_status fo_product_run(const fo_product_call *call) {
    const fo_linear *plan = call->plan;
    const fo_types types = call->types;
    const unsigned of = plan->kernel->types;
    if (!call->m || !plan->n || !plan->groups) return FO_OK;
    product_job job;
    job.call = call, job.makes = call->row, job.packs = job.lone = false, job.scratch = NULL;
    job.converts = !(of & FO_OF(types.y)) || (call->residual && !(of & FO_OF(types.residual)));
    job.row_bytes = fo_row_distance(plan->kernel, plan->steps * plan->kernel->product.group);
    fo_product_args(call, &job.g, &job.rescale);
    read_weights(&job);
    const int threads = fo_product_threads(call);
    cut(&job, threads);
    lay_out(&job);
    if (job.at.each && !(job.scratch = fo_arena_share(&job.at.each, threads, 0))) return FO_NO_MEMORY;
    job.at_once = threads == 1 && is_one_call(&job);
    fo_parallel_pieces(job.down * job.across * plan->groups, threads, product_block, &job);
    if (job.scratch) fo_arena_release(job.scratch);
    return FO_OK;
}

void fo_product_columns(const fo_linear *plan, ptrdiff_t m, const void *a, ptrdiff_t lda, ptrdiff_t j, ptrdiff_t n,
                        float *c, ptrdiff_t ldc) {
    const fo_product_call call = {.plan = plan, .m = m, .a = a, .lda = lda, .c = c, .ldc = ldc};
    fo_gemm_args whole;
    fo_product_args(&call, &whole, NULL);
    fo_gemm_args g = fo_product_part(&call, &whole, 0, 0, j);
    g.n = n, g.c = c;
    plan->kernel->run(&g);
}
