/* Depthwise convolutions of bytes, channels last.
 *
 *   rows 4q..4q+3 of a column   c0 c1 c2 ..       v_quads: four taps of a channel, one below another, in a lane, as a
 *   of 4 vectors of channels    c0 c1 c2 ..  ->   dot product takes them; a column is made so once, and all outputs
 *                               c0 c1 c2 ..       that it is under read it from there
 *                               c0 c1 c2 ..
 *
 * Output rows go by blocks of 4*VL channels and by segments, whose columns the first-level cache holds. Kernels of up
 * to three rows and stride 1 make two output rows of a column: the second has the weights a row further down. A kernel
 * that spans more columns than that goes by pieces, four rows and some columns of it, whose sums wait in memory. A last
 * block of few channels has several groups of rows in one vector, its parts. Constants of channels are in the order of
 * v_quads, whose inverse the stores are. Zero points of weights are one more weight for each tap, whose products are
 * taken off.
 */
enum { DEPTHWISE_COLUMNS = LINE_FLOATS * EB_VECTORS };

/* A segment: outputs w0 .. w0+n-1 of `deep` rows of each part, the first row h, of an image, for the block of channels
 * from c on, of which `channels` are there. */
typedef struct {
    const fo_qdepthwise_args *d;
    ptrdiff_t image, h, end, w0, n, c, channels; /* end: of the rows wanted */
    ptrdiff_t columns, parts, deep, groups;      /* columns of x under it; fours of rows of the kernel's piece */
    ptrdiff_t i0, j0, width;                     /* its first row and column, and how many columns */
    const int8_t *w;                             /* of the block: a group's kw * 4 vectors of quads */
    vi quads[DEPTHWISE_COLUMNS][PHASES][4];      /* column, of a group after another */
    vi before[DEPTHWISE_COLUMNS + 1][2][2];      /* of a pass, two rows of outputs: see depthwise_before */
    union {
        vi shorts[DEPTHWISE_COLUMNS][2];
        vi sums[DEPTHWISE_COLUMNS][4];
    };
} qsegment;

/* Where columns begin in four rows of each part, and how their bytes become those of the kernel: rows outside the image
 * are its zero point. */
typedef struct {
    const uint8_t *at[4][Q_PARTS];
    vi keep[4], flip[4];
} qrows;

/* Rows i .. i+3 of the kernel. */
INLINE void depthwise_rows(const qsegment *s, const int parts, ptrdiff_t i, qrows *rows) {
    const fo_qpatches *p = &s->d->p;
    uint8_t keep[4][QUADS], flip[4][QUADS];
    for (int part = 0; part < parts; part++)
        for (int r = 0; r < 4; r++) {
            const ptrdiff_t h = (s->h + part * s->deep) * p->stride_h - p->top + (i + r) * p->dilation_h,
                            last = p->ih - 1;
            const bool there = h >= 0 && h <= last;
            rows->at[r][part] = p->x + s->image * p->sn + (h < 0 ? 0 : h > last ? last : h) * p->sh + s->c;
            memset(keep[r] + part * (QUADS / parts), there ? 255 : 0, (size_t)(QUADS / parts));
            memset(flip[r] + part * (QUADS / parts), there ? p->flip : p->zero, (size_t)(QUADS / parts));
        }
    UNROLL_FOR (int r = 0; r < 4; r++) rows->keep[r] = v_iload(keep[r]), rows->flip[r] = v_iload(flip[r]);
}

