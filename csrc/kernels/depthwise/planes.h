/* Depthwise convolution where lanes are columns (NCHW): a walk down a plane with a few vectors of one output row side by side.
 *
 * Each input row is loaded once and added to every output row that needs it; their sums stand in registers (3 x 3, stride 1):
 *
 *    input row t   ->  sum 0 += w[2][.] row      output row t-2, now complete: epilogue, store; its registers start row t+1
 *                      sum 1 += w[1][.] row      output row t-1
 *                      sum 2 += w[0][.] row      output row t
 *
 * Each output row is a chain of its own, so a processor that runs ahead hides the latency. Lanes left and right of the image are
 * masked to zero. Where a row is wider than a vector, its last vector ends where the row ends and overlaps the one before (stride 1).
 * Rows that one vector holds are computed DW_TALL at a time, in straight code (networks' images are multiples of 7).
 * Where registers are few, 3 x 3 walks are short (dw_strips).
 */
#ifndef FO_DEPTHWISE_PLANES_H
#define FO_DEPTHWISE_PLANES_H

#include "common.h"

enum { DW_STRIP_ROWS = 16 };
enum { DW_WIDE = 4, DW_LOADS = 16, DW_TALL = 7, DW_LINE = VL < 16 ? 16 / VL : 1 /* vectors of a cache line */ };

/* What walks fetch ahead: 4 KB, 96x112x112, stride 2, from 81 to 66 us; 32x128x128 from 68 to 62. */
enum { DW_AHEAD = 1024 };

/* Vectors of a whole row of a 3 x 3 kernel of stride 1 where registers hold three rows of sums, the taps of one column and a vector of the image:
 * rows in pieces are streams with gaps. 32x128x128, 4.2 MB, from 228 to 198 us, and with y fetched ahead to 168; 64x80x80 from 165 to 128. */
enum { DW_WALKS = 8, DW_ROW = REGISTERS < 32 ? DW_WIDE : DW_WALKS };

/* A walk's shape; a literal at every call. nv vectors stand side by side. */
typedef struct {
    int k, s, nv, edge; /* edge: see dw_edge */
} dw_form;

/* Loads of an input row: all inside the image; masked; masked, and those behind the nv vectors lie outside and are left out; masked only
 * for the taps left of the kernel's middle in the first vector, and right of it in the last; of strips, in the first alone. */
typedef enum { DW_INSIDE, DW_MASKED, DW_FITS, DW_ENDS, DW_EDGES, DW_LEFT = DW_EDGES } dw_edge;

/* Where a walk stands; the same for all channels. */
typedef struct {
    ptrdiff_t w;     /* its first output column */
    vm in[DW_LOADS]; /* lanes inside the image, of each load from an input row; DW_ENDS: of each tap */
    int lanes;       /* to store of the last vector; DW_ENDS: those that no other vector has */
    ptrdiff_t last;  /* DW_ENDS: where the last vector stands, from w on */
    dw_edge edge;
    ptrdiff_t ahead; /* what an input row fetches into the cache: a later row, or one of the next channels */
} dw_column_place;

/* What a walk keeps at hand. */
typedef struct {
    const float *x, *w;
    float *y;
    ptrdiff_t t; /* the input row at x */
    size_t ih;
    vm in[DW_LOADS];
    ptrdiff_t last;
    vf start;
    ep_bounds ep;
    bool bounded;
    vf taps[9]; /* where the registers hold them */
    vf acc[8][DW_ROW];
} dw_state;

/* Output rows whose sums are under way. */
INLINE int dw_live(const dw_form f) { return (f.k + f.s - 1) / f.s; }
/* Vectors side by side whose sums the registers hold; whole rows may have more. */
INLINE int dw_most(const dw_form f) {
    const int fit = REGISTERS * 5 / 8 / dw_live(f), wide = REGISTERS < 32 ? 2 : DW_WIDE;
    return fit < wide ? fit : wide;
}
/* Output rows until the registers' roles come round; large kernels move the sums from register to register instead. */
INLINE int dw_turns(const dw_form f) { return f.k < 7 ? dw_live(f) : 1; }
/* Vectors of each phase of an input row (columns a stride apart) that hold nv shifted ones. */
INLINE int dw_reach(const dw_form f) { return f.nv + ((f.k - 1) / f.s + VL - 1) / VL; }
INLINE int dw_loads(const dw_form f) { return f.s * dw_reach(f); }
INLINE bool dw_masks_taps(const dw_form f) { return f.edge == DW_ENDS || f.edge == DW_LEFT; }
INLINE int dw_masks(const dw_form f) { return dw_masks_taps(f) ? f.k : dw_loads(f); }
/* Where vector v stands. */
INLINE ptrdiff_t dw_at(const dw_form f, const ptrdiff_t last, const int v) { return f.edge == DW_ENDS && v == f.nv - 1 ? last : v * VL; }
/* Whether y is fetched ahead too: where it is half of the bytes and a long row is whole; of pieces, 24x224x224, from 512 to 547 us. */
INLINE bool dw_fetches_y(const dw_form f) { return REGISTERS >= 32 && f.k == 3 && f.s == 1 && f.nv >= DW_WIDE && f.edge >= DW_FITS; }
/* Whether the taps fit the registers, beside the sums and a few vectors of the image. */
INLINE bool dw_keeps_taps(const dw_form f) { return f.k * f.k <= 9 && f.k * f.k + dw_live(f) * f.nv + 4 <= REGISTERS; }

