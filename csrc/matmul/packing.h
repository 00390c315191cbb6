/* Packing of weights into panels; folding of scales into them. */
#ifndef FO_PACKING_H
#define FO_PACKING_H

#include "../dispatch/estimate.h"
#include "../runtime/arena.h"

/* Floats of a B[k,n] packed into panels of nr columns. */
static inline ptrdiff_t fo_packed_size(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k) {
    return round_up(n, kn->nr) * k;
}

/* Lets B of a product be these panels, k steps each, from number `first` on. */
static inline void fo_gemm_panels(const fo_kernels *kn, fo_gemm_args *g, const void *panels, fo_dtype type,
                                  ptrdiff_t first) {
    g->form = FO_ROWS, g->b_type = type;
    g->ldb = kn->nr * fo_size(type) / (ptrdiff_t)sizeof(float), g->panel = g->ldb * g->k;
    g->b = (const float *)panels + first * g->panel;
}

/* Packs B[k,n], element (p, j) at b[p*bk + j*bn], into panels of nr columns, the last padded with zeros:
 *
 *      B  k x n            packed
 *    +-----+-----+--+      panel 0: row 0 of nr floats, row 1, ... row k-1; panel 1: the same; ...
 *    |  0  |  1  |2 |
 *    +-----+-----+--+
 */
void fo_pack(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k, const float *b, ptrdiff_t bk, ptrdiff_t bn, float *packed);
/* The same of weights of any type, into panels of that type. */
void fo_pack_weights(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k, const fo_weights *b, ptrdiff_t bk, ptrdiff_t bn,
                     void *packed);
/* Rows of n x k weights of any type, times a scale a row (or NULL), as bfloat16, contiguous; NULL where memory is
 * short. */
uint16_t *fo_bf16_weights(ptrdiff_t n, ptrdiff_t k, const fo_weights *w, ptrdiff_t wn, ptrdiff_t wk,
                          const double *scale);
/* y[j*ldy + i] = x[i*ldx + j] for i < m, j < n, as kn->transpose, of 16 bits. */
void fo_transpose_16(ptrdiff_t m, ptrdiff_t n, const uint16_t *x, ptrdiff_t ldx, uint16_t *y, ptrdiff_t ldy);
/* Whether a product of n columns and k steps is made of dot products, FO_COLUMNS: the order of its sums is another. */
static inline bool fo_is_dots(ptrdiff_t n, ptrdiff_t k) {
    return n <= FO_DOT_COLUMNS && k >= (n == 1 ? FO_DOT_LANES : FO_DOT_STEPS);
}
/* The columns of B as the rows of k floats that these read, and B of a product so. */
void fo_pack_columns(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k, const fo_weights *b, ptrdiff_t bk, ptrdiff_t bn,
                     float *columns);
static inline void fo_gemm_columns(const fo_kernels *kn, fo_gemm_args *g, const float *columns, ptrdiff_t ld) {
    g->form = FO_COLUMNS, g->b = columns, g->ldb = ld, g->panel = kn->nr * ld;
}
/* One panel, of n <= nr columns. */
void fo_pack_panel(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k, const float *b, ptrdiff_t bk, ptrdiff_t bn,
                   float *panel);

/* A copy of n floats in plan memory, followed by zeros, for a panel's vectors are read from any of them on; NULL
 * where p is NULL (sets *failed where memory is short). */
float *fo_copy(const float *p, ptrdiff_t n, bool *failed);

#endif
