/* Products by packed weights, of whatever types: a plan of them, and a call.
 *
 *   plan    weights as a kernel reads them, biases, constants of int8        product_plan.c
 *   call    rows of A, where C goes                                          product.c: cuts C, makes rows, multiplies
 *
 * Layers say where rows come from. What has loops of its own takes a part of a call (fo_product_part), or columns of
 * rows that it has made itself (fo_product_columns).
 */
#ifndef FO_NET_PRODUCT_H
#define FO_NET_PRODUCT_H

#include "../dispatch/isa.h"

/* ---- a plan ------------------------------------------------------------------------------------------------------ */

/* How B is kept. */
typedef enum {
    FO_PACKED,     /* as panels */
    FO_OF_COLUMNS, /* one column after another (fo_is_dots) */
    FO_IN_BLOCKS,  /* 4 or 8 bits, the caller's */
    FO_BORROWED    /* the caller's float32 */
} fo_kept_as;

/* What a product of int8 knows of its scales. Arrays have an element a channel. */
typedef struct {
    fo_quantization x, product, residual, y;
    bool whole;               /* x of floats is quantized by the range of all rows */
    int32_t *sums, *start[2]; /* of the weights; what sums start with for x of uint8 and of int8 */
    int32_t *w_zero;          /* zero points of the weights, negated, or NULL */
    float *scale, *nudge;
    double largest; /* of the results before an activation */
    bool longer;    /* than the bits of a float: the sums of results that are rounded twice */
} fo_int8_constants;

/* Weights of `groups` products of n columns and k steps each. Arrays a channel have `columns` elements a group: of
 * products of float32, which are of one group, n and some zeros; else whole vectors. */
struct fo_linear {
    const fo_kernels *kn;
    const fo_product_kernel *kernel;
    ptrdiff_t groups, n, k;
    ptrdiff_t steps, columns, bytes; /* elements of panels along k; columns, padded; bytes of a group's weights */
    fo_kept_as kept;
    void *w;
    fo_blockwise blocks;
    const float *borrowed; /* w (n, k) at distances of wn and wk */
    ptrdiff_t wn, wk;
    float *bias, *slopes;
    fo_activation act;
    fo_int8_constants q;
};

/* Weights (output o of all groups, step p) at w[o*wn + p*wk], and the type that rows of A are rounded to: FO_F32 (as
 * they come) or FO_BF16, which has weights of that type. False where memory is short; free it all the same. */
bool fo_product_make(fo_linear *plan, fo_dtype a, ptrdiff_t groups, ptrdiff_t n, ptrdiff_t k, const fo_weights *w,
                     ptrdiff_t wn, ptrdiff_t wk, const float *bias, const fo_activation *act);
/* The same of int8. */
bool fo_product_make_int8(fo_linear *plan, ptrdiff_t groups, ptrdiff_t n, ptrdiff_t k, const int8_t *w, ptrdiff_t wn,
                          ptrdiff_t wk, const fo_quantized *q);
/* The same by weights in blocks, of rows of FO_F32 or FO_S8. */
bool fo_product_make_blocks(fo_linear *plan, fo_dtype a, ptrdiff_t n, ptrdiff_t k, const fo_blockwise *blocks,
                            const float *bias, const fo_activation *act);
/* The same by float32 weights that stay the caller's, for one run. */
bool fo_product_borrow(fo_linear *plan, ptrdiff_t n, ptrdiff_t k, const float *w, ptrdiff_t wn, ptrdiff_t wk,
                       const float *bias, const fo_activation *act);
void fo_product_free(fo_linear *plan);

/* Bytes of all packed weights. */
static inline ptrdiff_t fo_product_bytes(const fo_linear *plan) { return plan->w ? plan->groups * plan->bytes : 0; }
/* The weights of output o of all groups again, k floats; not of int8 or blocks. */
void fo_product_column(const fo_linear *plan, ptrdiff_t o, float *w);

