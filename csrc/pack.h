/* What the operations share: packing, and the choice of activation arguments. */
#ifndef FO_PACK_H
#define FO_PACK_H

#include "fusedops.h"
#include "kernels/table.h"
#include "runtime/arena.h"
#include "machine/isa.h"
#include "machine/tune.h"
#include "runtime/parallel.h"

static inline ptrdiff_t min_(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
static inline ptrdiff_t max_(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
static inline ptrdiff_t clamp_(ptrdiff_t v, ptrdiff_t least, ptrdiff_t most) { return max_(least, min_(v, most)); }
static inline ptrdiff_t div_up(ptrdiff_t a, ptrdiff_t b) { return (a + b - 1) / b; }
static inline ptrdiff_t round_up(ptrdiff_t a, ptrdiff_t b) { return div_up(a, b) * b; }

/* The kernels for a product with n columns of weights and k steps, of many rows or perhaps of few. With AVX-512 at half
 * rate (Zen 4) vectors of 8 lanes are as fast, and waste less where n leaves half of a vector empty: 144 -> 24 channels
 * at 56x56, channels last, takes 0.68 of the time, n = 8, 40 and 72 0.65, 0.8 and 0.9. Their stores, of half a line a
 * cycle, also do better with few steps: 16 -> 96 at 112x112 0.93, k = 16 to 48 0.91 to 0.97; of four rows 1.1. */
static inline const fo_kernels *fo_kernels_for(ptrdiff_t n, ptrdiff_t k, bool many_rows) {
    enum { LANES = 16 };
    const bool wasted = (n - 1) % LANES < LANES / 2 && n <= FO_FINER_COLUMNS;
    return wasted || (many_rows && k <= FO_HALF_WIDTH_STEPS) ? fo_half_width_kernels() : fo_active();
}

/* Distance of rows of n floats: rows a multiple of 1 KB apart would share few sets of the first-level cache. */
static inline ptrdiff_t fo_leading(const fo_kernels *kn, ptrdiff_t n) {
    const ptrdiff_t ld = round_up(n, kn->vl);
    return ld % 256 ? ld : ld + 16;
}

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

/* Whether to fetch lines of a result of so many floats before they are written: third levels that others use, too, keep
 * less. Before activations that take longer than the lines it costs more than it gains (3136x96x384 with GELU 1.02). */
static inline bool fo_is_large(ptrdiff_t floats, fo_act_kind kind) {
    return fo_in_registers(&(fo_activation){.kind = kind}) && 4 * floats > FO_L3_PIECE;
}

/* Multiply-adds that an activation takes as long as. */
static inline double fo_act_cost(const fo_activation *act) { return act->kind <= FO_PRELU ? 0 : FO_ACTIVATION_MACS; }

/* Threads to write so many floats of packed weights; each reads what the other wrote, later. */
static inline int fo_pack_threads(ptrdiff_t floats) { return fo_threads_for(FO_PACK_NS * (double)floats); }

/* A copy of n floats in plan memory, with zeros behind them, for a panel's vectors are read from any of them on; NULL
 * where p is NULL (sets *failed where memory is short). */
enum { MAX_LANES = 16 };
float *fo_copy(const float *p, ptrdiff_t n, bool *failed);

/* Estimated nanoseconds of a job of so many multiply-adds of floats and bytes on one thread, for fo_threads_for. */
enum { FO_BYTES_A_NS = 60 };
static inline double fo_nanoseconds(const fo_kernels *kn, double multiply_adds, double bytes) {
    double compute = multiply_adds / ((fo_at_half_rate(kn) ? 2.0 : 4.0) * kn->vl), memory = bytes / FO_BYTES_A_NS;
    return compute > memory ? compute : memory;
}

#endif
