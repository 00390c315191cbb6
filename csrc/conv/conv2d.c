/* Convolution: the plan, and the direct algorithm, which is a product with another way to read the image. Where it pays, two or three
 * output rows are computed together, by fewer products of sums of image rows (lines.c).
 *
 * Two forms of the same product; the reduction's order and so the bits are the same in both.
 *   pixels are rows     A: a pixel's patch, read through a table of offsets; B: packed weights. C: NHWC as it is, or NCHW
 *                       transposed in registers. Nothing is lost to short image rows.
 *   pixels are columns  A: the weights; B: the image, vectors along its rows. C: NCHW as it is. 1x1 reads the image as it lies.
 * Where an image has zeros around it, or columns have a stride, rows of it are first copied to scratch that stays in the cache. Small images: patches.c.
 */
#include "conv2d.h"
#include "strassen.h"
#include "winograd.h"

#include <string.h>

/* Shares of the second-level cache. Scratch has a quarter, weights and results want the rest. Where weights do not fit beside it, scratch
 * is larger, so that they come from the third-level cache less often (at 700 of 1024 KB AVX2 loses, whose narrow panels pass it twice as
 * often), and as large as HEAVY_SCRATCH_BYTES where they are many; a piece of them stays while rows of pixels pass. */
enum { HEAVY_SCRATCH_BYTES = 480 << 10, MANY_WEIGHTS = 4 << 20 /* bytes */, PIECE_BYTES = 128 << 10 };
static ptrdiff_t scratch_bytes(ptrdiff_t weights) {
    const ptrdiff_t near = fo_near_bytes();
    return weights <= near / 2 ? near / 4 : weights > MANY_WEIGHTS ? HEAVY_SCRATCH_BYTES : near / 32 * 15;
}
enum { THIN = 64 };       /* steps of products whose results are most of what moves */
enum { SMALL_IMAGE = 7 * 7 }; /* pixels that threads do not cut where weights can be: each thread reads its own part of those, once */
/* Steps of their reduction at a time: a panel that is read and the next, which is fetched, stay beside them. 2048 -> 512 in 0.70 of the time (AVX-512), 0.79 (AVX2). */
enum { LONG_PIECE = 1024 };
enum { BUNDLE = 64 };    /* channels, side by side in a pixel */
static const double NEARLY = 1.01; /* times equal shares: good enough, for a look at all cuts takes 4 us: 15 % of 64 -> 384 channels at 14x14 on two threads */
enum { CLASHING = 256, FAR_CHANNELS = 1024 }; /* floats: multiples of the one share few sets of the first-level cache; so far apart rows of a product do, too */
enum { LINE_ROWS = 48 }; /* rows of register tiles of the sums that lines share, which stay in the first-level cache; four or more tiles even out */

/* ---- the plan --------------------------------------------------------------------------------------------------- */

typedef struct {
    const fo_conv2d *plan;
    const float *w;
    const double *scale; /* or NULL */
    ptrdiff_t channels;  /* output channels of a task */
} ordering;

/* An output channel's weights. */
static void order_channel(const ordering *job, ptrdiff_t o) {
    const fo_conv2d *plan = job->plan;
    const ptrdiff_t area = plan->s.kh * plan->s.kw;
    const float *from = job->w + o * plan->k;
    float *to = plan->w + o * plan->ldw;
    if (area == 1 && !job->scale)
        memcpy(to, from, (size_t)plan->k * sizeof *to);
    for (ptrdiff_t c = 0; area > 1 && c < plan->icg; c += CHANNEL_BLOCK) {
        const ptrdiff_t block = min_(CHANNEL_BLOCK, plan->icg - c);
        plan->kn->transpose(block, area, from + c * area, area, to + c * area, block);
    }
    if (job->scale) plan->kn->fold(plan->k, area == 1 ? from : to, job->scale[o], to);
}

static void order_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const ordering *job = context;
    for (ptrdiff_t o = task * job->channels; o < min_(job->plan->s.oc, (task + 1) * job->channels); o++) order_channel(job, o);
}

/* Channels of a task are many, for one of 128 weights takes no longer than to claim it. */
static void order_weights(const fo_conv2d *plan, const float *w, const double *scale) {
    const ptrdiff_t oc = plan->s.oc, floats = oc * plan->k;
    const int threads = scale ? fo_threads_for(FOLD_NS * (double)floats) : fo_pack_threads(floats);
    ordering order = {plan, w, scale, max_(1, div_up(oc, 4 * threads))};
    fo_parallel_for(div_up(oc, order.channels), threads, order_task, &order);
}

void fo_conv2d_weights(const fo_conv2d *plan, float *w) {
    const ptrdiff_t area = plan->s.kh * plan->s.kw;
    for (ptrdiff_t o = 0; o < plan->s.oc; o++, w += plan->k)
        for (ptrdiff_t c = 0; c < plan->icg; c += CHANNEL_BLOCK) {
            const ptrdiff_t block = min_(CHANNEL_BLOCK, plan->icg - c);
            plan->kn->transpose(area, block, plan->w + o * plan->ldw + c * area, block, w + c * area, area);
        }
}

fo_conv2d *fo_conv2d_create(const fo_conv2d_shape *shape, const float *w, const double *scale, const float *bias) {
    fo_conv2d *plan = fo_alloc(sizeof *plan);
    if (!plan) return NULL;
    bool failed = false;
    const ptrdiff_t icg = shape->ic / shape->groups, k = icg * shape->kh * shape->kw;
    memset(plan, 0, sizeof *plan);
    const bool product = shape->nhwc && shape->kh == 1 && shape->kw == 1 && shape->groups == 1;
    plan->kn = product ? fo_kernels_for(shape->oc, k, true) : fo_active();
    plan->s = *shape;
    plan->icg = icg, plan->ocg = shape->oc / shape->groups, plan->k = k;
    plan->ldw = k % 256 ? k : k + 16; /* rows a multiple of 1 KB apart would share few sets of the first-level cache */
    plan->w = fo_alloc((size_t)(shape->oc * plan->ldw) * sizeof(float));
    plan->bias = fo_copy(bias, shape->oc, &failed);
    plan->s.act.slopes = plan->slopes = fo_copy(shape->act.slopes, shape->oc, &failed);
    if (!plan->w || failed) {
        fo_conv2d_free(plan);
        return NULL;
    }
    order_weights(plan, w, scale);
    fo_lines_choose(&plan->lines, shape);
    if (!fo_rearranged_create(plan)) {
        fo_conv2d_free(plan);
        return NULL;
    }
    return plan;
}

