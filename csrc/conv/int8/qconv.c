/* y = activation(conv(x, w) + bias + residual) of int8 or bfloat16, images with their channels last.
 *
 * Dense: products of matmul/product.h, whose rows are pixels: as they are for 1x1; on wide images, and those of few
 * channels, which may have any order, segments of a copy of a band; else patches, made a block at a time (im2col).
 * Depthwise: kernels of its own, of pixels, and of planes on wide images with their channels first. Other images of
 * such an order are transposed on the way in and out.
 */
#include <math.h>

#include "../../ops/ranges.h"
#include "../algorithm.h"
#include "../qimage.h"
#include "qbands.h"
#include "qconv_plan.h"
#include "windows.h"

/* ---- kernels ---- */

typedef struct {
    const fo_qconv2d *plan;
    fo_qpatches patches;
} conv_rows;

static void row_of_patches(const fo_product_call *p, ptrdiff_t group, ptrdiff_t i, void *row, float *scale,
                           int32_t *zero) {
    const conv_rows *s = p->source;
    fo_qpatches patches = s->patches;
    (void)scale, (void)zero;
    patches.x += group * patches.c;
    p->plan->kn->patches(&patches, i, row);
}

static fo_qpatches patches_of(const fo_qconv2d *plan, fo_dtype type, const fo_conv2d_size *z, const fo_image *x) {
    const fo_conv2d_shape *s = &plan->s;
    const fo_kernels *kn = plan->products.kn;
    const ptrdiff_t size = fo_size(type);
    return (fo_qpatches){.x = (const uint8_t *)x->data,
                         .sn = x->sn * size,
                         .sh = x->sh * size,
                         .sw = x->sw * size,
                         .c = s->ic / s->groups * size,
                         .line = plan->line * size,
                         .ih = z->ih,
                         .iw = z->iw,
                         .oh = z->oh,
                         .ow = z->ow,
                         .kh = s->kh,
                         .kw = s->kw,
                         .top = z->top,
                         .left = z->left,
                         .stride_h = s->sh,
                         .stride_w = s->sw,
                         .dilation_h = s->dh,
                         .dilation_w = s->dw,
                         .flip = fo_qflip(kn, type),
                         .zero = (uint8_t)(plan->products.q.x.zero_point + fo_qoffset(kn, type))};
}

typedef struct {
    const fo_kernels *kn;
    fo_qdepthwise_args args;
    ptrdiff_t rows, across, channels, c; /* rows of a task; tasks across channels; channels of a task, of the image */
} depthwise_job;

static void depthwise_task(void *context, ptrdiff_t task, int thread) {
    const depthwise_job *job = context;
    const ptrdiff_t c = task % job->across * job->channels, bands = div_up(job->args.p.oh, job->rows),
                    band = task / job->across, h = band % bands * job->rows;
    (void)thread;
    job->kn->qdepthwise(&job->args, band / bands, h, min_(job->args.p.oh, h + job->rows), c,
                        min_(job->c, c + job->channels));
}

/* Depthwise convolutions of channels first: bands of rows of some channels. */
typedef struct {
    const fo_qconv2d *plan;
    const fo_image *x, *y;
    fo_qdepthwise_args args;
    ptrdiff_t rows, bands, channels, across, planes, each; /* of a band; of a task, tasks across; planes of scratch */
    float *scratch;
} plane_job;

static void plane_task(void *context, ptrdiff_t task, int thread) {
    const plane_job *job = context;
    const ptrdiff_t plane = task / job->bands, h = task % job->bands * job->rows,
                    c = plane % job->across * job->channels, n = plane / job->across;
    fo_qdepthwise_args args = job->args;
    args.p.x += n * job->x->sn + c * job->x->sc;
    args.c = (uint8_t *)job->y->data + n * job->y->sn + c * job->y->sc;
    job->plan->products.kn->qdepthwise_planes(&args, c, min_(job->channels, job->plan->s.oc - c), h,
                                              min_(args.p.oh, h + job->rows), job->planes,
                                              (uint8_t *)(job->scratch + thread * job->each));
}

/* Bytes to bytes, of rows whose pixels are neighbors and wide enough: for vectors where rows do not run on, and for
 * copies without tails where the set has no masks. */
static bool fits_planes(const fo_qconv2d *plan, const fo_product_call *p, const fo_conv2d_size *z, const fo_image *x,
                        const fo_image *y) {
    const fo_conv2d_shape *s = &plan->s;
    const fo_kernels *kn = plan->products.kn;
    const ptrdiff_t least = (kn->parts == 1 ? 4 : s->sw > 1 || s->sh > 1 ? 2 : 1) * kn->vl;
    return plan->depthwise && p->types.y != FO_F32 && !p->residual && fo_in_registers(&s->act) && x->sw == 1 &&
           y->sw == 1 && x->sc != 1 && s->dw == 1 && s->sw <= 2 && z->ow >= least;
}

