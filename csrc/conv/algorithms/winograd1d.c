/* Winograd's algorithm along columns: which products give two or three output rows at once, their weights, and the
 * walk over them.
 *
 * The taps of a kernel's column that are a stride apart, and the image rows that they read, are a convolution of
 * stride 1. It is cut into pieces of one to three taps g and the image rows d, and a piece gives the `unit` outputs
 * of a column by fewer products:
 *
 *     F(2,2)           (d0-d1) g0,  (d1) (g0+g1),  (d2-d1) g1                                         3 instead of 4
 *                      y0 = first + second, y1 = second + third
 *     F(2,3), F(3,2)   (d0-d2) g0,  (d1+d2) (g0+g1+g2)/2,  (d2-d1) (g0-g1+g2)/2,  (d3-d1) g2 (or g1)  4 instead of 6
 *                      y0 = first + second + third, y1 = second - third, y2 = second + third
 *                      (the last row: + fourth)
 *
 * Terms of one kind, of all pieces, kernel columns and channels, are one reduction: a 3x3 kernel of stride 2 takes 7
 * rows of products for 3 rows instead of 9, 5x5 takes 7 for 2 instead of 10, 7x7 of stride 2 takes 10 instead of 14.
 * Only the points 0, 1, -1 and infinity are evaluated: rows are added and subtracted once, and the error is that of
 * the plain sum. */
#include "winograd1d.h"

#include <string.h>

#include "../../machine/tune.h"
#include "direct_parts.h"

/* ---- terms ------------------------------------------------------------------------------------------------------- */

static ptrdiff_t taps_of(const fo_conv2d_shape *s, ptrdiff_t phase) { return div_up(s->kh - phase, s->sh); }

/* Terms for a unit of so many rows; pieces have at most 5 - unit taps, so that there are four points. */
static ptrdiff_t count_terms(const fo_conv2d_shape *s, int unit) {
    ptrdiff_t terms = 0;
    for (ptrdiff_t f = 0; f < min_(s->sh, s->kh); f++)
        terms += taps_of(s, f) + div_up(taps_of(s, f), 5 - unit) * (unit - 1);
    return terms;
}

static void add_term(fo_winograd1d *w, int product, int row, int other, int sign, int tap, float g0, float g1,
                     float g2) {
    if (product >= w->products) w->products = product + 1;
    const int at = sign ? w->rows + w->sums++ : 0;
    w->term[w->terms++] = (fo_winograd1d_term){product, row, other, sign, tap, {g0, g1, g2}, at};
}

/* The piece of `taps` taps, sh rows apart, from kernel row d0 on. */
static void add_piece(fo_winograd1d *w, int d0, int sh, int taps) {
    const int d1 = d0 + sh, d2 = d1 + sh, d3 = d2 + sh, every = w->unit, last = w->unit - 1;
    const bool third = taps == 3;
    if (taps == 1) {
        for (int j = 0; j < w->unit; j++) add_term(w, j, d0 + j * sh, 0, 0, d0, 1, 0, 0);
    } else if (w->unit + taps == 4) {
        add_term(w, 0, d0, d1, -1, d0, 1, 0, 0);
        add_term(w, every, d1, 0, 0, d0, 1, 1, 0);
        add_term(w, last, d2, d1, -1, d0, 0, 1, 0);
    } else {
        add_term(w, 0, d0, d2, -1, d0, 1, 0, 0);
        add_term(w, every, d1, d2, 1, d0, 0.5f, 0.5f, third ? 0.5f : 0);
        add_term(w, every + 1, d2, d1, -1, d0, 0.5f, -0.5f, third ? 0.5f : 0);
        add_term(w, last, d3, d1, -1, d0, 0, third ? 0 : 1, third);
    }
}

/* The unit with the fewest products for each row, or 1. */
static int best_unit(const fo_conv2d_shape *s) {
    int best = 1;
    if (s->dh != 1 || s->kh <= s->sh || s->kh > FO_MAX_UNIT_TERMS / FO_MAX_UNIT) return best;
    ptrdiff_t least = s->kh; /* terms of the best one */
    for (int unit = 2; unit <= FO_MAX_UNIT; unit++) {
        const ptrdiff_t terms = count_terms(s, unit);
        if (terms * best < least * unit) best = unit, least = terms;
    }
    return best;
}