/* The vectors of an input row from x on: the columns of each phase. */
INLINE void dw_load_row(const dw_form f, const vm in[DW_LOADS], const float *x, vf row[DW_LOADS]) {
    const int reach = dw_reach(f);
    UNROLL for (int q = 0; q < dw_loads(f); q++)
        row[q] = f.edge == DW_FITS && q >= f.nv * f.s ? v_zero() : f.edge ? v_load_mask(x + q * VL, in[q]) : v_load(x + q * VL);
    if (f.s == 2) {
        vf phase[DW_LOADS];
        UNROLL for (int v = 0; v < reach; v++) {
            phase[v] = v_uzp_even(row[2 * v], row[2 * v + 1]);
            phase[reach + v] = v_uzp_odd(row[2 * v], row[2 * v + 1]);
        }
        UNROLL for (int q = 0; q < 2 * reach; q++) row[q] = phase[q];
    }
}

/* Vector v of the columns that tap j meets. */
INLINE vf dw_shifted(const dw_form f, const float *x, const vf row[DW_LOADS], const int v, const int j) {
    if (f.s == 1 && !f.edge) return v_load(x + v * VL + j);
    const vf *from = row + j % f.s * dw_reach(f) + v + j / f.s / VL;
    return j / f.s % VL ? v_concat(from[0], from[1], j / f.s % VL) : from[0];
}

/* The same from memory: no shuffle, which would wait where multiply-adds do. */
INLINE vf dw_loaded(const dw_form f, const vm in[DW_LOADS], ptrdiff_t last, const float *x, const int v, const int j) {
    const float *at = x + dw_at(f, last, v) + j;
    const bool left = dw_masks_taps(f) && v == 0 && j < f.k / 2, right = f.edge == DW_ENDS && v == f.nv - 1 && j > f.k / 2;
    return left || right ? v_load_mask(at, in[j]) : v_load(at);
}

/* Stride 2 where registers are few: every tap has its columns from memory by one shuffle, in the order of v_uzp_inlane_even. Of 3 x 3 kernels alone. */
INLINE bool dw_mixes(const dw_form f) { return REGISTERS < 32 && f.k == 3 && f.s == 2 && (f.edge == DW_INSIDE || dw_masks_taps(f)); }

/* Taps 0 and 1 share two vectors: what is tap 1's waits in odd. */
INLINE vf dw_mixed(const dw_form f, const vm in[DW_LOADS], const ptrdiff_t last, const float *x, const int v, const int j, vf odd[DW_ROW]) {
    const float *at = x + 2 * dw_at(f, last, v);
    if (j == 1) return odd[v];
    if (j == 2) return v_uzp_inlane_odd(v_load(at + 1), f.edge == DW_ENDS && v == f.nv - 1 ? v_load_mask(at + VL + 1, in[2]) : v_load(at + VL + 1));
    vf a = dw_masks_taps(f) && v == 0 ? v_load_mask(at, in[0]) : v_load(at), b = v_load(at + VL);
    v_force_reg(a);
    v_force_reg(b);
    odd[v] = v_uzp_inlane_odd(a, b);
    v_force_reg(odd[v]);
    return v_uzp_inlane_even(a, b);
}

/* Three vectors and more of 3 x 3 where registers are few, and whole rows: as dw_row, with the taps of one column at a time, which all vectors
 * meet; their sums and one vector of the image fill the other registers. */
INLINE void dw_row_by_taps(const dw_form f, dw_state *s, const vm *in, const float *x, const int i, const int first) {
    vf odd[DW_ROW];
    UNROLL for (int j = 0; j < f.k; j++) {
        vf tap[3];
        UNROLL for (int q = 0; q * f.s <= i; q++) {
            tap[q] = v_set1(s->w[(i - q * f.s) * f.k + j]);
            v_force_reg(tap[q]);
        }
        UNROLL for (int v = 0; v < f.nv; v++) {
            vf xv = f.s == 2 ? dw_mixed(f, in, s->last, x, v, j, odd) : dw_loaded(f, in, s->last, x, v, j);
            v_force_reg(xv);
            UNROLL for (int q = 0; q * f.s <= i; q++) v_fma_to(s->acc[(first + q) % dw_live(f)][v], tap[q], xv);
        }
    }
}

/* The sums of output rows `row`, row + 1, ... += their taps of the input row at x, which is row i of the first. */
INLINE void dw_row(const dw_form f, dw_state *s, const vm *in, const float *x, const int i, const int first) {
    if (f.k == 3 && f.nv > (REGISTERS < 32 ? 2 : DW_WIDE)) {
        dw_row_by_taps(f, s, in, x, i, first);
        return;
    }
    vf row[DW_LOADS], mixed[DW_ROW][3], odd[DW_ROW];
    if (dw_mixes(f))
        UNROLL for (int v = 0; v < f.nv; v++) UNROLL for (int j = 0; j < f.k; j++) mixed[v][j] = dw_mixed(f, in, s->last, x, v, j, odd);
    else if ((f.edge && !dw_masks_taps(f)) || f.s > 1)
        dw_load_row(f, in, x, row);
    UNROLL for (int j = 0; j < f.k; j++) {
        vf xv[DW_ROW];
        UNROLL for (int v = 0; v < f.nv; v++) {
            xv[v] = dw_mixes(f) ? mixed[v][j] : dw_masks_taps(f) ? dw_loaded(f, in, s->last, x, v, j) : dw_shifted(f, x, row, v, j);
            if (f.s == 1) v_force_reg(xv[v]);
        }
        UNROLL for (int q = 0; q * f.s <= i; q++) {
            const int tap = (i - q * f.s) * f.k + j, at = (first + q) % dw_live(f);
            vf t = dw_keeps_taps(f) ? s->taps[tap] : v_set1(s->w[tap]);
            UNROLL for (int v = 0; v < f.nv; v++) s->acc[at][v] = v_fma(t, xv[v], s->acc[at][v]);
        }
    }
}

