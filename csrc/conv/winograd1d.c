/* Which products give two or three output rows at once, their weights, and when they pay.
 *
 * The taps of a kernel's column that lie a stride apart, and the image rows that they meet, are a convolution of stride 1. It is cut
 * into pieces of one to three taps g and the image rows d, and a piece gives `lines` outputs of a column by fewer products:
 *
 *     F(2,2)           (d0-d1) g0,  (d1) (g0+g1),  (d2-d1) g1                                             3 instead of 4
 *                      y0 = first + second, y1 = second + third
 *     F(2,3), F(3,2)   (d0-d2) g0,  (d1+d2) (g0+g1+g2)/2,  (d2-d1) (g0-g1+g2)/2,  (d3-d1) g2 (or g1)      4 instead of 6
 *                      y0 = first + second + third, y1 = second - third, y2 = second + third (the last line: + fourth)
 *
 * Terms of one kind, of all pieces, kernel columns and channels, are one reduction: a 3x3 kernel of stride 2 takes 7 rows of products
 * for 3 lines instead of 9, 5x5 takes 7 for 2 lines instead of 10, 7x7 of stride 2 takes 10 instead of 14. Only the points 0, 1, -1
 * and infinity are evaluated: rows are added and subtracted once, and the error is that of the plain sum. */
#include "conv2d.h"

#include <string.h>

static ptrdiff_t taps_of(const fo_conv2d_shape *s, ptrdiff_t phase) { return div_up(s->kh - phase, s->sh); }

/* Terms for so many lines; pieces have at most 5 - lines taps, so that there are four points. */
static ptrdiff_t count_terms(const fo_conv2d_shape *s, int lines) {
    ptrdiff_t terms = 0;
    for (ptrdiff_t f = 0; f < min_(s->sh, s->kh); f++) terms += taps_of(s, f) + div_up(taps_of(s, f), 5 - lines) * (lines - 1);
    return terms;
}

static void add_term(fo_lines *l, int product, int row, int other, int sign, int tap, float g0, float g1, float g2) {
    if (product >= l->products) l->products = product + 1;
    l->term[l->terms++] = (fo_line_term){product, row, other, sign, tap, {g0, g1, g2}, sign ? l->rows + l->sums++ : 0};
}

/* The piece of `taps` taps, sh rows apart, from kernel row d0 on. */
static void add_piece(fo_lines *l, int d0, int sh, int taps) {
    const int d1 = d0 + sh, d2 = d1 + sh, d3 = d2 + sh, every = l->lines, last = l->lines - 1;
    const bool third = taps == 3;
    if (taps == 1) {
        for (int j = 0; j < l->lines; j++) add_term(l, j, d0 + j * sh, 0, 0, d0, 1, 0, 0);
    } else if (l->lines + taps == 4) {
        add_term(l, 0, d0, d1, -1, d0, 1, 0, 0);
        add_term(l, every, d1, 0, 0, d0, 1, 1, 0);
        add_term(l, last, d2, d1, -1, d0, 0, 1, 0);
    } else {
        add_term(l, 0, d0, d2, -1, d0, 1, 0, 0);
        add_term(l, every, d1, d2, 1, d0, 0.5f, 0.5f, third ? 0.5f : 0);
        add_term(l, every + 1, d2, d1, -1, d0, 0.5f, -0.5f, third ? 0.5f : 0);
        add_term(l, last, d3, d1, -1, d0, 0, third ? 0 : 1, third);
    }
}

void fo_lines_choose(fo_lines *l, const fo_conv2d_shape *s) {
    *l = (fo_lines){.lines = 1};
    if (s->dh != 1 || s->kh > FO_MOST_LINE_TERMS / FO_MOST_LINES) return;
    for (int lines = 2; lines <= FO_MOST_LINES; lines++)
        if (count_terms(s, lines) * l->lines < (l->lines > 1 ? count_terms(s, l->lines) : s->kh) * lines) l->lines = lines;
    if (l->lines == 1) return;
    l->rows = (int)(l->lines * s->sh);
    for (int f = 0; f < min_(s->sh, s->kh); f++)
        for (int left = (int)taps_of(s, f), tap = f, taps; left; left -= taps, tap += taps * (int)s->sh) {
            taps = (int)min_(left, 5 - l->lines);
            add_piece(l, tap, (int)s->sh, taps);
        }
    for (int e = 0; e < l->terms; e++) {
        if (!l->term[e].sign) l->term[e].at = (int)fo_line_place(l, l->term[e].row);
        for (int t = l->term[e].product; t < l->products; t++) l->first[t + 1] += s->kw * (s->ic / s->groups);
    }
}

