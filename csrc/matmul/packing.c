/* Packing of weights; folding of scales into them. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "packing.h"

/* Whether floats stand at an odd address, as those of mapped files may: they are moved there, and not read. */
static bool is_odd(const float *b) { return (uintptr_t)b % sizeof *b; }

void fo_pack_panel(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k, const float *b, ptrdiff_t bk, ptrdiff_t bn,
                   float *panel) {
    const ptrdiff_t nr = kn->nr;
    if (n < nr) memset(panel, 0, (size_t)(k * nr) * sizeof *panel);
    if (bk == 1 && !is_odd(b)) {
        kn->transpose(n, k, b, bn, panel, nr);
    } else if (bn == 1) {
        for (ptrdiff_t p = 0; p < k; p++) memcpy(panel + p * nr, b + p * bk, (size_t)n * sizeof *b);
    } else {
        for (ptrdiff_t p = 0; p < k; p++)
            for (ptrdiff_t j = 0; j < n; j++) memcpy(panel + p * nr + j, b + p * bk + j * bn, sizeof *b);
    }
}

void fo_transpose_16(ptrdiff_t m, ptrdiff_t n, const uint16_t *x, ptrdiff_t ldx, uint16_t *y, ptrdiff_t ldy) {
    for (ptrdiff_t j = 0; j < n; j++)
        for (ptrdiff_t i = 0; i < m; i++) y[j * ldy + i] = x[i * ldx + j];
}

static void pack_panel_16(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k, const uint16_t *b, ptrdiff_t bk, ptrdiff_t bn,
                          uint16_t *panel) {
    const ptrdiff_t nr = kn->nr;
    for (ptrdiff_t p = 0; p < k; p++, panel += nr, b += bk)
        for (ptrdiff_t j = 0; j < nr; j++) panel[j] = j < n ? b[j * bn] : 0;
}

typedef struct {
    const fo_kernels *kn;
    ptrdiff_t n, k, bk, bn;
    fo_weights b;
    void *packed;
} packing;

static void pack_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const packing *p = context;
    const ptrdiff_t nr = p->kn->nr, j = task * nr, n = min_(p->n - j, nr), from = j * p->bn, to = j * p->k;
    const void *b = p->b.data;
    if (fo_size(p->b.type) == 2)
        pack_panel_16(p->kn, n, p->k, (const uint16_t *)b + from, p->bk, p->bn, (uint16_t *)p->packed + to);
    else
        fo_pack_panel(p->kn, n, p->k, (const float *)b + from, p->bk, p->bn, (float *)p->packed + to);
}

enum { ROUNDED_ROWS = LINE_FLOATS, ROUNDED_STEPS = LINE_FLOATS * LINE_FLOATS }; /* of a tile of 16 KB */

typedef struct {
    ptrdiff_t n, k, wn, wk;
    fo_weights w;
    const double *scale;
    uint16_t *to;
} rounding;

/* Widens rows of a tile, `from` its first weight; where columns are contiguous, each line of memory is read once. */
static void widen_tile(const rounding *r, const char *from, ptrdiff_t rows, ptrdiff_t steps, float *tile) {
    const ptrdiff_t size = fo_size(r->w.type), each = r->wk == 1 ? steps : 1;
    if (r->wn == 1 && r->w.type == FO_F32) {
        fo_active()->transpose(steps, rows, (const float *)from, r->wk, tile, ROUNDED_STEPS);
        return;
    }
    for (ptrdiff_t i = 0; i < rows; i++)
        for (ptrdiff_t p = 0; p < steps; p += each)
            fo_active()->widen(each, r->w.type, from + (i * r->wn + p * r->wk) * size, tile + i * ROUNDED_STEPS + p);
}

static void round_rows(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const rounding *r = context;
    const fo_kernels *kn = fo_active();
    const ptrdiff_t first = task * ROUNDED_ROWS, rows = min_(ROUNDED_ROWS, r->n - first);
    float tile[ROUNDED_ROWS * ROUNDED_STEPS];
    for (ptrdiff_t p = 0; p < r->k; p += ROUNDED_STEPS) {
        const ptrdiff_t steps = min_(ROUNDED_STEPS, r->k - p), at = first * r->wn + p * r->wk;
        widen_tile(r, (const char *)r->w.data + at * fo_size(r->w.type), rows, steps, tile);
        for (ptrdiff_t i = 0; i < rows; i++) {
            float *row = tile + i * ROUNDED_STEPS;
            if (r->scale) kn->fold(steps, row, r->scale[first + i], row);
            kn->narrow(steps, row, r->to + (first + i) * r->k + p);
        }
    }
}

