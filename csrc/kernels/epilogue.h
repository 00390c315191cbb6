/* y = activation(acc + bias + residual), on the registers that hold acc: the one place where fusion happens.
 *
 *   sums in registers   ep_start once a call; ep_vector, ep_store, ep_store_mask, or ep_rows for a tile
 *   sums in memory      ep_tile: edges, transposed tiles, activations that are not a clip
 *
 * Sums are float32. Other ends (sums of bytes, results of bytes) belong into ep_start, ep_vector and the stores, and in
 * finish_vector.
 */
#ifndef FO_EPILOGUE_H
#define FO_EPILOGUE_H

#include "math.h"

#define VALUE_CASE(with, kind, name, value) \
    case kind: return value;

/* `kind` is a literal at every call: the switch costs nothing. */
INLINE vf v_act(const fo_act_kind kind, vf x, float p0, float p1, vf slope) {
    switch (kind) {
        FO_EACH_ACTIVATION(VALUE_CASE, )
        case FO_ACTIVATIONS: break;
    }
    return x;
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

/* The same of n sums in place; bounded: the upper bound is below infinity, and is left out otherwise. */
INLINE bool ep_bounded(const fo_activation *act) { return act->kind == FO_CLIP && act->p1 < INFINITY; }
INLINE void ep_vectors(const ep_bounds *e, const bool bounded, const int n, vf acc[]) {
    UNROLL_FOR (int v = 0; v < n; v++) acc[v] = v_max(e->lo, acc[v]);
    if (bounded)
        UNROLL_FOR (int v = 0; v < n; v++) acc[v] = v_min(e->hi, acc[v]);
}

/* And to y, `step` floats from one to the next. */
INLINE void ep_row(const ep_bounds *e, const bool bounded, const int n, vf acc[], float *y, ptrdiff_t step) {
    ep_vectors(e, bounded, n, acc);
    UNROLL_FOR (int v = 0; v < n; v++) {
        v_store(y + v % 4 * step, acc[v]);
        if (v != 3) continue;
        y += 4 * step;
        v_launder(y); /* or each vector would take a pointer */
    }
}

enum { EP_VECTORS = 8 }; /* most vectors of a tile's row */

/* mr rows of nv vectors, plus the residual's rows at r unless it is NULL, to c; a literal each: mr, nv and half, which
 * tells of half a vector more: that of rows i and i + 1 is acc[i][nv]. */
INLINE void ep_rows(const ep_bounds *e, const int mr, const int nv, const bool half, vf acc[][EP_VECTORS],
                    const float *r, ptrdiff_t ldr, float *c, ptrdiff_t ldc) {
    if (r)
        UNROLL_FOR (int i = 0; i < mr; i++, r += ldr) {
            UNROLL_FOR (int j = 0; j < nv; j++) acc[i][j] = v_add(acc[i][j], v_load(r + j * VL));
            if (half && i % 2 == 0)
                acc[i][nv] = v_add(acc[i][nv], v_load_halves(r + nv * VL, r + nv * VL + (i + 1 < mr ? ldr : 0)));
            v_launder(r); /* or each row would take a pointer */
        }
    UNROLL_FOR (int i = 0; i < mr; i++, c += ldc) {
        UNROLL_FOR (int j = 0; j < nv; j++) ep_store(e, c + j * VL, acc[i][j]);
        if (half && i % 2 == 0 && i + 1 < mr) v_store_halves(c + nv * VL, c + ldc + nv * VL, ep_vector(e, acc[i][nv]));
        if (half && i % 2 == 0 && i + 1 == mr) v_store_tail(c + nv * VL, ep_vector(e, acc[i][nv]), VL / 2);
        v_launder(c);
    }
}

/* Runs `statement` with KIND as a literal: one copy of it for each activation. */
#define WITH_ACTIVATION(kind, statement) \
    do switch (kind) { \
        FO_EACH_ACTIVATION(KIND_CASE, statement) \
        case FO_ACTIVATIONS: break; \
    } while (0)
#define KIND_CASE(statement, k, name, value) \
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

/* One vector: the first n lanes, m, of acc[] + r[] through the activation to c[]; all: m has every lane, and no mask is
 * applied. */
INLINE void finish_vector(const fo_act_kind kind, const bool all, const finish_args *f, vf acc, const float *r,
                          float *c, int n, vm m, vf slope) {
    if (r) acc = v_add(acc, all ? v_load(r) : v_load_mask(r, m));
    acc = v_act(kind, acc, f->p0, f->p1, slope);
    if (all)
        v_store(c, acc);
    else
        v_store_first(c, acc, n, m);
}

/* A tile that does not leave its registers by itself. */
void FO_NAME(fo_finish_tile)(const finish_args *f, fo_act_kind kind, bool transposed);

/* Such a tile of a product, whose sums stand in memory in rows of ldt floats: mr rows and n columns of C, from row i
 * and column j on. */
#define ep_tile FO_NAME(fo_ep_tile)
void ep_tile(const fo_epilogue *ep, const float *tile, ptrdiff_t ldt, int mr, int n, ptrdiff_t i, ptrdiff_t j, float *c,
             ptrdiff_t ldc);

#endif
