/* Depthwise convolutions of bytes, channels last.
 *
 *   rows 4q..4q+3 of a column   c0 c1 c2 ..       v_quads: four taps of a channel, one below another, in a lane, as the
 * dot product takes them; of 4 vectors of channels    c0 c1 c2 ..  ->   a column is made so once, and all outputs that
 * it is under read it from there. c0 c1 c2 .. c0 c1 c2 ..
 *
 * An output row goes by blocks of 4*VL channels and by segments, whose columns the first-level cache holds. Kernels of
 * more than four rows go by fours, and sums stand in memory between them. Constants of channels are in the order of
 * v_quads, whose inverse the stores are.
 */
enum {
    DEPTHWISE_COLUMNS = LINE_FLOATS + LINE_FLOATS,
    DEPTHWISE_OUTPUTS = DEPTHWISE_COLUMNS,
    DEPTHWISE_WIDTH = EB_VECTORS + EB_VECTORS
};

/* A segment: outputs w0 .. w0+n-1 of row h of an image, for the block of channels from c on, of which `channels` are
 * there. */
typedef struct {
    const fo_byte_depthwise_args *d;
    ptrdiff_t image, h, w0, n, c, channels, columns; /* columns of x under it */
    const int8_t *w;                                 /* of the block and four rows: kw * 4 vectors of quads */
    vi sums[DEPTHWISE_OUTPUTS * 4];
    vi quads[DEPTHWISE_COLUMNS][PHASES][4];
} byte_segment;

/* The columns under the segment, of kernel rows i .. i+3. */
INLINE void depthwise_columns(byte_segment *s, ptrdiff_t i, const bool all) {
    const fo_byte_patches *p = &s->d->p;
    const vi mask = flips(p->flip), zero = flips(p->zero);
    const ptrdiff_t columns = s->columns, first = s->w0 * p->stride_w - p->left, iw = p->iw, sw = p->sw,
                    channels = s->channels;
    const uint8_t *rows[4];
    for (int r = 0; r < 4; r++) {
        const ptrdiff_t h = s->h * p->stride_h - p->top + (i + r) * p->dilation_h;
        rows[r] = i + r < p->kh && h >= 0 && h < p->ih ? p->x + s->image * p->sn + h * p->sh + s->c : NULL;
    }
    for (ptrdiff_t column = 0; column < columns; column++) {
        const ptrdiff_t w = first + column;
        const bool inside = w >= 0 && w < iw;
        vi x[4], q[4];
        UNROLL for (int r = 0; r < 4; r++) {
            if (!inside || !rows[r])
                x[r] = zero;
            else
                x[r] = v_ixor(all ? v_iload(rows[r] + w * sw) : v_load_quads_tail(rows[r] + w * sw, channels), mask);
        }
        v_quads(x, q);
        UNROLL for (int phase = 0; phase < PHASES; phase++) UNROLL for (int v = 0; v < 4; v++)
            s->quads[column][phase][v] = v_dot_bytes(q[v], phase);
    }
}

/* Bytes of a pixel's sums, which are in the order of v_quads, at c. */
INLINE void depthwise_pixel(const byte_segment *s, const eb_bounds *b, const bool saturates, const bool all,
                            const vi sums[4], uint8_t *c) {
    const float *scale = s->d->ep.scale + s->c, *bias = s->d->ep.bias + s->c;
    vi q[4];
    UNROLL for (int v = 0; v < 4; v++) {
        const vf y = v_fma(v_to_float(sums[v]), v_load(scale + v * VL), v_load(bias + v * VL));
        q[v] = saturates ? v_to_int(y) : eb_round(b, y);
    }
    const vi bytes = v_ixor(v_pack_inlane(q, b->zero), b->flip);
    if (all)
        v_istore(c, bytes);
    else
        v_store_quads_tail(c, bytes, s->channels);
}

/* The segment's. */
INLINE void depthwise_bytes(const byte_segment *s, const eb_bounds *b, const bool saturates, const bool all) {
    const fo_byte_depthwise_args *d = s->d;
    const eb_bounds bounds = *b;
    uint8_t *c = (uint8_t *)d->c + ((s->image * d->p.oh + s->h) * d->p.ow + s->w0) * d->ldc + s->c;
    for (ptrdiff_t o = 0; o < s->n; o++, c += d->ldc) depthwise_pixel(s, &bounds, saturates, all, s->sums + o * 4, c);
}

