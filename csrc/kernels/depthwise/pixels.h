/* Depthwise convolution where channels are lanes (NHWC): a tile of output pixels, one vector of channels after the other.
 *
 *      o o o o o o    the tile's window of x: each of its vectors is loaded once and meets the taps of every pixel that needs it;
 *      o x x x x o    their sums stand in registers (3 x 3, stride 1, 2 x 4 pixels)
 *      o x x x x o
 *      o o o o o o    Channels are neighbours in memory, so that a tile reads as many streams as its window has pixels.
 *
 * Tiles of a lighter form, one call for several, sweep all of 3 x 3 where registers are few (dw_sweeps), and that and 5 x 5 where a vector is a
 * cache line (dw_line_sweeps). Other small images of 3 x 3, stride 1, and some whose pixels lie 2 KB apart, go down bands of seven columns (dw_descend);
 * some of stride 2 do so with neighbouring vectors in turns (dw_relays).
 *
 * Taps stand in blocks of VL channels, one vector a tap. A window that reaches beyond the image has its columns masked and its rows
 * skipped. Taps are added in the order of i, then j.
 */
enum { DW_WINDOW = 16, DW_SUMS = 16, DW_TAPS = 12 << 10 };

/* Whether a vector is a cache line, with many registers; columns that a tile may have. */
enum { DW_OF_LINES = VL == 16 && REGISTERS >= 32, DW_COLS = DW_OF_LINES ? 7 : 4 };

/* A tile's shape; a literal at every call. */
typedef struct {
    int k, s, rows, cols;
    bool edges; /* part of the window or of the tile may lie outside the image, and lanes behind the last channel */
    bool reaches; /* lanes are the next pixel's from one on (dw_vectors) */
    int left, right; /* without edges: how many of the window's first and last columns lie outside the image */
} dw_tile_form;

/* Where a tile stands, and what of it is wanted. */
typedef struct {
    ptrdiff_t h, w;   /* its first output pixel */
    ptrdiff_t t, u;   /* the window's first row and column */
    vm in[DW_WINDOW]; /* with edges: the lanes that are read of each column of the window */
    vm own;           /* the lanes of a pixel itself */
    int rows, cols, lanes;
} dw_tile_place;

/* Tiles that follow each other: along the channels of a pixel, or (across) along the row. */
typedef struct {
    ptrdiff_t count, c, step; /* first channel, and from one to the next */
    bool across;
    const float *w; /* taps of the first, and from one to the next */
    ptrdiff_t step_w;
    float *sums; /* NULL, or where the sums go without the epilogue, ld floats a pixel */
    ptrdiff_t ld;
} dw_run;

/* The vectors of channels that a pixel is cut into: `count` from c0 on, and the rest masked. Or (shift) as many from c0 + shift on, which
 * stand in one cache line each; their taps, and bias, are copies that come round. Where pixels touch, the last one reaches into the next:
 *
 *     pixels   |0   0   0   0   |1   1   1   1   |2   2   2   2   |
 *     vectors   b o   o   o   r   o   o   o   r   b o   o   o   e       b and e: at either end of a row, across cache lines,
 *                                                                       and of each pixel where pixels do not touch */
typedef struct {
    ptrdiff_t shift, count;
    const float *w, *bias;
    bool touch;
} dw_vectors;

INLINE int dw_window(const dw_tile_form f) { return (f.cols - 1) * f.s + f.k; }
/* Whether all taps fit the registers, beside the sums and a row of the window. */
INLINE bool dw_tile_keeps_taps(const dw_tile_form f) { return f.k * f.k + f.rows * f.cols + dw_window(f) < REGISTERS; }

/* Whether a row of the window does not fit the registers beside the sums, but its taps do: its columns then come one after the other. (Of lines, such
 * tiles are the 5 x 5 ones of sweeps.) */
INLINE bool dw_tile_by_columns(const dw_tile_form f) {
    return f.rows == 2 && (DW_OF_LINES ? f.k == 5 : f.k == 3 && !f.reaches && f.rows * f.cols + dw_window(f) >= REGISTERS);
}

/* Whether column u of the window lies outside the image: its taps are multiplied by zero, as everywhere, for a weight may be infinite. */
INLINE bool dw_tile_outside(const dw_tile_form f, const int u) { return u < f.left || (f.right && u >= dw_window(f) - f.right); }

/* Column u of the window, which stands at x. */
INLINE vf dw_tile_column(const dw_tile_form f, const dw_tile_place *p, const float *x, const int u) {
    if (DW_OF_LINES && u == f.left - 1) return v_load_mask(x, p->in[0]);
    return dw_tile_outside(f, u) ? v_zero() : f.edges ? v_load_mask(x, p->in[u]) : v_load(x);
}

/* acc, which starts at *begin, += the taps of input row t, which stands at x, column by column. */
INLINE void dw_tile_columns(const dw_tile_form f, const dw_tile_place *p, const float *x, ptrdiff_t xw, const int t, const float *w, vf *begin,
                            vf acc[8][DW_COLS]) {
    vf taps[2][7]; /* of each output row that needs this one */
    UNROLL for (int q = 0; q < 2; q++)
        UNROLL for (int j = 0; j < f.k; j++) {
            if (t < q * f.s || t >= q * f.s + f.k) continue;
            taps[q][j] = v_load(w + ((t - q * f.s) * f.k + j) * VL);
            v_force_reg(taps[q][j]); /* kept, or multiply-adds would load what they share again */
        }
    UNROLL for (int u = 0; u < dw_window(f); u++) {
        vf in = dw_tile_column(f, p, x + u % 3 * xw, u);
        v_force_reg(in);
        UNROLL for (int q = 0; q < 2; q++)
            UNROLL for (int j = 0; j < f.k; j++) {
                const int v = (u - j) / f.s;
                if (t < q * f.s || t >= q * f.s + f.k || u < j || (u - j) % f.s || v >= f.cols) continue;
                if (t == q * f.s && j == 0) {
                    if (REGISTERS < 32) v_force_mem(*begin); /* registers are for sums and taps */
                    acc[q][v] = *begin;
                }
                acc[q][v] = v_fma(taps[q][j], in, acc[q][v]);
            }
        if (u % 3 == 2) {
            x += 3 * xw;
            v_launder(x); /* or each column would take a pointer */
        }
    }
}

/* The same of any tile. */
INLINE void dw_tile_row(const dw_tile_form f, const dw_tile_place *p, const float *x, ptrdiff_t xw, const int t, const float *w, const vf *taps,
                        vf *begin, vf acc[8][DW_COLS]) {
    if (dw_tile_by_columns(f)) {
        dw_tile_columns(f, p, x, xw, t, w, begin, acc);
        return;
    }
    vf in[DW_WINDOW];
    const int last = f.reaches ? f.s - 1 : 0; /* from the next input pixel to the next output's */
    UNROLL for (int q = 0; q < dw_window(f) + last; q++)
        in[q] = dw_tile_column(f, p, x + q * xw, q);
    if (last) UNROLL for (int q = 0; q < dw_window(f); q++) in[q] = v_select(p->own, in[q], in[q + last]);
    UNROLL for (int j = 0; j < f.k; j++)
        UNROLL for (int q = 0; q < f.rows; q++) {
            const int i = t - q * f.s;
            if (i < 0 || i >= f.k) continue;
            const vf tap = dw_tile_keeps_taps(f) ? taps[i * f.k + j] : v_load(w + (i * f.k + j) * VL);
            UNROLL for (int v = 0; v < f.cols; v++) acc[q][v] = v_fma(tap, in[v * f.s + j], acc[q][v]);
        }
}

/* A pixel's sums, and what stands at r if it `adds` that, to y. The first n lanes, m, are channels if they are not all (f.edges). */
INLINE void dw_put_pixel(const dw_tile_form f, vf sum, const bool adds, const float *r, float *y, const int n, const vm m, vf lo, vf hi) {
    if (adds) sum = v_add(sum, f.edges ? v_load_mask(r, m) : v_load(r));
    sum = v_min(hi, v_max(lo, sum));
    if (f.edges)
        v_store_tail(y, sum, n);
    else
        v_store(y, sum);
}

