/* y = activation(conv(x, w) + bias + residual) of int8 or bfloat16, images with their channels last.
 *
 * Dense: products of matmul/product.h, whose rows are pixels: as they are for 1x1; on wide images, and those of three
 * channels, segments of a copy of a band; else patches, made a block at a time (im2col). Depthwise: kernels of its own,
 * of pixels, and of planes on wide images with their channels first. Other images of such an order are transposed on
 * the way in and out. Images of bfloat16 are bytes to what copies them.
 */
#include <math.h>
#include <string.h>

#include "../../ops/ranges.h"
#include "../algorithm.h"
#include "../qimage.h"
#include "qbands.h"
#include "windows.h"

/* products: of a depthwise convolution its constants alone, which the others have once more in the order of quads. */
typedef struct fo_qconv2d fo_qconv2d;
struct fo_qconv2d {
    fo_conv2d_shape s;
    bool depthwise;
    ptrdiff_t channels; /* of a group in packed weights (fo_qchannels) */
    fo_linear products;
    ptrdiff_t block, taps_block; /* bytes of weights of a block of channels; of a channel's taps */
    int8_t *w, *taps;            /* in blocks of channels; by channel, for planes */
    float *scale, *bias, *nudge;
    int32_t *start[2], *w_zero; /* for x of uint8 and of int8; as of products, or NULL */
};

/* w (oc, c, kh, kw), of a type, in the order of patches: (oc, kh, kw, channels), where more channels have weights that
 * are 0, or their zero points; NULL where memory is short. */
static void *in_order_of_patches(const fo_conv2d_shape *s, ptrdiff_t channels, fo_dtype type, const void *w,
                                 const int8_t *zero) {
    const ptrdiff_t c = s->ic / s->groups, taps = s->kh * s->kw, size = fo_size(type),
                    bytes = s->oc * channels * taps * size;
    char *to = fo_alloc((size_t)max_(bytes, 1));
    if (!to) return NULL;
    for (ptrdiff_t o = 0, each = channels * taps * size; o < s->oc; o++)
        memset(to + o * each, zero ? zero[o] : 0, (size_t)each);
    for (ptrdiff_t o = 0; o < s->oc; o++)
        for (ptrdiff_t i = 0; i < c; i++)
            for (ptrdiff_t t = 0; t < taps; t++)
                memcpy(to + ((o * taps + t) * channels + i) * size, (const char *)w + ((o * c + i) * taps + t) * size,
                       (size_t)size);
    return to;
}

/* The channel of a constant in the order of quads; after the last one there may be others. */
static ptrdiff_t quad_channel(const fo_qconv2d *plan, ptrdiff_t at) {
    const ptrdiff_t vl = plan->products.kn->vl, channels = 4 * vl, c = at / channels * channels,
                    part = channels / fo_qparts(plan->products.kn->parts, plan->s.oc - c, channels);
    return c + fo_quad_channel(at % channels / vl, at % vl, vl) % part;
}

/* A constant of each channel, floats or integers, in the order of quads: to *to. False where memory is short. */
static bool order_by_quads(const fo_qconv2d *plan, const void *from, void *to) {
    const ptrdiff_t n = round_up(plan->s.oc, 4 * plan->products.kn->vl), size = sizeof(int32_t);
    char *ordered = from ? fo_alloc((size_t)(n * size)) : NULL;
    for (ptrdiff_t at = 0, o; ordered && at < n; at++) {
        memset(ordered + at * size, 0, (size_t)size);
        if ((o = quad_channel(plan, at)) < plan->s.oc)
            memcpy(ordered + at * size, (const char *)from + o * size, (size_t)size);
    }
    memcpy(to, &ordered, sizeof ordered);
    return ordered || !from;
}

/* Weights by fours of rows, and constants in the order of quads. False where memory is short. */
static bool make_depthwise(fo_qconv2d *plan, const int8_t *w) {
    const fo_conv2d_shape *s = &plan->s;
    const fo_linear *p = &plan->products;
    const fo_int8_constants *q = &p->q;
    const ptrdiff_t vl = p->kn->vl, channels = 4 * vl, blocks = div_up(s->oc, channels), taps = s->kh * s->kw;
    const ptrdiff_t sets = s->kh < 4 ? 2 : 1; /* the second a row further down */
    plan->block = sets * div_up(s->kh, 4) * s->kw * 4 * channels;
    plan->taps_block = s->kh * round_up(s->kw, 4);
    plan->w = fo_alloc((size_t)(blocks * plan->block)), plan->taps = fo_alloc((size_t)(s->oc * plan->taps_block));
    const struct {
        const void *from;
        void *to;
    } constants[] = {{q->scale, &plan->scale},       {p->bias, &plan->bias},         {q->nudge, &plan->nudge},
                     {q->start[0], &plan->start[0]}, {q->start[1], &plan->start[1]}, {q->w_zero, &plan->w_zero}};
    bool made = plan->w && plan->taps;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        made = order_by_quads(plan, constants[i].from, constants[i].to) && made;
    if (!made) return false;
    memset(plan->w, 0, (size_t)(blocks * plan->block)), memset(plan->taps, 0, (size_t)(s->oc * plan->taps_block));
    for (ptrdiff_t r = 0; r < s->oc * s->kh; r++)
        memcpy(plan->taps + r * round_up(s->kw, 4), w + r * s->kw, (size_t)s->kw);
    for (ptrdiff_t at = 0; at < blocks * channels; at++) {
        const ptrdiff_t o = quad_channel(plan, at);
        int8_t *to = plan->w + at / channels * plan->block + at % channels * 4;
        for (ptrdiff_t i = 0; o < s->oc && i < s->kh; i++)
            for (ptrdiff_t j = 0; j < s->kw; j++)
                for (ptrdiff_t set = 0; set < sets; set++)
                    to[((set + i / 4) * s->kw + j) * 4 * channels + (i + set) % 4] = w[o * taps + i * s->kw + j];
    }
    return true;
}

