/* Depthwise convolution: y[c,h,w] = epilogue(sum over i, j of w[c,i,j] x[c, h*sh + i*dh - top, w*sw + j*dw - left]).
 *
 * A walk goes down the image with a few vectors of one output row side by side: lanes are columns (NCHW) or channels (NHWC).
 * Each input row is loaded once and added to every output row that needs it; their sums stand in registers (3 x 3, stride 1):
 *
 *    input row t   ->  acc[0] += w[2][.] row      output row t-2, now complete: epilogue, store, and the others move up by one
 *                      acc[1] += w[1][.] row      output row t-1
 *                      acc[2] += w[0][.] row      output row t
 *
 * Each output row is a chain of its own, so a processor that runs ahead hides the latency. Lanes left and right of the image are
 * masked to zero, rows above and below it are skipped. Taps are added in the order of i, then j, everywhere: bits depend neither on
 * the memory order nor on where a vector begins.
 */
enum { DW_WIDE = 4, DW_LOADS = 16, DW_TILE_ROWS = 16 };

/* A walk's shape; a literal at every call. nv vectors stand side by side: of columns, or of one pixel each where lanes are channels. */
typedef struct {
    int kh, kw, sh, sw, nv;
    bool nhwc;
    int edge; /* see dw_edge */
} dw_form;

/* Loads of an input row: all inside the image; masked; masked, and (NCHW) those behind the nv vectors lie outside and are left out. */
typedef enum { DW_INSIDE, DW_MASKED, DW_FITS, DW_EDGES } dw_edge;

/* Where a walk stands; the same for all channels. */
typedef struct {
    ptrdiff_t w;     /* its first output column */
    vm in[DW_LOADS]; /* lanes inside the image, of each load from an input row */
    vm out;          /* lanes to store of the last vector (NHWC: of each) */
    int lanes;       /* their number */
    dw_edge edge;
} dw_place;

/* What a walk keeps at hand. */
typedef struct {
    ptrdiff_t xw, ldw;
    const float *w;
    vm in[DW_LOADS];
    vf taps[9]; /* where the registers hold them */
    vf acc[8][DW_WIDE];
} dw_state;

/* Output rows whose sums are under way. */
INLINE int dw_live(const dw_form f) { return (f.kh + f.sh - 1) / f.sh; }
/* NCHW: vectors of each phase of an input row (columns a stride apart) that hold nv shifted ones. */
INLINE int dw_reach(const dw_form f) { return f.nv + ((f.kw - 1) / f.sw + VL - 1) / VL; }
INLINE int dw_loads(const dw_form f) { return f.nhwc ? (f.nv - 1) * f.sw + f.kw : f.sw * dw_reach(f); }

/* Whether the taps fit the registers, beside the sums and a few vectors of the image. */
INLINE bool dw_keeps_taps(const dw_form f) { return f.kh * f.kw <= 9 && f.kh * f.kw + dw_live(f) * f.nv + 4 <= REGISTERS; }
INLINE vf dw_tap(const dw_form f, const float *w, ptrdiff_t ldw, const int tap) { return f.nhwc ? v_load(w + tap * ldw) : v_set1(w[tap]); }

/* The vectors of an input row from x on: pixels (NHWC), or the columns of each phase (NCHW). */
INLINE void dw_load_row(const dw_form f, const dw_state *s, const float *x, vf row[DW_LOADS]) {
    const int reach = dw_reach(f);
    UNROLL for (int q = 0; q < dw_loads(f); q++) {
        const float *p = x + (f.nhwc ? q * s->xw : q * VL);
        row[q] = f.edge == DW_FITS && q >= f.nv * f.sw ? v_zero() : f.edge ? v_load_mask(p, s->in[q]) : v_load(p);
    }
    if (!f.nhwc && f.sw == 2) {
        vf phase[DW_LOADS];
        UNROLL for (int v = 0; v < reach; v++) {
            phase[v] = v_even(row[2 * v], row[2 * v + 1]);
            phase[reach + v] = v_odd(row[2 * v], row[2 * v + 1]);
        }
        UNROLL for (int q = 0; q < 2 * reach; q++) row[q] = phase[q];
    }
}

