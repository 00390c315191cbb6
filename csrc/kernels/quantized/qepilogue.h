/* The epilogue's other ends: sums of products of int8 or bfloat16 come in; float32, bytes or bfloat16 go out
 * (fo_rescale). Sums of other products than int8's are floats in the same registers.
 *
 *   tiles               stored as they are, then rows by a loop that is chosen once a call (qgemm_tile.h)
 *   sums in memory      eb_rows: activations that are not a clip, edges
 */
#ifndef FO_EPILOGUE_BYTES_H
#define FO_EPILOGUE_BYTES_H

#include "../epilogue.h"

enum {
    QUADS = sizeof(vi),
    EB_VECTORS = sizeof(float)
}; /* bytes of a vector; vectors whose integers make one of bytes */

typedef struct {
    vf lo, hi;
    vi zero, flip;
} eb_bounds;

INLINE eb_bounds eb_start(const fo_epilogue *e) {
    const fo_rescale *s = e->rescale;
    const ep_bounds b = ep_start(&e->act);
    if (!s) return (eb_bounds){b.lo, b.hi, v_iset1(0), v_iset1(0)};
    return (eb_bounds){v_set1(s->lo), v_set1(s->hi), v_iset1(s->zero * 0x10001),
                       v_iset1(e->type == FO_S8 ? (int32_t)0x80808080 : 0)};
}

/* A sum as LiteRT's kernels round it: times a multiplier of 31 bits, `scale` and what it lacks, to some bits after
 * the point, for which nudge stands, then to a whole number. What a product lacks is kept next to it, and a half of the
 * first rounding goes up: the integers are those of its kernels. */
INLINE vf eb_twice(vi sum, vf scale, vf lacks, vf nudge, const bool longer) {
    const vf s = v_to_float(sum), whole = v_to_float(v_to_int(v_mul(s, scale)));
    vf less = v_fnma(s, lacks, v_fnma(s, scale, whole)); /* whole less the product */
    if (longer) less = v_fnma(v_to_float(v_isub(sum, v_to_int(s))), scale, less);
    less = v_sub(less, v_add(v_copysign(nudge, s), v_set1(0x1p-24f)));
    return v_sub(whole, v_to_float(v_to_int(less)));
}

/* Floats in units of y's scale as integers, less zero; NaN becomes the lowest. */
INLINE vi eb_round(const eb_bounds *b, vf y) { return v_to_int(v_min(v_max(y, b->lo), b->hi)); }

/* The sum of two tensors of int8, less their zero points: each product is rounded, so their order does not matter. */
INLINE vf eb_sum(vf a, vf a_scale, vf b, vf b_scale) { return v_add(v_mul(a, a_scale), v_mul(b, b_scale)); }

/* A residual of int8, and how a result is rounded before: it has the integers of a layer that stores int8, and the sum
 * those of qpair. */
typedef struct {
    bool rounds;
    vf scale, product_scale;
    vi flip, zero;
    eb_bounds product;
} eb_added;

INLINE eb_added eb_added_of(const fo_epilogue *e) {
    const fo_rescale *s = e->rescale;
    return (eb_added){.rounds = s->product_scale != 0,
                      .scale = v_set1(s->residual_scale),
                      .product_scale = v_set1(s->product_scale),
                      .flip = v_iset1(e->residual_type == FO_S8 ? 0x80 : 0),
                      .zero = v_iset1(s->residual_zero),
                      .product = {.lo = v_set1(s->product_lo), .hi = v_set1(s->product_hi)}};
}

INLINE vf eb_add_int8(const eb_added *a, const bool rounds, vf y, vi q) {
    const vf x = v_to_float(v_isub(v_ixor(q, a->flip), a->zero));
    return rounds ? eb_sum(v_to_float(eb_round(&a->product, y)), a->product_scale, x, a->scale) : v_fma(x, a->scale, y);
}