/* A run of tiles, all of one place but for the direction in which the run goes. */
INLINE void dw_tiles(const dw_tile_form f, const fo_depthwise_args *args, const dw_tile_place *at, const dw_run *run) {
    const fo_depthwise_args g = *args; /* copies, which the compiler knows that no store changes */
    const dw_tile_place p = *at;
    const int taps = f.k * f.k;
    const size_t ih = (size_t)g.z->ih;
    const ptrdiff_t xh = g.x.sh, xw = g.x.sw, yh = g.y.sh, yw = g.y.sw, rh = g.r.sh, rw = g.r.sw;
    const ptrdiff_t step_x = run->across ? f.cols * f.s * xw : run->step, step_y = run->across ? f.cols * yw : run->step;
    const ptrdiff_t step_r = !g.r.data ? 0 : run->across ? f.cols * rw : run->step, step_bias = !g.bias ? 0 : run->step, step_w = run->step_w;
    const vm lanes = v_range(0, p.lanes);
    const vf lo = v_set1(g.act.kind == FO_CLIP ? g.act.p0 : -INFINITY), hi = v_set1(g.act.kind == FO_CLIP ? g.act.p1 : INFINITY);
    const float *w = run->w, *x = g.x.data + p.t * xh + p.u * xw + run->c, *bias = g.bias ? g.bias + run->c : NULL;
    float *y = g.y.data + p.h * yh + p.w * yw + run->c, *sums = run->sums;
    const float *r = g.r.data ? g.r.data + p.h * rh + p.w * rw + run->c : NULL;
    for (ptrdiff_t n = run->count; n > 0; n--, w += step_w, x += step_x, y += step_y, r += step_r, bias += step_bias) {
        vf acc[8][DW_COLS], tap[16];
        const vf start = !g.bias ? v_zero() : f.edges ? v_load_mask(bias, lanes) : v_load(bias);
        vf begin = start; /* of tiles by columns */
        UNROLL for (int q = 0; q < f.rows; q++) UNROLL for (int v = 0; v < f.cols; v++) acc[q][v] = start;
        if (dw_tile_keeps_taps(f)) UNROLL for (int t = 0; t < taps; t++) tap[t] = v_load(w + t * VL);
        const float *row = x;
        UNROLL for (int t = 0; t < (f.rows - 1) * f.s + f.k; t++, row += xh) {
            v_launder(row);
            if (!f.edges || (size_t)(p.t + t) < ih) dw_tile_row(f, &p, row, xw, t, w, tap, &begin, acc);
        }
        if (sums) {
            UNROLL for (int q = 0; q < f.rows; q++)
                UNROLL for (int v = 0; v < f.cols; v++) v_store(sums + (q * f.cols + v) * run->ld, acc[q][v]);
            sums += VL;
            continue;
        }
        float *to = y;
        const float *from = r;
        UNROLL for (int q = 0; q < f.rows; q++, to += yh, from += rh) {
            v_launder(to);
            UNROLL for (int v = 0; v < f.cols; v++) {
                if (f.edges && (q >= p.rows || v >= p.cols)) continue;
                dw_put_pixel(f, acc[q][v], g.r.data != NULL, from + v * rw, to + v * yw, p.lanes, lanes, lo, hi);
            }
        }
    }
}

typedef void dw_tiles_fn(const fo_depthwise_args *, const dw_tile_place *, const dw_run *);

/* Whole tiles, half of one, whole ones of vectors that reach into the next pixel. */
enum { DW_WHOLE, DW_HALF, DW_REACHING, DW_WIDTHS };

/* Rows and columns of a tile: at least six sums hide most of the multiply-add's latency, beside a row of the window and a tap. */
INLINE int dw_tile_rows(const int k) { return REGISTERS < 32 ? (k == 3 ? 2 : k == 5 ? 4 : 3) : (k == 5 ? 3 : 4); }
INLINE int dw_tile_cols(const int k) { return REGISTERS < 32 && k > 3 ? 2 : 4; }

#define TILE(k, s, width, edges) \
    static __attribute__((noinline)) void dw_tile_##k##s##width##edges(const fo_depthwise_args *g, const dw_tile_place *at, const dw_run *run) { \
        dw_tiles((dw_tile_form){k, s, dw_tile_rows(k), dw_tile_cols(k) >> (width == DW_HALF), edges, width == DW_REACHING, false, false}, g, at, run); \
    }
#define TILES(k, s) TILE(k, s, 0, 0) TILE(k, s, 0, 1) TILE(k, s, 1, 0) TILE(k, s, 1, 1)
#define TILES_2(k) TILES(k, 2) TILE(k, 2, 2, 0) TILE(k, 2, 2, 1)
#define TILE_ROW(k, s) {{dw_tile_##k##s##00, dw_tile_##k##s##01}, {dw_tile_##k##s##10, dw_tile_##k##s##11}, {dw_tile_##k##s##00, dw_tile_##k##s##01}}
#define TILE_ROW_2(k) {{dw_tile_##k##200, dw_tile_##k##201}, {dw_tile_##k##210, dw_tile_##k##211}, {dw_tile_##k##220, dw_tile_##k##221}}
TILES(2, 1)
TILES_2(2)
TILES(3, 1)
TILES_2(3)
TILES(4, 1)
TILES_2(4)
TILES(5, 1)
TILES_2(5)
TILES(7, 1)
TILES_2(7)

/* Light tiles, with what a call needs and no more, for there are many: `tiles` of them across, `count` vectors of the channels each. A window reaches
 * beyond the image by half of the kernel at most. */
typedef struct {
    const float *x, *w, *bias; /* of the first tile and vector */
    float *y;
    ptrdiff_t tiles, count, step_bias; /* from one vector to the next */
    ptrdiff_t xh, xw, yh, yw;
    uint8_t above, below; /* rows of the window outside the image */
    bool upper;           /* whether the clip has an upper bound */
    vf lo, hi;
    vm next; /* lanes that are the next pixel's: of the last column left of the image they read its first one */
} dw_sweep;

INLINE void dw_sweep_tiles(const dw_tile_form f, const dw_sweep *a) {
    const float *x = a->x, *w = a->w, *bias = a->bias;
    float *y = a->y;
    const ptrdiff_t xh = a->xh, xw = a->xw, yh = a->yh, yw = a->yw, step_bias = a->step_bias;
    const uint8_t above = a->above, below = a->below;
    const bool upper = a->upper;
    const vf lo = a->lo, hi = a->hi;
    dw_tile_place p;
    if (DW_OF_LINES) p.in[0] = a->next;
    const int window = (f.rows - 1) * f.s + f.k;
    for (ptrdiff_t tiles = a->tiles; tiles > 0; tiles--) {
        for (ptrdiff_t n = a->count; n > 0; n--, x += VL, y += VL, w += f.k * f.k * VL, bias += step_bias) {
            vf acc[8][DW_COLS], tap[9];
            const vf start = v_load(bias);
            vf begin = start;
            UNROLL for (int q = 0; q < f.rows; q++) UNROLL for (int v = 0; v < f.cols; v++) acc[q][v] = start;
            if (dw_tile_keeps_taps(f)) UNROLL for (int t = 0; t < f.k * f.k; t++) tap[t] = v_load(w + t * VL);
            const float *row = x;
            UNROLL for (int t = 0; t < window; t++, row += xh) {
                v_launder(row);
                if ((t < f.k / 2 && t < above) || (window - 1 - t < f.k / 2 && window - 1 - t < below)) continue;
                dw_tile_row(f, &p, row, xw, t, w, tap, &begin, acc);
            }
            float *to = y;
            UNROLL for (int q = 0; q < f.rows; q++, to += yh) {
                v_launder(to);
                UNROLL for (int v = 0; v < f.cols; v++) acc[q][v] = v_max(lo, acc[q][v]);
                if (upper) UNROLL for (int v = 0; v < f.cols; v++) acc[q][v] = v_min(hi, acc[q][v]);
                float *out = to;
                UNROLL for (int v = 0; v < f.cols; v++) {
                    v_store(out + v % 4 * yw, acc[q][v]);
                    if (f.cols <= 4 || v != 3) continue;
                    out += 4 * yw;
                    v_launder(out); /* or each column would take a pointer */
                }
            }
        }
        x += f.cols * f.s * xw - a->count * VL, y += f.cols * yw - a->count * VL;
        w = a->w, bias = a->bias;
    }
}