static void free_packed(fo_conv2d *plan) {
    for (int f = 0; f < FO_WEIGHT_FORMS; f++) fo_free(atomic_load(&plan->packed[f]));
    fo_free(atomic_load(&plan->last));
}

const char *fo_conv2d_isa(const fo_conv2d *plan) { return plan->kn->name; }

void fo_conv2d_free(fo_conv2d *plan) {
    if (!plan) return;
    free_packed(plan);
    if (plan->rearranged) free_packed(plan->rearranged);
    fo_free(plan->rearranged);
    fo_free(plan->w);
    fo_free(plan->bias);
    fo_free(plan->slopes);
    fo_free(plan);
}

typedef struct {
    const fo_conv2d *plan;
    float *packed;
    fo_pack_part *pack;
} packing;

static void pack_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const packing *job = context;
    job->pack(job->plan, task, job->packed);
}

const float *fo_conv2d_packed(const fo_conv2d *plan, fo_weight_form form, ptrdiff_t floats, ptrdiff_t parts, fo_pack_part *pack) {
    _Atomic(float *) *slot = (_Atomic(float *) *)&plan->packed[form]; /* a cache: the plan's value does not change */
    float *packed = atomic_load_explicit(slot, memory_order_acquire), *first = NULL;
    if (packed || !(packed = fo_alloc((size_t)floats * sizeof *packed))) return packed;
    packing job = {plan, packed, pack};
    fo_parallel_for(parts, fo_pack_threads(floats), pack_task, &job);
    /* No lock, which a fork could leave taken: of two threads at once, one packs in vain. */
    if (atomic_compare_exchange_strong(slot, &first, packed)) return packed;
    fo_free(packed);
    return first;
}

static ptrdiff_t panels_size(const fo_conv2d *plan) { return fo_packed_size(plan->kn, plan->ocg, plan->k); }

static void pack_panel(const fo_conv2d *plan, ptrdiff_t part, float *packed) {
    const ptrdiff_t nr = plan->kn->nr, panels = div_up(plan->ocg, nr), g = part / panels, o = part % panels * nr;
    fo_pack(plan->kn, min_(nr, plan->ocg - o), plan->k, plan->w + (g * plan->ocg + o) * plan->ldw, 1, plan->ldw, packed + g * panels_size(plan) + o * plan->k);
}

const float *fo_conv2d_panels(const fo_conv2d *plan) {
    const ptrdiff_t panels = plan->s.groups * div_up(plan->ocg, plan->kn->nr);
    return fo_conv2d_packed(plan, FO_PANELS, plan->s.groups * panels_size(plan), panels, pack_panel);
}

/* ---- a direct convolution of one size ----------------------------------------------------------------------------- */

/* What all else follows from. */
typedef struct {
    fo_conv2d_size z;
    fo_image x, y, r; /* without their data */
    ptrdiff_t residual, threads;
} direct_call;

typedef struct direct {
    const fo_conv2d *plan;
    direct_call call;
    fo_conv2d_size z;
    fo_image x, y, r; /* r.data is NULL where there is no residual */
    const fo_lines *lines;   /* how some output rows are computed together, or NULL */
    const float *w, *packed; /* the weights as rows ldw apart, or as panels */
    ptrdiff_t ldw, steps;    /* steps of an output channel's products */
    ptrdiff_t width;         /* floats of a step in a group's panels */
    fo_gemm_args gemm;       /* what is common to all products */
    ptrdiff_t *table;
    bool columns;            /* pixels are columns, else rows */
    bool copies;             /* rows of the image go through scratch */
    bool channels_last;      /* of the scratch */
    ptrdiff_t phases;        /* of the stride along a row, whose columns stand together in scratch; 1 where pixels are rows */
    ptrdiff_t pw;            /* scratch: pixels of a row, or of a phase of it */
    ptrdiff_t rows, px, oc;        /* output rows, pixels of a row and channels of a task */
    ptrdiff_t down, along, across; /* tasks of an image's bundle */
    ptrdiff_t bundle, bundles;     /* groups of a task: those whose channels share cache lines are copied together */
    ptrdiff_t scratch_wanted, scratch_each; /* floats of a thread, and those that it gets */
    float *scratch;
    bool heavy;             /* weights do not stay in the second-level cache: a piece of them meets all rows of a task at once */
    ptrdiff_t piece;        /* steps of a reduction, then */
    bool large;             /* the result: fo_is_large */
} direct;

static ptrdiff_t input_rows(const fo_conv2d *plan, ptrdiff_t rows) { return (rows - 1) * plan->s.sh + (plan->s.kh - 1) * plan->s.dh + 1; }

/* Output rows that are computed together. */
static ptrdiff_t together(const direct *d) { return d->lines ? d->lines->lines : 1; }

static ptrdiff_t place(const direct *d, ptrdiff_t row) { return d->lines ? fo_line_place(d->lines, row) : row; }

/* Strides of what a task reads: the image itself, or its scratch. */
static fo_image source_strides(const direct *d) {
    const ptrdiff_t c = d->bundle * d->plan->icg, row = d->pw * d->phases;
    if (!d->copies) return d->x;
    return d->channels_last ? (fo_image){.sc = 1, .sw = c, .sh = c * row} : (fo_image){.sw = 1, .sc = row, .sh = c * row};
}

