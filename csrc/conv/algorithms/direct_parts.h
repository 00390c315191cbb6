/* The walk over an output's rows that direct convolution and Winograd's algorithm along columns share: a row is a
 * product, whose other operand is read from the image, or from rows of it that a task copies to scratch. */
#ifndef FO_DIRECT_PARTS_H
#define FO_DIRECT_PARTS_H

#include "../algorithm.h"

typedef struct fo_direct fo_direct;

/* Part of an output row: pixels w0 .. w0+px, channels o .. o+oc of group g of image n. Source rows begin under pixel
 * `first`. */
typedef struct {
    ptrdiff_t n, g, o, oc, w0, px, first;
} fo_direct_part;

/* What an algorithm does in its own way. */
typedef struct {
    bool (*weights)(fo_direct *); /* sets w and ldw, or packed; false where memory is short */
    void (*fill_table)(const fo_direct *);
    /* floats of scratch for sums of a task of so many rows */
    ptrdiff_t (*sums_floats)(const fo_direct *, ptrdiff_t rows);
    void (*add_rows)(const fo_direct *, ptrdiff_t rows, float *scratch); /* what is computed of copied rows, or NULL */
    /* Output rows h0 .. h0+rows of a part, whose source rows start at x */
    void (*rows)(const fo_direct *, const fo_direct_part *, const float *x, float *sums, ptrdiff_t h0, ptrdiff_t rows,
                 fo_gemm_args *);
} fo_direct_walk;

/* An algorithm's part of fo_direct. */
typedef struct {
    const fo_direct_walk *walk;
    ptrdiff_t unit; /* output rows that are computed at once */
    /* input rows from one unit to the next, and rows of sums that stand after them in scratch */
    ptrdiff_t unit_rows, sums;
    ptrdiff_t steps;   /* of an output channel's products */
    const void *terms; /* a copy of so many bytes goes with the call */
    size_t terms_bytes;
} fo_direct_unit;

struct fo_direct {
    const fo_conv2d *plan;
    fo_direct_unit u;
    fo_conv2d_size z;
    fo_image x, y, r;        /* r.data is NULL where there is no residual */
    const float *w, *packed; /* the weights as rows ldw apart, or as panels */
    ptrdiff_t ldw;
    ptrdiff_t width;   /* floats of a step in a group's panels */
    fo_gemm_args gemm; /* what is common to all products */
    ptrdiff_t *table;
    bool weights_lhs;   /* pixels are columns, else rows */
    bool copies;        /* rows of the image go through scratch */
    bool channels_last; /* of the scratch */
    /* of the stride along a row, whose columns are contiguous in scratch; 1 where pixels are rows */
    ptrdiff_t phases;
    ptrdiff_t pw;                    /* scratch: pixels under a task's, or a phase of them */
    ptrdiff_t rows, px, oc;          /* output rows, pixels of a row and channels of a task */
    ptrdiff_t by_rows, by_px, by_oc; /* tasks of an image's bundle */
    ptrdiff_t bundle, bundles;       /* groups of a task: those whose channels share cache lines are copied at once */
    ptrdiff_t scratch_wanted, scratch_each; /* floats of a thread, and those that it gets */
    float *scratch;
    float *wide; /* after it: weights of float16, widened for a call */
    /* weights do not stay in the second-level cache: a piece of them serves all rows of a task at once */
    bool streams;
    ptrdiff_t piece; /* steps of a reduction, then */
    bool large;      /* the result: fo_is_large */
};

/* names: pixels as rows, as columns */
fo_status fo_direct_prepare_unit(fo_prepared_conv2d *call, const fo_direct_unit *unit, const char *const kernels[2]);
fo_status fo_direct_run_unit(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *r, const fo_image *y);

/* ---- source rows: input_gather.c --------------------------------------------------------------------------------- */

/* Where source row `row` stands among the rows of scratch, both counted from a unit's first. */
static inline ptrdiff_t fo_source_place(const fo_direct *d, ptrdiff_t row) {
    return d->u.sums ? row + row / d->u.unit_rows * d->u.sums : row;
}