static fo_status run_planes(const fo_qconv2d *plan, const fo_conv2d_size *z, const fo_product_call *p,
                            const fo_image *x, const fo_image *y) {
    const fo_conv2d_shape *s = &plan->s;
    const fo_kernels *kn = plan->products.kn;
    plane_job job = {.plan = plan, .x = x, .y = y};
    fo_rescale rescale;
    fo_gemm_args g;
    job.args = (fo_qdepthwise_args){.p = patches_of(plan, p->types.x, z, x),
                                    .w = plan->taps,
                                    .block = plan->taps_block,
                                    .ldc = y->sh,
                                    .x_step = x->sc,
                                    .c_step = y->sc};
    fo_product_args(p, &g, &rescale);
    job.args.ep = g.ep;
    const int threads = fo_threads_for((double)z->n * z->oh * z->ow * s->oc * (s->kh * s->kw + 8) / (4.0 * kn->vl));
    const ptrdiff_t fitting = FO_COPY_BYTES / (s->sh * fo_qpitch(&job.args.p));
    job.rows = clamp_(fitting, min_(4 * s->kh, z->oh), z->oh), job.bands = div_up(z->oh, job.rows);
    const ptrdiff_t bytes = fo_qplane_scratch(&job.args.p, job.rows, kn->vl);
    job.channels = threads > 1 ? div_up(s->oc, div_up(FO_TASKS_A_THREAD * threads, z->n * job.bands)) : s->oc;
    job.across = div_up(s->oc, job.channels);
    job.planes = clamp_(FO_COPY_BYTES / 4 / bytes, 1, job.channels);
    job.each = div_up(job.planes * bytes, (ptrdiff_t)sizeof(float));
    job.scratch = fo_arena_share(&job.each, threads, 0);
    if (!job.scratch) return FO_NO_MEMORY;
    fo_parallel_for(z->n * job.across * job.bands, threads, plane_task, &job);
    fo_arena_release(job.scratch);
    return FO_OK;
}

/* A run on images that are ready: x any strides between pixels, y and the residual in uniform lines. */
typedef fo_status run_fn(const fo_qconv2d *plan, const fo_conv2d_size *z, const fo_image *x, fo_product_call *p);

static fo_status run_depthwise(const fo_qconv2d *plan, const fo_conv2d_size *z, const fo_image *x, fo_product_call *p) {
    const fo_conv2d_shape *s = &plan->s;
    const fo_kernels *kn = plan->products.kn;
    depthwise_job job = {.kn = kn, .rows = 2 * kn->parts, .c = s->oc, .channels = s->oc, .across = 1};
    fo_rescale rescale;
    fo_gemm_args g;
    job.args = (fo_qdepthwise_args){.p = patches_of(plan, p->types.x, z, x),
                                    .w = plan->w,
                                    .block = plan->block,
                                    .scale = plan->products.q.scale,
                                    .bias = plan->products.bias,
                                    .nudge = plan->products.q.nudge,
                                    .c = p->c,
                                    .ldc = p->ldc};
    fo_product_args(p, &g, &rescale);
    job.args.ep = g.ep;
    job.args.ep.bias = plan->bias;
    rescale.start = plan->start[p->types.x == FO_S8], rescale.scale = plan->scale, rescale.nudge = plan->nudge;
    rescale.w_zero = plan->w_zero;
    const ptrdiff_t bands = z->n * div_up(z->oh, job.rows);
    const int threads = fo_threads_for((double)z->n * z->oh * z->ow * s->oc * (s->kh * s->kw + 8) / (4.0 * kn->vl));
    if (threads > 1 && bands < 4 * threads) job.channels = 4 * kn->vl, job.across = div_up(s->oc, job.channels);
    fo_parallel_for(bands * job.across, threads, depthwise_task, &job);
    return FO_OK;
}

static fo_status run_patches(const fo_qconv2d *plan, const fo_conv2d_size *z, const fo_image *x, fo_product_call *p) {
    const conv_rows source = {plan, patches_of(plan, p->types.x, z, x)};
    p->row = row_of_patches, p->source = &source;
    return fo_product_run(p);
}

static fo_status run_gemm(const fo_qconv2d *plan, const fo_conv2d_size *z, const fo_image *x, fo_product_call *p) {
    const bool pixelwise = fo_is_pixelwise(&plan->s) && fo_is_unpadded(z);
    if (!pixelwise || !fo_reads_rows(&plan->products, p->types.x) ||
        !fo_quniform(x, (fo_qextent){z->n, plan->s.ic, z->ih, z->iw}, &p->lda))
        return run_patches(plan, z, x, p);
    p->a = x->data, p->lda *= fo_size(p->types.x);
    return fo_product_run(p);
}

