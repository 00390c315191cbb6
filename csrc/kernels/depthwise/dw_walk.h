/* Depthwise convolution where lanes are columns (NCHW): a walk down a plane, with a few vectors of one output row.
 *
 * Each input row is loaded once and added to every output row that needs it; their sums are in registers (3 x 3,
 * stride 1):
 *
 *    input row t   ->  sum 0 += w[2][.] row      output row t-2, now complete: clipped and stored
 *                      sum 1 += w[1][.] row      output row t-1
 *                      sum 2  = w[0][.] row      output row t begins in the registers of row t-3
 *
 * Each output row is a chain of its own, so a processor that executes out of order hides the latency. Lanes left and
 * right of the image are masked to zero.
 */
#ifndef FO_DEPTHWISE_WALK_H
#define FO_DEPTHWISE_WALK_H

#include "common.h"

enum { DW_VECTORS = 8, DW_LOADS = 16, DW_TALL = 7, DW_LINE_VECTORS = VL < 16 ? 16 / VL : 1 };

/* How the columns of an input row are loaded: all are inside the image; masked vectors, out of which taps' columns are
 * shuffled; the same, and those after the row's vectors lie outside and are left out; a vector for each tap, masked
 * left of the kernel's middle in the first vector and right of it in the last, which ends where the row ends and
 * overlaps others; the same in the first alone; as DW_FITS, of seven output rows at a time; all with masks of their
 * own, of dilated kernels. */
typedef enum { DW_INSIDE, DW_MASKED, DW_FITS, DW_ENDS, DW_LEFT, DW_SEVEN, DW_EACH } dw_edge;

/* A walk's shape; a literal at every call. */
typedef struct {
    int k, s, nv, edge;
} dw_form;

/* The vectors of a row that a walk computes; the same for all channels. */
typedef struct {
    ptrdiff_t w;     /* the first output column */
    vm in[DW_LOADS]; /* lanes inside the image, of each load from an input row, or of each tap */
    int lanes;       /* to store of the last vector; DW_ENDS: those that no other vector has */
    ptrdiff_t last;  /* DW_ENDS: the last vector, from w on */
    int edge;
    ptrdiff_t ahead; /* what an input row fetches into the cache: a later row, or one of the next channels */
} dw_columns;

/* Output rows of some channels. */
typedef struct {
    const float *x, *w, *bias; /* of the first channel: the window's first row and column */
    float *y;
    ptrdiff_t channels, xc, yc, wc, bias_c; /* from one to the next */
    ptrdiff_t xh, yh, t, rows;              /* t: image row at x */
    size_t ih;
    ptrdiff_t dh, dw; /* DW_EACH */
    bool bounded;
    const ep_bounds *ep; /* in memory: registers are for sums and taps */
} dw_plane;

typedef void dw_walk_fn(const dw_plane *, const dw_columns *);

typedef struct {
    const float *x, *w;
    float *y;
    ptrdiff_t t, last;
    vm in[DW_LOADS];
    vf *start, taps[9], acc[8][DW_VECTORS];
} dw_state;

/* Output rows whose sums are under way. */
INLINE int dw_live(const dw_form f) { return (f.k + f.s - 1) / f.s; }
/* Output rows until the registers' roles come round; large kernels move the sums from register to register instead. */
INLINE int dw_turns(const dw_form f) { return f.k < 7 ? dw_live(f) : 1; }
/* Vectors of each phase of an input row (columns a stride from each other) that hold nv shifted ones. */
INLINE int dw_reach(const dw_form f) { return f.nv + ((f.k - 1) / f.s + VL - 1) / VL; }
INLINE int dw_loads(const dw_form f) { return f.s * dw_reach(f); }
/* Stride 2 where registers are few: every tap has its columns from memory by one shuffle, in the order of
 * v_uzp_inlane_even. Of 3 x 3 kernels alone. */
INLINE bool dw_mixes(const dw_form f) {
    return !DW_32 && f.k == 3 && f.s == 2 && f.edge != DW_MASKED && f.edge != DW_FITS;
}
/* Whether columns are loaded for each tap: a shuffle would wait where multiply-adds do. */
INLINE bool dw_loads_taps(const dw_form f) { return f.edge >= DW_ENDS || (f.s == 1 && f.edge == DW_INSIDE); }
INLINE int dw_masks(const dw_form f) { return f.edge == DW_EACH ? f.k * f.nv : f.edge >= DW_ENDS ? f.k : dw_loads(f); }
/* Whether the taps fit the registers, with the sums and a few vectors of the image; bounds, and where sums start, are
 * in memory then. */
INLINE bool dw_keeps_taps(const dw_form f) {
    const int free = REGISTERS - dw_live(f) * f.nv;
    return f.k <= 3 && f.k * f.k <= (f.s == 1 && f.nv == 2 && f.edge == DW_ENDS ? free - 1 : free - 4);
}
/* Whether the taps of one column at a time, for all vectors, fit better than all vectors' columns: sums and one vector
 * of the image fill the other registers. */