/* The columns under the segment, of rows i .. i+3 of the piece; whole: all channels of the block are there. */
INLINE void depthwise_columns(qsegment *s, const int parts, const bool whole, ptrdiff_t i) {
    const fo_qpatches *p = &s->d->p;
    const vi zero = flips(p->zero);
    const ptrdiff_t columns = s->columns, first = s->w0 * p->stride_w - p->left + s->j0 * p->dilation_w, iw = p->iw,
                    sw = p->sw, channels = s->channels;
    qrows rows;
    depthwise_rows(s, parts, s->i0 + i, &rows);
    for (ptrdiff_t column = 0; column < columns; column++) {
        const ptrdiff_t w = first + column;
        vi x[4], q[4], *to = s->quads[i / 4 * columns + column][0];
        UNROLL_FOR (int r = 0; r < 4; r++) {
            const uint8_t *from[Q_PARTS];
            x[r] = zero;
            if (w < 0 || w >= iw) continue;
            UNROLL_FOR (int part = 0; part < parts; part++) from[part] = rows.at[r][part] + w * sw;
            x[r] = v_iand(whole ? v_iload(from[0]) : v_load_parts(parts, from, channels), rows.keep[r]);
            x[r] = v_ixor(x[r], rows.flip[r]);
        }
        v_quads(x, q);
        UNROLL_FOR (int phase = 0; phase < PHASES; phase++)
            UNROLL_FOR (int v = 0; v < 4; v++) to[phase * 4 + v] = v_dot_bytes(q[v], phase);
    }
}

static __attribute__((noinline)) void depthwise_quads(qsegment *s) {
    for (ptrdiff_t i = 0; i < 4 * s->groups; i += 4) {
        if (Q_PARTS >= 4 && s->parts == 4)
            depthwise_columns(s, Q_PARTS, false, i);
        else if (Q_PARTS >= 2 && s->parts == 2)
            depthwise_columns(s, Q_PARTS / 2, false, i);
        else if (s->channels < QUADS)
            depthwise_columns(s, 1, false, i);
        else
            depthwise_columns(s, 1, true, i);
    }
}

/* Where row r of the parts' outputs goes. */
typedef struct {
    uint8_t *c;
    ptrdiff_t step, count; /* from part to part; parts whose row is wanted */
} qtarget;

INLINE qtarget depthwise_target(const qsegment *s, ptrdiff_t r) {
    const fo_qdepthwise_args *d = s->d;
    const ptrdiff_t row = d->p.ow * d->ldc, left = s->end - s->h - r, count = (left + s->deep - 1) / s->deep;
    uint8_t *c = (uint8_t *)d->c + (s->image * d->p.oh + s->h + r) * row + s->w0 * d->ldc + s->c;
    return (qtarget){c, s->deep * row, count < s->parts ? count : s->parts};
}

INLINE void depthwise_store(const qsegment *s, qtarget *to, vi bytes) {
    uint8_t *const c = to->c;
    to->c += s->d->ldc;
    if (to->count < 1) return;
    if (s->channels >= QUADS)
        v_istore(c, bytes);
    else if (Q_PARTS >= 4 && s->parts == 4)
        v_store_parts(Q_PARTS, c, to->step, bytes, s->channels, to->count);
    else if (Q_PARTS >= 2 && s->parts == 2)
        v_store_parts(Q_PARTS / 2, c, to->step, bytes, s->channels, to->count);
    else
        v_store_quads_tail(c, bytes, s->channels);
}

/* The zero points of a vector of weights as weights of rows 4*g .. 4*g+3 of the kernel, r rows further down. */
INLINE vi depthwise_zeros(const qsegment *s, ptrdiff_t v, ptrdiff_t g, ptrdiff_t r, int phase) {
    const ptrdiff_t high = s->d->p.kh;
    uint32_t rows = 0;
    for (int i = 0; i < 4; i++) rows |= (uint32_t)(4 * g + i >= r && 4 * g + i < high + r ? 255 : 0) << 8 * i;
    const vi zero = v_isub(v_iset1(0), v_iload(s->d->ep.rescale->w_zero + s->c + v * VL));
    const vi four = v_imul(v_iand(zero, v_iset1(255)), v_iset1(0x01010101));
    return v_dot_weights(v_iand(four, v_iset1((int32_t)rows)), phase);
}