typedef void dw_sweep_fn(const dw_sweep *);

/* The window's columns: all in the image, or the first, the last or both outside. */
enum { DW_WITHIN, DW_NO_FIRST, DW_NO_LAST, DW_NO_ENDS, DW_SIDES };

/* Columns of a sweep's tile: of the last ones of a row, half as many; of high tiles. */
enum { DW_SWEEP = DW_COLS, DW_HALF_SWEEP = (DW_SWEEP + 1) / 2, DW_HIGH = 2 };

#define SWEEP(k, s, half, side) \
    static __attribute__((noinline)) void dw_sweep_##k##s##half##side(const dw_sweep *a) { \
        const int cols = half ? DW_HALF_SWEEP : DW_SWEEP, left = side & DW_NO_FIRST ? k / 2 : 0, right = side & DW_NO_LAST ? k / 2 : 0; \
        dw_sweep_tiles((dw_tile_form){k, s, 2, cols, false, false, left, right}, a); \
    }
#define SWEEPS(k, s, half) SWEEP(k, s, half, 0) SWEEP(k, s, half, 1) SWEEP(k, s, half, 2)
#define SWEEP_SIDES(k, s, half) {dw_sweep_##k##s##half##0, dw_sweep_##k##s##half##1, dw_sweep_##k##s##half##2}
#define SWEEP_ENDS(k, s, half) {dw_sweep_##k##s##half##0, dw_sweep_##k##s##half##1, dw_sweep_##k##s##half##2, dw_sweep_##k##s##half##3}
SWEEPS(3, 1, 0)
SWEEPS(3, 1, 1)
SWEEPS(3, 2, 0)
SWEEPS(3, 2, 1)
SWEEPS(5, 1, 0)
SWEEP(5, 1, 0, 3)
SWEEPS(5, 1, 1)
SWEEP(5, 1, 1, 3)

#define HIGH(s, rows, side) \
    static __attribute__((noinline)) void dw_high_##s##rows##side(const dw_sweep *a) { \
        dw_sweep_tiles((dw_tile_form){3, s, rows, DW_HIGH, false, false, (side & DW_NO_FIRST) != 0, (side & DW_NO_LAST) != 0}, a); \
    }
#define HIGHS(s, rows) HIGH(s, rows, 0) HIGH(s, rows, 1) HIGH(s, rows, 2) HIGH(s, rows, 3)
#define HIGH_SIDES(s, rows) {dw_high_##s##rows##0, dw_high_##s##rows##1, dw_high_##s##rows##2, dw_high_##s##rows##3}
HIGHS(1, 7)
HIGHS(1, 4)
HIGHS(1, 2)
HIGHS(2, 7)
HIGHS(2, 4)
HIGHS(2, 2)

/* Tiles of one row, stride 2, that go down the image: an input row which two output rows share is read once, and what it gives the next one waits
 * in `sums`, in the first-level cache. */
typedef struct {
    dw_sweep tile;
    float *sums;
    bool puts, next; /* whether there is an output row here; whether one follows */
} dw_relay;

/* Columns of such a tile: all taps, the sums of two rows and a vector of x fit the registers; images of 9 columns have five. */
enum { DW_RELAY = 7, DW_RELAY_FEW = 5 };

/* The window's row i, whose first column stands at x. */
INLINE void dw_relay_row(const dw_tile_form f, const dw_tile_place *p, const float *x, ptrdiff_t xw, const int i, const vf tap[9], vf acc[2][DW_RELAY]) {
    UNROLL for (int u = 0; u < dw_window(f); u++) {
        const vf in = dw_tile_column(f, p, x + u % 3 * xw, u);
        UNROLL for (int q = 0; 2 * q <= i; q++)
            UNROLL for (int j = 0; j < 3; j++) {
                const int v = (u - j) / 2;
                if (u >= j && (u - j) % 2 == 0 && v < f.cols) acc[q][v] = v_fma(tap[3 * (i - 2 * q) + j], in, acc[q][v]);
            }
        if (u % 3 == 2) {
            x += 3 * xw;
            v_launder(x); /* or each column would take a pointer */
        }
    }
}

INLINE void dw_relay_tiles(const dw_tile_form f, const dw_relay *r) {
    const dw_sweep a = r->tile; /* copies, which the compiler knows that no store changes */
    const bool puts = r->puts, next = r->next;
    const float *x = a.x + a.xh, *w = a.w, *bias = a.bias;
    float *y = a.y, *sums = r->sums;
    dw_tile_place p;
    p.in[0] = a.next;
    for (ptrdiff_t n = a.count; n > 0; n--, x += VL, y += VL, w += 9 * VL, bias += a.step_bias, sums += DW_RELAY * VL) {
        vf acc[2][DW_RELAY], tap[9];
        const vf start = v_load(bias);
        UNROLL for (int t = 0; t < 9; t++) tap[t] = v_load(w + t * VL);
        UNROLL for (int v = 0; v < f.cols; v++) acc[0][v] = a.above || !puts ? start : v_load(sums + v * VL);
        UNROLL for (int v = 0; v < f.cols; v++) acc[1][v] = start;
        if (puts) dw_relay_row(f, &p, x, a.xw, 1, tap, acc);
        if (!a.below) dw_relay_row(f, &p, x + a.xh, a.xw, 2, tap, acc);
        if (next) UNROLL for (int v = 0; v < f.cols; v++) v_store(sums + v * VL, acc[1][v]);
        if (!puts) continue;
        float *out = y;
        UNROLL for (int v = 0; v < f.cols; v++) {
            v_store(out + v % 4 * a.yw, v_min(a.hi, v_max(a.lo, acc[0][v])));
            if (v != 3) continue;
            out += 4 * a.yw;
            v_launder(out);
        }
    }
}

typedef void dw_relay_fn(const dw_relay *);

#define RELAY(cols, side) \
    static __attribute__((noinline)) void dw_relay_##cols##side(const dw_relay *r) { \
        const bool left = (side & DW_NO_FIRST) != 0, right = (side & DW_NO_LAST) != 0; \
        if (DW_OF_LINES) dw_relay_tiles((dw_tile_form){3, 2, 1, cols, false, false, left, right}, r); \
    }
#define RELAYS(cols) RELAY(cols, 0) RELAY(cols, 1) RELAY(cols, 2) RELAY(cols, 3)
#define RELAY_SIDES(cols) {dw_relay_##cols##0, dw_relay_##cols##1, dw_relay_##cols##2, dw_relay_##cols##3}
RELAYS(7)
RELAYS(5)

/* Column q of a row of pixels, of which every third has a pointer: few registers reach all. */
#define DW_COLUMN(at, q, step) ((at)[(q) / 3] + (q) % 3 * (step))

/* An input row of a band, whose columns stand at px, meets the taps of three output rows, whose sums change places with each `turn`. */
INLINE void dw_descend_row(const dw_tile_form f, const dw_tile_place *p, const float *const px[3], ptrdiff_t xw, const int turn, const vf tap[9], vf acc[3][8]) {
    UNROLL for (int q = 0; q < dw_window(f); q++) {
        const vf in = dw_tile_column(f, p, DW_COLUMN(px, q, xw), q);
        UNROLL for (int m = 0; m < 3; m++) {
            const int of = (turn + m) % 3, i = 2 - m; /* row i of the taps, for the output row that stands in acc[of] */
            UNROLL for (int j = 0; j < 3; j++)
                if (q >= j && q - j < f.cols) acc[of][q - j] = v_fma(tap[3 * i + j], in, acc[of][q - j]);
        }
    }
}

/* A finished row of sums to y, whose columns stand at py; r is NULL where there is no residual. */
INLINE void dw_descend_put(const dw_tile_form f, const dw_tile_place *p, const vf *acc, const float *r, ptrdiff_t rw, float *const py[3], ptrdiff_t yw, float lo,
                           float hi) {
    const vm lanes = v_range(0, p->lanes);
    UNROLL for (int v = 0; v < f.cols; v++)
        if (!f.edges || v < p->cols) dw_put_pixel(f, acc[v], r != NULL, r + v * rw, DW_COLUMN(py, v, yw), p->lanes, lanes, v_set1(lo), v_set1(hi));
}

