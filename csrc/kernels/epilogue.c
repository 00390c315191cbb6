/* The end of tiles that leave their registers by way of memory. */
#include "kernels.h"

/* Columns j.. of every row. */
INLINE void finish_vectors(const fo_act_kind kind, const bool all, const finish_args *f, int j) {
    const vm m = v_range(0, f->n - j);
    vf slope = kind == FO_PRELU && !f->channel_rows ? v_load_mask(f->slopes + j, m) : v_zero();
    for (int i = 0; i < f->mr; i++) {
        if (kind == FO_PRELU && f->channel_rows) slope = v_set1(f->slopes[i]);
        finish_vector(kind, all, f, v_load(f->tile + i * f->ldt + j), f->r ? f->r + i * f->ldr + j : NULL,
                      f->c + i * f->ldc + j, f->n - j, m, slope);
    }
}

INLINE void finish_rows(const fo_act_kind kind, const finish_args *args) {
    const finish_args f = *args; /* in registers: a store through c could change what args points to */
    int j = 0;
    for (; j + VL <= f.n; j += VL) finish_vectors(kind, true, &f, j);
    if (j < f.n) finish_vectors(kind, false, &f, j);
}

/* VL columns from j on of VL rows from i on, of which the first n, lanes m, are there, in t: from the registers to C.
 */
INLINE void finish_block(const fo_act_kind kind, const bool all, const finish_args *f, int i, int j, vf *t, int n,
                         vm m) {
    float *c = f->c + j * f->ldc + i;
    const float *r = f->r ? f->r + j * f->ldr + i : NULL;
    if (r)
        UNROLL_FOR (int l = 0; l < VL; l++, r += f->ldr) {
            v_launder(r);
            t[l] = v_add(t[l], all ? v_load(r) : v_load_mask(r, m));
        }
    UNROLL_FOR (int l = 0; l < VL; l++, c += f->ldc) {
        v_launder(c);
        finish_vector(kind, all, f, t[l], NULL, c, n, m, v_zero());
    }
}

/* The same for a C that stands column after column: VL x VL blocks are transposed on the way. */
INLINE void finish_columns(const fo_act_kind kind, const finish_args *args) {
    const finish_args f = *args;
    for (int i = 0; i < f.mr; i += VL) {
        const int left = f.mr - i;
        const bool all = left >= VL;
        const vm m = v_range(0, left);
        vf slope = kind == FO_PRELU && f.channel_rows ? v_load_mask(f.slopes + i, m) : v_zero();
        for (int j = 0; j < f.n; j += VL) {
            const float *row = f.tile + i * f.ldt + j;
            vf t[VL];
            UNROLL_FOR (int l = 0; l < VL; l++) {
                t[l] = v_load(row);
                if (all || l + 1 < left) row += f.ldt; /* lanes beyond are not stored */
                v_launder(row);
            }
            v_transpose(t);
            if (kind <= FO_CLIP && j + VL <= f.n) { /* the common case */
                if (all)
                    finish_block(kind, true, &f, i, j, t, left, m);
                else
                    finish_block(kind, false, &f, i, j, t, left, m);
                continue;
            }
            float block[VL * VL];
            UNROLL_FOR (int l = 0; l < VL; l++) v_store(block + l * VL, t[l]);
            for (int l = 0; l < VL && j + l < f.n; l++) {
                ptrdiff_t at = j + l;
                if (kind == FO_PRELU && !f.channel_rows) slope = v_set1(f.slopes[at]);
                finish_vector(kind, false, &f, v_load(block + l * VL), f.r ? f.r + at * f.ldr + i : NULL,
                              f.c + at * f.ldc + i, left, m, slope);
            }
        }
    }
}

void FO_NAME(fo_finish_tile)(const finish_args *f, fo_act_kind kind, bool transposed) {
    if (transposed)
        WITH_ACTIVATION(kind, finish_columns(KIND, f));
    else
        WITH_ACTIVATION(kind, finish_rows(KIND, f));
}

void ep_tile(const fo_epilogue *ep, const float *tile, ptrdiff_t ldt, int mr, int n, ptrdiff_t i, ptrdiff_t j, float *c,
             ptrdiff_t ldc) {
    const ptrdiff_t row = ep->transposed ? j : i, column = ep->transposed ? i : j;
    const finish_args f = {.tile = tile,
                           .mr = mr,
                           .n = n,
                           .ldt = ldt,
                           .r = ep->residual ? (const float *)ep->residual + row * ep->ldr + column : NULL,
                           .ldr = ep->ldr,
                           .c = c + row * ldc + column,
                           .ldc = ldc,
                           .channel_rows = ep->channel_rows,
                           .p0 = ep->act.p0,
                           .p1 = ep->act.p1,
                           .slopes = ep->act.slopes ? ep->act.slopes + (ep->channel_rows ? i : j) : NULL};
    FO_NAME(fo_finish_tile)(&f, ep->act.kind, ep->transposed);
}