/* Other ends: a residual, floats, activations that are no clip. Sums get the order of channels first. */
static __attribute__((noinline)) void depthwise_end_sums(const byte_segment *s, ptrdiff_t o, const vi sums[4]) {
    const fo_byte_depthwise_args *d = s->d;
    const fo_byte_epilogue *e = &d->ep;
    const ptrdiff_t pixel = (s->image * d->p.oh + s->h) * d->p.ow + s->w0 + o, at = pixel * d->ldc + s->c,
                    r = pixel * e->ldr + s->c;
    int32_t mixed[QUADS], ordered[QUADS];
    UNROLL for (int v = 0; v < 4; v++) v_istore(mixed + v * VL, sums[v]);
    for (int l = 0; l < QUADS; l++) ordered[fo_quad_channel(l / VL, l % VL, VL)] = mixed[l];
    const eb_sums args = {.e = e,
                          .sums = ordered,
                          .mr = 1,
                          .n = s->channels < QUADS ? s->channels : QUADS,
                          .scale = d->scale + s->c,
                          .bias = d->bias + s->c,
                          .slopes = e->act.slopes ? e->act.slopes + s->c : NULL,
                          .r = e->residual ? (const char *)e->residual +
                                                 r * (e->residual_type == FO_FLOAT32 ? (ptrdiff_t)sizeof(float) : 1)
                                           : NULL,
                          .c = (char *)d->c + at * (e->type == FO_FLOAT32 ? (ptrdiff_t)sizeof(float) : 1)};
    eb_rows(&args);
}

/* Sums of the segment's outputs for four rows of the kernel, whose width is a literal: weights stay in registers. */
INLINE void depthwise_sums(byte_segment *s, const int width, bool first) {
    const fo_byte_depthwise_args *d = s->d;
    const ptrdiff_t step = d->p.dilation_w, stride = d->p.stride_w, n = s->n;
    for (int v = 0; v < 4; v++) {
        const vi start = v_iload(d->ep.start + s->c + v * VL);
        vi w[DEPTHWISE_WIDTH][PHASES];
        UNROLL for (int j = 0; j < width; j++) UNROLL for (int phase = 0; phase < PHASES; phase++) w[j][phase] =
            v_dot_weights(v_iload(s->w + (j * 4 + v) * QUADS), phase);
        for (ptrdiff_t o = 0; o < n; o++) {
            vi acc = first ? start : s->sums[o * 4 + v];
            UNROLL for (int j = 0; j < width; j++) UNROLL for (int phase = 0; phase < PHASES; phase++)
                v_dot(acc, s->quads[o * stride + j * step][phase][v], w[j][phase]);
            s->sums[o * 4 + v] = acc;
        }
    }
}

/* The same of any width. */
INLINE void depthwise_wide_sums(byte_segment *s, bool first) {
    const fo_byte_depthwise_args *d = s->d;
    for (ptrdiff_t o = 0; o < s->n; o++)
        for (int v = 0; v < 4; v++) {
            vi acc = first ? v_iload(d->ep.start + s->c + v * VL) : s->sums[o * 4 + v];
            for (ptrdiff_t j = 0; j < d->p.kw; j++)
                UNROLL for (int phase = 0; phase < PHASES; phase++)
                    v_dot(acc, s->quads[o * d->p.stride_w + j * d->p.dilation_w][phase][v],
                          v_dot_weights(v_iload(s->w + (j * 4 + v) * QUADS), phase));
            s->sums[o * 4 + v] = acc;
        }
}

/* Where a column begins in four rows of x, and the bytes to the next; rows outside the image are `outside` throughout.
 */
typedef struct {
    const uint8_t *at[4];
    ptrdiff_t step[4];
} rolling_rows;