INLINE bool dw_by_taps(const dw_form f) { return f.k == 3 && f.nv > (DW_32 ? 4 : 1); }
/* Whether later rows are fetched ahead: strips have them at hand. */
INLINE bool dw_fetches(const dw_form f) {
    return f.edge != DW_EACH && (DW_32 || f.k > 3 || f.edge == DW_MASKED || f.edge == DW_FITS);
}
/* Whether y is fetched ahead too: where it is half of the bytes and a long row is whole; of pieces, 24x224x224, from
 * 512 to 547 us. */
INLINE bool dw_fetches_y(const dw_form f) {
    return DW_32 && f.k == 3 && f.s == 1 && f.nv >= 4 && f.edge >= DW_FITS && f.edge != DW_EACH;
}
INLINE ptrdiff_t dw_at(const dw_form f, const ptrdiff_t last, const int v) {
    return f.edge == DW_ENDS && v == f.nv - 1 ? last : v * VL;
}

/* The vectors of an input row from x on: the columns of each phase. */
INLINE void dw_load_row(const dw_form f, const vm in[DW_LOADS], const float *x, vf row[DW_LOADS]) {
    const int reach = dw_reach(f);
    vf all[DW_LOADS];
    UNROLL_FOR (int q = 0; q < dw_loads(f); q++) {
        const bool none = f.edge == DW_FITS && q >= f.nv * f.s;
        all[q] = none ? v_zero() : f.edge ? v_load_mask(x + q * VL, in[q]) : v_load(x + q * VL);
    }
    UNROLL_FOR (int v = 0; v < reach; v++) {
        row[v] = f.s == 1 ? all[v] : v_uzp_even(all[2 * v], all[2 * v + 1]);
        if (f.s == 2) row[reach + v] = v_uzp_odd(all[2 * v], all[2 * v + 1]);
    }
}

/* Stride 2, dw_mixes: taps 0 and 1 share two vectors; what is tap 1's is kept in odd. */
INLINE vf dw_mixed(const dw_form f, const vm in[DW_LOADS], const float *x, const bool ends, const int v, const int j,
                   vf odd[DW_VECTORS]) {
    if (j == 1) return odd[v];
    if (j == 2) return v_uzp_inlane_odd(v_load(x + 1), ends ? v_load_mask(x + VL + 1, in[2]) : v_load(x + VL + 1));
    vf a = f.edge >= DW_ENDS && !v ? v_load_mask(x, in[0]) : v_load(x), b = v_load(x + VL);
    v_force_reg(a);
    v_force_reg(b);
    odd[v] = v_uzp_inlane_odd(a, b);
    v_force_reg(odd[v]);
    return v_uzp_inlane_even(a, b);
}

/* Vector v of the columns of tap j, of the input row at x, or (row) of its vectors. */
INLINE vf dw_tap_columns(const dw_form f, const dw_state *s, const float *x, ptrdiff_t dw, const vf row[DW_LOADS],
                         vf odd[DW_VECTORS], const int v, const int j) {
    const float *at = x + f.s * dw_at(f, s->last, v) + (f.edge == DW_EACH ? j * dw : j);
    const bool ends = f.edge == DW_ENDS && v == f.nv - 1;
    if (f.edge == DW_EACH) return v_load_mask(at, s->in[j * f.nv + v]);
    if (dw_mixes(f)) return dw_mixed(f, s->in, at - j, ends, v, j, odd);
    if (dw_loads_taps(f)) {
        const bool left = f.edge >= DW_ENDS && !v && j < f.k / 2, right = ends && j > f.k / 2;
        return left || right ? v_load_mask(at, s->in[j]) : v_load(at);
    }
    const vf *from = row + j % f.s * dw_reach(f) + v + j / f.s / VL;
    return j / f.s % VL ? v_concat(from[0], from[1], j / f.s % VL) : from[0];
}

/* A sum += tap x; it begins with the kernel's first tap. */
INLINE void dw_add(const dw_form f, dw_state *s, const int q, const int v, const bool begins, const vf tap,
                   const vf xv) {
    vf *sum = &s->acc[q % dw_live(f)][v];
    if (begins) {
        if (!DW_32) v_force_mem(*s->start); /* registers are for sums and taps */
        *sum = v_fma(tap, xv, *s->start);
    } else if (dw_by_taps(f))
        v_fma_to(*sum, tap, xv);
    else
        *sum = v_fma(tap, xv, *sum);
}