bool fo_winograd1d_terms(fo_winograd1d *w, const fo_conv2d_shape *s) {
    w->unit = best_unit(s);
    if (w->unit == 1) return false;
    w->products = w->terms = w->sums = 0;
    memset(w->first, 0, sizeof w->first);
    w->rows = (int)(w->unit * s->sh);
    for (int f = 0; f < min_(s->sh, s->kh); f++)
        for (int left = (int)taps_of(s, f), tap = f, taps; left; left -= taps, tap += taps * (int)s->sh) {
            taps = (int)min_(left, 5 - w->unit);
            add_piece(w, tap, (int)s->sh, taps);
        }
    for (int e = 0; e < w->terms; e++) {
        const int row = w->term[e].row;
        if (!w->term[e].sign) w->term[e].at = row + row / w->rows * w->sums;
        for (int t = w->term[e].product; t < w->products; t++) w->first[t + 1] += s->kw * (s->ic / s->groups);
    }
    return true;
}

/* Steps p of the products, a block of channels c0.. at a time: term e and kernel column j. */
#define FOR_EACH_UNIT_BLOCK(plan, u, p, e, c0, j) \
    for (ptrdiff_t p = 0, t_ = 0; t_ < (u)->products; t_++) \
        for (ptrdiff_t c0 = 0; c0 < (plan)->icg; c0 += CHANNEL_BLOCK) \
            for (int e = 0; e < (u)->terms; e++) \
                for (ptrdiff_t j = 0, last_ = (u)->term[e].product == t_ ? (plan)->s.kw : 0; j < last_; \
                     j++, p += min_(CHANNEL_BLOCK, (plan)->icg - c0))

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static ptrdiff_t steps_of(const fo_winograd1d *u) { return u->first[u->products]; }

static ptrdiff_t leading(const fo_winograd1d *u) {
    const ptrdiff_t steps = steps_of(u);
    return steps % 256 ? steps : steps + 16;
}

/* The weights of a term and kernel column j for `block` input channels from c0 on, of output channel o. */
static void sum_taps(const fo_conv2d *plan, const fo_winograd1d_term *t, ptrdiff_t o, ptrdiff_t c0, ptrdiff_t j,
                     ptrdiff_t block, float *to) {
    const float *w = plan->w + o * plan->ldw + c0 * plan->s.kh * plan->s.kw + (t->tap * plan->s.kw + j) * block;
    float sum[CHANNEL_BLOCK] = {0};
    for (int q = 0; q < 3; q++, w += plan->s.sh * plan->s.kw * block)
        for (ptrdiff_t c = 0; t->taps[q] && c < block; c++) sum[c] += t->taps[q] * w[c];
    memcpy(to, sum, (size_t)block * sizeof *sum);
}

static void pack_row(const fo_conv2d *plan, const void *context, ptrdiff_t o, float *packed) {
    const fo_winograd1d *u = context;
    float *to = packed + o * leading(u);
    FOR_EACH_UNIT_BLOCK(plan, u, p, e, c0, j)
    sum_taps(plan, &u->term[e], o, c0, j, min_(CHANNEL_BLOCK, plan->icg - c0), to + p);
}

static const float *packed_rows(const fo_conv2d *plan, const fo_winograd1d *u) {
    return fo_conv2d_packed(plan, FO_WINOGRAD1D_ROWS, plan->s.oc * leading(u), plan->s.oc, pack_row, u);
}