uint16_t *fo_bf16_weights(ptrdiff_t n, ptrdiff_t k, const fo_weights *w, ptrdiff_t wn, ptrdiff_t wk,
                          const double *scale) {
    rounding r = {n, k, wn, wk, *w, scale, fo_alloc((size_t)max_(n * k, 1) * sizeof(uint16_t))};
    if (r.to) fo_parallel_for(div_up(n, ROUNDED_ROWS), fo_pack_threads(n * k), round_rows, &r);
    return r.to;
}

void fo_pack(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k, const float *b, ptrdiff_t bk, ptrdiff_t bn,
             float *packed) {
    fo_pack_weights(kn, n, k, &(fo_weights){b, FO_F32}, bk, bn, packed);
}

void fo_pack_weights(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k, const fo_weights *b, ptrdiff_t bk, ptrdiff_t bn,
                     void *packed) {
    packing p = {kn, n, k, bk, bn, *b, packed};
    fo_parallel_for(k ? div_up(n, kn->nr) : 0, fo_pack_threads(n * k), pack_task, &p);
}

void fo_pack_columns(const fo_kernels *kn, ptrdiff_t n, ptrdiff_t k, const fo_weights *b, ptrdiff_t bk, ptrdiff_t bn,
                     float *columns) {
    const ptrdiff_t once = bk == 1 ? k : 1;
    if (b->type == FO_F32 && bn == 1 && bk != 1 && !is_odd(b->data)) {
        kn->transpose(k, n, b->data, bk, columns, k);
        return;
    }
    for (ptrdiff_t j = 0; j < n; j++)
        for (ptrdiff_t p = 0; p < k; p += once) {
            const ptrdiff_t from = p * bk + j * bn;
            if (b->type == FO_F32)
                memcpy(columns + j * k + p, (const float *)b->data + from, (size_t)once * sizeof *columns);
            else
                kn->widen(once, b->type, (const uint16_t *)b->data + from, columns + j * k + p);
        }
}

float *fo_copy(const float *p, ptrdiff_t n, bool *failed) {
    if (!p) return NULL;
    const size_t whole = (size_t)(round_up(n, MAX_LANES) + 2 * MAX_LANES);
    float *copy = fo_alloc(whole * sizeof *copy);
    if (!copy) {
        *failed = true;
        return NULL;
    }
    memcpy(copy, p, (size_t)n * sizeof *copy);
    memset(copy + n, 0, (whole - (size_t)n) * sizeof *copy);
    return copy;
}

bool fo_batch_norm_scale(ptrdiff_t n, const float *gamma, const float *beta, const float *mean, const float *var,
                         double eps, double *scale, double *shift) {
    bool positive = true;
    for (ptrdiff_t c = 0; c < n; c++) {
        const double v = var[c] + eps;
        positive &= v > 0;
        scale[c] = 1 / sqrt(v) * (gamma ? gamma[c] : 1);
        shift[c] = -mean[c] * scale[c];
        if (beta) shift[c] += beta[c];
    }
    return positive;
}

void fo_fold_bias(ptrdiff_t n, const float *bias, const double *scale, const double *shift, float *folded) {
    for (ptrdiff_t c = 0; c < n; c++) folded[c] = (float)(bias ? shift[c] + bias[c] * scale[c] : shift[c]);
}

typedef struct {
    const fo_kernels *kn;
    ptrdiff_t oc, each, rows; /* channels of a task */
    const float *w;
    const double *scale;
    float *folded;
} folding;

static void fold_task(void *context, ptrdiff_t task, int thread) {
    (void)thread;
    const folding *f = context;
    for (ptrdiff_t o = task * f->rows; o < min_(f->oc, (task + 1) * f->rows); o++)
        f->kn->fold(f->each, f->w + o * f->each, f->scale[o], f->folded + o * f->each);
}

void fo_fold_scale(ptrdiff_t oc, ptrdiff_t each, const float *w, const double *scale, float *folded) {
    const int threads = fo_threads_for(FO_FOLD_NS * (double)(oc * each));
    folding f = {fo_active(), oc, each, div_up(oc, 4 * threads), w, scale, folded};
    fo_parallel_for(oc ? div_up(oc, f.rows) : 0, threads, fold_task, &f);
}