/* Where a kernel's column stands in a source row. */
static ptrdiff_t along(const direct *d, ptrdiff_t column) {
    return d->phases > 1 ? column % d->phases * d->pw + column / d->phases : column * source_strides(d).sw;
}

/* The entries of a block of channels from c on, of a kernel's point that stands so far behind its first. */
static void fill_block(const direct *d, ptrdiff_t sc, ptrdiff_t point, ptrdiff_t c, ptrdiff_t *table) {
    for (ptrdiff_t i = 0, at = c * sc + point; i < min_(CHANNEL_BLOCK, d->plan->icg - c); i++, at += sc) table[i] = at;
}

static void fill_table(const direct *d) {
    const fo_conv2d *plan = d->plan;
    const fo_image v = source_strides(d);
    if (d->lines)
        FOR_EACH_LINE_BLOCK(plan, p, e, c, j) fill_block(d, v.sc, d->lines->term[e].at * v.sh + along(d, j * plan->s.dw), c, d->table + p);
    else
        FOR_EACH_TAP(plan, p, c, i, j) fill_block(d, v.sc, i * plan->s.dh * v.sh + along(d, j * plan->s.dw), c, d->table + p);
}

/* An input row of every channel of a bundle, to be read by pixels: zeros left and right. */
static void copy_channels_last(const direct *d, ptrdiff_t channels, const float *row, float *to) {
    const ptrdiff_t c = d->bundle * d->plan->icg, before = min_(d->z.left, d->pw), inside = min_(d->z.iw, d->pw - before);
    memset(to, 0, (size_t)(before * c) * sizeof *to);
    to += before * c;
    if (d->x.sw == c)
        memcpy(to, row, (size_t)(inside * c) * sizeof *to);
    else
        for (ptrdiff_t q = 0; q < inside; q++) memcpy(to + q * c, row + q * d->x.sw, (size_t)channels * sizeof *to);
    memset(to + inside * c, 0, (size_t)((d->pw - before - inside) * c) * sizeof *to);
}

/* The same by channels, columns of each phase of the stride together; `plane` floats apart. */
static void copy_planar(const direct *d, ptrdiff_t channels, const float *row, float *to, ptrdiff_t plane) {
    const fo_kernels *kn = d->plan->kn;
    for (ptrdiff_t f = 0; f < d->phases; f++, to += d->pw) {
        const ptrdiff_t first = f - d->z.left, before = clamp_(div_up(-first, d->phases), 0, d->pw);
        const ptrdiff_t end = clamp_(div_up(d->z.iw - first, d->phases), 0, d->pw);
        if (d->x.sw == 1) {
            kn->pad(channels, d->pw, row, d->x.sc, d->z.iw, first, d->phases, to, plane);
            continue;
        }
        for (ptrdiff_t c = 0; c < channels; c++) {
            memset(to + c * plane, 0, (size_t)before * sizeof *to);
            memset(to + c * plane + end, 0, (size_t)(d->pw - end) * sizeof *to);
        }
        kn->transpose(end - before, channels, row + (first + before * d->phases) * d->x.sw, d->phases * d->x.sw, to + before, plane);
    }
}

/* Input rows from h0 on, of `groups` groups from g on of image n, into scratch: zeros outside the image. */
static void copy_rows(const direct *d, ptrdiff_t n, ptrdiff_t g, ptrdiff_t groups, ptrdiff_t h0, ptrdiff_t rows, float *scratch) {
    const fo_image v = source_strides(d);
    const ptrdiff_t channels = groups * d->plan->icg;
    for (ptrdiff_t i = 0; i < rows; i++) {
        const ptrdiff_t h = h0 + i;
        const float *row = fo_at(&d->x, n, g * d->plan->icg, h, 0);
        float *to = scratch + place(d, i) * v.sh;
        if (h < 0 || h >= d->z.ih)
            memset(to, 0, (size_t)v.sh * sizeof *to);
        else
            d->channels_last ? copy_channels_last(d, channels, row, to) : copy_planar(d, channels, row, to, v.sc);
    }
}

/* The sums of copied rows that `rows` output rows need. */
static void add_rows(const direct *d, ptrdiff_t rows, float *scratch) {
    const fo_lines *l = d->lines;
    const ptrdiff_t sh = source_strides(d).sh;
    for (ptrdiff_t h = 0; h < rows; h += l->lines, scratch += (l->rows + l->sums) * sh)
        for (int e = 0; e < l->terms; e++) {
            const fo_line_term *t = &l->term[e];
            if (t->sign)
                d->plan->kn->sum(1, sh, scratch + place(d, t->row) * sh, 0, scratch + place(d, t->other) * sh, 0, t->sign,
                                 scratch + t->at * sh, 0);
        }
}

/* Part of an output row, as an operand of the functions below: pixels w0 .. w0+px, channels o .. o+oc of group g of image n. */
typedef struct {
    ptrdiff_t n, g, o, oc, w0, px;
} part;

/* The weights of steps first .. first+k for a part whose pixels are rows. */
static const float *panel(const direct *d, const part *q, ptrdiff_t first, ptrdiff_t k) {
    return d->packed + (q->g * d->steps + first) * d->width + q->o * k;
}

/* Lets `a` be the product over steps first .. first+k for such a part, of which `row` is the source row. */
static void set_product(const direct *d, const part *q, const float *row, ptrdiff_t first, ptrdiff_t k, fo_gemm_args *a) {
    a->k = k, a->table = d->table + first;
    if (d->columns) {
        a->m = q->oc, a->a = d->w + (q->g * d->plan->ocg + q->o) * d->ldw + first;
        a->n = q->px, a->b = row + q->w0;
    } else {
        a->m = q->px, a->a = row + q->w0 * a->lda;
        a->n = q->oc, a->b = panel(d, q, first, k), a->panel = k * a->ldb;
    }
}