/* The sums of output rows `first`, first + 1, ... += their taps of the input row at s->x, row i of the first. */
INLINE void dw_row(const dw_form f, dw_state *s, ptrdiff_t dw, const int i, const int first) {
    const float *x = s->x;
    vf row[DW_LOADS], odd[DW_VECTORS];
    if (!dw_mixes(f) && !dw_loads_taps(f)) dw_load_row(f, s->in, x, row);
    UNROLL_FOR (int j = 0; j < f.k; j++) {
        vf tap[8], xv[DW_VECTORS];
        UNROLL_FOR (int q = 0; q * f.s <= i; q++) {
            if (dw_keeps_taps(f) || !dw_by_taps(f)) continue;
            tap[q] = v_set1(s->w[(i - q * f.s) * f.k + j]);
            v_force_reg(tap[q]);
        }
        UNROLL_FOR (int v = 0; v < f.nv; v++) {
            xv[v] = dw_tap_columns(f, s, x, dw, row, odd, v, j);
            if (f.s == 1 || dw_by_taps(f)) v_force_reg(xv[v]);
            UNROLL_FOR (int q = 0; q * f.s <= i; q++)
                if (dw_by_taps(f))
                    dw_add(f, s, first + q, v, !j && q * f.s == i,
                           dw_keeps_taps(f) ? s->taps[(i - q * f.s) * f.k + j] : tap[q], xv[v]);
        }
        UNROLL_FOR (int q = 0; q * f.s <= i; q++) {
            if (dw_by_taps(f)) continue;
            const int at = (i - q * f.s) * f.k + j;
            const vf t = dw_keeps_taps(f) ? s->taps[at] : v_set1(s->w[at]);
            UNROLL_FOR (int v = 0; v < f.nv; v++) dw_add(f, s, first + q, v, !j && q * f.s == i, t, xv[v]);
        }
    }
}

/* Input row i of output row `first`; where it is outside the image, sums that would begin with it begin empty. */
INLINE void dw_input(const dw_form f, const dw_plane *a, const dw_columns *c, dw_state *s, const int i, const int first,
                     const bool ahead) {
    if (__builtin_expect((size_t)s->t < a->ih, 1)) {
        if (ahead)
            UNROLL_FOR (int q = 0; q < f.nv * f.s; q += DW_LINE_VECTORS) __builtin_prefetch(s->x + q * VL + c->ahead);
        if (ahead && dw_fetches_y(f))
            UNROLL_FOR (int q = 0; q < f.nv; q += DW_LINE_VECTORS) __builtin_prefetch(s->y + q * VL + FO_PAGE_FLOATS);
        dw_row(f, s, a->dw, i, first);
    } else if (i % f.s == 0) {
        UNROLL_FOR (int v = 0; v < f.nv; v++) s->acc[(first + i / f.s) % dw_live(f)][v] = *s->start;
    }
    s->t += f.edge == DW_EACH ? a->dh : 1, s->x += a->xh;
}

/* The next output row, whose sums are acc[turn]: its last input rows, and its store. */
INLINE void dw_output(const dw_form f, const dw_plane *a, const dw_columns *c, dw_state *s, const int turn) {
    const bool whole = f.edge == DW_INSIDE || f.edge == DW_ENDS || f.edge == DW_LEFT || c->lanes == VL;
    vf *done = s->acc[turn];
    UNROLL_FOR (int i = f.k - f.s; i < f.k; i++) dw_input(f, a, c, s, i, turn, dw_fetches(f));
    ep_vectors(a->ep, a->bounded, f.nv, done);
    UNROLL_FOR (int v = 0; v < f.nv; v++) {
        if (dw_mixes(f)) done[v] = v_lane_order(done[v]);
        if (whole || v < f.nv - 1)
            v_store(s->y + dw_at(f, s->last, v), done[v]);
        else
            v_store_tail(s->y + v * VL, done[v], c->lanes);
    }
    s->y += a->yh;
    if (dw_turns(f) == 1)
        UNROLL_FOR (int q = 0; q + 1 < dw_live(f); q++)
            UNROLL_FOR (int v = 0; v < f.nv; v++) s->acc[q][v] = s->acc[q + 1][v];
}

/* The rows of one channel. */
INLINE void dw_walk(const dw_form f, const dw_plane *a, const dw_columns *c, dw_state *s) {
    ptrdiff_t rows = a->rows;
    if (dw_keeps_taps(f))
        UNROLL_FOR (int t = 0; t < f.k * f.k; t++) s->taps[t] = v_set1(s->w[t]);
    UNROLL_FOR (int i = 0; i < f.k - f.s; i++) dw_input(f, a, c, s, i, 0, false);
    for (;;) { /* unrolled by hand: turns are literals, so that no sum moves from register to register */
#define TURN(turn) \
    if (turn < dw_turns(f)) { \
        if (!rows--) return; \
        dw_output(f, a, c, s, turn < dw_turns(f) ? turn : 0); \
    }
        TURN(0) TURN(1) TURN(2) TURN(3) TURN(4)
#undef TURN
    }
}

INLINE void dw_walks(const dw_form f, const dw_plane *args, const dw_columns *c) {
    const dw_plane a = *args; /* a copy, which the compiler knows that no store changes */
    vf start;
    dw_state s = {.last = c->last, .start = &start};
    if (f.edge)
        UNROLL_FOR (int q = 0; q < dw_masks(f); q++) s.in[q] = c->in[q];
    const float *x = a.x + c->w * f.s;
    float *y = a.y + c->w;
    for (ptrdiff_t n = 0; n < a.channels; n++) {
        s.x = x + n * a.xc, s.y = y + n * a.yc, s.w = a.w + n * a.wc, s.t = a.t;
        start = v_set1(a.bias[n * a.bias_c]);
        dw_walk(f, &a, c, &s);
    }
}

#endif