/* Products of weights in the order of patches. */
static bool make_products(fo_linear *to, fo_dtype type, ptrdiff_t groups, ptrdiff_t n, ptrdiff_t k, const void *w,
                          const fo_quantized *q) {
    const fo_weights weights = {w, type};
    return type == FO_S8 ? fo_product_make_int8(to, groups, n, k, w, k, 1, q)
                         : fo_product_make(to, type, groups, n, k, &weights, k, 1, q->bias, &q->act);
}

/* False where memory is short. */
static bool make(fo_qconv2d *plan, const fo_conv2d_shape *shape, fo_dtype type, const void *w, const fo_quantized *q) {
    const fo_product_kernel *kernel = fo_product_of(fo_active(), type == FO_S8 ? FO_U8 : type, type);
    const ptrdiff_t taps = shape->kh * shape->kw, channels = fo_qchannels(kernel, shape), k = channels * taps;
    *plan = (fo_qconv2d){.s = *shape, .channels = channels};
    plan->depthwise = type == FO_S8 && q->x.scale && fo_qdepthwise(shape); /* others are products */
    void *ordered = in_order_of_patches(shape, channels, type, w, q->w_zero);
    const bool made =
        ordered && make_products(&plan->products, type, shape->groups, shape->oc / shape->groups, k, ordered, q);
    fo_free(ordered);
    if (!made || !plan->depthwise) return made;
    fo_product_free(&plan->products); /* one group's constants are neighbors */
    return make_products(&plan->products, FO_S8, 1, shape->oc, taps, w, q) && make_depthwise(plan, w);
}

fo_conv2d *fo_qconv2d_plan(const fo_conv2d_shape *shape, fo_dtype type, const void *w, const fo_quantized *q) {
    fo_conv2d *plan = fo_plan_new(shape, type);
    fo_qconv2d *packed = plan ? fo_alloc(sizeof *packed) : NULL;
    if (!packed || !make(packed, shape, type, w, q)) {
        fo_qconv2d_free(packed);
        fo_plan_free(plan);
        return NULL;
    }
    plan->q = packed, plan->isa = fo_linear_isa(&packed->products);
    plan->s.act.slopes = NULL; /* the caller's; products have a copy */
    return plan;
}

void fo_qconv2d_free(fo_qconv2d *plan) {
    if (!plan) return;
    fo_product_free(&plan->products);
    fo_free(plan->w), fo_free(plan->taps), fo_free(plan->scale), fo_free(plan->bias);
    fo_free(plan->nudge), fo_free(plan->start[0]), fo_free(plan->start[1]), fo_free(plan->w_zero);
    fo_free(plan);
}

ptrdiff_t fo_qconv2d_bytes(const fo_qconv2d *plan) {
    const fo_linear *p = &plan->products;
    const ptrdiff_t blocks = div_up(plan->s.oc, 4 * p->kn->vl);
    return fo_product_bytes(p) + (plan->w ? blocks * plan->block + plan->s.oc * plan->taps_block : 0);
}

bool fo_qconv2d_weights(const fo_qconv2d *plan, float *w) {
    const fo_linear *p = &plan->products;
    const ptrdiff_t channels = plan->channels, c = plan->s.ic / plan->s.groups, taps = plan->s.kh * plan->s.kw;
    float *column = fo_alloc((size_t)max_(p->k, 1) * sizeof *column);
    for (ptrdiff_t o = 0; column && o < plan->s.oc; o++) {
        fo_product_column(p, o, column);
        for (ptrdiff_t i = 0; i < c; i++)
            for (ptrdiff_t t = 0; t < taps; t++) w[(o * c + i) * taps + t] = column[t * channels + i];
    }
    fo_free(column);
    return column;
}

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

static fo_status run_im2col(const fo_qconv2d *plan, const fo_conv2d_size *z, const fo_image *x, fo_product_call *p) {
    if (!fo_qbands(plan->products.kernel, &plan->s, z->ow)) return run_patches(plan, z, x, p);
    const fo_qpatches patches = patches_of(plan, p->types.x, z, x);
    return fo_qrun_bands(p, &patches, z->n, x->sc, plan->channels);
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
    const bool pads = plan->channels != in.c / plan->s.groups; /* while it is copied, in any order */
    const bool moves_x = in.c > 1 && x->sc != 1 && !pads, moves_y = !fits_lines(plan, y, out, &p.ldc, &p.c_line),
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

/* Runs on images as they are, or on floats that are rounded or quantized before. */
static run_as *run_of(const fo_qconv2d *plan, fo_dtype x) {
    if (x != FO_F32) return run_bytes;
    return plan->products.kernel->product.a == FO_BF16 ? run_rounded : run_floats;
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
        return run_of(q, l->types.x)(q, run_##row, l->types, &l->z, x, r, y); \
    }
ROW(depthwise, plan->q->depthwise)
ROW(gemm, plan->q && !plan->q->depthwise && plan->s.kh * plan->s.kw == 1)
ROW(im2col, plan->q && !plan->q->depthwise && plan->s.kh * plan->s.kw > 1)
#undef ROW