static void set_epilogue(const direct *d, const part *q, fo_gemm_args *a) {
    a->ep = fo_conv2d_epilogue(d->plan, q->g * d->plan->ocg + q->o);
    a->ep.channel_rows = d->columns;
}

/* Lets it end in row h of the result. */
static void set_output(const direct *d, const part *q, ptrdiff_t h, fo_gemm_args *a) {
    const bool nhwc = d->y.sc == 1;
    const ptrdiff_t o = q->g * d->plan->ocg + q->o;
    a->ep.transposed = nhwc == d->columns, a->ep.large = d->large;
    a->c = fo_at(&d->y, q->n, o, h, q->w0), a->ldc = nhwc ? d->y.sw : d->y.sc;
    if (d->r.data) a->ep.residual = fo_at(&d->r, q->n, o, h, q->w0), a->ep.ldr = nhwc ? d->r.sw : d->r.sc;
}

/* Channels of a product that follow each other while all rows of pixels pass: panels that a tile of few pixels takes at once, to have
 * enough independent sums, or as many channels as their weights may take of the cache. */
static ptrdiff_t channels_at_once(const direct *d, ptrdiff_t px) {
    const fo_kernels *kn = d->plan->kn;
    if (d->columns) return d->lines || !d->copies || !d->heavy ? d->plan->ocg : round_up(PIECE_BYTES / 4 / max_(d->plan->k, 1) + 1, kn->mr);
    if (d->z.oh == 1) return d->plan->ocg; /* a row alone: nothing passes the weights but its pixels */
    const ptrdiff_t vectors = d->lines ? 1 : kn->mr * kn->nr / kn->vl / px;
    return vectors >= 8 ? 8 * kn->vl : vectors >= 4 ? 4 * kn->vl : kn->nr;
}

/* Output rows of a task of so many that meet a piece of the weights one after another. */
static ptrdiff_t rows_at_once(const direct *d, ptrdiff_t rows) { return d->heavy ? rows : together(d); }

/* Whether the reduction of so many goes in pieces. */
static bool has_pieces(const direct *d, ptrdiff_t rows) { return (rows > 1 || d->z.oh == 1) && d->piece < d->plan->k; }

/* Floats of scratch for sums of those: what lines share, or the sums of all pieces of a reduction but the last. */
static ptrdiff_t sums_floats(const direct *d, ptrdiff_t rows) {
    const fo_kernels *kn = d->plan->kn;
    if (d->lines) return div_up(rows_at_once(d, rows), d->lines->lines) * 2 * LINE_ROWS * max_(3 * kn->vl, kn->nr);
    return has_pieces(d, rows) ? rows * d->z.ow * round_up(channels_at_once(d, d->z.ow), kn->nr) : 0;
}

/* Lets its sums stay in scratch, rows lds apart. */
static void set_partial(float *sums, fo_gemm_args *a) {
    a->c = sums, a->ldc = a->lds;
    a->ep.act.kind = FO_IDENTITY, a->ep.transposed = a->ep.large = false, a->ep.residual = NULL;
}

/* Of `floats` weights that the products read after these, share i of n is fetched meanwhile. */
static void set_next(const float *w, ptrdiff_t floats, ptrdiff_t i, ptrdiff_t n, fo_gemm_args *a) {
    a->next_floats = floats / n, a->next = w + i * a->next_floats;
}

/* Output rows h0 .. h0+rows of such a part, the reduction in pieces whose weights stay in the cache while the rows pass. */
static void direct_rows(const direct *d, const part *q, const float *x, float *sums, ptrdiff_t h0, ptrdiff_t rows, fo_gemm_args *a) {
    const ptrdiff_t k = d->plan->k, most = has_pieces(d, rows) ? d->piece : k, sh = d->plan->s.sh * source_strides(d).sh;
    a->lds = round_up(q->oc, d->plan->kn->nr);
    ptrdiff_t p = 0;
    do {
        for (ptrdiff_t h = 0; h < rows; h++) {
            float *own = sums + h * q->px * a->lds;
            set_epilogue(d, q, a);
            set_product(d, q, x + h * sh, 0, k, a);
            a->k = min_(most, k - p), a->table += p;
            if (a->form == FO_ROWS) a->a += p;
            if (p) a->b += p * a->ldb;
            if (rows > 1 && !d->columns) set_next(a->b + a->k * a->ldb, most * a->ldb, h, rows, a);
            a->start = p ? own : NULL;
            if (p + most < k)
                set_partial(own, a);
            else
                set_output(d, q, h0 + h, a);
            d->plan->kn->gemm(a);
        }
    } while ((p += most) < k);
}

/* The same where several rows ("lines") are computed together. A product's weights stay in the cache while all lines pass: first the
 * products that lines share, to scratch, where the lines' own start. */
static void direct_lines(const direct *d, const part *q, const float *x, float *sums, ptrdiff_t h0, ptrdiff_t rows, fo_gemm_args *a) {
    const fo_kernels *kn = d->plan->kn;
    const fo_lines *l = d->lines;
    const ptrdiff_t high = d->columns ? q->oc : q->px, groups = div_up(rows, l->lines), below = (l->rows + l->sums) * source_strides(d).sh;
    part after = *q; /* the part whose weights follow */
    after.o = q->o + q->oc < d->plan->ocg ? q->o + q->oc : 0;
    set_epilogue(d, q, a);
    const fo_epilogue ep = a->ep;
    a->lds = d->columns ? round_up(q->px, kn->vl) : kn->nr;
    for (int e = 0; e < l->products; e++) {
        const int t = e + l->lines < l->products ? e + l->lines : e + l->lines - l->products, u = t + 1 < l->products ? t + 1 : 0;
        const ptrdiff_t k = l->first[t + 1] - l->first[t], next = l->first[u + 1] - l->first[u], line = t < l->lines ? t : 0;
        a->ep = ep;
        for (ptrdiff_t g = 0; g < groups && g * l->lines + line < rows; g++) {
            float *shared = sums + g * 2 * high * a->lds, *turned = l->products > l->lines + 1 ? shared + high * a->lds : NULL;
            set_product(d, q, x + g * below, l->first[t], k, a);
            if (d->heavy && !d->columns) set_next(panel(d, e + 1 < l->products ? q : &after, l->first[u], next), next * a->ldb, g, groups, a);
            if (t < l->lines) {
                a->start = shared, a->turned = turned, a->sign = t % 2 ? -1 : 1;
                set_output(d, q, h0 + g * l->lines + t, a);
            } else {
                a->start = a->turned = NULL;
                set_partial(t == l->lines ? shared : turned, a);
                if (t > l->lines) a->ep.bias = NULL; /* it is in the first */
                if (d->columns) a->n = a->lds;       /* whole vectors */
            }
            kn->gemm(a);
        }
    }
}

