/* What the products of a direct convolution read: the image as it is, or rows of it that are copied to scratch, with
 * zeros around them.
 *
 *     by pixels    [ zeros | pixel 0: c0 c1 .. | pixel 1: .. | zeros ]
 *     by channels  c0: [ columns of phase 0 of the stride | of phase 1 .. ], c1: ..
 */
#include "direct_parts.h"

#include <string.h>

/* Where a kernel's column stands in a source row. */
static ptrdiff_t column_at(const fo_direct *d, ptrdiff_t column) {
    return d->phases > 1 ? column % d->phases * d->pw + column / d->phases : column * fo_source_strides(d).sw;
}

void fo_source_table(const fo_direct *d, ptrdiff_t row, ptrdiff_t j, ptrdiff_t c, ptrdiff_t *table) {
    const ptrdiff_t sc = fo_source_strides(d).sc, count = min_(CHANNEL_BLOCK, d->plan->icg - c);
    for (ptrdiff_t i = 0, at = c * sc + row + column_at(d, j * d->plan->s.dw); i < count; i++, at += sc) table[i] = at;
}

/* An input row of every channel of a bundle from column `at` on, to be read by pixels: zeros left and right. */
static void copy_channels_last(const fo_direct *d, ptrdiff_t channels, const float *row, ptrdiff_t at, float *to) {
    const ptrdiff_t c = d->bundle * d->plan->icg, before = clamp_(-at, 0, d->pw), skipped = max_(at, 0);
    const ptrdiff_t inside = clamp_(d->z.iw - skipped, 0, d->pw - before);
    memset(to, 0, (size_t)(before * c) * sizeof *to);
    to += before * c, row += skipped * d->x.sw;
    if (d->x.sw == c)
        memcpy(to, row, (size_t)(inside * c) * sizeof *to);
    else
        for (ptrdiff_t q = 0; q < inside; q++) memcpy(to + q * c, row + q * d->x.sw, (size_t)channels * sizeof *to);
    memset(to + inside * c, 0, (size_t)((d->pw - before - inside) * c) * sizeof *to);
}

/* The same by channels, `plane` floats apart, columns of each phase of the stride for themselves. */
static void copy_planar(const fo_direct *d, ptrdiff_t channels, const float *row, ptrdiff_t at, float *to,
                        ptrdiff_t plane) {
    const fo_kernels *kn = d->plan->kn;
    for (ptrdiff_t f = 0; f < d->phases; f++, to += d->pw) {
        const ptrdiff_t first = f + at, before = clamp_(div_up(-first, d->phases), 0, d->pw);
        const ptrdiff_t end = clamp_(div_up(d->z.iw - first, d->phases), 0, d->pw);
        if (d->x.sw == 1) {
            kn->pad(channels, d->pw, row, d->x.sc, d->z.iw, first, d->phases, to, plane);
            continue;
        }
        for (ptrdiff_t c = 0; c < channels; c++) {
            memset(to + c * plane, 0, (size_t)before * sizeof *to);
            memset(to + c * plane + end, 0, (size_t)(d->pw - end) * sizeof *to);
        }
        if (end > before)
            kn->transpose(end - before, channels, row + (first + before * d->phases) * d->x.sw, d->phases * d->x.sw,
                          to + before, plane);
    }
}

void fo_source_copy(const fo_direct *d, const fo_direct_part *q, ptrdiff_t groups, ptrdiff_t h0, ptrdiff_t rows,
                    float *scratch) {
    const fo_image v = fo_source_strides(d);
    const ptrdiff_t channels = groups * d->plan->icg, at = q->first * d->plan->s.sw - d->z.left;
    for (ptrdiff_t i = 0; i < rows; i++) {
        const ptrdiff_t h = h0 + i;
        const float *row = fo_at(&d->x, q->n, q->g * d->plan->icg, h, 0);
        float *to = scratch + fo_source_place(d, i) * v.sh;
        if (h < 0 || h >= d->z.ih)
            memset(to, 0, (size_t)v.sh * sizeof *to);
        else
            d->channels_last ? copy_channels_last(d, channels, row, at, to)
                             : copy_planar(d, channels, row, at, to, v.sc);
    }
}