/* The next output row, which stands in acc[turn]: its last input rows, epilogue, store; the registers start a later row. */
INLINE void dw_output(const dw_form f, const fo_depthwise_args *g, const dw_column_place *place, dw_state *s, const int turn) {
    const bool whole = f.edge == DW_ENDS || place->lanes == VL;
    vf *done = s->acc[turn];
    UNROLL for (int i = f.k - f.s; i < f.k; i++, s->t++, s->x += g->x.sh)
        if (__builtin_expect((size_t)s->t < s->ih, 1)) {
            UNROLL for (int q = 0; q < f.nv * f.s; q += DW_LINE) __builtin_prefetch(s->x + q * VL + place->ahead);
            if (dw_fetches_y(f)) UNROLL for (int q = 0; q < f.nv; q += DW_LINE) __builtin_prefetch(s->y + q * VL + DW_AHEAD);
            dw_row(f, s, s->in, s->x, i, turn);
        }
    if (dw_mixes(f)) UNROLL for (int v = 0; v < f.nv; v++) done[v] = v_lane_order(done[v]);
    if (__builtin_expect(!dw_in_registers(g), 0)) {
        UNROLL for (int v = 0; v < f.nv; v++) v_store(s->y + v * DW_STRIP_ROWS * VL, done[v]);
        s->y += VL;
    } else {
        ep_vectors(&s->ep, s->bounded, f.nv, done);
        UNROLL for (int v = 0; v < f.nv; v++) {
            if (whole || v < f.nv - 1)
                v_store(s->y + dw_at(f, s->last, v), done[v]);
            else
                v_store_tail(s->y + v * VL, done[v], place->lanes);
        }
        s->y += g->y.sh;
    }
    UNROLL for (int v = 0; v < f.nv; v++) done[v] = s->start;
    if (dw_turns(f) == 1)
        UNROLL for (int q = 0; q < dw_live(f); q++) UNROLL for (int v = 0; v < f.nv; v++) s->acc[q][v] = q + 1 < dw_live(f) ? s->acc[q + 1][v] : s->start;
}

/* Output rows h0 .. h1 of channel c, whose input channel stands at x. sums: NULL, or where they go without the epilogue. */
INLINE void dw_walk(const dw_form f, const fo_depthwise_args *g, const dw_column_place *place, const float *x, ptrdiff_t c, float *sums, ptrdiff_t h0,
                    ptrdiff_t h1) {
    dw_state s = {.w = g->w + c * g->ldw, .t = h0 * f.s - g->z->top, .ih = (size_t)g->z->ih, .start = g->bias ? v_set1(g->bias[c]) : v_zero(),
                  .ep = ep_start(&g->act), .bounded = ep_bounded(&g->act)};
    s.last = place->last;
    s.x = x + s.t * g->x.sh;
    s.y = sums ? sums : g->y.data + c * g->y.sc + h0 * g->y.sh + place->w * g->y.sw;
    if (f.edge) UNROLL for (int q = 0; q < dw_masks(f); q++) s.in[q] = place->in[q];
    if (dw_keeps_taps(f)) UNROLL for (int t = 0; t < f.k * f.k; t++) s.taps[t] = v_set1(s.w[t]);
    UNROLL for (int q = 0; q < dw_live(f); q++) UNROLL for (int v = 0; v < f.nv; v++) s.acc[q][v] = s.start;
    UNROLL for (int i = 0; i < f.k - f.s; i++, s.t++, s.x += g->x.sh)
        if ((size_t)s.t < s.ih) dw_row(f, &s, s.in, s.x, i, 0);
    for (ptrdiff_t h = h0;;) { /* unrolled by hand: turns are literals, so that no sum moves from register to register */
#define TURN(turn) \
    if (turn < dw_turns(f)) { \
        if (h++ == h1) return; \
        dw_output(f, g, place, &s, turn < dw_turns(f) ? turn : 0); \
    }
        TURN(0) TURN(1) TURN(2) TURN(3) TURN(4)
#undef TURN
    }
}

/* The walks of channels c0 .. c1. */
INLINE void dw_channels(const dw_form f, const fo_depthwise_args *args, const dw_column_place *at, ptrdiff_t c0, ptrdiff_t c1, ptrdiff_t h0,
                        ptrdiff_t h1) {
    const fo_conv2d_size z = *args->z; /* copies, which the compiler knows that no store changes */
    fo_depthwise_args g = *args;
    g.z = &z;
    const dw_column_place place = *at;
    const bool registers = dw_in_registers(&g);
    float sums[DW_ROW * DW_STRIP_ROWS * VL];
    ptrdiff_t input = c0 / g.multiplier, copies = c0 % g.multiplier;
    const float *x = g.x.data + (place.w * f.s - z.left) * g.x.sw;
    for (ptrdiff_t c = c0; c < c1; c++) {
        dw_walk(f, &g, &place, x + input * g.x.sc, c, registers ? NULL : sums, h0, h1);
        if (++copies == g.multiplier) copies = 0, input++;
        if (registers) continue;
        for (int v = 0; v < f.nv; v++) {
            const ptrdiff_t lanes = v == f.nv - 1 ? place.lanes : VL, other = f.edge == DW_ENDS ? VL - lanes : 0;
            const float *from = sums + v * DW_STRIP_ROWS * VL + other;
            dw_finish(args, &(dw_sums){from, VL, c, lanes, h0, place.w + v * VL, (int)(h1 - h0), false});
        }
    }
}

