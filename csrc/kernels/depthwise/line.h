/* Depthwise convolution, 3 x 3, channels as lanes: one row of outputs, some vectors of channels, from three input rows anywhere in memory.
 *
 * For blocks of convolutions (csrc/conv/block.c), where input rows are fresh in the first-level cache: four pixels at a time, nine taps in
 * registers. Taps are added in the order of i, then j, and rows outside the image are skipped, as in pixels.h: with the same bits.
 */
enum { DW_LINE_COLS = 4 };

/* A literal at every call. */
typedef struct {
    int s;
    bool all, near; /* all three input rows lie in the image; pixels stand NR floats apart */
} dw_line_form;

/* Where a tile stands. */
typedef struct {
    const float *in[3]; /* the window's first column */
    float *y;
    ptrdiff_t xw, yw;
} dw_line_place;

/* Pixels side by side. Literals: whether the window's first or last column lies outside the image. */
INLINE void dw_line_tile(const dw_line_form f, const bool left, const bool right, const dw_line_place *l, const vf tap[9], const vf start, const ep_bounds *ep) {
    const int window = (DW_LINE_COLS - 1) * f.s + 3;
    vf acc[DW_LINE_COLS];
    UNROLL for (int v = 0; v < DW_LINE_COLS; v++) acc[v] = start;
    UNROLL for (int i = 0; i < 3; i++) {
        const float *in = l->in[i];
        if (!f.all && !in) continue;
        UNROLL for (int u = 0; u < window; u++) {
            vf x = (left && !u) || (right && u == window - 1) ? v_zero() : v_load(f.near ? in + u * NR : in + u % 3 * l->xw);
            v_force_reg(x); /* or each of its multiply-adds loads it */
            UNROLL for (int j = 0; j < 3; j++)
                if (u >= j && (u - j) % f.s == 0 && (u - j) / f.s < DW_LINE_COLS)
                    acc[(u - j) / f.s] = v_fma(tap[3 * i + j], x, acc[(u - j) / f.s]);
            if (u % 3 == 2 && !f.near) {
                in += 3 * l->xw;
                v_launder(in); /* or each column would take a register */
            }
        }
    }
    float *to = l->y;
    UNROLL for (int v = 0; v < DW_LINE_COLS; v++, to += l->yw) {
        v_launder(to);
        ep_store(ep, to, acc[v]);
    }
}

INLINE void dw_line_advance(const dw_line_form f, dw_line_place *l, ptrdiff_t columns) {
    UNROLL for (int i = 0; i < 3; i++) {
        if (f.all || l->in[i]) l->in[i] += columns * f.s * (f.near ? NR : l->xw);
        v_launder(l->in[i]);
    }
    l->y += columns * l->yw;
}

INLINE void dw_line(const dw_line_form f, const fo_depthwise_line_args *args) {
    const fo_depthwise_line_args g = *args; /* a copy, which the compiler knows that no store changes */
    const ptrdiff_t tiles = (g.ow - 1) / DW_LINE_COLS, back = g.ow - tiles * DW_LINE_COLS, before = g.left * (f.near ? NR : g.xw);
    const bool left = g.left, right = (g.ow - 1) * f.s + 3 - g.left > g.iw;
    const ep_bounds ep = ep_start(&g.act);
    dw_line_place l = {.xw = g.xw, .yw = g.yw};
    for (ptrdiff_t n = 0; n < g.vectors; n++) {
        UNROLL for (int i = 0; i < 3; i++) {
            l.in[i] = f.all || g.rows[i] ? g.rows[i] + n * VL - before : NULL;
            v_launder(l.in[i]);
        }
        l.y = g.y + n * VL;
        vf tap[9], start = g.bias ? v_load(g.bias + n * VL) : v_zero();
        v_force_mem(start); /* registers are for taps and sums */
        UNROLL for (int t = 0; t < 9; t++) tap[t] = v_load(g.w + (n * 9 + t) * VL);
        if (left)
            dw_line_tile(f, true, false, &l, tap, start, &ep);
        else
            dw_line_tile(f, false, false, &l, tap, start, &ep);
        for (ptrdiff_t t = tiles; t > 1; t--) {
            dw_line_advance(f, &l, DW_LINE_COLS);
            dw_line_tile(f, false, false, &l, tap, start, &ep);
        }
        dw_line_advance(f, &l, back); /* the last one ends where the row ends */
        if (right)
            dw_line_tile(f, false, true, &l, tap, start, &ep);
        else
            dw_line_tile(f, false, false, &l, tap, start, &ep);
    }
}

typedef void dw_line_fn(const fo_depthwise_line_args *);
#define LINE(s, all, near) \
    static __attribute__((noinline)) void dw_line_##s##all##near(const fo_depthwise_line_args *g) { dw_line((dw_line_form){s, all, near}, g); }
LINE(1, 0, 0)
LINE(1, 1, 0)
LINE(1, 1, 1)
LINE(2, 0, 0)
LINE(2, 1, 0)
LINE(2, 1, 1)
#undef LINE

void FO_NAME(fo_depthwise_line)(const fo_depthwise_line_args *g) {
    static dw_line_fn *const lines[2][3] = {{dw_line_100, dw_line_110, dw_line_111}, {dw_line_200, dw_line_210, dw_line_211}};
    const bool all = g->rows[0] && g->rows[1] && g->rows[2];
    lines[g->stride - 1][all + (all && g->xw == NR)](g);
}