/* Strides of what a task reads: the image itself, or its scratch. */
static inline fo_image fo_source_strides(const fo_direct *d) {
    const ptrdiff_t c = d->bundle * d->plan->icg, row = d->pw * d->phases;
    if (!d->copies) return d->x;
    if (d->channels_last) return (fo_image){.sc = 1, .sw = c, .sh = c * row};
    return (fo_image){.sw = 1, .sc = row, .sh = c * row};
}

/* The table's entries for kernel column j of a source row that stands `row` floats after the first, channels c .. of a
 * block. */
void fo_source_table(const fo_direct *d, ptrdiff_t row, ptrdiff_t j, ptrdiff_t c, ptrdiff_t *table);

/* Copies input rows from h0 on, under the pixels from q->first on, of `groups` groups from q->g on, to scratch: zeros
 * outside the image. */
void fo_source_copy(const fo_direct *d, const fo_direct_part *q, ptrdiff_t groups, ptrdiff_t h0, ptrdiff_t rows,
                    float *scratch);

/* ---- products of a part ------------------------------------------------------------------------------------------ */

/* The weights of steps first .. first+k for a part whose pixels are rows. */
static inline const float *fo_direct_panel(const fo_direct *d, const fo_direct_part *q, ptrdiff_t first, ptrdiff_t k) {
    return d->packed + (q->g * d->u.steps + first) * d->width + q->o * k;
}

/* Lets `a` be the product over steps first .. first+k, of which `row` is the source row. */
static inline void fo_direct_product(const fo_direct *d, const fo_direct_part *q, const float *row, ptrdiff_t first,
                                     ptrdiff_t k, fo_gemm_args *a) {
    a->k = k, a->table = d->table + first;
    if (d->weights_lhs) {
        a->m = q->oc, a->a = d->w + (q->g * d->plan->ocg + q->o) * d->ldw + first;
        a->n = q->px, a->b = row + q->w0 - q->first;
    } else {
        a->m = q->px, a->a = row + (q->w0 - q->first) * a->lda;
        a->n = q->oc, a->b = fo_direct_panel(d, q, first, k), a->panel = k * a->ldb;
    }
}

static inline void fo_direct_epilogue(const fo_direct *d, const fo_direct_part *q, fo_gemm_args *a) {
    a->ep = fo_conv2d_epilogue(d->plan, q->g * d->plan->ocg + q->o);
    a->ep.channel_rows = d->weights_lhs;
}

/* Lets it end in row h of the result. */
static inline void fo_direct_output(const fo_direct *d, const fo_direct_part *q, ptrdiff_t h, fo_gemm_args *a) {
    const bool nhwc = d->y.sc == 1;
    const ptrdiff_t o = q->g * d->plan->ocg + q->o;
    a->ep.transposed = nhwc == d->weights_lhs, a->ep.large = d->large;
    a->c = fo_at(&d->y, q->n, o, h, q->w0), a->ldc = nhwc ? d->y.sw : d->y.sc;
    if (d->r.data) a->ep.residual = fo_at(&d->r, q->n, o, h, q->w0), a->ep.ldr = nhwc ? d->r.sw : d->r.sc;
}

/* Lets its sums stay in scratch, rows lds apart. */
static inline void fo_direct_partial(float *sums, fo_gemm_args *a) {
    a->c = sums, a->ldc = a->lds;
    a->ep.act.kind = FO_IDENTITY, a->ep.transposed = a->ep.large = false, a->ep.residual = NULL;
}

/* Of `floats` weights that the products read after these, share i of n is fetched meanwhile. */
static inline void fo_direct_next(const float *w, ptrdiff_t floats, ptrdiff_t i, ptrdiff_t n, fo_gemm_args *a) {
    a->next_floats = floats / n, a->next = w + i * a->next_floats;
}

/* Output rows of a task of so many that a piece of the weights serves one after another. */
static inline ptrdiff_t fo_direct_rows_at_once(const fo_direct *d, ptrdiff_t rows) {
    return d->streams ? rows : d->u.unit;
}

#endif