/* Where weights have zero points: what these and the columns before each one make, of two vectors of quads from v on.
 * A window's part is the difference of two. */
static __attribute__((noinline)) void depthwise_before(qsegment *s, ptrdiff_t v) {
    for (ptrdiff_t r = 0; r < s->deep; r++) {
        vi zero[2][PHASES][2], sum[2] = {v_iset1(0), v_iset1(0)};
        for (ptrdiff_t g = 0; g < s->groups; g++)
            UNROLL_FOR (int phase = 0; phase < PHASES; phase++)
                UNROLL_FOR (int u = 0; u < 2; u++) zero[g][phase][u] = depthwise_zeros(s, v + u, g, r, phase);
        for (ptrdiff_t column = 0; column < s->columns; column++) {
            UNROLL_FOR (int u = 0; u < 2; u++) s->before[column][r][u] = sum[u];
            for (ptrdiff_t g = 0; g < s->groups; g++)
                UNROLL_FOR (int phase = 0; phase < PHASES; phase++)
                    UNROLL_FOR (int u = 0; u < 2; u++)
                        v_dot(sum[u], s->quads[g * s->columns + column][phase][v + u], zero[g][phase][u]);
        }
        UNROLL_FOR (int u = 0; u < 2; u++) s->before[s->columns][r][u] = sum[u];
    }
}

/* Takes the products by zero points under the window of output o off its sums. */
INLINE void depthwise_less(const qsegment *s, ptrdiff_t o, const int deep, const int width, vi acc[2][2]) {
    const vi(*before)[2][2] = s->before + o * s->d->p.stride_w;
    UNROLL_FOR (int r = 0; r < deep; r++)
        UNROLL_FOR (int u = 0; u < 2; u++) acc[r][u] = v_iadd(acc[r][u], v_isub(before[0][r][u], before[width][r][u]));
}

/* Weights of two vectors of quads from v on: of up to two rows or two groups, five columns. */
INLINE void depthwise_weights(const qsegment *s, ptrdiff_t v, const int width, const int groups, const int deep,
                              vi w[2][2][5][PHASES][2]) {
    UNROLL_FOR (int r = 0; r < deep; r++)
        UNROLL_FOR (int g = 0; g < groups; g++)
            UNROLL_FOR (int j = 0; j < width; j++)
                UNROLL_FOR (int phase = 0; phase < PHASES; phase++)
                    UNROLL_FOR (int u = 0; u < 2; u++)
                        w[r][g][j][phase][u] =
                            v_dot_weights(v_iload(s->w + (((r + g) * width + j) * 4 + v + u) * QUADS), phase);
}

/* Sums and bytes of the segment's outputs, by two vectors of quads: the first two leave 16-bit integers to the other
 * two, of the same literals. */