/* The panels of a group's first product, then of its second and so on; one of each is a part. */
static void pack_panel(const fo_conv2d *plan, const void *context, ptrdiff_t part, float *packed) {
    const fo_winograd1d *u = context;
    const ptrdiff_t nr = plan->kn->nr, panels = div_up(plan->ocg, nr), g = part / panels, o = part % panels * nr;
    const ptrdiff_t n = min_(nr, plan->ocg - o);
    for (int t = 0; t < u->products; t++) {
        const ptrdiff_t first = u->first[t], k = u->first[t + 1] - first;
        float *const to = packed + fo_packed_size(plan->kn, plan->ocg, g * steps_of(u) + first) + o * k;
        if (n < nr) memset(to, 0, (size_t)(k * nr) * sizeof *to);
        FOR_EACH_UNIT_BLOCK(plan, u, p, e, c0, j) {
            const ptrdiff_t block = min_(CHANNEL_BLOCK, plan->icg - c0);
            float sums[2 * MAX_LANES * CHANNEL_BLOCK];
            if (u->term[e].product != t) continue;
            for (ptrdiff_t l = 0; l < n; l++)
                sum_taps(plan, &u->term[e], g * plan->ocg + o + l, c0, j, block, sums + l * CHANNEL_BLOCK);
            plan->kn->transpose(n, block, sums, CHANNEL_BLOCK, to + (p - first) * nr, nr);
        }
    }
}

static const float *packed_panels(const fo_conv2d *plan, const fo_winograd1d *u) {
    const ptrdiff_t floats = plan->s.groups * fo_packed_size(plan->kn, plan->ocg, steps_of(u));
    const ptrdiff_t parts = plan->s.groups * div_up(plan->ocg, plan->kn->nr);
    return fo_conv2d_packed(plan, FO_WINOGRAD1D_PANELS, floats, parts, pack_panel, u);
}