/* Plus the residual's elements at r, of which n count. */
INLINE vf eb_residual(const fo_epilogue *e, vf y, const void *residual, ptrdiff_t at, ptrdiff_t n) {
    if (e->residual_type == FO_F32) {
        const float *r = (const float *)residual + at;
        const vf added = n >= VL ? v_load(r) : v_load_tail(r, n);
        return e->rescale ? v_fma(added, v_set1(e->rescale->residual_scale), y) : v_add(added, y);
    }
    if (e->residual_type == FO_BF16) {
        uint16_t some[VL] = {0};
        const uint16_t *r = (const uint16_t *)residual + at;
        if (n < VL) r = memcpy(some, r, (size_t)n * sizeof *r);
        return v_add(v_load_bf16(r), y);
    }
    const uint8_t *r = (const uint8_t *)residual + at;
    const eb_added a = eb_added_of(e);
    return eb_add_int8(&a, a.rounds, y, n >= VL ? v_load_bytes(r) : v_load_bytes_tail(r, n));
}

/* A sum as a float: of products of int8 times scale (and that of its row), plus bias; or rounded twice. */
INLINE vf eb_vector(const fo_dtype type, vi sum, const float *scale, const float *row_scale, const float *bias,
                    const float *nudge, const bool longer) {
    if (type != FO_S8) return v_add(v_as_float(sum), v_load(bias));
    if (nudge) return eb_twice(sum, v_load(scale), v_load(bias), v_load(nudge), longer);
    const vf y = v_to_float(sum);
    return row_scale ? v_fma(v_mul(y, v_load(scale)), v_set1(*row_scale), v_load(bias))
                     : v_fma(y, v_load(scale), v_load(bias));
}

INLINE vf eb_clip(const eb_bounds *b, vf y) { return v_min(b->hi, v_max(b->lo, y)); } /* NaN goes through */

/* Floats, of which n are wanted, as bfloat16. */
INLINE void eb_store_bf16(uint16_t *c, vf y, ptrdiff_t n) {
    uint16_t some[VL];
    if (n >= VL) {
        v_store_bf16(c, y);
    } else if (n > 0) {
        v_store_bf16(some, y);
        memcpy(c, some, (size_t)n * sizeof *c);
    }
}

/* How results leave: literals. */
typedef enum { EB_FLOATS, EB_BFLOATS, EB_SATURATED, EB_BOUNDED, EB_OUTS } eb_out;

INLINE eb_out eb_out_of(const fo_epilogue *e) {
    if (e->type == FO_F32) return EB_FLOATS;
    if (DOTS_BF16 && e->type == FO_BF16) return EB_BFLOATS;
    return e->rescale && e->rescale->saturates ? EB_SATURATED : EB_BOUNDED;
}

/* A row of nv vectors (a literal), of which n elements are wanted, to c: whole (a literal) says that these are all. */
INLINE void eb_store(const eb_out out, const bool clips, const fo_epilogue *e, const eb_bounds *b, const int nv,
                     const bool whole, vf y[EB_VECTORS], void *c, ptrdiff_t n) {
    if (out == EB_FLOATS) {
        UNROLL_FOR (int v = 0; v < nv; v++) {
            const vf real = clips ? eb_clip(b, y[v]) : y[v];
            if (whole)
                v_store((float *)c + v * VL, real);
            else if (n > v * VL)
                v_store_tail((float *)c + v * VL, real, n - v * VL);
        }
        return;
    }
    if (DOTS_BF16 && out == EB_BFLOATS) {
        UNROLL_FOR (int v = 0; v < nv; v++)
            eb_store_bf16((uint16_t *)c + v * VL, clips ? eb_clip(b, y[v]) : y[v], whole ? VL : n - v * VL);
        return;
    }
    vi q[EB_VECTORS];
    UNROLL_FOR (int v = nv; v < EB_VECTORS; v++) q[v] = v_iset1(0);
    if (out == EB_SATURATED)
        UNROLL_FOR (int v = 0; v < nv; v++) q[v] = v_to_int(y[v]);
    else
        UNROLL_FOR (int v = 0; v < nv; v++) q[v] = eb_round(b, clips ? y[v] : v_mul(y[v], v_set1(e->rescale->inverse)));
    const vi bytes = v_ixor(v_pack(q, b->zero), b->flip);
    if (whole && nv == EB_VECTORS)
        v_istore(c, bytes);
    else
        v_store_quads_tail(c, bytes, whole ? nv * VL : n);
}