/* A 3 x 3 kernel of stride 1, `count` vectors of channels from c on, each down the rows h0 .. h1 of a band of columns: each vector of x is loaded once
 * and added to three output rows, whose sums stand in registers. */
INLINE void dw_descend(const dw_tile_form f, const fo_depthwise_args *args, const dw_tile_place *at, ptrdiff_t c, ptrdiff_t count, const float *w) {
    const fo_depthwise_args g = *args; /* copies, which the compiler knows that no store changes */
    const dw_tile_place p = *at;
    const size_t ih = (size_t)g.z->ih;
    const ptrdiff_t xh = g.x.sh, xw = g.x.sw, yh = g.y.sh, yw = g.y.sw, rw = g.r.sw;
    float lo = g.act.kind == FO_CLIP ? g.act.p0 : -INFINITY, hi = g.act.kind == FO_CLIP ? g.act.p1 : INFINITY;
    v_force_mem(lo); /* registers are for sums and taps */
    v_force_mem(hi);
    for (; count > 0; count--, c += VL, w += 9 * VL) {
        vf start = !g.bias ? v_zero() : f.edges ? v_load_mask(g.bias + c, v_range(0, p.lanes)) : v_load(g.bias + c);
        v_force_mem(start);
        ptrdiff_t h = g.h0 - 2, t = h - g.z->top + 2; /* input row t completes output row h */
        const float *px[3], *r = g.r.data ? g.r.data + h * g.r.sh + p.w * rw + c : NULL;
        float *py[3];
        vf acc[3][8], tap[9];
        UNROLL for (int i = 0; i < 9; i++) tap[i] = v_load(w + i * VL);
        UNROLL for (int q = 0; q < dw_window(f); q += 3) px[q / 3] = g.x.data + t * xh + (p.u + q) * xw + c;
        UNROLL for (int v = 0; v < f.cols; v += 3) py[v / 3] = g.y.data + h * yh + (p.w + v) * yw + c;
        UNROLL for (int q = 0; q < 3; q++) UNROLL for (int v = 0; v < f.cols; v++) acc[q][v] = start;
        while (h < g.h1)
            UNROLL for (int turn = 0; turn < 3; turn++) { /* the registers' roles come round after three rows */
                if (h >= g.h1) break;
                if ((size_t)t < ih) dw_descend_row(f, &p, px, xw, turn, tap, acc);
                if (h >= g.h0) dw_descend_put(f, &p, acc[turn], r, rw, py, yw, lo, hi);
                UNROLL for (int v = 0; v < f.cols; v++) acc[turn][v] = start;
                t++, h++;
                if (r) r += g.r.sh;
                UNROLL for (int q = 0; q < dw_window(f); q += 3) { /* hidden, or each column would take a pointer */
                    px[q / 3] += xh;
                    v_launder(px[q / 3]);
                }
                UNROLL for (int v = 0; v < f.cols; v += 3) {
                    py[v / 3] += yh;
                    v_launder(py[v / 3]);
                }
            }
    }
}

typedef void dw_descend_fn(const fo_depthwise_args *, const dw_tile_place *, ptrdiff_t c, ptrdiff_t count, const float *w);

/* Columns of a band: three rows of sums, the taps and a vector of x fit 32 registers (networks' images are multiples of 7). */
enum { DW_BAND = 7, DW_HALF_BAND = 4 };

#define DESCEND(half, edges, side) \
    static __attribute__((noinline)) void dw_descend_##half##edges##side(const fo_depthwise_args *g, const dw_tile_place *at, ptrdiff_t c, ptrdiff_t count, \
                                                                          const float *w) { \
        const bool left = (side & DW_NO_FIRST) != 0, right = (side & DW_NO_LAST) != 0; \
        dw_descend((dw_tile_form){3, 1, 1, half ? DW_HALF_BAND : DW_BAND, edges, false, left, right}, g, at, c, count, w); \
    }
#define DESCENDS(half) DESCEND(half, 0, 0) DESCEND(half, 0, 1) DESCEND(half, 0, 2) DESCEND(half, 0, 3) DESCEND(half, 1, 0)
#define DESCEND_SIDES(half) {dw_descend_##half##00, dw_descend_##half##01, dw_descend_##half##02, dw_descend_##half##03, dw_descend_##half##10}
enum { DW_ANY_SIDE = DW_SIDES }; /* masked */
DESCENDS(0)
DESCENDS(1)

/* The tile whose first output pixel is (h, w); true where its window lies inside the image and all of it is wanted. */
static bool dw_place_tile(const dw_tile_form f, const fo_depthwise_args *g, ptrdiff_t h, ptrdiff_t w, dw_tile_place *p) {
    p->h = h, p->w = w;
    p->t = h * f.s - g->z->top;
    p->u = w * f.s - g->z->left;
    p->rows = (int)(g->h1 - h < f.rows ? g->h1 - h : f.rows);
    p->cols = (int)(g->z->ow - w < f.cols ? g->z->ow - w : f.cols);
    return p->rows == f.rows && p->cols == f.cols && p->t >= 0 && p->t + (f.rows - 1) * f.s + f.k <= g->z->ih && p->u >= 0 &&
           p->u + dw_window(f) <= g->z->iw;
}

static void dw_mask_tile(const dw_tile_form f, const fo_depthwise_args *g, dw_tile_place *p, ptrdiff_t lanes) {
    p->lanes = (int)lanes;
    for (int q = 0; q < dw_window(f); q++) p->in[q] = v_range(0, p->u + q >= 0 && p->u + q < g->z->iw ? lanes : 0);
}

/* The same for vectors whose lanes from `own` on are the next pixel's; a stride reads further columns for those. */
static void dw_mask_reaching(const dw_tile_form f, const fo_depthwise_args *g, dw_tile_place *p, ptrdiff_t own) {
    const ptrdiff_t iw = g->z->iw;
    p->lanes = VL;
    for (int q = 0; q < dw_window(f) + f.s - 1; q++) {
        const ptrdiff_t u = p->u + q;
        p->in[q] = v_range(u >= 0 && u < iw ? 0 : own, u + 1 >= 0 && u + 1 < iw ? VL : own);
    }
}

/* Taps of the vectors from c0 + shift on: lanes of two neighbouring blocks, the last one's of the last and the first. Behind them the
 * bias, whose first channels follow the last. */
static void dw_turn_taps(const fo_depthwise_args *g, dw_vectors *v, float *to) {
    const ptrdiff_t kk = g->s->kh * g->s->kw, own = VL - v->shift;
    const float *w = v->w;
    v->w = to;
    for (ptrdiff_t n = 0; n < v->count; n++) {
        const float *block = w + n * kk * VL, *next = w + (n + 1) % v->count * kk * VL;
        for (ptrdiff_t t = 0; t < kk * VL; t += VL, to += VL)
            v_store(to, v_select(v_range(0, own), v_load_tail(block + t + v->shift, own), v_load_mask(next + t - own, v_range(own, VL))));
    }
    if (!g->bias || !v->touch) return;
    v->bias = to;
    for (ptrdiff_t n = 0; n <= v->count; n++, to += VL) v_store(to, v_load(g->bias + n % v->count * VL));
}

/* Cuts the channels into vectors. Where all pixels of `at` lie on cache lines in the same way, but not from the first channel on (NumPy's large
 * arrays begin 16 bytes behind a line's start), `taps` takes the taps of vectors that do. */
static dw_vectors dw_cut_channels(const fo_depthwise_args *g, const fo_image *at, float taps[DW_TAPS]) {
    const ptrdiff_t kk = g->s->kh * g->s->kw, channels = g->c1 - g->c0, off = (ptrdiff_t)((uintptr_t)(at->data + g->c0) / sizeof(float) % VL);
    const bool touch = !g->c0 && g->x.sw == channels && g->y.sw == channels && (!g->r.data || g->r.sw == channels);
    dw_vectors v = {0, channels / VL, g->w + g->c0 * kk, g->bias, touch};
    const bool few = channels < (touch ? 32 : 6 * VL); /* would lose by vectors more, of a row or of each pixel */
    if (!off || (at->sw | at->sh | channels) % VL || g->act.kind > FO_CLIP || few || channels * (kk + 1) + VL > DW_TAPS) return v;
    v.shift = VL - off;
    dw_turn_taps(g, &v, taps);
    return v;
}