static bool weights(fo_direct *d) {
    const fo_winograd1d *u = d->u.terms;
    if (!d->weights_lhs) return (d->packed = packed_panels(d->plan, u));
    d->w = packed_rows(d->plan, u), d->ldw = leading(u);
    return d->w;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static void fill_table(const fo_direct *d) {
    const fo_winograd1d *u = d->u.terms;
    const ptrdiff_t sh = fo_source_strides(d).sh;
    FOR_EACH_UNIT_BLOCK(d->plan, u, p, e, c, j) fo_source_table(d, u->term[e].at * sh, j, c, d->table + p);
}

/* What a unit's rows share. */
static ptrdiff_t sums_floats(const fo_direct *d, ptrdiff_t rows) {
    const fo_kernels *kn = d->plan->kn;
    return div_up(fo_direct_rows_at_once(d, rows), d->u.unit) * 2 * FO_WINOGRAD1D_TILE_ROWS * max_(3 * kn->vl, kn->nr);
}

/* The sums of copied rows that `rows` output rows need. */
static void add_rows(const fo_direct *d, ptrdiff_t rows, float *scratch) {
    const fo_winograd1d *u = d->u.terms;
    const ptrdiff_t sh = fo_source_strides(d).sh;
    for (ptrdiff_t h = 0; h < rows; h += u->unit, scratch += (u->rows + u->sums) * sh)
        for (const fo_winograd1d_term *t = u->term; t < u->term + u->terms; t++) {
            if (!t->sign) continue;
            const float *row = scratch + fo_source_place(d, t->row) * sh;
            const float *other = scratch + fo_source_place(d, t->other) * sh;
            d->plan->kn->sum(1, sh, row, 0, other, 0, t->sign, scratch + t->at * sh, 0);
        }
}

/* Output rows h0 .. h0+rows of a part. A product's weights stay in the cache while all units pass: first the
 * products that a unit's rows share, to scratch, where the rows' own start. */
static void part_rows(const fo_direct *d, const fo_direct_part *q, const float *x, float *sums, ptrdiff_t h0,
                      ptrdiff_t rows, fo_gemm_args *a) {
    const fo_kernels *kn = d->plan->kn;
    const fo_winograd1d *u = d->u.terms;
    const ptrdiff_t high = d->weights_lhs ? q->oc : q->px, units = div_up(rows, u->unit);
    const ptrdiff_t below = (u->rows + u->sums) * fo_source_strides(d).sh;
    fo_direct_part after = *q; /* the part whose weights follow */
    after.o = q->o + q->oc < d->plan->ocg ? q->o + q->oc : 0;
    fo_direct_epilogue(d, q, a);
    const fo_epilogue ep = a->ep;
    a->lds = d->weights_lhs ? round_up(q->px, kn->vl) : kn->nr;
    for (int e = 0; e < u->products; e++) {
        const int t = e + u->unit < u->products ? e + u->unit : e + u->unit - u->products;
        const int v = t + 1 < u->products ? t + 1 : 0;
        const ptrdiff_t k = u->first[t + 1] - u->first[t], next = u->first[v + 1] - u->first[v];
        const ptrdiff_t row = t < u->unit ? t : 0;
        a->ep = ep;
        for (ptrdiff_t g = 0; g < units && g * u->unit + row < rows; g++) {
            float *shared = sums + g * 2 * high * a->lds, *second = shared + high * a->lds;
            if (u->products == u->unit + 1) second = NULL;
            fo_direct_product(d, q, x + g * below, u->first[t], k, a);
            if (d->streams && !d->weights_lhs) {
                const float *panel = fo_direct_panel(d, e + 1 < u->products ? q : &after, u->first[v], next);
                fo_direct_next(panel, next * a->ldb, g, units, a);
            }
            if (t < u->unit) {
                a->start = shared, a->accum2 = second, a->sign = t % 2 ? -1 : 1;
                fo_direct_output(d, q, h0 + g * u->unit + t, a);
            } else {
                a->start = a->accum2 = NULL;
                fo_direct_partial(t == u->unit ? shared : second, a);
                if (t > u->unit) a->ep.bias = NULL; /* it is in the first */
                if (d->weights_lhs) a->n = a->lds;  /* whole vectors */
            }
            kn->gemm(a);
        }
    }
}

/* The same in blocks whose shared sums stay in the first-level cache. */
static void rows_in_blocks(const fo_direct *d, const fo_direct_part *q, const float *x, float *sums, ptrdiff_t h0,
                           ptrdiff_t rows, fo_gemm_args *a) {
    const fo_kernels *kn = d->plan->kn;
    const ptrdiff_t m = d->weights_lhs ? q->oc : q->px, width = d->weights_lhs ? q->px : q->oc;
    const ptrdiff_t high = div_up(m, div_up(m, FO_WINOGRAD1D_TILE_ROWS));
    for (ptrdiff_t j = 0, wide; j < width; j += wide) {
        wide = width - j <= 3 * kn->vl ? width - j : kn->nr; /* as the product's own tiles */
        for (ptrdiff_t i = 0; i < m; i += high) {
            const ptrdiff_t some = min_(high, m - i), o = d->weights_lhs ? i : j, w = d->weights_lhs ? j : i;
            fo_direct_part block = {q->n, q->g, q->o + o, wide, q->w0 + w, some, q->first};
            if (d->weights_lhs) block.oc = some, block.px = wide;
            part_rows(d, &block, x, sums, h0, rows, a);
        }
    }
}

/* ---- the algorithm ----------------------------------------------------------------------------------------------- */

bool fo_winograd1d_applies(const fo_conv2d *plan, const fo_conv2d_size *z) {
    return z->oh > 1 && !fo_is_depthwise(plan) && best_unit(&plan->s) > 1;
}

fo_status fo_winograd1d_prepare(fo_prepared_conv2d *call) {
    static const fo_direct_walk walk = {weights, fill_table, sums_floats, add_rows, rows_in_blocks};
    static const char *const names[][2] = {
        {"winograd F(2 rows), pixels as rows", "winograd F(2 rows), pixels as columns"},
        {"winograd F(3 rows), pixels as rows", "winograd F(3 rows), pixels as columns"}};
    fo_winograd1d u;
    fo_winograd1d_terms(&u, &call->plan->s);
    const fo_direct_unit unit = {&walk, u.unit, u.rows, u.sums, steps_of(&u), &u, sizeof u};
    return fo_direct_prepare_unit(call, &unit, names[u.unit - 2]);
}

fo_status fo_winograd1d_run(const fo_prepared_conv2d *call, const fo_image *x, const fo_image *residual,
                            const fo_image *y) {
    FO_RAN(((const fo_direct *)call->state)->weights_lhs ? "conv winograd1d columns" : "conv winograd1d rows");
    return fo_direct_run_unit(call, x, residual, y);
}