INLINE rolling_rows rolling_start(const byte_segment *s, const vi *outside) {
    const fo_byte_patches *p = &s->d->p;
    rolling_rows rows;
    for (int r = 0; r < 4; r++) {
        const ptrdiff_t h = s->h - p->top + r;
        const bool there = r < p->kh && h >= 0 && h < p->ih;
        rows.step[r] = there ? p->sw : 0;
        rows.at[r] = there ? p->x + s->image * p->sn + h * p->sh + s->c - p->left * p->sw : (const uint8_t *)outside;
    }
    return rows;
}

/* A column's quads. */
INLINE void rolling_column(const rolling_rows *rows, const bool all, ptrdiff_t channels, vi mask, vi q[4]) {
    vi x[4];
    UNROLL for (int r = 0; r < 4; r++) x[r] =
        v_ixor(all ? v_iload(rows->at[r]) : v_load_quads_tail(rows->at[r], channels), mask);
    v_quads(x, q);
}

/* Output row h of a kernel three columns wide and up to four rows high, stride and dilation 1: a column goes from its
 * loads into the sums of the three outputs that it is under, and all stay in registers. */
INLINE void depthwise_rolling(const byte_segment *s, const eb_bounds *b, const bool saturates, const bool all) {
    const fo_byte_depthwise_args *d = s->d;
    const fo_byte_patches *p = &d->p;
    const ptrdiff_t left = p->left, iw = p->iw, columns = p->ow + 2, ldc = d->ldc, channels = s->channels;
    const int32_t *start = d->ep.start + s->c;
    const int8_t *weights = d->w + s->c / QUADS * d->block;
    const eb_bounds bounds = *b;
    const vi mask = flips(p->flip), zero = flips(p->zero), outside = v_ixor(zero, mask);
    rolling_rows rows = rolling_start(s, &outside);
    uint8_t *c = (uint8_t *)d->c + ((s->image * p->oh + s->h) * p->ow - 2) * ldc + s->c;
    vi w[3][4], next[4], last[4];
    UNROLL for (int j = 0; j < 3; j++) UNROLL for (int v = 0; v < 4; v++) w[j][v] =
        v_iload(weights + (j * 4 + v) * QUADS);
    UNROLL for (int v = 0; v < 4; v++) next[v] = last[v] = v_iload(start + v * VL);
    for (ptrdiff_t column = 0; column < columns; column++, c += ldc) {
        vi q[4], sums[4];
        UNROLL for (int v = 0; v < 4; v++) q[v] = zero;
        if (column >= left && column - left < iw) rolling_column(&rows, all, channels, mask, q);
        UNROLL for (int r = 0; r < 4; r++) rows.at[r] += rows.step[r];
        UNROLL for (int v = 0; v < 4; v++) {
            sums[v] = last[v], last[v] = next[v], next[v] = v_iload(start + v * VL);
            v_dot(sums[v], q[v], w[2][v]);
            v_dot(last[v], q[v], w[1][v]);
            v_dot(next[v], q[v], w[0][v]);
        }
        if (column >= 2) depthwise_pixel(s, &bounds, saturates, all, sums, c);
    }
}

/* Whether it is such a kernel; the registers hold three columns of weights and of sums. */
INLINE bool depthwise_rolls(const byte_segment *s, const eb_bounds *b) {
    const fo_byte_patches *p = &s->d->p;
    const fo_byte_epilogue *e = &s->d->ep;
    if (PHASES > 1 || (int)BYTE_VECTORS < (int)EB_VECTORS || p->kw != 3 || p->kh > 4 || p->stride_w != 1 ||
        p->dilation_w != 1)
        return false;
    if (p->stride_h != 1 || p->dilation_h != 1 || !e->clips || e->residual || e->type == FO_FLOAT32) return false;
    FO_RAN("depthwise bytes rolling");
    if (s->channels < QUADS)
        depthwise_rolling(s, b, false, false);
    else if (e->saturates)
        depthwise_rolling(s, b, true, true);
    else
        depthwise_rolling(s, b, false, true);
    return true;
}

INLINE void depthwise_ends(const byte_segment *s, const eb_bounds *b) {
    const fo_byte_epilogue *e = &s->d->ep;
    if (!e->clips || e->residual || e->type == FO_FLOAT32)
        for (ptrdiff_t o = 0; o < s->n; o++) depthwise_end_sums(s, o, s->sums + o * 4);
    else if (s->channels < QUADS)
        depthwise_bytes(s, b, false, false);
    else if (e->saturates)
        depthwise_bytes(s, b, true, true);
    else
        depthwise_bytes(s, b, false, true);
}

