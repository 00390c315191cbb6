/* Depthwise convolutions of bytes, channels first, stride 1 or 2 along rows.
 *
 *   x   b0 b1 b2 b3 | b4 ..    a lane of a load has four neighbors of a row: the taps of one output. Loads at four
 *          b1 b2 b3 b4 | ..    offsets have those of all outputs, and no byte is moved; stride 2: two, of two vectors
 *
 * Rows of a channel are copied to where those outside the image are, too, so close that an output row with stride 1
 * goes over into the next: narrow images fill vectors, and what is computed between rows is dropped.
 */
typedef struct {
    const fo_qdepthwise_args *d;
    const int8_t *taps; /* of the channel: kh rows of whole fours */
    ptrdiff_t pitch;    /* from row to row of the copy and of the results */
    vi start;
    int8_t zero; /* of the weights */
    vf scale, bias, nudge;
} qplane;

/* Row i, four columns t of the kernel. */
INLINE vi plane_taps(const qplane *s, ptrdiff_t i, ptrdiff_t t, ptrdiff_t fours, int phase) {
    int32_t four;
    memcpy(&four, s->taps + (i * fours + t) * 4, sizeof four);
    return v_dot_weights(v_iset1(four), phase);
}

/* acc += the products of taps w and the outputs' bytes from x on. */
INLINE void plane_dot(vi acc[4], const int stride, const uint8_t *x, const vi w[PHASES]) {
    UNROLL_FOR (int v = 0; v < 4; v++) {
        const vi bytes = v_iload(x + (stride == 1 ? v : v / 2 * QUADS + v % 2 * 2));
        UNROLL_FOR (int phase = 0; phase < PHASES; phase++) v_dot(acc[v], v_dot_bytes(bytes, phase), w[phase]);
    }
}

/* acc -= the products of the weights' zero point and the outputs' bytes from x on. */
INLINE void plane_zeros(const qplane *s, const uint8_t *x, vi acc[4]) {
    const fo_qpatches *p = &s->d->p;
    const ptrdiff_t row = p->dilation_h * s->pitch;
    vi sum[4] = {v_iset1(0), v_iset1(0), v_iset1(0), v_iset1(0)};
    for (ptrdiff_t t = 0; t < p->kw; t += 4) {
        const uint32_t four = (uint8_t)s->zero * UINT32_C(0x01010101) >> 8 * (p->kw - t < 4 ? 4 - (p->kw - t) : 0);
        vi zero[PHASES];
        UNROLL_FOR (int phase = 0; phase < PHASES; phase++) zero[phase] = v_dot_weights(v_iset1((int32_t)four), phase);
        for (ptrdiff_t i = 0; i < p->kh; i++) plane_dot(sum, (int)p->stride_w, x + i * row + t, zero);
    }
    UNROLL_FOR (int v = 0; v < 4; v++) acc[v] = v_isub(acc[v], sum[v]);
}

/* n outputs; whole vectors are written. A kernel of `high` rows (a literal) and up to `fours` times four columns keeps
 * its taps in registers; 0: any. */
INLINE void plane_outputs(const qplane *s, const eb_bounds *bounds, const int stride, const int high, const int fours,
                          const uint8_t *x, uint8_t *y, ptrdiff_t n) {
    const fo_qpatches *p = &s->d->p;
    const ptrdiff_t row = p->dilation_h * s->pitch, any = (p->kw + 3) / 4;
    const eb_bounds b = *bounds;
    const vi start = s->start;
    const vf scale = s->scale, bias = s->bias, nudge = s->nudge;
    const bool nudged = s->d->ep.rescale->nudge != NULL, saturates = s->d->ep.rescale->saturates && !nudged,
               zeros = s->d->ep.rescale->w_zero;
    vi w[5][2][PHASES];
    UNROLL_FOR (int i = 0; i < high; i++)
        UNROLL_FOR (int t = 0; t < fours; t++)
            UNROLL_FOR (int phase = 0; phase < PHASES; phase++) w[i][t][phase] = plane_taps(s, i, t, fours, phase);
    for (ptrdiff_t o = 0; o < n; o += QUADS, x += stride * QUADS, y += QUADS) {
        vi acc[4] = {start, start, start, start};
        UNROLL_FOR (int i = 0; i < high; i++)
            UNROLL_FOR (int t = 0; t < fours; t++) plane_dot(acc, stride, x + i * row + 4 * t, w[i][t]);
        for (ptrdiff_t i = 0; !high && i < p->kh; i++)
            for (ptrdiff_t t = 0; t < any; t++) {
                UNROLL_FOR (int phase = 0; phase < PHASES; phase++) w[0][0][phase] = plane_taps(s, i, t, any, phase);
                plane_dot(acc, stride, x + i * row + 4 * t, w[0][0]);
            }
        if (zeros) plane_zeros(s, x, acc);
        vf real[4];
        UNROLL_FOR (int v = 0; v < 4; v++)
            real[v] = nudged ? eb_twice(acc[v], scale, bias, nudge, s->d->ep.rescale->longer)
                             : v_fma(v_to_float(acc[v]), scale, bias);
        if (saturates)
            UNROLL_FOR (int v = 0; v < 4; v++) acc[v] = v_to_int(real[v]);
        else
            UNROLL_FOR (int v = 0; v < 4; v++) acc[v] = eb_round(&b, real[v]);
        v_istore(y, v_ixor(stride == 1 ? v_pack_lanes(acc, b.zero) : v_pack_pairs(acc, b.zero), b.flip));
    }
}