/* Rows of a tile's window, and how many at either end may lie outside the image. */
INLINE int dw_tall_window(const dw_form f) { return (DW_TALL - 1) * f.s + f.k; }
INLINE int dw_tall_margin(const dw_form f) { return f.k / 2; }

/* Output rows h0 .. h1 of channels c0 .. c1, one vector wide: tiles of DW_TALL rows. No residual, no multiplier; the registers hold the
 * taps. The processor's queue of vector operations is full all the time: what moves a mask or a pointer through it delays the loads. */
INLINE void dw_tall(const dw_form f, const fo_depthwise_args *args, const dw_column_place *place, ptrdiff_t c0, ptrdiff_t c1, ptrdiff_t h0,
                    ptrdiff_t h1) {
    const ep_bounds ep = ep_start(&args->act);
    const bool bounded = ep_bounded(&args->act);
    const int window = dw_tall_window(f), margin = dw_tall_margin(f);
    const ptrdiff_t lanes = place->lanes, top = h0 * f.s - args->z->top, bottom = args->z->ih - window;
    vm in[DW_LOADS];
    UNROLL for (int q = 0; q < dw_loads(f); q++) in[q] = place->in[q];
    fo_depthwise_args g = *args;
    g.x.data += top * g.x.sh + place->w * f.s - g.z->left;
    g.y.data += h0 * g.y.sh + place->w;
    for (ptrdiff_t c = c0; c < c1; c++) {
        v_force_mem(g);
        const vf start = g.bias ? v_set1(g.bias[c]) : v_zero();
        const float *w = g.w + c * g.ldw, *x = g.x.data + c * g.x.sc;
        float *y = g.y.data + c * g.y.sc;
        const ptrdiff_t xh = g.x.sh, yh = g.y.sh;
        vf taps[9];
        UNROLL for (int t = 0; t < f.k * f.k; t++) taps[t] = v_set1(w[t]);
        for (ptrdiff_t h = h0, t0 = top; h < h1; h += DW_TALL, t0 += DW_TALL * f.s) {
            vf acc[DW_TALL];
            UNROLL for (int q = 0; q < DW_TALL; q++) acc[q] = start;
            UNROLL for (int t = 0; t < window; t++, x += xh) {
                v_launder(x);
                if ((t < margin && t0 < -t) || (t >= window - margin && t0 >= bottom + window - t)) continue;
                vf row[DW_LOADS];
                dw_load_row(f, in, x, row);
                UNROLL for (int j = 0; j < f.k; j++) {
                    const vf xv = dw_shifted(f, x, row, 0, j);
                    UNROLL for (int q = 0; q < DW_TALL; q++) {
                        const int i = t - q * f.s;
                        if (i >= 0 && i < f.k) acc[q] = v_fma(taps[i * f.k + j], xv, acc[q]);
                    }
                }
            }
            x -= (f.k - f.s) * xh;
            UNROLL for (int q = 0; q < DW_TALL; q++, y += yh) {
                v_launder(y);
                ep_vectors(&ep, bounded, 1, &acc[q]);
                v_store_tail(y, acc[q], lanes);
            }
        }
    }
}

/* How many of the output rows h0 .. h1 tall tiles take. */
static ptrdiff_t dw_tall_rows(const dw_form f, const fo_depthwise_args *g, const dw_column_place *place, ptrdiff_t h0, ptrdiff_t h1) {
    const ptrdiff_t tiles = (h1 - h0) / DW_TALL, t = h0 * f.s - g->z->top, last = t + (tiles - 1) * DW_TALL * f.s;
    const bool fits = t >= -dw_tall_margin(f) && last + dw_tall_window(f) <= g->z->ih + dw_tall_margin(f);
    const bool simple = dw_in_registers(g) && g->multiplier == 1;
    return REGISTERS >= 32 && f.k == 3 && f.nv == 1 && place->edge == DW_FITS && simple && fits ? tiles * DW_TALL : 0;
}

/* Whether a row's vectors stand as DW_ENDS has them: n of them from output column w on. Loads across cache lines wait longer for caches
 * further away: 3 x 3 kernels lose by them there (144x56x56, 3.6 MB, 190 to 220 us), unless an odd vector would go alone, a row would be cut
 * or a shuffle is several instructions. */
static bool dw_ends(const dw_form f, const fo_depthwise_args *g, ptrdiff_t w, ptrdiff_t n) {
    const fo_conv2d_size *z = g->z;
    const ptrdiff_t s = f.s, right = (z->ow - 1) * s + f.k - z->left - z->iw, own = (n - 1) * VL; /* columns of all vectors but the last */
    const bool inner = n == 1 || ((w + own - 1) * s + f.k - z->left <= z->iw && (w + VL) * s >= z->left && (z->ow - VL) * s >= z->left);
    const ptrdiff_t vectors = (z->ow + VL - 1) / VL;
    const bool pays = f.k > 3 || vectors % 2 || n > DW_WIDE || REGISTERS < 32, alone = z->ow - w >= VL && (f.k > 3 || w > 0 || REGISTERS < 32);
    const bool form = s == 1 || (REGISTERS < 32 && f.k == 3 && s == 2);
    return form && pays && z->left <= f.k / 2 && right <= f.k / 2 && inner && (n > 1 || alone);
}