/* The same in blocks whose shared sums stay in the first-level cache. */
static void direct_blocks(const direct *d, const part *q, const float *x, float *sums, ptrdiff_t h0, ptrdiff_t rows, fo_gemm_args *a) {
    const fo_kernels *kn = d->plan->kn;
    const ptrdiff_t m = d->columns ? q->oc : q->px, width = d->columns ? q->px : q->oc, high = div_up(m, div_up(m, LINE_ROWS));
    for (ptrdiff_t j = 0, wide; j < width; j += wide) {
        wide = width - j <= 3 * kn->vl ? width - j : kn->nr; /* as the product's own tiles */
        for (ptrdiff_t i = 0; i < m; i += high) {
            const ptrdiff_t some = min_(high, m - i), o = d->columns ? i : j, w = d->columns ? j : i;
            const part block = {q->n, q->g, q->o + o, d->columns ? some : wide, q->w0 + w, d->columns ? wide : some};
            direct_lines(d, &block, x, sums, h0, rows, a);
        }
    }
}

/* Output rows h0 .. h0+rows of oc channels from q.o on, whose source rows start at x. */
static void direct_group(const direct *d, part q, ptrdiff_t oc, ptrdiff_t h0, ptrdiff_t rows, const float *x, float *scratch) {
    const ptrdiff_t step = channels_at_once(d, q.px), end = q.o + oc, some = rows_at_once(d, rows), sh = source_strides(d).sh;
    float *sums = scratch + d->scratch_each - sums_floats(d, d->rows);
    fo_gemm_args a = d->gemm;
    a.packed = scratch;
    for (; q.o < end; q.o += step) {
        q.oc = min_(step, end - q.o);
        for (ptrdiff_t h = 0; h < rows; h += some)
            (d->lines ? direct_blocks : direct_rows)(d, &q, x + place(d, h * d->plan->s.sh) * sh, sums, h0 + h, min_(some, rows - h), &a);
    }
}

/* What a task's pieces are parts of: pixels whose panel is packed, rows that are copied, and channels where weights come from afar or there is
 * one row. */
static void divide(const direct *d, fo_piece piece, part *q, ptrdiff_t *h0, ptrdiff_t *rows) {
    const fo_kernels *kn = d->plan->kn;
    const ptrdiff_t unit = d->columns ? kn->mr : kn->nr;
    if (d->columns && d->z.oh == 1 && q->px > kn->nr)
        fo_divide(piece, kn->nr, &q->w0, &q->px);
    else if (*rows > together(d) && !d->heavy)
        fo_divide(piece, together(d), h0, rows);
    else if (q->oc > unit)
        fo_divide(piece, unit, &q->o, &q->oc);
    else if (*rows > together(d))
        fo_divide(piece, together(d), h0, rows);
    else
        fo_divide(piece, 1, &q->w0, &q->px);
}

/* A task: some rows (or some pixels of the only row) of one image, some channels of the groups of a bundle. */
static void direct_task(void *context, fo_piece piece, int thread) {
    const direct *d = context;
    const fo_conv2d *plan = d->plan;
    const ptrdiff_t task = piece.task, across = task % d->across, along = task / d->across % d->along, down = task / d->across / d->along % d->down;
    const ptrdiff_t block = task / d->across / d->along / d->down, g0 = block % d->bundles * d->bundle, n = block / d->bundles;
    const ptrdiff_t w0 = along * d->px, o = across * d->oc, groups = min_(d->bundle, plan->s.groups - g0);
    ptrdiff_t h0 = down * d->rows, rows = min_(d->rows, d->z.oh - h0);
    part q = {n, g0, o, min_(d->oc, plan->ocg - o), w0, min_(d->px, d->z.ow - w0)};
    divide(d, piece, &q, &h0, &rows);
    if (!rows || !q.px || !q.oc) return;
    float *scratch = d->scratch + thread * d->scratch_each;
    if (d->copies) copy_rows(d, n, g0, groups, h0 * plan->s.sh - d->z.top, input_rows(plan, round_up(rows, together(d))), scratch);
    if (d->lines) add_rows(d, rows, scratch);
    for (; q.g < g0 + groups; q.g++) {
        const float *x = d->copies ? scratch + (q.g - g0) * plan->icg * source_strides(d).sc : fo_at(&d->x, n, q.g * plan->icg, h0 * plan->s.sh, 0);
        direct_group(d, q, q.oc, h0, rows, x, scratch);
    }
}

/* Relative time of a form: lanes that do nothing, sums too few to hide the latency, the transposition of a tile. */
static double form_cost(const fo_kernels *kn, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, bool transposed) {
    double lanes = (double)round_up(n, kn->vl) / n, latency = m < 4 && n <= kn->nr ? 4.0 / m : 1;
    return lanes * latency * (1 + (transposed ? 9.0 : 1.0) / k);
}

/* What pixels as columns cost more, on the same scale, where channels are neighbours: a square of vectors is transposed in five
 * cycles for each of them. */
