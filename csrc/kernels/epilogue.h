/* y = activation(acc + bias + residual), on the registers that hold acc: the one place where fusion happens.
 *
 *   sums in registers   ep_start once a call; ep_vector, ep_store, ep_store_mask, or ep_rows for a tile
 *   sums in memory      ep_tile: edges, transposed tiles, activations that are not a clip
 *
 * Sums are float32. Other ends (sums of bytes, results of bytes) belong into ep_start, ep_vector and the stores, and in finish_vector.
 */
#ifndef FO_EPILOGUE_H
#define FO_EPILOGUE_H

#include "math.h"

/* `kind` is a literal at every call: the switch costs nothing. Formulas: fusedops.h. */
INLINE vf v_act(const fo_act_kind kind, vf x, float p0, float p1, vf slope) {
    switch (kind) {
        case FO_CLIP: return v_min(v_set1(p1), v_max(v_set1(p0), x)); /* this order lets NaN through */
        case FO_LEAKY_RELU: return v_select(v_lt(x, v_zero()), v_mul(v_set1(p0), x), x);
        case FO_PRELU: return v_select(v_lt(x, v_zero()), v_mul(slope, x), x);
        case FO_ELU: return v_select(v_lt(x, v_zero()), v_mul(v_set1(-p0), v_one_minus_exp(v_abs(x))), x);
        case FO_SIGMOID: return v_sigmoid(x);
        case FO_TANH: return v_tanh(x);
        case FO_GELU: return v_gelu(x);
        case FO_GELU_TANH: return v_gelu_tanh(x);
        case FO_SILU: return v_silu(x);
        case FO_HARDSIGMOID: return v_mul(v_clamp(v_add(x, v_set1(3)), 0, 6), v_set1(1 / 6.f));
        case FO_HARDSWISH:
            x = v_max(v_set1(-3), x);
            return v_mul(x, v_mul(v_min(v_set1(6), v_add(x, v_set1(3))), v_set1(1 / 6.f)));
        case FO_SOFTPLUS: return v_softplus(x);
        case FO_MISH: return v_mish(x);
        default: return x;
    }
}

/* The epilogue of results that stay in registers: no activation is a clip between infinities. Made once a call. */
typedef struct {
    vf lo, hi;
} ep_bounds;

INLINE ep_bounds ep_start(const fo_activation *act) {
    const bool clips = act->kind == FO_CLIP;
    return (ep_bounds){v_set1(clips ? act->p0 : -INFINITY), v_set1(clips ? act->p1 : INFINITY)};
}

/* y = activation(acc), and every store of it; this order of bounds lets NaN through. */
INLINE vf ep_vector(const ep_bounds *e, vf acc) { return v_min(e->hi, v_max(e->lo, acc)); }
INLINE void ep_store(const ep_bounds *e, float *y, vf acc) { v_store(y, ep_vector(e, acc)); }
INLINE void ep_store_mask(const ep_bounds *e, float *y, vf acc, vm m) { v_store_mask(y, ep_vector(e, acc), m); }

enum { EP_VECTORS = 8 }; /* most vectors of a tile's row */

/* mr rows of nv vectors, plus the residual's rows at r unless it is NULL, to c; a literal each: mr, nv and half, which tells of half a vector more:
 * that of rows i and i + 1 is acc[i][nv]. */
INLINE void ep_rows(const ep_bounds *e, const int mr, const int nv, const bool half, vf acc[][EP_VECTORS], const float *r, ptrdiff_t ldr, float *c, ptrdiff_t ldc) {
    if (r)
        UNROLL for (int i = 0; i < mr; i++, r += ldr) {
            UNROLL for (int j = 0; j < nv; j++) acc[i][j] = v_add(acc[i][j], v_load(r + j * VL));
            if (half && i % 2 == 0) acc[i][nv] = v_add(acc[i][nv], v_load_halves(r + nv * VL, r + nv * VL + (i + 1 < mr ? ldr : 0)));
            v_launder(r); /* or each row would take a pointer */
        }
    UNROLL for (int i = 0; i < mr; i++, c += ldc) {
        UNROLL for (int j = 0; j < nv; j++) ep_store(e, c + j * VL, acc[i][j]);
        if (half && i % 2 == 0 && i + 1 < mr) v_store_halves(c + nv * VL, c + ldc + nv * VL, ep_vector(e, acc[i][nv]));
        if (half && i % 2 == 0 && i + 1 == mr) v_store_tail(c + nv * VL, ep_vector(e, acc[i][nv]), VL / 2);
        v_launder(c);
    }
}

/* Runs `statement` with KIND as a literal: one copy of it for each activation. */
#define WITH_ACTIVATION(kind, statement) \
    do switch (kind) { \
        KIND_CASE(FO_IDENTITY, statement) KIND_CASE(FO_CLIP, statement) KIND_CASE(FO_LEAKY_RELU, statement) \
        KIND_CASE(FO_PRELU, statement) KIND_CASE(FO_ELU, statement) KIND_CASE(FO_SIGMOID, statement) \
        KIND_CASE(FO_TANH, statement) KIND_CASE(FO_GELU, statement) KIND_CASE(FO_GELU_TANH, statement) \
        KIND_CASE(FO_SILU, statement) KIND_CASE(FO_HARDSIGMOID, statement) KIND_CASE(FO_HARDSWISH, statement) \
        KIND_CASE(FO_SOFTPLUS, statement) KIND_CASE(FO_MISH, statement) \
        case FO_ACTIVATIONS: break; \
    } while (0)
#define KIND_CASE(k, statement) \
    case k: { const fo_act_kind KIND = k; statement; } break;