/* A vector of the channels, of n from 0 on: those from c0 + shift on, the one that begins a pixel and the one that ends it. */
typedef struct {
    ptrdiff_t c;
    const float *w;
    bool reaches; /* into the next pixel */
} dw_vector;

static dw_vector dw_vector_at(const fo_depthwise_args *g, const dw_vectors *v, ptrdiff_t n) {
    const ptrdiff_t kk = g->s->kh * g->s->kw, c = n == v->count ? g->c0 : g->c1 - VL;
    if (v->shift && n >= v->count) return (dw_vector){c, g->w + c * kk, false};
    return (dw_vector){g->c0 + v->shift + n * VL, v->w + n * kk * VL, v->shift && n == v->count - 1};
}

/* Whether a tile from output column w on wants vector n. */
static bool dw_wants(const fo_depthwise_args *g, const dw_vectors *v, ptrdiff_t n, ptrdiff_t w, int cols) {
    const bool ends = !v->touch || w + cols >= g->z->ow;
    if (!v->shift || n < v->count - 1) return true;
    return n == v->count - 1 ? !ends : ends || (n == v->count && !w);
}

/* Vectors with shift of a tile. */
static void dw_tile_shifted(const dw_tile_form f, const fo_depthwise_args *g, const dw_vectors *v, dw_tile_place *p, bool inside,
                            dw_tiles_fn *const tiles[2], dw_tiles_fn *const reach[2]) {
    const ptrdiff_t kk = f.k * f.k, last = g->c1 - VL - g->c0;
    const bool begins = dw_wants(g, v, v->count, p->w, f.cols), ends = dw_wants(g, v, v->count + 1, p->w, f.cols);
    if (begins) tiles[!inside](g, p, &(dw_run){1 + ends, g->c0, last, false, g->w + g->c0 * kk, last * kk, NULL, 0});
    tiles[!inside](g, p, &(dw_run){v->count - 1, g->c0 + v->shift, VL, false, v->w, kk * VL, NULL, 0});
    if (ends) return;
    const dw_vector reaching = dw_vector_at(g, v, v->count - 1);
    inside = inside && p->u + dw_window(f) + f.s <= g->z->iw;
    if (!inside) dw_mask_reaching(f, g, p, VL - v->shift);
    p->own = v_range(0, VL - v->shift);
    reach[!inside](g, p, &(dw_run){1, reaching.c, 0, false, reaching.w, 0, NULL, 0});
}

/* All channels of a tile. Sums that need another epilogue wait for it, a block of channels at a time. */
static void dw_tile_channels(const dw_tile_form f, const fo_depthwise_args *g, const dw_vectors *vectors, dw_tile_place *p, bool inside,
                             dw_tiles_fn *const tiles[2], dw_tiles_fn *const reach[2]) {
    enum { BLOCK = 8 * VL };
    const bool registers = g->act.kind <= FO_CLIP;
    const ptrdiff_t taps = f.k * f.k * VL;
    float sums[DW_SUMS * BLOCK];
    if (!inside) dw_mask_tile(f, g, p, VL);
    if (vectors->shift) {
        dw_tile_shifted(f, g, vectors, p, inside, tiles, reach);
        return;
    }
    for (ptrdiff_t c = g->c0, end; c < g->c1; c = end) {
        end = registers || c + BLOCK > g->c1 ? g->c1 : c + BLOCK;
        const ptrdiff_t count = (end - c) / VL, rest = (end - c) % VL;
        const float *w = g->w + c / VL * taps;
        p->lanes = VL;
        if (count) tiles[!inside](g, p, &(dw_run){count, c, VL, false, w, taps, registers ? NULL : sums, BLOCK});
        if (rest) {
            dw_mask_tile(f, g, p, rest);
            tiles[1](g, p, &(dw_run){1, end - rest, 0, false, w + count * taps, 0, registers ? NULL : sums + count * VL, BLOCK});
        }
        for (int q = 0; !registers && q < p->rows; q++)
            dw_finish(g, sums + q * f.cols * BLOCK, BLOCK, c, end - c, p->cols, g->y.data + (p->h + q) * g->y.sh + p->w * g->y.sw + c, g->y.sw,
                      g->r.data ? g->r.data + (p->h + q) * g->r.sh + p->w * g->r.sw + c : NULL, g->r.sw);
    }
}

/* Vectors that one sweep takes: `count` of them from channel c on, of whose lanes `own` are the pixel's itself. */
typedef struct {
    ptrdiff_t c, count;
    const float *w, *bias;
    ptrdiff_t own;
} dw_swept;

/* Those of `tiles` from p on. */
static dw_sweep dw_sweep_from(const dw_tile_form f, const fo_depthwise_args *g, const dw_tile_place *p, ptrdiff_t tiles, dw_swept v) {
    static const float zeros[VL];
    const bool clips = g->act.kind == FO_CLIP;
    const ptrdiff_t under = p->t + (f.rows - 1) * f.s + f.k - g->z->ih;
    return (dw_sweep){
        .x = g->x.data + p->t * g->x.sh + p->u * g->x.sw + v.c, .y = g->y.data + p->h * g->y.sh + p->w * g->y.sw + v.c,
        .w = v.w, .bias = g->bias ? v.bias + v.c : zeros, .step_bias = g->bias ? VL : 0, .tiles = tiles, .count = v.count,
        .xh = g->x.sh, .xw = g->x.sw, .yh = g->y.sh, .yw = g->y.sw, .above = p->t < 0 ? (uint8_t)-p->t : 0, .below = under > 0 ? (uint8_t)under : 0,
        .upper = clips && g->act.p1 < INFINITY, .lo = v_set1(clips ? g->act.p0 : -INFINITY), .hi = v_set1(clips ? g->act.p1 : INFINITY),
        .next = v_range(v.own, VL)};
}

/* after: whether the window ends behind the image. */
static void dw_sweep_vectors(const dw_tile_form f, const fo_depthwise_args *g, const dw_tile_place *p, ptrdiff_t tiles, bool after, dw_swept v) {
    static dw_sweep_fn *const few[][DW_SIDES] = {SWEEP_SIDES(3, 1, 0), SWEEP_SIDES(3, 1, 1), SWEEP_SIDES(3, 2, 0), SWEEP_SIDES(3, 2, 1)};
    static dw_sweep_fn *const of_lines[][DW_SIDES] = {
        HIGH_SIDES(1, 7), HIGH_SIDES(1, 4), HIGH_SIDES(1, 2), HIGH_SIDES(2, 7), HIGH_SIDES(2, 4), HIGH_SIDES(2, 2), SWEEP_ENDS(5, 1, 0), SWEEP_ENDS(5, 1, 1)};
    const bool half = f.cols < DW_SWEEP;
    dw_sweep_fn *const *sweeps = !DW_OF_LINES ? few[2 * (f.s - 1) + half] : f.k == 5 ? of_lines[6 + half] : of_lines[3 * (f.s - 1) + (f.rows < 7) + (f.rows < 4)];
    const dw_sweep a = dw_sweep_from(f, g, p, tiles, v);
    sweeps[(p->u < 0 ? DW_NO_FIRST : 0) + (after ? DW_NO_LAST : 0)](&a);
}

/* 3 x 3 kernels where registers are few. Ranges of columns so narrow that the rows which two tiles share stay in the first-level cache, from the
 * top down (of stride 2 they share one row of five: wide ones, read in long pieces). Tiles at the lower and the right end overlap others rather
 * than be smaller. False where there is no room for one. */