INLINE void depthwise_pass(qsegment *s, const eb_bounds *bounds, const int pass, const int width, const int groups,
                           const int deep, const bool saturates) {
    const fo_qdepthwise_args *d = s->d;
    const ptrdiff_t n = s->n, columns = s->columns, stride = d->p.stride_w, at = s->c + 2 * pass * VL;
    const bool zeros = d->ep.rescale->w_zero;
    const eb_bounds b = *bounds;
    qtarget to[2];
    vi w[2][2][5][PHASES][2], start[2];
    vf scale[2], bias[2], nudge[2];
    UNROLL_FOR (int u = 0; u < 2; u++) {
        start[u] = v_iload(d->ep.rescale->start + at + u * VL);
        scale[u] = v_load(d->ep.rescale->scale + at + u * VL), bias[u] = v_load(d->ep.bias + at + u * VL);
        nudge[u] = d->ep.rescale->nudge ? v_load(d->ep.rescale->nudge + at + u * VL) : v_zero();
    }
    depthwise_weights(s, 2 * pass, width, groups, deep, w);
    UNROLL_FOR (int r = 0; r < deep; r++) to[r] = depthwise_target(s, r);
    if (zeros) depthwise_before(s, 2 * pass);
    for (ptrdiff_t o = 0; o < n; o++) {
        vi acc[2][2];
        UNROLL_FOR (int r = 0; r < deep; r++)
            UNROLL_FOR (int u = 0; u < 2; u++) acc[r][u] = start[u];
        if (zeros) depthwise_less(s, o, deep, width, acc);
        UNROLL_FOR (int t = 0; t < groups * width; t++) {
            const int g = t / width, j = t % width;
            UNROLL_FOR (int phase = 0; phase < PHASES; phase++)
                UNROLL_FOR (int u = 0; u < 2; u++) {
                    const vi q = s->quads[g * columns + o * stride + j][phase][2 * pass + u];
                    UNROLL_FOR (int r = 0; r < deep; r++) v_dot(acc[r][u], q, w[r][g][j][phase][u]);
                }
        }
        UNROLL_FOR (int r = 0; r < deep; r++) {
            UNROLL_FOR (int u = 0; u < 2; u++) {
                const vf y = !saturates && d->ep.rescale->nudge
                                 ? eb_twice(acc[r][u], scale[u], bias[u], nudge[u], d->ep.rescale->longer)
                                 : v_fma(v_to_float(acc[r][u]), scale[u], bias[u]);
                acc[r][u] = saturates ? v_to_int(y) : eb_round(&b, y);
            }
            const vi shorts = v_pack_shorts(acc[r][0], acc[r][1], b.zero);
            if (pass == 0)
                s->shorts[o][r] = shorts;
            else
                depthwise_store(s, &to[r], v_ixor(v_pack_bytes(s->shorts[o][r], shorts), b.flip));
        }
    }
}

#define DEPTHWISE_PASSES(width, groups, deep) \
    static __attribute__((noinline)) void depthwise_##width##_##groups##_##deep(qsegment *s, const eb_bounds *b) { \
        if (s->d->ep.rescale->saturates && !s->d->ep.rescale->nudge) { \
            depthwise_pass(s, b, 0, width, groups, deep, true); \
            depthwise_pass(s, b, 1, width, groups, deep, true); \
        } else { \
            depthwise_pass(s, b, 0, width, groups, deep, false); \
            depthwise_pass(s, b, 1, width, groups, deep, false); \
        } \
    }
DEPTHWISE_PASSES(3, 1, 2)
DEPTHWISE_PASSES(3, 1, 1)
DEPTHWISE_PASSES(5, 2, 1)

/* Other ends: a residual, floats, activations that are no clip. Sums get the order of channels first. */
INLINE void depthwise_end_sums(const qsegment *s, ptrdiff_t o, const vi sums[4]) {
    const fo_qdepthwise_args *d = s->d;
    const fo_epilogue *e = &d->ep;
    const ptrdiff_t pixel = (s->image * d->p.oh + s->h) * d->p.ow + s->w0 + o, at = pixel * d->ldc + s->c,
                    r = pixel * e->ldr + s->c;
    const int lanes = (int)fo_quad_lanes(VL);
    int32_t mixed[QUADS], ordered[QUADS];
    UNROLL_FOR (int v = 0; v < 4; v++) {
        v_istore(mixed + v * VL, sums[v]);
        UNROLL_FOR (int l = 0; l < VL; l += lanes)
            memcpy(ordered + fo_quad_channel(v, l, VL), mixed + v * VL + l, (size_t)lanes * sizeof *mixed);
    }
    const eb_sums args = {.e = e,
                          .type = FO_S8,
                          .sums = ordered,
                          .mr = 1,
                          .n = s->channels < QUADS ? s->channels : QUADS,
                          .scale = d->scale + s->c,
                          .bias = d->bias + s->c,
                          .nudge = d->nudge ? d->nudge + s->c : NULL,
                          .longer = e->rescale->longer,
                          .slopes = e->act.slopes ? e->act.slopes + s->c : NULL,
                          .r = e->residual ? (const char *)e->residual + r * fo_size(e->residual_type) : NULL,
                          .c = (char *)d->c + at * fo_size(e->type)};
    eb_rows(&args);
}

