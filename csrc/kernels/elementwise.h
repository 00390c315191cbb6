/* y = activation(f(a, b)) over rows: contiguous ones in vectors, broadcast and strided ones through v_load_strided. */

/* `f` is a literal at every call. */
INLINE vf v_function(const fo_function f, vf a, vf b) {
    switch (f) {
        case FO_SQRT: return v_sqrt(a);
        case FO_EXP: return v_exp(a);
        case FO_LOG: return v_lanes(logf, a);
        case FO_ERF: return v_erf(a);
        case FO_RECIPROCAL: return v_div(v_set1(1), a);
        case FO_NEG: return v_mul(v_set1(-1), a);
        case FO_ABS: return v_abs(a);
        case FO_ADD: return v_add(a, b);
        case FO_SUB: return v_sub(a, b);
        case FO_MUL: return v_mul(a, b);
        case FO_DIV: return v_div(a, b);
        case FO_POW: {
            float x[VL], y[VL];
            v_store(x, a), v_store(y, b);
            for (int l = 0; l < VL; l++) x[l] = powf(x[l], y[l]);
            return v_load(x);
        }
        case FO_MAX: return v_largest(a, b);
        case FO_MIN: return v_select(v_isnan(a), a, v_min(a, b));
        case FO_SLOPE: return v_select(v_lt(a, v_zero()), v_mul(b, a), a);
        default: return a;
    }
}

static __attribute__((noinline)) vf activated(const fo_activation *act, vf v) {
    WITH_ACTIVATION(act->kind, return v_act(KIND, v, act->p0, act->p1, v_zero()));
    return v;
}

/* `plain` is a literal: contiguous rows and no activation but a clip. */
INLINE void elementwise_row(const fo_function f, const bool plain, const fo_elementwise_rows *g, const float *a, const float *b,
                            float *y) {
    const bool two = f >= FO_ADD, clip = g->act.kind == FO_CLIP;
    const vf lo = v_set1(clip ? g->act.p0 : -INFINITY), hi = v_set1(clip ? g->act.p1 : INFINITY);
    for (ptrdiff_t j = 0; j < g->n; j += VL) {
        const ptrdiff_t left = g->n - j;
        if (plain && left >= VL) {
            const vf v = v_function(f, v_load(a + j), two ? v_load(b + j) : v_zero());
            v_store(y + j, v_min(hi, v_max(lo, v)));
            continue;
        }
        vf v = v_load_strided(a + j * g->sa, g->sa, left);
        v = v_function(f, v, two ? v_load_strided(b + j * g->sb, g->sb, left) : v_zero());
        if (g->act.kind != FO_IDENTITY) v = activated(&g->act, v);
        v_store_strided(y + j * g->sy, g->sy, v, left);
    }
}

INLINE void elementwise_rows(const fo_function f, const fo_elementwise_rows *g) {
    const bool two = f >= FO_ADD, plain = g->sa == 1 && g->sy == 1 && (!two || g->sb == 1) && g->act.kind <= FO_CLIP;
    for (ptrdiff_t i = 0; i < g->m; i++) {
        const float *a = g->a + i * g->lda, *b = two ? g->b + i * g->ldb : NULL;
        if (plain)
            elementwise_row(f, true, g, a, b, g->y + i * g->ldy);
        else
            elementwise_row(f, false, g, a, b, g->y + i * g->ldy);
    }
}

#define FUNCTION_CASE(f) \
    case f: elementwise_rows(f, g); break;

static void FO_NAME(fo_elementwise)(const fo_elementwise_rows *g) {
    switch (g->f) {
        FUNCTION_CASE(FO_SAME) FUNCTION_CASE(FO_SQRT) FUNCTION_CASE(FO_EXP) FUNCTION_CASE(FO_LOG) FUNCTION_CASE(FO_ERF)
        FUNCTION_CASE(FO_RECIPROCAL) FUNCTION_CASE(FO_NEG) FUNCTION_CASE(FO_ABS) FUNCTION_CASE(FO_ADD) FUNCTION_CASE(FO_SUB)
        FUNCTION_CASE(FO_MUL) FUNCTION_CASE(FO_DIV) FUNCTION_CASE(FO_POW) FUNCTION_CASE(FO_MAX) FUNCTION_CASE(FO_MIN)
        FUNCTION_CASE(FO_SLOPE)
        case FO_FUNCTIONS: break;
    }
}
#undef FUNCTION_CASE
