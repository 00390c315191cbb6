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

typedef struct {
    ptrdiff_t k, wn, wk;
    fo_weights w;
    const double *scale;
    uint16_t *to;
    float *rows; /* one a thread */
} rounding;

static void round_row(void *context, ptrdiff_t i, int thread) {
    const rounding *r = context;
    const ptrdiff_t size = fo_size(r->w.type);
    const fo_kernels *kn = fo_active();
    const char *from = (const char *)r->w.data + i * r->wn * size;
    float *row = r->rows + thread * r->k;
    if (r->wk == 1)
        kn->widen(r->k, r->w.type, from, row);
    else
        for (ptrdiff_t p = 0; p < r->k; p++) kn->widen(1, r->w.type, from + p * r->wk * size, row + p);
    if (r->scale) kn->fold(r->k, row, r->scale[i], row);
    fo_active()->narrow(r->k, row, r->to + i * r->k);
}

uint16_t *fo_bf16_weights(ptrdiff_t n, ptrdiff_t k, const fo_weights *w, ptrdiff_t wn, ptrdiff_t wk,
                          const double *scale) {
    const int threads = fo_pack_threads(n * k);
    rounding r = {k,
                  wn,
                  wk,
                  *w,
                  scale,
                  fo_alloc((size_t)max_(n * k, 1) * sizeof(uint16_t)),
                  fo_alloc((size_t)max_(threads * k, 1) * sizeof(float))};
    if (r.to && r.rows) fo_parallel_for(n, threads, round_row, &r);
    if (!r.rows) fo_free(r.to), r.to = NULL;
    fo_free(r.rows);
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
