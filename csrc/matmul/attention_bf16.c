/* The products of attention in bfloat16: q k^T and weights v, with sums in float32.
 *
 *   keys     panels of keys       rounded row by row, then transposed by groups of two elements
 *   values   panels of elements   two keys' rows, rounded, one element of each in turn
 *   weights  rows                 rounded, zeros after the keys that a row sees
 *
 * Tiles add in an order of their own, a vector of groups of two keys at a time; keys are padded to whole ones, so that
 * a row's bits do not depend on how many keys others see. */
#include <string.h>

#include "attention_job.h"

static ptrdiff_t columns_from(const attention_job *j, ptrdiff_t left) {
    return fo_panel_columns(left, j->kn->vl, j->rounded->nr);
}

static ptrdiff_t padded(const attention_job *j, ptrdiff_t keys) { return round_up(keys, 2 * j->kn->vl); }

ptrdiff_t fo_attention_rows_room(const attention_job *j) {
    const ptrdiff_t of_keys = j->rounded->nr * div_up(j->a->d, 2), of_weights = j->height * padded(j, j->keys) / 2;
    return max_(max_(of_keys, of_weights), round_up(j->a->dv, j->rounded->nr));
}

/* A row of n elements `step` apart, rounded. */
static void round_row(const attention_job *j, const attention_scratch *x, ptrdiff_t n, const float *from,
                      ptrdiff_t step, void *to) {
    if (step != 1) {
        for (ptrdiff_t i = 0; i < n; i++) x->row[i] = from[i * step];
        from = x->row;
    }
    fo_round(j->rounded, n, from, to, 0, n);
}

static void pack_keys(const attention_job *j, const float_rows *k, const attention_scratch *x) {
    const ptrdiff_t groups = div_up(k->d, 2), n = k->n;
    float *to = x->k;
    for (ptrdiff_t i = 0, columns; i < n; i += columns, to += columns * groups) {
        columns = columns_from(j, n - i);
        const ptrdiff_t there = min_(columns, n - i);
        for (ptrdiff_t c = 0; c < there; c++)
            round_row(j, x, k->d, k->at + (i + c) * k->row, k->element, x->rows + c * groups);
        memset(x->rows + there * groups, 0, (size_t)((columns - there) * groups) * sizeof(float));
        j->kn->transpose(columns, groups, x->rows, groups, to, columns);
    }
}

/* Two rows of `columns` elements, of which `there` are: one of each in turn. */
static void interleave(ptrdiff_t columns, ptrdiff_t there, const uint16_t *restrict a, const uint16_t *restrict b,
                       uint16_t *restrict to) {
    for (ptrdiff_t c = 0; c < there; c++) to[2 * c] = a[c], to[2 * c + 1] = b[c];
    memset(to + 2 * there, 0, (size_t)(2 * (columns - there)) * sizeof *to);
}

static void pack_values(const attention_job *j, const float_rows *v, const attention_scratch *x) {
    const ptrdiff_t n = v->n, dv = v->d;
    uint16_t *pair[2] = {(uint16_t *)x->rows, (uint16_t *)x->rows + dv};
    for (ptrdiff_t s = 0; s < padded(j, n); s += 2) {
        for (ptrdiff_t r = 0; r < 2; r++)
            if (s + r < n)
                round_row(j, x, dv, v->at + (s + r) * v->row, v->element, pair[r]);
            else
                memset(pair[r], 0, (size_t)dv * sizeof *pair[r]);
        for (ptrdiff_t i = 0, columns; i < dv; i += columns) {
            columns = columns_from(j, dv - i);
            interleave(columns, min_(columns, dv - i), pair[0] + i, pair[1] + i,
                       (uint16_t *)x->v + i * padded(j, n) + s * columns);
        }
    }
}

void fo_attention_pack_narrow(const attention_job *j, const float_rows *k, const float_rows *v,
                              const attention_scratch *x) {
    pack_keys(j, k, x);
    pack_values(j, v, x);
}

/* A product of sums alone, by all columns of some panels. */
static void multiply(const attention_job *j, fo_gemm_args g) {
    g.segments = g.lines = 1;
    j->rounded->run(&g);
}

void fo_attention_narrow_scores(const attention_job *j, const attention_scratch *x, const float *q, ptrdiff_t rows,
                                ptrdiff_t n, const key_block *keys) {
    const ptrdiff_t d = j->a->d;
    ptrdiff_t columns = 0;
    while (columns < n) columns += columns_from(j, keys->packed - columns);
    multiply(j, (fo_gemm_args){.m = rows,
                               .n = columns,
                               .k = div_up(d, 2),
                               .a = q,
                               .lda = d * (ptrdiff_t)sizeof(float),
                               .b = x->k,
                               .c = x->scores,
                               .ldc = j->lds});
}

void fo_attention_narrow_values(const attention_job *j, const attention_scratch *x, ptrdiff_t rows, ptrdiff_t n,
                                const key_block *keys, const fo_attended *to) {
    const ptrdiff_t dv = j->a->dv, steps = padded(j, n), packed = padded(j, keys->packed);
    for (ptrdiff_t r = 0; r < rows; r++) {
        uint16_t *row = (uint16_t *)x->rows + r * steps;
        fo_round(j->rounded, steps, x->scores + r * j->lds, row, 0, n);
        memset(row + n, 0, (size_t)(steps - n) * sizeof *row);
    }
    /* panels of values are multiplied together where rows see all keys that are packed */
    for (ptrdiff_t i = 0, columns; i < dv; i += columns) {
        columns = steps == packed ? round_up(dv, j->kn->vl) : columns_from(j, dv - i);
        multiply(j, (fo_gemm_args){.m = rows,
                                   .n = columns,
                                   .k = steps / 2,
                                   .a = x->rows,
                                   .lda = steps * (ptrdiff_t)sizeof(uint16_t),
                                   .b = x->v + i * (packed / 2),
                                   .c = to->values + i,
                                   .ldc = to->ld});
    }
}