/* The place of nv vectors from output column w on. */
static void dw_put(const dw_form f, const fo_depthwise_args *g, dw_column_place *p, ptrdiff_t w) {
    const ptrdiff_t first = w * f.s - g->z->left, iw = g->z->iw, lanes = g->z->ow - w - (f.nv - 1) * VL;
    const ptrdiff_t next = first + f.nv * f.s * VL; /* the column behind nv vectors of input */
    p->w = w;
    p->lanes = lanes < VL ? (int)lanes : VL;
    p->last = lanes < VL ? g->z->ow - w - VL : (f.nv - 1) * VL;
    p->ahead = g->x.sh > 0 && g->x.sh < DW_AHEAD ? DW_AHEAD / g->x.sh * g->x.sh : g->x.sh;
    const bool mixes = dw_mixes(f), exact = REGISTERS < 32 && (mixes || f.s == 1); /* whether no more is read than taps meet */
    if (f.nv <= DW_WIDE && p->lanes == VL && first >= 0 && first + (exact ? (f.nv * VL - 1) * f.s + f.k : dw_loads(f) * VL) <= iw)
        p->edge = DW_INSIDE;
    else if (f.edge == DW_ENDS)
        p->edge = DW_ENDS;
    else
        p->edge = next >= iw ? DW_FITS : DW_MASKED;
    for (int q = 0; q < dw_loads(f); q++) p->in[q] = v_range(-(first + q * VL), iw - first - q * VL);
    if (p->edge == DW_ENDS)
        for (int j = 0; j < f.k; j++) {
            const ptrdiff_t column = first + j + (j > f.k / 2 ? p->last * f.s : 0) + (mixes && j == 2 ? VL - 1 : 0);
            p->in[j] = v_range(-column, iw - column);
        }
}

typedef void dw_walk_fn(const fo_depthwise_args *, const dw_column_place *, ptrdiff_t c0, ptrdiff_t c1, ptrdiff_t h0, ptrdiff_t h1);

/* Empty where no form has so many vectors: compilers take seconds for each. */
#define WALK(k, s, nv, edge) \
    static __attribute__((noinline)) void dw_walk_##k##s##nv##edge(const fo_depthwise_args *g, const dw_column_place *place, ptrdiff_t c0, \
                                                                   ptrdiff_t c1, ptrdiff_t h0, ptrdiff_t h1) { \
        if (nv <= DW_WIDE ? nv <= dw_most((dw_form){k, s, nv, edge}) : nv <= DW_ROW) \
            dw_channels((dw_form){k, s, nv, edge}, g, place, c0, c1, h0, h1); \
    }
#define TALL(k, s) \
    static __attribute__((noinline)) void dw_tall_##k##s(const fo_depthwise_args *g, const dw_column_place *place, ptrdiff_t c0, ptrdiff_t c1, \
                                                         ptrdiff_t h0, ptrdiff_t h1) { \
        dw_tall((dw_form){k, s, 1, DW_FITS}, g, place, c0, c1, h0, h1); \
    }
#define WALKS(k, s, nv) WALK(k, s, nv, 0) WALK(k, s, nv, 1) WALK(k, s, nv, 2)
#define ENDS(k, s, nv) WALKS(k, s, nv) WALK(k, s, nv, 3)
#define WALK_ROW(k, s, nv) {dw_walk_##k##s##nv##0, dw_walk_##k##s##nv##1, dw_walk_##k##s##nv##2}
#define ENDS_ROW(k, s, nv) {dw_walk_##k##s##nv##0, dw_walk_##k##s##nv##1, dw_walk_##k##s##nv##2, dw_walk_##k##s##nv##3}
/* Of 1, 2, 3 and 4 vectors. */
#define ONE_ROW(k) {dw_walk_##k##110, dw_walk_##k##111, dw_walk_##k##112, dw_walk_##k##113}
#define STEP_1(k) ONE_ROW(k), ENDS_ROW(k, 1, 2), {dw_walk_##k##130, NULL, NULL, dw_walk_##k##133}, ENDS_ROW(k, 1, 4)
#define WHOLE_ROWS {[3] = dw_walk_3153}, {[3] = dw_walk_3163}, {[3] = dw_walk_3173}, {[3] = dw_walk_3183}
#define STEP_2(k) {WALK_ROW(k, 2, 1), WALK_ROW(k, 2, 2), {NULL}, WALK_ROW(k, 2, 4)}
#define STEP_2_ENDS(k) {ENDS_ROW(k, 2, 1), ENDS_ROW(k, 2, 2), {NULL}, WALK_ROW(k, 2, 4)}
#define WALKS_1(k) WALKS(k, 1, 1) WALK(k, 1, 1, 3) ENDS(k, 1, 2) WALK(k, 1, 3, 0) WALK(k, 1, 3, 3) ENDS(k, 1, 4)
#define WALKS_2(k) WALKS(k, 2, 1) WALKS(k, 2, 2) WALKS(k, 2, 4)
WALKS_1(3)
WALKS_2(3)
WALK(3, 2, 1, 3)
WALK(3, 2, 2, 3)
WALKS_1(5)
WALKS_2(5)
WALKS(7, 1, 1)
WALK(7, 1, 1, 3)
ENDS(7, 1, 2) /* the registers hold no more */
WALK(3, 1, 5, 3)
WALK(3, 1, 6, 3)
WALK(3, 1, 7, 3)
WALK(3, 1, 8, 3)
TALL(3, 1)
TALL(3, 2)

