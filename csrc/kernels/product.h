/* Products C = epilogue(A B): what they multiply, the arguments of a call, and a kernel as a row of its set's list.
 *
 *              A (rows)      B (weights)           sums      steps of a group
 *   float32    float32       one of FO_EACH_WEIGHT float32   1
 *   bfloat16   bfloat16      bfloat16              float32   2, or 1 where rows and panels are widened
 *   int8       uint8, int8   int8                  int32     4
 *   in blocks  float32, int8 4 or 8 bits           float32   their own (fo_blockwise)
 *
 * Which of them runs is decided when a plan is made; nothing that calls a kernel asks for types again.
 */
#ifndef FO_KERNELS_PRODUCT_H
#define FO_KERNELS_PRODUCT_H

#include "../include/fusedops/fusedops.h"

/* Activations that stay in registers: none, or a clip. */
static inline bool fo_in_registers(const fo_activation *act) { return act->kind <= FO_CLIP; }

/* ---- the epilogue ------------------------------------------------------------------------------------------------ */

/* How sums of int8 become results: y = activation(residual_scale * (residual - residual_zero) + (sum * scale + bias)),
 * a float or rounded and saturated to int8. Sums start with `start`. nudge: they start with their bias, and the bias
 * of the epilogue is what scale lacks (eb_twice). Operations of floats in this order, a multiply-add rounding once, so
 * that all sets are bit-identical. Arrays have an element a channel, whole vectors. */
typedef struct {
    const int32_t *start;  /* with row_zero the sums of weights */
    const int32_t *w_zero; /* zero points of the weights, negated, or NULL */
    const float *scale;
    const float *nudge; /* or NULL */
    bool longer;        /* with nudge: sums may not fit the bits of a float */
    bool saturates;     /* no bounds but those of int8, and rounded values fit 32 bits */
    float residual_scale;
    int32_t residual_zero;
    float product_scale, product_lo, product_hi; /* 0, or of what the last brackets are rounded to, see eb_residual */
    float lo,
        hi; /* bounds of floats; of int8 less zero; where an activation clips, those are in units of their scale */
    float inverse; /* else 1 / that scale */
    int32_t zero;  /* of a uint8 */
} fo_rescale;

/* What is applied to sums before their one store: y = activation(sum + bias + residual). Sums are float32, or with a
 * rescale int32. */
typedef struct {
    /* one a channel, or NULL; of groups of bfloat16 NULL: sums are results, and n is whole vectors */
    const float *bias;
    const void *residual; /* laid out as C with its own ldr, or NULL */
    ptrdiff_t ldr;
    fo_dtype type, residual_type; /* of C and of the residual: those that a kernel stores (fo_product_kernel) */
    bool channel_rows;            /* channels are the rows of C, else its columns */
    bool transposed;              /* C and residual stand column after column: element (i, j) at c[j*ldc + i] */
    /* C is part of more than a core's own caches hold: tiles that are functions of their own fetch its lines before
     * they make sums */
    bool large;
    fo_activation act;
    const fo_rescale *rescale; /* of int8, from `column` of the product on; or NULL */
} fo_epilogue;

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* How a tile of floats finds A and B at step p of the reduction, whatever the type of B. */
typedef enum {
    FO_ROWS,      /* a[i*lda + p], b[p*ldb] */
    FO_A_TABLE,   /* a[i*lda + table[p]], b[p*ldb]: a convolution whose rows are pixels */
    FO_B_TABLE,   /* a[i*lda + p], b[table[p]]: a convolution whose columns are pixels */
    FO_BLOCKWISE, /* a[i*lda + p], weights of 4 or 8 bits: `bits` from step `first` and column `column` on */
    FO_UNPACKING, /* the same, for a tile's rows: its weights also go to `packed` */
    FO_B_PACKING, /* as FO_ROWS, of a B in the caller's memory: nothing is read beyond column n */
    FO_COLUMNS,   /* a[i*lda + p*ak], b[j*ldb + i*bi + p]: few columns of many steps (fo_is_dots), k > 0 */
    FO_FORMS
} fo_form;

/* Sums of up to FO_CHAIN_STEPS terms are one chain of multiply-adds, longer ones of blocks: right to 1e-6 of the
 * magnitudes of the terms. Of up to FO_DOT_COLUMNS columns and FO_DOT_STEPS steps or more they are dot products, with
 * weights that have no padding: 25088 -> 4 in a twentieth of the time (Xeon, AVX-512). */
enum { FO_CHAIN_STEPS = 8192, FO_CHAIN_BLOCK = 128, FO_DOT_STEPS = 512 };
enum { FO_DOT_LANES = 32 }; /* sums of a dot product, and steps from which on one column is one */