/* ---- rows of A --------------------------------------------------------------------------------------------------- */

/* Bytes of a row of k elements of A as it is read, whole groups. */
static inline ptrdiff_t fo_row_bytes(const fo_product_kernel *kernel, ptrdiff_t k) {
    const ptrdiff_t group = kernel->product.group;
    return div_up(k, group) * group * fo_size(kernel->reads) * kernel->phases;
}
/* The same of rows next to one another: far apart they would share few sets of the first-level cache. */
static inline ptrdiff_t fo_row_distance(const fo_product_kernel *kernel, ptrdiff_t k) {
    const ptrdiff_t bytes = fo_row_bytes(kernel, k), far = FO_SHARED_SETS_FLOATS * (ptrdiff_t)sizeof(float);
    return bytes && bytes % far == 0 ? bytes + LINE_FLOATS * (ptrdiff_t)sizeof(float) : bytes;
}

/* n floats, rounded to bfloat16; to may be x. */
void fo_round_floats(ptrdiff_t n, const float *x, float *to);
/* Floats first .. first + n - 1 of a row of k, from x on, rounded to bfloat16: to the same elements of a row as the
 * kernel reads it, whose last group is whole, with a zero. A row of floats may be x's. */
void fo_round(const fo_product_kernel *kernel, ptrdiff_t k, const float *x, void *row, ptrdiff_t first, ptrdiff_t n);

/* Writes row i of a group's A, k elements of the product's type (bfloat16; uint8 or int8 as kernels take it); of int8,
 * where x is of floats, also its scale and its zero point, negated; for weights in blocks whole blocks, and for each a
 * scale and the elements' negated sum. */
typedef struct fo_product_call fo_product_call;
typedef void fo_make_row(const fo_product_call *, ptrdiff_t group, ptrdiff_t i, void *row, float *scale, int32_t *zero);

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* C of m rows and groups * n columns; ld*: elements of C and of the residual. */
struct fo_product_call {
    const fo_linear *plan;
    fo_types types;
    ptrdiff_t m;
    /* rows as they are, `lda` bytes from row to row, a group's k elements after another's, if the kernel can take them
     * so: fo_reads_rows. ak: where it is not 0, element (i, p) of floats is at a[i + p*ak] */
    const void *a;
    ptrdiff_t lda, ak;
    fo_make_row *row; /* else this makes them, of source; NULL where they are read as they are */
    const void *source;
    void *c;
    ptrdiff_t ldc;
    const void *residual; /* or NULL */
    ptrdiff_t ldr;
    /* Lines of so many rows, unless it is 0: elements from line to line of C and of the residual. */
    ptrdiff_t line, c_line, r_line;
};

/* Whether the kernel reads rows of x of this type as they lie. */
static inline bool fo_reads_rows(const fo_linear *plan, fo_dtype x) {
    const fo_product_kernel *kernel = plan->kernel;
    return x == kernel->reads && x == kernel->product.a && kernel->phases == 1 && plan->k % kernel->product.group == 0;
}

fo_status fo_product_run(const fo_product_call *call);

/* For layers with loops of their own: the arguments of a call as a whole, of which rescale is a part where it is of
 * int8; those of its block from row i and a group's column j on, but for its size and A; and the threads that the whole
 * is worth. */
void fo_product_args(const fo_product_call *call, fo_gemm_args *args, fo_rescale *rescale);
fo_gemm_args fo_product_part(const fo_product_call *call, const fo_gemm_args *whole, ptrdiff_t group, ptrdiff_t i,
                             ptrdiff_t j);
int fo_product_threads(const fo_product_call *call);

/* Columns j .. j + n - 1 of m rows as the kernel reads them, on this thread, to floats; j is the first of a panel. */
void fo_product_columns(const fo_linear *plan, ptrdiff_t m, const void *a, ptrdiff_t lda, ptrdiff_t j, ptrdiff_t n,
                        float *c, ptrdiff_t ldc);

#endif