/* What all strips of a channel share. */
typedef struct {
    const float *w;
    vf start;
    ep_bounds ep;
    ptrdiff_t ih, xh, yh;
} dw_channel;

/* The next output row of a strip, as dw_output. */
INLINE void dw_strip_row(const dw_form f, const dw_channel *c, const vm *in, dw_state *s, ptrdiff_t xh, ptrdiff_t yh, const int turn) {
    UNROLL for (int i = f.k - f.s; i < f.k; i++, s->t++, s->x += xh) {
        if (i == f.k - 1) {
            vf start = c->start;
            v_force_reg(start);
            UNROLL for (int v = 0; v < f.nv; v++) s->acc[(turn + dw_live(f) - 1) % dw_live(f)][v] = start;
        }
        if (__builtin_expect((size_t)s->t < s->ih, 1)) dw_row(f, s, in, s->x, i, turn);
    }
    ep_bounds ep = c->ep;
    v_force_reg(ep.lo);
    v_force_reg(ep.hi);
    UNROLL for (int v = 0; v < f.nv; v++) {
        const vf sum = ep_vector(&ep, s->acc[turn][v]);
        v_store(s->y + dw_at(f, s->last, v), dw_mixes(f) ? v_lane_order(sum) : sum);
    }
    s->y += yh;
}

/* The rows of a strip: a walk of 3 x 3 with no residual, which begins with few instructions, for there are many strips. */
INLINE void dw_strip(const dw_form f, const dw_channel *c, const dw_column_place *place, const float *x, float *y, ptrdiff_t t, ptrdiff_t rows) {
    dw_state s = {.x = x, .y = y, .w = c->w, .t = t, .ih = (size_t)c->ih, .last = place->last};
    const dw_channel own = *c, *from = f.nv > 2 ? c : &own; /* in memory where the sums fill the registers */
    vm masks[3];
    if (f.edge) UNROLL for (int q = 0; q < f.k; q++) masks[q] = place->in[q];
    const vm *in = f.nv > 2 ? place->in : masks;
    const ptrdiff_t xh = c->xh, yh = c->yh;
    if (dw_keeps_taps(f)) UNROLL for (int q = 0; q < 9; q++) s.taps[q] = v_set1(s.w[q]);
    UNROLL for (int q = 0; q < dw_live(f) - 1; q++) UNROLL for (int v = 0; v < f.nv; v++) s.acc[q][v] = c->start;
    UNROLL for (int i = 0; i < f.k - f.s; i++, s.t++, s.x += xh)
        if ((size_t)s.t < s.ih) dw_row(f, &s, in, s.x, i, 0);
    for (;;) { /* unrolled by hand, as in dw_walk */
        if (!rows--) return;
        dw_strip_row(f, from, in, &s, xh, yh, 0);
        if (!rows--) return;
        dw_strip_row(f, from, in, &s, xh, yh, 1);
        if (f.s == 2) continue;
        if (!rows--) return;
        dw_strip_row(f, from, in, &s, xh, yh, f.s == 1 ? 2 : 0);
    }
}

typedef void dw_strip_fn(const dw_channel *, const dw_column_place *, const float *x, float *y, ptrdiff_t t, ptrdiff_t rows);

#define STRIP(s, nv, edge) \
    static __attribute__((noinline)) void dw_strip_##s##nv##edge(const dw_channel *c, const dw_column_place *place, const float *x, float *y, ptrdiff_t t, \
                                                                 ptrdiff_t rows) { \
        dw_strip((dw_form){3, s, nv, edge}, c, place, x, y, t, rows); \
    }
#define STRIPS(s, nv) STRIP(s, nv, 0) STRIP(s, nv, 3) STRIP(s, nv, 4)
#define STRIP_ROW(s, nv) {dw_strip_##s##nv##0, dw_strip_##s##nv##3, dw_strip_##s##nv##4}
STRIPS(1, 1)
STRIPS(1, 2)
STRIPS(1, 3)
STRIPS(1, 4)
STRIPS(2, 1)
STRIPS(2, 2)
STRIPS(2, 3)
STRIPS(2, 4)

/* The next of even shares of the vectors from output column w on, DW_WIDE at most; NULL where its edges are none of those that strips have.
 * Vectors with a right end inside the image have literal places: few pointers, which fit the registers. */
static dw_strip_fn *dw_next_strip(dw_form *f, const fo_depthwise_args *g, ptrdiff_t w, dw_column_place *p) {
    static dw_strip_fn *const strips[2][DW_WIDE][3] = {{STRIP_ROW(1, 1), STRIP_ROW(1, 2), STRIP_ROW(1, 3), STRIP_ROW(1, 4)},
                                                       {STRIP_ROW(2, 1), STRIP_ROW(2, 2), STRIP_ROW(2, 3), STRIP_ROW(2, 4)}};
    const ptrdiff_t vectors = (g->z->ow - w + VL - 1) / VL, shares = (vectors + DW_WIDE - 1) / DW_WIDE;
    f->nv = (int)((vectors + shares - 1) / shares);
    f->edge = DW_ENDS;
    const bool ends = dw_ends(*f, g, w, f->nv);
    dw_put(*f, g, p, w);
    const bool left = p->lanes == VL && (w + f->nv * VL - 1) * f->s + f->k - g->z->left <= g->z->iw;
    return p->edge == DW_INSIDE ? strips[f->s - 1][f->nv - 1][0] : !ends ? NULL : strips[f->s - 1][f->nv - 1][left ? 2 : 1];
}