/* What is still added to sums of products of int8: vectors for the columns, and for the rows, or NULL, a number. */
typedef struct {
    const int32_t *start, *w_zero, *row_zero, *row_sums; /* of fo_rescale and fo_gemm_args */
} eb_starts;

/* A vector of sums plus what they lack, of row i and columns from j on. */
INLINE vi eb_started(const eb_starts *s, vi sum, ptrdiff_t i, ptrdiff_t j) {
    const vi start = v_iload(s->start + j);
    sum = v_iadd(sum, s->row_zero ? v_imul(start, v_iset1(s->row_zero[i])) : start);
    return s->row_sums ? v_iadd(sum, v_imul(v_iload(s->w_zero + j), v_iset1(s->row_sums[i]))) : sum;
}

/* mr rows of sums, ldt elements from row to row, of n columns; r and c are their places in the residual and in C. */
typedef struct {
    const fo_epilogue *e;
    fo_dtype type; /* of the operands */
    const int32_t *sums;
    eb_starts starts; /* none where the sums have them */
    ptrdiff_t ldt, mr, n;
    const float *scale, *bias, *nudge, *slopes, *row_scale;
    bool longer;
    const void *r;
    void *c;
    ptrdiff_t ldc;
} eb_sums;

/* Elements j .. j + n - 1 of row i, as floats after their activation. */
INLINE void eb_activated(const fo_act_kind kind, const eb_sums *s, ptrdiff_t i, ptrdiff_t j, ptrdiff_t n, float *to) {
    for (const ptrdiff_t end = j + n; j < end; j += VL, to += VL) {
        vi sum = v_iload(s->sums + i * s->ldt + j);
        if (s->starts.start) sum = eb_started(&s->starts, sum, i, j);
        vf y = eb_vector(s->type, sum, s->scale + j, s->row_scale ? s->row_scale + i : NULL, s->bias + j,
                         s->nudge ? s->nudge + j : NULL, s->longer);
        if (s->r) y = eb_residual(s->e, y, s->r, i * s->e->ldr + j, s->n - j);
        const vf slopes = kind == FO_PRELU ? v_load_tail(s->slopes + j, s->n - j) : v_zero();
        v_store(to, v_act(kind, y, s->e->act.p0, s->e->act.p1, slopes));
    }
}

/* Bounds of a clip are in eb_store. */
static __attribute__((noinline)) void eb_rows(const eb_sums *s) {
    enum { MOST = EB_VECTORS * VL };
    const bool clips = fo_in_registers(&s->e->act);
    const fo_act_kind kind = clips ? FO_IDENTITY : s->e->act.kind;
    const eb_out out = eb_out_of(s->e);
    const eb_bounds b = eb_start(s->e);
    float some[MOST] = {0};
    for (ptrdiff_t i = 0; i < s->mr; i++)
        for (ptrdiff_t j = 0; j < s->n; j += MOST) {
            const ptrdiff_t n = s->n - j < MOST ? s->n - j : MOST;
            WITH_ACTIVATION(kind, eb_activated(KIND, s, i, j, n, some));
            vf y[EB_VECTORS];
            UNROLL_FOR (int v = 0; v < EB_VECTORS; v++) y[v] = v_load(some + v * VL);
            void *c = (char *)s->c + (i * s->ldc + j) * fo_size(s->e->type);
            if (n == MOST)
                eb_store(out, clips, s->e, &b, EB_VECTORS, true, y, c, n);
            else
                eb_store(out, clips, s->e, &b, EB_VECTORS, false, y, c, n);
        }
}

#endif
