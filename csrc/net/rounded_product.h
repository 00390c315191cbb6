/* Products of bfloat16 inside other operations, on the thread that calls: C = A B + bias, operands rounded, sums and C
 * float32. Where the processor has no product of bfloat16 the rounded operands stand in float32, and so do sums.
 *
 *   A   rows of fo_rounded_bytes, which fo_round makes; of bfloat16 a last group of two steps is whole, with a zero
 *   B   panels, as net/qgemm.h and pack.h have them
 */
#ifndef FO_ROUNDED_PRODUCT_H
#define FO_ROUNDED_PRODUCT_H

#include "../pack.h"
#include "qgemm.h"

/* Rows of operands: where they are, and the bytes from one to the next. */
typedef struct {
    char *at;
    ptrdiff_t ld;
} fo_rounded_rows;

/* Bytes of a row of k operands, up to four each; rows far apart would share few sets of the first-level cache. */
static inline ptrdiff_t fo_rounded_bytes(const fo_qkernels *qkn, ptrdiff_t k) {
    const ptrdiff_t narrow = round_up(2 * k, 4), far = FO_SHARED_SETS_FLOATS * (ptrdiff_t)sizeof(float);
    return !qkn->gemm_bf16 ? 4 * k : k && narrow % far == 0 ? narrow + 64 : narrow;
}

/* n floats, rounded; to may be x. */
void fo_round_floats(const fo_qkernels *qkn, ptrdiff_t n, const float *x, float *to);

/* Elements first .. first + n - 1 of a row of k, from x on. Where the row is of floats, it may be x's. */
void fo_round(const fo_qkernels *qkn, ptrdiff_t k, const float *x, void *row, ptrdiff_t first, ptrdiff_t n);

/* Weights that are packed: n columns of k steps, and a bias. */
typedef struct {
    const fo_kernels *kn;
    fo_qplan narrow; /* its kernels say whether the processor multiplies bfloat16; else */
    void *panels;    /* of bfloat16 that are widened in registers */
    float *bias;
    ptrdiff_t n, k;
} fo_rounded_weights;

/* Of n rows of k bfloat16; bias: n, or NULL. False where memory is short; free it all the same. */
bool fo_rounded_weights_make(fo_rounded_weights *to, ptrdiff_t n, ptrdiff_t k, const uint16_t *w, const float *bias);
void fo_rounded_weights_free(fo_rounded_weights *w);

/* Columns from which a product may start are multiples of this. */
static inline ptrdiff_t fo_rounded_panel(const fo_kernels *kn) { return 4 * kn->vl; }

/* Columns j .. j + n - 1 for m rows, j a multiple of fo_rounded_panel. */
void fo_rounded_weights_product(const fo_rounded_weights *w, ptrdiff_t m, fo_rounded_rows a, ptrdiff_t j, ptrdiff_t n,
                                float *c, ptrdiff_t ldc);

/* C = A B of panels of bfloat16: n columns of k steps, and a bias, zeros or more, in whole vectors. */
void fo_rounded_gemm(const fo_qkernels *qkn, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, fo_rounded_rows a,
                     const void *panels, const float *bias, float *c, ptrdiff_t ldc);

#endif