/* The same of a piece, whatever its window. */
INLINE void depthwise_less_any(const qsegment *s, ptrdiff_t o, vi acc[4]) {
    const fo_qpatches *p = &s->d->p;
    for (ptrdiff_t v = 0; v < 4; v++) {
        vi sum = v_iset1(0);
        for (ptrdiff_t g = 0; g < s->groups; g++)
            UNROLL_FOR (int phase = 0; phase < PHASES; phase++) {
                const vi zero = depthwise_zeros(s, v, s->i0 / 4 + g, 0, phase);
                const ptrdiff_t column = g * s->columns + o * p->stride_w;
                for (ptrdiff_t j = 0; j < s->width; j++)
                    v_dot(sum, s->quads[column + j * p->dilation_w][phase][v], zero);
            }
        acc[v] = v_isub(acc[v], sum);
    }
}

/* Adds the products of the piece to the sums of all outputs. */
static void depthwise_piece(qsegment *s) {
    const fo_qpatches *p = &s->d->p;
    for (ptrdiff_t o = 0; o < s->n; o++) {
        vi acc[4];
        UNROLL_FOR (int v = 0; v < 4; v++) acc[v] = s->sums[o][v];
        for (ptrdiff_t g = 0; g < s->groups; g++)
            for (ptrdiff_t j = 0; j < s->width; j++) {
                const ptrdiff_t column = g * s->columns + o * p->stride_w + j * p->dilation_w;
                const int8_t *w = s->w + ((s->i0 / 4 + g) * p->kw + s->j0 + j) * 4 * QUADS;
                UNROLL_FOR (int phase = 0; phase < PHASES; phase++)
                    UNROLL_FOR (int v = 0; v < 4; v++)
                        v_dot(acc[v], s->quads[column][phase][v], v_dot_weights(v_iload(w + v * QUADS), phase));
            }
        if (s->d->ep.rescale->w_zero) depthwise_less_any(s, o, acc);
        UNROLL_FOR (int v = 0; v < 4; v++) s->sums[o][v] = acc[v];
    }
}

/* Bytes of the sums, as depthwise_pass makes them. */
INLINE void depthwise_clipped(qsegment *s, const eb_bounds *bounds) {
    const fo_epilogue *e = &s->d->ep;
    const eb_bounds b = *bounds;
    qtarget to = depthwise_target(s, 0);
    for (ptrdiff_t o = 0; o < s->n; o++) {
        vi y[4];
        UNROLL_FOR (int v = 0; v < 4; v++) {
            const ptrdiff_t at = s->c + v * VL;
            const vf real = eb_vector(FO_S8, s->sums[o][v], e->rescale->scale + at, NULL, e->bias + at,
                                      e->rescale->nudge ? e->rescale->nudge + at : NULL, e->rescale->longer);
            y[v] = e->rescale->saturates ? v_to_int(real) : eb_round(&b, real);
        }
        const vi low = v_pack_shorts(y[0], y[1], b.zero), high = v_pack_shorts(y[2], y[3], b.zero);
        depthwise_store(s, &to, v_ixor(v_pack_bytes(low, high), b.flip));
    }
}

INLINE bool depthwise_clips(const fo_epilogue *e) {
    return fo_in_registers(&e->act) && !e->residual && e->type != FO_F32;
}