/* C[m,n] = epilogue(A[m,k] B[k,n]).
 *
 * Of floats: k steps. B is in panels of nr columns, `panel` floats each, the last one padded but for FO_B_PACKING.
 * FO_ROWS take it in any type that products have weights of: b, ldb and panel count floats all the same, the room of
 * two of 16 bits.
 *
 * Of groups of four bytes, int8's or bfloat16's (a_groups, b_groups): rows of A are `segments` of k groups, the last
 * one padded, each 4 * phases bytes; a segment begins `segment` bytes after the one before. There are `lines` such
 * products, each with rows of its own, by one B. B is in panels of nr, 2 * vl or vl columns (fo_panel_columns), each
 * segments * k groups a column. row_zero and row_scale: those of A's rows, zero points negated, or NULL. row_sums: of
 * the kernel of this name, where weights have zero points. By weights in blocks rows have as many bytes, each block a
 * scale and, as row_zero, its negated sum (quantized/qblockwise.h). */
typedef struct {
    fo_form form;
    fo_dtype b_type;
    ptrdiff_t m, n, k;
    union {
        const float *a;
        const uint8_t *a_groups;
    };
    ptrdiff_t lda; /* floats, or bytes of groups */
    union {
        const float *b;
        const int8_t *b_groups;
    };
    ptrdiff_t ldb, panel;
    /* scratch: FO_B_PACKING, and FO_BLOCKWISE of more than FO_BLOCKWISE_ROWS, for a panel, k * nr floats; 4 bits by
     * tiles, for a panel's bytes */
    float *packed;
    const ptrdiff_t *table;
    const fo_blockwise *bits; /* weights in blocks */
    ptrdiff_t first, column;  /* column: of the product, where this call's first one is */
    /* what is read after this product and may be far: so many floats are fetched ahead; NULL: the next panel may be */
    const float *next;
    ptrdiff_t next_floats;
    /* sums start at start + sign * accum2, of rows of lds floats, instead of the bias; both may be NULL */
    const float *start, *accum2;
    float sign;
    ptrdiff_t lds;
    union {
        float *c;
        void *c_typed; /* of the epilogue's type */
    };
    ptrdiff_t ldc;
    fo_epilogue ep;
    /* FO_A_TABLE: so many steps from any multiple of it on stand side by side, a multiple of 4; 0: they may not */
    ptrdiff_t run;
    /* FO_COLUMNS: the distance of A's steps, where lda is 1, else 0; of the B of a row and the next one's, where n is 1
     */
    ptrdiff_t ak, bi;
    /* groups: how many segments and lines; to the next: bytes of A, elements of C and of the residual */
    ptrdiff_t segments, segment, lines, a_line, c_line, r_line;
    const int32_t *row_zero, *row_sums;
    const float *row_scale;
} fo_gemm_args;

/* One line of a product of groups. */
static inline fo_gemm_args fo_gemm_line(const fo_gemm_args *g, ptrdiff_t line) {
    fo_gemm_args one = *g;
    const ptrdiff_t rows = line * g->m;
    one.lines = 1, one.a_groups += line * g->a_line;
    one.c_typed = (char *)g->c_typed + line * g->c_line * fo_size(g->ep.type);
    if (g->ep.residual)
        one.ep.residual = (const char *)g->ep.residual + line * g->r_line * fo_size(g->ep.residual_type);
    if (g->row_scale) one.row_scale += rows;
    if (g->row_zero) one.row_zero += rows;
    if (g->row_sums) one.row_sums += rows;
    return one;
}

/* ---- a kernel ---------------------------------------------------------------------------------------------------- */

/* What a product multiplies and sums. */
typedef struct {
    fo_dtype a, b, acc; /* b of weights in blocks: FO_U8 */
    int group;          /* steps of k in an element of a panel */
} fo_product;

/* A row of a set's list. */
typedef struct fo_product_kernel {
    fo_product product;
    fo_dtype reads; /* of A's rows: the product's, or FO_F32 where they are rounded and widened before */
    unsigned types; /* of C and the residual: bits FO_OF */
    bool segments;  /* takes segments and lines */
    bool tiles;     /* AMX */
    int phases;     /* parts of a group's operands */
    int mr, nr;     /* rows and columns of a tile */
    double rate;    /* multiply-adds a nanosecond in each lane, for what threads are worth; not of rows of floats */
    const struct fo_product_costs *costs; /* machine/tune.h; NULL: those of floats */
    void (*run)(const fo_gemm_args *);
} fo_product_kernel;

#define FO_OF(type) (1u << (type))

enum { FO_TILE_GROUPS = 16 }; /* of four bytes, in a row of a tile (AMX) */

/* Columns of the next panel of groups where so many are left. */
static inline ptrdiff_t fo_panel_columns(ptrdiff_t left, ptrdiff_t vl, ptrdiff_t nr) {
    const ptrdiff_t vectors = (left + vl - 1) / vl;
    return vectors * vl >= nr ? nr : vectors >= 2 ? 2 * vl : vl;
}

#endif