INLINE void plane_run(const qplane *s, const eb_bounds *b, const uint8_t *x, uint8_t *y, ptrdiff_t n) {
    const fo_qpatches *p = &s->d->p;
    const bool three = p->kh == 3 && p->kw <= 4;
    if (p->stride_w == 1 && three)
        plane_outputs(s, b, 1, 3, 1, x, y, n);
    else if (p->stride_w == 1 && p->kh == 5 && p->kw > 4 && p->kw <= 8)
        plane_outputs(s, b, 1, 5, 2, x, y, n);
    else if (p->stride_w == 1)
        plane_outputs(s, b, 1, 0, 0, x, y, n);
    else if (three)
        plane_outputs(s, b, 2, 3, 1, x, y, n);
    else
        plane_outputs(s, b, 2, 0, 0, x, y, n);
}

/* Rows of the image under outputs h .. end-1, to where its columns are in the copy. */
static void plane_copy(const fo_qpatches *p, const uint8_t *x, ptrdiff_t h, ptrdiff_t end, ptrdiff_t pitch,
                       uint8_t *to) {
    const vi mask = flips(p->flip);
    const ptrdiff_t first = h * p->stride_h - p->top,
                    rows = (end - 1 - h) * p->stride_h + (p->kh - 1) * p->dilation_h + 1;
    for (ptrdiff_t r = 0; r < rows; r++)
        if (first + r >= 0 && first + r < p->ih)
            copy_bytes(p->iw, x + (first + r) * p->sh, mask, to + r * pitch + p->left);
}

INLINE void plane_rows(const fo_qdepthwise_args *d, const eb_bounds *b, ptrdiff_t c, ptrdiff_t rows, const uint8_t *x,
                       uint8_t *y) {
    const fo_qpatches *p = &d->p;
    const ptrdiff_t pitch = fo_qpitch(p);
    const qplane s = {d,
                      d->w + c * d->block,
                      pitch,
                      v_iset1(d->ep.rescale->start[c]),
                      d->ep.rescale->w_zero ? (int8_t)-d->ep.rescale->w_zero[c] : 0,
                      v_set1(d->ep.rescale->scale[c]),
                      v_set1(d->ep.bias[c]),
                      d->ep.rescale->nudge ? v_set1(d->ep.rescale->nudge[c]) : v_zero()};
    const bool whole = p->stride_w == 1 && p->stride_h == 1;
    const ptrdiff_t n = whole ? (rows - 1) * pitch + p->ow : p->ow;
    for (ptrdiff_t r = 0; r < (whole ? 1 : rows); r++) plane_run(&s, b, x + r * p->stride_h * pitch, y + r * pitch, n);
}

/* Rows h .. end-1 of channels c .. c+count-1, of which p.x and c are the first. As many planes as scratch has room for
 * are copied, then computed, then copied out: loads of what was just stored would wait for it. */
void FO_NAME(fo_qdepthwise_planes)(const fo_qdepthwise_args *d, ptrdiff_t c, ptrdiff_t count, ptrdiff_t h,
                                   ptrdiff_t end, ptrdiff_t planes, uint8_t *scratch) {
    const fo_qpatches *p = &d->p;
    const ptrdiff_t pitch = fo_qpitch(p), rows = end - h, copy = fo_qplane_copy(p, rows, VL),
                    each = fo_qplane_scratch(p, rows, VL);
    const eb_bounds b = eb_start(&d->ep);
    const uint8_t *x = p->x;
    uint8_t *y = (uint8_t *)d->c + h * d->ldc;
    FO_RAN("depthwise bytes planes");
    for (ptrdiff_t k = 0; k < planes && k < count; k++) fill_bytes(copy, flips(p->zero), scratch + k * each);
    for (ptrdiff_t done = 0, n; done < count; done += n) {
        n = count - done < planes ? count - done : planes;
        for (ptrdiff_t k = 0; k < n; k++, x += d->x_step) plane_copy(p, x, h, end, pitch, scratch + k * each);
        for (ptrdiff_t k = 0; k < n; k++)
            plane_rows(d, &b, c + done + k, rows, scratch + k * each, scratch + k * each + copy);
        for (ptrdiff_t k = 0; k < n; k++, y += d->c_step)
            for (ptrdiff_t r = 0; r < rows; r++)
                copy_bytes(p->ow, scratch + k * each + copy + r * pitch, v_iset1(0), y + r * d->ldc);
    }
}
