/* y = activation(f(a, b)) over rows: contiguous ones and single values in vectors, strided ones through
 * v_load_strided. */

/* Powers that are products or a root; they are what is asked for most. */
enum { SQUARED = FO_FUNCTIONS, CUBED, ROOT };

/* The same of one lane, so that bits do not depend on whether one exponent stands for all. -infinity and -0 have a
 * square root here, as powf says. */
INLINE float lane_power(float x, float exponent) {
    if (exponent == 2) return x * x;
    if (exponent == 3) return x * x * x;
    if (exponent == 0.5f) return x < -FLT_MAX ? INFINITY : sqrtf(x + 0.0f);
    return powf(x, exponent);
}

/* `f` is a literal at every call. */
INLINE vf v_function(const int f, vf a, vf b) {
    switch (f) {
        case FO_SQRT: return v_sqrt(a);
        case FO_EXP: return v_exp(a);
        case FO_LOG: return v_log(a);
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
            for (int l = 0; l < VL; l++) x[l] = lane_power(x[l], y[l]);
            return v_load(x);
        }
        case FO_MAX: return v_largest(a, b);
        case FO_MIN: return v_least(a, b);
        case FO_SLOPE: return v_select(v_lt(a, v_zero()), v_mul(b, a), a);
        case SQUARED: return v_mul(a, a);
        case CUBED: return v_mul(v_mul(a, a), a);
        case ROOT: return v_select(v_lt(a, v_set1(-FLT_MAX)), v_set1(INFINITY), v_sqrt(v_add(a, v_zero())));
        default: return a;
    }
}

/* y[j] = activation(x[j]), as a tile one vector wide, and what is left of a vector; y may be x. */
INLINE void activate(const fo_activation *act, const float *x, float *y, ptrdiff_t n) {
    const ptrdiff_t whole = n / VL * VL;
    finish_args f = {
        .tile = x, .mr = (int)(n / VL), .n = VL, .ldt = VL, .c = y, .ldc = VL, .p0 = act->p0, .p1 = act->p1};
    if (whole) FO_NAME(fo_finish_tile)(&f, act->kind, false);
    if (whole == n) return;
    float rest[VL]; /* a tile has whole vectors, x not */
    v_store(rest, v_load_tail(x + whole, n - whole));
    f.tile = rest, f.mr = 1, f.n = (int)(n - whole), f.c = y + whole;
    FO_NAME(fo_finish_tile)(&f, act->kind, false);
}

/* The elements of a row: strided (also those of a b that there is not), contiguous, one value for all. */
typedef enum { STRIDED, CONTIGUOUS, SAME } row_form;
INLINE row_form form_of(ptrdiff_t stride) { return stride == 1 ? CONTIGUOUS : stride == 0 ? SAME : STRIDED; }

/* Without an activation, unless it is a clip. */
INLINE void contiguous_row(const int f, const row_form fa, const row_form fb, const float *a, const float *b, float *y,
                           ptrdiff_t n, const ep_bounds *ep) {
    const vf a0 = fa == SAME ? v_set1(*a) : v_zero(), b0 = fb == SAME ? v_set1(*b) : v_zero();
    ptrdiff_t j = 0;
    for (; j + VL <= n; j += VL) {
        const vf v = v_function(f, fa == SAME ? a0 : v_load(a + j), fb == CONTIGUOUS ? v_load(b + j) : b0);
        ep_store(ep, y + j, v);
    }
    if (j == n) return;
    const vm rest = v_range(0, n - j);
    const vf v =
        v_function(f, fa == SAME ? a0 : v_load_mask(a + j, rest), fb == CONTIGUOUS ? v_load_mask(b + j, rest) : b0);
    ep_store_mask(ep, y + j, v, rest);
}