/* ---- weights ------------------------------------------------------------------------------------------------------ */

ptrdiff_t fo_lines_steps(const fo_conv2d *plan) { return plan->lines.first[plan->lines.products]; }

ptrdiff_t fo_lines_ldw(const fo_conv2d *plan) {
    const ptrdiff_t steps = fo_lines_steps(plan);
    return steps % 256 ? steps : steps + 16;
}

static void pack_row(const fo_conv2d *plan, ptrdiff_t o, float *packed) {
    FOR_EACH_LINE_BLOCK(plan, p, e, c0, j) {
        const fo_line_term *t = &plan->lines.term[e];
        const ptrdiff_t block = min_(CHANNEL_BLOCK, plan->icg - c0);
        const float *w = plan->w + o * plan->ldw + c0 * plan->s.kh * plan->s.kw + (t->tap * plan->s.kw + j) * block;
        float sum[CHANNEL_BLOCK] = {0};
        for (int q = 0; q < 3; q++, w += plan->s.sh * plan->s.kw * block)
            for (ptrdiff_t c = 0; t->taps[q] && c < block; c++) sum[c] += t->taps[q] * w[c];
        memcpy(packed + o * fo_lines_ldw(plan) + p, sum, (size_t)block * sizeof *sum);
    }
}

const float *fo_lines_rows(const fo_conv2d *plan) {
    return fo_conv2d_packed(plan, FO_LINE_ROWS, plan->s.oc * fo_lines_ldw(plan), plan->s.oc, pack_row);
}

/* The panels of a group's first product, then of its second and so on; one of each is a part. */
static void pack_panel(const fo_conv2d *plan, ptrdiff_t part, float *packed) {
    const float *rows = atomic_load(&plan->packed[FO_LINE_ROWS]);
    const ptrdiff_t ldw = fo_lines_ldw(plan), nr = plan->kn->nr, panels = div_up(plan->ocg, nr), g = part / panels, o = part % panels * nr;
    for (int t = 0; t < plan->lines.products; t++) {
        const ptrdiff_t first = plan->lines.first[t], k = plan->lines.first[t + 1] - first;
        float *to = packed + fo_packed_size(plan->kn, plan->ocg, g * fo_lines_steps(plan) + first) + o * k;
        fo_pack(plan->kn, min_(nr, plan->ocg - o), k, rows + (g * plan->ocg + o) * ldw + first, 1, ldw, to);
    }
}

const float *fo_lines_panels(const fo_conv2d *plan) {
    if (!fo_lines_rows(plan)) return NULL;
    const ptrdiff_t floats = plan->s.groups * fo_packed_size(plan->kn, plan->ocg, fo_lines_steps(plan));
    return fo_conv2d_packed(plan, FO_LINE_PANELS, floats, plan->s.groups * div_up(plan->ocg, plan->kn->nr), pack_panel);
}

/* ---- the choice --------------------------------------------------------------------------------------------------- */

/* Steps of the reduction that take as long as a tile's start and end, and as the sum of two vectors of rows; pixels of a line that
 * a weight must serve, or its way from the third-level cache takes longer. Measured with AVX-512. */
enum { START = 8, SUM = 5, PIXELS = 10 };
static const double GAIN = 0.95;

bool fo_lines_pay(const fo_conv2d *plan, const fo_conv2d_size *z) {
    const fo_lines *l = &plan->lines;
    const fo_conv2d_shape *s = &plan->s;
    if (l->lines == 1 || s->algorithm == FO_DIRECT) return false;
    if (s->algorithm == FO_WINOGRAD_1D) return true;
    const double step = (double)s->kw * plan->icg, sums = (double)l->sums * plan->icg * s->sw / plan->ocg * SUM;
    const ptrdiff_t groups = z->oh / l->lines, left = z->oh % l->lines;
    double steps = groups * (l->terms * step + l->products * START + sums);
    if (left) {
        steps += sums;
        for (int t = 0; t < l->products; t++)
            if (t < left || t >= l->lines) steps += (double)(l->first[t + 1] - l->first[t]) + START;
    }
    return steps * max_(z->ow, PIXELS) < GAIN * z->ow * z->oh * (s->kh * step + START);
}
