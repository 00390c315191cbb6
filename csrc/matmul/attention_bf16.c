/* The products of attention in bfloat16: q k^T and weights v, with sums in float32.
 *
 *   keys     panels of keys       rounded and transposed by groups of two elements
 *   values   panels of elements   two keys' rows, rounded, one element of each in turn
 *   weights  rows                 rounded as they are made, zeros after the keys that a row sees
 *
 * Tiles add in an order of their own, a vector of groups of two keys at a time; keys are padded to whole ones, so that
 * a row's bits do not depend on how many keys others see. */
#include "attention_job.h"

static ptrdiff_t columns_from(const attention_job *j, ptrdiff_t left) {
    return fo_panel_columns(left, j->kn->vl, j->rounded->nr);
}

static ptrdiff_t padded(const attention_job *j, ptrdiff_t keys) { return round_up(keys, 2 * j->kn->vl); }

ptrdiff_t fo_attention_rows_room(const attention_job *j) { return j->height * padded(j, j->keys) / 2; }

void fo_attention_pack_narrow(const attention_job *j, const float_rows *k, const float_rows *v,
                              const attention_scratch *x) {
    const ptrdiff_t of_keys = div_up(k->d, 2), of_values = padded(j, v->n) / 2;
    for (ptrdiff_t i = 0, columns; i < k->n; i += columns) {
        columns = columns_from(j, k->n - i);
        j->kn->pack_narrow(k->d, min_(columns, k->n - i), k->at + i * k->row, k->element, k->row, of_keys, columns,
                           (uint16_t *)(x->k + i * of_keys));
    }
    for (ptrdiff_t i = 0, columns; i < v->d; i += columns) {
        columns = columns_from(j, v->d - i);
        j->kn->pack_narrow(v->n, min_(columns, v->d - i), v->at + i * v->element, v->row, v->element, of_values,
                           columns, (uint16_t *)(x->v + i * of_values));
    }
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

void fo_attention_narrow_weights(const attention_job *j, const attention_scratch *x, fo_attention_block *b) {
    b->narrow = (uint16_t *)x->rows, b->ldn = padded(j, b->n);
    j->kn->attention_narrow(b);
}

void fo_attention_narrow_values(const attention_job *j, const attention_scratch *x, const fo_attention_block *b,
                                const key_block *keys) {
    const ptrdiff_t dv = j->a->dv, steps = b->ldn, packed = padded(j, keys->packed);
    /* panels of values are multiplied together where rows see all keys that are packed */
    for (ptrdiff_t i = 0, columns; i < dv; i += columns) {
        columns = steps == packed ? round_up(dv, j->kn->vl) : columns_from(j, dv - i);
        multiply(j, (fo_gemm_args){.m = b->rows,
                                   .n = columns,
                                   .k = steps / 2,
                                   .a = x->rows,
                                   .lda = steps * (ptrdiff_t)sizeof(uint16_t),
                                   .b = x->v + i * (packed / 2),
                                   .c = b->to.values + i,
                                   .ldc = b->to.ld});
    }
}