/* Vector v of the columns (or pixels) that tap j meets. */
INLINE vf dw_shifted(const dw_form f, const float *x, const vf row[DW_LOADS], const int v, const int j) {
    if (f.nhwc) return row[v * f.sw + j];
    if (f.sw == 1 && !f.edge) return v_load(x + v * VL + j);
    const vf *from = row + j % f.sw * dw_reach(f) + v + j / f.sw / VL;
    return j / f.sw % VL ? v_concat(from[0], from[1], j / f.sw % VL) : from[0];
}

/* acc[q] += w[i - q*sh][.] x: an input row that is row i of output row 0. */
INLINE void dw_row(const dw_form f, dw_state *s, const float *x, const int i) {
    vf row[DW_LOADS];
    if (f.nhwc || f.edge || f.sw > 1) dw_load_row(f, s, x, row);
    UNROLL for (int j = 0; j < f.kw; j++) {
        vf xv[DW_WIDE];
        UNROLL for (int v = 0; v < f.nv; v++) xv[v] = dw_shifted(f, x, row, v, j);
        UNROLL for (int q = 0; q * f.sh <= i; q++) {
            const int tap = (i - q * f.sh) * f.kw + j;
            vf t = dw_keeps_taps(f) ? s->taps[tap] : dw_tap(f, s->w, s->ldw, tap);
            UNROLL for (int v = 0; v < f.nv; v++) s->acc[q][v] = v_fma(t, xv[v], s->acc[q][v]);
        }
    }
}

/* The other epilogues, from a tile of `rows` vectors: y and r are the places of its first. */
static __attribute__((noinline)) void dw_finish(const fo_depthwise_args *g, const float *tile, ptrdiff_t c, ptrdiff_t lanes, int rows, float *y,
                                                const float *r) {
    const bool one_slope = !g->nhwc && g->act.kind == FO_PRELU;
    finish_args f = {.tile = tile, .mr = rows, .n = (int)lanes, .ldt = VL, .r = r, .ldr = g->r.sh, .c = y, .ldc = g->y.sh,
                     .slopes = g->act.slopes ? g->act.slopes + c : NULL, .p0 = one_slope ? g->act.slopes[c] : g->act.p0, .p1 = g->act.p1};
    finish_tile(&f, one_slope ? FO_LEAKY_RELU : g->act.kind, false);
}

/* Rows h0 .. h1 of one channel (NHWC: of VL channels). x is at input row 0 and the column of tap 0, y and r at output row h0. */
INLINE void dw_walk(const dw_form f, const fo_depthwise_args *g, const fo_conv2d_size *z, const dw_place *place, const float *x, const float *w, const float *bias,
                    const float *r, float *y, float *tile, ptrdiff_t h0, ptrdiff_t h1) {
    const int live = dw_live(f);
    const bool registers = g->act.kind <= FO_CLIP, whole = place->lanes == VL;
    const ptrdiff_t xh = g->x.sh, yh = g->y.sh, rh = g->r.sh, yv = f.nhwc ? g->y.sw : VL, rv = f.nhwc ? g->r.sw : VL;
    const size_t ih = (size_t)z->ih;
    const vf lo = v_set1(g->act.kind == FO_CLIP ? g->act.p0 : -INFINITY), hi = v_set1(g->act.kind == FO_CLIP ? g->act.p1 : INFINITY);
    const vf start = !bias ? v_zero() : f.nhwc ? v_load_mask(bias, place->out) : v_set1(*bias);
    dw_state s = {.w = w, .xw = g->x.sw, .ldw = g->ldw};
    if (f.edge) UNROLL for (int q = 0; q < dw_loads(f); q++) s.in[q] = place->in[q];
    if (dw_keeps_taps(f)) UNROLL for (int t = 0; t < f.kh * f.kw; t++) s.taps[t] = dw_tap(f, s.w, s.ldw, t);
    UNROLL for (int q = 0; q < live; q++) UNROLL for (int v = 0; v < f.nv; v++) s.acc[q][v] = start;

    ptrdiff_t t = h0 * f.sh - z->top;
    x += t * xh;
    UNROLL for (int i = 0; i < f.kh - f.sh; i++, t++, x += xh)
        if ((size_t)t < ih) dw_row(f, &s, x, i);
    for (ptrdiff_t h = h0; h < h1; h++) {
        UNROLL for (int i = f.kh - f.sh; i < f.kh; i++, t++, x += xh)
            if (__builtin_expect((size_t)t < ih, 1)) dw_row(f, &s, x, i);
        if (__builtin_expect(registers, 1)) {
            if (r) {
                UNROLL for (int v = 0; v < f.nv; v++)
                    s.acc[0][v] = v_add(s.acc[0][v], whole || !(f.nhwc || v == f.nv - 1) ? v_load(r + v * rv) : v_load_mask(r + v * rv, place->out));
                r += rh;
            }
            UNROLL for (int v = 0; v < f.nv; v++) {
                const vf done = v_min(hi, v_max(lo, s.acc[0][v]));
                if (whole || !(f.nhwc || v == f.nv - 1))
                    v_store(y + v * yv, done);
                else
                    v_store_mask(y + v * yv, done, place->out);
            }
            y += yh;
        } else {
            UNROLL for (int v = 0; v < f.nv; v++) v_store(tile + (v * DW_TILE_ROWS + h - h0) * VL, s.acc[0][v]);
        }
        UNROLL for (int q = 0; q < live; q++) UNROLL for (int v = 0; v < f.nv; v++) s.acc[q][v] = q + 1 < live ? s.acc[q + 1][v] : start;
    }
}