static double gather_cost(const fo_conv2d *plan) {
    const double squares = plan->s.groups > 1 ? (double)plan->icg / plan->kn->vl : div_up(plan->icg, plan->kn->vl);
    return 5 * squares * plan->s.sh * plan->s.sw * 2 * plan->kn->vl / ((double)plan->ocg * plan->k);
}

/* Everything that follows from the sizes. */
static void direct_setup(direct *d, const fo_conv2d *plan, const direct_call *call) {
    const fo_conv2d_shape *s = &plan->s;
    const fo_kernels *kn = plan->kn;
    const fo_conv2d_size *z = &call->z;
    const fo_image *x = &call->x, *y = &call->y, *r = call->residual ? &call->r : NULL;
    const bool nhwc = y->sc == 1, unit = s->kh == 1 && s->kw == 1 && s->sh == 1 && s->sw == 1; /* their product may be 1 modulo 2^64 */
    const bool pixelwise = unit && !z->top && !z->left && z->oh == z->ih && z->ow == z->iw;
    *d = (direct){.plan = plan, .call = *call, .z = *z, .x = *x, .y = *y, .r = call->r};
    if (pixelwise && x->sh == z->iw * x->sw && y->sh == z->iw * y->sw && (!r || r->sh == z->iw * r->sw)) {
        d->z.iw = d->z.ow = z->ih * z->iw; /* an image is one long row */
        d->z.ih = d->z.oh = 1;
    }
    const bool gathers = x->sc == 1 && x->sw != 1;
    /* A tile of one vector of columns loads as much as it multiplies: 64 -> 64, 32x32, stride 2, takes 120 us, and 80 where pixels are rows. */
    const double narrow = !pixelwise && d->z.ow <= kn->vl && plan->ocg > kn->vl ? 1.2 : 1;
    const double columns = narrow * form_cost(kn, plan->ocg, d->z.ow, plan->k, nhwc) + (gathers ? gather_cost(plan) : 0);
    /* A 1x1 kernel would meet a copied pixel once: channels last, 256 -> 3 at 28x28 takes 94 us as columns, and 50 as rows (AVX-512). */
    d->columns = !(gathers && pixelwise) && columns < form_cost(kn, d->z.ow, plan->ocg, plan->k, !nhwc);
    const bool padded = z->top || z->left || (z->oh - 1) * s->sh + (s->kh - 1) * s->dh >= z->ih || (z->ow - 1) * s->sw + (s->kw - 1) * s->dw >= z->iw;
    d->lines = z->oh > 1 && fo_lines_pay(plan, z) ? &plan->lines : NULL;
    d->copies = d->lines || padded || (d->columns && !(pixelwise && x->sw == 1));
    d->channels_last = !d->columns && x->sc == 1;
    d->bundle = x->sc == 1 && d->copies ? clamp_(BUNDLE / max_(plan->icg, 1), 0, s->groups) : 1;
    d->bundle = max_(d->bundle, 1);
    d->bundles = div_up(s->groups, d->bundle);
    const ptrdiff_t span = (d->z.ow - 1) * s->sw + (s->kw - 1) * s->dw + 1;
    d->phases = d->columns ? min_(s->sw, span) : 1;
    d->pw = div_up(span, d->phases);
    d->steps = d->lines ? fo_lines_steps(plan) : plan->k;
    d->heavy = 4 * d->steps * plan->ocg > fo_near_bytes() / 2;
    const bool flat = d->z.oh == 1, cut = !d->columns && d->heavy && (!flat || d->z.ow <= SMALL_IMAGE);
    const ptrdiff_t pieces = !cut ? 1 : flat ? div_up(plan->k, LONG_PIECE) : div_up(4 * plan->k * channels_at_once(d, d->z.ow), PIECE_BYTES);
    d->piece = pieces > 1 ? round_up(div_up(plan->k, pieces), CHANNEL_BLOCK) : plan->k;
    d->width = round_up(plan->ocg, kn->nr);
    d->large = fo_is_large(z->n * z->oh * z->ow * s->oc, s->act.kind);
}

/* Channels that follow each other in every block of them, in fours; products, lines and pieces begin with a block. */
static ptrdiff_t run_of(const direct *d) {
    ptrdiff_t run = CHANNEL_BLOCK;
    while (run > 2 && d->plan->icg % run) run /= 2;
    return run > 2 ? run : 0;
}

/* The parts of a product that are common to all tasks. */
static void set_common(direct *d) {
    const fo_kernels *kn = d->plan->kn;
    const fo_image v = source_strides(d);
    const bool plain = d->plan->s.kh == 1 && d->plan->s.kw == 1 && v.sc == 1; /* one instruction a step less for each row */
    if (d->columns)
        d->gemm = (fo_gemm_args){.form = d->copies ? FO_B_TABLE : FO_B_PACKING, .lda = d->ldw, .ldb = v.sc, .panel = kn->nr};
    else
        d->gemm = (fo_gemm_args){.form = plain ? FO_ROWS : FO_A_TABLE, .lda = d->plan->s.sw * v.sw, .ldb = kn->nr, .run = v.sc == 1 ? run_of(d) : 0};
}

/* Scratch of a task of so many output rows, in floats; the last vector of a row may pass its end. */
static ptrdiff_t scratch_floats(const direct *d, ptrdiff_t rows) {
    const fo_kernels *kn = d->plan->kn;
    const ptrdiff_t last = place(d, input_rows(d->plan, round_up(rows, together(d))) - 1);
    const ptrdiff_t copied = (last + 1) * d->pw * d->phases * d->bundle * d->plan->icg + kn->nr, packed = d->columns ? d->plan->k * kn->nr : 0;
    return round_up(d->copies ? copied : packed, 16) + sums_floats(d, rows); /* packed: a panel of pixels */
}

/* Cuts the output into tasks: the cut whose slowest thread is done first. A task's time is its multiply-adds and what it copies;
 * its scratch stays in the cache. An image of one row is cut along the row, so that the part of x that it reads stays there too. */