/* Any kernel and any end. */
static void depthwise_any(qsegment *s, const eb_bounds *b) {
    const fo_qpatches *p = &s->d->p;
    const ptrdiff_t width = s->width, high = 4 * s->groups;
    for (ptrdiff_t o = 0; o < s->n; o++)
        UNROLL_FOR (int v = 0; v < 4; v++) s->sums[o][v] = v_iload(s->d->ep.rescale->start + s->c + v * VL);
    for (s->i0 = 0; s->i0 < p->kh; s->i0 += high)
        for (s->j0 = 0; s->j0 < p->kw; s->j0 += width) {
            s->width = p->kw - s->j0 < width ? p->kw - s->j0 : width;
            s->columns = (s->n - 1) * p->stride_w + (s->width - 1) * p->dilation_w + 1;
            depthwise_quads(s);
            depthwise_piece(s);
        }
    s->i0 = s->j0 = 0, s->width = width;
    if (depthwise_clips(&s->d->ep))
        depthwise_clipped(s, b);
    else
        for (ptrdiff_t o = 0; o < s->n; o++) depthwise_end_sums(s, o, s->sums[o]);
}

/* How the sums of a block's rows are made, and so how many rows at once. */
typedef void depthwise_fn(qsegment *s, const eb_bounds *b);
INLINE depthwise_fn *depthwise_of(const fo_qdepthwise_args *d, ptrdiff_t *deep) {
    const fo_qpatches *p = &d->p;
    *deep = 1;
    if (!depthwise_clips(&d->ep) || p->dilation_w > 1) return NULL;
    if (p->kw == 5 && p->kh > 4 && p->kh <= 8) return depthwise_5_2_1;
    if (p->kw != 3 || p->kh > 4) return NULL;
    if (p->kh == 4 || p->stride_h > 1 || p->dilation_h > 1) return depthwise_3_1_1;
    *deep = 2;
    return depthwise_3_1_2;
}

/* The whole kernel where its columns fit, else a piece of four rows whose columns take half; how many columns that
 * spans. */
INLINE ptrdiff_t depthwise_cut(qsegment *s) {
    const fo_qpatches *p = &s->d->p;
    s->width = p->kw, s->groups = (p->kh + 3) / 4;
    if (((s->width - 1) * p->dilation_w + 1) * s->groups > DEPTHWISE_COLUMNS) {
        const ptrdiff_t most = (DEPTHWISE_COLUMNS / 2 - 1) / p->dilation_w + 1;
        s->width = s->width < most ? s->width : most, s->groups = 1;
    }
    return (s->width - 1) * p->dilation_w + 1;
}

/* Output rows h .. end - 1 of an image, channels c0 .. c1 - 1, of which c0 begins a block. */
void FO_NAME(fo_qdepthwise)(const fo_qdepthwise_args *d, ptrdiff_t image, ptrdiff_t h, ptrdiff_t end, ptrdiff_t c0,
                            ptrdiff_t c1) {
    const fo_qpatches *p = &d->p;
    const eb_bounds bounds = eb_start(&d->ep);
    qsegment s; /* nothing is cleared: it is as large as what it holds */
    s.d = d, s.image = image, s.end = end, s.i0 = s.j0 = 0;
    depthwise_fn *const f = depthwise_of(d, &s.deep);
    const ptrdiff_t span = depthwise_cut(&s), most = (DEPTHWISE_COLUMNS / s.groups - span) / p->stride_w + 1;
    FO_RAN("depthwise bytes");
    for (s.c = c0; s.c < c1; s.c += QUADS) {
        s.channels = c1 - s.c, s.w = d->w + s.c / QUADS * d->block;
        s.parts = f ? fo_qparts(Q_PARTS, s.channels, QUADS) : 1;
        for (s.h = h; s.h < end; s.h += s.deep * s.parts)
            for (s.w0 = 0; s.w0 < p->ow; s.w0 += s.n) {
                s.n = p->ow - s.w0 < most ? p->ow - s.w0 : most;
                s.columns = (s.n - 1) * p->stride_w + span;
                if (!f) {
                    depthwise_any(&s, &bounds);
                    continue;
                }
                depthwise_quads(&s);
                f(&s, &bounds);
            }
    }
}