/* The walks of channels c0 .. c1; the last VL of them, and the second VL, may overlap those before. */
INLINE void dw_channels(const dw_form f, const fo_depthwise_args *args, const dw_place *at, ptrdiff_t c0, ptrdiff_t c1, ptrdiff_t h0,
                        ptrdiff_t h1) {
    const fo_depthwise_args g = *args; /* copies, which the compiler knows that no store changes */
    const fo_conv2d_size z = *g.z;
    const dw_place place = *at;
    const int rows = (int)(h1 - h0);
    float tile[DW_WIDE * DW_TILE_ROWS * VL];
    ptrdiff_t input = c0 / g.multiplier, copies = c0 % g.multiplier;
    const float *x0 = g.x.data + (place.w * f.sw - z.left) * g.x.sw;
    float *y0 = g.y.data + h0 * g.y.sh + place.w * g.y.sw;
    const float *r0 = g.r.data ? g.r.data + h0 * g.r.sh + place.w * g.r.sw : NULL;
    /* Many channels: all vectors but the first and the last stand in one cache line each, which pays where loads are the limit. */
    const ptrdiff_t misaligned = (ptrdiff_t)((uintptr_t)(y0 + c0) / sizeof(float) % VL);
    const ptrdiff_t first = f.nhwc && f.kh * f.kw <= 9 && c1 - c0 >= 8 * VL ? VL - misaligned : f.nhwc ? VL : 1;
    for (ptrdiff_t next = c0, c; next < c1; next += next == c0 ? first : f.nhwc ? VL : 1) {
        c = f.nhwc && next + VL > c1 && next > c0 ? c1 - VL : next;
        float *y = y0 + c * g.y.sc;
        const float *r = r0 ? r0 + c * g.r.sc : NULL;
        dw_walk(f, &g, &z, &place, x0 + (f.nhwc ? c : input) * g.x.sc, f.nhwc ? g.w + c : g.w + c * g.ldw, g.bias ? g.bias + c : NULL, r, y,
                tile, h0, h1);
        if (++copies == g.multiplier) copies = 0, input++;
        if (g.act.kind <= FO_CLIP) continue;
        for (int v = 0; v < f.nv; v++)
            dw_finish(args, tile + v * DW_TILE_ROWS * VL, c, f.nhwc || v == f.nv - 1 ? place.lanes : VL, rows,
                      y + v * (f.nhwc ? g.y.sw : VL), r ? r + v * (f.nhwc ? g.r.sw : VL) : NULL);
    }
}

/* The place of nv vectors from output column w on. */
static void dw_put(const dw_form f, const fo_depthwise_args *g, dw_place *p, ptrdiff_t w) {
    const ptrdiff_t first = w * f.sw - g->z->left, iw = g->z->iw, channels = g->c1 - g->c0 < VL ? g->c1 - g->c0 : VL;
    const ptrdiff_t lanes = f.nhwc ? channels : g->z->ow - w - (f.nv - 1) * VL;
    p->w = w;
    const ptrdiff_t next = first + f.nv * f.sw * VL; /* NCHW: the column behind nv vectors of input */
    p->lanes = lanes < VL ? (int)lanes : VL;
    p->out = v_range(0, lanes);
    if (p->lanes == VL && first >= 0 && first + dw_loads(f) * (f.nhwc ? 1 : VL) <= iw)
        p->edge = DW_INSIDE;
    else
        p->edge = !f.nhwc && next >= iw ? DW_FITS : DW_MASKED;
    for (int q = 0; q < dw_loads(f); q++) {
        const ptrdiff_t column = first + (f.nhwc ? q : q * VL);
        p->in[q] = f.nhwc ? v_range(0, column >= 0 && column < iw ? channels : 0) : v_range(-column, iw - column);
    }
}