/* Whether a convolution copies bands of its image, in any order and type that x may have. */
static bool by_bands(const fo_qconv2d *plan, const fo_conv2d_size *z) {
    return !plan->depthwise && fo_qbands(plan->products.kernel, &plan->s, z->ow);
}

static fo_status run_im2col(const fo_qconv2d *plan, const fo_conv2d_size *z, const fo_image *x, fo_product_call *p) {
    if (!by_bands(plan, z)) return run_patches(plan, z, x, p);
    const fo_qpatches patches = patches_of(plan, p->types.x, z, x);
    return fo_qrun_bands(p, &patches, z->n, (fo_qsteps){x->sc, x->sw}, plan->pixel);
}

/* Whether the kernels can write or add an image as it lies; `line`: of its rows, 0 where all pixels are one row's. */
static bool fits_lines(const fo_qconv2d *plan, const fo_image *y, fo_qextent e, ptrdiff_t *ld, ptrdiff_t *line) {
    const bool uniform = fo_quniform(y, e, ld), fits = uniform || (!plan->depthwise && fo_qlines(y, e, ld, line));
    if (uniform || !fits) *line = 0;
    return fits;
}

/* Both in lines of w pixels, if one is. */
static void set_lines(fo_product_call *p, ptrdiff_t w) {
    if (!p->c_line && !p->r_line) return;
    p->line = w;
    if (!p->c_line) p->c_line = w * p->ldc;
    if (!p->r_line) p->r_line = w * p->ldr;
}

static fo_status run_bytes(const fo_qconv2d *plan, run_fn *run, fo_types types, const fo_conv2d_size *z,
                           const fo_image *x, const fo_image *residual, const fo_image *y) {
    const fo_qextent in = {z->n, plan->s.ic, z->ih, z->iw}, out = {z->n, plan->s.oc, z->oh, z->ow};
    fo_product_call p = {.plan = &plan->products, .types = types, .m = z->n * z->oh * z->ow};
    p.residual = residual ? residual->data : NULL;
    if (fits_planes(plan, &p, z, x, y)) return run_planes(plan, z, &p, x, y);
    /* planes of many channels at once: rows of a band, which are transposed as they are copied, fill fewer vectors */
    const bool in_bands = by_bands(plan, z) && (types.x == FO_F32 || in.c / plan->s.groups < FO_IM2COL_MIN_CHANNELS);
    const bool moves_x = in.c > 1 && x->sc != 1 && !in_bands, moves_y = !fits_lines(plan, y, out, &p.ldc, &p.c_line),
               moves_r = residual && !fits_lines(plan, residual, out, &p.ldr, &p.r_line);
    const ptrdiff_t bytes[] = {moves_x ? fo_qroom(in, types.x) : 0, moves_y ? fo_qroom(out, types.y) : 0,
                               moves_r ? fo_qroom(out, types.residual) : 0};
    char *room = bytes[0] + bytes[1] + bytes[2] ? fo_arena_take((size_t)(bytes[0] + bytes[1] + bytes[2])) : NULL;
    if (!room && bytes[0] + bytes[1] + bytes[2]) return FO_NO_MEMORY;
    const fo_image xs = moves_x ? fo_qpixels(room, in) : *x, ys = moves_y ? fo_qpixels(room + bytes[0], out) : *y;
    if (moves_x) fo_qmove(in, types.x, x, &xs);
    p.c = ys.data;
    if (moves_y) p.ldc = out.c;
    if (moves_r) {
        const fo_image rs = fo_qpixels(room + bytes[0] + bytes[1], out);
        fo_qmove(out, types.residual, residual, &rs);
        p.residual = rs.data, p.ldr = out.c;
    }
    set_lines(&p, out.w);
    const fo_status status = run(plan, z, &xs, &p);
    if (moves_y && status == FO_OK) fo_qmove(out, types.y, &ys, y);
    if (room) fo_arena_release(room);
    return status;
}

/* A plan for a call whose x has this range; its constants, n each, in scratch. */
static fo_qconv2d plan_of(const fo_qconv2d *plan, fo_qrange range, ptrdiff_t n, float *scale, int32_t *start) {
    fo_qconv2d call = *plan;
    const int32_t zero = range.zero_point + fo_qoffset(plan->products.kn, FO_U8);
    for (ptrdiff_t i = 0; i < n; i++)
        scale[i] = range.scale * plan->products.q.scale[i], start[i] = -zero * plan->products.q.sums[i];
    fo_int8_constants *q = &call.products.q;
    q->x = (fo_quantization){range.scale, range.zero_point}, q->largest = INFINITY, q->scale = scale;
    q->start[0] = start;
    return call;
}