/* All channels from output column w on, strip by strip: the lines that two strips share stay in the first-level cache (32 KB), of which the
 * rows take half. The column behind what is done; w where strips do not serve. */
static ptrdiff_t dw_strips(const fo_depthwise_args *g, ptrdiff_t w) {
    enum { PLACES = 8, STRIP_BYTES = 16 << 10, LEAST_ROWS = 7 };
    const ptrdiff_t s = g->s->sh, row = (s * g->z->iw + g->z->ow) * (ptrdiff_t)sizeof(float), rows = g->h1 - g->h0, left = g->z->left;
    if (REGISTERS >= 32 || g->s->kh != 3 || !dw_in_registers(g) || g->multiplier > 1) return w;
    dw_form f = {.k = 3, .s = (int)s};
    dw_column_place place[PLACES];
    dw_strip_fn *strips[PLACES];
    int places = 0;
    for (; places < PLACES && w < g->z->ow; places++, w += f.nv * VL)
        if (!(strips[places] = dw_next_strip(&f, g, w, &place[places]))) break;
    if (places == 1 && s == 1 && f.nv <= 2) return place[0].w; /* walks go on from channel to channel: 512x14x14 takes 31 us, 37 by strips */
    const ptrdiff_t most = places == 1 ? rows : STRIP_BYTES / row > LEAST_ROWS ? STRIP_BYTES / row : LEAST_ROWS;
    const ptrdiff_t count = (rows + most - 1) / most, each = rows ? (rows + count - 1) / count : 1;
    dw_channel channel = {.ep = ep_start(&g->act), .ih = g->z->ih, .xh = g->x.sh, .yh = g->y.sh};
    for (ptrdiff_t c = g->c0; places && c < g->c1; c++) {
        channel.w = g->w + c * g->ldw;
        channel.start = g->bias ? v_set1(g->bias[c]) : v_zero();
        for (ptrdiff_t h = g->h0; h < g->h1; h += each) {
            const ptrdiff_t t = h * s - g->z->top, h1 = h + each < g->h1 ? h + each : g->h1;
            const float *x = g->x.data + c * g->x.sc + t * g->x.sh - left;
            float *y = g->y.data + c * g->y.sc + h * g->y.sh;
            for (int p = 0; p < places; p++) strips[p](&channel, &place[p], x + place[p].w * s, y + place[p].w, t, h1 - h);
        }
    }
    return w;
}

/* How many vectors stand side by side from output column w on, and how. One that overlaps another is not alone: sums and residual of both
 * are at hand before either is stored. */