static void direct_cut(direct *d, int threads) {
    const fo_conv2d *plan = d->plan;
    const fo_kernels *kn = plan->kn;
    const ptrdiff_t images = d->z.n * d->bundles, unit = d->columns ? kn->mr : kn->nr;
    const bool flat = d->z.oh == 1;
    const ptrdiff_t length = flat ? d->z.ow : d->z.oh, grain = flat && d->columns ? min_(kn->nr, length) : together(d);
    const bool small = threads > 1 || 4 * plan->k * SMALL_IMAGE <= fo_near_bytes() / 2;
    /* Where the result is more than the cache keeps, all its panels pass a part of it: 16 -> 96 channels at 112x112 0.9 of the time, 32 -> 64 0.95. */
    const bool thin = plan->k <= THIN && 4 * d->z.ow * plan->ocg > 2 * fo_near_bytes();
    const ptrdiff_t floats_each = max_(plan->k + (thin ? plan->ocg : 0), 1);
    const ptrdiff_t most = flat && !d->columns ? max_(scratch_bytes(0) / 4 / floats_each, small ? SMALL_IMAGE : grain) : length;
    const bool shared_pixels = 4 * plan->k * plan->ocg <= fo_near_bytes(); /* dearer to share than weights: they come out of another's cache */
    const double step = (double)d->bundle * (flat ? 1 : d->z.ow) * plan->k / (2 * kn->vl), even = step * images * length * plan->ocg / threads;
    double best = 0;
    const ptrdiff_t scratch = scratch_bytes(4 * d->steps * plan->ocg);
    /* Weights that the second-level cache does not keep come to each task from the third: 256 -> 256, 28x28, stride 2 takes 1040 us, and
     * 820 if all weights were those of the first channels. */
    const double fetched = d->heavy ? 1 / 16.0 : 0, copied = d->heavy ? 1 / 3.0 : 1 / 4.0;
    for (ptrdiff_t size = round_up(length, grain);; size = round_up(div_up(length, div_up(length, size - grain)), grain)) { /* the next smaller piece */
        const ptrdiff_t floats = scratch_floats(d, flat ? 1 : size);
        const bool fits = size == grain || (size <= most && (flat || floats * (ptrdiff_t)sizeof(float) <= scratch));
        for (ptrdiff_t across = 1; fits && across <= 4 && (across == 1 || (threads > 1 && plan->ocg >= across * unit)); across *= 2) {
            const ptrdiff_t oc = round_up(div_up(plan->ocg, across), unit), some = min_(oc, plan->ocg);
            const ptrdiff_t rounds = div_up(images * div_up(length, size) * div_up(plan->ocg, oc), threads);
            /* where channels divide evenly, a last task of fewer rows is no thread's alone */
            const double rows = images * across % threads ? (double)rounds * size : (double)images * across / threads * round_up(length, grain);
            const double all = rows * step * some + rounds * (copied * floats + 200 + fetched * d->steps * some);
            const double time = all * (across > 1 && shared_pixels ? 1.03 : 1);
            if (best && time >= best) continue;
            best = time;
            d->rows = flat ? 1 : size, d->px = flat ? size : d->z.ow, d->oc = max_(1, min_(oc, plan->ocg));
        }
        if (size == grain || (best && (threads == 1 || best < NEARLY * even || size * 64 * threads < length))) break; /* one thread: the largest that fits */
    }
    d->down = div_up(d->z.oh, d->rows);
    d->along = div_up(d->z.ow, d->px);
    d->across = div_up(plan->ocg, d->oc);
    d->scratch_wanted = scratch_floats(d, d->rows);
}

static int direct_threads(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const double macs = (double)z->n * plan->s.oc * z->oh * z->ow * plan->k;
    return fo_threads_for(fo_nanoseconds(plan->kn, macs, 4.0 * plan->s.oc * plan->k));
}

static direct_call call_of(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *r, const fo_image *y) {
    direct_call call = {*z, *x, *y, r ? *r : (fo_image){0}, r != NULL, direct_threads(plan, z)};
    call.x.data = call.y.data = call.r.data = NULL;
    return call;
}

static direct direct_for(const fo_conv2d *plan, const direct_call *call) {
    direct d;
    direct_setup(&d, plan, call);
    direct_cut(&d, (int)call->threads);
    return d;
}

/* The weights in the form that is wanted; false where memory is short. */
static bool direct_weights(direct *d) {
    const fo_conv2d *plan = d->plan;
    if (!d->columns) return (d->packed = d->lines ? fo_lines_panels(plan) : fo_conv2d_panels(plan));
    d->w = d->lines ? fo_lines_rows(plan) : plan->w;
    d->ldw = d->lines ? fo_lines_ldw(plan) : plan->ldw;
    return d->w;
}

/* The same with weights, and its table behind it; NULL where memory is short. */
static direct *direct_create(const fo_conv2d *plan, const direct_call *call) {
    direct local = direct_for(plan, call), *d;
    if (!direct_weights(&local) || !(d = fo_alloc(sizeof *d + (size_t)local.steps * sizeof *d->table))) return NULL;
    *d = local;
    d->table = (ptrdiff_t *)(d + 1);
    fill_table(d);
    set_common(d);
    return d;
}

/* A plan keeps the last one, for to choose and to prepare takes as long as a tiny image; who runs it has it alone. */
static _Atomic(direct *) *kept(const fo_conv2d *plan) { return (_Atomic(direct *) *)&plan->last; }

/* That one if it is of such a call, else NULL. */
static direct *direct_take(const fo_conv2d *plan, const direct_call *call) {
    direct *d = atomic_load_explicit(kept(plan), memory_order_relaxed) ? atomic_exchange(kept(plan), NULL) : NULL;
    if (d && !memcmp(&d->call, call, sizeof *call)) return d;
    fo_free(d);
    return NULL;
}