/* Rows h of the output for a block of channels, segment by segment. */
INLINE void depthwise_row(byte_segment *s, const eb_bounds *b, const int width) {
    const fo_byte_patches *p = &s->d->p;
    const ptrdiff_t span = (p->kw - 1) * p->dilation_w + 1, most = (DEPTHWISE_COLUMNS - span) / p->stride_w + 1;
    const ptrdiff_t outputs = most < DEPTHWISE_OUTPUTS ? most : DEPTHWISE_OUTPUTS;
    for (s->w0 = 0; s->w0 < p->ow; s->w0 += s->n) {
        s->n = p->ow - s->w0 < outputs ? p->ow - s->w0 : outputs;
        s->columns = (s->n - 1) * p->stride_w + span;
        s->w = s->d->w + s->c / QUADS * s->d->block;
        for (ptrdiff_t i = 0; i < p->kh; i += 4, s->w += p->kw * 4 * QUADS) {
            if (s->channels >= QUADS)
                depthwise_columns(s, i, true);
            else
                depthwise_columns(s, i, false);
            if (width)
                depthwise_sums(s, width, i == 0);
            else
                depthwise_wide_sums(s, i == 0);
        }
        depthwise_ends(s, b);
    }
}

/* Output row `row` of all images' rows, channels c0 .. c1 - 1, of which c0 begins a block. */
static void byte_depthwise(const fo_byte_depthwise_args *d, ptrdiff_t row, ptrdiff_t c0, ptrdiff_t c1) {
    const eb_bounds bounds = eb_start(&d->ep);
    byte_segment s = {.d = d, .image = row / d->p.oh, .h = row % d->p.oh};
    FO_RAN("depthwise bytes");
    for (s.c = c0; s.c < c1; s.c += QUADS) {
        s.channels = c1 - s.c;
        if (depthwise_rolls(&s, &bounds)) continue;
        if (d->p.kw == 3)
            depthwise_row(&s, &bounds, 3);
        else if (d->p.kw == 5)
            depthwise_row(&s, &bounds, 5);
        else
            depthwise_row(&s, &bounds, 0);
    }
}

/* Bytes of n columns and m rows of x as m columns of n rows: y[j*ldy + i] = x[i*ldx + j] ^ flip, by blocks of 4*VL. */
INLINE void transpose_block(ptrdiff_t m, ptrdiff_t n, const uint8_t *x, ptrdiff_t ldx, vi mask, uint8_t *y,
                            ptrdiff_t ldy) {
    vi quads[4][VL];
    for (int g = 0; g < VL; g++) {
        vi r[4], q[4];
        UNROLL for (int i = 0; i < 4; i++) r[i] = 4 * g + i >= m ? v_iset1(0)
                                                  : n >= QUADS   ? v_iload(x + (4 * g + i) * ldx)
                                                                 : v_load_quads_tail(x + (4 * g + i) * ldx, n);
        v_quads(r, q);
        UNROLL for (int i = 0; i < 4; i++) quads[i][g] = v_ixor(q[i], mask);
    }
    for (int i = 0; i < 4; i++) {
        vf t[VL];
        UNROLL for (int g = 0; g < VL; g++) t[g] = v_as_float(quads[i][g]);
        v_transpose(t);
        UNROLL for (int l = 0; l < VL; l++) {
            const ptrdiff_t j = fo_quad_channel(i, l, VL);
            if (j >= n) continue;
            if (m >= QUADS)
                v_istore(y + j * ldy, v_as_int(t[l]));
            else
                v_store_quads_tail(y + j * ldy, v_as_int(t[l]), m);
        }
    }
}

static void byte_transpose(ptrdiff_t m, ptrdiff_t n, const uint8_t *x, ptrdiff_t ldx, uint8_t *y, ptrdiff_t ldy) {
    for (ptrdiff_t i = 0; i < m; i += QUADS)
        for (ptrdiff_t j = 0; j < n; j += QUADS)
            transpose_block(m - i, n - j, x + i * ldx + j, ldx, v_iset1(0), y + j * ldy + i, ldy);
}