INLINE void elementwise_row(const int f, const row_form fa, const row_form fb, const fo_elementwise_rows *g,
                            const float *a, const float *b, float *y) {
    FO_RAN("elementwise contiguous");
    const ep_bounds ep = ep_start(&g->act);
    const bool second_pass = !fo_in_registers(&g->act);
    const ptrdiff_t step = second_pass ? FO_ACTIVATED_FLOATS : g->n;
    for (ptrdiff_t j = 0; j < g->n; j += step) {
        const ptrdiff_t n = step < g->n - j ? step : g->n - j;
        const bool alone = f == FO_SAME && second_pass; /* an activation and nothing before it */
        if (!alone) contiguous_row(f, fa, fb, fa == SAME ? a : a + j, fb == CONTIGUOUS ? b + j : b, y + j, n, &ep);
        if (second_pass) activate(&g->act, alone ? a + j : y + j, y + j, n);
    }
}

INLINE void strided_row(const int f, const fo_elementwise_rows *g, const float *a, const float *b, float *y) {
    FO_RAN("elementwise strided");
    for (ptrdiff_t j = 0; j < g->n; j += VL) {
        const ptrdiff_t left = g->n - j;
        float lane[VL];
        const vf vb = b ? v_load_strided(b + j * g->sb, g->sb, left) : v_zero();
        v_store(lane, v_function(f, v_load_strided(a + j * g->sa, g->sa, left), vb));
        if (g->act.kind != FO_IDENTITY) activate(&g->act, lane, lane, VL);
        v_store_strided(y + j * g->sy, g->sy, v_load(lane), left);
    }
}

INLINE void elementwise_rows(const int f, const fo_elementwise_rows *g) {
    const bool two = f >= FO_ADD && f < FO_FUNCTIONS;
    const row_form fa = g->sy == 1 ? form_of(g->sa) : STRIDED, fb = two ? form_of(g->sb) : STRIDED;
    for (ptrdiff_t i = 0; i < g->m; i++) {
        const float *a = g->a + i * g->lda, *b = two ? g->b + i * g->ldb : NULL;
        float *y = g->y + i * g->ldy;
        if (!two && fa == CONTIGUOUS)
            elementwise_row(f, CONTIGUOUS, STRIDED, g, a, b, y);
        else if (two && fa == CONTIGUOUS && fb == CONTIGUOUS)
            elementwise_row(f, CONTIGUOUS, CONTIGUOUS, g, a, b, y);
        else if (two && fa == CONTIGUOUS && fb == SAME)
            elementwise_row(f, CONTIGUOUS, SAME, g, a, b, y);
        else if (two && fa == SAME && fb == CONTIGUOUS)
            elementwise_row(f, SAME, CONTIGUOUS, g, a, b, y);
        else
            strided_row(f, g, a, b, y);
    }
}

/* A power with one exponent for all. */
INLINE int power_of(const fo_elementwise_rows *g) {
    if (g->sb || g->ldb) return FO_POW;
    if (*g->b == 2) return SQUARED;
    if (*g->b == 3) return CUBED;
    return *g->b == 0.5f ? ROOT : FO_POW;
}

#define FUNCTION_CASE(f) \
    case f: elementwise_rows(f, g); break;

void FO_NAME(fo_elementwise)(const fo_elementwise_rows *g) {
    switch (g->f == FO_POW ? power_of(g) : (int)g->f) {
        FUNCTION_CASE(FO_SAME)
        FUNCTION_CASE(FO_SQRT)
        FUNCTION_CASE(FO_EXP)
        FUNCTION_CASE(FO_LOG)
        FUNCTION_CASE(FO_ERF)
        FUNCTION_CASE(FO_RECIPROCAL)
        FUNCTION_CASE(FO_NEG)
        FUNCTION_CASE(FO_ABS)
        FUNCTION_CASE(FO_ADD)
        FUNCTION_CASE(FO_SUB)
        FUNCTION_CASE(FO_MUL)
        FUNCTION_CASE(FO_DIV)
        FUNCTION_CASE(FO_POW)
        FUNCTION_CASE(FO_MAX)
        FUNCTION_CASE(FO_MIN)
        FUNCTION_CASE(FO_SLOPE)
        FUNCTION_CASE(SQUARED)
        FUNCTION_CASE(CUBED)
        FUNCTION_CASE(ROOT)
    }
}
#undef FUNCTION_CASE