typedef void dw_walk_fn(const fo_depthwise_args *, const dw_place *, ptrdiff_t c0, ptrdiff_t c1, ptrdiff_t h0, ptrdiff_t h1);

#define WALK(k, s, nv, nhwc, edge) \
    static __attribute__((noinline)) void dw_walk_##k##s##nv##nhwc##edge(const fo_depthwise_args *g, const dw_place *place, ptrdiff_t c0, \
                                                                      ptrdiff_t c1, ptrdiff_t h0, ptrdiff_t h1) { \
        dw_channels((dw_form){k, k, s, s, nv, nhwc, edge}, g, place, c0, c1, h0, h1); \
    }
#define WALKS(k, s) \
    WALK(k, s, 1, 0, 0) WALK(k, s, 1, 0, 1) WALK(k, s, 1, 0, 2) WALK(k, s, 1, 1, 0) WALK(k, s, 1, 1, 1) \
    WALK(k, s, 2, 0, 0) WALK(k, s, 2, 0, 1) WALK(k, s, 2, 0, 2) WALK(k, s, 2, 1, 0) WALK(k, s, 2, 1, 1) \
    WALK(k, s, 4, 0, 0) WALK(k, s, 4, 0, 1) WALK(k, s, 4, 0, 2) WALK(k, s, 4, 1, 0) WALK(k, s, 4, 1, 1)
WALKS(3, 1) WALKS(3, 2) WALKS(5, 1) WALKS(5, 2)