static fo_status direct_run(direct *d, const fo_image *x, const fo_image *r, const fo_image *y) {
    const int threads = (int)d->call.threads;
    d->x.data = x->data, d->y.data = y->data, d->r.data = r ? r->data : NULL;
    d->scratch_each = d->scratch_wanted;
    if (!(d->scratch = fo_arena_share(&d->scratch_each, threads, 0))) {
        fo_free(d);
        return FO_NO_MEMORY;
    }
    fo_parallel_pieces(d->z.n * d->bundles * d->down * d->along * d->across, threads, direct_task, d);
    fo_arena_release(d->scratch);
    fo_free(atomic_exchange(kept(d->plan), d));
    return FO_OK;
}

/* ---- the choice --------------------------------------------------------------------------------------------------- */

bool fo_is_huge(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_conv2d_shape *s = &plan->s;
    const double h = (z->oh - 1.0) * s->sh + (s->kh - 1.0) * s->dh + 1, w = (z->ow - 1.0) * s->sw + (s->kw - 1.0) * s->dw + 1;
    return (h > z->ih ? h : z->ih) * (w > z->iw ? w : z->iw) * s->ic > 0x1p48;
}

fo_status fo_copy_image(const fo_image *to, const fo_image *from, const fo_conv2d_size *z, ptrdiff_t channels) {
    fo_copy_args a = {{4, {z->n, channels, z->oh, z->ow}, {{to->sn, to->sc, to->sh, to->sw}, {from->sn, from->sc, from->sh, from->sw}}},
                      to->data, from->data};
    fo_fold(&a.axes);
    return fo_strided_copy(&a);
}

static bool is_empty(const fo_conv2d *plan, const fo_conv2d_size *z) { return !z->n || !z->oh || !z->ow || !plan->s.oc; }

fo_status fo_conv2d_run(const fo_conv2d *plan, const fo_conv2d_size *z, const fo_image *x, const fo_image *residual, const fo_image *y) {
    const direct_call call = call_of(plan, z, x, residual, y);
    direct *d = direct_take(plan, &call);
    if (d) return direct_run(d, x, residual, y);
    if (is_empty(plan, z)) return FO_OK;
    if (fo_is_huge(plan, z)) return FO_NO_MEMORY;
    if (fo_is_depthwise(plan)) return fo_depthwise_run(plan, z, x, residual, y);
    if (fo_uses_rearranged(plan, z)) return fo_rearranged_run(plan, z, x, residual, y);
    if (fo_is_stem(plan, z)) return fo_stem_run(plan, z, x, residual, y);
    if (fo_uses_strassen(plan, z)) return fo_strassen_run(plan, z, x, residual, y);
    const int tile = fo_winograd_tile(plan, z);
    if (tile) return fo_winograd_run(plan, z, tile, x, residual, y);
    if (fo_uses_patches(plan, z)) return fo_patches_run(plan, z, x, residual, y);
    return (d = direct_create(plan, &call)) ? direct_run(d, x, residual, y) : FO_NO_MEMORY;
}

/* A direct convolution of whole images, as a call would have it. */
static direct direct_of(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc) {
    const fo_image x = fo_contiguous(plan->s.ic, z->ih, z->iw, nhwc), y = fo_contiguous(plan->s.oc, z->oh, z->ow, nhwc);
    const direct_call call = call_of(plan, z, &x, NULL, &y);
    return direct_for(plan, &call);
}

const char *fo_conv2d_kernel(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc) {
    if (is_empty(plan, z)) return "none, an empty result";
    if (fo_is_huge(plan, z)) return NULL;
    if (fo_uses_rearranged(plan, z)) return fo_rearranged_kernel(plan, z, nhwc);
    const int tile = fo_winograd_tile(plan, z);
    if (tile) return fo_winograd_kernel(tile);
    if (fo_uses_strassen(plan, z)) return plan->s.nhwc ? "strassen, pixels as rows" : "strassen, pixels as columns";
    if (fo_is_depthwise(plan)) return fo_depthwise_kernel(plan, z, nhwc);
    if (fo_is_stem(plan, z)) return "winograd F(2 rows), pixels as rows";
    if (fo_uses_patches(plan, z)) return "direct, patches as rows";
    static const char *const names[][2] = {
        {"direct, pixels as rows", "direct, pixels as columns"},
        {"winograd F(2 rows), pixels as rows", "winograd F(2 rows), pixels as columns"},
        {"winograd F(3 rows), pixels as rows", "winograd F(3 rows), pixels as columns"}};
    const direct d = direct_of(plan, z, nhwc);
    return names[together(&d) - 1][d.columns];
}

ptrdiff_t fo_conv2d_scratch(const fo_conv2d *plan, const fo_conv2d_size *z, bool nhwc) {
    if (is_empty(plan, z)) return 0;
    if (fo_uses_rearranged(plan, z)) return fo_rearranged_scratch(plan, z, nhwc);
    const int tile = fo_winograd_tile(plan, z);
    if (tile) return fo_winograd_scratch(plan, z, tile, nhwc);
    if (fo_is_depthwise(plan)) return fo_depthwise_scratch(plan, z, nhwc);
    if (fo_uses_strassen(plan, z)) return fo_strassen_scratch(plan, z);
    if (fo_is_stem(plan, z)) return fo_stem_scratch(plan, z);
    if (fo_uses_patches(plan, z)) return fo_patches_scratch(plan, z);
    const direct d = direct_of(plan, z, nhwc);
    return d.scratch_wanted * d.call.threads * (ptrdiff_t)sizeof(float);
}

ptrdiff_t fo_conv2d_pixel(const fo_conv2d *plan) {
    const ptrdiff_t ic = plan->s.ic;
    const bool clashes = ic % CLASHING == 0 && (fo_is_depthwise(plan) ? fo_is_narrow(plan->kn) : ic >= FAR_CHANNELS); /* ResNet-50: 0.96 of the time */
    return clashes ? ic + 16 : ic;
}