static bool dw_sweeps(const fo_depthwise_args *g, dw_tiles_fn *const tiles[DW_WIDTHS][2]) {
    enum { BYTES = 40 << 10, WIDE_BYTES = 256 << 10, COLS = 4, LEAST = 2 * COLS };
    const ptrdiff_t s = g->s->sh, ow = g->z->ow, rest = (g->c1 - g->c0) % VL, count = (g->c1 - g->c0) / VL;
    if (g->s->kh != 3 || g->act.kind > FO_CLIP || g->r.data || g->h1 - g->h0 < 2 || ow < 2) return false;
    const dw_vectors vectors = {0, count, g->w + g->c0 * 9, g->bias, false};
    const ptrdiff_t column = (g->c1 - g->c0) * (ptrdiff_t)sizeof(float) * (s * (s + 3) + 2);
    const ptrdiff_t fit = (s == 1 ? BYTES : WIDE_BYTES) / column / COLS * COLS, range = fit > LEAST ? fit : LEAST;
    dw_tile_form f = {.k = 3, .s = (int)s, .rows = 2};
    for (ptrdiff_t w0 = 0; w0 < ow; w0 += range) {
        const ptrdiff_t w1 = w0 + range < ow ? w0 + range : ow;
        for (ptrdiff_t h = g->h0; h < g->h1; h += 2)
            for (ptrdiff_t w = w0, across; w < w1; w += across * f.cols) {
                dw_tile_place p;
                f.cols = w1 - w >= 3 && ow >= COLS ? COLS : 2;
                const bool inside = dw_place_tile(f, g, h < g->h1 - 2 ? h : g->h1 - 2, w < w1 - f.cols ? w : w1 - f.cols, &p);
                const ptrdiff_t after = p.u + dw_window(f) - g->z->iw, under = p.t + s + 3 - g->z->ih;
                across = 1;
                if (p.t < -1 || under > 1 || p.u < -1 || after > 1 || (p.u < 0 && after > 0)) {
                    dw_tile_channels(f, g, &vectors, &p, inside, tiles[f.cols < COLS], tiles[DW_REACHING]);
                    continue;
                }
                if (!rest && p.u >= 0)
                    while (w + (across + 1) * COLS <= w1 && after + across * COLS * s <= 0) across++;
                dw_sweep_vectors(f, g, &p, across, after > 0, (dw_swept){g->c0, count, vectors.w, g->bias, VL});
                if (!rest) continue;
                dw_mask_tile(f, g, &p, rest);
                tiles[f.cols < COLS][1](g, &p, &(dw_run){1, g->c1 - rest, 0, false, vectors.w + count * 9 * VL, 0, NULL, 0});
            }
    }
    return true;
}

/* Whether the pixel behind a tile from output column w on is one of the image, with all its columns. */
static bool dw_goes_on(const dw_tile_form f, const fo_depthwise_args *g, ptrdiff_t w) {
    return w + f.cols < g->z->ow && w * f.s - g->z->left + dw_window(f) < g->z->iw;
}

/* All channels of a tile, or of `tiles` that go on. A vector that reaches into the next pixel is as the others, but where a column of that pixel
 * alone lies in the image, and at the end of a row. */
static void dw_line_channels(const dw_tile_form f, const fo_depthwise_args *g, const dw_vectors *v, const dw_tile_place *p, ptrdiff_t tiles) {
    const ptrdiff_t kk = f.k * f.k, last = g->c1 - VL, whole = v->count - 1;
    const bool after = p->u + dw_window(f) > g->z->iw, reaches = v->touch && dw_goes_on(f, g, p->w), alike = !v->shift || (reaches && p->u >= 0);
    const dw_swept reaching = {g->c0 + v->shift + whole * VL, 1, v->w + whole * kk * VL, v->bias, VL - v->shift};
    if (v->shift && (!p->w || !reaches)) dw_sweep_vectors(f, g, p, tiles, after, (dw_swept){g->c0, 1, g->w + g->c0 * kk, g->bias, VL});
    dw_sweep_vectors(f, g, p, tiles, after, (dw_swept){g->c0 + v->shift, alike ? v->count : whole, v->w, v->bias, VL});
    if (!alike) dw_sweep_vectors(f, g, p, tiles, after, reaches ? reaching : (dw_swept){last, 1, g->w + last * kk, g->bias, VL});
}

/* Rows of the tile that begins where `left` rows are left. High ones read fewer of the rows above again; of stride 2, or where all lines of a column
 * of pixels are in a few sets of the first-level cache, seven rows are too many streams. */
static int dw_line_rows(const dw_tile_form f, const fo_depthwise_args *g, ptrdiff_t left) {
    const ptrdiff_t rows = g->h1 - g->h0;
    const bool crowded = f.s == 2 || (g->x.sw % 64 == 0 && rows % 4 == 0);
    if (f.k == 5) return 2;
    return rows == 7 || (rows % 7 == 0 && !crowded) ? 7 : left > 2 && rows >= 4 ? 4 : 2;
}

/* Bytes of x and y. */
static ptrdiff_t dw_bytes(const fo_depthwise_args *g) {
    return (g->c1 - g->c0) * (ptrdiff_t)sizeof(float) * (g->h1 - g->h0) * (g->s->sh * g->z->iw + g->z->ow);
}

/* Whether the second-level cache holds both. */
static bool dw_is_near(const fo_depthwise_args *g) { return dw_bytes(g) <= 1 << 20; }

/* Whether lines of a tile's pixels, a multiple of 2 KB apart, drive each other out of the first-level cache, so that each vector of x should be read
 * once: in bands. From a cache further away lines that follow each other come better together: 512x28x28 on two threads 0.6. */
static bool dw_wants_bands(const fo_depthwise_args *g) {
    const bool fits = g->z->ow % DW_BAND == 0 && g->h1 - g->h0 >= DW_BAND && g->act.kind <= FO_CLIP;
    return g->half_rate && fits && g->s->kh == 3 && g->s->sh == 1 && g->x.sw % 512 == 0 && dw_is_near(g);
}

/* Kernels of 3 x 3, two columns at a time, and of 5 x 5 and stride 1, all channels of a pixel before the next. Narrow and high tiles read and write each
 * row from one end to the other, which is all that counts where the image is in the third-level cache: 144x56x56 takes 150 us, with seven columns
 * of two rows 175 to 180, a copy 135; of stride 2, 96x112x112 255, with four columns of four rows 300. Ranges of columns keep the rows that two tiles
 * share in the second level. Vectors are cut at the lines of y, for a store across two lines waits for both (144x56x56 160 us instead of 255), while
 * loads across lines cost nothing there; of stride 2 the next pixel's lanes are further away, so that a pixel's first and last vector, across
 * lines, must be few of many. False where others serve better (little work for a call, margins that the forms do not know). */
static bool dw_line_sweeps(const fo_depthwise_args *g) {
    enum { BYTES = 512 << 10, MANY = 16 * VL };
    const fo_conv2d_size *z = g->z;
    const ptrdiff_t k = g->s->kh, s = g->s->sh, half = k / 2, channels = g->c1 - g->c0;
    const ptrdiff_t right = (z->ow - 1) * s + k - z->left - z->iw, bottom = (z->oh - 1) * s + k - z->top - z->ih;
    dw_tile_form f = {.k = (int)k, .s = (int)s, .rows = k == 3 ? 7 : 2, .cols = k == 3 ? DW_HIGH : z->ow < DW_SWEEP ? DW_HALF_SWEEP : DW_SWEEP};
    const bool fits = z->ow == f.cols || z->ow >= f.cols + half, known = (!z->left || z->left == half) && (right <= 0 || right == half);
    if ((k != 3 && (k != 5 || s != 1)) || channels % VL || g->act.kind > FO_CLIP || g->r.data || g->h1 - g->h0 < 2) return false;
    if (!fits || !known || z->top > half || bottom > half || dw_wants_bands(g)) return false;
    float taps[DW_TAPS];
    dw_vectors vectors = {0, channels / VL, g->w + g->c0 * k * k, g->bias, false};
    if (s == 1 || channels >= MANY) vectors = dw_cut_channels(g, &g->y, taps);
    vectors.touch = vectors.touch && s == 1;
    const ptrdiff_t column = channels * (ptrdiff_t)sizeof(float) * (f.rows * (s * s + 1) + k - 1), least = 2 * f.cols;
    const ptrdiff_t fit = BYTES / column / f.cols * f.cols, range = fit > least ? fit : least;
    for (ptrdiff_t w0 = 0; w0 < z->ow; w0 += range) {
        const ptrdiff_t w1 = w0 + range < z->ow ? w0 + range : z->ow;
        for (ptrdiff_t h = g->h0; h < g->h1; h += f.rows) {
            f.rows = dw_line_rows(f, g, g->h1 - h);
            for (ptrdiff_t w = w0, across; w < w1; w += across * f.cols) {
                if (k == 5) f.cols = w1 - w > DW_HALF_SWEEP && z->ow >= DW_SWEEP ? DW_SWEEP : DW_HALF_SWEEP;
                ptrdiff_t at = w < w1 - f.cols ? w : w1 - f.cols;
                while (at < z->ow - f.cols && at * s - z->left + dw_window(f) > z->iw) at--; /* a window ends in the image, or as far behind as it can */
                dw_tile_place p;
                dw_place_tile(f, g, h < g->h1 - f.rows ? h : g->h1 - f.rows, at, &p);
                across = 1;
                if (p.u >= 0 && (vectors.touch || !vectors.shift))
                    while (w + (across + 1) * f.cols <= w1 && dw_goes_on(f, g, w + across * f.cols)) across++;
                dw_line_channels(f, g, &vectors, &p, across);
            }
        }
    }
    return true;
}