static void dw_choose(dw_form *f, const fo_depthwise_args *g, ptrdiff_t most, ptrdiff_t w) {
    const ptrdiff_t left = (g->z->ow - w + VL - 1) / VL;
    f->nv = (int)left;
    f->edge = DW_ENDS;
    if (!w && f->k == 3 && left > DW_WIDE && left <= DW_ROW && dw_ends(*f, g, w, left)) return;
    const ptrdiff_t n = left < most ? left : most;
    const ptrdiff_t even = left == most + 1 && most > 1 && (REGISTERS >= 32 || (g->z->ow - w) % VL) ? left / 2 : n;
    f->edge = DW_INSIDE;
    f->nv = (int)even;
    if (dw_ends(*f, g, w, even))
        f->edge = DW_ENDS;
    else
        f->nv = n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

/* What both vectors of a pair need; in memory, for taps and sums fill the registers. */
typedef struct {
    vf start;
    ep_bounds ep;
    vm left, right; /* lanes inside the image, of tap 0 of the first vector and of tap 2 of the second */
} dw_pair;

/* The sums of up to three output rows += their taps of the input row at x, which is row i of the first. */
INLINE void dw_pair_row(const dw_pair *p, const vf taps[9], const float *x, ptrdiff_t last, const int i, const int first, vf acc[3][2]) {
    UNROLL for (int j = 0; j < 3; j++) UNROLL for (int v = 0; v < 2; v++) {
        const float *at = x + (v ? last : 0) + j;
        vf xv = v == 0 && j == 0 ? v_load_mask(at, p->left) : v == 1 && j == 2 ? v_load_mask(at, p->right) : v_load(at);
        v_force_reg(xv);
        UNROLL for (int q = 0; q <= i; q++) {
            vf *sum = &acc[(first + q) % 3][v];
            if (q == i && j == 0)
                *sum = v_fma(xv, taps[0], p->start);
            else
                v_fma_to(*sum, taps[(i - q) * 3 + j], xv);
        }
    }
}

INLINE void dw_pair_store(const dw_pair *p, bool bounded, vf sums[2], float *y, ptrdiff_t last) {
    ep_bounds ep = p->ep;
    v_force_reg(ep.lo);
    v_force_reg(ep.hi);
    ep_vectors(&ep, bounded, 2, sums);
    UNROLL for (int v = 0; v < 2; v++) v_store(y + (v ? last : 0), sums[v]);
}

/* All rows of a channel. above, below: whether the window of the first output row begins above the image, and that of the last ends below it. */
INLINE void dw_pair_walk(const dw_pair *p, const vf taps[9], ptrdiff_t last, bool bounded, const float *x, ptrdiff_t xh, float *y, ptrdiff_t yh,
                         ptrdiff_t rows, bool above, bool below) {
    vf acc[3][2];
    if (above)
        acc[0][0] = acc[0][1] = p->start;
    else
        dw_pair_row(p, taps, x, last, 0, 0, acc);
    dw_pair_row(p, taps, x + xh, last, 1, 0, acc);
    x += 2 * xh;
    rows -= below;
    for (; rows >= 3; rows -= 3) { /* in straight code, so that no sum moves from register to register */
        UNROLL for (int turn = 0; turn < 3; turn++) {
            dw_pair_row(p, taps, x + turn * xh, last, 2, turn, acc);
            dw_pair_store(p, bounded, acc[turn], y + turn * yh, last);
        }
        x += 3 * xh;
        y += 3 * yh;
    }
    if (rows == 0) {
        if (below) dw_pair_store(p, bounded, acc[0], y, last);
        return;
    }
    dw_pair_row(p, taps, x, last, 2, 0, acc);
    dw_pair_store(p, bounded, acc[0], y, last);
    if (rows == 1) {
        if (below) dw_pair_store(p, bounded, acc[1], y + yh, last);
        return;
    }
    dw_pair_row(p, taps, x + xh, last, 2, 1, acc);
    dw_pair_store(p, bounded, acc[1], y + yh, last);
    if (below) dw_pair_store(p, bounded, acc[2], y + 2 * yh, last);
}

/* Rows of two vectors, 3 x 3 of stride 1: all taps in registers. Whether that serves here. */
static __attribute__((noinline)) bool dw_pairs(const fo_depthwise_args *g) {
    const fo_conv2d_size *z = g->z;
    const ptrdiff_t ow = z->ow, right = ow + 2 - z->left - z->iw, bottom = z->oh + 2 - z->top - z->ih;
    const bool simple = g->s->kh == 3 && g->s->sh == 1 && dw_in_registers(g) && g->multiplier == 1;
    if (!simple || ow <= VL || ow > 2 * VL || z->ih < 2 || z->left > 1 || right > 1 || z->top > 1 || bottom > 1) return false;
    dw_pair p = {.ep = ep_start(&g->act),
                 .left = v_range(z->left, VL), .right = v_range(0, VL - right)};
    const bool bounded = ep_bounded(&g->act);
    const bool above = g->h0 < z->top, below = z->ih < g->h1 - z->top + 2;
    const ptrdiff_t xh = g->x.sh, yh = g->y.sh, rows = g->h1 - g->h0;
    const float *x = g->x.data + g->c0 * g->x.sc + (g->h0 - z->top) * xh - z->left;
    float *y = g->y.data + g->c0 * g->y.sc + g->h0 * yh;
    for (ptrdiff_t c = g->c0; c < g->c1; c++, x += g->x.sc, y += g->y.sc) {
        vf taps[9];
        UNROLL for (int t = 0; t < 9; t++) {
            taps[t] = v_set1(g->w[c * g->ldw + t]);
            v_force_reg(taps[t]);
        }
        p.start = g->bias ? v_set1(g->bias[c]) : v_zero();
        v_force_mem(p);
        dw_pair_walk(&p, taps, ow - VL, bounded, x, xh, y, yh, rows, above, below);
    }
    return true;
}

/* One channel after the other, an input row read once. */
static void dw_planes(const fo_depthwise_args *g, dw_walk_fn *const walks[DW_WALKS][DW_EDGES], dw_walk_fn *const tall) {
    enum { PLACES = 8 };
    dw_form f = {.k = (int)g->s->kh, .s = (int)g->s->sh};
    const ptrdiff_t most = dw_most(f), ow = g->z->ow, strip = dw_in_registers(g) ? g->h1 - g->h0 : DW_STRIP_ROWS;
    dw_column_place place[PLACES];
    dw_walk_fn *walk[PLACES];
    ptrdiff_t tall_rows[PLACES]; /* from the first strip on; there is one */
    if (REGISTERS < 32 && dw_pairs(g)) return;
    for (ptrdiff_t w = 0; w < ow;) {
        const ptrdiff_t done = dw_strips(g, w);
        if (done > w) {
            w = done;
            continue;
        }
        int places = 0;
        for (; places < PLACES && w < ow; places++, w += f.nv * VL) {
            dw_choose(&f, g, most, w);
            dw_put(f, g, &place[places], w);
            walk[places] = walks[f.nv - 1][place[places].edge];
            tall_rows[places] = dw_tall_rows(f, g, &place[places], g->h0, g->h1);
        }
        const ptrdiff_t channels = places == 1 ? g->c1 - g->c0 : 1;
        for (ptrdiff_t c = g->c0; c < g->c1; c += channels)
            for (ptrdiff_t h1, h = g->h0; h < g->h1; h = h1) {
                h1 = h + strip < g->h1 ? h + strip : g->h1;
                for (int p = 0; p < places; p++) {
                    const ptrdiff_t rest = h + tall_rows[p];
                    if (h < rest) tall(g, &place[p], c, c + channels, h, rest);
                    if (rest < h1) walk[p](g, &place[p], c, c + channels, rest, h1);
                }
            }
    }
}

#endif