/* Whether an image is all of a piece of memory, its channels first or last. */
static bool is_dense(const fo_image *x, fo_qextent e) {
    ptrdiff_t ld;
    return (fo_quniform(x, e, &ld) && ld == e.c) ||
           ((e.w == 1 || x->sw == 1) && (e.h == 1 || x->sh == e.w) && (e.c == 1 || x->sc == e.h * e.w) &&
            (e.n == 1 || x->sn == e.c * e.h * e.w));
}

/* Floats are rounded to bfloat16, pixel by pixel. */
static fo_status run_rounded(const fo_qconv2d *plan, run_fn *run, fo_types types, const fo_conv2d_size *z,
                             const fo_image *x, const fo_image *residual, const fo_image *y) {
    const fo_qextent in = {z->n, plan->s.ic, z->ih, z->iw};
    void *rounded = fo_arena_take((size_t)fo_qroom(in, FO_BF16));
    if (!rounded) return FO_NO_MEMORY;
    const fo_image narrow = fo_qpixels(rounded, in);
    fo_status status = fo_qround(in, x, &narrow);
    types.x = FO_BF16;
    if (status == FO_OK) status = run_bytes(plan, run, types, z, &narrow, residual, y);
    fo_arena_release(rounded);
    return status;
}

/* Floats become bytes by the range of all, in the order that they have. */
static fo_status run_floats(const fo_qconv2d *plan, run_fn *run, fo_types types, const fo_conv2d_size *z,
                            const fo_image *x, const fo_image *residual, const fo_image *y) {
    const fo_qextent in = {z->n, plan->s.ic, z->ih, z->iw};
    const bool dense = is_dense(x, in);
    const ptrdiff_t n = plan->products.groups * plan->products.columns + MAX_LANES, constants = round_up(2 * n, 16),
                    bytes = fo_qroom(in, FO_U8);
    float *scale =
        fo_arena_take((size_t)constants * sizeof(float) + (size_t)bytes + (size_t)(dense ? 0 : fo_qroom(in, FO_F32)));
    if (!scale) return FO_NO_MEMORY;
    int32_t *start = (int32_t *)(scale + n);
    uint8_t *quantized = (uint8_t *)(scale + constants);
    fo_image from = *x;
    if (!dense) from = fo_qpixels(quantized + bytes, in), fo_qmove(in, FO_F32, x, &from);
    fo_qrange range;
    fo_status status = FO_NO_MEMORY;
    if (fo_qby_range(in.n * in.c * in.h * in.w, from.data, quantized, &range)) {
        const fo_qconv2d call = plan_of(plan, range, n, scale, start);
        types.x = FO_U8, from.data = (float *)quantized;
        status = run_bytes(&call, run, types, z, &from, residual, y);
    }
    fo_arena_release(scale);
    return status;
}

/* ---- the rows of the list: threads and scratch are those of the product, which a run cuts ---- */

typedef fo_status run_as(const fo_qconv2d *plan, run_fn *run, fo_types types, const fo_conv2d_size *z,
                         const fo_image *x, const fo_image *residual, const fo_image *y);

/* Runs on images as they are, or on floats that are rounded or quantized before; bands round their own. */
static run_as *run_of(const fo_qconv2d *plan, fo_dtype x, const fo_conv2d_size *z) {
    if (x != FO_F32) return run_bytes;
    if (plan->products.kernel->product.a != FO_BF16) return run_floats;
    return by_bands(plan, z) ? run_bytes : run_rounded;
}

#define ROW(row, condition) \
    bool fo_q##row##_applies(const fo_conv2d *plan, const fo_conv2d_size *z) { \
        (void)z; \
        return condition; \
    } \
    fo_status fo_q##row##_prepare(fo_prepared_conv2d *call) { \
        call->kernel = call->algorithm->name; \
        return fo_call_prepare(call, 0, 0) ? FO_OK : FO_NO_MEMORY; \
    } \
    fo_status fo_q##row##_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *r, \
                              const fo_image *y) { \
        const fo_layout *l = &call->layout; \
        const fo_qconv2d *q = call->plan->q; \
        return run_of(q, l->types.x, &l->z)(q, run_##row, l->types, &l->z, x, r, y); \
    }
ROW(depthwise, plan->q->depthwise)
ROW(gemm, plan->q && !plan->q->depthwise && plan->s.kh * plan->s.kw == 1)
ROW(im2col, plan->q && !plan->q->depthwise && plan->s.kh * plan->s.kw > 1)
#undef ROW
