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
enum { DEPTHWISE_COLUMNS = LINE_FLOATS + LINE_FLOATS, DEPTHWISE_OUTPUTS = DEPTHWISE_COLUMNS };

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
    const uint8_t *rows[4];
    for (int r = 0; r < 4; r++) {
        const ptrdiff_t h = s->h * p->stride_h - p->top + (i + r) * p->dilation_h;
        rows[r] = i + r < p->kh && h >= 0 && h < p->ih ? p->x + s->image * p->sn + h * p->sh + s->c : NULL;
    }
    ptrdiff_t w = s->w0 * p->stride_w - p->left;
    for (ptrdiff_t column = 0; column < s->columns; column++, w++) {
        const bool inside = w >= 0 && w < p->iw;
        vi x[4], q[4];
        UNROLL for (int r = 0; r < 4; r++) {
            if (!inside || !rows[r])
                x[r] = zero;
            else
                x[r] = v_ixor(all ? v_iload(rows[r] + w * p->sw) : v_load_quads_tail(rows[r] + w * p->sw, s->channels),
                              mask);
        }
        v_quads(x, q);
        UNROLL for (int phase = 0; phase < PHASES; phase++) UNROLL for (int v = 0; v < 4; v++)
            s->quads[column][phase][v] = v_dot_bytes(q[v], phase);
    }
}

/* A row of results: from sums in the order of v_quads. */
INLINE void depthwise_end(const byte_segment *s, const eb_bounds *b, ptrdiff_t o, const vi sums[4]) {
    const fo_byte_depthwise_args *d = s->d;
    const fo_byte_epilogue *e = &d->ep;
    const ptrdiff_t at = ((s->image * d->p.oh + s->h) * d->p.ow + s->w0 + o) * d->ldc + s->c;
    vi q[4];
    UNROLL for (int v = 0; v < 4; v++) {
        const vf y = eb_vector(sums[v], e->scale + s->c + v * VL, NULL, e->bias + s->c + v * VL);
        q[v] = e->saturates ? v_to_int(y) : eb_round(b, y);
    }
    const vi bytes = v_ixor(v_pack_inlane(q, b->zero), b->flip);
    if (s->channels >= QUADS)
        v_istore((uint8_t *)d->c + at, bytes);
    else
        v_store_quads_tail((uint8_t *)d->c + at, bytes, s->channels);
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

/* Column j of the kernel. */
INLINE void depthwise_tap(const vi x[PHASES][4], const int8_t *w, vi acc[4]) {
    UNROLL for (int phase = 0; phase < PHASES; phase++) UNROLL for (int v = 0; v < 4; v++)
        v_dot(acc[v], x[phase][v], v_dot_weights(v_iload(w + v * QUADS), phase));
}

/* The segment's outputs for four rows of the kernel, whose width is a literal or 0. */
INLINE void depthwise_taps(byte_segment *s, const eb_bounds *b, const int width, bool first, bool last) {
    const fo_byte_depthwise_args *d = s->d;
    const ptrdiff_t step = d->p.dilation_w, stride = d->p.stride_w;
    const bool direct = d->ep.clips && !d->ep.residual && d->ep.type != FO_FLOAT32;
    for (ptrdiff_t o = 0; o < s->n; o++) {
        const vi(*x)[PHASES][4] = (const vi(*)[PHASES][4])s->quads + o * stride;
        vi acc[4];
        UNROLL for (int v = 0; v < 4; v++) acc[v] = first ? v_iload(d->ep.start + s->c + v * VL) : s->sums[o * 4 + v];
        if (width)
            UNROLL for (int j = 0; j < width; j++) depthwise_tap(x[j * step], s->w + j * 4 * QUADS, acc);
        else
            for (ptrdiff_t j = 0; j < d->p.kw; j++) depthwise_tap(x[j * step], s->w + j * 4 * QUADS, acc);
        if (!last)
            UNROLL for (int v = 0; v < 4; v++) s->sums[o * 4 + v] = acc[v];
        else if (direct)
            depthwise_end(s, b, o, acc);
        else
            depthwise_end_sums(s, o, acc);
    }
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
            depthwise_taps(s, b, width, i == 0, i + 4 >= p->kh);
        }
    }
}

/* Output row `row` of all images' rows, channels c0 .. c1 - 1, of which c0 begins a block. */
static void byte_depthwise(const fo_byte_depthwise_args *d, ptrdiff_t row, ptrdiff_t c0, ptrdiff_t c1) {
    const eb_bounds bounds = eb_start(&d->ep);
    byte_segment s = {.d = d, .image = row / d->p.oh, .h = row % d->p.oh};
    FO_RAN("depthwise bytes");
    for (s.c = c0; s.c < c1; s.c += QUADS) {
        s.channels = c1 - s.c;
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