/* All rows of the output, for some vectors of channels, a band of columns after the other. The last one overlaps rather than be smaller. */
static void dw_relay_down(const fo_depthwise_args *g, dw_swept v) {
    static dw_relay_fn *const relays[][DW_SIDES] = {RELAY_SIDES(7), RELAY_SIDES(5)};
    enum { MOST = 8 };
    _Alignas(64) float sums[MOST * DW_RELAY * VL];
    const fo_conv2d_size *z = g->z;
    dw_tile_form f = {.k = 3, .s = 2, .rows = 1};
    for (; v.count > 0; v.c += MOST * VL, v.w += MOST * 9 * VL, v.count -= MOST)
        for (ptrdiff_t w = 0; w < z->ow; w += f.cols) {
            const bool few = z->ow < DW_RELAY || z->ow - w <= DW_RELAY_FEW;
            f.cols = few ? DW_RELAY_FEW : DW_RELAY;
            dw_swept part = v;
            part.count = v.count < MOST ? v.count : MOST;
            for (ptrdiff_t h = g->h0 - (g->h0 > 0 || !z->top); h < g->h1; h++) { /* from the row before, unless it lies outside */
                dw_tile_place p;
                dw_place_tile(f, g, h, w < z->ow - f.cols ? w : z->ow - f.cols, &p);
                const dw_relay r = {dw_sweep_from(f, g, &p, 1, part), sums, h >= g->h0, h + 1 < g->h1};
                relays[few][(p.u < 0 ? DW_NO_FIRST : 0) + (p.u + dw_window(f) > z->iw ? DW_NO_LAST : 0)](&r);
            }
        }
}

/* Whether relays serve pixels that do not crowd: where a second-level cache holds most of x and y, and there are many channels, or, where none
 * is across lines, some. Longer rows of few channels come better in one piece: 96x112x112 98 us, by sweeps 80. */
static bool dw_wants_relays(const fo_depthwise_args *g) {
    enum { SOME = 8 * VL, MANY = 16 * VL, BYTES = 2 << 20 };
    const ptrdiff_t channels = g->c1 - g->c0;
    const bool at_lines = ((uintptr_t)(g->x.data + g->c0) | (uintptr_t)(g->y.data + g->c0)) % (VL * sizeof(float)) == 0;
    return g->h1 - g->h0 >= DW_RELAY && dw_bytes(g) <= BYTES && channels >= (at_lines ? SOME : MANY);
}

/* Kernels of 3 x 3, stride 2, where a first-level cache of 32 KB meets AVX-512 and pixels crowd into few of its sets, or are wide: each vector of x is
 * read once, eight neighbours before those of the next row (lines that follow each other come twice as fast). 512x14x14 takes 9.6 us, 16.1 by sweeps;
 * 256x28x28 15.8 and 18.6, 192x28x28 9.7 and 11.3. False where others serve better. */
static bool dw_relays(const fo_depthwise_args *g) {
    enum { CROWDED = 128, CUT = 16 * VL };
    const fo_conv2d_size *z = g->z;
    const ptrdiff_t channels = g->c1 - g->c0, right = (z->ow - 1) * 2 + 3 - z->left - z->iw, bottom = (z->oh - 1) * 2 + 3 - z->top - z->ih;
    const bool known = z->left <= 1 && right <= 1 && z->top <= 1 && bottom <= 1 && z->ow >= DW_RELAY_FEW && g->h1 - g->h0 >= 2;
    if (!g->half_rate || g->s->kh != 3 || g->s->sh != 2 || channels % VL || g->act.kind > FO_CLIP || g->r.data || !known) return false;
    if (g->x.sw % CROWDED && !dw_wants_relays(g)) return false;
    float taps[DW_TAPS];
    dw_vectors vectors = {0, channels / VL, g->w + g->c0 * 9, g->bias, false};
    if (channels >= CUT) vectors = dw_cut_channels(g, &g->y, taps);
    dw_relay_down(g, (dw_swept){g->c0 + vectors.shift, vectors.count - (vectors.shift > 0), vectors.w, vectors.bias, VL});
    for (ptrdiff_t n = vectors.count; vectors.shift && n < vectors.count + 2; n++) { /* either end of each pixel */
        const dw_vector v = dw_vector_at(g, &vectors, n);
        dw_relay_down(g, (dw_swept){v.c, 1, v.w, g->bias, VL});
    }
    return true;
}

/* The tiles of row h for vector n of the channels, of which `lanes` are there. */
static void dw_tile_vector_across(dw_tile_form f, const fo_depthwise_args *g, const dw_vectors *vectors, ptrdiff_t n, ptrdiff_t lanes,
                                  ptrdiff_t h, dw_tiles_fn *const tiles[DW_WIDTHS][2]) {
    const dw_vector v = dw_vector_at(g, vectors, n);
    const ptrdiff_t left = g->z->left, ow = g->z->ow, room = g->z->iw + left - dw_window(f) - v.reaches * f.s, step = f.cols * f.s;
    const ptrdiff_t inner = room < 0 ? 0 : (room / step + 1) * f.cols, whole = (ow - v.reaches) / f.cols * f.cols;
    const bool few = vectors->shift && vectors->touch && n >= vectors->count; /* tiles want it */
    const ptrdiff_t first = left > 0 ? (left + step - 1) / step * f.cols : 0, last = few ? 0 : inner < whole ? inner : whole;
    const int cols = f.cols;
    for (ptrdiff_t w = 0, count; w < ow; w += count * f.cols) {
        dw_tile_place p;
        const int half = ow - w <= cols / 2;
        f.cols = cols >> half;
        count = w >= first && w < last ? (last - w) / cols : 1; /* tiles from first to last have all their columns */
        if (!dw_wants(g, vectors, n, w, f.cols)) continue;
        const bool inside = dw_place_tile(f, g, h, w, &p) && lanes == VL && p.u + dw_window(f) + v.reaches * f.s <= g->z->iw;
        if (!inside && v.reaches)
            dw_mask_reaching(f, g, &p, VL - vectors->shift);
        else if (!inside)
            dw_mask_tile(f, g, &p, lanes);
        p.own = v_range(0, VL - vectors->shift);
        tiles[v.reaches ? DW_REACHING : half][!inside](g, &p, &(dw_run){count, v.c, 0, true, v.w, 0, NULL, 0});
    }
}

/* The tiles of row h, one vector of channels after the other: taps and sums of few channels are at hand along a row. */
static void dw_tile_row_across(dw_tile_form f, const fo_depthwise_args *g, const dw_vectors *vectors, ptrdiff_t h,
                               dw_tiles_fn *const tiles[DW_WIDTHS][2]) {
    const ptrdiff_t count = vectors->count + (vectors->shift ? 2 : 0), rest = (g->c1 - g->c0) % VL;
    for (ptrdiff_t n = 0; n < count; n++) dw_tile_vector_across(f, g, vectors, n, VL, h, tiles);
    if (rest) dw_tile_vector_across(f, g, vectors, count, rest, h, tiles);
}