#define WALK_ROW(k, s, nv) \
    {{dw_walk_##k##s##nv##00, dw_walk_##k##s##nv##01, dw_walk_##k##s##nv##02}, {dw_walk_##k##s##nv##10, dw_walk_##k##s##nv##11}}
#define WALK_TABLE(k, s) {WALK_ROW(k, s, 1), WALK_ROW(k, s, 2), WALK_ROW(k, s, 4)}

/* A task: in NCHW one channel after the other, in NHWC one strip of rows after the other. */
static void dw_task(const fo_depthwise_args *g, dw_walk_fn *const walks[3][2][DW_EDGES]) {
    enum { PLACES = 8 };
    dw_form f = {.kh = (int)g->s->kh, .kw = (int)g->s->kh, .sh = (int)g->s->sh, .sw = (int)g->s->sh, .nhwc = g->nhwc};
    const int unit = g->nhwc ? 1 : VL, most = REGISTERS * 5 / 8 / dw_live(f);
    /* NCHW: an input row is read once. NHWC: the strip stays in the first-level cache, where rows a multiple of 4 KB apart share few sets. */
    const ptrdiff_t ow = g->z->ow, tall = g->act.kind <= FO_CLIP ? g->h1 - g->h0 : DW_TILE_ROWS;
    const ptrdiff_t strip = !g->nhwc ? tall : g->x.sh * (ptrdiff_t)sizeof(float) % 4096 ? DW_TILE_ROWS : DW_TILE_ROWS / 2;
    dw_place place[PLACES];
    dw_walk_fn *walk[PLACES];
    for (ptrdiff_t w = 0; w < ow;) {
        int places = 0;
        for (; places < PLACES && w < ow; places++, w += f.nv * unit) {
            const ptrdiff_t left = (ow - w + unit - 1) / unit < most ? (ow - w + unit - 1) / unit : most;
            f.nv = left >= 4 ? 4 : left >= 2 ? 2 : 1;
            dw_put(f, g, &place[places], w);
            walk[places] = walks[f.nv / 2][g->nhwc][place[places].edge];
        }
        const ptrdiff_t channels = g->nhwc || places == 1 ? g->c1 - g->c0 : 1;
        for (ptrdiff_t c = g->c0; c < g->c1; c += channels)
            for (ptrdiff_t h1, h = g->h0; h < g->h1; h = h1) {
                h1 = h + strip < g->h1 ? h + strip : g->h1;
                for (int p = 0; p < places; p++) walk[p](g, &place[p], c, c + channels, h, h1);
            }
    }
}

/* Lanes of one tap, whatever the strides: columns from `column` on, s->sw apart, or channels from c on. */
INLINE vf dw_gather(const fo_depthwise_args *g, const float *row, ptrdiff_t c, ptrdiff_t column) {
    const ptrdiff_t sw = g->s->sw, iw = g->z->iw, m = g->multiplier;
    const bool inside = column >= 0 && column < iw;
    float lanes[VL];
    if (g->nhwc && g->x.sc == 1 && m == 1) return inside ? v_load_tail(row + c + column * g->x.sw, g->c1 - c) : v_zero();
    if (!g->nhwc && g->x.sw == 1 && sw == 1) return v_load_mask(row + c / m * g->x.sc + column, v_range(-column, iw - column));
    for (int l = 0; l < VL; l++) {
        const ptrdiff_t at = g->nhwc ? column : column + l * sw, channel = g->nhwc ? c + l : c;
        lanes[l] = at >= 0 && at < iw && channel < g->c1 ? row[channel / m * g->x.sc + at * g->x.sw] : 0;
    }
    return v_load(lanes);
}

/* Any kernel, stride, dilation, multiplier and pair of memory orders: a vector of each row at a time. */
static void dw_any(const fo_depthwise_args *g, ptrdiff_t c, ptrdiff_t w, ptrdiff_t h0, ptrdiff_t h1) {
    const fo_conv2d_shape *s = g->s;
    const vm lanes = v_range(0, g->c1 - c);
    const ptrdiff_t count = g->nhwc ? g->c1 - c : g->z->ow - w;
    float tile[DW_TILE_ROWS * VL];
    for (ptrdiff_t h = h0; h < h1; h++) {
        vf sum = !g->bias ? v_zero() : g->nhwc ? v_load_mask(g->bias + c, lanes) : v_set1(g->bias[c]);
        for (ptrdiff_t i = 0; i < s->kh; i++) {
            const ptrdiff_t t = h * s->sh + i * s->dh - g->z->top;
            for (ptrdiff_t j = 0; j < s->kw && t >= 0 && t < g->z->ih; j++) {
                const float *tap = g->nhwc ? g->w + (i * s->kw + j) * g->ldw + c : g->w + c * g->ldw + i * s->kw + j;
                sum = v_fma(g->nhwc ? v_load(tap) : v_set1(*tap), dw_gather(g, g->x.data + t * g->x.sh, c, w * s->sw + j * s->dw - g->z->left), sum);
            }
        }
        v_store(tile + (h - h0) * VL, sum);
    }
    const ptrdiff_t at_y = c * g->y.sc + h0 * g->y.sh + w * g->y.sw, at_r = c * g->r.sc + h0 * g->r.sh + w * g->r.sw;
    dw_finish(g, tile, c, count < VL ? count : VL, (int)(h1 - h0), g->y.data + at_y, g->r.data ? g->r.data + at_r : NULL);
}

static void FO_NAME(fo_depthwise)(const fo_depthwise_args *g) {
    static dw_walk_fn *const walks[4][3][2][DW_EDGES] = {WALK_TABLE(3, 1), WALK_TABLE(3, 2), WALK_TABLE(5, 1), WALK_TABLE(5, 2)};
    const fo_conv2d_shape *s = g->s;
    const bool square = s->kh == s->kw && s->sh == s->sw && s->dh == 1 && s->dw == 1;
    const bool same_order = g->nhwc ? g->x.sc == 1 && g->multiplier == 1 : g->x.sw == 1;
    if (square && same_order && (s->kh == 3 || s->kh == 5) && s->sh <= 2) {
        dw_task(g, walks[(s->kh - 3) + (s->sh - 1)]);
        return;
    }
    const ptrdiff_t along_w = g->nhwc ? 1 : VL, along_c = g->nhwc ? VL : 1;
    for (ptrdiff_t c = g->c0; c < g->c1; c += along_c)
        for (ptrdiff_t h = g->h0; h < g->h1; h += DW_TILE_ROWS)
            for (ptrdiff_t w = 0; w < g->z->ow; w += along_w)
                dw_any(g, c, w, h, h + DW_TILE_ROWS < g->h1 ? h + DW_TILE_ROWS : g->h1);
}