/* The tile's rows are `mr` vectors of `ldt` floats; r and c are the tile's places in the residual and in C. */
typedef struct {
    const float *tile;
    int mr, n; /* rows and columns that are wanted */
    ptrdiff_t ldt;
    const float *r;
    ptrdiff_t ldr;
    float *c;
    ptrdiff_t ldc;
    const float *slopes; /* of the tile's first channel */
    bool channel_rows;
    float p0, p1;
} finish_args;

/* One vector: the first n lanes, m, of acc[] + r[] through the activation to c[]; all: m has every lane, and no mask is applied. */
INLINE void finish_vector(const fo_act_kind kind, const bool all, const finish_args *f, vf acc, const float *r, float *c, int n, vm m, vf slope) {
    if (r) acc = v_add(acc, all ? v_load(r) : v_load_mask(r, m));
    acc = v_act(kind, acc, f->p0, f->p1, slope);
    if (all)
        v_store(c, acc);
    else
        v_store_first(c, acc, n, m);
}

/* Columns j.. of every row. */
INLINE void finish_vectors(const fo_act_kind kind, const bool all, const finish_args *f, int j) {
    const vm m = v_range(0, f->n - j);
    vf slope = kind == FO_PRELU && !f->channel_rows ? v_load_mask(f->slopes + j, m) : v_zero();
    for (int i = 0; i < f->mr; i++) {
        if (kind == FO_PRELU && f->channel_rows) slope = v_set1(f->slopes[i]);
        finish_vector(kind, all, f, v_load(f->tile + i * f->ldt + j), f->r ? f->r + i * f->ldr + j : NULL, f->c + i * f->ldc + j, f->n - j, m, slope);
    }
}

INLINE void finish_rows(const fo_act_kind kind, const finish_args *args) {
    const finish_args f = *args; /* in registers: a store through c could change what args points to */
    int j = 0;
    for (; j + VL <= f.n; j += VL) finish_vectors(kind, true, &f, j);
    if (j < f.n) finish_vectors(kind, false, &f, j);
}

/* VL columns from j on of VL rows from i on, of which the first n, lanes m, are there, in t: from the registers to C. */
INLINE void finish_block(const fo_act_kind kind, const bool all, const finish_args *f, int i, int j, vf *t, int n, vm m) {
    float *c = f->c + j * f->ldc + i;
    const float *r = f->r ? f->r + j * f->ldr + i : NULL;
    if (r)
        UNROLL for (int l = 0; l < VL; l++, r += f->ldr) {
            v_launder(r);
            t[l] = v_add(t[l], all ? v_load(r) : v_load_mask(r, m));
        }
    UNROLL for (int l = 0; l < VL; l++, c += f->ldc) {
        v_launder(c);
        finish_vector(kind, all, f, t[l], NULL, c, n, m, v_zero());
    }
}

/* The same for a C that stands column after column: VL x VL blocks are transposed on the way. */
INLINE void finish_columns(const fo_act_kind kind, const finish_args *args) {
    const finish_args f = *args;
    for (int i = 0; i < f.mr; i += VL) {
        const int left = f.mr - i;
        const bool all = left >= VL;
        const vm m = v_range(0, left);
        vf slope = kind == FO_PRELU && f.channel_rows ? v_load_mask(f.slopes + i, m) : v_zero();
        for (int j = 0; j < f.n; j += VL) {
            const float *row = f.tile + i * f.ldt + j;
            vf t[VL];
            UNROLL for (int l = 0; l < VL; l++) {
                t[l] = v_load(row);
                if (all || l + 1 < left) row += f.ldt; /* lanes beyond are not stored */
                v_launder(row);
            }
            v_transpose(t);
            if (kind <= FO_CLIP && j + VL <= f.n) { /* the common case */
                if (all)
                    finish_block(kind, true, &f, i, j, t, left, m);
                else
                    finish_block(kind, false, &f, i, j, t, left, m);
                continue;
            }
            float block[VL * VL];
            UNROLL for (int l = 0; l < VL; l++) v_store(block + l * VL, t[l]);
            for (int l = 0; l < VL && j + l < f.n; l++) {
                ptrdiff_t at = j + l;
                if (kind == FO_PRELU && !f.channel_rows) slope = v_set1(f.slopes[at]);
                finish_vector(kind, false, &f, v_load(block + l * VL), f.r ? f.r + at * f.ldr + i : NULL, f.c + at * f.ldc + i, left, m, slope);
            }
        }
    }
}

/* A tile that does not leave its registers by itself. */
void FO_NAME(fo_finish_tile)(const finish_args *f, fo_act_kind kind, bool transposed);

/* Such a tile of a product, whose sums stand in memory in rows of ldt floats: mr rows and n columns of C, from row i and column j on. */
INLINE void ep_tile(const fo_epilogue *ep, const float *tile, ptrdiff_t ldt, int mr, int n, ptrdiff_t i, ptrdiff_t j, float *c, ptrdiff_t ldc) {
    const ptrdiff_t row = ep->transposed ? j : i, column = ep->transposed ? i : j;
    const finish_args f = {.tile = tile, .mr = mr, .n = n, .ldt = ldt, .r = ep->residual ? ep->residual + row * ep->ldr + column : NULL, .ldr = ep->ldr,
                           .c = c + row * ldc + column, .ldc = ldc, .channel_rows = ep->channel_rows, .p0 = ep->act.p0, .p1 = ep->act.p1,
                           .slopes = ep->act.slopes ? ep->act.slopes + (ep->channel_rows ? i : j) : NULL};
    FO_NAME(fo_finish_tile)(&f, ep->act.kind, ep->transposed);
}

#endif