/* All rows of the output, a band of columns after the other, vector by vector. */
static void dw_bands(const fo_depthwise_args *g, const dw_vectors *vectors) {
    static dw_descend_fn *const descend[2][DW_ANY_SIDE + 1] = {DESCEND_SIDES(0), DESCEND_SIDES(1)};
    const ptrdiff_t rest = (g->c1 - g->c0) % VL, whole = vectors->count - (vectors->shift > 0), count = vectors->count + (vectors->shift ? 2 : 0);
    for (ptrdiff_t w = 0; w < g->z->ow; w += DW_BAND) {
        const ptrdiff_t left = g->z->ow - w;
        const int half = left <= DW_HALF_BAND;
        const dw_tile_form f = {3, 1, 1, half ? DW_HALF_BAND : DW_BAND, false, false, false, false};
        dw_tile_place p = {.w = w, .u = w - g->z->left, .cols = (int)(left < f.cols ? left : f.cols)}, reaching = p;
        const ptrdiff_t after = p.u + dw_window(f) - g->z->iw;
        const int side = p.u < -1 || after > 1 || p.cols < f.cols ? DW_ANY_SIDE : (p.u < 0 ? DW_NO_FIRST : 0) + (after > 0 ? DW_NO_LAST : 0);
        dw_mask_tile(f, g, &p, VL);
        dw_mask_reaching(f, g, &reaching, VL - vectors->shift);
        descend[half][side](g, &p, g->c0 + vectors->shift, whole, vectors->w);
        for (ptrdiff_t n = whole; n < count; n++) {
            if (!dw_wants(g, vectors, n, w, f.cols)) continue;
            const dw_vector v = dw_vector_at(g, vectors, n);
            const bool beyond = v.reaches && (p.u < 0 || after >= 0);
            descend[half][beyond ? DW_ANY_SIDE : side](g, v.reaches ? &reaching : &p, v.c, 1, v.w);
        }
        if (!rest) continue;
        dw_mask_tile(f, g, &p, rest);
        descend[half][DW_ANY_SIDE](g, &p, g->c1 - rest, 1, g->w + (g->c1 - rest) * 9);
    }
}

static void dw_pixels(const fo_depthwise_args *args, dw_tiles_fn *const tiles[DW_WIDTHS][2]);

/* Pixels a multiple of 2 KB apart share two of the 64 sets of a first-level cache of 32 KB, which hold less than a tile's window: each half of
 * a line would be fetched by itself. Some channels of some rows are copied aside first; false where a few rows would not fit. */
static bool dw_aside(const fo_depthwise_args *g, dw_tiles_fn *const tiles[DW_WIDTHS][2]) {
    enum { CHANNELS = 8 * VL, FLOATS = 6 << 10 };
    const ptrdiff_t k = g->s->kh, s = g->s->sh, iw = g->z->iw, line = iw * CHANNELS, fit = line ? FLOATS / line : 0;
    const ptrdiff_t most = fit < k ? 0 : (fit - k) / s + 1, unit = dw_tile_rows((int)k), strip = most / unit * unit;
    if (REGISTERS >= 32 || g->x.sw % 512 || !strip) return false;
    _Alignas(64) float aside[FLOATS];
    for (ptrdiff_t c = g->c0; c < g->c1; c += CHANNELS)
        for (ptrdiff_t h = g->h0; h < g->h1; h += strip) {
            fo_depthwise_args part = *g;
            part.c0 = c, part.c1 = c + CHANNELS < g->c1 ? c + CHANNELS : g->c1;
            part.h0 = h, part.h1 = h + strip < g->h1 ? h + strip : g->h1;
            const ptrdiff_t first = h * s - g->z->top, last = (part.h1 - 1) * s - g->z->top + k;
            const ptrdiff_t t0 = first > 0 ? first : 0, t1 = last < g->z->ih ? last : g->z->ih, channels = part.c1 - c;
            float *to = aside;
            for (ptrdiff_t t = t0; t < t1; t++)
                for (ptrdiff_t u = 0; u < iw; u++, to += CHANNELS) {
                    const float *from = g->x.data + t * g->x.sh + u * g->x.sw + c;
                    if (channels == CHANNELS)
                        UNROLL for (int v = 0; v < CHANNELS; v += VL) v_store(to + v, v_load(from + v));
                    else
                        for (ptrdiff_t v = 0; v < channels; v += VL) v_store(to + v, v_load_tail(from + v, channels - v));
                }
            part.x = (fo_image){aside - c - t0 * line, 0, 1, line, CHANNELS};
            dw_pixels(&part, tiles);
        }
    return true;
}

/* All rows of the output, tile by tile: strips from the top down, in ranges of columns so narrow that the rows which two strips share
 * stay in the cache. Or vector by vector, where the second-level cache holds x and y: 576x14x14 11.8 to 9.8 us, 240x14x14 4.4 to 3.7,
 * 96x28x28 7.5 to 6.3; 144x56x56, which it does not hold, 45 to 48. Pixels a multiple of 512 bytes apart share few sets of the first-level
 * cache, where lines of one vector drive each other out: 256x14x14 5.2 to 6.3. Sixteen registers hold too few columns, and a few rows of a
 * larger image (a block's tile) begin sums in vain: 24x56x56 in one kernel 277 to 297 us. */
static void dw_pixels(const fo_depthwise_args *args, dw_tiles_fn *const tiles[DW_WIDTHS][2]) {
    if (dw_aside(args, tiles) || (REGISTERS < 32 && dw_sweeps(args, tiles)) || (DW_OF_LINES && (dw_relays(args) || dw_line_sweeps(args)))) return;
    fo_depthwise_args turned = *args;
    const fo_depthwise_args *const g = &turned;
    enum { STRIP_BYTES = 256 << 10 };
    const int k = (int)g->s->kh, s = (int)g->s->sh;
    dw_tile_form f = {.k = k, .s = s, .rows = dw_tile_rows(k), .cols = dw_tile_cols(k)};
    const ptrdiff_t column = (g->c1 - g->c0) * (ptrdiff_t)sizeof(float) * s * ((f.rows - 1) * s + k), most = STRIP_BYTES / column;
    const ptrdiff_t range = most > f.cols ? most / f.cols * f.cols : f.cols;
    float taps[DW_TAPS];
    const dw_vectors vectors = dw_cut_channels(g, &g->x, taps);
    turned.bias = vectors.bias;
    /* Few enough vectors go along a row, one after the other. Of stride 2 fewer, for of six each reads every sixth line of rows that are gone by
     * then: 96x112x112, 6 MB, from 400 to 320 us, 64x28x28 from 10 to 8; of two vectors, 32x112x112, 60 to 58. */
    const ptrdiff_t few = REGISTERS >= 32 && k == 3 && s == 2 ? 4 : 8;
    const bool apart = g->h1 - g->h0 >= g->z->ih && dw_is_near(g) && g->x.sw % 128 && g->y.sw % 128;
    if (REGISTERS >= 32 && k == 3 && s == 1 && g->act.kind <= FO_CLIP && (apart || dw_wants_bands(g))) {
        dw_bands(g, &vectors);
        return;
    }
    if (g->act.kind <= FO_CLIP && g->c1 - g->c0 < few * VL) {
        for (ptrdiff_t h = g->h0; h < g->h1; h += f.rows) dw_tile_row_across(f, g, &vectors, h, tiles);
        return;
    }
    for (ptrdiff_t w0 = 0; w0 < g->z->ow; w0 += range) {
        const ptrdiff_t w1 = w0 + range < g->z->ow ? w0 + range : g->z->ow;
        for (ptrdiff_t h = g->h0; h < g->h1; h += f.rows)
            for (ptrdiff_t w = w0; w < w1; w += f.cols) {
                dw_tile_place p;
                const int half = w1 - w <= dw_tile_cols(k) / 2;
                f.cols = dw_tile_cols(k) >> half;
                const bool inside = dw_place_tile(f, g, h, w, &p);
                dw_tile_channels(f, g, &vectors, &p, inside, tiles[half], tiles[DW_REACHING]);
            }
        f.cols = dw_tile_cols(k);
    }
}
